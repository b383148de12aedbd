"""Define Jiang's scheduling problem as arrays, with its checks and pruning.

Source: Jiang et al., "Demystifying Cost-Efficiency in LLM Serving over Heterogeneous GPUs", ICML 2025,
section 4.3. Several models need nothing more (its (8) to (12)): a configuration has one model, and its rate is
zero on the workloads of another.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym import FleetgymError

from .assignment import best_assignment


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MakespanProblem:
    """Rent replicas so that all requests, which lie ready at once, are done as soon as possible.

    W workloads, C configurations, N GPU types.

    Parameters
    ----------
    requests : (W,) ndarray
        Requests of each workload, f.
    rate_rps : (W, C) ndarray
        Requests/s of one replica that works on this workload alone, h; 0 where it cannot.
    gpu_use : (N, C) ndarray of int
        GPUs of one replica, d.
    price_usd_per_h : (C,) ndarray
        What one replica costs, o.
    available_gpus : (N,) ndarray
        Most GPUs of each type, a.
    budget_usd_per_h : float
        Most that the fleet may cost, B; inf for no budget.
    max_replicas : (C,) ndarray of int, optional
        Most replicas of each configuration; by default as many as the GPUs allow.
    groups : tuple of tuple of int
        Sets of configurations of which one replica at most may be rented (FastLLM's exclusive slots).

    Raises
    ------
    FleetgymError
        For arrays whose shapes do not fit, or negative numbers.
    """

    requests: np.ndarray
    rate_rps: np.ndarray
    gpu_use: np.ndarray
    price_usd_per_h: np.ndarray
    available_gpus: np.ndarray
    budget_usd_per_h: float = np.inf
    max_replicas: np.ndarray | None = None
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        workloads, count = np.shape(self.rate_rps)
        shapes = {
            "requests": (workloads,),
            "gpu_use": (len(self.available_gpus), count),
            "price_usd_per_h": (count,),
        }
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                raise FleetgymError(f"{name} has shape {np.shape(getattr(self, name))}; expected {shape}")
        for name in (*shapes, "rate_rps", "available_gpus", "budget_usd_per_h"):
            if not np.all(np.asarray(getattr(self, name)) >= 0):
                raise FleetgymError(f"{name} has a negative number or none; expected at least 0")

    @property
    def busy_s(self) -> np.ndarray:
        """Seconds of one replica per request, 1/h, (W, C); inf where it cannot serve the workload."""
        with np.errstate(divide="ignore"):
            return 1.0 / self.rate_rps

    @property
    def most(self) -> np.ndarray:
        """Most replicas of each configuration that GPUs, budget and `max_replicas` allow: int64 (C,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rooms = np.where(self.gpu_use > 0, self.available_gpus[:, None] // self.gpu_use, np.inf)
            money = np.floor(self.budget_usd_per_h * (1 + 1e-9) / self.price_usd_per_h)
            money = np.where(self.price_usd_per_h > 0, money, np.inf)
        fits = np.minimum(rooms.min(axis=0, initial=np.inf), money)
        if self.max_replicas is not None:
            fits = np.minimum(fits, self.max_replicas)
        return np.minimum(fits, 10**6).astype(np.int64)

    def replace(self, **changes: object) -> MakespanProblem:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def keep(self, configurations: np.ndarray) -> MakespanProblem:
        """Return the problem with some of the configurations only, given as indices or as a mask."""
        index = np.arange(self.price_usd_per_h.size)[configurations]
        place = {int(c): k for k, c in enumerate(index)}
        return self.replace(
            rate_rps=self.rate_rps[:, index],
            gpu_use=self.gpu_use[:, index],
            price_usd_per_h=self.price_usd_per_h[index],
            max_replicas=None if self.max_replicas is None else self.max_replicas[index],
            groups=tuple(tuple(place[c] for c in group if c in place) for group in self.groups),
        )

    def is_feasible(self, replicas: np.ndarray) -> bool:
        """Return whether a fleet keeps budget, availability, `max_replicas` and groups."""
        money = 1e-9 * max(1.0, self.budget_usd_per_h) if np.isfinite(self.budget_usd_per_h) else 0.0
        return bool(
            np.all(self.gpu_use @ replicas <= self.available_gpus)
            and self.price_usd_per_h @ replicas <= self.budget_usd_per_h + money
            and (self.max_replicas is None or np.all(replicas <= self.max_replicas))
            and all(replicas[list(group)].sum() <= 1 for group in self.groups)
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MakespanPlan:
    """A fleet and who serves what.

    Parameters
    ----------
    replicas : (C,) ndarray of int64
        The fleet, y.
    assignment : (W, C) ndarray
        Share of each workload on each configuration, x.
    makespan_s : float
        Recomputed for the fleet by `best_assignment`; inf if not all is served.
    bound_s : float
        No fleet is faster; 0 if nothing is known.
    nodes, checks : int
        Branch-and-bound nodes, and feasibility checks of the binary search.
    """

    replicas: np.ndarray
    assignment: np.ndarray
    makespan_s: float
    bound_s: float = 0.0
    nodes: int = 0
    checks: int = 0

    def throughput_rps(self, problem: MakespanProblem) -> float:
        """Return requests over makespan: what the paper's figures show."""
        return float(problem.requests.sum() / self.makespan_s)


def plan_of(problem: MakespanProblem, replicas: np.ndarray, **facts: float) -> MakespanPlan:
    """Return the plan that assigns the requests best to a given fleet; `facts` are fields of `MakespanPlan`."""
    makespan_s, assignment = best_assignment(problem.requests, problem.busy_s, replicas)
    return MakespanPlan(
        replicas=np.asarray(replicas, dtype=np.int64),
        assignment=assignment,
        makespan_s=makespan_s,
        **facts,  # type: ignore[arg-type]
    )


def shortest_s(problem: MakespanProblem) -> float:
    """Return a lower bound on the makespan: every workload alone on as many replicas as GPUs and money allow.

    The paper takes infinitely many GPUs, which bounds nothing.
    """
    with np.errstate(divide="ignore"):
        best = (problem.rate_rps * problem.most).sum(axis=1)
    served = problem.requests > 0
    return float(np.max(problem.requests[served] / np.maximum(best[served], 1e-300), initial=0.0))


def longest_s(problem: MakespanProblem) -> float:
    """Return the paper's upper bound on the makespan: one replica of the slowest configuration for each workload."""
    usable = np.where((problem.rate_rps > 0) & (problem.most > 0), problem.rate_rps, np.inf)
    slowest = usable.min(axis=1, initial=np.inf)
    return float(np.sum(problem.requests / slowest))


def superfluous(problem: MakespanProblem) -> np.ndarray:
    """Return which configurations can be dropped without making the best makespan longer.

    Jiang prunes "clearly dominated" configurations (appendix G) and does not say which. Here configuration c goes if
    one other, or two others (which may be equal) together, take no more GPUs of any type and no more money, and are
    at least as fast on every workload: in any fleet they can take the place of c with c's assignment. Of equals the
    first stays. Configurations with a `max_replicas` or in a group are kept, and never stand in.

    Parameters
    ----------
    problem : MakespanProblem
        W workloads, C configurations.

    Returns
    -------
    (C,) ndarray of bool
        True where a configuration is superfluous.
    """
    count = problem.price_usd_per_h.size
    free = np.ones(count, dtype=bool) if problem.max_replicas is None else np.zeros(count, dtype=bool)
    for group in problem.groups:
        free[list(group)] = False
    use = np.vstack([problem.gpu_use, problem.price_usd_per_h[None]]).T.astype(float)
    rate = problem.rate_rps.T
    out = np.zeros(count, dtype=bool)
    order = np.lexsort((np.arange(count), problem.gpu_use.sum(axis=0)))
    kept: list[int] = []
    for c in order[free[order]]:
        if not rate[c].any() or _replaceable(use[c], rate[c], use[kept], rate[kept]):
            out[c] = True
            continue
        fast = np.array(kept, dtype=int)
        covered = np.all(use[fast] >= use[c] - 1e-12, axis=1) & np.all(rate[fast] <= rate[c], axis=1)
        out[fast[covered]] = True  # same GPUs, met earlier
        kept = [k for k in kept if not out[k]] + [int(c)]
    return out


def _replaceable(use: np.ndarray, rate: np.ndarray, others: np.ndarray, rates: np.ndarray) -> bool:
    """Return whether one or two of the others take at most `use` and give at least `rate`."""
    fits = np.all(others <= use + 1e-12, axis=1)
    if np.any(np.all(rates[fits] >= rate, axis=1)):
        return True
    left, missing = use - others[fits], rate - rates[fits]
    for k in range(int(fits.sum())):
        second = np.all(others[fits] <= left[k] + 1e-12, axis=1)
        if np.any(np.all(rates[fits][second] >= missing[k], axis=1)):
            return True
    return False
