"""Play the methods through a set-up's epochs: set-up, case and seeds in, one record per epoch and method out."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.baselines.coral import Allocation, CoveringProblem, Options, allocate
from fleetgym.baselines.coral.cauchy import cauchy
from fleetgym.baselines.coral.homo import homo
from fleetgym.baselines.coral.problem import evaluate
from fleetgym.hardware.configurations import templates

from .epochs import (
    EPOCHS,
    Draw,
    Templates,
    draw,
    estimated_need,
    problem,
    row_names,
)
from .setup import NODE_SIZES, PHASES, Setup, service

CASES = ("default", "scarce", "large-heavy", "small-heavy")
METHODS = ("coral", "homo-1", "homo-m", "cauchy")
#: Default availability is the least of these, times the estimated need, at which every method serves everything.
PLENTY = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
#: Scarce availability grows from the stated margin by such steps until Coral serves everything; most steps.
SCARCE_STEP, SCARCE_STEPS = 1.1, 12
#: Demand is scaled down by such steps where a method cannot serve all of it (section 6.4).
RATE_STEP = 0.025
CORAL = Options(time_limit_s=60.0)
QUICK = Options(steps=5, most_columns=0)


def load_templates(setup: Setup, **rule: Any) -> tuple[Templates, dict[str, float]]:
    """Return the undominated templates of a set-up, and how many there were and how long they took."""
    start, libraries, ranks = time.process_time(), [], []
    for name, phase in row_names(setup):
        found = templates.generate(service(name), setup.nodes, phase, **rule)
        libraries.append(found)
        ranks.append(found.undominated())
    facts = {
        "templates": float(sum(map(len, libraries))),
        "undominated": float(sum(r.size for r in ranks)),
        "cpu_s": time.process_time() - start,
    }
    return Templates.of(libraries, ranks), facts


def methods(setup: Setup, options: Options = CORAL) -> dict[str, Callable[[CoveringProblem], Allocation]]:
    """Return the allocators by name."""
    groups = [tuple(range(len(PHASES) * m, len(PHASES) * (m + 1))) for m in range(len(setup.models))]
    return {
        "coral": functools.partial(allocate, options=options),
        "homo-1": homo,
        "homo-m": functools.partial(homo, single_node=False),
        "cauchy": functools.partial(cauchy, groups=groups),
    }


def serves(allocation: Allocation) -> bool:
    """Return whether nothing is left unserved."""
    return not np.any(allocation.unserved > 0.0)


def _all_serve(
    setup: Setup,
    found: Templates,
    drawn: Draw,
    scale: float,
    using: list[Callable[[CoveringProblem], Allocation]],
) -> bool:
    return all(
        serves(method(problem(setup, found, drawn.demand_rps[e], drawn.nodes[e] * scale)))
        for method in using
        for e in range(EPOCHS)
    )


def availability_scale(setup: Setup, case: str, found: Templates, drawn: Draw) -> tuple[float, float]:
    """Return the scale of the drawn availability, and its ratio to the estimated need."""
    need = estimated_need(found, drawn)
    known = methods(setup, QUICK)
    if case == "scarce":
        ratios = [(1.0 + setup.scarce_margin) * SCARCE_STEP**k for k in range(SCARCE_STEPS)]
        using = [known["coral"]]
    else:
        ratios, using = list(PLENTY), [known[name] for name in ("homo-1", "homo-m", "cauchy")]
    low, high = 0, len(ratios) - 1  # of the ratios, the least that serves is in low..high
    while low < high:
        middle = (low + high) // 2
        if _all_serve(setup, found, drawn, ratios[middle] * need, using):
            high = middle
        else:
            low = middle + 1
    return ratios[low] * need, ratios[low]


def play(setup: Setup, case: str, seed: int, found: Templates) -> list[dict[str, Any]]:
    """Return one record per epoch and method of one seed.

    Parameters
    ----------
    setup : Setup
        Core or extended.
    case : str
        One of `CASES`.
    seed : int
        Of demand and availability.
    found : Templates
        The library.

    Returns
    -------
    list of dict
        Costs in USD per hour, the share of the demand that was asked for (1, or less where a method
        cannot serve all), solve time in CPU-seconds.
    """
    drawn = draw(setup, case, seed)
    scale, ratio = availability_scale(setup, case, found, drawn)
    records = []
    for name, method in methods(setup).items():
        running = None
        for epoch in range(EPOCHS):
            here = problem(setup, found, drawn.demand_rps[epoch], drawn.nodes[epoch] * scale, running)
            start = time.process_time()
            allocation = method(here)
            elapsed = time.process_time() - start
            share, served = 1.0, _served(allocation)
            if name == "coral":  # it is never scaled down: what it leaves unserved counts against it
                share = 1.0 - float(allocation.unserved.max())
            elif not serves(allocation):
                allocation, share = _scaled_down(method, here)
            running = allocation.running
            records.append(
                {
                    "setup": setup.name,
                    "case": case,
                    "seed": seed,
                    "epoch": epoch,
                    "method": name,
                    "availability_over_need": ratio,
                    "cpu_s": elapsed,
                    "share_of_demand": share,
                    "served_without_scaling": served,
                    **_facts(setup, here, allocation),
                }
            )
    return records


def _served(allocation: Allocation) -> float:
    """Return the mean over models of the share that both of its phases serve."""
    return float(np.mean(1.0 - allocation.unserved.reshape(-1, len(PHASES)).max(axis=1)))


def _scaled_down(
    method: Callable[[CoveringProblem], Allocation], here: CoveringProblem
) -> tuple[Allocation, float]:
    """Return the allocation at the largest share of the demand that the method serves (section 6.4)."""
    for step in range(1, int(1.0 / RATE_STEP)):
        share = 1.0 - step * RATE_STEP
        allocation = method(dataclasses.replace(here, demand_rps=share * here.demand_rps))
        if serves(allocation):
            return allocation, share
    none = np.zeros(0, dtype=np.int64)
    return evaluate(dataclasses.replace(here, demand_rps=0.0 * here.demand_rps), none, none, none), 0.0


def _facts(setup: Setup, here: CoveringProblem, allocation: Allocation) -> dict[str, Any]:
    """Return costs, by row too, sizes, and the bound where there is one."""
    use = here.use[allocation.template].astype(float)
    rent = (here.price_usd_per_h[allocation.region] * use).sum(axis=1) * allocation.count
    by_row = np.bincount(here.row[allocation.template], rent, minlength=here.demand_rps.size)
    gpus = use @ np.tile(np.array(NODE_SIZES, dtype=float), len(setup.gpus)) * allocation.count
    kinds = np.count_nonzero(use, axis=1)
    return {
        "cost_usd_per_h": allocation.cost_usd_per_h,
        "startup_usd_per_h": allocation.startup_usd_per_h,
        "rent_by_row": [round(float(v), 4) for v in by_row],
        "unserved": float(allocation.unserved.sum()),
        "gap": allocation.gap(here) if np.isfinite(allocation.bound_usd_per_h) else None,
        "status": allocation.status,
        "gpus": int(round(float(gpus.sum()))),
        "replicas": int(allocation.count.sum()),
        "mixed_replicas": int(allocation.count[kinds > 1].sum()),
    }
