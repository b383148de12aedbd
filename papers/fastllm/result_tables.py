"""Write the tables of the page as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.files.markdown import table

from . import published
from .measures import Measures, MissingCell
from .optimum import LOOSER, PROVEN
from .regime import BASE, METHODS, SIZES
from .rolling import SIGMAS
from .sensitivity import BUDGETS_USD, FACTORS
from .statistics import Estimate
from .two_stage import STRESSES, TIGHT


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, without the end of its last line; the first column is text, the others are numbers."""
    return table(header, rows).rstrip("\n")


def percent(found: Estimate) -> str:
    """Return a change in percent with its sign and interval, if it has one."""
    interval = "" if np.isnan(found.low) else f" [{found.low:+.1f}, {found.high:+.1f}]"
    return f"{found.mean:+.1f} %{interval}"


def first_stage(m: Measures) -> str:
    """Return what the first stage promises."""
    rows = []
    for method in METHODS:
        plan, pay = (m.mean("stress", method, quantity) for quantity in ("plan_usd", "pay_usd"))
        against = (
            ""
            if method == "DM"
            else percent(m.change(("stress", method, "plan_usd"), ("stress", "DM", "plan_usd")))
        )
        rows.append([method, plan.text(), pay.text(), against, str(plan.n)])
    return markdown(["method", "planned cost, USD per 24 h", "rent and weights", "against DM", "n"], rows)


def stress(m: Measures, routes: str) -> str:
    """Return cost and violations under stress."""
    header = [
        "method",
        *(f"cost at {s:g}x" for s in STRESSES),
        *(f"violations at {s:g}x, %" for s in STRESSES),
        "n",
    ]
    rows = []
    for method in METHODS:
        found = [m.mean("stress", method, routes, s, q) for q in ("cost", "violation") for s in STRESSES]
        rows.append([method, *(e.text(0 if k < 3 else 1) for k, e in enumerate(found)), str(found[0].n)])
    return markdown(header, rows)


def stress_changes(m: Measures) -> str:
    """Return paired differences under stress."""
    pairs = [("AGH", "DM"), ("GH", "DM"), ("AGH", "DM per-route"), ("AGH", "DM + headroom"), ("AGH", "GH")]
    rows = []
    for new, old in pairs:
        for routes in ("frozen", "deployed"):
            found = [
                m.change(("stress", new, routes, s, "cost"), ("stress", old, routes, s, "cost"))
                for s in STRESSES
            ]
            rows.append([f"{new} against {old}, {routes}", *map(percent, found)])
    return markdown(["cost", *(f"{s:g}x" for s in STRESSES)], rows)


def second_stage_modes(m: Measures) -> str:
    """Return what the second stage's reading does without stress."""
    rows = []
    for label, cell in {
        "frozen (12f)": ("frozen", 1.0),
        "deployed": ("deployed", 1.0),
        "deployed, with KV memory (5f)": ("memory", 1.0),
        "deployed, elastic SLOs": ("elastic", 1.0),
    }.items():
        rows.append([label, *(m.mean("stress", method, *cell, "cost").text() for method in METHODS[:3])])
    return markdown(["routes", *METHODS[:3]], rows)


def budgets(m: Measures) -> str:
    """Return Table 2."""
    header = ["scenario", "algorithm", "pay: paper", "ours", "cost: paper", "frozen", "deployed"]
    header += ["violations, %: paper", "frozen", "deployed", "n"]
    rows = []
    for case in ("S1", "S2", "S3", "S4", "S5"):
        for method in ("GH", "AGH"):
            cell = ("budgets", case, method)
            pay, cost, violation = published.BUDGETS[case, method]
            mine = [
                m.mean(*cell, routes, q) for q in ("cost", "violation") for routes in ("frozen", "deployed")
            ]
            rows.append(
                [
                    f"{case}: {_CASES[case]}" if method == "GH" else "",
                    method,
                    _printed(pay),
                    m.mean(*cell, "pay_usd").text(),
                    _printed(cost),
                    *(e.text(0) for e in mine[:2]),
                    _printed(violation),
                    *(e.text() for e in mine[2:]),
                    str(mine[0].n),
                ]
            )
    return markdown(header, rows)


_CASES = {
    "S1": "δ = 100",
    "S2": "δ = 75",
    "S3": "δ = 72",
    "S4": "δ = 75, φ x 5",
    "S5": "δ = 72, φ x 5",
}


def budget_gaps(m: Measures) -> str:
    """Return AGH against GH by scenario."""
    rows = []
    for case, (pay, cost, violation) in published.BUDGET_GAPS.items():

        def gap(*quantity: str, case: str = case) -> str:
            return percent(m.change(("budgets", case, "AGH", *quantity), ("budgets", case, "GH", *quantity)))

        rows.append(
            [
                case,
                f"{pay:+g} %",
                gap("pay_usd"),
                f"{cost:+g} %",
                gap("frozen", "cost"),
                gap("deployed", "cost"),
                f"{violation:+g} %",
                gap("frozen", "violation"),
                gap("deployed", "violation"),
            ]
        )
    header = ["AGH against GH", "pay: paper", "ours", "cost: paper", "frozen", "deployed"]
    return markdown([*header, "violations: paper", "frozen", "deployed"], rows)


def tight_budgets(m: Measures) -> str:
    """Return AGH against GH where the budget binds in every instance."""
    rows = []
    for case in TIGHT:
        for method in ("GH", "AGH"):
            cell = ("budgets", case, method)
            found = [
                m.mean(*cell, routes, q) for q in ("cost", "violation") for routes in ("frozen", "deployed")
            ]
            gaps = [
                percent(m.change((*cell, routes, "cost"), ("budgets", case, "GH", routes, "cost")))
                for routes in ("frozen", "deployed")
            ]
            rows.append(
                [
                    f"{case} of AGH's payment" if method == "GH" else "",
                    method,
                    m.mean(*cell, "pay_usd").text(),
                    *(e.text(0) for e in found[:2]),
                    *(e.text() for e in found[2:]),
                    *(gaps if method == "AGH" else ("", "")),
                    str(found[0].n),
                ]
            )
    header = ["budget", "algorithm", "pay", "cost, frozen", "deployed", "violations, %, frozen", "deployed"]
    return markdown([*header, "AGH against GH, frozen", "deployed", "n"], rows)


def _printed(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def ablation(m: Measures) -> str:
    """Return Table 3."""
    names = {"all": "all mechanisms", "m1": "without M1", "m2": "without M2", "m3": "without M3"}
    header = ["configuration", "feasible: paper", "cost: paper", "AGH feasible, %", "AGH cost", "against all"]
    header += ["AGH breaks delay, %", "leaves demand unserved, %", "single GPU cannot hold weights, %"]
    header += ["GH feasible, %", "GH cost", "n"]
    rows = []
    for without, name in names.items():
        cells = {method: ("ablation", method, without) for method in ("GH", "AGH")}
        cost = (*cells["AGH"], "cost")
        against = "" if without == "all" else percent(m.change(cost, ("ablation", "AGH", "all", "cost")))
        rows.append(
            [
                name,
                *published.ABLATION[without],
                m.share(*cells["AGH"], "feasible").text(0),
                m.mean(*cost).text(),
                against,
                m.share(*cells["AGH"], "delay").text(0),
                m.share(*cells["AGH"], "unserved").text(0),
                m.share(*cells["AGH"], "too small").text(0),
                m.share(*cells["GH"], "feasible").text(0),
                m.mean(*cells["GH"], "cost").text(),
                str(m.mean(*cost).n),
            ]
        )
    return markdown(header, rows)


def sensitivity(m: Measures) -> str:
    """Return the surfaces' edges: one parameter at its extremes, the other at its nominal value."""
    edges = [
        ("delay SLO Δ", [("slo", v, 1.0, f"x {v:g}") for v in FACTORS]),
        ("error SLO ε", [("slo", 1.0, v, f"x {v:g}") for v in FACTORS]),
        ("budget δ", [("budget", v, 1.0, f"{v:g}") for v in BUDGETS_USD]),
        ("rent p", [("price", v, 1.0, f"x {v:g}") for v in FACTORS]),
    ]
    rows = []
    for name, points in edges:
        for surface, a, b, label in points:
            cell = (surface, a, b)
            full = m.share(*cell, "unserved")
            rows.append(
                [
                    f"{name} {label}",
                    f"{np.median(m.values(*cell, 'cost_usd')):,.1f}",
                    m.mean(*cell, "cost_usd").text(),
                    f"{full.mean:.0f}",
                    m.mean(*cell, "gpus").text(),
                    m.mean(*cell, "groups").text(),
                    m.mean(*cell, "tensor_parallel").text(2),
                    m.mean(*cell, "tflops_per_gpu").text(0),
                    str(full.n),
                ]
            )
    header = [
        "AGH",
        "median cost",
        "mean cost",
        "leave demand unserved, %",
        "GPUs",
        "groups",
        "TP",
        "TFLOPS per GPU",
        "n",
    ]
    return markdown(header, rows)


def rolling(m: Measures, routes: str, quantity: str, policies: Sequence[str]) -> str:
    """Return Table 4 for one way of routing and costing."""
    rows = []
    for name in policies:
        if quantity == "cost" and name in published.ROLLING:
            rows.append([f"{name}, paper", *(f"{mean} ± {sd}" for mean, sd in published.ROLLING[name]), "30"])
        cells = {sigma: ("rolling", sigma, routes, name, quantity) for sigma in SIGMAS}
        if not any(m.has(*cell) for cell in cells.values()):
            continue
        found = []
        for cell in cells.values():
            if m.has(*cell):
                values = m.values(*cell)
                spread = f" ± {np.std(values, ddof=1):.0f}" if len(values) > 1 else ""
                found.append(m.mean(*cell).text(0) + spread)
            else:
                found.append("-")
        counts = {len(m.values(*cell)) for cell in cells.values() if m.has(*cell)}
        rows.append([name, *found, "/".join(map(str, sorted(counts)))])
    return markdown(["mean [95 %] ± std", *(f"σ = {s:g}" for s in SIGMAS), "n"], rows)


def rolling_gaps(m: Measures, pairs: Sequence[tuple[str, str]]) -> str:
    """Return the comparisons of Table 4 and more."""
    rows = []
    for new, old in pairs:
        if (new, old) in published.ROLLING_GAPS:
            rows.append(
                [f"{new} against {old}, paper", *(f"{v:+g} %" for v in published.ROLLING_GAPS[new, old])]
            )
        for routes in ("frozen", "deployed"):
            for quantity, suffix in (("cost", ""), ("with start-up", ", with start-up")):
                if quantity == "with start-up" and routes == "frozen":
                    continue
                found = []
                for sigma in SIGMAS:
                    a, b = (("rolling", sigma, routes, name, quantity) for name in (new, old))
                    found.append(percent(m.change(a, b)) if m.has(*a) and m.has(*b) else "-")
                rows.append([f"{new} against {old}, {routes}{suffix}", *found])
    return markdown(["cost", *(f"σ = {s:g}" for s in SIGMAS)], rows)


def rolling_changes(m: Measures, policies: Sequence[str]) -> str:
    """Return how often fleets change in a day, with deployed routes, and how many different fleets are proposed."""
    rows = []
    for name in policies:
        cells = [("rolling", sigma, "deployed", name, "changes") for sigma in SIGMAS]
        found = [m.mean(*cell).text() if m.has(*cell) else "-" for cell in cells]
        rows.append([f"{name}: changes", *found])
        cells = [("rolling", sigma, f"fleets {name}") for sigma in SIGMAS]
        if m.has(*cells[0]):
            rows.append(
                [f"{name}: fleets proposed", *(m.mean(*c).text() if m.has(*c) else "-" for c in cells)]
            )
    return markdown(["per day", *(f"σ = {s:g}" for s in SIGMAS)], rows)


def optimum(m: Measures) -> str:
    """Return how far the heuristics are above the exact program, by the factor on all SLOs."""
    gh, agh = published.ABOVE_OPTIMUM
    rows = [["Table 4, σ = .01, paper", f"{agh:+.1f} %", "-", f"{gh:+.1f} %", "-", "-", "30"]]
    for slo in LOOSER:
        cell = ("optimum", BASE, slo)

        def above(method: str, exact: str, cell: tuple[str, str, float] = cell) -> str:
            return percent(m.change((*cell, method, "plan_usd"), (*cell, exact, "plan_usd")))

        rows.append(
            [
                f"Δ and ε x {slo:g}",
                above("AGH", "DM"),
                above("AGH, 500 starts", "DM"),
                above("GH", "DM"),
                above("AGH", "DM per-route"),
                m.mean(*cell, "DM", "unserved share").text(),
                str(m.mean(*cell, "DM", "unserved share").n),
            ]
        )
    header = ["SLOs", "AGH above DM", "AGH, 500 starts, above DM", "GH above DM"]
    return markdown([*header, "AGH above DM per-route", "DM leaves unserved, %", "n"], rows)


def runtime(m: Measures) -> str:
    """Return Table 5."""
    rows = []
    for method in ("GH", "AGH", "DM"):
        rows.append([f"{method}, paper", *(published.RUNTIME[method][size] for size in SIZES)])
        rows.append(_sizes(method, lambda c, k=method: m.mean(*c, k, "cpu_s").text(1 if k == "DM" else 4)))
    for label, method in {"DM": "DM", "DM, McCormick": "DM McCormick"}.items():
        if method != "DM":
            rows.append(_sizes(label, lambda c, k=method: m.mean(*c, k, "cpu_s").text(1)))
        rows.append(
            _sizes(f"{label}: proven optimal, %", lambda c, k=method: m.share(*c, k, "proven").text(0))
        )
        rows.append(_sizes(f"{label}: gap left, %", lambda c, k=method: m.mean(*c, k, "gap").text()))
    rows.append(_sizes("DM over AGH, times", lambda c: _times(m, c)))
    for method, against in (("AGH", "plan"), ("AGH", "bound"), ("GH", "plan")):
        rows.append(
            _sizes(
                f"cost of {method} above DM's {against}",
                lambda c, k=method, q=f"{against}_usd": percent(m.change((*c, k, "plan_usd"), (*c, "DM", q))),
            )
        )
    rows.append(_sizes("AGH leaves demand unserved, %", lambda c: m.share(*c, "AGH", "unserved").text(0)))
    rows.append(_sizes("n", lambda c: " / ".join(str(len(m.values(*c, k, "cpu_s"))) for k in ("AGH", "DM"))))
    return markdown(["CPU seconds per plan", *(f"({', '.join(size.split('-'))})" for size in SIZES)], rows)


def unserved(m: Measures) -> str:
    """Return what the plans of Table 5 leave unserved, and AGH's gap where the exact program serves all."""
    rows = []
    for size in PROVEN:
        cell = ("optimum", size, 1.0)
        if not m.has(*cell, "DM", "unserved"):
            continue
        plans = (*cell, "AGH", "plan_usd"), (*cell, "DM", "plan_usd")
        exact, both = (*cell, "DM", "unserved"), (*cell, "AGH", "unserved")
        rows.append(
            [
                f"({', '.join(size.split('-'))})",
                m.mean(*cell, "DM", "unserved share").text(2),
                m.share(*exact).text(0),
                m.share(*both).text(0),
                _counted(m, plans),
                _counted(m, plans, exact),
                _counted(m, plans, exact, both),
            ]
        )
    if not rows:
        raise MissingCell("optimum by size")
    header = ["size", "DM leaves unserved, % of the demand", "% of instances", "AGH, % of instances"]
    return markdown([*header, "AGH above DM", "where DM serves all", "where both do"], rows)


def _counted(m: Measures, plans: tuple[tuple[str, ...], ...], *unless: tuple[str, ...]) -> str:
    """Return a change with the number of instances behind it; a dash where there is none."""
    try:
        found = m.change(*plans, *unless)
    except MissingCell:
        return "-"
    return f"{percent(found)} (n = {found.n})"


def _sizes(label: str, form: Callable[[tuple[str, str]], str]) -> list[str]:
    """Return a row over sizes; a dash where nothing is computed yet."""
    row = [label]
    for size in SIZES:
        try:
            row.append(form(("runtime", size)))
        except MissingCell:
            row.append("-")
    return row


def _times(m: Measures, cell: tuple[str, str]) -> str:
    return f"{m.mean(*cell, 'DM', 'cpu_s').mean / m.mean(*cell, 'AGH', 'cpu_s').mean:,.0f}"
