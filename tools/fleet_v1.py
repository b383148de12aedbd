"""What is in `fleet-v1`: families, sizes and seeds of its splits, and the sample of them for slow agents.

Every instance is `fleetgym.families.generate.generate(family, size, seed)` with its `stored_scenarios`. Seeds tell
the splits apart: `fleetgym.families.generate.SEEDS`. The fresh split is drawn by `fleetgym.leaderboard.season`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from fleetgym.families.generate import SEEDS

SUITE = "fleet-v1"
SCENARIOS = 3  # stored with each instance; `trace` has one day, `warp` two
SCALE_DIGITS = 4  # of token scales: files stay small

#: Families whose mean is the score; the manifest names them.
HEADLINE = ("ou", "drop", "trace", "budget", "tail", "multi")

#: Headline families that count as one; none.
MERGED: tuple[tuple[str, ...], ...] = ()

#: Family, size, and how many instances there are in dev and in test. Headline families have 15 and 40.
PLAN = (
    ("ou", "s", 9, 24),
    ("ou", "m", 5, 13),
    ("ou", "l", 1, 3),
    ("drop", "s", 9, 26),
    ("drop", "m", 6, 14),
    ("trace", "m", 15, 40),
    ("budget", "s", 9, 26),
    ("budget", "m", 6, 14),
    ("tail", "s", 10, 28),
    ("tail", "m", 5, 12),
    ("multi", "s", 8, 22),
    ("multi", "m", 5, 14),
    ("multi", "l", 2, 4),
    ("grw", "s", 3, 6),
    ("grw", "m", 1, 2),
    ("fastllm", "4-4-5", 2, 4),
    ("fastllm", "6-6-10", 2, 4),
    ("warp", "s", 4, 8),
)

#: Test instances of each family in the sample: those of the smallest size, one scenario each.
SAMPLED = {"headline": 12, "other": 3}


@dataclasses.dataclass(frozen=True)
class Task:
    """One instance to be made."""

    family: str
    size: str
    seed: int

    @property
    def id(self) -> str:
        """Id of the instance."""
        return f"{self.family}-{self.size}-{self.seed:03d}"


def tasks(split: str) -> list[Task]:
    """Return the instances of ``"dev"`` or ``"test"`` in the manifest's order."""
    return planned(PLAN, split)


def sample() -> dict[str, object]:
    """Return the manifest's sample of test."""
    families = dict.fromkeys(row[0] for row in PLAN)
    counts = {family: SAMPLED["headline" if family in HEADLINE else "other"] for family in families}
    return sampled(SUITE, PLAN, counts)


# -- for any set


def planned(plan: Sequence[tuple[str, str, int, int]], split: str) -> list[Task]:
    """Return the instances of ``"dev"`` or ``"test"`` of a plan, in its order."""
    column = {"dev": 2, "test": 3}[split]
    return [
        Task(row[0], row[1], SEEDS[split].start + k)
        for row in plan
        for k in range(row[column])  # type: ignore[call-overload]
    ]


def sampled(
    suite: str, plan: Sequence[tuple[str, str, int, int]], counts: Mapping[str, int]
) -> dict[str, object]:
    """Return a sample of test for the manifest: scenario 0 of so many instances of each family, the smallest ones."""
    names = []
    for family, count in counts.items():
        mine = [task for task in planned(plan, "test") if task.family == family]
        names += [f"{suite}/test/{t.id}#0" for t in mine if t.size == mine[0].size][:count]
    about = "scenario 0 of the first test instances of each family, in its smallest size"
    return {"id": f"{suite}/sample", "about": about, "tasks": names}
