"""Check greedily, as for a knapsack, whether some fleet achieves a makespan."""

from __future__ import annotations

import numpy as np

from .problem import MakespanProblem
from .program import Limits


def knapsack_check(problem: MakespanProblem, makespan_s: float, limits: Limits) -> np.ndarray | None:
    """Return a fleet that is done within a makespan, or None if the greedy knapsack finds none.

    Our reading of the paper's "knapsack approximation". An item is one replica, which fills its `makespan_s` with what
    is left of the workloads, those first on which it is fastest relative to the best rate per dollar. Its value is
    what it serves, each request at the least price anybody serves it for; its weight is its largest share of what
    is left of the budget and of any GPU type. The densest item is packed until all is served or nothing fits. Quick,
    and one-sided: a fleet that is found is one, but "none" may be wrong.
    """
    left, free = problem.requests.astype(float), _Free(problem)
    worth, order = _values(problem)
    replicas = np.zeros(problem.price_usd_per_h.size, dtype=np.int64)
    while np.any(left > 1e-9 * problem.requests):
        weight = free.weights(replicas)
        value, served = _fill(left, problem.busy_s, worth, order, makespan_s)
        fits = (weight <= 1.0 + 1e-12) & (value > 0.0)
        if not fits.any():
            return None
        c = int(np.where(fits, value / np.maximum(weight, 1e-12), 0.0).argmax())
        moving = served[:, c] > 0.0
        copies = free.take(c, np.floor((left[moving] / served[moving, c]).min() + 1e-12), replicas)
        replicas[c] += copies
        left = np.maximum(0.0, left - copies * served[:, c])
    return replicas


class _Free:
    """The GPUs and the money that are left."""

    def __init__(self, problem: MakespanProblem):
        self.problem, self.most = problem, problem.most
        self.gpus = problem.available_gpus.astype(float)
        self.money = problem.budget_usd_per_h
        self.alone = np.zeros(self.most.size, dtype=bool)  # in a group
        for group in problem.groups:
            self.alone[list(group)] = True

    def weights(self, replicas: np.ndarray) -> np.ndarray:
        """Return the largest share of anything left that one more replica takes, (C,); inf where none may come."""
        problem = self.problem
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(problem.gpu_use > 0, problem.gpu_use / self.gpus[:, None], 0.0)
            money = np.where(problem.price_usd_per_h > 0, problem.price_usd_per_h / self.money, 0.0)
        weight = np.maximum(share.max(axis=0, initial=0.0), money)
        weight[replicas >= self.most] = np.inf
        for group in problem.groups:
            if replicas[list(group)].any():
                weight[list(group)] = np.inf
        return weight

    def take(self, c: int, wanted: float, replicas: np.ndarray) -> int:
        """Take what up to `wanted` copies of c need, at least one, and return their number."""
        use, price = self.problem.gpu_use[:, c], self.problem.price_usd_per_h[c]
        rooms = [wanted, float(self.most[c] - replicas[c])]
        rooms += [float(np.floor(have / need)) for have, need in zip(self.gpus, use, strict=True) if need > 0]
        if price > 0 and np.isfinite(self.money):
            rooms.append(float(np.floor(self.money / price + 1e-12)))
        copies = 1 if self.alone[c] else int(max(1.0, min(rooms)))
        self.gpus = self.gpus - copies * use
        self.money = max(0.0, self.money - copies * price)
        return copies


def _values(problem: MakespanProblem) -> tuple[np.ndarray, np.ndarray]:
    """Return the least price of one request (W,), and for each configuration the workloads by value a second."""
    busy_s = problem.busy_s
    price = busy_s * np.maximum(problem.price_usd_per_h, 1e-12)
    worth = np.min(np.where(problem.most > 0, price, np.inf), axis=1)
    worth[(problem.requests == 0) | ~np.isfinite(worth)] = 0.0
    gain = np.where(np.isfinite(busy_s), worth[:, None] / np.maximum(busy_s, 1e-300), -1.0)
    return worth, np.argsort(-gain, axis=0, kind="stable")


def _fill(
    left: np.ndarray, busy_s: np.ndarray, worth: np.ndarray, order: np.ndarray, makespan_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return value (C,) and requests served (W, C) of one more replica of each configuration."""
    count = busy_s.shape[1]
    time = np.full(count, makespan_s)
    served = np.zeros(busy_s.shape)
    every = np.arange(count)
    for rank in order:
        pace = busy_s[rank, every]
        amount = np.where(
            np.isfinite(pace), np.minimum(left[rank], time / np.where(pace > 0, pace, 1e-300)), 0.0
        )
        served[rank, every] = amount
        time = np.maximum(0.0, time - amount * np.where(np.isfinite(pace), pace, 0.0))
    return worth @ served, served
