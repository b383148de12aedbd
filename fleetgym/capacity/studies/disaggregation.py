"""Size prefill and decode pools apart: TTFT and TPOT over a link."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import Profile

from .pools import UTILIZATION_CAP, PoolQueue, Slos, slots_within

#: Llama-3-70B's KV cache at 16 bit, GB per token, and a 400 Gb/s link, GB/s.
KV_GB_PER_TOKEN = 327_680 / 1e9
LINK_GB_PER_S = 50.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DisaggregatedFleet:
    """A prefill and a decode pool."""

    prefill: PoolQueue
    decode: PoolQueue
    prefill_replicas: int
    decode_replicas: int

    @property
    def usd_per_h(self) -> float:
        """Price of both pools."""
        prefill, decode = self.prefill.profile.usd_per_h, self.decode.profile.usd_per_h
        return self.prefill_replicas * prefill + self.decode_replicas * decode

    @property
    def ttft_p99_s(self) -> float:
        """P99 of wait, prefill and transfer."""
        return self.prefill.ttft_p99_s(self.prefill_replicas)

    @property
    def tpot_p99_s(self) -> float:
        """P99 time per output token in the decode pool."""
        return self.decode.tpot_p99_s


def prefill_queue(
    profile: Profile,
    lengths: Lengths,
    rate_rps: float,
    kv_gb_per_token: float = KV_GB_PER_TOKEN,
    link_gb_per_s: float = LINK_GB_PER_S,
) -> PoolQueue:
    """Return the queue of prompts: one at a time on each replica, which is held until the KV cache is handed over.

    A prompt uses all of a GPU's compute, so a batch of prompts is no faster than one after the other.
    """
    nothing = np.zeros_like(lengths.output_low)
    prompts = Lengths(lengths.input_low, lengths.input_high, nothing, nothing, lengths.share)
    handover_s = kv_gb_per_token / link_gb_per_s
    sender = dataclasses.replace(profile, first_token_s=profile.first_token_s + handover_s, prefill_s=0.0)
    return PoolQueue(profile=sender, lengths=prompts, rate_rps=rate_rps, slots=1)


def decode_queue(
    profile: Profile, lengths: Lengths, rate_rps: float, context_tokens: int, tpot_s: float
) -> PoolQueue:
    """Return the queue of requests whose prompt is done: a slot each, for one step per output token."""
    decoder = dataclasses.replace(
        profile, chunk_tokens=None, first_base_s=0.0, first_token_s=0.0, prefill_s=0.0
    )
    slots = slots_within(decoder, lengths, context_tokens, tpot_s)
    return PoolQueue(profile=decoder, lengths=lengths, rate_rps=rate_rps, slots=slots)


def size_disaggregated(
    prefill: Profile,
    decode: Profile,
    lengths: Lengths,
    rate_rps: float,
    slos: Slos,
    *,
    context_tokens: int,
    kv_gb_per_token: float = KV_GB_PER_TOKEN,
    link_gb_per_s: float = LINK_GB_PER_S,
    utilization_cap: float = UTILIZATION_CAP,
) -> DisaggregatedFleet | None:
    """Return the smallest pools that keep the SLOs, or None where none do.

    The first token is the prefill pool's. At most 1 % of the requests wait for a decode slot for longer than the bound
    on the time per output token: a longer gap in the stream would show.

    Parameters
    ----------
    prefill, decode : Profile
        Replicas of both pools.
    lengths : Lengths
        Joint law.
    rate_rps : float
        Poisson arrivals; the decode pool sees them again, which is exact only behind a lightly loaded pool.
    slos : Slos
        Bounds.
    context_tokens : int
        Context limit of the decode pool.
    kv_gb_per_token, link_gb_per_s : float
        What is handed over, and how fast.
    utilization_cap : float
        Of both pools.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> a100, h100 = PROFILES["A100-80GB"], PROFILES["H100-80GB"]
    >>> law = Lengths([1450], [1450], [483], [483], [1.0])
    >>> found = size_disaggregated(a100, h100, law, 100.0, Slos(ttft_s=0.5, tpot_s=0.1), context_tokens=8192)
    >>> found.prefill_replicas, found.decode_replicas
    (4, 7)
    """
    first = prefill_queue(prefill, lengths, rate_rps, kv_gb_per_token, link_gb_per_s)
    second = decode_queue(decode, lengths, rate_rps, context_tokens, slos.tpot_s)
    counts = (
        first.smallest(Slos(ttft_s=slos.ttft_s), utilization_cap),
        second.smallest(Slos(ttft_s=slos.tpot_s, tpot_s=slos.tpot_s), utilization_cap),
    )
    if counts[0] is None or counts[1] is None:
        return None
    return DisaggregatedFleet(
        prefill=first, decode=second, prefill_replicas=counts[0], decode_replicas=counts[1]
    )
