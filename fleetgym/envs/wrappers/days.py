"""Add up the days of parallel episodes so far: costs, SLO violations, and the cost of these by workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.compile import jit
from fleetgym.kernels.economics import LATE_USD, SECONDS_PER_DAY, TERMS, UNSERVED_USD
from fleetgym.kernels.lowlevel import Packer, borrow
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model

#: Columns of the money of a batch: the cost of a window, and where the shares of workloads begin.
_COST, _SHARES = len(TERMS), len(TERMS) + 2
#: Rows of `_Totals.sums` and of `_Totals.told`.
_USD, _REFERENCE_USD, _MISSED, _REQUESTS = range(4)
_PERCENT, _MISS_SHARE = 1, 2


class _Totals(NamedTuple):
    """What N days have come to."""

    lead: np.ndarray  # (N,) int64
    clock: np.ndarray  # (N, 2) seconds of a window, and 1.0 if penalties are per day
    usd: np.ndarray  # (N, 2, I) of an unserved request, or of all of a day, and of a late one
    before_rps: np.ndarray  # (N, I) rates that were seen before the last window
    sums: np.ndarray  # (4, N) USD, the reference's USD, requests missed, requests
    told: np.ndarray  # (3, N) USD, percent above the reference, share missed
    missed_usd: np.ndarray  # (N, I) of the last window


_WHOLES, _ROWS, _BLOCKS = np.zeros(1, dtype=np.int64), np.zeros((1, 1)), np.zeros((1, 1, 1))
_packer = Packer(_Totals(_WHOLES, _ROWS, _BLOCKS, _ROWS, _ROWS, _ROWS, _ROWS))
_unpack: Any = _packer.unpack


@jit
def add_window(words, money, reference_usd):
    """Add a window: `money` (N, ...) of a batch, and what the reference paid, (N,) USD."""
    money, reference_usd = borrow((money, reference_usd))
    (totals,) = _unpack(words)
    episodes, workloads = totals.before_rps.shape
    for n in range(episodes):
        missed = requests = 0.0
        window_s = totals.clock[n, 0]
        for i in range(workloads):
            unserved = money[n, _SHARES + i]
            miss = money[n, _SHARES + workloads + i]
            seen_rps = money[n, _SHARES + 2 * workloads + i]
            rate = (
                seen_rps if totals.lead[n] > 0 else totals.before_rps[n, i]
            )  # without a lead it was seen before
            totals.before_rps[n, i] = seen_rps
            missed += rate * miss
            requests += rate
            weight = window_s / SECONDS_PER_DAY if totals.clock[n, 1] > 0.0 else rate * window_s
            usd = weight * totals.usd[n, 0, i] * unserved if rate > 0.0 else 0.0
            totals.missed_usd[n, i] = usd + rate * window_s * totals.usd[n, 1, i] * (miss - unserved)
        sums, told = totals.sums, totals.told
        sums[_USD, n] += money[n, _COST]
        sums[_REFERENCE_USD, n] += reference_usd[n]
        sums[_MISSED, n] += missed
        sums[_REQUESTS, n] += requests
        told[_USD, n], told[_PERCENT, n] = sums[_USD, n], 0.0
        told[_MISS_SHARE, n] = sums[_MISSED, n] / max(sums[_REQUESTS, n], 1e-300)
        if sums[_REFERENCE_USD, n] > 0.0:
            told[_PERCENT, n] = 100.0 * (sums[_USD, n] / sums[_REFERENCE_USD, n] - 1.0)


class Days:
    """What N days have come to so far.

    Parameters
    ----------
    instances : sequence of Instance
        Of each episode.
    has_reference : bool
        Whether days are compared with another agent's.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> Days([instance], has_reference=False).told()
    {'missed_usd': array([[0.]]), 'day_usd': array([0.]), 'day_miss_share': array([0.])}
    """

    def __init__(self, instances: Sequence[Instance], has_reference: bool):
        parameters = [window_model(instance).problem.parameters for instance in instances]
        count, workloads = len(instances), instances[0].num_workloads
        self._has_reference = has_reference
        self._nothing_usd = np.zeros(count)
        self._totals = _Totals(
            lead=np.array([instance.lead for instance in instances]),
            clock=np.stack([one.clock for one in parameters]),
            usd=np.stack([one.workload[[UNSERVED_USD, LATE_USD]] for one in parameters]),
            before_rps=np.zeros((count, workloads)),
            sums=np.zeros((4, count)),
            told=np.zeros((3, count)),
            missed_usd=np.zeros((count, workloads)),
        )
        self._packed = _packer.pack(self._totals)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._packed = _packer.pack(self._totals)

    def begin(self, money: np.ndarray, rows: np.ndarray) -> None:
        """Begin the days in `rows`, bool (N,); `money` (N, ...) is that of `EpisodeBatch.blocks`."""
        totals = self._totals
        first = _SHARES + 2 * totals.before_rps.shape[1]
        totals.before_rps[rows] = money[rows, first : first + totals.before_rps.shape[1]]
        totals.sums[:, rows] = totals.told[:, rows] = 0.0
        totals.missed_usd[rows] = 0.0

    def add(self, money: np.ndarray, reference_usd: np.ndarray | None = None) -> None:
        """Add a window, and what the reference has paid for it, (N,) USD."""
        add_window(self._packed.words, money, self._nothing_usd if reference_usd is None else reference_usd)

    def told(self) -> dict[str, np.ndarray]:
        """Return what infos say of it, each (N, ...)."""
        usd, percent, miss_share = self._totals.told.copy()
        told = {"missed_usd": self._totals.missed_usd.copy(), "day_usd": usd, "day_miss_share": miss_share}
        return {**told, "day_percent": percent} if self._has_reference else told

    def told_of(self, n: int) -> dict[str, Any]:
        """Return what the infos of one episode say of it."""
        usd, percent, miss_share = self._totals.told[:, n].tolist()
        told = {"missed_usd": self._totals.missed_usd[n].copy(), "day_usd": usd, "day_miss_share": miss_share}
        if self._has_reference:
            told["day_percent"] = percent
        return told

    def save(self) -> tuple[np.ndarray, ...]:
        """Return a copy of what it remembers."""
        totals = self._totals
        return tuple(part.copy() for part in (totals.before_rps, totals.sums, totals.told, totals.missed_usd))

    def restore(self, saved: tuple[np.ndarray, ...]) -> None:
        """Go back to where it was at `save`."""
        totals = self._totals
        parts = (totals.before_rps, totals.sums, totals.told, totals.missed_usd)
        for part, value in zip(parts, saved, strict=True):
            part[:] = value
