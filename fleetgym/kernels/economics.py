"""What one window costs once a fleet serves: coefficients, routing, tails, costs (sections 1 and 4 to 6).

`Packed` holds an instance as plain arrays; an outcome is a float array of shape (5, workloads). Only
*active* configurations, those with serving replicas, enter: arrays with a last axis of n are compact.
"""

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inner, jit
from fleetgym.kernels.profile import COEFFICIENTS, COSTS, ROUTING, TAILS, lap
from fleetgym.kernels.queueing import chance_to_wait, wait_decay
from fleetgym.kernels.routing import distant_route

#: Planes of `Packed.performance`; affine quantities take three (base, per input token, per output token).
DELAY, WORK, SERVICE, PREFILL = 0, 3, 6, 9
SERVICE_CV2, ERROR, STORAGE_USD, TIE_BREAK, COMPATIBLE = 12, 13, 14, 15, 16
NUM_PLANES = 17

#: Rows of `Packed.workload`.
INPUT, OUTPUT, DELAY_SLO, ERROR_SLO, UNSERVED_USD, DELAY_USD, LATE_USD, TTFT_SLO, ARRIVAL_CV2 = range(9)
NUM_WORKLOAD_ROWS = 9

#: Rows of an outcome.
RATE, INPUT_SCALE, OUTPUT_SCALE, DELAY_FACTOR, ERROR_FACTOR = range(5)
NUM_OUTCOME_ROWS = 5

#: Rows of coefficients: per workload and active configuration.
C_DELAY, C_WORK, C_SERVICE, C_PREFILL, C_KV, C_ERROR = range(6)
NUM_COEFFICIENTS = 6

#: Rows of `Packed.configuration`.
COMPUTE, KV_CAPACITY, KV_PER_TOKEN, CONCURRENCY = range(4)
NUM_CONFIGURATION_ROWS = 4

#: Cost terms in order; the first two and the last belong to the fleet, the others to its operation.
TERMS = ("rental", "model_storage", "data_storage", "delay", "slo", "unserved", "late", "startup")
T_RENTAL, T_MODEL, T_DATA, T_DELAY, T_SLO, T_UNSERVED, T_LATE, T_STARTUP = range(8)

SECONDS_PER_DAY = 86400.0
NEGLIGIBLE = 1e-20  # a smaller share of late requests is none
TIE_BREAK_SCALE = 1e-6


class Packed(NamedTuple):
    """An instance as arrays."""

    performance: np.ndarray  # (NUM_PLANES, I, C)
    workload: np.ndarray  # (NUM_WORKLOAD_ROWS, I)
    configuration: np.ndarray  # (NUM_CONFIGURATION_ROWS, C)
    segment_offset: np.ndarray  # (C,) int64: row offset[c] + replicas - 1 of the next array
    segment: np.ndarray  # (rows, 7) safe utilisation, three widths, three slopes
    clock: np.ndarray  # (2,) window_s, and 1.0 if penalties are per day


@inner
def _affine(performance, plane, i, c, length_in, length_out):
    return (
        performance[plane, i, c]
        + performance[plane + 1, i, c] * length_in
        + performance[plane + 2, i, c] * length_out
    )


@jit
def coefficients(packed, outcome, active, out):
    """Fill `out` (6, I, n) with delay, work, service, prefill, KV and error of each route."""
    performance = packed.performance
    for i in range(outcome.shape[1]):
        length_in = packed.workload[INPUT, i] * outcome[INPUT_SCALE, i]
        length_out = packed.workload[OUTPUT, i] * outcome[OUTPUT_SCALE, i]
        factor = outcome[DELAY_FACTOR, i]
        for k in range(active.shape[0]):
            c = active[k]
            delay = factor * _affine(performance, DELAY, i, c, length_in, length_out)
            out[C_DELAY, i, k] = delay
            out[C_WORK, i, k] = _affine(performance, WORK, i, c, length_in, length_out)
            out[C_SERVICE, i, k] = factor * _affine(performance, SERVICE, i, c, length_in, length_out)
            out[C_PREFILL, i, k] = factor * _affine(performance, PREFILL, i, c, length_in, length_out)
            out[C_KV, i, k] = packed.configuration[KV_PER_TOKEN, c] * (length_in + length_out) * delay
            out[C_ERROR, i, k] = outcome[ERROR_FACTOR, i] * performance[ERROR, i, c]


@inner
def penalty_weight(packed, rate):
    """w_i: requests in the window, or the window's share of a day; 0 without arrivals."""
    if rate <= 0.0:
        return 0.0
    return packed.clock[0] / SECONDS_PER_DAY if packed.clock[1] > 0.0 else rate * packed.clock[0]


@jit
def route_prices(packed, outcome, coefficient, active, route_usd, unserved_usd):
    """Fill `route_usd` (I, n), without tie-breaking, and `unserved_usd` (I,)."""
    workload = packed.workload
    for i in range(outcome.shape[1]):
        weight = penalty_weight(packed, outcome[RATE, i])
        requests = outcome[RATE, i] * packed.clock[0]
        unserved_usd[i] = weight * workload[UNSERVED_USD, i]
        for k in range(active.shape[0]):
            usd = weight * workload[DELAY_USD, i] * coefficient[C_DELAY, i, k]
            usd += requests * packed.performance[STORAGE_USD, i, active[k]]
            if coefficient[C_PREFILL, i, k] >= workload[TTFT_SLO, i]:
                usd += requests * workload[LATE_USD, i]
            route_usd[i, k] = usd


@inner
def _fill_rows(packed, outcome, coefficient, active, unserved_usd, cost, delay, error, use, allowed):
    """Turn coefficients into the LP's columns; `cost` comes in as route_usd and gets the tie-break."""
    for i in range(outcome.shape[1]):
        rate = outcome[RATE, i]
        delay_slo, error_slo = packed.workload[DELAY_SLO, i], packed.workload[ERROR_SLO, i]
        for k in range(active.shape[0]):
            c = active[k]
            cost[i, k] += TIE_BREAK_SCALE * unserved_usd[i] * packed.performance[TIE_BREAK, i, c]
            delay[i, k] = (coefficient[C_DELAY, i, k] - delay_slo) / delay_slo
            error[i, k] = (coefficient[C_ERROR, i, k] - error_slo) / error_slo
            use[0, i, k] = rate * coefficient[C_WORK, i, k]
            use[1, i, k] = rate * coefficient[C_KV, i, k]
            use[2, i, k] = rate * coefficient[C_SERVICE, i, k]
            allowed[i, k] = packed.performance[COMPATIBLE, i, c] > 0.0


@inner
def _fill_limits(packed, serving, active, capacity, width, slope):
    for k in range(active.shape[0]):
        c = active[k]
        row = packed.segment[packed.segment_offset[c] + serving[c] - 1]
        capacity[0, k] = packed.configuration[COMPUTE, c] * serving[c]
        capacity[1, k] = packed.configuration[KV_CAPACITY, c] * serving[c]
        capacity[2, k] = row[0] * packed.configuration[CONCURRENCY, c] * serving[c]
        for b in range(3):
            width[k, b] = row[1 + b]
            slope[k, b] = row[4 + b]


@inner
def _tail(packed, outcome, coefficient, share, serving, active, k, late):
    """Fill late[:, k]: the share of each workload's requests on one configuration whose TTFT is late."""
    c = active[k]
    total = 0.0
    mean = 0.0
    second = 0.0
    arrival_cv2 = 0.0
    for i in range(share.shape[0]):
        flow = outcome[RATE, i] * share[i, k]
        service = coefficient[C_SERVICE, i, k]
        total += flow
        mean += flow * service
        second += flow * (1.0 + packed.performance[SERVICE_CV2, i, c]) * service * service
        arrival_cv2 += flow * packed.workload[ARRIVAL_CV2, i]
    cv2 = 0.0
    if total > 0.0:
        mean, second, arrival_cv2 = mean / total, second / total, arrival_cv2 / total
        if mean > 0.0:
            cv2 = max(0.0, second / (mean * mean) - 1.0)
    servers = int(packed.configuration[CONCURRENCY, c]) * serving[c]
    waiting = -1.0  # one queue for all workloads: computed once, and only if somebody asks
    for i in range(share.shape[0]):
        late[i, k] = 0.0
        slo = packed.workload[TTFT_SLO, i]
        if share[i, k] <= 0.0 or slo == np.inf:
            continue
        slack_s = slo - coefficient[C_PREFILL, i, k]
        if slack_s <= 0.0:
            late[i, k] = 1.0
            continue
        beyond = wait_decay(servers, total * mean, mean, cv2 + arrival_cv2, slack_s)
        if beyond > NEGLIGIBLE and waiting < 0.0:
            waiting = chance_to_wait(servers, total * mean, arrival_cv2, NEGLIGIBLE)
        if beyond > NEGLIGIBLE:
            late[i, k] = waiting * beyond


@inner
def _charge(packed, outcome, coefficient, table, slack, active, unserved_usd, terms, miss):
    """Add up the terms of operating; fill the miss shares. `table` is that of `operate`."""
    delay, error, share, late = table[1], table[2], table[3], table[4]
    terms[T_DATA] = terms[T_DELAY] = terms[T_SLO] = terms[T_UNSERVED] = terms[T_LATE] = 0.0
    for i in range(outcome.shape[1]):
        rate = outcome[RATE, i]
        miss[i] = 0.0
        if rate <= 0.0:
            continue
        requests = rate * packed.clock[0]
        weight = penalty_weight(packed, rate)
        delay_s = storage = late_share = over_delay = over_error = 0.0
        for k in range(active.shape[0]):
            x = share[i, k]
            if x > 0.0:
                delay_s += x * coefficient[C_DELAY, i, k]
                storage += x * packed.performance[STORAGE_USD, i, active[k]]
                late_share += x * late[i, k]
                over_delay += x * delay[i, k]
                over_error += x * error[i, k]
        unserved = slack[i, 0]
        terms[T_DATA] += requests * storage
        terms[T_DELAY] += weight * packed.workload[DELAY_USD, i] * delay_s
        terms[T_SLO] += unserved_usd[i] * (max(0.0, over_delay) + max(0.0, over_error))
        terms[T_UNSERVED] += unserved_usd[i] * unserved
        terms[T_LATE] += requests * packed.workload[LATE_USD, i] * late_share
        miss[i] = min(1.0, unserved + late_share)


@jit(no_cpython_wrapper=True)
def operate(packed, outcome, serving, active, basis, work, terms, unserved, miss, shares):
    """Route one window's demand over the serving replicas and charge for it.

    Parameters
    ----------
    packed : Packed
    outcome : (5, I) float64
    serving : (C,) int64
        Serving replicas.
    active : (n,) int64
        Configurations with serving replicas, ascending.
    basis, work : ndarray, Workspace
        Warm start and work space of `route`, with room for n configurations.
    terms : (8,) float64, modified in place
        Gets the terms of operating.
    unserved, miss : (I,) float64, overwritten
    shares : (I, C) float64
        The routing is written into the active columns, the others are left alone; (I, 0) to leave it out.

    Returns
    -------
    int
        Status of `route`: 0 is optimal.
    """
    count_w, count_c = outcome.shape[1], active.shape[0]
    coefficient = np.empty((NUM_COEFFICIENTS, count_w, count_c))
    table = np.empty((5, count_w, count_c))
    cost, delay, error, share, late = table[0], table[1], table[2], table[3], table[4]
    use = np.empty((3, count_w, count_c))
    allowed = np.empty((count_w, count_c), dtype=np.uint8)
    per_workload = np.empty((2, count_w, 3))
    slack = per_workload[0]
    per_segment = np.empty((3, count_c, 3))
    capacity, duals = np.empty((3, count_c)), (per_workload[1], np.empty((3, count_c)))
    unserved_usd = np.empty(count_w)
    coefficients(packed, outcome, active, coefficient)
    route_prices(packed, outcome, coefficient, active, cost, unserved_usd)
    _fill_rows(packed, outcome, coefficient, active, unserved_usd, cost, delay, error, use, allowed)
    _fill_limits(packed, serving, active, capacity, per_segment[0], per_segment[1])
    lap(work.ticks, COEFFICIENTS)
    status, _, _ = distant_route(
        cost,
        unserved_usd,
        delay,
        error,
        use,
        capacity,
        per_segment[0],
        per_segment[1],
        allowed,
        basis,
        work,
        share,
        slack,
        per_segment[2],
        duals,
    )
    lap(work.ticks, ROUTING)
    for k in range(count_c):
        _tail(packed, outcome, coefficient, share, serving, active, k, late)
        if shares.shape[1] > 0:
            for i in range(count_w):
                shares[i, active[k]] = share[i, k]
    lap(work.ticks, TAILS)
    _charge(packed, outcome, coefficient, table, slack, active, unserved_usd, terms, miss)
    for i in range(count_w):
        unserved[i] = slack[i, 0]
    lap(work.ticks, COSTS)
    return status
