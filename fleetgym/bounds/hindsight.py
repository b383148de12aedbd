"""Prove a lower bound on every agent's cost for a known scenario: prices are found, and certified."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fleetgym.agents.arguments import one_of, whole_at_least
from fleetgym.bounds.certificate import (
    Lives,
    WindowPrices,
    affordable,
    affordable_shares,
    certified_usd,
    cheapest_lives,
    clipped,
    limits_usd,
    serving_price_usd,
    window_value_usd,
    with_capacity_for,
)
from fleetgym.bounds.horizon import SOLVERS, HorizonProgram, HorizonSolution, likely_configurations
from fleetgym.bounds.raised import raised
from fleetgym.bounds.relaxation import EpisodeRelaxation, WindowRelaxation, relax
from fleetgym.bounds.window import Effort, WindowProgram
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario

#: Distance of the windows that guess which configurations matter; the others are priced in.
GUESS_EVERY = 6
#: The linear program is solved at most so often, with more configurations each time.
MAX_PRICINGS = 6
#: No configuration joins a day that is known if the bound could not gain more than this share.
WORTHWHILE = 1e-3


#: Tolerance of a solution that says where planes are too low: prices on the way say it better than the best ones.
ROUGH = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class HindsightBound:
    """What an episode costs at least."""

    bound_usd: float  # no agent's cost is below
    serving: np.ndarray  # (T, C) replicas in the relaxation: a hint; whole only if `method` is "windows"
    method: str  # "windows": each alone, whole fleets; "horizon": one linear program


def hindsight_bound(
    instance: Instance,
    scenario: Scenario,
    *,
    effort: Effort | None = None,
    solver: str = "ipx",
    rounds: int = 1,
) -> HindsightBound:
    """Return a lower bound on the cost of an episode for anybody, even one who knows the scenario.

    Rent, model storage, start-up fees and delays, availability, budgets, routing with its SLO penalties and what is
    not served are included. The late penalty that depends on load is neither linear nor convex. Planes below it are
    included, see `fleetgym.bounds.late`.

    Where one window depends on another, replicas need not be whole: the bound is that of a linear program over the
    episode. Where none does, it is the sum over windows of mixed-integer programs, as of `windows_bound`.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
    effort : Effort, optional
        Of each mixed-integer program.
    solver : {"ipx", "hipo"}
        HiGHS' interior-point method for the episode's linear program. ``"hipo"`` takes half the time on large programs
        and needs ``pip install fleetgym[bounds]``. Bounds differ by less than `WORTHWHILE`.
    rounds : int
        How often planes below late penalties are raised before the program is solved; see `raised_rows`.

    Returns
    -------
    HindsightBound

    Raises
    ------
    FleetgymError
        If there is no such solver.

    Notes
    -----
    A Lagrangean bound, see `fleetgym.bounds.certificate`: it is evaluated in floating point from prices, not read off
    a solver, and rounded down.

    Examples
    --------
    >>> import fleetgym
    >>> scenario, = fleetgym.load_scenarios("fleet-v0/toy/two-pools")
    >>> found = hindsight_bound(fleetgym.load_instance("fleet-v0/toy/two-pools"), scenario)
    >>> 13.9 < found.bound_usd <= 14.0
    True
    """
    one_of(SOLVERS, solver=solver)
    whole_at_least(0, rounds=rounds)
    problem = relax(instance, scenario)
    if problem.is_separable:
        return _windows_bound(problem, effort)
    among = likely_configurations(problem, GUESS_EVERY)
    return horizon_bound(raised_rows(problem, solver, among, rounds), solver, among)[0]


def windows_bound(instance: Instance, scenario: Scenario, *, effort: Effort | None = None) -> HindsightBound:
    """Return a lower bound on the cost of an episode in which fleets could change at once and for nothing.

    Parameters
    ----------
    instance, scenario, effort
        As for `hindsight_bound`.

    Returns
    -------
    HindsightBound
        The sum of the windows' least costs, each of them with a whole fleet. That of a solver is its dual bound
        less what its tolerances may add up to.
    """
    return _windows_bound(relax(instance, scenario), effort)


def _windows_bound(problem: EpisodeRelaxation, effort: Effort | None) -> HindsightBound:
    exclusive = problem.exclusive if problem.drain_windows == 0 else ()
    found = [
        WindowProgram(window, problem.gpu_use, problem.rate_budget_usd, exclusive).minimum(
            window.hold_usd, effort or Effort()
        )
        for window in problem.windows
    ]
    values = np.array([bound.bound_usd for bound in found])
    serving = np.array([bound.fleet for bound in found], dtype=float)
    return HindsightBound(certified_usd(values, 0.0, 0.0), serving, "windows")


def horizon_bound(
    problem: EpisodeRelaxation, solver: str, among: np.ndarray | None = None
) -> tuple[HindsightBound, np.ndarray]:
    """Solve the linear program, let worthwhile configurations join, and certify what comes out.

    Parameters
    ----------
    problem : EpisodeRelaxation
    solver : str
    among : ndarray of int, optional
        Configurations to begin with, ascending; by default a guess.

    Returns
    -------
    HindsightBound
    ndarray of int
        Configurations that took part at last.
    """
    everything = np.arange(problem.max_replicas.size)
    among = likely_configurations(problem, GUESS_EVERY) if among is None else among
    best = 0.0
    for _ in range(MAX_PRICINGS):
        solution = HorizonProgram(problem, among).solve(solver)
        outside = np.setdiff1d(everything, among)
        bound, lives = _certify(problem, solution, outside)
        best = max(best, bound)
        missed = lives.unused_usd[outside] * problem.max_replicas[outside]
        if bound >= (1.0 - WORTHWHILE) * solution.cost_usd or not (missed < 0.0).any():
            break
        among = np.union1d(among, outside[missed < 0.0])
    return HindsightBound(best, solution.serving, "horizon"), among


def raised_rows(problem: EpisodeRelaxation, solver: str, among: np.ndarray, rounds: int) -> EpisodeRelaxation:
    """Return the relaxation with higher planes below late penalties: those that its own prices ask for.

    Parameters
    ----------
    problem : EpisodeRelaxation
    solver : str
    among : ndarray of int, shape (n,)
        Configurations whose planes are raised.
    rounds : int
        How often.
    """
    for _ in range(rounds):
        problem = raised(problem, HorizonProgram(problem, among).solve(solver, ROUGH).windows, among)
    return problem


def _certify(
    problem: EpisodeRelaxation, solution: HorizonSolution, outside: np.ndarray
) -> tuple[float, Lives]:
    """Return the bound that a solution's prices prove, and the lives of configurations outside the program.

    Those are paid so much that routing to them gains nothing. Where their replicas would live well on that, a second
    bound pays them less, and counts what the routes to them gain.
    """
    prices = _of_draws(
        problem,
        solution.windows,
        lambda window, found: with_capacity_for(window, clipped(window, found), outside),
    )
    bound, lives, paid = _bound(problem, solution, prices)
    if outside.size and (lives.unused_usd[outside] < 0.0).any():
        share = affordable_shares(problem, solution.shared, paid, outside)
        less = _of_draws(problem, prices, lambda window, found: affordable(window, found, share, outside))
        bound = max(bound, _bound(problem, solution, less)[0])
    return bound, lives


_Draws = tuple[tuple[WindowPrices, ...], ...]


def _of_draws(
    problem: EpisodeRelaxation,
    prices: _Draws,
    change: Callable[[WindowRelaxation, WindowPrices], WindowPrices],
) -> _Draws:
    """Return changed prices of every draw of every window."""
    pairs = zip(problem.routings, prices, strict=True)
    return tuple(tuple(map(change, routing.draws, found)) for routing, found in pairs)


def _bound(
    problem: EpisodeRelaxation, solution: HorizonSolution, prices: _Draws
) -> tuple[float, Lives, np.ndarray]:
    """Return the bound that valid prices prove, the lives, and what replicas that are routed to are paid, (T, C)."""
    values, paid = [], []
    for routing, found in zip(problem.routings, prices, strict=True):
        each = [window_value_usd(window, p) for window, p in zip(routing.draws, found, strict=True)]
        values.append(float(routing.weights @ each))
        pay = [serving_price_usd(window, p) for window, p in zip(routing.draws, found, strict=True)]
        paid.append(routing.weights @ pay)
    lives = cheapest_lives(problem, solution.shared, np.array(paid))
    limits = limits_usd(problem, solution.shared)
    return certified_usd(np.array(values), lives.total_usd, limits), lives, np.array(paid)
