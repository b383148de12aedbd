"""Define a family of instances: its sizes, its generator, and the days that are stored with an instance."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario


@dataclasses.dataclass(frozen=True)
class Family:
    """A generator of instances, to be named by an entry point of the group ``fleetgym.families``.

    Parameters
    ----------
    sizes : tuple of str
        The sizes that it makes, in lower case.
    build : callable
        ``build(size, seed, rng)`` returns an `Instance` whose `family` is the entry point's name. The same arguments
        give the same instance.
    days : callable, optional
        ``days(instance, seed, count)`` returns at most `count` scenarios, for a family that stores days of its own.
        Without it, days are drawn from the instance's processes.
    replays : bool
        Whether days are published ones, changed little: who has the source can name them from a history. Newer seasons
        do not draw such a family.
    public : callable, optional
        ``public(instance)`` returns the instance as agents see it, with processes that are fitted to its history and
        ``law = "fitted"``. Without it, agents are told the processes that draw the days.

    Examples
    --------
    >>> from fleetgym.families.generate import families
    >>> families()["multi"].sizes
    ('s', 'm', 'l')
    """

    sizes: tuple[str, ...]
    build: Callable[[str, int, np.random.Generator], Instance]
    days: Callable[[Instance, int, int], Sequence[Scenario]] | None = None
    replays: bool = False
    public: Callable[[Instance], Instance] | None = None


def stream(family: str, size: str, seed: int, number: int) -> np.random.Generator:
    """Return one of an instance's streams of random numbers: 0 makes it, k + 1 its k-th stored day."""
    return np.random.default_rng([zlib.crc32(f"{family}/{size}".encode()), seed, number])
