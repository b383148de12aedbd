"""Run ``fleetgym plan``: print and draw a plan, a schedule or a table over growth."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fleetgym.cli.named import instance_name
from fleetgym.cli.output import tell
from fleetgym.cli.pictures import check_picture
from fleetgym.cli.plan_table import is_table, write_plan_table
from fleetgym.cli.progress import ProgressBar
from fleetgym.cli.trace_options import target
from fleetgym.files.documents import write_json
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance

#: Words of ``--without`` for a table of losses.
EACH_REGION, EACH_POOL = "each-region", "each-pool"
_COMPARED_DAYS = 10  # days on which a held fleet is compared with hourly plans, and with a queue


def run(arguments: argparse.Namespace) -> int:
    """Plan as the command line says; print the plan, and draw it if it asks for that.

    Raises
    ------
    FleetgymError
        For options of which one would have no effect beside another.
    """
    from fleetgym.capacity.running import read_running
    from fleetgym.capacity.what_if import budgeted, grown, priced, without
    from fleetgym.evaluation.isolation.preflight import preflight
    from fleetgym.model.library import load_instance

    growth = arguments.growth or [1.0]
    _check(arguments, growth)
    check_picture(arguments.plot)
    instance = target(arguments) or load_instance(instance_name(arguments.instance))
    running = None if arguments.running is None else read_running(arguments.running, instance)
    instance = priced(instance, arguments.price or {})
    if arguments.budget is not None:
        instance = budgeted(instance, arguments.budget)
    preflight([arguments.agent])
    losses = _losses(arguments, instance)
    if arguments.without and not losses:
        instance = without(instance, arguments.without)
    instances = [instance if factor == 1.0 else grown(instance, factor) for factor in growth]
    if arguments.schedule:
        facts, text = _schedule(arguments, instances[0])
    elif len(growth) > 1:
        cases = [(factor, grown, _limits(arguments)) for factor, grown in zip(growth, instances, strict=True)]
        facts, text = _sweep(arguments, "growth", cases, running)
    elif len(arguments.miss_at_most or ()) > 1:
        cases = [(most, instances[0], _limits(arguments, most)) for most in arguments.miss_at_most]
        facts, text = _sweep(arguments, "miss_at_most", cases, running)
    elif losses:
        cases = [(lost, without(instances[0], [lost]), _limits(arguments)) for lost in losses]
        facts, text = _sweep(arguments, "without", cases, running)
    else:
        facts, text = _plan(arguments, instances[0], running)
    if arguments.price:
        facts["prices"] = arguments.price
        told = ", ".join(f"{name} {usd:g}" for name, usd in arguments.price.items())
        text = f"with other prices than the instance's, in USD per GPU and hour: {told}\n\n{text}"
    if arguments.without and not losses:
        facts["lost"] = arguments.without
        text = f"without {', '.join(arguments.without)}\n\n{text}"
    if arguments.out is not None:
        (write_plan_table if is_table(arguments.out) else write_json)(arguments.out, facts)
    tell(arguments, facts, text)
    return 0


def _losses(arguments: argparse.Namespace, instance: Instance) -> list[str]:
    """Return the regions or pools that are lost in turn; none where that is not asked for."""
    if arguments.without not in ([EACH_REGION], [EACH_POOL]):
        return []
    pools = [pool.region if arguments.without == [EACH_REGION] else pool.id for pool in instance.pools]
    found = list(dict.fromkeys(pools))
    if len(found) < 2:
        raise FleetgymError(
            f"{instance.id} has GPUs in one place only, {found[0]}: nothing is left when that is lost. "
            "Import with prices of several regions"
        )
    return found


def _check(arguments: argparse.Namespace, growth: list[float]) -> None:
    ways = {
        "--schedule": arguments.schedule,
        "--growth with several factors": len(growth) > 1,
        "--miss-at-most with several shares": len(arguments.miss_at_most or ()) > 1,
        f"--without {EACH_REGION}": arguments.without == [EACH_REGION],
        f"--without {EACH_POOL}": arguments.without == [EACH_POOL],
    }
    if arguments.week and not arguments.schedule:
        raise FleetgymError("--week is of --schedule; give both, or leave it out")
    given = [name for name, is_given in ways.items() if is_given]
    if not given:
        return
    without_effect = {
        "--schedule": {
            "--margin": arguments.margin is not None,
            "--running": arguments.running is not None,
            "--spot-share-at-most and --on-demand-base": bool(
                arguments.spot_share_at_most is not None or arguments.on_demand_base
            ),
            "--details": arguments.details,
        }
    }
    table = {"--plot": arguments.plot is not None, "--days 0": not arguments.days}
    others = dict.fromkeys(given[1:], True) | without_effect.get(given[0], table)
    if given[0].startswith("--without"):
        others["--running"] = arguments.running is not None
    for name, is_given in others.items():
        if is_given:
            raise FleetgymError(f"{given[0]} goes without {name}; leave one of them away")


def _limits(arguments: argparse.Namespace, most: float | None = None) -> Any:
    from fleetgym.capacity.choice import Limits

    if most is None and arguments.miss_at_most:
        most = arguments.miss_at_most[0]
    given = Limits(
        miss_at_most=most,
        spot_share_at_most=arguments.spot_share_at_most,
        on_demand_base=arguments.on_demand_base or 0,
    )
    return None if given == Limits() else given


def _found(arguments: argparse.Namespace, instance: Instance, running: np.ndarray | None, limits: Any) -> Any:
    from fleetgym.capacity.risk import plan_with_risk

    return plan_with_risk(
        instance,
        arguments.agent,
        margin=arguments.margin,
        days=arguments.days,
        seed=arguments.seed,
        limits=limits,
        running=running,
        progress=ProgressBar,
    )


def _plan(
    arguments: argparse.Namespace, instance: Instance, running: np.ndarray | None
) -> tuple[dict[str, Any], str]:
    from fleetgym.agents.registry import make_planner
    from fleetgym.capacity.queued import late_without_shedding
    from fleetgym.capacity.schedule import hourly_cost_usd
    from fleetgym.cli.plan_plot import plot_plan
    from fleetgym.cli.plan_report import describe_plan, risky_facts

    found = _found(arguments, instance, running, _limits(arguments))
    facts = risky_facts(instance, found, arguments.agent, running)
    if found.risk is not None and not found.plays:
        fleet, days = found.plan.fleet, min(_COMPARED_DAYS, arguments.days)
        facts["late_without_shedding"] = late_without_shedding(
            instance, fleet, days=days, seed=arguments.seed, running=running
        )
        if fleet.sum() > 1 and running is None and _limits(arguments) is None:
            bar = ProgressBar("planning hour by hour")
            facts["hourly"] = {
                "days": days,
                "cost_usd": hourly_cost_usd(instance, make_planner("agh"), days, arguments.seed, bar),
                "held_usd": float(found.risk.cost_usd[:days].mean()),
            }
    if arguments.plot is not None:
        plot_plan(instance, facts, found.risk, arguments.plot)
    return facts, describe_plan(instance, facts, arguments.details)


def _sweep(
    arguments: argparse.Namespace,
    over: str,
    cases: list[tuple[Any, Instance, Any]],
    running: np.ndarray | None,
) -> tuple[dict[str, Any], str]:
    """Plan for several values of `over`, each with its instance and limits; values that no plan keeps are left out."""
    from fleetgym.cli.plan_report import describe_sweep, risky_facts, surviving_fleet

    rows, kept, notes = [], [], []
    for value, instance, limits in cases:
        try:
            found = _found(arguments, instance, running, limits)
        except FleetgymError as error:
            if over == "growth":
                raise
            notes.append(str(error) if over == "miss_at_most" else f"without {value}: {error}")
            continue
        rows.append({over: value, **risky_facts(instance, found, arguments.agent, running)})
        kept.append(instance)
    if not rows:
        raise FleetgymError(notes[-1])
    facts: dict[str, Any] = {"instance": cases[0][1].id, over: rows}
    if over == "without" and not notes:
        fleet = surviving_fleet(kept[0], rows)
        facts["surviving_fleet"] = {
            c.id: int(n) for c, n in zip(kept[0].configurations, fleet, strict=True) if n
        }
    return facts, describe_sweep(kept, rows, over, notes)


def _schedule(arguments: argparse.Namespace, instance: Instance) -> tuple[dict[str, Any], str]:
    from fleetgym.capacity.schedule import make_schedule
    from fleetgym.cli.schedule_report import describe_schedule, plot_schedule, schedule_facts

    made = make_schedule(
        instance,
        arguments.agent,
        days=arguments.days,
        seed=arguments.seed,
        week=arguments.week,
        miss_at_most=arguments.miss_at_most[0] if arguments.miss_at_most else None,
        progress=ProgressBar,
    )
    facts = schedule_facts(instance, made)
    if arguments.plot is not None:
        plot_schedule(facts, arguments.plot)
    return facts, describe_schedule(facts)
