"""Make the catalogue: tables of GPUs, models, accuracy, fits and prices.

Every row keeps a label (measured, modelled, datasheet, substituted or assumed), its source and that source's licence.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

AIC = "ai-dynamo/aiconfigurator @ 095f58a"
APACHE = "Apache-2.0"
FACT = "facts (manufacturer's published figures)"

GPU_NAMES = {
    "a100_pcie": "A100-80GB-PCIe",
    "a100_sxm": "A100-80GB",
    "a30": "A30",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "b60": "Arc-B60",
    "gb200": "GB200",
    "gb300": "GB300",
    "h100_pcie": "H100-PCIe",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "l4": "L4",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000",
}
GPU_COLUMNS = [
    "name",
    "memory_gb",
    "bandwidth_gb_per_s",
    "fp16_tflops",
    "fp8_tflops",
    "int8_tflops",
    "int4_tflops",
    "fp4_tflops",
    "nvlink_gb_per_s",
    "pcie_gb_per_s",
    "gpus_per_node",
    "tdp_w",
    "label",
    "source",
    "licence",
]
# Dense tensor-core rates, FP32 accumulation where there is a choice; links per direction.
DATASHEETS = (
    ("A100-40GB", 40, 1555, 312, "", 624, 1248, "", 300, 32, 8, 400, "NVIDIA A100 datasheet"),
    ("A6000", 48, 768, 154.8, "", 309.7, 619.3, "", 56.25, 32, 8, 300, "NVIDIA RTX A6000 datasheet"),
    ("A40", 48, 696, 149.7, "", 299.3, 598.7, "", 56.25, 32, 8, 300, "NVIDIA A40 datasheet"),
    ("L40", 48, 864, 181.05, 362.1, 362.1, 724.1, "", 0, 32, 8, 300, "NVIDIA L40 datasheet"),
    ("A10G", 24, 600, 70, "", 140, 280, "", 0, 32, 8, 300, "NVIDIA A10G datasheet; Coral, table 1"),
    ("A10", 24, 600, 125, "", 250, 500, "", 0, 32, 8, 150, "NVIDIA A10 datasheet"),
    (
        "RTX-4090",
        24,
        1008,
        165.2,
        330.3,
        660.6,
        1321.2,
        "",
        0,
        32,
        8,
        450,
        "NVIDIA Ada GPU architecture paper",
    ),
    ("V100", 16, 900, 125, "", "", "", "", 150, 16, 8, 300, "NVIDIA V100 datasheet"),
    ("T4", 16, 320, 65, "", 130, 260, "", 0, 16, 8, 70, "NVIDIA T4 datasheet"),
    ("GH200", 96, 4000, 989, 1978, 1978, "", "", 0, 64, 1, 1000, "NVIDIA GH200 datasheet"),
    ("H100-NVL", 94, 3938, 835.5, 1671, 1671, "", "", 300, 64, 8, 400, "NVIDIA H100 datasheet"),
    ("H20", 96, 4000, 148, 296, 296, "", "", 450, 64, 8, 400, "NVIDIA H20 datasheet"),
    ("L20", 48, 864, 119.5, 239, 239, "", "", 0, 32, 8, 275, "NVIDIA L20 datasheet"),
    ("MI300X", 192, 5300, 1307.4, 2614.9, 2614.9, "", "", 448, 64, 8, 750, "AMD Instinct MI300X datasheet"),
    ("MI325X", 256, 6000, 1307.4, 2614.9, 2614.9, "", "", 448, 64, 8, 1000, "AMD Instinct MI325X datasheet"),
    (
        "MI355X",
        288,
        8000,
        2516.6,
        5033.2,
        5033.2,
        "",
        10066.3,
        537.6,
        64,
        8,
        1400,
        "AMD Instinct MI355X datasheet",
    ),
    ("Gaudi-3", 128, 3700, 1835, 1835, "", "", "", 525, 64, 8, 900, "Intel Gaudi 3 white paper"),
    ("TPU-v5e", 16, 800, 197, "", 393, "", "", 200, 32, 8, "", "Google Cloud TPU v5e and v6e documentation"),
    (
        "TPU-v6e",
        32,
        1600,
        918,
        "",
        1836,
        "",
        "",
        400,
        32,
        8,
        "",
        "Google Cloud TPU v5e and v6e documentation",
    ),
)
# The regime in which FastLLM's instances are reproduced: the paper gives ranges, and 24 GB to the A6000.
FASTLLM_GPUS = (
    ("fastllm-A6000", 24, 768, 40.7, "", 58.1, 77.4, 450),
    ("fastllm-RTX-4090", 24, 1008, 82.6, "", 123.9, 165.2, 450),
    ("fastllm-A100-40GB", 40, 1555, 312, "", 468, 624, 300),
    ("fastllm-H100", 80, 3350, 989, "", 1483.5, 1483.5, 450),
)

MODEL_COLUMNS = [
    "name",
    "params_b",
    "active_params_b",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "experts",
    "experts_per_token",
    "max_context",
    "weight_gb_bf16",
    "kv_bytes_per_token",
    "hybrid_attention",
    "label",
    "source",
    "licence",
]
# Quantised copies of a model that is listed anyway; vision models, whose image encoder is not counted; and
# architectures for which the estimate from the config misses the published size by a fifth or more.
SKIP_MODEL = re.compile(r"NVFP4|-FP8|-VL-|Nemotron|Llama-4|gemma-4")
MODEL_CARDS = (
    ("DeepSeek-R1", 671, 37, 61, 7168, 128, 128, 56, 256, 8, 163840, 1342, 70272, 0),
    ("Phi-4-14B", 14.66, 14.66, 40, 5120, 40, 10, 128, 0, 0, 16384, 29.32, 204800, 0),
)

ACCURACY_COLUMNS = ["model", "precision", "task", "score", "label", "source", "licence"]
PRECISIONS = {
    "bf16": "fp16",
    "fp16": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "gptq_int8": "int8",
    "int8_sq": "int8",
    "awq_int4": "int4",
    "int4_awq": "int4",
    "nvfp4": "int4",
}

FIT_COLUMNS = [
    "model",
    "gpu",
    "precision",
    "backend",
    "tensor_parallel",
    "points",
    "w_s",
    "h_s",
    "mape_wh",
    "base_s",
    "context_s",
    "sequence_s",
    "prefill_s",
    "mape",
    "label",
    "source",
    "licence",
]
PRICE_COLUMNS = [
    "gpu",
    "provider",
    "segment",
    "market",
    "region",
    "gpus",
    "usd_per_gpu_h",
    "date",
    "label",
    "source",
    "licence",
]


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write(path: Path, columns: list[str], rows: list[dict[str, object]]) -> None:
    """Write rows to a CSV file with Unix line ends."""
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows")


def model_name(raw: str) -> str:
    """Return the catalogue's name of a model: without publisher, variant and file format."""
    name = raw.split("/")[-1].split(" ")[0].split("(")[0]
    name = re.sub(r"^Meta-", "", name)
    return re.sub(r"(-Instruct)?(-FP8)?$", "", name)


def build_gpus(folder: Path, out: Path) -> None:
    """Write gpus.csv: the aiconfigurator table, datasheet rows and the FastLLM regime."""
    rows: list[dict[str, object]] = []
    for row in read(folder / "gpu_specs.csv"):
        nvlink, pcie = float(row["nvlink_gb_s"]), float(row["pcie_gb_s"])
        keys = ("mem_gib", "mem_bw_gb_s", "bf16_tflops", "fp8_tflops", "int8_tflops", "int4", "fp4_tflops")
        values = [f"{float(row[key]):.6g}" if row.get(key) else "" for key in keys]
        links = [f"{nvlink if nvlink > pcie else 0:g}", f"{pcie:g}"]
        more = [f"{float(row[k]):g}" for k in ("gpus_per_node", "tdp_w")]
        name = GPU_NAMES[row["gpu"]]
        facts = [name, *values, *links, *more, "datasheet", AIC, APACHE]
        rows.append(dict(zip(GPU_COLUMNS, facts, strict=True)))
    for *numbers, source in DATASHEETS:
        rows.append(dict(zip(GPU_COLUMNS, [*numbers, "datasheet", source, FACT], strict=True)))
    for name, memory, bandwidth, fp16, fp8, int8, int4, nvlink in FASTLLM_GPUS:
        numbers = [name, memory, bandwidth, fp16, fp8, int8, int4, "", nvlink, 32, 8, ""]
        source = "regime found for FastLLM section 4.1, which prints ranges only"
        rows.append(dict(zip(GPU_COLUMNS, [*numbers, "assumed", source, APACHE], strict=True)))
    write(out / "gpus.csv", GPU_COLUMNS, sorted(rows, key=lambda r: str(r["name"])))


def build_models(folder: Path, out: Path) -> None:
    """Write models.csv: one row per architecture with known parameters."""
    rows: dict[str, dict[str, object]] = {}
    for row in read(folder / "model_catalog.csv"):
        name = model_name(row["model"])
        if not row["params_b_est"] or SKIP_MODEL.search(row["model"]) or name in rows:
            continue
        recalled = "recalled" in row["model"]
        rows[name] = {
            "name": name,
            "params_b": row["params_b_est"],
            "active_params_b": row["active_b_est"],
            "layers": row["layers"],
            "hidden": row["hidden"],
            "heads": row["heads"],
            "kv_heads": row["kv_heads"],
            "head_dim": row["head_dim"],
            "experts": row["experts"],
            "experts_per_token": row["top_k"],
            "max_context": row["max_position"],
            "weight_gb_bf16": row["weight_gb_bf16"],
            "kv_bytes_per_token": f"{float(row['kv_bytes_per_token_16bit']):g}",
            "hybrid_attention": row["hybrid_or_sliding"],
            "label": "assumed" if recalled else "modelled",
            "source": "model card, recalled" if recalled else f"computed from the model's config in {AIC}",
            "licence": "facts" if recalled else APACHE,
        }
    for numbers in MODEL_CARDS:
        values = (*numbers, "assumed", "model card, recalled", "facts")
        rows[numbers[0]] = dict(zip(MODEL_COLUMNS, values, strict=True))
    write(out / "models.csv", MODEL_COLUMNS, [rows[name] for name in sorted(rows)])


def accuracy_licence(source: str) -> str:
    """Return the licence that goes with a source of scores."""
    if source.startswith("meta-llama"):
        return "Llama community licence (scores are facts)"
    return "none in snapshot (scores are facts)" if source.startswith("QwenLM") else APACHE


def build_accuracy(folder: Path, out: Path) -> None:
    """Write accuracy.csv: scores in percent, and relative MMLU losses of quantised models."""
    rows: dict[tuple[str, str, str], dict[str, object]] = {}
    for row in read(folder / "accuracy.csv"):
        key = (model_name(row["model"]), PRECISIONS.get(row["precision"], row["precision"]), row["task"])
        values = (*key, row["score"], "measured", row["source"], accuracy_licence(row["source"]))
        rows.setdefault(key, dict(zip(ACCURACY_COLUMNS, values, strict=True)))
    write(out / "accuracy.csv", ACCURACY_COLUMNS, [rows[key] for key in sorted(rows)])


def build_fits(folder: Path, out: Path) -> None:
    """Write iteration_fits.csv: the time per output token that was fitted to measured runs."""
    rows = []
    for row in read(folder / "fit_WH.csv"):
        values = (
            model_name(row["model"]),
            GPU_NAMES[row["system"]],
            PRECISIONS[row["gemm"]],
            row["backend"],
            row["n_gpus"],
            *(row[k] for k in ("points", "W_s", "H_s_at8192", "mape_WH")),
            *(
                row[k]
                for k in ("W4_s", "H4_s_at8192", "A4_s_per_seq", "D4_s_per_seq_isl_over_osl", "mape_4term")
            ),
            "measured",
            f"fitted to silicon_sample.csv of {AIC}",
            APACHE,
        )
        rows.append(dict(zip(FIT_COLUMNS, values, strict=True)))
    rows.sort(key=lambda r: (r["model"], r["gpu"], r["precision"], r["backend"], int(r["tensor_parallel"])))
    write(out / "iteration_fits.csv", FIT_COLUMNS, rows)


def build_prices(folder: Path, out: Path) -> None:
    """Write prices.csv: offers in USD per GPU-hour."""
    rows = []
    for row in read(folder / "prices_2026-10-10.csv"):
        values = (
            row["gpu"],
            row["provider"],
            row["segment"],
            row["pricing"].replace("_", "-"),
            row["region"],
            row["gpu_count"],
            row["usd_per_gpu_hour"],
            row["date"],
            "measured",
            "ewyluda/gpu-price-index @ ab49c80",
            "MIT (code); prices are the publishers' facts",
        )
        rows.append(dict(zip(PRICE_COLUMNS, values, strict=True)))
    rows.sort(key=lambda r: tuple(str(v) for v in r.values()))
    write(out / "prices.csv", PRICE_COLUMNS, rows)


#: The columns of the source tables that are read.
INPUTS = {
    "gpu_specs.csv": "gpu mem_gib mem_bw_gb_s bf16_tflops fp8_tflops int8_tflops fp4_tflops nvlink_gb_s pcie_gb_s "
    "gpus_per_node tdp_w",
    "model_catalog.csv": "model params_b_est active_b_est layers hidden heads kv_heads head_dim experts top_k "
    "max_position weight_gb_bf16 kv_bytes_per_token_16bit hybrid_or_sliding",
    "accuracy.csv": "model precision task score source",
    "fit_WH.csv": "model system gemm backend n_gpus points W_s H_s_at8192 mape_WH W4_s H4_s_at8192 A4_s_per_seq "
    "D4_s_per_seq_isl_over_osl mape_4term",
    "prices_2026-10-10.csv": "gpu provider segment pricing region gpu_count usd_per_gpu_hour date",
}


def make_up(folder: Path) -> None:
    """Write one made-up row of each source table."""
    words = {"gpu": "h100_sxm", "system": "h100_sxm", "gemm": "fp8", "model": "meta-llama/Llama-3.1-8B"}
    for name, columns in INPUTS.items():
        head = columns.split()
        row = [words.get(column, "1") for column in head]
        (folder / name).write_text(f"{','.join(head)}\n{','.join(row)}\n", encoding="utf-8")


def write_tables(folder: Path, out: Path) -> None:
    """Write every table of the catalogue."""
    for build in (build_gpus, build_models, build_accuracy, build_fits, build_prices):
        build(folder, out)
