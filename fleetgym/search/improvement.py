"""Improve actions for a known scenario by hill climbing on the full cost.

Groups of slots give their best answer to all the others; whole fleets are chosen from some for each window; small
random moves are tried. What has brought more is tried more often (adaptive large neighbourhood search; Ropke and
Pisinger, Transportation Science 40(4), 2006). This is for best-known costs: it looks at the whole future,
so it is no agent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.search.fleets import CHANGES, FleetPools
from fleetgym.search.response import Responder
from fleetgym.search.rollouts import KnownScenario

_NEAR, _WIDE = (-2, -1, 0, 1, 2), (-8, -4, -2, -1, 0, 1, 2, 4, 8)
#: How many slots answer together over the whole episode, and how many replicas more each tries.
_GROUPS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (1, _NEAR),
    (1, _WIDE),
    (2, _NEAR),
    (2, _WIDE),
    (3, _NEAR),
    (3, (-6, -3, -1, 0, 1, 3, 6)),
    (5, (-1, 0, 1)),
)
_BURST_OF_MOVES, _WHOLE_FLEETS = len(_GROUPS), len(_GROUPS) + 1  # kinds of change beside the groups'
_MOST_OPTIONS = 400  # that a group tries in a window
_DRAWS = 100  # of slots until a group is found that has not answered since the last change
_USED = 0.8  # how often a slot is drawn from those in use
_EVEN = 0.2  # share of the choices of a neighbourhood that do not look at what it has brought
_REMEMBERED = 0.9  # weight of what it brought before, against the last time
_EXPECTED = 1e-6  # of the cost: what each is credited with before it is tried
_BURST = 50  # moves at once
_LENGTHS = (1, 1, 2, 2, 3, 3, 6, 6, 12, 12, 24, 24, 48, 288)  # windows that a move changes
_LONGEST_ANSWER = 24  # windows in which a slot answers a move of the others
_ANSWERED = 0.5  # share of moves that are answered
_APART = 3  # windows without a difference, between intervals that are tried one by one


@dataclasses.dataclass(frozen=True)
class Improvement:
    """What the search found."""

    actions: np.ndarray  # (windows, slots)
    cost_usd: float
    start_usd: float
    moves: int  # tried
    accepted: int
    steps: int  # windows played or routed


class _Sequence:
    """Actions with the state before and the cost of every window, so that a move replays only what it changes."""

    def __init__(self, instance: Instance, scenario: Scenario, actions: np.ndarray):
        self.known, self.space = KnownScenario(instance, scenario), ActionSpace(instance)
        self.responder = Responder(self.known)
        self.actions = np.array(actions, dtype=np.int64)
        self.targets = self.space.to_fleets(self.actions)
        self.most = np.array([c.max_replicas for c in instance.configurations])
        self.track, self._trial = self.known.new_track(), self.known.new_track()
        self.known.play(self.targets, 0, instance.num_windows, math.inf, self._trial, self.track)
        self._followed = self.track.serving[:0]  # what was wanted to serve last, in vain or not

    @property
    def cost_usd(self) -> float:
        return math.fsum(self.track.cost_usd)

    @property
    def steps(self) -> int:
        return self.known.steps

    def try_actions(self, begin: int, end: int, changed: np.ndarray) -> bool:
        """Take over `changed`, which differs within [begin, end) only, if it costs less."""
        old, new = self.track, self._trial
        targets = self.targets.copy()
        targets[begin:end] = self.space.to_fleets(changed[begin:end])
        limit = old.cost_usd[begin:].sum() * (1.0 - 1e-12)
        stop = self.known.play(targets, begin, end, limit, old, new)
        if new.cost_usd[begin:stop].sum() >= old.cost_usd[begin:stop].sum() - 1e-12 * limit:
            return False
        self.actions, self.targets = changed, targets
        for ours, theirs in ((old.fleet, new.fleet), (old.spent_usd, new.spent_usd)):
            ours[begin + 1 : stop + 1] = theirs[begin + 1 : stop + 1]
        for ours, theirs in ((old.cost_usd, new.cost_usd), (old.serving, new.serving)):
            ours[begin:stop] = theirs[begin:stop]
        return True

    def serving_in(self, actions: np.ndarray) -> np.ndarray:
        """Return what serves if these actions are played, (T, C)."""
        self.known.play(self.space.to_fleets(actions), 0, len(actions), math.inf, self.track, self._trial)
        return self._trial.serving.copy()

    # -- best responses

    def respond(
        self,
        slots: Sequence[int],
        begin: int,
        end: int,
        offsets: Sequence[int],
        changed: np.ndarray | None = None,
    ) -> bool:
        """Replace some slots' actions in [begin, end) by the best given the others', if that costs less.

        With `changed`, other slots' actions are first taken from there.
        """
        actions = self.actions.copy() if changed is None else changed
        serving = self.track.serving
        if changed is not None:
            serving = serving.copy()
            serving[begin:end] += self.space.to_fleets(changed[begin:end]) - self.targets[begin:end]
            np.clip(serving, 0, self.most, out=serving)
        longest = (self.track.fleet.shape[2] - 1) // 2
        held = np.maximum(serving, self.track.fleet[1:, :, : longest + 1].sum(axis=2))
        actions[begin:end, list(slots)] = self.responder.respond(slots, begin, end, serving, held, offsets)
        return not np.array_equal(actions, self.actions) and self.try_actions(begin, end, actions)

    # -- whole fleets

    def follow(self, serving: np.ndarray) -> bool:
        """Let these fleets serve, (T, C), or in some intervals at least, where that costs less."""
        if np.array_equal(serving, self._followed):
            return False
        self._followed = serving
        changed = self.responder.asked(serving)
        different = np.flatnonzero(np.any(changed != self.actions, axis=1))
        if different.size == 0 or self.try_actions(0, len(changed), changed):
            return different.size > 0
        won = False
        for part in np.split(different, np.flatnonzero(np.diff(different) > _APART) + 1):
            begin, end = int(part[0]), int(part[-1]) + 1
            some = self.actions.copy()
            some[begin:end] = changed[begin:end]
            won = self.try_actions(begin, end, some) or won
        return won


# -- moves: each changes windows [begin, end) of `actions` in place


@dataclasses.dataclass(frozen=True)
class _Dice:
    """Random choices: slots that anybody uses come up more often than the others."""

    rng: np.random.Generator
    nvec: np.ndarray  # options of each slot
    used: np.ndarray  # slots

    def slot(self) -> int:
        """Return a slot."""
        if self.used.size and self.rng.random() < _USED:
            return int(self.used[self.rng.integers(self.used.size)])
        return int(self.rng.integers(self.nvec.size))

    def chance(self, share: float) -> bool:
        """Return True in a share of the cases."""
        return bool(self.rng.random() < share)


def _nudge(dice: _Dice, actions: np.ndarray, begin: int, end: int) -> None:
    """One slot one option up or down."""
    slot = dice.slot()
    moved = actions[begin:end, slot] + (1 if dice.chance(0.5) else -1)
    actions[begin:end, slot] = np.clip(moved, 0, dice.nvec[slot] - 1)


def _exchange(dice: _Dice, actions: np.ndarray, begin: int, end: int) -> None:
    """One slot up, another one down."""
    up, down = dice.slot(), dice.slot()
    actions[begin:end, up] = np.minimum(actions[begin:end, up] + 1, dice.nvec[up] - 1)
    actions[begin:end, down] = np.maximum(actions[begin:end, down] - 1, 0)


def _set(dice: _Dice, actions: np.ndarray, begin: int, end: int) -> None:
    """One slot to any option: exclusive slots need jumps."""
    slot = dice.slot()
    actions[begin:end, slot] = dice.rng.integers(dice.nvec[slot])


def _hold(dice: _Dice, actions: np.ndarray, begin: int, end: int) -> None:
    """One slot, or all, keep what they had before, or take early what they have after."""
    last = len(actions) - 1
    source = begin - 1 if begin > 0 and (end > last or dice.chance(0.5)) else min(end, last)
    slots = slice(None) if dice.chance(0.3) else dice.slot()
    actions[begin:end, slots] = actions[source, slots]


def _shift(dice: _Dice, actions: np.ndarray, begin: int, end: int) -> None:
    """Do the same a few windows earlier or later."""
    by = int(dice.rng.choice([-3, -2, -1, 1, 2, 3]))
    source = np.clip(np.arange(begin, end) + by, 0, len(actions) - 1)
    actions[begin:end] = actions[source]


_MOVES: tuple[Callable[..., None], ...] = (_nudge, _nudge, _exchange, _set, _hold, _shift)


def improve(
    instance: Instance,
    scenario: Scenario,
    actions: np.ndarray,
    *,
    others: Sequence[np.ndarray] = (),
    max_steps: int = 100_000,
    seed: int = 0,
) -> Improvement:
    """Search for cheaper actions near the given ones.

    Parameters
    ----------
    instance, scenario
        The task; the scenario is known throughout.
    actions : ndarray of int, shape (windows, slots)
        Where the search begins.
    others : sequence of ndarray
        Actions of other agents, from which intervals are copied, and fleets of single windows.
    max_steps : int
        Windows to play or route: the bound on the work. The last change that is tried may go beyond it.
    seed : int
        The same seed finds the same.

    Returns
    -------
    Improvement
        Never more expensive than the start.
    """
    found = _Sequence(instance, scenario, actions)
    dice = _Dice(np.random.default_rng(seed), found.space.nvec, _in_use(actions, *others))
    start_usd, moves, accepted = found.cost_usd, 0, 0
    work = [len(offsets) ** count for count, offsets in _GROUPS] + [len(_NEAR), CHANGES]
    neighbourhoods = _Neighbourhoods(np.array(work) * instance.num_windows, _EXPECTED * start_usd)
    pools = FleetPools(found.known, [found.serving_in(other) for other in others])
    answered: set[_Group] = set()  # whose answer to all the others is known
    closed: set[int] = set()  # kinds of which no other group is left
    for slot in [*dice.used, *range(dice.nvec.size)]:
        if found.steps < max_steps:
            moves, accepted = moves + 1, accepted + found.respond((slot,), 0, instance.num_windows, _NEAR)
    while found.steps < max_steps:
        before_usd, steps = found.cost_usd, found.steps
        kind = neighbourhoods.choose(dice, closed)
        if kind == _BURST_OF_MOVES:
            won = [_move(found, dice, others) for _ in range(_BURST) if found.steps < max_steps]
        elif kind == _WHOLE_FLEETS:
            won = [found.follow(pools.propose(dice.rng, found.track.serving))]
        elif (group := _group(found, dice, *_GROUPS[kind], answered)) is not None:
            answered.add(group)
            won = [found.respond(group[0], 0, instance.num_windows, group[1])]
        else:
            closed.add(kind)
            continue
        moves, accepted = moves + len(won), accepted + sum(won)
        if any(won):
            answered.clear()
            closed.clear()
            dice = dataclasses.replace(dice, used=_in_use(found.actions, *others))
        neighbourhoods.learn(kind, before_usd - found.cost_usd, found.steps - steps)
    return Improvement(found.actions, found.cost_usd, start_usd, moves, accepted, found.steps)


class _Neighbourhoods:
    """Which kind of change to try next: more often one that has brought more per window of work."""

    def __init__(self, work: np.ndarray, expected_usd: float):
        self.gained_usd, self.work = np.full(len(work), expected_usd), work.astype(float)

    def choose(self, dice: _Dice, closed: set[int]) -> int:
        """Return a kind that is not closed."""
        is_open = np.array([kind not in closed for kind in range(self.work.size)])
        rate = np.where(is_open, self.gained_usd / self.work, 0.0)
        even, total = is_open / is_open.sum(), rate.sum()
        share = rate / total if total > 0 else even
        return int(dice.rng.choice(rate.size, p=_EVEN * even + (1.0 - _EVEN) * share))

    def learn(self, kind: int, gained_usd: float, work: int) -> None:
        """Take note of what a kind has brought."""
        self.gained_usd[kind] = _REMEMBERED * self.gained_usd[kind] + gained_usd
        self.work[kind] = _REMEMBERED * self.work[kind] + work


def _in_use(*actions: np.ndarray) -> np.ndarray:
    """Return the slots that any of some episodes' actions ask for."""
    return np.flatnonzero(np.any([np.any(a, axis=0) for a in actions], axis=0))


_Group = tuple[tuple[int, ...], tuple[int, ...]]


def _group(
    found: _Sequence, dice: _Dice, count: int, offsets: tuple[int, ...], answered: set[_Group]
) -> _Group | None:
    """Return slots that have not answered all the others together since the last change; None: hardly any are left."""
    for _ in range(_DRAWS):
        slots = tuple(sorted({dice.slot() for _ in range(count)}))
        options = math.prod(found.responder.options(slot, offsets) for slot in slots)
        if (slots, offsets) not in answered and (len(slots) == 1 or options <= _MOST_OPTIONS):
            return slots, offsets
    return None


def _move(found: _Sequence, dice: _Dice, others: Sequence[np.ndarray]) -> bool:
    """Try one change of a few windows; return whether it was for the better."""
    changed, windows = found.actions.copy(), len(found.actions)
    begin = int(dice.rng.integers(windows))
    end = min(windows, begin + int(dice.rng.choice(_LENGTHS)))
    if dice.chance(_ANSWERED):
        end = min(end, begin + _LONGEST_ANSWER)
        _MOVES[int(dice.rng.integers(len(_MOVES)))](dice, changed, begin, end)
        return found.respond((dice.slot(),), begin, end, _NEAR, changed)
    kind = int(dice.rng.integers(len(_MOVES) + bool(others)))
    if kind == len(_MOVES):
        changed[begin:end] = others[int(dice.rng.integers(len(others)))][begin:end]
    else:
        _MOVES[kind](dice, changed, begin, end)
    if np.array_equal(changed, found.actions):
        found.known.steps += 1  # or a search with nothing to try would never end
        return False
    return found.try_actions(begin, end, changed)
