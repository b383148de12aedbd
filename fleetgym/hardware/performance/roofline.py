"""Compute service times, work and capacities of a deployment at nominal lengths from a roofline of LLM serving.

One decoding step of n sequences with mean context L takes

    t(n, L) = base + context n L/8192 + sequence n        seconds per output token and sequence,

and each token of a prompt takes ``prefill`` seconds from everybody. The constants have versions:

1. Those of ``fleet-v0``, ``fleet-v1`` and the studies. A fit to measured runs where
   `fleetgym.hardware.catalog.iteration_fits` has one for the model, GPU, precision and TP degree; otherwise the
   datasheet, each of its rates times an `Efficiency` that is the same for all GPU types. These were fitted to
   1,130 measured times per output token on H100 and H200 (``tools/calibrate_roofline.py`` of commit b96ac88). Over
   GPU types they are wrong by a trend: an L40S is too fast and a B200 too slow, relative to an H100.
2. Those of imported traces: `fleetgym.hardware.performance.gpu_rates`, fitted to measured operators by GPU type,
   precision and phase, and to measured runs of engines.

``docs/calibration.md`` compares both with measurements.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.quantities import TAKEN_S
from fleetgym.files.schema import NAME, spec
from fleetgym.hardware.catalog import WEIGHT_BYTES, IterationFit, iteration_fits
from fleetgym.hardware.performance import gpu_rates
from fleetgym.hardware.performance.coefficients import (
    Capacity,
    Coefficients,
    Deployment,
    PairPerformance,
    Requests,
)
from fleetgym.hardware.performance.gpu_rates import (
    REFERENCE_CONTEXT,
    kv_gb_per_token,
    repeated,
    weight_gb_read,
)
from fleetgym.hardware.performance.held import DEVIATIONS, HeldTokens

_WORST_FIT = 0.15  # mean absolute relative error
_SLOW_HOST = 3.0
_MOST_HELD = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """How far measured serving stays behind the datasheet, in version 1; the defaults are the calibrated values."""

    bandwidth_weights: float = 0.909  # at its bound of 1/1.1
    bandwidth_kv: float = 0.952  # at its bound of 1/1.05
    tensor: float = 0.833  # at its bound of 1/1.2
    link: float = 0.439
    layer_s: float = 39.9e-6
    layer_parallel_s: float = 31.5e-6  # more per layer where TP > 1
    first_token_base_s: float = 0.025  # before the first token, beside one step
    first_token_dense: float = 1.4  # a prompt alone, relative to a token among others
    first_token_mixture: float = 4.0
    expert_batch: int = 32  # sequences whose experts are read in one step


@dataclasses.dataclass(frozen=True, kw_only=True)
class RooflineOptions:
    """Assumptions about the serving engine.

    Parameters
    ----------
    memory_share : float
        Share of GPU memory for weights and KV cache.
    reserve_gb : float
        Memory per GPU for activations and the runtime.
    max_num_seqs : int
        The engine's cap on sequences at once.
    context_limit : int
        Most tokens of a sequence; a model's own limit if that is smaller.
    held : HeldTokens, optional
        What sequences hold, on which concurrency rests. Without it each has `context_limit` tokens reserved.
    microbatches : int
        Micro-batches in a pipeline.
    coefficients : {1, 2, 3}
        Version of the constants. Version 2 made `fleet-v2`. In version 3 no prompt takes less time alone than in a
        batch; without it, the first token comes too early where GPUs are joined by PCIe.
    measured : {"prefer", "ignore"}
        Whether, in version 1, a fit to measured runs replaces the roofline where there is one.
    efficiency : Efficiency
        Calibrated constants of version 1.
    network_s, network_gb_per_s : float
        Time and bandwidth from one stage of a pipeline to the next, which is another node.
    steps : mapping
        Steps of one's own measurements, by model, GPU, precision and TP degree; they go before the roofline.
    """

    memory_share: float = 0.9
    reserve_gb: float = 2.0
    max_num_seqs: int = 256
    context_limit: int = 8192
    held: HeldTokens | None = None
    microbatches: int = 8
    coefficients: int = 1
    measured: Literal["prefer", "ignore"] = "prefer"
    efficiency: Efficiency = Efficiency()
    network_s: float = 0.0
    network_gb_per_s: float = math.inf
    steps: Mapping[tuple[str, str, str, int], StepTime] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.measured not in ("prefer", "ignore"):
            raise UnknownNameError("mode of measured", self.measured, ("prefer", "ignore"))
        if self.coefficients not in (1, 2, 3):
            raise FleetgymError(f"coefficients: expected version 1, 2 or 3, got {self.coefficients!r}")


DEFAULT = RooflineOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """Constants of a decoding step in seconds.

    A prompt of h tokens alone takes ``first_base_s + first_token_s h + first_attention_s h^2``. It takes ``prompt_s +
    prefill_s h + attention_s h^2`` from everybody else. `label` is ``"measured"`` for fits to measured runs,
    ``"modelled"`` for the roofline, and ``"extrapolated"`` where nothing was measured on the GPU type.
    """

    base_s: float = spec(TAKEN_S)
    context_s: float = spec(TAKEN_S)
    sequence_s: float = spec(TAKEN_S)
    prefill_s: float = spec(TAKEN_S)
    first_base_s: float = spec(TAKEN_S)
    first_token_s: float = spec(TAKEN_S)
    label: str = spec(NAME)
    prompt_s: float = spec(TAKEN_S, 0.0)
    attention_s: float = spec(TAKEN_S, 0.0)
    first_attention_s: float = spec(TAKEN_S, 0.0)

    def per_output_token_s(self, sequences: float, context: float) -> float:
        """Return t(n, L)."""
        return self.base_s + sequences * (self.sequence_s + self.context_s * context / REFERENCE_CONTEXT)


def step_time(
    deployment: Deployment, options: RooflineOptions = DEFAULT, batch: float | None = None
) -> StepTime:
    """Return the step's constants.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP. A pipeline works on 1/PP of the sequences at a time.
    options : RooflineOptions
        Assumptions, with the version of the constants.
    batch : float, optional
        Sequences at once, on which depends, from version 2 on, how many experts of a mixture are read; by default
        ``options.max_num_seqs``.

    Returns
    -------
    StepTime
        Seconds.
    """
    stages = deployment.pipeline_parallel
    own = options.steps.get(step_key(deployment)) if stages == 1 else None
    if own is not None:
        return own
    if options.coefficients == 1:
        modelled = _roofline(deployment, options.efficiency)
    else:
        modelled = _by_operators(deployment, batch or options.max_num_seqs)
    if options.coefficients >= 3:
        modelled = _alone_no_faster(modelled)
    if stages > 1:
        modelled = _through_network(modelled, deployment, options)
    if options.coefficients >= 2 or options.measured == "ignore":
        return modelled
    fit = _measured(deployment, modelled.base_s)
    if fit is None:
        return modelled
    return StepTime(
        base_s=fit.base_s,
        context_s=fit.context_s / stages,
        sequence_s=fit.sequence_s / stages,
        prefill_s=fit.prefill_s / stages,
        first_base_s=modelled.first_base_s,
        first_token_s=modelled.first_token_s,
        label="measured" if stages == 1 else "modelled",
    )


def _by_operators(deployment: Deployment, batch: float) -> StepTime:
    """Return the step's constants from version 2 on, an engine's times included."""
    stages, engine = deployment.pipeline_parallel, gpu_rates.engine_times(deployment.model)
    step = gpu_rates.step_constants(deployment, max(1.0, batch / stages))
    return StepTime(
        base_s=step["base_s"] + engine.layer_s * deployment.model.layers,
        context_s=step["context_s"] / stages,
        sequence_s=(step["sequence_s"] + engine.sequence_s) / stages,
        prefill_s=engine.prompt * (step["prefill_s"] + step["link_s"]) / stages,
        first_base_s=engine.first_s + engine.first_prompt * step["prompt_s"],
        first_token_s=engine.first_prompt * step["prefill_s"] + engine.first_link * step["link_s"],
        label="extrapolated" if gpu_rates.is_extrapolated(deployment.gpu.name) else "modelled",
        prompt_s=engine.prompt * step["prompt_s"] / stages,
        attention_s=engine.prompt * step["attention_s"] / stages,
        first_attention_s=engine.first_prompt * step["attention_s"],
    )


def _alone_no_faster(step: StepTime) -> StepTime:
    """Return a step whose prompts take as long alone as in a batch, or longer.

    Alone, all-reduces overlap with computation. How much was fitted on NVLink, and is too much where they take longer
    than the computation.
    """
    return dataclasses.replace(
        step,
        first_base_s=max(step.first_base_s, step.prompt_s),
        first_token_s=max(step.first_token_s, step.prefill_s),
        first_attention_s=max(step.first_attention_s, step.attention_s),
    )


def step_key(deployment: Deployment) -> tuple[str, str, str, int]:
    """Return what a measured step is found by: model, GPU, precision and TP degree."""
    precision = "fp16" if deployment.precision == "bf16" else deployment.precision
    return deployment.model.name, deployment.gpu.name, precision, deployment.tensor_parallel


def _through_network(step: StepTime, deployment: Deployment, options: RooflineOptions) -> StepTime:
    """Return a pipeline's step with the way of 16-bit activations from node to node, and back to the first."""
    stages = deployment.pipeline_parallel
    token_s = 2.0 * deployment.model.hidden / 1e9 / options.network_gb_per_s
    return dataclasses.replace(
        step,
        base_s=step.base_s + stages * options.network_s,
        sequence_s=step.sequence_s + token_s,  # 1/PP of the sequences, PP times
        first_base_s=step.first_base_s + stages * options.network_s,
        first_token_s=step.first_token_s + stages * token_s,
    )


def _measured(deployment: Deployment, base_s: float) -> IterationFit | None:
    """Return the fit of the fastest engine at 32 sequences of 2,048 tokens, or None.

    Left out are poor fits, and engines that the host slows down to many times the roofline at any load.
    """
    key = step_key(deployment)
    fits = [
        f
        for f in iteration_fits()
        if (f.model, f.gpu, f.precision, f.tensor_parallel) == key
        and f.mape <= _WORST_FIT
        and f.base_s <= _SLOW_HOST * base_s
    ]
    return min(
        fits, key=lambda f: f.base_s + 32 * (f.sequence_s + f.context_s / 4 + f.prefill_s), default=None
    )


def _roofline(deployment: Deployment, efficiency: Efficiency) -> StepTime:
    """Return the step's constants of version 1, from the datasheet and the calibrated efficiencies."""
    model, gpu, n = deployment.model, deployment.gpu, deployment.tensor_parallel
    stages, bandwidth = deployment.pipeline_parallel, n * gpu.bandwidth_gb_per_s
    read_gb = weight_gb_read(deployment, efficiency.expert_batch)
    weights_s = read_gb / (bandwidth * efficiency.bandwidth_weights)
    layers_s = model.layers * (efficiency.layer_s + (efficiency.layer_parallel_s if n > 1 else 0.0))
    kv_s = kv_gb_per_token(deployment) * REFERENCE_CONTEXT / (bandwidth * efficiency.bandwidth_kv)
    # Two all-reduces of 16-bit activations per layer, each moving 2 (n-1)/n of them.
    link_gb = 8.0 * model.layers * model.hidden * (n - 1) / n / 1e9
    peak = n * gpu.tflops(deployment.precision)
    token_s = token_tflop(deployment) / (peak * efficiency.tensor) + link_gb / (
        gpu.peer_gb_per_s * efficiency.link
    )
    alone = efficiency.first_token_mixture if model.experts else efficiency.first_token_dense
    return StepTime(
        base_s=weights_s + layers_s,
        context_s=kv_s / stages,
        sequence_s=token_s / stages,
        prefill_s=token_s / stages,
        first_base_s=weights_s + layers_s + efficiency.first_token_base_s,
        first_token_s=token_s * alone,
        label="modelled",
    )


def token_tflop(deployment: Deployment) -> float:
    """Return the compute of one token: two operations per active parameter, in TFLOP."""
    return 2.0 * deployment.model.active_params_b / 1000.0


def most_tokens(deployment: Deployment, options: RooflineOptions = DEFAULT) -> int:
    """Return the most tokens of one sequence that the memory and the model hold; 0 where the weights do not fit.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> eight = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("L4"), precision="fp16")
    >>> most_tokens(eight)
    27008
    """
    kv_gb, model = kv_capacity_gb(deployment, options), deployment.model

    def fits(tokens: int) -> bool:
        return float(model.kv_bytes(tokens)) * repeated(deployment) / 1e9 <= kv_gb

    low, high = 0, model.max_context
    if kv_gb > 0.0 and fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _held(
    deployment: Deployment, options: RooflineOptions, held: HeldTokens, kv_gb: float
) -> tuple[int, float]:
    """Return how many sequences run at once, and the KV memory in tokens of whole requests."""
    context = held.context(deployment.model)

    def counted_gb(n: int) -> tuple[float, float]:
        step = step_time(deployment, options, n)
        # While a sequence generates, the prompts of the others are computed between its tokens.
        token_s = step.per_output_token_s(n, context) + (n - 1) * _mixed_s(step, held)
        mean, spread, whole = held.moments(deployment.model, step.first_token_s, token_s)
        total = n * mean + DEVIATIONS * n**0.5 * spread
        return total * repeated(deployment) / 1e9, n * whole * kv_gb_per_token(deployment)

    low, high = 1, 2
    while high <= _MOST_HELD and counted_gb(high)[0] <= kv_gb:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if counted_gb(middle)[0] <= kv_gb else (low, middle)
    return min(options.max_num_seqs, low), counted_gb(low)[1]


def _mixed_s(step: StepTime, held: HeldTokens) -> float:
    """Return how long the prompts take that come for each token generated, in seconds."""
    found = step.prompt_s * held.prompts_per_output + step.prefill_s * held.computed_per_output
    return found + step.attention_s * held.squares_per_output


def kv_capacity_gb(deployment: Deployment, options: RooflineOptions = DEFAULT) -> float:
    """Return the memory that weights and reserve leave for the KV cache, over all GPUs; may be negative."""
    per_gpu = deployment.gpu.memory_gb * options.memory_share - options.reserve_gb
    return deployment.gpus * per_gpu - deployment.weight_gb


def capacity(deployment: Deployment, options: RooflineOptions = DEFAULT) -> Capacity | None:
    """Return what one replica has to give, or None where not even one full sequence fits.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP.
    options : RooflineOptions
        Assumptions.

    Returns
    -------
    Capacity or None
        Compute is the tensor rate times its efficiency times the pipeline's bubble; concurrency is
        min(max_num_seqs, floor(KV capacity / (KV per token x context limit))). Where `options.held` says what
        sequences hold, it is the most for which the mean that they hold together, and two standard deviations, fit;
        the KV capacity is then in tokens of whole requests, as an instance counts them, and that many fit.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> seventy = Deployment(model=catalog.model("Llama-3.1-70B"), gpu=catalog.gpu("H100"), precision="fp8",
    ...                      tensor_parallel=2)
    >>> replica = capacity(seventy)
    >>> replica.max_concurrency, round(replica.kv_capacity_gb, 2)
    (25, 69.45)
    >>> capacity(dataclasses.replace(seventy, tensor_parallel=1)) is None
    True
    """
    kv_gb, per_token = kv_capacity_gb(deployment, options), kv_gb_per_token(deployment)
    context = min(options.context_limit, deployment.model.max_context)
    one_gb = deployment.model.kv_bytes(context) * repeated(deployment) / 1e9
    if kv_gb <= 0.0 or kv_gb < one_gb:
        return None
    if options.held is None:
        slots = min(options.max_num_seqs, int(kv_gb / one_gb))
    else:
        slots, kv_gb = _held(deployment, options, options.held, kv_gb)
    stages = deployment.pipeline_parallel
    bubble = options.microbatches / (options.microbatches + stages - 1)
    peak = deployment.gpus * deployment.gpu.tflops(deployment.precision)
    return Capacity(
        compute_tflops=peak * _tensor_share(deployment, options) * bubble,
        kv_capacity_gb=kv_gb,
        kv_gb_per_token=per_token,
        max_concurrency=slots,
        label="modelled",
    )


def _tensor_share(deployment: Deployment, options: RooflineOptions) -> float:
    """Return the share of the tensor rate that prompts reach."""
    if options.coefficients == 1:
        return options.efficiency.tensor
    rates = gpu_rates.rates(deployment.gpu.name)
    is_8bit = WEIGHT_BYTES[deployment.precision] == 1.0
    return min(1.0, 1.0 / (rates.prompt_tensor_8bit if is_8bit else rates.prompt_tensor))


def pair(
    deployment: Deployment,
    requests: Requests,
    options: RooflineOptions = DEFAULT,
    *,
    context_tokens: float | None = None,
    at_once: int | None = None,
) -> PairPerformance | None:
    """Return how a deployment serves one workload's requests, or None if it cannot.

    A request holds its slot while its own prompt and, in turn, those of the others in the batch are
    processed, and then for one step per output token. Its delay is the same: waiting is the tail's matter. The others
    are like itself or, from version 2 on, a mixture of all requests of `options.held`: they bring as many prompt
    tokens as these do for each token that is generated.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP.
    requests : Requests
        At nominal lengths.
    options : RooflineOptions
        Assumptions.
    context_tokens : float, optional
        Mean context of all sequences in the batch; by default that of this workload,
        input + output / 2.
    at_once : int, optional
        Requests that a replica serves at once; by default those of `capacity`; times then hold at full load, and are
        pessimistic below it.

    Returns
    -------
    PairPerformance or None
        None where the mean request exceeds the context limit or `capacity` is None.
    """
    input_tokens, output_tokens = requests.input_tokens, requests.output_tokens
    if input_tokens + output_tokens > min(options.context_limit, deployment.model.max_context):
        return None
    if at_once is None:
        replica = capacity(deployment, options)
        if replica is None:
            return None
        batch = max(1.0, float(replica.max_concurrency))
    else:
        batch = float(at_once)
    step = step_time(deployment, options, batch)
    context = input_tokens + output_tokens / 2.0 if context_tokens is None else context_tokens
    share, token = requests.computed_share, token_tflop(deployment)
    # The mean square of the prompts over their mean; what is computed reads what the cache holds, too.
    square = (2.0 - share) * input_tokens * (1.0 + requests.input_cv2)
    first_token_s = step.first_token_s + step.first_attention_s * square
    others_token_s = step.prefill_s + step.attention_s * square
    if options.coefficients >= 2 and options.held is not None:
        held = options.held
        mixed_s = _mixed_s(step, held)
        service_s = Coefficients(
            step.first_base_s,
            share * first_token_s,
            step.per_output_token_s(batch, context) + (batch - 1.0) * mixed_s,
        )
        prompts, each = held.prompts_per_output, held.computed_per_output
        spread = prompts * held.squares_per_output / each**2 if each > 0.0 else 1.0
    else:
        service_s = Coefficients(
            step.first_base_s + (batch - 1.0) * step.prompt_s,
            share * (first_token_s + (batch - 1.0) * others_token_s),
            step.per_output_token_s(batch, context),
        )
        mixed_s = (step.prompt_s + share * input_tokens * others_token_s) / output_tokens
        prompts, spread = 1.0 / output_tokens, 1.0 + requests.input_cv2
    found = requests.served(
        service_s=service_s,
        prefill_s=Coefficients(step.first_base_s, share * first_token_s, 0.0),
        work_tflop=Coefficients(0.0, share * token, token),
        label=step.label,
    )
    return dataclasses.replace(
        found, others_s=(batch - 1.0) * mixed_s, others_shape=(batch - 1.0) * prompts / max(1.0, spread)
    )
