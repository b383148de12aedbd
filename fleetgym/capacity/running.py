"""Read the file that states the running replicas by configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from fleetgym.files.documents import read_json
from fleetgym.files.errors import DataError, suggestion
from fleetgym.files.schema import Integer
from fleetgym.model.instance import Instance

_REPLICAS = Integer(0, 10**6)


def read_running(path: str | os.PathLike[str], instance: Instance) -> np.ndarray:
    """Read a fleet: JSON with replicas by configuration, or what ``plan --json`` printed.

    Parameters
    ----------
    path : path-like
        Such as ``{"Llama-3.1-8B@h100-on-demand-region-1-fp8:tp1pp1": 3}``. Configurations that are not named do not
        run.
    instance : Instance
        Whose configurations these are.

    Returns
    -------
    ndarray of int64, shape (C,)

    Raises
    ------
    DataError
        With file and JSON path, for what is no fleet of this instance.
    """
    source, place = os.fspath(path), "$"
    found = read_json(path)
    if isinstance(found, Mapping) and isinstance(found.get("fleet"), Mapping):
        found, place = found["fleet"], "$.fleet"
    if not isinstance(found, Mapping):
        raise DataError("expected replicas by configuration", place, source)
    fleet = np.zeros(instance.num_configurations, dtype=np.int64)
    for name, replicas in found.items():
        c = instance.configuration_index.get(name)
        if c is None:
            known = ", ".join(instance.configuration_index)
            hint = suggestion(name, instance.configuration_index) or f"; they are {known[:300]}"
            raise DataError(f"the instance has no configuration {name!r}{hint}", place, source)
        try:
            fleet[c] = _REPLICAS.read(replicas, place) or 0
        except DataError as error:
            raise DataError(error.message, f"{place}[{name!r}]", source) from None
    held = instance.gpu_use @ fleet
    for g, pool in enumerate(instance.pools):
        if held[g] > pool.cap_gpus:
            raise DataError(
                f"holds {held[g]} GPUs of pool {pool.id!r}, whose cap is {pool.cap_gpus}", place, source
            )
    return fleet
