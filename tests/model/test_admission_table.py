"""Admission (docs/model.md, section 2) on cases worked out by hand, for every implementation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from toys import configuration, make_instance, nominal_scenario, pool

from fleetgym import reference
from fleetgym.kernels import admission
from fleetgym.kernels.compile import jit
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import WindowModel

Counts = Mapping[str, int]
ByWindows = Mapping[str, Mapping[int, int]]


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Replicas by configuration id; starting and draining ones by windows left."""

    running: Counts = dataclasses.field(default_factory=dict)
    starting: ByWindows = dataclasses.field(default_factory=dict)
    draining: ByWindows = dataclasses.field(default_factory=dict)
    spent: float = 0.0


@dataclasses.dataclass(frozen=True)
class Expected:
    """The fleet held during the window, and what happened to it."""

    running: Counts = dataclasses.field(default_factory=dict)
    starting: ByWindows = dataclasses.field(default_factory=dict)
    draining: ByWindows = dataclasses.field(default_factory=dict)
    granted: Counts = dataclasses.field(default_factory=dict)
    denied: Counts = dataclasses.field(default_factory=dict)
    lost: Counts = dataclasses.field(default_factory=dict)
    forced: int = 0
    fees: float = 0.0


@dataclasses.dataclass(frozen=True)
class Case:
    """One window. GPUs cost 1 USD per window; pools are at their caps unless `available` says otherwise."""

    name: str
    reason: str
    pools: list[dict[str, Any]]
    configurations: list[dict[str, Any]]
    before: Fleet
    target: Counts
    expected: Expected
    slots: list[str] | None = None
    window: int = 5
    available: Counts = dataclasses.field(default_factory=dict)
    price_factor: float = 1.0
    budget: dict[str, Any] | None = None

    def build(self) -> tuple[Instance, Scenario]:
        """Return the instance and the scenario."""
        instance = make_instance(self.pools, self.configurations, self.slots, budget=self.budget)
        row = [self.available.get(p.id, p.cap_gpus) for p in instance.pools]
        factor = [[self.price_factor] * instance.num_pools]
        return instance, nominal_scenario(instance, available_gpus=[row], price_factor=factor)


def conf(name: str, start: int = 1, fee: float = 0.0, **uses: int) -> dict[str, Any]:
    """Return a configuration that takes one GPU of pool p unless `uses` says otherwise."""
    return configuration(name, uses or {"p": 1}, startup_windows=start, startup_usd=fee)


def member(name: str, start: int = 1, fee: float = 0.0, **uses: int) -> dict[str, Any]:
    """Return a configuration for an exclusive slot."""
    return {**conf(name, start, fee, **uses), "max_replicas": 1}


def hourly(usd_per_window: float) -> dict[str, Any]:
    """Return a rate budget of so much per window of five minutes."""
    return {"kind": "rate", "usd": usd_per_window * 12}


def purse(usd: float) -> dict[str, Any]:
    """Return a pool budget."""
    return {"kind": "pool", "usd": usd}


A, B, C = conf("A"), conf("B"), conf("C")
AB = ["A|B"]
P1, P2, P3, P4 = ([pool("p", cap)] for cap in (1, 2, 3, 4))

CASES = [
    # -- growth
    Case(
        "grow",
        "each missing replica is granted and starts",
        P4,
        [A],
        Fleet({"A": 1}),
        {"A": 3},
        Expected({"A": 1}, {"A": {1: 2}}, granted={"A": 2}),
    ),
    Case(
        "grow-at-once",
        "without start-up windows a grant serves in its window",
        P4,
        [conf("A", start=0, fee=2.0)],
        Fleet({"A": 1}),
        {"A": 2},
        Expected({"A": 2}, granted={"A": 1}, fees=2.0),
    ),
    Case(
        "grow-beyond-pool",
        "what does not fit is denied, what fits is granted",
        P3,
        [A],
        Fleet({"A": 1}),
        {"A": 4},
        Expected({"A": 1}, {"A": {1: 2}}, granted={"A": 2}, denied={"A": 1}),
    ),
    Case(
        "grow-denied-counts-all",
        "the remaining replicas of a slot are denied with the first one",
        P1,
        [A],
        Fleet({"A": 1}),
        {"A": 4},
        Expected({"A": 1}, denied={"A": 3}),
    ),
    Case(
        "starting-counts-as-present",
        "what is already starting is not granted again",
        P4,
        [conf("A", start=2, fee=1.0)],
        Fleet({"A": 1}, {"A": {1: 1, 2: 1}}),
        {"A": 4},
        Expected({"A": 1}, {"A": {1: 1, 2: 2}}, granted={"A": 1}, fees=1.0),
    ),
    Case(
        "zero-cap",
        "a pool without GPUs grants nothing",
        [pool("p", 0)],
        [A],
        Fleet(),
        {"A": 1},
        Expected(denied={"A": 1}),
    ),
    Case(
        "slots-in-order",
        "the first slot takes what it wants, the next one the rest",
        P3,
        [A, B],
        Fleet(),
        {"A": 2, "B": 2},
        Expected({}, {"A": {1: 2}, "B": {1: 1}}, granted={"A": 2, "B": 1}, denied={"B": 1}),
    ),
    Case(
        "slot-order-is-not-file-order",
        "slots, not the list of configurations, decide who is first",
        P3,
        [A, B],
        Fleet(),
        {"A": 2, "B": 2},
        Expected({}, {"A": {1: 1}, "B": {1: 2}}, granted={"A": 1, "B": 2}, denied={"A": 1}),
        slots=["B", "A"],
    ),
    Case(
        "denied-does-not-stop-the-next",
        "a big one that does not fit leaves the room to a small one behind it",
        [pool("p", 4)],
        [conf("A", p=4), B],
        Fleet(),
        {"A": 1, "B": 2},
        Expected({}, {"B": {1: 2}}, granted={"B": 2}, denied={"A": 1}),
        available={"p": 2},
    ),
    # -- shrinking
    Case(
        "shrink",
        "nothing was granted, so nothing has to be waited for: released at once",
        P4,
        [A],
        Fleet({"A": 3}),
        {"A": 1},
        Expected({"A": 1}),
    ),
    Case(
        "shrink-cancels-starting",
        "starting replicas go before running ones",
        P4,
        [conf("A", start=2)],
        Fleet({"A": 2}, {"A": {1: 1, 2: 1}}),
        {"A": 2},
        Expected({"A": 2}),
    ),
    Case(
        "shrink-cancels-longest-wait",
        "of the starting ones the one with most windows left goes first",
        P4,
        [conf("A", start=2)],
        Fleet({"A": 2}, {"A": {1: 1, 2: 1}}),
        {"A": 3},
        Expected({"A": 2}, {"A": {1: 1}}),
    ),
    Case(
        "shrink-both",
        "all starting ones are cancelled before a running one leaves",
        P4,
        [A],
        Fleet({"A": 2}, {"A": {1: 1}}),
        {"A": 1},
        Expected({"A": 1}),
    ),
    Case(
        "cancelled-frees-room-at-once",
        "a cancelled replica no longer holds its GPU when others are granted",
        P1,
        [A, B],
        Fleet({}, {"A": {1: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}),
    ),
    # -- make before break
    Case(
        "make-before-break",
        "the leaver serves until the newcomer does",
        P4,
        [A, conf("B", start=2)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({}, {"B": {2: 1}}, {"A": {2: 1}}, granted={"B": 1}),
    ),
    Case(
        "drain-for-the-slowest",
        "leavers wait for the slowest of all grants of the window",
        P4,
        [A, B, conf("C", start=3)],
        Fleet({"A": 1}),
        {"B": 1, "C": 1},
        Expected({}, {"B": {1: 1}, "C": {3: 1}}, {"A": {3: 1}}, granted={"B": 1, "C": 1}),
    ),
    Case(
        "shrink-beside-growth",
        "any grant makes all leavers drain, also of slots that have nothing to do with it",
        P4,
        [A, B],
        Fleet({"A": 3}),
        {"A": 1, "B": 1},
        Expected({"A": 1}, {"B": {1: 1}}, {"A": {1: 2}}, granted={"B": 1}),
    ),
    Case(
        "immediate-grant-releases",
        "a newcomer that serves at once needs no draining",
        P4,
        [A, conf("B", start=0)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({"B": 1}, granted={"B": 1}),
    ),
    Case(
        "old-drains-keep-their-windows",
        "only replicas that leave now get this window's wait",
        P4,
        [conf("A", start=3), B, C],
        Fleet({"C": 1}, {}, {"A": {3: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, {"A": {3: 1}, "C": {1: 1}}, granted={"B": 1}),
    ),
    Case(
        "drains-go-on-without-grants",
        "earlier drains are not released early",
        P4,
        [conf("A", start=2), B],
        Fleet({"B": 1}, {}, {"A": {2: 1}}),
        {"B": 1},
        Expected({"B": 1}, {}, {"A": {2: 1}}),
    ),
    # -- taking back
    Case(
        "take-back-longest",
        "the drainer with most windows left returns, free of charge",
        P4,
        [conf("A", start=2, fee=5.0)],
        Fleet({"A": 1}, {}, {"A": {1: 1, 2: 1}}),
        {"A": 2},
        Expected({"A": 2}, {}, {"A": {1: 1}}),
    ),
    Case(
        "take-back-then-grant",
        "only what taking back does not cover is granted and paid",
        P4,
        [conf("A", fee=5.0)],
        Fleet({}, {}, {"A": {1: 1}}),
        {"A": 2},
        Expected({"A": 1}, {"A": {1: 1}}, granted={"A": 1}, fees=5.0),
    ),
    Case(
        "take-back-in-a-full-pool",
        "the drainer holds its GPU already, so no limit is asked",
        P1,
        [A],
        Fleet({}, {}, {"A": {1: 1}}),
        {"A": 1},
        Expected({"A": 1}),
    ),
    # -- exclusive groups
    Case(
        "group-keeps",
        "the same option again changes nothing",
        P2,
        [member("A"), member("B")],
        Fleet({"A": 1}),
        {"A": 1},
        Expected({"A": 1}),
        slots=AB,
    ),
    Case(
        "group-switch-with-room",
        "exclusivity binds targets, not draining replicas",
        P2,
        [member("A"), member("B", start=2)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({}, {"B": {2: 1}}, {"A": {2: 1}}, granted={"B": 1}),
        slots=AB,
    ),
    Case(
        "group-switch-without-room",
        "the old one gives way before the new one serves: a forced outage",
        P1,
        [member("A"), member("B", start=2)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({}, {"B": {2: 1}}, granted={"B": 1}, forced=1),
        slots=AB,
    ),
    Case(
        "group-switch-at-once",
        "no outage where the new one serves in the same window",
        P1,
        [member("A"), member("B", start=0)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({"B": 1}, granted={"B": 1}),
        slots=AB,
    ),
    Case(
        "group-denied-keeps-old",
        "even with the old one gone the new one would not fit, so the old one stays",
        [pool("p", 2)],
        [member("A"), member("B", p=2)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({"A": 1}, denied={"B": 1}),
        slots=AB,
        available={"p": 1},
    ),
    Case(
        "group-pending-cancelled",
        "the switch went through, so the half-started old one is dropped without refund",
        P4,
        [member("A", start=3, fee=1.0), member("B", fee=2.0)],
        Fleet({}, {"A": {2: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}, fees=2.0),
        slots=AB,
    ),
    Case(
        "group-pending-returns",
        "the switch was denied, so the old one goes on starting with the windows it had",
        [pool("p", 4)],
        [member("A", start=3), member("B", p=4)],
        Fleet({}, {"A": {2: 1}}),
        {"B": 1},
        Expected({}, {"A": {2: 1}}, denied={"B": 1}),
        slots=AB,
        available={"p": 3},
    ),
    Case(
        "group-pending-does-not-give-way",
        "only draining and leaving replicas give way; a pending one holds its GPU until it is settled",
        P1,
        [member("A", start=3), member("B")],
        Fleet({}, {"A": {2: 1}}),
        {"B": 1},
        Expected({}, {"A": {2: 1}}, denied={"B": 1}),
        slots=AB,
    ),
    Case(
        "group-off-cancels",
        "off is no other configuration: nothing is pending, and the next slot has the room",
        P1,
        [member("A"), member("B"), C],
        Fleet({}, {"A": {1: 1}}),
        {"C": 1},
        Expected({}, {"C": {1: 1}}, granted={"C": 1}),
        slots=["A|B", "C"],
    ),
    Case(
        "group-off-releases",
        "switched off with nothing granted: released at once",
        P1,
        [member("A"), member("B")],
        Fleet({"A": 1}),
        {},
        Expected(),
        slots=AB,
    ),
    Case(
        "group-switch-back",
        "the old option is still draining: it returns, and the new one's start is cancelled",
        P2,
        [member("A", fee=3.0), member("B")],
        Fleet({}, {"B": {1: 1}}, {"A": {1: 1}}),
        {"A": 1},
        Expected({"A": 1}),
        slots=AB,
    ),
    Case(
        "group-switch-back-late",
        "taking back is no grant, so the option that leaves is released at once",
        P2,
        [member("A", start=2), member("B")],
        Fleet({"B": 1}, {}, {"A": {2: 1}}),
        {"A": 1},
        Expected({"A": 1}),
        slots=AB,
    ),
    Case(
        "group-third-option",
        "an older drainer of the group keeps draining beside the new leaver",
        P4,
        [member("A", start=3), member("B"), member("C")],
        Fleet({"B": 1}, {}, {"A": {3: 1}}),
        {"C": 1},
        Expected({}, {"C": {1: 1}}, {"A": {3: 1}, "B": {1: 1}}, granted={"C": 1}),
        slots=["A|B|C"],
    ),
    Case(
        "earlier-slot-takes-the-leaver",
        "what leaves in a later group gives way to an earlier slot; the group then has neither old nor new",
        P1,
        [C, member("A"), member("B")],
        Fleet({"A": 1}),
        {"C": 1, "B": 1},
        Expected({}, {"C": {1: 1}}, granted={"C": 1}, denied={"B": 1}, forced=1),
        slots=["C", "A|B"],
    ),
    Case(
        "kept-old-holds-its-room",
        "once the old option stays, later slots cannot have its GPU",
        [pool("p", 2)],
        [member("A"), member("B", p=2), C],
        Fleet({"A": 1}),
        {"B": 1, "C": 1},
        Expected({"A": 1}, denied={"B": 1, "C": 1}),
        slots=["A|B", "C"],
        available={"p": 1},
    ),
    Case(
        "group-old-lost-and-new-denied",
        "a leaver that availability took cannot come back",
        P1,
        [member("A"), member("B")],
        Fleet({"A": 1}),
        {"B": 1},
        Expected(lost={"A": 1}, denied={"B": 1}),
        slots=AB,
        available={"p": 0},
    ),
    # -- availability drops
    Case(
        "drop-takes-draining-first",
        "a drainer goes before starting and running ones, even of the first slot",
        P3,
        [C, A, B],
        Fleet({"A": 1}, {"B": {1: 1}}, {"C": {1: 1}}),
        {"A": 1, "B": 1},
        Expected({"A": 1}, {"B": {1: 1}}, lost={"C": 1}),
        available={"p": 2},
    ),
    Case(
        "drop-takes-starting-next",
        "a starting one goes before a running one of a later slot",
        P2,
        [B, A],
        Fleet({"A": 1}, {"B": {1: 1}}),
        {"A": 1, "B": 1},
        Expected({"A": 1}, lost={"B": 1}, denied={"B": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-takes-the-last-slot",
        "among running ones the last slot loses",
        P2,
        [A, B],
        Fleet({"A": 1, "B": 1}),
        {"A": 1, "B": 1},
        Expected({"A": 1}, lost={"B": 1}, denied={"B": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-takes-longest-start",
        "among starting ones of a configuration the one with most windows left is lost",
        P2,
        [conf("A", start=3)],
        Fleet({}, {"A": {1: 1, 3: 1}}),
        {"A": 2},
        Expected({}, {"A": {1: 1}}, lost={"A": 1}, denied={"A": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-takes-shortest-drain",
        "among drainers the one that would be released first is lost",
        P2,
        [conf("A", start=3)],
        Fleet({}, {}, {"A": {1: 1, 3: 1}}),
        {},
        Expected({}, {}, {"A": {3: 1}}, lost={"A": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-takes-leaving-before-draining",
        "the leaver is lost, the drainer stays (otherwise the leaver would be released and none be left)",
        P2,
        [A],
        Fleet({"A": 1}, {}, {"A": {1: 1}}),
        {},
        Expected({}, {}, {"A": {1: 1}}, lost={"A": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-takes-the-last-drainer",
        "the last configuration counts before leaving or windows left",
        P2,
        [A, conf("B", start=3)],
        Fleet({"A": 1}, {}, {"B": {3: 1}}),
        {},
        Expected(lost={"B": 1}),
        available={"p": 1},
    ),
    Case(
        "drop-counts-pending-as-starting",
        "pending and starting are one kind: the last configuration goes, the pending one stays and returns",
        P2,
        [member("A"), member("B"), C],
        Fleet({}, {"A": {1: 1}, "C": {1: 1}}),
        {"B": 1, "C": 1},
        Expected({}, {"A": {1: 1}}, lost={"C": 1}, denied={"B": 1, "C": 1}),
        slots=["A|B", "C"],
        available={"p": 1},
    ),
    Case(
        "drop-takes-pending",
        "a pending one goes before any running one",
        P2,
        [member("A"), member("B"), C],
        Fleet({"C": 1}, {"A": {1: 1}}),
        {"B": 1, "C": 1},
        Expected({"C": 1}, lost={"A": 1}, denied={"B": 1}),
        slots=["A|B", "C"],
        available={"p": 1},
    ),
    Case(
        "drop-to-nothing",
        "everything goes",
        P2,
        [A],
        Fleet({"A": 1}, {"A": {1: 1}}),
        {"A": 2},
        Expected(lost={"A": 2}, denied={"A": 2}),
        available={"p": 0},
    ),
    Case(
        "drop-by-nodes",
        "a replica of a whole node goes when one GPU of it is too many",
        [pool("p", 8, gpus_per_node=4)],
        [conf("A", p=4)],
        Fleet({"A": 2}),
        {"A": 2},
        Expected({"A": 1}, lost={"A": 1}, denied={"A": 1}),
        available={"p": 4},
    ),
    Case(
        "node-pool-grants-nodes",
        "two nodes hold two replicas of a node each",
        [pool("p", 8, gpus_per_node=4)],
        [conf("A", p=4)],
        Fleet(),
        {"A": 3},
        Expected({}, {"A": {1: 2}}, granted={"A": 2}, denied={"A": 1}),
    ),
    # -- replicas over two pools
    Case(
        "two-pools-need-both",
        "no room in the second pool is no room",
        [pool("p", 1), pool("q", 1)],
        [conf("A", p=1, q=1), conf("B", q=1)],
        Fleet({"B": 1}),
        {"A": 1, "B": 1},
        Expected({"B": 1}, denied={"A": 1}),
    ),
    Case(
        "two-pools-free-both",
        "losing a replica for one pool makes room in the other",
        [pool("p", 1), pool("q", 1)],
        [conf("A", p=1, q=1), conf("B", q=1)],
        Fleet({"A": 1}),
        {"A": 1, "B": 1},
        Expected({}, {"B": {1: 1}}, lost={"A": 1}, denied={"A": 1}, granted={"B": 1}),
        available={"p": 0},
    ),
    Case(
        "two-pools-one-loss-is-enough",
        "the loss in the first pool settles the second: the last slot keeps its replica",
        [pool("p", 1), pool("q", 2)],
        [conf("A", p=1, q=1), conf("B", q=1)],
        Fleet({"A": 1, "B": 1}),
        {"A": 1, "B": 1},
        Expected({"B": 1}, lost={"A": 1}, denied={"A": 1}),
        available={"p": 0, "q": 1},
    ),
    Case(
        "lost-and-granted-again",
        "X was lost for p before A was lost for q; p has room again, so X is granted anew and pays",
        [pool("p", 2), pool("q", 1)],
        [conf("A", p=1, q=1), conf("X", fee=2.0)],
        Fleet({"A": 1, "X": 1}),
        {"A": 1, "X": 1},
        Expected({}, {"X": {1: 1}}, lost={"A": 1, "X": 1}, denied={"A": 1}, granted={"X": 1}, fees=2.0),
        available={"p": 1, "q": 0},
    ),
    # -- giving way
    Case(
        "drainer-gives-way",
        "an old drainer makes room, and counts as an outage",
        P1,
        [conf("A", start=2), B],
        Fleet({}, {}, {"A": {2: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}, forced=1),
    ),
    Case(
        "last-drainer-gives-way",
        "the last configuration gives way first",
        P2,
        [A, B, C],
        Fleet({}, {}, {"A": {1: 1}, "B": {1: 1}}),
        {"C": 1},
        Expected({}, {"C": {1: 1}}, {"A": {1: 1}}, granted={"C": 1}, forced=1),
    ),
    Case(
        "last-counts-before-leaving",
        "a drainer of a later configuration gives way before a leaver of an earlier one",
        P2,
        [A, conf("B", start=3), C],
        Fleet({"A": 1}, {}, {"B": {3: 1}}),
        {"C": 1},
        Expected({}, {"C": {1: 1}}, {"A": {1: 1}}, granted={"C": 1}, forced=1),
    ),
    Case(
        "leaver-gives-way-first",
        "within a configuration the leaver goes before the drainer",
        P2,
        [conf("A", start=3), B],
        Fleet({"A": 1}, {}, {"A": {3: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, {"A": {3: 1}}, granted={"B": 1}, forced=1),
    ),
    Case(
        "shortest-drain-gives-way-first",
        "within a configuration the drainer with fewest windows left goes first",
        P2,
        [conf("A", start=3), B],
        Fleet({}, {}, {"A": {1: 1, 3: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, {"A": {3: 1}}, granted={"B": 1}, forced=1),
    ),
    Case(
        "giving-way-in-vain",
        "not enough drainers: they are put back, no outage",
        P2,
        [A, C, conf("B", p=2)],
        Fleet({"C": 1}, {}, {"A": {1: 1}}),
        {"B": 1, "C": 1},
        Expected({"C": 1}, {}, {"A": {1: 1}}, denied={"B": 1}),
    ),
    Case(
        "two-drainers-give-way",
        "one grant may need several: each is an outage",
        P2,
        [A, conf("B", p=2)],
        Fleet({}, {}, {"A": {1: 2}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}, forced=2),
    ),
    Case(
        "give-way-in-two-pools",
        "each violated pool in turn: one drainer of each goes",
        [pool("p", 1), pool("q", 1)],
        [A, conf("D", q=1), conf("B", p=1, q=1)],
        Fleet({}, {}, {"A": {1: 1}, "D": {1: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}, forced=2),
    ),
    Case(
        "give-way-spares-other-pools",
        "a drainer that does not use the violated pool is left alone",
        [pool("p", 1), pool("q", 1)],
        [A, B, conf("D", q=1)],
        Fleet({}, {}, {"A": {1: 1}, "D": {1: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, {"D": {1: 1}}, granted={"B": 1}, forced=1),
    ),
    # -- budgets
    Case(
        "rate-denies",
        "the limit itself is still allowed, one more is not",
        P4,
        [A],
        Fleet({"A": 1}),
        {"A": 3},
        Expected({"A": 1}, {"A": {1: 1}}, granted={"A": 1}, denied={"A": 1}),
        budget=hourly(2.0),
    ),
    Case(
        "rate-round-off",
        "three times 0.1 USD fit into 0.3 USD",
        P4,
        [A],
        Fleet(),
        {"A": 4},
        Expected({}, {"A": {1: 3}}, granted={"A": 3}, denied={"A": 1}),
        price_factor=0.1,
        budget=hourly(0.3),
    ),
    Case(
        "rate-price-rise",
        "dearer GPUs cost a replica",
        P4,
        [A],
        Fleet({"A": 2}),
        {"A": 2},
        Expected({"A": 1}, lost={"A": 1}, denied={"A": 1}),
        price_factor=1.5,
        budget=hourly(2.0),
    ),
    Case(
        "rate-counts-draining",
        "a drainer is paid for, so it is the first to go",
        P4,
        [A, B],
        Fleet({"A": 1}, {"A": {1: 1}}, {"B": {1: 1}}),
        {"A": 2},
        Expected({"A": 1}, {"A": {1: 1}}, lost={"B": 1}),
        budget=hourly(2.0),
    ),
    Case(
        "rate-spares-free-replicas",
        "removing what costs nothing would not help",
        [pool("p", 2), pool("f", 2, price_usd_per_gpu_h=0.0)],
        [A, conf("F", f=1)],
        Fleet({"A": 1, "F": 1}),
        {"A": 1, "F": 2},
        Expected({"F": 1}, {"F": {1: 1}}, lost={"A": 1}, denied={"A": 1}, granted={"F": 1}),
        budget=hourly(1e-6),
    ),
    Case(
        "rate-leaves-fees-out",
        "a fee does not count against a rate",
        P4,
        [conf("A", fee=100.0)],
        Fleet({"A": 1}),
        {"A": 2},
        Expected({"A": 1}, {"A": {1: 1}}, granted={"A": 1}, fees=100.0),
        budget=hourly(2.0),
    ),
    Case(
        "rate-gives-way",
        "GPUs are there, money is not: the leaver makes room in the budget",
        P4,
        [A, B],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, granted={"B": 1}, forced=1),
        budget=hourly(1.0),
    ),
    Case(
        "rate-gives-way-but-not-free-ones",
        "a free drainer of the last slot is passed over",
        [pool("p", 4), pool("f", 1, price_usd_per_gpu_h=0.0)],
        [A, B, conf("F", f=1)],
        Fleet({"A": 1}, {}, {"F": {1: 1}}),
        {"B": 1},
        Expected({}, {"B": {1: 1}}, {"F": {1: 1}}, granted={"B": 1}, forced=1),
        budget=hourly(1.0),
    ),
    Case(
        "model-storage-counts",
        "12 USD an hour of storage doubles what a replica costs to hold",
        P4,
        [{**conf("A"), "model_storage_usd_per_h": 12.0}],
        Fleet({"A": 1}),
        {"A": 2},
        Expected({"A": 1}, denied={"A": 1}),
        budget=hourly(3.0),
    ),
    Case(
        "purse-denies",
        "one USD is left: enough to hold one replica",
        P4,
        [A],
        Fleet({"A": 1}, spent=9.0),
        {"A": 2},
        Expected({"A": 1}, denied={"A": 1}),
        budget=purse(10.0),
    ),
    Case(
        "purse-counts-the-fee",
        "2 to hold and 1.5 to start exceed the 3 that are left",
        P4,
        [conf("A", fee=1.5)],
        Fleet({"A": 1}, spent=7.0),
        {"A": 2},
        Expected({"A": 1}, denied={"A": 1}),
        budget=purse(10.0),
    ),
    Case(
        "purse-allows-the-fee",
        "2 to hold and 1 to start are just the 3 that are left",
        P4,
        [conf("A", fee=1.0)],
        Fleet({"A": 1}, spent=7.0),
        {"A": 2},
        Expected({"A": 1}, {"A": {1: 1}}, granted={"A": 1}, fees=1.0),
        budget=purse(10.0),
    ),
    Case(
        "purse-adds-up-fees",
        "every grant of the window takes 1 to hold and 1 to start: three of them spend 6",
        P4,
        [conf("A", fee=1.0)],
        Fleet(),
        {"A": 4},
        Expected({}, {"A": {1: 3}}, granted={"A": 3}, denied={"A": 1}, fees=3.0),
        budget=purse(6.0),
    ),
    Case(
        "purse-counts-the-leaver",
        "a leaver is held until (e): with 2 left it gives way although it would have been released unpaid",
        P4,
        [A, conf("B", start=0, fee=1.0)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({"B": 1}, granted={"B": 1}, fees=1.0),
        budget=purse(2.0),
    ),
    Case(
        "purse-empty",
        "when it is spent, replicas stop and nothing is granted",
        P4,
        [A],
        Fleet({"A": 2}, spent=10.0),
        {"A": 2},
        Expected(lost={"A": 2}, denied={"A": 2}),
        budget=purse(10.0),
    ),
    Case(
        "purse-free-replicas-go-on",
        "an empty purse still holds what is free",
        [pool("f", 2, price_usd_per_gpu_h=0.0)],
        [conf("F", f=1)],
        Fleet({"F": 1}, spent=10.0),
        {"F": 2},
        Expected({"F": 1}, {"F": {1: 1}}, granted={"F": 1}),
        budget=purse(10.0),
    ),
    # -- the first window
    Case(
        "first-window-serves-at-once",
        "grants of window 0 run, and pay their fees",
        P4,
        [conf("A", start=3, fee=1.0)],
        Fleet(),
        {"A": 2},
        Expected({"A": 2}, granted={"A": 2}, fees=2.0),
        window=0,
    ),
    Case(
        "first-window-gives-way-without-outage",
        "the new option serves at once, so the nominal one gave way without an outage",
        P1,
        [member("A"), member("B", start=3)],
        Fleet({"A": 1}),
        {"B": 1},
        Expected({"B": 1}, granted={"B": 1}),
        slots=AB,
        window=0,
    ),
    Case(
        "first-window-releases",
        "nothing has to be waited for, so leavers are released",
        P4,
        [A, conf("B", start=3)],
        Fleet({"A": 2}),
        {"B": 1},
        Expected({"B": 1}, granted={"B": 1}),
        window=0,
    ),
    Case(
        "first-window-drop",
        "availability and denials hold in window 0 as in any other",
        P2,
        [A],
        Fleet({"A": 2}),
        {"A": 2},
        Expected({"A": 1}, lost={"A": 1}, denied={"A": 1}),
        available={"p": 1},
        window=0,
    ),
]


# -- implementations


def admit_by_reference(case: Case, instance: Instance, scenario: Scenario) -> Expected:
    """Run the reference evaluator's admission."""
    names = [c.id for c in instance.configurations]
    windows = max(1, *(c.startup_windows for c in instance.configurations))

    def table(counts: ByWindows) -> list[list[int]]:
        return [[counts.get(n, {}).get(k, 0) for k in range(1, windows + 1)] for n in names]

    before, target = case.before, [case.target.get(n, 0) for n in names]
    state = reference.FleetState(
        [before.running.get(n, 0) for n in names],
        table(before.starting),
        table(before.draining),
        before.spent,
    )
    got = reference.ReferenceEpisode(instance, scenario).admit(state, target, case.window)
    return Expected(
        _named(names, got.fleet.running),
        _named_by_windows(names, got.fleet.starting),
        _named_by_windows(names, got.fleet.draining),
        _named(names, got.granted),
        _named(names, got.denied),
        _named(names, got.lost),
        got.forced_outage,
        got.startup_usd,
    )


#: Product code calls admission by a symbol, from other kernels only.
ADMIT = jit(admission.admit)


def admit_by_fast_path(case: Case, instance: Instance, scenario: Scenario) -> Expected:
    """Run the fast path's admission."""
    names, before = [c.id for c in instance.configurations], case.before
    model = WindowModel(instance)
    state, conditions = model.initial_state(), Conditions.of(scenario, case.window)
    state.window, state.spent_usd = case.window, before.spent
    for c, name in enumerate(names):
        state.replicas[c] = 0
        state.running[c] = before.running.get(name, 0)
        for k in range(state.longest):
            state.starting[c, k] = before.starting.get(name, {}).get(k + 1, 0)
            state.draining[c, k] = before.draining.get(name, {}).get(k + 1, 0)
    target = np.array([case.target.get(name, 0) for name in names])
    problem, moves = model.problem, np.zeros((admission.NUM_MOVES, len(names)), dtype=np.int64)
    forced_outage, fees_usd = ADMIT(
        target,
        state.replicas,
        moves,
        problem.order,
        problem.slot_start,
        problem.slot_exclusive,
        problem.gpu_use,
        conditions.available_gpus.copy(),
        np.zeros(instance.num_pools, dtype=np.int64),
        model.hold_usd(conditions.price_factor),
        problem.startup_usd,
        problem.startup_windows,
        case.window == 0,
        model.budget_usd(case.before.spent),
        instance.budget is not None and instance.budget.kind == "pool",
    )
    return Expected(
        _named(names, state.running),
        _named_by_windows(names, state.starting),
        _named_by_windows(names, state.draining),
        _named(names, moves[admission.GRANTED]),
        _named(names, moves[admission.DENIED]),
        _named(names, moves[admission.LOST]),
        forced_outage,
        fees_usd,
    )


IMPLEMENTATIONS: dict[str, Callable[[Case, Instance, Scenario], Expected]] = {
    "reference": admit_by_reference,
    "fast": admit_by_fast_path,
}


def _named(names: list[str], counts: Any) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def _named_by_windows(names: list[str], table: Any) -> dict[str, dict[int, int]]:
    rows = {n: {k: int(v) for k, v in enumerate(row, 1) if v} for n, row in zip(names, table, strict=True)}
    return {name: row for name, row in rows.items() if row}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_admission(case: Case, implementation: str) -> None:
    """Every count is as worked out by hand."""
    instance, scenario = case.build()
    got = IMPLEMENTATIONS[implementation](case, instance, scenario)
    assert got.fees == pytest.approx(case.expected.fees), case.reason
    assert dataclasses.replace(got, fees=case.expected.fees) == case.expected, case.reason


def test_names_are_unique() -> None:
    """A name stands for one case."""
    assert len({case.name for case in CASES}) == len(CASES)
