"""From an instance's processes and a random generator to scenarios: demand, supply, lengths, factors."""

from fleetgym.model.dynamics.scenario import ScenarioGenerator, draw_scenario

__all__ = ["ScenarioGenerator", "draw_scenario"]
