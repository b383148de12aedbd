"""Solve Coral's integer program on a subset of its columns with HiGHS, as an LP or a MIP."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym.planning import Answer, LinearProgram

from .problem import Allocation, CoveringProblem, evaluate


@dataclasses.dataclass(eq=False)
class Restricted:
    """The program over some (template, region) pairs and all running replicas.

    The paper's penalty rows vanish: replicas are kept, up to what runs, at the rent, or new, at the rent and the
    penalty.
    """

    problem: CoveringProblem
    template: np.ndarray  # (P,) of new replicas
    region: np.ndarray  # (P,)

    def __post_init__(self) -> None:
        problem, program = self.problem, LinearProgram()
        rows, kinds = problem.demand_rps.size, problem.available.shape[1]
        running = problem.running
        self._template = np.concatenate([self.template, running.template])
        self._region = np.concatenate([self.region, running.region])
        use = problem.use[self._template].astype(float)
        cost = (problem.price_usd_per_h[self._region] * use).sum(axis=1)
        cost[: self.template.size] *= 1.0 + problem.startup_ratio
        share = problem.share[self._template]
        upper = np.concatenate([np.ceil(1.0 / np.maximum(share[: self.template.size], 1e-9)), running.count])
        self.reference_usd = max(1e-9, float(np.max(cost, initial=0.0)))
        self._short = program.columns(
            np.where(problem.demand_rps > 0.0, problem.unserved_usd_per_h, 0.0) / self.reference_usd, 1.0
        )
        self._count = program.columns(cost / self.reference_usd, upper, whole=True)
        m = np.arange(rows)
        row = problem.row[self._template]
        program.rows(
            rows,
            [(m, self._short, np.ones(rows)), (row, self._count, share)],
            low=np.where(problem.demand_rps > 0.0, 1.0, 0.0),
        )
        cell = self._region[:, None] * kinds + np.arange(kinds)
        program.rows(
            problem.available.size, [(cell, self._count[:, None], use)], high=problem.available.ravel()
        )
        self.program = program

    def relax(self) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Solve the LP; return its value, the demands' and the nodes' duals, and the columns' values."""
        answer = self.program.solve({}, relax=True)
        if answer.duals is None or answer.values is None:
            raise RuntimeError(f"the relaxation was not solved: {answer.status}")
        rows = self.problem.demand_rps.size
        duals = answer.duals * self.reference_usd
        nodes = np.maximum(0.0, -duals[rows:]).reshape(self.problem.available.shape)
        counts = answer.values[self._count]
        return answer.objective * self.reference_usd, np.maximum(0.0, duals[:rows]), nodes, counts

    def solve(
        self, options: dict[str, Any], start: Allocation | None = None
    ) -> tuple[Allocation | None, float, Answer]:
        """Solve the MIP; return the allocation, a bound over these columns in USD per hour, and the answer."""
        answer = self.program.solve(options, start=self._values(start) if start is not None else None)
        bound = answer.bound * self.reference_usd
        if answer.values is None:
            return None, bound, answer
        counts = np.rint(answer.values[self._count]).astype(np.int64)
        return evaluate(self.problem, self._template, self._region, counts), bound, answer

    def _values(self, start: Allocation) -> tuple[np.ndarray, np.ndarray] | None:
        """Return an allocation as values of the columns, or None where a column is missing."""
        regions = self.problem.available.shape[0]
        column: dict[int, list[int]] = {}
        key = self._template * regions + self._region
        for k in range(key.size - 1, -1, -1):  # kept columns come last, and are used first
            column.setdefault(int(key[k]), []).append(k)
        values = np.zeros(key.size)
        ran = self.problem.running.count
        for t, r, n in zip(start.template, start.region, start.count, strict=True):
            left = int(n)
            for k in column.get(int(t) * regions + int(r), []):
                room = int(ran[k - self.template.size]) if k >= self.template.size else left
                values[k] = min(left, room)
                left -= int(values[k])
            if left:
                return None
        index = np.concatenate([self._short, self._count])
        return index, np.concatenate([start.unserved, values])
