"""Compute section 4.2's example beside what the paper prints."""

from __future__ import annotations

import numpy as np

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.problem import MakespanProblem
from fleetgym.baselines.jiang.program import Limits

from . import policies

#: GPU types t1, t2, t3, and two t2 with tensor parallelism; workloads w1, w2.
EXAMPLE = MakespanProblem(
    requests=np.array([80.0, 20.0]),
    rate_rps=np.array([[1.0, 0.9, 0.3, 2.4], [1.2, 0.9, 0.5, 1.5]]),
    gpu_use=np.array([[1, 0, 0, 0], [0, 1, 0, 2], [0, 0, 1, 0]]),
    price_usd_per_h=np.array([4.0, 2.0, 2.0, 4.0]),
    available_gpus=np.array([2, 2, 2]),
    budget_usd_per_h=8.0,
)


def example_rows() -> list[tuple[str, float, float]]:
    """Return case, published and measured makespan in seconds.

    Examples
    --------
    >>> [round(measured, 4) for _, _, measured in example_rows()]
    [44.0559, 35.2381, 30.9368, 28.6667, 28.4314]
    """
    tensor = np.array([1, 0, 0, 1])
    rounded = np.array([[0.15, 0.0, 0.0, 0.85], [1.0, 0.0, 0.0, 0.0]])
    return [
        ("t1, t2, t3 alone", 44.05, policies.proportional(EXAMPLE, np.array([1, 1, 1, 0])).makespan_s),
        ("t1, two t2", 35.24, policies.proportional(EXAMPLE, np.array([1, 2, 0, 0])).makespan_s),
        ("t1, t2 with TP 2", 30.94, policies.proportional(EXAMPLE, tensor).makespan_s),
        ("the same, 15 % and 85 % of w1", 28.67, policies.assigned(EXAMPLE, tensor, rounded).makespan_s),
        ("the exact program, 8 USD/h", 28.67, minimal_makespan(EXAMPLE, Limits(gap=0.0)).makespan_s),
    ]
