"""Read scenario files, and check each `Scenario` against its instance."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from fleetgym.files import quantities as q
from fleetgym.files.documents import read_json
from fleetgym.files.errors import DataError
from fleetgym.files.schema import (
    ID,
    SHA256,
    Array,
    Checked,
    Choice,
    Integer,
    ListOf,
    Nested,
    check_unique_ids,
    documented,
    object_schema,
    read_object,
    spec,
    to_jsonable,
)
from fleetgym.model.instance import Instance
from fleetgym.model.processes import Dynamics, check_dynamics

SCENARIO_FORMAT = "fleetgym-scenarios-1"

_PER_WORKLOAD = ("window", "workload")
_PER_POOL = ("window", "pool")


@documented
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scenario(Checked):
    """Every realised number of one episode. A field with a single row holds that row in every window."""

    id: str = spec(ID)
    rate_rps: np.ndarray = spec(
        Array(_PER_WORKLOAD, q.RATE_RPS), doc="arrivals counted over the window / window_s"
    )
    input_scale: np.ndarray = spec(Array(_PER_WORKLOAD, q.FACTOR), doc="mean input length / nominal")
    output_scale: np.ndarray = spec(Array(_PER_WORKLOAD, q.FACTOR), doc="mean output length / nominal")
    delay_factor: np.ndarray = spec(Array(_PER_WORKLOAD, q.FACTOR), doc="multiplies every duration")
    error_factor: np.ndarray = spec(Array(_PER_WORKLOAD, q.FACTOR), doc="multiplies the error")
    available_gpus: np.ndarray = spec(
        Array(_PER_POOL, Integer(), "int64"), doc="most GPUs the fleet may hold"
    )
    price_factor: np.ndarray = spec(Array(_PER_POOL, q.PRICE_FACTOR), doc="multiplies the list price")

    def check(self, instance: Instance, path: str = "$") -> Scenario:
        """Return self if every array's shape and the pools' GPUs fit `instance`; raise `DataError` otherwise."""
        counts = {"workload": instance.num_workloads, "pool": instance.num_pools}
        for field in dataclasses.fields(self):
            kind = field.metadata["kind"]
            if isinstance(kind, Array):
                shape, width = getattr(self, field.name).shape, counts[kind.dims[1]]
                if shape[0] not in (1, instance.num_windows) or shape[1] != width:
                    raise DataError(
                        f"expected shape ({instance.num_windows}, {width}) or (1, {width}), got {shape}",
                        f"{path}.{field.name}",
                    )
        nodes = np.array([pool.gpus_per_node for pool in instance.pools])
        caps = np.array([pool.cap_gpus for pool in instance.pools])
        if np.any(self.available_gpus % nodes) or np.any(self.available_gpus > caps):
            raise DataError("expected whole nodes and at most the pool's cap_gpus", f"{path}.available_gpus")
        return self

    def expanded(self, num_windows: int) -> Scenario:
        """Return the scenario with every field at full length."""
        arrays: dict[str, Any] = {
            f.name: np.broadcast_to(getattr(self, f.name), (num_windows, getattr(self, f.name).shape[1]))
            for f in dataclasses.fields(self)
            if isinstance(f.metadata["kind"], Array)
        }
        return dataclasses.replace(self, **arrays)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ScenarioFile(Checked):
    """The stored scenarios of one instance."""

    format: str = spec(Choice((SCENARIO_FORMAT,)))
    instance: str = spec(ID, doc="id of the instance")
    instance_hash: str = spec(SHA256, doc="content hash of the instance")
    scenarios: tuple[Scenario, ...] = spec(ListOf(Nested(Scenario), 1, 10_000))
    law: Dynamics | None = spec(
        Nested(Dynamics, nullable=True),
        None,
        doc="the processes that drew them, where the instance has fitted ones",
        sparse=True,
    )


def scenario_file_data(
    instance: Instance, scenarios: Iterable[Scenario], law: Dynamics | None = None
) -> dict[str, Any]:
    """Return the JSON form of the file of an instance's scenarios, and of their law where the instance has none."""
    hidden = {} if law is None else {"law": to_jsonable(law)}
    return {
        "format": SCENARIO_FORMAT,
        "instance": instance.id,
        "instance_hash": instance.content_hash,
        "scenarios": [to_jsonable(scenario) for scenario in scenarios],
        **hidden,
    }


def load_scenario_file(path: str | os.PathLike[str], instance: Instance) -> ScenarioFile:
    """Read what is stored of `instance` and hidden from agents; each scenario is checked against it.

    Raises
    ------
    DataError
        With the file and the JSON path of what is wrong.
    """
    try:
        stored = read_object(ScenarioFile, read_json(path))
        if stored.instance != instance.id:
            raise DataError(f"expected {instance.id!r}, got {stored.instance!r}", "$.instance")
        if stored.instance_hash != instance.content_hash:
            raise DataError(
                f"made for another instance than {instance.id!r}; if you edited it, `fleetgym check FILE --write` "
                "stores its scenarios anew",
                "$.instance_hash",
            )
        check_unique_ids(stored.scenarios, "$.scenarios")
        for k, scenario in enumerate(stored.scenarios):
            scenario.check(instance, f"$.scenarios[{k}]")
        check_law(instance, stored.law)
        return stored
    except DataError as error:
        raise error.in_file(path) from None


def check_law(instance: Instance, law: Dynamics | None) -> None:
    """Raise `DataError` unless there is a law exactly where the instance has fitted processes, and it fits.

    Parameters
    ----------
    instance : Instance
    law : Dynamics or None
        Of its scenario file.
    """
    if (law is None) == (instance.law == "fitted"):
        told = "has none of its own" if law is None else "tells its own"
        word = "expected the processes that drew the days" if law is None else "expected no law"
        raise DataError(f"{word}: {instance.id!r} {told}", "$.law")
    if law is not None:
        counts = {"workload": instance.num_workloads, "pool": instance.num_pools}
        check_dynamics(law, counts, "$.law")


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCENARIO_FORMAT}
    return {**head, **object_schema(ScenarioFile)}
