"""Coral's allocator: optimal where HiGHS can tell, its bound a bound, its baselines what the paper says."""

import dataclasses

import numpy as np
import pytest

from fleetgym.baselines.coral import CoveringProblem, Options, Running, allocate
from fleetgym.baselines.coral.agent import CoralPlanner, adapt
from fleetgym.baselines.coral.cauchy import cauchy
from fleetgym.baselines.coral.covering import cover, replicas, with_one_more
from fleetgym.baselines.coral.homo import homo
from fleetgym.baselines.coral.lagrangian import Columns, relaxed
from fleetgym.baselines.coral.neighbourhoods import improve
from fleetgym.baselines.coral.problem import evaluate
from fleetgym.baselines.coral.program import Restricted
from fleetgym.files.errors import FleetgymError

EXACT = Options(gap=1e-7, units=400)


def random_problem(random, *, scarce=False, running=False, regions=2, rows=3, number=14):
    """Return a small problem with mixed templates of three node types for some demands."""
    kinds = 3
    use = random.integers(0, 3, (number, kinds))
    use[use.sum(axis=1) == 0, 0] = 1
    worth = use @ random.uniform(0.5, 3.0, kinds)
    here = CoveringProblem(
        use=use,
        throughput_rps=worth * random.uniform(0.6, 1.4, number),
        row=np.arange(number) % rows,
        price_usd_per_h=random.uniform(0.8, 3.0, (regions, kinds)),
        available=random.integers(0, 4 if scarce else 12, (regions, kinds)),
        demand_rps=random.uniform(3.0, 12.0, rows),
        startup_ratio=0.1,
        unserved_usd_per_h=1e4,
    )
    return dataclasses.replace(here, running=allocate(here, EXACT).running) if running else here


def optimum(problem):
    """Return HiGHS's allocation and bound on the whole program."""
    template, region = (a.ravel() for a in np.indices((problem.row.size, problem.price_usd_per_h.shape[0])))
    found, bound, answer = Restricted(problem, template, region).solve({"mip_rel_gap": 0.0})
    assert answer.status == "optimal"
    return found, bound


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_equals_highs_on_the_whole_program(scarce, running):
    """Same objective as plain HiGHS on every column, with and without running replicas."""
    random = np.random.default_rng([7, scarce, running])
    for _ in range(12):
        problem = random_problem(random, scarce=scarce, running=running)
        if running:
            problem = dataclasses.replace(
                problem, demand_rps=problem.demand_rps * random.uniform(0.6, 1.4, 3)
            )
        oracle, _ = optimum(problem)
        found = allocate(problem, EXACT)
        best = oracle.objective_usd_per_h(problem)
        assert found.objective_usd_per_h(problem) == pytest.approx(best, rel=1e-6)
        assert found.bound_usd_per_h <= best * (1 + 1e-6)
        assert found.status == "optimal"


@pytest.mark.parametrize("most_columns", [0, 2, 1000])
@pytest.mark.parametrize("scarce", [False, True])
def test_more_columns_than_a_mip_takes(scarce, most_columns):
    """With few columns the bound still holds; with all of them, presolved or not, the optimum is proven."""
    random = np.random.default_rng([11, scarce])
    few = dataclasses.replace(EXACT, steps=4, most_columns=most_columns, presolved_columns=2, first_nodes=1)
    proven = 0
    for _ in range(8):
        problem = random_problem(random, scarce=scarce, running=True, rows=5, number=40)
        problem = dataclasses.replace(problem, demand_rps=problem.demand_rps * random.uniform(0.6, 1.4, 5))
        best = optimum(problem)[0].objective_usd_per_h(problem)
        found = allocate(problem, few)
        assert found.bound_usd_per_h <= best * (1 + 1e-6)
        assert found.objective_usd_per_h(problem) >= best * (1 - 1e-6)
        proven += found.status == "optimal"
    assert proven == 8 if most_columns == 1000 else proven < 8


def test_neighbourhoods_only_make_it_cheaper():
    """From nothing at all to a feasible allocation, cheaper with every attempt or as it was."""
    random = np.random.default_rng(12)
    for _ in range(6):
        problem = random_problem(random, scarce=True, running=True, rows=6, number=40)
        none = np.zeros(0, dtype=int)
        start = evaluate(problem, none, none, none)
        every = np.ones(problem.row.size, dtype=bool)
        costs = [
            improve(problem, start, every, lambda part: allocate(part, EXACT), n).objective_usd_per_h(problem)
            for n in (0, 1, 2, 4, 8)
        ]
        assert costs[0] == start.objective_usd_per_h(problem)
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < costs[0]
        assert costs[-1] >= optimum(problem)[0].objective_usd_per_h(problem) * (1 - 1e-6)


def test_the_paper_s_penalty_rows_are_the_split_in_kept_and_new():
    """I >= (nu - nu') p K, I >= 0 as printed gives the same optimum as columns for kept and new replicas."""
    from fleetgym.runtime.linear_programs import LinearProgram

    random = np.random.default_rng(5)
    for _ in range(6):
        problem = random_problem(random, running=True)
        problem = dataclasses.replace(problem, demand_rps=problem.demand_rps * random.uniform(0.5, 1.5, 3))
        number, regions = problem.row.size, problem.price_usd_per_h.shape[0]
        template, region = (a.ravel() for a in np.indices((number, regions)))
        rent = (problem.price_usd_per_h[region] * problem.use[template]).sum(axis=1)
        ran = np.zeros((number, regions))
        ran[problem.running.template, problem.running.region] = problem.running.count
        program = LinearProgram()
        count = program.columns(rent, 100.0, whole=True)
        penalty = program.columns(np.ones(rent.size), np.inf)
        short = program.columns(np.full(3, problem.unserved_usd_per_h), 1.0)
        each = np.arange(rent.size)
        charge = rent * problem.startup_ratio
        program.rows(each.size, [(each, penalty, 1.0), (each, count, -charge)], low=-charge * ran.ravel())
        share = problem.throughput_rps[template] / problem.demand_rps[problem.row[template]]
        program.rows(3, [(problem.row[template], count, share), (np.arange(3), short, 1.0)], low=1.0)
        cell = region[:, None] * 3 + np.arange(3)
        program.rows(6, [(cell, count[:, None], problem.use[template])], high=problem.available.ravel())
        answer = program.solve({})
        assert allocate(problem, EXACT).objective_usd_per_h(problem) == pytest.approx(
            answer.objective, rel=1e-6
        )


def test_bound_holds_at_any_prices():
    """Whatever the prices on nodes, the coverings cost no more than the optimum."""
    random = np.random.default_rng(9)
    for _ in range(20):
        problem = random_problem(random, scarce=True, running=True)
        best = optimum(problem)[0].objective_usd_per_h(problem)
        alive = np.ones((problem.row.size, 2), dtype=bool)
        prices = random.uniform(0.0, 2.0, (2, 3)) * (random.random((2, 3)) < 0.5)
        said = relaxed(problem, Columns.of(problem, 300, alive), 300, prices)
        assert said.bound <= best * (1 + 1e-9)
        assert np.all(said.floor[np.isfinite(said.floor)] >= said.bound - 1e-6 * abs(said.bound))


def test_cover_is_the_cheapest_covering():
    """The dynamic program against every combination of two templates and one kept replica."""
    random = np.random.default_rng(2)
    for _ in range(50):
        units, price = 12, 50.0
        w = np.sort(random.choice(np.arange(1, 8), 2, replace=False))
        cost = np.full(units + 1, np.inf)
        cost[w] = random.uniform(1.0, 10.0, 2)
        kept_units, kept_cost = random.integers(1, 9, 1), random.uniform(0.5, 5.0, 1)
        value, choice = np.empty(units + 1), np.empty(units + 1, dtype=np.int64)
        taken = np.zeros((1, units + 1), dtype=bool)
        covered = cover(cost, kept_units, kept_cost, price, value, choice, taken)
        found = value[covered] + price * (1 - covered / units)
        all_of_them = [
            a * cost[w[0]]
            + b * cost[w[1]]
            + k * kept_cost[0]
            + price * max(0.0, 1 - (a * w[0] + b * w[1] + k * kept_units[0]) / units)
            for a in range(13)
            for b in range(13)
            for k in range(2)
        ]
        assert found == pytest.approx(min(all_of_them))
        new, kept = np.zeros(units + 1, dtype=np.int64), np.zeros(1, dtype=bool)
        replicas(covered, choice, taken, kept_units, new, kept)
        assert new @ np.arange(units + 1) + kept @ kept_units >= covered
        assert new[w] @ cost[w] + kept @ kept_cost == pytest.approx(value[covered])
        forced = with_one_more(value, price)
        assert forced[0] == pytest.approx(found)
        assert np.all(np.diff(forced) <= 1e-9)


def test_running_replicas_stay_unless_moving_pays():
    """A change that saves less than the penalty on new replicas is not made."""
    problem = CoveringProblem(
        use=np.eye(2, dtype=int),
        throughput_rps=np.array([1.0, 1.0]),
        row=np.zeros(2, dtype=int),
        price_usd_per_h=np.array([[1.0, 0.95]]),
        available=np.array([[9, 9]]),
        demand_rps=np.array([3.0]),
        running=Running(np.array([0]), np.array([0]), np.array([3])),
    )
    assert allocate(problem).template.tolist() == [0]
    assert allocate(problem).startup_usd_per_h == 0.0
    cheap = dataclasses.replace(problem, price_usd_per_h=np.array([[1.0, 0.8]]))
    moved = allocate(cheap)
    assert moved.template.tolist() == [1]
    assert moved.startup_usd_per_h == pytest.approx(0.1 * 3 * 0.8)


def test_least_unserved_first_then_cost():
    """With too few nodes everything that can be served is, at the least cost."""
    problem = CoveringProblem(
        use=np.array([[1, 0], [0, 1], [1, 1]]),
        throughput_rps=np.array([2.0, 1.0, 3.5]),
        row=np.zeros(3, dtype=int),
        price_usd_per_h=np.array([[5.0, 1.0]]),
        available=np.array([[1, 2]]),
        demand_rps=np.array([10.0]),
    )
    found = allocate(problem)
    assert found.unserved.tolist() == pytest.approx([1 - 4.5 / 10])
    nothing = allocate(dataclasses.replace(problem, available=np.zeros((1, 2), dtype=int)))
    assert nothing.unserved.tolist() == [1.0]
    assert nothing.count.size == 0
    idle = allocate(dataclasses.replace(problem, demand_rps=np.zeros(1)))
    assert (idle.cost_usd_per_h, idle.unserved.tolist()) == (0.0, [0.0])


def test_same_problem_same_allocation():
    """Counts bound the search, so it repeats itself."""
    problem = random_problem(np.random.default_rng(1), scarce=True)
    first, second = allocate(problem), allocate(problem)
    assert np.array_equal(first.template, second.template)
    assert np.array_equal(first.count, second.count)
    assert first.bound_usd_per_h == second.bound_usd_per_h


def test_allocations_beyond_availability_are_refused():
    """`evaluate` checks what it is given."""
    problem = random_problem(np.random.default_rng(1))
    with pytest.raises(FleetgymError, match="beyond availability"):
        evaluate(problem, np.array([0]), np.array([0]), np.array([1000]))


def test_baselines_use_what_they_may_and_cost_no_less():
    """Homo-1 and Cauchy use single nodes, Homo-M one type; none beats the optimum where all serve everything."""
    random = np.random.default_rng(11)
    compared = 0
    for _ in range(20):
        problem = random_problem(random)
        singles = CoveringProblem(
            **{
                **{f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)},
                "unserved_usd_per_h": 1e7,
                "use": np.concatenate([problem.use, np.tile(np.eye(3, dtype=int), (3, 1))]),
                "throughput_rps": np.concatenate([problem.throughput_rps, random.uniform(1.0, 3.0, 9)]),
                "row": np.concatenate([problem.row, np.repeat(np.arange(3), 3)]),
            }
        )
        coral = allocate(singles, EXACT)
        for name, found in (
            ("homo-1", homo(singles)),
            ("homo-m", homo(singles, single_node=False)),
            ("cauchy", cauchy(singles, [(0, 1), (2,)])),
        ):
            use = singles.use[found.template]
            assert np.all(np.count_nonzero(use, axis=1) == 1)
            assert name == "homo-m" or np.all(use.sum(axis=1) == 1)
            assert found.unserved.sum() >= coral.unserved.sum() - 1e-9
            if not found.unserved.any():
                compared += 1
                assert found.cost_usd_per_h >= coral.cost_usd_per_h - 1e-6
    assert compared > 10


# -- in the environment


def snapshot_of(name):
    """Return the first window's snapshot of a shipped instance."""
    import fleetgym

    return fleetgym.View(fleetgym.load_instance(name)).snapshot()


@pytest.mark.parametrize("method", ["coral", "homo", "cauchy"])
@pytest.mark.parametrize(
    "name", ["fleet-v0/toy/two-pools", "fleet-v0/dev/ou-s-001", "fleet-v0/dev/fastllm-4-4-5-001"]
)
def test_plans_respect_every_limit(method, name):
    """Pools, budget, exclusive slots and max_replicas hold; the same snapshot gives the same fleet."""
    snapshot = snapshot_of(name)
    plan = CoralPlanner(method).plan(snapshot)
    assert plan.fleet.sum() > 0
    assert np.all(snapshot.gpu_use @ plan.fleet <= snapshot.available_gpus)
    assert np.all(plan.fleet <= snapshot.max_replicas)
    assert plan.fleet @ snapshot.hold_usd <= snapshot.budget_usd * (1 + 1e-6)
    for slot, members in zip(snapshot.instance.slots, snapshot.instance.slot_members, strict=True):
        assert not slot.exclusive or plan.fleet[list(members)].sum() <= 1
    assert np.array_equal(plan.fleet, CoralPlanner(method).plan(snapshot).fleet)


def test_adapter_covers_each_model_s_demand():
    """The fleet's throughput on each model's mixture covers its demand, and no method is cheaper than Coral."""
    snapshot = snapshot_of("fleet-v0/dev/ou-s-001")
    adapted = adapt(snapshot, 0.8, 12)
    problem = adapted.problem
    assert problem.demand_rps.sum() == pytest.approx(snapshot.rate_rps.sum())
    plans = {name: CoralPlanner(name, options=EXACT).plan(snapshot) for name in ("coral", "homo", "cauchy")}
    for plan in plans.values():
        assert np.all(plan.diagnostics["unserved"] == 0.0)
        served = np.zeros(problem.demand_rps.size)
        np.add.at(served, problem.row, problem.throughput_rps * plan.fleet[adapted.configuration])
        assert np.all(served >= problem.demand_rps * (1 - 1e-9))
    assert plans["coral"].objective_usd <= min(p.objective_usd for p in plans.values()) * (1 + 1e-9)


def test_a_window_without_demand_needs_no_fleet():
    """No arrivals, no replicas."""
    snapshot = snapshot_of("fleet-v0/dev/ou-s-001")
    idle = dataclasses.replace(snapshot, rate_rps=0.0 * snapshot.rate_rps)
    assert CoralPlanner().plan(idle).fleet.sum() == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"row": np.zeros(13, dtype=int)}, r"row has shape \(13,\); expected \(14,\)"),
        ({"demand_rps": np.array([1.0, -1.0, 1.0])}, "demand_rps has a negative number"),
        ({"demand_rps": np.array([1.0, 1.0])}, "row has an index out of range; expected 0 to 1"),
        ({"running": Running(np.array([0]), np.array([5]), np.array([1]))}, "running.region has an index"),
    ],
)
def test_bad_problems_are_refused(changes, what):
    """A problem whose arrays do not fit says which one does not."""
    with pytest.raises(FleetgymError, match=what):
        dataclasses.replace(random_problem(np.random.default_rng(1)), **changes)
