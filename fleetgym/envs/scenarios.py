"""Choose the scenario of an episode: a stored, a sampled or a given one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.dynamics.scenario import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, load_instance, load_scenarios, with_law
from fleetgym.model.scenario import Scenario

#: Where scenarios come from when `reset` does not name one.
SOURCES = ("drawn", "stored")
#: From which processes they are drawn: those that agents know, or those of the stored days.
LAWS = ("public", "known")


def reset_options(options: Any, *known: str) -> dict[str, Any]:
    """Return a copy of the options of a reset.

    Raises
    ------
    FleetgymError
        If it is not a mapping, and for options that do not exist.

    Examples
    --------
    >>> reset_options({"scenario": 0}, "scenario", "window")
    {'scenario': 0}
    """
    if not isinstance(options, Mapping | None):
        raise FleetgymError(f'reset options: expected a mapping such as {{"scenario": 0}}, got {options!r}')
    given = dict(options or {})
    unknown = [name for name in given if name not in known]
    if unknown:
        names = ", ".join(map(repr, known))
        raise FleetgymError(f"unknown reset options {unknown}; expected {names}")
    return given


class ScenarioChoice:
    """The scenarios that an environment may play.

    Parameters
    ----------
    instance : str, path-like, Instance or mapping
        An id of the standard set or a path, beside which stored scenarios lie; or an instance, or the content of its
        file, which have none.
    source : str
        ``"drawn"`` from the instance's processes, or any of the ``"stored"`` ones.
    law : str
        ``"public"``: days are drawn from the instance's own processes, which may be fitted to its history;
        ``"known"``: from those that drew the stored days. If the instance shows its law, these are the same.

    Raises
    ------
    FleetgymError
        If there is no such source or law, or nothing is stored where that is asked for.
    """

    def __init__(self, instance: InstanceSource, source: str = "drawn", law: str = "public"):
        if source not in SOURCES:
            raise FleetgymError(f"scenarios must be one of {SOURCES}, got {source!r}")
        if law not in LAWS:
            raise FleetgymError(f"law must be one of {LAWS}, got {law!r}")
        self._home = None if isinstance(instance, Instance | Mapping) else instance
        self.instance = load_instance(instance)
        self.source, self._drawn_from = source, self.instance if law == "public" else with_law(instance)
        if source == "stored" and not self.stored:
            raise FleetgymError(f"{self.instance.id!r} has no stored scenarios: use scenarios='drawn'")

    @functools.cached_property
    def stored(self) -> tuple[Scenario, ...]:
        """The stored scenarios."""
        return () if self._home is None else load_scenarios(self._home)

    def named(self, options: dict[str, Any] | None) -> int | Scenario | None:
        """Return the number of the stored scenario that options name, the scenario that they give, or None.

        Parameters
        ----------
        options : dict or None
            Of `reset`: ``{"scenario": k}``, ``{"scenario": id}`` or ``{"scenario": Scenario(...)}``.

        Raises
        ------
        FleetgymError
            For unknown options, and for a number or an id that no stored scenario has.
        DataError
            For a scenario that does not fit the instance.
        """
        chosen = reset_options(options, "scenario").get("scenario")
        if chosen is None:
            return None
        if isinstance(chosen, Scenario):
            return chosen.check(self.instance)
        if isinstance(chosen, str):
            ids = [scenario.id for scenario in self.stored]
            if chosen not in ids:
                raise UnknownNameError(f"stored scenario of {self.instance.id!r}", chosen, ids)
            return ids.index(chosen)
        if isinstance(chosen, bool) or not isinstance(chosen, (int, np.integer)):
            raise FleetgymError(
                f"expected the number or id of a stored scenario, or a Scenario, got {chosen!r}"
            )
        if not 0 <= chosen < len(self.stored):
            raise FleetgymError(
                f"{self.instance.id!r} has {len(self.stored)} stored scenarios, got number {chosen}"
            )
        return int(chosen)

    def number(self, named: int | Scenario | None, rng: np.random.Generator) -> int | Scenario:
        """Return the named scenario, or one that `rng` chooses: the number of a stored scenario, or a scenario."""
        if named is not None:
            return named
        if self.source == "stored":
            return int(rng.integers(len(self.stored)))
        return draw_scenario(self._drawn_from, rng, "drawn")

    def choose(self, named: int | Scenario | None, rng: np.random.Generator) -> Scenario:
        """Return the named scenario, or a random one if `named` is None."""
        chosen = self.number(named, rng)
        return self.stored[chosen] if isinstance(chosen, int) else chosen
