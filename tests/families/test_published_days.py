"""Fresh days are new: a search through all published days finds none of them in what a season draws."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from fleetgym.families.demand import tenants
from fleetgym.families.generate import SEEDS, generate, replayed_families, stored_scenarios
from fleetgym.families.versions import NEWEST, generators
from fleetgym.model.instance import Instance
from fleetgym.model.library import headline_of

SLOTS = 144  # ten minutes each
SIZES = {"trace": "m"}
FAMILIES = sorted(set(headline_of("fleet-v1")["headline"]) - replayed_families())


def unit(rows: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and length 1; rows without any movement are left out."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred[length[:, 0] > 1e-9] / length[length[:, 0] > 1e-9]


@functools.cache
def published() -> np.ndarray:
    """Return every published day of every tenant as log deviations from the mean of the week before: (days, SLOTS)."""
    found = []
    for tenant in tenants().values():
        days = np.log1p(np.array(tenant["requests"], dtype=float)).reshape(-1, SLOTS)
        found += [days[k] - days[k - 7 : k].mean(axis=0) for k in range(7, len(days))]
    return unit(np.array(found))


def deviations(family: str, seed: int) -> np.ndarray:
    """Return a fresh day of each workload, as log deviations from the profile of its own history: (days, SLOTS)."""
    instance: Instance = generate(family, SIZES.get(family, "s"), seed)
    (day,) = stored_scenarios(instance, seed, 1, 4)
    rates = np.vstack([np.asarray(instance.history.rate_rps), day.expanded(instance.num_windows).rate_rps])
    logs = np.log1p(300.0 * rates.reshape(-1, SLOTS, 2, rates.shape[1]).sum(axis=2))
    return unit((logs[-1] - logs[:-1].mean(axis=0)).T)


def best_match(days: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Return the largest correlation of each day with any day of a source, turned by any time: (days,)."""
    spectra = np.conj(np.fft.rfft(source))
    return np.array([np.fft.irfft(np.fft.rfft(day) * spectra, SLOTS).max() for day in days])


def gain(days: np.ndarray) -> tuple[float, float]:
    """Return by how much published days match better than the same days backwards, and its p-value.

    A day that has nothing to do with the published ones matches them as well as their mirror images, which have the
    same level, spread and spectrum. The p-value is of flipping the signs of all differences.
    """
    difference = best_match(days, published()) - best_match(days, published()[:, ::-1])
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (4000, len(difference)))
    flipped = (signs * difference).mean(axis=1)
    return float(difference.mean()), float(np.mean(flipped >= difference.mean()))


def fresh(family: str, count: int) -> np.ndarray:
    """Return at least `count` days that a season could draw."""
    found: list[np.ndarray] = []
    seed = SEEDS["fresh"].start
    while sum(map(len, found)) < count:
        found.append(deviations(family, seed + 7919 * len(found)))
    return np.vstack(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_published_day_is_found_in_fresh_ones(family: str) -> None:
    """Days that are turned, scaled or raised to a power would be: see the test below."""
    by, p_value = gain(fresh(family, 40))
    assert p_value > 0.001, by


@pytest.mark.slow
def test_the_search_finds_days_that_are_replayed() -> None:
    """`trace` turns, scales and stretches published days, so newer seasons do not draw it."""
    by, p_value = gain(fresh("trace", 40))
    assert by > 0.1
    assert p_value < 0.001
    assert "trace" in replayed_families()
    assert not generators(NEWEST).draws_replays
