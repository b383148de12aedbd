"""Load the part of each family's gap that no agent can close.

``python -m tools.bound_agents --page`` writes ``fleetgym/data/unknown.csv`` from drawn days of dev instances of size s.
The page `docs/bounds.md` has theorem and figures.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from importlib import resources

FILE = "unknown.csv"


@dataclasses.dataclass(frozen=True)
class Unknown:
    """What nobody can know of a family's days."""

    percent: float  # the mean cost of every agent is at least so far above the lower bounds of those who know the day
    standard_error: float
    instances: int
    days: int  # of all instances together


@functools.cache
def unknown() -> dict[tuple[str, str], Unknown]:
    """Return what was measured, by set and family.

    Examples
    --------
    >>> unknown()["fleet-v1", "ou"].percent > 0.0
    True
    """
    text = resources.files("fleetgym").joinpath("data", FILE).read_text(encoding="utf-8")
    return {
        (row["set"], row["family"]): Unknown(
            float(row["percent"]), float(row["standard_error"]), int(row["instances"]), int(row["days"])
        )
        for row in csv.DictReader(text.splitlines())
    }
