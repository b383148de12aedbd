"""Keep every version of the generators, so that whatever was drawn once can be drawn again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from fleetgym.families.family import Family
from fleetgym.files.errors import FleetgymError
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario


@dataclasses.dataclass(frozen=True)
class Generators:
    """What one version draws with; equal seeds give equal instances and days for ever.

    Parameters
    ----------
    draw_scenario : callable
        Draws a day from an instance's processes, as `fleetgym.model.dynamics.draw_scenario`.
    families : mapping of str to Family
        The families that have changed since, as they were. All others are those of the entry points.
    draws_replays : bool
        Whether seasons draw families whose days are published ones, changed little (`Family.replays`).
    """

    draw_scenario: Callable[[Instance, np.random.Generator, str], Scenario]
    families: Mapping[str, Family] = dataclasses.field(default_factory=dict)
    draws_replays: bool = False


#: Every version by its number. Whoever changes what a generator draws adds a version, and gives the versions before it
#: the old function.
VERSIONS = {1: Generators(draw_scenario, draws_replays=True), 2: Generators(draw_scenario)}
NEWEST = max(VERSIONS)


def generators(version: int) -> Generators:
    """Return the generators of a version.

    Raises
    ------
    FleetgymError
        If this release of fleetgym does not have it.

    Examples
    --------
    >>> sorted(generators(1).families)
    []
    """
    if version not in VERSIONS:
        raise FleetgymError(
            f"this fleetgym has no generators of version {version}, only up to {NEWEST}: install a newer fleetgym"
        )
    return VERSIONS[version]
