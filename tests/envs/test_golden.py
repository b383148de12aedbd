"""Replays of `FleetAlloc-v0` that may not change: a new number needs a new version or a note in its history.

``python tests/envs/test_golden.py`` writes the file anew; do that only together with such a note.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from places import TESTS

import fleetgym
from fleetgym.model.conditions import Conditions
from fleetgym.model.window import window_model

GOLDEN = TESTS / "golden" / "fleet_alloc_v0.json"
TASKS = [*fleetgym.list_instances("fleet-v0/toy"), "fleet-v0/dev/ou-s-001", "fleet-v0/dev/drop-s-001"]


def replay(instance_id: str) -> list[float]:
    """Return the cost of every window of scenario 0 under a fixed sequence of actions."""
    instance = fleetgym.load_instance(instance_id)
    scenario = fleetgym.load_scenarios(instance_id)[0]
    space, model = fleetgym.ActionSpace(instance), window_model(instance)
    state, router, costs = model.initial_state(), model.new_router(), []
    action = space.from_fleet(instance.nominal_fleet)
    for t in range(min(48, instance.num_windows)):
        if t % 3 == 2:  # one slot after the other goes to another option
            slot = (t // 3) % action.size
            action[slot] = (action[slot] + 1 + t // 3) % space.nvec[slot]
        costs.append(model.step(state, space.to_fleet(action), Conditions.of(scenario, t), router).cost_usd)
    return costs


@pytest.mark.parametrize("instance_id", TASKS)
def test_costs_are_as_recorded(instance_id: str) -> None:
    """The instance is the recorded one and every window costs what it cost."""
    recorded = json.loads(GOLDEN.read_text())[instance_id]
    assert recorded["instance_hash"] == fleetgym.load_instance(instance_id).content_hash, (
        "the instance changed"
    )
    np.testing.assert_allclose(replay(instance_id), recorded["cost_usd"], rtol=1e-9, atol=1e-12)


if __name__ == "__main__":
    found = {
        name: {"instance_hash": fleetgym.load_instance(name).content_hash, "cost_usd": replay(name)}
        for name in TASKS
    }
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
