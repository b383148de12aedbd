"""Find cuts that make a program open suitable columns, given the most that each workload may lose.

Take any mixture of a workload's two SLOs, with weights a and 1 - a. If every open column is at least b > 1 times that
mixture, then so is the mean over what is served, and a share is lost: not served or, with elastic SLOs, paid for as
an excess. So a workload loses at least that share, or opens a column that is below b; and where it may not lose so
much, such a column is open.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from .problem import PlacementProblem

#: Weights of the delay in the mixtures; the error has the rest.
WEIGHTS = np.linspace(0.0, 1.0, 41)
#: Losses from which on a column counts as unsuitable, in shares of what may be lost.
LEVELS = np.linspace(0.0, 1.0, 5)


@dataclasses.dataclass(frozen=True, eq=False)
class Covers:
    """Of each set's columns one is open, unless its workload loses at least so much."""

    workload: np.ndarray  # (K,)
    loss: np.ndarray  # (K,) share; infinite: one is open in any case
    sets: np.ndarray  # (K, C) bool

    def take(self, keep: np.ndarray) -> Covers:
        """Return those that `keep`, a mask or indices, selects."""
        return Covers(self.workload[keep], self.loss[keep], self.sets[keep])


def find_covers(problem: PlacementProblem, most_lost: np.ndarray) -> Covers:
    """Return the covers that no other one implies.

    Parameters
    ----------
    problem : PlacementProblem
        Any.
    most_lost : ndarray, shape (I,)
        Share of each workload that may be unserved, plus the excess of its means over elastic SLOs.

    Returns
    -------
    Covers
        All solutions that lose no more keep them.
    """
    count = problem.columns.size
    none = Covers(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, count), dtype=bool))
    found = [none, *(_of_workload(problem, i, most_lost[i]) for i in range(most_lost.size))]
    every = Covers(*(np.concatenate([getattr(c, f.name) for c in found]) for f in dataclasses.fields(Covers)))
    hard = np.flatnonzero(np.isinf(every.loss))
    hard = hard[_undominated(every.take(hard))]
    implied = np.asarray(_within(every.sets[hard], every.sets).any(axis=0))
    implied[hard] = False
    return every.take(~implied)


def _of_workload(problem: PlacementProblem, i: int, most_lost: float) -> Covers:
    mixture = np.outer(WEIGHTS, problem.delay[i]) + np.outer(1.0 - WEIGHTS, problem.error[i])
    lost = np.where(problem.open[i], _least_lost(mixture, problem.modes.slo), 1.0)  # (W, C)
    level = np.repeat(LEVELS * most_lost, WEIGHTS.size)[:, None] + 1e-9
    lost = np.tile(lost, (LEVELS.size, 1))
    sets = problem.open[i] & (lost <= level)
    loss = np.where(sets, 1.0, lost).min(axis=1, initial=1.0)
    loss[loss > most_lost + 1e-9] = np.inf
    _, first = np.unique(np.column_stack([sets, loss]), axis=0, return_index=True)
    covers = Covers(np.full(first.size, i), loss[first], sets[first])
    covers = covers.take(
        covers.sets.any(axis=1) | np.isfinite(covers.loss)
    )  # round-off may leave none to open
    return covers.take(_undominated(covers))


def _least_lost(mixture: np.ndarray, slo: str) -> np.ndarray:
    """Return the share that is lost at least if no column is below `mixture`."""
    excess = np.maximum(0.0, mixture - 1.0)
    if slo == "served-mean":
        return (excess > 0.0).astype(float)
    return np.minimum(1.0, excess) if slo == "elastic" else excess / (1.0 + excess)


def _undominated(covers: Covers) -> np.ndarray:
    """Return which covers of one workload, or without one, no other implies, (K,) bool; of equal ones the first."""
    stronger = _within(covers.sets, covers.sets) & (covers.loss[:, None] >= covers.loss)
    equal = stronger & stronger.T
    earlier = np.triu(np.ones_like(equal), 1)
    return np.asarray(~(stronger & (~equal | earlier)).any(axis=0))


def _within(small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return whether each of some sets lies in each of others, (small, large) bool."""
    missing = small.astype(np.float32) @ (~large).astype(np.float32).T
    return np.equal(missing, 0.0)
