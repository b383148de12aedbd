"""Spans of a known scenario: played as single steps would be, priced as single windows are, answered at best."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from toys import random_actions, random_instance, random_scenario

from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import window_model
from fleetgym.reference import replay
from fleetgym.scoring.response import Responder
from fleetgym.scoring.rollouts import KnownScenario

WINDOWS = 8
SEEDS = range(16)


def task(seed: int) -> tuple[Instance, Scenario]:
    """Return a random instance and a scenario of it."""
    instance = random_instance(seed, num_windows=WINDOWS)
    return instance, random_scenario(instance, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_span_costs_what_the_judge_says(seed: int) -> None:
    """A changed stretch is played from the old state on, and costs what the whole episode costs when replayed."""
    instance, scenario = task(seed)
    rng, space, known = np.random.default_rng(seed), ActionSpace(instance), KnownScenario(instance, scenario)
    old, new = known.new_track(), known.new_track()
    actions = np.array(random_actions(instance, seed))
    assert known.play(space.to_fleets(actions), 0, WINDOWS, math.inf, new, old) == WINDOWS
    for _ in range(10):
        begin = int(rng.integers(WINDOWS))
        end = int(rng.integers(begin + 1, WINDOWS + 1))
        changed = actions.copy()
        changed[begin:end, rng.integers(changed.shape[1])] = 0
        stop = known.play(space.to_fleets(changed), begin, end, math.inf, old, new)
        judged = replay(instance, scenario, changed.tolist())
        cost = np.concatenate([old.cost_usd[:begin], new.cost_usd[begin:stop], old.cost_usd[stop:]])
        assert cost == pytest.approx([step["cost"] for step in judged], rel=1e-9, abs=1e-9)
        assert stop >= end
        if stop < WINDOWS:  # it was left because nothing is different from there on
            assert np.array_equal(old.fleet[stop], new.fleet[stop])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_span_ends_where_it_costs_too_much(seed: int) -> None:
    """The window that exceeds the limit is the last one played."""
    instance, scenario = task(seed)
    known = KnownScenario(instance, scenario)
    old, new = known.new_track(), known.new_track()
    target = ActionSpace(instance).to_fleets(np.array(random_actions(instance, seed)))
    known.play(target, 0, WINDOWS, math.inf, new, old)
    limit = float(old.cost_usd[:4].sum())
    stop = known.play(target, 0, WINDOWS, limit * (1 - 1e-6), old, new)
    assert stop == (4 if limit > 0 else WINDOWS)
    assert np.array_equal(new.cost_usd[:stop], old.cost_usd[:stop])
    assert known.steps == WINDOWS + stop


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_response_is_the_cheapest_of_all_paths(seed: int) -> None:
    """Enumeration of all paths, each window and each start priced by itself, finds no cheaper one."""
    instance, scenario = task(seed)
    known, rng = KnownScenario(instance, scenario), np.random.default_rng(seed)
    track = known.new_track()
    target = ActionSpace(instance).to_fleets(np.array(random_actions(instance, seed)))
    known.play(target, 0, WINDOWS, math.inf, known.new_track(), track)
    held = np.maximum(track.serving, target)
    for _ in range(4):
        slot, begin = int(rng.integers(len(instance.slots))), int(rng.integers(WINDOWS - 2))
        end = min(WINDOWS, begin + 3)
        path = Responder(known, reach=1).cheapest_path(slot, begin, end, track.serving, held)
        price = PathPrice(instance, scenario, slot, begin, end, track.serving, held)
        levels = price.levels(reach=1)
        best = min(price(found) for found in itertools.product(levels, repeat=end - begin))
        assert price(path.tolist()) == pytest.approx(best, rel=1e-9, abs=1e-9)


class PathPrice:
    """The cost of a slot's options in [begin, end), others as they are: the long way round."""

    def __init__(self, instance, scenario, slot, begin, end, serving, held):
        self.instance, self.slot, self.begin, self.end = instance, slot, begin, end
        self.model = window_model(instance)
        self.members = instance.slot_members[slot]
        self.exclusive = instance.slots[slot].exclusive
        self.conditions = [Conditions.of(scenario, t) for t in range(instance.num_windows)]
        self.serving, self.held = serving, held
        self.now = np.array([self.option(row) for row in serving])
        self.known: dict[tuple[int, int], float] = {}

    def option(self, fleet) -> int:
        """Return what the slot's part of a fleet is as an option."""
        part = [int(fleet[c]) for c in self.members]
        if not self.exclusive:
            return part[0]
        return part.index(max(part)) + 1 if any(part) else 0

    def levels(self, reach: int) -> list[int]:
        """Return the options to try: all of an exclusive slot, else those near what serves now."""
        if self.exclusive:
            return list(range(len(self.members) + 1))
        most, now = (
            self.instance.configurations[self.members[0]].max_replicas,
            self.now[self.begin : self.end],
        )
        return list(range(max(0, now.min() - reach), min(most, now.max() + reach) + 1))

    def fleet(self, option: int) -> dict[int, int]:
        """Return the replicas of the slot's members that an option means."""
        if not self.exclusive:
            return {self.members[0]: option}
        return {c: int(k == option) for k, c in enumerate(self.members, start=1)}

    def window_usd(self, t: int, option: int) -> float:
        """Return rent and operating cost of a window; inf where GPUs are missing."""
        if (t, option) not in self.known:
            mine = self.fleet(option)
            serving, conditions, cost = self.serving[t].copy(), self.conditions[t], 0.0
            for c, count in mine.items():
                serving[c] = count
                cost += count * self.model.hold_usd(conditions.price_factor)[c]
            for g in range(self.instance.num_pools):
                others = sum(
                    self.instance.gpu_use[g][c] * self.held[t][c]
                    for c in range(serving.size)
                    if c not in mine
                )
                used = others + sum(self.instance.gpu_use[g][c] * count for c, count in mine.items())
                if used > conditions.available_gpus[g] and any(mine.values()):
                    cost = math.inf
            if cost < math.inf:
                cost += float(self.model.operate(serving, conditions, self.model.new_router())[0].sum())
            self.known[t, option] = cost
        return self.known[t, option]

    def starting_usd(self, t: int, before: int, after: int) -> float:
        """Return fees, and rent until they serve, of the starts before window t; inf where it is too late."""
        old, cost = self.fleet(before), 0.0
        for c, count in self.fleet(after).items():
            starts = max(0, count - old[c])
            wait = self.instance.configurations[c].startup_windows if t else 0
            if not starts:
                continue
            if wait and (t - wait < self.begin or t - wait < 1):
                return math.inf
            rent = sum(self.model.hold_usd(self.conditions[s].price_factor)[c] for s in range(t - wait, t))
            cost += starts * (self.instance.configurations[c].startup_usd + rent)
        return cost

    def __call__(self, path) -> float:
        """Return what the interval costs with these options."""
        entry = self.now[self.begin - 1] if self.begin else self.option(self.instance.nominal_fleet)
        stops = [entry, *path, *self.now[self.end : self.end + 1]]
        moving = sum(
            self.starting_usd(t, a, b) for t, (a, b) in enumerate(itertools.pairwise(stops), self.begin)
        )
        return moving + sum(self.window_usd(t, option) for t, option in enumerate(path, self.begin))
