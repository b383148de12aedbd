"""Wrap planners as agents: `Rolling` replans every few windows, `Static` plans once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.agents.arguments import above, at_least, flag, whole_at_least
from fleetgym.agents.forecasters import Forecaster, make_forecaster
from fleetgym.agents.view import View
from fleetgym.files.errors import FleetgymError
from fleetgym.model.planning import Plan, Planner, Snapshot


class Rolling:
    """Replan every few windows with a planner, on a forecast with a margin.

    Every planner runs through this wrapper, because margin and forecaster matter more than the method. In the
    snapshots of this wrapper, `startup_usd` is the cost of a grant per window of its payback time: fee, and
    rent paid while the replica starts, times `switch_cost`, over the payback windows.

    Parameters
    ----------
    planner : Planner
        Solves one window's problem. If it has a method ``prepare(snapshot)``, that is called in `reset`: what is
        loaded or compiled there does not count as a decision.
    every : int
        Windows between two plans.
    forecaster : str or Forecaster
        ``"last"``, ``"ewma"``, ``"kalman"``, ``"seasonal"``, ``"belief"``, or an object.
    margin : float
        Plans for (1 + margin) times the forecast.
    switch_cost : float
        How much a change of fleet must save before it is made: start-up fees, and rent paid while replicas start,
        count this many times. 0 ignores them.
    keep_best : bool
        Keep the running fleet unless the new one is cheaper by the forecast (FastLLM, section 4.3, judges by the
        demand that is only known afterwards).
    payback_windows : int
        A change must pay for itself within this many windows, or until the next plan if that is later.

    Raises
    ------
    FleetgymError
        If the planner or the forecaster is none, for a number out of range or that is not whole where windows are
        counted, and for a flag that is neither True nor False.
    """

    def __init__(
        self,
        planner: Planner,
        every: int = 1,
        forecaster: str | Forecaster = "last",
        margin: float = 0.0,
        switch_cost: float = 1.0,
        keep_best: bool = True,
        payback_windows: int = 12,
    ):
        if isinstance(planner, type) or not callable(getattr(planner, "plan", None)):
            raise FleetgymError(
                f"planner is {planner!r}; expected an object with plan(snapshot), such as "
                "fleetgym.agents.registry.make_planner('agh')"
            )
        whole_at_least(1, every=every, payback_windows=payback_windows)
        at_least(0, switch_cost=switch_cost)
        above(-1, margin=margin)
        flag(keep_best=keep_best)
        self.planner, self.every, self.margin = planner, every, margin
        self.forecaster = make_forecaster(forecaster)
        self.switch_cost, self.keep_best, self.payback_windows = switch_cost, keep_best, payback_windows
        self.last_plan: Plan | None = None

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode."""
        self.view = view
        self.forecaster.reset(view.instance)
        self.target = view.fleet
        self.last_plan = None
        if hasattr(self.planner, "prepare"):
            self.planner.prepare(view.snapshot())

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the running target, or a new one when it is time to plan.

        Raises
        ------
        DataError
            If no action can request the planner's fleet.
        """
        window = self.view.window
        if window > 0 or self.view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        if window % self.every == 0:
            self._replan()
        return self.view.fleet_to_action(self.target)

    def _replan(self) -> None:
        view = self.view
        ahead = view.instance.lead + (self.every - 1) // 2  # the middle of the windows planned for
        rate_rps = self.forecaster.predict(ahead) if ahead > 0 else view.conditions.rate_rps
        rate_rps = (1.0 + self.margin) * rate_rps
        snapshot = view.snapshot(rate_rps=rate_rps)
        snapshot = dataclasses.replace(snapshot, startup_usd=self._switch_usd(snapshot))
        self.last_plan = self.planner.plan(snapshot)
        new = view.actions.check_fleet(self.last_plan.fleet)
        if not self.keep_best or self._is_worth_it(new, snapshot):
            self.target = new

    def _is_worth_it(self, new: np.ndarray, snapshot: Snapshot) -> bool:
        view, conditions = self.view, {"rate_rps": snapshot.rate_rps}
        held = self.target
        if np.any(snapshot.gpu_use @ held > snapshot.available_gpus):
            held = view.fleet  # what is left: the rest of the target cannot be had
        if np.array_equal(new, held):
            return False
        saved = view.steady_cost_usd(held, conditions=conditions) - view.steady_cost_usd(
            new, conditions=conditions
        )
        return saved > float(np.maximum(0, new - view.fleet) @ snapshot.startup_usd)

    def _switch_usd(self, snapshot: Snapshot) -> np.ndarray:
        """Return what a grant costs per window until it must have paid for itself, (C,)."""
        instance, window = self.view.instance, self.view.window
        payback = min(max(self.every, self.payback_windows), instance.num_windows - window)
        waits = np.array([c.startup_windows if window > 0 else 0 for c in instance.configurations])
        return self.switch_cost * (snapshot.startup_usd + waits * snapshot.hold_usd) / payback


class Static(Rolling):
    """Plan once, for nominal demand with a margin, and keep the fleet for the whole episode.

    Where an instance shows the coming window (`lead` = 0), the first window's demand is known and planned for.

    Parameters
    ----------
    planner : Planner
        Solves one window's problem.
    margin : float
        Plans for (1 + margin) times that demand.
    """

    def __init__(self, planner: Planner, margin: float = 0.0):
        super().__init__(planner, every=10**9, margin=margin, keep_best=False)
