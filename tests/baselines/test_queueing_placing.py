"""The compiled loops of the queueing planner against plain ones that are written down from the planner's docstring."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from problems import snapshot_of
from toys import random_instance

from fleetgym.baselines.queueing.placing_kernels import cheapest_place, fits, miss, needed, price
from fleetgym.baselines.queueing.queueing_planner import QueueingPlanner, _Placing
from fleetgym.kernels.queueing import chance_to_wait
from fleetgym.model.planning import Snapshot


class Plain:
    """The same questions, answered with loops over replicas and NumPy's sums."""

    def __init__(self, snapshot: Snapshot, rules: QueueingPlanner):
        self.snapshot, self.rules = snapshot, rules

    def miss(self, c: int, rates: np.ndarray, replicas: int) -> float:
        """Weights of the workloads present, moments of the mixture, then the exponential tail of the wait."""
        s, workloads = self.snapshot, self.snapshot.instance.workloads
        weight = rates / rates.sum()
        service = s.service_s[:, c]
        mean = weight @ service
        if mean == 0.0:
            return 0.0
        servers, busy = int(replicas * s.max_concurrency[c]), rates.sum() * mean
        if busy >= servers:
            return 1.0
        arrival_cv2 = weight @ [w.arrival_cv2 for w in workloads]
        second = weight @ ((1.0 + s.instance.performance.service_cv2[:, c]) * service**2)
        spread = second / mean**2 - 1.0 + arrival_cv2
        if spread <= 0.0:
            return 0.0
        relaxation_s = mean * spread / (2.0 * (servers - busy))
        late = 0.0
        for i, workload in enumerate(workloads):
            if rates[i] > 0.0 and workload.ttft_slo_s is not None and s.own_late[i, c] < 1.0:
                late += weight[i] * (1.0 - s.own_late[i, c]) * math.exp(-s.slack_s[i, c] / relaxation_s)
        return late * chance_to_wait(servers, busy, arrival_cv2, 0.0)

    def needed(self, c: int, x: np.ndarray) -> int:
        """The first number of replicas, counted up, with room for the loads and few enough late requests."""
        s = self.snapshot
        rates = s.rate_rps * x
        if rates.sum() == 0.0:
            return 0
        loads = rates @ s.work_tflop[:, c], rates @ s.kv_gb_s[:, c], rates @ s.service_s[:, c]
        rooms = s.compute_tflops[c], s.kv_capacity_gb[c], self.rules.utilization * s.max_concurrency[c]
        for replicas in range(1, int(s.max_replicas[c]) + 1):
            has_room = all(
                load <= replicas * room * (1.0 + 1e-12) for load, room in zip(loads, rooms, strict=True)
            )
            if has_room and self.miss(c, rates, replicas) <= self.rules.miss_share:
                return replicas
        return -1

    def fits(self, fleet: np.ndarray) -> bool:
        """Slots, pools and budget hold the fleet."""
        s = self.snapshot
        groups = [
            list(m)
            for slot, m in zip(s.instance.slots, s.instance.slot_members, strict=True)
            if slot.exclusive
        ]
        return bool(
            all(fleet[members].sum() <= 1 for members in groups)
            and (s.gpu_use @ fleet <= s.available_gpus).all()
            and fleet @ s.hold_usd <= s.budget_usd * (1.0 + 1e-12)
        )

    def cost(self, fleet: np.ndarray) -> float:
        """Rent and fees of a fleet."""
        s = self.snapshot
        return float(fleet @ s.hold_usd + np.maximum(0, fleet - s.fleet) @ s.startup_usd)

    def place(
        self, x: np.ndarray, fleet: np.ndarray, i: int, c: int, part: float
    ) -> tuple[float, int] | None:
        """Cost and replicas of a part of workload i on c."""
        more = x[:, c].copy()
        more[i] += part
        replicas = self.needed(c, more)
        after = fleet.copy()
        after[c] = max(replicas, fleet[c])
        if replicas < 0 or (replicas > fleet[c] and not self.fits(after)):
            return None
        return self.cost(after) - self.cost(fleet) + part * float(self.snapshot.route_usd[i, c]), int(
            after[c]
        )

    def cheapest(
        self, x: np.ndarray, fleet: np.ndarray, i: int, options: np.ndarray, size: int, left: float
    ) -> tuple[float, int, float, int] | None:
        """Of each batch the cheapest whole place, or the part that is cheapest for its size."""
        for begin in range(0, options.size, size):
            whole, parts = [], []
            for c in options[begin : begin + size]:
                if (found := self.place(x, fleet, i, c, left)) is not None:
                    whole.append((found[0], int(c), left, found[1]))
                    continue
                part, step = 0.0, 0.5  # bisection, eight times
                for _ in range(8):
                    part += step if self.place(x, fleet, i, c, left * (part + step)) is not None else 0.0
                    step *= 0.5
                if left * part >= 1e-3:
                    usd, replicas = self.place(x, fleet, i, c, left * part) or (math.nan, -1)
                    parts.append((usd, int(c), left * part, replicas))
            if whole:
                return min(whole, key=lambda place: place[0])
            if parts:
                return min(parts, key=lambda place: place[0] / place[2])
        return None


@pytest.mark.parametrize("seed", range(60))
def test_kernels_answer_as_the_plain_loops(seed: int) -> None:
    """Random problems and fleets, some of them half placed: replicas, limits, prices, and the cheapest place."""
    rng = np.random.default_rng(seed)
    instance = random_instance(seed)
    scale = rng.choice([0.0, 0.01, 0.3, 1.0, 3.0], instance.num_workloads)
    snapshot = snapshot_of(instance, rate_scale=scale)
    if seed % 2:  # some prompts are too long
        some = rng.uniform(0.0, 0.4, snapshot.own_late.shape)
        snapshot = dataclasses.replace(snapshot, own_late=np.maximum(snapshot.own_late, some))
    rules = QueueingPlanner(
        miss_share=float(rng.choice([0.001, 0.01, 0.3])), utilization=float(rng.uniform(0.3, 0.99))
    )
    plain, placing = Plain(snapshot, rules), _Placing(snapshot, rules)
    for i in rng.permutation(instance.num_workloads)[: rng.integers(0, instance.num_workloads + 1)]:
        placing.place(int(i))  # what is there already
    problem, x, fleet = placing.problem, placing.x, placing.replicas
    for c in range(instance.num_configurations):
        for part in (0.0, 0.3, 1.0):
            i = int(rng.integers(instance.num_workloads))
            more = x[:, c].copy()
            more[i] += part
            assert needed(problem, x, c, i, part) == plain.needed(c, more)
        if (snapshot.rate_rps * x[:, c]).any():
            replicas = int(rng.integers(1, 9))
            expected = plain.miss(c, snapshot.rate_rps * x[:, c], replicas)
            assert miss(problem, x, c, -1, 0.0, replicas) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        other = fleet.copy()
        other[c] = rng.integers(0, snapshot.max_replicas[c] + 1)
        assert fits(problem, fleet, c, other[c]) == plain.fits(other)
        alone = np.zeros_like(fleet)
        alone[c] = other[c]
        assert price(problem, c, other[c]) == pytest.approx(plain.cost(alone), rel=1e-12, abs=1e-300)
    for i in range(instance.num_workloads):
        options, left = placing.options(i), 1.0 - float(x[i].sum())
        if options.size and left > 1e-3 and snapshot.rate_rps[i] > 0.0:
            size = int(rng.integers(1, options.size + 1))
            usd, c, part, replicas = cheapest_place(problem, x, fleet, i, options, size, left)
            best = plain.cheapest(x, fleet, i, options, size, left)
            assert (c < 0) == (best is None)
            if best is not None:
                assert (c, replicas) == (best[1], best[3])
                assert (usd, part) == pytest.approx((best[0], best[2]), rel=1e-9, abs=1e-12)


def test_random_problems_ask_for_everything() -> None:
    """The seeds above hold places that are whole, in parts, in later batches, and none at all."""
    seen = set()
    for seed in range(200):
        instance = random_instance(seed)
        scale = np.random.default_rng(seed).choice([0.3, 1.0, 3.0, 10.0], instance.num_workloads)
        snapshot = snapshot_of(instance, rate_scale=scale)
        placing = _Placing(snapshot, QueueingPlanner())
        for i in range(instance.num_workloads):
            options = placing.options(i)
            _, c, part, _ = cheapest_place(placing.problem, placing.x, placing.replicas, i, options, 1, 1.0)
            seen.add("none" if c < 0 else "first" if c == options[0] else "later")
            seen.add("whole" if part == 1.0 else "a part" if part > 0.0 else "none")
            placing.place(i)
    assert seen == {"none", "first", "later", "whole", "a part"}
