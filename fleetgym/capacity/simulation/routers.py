"""Route drawn requests: list the pools that each may go to, for the event loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from fleetgym.capacity.simulation.fleet import Fleet, Requests
from fleetgym.capacity.simulation.kernel import LEAST_LOADED, NONE, SPILLOVER
from fleetgym.files.errors import FleetgymError, UnknownNameError


@dataclasses.dataclass(frozen=True, eq=False)
class Routing:
    """What a router decided before anything happened."""

    candidates: np.ndarray  # int32 (K, P): pools in order of preference, NONE after the last
    kind: np.ndarray  # int32 (n,): the row of each request
    policy: int  # LEAST_LOADED or SPILLOVER, among the candidates
    requests: Requests  # perhaps shortened

    @property
    def fixed_pool(self) -> np.ndarray | None:
        """The one pool that each request may go to, (n,), or None if any request has a choice."""
        if not np.all(self.candidates[:, 1:] == NONE):
            return None
        if np.all(self.candidates == self.candidates[0]):
            return np.broadcast_to(self.candidates[0, 0], (len(self.requests),))
        return self.candidates[self.kind, 0]


class Router(Protocol):
    """Decides which pools may serve each request."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return the candidates of each request."""
        ...


def _fixed(fleet: Fleet, requests: Requests, pool: np.ndarray) -> Routing:
    """Return the routing to given pools, NONE for nowhere; pools that cannot serve a request count as nowhere."""
    count = len(fleet.pools)
    candidates = np.full((count + 1, count), NONE, dtype=np.int32)
    candidates[:count, 0] = np.arange(count)
    here = (pool != NONE) & fleet.can_serve[requests.workload, pool]
    return Routing(candidates, np.where(here, pool, count).astype(np.int32), SPILLOVER, requests)


def _by_workload(fleet: Fleet, requests: Requests, allowed: np.ndarray, policy: int) -> Routing:
    """Return a routing among the allowed pools, bool (W, P), in their order."""
    candidates = np.full(allowed.shape, NONE, dtype=np.int32)
    for w, row in enumerate(allowed):
        pools = np.flatnonzero(row)
        candidates[w, : pools.size] = pools
    return Routing(candidates, requests.workload, policy, requests)


def _limits(fleet: Fleet) -> np.ndarray:
    return np.array([np.inf if pool.max_tokens is None else pool.max_tokens for pool in fleet.pools])


def _smallest(limits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the pool with the smallest limit that is enough for each request, or NONE."""
    order = np.argsort(limits, kind="stable")
    place = np.searchsorted(limits[order], tokens)
    return np.append(order, NONE)[place]


@dataclasses.dataclass(frozen=True)
class Length:
    """To the pool with the smallest context limit (``max_tokens``) that is enough."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return one candidate per request."""
        return _fixed(fleet, requests, _smallest(_limits(fleet), requests.tokens))


@dataclasses.dataclass(frozen=True)
class CompressAndRoute:
    """By length, but prompts a little too long for the next smaller pool are shortened to fit it.

    Source: Chen et al., inference-fleet-sim (2026), section 2.1: the band (B, gamma B] of a pool with limit B.

    Parameters
    ----------
    gamma : float
        How much too long a request may be.
    share : float
        Share of those requests that can be shortened.
    """

    gamma: float = 1.5
    share: float = 1.0

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return one candidate per request, and the shortened requests."""
        limits, tokens = _limits(fleet), requests.tokens
        plain, reachable = _smallest(limits, tokens), _smallest(self.gamma * limits, tokens)
        target = np.where(reachable == NONE, np.inf, limits[reachable])
        # Only the prompt can be shortened.
        short = (
            (target < tokens) & (requests.output_tokens <= target) & (rng.random(len(tokens)) < self.share)
        )
        inputs = np.where(short, target - requests.output_tokens, requests.input_tokens)
        shortened = dataclasses.replace(requests, input_tokens=inputs)
        return _fixed(fleet, shortened, np.where(short, reachable, plain))


@dataclasses.dataclass(frozen=True, eq=False)
class Random:
    """To a pool drawn at random.

    Parameters
    ----------
    shares : array_like, shape (P,) or (W, P), optional
        Share of each workload's requests per pool; what is missing from 1 is refused. By default equal shares
        among the pools that can serve the workload.
    """

    shares: np.ndarray | None = None

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return one candidate per request."""
        if self.shares is None:
            shares = fleet.can_serve / np.maximum(1, fleet.can_serve.sum(axis=1, keepdims=True))
        else:
            shares = np.broadcast_to(np.asarray(self.shares, dtype=float), fleet.can_serve.shape)
        if np.any(shares < 0.0) or np.any(shares.sum(axis=1) > 1.0 + 1e-9):
            raise FleetgymError("expected shares of at least 0 that add up to at most 1 per workload")
        edges = np.cumsum(shares, axis=1)
        edges[edges[:, -1] > 1.0 - 1e-9, -1] = 1.0  # nobody is refused by round-off
        drawn = rng.random(len(requests))
        pool = np.full(len(requests), NONE)
        for w in range(len(edges)):
            mine = requests.workload == w
            # The trailing pools with no share must not catch the round-off of the others.
            last = int(np.flatnonzero(shares[w] > 0.0)[-1]) if np.any(shares[w] > 0.0) else 0
            edges[w, last:] = edges[w, -1]
            place = np.searchsorted(edges[w], drawn[mine], side="right")
            pool[mine] = np.where(place < len(fleet.pools), place, NONE)
        return _fixed(fleet, requests, pool)


@dataclasses.dataclass(frozen=True)
class Model:
    """To the pools of the workload's model; the least loaded, if there are several."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return the pools of its model as candidates of each request."""
        same = np.array([[pool.model == w.model for pool in fleet.pools] for w in fleet.workloads])
        return _by_workload(fleet, requests, same & fleet.can_serve, LEAST_LOADED)


@dataclasses.dataclass(frozen=True)
class LeastLoaded:
    """To the pool with the fewest requests per slot, waiting ones included."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return all pools that can serve it as candidates of each request."""
        return _by_workload(fleet, requests, fleet.can_serve, LEAST_LOADED)


@dataclasses.dataclass(frozen=True)
class Spillover:
    """To the first pool that can start it at once; if none can, it waits at the first with room in its queue."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return all pools that can serve it, in order, as candidates of each request."""
        return _by_workload(fleet, requests, fleet.can_serve, SPILLOVER)


#: Routers by name, with their defaults.
ROUTERS: Mapping[str, Callable[[], Router]] = {
    "length": Length,
    "compress-and-route": CompressAndRoute,
    "random": Random,
    "model": Model,
    "least-loaded": LeastLoaded,
    "spillover": Spillover,
}


def as_router(router: Router | str) -> Router:
    """Return a router by its name, or the router itself.

    Raises
    ------
    UnknownNameError
        If no router has the name.
    """
    if not isinstance(router, str):
        return router
    if router not in ROUTERS:
        raise UnknownNameError("router", router, ROUTERS)
    return ROUTERS[router]()
