"""List the random processes that an instance may name: their kinds, parameters and ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from fleetgym.files.errors import DataError, suggestion
from fleetgym.files.quantities import DISPERSION, LOG_SD, PARAMETER, PER_DAY, ROLL_WINDOWS, SHARE, TIME_MIN
from fleetgym.files.schema import ID, Checked, ListOf, Nested, Number, NumberMap, documented, spec


class Parameter(NamedTuple):
    """What a process's parameter may be."""

    per: str  # "one" number, or one per "workload" or "pool"; one number for all of these will do too
    kind: Number


_SHARE_OF_ONE, _SPREAD = Parameter("one", SHARE), Parameter("workload", LOG_SD)
_TIME, _DISPERSION = Parameter("workload", TIME_MIN), Parameter("workload", DISPERSION)
_PER_DAY = {per: Parameter(per, PER_DAY) for per in ("workload", "pool")}
_SHAPE = Parameter("one", Number(1e-3, 1e6))

_LEVEL = {  # of demand, beside what the time says
    "ou_sd": _SPREAD,
    "ou_time_min": _TIME,
    "ou_common": _SHARE_OF_ONE,
    "noise_sd": _SPREAD,
    "jumps_per_day": _PER_DAY["workload"],
    "jump_log_mean": Parameter("workload", Number(0.4, 1.39)),  # beyond, the mean of a jump is infinite
    "jump_hold_min": _TIME,
    "dispersion": _DISPERSION,
}
_DROPS = {
    "drops_per_day": _PER_DAY["pool"],
    "depth_a": _SHAPE,
    "depth_b": _SHAPE,
    "duration_log_mean_min": Parameter("one", Number(-10.0, 20.0)),
    "duration_log_sd": Parameter("one", Number(0.0, 10.0)),
    "first_window_share": _SHARE_OF_ONE,
    "copula_same_region": _SHARE_OF_ONE,
    "copula_other_region": _SHARE_OF_ONE,
}
#: Names of the profiles of ``weekly-ou``: a level and four harmonics of working days and of weekends.
_TERMS = ("level", *(f"{name}_{k}" for k in (1, 2, 3, 4) for name in ("cos", "sin")))
PROFILE: tuple[str, ...] = tuple(f"{days}_{term}" for days in ("workday", "weekend") for term in _TERMS)

#: Parameters that each kind of process takes.
PROCESSES: Mapping[str, Mapping[str, Mapping[str, Parameter]]] = {
    "demand": {
        "history": {},
        "resampled-history": {
            "roll_windows": Parameter("one", ROLL_WINDOWS),
            "level_log_sd": _SPREAD,
        },
        "grw": {"sigma": _SPREAD, "dispersion": _DISPERSION},
        "diurnal-ou": {
            "daily_amplitude": _SPREAD,
            "daily_peak_h": Parameter("workload", Number(0.0, 24.0, "h")),
            **_LEVEL,
        },
        "weekly-ou": {
            **dict.fromkeys(PROFILE, Parameter("workload", Number(-10.0, 10.0))),
            "first_day": Parameter("one", Number(0.0, 6.0)),  # 0: Monday
            **_LEVEL,
        },
    },
    "tokens": {"constant": {}, "drift": {"log_sd": _SPREAD, "time_min": _TIME}},
    "factors": {
        "constant": {},
        "lognormal": {"delay_sd": _SPREAD, "error_sd": _SPREAD},
    },
    "availability": {
        "constant": {},
        "drops": _DROPS,
        "warned-drops": {**_DROPS, "warning_windows": Parameter("pool", SHARE)},
    },
    "prices": {
        "constant": {},
        "ou-jumps": {
            "ou_sd": Parameter("pool", LOG_SD),
            "ou_time_min": Parameter("pool", TIME_MIN),
            "jumps_per_day": _PER_DAY["pool"],
            "jump_log_mean": Parameter("pool", Number(0.0, 0.9)),  # from 1 on, the mean of a jump is infinite
            "jump_hold_min": Parameter("pool", TIME_MIN),
            "ceiling": Parameter("pool", Number(1e-3, 1e4)),
            "same_region": _SHARE_OF_ONE,
            "other_region": _SHARE_OF_ONE,
        },
    },
}


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Process(Checked):
    """A random process by name, with its parameters."""

    kind: str = spec(ID)
    parameters: Mapping[str, Any] = spec(NumberMap(PARAMETER), doc="which ones each kind takes: `PROCESSES`")


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
            per, kind = expected[name]
            if isinstance(value, tuple) and len(value) != lengths[per]:
                _fail(f"expected one number or one per {per} ({lengths[per]})", where)
            (ListOf(kind) if isinstance(value, tuple) else kind).read(value, where)
        for name in expected:
            if name not in process.parameters:
                _fail(f"missing parameter {name!r}", f"{here}.parameters")

    drops, prices = dynamics.availability, dynamics.prices
    if drops.kind != "constant" and _first(drops, "copula_other_region") > _first(
        drops, "copula_same_region"
    ):
        _fail("expected copula_other_region <= copula_same_region", f"{path}.availability.parameters")
    if prices.kind != "constant" and _first(prices, "other_region") > _first(prices, "same_region"):
        _fail("expected other_region <= same_region", f"{path}.prices.parameters")
    for checked, part, name in (
        (dynamics.demand, "demand", "first_day"),
        (drops, "availability", "warning_windows"),
    ):
        values = checked.parameters.get(name, 0.0)
        if any(value != int(value) for value in (values if isinstance(values, tuple) else (values,))):
            _fail("expected a whole number", f"{path}.{part}.parameters.{name}")


def _first(process: Process, name: str) -> float:
    value = process.parameters[name]
    return float(value[0] if isinstance(value, tuple) else value)


def _fail(message: str, path: str) -> NoReturn:
    raise DataError(message, path)
