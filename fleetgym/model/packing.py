"""Convert an instance to the arrays that the kernels take: prices, performance, limits, costs of late requests."""

from __future__ import annotations

import numpy as np

from fleetgym.kernels import economics, window
from fleetgym.kernels.queueing import late_cost_table
from fleetgym.kernels.records import Parameters, Problem
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Affine, Instance
from fleetgym.model.planning import LateSegments


def pack_instance(instance: Instance) -> tuple[Problem, LateSegments]:
    """Return an instance as the kernels take it, and the piecewise linear costs of late requests.

    Returns
    -------
    problem : Problem
        Money is USD per window.
    segments : LateSegments
        Read-only: all agents see the same.
    """
    hours = instance.window_s / 3600.0
    parameters, segments = _parameters(instance)
    sizes = [len(members) for members in instance.slot_members]
    problem = Problem(
        parameters=parameters,
        order=np.array([c for members in instance.slot_members for c in members], dtype=np.int64),
        slot_start=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        slot_exclusive=np.array([slot.exclusive for slot in instance.slots], dtype=np.bool_),
        gpu_use=np.array(instance.gpu_use),
        rental_usd=instance.rental_usd_per_h * hours,
        model_storage_usd=_column(instance, "model_storage_usd_per_h") * hours,
        startup_usd=_column(instance, "startup_usd"),
        startup_windows=_column(instance, "startup_windows", int),
        budget=_budget(instance, hours),
    )
    return problem, segments


def restricted(problem: Problem, members: np.ndarray) -> Problem:
    """Return a problem of some configurations, for windows in which no others are held or wanted.

    Parameters
    ----------
    problem : Problem
    members : ndarray of int64, shape (n,)
        The configurations, ascending.
    """
    number = np.full(problem.order.size, -1)
    number[members] = np.arange(members.size)
    order = number[problem.order]
    start = np.concatenate(([0], np.cumsum(order >= 0)))[problem.slot_start]
    filled = np.diff(start) > 0
    parameters = problem.parameters
    return problem._replace(
        parameters=parameters._replace(
            performance=np.ascontiguousarray(parameters.performance[:, :, members]),
            configuration=np.ascontiguousarray(parameters.configuration[:, members]),
            segment_offset=parameters.segment_offset[members],
        ),
        order=order[order >= 0],
        slot_start=np.concatenate((start[:-1][filled], start[-1:])),
        slot_exclusive=problem.slot_exclusive[filled],
        gpu_use=np.ascontiguousarray(problem.gpu_use[:, members]),
        rental_usd=np.ascontiguousarray(problem.rental_usd[:, members]),
        model_storage_usd=problem.model_storage_usd[members],
        startup_usd=problem.startup_usd[members],
        startup_windows=problem.startup_windows[members],
    )


def _column(instance: Instance, name: str, dtype: type = float) -> np.ndarray:
    return np.array([getattr(c, name) for c in instance.configurations], dtype=dtype)


def _performance(instance: Instance) -> np.ndarray:
    performance = instance.performance
    planes = np.empty((economics.NUM_PLANES, instance.num_workloads, instance.num_configurations))
    affine: tuple[tuple[int, Affine], ...] = (
        (economics.DELAY, performance.delay_s),
        (economics.WORK, performance.work_tflop),
        (economics.SERVICE, performance.service_s),
        (economics.PREFILL, performance.prefill_s),
    )
    for plane, quantity in affine:
        planes[plane : plane + 3] = quantity.base, quantity.per_input_token, quantity.per_output_token
    planes[economics.SERVICE_CV2] = performance.service_cv2
    planes[economics.ERROR] = performance.error
    planes[economics.STORAGE_USD] = performance.storage_usd
    planes[economics.TIE_BREAK] = performance.tie_break
    planes[economics.COMPATIBLE] = performance.compatible
    return planes


def _workloads(instance: Instance) -> np.ndarray:
    rows = np.empty((economics.NUM_WORKLOAD_ROWS, instance.num_workloads))
    for i, w in enumerate(instance.workloads):
        rows[:, i] = (
            w.input_tokens,
            w.output_tokens,
            w.mean_delay_slo_s,
            w.error_slo,
            w.unserved_usd,
            w.delay_usd_per_s,
            w.late_usd,
            np.inf if w.ttft_slo_s is None else w.ttft_slo_s,
            w.arrival_cv2,
        )
    return rows


def _laws(instance: Instance) -> np.ndarray:
    """Return share, least factor and width of each bin of the prompts' laws, (I, 3, bins); 0 without one."""
    laws = [w.input_law for w in instance.workloads]
    bins = max([1, *(len(law.shares) - 1 for law in laws if law)])
    found = np.zeros((len(laws), 3, bins))
    for of, law in zip(found, laws, strict=True):
        if law:
            of[:, : len(law.shares) - 1] = np.diff(law.shares), law.factors[:-1], np.diff(law.factors)
    return found


def _budget(instance: Instance, hours: float) -> np.ndarray:
    budget = instance.budget
    if budget is None:
        return np.array([window.NO_BUDGET, 0.0])
    if budget.kind == "rate":
        return np.array([window.RATE_BUDGET, budget.usd * hours])
    return np.array([window.POOL_BUDGET, budget.usd])


def _parameters(instance: Instance) -> tuple[Parameters, LateSegments]:
    configuration = np.array(
        [
            _column(instance, name)
            for name in ("compute_tflops", "kv_capacity_gb", "kv_gb_per_token", "max_concurrency")
        ]
    )
    replicas = _column(instance, "max_replicas", int)
    offsets = np.concatenate(([0], np.cumsum(replicas))).astype(np.int64)
    clock = np.array([instance.window_s, 1.0 if instance.penalty_basis == "day" else 0.0])
    parameters = Parameters(
        performance=_performance(instance),
        workload=_workloads(instance),
        law=_laws(instance),
        configuration=configuration,
        segment_offset=offsets[:-1].copy(),
        segment=np.zeros((0, 7)),
        clock=clock,
    )
    segments = _late_segments(instance, parameters, offsets)
    rows = np.column_stack((segments.safe_utilization, segments.width, segments.slope_usd))
    return parameters._replace(segment=np.ascontiguousarray(rows)), segments


def _late_segments(instance: Instance, parameters: Parameters, offsets: np.ndarray) -> LateSegments:
    everything = np.arange(instance.num_configurations)
    nominal = Conditions.nominal(instance)
    coefficient = np.empty((economics.NUM_COEFFICIENTS, instance.num_workloads, everything.size))
    economics.coefficients(parameters, nominal.stacked(), everything, coefficient)
    mixture = nominal.rate_rps[:, None] * instance.performance.compatible
    total = mixture.sum(axis=0)
    shares = mixture / np.where(total > 0, total, 1.0)
    safe, width, slope = late_cost_table(
        np.ascontiguousarray(shares),
        coefficient[economics.C_SERVICE],
        np.array(instance.performance.service_cv2),
        parameters.workload[economics.ARRIVAL_CV2],
        coefficient[economics.C_OWN_LATE],
        coefficient[economics.C_SLACK],
        parameters.workload[economics.LATE_USD],
        _column(instance, "max_concurrency", int),
        offsets,
        instance.window_s,
    )
    first_row = offsets[:-1].copy()
    for table in (first_row, safe, width, slope):
        table.setflags(write=False)  # all agents see the same
    return LateSegments(offsets=first_row, safe_utilization=safe, width=width, slope_usd=slope)
