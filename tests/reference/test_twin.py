"""The environment and the reference evaluator agree, over whole episodes of random actions."""

from __future__ import annotations

import numpy as np
import pytest
from episodes_twin import compare_episode, random_actions
from toys import random_instance, random_scenario, with_laws

import fleetgym
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import window_model

TOY = fleetgym.list_instances("fleet-v0/toy")
DEV = [name for name in fleetgym.list_instances("fleet-v0") if "/dev/" in name]
#: All small instances and the first medium one of each family; `make verify-all` plays the others.
SHARE = [name for name in DEV if "-s-" in name or "fastllm" in name or name.endswith("-m-001")]
TAIL = [name for name in fleetgym.list_instances("fleet-v1/dev") if "/tail-" in name]


@pytest.mark.parametrize("instance_id", TOY)
def test_toy_episodes(instance_id: str) -> None:
    """Whole stored and drawn episodes of every toy instance."""
    instance = fleetgym.load_instance(instance_id)
    for k, scenario in enumerate(fleetgym.load_scenarios(instance_id)):
        for seed in range(5):
            compare_episode(instance_id, scenario, instance.num_windows, 100 * k + seed)


@pytest.mark.parametrize("instance_id", DEV)
def test_dev_samples(instance_id: str) -> None:
    """The first windows of every dev instance."""
    compare_episode(instance_id, fleetgym.load_scenarios(instance_id)[0], 12, seed=1)


@pytest.mark.parametrize("instance_id", TAIL[::4])
def test_bursty_samples(instance_id: str) -> None:
    """The first windows of instances whose arrivals have a cv2 of up to 20, and dear late requests."""
    compare_episode(instance_id, fleetgym.load_scenarios(instance_id)[0], 12, seed=3)


@pytest.mark.parametrize("seed", range(24))
def test_any_dispersion_of_arrivals(seed: int) -> None:
    """Random instances of all scales; each workload's arrivals are steadier or burstier than Poisson's, or neither."""
    data, rng = random_instance(seed).to_dict(), np.random.default_rng(seed)
    for workload in data["workloads"]:
        workload["arrival_cv2"] = float(rng.choice([0.0, 0.25, 1.0, 4.0, 20.0, 100.0]))
    instance = Instance.from_dict(data)
    compare_episode(instance, random_scenario(instance, seed), instance.num_windows, seed)


@pytest.mark.parametrize("seed", range(24))
def test_any_law_of_prompts(seed: int) -> None:
    """Prompts of any law; some SLOs are shorter than any prefill, or far longer, and some prefills do not vary."""
    data, rng = with_laws(random_instance(seed), seed).to_dict(), np.random.default_rng(seed)
    prefill = {name: np.array(part) for name, part in data["performance"]["prefill_s"].items()}
    prefill["per_input_token"] *= rng.choice(
        [0.0, 1e-8, 1.0, 10.0], prefill["base"].shape, p=[0.1, 0.1, 0.3, 0.5]
    )
    data["performance"]["prefill_s"] = prefill
    for i, workload in enumerate(data["workloads"]):
        prompts = prefill["per_input_token"][i] * workload["input_tokens"]
        near = prefill["base"][i] + prompts * 10 ** rng.uniform(-1.0, 1.0)
        slo = 10 ** rng.uniform(-6, 6) if rng.random() < 0.2 else rng.choice(near)
        workload["ttft_slo_s"] = float(max(1e-6, slo))
    instance = Instance.from_dict(data)
    compare_episode(instance, random_scenario(instance, seed), instance.num_windows, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance_id", [pytest.param(name, marks=() if name in SHARE else pytest.mark.full) for name in DEV]
)
def test_dev_episodes(instance_id: str) -> None:
    """A whole random-action episode of every dev instance."""
    instance = fleetgym.load_instance(instance_id)
    compare_episode(instance_id, fleetgym.load_scenarios(instance_id)[-1], instance.num_windows, seed=2)


@pytest.mark.parametrize("instance_id", TOY + DEV[:2] + DEV[-2:])
def test_permuting_configurations_and_pools_changes_nothing(instance_id: str) -> None:
    """The order of configurations and pools in the file does not move an episode's cost by more than 1e-9."""
    instance = fleetgym.load_instance(instance_id)
    scenario = fleetgym.load_scenarios(instance_id)[0]
    rng = np.random.default_rng(5)
    configurations = rng.permutation(instance.num_configurations)
    pools = rng.permutation(instance.num_pools)
    shuffled, shuffled_scenario = permuted(instance, scenario, configurations, pools)
    costs = []
    for which, story in ((instance, scenario), (shuffled, shuffled_scenario)):
        model = window_model(which)
        state, router, total = model.initial_state(), model.new_router(), 0.0
        for t, action in enumerate(random_actions(instance, min(48, instance.num_windows), 9)):
            target = fleetgym.ActionSpace(which).to_fleet(action)
            total += model.step(state, target, Conditions.of(story, t), router).cost_usd
        costs.append(total)
    assert costs[1] == pytest.approx(costs[0], rel=1e-9)


def permuted(
    instance: Instance, scenario: Scenario, configurations: np.ndarray, pools: np.ndarray
) -> tuple[Instance, Scenario]:
    """Return the same problem with configurations and pools in another order; slots stay as they are."""
    data = instance.to_dict()
    data["configurations"] = [data["configurations"][c] for c in configurations]
    data["nominal_fleet"] = [data["nominal_fleet"][c] for c in configurations]
    data["performance"] = _reorder(data["performance"], configurations)
    data["pools"] = [data["pools"][g] for g in pools]
    parameters = data["dynamics"]["availability"]["parameters"]
    for name, value in parameters.items():
        if isinstance(value, list) and len(value) == len(pools):
            parameters[name] = [value[g] for g in pools]
    story = {
        "available_gpus": scenario.available_gpus[:, pools],
        "price_factor": scenario.price_factor[:, pools],
    }
    fields = {f: getattr(scenario, f) for f in scenario.__dataclass_fields__}
    return Instance.from_dict(data), Scenario(**{**fields, **story})


def _reorder(table: object, order: np.ndarray) -> object:
    """Reorder the columns of every array in a (nested) mapping."""
    if isinstance(table, dict):
        return {name: _reorder(part, order) for name, part in table.items()}
    return np.asarray(table)[:, order].tolist()
