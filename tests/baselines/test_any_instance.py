"""Every agent plays random instances with drops, and plays them alike."""

from __future__ import annotations

import pytest
from test_agents import play
from toys import random_instance, random_scenario

from fleetgym.agents.registry import make_agent

#: How agents are made, with settings that search little, and how many instances they play.
AGENTS = {
    **dict.fromkeys(("hold", "random", "autoscale", "margin"), 12),
    **dict.fromkeys(("dynamo", "knative", "llm-d", "sageserve", "spothedge"), 12),
    **dict.fromkeys(("lookahead(paths=4, windows=3)", "mpc(windows=3, judges=4)"), 12),
    "descent(every=2, samples=4, forecaster='belief')": 8,
    **dict.fromkeys(("milp", "milp-hourly", "milp-rolling", "newsvendor", "saa", "lcp"), 4),
    "jiang(every=2, margin=0.2)": 4,
    "melange(every=3, margin=0.1, slice_factor=4)": 2,
}


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, count in AGENTS.items() for seed in range(count)]
)
def test_any_instance(name: str, seed: int) -> None:
    """Every action is valid, an agent can be used twice, and a new one with the same seed acts the same."""
    instance = random_instance(seed)
    scenario = random_scenario(instance, seed)
    used = make_agent(name)
    play(used, instance, scenario, seed + 1)
    assert play(used, instance, scenario, seed) == play(make_agent(name), instance, scenario, seed)
