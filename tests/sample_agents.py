"""Agents that do one thing right or wrong, for the tests of evaluation: each is called by this file's path."""
# ruff: noqa: D101, D102

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

WINDOW = 2  # when the bad ones turn bad


class Good:
    """Keeps the fleet it finds."""

    def reset(self, view, *, seed):
        self.view, self.seed = view, seed

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)


class Dice(Good):
    """Random, from its seed."""

    def reset(self, view, *, seed):
        self.view, self.rng = view, np.random.default_rng(seed)

    def act(self, observation, info):
        return self.rng.integers(self.view.nvec)


class Bad(Good):
    """Good until `WINDOW`."""

    def act(self, observation, info):
        return super().act(observation, info) if info["window"] < WINDOW else self.misbehave()

    def misbehave(self):
        raise NotImplementedError


class Raises(Bad):
    def misbehave(self):
        raise ValueError(f"no idea\nwhat to do with {object()}")


class SaysNan(Bad):
    def misbehave(self):
        return np.full(len(self.view.nvec), np.nan)


class SaysTooMuch(Bad):
    def misbehave(self):
        return self.view.nvec


class SaysNothing(Bad):
    def misbehave(self):
        return None


class WrongShape(Bad):
    def misbehave(self):
        return np.zeros((2, 17), dtype=int)


class Ragged(Bad):
    def misbehave(self):
        return [[1], [2, 3]]


class Sleeps(Bad):
    def misbehave(self):
        time.sleep(600)


class Exits(Bad):
    def misbehave(self):
        os._exit(3)


class ExitsPolitely(Bad):
    def misbehave(self):
        sys.exit(4)


class KillsItself(Bad):
    def misbehave(self):
        os.kill(os.getpid(), signal.SIGKILL)


class EatsMemory(Bad):
    def misbehave(self):
        return np.ones(10**11)


class AnswersAhead(Good):
    """Writes answers to the questions that it expects, by whatever pipe leads to the evaluator."""

    def reset(self, view, *, seed):
        super().reset(view, seed=seed)
        answer = view.fleet_to_action(view.fleet).tolist()
        lines = "".join(f'{{"id": {n}, "action": {answer}, "cpu_s": 0}}\n' for n in range(1, 400))
        for fd in range(3, 16):
            with contextlib.suppress(OSError):
                os.write(fd, lines.encode())


class FailsInReset(Good):
    def reset(self, view, *, seed):
        raise RuntimeError("not today")


class Chatty(Good):
    """Prints, reads its input and closes its standard streams: none of that may matter."""

    def act(self, observation, info):
        print("noise")
        os.write(1, b'{"action": [0]}\n')
        with contextlib.suppress(EOFError):
            input()
        return super().act(observation, info)


def arrays_of(value, seen):
    """Yield the arrays that public names reach from a value, each once."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from arrays_of(each, seen)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from arrays_of(each, seen)
    elif type(value).__module__.startswith("fleetgym."):
        for name in dir(value):
            if not name.startswith("_") and not callable(each := getattr(value, name, None)):
                yield from arrays_of(each, seen)


def _is_read_only(value):
    try:
        value[...] = 0
    except ValueError:
        return True
    return False


class Vandal(Good):
    """Changes everything that it is given, and all that it finds from there; what is shared cannot be changed."""

    def act(self, observation, info):
        action = super().act(observation, info)
        previewed = self.view.preview_window(self.view.fleet)
        for value in arrays_of([observation, info, self.view, self.view.snapshot(), previewed], {}):
            if value.flags.writeable:
                value[...] = 0
        shared = [*arrays_of([self.view.instance, self.view.actions, self.view.late_segments], {})]
        assert len(shared) > 20
        assert all(_is_read_only(value) for value in shared)
        observation.clear()
        info.clear()
        return action


class Hoarder(Good):
    """Remembers earlier episodes in the module, which a fresh agent must not be able to exploit within its own."""

    def __init__(self):
        self.episodes = 0

    def reset(self, view, *, seed):
        super().reset(view, seed=seed)
        self.episodes += 1

    def act(self, observation, info):
        if self.episodes > 1:
            raise RuntimeError("this agent has seen another episode")
        return super().act(observation, info)


class Picky(Good):
    """Dies on one instance only."""

    def act(self, observation, info):
        if self.view.instance.id == "drop":
            os._exit(9)
        return super().act(observation, info)


class Busy(Good):
    """Uses 20 ms of CPU and sleeps for as long."""

    def act(self, observation, info):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        time.sleep(0.02)
        return super().act(observation, info)


class TellsPid(Good):
    """Writes its process id into a file, then hangs."""

    def __init__(self, file):
        self.file = file

    def act(self, observation, info):
        Path(self.file).write_text(str(os.getpid()))
        time.sleep(600)


class WantsOneThread(Good):
    """Raises if linear algebra could take more than one thread."""

    def act(self, observation, info):
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
        return super().act(observation, info)


class Slow(Dice):
    """Takes a moment, so that a run can be killed in the middle."""

    def act(self, observation, info):
        time.sleep(0.01)
        return super().act(observation, info)


class SlowHere(Good):
    """Is slow on some machines."""

    def act(self, observation, info):
        time.sleep(float(os.environ.get("SLOW_HERE", "0")))
        return super().act(observation, info)


class KillsTwice(Good):
    """Takes its process along, twice; a file counts."""

    def __init__(self, file):
        self.file = file

    def act(self, observation, info):
        with open(self.file, "a+") as stream:
            stream.seek(0)
            if len(stream.read()) < 2:
                stream.write("x")
                stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().act(observation, info)


class Planner:
    """Wants one replica of the first configuration."""

    def plan(self, snapshot):
        from fleetgym import Plan

        fleet = np.zeros(len(snapshot.hold_usd), dtype=int)
        fleet[0] = 1
        return Plan(fleet=fleet)


def make_good(times=1):
    """Return an agent from a factory."""
    return Good()


class Useless:
    """Neither agent nor planner."""


def agent(name: str) -> str:
    """Return the name by which `fleetgym` finds an agent of this file."""
    return f"{__file__}:{name}"
