"""List an agent's settings: at most a hundred points of one grid.

The grid is over the arguments of `fleetgym.agents.rolling.Rolling`, the wrapper that every planner runs through, and
the same for all agents. An agent that plans once takes a margin only; one that is no planner has a grid of its own,
or none.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.agents.registry import make_agent
from fleetgym.agents.rolling import Rolling, Static

Grid = Mapping[str, Sequence[Any]]

MOST_TRIALS = 100

#: A forecaster that logged races tried. Grids keep it, since their draw follows from them; new races leave it out.
RETIRED = "'quantile'"

WRAPPER: Grid = {
    "margin": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0),
    "every": (1, 2, 3, 6, 12),
    "forecaster": ("last", "ewma", "kalman", "quantile", "auto"),
    "switch_cost": (0.5, 1.0, 2.0, 4.0),
    "keep_best": (True, False),
    "payback_windows": (6, 12, 24),
}

#: Agents without the wrapper: what their docstrings name instead.
OWN: Mapping[str, Grid] = {
    "autoscale": {
        "target_utilization": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "cooldown_windows": (0, 1, 2, 3, 6, 9, 12, 24),
    },
    "margin": {
        "lower": (0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3),
        "gap": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5),
        "forecaster": ("last", "ewma", "kalman", "quantile"),
        "payback_windows": WRAPPER["payback_windows"],
        "risk": (0.0, 0.2, 0.4, 0.6, 0.8),
    },
    "knative": {
        "target": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "stable_windows": (1, 2, 3, 6),
        "panic_threshold": (1.25, 1.5, 2.0, 3.0),
        "delay_windows": (0, 1, 2, 3, 6, 12),
    },
    "llm-d": {
        "up": (0.8, 0.85, 0.9, 0.95, 1.0),
        "down": (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8),
        "kv": (0.7, 0.8, 0.9, 1.0),
        "stable_windows": (1, 2, 3, 6),
    },
    "dynamo": {
        "forecaster": ("last", "ewma", "kalman", "quantile", "seasonal", "belief"),
        "every": (1, 2, 3, 6),
        "sensitivity": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "most_changes": (0, 1, 2, 4, 8),
    },
    "spothedge": {
        "overprovision": (0, 1, 2, 3),
        "base": (0, 1, 2),
        "target": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "up_windows": (1, 2),
        "down_windows": (1, 2, 4, 6, 12),
    },
    "sageserve": {
        "every": (3, 6, 12),
        "first_window": (1, 2, 4),
        "busy": (0.25, 0.5, 0.7, 0.9),
        "idle": (0.25, 0.4, 0.6, 0.8, 1.0),
        "gap": (1.25, 1.5, 2.0, 5.0),
        "forecaster": ("last", "ewma", "kalman", "seasonal", "belief"),
    },
    "right-sizing": {
        "lower": (0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3),
        "share": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
        "patience": (0.5, 1.0, 2.0, 4.0),
    },
    "chc": {"windows": (3, 5, 8), "commitment": (1, 2, 3, 5), "paths": (1, 2, 4)},
    "hindsight": {"holding": (0.0, 0.25, 0.5, 0.75, 1.0), "every": (1, 2)},
    "lcp": {"margin": WRAPPER["margin"], "forecaster": ("last", "ewma", "kalman", "auto")},
}


def grid_of(agent: str) -> Grid:
    """Return the arguments that an agent is tuned in; none where there is nothing to tune.

    Examples
    --------
    >>> list(grid_of("agh")), list(grid_of("autoscale")), dict(grid_of("hold"))
    (['margin'], ['target_utilization', 'cooldown_windows'], {})
    """
    if agent in OWN:
        return OWN[agent]
    made = make_agent(agent)
    if isinstance(made, Static):
        return {"margin": WRAPPER["margin"]}
    return WRAPPER if isinstance(made, Rolling) else {}


def settings(agent: str, most: int = MOST_TRIALS) -> list[str]:
    """Return what is tried: the agent as published, then points of its grid without replacement, or all of them.

    Parameters
    ----------
    agent : str
        A registered name.
    most : int
        Settings to return at most. The seed of the draw follows from the grid alone, so that agents with the same
        grid try the same points.

    Examples
    --------
    >>> settings("agh")[:3], len(settings("agh")), len(settings("agh-rolling"))
    (['agh', 'agh(margin=0.0)', 'agh(margin=0.05)'], 12, 100)
    """
    grid = grid_of(agent)
    if not grid:
        return [agent]
    shape = [len(values) for values in grid.values()]
    count = math.prod(shape)
    if count < most:
        points = list(itertools.product(*grid.values()))
    else:
        rng = np.random.default_rng(zlib.crc32(repr(grid).encode()))
        drawn = np.unravel_index(rng.choice(count, most - 1, replace=False), shape)
        points = [
            tuple(v[k] for v, k in zip(grid.values(), at, strict=True)) for at in zip(*drawn, strict=True)
        ]
    return [agent, *(_named(agent, dict(zip(grid, point, strict=True))) for point in points)]


def _named(agent: str, arguments: Mapping[str, Any]) -> str:
    return f"{agent}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
