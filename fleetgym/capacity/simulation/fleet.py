"""Describe what is simulated: pools, workloads, drawn requests, and their time on each pool."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from fleetgym.capacity.simulation.arrivals import Arrivals, Poisson
from fleetgym.capacity.simulation.kernel import UNLIMITED
from fleetgym.capacity.simulation.laws import check_law, unit_draws
from fleetgym.files.errors import FleetgymError
from fleetgym.model.lengths import LengthLaw


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Equal replicas behind one queue.

    Each slot is a server: a pool has ``replicas * slots`` of them, and a request's service time is not divided by
    the slots.

    Parameters
    ----------
    name : str
        For messages and tables.
    replicas, slots : int
        Replicas, and requests that one replica serves at a time; either may be 0.
    kv_tokens : int, optional
        Memory of one replica. A request takes its input and output tokens from its start to its end.
    queue_limit : int, optional
        Requests that may wait; the next one is dropped.
    patience_s : float
        A request that has waited longer gives up.
    max_tokens : int, optional
        Context limit, for routers by length.
    model : str
        For the router by model.
    """

    name: str = "pool"
    replicas: int
    slots: int
    kv_tokens: int | None = None
    queue_limit: int | None = None
    patience_s: float = math.inf
    max_tokens: int | None = None
    model: str = ""

    def __post_init__(self) -> None:
        for field in ("replicas", "slots", "kv_tokens", "queue_limit", "max_tokens"):
            value = getattr(self, field)
            if value is not None and not 0 <= value <= 10**12:
                raise FleetgymError(f"pool {self.name!r}: expected {field} from 0 to 1e12, got {value}")
        if not self.patience_s >= 0.0:
            raise FleetgymError(
                f"pool {self.name!r}: expected patience_s of at least 0, got {self.patience_s}"
            )

    @property
    def servers(self) -> int:
        """Requests that the pool serves at a time."""
        return self.replicas * self.slots


@dataclasses.dataclass(frozen=True)
class TokenTime:
    """A duration that is affine in a request's token lengths; numbers, or one per pool. NaN: cannot be served there.

    Examples
    --------
    >>> TokenTime(0.5, 0.0, np.array([0.01, 0.02])).seconds(np.array([100.0]), np.array([10.0]), 2).tolist()
    [[0.6, 0.7]]
    """

    base_s: float | np.ndarray
    per_input_token_s: float | np.ndarray = 0.0
    per_output_token_s: float | np.ndarray = 0.0

    def seconds(self, input_tokens: np.ndarray, output_tokens: np.ndarray, num_pools: int) -> np.ndarray:
        """Return the durations of n requests on each pool, (n, P)."""
        base, per_input, per_output = (
            np.broadcast_to(np.asarray(value, dtype=float), (num_pools,))
            for value in (self.base_s, self.per_input_token_s, self.per_output_token_s)
        )
        found = np.broadcast_to(base, (len(input_tokens), num_pools))
        for slope, tokens in ((per_input, input_tokens), (per_output, output_tokens)):
            if np.any(slope != 0.0):
                found = found + np.multiply.outer(tokens, slope)
        return found

    def on_pool(self, pool: int, num_pools: int) -> TokenTime:
        """Return the durations on one of the pools."""
        parts = (self.base_s, self.per_input_token_s, self.per_output_token_s)
        return TokenTime(
            *(np.broadcast_to(np.asarray(part, dtype=float), (num_pools,))[pool] for part in parts)
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A class of requests.

    Parameters
    ----------
    name : str
        For messages and tables.
    arrivals : Arrivals or float
        How they arrive; a number is the rate of a Poisson stream, in requests/s.
    service_s : TokenTime, float or ndarray of shape (P,)
        Mean time that a request of given lengths holds a slot; NaN where a pool cannot serve it.
    service_cv2 : float or ndarray of shape (P,)
        Squared coefficient of variation of the service time among requests of the same lengths.
    law : str
        Its distribution, one of `fleetgym.capacity.simulation.laws.LAWS`.
    prefill_s : TokenTime, float or ndarray of shape (P,)
        Time from the start to the first token.
    input_tokens, output_tokens : int or ndarray
        Lengths; of two arrays of equal length, pairs are drawn with equal probability.
    prompt_law : LengthLaw, optional
        By how much prompts, and so the parts of prefill times per input token, differ from the mean `input_tokens`.
        Service times and memory do not follow it. None: not at all.
    ttft_slo_s : float
        Bound on wait plus prefill.
    model : str
        For the router by model.
    """

    name: str = "requests"
    arrivals: Arrivals | float
    service_s: TokenTime | float | np.ndarray
    service_cv2: float | np.ndarray = 1.0
    law: str = "gamma"
    prefill_s: TokenTime | float | np.ndarray = 0.0
    input_tokens: int | np.ndarray = 0
    output_tokens: int | np.ndarray = 0
    prompt_law: LengthLaw | None = None
    ttft_slo_s: float = math.inf
    model: str = ""

    def __post_init__(self) -> None:
        check_law(self.law)
        for field in ("service_s", "prefill_s"):
            if not isinstance(getattr(self, field), TokenTime):
                object.__setattr__(self, field, TokenTime(np.asarray(getattr(self, field), dtype=float)))
        if isinstance(self.arrivals, (int, float)):
            object.__setattr__(self, "arrivals", Poisson(float(self.arrivals)))
        if np.any(~(np.asarray(self.service_cv2) >= 0.0)):
            raise FleetgymError(f"workload {self.name!r}: expected a service_cv2 of at least 0")
        lengths = [np.atleast_1d(tokens) for tokens in (self.input_tokens, self.output_tokens)]
        if any(x.ndim != 1 or x.size == 0 or np.any(x < 0) for x in lengths):
            raise FleetgymError(f"workload {self.name!r}: expected token lengths of at least 0")
        if 1 < lengths[0].size != lengths[1].size > 1:
            raise FleetgymError(f"workload {self.name!r}: input_tokens and output_tokens differ in length")

    @property
    def stream(self) -> Arrivals:
        """How its requests arrive."""
        assert not isinstance(self.arrivals, (int, float))
        return self.arrivals

    @property
    def rate_rps(self) -> float:
        """Mean arrivals per second."""
        return self.stream.rate_rps

    @property
    def service_time(self) -> TokenTime:
        """Mean time that a request holds a slot."""
        assert isinstance(self.service_s, TokenTime)
        return self.service_s

    def draw_lengths(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return input and output lengths of n requests."""
        lengths = [np.atleast_1d(tokens) for tokens in (self.input_tokens, self.output_tokens)]
        count = max(x.size for x in lengths)
        if count == 1:
            return np.broadcast_to(lengths[0], (n,)), np.broadcast_to(lengths[1], (n,))
        chosen = rng.integers(0, count, n)
        drawn = [x[chosen] if x.size > 1 else np.full(n, x[0]) for x in lengths]
        return drawn[0], drawn[1]


@dataclasses.dataclass(frozen=True, eq=False)
class Requests:
    """Requests in order of arrival, (n,) each."""

    arrival_s: np.ndarray
    workload: np.ndarray  # int
    input_tokens: np.ndarray
    output_tokens: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """KV memory of each request, int64."""
        total = self.input_tokens + self.output_tokens
        return total if total.dtype == np.int64 else np.ceil(total).astype(np.int64)

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """Pools and what they serve."""

    pools: tuple[Pool, ...]
    workloads: tuple[Workload, ...]
    can_serve: np.ndarray = dataclasses.field(init=False)  # (W, P) bool

    def __post_init__(self) -> None:
        if not self.pools or not self.workloads:
            raise FleetgymError("expected at least one pool and one workload")
        zero = np.zeros(1)
        times = [w.service_time.seconds(zero, zero, len(self.pools))[0] for w in self.workloads]
        object.__setattr__(self, "can_serve", ~np.isnan(np.array(times)))

    def draw(self, rng: np.random.Generator, until_s: float) -> Requests:
        """Return the requests that arrive before `until_s`."""
        arrivals, lengths, owners = [], [], []
        for w, workload in enumerate(self.workloads):
            times = workload.stream.draw(rng, until_s)
            arrivals.append(times)
            lengths.append(workload.draw_lengths(rng, times.size))
            owners.append(np.full(times.size, w, dtype=np.int32))
        if len(arrivals) == 1:
            return Requests(arrivals[0], owners[0], *lengths[0])
        order = np.argsort(np.concatenate(arrivals), kind="stable")
        columns = (arrivals, owners, [x[0] for x in lengths], [x[1] for x in lengths])
        return Requests(*(np.concatenate(column)[order] for column in columns))

    def draw_service_s(self, requests: Requests, rng: np.random.Generator) -> np.ndarray:
        """Return how long each request would hold a slot of each pool, (n, P); NaN where it cannot be served."""
        found = np.empty((len(requests), len(self.pools)))
        for w, workload in enumerate(self.workloads):
            mine = np.flatnonzero(requests.workload == w)
            factor = np.empty((len(mine), len(self.pools)))
            cv2 = self._cv2(w)
            for value in np.unique(cv2):
                factor[:, cv2 == value] = unit_draws(workload.law, rng, len(mine), float(value))[:, None]
            found[mine] = factor * self._seconds(workload.service_s, requests, mine)
        return found

    def draw_service_at_s(self, requests: Requests, pool: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return how long each request holds a slot of the pool that it is sent to, (n, 1); NaN where that is none."""
        found = np.full((len(requests), 1), np.nan)
        for w, workload in enumerate(self.workloads):
            for p, cv2 in enumerate(self._cv2(w)):
                here = pool == p if len(self.workloads) == 1 else (requests.workload == w) & (pool == p)
                mine = slice(None) if here.all() else np.flatnonzero(here)
                size = len(requests) if isinstance(mine, slice) else len(mine)
                if size:
                    factor = unit_draws(workload.law, rng, size, float(cv2))
                    found[mine, 0] = factor * self._seconds(workload.service_s, requests, mine, p)
        return found

    def draw_prefill_s(self, requests: Requests, rng: np.random.Generator) -> np.ndarray:
        """Return the prefill time of each request on each pool, (n, P)."""

        def seconds(workload: Workload, rows: np.ndarray | slice) -> np.ndarray:
            prompts = requests.input_tokens[rows]
            if workload.prompt_law is not None:
                prompts = prompts * workload.prompt_law.draw(rng, len(prompts))
            assert isinstance(workload.prefill_s, TokenTime)
            return workload.prefill_s.seconds(prompts, requests.output_tokens[rows], len(self.pools))

        if len(self.workloads) == 1:
            return seconds(self.workloads[0], slice(None))
        found = np.empty((len(requests), len(self.pools)))
        for w, workload in enumerate(self.workloads):
            mine = np.flatnonzero(requests.workload == w)
            found[mine] = seconds(workload, mine)
        return found

    def _cv2(self, w: int) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.workloads[w].service_cv2, dtype=float), (len(self.pools),))

    def _seconds(
        self,
        time: TokenTime | float | np.ndarray,
        requests: Requests,
        rows: np.ndarray | slice,
        pool: int | None = None,
    ) -> np.ndarray:
        """Return the durations of some requests on one pool, (n,), or on all, (n, P)."""
        assert isinstance(time, TokenTime)
        lengths = requests.input_tokens[rows], requests.output_tokens[rows]
        count = len(self.pools)
        return (
            time.seconds(*lengths, count)
            if pool is None
            else time.on_pool(pool, count).seconds(*lengths, 1)[:, 0]
        )


def limit(value: int | None) -> int:
    """Return a limit in the kernel's form."""
    return UNLIMITED if value is None else value


def as_fleet(pools: Sequence[Pool] | Pool, workloads: Sequence[Workload] | Workload) -> Fleet:
    """Return the fleet of one or several pools and workloads."""
    some_pools = (pools,) if isinstance(pools, Pool) else tuple(pools)
    some_workloads = (workloads,) if isinstance(workloads, Workload) else tuple(workloads)
    return Fleet(some_pools, some_workloads)
