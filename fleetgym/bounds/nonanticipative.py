"""Prove a lower bound on the mean cost of every agent that does not know the future.

The page `docs/bounds.md` states the theorem and proves it. In short: the replicas H_t that may serve in window t were
decided on without what demand did in the last two windows, and without the drops that begin in t. So their operating
cost has the same mean with demand and drops that are *redrawn* given what was known then. Redrawn, each day is a linear
program, bounded by prices as in `fleetgym.bounds.hindsight`. The mean over days is the bound. It says nothing of a
single day.

(Brown, Smith and Sun, Information relaxations and duality in stochastic dynamic programs, Operations Research 2010.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fleetgym.agents.arguments import whole_at_least
from fleetgym.bounds.hindsight import horizon_bound, raised_rows
from fleetgym.bounds.redraws import Redraws, drops_are_redrawn, redraws_of
from fleetgym.bounds.relaxation import EpisodeRelaxation, Routing, relax, relax_window, with_losses
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics import ScenarioGenerator, draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, with_law
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import window_model

#: No configuration joins if a day's term could not gain more than this share: far below the standard error.
WORTHWHILE = 2e-3
_STREAM = 101  # of the days, apart from other uses of a seed


@dataclasses.dataclass(frozen=True, eq=False)
class NonanticipativeBound:
    """What the mean day costs at least without knowledge of the future."""

    days_usd: np.ndarray  # (days,) the bound's terms; only their mean bounds anything
    hindsight_usd: np.ndarray  # (days,) what each day costs at least with knowledge of it; no rounds
    raised_usd: np.ndarray  # (days,) the same with as many rounds as the bound itself
    scenarios: tuple[Scenario, ...]  # the days

    @property
    def mean_usd(self) -> float:
        """The bound on the mean cost of a day."""
        return float(self.days_usd.mean())

    @property
    def standard_error_usd(self) -> float:
        """Of the mean; nan for one day."""
        return (
            float(self.days_usd.std(ddof=1) / np.sqrt(self.days_usd.size))
            if self.days_usd.size > 1
            else np.nan
        )


def nonanticipative_bound(
    instance: InstanceSource,
    days: int = 30,
    *,
    samples: int = 4,
    seed: int = 0,
    solver: str = "ipx",
    rounds: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> NonanticipativeBound:
    """Return a lower bound on the mean cost of a day for any agent that does not know the future.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file. Its demand is of kind ``diurnal-ou``, ``weekly-ou`` or ``grw``.
    days : int
        Number of sampled days; day k is the same for any number.
    samples : int
        K, demands that are drawn anew for each window, besides one with drops. More give a higher bound and a larger
        program.
    seed : int
        Of the days and draws. The same arguments give the same numbers.
    solver : {"ipx", "hipo"}
        As for `hindsight_bound`.
    rounds : int
        How often planes below late penalties are raised, as for `hindsight_bound`.
    progress : callable, optional
        Called with the numbers of finished and of all days.

    Returns
    -------
    NonanticipativeBound

    Raises
    ------
    FleetgymError
        For demand whose law is not known, such as days of a history; and for lead 0 with configurations that need no
        start-up: who sees a window before the fleet is chosen has nothing to guess.

    Examples
    --------
    >>> found = nonanticipative_bound("fleet-v0/dev/ou-s-001", days=1, samples=1)
    >>> 0.0 < found.mean_usd
    True
    """
    whole_at_least(1, days=days, samples=samples)
    whole_at_least(0, seed=seed, rounds=rounds)
    instance = with_law(instance)
    found = []
    for k in range(days):
        found.append(bounded_day(instance, k, samples=samples, seed=seed, solver=solver, rounds=rounds))
        if progress is not None:
            progress(k + 1, days)
    return NonanticipativeBound(
        days_usd=np.array([day.term_usd for day in found]),
        hindsight_usd=np.array([day.hindsight_usd for day in found]),
        raised_usd=np.array([day.raised_usd for day in found]),
        scenarios=tuple(day.scenario for day in found),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class BoundedDay:
    """One day's part of the bound."""

    scenario: Scenario
    term_usd: float  # its mean over days bounds something; a single one does not
    hindsight_usd: float  # what the day costs at least with knowledge of it
    raised_usd: float  # the same after as many rounds


def bounded_day(
    instance: Instance, day: int, *, samples: int = 4, seed: int = 0, solver: str = "ipx", rounds: int = 1
) -> BoundedDay:
    """Return the part of `nonanticipative_bound` that belongs to a day; parameters are as there."""
    scenario, redraws = day_and_redraws(instance, day, samples, seed)
    problem = relax(instance, scenario)
    # Configurations that are worth their rent are found on the smaller program.
    hindsight, among = horizon_bound(problem, solver)
    higher, among = horizon_bound(raised_rows(problem, solver, among, rounds), solver, among)
    anew = raised_rows(redrawn(problem, scenario, redraws), solver, among, rounds)
    bound, _ = horizon_bound(anew, solver, among)
    return BoundedDay(scenario, bound.bound_usd, hindsight.bound_usd, higher.bound_usd)


def day_and_redraws(instance: Instance, day: int, samples: int, seed: int) -> tuple[Scenario, Redraws]:
    """Return a sampled day, and K independent redraws of the demand of each window."""

    def stream(*more: int) -> np.random.Generator:
        return np.random.default_rng([_STREAM, seed, day, *more])

    lost = ScenarioGenerator(instance).draw_drops(stream()) if drops_are_redrawn(instance) else None
    return (
        draw_scenario(instance, stream(), f"bound-{day}"),
        redraws_of(instance, stream(), samples, stream(1), lost),
    )


def redrawn(problem: EpisodeRelaxation, scenario: Scenario, redraws: Redraws) -> EpisodeRelaxation:
    """Return the relaxation of an episode whose demand and drops are drawn anew after the fleet is chosen."""
    instance = problem.instance
    is_ahead = all(c.startup_windows > 0 for c in instance.configurations)
    lag = instance.lead + is_ahead
    if lag == 0:
        raise FleetgymError(
            f"{instance.id}: with lead 0 and configurations that need no start-up every agent knows the window that "
            "it decides on; `hindsight_bound` bounds these"
        )
    model = window_model(instance)
    state = model.initial_state()
    windows, routings = list(problem.windows), []
    for t in range(instance.num_windows):
        conditions = Conditions.of(scenario, t)
        drawn = redraws.draw(t, lag)
        gpus = drawn.available_gpus
        draws = []
        for k, rate in enumerate(drawn.rate_rps):
            anew = {"rate_rps": rate} | ({} if gpus is None else {"available_gpus": gpus[k]})
            window = relax_window(model.snapshot(state, dataclasses.replace(conditions, **anew)))
            if gpus is not None:
                window = with_losses(window, problem.gpu_use, problem.windows[t - 1].available_gpus)
            draws.append(window)
        if gpus is not None:  # who is routed to held its GPUs in the window before
            most = np.maximum(problem.windows[t - 1].most, problem.windows[t].most)
            windows[t] = dataclasses.replace(problem.windows[t], most=most)
        routings.append(Routing(tuple(draws), drawn.weights))
    return dataclasses.replace(problem, windows=tuple(windows), routings=tuple(routings), is_ahead=is_ahead)
