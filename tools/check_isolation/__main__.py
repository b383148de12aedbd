"""Try every way out of the box that official runs use on this machine, and tell what each got.

A process outside opens the doors: sockets, pipes, shared memory, keys, files. Another tries them without a box, and in
each kind of box that this system allows.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetgym.cli.process import run_program
from fleetgym.evaluation.isolation import sandbox
from fleetgym.evaluation.isolation.doors import Targets
from fleetgym.evaluation.isolation.visible import hidden_files
from fleetgym.files.markdown import table
from fleetgym.kernels.compile import cache_folder
from fleetgym.model.sets import set_folders
from fleetgym.runtime.places import PACKAGE
from fleetgym.runtime.programs import program
from fleetgym.runtime.variables import environment_variable
from tools.check_isolation import doors

#: Names of the ways, and what forbids the better ones.
WAYS = {
    "bubblewrap": (),
    "own code": (sandbox.NO_BUBBLEWRAP,),
    "own code, no control group": (sandbox.NO_BUBBLEWRAP, sandbox.NO_CONTROL_GROUPS),
}
_START = "import sys; sys.path.insert(0, sys.argv[1]); import agent; agent.main()"


def try_doors(way: str | None) -> dict[str, tuple[bool, str]]:
    """Return of every door whether it gave way, and what was got or said.

    Parameters
    ----------
    way : str, optional
        One of `WAYS`; None tries without a box.
    """
    with outside() as places, contextlib.ExitStack() as stack:
        if way is None:
            command = [sys.executable, "-c", _START, places["beside"], json.dumps(places)]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        else:
            for name in WAYS[way]:
                stack.enter_context(environment_variable(name, "1"))
            places |= {"is_boxed": True, "is_counted": sandbox.NO_CONTROL_GROUPS not in WAYS[way]}
            command = [sys.executable, "-I", "-S", "-c", _START, places["beside"], json.dumps(places)]
            box = stack.enter_context(
                sandbox.Sandbox(command, 2e9, hidden_files(), f"{places['agent']}:main")
            )
            assert box.process.stdout is not None
            text = box.process.stdout.readline()
        found = {title: (is_open, said) for title, (is_open, said) in json.loads(text or "{}").items()}
        for title in found:
            if title.startswith("leave a file"):
                found[title] = (Path(places["temporary"], places["mark"]).exists(), found[title][1])
        return found


@contextlib.contextmanager
def outside() -> Iterator[dict[str, Any]]:
    """Open doors of this process while the context lasts; yield where they are."""
    mark = f"fleetgym-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack, Targets() as targets:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.chmod(folder, 0o755)
        beside = folder / "agent"
        beside.mkdir()
        (beside / "agent.py").write_bytes(Path(doors.__file__).read_bytes())
        (beside / "startup.scenarios.json").write_text("{}")
        (folder / "secret").write_text("secret")
        (folder / "dist.whl").write_bytes(b"wheel")
        for place in (beside, folder):
            os.mkfifo(place / "fifo")
            reading = os.open(place / "fifo", os.O_RDONLY | os.O_NONBLOCK)
            stack.callback(os.close, reading)
            os.chmod(place / "fifo", 0o666)
        port = _serve(stack, socket.AF_INET, ("127.0.0.1", 0))[1]
        with contextlib.suppress(OSError):
            port6 = _serve(stack, socket.AF_INET6, ("::1", 0))[1]
        for address in (str(beside / "socket"), str(folder / "socket"), f"\0{mark}"):
            _serve(stack, socket.AF_UNIX, address)
        Path("/dev/shm", mark).write_text("shared")
        stack.callback(os.unlink, f"/dev/shm/{mark}")
        shm_key = secrets.randbelow(2**30) + 1
        libc = ctypes.CDLL(None)
        shm = libc.shmget(shm_key, 1, 0o1666)
        stack.callback(libc.shmctl, shm, 0, None)
        stack.enter_context(environment_variable("SOME_PASSWORD", "secret"))
        left = Path(tempfile.gettempdir(), mark)
        stack.callback(left.unlink, missing_ok=True)
        yield {
            **{key: value for key, value in targets.as_dict().items() if key in ("pid", "key")},
            "mark": mark,
            "beside": str(beside),
            "words": Path("/proc/self/cmdline").read_bytes().decode(errors="replace"),
            "port": port,
            "port6": locals().get("port6", 1),
            "socket_beside": str(beside / "socket"),
            "socket": str(folder / "socket"),
            "abstract": mark,
            "fifo_beside": str(beside / "fifo"),
            "fifo": str(folder / "fifo"),
            "secret": str(folder / "secret"),
            "other_scratch": str(folder / "secret"),
            "wheel": str(folder / "dist.whl"),
            "scenarios_beside": str(beside / "startup.scenarios.json"),
            "stored": [str(place) for place in set_folders()],
            "home": os.path.expanduser("~"),
            "package": str(PACKAGE),
            "agent": str(beside / "agent.py"),
            "kernels": str(cache_folder()),
            "temporary": tempfile.gettempdir(),
            "shm": mark,
            "shm_key": shm_key,
            "host": socket.gethostname(),
            "is_counted": False,
            "is_boxed": False,
        }


def _serve(stack: contextlib.ExitStack, kind: int, address: Any) -> Any:
    """Answer whoever connects with a word; return the address."""
    server = stack.enter_context(socket.socket(kind))
    server.bind(address)
    server.listen()

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as visitor:
                    visitor.sendall(b"answer")

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()


def smoke(folder: Path) -> int:
    """Try all doors."""
    return main(["--quiet"])


def main(arguments: list[str] | None = None) -> int:
    """Print what each door gave; return 1 if one gave way in the best box."""
    parser = program(__doc__, writes="Nothing.", takes="Seconds.", smoke=smoke)
    parser.add_argument("--quiet", action="store_true", help="print only doors that gave way in a box")
    call = parser.parse_args(arguments)
    ways = [way for way in WAYS if way != "bubblewrap" or sandbox.bubblewrap()]
    bare, *boxed = [try_doors(way) for way in (None, *ways)]
    gave_way = [title for found in boxed for title, (is_open, _) in found.items() if is_open]
    if not call.quiet:
        rows = [
            [
                title,
                *(
                    ("**got** " if is_open else "") + said
                    for is_open, said in (bare[title], *(f[title] for f in boxed))
                ),
            ]
            for title in bare
        ]
        print(table(["door", "without a box", *ways], rows, text_columns=2 + len(ways)))
    print(f"{len(bare)} doors; in a box {len(gave_way)} gave way: {', '.join(gave_way) or 'none'}")
    return 1 if gave_way or not all(boxed) else 0


if __name__ == "__main__":
    run_program(main)
