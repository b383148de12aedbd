"""Run a command as a user without rights where the tests run as root, since root can do what others cannot."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT

from fleetgym.kernels.compile import cache_folder

NOBODY = 65534


def run_without_rights(command: list[str], home: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command as the user nobody.

    Folders that only root may pass, such as its home, are passable in a mount namespace of the command's own: what
    Python and the checkout need of them is bound into an empty folder in their place. Compiled kernels are copied.

    Parameters
    ----------
    command : list of str
    home : Path
        An empty folder for the user, who becomes its owner.
    **options
        Of `subprocess.run`.
    """
    os.chown(home, NOBODY, NOBODY)
    own = home / "cache"
    if (cache := cache_folder()) is not None and not own.exists():  # those of root are private
        shutil.copytree(cache, own / cache.name)
        for path in (own, *own.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    needed = [sys.base_prefix, sys.prefix, str(ROOT), str(home)]
    lines = ["set -e", "mount --make-rprivate /"]
    closed: dict[str, list[str]] = {}
    for place in dict.fromkeys(os.path.realpath(place) for place in needed):
        parents = [str(parent) for parent in reversed(Path(place).parents)]
        shut = next((parent for parent in parents if not os.stat(parent).st_mode & 0o001), None)
        if shut is not None:
            closed.setdefault(shut, []).append(place)
    for shut, places in closed.items():
        lines.append("kept=$(mktemp -d -p /tmp)")
        for number, place in enumerate(map(shlex.quote, places)):
            lines.append(f"mkdir $kept/{number}; mount --bind {place} $kept/{number}")
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(shut)}")
        for number, place in enumerate(map(shlex.quote, places)):
            lines.append(f"mkdir -p {place}; mount --move $kept/{number} {place}; rmdir $kept/{number}")
        lines.append("rmdir $kept")
    user = f"--reuid {NOBODY} --regid {NOBODY} --clear-groups --bounding-set=-all --inh-caps=-all"
    lines += ["umask 022", f"exec setpriv {user} {shlex.join(command)}"]
    folders = {"HOME": str(home), "TMPDIR": str(home), "FLEETGYM_CACHE_DIR": str(own)}
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env={**os.environ, **folders},
        **options,  # type: ignore[call-overload]
    )
