"""Draw a plan: GPUs by pool, and cost and SLO violations on generated days."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.capacity.risk import Risk
from fleetgym.cli.pictures import COLOURS, new_figure, save_picture
from fleetgym.cli.plan_report import planned_demand
from fleetgym.model.instance import Instance
from fleetgym.runtime.text_tables import number


def plot_plan(instance: Instance, facts: dict[str, Any], risk: Risk | None, path: str) -> None:
    """Draw a plan into a picture file; without a risk, the terms of the planned window's cost instead of days."""
    pools = len(instance.pools)
    top = 1.0 + 0.35 * pools
    figure = new_figure(9.0, top + (4.6 if risk is not None else 2.4))
    if risk is None:
        fleet, costs = figure.subplots(2, 1, height_ratios=(top, 2.4))
        _draw_terms(costs, facts)
    else:
        fleet, costs, missed = figure.subplots(3, 1, height_ratios=(top, 3.0, 1.4))
        missed.sharex(costs)
        _draw_days(costs, missed, risk)
    _draw_fleet(fleet, instance, facts)
    figure.suptitle(f"{instance.id}: plan of {facts['agent']} for {planned_demand(facts)}")
    save_picture(figure, path)


def _draw_fleet(axes: Any, instance: Instance, facts: dict[str, Any]) -> None:
    """Draw a bar per pool: GPUs held, one part per model."""
    models = list(dict.fromkeys(c.model for c in instance.configurations))
    place = {name: c for c, name in enumerate(c.id for c in instance.configurations)}
    rows = np.arange(len(instance.pools))
    begin = np.zeros(len(rows))
    for m, model in enumerate(models):
        held = np.zeros(len(rows))
        for name, replicas in facts["fleet"].items():
            if instance.configurations[place[name]].model == model:
                held += instance.gpu_use[:, place[name]] * replicas
        if held.any():
            axes.barh(rows, held, 0.6, left=begin, color=COLOURS[m % len(COLOURS)], label=model)
            begin += held
    most = max(1.0, begin.max())
    for row, pool in enumerate(facts["gpus"].values()):
        axes.text(
            begin[row] + 0.01 * most,
            row,
            f"{pool['held']} of {pool['cap']}, {number(pool['usd_per_h'], 2)} USD/h",
            va="center",
            fontsize="small",
        )
    axes.set_yticks(rows, list(facts["gpus"]))
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.3 * most)
    axes.set_xlabel("GPUs held")
    if begin.any():
        # Above the bars: labels may be anywhere among them.
        axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)


def _draw_terms(axes: Any, facts: dict[str, Any]) -> None:
    """Draw the terms of the planned window's cost, per hour."""
    per_h = 3600.0 / facts["window_s"]
    terms = {name: usd * per_h for name, usd in facts["costs_usd"].items() if name != "cost" and usd > 0.0}
    bars = axes.barh([_words(name) for name in terms], list(terms.values()), 0.6, color=COLOURS[0])
    axes.bar_label(bars, [number(usd, 2) for usd in terms.values()], padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("USD/h, with all of the fleet serving")


def _words(term: str) -> str:
    return "SLO excess" if term == "slo" else term.replace("_", " ")


def _draw_days(costs: Any, missed: Any, risk: Risk) -> None:
    """Draw generated days from the cheapest to the dearest: cost by term above, shares of requests below."""
    from fleetgym.model.window import COST_TERMS

    order = np.argsort(risk.cost_usd, kind="stable")
    days = np.arange(1, len(order) + 1)
    terms = risk.terms_usd[order].T
    begin = np.zeros(len(days))
    for k, name in enumerate(COST_TERMS):
        if terms[k].any():
            costs.bar(days, terms[k], 1.0, bottom=begin, color=COLOURS[k], label=_words(name))
            begin += terms[k]
    measures = risk.summary()["cost_usd"]
    for name, style in (("mean", "-"), ("p95", "--"), ("worst_decile", ":")):
        label = f"{'P95' if name == 'p95' else name.replace('_', ' ')} {number(measures[name], 2)}"
        costs.axhline(measures[name], color="black", linestyle=style, linewidth=1.0, label=label)
    costs.set_ylabel("USD per generated day")
    costs.legend(frameon=True, framealpha=0.9, fontsize="small", loc="upper left", ncols=2)
    costs.set_ylim(0.0, 1.35 * begin.max() if begin.any() else 1.0)
    missed.bar(days, 100.0 * risk.miss_share[order], 1.0, color=COLOURS[3], label="late or unserved")
    missed.bar(days, 100.0 * risk.unserved_share[order], 1.0, color=COLOURS[5], label="unserved")
    missed.set_ylabel("% of requests")
    missed.set_xlabel(f"{len(days)} generated days, from the cheapest to the dearest")
    missed.set_xlim(0.5, len(days) + 0.5)
    missed.legend(frameon=False, fontsize="small", loc="upper left")
