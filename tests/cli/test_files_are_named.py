"""Every subcommand that cannot read a file names it: one table of calls, and one of what is wrong with the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT
from sample_traces import write_generic

from fleetgym.cli.parser import main
from fleetgym.model.sets import instances_folder

TOY = "fleet-v0/toy/two-pools"
_IMPORT = "import-trace t.csv --prices p.csv --slo s.csv --models Llama-3.1-8B --by one --scenarios 1 --out made.json"
_STUDY = "study layouts --instance day.json"
_SEARCH = f"best-known search {TOY} --steps 0 --out mine"
_SEASON = f"--board {ROOT}/leaderboard --seed-file"

#: Calls in which FILE stands for the file that is wrong, and how its name ends.
CALLS = [
    ("show FILE", ".json"),
    ("check FILE", ".json"),
    ("plan FILE --agent gh --days 0", ".json"),
    ("plan day.json --agent gh --days 0 --running FILE", ".json"),
    ("run FILE --agent hold --render none", ".json"),
    ("simulate FILE --agent hold", ".json"),
    (f"{_STUDY.replace('day.json', 'FILE')}", ".json"),
    (f"{_STUDY} --model-file FILE", ".json"),
    (f"{_STUDY} --gpu-file FILE", ".csv"),
    (f"{_STUDY} --profile FILE", ".csv"),
    ("evaluate hold --suite FILE --out run.jsonl", ".json"),
    ("evaluate hold --suite fleet-v0/toy --resume FILE", ".jsonl"),
    ("compare hold gh --suite FILE --out run.jsonl", ".json"),
    ("check-agent hold --suite FILE", ".json"),
    ("check-agent FILE:Mine", ".py"),
    ("score FILE", ".jsonl"),
    ("report FILE --out page.html", ".jsonl"),
    ("explain FILE --against margin", ".jsonl"),
    ("submit FILE --out 2026-11-21-mine", ".jsonl"),
    ("best-known propose FILE", ".jsonl"),
    ("best-known propose FILE", ".json"),
    (f"{_SEARCH} --files FILE", ".json"),
    (f"{_SEARCH} --files FILE", ".jsonl"),
    (f"{_SEARCH} --resume FILE", ".jsonl"),
    (_IMPORT.replace("t.csv", "FILE"), ".csv"),
    (_IMPORT.replace("t.csv", "FILE"), ".json"),
    (_IMPORT.replace("t.csv", "FILE"), ".parquet"),
    (_IMPORT.replace("p.csv", "FILE"), ".csv"),
    (_IMPORT.replace("s.csv", "FILE"), ".csv"),
    (_IMPORT.replace("s.csv", "FILE"), ".json"),
    (f"{_IMPORT} --model-file FILE", ".json"),
    (f"{_IMPORT} --gpu-file FILE", ".csv"),
    (f"{_IMPORT} --gpu-file FILE", ".json"),
    (f"{_IMPORT} --profile FILE", ".csv"),
    ("verify FILE", ""),
    ("leaderboard FILE", ""),
    (f"season draw 2026-11b --out drawn {_SEASON} FILE", ".seed"),
    (f"season end 2026-11b --instances drawn {_SEASON} FILE", ".seed"),
]
#: What is wrong with a file.
DAMAGES: dict[str, Callable[[Path], object]] = {
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "nothing of what is expected": lambda path: path.write_text("[1]\n"),
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
}


def _left_out(call: str) -> list[str]:
    """Return what is nothing wrong: to resume from no file, and a pipe that a trace or a table comes through."""
    has_pipes = hasattr(os, "mkfifo") and not call.startswith(("import-trace", "study"))
    return ["missing"] * ("--resume" in call) + ["a pipe"] * (not has_pipes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the other files that the calls read, which is the current one."""
    monkeypatch.chdir(tmp_path)
    write_generic(tmp_path / "t.csv", per_second=0.02)
    (tmp_path / "p.csv").write_text("gpu,usd_per_gpu_h,max_gpus\nH100,2.95,16\n")
    (tmp_path / "s.csv").write_text("workload,ttft,delay,error,unserved_usd\n*,1,15,0.05,0.01\n")
    for name in ("json", "scenarios.json"):
        shutil.copy(instances_folder() / f"{TOY}.{name}", tmp_path / f"day.{name}")
    return tmp_path


@pytest.mark.parametrize(("call", "suffix"), CALLS)
def test_the_file_is_named(call: str, suffix: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with it, in lines of the command's own, and with an exit code of a refusal."""
    for number, (damage, spoil) in enumerate(DAMAGES.items()):
        if damage in _left_out(call):
            continue
        path = Path(f"wrong{number}{suffix}")
        spoil(path)
        try:
            code = main(call.replace("FILE", str(path)).split())
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        said = capsys.readouterr()
        assert code in (1, 2), damage
        assert str(path) in said.err + (said.out if call.startswith("check-agent") else ""), damage
