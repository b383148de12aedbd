"""Fleets are sized between two margins: useful replicas stay, and replicas are added for what else would go unserved.

Demand is counted in shares of what is expected of a workload in the window. A replica serves workloads in an order of
its own, each as far as compute, KV memory and queue servers allow. `tests/sizing_twin.py` is the same in plain Python.
"""

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.economics import (
    C_DELAY,
    C_ERROR,
    C_KV,
    C_SERVICE,
    C_WORK,
    COMPATIBLE,
    COMPUTE,
    CONCURRENCY,
    DELAY_SLO,
    ERROR_SLO,
    KV_CAPACITY,
    coefficients,
    route_prices,
)
from fleetgym.kernels.pointers import borrow
from fleetgym.kernels.records import PackedConditions, unpack

#: Most that queue servers are loaded, as in the routing.
MOST_UTILIZATION = 0.95

_TINY = 1e-12  # a share below this is served


#: Columns of what money says of a window: see `size_fleets`.
BUDGET_USD, RENT_FACTOR, PAYBACK = range(3)


class SizingSpace(NamedTuple):
    """Arrays that sizing overwrites."""

    coefficient: np.ndarray  # (6, I, C)
    load: np.ndarray  # (3, I, C) compute, KV memory and servers that a whole workload takes
    route: np.ndarray  # (I, C) cost of routing a whole workload, with what it breaks of its SLOs
    gain: np.ndarray  # (I,) by which a configuration's workloads are ordered
    order: np.ndarray  # (C, I) int64 workloads in the order in which a replica serves them; -1: no more
    unserved: np.ndarray  # (I,) cost of not serving a whole workload
    price: np.ndarray  # (I,) the least that serving it costs anywhere
    need: np.ndarray  # (I,) shares that nobody serves
    served: np.ndarray  # (I,) shares that somebody serves
    paid: np.ndarray  # (I,) what routing these costs
    own: np.ndarray  # (I,) shares that a replica serves and nobody did
    room: np.ndarray  # (3,) compute, KV memory and servers that a replica has left
    rent: (
        np.ndarray
    )  # (3, C) of a replica: what it costs, what it counts, and what it counts until its start is paid
    whole: np.ndarray  # (2, C) int64 all configurations; exclusive slot of each, or -1
    free: np.ndarray  # (G,) int64 GPUs


def new_space(num_workloads: int, num_configurations: int, num_pools: int) -> SizingSpace:
    """Return space for instances of one size."""
    size = (num_workloads, num_configurations)
    return SizingSpace(
        coefficient=np.zeros((6, *size)),
        load=np.zeros((3, *size)),
        route=np.zeros(size),
        gain=np.zeros(num_workloads),
        order=np.zeros(size[::-1], dtype=np.int64),
        unserved=np.zeros(num_workloads),
        price=np.zeros(num_workloads),
        need=np.zeros(num_workloads),
        served=np.zeros(num_workloads),
        paid=np.zeros(num_workloads),
        own=np.zeros(num_workloads),
        room=np.zeros(3),
        rent=np.zeros((3, num_configurations)),
        whole=np.zeros((2, num_configurations), dtype=np.int64),
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
def _replicas_for(problem, space, i, c, risk):
    """Return how many replicas of c workload i takes, each used like the first one; inf where it cannot be served."""
    configuration = problem.parameters.configuration
    if problem.parameters.performance[COMPATIBLE, i, c] == 0.0:
        return np.inf
    replicas = 0.0
    for r in range(3):
        if space.load[r, i, c] <= 0.0:
            continue
        if r == 2:
            room = _servers(problem.parameters, c, 1, risk)
        else:
            room = configuration[COMPUTE if r == 0 else KV_CAPACITY, c]
        replicas = max(replicas, space.load[r, i, c] / room if room > 0.0 else np.inf)
    return replicas


@inline
def _fill_routes(problem, workload, space):
    """Fill loads and costs of routing."""
    parameters, whole = problem.parameters, space.whole[0]
    coefficients(parameters, workload, whole, space.coefficient)
    route_prices(parameters, workload, space.coefficient, whole, space.route, space.unserved)
    for i in range(space.need.shape[0]):
        for c in range(whole.shape[0]):
            space.load[0, i, c] = workload[0, i] * space.coefficient[C_WORK, i, c]
            space.load[1, i, c] = workload[0, i] * space.coefficient[C_KV, i, c]
            space.load[2, i, c] = workload[0, i] * space.coefficient[C_SERVICE, i, c]
            late = space.coefficient[C_DELAY, i, c] / parameters.workload[DELAY_SLO, i] - 1.0
            wrong = space.coefficient[C_ERROR, i, c] / parameters.workload[ERROR_SLO, i] - 1.0
            space.route[i, c] += space.unserved[i] * (max(0.0, late) + max(0.0, wrong))


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


@inline
def _fill_order(problem, space, risk):
    """Find the least that serving each workload costs, then the order in which a replica of each configuration serves.

    A replica first serves what would cost most elsewhere, for each share of the replica that it takes.
    """
    workloads, count = space.route.shape
    for i in range(workloads):
        space.price[i] = np.inf
        for c in range(count):
            replicas = _replicas_for(problem, space, i, c, risk)
            if replicas < np.inf:
                space.price[i] = min(space.price[i], space.rent[1, c] * replicas + space.route[i, c])
    for c in range(count):
        number = 0
        for i in range(workloads):
            replicas = _replicas_for(problem, space, i, c, risk)
            if not replicas < np.inf or space.unserved[i] <= space.route[i, c]:
                continue
            saved = space.price[i] - space.route[i, c]
            space.gain[i] = saved / replicas if replicas > 0.0 else np.inf
            at = number
            while at > 0 and space.gain[space.order[c, at - 1]] < space.gain[i]:
                space.order[c, at] = space.order[c, at - 1]
                at -= 1
            space.order[c, at] = i
            number += 1
        for at in range(number, workloads):
            space.order[c, at] = -1


@inline
def _share(load, i, c, most, room):
    """Return how much of `most` fits into what a replica has left, and take it from there."""
    share = most
    for r in range(3):
        if load[r, i, c] * share > room[r]:
            share = room[r] / load[r, i, c]
    if share <= _TINY:
        return 0.0
    for r in range(3):
        room[r] -= share * load[r, i, c]
    return share


@inline
def _serve(problem, space, c, replicas, risk, keep):
    """Let replica number `replicas` of c serve; return what that is worth, costs at least, and costs in routing.

    First it serves what nobody does, then what it serves at less than is paid for it so far. The state is changed if
    `keep` is set.
    """
    parameters, room = problem.parameters, space.room
    room[0], room[1] = parameters.configuration[COMPUTE, c], parameters.configuration[KV_CAPACITY, c]
    room[2] = _servers(parameters, c, replicas, risk) - _servers(parameters, c, replicas - 1, risk)
    worth = price = route = 0.0
    for i in range(space.own.shape[0]):
        space.own[i] = 0.0
    for is_served in range(2):
        for k in range(space.need.shape[0]):
            i = space.order[c, k]
            if i < 0:
                break
            most, usd = space.need[i], space.unserved[i]
            if is_served:
                most, usd = space.served[i], space.paid[i] / space.served[i] if space.served[i] > 0.0 else 0.0
            if most <= _TINY or usd <= space.route[i, c]:
                continue
            share = _share(space.load, i, c, most, room)
            worth += share * (usd - space.route[i, c])
            if is_served:
                if keep:
                    space.paid[i] -= share * (usd - space.route[i, c])
                continue
            price += share * space.price[i]
            route += share * space.route[i, c]
            space.own[i] = share
    for i in range(space.own.shape[0]):
        if keep and space.own[i] > 0.0:
            space.need[i] -= space.own[i]
            space.served[i] += space.own[i]
            space.paid[i] += space.own[i] * space.route[i, c]
    return worth, price, route


@inline
def _fits(problem, space, target, c):
    """Tell whether one more replica of c fits into its pools, and into its slot."""
    for g in range(space.free.shape[0]):
        if problem.gpu_use[g, c] > space.free[g]:
            return False
    if space.whole[1, c] >= 0:
        for other in range(target.shape[0]):
            if space.whole[1, other] == space.whole[1, c] and target[other] > 0:
                return False
    return True


@inline
def _grow(problem, space, target, most, rent, budget_usd, risk):
    """Add the replica that serves at the least cost until none is worth its rent; return what is left of the budget."""
    while True:
        best, found = 0.0, -1
        for c in range(target.shape[0]):
            if target[c] >= most[c] or space.rent[0, c] > budget_usd or not _fits(problem, space, target, c):
                continue
            worth, price, route = _serve(problem, space, c, target[c] + 1, risk, False)
            if worth <= rent[c]:
                continue
            cost = rent[c] + route
            ratio = price / cost if cost > 0.0 else np.inf
            if found < 0 or ratio > best:
                best, found = ratio, c
        if found < 0:
            return budget_usd
        target[found] += 1
        budget_usd -= space.rent[0, found]
        for g in range(space.free.shape[0]):
            space.free[g] -= problem.gpu_use[g, found]
        _serve(problem, space, found, target[found], risk, True)


@inline
def _count_needs(problem, space, target, margin, risk):
    """Find what is needed beyond what a fleet serves."""
    for i in range(space.need.shape[0]):
        space.need[i], space.served[i], space.paid[i] = margin[i], 0.0, 0.0
    for c in range(target.shape[0]):
        for k in range(target[c]):
            _serve(problem, space, c, k + 1, risk, True)


@inline
def _prepare(problem, conditions, money, at_once, risk, space):
    """Fill what sizing needs to know of one window, whatever the margins are."""
    for c in range(space.whole.shape[1]):
        space.whole[0, c], space.whole[1, c] = c, -1
    for s in range(problem.slot_exclusive.shape[0]):
        if problem.slot_exclusive[s]:
            for k in range(problem.slot_start[s], problem.slot_start[s + 1]):
                space.whole[1, problem.order[k]] = s
    _fill_routes(problem, conditions.workload, space)
    _fill_rent(problem, conditions.price, money, at_once, space)
    _fill_order(problem, space, risk)


@inline
def _choose(problem, available, fleet, margin, budget_usd, most, risk, space, target):
    """Write the fleet to hold in a window that is prepared."""
    for c in range(target.shape[0]):
        target[c] = 0
    for g in range(space.free.shape[0]):
        space.free[g] = available[g]
    for i in range(space.need.shape[0]):
        space.need[i], space.served[i], space.paid[i] = margin[1, i], 0.0, 0.0
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


#: What `study_windows` says of each workload.
UNSERVED_USD, SERVING_USD, SERVED = range(3)


@inline
def _own(space, n):
    """Return the space of window n."""
    return SizingSpace(
        space.coefficient[n],
        space.load[n],
        space.route[n],
        space.gain[n],
        space.order[n],
        space.unserved[n],
        space.price[n],
        space.need[n],
        space.served[n],
        space.paid[n],
        space.own[n],
        space.room[n],
        space.rent[n],
        space.whole[n],
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
            study[n, UNSERVED_USD, i] = space.unserved[i]
            study[n, SERVING_USD, i] = space.price[i]
            study[n, SERVED, i] = space.served[i]


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
