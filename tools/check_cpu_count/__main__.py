"""Burn CPU time in every way that may escape a count, and compare what was burnt with what official runs charge.

Burnt is what a control group around it all counts, where this system lets one be made. Else it is what the processes'
own clocks say, which leave out how processes start and end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.evaluation.isolation import sandbox
from fleetgym.evaluation.isolation.cgroup import ControlGroup
from fleetgym.files.markdown import table
from fleetgym.files.quantities import LIMIT_S
from fleetgym.runtime.programs import program
from fleetgym.runtime.variables import environment_variable
from tools.check_cpu_count import patterns

#: Ways to count, and what forbids the better one.
WAYS = {"control group": (), "no control group": (sandbox.NO_CONTROL_GROUPS,)}
_FOLDER = str(Path(patterns.__file__).parent)
_START = f"import sys; sys.path.insert(0, {_FOLDER!r}); import patterns; patterns.burn(sys.argv[1], float(sys.argv[2]))"
_LOOK_S = 0.02  # as often as an official run looks


def measure(pattern: str, way: str, total_s: float) -> tuple[float, float]:
    """Return the CPU seconds that were burnt and those that were charged.

    Parameters
    ----------
    pattern : str
        One of `patterns.PATTERNS`.
    way : str
        One of `WAYS`.
    total_s : float
        About how much to burn.
    """
    with contextlib.ExitStack() as stack:
        for name in WAYS[way]:
            stack.enter_context(environment_variable(name, "1"))
        stack.enter_context(environment_variable("FLEETGYM_SHOW", _FOLDER))
        around = stack.enter_context(_control_group())
        command = [sys.executable, "-I", "-S", "-c", _START, pattern, str(total_s)]
        with _inside(around):
            box = stack.enter_context(sandbox.Sandbox(command, 2e9, []))
        begin_s = 0.0 if around is None else around.cpu_s() - box.usage().cpu_s
        lines: list[str] = []
        output = box.process.stdout
        assert output is not None
        threading.Thread(target=lambda: lines.extend(iter(output.readline, "")), daemon=True).start()
        end = time.monotonic() + 120
        while len(lines) < 2:
            box.usage()
            time.sleep(_LOOK_S)
            assert time.monotonic() < end, f"{pattern}: no end"
        charged_s = box.usage().cpu_s
        burnt_s = json.loads(lines[1])["clocks_s"] if around is None else around.cpu_s() - begin_s
    return burnt_s, charged_s


@contextlib.contextmanager
def _control_group() -> Iterator[ControlGroup | None]:
    group = ControlGroup.make()
    yield group
    if group is not None:
        group.remove()


@contextlib.contextmanager
def _inside(group: ControlGroup | None) -> Iterator[None]:
    """Let what is started meanwhile be in a control group, which this process leaves again."""
    if group is None:
        yield
        return
    (group.folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (group.folder.parent / "cgroup.procs").write_text(str(os.getpid()))


def smoke(folder: Path) -> int:
    """Burn little."""
    return main(["--burn", "0.05", "--loose"])


def main(arguments: list[str] | None = None) -> int:
    """Print burnt and charged CPU seconds by pattern and way; return 1 if too little or too much was charged."""
    parser = program(__doc__, writes="Nothing.", takes="About a minute.", smoke=smoke)
    parser.add_argument("--burn", type=of(LIMIT_S), default=1.0, help="CPU seconds by pattern (default: 1)")
    parser.add_argument("--loose", action="store_true", help=argparse.SUPPRESS)
    call = parser.parse_args(arguments)
    rows, is_right = [], True
    for pattern in patterns.PATTERNS:
        for way in WAYS:
            burnt_s, charged_s = measure(pattern, way, call.burn)
            is_right &= charged_s >= (0.5 if call.loose else 0.95) * burnt_s
            rows.append([pattern, way, f"{burnt_s:.3f}", f"{charged_s:.3f}", f"{charged_s / burnt_s:.3f}"])
    print(table(["pattern", "count", "burnt, CPU s", "charged, CPU s", "charged / burnt"], rows, 2))
    return 0 if is_right else 1


if __name__ == "__main__":
    run_program(main)
