"""Run ``fleetgym plan``: print and draw a plan, a schedule or a table over growth."""

from __future__ import annotations

import argparse
import textwrap
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
EACH_GPU = "each-gpu"
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

    growth = arguments.growth or [1.0]
    _check(arguments, growth)
    check_picture(arguments.plot)
    instance = target(arguments) or _asked(arguments)
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
    elif arguments.why_not:
        facts, text = _why_not(arguments, instances[0])
    elif arguments.beside:
        facts, text = _beside(arguments, instances[0], running)
    else:
        facts, text = _plan(arguments, instances[0], running)
    if arguments.price:
        facts["prices"] = arguments.price
        told = ", ".join(f"{name} {usd:g}" for name, usd in arguments.price.items())
        told = f"with other prices than the instance's, in USD per GPU and hour: {told}"
        text = f"{textwrap.fill(told, 80)}\n\n{text}"
    if arguments.slo and not arguments.rate:
        facts["slo"] = arguments.slo
        told = "with other SLOs than the instance's"
        if instance.facts is not None and instance.facts.recipe is not None:
            told += "; candidates and default penalties are those of an import with these"
        else:
            told += (
                "; penalties that are not given stay, and so does what the import left out for being too slow"
            )
        text = f"{textwrap.fill(f'{told}: {arguments.slo}', 80)}\n\n{text}"
    if arguments.without and not losses:
        facts["lost"] = arguments.without
        text = f"without {', '.join(arguments.without)}\n\n{text}"
    if arguments.out is not None:
        (write_plan_table if is_table(arguments.out) else write_json)(arguments.out, facts)
    tell(arguments, facts, text)
    return 0


def _asked(arguments: argparse.Namespace) -> Instance:
    """Return the instance that is named, with the SLOs that are given."""
    from fleetgym.capacity.traces.objectives import restated
    from fleetgym.capacity.what_if import promised, stated_slos
    from fleetgym.model.library import load_instance

    instance = load_instance(instance_name(arguments.instance))
    if arguments.slo is None:
        return instance
    slos = restated(stated_slos(instance), arguments.slo, [w.id for w in instance.workloads])
    return promised(instance, slos)


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
        "--why-not": arguments.why_not is not None,
        "--beside": arguments.beside is not None,
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
    if given[0].startswith(("--without", "--why-not")):
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
        facts["late_without_shedding_days"] = days
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
    from fleetgym.cli.plan_report import risky_facts
    from fleetgym.cli.plan_sweeps import describe_sweep, surviving_fleet

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


def _why_not(arguments: argparse.Namespace, instance: Instance) -> tuple[dict[str, Any], str]:
    """Plan, and plan with each of some GPUs alone; say what is in the way of these."""
    from fleetgym.capacity.what_if import only
    from fleetgym.cli.plan_report import risky_facts
    from fleetgym.cli.plan_sweeps import CHOSEN, describe_sweep, in_the_way
    from fleetgym.hardware import catalog

    types = list(dict.fromkeys(pool.gpu_type for pool in instance.pools))
    known = {*types, *(pool.id for pool in instance.pools)}
    asked = types if arguments.why_not == [EACH_GPU] else arguments.why_not
    asked = [name if name in known else catalog.gpu_named(name)[0] for name in asked]
    if absent := [name for name in asked if name not in known]:
        raise FleetgymError(
            f"{instance.id} has no {absent[0]}: its GPUs are {', '.join(types)}. Import the trace again with a price "
            f"of it, or with --gpus {','.join([*types, absent[0]])}"
        )
    limits = _limits(arguments)
    found = _found(arguments, instance, None, limits)
    rows = [{"why_not": CHOSEN, **risky_facts(instance, found, arguments.agent)}]
    kept, reasons = [instance], {}
    for name in asked:
        alone = None
        try:
            alone = only(instance, name)
            found = _found(arguments, alone, None, limits)
        except FleetgymError as error:
            reasons[name] = f"{in_the_way(instance, name, rows[0], None)}: {error}"
            continue
        row = {"why_not": name, **risky_facts(alone, found, arguments.agent)}
        if not row["fleet"]:
            reasons[name] = in_the_way(instance, name, rows[0], None)
            continue
        rows.append(row)
        kept.append(alone)
        reasons[name] = in_the_way(alone, name, rows[0], row)
    facts = {"instance": instance.id, "why_not": rows, "in_the_way": reasons}
    return facts, describe_sweep(kept, rows, "why_not", list(reasons.values()))


def _beside(
    arguments: argparse.Namespace, instance: Instance, running: np.ndarray | None
) -> tuple[dict[str, Any], str]:
    """Plan, and hold other fleets on the same days."""
    from fleetgym.capacity.risk import RiskyPlan, fleet_risk
    from fleetgym.capacity.running import read_running
    from fleetgym.cli.plan_report import risky_facts
    from fleetgym.cli.plan_sweeps import CHOSEN, beside_words, describe_sweep
    from fleetgym.model.planning import Plan

    fleets = {path: read_running(path, instance) for path in arguments.beside}
    chosen = _found(arguments, instance, running, _limits(arguments))
    rows, notes = [{"beside": CHOSEN, **risky_facts(instance, chosen, arguments.agent, running)}], []
    for path, fleet in fleets.items():
        risk = fleet_risk(instance, fleet, days=arguments.days, seed=arguments.seed, running=running)
        found = RiskyPlan(plan=Plan(fleet=fleet), margin=0.0, risk=risk, plays=False)
        rows.append({"beside": path, **risky_facts(instance, found, arguments.agent, running)})
        notes.append(beside_words(path, chosen.risk, risk))
    facts = {"instance": instance.id, "beside": rows}
    return facts, describe_sweep([instance] * len(rows), rows, "beside", notes)


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
