"""Compute the chances to wait of a batch of queues, eight at a time, bit for bit as `queueing` does.

Erlang's series are summed side by side, eight at a time. What a queue has found is stored as its series ends, so that
no step of the others waits for it.
"""

import math

import numpy as np

from fleetgym.kernels.compile import always_inline, inline
from fleetgym.kernels.lowlevel import (
    WIDTH,
    are_at_most,
    are_less,
    choose,
    load_first,
    quotient,
    spread,
    store_first,
)
from fleetgym.kernels.queueing import POISSON, SPLIT, TAIL, four_terms, residual

#: Rows of a table of queues: servers, offered load, arrivals' cv2, chance to wait; the others are work space.
Q_SERVERS, Q_OFFERED, Q_ARRIVAL_CV2, Q_CHANCE, Q_LOW, Q_LOAD, Q_PART = range(7)
NUM_QUEUE_ROWS = 7

_ALL = 255  # bits of all lanes


@always_inline
def _inverse_blocking(servers, offered, enough):
    """Return `queueing._inverse_blocking` of eight queues, and bits that tell which reached `enough`."""
    zero, one, two, three, four = spread(0.0), spread(1.0), spread(2.0), spread(3.0), spread(4.0)
    part, tail = quotient(one, offered), spread(TAIL)
    total, term, left = one, one, servers
    found, last, rest = one, one, servers  # total, term and left where the series ended
    running, reached = are_less(four, left), 0
    while running != 0:
        terms, product = four_terms(left, part, one, two, three)
        total = total + term * terms
        term = term * product
        left = left - four
        rising = are_less(offered, left)
        ended = rising & are_at_most(enough, total)
        small = are_at_most(term * left, tail * total * (offered - left)) & (rising ^ _ALL)
        finished = running & (ended | small | (are_less(four, left) ^ _ALL))
        if finished != 0:
            reached |= finished & ended
            found, last = choose(finished, total, found), choose(finished, term, last)
            rest = choose(finished, choose(ended | small, zero, left), rest)
            term = choose(finished, zero, term)  # numbers that become too small would be slow
            running &= finished ^ _ALL
    for _ in range(4):
        more = are_less(zero, rest)
        last = choose(more, last * (rest * part), last)
        found = choose(more, found + last, found)
        rest = rest - one
    lack = found * residual(offered, part, one, spread(SPLIT))
    exact = found + lack * (servers - offered + quotient(offered, found))
    many = are_less(spread(100.0), servers) & are_less(found, spread(np.inf))
    return choose(many, exact, found), reached


@inline
def _fill_erlang(queues, count, negligible):
    """Write `queueing.noticeable_erlang_c` of Q_LOW servers and a load of Q_LOAD into Q_CHANCE."""
    n, zero, one = queues.shape[1], spread(0.0), spread(1.0)
    for first in range(0, count, WIDTH):
        some = count - first
        servers = load_first(queues, Q_LOW * n + first, some)
        offered = load_first(queues, Q_LOAD * n + first, some)
        none, full = are_at_most(offered, zero), are_at_most(servers, offered)
        idle = quotient(servers - offered, servers)
        enough = quotient(one, spread(negligible) * idle)
        summed = choose(none | full, zero, servers)
        inverse, reached = _inverse_blocking(summed, choose(none | full, one, offered), enough)
        chance = quotient(one, idle * inverse + quotient(offered, servers))
        chance = choose(reached | are_at_most(enough, inverse), zero, chance)
        chance = choose(none, zero, choose(full, one, chance))
        store_first(queues, Q_CHANCE * n + first, chance, some)


@inline
def fill_chances(queues, count, negligible):
    """Write the chance to wait of each of the first `count` queues, as `queueing.chance_to_wait` returns it.

    Parameters
    ----------
    queues : (NUM_QUEUE_ROWS, N) float64, modified in place
        Rows Q_SERVERS, Q_OFFERED and Q_ARRIVAL_CV2 are read, the others overwritten.
    count : int
    negligible : float
        As for `chance_to_wait`.
    """
    parts = False
    for q in range(count):
        servers, offered, arrival_cv2 = queues[Q_SERVERS, q], queues[Q_OFFERED, q], queues[Q_ARRIVAL_CV2, q]
        queues[Q_LOW, q], queues[Q_LOAD, q], queues[Q_PART, q] = servers, offered, 0.0
        if abs(arrival_cv2 - 1.0) > POISSON and 0.0 < offered < servers:
            size = servers / (0.5 * (1.0 + arrival_cv2))
            low = float(math.floor(size))
            queues[Q_LOW, q], queues[Q_PART, q] = low, size - low
            queues[Q_LOAD, q] = offered / servers * low if low > 0.0 else 1.0  # without servers all wait
            parts = parts or size > low
    _fill_erlang(queues, count, negligible)
    if not parts:
        return
    for q in range(count):
        low, waiting = queues[Q_LOW, q] + 1.0, queues[Q_CHANCE, q]
        asked = queues[Q_PART, q] > 0.0 and waiting > 0.0
        queues[Q_LOAD, q] = queues[Q_OFFERED, q] / queues[Q_SERVERS, q] * low if asked else 0.0
        queues[Q_LOW, q], queues[Q_OFFERED, q] = low, waiting
    _fill_erlang(queues, count, 0.0)
    for q in range(count):
        waiting = queues[Q_OFFERED, q]
        if queues[Q_PART, q] > 0.0 and waiting > 0.0:
            waiting *= (queues[Q_CHANCE, q] / waiting) ** queues[Q_PART, q]
        queues[Q_CHANCE, q] = waiting
