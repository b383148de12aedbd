"""The agent that is told the law plays like another one on the instance that tells it."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest

import fleetgym
from fleetgym.families.generate import generate, public_part, stored_scenarios
from fleetgym.files.documents import canonical_hash, file_sha256, write_json
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import scenario_file_data

NAME = "fleet-x/dev/mine"


def costs(agent: str, instance: Instance, scenario: fleetgym.Scenario, windows: int) -> list[float]:
    """Return what the first windows cost."""
    env = gymnasium.make("fleetgym:preview/FleetAlloc-v1", instance=instance).unwrapped
    player, view = fleetgym.make_agent(agent), fleetgym.View(instance)
    observation, info = env.reset(options={"scenario": scenario})
    view.update(info)
    player.reset(view, seed=0)
    found = []
    for _ in range(windows):
        view.update(info)
        observation, _, _, _, info = env.step(player.act(observation, info))
        found.append(info["cost"])
    return found


def test_it_plays_as_if_the_law_were_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lookahead` costs the same on the told instance, and something else on the fitted one."""
    told = generate("ou-v2", "s", 1001)
    public, law = public_part(told)
    days = stored_scenarios(told, 1001, 1)
    stem = tmp_path / NAME
    write_json(stem.with_name("mine.json.gz"), public.to_dict())
    hidden = scenario_file_data(public, days, law)
    write_json(stem.with_name("mine.scenarios.json.gz"), hidden)
    entry = {
        "id": NAME,
        "family": public.family,
        "size": public.size,
        "scenarios": 1,
        "content_hash": public.content_hash,
        "instance_file": f"{NAME}.json.gz",
        "instance_sha256": file_sha256(stem.with_name("mine.json.gz")),
        "scenario_file": f"{NAME}.scenarios.json.gz",
        "scenario_sha256": file_sha256(stem.with_name("mine.scenarios.json.gz")),
        "scenario_hash": canonical_hash(hidden),
    }
    write_json(tmp_path / "manifest.json", {"format": "fleetgym-manifest-1", "entries": [entry]})
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path))
    informed = costs("knows-law", public, days[0], 20)
    assert informed == costs("lookahead", told, days[0], 20)
    assert informed != costs("lookahead", public, days[0], 20)
