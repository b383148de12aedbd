"""Raise a forecast to the demand that is worth providing for, by the errors that it made.

The classical answer to uncertain demand (Arrow, Harris and Marschak, "Optimal inventory policy", Econometrica 19,
1951; Porteus, *Foundations of Stochastic Inventory Theory*, 2002, section 1.2): with cost c_u per unit short and c_o
per unit left over, stock the quantile c_u / (c_u + c_o) of demand.

Adapted to fleets, workload by workload: a unit is one request. Left over, it costs the rent of the capacity it would
have taken on the configuration that serves it cheapest; short, it costs the penalty for not serving it, less that rent
and what its route would have cost. Demand is the forecast times the exponential of a log error that the same
forecaster made on the instance's history. Each workload is treated as if it had a fleet of its own, so what workloads
sharing replicas lend each other is not seen, and the total tends to be too much; `fleetgym.baselines.saa` sees it.
"""

from __future__ import annotations

import numpy as np

from fleetgym import Instance, Snapshot, View

from .best_forecaster import BestForecaster


def critical_ratios(snapshot: Snapshot) -> np.ndarray:
    """Return c_u / (c_u + c_o) of each workload, (I,).

    Parameters
    ----------
    snapshot : Snapshot
        Costs and capacities; its rates cancel out, where penalties are per request.

    Returns
    -------
    ndarray, shape (I,)
        0 where serving costs more than not serving, or nothing can serve.
    """
    replicas = snapshot.replicas_needed().max(axis=0)
    rent = np.where(snapshot.compatible, replicas * snapshot.hold_usd, np.inf)
    best = np.argmin(rent + snapshot.route_usd, axis=1)
    at = np.arange(best.size), best
    over, under = rent[at], snapshot.unserved_usd - rent[at] - snapshot.route_usd[at]
    serves = np.isfinite(over) & (under > 0)
    return np.divide(under, under + over, out=np.zeros(best.size), where=serves)


class NewsvendorForecaster(BestForecaster):
    """The critical quantile of demand; parameters as for `BestForecaster`."""

    def reset(self, instance: Instance) -> None:
        """Study the costs, and the forecasters' errors on the instance's history."""
        super().reset(instance)
        self.ratio = critical_ratios(View(instance).snapshot())
        self._rise: dict[int, np.ndarray] = {}

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the rates to provide for, (I,) requests/s."""
        if windows_ahead not in self._rise:
            self._rise[windows_ahead] = critical_rise(self.errors(windows_ahead), self.ratio)
        return super().predict(windows_ahead) * self._rise[windows_ahead]


def critical_rise(errors: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return what to multiply a forecast by, (I,).

    Parameters
    ----------
    errors : ndarray, shape (n, I)
        Log of what came over what was forecast, equally likely.
    ratio : ndarray, shape (I,)
        Critical ratios in [0, 1].

    Returns
    -------
    ndarray, shape (I,)
        Exponential of the smallest error whose distribution function reaches the ratio.

    Examples
    --------
    >>> errors = np.log([[0.5], [1.0], [2.0], [4.0]])
    >>> [round(float(critical_rise(errors, np.array([r]))[0]), 6) for r in (0.25, 0.5, 0.51, 0.8)]
    [0.5, 1.0, 2.0, 4.0]
    """
    quantile = [np.quantile(errors[:, i], ratio[i], method="inverted_cdf") for i in range(ratio.size)]
    return np.exp(np.array(quantile))
