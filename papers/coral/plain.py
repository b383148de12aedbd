"""Solve Coral's whole online program by HiGHS, and compare cost, gap and CPU seconds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fleetgym.baselines.coral import CoveringProblem, allocate
from fleetgym.baselines.coral.program import Restricted

from .epochs import Templates, draw, problem
from .evaluation import CORAL, availability_scale
from .setup import CORE

GAP = 1e-4


def every_column(here: CoveringProblem) -> tuple[np.ndarray, np.ndarray]:
    """Return template and region of every replica that could be rented: both (P,)."""
    fits = np.stack([(here.use <= row).all(axis=1) for row in here.available])
    region, template = np.nonzero(fits)
    return template, region


def solve(here: CoveringProblem, limit_s: float) -> dict[str, Any]:
    """Solve the whole program with HiGHS, at its default settings but one thread, up to a time limit.

    Returns
    -------
    dict
        ``cpu_s``, ``status``, ``usd_per_h`` and ``gap`` (None where no allocation was found).
    """
    program = Restricted(here, *every_column(here))
    start = time.process_time()
    allocation, bound, answer = program.solve({"mip_rel_gap": GAP, "time_limit": limit_s})
    cpu_s = time.process_time() - start
    if allocation is None:
        return {"cpu_s": cpu_s, "status": answer.status, "usd_per_h": None, "gap": None}
    cost = allocation.objective_usd_per_h(here)
    return {"cpu_s": cpu_s, "status": answer.status, "usd_per_h": cost, "gap": max(0.0, 1.0 - bound / cost)}


def compare(seed: int, found: Templates, limit_s: float) -> dict[str, Any]:
    """Return what Coral's allocator and HiGHS do with the first epoch of a seed: core set-up, default availability."""
    drawn = draw(CORE, "default", seed)
    scale, _ = availability_scale(CORE, "default", found, drawn)
    here = problem(CORE, found, drawn.demand_rps[0], drawn.nodes[0] * scale)
    start = time.process_time()
    allocation = allocate(here, CORAL)
    own_s = time.process_time() - start
    return {
        "columns": int(every_column(here)[0].size),
        "ours": {
            "cpu_s": own_s,
            "status": allocation.status,
            "usd_per_h": allocation.objective_usd_per_h(here),
            "gap": allocation.gap(here),
        },
        "highs": solve(here, limit_s),
    }
