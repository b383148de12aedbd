"""Find cheap actions for a known scenario, where no optimum is proven.

The relaxation that `fleetgym.bounds` solves says how many replicas would serve when, in fractions. They are rounded,
asked for as early as they take to start, and improved on the full cost.
"""

from __future__ import annotations

import numpy as np

from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.search.improvement import Improvement, improve

#: Fractions of a replica from which on there is one: serving one too few costs more than one too many.
ROUND_UP_FROM = (0.3, 0.5)
#: Share of the work that goes into choosing where to start.
CHOOSING = 0.25


def rounded_actions(instance: Instance, serving: np.ndarray, round_up_from: float) -> np.ndarray:
    """Return actions that ask for about the given replicas, in time for them to serve.

    Parameters
    ----------
    instance : Instance
    serving : ndarray, shape (windows, configurations)
        Replicas, not whole.
    round_up_from : float
        Fraction from which on a replica is a whole one.

    Returns
    -------
    ndarray of int64, shape (windows, slots)
    """
    space = ActionSpace(instance)
    most = np.array([c.max_replicas for c in instance.configurations])
    waits = [c.startup_windows for c in instance.configurations]
    whole = np.minimum(np.floor(serving + (1.0 - round_up_from) + 1e-9).astype(np.int64), most)
    ahead = [[whole[t : t + wait + 1, c].max() for c, wait in enumerate(waits)] for t in range(len(whole))]
    return np.array(
        [space.from_fleet(_one_per_slot(instance, row, serving[t])) for t, row in enumerate(ahead)]
    )


def _one_per_slot(instance: Instance, fleet: list[int], serving: np.ndarray) -> np.ndarray:
    """Return a fleet with at most one configuration in each exclusive slot: the one that serves most."""
    wanted = np.array(fleet)
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        if slot.exclusive and np.count_nonzero(wanted[list(members)]) > 1:
            best = max((c for c in members if wanted[c]), key=lambda c: serving[c])
            wanted[[c for c in members if c != best]] = 0
    return wanted


def plan_in_hindsight(
    instance: Instance,
    scenario: Scenario,
    serving: np.ndarray | None,
    *,
    starts: list[np.ndarray] | None = None,
    max_steps: int = 200_000,
    seed: int = 0,
) -> Improvement:
    """Search for cheap actions for a known scenario, from a relaxation's serving replicas and from episodes.

    Parameters
    ----------
    instance, scenario
        The task.
    serving : ndarray, shape (windows, configurations), or None
        Of a `HindsightBound`; None where none was computed, and `starts` are all there is.
    starts : list of ndarray of int, shape (windows, slots), optional
        Actions to start from as well. The cheapest start is improved, and takes intervals from the others.
    max_steps : int
        Windows to play or route at most, `CHOOSING` of them on choosing the start if there are several.
    seed : int
        The same seed finds the same.

    Returns
    -------
    Improvement
        Never more expensive than any start.

    Raises
    ------
    ValueError
        If there is nothing to start from.
    """
    candidates = list(starts or [])
    if serving is not None:
        candidates += [rounded_actions(instance, serving, share) for share in ROUND_UP_FROM]
    if not candidates:
        raise ValueError("neither serving replicas nor actions to start from")
    if len(candidates) == 1:
        return improve(instance, scenario, candidates[0], max_steps=max_steps, seed=seed)
    each = int(CHOOSING * max_steps) // len(candidates)
    tried = [improve(instance, scenario, start, max_steps=each, seed=seed) for start in candidates]
    tried.sort(key=lambda found: found.cost_usd)
    others = [found.actions for found in tried[1:]]
    left = max_steps - sum(found.steps for found in tried)
    return improve(instance, scenario, tried[0].actions, others=others, max_steps=max(0, left), seed=seed + 1)
