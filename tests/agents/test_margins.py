"""What `Margins` says between two windows is what its slow twin says, to the bit."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fleetgym
from fleetgym.agents.margin_kernels import pairwise_sum, tell_apart
from fleetgym.agents.margins import LOWER, Margins, margins_of
from fleetgym.envs.vector import FleetAllocVectorEnv
from tests.margins_twin import SlowMargins


@pytest.mark.parametrize(
    "names",
    [
        ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/drop-s-002"],
        ["fleet-v0/dev/trace-m-001"],
        ["fleet-v0/dev/fastllm-4-4-5-001"],
        ["fleet-v1/dev/budget-s-101", "fleet-v1/dev/budget-s-102"],
        ["fleet-v1/dev/multi-s-101"],
    ],
)
def test_margins_are_the_slow_twin(names: list[str]) -> None:
    """Features and actions over ends of episodes, where some rest, and for any margins."""
    rng, count = np.random.default_rng(0), 3
    envs = FleetAllocVectorEnv(count, names, max_episode_steps=20, full_info=True)
    which = np.arange(count) % len(names)
    quick, slow = Margins(envs.instances, which), SlowMargins(envs.instances, which)
    _, seen = envs.reset(seed=1)
    rows = np.ones(count, dtype=bool)
    for _ in range(45):
        quick.see(seen, rows)
        slow.see(seen, rows)
        assert np.array_equal(quick.features(), slow.features())
        lower, gap = margins_of(rng.uniform(-1.5, 1.5, (count, envs.instances[0].num_workloads, 2)))
        actions = slow.actions(slow.targets(lower, gap))
        assert np.array_equal(quick.actions(quick.targets(lower, gap)), actions)
        sized = np.stack([[lower, lower + gap], [np.full_like(lower, LOWER)] * 2]).transpose(0, 2, 1, 3)
        assert np.array_equal(quick.choose(np.ascontiguousarray(sized))[1][0], actions)
        _, _, _, _, seen = envs.step(actions)
        rows = (rng.random(count) < 0.7) | (seen["window"] == 0)
    envs.close()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_remember_apart(duplicate) -> None:
    """A copy goes on as the original does, and neither changes the other."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    envs = FleetAllocVectorEnv(1, instance, full_info=True)
    first, (_, seen) = Margins([instance], [0]), envs.reset(seed=1)
    for t in range(12):
        first.see(seen)
        if t == 5:
            second = duplicate(first)
        elif t > 5:
            expected = first.features(), first.targets()
            second.see(seen)
            assert np.array_equal(second.features(), expected[0])
            assert np.array_equal(second.targets(), expected[1])
        _, _, _, _, seen = envs.step(first.actions(first.targets()))
    envs.close()


def test_sums_are_numpys() -> None:
    """Numbers are added in NumPy's order."""
    rng = np.random.default_rng(0)
    for count in (*range(1, 40), 127, 128, 129, 144, 300, 1025):
        for _ in range(20):
            values = rng.normal(size=count) * 10.0 ** rng.integers(-6, 6, count)
            assert pairwise_sum(values) == values.sum() == values[None].sum(axis=1)[0]


def test_equal_fleets_are_told_apart() -> None:
    """A fleet counts where none before it is the same."""
    targets = np.random.default_rng(0).integers(0, 2, (9, 5, 3))
    masks = np.empty((5, 9), dtype=bool)
    tell_apart(targets, masks)
    for n, k in np.ndindex(5, 9):
        assert masks[n, k] == (not any((targets[j, n] == targets[k, n]).all() for j in range(k)))
