"""Plans against measurements: the fit is what stands in the code, and predicts the models that it has not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from places import SHARED

from fleetgym.hardware.performance.roofline import PLANNING
from tools import check_plans

MEASURED = SHARED / "data" / "silicon_e2e.csv"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Return the measured runs that are fitted."""
    if not MEASURED.exists():
        pytest.skip(f"the measured runs are not there: {MEASURED}")
    found = check_plans.read_runs(MEASURED)
    return found[found.possible & (found.levels >= check_plans.LEVELS)].reset_index(drop=True)


def test_the_fit_stands_in_the_code(runs: pd.DataFrame) -> None:
    """The constants of plans are those that the runs give."""
    time = check_plans.linear_seconds(runs, runs.at_once.to_numpy())
    found = check_plans.efficiency(check_plans.fit(runs, time, np.ones(len(runs), dtype=bool)))
    for name in check_plans.FITTED:
        assert getattr(PLANNING, name) == pytest.approx(getattr(found, name), rel=0.01)


@pytest.mark.parametrize("keys", [["name"], ["name", "gpu"]])
def test_unseen_models_are_predicted(keys: list[str], runs: pd.DataFrame) -> None:
    """Planned over highest measured rate: eight of ten within .8 and 1.3, all but few within .6 and 1.5."""
    ratio = check_plans.held_out(runs, keys).ratio
    assert len(ratio) == 172
    assert ratio.quantile(0.1) >= 0.8
    assert ratio.quantile(0.9) <= 1.3
    assert ((ratio < 0.6) | (ratio > 1.5)).sum() <= 3


def test_times_are_linear_in_what_is_fitted(tmp_path: Path) -> None:
    """The matrix of the fit gives what the roofline gives, for a dense model and a mixture on several GPUs."""
    head = "model,system,gemm,backend,backend_version,dp,tp,concurrency,isl,osl,req_per_s"
    rows = [
        f"{model},h100_sxm,{gemm},vllm,1,1,{tp},{n},1000,200,0.001"
        for model, gemm, tp in (
            ("meta-llama/Llama-3.1-8B-Instruct", "bf16", 2),
            ("mistralai/Mixtral-8x7B-v0.1", "fp8", 4),
        )
        for n in (1, 40)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    found = check_plans.read_runs(path)
    at_once = found.at_once.to_numpy()
    x = np.array([1.3, 1.7, 2.1, 11.0, 8e-5, 2e-5, 5e-5])
    expected = check_plans.seconds(found, at_once, check_plans.efficiency(x))
    np.testing.assert_allclose(check_plans.linear_seconds(found, at_once)(x), expected, rtol=1e-6)
