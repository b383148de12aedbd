"""State what an instance was made of: objectives asked for, lengths measured, days assumed, commitments.

Sentences for people stand in the instance's ``provenance``. They are made from these facts, and no code reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fleetgym.files import quantities as q
from fleetgym.files.errors import DataError
from fleetgym.files.schema import ID, Checked, Choice, Integer, Line, ListOf, Nested, Opaque, documented, spec

WITH_PERCENTILES = ("ttft", "tpot", "e2e")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Slo(Checked):
    """What a workload is promised, and optionally what breaking it costs.

    Examples
    --------
    >>> Slo(ttft=-1)
    Traceback (most recent call last):
    ...
    fleetgym.files.errors.DataError: Slo.ttft: expected a number from 1e-6 to 1e7 s, got -1
    """

    ttft: float = spec(q.SLO_S, 2.0, doc="to the first token")
    ttft_percentile: float | None = spec(
        q.PERCENTILE.or_null(), None, doc="of the requests keep ttft; null: as many as late_usd is worth"
    )
    tpot: float | None = spec(q.SLO_S.or_null(), None, doc="per output token after the first; null: any")
    tpot_percentile: float | None = spec(
        q.PERCENTILE.or_null(), None, doc="of the requests keep tpot; null: their mean does"
    )
    e2e: float | None = spec(q.SLO_S.or_null(), None, doc="from arrival to the last token; null: any")
    e2e_percentile: float | None = spec(
        q.PERCENTILE.or_null(), None, doc="of the requests keep e2e; null: their mean does"
    )
    delay: float | None = spec(
        q.SLO_S.or_null(),
        None,
        doc="mean of a request in service; null: e2e, or 1.3 times the median of good configurations",
    )
    error: float = spec(q.POSITIVE_SHARE, 0.05, doc="mean share of wrong answers")
    unserved_usd: float | None = spec(
        q.PENALTY_USD.or_null(), None, doc="per request; null: from the rent, see `import_trace`"
    )
    late_usd: float | None = spec(
        q.PENALTY_USD.or_null(),
        None,
        doc="per request whose first token is late; null: a third of unserved_usd",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in WITH_PERCENTILES:
            if getattr(self, name) is None and getattr(self, f"{name}_percentile") is not None:
                raise DataError(f"a percentile needs a bound: {name}", f"Slo.{name}_percentile")
        if self.e2e is not None and self.e2e <= self.ttft:
            raise DataError(
                f"expected more than ttft ({self.ttft:g} s), which is a part of it, got {self.e2e:g} s",
                "Slo.e2e",
            )

    @property
    def words(self) -> str:
        """The objectives without prices, as on the command line.

        Examples
        --------
        >>> Slo(ttft=0.5, ttft_percentile=95, tpot=0.05).words
        'ttft.p95=0.5s,tpot=0.05s,error=0.05'
        """
        found = []
        for name in (*WITH_PERCENTILES, "delay", "error"):
            value, percentile = getattr(self, name), getattr(self, f"{name}_percentile", None)
            if value is not None:
                which = "" if percentile is None else f".p{percentile:g}"
                found.append(f"{name}{which}={value:.12g}{'' if name == 'error' else 's'}")
        return ",".join(found)

    @property
    def missed_at_most(self) -> float | None:
        """The share of requests whose first token may be late; None where no percentile was asked for."""
        return None if self.ttft_percentile is None else 1.0 - self.ttft_percentile / 100.0


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthQuantile(Checked):
    """A point of the distribution of input and output tokens together."""

    tokens: int = spec(Integer(0, 10**9))
    share: float = spec(q.SHARE, doc="of the requests that are no longer")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthFacts(Checked):
    """Token lengths as measured in the trace, over all workloads."""

    quantiles: tuple[LengthQuantile, ...] = spec(ListOf(Nested(LengthQuantile), 1, 1000), doc="ascending")
    input_share: float = spec(q.SHARE, doc="of all tokens that are input")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredStep(Checked):
    """A deployment whose step times were measured; the others follow the roofline model."""

    model: str = spec(ID)
    gpu: str = spec(ID)
    precision: str = spec(ID)
    tensor_parallel: int = spec(Integer(1, 1024))


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineLimit(Checked):
    """The concurrency that an engine must be told, so that it keeps limits on TPOT and end-to-end latency."""

    configuration: str = spec(ID, doc="id of a configuration")
    requests: int = spec(Integer(1, 10**6), doc="that one engine serves at once")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaMemory(Checked):
    """The GPUs' memory for the KV cache of one replica; `kv_capacity_gb` counts as many whole mean requests as fit."""

    configuration: str = spec(ID, doc="id of a configuration")
    gb: float = spec(q.GB, doc="beside weights and reserve")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Commitment(Checked):
    """For how long a reserved pool is paid."""

    pool: str = spec(ID, doc="id of a pool")
    days: int | None = spec(Integer(1, 10**5, nullable=True), doc="null: no term was given")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Calendar(Checked):
    """How the trace became the days of the history, and the process of generated days."""

    history: str = spec(
        Choice(("measured", "drawn", "stretched", "stated")),
        doc="drawn and stretched: the trace is shorter than a day, so days of the history differ by chance; stated: "
        "there is no trace, but target rates",
    )
    days: tuple[str, ...] = spec(ListOf(Line(1, 40), 0, 1000), doc="calendar days that the trace covers")
    fitted: tuple[str, ...] = spec(ListOf(Line(), 0, 100), doc="parts of the process that the trace tells")
    assumed: tuple[str, ...] = spec(ListOf(Line(), 0, 100), doc="parts of the process that are assumed")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts(Checked):
    """What an instance was made of, as far as programs need to know."""

    slos: tuple[Slo, ...] = spec(ListOf(Nested(Slo), 1, 256), doc="asked for, by workload")
    calendar: Calendar | None = spec(Nested(Calendar, nullable=True), None)
    lengths: LengthFacts | None = spec(Nested(LengthFacts, nullable=True), None)
    measured_steps: tuple[MeasuredStep, ...] = spec(ListOf(Nested(MeasuredStep)), ())
    penalty: str = spec(
        Line(), "", doc="what an unserved request costs where slos do not say; empty: not told", sparse=True
    )
    coefficients: int = spec(Integer(1, 1000), 1, doc="version of the roofline's constants")
    extrapolated: tuple[str, ...] = spec(
        ListOf(ID), (), doc="GPU types of which nothing was measured: another's slow-downs stand in"
    )
    engine_limits: tuple[EngineLimit, ...] = spec(
        ListOf(Nested(EngineLimit), 0, 4096), (), doc="configurations without one are limited by memory"
    )
    memory: tuple[ReplicaMemory, ...] = spec(ListOf(Nested(ReplicaMemory), 0, 4096), ())
    commitments: tuple[Commitment, ...] = spec(ListOf(Nested(Commitment), 0, 256), ())
    recipe: Mapping[str, Any] | None = spec(
        Opaque(nullable=True),
        None,
        doc="what configurations and penalties were made of, a `fleetgym.capacity.traces.recipe.Recipe`",
        sparse=True,
    )

    def engine_limit(self, configuration: str) -> int | None:
        """Return the requests that an engine may serve at once; None where memory alone is the limit."""
        found = {limit.configuration: limit.requests for limit in self.engine_limits}
        return found.get(configuration)

    def memory_gb(self, configuration: str) -> float | None:
        """Return the KV memory of a replica's GPUs; None where nothing is stated."""
        return {each.configuration: each.gb for each in self.memory}.get(configuration)

    def commitment_days(self, pool: str) -> int | None:
        """Return for how many days a reserved pool is paid; None where no term was given."""
        return {each.pool: each.days for each in self.commitments}.get(pool)
