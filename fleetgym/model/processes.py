"""The random processes that an instance may name for its future: their kinds, parameters and ranges."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from fleetgym.files.errors import DataError, suggestion
from fleetgym.files.schema import ID, Checked, Nested, NumberMap, documented, spec


class Parameter(NamedTuple):
    """What a process's parameter may be."""

    per: str  # "one" number, or one per "workload" or "pool"; one number for all of these will do too
    low: float = 0.0
    high: float = math.inf


_SHORTEST_MIN = 1e-3
_ANY_PER_WORKLOAD, _SHARE_OF_ONE = Parameter("workload"), Parameter("one", 0.0, 1.0)
_TIME, _DISPERSION = Parameter("workload", _SHORTEST_MIN), Parameter("workload", 1.0)

#: Parameters that each kind of process takes.
PROCESSES: Mapping[str, Mapping[str, Mapping[str, Parameter]]] = {
    "demand": {
        "history": {},
        "resampled-history": {"roll_windows": Parameter("one"), "level_log_sd": _ANY_PER_WORKLOAD},
        "grw": {"sigma": _ANY_PER_WORKLOAD, "dispersion": _DISPERSION},
        "diurnal-ou": {
            "daily_amplitude": _ANY_PER_WORKLOAD,
            "daily_peak_h": Parameter("workload", 0.0, 24.0),
            "ou_sd": _ANY_PER_WORKLOAD,
            "ou_time_min": _TIME,
            "ou_common": _SHARE_OF_ONE,
            "noise_sd": _ANY_PER_WORKLOAD,
            "jumps_per_day": _ANY_PER_WORKLOAD,
            "jump_log_mean": Parameter("workload", 0.4, 1.39),  # beyond, the mean of a jump is infinite
            "jump_hold_min": _TIME,
            "dispersion": _DISPERSION,
        },
    },
    "tokens": {"constant": {}, "drift": {"log_sd": _ANY_PER_WORKLOAD, "time_min": _TIME}},
    "factors": {
        "constant": {},
        "lognormal": {"delay_sd": _ANY_PER_WORKLOAD, "error_sd": _ANY_PER_WORKLOAD},
    },
    "availability": {
        "constant": {},
        "drops": {
            "drops_per_day": Parameter("pool"),
            "depth_a": Parameter("one", 1e-3),
            "depth_b": Parameter("one", 1e-3),
            "duration_log_mean_min": Parameter("one", -10.0, 20.0),
            "duration_log_sd": Parameter("one", 0.0, 10.0),
            "first_window_share": _SHARE_OF_ONE,
            "copula_same_region": _SHARE_OF_ONE,
            "copula_other_region": _SHARE_OF_ONE,
        },
    },
    "prices": {"constant": {}},
}


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Process(Checked):
    """A random process by name, with its parameters."""

    kind: str = spec(ID)
    parameters: Mapping[str, Any] = spec(NumberMap(), doc="which ones each kind takes: `PROCESSES`")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamics(Checked):
    """The processes from which fresh scenarios are drawn."""

    demand: Process = spec(Nested(Process))
    tokens: Process = spec(Nested(Process))
    factors: Process = spec(Nested(Process))
    availability: Process = spec(Nested(Process))
    prices: Process = spec(Nested(Process))


def check_dynamics(dynamics: Dynamics, counts: Mapping[str, int], path: str) -> None:
    """Raise `DataError` unless every process is of a known kind and has its parameters, in their ranges.

    Parameters
    ----------
    dynamics : Dynamics
    counts : mapping of str to int
        How many things of each kind a parameter may be given for one by one: ``workload`` and ``pool``.
    path : str
        JSON path of `dynamics`.
    """
    lengths = {"one": 1, **counts}
    for field in dataclasses.fields(Dynamics):
        process, here = getattr(dynamics, field.name), f"{path}.{field.name}"
        kinds = PROCESSES[field.name]
        if process.kind not in kinds:
            _fail(f"unknown kind {process.kind!r}{suggestion(process.kind, kinds)}", f"{here}.kind")
        expected = kinds[process.kind]
        for name, value in process.parameters.items():
            where = f"{here}.parameters.{name}"
            if name not in expected:
                _fail(f"unknown parameter{suggestion(name, expected)}", where)
            per, low, high = expected[name]
            if isinstance(value, tuple) and len(value) != lengths[per]:
                _fail(f"expected one number or one per {per} ({lengths[per]})", where)
            for number in value if isinstance(value, tuple) else (value,):
                if not low <= number <= high:
                    _fail(f"expected {_between(low, high)}, got {number:g}", where)
        for name in expected:
            if name not in process.parameters:
                _fail(f"missing parameter {name!r}", f"{here}.parameters")

    drops = dynamics.availability
    if drops.kind == "drops" and _first(drops, "copula_other_region") > _first(drops, "copula_same_region"):
        _fail("expected copula_other_region <= copula_same_region", f"{path}.availability.parameters")


def _first(process: Process, name: str) -> float:
    value = process.parameters[name]
    return float(value[0] if isinstance(value, tuple) else value)


def _between(low: float, high: float) -> str:
    return f"at least {low:g}" if high == math.inf else f"a number from {low:g} to {high:g}"


def _fail(message: str, path: str) -> NoReturn:
    raise DataError(message, path)
