"""Compiled: from a table T_j(g) to the best layer split and stage plan of every multiset of nodes.

A multiset of at most N nodes of K types is a sorted tuple of N entries in 0..K, 0 being no node. Its rank is that of
the combination {a_i + i} in colexicographic order, so every part of a multiset has a smaller rank, and an array
over ranks needs no keys. `throughput[rank]` is 0 where the nodes cannot serve, -1 where the multiset is excluded.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import jit

EXCLUDED = -1.0
_SLACK = 1e-12  # relative: sums in another order are equal


def binomials(size: int) -> np.ndarray:
    """Return C(n, k) for n, k < size as int64 (size, size)."""
    table = np.zeros((size, size), dtype=np.int64)
    table[:, 0] = 1
    for n in range(1, size):
        table[n, 1:] = table[n - 1, 1:] + table[n - 1, :-1]
    return table


@jit
def rank(nodes, count, most, binomial):
    """Return the rank of the sorted types (from 1) `nodes[:count]` among multisets of at most `most` nodes."""
    total = 0
    for k in range(count):
        position = most - count + k
        total += binomial[nodes[k] + position, position + 1]
    return total


@jit
def _rank_of_part(nodes, count, part, most, binomial):
    """Return the rank of the nodes whose bit is set in `part`."""
    left = 0
    for k in range(count):
        left += (part >> k) & 1
    total = 0
    position = most - left
    for k in range(count):
        if (part >> k) & 1:
            total += binomial[nodes[k] + position, position + 1]
            position += 1
    return total


@jit
def unrank(number, most, binomial, nodes):
    """Write the sorted types of the multiset with a rank to `nodes`; return how many there are."""
    remaining = number
    entries = np.zeros(most, dtype=np.int64)
    for i in range(most - 1, -1, -1):
        b = i
        while binomial[b + 1, i + 1] <= remaining:
            b += 1
        remaining -= binomial[b, i + 1]
        entries[i] = b - i
    count = 0
    for i in range(most):
        if entries[i] > 0:
            nodes[count] = entries[i]
            count += 1
    return count


@jit
def _most_layers(rows, nodes, count, part, above):
    """Return how many layers the nodes in `part`, sharing one stage, hold while serving more than `above`."""
    low, high = 0, rows.shape[1]
    while low < high:
        middle = (low + high + 1) // 2
        total = 0.0
        for k in range(count):
            if (part >> k) & 1:
                total += rows[nodes[k] - 1, middle - 1]
        if total > above:
            low = middle
        else:
            high = middle - 1
    return low


@jit
def _stage_capacities(rows, nodes, count, above, capacity):
    """Fill `capacity[part]` with `_most_layers`; parts of equal types are looked at once."""
    for part in range(1, 1 << count):
        twin = 0  # the same types with the earlier nodes: move one node to its unused left neighbour
        for k in range(1, count):
            if (part >> k) & 1 and not (part >> (k - 1)) & 1 and nodes[k] == nodes[k - 1]:
                twin = part ^ (1 << k) ^ (1 << (k - 1))
                break
        if twin:
            capacity[part] = capacity[twin]
        else:
            capacity[part] = _most_layers(rows, nodes, count, part, above)


@jit
def _best_partition(capacity, full, stages, best, choice):
    """Return the most layers that any partition of `full` into `stages` parts holds.

    `best[s, part]` and `choice[s, part]` are filled for s + 1 stages: the layers, and the part that has the
    lowest node. Every stage must hold a layer; 0 says that it cannot be done.
    """
    for part in range(1, full + 1):
        best[0, part] = capacity[part]
        choice[0, part] = part
    for s in range(1, stages):
        first = full if s == stages - 1 else 1
        for part in range(first, full + 1):
            lowest = part & -part
            rest = part ^ lowest
            found, chosen = 0, 0
            sub = rest
            while sub > 0:  # sub is what remains for the other stages
                own = capacity[part ^ sub]
                other = best[s - 1, sub]
                if own > 0 and other > 0 and own + other > found:
                    found, chosen = own + other, part ^ sub
                sub = (sub - 1) & rest
            best[s, part] = found
            choice[s, part] = chosen
    return best[stages - 1, full]


@jit
def _split_layers(rows, nodes, count, stage_of, stages, layers):
    """Split all layers over stages so that the slowest stage is as fast as can be; return its throughput.

    The next layer always goes to the stage that stays fastest with it: exact while T_j falls with j.
    """
    total = np.zeros(stages)  # throughput of each stage with one layer more than it has
    for s in range(stages):
        layers[s] = 0
    for k in range(count):
        total[stage_of[k]] += rows[nodes[k] - 1, 0]
    slowest = np.inf
    for step in range(rows.shape[1]):
        chosen = 0
        if step < stages:
            chosen = step  # every stage holds a layer
        else:
            for s in range(1, stages):
                if total[s] > total[chosen]:
                    chosen = s
        slowest = min(slowest, total[chosen])
        layers[chosen] += 1
        total[chosen] = 0.0
        if layers[chosen] < rows.shape[1]:
            for k in range(count):
                if stage_of[k] == chosen:
                    total[chosen] += rows[nodes[k] - 1, layers[chosen]]
    return slowest


@jit
def improve(table, reach, nodes, count, known, stage_of, layers, work):
    """Find the best plan of some nodes if it serves more than `known`; return throughput and stages.

    For each number of stages: which partition holds the most layers while every stage serves more than the
    best so far? If it holds all of them its best split is better; ask again. Otherwise no partition is better.

    Parameters
    ----------
    table : (S, K, L) float array
        T_j(g); falls along the last axis.
    reach : (S, K) float array
        Largest j T_j(g): no plan serves more than the sum over nodes / L, since L T <= sum j_s(g) T_j(g).
    nodes : (count,) int array
        Sorted types, from 1.
    known : float
        Only what serves more is of interest.
    stage_of : (N,) int array, out
        Stage of each node.
    layers : (N,) int array, out
        Layers of each stage.
    work : (2 N + 1, 2^N) int array
        Scratch.

    Returns
    -------
    throughput : float
        `known` if nothing is better.
    stages : int
        0 if nothing is better.
    """
    full = (1 << count) - 1
    num_layers = table.shape[2]
    most = (work.shape[0] - 1) // 2
    capacity, best, choice = work[0], work[1 : most + 1], work[most + 1 :]
    found, found_stages = known, 0
    trial = np.zeros(count, dtype=np.int64)
    split = np.zeros(count, dtype=np.int64)
    for stages in range(1, min(count, num_layers) + 1):
        rows = table[stages - 1]
        bound = 0.0
        for k in range(count):
            bound += reach[stages - 1, nodes[k] - 1]
        while bound > found * num_layers:
            _stage_capacities(rows, nodes, count, found, capacity)
            if _best_partition(capacity, full, stages, best, choice) < num_layers:
                break
            part = full
            for s in range(stages):
                own = choice[stages - 1 - s, part]
                for k in range(count):
                    if (own >> k) & 1:
                        trial[k] = s
                part ^= own
            served = _split_layers(rows, nodes, count, trial, stages, split)
            if not served > found:  # round-off
                break
            found, found_stages = served, stages
            stage_of[:count] = trial
            layers[:stages] = split[:stages]
    return found, found_stages


@jit
def library(table, reach, memory_gb, cap_gb, most, binomial, throughput):
    """Fill `throughput` by rank for every multiset of at most `most` nodes with less memory than the cap.

    A node more never hurts, so the best plan with one node less is where the search starts.
    """
    types = table.shape[1]
    entries = np.zeros(most, dtype=np.int64)
    stage_of, layers = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    work = np.zeros((2 * most + 1, 1 << most), dtype=np.int64)
    throughput[0] = 0.0
    for number in range(1, throughput.size):
        i = 0
        while i < most - 1 and entries[i] == entries[i + 1]:
            i += 1
        if i == most - 1 and entries[i] == types:
            break
        entries[i] += 1
        entries[:i] = 0
        start = 0
        while entries[start] == 0:
            start += 1
        nodes, count = entries[start:], most - start
        memory = 0.0
        for k in range(count):
            memory += memory_gb[nodes[k] - 1]
        if memory >= cap_gb:
            throughput[number] = EXCLUDED
            continue
        full = (1 << count) - 1
        known = 0.0
        for k in range(count):
            if k == 0 or nodes[k] != nodes[k - 1]:
                known = max(known, throughput[_rank_of_part(nodes, count, full ^ (1 << k), most, binomial)])
        throughput[number], _ = improve(table, reach, nodes, count, known, stage_of, layers, work)


@jit
def undominated(throughput, most, binomial, value, keep):
    """Mark the templates that no two disjoint parts of their nodes match; fill `value`.

    `value[rank]` is the most that the nodes serve as any number of replicas. A template that does not
    exceed what a division of its nodes serves is superfluous at any price, availability and demand.
    """
    nodes = np.zeros(most, dtype=np.int64)
    value[0] = 0.0
    for number in range(1, throughput.size):
        own = throughput[number]
        value[number] = own
        keep[number] = False
        if own <= 0.0:
            continue
        count = unrank(number, most, binomial, nodes)
        full = (1 << count) - 1
        divided = 0.0
        rest = full ^ 1
        sub = rest
        while sub > 0:
            one = value[_rank_of_part(nodes, count, sub, most, binomial)]
            other = value[_rank_of_part(nodes, count, full ^ sub, most, binomial)]
            divided = max(divided, one + other)
            sub = (sub - 1) & rest
        keep[number] = own * (1.0 - _SLACK) > divided
        value[number] = max(own, divided)


@jit
def count_nodes(ranks, most, binomial, counts):
    """Fill `counts[i, type]` with the nodes of the multiset with rank `ranks[i]`."""
    nodes = np.zeros(most, dtype=np.int64)
    for i in range(ranks.size):
        count = unrank(ranks[i], most, binomial, nodes)
        for k in range(count):
            counts[i, nodes[k] - 1] += 1
