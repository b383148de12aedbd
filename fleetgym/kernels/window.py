"""One window as a whole: target fleet and outcome in; the fleet after it, its costs and its shares out.

`Problem` holds an instance as arrays. `play` is what single steps, previews and batches of episodes have in
common: admission, serving replicas, routing, tails, costs, and the passing of time (docs/model.md).
"""

from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels import admission, economics
from fleetgym.kernels.admission import advance, count_serving, distant_admit
from fleetgym.kernels.compile import inner, jit, separate
from fleetgym.kernels.economics import T_MODEL, T_RENTAL, T_STARTUP, Packed, operate
from fleetgym.kernels.frozen import Freezer
from fleetgym.kernels.profile import ADMISSION, DYNAMICS, lap
from fleetgym.kernels.routing import remap_basis
from fleetgym.kernels.routing_data import Workspace, new_basis, new_workspace

#: Rows of `Problem.budget`; a kind is 0 (none), 1 (so much per window) or 2 (so much for the whole episode).
BUDGET_KIND, BUDGET_USD = range(2)
NO_BUDGET, RATE_BUDGET, POOL_BUDGET = 0.0, 1.0, 2.0


class Problem(NamedTuple):
    """An instance as arrays; in a batch each array has one more axis in front, for the instances."""

    packed: Packed
    order: np.ndarray  # (C,) int64 configurations by rank
    slot_start: np.ndarray  # (S + 1,) int64 where each slot begins in `order`
    slot_exclusive: np.ndarray  # (S,) bool
    gpu_use: np.ndarray  # (G, C) int64
    rental_usd: np.ndarray  # (G, C) rent of one replica in a window at price factor 1
    model_storage_usd: np.ndarray  # (C,) per replica and window
    startup_usd: np.ndarray  # (C,)
    startup_windows: np.ndarray  # (C,) int64
    budget: np.ndarray  # (2,) kind and USD


class Outcomes(NamedTuple):
    """What windows bring; the first axis, where there is one, counts windows."""

    workload: np.ndarray  # (5, I) rates and factors, rows as in `economics`
    available: np.ndarray  # (G,) int64 GPUs
    price: np.ndarray  # (G,) factors on list prices


class Memory(NamedTuple):
    """Warm start of the routing: what it holds changes the speed, not the result."""

    basis: np.ndarray  # from `new_basis`
    active: np.ndarray  # (C + 1,) int64: how many configurations the basis is for, and which


class Played(NamedTuple):
    """Arrays that `play` overwrites with what happened."""

    terms_usd: np.ndarray  # (8,) in the order of `economics.TERMS`
    share: np.ndarray  # (2, I) unserved; missed: unserved or late
    moves: np.ndarray  # (5, C) int64, rows as in `admission`
    serving: np.ndarray  # (C,) int64 replicas that served
    routing: np.ndarray  # (I, C) share of each workload on each configuration; (I, 0) to leave it out
    usd: np.ndarray  # (2, C) rent of one replica, and what it pays in all, in this window
    numbers: np.ndarray  # (3, max(C, G)) int64 work space: target, active configurations, GPUs held


def new_memory(num_workloads: int, num_configurations: int) -> Memory:
    """Return a memory that knows nothing."""
    active = np.zeros(num_configurations + 1, dtype=np.int64)
    return Memory(new_basis(num_workloads, num_configurations), active)


def new_played(num_workloads: int, num_configurations: int, num_pools: int) -> Played:
    """Return arrays for `play` to write to."""
    return Played(
        terms_usd=np.zeros(len(economics.TERMS)),
        share=np.zeros((2, num_workloads)),
        moves=np.zeros((admission.NUM_MOVES, num_configurations), dtype=np.int64),
        serving=np.zeros(num_configurations, dtype=np.int64),
        routing=np.zeros((num_workloads, num_configurations)),
        usd=np.zeros((2, num_configurations)),
        numbers=np.zeros((3, max(num_configurations, num_pools)), dtype=np.int64),
    )


def _example_problem() -> Problem:
    """Return a problem in its types, which do not depend on the size."""
    plane, whole = np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
    packed = Packed(
        performance=np.zeros((economics.NUM_PLANES, 1, 1)),
        workload=np.zeros((economics.NUM_WORKLOAD_ROWS, 1)),
        configuration=np.zeros((economics.NUM_CONFIGURATION_ROWS, 1)),
        segment_offset=whole,
        segment=np.zeros((1, 7)),
        clock=np.zeros(2),
    )
    flags, money = np.zeros(1, dtype=np.bool_), np.zeros(1)
    use = np.zeros((1, 1), dtype=np.int64)
    return Problem(packed, whole, whole, flags, use, plane, money, money, whole, money)


def example_arguments() -> tuple[Any, ...]:
    """Return arguments of `play` in their types."""
    whole, example = np.zeros(1, dtype=np.int64), _example_problem()
    outcome = Outcomes(np.zeros((1, 1)), whole, np.zeros(1))
    return (
        *(example, outcome, whole, False, 0.0, np.zeros((1, 1), dtype=np.int64), new_memory(1, 1)),
        *(new_workspace(1, 1), new_played(1, 1, 1)),
    )


@inner
def budget_usd(budget, spent_usd):
    """Return the most that holding the fleet may cost in the coming window; inf without a budget."""
    kind, usd = budget[BUDGET_KIND], budget[BUDGET_USD]
    if kind == NO_BUDGET:
        return np.inf
    return usd if kind == RATE_BUDGET else max(0.0, usd - spent_usd)


@inner
def _fill_rent(rental_usd, price, rent_usd):
    """Write the rent of one replica in a window, (C,)."""
    for c in range(rental_usd.shape[1]):
        rent_usd[c] = 0.0
    for g in range(rental_usd.shape[0]):
        factor = price[g]
        for c in range(rental_usd.shape[1]):
            rent_usd[c] += rental_usd[g, c] * factor


@inner
def _prepare(memory, serving, active):
    """Carry the warm start over to the configurations that serve; write them, and return their number."""
    basis, known = memory.basis, memory.active
    count = 0
    for c in range(serving.shape[0]):
        if serving[c] > 0:
            active[count] = c
            count += 1
    same = known[0] == count
    for k in range(count):
        same = same and known[k + 1] == active[k]
    if not same:
        remap_basis(basis, known[1 : known[0] + 1], active[:count])
        known[0] = count
        for k in range(count):
            known[k + 1] = active[k]
    return count


def _operate_arguments() -> tuple[Any, ...]:
    problem, outcome, whole, _, _, _, memory, work, played = example_arguments()
    money = (played.terms_usd, played.share[0], played.share[1], played.routing)
    return problem.packed, outcome.workload, whole, whole, memory.basis, work, *money


_distant_operate = separate(operate, *_operate_arguments())


@jit(no_cpython_wrapper=True)
def serve(problem, outcome, serving, memory, work, played):
    """Route one window's demand over serving replicas and charge for it; return the status of the routing."""
    active = played.numbers[1]
    active = active[: _prepare(memory, serving, active)]
    for i in range(played.routing.shape[0]):
        for c in range(played.routing.shape[1]):
            played.routing[i, c] = 0.0
    return _distant_operate(
        problem.packed,
        outcome.workload,
        serving,
        active,
        memory.basis,
        work,
        played.terms_usd,
        played.share[0],
        played.share[1],
        played.routing,
    )


distant_serve = separate(serve, *(example_arguments()[k] for k in (0, 1, 2, 6, 7, 8)))


@jit(no_cpython_wrapper=True)
def play(problem, outcome, target, first, spent_usd, fleet, memory, work, played):
    """Let one window happen.

    Parameters
    ----------
    problem : Problem
    outcome : Outcomes
        Of this window.
    target : (C,) int64
        The fleet wanted.
    first : bool
        Whether this is window 0, whose grants serve at once.
    spent_usd : float
        What a budget for the whole episode has paid.
    fleet : (C, 1 + 2K) int64, modified in place
        State as in `admission`; afterwards it stands before the next window.
    memory : Memory
        Modified in place.
    work : Workspace
        Overwritten.
    played : Played
        Overwritten.

    Returns
    -------
    status : int
        Of the routing: 0 is optimal.
    forced_outages : int
        Replicas that gave way to one that does not serve yet.
    spent_usd : float
        With this window.
    """
    count, rent_usd, hold_usd = fleet.shape[0], played.usd[0], played.usd[1]
    _fill_rent(problem.rental_usd, outcome.price, rent_usd)
    for c in range(count):
        hold_usd[c] = rent_usd[c] + problem.model_storage_usd[c]
    pays_fees = problem.budget[BUDGET_KIND] == POOL_BUDGET
    forced_outages, fees_usd = distant_admit(
        target,
        fleet,
        played.moves,
        problem.order,
        problem.slot_start,
        problem.slot_exclusive,
        problem.gpu_use,
        outcome.available,
        played.numbers[2],
        hold_usd,
        problem.startup_usd,
        problem.startup_windows,
        first,
        budget_usd(problem.budget, spent_usd),
        pays_fees,
    )
    lap(work.ticks, ADMISSION)
    count_serving(fleet, played.serving)
    rental_usd = storage_usd = 0.0
    for c in range(count):
        held = 0
        for k in range(fleet.shape[1]):
            held += fleet[c, k]
        rental_usd += held * rent_usd[c]
        storage_usd += held * problem.model_storage_usd[c]
    lap(work.ticks, DYNAMICS)
    status = distant_serve(problem, outcome, played.serving, memory, work, played)
    played.terms_usd[T_RENTAL] = rental_usd
    played.terms_usd[T_MODEL] = storage_usd
    played.terms_usd[T_STARTUP] = fees_usd
    advance(fleet)
    lap(work.ticks, DYNAMICS)
    if pays_fees:
        spent_usd += rental_usd + storage_usd + fees_usd
    return status, forced_outages, spent_usd


distant_play = separate(play, *example_arguments())

_freezer = Freezer(*(example_arguments()[k] for k in (0, 6, 7, 8)))
_thaw: Any = _freezer.thaw


def freeze(problem: Problem, memory: Memory, work: Workspace, played: Played) -> np.ndarray:
    """Return the note that `play_noted` and `serve_noted` take for what they work on."""
    return _freezer.freeze(problem, memory, work, played)


@jit
def play_noted(note, workload, available, price, target, first, spent_usd, fleet):
    """Call `play` from Python, with the fields of `Outcomes` and what `freeze` noted."""
    problem, memory, work, played = _thaw(note)
    outcome = Outcomes(workload, available, price)
    return distant_play(problem, outcome, target, first, spent_usd, fleet, memory, work, played)


@jit
def serve_noted(note, workload, available, price, serving):
    """Call `serve` from Python, with the fields of `Outcomes` and what `freeze` noted."""
    problem, memory, work, played = _thaw(note)
    return distant_serve(problem, Outcomes(workload, available, price), serving, memory, work, played)
