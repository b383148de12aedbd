"""Combine prefill nodes and decode nodes in a fixed ratio into one replica.

A prompt is computed on a prefill node, one at a time. Its KV cache crosses the network to a decode node, where the
tokens are made, and no prompt delays them. So a replica is a column like any other: its compute row counts the time of
prefill nodes, its queue servers and its memory are those of the decode nodes.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import (
    Capacity,
    Coefficients,
    Deployment,
    PairPerformance,
    Requests,
)
from fleetgym.hardware.performance.gpu_rates import kv_gb_per_token
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.model.instance import Configuration, Use

#: Prefill nodes to decode nodes.
RATIOS = ((1, 1), (2, 1), (1, 2), (3, 1), (1, 3))
MAX_GPUS = 8  # of a replica
#: Assumed: nodes that exchange KV caches are linked by 100 Gbit/s.
LINK_GB_PER_S, LINK_S = 12.5, 0.5e-3
_FEWEST_SERVERS = 8  # that a replica should have for each workload that it serves


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitColumn:
    """Prefill and decode nodes in a ratio, as a configuration."""

    configuration: Configuration
    engine_limit: int  # requests at once that the engine of a decode node is told
    memory_gb: float  # for the KV cache, over all decode nodes
    label: str = "modelled"


def sent_s_per_token(deployment: Deployment) -> float:
    """Return the seconds in which the KV cache of a prompt's token crosses the network."""
    return deployment.model.kv_bytes_per_token / 1e9 / LINK_GB_PER_S


def split_pair(
    prefill: Deployment,
    decode: Deployment,
    ratio: tuple[int, int],
    requests: Requests,
    at_once: float,
    options: RooflineOptions,
) -> PairPerformance | None:
    """Return how split nodes serve one workload's requests, or None where they exceed the context limit.

    Parameters
    ----------
    prefill, decode : Deployment
        A node of each side, of the same model.
    ratio : tuple of int
        How many of each.
    requests : Requests
        At nominal lengths.
    at_once : float
        Requests on each decode node, in a batch of others like themselves.
    options : RooflineOptions
        Of version 2 of the coefficients.

    Returns
    -------
    PairPerformance
        The work of a request is what a prefill node's tensor rate does while the prompt, or its transfer, takes it.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> node = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("H100"), precision="fp16")
    >>> chat = Requests(input_tokens=1155, output_tokens=211, error=0.03)
    >>> pair = split_pair(node, node, (1, 1), chat, 32.0, RooflineOptions(coefficients=2, context_limit=32768))
    >>> together = roofline.pair(node, chat, RooflineOptions(coefficients=2, context_limit=32768), at_once=32)
    >>> pair.prefill_s.at(1155, 211) > together.prefill_s.at(1155, 211)
    True
    >>> pair.service_s.at(1155, 211) < together.service_s.at(1155, 211)
    True
    """
    lengths = requests.input_tokens, requests.output_tokens
    if sum(lengths) > min(options.context_limit, decode.model.max_context):
        return None
    prompts = roofline.step_time(prefill, options, 1.0)
    step = roofline.step_time(decode, options, max(1.0, at_once))
    square = lengths[0] * (1.0 + requests.input_cv2)
    sent_s = sent_s_per_token(prefill)
    first_s = Coefficients(
        prompts.first_base_s + LINK_S,
        prompts.first_token_s + prompts.first_attention_s * square + sent_s,
        0.0,
    )
    token_s = step.per_output_token_s(max(1.0, at_once), lengths[0] + lengths[1] / 2.0)
    busy_s = prompts.prefill_s + prompts.attention_s * square
    rate = _tflops(prefill, options)
    return requests.served(
        service_s=dataclasses.replace(first_s, per_output_token=token_s),
        prefill_s=first_s,
        work_tflop=Coefficients(
            rate * prompts.prompt_s, rate * max(busy_s, sent_s * ratio[0] / min(ratio)), 0.0
        ),
        label=step.label,
    )


def _tflops(deployment: Deployment, options: RooflineOptions) -> float:
    found = roofline.capacity(deployment, options)
    return found.compute_tflops if found is not None else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitDemand:
    """What a workload asks of split replicas.

    Parameters
    ----------
    lengths : tuple of float
        Means of input and output tokens.
    requests : callable
        Requests as a deployment answers them.
    tpot_s : float
        Most seconds per output token.
    first_s : float
        Most seconds of a prompt that waits for no other.
    longer : float
        Factor on the prompts at which `tpot_s` holds, too.
    """

    lengths: tuple[float, float]
    requests: Callable[[Deployment], Requests]
    tpot_s: float
    first_s: float
    longer: float

    def most_at_once(self, decode: Deployment, most: int, options: RooflineOptions) -> int:
        """Return the most requests on a decode node whose tokens are in time; 0 where there is none."""
        context = self.lengths[0] * self.longer + self.lengths[1] / 2.0

        def is_late(at_once: int) -> bool:
            step = roofline.step_time(decode, options, float(at_once))
            return step.per_output_token_s(float(at_once), context) > self.tpot_s

        return bisect.bisect_left(range(1, most + 1), True, key=is_late)


class _Decoding(NamedTuple):
    """What a decode node serves."""

    capacity: Capacity
    at_once: int  # requests
    served: frozenset[int]  # workloads whose tokens are then in time


def split_columns(
    nodes: Mapping[Deployment, str],
    demands: Sequence[SplitDemand],
    usd_per_gpu_h: Mapping[str, float],
    options: RooflineOptions,
    *,
    startup_windows: int,
    storage_usd_per_gb_h: float,
    pairs: int = 2,
) -> tuple[list[SplitColumn], list[list[PairPerformance | None]]]:
    """Return the split replicas of one model that an instance holds.

    The best of each pair of GPU types by throughput per dollar, and for the best `pairs` pairs the best of every
    ratio. Throughput is that of as many requests of each workload that a replica serves.

    Parameters
    ----------
    nodes : mapping of Deployment to str
        What either side may be, and the tier on which its GPUs are rented.
    demands : sequence of SplitDemand
        One per workload.
    usd_per_gpu_h : mapping of str to float
        List price of each GPU type.
    options : RooflineOptions
        Of version 2, with what sequences hold.
    startup_windows : int
        Windows from the grant to service.
    storage_usd_per_gb_h : float
        Price of storing weights.
    pairs : int
        Pairs of GPU types of which all ratios are kept.

    Returns
    -------
    columns : list of SplitColumn
    pairs : nested lists, (workloads, columns)
        None where a limit of a workload is broken.
    """
    plain = dataclasses.replace(options, held=None)
    decoding = {node: _decoding(node, demands, options) for node in nodes}
    tiers = {node.gpu.name: tier for node, tier in nodes.items()}
    best: dict[tuple[str, str], dict[tuple[int, int], tuple[float, SplitColumn, list]]] = {}
    for prefill, decode, ratio, gpus in _splits(nodes):
        found = decoding[decode]
        if found is None:
            continue
        row = [
            _kept(demand, split_pair(prefill, decode, ratio, demand.requests(decode), found.at_once, plain))
            if i in found.served
            else None
            for i, demand in enumerate(demands)
        ]
        configuration = Configuration(
            id=f"{decode.model.name}@{_label(prefill, decode, ratio)}:split",
            model=decode.model.name,
            uses=tuple(Use(tier=tiers[name], gpus=count) for name, count in gpus.items()),
            compute_tflops=ratio[0] * _tflops(prefill, plain),
            kv_capacity_gb=ratio[1] * found.capacity.kv_capacity_gb,
            kv_gb_per_token=kv_gb_per_token(decode),
            max_concurrency=ratio[1] * found.at_once,
            max_replicas=1,
            startup_windows=startup_windows,
            model_storage_usd_per_h=storage_usd_per_gb_h * prefill.weight_gb,
        )
        column = SplitColumn(
            configuration=configuration,
            engine_limit=found.at_once,
            memory_gb=ratio[1] * roofline.kv_capacity_gb(decode, options),
        )
        usd = sum(usd_per_gpu_h[name] * count for name, count in gpus.items())
        worth = _throughput(column, row, demands) / usd
        group = best.setdefault((prefill.gpu.name, decode.gpu.name), {})
        if worth > 0.0 and (ratio not in group or worth > group[ratio][0]):
            group[ratio] = worth, column, row
    groups = [sorted(group.values(), key=lambda found: -found[0]) for group in best.values() if group]
    ranked = sorted(groups, key=lambda group: -group[0][0])
    kept = [found for k, group in enumerate(ranked) for found in (group if k < pairs else group[:1])]
    return [column for _, column, _ in kept], [[row[i] for _, _, row in kept] for i in range(len(demands))]


def _splits(
    nodes: Iterable[Deployment],
) -> Iterator[tuple[Deployment, Deployment, tuple[int, int], Mapping[str, int]]]:
    """Yield prefill node, decode node, ratio, and the GPUs that a replica takes, where these are not too many."""
    for prefill, decode, ratio in itertools.product(nodes, nodes, RATIOS):
        gpus = Counter({prefill.gpu.name: ratio[0] * prefill.gpus})
        gpus[decode.gpu.name] += ratio[1] * decode.gpus
        if gpus.total() <= MAX_GPUS:
            yield prefill, decode, ratio, gpus


def _label(prefill: Deployment, decode: Deployment, ratio: tuple[int, int]) -> str:
    """Return the nodes of both sides, such as ``"2x1xH100+1x2xL40S"``."""
    sides = zip(ratio, (prefill, decode), strict=True)
    return "+".join(f"{count}x{node.gpus}x{node.gpu.name}" for count, node in sides)


def _decoding(node: Deployment, demands: Sequence[SplitDemand], options: RooflineOptions) -> _Decoding | None:
    """Return what a decode node serves; None where it serves nothing in time."""
    capacity = roofline.capacity(node, options)
    if capacity is None:
        return None
    most = np.array([d.most_at_once(node, capacity.max_concurrency, options) for d in demands])
    ample = most >= min(_FEWEST_SERVERS, capacity.max_concurrency)
    if not ample.any():
        return None
    at_once = int(most[ample].min())
    return _Decoding(capacity, at_once, frozenset(np.flatnonzero(most >= at_once).tolist()))


def _kept(demand: SplitDemand, pair: PairPerformance | None) -> PairPerformance | None:
    in_time = pair is not None and pair.prefill_s.at(*demand.lengths) <= demand.first_s
    return pair if in_time else None


def _throughput(
    column: SplitColumn, row: Sequence[PairPerformance | None], demands: Sequence[SplitDemand]
) -> float:
    """Return requests per second of as many requests of each workload that the replica serves, times their number."""
    served = [(pair, demand.lengths) for pair, demand in zip(row, demands, strict=True) if pair is not None]
    if not served:
        return 0.0
    work = float(np.mean([pair.work_tflop.at(*lengths) for pair, lengths in served]))
    held_s = float(np.mean([pair.service_s.at(*lengths) for pair, lengths in served]))
    configuration = column.configuration
    rps = min(configuration.compute_tflops / work, configuration.max_concurrency / held_s)
    return rps * len(served)
