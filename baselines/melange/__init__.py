"""Solve Mélange (Griggs et al., arXiv:2404.14527): the cheapest GPUs for buckets of request sizes."""

from .allocation import Allocation, Workload, allocate
from .melange_planner import MelangePlanner, melange

__all__ = ["Allocation", "MelangePlanner", "Workload", "allocate", "melange"]
