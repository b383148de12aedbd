"""Name the folders that tests read: the checkout, the tests themselves, and the shared reference data."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

#: Reference values, papers and derived data beside the checkout; tests that read them skip where it is absent.
SHARED = Path(os.environ.get("FLEETGYM_SHARED", ROOT.parent / "shared"))


def stored_kernels() -> dict[str, str]:
    """Return the environment variables that choose the kernels of OpenBLAS with which the stored sets were made.

    Others sum in another order, so that now and then a draw flips. Without AVX-512 there is no such choice.
    """
    processor = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    return {"OPENBLAS_CORETYPE": "SkylakeX"} if "avx512f" in processor else {}
