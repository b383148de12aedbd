"""Sample a family's demand over a week, relative to its mean, with the process behind it."""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources
from typing import Any

import numpy as np

from fleetgym.families.bursts import BurstLaw
from fleetgym.files.documents import read_json
from fleetgym.model.dynamics.demand import DiurnalOU, draw_counts, geometric_random_walk, split_counts

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
    windows: int = DAY  # of an episode
    bursts: tuple[BurstLaw, ...] = ()  # of each workload, where arrivals within a window follow a law
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


def calibrated(
    rng: np.random.Generator, count: int, later_h: np.ndarray | float = 0.0, common: float = _COMMON
) -> DemandPlan:
    """Return daily term + OU + noise + jumps, with parameters from the ranges that real demand shows.

    Days peak `later_h` hours later than they would; workloads share `common` of their swings.
    """

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
    values["daily_peak_h"] = np.round((values["daily_peak_h"] + later_h) % 24.0, 1)
    ou = DiurnalOU(ou_common=common, **values)
    dispersion = rng.choice((1.5, 5.0, 20.0, 60.0), count)
    parameters = {name: value.tolist() for name, value in values.items()}
    log_sd = draw(0.05, 0.15)
    return DemandPlan(
        process={
            "kind": "diurnal-ou",
            "parameters": {**parameters, "ou_common": common, "dispersion": dispersion.tolist()},
        },
        tokens={"kind": "drift", "parameters": {"log_sd": log_sd.tolist(), "time_min": 360.0}},
        level=np.exp(ou.log_level(rng, HISTORY_DAYS * DAY, WINDOW_S)),
        dispersion=dispersion,
        provenance="modelled: daily term + OU + noise + jumps within the ranges fitted to ServeGen "
        f"(alibaba/ServeGen @ f891d11, Apache-2.0); common share {common:g} assumed; counts negative binomial with "
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
#: Tenants whose demand moves within every day, and the others.
_MOVERS = tuple(("m-mid", client) for client in (66, 30, 101, 60))
_OTHERS = (("m-mid", 14), *(("m-large", client) for client in (61, 143, 104, 34, 78, 20)))
#: Seeds from here on replay days that are rolled and stretched.
FIRST_TRANSFORMED_SEED = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceDays:
    """Whose days an instance replays, and how they are changed."""

    keys: tuple[tuple[str, int], ...]  # (model, client) per workload
    days_earlier: int = 0  # of the tenants that have a day to spare
    roll: int = 0  # ten-minute windows by which the clock of all tenants is turned
    powers: tuple[float, ...] = ()  # demand relative to its mean is raised to this power


def trace_days(seed: int, count: int) -> TraceDays:
    """Return the days of a trace instance: two thirds of its tenants move within a day.

    Parameters
    ----------
    seed : int
        The first ones are listed in `TRACES`; others are drawn.
    count : int
        Workloads.

    Returns
    -------
    TraceDays
    """
    if seed <= len(TRACES) and count == len(TRACES[0]):
        return TraceDays(keys=TRACES[(seed - 1) % len(TRACES)])
    rng = np.random.default_rng([3, count, seed])
    movers = [_MOVERS[k] for k in rng.permutation(len(_MOVERS))[: round(0.7 * count)]]
    others = [_OTHERS[k] for k in rng.permutation(len(_OTHERS))[: count - len(movers)]]
    keys, earlier = (*movers, *others), int(rng.integers(2))
    if seed < FIRST_TRANSFORMED_SEED:
        return TraceDays(keys=keys, days_earlier=earlier)
    powers = np.round(np.exp(rng.uniform(-0.2, 0.2, count)), 3)
    return TraceDays(
        keys=keys, days_earlier=earlier, roll=int(rng.integers(DAY // 2)), powers=tuple(powers.tolist())
    )


@functools.cache
def tenants() -> dict[tuple[str, int], dict[str, Any]]:
    """Return the shipped table of real tenants by model and client."""
    with resources.as_file(resources.files("fleetgym") / "data" / "servegen_tenants.json.gz") as path:
        return {(t["model"], t["client"]): t for t in read_json(path)["tenants"]}


def _scored_day(key: tuple[str, int], days_earlier: int) -> int:
    return max(_SCORED_DAY[key[0]] - days_earlier, HISTORY_DAYS)


def tenant_lengths(key: tuple[str, int], days_earlier: int = 0) -> tuple[float, float]:
    """Return mean input and output tokens of a tenant over the days of its history."""
    record, day = tenants()[key], _scored_day(key, days_earlier)
    quarters = slice(4 * (day - HISTORY_DAYS), 4 * day)
    return float(np.mean(record["input_tokens_6h"][quarters])), float(
        np.mean(record["output_tokens_6h"][quarters])
    )


def trace(rng: np.random.Generator, chosen: TraceDays | tuple[tuple[str, int], ...]) -> DemandPlan:
    """Return eight real days of some tenants: seven of history, one scored.

    Ten-minute counts are split by a beta-binomial with the tenant's dispersion, never interpolated.
    """
    days = chosen if isinstance(chosen, TraceDays) else TraceDays(keys=chosen)
    keys, scored = days.keys, [_scored_day(key, days.days_earlier) for key in days.keys]
    counts = np.column_stack(
        [
            np.array(tenants()[key]["requests"])[144 * (day - HISTORY_DAYS) : 144 * (day + 1)]
            for key, day in zip(keys, scored, strict=True)
        ]
    )
    if days.powers:
        counts = _transformed(counts, days)
    dispersion = np.array([tenants()[key]["dispersion"] for key in keys])
    halves = split_counts(rng, counts, dispersion).astype(float)
    halves /= halves[: HISTORY_DAYS * DAY].mean(axis=0)
    scales = []
    for side, name in enumerate(("input_tokens_6h", "output_tokens_6h")):
        quarters = [tenants()[k][name][4 * day : 4 * day + 4] for k, day in zip(keys, scored, strict=True)]
        nominal = np.array([tenant_lengths(key, days.days_earlier)[side] for key in keys])
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
        "of each tenant is rescaled to its share of the fleet"
        + (f"; rolled by {10 * days.roll} minutes and stretched" if days.powers else ""),
        scored=((halves[HISTORY_DAYS * DAY :], scales[0], scales[1]),),
    )


def _transformed(counts: np.ndarray, days: TraceDays) -> np.ndarray:
    """Return counts rolled together, each tenant's raised to its power around the mean: int64."""
    mean = counts.mean(axis=0)
    stretched = mean * (counts / mean) ** np.array(days.powers)
    return np.rint(np.roll(stretched, days.roll, axis=0)).astype(np.int64)


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
