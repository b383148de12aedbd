"""Mistakes at the command line: noticed before the work, told in a line that says what would be valid."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT
from sample_agents import agent

from fleetgym.cli import parser

TOY = "fleet-v0/toy/drop"
SCENARIOS = ROOT / "instances/fleet-v0/dev/ou-s-001.scenarios.json.gz"

Run = Callable[..., tuple[int, str, str]]


# -- agents that cannot be made

UNMADE = [
    (agent("Goood"), "did you mean 'Good'"),
    (agent("Picky(patience=3)"), "takes no arguments"),
    ("broken.py:Agent", "SyntaxError"),
    ("needy.py:Agent", "no_such_package"),
    ("gh(marginn=1)", "marginn"),
    ("quits.py:Agent", "exit code 3"),
]


@pytest.mark.parametrize(("name", "reason"), UNMADE)
def test_what_cannot_be_made_is_not_played(run: Run, tmp_path: Path, name: str, reason: str) -> None:
    """A typo in a class or its arguments ends the call at once: exit code 2, no results file."""
    (tmp_path / "broken.py").write_text("class Agent(:\n")
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    (tmp_path / "quits.py").write_text("import os\nos._exit(3)\n")
    code, out, err = run("compare", "hold", name, "--suite", TOY, "--out", "r.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith(f"fleetgym: cannot make the agent {name!r}: ")
    assert reason in err
    assert "Traceback" not in err
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize("verb", ["run", "plan", "simulate"])
def test_other_verbs_try_the_agent_too(run: Run, verb: str) -> None:
    """Also where there is a single agent."""
    code, out, err = run(verb, TOY, "--agent", "gh(marginn=1)")
    assert (code, out) == (2, "")
    assert "cannot make the agent 'gh(marginn=1)'" in err
    assert "Traceback" not in err


def test_arguments_of_what_cannot_be_imported(run: Run, tmp_path: Path) -> None:
    """Listing them is answered in a line, whatever the module does."""
    (tmp_path / "broken.py").write_text("class Agent(:\n")
    code, out, err = run("list", "agents", "broken.py:Agent")
    assert (code, out) == (2, "")
    assert err.startswith("fleetgym: broken.py:Agent cannot be imported: ")


def test_check_agent_says_that_it_cannot_be_made(run: Run) -> None:
    """Not that it raised in some window; and a suite that does not exist is not the agent's fault."""
    code, out, _ = run("check-agent", agent("Goood"))
    assert code == 1
    assert out.startswith("FAIL  name")
    assert "window" not in out
    code, out, err = run("check-agent", agent("Good"), "--suite", "fleet-v0/tou")
    assert (code, out) == (2, "")
    assert "did you mean 'fleet-v0/toy'" in err


@pytest.fixture
def chatty(tmp_path: Path) -> str:
    """An agent that prints."""
    (tmp_path / "chatty.py").write_text(
        "class Chatty:\n"
        "    def reset(self, view, *, seed): self.view = view; print('noise')\n"
        "    def act(self, observation, info):\n"
        "        print('noise')\n"
        "        return self.view.fleet_to_action(self.view.fleet)\n"
    )
    return "chatty.py:Chatty"


def test_check_agent_on_one_instance(run: Run, chatty: str) -> None:
    """An instance does as well as a suite, and what the agent prints does not get into the JSON."""
    code, out, _ = run("check-agent", chatty, "--suite", TOY, "--json")
    assert code == 0, out
    assert "1 episodes played" in json.loads(out)[1]["detail"]


def test_an_agent_in_this_process_does_not_print_into_the_output(run: Run, chatty: str) -> None:
    """What it prints goes to stderr, as that of an isolated agent does."""
    code, out, err = run("compare", chatty, "--suite", TOY, "--isolate", "never", "--json")
    assert code == 0
    assert json.loads(out)["rows"]
    assert err.count("noise") == 11


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "evaluate"])
def test_run_shows_the_traceback_of_the_agents_code(tmp_path: Path, verb: str) -> None:
    """The line that raised, and the calls that led there; other verbs tell in a line."""
    name = agent("Raises")
    words = (verb, TOY, "--agent", name) if verb == "run" else (verb, name, "--suite", TOY)
    done = subprocess.run(
        [sys.executable, "-m", "fleetgym", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == (verb == "run")
    assert "sample_agents.py:" in done.stderr.splitlines()[-1]


# -- names and files

MISTAKES = [
    (("show", "fleet-v0/toy"), "is a suite of 7 instances"),
    (("run", "fleet-v0"), "is a suite of"),
    (("plan", "trace.csv"), "`fleetgym import-trace trace.csv`"),
    (("compare", "hold", "--suite", "trace.csv"), "`fleetgym import-trace trace.csv`"),
    (("bks", "show", "mine.json"), "--relative-to best-in-run"),
    (("import-trace", "."), "needs at least 2 whole windows"),  # a folder is a trace
    (("import-trace", "trace.csv", "--edges", "a"), "with commas between"),
    (("import-trace", ""), "No such file or directory: ''"),
    (("plan", TOY, "--margin", "30%"), "0.3 for 30 % more"),
    (("compare", "hold", "--seed", "-1"), "a whole number from 0"),
    (("compare", "hold", "--suite", "nosuch.json"), "No such file or directory: nosuch.json"),
    (("list", "toy", "agh"), "as in `fleetgym list agents agh`"),
    (("run", TOY, "--agent", "descent(every=0)"), "every is 0; expected a whole number of at least 1"),
    (("compare", "hold", "--act-limit", "0"), "from 0.001 to 1e9 s"),
    (("compare", "--suite", TOY, "hold"), f"compare hold --suite {TOY}"),
    (("evaluate", "hold", "--suite", TOY, "--isolate", "never", "--act-limit", "1"), "--isolate is never"),
    (("evaluate", "hold", "--suite", TOY, "--official", "reflex", "--reset-limit", "5"), "sets its limits"),
    (("evaluate", "hold", "--suite", TOY, "--official", "reflex", "--isolate", "never"), "isolates every"),
    (
        ("evaluate", "hold", "--suite", TOY, "--seed", str(2**63)),
        "a whole number from 0 to 9223372036854775807",
    ),
    (("evaluate", f"hold(note={'x' * 400!r})", "--suite", TOY), "note"),
    (("evaluate", "hold", "--suite", TOY, "--out", "r.jsonl.gz"), "name it r.jsonl"),
    (("import-trace", "trace.csv", "--edges", "9", "--by", "one"), "--edges is of lengths, and --by is one"),
    (("import-trace", "trace.csv", "--edges", "9", "--buckets", "2"), "give one of them"),
    (("compare", "hold", "--suite", TOY, "--out", "trace.csv/r.jsonl"), "trace.csv"),
    (("study", "thresholds", "--plot", "picture.doc"), "ends in .png"),
    (("plan", TOY, "--plot", "picture"), "ends in .png"),
    (("simulate", TOY, "--plot", "picture.bmp"), "ends in .png"),
    (("simulate", TOY, "--window", "96"), "has windows 0 to 9; got 96"),
    (("simulate", TOY, "--plan", "p.json", "--agent", "agh"), "give one of them"),
    (("study", "layouts(rate_rps=-5)"), "rate_rps: expected requests per second above 0, got -5"),
    (("import-trace", "trace.csv", "--unpack-limit", "nan"), "from 0.001 to 1e6 GB"),
    (("import-trace", "trace.csv", "--caps", "4,8"), "the cap of all GPUs is given twice"),
    (("import-trace", "trace.csv", "--slo", "error=2"), "error: expected a number from 1e-9 to 1, got 2"),
    (("show", str(SCENARIOS)), "$.format: expected one of fleetgym-instance-1; got 'fleetgym-scenarios-1'"),
]


@pytest.mark.parametrize(
    "words",
    [
        ("import-trace", "trace.csv", "--out"),
        ("plan", TOY, "--out"),
        ("evaluate", "hold", "--suite", TOY, "--out"),
        ("compare", "hold", "--suite", TOY, "--out"),
        ("report", "r.jsonl", "--out"),
        ("generate", "ou", "--size", "s", "--out"),
        ("submit", "r.jsonl", "--agent", "hold", "--out"),
        ("verify", "s", "--out"),
        ("season", "draw", "2026-12", "--seed-file", "s", "--out"),
        ("best-known", "search", TOY, "--out"),
        ("leaderboard", ".", "--out"),
        ("plan", TOY, "--plot"),
        ("report", "r.jsonl", "--files"),
    ],
)
def test_out_is_no_standard_output(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """No file is called -, and no work is begun."""
    code, out, err = run(*words, "-")
    assert (code, out) == (2, "")
    assert f"{words[-1]} -: expected a name; nothing is written to standard output" in err
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_mistakes_are_told_in_a_line(run: Run, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """Nothing on stdout, no traceback, nothing half written."""
    (tmp_path / "trace.csv").write_text("time,input_tokens,output_tokens\n0,1,1\n")
    code, out, err = run(*words)
    assert code in (1, 2)
    assert message in err
    assert out == ""
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_costs_to_compare_with_are_looked_for_before_playing(run: Run, tmp_path: Path) -> None:
    """An instance of one's own has none: who asks for them is told so at once, and what to write instead."""
    folder = SCENARIOS.parents[1] / "toy"
    for name in ("drop.json", "drop.scenarios.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    known = ("--relative-to", "best-known")
    code, out, err = run("compare", "hold", "--suite", "drop.json", *known, "--out", "r.jsonl")
    assert (code, out) == (2, "")
    assert "--relative-to best-in-run" in err
    assert not (tmp_path / "r.jsonl").exists()
    (tmp_path / "o").mkdir()
    for name in ("drop.json", "drop.scenarios.json"):
        (tmp_path / name).rename(tmp_path / "o" / name)
    assert (
        "no best-known costs for o/drop.json;" in run("compare", "hold", "--suite", "o/drop.json", *known)[2]
    )


def test_a_file_that_is_no_results_file(run: Run, tmp_path: Path) -> None:
    """The page of a report, say."""
    (tmp_path / "r.html").write_text("<!doctype html>\n")
    code, _, err = run("score", "r.html")
    assert code == 1
    assert "not a results file: expected a header, as `fleetgym evaluate`" in err


def test_a_file_of_somebody_else_is_not_emptied(run: Run, tmp_path: Path) -> None:
    """A file of one line without its end looks like a run that was stopped at once, and is none."""
    (tmp_path / "tuned.json").write_text('{"lr": 0.1}')
    code, out, err = run("evaluate", "hold", "--suite", TOY, "--resume", "tuned.json")
    assert (code, out) == (1, "")
    assert "not a results file" in err
    assert (tmp_path / "tuned.json").read_text() == '{"lr": 0.1}'


def test_a_page_does_not_replace_its_results(run: Run, tmp_path: Path) -> None:
    """Whoever names the results file as the page's is told."""
    assert run("evaluate", "hold", "--suite", TOY, "--out", "r.jsonl")[0] == 0
    before = (tmp_path / "r.jsonl").read_bytes()
    code, out, err = run("report", "r.jsonl", "--out", "./r.jsonl")
    assert (code, out) == (2, "")
    assert "r.html" in err
    assert (tmp_path / "r.jsonl").read_bytes() == before


def test_a_file_of_another_run_is_not_resumed(run: Run) -> None:
    """The message names both suites, or says what differs."""
    assert run("evaluate", "hold", "--suite", TOY, "--out", "r.jsonl")[0] == 0
    code, _, err = run("evaluate", "hold", "--suite", "fleet-v0/toy", "--resume", "r.jsonl")
    assert code == 1
    assert f"another suite ({TOY}; this run: fleet-v0/toy)" in err
    assert "other agents" in run("evaluate", "gh", "--suite", TOY, "--resume", "r.jsonl")[2]


def test_evaluate_says_how_to_go_on(run: Run) -> None:
    """The next command, ready to be copied."""
    out = run("evaluate", "hold", "--suite", TOY, "--out", "r.jsonl")[1]
    assert out.endswith("next: fleetgym score r.jsonl\n")


def test_a_cost_below_the_best_known_is_noticed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever beats it is told where to go with it."""
    import dataclasses

    from fleetgym.scoring import best_known

    true = best_known.load_best_known

    def dearer(instances: list[str]) -> best_known.BestKnownSet:
        known = true(instances)
        tasks = {
            task: dataclasses.replace(best, value_usd=1e6, bound_usd=None, proven=False)
            for task, best in known.tasks.items()
        }
        return dataclasses.replace(known, tasks=tasks)

    assert run("evaluate", "hold", "--suite", TOY, "--out", "r.jsonl")[0] == 0
    assert "cheaper than best known" not in run("score", "r.jsonl")[2]
    monkeypatch.setattr(best_known, "load_best_known", dearer)
    assert (
        "cheaper than best known in 1 task: `fleetgym best-known propose r.jsonl`"
        in run("score", "r.jsonl")[2]
    )


def test_compare_promises_no_file_where_best_known_costs_are_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes alone, before anything is played or announced."""
    import dataclasses

    from fleetgym.scoring import best_known, comparison

    true = best_known.load_best_known
    monkeypatch.setattr(comparison, "load_best_known", lambda _: dataclasses.replace(true([TOY]), tasks={}))
    code, out, err = run("compare", "hold", "--suite", TOY)
    assert code != 0
    assert not out
    assert TOY in err
    assert "results go to" not in err
    code, _, err = run("compare", "hold", "--suite", TOY, "--relative-to", "best-in-run")
    assert code == 0
    assert "results go to" in err


# -- pictures


@pytest.mark.parametrize("more", [["--days", "3"], ["--days", "0", "--margin", "0.5"]])
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_plan_draws_a_picture(run: Run, tmp_path: Path, more: list[str], kind: str) -> None:
    """With and without risk; in a folder that is made; the same bytes every time."""
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("a", "b"):
        path = tmp_path / "new" / f"{name}.{kind}"
        assert run("plan", TOY, "--agent", "gh", *more, "--plot", str(path))[0] == 0
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(b"\x89PNG" if kind == "png" else b"<?xml")


# -- a run that is stopped


HANGS = agent("TellsPid(file='pid')")


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def listens_to_interrupts() -> None:
    """Undo what a process inherits from tests that run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", HANGS, "--suite", TOY, "--out", "r.jsonl"), "; --resume r.jsonl goes on"),
        (("check-agent", HANGS, "--suite", TOY), ""),
    ],
)
def test_stopping_names_the_file_if_there_is_one(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    """Exit code 130, and no promise of a file that was never begun."""
    command = [sys.executable, "-m", "fleetgym", *words]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listens_to_interrupts,
    )
    deadline = time.monotonic() + 120.0
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"fleetgym: stopped{told}"


def test_words_too_many_are_told_with_the_verbs_own_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Most often it is an agent's name, which some verbs take as an option and others as a word."""
    for words, hint in (
        (["run", "hold", "fleet-v0/toy/drop"], "fleet-v0/toy/drop; name an agent by --agent"),
        (["plan", "fleet-v0/toy/drop", "gh"], "gh; name an agent by --agent"),
        (["run", "fleet-v0/toy/drop", "--scenaro", "0"], "--scenaro 0; did you mean '--scenario'?"),
        (["evaluate", "hold", "--scenaros", "0"], "--scenaros 0; did you mean '--scenarios'?"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parser.main(words)
        err = capsys.readouterr().err
        assert err.startswith(f"usage: fleetgym {words[0]} ")
        assert err.endswith(f"fleetgym {words[0]}: error: unrecognized arguments: {hint}\n")
