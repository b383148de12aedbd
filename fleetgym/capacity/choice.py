"""Choose the fleet to hold by what it costs on generated days, on which spot GPUs may be reclaimed.

A planner knows one window, in which nothing is lost. So it is asked for many plans, and days tell which is best.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from fleetgym.agents.view import View
from fleetgym.capacity.held import MISSED, MISSED_OF, HeldFleets
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Planner, Snapshot
from fleetgym.model.window import COST_TERMS

#: Margins over nominal demand that are tried where no GPU can be lost.
MARGINS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)
#: Multiples of nominal demand that are planned on spot alone, and without spot; every pair is tried.
LEVELS = (0.25, 0.5, 0.75, 1.0, 1.2, 1.45, 1.8, 2.3, 3.0)
#: Shares of a given demand that the base is planned for.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Days after which two fleets are compared; the last decides.
CHECKS = (15, 30, 60, 120, 240, 480)

#: Kinds of plans.
MARGIN, ALONE, BASE, SPOT, MIX, RUNNING = (
    "one plan for all pools",
    "one GPU type alone",
    "all on demand",
    "all spot",
    "base and spot",
    "what runs",
)

#: Of the days on which plans are chosen, so that no fleet is judged on days that it was chosen on.
CHOICE_STREAM = 0x63686F73

_SAFE = 1.645  # standard errors that a limit is kept with
_FEWEST = 0.75  # multiple of nominal demand; whatever plans for less loses
_ROUNDS = 30
_REFINED_TO = 1.25  # GPU types that cost more than this times the best one are not worth refining
#: Replicas of one configuration for others. One on demand may need several on spot, of which some drop.
_EXCHANGES = ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2))

Progress = Callable[[int, int], None]
Fleet = tuple[int, ...]
#: A kind of plan, and the GPU type where it has one alone.
_Key = tuple[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a plan must keep.

    Parameters
    ----------
    miss_at_most : float, optional
        Share of a day's requests that are unserved or late, on average over generated days.
    spot_share_at_most : float, optional
        Share of the GPUs held.
    on_demand_base : int
        GPUs held in pools that cannot be lost: on demand, reserved or owned.
    miss_of : tuple of (str, float)
        Workloads, and the share of each one's requests that may be unserved or late, on average over generated days.
    """

    miss_at_most: float | None = None
    spot_share_at_most: float | None = None
    on_demand_base: int = 0
    miss_of: tuple[tuple[str, float], ...] = ()

    def with_percentiles(self, instance: Instance) -> Limits:
        """Return these limits and those of the instance's SLOs: ``ttft.p95`` allows 5 % to be late."""
        slos = () if instance.stated is None else instance.stated.slos
        found = tuple(
            (w.id, slo.missed_at_most)
            for w, slo in zip(instance.workloads, slos, strict=False)
            if slo.missed_at_most is not None
        )
        return dataclasses.replace(self, miss_of=found)

    def missing(self, days: np.ndarray, errors: float, instance: Instance) -> float:
        """Return by how much the mean shares that are missed exceed what is allowed: the worst, or minus infinity.

        Parameters
        ----------
        days : ndarray, shape (days, 10 + I)
            As `fleetgym.capacity.held` has them.
        errors : float
            So many standard errors are added to the means.
        instance : Instance
            The problem.
        """
        of = dict(self.miss_of)
        allowed = {MISSED_OF + i: of[w.id] for i, w in enumerate(instance.workloads) if w.id in of}
        if self.miss_at_most is not None:
            allowed[MISSED] = self.miss_at_most
        if not allowed:
            return -np.inf
        missed = days[:, list(allowed)]
        safe = missed.mean(axis=0) + errors * missed.std(axis=0) / np.sqrt(len(days))
        return float((safe - list(allowed.values())).max())

    def admit(self, instance: Instance, fleet: np.ndarray) -> bool:
        """Return whether a fleet has few enough spot GPUs, and others enough, and keeps a budget per hour."""
        held = instance.gpu_use @ fleet
        spot = float(held[spot_pools(instance)].sum())
        budget = instance.budget
        if budget is not None and budget.kind == "rate":
            storage = np.array([c.model_storage_usd_per_h for c in instance.configurations])
            if float(fleet @ (instance.rental_usd_per_h.sum(axis=0) + storage)) > budget.usd * (1.0 + 1e-9):
                return False
        most = 1.0 if self.spot_share_at_most is None else self.spot_share_at_most
        total = float(held.sum())
        return spot <= most * total + 1e-9 and total - spot >= self.on_demand_base

    def words(self) -> str:
        """Return the limits as they are written on the command line."""
        given = [
            ("--miss-at-most", self.miss_at_most),
            ("--spot-share-at-most", self.spot_share_at_most),
            ("--on-demand-base", self.on_demand_base or None),
            *((f"ttft.p{100.0 - 100.0 * most:.6g} of {name}:", most) for name, most in self.miss_of),
        ]
        return " ".join(f"{name} {value:.6g}" for name, value in given if value is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried:
    """The best plan of a kind, and its mean on the days on which it was chosen."""

    kind: str
    fleet: Fleet
    base: float  # multiple of nominal demand that was planned without spot, or for all pools; then it was refined
    spot: float  # multiple that is planned on spot alone
    cost_usd: float  # per day
    miss_share: float
    keeps_limits: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen, and among what."""

    best: Tried
    kinds: tuple[Tried, ...]  # the best of each kind
    plans: int  # fleets that were compared
    days: int
    limits: Limits
    refined: bool  # whether replicas were then changed one by one

    @property
    def margin(self) -> float:
        """The plan is the planner's own for (1 + this) times nominal demand; 0 if it has parts or what runs stays."""
        return self.best.base - 1.0 if self.best.kind in (MARGIN, ALONE) else 0.0


def spot_pools(instance: Instance) -> np.ndarray:
    """Return which pools are on spot, (G,) bool."""
    return np.array([pool.market == "spot" for pool in instance.pools])


def window_to_plan(view: View, margin: float = 0.0, pools: np.ndarray | None = None) -> Snapshot:
    """Return the window that a plan is for: (1 + margin) times nominal demand, and whatever is deployed runs already.

    Parameters
    ----------
    view : View
        Of the instance, at its start.
    margin : float
        Above -1.
    pools : ndarray of bool, shape (G,), optional
        Which may be used; by default all.

    Returns
    -------
    Snapshot
        Nothing costs a fee to start.
    """
    window = view.snapshot(rate_rps=(1.0 + margin) * view.conditions.rate_rps)
    available = window.available_gpus if pools is None else np.where(pools, window.available_gpus, 0)
    return dataclasses.replace(
        window, startup_usd=np.zeros_like(window.startup_usd), available_gpus=available
    )


def choose(
    instance: Instance,
    planner: Planner,
    *,
    margin: float | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    running: np.ndarray | None = None,
    progress: Progress | None = None,
) -> Choice:
    """Return the plan that costs least on generated days, among those that keep the limits.

    Without spot pools the planner plans for nominal demand with each of `MARGINS`: for all pools, and for each GPU type
    alone. With them it plans a base without spot, and a part on spot alone, for each of `LEVELS`; every pair is a
    candidate, and either part may be nothing. The best of each kind is then refined: a replica more or less, or of
    another configuration, as long as that pays. All fleets see equal days. A fleet that is more expensive by two
    standard errors is given up early.

    Parameters
    ----------
    instance : Instance
        The problem.
    planner : Planner
        Plans one window.
    margin : float, optional
        Plan for (1 + margin) times nominal demand only; its share on spot is then what is chosen.
    limits : Limits, optional
        What a plan must keep.
    seed : int
        Of the days; they are others than those of `fleetgym.fleet_risk`.
    running : ndarray of int, shape (C,), optional
        What runs already. Days begin with it, so what a plan adds has to start, and it is a candidate itself.
    progress : callable, optional
        Called with the numbers of candidates compared and of all.

    Returns
    -------
    Choice

    Raises
    ------
    FleetgymError
        If no candidate keeps the limits.

    Examples
    --------
    >>> import fleetgym
    >>> from fleetgym.agents.registry import make_planner
    >>> found = choose(fleetgym.load_instance("fleet-v0/toy/drop"), make_planner("gh"))
    >>> found.best.fleet, found.best.kind
    ((2, 0), 'one plan for all pools')
    """
    limits = (limits or Limits()).with_percentiles(instance)
    judge = _Judge(HeldFleets(instance, [CHOICE_STREAM, seed], running), limits)
    candidates = _Candidates(instance, planner, margin, running, limits.on_demand_base)
    named: dict[Fleet, tuple[str, float, float]] = {}
    for fleet, tried in candidates:
        if limits.admit(instance, np.array(fleet)):
            named.setdefault(fleet, tried)  # of equal fleets the first kind counts
    if not named:
        raise FleetgymError(f"no plan keeps {limits.words()}: loosen it, or raise caps")
    best: dict[_Key, Fleet] = {}
    order = sorted(named, key=lambda fleet: (judge.score(fleet, CHECKS[0]), fleet))
    for done, fleet in enumerate(order, start=1):
        keys = {(named[fleet][0], "")} - {(ALONE, "")}
        if candidates.types and len(types := _types(instance, fleet)) == 1:
            # Each type apart: one that was planned worse may be refined to a better plan.
            keys.add((ALONE, types.pop()))
        for key in sorted(keys):
            if key not in best or judge.beats(fleet, best[key]):
                best[key] = fleet
        if progress is not None:
            progress(done, len(order))
    planned, used = dict(best), np.any(list(named), axis=0)
    alone = [judge.score(fleet, CHECKS[-1]) for (kind, _), fleet in best.items() if kind == ALONE]
    for (kind, gpu), fleet in planned.items() if margin is None else ():
        if kind == ALONE and judge.score(fleet, CHECKS[-1]) > _REFINED_TO * min(alone):
            continue
        better = _refine(instance, judge, fleet, used & _in_pools(instance, kind, fleet))
        label = (kind, gpu) if better == fleet or kind == ALONE else (_kind(instance, better), "")
        named.setdefault(better, named[fleet])
        if label not in best or judge.score(better, CHECKS[-1]) < judge.score(best[label], CHECKS[-1]):
            best[label] = better
    if alone:
        each = [best.pop(key) for key in list(best) if key[0] == ALONE]
        best[ALONE, ""] = min(each, key=lambda fleet: (judge.score(fleet, CHECKS[-1]), fleet))
    one, plan = (ALONE, ""), (MARGIN, "")
    if {one, plan} <= set(best) and len(_types(instance, best[plan])) == 1:
        costs = [judge.score(best[key], CHECKS[-1]) for key in (one, plan)]
        best.pop(plan if costs[0] < costs[1] else one)  # both are of one type: the better one stands for it
    first = min(best, key=lambda key: (judge.score(best[key], CHECKS[-1]), best[key]))
    if not judge.keeps(best[first]):
        over = min(judge.over(fleet) for fleet in best.values())
        raise FleetgymError(
            f"no plan that was tried keeps {limits.words()}: the best misses {100 * over:.2f} % of the requests more "
            "than that, with safety for the days not seen; loosen it, or raise caps"
        )

    def told(key: _Key) -> Tried:
        fleet = best[key]
        (_, base, spot), (cost_usd, miss) = named[fleet], judge.means(fleet)
        return Tried(
            kind=key[0],
            fleet=fleet,
            base=base,
            spot=spot,
            cost_usd=cost_usd,
            miss_share=miss,
            keeps_limits=judge.keeps(fleet),
        )

    return Choice(
        best=told(first),
        kinds=tuple(map(told, best)),
        plans=judge.plans,
        days=CHECKS[-1],
        limits=limits,
        refined=best[first] not in planned.values(),
    )


class _Candidates(Iterable[tuple[Fleet, tuple[str, float, float]]]):
    """Fleets, each with its kind and the multiples of nominal demand that its parts are planned for."""

    def __init__(
        self,
        instance: Instance,
        planner: Planner,
        margin: float | None,
        running: np.ndarray | None,
        base_gpus: int,
    ):
        self._view, self._planner, self._margin, self._running = View(instance), planner, margin, running
        self._base_gpus = base_gpus
        self._spot = spot_pools(instance)
        self.has_spot = bool(self._spot.any()) and instance.dynamics.availability.kind != "constant"
        several = sorted({pool.gpu_type for pool in instance.pools if pool.cap_gpus})
        #: GPU types that are planned alone, too: where there are several, no spot, and the margin is free.
        self.types = several if margin is None and len(several) > 1 and not self.has_spot else []

    def __iter__(self) -> Iterator[tuple[Fleet, tuple[str, float, float]]]:
        if self._running is not None:
            yield tuple(self._running.tolist()), (RUNNING, 1.0, 0.0)
        if not self.has_spot:
            for margin in MARGINS if self._margin is None else (self._margin,):
                yield self._raised(self._plan(1.0 + margin, None)), (MARGIN, 1.0 + margin, 0.0)
            yield from self._alone()
            return
        nothing = (0,) * self._view.instance.num_configurations
        plans = {(False, 0.0): nothing, (True, 0.0): nothing}
        for base, spot in self._pairs():
            for is_spot, level in ((False, base), (True, spot)):
                if (is_spot, level) not in plans:
                    plans[is_spot, level] = self._plan(level, self._spot == is_spot)
            fleet = np.add(self._raised(plans[False, base]), plans[True, spot])
            if _is_wanted(self._view.actions, fleet):  # not if both parts want the same exclusive slot
                kind = MIX if base and spot else BASE if base else SPOT
                yield tuple(fleet.tolist()), (kind, base, spot)

    def _alone(self) -> Iterator[tuple[Fleet, tuple[str, float, float]]]:
        """Yield plans on one GPU type alone."""
        types = [pool.gpu_type if pool.cap_gpus else "" for pool in self._view.instance.pools]
        for gpu in self.types:
            for margin in MARGINS:
                fleet = self._raised(self._plan(1.0 + margin, np.array(types) == gpu))
                if any(fleet):
                    yield fleet, (ALONE, 1.0 + margin, 0.0)

    def _pairs(self) -> list[tuple[float, float]]:
        if self._margin is not None:
            level = 1.0 + self._margin
            return [(share * level, level - share * level) for share in SHARES]
        pairs = itertools.product((0.0, *LEVELS), repeat=2)
        return [(base, spot) for base, spot in pairs if base + spot >= _FEWEST and max(base, spot) > 0.0]

    def _raised(self, fleet: Fleet) -> Fleet:
        """Return a base with more of its commonest replicas, until it has as many GPUs as it has to have."""
        use = self._view.instance.gpu_use[~self._spot].sum(axis=0)
        most = int(np.argmax(np.where(use > 0, fleet, 0)))
        lacking = self._base_gpus - int(use @ fleet)
        if lacking <= 0 or not fleet[most]:
            return fleet
        raised = np.array(fleet)
        raised[most] += -(-lacking // int(use[most]))
        return tuple(raised.tolist()) if _is_wanted(self._view.actions, raised) else fleet

    def _plan(self, level: float, pools: np.ndarray | None) -> Fleet:
        fleet = self._planner.plan(window_to_plan(self._view, level - 1.0, pools)).fleet
        return tuple(int(y) for y in fleet)


class _Judge:
    """Compares fleets on equal days."""

    def __init__(self, held: HeldFleets, limits: Limits):
        self.held, self._limits = held, limits
        instance = held.instance
        unserved_usd = sum(w.rate_rps * w.unserved_usd for w in instance.workloads)
        # More than any fleet saves by missing more than it may.
        self._fine_usd = 1e3 * (1e-9 + unserved_usd * instance.window_s * instance.num_windows)
        self._seen: set[Fleet] = set()

    @property
    def plans(self) -> int:
        """How many fleets were compared."""
        return len(self._seen)

    def costs(self, fleet: Fleet, days: int) -> np.ndarray:
        self._seen.add(fleet)
        return self.held.days(fleet, days)[:, : len(COST_TERMS)].sum(axis=1)

    def means(self, fleet: Fleet) -> tuple[float, float]:
        """Return the mean cost in USD and the mean share that is missed, per day."""
        days = self.held.days(fleet, CHECKS[-1])
        return float(self.costs(fleet, CHECKS[-1]).mean()), float(days[:, MISSED].mean())

    def over(self, fleet: Fleet, days: int = CHECKS[-1], errors: float = _SAFE) -> float:
        """Return by how much a fleet misses more than it may; by default what that is below with 95 %."""
        return self._limits.missing(self.held.days(fleet, days), errors, self.held.instance)

    def keeps(self, fleet: Fleet) -> bool:
        return self.over(fleet) <= 0.0 and self.admits(fleet)

    def admits(self, fleet: Fleet) -> bool:
        return self._limits.admit(self.held.instance, np.array(fleet))

    def score(self, fleet: Fleet, days: int) -> float:
        """Return the mean cost of a day, with a fine for missing more than is allowed."""
        over = max(0.0, self.over(fleet, days))
        return float(self.costs(fleet, days).mean()) + self._fine_usd * over

    def beats(self, one: Fleet, other: Fleet) -> bool:
        """Return whether one fleet is better than another; it is given up early if it is clearly worse."""
        is_other_good = self.over(other) <= 0.0
        most = 0.0 if is_other_good else self.over(other, errors=0.0)
        for days in CHECKS[:-1]:
            if self.over(one, days, errors=-2.0) > most:
                return False
            extra = self.costs(one, days) - self.costs(other, days)
            if is_other_good and extra.mean() > 2.0 * extra.std() / np.sqrt(days):
                return False
        return self.score(one, CHECKS[-1]) < self.score(other, CHECKS[-1])


def _refine(instance: Instance, judge: _Judge, fleet: Fleet, used: np.ndarray) -> Fleet:
    """Return a fleet that no replica more or less, nor an exchange, makes better; `used` says of which kinds."""
    kinds, actions = np.flatnonzero(used), View(instance).actions
    one = np.eye(len(fleet), dtype=np.int64)
    moves = [sign * one[c] for c in kinds for sign in (1, -1)]
    moves += [
        more * one[add] - less * one[drop]
        for add, drop in itertools.permutations(kinds, 2)
        for more, less in _EXCHANGES
    ]

    def neighbours(of: Fleet) -> Iterator[Fleet]:
        for move in moves:
            changed = of + move
            found = tuple(int(y) for y in changed)
            if min(found) >= 0 and judge.admits(found) and _is_wanted(actions, changed):
                yield found

    for _ in range(_ROUNDS):
        better = next((other for other in neighbours(fleet) if judge.beats(other, fleet)), None)
        if better is None:
            break
        fleet = better
    return fleet


def _in_pools(instance: Instance, kind: str, fleet: Fleet) -> np.ndarray:
    """Return the configurations that a kind of plan may have, (C,) bool; one GPU type is that of the fleet."""
    if kind == ALONE:
        types = _types(instance, fleet)
        others = np.array([pool.gpu_type not in types for pool in instance.pools])
        return instance.gpu_use[others].sum(axis=0) == 0
    on_spot = instance.gpu_use[spot_pools(instance)].sum(axis=0) > 0
    return ~on_spot if kind == BASE else on_spot if kind == SPOT else np.ones_like(on_spot)


def _types(instance: Instance, fleet: Fleet) -> set[str]:
    """Return the GPU types that a fleet has."""
    held = instance.gpu_use @ np.array(fleet) > 0
    return {pool.gpu_type for pool, has in zip(instance.pools, held, strict=True) if has}


def _kind(instance: Instance, fleet: Fleet) -> str:
    """Return the kind of a fleet by the pools that it holds."""
    held, is_spot = instance.gpu_use @ np.array(fleet) > 0, spot_pools(instance)
    if not is_spot.any():
        return MARGIN
    has_base, has_spot = held[~is_spot].any(), held[is_spot].any()
    return MIX if has_base and has_spot else SPOT if has_spot else BASE


def _is_wanted(actions: ActionSpace, fleet: np.ndarray) -> bool:
    """Return whether an action asks for this fleet."""
    try:
        actions.check_fleet(fleet)
    except DataError:
        return False
    return True
