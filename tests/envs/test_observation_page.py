"""Recompute every key of the observation from the files and the actions alone, as the docstrings state it.

Files are read as JSON. Fleets are those of the reference evaluator, which follows section 2 of docs/model.md and shares
no code with the environment.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import fleetgym
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.reference.episode import ReferenceEpisode

FOLDER = Path(fleetgym.__file__).resolve().parents[1] / "instances"
#: Instances of more windows are played for a day.
DAY = 288


def read(name: str) -> dict[str, Any]:
    """Return a JSON file of the standard sets, compressed or not."""
    packed, plain = FOLDER / f"{name}.json.gz", FOLDER / f"{name}.json"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    found: dict[str, Any] = json.loads(data)
    return found


def names() -> list[str]:
    """Return the first instance of size s of each family and set, the toys, and one whose budget is for the day."""
    chosen: dict[tuple[str, str], str] = {}
    for part in ("fleet-v1/dev", "fleet-v2/dev"):
        for name in fleetgym.list_instances(part):
            family, _, rest = name.rpartition("/")[2].partition("-s-")
            if rest:
                chosen.setdefault((part, family), name)
            budget = read(name)["budget"] if family == "budget" else None
            if budget and budget["kind"] == "pool":
                chosen.setdefault((part, "pool budget"), name)
    return [*chosen.values(), *fleetgym.list_instances("fleet-v0/toy")]


def at(rows: list[list[float]], t: int) -> np.ndarray:
    """Return a scenario's row: a single one holds in every window."""
    return np.array(rows[t] if len(rows) > 1 else rows[0], dtype=float)


def log_ratio(value: np.ndarray, nominal: np.ndarray | float) -> np.ndarray:
    """Return the clipped logarithm; -5 for 0."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(value / nominal), -5.0, 5.0)


class Page:
    """The observation as the pages of the environments state it."""

    def __init__(self, instance: dict[str, Any], scenario: dict[str, Any]):
        self.instance, self.scenario = instance, scenario
        self.nominal = np.array([w["rate_rps"] for w in instance["workloads"]])
        self.cap = np.array([pool["cap_gpus"] for pool in instance["pools"]], dtype=float)
        self.windows, self.window_s = instance["num_windows"], instance["window_s"]

    def conditions(self, t: int) -> dict[str, np.ndarray]:
        """Return the first seven keys."""
        shown = min(t - self.instance["lead"], self.windows - 1)
        logs = ("input_scale", "output_scale", "delay_factor", "error_factor")
        if shown < 0:
            zeros, ones = np.zeros(len(self.nominal)), np.ones(len(self.cap))
            return {
                **dict.fromkeys(("demand", *logs), zeros),
                "availability": np.where(self.cap > 0, 1.0, 0.0),
                "price": ones,
            }
        gpus = at(self.scenario["available_gpus"], shown)
        return {
            "demand": log_ratio(at(self.scenario["rate_rps"], shown), self.nominal),
            **{name: log_ratio(at(self.scenario[name], shown), 1.0) for name in logs},
            "availability": np.where(self.cap > 0, gpus / np.maximum(self.cap, 1), 0.0),
            "price": np.minimum(at(self.scenario["price_factor"], shown), 100.0),
        }

    def time(self, t: int, spent_usd: float) -> dict[str, np.ndarray]:
        """Return the clock, the progress and the budget."""
        angle, budget = 2 * math.pi * t * self.window_s / 86400, self.instance["budget"]
        left = 1.0
        if budget and budget["kind"] == "pool":
            left = min(1.0, max(0.0, 1.0 - spent_usd / budget["usd"]))
        return {
            "clock": np.array([math.sin(angle), math.cos(angle)]),
            "progress": np.array([t / self.windows]),
            "budget_left": np.array([left]),
        }

    def more(self, t: int) -> dict[str, np.ndarray]:
        """Return the keys of version 1."""
        dynamics = self.instance["dynamics"]
        day = dynamics["demand"]["parameters"].get("first_day", 0)
        angle = 2 * math.pi * (86400 * day + t * self.window_s) / 604800
        return {
            "week": np.array([math.sin(angle), math.cos(angle)]),
            "forecast": np.stack([self.forecast(t + ahead) for ahead in (0, 12, 72)]),
            "announced": self.announced(t),
        }

    def forecast(self, t: int) -> np.ndarray:
        """Return the log ratio of the mean rate at the same time of the week, or of the day."""
        history = np.array(self.instance["history"]["rate_rps"])
        for period in (604800 / self.window_s, 86400 / self.window_s):
            if period == int(period) and len(history) >= period:
                before = range(t % int(period) - int(period), -len(history) - 1, -int(period))
                return log_ratio(np.mean([history[len(history) + k] for k in before], axis=0), self.nominal)
        return np.zeros(len(self.nominal))

    def announced(self, t: int) -> np.ndarray:
        """Return the share of GPUs that pools have or announce."""
        process, warns = self.instance["dynamics"]["availability"], np.zeros(len(self.cap), dtype=bool)
        if process["kind"] == "warned-drops" and t < self.windows:
            warns = warns | (np.array(process["parameters"]["warning_windows"]) == 1)
        last = self.cap if t == 0 else at(self.scenario["available_gpus"], t - 1)
        coming = at(self.scenario["available_gpus"], min(t, self.windows - 1))
        return np.where(self.cap > 0, np.where(warns, coming, last) / np.maximum(self.cap, 1), 1.0)


def target_of(instance: dict[str, Any], action: np.ndarray) -> list[int]:
    """Return the replicas that an action wants."""
    order = [c["id"] for c in instance["configurations"]]
    wanted = [0] * len(order)
    for slot, option in zip(instance["slots"], action.tolist(), strict=True):
        if slot["exclusive"] and option > 0:
            wanted[order.index(slot["configurations"][option - 1])] = 1
        elif not slot["exclusive"]:
            wanted[order.index(slot["configurations"][0])] = option
    return wanted


class Fleet:
    """The fleet by the reference evaluator; windows are admitted, and not operated."""

    def __init__(self, instance: Instance, scenario: Scenario):
        self.episode = ReferenceEpisode(instance, scenario)
        self.state = self.episode.state
        self.moves: dict[str, list[int]] = dict.fromkeys(("denied", "lost"), [0] * len(self.state.running))

    def step(self, t: int, target: list[int]) -> None:
        """Play one window."""
        admission = self.episode.admit(self.state, target, t)
        self.state = self.episode.next_state(admission, t)
        self.moves = {"denied": admission.denied, "lost": admission.lost}

    def keys(self) -> dict[str, np.ndarray]:
        """Return the keys that count replicas."""
        return {
            "running": np.array(self.state.running),
            "starting": np.array(self.state.starting).sum(axis=1),
            "draining": np.array(self.state.draining).sum(axis=1),
            **{name: np.array(counts) for name, counts in self.moves.items()},
        }


def check(observation: dict[str, np.ndarray], expected: dict[str, np.ndarray], t: int) -> None:
    """Compare all keys, which must be the same ones."""
    assert set(observation) == set(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(observation[key], values, rtol=1e-6, atol=1e-6, err_msg=f"{key}, t = {t}")


#: What is shown is the last window, or the coming one: no stored instance has a lead of 0.
CASES = [(name, 1) for name in names()] + [
    (name, 0) for name in names() if "/ou-s-" in name or "/market-s-" in name
]


@pytest.mark.parametrize(("name", "lead"), CASES)
def test_every_key_follows_from_the_page(name: str, lead: int) -> None:
    """Each key of both versions, after reset and each window of a day of random targets."""
    instance, day = {**read(name), "lead": lead}, fleetgym.load_scenarios(name)[0]
    played = fleetgym.load_instance(name).replace(lead=lead)
    page, fleet = Page(instance, read(f"{name}.scenarios")["scenarios"][0]), Fleet(played, day)
    envs = [
        gymnasium.make(f"fleetgym:{version}", instance=played)
        for version in ("FleetAlloc-v0", "FleetAlloc-v1")
    ]
    seen = [env.reset(options={"scenario": day})[0] for env in envs]
    rng, action = np.random.default_rng(0), None
    most = envs[0].action_space.nvec  # type: ignore[attr-defined]
    for t in range(min(DAY, page.windows) + 1):
        expected = {**page.conditions(t), **page.time(t, fleet.state.spent_usd), **fleet.keys()}
        check(seen[0], expected, t)
        check(seen[1], {**expected, **page.more(t)}, t)
        if t == min(DAY, page.windows):
            break
        if action is None or rng.random() < 0.3:
            action = rng.integers(0, np.maximum(1, np.ceil(most * rng.uniform(0.1, 1.0))))
        fleet.step(t, target_of(instance, action))
        seen = [env.step(action)[0] for env in envs]


def test_days_of_the_families_show_what_is_subtle() -> None:
    """Among the days are warnings of drops that deepen and of recoveries, a pool budget, all kinds of forecasts."""
    instances = {name: read(name) for name in names()}
    assert any(one["budget"] and one["budget"]["kind"] == "pool" for one in instances.values())
    deeper = recovered = 0
    for name, one in instances.items():
        page = Page(one, read(f"{name}.scenarios")["scenarios"][0])
        for t in range(1, min(DAY, page.windows)):
            before = at(page.scenario["available_gpus"], t - 1)
            told = page.announced(t) * page.cap
            deeper += int(((told < before - 0.5) & (before < page.cap)).sum())
            recovered += int((told > before + 0.5).sum())
    assert deeper > 0
    assert recovered > 0
    lengths = {len(one["history"]["rate_rps"]) for one in instances.values()}
    assert min(lengths) < DAY <= max(lengths)
    assert max(lengths) >= 7 * DAY
