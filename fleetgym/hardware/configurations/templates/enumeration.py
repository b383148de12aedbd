"""Find the best layer split and stage plan of every multiset of nodes, compiled.

A multiset of at most N nodes of K types is a sorted tuple of N entries in 0..K, 0 being no node. Its rank is that of
the combination {a_i + i} in colexicographic order, so every part of a multiset has a smaller rank, and an array
over ranks needs no keys. `throughput[rank]` is 0 where the nodes cannot serve, -1 where the multiset is excluded.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import jit

EXCLUDED = -1.0
_SLACK = 1e-12  # relative: sums in another order are equal
_QUICK = 32  # questions about what serves more than the best so far, before the remaining range is bisected


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
def _merge(nodes, count, kinds, counts, strides):
    """Write the distinct types, how many nodes each has, and the place value of each in a part's number.

    A part of the nodes is a count of nodes of each type. Its number has these counts as digits, those of the
    first type last, so numbers run from 0 to the product of (count + 1), exclusive. Return how many types.
    """
    number = 0
    stride = 1
    for k in range(count):
        if k == 0 or nodes[k] != nodes[k - 1]:
            if number > 0:
                stride *= counts[number - 1] + 1
            kinds[number] = nodes[k] - 1
            counts[number] = 0
            strides[number] = stride
            number += 1
        counts[number - 1] += 1
    return number


@jit
def _most_layers(rows, kinds, part, above, low):
    """Return how many layers, at least `low`, a stage holds while it serves more than `above`.

    It has `part[i]` nodes of type `kinds[i]`.
    """
    high = rows.shape[1]
    while low < high:
        middle = (low + high + 1) // 2
        total = 0.0
        for i in range(part.size):
            for _ in range(part[i]):  # not a product: round-off as in a sum over nodes
                total += rows[kinds[i], middle - 1]
        if total > above:
            low = middle
        else:
            high = middle - 1
    return low


@jit
def _stage_capacities(rows, kinds, counts, strides, above, digits, capacity):
    """Fill `capacity[part]` with `_most_layers`: a part holds no less than with one node less.

    The empty part has number 0.
    """
    digits[:] = 0
    capacity[0] = 0
    states = 1
    for i in range(counts.size):
        states *= counts[i] + 1
    for part in range(1, states):
        i = 0
        while digits[i] == counts[i]:
            digits[i] = 0
            i += 1
        digits[i] += 1
        capacity[part] = _most_layers(rows, kinds, digits, above, capacity[part - strides[i]])


@jit
def _best_split(capacity, rest_best, part, digits, strides, own_digits):
    """Return the most layers of one stage and the rest of `part`, and the stage's number.

    The stage has a node of the part's first type: stages have no order. The rest holds `rest_best`.
    """
    first = 0
    while digits[first] == 0:
        first += 1
    own_digits[:] = 0
    own_digits[first] = 1
    own = strides[first]
    found, chosen = 0, 0
    while own != part:
        here, other = capacity[own], rest_best[part - own]
        if here > 0 and other > 0 and here + other > found:
            found, chosen = here + other, own
        i = first
        while own_digits[i] == digits[i]:
            least = 1 if i == first else 0
            own -= (own_digits[i] - least) * strides[i]
            own_digits[i] = least
            i += 1
        own_digits[i] += 1
        own += strides[i]
    return found, chosen


@jit
def _best_partition(capacity, counts, strides, stages, best, choice, digits, own_digits):
    """Return the most layers that any partition of all nodes into `stages` parts holds.

    `best[s, part]` and `choice[s, part]` are filled for s + 1 stages: the layers, and the part that has the
    first type. Every stage must hold a layer; 0 says that it cannot be done. Parts that leave the
    other stages too few nodes are not looked at.
    """
    full = 0
    total = 0
    for i in range(counts.size):
        full += counts[i] * strides[i]
        total += counts[i]
    for part in range(1, full + 1):
        best[0, part] = capacity[part]
        choice[0, part] = part
    for s in range(1, stages):
        if s == stages - 1:
            digits[:] = counts
            best[s, full], choice[s, full] = _best_split(
                capacity, best[s - 1], full, digits, strides, own_digits
            )
            break
        digits[:] = 0
        size = 0
        for part in range(1, full):
            i = 0
            while digits[i] == counts[i]:
                size -= digits[i]
                digits[i] = 0
                i += 1
            digits[i] += 1
            size += 1
            if s < size <= total - (stages - 1 - s):
                best[s, part], choice[s, part] = _best_split(
                    capacity, best[s - 1], part, digits, strides, own_digits
                )
            else:
                best[s, part] = 0
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
def _assign(choice, counts, strides, stages, used, stage_of):
    """Write the stage of every node, the nodes being sorted by type, from the choices of `_best_partition`."""
    used[:] = 0
    part = 0
    for i in range(counts.size):
        part += counts[i] * strides[i]
    for s in range(stages):
        own = choice[stages - 1 - s, part]
        node = 0
        for i in range(counts.size):
            for _ in range(own // strides[i] % (counts[i] + 1)):
                stage_of[node + used[i]] = s
                used[i] += 1
            node += counts[i]
        part -= own


@jit
def improve(table, reach, nodes, count, known, stage_of, layers, work):
    """Find the best plan of some nodes if it serves more than `known`; return throughput and stages.

    For each number of stages, one question is asked again and again: which partition holds the most layers while
    every stage serves more than the best so far? If it holds all layers, its best split is better. Otherwise no
    partition is better. After `_QUICK` questions the range between the best and the bound is bisected, so
    about a hundred questions are enough. The result is then exact to a relative `_SLACK`.

    Nodes of one type are interchangeable, so a part of the nodes is a count of nodes of each type, see `_merge`.

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
    work : (2 N + 1, states) int array
        Scratch. There are as many states as the product of (nodes + 1) over the types, at most 2^count.
        Where there are fewer layers than nodes, 2 layers + 1 rows are enough.

    Returns
    -------
    throughput : float
        `known` if nothing is better.
    stages : int
        0 if nothing is better.
    """
    num_layers = table.shape[2]
    most = (work.shape[0] - 1) // 2
    capacity, best, choice = work[0], work[1 : most + 1], work[most + 1 :]
    small = np.zeros((5, count), dtype=np.int64)
    number = _merge(nodes, count, small[0], small[1], small[2])
    kinds, counts, strides = small[0, :number], small[1, :number], small[2, :number]
    digits, own_digits = small[3, :number], small[4, :number]
    found, found_stages = known, 0
    trial = np.zeros(count, dtype=np.int64)
    split = np.zeros(count, dtype=np.int64)
    for stages in range(1, min(count, num_layers) + 1):
        rows = table[stages - 1]
        bound = 0.0
        for k in range(count):
            bound += reach[stages - 1, nodes[k] - 1]
        limit = np.inf  # no plan of this number of stages serves more
        asked = 0
        while bound > found * num_layers:
            above = found
            if asked >= _QUICK:
                limit = min(limit, bound / num_layers)
                if not found < limit * (1.0 - _SLACK):
                    break
                above = np.sqrt(found) * np.sqrt(limit)
            asked += 1
            _stage_capacities(rows, kinds, counts, strides, above, digits, capacity)
            held = _best_partition(capacity, counts, strides, stages, best, choice, digits, own_digits)
            served = 0.0
            if held >= num_layers:
                _assign(choice, counts, strides, stages, digits, trial)
                served = _split_layers(rows, nodes, count, trial, stages, split)
            if served > found:
                found, found_stages = served, stages
                stage_of[:count] = trial
                layers[:stages] = split[:stages]
            elif asked <= _QUICK:
                break
            if not served > above:  # also where it is by round-off
                limit = above
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
