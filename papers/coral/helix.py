"""Place models on Helix's single cluster of 24 nodes, and compare with its published placement.

Source: Mei et al., "Helix: Serving Large Language Models over Heterogeneous GPUs and Network via Max-Flow", ASPLOS
2025, and its artifact Thesys-lab/Helix-ASPLOS25 (Apache-2.0). The objective is the max flow in tokens per second,
prompts included. A node's capacity is what it serves at a batch that is typical of its memory and of its share of a
request's round trip. The network is no limit here: 10 Gbit/s carry 76,000 tokens per second.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog

from fleetgym.hardware.configurations.templates import Plan, best_plan
from fleetgym.hardware.configurations.templates.plans import search_size

#: A node that holds layers of the model: its type, its first layer, and how many layers it holds.
Held = tuple[str, int, int]

NUM_LAYERS = 80  # of Llama-2-70B


@dataclasses.dataclass(frozen=True)
class Machine:
    """A node type of the cluster, as Helix describes it."""

    name: str
    nodes: int
    typical_layers: int
    first_rate: float  # tokens per second and layer that the iteration starts from
    blocks: tuple[int, ...]  # of the cache, beside 1, 2, ... layers; no more layers fit


MACHINES = (
    Machine(
        "a100",
        4,
        8,
        80.0,
        (498326, 236107, 148700, 104997, 78775, 61294, 48807, 39442, 32158, 26331, 21564, 17591),
    ),
    Machine("l4", 8, 4, 20.0, (266146, 121017, 71296, 46944, 32333, 22592, 15634)),
    Machine("t4", 12, 3, 12.5, (155320, 63484, 32872, 17566)),
)
#: The published placement, by node: type, first layer, layers. Its objective is `PUBLISHED`.
PLACEMENT: tuple[Held, ...] = (
    ("l4", 7, 4),
    ("t4", 34, 4),
    ("t4", 23, 2),
    ("l4", 53, 7),
    ("t4", 77, 3),
    ("l4", 53, 7),
    ("a100", 68, 9),
    ("t4", 26, 4),
    ("t4", 30, 4),
    ("a100", 37, 12),
    ("a100", 60, 8),
    ("l4", 42, 7),
    ("t4", 33, 4),
    ("t4", 38, 4),
    ("l4", 3, 4),
    ("t4", 0, 3),
    ("t4", 11, 3),
    ("a100", 14, 9),
    ("l4", 46, 7),
    ("t4", 42, 4),
    ("t4", 25, 1),
    ("l4", 53, 7),
    ("t4", 49, 4),
    ("l4", 26, 7),
)
#: Tokens per second of a node that holds 1, 2, ... layers; no more fit. A test makes them of layer times.
CAPACITY = {
    "a100": (
        23833.869866324374,
        11384.25466586348,
        7201.412420877685,
        5264.623373853506,
        4096.654503856875,
        3124.1430780258565,
        2595.6792854008463,
        2045.6410473362616,
        1754.3818895649893,
        1392.6348207247768,
        1212.1768454598214,
        952.1073984850639,
    ),
    "l4": (
        7557.863040102793,
        3625.714747409145,
        2171.878169270482,
        1476.084625195014,
        1017.5727965236067,
        747.7853772615942,
        531.7025845523623,
    ),
    "t4": (5709.207939642649, 2434.367182876655, 1347.8665242379518, 757.8531857227841),
}
#: Tokens per second: artifact_evaluation/single_cluster/layout_llama70b/ilp/ilp_solution.sol.
PUBLISHED = 1289.5557702751735


def nodes() -> np.ndarray:
    """Return the node types of the cluster, as indices of `MACHINES`: (24,)."""
    return np.repeat(np.arange(len(MACHINES)), [m.nodes for m in MACHINES])


def capacity_table() -> np.ndarray:
    """Return T_j(g) of the cluster in tokens per second, (24, 3, 80), from `CAPACITY`."""
    row = np.zeros((len(MACHINES), NUM_LAYERS))
    for g, machine in enumerate(MACHINES):
        known = CAPACITY[machine.name]
        row[g, : len(known)] = known
    return np.tile(row, (nodes().size, 1, 1))


def study() -> dict[str, Any]:
    """Return the published placement and that of `best_plan`, in tokens per second.

    The cluster holds fewer layers than two models have, so it cannot serve as two pipelines.
    """
    table, everything = capacity_table(), nodes()
    start = time.process_time()
    plan = best_plan(table, everything)
    cpu_s = time.process_time() - start
    return {
        "published": max_flow(table, PLACEMENT),
        "tokens_per_s": plan.throughput_rps,
        "max_flow": max_flow(table, placement_of(plan)),
        "stages": [
            [stage.layers, *(sum(MACHINES[n].name == m.name for n in stage.nodes) for m in MACHINES)]
            for stage in plan.stages
        ],
        "cpu_s": cpu_s,
        "states": search_size(everything, NUM_LAYERS).states,
        "most_layers": sum(m.nodes * len(m.blocks) for m in MACHINES),
    }


def placement_of(plan: Plan) -> tuple[Held, ...]:
    """Return where the nodes of a plan hold layers, its stages one after the other."""
    held: list[Held] = []
    first = 0
    for stage in plan.stages:
        held += [(MACHINES[n].name, first, stage.layers) for n in stage.nodes]
        first += stage.layers
    return tuple(held)


def max_flow(table: np.ndarray, placement: Sequence[Held]) -> float:
    """Return Helix's objective: the most tokens per second that pass all layers.

    A node takes over at any of its layers ("partial inference"), whatever node comes before it. All tokens that it
    takes count against its capacity in full.

    Parameters
    ----------
    table : (S, 3, 80) array
        From `capacity_table`.
    placement : sequence of (type, first layer, layers)
        One entry per node.

    Returns
    -------
    float
        By linear programming.
    """
    names = [m.name for m in MACHINES]
    capacity = [float(table[0, names.index(name), layers - 1]) for name, _, layers in placement]
    first = [start for _, start, _ in placement]
    end = [start + layers for _, start, layers in placement]
    count = len(placement)
    source, sink = count, count + 1
    arcs = [(source, n) for n in range(count) if first[n] == 0]
    arcs += [(n, sink) for n in range(count) if end[n] == NUM_LAYERS]
    arcs += [(a, b) for a in range(count) for b in range(count) if first[b] <= end[a] < end[b]]
    leaves, enters = np.zeros((count, len(arcs))), np.zeros((count, len(arcs)))
    for k, (a, b) in enumerate(arcs):
        if a < count:
            leaves[a, k] = 1.0
        if b < count:
            enters[b, k] = 1.0
    reward = [-1.0 if b == sink else 0.0 for _, b in arcs]
    found = linprog(reward, enters, capacity, enters - leaves, np.zeros(count), method="highs")
    return float(-found.fun)
