"""Compare the roofline's times with measured ones that took no part in the fit, and write ``docs/calibration.md``.

Run ``python -m tools.check_calibration FOLDER``, a folder with ``silicon_e2e.csv`` (measured runs) and
``helix_layer_ms.csv`` (measured times of layers). Every pair of model and GPU type is predicted by constants that were
fitted to the other pairs. The constants that follow from all pairs go into
`fleetgym.hardware.performance.roofline.NEXT` by hand, so that a change of the model's numbers is a visible change of
the code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import table
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.replica import CALIBRATED
from fleetgym.hardware.performance.roofline import NEXT, PLANNING, Efficiency
from fleetgym.runtime.programs import program
from tools.check_plans import SET, TINY, fit_times, linear, read_runs, seconds

#: What is fitted to times per output token: slow-downs (shares of a rate are their inverses) and times; start, bounds.
FITTED = {
    "bandwidth_weights": (1.2, 1.05, 4.0),
    "bandwidth_kv": (1.2, 1.05, 4.0),
    "tensor": (1.5, 1.1, 6.0),
    "link": (2.0, 0.0, 30.0),
    "layer_s": (5e-5, 0.0, 4e-4),
    "layer_mixture_s": (3e-5, 0.0, 4e-4),
    "sequence_s": (1e-5, 0.0, 1e-3),
    "prompt_tensor": (1.5, 1.15, 6.0),
    "prompt_tensor_8bit": (1.8, 1.15, 6.0),
    "prompt_link": (2.0, 0.0, 30.0),
    "expert_trips": (50.0, 0.0, 300.0),
}
#: The form that stands in the code, for a comparison of like with like.
FORMER = {
    "bandwidth_weights": (1.2, 1.1, 3.0),
    "bandwidth_kv": (1.2, 1.05, 3.0),
    "tensor": (2.0, 1.2, 5.0),
    "link": (1.0, 0.2, 10.0),
    "layer_s": (2e-5, 0.0, 2e-4),
    "layer_parallel_s": (1e-5, 0.0, 2e-4),
}
#: The time to the first token: seconds beside a step, and a factor on the time of a prompt among others.
FIRST = {"first_token_base_s": (0.01, 0.0, 1.0), "factor": (1.3, 0.5, 20.0)}
FIRST_FITTED = ("first_token_base_s", "first_token_dense", "first_token_mixture")
#: Requests at once up to which the first token does not wait for others.
ALONE = 4
#: Reported for vLLM on H100: milliseconds between tokens and to the first one, by model, TP degree and precision.
REPORTED = (
    ("Llama-3.1-8B", 1, "fp16", "between tokens", 8.1, 9.0),
    ("Llama-3.1-70B", 4, "fp16", "between tokens", 17.0, 20.0),
    ("Llama-3.1-8B", 1, "fp16", "to the first token", 33.0, 40.0),
)
GOAL = {"TPOT": 0.12, "TTFT": 0.20}


def start_of(fitted: Mapping[str, tuple[float, float, float]]) -> Efficiency:
    """Return what the vector of a form replaces parts of."""
    blank = Efficiency(layer_s=0.0, layer_parallel_s=0.0)
    return dataclasses.replace(blank, expert_batch=0) if fitted is FITTED else blank


def efficiency(x: Sequence[float], fitted: Mapping[str, tuple[float, float, float]]) -> Efficiency:
    """Return the constants that a vector stands for."""
    values = {
        name: v if name.endswith(("_s", "trips")) else 1.0 / max(v, TINY)
        for name, v in zip(fitted, x, strict=True)
    }
    return dataclasses.replace(start_of(fitted), **values)


def token_s(runs: pd.DataFrame, chosen: Efficiency) -> np.ndarray:
    """Return the modelled time per output token in seconds, prompts of others included."""
    out = np.empty(len(runs))
    rows = zip(runs.deployment, runs.isl, runs.osl, runs.at_once, strict=True)
    for k, (deployment, isl, osl, n) in enumerate(rows):
        step = roofline._roofline(deployment, chosen, float(n))
        prompts_s = n * (step.prompt_s + isl * step.prefill_s) / osl
        out[k] = step.per_output_token_s(float(n), isl + osl / 2) + prompts_s
    return out


def first_s(runs: pd.DataFrame, chosen: Efficiency) -> np.ndarray:
    """Return the modelled time to the first token of a prompt that waits for no other, in seconds."""
    steps = [roofline._roofline(deployment, chosen, 1.0) for deployment in runs.deployment]
    return np.array([s.first_base_s + isl * s.first_token_s for s, isl in zip(steps, runs.isl, strict=True)])


def fitted_to(
    runs: pd.DataFrame, use: np.ndarray, fitted: Mapping[str, tuple[float, float, float]]
) -> Efficiency:
    """Return the constants that fit some of the runs, first tokens included."""
    time = linear(lambda x: token_s(runs, efficiency(x, fitted)), [start for start, _, _ in fitted.values()])
    return _with_first(
        runs, use, efficiency(fit_times(runs, time, runs.tpot_ms.to_numpy() / 1e3, use, fitted), fitted)
    )


def _with_first(runs: pd.DataFrame, use: np.ndarray, found: Efficiency) -> Efficiency:
    """Return constants with the first token's: one base for all, a factor for dense models, one for mixtures."""
    alone = runs[use & (runs.concurrency <= ALONE).to_numpy() & (runs.ttft_ms > 0).to_numpy()]
    if alone.empty:
        return found
    mixture = np.array([bool(d.model.experts) for d in alone.deployment])
    bare = dataclasses.replace(found, first_token_base_s=0.0, first_token_dense=1.0, first_token_mixture=1.0)
    nothing = dataclasses.replace(bare, first_token_dense=0.0, first_token_mixture=0.0)
    step = first_s(alone, nothing)
    prompt, measured = first_s(alone, bare) - step, alone.ttft_ms.to_numpy() / 1e3
    pairs = alone.name + alone.gpu
    weight = 1.0 / np.sqrt(pairs.map(pairs.value_counts()).to_numpy())

    def residuals(x: np.ndarray) -> np.ndarray:
        modelled = step + x[0] + np.where(mixture, x[2], x[1]) * prompt
        return weight * np.log(modelled / measured)

    (base, *_), (factor, low, high) = FIRST["first_token_base_s"], FIRST["factor"]
    limits = ([0.0, low, low], [1.0, high, high])
    x = least_squares(residuals, [base, factor, factor], bounds=limits, loss="soft_l1", f_scale=0.1).x
    return dataclasses.replace(
        found, first_token_base_s=float(x[0]), first_token_dense=float(x[1]), first_token_mixture=float(x[2])
    )


def held_out(
    runs: pd.DataFrame,
    fitted: Mapping[str, tuple[float, float, float]],
    keys: Sequence[str] = ("name", "gpu"),
) -> pd.DataFrame:
    """Return modelled over measured of every run, by constants that runs with other keys gave."""
    group = runs[list(keys)].agg(" ".join, axis=1)
    out = pd.DataFrame(index=runs.index, columns=["TPOT", "TTFT", "rate"], dtype=float)
    for key in sorted(set(group)):
        out[group == key] = ratios(
            runs[group == key], fitted_to(runs, (group != key).to_numpy(), fitted)
        ).to_numpy()
    return out


def ratios(runs: pd.DataFrame, chosen: Efficiency) -> pd.DataFrame:
    """Return modelled over measured times per output token, first tokens (where few requests are there) and rates."""
    alone = (runs.concurrency <= ALONE) & (runs.ttft_ms > 0)
    rate = runs.at_once / seconds(runs, runs.at_once.to_numpy(), chosen)
    return pd.DataFrame(
        {
            "TPOT": token_s(runs, chosen) * 1e3 / runs.tpot_ms,
            "TTFT": np.where(alone, first_s(runs, chosen) * 1e3 / runs.ttft_ms.where(alone, 1.0), np.nan),
            "rate": rate / runs.req_per_s,
        },
        index=runs.index,
    )


def spread_loss(runs: pd.DataFrame, what: str) -> tuple[float, float, float, int]:
    """Return the exponent a by which measured speed falls behind Coral's model as n^-a over n GPUs, and its interval.

    The slope over log n is taken within runs of one set, lengths and requests at once. The interval resamples sets.
    """
    pieces = [ratios(runs[runs.gpu == gpu], CALIBRATED.get(gpu, Efficiency())) for gpu in runs.gpu.unique()]
    ratio = pd.concat(pieces).loc[runs.index, what]
    behind = np.log(ratio if what == "rate" else 1.0 / ratio)
    same = runs[[*SET, "isl", "osl", "concurrency"]].astype(str).agg("|".join, axis=1)
    x, y = (v - v.groupby(same).transform("mean") for v in (np.log(runs.tp), behind))
    sets = runs[SET].astype(str).agg("|".join, axis=1)
    sums = pd.DataFrame({"xx": x * x, "xy": x * y}).groupby(sets).sum()
    sums = sums[sums.xx > 0.0].to_numpy()
    if len(sums) == 0:
        return np.nan, np.nan, np.nan, 0
    draws = np.random.default_rng(0).integers(0, len(sums), (2000, len(sums)))
    total = sums[draws].sum(axis=1)
    low, high = np.quantile(total[:, 1] / total[:, 0], (0.025, 0.975))
    return float(sums[:, 1].sum() / sums[:, 0].sum()), float(low), float(high), len(sums)


def _spread_rows(runs: pd.DataFrame) -> list[list[str]]:
    rows = []
    kinds = _mixtures(runs)
    for kind in ("dense", "mixture", "all"):
        here = runs if kind == "all" else runs[kinds == kind]
        found = [spread_loss(here.reset_index(drop=True), what) for what in ("TPOT", "rate")]
        rows.append(
            [kind, str(found[0][3]), *(f"{a:.2f} [{low:.2f}, {high:.2f}]" for a, low, high, _ in found)]
        )
    return rows


# -- the page


def _error(ratio: pd.Series) -> str:
    """Return the mean absolute error and the median ratio."""
    ratio = ratio.dropna()
    return f"{100 * (ratio - 1).abs().mean():.1f} % ({ratio.median():.2f})" if len(ratio) else "–"


def _rows(
    runs: pd.DataFrame, found: Mapping[str, pd.DataFrame], by: pd.Series | pd.DataFrame, what: str
) -> list[list[str]]:
    """Return one row a group: how many runs, and each column's error."""
    rows = []
    keys = by.agg(" ".join, axis=1) if isinstance(by, pd.DataFrame) else by
    for key in dict.fromkeys(sorted(keys)):
        here = (keys == key).to_numpy()
        counted = int(found["held out"].loc[here, what].notna().sum())
        if counted:
            rows.append([str(key), str(counted), *(_error(f.loc[here, what]) for f in found.values())])
    return rows


def _mixtures(runs: pd.DataFrame) -> pd.Series:
    return pd.Series(["mixture" if d.model.experts else "dense" for d in runs.deployment], index=runs.index)


def _load(runs: pd.DataFrame) -> pd.Series:
    """Return how many requests are at once, as a class that sorts."""
    bins = pd.cut(
        runs.concurrency, [0, 4, 16, 64, np.inf], labels=["a: 1 to 4", "b: 5 to 16", "c: 17 to 64", "d: more"]
    )
    return bins.astype(str)


def _verdicts(runs: pd.DataFrame, found: Mapping[str, pd.DataFrame]) -> list[list[str]]:
    rows = []
    for what, name in (("TPOT", "time per output token"), ("TTFT", "time to first token")):
        for kind in ("dense", "mixture"):
            ratio = found["held out"].loc[(_mixtures(runs) == kind).to_numpy(), what].dropna()
            error = (ratio - 1).abs().mean()
            verdict = "cannot be told" if ratio.empty else "holds" if error <= GOAL[what] else "does not hold"
            sentence = f"held out {100 * error:.1f} % on {len(ratio)} runs, median ratio {ratio.median():.2f}"
            rows.append([f"{name}, {kind}", f"at most {100 * GOAL[what]:.0f} %", sentence, f"**{verdict}**"])
    return rows


def _reported() -> list[list[str]]:
    rows = []
    for name, tensor, precision, what, low, high in REPORTED:
        where = Deployment(
            model=catalog.model(name), gpu=catalog.gpu("H100"), precision=precision, tensor_parallel=tensor
        )
        runs = pd.DataFrame({"deployment": [where] * 2, "isl": 1024, "osl": 256, "at_once": [1, 8]})
        model = token_s if what == "between tokens" else first_s
        spans = [1e3 * model(runs, chosen) for chosen in (Efficiency(), NEXT)]
        shown = [
            f"{s.min():.1f} to {s.max():.1f} ms" if s.min() < s.max() else f"{s.min():.1f} ms" for s in spans
        ]
        rows.append([f"{name} {precision} on {tensor} H100, {what}", f"{low:g} to {high:g} ms", *shown])
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
    """Return errors on GPU types that no constant was fitted to: times of all layers, by Helix."""
    rows, models = [], helix_models()
    points = pd.read_csv(folder / "helix_layer_ms.csv")
    for machine, gpu in HELIX.items():
        for phase in ("decode", "prefill"):
            here = points[
                (points.machine == machine) & (points.phase == phase) & (points.tokens >= FEWEST_TOKENS)
            ]
            measured = np.array([r.ms_per_layer / 1e3 * models[r.model].layers for r in here.itertuples()])
            errors = []
            for chosen in (Efficiency(), NEXT):
                modelled = [
                    _layers_s(models[r.model], phase, r.tokens, gpu, chosen) for r in here.itertuples()
                ]
                errors.append(_error(pd.Series(np.array(modelled) / measured)))
            rows.append([f"{gpu}, {phase}", str(len(here)), *errors])
    return rows


def _layers_s(model: catalog.ModelType, phase: str, tokens: int, gpu: str, chosen: Efficiency) -> float:
    """Return the modelled time of all layers: of a decoding step of sequences, or of a prompt."""
    where = Deployment(model=model, gpu=catalog.gpu(gpu), precision="fp16", tensor_parallel=1)
    step = roofline._roofline(where, chosen, float(tokens))
    if phase == "decode":
        return step.per_output_token_s(float(tokens), HELIX_CONTEXT)
    return step.base_s + step.prompt_s + tokens * step.prefill_s


def page(runs: pd.DataFrame, left_out: pd.DataFrame, folder: Path, everything: Efficiency) -> str:
    """Return the page as Markdown."""
    found = {
        "in the code": ratios(runs, Efficiency()),
        "for plans": ratios(runs, PLANNING),
        "same form, held out": held_out(runs, FORMER),
        "held out": held_out(runs, FITTED),
    }
    head = ["", "runs", "fleet-v1", "plans", "fleet-v1's form, held out", "proposed, held out"]
    sets = runs[["name", "gpu", "precision", "backend"]]
    parts = [
        HEAD,
        "## Verdicts",
        table(["claim", "goal", "measured", "verdict"], _verdicts(runs, found), 4),
        CHANGE,
    ]
    parts += ["## Time per output token", READ]
    for what, by in (
        ("kind of model", _mixtures(runs)),
        ("model, GPU, precision, engine", sets),
        ("TP degree", runs.tp.astype(str)),
        ("requests at once", _load(runs)),
    ):
        parts.append(table([what, *head[1:]], _rows(runs, found, by, "TPOT")))
    parts += ["## Time to first token", FIRST_TEXT]
    parts.append(table(["kind of model", *head[1:]], _rows(runs, found, _mixtures(runs), "TTFT")))
    parts.append(
        table([head[0] or "model, GPU, precision, engine", *head[1:]], _rows(runs, found, sets, "TTFT"))
    )
    parts += ["## Requests per second", RATE_TEXT]
    parts.append(table(["kind of model", *head[1:]], _rows(runs, found, _mixtures(runs), "rate")))
    parts.append(table(["requests at once", *head[1:]], _rows(runs, found, _load(runs), "rate")))
    reported = table(["", "reported", "fleet-v1", "proposed"], _reported())
    parts += ["## Ranges that are reported for vLLM", REPORTED_TEXT, reported]
    others = table(["GPU, phase", "points", "fleet-v1", "proposed"], _other_gpus(folder))
    parts += ["## GPU types that took no part", OTHER_TEXT, others]
    spread = table(
        ["models", "sets", "a, time per output token", "a, requests per second"], _spread_rows(runs)
    )
    parts += ["## What tensor parallelism loses", SPREAD_TEXT, spread]
    parts += ["## What is left out", LEFT_TEXT, table([*SET, "runs"], _counts(left_out), len(SET))]
    parts += [
        "## The proposed constants",
        CONSTANTS_TEXT,
        table(["constant", "fleet-v1", "proposed"], _constants(everything)),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _counts(runs: pd.DataFrame) -> list[list[str]]:
    return [[*map(str, key), str(len(rows))] for key, rows in runs.groupby(SET)]


def _constants(everything: Efficiency) -> list[list[str]]:
    names = [f.name for f in dataclasses.fields(Efficiency)]
    former = Efficiency()
    return [
        [f"`{name}`", _number(getattr(former, name)), _number(getattr(everything, name))]
        for name in names
        if getattr(former, name) != getattr(everything, name)
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


HEAD = """# Calibration: predicted and measured times

How well does the roofline of `fleetgym.hardware.performance.roofline` predict models and GPUs that it was not fitted
to? This page is written in ten CPU seconds by

    python -m tools.check_calibration FOLDER

where FOLDER holds `silicon_e2e.csv`, derived from the measured runs of ai-dynamo/aiconfigurator (Apache-2.0), and
`helix_layer_ms.csv`, from Thesys-lab/Helix-ASPLOS25 (Apache-2.0). Neither file ships with the package.

Four sets of constants are compared. *fleet-v1*: those of the stored instances, `Efficiency()`. They were fitted to
these very runs. *plans*: `PLANNING`, by which imported traces are planned. *fleet-v1's form, held out*: the same
formula, fitted anew without the pair of model and GPU that it predicts. *proposed, held out*: `NEXT`'s formula,
fitted likewise.

`NEXT` is proposed for the next version of the catalogue. The stored instances of `fleet-v0` and `fleet-v1` keep their
numbers."""
CHANGE = """## What would change our verdict

- **More pairs.** Nine pairs of model and GPU were measured, all on H100 and H200. Another GPU could move every figure.
- **One engine.** The same mixture on the same GPU differs by a factor of 1.5 to 2 between engines. A calibration by
  engine would bring mixtures nearer; a plan does not know its engine.
- **First tokens under load.** The runs send all requests at once and again when one ends. Their first tokens wait for
  the prompts of others, which depends on the client. Runs with Poisson arrivals would allow a judgement."""
READ = """Each cell has the mean absolute error, and in brackets the median of predicted over measured. Below 1 the
model is too fast."""
FIRST_TEXT = f"""Runs with at most {ALONE} requests at once, so that a prompt hardly waits for others. With more,
the measured time holds the queue of the benchmark's client, which no replica has by itself."""
RATE_TEXT = """Predicted over measured requests per second, where a replica serves as many requests at once as the run
did, or as many as its memory holds."""
REPORTED_TEXT = """These ranges stand in the project's list of work. Their runs are not at hand: model, GPU and TP are
known, lengths and load are not. 1,024 tokens in, 256 out, and 1 to 8 requests at once are assumed."""
OTHER_TEXT = """Helix's measured times of all layers on one GPU, for LLaMA-30B and Llama-2-70B at 16 bits. No constant
was fitted to them. Its engine is of 2024: per layer it spends more on the host than today's engines do."""
SPREAD_TEXT = """How much slower than the model of `fleetgym.hardware.performance.replica` are n GPUs, as n^-a? The
slope is taken within runs of one set, lengths and requests at once; the 95 % interval resamples the sets. With a = 0
the model has it right. These are H100 and H200 with NVLink; nodes without it were not measured."""
LEFT_TEXT = """Sets of runs of which one would need more than the GPU's datasheet has: their prompts were cached, or
their cache has 8 bits. One more set is left out: an engine that took 30 ms a step at any load."""
CONSTANTS_TEXT = """Fitted to all pairs. Slow-downs are given as shares of the datasheet's rate."""


def smoke(folder: Path) -> None:
    """Judge a few made-up runs and layers."""
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
    main([str(folder), "--out", str(folder / "page.md")])


#: A host that is the limit at any load says nothing about the GPU.
SLOW_HOST = ("Llama-3.1-8B", "sglang")


def chosen_runs(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs that are judged, and those that are left out."""
    runs = read_runs(path)
    slow = (runs.name == SLOW_HOST[0]) & (runs.backend == SLOW_HOST[1])
    good = runs.possible & ~slow
    return runs[good].reset_index(drop=True), runs[~good].reset_index(drop=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Judge, write the page, and print the constants that follow from all pairs."""
    parser = program(__doc__, writes="docs/calibration.md.", takes="Ten CPU seconds.", smoke=smoke)
    parser.add_argument("folder", type=Path, help="folder with silicon_e2e.csv and helix_layer_ms.csv")
    parser.add_argument("--out", type=Path, default=Path("docs/calibration.md"))
    options = parser.parse_args(argv)
    runs, left_out = chosen_runs(options.folder / "silicon_e2e.csv")
    everything = fitted_to(runs, np.ones(len(runs), dtype=bool), FITTED)
    print("fitted to all:", {n: f"{getattr(everything, n):.3g}" for n in (*FITTED, *FIRST_FITTED)})
    write_atomically(options.out, page(runs, left_out, options.folder, NEXT).encode())
    print(f"wrote {options.out}")


if __name__ == "__main__":
    run_program(main)
