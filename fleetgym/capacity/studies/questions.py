"""Answer a fleet planner's questions by name, as rows and a picture.

These are what `fleetgym study NAME` calls, through the entry points of the group ``fleetgym.studies``. Each one sets up
a study of `fleetgym.capacity.studies.alternatives`; the defaults are the settings of inference-fleet-sim's case
studies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetgym.capacity.traces.studied import busy_factor, is_file, lengths_of, own_profile, planned_alone
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.hardware.performance.lengths import Lengths, published_totals
from fleetgym.hardware.performance.profiles import PROFILES, Profile, measured_profiles

from . import alternatives
from .disaggregation import KV_GB_PER_TOKEN, LINK_GB_PER_S
from .pools import UTILIZATION_CAP, Slos
from .power import node_availability as share_working
from .sizing import Demand, pool_queue

Row = alternatives.Row
GPUS = ("A10G", "A100-80GB", "H100-80GB")
LIMITS = (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """Rows of plain numbers, one per alternative, and how to draw them."""

    title: str
    rows: Sequence[Row]
    draw: Callable[[], Any]  # a matplotlib Figure
    note: str = ""  # what to know of the rows


def _profile(name: str) -> Profile:
    """Return a published profile, that of a measured deployment, or of a GPU of an instance (``H100@day.json``)."""
    if "@" in name:
        return own_profile(name)
    if name in PROFILES:
        return PROFILES[name]
    measured = {profile.name: profile for profile in measured_profiles()}
    if name not in measured:
        raise UnknownNameError("GPU profile", name, {**PROFILES, **measured})
    return measured[name]


def _demand(
    workload: str, rate_rps: float, context_tokens: int, ttft_s: float, tpot_s: float | None = None
) -> Demand:
    """Return the demand of a published length distribution, or of an instance's (``day.json``).

    What exceeds the context counts as just fitting.
    """
    slos = Slos(ttft_s=ttft_s) if tpot_s is None else Slos(ttft_s=ttft_s, tpot_s=tpot_s)
    if is_file(workload):
        return Demand(lengths=lengths_of(workload, context_tokens), rate_rps=rate_rps, slos=slos)
    known = published_totals()
    if workload not in known:
        raise UnknownNameError("length distribution", workload, known)
    lengths = Lengths.from_totals(known[workload], high=context_tokens)
    return Demand(lengths=lengths, rate_rps=rate_rps, slos=slos)


def _setting(workload: str, rate_rps: float, ttft_s: float) -> str:
    return f"{workload}, {rate_rps:g} requests/s, P99 TTFT {1e3 * ttft_s:g} ms"


def thresholds(
    *,
    workload: str = "lmsys",
    rate_rps: float = 100.0,
    ttft_s: float = 0.5,
    context_tokens: int = 65536,
    short: str = "A100-80GB",
    long: str = "A100-80GB",
    thresholds: Sequence[int] = (512, 1024, 1536, 2048, 3072, 4096, 8192, 12288),
) -> Answer:
    """Where to split two pools: cost against P99 TTFT of each threshold."""
    demand = _demand(workload, rate_rps, context_tokens, ttft_s)
    rows = alternatives.threshold_pareto(demand, _profile(short), _profile(long), thresholds, context_tokens)
    return _answer(f"Split thresholds: {_setting(workload, rate_rps, ttft_s)}", rows, "threshold_pareto")


def layouts(
    *,
    workload: str = "azure",
    rate_rps: float = 100.0,
    ttft_s: float = 0.5,
    gpus: Sequence[str] = GPUS,
    limits: Sequence[int] = LIMITS,
    most_pools: int = 3,
) -> Answer:
    """Which GPU type, and how many pools of it: the cheapest fleet of each."""
    demand = _demand(workload, rate_rps, max(limits), ttft_s)
    profiles = {gpu: _profile(gpu) for gpu in gpus}
    rows = alternatives.gpu_layouts(demand, list(profiles.values()), limits, most_pools)
    answer = _answer(f"GPU types and layouts: {_setting(workload, rate_rps, ttft_s)}", rows, "layouts")
    return _with_plans(answer, workload, profiles, max(limits)) if is_file(workload) else answer


def _with_plans(
    answer: Answer, workload: str, profiles: Mapping[str, Profile], context_tokens: int
) -> Answer:
    """Return layouts of an instance's traffic beside what `plan` holds of each of its GPU types alone."""
    planned = {profile.name: planned_alone(gpu) for gpu, profile in profiles.items() if "@" in gpu}
    rows = [
        {**row, "plan_gpus": gpus, "plan_usd_per_h": usd}
        for row in answer.rows
        for gpus, usd in [planned.get(row["gpu"], (None, None))]
    ]
    few, many = (pick(p.slots(context_tokens) for p in profiles.values()) for pick in (min, max))
    slots = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    note = (
        f"plan_gpus and plan_usd_per_h are of plan {workload} --why-not each-gpu, each GPU type alone. plan takes the "
        "fleet that costs least over generated days, on which one window in a hundred brings "
        f"{busy_factor(workload):.2g} times the mean; the layouts keep the P99 TTFT of every pool at the mean rate, "
        f"with at most {100 * UTILIZATION_CAP:g} % of the slots busy, and every slot has room for the longest request "
        f"of its pool: {slots} of {context_tokens:,} tokens fit on a replica, which plan fills by what requests hold. "
        "Buy by plan; a layout says whether to split by length"
    )
    return dataclasses.replace(answer, rows=rows, note=note)


def steps(
    *,
    workload: str = "azure",
    rates: Sequence[float] = (25.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0),
    ttft_s: float = 0.5,
    gpus: Sequence[str] = ("H100-80GB",),
    limits: Sequence[int] = (4096, 8192),
) -> Answer:
    """When to add replicas as traffic grows: the cheapest fleet at each rate, and where it runs out."""
    demand = _demand(workload, rates[0], max(limits), ttft_s)
    rows = alternatives.step_rates(demand, [_profile(gpu) for gpu in gpus], limits, rates)
    return _answer(f"When to add replicas: {workload}, P99 TTFT {1e3 * ttft_s:g} ms", rows, "steps")


def routers(
    *,
    workload: str = "agent-heavy",
    rate_rps: float = 20.0,
    ttft_s: float = 1.0,
    pools: Sequence[tuple[str, int, int]] = (("H100-80GB", 2, 4096), ("H100-80GB", 23, 65536)),
    seeds: int = 10,
    requests: int = 20_000,
) -> Answer:
    """How to route between the pools of one fleet, (GPU, replicas, context limit) each; simulated."""
    demand = _demand(workload, rate_rps, pools[-1][2], ttft_s)
    fleet = [(_profile(gpu), replicas, context) for gpu, replicas, context in pools]
    rows = alternatives.compare_routers(
        fleet, demand.lengths, rate_rps, demand.slos, seeds=seeds, requests=requests
    )
    return _answer(f"Routers: {_setting(workload, rate_rps, ttft_s)}", rows, "routers", ttft_s)


def mixed_types(
    *,
    workload: str = "lmsys",
    rate_rps: float = 100.0,
    ttft_s: float = 0.5,
    context_tokens: int = 65536,
    threshold: int = 4096,
    gpus: Sequence[str] = GPUS,
) -> Answer:
    """Which GPU type for short and which for long requests: every pair."""
    demand = _demand(workload, rate_rps, context_tokens, ttft_s)
    rows = alternatives.mixed_types(demand, [_profile(gpu) for gpu in gpus], threshold, context_tokens)
    title = f"Mixed types, split at {threshold}: {_setting(workload, rate_rps, ttft_s)}"
    return _answer(title, rows, "pairs", "short", "long")


def disaggregation(
    *,
    workload: str = "azure",
    rate_rps: float = 100.0,
    ttft_s: float = 0.5,
    tpot_s: float = 0.1,
    context_tokens: int = 8192,
    gpus: Sequence[str] = ("A100-80GB", "H100-80GB"),
    links_gb_per_s: Sequence[float] = (1.0, 2.0, 5.0, 12.5, LINK_GB_PER_S, 200.0),
    kv_gb_per_token: float = KV_GB_PER_TOKEN,
) -> Answer:
    """Whether to split prefill from decode: every pair of types over links of several speeds, beside one pool."""
    demand = _demand(workload, rate_rps, context_tokens, ttft_s, tpot_s)
    profiles = [_profile(gpu) for gpu in gpus]
    rows = alternatives.transfer_costs(demand, profiles, context_tokens, links_gb_per_s, kv_gb_per_token)
    title = f"Prefill and decode apart: {_setting(workload, rate_rps, ttft_s)}, TPOT {1e3 * tpot_s:g} ms"
    return _answer(title, rows, "transfer_costs")


def grid_flex(
    *,
    workload: str = "azure",
    rate_rps: float = 200.0,
    ttft_s: float = 0.5,
    context_tokens: int = 8192,
    gpu: str = "H100-80GB",
    replicas: int | None = 40,
    shares: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
) -> Answer:
    """How much of its power a fleet can give up (replicas None: the fewest): batch, power and P99 TTFT by share."""
    demand = _demand(workload, rate_rps, context_tokens, ttft_s)
    queue, _ = pool_queue(demand, _profile(gpu), above=0, context_tokens=context_tokens)
    assert queue is not None  # the pool takes every length
    if replicas is None and (replicas := queue.smallest(demand.slos)) is None:
        raise FleetgymError(f"{gpu} keeps no P99 TTFT of {ttft_s:g} s, whatever its number")
    rows = alternatives.grid_flex(queue, replicas, shares, demand.slos)
    title = f"Power given up by {replicas} {gpu}: {_setting(workload, rate_rps, ttft_s)}"
    return _answer(title, rows, "grid_flex", ttft_s)


def tokens_per_watt(
    *,
    workload: str = "azure",
    rate_rps: float = 100.0,
    ttft_s: float = 0.5,
    context_tokens: int = 8192,
    gpus: Sequence[str] = GPUS,
) -> Answer:
    """Output tokens per second and watt, and dollars per million, of the smallest pool of each GPU type."""
    demand = _demand(workload, rate_rps, context_tokens, ttft_s)
    rows = []
    for gpu in gpus:
        queue, _ = pool_queue(demand, _profile(gpu), above=0, context_tokens=context_tokens)
        assert queue is not None
        size = queue.smallest(demand.slos, UTILIZATION_CAP)
        if size is not None:
            rows.append(alternatives.energy(queue, size))
    if not rows:
        raise FleetgymError(
            f"none of {', '.join(gpus)} keeps a P99 TTFT of {ttft_s:g} s, whatever its number"
        )
    return _answer(f"Energy and money: {_setting(workload, rate_rps, ttft_s)}", rows, "energy")


def node_availability(
    *,
    needed: int = 24,
    failures_per_node_day: float = 0.0065,
    repairs_h: Sequence[float] = (4.0, 48.0),
    shares: Sequence[float] = (0.95,),
    confidence: float = 0.99,
) -> Answer:
    """How many nodes to buy so that enough work: on average, and with a confidence."""
    found = {f"repair {h:g} h": share_working(failures_per_node_day, h) for h in repairs_h}
    found |= {f"{100.0 * share:g} % work": share for share in shares}
    rows = alternatives.reserves(needed, found, confidence)
    return _answer(f"Nodes under repair: {needed} needed", rows, "reserves", confidence)


def _answer(title: str, rows: Sequence[Row], plot: str, *how: Any) -> Answer:
    """Return the answer whose picture is a function of `plots`, which needs matplotlib."""

    def draw() -> Any:
        from . import plots

        figure = getattr(plots, plot)(rows, *how)
        figure.axes[0].set_title(title, fontsize=9)
        return figure

    return Answer(title, rows, draw)
