"""The agent that is told the law plays like another one on the instance that tells it."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest
from law_sets import make_set

import fleetgym
from fleetgym.model.instance import Instance


def costs(agent: str, instance: Instance, scenario: fleetgym.Scenario, windows: int) -> list[float]:
    """Return what the first windows cost."""
    env = gymnasium.make("fleetgym:FleetAlloc-v1", instance=instance).unwrapped
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
    told, public, day = make_set(tmp_path, 1001)
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path))
    informed = costs("knows-law", public, day, 20)
    assert informed == costs("lookahead", told, day, 20)
    assert informed != costs("lookahead", public, day, 20)
