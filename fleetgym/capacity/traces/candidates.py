"""Workloads, offers, models and SLOs in; what may be deployed, and what it does to each workload's requests, out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from fleetgym.capacity.traces.days import Days
from fleetgym.capacity.traces.objectives import Slo
from fleetgym.capacity.traces.prices import Offer, pool_ids
from fleetgym.capacity.traces.workloads import TraceStatistics
from fleetgym.families import draft as parts
from fleetgym.families.static import Allocation
from fleetgym.families.text import six
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.hardware.configurations.homogeneous import Column, TierType
from fleetgym.hardware.performance import delay, roofline
from fleetgym.hardware.performance.coefficients import PairPerformance, Performance, performance_table

DEFAULT_MODELS = ("Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B")
BASE_ERROR = 0.04  # of an 8 B model at 16 bit, assumed as in FastLLM's regime
_DELAY_ROOM = 1.3
_SHORTEST_CONTEXT = 2048
_LONGEST_PREFILL = 0.8  # of the TTFT SLO, as in the families
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedPool(parts.PoolPlan):
    """A pool whose price comes from an `Offer`."""

    name: str
    usd_per_gpu_h: float

    @property
    def id(self) -> str:
        """Name of the pool; a list may have several offers of a GPU, market and region."""
        return self.name

    @property
    def price_usd_per_gpu_h(self) -> float:
        """The offer's price."""
        return self.usd_per_gpu_h


_WORDS = (  # of a name that do not change the shape of the model
    r"instruct|chat|it|hf|latest|turbo|fp8|fp16|bf16|awq|gptq|int[48]|w[48]a(8|16)|nvfp4|mxfp4|gguf|dynamic|quantized"
    r"|q\d\w*|\d{4}|v\d+(\.\d+)?:\d+|v0\.\d"
)


def _plain_name(name: str) -> str:
    """Return the name of a model without organisation, capitals, and words for tuning and precision.

    Examples
    --------
    >>> _plain_name("meta-llama/Meta-Llama-3.1-70B-Instruct-FP8"), _plain_name("llama3.1:70b")
    ('llama3.1-70b', 'llama3.1-70b')
    >>> _plain_name("us.meta.llama3-1-70b-instruct-v1:0")
    'llama3.1-70b'
    """
    text = name.rpartition("/")[2].lower()
    text = re.sub(r"^((us|eu|apac)\.)?(meta|deepseek|mistral|qwen|openai)[.-](?=[a-z])(?!r1|v\d)", "", text)
    text = re.sub(r"-v\d+:\d+$", "", text).replace(":", "-").replace("_", "-")
    text = re.sub(r"^(llama)-?(\d)[-.](\d)", r"\1\2.\3", text)
    text = re.sub(r"^(qwen)-(\d)", r"\1\2", text)
    while (bare := re.sub(rf"-({_WORDS})$", "", text)) != text:
        text = bare
    return text


def _named_model(label: str) -> str | None:
    """Return the catalogue's model that a label names, such as ``org/Llama-3.1-8B``; capitals do not matter."""
    words = label.split()
    short = _plain_name(words[-1]) if words else ""
    return next((name for name in catalog.model_names() if _plain_name(name) == short), None)


def bound_models(found: TraceStatistics) -> tuple[str | None, ...]:
    """Return the model to which its label binds each workload; None for one that any may serve."""
    return tuple(_named_model(label) for label in found.labels) or (None,) * len(found.names)


def unbound_labels(found: TraceStatistics) -> tuple[str, ...]:
    """Return what to say of labels that look like models and name none of the catalogue."""
    looks = re.compile(
        r"gpt|llama|qwen|mistral|mixtral|claude|gemini|gemma|deepseek|phi|\d+b\b", re.IGNORECASE
    )
    pairs = zip(found.labels, bound_models(found), strict=False)
    unknown = [label for label, model in pairs if model is None and looks.search(label)]
    if not unknown:
        return ()
    return (
        f"these labels name no model of the catalogue, so any candidate may serve them: {', '.join(unknown)}",
    )


def longest_request(models: Sequence[str] | None, labels: Sequence[str]) -> int:
    """Return the most tokens that a candidate's context holds.

    Parameters
    ----------
    models : sequence of str, optional
        The candidates; by default `DEFAULT_MODELS`, and what the labels name.
    labels : sequence of str
        Of the trace.
    """
    if models is None:
        models = [*DEFAULT_MODELS, *filter(None, map(_named_model, labels))]
    return max(catalog.model(name).max_context for name in models)


def _candidates(models: Sequence[str] | None, own: Sequence[str | None]) -> tuple[str, ...]:
    named = list(dict.fromkeys(name for name in own if name is not None))
    if models is None:
        models = named if named and None not in own else [*named, *DEFAULT_MODELS]
    for name in models:
        catalog.model(name)
    missing = [name for name in named if name not in models]
    if missing:
        raise FleetgymError(f"the trace asks for {', '.join(missing)}, which the models given leave out")
    return tuple(dict.fromkeys(models))


def _size_plan(found: TraceStatistics, offers: Sequence[Offer], models: tuple[str, ...]) -> parts.SizePlan:
    pools = tuple(
        PricedPool(
            name=name,
            gpu=o.gpu,
            provider="",
            market=o.market,
            region=o.region,
            precisions=("fp16", "int8" if catalog.gpu(o.gpu).fp8_tflops is None else "fp8"),
            usd_per_gpu_h=o.usd_per_gpu_h,
        )
        for name, o in zip(pool_ids(offers), offers, strict=True)
    )
    return parts.SizePlan(classes=found.names, models=models, pools=pools, gpus=0.0)


def context_limit(found: TraceStatistics) -> int:
    """Return the power of two that 99 % of the requests fit in, and every mean request."""
    longest = max(
        found.context_p99, float((found.lengths[:, 0] + found.lengths[:, 1]).max()), _SHORTEST_CONTEXT
    )
    return 2 ** math.ceil(math.log2(longest))


def _columns(plan: parts.SizePlan, options: roofline.RooflineOptions) -> list[Column]:
    tiers = [
        TierType(id=f"{pool.id}-{precision}", gpu=catalog.gpu(pool.gpu), precision=precision)
        for pool in plan.pools
        for precision in pool.precisions
    ]
    return parts.two_best(
        homogeneous.columns(
            [catalog.model(name) for name in plan.models],
            tiers,
            pipeline_parallel=(1,),
            capacity=lambda deployment: roofline.capacity(deployment, options),
            startup=homogeneous.startup_windows,
            storage_usd_per_gb_h=parts.STORAGE_USD_PER_GB_H,
        )
    )


def draft_instance(
    found: TraceStatistics,
    days: Days,
    offers: Sequence[Offer],
    slos: Sequence[Slo],
    models: Sequence[str] | None,
    context: int,
) -> parts.Draft:
    """Return everything about the instance but rates, caps and penalties.

    Parameters
    ----------
    found : TraceStatistics
        I workloads.
    days : Days
        Their demand.
    offers : sequence of Offer
        One pool each.
    slos : sequence of Slo
        One per workload.
    models : sequence of str, optional
        Candidates; by default those that the labels name, or `DEFAULT_MODELS`.
    context : int
        Most tokens of a request.

    Returns
    -------
    _Draft
        As the families make it.

    Raises
    ------
    FleetgymError
        If nothing can serve a workload, or not within its TTFT SLO.
    """
    own = bound_models(found)
    plan = _size_plan(found, offers, _candidates(models, own))
    options = roofline.RooflineOptions(context_limit=context)
    columns = _columns(plan, options)
    if not columns:
        raise FleetgymError(
            f"none of {', '.join(plan.models)} fits {', '.join(pool.gpu for pool in plan.pools)} with a context "
            f"of {options.context_limit} tokens"
        )
    lengths = six(found.lengths)
    resident = (
        float(  # mean context of the sequences in a batch; the longer they generate, the more there are
            found.lengths[:, 1] @ (found.lengths[:, 0] + found.lengths[:, 1] / 2) / found.lengths[:, 1].sum()
        )
    )
    pairs: list[list[PairPerformance | None]] = []
    for i, name in enumerate(found.names):
        row = [
            None
            if own[i] not in (None, column.deployment.model.name)
            else _pair(column, lengths[i], found.computed[i], resident, options)
            for column in columns
        ]
        pairs.append(_in_time(name, row, lengths[i], slos[i].ttft))
    table = performance_table(pairs)
    at = parts.at_lengths(table, lengths)
    error_slo = six([slo.error for slo in slos])
    delay_slo = _delay_slos(slos, table, at["delay_s"], error_slo)
    problem = parts.make_problem(plan, columns, table, at, lengths, delay_slo, error_slo, exclusive=False)
    return parts.Draft(
        plan, "trace-import", days.plan, lengths, columns, problem, table, delay_slo, error_slo, found.names
    )


def _pair(
    column: Column,
    lengths: np.ndarray,
    computed: np.ndarray,
    resident: float,
    options: roofline.RooflineOptions,
) -> PairPerformance | None:
    """Return what a configuration does to requests of which it computes a part of the prompt only."""
    tokens_in, tokens_out, _, out_cv2 = (float(v) for v in lengths)
    computed_in, computed_cv2, correlation = (float(v) for v in computed)
    model = column.deployment.model.name
    return roofline.pair(
        column.deployment,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        error=delay.error_share(BASE_ERROR, parts.effective_params_b(model), column.deployment.precision),
        context_tokens=resident,
        computed_share=min(1.0, computed_in / tokens_in),
        input_cv2=computed_cv2,
        output_cv2=out_cv2,
        correlation=correlation,
        storage_usd=parts.STORAGE_USD_PER_GB_H * parts.TEXT_GB_PER_TOKEN * (tokens_in + tokens_out),
        options=options,
    )


def _in_time(
    name: str, row: list[PairPerformance | None], lengths: np.ndarray, ttft_s: float
) -> list[PairPerformance | None]:
    """Return the pairs whose prefill leaves a fifth of the TTFT SLO for waiting."""
    first = [math.inf if p is None else p.prefill_s.at(lengths[0], lengths[1]) for p in row]
    if min(first) == math.inf:
        raise FleetgymError(
            f"no candidate can serve workload {name!r}, whose mean request has {lengths[0]:,.0f} + {lengths[1]:,.0f} "
            "tokens: its context, or its model on these GPUs, is out of reach; give other --models or --gpus"
        )
    if min(first) > _LONGEST_PREFILL * ttft_s:
        raise FleetgymError(
            f"the SLO ttft={ttft_s:g} of workload {name!r} is out of reach: a prompt of {lengths[0]:,.0f} tokens "
            f"alone takes {min(first):.2f} s on the fastest configuration, and a fifth of the SLO is for waiting"
        )
    return [p if s <= _LONGEST_PREFILL * ttft_s else None for p, s in zip(row, first, strict=True)]


def _delay_slos(
    slos: Sequence[Slo], table: Performance, delay_s: np.ndarray, error_slo: np.ndarray
) -> np.ndarray:
    found = []
    for i, slo in enumerate(slos):
        good = table.compatible[i] & (table.error[i] <= error_slo[i])
        usual = float(np.median(delay_s[i][good if good.any() else table.compatible[i]]))
        found.append(_DELAY_ROOM * usual if slo.delay is None else slo.delay)
    return six(found)


def check_slos(draft: parts.Draft, served: Allocation) -> None:
    """Raise where even unlimited GPUs, at any price, break a mean SLO or leave requests unserved to keep it.

    `served` is what they do for a demand that is light for them.
    """
    problem = draft.problem
    means = (
        ("delay", problem.delay_s, problem.mean_delay_slo_s),
        ("error", problem.error, problem.error_slo),
    )
    for i, name in enumerate(draft.names):
        for what, value, slo in means:
            best = float(value[i][problem.compatible[i]].min())
            if best > slo[i]:
                _out_of_reach(name, f"{what}={slo[i]:g}", f"the best configuration has {best:.4g}")
        broken = max(float(served.routing[i] @ (value[i] / slo[i] - 1.0)) for _, value, slo in means)
        if broken > TOLERANCE or served.unserved[i] > TOLERANCE:
            both = " and ".join(f"{what}={slo[i]:g}" for what, _, slo in means)
            _out_of_reach(name, both, "each can be kept, but not both together")


def _out_of_reach(workload: str, slo: str, why: str) -> NoReturn:
    raise FleetgymError(
        f"the SLO {slo} of workload {workload!r} is out of reach: {why}; loosen it, or give other --models or --gpus"
    )
