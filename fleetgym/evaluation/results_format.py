"""Define the contents of a results file: its header, and each episode's actions, costs, failure and timing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fleetgym.evaluation.changes import Changes
from fleetgym.evaluation.isolation.rules import FAILURE_KINDS, Rules
from fleetgym.files import quantities as q
from fleetgym.files.documents import canonical_json
from fleetgym.files.errors import DataError
from fleetgym.files.schema import (
    NAME,
    SHA256,
    Choice,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Nested,
    Text,
    spec,
    to_jsonable,
)

RESULTS_FORMAT = "fleetgym-results-1"
#: The same without what each window cost, which a replay of the actions recomputes; as in submissions.
BRIEF_FORMAT = "fleetgym-results-2"


_MESSAGE = Text(r"\A[^\x00-\x1f]{0,300}\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """The facts of an instance that a results file needs to be checked alone."""

    content_hash: str = spec(SHA256)
    family: str = spec(NAME)
    num_windows: int = spec(Integer(1, 2016))
    options: tuple[int, ...] = spec(ListOf(Integer(1), 1), doc="number of options of each slot")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a results file."""

    format: str = spec(Choice((RESULTS_FORMAT, BRIEF_FORMAT)))
    version: str = spec(Text(r"\A[0-9A-Za-z.+-]{1,40}\Z"), doc="of fleetgym")
    suite: str = spec(NAME)
    num_jobs: int = spec(Integer(1), doc="episodes of the complete file")
    jobs_hash: str = spec(SHA256, doc="SHA-256 of the canonical list of [agent, instance, scenario, seed]")
    instances: Mapping[str, InstanceFacts] = spec(MapOf(Nested(InstanceFacts)))
    official: Rules | None = spec(
        Nested(Rules), default=None, doc="of an official run; else the key is absent"
    )
    code_sha256: Mapping[str, str] | None = spec(
        MapOf(SHA256),
        default=None,
        doc="of each agent that did not come with fleetgym: its file, and what it uses of those beside",
    )
    folder_sha256: Mapping[str, str] | None = spec(
        MapOf(SHA256),
        default=None,
        doc="of those of them whose file lies in a folder of its own: all files there, which the agent may load",
    )
    in_process: bool | None = spec(
        Flag(),
        default=None,
        doc="whether third parties' agents played in the evaluator's own process; else the key is absent",
    )
    packages: Mapping[str, str] | None = spec(
        MapOf(Text(r"\A[0-9A-Za-z.+!-]{1,40}\Z")),
        default=None,
        doc="versions of the libraries on which the last bit of a result may depend",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Cost terms of an episode, USD; the same names as in the environment's info."""

    rental: float = spec(q.COST_USD)
    model_storage: float = spec(q.COST_USD)
    data_storage: float = spec(q.COST_USD)
    delay: float = spec(q.COST_USD)
    slo: float = spec(q.COST_USD)
    unserved: float = spec(q.COST_USD)
    late: float = spec(q.COST_USD)
    startup: float = spec(q.COST_USD)

    def total(self) -> float:
        """Return the sum of the terms."""
        return math.fsum(getattr(self, name) for name in COST_TERMS)


COST_TERMS = tuple(field.name for field in dataclasses.fields(Costs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why and when an agent failed; from this window on the empty fleet ran."""

    window: int = spec(Integer(0, 2015))
    kind: str = spec(Choice(FAILURE_KINDS))
    message: str = spec(_MESSAGE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """CPU seconds that an agent took; measured, so never a part of the results."""

    reset_cpu_s: float = spec(q.TAKEN_S)
    act_cpu_s: tuple[float, ...] = spec(
        ListOf(q.TAKEN_S), doc="per decision; of episodes that were kept, one number for all"
    )
    speed: float | None = spec(
        q.SPEED.or_null(), default=None, doc="official runs: reference CPU seconds per CPU second"
    )

    @property
    def acting_s(self) -> float:
        """CPU seconds of all decisions: of the reference machine if the speed is known."""
        return math.fsum(self.act_cpu_s) * (self.speed or 1.0)

    @property
    def total_s(self) -> float:
        """The same with `reset`."""
        return self.reset_cpu_s * (self.speed or 1.0) + self.acting_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """One agent's episode on one stored scenario: its actions and costs."""

    agent: str = spec(NAME)
    instance: str = spec(NAME)
    scenario: int = spec(Integer(), doc="number of the stored scenario")
    scenario_id: str = spec(NAME)
    seed: int = spec(q.SEED)
    actions: tuple[tuple[int, int, int], ...] = spec(
        Changes(),
        doc="[window, slot, option] where an option differs from the window before; 0 before the first",
    )
    costs: Costs = spec(Nested(Costs))
    cost_usd: float = spec(q.POSITIVE_COST_USD)
    cost_per_window_usd: tuple[float, ...] | None = spec(
        ListOf(q.COST_USD, 1), default=None, doc="the key is absent in files of the brief format"
    )
    miss_share: float = spec(q.SHARE, doc="of all requests: unserved, or first token too late")
    unserved_share: float = spec(q.SHARE, doc="of all requests")
    forced_outages: int = spec(Integer())
    denied: int = spec(Integer(), doc="replicas wanted and not granted, summed over windows")
    lost: int = spec(Integer(), doc="replicas taken away")
    failure: Failure | None = spec(Nested(Failure, nullable=True))
    budget_spent_at_window: int | None = spec(
        Integer(0, 2015),
        default=None,
        doc="official runs: from here on the running fleet stayed; the key is absent if that never happened",
    )
    timing: Timing | None = dataclasses.field(default=None, compare=False)  # not in the file: it varies

    @property
    def key(self) -> tuple[str, str, int, int]:
        """The job: agent, instance, scenario and seed."""
        return self.agent, self.instance, self.scenario, self.seed

    @property
    def task(self) -> tuple[str, int]:
        """Instance and scenario."""
        return self.instance, self.scenario

    def decisions(self, num_windows: int) -> int:
        """Return in how many windows the agent decided, before it failed or its budget was spent if it did."""
        ends = [] if self.failure is None else [self.failure.window]
        ends += [] if self.budget_spent_at_window is None else [self.budget_spent_at_window + 1]
        return min([num_windows, *ends])

    def to_line(self) -> str:
        """Return the episode's line of a results file; NaN and infinity are refused."""
        try:
            return canonical_json(stated(self)) + "\n"
        except ValueError:
            raise DataError(f"the episode {self.key} holds a number that is not finite") from None


def stated(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values, without keys that are None by default."""
    silent = {field.name for field in dataclasses.fields(value) if field.default is None}
    return {key: part for key, part in to_jsonable(value).items() if part is not None or key not in silent}
