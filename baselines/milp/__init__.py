"""Exact optima: FastLLM's placement problem P_DM as a mixed-integer program, solved with HiGHS."""

from .milp_planner import MilpPlanner
from .problem import Modes

__all__ = ["MilpPlanner", "Modes"]
