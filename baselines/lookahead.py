"""Play `lookahead`: a local search over fleets, each simulated over sampled paths of the coming windows.

In every window each fleet that is tried is *held* for some windows over a few paths that `fleetgym.Belief` draws, from
the present state: admission, start-up, fees, losses and denials are those of steps (`View.rollout`). The search begins
anew in the next window (Bertsekas 2020, *Rollout, Policy Iteration, and Distributed Reinforcement Learning*). The duals
of the routing say which neighbours of a fleet are worth playing (`View.estimate`).

A search starts from the running fleet, from the last target and from the fleet of the agent `margin`. Moves of single
replicas may end in a fleet that only an exchange of many would improve. So from time to time a search also starts from
the rounded fleets of the linear program of `mpc`, on one path. Each program has a path of its own. In the first window
it may hold any configuration.

Fleets are compared on paths that are drawn with the same random numbers in every window, since a fleet that follows the
luck of samples is restless.

Where a budget pays for the whole day, rent counts more than it costs: by the factor with which the budget would last,
as a mean over rests of the day that may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Belief, Instance, View
from fleetgym.planning import FleetSizer, PackedConditions, Paths, at_least, make_solver, whole_at_least

from .descent import shortlist
from .mpc import MAX_ITERATIONS, PathsProgram, planned_windows, rounded_fleets

#: Windows between two looks at the price of a budget for the day; rests, and windows of each, that it is a mean over.
PRICE_EVERY, PRICE_PATHS, PRICE_TIMES = 12, 8, 24
#: By which rent may count more than it costs.
FACTORS = np.array([1.0, 1.25, 1.5, 2.0, 3.0, 4.5, 7.0, 12.0])
#: What fleets cost to hold, over what those cost that are sized anew in each window.
OVERHEAD = 1.1

#: Moves that a short search tries.
FEW_MOVES = 8

_TINY = 1e-9  # a gain below this share of the cost is none


def fee_windows(instance: Instance) -> int:
    """Return how many windows have the rent that the start of a replica costs, the median over configurations."""
    prices = np.array([pool.price_usd_per_gpu_h for pool in instance.pools])
    rent_usd = prices @ instance.gpu_use * (instance.window_s / 3600.0)
    fees_usd = np.array([c.startup_usd for c in instance.configurations])
    costs = rent_usd > 0.0
    return round(float(np.median(fees_usd[costs] / rent_usd[costs]))) if costs.any() else 0


class Lookahead:
    """Search for the fleet that is cheapest to hold over sampled paths.

    Parameters
    ----------
    paths, windows : int
        How many paths, and how far they go, if they need not go further: twice the longest start-up, and after a
        start-up as many windows as have the rent of its fee. A replica that serves for less looks expensive.
    exchanges : int
        Exchanges of two replicas that are played in a round of the search, at most: those that are estimated best.
    rounds : int
        Most rounds of a search; one ends with the first move that helps, taken as often as it does.
    shortlist : int
        Configurations per workload and pool that may be added.
    large : int
        Where more candidates than this may be added, of all workloads and pools together, a search is short: one round
        of the `FEW_MOVES` best moves of single replicas, and the only linear program is that of the first window. Of
        `fleet-v1` that is `multi` at size l.
    plan_every : int
        Windows from one linear program to the next, at least.
    lower, gap : float
        Margins of the packer from which a search starts; see `margin`.

    Raises
    ------
    FleetgymError
        For a number that is too small.

    Notes
    -----
    Work is bounded by counts, never by a clock, so that results do not depend on the machine.
    """

    def __init__(
        self,
        paths: int = 15,
        windows: int = 6,
        exchanges: int = 4,
        rounds: int = 8,
        shortlist: int = 1,
        large: int = 100,
        lower: float = 1.05,
        gap: float = 0.1,
        plan_every: int = 6,
    ):
        whole_at_least(1, paths=paths, windows=windows, rounds=rounds, shortlist=shortlist)
        whole_at_least(1, plan_every=plan_every)
        whole_at_least(0, exchanges=exchanges, large=large)
        at_least(0, lower=lower, gap=gap)
        self.paths, self.windows, self.exchanges, self.rounds = paths, windows, exchanges, rounds
        self.shortlist, self.large, self.lower, self.upper = shortlist, large, lower, lower + gap
        self.plan_every = plan_every

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        self.view, self.seed, instance = view, seed, view.instance
        self.belief, self.sizer = Belief(instance), FleetSizer(instance)
        snapshot = view.snapshot()
        self.candidates = shortlist(snapshot, self.shortlist)
        is_large = self.candidates.size > self.large
        self.most_rounds, self.most_exchanges = (1, 0) if is_large else (self.rounds, self.exchanges)
        self.most_moves = FEW_MOVES if is_large else None
        self._next_plan, self.plan_wait = 0, instance.num_windows if is_large else self.plan_every
        self.solver = make_solver(random_seed=1, simplex_iteration_limit=MAX_ITERATIONS)
        self.most, self.gpu_use = snapshot.max_replicas, snapshot.gpu_use
        self.rivals = [np.zeros(0, dtype=np.int64)] * instance.num_configurations
        for members in instance.exclusive_groups:
            for c in members:
                self.rivals[c] = np.array([other for other in members if other != c], dtype=np.int64)
        budget = instance.budget
        self.paid_by_day = budget is not None and budget.kind == "pool"
        longest = max(c.startup_windows for c in instance.configurations)
        self.ahead = max(self.windows, 2 * longest, longest + fee_windows(instance))
        self.target, self.rent_factor = view.fleet, 1.0

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action of the fleet that the searches end with."""
        view = self.view
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        if self.paid_by_day and view.window % PRICE_EVERY == 0:
            self.rent_factor = self._rent_factor()
        self.drawn = self._paths()
        self.available = self.drawn.available.max(axis=(0, 1))
        hold_usd = view.snapshot().hold_usd
        self.extra_usd = (self.rent_factor - 1.0) * self.drawn.workload.shape[1] * hold_usd
        self.known: dict[bytes, float] = {}
        starts = [self._packed(), view.fleet, self.target]
        if view.window >= self._next_plan:
            self._next_plan = view.window + self.plan_wait
            starts += self._plans(np.asarray(info["starting"]))
        self.adding = np.union1d(self.candidates, np.flatnonzero(np.sum(starts, axis=0)))
        costs = [self._cost(fleet) for fleet in starts]
        self.target = self._descend(starts[int(np.argmin(costs))])
        return view.fleet_to_action(self.target)

    # -- what may come --------------------------------------------------------------------------------------

    def _paths(self) -> Paths:
        """Return the windows that fleets are played over; the coming one is known where the instance shows it."""
        windows = min(self.ahead, self.view.instance.num_windows - self.view.window)
        drawn = self.belief.sample(self.paths, windows, np.random.default_rng(self.seed))
        if self.view.instance.lead:
            return drawn
        fields = []
        for now, later in zip(self.view.conditions.packed(), drawn[:3], strict=True):
            first = np.broadcast_to(now, (self.paths, 1, *now.shape))
            fields.append(np.concatenate((first, later[:, :-1]), axis=1))
        workload, available, price = fields
        return Paths(workload, available, price, drawn.weight)

    def _packed(self) -> np.ndarray:
        """Return the packer's fleet for the mean of the paths when what starts now will serve."""
        workload = self.drawn.workload
        return self.sizer.target(
            self.view,
            self.drawn.mean(workload[:, min(2, workload.shape[1] - 1), 0]),
            self.lower,
            self.upper,
            budget_usd=self.view.budget_left_usd,
            rent_factor=self.rent_factor,
        )

    def _plans(self, starting: np.ndarray) -> list[np.ndarray]:
        """Return the rounded first fleets of a linear program over the coming windows on one path."""
        view = self.view
        among = np.union1d(self.candidates, np.flatnonzero(view.fleet + self.target))
        if view.window == 0 and self.most_moves is None:
            among = np.arange(view.fleet.size)
        windows = min(planned_windows(view.instance), view.instance.num_windows - view.window)
        program = PathsProgram(view, self.belief, among, 1, windows, starting, self.seed + view.window)
        return rounded_fleets(view.snapshot(), program.solve(self.solver))

    def _rent_factor(self) -> float:
        """Return by how much rent should count more than it costs for the budget to last: a mean over rests of the day.

        The rent of a rest is that of the packer's fleets at a few of its windows.
        """
        instance, view = self.view.instance, self.view
        left = instance.num_windows - view.window
        times = np.unique(np.linspace(0, left - 1, PRICE_TIMES).astype(int))
        rests = self.belief.sample(PRICE_PATHS, left, np.random.default_rng(self.seed))
        fields = [field[:, times].reshape(-1, *field.shape[2:]) for field in rests[:3]]
        several = PackedConditions(*(np.concatenate([field] * len(FACTORS)) for field in fields))
        factors = np.repeat(FACTORS, len(fields[0]))
        none = np.zeros((len(factors), instance.num_configurations), dtype=np.int64)
        fleets = self.sizer.targets(
            several, none, np.asarray(self.lower), np.asarray(self.lower), rent_factor=factors
        )
        rents = (
            (fleets @ view.snapshot().hold_usd).reshape(len(FACTORS), PRICE_PATHS, len(times)).mean(axis=2)
        )
        rests_usd = np.minimum.accumulate(OVERHEAD * left * rents, axis=0)
        lasting = [np.interp(view.budget_left_usd, usd[::-1], FACTORS[::-1]) for usd in rests_usd.T]
        return float(np.mean(lasting))

    # -- the search -----------------------------------------------------------------------------------------

    def _cost(self, fleet: np.ndarray, limit: float = np.inf) -> float:
        """Return the cost of holding a fleet over the paths; inf where it is certain to exceed `limit`."""
        key = fleet.tobytes()
        if key not in self.known:
            extra = float(fleet @ self.extra_usd)
            self.known[key] = extra + float(
                self.view.rollout(fleet[None], self.drawn, limit=limit - extra)[0]
            )
        return self.known[key]

    def _descend(self, fleet: np.ndarray) -> np.ndarray:
        """Take moves that help, each again as long as it does, until a round finds none."""
        best = self._cost(fleet)
        for _ in range(self.most_rounds):
            begin = best
            for less, more in self._moves(fleet):
                step = 1
                while (moved := self._moved(fleet, less, more, step)) is not None:
                    cost = self._cost(moved, best)
                    if cost >= best - _TINY * abs(best):
                        break
                    fleet, best, step = moved, cost, 2 * step
                if best < begin:
                    break
            if best == begin:
                break
        return fleet

    def _moves(self, fleet: np.ndarray) -> list[tuple[int, int]]:
        """Return pairs of configurations of which one replica leaves and one comes, -1 being none: the best ones first.

        Moves of which the duals say that they do not help are left out. An exchange is taken to help as much as its
        two halves.
        """
        used, adding = np.flatnonzero(fleet), self.adding[fleet[self.adding] < self.most[self.adding]]
        halves = [*((int(c), -1) for c in used), *((-1, int(c)) for c in adding)]
        fleets = np.array([fleet, *(self._changed(fleet, less, more, 1) for less, more in halves)])
        usd = self.view.estimate(fleets, self.drawn) + fleets @ self.extra_usd
        change = usd[1:] - usd[0]
        pairs = change[: used.size, None] + change[used.size :]
        pairs[used[:, None] == adding] = np.inf
        best = np.argsort(pairs, axis=None, kind="stable")[: self.most_exchanges]
        exchanges = [(int(used[n // adding.size]), int(adding[n % adding.size])) for n in best]
        moves = zip([*change, *pairs.ravel()[best]], halves + exchanges, strict=True)
        return [move for usd, move in sorted(moves) if usd < 0.0][: self.most_moves]

    def _moved(self, fleet: np.ndarray, less: int, more: int, step: int) -> np.ndarray | None:
        """Return the fleet after `step` such moves, or None if there is none."""
        moved = self._changed(fleet, less, more, step)
        wrong = less == more or np.any(moved < 0) or np.any(moved > self.most)
        return None if wrong or np.any(self.gpu_use @ moved > self.available) else moved

    def _changed(self, fleet: np.ndarray, less: int, more: int, step: int) -> np.ndarray:
        """Return the fleet after `step` such moves, whether an action can want it or not."""
        changed = fleet.copy()
        if less >= 0:
            changed[less] -= step
        if more >= 0:
            changed[more] += step
            changed[self.rivals[more]] = 0
        return changed
