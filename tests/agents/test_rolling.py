"""Forecasters and the wrappers that make agents of planners."""

from __future__ import annotations

import numpy as np
import pytest
from toys import configuration, make_instance, nominal_scenario, pool

import fleetgym
from fleetgym.agents.agent import Agent
from fleetgym.agents.forecasters import FORECASTERS, Kalman, Seasonal, make_forecaster
from fleetgym.agents.rolling import Rolling, Static
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model.planning import Plan, Snapshot
from fleetgym.model.scenario import Scenario

TOY = "fleet-v0/toy/startup"


class Wants:
    """A planner that wants the fleets it was given, in turn, and remembers its snapshots."""

    def __init__(self, *fleets: list[int]):
        self.fleets, self.seen = list(fleets), []

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the next fleet."""
        self.seen.append(snapshot)
        return Plan(fleet=np.array(self.fleets[min(len(self.seen), len(self.fleets)) - 1]))


def play(
    agent: Agent, instance: str | fleetgym.Instance = TOY, scenario: int | Scenario | None = None
) -> list[list[int]]:
    """Return the targets over a scenario; by default over stored scenario 0, or over a drawn one."""
    env = FleetAllocEnv(instance)
    if scenario is None and isinstance(instance, str):
        scenario = 0
    options = {"scenario": scenario}
    observation, info = env.reset(seed=0, options=options)
    view, targets, done = fleetgym.View(env.instance), [], False
    view.update(info)
    agent.reset(view, seed=0)
    while not done:
        action = agent.act(observation, info)
        targets.append(env.actions.to_fleet(action).tolist())
        observation, _, done, _, info = env.step(action)
        view.update(info)
    return targets


def test_static_plans_once() -> None:
    """Static asks once, for nominal demand with the margin, and never changes its mind."""
    planner = Wants([2], [3])
    targets = play(Static(planner, margin=0.5))
    assert targets == [[2]] * len(targets)
    assert len(planner.seen) == 1
    nominal = fleetgym.load_instance(TOY).workloads[0].rate_rps
    assert planner.seen[0].rate_rps.tolist() == [1.5 * nominal]


def test_rolling_plans_on_schedule() -> None:
    """`every=4` asks in windows 0, 4, 8; without keep_best each answer is taken."""
    planner = Wants([1], [2], [3])
    targets = play(Rolling(planner, every=4, keep_best=False))
    assert [s.window for s in planner.seen] == [0, 4, 8]
    assert targets == [[1]] * 4 + [[2]] * 4 + [[3]] * (len(targets) - 8)


def test_keep_best_refuses_what_does_not_pay() -> None:
    """A planner that wants to give up is not listened to."""
    targets = play(Rolling(Wants([0]), every=1, keep_best=True))
    assert all(target == [1] for target in targets)


def test_a_grant_is_priced_by_hand() -> None:
    """Its fee, and its rent while it starts, over the windows until it must have paid for itself."""
    instance, planner = fleetgym.load_instance(TOY), Wants([1])
    play(Rolling(planner, every=2, switch_cost=3.0, payback_windows=5))
    (one,), fee_usd = instance.configurations, fleetgym.View(instance).snapshot().startup_usd[0]
    assert (one.startup_windows, instance.num_windows) == (2, 10)
    for snapshot, waits, payback in zip(planner.seen, (0, 2, 2, 2, 2), (5, 5, 5, 4, 2), strict=True):
        rent_usd = waits * snapshot.hold_usd[0]
        assert snapshot.startup_usd[0] == pytest.approx(3.0 * (fee_usd + rent_usd) / payback)


def test_what_a_drop_took_is_no_alternative() -> None:
    """After a drop a new fleet has to beat what is left, not the cheaper one that was wanted."""
    instance = make_instance(
        [pool("cheap", 1, price_usd_per_gpu_h=1.0), pool("dear", 1, price_usd_per_gpu_h=5.0)],
        [configuration("small", {"cheap": 1}), configuration("large", {"dear": 1})],
        nominal_fleet=[1, 0],
        num_windows=4,
    )
    scenario = nominal_scenario(instance, available_gpus=[[1, 1], [1, 1], [0, 1], [0, 1]])
    view = fleetgym.View(instance)
    wanted, second, left = (view.steady_cost_usd(fleet) for fleet in ([1, 0], [0, 1], [0, 0]))
    assert wanted < second < left
    targets = play(Rolling(Wants([1, 0], [1, 0], [1, 0], [0, 1])), instance, scenario)
    assert targets == [[1, 0], [1, 0], [1, 0], [0, 1]]


def test_switch_cost_delays_a_change() -> None:
    """The dearer a switch counts, the fewer changes are made."""
    changes = []
    for switch_cost in (0.0, 1.0, 1e9):
        agent = fleetgym.make_agent("agh-rolling", switch_cost=switch_cost, every=3)
        targets = play(agent, "fleet-v0/dev/ou-s-001")
        changes.append(sum(a != b for a, b in zip(targets, targets[1:], strict=False)))
    assert changes[0] >= changes[1] >= changes[2] == 0


@pytest.mark.parametrize("name", FORECASTERS)
def test_forecasters_learn_a_constant(name: str) -> None:
    """After many equal windows every forecaster is near that rate, and never negative or infinite."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    forecaster = make_forecaster(name)
    forecaster.reset(instance)
    rates = np.array([w.rate_rps for w in instance.workloads])
    for _ in range(200):
        forecaster.update(rates)
    for ahead in (1, 6, 10**9):
        predicted = forecaster.predict(ahead)
        assert predicted.shape == rates.shape
        assert np.all(np.isfinite(predicted))
        assert np.all(predicted >= 0.2 * rates)
        assert np.all(predicted <= 6.0 * rates)


def test_kalman_beats_last_on_noisy_mean_reverting_demand() -> None:
    """On its own kind of process the filter's squared error is below that of the last value."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    history = instance.history.rate_rps
    kalman, errors = Kalman(), []
    kalman.reset(instance)
    for t in range(600):
        kalman.update(history[t])
        ahead = history[t + 6]
        errors.append(
            [np.mean(np.log(kalman.predict(6) / ahead) ** 2), np.mean(np.log(history[t] / ahead) ** 2)]
        )
    kalman_error, last_error = np.mean(errors, axis=0)
    assert kalman_error < 0.9 * last_error


def weeks(logs: np.ndarray) -> fleetgym.Instance:
    """Return an instance with five-minute windows whose history has these log rates."""
    rates = np.exp(logs)[:, None]
    instance = make_instance([pool("p", 4)], [configuration("a", {"p": 1})])
    workloads = [{**instance.to_dict()["workloads"][0], "rate_rps": float(rates.mean())}]
    return instance.replace(history={"rate_rps": rates.tolist()}, workloads=workloads)


def test_seasonal_knows_the_time_of_day() -> None:
    """Of demand with a daily course it foretells hours ahead what `kalman` cannot; of one without it is `kalman`."""
    windows, rng = np.arange(15 * 288), np.random.default_rng(1)
    noise = 0.2 * rng.normal(size=windows.size)
    course = np.sin(2.0 * np.pi * windows / 288.0)
    errors = {}
    for name, logs in {"course": course + noise, "none": noise}.items():
        instance = weeks(logs[: 14 * 288])
        for forecaster in (Seasonal(), Kalman()):
            forecaster.reset(instance)
            missed = []
            for t in range(14 * 288, 15 * 288 - 48):
                forecaster.update(np.exp(logs[t : t + 1]))
                missed.append(logs[t + 48] - np.log(forecaster.predict(48)[0]))
            errors[name, type(forecaster)] = float(np.mean(np.square(missed)))
    assert errors["course", Seasonal] < 0.06 < 0.3 < errors["course", Kalman]
    assert errors["none", Seasonal] == pytest.approx(errors["none", Kalman], rel=0.05)


def test_seasonal_knows_weekdays_that_repeat() -> None:
    """After two weeks with quiet Sundays the next Sunday is quiet; after one, or two that differ, nobody knows."""
    day = np.zeros(288)
    quiet = [*[day] * 6, day - 1.0]
    forecasts = {}
    for name, days in {"two": quiet * 2, "one": quiet, "differ": [*quiet, *quiet[::-1]]}.items():
        forecaster = Seasonal()
        forecaster.reset(weeks(np.concatenate(days)))
        forecasts[name] = [float(np.log(forecaster.predict(288 * k + 1)[0])) for k in range(7)]
    assert np.ptp(forecasts["two"][:6]) < 0.01
    assert forecasts["two"][6] == pytest.approx(forecasts["two"][0] - 1.0, abs=0.01)
    assert max(np.ptp(forecasts["one"]), np.ptp(forecasts["differ"])) < 1e-12


def test_seasonal_needs_no_whole_day() -> None:
    """A history that is shorter than a day has no course."""
    forecaster, kalman = Seasonal(), Kalman()
    for some in (forecaster, kalman):
        some.reset(weeks(np.linspace(0.0, 1.0, 20)))
        some.update(np.array([2.0]))
    assert forecaster.predict(3) == kalman.predict(3)


def test_bad_arguments_are_named() -> None:
    """Arguments out of range and unknown forecasters are refused."""
    nan = float("nan")
    for arguments in (
        {"every": 0},
        {"margin": -1.0},
        {"margin": nan},
        {"switch_cost": -1.0},
        {"forecaster": 3},
        {"forecaster": Kalman},
    ):
        with pytest.raises(FleetgymError):
            Rolling(Wants([1]), **arguments)
    with pytest.raises(UnknownNameError, match="kalman"):
        make_forecaster("kalmann")
    for planner in ("agh", Wants):
        with pytest.raises(FleetgymError, match="planner is .*; expected an object with plan"):
            Rolling(planner)


def test_descent_pays_for_its_changes() -> None:
    """On a calibrated day the local search beats holding the nominal fleet."""
    costs = {}
    for name in ("hold", "descent"):
        results = fleetgym.evaluate([name], "fleet-v0/dev/ou-s-001", scenarios=[0])
        costs[name] = results.episodes[0].cost_usd
    assert costs["descent"] < costs["hold"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 2.5},
        {"every": "x"},
        {"every": True},
        {"payback_windows": 1.5},
        {"keep_best": "no"},
        {"margin": "x"},
        {"switch_cost": "x"},
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_named(wrong: dict) -> None:
    """Windows are counted in whole numbers, of NumPy's too; flags are flags."""
    with pytest.raises(FleetgymError, match=f"{next(iter(wrong))} is .*; expected"):
        Rolling(Wants([1]), **wrong)
    Rolling(Wants([1]), every=np.int64(2), keep_best=np.bool_(True))


@pytest.mark.parametrize("keep_best", [True, False])
@pytest.mark.parametrize("fleet", [[10**9], [-1], [0.5], [float("nan")], [1, 1]], ids=str)
def test_plans_that_no_action_wants_are_refused(fleet: list, keep_best: bool) -> None:
    """Before they are priced, whether the best is kept or not."""
    with pytest.raises(DataError, match=r"\$\.fleet"):
        play(Rolling(Wants(fleet), keep_best=keep_best))
