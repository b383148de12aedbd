"""Average finished cells: values, means and paired differences."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from . import statistics
from .statistics import Estimate
from .two_stage import STRESSES

#: Shares of the demand up to this are rounding.
LEAST = 1e-6

Records = Sequence[Mapping[str, Any]]


class MissingCell(LookupError):
    """A cell is asked for that is not computed yet."""


class Measures:
    """Values of every cell by the unit they were measured on: an instance, or a trial.

    Comparisons are paired: they use the units that both cells have. `ledger` keeps every estimate that was asked for.
    """

    def __init__(self, batches: Mapping[str, Records]):
        self._values: dict[tuple[Hashable, ...], dict[Hashable, float]] = {}
        self.ledger: dict[tuple[str, str], Estimate] = {}
        self.fewest = 0  # units of any estimate since it was last set
        for name, records in batches.items():
            for record in records:
                _READERS[name.split()[0]](self, record["key"], record["value"])

    def add(self, cell: tuple[Hashable, ...], unit: Hashable, value: float) -> None:
        """Store one value."""
        self._values.setdefault(cell, {})[unit] = float(value)

    def has(self, *cell: Hashable) -> bool:
        """Return whether there is anything in a cell."""
        return cell in self._values

    def values(self, *cell: Hashable) -> list[float]:
        """Return a cell's values."""
        return list(self._of(cell).values())

    def _of(self, cell: tuple[Hashable, ...]) -> dict[Hashable, float]:
        if cell not in self._values:
            raise MissingCell(_name(cell))
        return self._values[cell]

    def mean(self, *cell: Hashable) -> Estimate:
        """Return a cell's mean with its interval."""
        return self._kept("mean", cell, statistics.mean(self.values(*cell)))

    def share(self, *cell: Hashable) -> Estimate:
        """Return how many percent of a cell's values are true."""
        return self._kept("percent of units", cell, statistics.share([v > 0 for v in self.values(*cell)]))

    def change(
        self, new: tuple[Hashable, ...], old: tuple[Hashable, ...], *unless: tuple[Hashable, ...]
    ) -> Estimate:
        """Return by how many percent one cell's mean differs from another's, over their common units.

        Units at which a cell of `unless` is above 0 are left out. MissingCell is raised where none remains.
        """
        a, b = self._of(new), self._of(old)
        out = {unit for cell in unless for unit, value in self._of(cell).items() if value > 0.0}
        common = [unit for unit in a if unit in b and unit not in out]
        kind = "percent against " + _name(old) + "".join(f" unless {_name(cell)}" for cell in unless)
        if not common:
            raise MissingCell(kind)
        found = statistics.change([a[unit] for unit in common], [b[unit] for unit in common])
        return self._kept(kind, new, found)

    def _kept(self, kind: str, cell: tuple[Hashable, ...], found: Estimate) -> Estimate:
        self.ledger[_name(cell), kind] = found
        self.fewest = min(self.fewest, found.n)
        return found


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
