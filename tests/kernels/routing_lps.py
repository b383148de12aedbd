"""Make routing LPs of every kind, solve them with HiGHS, and check any answer by its own duals."""

from __future__ import annotations

import math
from typing import NamedTuple

import highspy
import numpy as np
import scipy.optimize
import scipy.sparse

from fleetgym.model.dynamics.demand import stationary_ou

EXTENDED = np.longdouble
SEGMENTS = 3


class RoutingLP(NamedTuple):
    """One routing LP, in the argument order of `solve_routing`."""

    cost: np.ndarray  # (I, C)
    unserved: np.ndarray  # (I,)
    delay: np.ndarray  # (I, C)
    error: np.ndarray  # (I, C)
    use: np.ndarray  # (3, I, C)
    capacity: np.ndarray  # (3, C)
    width: np.ndarray  # (C, B)
    slope: np.ndarray  # (C, B)
    allowed: np.ndarray  # (I, C) uint8


# --- generators -------------------------------------------------------------------------------------------


def realistic(rng, workloads, configurations, load=1.0, spread=1.0) -> RoutingLP:
    """Return an LP that looks like a window of a serving fleet.

    `load` is what the workloads need when each is spread over all configurations, as a share of the capacity.
    `spread` scales the logarithmic range of the capacities.
    """
    shape = (workloads, configurations)
    arrivals = rng.lognormal(0.0, 0.7, workloads)
    unserved_price = rng.uniform(3.0, 10.0, workloads) * np.where(rng.random(workloads) < 0.1, 3.0, 1.0)
    unserved = arrivals * unserved_price
    delay_ratio = 0.3 * 10.0 ** rng.random(shape)
    cost = unserved[:, None] * rng.uniform(0.01, 0.15, (workloads, 1)) * delay_ratio
    cost = cost + 1e-6 * rng.random(shape) * unserved[:, None]
    strength = 10.0 ** (spread * rng.uniform(-0.5, 0.5, (3, 1, configurations)))
    units = 10.0 ** rng.uniform(-1.0, 3.0, (3, 1, 1))
    use = arrivals[:, None] * rng.uniform(0.5, 2.0, shape) * units / arrivals.mean()
    use = np.broadcast_to(use, (3, *shape)) * rng.uniform(0.7, 1.4, (3, *shape))
    use[2] *= delay_ratio
    capacity = strength[:, 0, :] * units[:, 0] * workloads / max(configurations, 1) * 1.25 / load
    width = capacity[2, :, None] * rng.uniform(0.05, 0.2, (configurations, SEGMENTS))
    steps = rng.uniform(0.01, 0.3, (configurations, SEGMENTS)) * unserved.mean() / units[2, 0, 0]
    return RoutingLP(
        cost=cost,
        unserved=unserved,
        delay=delay_ratio - 1.0,
        error=rng.uniform(0.3, 1.5, shape) - 1.0,
        use=np.ascontiguousarray(use),
        capacity=capacity,
        width=width,
        slope=np.cumsum(steps, axis=1),
        allowed=(rng.random(shape) < 0.9).astype(np.uint8),
    )


def slack(rng, workloads, configurations) -> RoutingLP:
    """Capacity never matters."""
    return realistic(rng, workloads, configurations, load=0.02)


def tight(rng, workloads, configurations) -> RoutingLP:
    """Capacity is about what is needed."""
    return realistic(rng, workloads, configurations, load=rng.uniform(0.6, 1.2))


def overloaded(rng, workloads, configurations) -> RoutingLP:
    """Much cannot be served."""
    return realistic(rng, workloads, configurations, load=rng.uniform(1.5, 6.0), spread=1.5)


def slo_infeasible(rng, workloads, configurations) -> RoutingLP:
    """No configuration meets most of the service levels."""
    lp = tight(rng, workloads, configurations)
    worse = rng.random((workloads, 1)) < 0.7
    return lp._replace(
        delay=np.where(worse, np.abs(lp.delay) + 0.01, lp.delay),
        error=np.where(rng.random((workloads, 1)) < 0.5, np.abs(lp.error), lp.error),
    )


def zero_capacity(rng, workloads, configurations) -> RoutingLP:
    """Some rows have no capacity, some segments no width, some columns no use."""
    lp = tight(rng, workloads, configurations)
    capacity = lp.capacity * (rng.random(lp.capacity.shape) > 0.25)
    width = lp.width * (rng.random(lp.width.shape) > 0.4)
    return lp._replace(capacity=capacity, width=width, use=lp.use * (rng.random(lp.use.shape) > 0.1))


def duplicates(rng, workloads, configurations) -> RoutingLP:
    """Configurations and workloads come in identical copies."""
    lp = overloaded(rng, workloads, configurations)
    i = rng.integers(0, max(workloads // 2, 1), workloads)
    c = rng.integers(0, max(configurations // 2, 1), configurations)
    ic = np.ix_(i, c)
    return lp._replace(
        cost=lp.cost[ic],
        unserved=lp.unserved[i],
        delay=lp.delay[ic],
        error=lp.error[ic],
        use=np.ascontiguousarray(lp.use[np.ix_(range(3), i, c)]),
        capacity=np.ascontiguousarray(lp.capacity[:, c]),
        width=lp.width[c],
        slope=lp.slope[c],
        allowed=lp.allowed[ic],
    )


def integers(rng, workloads, configurations) -> RoutingLP:
    """All data are small integers, so that almost everything ties."""
    shape = (workloads, configurations)
    return RoutingLP(
        cost=rng.integers(0, 4, shape).astype(float),
        unserved=rng.integers(1, 6, workloads).astype(float),
        delay=rng.integers(-2, 3, shape).astype(float),
        error=rng.integers(-1, 2, shape).astype(float),
        use=rng.integers(0, 3, (3, *shape)).astype(float),
        capacity=rng.integers(0, 4, (3, configurations)).astype(float),
        width=rng.integers(0, 2, (configurations, SEGMENTS)).astype(float),
        slope=np.cumsum(rng.integers(0, 2, (configurations, SEGMENTS)), axis=1).astype(float),
        allowed=(rng.random(shape) < 0.85).astype(np.uint8),
    )


def free_service(rng, workloads, configurations) -> RoutingLP:
    """Nothing costs anything but what is left unserved, and every row binds at once."""
    lp = integers(rng, workloads, configurations)
    return lp._replace(
        cost=np.zeros_like(lp.cost),
        unserved=np.ones_like(lp.unserved),
        use=np.ones_like(lp.use),
        capacity=np.ones_like(lp.capacity),
        slope=np.full_like(lp.slope, rng.integers(0, 3)),
    )


def badly_scaled(rng, workloads, configurations) -> RoutingLP:
    """Resources, money and delays come in units from 1e-7 to 1e6."""
    lp = realistic(rng, workloads, configurations, load=10.0 ** rng.uniform(-1.0, 1.0), spread=3.0)
    unit = 10.0 ** rng.uniform(-7.0, 6.0, (3, 1, configurations))
    money = 10.0 ** rng.uniform(-7.0, 6.0)
    workload = 10.0 ** rng.uniform(-2.0, 2.0, workloads)
    return lp._replace(
        cost=lp.cost * money * workload[:, None],
        unserved=lp.unserved * money * workload,
        delay=lp.delay * np.where(lp.delay > 0.0, 10.0 ** rng.uniform(0.0, 3.0, lp.delay.shape), 1.0),
        use=np.ascontiguousarray(lp.use * unit),
        capacity=lp.capacity * unit[:, 0],
        width=lp.width * unit[2, 0][:, None],
        slope=lp.slope * money / unit[2, 0][:, None],
    )


def no_arrivals(rng, workloads, configurations) -> RoutingLP:
    """Some workloads have no arrivals, in the extreme all of them."""
    lp = tight(rng, workloads, configurations)
    gone = rng.random(workloads) < rng.choice([0.3, 1.0])
    return lp._replace(
        cost=np.where(gone[:, None], 0.0, lp.cost),
        unserved=np.where(gone, 0.0, lp.unserved),
        use=np.where(gone[:, None], 0.0, lp.use),
    )


def disallowed(rng, workloads, configurations) -> RoutingLP:
    """Few columns may be used; some workloads have none."""
    lp = tight(rng, workloads, configurations)
    return lp._replace(allowed=(rng.random(lp.cost.shape) < 0.25).astype(np.uint8))


def flat_slopes(rng, workloads, configurations) -> RoutingLP:
    """Overload is free, or its segments cost the same, or have no width."""
    lp = tight(rng, workloads, configurations)
    slope = np.sort(lp.slope * rng.integers(0, 2, lp.slope.shape), axis=1)
    slope[rng.random(configurations) < 0.3] = 0.0
    return lp._replace(slope=slope, width=lp.width * rng.integers(0, 2, lp.width.shape))


def dear_overload(rng, workloads, configurations) -> RoutingLP:
    """Only queue slots bind, so that loads end at every breakpoint."""
    lp = realistic(rng, workloads, configurations, load=rng.uniform(0.8, 3.0))
    return lp._replace(capacity=lp.capacity * np.array([[100.0], [100.0], [1.0]]))


def near_ties(rng, workloads, configurations) -> RoutingLP:
    """Configurations come in copies of some kind that differ by relative noise of 1e-12 to 1e-6."""
    kinds = (
        tight,
        overloaded,
        slack,
        slo_infeasible,
        dear_overload,
        duplicates,
        badly_scaled,
        flat_slopes,
        zero_capacity,
    )
    different = int(rng.integers(1, configurations)) if configurations > 2 else 1
    lp = kinds[rng.integers(len(kinds))](rng, workloads, different)
    c, noise = rng.integers(0, different, configurations), 10.0 ** rng.uniform(-12.0, -6.0)

    def near(values):
        return values * (1.0 + noise * rng.uniform(-1.0, 1.0, values.shape))

    return lp._replace(
        cost=near(lp.cost[:, c]),
        delay=near(lp.delay[:, c]),
        error=near(lp.error[:, c]),
        use=near(lp.use[:, :, c]),
        capacity=near(lp.capacity[:, c]),
        width=near(lp.width[c]),
        slope=np.sort(near(lp.slope[c]), axis=1),
        allowed=lp.allowed[:, c],
    )


KINDS = {
    kind.__name__: kind
    for kind in (
        slack,
        tight,
        overloaded,
        slo_infeasible,
        zero_capacity,
        duplicates,
        integers,
        free_service,
        badly_scaled,
        no_arrivals,
        disallowed,
        flat_slopes,
        dear_overload,
    )
}


def random_size(rng) -> tuple[int, int]:
    """Return numbers of workloads and configurations: mostly small, sometimes none or the largest."""
    draw = rng.random()
    if draw < 0.05:
        return int(rng.integers(1, 4)), 0
    if draw < 0.15:
        return 1, int(rng.integers(1, 12))
    if draw < 0.97:
        return int(rng.integers(2, 11)), int(rng.integers(1, 11))
    return int(rng.integers(15, 25)), int(rng.integers(20, 61))


def with_demand(lp: RoutingLP, factor) -> RoutingLP:
    """Return the LP after each workload's arrivals changed by a factor (I,)."""
    column = factor[:, None]
    return lp._replace(cost=lp.cost * column, unserved=lp.unserved * factor, use=lp.use * column)


def demand_walk(rng, workloads, windows, drift=0.04) -> np.ndarray:
    """Return (windows, workloads) demand factors: a common and an own random walk, drawn back to one."""
    level = np.zeros(workloads)
    out = np.empty((windows, workloads))
    for window in range(windows):
        level = 0.97 * level + drift * (rng.normal() + rng.normal(size=workloads))
        out[window] = np.exp(level)
    return out


def drifting_windows(rng, base: RoutingLP, windows, token_sd=0.10, factor_sd=0.0) -> list[RoutingLP]:
    """Return windows in which every coefficient moves, as where all processes of an instance are at work.

    The processes are those of `fleetgym.model.dynamics`: demand and token lengths are Ornstein-Uhlenbeck series on
    windows of five minutes, delay and error factors lognormal and new in each window. Delays, service times
    and work are affine in the token lengths, and KV memory is tokens times delay, as on the model page; how
    each of the base's coefficients splits into its three parts is drawn at random.
    By default token lengths drift as in the middle of the dev instances, where the factors rest.
    """
    workloads, configurations = base.cost.shape

    def walk(sd, time_min, common=0.0):
        return stationary_ou(
            rng, windows, np.full(workloads, sd), np.full(workloads, math.exp(-5.0 / time_min)), common
        )

    rate = np.exp(walk(0.4, 160.0, common=0.6) + 0.08 * rng.normal(size=(windows, workloads)))
    tokens = np.exp([walk(token_sd, 360.0), walk(token_sd, 360.0)])[..., None]
    slower, wrong = np.exp(factor_sd * rng.normal(size=(2, windows, workloads)))[..., None]
    split = rng.dirichlet((1.0, 1.0, 2.0), (3, workloads, configurations))
    input_share = rng.uniform(0.3, 0.9, (workloads, 1))
    series = []
    for t, factor in enumerate(rate):
        delay, service, work = split[..., 0] + split[..., 1] * tokens[0, t] + split[..., 2] * tokens[1, t]
        delay, service = delay * slower[t], service * slower[t]
        memory = (input_share * tokens[0, t] + (1.0 - input_share) * tokens[1, t]) * delay
        column = factor[:, None]
        series.append(
            base._replace(
                cost=base.cost * column * delay,
                unserved=base.unserved * factor,
                delay=(base.delay + 1.0) * delay - 1.0,
                error=(base.error + 1.0) * wrong[t] - 1.0,
                use=base.use * column * np.stack([work, memory, service]),
            )
        )
    return series


# --- matrix form ------------------------------------------------------------------------------------------


class MatrixLP(NamedTuple):
    """min cost' v subject to matrix v <= upper (= for the first `equalities` rows), 0 <= v <= bound.

    Columns: x (I*C), u, s, t (I each), o (C*B). Rows: demand, delay, error (I each), capacities (3*C).
    """

    cost: np.ndarray
    matrix: scipy.sparse.csc_matrix
    upper: np.ndarray
    bound: np.ndarray
    equalities: int
    unit: np.ndarray  # value of a column is its scaled value times this
    money: float  # the objective is the scaled one times this


def to_matrix(lp: RoutingLP, scaled=True, like: MatrixLP | None = None) -> MatrixLP:
    """Write the LP as a matrix; `scaled` so that rows have limit one and entries are at most one.

    With `like`, columns and money are scaled as in that LP, whose limits must be the same.
    """
    workloads, configurations = lp.cost.shape
    eye, eye_c = scipy.sparse.identity(workloads), scipy.sparse.identity(configurations)

    def diagonal(block):  # (I, C) -> row i holds block[i] in the columns of workload i
        rows = np.repeat(np.arange(workloads), configurations)
        columns = np.arange(workloads * configurations)
        shape = (workloads, workloads * configurations)
        return scipy.sparse.csc_matrix((block.ravel(), (rows, columns)), shape=shape)

    def coupled(block):  # (I, C) -> row c holds block[:, c]
        rows = np.tile(np.arange(configurations), workloads)
        columns = np.arange(workloads * configurations)
        shape = (configurations, workloads * configurations)
        return scipy.sparse.csc_matrix((block.ravel(), (rows, columns)), shape=shape)

    segments = scipy.sparse.kron(eye_c, np.ones((1, lp.width.shape[1])))
    matrix = scipy.sparse.bmat(
        [
            [diagonal(np.ones_like(lp.cost)), eye, None, None, None],
            [diagonal(lp.delay), None, -eye, None, None],
            [diagonal(lp.error), None, None, -eye, None],
            [coupled(lp.use[0]), None, None, None, None],
            [coupled(lp.use[1]), None, None, None, None],
            [coupled(lp.use[2]), None, None, None, -segments],
        ]
    ).tocsc()
    arrives = lp.unserved > 0.0
    upper = np.concatenate([arrives.astype(float), np.zeros(2 * workloads), lp.capacity.ravel()])
    cost = np.concatenate([lp.cost.ravel(), np.tile(lp.unserved, 3), lp.slope.ravel()])
    usable = ((lp.allowed != 0) & arrives[:, None]).ravel()
    infinite = np.full(3 * workloads, np.inf)
    bound = np.concatenate([np.where(usable, np.inf, 0.0), infinite, lp.width.ravel()])
    unit, money = np.ones(cost.size), 1.0
    if scaled:
        limits = lp.capacity + np.array([[0.0], [0.0], [1.0]]) * lp.width.sum(axis=1)
        per_row = np.concatenate([np.ones(3 * workloads), 1.0 / np.where(limits > 0.0, limits, 1.0).ravel()])
        matrix = scipy.sparse.diags(per_row) @ matrix
        upper = upper * per_row
        unit = 1.0 / np.maximum(abs(matrix).max(axis=0).toarray().ravel(), 1e-300)
        unit[matrix.getnnz(axis=0) == 0] = 1.0
        unit = unit if like is None else like.unit
        matrix = (matrix @ scipy.sparse.diags(unit)).tocsc()
        bound = bound / unit
        money = max(float(lp.unserved.max(initial=0.0)), 1e-300) if like is None else like.money
        cost = cost * unit / money
    return MatrixLP(cost, matrix, upper, bound, workloads, unit, money)


# --- oracles ----------------------------------------------------------------------------------------------


def to_highs(form: MatrixLP) -> highspy.HighsLp:
    """Return the LP as HiGHS takes it."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = form.cost.size, form.upper.size
    model.col_cost_ = form.cost
    model.col_lower_ = np.zeros(form.cost.size)
    model.col_upper_ = np.where(np.isinf(form.bound), highspy.kHighsInf, form.bound)
    lower = np.full(form.upper.size, -highspy.kHighsInf)
    lower[: form.equalities] = form.upper[: form.equalities]
    model.row_lower_, model.row_upper_ = lower, form.upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = form.matrix.indptr
    model.a_matrix_.index_ = form.matrix.indices
    model.a_matrix_.value_ = form.matrix.data
    return model


class HighsOracle:
    """HiGHS with tight tolerances, which are absolute: so it is handed the scaled LP."""

    def __init__(self):
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
        self.solver.setOptionValue("dual_feasibility_tolerance", 1e-10)
        self.solver.setOptionValue("threads", 1)

    def objective(self, lp: RoutingLP) -> float:
        """Return the optimal cost, or NaN where HiGHS finds none."""
        form = to_matrix(lp)
        self.solver.passModel(to_highs(form))
        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return float("nan")
        return self.solver.getInfo().objective_function_value * form.money


def scipy_solution(lp: RoutingLP) -> scipy.optimize.OptimizeResult:
    """Solve with `scipy.optimize.linprog`, on the LP as it stands."""
    form = to_matrix(lp, scaled=False)
    n = form.equalities
    return scipy.optimize.linprog(
        form.cost,
        A_ub=form.matrix[n:],
        b_ub=form.upper[n:],
        A_eq=form.matrix[:n],
        b_eq=form.upper[:n],
        bounds=np.column_stack([np.zeros(form.cost.size), form.bound]),
        method="highs",
    )


# --- certificate ------------------------------------------------------------------------------------------


def primal_violation(lp: RoutingLP, solution) -> float:
    """Return the largest violation of any row, relative to its limit or to what its terms could add up to."""
    x = solution.x.astype(EXTENDED)
    served = x.sum(axis=1)
    arrives = lp.unserved > 0.0
    worst = [EXTENDED(0.0), *(-x).ravel(), *x[(lp.allowed == 0) | ~arrives[:, None]]]
    worst += list(abs(served + solution.unserved_share - arrives))
    for data, excess in ((lp.delay, solution.delay_excess), (lp.error, solution.error_excess)):
        size = 1.0 + (abs(data) * solution.x).sum(axis=1)
        worst += list(((data * x).sum(axis=1) - excess) / size)
    limit = lp.capacity.astype(EXTENDED)
    limit[2] += solution.overload.sum(axis=1)
    load = (lp.use * x).sum(axis=1)
    worst += list(((load - limit) / np.where(limit > 0.0, limit, 1.0)).ravel())
    worst += list((-solution.overload).ravel()) + list((solution.overload - lp.width).ravel())
    return float(max(worst))


def overload(lp: RoutingLP, solution) -> float:
    """Return by how much a capacity is exceeded at most, relative to it; negative where none is."""
    limit = lp.capacity.astype(EXTENDED)
    limit[2] += lp.width.sum(axis=1)
    load = (lp.use * solution.x.astype(EXTENDED)).sum(axis=1)
    if np.any(load[limit == 0.0] > 0.0):
        return math.inf
    return float(np.max(load[limit > 0.0] / limit[limit > 0.0], initial=0.0)) - 1.0


def primal_objective(lp: RoutingLP, solution) -> np.longdouble:
    """Return the cost of the solution's variables in extended precision."""
    excess = solution.unserved_share.astype(EXTENDED) + solution.delay_excess + solution.error_excess
    money = (lp.cost * solution.x.astype(EXTENDED)).sum() + (lp.unserved * excess).sum()
    return money + (lp.slope * solution.overload.astype(EXTENDED)).sum()


def dual_bound(lp: RoutingLP, solution) -> np.longdouble:
    """Return the Lagrangian bound of the solution's prices: no routing costs less, whatever the prices are.

    Only the prices of capacity and of the service levels are used. Given these, each workload takes its
    cheapest column, and each overload segment is filled where it pays.
    """
    price = np.maximum(solution.capacity_dual.astype(EXTENDED), 0.0)
    delay = np.clip(solution.delay_dual.astype(EXTENDED), 0.0, lp.unserved)[:, None]
    error = np.clip(solution.error_dual.astype(EXTENDED), 0.0, lp.unserved)[:, None]
    column = lp.cost + (price[:, None, :] * lp.use).sum(axis=0) + delay * lp.delay + error * lp.error
    column = np.where(lp.allowed != 0, column, np.inf)
    cheapest = np.minimum(column.min(axis=1, initial=np.inf), lp.unserved)
    bound = cheapest[lp.unserved > 0.0].sum() - (price * lp.capacity).sum()
    return bound - (np.maximum(price[2][:, None] - lp.slope, 0.0) * lp.width).sum()


def certify(lp: RoutingLP, solution) -> tuple[float, float]:
    """Return the worst relative violation and the relative gap between the cost and what the duals prove."""
    cost = primal_objective(lp, solution)
    size = max(abs(cost), EXTENDED(1e-3) * lp.unserved.max(initial=0.0), EXTENDED(1e-300))
    return primal_violation(lp, solution), float(abs(cost - dual_bound(lp, solution)) / size)
