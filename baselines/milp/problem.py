"""Convert a `Snapshot` and the planner's modes to one window's fleet problem as arrays, without useless columns.

All formulations read this `PlacementProblem`. Loads are relative to one replica's capacity, delays and errors to their
SLOs, so that numbers lie near one whatever the instance's units.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fleetgym import Snapshot
from fleetgym.planning import at_least, one_of

COMPUTE, MEMORY, SERVERS = 0, 1, 2

#: What a mode may be.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "slo": ("elastic", "mean", "served-mean", "per-route"),
    "kv": ("littles-law", "paper"),
    "late": ("safe", "segments", "omit"),
    "storage": ("deployed", "paper"),
}

#: A pair that could take less than this share of a workload is left out; the bound allows for it.
LEAST_SHARE = 1e-5


@dataclasses.dataclass(kw_only=True, eq=False)
class Modes:
    """Which problem is solved; the defaults are the environment's.

    Parameters
    ----------
    slo : str
        As in `fleetgym.baselines.greedy_packing.Rules`: ``"elastic"`` (an excess of a mean costs as much as not
        serving that share), ``"mean"`` ((5i) and (5j), which unserved demand relaxes), ``"served-mean"`` (over what
        is served), ``"per-route"`` (each route's delay (6), and (5j)).
    kv : str
        ``"littles-law"``: memory holds rate x residency x tokens. ``"paper"``: (5f), which has no arrival rate.
    late : str
        ``"safe"``: queue servers are loaded to their safe utilisation. ``"segments"``: beyond it at the prices of
        the environment's router. ``"omit"``: as far as the router may go, for nothing, and without its
        tie-breaking cost; late penalties being at least zero, the bound then holds for every fleet in the
        environment.
    storage : str
        ``"deployed"``: weights are stored once per replica. ``"paper"``: once per workload and slot, and the budget
        pays for stored data too, as in (5a), (5c) and (5h).
    storage_usd_per_h : float, optional
        Most that model and data storage may cost (5h). None: no such row.
    switch_weight : float
        Start-up fees of replicas beyond the running fleet count this many times in the objective.

    Raises
    ------
    FleetgymError
        For an unknown mode, or a negative number.
    """

    slo: str = "elastic"
    kv: str = "littles-law"
    late: str = "safe"
    storage: str = "deployed"
    storage_usd_per_h: float | None = None
    switch_weight: float = 0.0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            one_of(choices, **{name: getattr(self, name)})
        at_least(0, storage_usd_per_h=self.storage_usd_per_h, switch_weight=self.switch_weight)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """Ways to run a column: a binary each, at most one of a column's; between `low` and `high` replicas."""

    column: np.ndarray  # (O,) int64
    low: np.ndarray  # (O,) int64
    high: np.ndarray  # (O,) int64
    servers: np.ndarray  # (O,) share of the replica's queue servers that may be busy for nothing
    fixed_usd: np.ndarray  # (O,) start-up fees that do not depend on the number of replicas
    replica_usd: np.ndarray  # (O,) holding and fees of one replica
    width: np.ndarray  # (O, 3) of the late segments, in replicas' worth of queue servers
    slope_usd: np.ndarray  # (O, 3) per replica's worth of queue servers

    @property
    def counted(self) -> np.ndarray:
        """Whether the number of replicas is a variable of its own, (O,) bool."""
        return self.high > self.low

    def run_by(self, replicas: np.ndarray) -> np.ndarray:
        """Return which options a fleet, replicas per column, makes use of, (O,) bool."""
        number = replicas[self.column]
        return (number >= self.low) & (number <= self.high)

    def take(self, keep: np.ndarray) -> Options:
        """Return the options that `keep`, a mask or indices, selects."""
        return Options(**{f.name: getattr(self, f.name)[keep] for f in dataclasses.fields(self)})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlacementProblem:
    """One window's fleet problem; I present workloads, C columns (configurations that may be used), G pools."""

    modes: Modes
    workloads: np.ndarray  # (I,) index in the instance
    columns: np.ndarray  # (C,) index in the instance
    shape: tuple[int, int]  # workloads and configurations of the instance
    open: np.ndarray  # (I, C) bool, whether the pair may carry anything
    usd: np.ndarray  # (I, C) cost of routing the whole workload there
    delay: np.ndarray  # (I, C) of its SLO
    error: np.ndarray  # (I, C) of its SLO
    load: np.ndarray  # (3, I, C) compute, memory, queue servers of the whole workload, in replicas
    most: np.ndarray  # (I, C) largest share that one replica has room for; may exceed 1
    limit: np.ndarray  # (I, C) largest share that the SLOs leave to the column, at most 1
    unserved_usd: np.ndarray  # (I,)
    data_usd: np.ndarray  # (I, C) storing the whole workload's data
    hold_usd: np.ndarray  # (C,) of one replica; without its weights where storage is the paper's
    model_usd: np.ndarray  # (C,) storing the weights of one replica
    gpus: np.ndarray  # (G, C)
    available: np.ndarray  # (G,)
    budget_usd: float
    storage_usd: float
    group: np.ndarray  # (C,) slot; those of an exclusive slot share it
    options: Options
    left_out_usd: np.ndarray  # (C,) most that its pairs below LEAST_SHARE could have saved

    @property
    def max_replicas(self) -> np.ndarray:
        """Most replicas of each column, (C,)."""
        most = np.zeros(self.columns.size, dtype=np.int64)
        np.maximum.at(most, self.options.column, self.options.high)
        return most

    def take(self, keep: np.ndarray) -> PlacementProblem:
        """Return the problem with the columns `keep` only: (C,) bool, or their indices in the wanted order."""
        chosen = np.flatnonzero(keep) if keep.dtype == bool else keep
        position = np.full(self.columns.size, -1)
        position[chosen] = np.arange(chosen.size)
        new = position[self.options.column]
        order = np.argsort(new, kind="stable")
        options = self.options.take(order[new[order] >= 0])
        parts = {name: getattr(self, name)[..., keep] for name in _PER_COLUMN}
        renumbered = dataclasses.replace(options, column=position[options.column])
        return dataclasses.replace(self, options=renumbered, **parts)

    def take_options(self, keep: np.ndarray) -> PlacementProblem:
        """Return the problem with the options `keep`, (O,) bool, and the columns that have any."""
        options = self.options.take(keep)
        used = np.zeros(self.columns.size, dtype=bool)
        used[options.column] = True
        return dataclasses.replace(self, options=options).take(used)

    def fleet_of(self, replicas: np.ndarray) -> np.ndarray:
        """Return replicas per configuration of the instance from those per column, (C,)."""
        fleet = np.zeros(self.shape[1], dtype=np.int64)
        fleet[self.columns] = replicas
        return fleet

    def shares_of(self, routing: np.ndarray) -> np.ndarray:
        """Return the routing per pair of the instance from that of the problem, (I, C)."""
        full = np.zeros(self.shape)
        full[np.ix_(self.workloads, self.columns)] = routing
        return full


_PER_COLUMN = (
    *("columns", "open", "usd", "delay", "error", "load", "most", "limit"),
    *("data_usd", "hold_usd", "model_usd", "gpus", "group", "left_out_usd"),
)


def make_problem(snapshot: Snapshot, modes: Modes, allowed: np.ndarray | None = None) -> PlacementProblem:
    """Return the problem of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
        The window.
    modes : Modes
        Which problem.
    allowed : ndarray of bool, shape (C,), optional
        Configurations that may be used; None: all.

    Returns
    -------
    PlacementProblem
        With the columns that may be of use: they fit the limits and can serve something.
    """
    instance = snapshot.instance
    here = np.flatnonzero(snapshot.rate_rps > 0)
    load = _loads(snapshot, modes)[:, here]
    delay = (snapshot.delay_s / np.array([[w.mean_delay_slo_s] for w in instance.workloads]))[here]
    error = (snapshot.error / np.array([[w.error_slo] for w in instance.workloads]))[here]
    usd = np.array(snapshot.route_usd[here])
    if modes.late == "omit":
        tie_break = instance.performance.tie_break[here]
        usd = np.maximum(0.0, usd - 1e-6 * snapshot.unserved_usd[here, None] * tie_break)
    options = _options(snapshot, modes)
    servers = np.zeros(snapshot.hold_usd.size)
    np.maximum.at(servers, options.column, options.servers + options.width.sum(axis=1) / options.high)
    most, limit = _most(load, servers), _limit(delay, error, modes.slo)
    largest = np.minimum(limit, most * snapshot.max_replicas)
    worth_usd = most_saved_usd(snapshot.unserved_usd[here], usd, delay, error, modes.slo)
    possible = snapshot.compatible[here] & (largest > 0.0)
    opened = possible & ((largest >= LEAST_SHARE) | ~np.isfinite(worth_usd))
    left_out = possible & ~opened
    hours = instance.window_s / 3600.0
    group = np.zeros(snapshot.hold_usd.size, dtype=np.int64)
    for g, members in enumerate(instance.slot_members):
        group[list(members)] = g
    problem = PlacementProblem(
        modes=modes,
        workloads=here,
        columns=np.arange(snapshot.hold_usd.size),
        shape=snapshot.delay_s.shape,
        open=opened,
        usd=usd,
        delay=delay,
        error=error,
        load=np.where(opened, load, 0.0),
        most=np.where(opened, most, 0.0),
        limit=np.where(opened, limit, 0.0),
        unserved_usd=np.array(snapshot.unserved_usd[here]),
        data_usd=snapshot.requests[here, None] * instance.performance.storage_usd[here],
        hold_usd=_hold_usd(snapshot, modes),
        model_usd=_stored_usd(_model_usd(snapshot), group)
        if modes.storage == "paper"
        else _model_usd(snapshot),
        gpus=np.array(snapshot.gpu_use, dtype=float),
        available=np.array(snapshot.available_gpus, dtype=float),
        budget_usd=float(snapshot.budget_usd),
        storage_usd=np.inf if modes.storage_usd_per_h is None else modes.storage_usd_per_h * hours,
        group=group,
        options=options,
        left_out_usd=(np.where(left_out, worth_usd, 0.0) * np.where(left_out, largest, 0.0)).sum(axis=0),
    )
    return problem.take(_useful(problem, allowed))


def _model_usd(snapshot: Snapshot) -> np.ndarray:
    per_h = [c.model_storage_usd_per_h for c in snapshot.instance.configurations]
    return np.array(per_h) * snapshot.instance.window_s / 3600.0


def _stored_usd(model_usd: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return what the paper's z stores, (C,): where a slot's columns differ, the largest weights, whichever runs."""
    largest = np.zeros(group.max(initial=-1) + 1)
    np.maximum.at(largest, group, model_usd)
    return largest[group]


def _hold_usd(snapshot: Snapshot, modes: Modes) -> np.ndarray:
    """Return what a replica costs to hold, (C,); the paper's weights are paid per route, not per replica."""
    if modes.storage == "paper":
        return np.maximum(0.0, snapshot.hold_usd - _model_usd(snapshot))
    return np.array(snapshot.hold_usd)


def most_saved_usd(
    unserved_usd: np.ndarray, usd: np.ndarray, delay: np.ndarray, error: np.ndarray, slo: str
) -> np.ndarray:
    """Return the most that each pair saves by carrying a whole workload, against not serving it, (I, C).

    A route within its SLOs makes room for others beyond them. With elastic SLOs what that is worth is known; where
    the mean is over what is served, it may be worth anything.

    Parameters
    ----------
    unserved_usd : ndarray, shape (I,)
        Of the whole workload.
    usd, delay, error : ndarray, shape (I, C)
        As in `PlacementProblem`.
    slo : str
        As in `Modes`.

    Examples
    --------
    >>> one = np.ones((1, 1))
    >>> [most_saved_usd(np.array([10.0]), one, 0.5 * one, 2.0 * one, slo).item() for slo in ("elastic", "mean")]
    [14.0, 9.0]
    """
    if slo == "served-mean":
        return np.full_like(usd, np.inf)
    room = np.zeros_like(usd)
    if slo == "elastic":
        room = np.maximum(0.0, 1.0 - delay) + np.maximum(0.0, 1.0 - error)
    return np.maximum(0.0, unserved_usd[:, None] * (1.0 + room) - usd)


def _loads(snapshot: Snapshot, modes: Modes) -> np.ndarray:
    """Return the loads of whole workloads in replicas, (3, I, C); infinite where there is no capacity."""
    rate = snapshot.rate_rps[:, None]
    pairs = (
        (rate * snapshot.work_tflop, snapshot.compute_tflops),
        ((rate if modes.kv == "littles-law" else 1.0) * snapshot.kv_gb_s, snapshot.kv_capacity_gb),
        (rate * snapshot.service_s, snapshot.max_concurrency),
    )
    load = np.zeros((3, *snapshot.delay_s.shape))
    for k, (need, capacity) in enumerate(pairs):
        np.divide(need, capacity, out=load[k], where=capacity > 0)
        load[k][(need > 0) & (capacity <= 0)] = np.inf
    return load


def _most(load: np.ndarray, servers: np.ndarray) -> np.ndarray:
    """Return the largest share of each workload that one replica has room for, (I, C)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.array([1.0 / load[COMPUTE], 1.0 / load[MEMORY], servers / load[SERVERS]])
    room[np.isnan(room)] = np.inf  # nothing needed of nothing
    return room.min(axis=0)


def _limit(delay: np.ndarray, error: np.ndarray, slo: str) -> np.ndarray:
    """Return the largest share that the SLOs can leave to each pair, (I, C)."""
    if slo == "served-mean":
        return np.ones_like(delay)
    if slo == "per-route":
        return np.where(delay > 1.0, 0.0, 1.0 / np.maximum(1.0, error))
    # Elastic: an excess of more than 100 % costs more than serving nothing, and the rest can make up for at most 100 %.
    offset = 2.0 if slo == "elastic" else 1.0
    return np.minimum(1.0, offset / np.maximum(1.0, np.maximum(delay, error)))


def _options(snapshot: Snapshot, modes: Modes) -> Options:
    """Return the ways to run each configuration: runs of replica counts over which everything is linear."""
    segments, rows = snapshot.segments, []
    hold_usd = _hold_usd(snapshot, modes)
    for c in range(snapshot.hold_usd.size):
        offset, top = int(segments.offsets[c]), int(snapshot.max_replicas[c])
        safe = segments.safe_utilization[offset : offset + top]
        width = segments.width[offset : offset + top] / snapshot.max_concurrency[c]
        slope = segments.slope_usd[offset : offset + top] * snapshot.max_concurrency[c]
        if modes.late == "omit":
            safe = safe + width.sum(axis=1) / np.arange(1, top + 1)
        if modes.late != "segments":
            width, slope = np.zeros_like(width), np.zeros_like(slope)
        running = int(snapshot.fleet[c])
        fee = modes.switch_weight * float(snapshot.startup_usd[c])
        for low, high in _runs(safe, width, running if fee > 0 else 0):
            new = high > running
            fixed, each = (-fee * running, fee) if new else (0.0, 0.0)
            rows.append(
                (c, low, high, safe[low - 1], fixed, each + hold_usd[c], *width[low - 1], *slope[low - 1])
            )
    table = np.array(rows, dtype=float).reshape(-1, 12)
    whole = table[:, :3].astype(np.int64)
    return Options(
        column=whole[:, 0],
        low=whole[:, 1],
        high=whole[:, 2],
        servers=table[:, 3],
        fixed_usd=table[:, 4],
        replica_usd=table[:, 5],
        width=table[:, 6:9],
        slope_usd=table[:, 9:12],
    )


def _runs(safe: np.ndarray, width: np.ndarray, running: int) -> list[tuple[int, int]]:
    """Return (first, last) replicas of the runs: equal utilisation, no segments, all old or some new."""
    top = safe.size
    if top == 0:
        return []
    ends = np.ones(top, dtype=bool)
    linear = (width == 0.0).all(axis=1)
    ends[:-1] = (np.abs(np.diff(safe)) > 1e-12) | ~(linear[:-1] & linear[1:])
    if 0 < running < top:
        ends[running - 1] = True
    last = np.flatnonzero(ends) + 1
    return list(zip(np.concatenate(([0], last[:-1])) + 1, last, strict=True))


def _useful(problem: PlacementProblem, allowed: np.ndarray | None) -> np.ndarray:
    """Return which columns may be used, fit the limits with one replica, and can serve something, (C,) bool."""
    keep = problem.open.any(axis=0) | (problem.left_out_usd > problem.hold_usd)
    keep &= within(problem.hold_usd, problem.budget_usd)
    keep &= (problem.gpus <= problem.available[:, None]).all(axis=0)
    if problem.modes.storage == "deployed":
        keep &= within(problem.model_usd, problem.storage_usd)
    keep &= problem.max_replicas > 0
    return keep if allowed is None else keep & allowed


def within(usd: np.ndarray, limit: float) -> np.ndarray:
    """Tell which sums of money keep a limit, with the tolerance that admission has."""
    return usd <= limit + 1e-9 * max(1.0, limit) if np.isfinite(limit) else np.full(np.shape(usd), True)
