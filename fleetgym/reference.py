"""The plain twin that judges: an instance, a scenario and actions in, every cost term of every window out.

It follows `docs/model.md` section by section with lists and loops, and shares no code with the fast path.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fleetgym.certified_lp import CertificateError, Program, solve
from fleetgym.errors import DataError
from fleetgym.instance import Affine, Instance, Scenario

COST_TERMS = (
    "rental",
    "model_storage",
    "data_storage",
    "delay",
    "slo",
    "unserved",
    "late",
    "startup",
)
HOURS = 1 / 3600
U_MAX = 0.95
SAFE_MISS = 0.001
SEGMENTS = 3
TIE_BREAK = 1e-6
MONEY = 1e-9


# -- the instance and the scenario as plain lists


class _Book:
    """Everything the sections below look up, as Python lists: [i] workload, [c] configuration, [g] pool."""

    def __init__(self, instance: Instance):
        self.workloads = instance.workloads
        self.configurations = instance.configurations
        self.num_workloads = instance.num_workloads
        self.num_configurations = instance.num_configurations
        self.num_pools = instance.num_pools
        self.window_s = instance.window_s
        self.by_day = instance.penalty_basis == "day"
        self.budget = instance.budget
        self.slots = instance.slot_members
        self.exclusive = [slot.exclusive for slot in instance.slots]
        self.gpus: list[list[int]] = instance.gpu_use.tolist()
        #: Pools that a replica uses, with its GPUs there.
        self.uses = [
            [(g, row[c]) for g, row in enumerate(self.gpus) if row[c]] for c in range(self.num_configurations)
        ]
        self.rent_per_h: list[list[float]] = instance.rental_usd_per_h.tolist()
        tables = instance.performance
        self.compatible = tables.compatible.tolist()
        self.delay, self.work = _Lengths(tables.delay_s), _Lengths(tables.work_tflop)
        self.service, self.prefill = _Lengths(tables.service_s), _Lengths(tables.prefill_s)
        self.service_cv2, self.error = tables.service_cv2.tolist(), tables.error.tolist()
        self.storage_usd, self.tie_break = tables.storage_usd.tolist(), tables.tie_break.tolist()
        members = [c for slot in self.slots for c in slot]
        self.rank = {c: position for position, c in enumerate(members)}
        self.most_windows = max(1, *(c.startup_windows for c in self.configurations))


class _Lengths:
    """A quantity that is affine in the mean token lengths."""

    def __init__(self, table: Affine):
        self.base = table.base.tolist()
        self.per_input = table.per_input_token.tolist()
        self.per_output = table.per_output_token.tolist()

    def at(self, i: int, c: int, tokens_in: float, tokens_out: float) -> float:
        """Return the quantity for workload i on configuration c."""
        return self.base[i][c] + self.per_input[i][c] * tokens_in + self.per_output[i][c] * tokens_out


# -- 1. coefficients of a window


class _Outcome:
    """Section 1: what window `t` of a scenario brings, and the coefficients that follow from it."""

    def __init__(self, book: _Book, rows: dict[str, list[list[float]]], t: int):
        def row(name: str) -> list[float]:
            return rows[name][t if len(rows[name]) > 1 else 0]

        self.book = book
        self.rate = row("rate_rps")
        self.available = row("available_gpus")
        self.price_factor = row("price_factor")
        self.delay_factor, self.error_factor = row("delay_factor"), row("error_factor")
        scale_in, scale_out = row("input_scale"), row("output_scale")
        self.tokens_in = [w.input_tokens * s for w, s in zip(book.workloads, scale_in, strict=True)]
        self.tokens_out = [w.output_tokens * s for w, s in zip(book.workloads, scale_out, strict=True)]
        self.present = [i for i, rate in enumerate(self.rate) if rate > 0]
        self.requests = [rate * book.window_s for rate in self.rate]
        days = book.window_s / 86400
        self.weight = [
            (days if rate > 0 else 0.0) if book.by_day else n
            for rate, n in zip(self.rate, self.requests, strict=True)
        ]
        self.penalty = [m * w.unserved_usd for m, w in zip(self.weight, book.workloads, strict=True)]

    def delay_s(self, i: int, c: int) -> float:
        """D: residency of a request."""
        return self.delay_factor[i] * self.book.delay.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def service_s(self, i: int, c: int) -> float:
        """S: how long a request holds a server."""
        return self.delay_factor[i] * self.book.service.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def prefill_s(self, i: int, c: int) -> float:
        """F: time to first token without waiting."""
        return self.delay_factor[i] * self.book.prefill.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def work_tflop(self, i: int, c: int) -> float:
        """Compute of a request."""
        return self.book.work.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def error(self, i: int, c: int) -> float:
        """e: error share of a request."""
        return self.error_factor[i] * self.book.error[i][c]

    def kv_gb_s(self, i: int, c: int) -> float:
        """GB of KV cache times seconds that a request holds them (Little's law)."""
        per_token = self.book.configurations[c].kv_gb_per_token
        return per_token * (self.tokens_in[i] + self.tokens_out[i]) * self.delay_s(i, c)

    def always_late(self, i: int, c: int) -> bool:
        """Whether the first token is late even without waiting."""
        slo = self.book.workloads[i].ttft_slo_s
        return slo is not None and self.prefill_s(i, c) >= slo

    def rent_usd(self, c: int) -> float:
        """Rent of one replica for this window."""
        per_h = [
            rent[c] * factor for rent, factor in zip(self.book.rent_per_h, self.price_factor, strict=True)
        ]
        return math.fsum(per_h) * self.book.window_s * HOURS

    def storage_usd(self, c: int) -> float:
        """Model storage of one replica for this window."""
        return self.book.configurations[c].model_storage_usd_per_h * self.book.window_s * HOURS

    def hold_usd(self, c: int) -> float:
        """Cost of holding one replica in this window."""
        return self.rent_usd(c) + self.storage_usd(c)


# -- 2. admission


@dataclasses.dataclass
class FleetState:
    """Replicas per configuration, and what a `pool` budget has paid.

    Attributes
    ----------
    running : (configurations,) list of int
    starting, draining : (configurations, K) nested lists of int
        Entry [c][k - 1] counts replicas with k windows left; K is the longest start-up, at least 1.
    spent_usd : float
        Stays 0 unless the instance has a `pool` budget.
    """

    running: list[int]
    starting: list[list[int]]
    draining: list[list[int]]
    spent_usd: float = 0.0


@dataclasses.dataclass
class Admission:
    """What admission made of a target.

    Attributes
    ----------
    fleet : FleetState
        The fleet that is held during the window; `spent_usd` as before the window.
    denied, lost, granted : (configurations,) list of int
    forced_outage : int
        Replicas that stopped serving before what replaces them serves.
    startup_usd : float
        Fees of the grants.
    """

    fleet: FleetState
    denied: list[int]
    lost: list[int]
    granted: list[int]
    forced_outage: int
    startup_usd: float

    @property
    def serving(self) -> list[int]:
        """Replicas per configuration that serve in this window: running and draining ones."""
        return [
            running + sum(drains)
            for running, drains in zip(self.fleet.running, self.fleet.draining, strict=True)
        ]

    @property
    def held(self) -> list[int]:
        """Replicas per configuration that hold GPUs and are paid for."""
        return [
            serving + sum(starts) for serving, starts in zip(self.serving, self.fleet.starting, strict=True)
        ]


@dataclasses.dataclass(eq=False)
class _Replica:
    """One held replica. `kind` is running, starting, pending, leaving or draining."""

    c: int
    kind: str
    left: int = 0

    @property
    def on_the_way_out(self) -> bool:
        return self.kind in ("leaving", "draining")


class _Admitting:
    """Section 2 on a list of replicas, one method per lettered step."""

    def __init__(self, outcome: _Outcome, state: FleetState, target: Sequence[int], first_window: bool):
        self.outcome, self.book = outcome, outcome.book
        self.target, self.first_window = list(target), first_window
        self.spent_usd = state.spent_usd
        self.replicas = _unpack(state)
        count = self.book.num_configurations
        self.denied, self.lost, self.granted = [0] * count, [0] * count, [0] * count
        self.forced_outage = 0
        self.fees: list[float] = []
        self.waits = [0]

    def run(self) -> Admission:
        """Go through (a) to (e)."""
        self.leave()
        self.cut_to_availability()
        self.cut_to_budget()
        for slot, members in enumerate(self.book.slots):
            self.grant_slot(slot, members)
        self.drain()
        fleet = _pack(self.replicas, self.book, self.spent_usd)
        fees = math.fsum(self.fees)
        return Admission(fleet, self.denied, self.lost, self.granted, self.forced_outage, fees)

    def of(self, c: int, *kinds: str) -> list[_Replica]:
        """Return the replicas of a configuration that are of one of these kinds."""
        return [r for r in self.replicas if r.c == c and r.kind in kinds]

    # (a)

    def leave(self) -> None:
        """Let each configuration's surplus leave."""
        held = {replica.c for replica in self.replicas}
        for slot, members in enumerate(self.book.slots):
            for c in held.intersection(members):
                switching = self.book.exclusive[slot] and any(self.target[o] for o in members if o != c)
                self.leave_one(c, switching)

    def leave_one(self, c: int, switching: bool) -> None:
        """Cancel starting replicas, longest wait first, then let running ones leave."""
        starting = sorted(self.of(c, "starting"), key=lambda r: -r.left)
        running = self.of(c, "running")
        surplus = max(0, len(running) + len(starting) - self.target[c])
        for replica in starting[:surplus]:
            if switching:
                replica.kind = "pending"
            else:
                self.replicas.remove(replica)
        for replica in running[: max(0, surplus - len(starting))]:
            replica.kind = "leaving"

    # limits

    def first_violated(self, fees: Sequence[float] = ()) -> int | str | None:
        """Return the first pool over its availability, else "budget" if over it, else None."""
        for g, held in enumerate(self.held_gpus()):
            if held > self.outcome.available[g]:
                return g
        return "budget" if self.over_budget(fees) else None

    def held_gpus(self) -> list[int]:
        """Return the GPUs held in each pool."""
        held = [0] * self.book.num_pools
        for replica in self.replicas:
            for g, gpus in self.book.uses[replica.c]:
                held[g] += gpus
        return held

    def over_budget(self, fees: Sequence[float]) -> bool:
        """Whether holding the fleet, and these fees, exceed the budget."""
        budget = self.book.budget
        if budget is None:
            return False
        holding = [self.outcome.hold_usd(r.c) for r in self.replicas]
        if budget.kind == "rate":
            limit, paid = budget.usd * self.book.window_s * HOURS, math.fsum(holding)
        else:
            limit, paid = budget.usd - self.spent_usd, math.fsum([*holding, *fees])
        return paid > limit + MONEY * max(1.0, limit)

    def relieves(self, replica: _Replica, limit: int | str) -> bool:
        """Whether letting the replica go helps with a violated limit."""
        if isinstance(limit, int):
            return self.book.gpus[limit][replica.c] > 0
        return self.outcome.hold_usd(replica.c) > 0

    # (b), (c)

    def cut_to_availability(self) -> None:
        """While a pool holds more than there is, lose a replica that uses it."""
        for g in range(self.book.num_pools):
            while self.held_gpus()[g] > self.outcome.available[g]:
                self.lose_one(g)

    def cut_to_budget(self) -> None:
        """While the fleet costs more to hold than the budget, lose a replica that costs something."""
        while self.over_budget(()) and any(self.relieves(r, "budget") for r in self.replicas):
            self.lose_one("budget")

    def lose_one(self, limit: int | str) -> None:
        """Remove the first replica in the order of (b)."""
        replica = min((r for r in self.replicas if self.relieves(r, limit)), key=self.removal_order)
        self.replicas.remove(replica)
        self.lost[replica.c] += 1

    def removal_order(self, r: _Replica) -> tuple[int, int, int, int]:
        """Sort what is lost first to the front: kind, last configuration, then the order within it."""
        last_first = -self.book.rank[r.c]
        if r.on_the_way_out:
            return 0, last_first, 0 if r.kind == "leaving" else 1, r.left
        if r.kind in ("starting", "pending"):
            return 1, last_first, 0 if r.kind == "pending" else 1, -r.left
        return 2, last_first, 0, 0

    # (d)

    def grant_slot(self, slot: int, members: Sequence[int]) -> None:
        """Grant the slot's target configuration replica by replica, then settle the old one."""
        wanted = [c for c in members if self.target[c] > 0]
        if not wanted:
            return
        (c,) = wanted
        old = [o for o in members if o != c]
        while (missing := self.target[c] - len(self.of(c, "running", "starting"))) > 0:
            if not (self.take_back(c) or self.grant(c) or self.grant_by_giving_way(c)):
                self.denied[c] += missing
                self.keep_old(old)
                return
        self.cancel_pending(old)

    def take_back(self, c: int) -> bool:
        """Return a replica that is on its way out to running."""
        found = self.of(c, "leaving") + sorted(self.of(c, "draining"), key=lambda r: -r.left)
        if found:
            found[0].kind, found[0].left = "running", 0
        return bool(found)

    def grant(self, c: int) -> bool:
        """Add a replica if all limits allow it."""
        self.replicas.append(self.new_replica(c))
        if self.first_violated([*self.fees, self.fee(c)]) is not None:
            self.replicas.pop()
            return False
        self.charge(c)
        return True

    def grant_by_giving_way(self, c: int) -> bool:
        """Add a replica and remove draining ones until all limits hold; change nothing if that fails."""
        before = list(self.replicas)
        self.replicas.append(self.new_replica(c))
        gave_way = 0
        while (limit := self.first_violated([*self.fees, self.fee(c)])) is not None:
            leavers = [r for r in self.replicas if r.on_the_way_out and self.relieves(r, limit)]
            if not leavers:
                self.replicas = before
                return False
            self.replicas.remove(min(leavers, key=self.removal_order))
            gave_way += 1
        if self.wait(c) > 0:
            self.forced_outage += gave_way
        self.charge(c)
        return True

    def wait(self, c: int) -> int:
        """Windows until a replica granted now serves."""
        return 0 if self.first_window else self.book.configurations[c].startup_windows

    def fee(self, c: int) -> float:
        return self.book.configurations[c].startup_usd

    def new_replica(self, c: int) -> _Replica:
        wait = self.wait(c)
        return _Replica(c, "starting", wait) if wait else _Replica(c, "running")

    def charge(self, c: int) -> None:
        """Book a grant."""
        self.granted[c] += 1
        self.fees.append(self.fee(c))
        self.waits.append(self.wait(c))

    def keep_old(self, old: Sequence[int]) -> None:
        """Let what is still there of the old configuration stay: the switch was denied."""
        for o in old:
            for replica in self.of(o, "leaving"):
                replica.kind = "running"
            for replica in self.of(o, "pending"):
                replica.kind = "starting"

    def cancel_pending(self, old: Sequence[int]) -> None:
        """Cancel a starting replica of the old configuration: the switch went through."""
        self.replicas = [r for r in self.replicas if not (r.kind == "pending" and r.c in old)]

    # (e)

    def drain(self) -> None:
        """Let leaving replicas drain until everything granted now serves."""
        wait = max(self.waits)
        for replica in [r for r in self.replicas if r.kind == "leaving"]:
            if wait == 0:
                self.replicas.remove(replica)
            else:
                replica.kind, replica.left = "draining", wait


def _unpack(state: FleetState) -> list[_Replica]:
    """Return one object per replica."""
    replicas = [_Replica(c, "running") for c, count in enumerate(state.running) for _ in range(count)]
    for kind, table in (("starting", state.starting), ("draining", state.draining)):
        for c, counts in enumerate(table):
            replicas += [_Replica(c, kind, k) for k, count in enumerate(counts, 1) for _ in range(count)]
    return replicas


def _pack(replicas: Sequence[_Replica], book: _Book, spent_usd: float) -> FleetState:
    """Count the replicas."""
    count, windows = book.num_configurations, book.most_windows
    state = FleetState(
        [0] * count, [[0] * windows for _ in range(count)], [[0] * windows for _ in range(count)], spent_usd
    )
    for replica in replicas:
        if replica.kind == "running":
            state.running[replica.c] += 1
        elif replica.kind == "starting":
            state.starting[replica.c][replica.left - 1] += 1
        else:
            state.draining[replica.c][replica.left - 1] += 1
    return state


def _after_window(fleet: FleetState, spent_usd: float) -> FleetState:
    """Move everything one window on: what has started runs, what has drained is gone."""
    return FleetState(
        [running + starts[0] for running, starts in zip(fleet.running, fleet.starting, strict=True)],
        [[*starts[1:], 0] for starts in fleet.starting],
        [[*drains[1:], 0] for drains in fleet.draining],
        spent_usd,
    )


# -- 5. tails


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that an arrival waits in M/M/c.

    Parameters
    ----------
    servers : int
        At least 1.
    load : float
        Offered load in busy servers, at least 0; from `servers` on, everyone waits.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(erlang_c(2, 1.0), 12)
    0.333333333333
    """
    if load >= servers:
        return 1.0
    if load <= 0.0:
        return 0.0
    # 1/B(n) = 1 + n / load · 1/B(n-1). Far below the load it forgets where it began.
    begin = max(0, math.floor(load - 10 * math.sqrt(load)))
    inverse_b = 1.0
    for n in range(begin + 1, servers + 1):
        inverse_b = 1.0 + n / load * inverse_b
        if inverse_b > 1e300:
            return 0.0
    return servers / ((servers - load) * inverse_b + load)


def chance_to_wait(servers: int, load: float, arrival_cv2: float) -> float:
    """Return the probability that an arrival waits where arrivals are burstier, or steadier, than Poisson's.

    Parameters
    ----------
    servers : int
        At least 1.
    load : float
        Offered load in busy servers, at least 0.
    arrival_cv2 : float
        Squared coefficient of variation of the times between arrivals, at least 0.

    Returns
    -------
    float
        In [0, 1]: Erlang's C for servers and load divided by the peakedness (1 + arrival_cv2) / 2. Between whole
        numbers of servers log C is linear, at the same utilisation; without servers everyone waits.

    Examples
    --------
    >>> chance_to_wait(6, 3.0, 5.0) == erlang_c(2, 1.0)
    True
    >>> round(chance_to_wait(1, 0.25, 3.0), 12)  # half a server
    0.5
    """
    if load <= 0.0 or load >= servers or arrival_cv2 == 1.0:
        return erlang_c(servers, load)
    u = load / servers
    whole, part = divmod(2 * servers / (1 + arrival_cv2), 1.0)
    below, above = (erlang_c(n, u * n) for n in (int(whole), int(whole) + 1))
    return below ** (1 - part) * above**part


def _mixture(
    shares: Sequence[float], services: Sequence[float], cv2s: Sequence[float]
) -> tuple[float, float]:
    """Return the mean and the squared coefficient of variation of a mixture of service times."""
    mean = math.fsum(p * s for p, s in zip(shares, services, strict=True))
    if mean <= 0.0:
        return 0.0, 0.0
    second = math.fsum(p * (1 + v) * s * s for p, s, v in zip(shares, services, cv2s, strict=True))
    # Round-off may take the variance of a constant below zero.
    return mean, max(0.0, second / mean**2 - 1)


@dataclasses.dataclass(frozen=True)
class _Queue:
    """A configuration's replicas as one queue."""

    servers: int
    load: float
    mean_service_s: float
    cv2: float  # of service
    arrival_cv2: float

    def waits_longer(self, seconds: float) -> float:
        """P(W > seconds), for seconds above 0."""
        if self.mean_service_s <= 0.0 or self.load <= 0.0:
            return 0.0
        if self.load >= self.servers:
            return 1.0
        variation = self.arrival_cv2 + self.cv2
        if variation <= 0.0:
            return 0.0
        decay = 2 * (self.servers - self.load) / self.mean_service_s / variation
        return self.chance_to_wait * math.exp(-decay * seconds)

    @functools.cached_property
    def chance_to_wait(self) -> float:
        """P(W > 0), the same for all that queue here."""
        return chance_to_wait(self.servers, self.load, self.arrival_cv2)


# -- 3. late-cost segments


@dataclasses.dataclass(frozen=True)
class LateSegments:
    """What a load costs in late requests, piecewise linear in busy servers.

    Attributes
    ----------
    u_safe : float
        Utilisation up to which lateness is free.
    width : float
        Busy servers per segment.
    slopes : tuple of float
        USD per window and busy server, one per segment, not decreasing.
    """

    u_safe: float
    width: float
    slopes: tuple[float, ...]


_NEVER_LATE = LateSegments(U_MAX, 0.0, (0.0,) * SEGMENTS)


def _late_segments(book: _Book, c: int, replicas: int) -> LateSegments:
    """Section 3 for one configuration and replica count, at nominal rates, lengths and factors."""
    served = [i for i in range(book.num_workloads) if book.compatible[i][c]]
    workloads = [book.workloads[i] for i in served]
    lengths = [(i, c, w.input_tokens, w.output_tokens) for i, w in zip(served, workloads, strict=True)]
    total = math.fsum(w.rate_rps for w in workloads)
    shares = [w.rate_rps / total for w in workloads]
    mean, cv2 = _mixture(
        shares, [book.service.at(*a) for a in lengths], [book.service_cv2[i][c] for i in served]
    )
    if (
        mean == 0.0
        or all(w.late_usd == 0.0 for w in workloads)
        or all(w.ttft_slo_s is None for w in workloads)
    ):
        return _NEVER_LATE
    arrival_cv2 = math.fsum(p * w.arrival_cv2 for p, w in zip(shares, workloads, strict=True))
    patience = [
        None if w.ttft_slo_s is None else w.ttft_slo_s - book.prefill.at(*a)
        for w, a in zip(workloads, lengths, strict=True)
    ]
    servers = replicas * book.configurations[c].max_concurrency

    def late_shares(u: float) -> list[float]:
        queue = _Queue(servers, u * servers, mean, cv2, arrival_cv2)
        return [0.0 if t is None or t <= 0.0 else queue.waits_longer(t) for t in patience]

    def miss(u: float) -> float:
        return math.fsum(p * q for p, q in zip(shares, late_shares(u), strict=True))

    def usd(u: float) -> float:
        late = zip(shares, workloads, late_shares(u), strict=True)
        return u * servers / mean * book.window_s * math.fsum(p * w.late_usd * q for p, w, q in late)

    return _segments(_largest(lambda u: miss(u) <= SAFE_MISS, U_MAX), servers, usd)


def _segments(u_safe: float, servers: int, usd: Callable[[float], float]) -> LateSegments:
    """Return the three chords of `usd` between u_safe and u_max, made convex."""
    step = (U_MAX - u_safe) / SEGMENTS
    width = servers * step
    if width == 0.0:
        return _NEVER_LATE
    ends = [usd(u_safe + b * step) for b in range(SEGMENTS)] + [usd(U_MAX)]
    slopes = [0.0]
    for b in range(SEGMENTS):
        slopes.append(max(slopes[-1], (ends[b + 1] - ends[b]) / width))
    return LateSegments(u_safe, width, tuple(slopes[1:]))


def _largest(holds: Callable[[float], bool], upper: float) -> float:
    """Return the largest number up to `upper` for which `holds`, which is true at 0, by bisection."""
    if holds(upper):
        return upper
    low, high = 0.0, upper
    while high - low > 2.0**-40:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# -- 4. routing


@dataclasses.dataclass
class Routing:
    """Where the requests of a window go.

    Attributes
    ----------
    share : dict from (workload, configuration) to float
        x; pairs that are missing get nothing.
    unserved : (workloads,) list of float
        u; 0 for absent workloads.
    """

    share: dict[tuple[int, int], float]
    unserved: list[float]


class _RoutingProgram:
    """Section 4 as a scaled linear program.

    Rows are divided by their limits, and x_ic is replaced by x_ic · m_ic with m_ic the largest coefficient in
    its column, so that all entries are at most about one.
    """

    def __init__(self, outcome: _Outcome, serving: Sequence[int], segments: dict[int, LateSegments]):
        self.outcome, self.book = outcome, outcome.book
        self.serving, self.segments = serving, segments
        self.rhs: dict[tuple, float] = {}
        self.columns: list[tuple[tuple, float, dict[tuple, float], float, float]] = []
        self.scale: dict[tuple[int, int], float] = {}
        used = [c for c, count in enumerate(serving) if count > 0]
        for i in outcome.present:
            self.rhs["serve", i] = 1.0
            self.add(("u", i), outcome.penalty[i], {("serve", i): 1.0}, 1.0)
        rows = {(i, c): self.coefficients(i, c) for i in outcome.present for c in used}
        possible = {pair: row for pair, row in rows.items() if row is not None}
        for c in used:
            self.add_capacity(c, [possible[i, c] for i in outcome.present if (i, c) in possible])
        for i in outcome.present:
            self.add_slo(i, [possible[i, c] for c in used if (i, c) in possible])
        for pair, row in possible.items():
            self.add_share(pair, row)

    def add(
        self, name: tuple, cost: float, row: dict[tuple, float], upper: float, largest: float = 1.0
    ) -> None:
        """Append a column."""
        self.columns.append((name, cost, row, upper, largest))

    def limits(self, c: int) -> dict[tuple, tuple[float, Callable[[int, int], float]]]:
        """Return each capacity row of a configuration: its limit, and the use per request/s."""
        part, outcome, count = self.book.configurations[c], self.outcome, self.serving[c]
        return {
            ("compute", c): (part.compute_tflops * count, outcome.work_tflop),
            ("kv", c): (part.kv_capacity_gb * count, outcome.kv_gb_s),
            ("slots", c): (U_MAX * part.max_concurrency * count, outcome.service_s),
        }

    def coefficients(self, i: int, c: int) -> dict[tuple, float] | None:
        """Return the column of x_ic before scaling; None if it must be 0."""
        if not self.book.compatible[i][c]:
            return None
        outcome, workload = self.outcome, self.book.workloads[i]
        row: dict[tuple, float] = {("serve", i): 1.0}
        for name, (limit, use) in self.limits(c).items():
            load = outcome.rate[i] * use(i, c)
            if load > 0.0 and limit == 0.0:
                return None
            row[name] = load / limit if load > 0.0 else 0.0
        row["delay", i] = (outcome.delay_s(i, c) - workload.mean_delay_slo_s) / workload.mean_delay_slo_s
        row["error", i] = (outcome.error(i, c) - workload.error_slo) / workload.error_slo
        return row

    def add_capacity(self, c: int, columns: Sequence[dict[tuple, float]]) -> None:
        """Add the rows of a configuration that all of the workloads together could violate."""
        late, count = self.segments[c], self.serving[c]
        servers = U_MAX * self.book.configurations[c].max_concurrency * count
        for name in self.limits(c):
            limit = late.u_safe / U_MAX if name[0] == "slots" else 1.0
            if math.fsum(row[name] for row in columns) > limit:
                self.rhs[name] = limit
        if ("slots", c) in self.rhs and late.width > 0.0:
            for b, slope in enumerate(late.slopes):
                width = late.width / servers
                self.add(("o", c, b), slope * servers, {("slots", c): -1.0}, width, width)

    def add_slo(self, i: int, columns: Sequence[dict[tuple, float]]) -> None:
        """Add the elastic rows of a workload that some configuration violates."""
        for kind in ("delay", "error"):
            worst = max((row[kind, i] for row in columns), default=0.0)
            if worst > 0.0:
                self.rhs[kind, i] = 0.0
                self.add((kind, i), self.outcome.penalty[i], {(kind, i): -1.0}, math.inf, worst)

    def add_share(self, pair: tuple[int, int], row: dict[tuple, float]) -> None:
        """Add x_ic, scaled."""
        kept = {name: value for name, value in row.items() if name in self.rhs and value != 0.0}
        scale = max(1.0, *kept.values())
        self.scale[pair] = scale
        column = {name: value / scale for name, value in kept.items()}
        self.add(("x", *pair), self.cost(*pair) / scale, column, math.inf, scale)

    def cost(self, i: int, c: int) -> float:
        """cost_ic, tie-breaking term included."""
        outcome, workload = self.outcome, self.book.workloads[i]
        late = workload.late_usd if outcome.always_late(i, c) else 0.0
        return math.fsum(
            [
                outcome.weight[i] * workload.delay_usd_per_s * outcome.delay_s(i, c),
                outcome.requests[i] * self.book.storage_usd[i][c],
                outcome.requests[i] * late,
                TIE_BREAK * outcome.penalty[i] * self.book.tie_break[i][c],
            ]
        )

    def program(self) -> Program:
        """Return the arrays."""
        index = {name: r for r, name in enumerate(self.rhs)}
        matrix = np.zeros((len(index), len(self.columns)))
        for j, (_, _, row, _, _) in enumerate(self.columns):
            for name, value in row.items():
                matrix[index[name], j] = value
        column_of = {column[0]: j for j, column in enumerate(self.columns)}
        start = [
            column_of["u", name[1]] if name[0] == "serve" else len(self.columns) + r
            for name, r in index.items()
        ]
        return Program(
            cost=np.array([column[1] for column in self.columns]),
            upper=np.array([column[3] for column in self.columns]),
            largest=np.array([column[4] for column in self.columns]),
            matrix=matrix,
            rhs=np.array(list(self.rhs.values())),
            equality=np.array([name[0] == "serve" for name in self.rhs]),
            start=start,
        )

    def solve(self) -> Routing:
        """Return the certified optimal routing."""
        unserved = [0.0] * self.book.num_workloads
        share: dict[tuple[int, int], float] = {}
        if not self.scale:
            for i in self.outcome.present:
                unserved[i] = 1.0
            return Routing(share, unserved)
        values = solve(self.program()).values.tolist()
        for (name, *_), value in zip(self.columns, values, strict=True):
            amount = max(0.0, value)
            if name[0] == "u":
                unserved[name[1]] = min(1.0, amount)
            elif name[0] == "x" and amount > 0.0:
                share[name[1], name[2]] = amount / self.scale[name[1], name[2]]
        return Routing(share, unserved)


# -- 5. tails of the routing


def _late_shares(outcome: _Outcome, serving: Sequence[int], routing: Routing) -> dict[tuple[int, int], float]:
    """P_ic for every pair that is routed."""
    late: dict[tuple[int, int], float] = {}
    for c in sorted({c for _, c in routing.share}):
        queue = _queue(outcome, serving[c], c, routing)
        for i in [i for i, at in routing.share if at == c]:
            slo = outcome.book.workloads[i].ttft_slo_s
            if slo is None:
                late[i, c] = 0.0
            elif outcome.always_late(i, c):
                late[i, c] = 1.0
            else:
                late[i, c] = queue.waits_longer(slo - outcome.prefill_s(i, c))
    return late


def _queue(outcome: _Outcome, count: int, c: int, routing: Routing) -> _Queue:
    """Return the queue that the routed mixture forms at a configuration."""
    book = outcome.book
    served = [i for i, at in routing.share if at == c]
    rates = [outcome.rate[i] * routing.share[i, c] for i in served]
    total = math.fsum(rates)
    shares = [rate / total for rate in rates]
    mean, cv2 = _mixture(
        shares, [outcome.service_s(i, c) for i in served], [book.service_cv2[i][c] for i in served]
    )
    arrival_cv2 = math.fsum(p * book.workloads[i].arrival_cv2 for p, i in zip(shares, served, strict=True))
    servers = count * book.configurations[c].max_concurrency
    return _Queue(servers, total * mean, mean, cv2, arrival_cv2)


# -- 6. cost of a window


def _operating_costs(
    outcome: _Outcome, routing: Routing, late: dict[tuple[int, int], float]
) -> dict[str, float]:
    """Return the terms that depend on the routing."""
    book, share = outcome.book, routing.share
    workloads, weight, requests = book.workloads, outcome.weight, outcome.requests
    return {
        "data_storage": math.fsum(requests[i] * book.storage_usd[i][c] * x for (i, c), x in share.items()),
        "delay": math.fsum(
            weight[i] * workloads[i].delay_usd_per_s * outcome.delay_s(i, c) * x
            for (i, c), x in share.items()
        ),
        "slo": math.fsum(outcome.penalty[i] * sum(_excess(outcome, routing, i)) for i in outcome.present),
        "unserved": math.fsum(outcome.penalty[i] * routing.unserved[i] for i in outcome.present),
        "late": math.fsum(
            requests[i] * workloads[i].late_usd * late[i, c] * x for (i, c), x in share.items()
        ),
    }


def _excess(outcome: _Outcome, routing: Routing, i: int) -> tuple[float, float]:
    """s_i and s'_i: how far the mean delay and the mean error of what is served exceed their SLOs."""
    workload = outcome.book.workloads[i]
    bound, allowed = workload.mean_delay_slo_s, workload.error_slo
    mine = [(c, x) for (k, c), x in routing.share.items() if k == i]
    slow = math.fsum((outcome.delay_s(i, c) - bound) / bound * x for c, x in mine)
    wrong = math.fsum((outcome.error(i, c) - allowed) / allowed * x for c, x in mine)
    return max(0.0, slow), max(0.0, wrong)


def _holding_costs(outcome: _Outcome, admission: Admission) -> dict[str, float]:
    """Return the terms that depend on the fleet alone."""
    held = [(c, count) for c, count in enumerate(admission.held) if count]
    return {
        "rental": math.fsum(count * outcome.rent_usd(c) for c, count in held),
        "model_storage": math.fsum(count * outcome.storage_usd(c) for c, count in held),
        "startup": admission.startup_usd,
    }


# -- episodes


class ReferenceEpisode:
    """One episode, stepped window by window.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
        Checked against the instance.

    Attributes
    ----------
    window : int
        The window that the next step plays.
    state : FleetState
        The fleet before that window. Steps never change it in place.
    """

    def __init__(self, instance: Instance, scenario: Scenario):
        scenario.check(instance)
        self.instance = instance
        self._book = _Book(instance)
        self._rows = {
            field.name: getattr(scenario, field.name).tolist()
            for field in dataclasses.fields(scenario)
            if isinstance(getattr(scenario, field.name), np.ndarray)
        }
        self._segments: dict[tuple[int, int], LateSegments] = {}
        self.window = 0
        empty = _pack([], self._book, 0.0)
        self.state = dataclasses.replace(empty, running=instance.nominal_fleet.tolist())

    def step(self, target: Sequence[int]) -> dict[str, Any]:
        """Play one window.

        Parameters
        ----------
        target : (configurations,) sequence of int
            Replicas wanted.

        Returns
        -------
        dict
            The cost terms and their sum ``cost``, in USD of this window; ``unserved_share`` and
            ``miss_share`` (workloads,); the fleet during this window: ``running`` (configurations,),
            ``starting`` and ``draining`` (configurations, K), ``serving``, ``held``, ``denied``, ``lost``,
            ``granted`` (configurations,); ``forced_outage``; ``routing`` (workloads, configurations).

        Raises
        ------
        DataError
            If the target is no fleet of this instance.
        IndexError
            After the last window.
        """
        admission = self.admit(self.state, target, self.window)
        operation = self.operate(admission.serving, self.window)
        holding = self.holding_costs(admission, self.window)
        costs = {name: {**holding, **operation["costs"]}[name] for name in COST_TERMS}
        self.state = self.next_state(admission, self.window)
        self.window += 1
        fleet = admission.fleet
        return {
            **costs,
            "cost": math.fsum(costs.values()),
            "unserved_share": operation["unserved_share"],
            "miss_share": operation["miss_share"],
            "routing": operation["routing"],
            "running": fleet.running,
            "starting": fleet.starting,
            "draining": fleet.draining,
            "serving": admission.serving,
            "held": admission.held,
            "denied": admission.denied,
            "lost": admission.lost,
            "granted": admission.granted,
            "forced_outage": admission.forced_outage,
        }

    # The parts of a step. None of them changes the episode.

    def admit(self, state: FleetState, target: Sequence[int], window: int) -> Admission:
        """Return what admission makes of a target in a window (section 2)."""
        _check_target(self.instance, target)
        return _Admitting(self._outcome(window), state, target, window == 0).run()

    def holding_costs(self, admission: Admission, window: int) -> dict[str, float]:
        """Return ``rental``, ``model_storage`` and ``startup`` in USD of the window."""
        return _holding_costs(self._outcome(window), admission)

    def operate(self, serving: Sequence[int], window: int) -> dict[str, Any]:
        """Route a window's requests over serving replicas (sections 4 to 6).

        Parameters
        ----------
        serving : (configurations,) sequence of int
        window : int

        Returns
        -------
        dict
            ``costs``, a dict of the terms that depend on the routing, in USD; ``unserved_share`` and
            ``miss_share`` (workloads,); ``routing`` (workloads, configurations).
        """
        outcome = self._outcome(window)
        used = [c for c, count in enumerate(serving) if count > 0]
        segments = {c: self.late_segments(c, serving[c]) for c in used}
        routing = _RoutingProgram(outcome, serving, segments).solve()
        late = _late_shares(outcome, serving, routing)
        missed = list(routing.unserved)
        table = [[0.0] * self._book.num_configurations for _ in missed]
        for (i, c), x in routing.share.items():
            missed[i] += x * late[i, c]
            table[i][c] = x
        return {
            "costs": _operating_costs(outcome, routing, late),
            "unserved_share": routing.unserved,
            "miss_share": missed,
            "routing": table,
        }

    def next_state(self, admission: Admission, window: int) -> FleetState:
        """Return the fleet before the following window."""
        spent = admission.fleet.spent_usd
        if self._book.budget is not None and self._book.budget.kind == "pool":
            spent = math.fsum([spent, *self.holding_costs(admission, window).values()])
        return _after_window(admission.fleet, spent)

    def late_segments(self, c: int, replicas: int) -> LateSegments:
        """Return section 3's segments of a configuration, computed once."""
        key = c, replicas
        if key not in self._segments:
            self._segments[key] = _late_segments(self._book, c, replicas)
        return self._segments[key]

    def _outcome(self, window: int) -> _Outcome:
        if not 0 <= window < self.instance.num_windows:
            raise IndexError(f"the episode has windows 0 to {self.instance.num_windows - 1}, not {window}")
        return _Outcome(self._book, self._rows, window)


def replay(instance: Instance, scenario: Scenario, actions: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Play an episode from its actions.

    Parameters
    ----------
    instance : Instance
    scenario : Scenario
    actions : (windows, slots) sequence of int
        One row per window, as for `action_to_target`.

    Returns
    -------
    list of dict
        What `ReferenceEpisode.step` returns, per window.

    Raises
    ------
    DataError
        If there is not one valid action per window.
    CertificateError
        If a window's routing cannot be proven optimal.
    """
    if len(actions) != instance.num_windows:
        raise DataError(f"expected {instance.num_windows} actions, one per window, got {len(actions)}", "$")
    episode = ReferenceEpisode(instance, scenario)
    steps = []
    # The bases are small: a second thread of linear algebra costs far more than it gives.
    with threadpool_limits(1, user_api="blas"):
        for t, action in enumerate(actions):
            try:
                steps.append(episode.step(action_to_target(instance, action)))
            except DataError as error:
                raise DataError(error.message, f"$[{t}]{error.path[1:]}") from None
            except CertificateError as error:
                raise CertificateError(f"window {t}: {error}") from None
    return steps


def action_to_target(instance: Instance, action: Sequence[int]) -> list[int]:
    """Translate one option per slot into replicas per configuration.

    Parameters
    ----------
    instance : Instance
    action : (slots,) sequence of int
        For an exclusive slot 0 is off and o its o-th configuration; otherwise the number of replicas.

    Returns
    -------
    (configurations,) list of int

    Raises
    ------
    DataError
        If an option does not exist.
    """
    options = list(action)
    if len(options) != len(instance.slots):
        raise DataError(f"expected one option per slot, {len(instance.slots)}, got {len(options)}", "$")
    target = [0] * instance.num_configurations
    for s, (option, members) in enumerate(zip(options, instance.slot_members, strict=True)):
        exclusive = instance.slots[s].exclusive
        most = len(members) if exclusive else instance.configurations[members[0]].max_replicas
        if not _is_count(option) or not 0 <= option <= most:
            raise DataError(f"expected a whole number from 0 to {most}, got {option!r}", f"$[{s}]")
        if not exclusive:
            target[members[0]] = int(option)
        elif option:
            target[members[option - 1]] = 1
    return target


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _check_target(instance: Instance, target: Sequence[int]) -> None:
    """Raise unless `target` is a fleet that some action asks for."""
    if len(target) != instance.num_configurations:
        raise DataError(f"expected {instance.num_configurations} counts, got {len(target)}", "$")
    for c, (count, configuration) in enumerate(zip(target, instance.configurations, strict=True)):
        most = configuration.max_replicas
        if not _is_count(count) or not 0 <= count <= most:
            raise DataError(f"expected a whole number from 0 to {most}, got {count!r}", f"$[{c}]")
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        if slot.exclusive and sum(target[c] for c in members) > 1:
            raise DataError(f"at most one of {', '.join(slot.configurations)} may run", "$")
