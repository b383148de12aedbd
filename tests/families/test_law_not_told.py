"""Agents of families that hide their law see processes that follow from the history and the family alone."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import fleetgym
from fleetgym.families.fitted import _FITTED
from fleetgym.families.generate import families, generate, public_part, stored_scenarios
from fleetgym.files.documents import read_json, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.model.library import with_law
from fleetgym.model.processes import Dynamics, Process

V1 = "fleetgym:FleetAlloc-v1"
HIDING = [name for name, family in families().items() if family.public is not None]


@pytest.fixture(scope="module")
def told() -> Instance:
    """Return an instance with the law that draws its days."""
    return generate("ou-v2", "s", 1001)


@pytest.fixture(scope="module")
def public(told: Instance) -> Instance:
    """Return it as agents see it."""
    return public_part(told)[0]


@pytest.fixture(scope="module")
def stored(told: Instance, public: Instance, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the public part; the law lies with its days."""
    path = tmp_path_factory.mktemp("law") / "mine.json"
    write_instance(path, public, stored_scenarios(told, 1001, 1), law=told.dynamics)
    return path


def test_families_of_fleet_v2_hide_their_law() -> None:
    """All of them, and no family of frozen sets, whose instances keep their hashes."""
    assert sorted(HIDING) == sorted(["week", "ou-v2", "drop-v2", "budget-v2", "tail-v2", "market", "split"])
    plain = generate("ou", "s", 1001)
    assert public_part(plain) == (plain, None)
    assert "law" not in plain.to_dict()


def other_law(law: Dynamics, factor: float) -> Dynamics:
    """Return a law with all its numbers changed but those that the family and the calendar fix."""
    parameters = {
        name: tuple(factor * np.atleast_1d(value)) if name in _FITTED else value
        for name, value in law.demand.parameters.items()
    }
    tokens = Process(kind="drift", parameters={**law.tokens.parameters, "log_sd": 0.01 * factor})
    demand = Process(kind=law.demand.kind, parameters=parameters)
    return dataclasses.replace(law, demand=demand, tokens=tokens)


def test_the_public_part_depends_on_no_number_of_the_law(told: Instance, public: Instance) -> None:
    """Another law beside the same history gives the same public part, byte for byte."""
    changed = told.replace(dynamics=other_law(told.dynamics, 1.01))
    assert changed.content_hash != told.content_hash
    assert public_part(changed)[0].content_hash == public.content_hash


def test_the_public_part_tells_no_pool_s_own_supply() -> None:
    """Drops and prices are drawn for each spot pool; agents are told the family's numbers, and tell no pool apart."""
    told = generate("market", "s", 1001)
    public, law = public_part(told)
    assert law is not None
    spot = [k for k, pool in enumerate(told.pools) if pool.market == "spot"]
    for process, name in (
        ("availability", "drops_per_day"),
        ("prices", "ou_sd"),
        ("prices", "jumps_per_day"),
    ):
        own, shown = (getattr(part, process).parameters[name] for part in (law, public.dynamics))
        assert len({own[k] for k in spot}) == len(spot)
        assert len({shown[k] for k in spot}) == 1
        assert [own[k] for k in range(len(own)) if k not in spot] == [0.0] * (len(own) - len(spot))
    drops = law.availability.parameters["drops_per_day"]
    assert all(2.4 <= drops[k] <= 6.9 for k in spot)
    changed = {"drops_per_day": tuple(1.01 * value for value in drops)}
    other = Process(kind="warned-drops", parameters={**law.availability.parameters, **changed})
    again = public_part(told.replace(dynamics=dataclasses.replace(law, availability=other)))[0]
    assert again.content_hash == public.content_hash


@pytest.mark.slow
def test_the_fit_is_near_the_law() -> None:
    """Over sixteen workloads errors are below how much the numbers differ between workloads."""
    pairs = []
    for seed in (1002, 1003, 1004, 1005):
        instance = generate("ou-v2", "s", seed)
        public, law = public_part(instance)
        assert law == instance.dynamics
        pairs.append(
            [
                [np.broadcast_to(part.demand.parameters[name], 4) for name in _FITTED]
                for part in (law, public.dynamics)
            ]
        )
    true, fitted = np.array(pairs).transpose(1, 2, 0, 3).reshape(2, len(_FITTED), -1)
    error = np.sqrt(np.mean((true - fitted) ** 2, axis=1)) / true.std(axis=1)
    known = dict(zip(_FITTED, error, strict=True))
    assert max(known[name] for name in ("workday_level", "weekend_level", "workday_cos_1")) < 0.35
    assert known["ou_sd"] < 0.75
    assert max(known[name] for name in ("noise_sd", "dispersion")) < 0.3


def test_nothing_that_an_agent_is_shown_holds_the_law(told: Instance, public: Instance) -> None:
    """Neither the view, the observation, the info nor a pickled environment: no row of numbers of the law is there."""
    env = gymnasium.make(V1, instance=public)
    observation, info = env.reset(seed=0)
    view = fleetgym.View(public)
    view.update(info)
    shown = pickle.dumps((view, observation, info, env.unwrapped.get_state(), env.unwrapped))
    written = json.dumps(public.to_dict())
    for name in _FITTED:
        numbers = told.dynamics.demand.parameters[name]
        if isinstance(numbers, tuple) and len(set(numbers)) == len(numbers):
            assert pickle.dumps(numbers)[2:-1] not in shown
            assert json.dumps(numbers) not in written


def test_days_are_drawn_from_what_is_public_unless_the_law_is_asked_for(told: Instance, stored: Path) -> None:
    """`law="known"` draws from the law that lies with the days; single and batched alike."""
    expected = {"public": fleetgym.load_instance(stored), "known": told}
    for law, instance in expected.items():
        env = gymnasium.make(V1, instance=stored, law=law)
        batch = gymnasium.make_vec(V1, num_envs=2, instance=stored, law=law, full_info=True)
        _, info = env.reset(seed=5)
        _, infos = batch.reset(seed=[5, 6])
        rate = [
            env.step(env.unwrapped.actions.from_fleet(env.unwrapped.instance.nominal_fleet))[4]["rate_rps"]
        ]
        day = draw_scenario(instance, np.random.default_rng(np.random.SeedSequence(5)))
        np.testing.assert_array_equal(rate[0], day.rate_rps[0])
        np.testing.assert_array_equal(infos["rate_rps"][0], info["rate_rps"])
        assert env.unwrapped.instance.law == "fitted"
    with pytest.raises(FleetgymError, match="law must be one of"):
        gymnasium.make(V1, instance=stored, law="told")


def test_the_law_lies_with_the_days(told: Instance, public: Instance, stored: Path, tmp_path: Path) -> None:
    """It is found by the file; an instance alone, which no set holds, does not lead there."""
    known = with_law(stored)
    assert (known.law, known.dynamics) == ("told", told.dynamics)
    assert with_law(told) is told
    with pytest.raises(FleetgymError, match="no set holds"):
        with_law(public)


@pytest.mark.parametrize("told_too_much", [False, True])
def test_files_with_a_law_too_many_or_too_few_are_refused(
    told: Instance, stored: Path, tmp_path: Path, told_too_much: bool
) -> None:
    """A fitted instance needs a law beside its days, a told one has none there."""
    path = tmp_path / "mine.json"
    if told_too_much:
        write_instance(path, told, stored_scenarios(told, 1001, 1), law=told.dynamics)
    else:
        data = read_json(stored.with_name("mine.scenarios.json.gz"))
        del data["law"]
        write_json(path, read_json(stored))
        write_json(path.with_name("mine.scenarios.json.gz"), data)
    with pytest.raises(DataError, match=r"\$\.law: expected") as caught:
        fleetgym.load_scenarios(path)
    assert "mine.scenarios.json.gz" in str(caught.value)


@pytest.mark.parametrize("family", HIDING)
def test_every_hiding_family_can_be_fitted(family: str) -> None:
    """Its public part can be drawn from, and has the shape of the law."""
    instance = generate(family, "s", 1001)
    public, law = public_part(instance)
    assert law is not None
    assert [p.kind for p in vars(public.dynamics).values()] == [p.kind for p in vars(law).values()]
    day = draw_scenario(public, np.random.default_rng(0)).check(public)
    ratio = day.rate_rps.mean(axis=0) / public.history.rate_rps.mean(axis=0)
    assert np.all((ratio > 0.2) & (ratio < 5.0))
