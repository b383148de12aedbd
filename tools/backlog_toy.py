"""From a toy with deferrable requests to its optimal costs by deadline: the dynamic program of `docs/backlog.md`.

    python -m tools.backlog_toy
    python -m tools.backlog_toy --page docs/backlog.md

A request may wait at most D windows. A replica serves one request a window, and serves from the window after its grant.
Rent is cheap and dear by turns. What has waited too long is lost, for a penalty. A window brings two requests or none.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import rewrite, table
from fleetgym.runtime.programs import program

#: Requests that wait, by windows left: (0, ..., D - 1).
Waiting = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Toy:
    """The problem: prices by window, demand, penalty and limits."""

    usd_by_window: tuple[float, ...] = (1.0, 1.0, 4.0, 4.0, 1.0, 1.0, 4.0, 4.0)
    requests: tuple[tuple[int, float], ...] = ((0, 0.5), (2, 0.5))  # of a window, and how likely
    lost_usd: float = 9.0
    most: int = 3  # replicas
    deadline: int = 0  # windows that a request may wait

    @property
    def windows(self) -> int:
        """Length of the episode."""
        return len(self.usd_by_window)


@dataclasses.dataclass(frozen=True)
class State:
    """What an agent knows before a window."""

    window: int
    ready: int  # replicas that can serve
    waiting: Waiting


#: Replicas kept and replicas started.
Action = tuple[int, int]
Policy = Callable[[State], Action]


def smoke(folder: Path) -> int:
    """Print the table."""
    return main([])


def main(argv: list[str] | None = None) -> int:
    """Print optimal costs by deadline, or write them into a page."""
    parser = program(__doc__, writes="The page of --page, between its marks.", takes="Seconds.", smoke=smoke)
    parser.add_argument("--page", type=Path, help="write it there")
    arguments = parser.parse_args(argv)
    rows = []
    for deadline in range(4):
        toy = Toy(deadline=deadline)
        best, states = solve(toy)
        never = expected(toy, lambda state: (state.ready, max(0, 1 - state.ready)))
        today = expected(toy, blind(toy))
        rows.append([deadline, f"{best:.3f}", f"{today:.3f}", f"{never:.3f}", states])
    head = ["windows to wait", "optimum, USD", "optimum that ignores the queue", "one replica held", "states"]
    text = table(head, rows, 0)
    if arguments.page is None:
        print(text, end="")
    else:
        write_atomically(arguments.page, rewrite(arguments.page, text).encode())
    return 0


def actions(toy: Toy, state: State) -> list[Action]:
    """Return what can be done: keep some of the ready replicas, start others up to the limit."""
    return [
        (kept, started)
        for kept in range(state.ready + 1)
        for started in range(toy.most - kept + 1)
        if started == 0 or state.window + 1 < toy.windows
    ]


def play(toy: Toy, state: State, action: Action, arrived: int) -> tuple[float, State]:
    """Return what a window costs, and the state after it.

    The nearest deadline is served first. With one kind of request that is best, and a replica that is paid for never
    waits: both are why the queue is all there is to know.
    """
    kept, started = action
    queue = [*state.waiting, arrived]  # by windows left; those that just came have all D of them
    free = kept
    for k, count in enumerate(queue):
        served = min(count, free)
        queue[k], free = count - served, free - served
    lost, left = queue[0], queue[1:]
    if state.window + 1 == toy.windows:
        lost, left = sum(queue), [0] * len(left)
    usd = toy.usd_by_window[state.window] * (kept + started) + toy.lost_usd * lost
    return usd, State(state.window + 1, kept + started, tuple(left))


def start(toy: Toy) -> State:
    """Return the state before the first window."""
    return State(0, 0, (0,) * toy.deadline)


def solve(toy: Toy) -> tuple[float, int]:
    """Return the least expected cost, and how many states the dynamic program visits."""
    value, _ = program_of(toy)
    return value(start(toy)), value.cache_info().currsize  # type: ignore[attr-defined]


def program_of(toy: Toy) -> tuple[Callable[[State], float], Policy]:
    """Return the cost to go and the optimal policy."""

    def after(state: State, action: Action) -> float:
        total = 0.0
        for arrived, chance in toy.requests:
            usd, following = play(toy, state, action, arrived)
            total += chance * (usd + value(following))
        return total

    @functools.cache
    def value(state: State) -> float:
        if state.window == toy.windows:
            return 0.0
        return min(after(state, action) for action in actions(toy, state))

    def policy(state: State) -> Action:
        return min(actions(toy, state), key=lambda action: after(state, action))

    return value, policy


def blind(toy: Toy) -> Policy:
    """Return the optimal policy of the same toy in which nothing may wait, played here."""
    _, policy = program_of(dataclasses.replace(toy, deadline=0))
    return lambda state: policy(State(state.window, state.ready, ()))


def expected(toy: Toy, policy: Policy) -> float:
    """Return the expected cost of a policy, over every sequence of arrivals."""
    total = 0.0
    for sequence in itertools.product(toy.requests, repeat=toy.windows):
        state, chance, cost = start(toy), 1.0, 0.0
        for arrived, likely in sequence:
            usd, state = play(toy, state, policy(state), arrived)
            chance, cost = chance * likely, cost + usd
        total += chance * cost
    return total


if __name__ == "__main__":
    run_program(main)
