"""State the inputs that Jiang et al. print: GPUs, availabilities and traces (tables 1, 4, 5)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.baselines.jiang.problem import MakespanProblem, superfluous
from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware import catalog
from fleetgym.hardware.catalog import GpuType

from .pipelines import Pipeline, pipelines, rate_table

#: Mean input and output tokens of the nine workload types (section 3), in the order of table 5 that table 6's
#: "workload 1, long input and short output" implies.
LENGTHS = np.array([(i, o) for i in (2455, 824, 496) for o in (18, 253, 510)], dtype=float)
#: Requests of each workload in percent (table 5).
TRACES: Mapping[int, tuple[int, ...]] = {
    1: (33, 7, 8, 7, 27, 6, 6, 3, 3),
    2: (22, 5, 5, 21, 5, 5, 19, 6, 12),
    3: (4, 1, 4, 3, 20, 27, 1, 25, 15),
}
#: GPUs of each type that can be rented (table 4).
AVAILABLE: Mapping[int, Mapping[str, int]] = {
    1: {"4090": 16, "A40": 12, "A6000": 8, "L40": 12, "A100": 6, "H100": 8},
    2: {"4090": 32, "A40": 8, "A6000": 16, "L40": 16, "A100": 7, "H100": 12},
    3: {"4090": 32, "A40": 16, "A6000": 8, "L40": 8, "A100": 32, "H100": 8},
    4: {"4090": 24, "A40": 24, "A6000": 24, "L40": 16, "A100": 4, "H100": 8},
}
BUDGETS_USD_PER_H = (15.0, 30.0, 60.0)
#: USD/h of one GPU (table 1).
PRICES: Mapping[str, float] = {
    "4090": 0.53,
    "A40": 0.55,
    "A6000": 0.83,
    "L40": 0.83,
    "A100": 1.75,
    "H100": 2.99,
}
KINDS: Mapping[str, tuple[str, ...]] = {
    "data centre": ("A100", "H100"),
    "workstation": ("A40", "A6000", "L40"),
    "consumer": ("4090",),
}
#: Our names of the paper's Llama3 models.
LLAMA_8B, LLAMA_70B = "Llama-3.1-8B", "Llama-3.1-70B"
REQUESTS = 10_000  # the paper does not say how many; throughput does not depend on it

#: Catalogue name, memory GB and bandwidth GB/s (table 1). Its FLOPS mix sparse, dense and FP32 rates, so the dense
#: FP16 ones are the catalogue's. Links are section 5.1's: NVLink 300 GB/s, PCIe 60 GB/s, both directions together.
_GPUS = {
    "4090": ("RTX-4090", 24, 1008),
    "A40": ("A40", 48, 696),
    "A6000": ("A6000", 48, 960),
    "L40": ("L40", 48, 864),
    "A100": ("A100-80GB", 80, 1555),
    "H100": ("H100", 80, 3350),
}


@functools.cache
def gpu_types() -> Mapping[str, GpuType]:
    """Return the paper's six GPU types, in the order of table 4."""
    made = {}
    for name, (ours, memory_gb, bandwidth) in _GPUS.items():
        linked = name in KINDS["data centre"]
        made[name] = dataclasses.replace(
            catalog.gpu(ours),
            memory_gb=memory_gb,
            bandwidth_gb_per_s=bandwidth,
            nvlink_gb_per_s=300.0 if linked else 0.0,
            pcie_gb_per_s=30.0,
        )
    return made


@functools.cache
def candidates(model: str, kind: str = "mixed") -> tuple[tuple[Pipeline, ...], np.ndarray]:
    """Return pipelines of a model that are worth considering, and their rates (9, C).

    Those that `superfluous` drops are left out. GPUs are counted as if all of table 4's most were there, and no
    budget, so the list serves every availability and budget.

    Parameters
    ----------
    model : str
        Name in the catalogue.
    kind : {"mixed", "single-type", "tensor-only"}
        Pipelines of up to two GPU types, of one, or of a single stage (these are all kept).
    """
    limits = {"mixed": (8, 2), "single-type": (8, 1), "tensor-only": (1, 1)}
    if kind not in limits:
        raise UnknownNameError("kind of pipelines", kind, limits)
    gpus, (stages, types) = gpu_types(), limits[kind]
    most = {name: max(table[name] for table in AVAILABLE.values()) for name in gpus}
    found = list(pipelines(catalog.model(model), gpus, most, max_stages=stages, max_types=types))
    rates = rate_table(found, gpus, LENGTHS, [catalog.model(model)])
    if kind == "tensor-only":
        return tuple(found), rates
    whole = MakespanProblem(
        requests=np.ones(len(LENGTHS)),
        rate_rps=rates,
        gpu_use=gpu_use(found),
        price_usd_per_h=np.zeros(len(found)),
        available_gpus=np.array(list(most.values())),
    )
    stay = np.flatnonzero(~superfluous(whole))
    return tuple(found[c] for c in stay), rates[:, stay]


def gpu_use(found: Sequence[Pipeline]) -> np.ndarray:
    """Return GPUs by type and pipeline, int64 (6, C)."""
    return np.array([[p.gpus(name) for p in found] for name in _GPUS], dtype=np.int64).reshape(len(_GPUS), -1)


def problem(
    trace: int | Sequence[float],
    availability: int | Mapping[str, float],
    budget_usd_per_h: float,
    *,
    models: Mapping[str, float] | str = LLAMA_70B,
    kind: str = "mixed",
) -> tuple[MakespanProblem, tuple[Pipeline, ...]]:
    """Return one of the paper's problems, and the pipelines that its configurations are.

    Parameters
    ----------
    trace : int or sequence of float
        Number of a trace of table 5, or a share for each workload type.
    availability : int or mapping
        Number of an availability of table 4, or GPUs by type.
    budget_usd_per_h : float
        The budget.
    models : str or mapping
        A model, or the share of the requests of each of several (appendix E).
    kind : str
        Which pipelines, see `candidates`.

    Raises
    ------
    UnknownNameError
        For a trace, an availability or a kind that the paper does not have.
    """
    for what, number, table in (("trace", trace, TRACES), ("availability", availability, AVAILABLE)):
        if isinstance(number, int) and number not in table:
            raise UnknownNameError(what, str(number), map(str, table))
    shares = {models: 1.0} if isinstance(models, str) else dict(models)
    weights = np.array(TRACES[trace] if isinstance(trace, int) else trace, dtype=float)
    counts = AVAILABLE[availability] if isinstance(availability, int) else availability
    found: list[Pipeline] = []
    blocks = []
    for name in shares:
        some, rates = candidates(name, kind)
        found += some
        blocks.append(rates)
    rows, columns = len(LENGTHS), [b.shape[1] for b in blocks]
    rate = np.zeros((rows * len(blocks), sum(columns)))
    for m, block in enumerate(blocks):
        rate[m * rows : (m + 1) * rows, sum(columns[:m]) : sum(columns[: m + 1])] = block
    use = gpu_use(found)
    return MakespanProblem(
        requests=np.concatenate([REQUESTS * part * weights / weights.sum() for part in shares.values()]),
        rate_rps=rate,
        gpu_use=use,
        price_usd_per_h=np.array([PRICES[name] for name in _GPUS]) @ use,
        available_gpus=np.array([counts[name] for name in _GPUS], dtype=float),
        budget_usd_per_h=budget_usd_per_h,
    ), tuple(found)
