"""Lower bounds: below every optimum and every agent, whatever the prices; and not far below."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from toys import configuration, make_instance, nominal_scenario, pool, random_instance, random_scenario

from fleetgym.agents.view import View
from fleetgym.bounds import Effort, certificate, hindsight, hindsight_bound, window_bound, windows_bound
from fleetgym.bounds.exact import StateSpaceError, optimal_fleets
from fleetgym.bounds.horizon import HorizonProgram, HorizonSolution
from fleetgym.bounds.relaxation import EpisodeRelaxation, relax
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Budget, Instance
from fleetgym.model.library import entries, list_instances, load_instance, load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.scoring.best_known import best_known_path, read_best_known
from fleetgym.search.window_bound import separable_bound

TOYS = list_instances("fleet-v0/toy")
SMALL = [name for name, entry in entries().items() if "/dev/" in name and entry.size == "s"]


def small_problem(seed: int):
    """Return a random instance of three windows, its scenario and its optimum; skip what has too many states."""
    instance = random_instance(seed, num_windows=3)
    scenario = random_scenario(instance, seed)
    return instance, scenario, optimal_cost(instance, scenario)


def optimal_cost(instance: Instance, scenario: Scenario) -> float:
    """Return what the dynamic program finds, USD."""
    try:
        return optimal_fleets(instance, scenario, max_transitions=6_000).cost
    except StateSpaceError:
        pytest.skip("too many states for the dynamic program")


# -- valid


@pytest.mark.parametrize("seed", range(80))
def test_bounds_are_below_the_optimum(seed: int) -> None:
    """Groups, shared pools, both kinds of budget, drops, start-ups, late penalties: never above the optimum."""
    instance, scenario, optimum = small_problem(seed)
    slack = 1e-9 * max(1.0, optimum)
    plain, raised = (hindsight_bound(instance, scenario, rounds=k).bound_usd for k in (0, 2))
    assert 0.0 <= plain * (1.0 - 1e-4) <= raised <= optimum + slack
    assert 0.0 <= windows_bound(instance, scenario, effort=Effort(nodes=50)).bound_usd <= optimum + slack


@pytest.mark.parametrize("seed", range(0, 80, 2))
def test_windows_that_are_solved_by_the_milp_agent(seed: int) -> None:
    """Where fleets may change at once and for nothing, its proofs are valid, and as good as those of the programs."""
    drawn = random_instance(seed, num_windows=3)
    parts = [dataclasses.replace(c, startup_windows=0, startup_usd=0.0) for c in drawn.configurations]
    budget = None if drawn.budget is None else dataclasses.replace(drawn.budget, kind="rate")
    instance = drawn.replace(configurations=parts, budget=budget)
    punctual = instance.replace(
        workloads=[dataclasses.replace(workload, late_usd=0.0) for workload in instance.workloads]
    )
    scenario = random_scenario(instance, seed)
    for one in (instance, punctual):
        general, optimum = hindsight_bound(one, scenario), optimal_cost(one, scenario)
        assert general.method == "windows"
        found = separable_bound(one, scenario)
        assert found is not None
        assert found.bound_usd <= optimum + 1e-9 * max(1.0, optimum)
    assert found.bound_usd == pytest.approx(general.bound_usd, rel=1e-3, abs=1e-6)  # it knows no late costs


def test_windows_that_depend_on_each_other_have_no_such_bound() -> None:
    """A start-up takes time: the sum over windows would be valid, but weak."""
    instance = load_instance("fleet-v0/toy/startup")
    assert separable_bound(instance, load_scenarios("fleet-v0/toy/startup")[0]) is None


@pytest.mark.parametrize("seed", range(0, 80, 4))
def test_any_prices_give_a_valid_bound(seed: int) -> None:
    """LimitPrices from a solver that went wrong, here random ones, weaken the bound and never break it."""
    instance, scenario, optimum = small_problem(seed)
    problem, rng = relax(instance, scenario), np.random.default_rng(seed)
    count = problem.max_replicas.size
    found = HorizonProgram(problem, np.arange(count)).solve()
    for scale in (0.0, 0.3, 2.0):
        spoilt = spoil(found, rng, scale)
        outside = np.flatnonzero(rng.random(count) < 0.5)
        bound, _ = hindsight._certify(problem, spoilt, outside)
        assert bound <= optimum + 1e-9 * max(1.0, optimum)


def spoil(found: HorizonSolution, rng: np.random.Generator, scale: float) -> HorizonSolution:
    """Return a solution whose prices are off by random factors and offsets."""

    def noise(array):
        return array * np.exp(rng.normal(0, scale, np.shape(array))) + scale * rng.normal(
            0, 0.1, np.shape(array)
        )

    def spoilt(prices):
        return dataclasses.replace(
            prices, **{f.name: noise(getattr(prices, f.name)) for f in dataclasses.fields(prices)}
        )

    shared = spoilt(found.shared)
    shared = dataclasses.replace(
        shared, **{f.name: np.maximum(0.0, getattr(shared, f.name)) for f in dataclasses.fields(shared)}
    )
    windows = tuple(tuple(map(spoilt, draws)) for draws in found.windows)
    return dataclasses.replace(found, windows=windows, shared=shared)


def test_taking_turns_in_draining_is_allowed_for() -> None:
    """An exclusive slot is relaxed to independent configurations where a member starts faster than another drains."""
    parts = [configuration(n, {"p": 1}, startup_windows=k, max_replicas=1) for n, k in (("A", 1), ("B", 2))]
    assert relax_of(parts).exclusive == ()
    same = [configuration(n, {"p": 1}, startup_windows=2, max_replicas=1) for n in "AB"]
    assert [m.tolist() for m in relax_of(same).exclusive] == [[0, 1]]


def relax_of(parts):
    """Return the relaxation of one exclusive slot."""
    instance = make_instance([pool("p", 4)], parts, ["|".join(p["id"] for p in parts)], num_windows=4)
    return relax(instance, nominal_scenario(instance))


def cheapest_fleet_usd(view: View) -> float:
    """Return the least that a fleet costs in the nominal window, of all that fit; a pool is spent as they like."""
    snapshot, budget = view.snapshot(), view.instance.budget
    is_rate = budget is not None and budget.kind == "rate"
    fits = []
    for action in itertools.product(*(range(n) for n in view.nvec)):
        fleet = view.action_to_fleet(action)
        affordable = not is_rate or snapshot.hold_usd @ fleet <= snapshot.budget_usd
        if affordable and np.all(snapshot.gpu_use @ fleet <= snapshot.available_gpus):
            fits.append(view.steady_cost_usd(fleet))
    return min(fits)


@pytest.mark.parametrize("name", TOYS)
def test_window_bound_is_below_every_fleet(name: str) -> None:
    """The nominal window of a toy: no fleet that fits is cheaper, and the best one is met."""
    view = View(load_instance(name))
    found, best = window_bound(view.snapshot()), cheapest_fleet_usd(view)
    assert best * (1 - 1e-5) - 1e-5 <= found.bound_usd <= best
    assert found.cost_usd == pytest.approx(view.steady_cost_usd(found.fleet), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", [*TOYS, *range(8)])
def test_dear_penalties_do_not_loosen_the_window_bound(name: str | int) -> None:
    """Over six orders of magnitude of penalties: below every fleet, and never by more than a percent."""
    instance = random_instance(name, num_windows=3) if isinstance(name, int) else load_instance(name)
    for factor in 10.0 ** np.arange(7):
        dear = [
            dataclasses.replace(w, unserved_usd=factor * w.unserved_usd, late_usd=0.0)
            for w in instance.workloads
        ]
        view = View(dataclasses.replace(instance, workloads=tuple(dear)))
        best = cheapest_fleet_usd(view)
        assert 0.99 * best <= window_bound(view.snapshot()).bound_usd <= best


def test_a_pool_may_be_spent_in_one_window() -> None:
    """A fleet above the pool's even share is cheaper than what that share pays for, and the bound is below it."""
    instance = load_instance("fleet-v0/toy/budget-pool")
    small = dataclasses.replace(instance, budget=Budget(kind="pool", usd=1e-3))
    bounds = [window_bound(View(i).snapshot()).bound_usd for i in (instance, small)]
    assert bounds[0] == bounds[1] <= cheapest_fleet_usd(View(instance))


# -- not far below


@pytest.mark.parametrize("name", TOYS)
def test_gap_on_toys(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On toys the gap to the dynamic program is printed; only `group`, whose steps are whole, has a large one."""
    instance, (scenario, *_) = load_instance(name), load_scenarios(name)
    optimum = optimal_fleets(instance, scenario).cost
    bound = max(f(instance, scenario).bound_usd for f in (hindsight_bound, windows_bound))
    with capsys.disabled():
        print(f"\n{name}: bound {bound:.4f}, optimum {optimum:.4f}, gap {100 * (optimum / bound - 1):.3f} %")
    assert (0.5 if name.endswith("group") else 0.9999) * optimum <= bound <= optimum * (1 + 1e-12)


def test_starting_replicas_are_paid_for() -> None:
    """Two windows to start, demand in one window: fee, two windows of rent and the service are in the bound."""
    part = configuration("A", {"p": 1}, startup_windows=2, startup_usd=1.0, max_replicas=1)
    instance = make_instance([pool("p", 1)], [part], num_windows=4)
    scenario = nominal_scenario(instance, rate_rps=[[0.0], [0.0], [0.0], [1.0]])
    assert hindsight_bound(instance, scenario).bound_usd == pytest.approx(1.0 + 2.0 + 1.0, rel=1e-4)


def test_configurations_outside_the_program_are_priced_in() -> None:
    """With a configuration left out of the linear program, the bound is valid; with all of them it is the optimum."""
    name = "fleet-v0/toy/heterogeneous"
    problem = relax(load_instance(name), load_scenarios(name)[0])
    best = cost_with_every_row(problem)
    everything = HorizonProgram(problem, np.arange(3)).solve()
    assert hindsight._certify(problem, everything, np.empty(0, dtype=int))[0] == pytest.approx(best, rel=1e-4)
    for left_out in range(3):
        rest = np.setdiff1d(np.arange(3), left_out)
        bound, _ = hindsight._certify(problem, HorizonProgram(problem, rest).solve(), np.array([left_out]))
        assert bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_left_out_say_nothing(seed: int) -> None:
    """With every capacity and SLO row written out, the least linear cost of the episode is the same."""
    instance = random_instance(seed, num_windows=3)
    problem = relax(instance, random_scenario(instance, seed))
    found = HorizonProgram(problem, np.arange(problem.max_replicas.size)).solve().cost_usd
    assert found == pytest.approx(cost_with_every_row(problem), rel=2e-4, abs=1e-6)


def cost_with_every_row(problem: EpisodeRelaxation) -> float:
    """Return the episode's least linear cost from dense rows, written again from the relaxation's formulas."""
    T, C, wait = len(problem.windows), problem.max_replicas.size, problem.startup_windows
    serving, arrivals = np.arange(T * C).reshape(T, C), T * C + np.arange(T * C).reshape(T, C)
    cost, upper = [np.zeros(2 * T * C)], [np.full(2 * T * C, np.inf)]
    rows: list[tuple[dict[int, float], float, bool]] = []  # entries, right-hand side, whether equal
    hold = problem.hold_usd
    fee = np.zeros((T, C))
    for t, c in itertools.product(range(T), range(C)):
        fee[t, c] = problem.startup_usd[c] + hold[max(0, t - wait[c]) : t, c].sum()
        cost[0][serving[t, c]], cost[0][arrivals[t, c]] = hold[t, c], fee[t, c]
        upper[0][serving[t, c]] = problem.windows[t].most[c]
        if 0 < t <= wait[c]:
            upper[0][arrivals[t, c]] = 0.0
        before = {serving[t - 1, c]: -1.0} if t else {}
        limit = 0.0 if t else float(problem.nominal[c])
        rows.append(({serving[t, c]: 1.0, arrivals[t, c]: -1.0, **before}, limit, False))
    for t, window in enumerate(problem.windows):
        held = [
            {serving[t, c]: 1.0, **{arrivals[t + k, c]: 1.0 for k in range(1, wait[c] + 1) if t + k < T}}
            for c in range(C)
        ]
        limits = [(use, limit) for use, limit in zip(problem.gpu_use, window.available_gpus, strict=True)]
        if np.isfinite(problem.rate_budget_usd):
            limits.append((hold[t], problem.rate_budget_usd))
        limits += [(np.isin(np.arange(C), group), 1.0) for group in problem.exclusive]
        for use, limit in limits:
            rows.append(({v: a * use[c] for c in range(C) for v, a in held[c].items()}, float(limit), False))
        m = window.unserved_usd.size
        first = sum(part.size for part in cost)
        x = first + np.arange(m * C).reshape(m, C)
        u, late, wrong = (first + m * C + k * m + np.arange(m) for k in range(3))
        cost += [window.route_usd.ravel(), *[window.unserved_usd] * 3]
        upper += [window.is_open.ravel().astype(float), np.ones(m), np.full(2 * m, np.inf)]
        for i in range(m):
            rows.append(({**dict.fromkeys(x[i], 1.0), u[i]: 1.0}, 1.0, True))
            for excess, slack in ((window.delay_excess, late), (window.error_excess, wrong)):
                finite = np.where(window.is_open[i], excess[i], 0.0)
                rows.append(({**dict(zip(x[i], finite, strict=True)), slack[i]: -1.0}, 0.0, False))
        missed = sum(part.size for part in cost) + np.arange(C)
        cost.append(np.ones(C))
        upper.append(np.full(C, np.inf))
        for c in range(C):
            for need, usd in zip(window.need, window.missing_usd[:, c], strict=True):
                entries = {**dict(zip(x[:, c], need[:, c], strict=True)), missed[c]: -1.0 / usd}
                rows.append(({**entries, serving[t, c]: -1.0}, 0.0, False))
            rows += [({x[i, c]: 1.0, serving[t, c]: -1.0}, 0.0, False) for i in range(m)]
    if np.isfinite(problem.pool_budget_usd):
        spent = {
            **dict(zip(serving.ravel(), hold.ravel(), strict=True)),
            **dict(zip(arrivals.ravel(), fee.ravel(), strict=True)),
        }
        rows.append((spent, problem.pool_budget_usd, False))
    cost, upper = np.concatenate(cost), np.concatenate(upper)
    dense, right = np.zeros((len(rows), cost.size)), np.array([limit for _, limit, _ in rows])
    for number, (row, _, _) in enumerate(rows):
        for column, value in row.items():
            dense[number, column] = value
    equal = np.array([is_equal for _, _, is_equal in rows])
    found = linprog(
        np.where(np.isfinite(cost), cost, 0.0),
        dense[~equal],
        right[~equal],
        dense[equal],
        right[equal],
        bounds=list(zip(np.zeros(cost.size), upper, strict=True)),
    )
    assert found.status == 0, found.message
    return float(found.fun)


def test_solvers_agree() -> None:
    """The faster solver proves the same bound up to its tolerance; an unknown one is refused by name."""
    instance = random_instance(5, num_windows=6)
    scenario = random_scenario(instance, 5)
    with pytest.raises(FleetgymError, match="solver is 'simplicissimus'; expected one of ipx, hipo"):
        hindsight_bound(instance, scenario, solver="simplicissimus")
    pytest.importorskip("highspy_extras", reason="needs fleetgym[bounds]")
    ipx, hipo = (hindsight_bound(instance, scenario, solver=name).bound_usd for name in ("ipx", "hipo"))
    assert hipo == pytest.approx(ipx, rel=1e-3)


def test_bound_is_the_same_every_time() -> None:
    """Work is bounded by counts: two calls give the same number."""
    instance = random_instance(5, num_windows=6)
    scenario = random_scenario(instance, 5)
    once, twice = (hindsight_bound(instance, scenario).bound_usd for _ in range(2))
    assert once == twice


def test_safety_is_taken_off() -> None:
    """What is claimed is rounded down by a share of all the money that was added up."""
    assert certificate.certified_usd(np.array([2.0, 3.0]), -1.0, 1.0) < 3.0
    assert certificate.certified_usd(np.array([0.0]), -1.0, 1.0) == 0.0


# -- stored tasks


def test_stored_bounds_are_below_stored_values() -> None:
    """Every bound in the file is at most the best cost that anybody has achieved."""
    known = read_best_known(best_known_path("fleet-v0")).tasks
    bounded = {task: best for task, best in known.items() if best.bound_usd is not None}
    assert {f"{name}#0" for name in TOYS} <= set(bounded)
    for task, best in bounded.items():
        assert 0.0 < best.bound_usd <= best.value_usd * (1 + 1e-9), task


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "day"),
    [
        pytest.param(name, day, marks=pytest.mark.full if day else ())
        for name in SMALL
        if name.endswith("-001")
        for day in range(entries()[name].scenarios)
    ],
)
def test_agents_cost_more_than_the_bound(name: str, day: int) -> None:
    """Several agents on the stored days of a small instance (slow: on the first): none below the bound."""
    results = evaluate(["hold", "random", "gh", "autoscale", "descent"], name, scenarios=[day])
    scenario = load_scenarios(name)[day]
    bound = hindsight_bound(load_instance(name), scenario, effort=Effort(1e-2, 20)).bound_usd
    assert 0.0 < bound <= min(episode.cost_usd for episode in results.episodes)
