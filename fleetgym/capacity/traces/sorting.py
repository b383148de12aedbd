"""Sort requests into workloads by label or by length."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.capacity.traces.reader import Trace
from fleetgym.files.errors import FleetgymError

MAX_WORKLOADS = 16
_SMALL_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class Sorting:
    """How requests become workloads."""

    names: tuple[str, ...]  # ids of the workloads
    rule: str  # in words
    classify: Callable[[np.ndarray], np.ndarray]  # rows to numbers of workloads
    models: tuple[str | None, ...] = ()  # what serves each workload; empty where labels do not make them


def in_one() -> Sorting:
    """Return the rule that sorts nothing."""
    return Sorting(
        ("all",), "one workload for all requests", lambda rows: np.zeros(len(rows), dtype=np.int64)
    )


def by_label(trace: Trace, models: Sequence[str | None]) -> Sorting:
    """Return the rule by label: at most 16 workloads, rare labels together that one model serves.

    Raises
    ------
    FleetgymError
        If the trace has no such column, or its rare labels ask for more models than there may be workloads.
    """
    if not trace.pairs:
        raise FleetgymError("workloads by label need a column workload, class, label or model")
    labels, counts = trace.labels, trace.label_counts()
    order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k]]  # not those of embeddings
    kept = [k for k in order[: MAX_WORKLOADS - 1] if counts[k] >= _SMALL_SHARE * counts.sum()]
    while len(kept) + len(rare := _by_model(order, kept, models)) > MAX_WORKLOADS:
        if not kept:
            raise FleetgymError(
                f"the labels ask for {len(rare)} models, at most {MAX_WORKLOADS} make workloads; say what serves some "
                "together with --bind LABEL=MODEL"
            )
        kept.pop()
    groups = [[k] for k in kept] + list(rare.values())
    names = [labels[k[0]] if len(k) == 1 else " ".join(filter(None, ("other", models[k[0]]))) for k in groups]
    ids, rule = _ids(names), f"the column {trace.label_name!r}"
    if together := [k for k in groups if len(k) > 1]:
        which = " and ".join(repr(name) for name, k in zip(ids, groups, strict=True) if len(k) > 1)
        rare_labels = f"{sum(map(len, together))} rare labels (under 1 %, or not among the most frequent)"
        rule += f"; {rare_labels} together are {which}"
    number = np.zeros(len(counts), dtype=np.int64)
    for n, group in enumerate(groups):
        number[group] = n
    served = tuple(models[k[0]] for k in groups)
    return Sorting(ids, rule, lambda rows: number[rows["label"]], served)


def _by_model(
    order: Sequence[int], kept: Sequence[int], models: Sequence[str | None]
) -> dict[str | None, list[int]]:
    """Return the labels that are not kept, by what serves them, the most frequent first."""
    found: dict[str | None, list[int]] = {}
    for k in order:
        if k not in kept:
            found.setdefault(models[k], []).append(k)
    return found


def _ids(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels as ids of workloads, all different.

    Examples
    --------
    >>> _ids(["chat", "org/Model 1", "org-Model-1"])
    ('chat', 'org-Model-1', 'org-Model-1-2')
    """
    found: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9_.+@:-]", "-", label)[:60]
        plain = plain if plain[0].isascii() and plain[0].isalnum() else f"w{plain}"
        name, copies = plain, 1
        while name in found:
            copies += 1
            name = f"{plain}-{copies}"
        found.append(name)
    return tuple(found)


def quantiles(histogram: np.ndarray, shares: Sequence[float]) -> list[int]:
    """Return the least values that at least these shares of the counts do not exceed.

    Examples
    --------
    >>> quantiles(np.array([0, 1, 1, 2]), [0.5, 1.0])
    [2, 3]
    """
    cumulative = np.cumsum(histogram)
    return np.searchsorted(cumulative, np.asarray(shares) * cumulative[-1]).tolist()


def by_length(totals: np.ndarray, buckets: int, edges: Sequence[int] | None) -> Sorting:
    """Return the rule by input + output tokens; buckets that no request falls into are left out.

    `totals` counts the requests of each length. A bucket holds what is longer than one of the edges and no longer than
    the next; without edges, all buckets have equally many requests.

    Raises
    ------
    FleetgymError
        For numbers that make no buckets.
    """
    bounds = _bounds(totals, buckets) if edges is None else _given_bounds(edges)
    rule = "input + output tokens, " + ("equally many requests each" if edges is None else "bounds as given")
    up_to = np.cumsum(totals)[np.minimum(bounds, len(totals) - 1)].tolist() if bounds else []
    filled = np.diff([0, *up_to, int(totals.sum())]) > 0
    used = [bound for bound, has_requests in zip(bounds, filled[:-1], strict=True) if has_requests]
    if used and not filled[-1]:
        used.pop()
    names = {0: ("all",), 1: ("short", "long"), 2: ("short", "medium", "long")}.get(len(used))
    if names is None:
        names = (*(f"up-to-{bound}" for bound in used), f"over-{used[-1]}")
    if used:
        rule += f": up to {', '.join(f'{bound:,}' for bound in used)}, and more"
    levels = np.array(used, dtype=np.int64)

    def classify(rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(levels, rows["input"].astype(np.int64) + rows["output"], side="left")

    return Sorting(names, rule, classify)


def _bounds(totals: np.ndarray, buckets: int) -> list[int]:
    if not 1 <= buckets <= MAX_WORKLOADS:
        raise FleetgymError(f"expected 1 to {MAX_WORKLOADS} length buckets, got {buckets}")
    return quantiles(totals, [k / buckets for k in range(1, buckets)])


def _given_bounds(edges: Sequence[int]) -> list[int]:
    bounds = [int(edge) for edge in edges]
    rising = all(a < b for a, b in zip([0, *bounds], bounds, strict=False))
    if not bounds or not rising or len(bounds) >= MAX_WORKLOADS:
        raise FleetgymError(f"expected 1 to {MAX_WORKLOADS - 1} rising bounds above 0, got {bounds}")
    return bounds
