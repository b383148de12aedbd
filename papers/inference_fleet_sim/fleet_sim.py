"""Compute inference-fleet-sim's rules as its published tool does.

For comparison only; `fleetgym.capacity.studies.sizing` is what is right. Where tool and paper differ, this
is the tool (vllm-project/semantic-router, src/fleet-sim @ 3d48f8c).
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import Profile
from fleetgym.kernels.queueing import erlang_c, wait_percentile

Breakpoints = Sequence[tuple[int, float]]

HOURS_PER_YEAR = 8760
UTILIZATION_CAP = 0.85
COMPRESSIBLE = 0.75  # share of a borderline band that compression saves
MOST_GPUS = 5000
_DRAWS, _SEED = 3000, 42
_PREFILL_EFFICIENCY, _DECODE_EFFICIENCY, _TRANSFER = 0.90, 0.92, 1.80


def cumulative_share(breakpoints: Breakpoints, tokens: float) -> float:
    """Return F(tokens), linear between breakpoints.

    Examples
    --------
    >>> cumulative_share([(10, 0.5), (20, 1.0)], 15)
    0.75
    """
    if tokens <= 0:
        return 0.0
    before, below = 0, 0.0
    for edge, share in breakpoints:
        if tokens <= edge:
            return below + (share - below) * (tokens - before) / (edge - before)
        before, below = edge, share
    return 1.0


def p99_wait_s(servers: int, rate_rps: float, server_rate: float, cv2: float) -> float:
    """Return its P99 wait: infinite for bad input or an unstable queue, 0 where at most 1 % wait.

    Examples
    --------
    >>> round(p99_wait_s(2, 1.0, 1.0, 1.0), 6)
    3.506558
    """
    if servers <= 0 or rate_rps <= 0.0 or server_rate <= 0.0:
        return math.inf
    return float(wait_percentile(int(servers), rate_rps, 1.0 / server_rate, max(cv2, 1e-9 - 1.0), 1.0, 0.01))


def printed_p99_wait_s(servers: int, rate_rps: float, server_rate: float, cv2: float) -> float:
    """Return the P99 wait as equation (2) prints it; the tool computes `p99_wait_s`.

    The printed form multiplies the mean wait of *all* requests by ln(100). So it is below the tool's, which takes the
    percentile among those who wait, by the chance to wait.

    Examples
    --------
    >>> [round(rule(8, 6.0, 1.0, 3.0), 2) for rule in (printed_p99_wait_s, p99_wait_s)]
    [1.64, 3.58]
    """
    if servers <= 0 or rate_rps <= 0.0 or server_rate <= 0.0 or rate_rps >= servers * server_rate:
        return math.inf
    waiting = float(erlang_c(int(servers), rate_rps / server_rate))
    return waiting / (servers * server_rate - rate_rps) * (1.0 + cv2) / 2.0 * math.log(100.0)


#: A rule for the P99 wait of servers, arrivals, a server's rate and the service times' cv2.
WaitRule = Callable[[int, float, float, float], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """What it knows of a pool."""

    gpu_rate: float  # requests/s of one GPU, slots / E[S]
    cv2: float
    slots: int
    prefill_s: float  # mean, at batch 1


def calibrate(
    breakpoints: Breakpoints, most_tokens: int, profile: Profile, low: int = 1, moments: str = "drawn"
) -> Calibration:
    """Return its moments of a pool: 3,000 draws with one seed, or the same law summed over every length.

    Parameters
    ----------
    breakpoints : sequence of (tokens, share)
        CDF of the pool's requests.
    most_tokens : int
        Context limit of the pool.
    profile : Profile
        Of its GPUs.
    low : int
        Shortest length drawn.
    moments : {"drawn", "exact"}
        As the tool does it, or without the error of the draws.
    """
    if moments == "exact":
        return _exact(Lengths.from_totals(breakpoints, low=low, high=most_tokens), most_tokens, profile)
    rng, slots = random.Random(_SEED), profile.slots(most_tokens)
    lengths = [
        length for _ in range(_DRAWS) if (length := _draw(rng, breakpoints, most_tokens, low)) is not None
    ]
    total = np.array(lengths)
    inputs = np.maximum(1, (total * 0.80).astype(np.int64))
    outputs = np.maximum(1, total - inputs)
    service_s = profile.service_seconds(inputs, outputs, slots)
    mean = math.fsum(service_s) / total.size
    second = math.fsum(service_s**2) / total.size
    return Calibration(
        gpu_rate=slots / mean,
        cv2=max(0.01, second / (mean * mean) - 1.0),
        slots=slots,
        prefill_s=math.fsum(profile.prefill_seconds(inputs)) / total.size,
    )


def _exact(lengths: Lengths, most_tokens: int, profile: Profile) -> Calibration:
    slots = profile.slots(most_tokens)
    mean, cv2 = profile.service_moments(lengths, slots)
    density = lengths.input_density
    prefill_s = float(density @ profile.prefill_seconds(np.arange(density.size)))
    return Calibration(gpu_rate=slots / mean, cv2=max(0.01, cv2), slots=slots, prefill_s=prefill_s)


def _draw(rng: random.Random, breakpoints: Breakpoints, most_tokens: int, low: int) -> int | None:
    u, before = rng.random(), 0
    for edge, share in breakpoints:
        if u <= share:
            first, last = max(low, before + 1), min(most_tokens, edge)
            return rng.randint(first, last) if first <= last else most_tokens
        before = edge
    return None


def smallest_gpus(
    rate_rps: float,
    gpu_rate: float,
    slo_s: float,
    cv2: float,
    slots: int,
    utilization_cap: float = UTILIZATION_CAP,
    wait: WaitRule = p99_wait_s,
) -> int:
    """Return its GPU count: from one more than the load upward until the P99 wait, not the TTFT, keeps the SLO.

    Examples
    --------
    >>> smallest_gpus(0.1, 3.0, 0.1, 0.1, 85)  # never below 2
    2
    """
    if rate_rps <= 0.0:
        return 1
    count = math.ceil(rate_rps / gpu_rate) + 1
    while count <= MOST_GPUS and wait(count * slots, rate_rps, gpu_rate / slots, cv2) > slo_s:
        count += 1
    if count > MOST_GPUS:
        return count
    return max(count, math.ceil(rate_rps / (gpu_rate * utilization_cap)) if utilization_cap < 1.0 else count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoPools:
    """One row of its sweep."""

    threshold: int  # B_short
    gamma: float
    short_share: float  # of the traffic
    short_gpus: int
    long_gpus: int
    usd_per_h: float
    short_ttft_s: float  # P99 wait plus mean prefill
    long_ttft_s: float
    meets_slo: bool

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.short_gpus + self.long_gpus

    @property
    def usd_per_year(self) -> float:
        """Annual cost."""
        return self.usd_per_h * HOURS_PER_YEAR


def short_calibration(
    breakpoints: Breakpoints, threshold: int, profile: Profile, moments: str = "drawn"
) -> Calibration:
    """Return its moments of the short pool: breakpoints up to the threshold, scaled by the last of them."""
    kept = [(edge, share) for edge, share in breakpoints if edge <= threshold]
    scaled = [(edge, share / kept[-1][1]) for edge, share in kept] if kept else [(threshold, 1.0)]
    return calibrate(scaled, threshold, profile, moments=moments)


def long_calibration(
    breakpoints: Breakpoints, above: int, most_tokens: int, profile: Profile, moments: str = "drawn"
) -> Calibration:
    """Return its moments of the long pool, those of requests over `above` tokens."""
    below = cumulative_share(breakpoints, above)
    kept = [
        (edge, min(1.0, max(0.0, (share - below) / (1.0 - below))))
        for edge, share in breakpoints
        if edge > above
    ]
    kept[-1] = (kept[-1][0], 1.0)
    return calibrate(kept, most_tokens, profile, max(1, above), moments)


def size_two_pools(
    breakpoints: Breakpoints,
    rate_rps: float,
    *,
    threshold: int,
    short: Profile,
    long: Profile,
    most_tokens: int,
    slo_s: float,
    gamma: float = 1.0,
    availability: float = 1.0,
    moments: str = "drawn",
    wait: WaitRule = p99_wait_s,
) -> TwoPools:
    """Return its fleet for a threshold and a compression factor; one pool where nothing is above the threshold.

    Parameters
    ----------
    breakpoints : sequence of (tokens, share)
        CDF of total tokens.
    rate_rps : float
        Arrivals per second.
    threshold : int
        B_short: requests up to this many tokens go to the short pool.
    short, long : Profile
        GPUs of the pools.
    most_tokens : int
        Context limit of the long pool.
    slo_s : float
        P99 TTFT.
    gamma : float
        Compression factor; three quarters of the band up to ``gamma * threshold`` move to the short pool.
    availability : float
        Share of nodes that work.
    moments : {"drawn", "exact"}
        As for `calibrate`.
    wait : callable
        The rule of the P99 wait: the tool's, or `printed_p99_wait_s`.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published_totals
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> a100 = PROFILES["A100-80GB"]
    >>> found = size_two_pools(published_totals()["lmsys"], 100.0, threshold=4096, short=a100, long=a100,
    ...                        most_tokens=65536, slo_s=0.5)
    >>> found.short_gpus, found.long_gpus, round(found.usd_per_year)
    (3, 5, 154877)
    """
    band_end = int(gamma * threshold)
    up_to, up_to_band = (cumulative_share(breakpoints, t) for t in (threshold, band_end))
    share = min(1.0, up_to + COMPRESSIBLE * max(0.0, up_to_band - up_to))
    first = _size(
        share * rate_rps,
        short_calibration(breakpoints, threshold, short, moments),
        slo_s,
        availability,
        wait,
    )
    long_rate = (1.0 - share) * rate_rps
    last = (0, 0.0)
    if long_rate > 0.01:
        if up_to_band < 1.0 - 1e-6:
            calibration = long_calibration(breakpoints, band_end, most_tokens, long, moments)
        else:
            calibration = Calibration(gpu_rate=0.01, cv2=1.0, slots=1, prefill_s=0.0)
        last = _size(long_rate, calibration, slo_s, availability, wait)
    return TwoPools(
        threshold=threshold,
        gamma=gamma,
        short_share=share,
        short_gpus=first[0],
        long_gpus=last[0],
        usd_per_h=first[0] * short.usd_per_h + last[0] * long.usd_per_h,
        short_ttft_s=first[1],
        long_ttft_s=last[1],
        meets_slo=first[1] <= slo_s and last[1] <= slo_s,
    )


def _size(
    rate_rps: float, pool: Calibration, slo_s: float, availability: float, wait: WaitRule
) -> tuple[int, float]:
    count = smallest_gpus(rate_rps, pool.gpu_rate, slo_s, pool.cv2, pool.slots, wait=wait)
    count = math.ceil(count / availability)
    return count, wait(count * pool.slots, rate_rps, pool.gpu_rate / pool.slots, pool.cv2) + pool.prefill_s


# -- disaggregated serving --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disaggregated:
    """Prefill and decode pools as its optimizer sees them."""

    prefill_rate: float  # requests/s of one prefill worker
    decode_rate: float
    ttft_s: float
    tpot_s: float
    prefill_gpus: int
    decode_gpus: int
    usd_per_h: float
    meets_slo: bool

    @property
    def gpus(self) -> int:
        """Workers of both pools."""
        return self.prefill_gpus + self.decode_gpus

    @property
    def rate_rps(self) -> float:
        """Throughput of the slower pool."""
        return min(
            _PREFILL_EFFICIENCY * self.prefill_gpus * self.prefill_rate,
            _DECODE_EFFICIENCY * self.decode_gpus * self.decode_rate,
        )


def disaggregated(
    prefill: Profile,
    decode: Profile,
    *,
    input_tokens: int,
    output_tokens: int,
    most_tokens: int,
    rate_rps: float,
    ttft_slo_s: float,
    tpot_slo_s: float,
    most_prefill: int = 32,
    most_decode: int = 64,
) -> Disaggregated | None:
    """Return its cheapest disaggregated fleet for a rate, or None where no count keeps the SLOs.

    Counts do not change its TTFT or TPOT: there is no queue.

    Examples
    --------
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> found = disaggregated(PROFILES["A100-80GB"], PROFILES["H100-80GB"], input_tokens=1450, output_tokens=483,
    ...                       most_tokens=8192, rate_rps=100.0, ttft_slo_s=0.5, tpot_slo_s=0.1)
    >>> found.prefill_gpus, found.decode_gpus, round(found.usd_per_h * 8760)
    (1, 3, 125005)
    """
    one = disaggregated_workers(
        prefill, decode, input_tokens=input_tokens, output_tokens=output_tokens, most_tokens=most_tokens
    )
    if one.ttft_s > ttft_slo_s or one.tpot_s > tpot_slo_s:
        return None
    prefill_gpus = max(1, math.ceil(rate_rps / (_PREFILL_EFFICIENCY * one.prefill_rate)))
    decode_gpus = max(1, math.ceil(rate_rps / (_DECODE_EFFICIENCY * one.decode_rate)))
    if prefill_gpus > most_prefill or decode_gpus > most_decode:
        return None
    return dataclasses.replace(
        one,
        prefill_gpus=prefill_gpus,
        decode_gpus=decode_gpus,
        usd_per_h=prefill_gpus * prefill.usd_per_h + decode_gpus * decode.usd_per_h,
        meets_slo=True,
    )


def disaggregated_workers(
    prefill: Profile, decode: Profile, *, input_tokens: int, output_tokens: int, most_tokens: int
) -> Disaggregated:
    """Return one worker of each pool: rates, TTFT with its transfer factor of 1.8, and TPOT."""
    first, second = prefill.slots(most_tokens), decode.slots(most_tokens)
    one, zero = np.array([1]), np.array([0])
    prefill_s = float(prefill.service_seconds(np.array([input_tokens]), one, first)[0])
    decode_s = float(decode.service_seconds(one, np.array([output_tokens]), second)[0])
    chunks = float(prefill.chunks(zero + input_tokens)[0])
    return Disaggregated(
        prefill_rate=first / prefill_s,
        decode_rate=second / decode_s,
        ttft_s=_TRANSFER * chunks * prefill.step_s(first),
        tpot_s=decode.step_s(second),
        prefill_gpus=1,
        decode_gpus=1,
        usd_per_h=prefill.usd_per_h + decode.usd_per_h,
        meets_slo=False,
    )


# -- power ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlexPoint:
    """One row of its grid-flexibility curve."""

    flex: float  # share of the nominal power given up
    batch: int  # requests per GPU at most
    gpu_w: float
    fleet_kw: float
    ttft_p99_s: float  # analytical


def inverted_power(profile: Profile, watts: float) -> int:
    """Return its batch for a power: a bisection that is off by one at the upper end.

    Examples
    --------
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> inverted_power(PROFILES["H100-80GB"], 600.0)  # all 256 would do
    255
    """
    curve = profile.power
    assert curve is not None
    watts = min(max(watts, curve.idle_w), curve.nominal_w)
    low, high = 1, profile.max_slots
    for _ in range(20):
        middle = (low + high) // 2
        if curve.watts(middle) <= watts:
            low = middle
        else:
            high = middle - 1
        if low >= high:
            break
    return max(1, low)


def grid_flex(
    breakpoints: Breakpoints, rate_rps: float, *, profile: Profile, gpus: int, most_tokens: int, flex: float
) -> FlexPoint:
    """Return a row of its curve: power given up, the batch that follows, and the analytical P99 TTFT there."""
    curve = profile.power
    assert curve is not None
    watts = max(curve.idle_w, curve.nominal_w * (1.0 - flex))
    batch = min(profile.slots(most_tokens), inverted_power(profile, watts))
    capped = throttled(profile, batch, most_tokens)
    found = calibrate(breakpoints, most_tokens, capped)
    wait_s = p99_wait_s(gpus * batch, rate_rps, found.gpu_rate / batch, found.cv2)
    power_w = curve.watts(batch)
    return FlexPoint(
        flex=flex,
        batch=batch,
        gpu_w=power_w,
        fleet_kw=gpus * power_w / 1000.0,
        ttft_p99_s=wait_s + found.prefill_s,
    )


def throttled(profile: Profile, batch: int, context_tokens: int) -> Profile:
    """Return the profile with at most `batch` sequences at a context."""
    blocks = batch * math.ceil(context_tokens / profile.block_tokens)
    scaled = math.ceil(batch * context_tokens / 8192) if profile.scales_slots else batch
    return dataclasses.replace(profile, kv_blocks=blocks, max_slots=scaled)
