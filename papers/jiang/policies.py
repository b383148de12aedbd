"""Plan as what Jiang et al. compare with: ablations, homogeneous fleets, a HexGen-like scheduler.

A problem goes in, a plan comes out whose makespan follows the policy's own way of assigning requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.problem import MakespanPlan, MakespanProblem
from fleetgym.baselines.jiang.program import Limits
from fleetgym.files.errors import FleetgymError

from .pipelines import Pipeline


def assigned(problem: MakespanProblem, replicas: np.ndarray, assignment: np.ndarray) -> MakespanPlan:
    """Return the plan of a fleet with a given assignment (W, C), which is kept as it is."""
    busy_s = np.where(assignment > 0, problem.busy_s, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        load_s = (problem.requests @ (assignment * busy_s)) / replicas
    served = assignment.sum(axis=1) > 1 - 1e-9
    makespan_s = np.nan_to_num(load_s, nan=0.0, posinf=np.inf).max(initial=0.0)
    if not served[problem.requests > 0].all():
        makespan_s = np.inf
    return MakespanPlan(replicas=replicas, assignment=assignment, makespan_s=float(makespan_s))


def proportional(problem: MakespanProblem, replicas: np.ndarray) -> MakespanPlan:
    """Return the plan that assigns every workload in proportion to the replicas' rates on it.

    All finish together, after ``sum_w f_w / sum_c y_c h_cw``: cases 1 and 2 of the paper's section 4.2.

    Examples
    --------
    >>> problem = MakespanProblem(
    ...     requests=np.array([80.0, 20.0]),
    ...     rate_rps=np.array([[1.0, 0.9], [1.2, 0.9]]),
    ...     gpu_use=np.eye(2, dtype=int),
    ...     price_usd_per_h=np.array([4.0, 2.0]),
    ...     available_gpus=np.array([2, 2]),
    ... )
    >>> round(proportional(problem, np.array([1, 2])).makespan_s, 4)
    35.2381
    """
    return _shared(problem, replicas, replicas * problem.rate_rps)


def round_robin(problem: MakespanProblem, replicas: np.ndarray) -> MakespanPlan:
    """Return the plan that deals requests to replicas in turn, whatever their rates: "rule-based assignment"."""
    return _shared(problem, replicas, replicas * (problem.rate_rps > 0))


def _shared(problem: MakespanProblem, replicas: np.ndarray, weight: np.ndarray) -> MakespanPlan:
    total = weight.sum(axis=1, keepdims=True)
    return assigned(problem, replicas, weight / np.where(total > 0, total, 1.0))


def workload_unaware(problem: MakespanProblem, limits: Limits | None = None) -> MakespanPlan:
    """Return the best plan that sends every replica the same mixture of workloads: HexGen-like.

    HexGen (Jiang et al., ICML 2024) deploys on GPUs that are given and schedules without telling workloads apart.
    Here it gets the best such deployment there is: for one workload, the mixture, a replica's rate is
    ``1 / sum_w p_w / h_cw``, and the exact program does the rest. Restrict `available_gpus` to fix the composition.
    """
    share = problem.requests / problem.requests.sum()
    usable = ((problem.rate_rps > 0) | (share == 0)[:, None]).all(axis=0)
    time = np.where(problem.rate_rps > 0, 1.0 / np.maximum(problem.rate_rps, 1e-300), 0.0)
    rate = np.where(usable, 1.0 / np.maximum(share @ time, 1e-300), 0.0)
    mixture = problem.replace(requests=np.array([problem.requests.sum()]), rate_rps=rate[None])
    plan = minimal_makespan(mixture, limits)
    spread = np.repeat(plan.assignment, problem.requests.size, axis=0)
    return assigned(problem, plan.replicas, spread)


def uniform_composition(
    prices_usd_per_h: Mapping[str, float], available: Mapping[str, int], budget_usd_per_h: float
) -> dict[str, int]:
    """Return GPUs by type: equally many of each, as many as the budget pays for and as there are.

    Examples
    --------
    >>> uniform_composition({"a": 4.0, "b": 2.0}, {"a": 1, "b": 9}, 13.0)
    {'a': 1, 'b': 2}
    """
    each = int(budget_usd_per_h / sum(prices_usd_per_h.values()) + 1e-9)
    return {name: min(each, available[name]) for name in prices_usd_per_h}


def uniform_deployment(
    problem: MakespanProblem,
    found: Sequence[Pipeline],
    degrees: Sequence[int] = (1, 2, 4, 8),
    limits: Limits | None = None,
) -> MakespanPlan:
    """Return the best plan in which every replica has one stage and the same TP degree, the best such degree.

    Parameters
    ----------
    problem : MakespanProblem
        C configurations.
    found : sequence of Pipeline
        What the configurations are, (C,).
    degrees : sequence of int
        TP degrees to try.
    limits : Limits, optional
        Of each program.

    Raises
    ------
    FleetgymError
        If no configuration is such a replica.
    """
    plans = []
    for degree in degrees:
        same = [c for c, p in enumerate(found) if [s.tensor_parallel for s in p.stages] == [degree]]
        if same:
            plan = minimal_makespan(problem.keep(np.array(same)), limits)
            plans.append(_spread(problem, np.array(same), plan))
    if not plans:
        raise FleetgymError(f"no pipeline has a single stage with one of the TP degrees {list(degrees)}")
    return min(plans, key=lambda plan: plan.makespan_s)


def _spread(problem: MakespanProblem, index: np.ndarray, plan: MakespanPlan) -> MakespanPlan:
    """Return a plan for some configurations as one for all."""
    replicas = np.zeros(problem.price_usd_per_h.size, dtype=np.int64)
    assignment = np.zeros(problem.rate_rps.shape)
    replicas[index], assignment[:, index] = plan.replicas, plan.assignment
    return MakespanPlan(
        replicas=replicas,
        assignment=assignment,
        makespan_s=plan.makespan_s,
        bound_s=plan.bound_s,
        nodes=plan.nodes,
    )


def without_gpus(problem: MakespanProblem, replicas: np.ndarray, available_gpus: np.ndarray) -> np.ndarray:
    """Return what is left of a fleet when fewer GPUs are there: the last configurations go first, as in admission."""
    left = replicas.copy()
    for pool in range(available_gpus.size):
        while problem.gpu_use[pool] @ left > available_gpus[pool]:
            left[np.flatnonzero((left > 0) & (problem.gpu_use[pool] > 0))[-1]] -= 1
    return left
