"""Run a program in any language as an agent: start it by its command line, and ask it by the agent protocol.

``fleetgym.evaluation.isolation.program:Program(command='./my_agent --fast')`` is its name wherever an agent is named.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.agents.view import View
from fleetgym.evaluation.isolation.agent_runner import AgentFailure
from fleetgym.evaluation.isolation.wire import (
    MAX_REPLY_CHARS,
    act_message,
    new_id,
    read_reply,
    reset_message,
    to_line,
)
from fleetgym.files.errors import FleetgymError


class Program:
    """Pass observations to a program as lines of JSON, and return its actions.

    Parameters
    ----------
    command : str
        The program and its arguments, quoted as for a shell, but no shell reads it.

    Raises
    ------
    FleetgymError
        If there is no such program.
    """

    def __init__(self, command: str):
        self._program: subprocess.Popen[str] | None = None
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise FleetgymError(f"cannot read the command {command!r}: {error}") from None
        if not self.words or shutil.which(self.words[0]) is None:
            raise FleetgymError(f"cannot start {command!r}: there is no such program that may be run")
        self.command = command

    def reset(self, view: View, *, seed: int) -> None:
        """Start the program and tell it the instance.

        Raises
        ------
        FleetgymError
            If it cannot be started.
        AgentFailure
            If it does not answer, or says that it failed.
        """
        self._view = view
        self.close()
        try:
            self._program = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise FleetgymError(f"cannot start {self.command!r}: {error}") from None
        info = {**view.conditions.as_dict(), "running": view.running, "window": view.window}
        self._ask(lambda number: reset_message(number, self.command, view.instance, info, seed))

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the program's action, (slots,) options; who plays it checks it.

        Raises
        ------
        AgentFailure
            If it does not answer, or says that it failed.
        """
        reply = self._ask(lambda number: act_message(number, observation, info))
        return np.asarray(reply.get("action", []))

    def close(self) -> None:
        """End the program."""
        program, self._program = self._program, None
        if program is not None:
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def __del__(self) -> None:
        self.close()

    def _ask(self, message: Any) -> dict[str, Any]:
        program = self._program
        assert program is not None
        assert program.stdin is not None
        assert program.stdout is not None
        number = new_id()
        with contextlib.suppress(OSError):  # it has ended: then there is no answer either
            program.stdin.write(to_line(message(number)))
            program.stdin.flush()
        line = program.stdout.readline(MAX_REPLY_CHARS)
        if not line:
            raise AgentFailure("died", f"the program ended with exit code {program.wait()}")
        return read_reply(line, number)
