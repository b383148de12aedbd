"""What pytest does not collect for doctests: modules that need the extra `rl`, where it is not installed."""

from __future__ import annotations

import importlib.util

_NEEDS_RL = ["baselines/ppo/policy.py", "baselines/ppo/training.py", "fleetgym/envs/sb3.py"]

collect_ignore = [] if importlib.util.find_spec("sb3_contrib") else _NEEDS_RL
