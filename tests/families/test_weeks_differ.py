"""Stored days of fleet-v2 deviate from their own profiles as independent draws do: no task tells another one's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import entries, list_instances, load_scenarios, with_law
from fleetgym.model.scenario import Scenario

HOUR = 12  # windows
WEEK_H = 168
REDRAWS = 39
TASKS = [name for split in ("dev", "test") for name in list_instances(f"fleet-v2/{split}")]


def hourly(rate_rps: np.ndarray) -> np.ndarray:
    """Return the log of requests per hour: (hours, workloads)."""
    return np.log1p(300.0 * rate_rps.reshape(-1, HOUR, rate_rps.shape[1]).sum(axis=1))


def deviations(instance: Instance, day: Scenario) -> np.ndarray:
    """Return a day, or a week, as log deviations from the same hours of its own history: unit rows, (I, hours)."""
    now = hourly(day.expanded(instance.num_windows).rate_rps)
    weeks = hourly(np.asarray(instance.history.rate_rps)).reshape(-1, WEEK_H, now.shape[1])
    rows = (now - weeks.mean(axis=0)[: len(now)]).T
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def correlations(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return the absolute correlations of workloads of different tasks."""
    rows = np.vstack(groups)
    task = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return np.abs(rows @ rows.T)[task[:, None] < task]


def p_values(stored: Sequence[np.ndarray], redrawn: Sequence[Sequence[np.ndarray]]) -> dict[str, float]:
    """Return how often redraws correlate at least as much: on average, at the 99th percentile and at most.

    If stored days are independent draws, they and their redraws can be exchanged, so these are permutation tests.
    """
    looks = {"mean": np.mean, "q99": lambda values: np.quantile(values, 0.99), "max": np.max}
    found = {}
    for name, look in looks.items():
        own = look(correlations(stored))
        found[name] = (1 + sum(look(correlations(groups)) >= own for groups in redrawn)) / (1 + len(redrawn))
    return found


def drawn(windows: int) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Return deviations of the first stored days of so many windows, and of redraws of them all."""
    names = [name for name in TASKS if with_law(name).num_windows == windows]
    instances = [with_law(name) for name in names]
    stored = [deviations(i, load_scenarios(name)[0]) for i, name in zip(instances, names, strict=True)]
    redrawn = [
        [
            deviations(instance, draw_scenario(instance, np.random.default_rng([k, n])))
            for n, instance in enumerate(instances)
        ]
        for k in range(REDRAWS)
    ]
    return stored, redrawn


@pytest.mark.slow
@pytest.mark.parametrize("windows", [2016, pytest.param(288, marks=pytest.mark.full)])
def test_deviations_of_tasks_correlate_as_independent_draws(windows: int) -> None:
    """Dev and test together, weeks and days, by three looks at a level of 5 %; one week under all would be found."""
    stored, redrawn = drawn(windows)
    assert 3.0 * min(p_values(stored, redrawn).values()) > 0.05
    common = np.random.default_rng(0).standard_normal(stored[0].shape[1]) / stored[0].shape[1] ** 0.5
    shared = [rows + common for rows in stored]
    shared = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in shared]
    assert p_values(shared, redrawn)["mean"] == 1 / (1 + REDRAWS)


@pytest.mark.slow
def test_stored_days_of_a_task_differ() -> None:
    """Two scenarios of an instance have deviations of their own, too."""
    for name in TASKS:
        if entries()[name].size == "s":
            instance = with_law(name)
            first, second = (deviations(instance, day) for day in load_scenarios(name))
            assert np.abs((first * second).sum(axis=1)).max() < 0.98
