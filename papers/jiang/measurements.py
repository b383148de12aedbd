"""Compute the cells of the page, each once."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.problem import MakespanPlan, MakespanProblem, plan_of
from fleetgym.baselines.jiang.program import Limits
from fleetgym.baselines.jiang.search import minimal_makespan_by_search
from fleetgym.hardware import catalog

from . import paper, policies
from .completion import completion
from .pipelines import Pipeline, Stage, pipeline_rates, pipelines, split_layers

#: When a plan is good enough; HiGHS's heuristics, which take most of the time, come in where a gap is left without.
LIMITS = Limits(gap=5e-3, nodes=100)
#: Where exact program and search are compared; a hundredth of what the search is asked for.
EXACT_GAP = 1e-5
#: Where a figure of the page follows from the solver: to proof, far below what is printed.
PROOF = Limits(gap=1e-6, nodes=20_000)
HARDER = dataclasses.replace(LIMITS, heuristics=True)
MODELS: dict[str, str | dict[str, float]] = {
    "70B": paper.LLAMA_70B,
    "8B": paper.LLAMA_8B,
    "8B+70B": {paper.LLAMA_8B: 0.8, paper.LLAMA_70B: 0.2},
}
#: Where the binary search stops, relative to the makespan: about the paper's one second.
SEARCH_TOLERANCE = 1e-3
#: Figure 9: availability and budget times these.
SCALES = (1, 2, 4)
HOMOGENEOUS = ("H100", "A6000", "4090")
UNLIMITED = 10_000
#: What a fleet of one type is called, as many GPUs as money pays for, and no more than there are.
UNLIMITED_TYPE, LIMITED_TYPE = "{}", "{} as available"
#: Configurations of the paper's table 6: stages, whether each is in a machine of its own, real and estimated figure.
TABLE_6 = {
    "H100 (2,4)": ((("H100", 2),) * 4, False, 0.56, 0.60),
    "H100 (4,2)": ((("H100", 4),) * 2, False, 0.44, 0.47),
    "H100 (4,2) (cross machine)": ((("H100", 4),) * 2, True, 0.42, 0.44),
    "L40 (2,4)": ((("L40", 2),) * 4, False, 0.42, 0.46),
    "L40 (4,2)": ((("L40", 4),) * 2, False, 0.21, 0.22),
    "L40 (4,2) (cross machine)": ((("L40", 4),) * 2, True, 0.18, 0.19),
    "H100+A100 (4,2) (cross machine)": ((("H100", 4), ("A100", 4)), True, 0.48, 0.52),
}


def names(quick: bool) -> list[str]:
    """Return every cell to compute, the quickest first; `quick` leaves out all availabilities but the first."""
    availabilities = [1] if quick else list(paper.AVAILABLE)
    grid = [(t, b) for t in paper.TRACES for b in paper.BUDGETS_USD_PER_H]
    cells = ["table6", "table7", "observations"]
    cells += [f"percentiles {t}" for t in paper.TRACES]
    cells += [f"scale {times}" for times in SCALES]
    cells += [f"speed {t} {b:g}" for t, b in grid]
    cells += [f"homogeneous {m} {t} {b:g}" for m in MODELS for t, b in grid]
    for a in availabilities:
        cells += [f"ours {m} {a} {t} {b:g}" for m in MODELS for t, b in grid]
        cells += [f"ablation {a} {t} {b:g}" for t, b in grid if t != 3]
        cells += [f"single {m} {a} {t} {b:g}" for m in MODELS for t, b in grid]
        if a == 1:
            cells += [f"budget {b:g}" for b in (5.0, 10.0, 20.0, 40.0)]
    return cells


def compute(name: str, quick: bool) -> dict[str, Any]:
    """Return a cell's numbers, which are the same in a quick run."""
    kind, *rest = name.split(" ")
    return _KINDS[kind](*rest)


# -- rates


def _table6() -> dict[str, Any]:
    gpus, model = paper.gpu_types(), catalog.model(paper.LLAMA_70B)
    rows = {}
    for name, (parts, cross, real, estimated) in TABLE_6.items():
        stages = tuple(Stage(gpu, degree) for gpu, degree in parts)
        memory = [s.tensor_parallel * gpus[s.gpu].memory_gb for s in stages]
        pipeline = Pipeline(model, stages, split_layers(model.layers, memory))
        rate = pipeline_rates(pipeline, gpus, paper.LENGTHS[:1], cross_machine=cross)[0]
        price = sum(paper.PRICES[s.gpu] * s.tensor_parallel for s in stages)
        rows[name] = [real, estimated, rate / price]
    return rows


# -- plans


def fastest(problem: MakespanProblem) -> MakespanPlan:
    """Return the fastest fleet within `LIMITS`, by a second, harder search where the first leaves a gap."""
    plan = minimal_makespan(problem, LIMITS)
    if plan.makespan_s <= plan.bound_s * (1 + LIMITS.gap) or not np.isfinite(plan.makespan_s):
        return plan
    other = minimal_makespan(problem, HARDER)
    best = min(plan, other, key=lambda plan: plan.makespan_s)
    return dataclasses.replace(best, bound_s=max(plan.bound_s, other.bound_s), nodes=plan.nodes + other.nodes)


def proven(problem: MakespanProblem) -> MakespanPlan:
    """Return the fastest fleet, solved to proof."""
    return minimal_makespan(problem, PROOF)


def _ours(model: str, availability: str, trace: str, budget: str) -> dict[str, Any]:
    problem, found = paper.problem(int(trace), int(availability), float(budget), models=MODELS[model])
    plan, cpu_s = _timed(fastest, problem)
    return {**_facts(problem, found, plan), "cpu_s": cpu_s}


def _homogeneous(model: str, trace: str, budget: str) -> dict[str, Any]:
    """Each GPU type alone, as many as money pays for, as the paper assumes."""
    rates = {}
    for gpu in HOMOGENEOUS:
        counts = {name: UNLIMITED * (name == gpu) for name in paper.PRICES}
        problem, _ = paper.problem(
            int(trace), counts, float(budget), models=MODELS[model], kind="single-type"
        )
        rates[gpu] = fastest(problem).throughput_rps(problem)
    return rates


def _single(model: str, availability: str, trace: str, budget: str) -> dict[str, Any]:
    """Each GPU type alone, no more than there are: the comparison at equal availability."""
    available, rates = paper.AVAILABLE[int(availability)], {}
    for gpu in paper.PRICES:
        counts = {name: count * (name == gpu) for name, count in available.items()}
        problem, _ = paper.problem(
            int(trace), counts, float(budget), models=MODELS[model], kind="single-type"
        )
        rates[gpu] = fastest(problem).throughput_rps(problem)
    return rates


def _budget(budget: str) -> dict[str, Any]:
    """Trace 1, availability 1, Llama-70B at other budgets: figure 16."""
    return {**_ours("70B", "1", "1", budget), "homogeneous": _homogeneous("70B", "1", budget)}


def _ablation(availability: str, trace: str, budget: str) -> dict[str, Any]:
    """What each of the three factors, and telling workloads apart, is worth; Llama-70B."""
    t, a, b = int(trace), int(availability), float(budget)
    problem, _ = paper.problem(t, a, b)
    ours = fastest(problem)
    even = policies.uniform_composition(paper.PRICES, paper.AVAILABLE[a], b)
    uniform, _ = paper.problem(t, even, b)
    tensor, found = paper.problem(t, a, b, kind="tensor-only")
    same_gpus = problem.replace(available_gpus=problem.gpu_use @ ours.replicas)
    plans = {
        "ours": ours,
        "uniform composition": fastest(uniform),
        "uniform deployment": policies.uniform_deployment(tensor, found, limits=LIMITS),
        "round-robin assignment": policies.round_robin(problem, ours.replicas),
        "HexGen-like, uniform composition": policies.workload_unaware(uniform, LIMITS),
        "HexGen-like, our composition": policies.workload_unaware(same_gpus, LIMITS),
    }
    return {name: float(problem.requests.sum() / plan.makespan_s) for name, plan in plans.items()}


def _table7() -> dict[str, Any]:
    """Trace 2 at 30 USD/h: twice as many requests with short outputs; and four H100 lost."""
    availability, budget = 1, 30.0
    problem, found = paper.problem(2, availability, budget)
    before = proven(problem)
    surge = np.array(paper.TRACES[2], dtype=float) * np.where(paper.LENGTHS[:, 1] == 18, 2.0, 1.0)
    changed, _ = paper.problem(surge, availability, budget)
    stale = policies.assigned(changed, before.replicas, before.assignment)
    replanned = proven(changed)
    fewer = {**paper.AVAILABLE[availability], "H100": paper.AVAILABLE[availability]["H100"] - 4}
    dropped, _ = paper.problem(2, fewer, budget)
    h100s = np.array([name == "H100" for name in paper.PRICES])
    held = problem.gpu_use @ before.replicas
    left = policies.without_gpus(problem, before.replicas, np.maximum(0, held - 4 * h100s))
    return {
        "before": before.throughput_rps(problem),
        "before kinds": _kinds(found, before),
        "H100 before": int(held[h100s][0]),
        "surge, plan kept": stale.throughput_rps(changed),
        "surge, reassigned": plan_of(changed, before.replicas).throughput_rps(changed),
        "surge, replanned": replanned.throughput_rps(changed),
        "surge kinds": _kinds(found, replanned),
        "drop, reassigned": plan_of(dropped, left).throughput_rps(dropped),
        "drop, replanned": proven(dropped).throughput_rps(dropped),
    }


def _observations() -> dict[str, Any]:
    """What choosing the GPU type, and what choosing the deployment, is worth on each workload: rates over rates."""
    prices = np.array(list(paper.PRICES.values()))
    types, deployments = {}, {}
    for model in (paper.LLAMA_70B, paper.LLAMA_8B):
        found, rates = single_type(model)
        kind = np.array([next(k for k, name in enumerate(paper.PRICES) if p.gpus(name)) for p in found])
        gpus = np.array([sum(s.tensor_parallel for s in p.stages) for p in found])
        for w, lengths in enumerate(paper.LENGTHS):
            name = f"{model} {lengths[0]:.0f}/{lengths[1]:.0f}"
            each = rates[w] / gpus  # of a GPU
            best = {
                k: each[kind == k].max() / prices[k] for k in np.unique(kind) if each[kind == k].max() > 0
            }
            top = max(best, key=best.get)
            types[name] = [best[top] / min(best.values()), list(paper.PRICES)[top]]
            within = [each[(kind == k) & (each > 0)] for k in np.unique(kind)]
            deployments[name] = [float(e.max() / e.min()) for e in within if e.size > 1]
    return {"types": types, "deployments": deployments}


def single_type(model: str) -> tuple[list[Pipeline], np.ndarray]:
    """Return every pipeline of one GPU type with at most eight GPUs, and its rates; none is left out."""
    gpus = paper.gpu_types()
    every = pipelines(catalog.model(model), gpus, dict.fromkeys(gpus, 8), max_stages=8, max_types=1)
    found = [p for p in every if sum(s.tensor_parallel for s in p.stages) <= 8]
    return found, np.array([pipeline_rates(p, gpus, paper.LENGTHS) for p in found]).T


def _percentiles(trace: str) -> dict[str, Any]:
    """When the requests of a makespan are done: the plan and each type alone, 30 USD/h, availability 1.

    Types are without limits, as in the paper, and once more with no more GPUs than there are.
    """
    problem, _ = paper.problem(int(trace), 1, 30.0)
    fleets = {"plan": (problem, proven(problem))}
    unlimited = dict.fromkeys(HOMOGENEOUS, UNLIMITED)
    for limit, available in ((UNLIMITED_TYPE, unlimited), (LIMITED_TYPE, paper.AVAILABLE[1])):
        for gpu, most in available.items():
            counts = {name: most * (name == gpu) for name in paper.PRICES}
            alone, _ = paper.problem(int(trace), counts, 30.0, kind="single-type")
            plan = proven(alone)
            if np.isfinite(plan.makespan_s):  # some types have too little memory between them
                fleets[limit.format(gpu)] = (alone, plan)
    return {name: completion(*fleet) for name, fleet in fleets.items()}


def _scale(times: str) -> dict[str, Any]:
    """CPU seconds of the exact program and of the search on trace 1, with more of everything: figure 9."""
    k = int(times)
    counts = {name: k * count for name, count in paper.AVAILABLE[1].items()}
    problem, _ = paper.problem(1, counts, 30.0 * k, kind="single-type")
    _warm_up()
    exact, exact_s = _timed(minimal_makespan, problem, LIMITS)
    how: dict[str, Any] = {"tolerance_s": SEARCH_TOLERANCE * exact.makespan_s, "limits": LIMITS}
    search, search_s = _timed(minimal_makespan_by_search, problem, **how)
    packed, packed_s = _timed(minimal_makespan_by_search, problem, check="knapsack", **how)
    return {
        "gpus": sum(counts.values()),
        "exact": [exact.makespan_s, exact_s],
        "search": [search.makespan_s, search_s],
        "knapsack": [packed.makespan_s, packed_s],
    }


def _speed(trace: str, budget: str) -> dict[str, Any]:
    """The exact program against the published search, CPU seconds, availability 1, pipelines of one GPU type."""
    problem, _ = paper.problem(int(trace), 1, float(budget), kind="single-type")
    limits = Limits(gap=EXACT_GAP, nodes=20_000)
    _warm_up()
    exact, exact_s = _timed(minimal_makespan, problem, limits)
    precision: dict[str, Any] = {"tolerance_s": SEARCH_TOLERANCE * exact.makespan_s, "limits": limits}
    search, search_s = _timed(minimal_makespan_by_search, problem, **precision)
    packed, packed_s = _timed(minimal_makespan_by_search, problem, check="knapsack", **precision)
    return {
        "exact": [exact.makespan_s, exact_s],
        "search": [search.makespan_s, search_s],
        "knapsack": [packed.makespan_s, packed_s],
    }


@functools.cache
def _warm_up() -> None:
    """Import HiGHS outside the clock."""
    minimal_makespan(paper.problem(1, 1, 15.0, kind="single-type")[0], LIMITS)


# -- small helpers


def _timed(solve: Callable[..., MakespanPlan], *args: Any, **options: Any) -> tuple[MakespanPlan, float]:
    start = time.process_time()
    plan = solve(*args, **options)
    return plan, time.process_time() - start


def _facts(problem: MakespanProblem, found: tuple[Pipeline, ...], plan: MakespanPlan) -> dict[str, Any]:
    return {
        "throughput": plan.throughput_rps(problem),
        "bound": float(problem.requests.sum() / plan.bound_s),
        "spent": float(problem.price_usd_per_h @ plan.replicas),
        "kinds": _kinds(found, plan),
        "models": _spent_by_model(problem, found, plan),
        "fleet": {found[c].name: int(plan.replicas[c]) for c in np.flatnonzero(plan.replicas)},
    }


def _kinds(found: tuple[Pipeline, ...], plan: MakespanPlan) -> dict[str, float]:
    """Return the share of each kind of GPU in the rent."""
    usd = dict.fromkeys(paper.KINDS, 0.0)
    for c in np.flatnonzero(plan.replicas):
        for kind, types in paper.KINDS.items():
            usd[kind] += plan.replicas[c] * sum(paper.PRICES[t] * found[c].gpus(t) for t in types)
    return {kind: value / max(1e-12, sum(usd.values())) for kind, value in usd.items()}


def _spent_by_model(
    problem: MakespanProblem, found: tuple[Pipeline, ...], plan: MakespanPlan
) -> dict[str, float]:
    usd: dict[str, float] = {}
    for c in np.flatnonzero(plan.replicas):
        name = found[c].model.name
        usd[name] = usd.get(name, 0.0) + float(plan.replicas[c] * problem.price_usd_per_h[c])
    return {name: value / sum(usd.values()) for name, value in usd.items()}


_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "table6": _table6,
    "table7": _table7,
    "observations": _observations,
    "percentiles": _percentiles,
    "scale": _scale,
    "speed": _speed,
    "homogeneous": _homogeneous,
    "ours": _ours,
    "single": _single,
    "ablation": _ablation,
    "budget": _budget,
}
