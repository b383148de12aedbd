"""Plan by sample average approximation: one fleet for several demands, each routed by itself, by a two-stage MILP.

Source: Kleywegt, Shapiro and Homem-de-Mello, "The sample average approximation method for stochastic discrete
optimization", SIAM J. Optim. 12(2), 2002, sections 1 and 2.1: the expected cost is replaced by the mean over a sample,
and the deterministic equivalent is solved. Adapted:

- the sample is a forecast times factors from the errors that the same forecaster made on the instance's history. It is
  drawn once per episode, so that plans of successive windows differ by what was seen and not by the draw, and
  stratified (see `stratified`), because few scenarios drawn at random have means of their own;
- the second stage is the environment's routing, its queue servers loaded to their safe utilisation (``late="safe"``) or
  with its late-cost segments; the tails of the mixture that is then routed are not in it;
- branch and bound stops at a gap or a number of nodes, and one sample of a few demands is solved, not several larger
  ones to estimate the optimality gap.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym import Plan, Snapshot
from fleetgym.planning import LinearProgram, at_least, whole_at_least

from .best_forecaster import BestForecaster
from .milp import Modes
from .milp.problem import COMPUTE, MEMORY, SERVERS, PlacementProblem, make_problem

_DRAWN_PER_SCENARIO = 16


def at_rates(snapshot: Snapshot, rate_rps: np.ndarray) -> Snapshot:
    """Return the snapshot at other arrival rates.

    Parameters
    ----------
    snapshot : Snapshot
        Any.
    rate_rps : ndarray, shape (I,)
        Requests/s; positive where the snapshot's are, and only there.

    Returns
    -------
    Snapshot
        As `View.snapshot` would give it for these rates.
    """
    ratio = np.divide(rate_rps, snapshot.rate_rps, out=np.zeros_like(rate_rps), where=snapshot.rate_rps > 0)
    changed = {"rate_rps": rate_rps, "requests": snapshot.requests * ratio}
    if snapshot.instance.penalty_basis == "day":  # only stored data depends on the number of requests
        stored = snapshot.requests[:, None] * snapshot.instance.performance.storage_usd
        changed["route_usd"] = snapshot.route_usd + (ratio[:, None] - 1.0) * stored
    else:
        changed["route_usd"] = snapshot.route_usd * ratio[:, None]
        changed["unserved_usd"] = snapshot.unserved_usd * ratio
    return dataclasses.replace(snapshot, **changed)


@dataclasses.dataclass(kw_only=True, eq=False)
class SaaPlanner:
    """The fleet with the least mean cost over demand scenarios.

    Parameters
    ----------
    scenarios : int
        Demands in the sample.
    forecaster : str
        Whose errors on the history are sampled, as for `BestForecaster`.
    windows_ahead : int, optional
        How far ahead those errors look, beyond the longest start-up. None: as far as demand is not known yet.
    node_limit : int
        Most nodes of branch and bound.
    gap : float
        Relative gap at which it stops.
    allowed : ndarray of bool, shape (C,), optional
        Configurations that may be used; None: all.
    late, switch_weight
        See `fleetgym.baselines.milp.problem.Modes`.
    seed : int
        Of the sample.

    Raises
    ------
    FleetgymError
        If `scenarios` is below 1, or another number negative; for an unknown forecaster or mode.
    """

    scenarios: int = 6
    forecaster: str = "auto"
    windows_ahead: int | None = None
    node_limit: int = 20
    gap: float = 0.01
    allowed: np.ndarray | None = None
    late: str = "safe"
    switch_weight: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        whole_at_least(1, scenarios=self.scenarios)
        whole_at_least(0, node_limit=self.node_limit, seed=self.seed)
        at_least(0, windows_ahead=self.windows_ahead, gap=self.gap)
        self._forecaster = BestForecaster(self.forecaster)
        self._modes = Modes(late=self.late, switch_weight=self.switch_weight)
        self.factors: np.ndarray | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Study the forecasters' errors and draw the sample."""
        import highspy  # noqa: F401

        self._forecaster.reset(snapshot.instance)
        ahead = snapshot.instance.lead if self.windows_ahead is None else self.windows_ahead
        if ahead + self._forecaster.wait == 0:  # demand is known
            self.factors = np.ones((1, snapshot.rate_rps.size))
            return
        errors = self._forecaster.errors(ahead)
        self.factors = stratified(errors, self.scenarios, np.random.default_rng(self.seed))

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet; `objective_usd` is its mean cost over the sample, start-up terms included."""
        if self.factors is None:
            self.prepare(snapshot)
        assert self.factors is not None
        return plan_for(snapshot, self.factors, self._modes, self.allowed, self.node_limit, self.gap)


def stratified(errors: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return demand scenarios as multiples of a forecast.

    Parameters
    ----------
    errors : ndarray, shape (n, I)
        Log errors, equally likely, all workloads of a window together.
    count : int
        Scenarios.
    rng : numpy.random.Generator
        Decides which errors lend their ranks.

    Returns
    -------
    ndarray, shape (count, I)
        Each workload's factors are the means of `count` equally likely strata of its own, so that their mean is right.
        How they go together is copied from drawn errors, evenly spaced in the order of their sums.

    Examples
    --------
    >>> errors = np.log([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]])
    >>> stratified(errors, 2, np.random.default_rng(0)).round(9).tolist()
    [[1.5, 5.5], [3.5, 7.5]]
    """
    drawn = errors[rng.integers(0, errors.shape[0], _DRAWN_PER_SCENARIO * count)]
    ranked = drawn[np.argsort(drawn.sum(axis=1), kind="stable")]
    picked = ranked[((np.arange(count) + 0.5) / count * ranked.shape[0]).astype(int)]
    ranks = np.argsort(np.argsort(picked, axis=0, kind="stable"), axis=0, kind="stable")
    strata = np.array_split(np.sort(np.exp(errors), axis=0), count)
    means = np.array([s.mean(axis=0) if s.size else np.ones(errors.shape[1]) for s in strata])
    return np.take_along_axis(means, ranks, axis=0)


def plan_for(
    snapshot: Snapshot,
    factors: np.ndarray,
    modes: Modes,
    allowed: np.ndarray | None = None,
    node_limit: int | None = None,
    gap: float = 0.0,
) -> Plan:
    """Return the fleet with the least mean cost over equally likely demands.

    Parameters
    ----------
    snapshot : Snapshot
        The window.
    factors : ndarray, shape (K, I)
        Demands, as multiples of the snapshot's rates; positive.
    modes : Modes
        Elastic SLOs and storage per deployed replica, without a storage limit.
    allowed : ndarray of bool, shape (C,), optional
        Configurations that may be used; None: all.
    node_limit : int, optional
        Most nodes. None: no limit.
    gap : float
        Relative gap at which branch and bound stops.

    Returns
    -------
    Plan
        Its bound holds for the sample, and for the configurations allowed.
    """
    problems = [make_problem(at_rates(snapshot, f * snapshot.rate_rps), modes, allowed) for f in factors]
    common = set.intersection(*(set(p.columns.tolist()) for p in problems))
    problems = [p.take(np.isin(p.columns, list(common))) for p in problems]
    first = problems[0]
    if first.columns.size == 0:
        return Plan(fleet=np.zeros(first.shape[1], dtype=np.int64), status="empty")
    model = _TwoStage(problems)
    running = np.minimum(snapshot.fleet[first.columns], first.max_replicas)
    options = {"mip_rel_gap": gap, **({} if node_limit is None else {"mip_max_nodes": max(1, node_limit)})}
    answer = model.program.solve(options, start=model.start(running))
    if answer.values is None:
        return Plan(fleet=first.fleet_of(running), diagnostics={"nodes": answer.nodes})
    return Plan(
        fleet=first.fleet_of(model.replicas(answer.values)),
        objective_usd=answer.objective * model.unit_usd,
        bound_usd=answer.bound * model.unit_usd,
        status="optimal" if answer.status == "optimal" else "feasible",
        diagnostics={"nodes": answer.nodes},
    )


class _TwoStage:
    """The deterministic equivalent: options and counts once, shares and segments per scenario."""

    def __init__(self, problems: list[PlacementProblem]):
        self.problem, self.program = problems[0], LinearProgram()
        self.unit_usd = max(float(np.mean([p.unserved_usd.sum() for p in problems])), 1e-300) / 1e3
        o = self.problem.options
        self.binary = self.program.columns(o.fixed_usd / self.unit_usd, 1.0, whole=True)
        self.count = self.program.columns(o.replica_usd / self.unit_usd, o.high, whole=True)
        self._fleet_rows()
        for problem in problems:
            self._scenario(problem, self.unit_usd * len(problems))

    def replicas(self, values: np.ndarray) -> np.ndarray:
        """Return whole replicas per column, (C,)."""
        number = np.rint(values[self.count])
        return np.bincount(self.problem.options.column, number, self.problem.columns.size).astype(np.int64)

    def start(self, replicas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first stage of a fleet, (C,), as a partial solution."""
        o = self.problem.options
        number = replicas[o.column]
        chosen = (o.low <= number) & (number <= o.high)
        values = np.concatenate([chosen, np.where(chosen, number, 0)])
        return np.concatenate([self.binary, self.count]), values.astype(float)

    def _fleet_rows(self) -> None:
        """One option of a slot, counts within their option, GPUs of each pool, and the budget."""
        problem, o, add = self.problem, self.problem.options, self.program.rows
        slot = np.unique(problem.group[o.column], return_inverse=True)[1]
        add(int(slot.max()) + 1, [(slot, self.binary, 1.0)], high=1.0)
        k = np.arange(o.column.size)
        add(k.size, [(k, self.count, 1.0), (k, self.binary, -o.high)], high=0.0)
        add(k.size, [(k, self.count, -1.0), (k, self.binary, o.low)], high=0.0)
        pool, option = np.nonzero(problem.gpus[:, o.column])
        use = problem.gpus[pool, o.column[option]]
        add(problem.available.size, [(pool, self.count[option], use)], high=problem.available)
        if np.isfinite(problem.budget_usd):
            add(1, [(0, self.count, problem.hold_usd[o.column])], high=problem.budget_usd)

    def _scenario(self, problem: PlacementProblem, unit_usd: float) -> None:
        """Route one scenario: section 4 of the model page, with integer replicas."""
        program, o, columns = self.program, problem.options, problem.columns.size
        i, c = np.nonzero(problem.open)
        workloads, pair = np.arange(problem.workloads.size), np.arange(i.size)
        top = problem.max_replicas[c]
        most = np.minimum(problem.limit[i, c], problem.most[i, c] * top)
        v = program.columns(problem.usd[i, c] / unit_usd, most, droppable=True)
        u = program.columns(problem.unserved_usd / unit_usd, 1.0)
        program.rows(workloads.size, [(i, v, 1.0), (workloads, u, 1.0)], 1.0, 1.0)
        for ratio in (problem.delay, problem.error):
            s = program.columns(problem.unserved_usd / unit_usd, 1.0)
            program.rows(workloads.size, [(i, v, ratio[i, c] - 1.0), (workloads, s, -1.0)], high=0.0)
        for kind in (COMPUTE, MEMORY):
            load = problem.load[kind][i, c]
            program.rows(columns, [(c, v, load), (o.column, self.count, -1.0)], high=0.0)
        busy, segment = np.nonzero(o.width)
        late = program.columns(o.slope_usd[busy, segment] / unit_usd, o.width[busy, segment])
        k = np.arange(busy.size)
        program.rows(k.size, [(k, late, 1.0), (k, self.binary[busy], -o.width[busy, segment])], high=0.0)
        servers = [(c, v, problem.load[SERVERS][i, c]), (o.column, self.count, -o.servers)]
        program.rows(columns, [*servers, (o.column[busy], late, -1.0)], high=0.0)
        # A share is at most what its column's option can take of the workload alone: this tightens the relaxation.
        which, option = np.nonzero(c[:, None] == o.column[None, :])
        reach = np.minimum(problem.limit[i, c][which], problem.most[i, c][which] * o.high[option])
        program.rows(pair.size, [(pair, v, 1.0), (which, self.binary[option], -reach)], high=0.0)
