"""Build FastLLM's own mixed-integer program: products of routes and selectors in McCormick envelopes.

Source: Cheng and Nguyen, "Fast Heterogeneous Serving: Scalable Mixed-Scale LLM Allocation for
SLO-Constrained Inference", arXiv:2604.07472, (4) and (5a) to (5k).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.planning import LinearProgram

from .problem import COMPUTE, MEMORY, SERVERS, PlacementProblem


@dataclasses.dataclass(frozen=True, eq=False)
class McCormick:
    """The program and where its variables are.

    A selection is a column with a number of replicas, the paper's (n, m).
    """

    program: LinearProgram
    slot: np.ndarray  # (S,) of each selection
    column: np.ndarray  # (S,)
    number: np.ndarray  # (S,) replicas
    selector: np.ndarray  # (S,) index of w
    deployed: np.ndarray  # (slots,) q
    route: np.ndarray  # (I, slots) x
    placed: np.ndarray  # (I, slots) z
    product: np.ndarray  # (I, S) v
    unserved: np.ndarray  # (I,)

    def replicas(self, problem: PlacementProblem, values: np.ndarray) -> np.ndarray:
        """Return whole replicas per column, (C,)."""
        chosen = np.rint(values[self.selector]) * self.number
        return np.bincount(self.column, chosen, problem.columns.size).astype(np.int64)


def mccormick_program(problem: PlacementProblem, unit_usd: float, *, linked: bool = True) -> McCormick:
    """Return the program of a problem, money in units of `unit_usd`.

    A slot is the paper's (j, k). A counted slot, which the paper does not have, selects among numbers of replicas.

    Parameters
    ----------
    problem : PlacementProblem
        Any.
    unit_usd : float
        What counts as one in the objective.
    linked : bool
        Add that x is the sum of its v, the product of (5d) and x <= q. The paper does not print it; without it
        x may lie far above every v, and HiGHS needs a hundred times as long.
    """
    options, program = problem.options, LinearProgram()
    spread = [(o, r) for o in range(options.column.size) for r in range(options.low[o], options.high[o] + 1)]
    option, number = np.array(spread, dtype=np.int64).reshape(-1, 2).T
    column = options.column[option]
    slot = np.unique(problem.group, return_inverse=True)[1][column]
    slots, workloads = int(slot.max(initial=-1)) + 1, problem.workloads.size
    usd = options.fixed_usd[option] + number * options.replica_usd[option]
    stored = np.zeros(slots)  # the paper stores weights with z
    if problem.modes.storage == "paper":
        np.maximum.at(stored, slot, problem.model_usd[column])
    m = McCormick(
        program=program,
        slot=slot,
        column=column,
        number=number,
        selector=program.columns(usd / unit_usd, 1.0, whole=True),
        deployed=program.columns(np.zeros(slots), 1.0, whole=True),
        route=program.columns(np.zeros((workloads, slots)), 1.0),
        placed=program.columns(np.tile(stored / unit_usd, (workloads, 1)), 1.0, whole=True),
        product=program.columns(
            problem.usd[:, column] / unit_usd, np.where(problem.open[:, column], 1.0, 0.0), droppable=True
        ),
        unserved=program.columns(problem.unserved_usd / unit_usd, 1.0),
    )
    _envelopes(m, linked)
    _selection_rows(problem, m)
    _capacity_rows(problem, m, option, unit_usd)
    _slo_rows(problem, m, unit_usd)
    _money_rows(problem, m, stored)
    return m


def _envelopes(m: McCormick, linked: bool) -> None:
    """(4), and if asked for the sum of products."""
    workloads, selections = m.product.shape
    row = np.arange(m.product.size).reshape(m.product.shape)
    x, w = m.route[:, m.slot], np.broadcast_to(m.selector, m.product.shape)
    m.program.rows(row.size, [(row, m.product, 1.0), (row, x, -1.0)], high=0.0)
    m.program.rows(row.size, [(row, m.product, 1.0), (row, w, -1.0)], high=0.0)
    m.program.rows(row.size, [(row, x, 1.0), (row, w, 1.0), (row, m.product, -1.0)], high=1.0)
    if linked:
        pair = np.arange(m.route.size).reshape(m.route.shape)
        m.program.rows(m.route.size, [(pair[:, m.slot], m.product, 1.0), (pair, m.route, -1.0)], 0.0, 0.0)


def _selection_rows(problem: PlacementProblem, m: McCormick) -> None:
    """(5b), (5d), (5k), and the GPUs of each pool, which count (5e)."""
    workloads, slots = m.route.shape
    i = np.arange(workloads)
    m.program.rows(workloads, [(i[:, None], m.route, 1.0), (i, m.unserved, 1.0)], 1.0, 1.0)
    m.program.rows(slots, [(m.slot, m.selector, 1.0), (np.arange(slots), m.deployed, -1.0)], 0.0, 0.0)
    row = np.arange(m.route.size).reshape(m.route.shape)
    m.program.rows(row.size, [(row, m.route, 1.0), (row, m.placed, -1.0)], high=0.0)
    m.program.rows(row.size, [(row, m.placed, 1.0), (row, m.deployed, -1.0)], high=0.0)
    pool, selection = np.nonzero(problem.gpus[:, m.column])
    use = problem.gpus[pool, m.column[selection]] * m.number[selection]
    m.program.rows(problem.available.size, [(pool, m.selector[selection], use)], high=problem.available)


def _capacity_rows(problem: PlacementProblem, m: McCormick, option: np.ndarray, unit_usd: float) -> None:
    """(5f), (5g) and the queue servers, per slot."""
    slots = m.deployed.size
    servers = problem.options.servers[option]
    for kind in (COMPUTE, MEMORY, SERVERS):
        load = np.where(problem.open, problem.load[kind], 0.0)[:, m.column]
        give = m.number * (servers if kind == SERVERS else 1.0)
        entries = [(np.broadcast_to(m.slot, load.shape), m.product, load), (m.slot, m.selector, -give)]
        width = problem.options.width[option]
        late, segment = np.nonzero(width)
        if kind == SERVERS and late.size:
            usd = problem.options.slope_usd[option[late], segment]
            busy = m.program.columns(usd / unit_usd, width[late, segment])
            k = np.arange(late.size)
            m.program.rows(
                late.size, [(k, busy, 1.0), (k, m.selector[late], -width[late, segment])], high=0.0
            )
            entries.append((m.slot[late], busy, -1.0))
        m.program.rows(slots, entries, high=0.0)


def _slo_rows(problem: PlacementProblem, m: McCormick, unit_usd: float) -> None:
    """(5i) and (5j) as the mode wants them; relative to the SLOs."""
    i = np.arange(problem.workloads.size)
    slo = problem.modes.slo
    for value, is_delay in ((problem.delay, True), (problem.error, False)):
        ratio = np.where(problem.open, value, 0.0)[:, m.column]
        excess = np.where(problem.open, value - 1.0, 0.0)[:, m.column]
        if slo == "elastic":
            s = m.program.columns(problem.unserved_usd / unit_usd, np.inf)
            m.program.rows(i.size, [(i[:, None], m.product, excess), (i, s, -1.0)], high=0.0)
        elif slo == "served-mean":
            m.program.rows(i.size, [(i[:, None], m.product, excess)], high=0.0)
        elif slo == "mean" or not is_delay:
            m.program.rows(i.size, [(i[:, None], m.product, ratio)], high=1.0)


def _money_rows(problem: PlacementProblem, m: McCormick, stored: np.ndarray) -> None:
    """(5c) and (5h)."""
    data = np.where(problem.open, problem.data_usd, 0.0)[:, m.column]
    paper = problem.modes.storage == "paper"
    routes = [(0, m.product, data)]
    if paper:
        routes.append((0, m.placed, np.broadcast_to(stored, m.placed.shape)))
    if np.isfinite(problem.budget_usd):
        rent = (0, m.selector, m.number * problem.hold_usd[m.column])
        m.program.rows(1, [rent, *(routes if paper else [])], high=problem.budget_usd)
    if np.isfinite(problem.storage_usd):
        weights = [] if paper else [(0, m.selector, m.number * problem.model_usd[m.column])]
        m.program.rows(1, [*routes, *weights], high=problem.storage_usd)
