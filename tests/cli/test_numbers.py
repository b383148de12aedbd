"""Numbers have two bounds and a unit wherever they are read: in files, as cells, as words and as arguments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from broken_files import good_instance

from fleetgym.agents.registry import make_agent
from fleetgym.capacity.traces.objectives import Slo, parse_slo, slos_for
from fleetgym.capacity.traces.price_lists import read_prices
from fleetgym.capacity.traces.prices import parse_caps
from fleetgym.cli import main
from fleetgym.files import quantities
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import Integer, Number, from_text
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROCESSES

HUGE = 10**400  # a whole number of JSON that no float holds

NO_NUMBERS = ("1_0", "١", "１", "0x10", "inf", "nan", "1e999", "\u00a01", "1\u2009", "", "--1", "1e", ".")


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_writes_no_number(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One reader of text refuses the same in price lists, SLOs, caps, options and arguments."""
    assert from_text(text) == text
    for file, read in (("prices.csv", read_prices), ("slos.csv", lambda path: slos_for(str(path), ["a"]))):
        head = "gpu,usd_per_gpu_h,max_gpus" if file == "prices.csv" else "workload,ttft,delay"
        row = f'H100,"{text}",1' if file == "prices.csv" else f'a,"{text}",x'
        (tmp_path / file).write_text(f"{head}\n{row}\n", encoding="utf-8")
        with pytest.raises(DataError, match="line 2"):
            read(tmp_path / file)
    with pytest.raises(FleetgymError):
        parse_slo(f"ttft={text}")
    with pytest.raises(FleetgymError):
        parse_caps(f"H100={text}")
    with pytest.raises(FleetgymError):
        make_agent(f"gh(margin={text})")
    for words in (
        ("--workers", text),
        ("--seed", text),
        ("--act-limit", text),
        ("--scenarios", f"0,{text}x"),
    ):
        with pytest.raises(SystemExit):
            main(["compare", "hold", "--suite", "fleet-v0/toy/two-pools", "=".join(words)])
        assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ["1_0", "١", "１", "0x10", "inf", "nan", "\u00a01"])
def test_traces(cell: str, tmp_path: Path) -> None:
    """So do the cells of traces, with the line."""
    trace = tmp_path / "trace.csv"
    for row in (f"{cell},5,5", f"1.5,{cell},5", f"1.5,5,{cell}"):
        trace.write_text(f"time,input_tokens,output_tokens\n0.5,5,5\n{row}\n", encoding="utf-8")
        assert main(["import-trace", str(trace), "--out", str(tmp_path / "x.json")]) == 1


def test_slos() -> None:
    """SLOs have the bounds of instances, as words, and from Python."""
    for text in ("ttft=1e300", f"delay={HUGE}", "error=7", "unserved_usd=1e12", "ttft=1e-12"):
        with pytest.raises(FleetgymError, match="expected a number from "):
            parse_slo(text)
    with pytest.raises(DataError, match="ttft: expected a number from 1e-6 to 1e7 s"):
        Slo(ttft=HUGE)


@pytest.mark.parametrize("text", ["gh(margin=1e999)", "gh(margin=1e300)", "gh(margin=0x1)", "gh(margin=1_0)"])
def test_arguments_of_agents(text: str) -> None:
    """Numbers among the arguments are finite, and written as everywhere."""
    with pytest.raises(FleetgymError):
        make_agent(text)


def test_every_kind_has_two_finite_bounds() -> None:
    """No kind is open on a side, and no cost of numbers within bounds comes near the end of floating point."""
    kinds = {name: k for name, k in vars(quantities).items() if isinstance(k, (Number, Integer))}
    assert len(kinds) > 30
    for kind in kinds.values():
        assert -np.inf < kind.minimum < kind.maximum < np.inf
    q = quantities
    requests = q.RATE_RPS.maximum * q.WINDOW_S.maximum * 2016 * 256
    tokens = 2 * q.TOKENS.maximum * q.FACTOR.maximum
    seconds = (q.PER_REQUEST.maximum + tokens * q.PER_TOKEN.maximum) * q.FACTOR.maximum
    assert requests * (q.PENALTY_USD.maximum + seconds * q.USD_PER_S.maximum) < q.COST_USD.maximum
    assert (q.COST_USD.maximum / q.POSITIVE_COST_USD.minimum) ** 2 < 1e300


def _extreme(side: str) -> Instance:
    """Return an instance whose rates and processes are at their bounds."""
    data = good_instance() | {"window_s": 86400.0}
    for k, workload in enumerate(data["workloads"]):
        workload["rate_rps"] = 1e6
        for row in data["history"]["rate_rps"]:
            row[k] = 1e6
    kinds = {"demand": "diurnal-ou", "tokens": "drift", "factors": "lognormal", "availability": "drops"}
    for part, kind in kinds.items():
        parameters = PROCESSES[part][kind].items()
        data["dynamics"][part] = {
            "kind": kind,
            "parameters": {name: getattr(p.kind, side) for name, p in parameters},
        }
    return Instance.from_dict(data)


@pytest.mark.parametrize("side", ["minimum", "maximum"])
def test_draws_stay_within_bounds(side: str) -> None:
    """Processes at their bounds draw scenarios that can be played and stored."""
    instance = _extreme(side)
    for seed in range(3):
        drawn = draw_scenario(instance, np.random.default_rng(seed))
        assert dataclasses.replace(drawn, id="again").rate_rps.max() <= quantities.RATE_RPS.maximum
