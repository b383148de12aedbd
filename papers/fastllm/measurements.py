"""Play the cells of the page."""

from __future__ import annotations

import json
from typing import Any

from .ablation import ablation_batch
from .batch import Batch
from .optimum import optimum_batch, sizes_batch
from .regime import METHODS, SIZES
from .rolling import SIGMAS, rolling_batch
from .runtime import runtime_batch
from .sensitivity import sensitivity_batch
from .two_stage import budget_batch, stress_batch

_FIRST_SEED = 1000  # stored instances have smaller ones


def full() -> list[Batch]:
    """Return all cells, the cheap ones first."""
    forty, twenty = range(_FIRST_SEED, _FIRST_SEED + 40), range(_FIRST_SEED, _FIRST_SEED + 20)
    return [
        optimum_batch(twenty),
        sizes_batch(twenty),
        stress_batch(METHODS, forty, scenarios=500),
        budget_batch(METHODS[:2], forty, scenarios=500),
        ablation_batch(forty),
        sensitivity_batch(twenty),
        runtime_batch(("GH", "AGH"), SIZES, twenty),
        runtime_batch(("DM",), SIZES[:2], twenty, limit_s=30.0),
        *(runtime_batch(("DM",), (size,), twenty, limit_s=30.0) for size in SIZES[2:4]),
        runtime_batch(("DM McCormick",), SIZES[:1], twenty, limit_s=30.0),
        rolling_batch("greedy", SIGMAS, trials=30),
        rolling_batch("dm-hourly", (0.01, 0.03, 0.05), trials=30),
        runtime_batch(("DM",), SIZES[4:], twenty, limit_s=30.0),
        rolling_batch("dm-5min", (0.05,), trials=3),
    ]


def small() -> list[Batch]:
    """Return a few cells of each kind at the smallest size."""
    size, seeds = SIZES[0], range(_FIRST_SEED, _FIRST_SEED + 2)
    return [
        optimum_batch(seeds[:1]),
        sizes_batch(seeds[:1], sizes=(size,)),
        stress_batch(METHODS, seeds, scenarios=10, size=size),
        budget_batch(METHODS[:2], seeds, scenarios=10, size=size),
        ablation_batch(seeds, size=size),
        sensitivity_batch(seeds[:1], size=size),
        *(
            rolling_batch(group, (0.01, 0.05), trials=2, windows=24, size=size)
            for group in ("greedy", "dm-hourly")
        ),
        runtime_batch(("GH", "AGH"), SIZES[:1], seeds),
        runtime_batch(("DM", "DM McCormick"), SIZES[:1], seeds, limit_s=5.0),
    ]


def names(quick: bool) -> list[str]:
    """Return the names of all cells, the cheap ones first."""
    batches = small() if quick else full()
    return list(dict.fromkeys(name for batch in batches for name in batch.names()))


def compute(name: str, quick: bool) -> dict[str, Any]:
    """Return a cell's numbers; its name has all arguments."""
    experiment, _, key = name.partition(" ")
    return {batch.experiment: batch.compute for batch in full()}[experiment](**json.loads(key))
