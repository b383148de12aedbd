"""Describe how spot prices move, and state what is known of prices, warnings and commitments.

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

from fleetgym.families.draft import PoolPlan

#: Assumed; the spread is twice that of the most restless of the daily medians.
SPOT = {
    "ou_sd": 0.20,
    "ou_time_min": 60.0,
    "jumps_per_day": 6.0,
    "jump_log_mean": 0.35,
    "jump_hold_min": 45.0,
}
SAME_REGION, OTHER_REGION = 0.6, 0.2


def prices(pools: Sequence[PoolPlan]) -> dict[str, Any]:
    """Return the process of prices: spot pools move, at most up to the on-demand price of their GPU."""
    on_demand = {pool.gpu: pool.price_usd_per_gpu_h for pool in pools if pool.market == "on-demand"}
    spot = [pool.market == "spot" for pool in pools]
    parameters: dict[str, Any] = {
        name: [value if moves or name.endswith("_min") else 0.0 for moves in spot]
        for name, value in SPOT.items()
    }
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
        f"(standard deviation {SPOT['ou_sd']:g} of logarithms, where seven daily medians show .02 to .09)",
        "warnings": "AWS warns of the end of a spot instance two minutes ahead: taken as one window. GCP warns thirty "
        "seconds ahead: taken as none",
        "commitment": f"assumed: reserved GPUs cost {usd:.2f} USD/h at .60 of the on-demand price, used or not. "
        "No action changes that, so it is part of no cost here, and using them costs nothing more",
    }
