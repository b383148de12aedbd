"""Play jobs on the workers of a Dask scheduler, where a lost worker costs time, but never a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgym.evaluation.agreement import differences, machine_facts
from fleetgym.files.errors import FleetgymError

if TYPE_CHECKING:
    from distributed import Client

_START_WAIT_S = 30


@contextlib.contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask cluster whose workers play jobs, for `evaluate`'s ``executor``.

    Dask gives the jobs of a lost worker to others, and waits for new workers if all are lost. A job that crashes its
    workers is played again with its agent isolated, and becomes one failed episode. If the scheduler is lost, the
    run ends; what is done is in its file.

    Parameters
    ----------
    address : str
        Of the scheduler, as ``tcp://host:8786``, or the path of its scheduler file (``.json``). Start workers with
        ``--nthreads 1``, so that CPU seconds are those of one job.

    Yields
    ------
    concurrent.futures.Executor

    Raises
    ------
    FleetgymError
        If Dask is not installed, nothing answers, or a worker has another version or other instances.
    """
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError:
        raise FleetgymError("this needs Dask: pip install 'fleetgym[dask]'") from None
    by_file = address.endswith(".json")
    if by_file and not Path(address).is_file():  # which Dask would wait for
        raise FleetgymError(f"there is no scheduler file {address!r}")
    where = {"scheduler_file": address} if by_file else {"address": address}
    try:
        if not by_file:
            get_address_host_port(
                address
            )  # a client that fails for its address does not close what it has opened
        client = Client(**where, timeout=_START_WAIT_S, set_as_default=False)
    except (OSError, ValueError, AssertionError) as error:  # Dask asserts that an address names a host
        raise FleetgymError(f"no Dask scheduler answers at {address!r} ({error or 'no address'})") from None
    with client:
        _check_workers(client)
        yield client.get_executor(pure=False)


def _check_workers(client: Client) -> None:
    """Refuse workers whose results would differ from ours, and say which and why; later ones refuse their jobs."""
    answers: dict[str, Any] = {}
    end = time.monotonic() + _START_WAIT_S
    while not answers:  # a worker that died just now counts as there until the scheduler notices
        try:
            client.wait_for_workers(1, timeout=max(end - time.monotonic(), 0.01))
        except TimeoutError:
            raise FleetgymError(f"the Dask cluster has had no worker for {_START_WAIT_S} s") from None
        answers = client.run(machine_facts, on_error="return")
    ours = machine_facts()
    for worker, theirs in answers.items():
        if isinstance(theirs, Exception):
            raise FleetgymError(
                f"the Dask worker {worker} does not say what it has ({theirs}); install fleetgym {ours['fleetgym']} "
                "there"
            )
        if which := differences(theirs, ours):
            raise FleetgymError(f"the Dask worker {worker} {which}")
