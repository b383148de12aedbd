"""The verb `study`: every named question has rows, JSON and a picture; wrong words are told what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetgym.cli import main
from fleetgym.cli.study import GROUP
from fleetgym.runtime.entry_points import named_entries

#: The questions that are promised, and settings that make them quick.
STUDIES = {
    "thresholds": "thresholds(thresholds=[512, 2048])",
    "layouts": "layouts(gpus=['H100-80GB'], limits=[4096, 8192], most_pools=2)",
    "steps": "steps(rates=[25, 100])",
    "routers": "routers(pools=[('H100-80GB', 3, 4096), ('H100-80GB', 30, 65536)], seeds=2, requests=300)",
    "mixed-types": "mixed-types(gpus=['A10G', 'H100-80GB'])",
    "disaggregation": "disaggregation(gpus=['H100-80GB'], links_gb_per_s=[1, 50, 200])",
    "grid-flex": "grid-flex(shares=[0.0, 0.3, 0.5])",
    "tokens-per-watt": "tokens-per-watt()",
    "node-availability": "node-availability(needed=10)",
}


def rows_of(call: str, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    """Return the rows that the command prints as JSON."""
    assert main(["study", call, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_every_study_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The list names each with what it answers and its settings, as text and as JSON."""
    assert set(named_entries(GROUP, "study")) == set(STUDIES)
    assert main(["study"]) == 0
    text = capsys.readouterr().out
    assert main(["study", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    for name in STUDIES:
        assert name in text
        assert facts[name]["answers"].endswith(".")
        assert facts[name]["settings"]


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_prints_and_draws(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A title and a line per row; a PNG that is no blank; the same words, the same text."""
    matplotlib = pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    assert main(["study", STUDIES[name], "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert main(["study", STUDIES[name]]) == 0
    assert capsys.readouterr().out == text
    assert len(text.splitlines()) == 4 + len(rows_of(STUDIES[name], capsys))
    pixels = matplotlib.image.imread(picture)
    assert pixels[..., :3].std() > 0.01
    matplotlib.pyplot.close("all")


def test_cost_falls_with_the_link(capsys: pytest.CaptureFixture[str]) -> None:
    """A faster link never makes disaggregation dearer; the slowest cannot keep the TTFT; handing over takes longer."""
    rows = rows_of("disaggregation(links_gb_per_s=[1, 5, 12.5, 50, 200])", capsys)
    for pair in {(row["prefill"], row["decode"]) for row in rows if row["prefill"]}:
        mine = [row for row in rows if (row["prefill"], row["decode"]) == pair]
        costs = [row["usd_per_h"] for row in mine]
        assert costs[0] is None
        assert costs[1:] == sorted(costs[1:], reverse=True)
        assert [row["handover_s"] for row in mine] == sorted((r["handover_s"] for r in mine), reverse=True)
    assert sum(row["prefill"] is None and row["usd_per_h"] > 0 for row in rows) == 2


def test_power_falls_and_load_rises(capsys: pytest.CaptureFixture[str]) -> None:
    """Giving up more power leaves less of it and a busier fleet, in the end one without a steady state."""
    rows = rows_of("grid-flex", capsys)
    for before, after in zip(rows, rows[1:], strict=False):
        assert after["fleet_kw"] <= before["fleet_kw"]
        assert after["utilization"] >= before["utilization"]
        assert after["is_kept"] <= before["is_kept"]
    assert rows[-1]["ttft_p99_s"] is None


def test_thresholds_mark_the_pareto_front(capsys: pytest.CaptureFixture[str]) -> None:
    """What is efficient is beaten by nothing; what is not, is beaten or does not keep the SLO."""
    rows = rows_of("thresholds", capsys)
    kept = [row for row in rows if row["is_kept"]]
    points = [(row["usd_per_h"], row["ttft_p99_s"]) for row in kept]
    for row, (usd, ttft_s) in zip(kept, points, strict=True):
        beaten = any(a <= usd and b <= ttft_s and (a, b) != (usd, ttft_s) for a, b in points)
        assert row["is_efficient"] == (not beaten)
    assert not any(row["is_efficient"] for row in rows if not row["is_kept"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("thresholdz", "did you mean 'thresholds'"),
        ("thresholds(rate=3)", "did you mean 'rate_rps'"),
        ("thresholds(workload='azur')", "did you mean 'azure'"),
        ("layouts(gpus=['H100'])", "unknown GPU profile 'H100'"),
        ("thresholds(rate_rps='many')", "cannot study thresholds with these settings"),
        ("thresholds(rate_rps=-1)", "rate_rps: expected requests per second above 0, got -1"),
        ("routers(pools=[])", "cannot study routers with these settings"),
        ("thresholds(1)", "expected keywords with plain values"),
    ],
)
def test_wrong_words_are_answered(call: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what is wrong, in one line, and the exit code is 2."""
    assert main(["study", call]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_picture_of_unknown_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file name of another format is an error before the study begins."""
    pytest.importorskip("matplotlib")
    assert main(["study", "node-availability", "--plot", str(tmp_path / "picture.xyz")]) == 2
    assert "cannot draw" in capsys.readouterr().err
