"""Compute a step's constants from rates that were measured, operator by operator, on each GPU type.

Version 2 of the coefficients. A step is a sum of parts: weights and cache read from memory, multiplications,
all-reduces between GPUs, the start of each layer's kernels. Each part takes the datasheet's time, times a
slow-down that belongs to the GPU type, the precision and the phase (`GpuRates`, fitted to measured operators by
``tools/check_calibration.py``). An engine adds what its host does; `ENGINE` was fitted to measured runs of whole
engines.

All parts are linear in the constants, so the fit and the model share `parts`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fleetgym.files import quantities as q
from fleetgym.files.schema import NAME, Number, spec
from fleetgym.hardware import catalog
from fleetgym.hardware.catalog import WEIGHT_BYTES
from fleetgym.hardware.performance.coefficients import Deployment

REFERENCE_CONTEXT = 8192.0

#: What a part adds to: the columns of `parts`.
STEP = ("base_s", "context_s", "sequence_s", "prompt_s", "prefill_s", "attention_s", "link_s")
_BASE, _CONTEXT, _SEQUENCE, _PROMPT, _PREFILL, _ATTENTION, _LINK = range(len(STEP))

_SLOWER = Number(0.0, 1e4)  # times the datasheet's time


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuRates:
    """How much longer than by the datasheet the parts of a step take on one GPU type.

    ``_s``: seconds, per layer or all-reduce. All others are factors on the datasheet's time. ``prompt_``: of the
    pass that computes a prompt; else of a step that generates one token for each sequence. ``_8bit``, ``_4bit``:
    weights of that many bits; ``_mixture``: models with experts.
    """

    gpu: str = spec(NAME)
    weights: float = spec(_SLOWER)
    weights_8bit: float = spec(_SLOWER)
    weights_mixture: float = spec(_SLOWER)
    weights_mixture_8bit: float = spec(_SLOWER)
    weights_mixture_4bit: float = spec(_SLOWER)
    kv: float = spec(_SLOWER)
    tensor: float = spec(_SLOWER)
    tensor_8bit: float = spec(_SLOWER)
    expert_trips: float = spec(
        _SLOWER, doc="of a token's activations through memory, for each of its experts"
    )
    layer_s: float = spec(q.TAKEN_S)
    layer_mixture_s: float = spec(q.TAKEN_S)
    prompt_weights: float = spec(_SLOWER)
    prompt_weights_mixture: float = spec(_SLOWER)
    prompt_weights_mixture_8bit: float = spec(_SLOWER)
    prompt_weights_mixture_4bit: float = spec(_SLOWER)
    prompt_tensor: float = spec(_SLOWER)
    prompt_tensor_8bit: float = spec(_SLOWER)
    prompt_tensor_mixture: float = spec(_SLOWER)
    prompt_expert_trips: float = spec(_SLOWER)
    prompt_layer_s: float = spec(q.TAKEN_S)
    prompt_layer_mixture_s: float = spec(q.TAKEN_S)
    attention: float = spec(_SLOWER, doc="of a prompt with itself, at 16 bit")
    reduce_2: float = spec(_SLOWER, doc="all-reduce of 2 GPUs, bytes over the peer bandwidth")
    reduce_4: float = spec(_SLOWER)
    reduce_8: float = spec(_SLOWER)
    reduce_2_s: float = spec(q.TAKEN_S)
    reduce_4_s: float = spec(q.TAKEN_S)
    reduce_8_s: float = spec(q.TAKEN_S)
    label: str = spec(NAME)
    source: str = spec(NAME)
    licence: str = spec(NAME)


#: The constants that are fitted for each GPU type.
CONSTANTS = tuple(
    f.name for f in dataclasses.fields(GpuRates) if f.name not in ("gpu", "label", "source", "licence")
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineTimes:
    """What an engine adds to its GPUs' operators, the same on every GPU type.

    Parameters
    ----------
    layer_s : float
        Of the host, per layer and step.
    sequence_s : float
        Of the host, per sequence and step.
    prompt : float
        Factor on the time that a prompt takes from everybody.
    first_s : float
        Before the first token of a request that waits for no other.
    first_prompt, first_link : float
        Factors on the time of such a request's prompt: on its computation, and on its all-reduces, which overlap.
    """

    layer_s: float = 0.0
    sequence_s: float = 0.0
    prompt: float = 1.0
    first_s: float = 0.0
    first_prompt: float = 1.0
    first_link: float = 1.0


#: Fitted to measured runs on H100 and H200 by ``tools/check_calibration.py``: dense models, and mixtures of experts.
DENSE = EngineTimes(
    layer_s=1.31e-05, sequence_s=1.63e-05, prompt=0.819, first_s=0.0339, first_prompt=1.4, first_link=0.425
)
MIXTURE = EngineTimes(
    layer_s=1.39e-05, sequence_s=0.0, prompt=0.728, first_s=0.00146, first_prompt=1.8, first_link=7.55
)


def engine_times(model: catalog.ModelType) -> EngineTimes:
    """Return what engines add for a model."""
    return MIXTURE if model.experts else DENSE


#: Whose kernels stand in for a GPU type that was not measured: the nearest architecture. The page and plans say
#: "extrapolated".
LIKE: Mapping[str, str] = MappingProxyType(
    {
        "A10": "L40S",
        "A100-40GB": "A100-80GB",
        "A100-80GB-PCIe": "A100-80GB",
        "A10G": "L40S",
        "A30": "A100-80GB",
        "A40": "L40S",
        "A6000": "L40S",
        "GH200": "H100",
        "H100-NVL": "H100",
        "H100-PCIe": "H100",
        "H20": "H100",
        "L20": "L40S",
        "L4": "L40S",
        "L40": "L40S",
        "RTX-4090": "L40S",
        "T4": "L40S",
        "V100": "A100-80GB",
    }
)
_ELSE = "H100"
#: Whose all-reduces stand in where GPUs have no link of their own but PCIe, by its GB/s.
_PCIE = MappingProxyType({32: "L40S", 64: "RTX-PRO-6000"})


@functools.cache
def measured_rates() -> Mapping[str, GpuRates]:
    """Return the rates of every GPU type whose operators were measured, by its name."""
    return MappingProxyType({r.gpu: r for r in catalog.read_table(GpuRates, "gpu_rates.csv")})


def is_extrapolated(gpu: str) -> bool:
    """Return whether no operator was measured on a GPU type, so that another's slow-downs stand in.

    Examples
    --------
    >>> is_extrapolated("L40S"), is_extrapolated("L4")
    (False, True)
    """
    return gpu not in measured_rates()


def stands_in(gpu: str) -> str:
    """Return the GPU type whose slow-downs a GPU type has: its own, or the nearest's.

    Examples
    --------
    >>> stands_in("L4"), stands_in("H100")
    ('L40S', 'H100')
    """
    return LIKE.get(gpu, _ELSE) if is_extrapolated(gpu) else gpu


@functools.cache
def rates(gpu: str) -> GpuRates:
    """Return the rates of a GPU type, those of the nearest one if it was not measured.

    Parameters
    ----------
    gpu : str
        Name in the catalogue.

    Returns
    -------
    GpuRates
        With the all-reduces of a GPU that is joined as this one is: over PCIe or over links of its own.
    """
    known = measured_rates()
    if gpu in known:
        return known[gpu]
    found, facts = known[stands_in(gpu)], catalog.gpu(gpu)
    if facts.nvlink_gb_per_s > 0.0:
        joined = found if catalog.gpu(found.gpu).nvlink_gb_per_s > 0.0 else known[_ELSE]
    else:
        joined = known[_PCIE[32 if facts.pcie_gb_per_s <= 32.0 else 64]]
    links = {name: getattr(joined, name) for name in CONSTANTS if name.startswith("reduce")}
    return dataclasses.replace(found, gpu=gpu, label="extrapolated", **links)


def parts(deployment: Deployment, batch: float) -> dict[str, np.ndarray]:
    """Return the datasheet's times of a step's parts, each belonging to one constant of `GpuRates`.

    Parameters
    ----------
    deployment : Deployment
        Model, GPU, precision and TP.
    batch : float
        Sequences in a step, on which depends how many experts of a mixture are read.

    Returns
    -------
    dict of str to (7,) ndarray
        Seconds, or layers where the constant is in seconds, by `STEP`. A step takes ``base_s + n (sequence_s +
        context_s L / 8192)`` for n sequences of mean context L, and a prompt of h tokens ``prompt_s +
        (prefill_s + link_s) h + attention_s h^2``.
    """
    model, gpu, n = deployment.model, deployment.gpu, deployment.tensor_parallel
    bandwidth, peak = n * gpu.bandwidth_gb_per_s, n * gpu.tflops(deployment.precision)
    mixture = "_mixture" if model.experts else ""
    bits = {1.0: "_8bit", 0.5: "_4bit"}.get(WEIGHT_BYTES[deployment.precision], "")
    read_as = bits if mixture else "_8bit" if bits else ""  # no dense kernel of 4 bits was measured
    computed_as = "_8bit" if bits == "_8bit" else ""  # 4 bits are unpacked to 16
    token_s = 2.0 * model.active_params_b / 1e3 / peak
    found = {name: np.zeros(len(STEP)) for name in CONSTANTS}
    found[f"weights{mixture}{read_as}"][_BASE] = weight_gb_read(deployment, batch) / bandwidth
    found[f"prompt_weights{mixture}{bits if mixture else ''}"][_PROMPT] = deployment.weight_gb / bandwidth
    found["kv"][_CONTEXT] = kv_gb_per_token(deployment) * REFERENCE_CONTEXT / bandwidth
    found[f"tensor{computed_as}"][_SEQUENCE] = token_s
    found[f"prompt_tensor{mixture or computed_as}"][_PREFILL] = token_s
    found["attention"][_ATTENTION] = (
        2.0 * model.layers * model.heads * model.head_dim / 1e12 / (n * gpu.fp16_tflops)
    )
    found["layer_s"][_BASE] = found["prompt_layer_s"][_PROMPT] = model.layers
    if model.experts:
        found["layer_mixture_s"][_BASE] = found["prompt_layer_mixture_s"][_PROMPT] = model.layers
        routed_s = 2e-9 * model.layers * model.hidden * model.experts_per_token / bandwidth
        found["expert_trips"][_SEQUENCE] = found["prompt_expert_trips"][_PREFILL] = routed_s
    if n > 1:  # two all-reduces of 16-bit activations per layer
        joined = next((size for size in (2, 4) if n <= size), 8)
        found[f"reduce_{joined}_s"][[_BASE, _PROMPT]] = 2.0 * model.layers
        sent_s = 4e-9 * model.layers * model.hidden / gpu.peer_gb_per_s
        found[f"reduce_{joined}"][[_SEQUENCE, _LINK]] = sent_s
    return found


def step_constants(deployment: Deployment, batch: float) -> dict[str, float]:
    """Return the constants of a step over the whole model, by `STEP`, as the GPUs alone would compute it.

    Examples
    --------
    >>> eight = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("H100"), precision="fp16")
    >>> 0.004 < step_constants(eight, 32)["base_s"] < 0.008
    True
    """
    chosen = rates(deployment.gpu.name)
    total = np.sum([getattr(chosen, name) * part for name, part in parts(deployment, batch).items()], axis=0)
    return dict(zip(STEP, total.tolist(), strict=True))


def weight_gb_read(deployment: Deployment, batch: float) -> float:
    """Return the weights that a step reads: all of a dense model, of a mixture the experts in use."""
    model = deployment.model
    if model.experts == 0:
        return deployment.weight_gb
    chosen = model.experts_per_token / model.experts
    common = max(0.0, (model.active_params_b - chosen * model.params_b) / (1.0 - chosen))
    touched = common + (model.params_b - common) * (1.0 - (1.0 - chosen) ** batch)
    return deployment.weight_gb * touched / model.params_b


def kv_gb_per_token(deployment: Deployment) -> float:
    """Return the KV cache of one token over all GPUs; heads are repeated where TP exceeds them."""
    return deployment.model.kv_bytes_per_token * repeated(deployment) / 1e9


def repeated(deployment: Deployment) -> float:
    """Return how often a KV head is kept: more than once where TP exceeds the heads."""
    return max(1.0, deployment.tensor_parallel / deployment.model.kv_heads)
