"""`FleetAlloc-v0` behaves as Gymnasium's users expect, on every stored instance."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import fleetgym
from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model.conditions import Conditions
from fleetgym.model.window import COST_TERMS

ALL = fleetgym.list_instances("fleet-v0")
TOY = "fleet-v0/toy/startup"
#: One instance of every family and size is enough where each test plays a long episode.
SOME = [name for name in ALL if "/toy/" in name] + [name for name in ALL if name.endswith("-001")]


def make(instance: str = TOY, **kwargs: object) -> gymnasium.Env:
    """Return the bare environment."""
    return gymnasium.make("FleetAlloc-v0", instance=instance, **kwargs).unwrapped


def same(a: dict, b: dict) -> bool:
    """Return whether two observations or infos are equal to the bit."""
    return a.keys() == b.keys() and all(
        np.asarray(a[k]).dtype == np.asarray(b[k]).dtype and np.array_equal(a[k], b[k]) for k in a
    )


@pytest.mark.parametrize("instance_id", ALL)
def test_gymnasium_check(instance_id: str) -> None:
    """Gymnasium's own checker has nothing to say, not even a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*FleetAlloc-v0 is out of date")
        check_env(make(instance_id), skip_render_check=True)


def test_make_imports_fleetgym() -> None:
    """The module prefix registers the id."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=TOY)
    assert env.unwrapped.instance.id == "startup"


def test_spec_is_json() -> None:
    """The environment can be rebuilt from the JSON of its spec."""
    spec = gymnasium.make("FleetAlloc-v0", instance=TOY).spec
    assert spec is not None
    json.loads(spec.to_json())


def test_same_seed_same_episode() -> None:
    """Two environments with one seed see the same bytes; another seed gives another scenario."""
    runs = []
    for seed in (3, 3, 4):
        env = make(ALL[-1])
        observation, info = env.reset(seed=seed)
        env.action_space.seed(1)
        story = [observation, info]
        for _ in range(6):
            observation, _, _, _, info = env.step(env.action_space.sample())
            story += [observation, info]
        runs.append(story)
    assert all(same(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not all(same(a, b) for a, b in zip(runs[0], runs[2], strict=True))


def test_unseeded_reset_continues_the_stream() -> None:
    """Without a seed the next scenario is drawn from the same generator."""
    first, second = make(ALL[-1]), make(ALL[-1])
    for env in (first, second):
        env.reset(seed=1)
        env.reset()
    first.step(first.action_space.sample() * 0)
    second.step(second.action_space.sample() * 0)
    assert same(first._info(), second._info())


@pytest.mark.parametrize("instance_id", SOME)
def test_observations_stay_in_their_space(instance_id: str) -> None:
    """Observations, masks and info keep shape, bounds and keys over a drawn episode of random actions."""
    env = make(instance_id)
    observation, info = env.reset(seed=0)
    env.action_space.seed(0)
    keys, done = info.keys(), False
    while not done:
        assert env.observation_space.contains(observation)
        assert info.keys() == keys
        assert "episode" not in info
        assert np.array_equal(info["action_mask"], env.action_masks())
        observation, reward, done, truncated, info = env.step(env.action_space.sample())
        assert np.isfinite(reward)
        assert not truncated
        for share in ("unserved_share", "miss_share"):
            assert np.all((info[share] >= 0.0) & (info[share] <= 1.0))


@pytest.mark.parametrize("instance_id", SOME)
def test_limits_are_never_exceeded(instance_id: str) -> None:
    """Held GPUs stay within the availability of the window, whatever is asked for."""
    env = make(instance_id)
    env.reset(seed=7)
    env.action_space.seed(7)
    for t in range(min(60, env.instance.num_windows)):
        held = env.step(env.action_space.sample())[-1]["held"]
        assert np.all(env.instance.gpu_use @ held <= Conditions.of(env._scenario, t).available_gpus)
        assert held.min() >= 0


def test_mask_splits_and_samples() -> None:
    """The flat mask has one entry per option, and its split form feeds `MultiDiscrete.sample`."""
    env = make("fleet-v0/toy/group")
    env.reset(seed=0)
    mask = env.action_masks()
    assert mask.dtype == bool
    assert mask.size == env.action_space.nvec.sum()
    sample = env.action_space.sample(mask=env.actions.split_mask(mask))
    assert env.action_space.contains(sample)


def test_mask_follows_availability() -> None:
    """An option is masked iff it alone exceeds what is available."""
    env = make("fleet-v0/toy/drop")
    env.reset(options={"scenario": 0})
    for _ in range(env.instance.num_windows - 1):
        _, _, _, _, info = env.step(env.action_space.nvec * 0)
        expected = []
        for slot, members in zip(env.instance.slots, env.instance.slot_members, strict=True):
            most = env.instance.configurations[members[0]].max_replicas
            options = [(members[0], r) for r in range(most + 1)]
            if slot.exclusive:
                options = [(members[0], 0)] + [(c, 1) for c in members]
            expected += [
                bool(np.all(env.instance.gpu_use[:, c] * r <= info["available_gpus"])) for c, r in options
            ]
        assert info["action_mask"].tolist() == expected


@pytest.mark.parametrize(
    "action", [[99], [-1], [0.5], [np.nan], ["a"], [0, 0], [[0]], None, "x", [None]], ids=str
)
def test_invalid_actions_are_refused(action: object) -> None:
    """An invalid action raises and leaves the episode as it was."""
    env = make("fleet-v0/toy/startup")
    env.reset(options={"scenario": 0})
    before = env._info()
    with pytest.raises(DataError):
        env.step(action)
    assert same(before, env._info())


def test_step_needs_reset() -> None:
    """Stepping before a reset, or after the end, raises."""
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())
    env.reset(options={"scenario": 0})
    for _ in range(env.instance.num_windows):
        env.step(env.action_space.sample())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("options", [{"scenario": 99}, {"scenario": "a"}, {"scenario": -1}, {"oops": 1}])
def test_bad_reset_options(options: dict) -> None:
    """A bad option says what is possible."""
    with pytest.raises(FleetgymError):
        make().reset(options=options)


def test_a_stored_scenario_goes_by_number_and_id() -> None:
    """What `info` calls a scenario is a name for it; an unknown one is answered with those there are."""
    env = make()
    _, numbered = env.reset(options={"scenario": 0})
    _, named = env.reset(options={"scenario": numbered["scenario"]})
    assert named["scenario"] == numbered["scenario"]
    with pytest.raises(UnknownNameError, match=f"known: .*{numbered['scenario']}"):
        env.reset(options={"scenario": "stored"})


def test_terminates_at_the_horizon() -> None:
    """The last window terminates, and only it; the time limit is not Gymnasium's."""
    env = gymnasium.make("FleetAlloc-v0", instance=TOY)
    env.reset(options={"scenario": 0})
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(env.unwrapped.instance.num_windows)]
    assert ends == [(False, False)] * (len(ends) - 1) + [(True, False)]


def test_pickled_environment_continues() -> None:
    """A copy through pickle plays on to the same bytes."""
    env = make(TOY)
    env.reset(seed=5)
    env.step(env.action_space.sample() * 0 + 1)
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        a, b = env.step(env.action_space.nvec - 1), twin.step(env.action_space.nvec - 1)
        assert same(a[0], b[0])
        assert same(a[4], b[4])


BAD_FLEETS = ([99], [-1], [0.5], [float("nan")], [1, 1], ["a"], [[1]])


@pytest.mark.parametrize("fleet", BAD_FLEETS, ids=str)
@pytest.mark.parametrize("price", [View.preview, View.steady_cost_usd])
def test_only_fleets_that_can_be_are_priced(price: object, fleet: list) -> None:
    """Both prices refuse what no action wants by the same words."""
    with pytest.raises(DataError, match=r"\$\.fleet.*expected") as found:
        price(View(make().instance), fleet)
    with pytest.raises(DataError) as wanted:
        make().actions.from_fleet(fleet)
    assert str(found.value) == str(wanted.value)


def test_an_exclusive_slot_has_one_configuration() -> None:
    """Two configurations of it are no fleet; one of them, or of each of two slots, is the action that names it."""
    actions = make("fleet-v0/toy/group").actions
    members = next(
        m
        for slot, m in zip(actions.instance.slots, actions.instance.slot_members, strict=True)
        if slot.exclusive
    )
    fleet = np.zeros(actions.instance.num_configurations, dtype=int)
    fleet[list(members[:2])] = 1
    with pytest.raises(DataError, match="more than one configuration of exclusive slot"):
        actions.check_fleet(fleet)
    rng = np.random.default_rng(0)
    for instance in SOME:
        actions = make(instance).actions
        for _ in range(5):
            action = rng.integers(actions.nvec)
            assert np.array_equal(actions.from_fleet(actions.to_fleet(action)), action)


@pytest.mark.parametrize(
    ("conditions", "error", "says"),
    [
        ({"rate_rp": [1.0]}, UnknownNameError, "did you mean 'rate_rps'"),
        (
            {"rate_rps": [-1.0]},
            DataError,
            r"\$\.conditions\.rate_rps: expected 1 finite numbers, none negative",
        ),
        ({"price_factor": [float("nan")]}, DataError, r"\$\.conditions\.price_factor"),
        ({"input_scale": [1.0, 1.0]}, DataError, r"\$\.conditions\.input_scale"),
        ({"delay_factor": ["1"]}, DataError, r"\$\.conditions\.delay_factor"),
        ({"rate_rps": [[1.0], [1.0, 2.0]]}, DataError, r"\$\.conditions\.rate_rps"),
        ({"available_gpus": [0.5]}, DataError, "finite whole numbers"),
        (
            {"available_gpus": [10**6]},
            DataError,
            r"available_gpus\[0\]: expected at most \d+ GPUs \(cap_gpus\)",
        ),
        ([1.0], DataError, "expected conditions or a mapping"),
    ],
    ids=str,
)
def test_bad_outcomes_are_refused(conditions: object, error: type, says: str) -> None:
    """A what-if that cannot be is named, wherever one can be given."""
    view = View(make().instance)
    for ask in (
        lambda: view.preview([1], conditions=conditions),
        lambda: view.snapshot(conditions=conditions),
    ):
        with pytest.raises(error, match=says):
            ask()
    with pytest.raises(error, match=says):
        view.steady_cost_usd([1], conditions=conditions)


def test_outcomes_that_can_be_are_taken() -> None:
    """Some fields or all, in any type of numbers."""
    env = make()
    _, info = env.reset(options={"scenario": 0})
    view = View(env.instance)
    view.update(info)
    plain, gpus = view.preview([1]), info["available_gpus"].astype(float).tolist()
    for conditions in (view.conditions, view.conditions.as_dict(), {"available_gpus": gpus}):
        assert view.preview([1], conditions=conditions) == pytest.approx(plain)
    assert view.preview([1], conditions={"rate_rps": 2 * info["rate_rps"]}) != plain
    other = Conditions.nominal(make("fleet-v0/toy/two-pools").instance)
    with pytest.raises(DataError, match=r"\$\.conditions\."):
        view.preview([1], conditions=other)


def test_a_failed_reset_changes_nothing() -> None:
    """Bad options leave generator and episode as they are."""
    env, twin = make(ALL[-1]), make(ALL[-1])
    for each in (env, twin):
        each.reset(seed=3)
    with pytest.raises(FleetgymError):
        env.reset(seed=4, options={"scenario": 10**6})
    assert same(env.step(env.action_space.nvec * 0)[4], twin.step(env.action_space.nvec * 0)[4])
    assert same(env.reset()[1], twin.reset()[1])


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("rate_rps", lambda a: a * np.nan),
        ("rate_rps", lambda a: a - 1e9),
        ("rate_rps", lambda a: a.astype(str)),
        ("input_scale", lambda a: a * 0.0),
        ("delay_factor", lambda a: a + np.inf),
        ("error_factor", lambda a: a[0]),
        ("available_gpus", lambda a: a.astype(float)),
        ("available_gpus", lambda a: a - 10**6),
        ("available_gpus", lambda a: a + 10**6),
        ("price_factor", lambda a: a > 0),
        ("price_factor", lambda a: -a - 1.0),
    ],
)
def test_given_scenarios_are_checked(field: str, change: object) -> None:
    """A scenario of one's own is played if every number of it can be, and refused by its field if not."""
    good = fleetgym.load_scenarios(TOY)[0]
    env = make()
    env.reset(options={"scenario": dataclasses.replace(good)})
    env.reset(options={"scenario": dataclasses.replace(good, **{field: getattr(good, field).tolist()})})
    with pytest.raises(DataError, match=rf"^Scenario\.{field}|^\$\.{field}"):
        env.reset(options={"scenario": dataclasses.replace(good, **{field: change(getattr(good, field))})})


def test_lead_zero_shows_the_coming_window() -> None:
    """With lead = 0 the info before a window holds what that window brings."""
    instance = fleetgym.load_instance("fleet-v0/toy/drop").replace(lead=0)
    scenario = fleetgym.load_scenarios("fleet-v0/toy/drop")[0]
    env = gymnasium.make("FleetAlloc-v0", instance=instance).unwrapped
    _, info = env.reset(options={"scenario": scenario})
    for t in range(instance.num_windows):
        coming = Conditions.of(scenario, t)
        assert np.array_equal(info["available_gpus"], coming.available_gpus)
        assert np.array_equal(info["rate_rps"], coming.rate_rps)
        info = env.step(env.action_space.nvec * 0)[4]


@pytest.mark.parametrize("instance_id", SOME)
def test_preview_is_the_step(instance_id: str) -> None:
    """A preview under the realised window equals the step, and previews leave the episode untouched."""
    stories = []
    for previews in (True, False):
        env = make(instance_id)
        env.action_space.seed(11)
        observation, info = env.reset(options={"scenario": 0})
        view, story = View(env.instance), []
        for t in range(min(40, env.instance.num_windows)):
            view.update(info)
            action = env.action_space.sample()
            if previews:
                target = view.action_to_fleet(action)
                expected = view.preview(target, conditions=Conditions.of(env._scenario, t))
                view.preview(env.instance.nominal_fleet)
                view.steady_cost_usd(env.instance.nominal_fleet)
                view.snapshot()
            observation, reward, _, _, info = env.step(action)
            if previews:
                for name in (*COST_TERMS, "cost"):
                    assert expected[name] == pytest.approx(info[name], rel=1e-12, abs=1e-12), name
            story += [observation, info, {"reward": reward}]
        stories.append(story)
    assert all(same(a, b) for a, b in zip(*stories, strict=True))


def test_what_a_planner_does_to_its_snapshot_stays_its_own() -> None:
    """A snapshot can be scribbled on: no window, of this agent or another, is played or previewed otherwise."""

    def played() -> tuple[list[float], float]:
        env = make()
        info = env.reset(options={"scenario": 0})[1]
        view, costs = View(env.instance), []
        view.update(info)
        for t in range(env.instance.num_windows):
            costs.append(env.step(np.minimum(t % 2, env.action_space.nvec - 1))[4]["cost"])
        return costs, view.preview(env.instance.nominal_fleet)["cost"]

    before = played()
    view = View(fleetgym.load_instance(TOY))
    expected = view.preview(view.fleet)
    snapshot = view.snapshot()
    for part in (snapshot, snapshot.segments):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value *= 0
    assert view.preview(view.fleet) == pytest.approx(expected, rel=1e-9)
    assert played() == before


def test_ansi_rendering() -> None:
    """The text names every pool and fits a terminal."""
    env = make("fleet-v0/toy/regions", render_mode="ansi")
    env.reset(options={"scenario": 0})
    env.step(env.action_space.nvec - 1)
    text = env.render()
    assert all(pool.id in text for pool in env.instance.pools)
    assert max(len(line) for line in text.splitlines()) <= 120


def test_ansi_shows_the_window_that_was_played() -> None:
    """Where the coming window is known, its rates do not stand beside the last window's costs."""
    env = make("fleet-v0/dev/fastllm-4-4-5-001", render_mode="ansi")
    assert env.instance.lead == 0
    _, before = env.reset(options={"scenario": 0})
    _, _, _, _, after = env.step(env.action_space.nvec * 0)
    assert np.all(np.abs(before["rate_rps"] - after["rate_rps"]) > 1e-3)
    text = env.render().split("workloads (last window)")[1]
    for rate in before["rate_rps"]:
        assert f"{rate:.3f} req/s" in text


def test_unknown_render_mode() -> None:
    """A render mode that does not exist is refused."""
    with pytest.raises(FleetgymError, match="render_mode"):
        FleetAllocEnv(TOY, render_mode="hologram")


@pytest.mark.rl
@pytest.mark.parametrize("instance_id", ALL)
def test_stable_baselines3_check(instance_id: str) -> None:
    """stable-baselines3's checker has nothing to say, not even a warning."""
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker", reason="stable-baselines3 is not there")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*FleetAlloc-v0 is out of date")
        sb3.check_env(make(instance_id), warn=True)


@pytest.mark.rl
def test_maskable_ppo_runs() -> None:
    """sb3-contrib's MaskablePPO finds the masks and trains a little."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")
    model = contrib.MaskablePPO("MultiInputPolicy", make(TOY), n_steps=16, batch_size=16, n_epochs=1, seed=0)
    model.learn(32)


# -- going back


@pytest.mark.parametrize("instance", ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/fastllm-4-4-5-001"])
def test_a_state_is_where_the_episode_was(instance: str) -> None:
    """From a restored state everything goes as it went, to the bit: after other steps, another day, in another copy."""
    env, rng = FleetAllocEnv(instance), np.random.default_rng(0)
    env.reset(seed=1)
    most = min(20, env.instance.num_windows // 2)
    actions = [rng.integers(env.actions.nvec) for _ in range(2 * most)]
    for action in actions[:most]:
        env.step(action)
    state, mask = env.get_state(), env.action_masks()
    story = [env.step(action) for action in actions[most:]]
    other = FleetAllocEnv(instance)
    for play in ("back", "another day", "another copy"):
        if play == "another day":
            env.reset(seed=9)
            env.step(actions[0])
        env = other if play == "another copy" else env
        env.set_state(state)
        assert np.array_equal(env.action_masks(), mask)
        for action, expected in zip(actions[most:], story, strict=True):
            got = env.step(action)
            assert got[1:4] == expected[1:4]
            for mine, theirs in ((got[0], expected[0]), (got[4], expected[4])):
                assert mine.keys() == theirs.keys()
                assert all(np.array_equal(mine[key], theirs[key]) for key in mine)


def test_states_that_do_not_fit_are_refused() -> None:
    """Before a reset, of another instance, of another kind, and where pictures are drawn."""
    env = FleetAllocEnv("fleet-v0/toy/two-pools")
    with pytest.raises(gymnasium.error.ResetNeeded, match="get_state"):
        env.get_state()
    env.reset(seed=0)
    with pytest.raises(FleetgymError, match="one of 'two-pools', not of 'drop'"):
        FleetAllocEnv("fleet-v0/toy/drop").set_state(env.get_state())
    with pytest.raises(FleetgymError, match="expected what get_state returned"):
        env.set_state(None)
    with pytest.raises(FleetgymError, match="render_mode=None"):
        FleetAllocEnv("fleet-v0/toy/two-pools", render_mode="ansi").set_state(env.get_state())
