"""The routing kernel solves whatever LPs an environment makes: drifting data, changing fleets, whole episodes."""

from __future__ import annotations

import numpy as np
import pytest
import routing_lps
from routing_lps import KINDS, certify

import fleetgym
from fleetgym.kernels.routing import (
    NUMERIC_FAILURE,
    new_basis,
    new_workspace,
    remap_basis,
    route,
    solve_routing,
)
from fleetgym.model.conditions import Conditions
from fleetgym.model.window import window_model

DEV = [name for name in fleetgym.list_instances("fleet-v0") if "/dev/" in name]
SOME = [name for name in DEV if name.endswith("-001")]


def random_fleets(instance, windows, rng):
    """Yield targets that now stay, now change a little, now altogether, some of them close to empty."""
    space = fleetgym.ActionSpace(instance)
    action = space.from_fleet(instance.nominal_fleet)
    for _ in range(windows):
        redraw = rng.random(action.size) < rng.choice([0.0, 0.05, 0.3, 1.0], p=[0.4, 0.3, 0.2, 0.1])
        off = rng.random(action.size) < rng.choice([0.1, 0.3, 0.9])
        action = np.where(redraw, np.where(off, 0, rng.integers(0, space.nvec)), action)
        yield space.to_fleet(action)


def play_random(instance_id, windows, seed):
    """Play one episode of random fleets; a routing that is not solved raises."""
    instance = fleetgym.load_instance(instance_id)
    model, rng = window_model(instance), np.random.default_rng(seed)
    stored = fleetgym.load_scenarios(instance_id)
    scenario, state, router = stored[seed % len(stored)], model.initial_state(), model.new_router()
    for t, fleet in enumerate(random_fleets(instance, min(windows, instance.num_windows), rng)):
        result = model.step(state, fleet, Conditions.of(scenario, t), router)
        assert router.workspace.pick[5] == 0.0, f"{instance_id}: restart in window {t}"
        assert np.isfinite(result.terms_usd).all()


@pytest.mark.parametrize("instance_id", SOME)
def test_random_fleets_are_always_routed(instance_id):
    """One episode of each family and size."""
    play_random(instance_id, 288, 1)


@pytest.mark.slow
@pytest.mark.parametrize("instance_id", DEV)
def test_many_random_fleets_are_always_routed(instance_id):
    """Eight episodes of each dev instance."""
    for seed in range(8):
        play_random(instance_id, 288, 10 + seed)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["gh-rolling", "agh-rolling"])
def test_rolling_planners_are_always_routed(agent):
    """Whole episodes of planners that change the fleet by what they expect."""
    suite = [name for name in SOME if "drop" in name or "ou" in name]
    results = fleetgym.evaluate([agent], suite, scenarios=[0])
    assert [episode.failure for episode in results.episodes] == [None] * len(suite)


@pytest.mark.parametrize("kind", ["slack", "tight", "overloaded", "slo_infeasible", "dear_overload"])
def test_drifting_coefficients(kind):
    """Where all coefficients move, the old basis is seldom dual feasible; warm answers are certified too."""
    rng = np.random.default_rng(11)
    for workloads, configurations in ((6, 7), (10, 10), (20, 30)):
        base = KINDS[kind](rng, workloads, configurations)
        basis, work = new_basis(workloads, configurations), new_workspace(workloads, configurations)
        for lp in routing_lps.drifting_windows(rng, base, 40, token_sd=0.15, factor_sd=0.05):
            warm, cold = solve_routing(*lp, basis=basis, work=work), solve_routing(*lp)
            violation, gap = certify(lp, warm)
            assert (warm.status, warm.restarts) == (0, 0)
            assert violation <= 1e-9
            assert gap <= 1e-9
            assert warm.objective == pytest.approx(cold.objective, rel=1e-9)


def test_fleets_and_coefficients_change_together():
    """A basis that is remapped to another fleet, on new data, is repaired."""
    rng = np.random.default_rng(12)
    base = KINDS["overloaded"](rng, 8, 12)
    basis, work, active = new_basis(8, 12), new_workspace(8, 12), np.arange(12)
    for lp in routing_lps.drifting_windows(rng, base, 150, token_sd=0.15, factor_sd=0.05):
        new = np.flatnonzero(rng.random(12) < 0.6)
        remap_basis(basis, active, new)
        active = new
        part = lp._replace(
            cost=lp.cost[:, new], delay=lp.delay[:, new], error=lp.error[:, new], use=lp.use[:, :, new],
            capacity=lp.capacity[:, new], width=lp.width[new], slope=lp.slope[new], allowed=lp.allowed[:, new],
        )  # fmt: skip
        solution = solve_routing(*part, basis=basis, work=work)
        assert (solution.status, solution.restarts) == (0, 0)
        assert max(certify(part, solution)) <= 1e-9


def absurd_windows(seed):
    """Yield three LPs of one size whose coefficients span up to 24 orders of magnitude, each."""
    rng = np.random.default_rng(seed)
    workloads, configurations = (int(n) for n in rng.integers(2, 9, 2))
    reach = rng.choice([3, 6, 9, 12])

    def wide(*shape):
        return 10.0 ** rng.uniform(-reach, reach, shape)

    shape = workloads, configurations
    for _ in range(3):
        slope = np.sort(wide(configurations, 3), axis=1)
        cost, unserved = wide(*shape), wide(workloads)
        delay, error = (wide(*shape) * rng.choice([-1, 1], shape) for _ in range(2))
        use = wide(3, *shape) * (rng.random((3, *shape)) < 0.8)
        capacity, width = wide(3, configurations), wide(configurations, 3)
        allowed = np.ones(shape, dtype=np.uint8)
        yield routing_lps.RoutingLP(
            cost, unserved, delay, error, use, capacity, width, slope, allowed
        )  # fmt: skip


def test_a_start_that_leads_nowhere_is_given_up():
    """Where a warm start fails for round-off, the solver starts again, cold, and its answer is certified."""
    rescued = 0
    for seed in (63, 136, 342, 410, 419, 686):  # found by trying hundreds
        basis, work = new_basis(8, 8), new_workspace(8, 8)
        for lp in absurd_windows(seed):
            solution = solve_routing(*lp, basis=basis, work=work)
            if solution.restarts > 0 and solution.status != NUMERIC_FAILURE:
                assert max(certify(lp, solution)) <= 1e-8
                rescued += 1
    assert rescued >= 3


def test_a_solver_that_finds_nothing_says_so():
    """On data over 24 orders of magnitude there is a failure in the end, not an answer."""
    failures = 0
    for seed in (2010994015, 1497469300, 2106571096):
        basis, work = new_basis(8, 8), new_workspace(8, 8)
        for lp in absurd_windows(seed):
            solution = solve_routing(*lp, basis=basis, work=work)
            assert solution.restarts == 2 or solution.status != NUMERIC_FAILURE
            failures += solution.status == NUMERIC_FAILURE
    assert failures >= 1


def test_data_without_meaning_are_not_reported_as_solved():
    """`route` trusts its inputs, but no answer without a finite cost is called optimal."""
    lp = KINDS["tight"](np.random.default_rng(13), 3, 3)
    lp = lp._replace(unserved=np.full(3, np.inf), capacity=np.zeros((3, 3)))
    out = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), (np.empty((3, 3)), np.empty((3, 3)))
    assert route(*lp, new_basis(3, 3), new_workspace(3, 3), *out)[0] == NUMERIC_FAILURE


def test_an_old_basis_may_name_segments_that_are_gone() -> None:
    """A row tight at its third breakpoint, whose segments then vanish, is not tied to a stale breakpoint."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        count_w, count_c = 4, 3
        basis, work = new_basis(count_w, count_c), new_workspace(count_w, count_c)
        for _ in range(12):
            use = rng.uniform(0.2, 3.0, (3, count_w, count_c))
            width = rng.uniform(0.05, 0.6, (count_c, 3)) * (rng.random((count_c, 1)) < 0.5)
            problem = {
                "cost": rng.uniform(0.0, 0.02, (count_w, count_c)),
                "unserved": rng.uniform(0.5, 3.0, count_w),
                "delay": rng.uniform(-0.8, 0.5, (count_w, count_c)),
                "error": rng.uniform(-0.6, 1.2, (count_w, count_c)),
                "use": use,
                "capacity": np.stack([np.full(count_c, 40.0)] * 2 + [rng.uniform(1.0, 3.0, count_c)]),
                "width": width,
                "slope": np.sort(rng.uniform(0.0, 0.5, (count_c, 3)), axis=1),
            }
            warm = solve_routing(**problem, basis=basis, work=work)
            cold = solve_routing(**problem)
            assert warm.objective == pytest.approx(cold.objective, rel=1e-10)
            np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
