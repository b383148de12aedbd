"""The processes, columns and observations of the preview `fleet-v2`, each against a slow twin or its own law."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from episodes_twin import compare_episode

import fleetgym
from fleetgym.envs.fleet_alloc_v1 import AHEAD
from fleetgym.families import bursts, weekly
from fleetgym.families.draft import fits
from fleetgym.families.generate import families, generate, stored_scenarios
from fleetgym.families.plans import request_class
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import split
from fleetgym.hardware.configurations.homogeneous import deployment_of
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.dynamics.prices import PriceWalk
from fleetgym.model.dynamics.scenario import level_process
from fleetgym.model.dynamics.weekly import basis, later, weekend_share
from fleetgym.model.instance import Instance
from fleetgym.model.lengths import LengthLaw
from fleetgym.model.processes import PROFILE

V1 = "fleetgym:FleetAlloc-v1"
FAMILIES = ("week", "ou-v2", "drop-v2", "budget-v2", "tail-v2", "market", "split")


@pytest.fixture(scope="module")
def made() -> dict[str, Instance]:
    """Return a small instance of each family."""
    return {name: generate(name, "s", 1001) for name in FAMILIES}


# -- weekly demand


def test_profile_is_the_stated_sum() -> None:
    """A plain loop over hours and terms gives the same profile; it repeats every week."""
    instance = generate("ou-v2", "s", 1001)
    process = level_process(instance.dynamics.demand, instance.num_workloads)
    parameters = {name: instance.dynamics.demand.parameters[name] for name in PROFILE}
    for window in (0, 100, 287, 900, 2015):
        hour = 24.0 * process.first_day + window / 12.0
        weekend = float(weekend_share(np.array(hour)))
        for i in range(instance.num_workloads):
            total = 0.0
            for days, weight in (("workday", 1.0 - weekend), ("weekend", weekend)):
                log = parameters[f"{days}_level"][i]
                for k in (1, 2, 3, 4):
                    angle = 2.0 * math.pi * k * hour / 24.0
                    log += parameters[f"{days}_cos_{k}"][i] * math.cos(angle)
                    log += parameters[f"{days}_sin_{k}"][i] * math.sin(angle)
                total += weight * log
            assert process.daily(window, 300.0)[i] == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(process.daily(5, 300.0), process.daily(5 + weekly.WEEK, 300.0), atol=1e-9)


def test_later_moves_the_day() -> None:
    """A profile moved by three hours is at noon what it was at nine."""
    rng = np.random.default_rng(0)
    profile = rng.normal(size=(len(PROFILE), 2))
    moved = later(profile, np.array([3.0, -2.0]))
    noon, before = (
        basis(np.array([36.0])),
        basis(np.array([33.0])),
    )
    np.testing.assert_allclose(moved[:, 0] @ noon, profile[:, 0] @ before, atol=1e-12)
    np.testing.assert_allclose(moved[:, 1] @ noon, profile[:, 1] @ basis(np.array([38.0])), atol=1e-12)


def test_mean_demand_is_nominal() -> None:
    """Over many drawn weeks the mean rate is the nominal one."""
    instance = generate("week", "s", 1001)
    process = level_process(instance.dynamics.demand, instance.num_workloads)
    rng = np.random.default_rng(1)
    means = [np.exp(process.log_level(rng, weekly.WEEK, 300.0)).mean(axis=0) for _ in range(60)]
    np.testing.assert_allclose(np.mean(means, axis=0), 1.0, atol=0.04)


def test_demand_moves_as_the_measured_week_does() -> None:
    """Code moves at least fivefold within a working day and falls below .6 of its mean at weekends; chat far less."""
    week = weekly.azure_week()
    for kind, swing, weekend in (("code", (7.0, 12.0), 0.45), ("conversation", (1.5, 2.5), 0.75)):
        rate = np.array(week[kind]["requests"], dtype=float).reshape(7, 144)
        fitted = np.exp(np.array(week[kind]["profile"]) @ basis(np.arange(1008) / 6.0)).reshape(7, 144)
        for days in (rate, fitted):
            spread = np.quantile(days, 0.95, axis=1) / np.quantile(days, 0.05, axis=1)
            assert swing[0] < np.median(spread[:5]) < swing[1]
            assert days[5:].mean() / days.mean() < weekend
        assert np.std(np.log(rate / fitted)) < 0.12


def test_a_week_is_drawn(made: dict[str, Instance]) -> None:
    """2016 windows after two weeks; as many stored weeks as are asked for, with a weekend where Azure decides."""
    instance = made["week"]
    assert (instance.num_windows, len(instance.history.rate_rps)) == (2016, 4032)
    weeks = stored_scenarios(instance, 1001, 2)
    assert len(weeks) == 2
    for week in weeks:
        days = week.rate_rps.reshape(7, 288, -1).mean(axis=1)
        assert (days[5:].mean(axis=0) < days[:5].mean(axis=0)).all()


def test_limits_between_tokens_hold_while_lengths_drift() -> None:
    """In 99 % of the windows of drawn days every engine keeps the limits of all that it serves."""
    for family in ("ou-v2", "tail-v2"):
        instance = generate(family, "s", 1001)
        assert instance.stated is not None
        table, broken, windows = instance.performance, 0, 0
        for seed in range(3):
            day = draw_scenario(instance, np.random.default_rng(seed))
            for i, (workload, slo) in enumerate(zip(instance.workloads, instance.stated.slos, strict=True)):
                prompt = workload.input_tokens * day.input_scale[:, i, None]
                output = workload.output_tokens * day.output_scale[:, i, None]
                service, prefill = (
                    q.base[i] + q.per_input_token[i] * prompt + q.per_output_token[i] * output
                    for q in (table.service_s, table.prefill_s)
                )
                is_late = ((service - prefill) / output > slo.tpot)[:, table.compatible[i]]
                broken, windows = broken + int(is_late.any(axis=1).sum()), windows + len(is_late)
        assert broken < 0.01 * windows


# -- bursts


@pytest.mark.parametrize(("law", "rate"), [(bursts.CHAT, 20.0), (bursts.CODE, 20.0)])
def test_arrivals_follow_their_law(law: bursts.BurstLaw, rate: float) -> None:
    """Counts drawn by a law have its index of dispersion from a second to five minutes."""
    counts = law.counts(np.random.default_rng(3), rate, 400_000, 0.5)
    assert counts.mean() == pytest.approx(0.5 * rate, rel=0.05)
    for scale in (2.0, 10.0, 60.0, 300.0):
        sums = (
            counts[: len(counts) // int(2 * scale) * int(2 * scale)].reshape(-1, int(2 * scale)).sum(axis=1)
        )
        assert sums.var() / sums.mean() == pytest.approx(law.dispersion(rate, scale), rel=0.2)


def test_laws_are_those_that_were_measured() -> None:
    """Within a third of the measured indices of the Azure hour, where its drift is taken out."""
    hour = weekly.azure_week()["bursts"]
    for law, kind, scales in (
        (bursts.CHAT, "azure_conv", (2, 10, 60)),
        (bursts.CODE, "azure_code", (2, 10, 60, 300)),
    ):
        for scale in scales:
            found = law.dispersion(hour[kind]["rate_rps"], scale)
            assert found == pytest.approx(hour[kind][str(scale)], rel=0.33)


def test_more_than_one_law(made: dict[str, Instance]) -> None:
    """`tail-v2` charges dispersion at the scale of a request; it differs between chat and code."""
    said = made["tail-v2"].provenance["arrivals"]
    assert "modulated" in said
    assert "clustered" in said
    assert len({w.arrival_cv2 for w in made["tail-v2"].workloads}) >= 2
    assert max(w.arrival_cv2 for w in made["tail-v2"].workloads) <= 20.0


@pytest.mark.parametrize(("family", "size"), [("tail-v2", "s"), ("ou-v2", "m")])
def test_engines_keep_their_tokens_at_their_own_contexts(family: str, size: str) -> None:
    """Times follow the step of version 2 at each workload's own lengths, and break no limit between tokens."""
    instance = generate(family, size, 1003)
    assert instance.stated is not None
    assert instance.stated.coefficients == 2
    options = roofline.RooflineOptions(coefficients=2)
    for i, (workload, slo) in enumerate(zip(instance.workloads, instance.stated.slos, strict=True)):
        lengths, b = (workload.input_tokens, workload.output_tokens), workload.output_tokens
        token = fits()["tokens"][request_class(workload.id).tokens]
        assert workload.input_law == LengthLaw.lognormal(token["input_cv2"])
        for c in np.flatnonzero(instance.performance.compatible[i]):
            configuration, deployment = instance.configurations[c], deployment_of(instance, int(c))
            service, prefill = (
                coefficients.base[i, c]
                + coefficients.per_input_token[i, c] * lengths[0]
                + coefficients.per_output_token[i, c] * b
                for coefficients in (instance.performance.service_s, instance.performance.prefill_s)
            )
            assert slo.tpot is not None
            assert (service - prefill) / b <= slo.tpot * (1.0 + 1e-5)
            n = configuration.max_concurrency
            step = roofline.step_time(deployment, options, n)
            square = lengths[0] * (1.0 + token["input_cv2"])
            others = step.prompt_s + lengths[0] * (step.prefill_s + step.attention_s * square)
            wanted = b * step.per_output_token_s(n, lengths[0] + 0.5 * b) + (n - 1) * others
            assert service - prefill == pytest.approx(wanted, rel=1e-4)
            assert instance.stated.memory_gb(configuration.id) == pytest.approx(
                roofline.kv_capacity_gb(deployment, options), rel=1e-5
            )


# -- the market


def walk(**changes: float) -> PriceWalk:
    """Return prices of four pools in two regions, the last of which never moves."""
    values = {
        "ou_sd": 0.2,
        "ou_time_min": 480.0,
        "jumps_per_day": 1.0,
        "jump_log_mean": 0.3,
        "jump_hold_min": 120.0,
    }
    vectors = {name: np.full(4, value) for name, value in {**values, **changes}.items()}
    for name in ("ou_sd", "jumps_per_day"):
        vectors[name][3] = 0.0
    return PriceWalk(
        **vectors, ceiling=np.full(4, 50.0), region=np.array([0, 0, 1, 1]), same_region=0.6, other_region=0.2
    )


def test_prices_move_about_their_list_prices() -> None:
    """The mean factor is 1, pools of a region move together more than others, and what does not move is 1."""
    rng = np.random.default_rng(4)
    drawn = np.concatenate([walk().draw(rng, 2016, 300.0) for _ in range(150)])
    np.testing.assert_allclose(drawn.mean(axis=0)[:3], 1.0, atol=0.03)
    assert (drawn[:, 3] == 1.0).all()
    calm = np.concatenate([np.log(walk(jumps_per_day=0.0).draw(rng, 2016, 300.0)) for _ in range(150)])
    matrix = np.corrcoef(calm[:, :3].T)
    assert matrix[0, 1] == pytest.approx(0.6, abs=0.08)
    assert matrix[0, 2] == pytest.approx(0.2, abs=0.1)
    assert calm[:, 0].std() == pytest.approx(0.2, rel=0.05)


def test_spot_never_costs_more_than_on_demand(made: dict[str, Instance]) -> None:
    """The ceiling holds exactly, also rounded; reserved prices stand still, and reserved GPUs cost nothing to use."""
    instance = made["market"]
    on_demand = {p.gpu_type: p.price_usd_per_gpu_h for p in instance.pools if p.market == "on-demand"}
    reached = 0
    for scenario in stored_scenarios(instance, 1001, 16):
        price = scenario.price_factor
        for g, pool in enumerate(instance.pools):
            if pool.market == "spot":
                assert price[:, g].std() > 0.01
                ceiling = instance.dynamics.prices.parameters["ceiling"][g]
                reached += int((price[:, g] == ceiling).sum())
                assert (price[:, g] * pool.price_usd_per_gpu_h).max() <= on_demand[pool.gpu_type]
            else:
                assert (price[:, g] == 1.0).all()
    assert reached > 10
    assert [p.price_usd_per_gpu_h for p in instance.pools if p.market == "reserved"] == [0.0]
    assert "used or not" in instance.provenance["commitment"]


def dropping(instance: Instance) -> tuple[fleetgym.Scenario, np.ndarray]:
    """Return a scenario in which a warned pool drops and comes back, and which pools are warned."""
    warned = np.array(instance.dynamics.availability.parameters["warning_windows"]) > 0
    for seed in range(50):
        scenario = draw_scenario(instance, np.random.default_rng(seed))
        changes = np.diff(scenario.available_gpus[:, warned], axis=0)
        if changes.min() < 0 < changes.max():
            return scenario, warned
    raise AssertionError("no drop in fifty days")


def test_changes_are_announced_one_window_ahead(made: dict[str, Instance]) -> None:
    """Drops and their ends, where the cloud warns; others show the last window; the view and batches say the same."""
    instance = made["market"]
    scenario, warned = dropping(instance)
    assert warned.any()
    assert not warned.all()
    env = gymnasium.make(V1, instance=instance).unwrapped
    envs = gymnasium.make_vec(V1, num_envs=2, instance=instance, full_info=True)
    old = gymnasium.make("FleetAlloc-v0", instance=instance).unwrapped
    options = {"scenario": scenario}
    observation, info = env.reset(seed=0, options=options)
    many, infos = envs.reset(seed=0, options=options)
    before, _ = old.reset(seed=0, options=options)
    caps = np.array([pool.cap_gpus for pool in instance.pools])
    action = env.actions.from_fleet(instance.nominal_fleet)
    view, told = fleetgym.View(instance), set()
    for t in range(instance.num_windows):
        expected = (caps if t == 0 else scenario.available_gpus[t - 1]).copy()
        for g in np.flatnonzero(warned):
            told.add(np.sign(scenario.available_gpus[t, g] - expected[g]))
            expected[g] = scenario.available_gpus[t, g]
        assert info["announced_gpus"].tolist() == expected.tolist()
        assert infos["announced_gpus"][1].tolist() == expected.tolist()
        np.testing.assert_array_equal(observation["announced"], (expected / caps).astype(np.float32))
        for name, values in observation.items():
            np.testing.assert_array_equal(many[name][1], values)
        for name, values in before.items():
            np.testing.assert_array_equal(observation[name], values)
        view.update(info)
        assert view.conditions.available_gpus.tolist() == expected.tolist()
        observation, reward, _, _, info = env.step(action)
        many, rewards, _, _, infos = envs.step(np.stack([action, action]))
        before, old_reward, *_ = old.step(action)
        assert reward == rewards[0] == rewards[1] == old_reward
        if t == instance.num_windows - 2:
            break
    assert told == {-1, 0, 1}
    envs.close()


# -- split replicas

OPTIONS = roofline.RooflineOptions(coefficients=2, context_limit=32768)
CHAT = Requests(input_tokens=1155, output_tokens=211, error=0.03)


def node(gpu: str, gpus: int = 1, model: str = "Llama-3.1-8B") -> Deployment:
    """Return a node of either side."""
    return Deployment(
        model=catalog.model(model), gpu=catalog.gpu(gpu), precision="fp16", tensor_parallel=gpus
    )


def columns_of(*nodes: Deployment, tpot_s: float = 0.05) -> dict[str, tuple[split.SplitColumn, object]]:
    """Return split replicas of nodes for chat alone, with what they do to it."""
    demand = split.SplitDemand(
        lengths=(1155.0, 211.0), requests=lambda _: CHAT, tpot_s=tpot_s, first_s=0.8, longer=2.0
    )
    found, (row,) = split.split_columns(
        {each: f"{each.gpu.name}-fp16" for each in nodes},
        [demand],
        {"L40S": 0.8, "A100-80GB": 1.4},
        OPTIONS,
        startup_windows=1,
        storage_usd_per_gb_h=0.0,
    )
    return {column.configuration.id.partition("@")[2]: (column, row[k]) for k, column in enumerate(found)}


def test_the_compute_row_is_the_prefill_nodes_time() -> None:
    """A replica computes as many prompts as its prefill nodes do one by one, and serves as its decode nodes hold."""
    found = columns_of(node("L40S"), node("A100-80GB"))
    step = roofline.step_time(node("L40S"), OPTIONS, 1.0)
    prompt_s = step.prompt_s + step.prefill_s * 1155 + step.attention_s * 1155 * 1155 * 2.0
    for name, nodes in (("1x1xL40S+1x1xA100-80GB:split", (1, 1)), ("2x1xL40S+1x1xA100-80GB:split", (2, 1))):
        column, pair = found[name]
        work = pair.work_tflop.at(1155, 211)  # type: ignore[attr-defined]
        assert column.configuration.compute_tflops / work == pytest.approx(nodes[0] / prompt_s, rel=1e-9)
        assert column.configuration.max_concurrency == nodes[1] * column.engine_limit
        assert {use.tier: use.gpus for use in column.configuration.uses} == {
            "L40S-fp16": nodes[0],
            "A100-80GB-fp16": nodes[1],
        }


def test_no_prompt_delays_the_tokens_and_their_limit_is_kept() -> None:
    """At the limit of its engine, and at longer prompts, a decode node's step takes what is allowed, and no more."""
    for limit_s in (0.03, 0.05):
        column, pair = columns_of(node("A100-80GB"), tpot_s=limit_s)["1x1xA100-80GB+1x1xA100-80GB:split"]
        token_s = pair.service_s.per_output_token  # type: ignore[attr-defined]
        step = roofline.step_time(node("A100-80GB"), OPTIONS, float(column.engine_limit))
        assert token_s == pytest.approx(
            step.per_output_token_s(column.engine_limit, 1155 + 211 / 2), rel=1e-12
        )
        context = 2 * 1155 + 211 / 2
        assert step.per_output_token_s(column.engine_limit, context) <= limit_s
        more = roofline.step_time(node("A100-80GB"), OPTIONS, column.engine_limit + 1.0)
        memory = roofline.capacity(node("A100-80GB"), OPTIONS).max_concurrency  # type: ignore[union-attr]
        assert (
            column.engine_limit == memory
            or more.per_output_token_s(column.engine_limit + 1, context) > limit_s
        )


def test_the_first_token_waits_for_the_kv_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer is part of the prefill time: bytes of the prompt's cache over the link's bandwidth."""

    def first_s() -> float:
        pair = split.split_pair(node("L40S"), node("A100-80GB"), (1, 1), CHAT, 8.0, OPTIONS)
        return pair.prefill_s.at(1155, 211)  # type: ignore[union-attr]

    fast = first_s()
    monkeypatch.setattr(split, "LINK_GB_PER_S", 1.0)
    sent_gb = 1155 * catalog.model("Llama-3.1-8B").kv_bytes_per_token / 1e9
    assert first_s() - fast == pytest.approx(sent_gb * (1.0 - 1.0 / 12.5), rel=1e-9)


def test_a_side_that_cannot_serve_gives_nothing() -> None:
    """A model that no node of a side holds makes no split replica; nor does a limit that no batch keeps."""
    assert columns_of(node("L40S", 1, "Llama-3.1-70B"), node("A100-80GB", 1, "Llama-3.1-70B")) == {}
    assert columns_of(node("L40S"), tpot_s=1e-4) == {}


def test_split_instances_have_both_kinds(made: dict[str, Instance]) -> None:
    """Split replicas use the pools of both sides, beside ones that serve both phases."""
    instance = made["split"]
    split = np.array([":split" in c.id for c in instance.configurations])
    assert split.any()
    assert not split.all()
    assert max((use > 0).sum() for use in instance.gpu_use.T[split]) == 2


# -- all families


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_evaluator_agrees(family: str, made: dict[str, Instance]) -> None:
    """Every new process and column, over windows of a stored and a drawn scenario, to 1e-9."""
    instance = made[family]
    compare_episode(instance, stored_scenarios(instance, 1001, 1)[0], 14, seed=1)
    compare_episode(instance, draw_scenario(instance, np.random.default_rng(5)), 14, seed=2)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_instance(family: str, made: dict[str, Instance]) -> None:
    """Everything derives from family, size and seed; instances survive their file form."""
    assert generate(family, "S", 1001).content_hash == made[family].content_hash
    assert Instance.from_dict(made[family].to_dict()) == made[family]
    assert families()[family].sizes[:2] == ("s", "m")
    scenario = stored_scenarios(made[family], 1001, 1)[0]
    again = stored_scenarios(made[family], 1001, 1)[0]
    np.testing.assert_array_equal(scenario.rate_rps, again.rate_rps)
    np.testing.assert_array_equal(scenario.price_factor, again.price_factor)


@pytest.mark.parametrize("family", ["week", "market"])
def test_beliefs_take_the_new_processes(family: str, made: dict[str, Instance]) -> None:
    """A belief filters weekly demand and moving prices; its forecast knows the time of the week."""
    instance = made[family]
    belief = fleetgym.Belief(instance)
    scenario = draw_scenario(instance, np.random.default_rng(6))
    errors = []
    for t in range(60):
        belief.update(t, Conditions.of(scenario, t))
        paths = belief.sample(8, 2, np.random.default_rng(t))
        errors.append(
            np.log(paths.workload[:, 0, 0].mean(axis=0) / np.maximum(scenario.rate_rps[t + 1], 1e-2))
        )
    assert np.median(np.abs(errors[20:])) < 0.3


@pytest.mark.parametrize(
    ("process", "field", "value", "said"),
    [
        ("demand", "first_day", 1.5, "whole number"),
        ("availability", "warning_windows", 0.5, "whole number"),
        ("prices", "other_region", 0.9, "other_region <= same_region"),
        ("prices", "jump_log_mean", 1.0, "from 0 to 0.9"),
    ],
)
def test_what_cannot_be_is_refused(
    process: str, field: str, value: float, said: str, made: dict[str, Instance]
) -> None:
    """A parameter out of its range is named, with its path."""
    data = made["market"].to_dict()
    data["dynamics"][process]["parameters"][field] = value
    with pytest.raises(DataError, match=said):
        Instance.from_dict(data)


def test_a_batch_wants_one_kind_of_warning(made: dict[str, Instance]) -> None:
    """Instances that differ in what is announced are refused, not played wrongly."""
    data = made["market"].to_dict()
    data["dynamics"]["availability"]["parameters"]["warning_windows"] = 0.0
    with pytest.raises(FleetgymError, match="announced"):
        gymnasium.make_vec(V1, num_envs=2, instance=[made["market"], Instance.from_dict(data)])


def test_v1_shows_the_history_at_the_same_time_of_the_week(made: dict[str, Instance]) -> None:
    """Time of the week and forecasts, by a plain loop; without a history of a day the forecast is 0."""
    instance = made["week"]
    env = gymnasium.make(V1, instance=instance).unwrapped
    observation, _ = env.reset(seed=0)
    past = instance.history.rate_rps
    nominal = np.array([w.rate_rps for w in instance.workloads])
    for row, ahead in enumerate(AHEAD):
        mean = (past[ahead] + past[ahead + 2016]) / 2
        expected = np.clip(np.log(np.maximum(mean / nominal, 1e-300)), -5, 5).astype(np.float32)
        np.testing.assert_allclose(observation["forecast"][row], expected, rtol=1e-6)
    np.testing.assert_allclose(observation["week"], [0.0, 1.0], atol=1e-6)
    assert env.observation_space.contains(observation)
    toy = gymnasium.make(V1, instance="fleet-v0/toy/two-pools").unwrapped
    observation, _ = toy.reset(seed=0)
    assert (observation["forecast"] == 0).all()
    assert (observation["announced"] == 1).all()


@pytest.mark.parametrize(
    "name", ["fleet-v1/dev/drop-s-101", "fleet-v1/dev/multi-s-101", "fleet-v1/dev/tail-s-101"]
)
def test_fleet_v1_is_made_as_before(name: str) -> None:
    """Generators of frozen families give the frozen content."""
    family, size, seed = name.rpartition("/")[2].split("-")
    instance = generate(family, size, int(seed))
    assert instance.content_hash == fleetgym.load_instance(name).content_hash
    for fresh, kept in zip(
        stored_scenarios(instance, int(seed), 3, 4), fleetgym.load_scenarios(name), strict=True
    ):
        np.testing.assert_array_equal(fresh.rate_rps, kept.rate_rps)
        np.testing.assert_array_equal(fresh.available_gpus, kept.available_gpus)
