"""The simulator's event loop against its slow twin, and what it does with hostile input."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import simulation_twin as twin

from fleetgym.capacity.simulation import kernel
from fleetgym.capacity.simulation.kernel import LEAST_LOADED, NONE, SPILLOVER, STATUSES, UNLIMITED

POLICIES = {LEAST_LOADED: "least-loaded", SPILLOVER: "spillover"}


def random_case(rng: np.random.Generator) -> dict[str, Any]:
    """Return a small fleet and its requests; half of the cases are full of equal times."""
    count, n, grid = int(rng.integers(1, 4)), int(rng.integers(1, 150)), rng.random() < 0.5
    limited = rng.random((3, count)) < 0.4
    gaps = rng.integers(0, 3, n).astype(float) if grid else rng.exponential(1.0 / rng.uniform(0.5, 8.0), n)
    service = rng.integers(0, 6, (n, count)).astype(float) if grid else rng.gamma(1.0, 2.0, (n, count))
    service[rng.random((n, count)) < 0.005] = np.inf
    kinds = int(rng.integers(1, 4))
    candidates = np.full((kinds, count), NONE, dtype=np.int32)
    for row in candidates:
        some = int(rng.integers(0 if rng.random() < 0.2 else 1, count + 1))
        row[:some] = rng.permutation(count)[:some]
    arrival = np.cumsum(gaps)
    return {
        "arrival": arrival,
        "service": service,
        "tokens": rng.integers(0, 12, n),
        "kind": rng.integers(0, kinds, n),
        "candidates": candidates,
        "policy": int(rng.integers(0, 2)),
        "replicas": rng.integers(0 if rng.random() < 0.2 else 1, 4, count),
        "slots": rng.integers(0 if rng.random() < 0.2 else 1, 4, count),
        "kv": np.where(limited[0], rng.integers(3, 30, count), UNLIMITED),
        "queue": np.where(limited[1], rng.integers(0, 6, count), UNLIMITED),
        "patience": np.where(limited[2], rng.integers(0, 5, count).astype(float), np.inf),
        "end": np.inf if rng.random() < 0.6 else float(arrival[-1] + rng.integers(0, 3)),
    }


def play_fast(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return records and pools after the kernel has played a case."""
    records = kernel.new_requests(case["arrival"], case["tokens"], case["kind"])
    pools = kernel.new_pools(case["replicas"], case["slots"], case["kv"], case["queue"], case["patience"])
    kernel.play(records, case["service"], case["candidates"], case["policy"], pools, case["end"])
    return records, pools


def play_slowly(case: dict[str, Any]) -> list[twin.Fate]:
    """Return the fates that the twin finds."""
    columns = [case[name].tolist() for name in ("replicas", "slots", "kv", "queue", "patience")]
    pools = [
        twin.TwinPool(r, s, math.inf if kv == UNLIMITED else kv, math.inf if q == UNLIMITED else q, p)
        for r, s, kv, q, p in zip(*columns, strict=True)
    ]
    rows = [[p for p in row if p != NONE] for row in case["candidates"].tolist()]
    return twin.play(
        case["arrival"].tolist(),
        case["service"].tolist(),
        case["tokens"].tolist(),
        [rows[k] for k in case["kind"]],
        POLICIES[case["policy"]],
        pools,
        case["end"],
    )


def assert_equal(records: np.ndarray, fates: list[twin.Fate], case: str) -> None:
    """Every request has the same status, pool and start, to the last bit, and the same replica where that matters."""
    assert [STATUSES[s] for s in records["status"]] == [f.status for f in fates], case
    assert records["pool"].tolist() == [f.pool for f in fates], case
    np.testing.assert_array_equal(records["start_s"], [f.start_s for f in fates], err_msg=case)
    placed = records["replica"] != NONE
    assert records["replica"][placed].tolist() == [
        f.replica for f, here in zip(fates, placed, strict=True) if here
    ], case


def only_slots(case: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the case without limits that bind but the slots, one candidate for each kind, perhaps none."""
    case["candidates"][:, 1:] = NONE
    fits = case["slots"] * case["tokens"].max()
    small = np.maximum(0, case["tokens"].max() - 1)  # some request is larger than the memory
    memory = rng.choice(3, len(fits))
    case["kv"] = np.where(memory == 0, UNLIMITED, np.where((memory == 1) & (case["slots"] == 1), small, fits))
    case["queue"] = np.where(rng.random(len(fits)) < 0.5, UNLIMITED, len(case["arrival"]))
    case["patience"] = np.full(len(fits), np.inf)
    return case


def compare(seed: int, cases: int, plain: bool = False) -> Counter[str]:
    """Compare random cases; return how often each status was seen."""
    rng, seen = np.random.default_rng(seed), Counter()
    for number in range(cases):
        case = random_case(rng)
        case = only_slots(case, rng) if plain else case
        records, pools = play_fast(case)
        fates = play_slowly(case)
        assert_equal(records, fates, f"seed {seed}, case {number}")
        assert pools["busy"].sum() == sum(f.status == "in_service" for f in fates)
        assert pools["waiting"].sum() == sum(f.status == "waiting" for f in fates)
        seen.update(f.status for f in fates)
    return seen


def test_twin_agrees_request_by_request() -> None:
    """On random fleets with memory, queue limits, impatience, ties, and both policies; every status occurs."""
    seen = compare(0, 150)
    assert all(seen[status] > 50 for status in STATUSES), seen


def test_twin_agrees_where_only_slots_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcut without events is taken, and gives what the twin gives; every status that it knows occurs."""
    calls = []
    serve = kernel._serve
    monkeypatch.setattr(kernel, "_serve", lambda *args: calls.append(1) or serve(*args))
    seen = compare(2, 150, plain=True)
    assert len(calls) > 130
    for status in ("served", "in_service", "waiting", "no_pool", "too_large"):
        assert seen[status] > 20, seen


def test_the_shortcut_is_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are the same to the last bit, and so are clocks and who is left; areas but for round-off."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        case = only_slots(random_case(rng), rng)
        fast, fast_pools = play_fast(case)
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "_only_slots_count", lambda *args: False)
            slow, slow_pools = play_fast(case)
        for name in ("arrival_s", "start_s", "tokens", "pool", "replica", "status"):
            np.testing.assert_array_equal(fast[name], slow[name])
        for name in ("busy", "waiting", "clock_s"):
            np.testing.assert_array_equal(fast_pools[name], slow_pools[name])
        np.testing.assert_allclose(fast_pools["area_s"], slow_pools["area_s"], rtol=1e-12, atol=1e-9)


@pytest.mark.slow
def test_twin_agrees_on_many_fleets() -> None:
    """Thousands of them."""
    compare(1, 3000)
    compare(4, 1000, plain=True)


def test_nothing_arrives() -> None:
    """No request, no pools in use: nothing happens."""
    records = kernel.new_requests(np.empty(0))
    pools = kernel.new_pools([3], [2], [5])
    kernel.play(records, np.empty((0, 1)), np.zeros((1, 1), np.int32), SPILLOVER, pools)
    assert pools["area_s"].tolist() == [0.0]


def test_a_heap_of_many_equal_times() -> None:
    """A thousand requests start and finish together, in order of arrival."""
    records = kernel.new_requests(np.zeros(3000))
    pools = kernel.new_pools([1000], [1])
    kernel.play(records, np.ones((3000, 1)), np.zeros((1, 1), np.int32), SPILLOVER, pools)
    np.testing.assert_array_equal(records["start_s"], np.repeat([0.0, 1.0, 2.0], 1000))


def test_one_column_of_service_times_stands_for_all_pools() -> None:
    """The same records come out."""
    case = random_case(np.random.default_rng(5))
    case["service"] = np.repeat(case["service"][:, :1], len(case["replicas"]), axis=1)
    wide, _ = play_fast(case)
    case["service"] = np.ascontiguousarray(case["service"][:, :1])
    narrow, _ = play_fast(case)
    np.testing.assert_array_equal(wide, narrow)


def test_memory_is_per_replica() -> None:
    """Two replicas with 6 free tokens each cannot take a request of 8, although 12 are free."""
    records = kernel.new_requests(np.array([0.0, 0.0, 1.0, 2.0]), np.array([4, 4, 8, 1]))
    pools = kernel.new_pools([2], [4], [10])
    kernel.play(records, np.array([[5.0], [7.0], [1.0], [1.0]]), np.zeros((1, 1), np.int32), SPILLOVER, pools)
    assert records["start_s"].tolist() == [0.0, 0.0, 5.0, 5.0]  # and nobody overtakes the head of the queue
    assert records["replica"].tolist() == [0, 1, 0, 1]
