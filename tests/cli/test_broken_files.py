"""Every broken file is refused with one error that says where and what, and is left as it was."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from broken_files import (
    BROKEN_INSTANCE_FILES,
    BROKEN_SCENARIO_FILES,
    BrokenFile,
    good_instance,
    good_scenarios,
)

from fleetgym.cli import main
from fleetgym.files import documents as files
from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance, load_instance_file
from fleetgym.model.scenario import load_scenario_file


def written(folder: Path, broken: BrokenFile) -> Path:
    """Write a broken file."""
    path = folder / f"case{broken.suffix}"
    path.write_bytes(broken.content)
    return path


def assert_points_at(error: DataError, broken: BrokenFile, path: Path) -> None:
    """Check that the message names the file, the place and the problem, in one short line."""
    text = str(error)
    assert text.startswith(f"{path}: {broken.path}: "), text
    assert broken.says in error.message, text
    assert "\n" not in text
    assert len(error.message) < 300, text
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize("broken", BROKEN_INSTANCE_FILES, ids=lambda b: b.name)
def test_broken_instance_file(broken: BrokenFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It raises one `DataError`, which `fleetgym show` tells in a line with exit code 1, and stays as it was."""
    path = written(tmp_path, broken)
    with pytest.raises(DataError) as caught:
        load_instance_file(path)
    assert_points_at(caught.value, broken, path)
    assert main(["show", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    assert f"{path}: {broken.path}: " in output.err
    assert path.read_bytes() == broken.content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("broken", BROKEN_SCENARIO_FILES, ids=lambda b: b.name)
def test_broken_scenario_file(broken: BrokenFile, tmp_path: Path) -> None:
    """A broken scenario file raises one `DataError` and stays as it was."""
    path = written(tmp_path, broken)
    with pytest.raises(DataError) as caught:
        load_scenario_file(path, Instance.from_dict(good_instance()))
    assert_points_at(caught.value, broken, path)
    assert path.read_bytes() == broken.content


def test_what_the_broken_files_are_made_of_is_good(tmp_path: Path) -> None:
    """Unbroken, both files load: each case is broken by its own change alone."""
    path = tmp_path / "good.json"
    path.write_text(json.dumps(good_instance()))
    instance = load_instance_file(path)
    path.write_text(json.dumps(good_scenarios()))
    assert [s.id for s in load_scenario_file(path, instance).scenarios] == ["nominal"]


@pytest.mark.parametrize("table", [BROKEN_INSTANCE_FILES, BROKEN_SCENARIO_FILES])
def test_names_are_unique(table: list[BrokenFile]) -> None:
    """A name stands for one case."""
    assert len({b.name for b in table}) == len(table)


@pytest.mark.parametrize("name", ["folder.json", "folder.json.gz"])
def test_directory(name: str, tmp_path: Path) -> None:
    """A directory is no file."""
    path = tmp_path / name
    path.mkdir()
    with pytest.raises(DataError, match="directory"):
        load_instance_file(path)


def test_no_such_file(tmp_path: Path) -> None:
    """A file that is not there is Python's own error."""
    with pytest.raises(FileNotFoundError):
        load_instance_file(tmp_path / "nothing.json")


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_too_large_when_unpacked(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the limit is refused before it is parsed, also if it is small while packed."""
    monkeypatch.setattr(files.read_text, "__defaults__", (2**20,))
    text = b" " * (2**20 + 1)
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    with pytest.raises(DataError, match="larger than 1 MiB when unpacked"):
        load_instance_file(path)


def test_bombs_are_not_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops at the limit: a gigabyte of blanks costs no gigabyte of memory."""
    monkeypatch.setattr(files.read_text, "__defaults__", (2**20,))
    path = tmp_path / "bomb.json.gz"
    block = gzip.compress(b" " * 2**24)
    path.write_bytes(block * 64)
    with pytest.raises(DataError, match="larger than"):
        load_instance_file(path)
