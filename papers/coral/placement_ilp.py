"""Solve Coral's placement ILP (arXiv:2605.04357, section 4.2) as printed: the oracle."""

from __future__ import annotations

import numpy as np

from fleetgym.runtime.highs import make_solver


def solve_placement(table, nodes, time_limit_s=np.inf):
    """Return the best throughput over all numbers of stages, and whether each was solved to optimality.

    `table` is T_j(g) by stages, node type and layers; `nodes` are indices of node types.
    """
    answers = [_solve(table[s - 1][list(nodes)], s, time_limit_s) for s in range(1, len(nodes) + 1)]
    return max(value for value, _ in answers), all(proven for _, proven in answers)


def _solve(rows, stages, time_limit_s):
    """Solve the ILP for a number of stages; `rows` is T_j(g_k), (nodes, layers)."""
    import highspy

    count, layers = rows.shape
    if stages > layers:
        return 0.0, True
    scale = float(rows.max()) or 1.0
    solver = make_solver(mip_rel_gap=0.0, mip_abs_gap=1e-9, time_limit=float(time_limit_s))
    throughput = solver.addVariable(lb=0.0, ub=count)
    x = [[solver.addBinary() for _ in range(layers)] for _ in range(stages)]
    y = [[solver.addBinary() for _ in range(count)] for _ in range(stages)]
    z = [[[solver.addBinary() for _ in range(count)] for _ in range(layers)] for _ in range(stages)]
    for s in range(stages):
        solver.addConstr(sum(x[s]) == 1)
        served = sum(
            z[s][j][k] * float(rows[k, j] / scale)
            for j in range(layers)
            for k in range(count)
            if rows[k, j] > 0
        )
        solver.addConstr(throughput - served <= 0)
        for j in range(layers):
            for k in range(count):
                solver.addConstr(z[s][j][k] - x[s][j] <= 0)
                solver.addConstr(z[s][j][k] - y[s][k] <= 0)
                solver.addConstr(z[s][j][k] - x[s][j] - y[s][k] >= -1)
    for k in range(count):
        solver.addConstr(sum(y[s][k] for s in range(stages)) == 1)
    solver.addConstr(sum(x[s][j] * (j + 1) for s in range(stages) for j in range(layers)) == layers)
    solver.maximize(throughput)
    proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value * scale, proven
