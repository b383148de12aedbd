"""Change files under a reader's eyes: a bit of them, or all of them once they are hashed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgym.files.errors import FleetgymError


def refused_flips(path: Path, read: Callable[[], object], seed: int) -> int:
    """Return how many of 300 flipped bits `read` refuses; whatever it takes is what it read before.

    Of a gzipped file, the bits are those of its text. The file is as before afterwards.
    """
    stored, before, rng, refused = path.read_bytes(), read(), np.random.default_rng(seed), 0
    is_packed = path.suffix == ".gz"
    text = gzip.decompress(stored) if is_packed else stored
    for place in rng.integers(0, len(text), 300).tolist():
        flipped = bytearray(text)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(gzip.compress(flipped) if is_packed else flipped)
        try:
            found = read()
        except FleetgymError:
            refused += 1
        else:  # a blank between tokens, or another way to write the same number
            assert np.array_equal(found, before) if isinstance(before, np.ndarray) else found == before
    path.write_bytes(stored)
    return refused


def swap_once_hashed(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> list[Path]:
    """Let a file have another text as soon as something is hashed; return where that is noted."""
    swapped: list[Path] = []

    def swapping(hashing: Callable[..., Any]) -> Callable[..., Any]:
        def swap(*words: Any) -> Any:
            found = hashing(*words)
            path.write_text(text)
            swapped.append(path)
            return found

        return swap

    for name in ("sha256", "file_digest"):
        monkeypatch.setattr(hashlib, name, swapping(getattr(hashlib, name)))
    return swapped
