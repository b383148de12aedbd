"""Sentences stay short: pages are held to their ceilings, and ceilings only fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_prose import __main__ as prose
from tools.check_prose.__main__ import GOAL, Figures

LONG = "This " + "long " * 40 + "sentence ends."
SHORT = "This one is short."


def test_no_page_is_above_its_ceilings() -> None:
    """Shorten the sentence that the message names; a ceiling is not raised."""
    assert prose.complaints(prose.pages(prose.ROOT), prose.read_ceilings(prose.CEILINGS)) == []


def test_code_tables_and_links_do_not_count() -> None:
    """What is left is what is read, sentence by sentence."""
    text = (
        "# A heading. Of two sentences.\n\nA [link](https://example.org/a-b-c) is text; see 1.5 of it.\nThen\n"
        "this? *Yes, it is.*\n\n```python\nIt is code. It is no prose.\n```\n\n| a cell | of a table. |\n\n"
        "    indented code is code\n\n1. The first of three words\n2. Two words\n<!-- a comment. It is not read. -->\n"
    )
    assert prose.sentences(text) == [
        "A link is text; see 1.5 of it.",
        "*Yes, it is.*",
        "The first of three words",
    ]


def test_a_page_above_its_ceilings_is_named() -> None:
    """A new page is held to the goal, an old one to its row, and the longest sentence is shown."""
    old = Figures(50, 50, 100.0)
    pages = {"new.md": [SHORT, LONG], "old.md": [LONG], "good.md": [SHORT]}
    (line,) = prose.complaints(pages, {"old.md": old})
    assert line.startswith(
        "new.md: median 43, at most 16; 90th percentile 43, at most 26; percentage above 30"
    )
    assert line.endswith(LONG)
    assert len(prose.complaints(pages, {"old.md": Figures(42, 50, 100.0)})) == 2
    assert prose.complaints({}, {"gone.md": old}) == [
        "gone.md: no such page; remove its ceiling with --lower"
    ]


def test_ceilings_only_fall() -> None:
    """Each figure by itself; pages within the goal and pages that are gone need none."""
    ceilings = {"a": Figures(20, 30, 5.0), "b": Figures(20, 30, 5.0), "c": Figures(20, 30, 5.0)}
    now = {"a": Figures(18, 40, 9.0), "b": GOAL, "new": Figures(40, 40, 40.0)}
    assert prose.lowered(ceilings, now) == {"a": Figures(18, 30, 5.0)}


def test_the_command_lowers_and_complains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes its table and reads it again."""
    for name in prose.DOCSTRINGS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(f'"""{SHORT}"""\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(SHORT)
    (tmp_path / "README.md").write_text(LONG)
    (tmp_path / "CONTRIBUTING.md").write_text(SHORT)
    (tmp_path / "CHANGELOG.md").write_text(SHORT)
    table = tmp_path / "ceilings.csv"
    table.write_text("page,median_words,p90_words,above_30_percent\nREADME.md,60,40,100\n")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "CEILINGS", table)
    assert prose.main([]) == 1
    assert capsys.readouterr().err.startswith("README.md: 90th percentile 43, at most 40. Its longest")
    assert prose.main(["--lower"]) == 0
    assert prose.read_ceilings(table) == {"README.md": Figures(43, 40, 100.0)}
    (tmp_path / "README.md").write_text(SHORT)
    assert prose.main(["--all"]) == 0
    assert "README.md " in capsys.readouterr().out
