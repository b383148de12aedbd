"""Measure how fast this machine is on a fixed workload, and keep the result in the cache.

Reference CPU seconds make time classes mean the same on every machine: one CPU second here counts as `speed()`
of them. The workload, `fleetgym.evaluation.isolation.calibration_work`, runs in a fresh process, because HiGHS must
not meet another copy of itself in the caller's.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from fleetgym.files import quantities as q
from fleetgym.files.documents import read_json, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import (
    Choice,
    Integer,
    Nested,
    Text,
    read_object,
    spec,
    to_jsonable,
)
from fleetgym.runtime.threads import THREADS, one_thread

CALIBRATION_FORMAT = "fleetgym-calibration-2"

#: An official run during which the speed differs by more than this from the stored one is marked.
MAX_DRIFT = 0.15

#: CPU seconds of each part of the workload on the reference machine: one core of an Intel Xeon Sapphire Rapids server
#: at 2.1 GHz, Python 3.11. They define the reference CPU second, so they never change within a format. That of compiled
#: loops was not measured there: it takes 3.07 times the kernels of format 1, as they were when that was defined, on an
#: AMD EPYC; these had 0.22.
_REFERENCE_S = {"python": 0.30, "numpy": 0.44, "lp": 0.22, "compiled": 0.68}

_SAMPLES = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """CPU seconds of each part of the workload."""

    python: float = spec(q.LIMIT_S, doc="loops, dicts and sorting in plain Python")
    numpy: float = spec(q.LIMIT_S, doc="matrix products, sorting and sums")
    lp: float = spec(q.LIMIT_S, doc="linear programs by HiGHS, one thread")
    compiled: float = spec(q.LIMIT_S, doc="compiled loops: recursions, pivots, look-ups")

    def speed(self) -> float:
        """Return the geometric mean of the parts' speeds, as multiples of the reference machine's."""
        ratios = [_REFERENCE_S[name] / seconds for name, seconds in vars(self).items()]
        return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured on a machine, and when."""

    format: str = spec(Choice((CALIBRATION_FORMAT,)))
    machine: str = spec(Text())
    system: str = spec(Text())
    python: str = spec(Text())
    numpy: str = spec(Text())
    cores: int = spec(Integer(1))
    date: str = spec(Text(), doc="UTC")
    rounds: int = spec(q.ROUNDS, doc="the workload's repetitions; the median counts")
    spread: float = spec(q.SPREAD, doc="largest over smallest speed of a round, minus 1")
    cpu_s: Parts = spec(Nested(Parts))
    speed: float = spec(q.SPEED, doc="reference CPU seconds per CPU second")
    sample_s: float = spec(q.LIMIT_S, doc="CPU seconds of the small work that is measured while agents wait")


@functools.cache
def machine_name() -> str:
    """Return the processor and number of cores, by which calibrations are told apart.

    Examples
    --------
    >>> machine_name() != ""
    True
    """
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        facts = dict(line.replace("\t", "").split(": ", 1) for line in lines if ": " in line)
        name = f"{facts['model name']} (model {facts['model']}, stepping {facts['stepping']})"
    except (OSError, KeyError):
        pass
    return f"{name}, {os.cpu_count()} cores"[:200]


def calibration_path() -> Path:
    """Return where this machine's calibration is kept: in the folder of the compiled kernels' folders.

    Raises
    ------
    FleetgymError
        If no folder is writable.
    """
    from fleetgym.kernels.compile import cache_folder

    folder = cache_folder()
    if folder is None:
        raise FleetgymError("a calibration needs a writable folder; set FLEETGYM_CACHE_DIR")
    key = hashlib.sha256(machine_name().encode()).hexdigest()[:12]
    return folder.parent / f"calibration-{key}.json"


def read_calibration() -> Calibration | None:
    """Return this machine's calibration, or None if there is none that can be read."""
    path = calibration_path()
    if not path.is_file():
        return None
    try:
        return read_object(Calibration, read_json(path))
    except DataError:  # of another version; it is measured anew
        return None


def calibrate(rounds: int = 5) -> Calibration:
    """Measure this machine's speed and store it.

    Parameters
    ----------
    rounds : int
        Repetitions of the workload, of about 1.6 CPU seconds each.

    Returns
    -------
    Calibration
    """
    import numpy as np

    path = calibration_path()  # first, since it checks what the environment sets for Numba
    from fleetgym.evaluation.isolation.calibration_work import sample_s

    parts = measure(rounds)
    with one_thread():
        samples = [sample_s() for _ in range(_SAMPLES)]
    speeds = [part.speed() for part in parts]
    middle = Parts(**{name: statistics.median(getattr(p, name) for p in parts) for name in _REFERENCE_S})
    found = Calibration(
        format=CALIBRATION_FORMAT,
        machine=machine_name(),
        system=platform.platform()[:200],
        python=platform.python_version(),
        numpy=np.__version__,
        cores=os.cpu_count() or 1,
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%MZ}",
        rounds=rounds,
        spread=max(speeds) / min(speeds) - 1.0,
        cpu_s=middle,
        speed=middle.speed(),
        sample_s=statistics.median(samples),
    )
    write_json(path, to_jsonable(found))
    return found


def calibration() -> Calibration:
    """Return this machine's calibration; make it if that was never done."""
    return read_calibration() or calibrate()


def speed() -> float:
    """Return the reference CPU seconds per CPU second of this machine; calibrate it if that was never done."""
    return calibration().speed


def drift(reference: float, rounds: int = 3) -> float:
    """Return by how much the machine's speed now differs from `reference`, relative: 0.1 is a tenth faster."""
    return statistics.median(parts.speed() for parts in measure(rounds)) / reference - 1.0


def measure(rounds: int) -> list[Parts]:
    """Return the parts' CPU seconds in each of `rounds` repetitions, measured in a fresh process.

    Raises
    ------
    FleetgymError
        If that process fails.
    """
    one_thread = dict.fromkeys(THREADS, "1")
    command = [sys.executable, "-m", "fleetgym.evaluation.isolation.calibration_work", str(rounds)]
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    environment = {**os.environ, **one_thread, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise FleetgymError(f"cannot measure the machine: {done.stderr.strip()[-300:]}")
    return [Parts(**parts) for parts in json.loads(done.stdout)]
