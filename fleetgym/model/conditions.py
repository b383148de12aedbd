"""Hold the exogenous data of a window: arrivals, lengths, factors, available GPUs and prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fleetgym.files.errors import DataError, UnknownNameError
from fleetgym.files.schema import shown
from fleetgym.kernels.records import PackedConditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario

_PER_WORKLOAD = ("rate_rps", "input_scale", "output_scale", "delay_factor", "error_factor")


_PER_POOL = ("available_gpus", "price_factor")


@dataclasses.dataclass(frozen=True, eq=False)
class Conditions:
    """The realised numbers of one window of a scenario; I workloads, G pools.

    Attributes
    ----------
    rate_rps : ndarray, shape (I,)
        Arrivals per second.
    input_scale : ndarray, shape (I,)
        Mean input length / nominal.
    output_scale : ndarray, shape (I,)
        Mean output length / nominal.
    delay_factor : ndarray, shape (I,)
        Multiplies every duration.
    error_factor : ndarray, shape (I,)
        Multiplies the error.
    available_gpus : ndarray of int64, shape (G,)
        Most GPUs that the fleet may hold.
    price_factor : ndarray, shape (G,)
        Multiplies the list price.

    Examples
    --------
    >>> import fleetgym
    >>> conditions = Conditions.nominal(fleetgym.load_instance("fleet-v0/toy/drop"))
    >>> conditions.rate_rps.tolist(), conditions.available_gpus.tolist()
    ([20.0], [2, 2])
    """

    rate_rps: np.ndarray
    input_scale: np.ndarray
    output_scale: np.ndarray
    delay_factor: np.ndarray
    error_factor: np.ndarray
    available_gpus: np.ndarray
    price_factor: np.ndarray

    #: Fields per workload, in the kernels' order.
    WORKLOAD_FIELDS: ClassVar = _PER_WORKLOAD
    #: All fields.
    FIELDS: ClassVar = _PER_WORKLOAD + _PER_POOL

    @classmethod
    def nominal(cls, instance: Instance) -> Conditions:
        """Return the window that an agent expects before it has seen any."""
        ones = np.ones(instance.num_workloads)
        return cls(
            rate_rps=np.array([w.rate_rps for w in instance.workloads]),
            input_scale=ones,
            output_scale=ones,
            delay_factor=ones,
            error_factor=ones,
            available_gpus=np.array([p.cap_gpus for p in instance.pools], dtype=np.int64),
            price_factor=np.ones(instance.num_pools),
        )

    @classmethod
    def of(cls, scenario: Scenario, window: int) -> Conditions:
        """Return window `window` of a scenario."""
        rows = {}
        for name in cls.FIELDS:
            series = getattr(scenario, name)
            rows[name] = series[window if series.shape[0] > 1 else 0]
        return cls(**rows)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], default: Conditions) -> Conditions:
        """Return `default` with the fields that `data` names replaced.

        Raises
        ------
        UnknownNameError
            For a name that no field has.
        DataError
            For what is no mapping, and if a field has the wrong shape, or holds what is no finite number of at
            least 0, or, of `available_gpus`, no whole one.
        """
        if not isinstance(data, Mapping):
            raise DataError(
                f"expected conditions or a mapping of its fields, got {shown(data)}", "$.conditions"
            )
        values = {name: getattr(default, name) for name in cls.FIELDS}
        for name, given in data.items():
            if name not in values:
                raise UnknownNameError("field of conditions", str(name), cls.FIELDS)
            values[name] = _like(values[name], given, f"$.conditions.{name}")
        return cls(**values)

    def as_dict(self) -> dict[str, np.ndarray]:
        """Return the fields as copies."""
        return {name: getattr(self, name).copy() for name in self.FIELDS}

    def stacked(self) -> np.ndarray:
        """Return the workload fields as one array, (5, I), in the kernels' order."""
        return np.array([getattr(self, name) for name in _PER_WORKLOAD], dtype=np.float64)

    def packed(self) -> PackedConditions:
        """Return the window as the kernels take it."""
        return PackedConditions(self.stacked(), np.array(self.available_gpus), np.array(self.price_factor))


def _like(old: np.ndarray, given: object, path: str) -> np.ndarray:
    """Return numbers that may stand for `old`, in its shape and type, or raise `DataError`."""
    try:
        raw = np.asarray(given)
    except ValueError:  # lists of several lengths
        raw = np.asarray(given, dtype=object)
    whole = " whole" if old.dtype.kind == "i" else ""
    expected = f"expected {old.size} finite{whole} numbers, none negative"
    fits = raw.dtype.kind in "iuf" and raw.shape == old.shape
    if not fits or not (np.isfinite(raw) & (raw >= 0)).all() or (whole and (raw != np.floor(raw)).any()):
        raise DataError(f"{expected}, got {shown(raw.tolist())}", path)
    return raw.astype(old.dtype)
