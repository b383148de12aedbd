"""A problem and a known cost in, a lower bound and the reduced costs of all options out: the linear relaxation.

Where every option is a single replica, the relaxation is solved over few columns at a time: multipliers of the
restricted program price all the others, and Lagrange's bound, computed in plain arithmetic, certifies the result.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from baselines.milp.highs import ALLOWANCE
from baselines.milp.lagrangian_kernels import ascend, price
from baselines.milp.problem import Problem
from baselines.milp.relaxation import binding_limits, is_binary, relax
from baselines.milp.tight import Tight, tight_program

ROUNDS = 30
#: Columns of the first restricted program, and most that a round adds.
FIRST, MORE = 60, 60
#: A relative distance of bound and relaxation that counts as none.
CLOSED = 1e-7
#: Subgradient steps of the first guess, and after how many in vain they get shorter.
GUESS_STEPS, PATIENCE = 300, 5


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """What the relaxation knows; opening an option costs at least the bound plus its reduced cost."""

    bound_usd: float
    reduced_usd: np.ndarray  # (O,)


def solve_root(problem: Problem, cost_usd: float, unit_usd: float) -> Root:
    """Return bound and reduced costs of a problem whose columns are sorted by group.

    Parameters
    ----------
    problem : Problem
        At least one column.
    cost_usd : float
        Of a known solution.
    unit_usd : float
        Money is scaled by it.
    """
    if is_binary(problem):
        return _by_columns(problem, cost_usd, unit_usd)
    t = tight_program(problem, unit_usd)
    answer = t.program.solve({}, relax=True)
    if answer.reduced is None:
        return Root(-np.inf, np.zeros(problem.options.column.size))
    reduced = answer.reduced[t.option]
    free = problem.options.counted
    reduced[free] += problem.options.low[free] * answer.reduced[t.count[free]]
    bound_usd = answer.bound * unit_usd
    return Root(bound_usd - ALLOWANCE * abs(bound_usd), np.maximum(0.0, reduced) * unit_usd)


def _by_columns(problem: Problem, cost_usd: float, unit_usd: float) -> Root:
    """Alternate between a restricted program and pricing."""
    r = relax(problem, unit_usd)
    count, workloads = r.usd.shape
    target = cost_usd / unit_usd
    multipliers = np.zeros(r.right.size)
    multipliers[:workloads] = np.minimum(target / workloads, r.highest[:workloads])
    scale = np.full(r.right.size, target / workloads)
    undecided, reduced = np.zeros(count, dtype=np.int64), np.zeros(count)
    ascend(r, undecided.copy(), multipliers, scale, target, GUESS_STEPS, PATIENCE, np.zeros(count))
    best = price(r, undecided, multipliers, reduced)
    inside = np.zeros(count, dtype=bool)
    inside[np.argsort(reduced, kind="stable")[:FIRST]] = True
    guess = multipliers.copy()
    for _ in range(ROUNDS):
        t = tight_program(problem.take(inside), unit_usd)
        answer = t.program.solve({}, relax=True)
        if answer.duals is None:
            break
        guess = _multipliers(problem, t, answer.duals, r.highest)
        costs = np.zeros(count)
        bound = price(r, undecided, guess, costs)
        if bound > best:
            best, multipliers, reduced = bound, guess, costs
        if best >= answer.objective - CLOSED * abs(answer.objective):
            break
        outside = np.flatnonzero(~inside & (costs < 0.0))
        if outside.size == 0:
            break
        inside[outside[np.argsort(costs[outside], kind="stable")[:MORE]]] = True
    return Root(best * unit_usd, _marginal(r.first, reduced) * unit_usd)


def _multipliers(problem: Problem, t: Tight, duals: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return the multipliers that the duals of a restricted program stand for."""
    workloads = problem.workloads.size
    parts = [duals[t.rows["demand"]]]
    parts += [-duals[t.rows[name]] if name in t.rows else np.zeros(workloads) for name in ("delay", "error")]
    shared = [-duals[t.rows[name][k]] * limit for name, k, _, limit in binding_limits(problem)]
    return np.clip(np.concatenate([*parts, shared]), 0.0, highest)


def _marginal(first: np.ndarray, reduced: np.ndarray) -> np.ndarray:
    """Return what opening each column adds to the bound: its group's choice, if any, closes."""
    lowest = np.minimum(0.0, np.minimum.reduceat(reduced, first[:-1]))
    return np.maximum(0.0, reduced - np.repeat(lowest, np.diff(first)))
