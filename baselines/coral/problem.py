"""Define Coral's online program: templates, prices, availability, demand and running replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import FleetgymError

#: Availability may be exceeded by this much: it need not be whole numbers.
ROUND_OFF = 1e-7


@dataclasses.dataclass(frozen=True, eq=False)
class Running:
    """Replicas that run: one entry per template and region."""

    template: np.ndarray  # (P,) int
    region: np.ndarray  # (P,) int
    count: np.ndarray  # (P,) int

    @classmethod
    def none(cls) -> Running:
        """Return an empty cluster."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CoveringProblem:
    """One epoch of Coral's online resource allocation (section 4.3).

    Each *row* is a demand to cover: a (model, phase), or a model whose replicas serve both phases. The cost to
    minimise is the rent of all replicas, plus `startup_ratio` times the rent of those that are new. What cannot be
    covered costs `unserved_usd_per_h`, so that every problem has a solution.

    Parameters
    ----------
    use : (N, K) array
        Nodes of each type that one replica of a template takes; anything else that is limited may be a type too.
    throughput_rps : (N,) array
        Requests per second of one replica.
    row : (N,) int array
        Which demand a template covers.
    price_usd_per_h : (R, K) array
        Price of a node by region.
    available : (R, K) array
        Nodes that may be held.
    demand_rps : (M,) array
        Requests per second to cover.
    running : Running
        Replicas that need no start.
    startup_ratio : float
        Coral's K: time to start a node / time between allocations.
    unserved_usd_per_h : float
        Cost of leaving all of one row uncovered; large, so that the least is left before cost counts.

    Raises
    ------
    FleetgymError
        For arrays whose shapes do not fit, rows or regions that do not exist, or negative numbers.
    """

    use: np.ndarray
    throughput_rps: np.ndarray
    row: np.ndarray
    price_usd_per_h: np.ndarray
    available: np.ndarray
    demand_rps: np.ndarray
    running: Running = dataclasses.field(default_factory=Running.none)
    startup_ratio: float = 0.1
    unserved_usd_per_h: float = 1e6

    def __post_init__(self) -> None:
        number, kinds = np.shape(self.use)
        regions = len(self.price_usd_per_h)
        shapes = {
            "throughput_rps": (number,),
            "row": (number,),
            "price_usd_per_h": (regions, kinds),
            "available": (regions, kinds),
        }
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                raise FleetgymError(f"{name} has shape {np.shape(getattr(self, name))}; expected {shape}")
        for name in ("use", "throughput_rps", "price_usd_per_h", "available", "demand_rps"):
            if not np.all(np.asarray(getattr(self, name)) >= 0):
                raise FleetgymError(f"{name} has a negative number or none; expected at least 0")
        known = {"row": (self.row, self.demand_rps.size), "running.template": (self.running.template, number)}
        known["running.region"] = (self.running.region, regions)
        for name, (index, size) in known.items():
            if np.any((index < 0) | (index >= size)):
                raise FleetgymError(f"{name} has an index out of range; expected 0 to {size - 1}")

    @property
    def share(self) -> np.ndarray:
        """The share of its row's demand that one replica covers, at most 1: (N,). 1 where there is no demand."""
        demand = self.demand_rps[self.row]
        return np.minimum(1.0, self.throughput_rps / np.where(demand > 0.0, demand, 1e-300))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Allocation:
    """Replicas to run, and what is known about them; money in USD per hour."""

    template: np.ndarray  # (P,) int
    region: np.ndarray  # (P,) int
    count: np.ndarray  # (P,) int
    rent_usd_per_h: float
    startup_usd_per_h: float  # penalty on new replicas
    unserved: np.ndarray  # (M,) share of each demand
    bound_usd_per_h: float = -np.inf  # no allocation costs less, unserved demand included
    status: str = "feasible"  # or "optimal"
    diagnostics: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def cost_usd_per_h(self) -> float:
        """Rent and start-up penalty: the paper's objective."""
        return self.rent_usd_per_h + self.startup_usd_per_h

    def objective_usd_per_h(self, problem: CoveringProblem) -> float:
        """Return the cost with the price of unserved demand."""
        return self.cost_usd_per_h + problem.unserved_usd_per_h * float(self.unserved.sum())

    def gap(self, problem: CoveringProblem) -> float:
        """Return how far the objective is above the bound, as a share of the objective."""
        objective = self.objective_usd_per_h(problem)
        return float(max(0.0, objective - self.bound_usd_per_h) / max(objective, 1e-12))

    @property
    def running(self) -> Running:
        """What runs when this allocation has been carried out."""
        return Running(self.template, self.region, self.count)


def evaluate(
    problem: CoveringProblem, template: np.ndarray, region: np.ndarray, count: np.ndarray, **known: Any
) -> Allocation:
    """Return the allocation of some replicas with its cost and what it leaves unserved.

    Parameters
    ----------
    problem : CoveringProblem
        The epoch.
    template, region, count : (P,) int arrays
        Replicas; an entry may repeat a (template, region).
    **known
        Further fields of `Allocation`.

    Raises
    ------
    FleetgymError
        If it holds more nodes than are available.
    """
    template, region, count = (np.asarray(a, dtype=np.int64) for a in (template, region, count))
    regions = problem.price_usd_per_h.shape[0]
    key, inverse = np.unique(template * regions + region, return_inverse=True)
    count = np.bincount(inverse, weights=count, minlength=key.size).astype(np.int64)
    template, region, count = key[count > 0] // regions, key[count > 0] % regions, count[count > 0]
    held = np.zeros(problem.available.shape)
    np.add.at(held, region, problem.use[template].astype(float) * count[:, None])
    beyond = np.argwhere(held > problem.available * (1.0 + ROUND_OFF) + ROUND_OFF)
    if beyond.size:
        r, k = beyond[0]
        raise FleetgymError(
            f"{held[r, k]:g} nodes of type {k} are held in region {r}, beyond availability: "
            f"expected at most {problem.available[r, k]:g}"
        )
    rent = np.einsum("pk,pk->p", problem.price_usd_per_h[region], problem.use[template].astype(float))
    ran = dict(
        zip(
            (problem.running.template * regions + problem.running.region).tolist(),
            problem.running.count.tolist(),
            strict=True,
        )
    )
    kept = np.array([ran.get(k, 0) for k in (template * regions + region).tolist()], dtype=np.int64)
    new = np.maximum(0, count - kept)
    served = np.bincount(
        problem.row[template], problem.throughput_rps[template] * count, minlength=problem.demand_rps.size
    )
    demand = problem.demand_rps
    unserved = np.where(
        demand > 0.0, np.maximum(0.0, 1.0 - served / np.where(demand > 0.0, demand, 1.0)), 0.0
    )
    return Allocation(
        template=template,
        region=region,
        count=count,
        rent_usd_per_h=float(rent @ count),
        startup_usd_per_h=float(problem.startup_ratio * (rent @ new)),
        unserved=np.where(unserved < 1e-9, 0.0, unserved),
        **known,
    )
