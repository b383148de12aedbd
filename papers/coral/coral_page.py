"""Write ``docs/reproduce-coral.md`` from finished cells: published and measured figures side by side."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from fleetgym.files.markdown import rows as rows_of
from fleetgym.files.markdown import sections, table, with_kept_sections

from . import published, timings
from .evaluation import METHODS
from .setup import CORE, EXTENDED, PHASES, Setup
from .verdicts import HELIX, MIXING, SPREAD, claims

BASELINES = METHODS[1:]
#: The section of docs/calibration.md that has the measured exponents.
MEASURED = "## What tensor parallelism loses"


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _ratios(records: list[dict[str, Any]], setup: str, case: str, field: str) -> dict[str, list[float]]:
    """Return, by baseline and seed, its mean over epochs over Coral's; epochs in which it serves nothing count."""
    mine = [r for r in records if (r["setup"], r["case"]) == (setup, case)]
    seeds = sorted({r["seed"] for r in mine})
    means = {
        (name, seed): _mean(r[field] for r in mine if (r["method"], r["seed"]) == (name, seed))
        for name in ("coral", *BASELINES)
        for seed in seeds
    }
    return {b: [means[b, s] / means["coral", s] for s in seeds] for b in BASELINES}


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def _costs(records: list[dict[str, Any]], keys: list[tuple[str, str]]) -> list[str]:
    lines = [
        "",
        "## Hourly cost over Coral's",
        "",
        "Rent and amortised starts. Measured: median over seeds (least–most) of the ratio of means over five epochs. "
        "Where fewer than ten seeds are given, the others have not been played.",
        "",
    ]
    rows = []
    for setup, case in keys:
        if case == "scarce":
            continue
        found = _ratios(records, setup, case, "cost_usd_per_h")
        homo, cauchy = published.COST[setup, case]
        homo_1, homo_m, ours = (_spread(found[b]) for b in BASELINES)
        seeds = len(found["cauchy"])
        rows.append([f"{setup}, {case}", seeds, f"{homo:.2f}", homo_1, homo_m, f"{cauchy:.2f}", ours])
    head = ["set-up, case", "seeds", "Homo, published", "Homo-1", "Homo-M", "Cauchy, published", "Cauchy"]
    return [*lines, table(head, rows).rstrip()]


def _scarce(records: list[dict[str, Any]], setups: list[str]) -> list[str]:
    lines = [
        "",
        "## Scarce availability",
        "",
        "As in the paper, a method that cannot serve all demand has all rates scaled down until it can (steps of "
        "2.5 %); goodput is then proportional to that share. *As it is*: the mean share per model that it serves of "
        "the full demand. 0 means that one model cannot be served at any rate, so that the paper's rule leaves "
        "nothing. Availability is given relative to what the linear relaxation needs.",
        "",
    ]
    rows = []
    for setup in setups:
        cost = _ratios(records, setup, "scarce", "cost_usd_per_h")
        share = _ratios(records, setup, "scarce", "share_of_demand")
        asis = _ratios(records, setup, "scarce", "served_without_scaling")
        seeds = len(cost["cauchy"])
        over = [r["availability_over_need"] for r in records if (r["setup"], r["case"]) == (setup, "scarce")]
        homo, cauchy = (f"{times:.2f}" for times in published.COST[setup, "scarce"])
        homo_1, homo_m, ours = (_spread(cost[b]) for b in BASELINES)
        rows.append([setup, "cost over Coral's", seeds, homo, homo_1, homo_m, cauchy, ours])
        homo, cauchy = (f"{1 / times:.2f}" for times in published.GOODPUT[setup])
        homo_1, homo_m, ours = (_spread(share[b]) for b in BASELINES)
        rows.append([setup, "goodput over Coral's", seeds, homo, homo_1, homo_m, cauchy, ours])
        where = f"{setup} (availability {min(over):.2f}–{max(over):.2f} of the need)"
        homo_1, homo_m, ours = (_spread(asis[b]) for b in BASELINES)
        rows.append([where, "served as it is", seeds, "–", homo_1, homo_m, "–", ours])
    head = ["set-up", "what", "seeds", "Homo, published", "Homo-1", "Homo-M", "Cauchy, published", "Cauchy"]
    return [*lines, table(head, rows, 2).rstrip()]


def _by_model(records: list[dict[str, Any]], keys: list[tuple[str, str]]) -> list[str]:
    rows = []
    for setup in (CORE, EXTENDED):
        if (setup.name, "default") not in keys:
            continue
        mine = [
            r["rent_by_row"]
            for r in records
            if (r["setup"], r["case"], r["method"]) == (setup.name, "default", "coral")
        ]
        rent = [_mean(r[k] for r in mine) for k in range(len(PHASES) * len(setup.models))]
        for m, name in enumerate(setup.models):
            p, d = rent[2 * m], rent[2 * m + 1]
            part = f"{100 * (p + d) / sum(rent):.0f} %"
            rows.append([setup.name, name, f"{p:.1f} USD/h", f"{d:.1f} USD/h", part])
    head = ["set-up", "model", "prefill", "decode", "share of the rent"]
    return ["", "## Coral's rent by model, default", "", table(head, rows, 2).rstrip()]


def _by_baseline(records: list[dict[str, Any]], setups: list[Setup]) -> list[str]:
    """Return the twin of Figures 7(b) and 7(d): each model's rent by phase, and the baselines' over Coral's."""
    lines = []
    for setup in setups:
        rent = {
            method: [
                _mean(
                    r["rent_by_row"][k] for r in records if (r["setup"], r["method"]) == (setup.name, method)
                )
                for k in range(len(PHASES) * len(setup.models))
            ]
            for method in ("coral", "homo-1", "homo-m", "cauchy")
        }
        for m, name in enumerate(setup.models):
            mine = rent["coral"][2 * m : 2 * m + 2]
            printed = published.BY_MODEL.get((setup.name, name), ("–", "–"))
            over = {b: sum(rent[b][2 * m : 2 * m + 2]) / sum(mine) for b in BASELINES}
            phases = f"{rent['homo-1'][2 * m] / mine[0]:.2f} / {rent['homo-1'][2 * m + 1] / mine[1]:.2f}"
            row = [
                setup.name,
                name,
                f"{mine[0]:.1f} + {mine[1]:.1f}",
                printed[0],
                f"{over['homo-1']:.2f}",
                phases,
            ]
            lines.append([*row, f"{over['homo-m']:.2f}", printed[1], f"{over['cauchy']:.2f}"])
    head = [
        "set-up",
        "model",
        "Coral: prefill + decode, USD/h",
        "Homo, published",
        "Homo-1",
        "Homo-1: prefill / decode",
    ]
    return [
        "",
        "## Figure 7 (b, d): rent by model",
        "",
        "Means over seeds and epochs, as calibrated. Ratios are rents over Coral's.",
        "",
        table([*head, "Homo-M", "Cauchy, published", "Cauchy"], lines, 2).rstrip(),
    ]


def _spread_loss(cells: Mapping[str, list[dict[str, Any]]], calibration: str) -> list[str]:
    """Return the section on how much of n GPUs' speed a node has."""
    if not cells:
        return []
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, played in cells.items():
        setup, a, _ = name.split(" ")
        grouped.setdefault((setup, a), []).extend(played)
    rows = []
    for (setup, a), played in grouped.items():
        found = _ratios(played, setup, "default", "cost_usd_per_h")
        homo, cauchy = published.COST[setup, "default"]
        ours = {b: _spread(found[b]) for b in BASELINES}
        rows.append(
            [
                f"{setup}, a = {a}",
                len(found["cauchy"]),
                f"{homo:.2f}",
                ours["homo-1"],
                f"{cauchy:.2f}",
                ours["cauchy"],
                ours["homo-m"],
            ]
        )
    head = ["set-up, exponent", "seeds", "Homo, published", "Homo-1", "Cauchy, published", "Cauchy", "Homo-M"]
    lines = [
        "",
        SPREAD,
        "",
        published.SPREAD_TEXT,
        "",
        table(head, rows).rstrip(),
        "",
        _estimate(calibration),
        published.SPREAD_READ,
    ]
    calibrated = [record for (_, a), played in grouped.items() if float(a) == 0.0 for record in played]
    there = [setup for setup in (CORE, EXTENDED) if any(r["setup"] == setup.name for r in calibrated)]
    return lines + (_by_baseline(calibrated, there) if there else [])


def _estimate(calibration: str) -> str:
    """Return the measured exponents that the page of the calibration prints."""
    found = {row[0]: row[3] for row in rows_of(sections(calibration).get(MEASURED, ""))}
    if "all" not in found:
        return "**Our best estimate of a** stands on the page of the calibration."
    return (
        f"**Our best estimate of a** is {found['all']} over all measured models, {found['dense']} for dense ones and\n"
        f"{found['mixture']} for mixtures of experts."
    )


def _figure_1(
    mixing: Mapping[str, dict[str, float]], spectrum: Mapping[str, dict[str, float]] | None
) -> list[str]:
    if not mixing or spectrum is None:
        return []
    rows = []
    for a, best in mixing.items():
        pure, one, pair = best["pure H100"], best["pure H100, one node"], best["L40S and H100"]
        change = [f"{100 * (pair / other - 1):+.1f} %" for other in (pure, one)]
        rows.append([f"a = {a}", f"{one:.0f}", f"{pure:.0f}", f"{pair:.0f}", *change])
    head = [
        "exponent",
        "one node of H100",
        "several of H100",
        "L40S and H100",
        "against several",
        "against one",
    ]
    plans = [
        [name, f"{found['plans']:,.0f}", f"{found['levels']:,.0f}", f"{100 * found['largest_gap']:.2f} %"]
        for name, found in spectrum.items()
    ]
    return [
        "",
        MIXING,
        "",
        published.FIGURE_1A,
        "",
        table(head, rows).rstrip(),
        "",
        published.FIGURE_1B,
        "",
        table(["node sets", "plans", "different throughputs", "largest gap"], plans).rstrip(),
    ]


def _helix(cell: Mapping[str, Any] | None) -> list[str]:
    """Return the section on Helix's single cluster."""
    if cell is None:
        return []
    before, now = cell["published"], cell["tokens_per_s"]
    rows = [
        ["Helix, published placement", f"{before:.1f}", "–", "4 h (Helix's limit)"],
        ["templates", f"{now:.1f}", f"{100 * (now / before - 1):+.1f} %", f"{cell['cpu_s']:.3f} CPU s"],
    ]
    names = ("A100", "L4", "T4")
    layout = []
    for (layers, *held), alike in itertools.groupby(cell["stages"]):
        nodes = " + ".join(f"{n} {name}" for n, name in zip(held, names, strict=True) if n)
        layout.append([str(len(list(alike))), str(layers), nodes])
    return [
        "",
        HELIX,
        "",
        published.HELIX_TEXT,
        "",
        table(["placement", "max flow, tokens/s", "against Helix", "search"], rows).rstrip(),
        "",
        f"The search has {cell['states']} states: nodes of one type are interchangeable. The cluster holds at most "
        f"{cell['most_layers']}\nlayers, so it cannot serve as two pipelines. Its stages:",
        "",
        table(["stages", "layers of each", "nodes of each"], layout).rstrip(),
        "",
        published.HELIX_LIMITS,
    ]


def page(done: Mapping[str, Any], older: str = "", calibration: str = "") -> tuple[str, list[str]]:
    """Return the page as Markdown, and the headings of the sections that were kept.

    Parameters
    ----------
    done : mapping
        Finished cells of `fleetgym.papers.coral.measurements` by name.
    older : str
        A page whose sections stay where cells are missing.
    calibration : str
        The page of the calibration, whose estimate of a is quoted.
    """
    played = [record for cell in _of(done, "seed").values() for record in cell]
    keys = [k for k in published.COST if any((r["setup"], r["case"]) == k for r in played)]
    setups = [s for s in ("core", "extended") if (s, "scarce") in keys]
    lines = _spread_loss(_of(done, "spread"), calibration) + _figure_1(
        _of(done, "mixing"), done.get("spectrum")
    )
    lines += _helix(done.get("helix"))
    if keys:
        lines += _costs(played, keys) + _scarce(played, setups)
        lines += _by_model(played, keys) + timings.solving(played, keys)
    lines += timings.plain(_of(done, "plain")) + timings.placement(_of(done, "placement"))
    lines += timings.libraries(_of(done, "library")) + timings.sensitivity(_of(done, "rule"))
    lines += ["", "## Inputs", "", table(published.INPUTS_HEAD, published.INPUTS, 3).rstrip()]
    body, kept = with_kept_sections("\n".join(lines).lstrip("\n") + "\n", _without_head(older))
    judged = [
        [where, text, found, f"**{verdict}**"] for where, text, found, verdict in claims(sections(body))
    ]
    verdicts = (
        table(["where", "claim", "measured", "verdict"], judged, 4) if judged else "Not computed yet.\n"
    )
    head = f"{published.HEAD.rstrip()}\n\n{VERDICTS}\n\n{verdicts}\n{published.CHANGE.strip()}\n\n"
    return head + body.lstrip("\n"), kept


#: Sections that are written anew every time.
VERDICTS, CHANGE = "## Verdicts", "## What would change our verdict"


def _without_head(older: str) -> str:
    """Return the sections of an older page that may be kept."""
    return "".join(text for name, text in sections(older).items() if name not in ("", VERDICTS, CHANGE))


def _of(done: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the cells of a kind by the rest of their names, in their order."""
    names = sorted((n for n in done if n.startswith(f"{kind} ")), key=_natural)
    return {name.partition(" ")[2]: done[name] for name in names}


def _natural(name: str) -> list[tuple[float, str]]:
    """Return a key that sorts numbers by value."""
    numbers = re.compile(r"[\d.]+")
    return [(float(part), "") if numbers.fullmatch(part) else (-1.0, part) for part in name.split(" ")]
