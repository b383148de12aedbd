"""Every agent plays random instances with drops, plays them alike, and names arguments that mean nothing."""

from __future__ import annotations

import pytest
from test_agents import play
from toys import random_instance, random_scenario

from fleetgym.agents.registry import make_agent
from fleetgym.files.errors import FleetgymError, UnknownNameError

#: How agents are made, with settings that search little, and how many instances they play.
AGENTS = {
    **dict.fromkeys(("hold", "random", "autoscale", "margin"), 12),
    **dict.fromkeys(("dynamo", "dynamo-planner", "knative", "llm-d", "sageserve", "spothedge"), 12),
    **dict.fromkeys(("heteroscale", "tokenscale"), 12),
    **dict.fromkeys(("lookahead(paths=4, windows=3)", "mpc(windows=3, judges=4)"), 12),
    "chc(windows=3, judges=4, commitment=2)": 6,
    "hindsight(windows=3, paths=2)": 6,
    **dict.fromkeys(("right-sizing", "right-sizing(share=0.0)"), 8),
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


@pytest.mark.parametrize(
    "name",
    [
        *("gh(slo='median')", "gh(storage_usd_per_h=-1)", "agh(coverage_budget_share=-1)"),
        *("coral(method='helix')", "coral(utilization=1.5)", "coral(interval_windows=0)"),
        *("jiang(objective='fast')", "jiang(search='luck')", "jiang(utilization=1.5)"),
        *("melange(slice_factor=0)", "melange(utilization=0.0)", "cem(generations=0)"),
        *("milp(slo='soft')", "milp(kv='none')", "milp(formulation='loose')", "milp(gap=-1.0)"),
        *("milp(switch_weight=-1.0)", "descent(horizon=0)", "margin(lower=-1)"),
        *("autoscale(target_utilization=1.2)", "autoscale(cooldown_windows=-1)", "margin(risk=2)"),
        *(
            "margin(payback_windows=0)",
            "lookahead(paths=0)",
            "lookahead(exchanges=-1)",
            "lookahead(large=-1)",
            "lookahead(plan_every=0)",
        ),
        *("patient(every=0)", "patient(surprise=0.0)", "patient(every=1.5)", "patient(paths=0)"),
        *(f"mpc({name}=0)" for name in ("windows", "paths", "judges", "shortlist", "every")),
        *("chc(commitment=0)", "hindsight(holding=1.5)", "hindsight(paths=0)"),
        *("right-sizing(share=2.0)", "right-sizing(lower=0.0)", "knative(target=1.2)"),
        *(
            "knative(panic_threshold=0.5)",
            "llm-d(down=0.9)",
            "dynamo(every=0)",
            "spothedge(overprovision=-1)",
        ),
        *("sageserve(gap=1.0)", "sageserve(idle=0.0)", "heteroscale(target=0.0)"),
        *("heteroscale(calm_windows=-1)", "tokenscale(convertible=-0.1)"),
    ],
)
def test_bad_arguments(name: str) -> None:
    """An argument that means nothing is named, with what would be valid."""
    with pytest.raises(FleetgymError, match=f"{name.partition('(')[2].partition('=')[0]} is .*expected"):
        make_agent(name)


@pytest.mark.parametrize(
    "name",
    ["margin(forecaster='seasonl')", "dynamo(forecaster='seasonl')", "sageserve(forecaster='seasonl')"],
)
def test_forecasters_have_names(name: str) -> None:
    """Unknown ones are refused."""
    with pytest.raises(UnknownNameError, match="seasonal"):
        make_agent(name)
