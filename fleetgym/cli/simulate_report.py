"""Report predicted and simulated SLO violations of each workload as text, values or a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.referee import VERSION, Replay
from fleetgym.capacity.simulation.window import PlayedWindow, Verdict
from fleetgym.cli.pictures import new_figure, save_picture
from fleetgym.runtime.text_tables import NOTHING, align_columns, number, share


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


def replay_facts(counted: Sequence[PlayedWindow], found: Replay) -> dict[str, Any]:
    """Return prediction and replay of some windows as plain values, with the names of `simulate_facts`."""
    instance = counted[0].instance
    rate = np.mean([w.conditions.rate_rps for w in counted], axis=0)
    workloads = {
        w.id: {
            "rate_rps": float(rate[i]),
            "unserved": float(found.unserved[i]),
            "predicted": float(found.predicted[i]),
            "simulated": float(found.replayed.mean[i]),
            "half_width": float(found.replayed.half_width[i]),
            "inside": bool(abs(found.predicted[i] - found.replayed.mean[i]) <= found.replayed.half_width[i]),
            "ttft_p99_s": _known(found.ttft_p99_s[i]),
            "predicted_delay_s": _known(found.predicted_delay_s[i]),
            "delay_s": _known(found.delay_s[i]),
        }
        for i, w in enumerate(instance.workloads)
        if rate[i] > 0.0
    }
    return {
        "instance": instance.id,
        "engine": f"ai-dynamo-runtime {VERSION}",
        "windows": list(found.windows),
        "workloads": workloads,
        "pools": {name: {"fewest": low, "most": high} for name, (low, high) in found.replicas.items()},
        "replications": found.replications,
        "confidence": found.confidence,
        "tight": found.is_tight,
        "requests": int(found.requests.sum()),
    }


def _known(value: float) -> float | None:
    """Return a number; None where there is none, or requests never came to an end."""
    return float(value) if math.isfinite(value) else None


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
    workloads, pools = facts["workloads"].values(), facts["pools"].values()
    half = [w["half_width"] for w in workloads]
    misses = [
        ("workload", facts["workloads"]),
        ("req/s", [number(w["rate_rps"], 2) for w in workloads]),
        ("unserved %", [share(w["unserved"]) for w in workloads]),
        ("predicted %", [share(w["predicted"]) for w in workloads]),
        ("simulated %", [share(w["simulated"]) for w in workloads]),
        ("+- %", [share(width) if math.isfinite(width) else NOTHING for width in half]),
    ]
    by_token = "engine" in facts
    if by_token:
        seconds = (("TTFT p99 s", "ttft_p99_s"), ("delay s", "delay_s"), ("predicted", "predicted_delay_s"))
        misses += [
            (title, [NOTHING if w[field] is None else number(w[field], 2) for w in workloads])
            for title, field in seconds
        ]
        fleet = [
            ("configuration", facts["pools"]),
            ("fewest replicas", [str(p["fewest"]) for p in pools]),
            ("most", [str(p["most"]) for p in pools]),
        ]
    else:
        misses += [
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
        f"{facts['instance']}, scenario {scenario}, {_when(facts)}: the fleet of {agent}",
        align_columns(fleet) if pools else "no pool serves",
        f"requests that miss their SLO\n{align_columns(misses)}" if workloads else "no workload is present",
    ]
    if not by_token:
        cost = facts["cost_usd"]
        parts.append(
            f"cost in USD: {number(cost['predicted'], 4)} predicted, {number(cost['simulated'], 4)} simulated"
        )
    return "\n\n".join([*parts, *_how(facts)])


def _when(facts: dict[str, Any]) -> str:
    if "windows" in facts:
        return f"windows {facts['windows'][0]} to {facts['windows'][-1]}"
    return f"window {facts['window']}"


def _how(facts: dict[str, Any]) -> list[str]:
    """Return a sentence on how much was simulated; none where nothing was."""
    if not facts["replications"]:
        return []
    confidence = f"{100.0 * facts['confidence']:g} %"
    wide = "" if facts["tight"] else ", wider than asked for: more --replications"
    if "engine" in facts:
        return [
            f"{facts['replications']} replays with {facts['requests']:,} requests counted, token by token, by "
            f"{facts['engine']} with fleetgym's step times; lengths are drawn from the instance's laws, and go to the "
            f"replica with the least load, ties drawn anew by each run; {confidence} intervals{wide}"
        ]
    count = sum(facts["requests"].values())
    return [
        f"{facts['replications']} replications of {facts['window_s']:.0f} s after {facts['warmup_s']:.0f} s, "
        f"{count:,} requests, {facts['unaccounted']} unaccounted for; {facts['law']} service times; "
        f"{confidence} intervals{wide}"
    ]


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
    axes.set_title(f"{facts['instance']}, {_when(facts)}")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    save_picture(figure, path)
