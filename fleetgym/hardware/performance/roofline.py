"""Compute service times, work and capacities of a deployment at nominal lengths from a roofline of LLM serving.

One decoding step of n sequences with mean context L takes

    t(n, L) = base + context n L/8192 + sequence n        seconds per output token and sequence,

and each token of a prompt takes ``prefill`` seconds from everybody. The constants come from a fit to measured
runs where `fleetgym.hardware.catalog.iteration_fits` has one for the model, GPU, precision and TP degree, otherwise
from the datasheet: weights and KV cache at the memory bandwidth, tokens at the tensor rate and the link
between GPUs, and a fixed time per layer, each with an `Efficiency`. They were fitted to 1,130 measured times per
output token on H100 and H200 (TP 1 to 8, five models; ``tools/calibrate_roofline.py`` of commit b96ac88): mean
absolute error 23 %, median 13 %; dense models 16 % and 8 %. The time to first token is a second fit, to 98 runs
with at most four requests at once, so it is a little pessimistic: mean 18 %, median 11 % for dense models, but 36 % and
38 % for mixtures of experts. Other GPUs are extrapolated: nothing was measured on them here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware.catalog import WEIGHT_BYTES, IterationFit, iteration_fits
from fleetgym.hardware.performance.coefficients import (
    Capacity,
    Coefficients,
    Deployment,
    PairPerformance,
    Requests,
)
from fleetgym.hardware.performance.held import DEVIATIONS, HeldTokens

_REFERENCE_CONTEXT = 8192.0
_WORST_FIT = 0.15  # mean absolute relative error
_SLOW_HOST = 3.0
_MOST_HELD = 2**16


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
    expert_batch: int = 32  # sequences whose experts are read in one step; 0: those there are
    prompt_tensor: float | None = None  # of prompts; None: as of tokens that are generated
    prompt_tensor_8bit: float | None = None
    prompt_link: float | None = None
    expert_trips: float = (
        0.0  # of a prompt token's activations through memory, for each expert that it is sent to
    )
    sequence_s: float = 0.0  # of the host, per step, for each sequence in it
    prompt_layer_s: float = 0.0  # per layer and prompt
    layer_mixture_s: float = 0.0  # more per layer of a mixture of experts


#: Calibrated on the highest request rates that were measured, by ``tools/check_plans.py``; for imported traces.
PLANNING = Efficiency(
    bandwidth_weights=1.0,
    bandwidth_kv=1.0,
    tensor=1.0,
    link=math.inf,
    layer_s=90.3e-6,
    layer_parallel_s=0.0,
    first_token_dense=1.05,
    first_token_mixture=2.6,
    expert_batch=0,
    prompt_tensor=0.856,
    prompt_tensor_8bit=0.519,
    prompt_link=0.539,
    expert_trips=40.0,
    sequence_s=31.8e-6,
    prompt_layer_s=71.2e-6,
)

#: Proposed for the next version of the catalogue: fitted by ``tools/check_calibration.py``, judged on unseen pairs.
NEXT = Efficiency(
    bandwidth_weights=0.952,
    bandwidth_kv=0.836,
    tensor=0.909,
    link=0.335,
    layer_s=68.9e-6,
    layer_parallel_s=0.0,
    first_token_base_s=0.0349,
    first_token_dense=0.919,
    first_token_mixture=1.77,
    expert_batch=0,
    prompt_tensor=0.87,
    prompt_tensor_8bit=0.474,
    prompt_link=0.621,
    expert_trips=104.0,
    layer_mixture_s=39.7e-6,
)


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
    measured : {"prefer", "ignore"}
        Whether a fit to measured runs replaces the roofline where there is one.
    efficiency : Efficiency
        Calibrated constants.
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
    measured: Literal["prefer", "ignore"] = "prefer"
    efficiency: Efficiency = Efficiency()
    network_s: float = 0.0
    network_gb_per_s: float = math.inf
    steps: Mapping[tuple[str, str, str, int], StepTime] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.measured not in ("prefer", "ignore"):
            raise UnknownNameError("mode of measured", self.measured, ("prefer", "ignore"))


DEFAULT = RooflineOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """Constants of a decoding step in seconds.

    A prompt alone takes `first_base_s` and `first_token_s` a token. It takes `prompt_s`, and `prefill_s` a token, from
    everybody else. `label` is ``"measured"`` for fits to measured runs, ``"modelled"`` for the roofline.
    """

    base_s: float
    context_s: float
    sequence_s: float
    prefill_s: float
    first_base_s: float
    first_token_s: float
    label: str
    prompt_s: float = 0.0

    def per_output_token_s(self, sequences: float, context: float) -> float:
        """Return t(n, L)."""
        return self.base_s + sequences * (self.sequence_s + self.context_s * context / _REFERENCE_CONTEXT)


def step_time(
    deployment: Deployment, options: RooflineOptions = DEFAULT, batch: float | None = None
) -> StepTime:
    """Return the step's constants: measured where possible, else from the roofline.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision, TP and PP. A pipeline works on 1/PP of the sequences at a time.
    options : RooflineOptions
        Assumptions.
    batch : float, optional
        Sequences at once, on which depends how many experts of a mixture are read; by default
        ``options.max_num_seqs``. Matters only where ``options.efficiency.expert_batch`` is 0.

    Returns
    -------
    StepTime
        Seconds.
    """
    modelled = _roofline(deployment, options.efficiency, batch or options.max_num_seqs)
    stages = deployment.pipeline_parallel
    if stages > 1:
        modelled = _through_network(modelled, deployment, options)
    own = options.steps.get(step_key(deployment)) if stages == 1 else None
    if own is not None:
        return own
    fit = _measured(deployment, modelled.base_s) if options.measured == "prefer" else None
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


def _roofline(deployment: Deployment, efficiency: Efficiency, batch: float = 0.0) -> StepTime:
    """Return the step's constants from the datasheet and the calibrated efficiencies."""
    model, gpu, n = deployment.model, deployment.gpu, deployment.tensor_parallel
    stages, bandwidth = deployment.pipeline_parallel, n * gpu.bandwidth_gb_per_s
    read_gb = _weight_gb_read(deployment, efficiency.expert_batch or max(1.0, batch / stages))
    weights_s = read_gb / (bandwidth * efficiency.bandwidth_weights)
    layer_s = efficiency.layer_s + (efficiency.layer_parallel_s if n > 1 else 0.0)
    layers_s = model.layers * (layer_s + (efficiency.layer_mixture_s if model.experts else 0.0))
    kv_s = kv_gb_per_token(deployment) * _REFERENCE_CONTEXT / (bandwidth * efficiency.bandwidth_kv)
    # Two all-reduces of 16-bit activations per layer, each moving 2 (n-1)/n of them.
    link_gb = 8.0 * model.layers * model.hidden * (n - 1) / n / 1e9

    def computed_s(tensor: float, link: float) -> float:
        peak = n * gpu.tflops(deployment.precision)
        return token_tflop(deployment) / (peak * tensor) + link_gb / (gpu.peer_gb_per_s * link)

    token_s = computed_s(efficiency.tensor, efficiency.link)
    tensor = efficiency.prompt_tensor or efficiency.tensor
    if WEIGHT_BYTES[deployment.precision] == 1.0 and efficiency.prompt_tensor_8bit:
        tensor = efficiency.prompt_tensor_8bit
    routed_gb = 2.0 * model.layers * model.hidden * model.experts_per_token / 1e9
    prompt_s = computed_s(tensor, efficiency.prompt_link or efficiency.link)
    prompt_s += efficiency.expert_trips * routed_gb / bandwidth
    alone = efficiency.first_token_mixture if model.experts else efficiency.first_token_dense
    return StepTime(
        base_s=weights_s + layers_s,
        context_s=kv_s / stages,
        sequence_s=(token_s + efficiency.sequence_s) / stages,
        prefill_s=prompt_s / stages,
        first_base_s=weights_s + layers_s + efficiency.first_token_base_s,
        first_token_s=prompt_s * alone,
        label="modelled",
        prompt_s=efficiency.prompt_layer_s * model.layers / stages,
    )


def _weight_gb_read(deployment: Deployment, batch: float) -> float:
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
    return deployment.model.kv_bytes_per_token * _repeated(deployment) / 1e9


def _repeated(deployment: Deployment) -> float:
    return max(1.0, deployment.tensor_parallel / deployment.model.kv_heads)


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
        return float(model.kv_bytes(tokens)) * _repeated(deployment) / 1e9 <= kv_gb

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
        token_s = step.per_output_token_s(n, context) + (n - 1) * step.prefill_s * held.computed_per_output
        mean, spread, whole = held.moments(deployment.model, step.first_token_s, token_s)
        total = n * mean + DEVIATIONS * n**0.5 * spread
        return total * _repeated(deployment) / 1e9, n * whole * kv_gb_per_token(deployment)

    low, high = 1, 2
    while high <= _MOST_HELD and counted_gb(high)[0] <= kv_gb:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if counted_gb(middle)[0] <= kv_gb else (low, middle)
    return min(options.max_num_seqs, low), counted_gb(low)[1]


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
    one_gb = deployment.model.kv_bytes(context) * _repeated(deployment) / 1e9
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
        compute_tflops=peak * options.efficiency.tensor * bubble,
        kv_capacity_gb=kv_gb,
        kv_gb_per_token=per_token,
        max_concurrency=slots,
        label="modelled",
    )


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
    processed, and then for one step per output token. Its delay is the same: waiting is the tail's matter.

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
    return requests.served(
        service_s=Coefficients(
            step.first_base_s + (batch - 1.0) * step.prompt_s,
            share * (step.first_token_s + (batch - 1.0) * step.prefill_s),
            step.per_output_token_s(batch, context),
        ),
        prefill_s=Coefficients(step.first_base_s, share * step.first_token_s, 0.0),
        work_tflop=Coefficients(0.0, share * token, token),
        label=step.label,
    )
