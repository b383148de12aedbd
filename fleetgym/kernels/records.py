"""Declare the arrays that the kernels of a window read and write: instance, conditions, memory and answer.

Kernels get instance and workspace as packed pointers (see `lowlevel`). To pass a hundred arrays on at each level of
calls takes 0.7 us of a window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.lowlevel import PackedPointers, Packer
from fleetgym.kernels.routing_workload import Workspace, new_workspace


class Parameters(NamedTuple):
    """An instance's performance and prices; rows as in `economics`."""

    performance: np.ndarray  # (NUM_PLANES, I, C)
    workload: np.ndarray  # (NUM_WORKLOAD_ROWS, I)
    law: np.ndarray  # (I, 3, bins) of the prompts' lengths
    configuration: np.ndarray  # (NUM_CONFIGURATION_ROWS, C)
    segment_offset: np.ndarray  # (C,) int64: row offset[c] + replicas - 1 of the next array
    segment: np.ndarray  # (rows, 7) safe utilisation, three widths, three slopes
    clock: np.ndarray  # (2,) window_s, and 1.0 if penalties are per day


class Problem(NamedTuple):
    """An instance."""

    parameters: Parameters
    order: np.ndarray  # (C,) int64 configurations by rank
    slot_start: np.ndarray  # (S + 1,) int64 where each slot begins in `order`
    slot_exclusive: np.ndarray  # (S,) bool
    gpu_use: np.ndarray  # (G, C) int64
    rental_usd: np.ndarray  # (G, C) rent of one replica in a window at price factor 1
    model_storage_usd: np.ndarray  # (C,) per replica and window
    startup_usd: np.ndarray  # (C,)
    startup_windows: np.ndarray  # (C,) int64
    budget: np.ndarray  # (2,) kind and USD


class PackedConditions(NamedTuple):
    """What a window brings from outside; the first axis, where there is one, counts windows."""

    workload: np.ndarray  # (5, I) rates and factors, rows as in `economics`
    available: np.ndarray  # (G,) int64 GPUs
    price: np.ndarray  # (G,) factors on list prices


class Memory(NamedTuple):
    """Warm start of the routing: what it holds changes the speed, and the result by round-off only."""

    basis: np.ndarray  # from `new_basis`
    active: np.ndarray  # (C + 1,) int64: how many configurations the basis is for, and which


class Scratch(NamedTuple):
    """Space for tables whose widths change with the number of active configurations."""

    numbers: np.ndarray  # float64
    flags: np.ndarray  # uint8
    used: np.ndarray  # (2, I * C) int64 workload and column of the routes in use


class Played(NamedTuple):
    """Arrays that a window overwrites with what happened."""

    terms_usd: np.ndarray  # (8,) in the order of `economics.TERMS`
    share: np.ndarray  # (2, I) unserved; missed: unserved or late
    moves: np.ndarray  # (5, C) int64, rows as in `admission`
    serving: np.ndarray  # (C,) int64 replicas that served
    held: np.ndarray  # (C,) int64 replicas that were held and paid for
    routing: np.ndarray  # (I, C) share of each workload on each configuration; (I, 0) to leave it out
    usd: np.ndarray  # (2, C) rent of one replica, and what it pays in all, in this window
    numbers: np.ndarray  # (3, max(C, G)) int64 work space: target, active configurations, GPUs used
    scratch: Scratch  # work space


def _example() -> tuple[Problem, Workspace, Played]:
    """Return an instance and work space in their types, which do not depend on the size."""
    row, plane, cube = (np.zeros((1,) * axes) for axes in (1, 2, 3))
    whole, wholes = row.astype(np.int64), plane.astype(np.int64)
    parameters = Parameters(cube, plane, cube, plane, whole, plane, row)
    problem = Problem(
        *(parameters, whole, whole, row.astype(np.bool_), wholes, plane, row, row, whole, row),
    )
    scratch = Scratch(row, row.astype(np.uint8), wholes)
    return (
        problem,
        new_workspace(1, 1),
        Played(row, plane, wholes, whole, whole, plane, plane, wholes, scratch),
    )


_packer = Packer(*_example())
EXAMPLE_PARAMETERS = _example()[0].parameters
unpack: Any = _packer.unpack  # what kernels read problem, work space and answer with

#: Arguments of kernels in their types: words of packed pointers, conditions, a memory, a fleet.
EXAMPLE_PACKED = np.zeros(1, dtype=np.int64)
EXAMPLE_CONDITIONS = PackedConditions(np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.zeros(1))
EXAMPLE_MEMORY = Memory(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
EXAMPLE_FLEET = np.zeros((1, 1), dtype=np.int64)


def pack_problem(problem: Problem, work: Workspace, played: Played) -> PackedPointers:
    """Return what kernels take for an instance, their workspace and their answer.

    Returns
    -------
    PackedPointers
        Equally long for all instances of one batch.
    """
    return _packer.pack(problem, work, played)
