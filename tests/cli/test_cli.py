"""The command line: every verb does its work, says what is wrong in a line, and exits with the right code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from places import TESTS
from sample_agents import agent

import fleetgym
from fleetgym.cli.parser import make_parser
from fleetgym.kernels.compile import cache_folder

TOY = "fleet-v0/toy/drop"

Run = Callable[..., tuple[int, str, str]]


def verbs() -> list[str]:
    """Return every verb of the parser."""
    (action,) = [a for a in make_parser()._actions if a.dest == "verb"]
    return sorted(action.choices)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", verbs())
def test_help_teaches_with_examples(run: Run, verb: str) -> None:
    """Every verb has help with an example that the parser accepts."""
    code, out, _ = run(verb, "--help")
    assert code == 0
    examples = re.findall(r"^  fleetgym (.*)$", out, flags=re.MULTILINE)
    assert examples
    for example in examples:
        import shlex

        assert make_parser().parse_args(shlex.split(example)).verb == {"bks": "best-known"}.get(verb, verb)


def test_list(run: Run) -> None:
    """Suites, instances of one, agents; as text and as JSON."""
    assert "fleet-v0/toy" in run("list")[1]
    assert TOY in run("list", "fleet-v0/toy")[1]
    assert run("list", "toy") == run("list", "fleet-v0/toy")
    assert run("bks", "show", "toy") == run("best-known", "show", "fleet-v0/toy")
    assert "agh-rolling" in run("list", "agents")[1]
    told = run("list", "agents", "agh-rolling")[1]
    assert told.startswith(
        "agh-rolling: AGH, planning again and again. (fleetgym.baselines.agents:agh_rolling)"
    )
    assert re.search(r"^switch_cost +2\.0$", told, flags=re.MULTILINE)
    assert "allowed" not in told  # an array cannot be written
    assert json.loads(run("list", "agents", "descent", "--json")[1])["arguments"]["forecaster"] == "'auto'"
    assert run("list", "agents", "hold")[1].endswith("no arguments\n")
    assert {e["name"] for e in json.loads(run("list", "agents", "--json")[1])} >= {"hold", "agh"}
    assert [e["id"] for e in json.loads(run("list", "fleet-v0/toy", "--json")[1])].count(TOY) == 1
    assert json.loads(run("list", "--json")[1])["fleet-v0/dev"] == {"instances": 26, "tasks": 48}


def test_show_prints_every_part(run: Run) -> None:
    """Workloads, pools, slots, nominal fleet and scenarios; JSON is the instance itself."""
    code, out, _ = run("show", TOY)
    assert code == 0
    for part in ("workloads", "pools", "slots", "nominal fleet", "stored scenarios", "spot", "USD/h"):
        assert part in out
    assert json.loads(run("show", TOY, "--json")[1])["id"] == "drop"


def test_show_tells_hardware_in_short(run: Run) -> None:
    """GPUs by type and count, mixed ones too, and precision apart; the configuration's id is not repeated."""
    out = run("show", "fleet-v0/dev/ou-s-001")[1]
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    types, tiers = {p.id: p.gpu_type for p in instance.pools}, {t.id: t for t in instance.tiers}
    for configuration in instance.configurations:
        (use,) = configuration.uses
        gpu, precision = types[tiers[use.tier].pool], tiers[use.tier].precision
        shown = rf"{re.escape(configuration.id)} +{re.escape(configuration.model)} +{use.gpus} {gpu} +{precision} "
        assert re.search(shown, out)


def test_show_a_file_of_ones_own(run: Run, tmp_path: Path) -> None:
    """An instance file needs no scenarios to be shown, and a broken one is rejected with its place."""
    data = json.loads(run("show", TOY, "--json")[1])
    (tmp_path / "mine.json").write_text(json.dumps(data))
    assert run("show", "mine.json")[0] == 0
    data["pools"][0]["cap_gpus"] = "many"
    (tmp_path / "mine.json").write_text(json.dumps(data))
    code, _, err = run("show", "mine.json")
    assert code == 1
    assert "mine.json: $.pools[0].cap_gpus: expected a whole number" in err


def test_plan(run: Run) -> None:
    """Fleet, routes and cost terms; in JSON the terms add up."""
    code, out, _ = run("plan", TOY, "--agent", "gh", "--details")
    assert code == 0
    for part in ("fleet", "routing", "cost"):
        assert part in out
    facts = json.loads(run("plan", TOY, "--json")[1])
    assert facts["fleet"] == {"spot-replica": 2}
    assert facts["costs_usd"]["cost"] == pytest.approx(
        sum(v for k, v in facts["costs_usd"].items() if k != "cost")
    )


def test_run_shows_every_window(run: Run) -> None:
    """One picture a window, then the sum; a failed episode exits with 1."""
    code, out, _ = run("run", TOY, "--agent", "hold")
    assert code == 0
    assert out.count("drop  window ") == 10
    assert "missed" in out
    code, out, err = run("run", TOY, "--agent", agent("Raises"), "--render", "none")
    assert code == 1
    assert "window 2: raised: ValueError" in err
    assert "drop  window" not in out
    assert json.loads(run("run", TOY, "--json")[1])["agent"] == "gh"


def test_compare_prints_a_table_and_writes_results(run: Run, tmp_path: Path) -> None:
    """The table lines up, the best is on top, and the file it wrote scores the same."""
    code, out, err = run("compare", "hold", "gh", "--suite", "fleet-v0/toy")
    assert code == 0
    table = out.split("\n\n")[0].splitlines()
    assert len({len(line) for line in table}) == 1
    assert table[2].startswith("(clairvoyant)")
    assert "percent above bks-" in out
    (file,) = [p for p in (tmp_path / "results").iterdir() if "timings" not in p.name]
    assert str(file.name) in err
    again = json.loads(run("score", str(file), "--json")[1])
    rows = {row["agent"]: row["score"] for row in again["rows"]}
    assert set(rows) == {"hold", "gh"}
    assert f"{rows['hold']:.2f}" in out
    assert "\x1b" not in err  # no progress bar where there is no terminal


def test_evaluate_resumes(run: Run, tmp_path: Path) -> None:
    """--resume starts a file, then finds it done; --out refuses one that exists."""
    words = ("evaluate", "hold", agent("Raises"), "--suite", TOY)
    code, out, err = run(*words, "--resume", "r.jsonl")
    assert code == 1  # one episode failed, and the file has both
    assert "failed: " in err
    assert "there is no r.jsonl yet: this is a new run" in err
    first = (tmp_path / "r.jsonl").read_bytes()
    code, _, err = run(*words, "--resume", "r.jsonl", "--json")
    assert code == 1
    assert "a new run" not in err
    assert (tmp_path / "r.jsonl").read_bytes() == first
    code, _, err = run(*words, "--out", "r.jsonl")
    assert code == 2
    assert "r.jsonl exists" in err


@pytest.mark.slow
def test_check_agent(run: Run) -> None:
    """A sound agent passes, a bad one is told what is wrong and how to mend it."""
    code, out, _ = run("check-agent", agent("Dice"))
    assert code == 0
    assert "class reflex" in out
    code, out, _ = run("check-agent", agent("SaysNan"))
    assert code == 1
    assert "fleet_to_action" in out
    code, out, _ = run("check-agent", "aghh", "--json")
    assert code == 1
    assert "did you mean" in json.loads(out)[0]["detail"]


def test_check_agent_finds_randomness_of_its_own(run: Run, tmp_path: Path) -> None:
    """An agent that ignores the seed is caught, and so is one that keeps score in its module."""
    (tmp_path / "moody.py").write_text(
        "import random\n"
        "class Moody:\n"
        "    def reset(self, view, *, seed): self.view = view\n"
        "    def act(self, observation, info): return [random.randrange(n) for n in self.view.nvec]\n"
    )
    code, out, _ = run("check-agent", "moody.py:Moody")
    assert code == 1
    assert "FAIL  determinism" in out


def test_doctor(run: Run) -> None:
    """Everything is in order here, and the report says what was looked at."""
    code, out, _ = run("doctor")
    assert code == 0, out
    for part in ("packages", "agents", "instances", "cache", "episode"):
        assert part in out


@pytest.mark.slow
def test_doctor_runs_the_kernels_before_it_calls_the_cache_warm(tmp_path: Path) -> None:
    """A kernel that lacks, and one whose file is damaged, are told; once all come from the cache, it is warm."""
    here = cache_folder()
    assert here is not None
    there = tmp_path / "cache" / here.name
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("*.tmp.*"))
    call = partial(shell, "doctor", FLEETGYM_CACHE_DIR=str(tmp_path / "cache"))
    call()  # compiles what lacked here
    for spoil in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-100])):
        (kernel,) = there.rglob("window.play-*.nbc")
        spoil(kernel)
        cold, warm = call(), call()
        assert "kernels were compiled now, and kept" in cold.stdout
        assert "is warm: the kernels were loaded from it, and ran" in warm.stdout
        assert (cold.returncode, warm.returncode) == (0, 0)


def test_doctor_finds_a_changed_instance(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that differs from the manifest is named."""
    from fleetgym.model.sets import instances_folder

    shutil.copytree(instances_folder(), tmp_path / "copy")
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path / "copy"))
    with open(tmp_path / "copy" / "fleet-v0" / "toy" / "drop.json", "a") as file:
        file.write("\n")
    code, out, _ = run("doctor")
    assert code == 1
    assert "drop.json was changed" in out


WRONG_CALLS = [
    (("compare", "aghh", "--suite", TOY), "did you mean 'agh'"),
    (("compare", "hold", "--suite", "fleet-v0/tou"), "did you mean 'fleet-v0/toy'"),
    (("compare", "hold", "--suite", TOY, "--workers", "0"), "a whole number from 1 to 1024, got 0"),
    (("compare", "hold", "--suite", TOY, "--scenarios", "7"), "1 stored scenarios"),
    (("compare", "hold", "--suite", TOY, "--scenarios", "one"), "with commas between"),
    (("run", TOY, "--agent", "nowhere.py:X"), "no file 'nowhere.py'"),
    (("run", TOY, "--scenario", "5"), "1 stored scenarios"),
    (("run", "missing.json"), "missing.json"),
    (("show", "fleet-v0/toy/drip"), "did you mean 'fleet-v0/toy/drop'"),
    (("plan", TOY, "--agent", "hold"), "is no planner"),
    (("score", "missing.jsonl"), "missing.jsonl"),
    (("dance",), "invalid choice"),
    (("compre", "hold"), "invalid choice: 'compre'; did you mean 'compare'? (choose from"),
    (("season", "dra"), "invalid choice: 'dra'; did you mean 'draw'?"),
    (
        ("compare", "hold", "--scenaros", "0"),
        "unrecognized arguments: --scenaros 0; did you mean '--scenarios'?",
    ),
    (("list", "agent"), "unknown suite 'agent'; did you mean 'agents'?"),
    (("evaluate", "hold", "fleet-v0/toy"), "follow --suite, as in --suite fleet-v0/toy"),
    (("compare", "MyAgent"), "as in path/to/file.py:MyAgent"),
    (("run", "hold"), "'hold' is an agent; an instance comes first"),
]


@pytest.mark.parametrize(("words", "message"), WRONG_CALLS)
def test_wrong_calls_exit_with_2(run: Run, words: tuple[str, ...], message: str) -> None:
    """Errors are on stderr, a line or two after the usage, without a traceback."""
    code, out, err = run(*words)
    assert code == 2
    assert message in err
    assert out == ""
    assert "Traceback" not in err
    told = [line for line in err.splitlines() if not line.startswith(("usage:", " "))]
    assert len(told) <= 2


def test_no_subcommand_prints_the_help(run: Run) -> None:
    """On stderr, since the call is not complete."""
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "play agents on a suite and print a table of scores" in err


def test_rejected_files_exit_with_1(run: Run, tmp_path: Path) -> None:
    """A results file that is not one is the file's fault, not the call's."""
    (tmp_path / "bad.jsonl").write_text('{"format": "something"}\n')
    code, _, err = run("score", "bad.jsonl")
    assert code == 1
    assert err.startswith("fleetgym: bad.jsonl:1: $[0]")


# -- as a user's shell sees it


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call ``python -m fleetgym`` outside the checkout."""
    command = [sys.executable, "-m", "fleetgym", *words]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=Path(sys.prefix)
    )


def test_help_stays_light() -> None:
    """Help loads no heavy package."""
    heavy = "('numba', 'pandas', 'scipy', 'matplotlib', 'highspy')"
    code = (
        "import sys, fleetgym.cli.parser as parser; parser.make_parser().format_help();"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "words", ["list agents", "list agents agh", "list fleet-v0/toy", "show fleet-v0/toy/drop", "bks show"]
)
def test_looking_compiles_nothing(words: str, tmp_path: Path) -> None:
    """What only reads leaves a new cache of compiled code empty."""
    assert shell(*words.split(), FLEETGYM_CACHE_DIR=str(tmp_path)).returncode == 0
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_closed_pipe_is_no_error() -> None:
    """``fleetgym show ... | head -1`` ends quietly."""
    command = f"{sys.executable} -m fleetgym show fleet-v0/toy/drop | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.slow
def test_agents_are_found_in_the_current_folder(tmp_path: Path) -> None:
    """module:Class works from where one is, with workers and in the agent's own process too."""
    (tmp_path / "agent_of_this_folder.py").write_text("from sample_agents import Good as Mine\n")
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    script = Path(sys.executable).with_name("fleetgym")
    command = [
        str(script),
        "compare",
        "agent_of_this_folder:Mine",
        "hold",
        "--suite",
        "fleet-v0/toy/drop",
        "--workers",
        "2",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "agent_of_this_folder:Mine" in done.stdout


def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns go on below, with the first one again; text is broken. Nothing is lost."""
    from fleetgym.runtime import text_tables

    head, row = ["agent", "score", "cost USD", "failures"], ["gh", "17.5", "1,234.5", "0"]
    listed = ["agent", "what it is"], ["gh", "greedy heuristic with three mechanisms, planning once a day"]
    whole = text_tables.align(*listed[:1], [listed[1]], left=2)
    monkeypatch.setattr(text_tables, "terminal_width", lambda: 30)
    assert text_tables.align(head, [row]).splitlines() == [
        "agent  score  cost USD",
        "-----  -----  --------",
        "gh      17.5   1,234.5",
        "",
        "agent  failures",
        "-----  --------",
        "gh            0",
    ]
    text = text_tables.align(*listed[:1], [listed[1]], left=2)
    assert max(map(len, text.splitlines())) <= 30 < max(map(len, whole.splitlines()))
    assert text.replace("-", "").split() == whole.replace("-", "").split()


def test_progress_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar on a terminal counts what an earlier run did, and ends with a line. A file gets a line each half minute."""
    import io

    from fleetgym.cli import progress
    from fleetgym.cli.progress import ProgressBar

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        bar = ProgressBar("playing", stream)
        for done in range(7, 11):  # six were done before
            bar(done, 10)
    assert "7/10" in terminal.getvalue()
    assert " left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")
    assert file.getvalue() == ""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    bar = ProgressBar("playing", file)
    for done in range(1, 11):
        now = 600.0 + 12.0 * done  # the first one waited for ten minutes of compiling
        bar(done, 10)
    assert file.getvalue().splitlines() == [
        "fleetgym: playing: 1 of 10",
        "fleetgym: playing: 4 of 10, 1:12 left",
        "fleetgym: playing: 7 of 10, 0:36 left",
    ]


def test_all_reference_agents_play_only_when_asked(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """``fleetgym compare`` alone plays nothing for hours; ``all`` is ours, and nobody else's."""
    from fleetgym.agents.registry import agent_entries
    from fleetgym.cli import run_options
    from fleetgym.runtime.entry_points import Entry

    code, _, said = run("compare", "--suite", "fleet-v0/toy")
    assert code == 2
    assert "name agents, as in `fleetgym compare hold margin agh-rolling`; `all` names every" in said
    entries = {**agent_entries(), "theirs": Entry("theirs", "a:B", "them")}
    monkeypatch.setattr("fleetgym.agents.registry.agent_entries", lambda: entries)
    names = run_options.agents(make_parser().parse_args(["compare", "hold", "all"]))
    assert names[0] == "hold"
    assert "agh-rolling" in names
    assert len(names) == len(set(names))
    assert "theirs" not in names


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["help", "compare"], "--help lists them"),
        (["play", "hold"], "did you mean 'run'?"),
        (["train", "ppo"], "docs/ppo.md"),
        (["--verison"], "did you mean '--version'?"),
        (["run", "requests.csv"], "there is no file 'requests.csv'"),
        (["show", "day.toml"], "there is no file 'day.toml'"),
        (["verify", "mine.jsonl"], "`fleetgym submit` makes"),
        (["evaluate", "gh:margin=2"], "'gh(margin=0.2)'"),
    ],
)
def test_a_mistaken_command_is_told_the_way(run: Run, words: list[str], hint: str) -> None:
    """What users of other programs type first ends in a sentence that helps."""
    Path("mine.jsonl").touch()
    code, out, said = run(*words)
    assert code in (1, 2)
    assert hint in out + said
