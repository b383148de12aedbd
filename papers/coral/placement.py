"""Place node sets by the paper's ILP and by enumeration, timed in the same run."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from fleetgym.hardware.configurations import templates
from fleetgym.hardware.configurations.templates import Library, enumeration
from fleetgym.hardware.configurations.templates.plans import reach_of

from .placement_ilp import solve_placement
from .setup import CORE, service

MODEL, PHASE, MOST_NODES = "Phi4-14B", "prefill", 3
#: Times that the enumeration is repeated: it takes microseconds.
REPEATS = 2000


@functools.cache
def _library() -> tuple[Library, np.ndarray]:
    """Return the library, and how many nodes of each type its sets of two and more nodes have, shuffled: (n, K)."""
    found = templates.generate(service(MODEL), CORE.nodes, PHASE, max_nodes=MOST_NODES)
    counts = found.counts(found.templates())
    able = counts[counts.sum(axis=1) >= 2]
    return found, able[np.random.default_rng(0).permutation(len(able))]


def place(number: int, ilp_limit_s: float) -> dict[str, Any]:
    """Place one set both ways.

    Parameters
    ----------
    number : int
        Which set, in an order drawn once.
    ilp_limit_s : float
        Limit of HiGHS for each number of stages.

    Returns
    -------
    dict
        ``nodes``; ``ilp_rps``, ``ilp_cpu_s`` and whether it is ``proven``; ``own_rps``, ``own_cpu_s``.
    """
    found, sets = _library()
    nodes = np.repeat(np.arange(sets.shape[1]), sets[number])
    start = time.process_time()
    ilp_rps, proven = solve_placement(found.table, nodes, ilp_limit_s)
    ilp_s = time.process_time() - start
    types, reach = nodes + 1, reach_of(found.table)
    stage_of, layers = np.zeros(nodes.size, dtype=np.int64), np.zeros(nodes.size, dtype=np.int64)
    work = np.zeros((2 * nodes.size + 1, 1 << nodes.size), dtype=np.int64)
    arguments = (found.table, reach, types, nodes.size, 0.0, stage_of, layers, work)
    own_rps, _ = enumeration.improve(*arguments)  # loads or compiles
    start = time.process_time()
    for _ in range(REPEATS):
        enumeration.improve(*arguments)
    return {
        "nodes": int(nodes.size),
        "ilp_rps": float(ilp_rps),
        "ilp_cpu_s": ilp_s,
        "proven": bool(proven),
        "own_rps": float(own_rps),
        "own_cpu_s": (time.process_time() - start) / REPEATS,
    }
