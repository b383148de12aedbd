"""Sets of instances that packages bring: found by entry points, checked as ours are, hidden from agents."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from places import ROOT

from fleetgym.cli.parser import main
from fleetgym.evaluation.isolation.visible import hidden_files
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model import library, sets
from fleetgym.scoring.best_known import load_best_known


class Distribution(NamedTuple):
    """A package that is said to be installed."""

    name: str


class Point(NamedTuple):
    """An entry point of the group `fleetgym.suites`."""

    name: str
    value: str
    dist: Distribution


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Point]]:
    """Return the entry points that are found, none at first; the standard folder holds the toys of fleet-v0 only."""
    standard = tmp_path / "standard"
    shutil.copytree(ROOT / "instances" / "fleet-v0" / "toy", standard / "fleet-v0" / "toy")
    shutil.copy(ROOT / "instances" / "manifest.json", standard)
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(standard))
    found: list[Point] = []
    real = importlib.metadata.entry_points

    def entry_points(**wanted: str) -> Any:
        return found if wanted.get("group") == sets.GROUP else real(**wanted)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.syspath_prepend(tmp_path)
    sets.packaged_folders.cache_clear()
    yield found
    sets.packaged_folders.cache_clear()
    for module in ("fleetgym_fleet_v1", "first", "second"):
        sys.modules.pop(module, None)


def bring(points: list[Point], tmp_path: Path, folder: str, package: str = "fleetgym_fleet_v1") -> None:
    """Install a package that says the set fleet-v1 lies in a folder, an expression."""
    (tmp_path / f"{package}.py").write_text(f"FOLDER = {folder}\n")
    points.append(Point("fleet-v1", f"{package}:FOLDER", Distribution(package)))
    sets.packaged_folders.cache_clear()


def package(tmp_path: Path) -> Path:
    """Return a folder with the toys of fleet-v1, as a package brings them."""
    folder = tmp_path / "package"
    shutil.copytree(ROOT / "instances" / "fleet-v1" / "toy", folder / "fleet-v1" / "toy")
    shutil.copy(ROOT / "instances" / "fleet-v1" / "best_known.json", folder / "fleet-v1")
    manifest = json.loads((ROOT / "instances" / "fleet-v1" / "manifest.json").read_text())
    manifest.pop("sha256", None)
    toys = [entry for entry in manifest["entries"] if "/toy/" in entry["id"]]
    text = json.dumps({**manifest, "entries": toys, "headline": ["toy"], "samples": []})
    (folder / "fleet-v1" / "manifest.json").write_text(text)
    return folder


def test_without_the_package_the_error_says_how_to_install_it(
    points: list[Point], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every way of naming what is in fleet-v1 ends in the same advice; other unknown names are as before."""
    assert points == []
    for call in (
        lambda: library.list_instances("fleet-v1/sample"),
        lambda: library.list_tasks("fleet-v1"),
        lambda: library.load_instance("fleet-v1/dev/ou-s-101"),
        lambda: library.load_scenarios("fleet-v1/dev/ou-s-101"),
    ):
        with pytest.raises(UnknownNameError, match=r"fleet-v1 comes in .*pip install 'fleetgym\[fleet-v1\]'"):
            call()
    for words in (["compare", "hold", "--suite", "fleet-v1/sample"], ["list", "fleet-v1/dev"]):
        assert main(words) == 2
        assert "pip install 'fleetgym[fleet-v1]'" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="did you mean 'fleet-v0/toy'"):
        library.list_instances("fleet-v0/toys")


def test_a_package_brings_a_set(points: list[Point], tmp_path: Path) -> None:
    """Its instances, scenarios, headline and best-known costs are found, and its files are hidden from agents."""
    folder = package(tmp_path)
    bring(points, tmp_path, repr(str(folder)))
    names = library.list_instances("fleet-v1")
    assert names == library.list_instances("fleet-v1/toy")
    assert len(names) == 7
    assert library.load_instance(names[0]).id == "two-pools"
    assert len(library.load_scenarios(names[0])) == 1
    assert list(library.counts_as("fleet-v1/toy")) == ["toy"]
    assert load_best_known(names).tasks
    assert str(folder) in hidden_files()
    assert library.list_instances("fleet-v0/toy")[0] == "fleet-v0/toy/two-pools"


def test_a_package_is_checked(points: list[Point], tmp_path: Path) -> None:
    """A changed file, and instances of another set, are refused with the file they are in."""
    folder = package(tmp_path)
    bring(points, tmp_path, repr(str(folder)))
    drop = folder / "fleet-v1" / "toy" / "drop.json"
    drop.write_text(drop.read_text().replace("2", "3", 1))
    with pytest.raises(DataError, match=r"drop\.json.*was changed"):
        library.load_instance("fleet-v1/toy/drop")
    path = folder / "fleet-v1" / "manifest.json"
    path.write_text(path.read_text().replace('"fleet-v1/toy/drop"', '"fleet-v0/toy/drop"'))
    with pytest.raises(DataError, match=r"fleet-v1.manifest\.json: \$\.entries\[\d\]\.id: fleet-v0/toy/drop"):
        library.entries()


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (["1 / 0"], r"the package first cannot be loaded \(division by zero\)"),
        (["'nowhere'"], "the package first lacks nowhere"),
        ([repr(str(ROOT / "instances")), "'elsewhere'"], "'fleet-v1' is claimed by first and second"),
    ],
)
def test_a_broken_package_is_named(
    points: list[Point], tmp_path: Path, folders: list[str], said: str
) -> None:
    """The message says which package it is, and what to do."""
    for name, folder in zip(("first", "second"), folders, strict=False):
        bring(points, tmp_path, folder, name)
    with pytest.raises(FleetgymError, match=said):
        library.entries()
