"""Turn a queue's load into waiting probabilities, percentiles, and the price of late requests.

A configuration with `servers` = replicas x slots is a G/G/c queue. Erlang C gives the chance to wait, of c/z
servers with a load of a/z, as the arrivals come in bursts of z (Hayward's approximation); the wait beyond that is
taken as exponential, with a rate that the variability of arrivals and service slows down (Kimura's)::

    P(W > t) = C(c/z, a/z) exp(-2 (c mu - lambda) t / (arrival_cv2 + service_cv2))
    a = lambda / mu,    z = (1 + arrival_cv2) / 2

Rates are per second, times in seconds, ``cv2`` is a squared coefficient of variation, and `offered` (a) is
in erlang, that is in busy servers. The kernels trust their input; NaN in gives NaN out.

Examples
--------
Two servers, one of them busy on average: a third of the arrivals wait.

>>> round(erlang_c(2, 1.0), 12)
0.333333333333
>>> erlang_c(4, 4.0), erlang_c(4, 0.0)
(1.0, 0.0)

A tenth of a second of patience, with Poisson arrivals and exponential service of one second:

>>> round(wait_exceeds(2, 1.0, 1.0, 1.0, 1.0, 0.1), 6)
0.301612
>>> round(wait_percentile(2, 1.0, 1.0, 1.0, 1.0, 0.01), 6)
3.506558

What a busy server costs in late requests, in three segments above the load that is safe:

>>> import numpy as np
>>> one, pair, replicas = np.ones(1), np.ones((1, 1)), np.array([0, 1])
>>> safe, width, slope = late_cost_table(
...     pair, pair, pair, one, 0.0 * pair, 0.4 * pair, 0.01 * one, np.array([20]), replicas, 300.0
... )
>>> bool(0.5 < safe[0] < 0.7 and np.all(np.diff(slope) >= 0))
True
>>> round(float(20 * safe[0] + width.sum()), 6)  # the segments end at a utilisation of 0.95
19.0
"""

from __future__ import annotations

import math

import numpy as np

from fleetgym.kernels.compile import always_inline, entry, inline, jit
from fleetgym.kernels.lowlevel import borrow

U_MAX = 0.95  # highest utilisation that a fleet may plan for
SAFE_MISS = 0.001  # miss share up to which a load is free
SEGMENTS = 3  # chords between the safe utilisation and U_MAX

# Numba freezes these at compilation. That is safe because an edit of this file starts a new cache folder.
POISSON = 1e-12  # arrivals whose cv2 is so close to 1 are Poisson: shares may not quite sum to 1
TAIL = 1e-17  # what the series may leave out, relative to its sum
SPLIT = 134217729.0  # 2^27 + 1 splits a number into halves whose products are exact
_BISECTIONS = 40  # narrows [0, U_MAX] to below 1e-12


@inline
def four_terms(left, part, one, two, three):
    """Return the sum of four terms of the series, relative to the one before them, and the last of them.

    This and `residual` take numbers, or `Lanes` of them with the constants in `Lanes` too.
    """
    r0, r1 = left * part, (left - one) * part
    r2, r3 = (left - two) * part, (left - three) * part
    r01 = r0 * r1
    return r0 + r01 * (one + r2 * (one + r3)), r01 * (r2 * r3)


@inline
def residual(value, reciprocal, one, split):
    """Return 1 - value * reciprocal without rounding: what the reciprocal lacks (Dekker's product)."""
    high = value * split - (value * split - value)
    low = value - high
    other_high = reciprocal * split - (reciprocal * split - reciprocal)
    other_low = reciprocal - other_high
    product = value * reciprocal
    error = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    return (one - product) - error


@inline
def _inverse_blocking(servers, offered, enough):
    """Sum 1/B, the reciprocal of Erlang B, until it is complete or at least `enough`.

    1/B = 1 + c/a + c(c-1)/a^2 + ... has positive terms only, so nothing cancels. They rise while more than
    `offered` factors are left and fall from there on; either way O(sqrt(c)) of them matter, since a longer
    rise overflows to infinity, which is a blocking probability of zero. Four terms are added at a time, with a
    rounded 1/a; as d log(1/B) / d log(a) = -(c - a + a B), what that rounding does to the sum is taken out again.
    """
    total = 1.0
    term = 1.0
    left = float(servers)
    part = 1.0 / offered
    while left > 4.0:
        terms, product = four_terms(left, part, 1.0, 2.0, 3.0)
        total += term * terms
        term *= product
        left -= 4.0
        if left > offered:
            if total >= enough:
                return total
        elif term * left <= TAIL * total * (offered - left):
            # The later terms are below a geometric series with this term's ratio.
            left = 0.0
    while left > 0.0:
        term *= left * part
        total += term
        left -= 1.0
    if servers > 100 and total < np.inf:
        total += total * residual(offered, part, 1.0, SPLIT) * (servers - offered + offered / total)
    return total


@jit
def erlang_c(servers, offered):
    """Return the probability that an arrival has to wait in an M/M/c queue (Erlang C).

    Parameters
    ----------
    servers : int
        Number of servers c.
    offered : float
        Offered load a = arrival rate x mean service time, in erlang.

    Returns
    -------
    float
        1 / ((1 - a/c)/B + a/c) with B the Erlang B probability; 0 without load, 1 where a >= c. The relative
        error stays below 1e-12 up to 100,000 servers and down to probabilities of 1e-300.
    """
    if offered <= 0.0:
        return 0.0
    if offered >= servers:
        return 1.0
    inverse = _inverse_blocking(servers, offered, np.inf)
    return 1.0 / ((servers - offered) / servers * inverse + offered / servers)


@jit
def noticeable_erlang_c(servers, offered, negligible):
    """Return Erlang C, or 0 where it is below `negligible`: its series is left as soon as that is certain.

    Parameters
    ----------
    servers : int
        Number of servers c.
    offered : float
        Offered load in erlang.
    negligible : float
        At least 0.

    Returns
    -------
    float
        The probability of `erlang_c`, or 0.
    """
    if offered <= 0.0:
        return 0.0
    if offered >= servers:
        return 1.0
    idle = (servers - offered) / servers
    enough = 1.0 / (negligible * idle)  # 1/B from which C < negligible
    inverse = _inverse_blocking(servers, offered, enough)
    return 0.0 if inverse >= enough else 1.0 / (idle * inverse + offered / servers)


@jit
def chance_to_wait(servers, offered, arrival_cv2, negligible):
    """Return P(W > 0) in a G/G/c queue: Erlang C of the servers and the load that a burst meets (Hayward).

    A stream with peakedness z = (1 + arrival_cv2) / 2 is taken as bursts of z requests that are served as one:
    C(c/z, a/z). Between whole numbers of servers the logarithm of C is interpolated at equal utilisation, and
    without any server everybody waits.

    Parameters
    ----------
    servers : int
        Number of servers c.
    offered : float
        Offered load a in erlang.
    arrival_cv2 : float
        Squared coefficient of variation of the inter-arrival times; 1 (Poisson arrivals) gives Erlang C itself.
    negligible : float
        At least 0. Where the probability is certain to be below, the answer is 0, and found sooner.

    Returns
    -------
    float
        In [0, 1]: 0 without load, 1 where a >= c; nonincreasing in the servers, nondecreasing in the load.

    References
    ----------
    A. A. Fredericks, "Congestion in blocking systems: a simple approximation technique", Bell System Technical
    Journal 59 (1980) 805-827.

    Examples
    --------
    >>> chance_to_wait(16, 12.0, 1.0, 0.0) == erlang_c(16, 12.0)
    True
    >>> chance_to_wait(16, 12.0, 3.0, 0.0) == erlang_c(8, 6.0)
    True
    >>> round(chance_to_wait(1, 0.7, 7.0, 0.0) / 0.7**0.25, 12)  # bursts of four
    1.0
    """
    low, load, part = servers, offered, 0.0
    if abs(arrival_cv2 - 1.0) > POISSON and 0.0 < offered < servers:
        size = servers / (0.5 * (1.0 + arrival_cv2))
        low = math.floor(size)
        part = size - low
        load = offered / servers * low
    waiting = noticeable_erlang_c(low, load, negligible) if low > 0 or low == servers else 1.0
    if part > 0.0 and waiting > 0.0:
        waiting *= (noticeable_erlang_c(low + 1, offered / servers * (low + 1), 0.0) / waiting) ** part
    return waiting


@jit
def wait_decay(servers, offered, mean_service_s, cv2_sum, threshold_s):
    """Return P(W > t | W > 0), the share of those who wait that waits longer than a threshold.

    Parameters
    ----------
    servers : int
        Number of servers c.
    offered : float
        Offered load in erlang.
    mean_service_s : float
        Mean service time.
    cv2_sum : float
        Sum of the squared coefficients of variation of service and inter-arrival times.
    threshold_s : float
        The threshold t, at least 0.

    Returns
    -------
    float
        In [0, 1]; 1 where the offered load reaches `servers`.
    """
    if offered >= servers or threshold_s <= 0.0:
        return 1.0
    if cv2_sum <= 0.0:
        return 0.0
    return math.exp(-2.0 * (servers - offered) / mean_service_s * threshold_s / cv2_sum)


@jit
def wait_exceeds(servers, arrival_rate, mean_service_s, service_cv2, arrival_cv2, threshold_s):
    """Return P(W > t): the share of requests that wait longer than a threshold (G/G/c).

    Parameters
    ----------
    servers : int
        Number of servers c.
    arrival_rate : float
        Requests per second.
    mean_service_s : float
        Mean service time.
    service_cv2, arrival_cv2 : float
        Squared coefficients of variation of service and inter-arrival times; 1 for Poisson arrivals.
    threshold_s : float
        The threshold t. A wait is never negative, so a negative threshold is always exceeded.

    Returns
    -------
    float
        In [0, 1]; 1 where the offered load reaches `servers`, 0 without arrivals. Where both cv2 are zero
        nobody waits longer than t > 0.
    """
    if threshold_s < 0.0:
        return 1.0
    offered = arrival_rate * mean_service_s
    if offered <= 0.0:
        return 0.0
    if offered >= servers:
        return 1.0
    decay = wait_decay(servers, offered, mean_service_s, service_cv2 + arrival_cv2, threshold_s)
    if decay == 0.0:
        return 0.0
    return chance_to_wait(servers, offered, arrival_cv2, 0.0) * decay


@jit
def wait_percentile(servers, arrival_rate, mean_service_s, service_cv2, arrival_cv2, tail):
    """Return the wait that a share `tail` of the requests exceeds, t with P(W > t) = tail.

    Parameters
    ----------
    servers, arrival_rate, mean_service_s, service_cv2, arrival_cv2
        As for `wait_exceeds`.
    tail : float
        Share of requests beyond the percentile: 0.01 for P99.

    Returns
    -------
    float
        Seconds; 0 where no more than `tail` wait at all, infinite where the offered load reaches `servers`.
        The series of 1/B stops as soon as it proves that fewer than `tail` wait.
    """
    offered = arrival_rate * mean_service_s
    if offered <= 0.0 or tail >= 1.0:
        return 0.0
    if offered >= servers or tail <= 0.0:
        return np.inf
    waiting = chance_to_wait(servers, offered, arrival_cv2, tail)
    if waiting <= tail:
        return 0.0
    cv2_sum = service_cv2 + arrival_cv2
    return math.log(waiting / tail) * cv2_sum * mean_service_s / (2.0 * (servers - offered))


@inline
def _mixture(shares, service_s, service_cv2, arrival_cv2):
    """Return the mean service time of a mixture, the sum of its service and arrival cv2, and the latter."""
    mean = 0.0
    second = 0.0
    arrivals = 0.0
    for i in range(shares.size):
        mean += shares[i] * service_s[i]
        second += shares[i] * (1.0 + service_cv2[i]) * service_s[i] * service_s[i]
        arrivals += shares[i] * arrival_cv2[i]
    if mean <= 0.0:
        return 0.0, 0.0, 1.0
    return mean, max(0.0, second / (mean * mean) - 1.0) + arrivals, arrivals


@inline
def _weighted_late(weights, slack_s, servers, busy, mean_service_s, cv2_sum, arrival_cv2):
    """Return sum_i weights_i P(W > slack_i).

    The queue is one for all workloads, so the chance to wait is computed once.
    """
    total = 0.0
    for i in range(weights.size):
        if weights[i] > 0.0:
            total += weights[i] * wait_decay(servers, busy, mean_service_s, cv2_sum, slack_s[i])
    return total * chance_to_wait(servers, busy, arrival_cv2, 0.0) if total > 0.0 else 0.0


@inline
def _safe_utilization(waiting, slack_s, servers, mean_service_s, cv2_sum, arrival_cv2):
    """Return the largest utilisation up to `U_MAX` with a miss share of at most `SAFE_MISS`."""
    if (
        _weighted_late(waiting, slack_s, servers, servers * U_MAX, mean_service_s, cv2_sum, arrival_cv2)
        <= SAFE_MISS
    ):
        return U_MAX
    low = 0.0
    high = U_MAX
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if (
            _weighted_late(waiting, slack_s, servers, servers * middle, mean_service_s, cv2_sum, arrival_cv2)
            <= SAFE_MISS
        ):
            low = middle
        else:
            high = middle
    return low


@always_inline
def _late_cost_row(waiting, usd, slack_s, mean_service_s, cv2_sum, arrival_cv2, servers, window_s, segment):
    """Write safe utilisation, widths and slopes to `segment`.

    `waiting` is each workload's share of the requests that are late only if they wait, `usd` the same times its price
    of being late; a mean service time of zero stands for "nothing to price".
    """
    for k in range(1 + 2 * SEGMENTS):
        segment[k] = 0.0
    segment[0] = U_MAX
    if mean_service_s <= 0.0 or servers <= 0:
        return
    safe = _safe_utilization(waiting, slack_s, servers, mean_service_s, cv2_sum, arrival_cv2)
    segment[0] = safe
    if safe >= U_MAX:
        return
    step = (U_MAX - safe) * servers / SEGMENTS
    before = 0.0
    steepest = 0.0
    for k in range(SEGMENTS + 1):
        busy = safe * servers + k * step
        late = _weighted_late(usd, slack_s, servers, busy, mean_service_s, cv2_sum, arrival_cv2)
        cost = busy / mean_service_s * window_s * late
        if k > 0:
            # The LP fills segments in order only if each is at least as dear as the one before.
            steepest = max(steepest, (cost - before) / step)
            segment[k] = step
            segment[SEGMENTS + k] = steepest
        before = cost


@jit
def fill_late_costs(
    shares, waiting, usd, slack_s, service_s, service_cv2, arrival_cv2, slots, offsets, window_s, segment
):
    """Fill `segment` (N, 1 + 2 SEGMENTS): safe utilisation, widths and slopes of `late_cost_table`."""
    shares, waiting, usd, slack_s = borrow((shares, waiting, usd, slack_s))
    service_s, service_cv2, arrival_cv2 = borrow((service_s, service_cv2, arrival_cv2))
    slots, offsets, segment = borrow((slots, offsets, segment))
    for c in range(slots.size):
        mean, cv2, bursts = _mixture(shares[:, c], service_s[:, c], service_cv2[:, c], arrival_cv2)
        for row in range(offsets[c], offsets[c + 1]):
            servers = slots[c] * (row - offsets[c] + 1)
            _late_cost_row(
                waiting[:, c], usd[:, c], slack_s[:, c], mean, cv2, bursts, servers, window_s, segment[row]
            )


_ROW, _TABLE, _COUNTS = np.zeros(1), np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
entry(fill_late_costs, *[_TABLE] * 6, _ROW, *[_COUNTS] * 2, 0.0, _TABLE)


def late_cost_table(
    shares, service_s, service_cv2, arrival_cv2, own_late, slack_s, late_usd, slots, offsets, window_s
):
    """Return what busy servers cost in late requests, as convex segments, by configuration and number of replicas.

    At utilisation u the load is u x replicas x slots erlang of the given mixture. Up to the safe utilisation, where
    the miss share is at most `SAFE_MISS`, load is free; from there to `U_MAX` equal segments follow the
    chords of the late cost in USD per window, made nondecreasing. Requests whose prefill alone breaks their
    SLO are always late, at any load, and count nothing here.

    Parameters
    ----------
    shares : (I, C) float array
        Share of each workload among a configuration's requests; they sum to 1, 0 where incompatible.
    service_s, service_cv2 : (I, C) float arrays
        Mean and squared coefficient of variation of each workload's service time on a configuration.
    arrival_cv2 : (I,) float array
        Squared coefficient of variation of each workload's inter-arrival times; the mixture takes the mean.
    own_late : (I, C) float array
        Share of the requests whose prefill alone breaks the SLO on the time to first token.
    slack_s : (I, C) float array
        Time that the others may wait; infinite without an SLO.
    late_usd : (I,) float array
        Price of a late request.
    slots : (C,) int array
        Servers per replica.
    offsets : (C + 1,) int array
        Row ``offsets[c] + replicas - 1`` belongs to `replicas` of configuration c; the last entry is N.
    window_s : float
        Length of a window.

    Returns
    -------
    safe_utilization : (N,) float array
        In [0, U_MAX]; U_MAX where no late request can cost anything.
    width : (N, 3) float array
        Busy servers in each segment.
    slope : (N, 3) float array
        USD per busy server and window, nondecreasing.
    """
    segment = np.empty((int(offsets[-1]), 1 + 2 * SEGMENTS))
    price = late_usd[:, None]
    can_be_late = ((shares > 0.0) & (price > 0.0)).any(axis=0) & ((shares > 0.0) & (slack_s < np.inf)).any(
        axis=0
    )
    waiting = shares * (1.0 - own_late)
    tables = (np.where(can_be_late, shares, 0.0), waiting, waiting * price, slack_s, service_s, service_cv2)
    fill_late_costs(
        *(np.ascontiguousarray(table) for table in tables),
        *(arrival_cv2, slots, offsets, window_s, segment),
    )
    return segment[:, 0], segment[:, 1 : 1 + SEGMENTS], segment[:, 1 + SEGMENTS :]
