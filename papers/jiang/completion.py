"""Compute when the requests of a plan are done.

A makespan assumes that all requests are there at once; here they come within its first hundredth. A replica serves one
after another at its rate h_cw. Requests are dealt at random by the plan's assignment, so the last one is done a little
after the makespan.
"""

from __future__ import annotations

import numpy as np

from fleetgym.baselines.jiang.problem import MakespanPlan, MakespanProblem
from fleetgym.capacity.simulation.arrivals import Trace
from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.routers import Random
from fleetgym.capacity.simulation.run import simulate

PERCENTILES = (5, 10, 25, 50, 75, 90, 95, 99, 100)
#: Times at which completions are counted, up to twice the makespan.
_STEPS = 2000
REPLICATIONS = 8


def completion(problem: MakespanProblem, plan: MakespanPlan) -> dict[str, list[float]]:
    """Return the percentiles of the time to completion in seconds: mean, and its 95 % interval but for the last.

    Parameters
    ----------
    problem : MakespanProblem
        Requests and rates.
    plan : MakespanPlan
        Fleet and assignment.
    """
    used = np.flatnonzero(plan.replicas)
    present = np.flatnonzero(problem.requests >= 0.5)
    with np.errstate(divide="ignore"):
        service_s = 1.0 / problem.rate_rps[np.ix_(present, used)]
    order = np.random.default_rng(0)  # the workloads come mixed
    times = np.linspace(0.0, 2.0 * plan.makespan_s, _STEPS + 1)
    found = simulate(
        [Pool(name=str(c), replicas=int(plan.replicas[c]), slots=1) for c in used],
        [
            Workload(
                name=str(w),
                arrivals=Trace(
                    np.sort(order.uniform(0.0, 0.01 * plan.makespan_s, round(problem.requests[w])))
                ),
                service_s=np.where(np.isfinite(service_s[k]), service_s[k], np.nan),
                service_cv2=0.0,
            )
            for k, w in enumerate(present)
        ],
        router=Random(plan.assignment[np.ix_(present, used)]),
        window_s=3.0 * plan.makespan_s,
        warmup_s=0.0,
        min_replications=REPLICATIONS,
        max_replications=REPLICATIONS,
        confidence=0.95,
        thresholds_s=tuple(times),
    )
    weight = problem.requests[present] / problem.requests[present].sum()
    late = found.wait_exceeds  # (times, workloads)
    own_s = float(
        (plan.assignment[np.ix_(present, used)] * np.where(np.isfinite(service_s), service_s, 0.0)).sum(1)
        @ weight
    )
    curves = [np.asarray(curve) @ weight for curve in (late.mean, late.low, late.high)]
    ends = {str(p): [own_s + _reached(times, curve, p) for curve in curves] for p in PERCENTILES}
    return {p: values[:1] if p == "100" else values for p, values in ends.items()}


def _reached(times: np.ndarray, waiting: np.ndarray, percentile: float) -> float:
    """Return when these percentages of the requests no longer wait."""
    done = waiting <= 1.0 - percentile / 100.0 + 1e-12
    return float(times[int(done.argmax())]) if done.any() else float(times[-1])
