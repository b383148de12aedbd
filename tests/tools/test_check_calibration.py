"""The calibration's judge: it finds the constants that made a set of runs, and holds out what it predicts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from places import ROOT, SHARED

from fleetgym.hardware import catalog
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import NEXT, Efficiency
from tools import check_calibration as judge
from tools.check_plans import SET


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Runs that `NEXT` itself made, of three dense models on two GPU types."""
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
    found[SET] = found[["name", "gpu", "precision", "precision", "precision"]].to_numpy()
    found["tpot_ms"] = 1e3 * judge.token_s(found, NEXT)
    found["ttft_ms"] = 1e3 * judge.first_s(found, NEXT)
    found["req_per_s"] = found.at_once / judge.seconds(found, found.at_once.to_numpy(), NEXT)
    return found


def test_unseen_pairs_are_predicted_by_what_made_the_others(runs: pd.DataFrame) -> None:
    """Held-out errors vanish for the form that made the runs, and do not for the former one."""
    found = judge.held_out(runs, judge.FITTED)
    assert np.abs(found.TPOT - 1).max() < 0.01
    assert np.abs(found.TTFT.dropna() - 1).max() < 0.03
    assert found.TTFT.notna().sum() == (runs.concurrency <= judge.ALONE).sum()
    assert np.abs(judge.ratios(runs, Efficiency()).TPOT - 1).mean() > 0.03


def test_a_pair_takes_no_part_in_its_own_prediction(runs: pd.DataFrame) -> None:
    """Times of one pair that are ten times as long do not move its prediction."""
    odd = ((runs.name == "Qwen3-32B") & (runs.gpu == "H100")).to_numpy()
    wrong = runs.assign(tpot_ms=np.where(odd, 10.0, 1.0) * runs.tpot_ms)
    assert judge.held_out(wrong, judge.FITTED).TPOT[odd].to_numpy() == pytest.approx(0.1, rel=0.02)


def test_the_exponent_of_tensor_parallelism_is_found(runs: pd.DataFrame) -> None:
    """Runs whose tokens take n^0.3 as long as the model says have an exponent of 0.3."""
    pieces = [
        judge.ratios(runs[runs.gpu == gpu], judge.CALIBRATED.get(gpu, Efficiency())).TPOT
        for gpu in ("H100", "H200")
    ]
    modelled_ms = pd.concat(pieces).loc[runs.index] * runs.tpot_ms
    slower = runs.assign(tpot_ms=modelled_ms * runs.tp**0.3, model="one", gemm="one")
    a, low, high, sets = judge.spread_loss(slower, "TPOT")
    assert (a, low, high) == pytest.approx((0.3, 0.3, 0.3))
    assert sets == 2


def test_a_mixture_has_its_own_time_per_layer() -> None:
    """The constant lengthens a step of a mixture by its layers, and leaves dense models alone."""
    more = dataclasses.replace(NEXT, layer_mixture_s=NEXT.layer_mixture_s + 1e-4)
    for name, expected in (("gpt-oss-120b", 1e-4), ("Llama-3.1-8B", 0.0)):
        model = catalog.model(name)
        where = Deployment(model=model, gpu=catalog.gpu("H100"), precision="fp16", tensor_parallel=8)
        frame = pd.DataFrame({"deployment": [where], "isl": [100], "osl": [100], "at_once": [1]})
        change = judge.token_s(frame, more) - judge.token_s(frame, NEXT)
        assert change[0] == pytest.approx(expected * model.layers, abs=1e-12)


DATA = SHARED / "data"


@pytest.mark.skipif(
    not DATA.is_dir(), reason="the shared data is not here (FLEETGYM_SHARED names the folder)"
)
def test_the_page_has_the_prose_that_its_tool_writes(tmp_path: Path) -> None:
    """Every paragraph without numbers of its own, word for word."""
    judge.main([str(DATA), "--out", str(tmp_path / "page.md")])
    kept = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    made = (tmp_path / "page.md").read_text(encoding="utf-8").split("\n\n")
    assert not [text for text in made if not text.startswith("|") and text.strip() not in kept]
