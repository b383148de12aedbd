"""Set an environment variable, here and in the processes started, until the block ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and bring back what it was.

    Examples
    --------
    >>> with environment_variable("FLEETGYM_EXAMPLE", "1"):
    ...     os.environ["FLEETGYM_EXAMPLE"]
    '1'
    >>> "FLEETGYM_EXAMPLE" in os.environ
    False
    """
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
