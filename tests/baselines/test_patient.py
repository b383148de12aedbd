"""`patient` searches as `lookahead` does, in as few windows as it says, and at once when something has changed."""

from __future__ import annotations

import numpy as np
import pytest
from test_agents import demand, play
from toys import configuration, make_instance, pool

from fleetgym.baselines.lookahead import Lookahead
from fleetgym.baselines.patient import Patient
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance, load_scenarios


@pytest.fixture
def toy() -> Instance:
    """Return one pool and one configuration."""
    return make_instance([pool("p", 8)], [configuration("a", {"p": 1}, max_replicas=8)])


def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the windows of searches, as they come."""
    found: list[int] = []
    searched = Lookahead.act

    def note(self: Lookahead, *arguments: object) -> np.ndarray:
        found.append(self.view.window)
        return searched(self, *arguments)

    monkeypatch.setattr(Lookahead, "act", note)
    return found


def test_a_search_in_every_window_is_lookahead() -> None:
    """The same targets from the same seed and as many paths."""
    task = "fleet-v1/dev/ou-s-101"
    instance, scenario = load_instance(task), load_scenarios(task)[0]
    mine = play(Patient(every=1, paths=15), instance, scenario)[0]
    assert mine == play(Lookahead(), instance, scenario)[0]


def test_still_demand_is_searched_every_so_many_windows(
    toy: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing calls for more."""
    found = searches(monkeypatch)
    play(Patient(every=4), toy, demand(toy, [toy.workloads[0].rate_rps]))
    assert found == list(range(0, toy.num_windows, 4))


@pytest.mark.parametrize(("factor", "expected"), [(1.4, [0, 6]), (1.3, [0])])
def test_a_rate_that_moves_calls_for_a_search(
    toy: Instance, monkeypatch: pytest.MonkeyPatch, factor: float, expected: list[int]
) -> None:
    """In the window after it was seen; a smaller move does not."""
    found, usual = searches(monkeypatch), toy.workloads[0].rate_rps
    play(Patient(every=1000, surprise=0.3), toy, demand(toy, [usual] * 5 + [usual * factor]))
    assert found == expected
