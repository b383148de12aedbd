"""The set fleet-v2 is frozen, small, and drawn from a secret; its card lists every file."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from episodes_twin import compare_episode
from places import ROOT

import fleetgym
from fleetgym.families.generate import generate
from fleetgym.files.documents import read_json
from fleetgym.leaderboard.submission import suite_sha256
from fleetgym.model.library import counts_as, entries, list_instances, list_tasks, with_law
from tools import croissant
from tools.make_instances import HEADLINE, Task, entry, main, manifest, pretty, tasks, write

FOLDER = ROOT / "instances" / "fleet-v2"
FROZEN = {
    "dev": "d8956394984fd23577c8e29f7ff11ba56cf1470e05d927c556b999424305248c",
    "test": "af88ad8a0917c288f5972daf64180f0197354be6e39eaf717c40a589f64e886d",
    "sample": "960d3fac5c442d89539aa0d1189401c77735832748392b585c66a96b59d992de",
}
FIRST = [f"fleet-v2/dev/{family}-s-01" for family in HEADLINE]


@pytest.mark.parametrize(("split", "checksum"), FROZEN.items())
def test_frozen_splits_do_not_change(split: str, checksum: str) -> None:
    """Instances, scenarios, and their order are those of the day on which the set was frozen."""
    assert suite_sha256(f"fleet-v2/{split}") == checksum


def test_it_is_as_planned() -> None:
    """20 test and 8 dev instances a family, two days each; five are sampled, three of dev come first."""
    for split, most in (("dev", 8), ("test", 20)):
        assert Counter(task.family for task in tasks(split)) == dict.fromkeys(HEADLINE, most)
        names = list_instances(f"fleet-v2/{split}")
        assert names == [task.stem for task in tasks(split)]
        assert len(list_tasks(f"fleet-v2/{split}")) == 2 * len(names)
    assert tuple(counts_as(FIRST[0])) == HEADLINE
    assert list_tasks("fleet-v2/first") == [(f"{name[:-1]}{k}", 0) for name in FIRST for k in (1, 2, 3)]
    sampled = list_tasks("fleet-v2/sample")
    assert Counter(entries()[name].family for name, _ in sampled) == dict.fromkeys(HEADLINE, 5)
    assert {(entries()[name].size, scenario) for name, scenario in sampled} == {("s", 0)}


def test_the_manifest_is_what_the_tool_writes() -> None:
    """Byte for byte."""
    made = manifest(read_json(FOLDER / "manifest.json")["entries"])
    assert pretty(made) == (FOLDER / "manifest.json").read_bytes()


def test_it_is_small() -> None:
    """Below 20 MB."""
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 20_000_000


@pytest.mark.slow
def test_the_tool_makes_it_from_a_secret(tmp_path: Path) -> None:
    """The same secret and id give the same files, in which neither the secret nor the number it gives is found."""
    task = Task("test", "ou-v2", "s", 1)
    for folder, secret in (("a", "5" * 64), ("b", "5" * 64), ("c", "6" * 64)):
        write(tmp_path / folder, task, secret)
    files = {folder: sorted((tmp_path / folder).rglob("*.json.gz")) for folder in "abc"}
    same = [[path.read_bytes() for path in files[folder]] for folder in "ab"]
    assert same[0] == same[1]
    assert files["c"][0].read_bytes() != same[0][0]
    assert entry(tmp_path / "a", task)["id"] == "fleet-v2/test/ou-v2-s-01"
    seed = int.from_bytes(hashlib.sha256(f"{'5' * 64}/{task.stem}".encode()).digest()[:16], "big")
    for path in files["a"]:
        assert str(seed) not in gzip.decompress(path.read_bytes()).decode()
    instance = fleetgym.load_instance(files["a"][0])
    assert (instance.id, instance.law) == ("ou-v2-s-01", "fitted")
    assert with_law(files["a"][0]).dynamics == generate("ou-v2", "s", seed).dynamics


def test_the_set_is_not_made_or_compared_without_its_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says how to name it."""
    for command in (["--write"], ["--suite", "fleet-v2"]):
        with pytest.raises(SystemExit):
            main(command)
        assert "--seed-file" in capsys.readouterr().err


@pytest.mark.parametrize("name", FIRST)
def test_the_reference_evaluator_agrees(name: str) -> None:
    """The first windows of a stored task, on both sides, to 1e-9."""
    compare_episode(name, fleetgym.load_scenarios(name)[0], 8, seed=3)


def test_weeks_and_days() -> None:
    """`week` has 2016 windows and two weeks of history, the others 288 and one."""
    for name in FIRST:
        instance = fleetgym.load_instance(name)
        assert instance.num_windows == (2016 if "/week-" in name else 288)
        assert len(instance.history.rate_rps) == (4032 if "/week-" in name else 2016)
        assert np.isfinite(instance.history.rate_rps).all()


@pytest.mark.parametrize("name", list(croissant.ABOUT))
def test_cards_are_current(name: str) -> None:
    """A Croissant card is what its tool writes, and lists every file of instances and days with its sum."""
    folder = FOLDER.parent / name
    assert json.loads((folder / "croissant.json").read_text(encoding="utf-8")) == croissant.card(folder)
    listed = {
        part["contentUrl"]: part["sha256"] for part in read_json(folder / "croissant.json")["distribution"]
    }
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.json*")}
    assert set(listed) == set(files) - {"croissant.json", "best_known.json"}
    assert all(
        hashlib.sha256(files[path].read_bytes()).hexdigest() == found for path, found in listed.items()
    )


@pytest.mark.skipif(importlib.util.find_spec("mlcroissant") is None, reason="needs mlcroissant")
@pytest.mark.parametrize("name", list(croissant.ABOUT))
def test_mlcroissant_reads_the_cards(name: str) -> None:
    """Every instance is a record."""
    assert croissant.validated(FOLDER.parent / name / "croissant.json") == len(list_instances(name))
