"""Play one window: from a target fleet and conditions to the next state, costs and shares.

`play` is what single steps, previews and batches of episodes have in common: admission, serving replicas, routing,
tails, costs, and the passing of time (docs/model.md).
"""

import numpy as np

from fleetgym.kernels import admission, economics
from fleetgym.kernels.admission import (
    advance,
    clear,
    count_held,
    count_serving,
    extern_admit,
    is_settled,
)
from fleetgym.kernels.compile import always_inline, entry, extern, inline, jit
from fleetgym.kernels.economics import T_MODEL, T_RENTAL, T_STARTUP, extern_operate, new_scratch
from fleetgym.kernels.lowlevel import (
    WIDTH,
    borrow,
    load_first,
    spread,
    store_first,
)
from fleetgym.kernels.records import (
    EXAMPLE_CONDITIONS,
    EXAMPLE_FLEET,
    EXAMPLE_MEMORY,
    EXAMPLE_PACKED,
    Memory,
    PackedConditions,
    Played,
    unpack,
)
from fleetgym.kernels.routing import remap_basis
from fleetgym.kernels.routing_workload import new_basis

#: Rows of `Problem.budget`; a kind is 0 (none), 1 (so much per window) or 2 (so much for the whole episode).
BUDGET_KIND, BUDGET_USD = range(2)
NO_BUDGET, RATE_BUDGET, POOL_BUDGET = 0.0, 1.0, 2.0


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
        held=np.zeros(num_configurations, dtype=np.int64),
        routing=np.zeros((num_workloads, num_configurations)),
        usd=np.zeros((2, num_configurations)),
        numbers=np.zeros((3, max(num_configurations, num_pools)), dtype=np.int64),
        scratch=new_scratch(num_workloads, num_configurations),
    )


@inline
def budget_usd(budget, spent_usd):
    """Return the most that holding the fleet may cost in the coming window; inf without a budget."""
    kind, usd = budget[BUDGET_KIND], budget[BUDGET_USD]
    if kind == NO_BUDGET:
        return np.inf
    return usd if kind == RATE_BUDGET else max(0.0, usd - spent_usd)


@always_inline
def _fill_rent(problem, price, rent_usd, hold_usd):
    """Write the rent of one replica in a window, (C,), and the rent with model storage."""
    for first in range(0, rent_usd.shape[0], WIDTH):
        some, total = rent_usd.shape[0] - first, spread(0.0)
        for g in range(price.shape[0]):
            rental_usd = load_first(problem.rental_usd, g * rent_usd.shape[0] + first, some)
            total = total + rental_usd * spread(price[g])
        store_first(rent_usd, first, total, some)
        store_first(hold_usd, first, total + load_first(problem.model_storage_usd, first, some), some)


@inline
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


@inline
def serve(packed, conditions, memory):
    """Route one window's demand over `Played.serving` and charge for it; return the status of the routing."""
    _, _, played = unpack(packed)
    active = played.numbers[1]
    active = active[: _prepare(memory, played.serving, active)]
    return extern_operate(packed, conditions.workload, active, memory.basis)


def hold(packed, conditions, target, first, spent_usd, fleet):
    """Let one window happen but for the routing: all of `play` that demand does not change.

    Writes `Played.serving`, and the terms of holding and starting.

    Returns
    -------
    forced_outages : int
    spent_usd : float
        As of `play`.
    """
    problem, _, played = unpack(packed)
    count, rent_usd, hold_usd = fleet.shape[0], played.usd[0], played.usd[1]
    _fill_rent(problem, conditions.price, rent_usd, hold_usd)
    pays_fees = problem.budget[BUDGET_KIND] == POOL_BUDGET
    limit_usd, forced_outages, fees_usd = budget_usd(problem.budget, spent_usd), 0, 0.0
    held = played.held
    count_held(fleet, held)
    if is_settled(target, fleet, held, problem.gpu_use, conditions.available, hold_usd, limit_usd):
        clear(played.moves)
    else:
        forced_outages, fees_usd = extern_admit(
            target,
            fleet,
            played.moves,
            problem.order,
            problem.slot_start,
            problem.slot_exclusive,
            problem.gpu_use,
            conditions.available,
            played.numbers[2],
            hold_usd,
            problem.startup_usd,
            problem.startup_windows,
            first,
            limit_usd,
            pays_fees,
        )
        count_held(fleet, held)
    count_serving(fleet, played.serving)
    rental_usd = storage_usd = 0.0
    for c in range(count):
        rental_usd += held[c] * rent_usd[c]
        storage_usd += held[c] * problem.model_storage_usd[c]
    played.terms_usd[T_RENTAL] = rental_usd
    played.terms_usd[T_MODEL] = storage_usd
    played.terms_usd[T_STARTUP] = fees_usd
    advance(fleet)
    if pays_fees:
        spent_usd += rental_usd + storage_usd + fees_usd
    return forced_outages, spent_usd


extern_hold = extern(
    hold, (0, 0.0), EXAMPLE_PACKED, EXAMPLE_CONDITIONS, EXAMPLE_PACKED, False, 0.0, EXAMPLE_FLEET
)


def play(packed, conditions, target, first, spent_usd, fleet, memory):
    """Let one window happen.

    Parameters
    ----------
    packed : (W,) int64
        Words of `records.pack_problem`: the instance, and what is overwritten.
    conditions : PackedConditions
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

    Returns
    -------
    status : int
        Of the routing: 0 is optimal.
    forced_outages : int
        Replicas that gave way to one that does not serve yet.
    spent_usd : float
        With this window.
    """
    forced_outages, spent_usd = extern_hold(packed, conditions, target, first, spent_usd, fleet)
    return serve(packed, conditions, memory), forced_outages, spent_usd


extern_play = extern(
    play,
    (0, 0, 0.0),
    EXAMPLE_PACKED,
    EXAMPLE_CONDITIONS,
    EXAMPLE_PACKED,
    False,
    0.0,
    EXAMPLE_FLEET,
    EXAMPLE_MEMORY,
)


@jit
def play_from_python(packed, basis, active, workload, available, price, target, first, spent_usd, fleet):
    """Call `play` from Python, with the fields of `Memory` and of `PackedConditions`."""
    conditions, memory = borrow(PackedConditions(workload, available, price)), borrow(Memory(basis, active))
    return extern_play(packed, conditions, target, first, spent_usd, fleet, memory)


@jit
def serve_from_python(packed, basis, active, workload, available, price):
    """Call `serve` from Python, with the fields of `Memory` and of `PackedConditions`."""
    conditions, memory = borrow(PackedConditions(workload, available, price)), borrow(Memory(basis, active))
    return serve(borrow(packed), conditions, memory)


_FROM_PYTHON = (EXAMPLE_PACKED, *EXAMPLE_MEMORY, *EXAMPLE_CONDITIONS)
entry(play_from_python, *_FROM_PYTHON, EXAMPLE_PACKED, False, 0.0, EXAMPLE_FLEET)
entry(serve_from_python, *_FROM_PYTHON)
