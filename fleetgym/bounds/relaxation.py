"""Relax an instance and a scenario: the least cost of every window, and how fleets change.

**A window.** With S_c serving replicas, operating costs at least the minimum over *all* routings of

    Σ_ic cost_ic x_ic + Σ_i p_i (u_i + s_i + s'_i) + Σ_c late_c
    s.t.  Σ_c x_ic + u_i = 1,   Σ_c (D-Δ)/Δ x_ic ≤ s_i,   Σ_c (e-ε)/ε x_ic ≤ s'_i
          Σ_i need_kic x_ic ≤ S_c  (k: compute, KV, 0.95 of the queue servers),   x_ic ≤ S_c
          Σ_i need_ic x_ic ≤ S_c + late_c / price_c  (`fleetgym.bounds.late`)

in the notation of the model page, section 4. The router's own objective has two more terms, the late-cost segments and
the tie-break. Both are prices that steer, not money that is charged, so both are left out; the limit on the queue
servers that the segments imply is kept. x_ic ≤ S_c holds because replicas are whole. Late requests whose prefill alone
exceeds the SLO are in cost_ic. All other late penalties are not linear: late_c bounds them from below.

**Between windows.** Serving replicas that were not serving in the window before were granted `startup_windows` earlier,
paid their fee and, while they started, their rent; they held GPUs all the time. In window 0 the nominal fleet serves,
and grants serve at once. Held GPUs never exceed the availability, nor what is held a budget. Relaxed: draining
replicas may stop whenever they like, cancelled and lost replicas cost nothing.

An exclusive slot runs or starts one of its configurations at a time, while others may drain for up to the longest
start-up of the instance, K windows, and be taken back. If K exceeds the start-up of a member, two members can take
turns in draining and serve side by side for ever, so that a valid bound must treat them as independent. Only otherwise
the slot counts as exclusive here.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from fleetgym.bounds.late import Queues, late_row, queues_of
from fleetgym.kernels.admission import MONEY_TOLERANCE
from fleetgym.kernels.queueing import U_MAX
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Snapshot
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import window_model

#: Limits are widened by this share: the environment's routing and admission keep them up to round-off.
WIDENING = MONEY_TOLERANCE
#: Number of first rows of a window that are capacities; the others may be violated at a cost.
HARD = 3


@dataclasses.dataclass(frozen=True, eq=False)
class WindowRelaxation:
    """One window's routing relaxation; m workloads are present. Money is USD of the window."""

    route_usd: np.ndarray  # (m, C) cost of routing all of a workload there
    delay_excess: np.ndarray  # (m, C) (D - Δ) / Δ
    error_excess: np.ndarray  # (m, C)
    need: np.ndarray  # (R, m, C) replicas that all of a workload takes: compute, KV, queue servers, late
    missing_usd: np.ndarray  # (R, C) of a replica less than that; inf where there must be none
    is_open: np.ndarray  # (m, C) bool: the route exists
    unserved_usd: np.ndarray  # (m,) p_i
    hold_usd: np.ndarray  # (C,) of one replica
    most: np.ndarray  # (C,) replicas that may serve
    available_gpus: np.ndarray  # (G,)
    lossy_use: np.ndarray  # (L, C) GPUs of a replica in the pools whose losses come after the fleet is chosen
    lossy_gpus: np.ndarray  # (L,) that are left there
    queues: Queues  # what rows for late requests follow from

    @property
    def late_usd(self) -> np.ndarray:
        """What a unit of a configuration's late cost is in programs, USD: a missing replica, (C,)."""
        return np.where(np.isfinite(self.missing_usd[HARD]), self.missing_usd[HARD], 1.0)

    @property
    def is_lossy(self) -> bool:
        """Whether less may serve than is routed to."""
        return self.lossy_gpus.size > 0

    @property
    def is_tight(self) -> np.ndarray:
        """Whether x ≤ S says more than the capacity rows, (m, C)."""
        return self.is_open & (self.need[:HARD].max(axis=0) < 1.0)

    @property
    def is_limiting(self) -> np.ndarray:
        """Whether a row says more than the configuration's others, (R, C); of equal ones the first does."""
        implied: np.ndarray = np.logical_not(self.need.any(axis=1))
        for k, j in itertools.permutations(range(HARD), 2):
            no_less, more = self.need[j] >= self.need[k], self.need[j] > self.need[k]
            implied[k] |= no_less.all(axis=0) & (more.any(axis=0) | (j < k))
        return ~implied

    @property
    def may_be_late(self) -> np.ndarray:
        """Whether some route of a workload breaks its mean-delay SLO, (m,)."""
        return np.any(self.is_open & (self.delay_excess > 0.0), axis=1)

    @property
    def may_be_wrong(self) -> np.ndarray:
        """Whether some route of a workload breaks its error SLO, (m,)."""
        return np.any(self.is_open & (self.error_excess > 0.0), axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Routing:
    """What a window routes: a weighted mean of several demands, each routed by itself."""

    draws: tuple[WindowRelaxation, ...]  # they differ in what depends on demand
    weights: np.ndarray  # (K,) in all one


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeRelaxation:
    """The relaxation of a whole episode."""

    instance: Instance
    windows: tuple[WindowRelaxation, ...]
    routings: tuple[Routing, ...]  # what is routed in each window: as in `windows`, or redrawn
    gpu_use: np.ndarray  # (G, C)
    startup_usd: np.ndarray  # (C,)
    startup_windows: np.ndarray  # (C,) int64
    max_replicas: np.ndarray  # (C,) int64
    nominal: np.ndarray  # (C,) int64
    exclusive: tuple[np.ndarray, ...]  # configurations of the slots that count as exclusive
    drain_windows: int  # K, how long a replica may drain
    rate_budget_usd: float  # what may be held in a window; inf without such a budget
    pool_budget_usd: float  # holding and fees of the episode; inf without such a budget
    is_ahead: bool = (
        False  # replicas that served in the window before, or arrive, are routed to: see `nonanticipative`
    )

    @property
    def hold_usd(self) -> np.ndarray:
        """Rent and model storage of one replica, (T, C)."""
        return np.array([window.hold_usd for window in self.windows])

    @property
    def is_separable(self) -> bool:
        """Whether no window has to do with another: nothing takes time to start, costs a fee, or adds up."""
        return (
            not self.startup_windows.any()
            and not self.startup_usd.any()
            and not np.isfinite(self.pool_budget_usd)
        )


def relax(instance: Instance, scenario: Scenario) -> EpisodeRelaxation:
    """Return the relaxation of an episode.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
        Known throughout.

    Returns
    -------
    EpisodeRelaxation
    """
    model = window_model(instance)
    state = model.initial_state()
    snapshots = (model.snapshot(state, Conditions.of(scenario, t)) for t in range(instance.num_windows))
    windows = tuple(relax_window(snapshot) for snapshot in snapshots)
    longest = int(model.startup_windows.max())
    members = [
        np.array(group)
        for group in instance.exclusive_groups
        if len(group) > 1 and model.startup_windows[list(group)].min() >= longest
    ]
    budget = instance.budget
    limit = np.inf if budget is None else budget.usd
    kind = None if budget is None else budget.kind
    return EpisodeRelaxation(
        instance=instance,
        windows=windows,
        routings=tuple(Routing((window,), np.ones(1)) for window in windows),
        gpu_use=np.array(instance.gpu_use),
        startup_usd=model.startup_usd,
        startup_windows=model.startup_windows,
        max_replicas=np.array([c.max_replicas for c in instance.configurations]),
        nominal=np.array(instance.nominal_fleet),
        exclusive=tuple(members),
        drain_windows=longest,
        rate_budget_usd=_widened(limit * model.hours) if kind == "rate" else np.inf,
        pool_budget_usd=_widened(limit) if kind == "pool" else np.inf,
    )


def _widened(limit_usd: float) -> float:
    """Return a limit with the tolerance that comparisons of money have (section 2)."""
    return limit_usd + WIDENING * max(1.0, limit_usd)


def relax_window(snapshot: Snapshot, *, late: bool = True) -> WindowRelaxation:
    """Return the routing relaxation of one window; without rows for late requests if these are not wanted."""
    present = np.flatnonzero(snapshot.rate_rps > 0.0)
    workloads = [snapshot.instance.workloads[i] for i in present]
    delay_slo = np.array([w.mean_delay_slo_s for w in workloads]).reshape(-1, 1)
    error_slo = np.array([w.error_slo for w in workloads]).reshape(-1, 1)
    rate = snapshot.rate_rps[present, None]
    servers = U_MAX * snapshot.max_concurrency
    need = np.array(
        [
            _replicas(rate * snapshot.work_tflop[present], snapshot.compute_tflops),
            _replicas(rate * snapshot.kv_gb_s[present], snapshot.kv_capacity_gb),
            _replicas(rate * snapshot.service_s[present], servers),
        ]
    )
    is_open = snapshot.compatible[present] & np.isfinite(need).all(axis=0)
    queues = queues_of(snapshot, present, is_open)
    row, price = np.zeros(is_open.shape), np.full(is_open.shape[1], np.inf)
    if late:
        row, price = late_row(queues, is_open, snapshot.hold_usd)
    need = np.where(is_open, need, 0.0) * (1.0 - WIDENING)
    return WindowRelaxation(
        route_usd=snapshot.route_usd[present],
        delay_excess=(snapshot.delay_s[present] - delay_slo) / delay_slo,
        error_excess=(snapshot.error[present] - error_slo) / error_slo,
        need=np.concatenate([need, row[None]]),
        missing_usd=np.vstack([np.full((HARD, price.size), np.inf), price]),
        is_open=is_open,
        unserved_usd=snapshot.unserved_usd[present],
        hold_usd=snapshot.hold_usd,
        most=_most_replicas(snapshot),
        available_gpus=np.asarray(snapshot.available_gpus, dtype=float),
        lossy_use=np.empty((0, price.size)),
        lossy_gpus=np.empty(0),
        queues=queues,
    )


def with_losses(window: WindowRelaxation, gpu_use: np.ndarray, held_gpus: np.ndarray) -> WindowRelaxation:
    """Return a window in which not all that is routed to may serve, if some pools have less than `held_gpus`, (G,)."""
    fewer = window.available_gpus < held_gpus
    return dataclasses.replace(
        window, lossy_use=gpu_use[fewer].astype(float), lossy_gpus=window.available_gpus[fewer]
    )


def _replicas(use: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return the replicas that a use takes, inf where there is next to no capacity for it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(use > 0.0, use / capacity, 0.0)


def _most_replicas(snapshot: Snapshot) -> np.ndarray:
    """Return how many replicas of each configuration the availability has room for, (C,)."""
    most = np.asarray(snapshot.max_replicas, dtype=float)
    for use, available in zip(snapshot.gpu_use, snapshot.available_gpus, strict=True):
        uses = use > 0
        most[uses] = np.minimum(most[uses], available // use[uses])
    return most
