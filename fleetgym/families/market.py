"""Describe how spot capacity drops and spot prices move, and state what is known of both.

What is known: AWS and GCP publish spot prices without bids; medians of seven daily offers on marketplaces (H100, A100,
L40S; 29 September to 5 October 2026, ewyluda/gpu-price-index) have standard deviations of .02 to .09 of logarithms,
changes from day to day up to .15. How prices move within a day is assumed: within the hour, so that moving replicas
after them has to be weighed against what starting costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.families.draft import PoolPlan, fits

#: Drops a day of spot pools: between a 16-node series (2.58) and single-node zones (2.4 to 6.9), so that the
#: hedging number is near one. The series behind the fits have no licence and are not shipped.
DROPS_PER_DAY = 4.0
LEAST_DROPS, MOST_DROPS = 2.4, 6.9  # of a pool in families that do not tell its own number

#: Fitted at that rate (`fleetgym/data/SOURCES-demand.md`) to a simulated correlation of .40 and .18.
COPULA = {"copula_same_region": 0.934, "copula_other_region": 0.782}

#: Assumed; the spread is twice that of the most restless of the daily medians.
SPOT = {
    "ou_sd": 0.20,
    "ou_time_min": 60.0,
    "jumps_per_day": 6.0,
    "jump_log_mean": 0.35,
    "jump_hold_min": 45.0,
}
SAME_REGION, OTHER_REGION = 0.6, 0.2
#: Assumed: how far the spread and the jumps of a pool's price are from these in families that do not tell them.
PRICE_LOG_SD = 0.3


def drops(
    pools: Sequence[PoolPlan], *, warned: bool = False, rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """Return the process of availability: spot pools drop, and announce it if `warned` where their cloud does so.

    With `rng`, every pool has a number of drops a day of its own; else all have `DROPS_PER_DAY`, which is what the
    family tells.
    """
    span = np.log([LEAST_DROPS, MOST_DROPS])
    per_day = [
        (DROPS_PER_DAY if rng is None else round(float(np.exp(rng.uniform(*span))), 2))
        if pool.market == "spot"
        else 0.0
        for pool in pools
    ]
    fitted = {name: float(value) for name, value in fits()["drops"].items()}
    parameters = {**fitted, "drops_per_day": per_day, **COPULA}
    if not warned:
        return {"kind": "drops", "parameters": parameters}
    warnings = [float(pool.warned) for pool in pools]
    return {"kind": "warned-drops", "parameters": {**parameters, "warning_windows": warnings}}


def prices(pools: Sequence[PoolPlan], *, rng: np.random.Generator | None = None) -> dict[str, Any]:
    """Return the process of prices: spot pools move, at most up to the on-demand price of their GPU.

    With `rng`, every pool has a spread and a number of jumps of its own; else all have those of `SPOT`, which are what
    the family tells.
    """
    on_demand = {pool.gpu: pool.price_usd_per_gpu_h for pool in pools if pool.market == "on-demand"}
    spot = [pool.market == "spot" for pool in pools]
    parameters: dict[str, Any] = {
        name: [value if moves or name.endswith("_min") else 0.0 for moves in spot]
        for name, value in SPOT.items()
    }
    if rng is not None:
        for name in ("ou_sd", "jumps_per_day"):
            own = np.exp(PRICE_LOG_SD * rng.standard_normal(len(pools)).clip(-2.0, 2.0))
            parameters[name] = np.round(own * parameters[name], 3).tolist()
    parameters["ceiling"] = [
        _ceiling(on_demand[pool.gpu], pool.price_usd_per_gpu_h) if moves else 1.0
        for pool, moves in zip(pools, spot, strict=True)
    ]
    return {
        "kind": "ou-jumps",
        "parameters": {**parameters, "same_region": SAME_REGION, "other_region": OTHER_REGION},
    }


def _ceiling(on_demand_usd: float, spot_usd: float) -> float:
    """Return the largest multiple of a spot price, in thousandths, that does not exceed the on-demand price.

    Examples
    --------
    >>> _ceiling(3.0, 1.8)
    1.666
    """
    thousandths = math.floor(1000.0 * on_demand_usd / spot_usd)
    exceeds = thousandths / 1000.0 * spot_usd > on_demand_usd
    return (thousandths - exceeds) / 1000.0


def provenance(pools: Sequence[PoolPlan], cap: np.ndarray) -> dict[str, str]:
    """Return the sources of the market's numbers: which are measured, which assumed.

    Parameters
    ----------
    pools : sequence of PoolPlan
        The instance's.
    cap : ndarray of float, shape (G,)
        GPUs of each; those of reserved pools are committed to.
    """
    usd = sum(
        pool.price_usd_per_gpu_h * gpus for pool, gpus in zip(pools, cap, strict=True) if pool.is_committed
    )
    return {
        "prices": "measured: GCP's on-demand and spot prices and AWS's on-demand prices on 2026-10-10, "
        "ewyluda/gpu-price-index @ ab49c80; assumed: AWS's spot prices, at GCP's ratio; how spot prices move "
        f"(standard deviation about {SPOT['ou_sd']:g} of logarithms, where seven daily medians show .02 to .09)",
        "warnings": "AWS warns of the end of a spot instance two minutes ahead: taken as one window. GCP warns thirty "
        "seconds ahead: taken as none",
        "commitment": f"assumed: reserved GPUs cost {usd:.2f} USD/h at .60 of the on-demand price, used or not. "
        "No action changes that, so it is part of no cost here, and using them costs nothing more",
    }
