"""Evaluate a fixed plan on perturbed scenarios (FastLLM's P_a)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.agents.arguments import is_number, one_of, whole_at_least
from fleetgym.files.errors import FleetgymError
from fleetgym.files.schema import shown
from fleetgym.kernels.routing import route
from fleetgym.kernels.routing_workload import new_basis, new_workspace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, load_instance
from fleetgym.model.planning import Plan
from fleetgym.model.window import window_model

#: Which pairs may carry demand in the second stage, and how its SLO rows read.
ROUTES = ("frozen", "deployed")
SLO = ("mean", "elastic")
#: Cost terms of the second stage: FastLLM's C1, C2, C3, C4, the price of SLO excesses, C5.
TERMS = ("rental", "model_storage", "data_storage", "delay", "slo", "unserved")
#: A workload counts as violated if it misses more than this share (section 4.2).
VIOLATION = 0.01

_STREAM = 0x74776F73  # so that no other draw of the project shares these numbers
_HARD = 2.0  # any price of an excess above that of not serving keeps the hard rows, see `SecondStage`


@dataclasses.dataclass(frozen=True, eq=False)
class Routed:
    """The second stage of S scenarios; I workloads, A active configurations."""

    terms_usd: np.ndarray  # (S, 6) per 24 h, in the order of TERMS
    unserved_share: np.ndarray  # (S, I)
    excess_share: np.ndarray  # (S, I) of the delay and the error SLO together; zero if these are hard
    routing: np.ndarray  # (S, I, A)


class SecondStage:
    """FastLLM's second stage (12): the cheapest routing over a fleet that no longer changes.

    Minimises delay and unserved cost (12a) subject to demand (12b), compute (12c), delay (12d), error (12e) and
    routes (12f). Budget, storage and memory are no rows of (12); the last can be added.

    Parameters
    ----------
    instance : Instance
        The problem.
    plan : Plan
        Its fleet; with frozen routes also its `eligible`.
    routes : {"frozen", "deployed"}
        Pairs that may carry demand: those that the plan opened, z* in (12f), or all compatible pairs of the fleet.
    slo : {"mean", "elastic"}
        ``"mean"``: hard rows ``sum D x <= SLO``, as printed; unserved demand relaxes them, so u = 1 is always
        feasible. ``"elastic"``: the environment's rows, over what is served; an excess costs as much as not serving
        that share.
    memory : bool
        Add KV memory by Little's law (5f), which (12) leaves out.

    Raises
    ------
    FleetgymError
        For an unknown mode, a fleet that is none, or frozen routes of a plan that names none.

    Notes
    -----
    The routing kernel knows elastic rows only. Divided by its SLO, a hard row is ``sum (D/SLO - 1) x <= u``. So the
    unserved share becomes a configuration of its own that costs ``unserved_usd`` and has coefficient -1 in both rows,
    and an excess costs twice what the unserved share costs. This is exact: while a row is exceeded, something
    in it has a positive coefficient, and moving it to the unserved share saves more than it costs.

    Source: Cheng and Nguyen, arXiv:2604.07472, eq. 12.

    Examples
    --------
    >>> import fleetgym, numpy as np
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> stage = SecondStage(instance, fleetgym.Plan(fleet=np.array([0, 0])), routes="deployed")
    >>> stage.solve(np.array([[0.0] * instance.num_workloads])).terms_usd.tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        instance: Instance,
        plan: Plan,
        *,
        routes: str = "frozen",
        slo: str = "mean",
        memory: bool = False,
    ):
        fleet = np.asarray(plan.fleet)
        _check(instance, plan, fleet, routes, slo)
        model = window_model(instance)
        nominal = Conditions.nominal(instance)
        snapshot = model.snapshot(model.initial_state(), nominal)
        self.instance, self.hard = instance, slo == "mean"
        self.active = np.flatnonzero(fleet > 0)
        self._day = 86400.0 / instance.window_s
        self._fixed_usd = self._day * np.array(
            (fleet @ model.rent_usd(nominal.price_factor), fleet @ model.model_storage_usd)
        )
        self._delay_s = snapshot.delay_s[:, self.active]
        self._error = snapshot.error[:, self.active]
        self._work_tflop = snapshot.work_tflop[:, self.active]
        self._kv_gb_s = snapshot.kv_gb_s[:, self.active] * memory
        self._storage_usd = instance.performance.storage_usd[:, self.active]
        self._slo = [
            np.array([[getattr(w, name)] for w in instance.workloads])
            for name in ("mean_delay_slo_s", "error_slo")
        ]
        self._penalty = np.array([(w.delay_usd_per_s, w.unserved_usd) for w in instance.workloads])
        self._allocate(fleet[self.active], snapshot)
        allowed = snapshot.compatible if routes == "deployed" else snapshot.compatible & plan.eligible
        self._allowed[:, : self.active.size] = allowed[:, self.active]

    def _allocate(self, replicas: np.ndarray, snapshot: Any) -> None:
        """Make the kernel's arrays; with hard SLOs the last column is the unserved share."""
        workloads, columns = self._delay_s.shape[0], self.active.size + int(self.hard)
        self._capacity = np.ones((3, columns))
        self._capacity[0, : self.active.size] = snapshot.compute_tflops[self.active] * replicas
        self._capacity[1, : self.active.size] = snapshot.kv_capacity_gb[self.active] * replicas
        self._none = np.zeros((columns, 0))
        self._allowed = np.ones((workloads, columns), dtype=np.uint8)
        self._basis, self._work = new_basis(workloads, columns), new_workspace(workloads, columns)
        self._duals = np.zeros((workloads, 3)), np.zeros((3, columns))

    def solve(
        self,
        rate_rps: np.ndarray,
        delay_factor: np.ndarray | None = None,
        error_factor: np.ndarray | None = None,
    ) -> Routed:
        """Route the demand of S scenarios.

        Parameters
        ----------
        rate_rps : ndarray, shape (S, I)
            Arrivals per second. A workload without any costs nothing and misses nothing.
        delay_factor, error_factor : ndarray, shape (S, I, A), optional
            Multiply delays and errors of each pair; A configurations are active, in the order of `active`.

        Returns
        -------
        Routed
            Costs per 24 h at these rates.
        """
        rate = np.asarray(rate_rps, dtype=float)[:, :, None]
        delay_s = self._delay_s if delay_factor is None else self._delay_s * delay_factor
        error = self._error if error_factor is None else self._error * error_factor
        kv_gb_s = self._kv_gb_s if delay_factor is None else self._kv_gb_s * delay_factor
        weight = self._weight(rate)
        unserved_usd = weight * self._penalty[:, 1]
        delay_usd = (weight * self._penalty[:, 0])[:, :, None] * delay_s
        size, shape = self.active.size, (len(rate), *self._allowed.shape)
        cost, ratio, use = np.empty(shape), -np.ones((2, *shape)), np.zeros((shape[0], 3, *shape[1:]))
        cost[..., :size], cost[..., size:] = delay_usd, unserved_usd[:, :, None]
        ratio[0, ..., :size], ratio[1, ..., :size] = delay_s / self._slo[0] - 1.0, error / self._slo[1] - 1.0
        ratio *= _HARD if self.hard else 1.0
        use[:, 0, :, :size], use[:, 1, :, :size] = rate * self._work_tflop, rate * kv_gb_s
        x, slack = self._route(cost, unserved_usd, ratio, use)
        x = np.maximum(x[..., :size], 0.0)
        present = unserved_usd > 0.0
        unserved = np.where(present, np.clip(1.0 - x.sum(axis=2), 0.0, 1.0), 0.0)
        excess = np.where(present & (not self.hard), slack[..., 1] + slack[..., 2], 0.0)
        stored = rate * self.instance.window_s * self._storage_usd * x
        terms = np.empty((shape[0], len(TERMS)))
        terms[:, :2] = self._fixed_usd
        terms[:, 2] = self._day * stored.sum(axis=(1, 2))
        terms[:, 3] = (delay_usd * x).sum(axis=(1, 2))
        terms[:, 4] = (unserved_usd * excess).sum(axis=1)
        terms[:, 5] = (unserved_usd * unserved).sum(axis=1)
        return Routed(terms, unserved, excess, x)

    def _weight(self, rate: np.ndarray) -> np.ndarray:
        """Return how often penalties are due in 24 h, (S, I)."""
        if self.instance.penalty_basis == "day":
            return (rate[:, :, 0] > 0.0).astype(float)
        return rate[:, :, 0] * 86400.0

    def _route(
        self, cost: np.ndarray, unserved_usd: np.ndarray, ratio: np.ndarray, use: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return shares and slacks; each scenario from a cold basis, so that none depends on the others."""
        x, slack = np.zeros(cost.shape), np.zeros((len(cost), self._allowed.shape[0], 3))
        fixed = (self._capacity, self._none, self._none, self._allowed, self._basis, self._work)
        for k in range(len(cost)):
            self._basis[:2] = 0
            status, _, _ = route(
                *(cost[k], unserved_usd[k], ratio[0, k], ratio[1, k], use[k]),
                *fixed,
                *(x[k], slack[k], self._none, self._duals),
            )
            if status != 0:
                raise RuntimeError(
                    f"the second stage of {self.instance.id!r} was not solved (status {status})"
                )
        return x, slack


def _check(instance: Instance, plan: Plan, fleet: np.ndarray, routes: str, slo: str) -> None:
    one_of(ROUTES, routes=routes)
    one_of(SLO, slo=slo)
    fits = fleet.shape == (instance.num_configurations,) and fleet.dtype.kind in "iuf"
    if not fits or not ((fleet >= 0) & (fleet == np.floor(fleet)) & (fleet < np.inf)).all():
        raise FleetgymError(
            f"expected a fleet of {instance.num_configurations} replica counts, none negative, "
            f"got {shown(fleet.tolist())}"
        )
    if routes == "frozen":
        shape = (instance.num_workloads, instance.num_configurations)
        if plan.eligible is None:
            raise FleetgymError('the plan names no routes (eligible is None); use routes="deployed"')
        if np.shape(plan.eligible) != shape:
            raise FleetgymError(f"eligible has shape {np.shape(plan.eligible)}, expected {shape}")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TwoStage:
    """What a plan costs and misses over scenarios; S scenarios, I workloads. Money is USD per 24 h."""

    routes: str
    slo: str
    stress: float
    seed: int
    terms_usd: np.ndarray  # (S, 6) in the order of TERMS
    unserved_share: np.ndarray  # (S, I)
    excess_share: np.ndarray  # (S, I)

    @property
    def cost_usd(self) -> np.ndarray:
        """Cost of each scenario, (S,)."""
        return self.terms_usd.sum(axis=1)

    @property
    def violation(self) -> np.ndarray:
        """Share of the workloads of each scenario that miss more than 1 %, (S,)."""
        return np.mean(self.unserved_share + self.excess_share > VIOLATION, axis=1)

    def summary(self) -> dict[str, Any]:
        """Return mean and 95 % interval (normal, over scenarios) of cost and violation rate, and mean terms.

        Returns
        -------
        dict
            ``scenarios``; ``cost_usd``, ``violation_rate`` and ``unserved_share`` with ``mean`` and ``interval``
            each; ``terms_usd`` by name. The mean cost is the paper's C^a, the violation rate its P_viol.
        """
        series = {
            "cost_usd": self.cost_usd,
            "violation_rate": self.violation,
            "unserved_share": self.unserved_share.mean(axis=1),
        }
        means = zip(TERMS, self.terms_usd.mean(axis=0), strict=True)
        return {
            "scenarios": len(self.terms_usd),
            **{name: _measures(values) for name, values in series.items()},
            "terms_usd": {name: float(usd) for name, usd in means},
        }


def _measures(values: np.ndarray) -> Mapping[str, Any]:
    mean = float(values.mean())
    half = 1.96 * float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else math.nan
    return {"mean": mean, "interval": (mean - half, mean + half)}


def two_stage_evaluate(
    instance: InstanceSource,
    plan: Plan,
    *,
    scenarios: int = 500,
    seed: int = 0,
    stress: float = 1.0,
    routes: str = "frozen",
    slo: str = "mean",
    memory: bool = False,
    delay_spread: float = 0.25,
    error_spread: float = 0.25,
    arrival_spread: float = 0.2,
) -> TwoStage:
    """Judge a plan out of sample, as FastLLM does: the fleet is fixed, then each scenario is routed at least cost.

    Every scenario draws arrivals per workload, and delays and errors per workload and slot (the paper's model and
    tier), uniformly within the spreads. Scenario k of a seed is the same for every plan.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    plan : Plan
        The first stage's answer.
    scenarios : int
        S.
    seed : int
        Of the scenarios.
    stress : float
        Multiplies all delays and errors.
    routes, slo, memory
        See `SecondStage`.
    delay_spread, error_spread, arrival_spread : float
        Half widths, from 0 to below 1.

    Returns
    -------
    TwoStage
        Costs, unserved shares and violations per scenario.

    Raises
    ------
    FleetgymError
        As `SecondStage`; also for fewer than one scenario, or a spread or stress out of range.

    Notes
    -----
    Source: Cheng and Nguyen, arXiv:2604.07472, section 4.2 and eq. 12.

    Examples
    --------
    >>> import fleetgym, numpy as np
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> plan = fleetgym.Plan(fleet=np.array([2, 0]))
    >>> found = two_stage_evaluate(instance, plan, scenarios=20, routes="deployed")
    >>> sorted(found.summary())
    ['cost_usd', 'scenarios', 'terms_usd', 'unserved_share', 'violation_rate']
    """
    instance = load_instance(instance)
    spreads = (delay_spread, error_spread, arrival_spread)
    whole_at_least(1, scenarios=scenarios)
    whole_at_least(0, seed=seed)
    if not (is_number(stress) and 0.0 < stress < math.inf):
        raise FleetgymError(f"stress is {stress!r}; expected a finite number above 0")
    if not all(is_number(spread) and 0.0 <= spread < 1.0 for spread in spreads):
        raise FleetgymError(f"expected spreads from 0 to below 1, got {spreads}")
    stage = SecondStage(instance, plan, routes=routes, slo=slo, memory=memory)
    rate = np.array([w.rate_rps for w in instance.workloads])
    slot = np.empty(instance.num_configurations, dtype=np.int64)
    for s, members in enumerate(instance.slot_members):
        slot[list(members)] = s
    arrivals, delay, error = _factors(seed, scenarios, rate.size, len(instance.slots), spreads)
    pairs = slot[stage.active]
    routed = stage.solve(rate * arrivals, stress * delay[:, :, pairs], stress * error[:, :, pairs])
    return TwoStage(
        routes=routes,
        slo=slo,
        stress=stress,
        seed=seed,
        terms_usd=routed.terms_usd,
        unserved_share=routed.unserved_share,
        excess_share=routed.excess_share,
    )


@functools.lru_cache(maxsize=2)
def _factors(
    seed: int, scenarios: int, workloads: int, slots: int, spreads: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return factors on arrivals, (S, I), and on delays and errors, (S, I, slots) each."""
    draws = np.empty((scenarios, workloads * (1 + 2 * slots)))
    for k in range(scenarios):
        draws[k] = np.random.default_rng([_STREAM, seed, k]).uniform(-1.0, 1.0, draws.shape[1])
    pairs = draws[:, workloads:].reshape(scenarios, 2, workloads, slots)
    delay_spread, error_spread, arrival_spread = spreads
    return (
        1.0 + arrival_spread * draws[:, :workloads],
        1.0 + delay_spread * pairs[:, 0],
        1.0 + error_spread * pairs[:, 1],
    )
