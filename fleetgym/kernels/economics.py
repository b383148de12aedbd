"""Charge for one window, given serving replicas and conditions (sections 1 and 4 to 6 of the model page).

The steps are coefficients, routing, tails and costs. `Parameters` holds an instance as arrays. The conditions of
workloads are a float array of shape (5, workloads). Only *active* configurations enter, those with serving replicas:
arrays with a last axis of n are compact.
"""

import numpy as np

from fleetgym.kernels.compile import always_inline, entry, extern, inline, jit
from fleetgym.kernels.erlang_batch import (
    NUM_QUEUE_ROWS,
    Q_ARRIVAL_CV2,
    Q_CHANCE,
    Q_OFFERED,
    Q_SERVERS,
    fill_chances,
)
from fleetgym.kernels.lowlevel import (
    WIDTH,
    are_at_most,
    are_less,
    borrow,
    choose,
    gather,
    how_many,
    larger,
    load_first,
    quotient,
    smaller,
    spread,
    store_bits,
    store_first,
    store_places,
    table,
    zeros,
)
from fleetgym.kernels.queueing import wait_decay
from fleetgym.kernels.records import (
    EXAMPLE_CONDITIONS,
    EXAMPLE_MEMORY,
    EXAMPLE_PACKED,
    EXAMPLE_PARAMETERS,
    Scratch,
    unpack,
)
from fleetgym.kernels.routing import extern_solve

#: Planes of `Parameters.performance`; affine quantities take three (base, per input token, per output token).
DELAY, WORK, SERVICE, PREFILL = 0, 3, 6, 9
SERVICE_CV2, ERROR, STORAGE_USD, TIE_BREAK, COMPATIBLE = 12, 13, 14, 15, 16
NUM_PLANES = 17

#: Rows of `Parameters.workload`.
INPUT, OUTPUT, DELAY_SLO, ERROR_SLO, UNSERVED_USD, DELAY_USD, LATE_USD, TTFT_SLO, ARRIVAL_CV2 = range(9)
NUM_WORKLOAD_ROWS = 9

#: Rows of the conditions of workloads.
RATE, INPUT_SCALE, OUTPUT_SCALE, DELAY_FACTOR, ERROR_FACTOR = range(5)

#: Rows of `Parameters.law`, by bin of the prompts of a workload, ascending. A first share of 0: they are all alike.
L_SHARE, L_LOW, L_WIDE = range(3)

#: Rows of coefficients: per workload and active configuration.
C_DELAY, C_WORK, C_SERVICE, C_PREFILL, C_KV, C_ERROR, C_OWN_LATE, C_SLACK = range(8)
NUM_COEFFICIENTS = 8

#: Rows of `Scratch.routes`: the LP's columns, its answer, and what tails and costs need of a route.
R_COST, R_DELAY, R_ERROR, R_USE = range(4)
R_SHARE, R_DELAY_S, R_SERVICE_S, R_OWN_LATE, R_SLACK_S = range(6, 11)
NUM_ROUTE_ROWS = 11

#: Rows of the mixture that each active configuration serves.
M_FLOW, M_MEAN, M_SECOND, M_ARRIVAL, M_SPREAD, M_OFFERED, M_SERVERS, M_WAITING = range(8)
NUM_MOMENTS = 8

#: Rows of `Parameters.configuration`.
COMPUTE, KV_CAPACITY, KV_PER_TOKEN, CONCURRENCY = range(4)
NUM_CONFIGURATION_ROWS = 4

#: Cost terms in order; the first two and the last belong to the fleet, the others to its operation.
TERMS = ("rental", "model_storage", "data_storage", "delay", "slo", "unserved", "late", "startup")
T_RENTAL, T_MODEL, T_DATA, T_DELAY, T_SLO, T_UNSERVED, T_LATE, T_STARTUP = range(8)

SECONDS_PER_DAY = 86400.0
NEGLIGIBLE = 1e-20  # a smaller share of late requests is none
TIE_BREAK_SCALE = 1e-6


def new_scratch(num_workloads: int, num_configurations: int) -> Scratch:
    """Return scratch arrays for windows of at most this size."""
    size = num_workloads * num_configurations
    per_configuration = 6 + 3 + NUM_MOMENTS + NUM_QUEUE_ROWS
    capacity = (NUM_ROUTE_ROWS + 1) * size + 4 * num_workloads + per_configuration * num_configurations
    return Scratch(
        numbers=zeros(capacity),
        flags=np.zeros(size, dtype=np.uint8),
        used=np.zeros((2, size), dtype=np.int64),
    )


@inline(forceinline=True)
def _columns(array, place, active, first, some):
    """Return up to eight numbers of an array, at `place` plus the `active` columns; None stands for all columns."""
    if active is None:
        return load_first(array, place + first, some)
    return gather(array, place, active, first, some)


@inline(forceinline=True)
def _affine(performance, plane, i, active, first, some, length_in, length_out):
    """Return an affine quantity of up to eight routes of workload i."""
    size = performance.shape[1] * performance.shape[2]
    at = plane * size + i * performance.shape[2]
    total = _columns(performance, at, active, first, some)
    total = total + _columns(performance, at + size, active, first, some) * spread(length_in)
    return total + _columns(performance, at + 2 * size, active, first, some) * spread(length_out)


@inline(forceinline=True)
def route_coefficients(parameters, conditions, i, active, first, some):
    """Return delay, work, service, prefill, KV and error of the routes of workload i to up to eight configurations."""
    performance, count = parameters.performance, parameters.performance.shape[2]
    length_in = parameters.workload[INPUT, i] * conditions[INPUT_SCALE, i]
    length_out = parameters.workload[OUTPUT, i] * conditions[OUTPUT_SCALE, i]
    factor = spread(conditions[DELAY_FACTOR, i])
    delay = factor * _affine(performance, DELAY, i, active, first, some, length_in, length_out)
    work = _affine(performance, WORK, i, active, first, some, length_in, length_out)
    service = factor * _affine(performance, SERVICE, i, active, first, some, length_in, length_out)
    prefill = factor * _affine(performance, PREFILL, i, active, first, some, length_in, length_out)
    per_token = _columns(parameters.configuration, KV_PER_TOKEN * count, active, first, some)
    kv = per_token * spread(length_in + length_out) * delay
    at = (ERROR * conditions.shape[1] + i) * count
    error = spread(conditions[ERROR_FACTOR, i]) * _columns(performance, at, active, first, some)
    return delay, work, service, prefill, kv, error


@inline(forceinline=True)
def first_token(parameters, conditions, i, active, first, some, prefill):
    """Return what the prompts of workload i do to its first tokens, on up to eight configurations.

    Returns
    -------
    own : Lanes
        Share of the prompts that take longer than the TTFT SLO, by their length alone.
    slack : Lanes
        Seconds that the others may wait: the SLO less their mean prefill. Anything where there are no others.
    """
    law, zero, one, slo = parameters.law, spread(0.0), spread(1.0), spread(parameters.workload[TTFT_SLO, i])
    if law[i, L_SHARE, 0] == 0.0:
        return choose(are_at_most(slo, prefill), one, zero), slo - prefill
    factor, count = spread(conditions[DELAY_FACTOR, i]), parameters.performance.shape[2]
    length_in = parameters.workload[INPUT, i] * conditions[INPUT_SCALE, i]
    length_out = parameters.workload[OUTPUT, i] * conditions[OUTPUT_SCALE, i]
    base = factor * _affine(parameters.performance, PREFILL, i, active, first, some, 0.0, length_out)
    at = ((PREFILL + 1) * conditions.shape[1] + i) * count
    prompt = factor * _columns(parameters.performance, at, active, first, some) * spread(length_in)
    left = slo - base
    # The longest prompt in time, as a factor of the mean one.
    alike = choose(are_less(zero, left), spread(np.inf), spread(-1.0))
    longest = choose(are_less(zero, prompt), quotient(left, prompt), alike)
    own = below = length = zero
    for k in range(law.shape[2]):
        share, low, wide = spread(law[i, L_SHARE, k]), spread(law[i, L_LOW, k]), spread(law[i, L_WIDE, k])
        if law[i, L_WIDE, k] > 0.0:
            part = smaller(one, larger(zero, quotient(longest - low, wide)))
        else:
            part = choose(are_at_most(low, longest), one, zero)
        own = own + share * (one - part)
        below = below + share * part
        length = length + share * part * (low + spread(0.5) * part * wide)
    some_below = are_less(zero, below)
    own = choose(some_below, smaller(one, own), one)
    return own, left - prompt * choose(some_below, quotient(length, below), zero)


@jit
def coefficients(parameters, conditions, active, out):
    """Fill `out` (8, I, n) with the rows of coefficients of each route."""
    parameters, conditions, active, out = borrow((parameters, conditions, active, out))
    count = active.shape[0]
    plane = conditions.shape[1] * count
    for i in range(conditions.shape[1]):
        for first in range(0, count, WIDTH):
            some, at = count - first, i * count + first
            delay, work, service, prefill, kv, error = route_coefficients(
                parameters, conditions, i, active, first, some
            )
            store_first(out, C_DELAY * plane + at, delay, some)
            store_first(out, C_WORK * plane + at, work, some)
            store_first(out, C_SERVICE * plane + at, service, some)
            store_first(out, C_PREFILL * plane + at, prefill, some)
            store_first(out, C_KV * plane + at, kv, some)
            store_first(out, C_ERROR * plane + at, error, some)
            own, slack = first_token(parameters, conditions, i, active, first, some, prefill)
            store_first(out, C_OWN_LATE * plane + at, own, some)
            store_first(out, C_SLACK * plane + at, slack, some)


entry(coefficients, EXAMPLE_PARAMETERS, EXAMPLE_CONDITIONS.workload, EXAMPLE_PACKED, np.zeros((1, 1, 1)))


@inline
def penalty_weight(parameters, rate):
    """w_i: requests in the window, or the window's share of a day; 0 without arrivals."""
    if rate <= 0.0:
        return 0.0
    return parameters.clock[0] / SECONDS_PER_DAY if parameters.clock[1] > 0.0 else rate * parameters.clock[0]


@inline(forceinline=True)
def routing_usd(parameters, conditions, i, active, first, some, delay, own):
    """Return the prices of the routes of workload i to up to eight configurations, without tie-breaking."""
    workload, count = parameters.workload, parameters.performance.shape[2]
    requests = conditions[RATE, i] * parameters.clock[0]
    usd = spread(penalty_weight(parameters, conditions[RATE, i]) * workload[DELAY_USD, i]) * delay
    at = (STORAGE_USD * conditions.shape[1] + i) * count
    usd = usd + spread(requests) * _columns(parameters.performance, at, active, first, some)
    return usd + spread(requests * workload[LATE_USD, i]) * own


@jit
def route_prices(parameters, conditions, coefficient, active, route_usd, unserved_usd):
    """Fill `route_usd` (I, n), without tie-breaking, and `unserved_usd` (I,)."""
    parameters, conditions, active = borrow((parameters, conditions, active))
    coefficient, route_usd, unserved_usd = borrow((coefficient, route_usd, unserved_usd))
    count = active.shape[0]
    plane = conditions.shape[1] * count
    for i in range(conditions.shape[1]):
        unserved_usd[i] = (
            penalty_weight(parameters, conditions[RATE, i]) * parameters.workload[UNSERVED_USD, i]
        )
        for first in range(0, count, WIDTH):
            some, at = count - first, i * count + first
            delay = load_first(coefficient, C_DELAY * plane + at, some)
            own = load_first(coefficient, C_OWN_LATE * plane + at, some)
            usd = routing_usd(parameters, conditions, i, active, first, some, delay, own)
            store_first(route_usd, at, usd, some)


entry(
    route_prices,
    *(EXAMPLE_PARAMETERS, EXAMPLE_CONDITIONS.workload, np.zeros((1, 1, 1)), EXAMPLE_PACKED),
    *(np.zeros((1, 1)), np.zeros(1)),
)


@inline(forceinline=True)
def _beyond(value, slo):
    """Return (value - slo) / slo."""
    return quotient(value - spread(slo), spread(slo))


@inline(forceinline=True)
def fill_routes(parameters, conditions, active, unserved_usd, routes, allowed):
    """Fill the LP's columns, and what tails and costs need beside."""
    count, (workloads, configurations) = active.shape[0], parameters.performance.shape[1:]
    plane = workloads * count
    for i in range(workloads):
        rate, unserved = spread(conditions[RATE, i]), penalty_weight(parameters, conditions[RATE, i])
        unserved_usd[i] = unserved = unserved * parameters.workload[UNSERVED_USD, i]
        tie_break = spread(TIE_BREAK_SCALE * unserved)
        for first in range(0, count, WIDTH):
            some, at = count - first, i * count + first
            delay, work, service, prefill, kv, error = route_coefficients(
                parameters, conditions, i, active, first, some
            )
            own, slack = first_token(parameters, conditions, i, active, first, some, prefill)
            usd = routing_usd(parameters, conditions, i, active, first, some, delay, own)
            here = (TIE_BREAK * workloads + i) * configurations
            usd = usd + tie_break * gather(parameters.performance, here, active, first, some)
            store_first(routes, R_COST * plane + at, usd, some)
            store_first(routes, R_DELAY * plane + at, _beyond(delay, parameters.workload[DELAY_SLO, i]), some)
            store_first(routes, R_ERROR * plane + at, _beyond(error, parameters.workload[ERROR_SLO, i]), some)
            store_first(routes, R_DELAY_S * plane + at, delay, some)
            store_first(routes, R_SERVICE_S * plane + at, service, some)
            store_first(routes, R_OWN_LATE * plane + at, own, some)
            store_first(routes, R_SLACK_S * plane + at, slack, some)
            store_first(routes, R_USE * plane + at, rate * work, some)
            store_first(routes, (R_USE + 1) * plane + at, rate * kv, some)
            store_first(routes, (R_USE + 2) * plane + at, rate * service, some)
            here = (COMPATIBLE * workloads + i) * configurations
            compatible = gather(parameters.performance, here, active, first, some)
            store_bits(allowed, at, are_less(spread(0.0), compatible), some)


@inline
def _fill_limits(parameters, serving, active, capacity, width, slope):
    for k in range(active.shape[0]):
        c = active[k]
        row = parameters.segment[parameters.segment_offset[c] + serving[c] - 1]
        capacity[0, k] = parameters.configuration[COMPUTE, c] * serving[c]
        capacity[1, k] = parameters.configuration[KV_CAPACITY, c] * serving[c]
        capacity[2, k] = row[0] * parameters.configuration[CONCURRENCY, c] * serving[c]
        for b in range(3):
            width[k, b] = row[1 + b]
            slope[k, b] = row[4 + b]


@inline(forceinline=True)
def _list_used(share, used):
    """Write workload and column of each route with a positive share, in order; return their number."""
    number, count, capacity = 0, share.shape[1], used.shape[1]
    for i in range(share.shape[0]):
        before = number
        for first in range(0, count, WIDTH):
            bits = are_less(spread(0.0), load_first(share, i * count + first, count - first))
            store_places(used, capacity + number, bits, first)
            number += how_many(bits)
        for r in range(before, number):
            used[0, r] = i
    return number


@always_inline
def _mix(parameters, conditions, used, number, serving, active, routes, mixture):
    """Add up flow, service time, its second moment and the arrivals' cv2 of what each configuration is sent."""
    for k in range(active.shape[0]):
        for row in range(M_SPREAD):
            mixture[row, k] = 0.0
        c = active[k]
        mixture[M_SERVERS, k] = parameters.configuration[CONCURRENCY, c] * serving[c]
    for r in range(number):
        i, k = used[0, r], used[1, r]
        flow, service = conditions[RATE, i] * routes[R_SHARE, i, k], routes[R_SERVICE_S, i, k]
        mixture[M_FLOW, k] += flow
        mixture[M_MEAN, k] += flow * service
        mixture[M_SECOND, k] += (
            flow * (1.0 + parameters.performance[SERVICE_CV2, i, active[k]]) * service * service
        )
        mixture[M_ARRIVAL, k] += flow * parameters.workload[ARRIVAL_CV2, i]
    n, zero = active.shape[0], spread(0.0)
    for first in range(0, n, WIDTH):
        some = n - first
        flow = load_first(mixture, M_FLOW * n + first, some)
        mean = quotient(load_first(mixture, M_MEAN * n + first, some), flow)
        second = quotient(load_first(mixture, M_SECOND * n + first, some), flow)
        arrival = quotient(load_first(mixture, M_ARRIVAL * n + first, some), flow)
        cv2 = larger(zero, quotient(second, mean * mean) - spread(1.0))
        cv2 = choose(are_less(zero, mean), cv2, zero)
        store_first(mixture, M_MEAN * n + first, mean, some)
        store_first(mixture, M_ARRIVAL * n + first, arrival, some)
        store_first(mixture, M_SPREAD * n + first, cv2 + arrival, some)
        store_first(mixture, M_OFFERED * n + first, flow * mean, some)
        store_first(mixture, M_WAITING * n + first, zero, some)


@inline(forceinline=True)
def _fill_late(used, number, active, routes, mixture, queues, late):
    """Fill `late`: the share of each used route's requests whose first token is late."""
    for r in range(number):
        i, k = used[0, r], used[1, r]
        slack_s, servers = routes[R_SLACK_S, i, k], mixture[M_SERVERS, k]
        beyond = wait_decay(servers, mixture[M_OFFERED, k], mixture[M_MEAN, k], mixture[M_SPREAD, k], slack_s)
        if beyond <= NEGLIGIBLE or slack_s == np.inf or routes[R_OWN_LATE, i, k] >= 1.0:
            beyond = 0.0
        late[r] = beyond
        mixture[M_WAITING, k] += beyond > 0.0
    waits = 0
    for k in range(active.shape[0]):  # one queue per configuration, if anybody asks for it
        if mixture[M_WAITING, k] > 0.0:
            queues[Q_SERVERS, waits], queues[Q_OFFERED, waits] = mixture[M_SERVERS, k], mixture[M_OFFERED, k]
            queues[Q_ARRIVAL_CV2, waits] = mixture[M_ARRIVAL, k]
            waits += 1
    fill_chances(queues, waits, NEGLIGIBLE)
    waits = 0
    for k in range(active.shape[0]):
        if mixture[M_WAITING, k] > 0.0:
            mixture[M_WAITING, k] = queues[Q_CHANCE, waits]
            waits += 1
    for r in range(number):
        own = routes[R_OWN_LATE, used[0, r], used[1, r]]
        late[r] = own + (1.0 - own) * (late[r] * mixture[M_WAITING, used[1, r]])


@always_inline
def _charge(parameters, conditions, used, number, late, routes, slack, active, unserved_usd, terms, miss):
    """Add up the terms of operating; fill the miss shares."""
    terms[T_DATA] = terms[T_DELAY] = terms[T_SLO] = terms[T_UNSERVED] = terms[T_LATE] = 0.0
    r = 0
    for i in range(conditions.shape[1]):
        rate = conditions[RATE, i]
        miss[i] = 0.0
        if rate <= 0.0:
            continue
        delay_s = storage = late_share = over_delay = over_error = 0.0
        while r < number and used[0, r] == i:
            k = used[1, r]
            x = routes[R_SHARE, i, k]
            delay_s += x * routes[R_DELAY_S, i, k]
            storage += x * parameters.performance[STORAGE_USD, i, active[k]]
            late_share += x * late[r]
            over_delay += x * routes[R_DELAY, i, k]
            over_error += x * routes[R_ERROR, i, k]
            r += 1
        requests, weight = rate * parameters.clock[0], penalty_weight(parameters, rate)
        terms[T_DATA] += requests * storage
        terms[T_DELAY] += weight * parameters.workload[DELAY_USD, i] * delay_s
        terms[T_SLO] += unserved_usd[i] * (max(0.0, over_delay) + max(0.0, over_error))
        terms[T_UNSERVED] += unserved_usd[i] * slack[i, 0]
        terms[T_LATE] += requests * parameters.workload[LATE_USD, i] * late_share
        miss[i] = min(1.0, slack[i, 0] + late_share)


@inline(forceinline=True)
def _tables(numbers, count_w, count_c):
    """Return the tables of a window in the work space."""
    routes = table(numbers, 0, (NUM_ROUTE_ROWS, count_w, count_c))
    end = routes.size
    slack, end = table(numbers, end, (count_w, 3)), end + 3 * count_w
    per_segment, end = table(numbers, end, (2, count_c, 3)), end + 6 * count_c
    capacity, end = table(numbers, end, (3, count_c)), end + 3 * count_c
    mixture, end = table(numbers, end, (NUM_MOMENTS, count_c)), end + NUM_MOMENTS * count_c
    queues, end = table(numbers, end, (NUM_QUEUE_ROWS, count_c)), end + NUM_QUEUE_ROWS * count_c
    unserved_usd, late = numbers[end : end + count_w], numbers[end + count_w :]
    return routes, slack, per_segment, capacity, mixture, queues, unserved_usd, late


def operate(packed, conditions, active, basis):
    """Route one window's demand over the serving replicas and charge for it.

    Parameters
    ----------
    packed : (W,) int64
        Words of `records.pack_problem`. `Played.serving` is read. The terms of operating and the shares are
        overwritten, and so is the routing where it has space.
    conditions : (5, I) float64
    active : (n,) int64
        Configurations with serving replicas, ascending.
    basis : (L,) int64
        Warm start of `route`, with room for n configurations.

    Returns
    -------
    int
        Status of `route`: 0 is optimal.
    """
    problem, work, played = unpack(packed)
    parameters, serving, scratch, shares = problem.parameters, played.serving, played.scratch, played.routing
    count_w, count_c = conditions.shape[1], active.shape[0]
    routes, slack, per_segment, capacity, mixture, queues, unserved_usd, late = _tables(
        scratch.numbers, count_w, count_c
    )
    allowed = table(scratch.flags, 0, (count_w, count_c))
    share, used = routes[R_SHARE], scratch.used
    fill_routes(parameters, conditions, active, unserved_usd, routes, allowed)
    _fill_limits(parameters, serving, active, capacity, per_segment[0], per_segment[1])
    status, _, _ = extern_solve(
        routes[R_COST],
        unserved_usd,
        routes[R_DELAY],
        routes[R_ERROR],
        routes[R_USE:R_SHARE],
        capacity,
        per_segment[0],
        per_segment[1],
        allowed,
        basis,
        work.packed,
        share,
        slack,
    )
    number = _list_used(share, used)
    _mix(parameters, conditions, used, number, serving, active, routes, mixture)
    _fill_late(used, number, active, routes, mixture, queues, late)
    _charge(
        parameters,
        conditions,
        used,
        number,
        late,
        routes,
        slack,
        active,
        unserved_usd,
        played.terms_usd,
        played.share[1],
    )
    for i in range(count_w):
        played.share[0, i] = slack[i, 0]
        for c in range(shares.shape[1]):
            shares[i, c] = 0.0
    if shares.shape[1] > 0:
        for r in range(number):
            shares[used[0, r], active[used[1, r]]] = share[used[0, r], used[1, r]]
    return status


extern_operate = extern(
    operate, 0, EXAMPLE_PACKED, EXAMPLE_CONDITIONS.workload, EXAMPLE_PACKED, EXAMPLE_MEMORY.basis
)


@inline
def fill_late_relief(parameters, conditions, active, played, relief_usd):
    """Write what one more replica of each configuration would save of late costs, were the routing that of `operate`.

    `operate` has just been called for this window. The work space that it left behind is overwritten.
    """
    count_w, scratch = conditions.shape[1], played.scratch
    routes, _, _, _, mixture, queues, _, late = _tables(scratch.numbers, count_w, active.shape[0])
    used = scratch.used
    number = _list_used(routes[R_SHARE], used)
    for c in range(relief_usd.shape[0]):
        relief_usd[c] = 0.0
    for sign in (1.0, -1.0):
        for r in range(number):
            i, k = used[0, r], used[1, r]
            usd = conditions[RATE, i] * parameters.clock[0] * parameters.workload[LATE_USD, i]
            relief_usd[active[k]] += sign * usd * routes[R_SHARE, i, k] * late[r]
        if sign > 0.0:
            for k in range(active.shape[0]):
                mixture[M_SERVERS, k] += parameters.configuration[CONCURRENCY, active[k]]
                mixture[M_WAITING, k] = 0.0
            _fill_late(used, number, active, routes, mixture, queues, late)
