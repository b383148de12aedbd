"""Route a window's requests over serving replicas, and count the late ones (sections 4 and 5 of the model)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.reference.certified_lp import LinearProgram, solve
from fleetgym.reference.conditions import Conditions
from fleetgym.reference.late import U_MAX, LateSegments
from fleetgym.reference.tails import Queue, mixture

#: Share of the penalty for not serving that ranks pairs of equal cost.
TIE_BREAK = 1e-6


@dataclasses.dataclass
class Routing:
    """Where the requests of a window go.

    Attributes
    ----------
    share : dict from (workload, configuration) to float
        x; pairs that are missing get nothing.
    unserved : (workloads,) list of float
        u; 0 for absent workloads.
    """

    share: dict[tuple[int, int], float]
    unserved: list[float]


class RoutingProgram:
    """Section 4 as a scaled linear program.

    Rows are divided by their limits, and x_ic is replaced by x_ic · m_ic with m_ic the largest coefficient in
    its column, so that all entries are at most about one.
    """

    def __init__(self, conditions: Conditions, serving: Sequence[int], segments: dict[int, LateSegments]):
        self.conditions, self.book = conditions, conditions.book
        self.serving, self.segments = serving, segments
        self.rhs: dict[tuple, float] = {}
        self.columns: list[tuple[tuple, float, dict[tuple, float], float, float]] = []
        self.scale: dict[tuple[int, int], float] = {}
        used = [c for c, count in enumerate(serving) if count > 0]
        for i in conditions.present:
            self.rhs["serve", i] = 1.0
            self.add(("u", i), conditions.penalty[i], {("serve", i): 1.0}, 1.0)
        rows = {(i, c): self.coefficients(i, c) for i in conditions.present for c in used}
        possible = {pair: row for pair, row in rows.items() if row is not None}
        for c in used:
            self.add_capacity(c, [possible[i, c] for i in conditions.present if (i, c) in possible])
        for i in conditions.present:
            self.add_slo(i, [possible[i, c] for c in used if (i, c) in possible])
        for pair, row in possible.items():
            self.add_share(pair, row)

    def add(
        self, name: tuple, cost: float, row: dict[tuple, float], upper: float, largest: float = 1.0
    ) -> None:
        """Append a column."""
        self.columns.append((name, cost, row, upper, largest))

    def limits(self, c: int) -> dict[tuple, tuple[float, Callable[[int, int], float]]]:
        """Return each capacity row of a configuration: its limit, and the use per request/s."""
        part, conditions, count = self.book.configurations[c], self.conditions, self.serving[c]
        return {
            ("compute", c): (part.compute_tflops * count, conditions.work_tflop),
            ("kv", c): (part.kv_capacity_gb * count, conditions.kv_gb_s),
            ("slots", c): (U_MAX * part.max_concurrency * count, conditions.service_s),
        }

    def coefficients(self, i: int, c: int) -> dict[tuple, float] | None:
        """Return the column of x_ic before scaling; None if it must be 0."""
        if not self.book.compatible[i][c]:
            return None
        conditions, workload = self.conditions, self.book.workloads[i]
        row: dict[tuple, float] = {("serve", i): 1.0}
        for name, (limit, use) in self.limits(c).items():
            load = conditions.rate[i] * use(i, c)
            if load > 0.0 and limit == 0.0:
                return None
            row[name] = load / limit if load > 0.0 else 0.0
        row["delay", i] = (conditions.delay_s(i, c) - workload.mean_delay_slo_s) / workload.mean_delay_slo_s
        row["error", i] = (conditions.error(i, c) - workload.error_slo) / workload.error_slo
        return row

    def add_capacity(self, c: int, columns: Sequence[dict[tuple, float]]) -> None:
        """Add the rows of a configuration that all of the workloads together could violate."""
        late, count = self.segments[c], self.serving[c]
        servers = U_MAX * self.book.configurations[c].max_concurrency * count
        for name in self.limits(c):
            limit = late.u_safe / U_MAX if name[0] == "slots" else 1.0
            if math.fsum(row[name] for row in columns) > limit:
                self.rhs[name] = limit
        if ("slots", c) in self.rhs and late.width > 0.0:
            for b, slope in enumerate(late.slopes):
                width = late.width / servers
                self.add(("o", c, b), slope * servers, {("slots", c): -1.0}, width, width)

    def add_slo(self, i: int, columns: Sequence[dict[tuple, float]]) -> None:
        """Add the elastic rows of a workload that some configuration violates."""
        for kind in ("delay", "error"):
            worst = max((row[kind, i] for row in columns), default=0.0)
            if worst > 0.0:
                self.rhs[kind, i] = 0.0
                self.add((kind, i), self.conditions.penalty[i], {(kind, i): -1.0}, math.inf, worst)

    def add_share(self, pair: tuple[int, int], row: dict[tuple, float]) -> None:
        """Add x_ic, scaled."""
        kept = {name: value for name, value in row.items() if name in self.rhs and value != 0.0}
        scale = max(1.0, *kept.values())
        self.scale[pair] = scale
        column = {name: value / scale for name, value in kept.items()}
        self.add(("x", *pair), self.cost(*pair) / scale, column, math.inf, scale)

    def cost(self, i: int, c: int) -> float:
        """cost_ic, tie-breaking term included."""
        conditions, workload = self.conditions, self.book.workloads[i]
        late, _ = conditions.first_token(i, c)
        return math.fsum(
            [
                conditions.weight[i] * workload.delay_usd_per_s * conditions.delay_s(i, c),
                conditions.requests[i] * self.book.storage_usd[i][c],
                conditions.requests[i] * workload.late_usd * late,
                TIE_BREAK * conditions.penalty[i] * self.book.tie_break[i][c],
            ]
        )

    def program(self) -> LinearProgram:
        """Return the arrays."""
        index = {name: r for r, name in enumerate(self.rhs)}
        matrix = np.zeros((len(index), len(self.columns)))
        for j, (_, _, row, _, _) in enumerate(self.columns):
            for name, value in row.items():
                matrix[index[name], j] = value
        column_of = {column[0]: j for j, column in enumerate(self.columns)}
        start = [
            column_of["u", name[1]] if name[0] == "serve" else len(self.columns) + r
            for name, r in index.items()
        ]
        return LinearProgram(
            cost=np.array([column[1] for column in self.columns]),
            upper=np.array([column[3] for column in self.columns]),
            largest=np.array([column[4] for column in self.columns]),
            matrix=matrix,
            rhs=np.array(list(self.rhs.values())),
            equality=np.array([name[0] == "serve" for name in self.rhs]),
            start=start,
        )

    def solve(self) -> Routing:
        """Return the certified optimal routing."""
        unserved = [0.0] * self.book.num_workloads
        share: dict[tuple[int, int], float] = {}
        if not self.scale:
            for i in self.conditions.present:
                unserved[i] = 1.0
            return Routing(share, unserved)
        values = solve(self.program()).values.tolist()
        for (name, *_), value in zip(self.columns, values, strict=True):
            amount = max(0.0, value)
            if name[0] == "u":
                unserved[name[1]] = min(1.0, amount)
            elif name[0] == "x" and amount > 0.0:
                share[name[1], name[2]] = amount / self.scale[name[1], name[2]]
        return Routing(share, unserved)


def late_shares(
    conditions: Conditions, serving: Sequence[int], routing: Routing
) -> dict[tuple[int, int], float]:
    """P_ic for every pair that is routed."""
    late: dict[tuple[int, int], float] = {}
    for c in sorted({c for _, c in routing.share}):
        queue = _queue(conditions, serving[c], c, routing)
        for i in [i for i, at in routing.share if at == c]:
            own, patience = conditions.first_token(i, c)
            late[i, c] = own + (1 - own) * queue.waits_longer(patience) if own < 1 else 1.0
    return late


def _queue(conditions: Conditions, count: int, c: int, routing: Routing) -> Queue:
    """Return the queue that the routed mixture forms at a configuration."""
    book = conditions.book
    served = [i for i, at in routing.share if at == c]
    rates = [conditions.rate[i] * routing.share[i, c] for i in served]
    total = math.fsum(rates)
    shares = [rate / total for rate in rates]
    mean, cv2 = mixture(
        shares, [conditions.service_s(i, c) for i in served], [book.service_cv2[i][c] for i in served]
    )
    arrival_cv2 = math.fsum(p * book.workloads[i].arrival_cv2 for p, i in zip(shares, served, strict=True))
    servers = count * book.configurations[c].max_concurrency
    return Queue(servers, total * mean, mean, cv2, arrival_cv2)
