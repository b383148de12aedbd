"""Every stored task of `fleet-v0` costs the same in the environment and in the reference evaluator."""

from __future__ import annotations

import pytest
from episodes_twin import compare_episode

from fleetgym import load_instance, load_scenarios
from fleetgym.model.library import list_tasks


@pytest.mark.full
@pytest.mark.parametrize(("name", "scenario"), list_tasks("fleet-v0"))
def test_the_reference_evaluator_agrees(name: str, scenario: int) -> None:
    """Each window of the whole day, under random actions, to 1e-9 of its cost."""
    windows = load_instance(name).num_windows
    compare_episode(name, load_scenarios(name)[scenario], windows, seed=scenario)
