"""`FleetMakespan-v0`: a fleet in, minus the seconds it needs for one window's requests out (one step)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from fleetgym.envs.one_window import OneWindowEnv
from fleetgym.envs.scenarios import ScenarioChoice
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Budget
from fleetgym.model.library import InstanceSource
from fleetgym.model.planning import Snapshot
from fleetgym.runtime.highs import make_solver


def busy_seconds(snapshot: Snapshot) -> np.ndarray:
    """Return how long one replica is busy with one request, all its servers in use.

    The inverse of Jiang's throughput h_{c,w}: the longest of service time over queue servers, work over compute,
    and KV memory times time over KV memory.

    Parameters
    ----------
    snapshot : Snapshot
        One window's problem.

    Returns
    -------
    (I, C) ndarray
        Seconds; inf where the configuration cannot serve the workload.

    Examples
    --------
    >>> import fleetgym
    >>> view = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> busy_seconds(view.snapshot()).shape
    (1, 2)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = [
            snapshot.service_s / snapshot.max_concurrency,
            snapshot.work_tflop / snapshot.compute_tflops,
            snapshot.kv_gb_s / snapshot.kv_capacity_gb,
        ]
    longest = np.max([np.nan_to_num(share, nan=0.0, posinf=np.inf) for share in shares], axis=0)
    return np.where(snapshot.compatible, longest, np.inf)


def worst_makespan_s(requests: np.ndarray, busy_s: np.ndarray, window_s: float) -> float:
    """Return a time that no fleet exceeds which serves every workload; at least one window.

    A lone replica of each workload's slowest configuration would need it if the workloads took turns.

    Parameters
    ----------
    requests : (I,) ndarray
        Requests of each workload.
    busy_s : (I, C) ndarray
        As from `busy_seconds`.
    window_s : float
        Length of a window in seconds.
    """
    slowest = np.where(np.isfinite(busy_s), busy_s, 0.0).max(axis=1, initial=0.0)
    return max(window_s, float(requests @ slowest))


def best_assignment(
    requests: np.ndarray, busy_s: np.ndarray, replicas: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the least makespan of a fleet and the assignment that achieves it: a linear program.

    Jiang et al., ICML 2025, (2) and (3) with the counts y fixed: min T such that every workload is assigned and
    sum_w x_cw f_w / h_cw <= y_c T.

    Parameters
    ----------
    requests : (I,) ndarray
        Requests of each workload, f.
    busy_s : (I, C) ndarray
        Seconds of one replica per request, 1/h; inf where it cannot serve the workload.
    replicas : (C,) ndarray of int
        The fleet, y.

    Returns
    -------
    makespan_s : float
        Seconds; inf if some requests cannot be served at all.
    assignment : (I, C) ndarray
        Share of each workload on each configuration; rows of zeros where there are no requests, or no server.

    Examples
    --------
    >>> t, x = best_assignment(np.array([80.0, 20.0]), 1 / np.array([[1.0, 2.4], [1.2, 1.5]]), np.array([1, 1]))
    >>> round(t, 6), x.round(4).tolist()
    (28.431373, [[0.1471, 0.8529], [1.0, 0.0]])
    """
    assignment = np.zeros(busy_s.shape)
    here = np.flatnonzero(replicas > 0)
    able = np.isfinite(busy_s[:, here]).any(axis=1)
    present = np.flatnonzero((requests > 0) & able)
    if present.size:
        load_s = requests[present, None] * busy_s[np.ix_(present, here)]
        makespan_s, shares = _least_makespan(load_s, replicas[here].astype(float))
        assignment[np.ix_(present, here)] = shares
    else:
        makespan_s = 0.0
    return (makespan_s if able[requests > 0].all() else np.inf), assignment


def _least_makespan(load_s: np.ndarray, replicas: np.ndarray) -> tuple[float, np.ndarray]:
    """Return makespan and shares where workload w alone would take ``load_s[w, c]`` on one replica of c.

    HiGHS proposes the shares; they are made to add up to one, and the makespan is computed from them.
    """
    workloads, count = load_s.shape
    row, column = np.nonzero(np.isfinite(load_s))
    alone_s = load_s[row, column] / replicas[column]
    best = [int(np.flatnonzero(row == w)[alone_s[row == w].argmin()]) for w in range(workloads)]
    shares = np.zeros(load_s.shape)
    shares[row[best], column[best]] = 1.0
    unit_s = np.bincount(column[best], weights=alone_s[best], minlength=count).max()
    if unit_s > 0.0:
        relative = alone_s / unit_s
        shares[row, column] = _balance(row, column, relative, workloads, count)
        shares /= shares.sum(axis=1, keepdims=True)
    load = np.zeros(count)
    np.add.at(load, column, shares[row, column] * alone_s)
    return float(load.max()), shares


def _balance(
    row: np.ndarray, column: np.ndarray, relative: np.ndarray, workloads: int, count: int
) -> np.ndarray:
    """Return the shares (pairs,) that minimise the largest sum of share times `relative` over a column's pairs."""
    import highspy  # heavy, and one of the solvers that a process may hold
    from scipy import sparse

    pairs = row.size
    scale = np.maximum(1.0, relative)  # an optimal share is at most 1 / relative
    value = np.concatenate([1.0 / scale, relative / scale, np.full(count, -1.0)])
    index = (
        np.concatenate([row, workloads + column, workloads + np.arange(count)]),
        np.concatenate([np.arange(pairs), np.arange(pairs), np.full(count, pairs)]),
    )
    matrix = sparse.csr_matrix((value, index), shape=(workloads + count, pairs + 1))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = pairs + 1, workloads + count
    model.col_cost_ = np.append(np.zeros(pairs), 1.0)
    model.col_lower_, model.col_upper_ = np.zeros(pairs + 1), np.full(pairs + 1, np.inf)
    model.row_lower_ = np.append(np.ones(workloads), np.full(count, -np.inf))
    model.row_upper_ = np.append(np.ones(workloads), np.zeros(count))
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = make_solver(presolve="off", primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"the assignment was not solved: {solver.getModelStatus()}")
    return np.maximum(0.0, np.array(solver.getSolution().col_value)[:pairs] / scale)


class FleetMakespanEnv(OneWindowEnv):
    """Rent GPUs once, so that one window's requests are done as soon as possible (Jiang et al., ICML 2025).

    ## Description
    The requests of one window lie ready at once. The agent chooses how many replicas of each configuration to rent,
    under a budget and the availability of the moment.
    The requests are then assigned so that the last replica finishes as early as possible. A replica works on one
    request after the other at the rate at which all its queue servers are busy (`busy_seconds`).

    ## Action space
    `MultiDiscrete`, one component per slot of the instance, as in `FleetAlloc-v0`: a number of replicas, or, for
    an exclusive slot, 0 for none and o for its o-th configuration. Replicas are granted slot by slot as in
    section 2 of `docs/model.md`, from an empty fleet; what exceeds availability or budget is denied.
    `action_masks()` (flat) and ``info["action_mask"]`` tell which options fit if they alone are wanted.

    ## Observation space
    A flat `Dict` of float32 boxes (I workloads, C configurations, G pools), as of the window to be served:

    | key | shape | meaning |
    |---|---|---|
    | `demand` | (I,) | log(requests / nominal requests), clipped to ±5 |
    | `input_scale`, `output_scale` | (I,) | log(mean length / nominal), clipped to ±5 |
    | `delay_factor` | (I,) | log of the factor on every duration, clipped to ±5 |
    | `availability` | (G,) | available GPUs / cap |
    | `price` | (G,) | price / list price, at most 100 |
    | `running` | (C,) | replicas granted; zero before the step |

    ## Rewards
    Minus the makespan in seconds, the optimum of a small linear program (`best_assignment`). If a workload cannot be
    served by what was granted, the makespan is ``info["worst_s"]``, which no fleet exceeds that serves every workload.
    It is the larger of one window, and the time that a lone replica of each workload's slowest configuration would
    need in turn (`worst_makespan_s`).

    ## Starting state
    Nothing is rented. ``reset(seed=...)`` draws a scenario from the instance's processes and one of its windows;
    ``reset(options={"scenario": k, "window": t})`` takes window t (0 by default) of the k-th stored one,
    which may also be given by its id.

    ## Episode end
    Terminated after one step; never truncated.

    ## Info
    The same keys after reset and step:

    - `makespan_s` (zero before the step), and `worst_s`
    - `assignment` (I, C): shares of workloads
    - `unserved` (I,): workloads that nothing serves
    - `requests` (I,), and `busy_s` (I, C): seconds of a replica per request (inf: incompatible)
    - `granted` and `denied` (C,): replicas
    - `cost_usd_per_h` of what was granted

    The window stands in `rate_rps`, `input_scale`, `output_scale`, `delay_factor`, `error_factor`, `available_gpus`
    and `price_factor`. There are `window`, `scenario` and `action_mask` too.

    ## Arguments
    ``gymnasium.make("fleetgym:FleetMakespan-v0", instance="fleet-v0/dev/ou-s-001", budget_usd_per_h=None)``

    | argument | meaning |
    |---|---|
    | `instance` | an id of the standard set, the path of an instance file, or an `Instance` |
    | `budget_usd_per_h` | replaces the instance's budget by a cap on rent and model storage; None keeps it |
    | `render_mode` | `"ansi"`: text |

    ## Vectorized use
    ``gymnasium.make_vec("fleetgym:FleetMakespan-v0", num_envs=8, vectorization_mode="sync", instance=...)``. An episode
    is one step, so every second call of `step` is a reset in Gymnasium's default autoreset mode.

    ## Version history
    * v0: initial version
    """

    def __init__(
        self,
        instance: InstanceSource = "fleet-v0/dev/ou-s-001",
        budget_usd_per_h: float | None = None,
        render_mode: str | None = None,
    ):
        choice = ScenarioChoice(instance)
        own = choice.instance
        if budget_usd_per_h is not None:
            own = own.replace(budget=Budget(kind="rate", usd=budget_usd_per_h))
        super().__init__(choice, own, render_mode)
        self.actions = ActionSpace(own)
        self.action_space = spaces.MultiDiscrete(self.actions.nvec)

    def _begin(self) -> None:
        self._requests, self._busy_s = self._snapshot.requests, busy_seconds(self._snapshot)
        self._worst_s = worst_makespan_s(self._requests, self._busy_s, self.instance.window_s)
        self._makespan_s, self._assignment = 0.0, np.zeros(self._busy_s.shape)

    def _serve(self, action: np.ndarray) -> float:
        target = self.actions.to_fleet(action)
        self._granted = self._model.admit(self._state, target, self._conditions)
        makespan_s, self._assignment = best_assignment(self._requests, self._busy_s, self._state.running)
        self._makespan_s = min(makespan_s, self._worst_s)
        return -self._makespan_s

    def _mask(self) -> np.ndarray:
        return self.actions.mask(*self._fitting())

    def _result(self) -> str:
        return f"makespan {self._makespan_s:.6g} s  (worst {self._worst_s:.6g} s)"

    def _own_info(self) -> dict[str, Any]:
        counts = np.zeros(self.instance.num_configurations, dtype=np.int64)
        served = self._assignment.sum(axis=1) > 0.0
        waiting = np.zeros(self.instance.num_workloads, dtype=bool)
        return {
            "makespan_s": self._makespan_s,
            "worst_s": self._worst_s,
            "assignment": self._assignment.copy(),
            "unserved": waiting if self._granted is None else (self._requests > 0) & ~served,
            "requests": self._requests.copy(),
            "busy_s": self._busy_s.copy(),
            "granted": counts if self._granted is None else self._granted.granted,
            "denied": counts.copy() if self._granted is None else self._granted.denied,
        }
