"""Dropping dominated configurations never makes the best fleet dearer: brute force over all fleets."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from fleetgym.hardware.configurations.dominance import dominated
from fleetgym.model.instance import Affine, Configuration, Performance, Pool, Slot, Tier, Use

WORKLOADS, POOLS = 2, 2
AFFINE = ("delay_s", "service_s", "prefill_s", "work_tflop")


def random_problem(seed, exclusive):
    """Return parts of a small instance; later configurations are often worse copies of earlier ones."""
    rng = np.random.default_rng(seed)
    count = 5
    pools = [
        Pool(
            id=f"p{g}",
            gpu_type="x",
            price_usd_per_gpu_h=float(rng.uniform(1, 3)),
            cap_gpus=int(rng.integers(1, 4)),
        )
        for g in range(POOLS)
    ]
    tiers = [Tier(id=f"t{g}", pool=f"p{g}") for g in range(POOLS)]
    configurations, pairs = [], []
    for c in range(count):
        copy = c > 0 and rng.random() < 0.6
        source = int(rng.integers(c)) if copy else -1
        worse = np.where(rng.random(12) < 0.3, rng.uniform(1.0, 1.5, 12), 1.0)
        if copy and rng.random() < 0.6:  # better somewhere: not dominated by its source
            worse[int(rng.integers(12))] = 0.3
        if copy:
            base, pair = configurations[source], pairs[source]
            uses = base.uses
            if rng.random() < 0.4:
                uses = (Use(tier=uses[0].tier, gpus=int(rng.integers(1, 4))),)
            new = dataclasses.replace(
                base,
                id=f"c{c}",
                uses=uses,
                compute_tflops=base.compute_tflops / worse[0],
                kv_capacity_gb=base.kv_capacity_gb / worse[1],
                kv_gb_per_token=base.kv_gb_per_token * worse[2],
                max_concurrency=max(1, int(base.max_concurrency / worse[3])),
                startup_usd=base.startup_usd * worse[4],
            )
            served = pair["compatible"] & (rng.random(WORKLOADS) < 0.9)
            pair = {
                name: values if name == "compatible" else values * worse[5 + k]
                for k, (name, values) in enumerate(pair.items())
            }
            pair["compatible"] = served
        else:
            new = Configuration(
                id=f"c{c}",
                model="m",
                uses=(Use(tier=f"t{int(rng.integers(POOLS))}", gpus=int(rng.integers(1, 3))),),
                compute_tflops=float(rng.uniform(5, 20)),
                kv_capacity_gb=float(rng.uniform(5, 40)),
                kv_gb_per_token=0.01,
                max_concurrency=int(rng.integers(2, 9)),
                max_replicas=1 if exclusive else 3,
                startup_usd=float(rng.uniform(0, 0.2)),
            )
            pair = {name: rng.uniform(0.2, 2.0, (WORKLOADS, 3)) for name in AFFINE}
            pair |= {
                name: rng.uniform(0.01, 0.1, WORKLOADS) for name in ("error", "storage_usd", "service_cv2")
            }
            pair["compatible"] = rng.random(WORKLOADS) < 0.9
        configurations.append(new)
        pairs.append(pair)
    slots = [Slot(configurations=(c.id,)) for c in configurations]
    if exclusive:
        slots = [
            Slot(configurations=tuple(c.id for c in configurations[a:b]), exclusive=True)
            for a, b in ((0, 3), (3, 5))
        ]
    return {
        "pools": pools,
        "tiers": tiers,
        "configurations": configurations,
        "slots": slots,
        "performance": stacked(pairs),
    }


def stacked(pairs):
    """Return `Performance` from one mapping per configuration."""

    def affine(name):
        cube = np.stack([pair[name] for pair in pairs], axis=1)  # (I, C, 3)
        return Affine(base=cube[..., 0], per_input_token=cube[..., 1], per_output_token=cube[..., 2])

    plain = {
        n: np.stack([p[n] for p in pairs], axis=1)
        for n in ("compatible", "error", "storage_usd", "service_cv2")
    }
    shape = plain["error"].shape
    return Performance(**{name: affine(name) for name in AFFINE}, **plain, tie_break=np.full(shape, 0.5))


def best_cost(problem, keep, seed):
    """Return the least cost over all fleets of the kept configurations: rent, start-up and the routing LP."""
    rng = np.random.default_rng(10_000 + seed)
    rate, unserved = rng.uniform(1.0, 8.0, WORKLOADS), rng.uniform(2.0, 20.0, WORKLOADS)
    lengths = rng.uniform(0.3, 1.5, (WORKLOADS, 2))
    data = {
        "rate": rate,
        "unserved": unserved,
        "lengths": lengths,
        "delay_usd": rng.uniform(0, 0.3, WORKLOADS),
    }
    data |= {"slo": rng.uniform(1, 4, WORKLOADS), "epsilon": rng.uniform(0.02, 0.06, WORKLOADS)}
    configurations = problem["configurations"]
    exclusive = problem["slots"][0].exclusive
    caps = {pool.id: pool.cap_gpus for pool in problem["pools"]}
    prices = {pool.id: pool.price_usd_per_gpu_h for pool in problem["pools"]}
    ranges = [range(c.max_replicas + 1) if keep[k] else range(1) for k, c in enumerate(configurations)]
    best, routed = np.inf, {}
    for fleet in itertools.product(*ranges):
        used = dict.fromkeys(caps, 0)
        for count, c in zip(fleet, configurations, strict=True):
            used["p" + c.uses[0].tier[1:]] += count * c.uses[0].gpus
        if any(used[g] > caps[g] for g in caps) or (exclusive and (sum(fleet[:3]) > 1 or sum(fleet[3:]) > 1)):
            continue
        hold = sum(used[g] * prices[g] for g in caps)
        hold += sum(n * c.startup_usd for n, c in zip(fleet, configurations, strict=True))
        if hold < best:
            routed[fleet] = routing_cost(problem, fleet, data)
            best = min(best, hold + routed[fleet])
    return best


def routing_cost(problem, fleet, data):
    """Return the optimum of the routing LP (without late costs) by HiGHS."""
    performance, configurations = problem["performance"], problem["configurations"]
    h, f = data["lengths"][:, [0]], data["lengths"][:, [1]]

    def at(name):
        a = getattr(performance, name)
        return a.base + a.per_input_token * h + a.per_output_token * f

    delay, service, work = at("delay_s"), at("service_s"), at("work_tflop")
    rate = data["rate"][:, None]
    price = (data["rate"] * data["unserved"])[:, None]
    cost = rate * (data["delay_usd"][:, None] * delay + performance.storage_usd)
    count = len(fleet)
    size = WORKLOADS * count + 3 * WORKLOADS  # x, u, s, s'
    objective = np.concatenate([cost.ravel(), np.tile(price.ravel(), 3)])
    rows, right = [], []
    kv = np.array([c.kv_gb_per_token for c in configurations]) * (h + f) * delay
    limits = (
        (work, [c.compute_tflops for c in configurations]),
        (kv, [c.kv_capacity_gb for c in configurations]),
        (service, [0.95 * c.max_concurrency for c in configurations]),
    )
    for array, limit in limits:
        for c in range(count):
            row = np.zeros((WORKLOADS, count))
            row[:, c] = (rate * array)[:, c]
            rows.append(np.concatenate([row.ravel(), np.zeros(3 * WORKLOADS)]))
            right.append(limit[c] * fleet[c])
    for array, bound, block in ((delay, data["slo"], 1), (performance.error, data["epsilon"], 2)):
        for i in range(WORKLOADS):
            row = np.zeros(size)
            row[i * count : (i + 1) * count] = array[i] / bound[i] - 1
            row[WORKLOADS * count + block * WORKLOADS + i] = -1
            rows.append(row)
            right.append(0.0)
    equal = np.zeros((WORKLOADS, size))
    for i in range(WORKLOADS):
        equal[i, i * count : (i + 1) * count] = 1
        equal[i, WORKLOADS * count + i] = 1
    open_ = performance.compatible & (np.array(fleet) > 0)
    bounds = [(0, None if is_open else 0) for is_open in open_.ravel()] + [(0, None)] * (3 * WORKLOADS)
    solved = linprog(objective, np.array(rows), right, equal, np.ones(WORKLOADS), bounds)
    assert solved.status == 0
    return solved.fun


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_dropping_never_changes_the_optimum(seed, exclusive):
    """The best fleet of what is left costs as much as the best of all."""
    problem = random_problem(seed, exclusive)
    drop = dominated(**problem)
    assert not drop.all()
    everything = best_cost(problem, np.ones(len(drop), dtype=bool), seed)
    assert best_cost(problem, ~drop, seed) == pytest.approx(everything, rel=1e-7)


def test_the_rule_drops_something_in_the_random_problems():
    """The property test is not vacuous: about a third of the copies go, in both kinds of slots."""
    for exclusive in (False, True):
        total = sum(int(dominated(**random_problem(seed, exclusive)).sum()) for seed in range(12))
        assert total >= 5


def by_hand(**changes):
    """Return a problem of two equal configurations whose second one is changed."""
    base = Configuration(
        id="a",
        model="m",
        uses=(Use(tier="t0", gpus=2),),
        compute_tflops=10.0,
        kv_capacity_gb=10.0,
        kv_gb_per_token=0.01,
        max_concurrency=4,
        max_replicas=2,
    )
    rng = np.random.default_rng(0)
    pair = {name: rng.uniform(0.2, 2.0, (WORKLOADS, 3)) for name in AFFINE}
    pair |= {name: np.full(WORKLOADS, 0.1) for name in ("error", "storage_usd", "service_cv2")}
    pair["compatible"] = np.ones(WORKLOADS, dtype=bool)
    return {
        "pools": [Pool(id="p0", gpu_type="x", price_usd_per_gpu_h=1.0, cap_gpus=4)],
        "tiers": [Tier(id="t0", pool="p0")],
        "configurations": [base, dataclasses.replace(base, id="b", **changes)],
        "slots": [Slot(configurations=("a",)), Slot(configurations=("b",))],
        "performance": stacked([pair, pair]),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [False, True]),  # equals: the first stays
        ({"compute_tflops": 9.0}, [False, True]),
        ({"compute_tflops": 11.0}, [True, False]),
        ({"compute_tflops": 11.0, "startup_usd": 1.0}, [False, False]),
        ({"compute_tflops": 11.0, "max_replicas": 1}, [False, False]),  # too few of them to stand in
        ({"compute_tflops": 9.0, "max_replicas": 9}, [False, True]),  # the pool's cap stops both at two
        ({"startup_windows": 1}, [False, True]),
        ({"uses": (Use(tier="t0", gpus=1),)}, [False, False]),  # fewer GPUs, but replicas run out at the cap
        ({"uses": (Use(tier="t0", gpus=1),), "max_replicas": 4}, [True, False]),
    ],
)
def test_the_rule_by_hand(changes, expected):
    """Each condition of the rule, one at a time."""
    assert dominated(**by_hand(**changes)).tolist() == expected


BETTER = {
    "kv_capacity_gb": 11.0,
    "kv_gb_per_token": 0.009,
    "max_concurrency": 5,
    "startup_windows": 0,
    "startup_usd": 0.0,
    "model_storage_usd_per_h": 0.0,
}


@pytest.mark.parametrize("name", BETTER)
def test_one_better_property_of_a_replica_saves_it(name):
    """A configuration that is worse in compute stays if it is better in anything else."""
    problem = by_hand(compute_tflops=9.0)
    a, b = (
        dataclasses.replace(c, startup_windows=1, startup_usd=1.0, model_storage_usd_per_h=1.0)
        for c in problem["configurations"]
    )
    assert dominated(**problem | {"configurations": [a, b]}).tolist() == [False, True]
    b = dataclasses.replace(b, **{name: BETTER[name]})
    assert dominated(**problem | {"configurations": [a, b]}).tolist() == [False, False]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Performance) if f.name != "compatible"])
def test_one_better_coefficient_saves_it(field):
    """The same for a single workload's coefficient; the tie-breaking weights alone do not count."""
    problem = by_hand(compute_tflops=9.0)
    value = getattr(problem["performance"], field)
    parts = [f.name for f in dataclasses.fields(Affine)] if isinstance(value, Affine) else [None]
    for part in parts:
        array = (value if part is None else getattr(value, part)).copy()
        array[1, 1] -= 0.01
        changed = array if part is None else dataclasses.replace(value, **{part: array})
        performance = dataclasses.replace(problem["performance"], **{field: changed})
        found = dominated(**problem | {"performance": performance}).tolist()
        assert found == [False, field == "tie_break"]


def test_compatibility_counts():
    """A configuration that serves one workload less cannot dominate, and can be dominated."""
    problem = by_hand()
    compatible = problem["performance"].compatible.copy()
    compatible[1, 0] = False
    problem["performance"] = dataclasses.replace(problem["performance"], compatible=compatible)
    assert dominated(**problem).tolist() == [True, False]
