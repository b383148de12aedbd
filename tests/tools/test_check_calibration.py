"""The calibration's judge: it finds the constants that made points and runs, and holds out what it predicts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from places import ROOT, SHARED

from fleetgym.hardware import catalog
from fleetgym.hardware.performance import gpu_rates
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.gpu_rates import CONSTANTS, EngineTimes
from fleetgym.hardware.performance.replica import CALIBRATED
from fleetgym.hardware.performance.roofline import Efficiency, RooflineOptions, step_time
from tools import check_calibration as judge

DATA = SHARED / "data"
NEEDS_DATA = pytest.mark.skipif(
    not DATA.is_dir(), reason="the shared data is not here (FLEETGYM_SHARED names the folder)"
)
MADE_BY = EngineTimes(
    layer_s=3e-5, sequence_s=2e-5, prompt=1.2, first_s=0.02, first_prompt=1.1, first_link=0.6
)


@pytest.fixture(scope="module")
def points() -> pd.DataFrame:
    """Steps and prompts of dense models on two GPU types, as the rates in the code have them."""
    rows = [
        (gpu, model, precision, tp, *what)
        for gpu in ("H100", "L40S")
        for model in ("Qwen3-1.7B", "Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B")
        for precision in ("fp16", "fp8")
        for tp in (1, 2, 4, 8)
        for what in (("decode", 1, 500), ("decode", 64, 4000), ("prefill", 1, 600), ("prefill", 1, 8000))
    ]
    found = pd.DataFrame(rows, columns=["gpu", "model", "precision", "tp", "phase", "batch", "tokens"])
    found["deployment"] = [
        Deployment(
            model=catalog.model(r.model), gpu=catalog.gpu(r.gpu), precision=r.precision, tensor_parallel=r.tp
        )
        for r in found.itertuples()
    ]
    rates = [[getattr(gpu_rates.rates(gpu), name) for name in CONSTANTS] for gpu in found.gpu]
    return found.assign(ms=1e3 * (judge.design(found) * rates).sum(axis=1))


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Runs that an engine of known times made, of three dense models on two GPU types."""
    rows = []
    for name in ("Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B"):
        for gpu in ("H100", "H200"):
            for precision, tensor in (("fp16", 4), ("fp8", 2), ("fp8", 8)):
                for isl, osl in ((256, 1024), (4096, 128)):
                    rows += [(name, gpu, precision, tensor, isl, osl, n) for n in (1, 4, 16, 64)]
    found = pd.DataFrame(rows, columns=["name", "gpu", "precision", "tp", "isl", "osl", "concurrency"])
    found["deployment"] = [
        Deployment(
            model=catalog.model(r.name), gpu=catalog.gpu(r.gpu), precision=r.precision, tensor_parallel=r.tp
        )
        for r in found.itertuples(index=False)
    ]
    found["at_once"] = found.concurrency
    found[judge.SET] = found[["name", "gpu", "precision", "precision", "precision"]].to_numpy()
    steps = judge.bare_steps(found)
    token, first = judge.token_s(found, steps, MADE_BY), judge.first_s(found, steps, MADE_BY)
    whole_s = first + found.osl * token - MADE_BY.prompt * judge.prompts_s(found, steps)
    return found.assign(tpot_ms=1e3 * token, ttft_ms=1e3 * first, req_per_s=found.at_once / whole_s)


def test_points_that_took_no_part_are_predicted(points: pd.DataFrame) -> None:
    """Each model on each GPU type from the others; a wrong one moves itself alone."""
    matrix = judge.design(points)
    ratio = judge.operators_held_out(points, matrix)
    assert np.abs(ratio - 1.0).max() < 0.15
    assert np.median(np.abs(ratio - 1.0)) < 0.02
    odd = ((points.model == "Qwen3-32B") & (points.gpu == "L40S")).to_numpy()
    wrong = points.assign(ms=np.where(odd, 10.0, 1.0) * points.ms)
    assert np.median(judge.operators_held_out(wrong, matrix)[odd]) == pytest.approx(0.1, rel=0.1)


def test_unseen_pairs_are_predicted_by_what_made_the_others(runs: pd.DataFrame) -> None:
    """Held-out errors vanish for the engine that made the runs, and a pair takes no part in its own prediction."""
    found = judge.held_out(runs)
    assert np.abs(found - 1).max(axis=None) < 0.01
    assert found.TTFT.notna().sum() == (runs.concurrency <= judge.ALONE).sum()
    odd = (runs.name == "Qwen3-32B") & (runs.gpu == "H100")
    wrong = runs.assign(tpot_ms=np.where(odd, 10.0, 1.0) * runs.tpot_ms)
    assert judge.held_out(wrong).TPOT[odd].to_numpy() == pytest.approx(0.1, rel=0.02)


def test_the_exponent_of_tensor_parallelism_is_found(runs: pd.DataFrame) -> None:
    """Runs whose tokens take n^0.3 as long as the model says have an exponent of 0.3."""
    modelled_ms = []
    for run in runs.itertuples():
        options = RooflineOptions(measured="ignore", efficiency=CALIBRATED.get(run.gpu, Efficiency()))
        step = step_time(run.deployment, options)
        token = step.per_output_token_s(run.at_once, run.isl + run.osl / 2)
        modelled_ms.append(1e3 * (token + run.at_once * run.isl * step.prefill_s / run.osl))
    slower = runs.assign(tpot_ms=modelled_ms * runs.tp**0.3, model="one", gemm="one")
    a, low, high, sets = judge.spread_loss(slower, "TPOT")
    assert (a, low, high) == pytest.approx((0.3, 0.3, 0.3))
    assert sets == 2


@NEEDS_DATA
def test_what_is_fitted_stands_in_the_code() -> None:
    """The engines' constants are those that the runs give, and the rates those that the operators give."""
    runs = judge.read_runs(DATA / "silicon_e2e.csv")
    runs = runs[runs.possible].reset_index(drop=True)
    is_mixture = judge.mixtures(runs)
    for known, of in ((gpu_rates.DENSE, ~is_mixture), (gpu_rates.MIXTURE, is_mixture)):
        found = dataclasses.asdict(judge.fit_engine(runs[of]))
        assert found == pytest.approx(dataclasses.asdict(known), rel=0.01, abs=1e-6)
    points = judge.read_operators(ROOT / judge.OPERATORS)
    points = points[points.gpu == "A100-80GB"].reset_index(drop=True)
    matrix = judge.design(points)
    known = np.array([getattr(gpu_rates.rates("A100-80GB"), name) for name in CONSTANTS])
    assert np.median(np.abs(matrix @ known / (points.ms / 1e3) - 1.0)) < 0.1


@NEEDS_DATA
@pytest.mark.parametrize("keys", [["name"], ["name", "gpu"]])
def test_highest_rates_of_unseen_models(keys: list[str]) -> None:
    """Modelled over highest measured rate of dense models: eight of ten within .8 and 1.3."""
    runs = judge.read_runs(DATA / "silicon_e2e.csv")
    runs = runs[runs.possible].reset_index(drop=True)
    best = judge.highest(runs)
    rate = judge.held_out(runs, keys, best).rate[~judge.mixtures(best)]
    assert rate.quantile(0.1) >= 0.8
    assert rate.quantile(0.9) <= 1.3


@NEEDS_DATA
def test_the_page_has_the_prose_that_its_tool_writes(tmp_path: Path) -> None:
    """Every paragraph without numbers of its own, word for word."""
    judge.main([str(DATA), "--out", str(tmp_path / "page.md")])
    kept = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    made = (tmp_path / "page.md").read_text(encoding="utf-8").split("\n\n")
    assert not [text for text in made if not text.startswith("|") and text.strip() not in kept]
