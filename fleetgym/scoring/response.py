"""One slot's part of a played episode in, its cheapest part given all the others out: dynamic programming over time.

The others' serving replicas are taken as they were, and start-ups are simplified, so the answer is a proposal, which
only the full model can confirm.
"""

from __future__ import annotations

import numpy as np

from fleetgym.scoring.rollouts import KnownScenario


class Responder:
    """Proposes options of one slot for an interval of windows.

    Parameters
    ----------
    known : KnownScenario
        The task.
    reach : int
        Replicas more or less than now that are tried; of an exclusive slot every option is.
    """

    def __init__(self, known: KnownScenario, reach: int = 2):
        self.known, self.model, self.reach = known, known.model, reach
        self.members = [np.array(m) for m in known.instance.slot_members]
        self.paid = np.vstack([np.zeros(known.hold_usd.shape[1]), np.cumsum(known.hold_usd, axis=0)])

    def respond(self, slot: int, begin: int, end: int, serving: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Return the options of a slot to ask for in windows [begin, end), (end - begin,).

        Parameters
        ----------
        slot, begin, end : int
        serving, held : ndarray of int, shape (T, C)
            Replicas of every configuration in every window as they are now.
        """
        path = self.cheapest_path(slot, begin, end, serving, held)
        return self._targets(slot, path, self._options(slot, serving[end:]))

    def cheapest_path(
        self, slot: int, begin: int, end: int, serving: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        """Return the options that should serve in windows [begin, end), (end - begin,); arguments as `respond`.

        The way there begins and ends with what serves before and after.
        """
        now = self._options(slot, serving)
        levels = self._levels(slot, now[begin:end])
        entry = now[begin - 1] if begin else self._options(slot, self.model.instance.nominal_fleet[None])[0]
        starting_usd = self._starting_usd(slot, levels, begin, end)
        window_usd = self._window_usd(slot, levels, begin, serving[begin:end], held[begin:end])
        starts = self._starts(slot, levels, levels)
        value = _paid(self._starts(slot, np.array([entry]), levels), starting_usd[0])[0] + window_usd[0]
        choices = []
        for t in range(1, end - begin):
            total = value[:, None] + _paid(starts, starting_usd[t])
            choices.append(total.argmin(axis=0))
            value = total.min(axis=0) + window_usd[t]
        if end < len(now):
            back = self._starting_usd(slot, now[end : end + 1], begin, end)[-1]
            value = value + _paid(self._starts(slot, levels, now[end : end + 1]), back)[:, 0]
        path = [int(np.argmin(value))]
        for choice in reversed(choices):
            path.append(int(choice[path[-1]]))
        return levels[path[::-1]]

    def _options(self, slot: int, serving: np.ndarray) -> np.ndarray:
        """Return what a slot serves as options, (T,)."""
        part = serving[:, self.members[slot]]
        if not self._is_exclusive(slot):
            return part[:, 0]
        return np.where(part.any(axis=1), part.argmax(axis=1) + 1, 0)

    def _levels(self, slot: int, now: np.ndarray) -> np.ndarray:
        members = self.members[slot]
        if self._is_exclusive(slot):
            return np.arange(members.size + 1)
        most = self.model.instance.configurations[members[0]].max_replicas
        return np.arange(max(0, now.min() - self.reach), min(most, now.max() + self.reach) + 1)

    def _is_exclusive(self, slot: int) -> bool:
        return bool(self.model.problem.slot_exclusive[slot])

    def _fleets(self, slot: int, options: np.ndarray) -> np.ndarray:
        """Return the replicas of the slot's members that options mean, (L, m)."""
        if not self._is_exclusive(slot):
            return options[:, None]
        return (options[:, None] == np.arange(1, self.members[slot].size + 1)).astype(np.int64)

    def _starts(self, slot: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return how many replicas start from each option to each other, (A, B)."""
        if self._is_exclusive(slot):
            return ((before[:, None] != after) & (after > 0)).astype(np.int64)
        return np.maximum(0, after - before[:, None])

    def _starting_usd(self, slot: int, levels: np.ndarray, begin: int, end: int) -> np.ndarray:
        """Return fee and rent of one start that lets an option serve from each window on, (end - begin + 1, L).

        Infinite where the start would have to come before `begin`, or in window 0, in which replicas serve at once.
        """
        members = self.members[slot]
        c = (
            members[np.maximum(levels, 1) - 1]
            if self._is_exclusive(slot)
            else np.repeat(members, levels.size)
        )
        t = np.arange(begin, min(end + 1, len(self.paid)))[:, None]
        wait = np.where(t > 0, self.model.startup_windows[c], 0)
        too_early = (wait > 0) & (t - wait < max(1, begin))
        asked = np.maximum(0, t - wait)
        return np.where(too_early, np.inf, self.model.startup_usd[c] + self.paid[t, c] - self.paid[asked, c])

    def _window_usd(
        self, slot: int, levels: np.ndarray, begin: int, serving: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        """Return rent and operating cost of windows by option, (n, L); inf where GPUs are missing."""
        members, use = self.members[slot], self.model.problem.gpu_use
        fleets = self._fleets(slot, levels)
        others = held.copy()
        others[:, members] = 0
        window = slice(begin, begin + len(serving))
        room = self.known.available[window] - others @ use.T
        needed = fleets @ use[:, members].T
        fits = np.all(needed <= room[:, None, :], axis=2) | ~fleets.any(axis=1)
        operating_usd = self.known.price_options(begin, serving, members, fleets, fits)
        return operating_usd + self.known.hold_usd[window][:, members] @ fleets.T

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


def _paid(starts: np.ndarray, usd: np.ndarray) -> np.ndarray:
    """Return what starts cost, (A, B), at a price for each option that they lead to; none cost nothing."""
    return starts * np.where(starts > 0, usd, 0.0)
