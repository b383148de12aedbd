"""Find the cheapest action sequence of a toy instance, by dynamic programming over fleets.

The optimum is over the full step cost, late penalties included, for an agent that knows the scenario. The
cost of a window is what the fleet costs to hold and to start plus what its *serving* replicas cost to
operate, so routing is solved once per serving fleet and window, however many states lead there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol

from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.reference import FleetState, ReferenceEpisode, action_to_target


class StateSpaceError(FleetgymError):
    """The instance has more states or transitions than the caller allowed."""


class Step(NamedTuple):
    """What a target leads to in one window.

    Attributes
    ----------
    state : object
        The state before the following window; a fresh object.
    fixed_usd : float
        Rental, model storage and start-up fees.
    serving : tuple of int
        Replicas that serve in the window, per configuration.
    """

    state: Any
    fixed_usd: float
    serving: tuple[int, ...]


class FleetModel(Protocol):
    """The economics that `optimal_fleets` plans with. No method changes a state that it is given."""

    def start(self) -> Any:
        """Return the state before window 0."""

    def key(self, state: Any) -> Hashable:
        """Return what two states have in common exactly if nothing can tell them apart."""

    def step(self, state: Any, target: list[int], window: int) -> Step:
        """Admit `target`, replicas per configuration, in a window."""

    def operating_usd(self, serving: tuple[int, ...], window: int) -> float:
        """Return all costs of a window that depend on the serving replicas alone, at least 0."""


class ReferenceModel:
    """`FleetModel` on top of the reference evaluator.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
    """

    def __init__(self, instance: Instance, scenario: Scenario):
        self._episode = ReferenceEpisode(instance, scenario)

    def start(self) -> FleetState:
        """Return the nominal fleet."""
        return self._episode.state

    def key(self, state: FleetState) -> Hashable:
        """Return the counts and what was spent as one tuple."""
        starting = tuple(map(tuple, state.starting))
        return tuple(state.running), starting, tuple(map(tuple, state.draining)), state.spent_usd

    def step(self, state: FleetState, target: list[int], window: int) -> Step:
        """Admit `target` in a window."""
        admission = self._episode.admit(state, target, window)
        fixed = math.fsum(self._episode.holding_costs(admission, window).values())
        return Step(self._episode.next_state(admission, window), fixed, tuple(admission.serving))

    def operating_usd(self, serving: tuple[int, ...], window: int) -> float:
        """Route the window over `serving`."""
        return math.fsum(self._episode.operate(serving, window)["costs"].values())


@dataclasses.dataclass(frozen=True)
class ExactPlan:
    """A proven optimum.

    Attributes
    ----------
    actions : (windows, slots) tuple of tuples of int
        One option per slot, as the environment takes them.
    cost : float
        USD of the whole episode.
    states_visited : int
        Distinct (window, state) pairs.
    routings_solved : int
        Distinct (window, serving fleet) pairs.
    """

    actions: tuple[tuple[int, ...], ...]
    cost: float
    states_visited: int
    routings_solved: int


@dataclasses.dataclass
class _Node:
    """The cheapest known way to a state."""

    state: Any
    cost: float
    parent: _Node | None = None
    action: tuple[int, ...] = ()


def optimal_fleets(
    instance: Instance,
    scenario: Scenario,
    *,
    model: FleetModel | None = None,
    max_states: int = 100_000,
    max_transitions: int = 2_000_000,
) -> ExactPlan:
    """Return the cheapest action sequence for a scenario that is known in advance.

    Meant for toys: up to about eight configurations and a short horizon. A `pool` budget makes what was spent
    part of the state, so that few states coincide.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
    model : FleetModel, optional
        The economics; by default the reference evaluator's.
    max_states, max_transitions : int
        Most distinct (window, state) pairs, and most admitted targets.

    Returns
    -------
    ExactPlan

    Raises
    ------
    StateSpaceError
        If a cap is exceeded.
    """
    search = _Search(instance, model or ReferenceModel(instance, scenario), max_states, max_transitions)
    return search.run()


class _Search:
    """Forward dynamic programming, one layer of states per window."""

    def __init__(self, instance: Instance, model: FleetModel, max_states: int, max_transitions: int):
        self.instance, self.model = instance, model
        self.max_states, self.max_transitions = max_states, max_transitions
        self.states, self.transitions = 1, 0
        self.operating: dict[tuple[int, tuple[int, ...]], float] = {}
        count = math.prod(_num_options(instance))
        if count > max_transitions:
            raise StateSpaceError(f"{count} actions per window exceed max_transitions = {max_transitions}")
        self.actions = [(a, action_to_target(instance, a)) for a in _all_actions(instance)]

    def run(self) -> ExactPlan:
        """Expand layer by layer and follow the best way back."""
        start = self.model.start()
        layer = {self.model.key(start): _Node(start, 0.0)}
        for window in range(self.instance.num_windows):
            layer = self.expand(layer, window)
        best = min(layer.values(), key=lambda node: node.cost)
        return ExactPlan(_way_to(best), best.cost, self.states, len(self.operating))

    def expand(self, layer: dict[Hashable, _Node], window: int) -> dict[Hashable, _Node]:
        """Return every state that the layer's states lead to, each with its cheapest way."""
        following: dict[Hashable, _Node] = {}
        self.count_transitions(len(layer) * len(self.actions))
        for node in layer.values():
            for action, target in self.actions:
                step = self.model.step(node.state, target, window)
                cost = node.cost + step.fixed_usd + self.operating_usd(step.serving, window)
                key = self.model.key(step.state)
                known = following.get(key)
                if known is None:
                    self.count_state()
                if known is None or cost < known.cost:
                    following[key] = _Node(step.state, cost, node, action)
        return following

    def operating_usd(self, serving: tuple[int, ...], window: int) -> float:
        """Solve each routing once."""
        key = window, serving
        if key not in self.operating:
            self.operating[key] = self.model.operating_usd(serving, window)
        return self.operating[key]

    def count_state(self) -> None:
        self.states += 1
        if self.states > self.max_states:
            raise StateSpaceError(f"more than max_states = {self.max_states} states")

    def count_transitions(self, more: int) -> None:
        self.transitions += more
        if self.transitions > self.max_transitions:
            raise StateSpaceError(f"more than max_transitions = {self.max_transitions} admitted targets")


def _num_options(instance: Instance) -> list[int]:
    """Return the number of options of each slot."""
    return [
        len(members) + 1 if slot.exclusive else instance.configurations[members[0]].max_replicas + 1
        for slot, members in zip(instance.slots, instance.slot_members, strict=True)
    ]


def _all_actions(instance: Instance) -> Iterator[tuple[int, ...]]:
    """Yield every action, in lexicographic order."""
    return itertools.product(*(range(n) for n in _num_options(instance)))


def _way_to(node: _Node) -> tuple[tuple[int, ...], ...]:
    """Return the actions that led to a node."""
    actions = []
    while node.parent is not None:
        actions.append(node.action)
        node = node.parent
    return tuple(reversed(actions))
