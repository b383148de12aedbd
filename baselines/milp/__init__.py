"""Solve FastLLM's placement problem P_DM exactly, as a mixed-integer program with HiGHS."""

from .milp_planner import MilpPlanner
from .problem import Modes

__all__ = ["MilpPlanner", "Modes"]
