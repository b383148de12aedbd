"""Judge the paper's claims by the tables of the page, which are made here of the cells of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..harness import FAILS, HOLDS, OPEN, PART
from . import paper
from .example import example_rows
from .measurements import HOMOGENEOUS, LIMITED_TYPE, MODELS, SCALES, UNLIMITED_TYPE

Cells = Mapping[str, Any]
Claim = tuple[str, str, str, str]
SOLVERS = ("exact", "search", "knapsack")
#: What the paper prints of gains over the best single type (section 5.2) and of its ablations (5.2, 5.3).
GAINS = {
    "70B": "up to 41 %, 25 % on average (with latency and 8B)",
    "8B": "wins everywhere; 4090 is the best single type",
    "8B+70B": "up to 35 %, 23 % on average",
}
ABLATIONS = {
    "uniform composition": (0.27, 0.20),
    "uniform deployment": (0.34, 0.33),
    "round-robin assignment": (0.32, 0.29),
    "HexGen-like, uniform composition": (0.35, 0.29),
    "HexGen-like, our composition": (0.18, 0.14),
}
#: Observations 1 and 2 (section 3): the GPU type, and the deployment.
OBSERVED = {"types": 2.27, "deployments": 2.61}
UNFAIR = "at equal availability, not against types without limits"


# -- what is committed of a run


def summarise(cells: Cells) -> dict[str, Any]:
    """Return the tables of the page as plain numbers."""
    return {
        "example": [list(row) for row in example_rows()],
        "table 6": [[name, *figures] for name, figures in cells["table6"].items()],
        "table 7": cells["table7"],
        "observations": _observations(cells["observations"]),
        "speed": _speed(cells),
        "scale": _scale(cells),
        "gains": _gains(cells),
        "throughput": _throughput(cells),
        "rent": _rent(cells),
        "budget": _budget(cells),
        "ablation": _ablation(cells),
        "percentiles": _percentiles(cells),
    }


def _grid() -> list[tuple[int, float]]:
    return [(trace, budget) for trace in paper.TRACES for budget in paper.BUDGETS_USD_PER_H]


def _ours(cells: Cells, model: str, trace: int, budget: float) -> list[Any]:
    """Return the plans of a model by availability."""
    names = (f"ours {model} {a} {trace} {budget:g}" for a in paper.AVAILABLE)
    return [cells[name] for name in names if name in cells]


def _top(rates: Mapping[str, float]) -> list[Any]:
    """Return the highest rate and whose it is."""
    best = max(rates, key=lambda gpu: rates[gpu])
    return [rates[best], best]


def _observations(found: Mapping[str, Any]) -> dict[str, Any]:
    types = [ratio for ratio, _ in found["types"].values()]
    winners = [winner for _, winner in found["types"].values()]
    every = [ratio for ratios in found["deployments"].values() for ratio in ratios]
    return {
        "types": {"most": max(types), "median": float(np.median(types))},
        "deployments": {"most": max(every), "median": float(np.median(every))},
        "best": {name: winners.count(name) for name in dict.fromkeys(winners)},
    }


def _speed(cells: Cells) -> dict[str, Any]:
    rows, longer = [], []
    for trace, budget in _grid():
        found = [cells[f"speed {trace} {budget:g}"][name] for name in SOLVERS]
        makespans, seconds = zip(*found, strict=True)
        longer.append([makespan / makespans[0] - 1 for makespan in makespans[1:]])
        rows.append([trace, budget, *makespans, *seconds, seconds[1] / seconds[0]])
    search, knapsack = zip(*longer, strict=True)
    return {
        "rows": rows,
        "cpu_s": [sum(row[5 + k] for row in rows) for k in range(3)],
        "search": [min(search), max(search)],
        "knapsack": [float(np.mean(knapsack)), max(knapsack)],
    }


def _scale(cells: Cells) -> list[list[float]]:
    rows = []
    for cell in (cells[f"scale {times}"] for times in SCALES):
        loss = cell["knapsack"][0] / cell["exact"][0] - 1
        rows.append([cell["gpus"], *(cell[name][1] for name in SOLVERS), loss])
    return rows


def _gains(cells: Cells) -> list[dict[str, Any]]:
    """Return the plan's throughput over the best single type's, minus one, over every case of a model."""
    rows = []
    for model in MODELS:
        free, equal, gaps = [], [], []
        for name in (name for name in cells if name.startswith(f"ours {model} ")):
            _, _, availability, trace, budget = name.split(" ")
            ours = cells[name]["throughput"]
            gaps.append(cells[name]["bound"] / ours - 1)
            for gains, other in (
                (free, f"homogeneous {model} {trace} {budget}"),
                (equal, f"single {model} {availability} {trace} {budget}"),
            ):
                best = max(cells[other].values())
                gains += [ours / best - 1] * (best > 0)
        rows.append({"model": model, "free": _spread(free), "equal": _spread(equal), "gap": max(gaps)})
    return rows


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "low": min(values),
        "high": max(values),
        "mean": float(np.mean(values)),
        "cases": len(values),
    }


def _throughput(cells: Cells) -> list[list[Any]]:
    """Return trace, budget, and for every model the plan's mean rate, and the best single type's with its name."""
    rows = []
    for trace, budget in _grid():
        row: list[Any] = [trace, budget]
        for model in MODELS:
            row.append(float(np.mean([p["throughput"] for p in _ours(cells, model, trace, budget)])))
            row.append(
                _top({gpu: cells[f"homogeneous {model} {trace} {budget:g}"][gpu] for gpu in HOMOGENEOUS})
            )
        rows.append(row)
    return rows


def _rent(cells: Cells) -> list[list[Any]]:
    """Return what the rent is spent on: what, the published share, ours."""

    def share(model: str, part: str, kind: str, traces: Iterable[int], budgets: Iterable[float]) -> float:
        plans = [p for t in traces for b in budgets for p in _ours(cells, model, t, b)]
        return float(np.mean([p[part].get(kind, 0.0) for p in plans]))

    every = paper.BUDGETS_USD_PER_H
    both, large = paper.TRACES, paper.LLAMA_70B
    return [
        ["data centre, 60 USD/h, traces 1, 2", "51 %", share("70B", "kinds", "data centre", (1, 2), (60.0,))],
        [
            "data centre, 15 USD/h, traces 1, 2",
            "workstation favoured",
            share("70B", "kinds", "data centre", (1, 2), (15.0,)),
        ],
        ["workstation, trace 3", "93 %", share("70B", "kinds", "workstation", (3,), every)],
        ["consumer, 8B", "the majority", share("8B", "kinds", "consumer", (1, 2, 3), every)],
        ["70B of two models, 60 USD/h", "70 %", share("8B+70B", "models", large, both, (60.0,))],
        ["70B of two models, 30 USD/h", "77 %", share("8B+70B", "models", large, both, (30.0,))],
    ]


def _budget(cells: Cells) -> list[list[Any]]:
    """Return budget, the plan's rate, the best single type's, its name and the gain: figure 16."""
    rows = []
    for budget in sorted({5.0, 10.0, 20.0, 40.0, *paper.BUDGETS_USD_PER_H}):
        if budget in paper.BUDGETS_USD_PER_H:
            ours, alone = cells[f"ours 70B 1 1 {budget:g}"], cells[f"homogeneous 70B 1 {budget:g}"]
        else:
            ours = cells[f"budget {budget:g}"]
            alone = ours["homogeneous"]
        rate, gpu = _top(alone)
        rows.append([budget, ours["throughput"], rate, gpu, ours["throughput"] / rate - 1])
    return rows


def _ablation(cells: Cells) -> dict[str, list[float]]:
    """Return the most, and the mean, of the throughput that is lost without a part of the method."""
    found = [cell for name, cell in cells.items() if name.startswith("ablation ")]
    rows = {}
    for name in ABLATIONS:
        loss = [1 - cell[name] / cell["ours"] for cell in found]
        if name == "HexGen-like, our composition":  # there the paper prints what its method gains
            loss = [1 / (1 - share) - 1 for share in loss]
        rows[name] = [max(loss), float(np.mean(loss)), len(found)]
    return rows


def _percentiles(cells: Cells) -> list[dict[str, Any]]:
    """Return times to completion of the plan, and of the single types that are done first."""
    rows = []
    for trace in paper.TRACES:
        cell = cells[f"percentiles {trace}"]
        first = {}
        for limit, form in (("free", UNLIMITED_TYPE), ("equal", LIMITED_TYPE)):
            found = {gpu: cell[form.format(gpu)] for gpu in paper.PRICES if form.format(gpu) in cell}
            first[limit] = min(found.items(), key=lambda one: one[1]["100"][0])
        for percentile, ours in cell["plan"].items():
            row: dict[str, Any] = {"trace": trace, "percentile": percentile, "plan": ours}
            for limit, (gpu, alone) in first.items():
                change = ours[0] / alone[percentile][0] - 1
                row[limit] = {"gpu": gpu, "s": alone[percentile], "change": change}
            rows.append(row)
    return rows


# -- what the page needs


def view(cells: Cells) -> dict[str, Any]:
    """Return the variables and functions of the template; ``table 6`` is called ``table_6`` there."""
    named = {name.replace(" ", "_"): value for name, value in cells.items()}
    found = {"claims": claims(cells), "seconds": seconds, "spread": spread}
    return {**named, **found, "published": {"gains": GAINS, "ablations": ABLATIONS, "observed": OBSERVED}}


def seconds(values: Sequence[float]) -> str:
    """Return a time to completion with its interval, if it has one.

    Examples
    --------
    >>> seconds([24.2, 24.0, 25.1]), seconds([502.0])
    ('24 [24, 25]', '502')
    """
    return f"{values[0]:.0f}" + (f" [{values[1]:.0f}, {values[2]:.0f}]" if len(values) == 3 else "")


def spread(gains: Mapping[str, float]) -> str:
    """Return the least, the largest and the mean gain in percent."""
    low, high, mean = (100 * gains[key] for key in ("low", "high", "mean"))
    return f"{low:+.0f} to {high:+.0f} %, mean {mean:+.0f} %"


def claims(cells: Cells) -> list[Claim]:
    """Return where a claim stands, the claim, what was measured, and the verdict."""
    judges = (_example, _gain, _latency, _observed, _ablated, _search, _replanning)
    found = [claim for judge in judges for claim in judge(cells)]
    text = (
        "Helix is not run on these GPUs; the paper's two throughputs at 15 and 30 USD/h contradict each other"
    )
    return [*found, ("Table 3", "25 % more throughput than Helix (7.13 against 5.72 req/s)", text, OPEN)]


def _example(cells: Cells) -> list[Claim]:
    worst = max(abs(ours - printed) for name, printed, ours in cells["example"] if "exact" not in name)
    text = f"all of them within {worst:.3f} s of what is printed"
    return [("4.2", "Makespans of 44.05, 35.24, 30.94 and 28.67 s", text, HOLDS if worst < 0.01 else FAILS)]


def _gain(cells: Cells) -> list[Claim]:
    found = []
    for row in cells["gains"]:
        free = row["free"]
        verdict = HOLDS if free["mean"] >= 0.2 else f"{PART}: {UNFAIR}" if free["high"] > 0 else FAILS
        text = f"against the best type without limits {spread(free)}; at equal availability {spread(row['equal'])}"
        claim = f"{row['model']}: gains over homogeneous fleets, {GAINS[row['model']]}"
        found.append(("5.2", claim, text, verdict))
    return found


def _latency(cells: Cells) -> list[Claim]:
    changes = {
        limit: [100 * row[limit]["change"] for row in cells["percentiles"]] for limit in ("free", "equal")
    }
    means = {limit: float(np.mean(found)) for limit, found in changes.items()}
    free, equal = (
        f"{min(found):+.0f} to {max(found):+.0f} %, mean {means[limit]:+.0f} %"
        for limit, found in changes.items()
    )
    text = f"change against the best type without limits {free}; at equal availability {equal}"
    verdict = HOLDS if means["free"] <= -15.0 else f"{PART}: {UNFAIR}" if means["equal"] <= -15.0 else FAILS
    return [("5.2", "Percentile latencies fall by up to 54 %, 20 % on average", text, verdict)]


def _observed(cells: Cells) -> list[Claim]:
    found = []
    for (kind, printed), name in zip(
        OBSERVED.items(), ("1, the GPU type for a workload", "2, the deployment on given GPUs"), strict=True
    ):
        ours = cells["observations"][kind]
        verdict, text = FAILS, f"up to {ours['most']:.2f} times, in the median {ours['median']:.2f}"
        if ours["most"] >= 0.9 * printed:
            verdict = HOLDS if kind == "deployments" else f"{PART}: by as much, but by other types"
        if kind == "types":
            best = cells["observations"]["best"]
            text += f"; best: {', '.join(f'{n} of {sum(best.values())} {gpu}' for gpu, n in best.items())}"
        found.append(("3", f"Observation {name}: up to {printed} times", text, verdict))
    return found


def _ablated(cells: Cells) -> list[Claim]:
    found = []
    for name, printed in ABLATIONS.items():
        ours = cells["ablation"][name]
        claim, text = (
            f"up to {100 * most:.0f} %, {100 * mean:.0f} % on average" for most, mean, *_ in (printed, ours)
        )
        more = round(100 * ours[1]) - round(100 * printed[1])
        verdict = HOLDS if abs(more) <= 7 else f"{PART}: more" if more > 0 else f"{PART}: less"
        found.append(("5.2, 5.3", f"{name}: {claim}", text, verdict))
    return found


def _search(cells: Cells) -> list[Claim]:
    """Judge the search with the check that the paper uses; ours with an exact check stands beside it."""
    speed = cells["speed"]
    exact_s, _, knapsack_s = speed["cpu_s"]
    mean, most = speed["knapsack"]
    slower = [row[-1] for row in speed["rows"]]
    text = (
        f"{exact_s / knapsack_s:.0f} times faster than the exact program in all, plans {100 * mean:.1f} % longer on "
        f"average, at most {100 * most:.1f} %; with an exact check {min(slower):.1f} to {max(slower):.1f} times slower"
    )
    fast, close = knapsack_s <= exact_s / 4, mean < 0.01
    verdict = HOLDS if fast and close else FAILS
    if fast != close:
        verdict = f"{PART}: faster by more, at a larger loss" if fast else f"{PART}: as good, not as fast"
    claim = "Binary search with a knapsack check takes a quarter of the MILP's time and loses less than 1 %"
    return [("Figure 9", claim, text, verdict)]


def _replanning(cells: Cells) -> list[Claim]:
    found = cells["table 7"]
    lost, again = (
        f"{found[key]:.2f} ({100 * (found[key] / found['before'] - 1):+.0f} %)"
        for key in ("drop, reassigned", "drop, replanned")
    )
    text = f"after the loss {lost}, replanned {again}; published 20.80 (-23 %) and 22.85 (-15 %)"
    verdict = HOLDS if found["drop, replanned"] > found["drop, reassigned"] else FAILS
    return [("Table 7", "Replanning wins back part of what a loss of GPUs costs", text, verdict)]
