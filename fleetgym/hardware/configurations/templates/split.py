"""Combine prefill nodes and decode nodes in a fixed ratio into one replica.

A prompt is computed on a prefill node. Its KV cache crosses the network to a decode node, where the tokens are made.
Both sides are templates of one node, at the throughput that their phase alone has. The replica serves what the smaller
of both sides and the network can. So it is a column like any other: kernels, planners and bounds take it as it is.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.hardware.catalog import ModelType
from fleetgym.hardware.performance.coefficients import Coefficients
from fleetgym.hardware.performance.replica import (
    NodeType,
    ReplicaOptions,
    Service,
    operating_point,
    prefill_step_s,
    throughput_table,
)

#: Prefill nodes to decode nodes.
RATIOS = ((1, 1), (2, 1), (1, 2), (3, 1), (1, 3))
MAX_GPUS = 8  # of a replica
#: Assumed: nodes that exchange KV caches are linked by 100 Gbit/s.
LINKED = ReplicaOptions(network_gb_per_s=12.5)


@dataclasses.dataclass(frozen=True)
class SplitReplica:
    """Prefill and decode nodes in a ratio, at full load; what it does to a request of the service's lengths."""

    service: Service
    prefill: NodeType
    decode: NodeType
    ratio: tuple[int, int]
    prefill_rps: float  # of all prefill nodes
    decode_rps: float  # of all decode nodes
    link_rps: float  # KV caches that cross the network
    decode_s: float  # per output token
    prefill_s: Coefficients  # to the first token, alone, with the KV transfer
    kv_capacity_gb: float  # of all decode nodes
    kv_gb_per_token: float

    @property
    def model(self) -> ModelType:
        """What it serves."""
        return self.service.model

    @property
    def throughput_rps(self) -> float:
        """Requests per second: the smaller of both sides, and of the network."""
        return min(self.prefill_rps, self.decode_rps, self.link_rps)

    @property
    def service_s(self) -> Coefficients:
        """Time that a request holds its place: prompt, transfer, then a step per token."""
        return dataclasses.replace(self.prefill_s, per_output_token=self.decode_s)

    @property
    def max_concurrency(self) -> int:
        """Requests at a time: at full load, throughput times service time (Little's law)."""
        held_s = self.service_s.at(self.service.input_tokens, self.service.output_tokens)
        return max(1, int(self.throughput_rps * held_s))

    @property
    def work_tflop(self) -> Coefficients:
        """Work of a request that its compute row counts: that of the prompt, for decoding has nodes of its own."""
        return Coefficients(0.0, 2.0 * self.model.active_params_b / 1000.0, 0.0)

    @property
    def compute_tflops(self) -> float:
        """What the prefill side does of that work."""
        return self.prefill_rps * self.work_tflop.at(self.service.input_tokens, 0.0)

    @property
    def gpus(self) -> Mapping[str, int]:
        """GPUs of each type that a replica takes."""
        found: Counter[str] = Counter()
        for node, count in zip((self.prefill, self.decode), self.ratio, strict=True):
            found[node.gpu.name] += count * node.gpus
        return found

    @property
    def label(self) -> str:
        """Nodes of both sides, such as ``2x1xH100+1x2xL40S:split``."""
        return f"{self.ratio[0]}x{self.prefill.name}+{self.ratio[1]}x{self.decode.name}:split"

    @property
    def stages(self) -> int:
        """Pipeline stages of either side."""
        return 1


def kv_gb(service: Service) -> float:
    """Return the size of a prompt's KV cache, which crosses the network once."""
    return service.model.kv_bytes_per_token * service.seen_tokens(service.input_tokens) / 1e9


def split_replica(
    service: Service,
    prefill: NodeType,
    decode: NodeType,
    ratio: tuple[int, int],
    options: ReplicaOptions = LINKED,
) -> SplitReplica | None:
    """Return the replica of some prefill and decode nodes.

    Parameters
    ----------
    service : Service
        Model, lengths and SLOs.
    prefill, decode : NodeType
        A node of each side.
    ratio : tuple of int
        How many of each.
    options : ReplicaOptions
        Assumptions; every node sends and receives at `network_gb_per_s`.

    Returns
    -------
    SplitReplica or None
        None where a side cannot serve: the model does not fit, or no step is fast enough.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> llama = Service(model=catalog.model("Llama-3.1-8B"), input_tokens=1155, output_tokens=211,
    ...                 prefill_slo_s=1.0, decode_slo_s=0.08)
    >>> node = NodeType(catalog.gpu("H100"), 1)
    >>> one, two = (split_replica(llama, node, node, (1, n)) for n in (1, 2))
    >>> one.throughput_rps <= two.throughput_rps, two.gpus["H100"]
    (True, 3)
    """
    layers = service.model.layers
    prompts_rps = float(throughput_table(service, [prefill], "prefill", 1, options)[0, 0, layers - 1])
    if service.model.heads % decode.gpus or prompts_rps <= 0.0:
        return None
    point = operating_point(service, decode, layers, 1, options, "decode")
    if point.throughput_rps <= 0.0:
        return None
    longer = dataclasses.replace(service, input_tokens=2.0 * service.input_tokens)
    once, twice = (float(prefill_step_s(s, prefill, np.ones(1), options)[0]) for s in (service, longer))
    token_s = (twice - once) / service.input_tokens
    sent_s = kv_gb(service) / options.network_gb_per_s
    base_s = max(0.0, once - token_s * service.input_tokens) + options.network_s
    repeated = max(1.0, decode.gpus / service.model.kv_heads)
    lengths = service.input_tokens + service.output_tokens
    return SplitReplica(
        service=service,
        prefill=prefill,
        decode=decode,
        ratio=ratio,
        prefill_rps=ratio[0] * prompts_rps,
        decode_rps=ratio[1] * point.throughput_rps,
        link_rps=min(ratio) / sent_s,
        decode_s=point.decode_s,
        prefill_s=Coefficients(base_s, token_s + sent_s / service.input_tokens, 0.0),
        kv_capacity_gb=ratio[1] * max(0.0, point.kv_capacity_gb),
        kv_gb_per_token=service.model.kv_bytes_per_token
        * repeated
        * service.seen_tokens(lengths)
        / lengths
        / 1e9,
    )


def select_split(
    service: Service,
    nodes: Sequence[NodeType],
    usd_per_gpu_h: Mapping[str, float],
    pairs: int = 2,
    options: ReplicaOptions = LINKED,
) -> list[SplitReplica]:
    """Return the split replicas that an instance holds.

    The best of each pair of GPU types by throughput per dollar, and for the best `pairs` pairs the best of every
    ratio. No replica has more than `MAX_GPUS` GPUs.

    Parameters
    ----------
    service : Service
        Model, lengths and SLOs.
    nodes : sequence of NodeType
        Nodes of either side.
    usd_per_gpu_h : mapping of str to float
        List price of each GPU type.
    pairs : int
        Pairs of GPU types of which all ratios are kept.
    options : ReplicaOptions
        As for `split_replica`.
    """
    best: dict[tuple[str, str], dict[tuple[int, int], tuple[float, SplitReplica]]] = {}
    for prefill in nodes:
        for decode in nodes:
            for ratio in RATIOS:
                if ratio[0] * prefill.gpus + ratio[1] * decode.gpus > MAX_GPUS:
                    continue
                found = split_replica(service, prefill, decode, ratio, options)
                if found is None:
                    continue
                usd = sum(usd_per_gpu_h[name] * count for name, count in found.gpus.items())
                worth = found.throughput_rps / usd
                group = best.setdefault((prefill.gpu.name, decode.gpu.name), {})
                if ratio not in group or worth > group[ratio][0]:
                    group[ratio] = worth, found
    ranked = sorted(best.values(), key=lambda group: -max(worth for worth, _ in group.values()))
    kept = [found for group in ranked[:pairs] for _, found in sorted(group.values(), key=lambda p: -p[0])]
    kept += [max(group.values(), key=lambda p: p[0])[1] for group in ranked[pairs:]]
    return kept
