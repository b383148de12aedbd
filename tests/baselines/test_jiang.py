"""Jiang's planner: the paper's example to 1e-9, every search against trying all fleets, tables as printed."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from places import SHARED
from problems import snapshot_of
from scipy.optimize import linprog
from toys import affine, configuration, make_instance, pool, random_instance, workload

import fleetgym
from fleetgym.baselines.jiang import JiangPlanner
from fleetgym.baselines.jiang.assignment import best_assignment
from fleetgym.baselines.jiang.exact import cheapest, cheapest_by_search, minimal_makespan
from fleetgym.baselines.jiang.knapsack import knapsack_check
from fleetgym.baselines.jiang.problem import MakespanProblem, longest_s, plan_of, shortest_s, superfluous
from fleetgym.baselines.jiang.program import Limits
from fleetgym.baselines.jiang.search import milp_check, minimal_makespan_by_search
from fleetgym.baselines.rates import keeps_slos, placeable
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.papers.jiang import paper, policies
from fleetgym.papers.jiang.pipelines import Pipeline, Stage, pipeline_rates, pipelines, split_layers

PAPERS = SHARED / "fixtures" / "papers.json"
EXACT = Limits(gap=0.0)
#: Section 4.2: t1, t2, t3, and two t2 with tensor parallelism.
EXAMPLE = MakespanProblem(
    requests=np.array([80.0, 20.0]),
    rate_rps=np.array([[1.0, 0.9, 0.3, 2.4], [1.2, 0.9, 0.5, 1.5]]),
    gpu_use=np.array([[1, 0, 0, 0], [0, 1, 0, 2], [0, 0, 1, 0]]),
    price_usd_per_h=np.array([4.0, 2.0, 2.0, 4.0]),
    available_gpus=np.array([2, 2, 2]),
    budget_usd_per_h=8.0,
)


def printed(name: str) -> dict:
    """Return a reference value that was copied from the paper."""
    if not PAPERS.is_file():
        pytest.skip("the papers' reference values are not here (set FLEETGYM_SHARED to their folder)")
    return json.loads(PAPERS.read_text())[name]


def random_problem(seed: int) -> MakespanProblem:
    """Return a small problem with binding limits, some pairs that cannot be served, some groups."""
    rng = np.random.default_rng(seed)
    workloads, count, pools = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    use = rng.integers(0, 3, (pools, count))
    use[0, use.sum(axis=0) == 0] = 1
    groups = ((0, 1),) if rng.random() < 0.3 else ()
    return MakespanProblem(
        requests=rng.integers(0 if workloads > 1 else 1, 100, workloads).astype(float),
        rate_rps=np.where(
            rng.random((workloads, count)) < 0.2, 0.0, rng.uniform(0.1, 3.0, (workloads, count))
        ),
        gpu_use=use,
        price_usd_per_h=use.sum(axis=0) * rng.uniform(0.5, 2.0, count),
        available_gpus=rng.integers(1, 5, pools),
        budget_usd_per_h=float(rng.uniform(2.0, 8.0)) if rng.random() < 0.7 else np.inf,
        max_replicas=rng.integers(1, 4, count) if rng.random() < 0.5 else None,
        groups=groups,
    )


def all_fleets(problem: MakespanProblem):
    """Yield every fleet within the limits."""
    for counts in itertools.product(*[range(int(m) + 1) for m in problem.most]):
        fleet = np.array(counts)
        if problem.is_feasible(fleet):
            yield fleet


# -- section 4.2


def test_example_of_section_4_2() -> None:
    """The four numbers the paper derives, and the optimum of its last case, to 1e-9."""
    rates = EXAMPLE
    one = policies.proportional(rates, np.array([1, 1, 1, 0])).makespan_s
    two = policies.proportional(rates, np.array([1, 2, 0, 0])).makespan_s
    tensor = np.array([1, 0, 0, 1])
    three = policies.proportional(rates, tensor).makespan_s
    rounded = policies.assigned(rates, tensor, np.array([[0.15, 0, 0, 0.85], [1.0, 0, 0, 0]])).makespan_s
    best = minimal_makespan(rates, EXACT)
    assert one == pytest.approx(80 / 2.2 + 20 / 2.6, rel=1e-9)
    assert two == pytest.approx(80 / 2.8 + 20 / 3.0, rel=1e-9)
    assert three == pytest.approx(80 / 3.4 + 20 / 2.7, rel=1e-9)
    assert rounded == pytest.approx(28 + 2 / 3, rel=1e-9)
    assert best.replicas.tolist() == [1, 0, 0, 1]
    assert best.makespan_s == pytest.approx(1450 / 51, rel=1e-9)
    assert best.bound_s == pytest.approx(1450 / 51, rel=1e-6)
    found = [one, two, three, rounded]
    assert [round(x, 2) for x in found] == [44.06, 35.24, 30.94, 28.67]


def test_example_agrees_with_the_reference_values() -> None:
    """The same, against the values stored with the papers."""
    expected = printed("jiang_4_2")["expected"]
    makespans = [
        policies.proportional(EXAMPLE, np.array(fleet)).makespan_s
        for fleet in ([1, 1, 1, 0], [1, 2, 0, 0], [1, 0, 0, 1])
    ]
    assert makespans == pytest.approx(
        [expected["composition1"], expected["composition2"], expected["tp"]], rel=1e-9
    )
    assert minimal_makespan(EXAMPLE, EXACT).makespan_s == pytest.approx(28.431372549, rel=1e-9)


def test_tables_as_printed() -> None:
    """Prices, memory, bandwidths, availabilities and traces are the paper's tables 1, 4 and 5."""
    for name, (_, bandwidth, memory, price) in printed("jiang_table1").items():
        gpu = paper.gpu_types()[name]
        assert (gpu.bandwidth_gb_per_s, gpu.memory_gb, paper.PRICES[name]) == (bandwidth, memory, price)
    table4, table5 = printed("jiang_table4"), printed("jiang_table5")
    assert list(paper.PRICES) == table4["order"]
    for number, counts in paper.AVAILABLE.items():
        assert list(counts.values()) == table4[str(number)]
    for number, shares in paper.TRACES.items():
        assert list(shares) == table5[str(number)]
        assert sum(shares) == 100
    assert paper.LENGTHS.tolist() == table5["workload_order_inferred"]


# -- exact program, searches and trying everything


@pytest.mark.parametrize("seed", range(20))
def test_exact_by_enumeration(seed: int) -> None:
    """The exact program finds what trying every fleet finds, with a valid bound; so does the published search."""
    problem = random_problem(seed)
    expected = min(plan_of(problem, fleet).makespan_s for fleet in all_fleets(problem))
    plan = minimal_makespan(problem, EXACT)
    assert problem.is_feasible(plan.replicas)
    assert plan.makespan_s == (pytest.approx(expected, rel=1e-6) if np.isfinite(expected) else np.inf)
    if np.isfinite(expected):
        assert plan.bound_s <= expected * (1 + 1e-6)
        assert shortest_s(problem) <= expected * (1 + 1e-9)
        assert expected <= longest_s(problem) * (1 + 1e-9)
        search = minimal_makespan_by_search(problem, tolerance_s=1e-4 * expected, limits=EXACT)
        assert expected * (1 - 1e-6) <= search.makespan_s <= expected * (1 + 1e-3)
        packed = minimal_makespan_by_search(problem, tolerance_s=1e-4 * expected, check="knapsack")
        assert packed.makespan_s >= expected * (1 - 1e-6)
        assert problem.is_feasible(search.replicas)
        assert problem.is_feasible(packed.replicas)


@pytest.mark.parametrize("seed", range(20))
def test_cheapest_by_enumeration(seed: int) -> None:
    """The cheapest fleet within a deadline, by one program and by bisection of the budget."""
    problem = random_problem(seed)
    best = minimal_makespan(problem, EXACT)
    if not np.isfinite(best.makespan_s) or best.makespan_s == 0.0:
        return
    deadline = 1.5 * best.makespan_s
    expected = min(
        problem.price_usd_per_h @ fleet
        for fleet in all_fleets(problem)
        if plan_of(problem, fleet).makespan_s <= deadline * (1 + 1e-9)
    )
    one = cheapest(problem, deadline, EXACT)
    by_search = cheapest_by_search(problem, deadline, tolerance=1e-6)
    assert one.makespan_s <= deadline * (1 + 1e-6)
    assert by_search.makespan_s <= deadline
    assert problem.price_usd_per_h @ one.replicas == pytest.approx(expected, rel=1e-5)
    assert problem.price_usd_per_h @ by_search.replicas == pytest.approx(expected, rel=1e-3)
    assert cheapest(problem, 0.5 * best.makespan_s, EXACT) is None


@pytest.mark.parametrize("seed", range(15))
def test_pruning_loses_nothing(seed: int) -> None:
    """Without superfluous configurations the optimum is the same, and something was dropped in some case."""
    rng = np.random.default_rng(seed)
    base = dataclasses.replace(random_problem(seed), max_replicas=None, groups=())
    gpus, workloads = base.available_gpus.size, base.requests.size
    use = np.hstack(
        [base.gpu_use, base.gpu_use[:, :1], base.gpu_use[:, :1] * 2, np.ones((gpus, 1), dtype=int)]
    )
    rate = np.hstack(
        [base.rate_rps, base.rate_rps[:, :1] * 0.9, base.rate_rps[:, :1] * 1.9, rng.random((workloads, 1))]
    )
    price = np.append(base.price_usd_per_h, [base.price_usd_per_h[0], 2 * base.price_usd_per_h[0], 1.0])
    problem = base.replace(gpu_use=use, rate_rps=rate, price_usd_per_h=price)
    out = superfluous(problem)
    assert out[-3]
    whole = minimal_makespan(problem, EXACT).makespan_s
    pruned = minimal_makespan(problem.keep(~out), EXACT).makespan_s
    assert pruned == (pytest.approx(whole, rel=1e-6) if np.isfinite(whole) else np.inf)


def test_checks_are_right_about_yes() -> None:
    """A fleet that either check finds is done in time; the integer check also finds every one there is."""
    for seed in range(8):
        problem = random_problem(seed)
        best = minimal_makespan(problem, EXACT).makespan_s
        if not 0.0 < best < np.inf:
            continue
        for factor in (0.9, 1.1, 2.0):
            for check in (milp_check, knapsack_check):
                fleet = check(problem, factor * best, EXACT)
                if fleet is not None:
                    assert problem.is_feasible(fleet)
                    assert plan_of(problem, fleet).makespan_s <= factor * best * (1 + 1e-6)
            assert (milp_check(problem, factor * best, EXACT) is not None) == (factor > 1)


def test_more_money_is_never_slower() -> None:
    """The optimum falls as the budget and the availability rise, and as requests leave."""
    for seed in range(5):
        problem = random_problem(seed)
        for better in (
            problem.replace(budget_usd_per_h=1.5 * problem.budget_usd_per_h),
            problem.replace(available_gpus=problem.available_gpus + 1),
            problem.replace(requests=0.5 * problem.requests),
        ):
            before, after = (minimal_makespan(p, EXACT).makespan_s for p in (problem, better))
            assert after <= before * (1 + 1e-6)


def test_two_models_share_gpus() -> None:
    """Appendix E: rates of zero keep models apart; no plan serves a workload with another's model."""
    problem = MakespanProblem(
        requests=np.array([15.0, 10.0]),
        rate_rps=np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]]),
        gpu_use=np.array([[1, 1, 2]]),
        price_usd_per_h=np.array([1.0, 1.0, 2.0]),
        available_gpus=np.array([3]),
    )
    plan = minimal_makespan(problem, EXACT)
    assert plan.replicas.tolist() == [0, 1, 1]
    assert plan.makespan_s == pytest.approx(5.0)
    assert not plan.assignment[problem.rate_rps == 0].any()


def test_impossible_problems() -> None:
    """No requests take no time; a workload that nothing serves takes forever."""
    assert minimal_makespan(EXAMPLE.replace(requests=np.zeros(2))).makespan_s == 0.0
    for hopeless in (
        EXAMPLE.replace(budget_usd_per_h=1.0),
        EXAMPLE.replace(rate_rps=EXAMPLE.rate_rps * [[0], [1]]),
    ):
        for plan in (minimal_makespan(hopeless), minimal_makespan_by_search(hopeless)):
            assert plan.makespan_s == np.inf
            assert not plan.replicas.any()
    assert cheapest(EXAMPLE.replace(budget_usd_per_h=1.0), 100.0) is None


# -- pipelines


def test_layers_follow_memory() -> None:
    """Appendix D's example, whole layers, and no stage without one."""
    assert split_layers(24, [1.0, 2.0]) == (8, 16)
    assert split_layers(80, [80.0, 48.0, 24.0]) == (42, 25, 13)
    assert split_layers(3, [100.0, 1.0, 1.0]) == (1, 1, 1)


def test_pipelines_obey_the_paper() -> None:
    """Memory holds the weights, TP stays in a machine, availability is kept, types mix only where allowed."""
    gpus, model = paper.gpu_types(), catalog.model(paper.LLAMA_70B)
    available = {"4090": 8, "L40": 4, "H100": 3}
    found = list(pipelines(model, gpus, available, max_stages=4, max_mixed_stages=3))
    names = [p.name for p in found]
    assert len(set(names)) == len(names)
    assert any(len({s.gpu for s in p.stages}) == 2 for p in found)
    for p in found:
        assert sum(p.layers) == model.layers
        assert all(p.gpus(name) <= available.get(name, 0) for name in gpus)
        assert sum(s.tensor_parallel * gpus[s.gpu].memory_gb for s in p.stages) >= model.weight_gb()
        assert len({s.gpu for s in p.stages}) <= (2 if len(p.stages) <= 3 else 1)


def test_modelled_rates_are_near_table_6() -> None:
    """Modelled req/s per USD/h of workload {2455, 18} against the paper's estimates, GPU by GPU."""
    gpus, model = paper.gpu_types(), catalog.model(paper.LLAMA_70B)
    for stages, estimated, within in (
        ((("H100", 2),) * 4, 0.60, 0.10),
        ((("H100", 4),) * 2, 0.47, 0.10),
        ((("L40", 2),) * 4, 0.46, 0.30),
        ((("L40", 4),) * 2, 0.22, 0.10),
    ):
        parts = tuple(Stage(*stage) for stage in stages)
        layers = split_layers(model.layers, [s.tensor_parallel * gpus[s.gpu].memory_gb for s in parts])
        rate = pipeline_rates(Pipeline(model, parts, layers), gpus, paper.LENGTHS[:1])[0]
        price = sum(paper.PRICES[s.gpu] * s.tensor_parallel for s in parts)
        assert rate / price == pytest.approx(estimated, rel=within)


def test_slow_links_slow_pipelines() -> None:
    """A pipeline across machines is never faster than the same in one."""
    gpus, model = paper.gpu_types(), catalog.model(paper.LLAMA_70B)
    for name in ("H100", "L40"):
        pipeline = Pipeline(model, (Stage(name, 4),) * 2, (40, 40))
        near, far = (pipeline_rates(pipeline, gpus, paper.LENGTHS, cross_machine=x) for x in (False, True))
        assert np.all(far <= near)
        assert np.any(far < near)


# -- policies


def test_policies_are_no_better_than_the_optimum() -> None:
    """No ablation beats the plan that it cripples."""
    for seed in range(10):
        problem = random_problem(seed)
        best = minimal_makespan(problem, EXACT)
        if not 0.0 < best.makespan_s < np.inf:
            continue
        for plan in (
            policies.round_robin(problem, best.replicas),
            policies.proportional(problem, best.replicas),
            policies.workload_unaware(problem, EXACT),
        ):
            assert plan.makespan_s >= best.makespan_s * (1 - 1e-6)


def test_lost_gpus_take_replicas() -> None:
    """When GPUs vanish, the last configurations go, and no more than must."""
    left = policies.without_gpus(EXAMPLE, np.array([1, 0, 1, 1]), np.array([2, 1, 2]))
    assert left.tolist() == [1, 0, 1, 0]


# -- the planner


def two_speeds(**changes: object) -> fleetgym.Instance:
    """Return two workloads on a fast and a slow configuration: 300 and 600 requests in the window."""
    return make_instance(
        [pool("east", 8)],
        [
            configuration("fast", {"east": 2}, max_concurrency=10),
            configuration("slow", {"east": 1}, max_concurrency=5),
        ],
        workloads=[workload("chat", 1.0), workload("code", 2.0)],
        performance={"service_s": affine([[1.0, 1.0], [2.0, 4.0]]), "work_tflop": affine(0.0)},
        **changes,
    )


def test_makespan_by_hand() -> None:
    """One fast and one slow replica share 300 requests at .1/.2 s and 600 at .2/.8 s."""
    snapshot = fleetgym.View(two_speeds()).snapshot()
    busy_s = snapshot.busy_seconds()
    np.testing.assert_allclose(busy_s, [[0.1, 0.2], [0.2, 0.8]])
    makespan_s, assignment = best_assignment(snapshot.requests, busy_s, np.array([1, 1]))
    # All of code and some chat on fast: 120 + 30 x = 60 (1 - x) has no x >= 0, so slow takes a little code:
    # 120 (1 - v) = 60 + 480 v.
    share = 60 / 600
    assert makespan_s == pytest.approx(120 * (1 - share))
    np.testing.assert_allclose(assignment, [[0, 1], [1 - share, share]], atol=1e-9)


def test_makespans_of_nothing() -> None:
    """Without requests an empty fleet is done at once; without a server a workload never is."""
    busy_s = np.array([[1.0, 1.0], [np.inf, 1.0]])
    assert best_assignment(np.zeros(2), busy_s, np.zeros(2))[0] == 0.0
    makespan_s, assignment = best_assignment(np.array([8.0, 2.0]), busy_s, np.array([4, 0]))
    assert makespan_s == np.inf
    assert assignment.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def by_linprog(requests: np.ndarray, busy_s: np.ndarray, replicas: np.ndarray) -> float:
    """Return the least makespan from SciPy's solver: min T over x, T."""
    workloads, count = busy_s.shape
    finite = np.isfinite(busy_s)
    load = np.where(finite, requests[:, None] * np.where(finite, busy_s, 0.0), 0.0)
    upper = (finite & (replicas > 0)).astype(float).ravel()
    rows = np.zeros((count, workloads * count + 1))
    for c in range(count):
        rows[c, c : workloads * count : count] = load[:, c]
        rows[c, -1] = -replicas[c]
    demand = np.zeros((workloads, workloads * count + 1))
    for w in range(workloads):
        demand[w, w * count : (w + 1) * count] = 1.0
    bounds = [(0.0, u) for u in upper] + [(0.0, None)]
    found = linprog(
        np.append(np.zeros(workloads * count), 1.0), rows, np.zeros(count), demand, np.ones(workloads), bounds
    )
    return float(found.fun) if found.status == 0 else np.inf


@pytest.mark.parametrize("seed", range(40))
def test_assignment_is_optimal(seed: int) -> None:
    """On random fleets SciPy finds the same makespan, and the assignment achieves it."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 8)))
    busy_s = np.where(rng.random(shape) < 0.2, np.inf, 10.0 ** rng.uniform(-3, 1, shape))
    requests, replicas = rng.integers(1, 1000, shape[0]).astype(float), rng.integers(0, 4, shape[1])
    makespan_s, assignment = best_assignment(requests, busy_s, replicas)
    expected = by_linprog(requests, busy_s, replicas)
    assert makespan_s == (pytest.approx(expected, rel=1e-7) if np.isfinite(expected) else np.inf)
    if np.isfinite(expected):
        np.testing.assert_allclose(assignment.sum(axis=1), 1.0, atol=1e-9)
        used = assignment > 0
        assert np.isfinite(busy_s[used]).all()
        load = requests @ (assignment * np.where(used, busy_s, 0.0))
        assert np.all(load <= replicas * makespan_s * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("name", ["two-pools", "regions", "heterogeneous", "group", "budget-pool"])
def test_planner_is_the_fastest_of_all_fleets(name: str) -> None:
    """No fleet that an action can ask for, and that fits availability and budget, has a shorter makespan."""
    instance = fleetgym.load_instance(f"fleet-v0/toy/{name}")
    view, actions = fleetgym.View(instance), fleetgym.ActionSpace(instance)
    snapshot = dataclasses.replace(view.snapshot(), fleet=0 * view.fleet)
    plan = JiangPlanner(objective="makespan", gap=0.0).plan(snapshot)
    busy_s, makespans = snapshot.busy_seconds(), {}
    for action in itertools.product(*[range(n) for n in actions.nvec]):
        fleet = actions.to_fleet(np.array(action))
        if np.all(snapshot.gpu_use @ fleet <= snapshot.available_gpus) and (
            fleet @ snapshot.hold_usd <= snapshot.budget_usd
        ):
            makespans[tuple(fleet.tolist())] = best_assignment(snapshot.requests, busy_s, fleet)[0]
    chosen_s = makespans[tuple(plan.fleet.tolist())]
    assert chosen_s == pytest.approx(plan.diagnostics["makespan_s"], rel=1e-9)
    assert chosen_s <= min(makespans.values()) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_plans_keep_every_limit(seed: int) -> None:
    """On random instances, both searches, plans keep slots, pools, budget; exact is never dearer than bisection."""
    snapshot = snapshot_of(random_instance(seed))
    paid = []
    for search in ("exact", "binary"):
        plan = JiangPlanner(search=search, utilization=0.8, gap=1e-6).plan(snapshot)
        assert np.all(snapshot.gpu_use @ plan.fleet <= snapshot.available_gpus)
        assert plan.fleet @ snapshot.hold_usd <= snapshot.budget_usd * (1 + 1e-9) + 1e-9
        assert np.all(plan.fleet <= snapshot.max_replicas)
        # the fleet must be one that an action can want
        fleetgym.ActionSpace(snapshot.instance).from_fleet(plan.fleet)
        paid.append(plan.fleet @ snapshot.hold_usd)
    assert paid[0] <= paid[1] * (1 + 1e-2) + 1e-9


def test_plan_fits_the_window() -> None:
    """Where there is room, the planned makespan is at most the share of the window that was asked for."""
    view = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/ou-s-001"))
    snapshot = view.snapshot()
    fleets = []
    for utilization in (0.5, 0.9):
        plan = JiangPlanner(utilization=utilization).plan(snapshot)
        assert plan.diagnostics["makespan_s"] <= 300.0 * (1 + 1e-6)
        fleets.append(plan.fleet @ snapshot.hold_usd)
    assert fleets[1] < fleets[0]


def test_no_room_for_everybody() -> None:
    """With too few GPUs the plan serves what pays, instead of nothing."""
    view = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/ou-s-001"))
    snapshot = view.snapshot(rate_rps=20 * view.conditions.rate_rps)
    plan = JiangPlanner().plan(snapshot)
    assert plan.fleet.any()
    assert (
        view.steady_cost_usd(plan.fleet, conditions={"rate_rps": snapshot.rate_rps})
        < snapshot.unserved_usd.sum()
    )
    nothing = dataclasses.replace(snapshot, available_gpus=0 * snapshot.available_gpus)
    assert not JiangPlanner().plan(nothing).fleet.any()


def test_slo_filter_prefers_what_keeps_them() -> None:
    """A pair that breaks an SLO is left out while another keeps it, and kept where none does."""
    snapshot = snapshot_of(random_instance(3))
    allowed = placeable(snapshot)
    kept = keeps_slos(snapshot, allowed)
    slow = dataclasses.replace(snapshot, delay_s=snapshot.delay_s * 1e6)
    assert not kept[:, ~allowed].any()
    some = (snapshot.compatible & allowed).any(axis=1)
    assert keeps_slos(slow, allowed).any(axis=1)[some].all()


def test_same_snapshot_same_plan() -> None:
    """Plans repeat to the last bit."""
    snapshot = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/ou-s-001")).snapshot()
    one, two = (JiangPlanner().plan(snapshot) for _ in range(2))
    np.testing.assert_array_equal(one.fleet, two.fleet)
    np.testing.assert_array_equal(one.diagnostics["assignment"], two.diagnostics["assignment"])


@pytest.mark.parametrize(
    "changes", [{"requests": np.ones(3)}, {"price_usd_per_h": -np.ones(4)}, {"gpu_use": np.ones((2, 2))}]
)
def test_bad_problems(changes: dict) -> None:
    """An array of the wrong shape, or with negative numbers, is named."""
    with pytest.raises(FleetgymError, match=f"{next(iter(changes))} has"):
        EXAMPLE.replace(**changes)
