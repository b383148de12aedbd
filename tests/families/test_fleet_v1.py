"""fleet-v1 is complete, small, and what its tool makes; its fresh split is a season's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from places import ROOT, stored_kernels

from fleetgym.families.generate import SEEDS, generate, stored_scenarios
from fleetgym.files.documents import canonical_hash, read_json
from fleetgym.leaderboard.registers import read_registers
from fleetgym.leaderboard.submission import suite_sha256
from fleetgym.model import library
from fleetgym.model.library import list_instances, list_tasks, load_instance, load_scenarios

FOLDER = ROOT / "instances" / "fleet-v1"
HEADLINE = {"ou", "drop", "trace", "budget", "tail", "multi"}
FROZEN = {
    "dev": "fb7ab3d7cb0829fac85958bdd2ee91397ed3e50b8c84c36fdc9adec57f0434ae",
    "test": "88c397fbe7a9baeaae85403a050c3559b4a7c62d0d74324352391dd2a6c74753",
    "sample": "c091e2cd753a9e38b9687088bce3931931b0b1c47c358a4628dd16ad5eca5949",
}
SMALL = [
    f"fleet-v1/dev/{family}-s-101" for family in ("ou", "drop", "budget", "tail", "multi", "grw", "warp")
]


def test_splits_have_the_stated_instances() -> None:
    """15 dev and 40 test instances of each headline family, fewer of the others, seeds in their split's range."""
    for split, headline, most in (("dev", 15, 4), ("test", 40, 8)):
        names = list_instances(f"fleet-v1/{split}")
        count = Counter(library.entries()[name].family for name in names)
        assert {family for family, n in count.items() if n == headline} == HEADLINE
        assert all(count[family] <= most for family in ("grw", "fastllm", "warp"))
        assert all(int(name.rpartition("-")[2]) in SEEDS[split] for name in names)
    assert {name.rpartition("/")[2] for name in list_instances("fleet-v1/toy")} == {
        name.rpartition("/")[2] for name in list_instances("fleet-v0/toy")
    }


@pytest.mark.parametrize(("split", "checksum"), FROZEN.items())
def test_frozen_splits_do_not_change(split: str, checksum: str) -> None:
    """Instances, scenarios, and their order are those of the day on which the set was frozen."""
    assert suite_sha256(f"fleet-v1/{split}") == checksum


def test_the_sample_has_the_stated_tasks() -> None:
    """Twelve of each headline family, three of every other, all of test's smallest sizes, a day each."""
    tasks = list_tasks("fleet-v1/sample")
    count = Counter(library.entries()[name].family for name, _ in tasks)
    assert count == {**dict.fromkeys(HEADLINE, 12), **dict.fromkeys(("grw", "fastllm", "warp"), 3)}
    assert {scenario for _, scenario in tasks} == {0}
    assert all(name.startswith("fleet-v1/test/") and 201 <= int(name[-3:]) <= 212 for name, _ in tasks)
    assert {library.entries()[name].size for name, _ in tasks} == {
        "s",
        "m",
        "4-4-5",
    }  # trace has no smaller one


def test_every_file_is_listed_and_the_set_is_small() -> None:
    """Nothing lies beside the manifest's files; all of it stays below 40 MB."""
    listed = {e.instance_file for e in library.entries().values()} | {
        e.scenario_file for e in library.entries().values()
    }
    found = {
        path.relative_to(ROOT / "instances").as_posix()
        for split in ("toy", "dev", "test")
        for path in (FOLDER / split).iterdir()
    }
    assert found <= listed
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 40_000_000


@pytest.mark.parametrize("name", [*SMALL, "fleet-v1/test/trace-m-201", "fleet-v1/test/multi-l-201"])
def test_stored_content_is_what_the_manifest_says(name: str) -> None:
    """A sample loads, has its canonical hashes, and stores three scenarios (trace: one; warp: two)."""
    entry = library.entries()[name]
    instance = load_instance(name)
    assert instance.content_hash == entry.content_hash
    assert entry.scenario_hash == canonical_hash(read_json(ROOT / "instances" / entry.scenario_file))
    assert len(load_scenarios(name)) == entry.scenarios == {"trace": 1, "warp": 2}.get(entry.family, 3)
    assert instance.num_configurations <= 600


@pytest.mark.parametrize("name", [name for name in SMALL if "grw" not in name])
def test_a_sample_is_made_again(name: str) -> None:
    """Generator and seed give the stored instance and scenarios."""
    entry = library.entries()[name]
    instance = generate(entry.family, entry.size, 101)
    assert instance.content_hash == entry.content_hash
    stored = load_scenarios(name)
    again = stored_scenarios(instance, 101, 3, scale_digits=4)
    assert [s.rate_rps.tolist() for s in again] == [s.rate_rps.tolist() for s in stored]
    assert [s.available_gpus.tolist() for s in again] == [s.available_gpus.tolist() for s in stored]


@pytest.mark.slow
def test_the_tool_finds_every_twentieth_instance_unchanged() -> None:
    """`make_instances` makes them again, with the kernels of OpenBLAS that made them, where the processor has these."""
    command = [sys.executable, "-m", "tools.make_instances", "--suite", "fleet-v1", "--every", "20"]
    environment = {**os.environ, **stored_kernels()}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_only_the_hash_of_an_open_season_is_published() -> None:
    """Seasons are announced by a checksum; no file of the repository is a seed or a fresh task."""
    seasons = [s for s in read_registers(ROOT / "leaderboard").seasons if s.suite == "fleet-v1/dev"]
    assert all(len(season.seed_sha256) == 64 for season in seasons)
    assert all(season.draws == "instances" for season in seasons)
    names = [path.name for path in ROOT.rglob("*.seed") if ".venv" not in path.parts]
    assert not names
    assert not any("fresh" in path.name for path in FOLDER.rglob("*"))
