"""Define workloads, rates and SLOs of the paper, and how much is simulated."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from fleetgym.capacity.studies.pools import PoolQueue, Slos
from fleetgym.capacity.studies.sizing import Demand, pool_queue
from fleetgym.hardware.performance.lengths import Lengths, published_totals
from fleetgym.hardware.performance.profiles import PROFILES, Profile

from .fleet_sim import TwoPools, size_two_pools

H100, A100 = PROFILES["H100-80GB"], PROFILES["A100-80GB"]
THRESHOLD = 4096


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    seeds: int
    requests: int
    many_seeds: int  # for Table 2


FULL, QUICK = Effort(20, 30_000, 40), Effort(10, 4_000, 10)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A workload at a rate with one SLO on the TTFT."""

    name: str
    rate_rps: float
    context: int
    ttft_s: float

    @property
    def breakpoints(self) -> tuple[tuple[int, float], ...]:
        """CDF of total tokens."""
        return published_totals()[self.name]

    @property
    def lengths(self) -> Lengths:
        """Law of lengths; what exceeds the context counts as just fitting, as in the paper's tool."""
        return _lengths(self.name, self.context)

    @property
    def slos(self) -> Slos:
        """The SLO."""
        return Slos(ttft_s=self.ttft_s)

    @property
    def demand(self) -> Demand:
        """For our sizing."""
        return Demand(lengths=self.lengths, rate_rps=self.rate_rps, slos=self.slos)

    def two_pools(self, short: Profile, long: Profile, threshold: int, **more: Any) -> TwoPools:
        """Return the tool's sizes of two pools, or of one where the threshold is the whole context."""
        return size_two_pools(
            self.breakpoints,
            self.rate_rps,
            threshold=threshold,
            short=short,
            long=long,
            most_tokens=self.context,
            slo_s=self.ttft_s,
            **more,
        )

    def queue(self, profile: Profile, above: int, up_to: int) -> PoolQueue:
        """Return the queue of the pool for a range of lengths."""
        found, _ = pool_queue(
            self.demand, profile, above=above, context_tokens=up_to, is_last=up_to == self.context
        )
        assert found is not None
        return found


@functools.cache
def _lengths(name: str, context: int) -> Lengths:
    return Lengths.from_totals(published_totals()[name], high=context)


LMSYS = Setting("lmsys", 100.0, 65536, 0.5)
AZURE = Setting("azure", 100.0, 8192, 0.5)
AGENT = Setting("agent-heavy", 20.0, 65536, 1.0)
