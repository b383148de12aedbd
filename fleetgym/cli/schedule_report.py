"""Report a schedule as text or a picture: GPUs by hour, and what to reserve or rent on demand or spot."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from fleetgym.capacity.commitment import reserved_pools
from fleetgym.capacity.schedule import Schedule, worth_reserving
from fleetgym.cli.pictures import COLOURS, new_figure, save_picture
from fleetgym.cli.plan_report import describe_risk, percentile_words
from fleetgym.model.instance import Instance
from fleetgym.runtime.text_tables import align, number

_WIDTH = 80
_FEW_POOLS = 2
_FEWEST = 0.1  # of the hours: a commitment for less is not worth a line


def schedule_facts(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as plain values.

    Returns
    -------
    dict
        ``pools`` that are used, with ``gpu_type``, ``market``, ``region``, ``committed_gpus`` and the most GPUs of
        an hour; ``hours`` with ``hour``, ``rate_rps``, ``gpus`` by pool and ``rent_usd_per_h``;
        ``commitment_usd_per_episode``; ``worth_reserving``: GPUs of a pool held at least these hours, and the
        price below which a commitment is cheaper; ``days`` that the hours are of, 1 or 7; ``risk``; by workload
        ``missed_on_days``, and ``missed_at_most`` if a percentile was asked for.
    """
    pools = instance.pools
    committed = schedule.committed_gpus * reserved_pools(instance)
    used = np.flatnonzero(schedule.gpus.any(axis=0) | (committed > 0)).tolist()
    return {
        "instance": instance.id,
        "agent": schedule.agent,
        "base_share": schedule.base_share,
        "margin": schedule.margin,
        "episode_h": instance.num_windows * instance.window_s / 3600.0,
        "hour_h": schedule.hours,
        "days": schedule.days,
        "pools": {
            pools[g].id: {
                "gpu_type": pools[g].gpu_type,
                "market": pools[g].market,
                "region": pools[g].region,
                "committed_gpus": int(committed[g]),
                "most_gpus": int(schedule.gpus[:, g].max()),
            }
            for g in used
        },
        "hours": [
            {
                "hour": k * schedule.hours,
                "rate_rps": float(schedule.rate_rps[k]),
                "gpus": {pools[g].id: int(schedule.gpus[k, g]) for g in used},
                "rent_usd_per_h": float(schedule.rent_usd_per_h[k]),
            }
            for k in range(len(schedule.gpus))
        ],
        "commitment_usd_per_episode": schedule.commitment_usd,
        "worth_reserving": [vars(found) for found in worth_reserving(instance, schedule)],
        "risk": None if schedule.risk is None else schedule.risk.summary(),
        "workloads": _workloads(instance, schedule),
    }


def _workloads(instance: Instance, schedule: Schedule) -> dict[str, dict[str, float | None]]:
    names = [w.id for w in instance.workloads]
    slos = [None] * len(names) if instance.stated is None else instance.stated.slos
    missed = (
        [None] * len(names)
        if schedule.risk is None
        else schedule.risk.workload_miss_share.mean(axis=0).tolist()
    )
    return {
        name: {"missed_on_days": missed[i], "missed_at_most": None if slo is None else slo.missed_at_most}
        for i, (name, slo) in enumerate(zip(names, slos, strict=True))
    }


def describe_schedule(facts: dict[str, Any]) -> str:
    """Return a schedule as text: a row per hour, what to rent how, and the risk."""
    how = ""
    if facts["margin"] is not None:
        how = f", planned every hour with a margin of {facts['margin']:g}"
        if facts["base_share"] < 1.0:
            how += f", {100 * facts['base_share']:g} % of it without spot"
    if facts["days"] > 1:
        when, table = "in the last week of the history", _week(facts)
    else:
        when, table = "on the mean day", _day(facts)
    parts = [
        _wrap(f"{facts['instance']}: GPUs by hour as {facts['agent']} holds them {when}{how}"),
        table,
        "\n".join(_renting(facts)),
    ]
    if facts["risk"] is not None:
        risk = describe_risk(facts["risk"], facts["episode_h"], "this way to plan", False)
        parts.append("\n".join([risk, *percentile_words(facts["workloads"])]))
    return "\n\n".join(parts)


def _day(facts: dict[str, Any]) -> str:
    """Return a row per hour: demand, GPUs by pool, rent."""
    pools = facts["pools"]
    rows = [
        [
            _clock(hour["hour"]),
            number(hour["rate_rps"], 1),
            *(str(hour["gpus"][pool]) for pool in pools),
            number(hour["rent_usd_per_h"], 2),
        ]
        for hour in facts["hours"]
    ]
    names = [f"{p['gpu_type']} {p['market']}" for p in pools.values()]
    if len(set(names)) < len(names):
        names = list(pools)
    return align(["from", "req/s", *names, "USD/h"], rows)


def _week(facts: dict[str, Any]) -> str:
    """Return a row per hour, and a column per day: GPUs of all pools, or if there are few pools, of each."""
    hours, days = facts["hours"], facts["days"]
    each = len(hours) // days
    pools = list(facts["pools"])
    is_short = len(pools) <= _FEW_POOLS

    def cell(hour: dict[str, Any]) -> str:
        held = [hour["gpus"][pool] for pool in pools]
        return "+".join(map(str, held)) if is_short else str(sum(held))

    rows = [
        [_clock(hours[k]["hour"]), *(cell(hours[d * each + k]) for d in range(days))] for k in range(each)
    ]
    usd = [sum(hour["rent_usd_per_h"] for hour in hours[d * each : (d + 1) * each]) for d in range(days)]
    rows.append(["USD/day", *(number(facts["hour_h"] * one, 0) for one in usd)])
    table = align(["from", *(f"day {d + 1}" for d in range(days))], rows)
    what = " + ".join(f"{p['gpu_type']} {p['market']}" for p in facts["pools"].values())
    return table + ("\n" + _wrap(f"GPUs of {what}") if is_short else "\nGPUs of all pools")


def _clock(hour: float) -> str:
    return f"{int(hour):02d}:{round(60 * (hour % 1)):02d}"


def _wrap(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False)


def _renting(facts: dict[str, Any]) -> list[str]:
    """Return what to reserve, to rent on demand, and on spot."""
    lines = []
    for pool, p in facts["pools"].items():
        held = [hour["gpus"][pool] for hour in facts["hours"]]
        if p["market"] == "reserved":
            lines.append(f"reserve {p['committed_gpus']} {pool}, paid all day")
        else:
            how = "on spot" if p["market"] == "spot" else "on demand"
            above = [hour["hour"] for hour, n in zip(facts["hours"], held, strict=True) if n > min(held)]
            more = f", up to {max(held)}" if above else ""
            if above and facts["days"] == 1:
                more += f" between {_clock(above[0])} and {_clock(above[-1] + facts['hour_h'])}"
            lines.append(f"{how} {min(held)} {pool} {'all day' if facts['days'] == 1 else 'all week'}{more}")
    if facts["commitment_usd_per_episode"]:
        usd = number(facts["commitment_usd_per_episode"], 2)
        lines.append(f"the commitment costs {usd} USD per {facts['episode_h']:g} h, beside the rent above")
    for found in facts["worth_reserving"]:
        if found["hours"] >= _FEWEST * facts["episode_h"] * facts["days"]:
            lines.append(
                f"{found['gpus']} {found['pool']} run {found['hours']} h: a commitment pays below "
                f"{number(found['below_usd_per_gpu_h'], 2)} USD per GPU-hour"
            )
    return [_wrap(line) for line in lines] or ["nothing is rented"]


def plot_schedule(facts: dict[str, Any], path: str) -> None:
    """Draw a schedule into a picture file: GPUs by pool over the hours, and demand above them."""
    figure = new_figure(9.0, 5.0)
    demand, gpus = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 2.5))
    hours = np.array([hour["hour"] for hour in facts["hours"]])
    width, begin = facts["hour_h"], np.zeros(len(hours))
    for k, pool in enumerate(facts["pools"]):
        held = np.array([hour["gpus"][pool] for hour in facts["hours"]], dtype=float)
        gpus.bar(hours, held, width, bottom=begin, align="edge", color=COLOURS[k % len(COLOURS)], label=pool)
        begin += held
    gpus.set_ylabel("GPUs held")
    gpus.set_xlabel("hour of the mean day" if facts["days"] == 1 else "hour of the last week")
    gpus.set_ylim(0.0, 1.3 * max(1.0, begin.max()))
    gpus.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
    demand.step(hours, [hour["rate_rps"] for hour in facts["hours"]], where="post", color="black")
    demand.set_ylabel("requests/s")
    demand.set_ylim(bottom=0.0)
    figure.suptitle(f"{facts['instance']}: schedule of {facts['agent']}")
    save_picture(figure, path)
