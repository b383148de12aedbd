"""What `Belief` expects, against what its processes bring: calibration, mean log score, drops, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

import fleetgym
from fleetgym import Belief, Conditions
from fleetgym.agents.beliefs.belief import Paths
from fleetgym.agents.beliefs.demand import HistoryBelief, ProcessBelief
from fleetgym.agents.forecasters import make_forecaster
from fleetgym.baselines.descent import study
from fleetgym.files.errors import FleetgymError
from fleetgym.model.dynamics.scenario import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance, load_scenarios
from fleetgym.model.scenario import Scenario

STORED = "fleet-v1/dev/{}"
#: Windows ahead, paths, windows between two looks, and windows of a day before the first look.
AHEAD, PATHS, EVERY, WARM = 3, 99, 6, 12


def seen(instance: Instance, scenario: Scenario, paths: int, every: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the last window seen, and rates of the windows after it, (paths, AHEAD, I)."""
    belief = Belief(instance)
    for t in range(instance.num_windows - AHEAD):
        belief.update(t, Conditions.of(scenario, t))
        if t % every == 0 and t >= WARM:
            yield t, belief.sample(paths, AHEAD, np.random.default_rng(t)).workload[:, :, 0]


def days(name: str, count: int) -> tuple[Instance, list[Scenario]]:
    """Return an instance and drawn days; stored ones where real days are resampled."""
    instance = load_instance(STORED.format(name))
    if instance.dynamics.demand.kind == "resampled-history":
        return instance, list(load_scenarios(STORED.format(name)))[:count]
    return instance, [draw_scenario(instance, np.random.default_rng(seed)) for seed in range(count)]


def ranks(name: str, count: int, every: int = EVERY) -> np.ndarray:
    """Return where demand fell among the paths, between 0 and 1: (looks, AHEAD, I)."""
    instance, scenarios = days(name, count)
    found = []
    for scenario in scenarios:
        for t, rates in seen(instance, scenario, PATHS, every):
            came = scenario.rate_rps[t + 1 : t + 1 + AHEAD]
            below = (rates < came).sum(axis=0) + (rates <= came).sum(axis=0)
            found.append((0.5 * below + 0.5) / (PATHS + 1))
    return np.array(found)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("ou-s-101", 0.06),
        ("tail-s-102", 0.06),
        ("multi-s-101", 0.06),
        ("grw-s-101", 0.06),
        ("warp-s-101", 0.1),
    ],
)
def test_what_comes_is_spread_as_expected(name: str, tolerance: float) -> None:
    """The probability integral transform is uniform: its mean is a half, its spread that of a uniform number."""
    found = ranks(name, 6)
    assert abs(found.mean() - 0.5) < tolerance
    assert abs(found.std() / math.sqrt(1 / 12) - 1.0) < 2 * tolerance
    assert 0.1 - tolerance < np.mean(found < 0.1) < 0.1 + tolerance
    assert 0.1 - tolerance < np.mean(found > 0.9) < 0.1 + tolerance


def log_scores(instance: Instance, scenarios: list[Scenario]) -> dict[str, float]:
    """Return mean log densities of log rates `AHEAD` windows ahead, everything taken as normal."""
    names = ("last", "ewma", "kalman")
    spreads = {name: study(instance, name, AHEAD)[1] for name in names}
    least = np.log(0.05 * np.array([w.rate_rps for w in instance.workloads]))
    found: dict[str, list[float]] = {name: [] for name in (*names, "belief")}

    def note(name: str, came: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> None:
        sd = np.maximum(sd, 0.02)
        found[name].append(float(np.mean(-np.log(sd) - 0.5 * ((came - mean) / sd) ** 2)))

    for scenario in scenarios:
        forecasters = {name: make_forecaster(name) for name in names}
        for forecaster in forecasters.values():
            forecaster.reset(instance)
        expected = dict(seen(instance, scenario, 400, 4))
        for t in range(instance.num_windows - AHEAD):
            came = np.maximum(np.log(np.maximum(scenario.rate_rps[t + AHEAD], 1e-9)), least)
            for name, forecaster in forecasters.items():
                forecaster.update(scenario.rate_rps[t])
                if t in expected:
                    logs = np.maximum(np.log(np.maximum(forecaster.predict(AHEAD), 1e-9)), least)
                    note(name, came, logs + spreads[name].mean(axis=0), spreads[name].std(axis=0))
            if t in expected:
                drawn = np.maximum(np.log(np.maximum(expected[t][:, -1], 1e-9)), least)
                note("belief", came, drawn.mean(axis=0), drawn.std(axis=0))
    return {name: float(np.mean(values)) for name, values in found.items()}


@pytest.mark.parametrize("name", ["ou-s-101", "budget-s-102", "trace-m-101", "warp-s-101"])
def test_it_says_more_than_the_forecasters(name: str) -> None:
    """Its mean log score is above that of each forecaster with the errors that this one made on the history."""
    scores = log_scores(*days(name, 3))
    belief = scores.pop("belief")
    assert belief > max(scores.values()), (belief, scores)


def test_drops_begin_and_end_as_often_as_expected() -> None:
    """Forecasts of GPUs that are there, in probability bins, against how often they were; and weights count paths."""
    instance = load_instance(STORED.format("drop-s-101"))
    caps = np.array([p.cap_gpus for p in instance.pools])
    said: dict[str, list[float]] = {"up": [], "down": []}
    was: dict[str, list[float]] = {"up": [], "down": []}
    for seed in range(12):
        scenario, belief = draw_scenario(instance, np.random.default_rng(seed)), Belief(instance)
        for t in range(instance.num_windows - AHEAD):
            belief.update(t, Conditions.of(scenario, t))
            if t % 4:
                continue
            paths = belief.sample(24, AHEAD, np.random.default_rng(t))
            whole = (paths.weight[:, None] * (paths.available[:, -1] == caps)).sum(axis=0)
            for g in np.flatnonzero(belief._availability.drops.drops_per_day > 0):
                state = "up" if scenario.available_gpus[t, g] == caps[g] else "down"
                said[state].append(whole[g])
                was[state].append(scenario.available_gpus[t + AHEAD, g] == caps[g])
    for state, slack in (("up", 0.03), ("down", 0.06)):
        assert len(said[state]) > 100
        assert abs(np.mean(said[state]) - np.mean(was[state])) < slack, state


def test_lengths_are_a_mean_reverting_scale() -> None:
    """Mean and spread of log scales some windows ahead are those of the process, given the one that was seen."""
    instance = load_instance(STORED.format("ou-s-101"))
    belief, process = Belief(instance), instance.dynamics.tokens
    scale = np.full(instance.num_workloads, 1.3)
    belief.update(0, Conditions.from_mapping({"input_scale": scale}, Conditions.nominal(instance)))
    logs = np.log(belief.sample(4000, AHEAD, np.random.default_rng(0)).workload[:, -1, 1])
    sd = np.broadcast_to(process.parameters["log_sd"], scale.shape)
    decay = np.exp(
        -AHEAD * instance.window_s / 60 / np.broadcast_to(process.parameters["time_min"], scale.shape)
    )
    assert logs.mean(axis=0) == pytest.approx(
        decay * (np.log(1.3) + sd**2 / 2) - sd**2 / 2, abs=0.02 * sd.max()
    )
    assert logs.std(axis=0) == pytest.approx(sd * np.sqrt(1 - decay**2), rel=0.05)


def test_a_walk_is_filtered_exactly() -> None:
    """Without jumps and noise the filter is Kalman's, written out here for one workload."""
    instance = load_instance(STORED.format("grw-s-101"))
    belief, rng = ProcessBelief(instance), np.random.default_rng(0)
    sigma = float(np.ravel(instance.dynamics.demand.parameters["sigma"])[0])
    mean = variance = 0.0
    for _ in range(30):
        rate = belief.nominal * rng.lognormal(0.0, 0.1, belief.nominal.size)
        if belief.window >= 0:
            variance += sigma**2
        belief.update(rate)
        noise = 1.0 / (rate[0] * instance.window_s)
        gain = variance / (variance + noise)
        mean += gain * (math.log(rate[0] / belief.nominal[0]) + noise / 2 - mean)
        variance *= 1 - gain
    assert belief.mean[0] == pytest.approx(mean)
    assert belief.variance[0] == pytest.approx(variance)


def test_a_trace_begins_where_its_history_ends() -> None:
    """Before anything was seen, what may come first is near the last windows of the history."""
    instance = load_instance(STORED.format("trace-m-101"))
    belief = HistoryBelief(instance)
    busy = instance.replace(history={"rate_rps": instance.history.rate_rps})
    assert belief.expected(1) == pytest.approx(HistoryBelief(busy).expected(1))
    raised = belief.past.copy()
    raised[-8:] += 1.0
    belief.past = raised
    assert np.all(belief.expected(1) > HistoryBelief(instance).expected(1) + 0.2)


def test_after_a_still_history_what_is_new_stays() -> None:
    """Where nothing ever moved, nothing says that a new level goes away again."""
    instance = load_instance("fleet-v0/toy/two-pools")
    still = np.full((8, 1), instance.workloads[0].rate_rps)
    belief = HistoryBelief(instance.replace(history={"rate_rps": still}))
    belief.update(3.0 * belief.nominal)
    assert np.exp(belief.expected(4)) == pytest.approx(3.0)


@pytest.mark.parametrize("name", ["ou-s-101", "drop-s-101", "trace-m-101", "fastllm-4-4-5-101"])
def test_equal_generators_give_equal_paths(name: str) -> None:
    """Nothing but the instance, what was seen and the generator matters; weights add up to one."""
    instance = load_instance(STORED.format(name))
    scenario = load_scenarios(STORED.format(name))[0]
    drawn = []
    for _ in range(2):
        belief = Belief(instance)
        for t in range(5):
            belief.update(t, Conditions.of(scenario, t))
        drawn.append(belief.sample(7, 4, np.random.default_rng(3)))
    for one, other in zip(*drawn, strict=True):
        assert one.tobytes() == other.tobytes()
    assert drawn[0].weight.sum() == pytest.approx(1.0)
    view = fleetgym.View(instance)
    view.preview(view.fleet, conditions=drawn[0].conditions(6, 3))


def test_what_is_refused() -> None:
    """Windows out of order, and counts below one."""
    belief = Belief("fleet-v0/toy/two-pools")
    nominal = Conditions.nominal(belief.instance)
    with pytest.raises(FleetgymError, match="window is 1; expected 0"):
        belief.update(1, nominal)
    with pytest.raises(FleetgymError, match="paths is 0; expected"):
        belief.sample(0, 1, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["fleet-v0/toy/two-pools", "fleet-v0/toy/drop", "fleet-v0/dev/trace-m-001"])
def test_its_mean_is_a_forecaster(name: str) -> None:
    """`belief` can be named wherever a forecaster can."""
    instance = load_instance(name)
    forecaster = make_forecaster("belief")
    forecaster.reset(instance)
    before = forecaster.predict(2)
    for _ in range(3):
        forecaster.update(2.0 * before)
    assert np.all(forecaster.predict(2) > before)
    assert np.array_equal(forecaster.predict(2), forecaster.predict(2))


def test_means_of_paths_are_the_same_on_every_processor() -> None:
    """They are summed path by path, to the last bit, so a tie is decided alike everywhere."""
    rng = np.random.default_rng(3)
    weight, of = rng.dirichlet(np.ones(12)), rng.random((12, 5, 7))
    in_order = np.zeros((5, 7))
    for k in range(12):
        in_order += weight[k] * of[k]
    paths = Paths(of, of, of, weight)
    np.testing.assert_array_equal(paths.mean(of), in_order)
    assert paths.mean(of > 2.0).max() == 0.0
