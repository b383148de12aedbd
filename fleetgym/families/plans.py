"""Fix what each serving family and size has in common: request classes, models, pools, terms."""

from __future__ import annotations

import dataclasses
import math

from fleetgym.families.draft import PoolPlan, SizePlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestClass:
    """A workload before its rate is known."""

    id: str
    tokens: str  # a class of `demand_fits.json`, or "" where a trace gives the lengths
    model: str  # the smallest model that is good enough
    base_error: float  # error share of an 8 B model at 16 bit, as FastLLM's regime assumes
    ttft_slo_s: float
    tpot_slo_s: float = math.inf  # where a family limits the mean time between tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilyPlan:
    """What a family fixes: how it draws, and what it charges."""

    description: str
    exclusive: bool = False  # one configuration at most of each (model, tier)
    drops: bool = False  # spot pools vanish
    windows: tuple[float, float] = (7.0, 10.0)  # windows of rent that an unserved request costs
    late_share: tuple[float, float] = (0.25, 0.5)  # of that, what a late one costs
    contexts: tuple[tuple[int, int], ...] = (
        (4096, 8),
    )  # context limits, and the fewest queue servers at each
    bursty: bool = (
        False  # arrivals within a window are as dispersed as the counts of windows, or as a law says
    )
    budget: float = 0.0  # a budget binds: so many times the usual shares; 0: none
    fee: tuple[float, float] = (1.5, 3.0)  # windows of its rent that starting a replica costs
    slower: int = 1  # replicas take so many times as long to start
    days: int = 0  # of an episode of weekly demand; 0: other demand
    lengths_log_sd: tuple[float, float] = (
        0.05,
        0.15,
    )  # range of the drift of mean token lengths (weekly demand)
    lengths_time_min: float = 360.0  # in which that drift forgets
    moving_prices: bool = False  # spot prices move, and drops are warned of where the cloud does so
    split: bool = False  # replicas of separate nodes for prefill and decoding, too
    tpot_slo_s: float = (
        0.1  # between tokens, where a class of requests says nothing: what people read at ease
    )

    @property
    def coefficients(self) -> int:
        """Version of the roofline's constants; all of `fleet-v2` have the second, and laws of lengths."""
        return 2 if self.days else 1


def _class(
    name: str, tokens: str, model: str, base_error: float, ttft_slo_s: float, tpot_slo_s: float = math.inf
) -> RequestClass:
    return RequestClass(
        id=name,
        tokens=tokens,
        model=model,
        base_error=base_error,
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
    )


CLASSES = {
    request.id: request
    for request in (
        _class("assistant", "sharegpt", "Llama-3.2-3B", 0.03, 0.8),
        _class("chat", "azure_conv", "Llama-3.1-8B", 0.03, 1.0),
        _class("summarise", "arxiv_summ", "gpt-oss-20b", 0.03, 2.5),
        _class("code", "azure_code", "Qwen3-32B", 0.04, 2.0),
        _class("reasoning", "reasoning", "Llama-3.1-70B", 0.05, 2.0),
        _class("agents", "azure_conv", "gpt-oss-120b", 0.04, 1.5),
        # more of them for size l
        _class("search", "azure_conv", "Qwen3-8B", 0.03, 0.8),
        _class("translate", "sharegpt", "Phi-4-14B", 0.02, 1.0),
        _class("review", "azure_code", "Qwen3-30B-A3B", 0.04, 2.5),
        _class("report", "arxiv_summ", "Llama-3.1-70B", 0.03, 4.0),
        _class("tutor", "reasoning", "Qwen3-32B", 0.05, 2.0),
        _class("triage", "azure_conv", "Llama-3.2-3B", 0.03, 1.0),
        # deadlines that decide; assumed: 40 ms a token where a person listens or waits, as in MLPerf's interactive
        # scenario (Inference v5.0, Llama 2 70B), more where whole lines are read
        _class("voice", "sharegpt", "Llama-3.2-3B", 0.03, 0.25, 0.04),
        _class("copilot", "azure_code", "Llama-3.1-8B", 0.04, 0.6, 0.1),
        _class("thinking", "reasoning", "Qwen3-32B", 0.05, 0.8, 0.04),
        _class("retrieval", "mooncake_synth", "Llama-3.1-8B", 0.03, 3.0, 0.05),
        _class("legal", "mooncake_synth", "Qwen3-32B", 0.04, 6.0, 0.1),
        _class("dialogue", "azure_conv", "gpt-oss-20b", 0.03, 0.6, 0.04),
    )
}


def request_class(workload: str) -> RequestClass:
    """Return the class of a workload, whose id may go on with a dot and where its requests come from.

    Examples
    --------
    >>> request_class("chat.region-2").tokens
    'azure_conv'
    """
    return CLASSES[workload.partition(".")[0]]


FAMILIES = {
    "grw": FamilyPlan(
        description="FastLLM's random walk on realistic columns in exclusive (model, tier) groups.",
        exclusive=True,
    ),
    "ou": FamilyPlan(
        description="Calibrated demand: a daily term, mean-reverting swings, noise and jumps; capacity is scarce, "
        "starting slow."
    ),
    "drop": FamilyPlan(
        description="Calibrated demand on spot and on-demand GPUs; spot pools vanish almost wholly, regions together.",
        drops=True,
        windows=(9.5, 10.0),
    ),
    "warp": FamilyPlan(description="One real hour of Azure requests stretched to a day; diagnostic."),
    "trace": FamilyPlan(description="Real ServeGen tenants: seven days of history, the eighth scored."),
    "budget": FamilyPlan(
        description="Calibrated demand under a budget that binds, per hour or for the whole day: whom to serve, "
        "and when.",
        budget=1.0,
    ),
    "tail": FamilyPlan(
        description="Tight deadlines for the first token and bursty arrivals: what is late, not what is refused, "
        "decides.",
        late_share=(0.45, 0.5),
        contexts=((4096, 8), (32768, 4)),
        bursty=True,
    ),
    "multi": FamilyPlan(
        description="Replicas of several GPU types in several regions, from Coral's serving templates; spot pools drop "
        "by region, demand peaks by time zone.",
        drops=True,
        windows=(9.0, 10.0),
    ),
    # of fleet-v2
    "week": FamilyPlan(
        description="A week: working days and a weekend, after two weeks of history; every start pays an hour of "
        "rent.",
        days=7,
        fee=(10.0, 14.0),
    ),
    "ou-v2": FamilyPlan(
        description="Demand that moves within a day as real traffic does; capacity is scarce, starting takes a "
        "quarter to three quarters of an hour.",
        days=1,
        slower=3,
    ),
    "drop-v2": FamilyPlan(
        description="Real swings of demand on spot and on-demand GPUs; spot pools vanish almost wholly, regions "
        "together, and every start pays half an hour of rent.",
        drops=True,
        windows=(9.5, 10.0),
        fee=(5.0, 7.0),
        days=1,
    ),
    "budget-v2": FamilyPlan(
        description="Real swings of demand under a budget that binds early, per hour or for the whole day.",
        budget=0.8,
        days=1,
    ),
    "tail-v2": FamilyPlan(
        description="Tight deadlines for the first token and for those after it, under bursts of seconds, of chat's "
        "and of code's law.",
        windows=(9.5, 12.0),
        late_share=(0.45, 0.5),
        bursty=True,
        days=1,
    ),
    "market": FamilyPlan(
        description="Reserved GPUs that are paid for anyway, spot pools whose prices move and that drop, with or "
        "without warning, and on-demand ones.",
        drops=True,
        windows=(8.0, 10.0),
        days=1,
        moving_prices=True,
    ),
    "split": FamilyPlan(
        description="Replicas that serve both phases beside ones with separate nodes for prompts and for tokens, in "
        "fixed ratios, while lengths drift.",
        days=1,
        lengths_log_sd=(0.30, 0.50),
        lengths_time_min=60.0,
        fee=(0.1, 0.3),
        split=True,
        tpot_slo_s=0.05,
    ),
}


def _aws(gpu: str, region: str, *precisions: str) -> PoolPlan:
    return PoolPlan(
        gpu=gpu,
        provider="AWS",
        market="on-demand",
        region=region,
        price_region=region,
        precisions=precisions,
    )


def _runpod(gpu: str, market: str, region: str, precision: str) -> PoolPlan:
    # The marketplace can take GPUs back, as spot does; its prices and the secure cloud's are a real pair.
    provider = "RunPod Community" if market == "spot" else "RunPod Secure"
    return PoolPlan(gpu=gpu, provider=provider, market=market, region=region, precisions=(precision,))


_SMALL = ("Llama-3.2-3B", "Llama-3.1-8B", "Qwen3-32B")
_SMALL_CLASSES = ("assistant", "chat", "summarise", "code")
_MEDIUM = ("Llama-3.2-3B", "Llama-3.1-8B", "gpt-oss-20b", "Qwen3-32B", "Llama-3.1-70B", "gpt-oss-120b")
_MEDIUM_CLASSES = ("assistant", "chat", "summarise", "code", "reasoning", "agents")
_LARGE = (*_MEDIUM, "Qwen3-8B", "Phi-4-14B", "Qwen3-30B-A3B", "Mixtral-8x7B-v0.1")
_LARGE_CLASSES = (*_MEDIUM_CLASSES, "search", "translate", "review", "report", "tutor", "triage")
_TAIL_CLASSES = ("voice", "copilot", "thinking", "retrieval")
_EAST, _WEST, _TOKYO = "us-east-1", "us-west-2", "ap-northeast-1"

_POOLS_S = (_aws("L40S", _EAST, "fp8"), _aws("A100-40GB", _EAST, "int8"), _aws("H100", _EAST, "fp8"))
_POOLS_M = (
    _aws("L40S", _EAST, "fp8", "int4"),
    _aws("A100-80GB", _EAST, "fp16", "int8"),
    _aws("H100", _EAST, "fp16", "fp8"),
    _aws("H200", _EAST, "fp8"),
    _aws("L40S", _TOKYO, "fp8"),
    _aws("A100-80GB", _TOKYO, "int8"),
    _aws("H100", _TOKYO, "fp8"),
)
_POOLS_L = (
    *_POOLS_M,
    _aws("A100-40GB", _EAST, "int8"),
    _aws("H200", _TOKYO, "fp8"),
    _aws("L40S", _WEST, "fp8", "int4"),
    _aws("A100-80GB", _WEST, "fp16", "int8"),
    _aws("H100", _WEST, "fp16", "fp8"),
    _aws("H200", _WEST, "fp8"),
)
_DROP_S = (
    _runpod("A100-80GB", "spot", "region-1", "int8"),
    _runpod("L40S", "spot", "region-2", "fp8"),
    _runpod("A100-80GB", "on-demand", "region-1", "int8"),
)
_DROP_M = (
    _runpod("A100-80GB", "spot", "region-1", "int8"),
    _runpod("A100-80GB", "spot", "region-2", "int8"),
    _runpod("A100-80GB", "on-demand", "region-1", "int8"),
    _runpod("L40S", "spot", "region-1", "fp8"),
    _runpod("L40S", "spot", "region-2", "fp8"),
    _runpod("L40S", "on-demand", "region-2", "fp8"),
    _runpod("H200", "spot", "region-1", "fp8"),
    _runpod("H200", "spot", "region-2", "fp8"),
    _runpod("H200", "on-demand", "region-1", "fp8"),
    _runpod("H100", "on-demand", "region-2", "fp8"),
)


def _clouds(*kinds: tuple[str, str, str]) -> tuple[PoolPlan, ...]:
    """Return pools of GCP in us-central1 and of AWS in us-east-1, each a GPU, a market and a precision.

    GCP has a price for spot. AWS's is assumed to be as much below on-demand. AWS warns two minutes ahead, which counts
    as a window; GCP's thirty seconds count as nothing.
    """
    found = []
    for gpu, market, precision in kinds:
        is_aws = gpu == "L40S"
        region = _EAST if is_aws else "us-central1"
        found.append(
            PoolPlan(
                gpu=gpu,
                provider="AWS" if is_aws else "GCP",
                market=market,
                region=region,
                price_region=region,
                precisions=(precision,),
                offer="spot" if market == "spot" and not is_aws else "on-demand",
                price_factor={"spot": _SPOT if is_aws else 1.0, "reserved": _COMMITTED}.get(market, 1.0),
                warned=is_aws and market == "spot",
            )
        )
    return tuple(found)


_SPOT = (
    0.60  # GCP's spot price over its on-demand price: A100-40GB .600, A100-80GB .600, H100 .569, H200 .599
)
_COMMITTED = 0.60  # assumed: what a year's commitment costs over on-demand
_MARKET_S = _clouds(
    ("A100-80GB", "reserved", "int8"),
    ("A100-80GB", "spot", "int8"),
    ("A100-80GB", "on-demand", "int8"),
    ("L40S", "spot", "fp8"),
    ("L40S", "on-demand", "fp8"),
)
_MARKET_M = (
    *_MARKET_S,
    *_clouds(
        ("H100", "reserved", "fp8"),
        ("H100", "spot", "fp8"),
        ("H100", "on-demand", "fp8"),
        ("H200", "spot", "fp8"),
        ("H200", "on-demand", "fp8"),
    ),
)


def _size(
    classes: tuple[str, ...], models: tuple[str, ...], pools: tuple[PoolPlan, ...], gpus: float
) -> SizePlan:
    return SizePlan(classes=classes, models=models, pools=pools, gpus=gpus)


_DEMAND_S = _size(_SMALL_CLASSES, _SMALL, _POOLS_S, 12.0)
_DEMAND_M = _size(_MEDIUM_CLASSES, _MEDIUM, _POOLS_M, 64.0)
_DEMAND_L = _size(_LARGE_CLASSES, _LARGE, _POOLS_L, 512.0)

_SPLIT_MODELS = ("Llama-3.1-8B", "Qwen3-32B")
_SPLIT_POOLS = tuple(
    PoolPlan(
        gpu=gpu,
        provider="RunPod Secure",
        market="on-demand",
        region="region-1",
        precisions=("fp16",),
    )
    for gpu in ("L40S", "A100-80GB", "H100")
)

#: Homogeneous replicas: one GPU type each. Family `multi` has `MULTI_SIZES`.
SIZES = {
    ("grw", "s"): _DEMAND_S,
    ("grw", "m"): _DEMAND_M,
    ("ou", "s"): _DEMAND_S,
    ("ou", "m"): _DEMAND_M,
    ("ou", "l"): _DEMAND_L,
    ("drop", "s"): _size(_SMALL_CLASSES, _SMALL, _DROP_S, 12.0),
    ("drop", "m"): _size(_MEDIUM_CLASSES, _MEDIUM, _DROP_M, 64.0),
    ("warp", "s"): _DEMAND_S,
    ("trace", "m"): _DEMAND_M,
    ("budget", "s"): _DEMAND_S,
    ("budget", "m"): _DEMAND_M,
    ("tail", "s"): _size(_TAIL_CLASSES, _SMALL, _POOLS_S, 16.0),
    ("tail", "m"): _size((*_TAIL_CLASSES, "legal", "dialogue"), _MEDIUM, _POOLS_M, 64.0),
    # of fleet-v2
    **{(name, "s"): _DEMAND_S for name in ("week", "ou-v2", "budget-v2")},
    **{(name, "m"): _DEMAND_M for name in ("week", "ou-v2", "budget-v2")},
    ("ou-v2", "l"): _DEMAND_L,
    ("drop-v2", "s"): _size(_SMALL_CLASSES, _SMALL, _DROP_S, 12.0),
    ("drop-v2", "m"): _size(_MEDIUM_CLASSES, _MEDIUM, _DROP_M, 64.0),
    ("tail-v2", "s"): _size(_TAIL_CLASSES, _SMALL, _POOLS_S, 16.0),
    ("tail-v2", "m"): _size((*_TAIL_CLASSES, "legal", "dialogue"), _MEDIUM, _POOLS_M, 64.0),
    ("market", "s"): _size(_SMALL_CLASSES, _SMALL, _MARKET_S, 16.0),
    ("market", "m"): _size(_MEDIUM_CLASSES, _MEDIUM, _MARKET_M, 64.0),
    ("split", "s"): _size(("chat", "code", "reasoning"), _SPLIT_MODELS, _SPLIT_POOLS, 24.0),
    ("split", "m"): _size(
        ("chat", "code", "reasoning", "summarise", "agents"),
        (*_SPLIT_MODELS, "Llama-3.1-70B"),
        _SPLIT_POOLS,
        96.0,
    ),
}


# -- family multi

#: Regions: AWS's H100 in Virginia, Tokyo and Sao Paulo costs 6.88, 8.60 and 11.56 USD/h, and so do all GPUs here.
_PRICE_FACTORS = {"region-1": 1.0, "region-2": 1.25, "region-3": 1.68}
TEMPLATE_PRECISION = "fp16"


def _region_pools(regions: int, *kinds: tuple[str, str]) -> tuple[PoolPlan, ...]:
    return tuple(
        PoolPlan(
            gpu=gpu,
            provider="RunPod Community" if market == "spot" else "RunPod Secure",
            market=market,
            region=region,
            precisions=(TEMPLATE_PRECISION,),
            price_factor=_PRICE_FACTORS[region],
        )
        for region in tuple(_PRICE_FACTORS)[:regions]
        for gpu, market in kinds
    )


def _region_classes(regions: int, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{region}" for name in names for region in tuple(_PRICE_FACTORS)[:regions])


_KINDS = (("L40S", "spot"), ("A100-80GB", "spot"), ("H100", "on-demand"))
#: Replicas of several GPU types, see `fleetgym.families.multi`.
MULTI_SIZES = {
    "s": SizePlan(
        classes=_region_classes(2, "chat", "code"),
        models=("Llama-3.1-8B", "Qwen3-32B"),
        pools=_region_pools(2, *_KINDS),
        gpus=16.0,
    ),
    "m": SizePlan(
        classes=_region_classes(3, "chat", "code", "reasoning"),
        models=("Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B"),
        pools=_region_pools(3, *_KINDS),
        gpus=96.0,
    ),
    "l": SizePlan(
        classes=_region_classes(3, "chat", "translate", "code", "reasoning"),
        models=("Llama-3.1-8B", "Phi-4-14B", "Qwen3-32B", "Llama-3.1-70B"),
        pools=_region_pools(3, *_KINDS, ("H200", "on-demand")),
        gpus=512.0,
    ),
}
