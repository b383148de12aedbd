"""Agents that try what an official run must bear: each is called by this file's path."""
# ruff: noqa: D101, D102

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import numpy as np

WINDOW = 2  # when the bad ones turn bad


class Good:
    """Keeps the fleet it finds."""

    def reset(self, view, *, seed):
        self.view = view

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)


class ActsByHashes(Good):
    """Acts by what Python draws anew in each process: hashes of words, and the order of objects in a set."""

    def act(self, observation, info):
        things = [object() for _ in range(20)]
        order = [things.index(thing) for thing in set(things)]
        number = hash(f"{self.view.window} {order}")
        return [(number >> slot) % size for slot, size in enumerate(self.view.nvec.tolist())]


class Bad(Good):
    """Good until `WINDOW`."""

    def act(self, observation, info):
        return super().act(observation, info) if info["window"] < WINDOW else self.misbehave()

    def misbehave(self):
        raise NotImplementedError


class Burns(Bad):
    def misbehave(self):
        _burn()


class BurnsInReset(Good):
    def reset(self, view, *, seed):
        _burn()


class AsksTooMuch(Bad):
    def misbehave(self):
        return np.ones(10**11)


class KillsItself(Bad):
    def misbehave(self):
        os.kill(os.getpid(), signal.SIGKILL)


class WritesGarbage(Bad):
    text = b'{"action": \n'

    def misbehave(self):
        for fd in _pipes():
            with contextlib.suppress(OSError):
                os.write(fd, self.text)
        return super().act({}, {"window": 0})


class GuessesANumber(WritesGarbage):
    text = b'{"id": 4, "action": [0], "cpu_s": 0}\n' * 3


class WritesAHugeLine(Bad):
    def misbehave(self):
        _write_for_ever(b"x" * 2**16)


class WritesLinesWithoutEnd(Bad):
    def misbehave(self):
        _write_for_ever(b"[]\n" * 2**14)


class PrintsALot(Good):
    def act(self, observation, info):
        print("noise " * 10_000)
        print("noise " * 10_000, file=sys.stderr)
        return super().act(observation, info)


class Spy(Good):
    """Looks for what it must not find, and fails with what it found."""

    def __init__(self, secret="", port=0, parent=0):
        self.secret, self.port, self.parent = secret, port, parent

    def act(self, observation, info):
        looks = (
            self.scenarios,
            self.file,
            self.network,
            self.neighbours,
            self.signals,
            self.unmounts,
            self.writes,
        )
        found = [look.__name__ for look in looks if _succeeds(look)]
        assert Path(os.environ["TMPDIR"], "mine").write_text("I may write here")
        assert not found, json.dumps(found)
        return super().act(observation, info)

    def scenarios(self):
        from fleetgym.model.sets import instances_folder

        return list(instances_folder().rglob("*.json*"))

    def file(self):
        return Path(self.secret).read_text()

    def network(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=2)

    def neighbours(self):
        return Path(f"/proc/{self.parent}/cmdline").read_bytes()

    def signals(self):
        os.kill(self.parent, 0)
        return True

    def unmounts(self):
        import ctypes

        from fleetgym.model.sets import instances_folder

        libc = ctypes.CDLL(None, use_errno=True)
        folder = str(instances_folder()).encode()
        libc.unshare(0x10020000)  # user and mounts: an agent may try to become root of its own
        return any(libc.umount2(place, 2) == 0 for place in (folder, self.secret.encode()))

    def writes(self):
        Path(self.secret).with_name("written.txt").write_text("x")
        return True


class SeeksTheLaw(Good):
    """Looks for the law from which days are drawn wherever it might be, and fails with what it found."""

    def __init__(self, name=""):
        self.name = name

    def reset(self, view, *, seed):
        super().reset(view, seed=seed)
        looks = (self.by_the_api, self.days, self.files, self.memory, self.generator)
        found = [look.__name__ for look in looks if _succeeds(look)]
        assert not found, json.dumps(found)

    def by_the_api(self):
        from fleetgym.model.library import with_law

        return [with_law(source) for source in (self.view.instance, self.name)]

    def days(self):
        import fleetgym

        return fleetgym.load_scenarios(self.name)

    def files(self):
        roots = ("/home", "/root", "/tmp", "/var", "/opt", "/usr/share", *sys.path)
        files = [path for root in roots for path in Path(root).rglob("*.scenarios.json*")]
        return [path for path in files if path.read_bytes()]

    def memory(self):
        import gc

        from fleetgym.model.instance import Instance
        from fleetgym.model.scenario import ScenarioFile

        kept = [one for one in gc.get_objects() if isinstance(one, Instance | ScenarioFile)]
        return [one for one in kept if one.law not in ("fitted", None)]

    def generator(self):
        import numpy as np

        from fleetgym.families.generate import SEEDS, generate

        own = self.view.instance
        guesses = [0, *(seeds.start for seeds in SEEDS.values())]
        made = [generate(own.family, own.size, seed) for seed in guesses]
        return [one for one in made if np.array_equal(one.history.rate_rps, own.history.rate_rps)]


def _succeeds(look):
    try:
        return bool(look())
    except Exception:
        return False


def _burn():
    while True:
        pass


def _pipes():
    """Return what may be the pipes of the protocol."""
    return [fd for fd in range(3, 64) if _is_pipe(fd)]


def _is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def _write_for_ever(data):
    while True:
        for fd in _pipes():
            with contextlib.suppress(OSError):
                os.write(fd, data)


def agent(name: str) -> str:
    """Return the name by which `fleetgym` finds an agent of this file."""
    return f"{__file__}:{name}"
