"""Solve Coral: the cheapest covering of throughput demand by serving templates, with a proven bound.

Source: Mei et al., "Coral: Cost-Efficient Multi-LLM Serving over Heterogeneous Cloud GPUs",
arXiv:2605.04357, section 4.3.
"""

from .allocator import Options, allocate
from .problem import Allocation, CoveringProblem, Running

__all__ = ["Allocation", "Options", "CoveringProblem", "Running", "allocate"]
