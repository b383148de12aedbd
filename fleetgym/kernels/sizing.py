"""Size fleets between two margins: keep useful replicas, and add some for what else would go unserved.

Demand is counted in shares of what is expected of a workload in the window. A replica serves workloads in an order of
its own, each as far as compute, KV memory and queue servers allow. `tests/sizing_twin.py` is the same in plain Python.
"""

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import always_inline, entry, inline, jit
from fleetgym.kernels.economics import (
    COMPATIBLE,
    COMPUTE,
    CONCURRENCY,
    DELAY_SLO,
    ERROR_SLO,
    KV_CAPACITY,
    RATE,
    UNSERVED_USD,
    first_token,
    penalty_weight,
    route_coefficients,
    routing_usd,
)
from fleetgym.kernels.lowlevel import (
    WIDTH,
    are_less,
    borrow,
    choose,
    larger,
    load_first,
    quotient,
    smaller,
    smallest,
    spread,
    store_first,
    total,
)
from fleetgym.kernels.records import PackedConditions, unpack

#: Most that queue servers are loaded, as in the routing.
MOST_UTILIZATION = 0.95

_TINY = 1e-12  # a share below this is served
_SURE = 1.0 - 1e-9  # of a bound: what round-off cannot reach

#: Columns of what money says of a window: see `size_fleets`.
BUDGET_USD, RENT_FACTOR, PAYBACK = range(3)


class SizingSpace(NamedTuple):
    """Arrays that sizing overwrites."""

    usd: np.ndarray  # (I, C) cost of routing a whole workload, with what it breaks of its SLOs
    amount: np.ndarray  # (3, I, C) compute, KV memory and servers that it takes
    load: np.ndarray  # (C, 3, I) the same by configuration, where a replica serves it
    route: np.ndarray  # (C, I) as `usd`; inf: a replica does not serve it
    replicas: np.ndarray  # (I, C) that a whole workload takes, used like the first; inf: not served
    gain: np.ndarray  # (I,) by which a configuration's workloads are ordered
    order: np.ndarray  # (C, I) int64 workloads in the order in which a replica serves them; -1: no more
    unserved: np.ndarray  # (I,) cost of not serving a whole workload
    price: np.ndarray  # (I,) the least that serving it costs anywhere
    need: np.ndarray  # (I,) shares that nobody serves
    served: np.ndarray  # (I,) shares that somebody serves
    paid: np.ndarray  # (I,) what routing these costs
    mean: np.ndarray  # (I,) the same for each whole workload
    new: np.ndarray  # (2, I) shares that a replica serves and nobody did: one tried, and the best one
    cheaper: np.ndarray  # (2, I) shares that it serves at less than is paid for them so far
    servers: np.ndarray  # (C,) that one more replica adds
    crumbs: np.ndarray  # (C,) servers so few that what they serve of any workload counts as nothing
    rent: np.ndarray  # (3, C) of a replica: what it costs, what it counts, the same until its start is paid
    slot: np.ndarray  # (C,) int64 exclusive slot of each configuration, or -1
    open: np.ndarray  # (C,) int64 configurations of which one more replica may be added
    free: np.ndarray  # (G,) int64 GPUs


def new_space(num_workloads: int, num_configurations: int, num_pools: int) -> SizingSpace:
    """Return space for instances of one size."""
    size = (num_workloads, num_configurations)
    return SizingSpace(
        usd=np.zeros(size),
        amount=np.zeros((3, *size)),
        load=np.zeros((num_configurations, 3, num_workloads)),
        route=np.zeros(size[::-1]),
        replicas=np.zeros(size),
        gain=np.zeros(num_workloads),
        order=np.zeros(size[::-1], dtype=np.int64),
        unserved=np.zeros(num_workloads),
        price=np.zeros(num_workloads),
        need=np.zeros(num_workloads),
        served=np.zeros(num_workloads),
        paid=np.zeros(num_workloads),
        mean=np.zeros(num_workloads),
        new=np.zeros((2, num_workloads)),
        cheaper=np.zeros((2, num_workloads)),
        servers=np.zeros(num_configurations),
        crumbs=np.zeros(num_configurations),
        rent=np.zeros((3, num_configurations)),
        slot=np.zeros(num_configurations, dtype=np.int64),
        open=np.zeros(num_configurations, dtype=np.int64),
        free=np.zeros(num_pools, dtype=np.int64),
    )


@inline
def _servers(parameters, c, replicas, risk):
    """Return how many queue servers of so many replicas may be busy: more, with more risk of late requests."""
    if replicas == 0:
        return 0.0
    safe = parameters.segment[parameters.segment_offset[c] + replicas - 1, 0]
    return (safe + risk * (MOST_UTILIZATION - safe)) * replicas * parameters.configuration[CONCURRENCY, c]


@inline
def _fill_rent(problem, price, money, at_once, space):
    """Fill the rent of each configuration's replica."""
    for c in range(space.rent.shape[1]):
        hold = problem.model_storage_usd[c]
        for g in range(problem.rental_usd.shape[0]):
            hold += problem.rental_usd[g, c] * price[g]
        wait = 0 if at_once else problem.startup_windows[c]
        start = problem.startup_usd[c] + wait * hold
        space.rent[0, c] = hold
        space.rent[1, c] = money[RENT_FACTOR] * hold
        space.rent[2, c] = money[RENT_FACTOR] * (hold + start / money[PAYBACK])


@always_inline
def _replicas(configuration, count, first, some, work, kv, service, servers):
    """Return how many first replicas eight loads of compute, KV memory and servers take; inf: more than any."""
    zero = spread(0.0)
    compute = load_first(configuration, COMPUTE * count + first, some)
    memory = load_first(configuration, KV_CAPACITY * count + first, some)
    found = choose(are_less(zero, work), quotient(work, compute), zero)
    found = larger(found, choose(are_less(zero, kv), quotient(kv, memory), zero))
    return larger(found, choose(are_less(zero, service), quotient(service, servers), zero))


@inline
def _fill_routes(problem, workload, risk, space):
    """Fill loads, costs of routing, and the least that serving each workload costs."""
    parameters, zero, infinite = problem.parameters, spread(0.0), spread(np.inf)
    workloads, count = space.usd.shape
    plane = workloads * count
    for c in range(count):
        space.servers[c] = _servers(parameters, c, 1, risk)
    for i in range(workloads):
        rate, least = spread(workload[RATE, i]), infinite
        unserved = penalty_weight(parameters, workload[RATE, i]) * parameters.workload[UNSERVED_USD, i]
        delay_slo = spread(parameters.workload[DELAY_SLO, i])
        error_slo = spread(parameters.workload[ERROR_SLO, i])
        space.unserved[i] = unserved
        for first in range(0, count, WIDTH):
            some, at = count - first, i * count + first
            delay, work, service, prefill, kv, error = route_coefficients(
                parameters, workload, i, None, first, some
            )
            work, kv, service = rate * work, rate * kv, rate * service
            late, wrong = quotient(delay, delay_slo) - spread(1.0), quotient(error, error_slo) - spread(1.0)
            own, _ = first_token(parameters, workload, i, None, first, some, prefill)
            usd = routing_usd(parameters, workload, i, None, first, some, delay, own)
            usd = usd + spread(unserved) * (larger(zero, late) + larger(zero, wrong))
            servers = load_first(space.servers, first, some)
            replicas = _replicas(parameters.configuration, count, first, some, work, kv, service, servers)
            compatible = load_first(parameters.performance, COMPATIBLE * plane + at, some)
            replicas = choose(are_less(zero, compatible), replicas, infinite)
            cost = load_first(space.rent, count + first, some) * replicas + usd
            known = are_less(replicas, infinite) & ((1 << min(some, WIDTH)) - 1)
            least = smaller(least, choose(known, cost, infinite))
            store_first(space.usd, at, usd, some)
            store_first(space.replicas, at, replicas, some)
            for r, amount in ((0, work), (1, kv), (2, service)):
                store_first(space.amount, r * plane + at, amount, some)
        space.price[i] = smallest(least)


@inline
def _fill_order(space):
    """Find the order in which a replica of each configuration serves.

    It first serves what would cost most elsewhere, for each share of the replica that it takes.
    """
    workloads, count = space.usd.shape
    for c in range(count):
        number, least = 0, np.inf
        for i in range(workloads):
            replicas, usd = space.replicas[i, c], space.usd[i, c]
            if not replicas < np.inf or space.unserved[i] <= usd:
                space.route[c, i] = np.inf
                continue
            space.route[c, i] = usd
            for r in range(3):
                space.load[c, r, i] = space.amount[r, i, c]
            least = min(least, space.load[c, 2, i])
            space.gain[i] = (space.price[i] - usd) / replicas if replicas > 0.0 else np.inf
            at = number
            while at > 0 and space.gain[space.order[c, at - 1]] < space.gain[i]:
                space.order[c, at] = space.order[c, at - 1]
                at -= 1
            space.order[c, at] = i
            number += 1
        space.crumbs[c] = 0.5 * _TINY * least
        for at in range(number, workloads):
            space.order[c, at] = -1


@inline
def _share(load, i, most, compute, memory, servers):
    """Return how much of `most` fits into what a replica has left, and what that leaves of it."""
    share = most
    if load[0, i] * share > compute:
        share = compute / load[0, i]
    if load[1, i] * share > memory:
        share = memory / load[1, i]
    if load[2, i] * share > servers:
        share = servers / load[2, i]
    if share <= _TINY:
        return 0.0, compute, memory, servers
    return share, compute - share * load[0, i], memory - share * load[1, i], servers - share * load[2, i]


@inline
def _servers_added(parameters, c, replicas, risk):
    """Return how many queue servers one more replica adds."""
    return _servers(parameters, c, replicas + 1, risk) - _servers(parameters, c, replicas, risk)


@inline
def _serve(problem, space, c, servers, row):
    """Write what one more replica of c would serve; return what that is worth, costs at least, and costs in routing.

    First it serves what nobody does, then what it serves at less than is paid for it so far. The shares stand in row
    `row` of `SizingSpace.new` and `SizingSpace.cheaper`.
    """
    configuration, load, route = problem.parameters.configuration, space.load, space.route
    compute, memory = configuration[COMPUTE, c], configuration[KV_CAPACITY, c]
    new, cheaper = space.new[row], space.cheaper[row]
    worth = price = usd = 0.0
    crumbs = space.crumbs[c]
    workloads = space.need.shape[0]
    for i in range(workloads):
        new[i] = cheaper[i] = 0.0
    for k in range(workloads):
        i = space.order[c, k]
        if i < 0 or servers < crumbs:
            break
        if space.need[i] > _TINY:
            share, compute, memory, servers = _share(load[c], i, space.need[i], compute, memory, servers)
            worth += share * (space.unserved[i] - route[c, i])
            price += share * space.price[i]
            usd += share * route[c, i]
            new[i] = share
    for k in range(workloads):
        i = space.order[c, k]
        if i < 0 or servers < crumbs:
            break
        if space.served[i] > _TINY and space.mean[i] > route[c, i]:
            share, compute, memory, servers = _share(load[c], i, space.served[i], compute, memory, servers)
            worth += share * (space.mean[i] - route[c, i])
            cheaper[i] = share
    return worth, price, usd


@inline
def _take(space, c, row):
    """Let a replica of c serve what `_serve` has written."""
    for i in range(space.need.shape[0]):
        share, cheaper, route = space.new[row, i], space.cheaper[row, i], space.route[c, i]
        if cheaper > 0.0:
            space.paid[i] -= cheaper * (space.mean[i] - route)
        if share > 0.0:
            space.need[i] -= share
            space.served[i] += share
            space.paid[i] += share * route
        if share > 0.0 or cheaper > 0.0:
            space.mean[i] = space.paid[i] / space.served[i]


@inline
def _fits(problem, space, target, c):
    """Return whether one more replica of c fits into its pools, and into its slot."""
    for g in range(space.free.shape[0]):
        if problem.gpu_use[g, c] > space.free[g]:
            return False
    if space.slot[c] >= 0:
        for other in range(target.shape[0]):
            if space.slot[other] == space.slot[c] and target[other] > 0:
                return False
    return True


@inline
def _may_be_best(space, c, rent, best):
    """Return whether one more replica of c might be worth its rent, or serve at less than the ratio `best` tells.

    It serves no more than is needed, and no more than its queue servers allow. A ratio of sums is at most the best
    ratio of their terms.
    """
    count, zero, cheap = space.need.shape[0], spread(0.0), 0
    at, servers, least = c * count, spread(space.servers[c]), spread(best * _SURE)
    most = worth = zero
    for first in range(0, count, WIDTH):
        some = count - first
        need, served = load_first(space.need, first, some), load_first(space.served, first, some)
        price, route = load_first(space.price, first, some), load_first(space.route, at + first, some)
        load = load_first(space.load, 3 * at + 2 * count + first, some)
        cost = least * (spread(rent) * load + route * servers)
        cheap |= are_less(cost, price * servers) & are_less(spread(_TINY), need)
        most = most + need * larger(zero, price - least * route)
        worth = worth + need * larger(zero, load_first(space.unserved, first, some) - route)
        worth = worth + served * larger(zero, load_first(space.mean, first, some) - route)
    if best == 0.0:
        return total(worth) > rent * _SURE
    return cheap != 0 and total(most) > best * _SURE * rent


@inline
def _grow(problem, space, target, most, rent, budget_usd, risk):
    """Add the replica that serves at the least cost until none is worth its rent; return what is left of the budget."""
    number, row = 0, 0
    for c in range(target.shape[0]):
        if target[c] < most[c]:
            space.open[number] = c
            space.servers[c] = _servers_added(problem.parameters, c, target[c], risk)
            number += 1
    while True:
        best, found, place, kept = 0.0, -1, 0, 0
        for k in range(number):
            c = space.open[k]
            if target[c] >= most[c] or space.rent[0, c] > budget_usd or not _fits(problem, space, target, c):
                continue  # nor will it later
            space.open[kept] = c
            kept += 1
            if not _may_be_best(space, c, rent[c], best):
                continue
            worth, price, route = _serve(problem, space, c, space.servers[c], row)
            if worth <= rent[c]:
                continue
            cost = rent[c] + route
            ratio = price / cost if cost > 0.0 else np.inf
            if found < 0 or ratio > best or (ratio == best and c < found):
                best, found, place, row = ratio, c, kept - 1, 1 - row
        number = kept
        if found < 0:
            return budget_usd
        # It is asked first the next time: a good one rules others out.
        space.open[place], space.open[0] = space.open[0], found
        _take(space, found, 1 - row)
        target[found] += 1
        space.servers[found] = _servers_added(problem.parameters, found, target[found], risk)
        budget_usd -= space.rent[0, found]
        for g in range(space.free.shape[0]):
            space.free[g] -= problem.gpu_use[g, found]


@inline
def _need_all(space, margin):
    """Let nothing be served of what is needed."""
    for i in range(space.need.shape[0]):
        space.need[i], space.served[i], space.paid[i], space.mean[i] = margin[i], 0.0, 0.0, 0.0


@inline
def _count_needs(problem, space, target, margin, risk):
    """Find what is needed beyond what a fleet serves."""
    _need_all(space, margin)
    for c in range(target.shape[0]):
        for k in range(target[c]):
            _serve(problem, space, c, _servers_added(problem.parameters, c, k, risk), 0)
            _take(space, c, 0)


@inline
def _prepare(problem, conditions, money, at_once, risk, space):
    """Fill what sizing needs to know of one window, whatever the margins are."""
    for c in range(space.slot.shape[0]):
        space.slot[c] = -1
    for s in range(problem.slot_exclusive.shape[0]):
        if problem.slot_exclusive[s]:
            for k in range(problem.slot_start[s], problem.slot_start[s + 1]):
                space.slot[problem.order[k]] = s
    _fill_rent(problem, conditions.price, money, at_once, space)
    _fill_routes(problem, conditions.workload, risk, space)
    _fill_order(space)


@inline
def _choose(problem, available, fleet, margin, budget_usd, most, risk, space, target):
    """Write the fleet to hold in a window that is prepared."""
    for c in range(target.shape[0]):
        target[c] = 0
    for g in range(space.free.shape[0]):
        space.free[g] = available[g]
    _need_all(space, margin[1])
    left_usd = _grow(problem, space, target, fleet, space.rent[1], budget_usd, risk)
    _count_needs(problem, space, target, margin[0], risk)
    _grow(problem, space, target, most, space.rent[2], left_usd, risk)


@jit
def size_fleets(
    packed, which, workload, available, price, fleet, margin, money, at_once, most, risk, space, target
):
    """Write the fleet to hold in each of n windows, of one instance or of several.

    Parameters
    ----------
    packed : (P, W) int64
        Words of `records.pack_problem`, an instance a row.
    which : (n,) int64
        The instance of each window.
    workload, available, price : ndarray
        Fields of `PackedConditions` for all windows, (n, 5, I), (n, G) and (n, G): what is expected.
    fleet : (n, C) int64
        Replicas running or starting.
    margin : (n, 2, I) float
        Replicas are added for up to the first, and kept for up to the second times the expected demand.
    money : (n, 3) float
        Most that holding the fleet may cost; by how much rent counts more than it costs; windows in which a replica has
        to pay for its start.
    at_once : (n,) bool
        Whether what is added serves at once.
    most : (P, C) int64
        Replicas that an action can ask for.
    risk : float
        0: queue servers are loaded up to where hardly any request is late; 1: to the most that routing allows.
    space : SizingSpace
        Of one instance.
    target : (n, C) int64
        Written.
    """
    packed, which, workload, available, price = borrow((packed, which, workload, available, price))
    fleet, margin, money, at_once = borrow((fleet, margin, money, at_once))
    most, space, target = borrow((most, space, target))
    for n in range(which.shape[0]):
        problem, _, _ = unpack(packed[which[n]])
        conditions = PackedConditions(workload[n], available[n], price[n])
        _prepare(problem, conditions, money[n], at_once[n], risk, space)
        budget_usd = money[n, BUDGET_USD]
        _choose(
            problem, available[n], fleet[n], margin[n], budget_usd, most[which[n]], risk, space, target[n]
        )


def _fixed(*shape, dtype=np.int64):
    """Return an array that cannot be written to."""
    array = np.zeros(shape, dtype=dtype)
    array.flags.writeable = False
    return array


_WHOLES = np.zeros((1, 1), dtype=np.int64)
entry(
    size_fleets,
    *(_WHOLES, _fixed(1), _fixed(1, 5, 1, dtype=np.float64), _fixed(1, 1), _fixed(1, 1, dtype=np.float64)),
    *(_fixed(1, 1), np.zeros((1, 2, 1)), np.zeros((1, 3)), _fixed(1, dtype=np.bool_), _WHOLES),
    *(0.0, new_space(1, 1, 1), _WHOLES),
)


#: What `study_windows` says of each workload.
S_UNSERVED_USD, S_SERVING_USD, S_SERVED = range(3)


@inline
def _own(space, n):
    """Return the space of window n."""
    return SizingSpace(
        space.usd[0],
        space.amount[0],
        space.load[n],
        space.route[n],
        space.replicas[0],
        space.gain[n],
        space.order[n],
        space.unserved[n],
        space.price[n],
        space.need[n],
        space.served[n],
        space.paid[n],
        space.mean[n],
        space.new[n],
        space.cheaper[n],
        space.servers[n],
        space.crumbs[n],
        space.rent[n],
        space.slot[n],
        space.open[n],
        space.free[n],
    )


@jit
def study_windows(
    packed, which, workload, available, price, fleet, most, money, at_once, risk, spaces, study
):
    """Prepare n windows for `size_studied`, and write what is asked of the fleet in each.

    Parameters
    ----------
    packed, which, workload, available, price, fleet, money, at_once, risk
        As for `size_fleets`.
    most : (I,) float
        How many times the expected demand the fleet is asked to serve.
    spaces : SizingSpace
        Of n windows: one more axis, the first.
    study : (n, 3, I) float
        Written: cost of not serving a workload, the least cost of serving it, and how many times it the fleet serves.
    """
    packed, which, workload, available, price = borrow((packed, which, workload, available, price))
    fleet, most, money, at_once = borrow((fleet, most, money, at_once))
    spaces, study = borrow((spaces, study))
    for n in range(which.shape[0]):
        problem, _, _ = unpack(packed[which[n]])
        conditions, space = PackedConditions(workload[n], available[n], price[n]), _own(spaces, n)
        _prepare(problem, conditions, money[n], at_once[n], risk, space)
        _count_needs(problem, space, fleet[n], most, risk)
        for i in range(study.shape[2]):
            study[n, S_UNSERVED_USD, i] = space.unserved[i]
            study[n, S_SERVING_USD, i] = space.price[i]
            study[n, S_SERVED, i] = space.served[i]


@jit
def size_studied(packed, which, available, fleet, margin, money, most, risk, spaces, target):
    """Write the fleet to hold in each of n windows that `study_windows` has prepared; arguments as there."""
    packed, which, available, fleet, margin = borrow((packed, which, available, fleet, margin))
    money, most, spaces, target = borrow((money, most, spaces, target))
    for n in range(which.shape[0]):
        problem, _, _ = unpack(packed[which[n]])
        budget_usd = money[n, BUDGET_USD]
        _choose(
            problem,
            available[n],
            fleet[n],
            margin[n],
            budget_usd,
            most[which[n]],
            risk,
            _own(spaces, n),
            target[n],
        )
