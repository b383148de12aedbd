"""Sample scenarios from an instance's processes: demand, supply, lengths and factors."""

from fleetgym.model.dynamics.scenario import ScenarioGenerator, draw_scenario

__all__ = ["ScenarioGenerator", "draw_scenario"]
