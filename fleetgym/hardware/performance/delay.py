"""Compute FastLLM's delays, memory and compute of a request from weights, bandwidth, and tensor and pipeline degree.

Where the paper is silent or inconsistent, the docstrings say what is chosen here and what the paper does. Units are
seconds, GB and GB/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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

_EFFICIENCY = 0.9  # eta at one pipeline stage
_MICROBATCHES = 8  # in flight


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


def free_memory_gb(memory_gb: float, weight_gb: float, precision: str, gpus: int) -> float:
    """Return what the weights leave for the KV cache of one replica, gpus x C - sigma B (eq. 5f).

    The paper keeps the weights' FP16 size; here they shrink with the precision.

    Parameters
    ----------
    memory_gb : float
        Memory of one GPU, C.
    weight_gb : float
        FP16 weights, B.
    precision : str
        A key of `SIGMA`.
    gpus : int
        n x m.

    Returns
    -------
    float
        GB, all GPUs together; negative where the weights do not fit.
    """
    return gpus * memory_gb - weight_gb * _of(SIGMA, precision)


def compute_efficiency(pipeline_parallel: int) -> float:
    """Return eta(m), the share of the GPUs' TFLOPS that a pipeline of m stages uses (eq. 5g).

    With b micro-batches in flight, a pipeline works in b of b + m - 1 steps. The paper has one eta for every depth:
    with its tiny communication delay, depth then neither costs nor gains anything.

    Examples
    --------
    >>> [round(compute_efficiency(m), 3) for m in (1, 2, 4)]
    [0.9, 0.8, 0.655]
    """
    return _EFFICIENCY * _MICROBATCHES / (_MICROBATCHES + pipeline_parallel - 1)


def work_tflop_per_token(params_b: float, kappa: float = 1.0) -> float:
    """Return the compute of one token, alpha = 2 x parameters x kappa, in TFLOP.

    It does not shrink with the precision: the tier's TFLOPS already hold that gain.

    Parameters
    ----------
    params_b : float
        Billions of parameters that a token touches.
    kappa : float
        Task overhead on compute.
    """
    return 2.0 * params_b * kappa / 1000.0


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
