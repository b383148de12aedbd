"""Adapt Coral and its baselines to `FleetAlloc-v0`, as planners.

The adapter. Coral allocates replicas to models whose demand is given as a throughput; it knows neither a choice of
model nor routing. So:

- every workload is fixed to its cheapest compatible model: least rent for its load, routing cost and SLO excess
  priced as the environment does;
- the workloads of a model are one demand. A configuration's throughput is what one replica serves of their
  mixture within compute, KV memory and queue servers at `utilization`; of the configurations that serve all of
  them, those that keep every delay, TTFT and error SLO are the templates, or all if none does;
- pools, a budget, exclusive slots and `max_replicas` are availabilities;
- the start-up penalty is K times the rent, K being start-up fees and rent paid while starting, averaged over the
  configurations, over `interval_windows` (the paper amortises over an hour);
- unserved demand comes first, then cost; the environment's price of an unserved request does not enter.

Routing, delays and late costs are the environment's; nothing is planned for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fleetgym import Instance, Plan, Snapshot
from fleetgym.planning import one_of, positive_share, whole_at_least

from ..agents import RollingAgent
from ..rates import slo_excess
from .allocator import Options, allocate
from .cauchy import cauchy as allocate_cauchy
from .homo import homo as allocate_homo
from .problem import Allocation, CoveringProblem, Running

METHODS = ("coral", "homo", "cauchy")
#: Cost of leaving a demand unserved, over the rent of every configuration once.
_UNSERVED = 1e4
#: Snapshots are small programs, and many are solved.
OPTIONS = Options(units=1000, steps=20, gap=1e-3, node_limit=2000, first_nodes=200)


@dataclasses.dataclass(frozen=True, eq=False)
class Adapted:
    """Coral's problem made from a snapshot; template t is `configuration[t]`."""

    problem: CoveringProblem
    configuration: np.ndarray  # (N,)
    model_of: np.ndarray  # (I,) index of each workload's model; -1: no demand, or nothing compatible


def throughput_rps(snapshot: Snapshot, share: np.ndarray, utilization: float) -> np.ndarray:
    """Return what one replica of each configuration serves of a mixture of workloads.

    Parameters
    ----------
    snapshot : Snapshot
        The window's problem.
    share : (I,) array
        Shares of the requests; they sum to 1.
    utilization : float
        Share of compute, KV memory and queue servers to plan for.

    Returns
    -------
    (C,) array
        Requests per second; compatibility is not asked.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = np.stack(
            [
                share @ snapshot.work_tflop / snapshot.compute_tflops,
                share @ snapshot.kv_gb_s / snapshot.kv_capacity_gb,
                share @ snapshot.service_s / snapshot.max_concurrency,
            ]
        )
        busy = np.nan_to_num(busy, nan=0.0, posinf=np.inf).max(axis=0)
        return np.where(busy > 0.0, np.minimum(utilization / busy, 1e9), 1e9)


def adapt(snapshot: Snapshot, utilization: float, interval_windows: int) -> Adapted:
    """Return Coral's problem for a snapshot; money in USD per window."""
    instance = snapshot.instance
    names = [c.model for c in instance.configurations]
    models = list(dict.fromkeys(names))
    model_of_configuration = np.array([models.index(name) for name in names])
    model_of = _cheapest_models(snapshot, model_of_configuration, len(models), utilization)
    demand: list[float] = []
    configuration, row, throughput = [], [], []
    for m in np.unique(model_of[model_of >= 0]):
        for workloads in _demands(snapshot, np.flatnonzero(model_of == m), model_of_configuration == m):
            rate = snapshot.rate_rps[workloads]
            share = np.zeros(model_of.size)
            share[workloads] = rate / rate.sum()
            usable = _templates(snapshot, workloads, model_of_configuration == m)
            configuration.append(usable)
            row.append(np.full(usable.size, len(demand)))
            throughput.append(throughput_rps(snapshot, share, utilization)[usable])
            demand.append(float(rate.sum()))
    chosen = np.concatenate(configuration) if configuration else np.zeros(0, dtype=np.int64)
    use, limits = _limits(snapshot)
    fleet = snapshot.fleet[chosen]
    first = np.zeros(chosen.size, dtype=bool)
    first[np.unique(chosen, return_index=True)[1]] = True  # a replica runs once, whatever it may serve
    running = np.flatnonzero(first & (fleet > 0))
    price = np.zeros((1, use.shape[1]))
    price[0, -1] = 1.0
    started = snapshot.startup_usd + _waits(instance) * snapshot.hold_usd
    ratio = float(started.mean() / max(1e-12, snapshot.hold_usd.mean()) / interval_windows)
    problem = CoveringProblem(
        use=use[chosen],
        throughput_rps=np.concatenate(throughput) if throughput else np.zeros(0),
        row=np.concatenate(row) if row else np.zeros(0, dtype=np.int64),
        price_usd_per_h=price,
        available=limits[None, :],
        demand_rps=np.array(demand),
        running=Running(running, np.zeros_like(running), fleet[running]),
        startup_ratio=ratio,
        unserved_usd_per_h=_UNSERVED * max(1e-9, float(snapshot.hold_usd.sum())),
    )
    return Adapted(problem, chosen, model_of)


def _waits(instance: Instance) -> np.ndarray:
    return np.array([c.startup_windows for c in instance.configurations], dtype=float)


def _cheapest_models(snapshot: Snapshot, model: np.ndarray, count: int, utilization: float) -> np.ndarray:
    """Return the model (I,) that each workload is fixed to; -1 where it has no demand or nothing serves it."""
    workloads = snapshot.rate_rps.size
    cost = np.empty((workloads, model.size))
    for i in range(workloads):
        alone = throughput_rps(snapshot, np.arange(workloads) == i, utilization)
        with np.errstate(divide="ignore"):
            cost[i] = snapshot.hold_usd * snapshot.rate_rps[i] / alone + snapshot.route_usd[i]
    cost += snapshot.unserved_usd[:, None] * slo_excess(snapshot)
    cost = np.where(snapshot.compatible, cost, np.inf)
    by_model = np.stack([cost[:, model == m].min(axis=1) for m in range(count)], axis=1)
    served = np.isfinite(by_model.min(axis=1)) & (snapshot.rate_rps > 0.0)
    return np.where(served, by_model.argmin(axis=1), -1)


def _demands(snapshot: Snapshot, workloads: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
    """Return the workloads of a model as one demand, or one by one where no configuration serves them all."""
    if np.any(own & snapshot.compatible[workloads].all(axis=0)):
        return [workloads]
    return [workloads[k : k + 1] for k in range(workloads.size)]


def _templates(snapshot: Snapshot, workloads: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return a model's configurations that serve all workloads within SLOs; all that serve them if none does."""
    serving = own & snapshot.compatible[workloads].all(axis=0)
    within = serving & np.all(slo_excess(snapshot)[workloads] <= 0.0, axis=0)
    return np.flatnonzero(within if within.any() else serving)


def _limits(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """Return what a replica takes, (C, K), and what there is, (K,): GPUs by pool, places in slots, money."""
    instance = snapshot.instance
    places, most = [], []
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        places.append(np.isin(np.arange(instance.num_configurations), members))
        most.append(1 if slot.exclusive else int(snapshot.max_replicas[members[0]]))
    use = np.column_stack([snapshot.gpu_use.T, np.array(places, dtype=float).T, snapshot.hold_usd])
    budget = min(snapshot.budget_usd, 1e15)
    return use, np.concatenate([snapshot.available_gpus, most, [budget]]).astype(float)


class CoralPlanner:
    """Coral's allocator, or one of its baselines, on a window's snapshot.

    Parameters
    ----------
    method : str
        ``"coral"``, ``"homo"`` (greedy, one GPU type per replica) or ``"cauchy"`` (integer program, one GPU type per
        replica; with replicas that serve both phases there are no combinations).
    utilization : float
        Share of a replica's compute, KV memory and queue servers to plan for.
    interval_windows : int
        Windows over which a start is amortised; 12 five-minute windows are the paper's hour.
    options : Options
        Limits of Coral's search; counts, so that the same snapshot gives the same plan.

    Raises
    ------
    FleetgymError
        For an unknown method, a utilization outside (0, 1], or an interval below one window.
    """

    def __init__(
        self,
        method: str = "coral",
        utilization: float = 0.8,
        interval_windows: int = 12,
        options: Options = OPTIONS,
    ):
        one_of(METHODS, method=method)
        positive_share(utilization=utilization)
        whole_at_least(1, interval_windows=interval_windows)
        self.method, self.utilization = method, utilization
        self.interval_windows, self.options = interval_windows, options

    def prepare(self, snapshot: Snapshot) -> None:
        """Load or compile what is needed, by planning once."""
        self.plan(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet for the snapshot's window.

        Returns
        -------
        Plan
            Diagnostics: ``models`` (the model of each workload), ``unserved`` (by demand), ``gap``.
        """
        adapted = adapt(snapshot, self.utilization, self.interval_windows)
        problem = adapted.problem
        fleet = np.zeros(snapshot.hold_usd.size, dtype=np.int64)
        if not problem.demand_rps.size:
            return Plan(fleet=fleet, objective_usd=0.0, status="empty")
        found = self._solver(snapshot, adapted)(problem)
        np.add.at(fleet, adapted.configuration[found.template], found.count)
        models = list(dict.fromkeys(c.model for c in snapshot.instance.configurations))
        bounded = np.isfinite(found.bound_usd_per_h)
        return Plan(
            fleet=fleet,
            objective_usd=found.objective_usd_per_h(problem),
            status=found.status,
            diagnostics={
                "models": [models[m] if m >= 0 else None for m in adapted.model_of],
                "unserved": found.unserved,
                "gap": found.gap(problem) if bounded else None,
            },
        )

    def _solver(self, snapshot: Snapshot, adapted: Adapted) -> Callable[[CoveringProblem], Allocation]:
        if self.method == "coral":
            return lambda problem: allocate(problem, self.options)
        types = np.array([pool.gpu_type for pool in snapshot.instance.pools])
        used = snapshot.gpu_use > 0
        kinds = np.array([np.unique(types[used[:, c]]).size for c in range(used.shape[1])])
        allowed = (kinds == 1)[adapted.configuration]
        if self.method == "homo":
            return lambda problem: allocate_homo(problem, allowed=allowed)
        groups = [(m,) for m in range(adapted.problem.demand_rps.size)]
        return lambda problem: allocate_cauchy(problem, groups, allowed)


coral = RollingAgent(
    "Coral, templates of mixed GPUs, planning again and again.", CoralPlanner, method="coral"
)


homo = RollingAgent("Coral's baseline Homo, replicas of one GPU type.", CoralPlanner, method="homo")


cauchy = RollingAgent("Coral's baseline Cauchy, every replica one node.", CoralPlanner, method="cauchy")
