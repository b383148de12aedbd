"""Risk of fleets and agents over generated days, and how `fleetgym plan` tells it."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

import fleetgym
from fleetgym.agents.registry import make_agent, make_planner
from fleetgym.capacity.choice import MARGINS, choose
from fleetgym.capacity.risk import (
    agent_risk,
    fleet_risk,
    generated_days,
    plan_with_risk,
    worst_decile,
)
from fleetgym.cli.parser import main
from fleetgym.cli.plan_report import _HELPFUL_GAP, describe_plan, plan_facts, risky_facts
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Budget, Instance
from fleetgym.model.lengths import LengthLaw

DEV = "fleet-v0/dev/ou-s-001"
TOY = "fleet-v0/toy/drop"


@pytest.fixture(scope="module")
def instance() -> Instance:
    """Return an instance whose demand varies."""
    return fleetgym.load_instance(DEV)


@pytest.fixture(scope="module")
def fleet(instance: Instance) -> np.ndarray:
    """Return a fleet for it."""
    return fleetgym.plan(instance, "gh").fleet


def test_a_day_costs_what_the_environment_says(instance: Instance, fleet: np.ndarray) -> None:
    """Day by day the same cost and shares as an agent that holds the fleet, up to the first start-up."""
    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    holding = instance.replace(nominal_fleet=fleet)
    found = fleet_risk(instance, fleet, days=3, seed=5)
    env = FleetAllocEnv(holding)
    for k in range(3):
        rng = np.random.default_rng([0x7269736B, 5, k])
        scenario = draw_scenario(instance, rng)
        env.reset(options={"scenario": scenario})
        costs, missed, total = [], 0.0, 0.0
        for window in range(instance.num_windows):
            _, reward, _, _, info = env.step(env.actions.from_fleet(fleet))
            rate = scenario.rate_rps[window]
            costs.append(-reward)
            missed, total = missed + float(rate @ info["miss_share"]), total + float(rate.sum())
        assert found.cost_usd[k] == pytest.approx(sum(costs), rel=1e-12)
        assert found.miss_share[k] == pytest.approx(missed / total, rel=1e-9)


def test_measures() -> None:
    """Mean, P95 and worst decile of a known sample; the tenth is rounded up to whole days."""
    values = np.arange(100.0)
    assert worst_decile(values) == np.mean(range(90, 100))
    assert worst_decile(values[:11]) == 9.5
    assert worst_decile(values[:1]) == 0.0
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(values)
    assert worst_decile(shuffled) == worst_decile(values)


def test_risk_is_ordered_and_repeats(instance: Instance, fleet: np.ndarray) -> None:
    """The worst decile is above P90, the same seed gives the same numbers, and more days keep the first."""
    one = fleet_risk(instance, fleet, days=20, seed=1)
    summary = one.summary()
    for name in ("cost_usd", "miss_share", "unserved_share"):
        values = getattr(one, name)
        assert summary[name]["mean"] == pytest.approx(values.mean())
        assert np.quantile(values, 0.9) <= summary[name]["worst_decile"] <= values.max()
        assert summary[name]["p95"] == np.quantile(values, 0.95)
    assert sum(summary["terms_usd"].values()) == pytest.approx(summary["cost_usd"]["mean"])
    assert np.all(one.unserved_share <= one.miss_share + 1e-12)
    more = fleet_risk(instance, fleet, days=25, seed=1)
    np.testing.assert_array_equal(more.terms_usd[:20], one.terms_usd)
    assert not np.array_equal(fleet_risk(instance, fleet, days=20, seed=2).cost_usd, one.cost_usd)
    assert one.cost_usd.std() > 0.0


def test_an_empty_fleet_serves_nothing(instance: Instance) -> None:
    """Everything is unserved, and costs what the requests of the day are worth."""
    found = fleet_risk(instance, np.zeros(instance.num_configurations, dtype=int), days=2)
    np.testing.assert_allclose(found.unserved_share, 1.0)
    prices = np.array([w.unserved_usd for w in instance.workloads])
    expected = [
        float((d.rate_rps @ prices).sum()) * instance.window_s for d in generated_days(instance, 2, 0)
    ]
    np.testing.assert_allclose(found.cost_usd, expected)


def test_an_agent_plays_the_same_days(instance: Instance) -> None:
    """Static GH as an agent costs what its fleet does, start-up of the first window aside."""
    plan = fleetgym.plan(instance, "gh")
    agent = agent_risk(instance, make_agent("gh"), days=4)
    held = fleet_risk(instance, plan.fleet, days=4)
    np.testing.assert_allclose(agent.terms_usd[:, :7], held.terms_usd[:, :7], rtol=1e-9, atol=1e-9)
    rolling = agent_risk(instance, make_agent("gh-rolling"), days=2)
    assert not np.allclose(rolling.cost_usd, held.cost_usd[:2])


@pytest.mark.slow
def test_the_best_margin_pays(instance: Instance) -> None:
    """On other days than those it was chosen on, too."""
    margin = choose(instance, make_planner("gh")).margin
    assert margin > 0.0
    costs = []
    for tried in (0.0, margin):
        found = plan_with_risk(instance, "gh", margin=tried, days=20).risk
        assert found is not None
        costs.append(found.cost_usd.mean())
    assert costs[1] < costs[0]


def test_wrong_calls(instance: Instance, fleet: np.ndarray) -> None:
    """Days, seeds, shapes and margins are checked."""
    for options in ({"days": 0}, {"days": 1.5}, {"days": 2, "seed": -1}, {"days": 2, "seed": 0.5}):
        with pytest.raises(FleetgymError, match="at least"):
            fleet_risk(instance, fleet, **options)
    with pytest.raises(FleetgymError, match="18 replicas, got shape"):
        fleet_risk(instance, [1], days=1)
    with pytest.raises(FleetgymError, match="margin=0.2"):
        plan_with_risk(instance, "gh-rolling", margin=0.5)
    with pytest.raises(FleetgymError, match="above -1"):
        plan_with_risk(instance, "gh", margin=-2.0)
    with pytest.raises(FleetgymError, match="is no planner"):
        plan_with_risk(instance, "hold")


# -- the command


@pytest.mark.slow
def test_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Cost, bound, fleet, GPUs by pool, SLOs and risk are there, and agree."""
    assert main(["plan", DEV, "--agent", "gh", "--days", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cost"] == pytest.approx(sum(v for k, v in facts["costs_usd"].items() if k != "cost"))
    assert 0.0 < facts["bound"] <= facts["cost"]
    assert facts["gap"] == pytest.approx(1.0 - facts["bound"] / facts["cost"])
    assert facts["agent"] == "gh"
    held = sum(g["held"] for g in facts["gpus"].values())
    assert held > 0
    for route in facts["routing"].values():
        assert sum(route["to"].values()) + route["unserved"] == pytest.approx(1.0)
        assert route["delay_s"] > 0.0
    assert facts["risk"]["days"] == 2
    assert main(["plan", DEV, "--agent", "gh", "--days", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["risk"] is None


def test_plan_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Every section is there, and tables line up."""
    assert main(["plan", DEV, "--agent", "agh(margin=0.25)", "--days", "3", "--details"]) == 0
    out = capsys.readouterr().out
    for part in (
        "1.25 times nominal demand",
        "buy",
        "routing and SLOs",
        "cost",
        "risk",
        "worst decile",
    ):
        assert part in out
    assert "save at most" not in " ".join(out.split())  # a bound far below the plan tells nothing of it
    table = out.split("risk: ")[1].splitlines()[1:6]
    assert len({len(line) for line in table[:5]}) == 1
    assert main(["plan", TOY, "--agent", "gh(margin=0.0)", "--days", "0"]) == 0
    assert "save at most" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", TOY, "--agent", "gh-rolling", "--days", "2"]) == 0
    out = capsys.readouterr().out
    assert "gh-rolling playing" in out
    assert "episode of" in out


def test_margins_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A number, the best one, or neither for an agent that replans."""
    assert main(["plan", TOY, "--agent", "gh", "--margin", "0.5", "--days", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["margin"] == 0.5
    assert main(["plan", TOY, "--agent", "gh", "--margin", "best", "--days", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["margin"] in MARGINS
    assert main(["plan", TOY, "--agent", "gh-rolling", "--margin", "0.5"]) == 2
    for words in (["--days", "-1"], ["--margin", "much"], ["--margin", "nan"]):
        with pytest.raises(SystemExit):
            main(["plan", TOY, *words])


def text_of(instance: Instance, agent: str = "gh", days: int = 3, **options: float) -> str:
    """Return a plan as text."""
    found = plan_with_risk(instance, agent, days=days, **options)
    return describe_plan(instance, risky_facts(instance, found, agent))


@pytest.mark.slow
def test_advice_fits_the_reason(instance: Instance) -> None:
    """A margin is proposed where it can help; caps and budgets are named where they are in the way."""
    assert text_of(instance, "gh(margin=0)").startswith("WARNING: ")
    assert "the cheapest plan at these" in " ".join(text_of(instance, margin=0.0).split())
    assert not text_of(instance, margin=2.0).startswith("WARNING: ")
    idle = dataclasses.replace(instance, nominal_fleet=np.zeros_like(instance.nominal_fleet))
    one = dataclasses.replace(
        idle, pools=tuple(dataclasses.replace(pool, cap_gpus=1) for pool in instance.pools)
    )
    assert re.match(
        r"WARNING: .*% of the requests are missed on generated days, .*: no further replica fits the caps\.",
        " ".join(text_of(one).split()),
    )
    assert "unserved already at nominal demand: no further replica fits the caps." in " ".join(
        text_of(one, days=0).split()
    )
    poor = dataclasses.replace(idle, budget=Budget(kind="rate", usd=3.0))
    text = text_of(poor, days=0)
    assert "unserved already at nominal demand: no further replica fits the budget." in " ".join(text.split())
    assert "budget: 3.00 USD/h, of which this fleet takes " in text
    cheap = [
        dataclasses.replace(w, unserved_usd=1e-3 * w.unserved_usd, late_usd=0.0) for w in instance.workloads
    ]
    nobody = text_of(dataclasses.replace(instance, workloads=tuple(cheap)), days=0)
    assert "100.0 % is unserved already at nominal demand: there is room for more replicas" in " ".join(
        nobody.split()
    )


def test_json_says_whose_risk_and_which_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a fleet that is held or of an agent that plays; how the margin was found; what a budget pays for."""
    for agent, days, whose in (("gh", "1", "fleet"), ("gh-rolling", "1", "agent"), ("gh", "0", None)):
        assert main(["plan", TOY, "--agent", agent, "--days", days, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["risk_of"], facts["budget"]) == (whose, None)
        assert (facts["choice"] is not None) == (whose == "fleet")
    pool = "fleet-v0/toy/budget-pool"
    assert main(["plan", pool, "--agent", "gh", "--margin", "best", "--days", "0", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["choice"]["kind"] == "one plan for all pools"
    assert facts["budget"] == {"kind": "pool", "usd": 10.0, "held_usd": pytest.approx(8.0)}


@pytest.mark.parametrize("agent", ["gh", "agh(margin=0.3)", "milp", "milp-hourly", "saa", "newsvendor"])
@pytest.mark.parametrize(
    "name", [TOY, "fleet-v0/toy/startup", "fleet-v0/toy/budget-pool", "fleet-v0/dev/ou-s-001"]
)
def test_no_plan_costs_less_than_the_bound(name: str, agent: str) -> None:
    """The bound is the window's, whatever the planner's own objective counts or leaves out."""
    instance = fleetgym.load_instance(name)
    found = plan_with_risk(instance, agent, days=0)
    facts = risky_facts(instance, found, agent)
    assert facts["bound"] <= facts["cost"]
    assert facts["gap"] == pytest.approx(1.0 - facts["bound"] / facts["cost"])
    text = " ".join(describe_plan(instance, facts).split())
    saved = (facts["cost"] - facts["bound"]) * 3600.0 / instance.window_s
    assert (f"save at most {saved:,.2f} USD/h" in text) == (facts["gap"] <= _HELPFUL_GAP)


@pytest.mark.parametrize("agent", ["gh", "queueing", "milp"])
def test_a_plan_tells_prompts_that_are_too_long(instance: Instance, agent: str) -> None:
    """Their share is that of the routes, no plan avoids it, and the bound knows it."""
    law, data = LengthLaw.lognormal(4.0), instance.to_dict()
    prompts = data["performance"]["prefill_s"]
    prompts["base"] = np.zeros_like(prompts["base"])
    for w, per_token in zip(data["workloads"], prompts["per_input_token"], strict=True):
        w |= {
            "input_law": law,
            "ttft_slo_s": 4.0 * min(per_token) * w["input_tokens"],
            "late_usd": w["unserved_usd"] / 3,
        }
    long = Instance.from_dict(data)
    facts = risky_facts(long, plan_with_risk(long, agent, days=0), agent)
    least = fleetgym.View(long).snapshot().own_late.min(axis=1)
    for i, (name, route) in enumerate(facts["routing"].items()):
        assert 0.02 < least[i] <= route["late_by_length"] <= route["miss"] + 1e-12
        told = f"{100 * route['late_by_length']:.2f} % of {name}'s prompts take longer than its ttft"
        assert told in " ".join(describe_plan(long, facts).split())
    assert 0.0 < facts["bound"] <= facts["cost"]


def test_what_runs_already_starts_for_nothing() -> None:
    """The exact planner's window is proven: fees do not keep it from the cheapest fleet."""
    instance = fleetgym.load_instance("fleet-v0/toy/startup")
    facts = plan_facts(instance, plan_with_risk(instance, "milp", days=0).plan)
    assert facts["cost"] == pytest.approx(2.0)
    assert facts["bound"] == pytest.approx(2.0, rel=1e-4)


def test_plans_that_no_action_wants_are_not_priced() -> None:
    """A fleet beyond `max_replicas` is named instead."""
    instance = fleetgym.load_instance("fleet-v0/toy/startup")
    with pytest.raises(DataError, match=r"\$\.fleet\[0\]: expected 0 to"):
        plan_facts(instance, fleetgym.Plan(fleet=np.array([10**6])))


def test_impossible_fleets_and_rates_are_refused() -> None:
    """Nothing is rounded, clipped or lifted to zero."""
    instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    for fleet in ([-1, 9], [0.5, 0.9], [9, 0], [1], ["a", 0]):
        with pytest.raises(FleetgymError):
            fleet_risk(instance, fleet, days=1)
    for rate_rps in ([-1.0], [float("nan")], [[1.0], [2.0]], [1.0, 2.0, 3.0]):
        with pytest.raises(FleetgymError, match="rate_rps: expected"):
            fleetgym.View(instance).snapshot(rate_rps=rate_rps)


def test_two_margins_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One of them would be ignored."""
    assert main(["plan", TOY, "--agent", "gh(margin=0.3)", "--margin", "0.2"]) == 2
    assert "has a margin of its own" in capsys.readouterr().err
