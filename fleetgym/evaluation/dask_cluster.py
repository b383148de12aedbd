"""The address of a Dask scheduler in, an executor out; a worker that is lost costs time, never a job."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgym.evaluation.agreement import differences, machine_facts
from fleetgym.files.errors import FleetgymError

if TYPE_CHECKING:
    from distributed import Client

_START_WAIT_S = 30
#: A cluster that has lost all its workers may get new ones within so long.
_WORKERLESS_S = 300
_LOOK_S = 1.0


@contextlib.contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask cluster whose workers play jobs, for `evaluate`'s ``executor``.

    Dask gives the jobs of a lost worker to others. A job that takes its workers along is played again with its
    agent isolated, and becomes one failed episode.

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
        with contextlib.closing(_PatientExecutor(client, address)) as executor:
            yield executor


class _PatientExecutor(Executor):
    """Hands jobs to a client that has its scheduler, and waits for one that is restarted.

    Jobs that were handed out before come back as cancelled, and are handed out again by `play_on`. It also waits for
    new workers of a cluster that has lost all of them, for a time.
    """

    def __init__(self, client: Client, address: str):
        self.client, self.address = client, address
        self.executor = client.get_executor(pure=False)
        self._out: set[Future[Any]] = set()
        self._broken = ""
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Let go of all jobs when the cluster has had no worker for too long: nobody would ever play them."""
        since = time.monotonic()
        while not self._closed.wait(_LOOK_S):
            if self._threads() != 0:  # or the scheduler does not say
                since = time.monotonic()
            elif time.monotonic() - since > _WORKERLESS_S:
                self._broken = f"the Dask cluster at {self.address!r} has had no worker for {_WORKERLESS_S} s"
                for future in list(self._out):
                    future.cancel()
                return

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    @property
    def num_workers(self) -> int:
        """How many jobs the cluster plays at once, now; 0 while its scheduler is away."""
        return self._threads() or 0

    def _threads(self) -> int | None:
        """Return the number of the workers' threads; None while the scheduler is away."""
        if self.client.status == "running":
            with contextlib.suppress(OSError):  # it went away just now
                return sum(self.client.nthreads().values())
        return None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Return the future of a call; `BrokenExecutor` if the scheduler, or all workers, stay away."""
        while self.client.status == "connecting":  # for `_START_WAIT_S` at most
            time.sleep(0.1)
        if self.client.status != "running":
            raise BrokenExecutor(f"the Dask scheduler at {self.address!r} is gone")
        if self._broken:
            raise BrokenExecutor(self._broken)
        future: Future[Any] = self.executor.submit(function, *arguments, **named)
        self._out.add(future)
        future.add_done_callback(self._out.discard)
        return future


def _check_workers(client: Client) -> None:
    """Refuse workers whose results would differ from ours, and say which and why; later ones refuse their jobs."""
    try:
        client.wait_for_workers(1, timeout=_START_WAIT_S)
    except TimeoutError:
        raise FleetgymError(f"the Dask cluster has had no worker for {_START_WAIT_S} s") from None
    ours = machine_facts()
    for worker, theirs in client.run(machine_facts, on_error="return").items():
        if isinstance(theirs, Exception):
            raise FleetgymError(
                f"the Dask worker {worker} does not say what it has ({theirs}); install fleetgym {ours['fleetgym']} "
                "there"
            )
        if which := differences(theirs, ours):
            raise FleetgymError(f"the Dask worker {worker} {which}")
