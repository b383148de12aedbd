"""Report several plans as one table: as demand grows, as limits tighten, when GPUs are lost, or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.risk import Risk
from fleetgym.capacity.traces.candidates import smallest_replica
from fleetgym.cli.plan_report import cash_usd, missed, short_fleet, used_up, wrap
from fleetgym.model.instance import Instance
from fleetgym.runtime.text_tables import align_columns, number, share

#: The row that others are compared with.
CHOSEN = "the plan"
_MORE = 1.05  # times the rent of a request at full load: what is worth a word
_IDLER = 0.05  # of the load
_SURE = 1.96  # standard errors


def describe_sweep(
    instances: Sequence[Instance], rows: Sequence[dict[str, Any]], over: str, notes: Sequence[str] = ()
) -> str:
    """Return plans for several values of one thing as one table.

    `rows` are from `risky_facts`, with the value under `over`: ``growth``, a multiple of demand, ``miss_at_most``,
    ``without``, ``why_not`` or ``beside``.
    """
    risks = [facts["risk"] for facts in rows]
    rates = [
        sum(route["rate_rps"] for route in facts["routing"].values()) / (1.0 + facts["margin"])
        for facts in rows
    ]
    names, column, why = _swept(rows, over)
    text = align_columns(
        [
            (column, names),
            ("req/s", [number(rate, 1) for rate in rates]),
            ("cash USD/day", [number(cash_usd(risk), 2) for risk in risks]),
            ("with penalties", [number(risk["cost_usd"]["mean"], 2) for risk in risks]),
            ("missed %", [share(risk["miss_share"]["mean"]) for risk in risks]),
            ("GPUs", [short_fleet(facts["gpus"]) for facts in rows]),
        ],
        prose=True,
    )
    told_of: dict[str, list[str]] = {}
    for name, instance, facts in zip(names, instances, rows, strict=True):
        if over != "beside" or name == CHOSEN:
            found = missed(instance, facts)
            if found is not None:
                told_of.setdefault(found.why, []).append(f"{name}: {found.percent()}")
    full = [wrap(f"WARNING: {', '.join(shares)} {why}.") for why, shares in told_of.items()]
    head = f"{instances[0].id}: plans of {rows[0]['agent']} {why}; {rows[0]['risk']['days']} generated days"
    told = [*full, wrap(head), text, *map(wrap, notes)]
    if over == "without":
        told.append(wrap("no fleet survives any one loss" if notes else _surviving(instances, rows)))
    return "\n\n".join(told)


def _swept(rows: Sequence[dict[str, Any]], over: str) -> tuple[list[str], str, str]:
    """Return the values of a table of plans in words, the head of their column, and what the plans are for."""
    values = [row[over] for row in rows]
    if over == "growth":
        return [f"{value:g}x" for value in values], "demand", "as demand grows"
    if over == "miss_at_most":
        return [f"{100 * value:g} %" for value in values], "at most", "that miss at most so much"
    if over == "why_not":
        return [v if v == CHOSEN else f"{v} alone" for v in values], "plan", "with each of these GPUs alone"
    if over == "beside":
        return values, "fleet", "beside other fleets, held on the same days"
    return values, "lost", "when one of these is lost"


def surviving_fleet(instance: Instance, rows: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the replicas that hold every plan's, whichever of the places is lost: int64 (C,)."""
    fleets = [[row["fleet"].get(c.id, 0) for c in instance.configurations] for row in rows]
    return np.max(fleets, axis=0)


def _surviving(instances: Sequence[Instance], rows: Sequence[dict[str, Any]]) -> str:
    instance, fleet = instances[0], surviving_fleet(instances[0], rows)
    usd = float(instance.rental_usd_per_h.sum(axis=0) @ fleet)
    gpus = instance.gpu_use @ fleet
    held = [
        f"{n} {pool.gpu_type} in {pool.region}" + ("" if pool.market == "on-demand" else f" ({pool.market})")
        for n, pool in zip(gpus, instance.pools, strict=True)
        if n
    ]
    caps = np.max([[pool.cap_gpus for pool in one.pools] for one in instances], axis=0)
    short = [pool.id for pool, over in zip(instance.pools, gpus > caps, strict=True) if over]
    more = f" It takes more GPUs than the caps of {', '.join(short)} allow." if short else ""
    return (
        f"to survive any one loss, hold {' + '.join(held)}: rent {number(usd, 2)} USD/h. Whatever is lost, the plan "
        "of its row is left. A cheaper fleet may survive, too: this one is the largest of the rows, configuration by "
        f"configuration.{more}"
    )


def in_the_way(instance: Instance, gpu: str, chosen: dict[str, Any], alone: dict[str, Any] | None) -> str:
    """Return in words why a plan does not use a GPU type, or a pool, alone.

    Parameters
    ----------
    instance : Instance
        With all GPUs.
    gpu : str
        A GPU type or a pool of the instance.
    chosen, alone : dict
        Facts of the plan, and of the cheapest plan that has this GPU alone; None where there is none.
    """
    if not _configurations(instance, gpu).any():
        return f"{gpu}: {_no_replica(instance, gpu)}"
    if alone is None:
        return f"{gpu}: no fleet of it alone keeps what is asked for"
    if alone["fleet"] == chosen["fleet"]:
        return f"{gpu}: the plan has it alone"
    ratio = alone["risk"]["cost_usd"]["mean"] / chosen["risk"]["cost_usd"]["mean"]
    why = []
    full = used_up(instance, alone)
    if full and alone["risk"]["miss_share"]["mean"] > chosen["risk"]["miss_share"]["mean"]:
        why.append(full)
    (rent, busy), (least, busier) = _full_load(alone), _full_load(chosen)
    if rent > _MORE * least:
        why.append(
            f"fully loaded, it takes {rent:.3g} USD of rent per 1,000 requests, and the plan takes {least:.3g}"
        )
    if busy < busier - _IDLER:
        why.append(
            f"whole replicas of it are {100 * busy:.0f} % busy, and those of the plan {100 * busier:.0f} %"
        )
    if not why:
        why.append("nothing but that: it is about as good")
    if ratio >= 1.0:
        return f"{gpu} alone costs {ratio:.2f} times as much, penalties included: {'; '.join(why)}"
    told = f"{gpu} alone costs {ratio:.2f} times as much on these days"
    one, other = chosen["choice"], alone["choice"]
    if one is None or other is None or other["cost_usd"] < one["cost_usd"]:
        return f"{told}: nothing is in its way, and the plan did not try this fleet. Take it (--without the others)"
    on_others = other["cost_usd"] / one["cost_usd"]
    return (
        f"{told}, and {on_others:.2f} times as much on the {one['days']} others on which the plan was chosen"
    )


def _configurations(instance: Instance, gpu: str) -> np.ndarray:
    """Return which configurations lie on a GPU type or a pool, (C,)."""
    meant = np.array([gpu in (pool.id, pool.gpu_type) for pool in instance.pools])
    return np.asarray((instance.gpu_use[meant] > 0).any(axis=0))


def _no_replica(instance: Instance, gpu: str) -> str:
    pools = [pool for pool in instance.pools if gpu in (pool.id, pool.gpu_type)]
    least = smallest_replica(pools[0].gpu_type, list(dict.fromkeys(c.model for c in instance.configurations)))
    most = max(pool.cap_gpus for pool in pools)
    if least is None:
        return "no model of this instance fits its memory, whatever the number of GPUs"
    if least > most:
        return f"the smallest replica takes {least} GPUs, and at most {most} are to be had"
    return "its replicas keep the SLOs of no workload; import with looser ones to see it"


def _full_load(facts: dict[str, Any]) -> tuple[float, float]:
    """Return the rent per 1,000 requests if a fleet were fully loaded, in USD, and how busy it is."""
    usd = sum(pool["usd_per_h"] for pool in facts["gpus"].values())
    replicas = np.array(list(facts["fleet"].values()), dtype=float)
    busy = np.array([facts["busy"][name] for name in facts["fleet"]])
    load = float(replicas @ busy / replicas.sum()) if replicas.sum() else 0.0
    rate = sum(route["rate_rps"] for route in facts["routing"].values()) / (1.0 + facts["margin"])
    return 1000.0 * usd * load / (3600.0 * rate), load


def beside_words(name: str, chosen: Risk, other: Risk) -> str:
    """Return how much more a fleet costs than the plan on the same days, with its interval."""
    extra = other.cost_usd - chosen.cost_usd
    mean, error = float(extra.mean()), float(extra.std() / np.sqrt(len(extra)))
    sure = f"+- {number(_SURE * error, 2)} (95 %), on the same {len(extra)} days"
    unsure = ": no difference that is sure" if abs(mean) <= _SURE * error else ""
    return f"{name}: {number(abs(mean), 2)} USD a day {'more' if mean > 0 else 'less'} than the plan, {sure}{unsure}"
