"""fleet-v1 is complete, small, and what its tool makes; its fresh split follows from a secret that nobody has."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fleetgym import library
from fleetgym.files import canonical_hash, read_json
from fleetgym.generate import SEEDS, generate, stored_scenarios
from fleetgym.leaderboard.submission import suite_sha256
from fleetgym.library import list_instances, load_instance, load_scenarios

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "instances" / "fleet-v1"
TOOL = ROOT / "tools" / "make_instances.py"
HEADLINE = {"ou", "drop", "trace", "budget", "tail", "multi"}
FROZEN = {
    "dev": "fb7ab3d7cb0829fac85958bdd2ee91397ed3e50b8c84c36fdc9adec57f0434ae",
    "test": "88c397fbe7a9baeaae85403a050c3559b4a7c62d0d74324352391dd2a6c74753",
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
    """`make_instances --check` makes them again."""
    command = [sys.executable, str(TOOL), "--suite", "fleet-v1", "--check", "--every", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_hash_of_the_fresh_seed_is_published() -> None:
    """The commitment names the season and a SHA-256; no file of the repository is a seed file."""
    commitment = json.loads((FOLDER / "fresh-commitment.json").read_text())
    assert len(commitment["seed_file_sha256"]) == 64
    assert commitment["instances"] == len(list_instances("fleet-v1/dev"))
    assert not any(
        "fresh" in path.name and path.name != "fresh-commitment.json" for path in FOLDER.rglob("*")
    )


def test_fresh_instances_need_the_committed_seed(tmp_path: Path) -> None:
    """Another seed file is refused; its instances would have seeds that follow from the secret."""
    seed_file = tmp_path / "seed.json"
    secret = "0123456789abcdef" * 4
    seed_file.write_text(json.dumps({"format": "fleetgym-fresh-seed-1", "season": "x", "seed": secret}))
    command = [sys.executable, str(TOOL), "--fresh", str(seed_file), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "commits to" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_secret_is_drawn_once_and_committed_to(tmp_path: Path) -> None:
    """`--commit` draws a secret that only its owner may read; the second time it commits to the same one."""
    seed_file, out = tmp_path / "seed.json", tmp_path / "out"
    (out / "fleet-v1").mkdir(parents=True)
    command = [
        sys.executable,
        str(TOOL),
        "--commit",
        str(seed_file),
        "--season",
        "2027-01",
        "--out",
        str(out),
    ]
    published = []
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True)
        published.append(json.loads((out / "fleet-v1" / "fresh-commitment.json").read_text()))
    assert published[0] == published[1]
    assert published[0]["season"] == "2027-01"
    assert published[0]["seed_file_sha256"] == hashlib.sha256(seed_file.read_bytes()).hexdigest()
    assert seed_file.stat().st_mode & 0o077 == 0


def test_fresh_seeds_follow_from_the_secret_alone() -> None:
    """The same secret gives the same seeds, another one others; all lie in the fresh range."""
    code = (
        "import sys; sys.path.insert(0, 'tools'); import fleet_v1\n"
        "one, same, other = (fleet_v1.fresh_tasks(c * 64) for c in 'aab')\n"
        "assert one == same and not set(one) & set(other)\n"
        "assert all(task.seed in fleet_v1.SEEDS['fresh'] for task in one + other)\n"
        "print(len(set(one)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) == len(list_instances("fleet-v1/dev"))
