"""The laws as docs/laws.md states them, window by window, draw the days that the package draws, and those stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plain_laws as plain
import pytest
from scipy import stats

import fleetgym
from fleetgym.families.generate import generate
from fleetgym.model.dynamics import ScenarioGenerator
from fleetgym.model.instance import Instance
from fleetgym.model.library import with_law
from fleetgym.model.processes import PROCESSES, Process
from fleetgym.model.scenario import Scenario

DAYS = 100
#: Of some hundred comparisons with fixed seeds the smallest p-value of equal laws is seldom below this.
LEAST_P = 3e-4


def numbers(process: Process, count: int) -> dict[str, Any]:
    """Return a process's parameters, one for each series where there may be one."""
    kinds = next(kinds for kinds in PROCESSES.values() if process.kind in kinds)[process.kind]
    return {
        name: float(np.ravel(value)[0])
        if kinds[name].per == "one"
        else np.array(np.broadcast_to(value, count))
        for name, value in process.parameters.items()
    }


def regions(instance: Instance) -> np.ndarray:
    """Return the number of each pool's region."""
    names = sorted({pool.region for pool in instance.pools})
    return np.array([names.index(pool.region) for pool in instance.pools])


def plain_rates(instance: Instance, rng: np.random.Generator) -> np.ndarray:
    """Return a day's demand by the page."""
    process, count = instance.dynamics.demand, instance.num_workloads
    windows, window_s = instance.num_windows, instance.window_s
    p = numbers(process, count)
    if process.kind == "resampled-history":
        return plain.resampled(rng, p, instance.history.rate_rps, windows, window_s)
    nominal = np.array([w.rate_rps for w in instance.workloads])
    if process.kind == "grw":
        log = plain.walk(rng, p, windows, count)
    else:
        daily, period = (plain.weekly, 7) if process.kind == "weekly-ou" else (plain.diurnal, 1)
        whole = daily(p, round(period * 86400.0 / window_s), window_s)
        log = plain.log_level(rng, p, daily(p, windows, window_s), windows, window_s)
        log = log - plain.log_mean(p, whole, window_s)
    return plain.rates(rng, nominal, log, p["dispersion"], window_s)


def plain_day(instance: Instance, seed: int) -> dict[str, np.ndarray]:
    """Return the series of a day by the page."""
    rng, dynamics, count = np.random.default_rng(seed), instance.dynamics, instance.num_workloads
    windows, window_s = instance.num_windows, instance.window_s
    found = {"rate_rps": plain_rates(instance, rng)}
    if dynamics.tokens.kind == "drift":
        both = plain.scales(rng, numbers(dynamics.tokens, count), windows, count, window_s)
        found |= {"input_scale": both[:, :count], "output_scale": both[:, count:]}
    if dynamics.factors.kind == "lognormal":
        for name in ("delay", "error"):
            sd = numbers(dynamics.factors, count)[f"{name}_sd"]
            found[f"{name}_factor"] = plain.factors(rng, sd, windows)
    pools, region = instance.num_pools, regions(instance)
    if dynamics.availability.kind != "constant":
        per_node = np.array([pool.gpus_per_node for pool in instance.pools])
        nodes = np.array([pool.cap_gpus for pool in instance.pools]) // per_node
        p = numbers(dynamics.availability, pools)
        found["available_gpus"] = per_node * plain.drops(rng, p, nodes, region, windows, window_s)
    if dynamics.prices.kind != "constant":
        found["price_factor"] = plain.prices(rng, numbers(dynamics.prices, pools), region, windows, window_s)
    return found


def looks(series: np.ndarray) -> dict[str, np.ndarray]:
    """Return moments and extremes of a day's series, (N,) each: of logarithms where all is positive."""
    values = np.log(series) if series.min() > 0 else series.astype(float)
    rest = values - values.mean(axis=0)
    others = np.roll(rest, 1, axis=1)
    return {
        "mean": values.mean(axis=0),
        "sd": values.std(axis=0),
        "step": np.diff(values, axis=0).std(axis=0),
        "hour": (rest[12:] * rest[:-12]).mean(axis=0),
        "together": (rest * others).mean(axis=0),
        "least": values.min(axis=0),
        "most": values.max(axis=0),
        "mean of it": series.mean(axis=0),
    }


def collected(days: list[dict[str, np.ndarray]]) -> dict[tuple[str, str, int], np.ndarray]:
    """Return each look of each series over days."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for day in days:
        for name, series in day.items():
            for look, values in looks(series).items():
                for n, value in enumerate(values):
                    found.setdefault((name, look, n), []).append(float(value))
    return {key: np.array(values) for key, values in found.items()}


def p_values(
    one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]
) -> dict[tuple[str, str, int], float]:
    """Return Kolmogorov and Smirnov's p-values of looks that are not constant."""
    first, second = collected(one), collected(other)
    assert list(first) == list(second)
    return {
        key: float(stats.ks_2samp(first[key], second[key]).pvalue)
        for key in first
        if np.ptp(np.concatenate((first[key], second[key]))) > 1e-9
    }


def package_day(generator: ScenarioGenerator, seed: int, names: list[str]) -> dict[str, np.ndarray]:
    """Return the same series of a day that the package draws."""
    day = generator.draw(np.random.default_rng([seed, 1]))
    return {name: np.asarray(getattr(day, name), dtype=float) for name in names}


def instances() -> dict[str, Callable[[], Instance]]:
    """Return an instance of each law that the standard sets hold, and one of factors, which no stored day has."""
    noisy = {"kind": "lognormal", "parameters": {"delay_sd": 0.1, "error_sd": 0.3}}
    return {
        "diurnal-ou": lambda: fleetgym.load_instance("fleet-v1/dev/ou-s-101"),
        "grw, lognormal": lambda: _with(fleetgym.load_instance("fleet-v1/dev/grw-s-101"), factors=noisy),
        "resampled-history": lambda: fleetgym.load_instance("fleet-v1/dev/warp-s-101"),
        "drops": lambda: fleetgym.load_instance("fleet-v1/dev/drop-s-101"),
        "weekly-ou": lambda: generate("ou-v2", "s", 1001),
        "warned-drops, ou-jumps": lambda: generate("market", "s", 1001),
    }


def _with(instance: Instance, **processes: Any) -> Instance:
    return instance.replace(dynamics={**instance.to_dict()["dynamics"], **processes})


def test_every_process_is_on_the_list() -> None:
    """But for `constant`, and for `history`, which is `resampled-history` without roll or scale."""
    named = {word for title in instances() for word in title.split(", ")}
    kinds = {kind for kinds in PROCESSES.values() for kind in kinds} - {"constant", "history", "drift"}
    assert named == kinds


@pytest.mark.parametrize("title", instances())
def test_the_page_draws_what_the_package_draws(title: str) -> None:
    """Moments and extremes of a hundred days have the same distributions."""
    instance = instances()[title]()
    generator = ScenarioGenerator(instance)
    ours = [plain_day(instance, seed) for seed in range(DAYS)]
    theirs = [package_day(generator, seed, list(ours[0])) for seed in range(DAYS)]
    found = p_values(ours, theirs)
    assert len(found) > 20
    assert min(found.values()) > LEAST_P, sorted(found.items(), key=lambda part: part[1])[:5]


@pytest.mark.parametrize(
    ("title", "process", "name", "factor"),
    [
        ("diurnal-ou", "demand", "ou_sd", 1.2),
        ("weekly-ou", "demand", "jumps_per_day", 4.0),
        ("weekly-ou", "demand", "workday_cos_1", 0.5),
        ("drops", "availability", "duration_log_mean_min", 0.7),
        ("warned-drops, ou-jumps", "prices", "jump_log_mean", 2.0),
    ],
)
def test_another_number_is_noticed(title: str, process: str, name: str, factor: float) -> None:
    """The comparison finds a law whose number is not the same."""
    instance = instances()[title]()
    data = instance.to_dict()["dynamics"]
    value = data[process]["parameters"][name]
    data[process]["parameters"][name] = (factor * np.array(value)).tolist()
    generator = ScenarioGenerator(instance.replace(dynamics=data))
    ours = [plain_day(instance, seed) for seed in range(DAYS)]
    theirs = [package_day(generator, seed, list(ours[0])) for seed in range(DAYS)]
    assert min(p_values(ours, theirs).values()) < LEAST_P


def stored(name: str, names: list[str]) -> list[dict[str, np.ndarray]]:
    """Return the series of an instance's stored days."""
    days: tuple[Scenario, ...] = fleetgym.load_scenarios(name)
    return [{part: np.asarray(getattr(day, part), dtype=float) for part in names} for day in days]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ou", "drop", "tail", "budget", "grw"])
def test_stored_days_are_days_of_the_page(family: str) -> None:
    """Among thirty days by the page a stored one is as often the first as the last: its rank is uniform.

    Series of a day move together, so one of each day counts.
    """
    draws, ranks = 30, {}
    names = fleetgym.list_instances("fleet-v1/test")
    for k, name in enumerate([name for name in names if f"/{family}-s-" in name][:30]):
        instance = with_law(name)
        drawn = collected([plain_day(instance, 10_000 * k + seed) for seed in range(draws)])
        days = collected(stored(name, list({key[0]: 0 for key in drawn})))
        width = {key[0]: 1 + max(n for other, _, n in drawn if other == key[0]) for key in drawn}
        for (series, look, n), values in days.items():
            if n == k % width[series] and np.ptp(drawn[series, look, n]) > 1e-9:
                below = np.mean(drawn[series, look, n] < values[0])
                ties = np.mean(drawn[series, look, n] == values[0])
                ranks.setdefault((series, look), []).append(below + 0.5 * ties)
    found = {key: float(stats.kstest(values, "uniform").pvalue) for key, values in ranks.items()}
    print(family, {f"{series} {look}": round(p, 3) for (series, look), p in found.items()})
    several = {key: p for key, p in found.items() if key[1] in ("mean", "sd") or key[0] != "available_gpus"}
    assert len(several) >= 8
    assert min(several.values()) > LEAST_P
