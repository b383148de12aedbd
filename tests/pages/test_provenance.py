"""Where the numbers of an imported instance come from: said by the commands, as the instance has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_traces import write_azure

from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.prices import Offer
from fleetgym.cli.parser import main

WORDS = ("given", "measured", "fitted", "modelled", "assumed")
OPTIONS = ["--by", "one", "--models", "Llama-3.1-8B", "--slo", "ttft=2", "--force"]


def flat(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("hours", [1.0, 30.0])
def test_commands_print_it(hours: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every group of numbers, with a word for how it is known; never that nothing is assumed."""
    trace = write_azure(tmp_path / "t.csv", hours=hours, per_second=0.5)
    words = ["import-trace", str(trace), *OPTIONS, "--gpus", "L40S", "--out", str(tmp_path / "x.json")]
    assert main(words) == 0
    text = flat(capsys.readouterr().out)
    assert "assumed nothing" not in text
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["show", str(tmp_path / "x.json")]) == 0
    shown = flat(capsys.readouterr().out)
    assert {"demand", "tokens", "arrivals", "prefix cache", "performance", "error", "slo", "prices"} < set(
        facts["provenance"]
    )
    assert {"penalties", "startup", "availability"} < set(facts["provenance"])
    for name, said in facts["provenance"].items():
        assert f"{name} {flat(said)}" in shown
        if name not in ("trace", "lengths"):
            assert any(word in said for word in WORDS), name
            assert f"{name} {flat(said)}" in text


def test_prices_say_where_they_are_from(tmp_path: Path) -> None:
    """A list by its name, the catalogue by its region, offers of a caller as such."""
    trace = write_azure(tmp_path / "t.csv", hours=0.3)
    (tmp_path / "mine.csv").write_text("gpu,usd_per_gpu_h\nL40S,1.1\n")
    options = {"by": "one", "models": ["Llama-3.1-8B"], "slo": "ttft=2"}
    expected = {
        "given: mine.csv": {"prices": tmp_path / "mine.csv"},
        "given: offers in Python": {"prices": [Offer(gpu="L40S", usd_per_gpu_h=1.1)]},
        "measured: the cheapest on-demand offer of each GPU in us-east-1": {"gpus": ["L40S"]},
    }
    for said, given in expected.items():
        found = import_trace(trace, **options, **given).instance.provenance["prices"]
        assert found.startswith(said)
