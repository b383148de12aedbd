"""The referee's page: rates by formula, rankings of made-up cells, and the tables."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgym.families.draft import fits
from fleetgym.hardware import catalog
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.kernels.queueing import wait_exceeds
from tools import check_referee


def cell(agent: str, seed: int, predicted: float, replayed: float) -> dict[str, object]:
    """Return a day of a family, all of whose requests ran on measured operators."""
    late = {f"{kind}_{what}": 0.5 for kind in ("predicted", "replayed") for what in ("late", "delay_s")}
    usd = {"predicted_usd": predicted, "replayed_usd": replayed}
    head = {
        "kind": "day",
        "times": "operators",
        "family": "ou-v2",
        "agent": agent,
        "seed": seed,
        "requests": 10,
        "measured_share": 1.0,
    }
    return head | usd | late


def test_ranks_count_agents_that_have_all_days() -> None:
    """Costs are sums over days; an agent that lacks a day is left out; near ties do not count."""
    cells = [
        cell(agent, seed, usd, replayed)
        for agent, usd, replayed in (("hold", 30.0, 31.0), ("margin", 10.0, 12.0), ("descent", 10.1, 11.0))
        for seed in check_referee.SEEDS
    ]
    cells.append(cell("lookahead", 1001, 1.0, 1.0))
    costs = check_referee._costs(cells)
    assert costs.shape == (3, 3, 2)
    assert check_referee._near_ties(costs.sum(axis=1)) == 1.0
    row = check_referee._ranking(cells).splitlines()[-1]
    assert row == "| operators | `ou-v2` | 3 | 0.33 | 1.00 | 1.09 | 1.03 to 1.20 | 67 % | 100 % |"


def test_the_formula_gives_one_percent() -> None:
    """At the rate that it returns, as many are late by the tail formula; at twice the rate there is overload."""
    token = fits()["tokens"]["azure_conv"]
    lengths = np.array([token[k] for k in ("input_tokens", "output_tokens", "input_cv2", "output_cv2")])
    eight = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("L40S"), precision="fp8")
    n, rate, ttft_s = check_referee._formula(eight, lengths, RooflineOptions(coefficients=2), 180_000.0)
    assert ttft_s == check_referee.TTFT_S
    service_s = n / rate
    late = wait_exceeds(n, rate, 0.95 * service_s, 0.7, 1.0, 3.5)
    assert 0.0 < late < 0.2
    assert wait_exceeds(n, 2.0 * rate, 0.95 * service_s, 0.7, 1.0, 3.5) == 1.0


def test_the_page_has_every_table() -> None:
    """From no cells, and from the committed ones."""
    cells = check_referee.read(check_referee.CELLS)
    assert {c["kind"] for c in cells} == {"capacity", "day"}
    assert check_referee.written(cells).count("## ") == 3
    with pytest.raises(FileNotFoundError):
        check_referee.rewrite(check_referee.PAGE.with_name("nowhere.md"), "")
