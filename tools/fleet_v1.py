"""What is in `fleet-v1`: families, sizes and seeds of its splits, and how the fresh split follows from a secret.

Every instance is `fleetgym.generate.generate(family, size, seed)` with its `stored_scenarios`. Seeds tell the splits
apart: `fleetgym.generate.SEEDS`. The fresh split's seeds are digests of a secret that is committed to beforehand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from pathlib import Path

from fleetgym.files import file_sha256, read_json, write_private
from fleetgym.generate import SEEDS

SUITE = "fleet-v1"
SCENARIOS = 3  # stored with each instance; `trace` has one day, `warp` two
SCALE_DIGITS = 4  # of token scales: files stay small

#: Families whose mean is the score; the manifest names them.
HEADLINE = ("ou", "drop", "trace", "budget", "tail", "multi")

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

FRESH_FORMAT = "fleetgym-fresh-seed-1"
_SECRET = re.compile(r"^[0-9a-f]{64}$")


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
    column = {"dev": 2, "test": 3}[split]
    return [
        Task(row[0], row[1], SEEDS[split].start + k)
        for row in PLAN
        for k in range(row[column])  # type: ignore[call-overload]
    ]


def fresh_tasks(secret: str) -> list[Task]:
    """Return as many instances as dev has, with seeds that nobody can know without the secret."""
    return [
        Task(family, size, _fresh_seed(secret, f"{family}/{size}/{k}"))
        for family, size, count, _ in PLAN
        for k in range(count)
    ]


def _fresh_seed(secret: str, name: str) -> int:
    digest = hashlib.sha256(f"{secret}/{name}".encode()).digest()
    return SEEDS["fresh"].start + int.from_bytes(digest[:6], "big")


def draw_secret(path: Path, season: str) -> None:
    """Write a new seed file that only its owner may read; an existing file is an error."""
    data = {"format": FRESH_FORMAT, "season": season, "seed": secrets.token_hex(32)}
    write_private(path, (json.dumps(data, indent=1) + "\n").encode())


def read_secret(path: Path) -> tuple[str, str]:
    """Return season and secret from a seed file ``{"format": ..., "season": ..., "seed": 64 hex digits}``.

    Raises
    ------
    ValueError
        Naming what is wrong with the file.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FRESH_FORMAT or "season" not in data:
        raise ValueError(f"{path}: expected an object with format {FRESH_FORMAT!r}, season and seed")
    if not _SECRET.match(str(data.get("seed"))):
        raise ValueError(f"{path}: $.seed must be 64 hexadecimal digits")
    return str(data["season"]), str(data["seed"])


def commitment(path: Path) -> dict[str, object]:
    """Return what is published of a seed file before its season: a hash of its bytes, which hide the seed."""
    season, _ = read_secret(path)
    return {
        "season": season,
        "seed_file_sha256": file_sha256(path),
        "instances": sum(row[2] for row in PLAN),
        "how": "At the end of the season the seed file is published; sha256sum must give this hash, and "
        "`python tools/make_instances.py --fresh SEEDFILE --out FOLDER` the instances that were played.",
    }
