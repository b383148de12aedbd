"""Names are identities, and text that was written by others is shown so that it can only be read."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from places import ROOT

from fleetgym.cli import main, verbs
from fleetgym.files.errors import DataError
from fleetgym.files.names import FOLDER_NAME, SEASON_NAME, AgentName, PeopleName
from fleetgym.leaderboard.columns import columns
from fleetgym.leaderboard.pages import Column, escaped, html_table, markdown_table
from fleetgym.leaderboard.registers import read_registers
from fleetgym.leaderboard.report import Figure
from fleetgym.leaderboard.standings import make_boards
from fleetgym.leaderboard.submission import read_submission
from fleetgym.runtime.text_tables import align
from tools.markdown import table

BOARD = ROOT / "leaderboard"
#: Moves the cursor, runs backwards, hides.
HOSTILE = "a\x1b[2J\u202eb\u200b"
SHOWN = r"a\x1b[2J\u202eb\u200b"


@pytest.mark.slow
def test_every_published_submission_has_a_name_of_its_own() -> None:
    """What is on the board today is still accepted."""
    folders = sorted((BOARD / "submissions").iterdir())
    assert len([read_submission(folder) for folder in folders]) > 80


@pytest.mark.parametrize("name", ["agh-rolling(margin=0.3, keep=True)", "mine.py:Agent", "A 2+", "x"])
def test_names_of_agents(name: str) -> None:
    """Letters, digits and the marks of arguments."""
    assert AgentName(1, 60).read(name, "$") == name


@pytest.mark.parametrize(
    "name",
    ["\u0430gh", "\uff41gh", "a\u0301", "agh ", "agh.", " agh", "-x", "Con", "LPT1.x", "<b>", "a/b", ""],
)
def test_what_is_no_name_of_an_agent(name: str) -> None:
    """Confusable letters, invisible ends, devices, and markup."""
    with pytest.raises(DataError):
        AgentName(1, 60).read(name, "$")


@pytest.mark.parametrize(
    "name",
    [
        "Ü. Größe & Co, a@b.org",
        "Вася Пупкин (Vasya)",
        "山田 エミさん",
        "김철수",
        "أحمد",
        "e\u0301 O'Neil",
        "François–X",
        "",
    ],
)
def test_names_of_people(name: str) -> None:
    """Of any language, a word at a time."""
    assert PeopleName().read(name, "$") == name


@pytest.mark.parametrize(
    "name",
    [
        "P\u0430ul",
        "\uff30aul",
        "Paul\u3164",
        "Paul\u034f",
        "Pa\u202eul",
        "P\ufe0f",
        "\u2603",
        "a\u00a0b",
        "a\tb",
    ],
)
def test_what_is_no_name_of_a_person(name: str) -> None:
    """Two scripts in a word, other forms of letters, what shows nothing or reorders, and pictures."""
    with pytest.raises(DataError):
        PeopleName().read(name, "$")


@pytest.mark.parametrize(
    "name", ["con", "aux.1", "nul", "com1", "lpt9.txt", "a.", "A", ".a", "a b", "a" * 81, "a\n"]
)
def test_what_is_no_name_of_a_folder(name: str) -> None:
    """Devices of Windows, a dot at the end, capitals."""
    with pytest.raises(DataError):
        FOLDER_NAME.read(name, "$")
    assert FOLDER_NAME.read("2026-11-21-con", "$") == "2026-11-21-con"
    assert FOLDER_NAME.read("console.1", "$") == "console.1"


def test_text_of_others_is_shown_escaped() -> None:
    """In the page, in Markdown, and in tables of a terminal; lines cannot be broken, nor cells ended."""
    assert escaped(HOSTILE) == SHOWN
    assert "\u202e" not in html_table([Column("a", lambda row: row)], [HOSTILE])
    assert "\x1b" not in markdown_table([Column("a", lambda row: row)], [HOSTILE])
    assert table(["a"], [[f"{HOSTILE}|\n| b |"]]).count("\n") == 3
    assert table(["a"], [["b|c"]]).endswith("| b\\|c |\n")
    assert table(["a"], [["b\\|c"]]).endswith("| b\\|c |\n")
    assert align(["a"], [[HOSTILE + "\n"]]).splitlines()[-1] == SHOWN + r"\n"


def test_messages_are_shown_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that repeats a file's text or name moves no cursor, and stays on its line."""

    def fail(arguments: object) -> int:
        raise DataError(HOSTILE + "\nfleetgym: accepted", source="x\x1b")

    monkeypatch.setitem(verbs.VERBS, "doctor", fail)
    assert main(["doctor"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert SHOWN in line
    assert "\x1b" not in line


def test_no_cell_of_text_is_a_formula() -> None:
    """Whatever a spreadsheet takes for one has an apostrophe before it; numbers stay numbers."""
    cells = ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "a\r=1", -1.5]
    text = Figure("a", "b", None, [cells]).csv()
    (found,) = csv.reader(io.StringIO(text, newline=""))
    assert found == ["'=1", "'+1", "'-1", "'@a", r"\t=1", r"\r=1", r"a\r=1", "-1.5"]


@pytest.mark.slow
def test_rows_show_their_ids_and_whose_agents_they_are() -> None:
    """On the page of the project's own board, whose agents are all ours."""
    board = make_boards(BOARD)[0]
    found = {column.head: column for column in columns(board, board.certified)}
    for row in board.certified.rows:
        assert row.key in str(found["id"].show(row))
        assert re.fullmatch(
            r"fleetgym \(reference\)|fleetgym, as of [0-9a-f]{8}", found["agent of"].show(row)
        )


@pytest.mark.parametrize("name", ["con", "aux.1", "a.", "A", "", "a" * 41, "a/b"])
def test_names_of_seasons(name: str, tmp_path: Path) -> None:
    """A season's records lie in a folder of its name, on any system."""
    assert SEASON_NAME.read("2026-11b", "$") == "2026-11b"
    text = f'[[season]]\nname = "{name}"\nsuite = "fleet-v0/toy"\nscenarios = 1\nopened = "2026-11-21"\n'
    (tmp_path / "seasons.toml").write_text(f'{text}seed_sha256 = "{"0" * 64}"\n')
    with pytest.raises(DataError, match=r"seasons.toml: \$.season\[0\].name: expected text"):
        read_registers(tmp_path)


def test_readme_tells_rows_apart_as_the_page_does() -> None:
    """It shows the id of a row and whether its agent came with fleetgym."""
    readme = (BOARD / "README.md").read_text(encoding="utf-8")
    heads = [line for line in readme.splitlines() if "| agent |" in line]
    assert heads
    assert all("| agent of |" in head and "| id |" in head for head in heads)
    assert "| 2026-11-23-v1-descent | fleetgym (reference) |" in readme
