"""Show the estimates that the page needs, which are committed instead of every instance's numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from .. import harness
from . import published
from .claims import all_claims
from .measures import Cell, Estimates, Measures, MissingCell
from .optimum import LOOSER, PROVEN
from .regime import BASE, METHODS, SIZES
from .rolling import SIGMAS
from .sensitivity import BUDGETS_USD, FACTORS
from .statistics import Estimate
from .two_stage import STRESSES


def summarise(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return every cell's mean, and each other estimate that the page asks for."""
    m = Measures(cells)
    harness.render("fastllm", m)
    m.average()
    return m.committed()


def view(cells: Mapping[str, Any] | Estimates) -> dict[str, Any]:
    """Return the variables and functions of the template; the functions give a dash for what was not measured."""
    m = cells if isinstance(cells, Estimates) else Estimates(cells)

    def found(kind: str, *cell: Any) -> Estimate | None:
        try:
            return getattr(m, kind)(*cell)
        except MissingCell:
            return None

    def of(kind: str, parts: tuple[Hashable, ...]) -> Estimate | None:
        """Return the estimate of a cell, which is given by tuples and single parts of its name."""
        return found(
            kind, *(name for part in parts for name in (part if isinstance(part, tuple) else (part,)))
        )

    def mean(*cell: Hashable, digits: int = 1) -> str:
        one = of("mean", cell)
        return "–" if one is None else one.text(digits)

    def point(*cell: Hashable, digits: int = 1, kind: str = "mean") -> str:
        """Return an estimate without its interval."""
        one = of(kind, cell)
        return "–" if one is None else f"{one.mean:,.{digits}f}"

    def share(*cell: Hashable) -> str:
        one = of("share", cell)
        return "–" if one is None else one.text(0)

    def change(new: Cell, old: Cell, *unless: Cell, unit: str = " %", counted: bool = False) -> str:
        one = found("change", new, old, *unless)
        return "–" if one is None else one.percent(unit) + f" ({one.n})" * counted

    def times(cell: Cell, other: Cell) -> str:
        """Return how many times one mean is another."""
        pair = found("mean", *cell), found("mean", *other)
        return "–" if None in pair else f"{pair[0].mean / pair[1].mean:,.0f}"  # type: ignore[union-attr]

    claims = all_claims(m)
    setting = {"LOOSER": LOOSER, "PROVEN": PROVEN, "BASE": BASE, "SIZES": SIZES, "SIGMAS": SIGMAS}
    setting |= {"METHODS": METHODS, "STRESSES": STRESSES, "FACTORS": FACTORS, "BUDGETS_USD": BUDGETS_USD}
    functions = {"mean": mean, "point": point, "share": share, "change": change, "times": times}
    return {**functions, **setting, "claims": claims, "published": published, "source": m.source}
