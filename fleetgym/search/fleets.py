"""Improve an episode by dynamic programming over whole fleets, some for every window.

Of each window the fleets are kept that the cheapest ways through all windows lead by. Each round changes some of them,
in all windows alike, so that a change can last. Fleets of near windows and mixtures of two join them. One program then
chooses among all of them: an exponential neighbourhood searched in polynomial time, as in dynasearch (Congram, Potts
and van de Velde, INFORMS Journal on Computing 14(1), 2002). Most changes are differences between two fleets that have
proved good, as in differential evolution (Storn and Price, Journal of Global Optimization 11(4), 1997).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym.kernels.admission import MONEY_TOLERANCE
from fleetgym.kernels.fleet_paths import Passage, cheapest_ways, new_work_space
from fleetgym.search.rollouts import KnownScenario

#: Changes of the best fleet of a window that are tried in a round, in all windows.
CHANGES = 48
_KEPT = 64  # fleets of a window
_DIFFERENCES = 42  # of these are differences between two fleets that are kept for some window
_COPIES = 4  # fleets of a window that are taken from near windows ...
_NEAR = 16  # ... of the cheapest there; ...
_APART = 0.5  # ... how often the next window is the one
_CROSSED = 4  # fleets of a window that are made of two others
_SLOTS, _SLOTS_SHARE = (1, 2, 3, 4), (0.1, 0.3, 0.4, 0.2)  # that a change concerns
_STEPS, _STEPS_SHARE = (-2, -1, 1, 2), (0.15, 0.35, 0.35, 0.15)  # by how many replicas
_USED = 0.8  # how often a slot is drawn from those in use
_DEARER = 1.1  # how much more holding counts after a round that a budget for the episode does not pay ...
_LEAST_SAVING = 0.01  # ... and how much more at least
_TRIED = 4096  # fleets of a window that are remembered as tried
_STEPS_OF_A_WINDOW = 150  # from fleet to fleet, that take as long as a window


class FleetPools:
    """Some fleets for each window, and what operating them costs.

    Parameters
    ----------
    known : KnownScenario
        The task.
    others : sequence of ndarray of int, shape (T, C)
        What served in other episodes: the first fleets to choose from.

    Attributes
    ----------
    fleets : ndarray of int32, shape (T, N, C)
        Replicas that may serve in each window, the best of the last round first.
    operating_usd : ndarray, shape (T, N)
        What a window costs with them, without holding and starting; inf: not to be had.
    """

    def __init__(self, known: KnownScenario, others: Sequence[np.ndarray] = ()):
        self._others = [serving[:, None].astype(np.int32) for serving in others]
        instance = known.instance
        windows, configurations = known.hold_usd.shape
        self.known, self.exclusive = known, known.model.problem.slot_exclusive
        self.most = np.array([c.max_replicas for c in instance.configurations], dtype=np.int32)
        self.members = [np.array(m) for m in instance.slot_members]
        self.slot_of = np.empty(configurations, dtype=np.int64)
        for slot, members in enumerate(self.members):
            self.slot_of[members] = slot
        self.fleets = np.zeros((windows, 0, configurations), dtype=np.int32)
        self.operating_usd = np.zeros((windows, 0))
        self._now = np.zeros((windows, configurations), dtype=np.int32)  # what served in the last round
        self._through_usd = np.full(windows, np.inf)  # what the whole day costs with the worst fleet kept
        self._saving = 0.0  # how much more holding is to count than it costs, for the sake of a budget
        self._mixer = np.random.default_rng(0).integers(2**62, size=(configurations,))
        self._tried = np.full((windows, _TRIED), -1)  # keys; that of the empty fleet is 0

    def propose(self, rng: np.random.Generator, serving: np.ndarray) -> np.ndarray:
        """Try other fleets for a round, and return those of the cheapest way through all windows.

        Parameters
        ----------
        rng : numpy.random.Generator
        serving : ndarray of int, shape (T, C)
            What serves now.

        Returns
        -------
        ndarray of int64, shape (T, C)
            What should serve. What that costs only the full model can tell: drains are simplified.
        """
        now = serving.astype(np.int32)
        candidates = self._candidates(rng, now) if self.fleets.shape[1] else self._others
        self._now = now
        self._add(now[:, None], candidates)
        return self._choose()

    # -- candidates

    def _candidates(self, rng: np.random.Generator, now: np.ndarray) -> list[np.ndarray]:
        """Return fleets to try, (T, ..., C) each, if those serve now."""
        windows, count, _ = self.fleets.shape
        rows = np.arange(windows)[:, None]
        apart = rng.choice((-1, 1), (windows, _COPIES)) * rng.geometric(_APART, (windows, _COPIES))
        near = np.clip(rows + apart, 0, windows - 1)
        copies = self.fleets[near, rng.integers(min(count, _NEAR), size=near.shape)]
        one, other = rng.integers(count, size=(2, windows, _CROSSED))
        mask = (rng.random((windows, _CROSSED, len(self.members))) < 0.5)[:, :, self.slot_of]
        crossed = np.where(mask, self.fleets[rows, one], self.fleets[rows, other])
        return [self._changed(rng), copies, crossed, self._carried(now)]

    def _carried(self, now: np.ndarray) -> np.ndarray:
        """Return what is kept, as far from what serves now as it was from what served before."""
        moved = np.where(self.exclusive[self.slot_of], 0, now - self._now)
        if not moved.any():
            return self.fleets[:, :0]
        return np.clip(self.fleets + moved[:, None], 0, self.most)

    def _changed(self, rng: np.random.Generator) -> np.ndarray:
        """Return the best fleet of each window with changes, which are the same in all windows."""
        kept = np.ones((CHANGES, self.slot_of.size), dtype=bool)
        more = np.zeros(kept.shape, dtype=np.int32)
        self._draw_differences(rng, kept[:_DIFFERENCES], more[:_DIFFERENCES])
        self._draw_changes(rng, kept[_DIFFERENCES:], more[_DIFFERENCES:])
        return np.clip(self.fleets[:, :1] * kept + more, 0, self.most)

    def _draw_differences(self, rng: np.random.Generator, kept: np.ndarray, more: np.ndarray) -> None:
        """Write changes that lead from one fleet of a window to another one of it; an exclusive slot is as there."""
        windows, count, _ = self.fleets.shape
        window = rng.integers(windows, size=len(more))
        one, other = rng.integers(count, size=(2, len(more)))
        to, origin = self.fleets[window, one], self.fleets[window, other]
        more[:] = to - origin
        for slot in np.flatnonzero(self.exclusive):
            members = self.members[slot]
            switched = np.flatnonzero(np.any(more[:, members], axis=1))[:, None]
            kept[switched, members] = False
            more[switched, members] = to[switched, members]

    def _draw_changes(self, rng: np.random.Generator, kept: np.ndarray, more: np.ndarray) -> None:
        """Write changes of a few slots at random."""
        used = np.flatnonzero(np.bincount(self.slot_of, self.fleets.any(axis=(0, 1))))
        for n, count in enumerate(rng.choice(_SLOTS, len(more), p=_SLOTS_SHARE)):
            for _ in range(count):
                anywhere = used.size == 0 or rng.random() >= _USED
                slot = int(rng.integers(len(self.members)) if anywhere else rng.choice(used))
                members = self.members[slot]
                if not self.exclusive[slot]:
                    more[n, members] += rng.choice(_STEPS, p=_STEPS_SHARE)
                    continue
                kept[n, members], more[n, members] = False, 0
                option = int(rng.integers(members.size + 1))
                if option:
                    more[n, members[option - 1]] = 1

    # -- the program

    def _add(self, now: np.ndarray, candidates: list[np.ndarray]) -> None:
        """Let what serves now, (T, 1, C), be the first; price candidates that fit and were not tried before."""
        known, kept = self.known, 1 + self.fleets.shape[1]
        self.fleets = np.concatenate([now, self.fleets, *candidates], axis=1)
        active = np.flatnonzero(self.fleets.any(axis=(0, 1)))
        fleets = self.fleets[:, :, active].astype(np.int64)
        needed = fleets @ known.model.problem.gpu_use[:, active].T
        keys = np.matmul(fleets, self._mixer[active])
        twice = _repeats(keys)
        priced = ~twice & np.all(needed <= known.available[:, None, :], axis=2)
        rows, new = np.arange(len(keys))[:, None], keys[:, kept:]
        place = new & (_TRIED - 1)
        priced[:, kept:] &= self._tried[rows, place] != new
        priced[:, 1:kept] = False
        self._tried[rows, place] = new
        usd = known.price_options(0, np.zeros(known.hold_usd.shape, np.int64), active, fleets, priced)
        usd[:, 1:kept] = np.where(twice[:, 1:kept], np.inf, self.operating_usd)
        self.operating_usd = usd

    def _choose(self) -> np.ndarray:
        """Return the fleets of the cheapest way; keep those of each window that cheap ways lead by."""
        known = self.known
        active = np.flatnonzero(self.fleets.any(axis=(0, 1)))
        fleets, passage = np.ascontiguousarray(self.fleets[:, :, active]), self._passage(active)
        usd = self.operating_usd + np.matmul(fleets, passage.hold_usd[:, :, None])[:, :, 0]
        to_usd, from_usd, last = np.empty(usd.shape), np.empty(usd.shape), np.empty(usd.shape, dtype=np.int64)
        work = new_work_space(passage, fleets)
        steps = cheapest_ways(passage, fleets, usd, self._through_usd, work, to_usd, last, from_usd)
        known.steps += 1 + steps // _STEPS_OF_A_WINDOW
        at = _traced(last, int(np.argmin(to_usd[-1])))
        rows = np.arange(len(usd))
        path = self.fleets[rows, at].astype(np.int64)
        self._save(to_usd[-1, at[-1]] - self.operating_usd[rows, at].sum())
        through = to_usd + from_usd
        best = np.argsort(through, axis=1, kind="stable")[:, :_KEPT]
        if best.shape[1] == _KEPT:
            self._through_usd = np.take_along_axis(through, best[:, -1:], axis=1)[:, 0]
        self.fleets = np.take_along_axis(self.fleets, best[:, :, None], axis=1)
        self.operating_usd = np.take_along_axis(self.operating_usd, best, axis=1)
        return path

    def _passage(self, active: np.ndarray) -> Passage:
        """Return what some configurations cost to hold and start, and what limits them."""
        known, instance = self.known, self.known.instance
        budget, limit_usd = instance.budget, np.inf
        if budget is not None and budget.kind == "rate":
            limit_usd = budget.usd * known.model.hours
            limit_usd += MONEY_TOLERANCE * max(1.0, limit_usd)
        return Passage(
            first=np.array(instance.nominal_fleet, dtype=np.int64)[active],
            start_usd=known.start_usd[:, active] * (1.0 + self._saving),
            wait=known.model.startup_windows[active].astype(np.int64),
            hold_usd=known.hold_usd[:, active] * (1.0 + self._saving),
            gpu_use=np.ascontiguousarray(known.model.problem.gpu_use[:, active]),
            available=known.available,
            limit_usd=limit_usd,
        )

    def _save(self, held_usd: float) -> None:
        """Let holding count more after a way that a budget for the episode does not pay, and less after another."""
        budget = self.known.instance.budget
        if budget is None or budget.kind != "pool":
            return
        if held_usd > budget.usd * (1.0 + self._saving):
            self._saving = self._saving * _DEARER + _LEAST_SAVING
        else:
            self._saving /= _DEARER


def _traced(last: np.ndarray, at: int) -> np.ndarray:
    """Return which fleet of each window is on the best way to one of the last window's, (T,)."""
    way = [at]
    for row in last[:0:-1]:
        way.append(int(row[way[-1]]))
    return np.array(way[::-1])


def _repeats(keys: np.ndarray) -> np.ndarray:
    """Tell which entries of each row, (T, N), are there before in it."""
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    twice = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(twice, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return twice
