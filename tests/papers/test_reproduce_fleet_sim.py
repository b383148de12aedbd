"""The reproduction of inference-fleet-sim: it runs, resumes, and every table has what it promises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fleetgym.files.finished_cells import read
from fleetgym.papers import __main__ as command
from fleetgym.papers import harness
from fleetgym.papers.inference_fleet_sim import published, settings
from fleetgym.papers.inference_fleet_sim.summary import insights

TINY = settings.Effort(seeds=2, requests=500, many_seeds=3)
PAPER = "inference_fleet_sim"


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run with few seeds and requests."""
    folder = tmp_path_factory.mktemp("fleet-sim")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "QUICK", TINY)
        command.main(
            ["run", PAPER, "--quick", "--kept", str(folder / "cells.jsonl"), "--docs", str(folder / "docs")]
        )
    return folder


@pytest.mark.slow
def test_a_small_run_from_end_to_end(tiny_run: Path) -> None:
    """One command computes all cells and writes them and the page."""
    text = (tiny_run / "docs" / "reproduce-fleet-sim.md").read_text(encoding="utf-8")
    assert f"mean of {TINY.seeds} seeds of {TINY.requests}" in text
    assert "nan" not in text
    source, *kept = read(harness.committed(PAPER, tiny_run / "docs")).items()
    assert source[1].endswith(", a small version")
    assert dict(kept) == read(tiny_run / "cells.jsonl")


def same(one: Any, other: Any) -> bool:
    """Tell whether two values of cells agree, numbers within 1e-9."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return math.isclose(one, other, rel_tol=1e-9) if isinstance(one, float) else bool(one == other)


@pytest.mark.slow
def test_rules_do_not_depend_on_the_effort(tiny_run: Path) -> None:
    """What is not simulated is the same in the committed cells: the tool's, the exact and our sizes."""
    small, kept = read(tiny_run / "cells.jsonl"), read(harness.committed(PAPER))
    for name in ("table-1", "table-3", "table-4", "table-6", "table-7"):
        for row, other in zip(kept[name]["rows"], small[name]["rows"], strict=True):
            for key in ("published", "tool", "exact", "ours"):  # processors round sums differently
                assert same(row[key], other[key]), (name, key)


@pytest.mark.slow
def test_compat_is_what_was_published(tiny_run: Path) -> None:
    """Tables 1, 4, 7 and 8: counts, costs, shares and analytical TTFT of the compat mode are the printed ones."""
    done = read(tiny_run / "cells.jsonl")
    for row in done["table-1"]["rows"]:
        known, tool = row["published"], row["tool"]
        assert (tool["short"], tool["long"], round(tool["kusd"])) == (
            known["short"],
            known["long"],
            known["kusd"],
        )
        assert round(tool["share"], 1) == known["share"]
    for name in ("table-4", "table-7"):
        for row in done[name]["rows"]:
            assert (row["tool"]["gpus"], round(row["tool"]["kusd"])) == (
                row["published"]["gpus"],
                row["published"]["kusd"],
            )
    for row in done["table-8"]["rows"]:
        known, tool = row["published"], row["tool"]
        found = (tool["counts"], *(round(tool[key]) for key in ("kusd", "ttft_ms", "tpot_ms")))
        assert found == (known["counts"], known["kusd"], known["ttft_ms"], known["tpot_ms"])


@pytest.mark.slow
def test_verdicts_follow_from_the_numbers(tiny_run: Path) -> None:
    """Numbers as the paper has them would make its insights survive."""
    done = read(tiny_run / "cells.jsonl")
    before = {name: verdict for name, verdict, _ in insights(done)}
    done["table-2"]["each_ms"] = [1052.0] * 5
    done["table-2"]["homogeneous"]["utilization"] = 0.3
    for row in done["table-9"]["rows"]:
        if row["published"]["flex"] == 40:
            row["event_ms"], row["event_high_ms"] = 190.0, 200.0
    after = {name: verdict for name, verdict, _ in insights(done)}
    changed = [name[:2] for name in before if before[name] != after[name]]
    assert changed == ["2.", "8."]
    assert all(after[name] == "holds" for name in after if name[:2] in ("2.", "8."))


def test_verdicts_are_the_known_ones() -> None:
    """The committed cells give the verdicts that were published."""
    found = [verdict for _, verdict, _ in insights(read(harness.committed(PAPER)))]
    assert found == [
        *("in part", "does not hold", "holds", "in part"),
        *("does not hold", "holds", "does not hold", "in part"),
    ]


def test_every_published_table_is_there() -> None:
    """All nine tables of the paper are kept as printed."""
    for number in range(1, 10):
        assert getattr(published, f"TABLE_{number}")
