"""What the pages tell a reader to type is accepted: every command is parsed, and quick code is run."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fleetgym.cli.parser import make_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "leaderboard/README.md", "instances/README.md")
]
PAGES += sorted(path for path in (ROOT / "docs").rglob("*.md") if "made" not in path.parts)
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
#: Shell lines: indented, or behind `!` in a notebook; settings may stand before them.
LINE = re.compile(r"^(?:    |!)(?:[A-Z_]+=\S+ )?((?:fleetgym|python -m [\w.]+) .*)$", flags=re.M)
#: Blocks that are parts of a longer program, need other software, or take minutes.
PARTS = {
    "docs/agents.md": "the outline of an agent",
    "docs/official-runs.md": "needs MPI, or the folder of an official run",
    "docs/ppo.md": "needs stable-baselines3; see test_rl_ppo.py",
    "README.md": "see test_readme.py",
}


def commands(path: Path) -> list[str]:
    """Return the shell lines of a page that call fleetgym or one of its programs, continued lines joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    text = text.replace("\\\n", " ")
    return [" ".join(found.split()) for found in LINE.findall(text)]


COMMANDS = sorted(
    {(page.relative_to(ROOT).as_posix(), line) for page in (*PAGES, *NOTEBOOKS) for line in commands(page)}
)


def _help(module: str) -> str:
    text = io.StringIO()
    program = import_module(module)
    run = getattr(program, "main", None) or import_module(f"{module}.__main__").main
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        run(["--help"])
    return text.getvalue()


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_are_accepted(page: str, line: str) -> None:
    """A verb takes its options and values; a program knows every option that is named."""
    words = shlex.split(re.sub(r"\s(?:\||>|2>|&&|#).*$", "", line), comments=True)
    words = words[:-1] if words[-1] == "..." else words
    if words[0] == "fleetgym" or words[:3] == ["python", "-m", "fleetgym"]:
        words = words[1:] if words[0] == "fleetgym" else words[3:]
        if "--help" not in words:  # which ends the process
            make_parser().parse_args(words)
        return
    known = _help(words[2])
    for option in (word for word in words[3:] if word.startswith("--")):
        assert option.split("=")[0] in known, f"{page}: {line}"


def test_the_pages_have_commands() -> None:
    """The extractor finds them."""
    assert len(COMMANDS) > 40
    assert {page for page, _ in COMMANDS} >= {
        "README.md",
        "docs/planning.md",
        "docs/tutorials/score-a-heuristic.ipynb",
    }


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=str
)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other; a first comment names the file that a block is saved as."""
    name = page.relative_to(ROOT).as_posix()
    if name in PARTS:
        pytest.skip(PARTS[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        if saved := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / saved[1]).write_text(block, encoding="utf-8")
        exec(compile(block, name, "exec"), {"__name__": "page"})
