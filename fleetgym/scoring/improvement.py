"""A known scenario and actions in, cheaper actions out: hill climbing on the full cost, late requests included.

This is for best-known costs: it looks at the whole future, so it is no agent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.actions import ActionSpace
from fleetgym.instance import Instance, Scenario
from fleetgym.window import FleetState, Outcome, window_model

_LENGTHS = (1, 2, 3, 6, 12, 24, 48, 96, 288)  # windows that a move changes


@dataclasses.dataclass(frozen=True)
class Improvement:
    """What the search found."""

    actions: np.ndarray  # (windows, slots)
    cost_usd: float
    start_usd: float
    moves: int  # tried
    accepted: int
    steps: int  # windows played


class _Sequence:
    """Actions with the state before and the cost of every window, so that a move replays only what it changes."""

    def __init__(self, instance: Instance, scenario: Scenario, actions: np.ndarray):
        self.model = window_model(instance)
        self.router = self.model.new_router()
        self.space = ActionSpace(instance)
        self.outcomes = [Outcome.of(scenario, t) for t in range(instance.num_windows)]
        self.actions = np.array(actions, dtype=np.int64)
        self.states = [self.model.initial_state()] * (instance.num_windows + 1)
        self.costs = np.zeros(instance.num_windows)
        self.steps = 0
        self._adopt(0, *self._play(0, instance.num_windows, self.actions, math.inf))

    @property
    def cost_usd(self) -> float:
        return math.fsum(self.costs)

    def try_actions(self, begin: int, end: int, changed: np.ndarray) -> bool:
        """Take over `changed`, which differs within [begin, end) only, if it costs less."""
        limit = self.costs[begin:].sum() * (1.0 - 1e-12)
        states, costs = self._play(begin, end, changed, limit)
        stop = begin + len(costs)
        if sum(costs) >= self.costs[begin:stop].sum() - 1e-12 * limit or not self._rejoins(stop, states[-1]):
            return False
        self.actions = changed
        self._adopt(begin, states, costs)
        return True

    def _play(
        self, begin: int, end: int, actions: np.ndarray, limit: float
    ) -> tuple[list[FleetState], list[float]]:
        """Play from `begin` until the state is the old one again, the end, or a cost above `limit`."""
        state, states, costs, spent = self.states[begin].copy(), [], [], 0.0
        for t in range(begin, len(self.outcomes)):
            if t >= end and _same(state, self.states[t]):
                break
            target = self.space.to_fleet(actions[t])
            costs.append(self.model.step(state, target, self.outcomes[t], self.router).cost_usd)
            states.append(state.copy())
            self.steps += 1
            spent += costs[-1]
            if spent > limit:
                break
        return states, costs

    def _rejoins(self, stop: int, state: FleetState) -> bool:
        return stop == len(self.outcomes) or _same(state, self.states[stop])

    def _adopt(self, begin: int, states: Sequence[FleetState], costs: Sequence[float]) -> None:
        self.costs[begin : begin + len(costs)] = costs
        self.states[begin + 1 : begin + 1 + len(states)] = states


def _same(a: FleetState, b: FleetState) -> bool:
    return a.spent_usd == b.spent_usd and np.array_equal(a.replicas, b.replicas)


# -- moves: each changes windows [begin, end) of `actions` in place


def _nudge(rng: np.random.Generator, actions: np.ndarray, begin: int, end: int, nvec: np.ndarray) -> None:
    """One slot one option up or down."""
    slot = int(rng.integers(nvec.size))
    moved = actions[begin:end, slot] + (1 if rng.random() < 0.5 else -1)
    actions[begin:end, slot] = np.clip(moved, 0, nvec[slot] - 1)


def _exchange(rng: np.random.Generator, actions: np.ndarray, begin: int, end: int, nvec: np.ndarray) -> None:
    """One slot up, another one down."""
    up, down = rng.integers(nvec.size, size=2)
    actions[begin:end, up] = np.minimum(actions[begin:end, up] + 1, nvec[up] - 1)
    actions[begin:end, down] = np.maximum(actions[begin:end, down] - 1, 0)


def _set(rng: np.random.Generator, actions: np.ndarray, begin: int, end: int, nvec: np.ndarray) -> None:
    """One slot to any option: exclusive slots need jumps."""
    slot = int(rng.integers(nvec.size))
    actions[begin:end, slot] = rng.integers(nvec[slot])


def _hold(rng: np.random.Generator, actions: np.ndarray, begin: int, end: int, nvec: np.ndarray) -> None:
    """One slot, or all, keep what they had before, or take early what they have after."""
    source = (
        begin - 1 if begin > 0 and (end == len(actions) or rng.random() < 0.5) else min(end, len(actions) - 1)
    )
    slots = slice(None) if rng.random() < 0.3 else int(rng.integers(nvec.size))
    actions[begin:end, slots] = actions[source, slots]


def _shift(rng: np.random.Generator, actions: np.ndarray, begin: int, end: int, nvec: np.ndarray) -> None:
    """Do the same a few windows earlier or later."""
    by = int(rng.choice([-3, -2, -1, 1, 2, 3]))
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
        Actions of other agents, from which intervals are copied.
    max_steps : int
        Windows to play at most: the bound on the work.
    seed : int
        The same seed finds the same.

    Returns
    -------
    Improvement
        Never dearer than the start.
    """
    rng = np.random.default_rng(seed)
    found = _Sequence(instance, scenario, actions)
    start_usd, moves, accepted = found.cost_usd, 0, 0
    windows, nvec = instance.num_windows, found.space.nvec
    while found.steps < max_steps:
        begin = int(rng.integers(windows))
        end = min(windows, begin + int(rng.choice(_LENGTHS)))
        changed = found.actions.copy()
        kind = int(rng.integers(len(_MOVES) + bool(others)))
        if kind == len(_MOVES):
            changed[begin:end] = others[int(rng.integers(len(others)))][begin:end]
        else:
            _MOVES[kind](rng, changed, begin, end, nvec)
        moves += 1
        if np.array_equal(changed, found.actions):
            found.steps += 1  # or a search with nothing to try would never end
            continue
        accepted += found.try_actions(begin, end, changed)
    return Improvement(found.actions, found.cost_usd, start_usd, moves, accepted, found.steps)
