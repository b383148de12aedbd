"""`lookahead`: valid on any instance, equal to itself, prepared for what is certain to come, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from test_agents import demand, play
from toys import configuration, make_instance, pool

from fleetgym import Conditions, View
from fleetgym.baselines.lookahead import FEW_MOVES, Lookahead
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.jobs import Job, run_job
from fleetgym.model.library import load_instance
from fleetgym.scoring.best_known import load_best_known


def test_a_fleet_that_is_cheapest_is_found_and_kept() -> None:
    """On demand that stays, the fleet is soon the cheapest of all, and nothing changes any more."""
    instance = make_instance([pool("p", 8)], [configuration("a", {"p": 1}, max_replicas=8)])
    targets, _ = play(Lookahead(), instance, demand(instance, [30.0]))
    view = View(instance)
    rate = {"rate_rps": np.array([30.0])}
    usd = [
        view.steady_cost_usd([n], conditions=Conditions.from_mapping(rate, view.conditions)) for n in range(9)
    ]
    assert targets[-6:] == [[int(np.argmin(usd))]] * 6


def test_a_budget_that_runs_short_makes_rent_dear() -> None:
    """Where the budget for the day lasts easily rent counts as it costs; where it does not, it counts more."""
    instance = load_instance("fleet-v1/dev/budget-s-106")
    factors = {}
    for usd in (1e5, 600.0):
        tight = instance.replace(budget={"kind": "pool", "usd": usd})
        agent = Lookahead()
        agent.reset(View(tight), seed=0)
        factors[usd] = agent._rent_factor()
    assert factors[1e5] == 1.0 < factors[600.0]


def test_a_program_finds_the_first_fleet_that_no_single_move_reaches() -> None:
    """Start-up is free and capacity shared, so that good fleets lie several replicas away from the nominal one."""
    job = Job("lookahead", "fleet-v1/dev/fastllm-4-4-5-102", 0)
    best = load_best_known([job.instance]).tasks[f"{job.instance}#0"].value_usd
    assert run_job(job, isolate="never").cost_usd <= 1.02 * best


def test_a_program_leads_out_of_a_fleet_that_no_single_move_improves() -> None:
    """Without later programs this day of `market` costs 17 % more: replicas stay where one of another size serves."""
    task = "fleet-v2/dev/market-s-01"
    usd = {
        every: run_job(Job(f"patient(plan_every={every})", task, 0), isolate="never").cost_usd
        for every in (6, 1000)
    }
    assert usd[6] < 0.92 * usd[1000]


def test_a_large_instance_has_a_short_search() -> None:
    """Few moves beside the starts, and one that helps, taken at most as often as doubling reaches its limit."""
    instance = "fleet-v1/dev/multi-l-101"
    env, view, agent = FleetAllocEnv(instance), View(instance), Lookahead()
    observation, info = env.reset(options={"scenario": 0})
    view.update(info)
    agent.reset(view, seed=0)
    agent.act(observation, info)
    assert (agent.most_rounds, agent.most_exchanges, agent.most_moves) == (1, 0, FEW_MOVES)
    starts = 3 + 1 + agent.candidates.size  # a plan rounded down, and with one replica more at a time
    assert len(agent.known) <= starts + FEW_MOVES + int(agent.most.max()).bit_length() + 1
    assert agent._next_plan == view.instance.num_windows


@pytest.mark.parametrize(
    ("instance", "large"),
    [("fleet-v1/dev/multi-m-101", 100), ("fleet-v1/dev/ou-l-101", 100), ("fleet-v1/dev/multi-l-101", 1_000)],
)
def test_all_others_have_the_whole_one(instance: str, large: int) -> None:
    """Of fleet-v1 no other size has so many candidates; who asks for the whole search gets it everywhere."""
    agent = Lookahead(large=large)
    agent.reset(View(instance), seed=0)
    assert (agent.most_rounds, agent.most_exchanges, agent.most_moves) == (8, 4, None)


@pytest.mark.parametrize(
    ("instance", "windows"),
    [("fleet-v1/dev/trace-m-101", 6), ("fleet-v2/dev/ou-v2-s-01", 12), ("fleet-v2/dev/week-s-01", 12)],
)
def test_paths_go_as_far_as_a_start_pays(instance: str, windows: int) -> None:
    """Held for six windows, a replica never looks worth a fee of eleven windows' rent: `week` cost 13 % more."""
    agent = Lookahead()
    agent.reset(View(instance), seed=0)
    assert agent.ahead == windows
