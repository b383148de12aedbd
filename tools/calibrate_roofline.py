"""Fit the roofline's efficiencies to measured runs and print them beside the error that remains.

Run ``python -m tools.calibrate_roofline silicon_e2e.csv``. The values go into `Efficiency` by hand, so that
a change of the model's numbers is a visible change of the code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fleetgym.cli.process import run_program
from fleetgym.hardware import catalog
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import Efficiency, _roofline, step_time
from fleetgym.runtime.programs import program
from tools.build_catalog import GPU_NAMES, PRECISIONS, model_name

# Nobody reads weights, cache or operands faster than this; layers cost at most 0.2 ms.
LOWER = (1.1, 1.05, 1.2, 0.2, 0.0, 0.0)
UPPER = (3.0, 3.0, 5.0, 10.0, 2e-4, 2e-4)


def read_runs(path: Path) -> pd.DataFrame:
    """Return the measured runs without data parallelism.

    One engine's 8B runs on H200 take 30 ms a step at any load: a limit of the host, not of the GPU.
    """
    runs = pd.read_csv(path)
    slow_host = (runs.model == "meta-llama/Llama-3.1-8B-Instruct") & (runs.backend == "sglang")
    return runs[(runs.dp == 1) & ~slow_host].reset_index(drop=True)


def deployments(runs: pd.DataFrame) -> list[Deployment]:
    """Return the deployment of each run."""
    return [
        Deployment(
            model=catalog.model(model_name(run.model)),
            gpu=catalog.gpu(GPU_NAMES[run.system]),
            precision=PRECISIONS[run.gemm],
            tensor_parallel=run.tp,
        )
        for run in runs.itertuples()
    ]


def predict(where: list[Deployment], runs: pd.DataFrame, efficiency: Efficiency) -> np.ndarray:
    """Return the modelled time per output token in seconds, prompts of others included."""
    out = np.empty(len(runs))
    for k, run in enumerate(runs.itertuples()):
        step = _roofline(where[k], efficiency)
        decode = step.per_output_token_s(run.concurrency, run.isl + run.osl / 2)
        out[k] = decode + run.concurrency * step.prefill_s * run.isl / run.osl
    return out


def efficiency_of(x: np.ndarray) -> Efficiency:
    """Return the efficiencies that a vector of slow-downs and times per layer stands for."""
    return dataclasses.replace(
        Efficiency(),
        bandwidth_weights=1 / x[0],
        bandwidth_kv=1 / x[1],
        tensor=1 / x[2],
        link=1 / x[3],
        layer_s=x[4],
        layer_parallel_s=x[5],
    )


def columns(where: list[Deployment], runs: pd.DataFrame) -> np.ndarray:
    """Return the (runs, 6) matrix that is multiplied by the slow-downs: the roofline is linear in them."""
    units = []
    for k in range(6):
        x = np.full(6, 1e-30)  # not zero: the code divides by efficiencies
        x[k] = 1.0
        units.append(predict(where, runs, efficiency_of(x)))
    return np.column_stack(units)


def report(runs: pd.DataFrame, predicted: np.ndarray) -> None:
    """Print the absolute relative errors, in all and by model."""
    runs = runs.assign(name=runs.model.map(model_name))
    error = np.abs(predicted / (runs.tpot_ms / 1e3) - 1.0)
    dense = np.array([catalog.model(name).experts == 0 for name in runs.name])
    print(f"runs {len(runs)}: mean {error.mean():.3f}, median {error.median():.3f}")
    print(f"dense {dense.sum()}: mean {error[dense].mean():.3f}, median {error[dense].median():.3f}")
    print(error.groupby([runs.name, runs.system, runs.backend]).agg(["count", "mean", "median"]).round(3))


def report_first_token(runs: pd.DataFrame) -> None:
    """Fit the time to first token of runs with at most four requests at once, and print both errors."""
    low = runs[runs.concurrency <= 4].reset_index(drop=True)
    where = deployments(low)
    steps = [step_time(deployment) for deployment in where]
    seconds = low.ttft_ms.to_numpy() / 1e3
    base = np.array([step.base_s for step in steps])
    prompt = np.array([_roofline(d, Efficiency()).prefill_s for d in where]) * low.isl.to_numpy()
    coded = np.array([s.first_base_s for s in steps]) + np.array([s.first_token_s for s in steps]) * low.isl
    dense = np.array([deployment.model.experts == 0 for deployment in where])
    for name, rows in (("dense", dense), ("mixture", ~dense)):
        fit = least_squares(
            lambda x, rows=rows: np.log((base[rows] + x[0] + x[1] * prompt[rows]) / seconds[rows]),
            [0.03, 1.3],
            bounds=([0.0, 0.5], [1.0, 20.0]),
            loss="soft_l1",
            f_scale=0.2,
        )
        error = np.abs(coded[rows] / seconds[rows] - 1.0)
        print(f"first token, {name} ({rows.sum()}): fitted {fit.x.round(4)}", end=", ")
        print(f"in the code mean {error.mean():.3f}, median {error.median():.3f}")


def smoke(folder: Path) -> None:
    """Fit runs that the model in the code made, of one dense model and one mixture on one GPU type."""
    rows = [
        (name, "h100_sxm", "bf16", "vllm", 1, tensor, concurrency, 1000, 200, 0.0, 100.0 + concurrency)
        for name, tensor in (("meta-llama/Llama-3.1-8B-Instruct", 1), ("mistralai/Mixtral-8x7B-v0.1", 2))
        for concurrency in (1, 2, 4, 16, 64)
    ]
    head = [
        "model",
        "system",
        "gemm",
        "backend",
        "dp",
        "tp",
        "concurrency",
        "isl",
        "osl",
        "tpot_ms",
        "ttft_ms",
    ]
    runs = pd.DataFrame(rows, columns=head)
    runs["tpot_ms"] = 1e3 * predict(deployments(runs), runs, Efficiency())
    runs.to_csv(folder / "runs.csv", index=False)
    main([str(folder / "runs.csv")])


def main(argv: Sequence[str] | None = None) -> None:
    """Fit, print, and compare with what is in the code."""
    parser = program(__doc__, writes="No file.", takes="Seconds.", smoke=smoke)
    parser.add_argument("runs", type=Path, help="CSV of measured end-to-end runs")
    runs = read_runs(parser.parse_args(argv).runs)
    where = deployments(runs)
    matrix, seconds = columns(where, runs), runs.tpot_ms.to_numpy() / 1e3
    start = np.array([1.2, 1.2, 2.0, 1.0, 2e-5, 1e-5])
    fit = least_squares(
        lambda x: np.log(matrix @ x / seconds),
        start,
        bounds=(LOWER, UPPER),
        x_scale=start,
        loss="soft_l1",
        f_scale=0.2,
    )
    print("fitted", efficiency_of(fit.x))
    report(runs, matrix @ fit.x)
    print("in the code", Efficiency())
    report(runs, predict(where, runs, Efficiency()))
    report_first_token(runs)


if __name__ == "__main__":
    run_program(main)
