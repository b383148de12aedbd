"""Define Coral's core and extended set-up: models, nodes, regions and prices, published or substituted.

Published: Table 1 (GPUs, relative costs), Table 3 (models, layers, SLOs, traces), section 6.1 (node sizes, arrival
rates, N_max, rho). Substituted: the price of an L4, the regions' price levels, ShareGPT's lengths for BurstGPT's,
availability.
"""

from __future__ import annotations

import dataclasses

from fleetgym.hardware import catalog
from fleetgym.hardware.performance.replica import NodeType, Service

#: Table 1: relative cost, GB, TB/s, dense 16-bit TFLOPS.
GPUS = {
    "H100": ("H100", 7.6, 80.0, 3.35, 989.0),
    "A100": ("A100-80GB", 3.5, 80.0, 2.04, 312.0),
    "L40S": ("L40S", 2.2, 48.0, 0.86, 362.0),
    "L4": ("L4", 1.0, 24.0, 0.30, 121.0),
    "A10G": ("A10G", 1.2, 24.0, 0.60, 70.0),
}
#: AWS's g6.xlarge, recalled: no price list at hand has an L4 at a region of the paper. Ratios do not depend on it.
L4_USD_PER_H = 0.8048
#: AWS US-East-2, AP-Northeast-2, GCP US-Central-1. Assumed: the second costs as much more as AWS's H100 in Tokyo.
REGIONS = {"us-east-2": 1.0, "ap-northeast-2": 1.25, "us-central-1": 1.1}
NODE_SIZES = (1, 2, 4, 8)
#: Mean lengths: the Azure traces of 2023; ShareGPT stands in for BurstGPT.
LENGTHS = {"conv": (1154.7, 211.1), "code": (2047.8, 27.9), "burst": (74.1, 228.6)}
#: Table 3: the catalogue's name, prefill and decode SLO in ms, trace. Precision: as the model is published.
MODELS = {
    "Phi4-14B": ("Phi-4-14B", 1200, 60, "conv", "fp16"),
    "GPT-OSS-20B": ("gpt-oss-20b", 900, 30, "code", "int4"),
    "Qwen3-32B": ("Qwen3-32B", 1600, 100, "burst", "fp16"),
    "Llama3-70B": ("Llama-3.1-70B", 1500, 80, "burst", "fp16"),
    "GPT-OSS-120B": ("gpt-oss-120b", 1000, 40, "conv", "int4"),
    "Qwen3-235B": ("Qwen3-235B-A22B", 1800, 120, "code", "fp16"),
}
OSS_WINDOW_TOKENS, OSS_WINDOW_SHARE = 128, 0.5  # every second layer, by the model card


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """One of the paper's two set-ups."""

    name: str
    models: tuple[str, ...]  # by size
    gpus: tuple[str, ...]
    regions: tuple[str, ...]
    rate_rps: float  # of each model
    scarce_margin: float  # availability above the estimated demand, scarce case

    @property
    def nodes(self) -> tuple[NodeType, ...]:
        """Node types: every GPU with 1, 2, 4 and 8 of them."""
        return tuple(NodeType(gpu_type(name), n) for name in self.gpus for n in NODE_SIZES)

    @property
    def usd_per_h(self) -> tuple[tuple[float, ...], ...]:
        """Price of a node by region and node type."""
        return tuple(
            tuple(
                L4_USD_PER_H * GPUS[name][1] * n * REGIONS[region] for name in self.gpus for n in NODE_SIZES
            )
            for region in self.regions
        )


CORE = Setup(
    name="core",
    models=("Phi4-14B", "GPT-OSS-20B", "Qwen3-32B"),
    gpus=("L40S", "L4", "A10G"),
    regions=("us-east-2", "ap-northeast-2"),
    rate_rps=10.0,
    scarce_margin=0.25,
)
EXTENDED = Setup(
    name="extended",
    models=tuple(MODELS),
    gpus=("L40S", "L4", "A10G", "H100", "A100"),
    regions=tuple(REGIONS),
    rate_rps=25.0,
    scarce_margin=0.75,
)
PHASES = ("prefill", "decode")


def gpu_type(name: str) -> catalog.GpuType:
    """Return a GPU of Table 1: the catalogue's, with the table's memory, bandwidth and tensor rate."""
    known, _, memory_gb, bandwidth_tb_per_s, tflops = GPUS[name]
    return dataclasses.replace(
        catalog.gpu(known),
        memory_gb=memory_gb,
        bandwidth_gb_per_s=1000.0 * bandwidth_tb_per_s,
        fp16_tflops=tflops,
    )


def service(name: str) -> Service:
    """Return what is served of a model of Table 3."""
    known, prefill_ms, decode_ms, trace, precision = MODELS[name]
    windowed = name.startswith("GPT-OSS")
    return Service(
        model=catalog.model(known),
        precision=precision,
        input_tokens=LENGTHS[trace][0],
        output_tokens=LENGTHS[trace][1],
        prefill_slo_s=prefill_ms / 1000.0,
        decode_slo_s=decode_ms / 1000.0,
        window_tokens=OSS_WINDOW_TOKENS if windowed else 0,
        window_share=OSS_WINDOW_SHARE if windowed else 0.0,
    )
