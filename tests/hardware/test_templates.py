"""Serving templates: equal to the paper's ILP, true to the throughput model, compact and readable again."""

import dataclasses
import itertools

import numpy as np
import pytest
from helix_capacities import capacities
from places import SHARED

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.templates import best_plan, enumeration, generate, replicas, select
from fleetgym.hardware.configurations.templates.plans import MOST_STEPS, search_size
from fleetgym.hardware.performance import replica, roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests
from fleetgym.hardware.performance.replica import NodeType, Service, throughput_table
from fleetgym.papers.coral import helix
from fleetgym.papers.coral.placement_ilp import solve_placement

NODES = [NodeType(catalog.gpu(gpu), n) for gpu in ("L4", "A10G", "L40S") for n in (1, 2)]
PHI = Service(
    model=catalog.model("Phi-4-14B"),
    input_tokens=1155,
    output_tokens=211,
    prefill_slo_s=1.2,
    decode_slo_s=0.06,
)


def random_table(random, stages, types, layers):
    """Return a table that falls along layers, with zeros where nothing fits, and has no other structure."""
    table = np.sort(random.uniform(0.0, 10.0, (stages, types, layers)), axis=2)[:, :, ::-1].copy()
    fits = random.integers(1, layers + 1, (stages, types, 1))
    return np.where(np.arange(layers) < fits, table, 0.0)


@pytest.mark.parametrize(("cases", "seed"), [(15, 1), pytest.param(200, 2, marks=pytest.mark.slow)])
def test_equals_the_ilp(cases, seed):
    """On random tables and node sets the enumeration finds what the paper's ILP proves optimal."""
    random = np.random.default_rng(seed)
    for _ in range(cases):
        count, layers = int(random.integers(1, 5)), int(random.integers(2, 8))
        table = random_table(random, count, 3, layers)
        nodes = random.integers(0, 3, count)
        oracle, proven = solve_placement(table, nodes)
        assert proven
        assert best_plan(table, nodes).throughput_rps == pytest.approx(oracle, rel=1e-6, abs=1e-6)


def brute_force(table, nodes):
    """Return the best throughput over every assignment of nodes and every composition of layers."""
    layers, best = table.shape[2], 0.0
    for stages in range(1, len(nodes) + 1):
        for cuts in itertools.combinations(range(1, layers), stages - 1):
            split = np.diff([0, *cuts, layers])
            for where in itertools.product(range(stages), repeat=len(nodes)):
                served = np.zeros(stages)
                for k, s in enumerate(where):
                    served[s] += table[stages - 1, nodes[k], split[s] - 1]
                best = max(best, served.min())
    return best


def test_equals_brute_force():
    """Every assignment and every split, tried one by one."""
    random = np.random.default_rng(3)
    for _ in range(40):
        count, layers = int(random.integers(1, 5)), int(random.integers(1, 6))
        table = random_table(random, count, 3, layers)
        nodes = random.integers(0, 3, count)
        assert best_plan(table, nodes).throughput_rps == pytest.approx(brute_force(table, nodes))


def degenerate_table(kind, random, stages, types, layers):
    """Return a falling table with ties, zeros, values from 1e-30 to 1e30, or types that serve nothing."""
    shape = (stages, types, layers)
    if kind == "ties":
        table = random.integers(0, 3, shape).astype(float)
    elif kind == "zeros":
        table = np.zeros(shape)
    elif kind == "scales":
        table = 10.0 ** random.uniform(-30.0, 30.0, shape)
    elif kind == "constant":
        table = np.full(shape, 0.1)
    else:
        table = random.uniform(0.0, 10.0, shape) * (random.uniform(size=(1, types, 1)) < 0.5)
    return -np.sort(-table, axis=2)


@pytest.mark.parametrize("kind", ["ties", "zeros", "scales", "constant", "unable"])
@pytest.mark.parametrize("types", [1, 2, 3])
def test_equals_brute_force_on_degenerate_tables(kind, types):
    """Ties, zeros, bad scales, types that cannot serve; nodes of one type only, and of several."""
    random = np.random.default_rng([5, types])
    for _ in range(12):
        count, layers = int(random.integers(1, 6)), int(random.integers(1, 6))
        table = degenerate_table(kind, random, count, types, layers)
        nodes = random.integers(0, types, count)
        found, best = best_plan(table, nodes).throughput_rps, brute_force(table, nodes)
        assert found == pytest.approx(best, rel=1e-12, abs=0.0)


def test_equal_nodes_are_merged_without_loss():
    """The plan is, bit for bit, that of the same nodes with a type each."""
    random = np.random.default_rng(6)
    for _ in range(60):
        count, layers = int(random.integers(2, 9)), int(random.integers(1, 30))
        table = random_table(random, count, 3, layers)
        nodes = np.sort(random.integers(0, 3, count))
        merged, apart = best_plan(table, nodes), best_plan(table[:, nodes], range(count))
        assert merged.throughput_rps == apart.throughput_rps
        assert [(s.layers, s.nodes) for s in merged.stages] == [
            (s.layers, tuple(nodes[list(s.nodes)])) for s in apart.stages
        ]


@pytest.mark.parametrize("layers", [2, 3])
def test_many_small_improvements_do_not_delay_the_best_plan(layers):
    """Nodes whose powers are 1, 2, 4, ... offer thousands of plans, each a little better than the one before."""
    count = 14
    table = np.zeros((count, count, layers))
    table[:, :, 0] = 2.0 ** np.arange(count)
    best = 2.0 ** (count - layers + 1) - 1.0  # the large ones alone, all others together
    assert best_plan(table, range(count)).throughput_rps == best


def test_search_size_counts_states():
    """Every count of nodes of each type is a state, and every stage within a state a step."""
    nodes = [0, 0, 1, 2, 2, 2]
    counts = [2, 1, 3]
    states = list(itertools.product(*(range(c + 1) for c in counts)))
    pairs = sum(all(a <= b for a, b in zip(x, y, strict=True)) for x in states for y in states)
    found = search_size(nodes, 40)
    assert (found.states, found.steps) == (len(states), pairs * sum(range(1, 7)))
    assert search_size(nodes, 2).steps == pairs * (1 + 2)
    assert search_size(range(24), 80).states == 2**24


def test_a_search_that_is_too_large_is_refused_at_once():
    """24 different nodes would take 2^24 states."""
    with pytest.raises(FleetgymError, match=r"16,777,216 states .* at most 2,000,000,000 steps"):
        best_plan(np.ones((24, 24, 80)), range(24))
    assert search_size(range(15), 80).steps <= MOST_STEPS < search_size(range(16), 80).steps
    with pytest.raises(FleetgymError, match="states"):
        best_plan(np.ones((3000, 1, 80)), np.zeros(3000, dtype=int))


def test_a_table_that_rises_is_refused():
    """The error names the place and both envelopes of the table are accepted."""
    table = np.ones((2, 3, 4))
    table[1, 2, 3] = 1.5
    with pytest.raises(FleetgymError, match=r"rises from 1\.0 to 1\.5 for 2 stages, node type 2, 4 layers"):
        best_plan(table, [0])
    upper = np.maximum.accumulate(table[..., ::-1], axis=-1)[..., ::-1]
    assert best_plan(upper, [2, 2]).throughput_rps == 2.0
    assert best_plan(np.minimum.accumulate(table, axis=-1), [2, 2]).throughput_rps == 2.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "nan for 2 stages, node type 0, 3 layers"),
        (np.inf, "inf for 2 stages, node type 0, 3 layers"),
        (-1.0, r"-1\.0 for 2 stages, node type 0, 3 layers"),
    ],
)
def test_a_table_with_wrong_entries_is_refused(value, message):
    """No NaN, no infinity, nothing below zero."""
    table = np.ones((2, 2, 3))
    table[1, 0, 2] = value
    with pytest.raises(FleetgymError, match=message):
        best_plan(table, [0])


@pytest.mark.parametrize(
    ("table", "nodes", "message"),
    [
        (np.ones((2, 3)), [0], r"shape \(2, 3\); expected \(stages, node types, layers\)"),
        (np.ones((2, 3, 0)), [0], "each at least 1"),
        ([[[1.0], ["x"]]], [0], "no array of numbers"),
        ([[[1.0], [1.0, 2.0]]], [0], "no array of numbers"),
        (np.full((2, 1, 3), 1e308), [0, 0], "can be summed"),
        (np.ones((2, 1, 3)), [], "0 nodes; expected 1 to 2"),
        (np.ones((2, 1, 3)), [0, 0, 0], "3 nodes; expected 1 to 2"),
        (np.ones((2, 1, 3)), [0, 1], "nodes has 1; expected 0 to 0"),
        (np.ones((2, 1, 3)), [-1], "nodes has -1; expected 0 to 0"),
        (np.ones((2, 1, 3)), [0.5], "whole numbers"),
        (np.ones((2, 1, 3)), [np.nan], "whole numbers"),
        (np.ones((2, 1, 3)), [True], "whole numbers"),
        (np.ones((2, 1, 3)), ["L4"], "whole numbers"),
        (np.ones((2, 1, 3)), [[0]], r"shape \(1, 1\)"),
        (np.ones((2, 1, 3)), [[0], [0, 0]], "no list of node types"),
    ],
)
def test_wrong_arguments_are_refused(table, nodes, message):
    """Shapes, types and indices are checked before the search."""
    with pytest.raises(FleetgymError, match=message):
        best_plan(table, nodes)


def test_helix_cluster_of_24_nodes():
    """On Helix's own node throughputs the plan serves more than Helix's published placement does.

    The throughputs reproduce the published objective, so they are those that Helix planned with.
    """
    if not (SHARED / "data" / "helix_layer_ms.csv").exists():
        pytest.skip("Helix's layer times are not here (set FLEETGYM_SHARED to their folder)")
    table, nodes = capacities(SHARED / "data"), helix.nodes()
    assert helix.capacity_table() == pytest.approx(table, rel=1e-12)
    assert helix.max_flow(table, helix.PLACEMENT) == pytest.approx(helix.PUBLISHED, rel=1e-9)
    assert search_size(nodes, helix.NUM_LAYERS).states == 5 * 9 * 13
    plan = best_plan(table, nodes)
    assert plan.throughput_rps >= 1515.7
    assert plan.throughput_rps == pytest.approx(2045.641, abs=1e-3)
    assert helix.max_flow(table, helix.placement_of(plan)) == pytest.approx(plan.throughput_rps)


def test_the_study_of_helix_needs_no_data():
    """The shipped throughputs give the published objective; the placement is a true flow, larger than it."""
    found = helix.study()
    assert found["published"] == pytest.approx(helix.PUBLISHED, rel=1e-9)
    assert found["max_flow"] == pytest.approx(found["tokens_per_s"])
    assert sum(layers for layers, *_ in found["stages"]) == helix.NUM_LAYERS
    held = np.array(found["stages"])[:, 1:].sum(axis=0)
    assert held.tolist() == [m.nodes for m in helix.MACHINES]
    assert found["tokens_per_s"] > 1.5 * helix.PUBLISHED
    assert found["most_layers"] < 2 * helix.NUM_LAYERS


def test_plan_is_what_it_says():
    """The stages hold all layers and all nodes, and the slowest one serves the stated throughput."""
    random = np.random.default_rng(4)
    for _ in range(60):
        count, layers = int(random.integers(1, 7)), int(random.integers(6, 40))
        table = random_table(random, count, 4, layers)
        nodes = sorted(random.integers(0, 4, count).tolist())
        plan = best_plan(table, nodes)
        if plan.throughput_rps == 0.0:
            assert plan.stages == ()
            continue
        assert sum(stage.layers for stage in plan.stages) == layers
        assert sorted(n for stage in plan.stages for n in stage.nodes) == nodes
        served = [
            sum(table[len(plan.stages) - 1, n, stage.layers - 1] for n in stage.nodes)
            for stage in plan.stages
        ]
        assert min(served) == pytest.approx(plan.throughput_rps)


def test_ranks_are_a_bijection_that_parts_precede():
    """Every multiset has one rank, and removing a node lowers it."""
    most, types = 4, 5
    binomial = enumeration.binomials(most + types + 1)
    seen = {}
    for size in range(most + 1):
        for nodes in itertools.combinations_with_replacement(range(1, types + 1), size):
            number = enumeration.rank(np.array(nodes, dtype=np.int64), size, most, binomial)
            back = np.zeros(most, dtype=np.int64)
            assert enumeration.unrank(number, most, binomial, back) == size
            assert tuple(back[:size]) == nodes
            seen[nodes] = number
            for k in range(size):
                assert seen[nodes[:k] + nodes[k + 1 :]] < number
    assert sorted(seen.values()) == list(range(len(seen)))


def test_library_holds_the_best_plan_of_every_multiset():
    """Ranks, throughputs and the rule on memory agree with plans made one by one."""
    found = generate(PHI, NODES, "decode", max_nodes=3, memory_ratio=5.0)
    cap_gb = 5.0 * PHI.model.weight_gb_bf16
    for size in (1, 2, 3):
        for nodes in itertools.combinations_with_replacement(range(len(NODES)), size):
            stored = found.throughput_rps[found.rank(nodes)]
            if sum(NODES[n].memory_gb for n in nodes) >= cap_gb:
                assert stored == enumeration.EXCLUDED
            else:
                assert stored == pytest.approx(best_plan(found.table, nodes).throughput_rps)
    rank = found.rank([0, 4, 4])
    assert found.counts(np.array([rank])).tolist() == [[1, 0, 0, 0, 2, 0]]
    assert found.plan(rank).throughput_rps == pytest.approx(found.throughput_rps[rank])
    with pytest.raises(FleetgymError, match="is no template"):
        found.plan(0)
    with pytest.raises(FleetgymError, match="expected 1 to 8"):
        generate(PHI, NODES, "decode", max_nodes=9)


def test_a_dropped_template_is_matched_by_parts_of_it():
    """Exactly those templates go whose nodes serve as much as several replicas."""
    found = generate(PHI, NODES, "prefill", max_nodes=4)
    kept = set(found.undominated().tolist())

    def divided(nodes):  # the most that two or more parts serve
        best = 0.0
        for size in range(1, len(nodes) // 2 + 1):
            for part in set(itertools.combinations(nodes, size)):
                rest = list(nodes)
                for n in part:
                    rest.remove(n)
                best = max(best, whole(part) + whole(tuple(rest)))
        return best

    def whole(nodes):
        return max(found.throughput_rps[found.rank(nodes)], divided(nodes))

    assert 0 < len(kept) < len(found)
    for rank in found.templates()[::7]:
        counts = found.counts(np.array([rank]))[0]
        nodes = tuple(np.repeat(np.arange(counts.size), counts).tolist())
        dropped = divided(nodes) >= found.throughput_rps[rank] * (1 - 1e-12)
        assert (rank in kept) == (not dropped)


@pytest.mark.parametrize("name", ["Phi-4-14B", "Qwen3-32B", "gpt-oss-20b", "Qwen3-235B-A22B"])
@pytest.mark.parametrize("phase", ["prefill", "decode", "both"])
def test_throughput_falls_with_layers(name, phase):
    """What the enumeration's exactness rests on; and a node serves no more with less time."""
    served = dataclasses.replace(PHI, model=catalog.model(name))
    table = throughput_table(served, [*NODES, NodeType(catalog.gpu("H100"), 8)], phase, 4)
    assert np.all(np.diff(table, axis=2) <= 0.0)
    assert table.max() > 0.0
    later = dataclasses.replace(served, prefill_slo_s=2.4, decode_slo_s=0.12)
    assert np.all(throughput_table(later, NODES, phase, 2) >= throughput_table(served, NODES, phase, 2))


def test_both_phases_on_one_replica_serve_less_than_either():
    """Time spent on prompts is not spent on decoding."""
    tables = {phase: throughput_table(PHI, NODES, phase, 3) for phase in ("prefill", "decode", "both")}
    assert np.all(tables["both"] <= np.minimum(tables["prefill"], tables["decode"]) + 1e-12)
    with pytest.raises(UnknownNameError, match="decode"):
        throughput_table(PHI, NODES, "decoding", 1)


def test_sliding_windows_and_mixtures_lighten_decoding():
    """Windowed layers read less cache; a mixture reads and computes with fewer weights."""
    long = dataclasses.replace(PHI, input_tokens=6000)
    windowed = dataclasses.replace(long, window_tokens=128, window_share=0.5)
    full, half = (throughput_table(s, NODES, "decode", 1) for s in (long, windowed))
    assert np.all(half >= full)
    assert half.sum() > 1.2 * full.sum()
    mixture = dataclasses.replace(PHI, model=catalog.model("Qwen3-30B-A3B"))
    dense = dataclasses.replace(PHI, model=catalog.model("Qwen3-32B"))
    wide = [NodeType(catalog.gpu("H100"), 2)]
    assert (
        throughput_table(mixture, wide, "prefill", 1)[0, 0, -1]
        > throughput_table(dense, wide, "prefill", 1)[0, 0, -1]
    )


def test_measured_fits_replace_the_model():
    """Where there is a fit to measured runs, a decoding step is the fit's."""
    served = dataclasses.replace(PHI, model=catalog.model("Llama-3.1-70B"), precision="fp8")
    node, batch = NodeType(catalog.gpu("H100"), 8), np.array([1, 16, 64])
    step = roofline.step_time(
        Deployment(model=served.model, gpu=node.gpu, precision="fp8", tensor_parallel=8)
    )
    assert step.label == "measured"
    context = served.input_tokens + served.output_tokens / 2
    expected = step.per_output_token_s(batch, context)
    assert replica.decode_step_s(served, node, batch) == pytest.approx(expected)
    ignored = replica.ReplicaOptions(measured="ignore")
    assert replica.decode_step_s(served, node, batch, ignored) != pytest.approx(expected)


def test_batch_is_the_largest_that_fits_slo_and_memory():
    """Decode throughput by hand: the best n / step(n) over the batches that keep SLO and memory."""
    node = NodeType(catalog.gpu("L40S"), 1)
    table = throughput_table(PHI, [node], "decode", 2)
    share, stages = 20 / 40, 2
    free_gb = node.memory_gb * 0.9 - 2.0 - share * PHI.model.weight_gb()
    each_gb = share * PHI.model.kv_bytes_per_token * (1155 + 211) / 1e9
    best = 0.0
    for n in range(1, 257):
        step = share * replica.decode_step_s(PHI, node, np.array([n]))[0]
        hop = 0.5e-3 + n * PHI.model.hidden * 2 / 3.1e9
        if step + hop <= 0.06 / stages and n * stages * each_gb <= free_gb:
            best = max(best, n / step / 211)
    assert table[1, 0, 19] == pytest.approx(best)


def test_selection_is_the_stated_rule():
    """Per set of GPU types the best per dollar and the best per GPU; a limit keeps each model's best."""
    prices = {"L4": 0.8, "A10G": 1.0, "L40S": 1.8}
    libraries = [
        generate(dataclasses.replace(PHI, model=catalog.model(name)), NODES, "both", max_nodes=4)
        for name in ("Phi-4-14B", "gpt-oss-20b")
    ]
    chosen = select(libraries, prices)
    for index, found in enumerate(libraries):
        ranks = found.templates()
        counts = found.counts(ranks).astype(float)
        usd = counts @ [n.gpus * prices[n.gpu.name] for n in NODES]
        best = (found.throughput_rps[ranks] / usd).max()
        mine = [c for c in chosen if c.library == index]
        assert mine[0].throughput_rps / mine[0].usd_per_h == pytest.approx(best)
        assert len(mine) <= 2 * (2**3 - 1)
    few = select(libraries, prices, limit=2)
    assert [c.library for c in few] == [0, 1]
    assert few[0] == chosen[0]
    with pytest.raises(FleetgymError, match="at least one"):
        select(libraries, prices, limit=1)


def test_a_configuration_serves_what_its_template_does():
    """Concurrency over service time is the throughput, and compute and memory suffice for it."""
    found = generate(PHI, NODES, "both", max_nodes=4)
    checked = 0
    for rank in found.undominated()[::3]:
        made = replicas.replica(found, int(rank))
        served = made.plan.throughput_rps
        column = replicas.configuration(made, {g: g for g in ("L4", "A10G", "L40S")}, max_replicas=3)
        counts = found.counts(np.array([rank]))[0]
        assert sum(u.gpus for u in column.uses) == sum(
            int(n) * node.gpus for n, node in zip(counts, NODES, strict=True)
        )
        pair = replicas.pair(made, Requests(input_tokens=1155, output_tokens=211, error=0.1))
        held_s = pair.service_s.at(1155, 211)
        assert column.max_concurrency <= served * held_s + 1e-9
        assert column.max_concurrency >= served * held_s - 1 or column.max_concurrency == 1
        assert served * pair.work_tflop.at(1155, 211) <= column.compute_tflops
        assert made.decode_s <= PHI.decode_slo_s * (1 + 1e-9)
        assert pair.prefill_s.at(1155, 211) <= PHI.prefill_slo_s
        checked += 1
    assert checked > 5
    with pytest.raises(FleetgymError, match="both"):
        replicas.replica(generate(PHI, NODES, "decode", max_nodes=2), 1)
