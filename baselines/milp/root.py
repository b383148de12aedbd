"""Solve the linear relaxation of a problem: a lower bound, and the reduced costs of all options.

Where every option is a single replica, the relaxation is solved over few columns at a time: multipliers of the
restricted program price all the others, and Lagrange's bound, computed in plain arithmetic, certifies the result.
With a good solution in hand the relaxation is tightened by covers, which hold for whatever is cheaper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetgym.planning import ALLOWANCE, Answer

from .lagrangian_kernels import ascend, price
from .problem import PlacementProblem
from .relaxation import binding_limits, is_binary, relax
from .routing import Solution
from .tight import Tight, tight_program

ROUNDS = 30
#: Columns of the first restricted program, and most that a round adds.
FIRST, MORE = 60, 60
#: A relative distance of bound and relaxation that counts as none.
MET = 1e-7
#: Subgradient steps of the first guess, and after how many in vain they get shorter.
GUESS_STEPS, PATIENCE = 300, 5
#: Options stay while they could reach the best cost to this relative precision.
CUTOFF = 1e-7
#: The same for what a workload may lose.
ROOM = 1e-6
#: Share from which on a workload's loss in a relaxation counts as one.
LOSSY = 1e-6
#: Most relaxations with covers at a time, and the share of options that one must leave for there to be no other.
TIGHTENINGS, LEFT = 6, 0.9


class Loss(NamedTuple):
    """Losing a share of a workload costs at least `least_usd` plus that share of `whole_usd`, all (I,)."""

    least_usd: np.ndarray
    whole_usd: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """What the relaxation knows of solutions below a known cost.

    Opening an option costs at least the bound plus its reduced cost.
    """

    bound_usd: float
    reduced_usd: np.ndarray  # (O,)
    losses: list[Loss]

    def alive(self, cost_usd: float) -> np.ndarray:
        """Return which options a solution below a cost may have, (O,) bool."""
        return self.bound_usd + self.reduced_usd < cost_usd * (1.0 + CUTOFF)

    def most_lost(self, problem: PlacementProblem, best: Solution) -> np.ndarray:
        """Return which share of each workload a solution that costs no more than `best` may lose, (I,)."""
        cost_usd = best.cost_usd * (1.0 + ROOM)
        room = [(cost_usd - least) / np.maximum(whole, 1e-300) for least, whole in self.losses]
        return np.minimum(1.0, np.maximum(np.min(room, axis=0), best.lost(problem)) + ROOM)


def solve_root(problem: PlacementProblem, cost_usd: float, unit_usd: float) -> Root:
    """Return bound and reduced costs of a problem whose columns are sorted by group.

    Parameters
    ----------
    problem : PlacementProblem
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
    loss = Loss(np.zeros(problem.workloads.size), problem.unserved_usd)
    if answer.reduced is None:
        return Root(-np.inf, np.zeros(problem.options.column.size), [loss])
    return Root(_bound_usd(answer, unit_usd), _reduced_usd(problem, t, answer, unit_usd), [loss])


def tighten(
    root: Root, problem: PlacementProblem, best: Solution, unit_usd: float, is_over: Callable[[], bool] | None
) -> Root:
    """Relax what is alive with covers, again as long as much falls away.

    Parameters
    ----------
    root : Root
        Of the problem.
    problem, unit_usd
        As for `solve_root`.
    best : Solution
        The cheapest that is known; it stays in the relaxation, so that this is never infeasible.
    is_over : callable, optional
        Whether to stop.
    """
    chosen = problem.options.run_by(best.replicas)
    for _ in range(TIGHTENINGS):
        kept, most_lost = root.alive(best.cost_usd) | chosen, root.most_lost(problem, best)
        if (kept == chosen).all():
            break
        part = problem.take_options(kept)
        t = tight_program(part, unit_usd, most_lost=most_lost)
        if t.rows["covers"].size == 0:
            break
        answer = t.program.solve({}, relax=True, is_over=is_over)
        if answer.reduced is None or answer.values is None or answer.status != "optimal":
            break
        bound_usd, reduced_usd = _bound_usd(answer, unit_usd), np.full(kept.size, np.inf)
        reduced_usd[kept] = _reduced_usd(part, t, answer, unit_usd)
        lossy = np.flatnonzero(sum(answer.values[k] for k in t.lost) > LOSSY)
        losses = [_loss(part, int(i), most_lost, unit_usd, is_over) for i in lossy]
        whole_usd = np.min([answer.reduced[k] for k in t.lost], axis=0) * unit_usd
        losses.append(Loss(np.full(whole_usd.size, bound_usd), whole_usd))
        root = Root(max(bound_usd, root.bound_usd), reduced_usd, [*root.losses, *losses])
        few_left = root.alive(best.cost_usd).sum() <= LEFT * kept.sum()
        if not few_left and (root.most_lost(problem, best) > LEFT * most_lost)[lossy].all():
            break
    return root


def _loss(
    problem: PlacementProblem,
    i: int,
    most_lost: np.ndarray,
    unit_usd: float,
    is_over: Callable[[], bool] | None,
) -> Loss:
    """Return what losing a share of workload `i` costs, by the relaxation in which most is lost."""
    least, whole = np.zeros(most_lost.size), np.zeros(most_lost.size)
    t = tight_program(problem, unit_usd, most_lost=most_lost)
    row = t.program.rows(1, [(0, k[i], 1.0) for k in t.lost], low=most_lost[i])
    answer = t.program.solve({}, relax=True, is_over=is_over)
    if answer.duals is not None and answer.status == "optimal":
        whole[i] = max(0.0, answer.duals[row].item()) * unit_usd
        least[i] = _bound_usd(answer, unit_usd) - whole[i] * most_lost[i]
    return Loss(least, whole)


def _bound_usd(answer: Answer, unit_usd: float) -> float:
    return answer.bound * unit_usd - ALLOWANCE * abs(answer.bound * unit_usd)


def _reduced_usd(problem: PlacementProblem, t: Tight, answer: Answer, unit_usd: float) -> np.ndarray:
    """Return what opening each option adds to the bound, (O,)."""
    assert answer.reduced is not None
    reduced = answer.reduced[t.option]
    free = problem.options.counted
    reduced[free] += problem.options.low[free] * answer.reduced[t.count[free]]
    return np.maximum(0.0, reduced) * unit_usd


def _by_columns(problem: PlacementProblem, cost_usd: float, unit_usd: float) -> Root:
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
        if best >= answer.objective - MET * abs(answer.objective):
            break
        outside = np.flatnonzero(~inside & (costs < 0.0))
        if outside.size == 0:
            break
        inside[outside[np.argsort(costs[outside], kind="stable")[:MORE]]] = True
    loss = Loss(np.zeros(workloads), problem.unserved_usd)
    return Root(best * unit_usd, _marginal(r.first, reduced) * unit_usd, [loss])


def _multipliers(problem: PlacementProblem, t: Tight, duals: np.ndarray, highest: np.ndarray) -> np.ndarray:
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
