"""Enumerate Jiang's pipelines, and their rates on each workload.

Jiang et al., ICML 2025, section 4.3 and appendices D and L: a replica is a pipeline of stages, each with tensor
parallelism over GPUs of one type inside one machine; layers go to stages in proportion to memory. The paper's rates
were profiled and are shown as figures only, so ours are **modelled**: the roofline of
`fleetgym.hardware.performance.roofline` for each stage, put together as in appendix L.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.hardware.catalog import GpuType, ModelType
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import RooflineOptions, StepTime, kv_gb_per_token, step_time

#: Nothing was measured on four of the paper's six GPUs, so all are modelled alike.
MODELLED = RooflineOptions(measured="ignore")


@dataclasses.dataclass(frozen=True)
class Network:
    """Links of the paper's section 5.1 beyond those inside a machine."""

    between_gb_per_s: float = 5.0 / 8.0  # 5 Gb/s Ethernet
    activation_bytes: float = 2.0


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a pipeline: tensor parallelism over GPUs of one type in one machine."""

    gpu: str
    tensor_parallel: int


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """One deployable replica: a model over stages, with the layers of each; ``s_c`` and ``v_c`` of the paper."""

    model: ModelType
    stages: tuple[Stage, ...]
    layers: tuple[int, ...]

    @property
    def name(self) -> str:
        """Such as ``Llama-3.1-70B@H100x4+A100x2``."""
        return f"{self.model.name}@" + "+".join(f"{s.gpu}x{s.tensor_parallel}" for s in self.stages)

    def gpus(self, gpu: str) -> int:
        """Return how many GPUs of a type one replica takes, ``d_n(c)``."""
        return sum(s.tensor_parallel for s in self.stages if s.gpu == gpu)


def split_layers(layers: int, memory_gb: Sequence[float]) -> tuple[int, ...]:
    """Return layers per stage in proportion to memory, by largest remainder, each at least one.

    Parameters
    ----------
    layers : int
        Layers of the model, at least as many as there are stages.
    memory_gb : sequence of float
        Memory of each stage.

    Examples
    --------
    >>> split_layers(24, [1.0, 2.0])
    (8, 16)
    """
    share = np.asarray(memory_gb, dtype=float) * layers / np.sum(memory_gb)
    split = np.maximum(1, np.floor(share)).astype(int)
    while split.sum() != layers:
        step = 1 if split.sum() < layers else -1
        room = np.where((step > 0) | (split > 1), step * (share - split), -np.inf)
        split[int(room.argmax())] += step
    return tuple(int(n) for n in split)


def pipelines(
    model: ModelType,
    gpus: Mapping[str, GpuType],
    available: Mapping[str, int],
    *,
    tensor_parallel: Sequence[int] = (1, 2, 4, 8),
    max_stages: int = 8,
    max_mixed_stages: int = 4,
    max_types: int = 2,
) -> Iterator[Pipeline]:
    """Yield every pipeline whose GPUs are available and hold the weights, fewest stages first.

    Parameters
    ----------
    model : ModelType
        The model; its weights at 16 bit must fit (appendix D, (i)).
    gpus, available : mapping
        GPU types by name, and how many of each there are.
    tensor_parallel : sequence of int
        Degrees; one must fit a machine and divide the attention heads.
    max_stages, max_mixed_stages : int
        Most stages of a pipeline of one GPU type, and of several.
    max_types : int
        Most GPU types in a pipeline.

    Yields
    ------
    Pipeline
        Stages in the order of `gpus`, larger degrees first: their order changes nothing but the links.
    """
    options = [
        Stage(name, degree)
        for name, gpu in gpus.items()
        for degree in sorted(tensor_parallel, reverse=True)
        if degree <= min(gpu.gpus_per_node, available.get(name, 0)) and model.heads % degree == 0
    ]
    for count in range(1, max_stages + 1):
        for stages in _stage_sets(options, count, max_types if count <= max_mixed_stages else 1):
            memory_gb = [s.tensor_parallel * gpus[s.gpu].memory_gb for s in stages]
            made = Pipeline(model, stages, ())
            fits = all(made.gpus(name) <= available[name] for name in {s.gpu for s in stages})
            if fits and sum(memory_gb) >= model.weight_gb() and count <= model.layers:
                yield Pipeline(model, stages, split_layers(model.layers, memory_gb))


def _stage_sets(options: Sequence[Stage], count: int, max_types: int) -> Iterator[tuple[Stage, ...]]:
    """Yield every multiset of stages over at most so many GPU types."""
    if max_types > 1:
        for stages in itertools.combinations_with_replacement(options, count):
            if len({s.gpu for s in stages}) <= max_types:
                yield stages
        return
    for name in dict.fromkeys(s.gpu for s in options):
        same = [s for s in options if s.gpu == name]
        yield from itertools.combinations_with_replacement(same, count)


def pipeline_rates(
    pipeline: Pipeline,
    gpus: Mapping[str, GpuType],
    lengths: np.ndarray,
    *,
    options: RooflineOptions = MODELLED,
    network: Network | None = None,
    cross_machine: bool = False,
) -> np.ndarray:
    """Return requests/s of one replica on each workload alone, h_{c,w}: modelled.

    With all places taken, a request costs the slowest stage (or link) its prompt, and for each output token one n-th
    of a cycle, in which n sequences in S micro-batches pass all S stages (appendix L: prefill capacity from the sum
    over layers, decoding from one latency for the whole batch). Links between GPU types, and between machines where
    one type fills more than one, are Ethernet.

    Parameters
    ----------
    pipeline : Pipeline
        Model, stages, layers.
    gpus : mapping
        GPU types by name.
    lengths : (W, 2) ndarray
        Mean input and output tokens.
    options : RooflineOptions
        Of the roofline.
    network : Network, optional
        Links between machines.
    cross_machine : bool
        Whether every stage is in a machine of its own.

    Returns
    -------
    (W,) ndarray
        Requests/s; 0 where not one sequence fits.
    """
    network = network or Network()
    model, stages = pipeline.model, pipeline.stages
    share = np.array(pipeline.layers) / model.layers
    steps: list[Any] = [_step(model, gpus[s.gpu], s.tensor_parallel, options) for s in stages]
    inputs, outputs = lengths[:, 0], lengths[:, 1]
    tokens = _kv_tokens(pipeline, gpus, share, options)
    sequences = np.minimum(options.max_num_seqs, np.floor(tokens / (inputs + outputs)))  # (W,)
    batches = np.clip(sequences, 1, len(stages))
    hop_s = (
        model.hidden
        * network.activation_bytes
        / 1e9
        / _links_gb_per_s(pipeline, gpus, network, cross_machine)
    )
    slowest = max(q * step.prefill_s for q, step in zip(share, steps, strict=True))
    prompt_s = inputs * max(slowest, hop_s.max(initial=0.0))
    at_once = np.maximum(1.0, sequences / batches)
    context = inputs + outputs / 2.0
    stage_s = np.array(
        [q * step.per_output_token_s(at_once, context) for q, step in zip(share, steps, strict=True)]
    )
    links_s = np.outer(hop_s, at_once)
    busiest = np.maximum(stage_s.max(axis=0), links_s.max(axis=0, initial=0.0))
    cycle_s = np.maximum(batches * busiest, stage_s.sum(axis=0) + links_s.sum(axis=0))
    return np.where(sequences >= 1, 1.0 / (prompt_s + outputs * cycle_s / np.maximum(1.0, sequences)), 0.0)


@functools.cache
def _step(model: ModelType, gpu: GpuType, degree: int, options: RooflineOptions) -> StepTime:
    """Return the roofline's constants for the whole model on one stage's GPUs."""
    return step_time(Deployment(model=model, gpu=gpu, precision="fp16", tensor_parallel=degree), options)


def _kv_tokens(
    pipeline: Pipeline, gpus: Mapping[str, GpuType], share: np.ndarray, options: RooflineOptions
) -> float:
    """Return the tokens whose KV cache fits the tightest stage beside its share of the weights."""
    room = []
    for stage, q in zip(pipeline.stages, share, strict=True):
        gpu = gpus[stage.gpu]
        whole = Deployment(
            model=pipeline.model, gpu=gpu, precision="fp16", tensor_parallel=stage.tensor_parallel
        )
        free_gb = stage.tensor_parallel * (gpu.memory_gb * options.memory_share - options.reserve_gb)
        room.append((free_gb - q * whole.weight_gb) / (q * kv_gb_per_token(whole)))
    return max(0.0, min(room))


def _links_gb_per_s(
    pipeline: Pipeline, gpus: Mapping[str, GpuType], network: Network, cross_machine: bool
) -> np.ndarray:
    """Return the bandwidth of each link between neighbouring stages: (S - 1,)."""
    links = []
    for one, two in itertools.pairwise(pipeline.stages):
        gpu = gpus[one.gpu]
        near = one.gpu == two.gpu and pipeline.gpus(one.gpu) <= gpu.gpus_per_node and not cross_machine
        links.append(gpu.peer_gb_per_s if near else network.between_gb_per_s)
    return np.array(links)


def rate_table(
    found: Sequence[Pipeline], gpus: Mapping[str, GpuType], lengths: np.ndarray, models: Sequence[ModelType]
) -> np.ndarray:
    """Return h for several models: row ``m W + w`` is workload w of the m-th model, (M W, C)."""
    rates = np.zeros((len(models) * len(lengths), len(found)))
    for c, pipeline in enumerate(found):
        first = [m.name for m in models].index(pipeline.model.name) * len(lengths)
        rates[first : first + len(lengths), c] = pipeline_rates(pipeline, gpus, lengths)
    return rates
