"""Build the bubblewrap command that runs a program in a sandbox: listed files only, in separate namespaces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

#: Folder in the box that the agent may write to. It begins empty and vanishes with the box.
SCRATCH = "/fleetgym-scratch"
_SCRATCH_BYTES = 256 * 2**20
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
#: Rights by which the first process, as root, makes the agent a user without rights, and gives it files.
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_CHOWN")


def boxed(program: str, visible: Sequence[str], masked: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command that runs another one in a box, as its first process.

    Parameters
    ----------
    program : str
        Path of ``bwrap``.
    visible : sequence of str
        Absolute paths of folders and files that are shown at their own place, read-only.
    masked : sequence of str
        Paths inside of those that are empty in the box, except for what is visible inside them.
    command : sequence of str

    Returns
    -------
    list of str

    Examples
    --------
    >>> words = boxed("bwrap", ["/usr/share"], ["/usr/share/doc"], ["true"])
    >>> words[words.index("--ro-bind") :][:7]
    ['--ro-bind', '/usr/share', '/usr/share', '--size', '65536', '--tmpfs', '/usr/share/doc']
    """
    words = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", "fleetgym", "--die-with-parent", "--as-pid-1"]
    if os.geteuid() == 0:  # needs no user namespace, and the agent becomes a user without rights
        words += ["--cap-drop", "ALL", *(word for name in _CAPABILITIES for word in ("--cap-add", name))]
    else:
        words += ["--unshare-user"]
    empty = [path for path in masked if os.path.isdir(path)]
    # Folders around what is shown, which bubblewrap would make for root alone.
    around = dict.fromkeys(str(parent) for path in visible for parent in Path(path).parents)
    shown = [(path, ["--perms", "0755", "--dir", path]) for path in around if path != "/"]
    shown += [(path, _show(path)) for path in visible]
    shown += [(path, _empty(path) if path in empty else ["--dev-bind", os.devnull, path]) for path in masked]
    shown.sort(key=lambda step: step[0].count(os.sep))  # a folder before what it holds
    words += [*_scratch(SCRATCH), *(word for _, step in shown for word in step)]
    words += [*_empty("/dev"), *_scratch("/dev/shm"), "--proc", "/proc"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in _DEVICE_LINKS.items():
        words += ["--symlink", target, f"/dev/{name}"]
    for path in ("/", *empty, "/dev", "/proc"):
        words += ["--remount-ro", path]
    return [*words, "--", *command]


def _show(path: str) -> list[str]:
    if os.path.dirname(path) == "/" and os.path.islink(path):  # as /bin, where that is /usr/bin
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path]


def _scratch(path: str) -> list[str]:
    return ["--perms", "1777", "--size", str(_SCRATCH_BYTES), "--tmpfs", path]


def _empty(path: str) -> list[str]:
    return ["--size", "65536", "--tmpfs", path]
