"""Read the tables in ``fleetgym/data``: GPU types, models, accuracy and prices.

Every fact names its source and says how it is known: measured, modelled, datasheet, substituted or assumed.
``fleetgym/data/SOURCES.md`` explains the columns and lists the licences.
"""

from __future__ import annotations

import contextlib
import contextvars
import csv
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from fleetgym.files import quantities as q
from fleetgym.files.errors import DataError, UnknownNameError
from fleetgym.files.schema import (
    NAME,
    Choice,
    Flag,
    Integer,
    Line,
    ListOf,
    Number,
    from_text,
    read_object,
    spec,
)
from fleetgym.hardware.gpu_names import named, unknown
from fleetgym.hardware.model_names import known_name

T = TypeVar("T")

#: How a number is known, from best to worst.
LABELS = ("measured", "modelled", "datasheet", "substituted", "assumed")

#: Bytes per weight of each precision.
WEIGHT_BYTES: Mapping[str, float] = MappingProxyType(
    {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuType:
    """Facts about one GPU; tensor rates are dense TFLOPS (TOPS for integers), links are per direction."""

    name: str = spec(NAME)
    memory_gb: float = spec(q.MEMORY_GB)
    bandwidth_gb_per_s: float = spec(q.GB_PER_S)
    fp16_tflops: float = spec(q.PEAK_TFLOPS)
    fp8_tflops: float | None = spec(q.PEAK_TFLOPS.or_null())
    int8_tflops: float | None = spec(q.PEAK_TFLOPS.or_null())
    int4_tflops: float | None = spec(q.PEAK_TFLOPS.or_null())
    fp4_tflops: float | None = spec(q.PEAK_TFLOPS.or_null())
    nvlink_gb_per_s: float = spec(q.LINK_GB_PER_S, doc="0 where there is none")
    pcie_gb_per_s: float = spec(q.GB_PER_S)
    gpus_per_node: int = spec(q.GPUS_PER_NODE)
    tdp_w: float | None = spec(q.WATTS.or_null())
    label: str = spec(Choice(LABELS))
    source: str = spec(NAME)
    licence: str = spec(Line(), doc="empty: the user's own")

    @property
    def peer_gb_per_s(self) -> float:
        """Bandwidth between two GPUs of a node: NVLink where there is one, else PCIe."""
        return self.nvlink_gb_per_s or self.pcie_gb_per_s

    def tflops(self, precision: str) -> float:
        """Return the dense peak rate at which weights of a precision are multiplied.

        Where the GPU has no such units, and for 4-bit weights, the weights are unpacked and multiplied in
        FP16, which is what serving engines do.

        Parameters
        ----------
        precision : str
            A key of `WEIGHT_BYTES`.

        Returns
        -------
        float
            TFLOP per second.

        Raises
        ------
        UnknownNameError
            For an unknown precision.
        """
        _known("precision", precision, WEIGHT_BYTES)
        rate = {"fp8": self.fp8_tflops, "int8": self.int8_tflops}.get(precision)
        return self.fp16_tflops if rate is None else rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelType:
    """Facts about one LLM: sizes in billions of parameters, weights at 2 bytes, KV cache at 16 bit."""

    name: str = spec(NAME)
    params_b: float = spec(q.PARAMS_B)
    active_params_b: float = spec(q.PARAMS_B)
    layers: int = spec(q.LAYERS)
    hidden: int = spec(q.WIDTH)
    heads: int = spec(q.WIDTH)
    kv_heads: int = spec(q.WIDTH)
    head_dim: int = spec(q.WIDTH)
    experts: int = spec(q.EXPERTS, doc="0 for dense models")
    experts_per_token: int = spec(q.EXPERTS)
    max_context: int = spec(q.CONTEXT)
    weight_gb_bf16: float = spec(q.MEMORY_GB)
    kv_bytes_per_token: float = spec(q.KV_BYTES)
    hybrid_attention: bool = spec(Flag(), doc="then the KV figure is an upper bound")
    label: str = spec(Choice(LABELS))
    source: str = spec(NAME)
    licence: str = spec(Line(), doc="empty: the user's own")
    window_tokens: int = spec(
        Integer(0), 0, doc="that the windowed layers hold; 0: all layers hold every token"
    )
    windowed_layers: int = spec(Integer(0), 0)
    plain_params_b: float = spec(Number(0.0, 1e6), 0.0, doc="stay at 16 bit when the others are quantised")
    precisions: tuple[str, ...] = spec(
        ListOf(NAME), (), doc="of quantised weights; empty: 16 bit, or quantised on loading"
    )

    def kv_bytes(self, tokens: Any) -> Any:
        """Return the KV cache, in bytes at 16 bit, of a sequence by its number of tokens: a number or an array."""
        if not self.windowed_layers:
            return self.kv_bytes_per_token * tokens
        windowed = self.windowed_layers / self.layers
        held = (1.0 - windowed) * tokens + windowed * np.minimum(tokens, self.window_tokens)
        return self.kv_bytes_per_token * held

    def weight_gb(self, precision: str = "fp16") -> float:
        """Return the size of the weights at a precision in GB.

        Raises
        ------
        UnknownNameError
            For an unknown precision.
        """
        _known("precision", precision, WEIGHT_BYTES)
        plain_gb = 2.0 * self.plain_params_b
        return plain_gb + (self.weight_gb_bf16 - plain_gb) * WEIGHT_BYTES[precision] / 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """One published benchmark score in percent (a relative loss for ``MMLU_rel_loss_pct``)."""

    model: str = spec(NAME)
    precision: str = spec(NAME)
    task: str = spec(NAME)
    score: float = spec(Number(0.0, 100.0, "%"))
    label: str = spec(Choice(LABELS))
    source: str = spec(NAME)
    licence: str = spec(NAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IterationFit:
    """Time per output token fitted to measured runs of one model, GPU, precision, engine and TP degree.

    With n sequences of mean context L at once, ``w_s + h_s n L/8192``, or more closely
    ``base_s + context_s n L/8192 + sequence_s n + prefill_s n input/output``.
    """

    model: str = spec(NAME)
    gpu: str = spec(NAME)
    precision: str = spec(NAME)
    backend: str = spec(NAME)
    tensor_parallel: int = spec(q.PARALLEL)
    points: int = spec(q.COUNT)
    w_s: float = spec(q.TAKEN_S)
    h_s: float = spec(q.TAKEN_S)
    mape_wh: float = spec(q.SHARE)
    base_s: float = spec(q.TAKEN_S)
    context_s: float = spec(q.TAKEN_S)
    sequence_s: float = spec(q.TAKEN_S)
    prefill_s: float = spec(q.TAKEN_S)
    mape: float = spec(q.SHARE)
    label: str = spec(Choice(LABELS))
    source: str = spec(NAME)
    licence: str = spec(NAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Price:
    """One offer in USD per GPU-hour."""

    gpu: str = spec(NAME)
    provider: str = spec(NAME)
    segment: str = spec(NAME)
    market: str = spec(NAME)
    region: str = spec(NAME)
    gpus: int = spec(q.GPUS_PER_NODE)
    usd_per_gpu_h: float = spec(q.USD_PER_GPU_H)
    date: str = spec(NAME)
    label: str = spec(Choice(LABELS))
    source: str = spec(NAME)
    licence: str = spec(NAME)


def gpu(name: str) -> GpuType:
    """Return the facts about a GPU type.

    Parameters
    ----------
    name : str
        Such as ``"H100"``; `gpu_names` lists them.

    Returns
    -------
    GpuType
        Its row of ``gpus.csv``.

    Raises
    ------
    UnknownNameError
        Naming those that share its model number.

    Examples
    --------
    >>> gpu("H100").bandwidth_gb_per_s
    3350.0
    >>> gpu("A100-80GB").tflops("fp8")  # no FP8 units: weights are unpacked to FP16
    312.0
    """
    if name not in _gpus():
        raise unknown(name, gpu_names())
    return _gpus()[name]


def gpu_named(name: str) -> tuple[str, int]:
    """Return the GPU type, and how many, behind a name that people, clouds or machines use.

    Raises
    ------
    UnknownNameError
        Naming those that share its model number.

    Examples
    --------
    >>> gpu_named("nvidia-h100-80gb"), gpu_named("g5.48xlarge")
    (('H100', 1), ('A10G', 8))
    """
    return named(name, gpu_names())


def model(name: str) -> ModelType:
    """Return the facts about a model.

    Parameters
    ----------
    name : str
        Such as ``"Llama-3.1-70B"``; `model_names` lists them.

    Returns
    -------
    ModelType
        Its row of ``models.csv``.

    Raises
    ------
    UnknownNameError
        Naming the nearest known name.

    Examples
    --------
    >>> model("Llama-3.1-8B").kv_bytes_per_token
    131072.0
    >>> model("Llama-3.1-8B").weight_gb("int4")
    4.015
    """
    _known("model", name, _models())
    return _models()[name]


#: Models whose weights are published in 4 bit, and the billions of parameters that stay at 16: all but the experts'.
_PUBLISHED_IN_4_BIT = {"gpt-oss-20b": 1.8, "gpt-oss-120b": 2.1}


def published(name: str) -> ModelType:
    """Return the facts about a model as it is served: in the precision of its published weights.

    The generators of stored sets take `model`, which knows sizes alone.

    Examples
    --------
    >>> round(published("gpt-oss-120b").weight_gb("int4"), 1), published("Llama-3.1-8B").precisions
    (61.5, ())
    """
    found = model(name)
    if name not in _PUBLISHED_IN_4_BIT or name in _OWN.get()[1]:
        return found
    return dataclasses.replace(found, precisions=("int4",), plain_params_b=_PUBLISHED_IN_4_BIT[name])


def model_named(name: str) -> str:
    """Return the model behind a name that people, hubs or clouds use.

    Raises
    ------
    UnknownNameError
        Naming the nearest known name, or saying that no weights are public.

    Examples
    --------
    >>> model_named("meta-llama/Llama-3.1-8B-Instruct"), model_named("gpt-oss:20b")
    ('Llama-3.1-8B', 'gpt-oss-20b')
    """
    return known_name(name, model_names())


def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPU types, sorted."""
    return tuple(sorted(_gpus()))


def model_names() -> tuple[str, ...]:
    """Return the names of all models, sorted."""
    return tuple(sorted(_models()))


@functools.cache
def scores() -> tuple[Score, ...]:
    """Return all published benchmark scores."""
    return read_table(Score, "accuracy.csv")


@functools.cache
def iteration_fits() -> tuple[IterationFit, ...]:
    """Return all fits of the time per output token."""
    return read_table(IterationFit, "iteration_fits.csv")


@functools.cache
def prices() -> tuple[Price, ...]:
    """Return all price offers."""
    return read_table(Price, "prices.csv")


def error_share(model_name: str, task: str, precision: str = "fp16") -> tuple[float, str]:
    """Return the share of wrong answers of a model on a benchmark, and how it is known.

    Parameters
    ----------
    model_name : str
        A model in ``accuracy.csv``.
    task : str
        A benchmark in ``accuracy.csv``, such as ``"GSM8K_CoT"``.
    precision : str
        A key of `WEIGHT_BYTES`.

    Returns
    -------
    error : float
        1 - score/100.
    label : str
        ``"measured"`` for a published score. ``"modelled"`` where the 16-bit score is lowered by the model's
        own measured relative MMLU loss, ``"substituted"`` where by the loss of a model from another family
        (the median of all published losses at that precision).

    Raises
    ------
    UnknownNameError
        Where there is no 16-bit score of this model on this task.

    Examples
    --------
    >>> error, label = error_share("Llama-3.1-8B", "GSM8K_CoT")
    >>> round(error, 3), label
    (0.155, 'measured')
    >>> error, label = error_share("Llama-3.1-8B", "GSM8K_CoT", "fp8")
    >>> round(error, 4), label
    (0.1677, 'modelled')
    """
    _known("precision", precision, WEIGHT_BYTES)
    precision = "fp16" if precision == "bf16" else precision
    found = {(s.model, s.task, s.precision): s.score for s in scores()}
    if (model_name, task, precision) in found:
        return 1.0 - found[model_name, task, precision] / 100.0, "measured"
    _known("model", model_name, {s.model for s in scores()})
    _known("task", task, {t for m, t, p in found if m == model_name and p == "fp16"})
    score = found[model_name, task, "fp16"]
    loss = found.get((model_name, "MMLU_rel_loss_pct", precision))
    if loss is not None:
        return 1.0 - score / 100.0 * (1.0 - loss / 100.0), "modelled"
    return 1.0 - score / 100.0 * (1.0 - _median_loss(precision)), "substituted"


@functools.cache
def _median_loss(precision: str) -> float:
    """Return the median relative MMLU loss of all models that were measured at a precision."""
    found = {(s.model, s.task, s.precision): s.score for s in scores()}
    losses = [
        score / 100.0
        for (_, task, p), score in found.items()
        if (task, p) == ("MMLU_rel_loss_pct", precision)
    ]
    for (name, task, p), score in found.items():
        if task == "MMLU" and p == precision and (name, task, "fp16") in found:
            losses.append(1.0 - score / found[name, task, "fp16"])
    losses.sort()
    middle = len(losses) // 2
    return losses[middle] if len(losses) % 2 else 0.5 * (losses[middle - 1] + losses[middle])


def _known(kind: str, name: str, names: Any) -> None:
    if name not in names:
        raise UnknownNameError(kind, name, names)


_OWN: contextvars.ContextVar[tuple[Mapping[str, GpuType], Mapping[str, ModelType]]] = contextvars.ContextVar(
    "own hardware and models", default=({}, {})
)


@contextlib.contextmanager
def also(gpus: Iterable[GpuType] = (), models: Iterable[ModelType] = ()) -> Iterator[None]:
    """Know GPUs and models of one's own while the block runs, in this thread; they replace those of the same name.

    Examples
    --------
    >>> with also(models=[dataclasses.replace(model("Llama-3.1-8B"), name="mine")]):
    ...     model("mine").layers, "mine" in model_names()
    (32, True)
    >>> "mine" in model_names()
    False
    """
    before = _OWN.get()
    token = _OWN.set(
        ({**before[0], **{g.name: g for g in gpus}}, {**before[1], **{m.name: m for m in models}})
    )
    try:
        yield
    finally:
        _OWN.reset(token)


def _gpus() -> Mapping[str, GpuType]:
    own = _OWN.get()[0]
    return {**_known_gpus(), **own} if own else _known_gpus()


def _models() -> Mapping[str, ModelType]:
    own = _OWN.get()[1]
    return {**_known_models(), **own} if own else _known_models()


@functools.cache
def _known_gpus() -> Mapping[str, GpuType]:
    return {row.name: row for row in read_table(GpuType, "gpus.csv")}


@functools.cache
def _known_models() -> Mapping[str, ModelType]:
    return {row.name: row for row in read_table(ModelType, "models.csv")}


def read_table(cls: type[T], name: str) -> tuple[T, ...]:
    """Read a CSV table of the package into dataclasses with the same field names."""
    kinds = {f.name: f.metadata["kind"] for f in dataclasses.fields(cls) if "kind" in f.metadata}  # type: ignore[arg-type]
    text = resources.files("fleetgym").joinpath("data", name).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    try:
        return tuple(
            read_object(cls, {k: _entry(kinds.get(k), cell) for k, cell in row.items()}, f"row {number}")
            for number, row in enumerate(rows, start=1)
        )
    except DataError as error:
        raise error.in_file(name) from None


def _entry(kind: Any, cell: str) -> Any:
    """Return what a cell holds, as JSON would: an empty one of numbers holds none."""
    if isinstance(kind, Flag):
        return {"0": False, "1": True}.get(cell, cell)
    return from_text(cell) if cell and isinstance(kind, (Number, Integer)) else cell or None
