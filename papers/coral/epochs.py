"""Generate five epochs of demand and availability from a set-up and a seed; nothing here is published.

Demand: each model's rate times a lognormal factor per epoch. Availability: GPUs by type, region and node size in
fixed proportions times lognormal noise, scaled to what the case asks for. The paper scales a trace of Alibaba's,
which is not to be had.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fleetgym.baselines.coral import CoveringProblem
from fleetgym.baselines.coral.lagrangian import cheapest
from fleetgym.baselines.coral.problem import Running
from fleetgym.hardware.configurations.templates import Library
from fleetgym.runtime.linear_programs import LinearProgram

from .setup import NODE_SIZES, PHASES, Setup, service

EPOCHS = 5
STARTUP_RATIO = 0.1  # 6 of 60 minutes, section 6.1
DEMAND_LOG_SD_EPOCH = 0.15
POOL_LOG_SD, POOL_LOG_SD_EPOCH = 0.5, 0.15
#: GPUs by type: Table 1 marks where each is offered; the cheaper ones are offered more.
GPU_WEIGHTS = {"H100": 1.0, "A100": 2.0, "L40S": 2.0, "L4": 4.0, "A10G": 4.0}
#: Share of a type's GPUs in nodes of 1, 2, 4 and 8.
SIZE_SHARES = (0.4, 0.25, 0.2, 0.15)
#: What leaving a whole (model, phase) unserved costs: thousands of times any plausible rent.
UNSERVED_USD_PER_H: Mapping[str, float] = {"core": 1e5, "extended": 1e6}
#: Share of the requests that goes to the heavy third of the models.
HEAVY_SHARE = 0.8


@dataclasses.dataclass(frozen=True, eq=False)
class Templates:
    """All templates of a set-up as one list: a row of demand is a (model, phase)."""

    use: np.ndarray  # (N, K)
    throughput_rps: np.ndarray  # (N,)
    row: np.ndarray  # (N,)
    rank: np.ndarray  # (N,) in the row's library

    @classmethod
    def of(cls, libraries: list[Library], ranks: list[np.ndarray]) -> Templates:
        """Return the templates with some ranks of each library, one library per row."""
        return cls(
            use=np.concatenate([lib.counts(r) for lib, r in zip(libraries, ranks, strict=True)]),
            throughput_rps=np.concatenate(
                [lib.throughput_rps[r] for lib, r in zip(libraries, ranks, strict=True)]
            ),
            row=np.concatenate([np.full(r.size, m) for m, r in enumerate(ranks)]),
            rank=np.concatenate(ranks),
        )

    def only(self, chosen: np.ndarray) -> Templates:
        """Return those templates that a mask or index selects."""
        return Templates(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))


def row_names(setup: Setup) -> list[tuple[str, str]]:
    """Return (model, phase) of each row of demand."""
    return [(name, phase) for name in setup.models for phase in PHASES]


def mix(setup: Setup, case: str) -> np.ndarray:
    """Return each model's mean rate: equal, or 80 % of all requests to the largest or smallest third."""
    rates = np.full(len(setup.models), setup.rate_rps)
    if case in ("large-heavy", "small-heavy"):
        order = sorted(range(len(setup.models)), key=lambda m: service(setup.models[m]).model.params_b)
        third = len(setup.models) // 3
        heavy = order[-third:] if case == "large-heavy" else order[:third]
        total = rates.sum()
        rates[:] = (1.0 - HEAVY_SHARE) * total / (len(setup.models) - third)
        rates[heavy] = HEAVY_SHARE * total / third
    return rates


@dataclasses.dataclass(frozen=True, eq=False)
class Draw:
    """One seed's epochs, before availability is scaled."""

    demand_rps: np.ndarray  # (E, M) by row
    nodes: np.ndarray  # (E, R, K) nodes, as fractions, of one unit of availability


def draw(setup: Setup, case: str, seed: int) -> Draw:
    """Return five epochs of demand and of the availability's composition."""
    random = np.random.default_rng([seed, len(setup.models)])
    noise = np.exp(random.normal(0.0, DEMAND_LOG_SD_EPOCH, (EPOCHS, len(setup.models))))
    rates = mix(setup, case) * noise
    gpus = np.array([[GPU_WEIGHTS[g] * s for s in SIZE_SHARES] for g in setup.gpus]).ravel()
    shape = (len(setup.regions), gpus.size)
    pools = gpus * np.exp(random.normal(0.0, POOL_LOG_SD, shape))
    pools = pools * np.exp(random.normal(0.0, POOL_LOG_SD_EPOCH, (EPOCHS, *shape)))
    sizes = np.tile(np.array(NODE_SIZES, dtype=float), len(setup.gpus))
    return Draw(np.repeat(rates, len(PHASES), axis=1), pools / sizes)


def problem(
    setup: Setup,
    templates: Templates,
    demand_rps: np.ndarray,
    available: np.ndarray,
    running: Running | None = None,
) -> CoveringProblem:
    """Return one epoch's problem; what is unserved costs a thousand times any plausible rent."""
    return CoveringProblem(
        use=templates.use,
        throughput_rps=templates.throughput_rps,
        row=templates.row,
        price_usd_per_h=np.array(setup.usd_per_h),
        available=np.rint(available).astype(np.int64),
        demand_rps=demand_rps,
        running=running or Running.none(),
        startup_ratio=STARTUP_RATIO,
        unserved_usd_per_h=UNSERVED_USD_PER_H[setup.name],
    )


def estimated_need(templates: Templates, drawn: Draw) -> float:
    """Return the least availability that serves the mean demand, in units of the drawn one, by the linear relaxation.

    This is the "estimated demand" above which the scarce cases leave 25 or 75 %. Solved by column generation.
    """
    demand, nodes = drawn.demand_rps.mean(axis=0), drawn.nodes.mean(axis=0)
    share = templates.throughput_rps / demand[templates.row]
    pairs: list[tuple[int, int]] = []
    worth = templates.use @ (1.0 / nodes).T / share[:, None]
    need = np.inf
    while True:
        fresh = cheapest(worth, templates.row, 60)
        if not fresh:
            return need
        pairs += fresh
        template, region = np.array(pairs).T
        program = LinearProgram()
        scale = program.columns(np.ones(1), np.inf)
        count = program.columns(np.zeros(len(pairs)), np.inf)
        program.rows(demand.size, [(templates.row[template], count, share[template])], low=1.0)
        cell = region[:, None] * nodes.shape[1] + np.arange(nodes.shape[1])
        use = [
            (cell, count[:, None], templates.use[template]),
            (np.arange(nodes.size), scale, -nodes.ravel()),
        ]
        program.rows(nodes.size, use, high=0.0)
        answer = program.solve({}, relax=True)
        need = answer.objective
        prices = np.maximum(0.0, -answer.duals[demand.size :]).reshape(nodes.shape)
        worth = templates.use @ prices.T - (answer.duals[: demand.size][templates.row] * share)[:, None]
        worth = np.where(worth < -1e-7, worth, np.inf)
