"""Chances to wait of many queues at once: the same bits as one queue after the other."""

import numba
import numpy as np
import pytest

from fleetgym.kernels.erlang_batch import (
    NUM_QUEUE_ROWS,
    Q_ARRIVAL_CV2,
    Q_CHANCE,
    Q_OFFERED,
    Q_SERVERS,
    fill_chances,
)
from fleetgym.kernels.queueing import chance_to_wait


@numba.njit
def fill(queues, count, negligible):
    """Call the kernel, which has no Python wrapper."""
    fill_chances(queues, count, negligible)


def _assert_same(servers, offered, arrival_cv2, negligible):
    """Compare a table of queues with single ones, bit for bit; columns beyond them stay as they are."""
    queues = np.full((NUM_QUEUE_ROWS, len(servers) + 1), -3.0)
    queues[Q_SERVERS, :-1], queues[Q_OFFERED, :-1], queues[Q_ARRIVAL_CV2, :-1] = servers, offered, arrival_cv2
    fill(queues, len(servers), negligible)
    single = [
        chance_to_wait(int(c), float(a), float(v), negligible)
        for c, a, v in zip(servers, offered, arrival_cv2, strict=True)
    ]
    assert np.array_equal(queues[Q_CHANCE, :-1].view(np.int64), np.array(single).view(np.int64))
    assert (queues[:, -1] == -3.0).all()


@pytest.mark.parametrize("negligible", [0.0, 1e-20, 1e-3])
@pytest.mark.parametrize("largest", [10.0, 100.0, 3000.0, 30000.0])
def test_same_bits_as_single_queues(largest, negligible):
    """From 1 to 20 queues of very different sizes, loads and burstiness."""
    rng = np.random.default_rng(int(largest))
    for _ in range(100):
        count = int(rng.integers(1, 21))
        servers = np.floor(largest ** rng.random(count))
        load = rng.choice([1.0, 0.97, 0.5], count) * rng.random(count) ** rng.choice([0.05, 1.0, 8.0], count)
        bursts = np.where(rng.random(count) < 0.5, 1.0, 10.0 ** rng.uniform(-1.0, 1.5, count))
        _assert_same(servers, load * servers, bursts, negligible)


@pytest.mark.parametrize("arrival_cv2", [1.0, 0.3, 40.0])
def test_edges(arrival_cv2):
    """No load, hardly any, a full and an overfull queue, few servers, beside one that takes long."""
    servers = np.array([5.0, 5.0, 5.0, 5.0, 1.0, 2.0, 4.0, 50000.0, 7.0])
    offered = np.array([0.0, 1e-200, 5.0, 9.0, 0.3, 1.9, 1e-12, 47000.0, 6.999999])
    for negligible in (0.0, 1e-20):
        _assert_same(servers, offered, np.full(servers.size, arrival_cv2), negligible)
