"""Price an unserved and a late request from offers, SLOs and a demand.

A default penalty is a multiple of what the cheapest on-demand way of serving one request costs. So it does not move
when a spot price is listed, a more expensive pool is added, or configurations become few.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.capacity.traces.candidates import TOLERANCE
from fleetgym.capacity.traces.objectives import Slo
from fleetgym.capacity.traces.prices import Offer
from fleetgym.families.static import PLANNED_UTILIZATION, Columns
from fleetgym.families.text import six
from fleetgym.files.errors import FleetgymError

_LATE_SHARE = 1.0 / 3.0
_ON_DEMAND = "the cheapest on-demand way of serving a request"
_ANY = "the cheapest way of serving a request at any price listed above 0, as no on-demand offer serves it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Penalties:
    """What failing costs: (I,) USD per request, and which offers the default is a multiple of."""

    unserved_usd: np.ndarray
    late_usd: np.ndarray
    basis: str  # in words


def penalties(
    problem: Columns, rate_rps: np.ndarray, offers: Sequence[Offer], slos: Sequence[Slo], multiple: float
) -> Penalties:
    """Return the penalties that are given, and for the others multiples of what serving a request costs.

    Offers are one per pool, SLOs one per workload, `rate_rps` is the mean demand, (I,). An unserved request costs
    `multiple` times `request_usd`, a late one a third of an unserved one.

    Raises
    ------
    FleetgymError
        If a default is needed and nothing that serves has a price, or a late request costs more than an unserved one.
    """
    usd, basis = request_usd(problem, rate_rps, offers)
    free = [k for k, slo in enumerate(slos) if slo.unserved_usd is None and not usd[k] > 0.0]
    if free:
        raise FleetgymError(
            "default penalties are multiples of what serving a request costs, and every offer that serves has the "
            "price 0: give unserved_usd for every workload, as in --slo unserved_usd=0.01, or a price above 0"
        )
    unserved = np.array(
        [multiple * r if s.unserved_usd is None else s.unserved_usd for s, r in zip(slos, usd, strict=True)]
    )
    late = np.array(
        [_LATE_SHARE * u if s.late_usd is None else s.late_usd for s, u in zip(slos, unserved, strict=True)]
    )
    if np.any(late > unserved):
        raise FleetgymError("a late request may not cost more than an unserved one (late_usd > unserved_usd)")
    return Penalties(unserved_usd=six(unserved), late_usd=six(late), basis=" or ".join(dict.fromkeys(basis)))


def request_usd(
    problem: Columns, rate_rps: np.ndarray, offers: Sequence[Offer]
) -> tuple[np.ndarray, list[str]]:
    """Return what the cheapest way of serving one request of each workload costs, and of which offers.

    The way is a mix of configurations that keeps the mean SLOs, each used as fully as planned. It costs no less than
    a part of a whole replica: of the one that is cheapest at the load of all workloads that can share it, by the time
    that they hold it. So splitting a demand into more workloads changes nothing. The way is on demand. Where on-demand
    offers cannot serve the workload, all offers with a price count.

    Returns
    -------
    usd : ndarray, shape (I,)
        Per request; 0 where nothing that serves has a price.
    basis : list of str
        What that is, in words.
    """
    priced = np.array([o.usd_per_gpu_h + o.power_usd_per_gpu_h > 0.0 for o in offers])
    on_demand = priced & [o.market == "on-demand" for o in offers]
    usd, basis = np.zeros(len(rate_rps)), []
    for i in range(len(rate_rps)):
        usd[i], words = _way_usd(problem, i, on_demand, rate_rps), _ON_DEMAND
        if usd[i] == 0.0:
            usd[i], words = _way_usd(problem, i, priced, rate_rps), _ANY
        basis.append(words)
    return usd, basis


def _way_usd(problem: Columns, i: int, pools: np.ndarray, rate_rps: np.ndarray) -> float:
    """Return what the cheapest way on some pools costs per request of a workload; 0 if they cannot serve it."""
    usable = problem.compatible[i] & ~np.any(problem.gpu_use[~pools] > 0, axis=0)
    mix = _mix_usd(problem, i, np.flatnonzero(usable))
    return 0.0 if mix is None else max(mix, _replica_usd(problem, i, usable, rate_rps))


def _mix_usd(problem: Columns, i: int, columns: np.ndarray) -> float | None:
    """Return the least rent of a request on a mix of columns that keeps the mean SLOs; None if none does."""
    from scipy.optimize import linprog

    if not len(columns):
        return None
    replicas = np.max(
        [
            problem.work_tflop[i, columns] / np.maximum(problem.compute_tflops[columns], 1e-12),
            problem.kv_gb_s[i, columns] / np.maximum(problem.kv_capacity_gb[columns], 1e-12),
            problem.service_s[i, columns] / (PLANNED_UTILIZATION * problem.max_concurrency[columns]),
        ],
        axis=0,
    )
    usd = replicas * problem.hold_usd_per_s[columns]
    excess = [
        problem.delay_s[i, columns] / problem.mean_delay_slo_s[i] - 1.0,
        problem.error[i, columns] / problem.error_slo[i] - 1.0,
    ]
    best = int(np.argmin(np.where(np.max(excess, axis=0) <= TOLERANCE, usd, np.inf)))
    alone = usd[best] if max(e[best] for e in excess) <= TOLERANCE else np.inf
    scale = usd.max()  # the solver's tolerances are absolute
    found = linprog(
        usd / scale,
        A_ub=np.array(excess),
        b_ub=np.full(2, TOLERANCE),
        A_eq=np.ones((1, len(columns))),
        b_eq=[1.0],
    )
    mixed = float(found.fun) * scale if found.status == 0 else np.inf
    # Round-off of the solver must not depend on what else is listed.
    least = alone if mixed > (1.0 - 1e-6) * alone else mixed
    return float(least) if np.isfinite(least) else None


def _replica_usd(problem: Columns, i: int, usable: np.ndarray, rate_rps: np.ndarray) -> float:
    """Return what a request costs of the replica that is cheapest at the load of all that can share it.

    It serves the workload within its mean SLOs, if one does.
    """
    keeps = (problem.delay_s <= problem.mean_delay_slo_s[:, None]) & (
        problem.error <= problem.error_slo[:, None]
    )
    shares = problem.compatible & keeps
    is_good = usable & shares[i]
    if not is_good.any():
        shares, is_good = problem.compatible, usable
    load = rate_rps @ np.where(shares, problem.service_s, 0.0)  # requests at once, (C,)
    return float((problem.hold_usd_per_s * problem.service_s[i] / np.maximum(load, 1e-300))[is_good].min())
