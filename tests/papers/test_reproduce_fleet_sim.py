"""The reproduction of inference-fleet-sim: it runs, resumes, and every table has what it promises."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("matplotlib")

from fleetgym.hardware.performance.profiles import PROFILES
from fleetgym.papers.inference_fleet_sim import __main__ as command
from fleetgym.papers.inference_fleet_sim import fleet_sim, further, published, settings
from fleetgym.papers.inference_fleet_sim import measurements as cells
from fleetgym.papers.inference_fleet_sim.fleet_sim_page import page
from fleetgym.papers.inference_fleet_sim.insights import insights
from fleetgym.papers.inference_fleet_sim.settings import AZURE, H100

TINY = settings.Effort(seeds=2, requests=500, many_seeds=3)
INTERVAL = re.compile(r"\[[\d.,∞]+, [\d.,∞]+\]")
VERDICTS = {"holds", "in part", "does not hold"}


def sections(text: str) -> dict[str, str]:
    """Return the page's sections by their heading."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def tables(section: str) -> list[list[list[str]]]:
    """Return the tables of a section: rows of cells, the head first, the rule left out."""
    found: list[list[list[str]]] = [[]]
    for line in section.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [[table[0], *table[2:]] for table in found if table]


def check_page(text: str) -> None:
    """Nine tables with published, the tool's and our values, ours with intervals; eight insights with a verdict."""
    parts = sections(text)
    assert "Not computed" not in text
    assert "nan" not in text.lower().replace("finance", "")
    for number in range(1, 10):
        (section,) = (body for title, body in parts.items() if title.startswith(f"Table {number}:"))
        found = tables(section)
        heads = [" ".join(table[0]) for table in found]
        assert any("published" in head and "tool" in head for head in heads), number
        assert all("ours" in head or "P99" in head for head in heads if "published" in head), number
        assert INTERVAL.search(section), number
        for table in found:
            assert len(table) > 1
            assert all(len(row) == len(table[0]) and all(row) for row in table)
    (rows,) = tables(parts["Verdicts"])
    assert [row[0][:2] for row in rows[1:]] == [f"{k}." for k in range(1, 9)]
    assert all(row[1] in VERDICTS and row[2] for row in rows[1:])


def test_the_page_in_the_docs() -> None:
    """The page that is kept has every table and insight, from at least ten seeds."""
    text = (ROOT / "docs" / "reproduce-fleet-sim.md").read_text(encoding="utf-8")
    check_page(text)
    seeds = re.search(r"mean over (\d+) seeds", text)
    assert seeds is not None
    assert int(seeds[1]) >= 10
    for image in re.findall(r"\((images/[^)]+)\)", text):
        assert (ROOT / "docs" / image).stat().st_size > 10_000


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run with few seeds and requests."""
    folder = tmp_path_factory.mktemp("fleet-sim")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "QUICK", TINY)
        command.main(
            ["--quick", "--cells", str(folder / "cells.jsonl"), "--out", str(folder / "docs" / "page.md")]
        )
    return folder


@pytest.mark.slow
def test_a_small_run_from_end_to_end(tiny_run: Path) -> None:
    """One command computes all cells and writes page and pictures."""
    text = (tiny_run / "docs" / "page.md").read_text(encoding="utf-8")
    check_page(text)
    assert f"mean over {TINY.seeds} seeds of {TINY.requests}" in text
    for image in re.findall(r"\((images/[^)]+)\)", text):
        assert (tiny_run / "docs" / image).stat().st_size > 10_000


@pytest.mark.slow
def test_rules_do_not_depend_on_the_effort(tiny_run: Path) -> None:
    """What is not simulated is the same as on the kept page: the tool's, the exact and our sizes."""
    kept = sections((ROOT / "docs" / "reproduce-fleet-sim.md").read_text(encoding="utf-8"))
    small = sections((tiny_run / "docs" / "page.md").read_text(encoding="utf-8"))
    for title in kept:
        for table, other in zip(tables(kept[title]), tables(small[title]), strict=True):
            assert table[0] == other[0]
            columns = [k for k, head in enumerate(table[0]) if head in ("published", "tool", "exact", "ours")]
            assert [[row[k] for k in columns] for row in table] == [
                [row[k] for k in columns] for row in other
            ]


@pytest.mark.slow
def test_compat_is_what_was_published(tiny_run: Path) -> None:
    """Tables 1, 4, 7 and 8: counts, costs, shares and analytical TTFT of the compat mode are the printed ones."""
    done = command.read(tiny_run / "cells.jsonl")
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
def test_finished_cells_are_kept(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run computes nothing and writes the same page; a torn last line is computed anew."""
    copy = tmp_path / "cells.jsonl"
    shutil.copy(tiny_run / "cells.jsonl", copy)
    asked: list[str] = []
    numbers = {name: json.dumps(value) for name, value in command.read(copy).items()}

    def again(name: str):
        def compute(effort: cells.Effort):
            asked.append(name)
            return json.loads(numbers[name])

        return compute

    monkeypatch.setattr(cells, "CELLS", {name: again(name) for name in cells.CELLS})
    call = ["--quick", "--cells", str(copy), "--out", str(tmp_path / "page.md")]
    command.main(call)
    first = (tmp_path / "page.md").read_bytes()
    assert asked == []
    copy.write_bytes(copy.read_bytes()[:-40])
    command.main(call)
    assert asked == ["beyond"]
    assert (tmp_path / "page.md").read_bytes() == first


def test_a_page_without_cells_says_so() -> None:
    """Tables that were not computed are named as missing, and no verdict is made up."""
    text = page({}, [])
    assert text.count("Not computed yet.") == len(cells.CELLS)
    assert "## Verdicts" not in text


@pytest.mark.slow
def test_verdicts_follow_from_the_numbers(tiny_run: Path) -> None:
    """Numbers as the paper has them would make its insights survive."""
    done = command.read(tiny_run / "cells.jsonl")
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


def test_every_published_table_is_there() -> None:
    """All nine tables of the paper are kept as printed."""
    for number in range(1, 10):
        assert getattr(published, f"TABLE_{number}")


def test_ties_are_broken_as_the_tool_breaks_them() -> None:
    """Of 1 + 18, 2 + 36 and 3 + 54 workers, equal in rate per GPU, the tool's rounding takes the last."""
    found = fleet_sim.most_rate_per_gpu(
        PROFILES["A100-80GB"],
        PROFILES["H100-80GB"],
        input_tokens=512,
        output_tokens=128,
        most_tokens=4096,
        ttft_slo_s=0.5,
        tpot_slo_s=0.1,
    )
    assert found is not None
    assert (found.prefill_gpus, found.decode_gpus) == (3, 54)


def test_a_node_that_fails_takes_its_slots() -> None:
    """A day on which one of two nodes fails at noon is late in about the half in which one node is overloaded."""
    queue = dataclasses.replace(AZURE, rate_rps=25.0).queue(H100, 0, AZURE.context)
    assert queue.utilization(1) > 1.1
    calm, low, high = (
        further._day_with_failure(queue, 2, failed, hours, AZURE.slos, 2, 0.02)[0]
        for failed, hours in ((0, 0.0), (1, 4.0), (1, 48.0))
    )
    assert calm < 0.001
    assert 4.0 / 24.0 <= low <= 0.3
    assert high == pytest.approx(0.5, abs=0.02)
