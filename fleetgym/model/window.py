"""Play a window: from a target fleet and its conditions to the new state and the costs, in one place.

`WindowModel` holds an instance in the kernels' form, `FleetState` what an episode carries along.
`docs/model.md` is the specification; `fleetgym/reference/` is the independent reference evaluator.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from fleetgym.kernels import economics, window
from fleetgym.kernels.records import Played, Problem, pack_problem
from fleetgym.kernels.routing_workload import new_workspace
from fleetgym.kernels.window import new_memory, new_played
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.packing import pack_instance
from fleetgym.model.planning import Snapshot

#: The cost terms of a window, in USD; they add up to ``cost``.
COST_TERMS = economics.TERMS


@dataclasses.dataclass(eq=False)
class FleetState:
    """What an episode carries from window to window.

    `replicas` has one row per configuration: running; starting that serve in 1, 2, .. K windows; draining
    that are released in 1, 2, .. K windows.
    """

    replicas: np.ndarray  # (C, 1 + 2K) int64
    window: int = 0  # the coming window
    spent_usd: float = 0.0  # what a budget of kind "pool" has paid

    def copy(self) -> FleetState:
        """Return an independent copy."""
        return FleetState(self.replicas.copy(), self.window, self.spent_usd)

    @property
    def longest(self) -> int:
        """K, the longest start-up in windows, at least 1."""
        return (self.replicas.shape[1] - 1) // 2

    @property
    def running(self) -> np.ndarray:
        """Running replicas, (C,)."""
        return self.replicas[:, 0]

    @property
    def starting(self) -> np.ndarray:
        """Starting replicas by windows left, (C, K)."""
        return self.replicas[:, 1 : self.longest + 1]

    @property
    def draining(self) -> np.ndarray:
        """Draining replicas by windows left, (C, K)."""
        return self.replicas[:, self.longest + 1 :]

    @property
    def fleet(self) -> np.ndarray:
        """Replicas running or starting, (C,): the target that changes nothing."""
        return self.replicas[:, : self.longest + 1].sum(axis=1)


class Router:
    """Warm start and work space of the windows of one instance.

    What it has seen changes the speed, and the result by round-off only.
    Whoever needs equal bits begins with a new one.

    Parameters
    ----------
    problem : Problem
        The instance as arrays.
    """

    def __init__(self, problem: Problem):
        _, workloads, configurations = problem.parameters.performance.shape
        self.played = new_played(workloads, configurations, len(problem.gpu_use))
        self.workspace = new_workspace(workloads, configurations)
        self.memory = new_memory(workloads, configurations)
        self._problem = problem
        self.packed = pack_problem(problem, self.workspace, self.played)

    def __getstate__(self) -> Problem:
        return self._problem

    def __setstate__(self, problem: Problem) -> None:
        self.__init__(problem)  # type: ignore[misc]


@dataclasses.dataclass(frozen=True, eq=False)
class WindowResult:
    """What one window cost and why."""

    terms_usd: np.ndarray  # (8,) in the order of COST_TERMS
    unserved_share: np.ndarray  # (I,)
    miss_share: np.ndarray  # (I,) unserved or late
    routing: np.ndarray  # (I, C) share of each workload on each configuration
    serving: np.ndarray  # (C,) replicas that served
    held: np.ndarray  # (C,) replicas that were held and paid for: running, starting and draining ones

    @classmethod
    def of(cls, played: Played) -> WindowResult:
        """Return copies of what the kernels noted."""
        return cls(
            terms_usd=played.terms_usd.copy(),
            unserved_share=played.share[0].copy(),
            miss_share=played.share[1].copy(),
            routing=played.routing.copy(),
            serving=played.serving.copy(),
            held=played.held.copy(),
        )

    @property
    def cost_usd(self) -> float:
        """Sum of the terms, added up in their order as the kernels do."""
        return float(self.terms_usd.cumsum()[-1])

    def costs(self) -> dict[str, float]:
        """Return the terms by name, and their sum as ``cost``."""
        named = {name: float(usd) for name, usd in zip(COST_TERMS, self.terms_usd, strict=True)}
        return {**named, "cost": self.cost_usd}


class WindowModel:
    """An instance in the kernels' form, and everything that can happen to it in a window.

    Parameters
    ----------
    instance : Instance
        The problem. Use `window_model` to share one model among all who need it.
    """

    def __init__(self, instance: Instance):
        self.instance = instance
        self.hours = instance.window_s / 3600.0
        self.longest_startup = max(1, max(c.startup_windows for c in instance.configurations))
        self.problem, self.segments = pack_instance(instance)
        self.startup_usd = self.problem.startup_usd
        self.startup_windows = self.problem.startup_windows
        self.model_storage_usd = self.problem.model_storage_usd

    # -- money ----------------------------------------------------------------------------------------

    def rent_usd(self, price_factor: np.ndarray) -> np.ndarray:
        """Return the rent of one replica in a window, (C,)."""
        return (self.problem.rental_usd * price_factor[:, None]).sum(axis=0)

    def hold_usd(self, price_factor: np.ndarray) -> np.ndarray:
        """Return rent and model storage of one replica in a window, (C,)."""
        return self.rent_usd(price_factor) + self.model_storage_usd

    def budget_usd(self, spent_usd: float) -> float:
        """Return the most that holding the fleet may cost in the coming window; inf without a budget."""
        budget = self.instance.budget
        if budget is None:
            return np.inf
        return budget.usd * self.hours if budget.kind == "rate" else max(0.0, budget.usd - spent_usd)

    # -- the window -----------------------------------------------------------------------------------

    def initial_state(self) -> FleetState:
        """Return the state before window 0: the nominal fleet runs."""
        replicas = np.zeros((self.instance.num_configurations, 1 + 2 * self.longest_startup), dtype=np.int64)
        replicas[:, 0] = self.instance.nominal_fleet
        return FleetState(replicas)

    def new_router(self) -> Router:
        """Return a router without memory."""
        return Router(self.problem)

    def step(
        self, state: FleetState, target: np.ndarray, conditions: Conditions, router: Router
    ) -> WindowResult:
        """Let one window happen: admission, routing, tails, costs.

        Parameters
        ----------
        state : FleetState
            Modified in place; afterwards it stands before the next window.
        target : ndarray of int64, shape (C,)
            The fleet wanted.
        conditions : Conditions
            What the window brings.
        router : Router
            Warm start of the routing, modified in place.

        Returns
        -------
        WindowResult
            Costs and shares.
        """
        status, _, state.spent_usd = window.play_from_python(
            router.packed.words,
            *router.memory,
            *conditions.packed(),
            np.array(target, dtype=np.int64),
            state.window == 0,
            state.spent_usd,
            state.replicas,
        )
        self.check(status)
        state.window += 1
        return WindowResult.of(router.played)

    def operate(
        self, serving: np.ndarray, conditions: Conditions, router: Router
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Route one window's demand over serving replicas.

        Parameters
        ----------
        serving : ndarray of int64, shape (C,)
            Replicas that serve.
        conditions : Conditions
            What the window brings.
        router : Router
            Warm start, modified in place.

        Returns
        -------
        terms_usd : ndarray, shape (8,)
            Cost terms; those of holding and starting are zero.
        unserved_share, miss_share : ndarray, shape (I,)
        routing : ndarray, shape (I, C)
        """
        played = router.played
        played.serving[:] = serving
        self.check(window.serve_from_python(router.packed.words, *router.memory, *conditions.packed()))
        holding = [economics.T_RENTAL, economics.T_MODEL, economics.T_STARTUP]
        terms = played.terms_usd.copy()
        terms[holding] = 0.0
        return terms, played.share[0].copy(), played.share[1].copy(), played.routing.copy()

    def check(self, status: int) -> None:
        """Raise `RuntimeError` if a kernel did not solve a routing LP: it always has an optimum."""
        if status != 0:
            raise RuntimeError(f"the routing LP of {self.instance.id!r} was not solved (status {status})")

    def snapshot(self, state: FleetState, conditions: Conditions) -> Snapshot:
        """Return the coming window's problem, with `conditions` as the forecast.

        A budget of kind ``pool`` is paced evenly over the windows left. What can be written to is a copy: this model
        plays other agents' windows, too.
        """
        instance, packed = self.instance, self.problem.parameters
        stacked = conditions.stacked()
        everything = np.arange(instance.num_configurations)
        shape = (instance.num_workloads, everything.size)
        coefficient = np.empty((economics.NUM_COEFFICIENTS, *shape))
        economics.coefficients(packed, stacked, everything, coefficient)
        route_usd, unserved_usd = np.empty(shape), np.empty(shape[0])
        economics.route_prices(packed, stacked, coefficient, everything, route_usd, unserved_usd)
        budget_usd = self.budget_usd(state.spent_usd)
        if instance.budget is not None and instance.budget.kind == "pool":
            budget_usd /= max(1, instance.num_windows - state.window)
        return Snapshot(
            instance=instance,
            window=state.window,
            rate_rps=conditions.rate_rps.copy(),
            requests=conditions.rate_rps * instance.window_s,
            delay_s=coefficient[economics.C_DELAY],
            error=coefficient[economics.C_ERROR],
            work_tflop=coefficient[economics.C_WORK],
            kv_gb_s=coefficient[economics.C_KV],
            service_s=coefficient[economics.C_SERVICE],
            prefill_s=coefficient[economics.C_PREFILL],
            own_late=coefficient[economics.C_OWN_LATE],
            slack_s=coefficient[economics.C_SLACK],
            compatible=instance.performance.compatible,
            route_usd=route_usd,
            unserved_usd=unserved_usd,
            hold_usd=self.hold_usd(conditions.price_factor),
            startup_usd=self.startup_usd.copy(),
            compute_tflops=packed.configuration[economics.COMPUTE].copy(),
            kv_capacity_gb=packed.configuration[economics.KV_CAPACITY].copy(),
            max_concurrency=packed.configuration[economics.CONCURRENCY].copy(),
            max_replicas=np.array([c.max_replicas for c in instance.configurations]),
            gpu_use=instance.gpu_use,
            available_gpus=conditions.available_gpus.copy(),
            budget_usd=budget_usd,
            fleet=state.fleet,
            segments=self.segments,
        )


@functools.lru_cache(maxsize=32)
def window_model(instance: Instance) -> WindowModel:
    """Return the one `WindowModel` of an instance that this process shares."""
    return WindowModel(instance)
