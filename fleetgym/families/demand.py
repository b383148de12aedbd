"""From a family's name and a generator to demand over a week, relative to its mean, and the process behind it."""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources
from typing import Any

import numpy as np

from fleetgym.dynamics.demand import DiurnalOU, draw_counts, geometric_random_walk, split_counts
from fleetgym.files import read_json

DAY = 288  # windows
WINDOW_S = 300.0
HISTORY_DAYS = 7
_COMMON = 0.6  # assumed: users of all workloads wake, work and read the same news


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemandPlan:
    """Relative demand and its process: what a family fixes before rates are known."""

    process: dict[str, Any]
    tokens: dict[str, Any]
    level: np.ndarray  # (HISTORY_DAYS * DAY, workloads) expected rate / nominal rate
    dispersion: np.ndarray  # (workloads,) of the counts that `level` expects; 0 where level is a real count
    provenance: str
    #: relative demand and input and output scales of the scored days, if these are stored rather than drawn
    scored: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] = ()


def history_rps(plan: DemandPlan, rng: np.random.Generator, rate_rps: np.ndarray) -> np.ndarray:
    """Return the history's rates as whole requests over the window: (windows, workloads)."""
    return counted(rng, plan.level, rate_rps, plan.dispersion)


def counted(
    rng: np.random.Generator, level: np.ndarray, rate_rps: np.ndarray, dispersion: np.ndarray
) -> np.ndarray:
    """Return rates as whole requests over the window; a dispersion of 0 counts without any further noise."""
    mean = level * rate_rps * WINDOW_S
    counts = np.rint(mean) if np.all(dispersion == 0.0) else draw_counts(rng, mean, dispersion)
    return counts / WINDOW_S


def walk(rng: np.random.Generator, count: int, sigma: float) -> DemandPlan:
    """Return FastLLM's random walk; each day of the history starts from the nominal rate again."""
    days = [np.exp(geometric_random_walk(rng, DAY, np.full(count, sigma))) for _ in range(HISTORY_DAYS)]
    level = np.concatenate(days)
    return DemandPlan(
        process={"kind": "grw", "parameters": {"sigma": sigma, "dispersion": 1.0}},
        tokens={"kind": "constant", "parameters": {}},
        level=level / level.mean(axis=0),
        dispersion=np.ones(count),
        provenance=f"assumed: FastLLM's geometric random walk, sigma {sigma} per window, Poisson counts",
    )


def calibrated(rng: np.random.Generator, count: int) -> DemandPlan:
    """Return daily term + OU + noise + jumps, with parameters from the ranges that real demand shows."""

    def draw(low: float, high: float, digits: int = 3) -> np.ndarray:
        return np.round(rng.uniform(low, high, count), digits)

    values = {
        "daily_amplitude": draw(0.05, 0.25),
        "daily_peak_h": draw(11.0, 18.0, 1),
        "ou_sd": draw(0.35, 0.53),
        "ou_time_min": draw(130.0, 220.0, 0),
        "noise_sd": draw(0.05, 0.11),
        "jumps_per_day": draw(2.0, 10.0, 1),
        "jump_log_mean": draw(0.45, 0.60),
        "jump_hold_min": draw(20.0, 90.0, 0),
    }
    ou = DiurnalOU(ou_common=_COMMON, **values)
    dispersion = rng.choice((1.5, 5.0, 20.0, 60.0), count)
    parameters = {name: value.tolist() for name, value in values.items()}
    log_sd = draw(0.05, 0.15)
    return DemandPlan(
        process={
            "kind": "diurnal-ou",
            "parameters": {**parameters, "ou_common": _COMMON, "dispersion": dispersion.tolist()},
        },
        tokens={"kind": "drift", "parameters": {"log_sd": log_sd.tolist(), "time_min": 360.0}},
        level=np.exp(ou.log_level(rng, HISTORY_DAYS * DAY, WINDOW_S)),
        dispersion=dispersion,
        provenance="modelled: daily term + OU + noise + jumps within the ranges fitted to ServeGen "
        "(alibaba/ServeGen @ f891d11, Apache-2.0); common share 0.6 assumed; counts negative binomial with "
        "the index of dispersion measured on ServeGen and Azure traces",
    )


# -- real tenants

#: (model, client) per workload of each trace instance; the scored day is day 7 (m-large) or day 8 (m-mid). Each
#: has the tenants that move within a day (m-mid/66, 30, 101, 60) and others that burst, switch off or stay.
TRACES = (
    (("m-mid", 66), ("m-mid", 30), ("m-mid", 101), ("m-large", 61), ("m-mid", 60), ("m-large", 34)),
    (("m-mid", 30), ("m-mid", 101), ("m-mid", 66), ("m-mid", 60), ("m-large", 61), ("m-large", 78)),
    (("m-mid", 101), ("m-mid", 66), ("m-mid", 60), ("m-mid", 30), ("m-large", 34), ("m-large", 20)),
    (("m-mid", 60), ("m-large", 61), ("m-mid", 30), ("m-mid", 66), ("m-mid", 101), ("m-large", 104)),
)
_SCORED_DAY = {"m-large": 7, "m-mid": 8}


@functools.cache
def tenants() -> dict[tuple[str, int], dict[str, Any]]:
    """Return the shipped table of real tenants by model and client."""
    with resources.as_file(resources.files("fleetgym") / "data" / "servegen_tenants.json.gz") as path:
        return {(t["model"], t["client"]): t for t in read_json(path)["tenants"]}


def tenant_lengths(key: tuple[str, int]) -> tuple[float, float]:
    """Return mean input and output tokens of a tenant over the days of its history."""
    record, day = tenants()[key], _SCORED_DAY[key[0]]
    quarters = slice(4 * (day - HISTORY_DAYS), 4 * day)
    return float(np.mean(record["input_tokens_6h"][quarters])), float(
        np.mean(record["output_tokens_6h"][quarters])
    )


def trace(rng: np.random.Generator, keys: tuple[tuple[str, int], ...]) -> DemandPlan:
    """Return eight real days of six tenants: seven of history, one scored.

    Ten-minute counts are split by a beta-binomial with the tenant's dispersion, never interpolated.
    """
    first = [_SCORED_DAY[model] - HISTORY_DAYS for model, _ in keys]
    counts = np.column_stack(
        [
            np.array(tenants()[key]["requests"])[144 * day : 144 * (day + HISTORY_DAYS + 1)]
            for key, day in zip(keys, first, strict=True)
        ]
    )
    dispersion = np.array([tenants()[key]["dispersion"] for key in keys])
    halves = split_counts(rng, counts, dispersion).astype(float)
    halves /= halves[: HISTORY_DAYS * DAY].mean(axis=0)
    scales = []
    for side, name in enumerate(("input_tokens_6h", "output_tokens_6h")):
        quarters = [tenants()[k][name][4 * _SCORED_DAY[k[0]] : 4 * _SCORED_DAY[k[0]] + 4] for k in keys]
        nominal = np.array([tenant_lengths(key)[side] for key in keys])
        scales.append(np.repeat(np.array(quarters).T / nominal, DAY // 4, axis=0))
    return DemandPlan(
        process={"kind": "resampled-history", "parameters": {"roll_windows": 6.0, "level_log_sd": 0.1}},
        tokens={"kind": "drift", "parameters": {"log_sd": 0.1, "time_min": 360.0}},
        level=halves[: HISTORY_DAYS * DAY],
        dispersion=np.zeros(len(keys)),
        provenance="measured: requests of ServeGen tenants "
        + ", ".join(f"{model}/{client}" for model, client in keys)
        + " per 10 minutes (alibaba/ServeGen @ f891d11, Apache-2.0), the scored day after seven of history; "
        "modelled: the split into 5 minutes (beta-binomial with the tenant's dispersion); assumed: the level "
        "of each tenant is rescaled to its share of the fleet",
        scored=((halves[HISTORY_DAYS * DAY :], scales[0], scales[1]),),
    )


def daily_movement(level: np.ndarray) -> np.ndarray:
    """Return the standard deviation of demand within a day, averaged over days: (workloads,)."""
    return level.reshape(-1, DAY, level.shape[1]).std(axis=1).mean(axis=0)


def smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """Return the circular moving average over an odd number of windows."""
    return np.mean([np.roll(values, shift) for shift in range(-(width // 2), width // 2 + 1)], axis=0)


def warp(rng: np.random.Generator, kinds: tuple[str, ...]) -> DemandPlan:
    """Return the Azure hour stretched to a day, rolled at random for each workload and day."""
    with resources.as_file(resources.files("fleetgym") / "data" / "azure_hour.json") as path:
        hour = read_json(path)
    shapes = []
    for kind in kinds:
        requests = np.array(hour[kind]["requests"], dtype=float)
        shapes.append(smoothed(requests, 5) if kind == "azure_code" else requests)

    def day() -> np.ndarray:
        return np.column_stack([np.roll(s / s.mean(), int(rng.integers(DAY))) for s in shapes])

    days = [day() for _ in range(HISTORY_DAYS)]
    scored = tuple((day(), np.ones((1, len(kinds))), np.ones((1, len(kinds)))) for _ in range(2))
    return DemandPlan(
        process={"kind": "resampled-history", "parameters": {"roll_windows": 144.0, "level_log_sd": 0.05}},
        tokens={"kind": "constant", "parameters": {}},
        level=np.concatenate(days),
        dispersion=np.ones(len(kinds)),
        provenance="measured: shape of one hour of Azure LLM requests on 2023-11-16, 12 s becoming one window "
        "(Azure/AzurePublicDataset @ b469a113, CC-BY-4.0; code smoothed over five windows), rolled at random; "
        "assumed: level, Poisson counts",
        scored=scored,
    )
