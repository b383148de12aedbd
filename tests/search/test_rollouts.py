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
from fleetgym.search.response import Responder
from fleetgym.search.rollouts import KnownScenario

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
def test_the_best_answer_is_the_cheapest_of_all_paths(seed: int) -> None:
    """Enumeration of all paths of one slot or two, each window and start priced by itself, finds no cheaper one."""
    instance, scenario = task(seed)
    known, rng = KnownScenario(instance, scenario), np.random.default_rng(seed)
    track = known.new_track()
    target = ActionSpace(instance).to_fleets(np.array(random_actions(instance, seed)))
    known.play(target, 0, WINDOWS, math.inf, known.new_track(), track)
    held = np.maximum(track.serving, target)
    for offsets in ((-1, 0, 1), (-2, 0, 1), (-1, 0, 1), (-1, 0, 2)):
        count = min(int(rng.integers(1, 3)), len(instance.slots))
        slots = rng.choice(len(instance.slots), count, replace=False).tolist()
        begin = int(rng.integers(WINDOWS - 2))
        end = begin + int(rng.integers(1, 5 - count))
        path = Responder(known).cheapest_path(slots, begin, end, track.serving, held, offsets)
        price = PathPrice(instance, scenario, slots, begin, end, track.serving, held)
        best = min(price(found) for found in itertools.product(*price.options(offsets)))
        if best < math.inf:  # else no option near what serves can be had
            assert price([tuple(now) for now in path.tolist()]) == pytest.approx(best, rel=1e-9, abs=1e-9)


class PathPrice:
    """The cost of some slots' options in [begin, end), others as they are: the long way round."""

    def __init__(self, instance, scenario, slots, begin, end, serving, held):
        self.instance, self.slots, self.begin, self.end = instance, slots, begin, end
        self.model = window_model(instance)
        self.conditions = [Conditions.of(scenario, t) for t in range(instance.num_windows)]
        self.serving, self.held = serving, held
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    def now(self, fleet) -> tuple[int, ...]:
        """Return what the slots' parts of a fleet are as options."""
        found = []
        for slot in self.slots:
            part = [int(fleet[c]) for c in self.instance.slot_members[slot]]
            exclusive = self.instance.slots[slot].exclusive
            found.append((part.index(max(part)) + 1 if any(part) else 0) if exclusive else part[0])
        return tuple(found)

    def options(self, offsets) -> list[list[tuple[int, ...]]]:
        """Return the options to try in each window: all of an exclusive slot, else those near what serves then."""
        found = []
        for t in range(self.begin, self.end):
            each = []
            for slot, now in zip(self.slots, self.now(self.serving[t]), strict=True):
                members = self.instance.slot_members[slot]
                most = self.instance.configurations[members[0]].max_replicas
                near = [now + more for more in offsets if 0 <= now + more <= most]
                each.append(range(len(members) + 1) if self.instance.slots[slot].exclusive else near)
            found.append(list(itertools.product(*each)))
        return found

    def fleet(self, options) -> dict[int, int]:
        """Return the replicas of the slots' members that options mean."""
        found = {}
        for slot, option in zip(self.slots, options, strict=True):
            members = self.instance.slot_members[slot]
            if self.instance.slots[slot].exclusive:
                found |= {c: int(k == option) for k, c in enumerate(members, start=1)}
            else:
                found[members[0]] = option
        return found

    def window_usd(self, t: int, options) -> float:
        """Return rent and operating cost of a window; inf where GPUs are missing."""
        if (t, options) not in self.known:
            mine = self.fleet(options)
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
            self.known[t, options] = cost
        return self.known[t, options]

    def starting_usd(self, t: int, before, after) -> float:
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
        entry = self.now(self.serving[self.begin - 1] if self.begin else self.instance.nominal_fleet)
        stops = [entry, *path, *[self.now(fleet) for fleet in self.serving[self.end : self.end + 1]]]
        moving = sum(
            self.starting_usd(t, a, b) for t, (a, b) in enumerate(itertools.pairwise(stops), self.begin)
        )
        return moving + sum(self.window_usd(t, options) for t, options in enumerate(path, self.begin))
