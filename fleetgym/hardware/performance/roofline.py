"""A roofline of LLM serving: from a deployment and nominal lengths to service times, work and capacities.

One decoding step of n sequences with mean context L takes

    t(n, L) = base + context n L/8192 + sequence n        seconds per output token and sequence,

and each token of a prompt takes ``prefill`` seconds from everybody. The constants come from a fit to measured
runs where `fleetgym.hardware.catalog.iteration_fits` has one for the model, GPU, precision and TP degree, otherwise
from the datasheet: weights and KV cache at the memory bandwidth, tokens at the tensor rate and the link
between GPUs, and a fixed time per layer, each with an `Efficiency`. ``tools/calibrate_roofline.py`` fits
these to 1,130 measured times per output token on H100 and H200 (TP 1 to 8, five models): mean absolute error
23 %, median 13 %; dense models 16 % and 8 %. The time to first token is a second fit, to 98 runs with at most
four requests at once, so it is a little pessimistic: mean 18 %, median 11 % for dense models, but 36 % and
38 % for mixtures of experts. Other GPUs are extrapolated: nothing was measured on them here.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware.catalog import IterationFit, iteration_fits
from fleetgym.hardware.performance.coefficients import (
    Capacity,
    Coefficients,
    Deployment,
    PairPerformance,
    service_cv2,
)

_REFERENCE_CONTEXT = 8192.0
_WORST_FIT = 0.15  # mean absolute relative error
_SLOW_HOST = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """How far measured serving stays behind the datasheet; the defaults are the calibrated values."""

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
        Tokens reserved for one sequence; a model's own limit if that is smaller.
    batch_share : float
        The batch at which times are taken, as a share of `Capacity.max_concurrency`. With 1 they hold at full
        load and are pessimistic below it.
    microbatches : int
        Micro-batches in a pipeline.
    measured : {"prefer", "ignore"}
        Whether a fit to measured runs replaces the roofline where there is one.
    efficiency : Efficiency
        Calibrated constants.
    """

    memory_share: float = 0.9
    reserve_gb: float = 2.0
    max_num_seqs: int = 256
    context_limit: int = 8192
    batch_share: float = 1.0
    microbatches: int = 8
    measured: Literal["prefer", "ignore"] = "prefer"
    efficiency: Efficiency = Efficiency()

    def __post_init__(self) -> None:
        if self.measured not in ("prefer", "ignore"):
            raise UnknownNameError("mode of measured", self.measured, ("prefer", "ignore"))


DEFAULT = RooflineOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """Constants of a decoding step in seconds.

    A prompt alone takes `first_base_s` and `first_token_s` a token; each of its tokens takes `prefill_s` from
    everybody else. `label` is ``"measured"`` for fits to measured runs, ``"modelled"`` for the roofline.
    """

    base_s: float
    context_s: float
    sequence_s: float
    prefill_s: float
    first_base_s: float
    first_token_s: float
    label: str

    def per_output_token_s(self, sequences: float, context: float) -> float:
        """Return t(n, L)."""
        return self.base_s + sequences * (self.sequence_s + self.context_s * context / _REFERENCE_CONTEXT)


def step_time(deployment: Deployment, options: RooflineOptions = DEFAULT) -> StepTime:
    """Return the step's constants: measured where possible, else from the roofline.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP. A pipeline works on 1/PP of the sequences at a time.
    options : RooflineOptions
        Assumptions.

    Returns
    -------
    StepTime
        Seconds.
    """
    modelled = _roofline(deployment, options.efficiency)
    fit = _measured(deployment, modelled.base_s) if options.measured == "prefer" else None
    if fit is None:
        return modelled
    stages = deployment.pipeline_parallel
    return StepTime(
        base_s=fit.base_s,
        context_s=fit.context_s / stages,
        sequence_s=fit.sequence_s / stages,
        prefill_s=fit.prefill_s / stages,
        first_base_s=modelled.first_base_s,
        first_token_s=modelled.first_token_s,
        label="measured" if stages == 1 else "modelled",
    )


def _measured(deployment: Deployment, base_s: float) -> IterationFit | None:
    """Return the fit of the fastest engine at 32 sequences of 2,048 tokens, or None.

    Left out are poor fits, and engines that the host slows down to many times the roofline at any load.
    """
    precision = "fp16" if deployment.precision == "bf16" else deployment.precision
    key = (deployment.model.name, deployment.gpu.name, precision, deployment.tensor_parallel)
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
    """Return the step's constants from the datasheet and the calibrated efficiencies."""
    model, gpu, n = deployment.model, deployment.gpu, deployment.tensor_parallel
    bandwidth = n * gpu.bandwidth_gb_per_s
    weights_s = _weight_gb_read(deployment, efficiency.expert_batch) / (
        bandwidth * efficiency.bandwidth_weights
    )
    layers_s = model.layers * (efficiency.layer_s + (efficiency.layer_parallel_s if n > 1 else 0.0))
    kv_s = kv_gb_per_token(deployment) * _REFERENCE_CONTEXT / (bandwidth * efficiency.bandwidth_kv)
    token_s = token_tflop(deployment) / (n * gpu.tflops(deployment.precision) * efficiency.tensor)
    # Two all-reduces of 16-bit activations per layer, each moving 2 (n-1)/n of them.
    link_gb = 8.0 * model.layers * model.hidden * (n - 1) / n / 1e9
    token_s += link_gb / (gpu.peer_gb_per_s * efficiency.link)
    alone = efficiency.first_token_mixture if model.experts else efficiency.first_token_dense
    stages = deployment.pipeline_parallel
    return StepTime(
        base_s=weights_s + layers_s,
        context_s=kv_s / stages,
        sequence_s=token_s / stages,
        prefill_s=token_s / stages,
        first_base_s=weights_s + layers_s + efficiency.first_token_base_s,
        first_token_s=token_s * alone,
        label="modelled",
    )


def _weight_gb_read(deployment: Deployment, batch: int) -> float:
    """Return the weights that a step reads: all of a dense model, of a mixture the experts in use."""
    model = deployment.model
    if model.experts == 0:
        return deployment.weight_gb
    chosen = model.experts_per_token / model.experts
    common = max(0.0, (model.active_params_b - chosen * model.params_b) / (1.0 - chosen))
    touched = common + (model.params_b - common) * (1.0 - (1.0 - chosen) ** batch)
    return deployment.weight_gb * touched / model.params_b


def token_tflop(deployment: Deployment) -> float:
    """Return the compute of one token: two operations per active parameter, in TFLOP."""
    return 2.0 * deployment.model.active_params_b / 1000.0


def kv_gb_per_token(deployment: Deployment) -> float:
    """Return the KV cache of one token over all GPUs; heads are repeated where TP exceeds them."""
    repeated = max(1.0, deployment.tensor_parallel / deployment.model.kv_heads)
    return deployment.model.kv_bytes_per_token * repeated / 1e9


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
        min(max_num_seqs, floor(KV capacity / (KV per token x context limit))).

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
    slots = min(options.max_num_seqs, int(kv_gb / (per_token * context)))
    if kv_gb <= 0.0 or slots < 1:
        return None
    stages = deployment.pipeline_parallel
    bubble = options.microbatches / (options.microbatches + stages - 1)
    peak = deployment.gpus * deployment.gpu.tflops(deployment.precision)
    return Capacity(
        compute_tflops=peak * options.efficiency.tensor * bubble,
        kv_capacity_gb=kv_gb,
        kv_gb_per_token=per_token,
        max_concurrency=slots,
        label="modelled",
    )


def pair(
    deployment: Deployment,
    *,
    input_tokens: float,
    output_tokens: float,
    error: float,
    context_tokens: float | None = None,
    computed_share: float = 1.0,
    input_cv2: float = 1.0,
    output_cv2: float = 1.0,
    correlation: float = 0.0,
    storage_usd: float = 0.0,
    options: RooflineOptions = DEFAULT,
) -> PairPerformance | None:
    """Return what a deployment does to one workload's requests, or None where it cannot serve them.

    A request holds its slot while its own prompt and, in turn, those of the others in the batch are
    processed, and then for one step per output token. Its delay is the same: waiting is the tail's matter.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP.
    input_tokens, output_tokens : float
        Nominal mean lengths of the workload.
    error : float
        Error share of its requests, see `fleetgym.hardware.catalog.error_share`.
    context_tokens : float, optional
        Mean context of all sequences in the batch; by default that of this workload,
        input + output / 2.
    computed_share : float
        Share of the prompts' tokens that are computed; the others are in a prefix cache.
    input_cv2, output_cv2, correlation : float
        Variability of the computed and generated lengths, for the second moment of the service time.
    storage_usd : float
        Data storage of one request.
    options : RooflineOptions
        Assumptions.

    Returns
    -------
    PairPerformance or None
        None where the mean request exceeds the context limit or `capacity` is None.
    """
    replica = capacity(deployment, options)
    limit = min(options.context_limit, deployment.model.max_context)
    if replica is None or input_tokens + output_tokens > limit:
        return None
    step = step_time(deployment, options)
    batch = max(1.0, options.batch_share * replica.max_concurrency)
    context = input_tokens + output_tokens / 2.0 if context_tokens is None else context_tokens
    prefill = Coefficients(step.first_base_s, computed_share * step.first_token_s, 0.0)
    service = Coefficients(
        step.first_base_s,
        computed_share * (step.first_token_s + (batch - 1.0) * step.prefill_s),
        step.per_output_token_s(batch, context),
    )
    token = token_tflop(deployment)
    return PairPerformance(
        delay_s=service,
        service_s=service,
        prefill_s=prefill,
        work_tflop=Coefficients(0.0, computed_share * token, token),
        error=error,
        service_cv2=service_cv2(service, input_tokens, output_tokens, input_cv2, output_cv2, correlation),
        storage_usd=storage_usd,
        label=step.label,
    )
