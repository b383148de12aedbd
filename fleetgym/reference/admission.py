"""Admit a target fleet replica by replica: what is granted, denied and lost (section 2 of the model)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from fleetgym.reference.conditions import HOURS, Book, Conditions

#: A budget is kept up to this, relative to itself or to a dollar.
MONEY = 1e-9


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


class Admitting:
    """Section 2 on a list of replicas, one method per lettered step."""

    def __init__(self, conditions: Conditions, state: FleetState, target: Sequence[int], first_window: bool):
        self.conditions, self.book = conditions, conditions.book
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
        fleet = pack(self.replicas, self.book, self.spent_usd)
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
            if held > self.conditions.available[g]:
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
        """Return True if holding the fleet, with these fees, exceeds the budget."""
        budget = self.book.budget
        if budget is None:
            return False
        holding = [self.conditions.hold_usd(r.c) for r in self.replicas]
        if budget.kind == "rate":
            limit, paid = budget.usd * self.book.window_s * HOURS, math.fsum(holding)
        else:
            limit, paid = budget.usd - self.spent_usd, math.fsum([*holding, *fees])
        return paid > limit + MONEY * max(1.0, limit)

    def relieves(self, replica: _Replica, limit: int | str) -> bool:
        """Return True if removing the replica relieves a violated limit."""
        if isinstance(limit, int):
            return self.book.gpus[limit][replica.c] > 0
        return self.conditions.hold_usd(replica.c) > 0

    # (b), (c)

    def cut_to_availability(self) -> None:
        """While a pool holds more than there is, lose a replica that uses it."""
        for g in range(self.book.num_pools):
            while self.held_gpus()[g] > self.conditions.available[g]:
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
        """Start-up fee of a replica."""
        return self.book.configurations[c].startup_usd

    def new_replica(self, c: int) -> _Replica:
        """Return what a grant adds."""
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


def pack(replicas: Sequence[_Replica], book: Book, spent_usd: float) -> FleetState:
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


def after_window(fleet: FleetState, spent_usd: float) -> FleetState:
    """Move everything one window on: what has started runs, what has drained is gone."""
    return FleetState(
        [running + starts[0] for running, starts in zip(fleet.running, fleet.starting, strict=True)],
        [[*starts[1:], 0] for starts in fleet.starting],
        [[*drains[1:], 0] for drains in fleet.draining],
        spent_usd,
    )
