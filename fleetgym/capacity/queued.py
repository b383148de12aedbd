"""Compute what share of the requests would be late if a held fleet turned nobody away.

A plan's "missed" assumes that what exceeds the fleet's capacity is turned away at once. Where it waits instead, it
delays what comes after. Here the excess of a window is demand of the next one, served first come, first served. A
request is late if it waits for longer than its first token may take. Within a window, arrivals and service are even.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.capacity.risk import generated_days
from fleetgym.kernels.queueing import U_MAX
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import Router, WindowModel, window_model

_AMPLE = 4.0  # times what is asked for: more than a fleet without a queue serves
_UNSERVED = 1e-4  # share that counts as none
_CLOSE = 1e-3  # of a capacity


def late_without_shedding(
    instance: Instance,
    fleet: Sequence[int] | np.ndarray,
    *,
    days: int = 10,
    seed: int = 0,
    running: np.ndarray | None = None,
) -> float:
    """Return the share of the requests that come late, on the first generated days of `fleetgym.fleet_risk`.

    Parameters
    ----------
    instance : Instance
        The problem.
    fleet : array_like of int, shape (C,)
        Replicas per configuration.
    days : int
        Days to play; each begins without a queue.
    seed : int
        Of the days.
    running : ndarray of int, shape (C,), optional
        What runs when a day begins; by default the fleet.

    Returns
    -------
    float
        From 0 to 1: of the requests of all days.

    Examples
    --------
    >>> import fleetgym
    >>> late_without_shedding(fleetgym.load_instance("fleet-v0/toy/drop"), [2, 0], days=2)
    0.0
    """
    model, target = window_model(instance), np.array(fleet, dtype=np.int64)
    late = arrived = 0.0
    for day in generated_days(instance, days, seed):
        state, router = model.initial_state(), model.new_router()
        state.replicas[:, 0] = target if running is None else running
        queue = np.zeros(instance.num_workloads)
        for t in range(instance.num_windows):
            conditions = Conditions.of(day, t)
            result = model.step(state, target, conditions, router)
            requests = conditions.rate_rps * instance.window_s
            in_time = result.miss_share - result.unserved_share
            waits = np.zeros_like(queue)
            if queue.any() or result.unserved_share.any():  # a queue may use what a plan leaves free
                waits, queue = _window(model, result.serving, conditions, queue, router)
            late += float(requests @ (waits + (1.0 - waits) * in_time))
            arrived += float(requests.sum())
    return late / arrived if arrived else 0.0


def _window(
    model: WindowModel, serving: np.ndarray, conditions: Conditions, queue: np.ndarray, router: Router
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of a window's requests that wait for too long, and the queue at its end, (I,) each."""
    seconds = model.instance.window_s
    offered = queue / seconds + conditions.rate_rps  # requests/s
    capacity = _capacity(model, serving, conditions, offered, router)
    left = np.maximum(0.0, (offered - capacity) * seconds)
    left[left < 1e-6 * offered * seconds] = 0.0
    limit_s = np.array([w.ttft_slo_s or 0.0 for w in model.instance.workloads])
    return _waiting(queue, conditions.rate_rps, capacity, limit_s, seconds), left


def _capacity(
    model: WindowModel, serving: np.ndarray, conditions: Conditions, offered: np.ndarray, router: Router
) -> np.ndarray:
    """Return the rates that replicas serve of what is offered, at most `_AMPLE` times it, (I,).

    Nobody overtakes: workloads that share replicas are served in the same proportion.
    """

    def unserved(asked: np.ndarray) -> np.ndarray:
        planned = dataclasses.replace(conditions, rate_rps=U_MAX * asked)  # a plan fills replicas up to this
        return np.asarray(model.operate(serving, planned, router)[1])

    def most(asked: np.ndarray) -> float:
        low, high = 0.0, _AMPLE
        if not np.any(unserved(high * asked) > _UNSERVED):
            return high
        while high - low > _CLOSE * max(high, _CLOSE):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if np.any(unserved(middle * asked) > _UNSERVED) else (middle, high)
        return low

    found = np.zeros_like(offered)
    for group in _sharing(model.instance, serving):
        share = most(offered * group)
        if share == 0.0 and group.sum() > 1:  # what nobody can serve holds nobody up
            alone = [g and most(offered * (np.arange(len(group)) == i)) > 0.0 for i, g in enumerate(group)]
            group = np.array(alone)
            share = most(offered * group)
        found += share * offered * group
    return found


def _sharing(instance: Instance, serving: np.ndarray) -> list[np.ndarray]:
    """Return groups of workloads that share serving replicas, masks (I,) each."""
    uses = instance.performance.compatible & (serving > 0)
    groups: list[np.ndarray] = []
    for i in range(len(uses)):
        one = np.arange(len(uses)) == i
        apart = [g for g in groups if not np.any(uses[g] & uses[i])]
        joined = [g for g in groups if np.any(uses[g] & uses[i])]
        groups = [*apart, np.any([one, *joined], axis=0)]
    return groups


def _waiting(
    queue: np.ndarray, rate: np.ndarray, capacity: np.ndarray, limit_s: np.ndarray, seconds: float
) -> np.ndarray:
    """Return the share of the window in which a queue takes longer than the limit, (I,).

    The queue grows by ``rate - capacity``, from `queue` requests on.

    Examples
    --------
    >>> one = np.ones(1)
    >>> _waiting(0 * one, 2 * one, one, 60 * one, 300.0), _waiting(100 * one, 0 * one, one, 40 * one, 300.0)
    (array([0.8]), array([0.2]))
    """
    most = capacity * limit_s
    growth = rate - capacity
    crossing = (most - queue) / np.where(growth == 0.0, 1.0, growth) / seconds  # in windows
    crossing = np.clip(np.where(growth == 0.0, np.inf, crossing), 0.0, 1.0)
    begins_late = queue > most
    return np.where(growth < 0.0, begins_late * crossing, np.where(begins_late, 1.0, 1.0 - crossing))
