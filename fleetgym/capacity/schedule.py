"""Schedule the GPUs to rent in each hour of a day or a week, and compute what they risk."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.registry import make_agent, make_planner
from fleetgym.agents.rolling import Rolling, Static
from fleetgym.agents.view import View
from fleetgym.capacity.choice import spot_pools, window_to_plan
from fleetgym.capacity.commitment import commitment_usd, committed
from fleetgym.capacity.risk import Progress, Risk, agent_risk, best_commitment, committed_risk, generated_days
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, load_instance
from fleetgym.model.planning import Plan, Planner, Snapshot
from fleetgym.model.scenario import Scenario

#: What is tried for a planner that plans anew every hour: shares planned without spot, and margins.
BASE_SHARES = (1.0, 0.75, 0.5, 0.0)
MARGINS = (0.1, 0.3, 0.6)
#: And more, if a limit on misses is asked for.
LIMITED_MARGINS = (*MARGINS, 1.0, 1.6)
WEEK = 7
_TRIED_DAYS = 3
_MEAN_OF = 50  # generated days


class Split:
    """Plans a share of the demand without spot, and the rest on spot alone.

    Parameters
    ----------
    planner : Planner
        Plans either part.
    base_share : float
        From 0 to 1.
    """

    def __init__(self, planner: Planner, base_share: float):
        self.planner, self.base_share = planner, base_share

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the sum of both plans."""
        is_spot = spot_pools(snapshot.instance)
        fleet = np.zeros(snapshot.instance.num_configurations, dtype=np.int64)
        for share, pools in ((self.base_share, ~is_spot), (1.0 - self.base_share, is_spot)):
            if share > 0.0:
                fleet += self.planner.plan(_part(snapshot, share, pools)).fleet
        return Plan(fleet=fleet)


def _part(snapshot: Snapshot, share: float, pools: np.ndarray) -> Snapshot:
    return dataclasses.replace(
        snapshot,
        rate_rps=share * snapshot.rate_rps,
        requests=share * snapshot.requests,
        route_usd=share * snapshot.route_usd,
        unserved_usd=share * snapshot.unserved_usd,
        available_gpus=np.where(pools, snapshot.available_gpus, 0),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """GPUs by hour of the mean day, or of a week; H hours, G pools."""

    agent: str
    base_share: float | None  # of demand that is planned without spot; None if the agent decides
    margin: float | None  # over the forecast; None if the agent decides
    rate_rps: np.ndarray  # (H,) mean of the hour
    gpus: np.ndarray  # (H, G) in the window of the hour whose rent is highest
    rent_usd_per_h: np.ndarray  # (H,) of these GPUs, commitments left out
    hours: float  # of an entry, 1 where windows allow
    days: int  # 1: the mean day; 7: those of the history, one after the other
    committed_gpus: np.ndarray  # (G,) reserved GPUs, paid all day
    commitment_usd: float  # per day
    risk: Risk | None  # of the agent, on generated days


def mean_day(instance: Instance, seed: int = 0) -> Scenario:
    """Return the day whose demand is the mean of generated days; nothing is lost, and all else is nominal.

    Examples
    --------
    >>> import fleetgym
    >>> mean_day(fleetgym.load_instance("fleet-v0/toy/drop")).id
    'mean-day'
    """
    rates = np.mean([day.rate_rps for day in generated_days(instance, _MEAN_OF, seed)], axis=0)
    return _calm_day(instance, "mean-day", np.broadcast_to(rates, (instance.num_windows, rates.shape[1])))


def _calm_day(instance: Instance, name: str, rate_rps: np.ndarray) -> Scenario:
    """Return a day of given demand in which nothing is lost, and all else is nominal."""
    nominal = Conditions.nominal(instance)
    rows = {name: np.atleast_2d(getattr(nominal, name)) for name in Conditions.FIELDS}
    return Scenario(id=name, **{**rows, "rate_rps": rate_rps})


def last_week(instance: Instance) -> list[Scenario]:
    """Return the last seven days of the history, the earliest first; nothing is lost, and all else is nominal.

    Raises
    ------
    FleetgymError
        If the history has fewer days, or is drawn and not measured: then its days differ by chance alone.
    """
    rates, day = instance.history.rate_rps, instance.num_windows
    hours = day * instance.window_s / 3600.0
    if abs(hours - 24.0) > 1e-9:
        raise FleetgymError(f"a week is of days, and an episode of this instance lasts {hours:g} h")
    if len(rates) < WEEK * day:
        raise FleetgymError(
            f"a week needs a history of {WEEK} days, and this instance has {len(rates) / day:.3g}: give a longer "
            "trace, or leave --week out"
        )
    calendar = None if instance.stated is None else instance.stated.calendar
    if calendar is not None and calendar.history in ("drawn", "stretched"):
        raise FleetgymError(
            "the trace is shorter than a day: its days are drawn, and differ by chance alone; leave --week out"
        )
    past = rates[-WEEK * day :].reshape(WEEK, day, -1)
    return [_calm_day(instance, f"day-{k + 1}", rate_rps) for k, rate_rps in enumerate(past)]


def make_schedule(
    instance: InstanceSource,
    agent: str = "agh",
    *,
    days: int = 100,
    seed: int = 0,
    week: bool = False,
    miss_at_most: float | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Schedule:
    """Let an agent play the mean day or the last week, and return what it holds by hour.

    An agent that plans once plans anew every hour here, on the forecast of the instance's own process. What share of
    demand is planned without spot, and with which margin, is chosen on three generated days with drops. Reserved GPUs
    are paid all day; how many is chosen in the same way.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    agent : str
        An agent that plans.
    days : int
        Generated days for the risk; 0 for none.
    seed : int
        Of the days.
    miss_at_most : float, optional
        Share of the requests that a planner's hourly plans may miss, on the days on which its margin is chosen.
    week : bool
        Play the last seven days of the history instead of the mean day, each from the fleet that the day before left.
    progress : callable, optional
        Given what is being done, returns what is called with the numbers of finished and of all steps.

    Returns
    -------
    Schedule

    Raises
    ------
    FleetgymError
        If there is no week, see `last_week`.
    """
    instance = load_instance(instance)
    made, planner = make_agent(agent), make_planner(agent)

    def bar(what: str) -> Progress | None:
        return None if progress is None else progress(what)

    played = last_week(instance) if week else None
    share = margin = None
    if isinstance(made, Static):
        made, share, margin = _best_hourly(instance, planner, seed, bar("choosing a margin"), miss_at_most)
    elif miss_at_most is not None:
        raise FleetgymError(f"{agent!r} plans by rules of its own, which know no limit on misses")
    fleet = planner.plan(window_to_plan(View(instance), margin or 0.0)).fleet
    gpus = best_commitment(instance, made, fleet, seed, bar("choosing a commitment"))
    paid = committed(instance, gpus)
    risk = committed_risk(instance, made, gpus, days, seed, bar("playing days")) if days else None
    rate, held, rent, hours = _play(paid, made, played or [mean_day(instance, seed)])
    return Schedule(
        agent=agent,
        base_share=share,
        margin=margin,
        rate_rps=rate,
        gpus=held,
        rent_usd_per_h=rent,
        hours=hours,
        days=WEEK if week else 1,
        committed_gpus=gpus,
        commitment_usd=commitment_usd(instance, gpus),
        risk=risk,
    )


def hourly_cost_usd(
    instance: Instance, planner: Planner, days: int, seed: int, progress: Progress | None = None
) -> float:
    """Return the mean cost of a day that is planned anew every hour: the first days of `fleetgym.fleet_risk`."""
    agent, _, margin = _best_hourly(instance, planner, seed, progress)
    fleet = planner.plan(window_to_plan(View(instance), margin)).fleet
    gpus = best_commitment(instance, agent, fleet, seed, None)
    return float(committed_risk(instance, agent, gpus, days, seed, None).cost_usd.mean())


def _best_hourly(
    instance: Instance,
    planner: Planner,
    seed: int,
    progress: Progress | None,
    miss_at_most: float | None = None,
) -> tuple[Agent, float, float]:
    """Return the agent that plans every hour whose days cost least, its share without spot and its margin.

    Raises
    ------
    FleetgymError
        If none misses as little as is asked for.
    """
    every = max(1, round(3600.0 / instance.window_s))
    shares = BASE_SHARES if spot_pools(instance).any() else BASE_SHARES[:1]
    options = list(itertools.product(shares, MARGINS if miss_at_most is None else LIMITED_MARGINS))
    found = []
    for done, (share, margin) in enumerate(options, start=1):
        agent = Rolling(Split(planner, share), every=every, forecaster="belief", margin=margin)
        risk = agent_risk(instance, agent, days=_TRIED_DAYS, seed=seed + 1_000_003)
        over = 0.0 if miss_at_most is None else max(0.0, float(risk.miss_share.mean()) - miss_at_most)
        found.append((over, float(risk.cost_usd.mean()), done, agent, share, margin))
        if progress is not None:
            progress(done, len(options))
    over, _, _, agent, share, margin = min(found, key=lambda option: option[:3])
    if over > 0.0:
        raise FleetgymError(
            f"no hourly plan that was tried misses at most {100 * (miss_at_most or 0.0):g} % of the requests: the best "
            f"misses {100 * over:.2f} % more; loosen the limit, raise caps, or hold a fleet (without --schedule)"
        )
    return agent, share, margin


def _play(
    instance: Instance, agent: Agent, days: Sequence[Scenario]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return rates (H,), GPUs (H, G) and rent (H,) by hour of all days, and how long an hour is."""
    every = max(1, round(3600.0 / instance.window_s))
    starts = np.arange(0, instance.num_windows, every)
    all_windows = np.arange(instance.num_windows)
    windows = np.diff(np.append(starts, instance.num_windows))
    rates, gpus, rents = [], [], []
    ready = np.atleast_2d(Conditions.nominal(instance).available_gpus)  # of what is committed
    for day in days:
        day = dataclasses.replace(day, available_gpus=ready)
        held, rent, last = _play_day(instance, agent, day)
        rates.append(np.add.reduceat(day.rate_rps.sum(axis=1), starts) / windows)
        dearest = [
            max(hour, key=lambda t: (rent[t], held[t].sum())) for hour in np.split(all_windows, starts[1:])
        ]
        gpus.append(held[dearest])
        rents.append(rent[dearest] * 3600.0 / instance.window_s)
        instance = instance.replace(nominal_fleet=last)
    hours = every * instance.window_s / 3600.0
    return np.concatenate(rates), np.concatenate(gpus), np.concatenate(rents), hours


def _play_day(instance: Instance, agent: Agent, day: Scenario) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return GPUs (T, G) and rent (T,) by window, and the fleet at the end (C,)."""
    from fleetgym.envs.day import play_day
    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    held, rent = [], []
    for _, _, info in play_day(FleetAllocEnv(instance), agent, day):
        held.append(instance.gpu_use @ info["held"])
        rent.append(info["rental"])
    return np.array(held), np.array(rent), np.asarray(info["held"], dtype=np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorthReserving:
    """GPUs of an on-demand pool that are held for equally many hours."""

    pool: str
    gpus: int
    hours: int
    below_usd_per_gpu_h: float  # a commitment, paid all day, saves money below this price


def worth_reserving(instance: Instance, schedule: Schedule) -> tuple[WorthReserving, ...]:
    """Return at which price of a commitment, paid all day, each on-demand GPU of a schedule would be cheaper."""
    found = []
    count = len(schedule.gpus)
    for g, pool in enumerate(instance.pools):
        if pool.market != "on-demand":
            continue
        held = schedule.gpus[:, g]
        used = [int((held >= k).sum()) for k in range(1, int(held.max(initial=0)) + 1)]
        for hours in dict.fromkeys(used):
            found.append(
                WorthReserving(
                    pool=pool.id,
                    gpus=used.count(hours),
                    hours=round(hours * schedule.hours),  # of all days
                    below_usd_per_gpu_h=pool.price_usd_per_gpu_h * hours / count,
                )
            )
    return tuple(found)
