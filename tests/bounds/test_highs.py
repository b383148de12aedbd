"""Solvers print nothing, not even while they are made: what a command prints may be JSON."""

from __future__ import annotations

import re
from pathlib import Path

import highspy
import pytest

import fleetgym
from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.highs import make_solver

_ROOT = Path(fleetgym.__file__).parent.parent


def test_a_solver_is_silent_before_its_callbacks_are_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS 1.16 prints its banner there."""
    flags = []
    enable = highspy.Highs.enableCallbacks

    def watched(self: highspy.Highs) -> None:
        flags.append(self.getOptionValue("output_flag")[1])
        enable(self)

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", watched)
    highspy.Highs()
    solver = make_solver(presolve="off")
    assert flags == [True, False]
    assert solver.getOptionValue("threads")[1] == 1
    assert solver.getOptionValue("presolve")[1] == "off"


def test_making_a_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither Python nor C writes a byte."""
    make_solver().run()
    assert capfd.readouterr() == ("", "")


def test_all_solvers_are_made_there() -> None:
    """No other file of the package calls the constructor."""
    files = [path for part in ("fleetgym", "baselines", "tools") for path in (_ROOT / part).rglob("*.py")]
    made = [path.name for path in files if re.search(r"\bHighs\(\)", path.read_text(encoding="utf-8"))]
    assert len(files) > 100
    assert made == []


def test_an_unknown_option_is_an_error() -> None:
    """HiGHS itself would only print a warning."""
    with pytest.raises(FleetgymError, match="does not take tolerance"):
        make_solver(tolerance=1.0)
