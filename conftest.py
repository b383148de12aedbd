"""What pytest does not collect for doctests: modules that need the extra `rl`, where it is not installed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

_LEARNS = re.compile(r"^(import torch|from (stable_baselines3|sb3_contrib)\b)", re.MULTILINE)
_ROOT = Path(__file__).parent


def _need_rl() -> list[str]:
    """Return the modules that import a learning library at their top, relative to the root."""
    paths = [path for folder in ("fleetgym", "baselines") for path in (_ROOT / folder).rglob("*.py")]
    return [str(p.relative_to(_ROOT)) for p in paths if _LEARNS.search(p.read_text(encoding="utf-8"))]


collect_ignore = [] if importlib.util.find_spec("sb3_contrib") else _need_rl()
