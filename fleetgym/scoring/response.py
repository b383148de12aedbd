"""One slot's part of a played episode in, its cheapest part given all the others out: dynamic programming over time.

The others' serving replicas are taken as they were, and start-ups are simplified, so the answer is a proposal, which
only the full model can confirm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym.window import Outcome, Router, WindowModel


class Responder:
    """Proposes options of one slot for an interval of windows.

    Parameters
    ----------
    model : WindowModel
    outcomes : sequence of Outcome
        Of every window.
    router : Router
    reach : int
        Replicas more or less than now that are tried; of an exclusive slot every option is.
    """

    def __init__(self, model: WindowModel, outcomes: Sequence[Outcome], router: Router, reach: int = 2):
        self.model, self.outcomes, self.router, self.reach = model, outcomes, router, reach
        self.members = [np.array(m) for m in model.instance.slot_members]
        self.hold = np.array([model.hold_usd(outcome.price_factor) for outcome in outcomes])
        self.paid = np.vstack([np.zeros(self.hold.shape[1]), np.cumsum(self.hold, axis=0)])
        self.available = np.array([outcome.available_gpus for outcome in outcomes])
        self.routings = 0

    def respond(self, slot: int, begin: int, end: int, serving: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Return options of a slot, (end - begin,), for windows [begin, end).

        Parameters
        ----------
        slot, begin, end : int
        serving, held : ndarray of int, shape (T, C)
            Replicas of every configuration in every window as they are now.
        """
        now = self._options(slot, serving)
        levels = self._levels(slot, now[begin:end])
        entry = now[begin - 1] if begin else self._options(slot, self.model.instance.nominal_fleet[None])[0]
        value = np.array([self._arrival_usd(slot, entry, levels, begin, begin)])[0]
        choices = []
        for t in range(begin, end):
            value = value + self._window_usd(slot, t, levels, serving[t], held[t])
            if t + 1 < end:
                step = np.array([self._arrival_usd(slot, a, levels, t + 1, begin) for a in levels])
                total = value[:, None] + step
                choices.append(total.argmin(axis=0))
                value = total.min(axis=0)
        if end < len(self.outcomes):
            value = value + [self._arrival_usd(slot, a, now[end : end + 1], end, begin)[0] for a in levels]
        path = [int(np.argmin(value))]
        for choice in reversed(choices):
            path.append(int(choice[path[-1]]))
        return self._targets(slot, levels[path[::-1]], now[end:])

    def _options(self, slot: int, serving: np.ndarray) -> np.ndarray:
        """Return what a slot serves as options, (T,)."""
        part = serving[:, self.members[slot]]
        if not self.model.problem.slot_exclusive[slot]:
            return part[:, 0]
        return np.where(part.any(axis=1), part.argmax(axis=1) + 1, 0)

    def _levels(self, slot: int, now: np.ndarray) -> np.ndarray:
        members = self.members[slot]
        if self.model.problem.slot_exclusive[slot]:
            return np.arange(members.size + 1)
        most = self.model.instance.configurations[members[0]].max_replicas
        return np.arange(max(0, now.min() - self.reach), min(most, now.max() + self.reach) + 1)

    def _fleet(self, slot: int, option: int) -> np.ndarray:
        """Return the replicas of the slot's members that an option means."""
        if not self.model.problem.slot_exclusive[slot]:
            return np.array([option])
        fleet = np.zeros(self.members[slot].size, dtype=np.int64)
        if option:
            fleet[option - 1] = 1
        return fleet

    def _arrival_usd(self, slot: int, before: int, levels: np.ndarray, t: int, begin: int) -> np.ndarray:
        """Return fees and rent of the starts that let options serve from window t on, (levels,)."""
        members, old = self.members[slot], self._fleet(slot, before)
        usd = np.zeros(len(levels))
        for k, option in enumerate(levels):
            new = np.maximum(0, self._fleet(slot, int(option)) - old)
            for c, count in zip(members[new > 0], new[new > 0], strict=True):
                wait = int(self.model.startup_windows[c]) if t else 0
                if t - wait < (begin if wait else 0) or (t and wait and t - wait < 1):
                    usd[k] = np.inf
                else:
                    usd[k] += count * (self.model.startup_usd[c] + self.paid[t, c] - self.paid[t - wait, c])
        return usd

    def _window_usd(
        self, slot: int, t: int, levels: np.ndarray, serving: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        """Return rent and operating cost of one window by option, (levels,); inf where GPUs are missing."""
        members, use = self.members[slot], self.model.problem.gpu_use
        others = held.copy()
        others[members] = 0
        room = self.available[t] - use @ others
        usd = np.full(len(levels), np.inf)
        for k, option in enumerate(levels):
            fleet = self._fleet(slot, int(option))
            if np.all(use[:, members] @ fleet <= room) or not fleet.any():
                tried = serving.copy()
                tried[members] = fleet
                terms = self.model.operate(tried, self.outcomes[t], self.router)[0]
                usd[k] = terms.sum() + fleet @ self.hold[t, members]
                self.routings += 1
        return usd

    def _targets(self, slot: int, path: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return the options to ask for so that those of `path` serve: early by the time it takes to start."""
        members = self.members[slot]
        ahead = np.concatenate([path, after])
        if not self.model.problem.slot_exclusive[slot]:
            wait = int(self.model.startup_windows[members[0]])
            return np.array([ahead[t : t + wait + 1].max() for t in range(path.size)])
        targets = path.copy()
        for t in range(1, ahead.size):
            if ahead[t] != ahead[t - 1] and ahead[t]:
                wait = int(self.model.startup_windows[members[ahead[t] - 1]])
                targets[max(0, t - wait) : min(t, path.size)] = ahead[t]
        return targets
