"""A control group in which an agent runs: all CPU time spent in it is counted, by whomever and however short.

Control groups of version 2 count without any controller. A group can be made where the system lets this process:
as root, and where it was delegated, as ``systemd-run --user --scope -p Delegate=yes`` does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

_NUMBERS = itertools.count()


class ControlGroup:
    """A group of its own below this process's.

    Parameters
    ----------
    folder : Path
        Of the group.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def make(cls) -> ControlGroup | None:
        """Return a new group; None where that is not allowed, or nothing is counted."""
        above = _own_folder()
        if above is None:
            return None
        folder = above / f"fleetgym-{os.getpid()}-{next(_NUMBERS)}"
        try:
            folder.mkdir()
        except OSError:
            return None
        group = cls(folder)
        try:
            group.cpu_s()
            if not os.access(folder / "cgroup.procs", os.W_OK):
                raise OSError
        except (OSError, ValueError):
            group.remove()
            return None
        return group

    def cpu_s(self) -> float:
        """Return the CPU seconds that were spent in it.

        Raises
        ------
        OSError, ValueError
            If it does not count.
        """
        for line in (self.folder / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1e6
        raise ValueError("no usage_usec")

    def kill(self) -> None:
        """End all that runs in it, where the kernel can (Linux 5.14)."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove it; one in which something still ends is left to whoever ends it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def _own_folder() -> Path | None:
    """Return the folder of this process's group of version 2."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in own if line.startswith("0::")), None)
    for line in mounts:
        fields, _, rest = line.partition(" - ")
        if path is None or not rest.startswith("cgroup2 "):
            continue
        root, point = fields.split(" ")[3:5]
        inside = os.path.relpath(path, root)
        if not inside.startswith(".."):
            return Path(point.replace("\\040", " "), inside)
    return None
