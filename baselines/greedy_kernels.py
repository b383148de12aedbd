"""Run the compiled loops of GH and AGH: a packed problem and an order of workloads become a fleet with routes.

Everything is a *group*: an exclusive slot, whose level o is its o-th option by size, or a counted slot, whose
level r means r replicas. Level 0 is off. A *share* is the fraction of a workload that a group serves. All
kernels are in this file, because a cached kernel does not notice edits of its callees in other files. They allocate
nothing, so that no references to arrays are counted: that would take longer than the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgym.planning import borrow, entry, inline, jit

# NumPy integers, because Numba compiles a kernel anew for every Python constant that it is called with.
# Columns of `Problem.pairs`. Loads are those of the whole workload, at columns LOAD, LOAD + 1, LOAD + 2.
DELAY, ERROR, LOAD, ROUTE, DATA, COMPATIBLE, PAIR_COLUMNS = np.array([0, 1, 2, 5, 6, 7, 8])
# Columns of `Problem.config`: compute, KV memory and queue servers of a replica, its row in `safe`, and what
# it holds: rent and model storage, model storage alone, then GPUs of each pool.
SERVERS, OFFSET, HELD = np.array([2, 3, 4])
BUDGET, STORAGE = np.array([0, 1])
# Columns of `Problem.groups`.
START, TOP, EXCLUSIVE = np.array([0, 1, 2])
# Entries of `Problem.rules`.
SLO, M1, M2, M3, COVERAGE = np.array([0, 1, 2, 3, 4])
# Values of rules[SLO].
SERVED_MEAN, MEAN, PER_ROUTE, ELASTIC = 0.0, 1.0, 2.0, 3.0
# Which candidates `best_group` looks at.
ANY, ACTIVE, WHOLE = np.array([0, 1, 2])
# Whether a route's delay matters.
LOOSE, STRICT = np.array([0, 1])

_NONE, _OFF = np.array([-1, 0])
_TINY = 1e-9  # a share below this is not worth a route
_SLACK = 1e-10  # round-off allowed in a limit, relative to it


class Problem(NamedTuple):
    """One window's problem; I workloads, C configurations, R resources, G groups."""

    pairs: np.ndarray  # (I, C, 8) delay and error over SLO minus 1, loads, USD, compatible
    unserved_usd: np.ndarray  # (I,)
    config: np.ndarray  # (C, 4 + R)
    limits: np.ndarray  # (R,) most that all replicas may hold
    safe: np.ndarray  # (rows,) safe utilisation of the queue servers
    groups: np.ndarray  # (G, 3) int64: first member, highest level, whether exclusive
    members: np.ndarray  # configurations, group by group, smallest option first
    bound: np.ndarray  # (I, G) least hold and route cost of the whole workload in a group that is off
    rules: np.ndarray  # (5,) switches


class State(NamedTuple):
    """A partial solution; kernels modify it in place. Arrays of floats are views of `flat`."""

    flat: np.ndarray
    share: np.ndarray  # (G, I)
    load: np.ndarray  # (G, 3)
    excess: np.ndarray  # (I, 2) sum of share times (delay / SLO - 1), and of the same for the error
    used: np.ndarray  # (R,)
    unserved: np.ndarray  # (I,)
    level: np.ndarray  # (G,) int64


class Scratch(NamedTuple):
    """Arrays that the kernels overwrite."""

    levels: np.ndarray  # (G, I) int64: level that covers a workload
    covered: np.ndarray  # (I,) bool
    served: np.ndarray  # (I,) bool: workloads of a group that is dissolved
    tried: np.ndarray  # (G,) bool: groups that are off, or that closing was tried for


# -- what a level is


@inline
def config_at(p, group, level):
    """Return the configuration that a group runs at a level of at least 1."""
    first = p.groups[group, START]
    return p.members[first + level - 1 if p.groups[group, EXCLUSIVE] else first]


@inline
def replicas_at(p, group, level):
    """Return how many replicas a group runs at a level."""
    return min(level, 1) if p.groups[group, EXCLUSIVE] else level


@inline
def held_at(p, group, level, resource):
    """Return how much of a resource a group holds at a level."""
    if level == 0:
        return 0.0
    return replicas_at(p, group, level) * p.config[config_at(p, group, level), HELD + resource]


@inline
def capacity_at(p, group, level, kind):
    """Return the capacity of a level: (5g) compute, (5f) KV memory, or queue servers at safe utilisation."""
    config = config_at(p, group, level)
    replicas = replicas_at(p, group, level)
    capacity = replicas * p.config[config, kind]
    return capacity * p.safe[int(p.config[config, OFFSET]) + replicas - 1] if kind == SERVERS else capacity


@inline
def load_at(p, s, group, level, kind):
    """Return the load that the group's present routes put on it at another level."""
    config = config_at(p, group, level)
    if s.level[group] > 0 and config_at(p, group, s.level[group]) == config:
        return s.load[group, kind]
    load = 0.0
    for i in range(s.unserved.size):
        load += s.share[group, i] * p.pairs[i, config, LOAD + kind]
    return load


# -- what fits


@inline
def resources_fit(p, s, group, level, data_usd):
    """Check that budget (5c), storage (5h) and pools allow the level."""
    now = s.level[group]
    for r in range(p.limits.size):
        change = held_at(p, group, level, r) - held_at(p, group, now, r)
        if r == STORAGE:
            change += data_usd
        if change > 0.0 and s.used[r] + change > p.limits[r] * (1.0 + _SLACK):
            return False
    return True


@inline
def capacity_share(p, s, group, level, i, want):
    """Return the largest share of workload i, at most `want`, that the level has room for."""
    config = config_at(p, group, level)
    for kind in range(3):
        demand = p.pairs[i, config, LOAD + kind]
        room = capacity_at(p, group, level, kind) * (1.0 + _SLACK) - load_at(p, s, group, level, kind)
        if room < 0.0:
            return 0.0
        if want * demand > room:
            want = room / demand
    return want


@inline
def allowance(p, unserved):
    """Return how far a workload's `excess` may rise, given what is unserved of it.

    (5i) and (5j) say that shares times delay / SLO add up to at most 1; so the `excess` is at most the
    unserved share. Over what is served alone it is at most 0.
    """
    return 0.0 if p.rules[SLO] == SERVED_MEAN else unserved


@inline
def slo_share(p, s, i, config, want, strictness):
    """Return the effective coverage of (8): what the bounds on mean delay and error allow."""
    if p.rules[SLO] == ELASTIC:
        return want
    room = allowance(p, s.unserved[i])
    relief = allowance(p, 1.0)  # a served share is no longer an unserved one
    for q in range(2):
        cost = p.pairs[i, config, q] + relief
        if cost > 0.0 and (q == ERROR or strictness == STRICT):
            most = max(0.0, room - s.excess[i, q]) / cost
            if most < want * (1.0 - _SLACK):
                want = most
    return want


@inline
def delay_allows(p, s, i, config, want):
    """Check that a route keeps the delay SLO: its own delay, or else the mean."""
    excess = p.pairs[i, config, DELAY]
    if p.rules[SLO] == PER_ROUTE:
        return excess <= 0.0
    return s.excess[i, DELAY] + want * excess <= allowance(p, s.unserved[i] - want) + _SLACK


@inline
def others_allow(p, s, group, config):
    """Check that the workloads routed to the group keep their SLOs on another of its configurations."""
    old = config_at(p, group, s.level[group])
    for i in range(s.unserved.size):
        share = s.share[group, i]
        if share == 0.0:
            continue
        if p.pairs[i, config, COMPATIBLE] == 0.0:
            return False
        for q in range(2):
            new = p.pairs[i, config, q]
            worse = new - p.pairs[i, old, q]
            if worse <= 0.0 or p.rules[SLO] == ELASTIC:
                continue
            if q == DELAY and p.rules[SLO] == PER_ROUTE and new > 0.0:
                return False
            if s.excess[i, q] + share * worse > allowance(p, s.unserved[i]) + _SLACK:
                return False
    return True


# -- what it costs


@inline
def slo_usd(p, s, i):
    """Return the elastic cost of workload i's mean SLOs: an excess of 1 % costs as much as 1 % unserved."""
    if p.rules[SLO] != ELASTIC:
        return 0.0
    return p.unserved_usd[i] * (max(0.0, s.excess[i, 0]) + max(0.0, s.excess[i, 1]))


@inline
def slo_change_usd(p, s, i, old, new, kept, added):
    """Return how `slo_usd` changes if `kept` moves from one configuration to another that takes `added`."""
    change = 0.0
    if p.rules[SLO] == ELASTIC:
        for q in range(2):
            before = s.excess[i, q]
            after = before + (kept + added) * p.pairs[i, new, q]
            if kept > 0.0:
                after -= kept * p.pairs[i, old, q]
            change += max(0.0, after) - max(0.0, before)
    return change * p.unserved_usd[i]


@inline
def activation_usd(p, s, group, level, i, share):
    """Return what else changes when a share goes to a level: held replicas, other routes, elastic SLOs."""
    now = s.level[group]
    new = config_at(p, group, level)
    old = config_at(p, group, now) if now > 0 else new
    cost = held_at(p, group, level, BUDGET) - held_at(p, group, now, BUDGET)
    cost += slo_change_usd(p, s, i, old, new, s.share[group, i], share)
    if old != new:
        for j in range(s.unserved.size):
            kept = s.share[group, j]
            if kept > 0.0:
                cost += kept * (p.pairs[j, new, ROUTE] - p.pairs[j, old, ROUTE])
                if j != i:
                    cost += slo_change_usd(p, s, j, old, new, kept, 0.0)
    return cost


@inline
def objective_usd(p, s):
    """Return the cost of a solution for the window: (5a), with the model stored once per replica."""
    total = s.used[BUDGET]
    for i in range(s.unserved.size):
        total += p.unserved_usd[i] * max(0.0, s.unserved[i]) + slo_usd(p, s, i)
    for group in range(s.level.size):
        if s.level[group] > 0:
            config = config_at(p, group, s.level[group])
            for i in range(s.unserved.size):
                total += s.share[group, i] * p.pairs[i, config, ROUTE]
    return total


# -- changes of a solution


@inline
def set_level(p, s, group, level):
    """Switch a group to a level and carry its routes over."""
    old = s.level[group]
    if old == level:
        return
    for r in range(p.limits.size):
        s.used[r] += held_at(p, group, level, r) - held_at(p, group, old, r)
    if old > 0 and level > 0:
        before, after = config_at(p, group, old), config_at(p, group, level)
        if before != after:
            for kind in range(3):
                s.load[group, kind] = load_at(p, s, group, level, kind)
            for i in range(s.unserved.size):
                share = s.share[group, i]
                s.used[STORAGE] += share * (p.pairs[i, after, DATA] - p.pairs[i, before, DATA])
                for q in range(2):
                    s.excess[i, q] += share * (p.pairs[i, after, q] - p.pairs[i, before, q])
    s.level[group] = level


@inline
def add_share(p, s, i, group, share):
    """Route a share (negative: take it back) of workload i to a group that is on."""
    config = config_at(p, group, s.level[group])
    s.share[group, i] += share
    s.unserved[i] -= share
    s.used[STORAGE] += share * p.pairs[i, config, DATA]
    for kind in range(3):
        s.load[group, kind] += share * p.pairs[i, config, LOAD + kind]
    for q in range(2):
        s.excess[i, q] += share * p.pairs[i, config, q]


@inline
def clear_share(p, s, i, group):
    """Take back all of a workload's share, and what round-off leaves behind; return the share."""
    share = s.share[group, i]
    add_share(p, s, i, group, -share)
    s.share[group, i] = 0.0
    if s.unserved[i] > 1.0 - _TINY:
        s.unserved[i], s.excess[i, DELAY], s.excess[i, ERROR] = 1.0, 0.0, 0.0
    if not serves(s, group):
        for kind in range(3):
            s.load[group, kind] = 0.0
    return share


@inline
def serves(s, group):
    """Check whether anything is routed to a group."""
    for i in range(s.unserved.size):
        if s.share[group, i] > 0.0:
            return True
    return False


@inline
def copy_state(source, target):
    """Overwrite one state with another."""
    for k in range(source.flat.size):
        target.flat[k] = source.flat[k]
    for group in range(source.level.size):
        target.level[group] = source.level[group]


# -- candidates: M1, M3 and effective coverage


@inline
def highest_count(p, s, group):
    """Return the most replicas of a counted group that budget, storage and pools allow."""
    config = p.members[p.groups[group, START]]
    most = float(p.groups[group, TOP])
    for r in range(p.limits.size):
        use = p.config[config, HELD + r]
        if use > 0.0:
            room = p.limits[r] * (1.0 + _SLACK) - s.used[r]
            most = min(most, s.level[group] + np.floor(room / use + _SLACK))
    return max(s.level[group], int(most))


@inline
def count_level(p, s, group, i, want):
    """Return the fewest replicas that have room for a share, at most what can be held."""
    now = s.level[group]
    top = highest_count(p, s, group) if now == 0 or p.rules[M3] > 0.0 else now
    config = p.members[p.groups[group, START]]
    fewest = float(max(now, 1))
    for kind in range(3):
        load = s.load[group, kind] + want * p.pairs[i, config, LOAD + kind]
        if load > p.config[config, kind] * (1.0 + _SLACK) * fewest:
            fewest = np.ceil(load / (p.config[config, kind] * (1.0 + _SLACK)))
    if fewest >= top:
        return top
    level = int(fewest)
    while level < top and capacity_share(p, s, group, level, i, want) < want:
        level += 1  # the safe utilisation grows with the replicas, in no closed form
    return level


@inline
def level_share(p, s, i, group, level, want, strictness):
    """Return the share that a level can take; 0 if it may not be used."""
    config = config_at(p, group, level)
    now = s.level[group]
    if p.pairs[i, config, COMPATIBLE] == 0.0:
        return 0.0
    extra = held_at(p, group, level, BUDGET) - held_at(p, group, now, BUDGET)
    if extra > 0.0 and s.used[BUDGET] + extra > p.limits[BUDGET] * (1.0 + _SLACK):
        return 0.0  # `resources_fit` would say so too; most options that are too expensive stop here
    if strictness == STRICT and not delay_allows(p, s, i, config, want):
        return 0.0
    if now > 0 and level != now and not others_allow(p, s, group, config):
        return 0.0
    share = capacity_share(p, s, group, level, i, slo_share(p, s, i, config, want, strictness))
    if share < _TINY or not resources_fit(p, s, group, level, share * p.pairs[i, config, DATA]):
        return 0.0
    return share


@inline
def option_level(p, s, i, group, want, strictness):
    """Return the level of an exclusive group for a share, and how much of it fits: M1 (6) or M3 (9).

    The smallest option that takes all; if there is none, the one that takes most.
    """
    now = s.level[group]
    last = p.groups[group, TOP]
    if (now == 0 and p.rules[M1] == 0.0) or (now > 0 and p.rules[M3] == 0.0):
        last = max(now, 1)
        strictness = LOOSE
    best, most = _OFF, 0.0
    for level in range(max(now, 1), last + 1):
        share = level_share(p, s, i, group, level, want, strictness)
        if share > most:
            best, most = level, share
            if share >= want:
                break
    return best, most


@inline
def cheapest_level(p, s, i, group, want):
    """Return the level of an exclusive group with the least cost per share, whatever its delay."""
    now = s.level[group]
    best, most, least = _OFF, 0.0, np.inf
    for level in range(max(now, 1), p.groups[group, TOP] + 1):
        share = level_share(p, s, i, group, level, want, LOOSE)
        if share > 0.0:
            unit = activation_usd(p, s, group, level, i, share) / share
            unit += p.pairs[i, config_at(p, group, level), ROUTE]
            if unit < least:
                best, most, least = level, share, unit
    return best, most


@inline
def candidate(p, s, i, group, want):
    """Return level, effective coverage (8) and activation cost of a group for workload i; level 0: none."""
    if p.groups[group, EXCLUSIVE]:
        level, share = option_level(p, s, i, group, want, STRICT)
        if level == 0 and p.rules[SLO] == ELASTIC:
            level, share = cheapest_level(p, s, i, group, want)
    else:
        level = count_level(p, s, group, i, want)
        strictness = STRICT if p.rules[SLO] != ELASTIC and p.rules[M1] > 0.0 else LOOSE
        share = level_share(p, s, i, group, level, want, strictness) if level > 0 else 0.0
    if share == 0.0:
        return _OFF, 0.0, 0.0
    return level, share, activation_usd(p, s, group, level, i, share)


@inline
def hopeless(p, s, i, group, want, key):
    """Tell at once that a group that is off cannot beat a unit cost.

    The bound holds if nothing of i is served, or if SLOs are elastic and i has no excess to be relieved of.
    """
    holds = want > 1.0 - _TINY and s.unserved[i] == 1.0
    if p.rules[SLO] == ELASTIC:
        holds = s.excess[i, DELAY] <= 0.0 and s.excess[i, ERROR] <= 0.0
    return holds and p.rules[M2] > 0.0 and p.bound[i, group] >= key


@inline
def keeps_slos(p, s, i, config, share):
    """Check that workload i's means stay within its SLOs; where these are hard, candidates see to it."""
    if p.rules[SLO] != ELASTIC:
        return True
    for q in range(2):
        if s.excess[i, q] + share * p.pairs[i, config, q] > _SLACK:
            return False
    return True


@inline
def best_group(p, s, i, want, choice, limit):
    """Return group, level and share that M2 ranks first: full coverage before partial, then unit cost.

    Without M2 the cost of activation and of the whole workload decides alone. With choice WHOLE only full
    coverage at a unit cost below `limit` counts.
    """
    best, best_level, best_share = _NONE, _OFF, 0.0
    best_partial, best_key = choice != WHOLE, limit
    for k in range(2 * s.level.size):  # active groups first: their low cost rules out most of the others
        group = k % s.level.size
        if (s.level[group] > 0) != (k < s.level.size):
            continue
        if s.level[group] == 0 and (
            choice == ACTIVE or (not best_partial and hopeless(p, s, i, group, want, best_key))
        ):
            continue
        level, share, cost = candidate(p, s, i, group, want)
        if level == 0 or (choice == WHOLE and share < want):
            continue
        config = config_at(p, group, level)
        key = cost / share + p.pairs[i, config, ROUTE]
        partial = choice != WHOLE and (share < want or not keeps_slos(p, s, i, config, share))
        if p.rules[M2] == 0.0:
            partial, key = False, cost + p.pairs[i, config, ROUTE]
        if (partial == best_partial and key < best_key) or (best_partial and not partial):
            best, best_level, best_share, best_partial, best_key = group, level, share, partial, key
    return best, best_level, best_share


@inline
def place(p, s, i, choice):
    """Serve as much as possible of what workload i lacks, the best candidate first."""
    for _ in range(s.level.size):
        if s.unserved[i] <= _TINY:
            break
        group, level, share = best_group(p, s, i, s.unserved[i], choice, np.inf)
        if group == _NONE:
            break
        set_level(p, s, group, level)
        add_share(p, s, i, group, share)


# -- Algorithm 1


@inline
def cover_level(p, i, group):
    """Return the level that M1 gives workload i in an unused group; 0 if none, or if it errs too much."""
    last = p.groups[group, TOP] if p.groups[group, EXCLUSIVE] else 1
    for level in range(1, last + 1):
        config = config_at(p, group, level)
        if p.pairs[i, config, COMPATIBLE] == 0.0 or p.pairs[i, config, ERROR] > 0.0:
            continue
        if p.rules[M1] == 0.0 or p.pairs[i, config, DELAY] <= 0.0:
            return level
    return _OFF


@inline
def cover_set(levels, covered, group):
    """Return how many uncovered workloads a group would cover, (10), and the level for all, (11)."""
    count, level = _OFF, _OFF
    for i in range(covered.size):
        if not covered[i] and levels[group, i] > 0:
            count += 1
            level = max(level, levels[group, i])
    return count, level


@inline
def cover(p, s, scratch):
    """Phase 1: switch on groups until every workload has one that suits it, within a share of the budget."""
    groups, workloads = s.share.shape
    levels, covered = scratch.levels, scratch.covered
    for group in range(groups):
        for i in range(workloads):
            levels[group, i] = cover_level(p, i, group)
    for i in range(workloads):
        covered[i] = s.unserved[i] <= 0.0  # absent workloads need nothing
    cap = p.rules[COVERAGE] * p.limits[BUDGET]
    while True:
        best, best_level, best_score = _NONE, _OFF, 0.0
        for group in range(groups):
            count, level = cover_set(levels, covered, group)
            if count == 0 or s.level[group] > 0 or not resources_fit(p, s, group, level, 0.0):
                continue
            cost = held_at(p, group, level, BUDGET)
            if s.used[BUDGET] + cost <= cap and count > best_score * max(cost, _TINY):
                best, best_level, best_score = group, level, count / max(cost, _TINY)
        if best < 0:
            break
        set_level(p, s, best, best_level)
        for i in range(workloads):
            covered[i] = covered[i] or levels[best, i] > 0


@inline
def construct(p, s, order):
    """Phase 2: place the workloads in order."""
    for i in order:
        if s.unserved[i] > 0.0:
            place(p, s, i, ANY)


# -- Algorithm 2


@inline
def slos_hold(p, s):
    """Check that all hard mean SLOs are met."""
    if p.rules[SLO] == ELASTIC:
        return True
    for i in range(s.unserved.size):
        most = allowance(p, s.unserved[i]) + _SLACK
        if s.excess[i, DELAY] > most or s.excess[i, ERROR] > most:
            return False
    return True


@inline
def shrink(p, s, group):
    """Give a group the smallest level that still serves its routes for less; switch it off without routes."""
    if not serves(s, group):
        set_level(p, s, group, _OFF)
        return
    for level in range(1, s.level[group]):
        config = config_at(p, group, level)
        fits = resources_fit(p, s, group, level, 0.0)
        for kind in range(3):
            room = capacity_at(p, group, level, kind) * (1.0 + _SLACK)
            fits = fits and load_at(p, s, group, level, kind) <= room
        if fits and others_allow(p, s, group, config) and activation_usd(p, s, group, level, _OFF, 0.0) < 0.0:
            set_level(p, s, group, level)
            return


@inline
def improves(p, s, cost):
    """Return the cost of a state that keeps its SLOs and is cheaper than `cost`, else `cost`."""
    if not slos_hold(p, s):  # a mean may rest on a route that was moved away
        return cost
    new = objective_usd(p, s)
    return new if new < cost - _TINY * abs(cost) else cost


@inline
def relocate(p, s, backup, passes, cost):
    """Up to `passes` rounds of moves of whole shares to the best other place; return the lower cost."""
    for _ in range(passes):
        before = cost
        for source in range(s.level.size):
            for i in range(s.unserved.size):
                if s.share[source, i] <= 0.0:
                    continue
                copy_state(s, backup)
                share = clear_share(p, s, i, source)
                shrink(p, s, source)
                saved = cost - objective_usd(p, s) + share * p.unserved_usd[i]
                target, level, _ = best_group(p, s, i, share, WHOLE, saved / share)
                new = cost
                if target != _NONE and target != source:
                    set_level(p, s, target, level)
                    add_share(p, s, i, target, share)
                    new = improves(p, s, cost)
                if new == cost:
                    copy_state(backup, s)
                cost = new
        if cost == before:
            break
    return cost


@inline
def utilization(p, s, group):
    """Return how full the fullest capacity of an active group is."""
    most = 0.0
    for kind in range(3):
        if s.load[group, kind] > 0.0:
            most = max(most, s.load[group, kind] / capacity_at(p, group, s.level[group], kind))
    return most


@inline
def dissolve(p, s, group, served):
    """Switch a group off and spread what it served over the other active ones, as far as they take it."""
    for i in range(served.size):
        served[i] = s.share[group, i] > 0.0
        if served[i]:
            clear_share(p, s, i, group)
    set_level(p, s, group, _OFF)
    for i in range(served.size):
        if served[i]:
            place(p, s, i, ACTIVE)


@inline
def least_loaded(p, s, tried):
    """Return the active group with the lowest utilisation that was not tried yet, or none."""
    group, least = _NONE, np.inf
    for g in range(s.level.size):
        if s.level[g] > 0 and not tried[g] and utilization(p, s, g) < least:
            group, least = g, utilization(p, s, g)
    return group


@inline
def consolidate(p, s, backup, scratch):
    """Shrink what is idle, then try to close active groups, the least loaded first; return the cost.

    A group stays closed where that lowers the cost, even if some demand is not served any more. What is freed
    is offered to workloads that lack service, where serving them pays.
    """
    tried, active = scratch.tried, 0
    for group in range(s.level.size):
        tried[group] = s.level[group] == 0
        if s.level[group] > 0:
            shrink(p, s, group)
        active += 1 if s.level[group] > 0 else 0
    cost = objective_usd(p, s)
    for k in range(active + s.unserved.size):
        i = k - active
        group = least_loaded(p, s, tried) if i < 0 else _NONE
        if group == _NONE and (i < 0 or s.unserved[i] <= _TINY):
            continue
        copy_state(s, backup)
        if group == _NONE:
            place(p, s, i, ANY)
        else:
            tried[group] = True
            dissolve(p, s, group, scratch.served)
        new = improves(p, s, cost)
        if new == cost:
            copy_state(backup, s)
        cost = new
    return cost


@jit
def solve(p, states, scratch, orders, passes, patience):
    """Construct from each order and, with `passes` of at least 0, improve by local search; keep the best.

    `states` are four empty ones; the last becomes the best. Return its cost and the number of orders tried.
    """
    p, states, scratch, orders = borrow((p, states, scratch, orders))
    covered, s, backup, best = states
    cover(p, covered, scratch)
    best_cost, waited = np.inf, 0
    for k in range(orders.shape[0]):
        copy_state(covered, s)
        construct(p, s, orders[k])
        cost = objective_usd(p, s)
        if passes >= 0:
            relocate(p, s, backup, passes, cost)
            cost = consolidate(p, s, backup, scratch)
        if cost < best_cost - _TINY * abs(cost):
            copy_state(s, best)
            best_cost, waited = cost, 0
        else:
            waited += 1
            if waited == patience:
                return best_cost, k + 1
    return best_cost, orders.shape[0]


def _example():
    """Return a problem, a state and work space in their types."""
    row, table = np.zeros(1), np.zeros((1, 1))
    whole, wholes, flags = (
        np.zeros(1, dtype=np.int64),
        np.zeros((1, 1), dtype=np.int64),
        np.zeros(1, dtype=np.bool_),
    )
    problem = Problem(np.zeros((1, 1, 8)), row, table, row, row, wholes, whole, table, row)
    state = State(row, table, table, table, row, row, whole)
    return problem, (state,) * 4, Scratch(wholes, flags, flags, flags), wholes


entry(solve, *_example(), 0, 0)
