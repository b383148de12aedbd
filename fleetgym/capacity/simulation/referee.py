"""Replay windows in NVIDIA's simulator of LLM engines, which schedules every token.

Dynamo's offline replay (package ai-dynamo-runtime, Apache-2.0) is an engine's scheduler: continuous batching, chunked
prompts, blocks of KV memory, preemption. It knows nothing of queueing formulas. Here it gets requests that are drawn
from the instance's laws, replicas that come and go from window to window, and a table of step times.

Its entry point is private, so this is the only module that uses it, with the one version that the extra ``referee``
pins.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from fleetgym.capacity.simulation.window import PlayedWindow, arrivals
from fleetgym.capacity.traces.candidates import ENGINE
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.configurations.homogeneous import deployment_of
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.model.instance import IMPORTED, Instance
from fleetgym.model.lengths import LengthLaw
from fleetgym.scoring.statistics import Estimate, looks, ratio

VERSION = "1.6.1"  # of ai-dynamo-runtime
WARMUP = 3  # windows of an hour that are not counted
_STREAM = 0x64796E61  # so that no other part of the library draws the same numbers
BLOCK = 64  # tokens
_PROMPT_BLOCK = 2**20  # tokens; no prefixes are shared, so one block of the trace holds any prompt
_STEP = 1.06  # from one point of a table of times to the next
_CACHED = 0.9  # a prompt takes less than this of its time: a prefix cache holds a part


@dataclasses.dataclass(frozen=True, eq=False)
class StepTable:
    """How long an engine's passes take.

    Parameters
    ----------
    prompt_tokens, prompt_s : ndarray, shape (P,)
        Prompt tokens that one pass computes, ascending, and how much longer it takes for them.
    alone_s : ndarray, shape (P,)
        From the start of a lone prompt to its first token; what this is more than `prompt_s` is latency, no work.
    held_tokens, context : ndarray, shape (A,) and (C,)
        Tokens that all sequences of a pass hold together, and their mean; both ascending.
    step_s : ndarray, shape (A, C)
        Time of a pass that generates one token for each of them.
    """

    prompt_tokens: np.ndarray
    prompt_s: np.ndarray
    alone_s: np.ndarray
    held_tokens: np.ndarray
    context: np.ndarray
    step_s: np.ndarray

    def latency_s(self, tokens: np.ndarray) -> np.ndarray:
        """Return what a prompt's first token takes beside its pass, (n,)."""
        more = np.maximum(0.0, self.alone_s - self.prompt_s)
        return np.interp(tokens, self.prompt_tokens, more)


def grid(low: float, high: float) -> np.ndarray:
    """Return the points of a table from `low` to `high`, 6 % apart."""
    return np.geomspace(low, high, max(2, int(np.ceil(np.log(high / low) / np.log(_STEP)))))


def roofline_table(deployment: Deployment, options: RooflineOptions, most_tokens: float) -> StepTable:
    """Return the times that plans are made with, for up to `most_tokens` in the KV cache of a replica."""
    step = roofline.step_time(deployment, options)
    prompt = grid(1.0, float(deployment.model.max_context))
    held, context = grid(1.0, most_tokens), grid(1.0, float(deployment.model.max_context))
    sequences = held[:, None] / context
    base, at = np.empty_like(sequences), np.maximum(1.0, np.round(sequences))
    for n in np.unique(at):  # how many experts are read depends on the batch
        base[at == n] = roofline.step_time(deployment, options, float(n)).base_s
    return StepTable(
        prompt_tokens=prompt,
        prompt_s=step.prompt_s + step.prefill_s * prompt + step.attention_s * prompt**2,
        alone_s=step.first_base_s + step.first_token_s * prompt + step.first_attention_s * prompt**2,
        held_tokens=held,
        context=context,
        step_s=base
        + sequences * step.sequence_s
        + held[:, None] * step.context_s / roofline.REFERENCE_CONTEXT,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """What the requests of the counted windows met, by workload, (I,); NaN where there were none."""

    windows: tuple[int, ...]  # counted
    requests: np.ndarray  # in all replications, dispatched
    unserved: np.ndarray  # share that was turned away, as in the environment
    predicted: np.ndarray  # miss share by the environment, unserved requests included
    replayed: Estimate  # miss share with the late requests of the replay
    ttft_p99_s: np.ndarray
    predicted_delay_s: np.ndarray  # mean of the served, by the environment
    delay_s: np.ndarray  # replayed, waits included
    replications: int
    confidence: float  # of the interval
    is_tight: bool
    replicas: dict[str, tuple[int, int]]  # fewest and most by configuration


def hour_around(window: int, windows: int) -> range:
    """Return the twelve windows around one, within the day's `windows`.

    Raises
    ------
    FleetgymError
        If the day has no such window.

    Examples
    --------
    >>> hour_around(3, 288), hour_around(100, 288)
    (range(0, 12), range(94, 106))
    """
    if not 0 <= window < windows:
        raise FleetgymError(f"the day has windows 0 to {windows - 1}; got {window}")
    first = max(0, min(window - 6, windows - 12))
    return range(first, min(first + 12, windows))


def check_referee() -> None:
    """Raise `FleetgymError` where Dynamo's runtime of the right version is not installed."""
    try:
        found = importlib.metadata.version("ai-dynamo-runtime")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != VERSION:
        raise FleetgymError(
            f"the engine dynamo needs ai-dynamo-runtime {VERSION}, and there is {found}: "
            "pip install 'fleetgym[referee]'"
        )


def replay(
    played: Sequence[PlayedWindow],
    *,
    warmup: int = 0,
    seed: int = 0,
    min_replications: int = 2,
    max_replications: int = 8,
    confidence: float = 0.95,
    absolute: float = 0.002,
    relative: float = 0.1,
    table: Callable[[Deployment, float], StepTable] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Replay consecutive windows of an episode.

    Each request goes to a configuration by the environment's routing shares, and there to the replica with the least
    load. Dynamo draws ties between replicas anew in each run, so late shares repeat to about .1 points. Replicas that
    an agent releases finish what they have. Requests that the environment leaves unserved are turned away here, too.

    Parameters
    ----------
    played : sequence of PlayedWindow
        One after the other.
    warmup : int
        Windows at the beginning whose requests are not counted.
    seed : int
        Of the requests; replication k depends on the seed and k alone.
    min_replications, max_replications : int
        Replications before the first look, and in all.
    confidence, absolute, relative : float
        It stops when the half width of every miss share is at most the larger of `absolute` and `relative` times
        the share.
    table : callable, optional
        Takes a deployment, and the tokens that its memory holds, and returns its times; by default the roofline's.
    progress : callable, optional
        Called with the numbers of replications that are done, and of all.

    Returns
    -------
    Replay

    Raises
    ------
    FleetgymError
        Without the simulator, for a model that the catalogue lacks, for prompts that are in part in a cache, and for
        replicas of several GPU types or of separate phases.
    """
    check_referee()
    instance, counted = played[0].instance, played[warmup:]
    engines = {c: Engine.of(instance, c, table) for c in _used(played)}
    weights = np.array([w.conditions.rate_rps * instance.window_s for w in counted])
    unserved, predicted = (
        _mean(weights, [getattr(w.result, name) for w in counted])
        for name in ("unserved_share", "miss_share")
    )
    served = np.array([w.result.routing.sum(axis=1) for w in counted]) * weights
    delays = [
        (w.result.routing * w.snapshot.delay_s).sum(axis=1) / np.maximum(1e-12, w.result.routing.sum(axis=1))
        for w in counted
    ]
    rounds: list[_Round] = []
    for count in looks(min_replications, max_replications):
        while len(rounds) < count:
            rng = np.random.default_rng([_STREAM, seed, len(rounds)])
            rounds.append(_replay(played, warmup, engines, rng))
            if progress is not None:
                progress(len(rounds), max_replications)
        late = ratio(
            np.array([r.late for r in rounds]),
            np.array([r.requests for r in rounds]),
            confidence,
            is_share=True,
        )
        mean = unserved + (1.0 - unserved) * np.nan_to_num(late.mean)
        found = Estimate(
            np.where(weights.any(axis=0), mean, np.nan), (1.0 - unserved) * np.nan_to_num(late.half_width)
        )
        if is_tight := found.is_tight(absolute, relative):
            break
    requests = np.sum([r.requests for r in rounds], axis=0)
    first = [np.concatenate([r.ttft_s[i] for r in rounds]) for i in range(instance.num_workloads)]
    with np.errstate(invalid="ignore"):
        delay_s = np.sum([r.delay_s for r in rounds], axis=0) / requests
    serving = np.array([w.result.serving for w in played])
    return Replay(
        windows=tuple(w.window for w in counted),
        requests=requests,
        unserved=unserved,
        predicted=predicted,
        replayed=found,
        ttft_p99_s=np.array([np.quantile(x, 0.99, method="higher") if x.size else np.nan for x in first]),
        predicted_delay_s=_mean(served, delays),
        delay_s=delay_s,
        replications=len(rounds),
        confidence=confidence,
        is_tight=is_tight,
        replicas={
            instance.configurations[c].id: (int(serving[:, c].min()), int(serving[:, c].max()))
            for c in engines
        },
    )


def _mean(weights: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return means over windows, (I,), weighted by (T, I); NaN where all weights are 0."""
    total = weights.sum(axis=0)
    found = (weights * np.nan_to_num(np.array(values))).sum(axis=0)
    return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), np.nan)


def _used(played: Sequence[PlayedWindow]) -> list[int]:
    """Return the configurations to which some window sends requests."""
    return [int(c) for c in np.flatnonzero(sum(w.result.routing.sum(axis=0) for w in played) > 1e-9)]


@dataclasses.dataclass(frozen=True, eq=False)
class Engine:
    """One configuration as the simulator sees it: engines per replica, memory, times."""

    per_replica: int
    blocks: int
    max_num_seqs: int
    table: StepTable

    @classmethod
    def of(cls, instance: Instance, c: int, table: Callable[[Deployment, float], StepTable] | None) -> Engine:
        """Return an instance's configuration, with the times of `table` or the roofline's."""
        configuration, stated = instance.configurations[c], instance.stated
        deployment = deployment_of(instance, c)
        options = dataclasses.replace(ENGINE, coefficients=1 if stated is None else stated.coefficients)
        if stated is not None and stated.measured_steps:
            raise FleetgymError(
                "the instance was made of measured times, which the engine dynamo does not take"
            )
        rented = sum(use.gpus for use in configuration.uses)
        several = rented // deployment.gpus  # a plan may rent nodes that several replicas fill
        is_node = instance.family == IMPORTED and rented == several * deployment.gpus
        if len(configuration.uses) > 1 or not (rented == deployment.gpus or is_node):
            raise FleetgymError(
                f"{configuration.id} is a replica of several parts, and the engine dynamo plays replicas of one GPU "
                "type that serve both phases"
            )
        if instance.family == IMPORTED:
            _check_uncached(instance, c, roofline.step_time(deployment, options))
        gb = None if stated is None else stated.memory_gb(configuration.id)
        tokens = (
            (configuration.kv_capacity_gb if gb is None else gb) / several / configuration.kv_gb_per_token
        )
        limit = None if stated is None else stated.engine_limit(configuration.id)
        made = (table or (lambda d, most: roofline_table(d, options, most)))(deployment, tokens)
        return cls(several, max(1, int(tokens / BLOCK)), limit or options.max_num_seqs, made)


def _check_uncached(instance: Instance, c: int, step: roofline.StepTime) -> None:
    """Raise where less than whole prompts are computed: the replay would know no cache."""
    for i, workload in enumerate(instance.workloads):
        if instance.performance.compatible[i, c]:
            each = instance.performance.prefill_s.per_input_token[i, c]
            if each < _CACHED * step.first_token_s:
                raise FleetgymError(
                    f"the prompts of workload {workload.id!r} are in part in a prefix cache, which the engine dynamo "
                    "does not know: import the trace without its column of cached tokens"
                )


# -- one replication


@dataclasses.dataclass(frozen=True, eq=False)
class _Round:
    """What one replication counted, (I,); `ttft_s` has one array per workload."""

    requests: np.ndarray
    late: np.ndarray
    delay_s: np.ndarray  # sums
    ttft_s: list[np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Requests:
    """Requests in order of arrival, (n,) each."""

    arrival_s: np.ndarray
    window: np.ndarray
    workload: np.ndarray
    configuration: np.ndarray  # -1: turned away
    prompt: np.ndarray
    output: np.ndarray


def _draw(played: Sequence[PlayedWindow], rng: np.random.Generator) -> Requests:
    instance, parts = played[0].instance, []
    laws = [_laws(instance, i) for i in range(instance.num_workloads)]
    for t, one in enumerate(played):
        for i, workload in enumerate(instance.workloads):
            rate = float(one.conditions.rate_rps[i])
            at = arrivals(rate, workload.arrival_cv2).draw(rng, instance.window_s)
            prompt, output = (law.draw(rng, at.size) for law in laws[i])
            shares = np.append(one.result.routing[i], 0.0)
            shares[-1] = max(0.0, 1.0 - shares.sum())
            chosen = rng.choice(len(shares), at.size, p=shares / shares.sum())
            parts.append(
                (
                    at + t * instance.window_s,
                    np.full(at.size, t),
                    np.full(at.size, i),
                    np.where(chosen == len(shares) - 1, -1, chosen),
                    np.maximum(1, np.round(prompt * workload.input_tokens * one.conditions.input_scale[i])),
                    np.maximum(1, np.round(output * workload.output_tokens * one.conditions.output_scale[i])),
                )
            )
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Requests(*(column[order] for column in columns))


def _laws(instance: Instance, i: int) -> tuple[LengthLaw, LengthLaw]:
    """Return the laws of a workload's prompts and outputs; lognormal where the instance states none."""
    workload = instance.workloads[i]
    if workload.input_law is not None and workload.output_law is not None:
        return workload.input_law, workload.output_law
    drawn = [LengthLaw.lognormal(float(cv2)) for cv2 in _lengths_cv2(instance, i)]
    return workload.input_law or drawn[0], workload.output_law or drawn[1]


def _lengths_cv2(instance: Instance, i: int) -> np.ndarray:
    """Return the squared coefficients of variation of prompts and outputs that best explain `service_cv2`, (2,)."""
    workload, table = instance.workloads[i], instance.performance
    c = table.compatible[i]
    prompt = table.service_s.per_input_token[i, c] * workload.input_tokens
    output = table.service_s.per_output_token[i, c] * workload.output_tokens
    mean = table.service_s.base[i, c] + prompt + output
    parts = np.stack([prompt / mean, output / mean], axis=1) ** 2
    return nnls(parts, np.asarray(table.service_cv2)[i, c])[0]


def _replay(
    played: Sequence[PlayedWindow], warmup: int, engines: dict[int, Engine], rng: np.random.Generator
) -> _Round:
    instance, drawn = played[0].instance, _draw(played, rng)
    count = instance.num_workloads
    slo_s = np.array([np.inf if w.ttft_slo_s is None else w.ttft_slo_s for w in instance.workloads])
    ttft_s, delay_s = np.full(len(drawn.arrival_s), np.inf), np.full(len(drawn.arrival_s), np.nan)
    for c, engine in engines.items():
        here = drawn.configuration == c
        if here.any():
            serving = np.array([w.result.serving[c] for w in played]) * engine.per_replica
            ttft_s[here], delay_s[here] = run(engine, drawn, here, serving, instance.window_s)
    counts = (drawn.window >= warmup) & (drawn.configuration >= 0)
    of = drawn.workload[counts]
    ttft, delay = ttft_s[counts], delay_s[counts]
    late = ttft > slo_s[of]
    finished = ~np.isnan(delay)
    return _Round(
        requests=np.bincount(of, minlength=count),
        late=np.bincount(of, late, minlength=count),
        delay_s=np.bincount(of[finished], delay[finished], minlength=count),
        ttft_s=[ttft[of == i] for i in range(count)],
    )


def run(
    engine: Engine, drawn: Requests, here: np.ndarray, serving: np.ndarray, window_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return time to first token and to the last of one pool's requests, (n,) each; infinite if never."""
    os.environ.setdefault("DYN_LOG", "error")  # it logs each replica that comes and goes
    from dynamo import _core  # the extra `referee`

    at, prompt, output = drawn.arrival_s[here], drawn.prompt[here], drawn.output[here]
    start = float(at[0])
    with tempfile.TemporaryDirectory() as folder:
        trace, times = Path(folder, "trace.jsonl"), Path(folder, "times.npz")
        with trace.open("w", encoding="utf-8") as file:
            for k, (when, tokens, more) in enumerate(zip(at, prompt, output, strict=True)):
                row = {"timestamp": 1000.0 * (when - start), "input_length": int(tokens), "hash_ids": [k]}
                file.write(json.dumps(row | {"output_length": int(more)}) + "\n")
        table = engine.table
        np.savez(
            times,
            prefill_isl=table.prompt_tokens,
            prefill_ttft_ms=1000.0 * table.prompt_s,
            decode_active_kv_tokens=table.held_tokens,
            decode_context_length=table.context,
            decode_itl=1000.0 * table.step_s,
        )
        profile = {"type": "external", "provider": "dynamo_profile", "config": {"path": str(times)}}
        arguments = {
            "backend": "vllm",
            "num_gpu_blocks": engine.blocks,
            "block_size": BLOCK,
            "max_num_seqs": engine.max_num_seqs,
            "enable_prefix_caching": False,
            "timing_model": profile,
        }
        found = _core.run_mocker_trace_replay(
            [str(trace)],
            extra_engine_args=_core._normalize_mocker_config({"engine": arguments}),
            num_workers=max(1, int(serving[int(start // window_s)])),
            router_mode="kv_router",  # by load; without prefixes there is no overlap
            router_config=_core.KvRouterConfig(overlap_score_credit=0.0, use_kv_events=False),
            trace_block_size=_PROMPT_BLOCK,
            capture_per_request=True,
            scaling_policy=_Replicas(serving, window_s, start),
        )
    records = found.per_request
    if len(records) != len(at):
        raise FleetgymError(f"the engine dynamo reports {len(records)} of {len(at)} requests")
    first = np.array([np.inf if r["ttft_ms"] is None else r["ttft_ms"] for r in records]) / 1000.0
    last = (
        np.array([np.nan if r["e2e_latency_ms"] is None else r["e2e_latency_ms"] for r in records]) / 1000.0
    )
    latency_s = table.latency_s(prompt)
    return first + latency_s, last + latency_s


class _Replicas:
    """Tell the simulator how many engines each window has; it never has none, so that it finishes its requests."""

    def __init__(self, serving: np.ndarray, window_s: float, start: float):
        self._serving, self._window_s, self._start = serving, window_s, start
        self._window = int(start // window_s)

    def initial_tick_ms(self) -> float:
        """Return when the first window that follows begins."""
        return self._next_ms()

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return the number of engines of the window that begins, and when the next does."""
        self._window = min(self._window + 1, len(self._serving) - 1)
        wanted = max(1, int(self._serving[self._window]))
        return {
            "target_prefill": None,
            "target_decode": wanted,
            "next_tick_ms": self._next_ms(snapshot["now_ms"]),
        }

    def _next_ms(self, now_ms: float = 0.0) -> float:
        begins = 1000.0 * ((self._window + 1) * self._window_s - self._start)
        return begins if begins > now_ms else now_ms + 1000.0 * self._window_s
