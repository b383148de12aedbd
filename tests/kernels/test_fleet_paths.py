"""The cheapest ways through some fleets for every window: against the enumeration of all ways."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fleetgym.kernels.fleet_paths import Passage, cheapest_ways, new_work_space

WINDOWS, FLEETS, CONFIGURATIONS, POOLS = 5, 4, 3, 2
SEEDS = range(60)


def random_passage(rng: np.random.Generator, longest: int, tight: bool) -> Passage:
    """Return random prices and limits, with starts of at most so many windows."""
    wait = rng.integers(longest + 1, size=CONFIGURATIONS)
    start_usd = rng.uniform(0, 2, (WINDOWS, CONFIGURATIONS)) * rng.choice([1.0, 1e-6, 1e3])
    for c in range(CONFIGURATIONS):
        start_usd[1 : wait[c] + 1, c] = np.inf  # it would have to be asked for before window 1
    return Passage(
        first=rng.integers(3, size=CONFIGURATIONS),
        start_usd=start_usd,
        wait=wait,
        hold_usd=rng.uniform(0, 1, (WINDOWS, CONFIGURATIONS)),
        gpu_use=rng.integers(3, size=(POOLS, CONFIGURATIONS)),
        available=rng.integers(4, 10, (WINDOWS, POOLS)) if tight else np.full((WINDOWS, POOLS), 1000),
        limit_usd=3.0 if tight and rng.random() < 0.5 else math.inf,
    )


def way_usd(passage: Passage, fleets: np.ndarray, usd: np.ndarray, way: tuple[int, ...]) -> float:
    """Return what one way costs: windows, starts, and what drains while others start; inf where there is no room."""
    path = [fleets[t, k].tolist() for t, k in enumerate(way)]
    total = sum(usd[t, k] for t, k in enumerate(way))
    for t, now in enumerate(path):
        before = path[t - 1] if t else passage.first.tolist()
        started = [c for c in range(CONFIGURATIONS) if now[c] > before[c]]
        total += sum((now[c] - before[c]) * passage.start_usd[t, c] for c in started)
        if t == 0 or (way[t - 1] == 0 and way[t] == 0):
            continue
        for s in range(t - 1, max(-1, t - 1 - max((passage.wait[c] for c in started), default=0)), -1):
            held = [
                max(path[s : min(t, s + passage.wait[c]) + 1], key=lambda x, c=c: x[c])[c]
                for c in range(CONFIGURATIONS)
            ]
            if held @ passage.hold_usd[s] > passage.limit_usd or np.any(
                passage.gpu_use @ held > passage.available[s]
            ):
                return math.inf
            if s > 0 and any(passage.wait[c] == t - s for c in started):
                leaving = [max(0, path[s - 1][c] - held[c]) for c in range(CONFIGURATIONS)]
                total += sum(leaving @ passage.hold_usd[u] for u in range(s, t))
    return float(total)


def least_after(passage: Passage, fleets: np.ndarray, usd: np.ndarray, t: int, k: int) -> float:
    """Return the least that windows after t and starts for them cost after a fleet, if there is always room."""
    best = math.inf
    for way in itertools.product(range(FLEETS), repeat=WINDOWS - 1 - t):
        total, before = 0.0, fleets[t, k]
        for s, n in enumerate(way, t + 1):
            more = np.maximum(0, fleets[s, n] - before)
            total += usd[s, n] + float(passage.start_usd[s, more > 0] @ more[more > 0])
            before = fleets[s, n]
        best = min(best, total)
    return best


def solved(
    passage: Passage, fleets: np.ndarray, usd: np.ndarray, through: float = math.inf
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what the kernel writes."""
    to_usd, from_usd, last = np.empty(usd.shape), np.empty(usd.shape), np.empty(usd.shape, dtype=np.int64)
    work = new_work_space(passage, fleets)
    assert cheapest_ways(passage, fleets, usd, np.full(len(usd), through), work, to_usd, last, from_usd) >= 0
    return to_usd, last, from_usd


def random_task(seed: int, longest: int, tight: bool) -> tuple[Passage, np.ndarray, np.ndarray]:
    """Return random fleets, what they cost, and what leads from one to another."""
    rng = np.random.default_rng(seed)
    passage = random_passage(rng, longest, tight)
    fleets = rng.integers(3, size=(WINDOWS, FLEETS, CONFIGURATIONS)).astype(np.int32)
    usd = rng.uniform(0, 3, (WINDOWS, FLEETS))
    usd[rng.random(usd.shape) < 0.15] = np.inf
    usd[:, 0] = rng.uniform(0, 3, WINDOWS)
    return passage, fleets, usd


def way_to(last: np.ndarray, k: int) -> tuple[int, ...]:
    """Return the best way to a fleet of the last window."""
    way = [k]
    for t in range(len(last) - 1, 0, -1):
        way.append(int(last[t, way[-1]]))
    return tuple(way[::-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_without_waits_it_is_the_cheapest_of_all_ways(seed: int) -> None:
    """Enumeration finds no cheaper one, and gives the one found the same cost."""
    passage, fleets, usd = random_task(seed, 0, False)
    to_usd, last, _ = solved(passage, fleets, usd)
    ways = itertools.product(range(FLEETS), repeat=WINDOWS)
    best = min(way_usd(passage, fleets, usd, way) for way in ways)
    assert to_usd[-1].min() == pytest.approx(best, rel=1e-12)
    assert way_usd(passage, fleets, usd, way_to(last, int(np.argmin(to_usd[-1])))) == pytest.approx(
        best, rel=1e-12
    )


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_says_is_what_the_way_costs(seed: int, tight: bool) -> None:
    """With waits, rooms and budgets too; and what follows a fleet costs at least what it says."""
    passage, fleets, usd = random_task(seed, 2, tight)
    to_usd, last, from_usd = solved(passage, fleets, usd)
    costs = {
        way: way_usd(passage, fleets, usd, way) for way in itertools.product(range(FLEETS), repeat=WINDOWS)
    }
    for k in np.flatnonzero(np.isfinite(to_usd[-1])):
        assert to_usd[-1, k] == pytest.approx(costs[way_to(last, int(k))], rel=1e-12)
    assert to_usd[-1].min() >= min(costs.values()) * (1 - 1e-12)
    for t, k in itertools.product(range(WINDOWS), range(FLEETS)):
        if usd[t, k] < math.inf:
            assert from_usd[t, k] == pytest.approx(least_after(passage, fleets, usd, t, k), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_only_dearer_ways_lead_by_can_be_left_out(seed: int) -> None:
    """A limit at the least cost loses nothing of the best way where nothing waits."""
    passage, fleets, usd = random_task(seed, 0, False)
    whole, _, _ = solved(passage, fleets, usd)
    limited, _, _ = solved(passage, fleets, usd, through=float(whole[-1].min()) * (1 + 1e-12))
    assert limited[-1].min() == pytest.approx(whole[-1].min(), rel=1e-12)
    assert np.isinf(limited).sum() >= np.isinf(whole).sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_fleets_are_always_a_way(seed: int) -> None:
    """They did serve: no room is asked for between them, and no limit leaves them out."""
    passage, fleets, usd = random_task(seed, 2, True)
    fleets[:, 0] = fleets[0, 0]
    to_usd, _, _ = solved(passage, fleets, usd, through=-1.0)
    assert to_usd[-1, 0] <= way_usd(passage, fleets, usd, (0,) * WINDOWS) * (1 + 1e-12)
