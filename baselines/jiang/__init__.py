"""Solve the problem of Jiang et al., ICML 2025: the fastest fleet for a budget, exactly and by the published search."""

from .jiang_planner import JiangPlanner, jiang

__all__ = ["JiangPlanner", "jiang"]
