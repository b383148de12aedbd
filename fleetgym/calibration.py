"""How fast this machine is: a fixed mixed workload in, reference CPU seconds per CPU second out, kept in the cache.

Reference CPU seconds make time classes mean the same on every machine: one CPU second here counts as `speed()`
of them. Run as ``python -m fleetgym.calibration`` this module measures and prints JSON; `measure` does so in a fresh
process, because HiGHS must not meet another copy of itself in the caller's.
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
import time
from collections.abc import Callable
from pathlib import Path

from fleetgym.errors import DataError, FleetgymError
from fleetgym.files import canonical_json, read_json, write_json
from fleetgym.schema import Choice, Integer, Nested, Number, Text, read_object, spec, to_jsonable
from fleetgym.variables import THREADS

CALIBRATION_FORMAT = "fleetgym-calibration-1"

#: An official run during which the speed differs by more than this from the stored one is marked.
MAX_DRIFT = 0.15

#: CPU seconds of each part of the workload on the reference machine: one core of an Intel Xeon Sapphire Rapids server
#: at 2.1 GHz, Python 3.11. They define the reference CPU second, so they never change within a format.
_REFERENCE_S = {"python": 0.30, "numpy": 0.44, "lp": 0.22, "kernels": 0.22}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """CPU seconds of each part of the workload."""

    python: float = spec(Number(above=0.0), doc="loops, dicts and sorting in plain Python")
    numpy: float = spec(Number(above=0.0), doc="matrix products, sorting and sums")
    lp: float = spec(Number(above=0.0), doc="linear programs by HiGHS, one thread")
    kernels: float = spec(Number(above=0.0), doc="windows of a small instance by the compiled kernels")

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
    rounds: int = spec(Integer(1), doc="the workload's repetitions; the median counts")
    spread: float = spec(Number(minimum=0.0), doc="largest over smallest speed of a round, minus 1")
    cpu_s: Parts = spec(Nested(Parts))
    speed: float = spec(Number(above=0.0), doc="reference CPU seconds per CPU second")


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
    """Measure this machine's speed and keep it.

    Parameters
    ----------
    rounds : int
        Repetitions of the workload, of about 1.3 CPU seconds each.

    Returns
    -------
    Calibration
    """
    import numpy as np

    parts = measure(rounds)
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
    )
    write_json(calibration_path(), to_jsonable(found))
    return found


def speed() -> float:
    """Return the reference CPU seconds per CPU second of this machine; calibrate it if that was never done."""
    return (read_calibration() or calibrate()).speed


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
    command = [sys.executable, "-m", "fleetgym.calibration", str(rounds)]
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    # The instance that is measured is one of the standard set, wherever instances come from otherwise.
    kept = {name: value for name, value in os.environ.items() if name != "FLEETGYM_INSTANCES"}
    done = subprocess.run(
        command, env={**kept, **one_thread, "PYTHONPATH": path}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise FleetgymError(f"cannot measure the machine: {done.stderr.strip()[-300:]}")
    return [Parts(**parts) for parts in json.loads(done.stdout)]


# -- the workload: fixed sizes and seeds, so that it is the same work everywhere


def main() -> None:
    """Measure ``sys.argv[1]`` rounds and print them as JSON."""
    workload = {"python": _python_work, "numpy": _numpy_work(), "lp": _lp_work(), "kernels": _kernel_work()}
    for work in workload.values():  # caches, lazy imports
        work()
    rounds = [{name: _cpu_s(work) for name, work in workload.items()} for _ in range(int(sys.argv[1]))]
    print(canonical_json(rounds))


def _cpu_s(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _python_work() -> int:
    counts: dict[int, int] = {}
    state, total = 12345, 0
    for _ in range(1_200_000):
        state = (1103515245 * state + 12345) % 2**31
        key = state % 5003
        counts[key] = counts.get(key, 0) + 1
    for _ in range(20):
        total += sum(sorted(counts.values(), key=lambda count: -count)[:100])
    return total


def _numpy_work() -> Callable[[], float]:
    import numpy as np

    rng = np.random.default_rng(1)
    matrix, values = rng.random((400, 400)), rng.random(200_000)

    def work() -> float:
        total = 0.0
        for _ in range(90):
            total += float((matrix @ matrix).sum() + np.sort(values)[1000])
            total += float(np.exp(values).cumsum()[-1] + np.bincount((values * 999).astype(np.int64))[7])
        return total

    return work


def _lp_work() -> Callable[[], float]:
    import highspy
    import numpy as np

    rng = np.random.default_rng(2)
    demands, servers = 150, 60
    costs, loads = rng.random((demands, servers)), 0.5 + rng.random((demands, servers))

    def solve() -> float:
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 1),
            ("presolve", "off"),
        ):
            solver.setOptionValue(option, value)
        for column in costs.ravel():
            solver.addVar(0.0, 1.0)
            solver.changeColCost(solver.getNumCol() - 1, float(column))
        for i in range(demands):
            columns = np.arange(i * servers, (i + 1) * servers, dtype=np.int32)
            solver.addRow(1.0, 1.0, servers, columns, np.ones(servers))
        for c in range(servers):
            columns = np.arange(c, demands * servers, servers, dtype=np.int32)
            solver.addRow(-np.inf, 2.0, demands, columns, loads[:, c].copy())
        solver.run()
        assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return float(solver.getObjectiveValue())

    return lambda: sum(solve() for _ in range(5))


def _kernel_work() -> Callable[[], float]:
    import numpy as np

    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    env = FleetAllocEnv("fleet-v0/dev/ou-s-001")

    def work() -> float:
        total, rng = 0.0, np.random.default_rng(3)
        for scenario in range(4):
            env.reset(seed=scenario)
            done = False
            while not done:
                _, reward, done, _, _ = env.step(rng.integers(env.actions.nvec))
                total += float(reward)
        return total

    return work


if __name__ == "__main__":
    main()
