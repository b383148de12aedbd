"""What pages tell a reader to type is executed, and what they show as printed is printed.

Each block and command has one `Place`. It is executed here, as it stands or in a smaller form, or by something else of
the gate, or it is exempt. A command without a place fails `test_everything_has_a_place`.
"""

from __future__ import annotations

import contextlib
import doctest
import enum
import functools
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from fresh_season import write_best_actions, write_optima
from page_blocks import Block, blocks
from places import ROOT
from programs import programs
from sample_traces import write_azure, write_generic

import fleetgym
from fleetgym.cli.parser import main, make_parser
from fleetgym.envs import wrappers
from fleetgym.leaderboard.registers import read_registers
from fleetgym.leaderboard.season import seed_sha256

#: History, what others submitted, copies that the site makes, and the template of a page.
NO_PAGES = ("CHANGELOG.md", "leaderboard/submissions/", "docs/made/", "papers/")


class Place(enum.Enum):
    """Where something is executed, or why nowhere."""

    QUICK = "here"
    SLOW = "here, in the slow set"
    RL = "here, where stable-baselines3 is there"
    GATE = "by .ci/run"
    SMOKE = "its --smoke, by test_programs.py"
    TESTS = "by tests of its own, see ELSEWHERE"
    COMPARED = "compared with what is printed or sent"
    SAVED = "a file that commands read"
    MENTION = "exempt: a name, or a form with placeholders; its options exist"
    FORMULA = "exempt: a formula, or contents of the site"
    MACHINE = "exempt: changes the machine, or needs a network or software that is not there"


SETTINGS = re.compile(r"^((?:[A-Z_]+=\S+ )*)")
HERE = (Place.QUICK, Place.SLOW, Place.RL)
MACHINE = re.compile(
    r"(pip|apt-get) (install|wheel)|git clone|pre-commit install|\. \.venv|dask |mpiexec |jupyter "
    r"|make (clean|fresh-rows)|.*--engine dynamo"
)
#: Commands that tests of their own execute in other forms.
ELSEWHERE = {
    r"pytest (-n 8 )?--fleetgym-agent": "tests/evaluation/test_pytest_plugin.py",
    r"fleetgym best-known search": "tests/search/test_best_known.py",
    r"fleetgym compare program.py:Agent": "tests/evaluation/test_evolve_example.py",
    r"fleetgym calibrate": "tests/evaluation/test_calibration.py",
    r"(fleetgym|make) leaderboard": "tests/leaderboard/test_leaderboard.py",
    r"fleetgym season (draw|check) 2026-11": "tests/leaderboard/test_seasons.py",
    r"fleetgym (evaluate mine.py|submit mine.jsonl --code|verify 2026)": "tests/leaderboard/test_submission.py",
    r"fleetgym generate tide": "tests/families/test_generate.py",
}
FORM = re.compile(r"\b(FILE|NAME|AGENTS|INSTANCE|FOLDER|CLASS)\b|\.\.\.")
SLOW = re.compile(r"make score|plan requests.json --agent milp")
RL = re.compile(r"mine.py:agent hold margin$|check-agent mine.py:agent")
#: Python that is not quick, by what it contains.
NEEDS = {
    "from mpi4py": Place.MACHINE,
    "stable_baselines3|load_policy": Place.RL,
    "nonanticipative_bound": Place.SLOW,
}
FORMULAS = (
    "docs/laws.md",
    "docs/bounds.md",
    "docs/scores.md",
    "docs/index.md",
    "docs/inputs.md",
    "docs/api.md",
    "docs/environments.md",
)
#: Blocks of text that are files, by their first lines.
FILES = {
    "gpu,usd_per_gpu_h,max_gpus,market,region": "prices.csv",
    "# pyproject.toml": "theirs.toml",
    "#!/bin/sh": "my_agent",
}
#: Blocks of text that are printed, by how they begin, and the command that prints them.
PRINTED = {
    "agent ": "make score",
    "requests: plan of": "fleetgym plan requests.json --agent milp --miss-at-most 1%",
}
#: Smaller forms. Each pattern that is found in a command is replaced before the command is executed here.
SMALLER = [
    (r"^systemd-run --user --scope -p Delegate=yes ", ""),
    (r" --official \w+$", ""),  # see tests/evaluation/test_official.py
    (r"^(fleetgym compare mine.py:agent hold margin)$", r"\1 --suite fleet-v0/dev/drop-s-001 --scenarios 0"),
    (r"--suite fleet-v[12]/(?!first\b)[\w/-]+", "--suite fleet-v0/toy"),
    (r"^(fleetgym (compare|evaluate) (?!.*--suite).*)", r"\1 --suite fleet-v0/toy"),
    (r"^(fleetgym evaluate (?:my_agent.py:Mine|\".*Program.*) --suite fleet-v0/toy)$", r"\1/two-pools"),
    (
        r"^python -m fleetgym.baselines.cem \S+",
        "python -m fleetgym.baselines.cem fleet-v0/toy/drop --generations 1",
    ),
    (r"(--season .*) --code checkout/$", r"\1 --code checkout/ --unofficial"),
    (r"--best-known fleet-v0", "--best-known toy"),
    (r" --workers 2", ""),
    (r"--agent milp (.*--plot)", r"--agent gh --days 10 \1"),
    (r"\.learn\(600_000", ".learn(64"),
    (r"days=30", "days=2, samples=2"),
]


def pages() -> list[Path]:
    """Return all pages and notebooks."""
    call = ["git", "ls-files", "*.md", "docs/tutorials/*.ipynb"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split() if not name.startswith(NO_PAGES)]


BLOCKS = [block for path in pages() for block in blocks(ROOT, path)]
PROGRAMS = programs()


# -- places


@functools.cache
def options(program: str) -> str:
    """Return what a program, or a verb such as `fleetgym season draw`, says about its options."""
    text, words = io.StringIO(), program.split()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        if words[0] == "fleetgym":
            make_parser().parse_args([*words[1:], "--help"])
        else:
            call_module(program, ["--help"])
    return text.getvalue()


def call_module(module: str, words: list[str]) -> int | None:
    """Call the `main` of a module, or of a package's `__main__`."""
    program = import_module(module)
    return (getattr(program, "main", None) or import_module(f"{module}.__main__").main)(words)


def is_accepted(words: list[str]) -> bool:
    """Return whether the command line takes words."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            make_parser().parse_args(words)
        except SystemExit as end:
            return not end.code
    return True


def program_path(words: list[str]) -> str | None:
    """Return the file of a program of the checkout that a command calls, if it does."""
    if words[0] != "python":
        return None
    name = words[1] if words[1] != "-m" else words[2].removeprefix("fleetgym.").replace(".", "/") + ".py"
    return next((path for path in (name, name.replace(".py", "/__main__.py")) if path in PROGRAMS), None)


def recipe(target: str) -> str:
    """Return what `make` would do for a target."""
    call = ["make", "-n", "-W", "pyproject.toml", "SEED=pyproject.toml", target]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def place_of_make(target: str) -> Place | None:
    """The gate makes it, or it calls programs that have a smoke run."""
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    if re.search(rf"make .*\b{target}\b", gate) or (target == "pages" and "make check-pages" in gate):
        return Place.GATE
    called = re.findall(r"python (-m [\w.]+|\S+\.py)", recipe(target))
    known = [
        program_path(["python", *call.split()])
        for call in called
        if not re.match(r"-m (pip|pytest|venv)", call)
    ]
    if called and not known:
        return Place.TESTS  # it calls pytest alone
    return Place.SMOKE if known and None not in known else None


def place_of_command(command: str, kind: str) -> Place | None:
    """Return where a command is executed."""
    command = SETTINGS.sub("", command)
    words = shlex.split(command)
    if MACHINE.match(command):
        return Place.MACHINE
    if any(re.match(pattern, command) for pattern in ELSEWHERE):
        return Place.TESTS
    if SLOW.search(command):
        return Place.SLOW
    if RL.search(command):
        return Place.RL
    if words[0] == "make":
        return place_of_make(words[1])
    if words[0] == ".ci/run" or re.match(r"pytest .*\b(tests|fleetgym)/", command):
        return Place.GATE
    if "fleetgym.baselines.cem fleet" in command:
        return Place.QUICK  # what it writes is used
    if words[-1] == "tools.NAME":
        return Place.MENTION
    if path := program_path(words):
        return Place.SMOKE if knows(options_of(path), words) else None
    return place_of_verb(words, kind)


def options_of(path: str) -> str:
    """Return the help of a program of the checkout."""
    if path.startswith("tests/"):
        return (ROOT / path).read_text(encoding="utf-8")
    module = path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    return options(module if module.startswith("tools") else f"fleetgym.{module}")


def knows(text: str, words: list[str]) -> bool:
    """Return whether a help text has all options of a command."""
    return all(word.split("=")[0] in text for word in words if word.startswith("--"))


def place_of_verb(words: list[str], kind: str) -> Place | None:
    """A call of fleetgym is run here; what a sentence mentions without its arguments has options that exist."""
    words = ["fleetgym", *words[3:]] if words[:3] == ["python", "-m", "fleetgym"] else words
    words = words[words.index("fleetgym") :] if "fleetgym" in words else words
    if words[0] != "fleetgym":
        return None
    is_name = kind == "inline" and len(words) == 2 and words[1] not in ("doctor", "warmup")
    if is_accepted(words[1:]) and not is_name and not FORM.search(" ".join(words)):
        return Place.QUICK
    verb = " ".join(words[: 3 if words[1:2] == ["season"] else 2])
    return Place.MENTION if kind == "inline" and options(verb) and knows(options(verb), words) else None


def place_of_block(block: Block) -> Place | None:
    """Return where a block that is no command is executed, or what it is."""
    first = block.text.lstrip().splitlines()[0] if block.text.strip() else ""
    if block.kind == "cell":
        return Place.GATE  # `make docs` runs the notebooks
    if block.kind == "pycon":
        return Place.QUICK
    if block.kind == "python":
        return next(
            (place for pattern, place in NEEDS.items() if re.search(pattern, block.text)), Place.QUICK
        )
    if first in FILES:
        return Place.SAVED
    if any(first.startswith(begin) for begin in PRINTED) or first.startswith(
        ('{"do"', '{"id"', "instances/")
    ):
        return Place.COMPARED
    return Place.FORMULA if block.page in FORMULAS else None


def places(block: Block) -> list[tuple[str, Place | None]]:
    """Return each command of a block with its place, or the block itself."""
    if block.kind in ("shell", "inline"):
        return [(command, place_of_command(command, block.kind)) for command in block.commands]
    return [(block.text, place_of_block(block))]


# -- execution


class Stage:
    """A folder in which a page is followed from top to bottom, and what its commands printed."""

    def __init__(self, folder: Path, page: str, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.page, self.patch = folder, page, patch
        self.blocks = [block for block in BLOCKS if block.page == page]
        self.names = {"__name__": "page", "fleetgym": fleetgym, "np": np, **seen()}
        self.printed: dict[str, str] = {}
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("COLUMNS", "80")
        self.make_files()

    def make_files(self) -> None:
        """Write what the reader is taken to have: data, an agent, and the files that the page shows."""
        write_generic(self.folder / "requests.csv", per_second=5.0)
        write_azure(self.folder / "AzureLLMInferenceTrace_conv.csv")
        shown = [block for block in BLOCKS if block.page == "docs/planning.md"] + self.blocks
        for block in shown:
            name = next((name for first, name in FILES.items() if block.text.startswith(first)), None)
            if saved := re.match(r"# (\w+\.py)\n", block.text):
                name = saved[1]
            if name:
                (self.folder / name).write_text(block.text, encoding="utf-8")
                (self.folder / name).chmod(0o755)
        if not (agent := self.folder / "my_agent.py").exists():
            agent.write_text(AGENT, encoding="utf-8")
        if not (mine := self.folder / "mine.py").exists():
            mine.write_text(agent.read_text(encoding="utf-8").replace("MyAgent", "Agent"), encoding="utf-8")

    def follow(self, wanted: tuple[Place, ...]) -> None:
        """Execute what has one of these places, and compare what is printed."""
        for block in self.blocks:
            for text, place in places(block):
                if place in wanted and text != "make score":
                    self.execute(block, text)
            begin = next((begin for begin in PRINTED if block.text.startswith(begin)), None)
            if begin and (printed := self.printed.get(PRINTED[begin])):
                assert printed.startswith(block.text.rstrip())  # a page may show the beginning

    def execute(self, block: Block, text: str) -> None:
        """Execute Python or a command, in its smaller form if it has one."""
        smaller = text
        for pattern, replacement in SMALLER:
            smaller = re.sub(pattern, replacement, smaller)
        if block.kind == "python":
            exec(compile(smaller, f"{block.page}:{block.line}", "exec"), self.names)
        elif block.kind == "pycon":
            self.execute_session(block)
        else:
            self.printed[text] = self.call(smaller)

    def execute_session(self, block: Block) -> None:
        """Execute the examples of a wrapper's docstring, as doctest does."""
        test = doctest.DocTestParser().get_doctest(
            block.text, {**vars(wrappers), **self.names}, block.page, block.page, block.line
        )
        assert not doctest.DocTestRunner(verbose=False).run(test).failed

    def call(self, command: str) -> str:
        """Call a program of ours; return what it prints."""
        for pattern, prepare in PREPARE.items():
            if re.search(pattern, command):
                prepare(self.folder)
        words = shlex.split(command)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words[1:]) if words[0] == "fleetgym" else call_module(words[2], words[3:])
        assert not code, f"{self.page}: {command}\n{out.getvalue()}\n{err.getvalue()}"
        return out.getvalue()


def seen() -> dict[str, object]:
    """Return a view, and what an agent saw last."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001")
    _, info = env.reset(seed=0)
    view = fleetgym.View(env.unwrapped.instance)
    view.update(info)
    return {"view": view, "window": 0, "conditions": view.conditions}


def make_code(folder: Path) -> None:
    """Put the agent into the folder that is submitted, and into the one that was checked out."""
    for name in ("my_agent", "checkout"):
        (folder / name).mkdir()
        shutil.copy(folder / "my_agent.py", folder / name / "agent.py")


def announce_season(folder: Path) -> None:
    """Announce the season of the page on the toys, by the seed that was made."""
    checksum = seed_sha256((folder / "season.seed").read_text().strip())
    (folder / "leaderboard" / "seasons.toml").write_text(
        '[[season]]\nname = "2026-12"\nsuite = "fleet-v0/toy"\nscenarios = 1\n'
        f'opened = "2026-12-01"\nseed_sha256 = "{checksum}"\n'
    )


def find_optima(folder: Path) -> None:
    """Do what `fleetgym best-known search` does, with proven costs of the toys."""
    (season,) = read_registers(folder / "leaderboard").seasons
    write_optima(season, folder / "private")
    write_best_actions(folder / "private", folder / "private" / "actions", season.name)


def make_day(folder: Path) -> None:
    """Write an instance and its days."""
    words = ["import-trace", "requests.csv", "--prices", "prices.csv", "--slo", "ttft=1,delay=15"]
    assert not main([*words, "--out", "day.json", "--force"])


#: What is done before a command that contains a pattern.
PREPARE: dict[str, Callable[[Path], None]] = {
    "^fleetgym evaluate my_agent/agent.py": make_code,
    "season draw": announce_season,
    "^fleetgym rerun": find_optima,
    "layouts --instance day.json|check day.json": make_day,
}
AGENT = next(
    block.text for block in BLOCKS if block.page == "README.md" and block.text.startswith("# my_agent.py")
)


def pages_with(wanted: Place) -> list[str]:
    """Return the pages that have something in a place."""
    found = [block.page for block in BLOCKS if any(place is wanted for _, place in places(block))]
    return list(dict.fromkeys(found))


#: Pages with something slow but for `make score`, which has a test of its own.
LONG_PAGES = list(
    dict.fromkeys(
        block.page
        for block in BLOCKS
        for text, place in places(block)
        if place is Place.SLOW and text != "make score"
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages_with(Place.QUICK) if page not in LONG_PAGES])
def test_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page from top to bottom."""
    Stage(tmp_path, page, monkeypatch).follow((Place.QUICK,))


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG_PAGES)
def test_long_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with something slow, from top to bottom, and what it prints."""
    Stage(tmp_path, page, monkeypatch).follow((Place.QUICK, Place.SLOW))


@pytest.mark.rl
def test_pages_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README trains a policy, for fewer steps, and the page of learners scores it."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    for page in pages_with(Place.RL):
        Stage(tmp_path, page, monkeypatch).follow((Place.RL,))


@pytest.mark.slow
def test_make_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make score` prints the table of which `docs/start.md` shows the first columns."""
    (line,) = re.findall(r"(?m)^\S+/(fleetgym compare .*)$", recipe("score"))
    stage = Stage(tmp_path, "docs/start.md", monkeypatch)
    (shown,) = [block.text.splitlines() for block in stage.blocks if block.text.startswith("agent ")]
    printed = stage.call(line).splitlines()
    assert len(shown) > 10
    starts = [row[: len(shown[1])].rstrip() for row in printed[: len(shown)]]
    number = re.compile(r"-?\d+\.\d+")
    assert [number.sub("N", row) for row in shown] == [number.sub("N", row) for row in starts]
    figures, found = (np.array(number.findall(" ".join(rows)), float) for rows in (shown, starts))
    np.testing.assert_allclose(found, figures, atol=0.11)  # a processor may round the last digit otherwise


def test_messages_are_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol's requests and answers have the keys that the page shows."""
    stage = Stage(tmp_path, "docs/agent-protocol.md", monkeypatch)
    shown = [
        block.text.replace(", ...", "").replace("...}", "}") for block in stage.blocks if block.text[0] == "{"
    ]
    program = f"sh -c 'tee {tmp_path}/requests | {tmp_path}/my_agent | tee {tmp_path}/answers'"
    agent = f'fleetgym.evaluation.isolation.program:Program(command="{program}")'
    fleetgym.evaluate([agent], "fleet-v0/toy/two-pools")
    sent = [
        *(tmp_path / "requests").read_text().splitlines()[:2],
        (tmp_path / "answers").read_text().splitlines()[1],
    ]
    for text, line in zip(shown, sent, strict=True):
        assert list(json.loads(text)) == list(json.loads(line))


def test_everything_has_a_place() -> None:
    """Every block and command is executed somewhere, or exempt."""
    lost = [
        f"{block.page}:{block.line}: {text}"
        for block in BLOCKS
        for text, place in places(block)
        if place is None
    ]
    assert not lost, "neither executed nor exempt, or an option that there is not:\n" + "\n".join(lost)
    assert sum(place in HERE for block in BLOCKS for _, place in places(block)) > 50


def test_the_tables_are_needed() -> None:
    """Every pattern of a table fits something on a page; the tests that are named exist."""
    everything = "\n".join(line for block in BLOCKS for line in (block.commands or [block.text]))
    for pattern in [*ELSEWHERE, *PRINTED.values(), *FILES]:
        assert re.search(f"^{pattern}", everything, flags=re.M), pattern
    assert set(FORMULAS) <= {block.page for block in BLOCKS}
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())
