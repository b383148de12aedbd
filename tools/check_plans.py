"""Compare planned capacities with measured ones, and fit the efficiencies by which plans are made.

Run ``python -m tools.check_plans silicon_e2e.csv``. For every deployment and pair of lengths whose request rate was
measured at three or more concurrencies, it prints the rate that a plan counts on, over the highest measured one, at the
same number of requests at once. Every run is predicted by efficiencies that were fitted to runs of *other* models
(``models held out``) or to all runs but those of its model and GPU type (``pairs held out``).

Left out are run sets (model file, GPU, precision, engine and version) of which a run would need more than the GPU has:
all its operations at 1/1.2 of the peak, all weights and a 16-bit cache at 1/1.1 and 1/1.05 of the bandwidth. Their
prompts were cached, or their cache has 8 bits. Left out, too, are runs whose weights do not fit.

The fitted values go into `fleetgym.hardware.performance.roofline.PLANNING` by hand, so that a change of the model's
numbers is a visible change of the code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fleetgym.cli.process import run_program
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests
from fleetgym.hardware.performance.held import held_tokens
from fleetgym.hardware.performance.roofline import PLANNING, Efficiency, RooflineOptions
from fleetgym.runtime.programs import program
from tools.make_data.catalog import GPU_NAMES, PRECISIONS, model_name

SET = ["model", "system", "gemm", "backend", "backend_version"]
POINT = ["name", "gpu", "precision", "tp", "isl", "osl"]
LEVELS = 3  # of concurrency that a highest rate is the highest of

#: What is fitted, as slow-downs and times in which the model is linear: start, and bounds.
FITTED = {
    "prompt_tensor": (1.5, 1.0, 6.0),
    "prompt_tensor_8bit": (1.8, 1.0, 6.0),
    "prompt_link": (2.0, 0.0, 30.0),
    "expert_trips": (20.0, 0.0, 40.0),
    "layer_s": (5e-5, 0.0, 4e-4),
    "sequence_s": (1e-5, 0.0, 1e-3),
    "prompt_layer_s": (1e-4, 0.0, 2e-3),
}
_INVERSE = ("prompt_tensor", "prompt_tensor_8bit", "prompt_link")
TINY = 1e-9


def efficiency(x: Sequence[float]) -> Efficiency:
    """Return the efficiencies that a vector of slow-downs and times stands for."""
    values = {name: 1.0 / max(v, TINY) if name in _INVERSE else v for name, v in zip(FITTED, x, strict=True)}
    return dataclasses.replace(PLANNING, **values)


def read_runs(path: Path) -> pd.DataFrame:
    """Return the measured runs whose weights fit, with deployments, sequences at once, and whether they may be true."""
    runs = pd.read_csv(path)
    runs = runs[runs.dp == 1].copy()
    runs["backend_version"] = runs.backend_version.fillna("")
    runs["name"], runs["gpu"] = runs.model.map(model_name), runs.system.map(GPU_NAMES)
    runs["precision"] = runs.gemm.map(PRECISIONS)
    runs["levels"] = runs.groupby(POINT).concurrency.transform("nunique")
    runs["deployment"] = [
        Deployment(
            model=catalog.model(run.name),
            gpu=catalog.gpu(run.gpu),
            precision=run.precision,
            tensor_parallel=run.tp,
        )
        for run in runs.itertuples()
    ]
    runs["fits"] = [_fits(*row) for row in zip(runs.deployment, runs.isl, runs.osl, strict=True)]
    runs = runs[runs.fits > 0].copy()
    runs["at_once"] = np.minimum(runs.concurrency, runs.fits)
    runs["needs"] = [_needs(run) for run in runs.itertuples()]
    runs["possible"] = runs.groupby(SET).needs.transform("max") <= 1.0
    return runs.reset_index(drop=True)


def _options(isl: int, osl: int, at_most: int = 512) -> RooflineOptions:
    held = held_tokens(np.array([float(isl)]), np.array([float(osl)]))
    return RooflineOptions(
        context_limit=isl + osl, held=held, max_num_seqs=at_most, measured="ignore", efficiency=PLANNING
    )


_FITS: dict[tuple[object, ...], int] = {}


def _fits(deployment: Deployment, isl: int, osl: int) -> int:
    """Return how many requests a plan puts into one replica at once."""
    key = (deployment, isl, osl)
    if key not in _FITS:
        found = roofline.capacity(deployment, _options(isl, osl))
        _FITS[key] = 0 if found is None else found.max_concurrency
    return _FITS[key]


def _needs(run: object) -> float:
    """Return the share of a GPU that a run's rate would take at the datasheet's rates, hardly slowed."""
    deployment = run.deployment
    bound = dataclasses.replace(
        PLANNING,
        bandwidth_weights=1 / 1.1,
        bandwidth_kv=1 / 1.05,
        tensor=1 / 1.2,
        prompt_tensor=1 / 1.2,
        prompt_tensor_8bit=1 / 1.2,
        prompt_link=1e9,
        expert_trips=0.0,
        layer_s=0.0,
        sequence_s=0.0,
        prompt_layer_s=0.0,
    )
    step = roofline._roofline(deployment, bound, run.concurrency)
    token = step.context_s * (run.isl + run.osl / 2) / roofline._REFERENCE_CONTEXT
    return run.req_per_s * (run.isl * step.prefill_s + run.osl * (token + step.base_s / run.concurrency))


def seconds(runs: pd.DataFrame, at_once: np.ndarray, chosen: Efficiency) -> np.ndarray:
    """Return how long a request stays where so many are served at once, as plans count it."""
    out = np.empty(len(runs))
    for k, (deployment, isl, osl, n) in enumerate(
        zip(runs.deployment, runs.isl, runs.osl, at_once, strict=True)
    ):
        step = roofline._roofline(deployment, chosen, float(n))
        own = step.first_base_s + isl * step.first_token_s
        others = (n - 1) * (step.prompt_s + isl * step.prefill_s)
        out[k] = own + others + osl * step.per_output_token_s(float(n), isl + osl / 2)
    return out


Time = Callable[[np.ndarray], np.ndarray]


def linear(time_s: Time, starts: Sequence[float]) -> Time:
    """Return a function that is linear in a vector, as one product with a matrix."""
    zero = np.full(len(starts), TINY)
    base = time_s(zero)
    units = []
    for k, start in enumerate(starts):
        x = zero.copy()
        x[k] = start
        units.append((time_s(x) - base) / (start - TINY))
    matrix = np.column_stack(units)
    return lambda x: base + matrix @ (x - zero)


def linear_seconds(runs: pd.DataFrame, at_once: np.ndarray) -> Time:
    """Return `seconds` as a function of the fitted vector, in which it is linear."""
    return linear(lambda x: seconds(runs, at_once, efficiency(x)), [start for start, _, _ in FITTED.values()])


def fit(runs: pd.DataFrame, time: Time, use: np.ndarray) -> np.ndarray:
    """Fit the efficiencies to the times that requests stay in some of the runs."""
    return fit_times(runs, time, (runs.at_once / runs.req_per_s).to_numpy(), use, FITTED)


def fit_times(
    runs: pd.DataFrame,
    time: Time,
    measured_s: np.ndarray,
    use: np.ndarray,
    fitted: Mapping[str, tuple[float, float, float]],
) -> np.ndarray:
    """Fit a vector to measured times of some of the runs; each pair of model and GPU type weighs the same."""
    start, low, high = (np.array(column) for column in zip(*fitted.values(), strict=True))
    pairs = runs.name + runs.gpu
    weight = 1.0 / np.sqrt(pairs.map(pairs[use].value_counts()).fillna(1.0).to_numpy())

    def residuals(x: np.ndarray) -> np.ndarray:
        return (weight * np.log(measured_s / time(x)))[use]

    found = [
        least_squares(
            residuals,
            np.clip(start * k, low + 1e-9, high),
            bounds=(low, high),
            x_scale=start,
            loss="soft_l1",
            f_scale=0.1,
        )
        for k in (0.3, 1.0, 3.0)
    ]
    return min(found, key=lambda f: f.cost).x


def highest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the highest measured rate of each deployment and pair of lengths, and what a plan has at once there."""
    best = runs.loc[runs.groupby(POINT).req_per_s.idxmax()].copy()
    most = runs.groupby(POINT).concurrency.max()
    best["at_once"] = np.minimum(best.fits, most.loc[pd.MultiIndex.from_frame(best[POINT])].to_numpy())
    return best


def held_out(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the highest rates with the planned ones, each by efficiencies of runs with other keys."""
    time, points = linear_seconds(runs, runs.at_once.to_numpy()), highest(runs)
    planned = linear_seconds(points, points.at_once.to_numpy())
    points["ratio"] = np.nan
    group, of_run = points[keys].agg(" ".join, axis=1), runs[keys].agg(" ".join, axis=1)
    for key in sorted(set(group)):
        x = fit(runs, time, (of_run != key).to_numpy())
        points.loc[group == key, "ratio"] = ((points.at_once / planned(x)) / points.req_per_s)[group == key]
    return points


def line(what: str, ratio: pd.Series) -> str:
    """Return median, deciles and extremes of planned over measured."""
    low, middle, high = ratio.quantile([0.1, 0.5, 0.9])
    return (
        f"{what:<34} {len(ratio):4} points: median {middle:.2f}, p10 {low:.2f}, p90 {high:.2f}, "
        f"extremes {ratio.min():.2f} and {ratio.max():.2f}"
    )


def _rows(points: pd.DataFrame) -> zip[tuple[Deployment, int, int, int, float]]:
    return zip(points.deployment, points.isl, points.osl, points.concurrency, points.req_per_s, strict=True)


def _before(deployment: Deployment, isl: int, osl: int, concurrency: int, highest_rps: float) -> float:
    """Return planned over measured as it was: fits of steps, and a power of two of tokens for each request."""
    options = RooflineOptions(context_limit=2 ** int(np.ceil(np.log2(isl + osl))))
    replica = roofline.capacity(deployment, options)
    if replica is None:
        return np.nan
    n = min(replica.max_concurrency, concurrency)
    pair = roofline.pair(
        deployment,
        Requests(input_tokens=isl, output_tokens=osl, error=0.0),
        dataclasses.replace(options, max_num_seqs=n),
    )
    return n / pair.service_s.at(isl, osl) / highest_rps


def first_token_errors(runs: pd.DataFrame) -> pd.Series:
    """Return planned over measured time to first token of the runs with at most four requests at once."""
    low = runs[(runs.concurrency <= 4) & (runs.ttft_ms > 0)]
    found = []
    for deployment, isl, ttft_ms in zip(low.deployment, low.isl, low.ttft_ms, strict=True):
        step = roofline._roofline(deployment, PLANNING, 1.0)
        found.append((step.first_base_s + isl * step.first_token_s) * 1e3 / ttft_ms)
    return pd.Series(found, dtype=float)


def outliers(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points beyond .6 and 1.5."""
    shown = [*POINT, "backend", "concurrency", "at_once", "req_per_s", "ratio"]
    return points[(points.ratio < 0.6) | (points.ratio > 1.5)][shown].round(2)


def smoke(folder: Path) -> None:
    """Judge runs that the model in the code made: planned over measured is 1."""
    rows = [
        (name, "h100_sxm", "bf16", "vllm", "1", 1, tensor, n, 1000, 200)
        for name, tensor in (("meta-llama/Llama-3.1-8B-Instruct", 1), ("mistralai/Mixtral-8x7B-v0.1", 4))
        for n in (4, 16, 64)
    ]
    runs = pd.DataFrame(rows, columns=[*SET[:1], *SET[1:], "dp", "tp", "concurrency", "isl", "osl"]).assign(
        req_per_s=1e-6, ttft_ms=100.0
    )
    path = folder / "runs.csv"
    runs.to_csv(path, index=False)
    known = read_runs(path)
    runs["req_per_s"] = known.at_once / seconds(known, known.at_once.to_numpy(), PLANNING)
    runs.to_csv(path, index=False)
    main([str(path)])


def main(argv: Sequence[str] | None = None) -> None:
    """Print the comparison, what is left out, and the fitted values."""
    parser = program(__doc__, writes="No file.", takes="A minute.", smoke=smoke)
    parser.add_argument("runs", type=Path, help="CSV of measured end-to-end runs")
    path = parser.parse_args(argv).runs
    if not path.exists():
        print(f"skipped: {path} is not there")
        return
    runs = read_runs(path)
    for key, rows in runs[~runs.possible].groupby(SET):
        print(f"left out, more than the GPU has: {' '.join(map(str, key))}, {len(rows)} runs")
    runs = runs[runs.possible & (runs.levels >= LEVELS)].reset_index(drop=True)
    x = fit(runs, linear_seconds(runs, runs.at_once.to_numpy()), np.ones(len(runs), dtype=bool))
    changed = efficiency(x)
    print("fitted to all:", {name: float(f"{getattr(changed, name):.3g}") for name in FITTED})
    points = highest(runs)
    print(line("before: families' roofline", pd.Series([_before(*row) for row in _rows(points)])))
    points["ratio"] = points.at_once / seconds(points, points.at_once.to_numpy(), PLANNING) / points.req_per_s
    print(line("in the code", points.ratio))
    print(line("first token, up to 4 at once", first_token_errors(runs)))
    for what, keys in (("models held out", ["name"]), ("pairs held out", ["name", "gpu"])):
        points = held_out(runs, keys)
        print(line(what, points.ratio))
        print(outliers(points).to_string(index=False))


if __name__ == "__main__":
    run_program(main)
