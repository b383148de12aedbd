"""Set a budget that binds: a rate in USD per hour, or a pool in USD per day."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.families.draft import dear_penalties
from fleetgym.families.static import Columns, allocate

#: Rate budgets relative to the rent of the cheapest fleet that bears the p99 demand, pools to a day's at mean demand.
RATE_SHARES = (0.50, 0.60, 0.70)
POOL_SHARES = (1.15, 1.25, 1.35)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """A budget, with what it allows per second on average."""

    kind: str
    usd: float
    provenance: str

    @property
    def usd_per_s(self) -> float:
        """Rent per second that can be kept up all day."""
        return self.usd / (3600.0 if self.kind == "rate" else 86400.0)


def draw(
    problem: Columns,
    level: np.ndarray,
    rate: np.ndarray,
    cap: np.ndarray,
    rng: np.random.Generator,
    times: float = 1.0,
) -> Limit:
    """Draw a budget.

    Parameters
    ----------
    problem : Columns
        Without groups and limits on replicas.
    level : ndarray of float, shape (windows, I)
        Past demand relative to `rate`.
    rate : ndarray of float, shape (I,)
        Nominal arrivals per second.
    cap : ndarray of float, shape (G,)
        GPUs.
    rng : numpy.random.Generator
        Picks kind and share.
    times : float
        On the shares.

    Returns
    -------
    Limit
    """
    kind = ("rate", "pool")[int(rng.integers(2))]
    share = times * float(rng.choice(RATE_SHARES if kind == "rate" else POOL_SHARES))
    factor = _peak_factor(problem, level, rate, cap) if kind == "rate" else 1.0
    served = allocate(problem, factor * rate, dear_penalties(problem, rate), cap)
    usd_per_s = float(problem.hold_usd_per_s @ served.replicas)
    usd = share * usd_per_s * (3600.0 if kind == "rate" else 86400.0)
    of = (
        "the rent of the cheapest fleet for the p99 demand"
        if kind == "rate"
        else "a day's rent at mean demand"
    )
    return Limit(kind=kind, usd=float(f"{usd:.6g}"), provenance=f"assumed: {share:g} times {of}")


def _peak_factor(problem: Columns, level: np.ndarray, rate: np.ndarray, cap: np.ndarray) -> float:
    """Return p99 / mean of the demand, workloads weighted by what their last requests cost."""
    marginal = np.abs(allocate(problem, rate, dear_penalties(problem, rate), cap).marginal_usd)
    total = level @ (marginal * rate)
    return float(np.quantile(total, 0.99) / total.mean())
