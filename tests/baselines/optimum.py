"""The exact optimum of the problem that GH and AGH approximate, by HiGHS through scipy: for tiny snapshots."""

from __future__ import annotations

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_matrix, vstack

from fleetgym.model.planning import Snapshot


class _Program:
    """Rows over one vector: a binary per slot option (count), then x per pair, then u per workload."""

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot
        self.options: list[tuple[int, int, int]] = []  # slot, configuration, replicas
        for s, (slot, members) in enumerate(
            zip(snapshot.instance.slots, snapshot.instance.slot_members, strict=True)
        ):
            for c in members:
                counts = [1] if slot.exclusive else range(1, int(snapshot.max_replicas[c]) + 1)
                self.options += [(s, c, r) for r in counts]
        self.shape = snapshot.delay_s.shape
        self.size = len(self.options) + self.shape[0] * self.shape[1] + self.shape[0]
        self.rows: list[csr_matrix] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a zero row and its views: options, x (I, C) and u."""
        row = np.zeros(self.size)
        n, pairs = len(self.options), self.shape[0] * self.shape[1]
        return row, row[:n], row[n : n + pairs].reshape(self.shape), row[n + pairs :]

    def add(self, row: np.ndarray, low: float, high: float) -> None:
        """Add a row, scaled to a largest coefficient of one."""
        if np.isinf(high) and np.isinf(low):
            return
        scale = np.abs(row).max() or 1.0
        self.rows.append(csr_matrix(row / scale))
        self.low.append(low / scale)
        self.high.append(high / scale)

    def capacity(self) -> None:
        """Add (5f), (5g) and the queue servers."""
        s = self.snapshot
        for c in range(self.shape[1]):
            for kind, per_request in enumerate((s.work_tflop, s.kv_gb_s, s.service_s)):
                row, option, x, _ = self.parts()
                x[:, c] = s.rate_rps * per_request[:, c]
                for k, (_, config, r) in enumerate(self.options):
                    if config == c:
                        safe = s.segments.safe_utilization[s.segments.offsets[c] + r - 1]
                        option[k] = (
                            -r * (s.compute_tflops[c], s.kv_capacity_gb[c], s.max_concurrency[c] * safe)[kind]
                        )
                self.add(row, -np.inf, 0.0)
            for i in range(self.shape[0]):
                row, option, x, _ = self.parts()
                x[i, c] = 1.0
                option[[k for k, o in enumerate(self.options) if o[1] == c]] = -1.0
                self.add(row, -np.inf, 0.0)

    def workloads(self) -> None:
        """Add demand (5b) and the mean SLOs (5i), (5j) of what is served."""
        s = self.snapshot
        for i, w in enumerate(s.instance.workloads):
            row, _, x, u = self.parts()
            x[i], u[i] = 1.0, 1.0
            self.add(row, float(s.rate_rps[i] > 0), float(s.rate_rps[i] > 0))
            for value, bound in ((s.delay_s, w.mean_delay_slo_s), (s.error, w.error_slo)):
                row, _, x, _ = self.parts()
                x[i] = value[i] / bound - 1.0
                self.add(row, -np.inf, 0.0)

    def fleet(self) -> None:
        """Add slots (5d), pools and the budget (5c)."""
        s = self.snapshot
        slots = np.array([o[0] for o in self.options])
        for slot in range(slots.max() + 1):
            row, option, _, _ = self.parts()
            option[slots == slot] = 1.0
            self.add(row, -np.inf, 1.0)
        for held, limit in [*zip(s.gpu_use, s.available_gpus, strict=True), (s.hold_usd, s.budget_usd)]:
            row, option, _, _ = self.parts()
            option[:] = [r * held[c] for _, c, r in self.options]
            self.add(row, -np.inf, float(limit))


def optimum_usd(snapshot: Snapshot, nodes: int = 100_000) -> float:
    """Return the least cost of the window with hard mean SLOs; a lower bound where branch and bound stopped."""
    program = _Program(snapshot)
    program.capacity()
    program.workloads()
    program.fleet()
    cost, option, x, u = program.parts()
    option[:] = [r * snapshot.hold_usd[c] for _, c, r in program.options]
    x[:], u[:] = snapshot.route_usd, snapshot.unserved_usd
    upper, _, allowed, _ = program.parts()
    upper[:] = 1.0
    allowed[:] = snapshot.compatible
    whole = np.zeros(program.size)
    whole[: len(program.options)] = 1
    scale = snapshot.unserved_usd.max()
    result = milp(
        cost / scale,
        constraints=LinearConstraint(vstack(program.rows, "csr"), program.low, program.high),
        bounds=(np.zeros(program.size), upper),
        integrality=whole,
        options={"mip_rel_gap": 1e-6, "node_limit": nodes},
    )
    assert result.x is not None, result.message
    return float(result.mip_dual_bound * scale)
