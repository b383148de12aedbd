"""The bound on agents without the future is below their optimum on small trees, and knows the exact law of demand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from test_bounds import spoil
from toys import affine, configuration, make_instance, pool, random_instance, random_scenario, workload

from fleetgym.bounds import hindsight, hindsight_bound, nonanticipative_bound
from fleetgym.bounds.exact import ReferenceModel, _all_actions, _num_options
from fleetgym.bounds.horizon import HorizonProgram
from fleetgym.bounds.nonanticipative import day_and_redraws, redrawn
from fleetgym.bounds.redraws import Drawn, drops_are_redrawn, redraws_of
from fleetgym.bounds.relaxation import EpisodeRelaxation, relax
from fleetgym.files.errors import FleetgymError
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.dynamics.scenario import drops_of
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROFILE, Process
from fleetgym.model.scenario import Scenario
from fleetgym.reference import action_to_target

LEVELS = np.array([0.3, 1.9])  # of demand, in two states
STAYS = 0.7  # probability that the state stays
DROPS = np.array([0.8, 0.2])  # probabilities that no drop begins, and that one does
MOST_TRANSITIONS = 3_000
#: Instances that take seconds each; those from 15 on are for `make verify-all`.
LATER_SEEDS = [
    pytest.param(seed, marks=[pytest.mark.slow, *([pytest.mark.full] if seed >= 15 else [])])
    for seed in range(5, 40)
]


class Chain:
    """Demand that moves between two levels, as the redraws of one path of it: every level, with its probability.

    With `gpus`, the availability without a drop and with one, (2, T, G), every window has both, by `DROPS`.
    """

    def __init__(self, base: np.ndarray, path: tuple[int, ...], gpus: np.ndarray | None = None):
        self.base, self.path, self.gpus = base, path, gpus

    def draw(self, window: int, lag: int) -> Drawn:
        """Return both levels, and how likely they are, given the state `lag` windows before."""
        last = window - lag
        weights = np.full(2, 0.5) if last < 0 else np.eye(2)[self.path[last]]
        for _ in range(lag if last >= 0 else 0):
            weights = weights @ np.array([[STAYS, 1 - STAYS], [1 - STAYS, STAYS]])
        rates = LEVELS[:, None] * self.base[window]
        if self.gpus is None or window == 0:
            return Drawn(rates, weights)
        both = np.outer(weights, DROPS).ravel()
        return Drawn(np.repeat(rates, 2, axis=0), both, np.tile(self.gpus[:, window], (2, 1)))


def with_demand(scenario: Scenario, levels: np.ndarray) -> Scenario:
    """Return a scenario whose demand is multiplied, window by window."""
    return dataclasses.replace(scenario, rate_rps=scenario.rate_rps * levels[:, None])


def optimum_without_the_future(
    instance: Instance, scenario: Scenario, gpus: np.ndarray | None = None
) -> float:
    """Return the least mean cost of an agent that sees the state of demand one window late: a dynamic program.

    It knows lengths, factors and prices in advance, which makes its optimum lower. It knows availability, too, unless
    `gpus` has one without a drop and one with, (2, T, G): then every window but the first draws one by `DROPS`.
    """
    windows = instance.num_windows
    supplies = [scenario] if gpus is None else [dataclasses.replace(scenario, available_gpus=a) for a in gpus]
    models = [  # by supply, then by demand
        [ReferenceModel(instance, with_demand(s, np.full(windows, level))) for level in LEVELS]
        for s in supplies
    ]
    actions = [action_to_target(instance, action) for action in _all_actions(instance)]
    known: dict[object, float] = {}
    operating: dict[object, float] = {}
    transitions = 0

    def operate(serving: tuple[int, ...], window: int, state: int) -> float:
        key = serving, window, state
        if key not in operating:
            operating[key] = models[0][state].operating_usd(serving, window)
        return operating[key]

    def value(fleet: object, window: int, seen: int | None) -> float:
        nonlocal transitions
        if window == windows:
            return 0.0
        key = models[0][0].key(fleet), window, seen
        if key not in known:
            transitions += len(actions)
            if transitions > MOST_TRANSITIONS:
                pytest.skip("too many states for the dynamic program")
            chance = (0.5, 0.5) if seen is None else (STAYS, 1 - STAYS) if seen == 0 else (1 - STAYS, STAYS)
            best = math.inf
            for target in actions:
                cost = 0.0
                for supply, likely in enumerate(DROPS if gpus is not None and window else (1.0,)):
                    step = models[supply][0].step(fleet, target, window)
                    cost += likely * step.fixed_usd
                    for d, p in enumerate(chance):
                        later = value(step.state, window + 1, d)
                        cost += likely * p * (operate(step.serving, window, d) + later)
                best = min(best, cost)
            known[key] = best
        return known[key]

    return value(models[0][0].start(), 0, None)


def paths(windows: int):
    """Yield every path of the chain and how likely it is."""
    for path in itertools.product(range(2), repeat=windows):
        moves = sum(a != b for a, b in itertools.pairwise(path))
        yield path, 0.5 * STAYS ** (windows - 1 - moves) * (1 - STAYS) ** moves


def toy(seed: int, least_startup: int) -> tuple[Instance, Scenario]:
    """Return a random instance of four windows whose configurations take at least so long to start."""
    instance = random_instance(seed, num_windows=4)
    if math.prod(_num_options(instance)) > 60:
        pytest.skip("too many actions for the dynamic program")
    parts = [
        dataclasses.replace(c, startup_windows=max(least_startup, min(2, c.startup_windows)))
        for c in instance.configurations
    ]
    return instance.replace(configurations=parts), random_scenario(instance, seed)


def best_bound(problem: EpisodeRelaxation) -> float:
    """Return the better of the bounds with the first rows for late requests, and with raised ones, USD."""
    rows = hindsight.raised_rows(problem, "ipx", np.arange(problem.max_replicas.size), 1)
    return max(hindsight.horizon_bound(p, "ipx")[0].bound_usd for p in (problem, rows))


@pytest.mark.parametrize("seed", [*range(5), *LATER_SEEDS])
@pytest.mark.parametrize("least_startup", [0, 1])
def test_the_bound_is_below_the_optimum_of_agents_without_the_future(seed: int, least_startup: int) -> None:
    """Shared pools, groups, budgets, drops, start-ups of no window or more: over all paths, with the exact law."""
    instance, scenario = toy(seed, least_startup)
    optimum = optimum_without_the_future(instance, scenario)
    bound = 0.0
    for path, chance in paths(4):
        day = with_demand(scenario, LEVELS[list(path)])
        problem = redrawn(relax(instance, day), day, Chain(scenario.rate_rps, path))
        bound += chance * best_bound(problem)
    assert 0.0 < bound <= optimum + 1e-9 * max(1.0, optimum)


@pytest.mark.parametrize("seed", [4, *LATER_SEEDS])
def test_the_bound_is_below_the_optimum_of_agents_that_know_no_drops(seed: int) -> None:
    """Over all paths of demand and drops; so is the bound of who is told the drops."""
    instance, scenario = toy(seed, 1)
    node = instance.pools[0].gpus_per_node
    fewer = np.array(scenario.available_gpus)
    fewer[:, 0] = fewer[:, 0] // 2 // node * node
    gpus = np.array([np.broadcast_to(a, (4, instance.num_pools)) for a in (scenario.available_gpus, fewer)])
    optimum = optimum_without_the_future(instance, scenario, gpus)
    bound = told = 0.0
    for (path, chance), drops in itertools.product(paths(4), itertools.product(range(2), repeat=3)):
        supply = np.array([gpus[d, t] for t, d in enumerate((0, *drops))])
        day = dataclasses.replace(with_demand(scenario, LEVELS[list(path)]), available_gpus=supply)
        chance = chance * math.prod(DROPS[list(drops)])
        for anew in (None, gpus):
            problem = redrawn(relax(instance, day), day, Chain(scenario.rate_rps, path, anew))
            found = chance * best_bound(problem)
            bound, told = (bound + found, told) if anew is not None else (bound, told + found)
    assert min(told, bound) > 0.0
    assert max(told, bound) <= optimum + 1e-9 * max(1.0, optimum)


@pytest.mark.parametrize("seed", [0, 8])
def test_any_prices_give_a_valid_bound(seed: int) -> None:
    """LimitPrices from a solver that went wrong, and configurations left out, weaken the bound and never break it."""
    instance, scenario = toy(seed, 1)
    optimum, rng = optimum_without_the_future(instance, scenario), np.random.default_rng(seed)
    count = instance.num_configurations
    for scale in (0.0, 0.3, 2.0):
        bound = 0.0
        for path, chance in paths(4):
            day = with_demand(scenario, LEVELS[list(path)])
            problem = redrawn(relax(instance, day), day, Chain(scenario.rate_rps, path))
            outside = np.flatnonzero(rng.random(count) < 0.5)
            found = spoil(HorizonProgram(problem, np.arange(count)).solve(), rng, scale)
            bound += chance * hindsight._certify(problem, found, outside)[0]
        assert bound <= optimum + 1e-9 * max(1.0, optimum)


def guess() -> Instance:
    """Return an instance in which nobody who sees demand late can do well, and everybody who knows it can."""
    return make_instance(
        [pool("p", 4)],
        [configuration("A", {"p": 1}, startup_windows=1, compute_tflops=100.0)],
        ["A"],
        [workload("w", unserved_usd=0.05)],
        {"work_tflop": affine(100.0), "delay_s": affine(1.0)},
        num_windows=6,
    )


def test_ignorance_costs_what_it_must() -> None:
    """Where demand is a coin in every window, the bound is far above what somebody pays who knows it."""
    instance = guess()
    scenario = random_scenario(instance, 0)
    ones = {
        f.name: np.ones_like(getattr(scenario, f.name))
        for f in dataclasses.fields(scenario)
        if f.name != "id"
    }
    scenario = dataclasses.replace(scenario, **{**ones, "available_gpus": np.full((6, 1), 4)})
    optimum = optimum_without_the_future(instance, scenario)
    bound = known = 0.0
    for path, chance in paths(6):
        day = with_demand(scenario, LEVELS[list(path)])
        problem = redrawn(relax(instance, day), day, Chain(scenario.rate_rps, path))
        bound += chance * hindsight.horizon_bound(problem, "ipx")[0].bound_usd
        known += chance * hindsight_bound(instance, day).bound_usd
    assert 1.005 * known < bound <= optimum + 1e-9


# -- the law of demand


def process(kind: str) -> Instance:
    """Return a small instance with a process of this kind that has everything in it."""
    parameters = {
        "grw": {"sigma": 0.2, "dispersion": 3.0},
        "diurnal-ou": {
            "daily_amplitude": 0.2,
            "daily_peak_h": 14.0,
            "ou_sd": [0.3, 0.2],
            "ou_time_min": [30.0, 8.0],
            "ou_common": 0.5,
            "noise_sd": [0.1, 0.0],
            "jumps_per_day": 60.0,
            "jump_log_mean": 0.7,
            "jump_hold_min": 12.0,
            "dispersion": 2.0,
        },
    }
    level = {name: value for name, value in parameters["diurnal-ou"].items() if not name.startswith("daily")}
    profile = {name: 0.3 * name.endswith(("_cos_1", "_sin_2")) for name in PROFILE}
    parameters["weekly-ou"] = {**profile, "weekend_level": -0.7, "first_day": 4, **level}
    instance = make_instance(
        [pool("p", 4)],
        [configuration("A", {"p": 1}, startup_windows=1)],
        ["A"],
        [workload("v"), workload("w", 0.4)],
        {"work_tflop": affine(100.0), "delay_s": affine(1.0)},
        num_windows=6,
    )
    dynamics = dataclasses.replace(instance.dynamics, demand=Process(kind=kind, parameters=parameters[kind]))
    return instance.replace(dynamics=dynamics)


@pytest.mark.parametrize("kind", ["grw", "diurnal-ou", "weekly-ou"])
@pytest.mark.parametrize("lag", [1, 2])
def test_redrawn_demand_has_the_law_of_demand(kind: str, lag: int) -> None:
    """Means of 20 products with what was known before agree, over 1,500 days, within 4.5 standard errors."""
    instance, days = process(kind), 1500
    differences = []
    for k in range(days):
        day = draw_scenario(instance, np.random.default_rng([1, k])).rate_rps
        redraws = redraws_of(instance, np.random.default_rng([1, k]), 2, np.random.default_rng([2, k]))
        for t in (0, 4):
            drawn, weights, _ = redraws.draw(t, lag)
            before = day[t - lag] if t >= lag else np.ones(2)
            each = np.concatenate([moments(day[t], before), -weights @ [moments(n, before) for n in drawn]])
            differences.append(each[: each.size // 2] + each[each.size // 2 :])
    for part in (differences[::2], differences[1::2]):
        found = np.array(part)
        error = np.maximum(found.std(axis=0) / np.sqrt(days), 1e-12)
        assert np.abs(found.mean(axis=0) / error).max() < 4.5


def dropping() -> Instance:
    """Return a small instance whose pools drop often, two of them nearly together; one never does."""
    instance = make_instance(
        [pool("p", 8), pool("q", 6), pool("r", 5, region="far"), pool("s", 2)],
        [configuration("A", {"p": 1}, startup_windows=1)],
        ["A"],
        [workload("v")],
        {"work_tflop": affine(100.0), "delay_s": affine(1.0)},
        num_windows=6,
    )
    parameters = {
        "drops_per_day": [60.0, 40.0, 80.0, 0.0],
        "depth_a": 2.0,
        "depth_b": 1.0,
        "duration_log_mean_min": 2.0,
        "duration_log_sd": 0.7,
        "first_window_share": 0.6,
        "copula_same_region": 0.9,
        "copula_other_region": 0.4,
    }
    dynamics = dataclasses.replace(
        process("diurnal-ou").dynamics, availability=Process(kind="drops", parameters=parameters)
    )
    demand = Process(kind="grw", parameters={"sigma": 0.2, "dispersion": 3.0})
    return instance.replace(dynamics=dataclasses.replace(dynamics, demand=demand))


def test_redrawn_drops_have_the_law_of_drops() -> None:
    """Means of 26 products with what was known before agree, over 1,500 days, within 4.5 standard errors."""
    instance, differences = dropping(), []
    for k in range(1500):
        day, redraws = day_and_redraws(instance, k, 1, seed=0)
        for t in (1, 5):
            drawn = redraws.draw(t, 2)
            assert drawn.available_gpus is not None
            now, before = day.available_gpus[t].astype(float), day.available_gpus[t - 1].astype(float)
            anew = [supplies(gpus.astype(float), before) for gpus in drawn.available_gpus]
            differences.append(supplies(now, before) - drawn.weights @ anew)
    for part in (differences[::2], differences[1::2]):
        found = np.array(part)
        error = np.maximum(found.std(axis=0) / np.sqrt(len(found)), 1e-12)
        assert np.abs(found.mean(axis=0) / error).max() < 4.5


def supplies(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return products of the GPUs of a window with those of the one before."""
    pairs = np.outer(now, before).ravel()
    return np.concatenate([pairs, now, now**2, [now[0] * now[1], float((now < before).all())]])


def test_the_chance_that_a_drop_begins() -> None:
    """The integral is what 400,000 draws say, for every set of whole pools."""
    drops = drops_of(dropping())
    begins = drops.normals(np.random.default_rng(0), 400_000) < drops.threshold(300.0)
    for whole in itertools.product((False, True), repeat=4):
        share = (begins & np.array(whole)).any(axis=1).mean()
        assert drops.chance_to_begin(whole, 300.0) == pytest.approx(
            share, abs=4.5 * math.sqrt(0.25 / 400_000)
        )


def test_drops_that_somebody_knows_stay() -> None:
    """Pools that warn, and fleets that change in the window of the drop."""
    instance = dropping()
    assert drops_are_redrawn(instance)
    at_once = [dataclasses.replace(c, startup_windows=0) for c in instance.configurations]
    assert not drops_are_redrawn(instance.replace(configurations=at_once))
    assert not drops_are_redrawn(process("grw"))


def moments(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return products of rates, and of their logarithms, with what was seen before."""
    logs = np.log(now + 0.01)
    return np.concatenate(
        [now, now**2, logs, logs**2, [now.prod(), logs.prod(), float((now < 0.2).all())]]
        + [now * before, logs * np.log(before + 0.01), now * before[::-1]]
    )


def test_days_are_the_same_however_many_are_drawn() -> None:
    """And with the same arguments so are the numbers."""
    instance = process("diurnal-ou")
    few, many = (nonanticipative_bound(instance, days=d, samples=1) for d in (1, 2))
    assert few.days_usd[0] == many.days_usd[0]
    assert (few.scenarios[0].rate_rps == many.scenarios[0].rate_rps).all()
    assert np.isnan(few.standard_error_usd)


def test_demand_without_a_law_is_refused() -> None:
    """Days of a history could be anything."""
    with pytest.raises(
        FleetgymError, match="no law with parameters; expected one of diurnal-ou, weekly-ou, grw"
    ):
        nonanticipative_bound("fleet-v0/dev/trace-m-001", days=1)


def test_who_sees_the_window_has_nothing_to_guess() -> None:
    """Lead 0, and fleets that start at once."""
    instance = guess()
    parts = [dataclasses.replace(c, startup_windows=0) for c in instance.configurations]
    at_once = instance.replace(lead=0, configurations=parts, dynamics=process("grw").dynamics)
    with pytest.raises(FleetgymError, match="knows the window that it decides on"):
        nonanticipative_bound(at_once, days=1)
