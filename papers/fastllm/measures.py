"""Average finished cells: means, shares and paired differences, computed or as they are committed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from . import statistics
from .statistics import Estimate
from .two_stage import STRESSES

#: Shares of the demand up to this are rounding.
LEAST = 1e-6

Cell = tuple[Hashable, ...]


class MissingCell(LookupError):
    """A cell is asked for that is not computed yet."""


class Estimates:
    """Means, shares and paired differences by cell, as they are committed.

    Parameters
    ----------
    cells : mapping
        ``cell; kind`` to mean, lower end, upper end and the number of units.
    """

    def __init__(self, cells: Mapping[str, Any]):
        self.source = cells.get("source", "")
        self.fewest = 0  # units of any estimate since it was last set
        self._known = {
            name: Estimate(*(math.nan if part is None else part for part in numbers))
            for name, numbers in cells.items()
            if name != "source"
        }

    def mean(self, *cell: Hashable) -> Estimate:
        """Return a cell's mean with its interval."""
        return self._counted(cell, "mean", lambda: statistics.mean(self._values(cell)))

    def median(self, *cell: Hashable) -> Estimate:
        """Return a cell's median."""
        return self._counted(cell, "median", lambda: statistics.median(self._values(cell)))

    def share(self, *cell: Hashable) -> Estimate:
        """Return how many percent of a cell's values are true."""
        return self._counted(
            cell, "percent of units", lambda: statistics.share([v > 0 for v in self._values(cell)])
        )

    def change(self, new: Cell, old: Cell, *unless: Cell) -> Estimate:
        """Return by how many percent one cell's mean differs from another's, over their common units.

        Units at which a cell of `unless` is above 0 are left out. MissingCell is raised where none remains.
        """
        kind = "percent against " + _name(old) + "".join(f" unless {_name(cell)}" for cell in unless)
        return self._counted(new, kind, lambda: statistics.change(*self._pairs(new, old, *unless)))

    def committed(self) -> dict[str, list[float | None]]:
        """Return the estimates in the form in which they are committed."""
        return {
            name: [*(None if math.isnan(part) else part for part in (e.mean, e.low, e.high)), e.n]
            for name, e in sorted(self._known.items())
        }

    def _counted(self, cell: Cell, kind: str, compute: Callable[[], Estimate]) -> Estimate:
        name = f"{_name(cell)}; {kind}"
        if name not in self._known:
            self._known[name] = compute()
        found = self._known[name]
        self.fewest = min(self.fewest, found.n)
        return found

    def _values(self, cell: Cell) -> list[float]:
        raise MissingCell(_name(cell))

    def _pairs(self, new: Cell, old: Cell, *unless: Cell) -> tuple[list[float], list[float]]:
        raise MissingCell(_name(new))


class Measures(Estimates):
    """Estimates from the values of every cell by the unit they were measured on: an instance, or a trial.

    Comparisons are paired: they use the units that both cells have.
    """

    def __init__(self, cells: Mapping[str, Any]):
        super().__init__({})
        self._by_unit: dict[Cell, dict[Hashable, float]] = {}
        for name, value in cells.items():
            experiment, _, key = name.partition(" ")
            _READERS[experiment](self, json.loads(key), value)

    def add(self, cell: Cell, unit: Hashable, value: float) -> None:
        """Store one value."""
        self._by_unit.setdefault(cell, {})[unit] = float(value)

    def average(self) -> None:
        """Estimate the mean of every cell."""
        for cell in self._by_unit:
            self.mean(*cell)

    def _of(self, cell: Cell) -> dict[Hashable, float]:
        if cell not in self._by_unit:
            raise MissingCell(_name(cell))
        return self._by_unit[cell]

    def _values(self, cell: Cell) -> list[float]:
        return list(self._of(cell).values())

    def _pairs(self, new: Cell, old: Cell, *unless: Cell) -> tuple[list[float], list[float]]:
        a, b = self._of(new), self._of(old)
        out = {unit for cell in unless for unit, value in self._of(cell).items() if value > 0.0}
        common = [unit for unit in a if unit in b and unit not in out]
        if not common:
            raise MissingCell(_name(new))
        return [a[unit] for unit in common], [b[unit] for unit in common]


def _name(cell: tuple[Hashable, ...]) -> str:
    return " / ".join(str(part) for part in cell)


def _read_judged(m: Measures, cell: tuple[Hashable, ...], unit: Hashable, judged: Mapping[str, Any]) -> None:
    m.add((*cell, "cost"), unit, judged["cost_usd"])
    m.add((*cell, "violation"), unit, judged["violation"])
    for term, usd in judged["terms_usd"].items():
        m.add((*cell, term), unit, usd)


def _read_stress(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    method, seed = key["method"], key["seed"]
    for quantity in ("plan_usd", "pay_usd", "unserved"):
        m.add(("stress", method, quantity), seed, value[quantity])
    for routes in ("frozen", "deployed"):
        for stress in STRESSES:
            _read_judged(m, ("stress", method, routes, stress), seed, value[f"{routes} {stress:g}"])
    for mode in ("elastic", "memory"):
        _read_judged(m, ("stress", method, mode, 1.0), seed, value[f"{mode} 1"])


def _read_budgets(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    cell = ("budgets", key["case"], key["method"])
    for quantity in ("plan_usd", "pay_usd", "unserved"):
        m.add((*cell, quantity), key["seed"], value[quantity])
    for routes in ("frozen", "deployed"):
        _read_judged(m, (*cell, routes), key["seed"], value[routes])


def _read_ablation(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    cell, seed = ("ablation", key["method"], key["without"]), key["seed"]
    m.add((*cell, "cost"), seed, value["plan_usd"])
    m.add((*cell, "feasible"), seed, not value["broken"])
    m.add((*cell, "changed"), seed, value["changed"])
    m.add((*cell, "unserved"), seed, value["unserved"] > 0.01)
    m.add((*cell, "too small"), seed, value["groups_single_gpu_too_small"] > 0)
    for row in ("delay", "error", "compute", "memory", "budget", "storage"):
        m.add((*cell, row), seed, row in value["broken"])
    if not value["broken"]:
        m.add((*cell, "cost where feasible"), seed, value["plan_usd"])


def _read_sensitivity(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    for quantity, number in value.items():
        m.add((key["surface"], key["first"], key["second"], quantity), key["seed"], number)


def _read_rolling(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    for policy, day in value.items():
        if not isinstance(day, Mapping):  # the number of different fleets among a policy's plans
            m.add(("rolling", key["sigma"], policy), key["trial"], day)
            continue
        name, routes = policy.split(" | ")
        cell = ("rolling", key["sigma"], routes, name)
        m.add((*cell, "cost"), key["trial"], day["cost_usd"])
        m.add((*cell, "with start-up"), key["trial"], day["cost_usd"] + day["startup_usd"])
        m.add((*cell, "violation"), key["trial"], day["violation"])
        m.add((*cell, "changes"), key["trial"], day["changes"])


def _read_runtime(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    cell, seed = ("runtime", key["size"], key["method"]), key["seed"]
    m.add((*cell, "cpu_s"), seed, value["cpu_s"])
    m.add((*cell, "plan_usd"), seed, value["plan_usd"])
    m.add((*cell, "unserved"), seed, value["unserved"] > 0.01)
    if "bound_usd" in value:
        m.add((*cell, "proven"), seed, value["status"] == "optimal")
        m.add((*cell, "bound_usd"), seed, value["bound_usd"])
        m.add((*cell, "gap"), seed, 100.0 * (1.0 - value["bound_usd"] / value["plan_usd"]))


def _read_optimum(m: Measures, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    for method, plan in value.items():
        cell = ("optimum", key["size"], key["slo"], method)
        m.add((*cell, "plan_usd"), key["seed"], plan["plan_usd"])
        m.add((*cell, "unserved"), key["seed"], plan["unserved"] > LEAST)
        m.add((*cell, "unserved share"), key["seed"], 100.0 * plan["unserved"])


_READERS = {
    "optimum": _read_optimum,
    "stress": _read_stress,
    "budgets": _read_budgets,
    "ablation": _read_ablation,
    "sensitivity": _read_sensitivity,
    "rolling": _read_rolling,
    "runtime": _read_runtime,
}
