"""Describe an instance as a page of text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.model.instance import Configuration, Instance
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.text_tables import align_columns, number

_MOST_ROWS = 40
_WIDTH = 110


def describe_instance(instance: Instance, scenarios: Sequence[Scenario] = ()) -> str:
    """Return an instance as text: workloads, pools, slots and configurations, nominal fleet, scenarios."""
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


def _workloads(instance: Instance) -> str:
    found = instance.workloads
    table = align_columns(
        [
            ("workload", [w.id for w in found]),
            ("req/s", [number(w.rate_rps, 3) for w in found]),
            ("tokens in", [number(w.input_tokens, 0) for w in found]),
            ("out", [number(w.output_tokens, 0) for w in found]),
            ("delay SLO s", [number(w.delay_limit_s, 2) for w in found]),
            ("TTFT SLO s", [number(w.ttft_slo_s, 2) for w in found]),
            ("error SLO", [number(w.error_slo, 3) for w in found]),
            ("unserved USD", [f"{w.unserved_usd:.4g}" for w in found]),
            ("late USD", [f"{w.late_usd:.4g}" for w in found]),
        ]
    )
    unit = "per day at full share" if instance.penalty_basis == "day" else "per request"
    return f"{table}\n(penalties {unit})"


def _pools(instance: Instance) -> str:
    return align_columns(
        [
            ("pool", [p.id for p in instance.pools]),
            ("GPU", [p.gpu_type for p in instance.pools]),
            ("region", [p.region for p in instance.pools]),
            ("market", [p.market for p in instance.pools]),
            ("cap", [str(p.cap_gpus) for p in instance.pools]),
            ("per node", [str(p.gpus_per_node) for p in instance.pools]),
            ("USD/GPU/h", [number(p.price_usd_per_gpu_h, 2) for p in instance.pools]),
        ],
        left=4,
    )


def _slots(instance: Instance) -> str:
    found = []  # label, configuration, USD/h
    for s, members in enumerate(instance.slot_members):
        for option, c in enumerate(members, start=1):
            one = instance.configurations[c]
            rent = instance.rental_usd_per_h[:, c].sum() + one.model_storage_usd_per_h
            found.append((f"{s}, option {option}" if instance.slots[s].exclusive else f"{s}", one, rent))
    more = f"\n... and {len(found) - _MOST_ROWS} more" if len(found) > _MOST_ROWS else ""
    labels, kept, rents = zip(*found[:_MOST_ROWS], strict=True)
    hardware = [_hardware(instance, c) for c in kept]
    table = align_columns(
        [
            ("slot", labels),
            ("configuration", [c.id for c in kept]),
            ("model", [c.model for c in kept]),
            ("GPUs", [gpus for gpus, _ in hardware]),
            ("precision", [precision for _, precision in hardware]),
            ("TP x PP", [f"{c.tensor_parallel} x {c.pipeline_parallel}" for c in kept]),
            ("most", [str(c.max_replicas) for c in kept]),
            ("starts in", [str(c.startup_windows) for c in kept]),
            ("fee USD", [number(c.startup_usd, 2) for c in kept]),
            ("USD/h", [number(rent, 2) for rent in rents]),
        ],
        left=5,
    )
    return table + more


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
    shown = scenarios[:_MOST_ROWS]
    demand = [scenario.rate_rps.sum(axis=1) / nominal.sum() for scenario in shown]
    least = [(scenario.available_gpus / caps).min() for scenario in shown]
    return align_columns(
        [
            ("number", [str(k) for k in range(len(shown))]),
            ("id", [scenario.id for scenario in shown]),
            ("demand / nominal: mean", [number(d.mean(), 2) for d in demand]),
            ("peak", [number(d.max(), 2) for d in demand]),
            ("least available", [f"{100 * share:.0f} %" for share in least]),
            ("price: mean", [number(scenario.price_factor.mean(), 2) for scenario in shown]),
            ("peak", [number(scenario.price_factor.max(), 2) for scenario in shown]),
        ],
        left=2,
    )


def fleet_text(instance: Instance, fleet: np.ndarray) -> str:
    """Return a fleet by pools and models as text."""
    held = instance.gpu_use @ fleet
    rent = float((instance.rental_usd_per_h @ fleet).sum())
    used = np.flatnonzero(fleet)
    configurations = [instance.configurations[c] for c in used]
    hardware = [_hardware(instance, c) for c in configurations]
    columns = [
        ("configuration", [c.id for c in configurations]),
        ("model", [c.model for c in configurations]),
        ("GPUs each", [gpus for gpus, _ in hardware]),
        ("precision", [precision for _, precision in hardware]),
        ("replicas", [str(fleet[c]) for c in used]),
    ]
    pools = ", ".join(f"{p.id} {held[g]}/{p.cap_gpus}" for g, p in enumerate(instance.pools))
    table = align_columns(columns, left=4) if len(used) else "(empty)"
    return f"{table}\nGPUs held: {pools}; rent {number(rent, 2)} USD/h"
