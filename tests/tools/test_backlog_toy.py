"""The toy of `docs/backlog.md`: its dynamic program against enumeration, and the page against the program."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from places import ROOT

from tools import backlog_toy
from tools.backlog_toy import State, Toy

PAGE = ROOT / "docs" / "backlog.md"
SHORT = Toy(usd_by_window=(1.0, 4.0, 4.0, 1.0), most=2)


@pytest.mark.parametrize("deadline", [0, 1, 2])
def test_known_demand_is_solved_by_enumeration(deadline: int) -> None:
    """With demand that is certain, no sequence of actions is cheaper than the dynamic program."""
    toy = dataclasses.replace(SHORT, requests=((2, 1.0),), deadline=deadline)
    best = float("inf")
    every = [(kept, started) for kept in range(3) for started in range(3)]
    for sequence in itertools.product(every, repeat=toy.windows):
        state, cost = backlog_toy.start(toy), 0.0
        for action in sequence:
            if action not in backlog_toy.actions(toy, state):
                break
            usd, state = backlog_toy.play(toy, state, action, 2)
            cost += usd
        else:
            best = min(best, cost)
    assert backlog_toy.solve(toy)[0] == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("deadline", [0, 1, 2])
def test_the_policy_costs_what_the_program_says(deadline: int) -> None:
    """Played over all sequences of arrivals, the optimal policy has the value of the first state."""
    toy = dataclasses.replace(SHORT, deadline=deadline)
    _, policy = backlog_toy.program_of(toy)
    assert backlog_toy.expected(toy, policy) == pytest.approx(backlog_toy.solve(toy)[0], abs=1e-12)


def test_waiting_never_costs_more() -> None:
    """More patience is never dearer, and knowing the queue never worse than ignoring it."""
    best = [backlog_toy.solve(Toy(deadline=d))[0] for d in range(4)]
    assert all(later <= sooner + 1e-12 for sooner, later in itertools.pairwise(best))
    assert best[1] < best[0]
    toy = Toy(deadline=2)
    assert backlog_toy.solve(toy)[0] <= backlog_toy.expected(toy, backlog_toy.blind(toy)) + 1e-12


def test_deadlines_are_kept() -> None:
    """A request that came with two windows left is lost after the third window in which nobody served it."""
    toy = dataclasses.replace(Toy(), deadline=2)
    usd, state = backlog_toy.play(toy, State(0, 0, (0, 0)), (0, 0), 1)
    assert (usd, state.waiting) == (0.0, (0, 1))
    usd, state = backlog_toy.play(toy, state, (0, 0), 0)
    assert (usd, state.waiting) == (0.0, (1, 0))
    usd, state = backlog_toy.play(toy, state, (0, 0), 0)
    assert (usd, state.waiting) == (toy.lost_usd, (0, 0))


def test_the_page_has_what_the_program_prints(tmp_path: Path) -> None:
    """Its table is what the command writes."""
    copy = tmp_path / "backlog.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert backlog_toy.main(["--page", str(copy)]) == 0
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
