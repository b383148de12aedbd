"""Solve Mélange's integer program: the cheapest GPUs for request rates by bucket and throughputs by GPU type.

Griggs et al., "Mélange: Cost Efficient Large Language Model Serving by Exploiting GPU Heterogeneity",
arXiv:2404.14527. Requests fall into buckets by size; a bucket is cut into slices, and a slice that goes to a GPU
type loads it with its rate over the type's throughput on the bucket. Loads are covered by whole GPUs at least cost.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym import FleetgymError
from fleetgym.planning import LinearProgram


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """S buckets of requests, and what G GPU types do to them.

    Parameters
    ----------
    rate_rps : (S,) ndarray
        Requests/s of each bucket.
    throughput_rps : (S, G) ndarray
        Most requests/s of one GPU on the bucket alone within the SLO; 0 where it cannot.
    cost_usd_per_h : (G,) ndarray
        Price of one GPU.
    names : tuple of str
        GPU types.
    slices : int
        Slices of each bucket (the slice factor).

    Raises
    ------
    FleetgymError
        For shapes that do not fit, or negative numbers.
    """

    rate_rps: np.ndarray
    throughput_rps: np.ndarray
    cost_usd_per_h: np.ndarray
    names: tuple[str, ...]
    slices: int = 8

    def __post_init__(self) -> None:
        shape = (np.size(self.rate_rps), len(self.names))
        if np.shape(self.throughput_rps) != shape:
            raise FleetgymError(
                f"throughput_rps has shape {np.shape(self.throughput_rps)}; expected {shape}: buckets, GPU types"
            )
        if np.shape(self.cost_usd_per_h) != (shape[1],):
            raise FleetgymError(
                f"cost_usd_per_h has shape {np.shape(self.cost_usd_per_h)}; expected ({shape[1]},)"
            )
        for name in ("rate_rps", "throughput_rps", "cost_usd_per_h"):
            if not np.all(np.asarray(getattr(self, name)) >= 0):
                raise FleetgymError(f"{name} has a negative number or none; expected at least 0")
        if self.slices < 1:
            raise FleetgymError(f"slices is {self.slices}; expected at least 1")

    @property
    def load(self) -> np.ndarray:
        """GPUs that one slice of each bucket occupies, (S, G); inf where the throughput is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            load = (self.rate_rps / self.slices)[:, None] / self.throughput_rps
        return np.where(self.throughput_rps > 0, load, np.inf)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What the environment adds to the program; none of it is in the original.

    Parameters
    ----------
    gpu_use : (N, G) ndarray
        GPUs of each pool that one copy takes.
    available_gpus : (N,) ndarray
        Most GPUs of each pool.
    budget_usd_per_h : float
        Most that all may cost, in the unit of the costs.
    most : (G,) ndarray
        Most copies.
    groups : tuple of tuple of int
        At most one copy of each.
    unserved_usd : (S,) ndarray
        Cost of leaving a bucket unserved, in the unit of the costs, by the slice.
    """

    gpu_use: np.ndarray
    available_gpus: np.ndarray
    budget_usd_per_h: float
    most: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    unserved_usd: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """GPUs by type, and where each bucket's slices go.

    Parameters
    ----------
    count : (G,) ndarray of int64
        GPUs of each type.
    slices : (S, G) ndarray of int64
        Slices of each bucket on each type.
    cost_usd_per_h : float
        Of the GPUs.
    """

    count: np.ndarray
    slices: np.ndarray
    cost_usd_per_h: float


def allocate(
    workload: Workload, limits: Limits | None = None, *, gap: float = 0.0, nodes: int | None = None
) -> Allocation | None:
    """Return the cheapest allocation, with one integer per bucket and GPU type.

    The published program has a binary per slice and GPU type. Slices of one bucket are identical, so only their number
    on each type matters: the optimum is the same, and the program does not grow with the slice factor.

    Parameters
    ----------
    workload : Workload
        S buckets, G GPU types.
    limits : Limits, optional
        Availability, budget and the price of not serving; None: the original's unlimited cloud.
    gap : float
        Relative gap at which to stop.
    nodes : int, optional
        Most branch-and-bound nodes.

    Returns
    -------
    Allocation or None
        None if some bucket has requests and no GPU type that serves it.

    Examples
    --------
    >>> workload = Workload(
    ...     rate_rps=np.array([6.0, 3.0, 15.0, 6.0]),
    ...     throughput_rps=np.array([[2, 20], [1, 20], [5, 40], [2, 20]]),
    ...     cost_usd_per_h=np.array([1.01, 3.67]),
    ...     names=("A10G", "A100-80GB"),
    ...     slices=2,
    ... )
    >>> found = allocate(workload)
    >>> found.count.tolist(), round(found.cost_usd_per_h, 2)
    ([2, 1], 5.69)
    """
    if limits is None and not _is_servable(workload):
        return None
    present = np.flatnonzero(workload.rate_rps > 0)
    bucket, gpu = np.nonzero(np.isfinite(workload.load[present]))
    program = LinearProgram()
    put = program.columns(np.zeros(bucket.size), workload.slices, whole=True)
    count = _counts(program, workload, limits)
    entries = [(bucket, put, 1.0)]
    if limits is not None:
        left = program.columns(limits.unserved_usd[present] / workload.slices, workload.slices)
        entries.append((np.arange(present.size), left, 1.0))
    program.rows(present.size, entries, low=workload.slices, high=workload.slices)
    load = workload.load[present][bucket, gpu]
    program.rows(count.size, [(gpu, put, load), (np.arange(count.size), count, -1.0)], high=0.0)
    answer = _solve(program, gap, nodes)
    slices = np.zeros(workload.load.shape, dtype=np.int64)
    if answer is None:
        return _allocation(workload, np.zeros(count.size), slices)
    slices[present[bucket], gpu] = np.round(answer[put])
    return _allocation(workload, answer[count], slices)


def _is_servable(workload: Workload) -> bool:
    return bool(np.isfinite(workload.load).any(axis=1)[workload.rate_rps > 0].all())


def _counts(program: LinearProgram, workload: Workload, limits: Limits | None) -> np.ndarray:
    """Add the counts of GPUs, and the rows that limit them."""
    if limits is None:
        return program.columns(workload.cost_usd_per_h, np.inf, whole=True)
    count = program.columns(workload.cost_usd_per_h, limits.most, whole=True)
    pool, used = np.nonzero(limits.gpu_use)
    use = limits.gpu_use[pool, used]
    program.rows(limits.available_gpus.size, [(pool, count[used], use)], high=limits.available_gpus)
    if np.isfinite(limits.budget_usd_per_h):
        program.rows(1, [(0, count, workload.cost_usd_per_h)], high=limits.budget_usd_per_h)
    for group in limits.groups:
        program.rows(1, [(0, count[list(group)], 1.0)], high=1.0)
    return count


def _solve(program: LinearProgram, gap: float, nodes: int | None) -> np.ndarray | None:
    options: dict[str, float] = {"mip_rel_gap": gap}
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    return program.solve(options).values


def _allocation(workload: Workload, count: np.ndarray, slices: np.ndarray) -> Allocation:
    whole = np.round(count).astype(np.int64)
    return Allocation(count=whole, slices=slices, cost_usd_per_h=float(whole @ workload.cost_usd_per_h))
