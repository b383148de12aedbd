"""Bound the cost of late requests from below by linear functions of routes and replicas.

N = max_concurrency · S servers serve a load of a = Σ_i a_i busy ones, a_i = rate_i S_ic x_ic; u = a / N. Late requests
cost Σ_i v_i a_i P_i USD, where v_i = requests_i late_usd_i / (rate_i S_ic) and P_i is the chance to wait longer than
what the TTFT SLO leaves after the prefill (the model page, section 5). For any price B of a server,

    Σ_i v_i a_i P_i  ≥  Σ_i σ_i a_i - B N    if    v_i P_i + B / u ≥ σ_i   for all u, N and mixtures,

as Σ_i a_i (B / u) = B N. So σ_i may be the least of v_i P_i + B / u, with P_i from below. The plane falls with S and
rises with the routes: it is a row of a linear program, in which missing replicas may be paid for at B a server.

P_i grows with u and falls with N. It depends on the mixture by ca² and by D = E[S] (ca² + cv²) only, and grows with
both. As functions of the mixture, ca² and E[S²] / E[S] are ratios of linear functions, and E[S] (ca² - 1) is a product
of two that are not negative (if every ca² ≥ 1). So each is least at a vertex of the mixtures that demand leaves: a_i
is never more than all of workload i. Utilisations are taken in intervals and fleets in ranges: on each, what grows is
taken from the end where it is less.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, pdtr

from fleetgym.bounds.mixtures import least_of_mixtures
from fleetgym.kernels.queueing import U_MAX
from fleetgym.model.planning import Snapshot

#: Price of a server, times what it costs to hold. One row a configuration: a second one raises bounds by .1 %.
PRICE = 2.0
#: Ends of the intervals of utilisation; below the first, nobody counts as late.
UTILISATIONS = np.array(
    [0.3, 0.5, 0.6, 0.7, 0.74, 0.77, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, U_MAX]
)
#: Ends of the ranges of replicas; the last one has no end.
REPLICAS = np.array([1, 2, 4, 8, 16])
#: Most workloads for which demand limits the mixtures.
MOST_LIMITED = 4
#: Taken off every slope, relative: round-off of the probabilities.
ROUND_OFF = 1e-6
#: Rows that raise no slope by more than this share are left out: the capacity of the servers says as much.
WORTHWHILE = 0.01


class Queues(NamedTuple):
    """What a window's m workloads are to the queues of the configurations; 0 on routes that do not exist."""

    busy: np.ndarray  # (m, C) servers that all of a workload keeps busy
    service: np.ndarray  # (m, C) E[S], seconds
    own: np.ndarray  # (m, C) E[S²] / E[S], seconds
    arrival_cv2: np.ndarray  # (m,)
    wait: np.ndarray  # (m, C) how long a request may wait, seconds; inf where none counts as late
    late_usd: np.ndarray  # (m, C) cost if all of a workload's requests are late that can be in time
    servers: np.ndarray  # (C,) int64 of a replica
    most: np.ndarray  # (C,) int64 replicas

    def of(self, c: int, served: np.ndarray) -> Queues:
        """Return the queue of configuration c and some of its workloads, without the axis of configurations."""
        return Queues(
            busy=self.busy[served, c],
            service=self.service[served, c],
            own=self.own[served, c],
            arrival_cv2=self.arrival_cv2[served],
            wait=self.wait[served, c],
            late_usd=self.late_usd[served, c],
            servers=self.servers[c],
            most=self.most[c],
        )


def queues_of(snapshot: Snapshot, present: np.ndarray, is_open: np.ndarray) -> Queues:
    """Return what the workloads `present`, (m,), are to the queues; `is_open` says which routes exist, (m, C)."""
    workloads = [snapshot.instance.workloads[i] for i in present]
    service = np.where(is_open, snapshot.service_s[present], 0.0)
    slack, punctual = snapshot.slack_s[present], 1.0 - snapshot.own_late[present]
    late_usd = (
        np.array([w.late_usd for w in workloads])[:, None] * snapshot.requests[present, None] * punctual
    )
    counts = is_open & (slack > 0.0) & np.isfinite(slack) & (late_usd > 0.0)
    spread = np.asarray(snapshot.instance.performance.service_cv2)[present]
    return Queues(
        busy=snapshot.rate_rps[present, None] * service,
        service=service,
        own=(1.0 + spread) * service,
        arrival_cv2=np.array([w.arrival_cv2 for w in workloads]),
        wait=np.where(counts, slack, np.inf),
        late_usd=np.where(counts, late_usd, 0.0),
        servers=np.asarray(snapshot.max_concurrency, dtype=np.int64),
        most=np.asarray(snapshot.max_replicas, dtype=np.int64),
    )


def late_row(queues: Queues, is_open: np.ndarray, hold_usd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows Σ_i need_ic x_ic ≤ S_c + late_c / price_c that the cost of late requests, late_c USD, obeys.

    Parameters
    ----------
    queues : Queues
    is_open : ndarray of bool, shape (m, C)
        Whether the route exists.
    hold_usd : ndarray, shape (C,)
        What a replica costs in the window.

    Returns
    -------
    need : ndarray, shape (m, C)
        Replicas that all of a workload takes; 0 where the row says nothing.
    price_usd : ndarray, shape (C,)
        What a missing replica costs in late requests; inf where the row says nothing.
    """
    need, price_usd = np.zeros(is_open.shape), np.full(hold_usd.size, np.inf)
    whole = ((queues.service > 0.0) | ~is_open).all(axis=0)  # else a mixture of any kind would be possible
    counts = queues.late_usd > 0.0
    some = np.flatnonzero(counts.any(axis=0) & whole & (hold_usd > 0.0) & (queues.most > 0))
    if not some.size:
        return need, price_usd
    busy = queues.busy[:, some]
    with np.errstate(divide="ignore", invalid="ignore"):
        # USD of a busy server all of whose requests are late
        worth = np.where(counts[:, some], queues.late_usd[:, some] / busy, 0.0).T
    servers = queues.servers[some]
    ranges = _ranges(queues.most[some])
    chance, is_reached = _least_chances(queues, some, ranges)
    firsts = np.searchsorted(ranges.of, np.arange(some.size))
    replica = PRICE * hold_usd[some]
    price = replica / servers
    slope = price[ranges.of, None, None] / UTILISATIONS[1:, None] + worth[ranges.of, None] * chance
    slope = np.where(is_reached[..., None], slope, np.inf).min(axis=1)  # (rows, m)
    slope = np.minimum.reduceat(slope, firsts).T  # (m, n)
    slope = np.minimum(slope, price / UTILISATIONS[0]) * (1.0 - ROUND_OFF)
    says = (slope * U_MAX > (1.0 + WORTHWHILE) * price).any(axis=0)
    price_usd[some[says]] = replica[says]
    need[:, some[says]] = (slope * busy / replica)[:, says]
    return need, price_usd


class _Ranges(NamedTuple):
    """Ranges of replicas of all configurations, one after the other."""

    of: np.ndarray  # (rows,) configuration
    lowest: np.ndarray  # (rows,) replicas
    highest: np.ndarray


def _ranges(most: np.ndarray) -> _Ranges:
    """Return the ranges up to `most` replicas, (n,)."""
    lowest = np.append(1, REPLICAS + 1)
    of, level = np.nonzero(lowest <= most[:, None])
    ends = np.append(REPLICAS, np.iinfo(np.int64).max)
    return _Ranges(of, lowest[level], np.minimum(ends[level], most[of]))


def _least_chances(queues: Queues, some: np.ndarray, ranges: _Ranges) -> tuple[np.ndarray, np.ndarray]:
    """Return lower bounds on P(W > wait) by range, interval and workload, and whether demand reaches the interval."""
    of, low, arrival = ranges.of, UTILISATIONS[:-1], queues.arrival_cv2
    servers = queues.servers[some]
    busy, service, own, wait = (
        part[:, some].T for part in (queues.busy, queues.service, queues.own, queues.wait)
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rate = np.where(service > 0.0, 1.0 / service, 0.0)
        load = (servers[of] * ranges.lowest)[:, None] * low
        found, is_reached = np.empty((3, *load.shape)), np.empty(load.shape, dtype=bool)
        parts = (busy[of], rate[of], (rate * arrival)[of], own[of])
        least_of_mixtures(load, *parts, MOST_LIMITED, found, is_reached)
        cv2, bursts, own_least = found
        if arrival.min() < 1.0:
            bursts = (arrival.min() - 1.0) * service.max(axis=1)[of, None]
        most = (servers[of] * ranges.highest)[:, None]
        decay = np.exp(
            -(2.0 * most * (1.0 - low) / np.maximum(0.0, own_least + bursts))[..., None] * wait[of, None]
        )
    effective = np.ceil(np.where(is_reached, most / (0.5 * (1.0 + cv2)), 1.0)).astype(np.int64)
    waits = _erlang_c(1 << int(effective.max()).bit_length())[effective, np.arange(low.size)]
    return waits[..., None] * np.where(is_reached[..., None], decay, 0.0), is_reached


@functools.cache
def _erlang_c(size: int) -> np.ndarray:
    """Return Erlang's delay formula for 0 to `size` servers at the lower ends of the intervals, (size + 1, U)."""
    servers, u = np.arange(1, size + 1)[:, None], UTILISATIONS[:-1]
    load = servers * u
    blocked = np.exp(servers * np.log(load) - load - gammaln(servers + 1.0)) / pdtr(servers, load)
    return np.vstack([np.ones(u.size), blocked / (1.0 - u * (1.0 - blocked))])
