"""Play `right-sizing`: an idle replica stays until its idle rent is worth a start, or a forecast lets it go.

Source: Albers and Quedenfeld, "Algorithms for right-sizing heterogeneous data centers", SPAA 2021 (arXiv 2107.14692).
At each moment the algorithm has at least the servers that an optimal schedule of the past would end with. A server
beyond these is switched off as soon as its idle cost since it was last wanted reaches its switching cost. With d types
of servers this costs at most 2d + 1 times the optimum in hindsight, if operating costs do not depend on time.
Adapted:

- the paper's optimal schedule of the past needs a search over all fleets. Here the packer says which replicas demand
  needs, and which of the running ones it does not (`fleetgym.planning.FleetSizer`), so the bound is not claimed;
- starting takes time, so demand is forecast for the window in which a new replica would serve;
- the switching cost is the start-up fee and the rent while a replica starts.

With predictions, as ski rental has them (Purohit, Svitkina and Kumar, NeurIPS 2018): a replica that is not wanted stays
where at least `share` of drawn paths want it again before its idle rent reaches its switching cost, and goes at once
elsewhere. ``share=0`` is the algorithm as published, without predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Belief, FleetgymError, View
from fleetgym.planning import PACE, FleetSizer, PackedConditions, Paths, above, at_least, whole_at_least

from .services import Room


class RightSizing:
    """Keep what is not wanted as long as it may be wanted again in time.

    Parameters
    ----------
    lower : float
        Multiple of the forecast demand for which replicas are wanted.
    share : float
        Share of the paths that must want a replica again; 0: as published, no path is drawn.
    patience : float
        Switching costs that idle rent may reach.
    paths, windows : int
        How many paths, and how far they go at most.

    Raises
    ------
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        lower: float = 1.1,
        share: float = 0.5,
        patience: float = 1.0,
        paths: int = 12,
        windows: int = 8,
    ):
        above(0, lower=lower)
        at_least(0, share=share, patience=patience)
        whole_at_least(1, paths=paths, windows=windows)
        if share > 1.0:
            raise FleetgymError(f"share is {share!r}; expected at most 1")
        self.lower, self.share, self.patience = lower, share, patience
        self.paths, self.windows = paths, windows

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        self.view, self.seed, instance = view, seed, view.instance
        self.belief, self.sizer = Belief(instance), FleetSizer(instance)
        self.waits = np.array([c.startup_windows for c in instance.configurations])
        self.ahead = int(self.waits.max()) + 1
        most = max(c.max_replicas for c in instance.configurations)
        self.idle_usd = np.zeros((instance.num_configurations, most))  # of the 1st, 2nd, ... replica
        self.paid_by_day = instance.budget is not None and instance.budget.kind == "pool"

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return what is wanted, and what is kept beyond it."""
        view = self.view
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        snapshot, left = view.snapshot(), view.instance.num_windows - view.window
        drawn = self.belief.sample(
            self.paths, min(left, self.ahead + self.windows), np.random.default_rng(self.seed)
        )
        rates = drawn.mean(drawn.workload[:, min(self.ahead, left) - 1, 0])
        wanted = self.sizer.target(
            view,
            rates,
            self.lower,
            self.lower,
            budget_usd=view.budget_left_usd * (min(1.0, PACE / left) if self.paid_by_day else 1.0),
            payback_windows=min(12, left),
        )
        switch_usd = self.patience * (snapshot.startup_usd + self.waits * snapshot.hold_usd)
        surplus = np.arange(self.idle_usd.shape[1]) >= wanted[:, None]
        self.idle_usd = np.where(surplus, self.idle_usd + snapshot.hold_usd[:, None], 0.0)
        if self.share > 0.0:
            again = self._wanted_again(drawn, switch_usd, snapshot.hold_usd)
            stays = again >= self.share * (1.0 - 1e-9)  # half of twelve paths are a half
        else:
            stays = self.idle_usd <= switch_usd[:, None]
        number = np.arange(self.idle_usd.shape[1])
        kept = (surplus & stays & (number < view.fleet[:, None])).sum(axis=1)
        room = Room(snapshot, wanted)
        for c in np.flatnonzero(kept):
            room.add(int(c), int(kept[c]))
        return view.fleet_to_action(room.fleet)

    def _wanted_again(self, drawn: Paths, switch_usd: np.ndarray, hold_usd: np.ndarray) -> np.ndarray:
        """Return the share of paths that want each replica before its rent reaches its switching cost, (C, n)."""
        paths, windows = drawn.workload.shape[:2]
        fields = [field.reshape(-1, *field.shape[2:]) for field in drawn[:3]]
        running = np.repeat(self.view.fleet[None], paths * windows, axis=0)
        lower = np.asarray(self.lower)
        fleets = self.sizer.targets(PackedConditions(*fields), running, lower, lower)
        fleets = fleets.reshape(paths, windows, -1)
        # the window in which it comes back is paid for by the demand of that window
        in_time = np.arange(windows)[:, None] * hold_usd <= switch_usd
        most = np.where(in_time, fleets, 0).max(axis=1)
        number = np.arange(self.idle_usd.shape[1])
        wants = most[:, :, None] > number
        return drawn.mean(wants)
