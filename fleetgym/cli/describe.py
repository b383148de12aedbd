"""Describe an instance as a page of text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.cli.text_tables import NOTHING, align, number
from fleetgym.model.instance import Configuration, Instance
from fleetgym.model.scenario import Scenario

_MOST_ROWS = 40
_WIDTH = 110


def describe_instance(instance: Instance, scenarios: Sequence[Scenario] = ()) -> str:
    """Return an instance as text: workloads, pools, slots and configurations, nominal fleet, scenarios.

    Parameters
    ----------
    instance : Instance
        The problem.
    scenarios : sequence of Scenario
        Its stored scenarios.

    Returns
    -------
    str
    """
    head = (
        f"{instance.id}  family {instance.family}, size {instance.size}\n{instance.description}\n"
        f"{instance.num_windows} windows of {instance.window_s:g} s, agents see "
        f"{'the coming window' if instance.lead == 0 else 'the last window'}; {_budget(instance)}"
    )
    sections = {
        "workloads": _workloads(instance),
        "pools": _pools(instance),
        f"slots ({len(instance.slots)}) and configurations ({instance.num_configurations})": _slots(instance),
        "nominal fleet": fleet_text(instance, instance.nominal_fleet),
    }
    if scenarios:
        sections[f"stored scenarios ({len(scenarios)})"] = _scenarios(instance, scenarios)
    if instance.provenance:
        sections["where the numbers come from"] = provenance_text(instance.provenance)
    return "\n\n".join([head, *(f"{name}\n{text}" for name, text in sections.items())])


def provenance_text(provenance: Mapping[str, str]) -> str:
    """Return a paragraph for each group of numbers: whether it is given, measured, fitted, modelled or assumed."""
    return "\n".join(paragraph(name, text) for name, text in provenance.items())


def paragraph(name: str, text: str) -> str:
    """Return a name, and beside it a text in lines.

    Examples
    --------
    >>> print(paragraph("error", "assumed: 0.04"))
    error        assumed: 0.04
    """
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=f"{name:<12} ",
        subsequent_indent=" " * 13,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _budget(instance: Instance) -> str:
    if instance.budget is None:
        return "no budget"
    per = "an hour" if instance.budget.kind == "rate" else "for the whole episode"
    return f"budget {number(instance.budget.usd, 2)} USD {per}"


def _optional(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else number(value, digits)


def _workloads(instance: Instance) -> str:
    head = [
        "workload",
        "req/s",
        "tokens in",
        "out",
        "delay SLO s",
        "TTFT SLO s",
        "error SLO",
        "unserved USD",
        "late USD",
    ]
    rows = [
        [
            w.id,
            number(w.rate_rps, 3),
            number(w.input_tokens, 0),
            number(w.output_tokens, 0),
            number(w.mean_delay_slo_s, 2),
            _optional(w.ttft_slo_s),
            number(w.error_slo, 3),
            f"{w.unserved_usd:.4g}",
            f"{w.late_usd:.4g}",
        ]
        for w in instance.workloads
    ]
    unit = "per day at full share" if instance.penalty_basis == "day" else "per request"
    return f"{align(head, rows)}\n(penalties {unit})"


def _pools(instance: Instance) -> str:
    head = ["pool", "GPU", "region", "market", "cap", "per node", "USD/GPU/h"]
    rows = [
        [
            p.id,
            p.gpu_type,
            p.region,
            p.market,
            str(p.cap_gpus),
            str(p.gpus_per_node),
            number(p.price_usd_per_gpu_h, 2),
        ]
        for p in instance.pools
    ]
    return align(head, rows, left=4)


def _slots(instance: Instance) -> str:
    head = ["slot", "configuration", "model", "GPUs", "precision"]
    head += ["TP x PP", "most", "starts in", "fee USD", "USD/h"]
    rows = []
    for s, members in enumerate(instance.slot_members):
        for option, c in enumerate(members, start=1):
            configuration = instance.configurations[c]
            exclusive = instance.slots[s].exclusive
            rent = instance.rental_usd_per_h[:, c].sum() + configuration.model_storage_usd_per_h
            rows.append(
                [
                    f"{s}" if not exclusive else f"{s}, option {option}",
                    configuration.id,
                    configuration.model,
                    *_hardware(instance, configuration),
                    f"{configuration.tensor_parallel} x {configuration.pipeline_parallel}",
                    str(configuration.max_replicas),
                    str(configuration.startup_windows),
                    number(configuration.startup_usd, 2),
                    number(rent, 2),
                ]
            )
    more = f"\n... and {len(rows) - _MOST_ROWS} more" if len(rows) > _MOST_ROWS else ""
    return align(head, rows[:_MOST_ROWS], left=5) + more


def _hardware(instance: Instance, configuration: Configuration) -> tuple[str, str]:
    """Return a replica's GPUs by type, and their precision."""
    tiers = {tier.id: tier for tier in instance.tiers}
    types = {pool.id: pool.gpu_type for pool in instance.pools}
    gpus: Counter[str] = Counter()
    for use in configuration.uses:
        gpus[types[tiers[use.tier].pool]] += use.gpus
    precisions = dict.fromkeys(tiers[use.tier].precision for use in configuration.uses)
    return " + ".join(f"{count} {name}" for name, count in gpus.items()), " + ".join(precisions)


def _scenarios(instance: Instance, scenarios: Sequence[Scenario]) -> str:
    nominal = np.array([w.rate_rps for w in instance.workloads])
    caps = np.array([max(1, p.cap_gpus) for p in instance.pools])
    head = ["number", "id", "demand / nominal: mean", "peak", "least available", "price: mean", "peak"]
    rows = []
    for k, scenario in enumerate(scenarios):
        demand = scenario.rate_rps.sum(axis=1) / nominal.sum()
        rows.append(
            [
                str(k),
                scenario.id,
                number(demand.mean(), 2),
                number(demand.max(), 2),
                f"{100 * (scenario.available_gpus / caps).min():.0f} %",
                number(scenario.price_factor.mean(), 2),
                number(scenario.price_factor.max(), 2),
            ]
        )
    return align(head, rows[:_MOST_ROWS], left=2)


def fleet_text(instance: Instance, fleet: np.ndarray) -> str:
    """Return a fleet by pools and models as text."""
    held = instance.gpu_use @ fleet
    rent = float((instance.rental_usd_per_h @ fleet).sum())
    rows = [
        [
            instance.configurations[c].id,
            instance.configurations[c].model,
            *_hardware(instance, instance.configurations[c]),
            str(fleet[c]),
        ]
        for c in np.flatnonzero(fleet)
    ]
    pools = ", ".join(f"{p.id} {held[g]}/{p.cap_gpus}" for g, p in enumerate(instance.pools))
    table = (
        align(["configuration", "model", "GPUs each", "precision", "replicas"], rows, left=4)
        if rows
        else "(empty)"
    )
    return f"{table}\nGPUs held: {pools}; rent {number(rent, 2)} USD/h"
