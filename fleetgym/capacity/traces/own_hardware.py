"""Read files of the user's own models, GPUs and measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.traces.small_csv import SMALL_FILE_BYTES, csv_rows, whole
from fleetgym.capacity.traces.source import StrPath, fail
from fleetgym.files import quantities as q
from fleetgym.files.documents import parse_json, read_text
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import ID, NAME, Number, documented, read_object, spec
from fleetgym.hardware import catalog
from fleetgym.hardware.catalog import GpuType
from fleetgym.hardware.model_config import OwnModel, read_model
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import REFERENCE_CONTEXT, RooflineOptions, StepTime

#: How strongly a fit holds on to the roofline where rows say nothing: as a row of so small a weight.
_HOLD = 0.03


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnGpu:
    """A GPU type as a file describes it; rates are dense, links per direction."""

    name: str = spec(ID)
    memory_gb: float = spec(q.MEMORY_GB)
    bandwidth_gb_per_s: float = spec(q.GB_PER_S, doc="of the memory")
    fp16_tflops: float = spec(q.PEAK_TFLOPS, doc="dense, also of BF16")
    fp8_tflops: float | None = spec(q.PEAK_TFLOPS.or_null(), None)
    int8_tflops: float | None = spec(q.PEAK_TFLOPS.or_null(), None)
    link_gb_per_s: float | None = spec(
        q.GB_PER_S.or_null(), None, doc="to another GPU of the node; null: PCIe alone"
    )
    pcie_gb_per_s: float = spec(q.GB_PER_S, 32.0)
    gpus_per_node: int = spec(q.GPUS_PER_NODE, 8)
    tdp_w: float | None = spec(q.WATTS.or_null(), None)
    usd_per_gpu_h: float | None = spec(
        q.USD_PER_GPU_H.or_null(), None, doc="makes an on-demand offer beside the price list"
    )

    def facts(self, source: str) -> GpuType:
        """Return it as the catalogue has GPUs."""
        return GpuType(
            name=self.name,
            memory_gb=self.memory_gb,
            bandwidth_gb_per_s=self.bandwidth_gb_per_s,
            fp16_tflops=self.fp16_tflops,
            fp8_tflops=self.fp8_tflops,
            int8_tflops=self.int8_tflops,
            int4_tflops=None,
            fp4_tflops=None,
            nvlink_gb_per_s=self.link_gb_per_s or 0.0,
            pcie_gb_per_s=self.pcie_gb_per_s,
            gpus_per_node=self.gpus_per_node,
            tdp_w=self.tdp_w,
            label="assumed",
            source=source,
            licence="",
        )


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """A measured run: requests of these lengths, at this concurrency on one replica."""

    model: str = spec(NAME)
    gpu: str = spec(NAME)
    precision: str = spec(ID)
    tensor_parallel: int = spec(q.PARALLEL, 1)
    input_tokens: float = spec(q.TOKENS)
    output_tokens: float = spec(q.TOKENS)
    concurrency: float = spec(Number(1.0, 1e6))
    requests_per_s: float | None = spec(Number(1e-6, 1e6, "requests/s").or_null(), None)
    output_tokens_per_s: float | None = spec(Number(1e-6, 1e9, "tokens/s").or_null(), None)
    ttft_s: float | None = spec(Number(1e-6, 1e5, "s").or_null(), None, doc="time to the first token")
    tpot_s: float | None = spec(Number(1e-7, 1e3, "s").or_null(), None, doc="time per output token")

    @property
    def request_s(self) -> float | None:
        """Seconds that a request stays, by its rate or by both latencies; None where neither tells."""
        if self.requests_per_s is not None:
            return self.concurrency / self.requests_per_s
        if self.output_tokens_per_s is not None:
            return self.concurrency * self.output_tokens / self.output_tokens_per_s
        if self.ttft_s is not None and self.tpot_s is not None:
            return self.ttft_s + (self.output_tokens - 1.0) * self.tpot_s
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnHardware:
    """What files say of models, GPUs and measured steps, and what their user should know."""

    models: tuple[OwnModel, ...] = ()
    gpus: tuple[GpuType, ...] = ()
    offers: tuple[Offer, ...] = ()
    steps: Mapping[tuple[str, str, str, int], StepTime] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @contextlib.contextmanager
    def known(self) -> Iterator[None]:
        """Let the catalogue know them while the block runs."""
        with catalog.also(self.gpus, [own.model for own in self.models]):
            yield


def read_own(
    model_files: Sequence[StrPath] = (),
    gpu_files: Sequence[StrPath] = (),
    profiles: Sequence[StrPath] = (),
) -> OwnHardware:
    """Read files of one's own.

    Parameters
    ----------
    model_files : sequence of path-like
        ``config.json`` of models, see `fleetgym.hardware.model_config.read_model`; ``NAME=FILE`` names one.
    gpu_files : sequence of path-like
        CSV, JSON object or list of JSON objects with the fields of `OwnGpu`.
    profiles : sequence of path-like
        CSV with the fields of `Measurement`. What they cover is planned with the times they say.

    Returns
    -------
    OwnHardware

    Raises
    ------
    DataError
        With file and place of what is wrong.
    """
    models = tuple(_model(os.fspath(path)) for path in model_files)
    notes = [_model_words(own) for own in models]
    gpus: dict[str, GpuType] = {}
    offers = []
    for path in gpu_files:
        for own in _objects(path, OwnGpu):
            if own.name in gpus:
                fail(path, "$", f"the GPU {own.name!r} is described twice")
            if own.name in catalog.gpu_names():
                notes.append(f"{own.name} is as {os.fspath(path)} says, not as in the catalogue")
            _check_units(path, own)
            gpus[own.name] = own.facts(os.fspath(path))
            if own.usd_per_gpu_h is not None:
                offers.append(Offer(gpu=own.name, usd_per_gpu_h=own.usd_per_gpu_h))
    found = OwnHardware(models=models, gpus=tuple(gpus.values()), offers=tuple(offers))
    steps: dict[tuple[str, str, str, int], StepTime] = {}
    with found.known():
        for path in profiles:
            for key, (step, words) in _fitted(path).items():
                if key in steps:
                    fail(path, "all rows", f"{' '.join(map(str, key))} is in another profile, too")
                steps[key] = step
                notes.append(words)
    return dataclasses.replace(found, steps=steps, notes=tuple(notes))


#: Below these a number is more likely in a larger unit: GB/s and the larger one, TFLOP/s and the larger one.
_USUAL = {"bandwidth_gb_per_s": (20.0, "GB/s", "TB/s"), "fp16_tflops": (2.0, "TFLOP/s", "PFLOP/s")}


def _check_units(path: StrPath, own: OwnGpu) -> None:
    """Refuse numbers that no GPU has, and ask for their unit."""
    for name, (least, unit, larger) in _USUAL.items():
        value = getattr(own, name)
        if value < least:
            fail(
                path,
                "$",
                f"{name} of {own.name} is {value:g} {unit}, less than any GPU has: is that {larger}? Write it in "
                f"{unit}",
            )


def _model(text: str) -> OwnModel:
    name, equals, path = text.partition("=")
    if equals and not Path(text).exists():
        return read_model(path, name)
    return read_model(text)


def _model_words(own: OwnModel) -> str:
    model = own.model
    size = f"{model.params_b:.4g} B parameters"
    if model.experts:
        size += f", {model.active_params_b:.4g} B active"
    return "; ".join(
        (
            f"{model.name}: {size}, {model.kv_bytes_per_token:,.0f} bytes of KV cache per token, counted from its "
            "config.json",
            *own.assumed,
        )
    )


def _objects(path: StrPath, kind: type[Any]) -> list[Any]:
    """Return the rows of a CSV, or the objects of a JSON file."""
    try:
        return [read_object(kind, row, place) for place, row in _rows(path, kind)]
    except DataError as error:
        raise error.in_file(path) from None


def _rows(path: StrPath, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file with their places: a line of CSV, a path of JSON."""
    if os.fspath(path).removesuffix(".gz").endswith(".json"):
        data = parse_json(read_text(path, SMALL_FILE_BYTES))
        if data == []:
            raise DataError("expected an object, or a list of at least one")
        yield from (
            ((f"$[{k}]", row) for k, row in enumerate(data)) if isinstance(data, list) else [("$", data)]
        )
        return
    fields = [f.name for f in dataclasses.fields(kind)]
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    for line, row in csv_rows(path, fields, needed):
        words = ("name", "model", "gpu", "precision")
        yield (
            f"line {line}",
            {name: text if name in words else whole(text) for name, text in row.items() if text},
        )


# -- measurements


def _fitted(
    path: StrPath,
) -> dict[tuple[str, str, str, int], tuple[StepTime, str]]:
    groups: dict[Deployment, list[Measurement]] = {}
    for k, row in enumerate(_objects(path, Measurement)):
        place = f"row {k + 1}"
        if row.request_s is None and row.ttft_s is None and row.tpot_s is None:
            fail(path, place, "expected requests_per_s, output_tokens_per_s, ttft_s or tpot_s")
        if row.precision not in catalog.WEIGHT_BYTES:
            fail(
                path, place, f"expected a precision of {', '.join(catalog.WEIGHT_BYTES)}, got {row.precision}"
            )
        try:
            deployment = Deployment(
                model=catalog.model(catalog.model_named(row.model)),
                gpu=catalog.gpu(catalog.gpu_named(row.gpu)[0]),
                precision=row.precision,
                tensor_parallel=row.tensor_parallel,
            )
        except FleetgymError as error:
            fail(path, place, str(error))
        _check_possible(path, place, deployment, row)
        groups.setdefault(deployment, []).append(row)
    found = {}
    for deployment, rows in groups.items():
        step, errors = fit_step(deployment, rows)
        name = (
            f"{deployment.model.name} on {deployment.gpu.name} at {deployment.precision}, "
            f"TP {deployment.tensor_parallel}"
        )
        spans = ", ".join(
            f"{min(values):,.0f} to {max(values):,.0f} {what}"
            for what, values in (
                ("input tokens", [r.input_tokens for r in rows]),
                ("output tokens", [r.output_tokens for r in rows]),
                ("at once", [r.concurrency for r in rows]),
            )
        )
        words = (
            f"{name}: times as measured in {len(rows)} rows ({spans}), fitted within {errors.mean():.1%} on average "
            f"and {errors.max():.1%} at worst"
        )
        found[roofline.step_key(deployment)] = step, words
    return found


def _check_possible(path: StrPath, place: str, deployment: Deployment, row: Measurement) -> None:
    """Refuse a rate whose output tokens alone need more than the GPUs' peak, two operations for each parameter."""
    if row.request_s is None:
        return
    tokens_per_s = row.concurrency / row.request_s * row.output_tokens
    need = 2e-3 * deployment.model.active_params_b * tokens_per_s
    peak = deployment.gpu.tflops(deployment.precision) * deployment.tensor_parallel
    if need > peak:
        fail(
            path,
            place,
            f"{tokens_per_s:,.0f} output tokens/s need {need:,.0f} TFLOP/s, and the peak of "
            f"{deployment.tensor_parallel} {deployment.gpu.name} is {peak:,.0f}: is that the rate of several replicas?",
        )


def fit_step(deployment: Deployment, rows: Sequence[Measurement]) -> tuple[StepTime, np.ndarray]:
    """Fit a step's constants to measured runs; where these say nothing, they stay as on the roofline.

    Parameters
    ----------
    deployment : Deployment
        What was measured.
    rows : sequence of Measurement
        The runs.

    Returns
    -------
    step : StepTime
        Times of the roofline, each times a factor of at least 0: the factors with the least squared relative errors.
    errors : ndarray
        Absolute relative errors of the times that the runs tell.
    """
    from scipy.optimize import lsq_linear

    batch = float(np.median([r.concurrency for r in rows]))
    start = roofline.step_time(deployment, RooflineOptions(coefficients=3), batch)
    parts = ("base_s", "context_s", "sequence_s", "prefill_s", "first_base_s", "first_token_s", "prompt_s")
    design: list[np.ndarray] = []
    for row in rows:
        n, tokens, out = row.concurrency, float(row.input_tokens), row.output_tokens
        context = (tokens + out / 2.0) / REFERENCE_CONTEXT
        among_s = start.prefill_s * tokens + start.attention_s * tokens**2
        alone_s = start.first_token_s * tokens + start.first_attention_s * tokens**2
        token = np.array(
            [start.base_s, n * context * start.context_s, n * start.sequence_s, 0.0, 0.0, 0.0, 0.0]
        )
        others = np.array([0.0, 0.0, 0.0, (n - 1) * among_s, 0.0, 0.0, (n - 1) * start.prompt_s])
        first = np.array([0.0, 0.0, 0.0, 0.0, start.first_base_s, alone_s, 0.0])
        if row.request_s is not None:
            design.append((first + others + out * token) / row.request_s)
        if row.tpot_s is not None:
            design.append((token + others / out) / row.tpot_s)
        if row.ttft_s is not None and n <= 4:  # later, requests wait for one another
            design.append(first / row.ttft_s)
    matrix = np.array(design).reshape(-1, len(parts))
    hold = _HOLD * np.eye(len(parts))
    found = lsq_linear(
        np.vstack([matrix, hold]),
        np.append(np.ones(len(matrix)), np.full(len(parts), _HOLD)),
        bounds=(0.0, np.inf),
    )
    factors = dict(zip(parts, found.x.tolist(), strict=True))
    factors |= {"attention_s": factors["prefill_s"], "first_attention_s": factors["first_token_s"]}
    step = dataclasses.replace(
        start, label="measured", **{name: factor * getattr(start, name) for name, factor in factors.items()}
    )
    errors = np.abs(matrix @ found.x - 1.0) if len(matrix) else np.zeros(1)
    return step, errors
