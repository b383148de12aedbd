"""Describe how fast replicas serve (W, H, chunk, KV blocks, slots, power): seconds and watts by token length."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.lengths import Lengths

#: Context at which the cost of a sequence in a step is stated.
REFERENCE_CONTEXT = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Power of a GPU by the requests it serves at once: idle + range / (1 + exp(-k (log2 b - x0))).

    Source: Hassan et al., GPU-to-Grid (arXiv:2602.05116), eq. 2, as quoted by inference-fleet-sim, section 4.8.
    """

    idle_w: float
    nominal_w: float
    steepness: float  # k
    midpoint: float  # x0, in log2 of the batch

    def watts(self, batch: float) -> float:
        """Return the power at a batch of requests; idle at 0.

        Examples
        --------
        >>> round(PROFILES["H100-80GB"].power.watts(128), 1)
        582.8
        """
        if batch <= 0.0:
            return self.idle_w
        slope = -self.steepness * (math.log2(max(1.0, batch)) - self.midpoint)
        return self.idle_w + (self.nominal_w - self.idle_w) / (1.0 + math.exp(slope))

    def largest_batch(self, watts: float, most: int) -> int:
        """Return the largest batch from 1 to `most` that stays within a power; 1 where none does."""
        low, high = 1, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.watts(middle) <= watts else (low, middle)
        return low


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """What one replica does to requests of given lengths.

    One step of n sequences of mean length L takes ``t(n, L) = W + n (h + H L / 8192)`` seconds. A request of i input
    and o output tokens holds one of the replica's slots for::

        S(i, o) = (ceil(i / chunk) + o) t(n, i + o) + i p(n) + first_base,   p(n) = first_token + (n - 1) prefill

    with n the slots; without a chunk size its prompt costs ``i p(n)`` alone. Without waiting, its first token
    comes after ``ceil(i / chunk) t(1, 8192) + i p(1) + first_base``.

    Parameters
    ----------
    name : str
        For tables.
    base_s, context_s, sequence_s : float
        W, H and h. fleet-sim's profiles have h = 0.
    chunk_tokens : int or None
        Prompt tokens per step (eq. 4 of inference-fleet-sim).
    first_base_s, first_token_s, prefill_s : float
        Time before the first token, time per prompt token, and what each prompt token costs every other sequence.
    kv_blocks, block_tokens : int
        KV cache of the replica.
    max_slots : int
        Most sequences at once, at a context of 8192 tokens.
    scales_slots : bool
        Whether shorter contexts allow more than `max_slots` in proportion, as in fleet-sim, or not (an engine's cap).
    usd_per_h : float
        Price of the replica.
    gpus : int
        GPUs of the replica.
    power : PowerCurve or None
        Of each of its GPUs.
    label, source : str
        How the numbers are known.
    fit_error : float or None
        Mean absolute relative error of the time per output token, where it was fitted.
    """

    name: str
    base_s: float
    context_s: float
    sequence_s: float = 0.0
    chunk_tokens: int | None = None
    first_base_s: float = 0.0
    first_token_s: float = 0.0
    prefill_s: float = 0.0
    kv_blocks: int
    block_tokens: int = 16
    max_slots: int
    scales_slots: bool = True
    usd_per_h: float
    gpus: int = 1
    power: PowerCurve | None = None
    label: str = "assumed"
    source: str = ""
    fit_error: float | None = None

    def __post_init__(self) -> None:
        if self.kv_blocks < 0 or self.block_tokens < 1 or self.max_slots < 0 or (self.chunk_tokens or 1) < 1:
            raise FleetgymError(
                f"profile {self.name!r}: expected sizes of at least 0, chunk and blocks of at least 1"
            )

    def slots(self, context_tokens: int) -> int:
        """Return how many sequences of up to `context_tokens` one replica serves at once.

        Examples
        --------
        >>> [PROFILES["A100-80GB"].slots(context) for context in (4096, 8192, 65536)]
        [256, 128, 16]
        """
        if context_tokens < 1:
            raise FleetgymError(f"expected a context of at least 1 token, got {context_tokens}")
        most = self.max_slots * REFERENCE_CONTEXT // context_tokens if self.scales_slots else self.max_slots
        return min(most, self.kv_blocks // math.ceil(context_tokens / self.block_tokens))

    def step_s(self, batch: float, length: float = REFERENCE_CONTEXT) -> float:
        """Return t(n, L) for a batch of n sequences of mean length L."""
        return self.base_s + batch * (self.sequence_s + self.context_s * (length / REFERENCE_CONTEXT))

    def chunks(self, input_tokens: np.ndarray) -> np.ndarray:
        """Return the steps that prompts take; 0 where the prompt is no matter of steps."""
        if self.chunk_tokens is None:
            return np.zeros_like(np.asarray(input_tokens, dtype=float))
        return np.ceil(np.asarray(input_tokens, dtype=float) / self.chunk_tokens)

    def prefill_seconds(self, input_tokens: np.ndarray) -> np.ndarray:
        """Return the time to the first token of a request that is alone, same shape as `input_tokens`."""
        tokens = np.asarray(input_tokens, dtype=float)
        return self.chunks(tokens) * self.step_s(1) + tokens * self.first_token_s + self.first_base_s

    def service_seconds(self, input_tokens: np.ndarray, output_tokens: np.ndarray, batch: int) -> np.ndarray:
        """Return how long requests hold a slot while `batch` are in use; broadcasts the lengths."""
        inputs, outputs = np.asarray(input_tokens, dtype=float), np.asarray(output_tokens, dtype=float)
        step = self.base_s + batch * (
            self.sequence_s + self.context_s * ((inputs + outputs) / REFERENCE_CONTEXT)
        )
        return (
            (self.chunks(inputs) + outputs) * step + inputs * self._prompt_token_s(batch) + self.first_base_s
        )

    def _prompt_token_s(self, batch: int) -> float:
        return self.first_token_s + (batch - 1) * self.prefill_s

    def service_moments(self, lengths: Lengths, batch: int) -> tuple[float, float]:
        """Return mean and squared coefficient of variation of S, summed over every whole length.

        Parameters
        ----------
        lengths : Lengths
            Joint law of input and output.
        batch : int
            Sequences at once: the slots.

        Examples
        --------
        >>> mean, cv2 = PROFILES["A100-80GB"].service_moments(Lengths([93], [93], [33], [33], [1.0]), 2048)
        >>> round(mean, 6), cv2
        (0.96815, 0.0)
        """
        fixed = self.base_s + batch * self.sequence_s
        slope = batch * self.context_s / REFERENCE_CONTEXT
        token = self._prompt_token_s(batch)

        # S = c0(i) + c1(i) o + slope o^2
        def c0(i: np.ndarray) -> np.ndarray:
            return self.chunks(i) * (fixed + slope * i) + token * i + self.first_base_s

        def c1(i: np.ndarray) -> np.ndarray:
            return fixed + slope * (i + self.chunks(i))

        def c2(i: np.ndarray) -> np.ndarray:
            return np.full_like(i, slope)

        mean = lengths.expect([c0, c1, c2])
        second = lengths.expect(
            [
                lambda i: c0(i) ** 2,
                lambda i: 2.0 * c0(i) * c1(i),
                lambda i: c1(i) ** 2 + 2.0 * c0(i) * slope,
                lambda i: 2.0 * slope * c1(i),
                lambda i: np.full_like(i, slope * slope),
            ]
        )
        return mean, max(0.0, second / (mean * mean) - 1.0) if mean > 0.0 else 0.0


_FLEET_SIM = (
    "vllm-project/semantic-router src/fleet-sim @ 3d48f8c, hand calibrated; prices an 8-GPU group as one GPU"
)


def _fleet_sim(
    name: str, w_ms: float, h_ms: float, usd_per_h: float, power: PowerCurve, **sizes: int
) -> Profile:
    seconds = {"base_s": w_ms / 1000.0, "context_s": h_ms / 1000.0}
    return Profile(name=name, usd_per_h=usd_per_h, power=power, source=_FLEET_SIM, **seconds, **sizes)  # type: ignore[arg-type]


_A10G_POWER = PowerCurve(idle_w=75.0, nominal_w=120.0, steepness=0.7, midpoint=3.0)
_A100_POWER = PowerCurve(idle_w=175.0, nominal_w=385.0, steepness=1.0, midpoint=2.5)
_H100_POWER = PowerCurve(idle_w=300.0, nominal_w=600.0, steepness=1.0, midpoint=4.2)

_PUBLISHED = (
    _fleet_sim("A10G", 12.0, 0.9, 1.01, _A10G_POWER, chunk_tokens=256, kv_blocks=32768, max_slots=64),
    _fleet_sim("A100-80GB", 8.0, 0.65, 2.21, _A100_POWER, chunk_tokens=512, kv_blocks=65536, max_slots=128),
    _fleet_sim("H100-80GB", 4.0, 0.32, 4.02, _H100_POWER, chunk_tokens=1024, kv_blocks=65536, max_slots=256),
)

#: inference-fleet-sim's published profiles, section 3.2. They are no measurements: a Llama-3-70B on one A10G does not
#: fit, and a prompt costs a step per chunk whatever the compute.
PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _PUBLISHED})


def deployment_profile(
    deployment: Deployment, usd_per_gpu_h: float, options: roofline.RooflineOptions = roofline.DEFAULT
) -> Profile:
    """Return the profile of a real deployment: measured where there is a fit, else from the roofline.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP.
    usd_per_gpu_h : float
        Price of one of its GPUs; the replica pays for all of them.
    options : RooflineOptions
        Assumptions about the engine; `context_limit` plays no part here.

    Returns
    -------
    Profile
        ``fit_error`` is that of the measured fit, None for the roofline.

    Raises
    ------
    FleetgymError
        Where the weights do not fit.
    """
    step = roofline.step_time(deployment, options)
    free_gb = roofline.kv_capacity_gb(deployment, options)
    if free_gb <= 0.0:
        raise FleetgymError(
            f"{deployment.model.name} at {deployment.precision} does not fit on {deployment.gpus} {deployment.gpu.name}"
        )
    is_own = roofline.step_key(deployment) in options.steps
    fit = roofline._measured(deployment, step.base_s) if step.label == "measured" and not is_own else None
    tensor, pipeline = deployment.tensor_parallel, deployment.pipeline_parallel
    parallel = f"TP{tensor}" + f" PP{pipeline}" * (pipeline > 1)
    return Profile(
        name=f"{deployment.model.name} {deployment.precision} {deployment.gpu.name} {parallel}",
        base_s=step.base_s,
        context_s=step.context_s,
        sequence_s=step.sequence_s,
        first_base_s=step.first_base_s,
        first_token_s=step.first_token_s,
        prefill_s=step.prefill_s,
        kv_blocks=int(free_gb / (roofline.kv_gb_per_token(deployment) * 16)),
        max_slots=options.max_num_seqs,
        scales_slots=False,
        usd_per_h=usd_per_gpu_h * deployment.gpus,
        gpus=deployment.gpus,
        label=step.label,
        source="fleetgym/data/iteration_fits.csv" if fit else "fleetgym.hardware.performance.roofline",
        fit_error=fit.mape if fit else None,
    )


@functools.cache
def measured_profiles(model: str = "Llama-3.1-70B") -> tuple[Profile, ...]:
    """Return a profile for every GPU, precision and TP degree on which a model was measured, best fit of each.

    Prices are the medians of the on-demand offers in ``prices.csv``; GPU types without one are left out.

    Examples
    --------
    >>> [(p.name, p.gpus, p.slots(8192)) for p in measured_profiles() if "H100" in p.name][:2]
    [('Llama-3.1-70B fp8 H100 TP2', 2, 25), ('Llama-3.1-70B fp8 H100 TP4', 4, 78)]
    """
    catalog.model(model)
    keys = sorted(
        {(f.gpu, f.precision, f.tensor_parallel) for f in catalog.iteration_fits() if f.model == model}
    )
    found = []
    for gpu, precision, tensor in keys:
        prices = sorted(p.usd_per_gpu_h for p in catalog.prices() if p.gpu == gpu and p.market == "on-demand")
        deployment = Deployment(
            model=catalog.model(model), gpu=catalog.gpu(gpu), precision=precision, tensor_parallel=tensor
        )
        if prices and roofline.capacity(deployment) is not None:
            profile = deployment_profile(deployment, prices[len(prices) // 2])
            if profile.label == "measured":
                found.append(profile)
    return tuple(found)
