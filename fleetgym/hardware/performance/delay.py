"""FastLLM's delay and memory model: from weights, bandwidth and (TP, PP) to delays, KV use and storage.

Where the paper is silent or inconsistent, `DelayOptions` names the choice. Its defaults are what is right;
`DelayOptions.paper()` is what the publication does. Units here are seconds, GB and GB/s; the paper's
milliseconds and 24-hour prices belong to the loader of its instances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware.performance.coefficients import Coefficients

#: Weight bytes relative to FP16, the paper's sigma (section 4.1).
SIGMA: Mapping[str, float] = MappingProxyType(
    {"fp16": 1.0, "bf16": 1.0, "fp8": 0.5, "int8": 0.5, "int4": 0.25}
)
#: Error relative to FP16 (section 4.1; FP8 is not in the paper and taken as INT8).
ERROR_FACTOR: Mapping[str, float] = MappingProxyType(
    {"fp16": 1.0, "bf16": 1.0, "fp8": 1.15, "int8": 1.15, "int4": 1.35}
)

KvMode = Literal["littles-law", "paper"]
MemoryMode = Literal["quantised", "paper"]
StorageMode = Literal["per-deployment", "paper"]
BubbleMode = Literal["pipeline", "constant"]
ScalingMode = Literal["off", "paper"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DelayOptions:
    """The choices that FastLLM leaves open, each with the right default and the paper's reading.

    Parameters
    ----------
    kv : {"littles-law", "paper"}
        KV memory of eq. (5f). ``littles-law``: tokens resident are arrival rate x delay x tokens. ``paper``:
        no arrival rate, and a residency of tokens x KV bytes / bandwidth, about 0.1 ms: it never binds.
    memory : {"quantised", "paper"}
        Whether weights in memory shrink with the precision. The paper keeps their FP16 size.
    model_storage : {"per-deployment", "paper"}
        Whether stored weights are paid once per deployed (model, tier) or, as printed, per workload too.
    bubble : {"pipeline", "constant"}
        Compute efficiency: with the bubble of a pipeline of `microbatches`, or one eta for every depth. With
        the constant, and a tiny communication delay, depth neither costs nor gains anything.
    compute_scaling : {"off", "paper"}
        Whether work per token shrinks with the precision. The tier's TFLOPS already hold that gain, so
        the paper's scaling would count it twice.
    efficiency : float
        eta at one pipeline stage.
    microbatches : int
        Micro-batches in flight, for the bubble.
    """

    kv: KvMode = "littles-law"
    memory: MemoryMode = "quantised"
    model_storage: StorageMode = "per-deployment"
    bubble: BubbleMode = "pipeline"
    compute_scaling: ScalingMode = "off"
    efficiency: float = 0.9
    microbatches: int = 8

    def __post_init__(self) -> None:
        modes = {
            "kv": KvMode,
            "memory": MemoryMode,
            "model_storage": StorageMode,
            "bubble": BubbleMode,
            "compute_scaling": ScalingMode,
        }
        for name, kind in modes.items():
            if getattr(self, name) not in get_args(kind):
                raise UnknownNameError(f"mode of {name}", getattr(self, name), get_args(kind))

    @classmethod
    def paper(cls) -> DelayOptions:
        """Return the choices as published, but for compute scaling: the regime's magnitudes need it off."""
        return cls(kv="paper", memory="paper", model_storage="paper", bubble="constant")


DEFAULT = DelayOptions()


def compute_s_per_token(
    weight_gb: float, precision: str, bandwidth_gb_per_s: float, overhead: float = 1.0
) -> float:
    """Return the time to compute one token on one GPU, the paper's d_comp (section 4.1).

    Decoding is bound by reading the weights once per token.

    Parameters
    ----------
    weight_gb : float
        FP16 weights, B.
    precision : str
        A key of `SIGMA`.
    bandwidth_gb_per_s : float
        Memory bandwidth of the GPU.
    overhead : float
        Task overhead, tau.

    Returns
    -------
    float
        tau B sigma / BW in seconds.

    Examples
    --------
    >>> round(compute_s_per_token(16.0, "int8", 3350.0, 1.2), 7)
    0.0028657
    """
    return overhead * weight_gb * _of(SIGMA, precision) / bandwidth_gb_per_s


def communication_s_per_token(layers: int, hidden: int, nvlink_gb_per_s: float) -> float:
    """Return the time to pass one token's activations on, the paper's d_comm.

    Parameters
    ----------
    layers, hidden : int
        Shape of the model.
    nvlink_gb_per_s : float
        Bandwidth between GPUs.

    Returns
    -------
    float
        2 layers x hidden x 2 bytes / bandwidth in seconds.
    """
    return 2.0 * layers * hidden * 2.0 / (nvlink_gb_per_s * 1e9)


def delay_coefficients(
    compute_s: float, communication_s: float, tensor_parallel: int, pipeline_parallel: int
) -> Coefficients:
    """Return the delay D(n, m) = d_comp r/n + m d_comm f as a function of lengths (eq. 2).

    Parameters
    ----------
    compute_s, communication_s : float
        From `compute_s_per_token` and `communication_s_per_token`.
    tensor_parallel, pipeline_parallel : int
        n and m.

    Returns
    -------
    Coefficients
        Seconds; r = input + output tokens, f = output tokens.

    Examples
    --------
    >>> delay_coefficients(0.01, 0.001, 2, 4).at(100, 10)
    0.59
    """
    token = compute_s / tensor_parallel
    return Coefficients(0.0, token, token + pipeline_parallel * communication_s)


def prefill_coefficients(compute_s: float, tensor_parallel: int) -> Coefficients:
    """Return the time to first token d_comp h/n, h being the input tokens (the paper's D^TTFT)."""
    return Coefficients(0.0, compute_s / tensor_parallel, 0.0)


def free_memory_gb(
    memory_gb: float, weight_gb: float, precision: str, gpus: int, options: DelayOptions = DEFAULT
) -> float:
    """Return what the weights leave for the KV cache of one replica: gpus x C - B (eq. 5f).

    Parameters
    ----------
    memory_gb : float
        Memory of one GPU, C.
    weight_gb : float
        FP16 weights, B.
    precision : str
        A key of `SIGMA`; scales the weights unless ``options.memory`` is ``"paper"``.
    gpus : int
        n x m.
    options : DelayOptions
        The choices.

    Returns
    -------
    float
        GB, all GPUs together; negative where the weights do not fit.
    """
    scale = 1.0 if options.memory == "paper" else _of(SIGMA, precision)
    return gpus * memory_gb - weight_gb * scale


def kv_gb(
    kv_gb_per_token: float,
    tokens: float,
    rate_rps: float,
    delay_s: float,
    bandwidth_gb_per_s: float,
    options: DelayOptions = DEFAULT,
) -> float:
    """Return the KV memory that serving all of a workload takes in one replica (eq. 5f).

    The row is linear in both modes: the sum of `kv_gb` x fraction served is at most `free_memory_gb`.

    Parameters
    ----------
    kv_gb_per_token : float
        beta.
    tokens : float
        Tokens of a request, r.
    rate_rps : float
        Arrivals per second, used by Little's law only.
    delay_s : float
        Time a request stays, used by Little's law only.
    bandwidth_gb_per_s : float
        Memory bandwidth, used by the paper's residency only.
    options : DelayOptions
        The choices.

    Returns
    -------
    float
        GB.

    Examples
    --------
    >>> kv_gb(1e-4, 1000, 5.0, 2.0, 2000.0)
    1.0
    >>> kv_gb(1e-4, 1000, 5.0, 2.0, 2000.0, DelayOptions.paper()) < 1e-5
    True
    """
    if options.kv == "paper":
        residency_s = tokens * kv_gb_per_token / bandwidth_gb_per_s
        return kv_gb_per_token * tokens * residency_s
    return kv_gb_per_token * tokens * rate_rps * delay_s


def compute_efficiency(pipeline_parallel: int, options: DelayOptions = DEFAULT) -> float:
    """Return eta(m), the share of the GPUs' TFLOPS that a pipeline of m stages uses (eq. 5g).

    Parameters
    ----------
    pipeline_parallel : int
        m.
    options : DelayOptions
        The choices; with ``bubble="pipeline"`` b micro-batches fill b of b + m - 1 steps.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> [round(compute_efficiency(m), 3) for m in (1, 2, 4)]
    [0.9, 0.8, 0.655]
    >>> compute_efficiency(4, DelayOptions.paper())
    0.9
    """
    if options.bubble == "constant":
        return options.efficiency
    return options.efficiency * options.microbatches / (options.microbatches + pipeline_parallel - 1)


def work_tflop_per_token(
    params_b: float, precision: str, kappa: float = 1.0, options: DelayOptions = DEFAULT
) -> float:
    """Return the compute of one token, alpha = 2 x parameters x kappa, in TFLOP.

    Parameters
    ----------
    params_b : float
        Billions of parameters that a token touches.
    precision : str
        A key of `SIGMA`; matters only with ``compute_scaling="paper"``.
    kappa : float
        Task overhead on compute.
    options : DelayOptions
        The choices.

    Returns
    -------
    float
        TFLOP per token.
    """
    scale = _of(SIGMA, precision) if options.compute_scaling == "paper" else 1.0
    return 2.0 * params_b * kappa * scale / 1000.0


def stored_copies(deployments: int, workloads_served: int, options: DelayOptions = DEFAULT) -> int:
    """Return how many copies of a model's weights are paid for.

    Parameters
    ----------
    deployments : int
        (model, tier) pairs deployed.
    workloads_served : int
        (workload, model, tier) triples with a positive fraction.
    options : DelayOptions
        The choices.

    Returns
    -------
    int
        `workloads_served` as printed in the paper, `deployments` by default.
    """
    return workloads_served if options.model_storage == "paper" else deployments


def error_share(base_error_8b: float, params_b: float, precision: str) -> float:
    """Return the error of a model: base x (P/8)^-0.35 x quantisation factor (our regime, assumed).

    Examples
    --------
    >>> round(error_share(0.03, 8.0, "int4"), 4)
    0.0405
    """
    return base_error_8b * (params_b / 8.0) ** -0.35 * _of(ERROR_FACTOR, precision)


def _of(table: Mapping[str, float], precision: str) -> float:
    if precision not in table:
        raise UnknownNameError("precision", precision, table)
    return table[precision]
