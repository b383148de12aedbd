"""Hold the routing kernel to HiGHS and to its own duals, on random LPs of every kind."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import routing_lps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from routing_lps import KINDS, HighsOracle, certify, random_size

from fleetgym.kernels import routing
from fleetgym.kernels.compile import jit
from fleetgym.kernels.routing import new_basis, new_workspace, remap_basis, solve_routing
from fleetgym.kernels.routing_basis import is_certified
from fleetgym.kernels.routing_workload import DUAL, FIRST_X, PRICE, VALUE

QUICK, SLOW = 160, 500  # LPs of each of the 13 kinds, and of each of their parts
PARTS = [0, *(pytest.param(part, marks=pytest.mark.full) for part in (1, 2, 3))]
FEASIBLE, GAP, AGREE = 1e-9, 1e-9, 1e-7
MOST_PIVOTS = 20_000


@pytest.fixture(scope="module")
def oracle():
    """HiGHS with tight tolerances."""
    return HighsOracle()


def check(lp, solution, oracle=None):
    """Assert that a solution is certified by its duals and, unless HiGHS is worse, agrees with HiGHS."""
    violation, gap = certify(lp, solution)
    assert solution.status == 0
    assert solution.restarts == 0
    assert solution.pivots < MOST_PIVOTS
    assert violation <= FEASIBLE
    assert gap <= GAP
    if oracle is not None:
        size = max(abs(solution.objective), 1e-3 * lp.unserved.max(initial=0.0), 1e-300)
        difference = abs(oracle.objective(lp) - solution.objective) / size
        if (
            not difference <= AGREE
        ):  # the certificate above is decisive; where HiGHS disagrees it must be sharp
            assert gap <= 1e-12


def run_kind(kind, count, seed, oracle):
    """Solve and check `count` random LPs of one kind; the seed may be several numbers."""
    rng = np.random.default_rng([*np.atleast_1d(seed), list(KINDS).index(kind)])
    for _ in range(count):
        lp = KINDS[kind](rng, *random_size(rng))
        check(lp, solve_routing(*lp), oracle)


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_agrees_with_highs(kind, oracle):
    """About 2,000 LPs in all; every answer is certified by its own duals."""
    run_kind(kind, QUICK, 1, oracle)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_agrees_with_highs_on_many(kind, part, oracle):
    """26,000 LPs in all, a quarter of them in the slow set."""
    run_kind(kind, SLOW, (2, part), oracle)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["integers", "free_service", "duplicates", "badly_scaled"])
def test_degenerate_problems_never_stall(kind, part):
    """10,000 more LPs of each of the kinds on which pivoting may cycle, by certificate only."""
    run_kind(kind, 2_500, (3, part), None)


NEAR_SIZES = [*[(1, 2)] * 4, (2, 2), (1, 3), (3, 2), (2, 4), (4, 6), (6, 10), (10, 10)]


@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, 1_000), *(pytest.param(seed, 5_000, marks=pytest.mark.slow) for seed in (2, 3, 4, 5))],
)
def test_near_ties_are_routed(seed, count):
    """Nearly equal configurations: no failure, no restart, a certified answer, and no limit exceeded.

    Without a tie-break, more than one in fifty of these used to fail: two nearly equal columns make a basis whose
    inverse is worth nothing, and pivots between them look like round-off.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        lp = routing_lps.near_ties(rng, *NEAR_SIZES[rng.integers(len(NEAR_SIZES))])
        solution = solve_routing(*lp)
        check(lp, solution)
        assert routing_lps.overload(lp, solution) <= 1e-12


def test_warm_starts_on_near_ties_are_routed():
    """A basis of the last window is no worse a start where configurations are nearly equal."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        whole = routing_lps.near_ties(rng, 6, 8)
        basis, work = new_basis(6, 8), new_workspace(6, 8)
        for factor in routing_lps.demand_walk(rng, 6, 20, drift=0.1):
            lp = routing_lps.with_demand(whole, factor)
            solution = solve_routing(*lp, basis=basis, work=work)
            check(lp, solution)
            assert routing_lps.overload(lp, solution) <= 1e-12


def test_no_limit_is_exceeded():
    """What round-off serves too much is left unserved: no limit is exceeded by more than 1e-12 of it."""
    rng = np.random.default_rng(7)
    for kind in KINDS:
        for _ in range(40):
            lp = KINDS[kind](rng, *random_size(rng))
            assert routing_lps.overload(lp, solve_routing(*lp)) <= 1e-12


def test_scipy_agrees():
    """A second oracle on the LP as it stands, built without scaling."""
    rng = np.random.default_rng(4)
    for _ in range(40):
        lp = KINDS["tight"](rng, *random_size(rng))
        expected = routing_lps.scipy_solution(lp).fun if lp.cost.size else lp.unserved.sum()
        assert solve_routing(*lp).objective == pytest.approx(expected, rel=1e-6)


# --- warm starts ------------------------------------------------------------------------------------------


def restrict(lp, active):
    """Return the LP of the active configurations only."""
    return lp._replace(
        cost=lp.cost[:, active],
        delay=lp.delay[:, active],
        error=lp.error[:, active],
        use=lp.use[:, :, active],
        capacity=lp.capacity[:, active],
        width=lp.width[active],
        slope=lp.slope[active],
        allowed=lp.allowed[:, active],
    )


def run_series(rng, kind, workloads, configurations, windows, change):
    """Solve windows of a demand walk warm and cold; the fleet changes with probability `change`."""
    whole = KINDS[kind](rng, workloads, configurations)
    active = np.arange(configurations)
    basis, work = new_basis(workloads, configurations), new_workspace(workloads, configurations)
    for factor in routing_lps.demand_walk(rng, workloads, windows, drift=0.1):
        if rng.random() < change:
            new = np.flatnonzero(rng.random(configurations) < 0.6)
            remap_basis(basis, active, new)
            active = new
        factor = factor * (rng.random(workloads) > 0.03)
        lp = restrict(routing_lps.with_demand(whole, factor), active)
        warm = solve_routing(*lp, basis=basis, work=work)
        cold = solve_routing(*lp)
        check(lp, warm)
        check(lp, cold)
        yield lp, warm, cold


@pytest.mark.parametrize("change", [0.0, 0.2])
def test_warm_start_equals_cold(change):
    """The tie-breaking cost makes routing unique, so where it started must not show."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        for _, warm, cold in run_series(rng, "tight", 8, 8, 60, change):
            np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
            assert warm.objective == pytest.approx(cold.objective, rel=1e-12)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_warm_start_is_right_on_every_kind(kind):
    """Degenerate, closed or overloaded: warm answers are certified and cost the same as cold ones."""
    rng = np.random.default_rng(6)
    for lp, warm, cold in run_series(rng, kind, 6, 7, 50, 0.1):
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9, abs=1e-12 * lp.unserved.sum())


def test_same_final_basis_gives_the_same_answer():
    """Where warm and cold end in the same basis, their answers differ by round-off only."""
    rng = np.random.default_rng(7)
    same = 0
    lp = KINDS["tight"](rng, 8, 8)
    warm = new_basis(8, 8)
    for factor in routing_lps.demand_walk(rng, 8, 60):
        window = routing_lps.with_demand(lp, factor)
        cold = new_basis(8, 8)
        first, second = (solve_routing(*window, basis=basis) for basis in (warm, cold))
        used = 2 + warm[0] + 2 * warm[1]
        if np.array_equal(warm[:used], cold[:used]):
            same += 1
            np.testing.assert_allclose(first.x, second.x, rtol=0.0, atol=1e-13)
            assert first.objective == pytest.approx(second.objective, rel=1e-13)
    assert same > 30


@jit
def certifies(packed, live, pairs, size):
    """Call `is_certified` from Python."""
    return is_certified(packed, live, pairs, size)


def test_a_certificate_is_for_the_answer():
    """Values and duals of an answer certify each other; with any of them spoiled they do not."""
    lp = KINDS["tight"](np.random.default_rng(3), 8, 8)
    basis, work = new_basis(8, 8), new_workspace(8, 8)
    assert solve_routing(*lp, basis=basis, work=work).pivots > 0
    size = 8 + FIRST_X
    pairs = int(basis[0]) - 3 * 8
    assert pairs > 0
    assert certifies(work.packed, 8, pairs, size)
    busy = int(np.argmax(work.local[:, VALUE, 0]))
    spoiled = (
        (work.local, (busy, VALUE, 0)),
        (work.local, (busy, DUAL, 0)),
        (work.extra, (0, 3)),
        (work.row, (PRICE, *work.tight[:2, 0])),
    )
    for array, place in spoiled:
        right = array[place]
        for wrong in (right + 1e-6 * max(1.0, abs(right)), np.nan, np.inf):
            array[place] = wrong
            assert not certifies(work.packed, 8, pairs, size)
        array[place] = right
    assert certifies(work.packed, 8, pairs, size)


def test_any_basis_is_repaired():
    """A basis from another problem, or nonsense that names existing columns, does no harm."""
    rng = np.random.default_rng(8)
    for _ in range(100):
        basis = new_basis(6, 6)
        solve_routing(*KINDS["overloaded"](rng, 6, 6), basis=basis)
        lp = KINDS["tight"](rng, 6, 6)
        check(lp, solve_routing(*lp, basis=basis))


def test_basis_of_a_larger_problem_is_refused():
    """Its columns do not exist here, so it has to be remapped first."""
    rng = np.random.default_rng(10)
    basis = new_basis(6, 9)
    solve_routing(*KINDS["overloaded"](rng, 6, 9), basis=basis)
    with pytest.raises(ValueError, match="belongs to a larger problem"):
        solve_routing(*KINDS["tight"](rng, 6, 1), basis=basis)
    remap_basis(basis, np.arange(9), np.array([4]))
    lp = KINDS["tight"](rng, 6, 1)
    check(lp, solve_routing(*lp, basis=basis))


def test_workspace_may_be_larger_and_dirty():
    """One workspace serves problems of all sizes, in any order."""
    rng = np.random.default_rng(9)
    work = new_workspace(30, 70)
    for kind in list(KINDS) * 3:
        lp = KINDS[kind](rng, *random_size(rng))
        used, fresh = solve_routing(*lp, work=work), solve_routing(*lp)
        assert used.x.tobytes() == fresh.x.tobytes()
        assert used.capacity_dual.tobytes() == fresh.capacity_dual.tobytes()


# --- properties -------------------------------------------------------------------------------------------

lps = st.builds(
    lambda kind, seed, workloads, configurations: KINDS[kind](
        np.random.default_rng(seed), workloads, configurations
    ),
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 6),
)
fast = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@fast
@given(lps, st.integers(0, 2), st.floats(1.0, 10.0))
def test_more_capacity_never_costs_more(lp, resource, factor):
    """Capacity only relaxes the problem."""
    capacity = lp.capacity.copy()
    capacity[resource] *= factor
    before, after = solve_routing(*lp), solve_routing(*lp._replace(capacity=capacity))
    assert after.objective <= before.objective + 1e-9 * max(lp.unserved.sum(), 1e-300)


@fast
@given(lps, st.floats(1e-6, 1e6))
def test_cost_scales_with_money(lp, factor):
    """Dollars or cents: the routing costs the same."""
    scaled = lp._replace(cost=lp.cost * factor, unserved=lp.unserved * factor, slope=lp.slope * factor)
    before, after = solve_routing(*lp), solve_routing(*scaled)
    assert after.objective == pytest.approx(
        before.objective * factor, rel=1e-9, abs=1e-9 * factor * lp.unserved.sum()
    )


@fast
@given(lps, st.randoms(use_true_random=False))
def test_order_does_not_matter(lp, random):
    """Permuted workloads and configurations cost the same."""
    i, c = list(range(lp.cost.shape[0])), list(range(lp.cost.shape[1]))
    random.shuffle(i)
    random.shuffle(c)
    permuted = lp._replace(
        cost=lp.cost[i], unserved=lp.unserved[i], delay=lp.delay[i], error=lp.error[i],
        use=lp.use[:, i], allowed=lp.allowed[i],
    )  # fmt: skip
    after = solve_routing(*restrict(permuted, c))
    assert after.objective == pytest.approx(
        solve_routing(*lp).objective, rel=1e-9, abs=1e-9 * lp.unserved.sum()
    )


# --- small cases and the wrapper --------------------------------------------------------------------------


def one_workload(**changes):
    """One workload, one configuration that serves all of it at cost 1, unserved 10."""
    lp = {
        "cost": [[1.0]],
        "unserved": [10.0],
        "delay": [[-0.5]],
        "error": [[-0.5]],
        "use": np.ones((3, 1, 1)),
        "capacity": np.full((3, 1), 2.0),
        "width": np.zeros((1, 3)),
        "slope": np.zeros((1, 3)),
    }
    return solve_routing(**{**lp, **changes})


@pytest.mark.parametrize(
    ("changes", "objective"),
    [
        ({}, 1.0),
        ({"capacity": np.array([[0.5], [2.0], [2.0]])}, 0.5 + 5.0),
        ({"capacity": np.array([[2.0], [0.0], [2.0]])}, 10.0),
        ({"delay": [[0.2]]}, 1.0 + 2.0),
        ({"delay": [[2.0]]}, 10.0),
        ({"allowed": [[False]]}, 10.0),
        ({"unserved": [0.0]}, 0.0),
        (
            {"capacity": np.array([[2.0], [2.0], [0.5]]), "width": [[0.2, 0.2, 0]], "slope": [[1, 2, 3]]},
            0.9 + 0.2 + 0.4 + 1.0,
        ),
    ],
)
def test_hand_computed(changes, objective):
    """Served, cut by a limit, closed, late, too late, forbidden, nobody there, overloaded."""
    assert one_workload(**changes).objective == pytest.approx(objective, rel=1e-14)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delay": [[0.0, 0.0]]}, "delay has shape"),
        ({"cost": [1.0]}, "cost has shape"),
        ({"use": -np.ones((3, 1, 1))}, "use must not be negative"),
        ({"cost": [[np.nan]]}, "cost must be finite"),
        ({"slope": [[2.0, 1.0, 3.0]]}, "slope must not fall"),
        ({"allowed": [[1, 1]]}, "allowed has shape"),
        ({"basis": new_basis(1, 0)}, "basis has room"),
        ({"work": new_workspace(0, 1)}, "work is too small"),
        ({"width": np.zeros((1, 5)), "slope": np.zeros((1, 5))}, "at most 4"),
    ],
)
def test_wrapper_says_what_is_wrong(changes, message):
    """Each broken argument is named."""
    with pytest.raises(ValueError, match=message):
        one_workload(**changes)


def test_docstring_examples():
    """The examples in the module's docstrings run."""
    assert doctest.testmod(routing).failed == 0
