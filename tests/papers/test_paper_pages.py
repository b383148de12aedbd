"""The papers' pages: written anew from the repository alone, they are the ones that are committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgym.files.errors import FleetgymError
from fleetgym.papers import harness

WORDS = ("holds", "in part", "does not hold", "undecided")


@pytest.mark.parametrize("paper", harness.PAGES)
def test_pages_are_made_from_committed_cells(paper: str, tmp_path: Path) -> None:
    """Every page is its template over the committed cells, byte for byte."""
    (tmp_path / "data").symlink_to(harness.DOCS / "data")
    made = harness.write_page(paper, tmp_path).read_text(encoding="utf-8")
    assert made == (harness.DOCS / harness.PAGES[paper]).read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", harness.PAGES)
def test_tables_are_whole(paper: str) -> None:
    """Every row has as many columns as its head, no number is missing, and every verdict has one of four words."""
    text = (harness.DOCS / harness.PAGES[paper]).read_text(encoding="utf-8")
    columns, verdicts, place = 0, 0, None
    for line in text.splitlines():
        row = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if not row:
            columns, place = 0, None
            continue
        assert columns in (0, len(row)), line
        columns = len(row)
        assert "nan" not in row, line
        if place is None:
            place = row.index("verdict") if "verdict" in row else -1
        elif place >= 0 and not set(line) <= set("|-: "):
            verdicts += 1
            assert row[place].strip("*").startswith(WORDS), line
    assert verdicts >= 8


def test_a_page_needs_committed_cells(tmp_path: Path) -> None:
    """Elsewhere than in a checkout the command says what is missing."""
    with pytest.raises(FleetgymError, match="cells.jsonl is missing"):
        harness.write_page(next(iter(harness.PAGES)), tmp_path)
