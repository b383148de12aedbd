"""What is in the preview `fleet-v2`: families, sizes and seeds of its splits. It may change until it is frozen.

Small enough to play: a day of each instance of size s and m is scored, one scenario each.
"""

from __future__ import annotations

from tools.fleet_v1 import Task, planned, sampled

SUITE = "fleet-v2"
SCENARIOS = 1
SCALE_DIGITS = 4

#: Families whose mean is the score; the manifest names them.
HEADLINE = ("week", "ou-v2", "drop-v2", "budget-v2", "tail-v2", "market", "split")

#: Headline families that rank agents alike; the score counts each list once. They are the families that
#: `tools.family_statistics.alike` joins by the scores of 19 agents on test; tests compare.
MERGED = (("week", "drop-v2", "tail-v2", "market"), ("ou-v2", "budget-v2", "split"))

#: Family, size, and how many instances there are in dev and in test.
PLAN = tuple(
    (family, size, dev, test)
    for family in HEADLINE
    for size, dev, test in ((("s", 3, 5), ("m", 1, 1)) if family == "week" else (("s", 4, 6), ("m", 1, 2)))
)

#: Test instances of each family in the sample: those of the smallest size.
SAMPLED = 5


def tasks(split: str) -> list[Task]:
    """Return the instances of ``"dev"`` or ``"test"`` in the manifest's order."""
    return planned(PLAN, split)


def sample() -> dict[str, object]:
    """Return the manifest's sample of test."""
    return sampled(SUITE, PLAN, dict.fromkeys(HEADLINE, SAMPLED))
