"""Fit `fleetgym.hardware.performance.replica.CALIBRATED` to layer and step times; print values and what error remains.

Run ``python -m tools.calibrate_layers FOLDER``, a folder with ``helix_layer_ms.csv`` (measured milliseconds
per layer), ``aic_decode_step.csv`` and ``aic_prefill.csv`` (modelled from measured operators). The values go into
the code by hand, so that a change of the model's numbers is a visible change of the code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fleetgym.cli.process import run_program
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import replica
from fleetgym.hardware.performance.replica import NodeType, ReplicaOptions, Service
from fleetgym.hardware.performance.roofline import Efficiency
from fleetgym.runtime.programs import program

HELIX_CONTEXT = 857.0  # tokens per sequence that the slope of LLaMA-30B's decoding steps on L4 implies
FEWEST_TOKENS = 8  # below, Helix's milliseconds have one significant digit
SYSTEMS = {"l40s": "L40S", "a100_sxm": "A100-80GB", "h100_sxm": "H100"}
OPTIONS = ReplicaOptions(measured="ignore")
FITTED = ("bandwidth_weights", "bandwidth_kv", "tensor", "link", "layer_s")
START, LOWER, UPPER = (0.85, 0.85, 0.7, 0.4, 2e-5), (0.3, 0.3, 0.2, 0.1, 0.0), (1.0, 1.0, 1.0, 1.5, 2e-4)


@dataclasses.dataclass(frozen=True)
class Point:
    """One observed time of all layers: a decoding step of `count` sequences, or a prompt of `count` tokens."""

    service: Service
    gpus: int
    phase: str
    count: int
    seconds: float


def helix_models() -> dict[str, catalog.ModelType]:
    """Return the two models that Helix profiled, which the catalogue lacks."""
    seventy = dataclasses.replace(
        catalog.model("Llama-3.1-70B"),
        name="llama2_70b",
        params_b=68.98,
        active_params_b=68.98,
        weight_gb_bf16=137.96,
    )
    thirty = dataclasses.replace(
        seventy,
        name="llama1_30b",
        params_b=32.5,
        active_params_b=32.5,
        weight_gb_bf16=65.0,
        layers=60,
        hidden=6656,
        heads=52,
        kv_heads=52,
        kv_bytes_per_token=4.0 * 60 * 6656,
    )
    return {"llama1_30b": thirty, "llama2_70b": seventy}


def _point(model: catalog.ModelType, gpus: int, phase: str, count: int, context: float, s: float) -> Point:
    tokens = context if phase == "decode" else float(count)
    served = Service(
        model=model, input_tokens=tokens, output_tokens=1e-9, prefill_slo_s=1.0, decode_slo_s=1.0
    )
    return Point(served, gpus, phase, count, s)


def helix_points(folder: Path, machine: str) -> list[Point]:
    """Return Helix's measured times of a machine with one GPU."""
    table, models = pd.read_csv(folder / "helix_layer_ms.csv"), helix_models()
    table = table[(table.machine == machine) & (table.tokens >= FEWEST_TOKENS)]
    return [
        _point(
            models[r.model],
            1,
            r.phase,
            r.tokens,
            HELIX_CONTEXT,
            r.ms_per_layer / 1e3 * models[r.model].layers,
        )
        for r in table.itertuples()
    ]


def operator_points(folder: Path, system: str) -> list[Point]:
    """Return a system's 16-bit times, modelled from measured operators."""
    decode, prefill = (pd.read_csv(folder / f"aic_{name}.csv") for name in ("decode_step", "prefill"))
    decode = decode.assign(phase="decode", count=decode.batch, s=decode.decode_step_ms / 1e3)
    prefill = prefill.assign(phase="prefill", count=prefill.isl, context=0.0, s=prefill.prefill_ms / 1e3)
    points = []
    for r in pd.concat([decode, prefill]).itertuples():
        name = r.model.split("/")[1].replace("Meta-", "")
        large = name in catalog.model_names() and catalog.model(name).params_b > 5.0
        if r.system == system and r.gemm == "bf16" and large:
            points.append(_point(catalog.model(name), int(r.n_gpus), r.phase, int(r.count), r.context, r.s))
    return points


def predict(points: list[Point], gpu: str, efficiency: Efficiency, options: ReplicaOptions) -> np.ndarray:
    """Return the modelled seconds of each point."""
    replica.CALIBRATED = MappingProxyType({gpu: efficiency})
    replica._step.cache_clear()
    out = []
    for p in points:
        node = NodeType(catalog.gpu(gpu), p.gpus)
        step = replica.decode_step_s if p.phase == "decode" else replica.prefill_step_s
        number = np.array([p.count if p.phase == "decode" else 1])
        out.append(float(step(p.service, node, number, options)[0]))
    return np.array(out)


def report(gpu: str, points: list[Point], efficiency: Efficiency, options: ReplicaOptions) -> None:
    """Print the absolute relative errors by phase and kind of model."""
    seconds = np.array([p.seconds for p in points])
    ratio = predict(points, gpu, efficiency, options) / seconds
    for phase in ("decode", "prefill"):
        for kind, mixture in (("dense", False), ("mixture", True)):
            rows = np.array([p.phase == phase and bool(p.service.model.experts) == mixture for p in points])
            if rows.any():
                error = np.abs(ratio[rows] - 1.0)
                print(
                    f"  {phase:8s}{kind:8s}{rows.sum():4d} points: error mean {error.mean():.3f}, "
                    f"median {np.median(error):.3f}; median ratio {np.median(ratio[rows]):.2f}"
                )


def fit(gpu: str, points: list[Point], options: ReplicaOptions) -> Efficiency:
    """Return the efficiencies that fit the dense points best."""
    dense = [p for p in points if not p.service.model.experts]
    seconds = np.array([p.seconds for p in dense])

    found = least_squares(
        lambda x: np.log(predict(dense, gpu, replica.efficiency(*x.tolist()), options) / seconds),
        START,
        bounds=(LOWER, UPPER),
        x_scale=START,
        loss="soft_l1",
        f_scale=0.2,
    )
    return replica.efficiency(*found.x.tolist())


def smoke(folder: Path) -> None:
    """Fit to a few made-up times."""
    phases = [("decode", 16), ("decode", 64), ("prefill", 512), ("prefill", 2048)]
    layers = [
        ("llama2_70b", machine, phase, tokens, 10.0 + 0.05 * tokens)
        for machine in ("l4", "a100")
        for phase, tokens in phases
    ]
    helix = pd.DataFrame(layers, columns=["model", "machine", "phase", "tokens", "ms_per_layer"])
    helix.to_csv(folder / "helix_layer_ms.csv", index=False)
    model = "meta-llama/Meta-Llama-3.1-8B"
    steps = [(model, s, "bf16", 1, n, 1000.0, 10.0 + 0.1 * n) for s in SYSTEMS for n in (1, 16, 64)]
    head = ["model", "system", "gemm", "n_gpus", "batch", "context", "decode_step_ms"]
    pd.DataFrame(steps, columns=head).to_csv(folder / "aic_decode_step.csv", index=False)
    prompts = [(model, s, "bf16", 1, n, 0.02 * n) for s in SYSTEMS for n in (512, 2048)]
    head = ["model", "system", "gemm", "n_gpus", "isl", "prefill_ms"]
    pd.DataFrame(prompts, columns=head).to_csv(folder / "aic_prefill.csv", index=False)
    main([str(folder)])


def main(argv: Sequence[str] | None = None) -> None:
    """Fit each GPU, print, and compare with what is in the code."""
    parser = program(__doc__, writes="No file.", takes="Seconds.", smoke=smoke)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    coded = dict(replica.CALIBRATED)
    sets = {"L4": helix_points(folder, "l4"), "A100-40GB": helix_points(folder, "a100")}
    sets |= {gpu: operator_points(folder, system) for system, gpu in SYSTEMS.items()}
    for gpu, points in sets.items():
        found = fit(gpu, points, OPTIONS)
        values = ", ".join(f"{name}={getattr(found, name):.3g}" for name in FITTED)
        print(f"{gpu}, fitted: {values}")
        report(gpu, points, found, OPTIONS)
        if gpu in coded:
            print(f"{gpu}, in the code:")
            report(gpu, points, coded[gpu], OPTIONS)


if __name__ == "__main__":
    run_program(main)
