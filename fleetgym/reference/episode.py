"""Play an episode: every cost term of every window from an instance, a scenario and actions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.reference.admission import Admission, Admitting, FleetState, after_window, pack
from fleetgym.reference.certified_lp import CertificateError
from fleetgym.reference.conditions import Book, Conditions
from fleetgym.reference.costs import COST_TERMS, holding_costs, operating_costs
from fleetgym.reference.late import LateSegments, late_segments
from fleetgym.reference.routing import RoutingProgram, late_shares
from fleetgym.runtime.threads import one_thread


class ReferenceEpisode:
    """One episode, stepped window by window.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
        Checked against the instance.

    Attributes
    ----------
    window : int
        The window that the next step plays.
    state : FleetState
        The fleet before that window. Steps never change it in place.
    """

    def __init__(self, instance: Instance, scenario: Scenario):
        scenario.check(instance)
        self.instance = instance
        self._book = Book(instance)
        self._rows = {
            field.name: getattr(scenario, field.name).tolist()
            for field in dataclasses.fields(scenario)
            if isinstance(getattr(scenario, field.name), np.ndarray)
        }
        self._segments: dict[tuple[int, int], LateSegments] = {}
        self.window = 0
        empty = pack([], self._book, 0.0)
        self.state = dataclasses.replace(empty, running=instance.nominal_fleet.tolist())

    def step(self, target: Sequence[int]) -> dict[str, Any]:
        """Play one window.

        Parameters
        ----------
        target : (configurations,) sequence of int
            Replicas wanted.

        Returns
        -------
        dict
            The cost terms and their sum ``cost``, in USD of this window; ``unserved_share`` and
            ``miss_share`` (workloads,); in this window: ``serving``, ``held``, ``denied``, ``lost`` and ``granted``
            (configurations,), ``forced_outage``, ``routing`` (workloads, configurations); the fleet after it, as in the
            environment's info: ``running`` (configurations,), ``starting`` and ``draining`` (configurations, K).

        Raises
        ------
        DataError
            If the target is no fleet of this instance.
        IndexError
            After the last window.
        """
        admission = self.admit(self.state, target, self.window)
        operation = self.operate(admission.serving, self.window)
        holding = self.holding_costs(admission, self.window)
        costs = {name: {**holding, **operation["costs"]}[name] for name in COST_TERMS}
        self.state = self.next_state(admission, self.window)
        self.window += 1
        return {
            **costs,
            "cost": math.fsum(costs.values()),
            "unserved_share": operation["unserved_share"],
            "miss_share": operation["miss_share"],
            "routing": operation["routing"],
            "running": self.state.running,
            "starting": self.state.starting,
            "draining": self.state.draining,
            "serving": admission.serving,
            "held": admission.held,
            "denied": admission.denied,
            "lost": admission.lost,
            "granted": admission.granted,
            "forced_outage": admission.forced_outage,
        }

    # The parts of a step. None of them changes the episode.

    def admit(self, state: FleetState, target: Sequence[int], window: int) -> Admission:
        """Return what admission makes of a target in a window (section 2)."""
        _check_target(self.instance, target)
        return Admitting(self._conditions(window), state, target, window == 0).run()

    def holding_costs(self, admission: Admission, window: int) -> dict[str, float]:
        """Return ``rental``, ``model_storage`` and ``startup`` in USD of the window."""
        return holding_costs(self._conditions(window), admission)

    def operate(self, serving: Sequence[int], window: int) -> dict[str, Any]:
        """Route a window's requests over serving replicas (sections 4 to 6).

        Parameters
        ----------
        serving : (configurations,) sequence of int
        window : int

        Returns
        -------
        dict
            ``costs``, a dict of the terms that depend on the routing, in USD; ``unserved_share`` and
            ``miss_share`` (workloads,); ``routing`` (workloads, configurations).
        """
        conditions = self._conditions(window)
        used = [c for c, count in enumerate(serving) if count > 0]
        segments = {c: self.late_segments(c, serving[c]) for c in used}
        routing = RoutingProgram(conditions, serving, segments).solve()
        late = late_shares(conditions, serving, routing)
        missed = list(routing.unserved)
        table = [[0.0] * self._book.num_configurations for _ in missed]
        for (i, c), x in routing.share.items():
            missed[i] += x * late[i, c]
            table[i][c] = x
        return {
            "costs": operating_costs(conditions, routing, late),
            "unserved_share": routing.unserved,
            "miss_share": missed,
            "routing": table,
        }

    def next_state(self, admission: Admission, window: int) -> FleetState:
        """Return the fleet before the following window."""
        spent = admission.fleet.spent_usd
        if self._book.budget is not None and self._book.budget.kind == "pool":
            spent = math.fsum([spent, *self.holding_costs(admission, window).values()])
        return after_window(admission.fleet, spent)

    def late_segments(self, c: int, replicas: int) -> LateSegments:
        """Return section 3's segments of a configuration, computed once."""
        key = c, replicas
        if key not in self._segments:
            self._segments[key] = late_segments(self._book, c, replicas)
        return self._segments[key]

    def _conditions(self, window: int) -> Conditions:
        if not 0 <= window < self.instance.num_windows:
            raise IndexError(f"the episode has windows 0 to {self.instance.num_windows - 1}, not {window}")
        return Conditions(self._book, self._rows, window)


def replay(instance: Instance, scenario: Scenario, actions: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Play an episode from its actions.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
    actions : (windows, slots) sequence of int
        One row per window, as for `action_to_target`.

    Returns
    -------
    list of dict
        What `ReferenceEpisode.step` returns, per window.

    Raises
    ------
    DataError
        If there is not one valid action per window.
    CertificateError
        If a window's routing cannot be proven optimal.
    """
    if len(actions) != instance.num_windows:
        raise DataError(f"expected {instance.num_windows} actions, one per window, got {len(actions)}", "$")
    episode = ReferenceEpisode(instance, scenario)
    steps = []
    with one_thread():  # the bases are small: a second one costs far more than it gives
        for t, action in enumerate(actions):
            try:
                steps.append(episode.step(action_to_target(instance, action)))
            except DataError as error:
                raise DataError(error.message, f"$[{t}]{error.path[1:]}") from None
            except CertificateError as error:
                raise CertificateError(f"window {t}: {error}") from None
    return steps


def action_to_target(instance: Instance, action: Sequence[int]) -> list[int]:
    """Translate one option per slot into replicas per configuration.

    Parameters
    ----------
    instance : Instance
    action : (slots,) sequence of int
        For an exclusive slot 0 is off and o its o-th configuration; otherwise the number of replicas.

    Returns
    -------
    (configurations,) list of int

    Raises
    ------
    DataError
        If an option does not exist.
    """
    options = list(action)
    if len(options) != len(instance.slots):
        raise DataError(f"expected one option per slot, {len(instance.slots)}, got {len(options)}", "$")
    target = [0] * instance.num_configurations
    for s, (option, members) in enumerate(zip(options, instance.slot_members, strict=True)):
        exclusive = instance.slots[s].exclusive
        most = len(members) if exclusive else instance.configurations[members[0]].max_replicas
        if not _is_count(option) or not 0 <= option <= most:
            raise DataError(f"expected a whole number from 0 to {most}, got {option!r}", f"$[{s}]")
        if not exclusive:
            target[members[0]] = int(option)
        elif option:
            target[members[option - 1]] = 1
    return target


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _check_target(instance: Instance, target: Sequence[int]) -> None:
    """Raise unless `target` is a fleet that some action asks for."""
    if len(target) != instance.num_configurations:
        raise DataError(f"expected {instance.num_configurations} counts, got {len(target)}", "$")
    for c, (count, configuration) in enumerate(zip(target, instance.configurations, strict=True)):
        most = configuration.max_replicas
        if not _is_count(count) or not 0 <= count <= most:
            raise DataError(f"expected a whole number from 0 to {most}, got {count!r}", f"$[{c}]")
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        if slot.exclusive and sum(target[c] for c in members) > 1:
            raise DataError(f"at most one of {', '.join(slot.configurations)} may run", "$")
