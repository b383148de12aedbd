"""Limit the requests that a replica serves at once, so that it keeps objectives of TPOT and end-to-end latency.

The more requests a replica serves at once, the longer a token takes. Each objective therefore has a largest
concurrency, and an engine that is told this limit keeps it at any load. A configuration of an instance is a deployment
with such a limit; it serves the workloads whose objectives it keeps. ``docs/model.md`` says what is assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.configurations.homogeneous import Column, two_best
from fleetgym.hardware.performance.coefficients import PairPerformance
from fleetgym.model.facts import Slo

_MOST_LIMITS = 3  # of one deployment: workloads with limits in between take the next lower one
_FEWEST_SERVERS = 8  # that a small deployment should have, as for objectives without a limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
    """Token lengths of a workload's requests."""

    input_tokens: float  # mean
    output_tokens: float  # mean
    output_values: np.ndarray  # (n,) ascending lengths
    output_shares: np.ndarray  # (n,) share of the requests with each

    def output_quantile(self, share: float) -> float:
        """Return the length that a share of the requests does not exceed."""
        is_shorter = np.cumsum(self.output_shares) < share - 1e-12
        return float(self.output_values[min(int(is_shorter.sum()), len(is_shorter) - 1)])


def tpot_s(pair: PairPerformance, lengths: Lengths, at_once: int, percentile: float | None = None) -> float:
    """Return the time per output token where a replica serves n requests at once, in seconds.

    A request's own prefill is no part of it; the prompts of the others are, since they are computed between its tokens.

    Parameters
    ----------
    pair : PairPerformance
        What the deployment does to the requests at this concurrency.
    lengths : Lengths
        Of the requests.
    at_once : int
        Requests at once.
    percentile : float, optional
        Of the requests, from 1 to 99.99; by default their mean.

    Returns
    -------
    float
        In a percentile, the prompts that come while a request generates vary: their number is Poisson, and their work
        is taken as gamma-distributed.
    """
    a, b = lengths.input_tokens, lengths.output_tokens
    mean = (pair.service_s.at(a, b) - pair.prefill_s.at(a, b)) / b
    others = pair.others_s
    if percentile is None or at_once <= 1 or others <= 0.0 or lengths.output_values[-1] <= 1:
        return mean
    from scipy.optimize import brentq
    from scipy.special import gammaincc

    several = lengths.output_values > 1  # one token has no time after the first
    shape = pair.others_shape * lengths.output_values[several]
    shares = lengths.output_shares[several]

    def exceeds(more: float) -> float:
        return float(shares @ gammaincc(shape, shape * more)) - (1.0 - percentile / 100.0) * shares.sum()

    most = 2.0
    while exceeds(most) > 0.0:
        most *= 2.0
    return float(mean + others * (brentq(exceeds, 0.0, most) - 1.0))


def e2e_s(
    pair: PairPerformance, lengths: Lengths, at_once: int, ttft_s: float, percentile: float | None = None
) -> float:
    """Return the time from arrival to the last token of a request whose first token is just in time, in seconds.

    In a percentile, it is that of a request whose output is that long. `ttft_s` bounds the time to the first token.
    """
    tokens = lengths.output_tokens if percentile is None else lengths.output_quantile(percentile / 100.0)
    return ttft_s + tokens * tpot_s(pair, lengths, at_once)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demand:
    """What a workload asks of the deployments that may serve it."""

    name: str
    slo: Slo
    lengths: Lengths
    #: What a deployment does to the requests at this concurrency; None where it cannot serve them.
    pair_at: Callable[[Column, int], PairPerformance | None]

    def broken(self, pair: PairPerformance, at_once: int) -> tuple[str, float, float] | None:
        """Return name, bound and value of the first objective that is broken; None where all are kept."""
        slo, lengths = self.slo, self.lengths
        for name, bound, value in (
            ("delay", slo.delay, lambda: pair.delay_s.at(lengths.input_tokens, lengths.output_tokens)),
            ("tpot", slo.tpot, lambda: tpot_s(pair, lengths, at_once, slo.tpot_percentile)),
            ("e2e", slo.e2e, lambda: e2e_s(pair, lengths, at_once, slo.ttft, slo.e2e_percentile)),
        ):
            if bound is not None and (found := value()) > bound:
                return name, bound, found
        return None

    def most_at_once(self, column: Column) -> int:
        """Return the largest concurrency at which a deployment keeps the objectives; 0 where there is none."""

        def keeps(at_once: int) -> bool:
            pair = self.pair_at(column, at_once)
            return pair is not None and self.broken(pair, at_once) is None

        low, high = 0, column.configuration.max_concurrency
        if keeps(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return low


def limited(
    columns: Sequence[Column], demands: Sequence[Demand], most_limits: int = _MOST_LIMITS
) -> tuple[list[Column], np.ndarray]:
    """Return the deployments worth having, at the concurrencies that keep the objectives.

    Without objectives of tokens or mean delays these are the two smallest of each model and tier, at the concurrency
    that memory allows. With them, the two smallest that keep each workload's objectives for at least 8 requests at
    once, or the one that does for most.

    Parameters
    ----------
    columns : sequence of Column
        All deployments that fit, at the concurrency that memory allows.
    demands : sequence of Demand
        One per workload.
    most_limits : int
        Limits of one deployment, at most.

    Returns
    -------
    columns : list of Column
        Deployments, each at one or several limits.
    is_kept : ndarray of bool, shape (workloads, columns)
        Whether the workload's objectives are kept at this limit.

    Raises
    ------
    FleetgymError
        If no deployment keeps a workload's objectives, even for one request at a time.
    """
    if all(d.slo.tpot is None and d.slo.e2e is None and d.slo.delay is None for d in demands):
        kept = two_best(list(columns))
        return kept, np.ones((len(demands), len(kept)), dtype=bool)
    most = np.array([[demand.most_at_once(column) for column in columns] for demand in demands])
    for demand, row in zip(demands, most, strict=True):
        if not row.any():
            _refuse(demand, columns)
    chosen: dict[int, set[int]] = {}
    for row in most:
        for k in _smallest(columns, row):
            chosen.setdefault(k, set()).add(int(row[k]))
    found: list[Column] = []
    kept_by: list[np.ndarray] = []
    for k in sorted(chosen):
        limits = np.array(sorted(chosen[k]))
        shares = np.linspace(0.0, 1.0, min(most_limits, len(limits)))
        for limit in dict.fromkeys(int(n) for n in np.quantile(limits, shares, method="lower")):
            found.append(_at(columns[k], limit))
            kept_by.append(most[:, k] >= limit)
    return found, np.array(kept_by, dtype=bool).reshape(-1, len(demands)).T


def _smallest(columns: Sequence[Column], most: np.ndarray) -> list[int]:
    """Return the two smallest deployments of each model and tier that serve enough at once, or the best one."""
    groups: dict[tuple[str, str], list[int]] = {}
    for k in np.flatnonzero(most).tolist():
        groups.setdefault((columns[k].configuration.model, columns[k].tier), []).append(k)
    found = []
    for group in groups.values():
        ample = [k for k in group if most[k] >= _FEWEST_SERVERS]
        by_size = sorted(ample, key=lambda k: columns[k].deployment.gpus)[:2]
        found += by_size or [max(group, key=lambda k: (most[k], -columns[k].deployment.gpus))]
    return found


def _at(column: Column, limit: int) -> Column:
    """Return a deployment whose engine serves at most n requests at once."""
    whole = column.configuration
    if limit == whole.max_concurrency:
        return column
    named = dataclasses.replace(whole, id=f"{whole.id}:n{limit}", max_concurrency=limit)
    return dataclasses.replace(column, configuration=named, engine_limit=limit)


def _refuse(demand: Demand, columns: Sequence[Column]) -> None:
    """Raise `FleetgymError` with the best that can be had; return where nothing can serve the workload at all."""
    pairs = [pair for column in columns if (pair := demand.pair_at(column, 1)) is not None]
    broken = [found for pair in pairs if (found := demand.broken(pair, 1)) is not None]
    if not broken:
        return
    what, bound, best = min(broken, key=lambda found: found[2] / found[1])
    percentile = getattr(demand.slo, f"{what}_percentile", None)
    which = "" if percentile is None else f".p{percentile:g}"
    first = f", its first token just in time (ttft={demand.slo.ttft:g}), has" if what == "e2e" else " has"
    raise FleetgymError(
        f"the SLO {what}{which}={bound:g} of workload {demand.name!r} is out of reach: a request alone{first} "
        f"{best:.3g} s on the fastest configuration; loosen it, or give other --models or --gpus"
    )
