"""Test an agent of your own with pytest: ``pytest examples/test_my_agent.py``."""

import numpy as np
import pytest

import fleetgym


class MyAgent:
    """Keep the initial fleet, and one more replica in every slot."""

    def reset(self, view: fleetgym.View, *, seed: int) -> None:
        """Choose the action of the whole day."""
        action = view.fleet_to_action(view.fleet)
        self.action = np.minimum(action + 1, view.nvec - 1)

    def act(self, observation: dict, info: dict) -> np.ndarray:
        """Return it."""
        return self.action


@pytest.fixture(scope="module")
def results() -> fleetgym.Results:
    """Play the agent, and one to compare it with, on every toy."""
    return fleetgym.evaluate([MyAgent, "hold"], "fleet-v0/toy")


def test_it_never_fails(results: fleetgym.Results) -> None:
    """No exception, no invalid action, no time limit."""
    assert not results.failures, results.failures


def test_it_violates_fewer_slos(results: fleetgym.Results) -> None:
    """More capacity may cost more, but misses less."""
    mine, holding = results.to_frame().groupby("agent", sort=False).miss_share.mean()
    assert mine <= holding
    print(fleetgym.score(results))
