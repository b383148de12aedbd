"""Refuse workers that differ from the run in anything that a result depends on."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from fleetgym.agents.registry import parse_agent
from fleetgym.evaluation.executors import Player
from fleetgym.evaluation.jobs import Job
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import files_sha256, manifests_sha256
from fleetgym.runtime.version import __version__

#: What a result's last bit may depend on.
PACKAGES = ("numpy", "scipy", "numba", "highspy")

#: By name what a result depends on: versions and checksums.
Facts = Mapping[str, str]


@functools.cache
def package_versions() -> Facts:
    """Return the versions of the libraries on which results depend.

    Examples
    --------
    >>> sorted(package_versions())
    ['highspy', 'numba', 'numpy', 'scipy']
    """
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def machine_facts() -> Facts:
    """Return the installed versions: fleetgym, its sets of instances, Python and libraries.

    Examples
    --------
    >>> list(machine_facts())
    ['fleetgym', 'sets of instances', 'Python', 'numpy', 'scipy', 'numba', 'highspy']
    """
    return {
        "fleetgym": __version__,
        "sets of instances": manifests_sha256()[:12],
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **package_versions(),
    }


def job_facts(job: Job) -> Facts:
    """Return the state of a job's files: of a third party's agent, and of an instance that is given by its path."""
    sums = {job.agent: parse_agent(job.agent).code_sha256, job.instance: files_sha256(job.instance)}
    return {name: checksum[:12] for name, checksum in sums.items() if checksum is not None}


def differences(there: Facts, here: Facts) -> str:
    """Return in one line what differs; empty if nothing does.

    Examples
    --------
    >>> differences({"numpy": "2.0.0", "numba": "0.68"}, {"numpy": "2.1.0", "numba": "0.68"})
    'has numpy 2.0.0, the run has 2.1.0'
    """
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return "; ".join(f"has {name} {there.get(name)}, the run has {here.get(name)}" for name in names)


def worker_name() -> str:
    """Return a worker's name: its address in Dask, else its machine and process."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return f"Dask worker {get_worker().address}"
        except ValueError:  # this is none
            pass
    return f"worker {socket.gethostname()}, process {os.getpid()}"


@dataclasses.dataclass(frozen=True)
class CheckedPlayer:
    """Plays jobs if the machine has everything that their results depend on, or refuses.

    Parameters
    ----------
    player : Player
        Plays one job.
    facts : mapping of str to str
        What the run has, see `checked`.
    """

    player: Player
    facts: Facts

    def __call__(self, job: Job) -> Any:
        """Return the job's result.

        Raises
        ------
        FleetgymError
            If this worker would play something else: which worker it is, and what differs.
        """
        try:
            found = machine_facts()
            wanted = {name: self.facts[name] for name in found}
            if not differences(found, wanted):
                found = {**found, **job_facts(job)}
                wanted |= {name: self.facts[name] for name in (job.agent, job.instance) if name in self.facts}
        except (FleetgymError, OSError) as error:
            raise FleetgymError(f"the {worker_name()} cannot play {job}: {error}") from None
        if which := differences(found, wanted):
            raise FleetgymError(f"the {worker_name()} {which}; end it, and resume the results file to go on")
        return self.player(job)

    def isolated(self) -> CheckedPlayer:
        """Return the same with every agent in its own process."""
        return dataclasses.replace(self, player=self.player.isolated())


def checked(player: Player, jobs: Iterable[Job]) -> CheckedPlayer:
    """Return a player of these jobs that refuses to play where anything differs from here."""
    facts = dict(machine_facts())
    for job in {(job.agent, job.instance): job for job in jobs}.values():
        facts |= job_facts(job)
    return CheckedPlayer(player, facts)
