"""Play an agent under the rules of an official run, which the results file's header states."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.evaluation.isolation.agent_process import AgentProcess, Limits, agent_command
from fleetgym.evaluation.isolation.agent_runner import AgentFailure, load_kernels
from fleetgym.evaluation.isolation.facts import find_facts
from fleetgym.evaluation.isolation.rules import PROTOCOL, TIME_CLASSES, Rules
from fleetgym.evaluation.isolation.sandbox import Sandbox, check_box
from fleetgym.evaluation.isolation.visible import hidden_files
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance

RESET_CPU_S = 60.0
WALL_FACTOR = 3.0
MEMORY_GB = 8.0
MOST_PROCESSES = 64
#: Wall limits stretch at most by this factor, for the time in which the agent waits for a processor.
MOST_WAITING = 10.0

#: Environment variable: if it is set, the kernel's caches are dropped before each episode, and the rules say so.
DROP_VARIABLE = "FLEETGYM_DROP_CACHES"

_DROP = Path("/proc/sys/vm/drop_caches")
_PAGES_AND_NAMES = "3"
_POLL_S = 0.02
#: The machine is compared with its calibration, which takes 25 ms, after so many CPU seconds of an agent.
_COMPARE_EVERY_S = 0.4
_MOST_SLOWDOWN = 2.0
#: A budget is spent when the charge exceeds it by this factor: under load, charges are right within a tenth.
_OVER_BUDGET = 1.1
#: CPU seconds that an agent which waits may still use meanwhile.
_WAITING_S = 0.001


class BudgetSpent(Exception):
    """Raised when the agent has used its CPU seconds: from then on the running fleet stays.

    Parameters
    ----------
    cpu_s : float
        What it had used since its last answer.
    """

    def __init__(self, cpu_s: float):
        super().__init__(f"the budget was spent after another {cpu_s:g} CPU seconds")
        self.cpu_s = cpu_s


def make_rules(time_class: str, agents: Iterable[str] = (), memory_gb: float = MEMORY_GB) -> Rules:
    """Return the rules of a time class on this machine, which is calibrated if that was never done.

    What the box keeps an agent from is tried from inside it.

    Parameters
    ----------
    time_class : str
        ``"reflex"``, ``"online"`` or ``"offline"``.
    agents : iterable of str
        Those that will play, as for `fleetgym.make_agent`.
    memory_gb : float
        Most memory of an agent's process tree.

    Raises
    ------
    FleetgymError
        If there is no such class, this machine cannot make the box of official runs, or it shall drop the kernel's
        caches and this process may not.
    """
    from fleetgym.evaluation.isolation.calibration import machine_name, speed

    if time_class not in TIME_CLASSES:
        raise FleetgymError(
            f"there is no time class {time_class!r}; expected one of {', '.join(TIME_CLASSES)}"
        )
    check_box()
    caches = "dropped" if os.environ.get(DROP_VARIABLE) else "kept"
    if caches == "dropped":
        drop_caches()
    facts = find_facts(agents)
    return Rules(
        protocol=PROTOCOL,
        time_class=time_class,
        cpu_s=TIME_CLASSES[time_class],
        reset_cpu_s=RESET_CPU_S,
        wall_factor=WALL_FACTOR,
        memory_gb=memory_gb,
        machine=machine_name(),
        speed=speed(),
        caches=caches,
        **facts,
    )


def can_drop_caches() -> bool:
    """Return whether this process may drop the kernel's caches: as root, and in no ordinary container."""
    return os.access(_DROP, os.W_OK)


def drop_caches() -> None:
    """Drop the kernel's caches of files and names, through which one episode could signal to the next.

    Raises
    ------
    FleetgymError
        If this process may not.
    """
    try:
        _DROP.write_text(_PAGES_AND_NAMES)
    except OSError as error:
        raise FleetgymError(
            f"{DROP_VARIABLE} needs root: cannot write to {_DROP} ({error.strerror})"
        ) from None


class OfficialAgent(AgentProcess):
    """An agent in its own sandbox, for one episode, under the rules of an official run.

    Parameters
    ----------
    name : str
        As for `make_agent`.
    rules : Rules
        What it may use.
    instance : str
        Id or path of the instance that it will play.
    """

    def __init__(self, name: str, rules: Rules, instance: str):
        from fleetgym.evaluation.isolation.calibration import calibration, machine_name

        super().__init__(name, Limits())
        self.rules = rules
        kept = calibration()
        self._calm_sample_s = kept.sample_s
        # a worker may be another machine than the header's
        self._calm_speed = rules.speed if machine_name() == rules.machine else kept.speed
        self.speed: float = self._calm_speed
        self._hide = hidden_files(instance)
        self._sandbox: Sandbox | None = None
        self._charged_s = 0.0  # CPU seconds that are accounted for
        self._reference_s = 0.0  # what they were charged as
        self._compared_s = 0.0  # CPU seconds when the machine was last compared with its calibration
        self._slowdown = 1.0  # what that found

    def reset(self, instance: Instance, info: Mapping[str, Any], seed: int) -> float:
        """Start the agent and begin its episode; return the CPU seconds since its start.

        Raises
        ------
        BudgetSpent
            If reset takes over its budget.
        AgentFailure
            If the agent raises, dies, takes too much memory, or does not answer by the wall cap.
        """
        load_kernels(instance)  # the agent finds them compiled
        self._allow(self.rules.reset_cpu_s)
        super().reset(instance, info, seed)
        self._compare()
        used_s = self._charge()
        self._allow(self.rules.cpu_s)
        return used_s

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> tuple[list[int], float]:
        """Return the agent's action, not yet checked, and the CPU seconds since its last answer.

        Raises
        ------
        BudgetSpent
            If the episode's budget is spent.
        AgentFailure
            As `reset`.
        """
        action, _ = super().act(observation, info)
        if self._used_s - self._compared_s >= _COMPARE_EVERY_S:
            self._compare()
        return action, self._charge()

    def _allow(self, reference_s: float) -> None:
        self._left_s = _OVER_BUDGET * reference_s
        self._wall_left_s = self.rules.wall_factor * reference_s / self._calm_speed

    def _charge(self) -> float:
        """Return the CPU seconds since the last call; where the machine is slower now they count as fewer."""
        used_s = self._used_s - self._charged_s
        charge_s = self._in_reference_s(used_s)
        self._charged_s += used_s
        self._reference_s += charge_s
        self._left_s -= charge_s
        if self._charged_s > 0:
            self.speed = self._reference_s / self._charged_s
        return used_s

    def _in_reference_s(self, cpu_s: float) -> float:
        return cpu_s * self._calm_speed / self._slowdown

    def _compare(self) -> None:
        """Note how many times slower than calibrated the machine is while the agent waits; 1 if it does not wait."""
        from fleetgym.evaluation.isolation.calibration_work import sample_s

        slowdown = min(max(1.0, sample_s() / self._calm_sample_s), _MOST_SLOWDOWN)
        if self._sandbox is not None:  # it has begun
            self._compared_s = self._used_s
            is_busy = self._sandbox.usage().cpu_s > self._used_s + _WAITING_S
            slowdown = 1.0 if is_busy else slowdown
        self._slowdown = slowdown

    # -- the process

    def _start(self) -> None:
        if self.rules.caches == "dropped":
            drop_caches()
        self._compare()
        command = agent_command(None)
        self._sandbox = Sandbox(command, 2e9 * self.rules.memory_gb, self._hide, self.name)
        self._used_s = 0.0
        self._begin(self._sandbox.process)

    def _kill(self, process: subprocess.Popen[str]) -> None:
        assert self._sandbox is not None
        self._sandbox.end()

    def _wait(self, limit_s: float) -> str:
        """Return the reply; look after the agent's use of CPU, memory and time until it comes.

        Time in which the agent waits for a processor is no time of its own: on a loaded machine it may take longer.
        """
        assert self._sandbox is not None
        begin, queued_s = time.monotonic(), self._sandbox.tree.queued_s()

        def own_s() -> float:
            passed_s = time.monotonic() - begin
            assert self._sandbox is not None
            waited_s = self._sandbox.tree.queued_s() - queued_s
            return passed_s - min(max(0.0, waited_s), passed_s * (1.0 - 1.0 / MOST_WAITING))

        while True:
            with contextlib.suppress(queue.Empty):
                reply = self._inbox.get(timeout=_POLL_S)
                self._look(has_answer=reply is not None)
                self._wall_left_s -= own_s()
                if reply is None:
                    raise self._death()
                return reply
            self._look(has_answer=False)
            if time.monotonic() - begin > self._wall_left_s and own_s() > self._wall_left_s:
                times = f"{self.rules.wall_factor:g} times the CPU seconds allowed"
                raise AgentFailure("timeout", f"no answer within {times}, in wall time")

    def _death(self) -> AgentFailure:
        assert self._sandbox is not None
        return AgentFailure("died", self._sandbox.cause_of_death())

    def _look(self, has_answer: bool) -> None:
        """Note what the tree has used.

        Raises
        ------
        BudgetSpent, AgentFailure
            If that is too much.
        """
        assert self._sandbox is not None
        usage = self._sandbox.usage()
        self._used_s = usage.cpu_s
        if self._in_reference_s(usage.cpu_s - self._charged_s) > self._left_s:
            raise BudgetSpent(self._charge())
        limit = self.rules.memory_gb * 1e9
        if usage.resident_bytes > limit and self._sandbox.tree.private_bytes() > limit:
            raise AgentFailure("resources", f"took over {self.rules.memory_gb:g} GB of memory")
        if usage.processes > MOST_PROCESSES:
            raise AgentFailure("resources", f"ran over {MOST_PROCESSES} processes at a time")
        if not has_answer and self._sandbox.process.poll() is not None:
            raise self._death()
