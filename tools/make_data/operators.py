"""Write the times of steps and prompts that follow from measured operators, ``docs/data/calibration/operators.csv.gz``.

Run ``python -m tools.make_data.operators`` where `aiconfigurator-core` is installed (NVIDIA's tables of operators
that were timed on each GPU type, Apache-2.0). Each time is the median over three engines, each in its fastest mode
of the precision. Steps and prompts that the memory would not hold are left out.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.hardware import catalog
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.gpu_rates import kv_gb_per_token
from fleetgym.hardware.performance.roofline import kv_capacity_gb
from fleetgym.runtime.programs import program
from tools.make_data.catalog import GPU_NAMES

OUT = Path("docs/data/calibration/operators.csv.gz")
MODELS = {
    "Qwen/Qwen3-1.7B": "Qwen3-1.7B",
    "meta-llama/Meta-Llama-3.1-8B": "Llama-3.1-8B",
    "Qwen/Qwen3-32B": "Qwen3-32B",
    "meta-llama/Meta-Llama-3.1-70B": "Llama-3.1-70B",
    "meta-llama/Meta-Llama-3.1-405B": "Llama-3.1-405B",
    "Qwen/Qwen3-30B-A3B": "Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B": "Qwen3-235B-A22B",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
#: Ways to multiply with weights of a precision: of all layers, and of experts.
DENSE = {"fp16": [("bfloat16", None)], "fp8": [("fp8", None), ("fp8_static", None)]}
MIXTURE = {
    "fp16": [("bfloat16", "bfloat16")],
    "fp8": [("fp8", "fp8"), ("fp8_block", "fp8_block")],
    "int4": [("bfloat16", "w4a16_mxfp4")],
}
ENGINES = ("vllm", "trtllm", "sglang")
DEGREES = (1, 2, 4, 8)
STEPS = [("decode", n, tokens) for n in (1, 8, 32, 128) for tokens in (1024, 4096)]
PROMPTS = [("prefill", 1, tokens) for tokens in (512, 2048, 8192)]
KEY = ["gpu", "model", "precision", "tp", "phase", "batch", "tokens"]


def timed(systems: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Yield the time of every step and prompt, in ms, by engine and mode; what was not measured is skipped."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    for system in systems:
        for path, name in MODELS.items():
            for precision, modes in (MIXTURE if catalog.model(name).experts else DENSE).items():
                for tensor, engine, mode in ((t, e, m) for t in DEGREES for e in ENGINES for m in modes):
                    chosen = {
                        "gemm_quant_mode": mode[0],
                        "kvcache_quant_mode": "bfloat16",
                        "fmha_quant_mode": "bfloat16",
                    }
                    if mode[1]:
                        chosen |= {"moe_quant_mode": mode[1], "moe_tp_size": tensor, "moe_ep_size": 1}
                    key = (GPU_NAMES[system], name, precision, tensor)
                    try:
                        made = EngineHandle.compile(path, system, engine, tp_size=tensor, **chosen)
                        for phase, n, tokens in (*STEPS, *PROMPTS):
                            predict = (
                                made.predict_decode_latency
                                if phase == "decode"
                                else made.predict_prefill_latency
                            )
                            yield (*key, phase, n, tokens, engine, predict(n, tokens))
                    except (ValueError, RuntimeError, KeyError) as error:  # the tables lack it
                        logging.info("%s %s %s: %s", key, engine, mode, error)


def possible(row: object) -> bool:
    """Return whether the memory holds a step's or a prompt's tokens beside the weights."""
    where = Deployment(
        model=catalog.model(row.model),
        gpu=catalog.gpu(row.gpu),
        precision=row.precision,
        tensor_parallel=row.tp,
    )
    return row.batch * row.tokens * kv_gb_per_token(where) < kv_capacity_gb(where)


def summary(times: pd.DataFrame) -> pd.DataFrame:
    """Return the median over engines of each one's fastest mode, of what is possible."""
    found = times.groupby([*KEY, "engine"]).ms.min().groupby(KEY).median().reset_index()
    return found[[possible(row) for row in found.itertuples()]]


def smoke(folder: Path) -> None:
    """Sum up a few made-up times."""
    rows = [
        ("H100", "Llama-3.1-8B", "fp16", 1, "decode", 1, 1024, engine, ms)
        for engine, ms in zip(ENGINES, (6, 7, 9), strict=True)
    ]
    found = summary(pd.DataFrame([*rows, rows[0][:-1] + (5,)], columns=[*KEY, "engine", "ms"]))
    if found.ms.tolist() != [7.0]:
        raise AssertionError(found)
    write(found, folder / "operators.csv.gz")


def write(found: pd.DataFrame, path: Path) -> None:
    """Write the table; equal rows give equal bytes."""
    out = io.BytesIO()
    found.to_csv(out, index=False, float_format="%.5g", compression={"method": "gzip", "mtime": 0})
    write_atomically(path, out.getvalue())


def main(argv: Sequence[str] | None = None) -> None:
    """Time everything that the tables know."""
    parser = program(
        __doc__, writes="docs/data/calibration/operators.csv.gz.", takes="Half an hour.", smoke=smoke
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(argv)
    found = summary(pd.DataFrame(timed(list(GPU_NAMES)), columns=[*KEY, "engine", "ms"]).dropna())
    write(found, options.out)
    print(f"wrote {options.out}: {len(found)} times of {found.gpu.nunique()} GPU types")


if __name__ == "__main__":
    run_program(main)
