"""Allocate by Coral's baseline Homo: replicas on nodes of one kind, the most cost-efficient first, model by model.

Source: Coral, section 6.1: "greedily selects the most cost-efficient (highest goodput per USD) homogeneous
strategy for each model". Whether a replica may span nodes is left open: Homo-1 uses single nodes, Homo-M several
of one type in one region.
"""

from __future__ import annotations

import numpy as np

from .problem import Allocation, CoveringProblem, evaluate


def homogeneous_templates(problem: CoveringProblem, *, single_node: bool) -> np.ndarray:
    """Return which templates (N,) use nodes of one type only, and one node only if asked for."""
    kinds = np.count_nonzero(problem.use, axis=1)
    return (kinds == 1) & (problem.use.sum(axis=1) == 1) if single_node else kinds == 1


def homo(
    problem: CoveringProblem, *, single_node: bool = True, allowed: np.ndarray | None = None
) -> Allocation:
    """Return the greedy allocation of homogeneous replicas.

    Each demand in turn takes the replica with the highest goodput per dollar, goodput being no more than what
    is left of the demand, until it is covered or nothing fits. Demands do not look at each other.

    Parameters
    ----------
    problem : CoveringProblem
        The epoch.
    single_node : bool
        Homo-1 if true, else Homo-M.
    allowed : (N,) bool array, optional
        The homogeneous templates, where `use` does not tell.

    Returns
    -------
    Allocation
        Without a bound.

    Examples
    --------
    >>> import numpy as np
    >>> problem = CoveringProblem(use=np.array([[1, 0], [0, 1], [1, 1]]), throughput_rps=np.array([1.0, 3.0, 9.0]),
    ...                   row=np.zeros(3, dtype=int), price_usd_per_h=np.array([[1.0, 2.5]]),
    ...                   available=np.array([[9, 9]]), demand_rps=np.array([4.0]), startup_ratio=0.0)
    >>> homo(problem).count.tolist(), homo(problem).cost_usd_per_h
    ([1, 1], 3.5)
    """
    if allowed is None:
        allowed = homogeneous_templates(problem, single_node=single_node)
    candidates = np.flatnonzero(allowed & (problem.throughput_rps > 0.0))
    left = problem.available.astype(float) * (1.0 + 1e-12)
    taken: list[tuple[int, int, int]] = []
    for row in np.flatnonzero(problem.demand_rps > 0.0):
        mine = candidates[problem.row[candidates] == row]
        use = problem.use[mine].astype(float)
        rent = use @ problem.price_usd_per_h.T  # (n, R)
        remaining = float(problem.demand_rps[row])
        while remaining > 1e-9:
            room = (use[:, None, :] <= left[None, :, :]).all(axis=2)
            goodput = np.minimum(problem.throughput_rps[mine], remaining)
            worth = np.where(room, goodput[:, None] / rent, -1.0)
            if not worth.size or worth.max() <= 0.0:
                break
            i, region = np.unravel_index(int(np.argmax(worth)), worth.shape)
            fits = int((left[region, use[i] > 0] / use[i, use[i] > 0]).min())
            number = max(1, min(fits, int(remaining / problem.throughput_rps[mine[i]])))
            taken.append((int(mine[i]), int(region), number))
            left[region] -= number * use[i]
            remaining -= number * problem.throughput_rps[mine[i]]
    parts = np.array(taken, dtype=np.int64).reshape(-1, 3)
    return evaluate(problem, parts[:, 0], parts[:, 1], parts[:, 2])
