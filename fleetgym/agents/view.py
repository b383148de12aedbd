"""Give an agent the public instance, the last info, and previews without side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.agents.beliefs.belief import Paths
from fleetgym.agents.rollouts import Rollouts
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.library import InstanceSource, load_instance
from fleetgym.model.planning import LateSegments, Snapshot
from fleetgym.model.window import FleetState, WindowModel, WindowResult, window_model

_STATE = ("running", "starting", "draining", "window", "spent_usd")


class View:
    """The instance as an agent sees it, kept up to date with the infos of an episode.

    Parameters
    ----------
    instance : Instance, str or path-like
        The public parameters, their id or their file. They do not contain the realised future.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
    >>> observation, info = env.reset(seed=0)
    >>> view = fleetgym.View(env.unwrapped.instance)
    >>> view.update(info)
    >>> view.fleet.tolist()
    [1, 0]
    >>> cost = view.preview([1, 0])["cost"]
    """

    def __init__(self, instance: InstanceSource):
        self.instance = instance = load_instance(instance)
        self.actions = ActionSpace(instance)
        self._model: WindowModel = window_model(instance)
        self._router = self._model.new_router()
        self._state = self._model.initial_state()
        self._conditions = self._nominal = Conditions.nominal(instance)
        self._rollouts = Rollouts(self._model)

    # -- what is known ----------------------------------------------------------------------------------

    def update(self, info: Mapping[str, Any]) -> None:
        """Update the state and the conditions from an info of `FleetAlloc-v0`.

        Parameters
        ----------
        info : mapping
            As `reset` or `step` returned it; of a batch, one environment's row of it.

        Raises
        ------
        FleetgymError
            If it lacks the fleet or the conditions, as a batch's infos do that was made without ``full_info=True``.
        DataError
            If the conditions are not valid.
        """
        lacking = [name for name in (*_STATE, *Conditions.FIELDS) if name not in info]
        if lacking:
            raise FleetgymError(
                f"the info lacks {', '.join(lacking)}; make a batch with full_info=True to have them"
            )
        replicas = np.column_stack((info["running"], info["starting"], info["draining"])).astype(np.int64)
        self._state = FleetState(replicas, int(info["window"]), float(info["spent_usd"]))
        shown = {name: info[name] for name in Conditions.FIELDS}
        if "announced_gpus" in info:
            shown["available_gpus"] = info["announced_gpus"]
        self._conditions = Conditions.from_mapping(shown, self._nominal)

    @property
    def window(self) -> int:
        """The coming window."""
        return self._state.window

    @property
    def conditions(self) -> Conditions:
        """The conditions of the last window that was seen, or of the coming one where ``lead`` is 0.

        `available_gpus` has what is announced for the coming window: drops, and their ends.
        """
        return self._conditions

    @property
    def fleet(self) -> np.ndarray:
        """Replicas running or starting, int64 (C,); as a target it changes nothing."""
        return self._state.fleet

    @property
    def running(self) -> np.ndarray:
        """Running replicas, int64 (C,)."""
        return self._state.running.copy()

    @property
    def budget_left_usd(self) -> float:
        """The rest of a ``pool`` budget, one window's share of a ``rate`` budget, or inf without a budget."""
        return self._model.budget_usd(self._state.spent_usd)

    @property
    def late_segments(self) -> LateSegments:
        """The cost of late requests by load of the queue servers, configuration and replicas."""
        return self._model.segments

    # -- actions ----------------------------------------------------------------------------------------

    @property
    def nvec(self) -> np.ndarray:
        """Number of options of each slot, int64 (slots,)."""
        return self.actions.nvec

    def fleet_to_action(self, fleet: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the action that requests a fleet.

        Parameters
        ----------
        fleet : array_like of int, shape (C,)
            Replicas per configuration.

        Returns
        -------
        ndarray of int64, shape (slots,)

        Raises
        ------
        DataError
            If no action can request the fleet.

        Examples
        --------
        >>> import fleetgym
        >>> fleetgym.View("fleet-v0/toy/two-pools").fleet_to_action([1, 2]).tolist()
        [1, 2]
        """
        return self.actions.from_fleet(fleet)

    def action_to_fleet(self, action: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the fleet that an action requests.

        Parameters
        ----------
        action : array_like of int, shape (slots,)
            One option per slot.

        Returns
        -------
        ndarray of int64, shape (C,)
            Replicas per configuration.

        Raises
        ------
        DataError
            If the action is not valid.
        """
        return self.actions.to_fleet(action)

    # -- trying things out --------------------------------------------------------------------------------

    def preview(
        self, target: Sequence[int] | np.ndarray, *, conditions: Mapping[str, Any] | Conditions | None = None
    ) -> dict[str, float]:
        """Return the cost terms that a step with `target` would have. Nothing is changed.

        Parameters
        ----------
        target : array_like of int, shape (C,)
            Replicas per configuration (see `action_to_fleet`).
        conditions : Conditions or mapping, optional
            The window to assume; fields that a mapping leaves out, and by default all, are those seen last.

        Returns
        -------
        dict
            The cost terms of a step in USD, and their sum as ``cost``.

        Raises
        ------
        UnknownNameError
            If `conditions` names an unknown field.
        DataError
            If no action can request this target, or a field of `conditions` has the wrong shape or invalid values:
            negative numbers, those that are not finite, or more or other than whole GPUs that a pool may have.
        """
        return self.preview_window(target, conditions=conditions).costs()

    def preview_window(
        self, target: Sequence[int] | np.ndarray, *, conditions: Mapping[str, Any] | Conditions | None = None
    ) -> WindowResult:
        """Return everything that `preview` computes: costs, shares, and the result of admission."""
        wanted = self.action_to_fleet(self.fleet_to_action(target))
        return self._model.step(self._state.copy(), wanted, self._assume(conditions), self._router)

    def rollout(
        self,
        targets: Sequence[Sequence[int]] | np.ndarray,
        conditions: Paths,
        *,
        weights: np.ndarray | None = None,
        limit: float = np.inf,
    ) -> np.ndarray:
        """Return the cost of requesting each target in every window of a horizon. Nothing is changed.

        Admission, start-up, fees, losses and denials are those of steps, so with one path and one window this is the
        ``cost`` of `preview`, up to round-off.

        Parameters
        ----------
        targets : array_like of int, shape (n, C)
            Replicas per configuration that an action can request.
        conditions : Paths
            P paths of W windows, as `fleetgym.Belief.sample` draws them; the first one is the coming window. Windows
            beyond the end of the episode are left out.
        weights : ndarray, shape (P,), optional
            Weights of the paths, none negative; by default the paths' own.
        limit : float
            USD. A target that is certain to cost more is abandoned, at a cost of inf.

        Returns
        -------
        ndarray, shape (n,)
            USD over the horizon, summed over windows and weighted over paths.

        Raises
        ------
        DataError
            If no action can request a target, or an array has another shape.
        FleetgymError
            If the episode is over.

        Examples
        --------
        >>> import numpy as np, fleetgym
        >>> view = fleetgym.View("fleet-v0/toy/two-pools")
        >>> paths = fleetgym.Belief(view.instance).sample(4, 3, np.random.default_rng(0))
        >>> usd = view.rollout([[0, 0], [1, 1]], paths)
        >>> bool(usd[0] > usd[1])
        True
        """
        return self._rollouts.play(*self._over_paths(targets, conditions, weights), float(limit))

    def estimate(
        self,
        targets: Sequence[Sequence[int]] | np.ndarray,
        conditions: Paths,
        *,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Estimate what `rollout` would return, from the duals of the first target. Nothing is changed.

        The first target is played. The others are held, so rent, fees, starts and losses are exact. Their routing is
        not solved: the duals of the first target's routing give the value of a replica more or less. That takes a
        tenth of the time of a rollout. It is best for targets that are close to the first one.

        Parameters
        ----------
        targets : array_like of int, shape (n, C)
            As for `rollout`.
        conditions : Paths
        weights : ndarray, shape (P,), optional

        Returns
        -------
        ndarray, shape (n,)
            USD. The first one is what `rollout` returns.

        Raises
        ------
        DataError, FleetgymError
            As `rollout`.

        Examples
        --------
        >>> import numpy as np, fleetgym
        >>> view = fleetgym.View("fleet-v0/toy/two-pools")
        >>> paths = fleetgym.Belief(view.instance).sample(4, 3, np.random.default_rng(0))
        >>> usd = view.estimate([[1, 1], [1, 0]], paths)
        >>> bool(usd[0] == view.rollout([[1, 1]], paths)[0])
        True
        """
        return self._rollouts.estimate(*self._over_paths(targets, conditions, weights))

    def _over_paths(
        self, targets: Sequence[Sequence[int]] | np.ndarray, conditions: Paths, weights: np.ndarray | None
    ) -> tuple[np.ndarray, Paths, np.ndarray, FleetState, int]:
        """Return what rollouts take, checked."""
        wanted = np.array([self.actions.check_fleet(target) for target in targets], dtype=np.int64)
        left = self.instance.num_windows - self.window
        if left < 1:
            raise FleetgymError("the episode is over; there is no window to play")
        shape = conditions.workload.shape[:2]
        weight = np.array(conditions.weight if weights is None else weights, dtype=np.float64)
        expected = {
            "workload": (*shape, len(Conditions.WORKLOAD_FIELDS), self.instance.num_workloads),
            "available": (*shape, self.instance.num_pools),
            "price": (*shape, self.instance.num_pools),
        }
        for name, wide in expected.items():
            if (given := getattr(conditions, name).shape) != wide:
                raise DataError(f"expected the shape {wide}, got {given}", f"$.conditions.{name}")
        if weight.shape != shape[:1] or not weight.min(initial=0.0) >= 0:
            raise DataError(f"expected {shape[0]} weights, none negative", "$.weights")
        return (
            wanted.reshape(len(wanted), self.instance.num_configurations),
            conditions,
            weight,
            self._state,
            min(left, shape[1]),
        )

    def steady_cost_usd(
        self, fleet: Sequence[int] | np.ndarray, *, conditions: Mapping[str, Any] | Conditions | None = None
    ) -> float:
        """Return the cost of a window in which the whole `fleet` serves, without start-up costs.

        Parameters
        ----------
        fleet : array_like of int, shape (C,)
            Replicas per configuration that an action can request; admission is not checked.
        conditions : Conditions or mapping, optional
            As for `preview`.

        Returns
        -------
        float
            USD.

        Raises
        ------
        DataError
            If no action can request this fleet, or for conditions that `preview` refuses.
        """
        serving = self.actions.check_fleet(fleet)
        assumed = self._assume(conditions)
        terms, _, _, _ = self._model.operate(serving, assumed, self._router)
        return float(terms.sum() + serving @ self._model.hold_usd(assumed.price_factor))

    def _assume(self, conditions: Mapping[str, Any] | Conditions | None) -> Conditions:
        if conditions is None:
            return self._conditions
        if isinstance(conditions, Conditions):
            conditions = {name: getattr(conditions, name) for name in Conditions.FIELDS}
        assumed, caps = Conditions.from_mapping(conditions, self._conditions), self._nominal.available_gpus
        if np.any(assumed.available_gpus > caps):
            g = int(np.argmax(assumed.available_gpus > caps))
            raise DataError(
                f"expected at most {caps[g]} GPUs (cap_gpus), got {assumed.available_gpus[g]}",
                f"$.conditions.available_gpus[{g}]",
            )
        return assumed

    def snapshot(
        self, *, rate_rps: np.ndarray | None = None, conditions: Mapping[str, Any] | Conditions | None = None
    ) -> Snapshot:
        """Return the coming window's problem for a planner.

        Parameters
        ----------
        rate_rps : ndarray, shape (I,), optional
            Expected arrivals per second; by default those of `conditions`.
        conditions : Conditions or mapping, optional
            As for `preview`.

        Raises
        ------
        DataError
            If rates or conditions have another shape, or are not finite numbers of at least 0; see `preview`.
        """
        assumed = self._assume(conditions)
        if rate_rps is not None:
            assumed = Conditions.from_mapping({"rate_rps": rate_rps}, assumed)
        return self._model.snapshot(self._state, assumed)
