"""The preview fleet-v2 is complete, small, and what its tool makes; its card lists every file."""

from __future__ import annotations

import hashlib
import importlib.util
import json

import numpy as np
import pytest
from episodes_twin import compare_episode
from places import ROOT

import fleetgym
from fleetgym.families.generate import generate, stored_scenarios
from fleetgym.files.documents import canonical_hash, read_json
from fleetgym.model.library import counts_as, entries, list_instances, list_tasks
from fleetgym.model.scenario import scenario_file_data
from tools import croissant
from tools.make_instances import HEADLINE, SCALE_DIGITS, manifest, pretty, tasks

FOLDER = ROOT / "instances" / "fleet-v2"
FIRST = [f"fleet-v2/dev/{family}-s-101" for family in HEADLINE]


def test_it_is_complete() -> None:
    """Every planned instance is there, with one scenario each; no family has more than 20 test and 8 dev instances."""
    for split, most in (("dev", 8), ("test", 20)):
        names = list_instances(f"fleet-v2/{split}")
        assert names == [f"fleet-v2/{split}/{task.id}" for task in tasks(split)]
        assert len(list_tasks(f"fleet-v2/{split}")) == len(names)
        families = [entries()[name].family for name in names]
        assert set(families) == set(HEADLINE)
        assert max(families.count(family) for family in HEADLINE) <= most
    assert tuple(counts_as(FIRST[0])) == HEADLINE
    assert len(list_tasks("fleet-v2/sample")) <= 60


def test_the_manifest_is_what_the_tool_writes() -> None:
    """Byte for byte."""
    made = manifest(read_json(FOLDER / "manifest.json")["entries"])
    assert pretty(made) == (FOLDER / "manifest.json").read_bytes()


def test_it_is_small() -> None:
    """Below 10 MB."""
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 10_000_000


@pytest.mark.parametrize("name", FIRST)
def test_it_is_what_the_tool_makes(name: str) -> None:
    """Instance and scenario come out the same, by their canonical content."""
    entry = entries()[name]
    instance = generate(entry.family, entry.size, int(name[-3:]))
    scenarios = stored_scenarios(instance, int(name[-3:]), 1, SCALE_DIGITS["fleet-v2"])
    assert instance.content_hash == entry.content_hash
    assert canonical_hash(scenario_file_data(instance, scenarios)) == entry.scenario_hash


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
