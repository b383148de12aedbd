"""Mélange (Griggs et al., arXiv:2404.14527): the cheapest GPUs for buckets of request sizes."""

from baselines.melange.allocation import Allocation, Workload, allocate, allocate_slices
from baselines.melange.planner import MelangePlanner, melange

__all__ = ["Allocation", "MelangePlanner", "Workload", "allocate", "allocate_slices", "melange"]
