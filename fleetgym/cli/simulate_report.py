"""Report predicted and simulated SLO violations of each workload as text, values or a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.window import Verdict
from fleetgym.cli.pictures import new_figure, save_picture
from fleetgym.cli.text_tables import NOTHING, align_columns, number, share


def simulate_facts(verdict: Verdict, law: str) -> dict[str, Any]:
    """Return prediction and simulation of a window as plain values.

    Returns
    -------
    dict
        ``workloads`` by name with ``predicted`` and ``simulated`` miss shares, the ``half_width`` of the latter and
        whether the prediction is ``inside``; ``pools``; costs in USD per window; how much was simulated. Workloads
        that are absent are left out.
    """
    played, simulation = verdict.played, verdict.simulation
    workloads = {}
    for i, w in enumerate(played.instance.workloads):
        if np.isnan(verdict.predicted[i]):
            continue
        predicted, mean = float(verdict.predicted[i]), float(verdict.simulated.mean[i])
        half = float(verdict.simulated.half_width[i])
        workloads[w.id] = {
            "rate_rps": float(played.conditions.rate_rps[i]),
            "unserved": float(played.result.unserved_share[i]),
            "predicted": predicted,
            "simulated": mean,
            "half_width": half,
            "inside": abs(predicted - mean) <= half,
            "mean_wait_s": float(verdict.mean_wait_s[i]),
        }
    return {
        "instance": played.instance.id,
        "window": played.window,
        "law": law,
        "workloads": workloads,
        "pools": _pools(verdict),
        "cost_usd": {"predicted": played.result.cost_usd, "simulated": verdict.cost_usd},
        "replications": 0 if simulation is None else len(simulation.replications),
        "confidence": None if simulation is None else simulation.confidence,
        "tight": simulation is None or simulation.is_tight,
        "window_s": None if simulation is None else simulation.window_s,
        "warmup_s": None if simulation is None else simulation.warmup_s,
        "requests": None if simulation is None else simulation.statuses,
        "unaccounted": 0 if simulation is None else simulation.unaccounted,
    }


def _pools(verdict: Verdict) -> dict[str, Any]:
    if verdict.simulation is None:
        return {}
    used = verdict.simulation.utilization.mean
    return {
        pool.name: {
            "replicas": pool.replicas,
            "slots": pool.slots,
            "utilization": None if math.isnan(used[p]) else float(used[p]),
        }
        for p, pool in enumerate(verdict.simulation.fleet.pools)
    }


def describe_simulation(facts: dict[str, Any], agent: str, scenario: int) -> str:
    """Return the facts as text."""
    workloads, pools, cost = facts["workloads"].values(), facts["pools"].values(), facts["cost_usd"]
    half = [w["half_width"] for w in workloads]
    misses = [
        ("workload", facts["workloads"]),
        ("req/s", [number(w["rate_rps"], 2) for w in workloads]),
        ("unserved %", [share(w["unserved"]) for w in workloads]),
        ("predicted %", [share(w["predicted"]) for w in workloads]),
        ("simulated %", [share(w["simulated"]) for w in workloads]),
        ("+- %", [share(width) if math.isfinite(width) else NOTHING for width in half]),
        ("difference %", [f"{100.0 * (w['simulated'] - w['predicted']):+z.2f}" for w in workloads]),
        ("inside", ["yes" if w["inside"] else "no" for w in workloads]),
        ("mean wait s", [number(w["mean_wait_s"], 3) for w in workloads]),
    ]
    fleet = [
        ("pool", facts["pools"]),
        ("replicas", [str(p["replicas"]) for p in pools]),
        ("slots each", [str(p["slots"]) for p in pools]),
        ("busy %", [share(p["utilization"]) for p in pools]),
    ]
    parts = [
        f"{facts['instance']}, scenario {scenario}, window {facts['window']}: the fleet of {agent}",
        align_columns(fleet) if pools else "no pool serves",
        f"requests that miss their SLO\n{align_columns(misses)}" if workloads else "no workload is present",
        f"cost in USD: {number(cost['predicted'], 4)} predicted, {number(cost['simulated'], 4)} simulated",
    ]
    if facts["replications"]:
        confidence = f"{100.0 * facts['confidence']:g} %"
        count = sum(facts["requests"].values())
        parts.append(
            f"{facts['replications']} replications of {facts['window_s']:.0f} s after {facts['warmup_s']:.0f} s, "
            f"{count:,} requests, {facts['unaccounted']} unaccounted for; {facts['law']} service times; "
            f"{confidence} intervals"
            + ("" if facts["tight"] else ", wider than asked for: more --replications")
        )
    return "\n\n".join(parts)


def plot_simulation(facts: dict[str, Any], path: str) -> None:
    """Draw predicted against simulated miss shares, with intervals, into a picture file.

    Raises
    ------
    FleetgymError
        If matplotlib is not installed.
    """
    names = list(facts["workloads"])
    columns = {
        field: 100.0 * np.array([facts["workloads"][name][field] for name in names])
        for field in ("predicted", "simulated", "half_width")
    }
    place = np.arange(len(names))
    figure = new_figure(max(5.0, 1.3 * len(names) + 2.0), 4.0)
    axes = figure.add_subplot()
    axes.bar(place - 0.2, columns["predicted"], 0.38, label="predicted (closed form)", color="#9ecae1")
    half = np.where(np.isfinite(columns["half_width"]), columns["half_width"], 0.0)
    low = np.minimum(half, columns["simulated"])
    axes.bar(
        place + 0.2,
        columns["simulated"],
        0.38,
        yerr=np.vstack((low, half)),
        capsize=4,
        label=f"simulated, {100.0 * (facts['confidence'] or 0.0):g} % interval",
        color="#fd8d3c",
    )
    axes.set_xticks(place, names, rotation=20 if len(names) > 4 else 0)
    axes.set_ylabel("requests that miss their SLO, %")
    axes.set_ylim(bottom=0.0)
    axes.set_title(f"{facts['instance']}, window {facts['window']}")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    save_picture(figure, path)
