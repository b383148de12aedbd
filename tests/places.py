"""Name the folders that tests read: the checkout, the tests themselves, and the shared reference data."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

#: Reference values, papers and derived data beside the checkout; tests that read them skip where it is absent.
SHARED = Path(os.environ.get("FLEETGYM_SHARED", ROOT.parent / "shared"))
