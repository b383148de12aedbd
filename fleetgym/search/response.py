"""Find the cheapest part of some slots, given the others, by dynamic programming over time.

The others' serving replicas are taken as they were, and start-ups are simplified, so the answer is a proposal, which
only the full model can confirm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.search.rollouts import KnownScenario


@dataclasses.dataclass(frozen=True, eq=False)
class _Corridor:
    """The L options that a slot may serve with in each of n windows, and what it costs to change between them."""

    option: np.ndarray  # (n, L) int64
    allowed: np.ndarray  # (n, L) bool
    entry_usd: np.ndarray  # (L,) to the first window's
    usd: np.ndarray  # (n - 1, L, L) from each to each
    exit_usd: np.ndarray  # (L,) from the last window's


class Responder:
    """Proposes options of some slots for an interval of windows.

    Parameters
    ----------
    known : KnownScenario
        The task.
    """

    def __init__(self, known: KnownScenario):
        self.known, self.model = known, known.model
        self.members = [np.array(m) for m in known.instance.slot_members]

    def options(self, slot: int, offsets: Sequence[int]) -> int:
        """Return how many options of a slot are tried in a window."""
        return self.members[slot].size + 1 if self._is_exclusive(slot) else len(offsets)

    def respond(
        self,
        slots: Sequence[int],
        begin: int,
        end: int,
        serving: np.ndarray,
        held: np.ndarray,
        offsets: Sequence[int],
    ) -> np.ndarray:
        """Return the options of some slots to ask for in windows [begin, end), (end - begin, slots).

        Parameters
        ----------
        slots : sequence of int
        begin, end : int
        serving, held : ndarray of int, shape (T, C)
            Replicas of every configuration in every window as they are now.
        offsets : sequence of int
            Replicas more than now, or less, that are tried in each window; of an exclusive slot every option is.
        """
        path = self.cheapest_path(slots, begin, end, serving, held, offsets)
        asked = [
            self._targets(slot, path[:, n], self._serving_options(slot, serving[end:]))
            for n, slot in enumerate(slots)
        ]
        return np.stack(asked, axis=1)

    def asked(self, serving: np.ndarray) -> np.ndarray:
        """Return the options to ask for so that these replicas serve in all windows, (T, slots).

        Parameters
        ----------
        serving : ndarray of int, shape (T, C)
        """
        nothing = serving[:0, 0]
        paths = [self._serving_options(slot, serving) for slot in range(len(self.members))]
        return np.stack([self._targets(slot, path, nothing) for slot, path in enumerate(paths)], axis=1)

    def cheapest_path(
        self,
        slots: Sequence[int],
        begin: int,
        end: int,
        serving: np.ndarray,
        held: np.ndarray,
        offsets: Sequence[int],
    ) -> np.ndarray:
        """Return the options that should serve in windows [begin, end), (end - begin, slots); arguments as `respond`.

        The way there begins and ends with what serves before and after.
        """
        corridors = [self._corridor(slot, begin, end, serving, offsets) for slot in slots]
        window_usd = self._window_usd(slots, corridors, begin, serving[begin:end], held[begin:end])
        value, choices = window_usd[0] + _sum([c.entry_usd for c in corridors]), []
        moves = [_spread(c.usd, n, value.shape) for n, c in enumerate(corridors)]
        for t in range(1, end - begin):
            before = []
            for n, (shape, usd) in enumerate(moves):
                # one slot after the other moves: what it costs is a sum over slots
                total = value.reshape(shape) + usd[t - 1]
                before.append(total.argmin(axis=n))
                value = total.min(axis=n)
            choices.append(before)
            value = value + window_usd[t]
        value = value + _sum([c.exit_usd for c in corridors])
        path = [list(np.unravel_index(int(np.argmin(value)), value.shape))]
        for before in reversed(choices):
            at = list(path[-1])
            for n in reversed(range(len(slots))):
                at[n] = before[n][tuple(at)]
            path.append(at)
        place = np.array(path[::-1])
        rows = np.arange(end - begin)
        return np.stack([c.option[rows, place[:, n]] for n, c in enumerate(corridors)], axis=1)

    def _corridor(
        self, slot: int, begin: int, end: int, serving: np.ndarray, offsets: Sequence[int]
    ) -> _Corridor:
        """Return what a slot may do in [begin, end)."""
        now = self._serving_options(slot, serving)
        entry = now[begin - 1] if begin else self._serving_options(slot, self._nominal())[0]
        option, allowed = self._options(slot, now[begin:end], offsets)
        starting_usd = self._starting_usd(slot, option, begin, begin)
        exit_usd = np.zeros(option.shape[1])
        if end < len(now):
            after = now[end : end + 1]
            last_usd = self._starting_usd(slot, after[None], end, begin)[0]
            exit_usd = _paid(self._starts(slot, option[-1], after), last_usd)[:, 0]
        return _Corridor(
            option,
            allowed,
            _paid(self._starts(slot, np.array([entry]), option[0]), starting_usd[0])[0],
            _paid(self._starts(slot, option[:-1], option[1:]), starting_usd[1:, None, :]),
            exit_usd,
        )

    def _nominal(self) -> np.ndarray:
        return np.array(self.model.instance.nominal_fleet)[None]

    def _serving_options(self, slot: int, serving: np.ndarray) -> np.ndarray:
        """Return what a slot serves as options, (T,)."""
        part = serving[:, self.members[slot]]
        if not self._is_exclusive(slot):
            return part[:, 0]
        return np.where(part.any(axis=1), part.argmax(axis=1) + 1, 0)

    def _options(self, slot: int, now: np.ndarray, offsets: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the options to try in each window, and which of them there are, (n, L) each."""
        if self._is_exclusive(slot):
            option = np.broadcast_to(
                np.arange(self.options(slot, offsets)), (now.size, self.options(slot, offsets))
            )
            return option, np.ones(option.shape, dtype=bool)
        most = self.model.instance.configurations[self.members[slot][0]].max_replicas
        option = now[:, None] + np.array(offsets)
        return np.clip(option, 0, most), (option >= 0) & (option <= most)

    def _is_exclusive(self, slot: int) -> bool:
        return bool(self.model.problem.slot_exclusive[slot])

    def _fleets(self, slot: int, option: np.ndarray) -> np.ndarray:
        """Return the replicas of the slot's members that options mean, (n, L, m)."""
        if not self._is_exclusive(slot):
            return option[:, :, None]
        return (option[:, :, None] == np.arange(1, self.members[slot].size + 1)).astype(np.int64)

    def _starts(self, slot: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return how many replicas start from each option to each other, (..., A, B)."""
        before, after = before[..., :, None], after[..., None, :]
        if self._is_exclusive(slot):
            return ((before != after) & (after > 0)).astype(np.int64)
        return np.maximum(0, after - before)

    def _starting_usd(self, slot: int, option: np.ndarray, first: int, begin: int) -> np.ndarray:
        """Return fee and rent of one start that lets an option serve from each window on, (n, L).

        Infinite where the start would have to come before `begin`, or in window 0, in which replicas serve at once.
        """
        members = self.members[slot]
        c = (
            members[np.maximum(option, 1) - 1]
            if self._is_exclusive(slot)
            else np.full(option.shape, members[0])
        )
        t = np.arange(first, first + len(option))[:, None]
        wait = np.where(t > 0, self.model.startup_windows[c], 0)
        too_early = (wait > 0) & (t - wait < max(1, begin))
        return np.where(too_early, np.inf, self.known.start_usd[t, c])

    def _window_usd(
        self,
        slots: Sequence[int],
        corridors: list[_Corridor],
        begin: int,
        serving: np.ndarray,
        held: np.ndarray,
    ) -> np.ndarray:
        """Return rent and operating cost of windows by options, (n, L of each slot); inf where GPUs are missing."""
        use = self.model.problem.gpu_use
        members = np.concatenate([self.members[slot] for slot in slots])
        shape = [c.option.shape[1] for c in corridors]
        places = np.indices(shape).reshape(len(slots), -1)  # (slots, S)
        parts = zip(slots, corridors, places, strict=True)
        fleets = np.concatenate([self._fleets(slot, c.option)[:, at] for slot, c, at in parts], axis=2)
        allowed = np.logical_and.reduce([c.allowed[:, at] for c, at in zip(corridors, places, strict=True)])
        others = held.copy()
        others[:, members] = 0
        window = slice(begin, begin + len(serving))
        room = self.known.available[window] - others @ use.T
        needed = fleets @ use[:, members].T
        fits = np.all(needed <= room[:, None, :], axis=2) | ~fleets.any(axis=2)
        usd = self.known.price_options(begin, serving, members, fleets, fits & allowed)
        usd += (fleets @ self.known.hold_usd[window][:, members, None])[:, :, 0]
        return usd.reshape(len(serving), *shape)

    def _targets(self, slot: int, path: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return the options to ask for so that those of `path` serve: early by the time it takes to start."""
        members = self.members[slot]
        ahead = np.concatenate([path, after])
        if not self._is_exclusive(slot):
            wait = int(self.model.startup_windows[members[0]])
            padded = np.concatenate([ahead, np.zeros(wait, dtype=ahead.dtype)])
            return np.lib.stride_tricks.sliding_window_view(padded, wait + 1)[: path.size].max(axis=1)
        targets = path.copy()
        for t in np.flatnonzero(np.diff(ahead)) + 1:
            if ahead[t]:
                wait = int(self.model.startup_windows[members[ahead[t] - 1]])
                targets[max(0, t - wait) : min(t, path.size)] = ahead[t]
        return targets


def _spread(usd: np.ndarray, axis: int, shape: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray]:
    """Return shapes in which values before a change of one slot, and (n, A, B) what it costs, add up."""
    before, after = shape[:axis], shape[axis + 1 :]
    ones = [1] * len(before), [1] * len(after)
    return (*before, shape[axis], 1, *after), usd.reshape(len(usd), *ones[0], *usd.shape[1:], *ones[1])


def _sum(parts: list[np.ndarray]) -> np.ndarray:
    """Return every sum of one value of each part, an axis for each part."""
    total = np.zeros(())
    for part in parts:
        total = total[..., None] + part
    return total


def _paid(starts: np.ndarray, usd: np.ndarray) -> np.ndarray:
    """Return what starts cost at a price for each option that they lead to; none cost nothing."""
    return starts * np.where(starts > 0, usd, 0.0)
