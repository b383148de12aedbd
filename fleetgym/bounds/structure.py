"""The linear program of an episode in, its parts out: what belongs to which draw, and what to fleets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleetgym.bounds.eliminate import Entries, Places
from fleetgym.bounds.interior import Program, Structure
from fleetgym.bounds.relaxation import Window

if TYPE_CHECKING:
    from fleetgym.bounds.horizon import HorizonProgram

#: Where nothing may serve, this many replicas or GPUs may: an interior-point method needs an interior. Certificates
#: take the true limits.
LEAST = 1e-3


def structured(horizon: HorizonProgram, unit: float) -> tuple[Program, Structure]:
    """Return the program with costs times `unit`, and its parts."""
    routings, columns = horizon.problem.routings, horizon.columns
    draws = [
        (t, window, at, numbers)
        for t, routing in enumerate(routings)
        for window, at, numbers in zip(routing.draws, columns[t].draws, horizon.numbers[t], strict=True)
    ]
    m = max(window.unserved_usd.size for _, window, _, _ in draws)
    pools = max(window.lossy_gpus.size for _, window, _, _ in draws)
    rows, among = draws[0][1].need.shape[0], horizon.among
    places, entries = _empty(len(draws), m, among.size, rows, pools)
    cost, upper, matrix, lower, side = horizon.program.arrays()
    for b, (t, window, at, numbers) in enumerate(draws):
        places.window[b] = t
        _put_routes(places, b, window, numbers, at.x, among)
        _put_entries(entries, b, window, numbers, among)
        for k, slack in enumerate((at.unserved, at.delay, at.error)):
            places.slack[b, k, : slack.size] = slack
        places.late[b] = at.late
        if window.is_lossy:
            places.left[b], places.link[b] = at.left, numbers["left"]
            places.lossy[b, : window.lossy_gpus.size] = numbers["lossy"]
        for shares in (at.x, at.unserved):
            upper[shares] = np.inf  # they add up to one
        upper[at.left] = np.maximum(upper[at.left], LEAST)
        upper[columns[t].ready] = np.maximum(upper[columns[t].ready], LEAST)
    order = [
        np.concatenate([at.arrivals, at.ready, *([] if at.ready is at.serving else [at.serving])])
        for at in columns
    ]
    structure = Structure(
        places=places,
        entries=entries,
        ready=np.array([at.ready for at in columns]),
        order=np.concatenate(order),
        dense=np.array([] if horizon.pool_row is None else [horizon.pool_row], dtype=np.int64),
    )
    is_equation = lower == side
    for limits in (horizon.gpu_rows.ravel(), places.lossy[places.lossy >= 0]):
        side[limits] = np.maximum(side[limits], LEAST)
    return Program(cost * unit, upper, matrix, side, is_equation), structure


def _empty(draws: int, m: int, n: int, rows: int, pools: int) -> tuple[Places, Entries]:
    """Return places of nothing, and coefficients of 0."""

    def nowhere(*shape: int) -> np.ndarray:
        return np.full((draws, *shape), -1, dtype=np.int64)

    places = Places(
        x=nowhere(m, n),
        slack=nowhere(3, m),
        late=nowhere(n),
        left=nowhere(n),
        kept=nowhere(3, m),
        capacity=nowhere(rows, n),
        whole=nowhere(m, n),
        link=nowhere(n),
        lossy=nowhere(pools),
        window=nowhere(),
    )
    shapes = (3, m, n), (rows, m, n), (pools, n)
    return places, Entries(*(np.zeros((draws, *shape)) for shape in shapes))


def _put_routes(
    places: Places, b: int, window: Window, numbers: dict[str, np.ndarray], x: np.ndarray, among: np.ndarray
) -> None:
    """Set the places of a draw's routes and rows."""
    present = window.unserved_usd.size
    workload, route = np.nonzero(window.is_open[:, among])
    places.x[b, workload, route] = x
    for k, name in enumerate(("served", "delay", "error")):
        places.kept[b, k, :present] = numbers[name]
    places.capacity[b] = numbers["capacity"]
    workload, route = np.nonzero(window.is_tight[:, among])
    places.whole[b, workload, route] = numbers["whole"]


def _put_entries(
    entries: Entries, b: int, window: Window, numbers: dict[str, np.ndarray], among: np.ndarray
) -> None:
    """Set the coefficients of a draw's rows."""
    present, is_open = window.unserved_usd.size, window.is_open[:, among]
    entries.kept[b, 0, :present] = is_open
    excesses = {"delay": window.delay_excess, "error": window.error_excess}
    for k, (name, excess) in enumerate(excesses.items(), start=1):
        counts = is_open & (numbers[name] >= 0)[:, None]
        entries.kept[b, k, :present] = np.where(counts, excess[:, among], 0.0)
    entries.need[b, :, :present] = np.where(is_open, window.need[:, :, among], 0.0)
    entries.use[b, : window.lossy_gpus.size] = window.lossy_use[:, among]
