"""Fit the rates of GPU types to measured operators, judge them on what took no part, and write ``docs/calibration.md``.

Run ``python -m tools.check_calibration FOLDER``, a folder with ``silicon_e2e.csv`` (measured runs of engines) and
``helix_layer_ms.csv`` (measured times of layers). The operators' times stand in
``docs/data/calibration/operators.csv.gz``, made by ``python -m tools.make_data.operators``. Every pair of model
and GPU type is predicted by constants that were fitted to the other pairs. ``--fit`` writes
``fleetgym/data/gpu_rates.csv`` anew, and prints what belongs into `fleetgym.hardware.performance.gpu_rates.DENSE`
and ``MIXTURE``, so that a change of the model's numbers is a visible change.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import gpu_rates, roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.gpu_rates import CONSTANTS, REFERENCE_CONTEXT, STEP, EngineTimes
from fleetgym.hardware.performance.held import held_tokens
from fleetgym.hardware.performance.replica import CALIBRATED
from fleetgym.hardware.performance.roofline import Efficiency, RooflineOptions
from fleetgym.runtime.programs import program
from tools.make_data.catalog import GPU_NAMES, PRECISIONS, model_name
from tools.markdown import table

OPERATORS = Path("docs/data/calibration/operators.csv.gz")
RATES = Path("fleetgym/data/gpu_rates.csv")
SET = ["model", "system", "gemm", "backend", "backend_version"]
POINT = ["name", "gpu", "precision", "tp", "isl", "osl"]
LEVELS = 3  # of concurrency that a highest rate is the highest of
#: Requests at once up to which the first token does not wait for others.
ALONE = 4
#: A host that is the limit at any load says nothing about the GPU.
SLOW_HOST = ("Llama-3.1-8B", "sglang")
#: How strongly a constant is held near that of all GPU types together: in residuals per e-fold.
HOLD = 0.3
#: What is fitted to engines, to times per output token and to first tokens: start, and least value.
FITTED = {"layer_s": (2e-5, 0.0), "sequence_s": (1e-5, 0.0), "prompt": (1.1, 0.5)}
FIRST = {"first_s": (0.01, 0.0), "first_prompt": (1.0, 0.5), "first_link": (0.5, 0.0)}


# -- operators


def read_operators(path: Path) -> pd.DataFrame:
    """Return measured times of steps and prompts with their deployments: one row a point."""
    points = pd.read_csv(path)
    keys = list(zip(points.gpu, points.model, points.precision, points.tp, strict=True))
    made = {
        key: Deployment(
            model=catalog.model(key[1]),
            gpu=catalog.gpu(key[0]),
            precision=key[2],
            tensor_parallel=int(key[3]),
        )
        for key in dict.fromkeys(keys)
    }
    return points.assign(deployment=[made[key] for key in keys])


def design(points: pd.DataFrame) -> np.ndarray:
    """Return the datasheet's time of every part, (points, constants): the model is this times the constants."""
    out = np.empty((len(points), len(CONSTANTS)))
    found: dict[object, np.ndarray] = {}
    for k, (where, phase, batch, tokens) in enumerate(
        zip(points.deployment, points.phase, points.batch, points.tokens, strict=True)
    ):
        key = (id(where), batch)
        if key not in found:
            parts = gpu_rates.parts(where, float(batch))
            found[key] = np.array([parts[name] for name in CONSTANTS])
        out[k] = found[key] @ _times(phase == "prefill", float(batch), float(tokens))
    return out


def _times(is_prompt: bool, batch: float, tokens: float) -> np.ndarray:
    """Return by what each constant of a step is multiplied, by `STEP`."""
    if is_prompt:
        return np.array([0.0, 0.0, 0.0, 1.0, tokens, tokens * tokens, tokens])
    return np.array([1.0, batch * tokens / REFERENCE_CONTEXT, batch, 0.0, 0.0, 0.0, 0.0])


def fit_rates(points: pd.DataFrame, matrix: np.ndarray, held: np.ndarray | None = None) -> np.ndarray:
    """Fit the constants to points; each is held a little near `held`, and stays there where no point knows it."""
    start = START if held is None else held
    scaled, seconds = matrix * start, points.ms.to_numpy() / 1e3

    def residuals(x: np.ndarray) -> np.ndarray:
        near = np.log((scaled @ np.exp(x)) / seconds)
        return np.append(
            np.sign(near) * np.sqrt(2e-2 * (np.sqrt(1.0 + near**2 / 1e-2) - 1.0)), HOLD * x / 10.0
        )

    found = least_squares(residuals, np.zeros(len(start)), bounds=(-12.0, 4.0), x_scale=1.0)
    return start * np.exp(found.x)


START = np.array([1e-5 if name.endswith("_s") else 5.0 if "trips" in name else 1.3 for name in CONSTANTS])


def fit_all(points: pd.DataFrame, matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Return the constants of each GPU type, held near those that fit all types together."""
    together = fit_rates(points, matrix)
    return {
        gpu: fit_rates(points[of], matrix[of], together)
        for gpu in dict.fromkeys(points.gpu)
        for of in [(points.gpu == gpu).to_numpy()]
    }


def operators_held_out(points: pd.DataFrame, matrix: np.ndarray) -> np.ndarray:
    """Return modelled over measured of every point, by constants of other pairs of model and GPU type."""
    out, together = np.empty(len(points)), fit_rates(points, matrix)
    for (gpu, model), rows in points.groupby(["gpu", "model"]):
        others = ((points.gpu == gpu) & (points.model != model)).to_numpy()
        here = points.index.get_indexer(rows.index)
        out[here] = matrix[here] @ fit_rates(points[others], matrix[others], together)
    return out / (points.ms.to_numpy() / 1e3)


def former_over_measured(points: pd.DataFrame) -> np.ndarray:
    """Return modelled over measured by version 1 of the coefficients, `Efficiency()`."""
    found, out = {}, np.empty(len(points))
    for k, (where, phase, n, tokens) in enumerate(
        zip(points.deployment, points.phase, points.batch, points.tokens, strict=True)
    ):
        if (id(where), n) not in found:
            found[id(where), n] = roofline.step_time(where, RooflineOptions(measured="ignore"), float(n))
        step = found[id(where), n]
        token_s = step.per_output_token_s(float(n), float(tokens))
        out[k] = step.base_s + tokens * step.prefill_s if phase == "prefill" else token_s
    return out / (points.ms.to_numpy() / 1e3)


# -- runs of engines


def read_runs(path: Path) -> pd.DataFrame:
    """Return the measured runs whose weights fit, with deployments, sequences at once, and whether they may be true.

    A set of runs may not be true if one needs more than the GPU has: all its operations at 1/1.2 of the peak, all
    weights and a 16-bit cache at 1/1.1 and 1/1.05 of the bandwidth.
    """
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
    fits: dict[object, int] = {}
    for run in runs.itertuples():
        if (key := (run.deployment, run.isl, run.osl)) not in fits:
            held = held_tokens(np.array([float(run.isl)]), np.array([float(run.osl)]))
            options = RooflineOptions(
                context_limit=run.isl + run.osl, held=held, max_num_seqs=512, coefficients=3
            )
            found = roofline.capacity(run.deployment, options)
            fits[key] = 0 if found is None else found.max_concurrency
    runs["fits"] = [fits[key] for key in zip(runs.deployment, runs.isl, runs.osl, strict=True)]
    runs = runs[runs.fits > 0].copy()
    runs["at_once"] = np.minimum(runs.concurrency, runs.fits)
    runs["needs"] = [_needs(run) for run in runs.itertuples()]
    slow = (runs.name == SLOW_HOST[0]) & (runs.backend == SLOW_HOST[1])
    runs["possible"] = (runs.groupby(SET).needs.transform("max") <= 1.0) & ~slow
    return runs.reset_index(drop=True)


def _needs(run: object) -> float:
    """Return the share of a GPU that a run's rate would take at the datasheet's rates, hardly slowed."""
    least = {name: 1.1 for name in CONSTANTS if name.startswith("weights")} | {"kv": 1.05}
    least |= {name: 1.2 for name in CONSTANTS if name.startswith("prompt_tensor")}
    parts = gpu_rates.parts(run.deployment, run.concurrency)
    step = dict(zip(STEP, sum(factor * parts[name] for name, factor in least.items()), strict=True))
    token_s = step["base_s"] / run.concurrency
    token_s += step["context_s"] * (run.isl + run.osl / 2) / REFERENCE_CONTEXT
    return run.req_per_s * (run.isl * step["prefill_s"] + run.osl * token_s)


def bare_steps(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the constants of the GPUs' operators alone, by `STEP`, and the layers."""
    rows = []
    for where, n in zip(runs.deployment, runs.at_once, strict=True):
        rows.append(gpu_rates.step_constants(where, float(n)) | {"layers": where.model.layers})
    return pd.DataFrame(rows, index=runs.index)


def prompts_s(runs: pd.DataFrame, steps: pd.DataFrame, link: float = 1.0) -> pd.Series:
    """Return the time of one prompt by the operators alone, in seconds; `link` is a factor on its all-reduces."""
    each = steps.prefill_s + link * steps.link_s
    return steps.prompt_s + runs.isl * each + runs.isl**2 * steps.attention_s


def token_s(runs: pd.DataFrame, steps: pd.DataFrame, engine: EngineTimes) -> pd.Series:
    """Return the modelled time per output token in seconds, prompts of others included."""
    context = (runs.isl + runs.osl / 2) / REFERENCE_CONTEXT
    each = steps.sequence_s + engine.sequence_s + steps.context_s * context
    each += engine.prompt * prompts_s(runs, steps) / runs.osl
    return steps.base_s + engine.layer_s * steps.layers + runs.at_once * each


def first_s(runs: pd.DataFrame, steps: pd.DataFrame, engine: EngineTimes) -> pd.Series:
    """Return the modelled time to the first token of a prompt that waits for no other, in seconds."""
    link = engine.first_link / engine.first_prompt
    return engine.first_s + engine.first_prompt * prompts_s(runs, steps, link)


def fit_engine(runs: pd.DataFrame) -> EngineTimes:
    """Fit what an engine adds to runs of one kind of model: to first tokens, then to times per token and in all.

    A time in all counts a quarter, since it is mostly times per token.
    """

    def steady(here: pd.DataFrame, steps: pd.DataFrame, engine: EngineTimes) -> np.ndarray:
        token = token_s(here, steps, engine)
        stay_s = here.at_once / here.req_per_s
        return np.array([token * 1e3 / here.tpot_ms, (whole_s(here, steps, token, engine) / stay_s) ** 0.25])

    def first(here: pd.DataFrame, steps: pd.DataFrame, engine: EngineTimes) -> np.ndarray:
        return np.array([first_s(here, steps, engine) * 1e3 / here.ttft_ms])

    alone, found = runs[(runs.concurrency <= ALONE) & (runs.ttft_ms > 0)], EngineTimes()
    found = _fit_times(found, FIRST, first, alone) if len(alone) else found
    return _fit_times(found, FITTED, steady, runs)


def _fit_times(
    base: EngineTimes,
    names: Mapping[str, tuple[float, float]],
    model: Callable[[pd.DataFrame, pd.DataFrame, EngineTimes], np.ndarray],
    runs: pd.DataFrame,
) -> EngineTimes:
    """Return `base` with some constants fitted to what `model` returns, modelled over measured times.

    Each pair of model and GPU type weighs the same.
    """
    steps, pairs = bare_steps(runs), runs.name + runs.gpu
    weight = 1.0 / np.sqrt(pairs.map(pairs.value_counts()).to_numpy())
    start, low = (np.array(column) for column in zip(*names.values(), strict=True))

    def made(x: np.ndarray) -> EngineTimes:
        return dataclasses.replace(base, **dict(zip(names, x.tolist(), strict=True)))

    found = least_squares(
        lambda x: (weight * np.log(model(runs, steps, made(x)))).ravel(),
        start,
        bounds=(low, np.inf),
        x_scale=start,
        loss="soft_l1",
        f_scale=0.1,
    )
    return made(found.x)


def whole_s(runs: pd.DataFrame, steps: pd.DataFrame, token: pd.Series, engine: EngineTimes) -> pd.Series:
    """Return how long a request stays, in seconds: its own prompt counts once, in the first token."""
    return first_s(runs, steps, engine) + runs.osl * token - engine.prompt * prompts_s(runs, steps)


def ratios(runs: pd.DataFrame, engine: EngineTimes) -> pd.DataFrame:
    """Return modelled over measured times per output token, first tokens (where few requests are there) and rates."""
    steps = bare_steps(runs)
    alone = (runs.concurrency <= ALONE) & (runs.ttft_ms > 0)
    token, first = token_s(runs, steps, engine), first_s(runs, steps, engine)
    return pd.DataFrame(
        {
            "TPOT": token * 1e3 / runs.tpot_ms,
            "TTFT": (first * 1e3 / runs.ttft_ms).where(alone),
            "rate": runs.at_once / whole_s(runs, steps, token, engine) / runs.req_per_s,
        },
        index=runs.index,
    )


def mixtures(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run's model is a mixture of experts."""
    return pd.Series([bool(d.model.experts) for d in runs.deployment], index=runs.index)


def held_out(
    runs: pd.DataFrame, keys: Sequence[str] = ("name", "gpu"), judged: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return modelled over measured of runs, or of those `judged`, by what runs of their kind with other keys say."""
    judged = runs if judged is None else judged
    group, of_judged = (frame[list(keys)].agg(" ".join, axis=1) for frame in (runs, judged))
    kind, kind_judged = mixtures(runs), mixtures(judged)
    out = pd.DataFrame(index=judged.index, columns=["TPOT", "TTFT", "rate"], dtype=float)
    for key in sorted(set(of_judged)):
        of = of_judged == key
        others = runs[(group != key) & (kind == kind_judged[of].iloc[0])]
        out[of] = ratios(judged[of], fit_engine(others)).to_numpy()
    return out


def highest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the run of the highest rate of each deployment and pair of lengths, and what a plan has at once there."""
    runs = runs[runs.levels >= LEVELS]
    best = runs.loc[runs.groupby(POINT).req_per_s.idxmax()].copy()
    most = runs.groupby(POINT).concurrency.max()
    best["at_once"] = np.minimum(best.fits, most.loc[pd.MultiIndex.from_frame(best[POINT])].to_numpy())
    return best


def former_ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return modelled over measured by version 1 of the coefficients, which was fitted to these runs."""
    rows = []
    for run in runs.itertuples():
        step = roofline.step_time(run.deployment, RooflineOptions(measured="ignore"), float(run.at_once))
        token = step.per_output_token_s(run.at_once, run.isl + run.osl / 2)
        token += run.at_once * run.isl * step.prefill_s / run.osl
        first = step.first_base_s + run.isl * step.first_token_s
        is_alone = run.concurrency <= ALONE and run.ttft_ms > 0
        rows.append((token * 1e3 / run.tpot_ms, first * 1e3 / run.ttft_ms if is_alone else np.nan))
    return pd.DataFrame(rows, index=runs.index, columns=["TPOT", "TTFT"])


# -- the page


def spread_loss(runs: pd.DataFrame, what: str) -> tuple[float, float, float, int]:
    """Return the exponent a by which measured speed falls behind Coral's model as n^-a over n GPUs, and its interval.

    The slope over log n is taken within runs of one set, lengths and requests at once. The interval resamples sets.
    """
    ratio = np.empty(len(runs))
    for k, run in enumerate(runs.itertuples()):
        chosen = RooflineOptions(measured="ignore", efficiency=CALIBRATED.get(run.gpu, Efficiency()))
        step = roofline.step_time(run.deployment, chosen)
        token = step.per_output_token_s(run.at_once, run.isl + run.osl / 2)
        token += run.at_once * run.isl * step.prefill_s / run.osl
        first = step.first_base_s + run.isl * (step.first_token_s - step.prefill_s)
        ratio[k] = token * 1e3 / run.tpot_ms
        if what == "rate":
            ratio[k] = run.req_per_s * (first + run.osl * token) / run.at_once
    same = runs[[*SET, "isl", "osl", "concurrency"]].astype(str).agg("|".join, axis=1)
    x, y = (
        v - v.groupby(same).transform("mean")
        for v in (np.log(runs.tp), pd.Series(-np.log(ratio), runs.index))
    )
    sets = runs[SET].astype(str).agg("|".join, axis=1)
    sums = pd.DataFrame({"xx": x * x, "xy": x * y}).groupby(sets).sum()
    sums = sums[sums.xx > 0.0].to_numpy()
    if len(sums) == 0:
        return np.nan, np.nan, np.nan, 0
    draws = np.random.default_rng(0).integers(0, len(sums), (2000, len(sums)))
    total = sums[draws].sum(axis=1)
    low, high = np.quantile(total[:, 1] / total[:, 0], (0.025, 0.975))
    return float(sums[:, 1].sum() / sums[:, 0].sum()), float(low), float(high), len(sums)


def _error(ratio: pd.Series) -> str:
    """Return the mean absolute error and the median ratio."""
    ratio = ratio.dropna()
    return f"{100 * (ratio - 1).abs().mean():.1f} % ({ratio.median():.2f})" if len(ratio) else "–"


def _near(ratio: pd.Series) -> float:
    """Return the share of points within 30 % of their median."""
    return float(((ratio / ratio.median() - 1.0).abs() < 0.3).mean())


def _by_gpu(points: pd.DataFrame) -> tuple[list[list[str]], list[float], list[float]]:
    """Return a row for each GPU type, and of all types and phases: medians relative to the H100's, shares near."""
    rows, trends, shares = [], [], []
    of_h100 = points[points.gpu == "H100"].groupby("phase")[["held", "former"]].median()
    for gpu, here in points.groupby("gpu"):
        cells = [gpu, str(len(here))]
        for phase in ("decode", "prefill"):
            part = here[here.phase == phase]
            trend = part[["held", "former"]].median() / of_h100.loc[phase]
            cells += [f"{trend.former:.2f}", f"{trend.held:.2f}", f"{100 * _near(part.held):.0f} %"]
            trends.append(float(trend.held))
            shares.append(_near(part.held))
        rows.append(cells)
    return rows, trends, shares


def _by(frames: Mapping[str, pd.DataFrame], by: pd.Series, what: str) -> list[list[str]]:
    """Return one row a group: how many runs, and each column's error."""
    rows = []
    for key in sorted(set(by)):
        here = (by == key).to_numpy()
        counted = int(frames["held out"].loc[here, what].notna().sum())
        if counted:
            rows.append([str(key), str(counted), *(_error(f.loc[here, what]) for f in frames.values())])
    return rows


#: Machines of Helix, one GPU each, and the catalogue's names.
HELIX = {"a100": "A100-40GB", "l4": "L4", "t4": "T4"}
HELIX_CONTEXT = 857.0  # tokens per sequence that the slope of LLaMA-30B's decoding steps on L4 implies
FEWEST_TOKENS = 8  # below, Helix's milliseconds have one significant digit


def helix_models() -> dict[str, catalog.ModelType]:
    """Return the two models that Helix profiled, which the catalogue lacks."""
    size = {"params_b": 68.98, "active_params_b": 68.98, "weight_gb_bf16": 137.96}
    seventy = dataclasses.replace(catalog.model("Llama-3.1-70B"), name="llama2_70b", **size)
    size = {"params_b": 32.5, "active_params_b": 32.5, "weight_gb_bf16": 65.0}
    shape = {"layers": 60, "hidden": 6656, "heads": 52, "kv_heads": 52, "kv_bytes_per_token": 4.0 * 60 * 6656}
    return {
        "llama1_30b": dataclasses.replace(seventy, name="llama1_30b", **size, **shape),
        "llama2_70b": seventy,
    }


def _other_gpus(folder: Path) -> list[list[str]]:
    """Return errors on GPU types that were not measured: times of all layers, by Helix."""
    rows, models = [], helix_models()
    points = pd.read_csv(folder / "helix_layer_ms.csv")
    points = points[points.tokens >= FEWEST_TOKENS]
    for machine, gpu in HELIX.items():
        for phase in ("decode", "prefill"):
            here = points[(points.machine == machine) & (points.phase == phase)]
            errors = []
            for version in (1, 2):
                found = []
                for row in here.itertuples():
                    model = models[row.model]
                    where = Deployment(model=model, gpu=catalog.gpu(gpu), precision="fp16", tensor_parallel=1)
                    options = RooflineOptions(measured="ignore", coefficients=version)
                    step, n = roofline.step_time(where, options, float(row.tokens)), float(row.tokens)
                    whole = step.prompt_s if version == 2 else step.base_s
                    prompt_s = whole + n * step.prefill_s + n * n * step.attention_s
                    seconds = step.per_output_token_s(n, HELIX_CONTEXT) if phase == "decode" else prompt_s
                    found.append(seconds / (row.ms_per_layer / 1e3 * model.layers))
                errors.append(_error(pd.Series(found)))
            stands_in = gpu_rates.LIKE.get(gpu, "its own")
            rows.append([f"{gpu}, {phase}", stands_in, str(len(here)), *errors])
    return rows


def _spread_rows(runs: pd.DataFrame) -> list[list[str]]:
    rows, kind = [], mixtures(runs)
    for name, here in (("dense", runs[~kind]), ("mixture", runs[kind]), ("all", runs)):
        found = [spread_loss(here.reset_index(drop=True), what) for what in ("TPOT", "rate")]
        rows.append(
            [name, str(found[0][3]), *(f"{a:.2f} [{low:.2f}, {high:.2f}]" for a, low, high, _ in found)]
        )
    return rows


def _verdict(what: str, goal: str, measured: str, holds: bool) -> list[str]:
    return [what, goal, measured, "**holds**" if holds else "**does not hold**"]


def page(points: pd.DataFrame, runs: pd.DataFrame, left_out: pd.DataFrame, folder: Path) -> str:
    """Return the page as Markdown."""
    by_gpu, trends, shares = _by_gpu(points)
    dense, kind = ~mixtures(runs), mixtures(runs).map({False: "dense", True: "mixture"})
    engines = [gpu_rates.MIXTURE if m else gpu_rates.DENSE for m in (False, True)]
    in_code = pd.concat(
        [ratios(runs[dense == d], e) for d, e in zip((True, False), engines, strict=True)]
    ).loc[runs.index]
    frames = {"version 1": former_ratios(runs), "in the code": in_code, "held out": held_out(runs)}
    held = frames["held out"]
    sets = runs[["name", "gpu", "precision", "backend"]].agg(" ".join, axis=1)
    best = highest(runs)
    rate = held_out(runs, judged=best).rate
    tpot, ttft = ((held.loc[dense, what].dropna() - 1).abs().mean() for what in ("TPOT", "TTFT"))
    mixture = (held.loc[~dense, "TPOT"].dropna() - 1).abs().mean()
    low, high, near = min(trends), max(trends), min(shares)
    of_own = points.held / points.groupby(["gpu", "phase"]).held.transform("median")
    verdicts = [
        _verdict(
            "median over each GPU type, relative to H100",
            "0.85 to 1.15",
            f"{low:.2f} to {high:.2f}",
            low >= 0.85 and high <= 1.15,
        ),
        _verdict(
            "points within 30 % of their GPU's median",
            "90 %",
            f"{100 * _near(of_own):.0f} %; {100 * near:.0f} % on the worst GPU type and phase",
            _near(of_own) >= 0.9,
        ),
        _verdict(
            "engines, time per output token, dense", "at most 11.4 %", f"{100 * tpot:.1f} %", tpot <= 0.114
        ),
        _verdict("engines, time to first token, dense", "at most 8 %", f"{100 * ttft:.1f} %", ttft <= 0.08),
        _verdict(
            "engines, time per output token, mixtures",
            "at most 20 %",
            f"{100 * mixture:.1f} %",
            mixture <= 0.2,
        ),
    ]
    head = ["runs", "version 1", "version 2", "version 2, held out"]
    sections = [
        HEAD,
        table(["held out", "goal", "measured", ""], verdicts, 4),
        "## By GPU type",
        GPU_TEXT,
        table(
            [
                "GPU",
                "points",
                *(f"{p}, {w}" for p in ("token", "prompt") for w in ("version 1", "version 2", "near")),
            ],
            by_gpu,
        ),
        "## Runs of engines",
        ENGINE_TEXT,
        "Time per output token:",
        table(["", *head], _by(frames, kind, "TPOT") + _by(frames, sets, "TPOT")),
        f"Time to the first token, at most {ALONE} requests at once:",
        table(["", *head], _by(frames, kind, "TTFT") + _by(frames, sets, "TTFT")),
        RATE_TEXT.format(n=len(rate), low=rate.quantile(0.1), middle=rate.median(), high=rate.quantile(0.9)),
        "## GPU types that were not measured",
        OTHER_TEXT,
        table(["GPU, phase", "stands in", "points", "version 1", "version 2"], _other_gpus(folder), 2),
        "## What tensor parallelism loses",
        SPREAD_TEXT,
        table(["models", "sets", "a, time per output token", "a, requests per second"], _spread_rows(runs)),
        "## Excluded runs",
        LEFT_TEXT.format(runs=len(left_out), sets=left_out.groupby(SET).ngroups),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in sections)


HEAD = """# Calibration: modelled and measured times

Service times come from a roofline: a sum of the datasheet's times, each multiplied by a slow-down. Its constants
have three versions.

- **Version 1** made `fleet-v0`, `fleet-v1` and the seasons drawn from them. Its slow-downs are the same for all
  GPU types, and were fitted to runs on H100 and H200. Relative to an H100, an H200 or B200 is too slow and an L40S
  or A100 too fast; TP over PCIe is far too fast. All workloads have one context.
- **Version 2** made `fleet-v2`. Each GPU type has its own slow-downs, by precision and phase, and
  its own all-reduces at TP 2, 4 and 8 (`fleetgym/data/gpu_rates.csv`). They are fitted to operators that NVIDIA
  timed (`aiconfigurator-core`, Apache-2.0). The overhead of engines was fitted to measured runs of vLLM, SGLang and
  TensorRT-LLM.
- **Version 3** is used by imported traces. It is version 2, but no prompt is faster alone than in a batch. Over PCIe at
  TP 4 and 8, version 2 predicts first tokens up to 1.9 times too early ([the referee](referee.md)). On this page both
  are equal.

This page is written in half a CPU minute by

    python -m tools.check_calibration FOLDER

where FOLDER holds `silicon_e2e.csv` and `helix_layer_ms.csv`, derived from ai-dynamo/aiconfigurator and
Thesys-lab/Helix-ASPLOS25 (both Apache-2.0). *Held out* means: each pair of model and GPU type is predicted by
constants that were fitted to the other pairs."""
GPU_TEXT = """Modelled over measured operators, medians by GPU type relative to the H100's. A point is a step of 1
to 128 sequences of 1,024 or 4,096 tokens, or a prompt of 512 to 8,192. *Near*: the share of points within 30 % of
their GPU's median. Nine models, five of them dense, at 16 and 8 bits; gpt-oss at 4. Precisions that the tables
lack, such as 8 bits on an A100, have the constants that fit all GPU types together. Dense weights of 4 bits have the
slow-down of 8, since none were measured."""
ENGINE_TEXT = """Mean absolute error, and in brackets the median of modelled over measured. Version 1 was fitted to
these runs. Mixtures of experts remain uncertain: the same model on the same GPU type takes 1.5 to 2 times as long with
one engine as with another, and a plan does not know its engine. The first token of a mixture also waits for prompts of
others."""
RATE_TEXT = """A plan rests on the highest rate of requests. Over {n} deployments and lengths that were run at
three or more loads, modelled over measured, held out, is {low:.2f} (p10), {middle:.2f} (median) and {high:.2f}
(p90)."""
OTHER_TEXT = """Helix timed all layers of LLaMA-30B and Llama-2-70B at 16 bits on one GPU, with an engine of 2024.
NVIDIA did not measure its GPU types, so they have the slow-downs of the nearest one, as every GPU type that is not
in the table above. Plans call these *extrapolated*."""
SPREAD_TEXT = """n GPUs are slower than the model of `fleetgym.hardware.performance.replica`, which [Coral's
reproduction](reproduce-coral.md) uses, by n^-a. The slope is fitted within runs of one set, lengths and
load. The 95 % interval resamples sets. H100 and H200 with NVLink."""
LEFT_TEXT = """{runs} runs in {sets} sets, of which a run would need more than the GPU's datasheet has: their prompts
were cached, or their cache has 8 bits. One more set is left out: an engine that took 30 ms a step at any load."""


def rates_csv(found: Mapping[str, np.ndarray]) -> bytes:
    """Return the table of fitted rates."""
    rows = [
        {
            "gpu": gpu,
            **{name: float(f"{value:.4g}") for name, value in zip(CONSTANTS, values.tolist(), strict=True)},
            "label": "modelled",
            "source": "fitted to operators of aiconfigurator-core 0.12.0",
            "licence": "Apache-2.0",
        }
        for gpu, values in sorted(found.items())
    ]
    out = io.StringIO()
    pd.DataFrame(rows).to_csv(out, index=False, lineterminator="\n")
    return out.getvalue().encode()


def smoke(folder: Path) -> None:
    """Judge a few points and runs that the model in the code made."""
    rows = [
        (gpu, model, "fp16", tp, phase, n, tokens)
        for gpu in ("H100", "L40S")
        for model in ("Llama-3.1-8B", "Qwen3-32B")
        for tp in (2, 4)
        for phase, n, tokens in (("decode", 8, 1024), ("decode", 32, 4096), ("prefill", 1, 2048))
    ]
    points = pd.DataFrame(rows, columns=["gpu", "model", "precision", "tp", "phase", "batch", "tokens"])
    points.assign(ms=1.0).to_csv(folder / "operators.csv", index=False)
    known = read_operators(folder / "operators.csv")
    rates = [[getattr(gpu_rates.rates(gpu), name) for name in CONSTANTS] for gpu in points.gpu]
    points.assign(ms=1e3 * (design(known) * rates).sum(axis=1)).to_csv(folder / "operators.csv", index=False)
    rows = [
        (name, system, "bf16", "vllm", "1", 1, tensor, n, 1000, 200)
        for name, tensor in (("meta-llama/Llama-3.1-8B-Instruct", 1), ("openai/gpt-oss-120b", 4))
        for system in ("h100_sxm", "h200_sxm")
        for n in (2, 16, 64)
    ]
    runs = pd.DataFrame(rows, columns=[*SET, "dp", "tp", "concurrency", "isl", "osl"])
    runs = runs.assign(req_per_s=1e-6, ttft_ms=100.0, tpot_ms=10.0 + 0.1 * runs.concurrency)
    runs.to_csv(folder / "silicon_e2e.csv", index=False)
    layers = [
        ("llama2_70b", machine, phase, tokens, 10.0 + 0.05 * tokens)
        for machine in HELIX
        for phase, tokens in (("decode", 16), ("decode", 64), ("prefill", 512), ("prefill", 2048))
    ]
    frame = pd.DataFrame(layers, columns=["model", "machine", "phase", "tokens", "ms_per_layer"])
    frame.to_csv(folder / "helix_layer_ms.csv", index=False)
    main([str(folder), "--operators", str(folder / "operators.csv"), "--out", str(folder / "page.md")])


def main(argv: Sequence[str] | None = None) -> None:
    """Fit if asked, judge, and write the page."""
    parser = program(__doc__, writes="docs/calibration.md.", takes="Half a CPU minute.", smoke=smoke)
    parser.add_argument("folder", type=Path, help="folder with silicon_e2e.csv and helix_layer_ms.csv")
    parser.add_argument("--operators", type=Path, default=OPERATORS)
    parser.add_argument("--fit", action="store_true", help=f"write {RATES} anew, and write no page")
    parser.add_argument("--out", type=Path, default=Path("docs/calibration.md"))
    options = parser.parse_args(argv)
    points = read_operators(options.operators)
    matrix = design(points)
    if options.fit:
        write_atomically(RATES, rates_csv(fit_all(points, matrix)))
        gpu_rates.measured_rates.cache_clear()
        gpu_rates.rates.cache_clear()
    runs = read_runs(options.folder / "silicon_e2e.csv")
    chosen, left_out = (runs[runs.possible == possible].reset_index(drop=True) for possible in (True, False))
    kind = mixtures(chosen)
    for name, of in (("DENSE", ~kind), ("MIXTURE", kind)):
        engine = fit_engine(chosen[of])
        print(f"{name} =", {n: float(f"{v:.3g}") for n, v in dataclasses.asdict(engine).items()})
    if options.fit:
        print(f"wrote {RATES}: now write these constants into fleetgym/hardware/performance/gpu_rates.py")
        return
    points["held"] = operators_held_out(points, matrix)
    points["former"] = former_over_measured(points)
    write_atomically(options.out, page(points, chosen, left_out, options.folder).encode())
    print(f"wrote {options.out}")


if __name__ == "__main__":
    run_program(main)
