"""Compute the cells of the page, each once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.hardware.configurations import templates
from fleetgym.hardware.performance.replica import ReplicaOptions

from . import helix
from .epochs import Templates
from .evaluation import CASES, load_templates, play
from .placement import place
from .plain import compare
from .setup import CORE, EXTENDED, NODE_SIZES, Setup, service

SETUPS = {setup.name: setup for setup in (CORE, EXTENDED)}
#: Section 6.7's (N_max, rho), and what it varies them on.
RULES = ((1, 2.0), (2, 4.0), (3, 6.0), (4, 8.0), (5, 10.0), (6, 12.0), (7, 14.0))
RULE_MODEL, RULE_PHASE = "GPT-OSS-120B", "prefill"
#: Node sets that the paper's ILP places too, and seconds that it gets for each number of stages.
PLACEMENT_SETS, PLACEMENT_LIMIT_S = 12, 5.0
#: Exponents a of the study of tensor parallelism: a node of n GPUs serves n^-a of what the model says.
SPREAD_LOSSES = (0.0, 0.2, 0.35, 0.5)
#: Figure 1: a model's prefill whose best pipeline is mixed, and one whose decoding plans fill gaps.
MIXED_MODEL, SPECTRUM_MODEL = "Qwen3-235B", "GPT-OSS-120B"
#: Draws of demand and availability.
SEEDS = 10
#: CPU seconds that plain HiGHS gets.
PLAIN_LIMIT_S = 60.0


def names(quick: bool) -> list[str]:
    """Return every cell to compute, the most telling first: seed by seed rather than case by case.

    A quick run has one seed instead of ten.
    """
    cells = [f"library {name}" for name in SETUPS]
    cells += [f"rule {most} {ratio:g}" for most, ratio in RULES]
    cells += [f"placement {number}" for number in range(PLACEMENT_SETS)]
    seeds = range(1 if quick else SEEDS)
    for seed in seeds:
        cells += [f"plain {seed}"]
        cells += [f"seed {name} {case} {seed}" for name in SETUPS for case in CASES]
    cells += [f"spread {name} {a:g} {seed}" for seed in seeds for name in SETUPS for a in SPREAD_LOSSES]
    return [*cells, "helix", "spectrum", *(f"mixing {a:g}" for a in SPREAD_LOSSES)]


def compute(name: str, quick: bool) -> Any:
    """Return a cell's numbers; libraries that are not timed are made once a process."""
    kind, *rest = name.split(" ")
    return _KINDS[kind](*rest)


def _library(setup: str) -> dict[str, float]:
    """Time a set-up's libraries, dominance included; the peak of memory is the whole process's."""
    import resource  # there is none on Windows

    compile_kernels()
    _, facts = load_templates(SETUPS[setup])
    return {**facts, "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


def _rule(max_nodes: str, memory_ratio: str) -> dict[str, float]:
    """Return how many templates a rule on size gives, how long that takes, and how good the best one is."""
    compile_kernels()
    start = time.process_time()
    found = templates.generate(
        service(RULE_MODEL),
        EXTENDED.nodes,
        RULE_PHASE,
        max_nodes=int(max_nodes),
        memory_ratio=float(memory_ratio),
    )
    cpu_s = time.process_time() - start
    ranks = found.templates()
    usd_per_h = found.counts(ranks) @ np.array(EXTENDED.usd_per_h[0])
    return {
        "templates": len(found),
        "undominated": int(found.undominated().size),
        "cpu_s": cpu_s,
        "best_requests_per_usd": float((found.throughput_rps[ranks] / usd_per_h * 3600.0).max(initial=0.0)),
    }


def _placement(number: str) -> dict[str, Any]:
    return place(int(number), PLACEMENT_LIMIT_S)


def _seed(setup: str, case: str, seed: str) -> list[dict[str, Any]]:
    return play(SETUPS[setup], case, int(seed), _kept(SETUPS[setup]))


def _spread(setup: str, loss: str, seed: str) -> list[dict[str, Any]]:
    """Play the default case where nodes of several GPUs serve less than the model says."""
    return play(SETUPS[setup], "default", int(seed), _kept(SETUPS[setup], float(loss)))


def _mixing(loss: str) -> dict[str, float]:
    """Return the most prompt tokens per second and dollar an hour, by what may be mixed: the twin of Figure 1(a)."""
    served = service(MIXED_MODEL)
    found = templates.generate(
        served, EXTENDED.nodes, "prefill", options=ReplicaOptions(spread_loss=float(loss))
    )
    ranks = found.templates()
    counts = found.counts(ranks)
    value = found.throughput_rps[ranks] * served.input_tokens / (counts @ np.array(EXTENDED.usd_per_h[0]))
    kinds = counts.reshape(len(ranks), len(EXTENDED.gpus), len(NODE_SIZES)).sum(axis=2)
    h100, l40s = (EXTENDED.gpus.index(name) for name in ("H100", "L40S"))
    only_h100 = kinds.sum(axis=1) == kinds[:, h100]
    pair = (
        (kinds[:, h100] > 0) & (kinds[:, l40s] > 0) & (kinds.sum(axis=1) == kinds[:, h100] + kinds[:, l40s])
    )
    single = (kinds > 0).sum(axis=1) == 1
    chosen = {
        "pure H100, one node": only_h100 & (kinds.sum(axis=1) == 1),
        "pure H100": only_h100,
        "L40S and H100": pair,
        "any one type": single,
        "any mixture": ~single,
    }
    return {name: float(value[mask].max(initial=0.0)) for name, mask in chosen.items()}


def _helix() -> dict[str, Any]:
    """Return the study of Helix's single cluster; the kernels are compiled outside its clock."""
    compile_kernels()
    return helix.study()


def _spectrum() -> dict[str, dict[str, float]]:
    """Return how many decoding plans there are and the largest gap between throughputs: the twin of Figure 1(b)."""
    found = templates.generate(service(SPECTRUM_MODEL), EXTENDED.nodes, "decode")
    ranks = found.templates()
    counts = found.counts(ranks)
    single = (counts.reshape(len(ranks), -1, len(NODE_SIZES)).sum(axis=2) > 0).sum(axis=1) == 1
    alone = counts.sum(axis=1) == 1
    rps = found.throughput_rps[ranks] / found.throughput_rps[ranks].max()
    facts = {}
    masks = {"one node": alone, "one type": single, "mixed": ~single, "all": np.ones(len(ranks), dtype=bool)}
    for name, mask in masks.items():
        levels = np.unique(np.round(rps[mask], 6))
        gaps = np.diff(np.concatenate([[0.0], levels]))
        facts[name] = {
            "plans": float(mask.sum()),
            "levels": float(levels.size),
            "largest_gap": float(gaps.max()),
        }
    return facts


def _plain(seed: str) -> dict[str, Any]:
    return compare(int(seed), _kept(CORE), PLAIN_LIMIT_S)


@functools.cache
def _kept(setup: Setup, spread_loss: float = 0.0) -> Templates:
    found, _ = load_templates(setup, options=ReplicaOptions(spread_loss=spread_loss))
    return found


@functools.cache
def compile_kernels() -> None:
    """Load or compile the kernels outside the clock."""
    templates.generate(service("Phi4-14B"), CORE.nodes[:2], "decode", max_nodes=2).undominated()


_KINDS: dict[str, Callable[..., Any]] = {
    "library": _library,
    "rule": _rule,
    "placement": _placement,
    "seed": _seed,
    "spread": _spread,
    "mixing": _mixing,
    "spectrum": _spectrum,
    "helix": _helix,
    "plain": _plain,
}
