"""The address of a Dask scheduler in, an executor out; a worker that is lost costs time, never a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

from fleetgym.files.errors import FleetgymError

_START_WAIT_S = 30


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
    except (OSError, ValueError) as error:
        raise FleetgymError(f"no Dask scheduler answers at {address!r} ({error})") from None
    with client:
        _check_workers(client)
        yield client.get_executor(pure=False)


def _check_workers(client: object) -> None:
    """Refuse workers whose results would differ from ours."""
    try:
        client.wait_for_workers(1, timeout=_START_WAIT_S)  # type: ignore[attr-defined]
        found = client.run(worker_facts)  # type: ignore[attr-defined]
    except TimeoutError:
        raise FleetgymError(f"the Dask cluster has had no worker for {_START_WAIT_S} s") from None
    except ImportError as error:
        raise FleetgymError(f"a Dask worker cannot import fleetgym ({error}); install it there") from None
    for worker, facts in found.items():
        if facts != worker_facts():
            raise FleetgymError(
                f"the Dask worker {worker} has {' and '.join(facts)}; here are {' and '.join(worker_facts())}"
            )


def worker_facts() -> tuple[str, str]:
    """Return version and standard set, on which results depend."""
    from fleetgym.model.library import manifests_sha256
    from fleetgym.runtime.version import __version__

    return f"fleetgym {__version__}", f"instances {manifests_sha256()[:12]}"
