"""Build serving templates: replicas of one model on several, possibly different, nodes.

Source: Mei et al., "Coral: Cost-Efficient Multi-LLM Serving over Heterogeneous Cloud GPUs",
arXiv:2605.04357, section 4.2. `generate` makes a library, `select` takes what an instance holds, `replicas` turns a
template into a configuration.
"""

from fleetgym.hardware.configurations.templates.library import Library, generate
from fleetgym.hardware.configurations.templates.plans import Plan, Stage, best_plan
from fleetgym.hardware.configurations.templates.selection import Chosen, select

__all__ = ["Chosen", "Library", "Plan", "Stage", "best_plan", "generate", "select"]
