"""Exact optima: FastLLM's placement problem P_DM as a mixed-integer program, solved with HiGHS."""

from baselines.milp.planner import MilpPlanner, milp
from baselines.milp.problem import Modes

__all__ = ["MilpPlanner", "Modes", "milp"]
