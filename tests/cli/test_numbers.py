"""Numbers have two bounds and a unit wherever they are read: in files, as cells, as words and as arguments."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_files import good_instance, good_scenarios

from fleetgym.agents.registry import make_agent
from fleetgym.capacity.traces.objectives import Slo, parse_slo, slos_for
from fleetgym.capacity.traces.price_lists import read_prices
from fleetgym.capacity.traces.prices import parse_caps
from fleetgym.cli import main
from fleetgym.files import quantities
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import Integer, Number, from_text
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance, load_instance_file
from fleetgym.model.processes import PROCESSES
from fleetgym.model.scenario import load_scenario_file

HUGE = 10**400  # a whole number of JSON that no float holds

#: What loaded and played, and what would be valid instead.
INSTANCE_FIELDS = {
    "workloads.0.error_slo": ((1e9, 7.0, 0.0, HUGE), "from 1e-9 to 1"),
    "performance.error.0.0": ((7, -0.1, HUGE), "from 0 to 1"),
    "window_s": ((1e-9, 1e300, HUGE), "from 0.001 to 86400 s"),
    "workloads.0.mean_delay_slo_s": ((1e-12, 1e300, HUGE), "from 1e-6 to 1e7 s"),
    "workloads.0.ttft_slo_s": ((1e-12, 1e300), "from 1e-6 to 1e7 s"),
    "pools.0.price_usd_per_gpu_h": ((1e12, -1.0), "from 0 to 1e6 USD/h"),
    "configurations.0.kv_gb_per_token": ((1e12,), "from 0 to 1000 GB/token"),
    "workloads.0.input_tokens": ((1e15, 1e-9), "from 0.001 to 1e7 tokens"),
    "workloads.0.rate_rps": ((9e307, 1e-300), "from 1e-9 to 1e6 requests/s"),
    "history.rate_rps.0.0": ((9e307,), "from 0 to 1e6 requests/s"),
    "budget.usd": ((0, 1e300), "from 1e-6 to 1e15 USD"),
}


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of nested data with one value changed."""
    data = json.loads(json.dumps(data))
    *way, last = path.split(".")
    at: Any = data
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[int(last) if isinstance(at, list) else last] = value
    return data


def json_path(path: str) -> str:
    """Return the JSON path as messages write it."""
    return "$" + "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in path.split("."))


@pytest.mark.parametrize("path", INSTANCE_FIELDS)
def test_instances(path: str, tmp_path: Path) -> None:
    """A number beyond its bounds is refused with file, JSON path and what would be valid."""
    values, expected = INSTANCE_FIELDS[path]
    good = good_instance() | {"budget": {"kind": "rate", "usd": 5.0}}
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(good))
    load_instance_file(file)
    for value in values:
        file.write_text(json.dumps(changed(good, path, value)))
        with pytest.raises(DataError) as caught:
            load_instance_file(file)
        assert str(caught.value).startswith(f"{file}: {json_path(path)}: expected a number {expected}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output_scale", HUGE),
        ("rate_rps", 9e307),
        ("input_scale", 1e9),
        ("delay_factor", 1e-9),
        ("price_factor", 1e12),
    ],
    ids=lambda part: str(part)[:20],
)
def test_scenarios(name: str, value: float, tmp_path: Path) -> None:
    """So it is in the arrays of scenarios."""
    instance = Instance.from_dict(good_instance())
    file = tmp_path / "scenarios.json"
    file.write_text(json.dumps(changed(good_scenarios(), f"scenarios.0.{name}.0.0", value)))
    with pytest.raises(DataError, match=rf"scenarios\[0\]\.{name}\[0\]\[0\]: expected a number from "):
        load_scenario_file(file, instance)


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
