"""Compute the requests per second of a node that holds some of a model's layers.

This is the T_j(g) of Coral (Mei et al., arXiv:2605.04357, section 4.2): the most that one node of a pipeline
serves when it holds j layers and may take 1/S of the latency SLO. The paper profiles it; here it is the roofline of
`fleetgym.hardware.performance.roofline` (a fit to measured runs where there is one), cut into layers, with the largest
batch that the latency budget and the node's memory allow. `CALIBRATED` was fitted by ``tools/calibrate_layers.py`` of
commit b96ac88.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware.catalog import GpuType, ModelType
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import Efficiency, RooflineOptions

#: Prefill, decode, or both on one replica.
Phase = Literal["prefill", "decode", "both"]


def efficiency(weights: float, kv: float, tensor: float, link: float, layer_s: float) -> Efficiency:
    """Return the efficiencies of a GPU: shares of its rates, and seconds per layer; the rest as calibrated for all."""
    return dataclasses.replace(
        Efficiency(), bandwidth_weights=weights, bandwidth_kv=kv, tensor=tensor, link=link, layer_s=layer_s
    )


#: Efficiencies by GPU, and the mean error that is left for dense models (decode, prefill). Measured milliseconds per
#: layer: L4 (4 %, 4 %), A100-40GB (7 %, 5 %). Modelled from measured operators: A100-80GB (6 %, 10 %), H100
#: (5 %, 11 %), L40S (6 %, 18 %). Substituted: the links of L4 and A10G by the L40S's, the rest of A10G by the
#: A100-40GB's.
CALIBRATED: Mapping[str, Efficiency] = MappingProxyType(
    {
        "L4": efficiency(0.923, 0.919, 0.469, 0.514, 2e-4),
        "A10G": efficiency(0.815, 0.902, 0.87, 0.514, 0.0),
        "L40S": efficiency(0.864, 0.84, 0.927, 0.514, 1.74e-5),
        "A100-40GB": efficiency(0.815, 0.902, 0.87, 0.416, 0.0),
        "A100-80GB": efficiency(0.801, 0.775, 1.0, 0.413, 3.47e-5),
        "H100": efficiency(0.884, 0.969, 0.908, 0.649, 1.37e-5),
    }
)


@dataclasses.dataclass(frozen=True)
class NodeType:
    """GPUs of one type in one machine; a model's layers are split over all of them (TP)."""

    gpu: GpuType
    gpus: int

    @property
    def name(self) -> str:
        """Such as ``4xL40S``."""
        return f"{self.gpus}x{self.gpu.name}"

    @property
    def memory_gb(self) -> float:
        """Memory of all GPUs."""
        return self.gpus * self.gpu.memory_gb


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """What is served: a model at a precision, mean lengths, and latency SLOs.

    Parameters
    ----------
    model : ModelType
        The model.
    precision : str
        Of its weights.
    input_tokens, output_tokens : float
        Mean lengths of a request.
    prefill_slo_s, decode_slo_s : float
        SLO of the first token, and of each further token.
    window_tokens : int
        Number of tokens that layers with sliding-window attention see.
    window_share : float
        Share of the layers that have such attention; 0: all attention is full.
    """

    model: ModelType
    precision: str = "fp16"
    input_tokens: float
    output_tokens: float
    prefill_slo_s: float
    decode_slo_s: float
    window_tokens: int = 0
    window_share: float = 0.0

    def seen_tokens(self, context: float) -> float:
        """Return how many of `context` tokens a layer reads, on average over layers.

        Examples
        --------
        >>> from fleetgym.hardware import catalog
        >>> oss = Service(model=catalog.model("gpt-oss-20b"), precision="int4", input_tokens=2000,
        ...               output_tokens=30, prefill_slo_s=0.9, decode_slo_s=0.03, window_tokens=128,
        ...               window_share=0.5)
        >>> oss.seen_tokens(1000)
        564.0
        """
        return (1.0 - self.window_share) * context + self.window_share * min(context, self.window_tokens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """Assumptions about engine and network.

    Parameters
    ----------
    max_num_seqs : int
        Most sequences in one decoding step.
    max_batched_tokens : int
        Most prompt tokens in one prefill step; a single prompt may be longer.
    network_gb_per_s, network_s : float
        Bandwidth and latency between nodes (assumed: 25 Gbit/s Ethernet of the cheaper GPU machines).
    prompt_dense, prompt_mixture : float
        Time of a prompt's token relative to one of a decoding step, calibrated.
    memory_share, reserve_gb : float
        As in `fleetgym.hardware.performance.roofline.RooflineOptions`.
    measured : {"prefer", "ignore"}
        Whether a fit to measured runs replaces the roofline where there is one.
    spread_loss : float
        The exponent a of a study: a node of n GPUs serves n^-a of what the model says. 0 leaves the model as it is.
    """

    max_num_seqs: int = 256
    max_batched_tokens: int = 8192
    network_gb_per_s: float = 3.1
    network_s: float = 0.5e-3
    prompt_dense: float = 1.0
    prompt_mixture: float = 2.0
    memory_share: float = 0.9
    reserve_gb: float = 2.0
    measured: Literal["prefer", "ignore"] = "prefer"
    spread_loss: float = 0.0


DEFAULT = ReplicaOptions()


@functools.cache
def _step(service: Service, node: NodeType, tokens: int, options: ReplicaOptions) -> roofline.StepTime:
    """Return the constants of a step over the whole model; of a mixture, `tokens` choose experts."""
    reached = CALIBRATED.get(node.gpu.name, Efficiency())
    if not node.gpu.nvlink_gb_per_s:  # all GPUs of a node share the way through its host
        reached = dataclasses.replace(reached, link=reached.link / node.gpus)
    if service.model.experts:
        reached = dataclasses.replace(reached, expert_batch=tokens)
    deployment = Deployment(
        model=service.model, gpu=node.gpu, precision=service.precision, tensor_parallel=node.gpus
    )
    return roofline.step_time(deployment, RooflineOptions(measured=options.measured, efficiency=reached))


def decode_step_s(
    service: Service, node: NodeType, sequences: np.ndarray, options: ReplicaOptions = DEFAULT
) -> np.ndarray:
    """Return the time of one decoding step over all layers, by the number of sequences.

    Parameters
    ----------
    service : Service
        Model and lengths; the mean context is the input and half of the output.
    node : NodeType
        Where all layers are.
    sequences : (B,) int array
        Sequences in the step.
    options : ReplicaOptions
        Assumptions.

    Returns
    -------
    (B,) array
        Seconds; without the hop to the next node.
    """
    context = service.seen_tokens(service.input_tokens + service.output_tokens / 2.0)
    if service.model.experts == 0:
        step = _step(service, node, 1, options)
        return step.base_s + sequences * (step.per_output_token_s(1.0, context) - step.base_s)
    return np.array([_step(service, node, int(b), options).per_output_token_s(b, context) for b in sequences])


def prefill_step_s(
    service: Service, node: NodeType, prompts: np.ndarray, options: ReplicaOptions = DEFAULT
) -> np.ndarray:
    """Return the time to process some prompts at once through all layers.

    Parameters
    ----------
    service : Service
        Model and input length.
    node : NodeType
        Where all layers are.
    prompts : (P,) array
        Prompts in the step.
    options : ReplicaOptions
        Assumptions.

    Returns
    -------
    (P,) array
        Seconds: weights, tokens, and attention, which is quadratic within a prompt.
    """
    model, tokens = service.model, prompts * service.input_tokens
    step = _step(service, node, int(np.ceil(service.input_tokens)), options)
    token_s = step.prefill_s * (options.prompt_mixture if model.experts else options.prompt_dense)
    tensor = CALIBRATED.get(node.gpu.name, Efficiency()).tensor
    half = service.seen_tokens(service.input_tokens / 2.0)
    attention_tflop = 4.0 * model.layers * model.heads * model.head_dim * half / 1e12
    attention_s = attention_tflop / (node.gpus * node.gpu.fp16_tflops * tensor)
    return step.base_s + tokens * (token_s + attention_s)


def throughput_table(
    service: Service,
    nodes: Sequence[NodeType],
    phase: Phase,
    max_stages: int,
    options: ReplicaOptions = DEFAULT,
) -> np.ndarray:
    """Return T_j(g), the requests per second of each node, by stages and layers held.

    A node that holds j of L layers as one of S stages takes j/L of a whole step, and one hop where S > 1. A
    step of n sequences must end within 1/S of the SLO, and the cache of S such batches, all of which are
    somewhere in the pipeline, must fit beside the weights. T_j is the best n / step time: a maximum
    over a set that shrinks with j, of values that fall with j, so it falls with j.

    Where one replica serves both phases, each request's prompt delays the decoding steps of the others.

    Parameters
    ----------
    service : Service
        Model, lengths and SLOs.
    nodes : sequence of NodeType
        The nodes.
    phase : {"prefill", "decode", "both"}
        Which part of a request is served.
    max_stages : int
        Most pipeline stages.
    options : ReplicaOptions
        Assumptions.

    Returns
    -------
    (max_stages, nodes, layers) array
        Requests per second of S = index + 1 stages; 0 where the layers do not fit, or no step is fast enough.

    Raises
    ------
    UnknownNameError
        For an unknown phase.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> phi = Service(model=catalog.model("Phi-4-14B"), input_tokens=1155, output_tokens=211,
    ...               prefill_slo_s=1.2, decode_slo_s=0.06)
    >>> table = throughput_table(phi, [NodeType(catalog.gpu("L4"), 1), NodeType(catalog.gpu("L40S"), 1)],
    ...                          "decode", 2)
    >>> table.shape
    (2, 2, 40)
    >>> bool(np.all(np.diff(table, axis=2) <= 0))
    True
    """
    if phase not in get_args(Phase):
        raise UnknownNameError("phase", phase, get_args(Phase))
    table = np.zeros((max_stages, len(nodes), service.model.layers))
    for g, node in enumerate(nodes):
        if service.model.heads % node.gpus == 0:
            for stages in range(1, max_stages + 1):
                table[stages - 1, g], _ = _by_layers(service, node, phase, stages, options)
    return table


def _best(fits: np.ndarray, batch: np.ndarray, step_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by layers, the most a step serves per second and the time of that step; both arrays (L,)."""
    rate = np.where(fits, batch / step_s, 0.0)
    chosen = rate.argmax(axis=1)[:, None]
    return np.take_along_axis(rate, chosen, 1)[:, 0], np.take_along_axis(step_s, chosen, 1)[:, 0]


def _by_layers(
    service: Service, node: NodeType, phase: Phase, stages: int, options: ReplicaOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return requests per second and step time of a node that holds 1..L layers in one of `stages` stages."""
    share = np.arange(1, service.model.layers + 1)[:, None] / service.model.layers  # (L, 1)
    prompt_s = share * prefill_step_s(service, node, np.ones(1), options)
    kept = node.gpus**-options.spread_loss
    if phase == "prefill":
        most = max(1, int(options.max_batched_tokens / service.input_tokens))
        batch = np.arange(1, most + 1)
        step_s = share * prefill_step_s(service, node, batch, options)
        room = _room(service, node, share, service.input_tokens, stages, options)
        late = step_s + _hop_s(service, batch * service.input_tokens, stages, options)
        fits = (late <= service.prefill_slo_s / stages) & (batch <= room)
        rate, chosen_s = _best(fits, batch, step_s)
        return rate * kept, chosen_s
    batch = np.arange(1, options.max_num_seqs + 1)
    step_s = share * decode_step_s(service, node, batch, options)
    room = _room(service, node, share, service.input_tokens + service.output_tokens, stages, options)
    fits = batch <= room
    if phase == "both":
        wait_s = prompt_s + step_s + _hop_s(service, service.input_tokens, stages, options)
        fits &= wait_s <= service.prefill_slo_s / stages
        step_s = step_s + batch * prompt_s / service.output_tokens
    fits &= step_s + _hop_s(service, batch, stages, options) <= service.decode_slo_s / stages
    rate, chosen_s = _best(fits, batch, step_s)
    return rate / service.output_tokens * kept, chosen_s


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """What a node does to requests when it serves as many as it can, as one stage of a pipeline."""

    throughput_rps: float
    decode_s: float  # per output token, prompts of others and the hop included
    prompt_s: float  # of one prompt alone, the hop left out
    hop_s: float  # of one prompt
    kv_capacity_gb: float  # beside the layers' weights


def operating_point(
    service: Service,
    node: NodeType,
    layers: int,
    stages: int,
    options: ReplicaOptions = DEFAULT,
) -> OperatingPoint:
    """Return what decoding at full load takes on a node, beside prompts.

    Parameters
    ----------
    service : Service
        Model, lengths and SLOs.
    node : NodeType
        The node.
    layers : int
        Layers it holds, of the model's.
    stages : int
        Stages of the pipeline.
    options : ReplicaOptions
        Assumptions.

    Returns
    -------
    OperatingPoint
        With 0 requests per second where it cannot serve.
    """
    rate, step_s = (v[layers - 1] for v in _by_layers(service, node, "both", stages, options))
    share = layers / service.model.layers
    batch = float(rate * service.output_tokens * step_s)
    free_gb = node.memory_gb * options.memory_share - node.gpus * options.reserve_gb
    return OperatingPoint(
        throughput_rps=float(rate),
        decode_s=float(step_s + _hop_s(service, batch, stages, options)),
        prompt_s=float(share * prefill_step_s(service, node, np.ones(1), options)[0]),
        hop_s=float(_hop_s(service, service.input_tokens, stages, options)),
        kv_capacity_gb=free_gb - share * service.model.weight_gb(service.precision),
    )


def _hop_s(service: Service, tokens: np.ndarray | float, stages: int, options: ReplicaOptions) -> np.ndarray:
    """Return the time to send 16-bit activations to the next stage; it delays, but occupies no GPU."""
    sent_s = np.asarray(tokens) * service.model.hidden * 2.0 / 1e9 / options.network_gb_per_s
    return (options.network_s + sent_s) * (stages > 1)


def _room(
    service: Service, node: NodeType, share: np.ndarray, tokens: float, stages: int, options: ReplicaOptions
) -> np.ndarray:
    """Return how many sequences of this number of tokens fit in each of `stages` batches, (L, 1)."""
    model = service.model
    free_gb = node.memory_gb * options.memory_share - node.gpus * options.reserve_gb
    repeated = max(1.0, node.gpus / model.kv_heads)
    each_gb = share * model.kv_bytes_per_token * repeated * service.seen_tokens(tokens) / 1e9
    return (free_gb - share * model.weight_gb(service.precision)) / (each_gb * stages)
