"""Store the states of episodes, and draw other futures for them, for tree search."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fleetgym.agents.beliefs.belief import Belief
from fleetgym.files.errors import FleetgymError
from fleetgym.files.schema import shown
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics.scenario import warned_pools
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario

#: Sampled futures, of which one is chosen by its weight: a belief spreads a few paths evenly.
_FUTURES = 32


class EpisodeState(NamedTuple):
    """The state of an episode of `FleetAllocEnv`, with the day that it plays."""

    instance: Instance
    scenario: Scenario
    carried: tuple[np.ndarray, ...]
    layers: tuple[Any, ...] = ()  # what `for_learning` remembers


class BatchState(NamedTuple):
    """The states of the episodes of a `FleetAllocVectorEnv`, with their days and the generators of the next ones."""

    instances: tuple[Instance, ...]  # of each episode
    scenarios: tuple[Scenario, ...]
    carried: tuple[np.ndarray, ...]
    over: np.ndarray  # bool (N,)
    generators: tuple[Any, ...]
    layers: tuple[Any, ...] = ()


class Layer(Protocol):
    """A wrapper whose memory belongs to the state of the environment inside."""

    def save(self) -> Any:
        """Return what it remembers."""

    def check(self, saved: Any) -> None:
        """Refuse what another kind of wrapper has saved."""

    def restore(self, saved: Any) -> None:
        """Remember what it did at `save`; the environment inside is there already."""


def check_state(state: Any, kind: type, instances: Sequence[Instance], layers: Sequence[Layer] = ()) -> None:
    """Raise an error unless an object is a state of an environment.

    Parameters
    ----------
    state : object
        What was given.
    kind : type
        `EpisodeState` or `BatchState`.
    instances : sequence of Instance
        The instance of each of its episodes.
    layers : sequence of Layer
        Wrappers whose memory the state must hold.

    Raises
    ------
    FleetgymError
        For an object of another type, for a state of other instances, and for one that lacks the memory of wrappers.
    """
    if not isinstance(state, kind) or not isinstance(state, EpisodeState | BatchState):
        raise FleetgymError(f"state is {shown(state)}; expected what get_state returned")
    theirs = [state.instance] if isinstance(state, EpisodeState) else list(state.instances)
    if len(theirs) != len(instances):
        raise FleetgymError(f"the state has {len(theirs)} episodes; expected {len(instances)}")
    for own, other in zip(instances, theirs, strict=True):
        if own is not other and own.content_hash != other.content_hash:
            raise FleetgymError(f"the state is one of {other.id!r}, not of {own.id!r}")
    if layers and len(state.layers) != len(layers):
        raise FleetgymError(
            "the state was taken without for_learning: it lacks what forecasts and the reference remember"
        )
    for layer, saved in zip(layers, state.layers, strict=False):
        layer.check(saved)


def resampled(instance: Instance, scenario: Scenario, window: int, rng: np.random.Generator) -> Scenario:
    """Return a day that is the same up to a window, and continues with a future sampled from the past.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
        The day that is played.
    window : int
        The coming one. Where the instance has ``lead = 0``, it has been seen, and stays.
    rng : numpy.random.Generator
        Draws the future from the `fleetgym.Belief` of the past.

    Returns
    -------
    Scenario
        What is announced for the coming window stays.
    """
    day = scenario.expanded(instance.num_windows)
    seen = min(window + 1 - instance.lead, instance.num_windows)
    left = instance.num_windows - seen
    if left < 1:
        return scenario
    belief = Belief(instance)
    for t in range(seen):
        belief.update(t, Conditions.of(day, t))
    paths = belief.sample(_FUTURES, left, rng)
    one = rng.choice(_FUTURES, p=paths.weight / paths.weight.sum())
    available = paths.available[one].copy()
    warned = warned_pools(instance)
    if seen == window and warned.any():
        available[0, warned] = day.available_gpus[window, warned]
    future: dict[str, np.ndarray] = {"available_gpus": available, "price_factor": paths.price[one]}
    future |= {name: paths.workload[one, :, row] for row, name in enumerate(Conditions.WORKLOAD_FIELDS)}
    told = {name: np.concatenate((getattr(day, name)[:seen], part)) for name, part in future.items()}
    return dataclasses.replace(scenario, **told)  # type: ignore[arg-type]
