"""Calibration: the speed is measured once, kept whole, and compared with what it is now."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fleetgym.cli import main
from fleetgym.evaluation.isolation import calibration, calibration_work
from fleetgym.evaluation.isolation.calibration import Parts
from fleetgym.evaluation.isolation.calibration_work import workload
from fleetgym.files.errors import FleetgymError

AS_REFERENCE = Parts(**calibration._REFERENCE_S)


def _times(factor: float) -> Parts:
    return Parts(**{name: factor * seconds for name, seconds in vars(AS_REFERENCE).items()})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Parts]:
    """What the machine shall be found to do; calibrations are kept in a folder of the test."""
    rounds = [_times(0.5), _times(0.52), _times(0.4)]
    monkeypatch.setattr(calibration, "measure", lambda count: rounds)
    monkeypatch.setattr(calibration, "calibration_path", lambda: tmp_path / "cache" / "calibration.json")
    return rounds


def test_speed_is_relative_to_the_reference_machine() -> None:
    """Half the CPU seconds in every part: twice the speed; in one part of four: the fourth root."""
    assert AS_REFERENCE.speed() == pytest.approx(1.0, abs=1e-15)
    assert _times(0.5).speed() == pytest.approx(2.0, rel=1e-12)
    one = Parts(**{**vars(AS_REFERENCE), "lp": 0.5 * AS_REFERENCE.lp})
    assert one.speed() == pytest.approx(2**0.25, rel=1e-12)


def test_it_is_measured_once_and_kept(measured: list[Parts]) -> None:
    """The median of the rounds counts; later calls read the file; a file that is no calibration is replaced."""
    assert calibration.read_calibration() is None
    assert calibration.speed() == pytest.approx(2.0)
    kept = calibration.read_calibration()
    assert kept is not None
    assert (kept.rounds, kept.machine) == (5, calibration.machine_name())
    assert kept.spread == pytest.approx(0.52 / 0.4 - 1.0)
    measured[:] = [_times(1.0)]
    assert calibration.speed() == pytest.approx(2.0)
    for broken in ("{", json.dumps({"format": "fleetgym-calibration-0"}), '{"speed": NaN}'):
        calibration.calibration_path().write_text(broken)
        assert calibration.read_calibration() is None
    assert calibration.speed() == pytest.approx(1.0)
    assert [path.name for path in calibration.calibration_path().parent.iterdir()] == ["calibration.json"]


def test_drift_is_relative_to_what_was_kept(measured: list[Parts]) -> None:
    """A tenth faster is 0.1."""
    measured[:] = [_times(1 / 1.1)]
    assert calibration.drift(1.0) == pytest.approx(0.1)


def test_the_command_line(measured: list[Parts], capsys: pytest.CaptureFixture[str]) -> None:
    """It measures, shows, and fails if the machine has drifted or nothing is kept."""
    assert main(["calibrate", "--show"]) == 2
    assert main(["calibrate", "--rounds", "3"]) == 0
    assert "one CPU second here is 2.000 reference CPU seconds" in capsys.readouterr().out
    assert main(["calibrate", "--show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["drift"], shown["speed"]) == (pytest.approx(0.0), pytest.approx(2.0))
    measured[:] = [_times(0.8)]
    assert main(["calibrate", "--show"]) == 1
    assert "now -38%" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["calibrate", "--rounds", "0"])
    assert "expected a whole number from 1 to 1000, got 0" in capsys.readouterr().err


def test_machines_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that machines share holds a calibration of each."""
    here = calibration.calibration_path()
    monkeypatch.setattr(calibration, "machine_name", lambda: "another processor, 8 cores")
    assert calibration.calibration_path() != here
    assert calibration.calibration_path().parent == here.parent


def test_a_measurement_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's last words are in the message."""
    monkeypatch.setattr(calibration.sys, "executable", "/bin/false")
    with pytest.raises(FleetgymError, match="cannot measure the machine"):
        calibration.measure(1)


@pytest.mark.slow
def test_the_workload_is_the_same_work_each_time() -> None:
    """Every part gives the answer it gave when its reference seconds were set, and takes CPU time of their order.

    Other answers are other work: then the format and its reference seconds must be new.
    """
    answers = {
        "python": 556520,
        "numpy": 1471941009.93204,
        "lp": 20.725084905467,
        "compiled": -1439848.44194738,
    }
    for name, work in workload().items():
        assert work() == pytest.approx(answers[name], rel=1e-9), name
        begin = time.process_time()
        assert work() == pytest.approx(answers[name], rel=1e-9), name
        assert 0.01 < time.process_time() - begin < 20.0, name


def test_rounds_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, each with the CPU seconds of every part, after one that does not count."""
    done: list[str] = []
    parts = {name: lambda name=name: done.append(name) for name in vars(AS_REFERENCE)}
    monkeypatch.setattr(calibration_work, "workload", lambda: parts)
    monkeypatch.setattr(calibration_work.sys, "argv", ["", "2"])
    calibration_work.main()
    rounds = json.loads(capsys.readouterr().out)
    assert [list(each) for each in rounds] == [sorted(parts)] * 2
    assert done == [*parts] * 3
