"""Place a model's layers on given nodes at the highest throughput."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.configurations.templates import enumeration

#: Most steps of a search, see `search_size`. The largest searches below it took 6 s on one core, the hardest 14 s.
MOST_STEPS = 2_000_000_000


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a pipeline: its nodes hold the same layers and share the load."""

    nodes: tuple[int, ...]  # indices of node types, sorted
    layers: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """The throughput-optimal placement of a model on some nodes."""

    throughput_rps: float
    stages: tuple[Stage, ...]


@dataclasses.dataclass(frozen=True)
class SearchSize:
    """What `best_plan` would have to look at."""

    states: int
    steps: int


def search_size(nodes: Sequence[int] | np.ndarray, num_layers: int) -> SearchSize:
    """Return how large the search of `best_plan` is, without searching.

    Nodes of one type are interchangeable. A state is therefore a number of nodes of each type: with c nodes of a
    type there are c + 1 choices, and the states are the product of these over the types. A step takes one
    stage out of a state. There are at most the product of (c + 1) (c + 2) / 2 of these pairs. The search looks at
    them up to S times for every number of stages S, and S is at most the number of nodes and of layers.

    Parameters
    ----------
    nodes : sequence of int
        Indices of node types.
    num_layers : int
        Layers of the model.

    Returns
    -------
    SearchSize
        The number of states, and the most steps of one pass over all numbers of stages.

    Examples
    --------
    Of 24 nodes of three types there are 5 x 9 x 13 states, not 2^24.

    >>> search_size([0] * 4 + [1] * 8 + [2] * 12, 80)
    SearchSize(states=585, steps=18427500)
    """
    counts = np.unique(np.asarray(nodes), return_counts=True)[1].tolist()
    stages = min(sum(counts), num_layers)
    pairs = math.prod((c + 1) * (c + 2) // 2 for c in counts)
    return SearchSize(math.prod(c + 1 for c in counts), pairs * (stages * (stages + 1) // 2))


def best_plan(table: np.ndarray, nodes: Sequence[int] | np.ndarray) -> Plan:
    """Return the throughput-optimal placement of some nodes.

    A placement divides the nodes into the stages of a pipeline, and the layers among the stages. The nodes of a stage
    hold the same layers, and serve together the sum of what each serves. The pipeline serves what its
    slowest stage does. The search tries every number of stages and is exact up to round-off.

    Parameters
    ----------
    table : (S, K, L) array
        T_j(g) by stages, node type and layers: what a node of type g serves if it holds j layers, see
        `fleetgym.hardware.performance.replica.throughput_table`. S is at least the number of nodes.
    nodes : sequence of int
        Indices of node types, in any order.

    Returns
    -------
    Plan
        0 requests per second and no stages where the nodes cannot serve.

    Raises
    ------
    FleetgymError
        For a table that is not three-dimensional, or has an entry that is negative or not finite. For a table that
        rises from one layer to the next. For no node, more nodes than the table has stages, or an index that is no
        node type. For a search of more than `MOST_STEPS` steps.

    Notes
    -----
    The search needs a table that falls along its last axis. A node can serve no less with fewer layers, so a rise is
    an error of the table, such as noise of measurements. `best_plan` does not guess which of the two entries is wrong.
    If the larger one is right, take the envelope
    ``np.maximum.accumulate(table[..., ::-1], axis=-1)[..., ::-1]``: what a node serves with j or more layers.
    If the smaller one is right, take ``np.minimum.accumulate(table, axis=-1)``.

    Time and memory follow from the number of nodes of each type, see `search_size`. `MOST_STEPS` admits 15 nodes
    of different types, 24 nodes of three types (0.02 s), and hundreds of nodes of one type. The
    hardest search that we found below it took 14 s. Memory stays below 20 MB. A larger search is refused before it
    begins.

    Examples
    --------
    >>> table = np.array([[[4.0, 2.0, 1.0], [8.0, 4.0, 2.0]], [[4.0, 2.0, 1.0], [8.0, 4.0, 2.0]]])
    >>> best_plan(table, [0, 1])
    Plan(throughput_rps=4.0, stages=(Stage(nodes=(0,), layers=1), Stage(nodes=(1,), layers=2)))
    """
    table = _checked_table(table)
    kinds = _checked_nodes(nodes, table)
    size = search_size(kinds, table.shape[2])
    if size.steps > MOST_STEPS:
        raise FleetgymError(
            f"{kinds.size} nodes of {np.unique(kinds).size} types make {size.states:,} states and up to "
            f"{size.steps:,} steps; expected at most {MOST_STEPS:,} steps: give fewer nodes, or fewer types of them"
        )
    if not np.isfinite(float(table.max()) * table.shape[2] * kinds.size):
        raise FleetgymError(
            f"table has the entry {table.max():g}; expected entries that can be summed over nodes and layers"
        )
    return unchecked_plan(table, kinds)


def unchecked_plan(table: np.ndarray, nodes: np.ndarray) -> Plan:
    """Return what `best_plan` does for arguments that are known to be valid.

    Parameters
    ----------
    table : (S, K, L) float array
        Falls along the last axis.
    nodes : (N,) int array
        Indices of node types.

    Returns
    -------
    Plan
        As of `best_plan`.
    """
    types = np.sort(nodes) + 1
    count, num_layers = types.size, table.shape[2]
    stage_of, layers = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    states = search_size(types, num_layers).states
    work = np.zeros((2 * min(count, num_layers) + 1, states), dtype=np.int64)
    served, stages = enumeration.improve(table, reach_of(table), types, count, 0.0, stage_of, layers, work)
    return Plan(
        throughput_rps=served,
        stages=tuple(
            Stage(nodes=tuple((types[stage_of == s] - 1).tolist()), layers=int(layers[s]))
            for s in range(stages)
        ),
    )


def reach_of(table: np.ndarray) -> np.ndarray:
    """Return the largest j T_j(g) over j, (S, K): what bounds a plan's throughput times layers."""
    return (table * np.arange(1, table.shape[2] + 1)).max(axis=2)


def _checked_table(table: np.ndarray) -> np.ndarray:
    """Return a table as floats; refuse one that is no T_j(g), or rises."""
    try:
        out = np.ascontiguousarray(table, dtype=float)
    except (TypeError, ValueError) as error:
        raise FleetgymError(f"table is no array of numbers ({error})") from None
    if out.ndim != 3 or 0 in out.shape:
        raise FleetgymError(
            f"table has the shape {out.shape}; expected (stages, node types, layers), each at least 1"
        )
    wrong = ~(np.isfinite(out) & (out >= 0.0))
    if wrong.any():
        s, g, j = np.argwhere(wrong)[0]
        raise FleetgymError(
            f"table has {out[s, g, j]} for {_place(s, g, j)}; expected a finite number of at least 0"
        )
    rises = out[:, :, 1:] > out[:, :, :-1]
    if rises.any():
        s, g, j = np.argwhere(rises)[0]
        raise FleetgymError(
            f"table rises from {float(out[s, g, j])!r} to {float(out[s, g, j + 1])!r} for {_place(s, g, j + 1)}; "
            "expected no more than with one layer less: a node that holds fewer layers serves no less. If the larger "
            "one is right, pass np.maximum.accumulate(table[..., ::-1], axis=-1)[..., ::-1]"
        )
    return out


def _place(s: int, g: int, j: int) -> str:
    """Name an entry of a table as its user counts: stages and layers from 1, node types from 0."""
    return f"{s + 1} stages, node type {g}, {j + 1} layers"


def _checked_nodes(nodes: Sequence[int] | np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the nodes as integers; refuse what is no list of node types of the table."""
    try:
        given = np.asarray(nodes)
    except ValueError as error:
        raise FleetgymError(f"nodes is no list of node types ({error})") from None
    if given.ndim != 1:
        raise FleetgymError(f"nodes has the shape {given.shape}; expected a list of node types")
    if not 0 < given.size <= table.shape[0]:
        raise FleetgymError(f"{given.size} nodes; expected 1 to {table.shape[0]}, the stages of the table")
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given) & (given == np.floor(given))):
        raise FleetgymError(f"nodes is {given.tolist()}; expected whole numbers, the indices of node types")
    wrong = given[(given < 0) | (given >= table.shape[1])]
    if wrong.size:
        raise FleetgymError(
            f"nodes has {wrong[0]}; expected 0 to {table.shape[1] - 1}, the table's node types"
        )
    return given.astype(np.int64)
