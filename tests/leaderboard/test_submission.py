"""Making a submission and having it verified: formats round-trip, claims become the reference evaluator's numbers."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from places import ROOT
from sample_agents import agent as sample
from submissions import RULES, SUITE, declare, lines_of, submitted, write_lines

from fleetgym.agents.agent_code import code_sha256, command_sha256, folder_sha256, own_folder_sha256
from fleetgym.cli import main
from fleetgym.evaluation.results import Results, read_results, timing_line, timings_path
from fleetgym.evaluation.results_format import Timing
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import canonical_hash, file_sha256
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.files.schema import to_jsonable
from fleetgym.leaderboard import submission
from fleetgym.leaderboard.record import read_record
from fleetgym.leaderboard.registers import REWRITTEN, read_registers
from fleetgym.leaderboard.submission import read_submission, submission_id, suite_sha256
from fleetgym.leaderboard.submit import left_out, submit
from fleetgym.leaderboard.verify import verify

DETAILS = {"date": "2026-11-21", "division": "open", "time_class": "online"}


@pytest.fixture(scope="module")
def results() -> Results:
    """Return a run of two agents."""
    return evaluate(["hold", "gh-rolling"], SUITE)


def test_claims_become_the_judges_numbers(results: Results, tmp_path: Path) -> None:
    """What was played is confirmed, episode by episode, and the record round-trips."""
    folder = submitted(results, tmp_path / "2026-11-21-gh", agent="gh-rolling")
    record = verify(folder, out=tmp_path / "verified")
    played = [episode for episode in results.episodes if episode.agent == "gh-rolling"]
    for verified, episode in zip(record.episodes, played, strict=True):
        assert verified.task == (episode.instance, episode.scenario)
        assert verified.cost_usd == pytest.approx(episode.cost_usd, rel=1e-9)
        assert verified.costs.total() == pytest.approx(verified.cost_usd)
        assert verified.miss_share == pytest.approx(episode.miss_share, abs=1e-7)
        assert (verified.denied, verified.lost) == (episode.denied, episode.lost)
    assert read_record(tmp_path / "verified" / "2026-11-21-gh.json.gz") == record


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results file of an agent that fails."""
    path = tmp_path_factory.mktemp("failed") / "r.jsonl"
    evaluate([sample("Raises")], SUITE, out=path)
    return path


def test_failures_are_told(failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever submits an agent that failed, or code that nobody has, reads it; so does who verifies it."""
    folder = str(tmp_path / "2026-11-21-raises")
    assert main(["submit", str(failed), "--out", folder]) == 0
    told = capsys.readouterr().err
    assert "failed in 7 of these episodes, first: raised: ValueError" in told
    assert "without --code" in told
    assert main(["verify", folder]) == 0
    assert "7 episodes, 7 of them failures" in capsys.readouterr().out


def test_records_do_not_replace_each_other(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two submissions of one name, or a file where the records shall be: refused before the replay, not rejected."""
    one = submitted(results, tmp_path / "p" / "same", agent="hold")
    two = submitted(results, tmp_path / "q" / "same", agent="gh-rolling")
    assert main(["verify", str(one), str(two), "--out", str(tmp_path / "verified")]) == 2
    assert "have the same name" in capsys.readouterr().err
    assert not (tmp_path / "verified").exists()
    (tmp_path / "file").write_text("mine")
    assert main(["verify", str(one), "--out", str(tmp_path / "file")]) == 2
    told = capsys.readouterr()
    assert "rejected" not in told.err + told.out
    assert (tmp_path / "file").read_text() == "mine"


def test_rounding_of_another_processor_is_accepted(results: Results, tmp_path: Path) -> None:
    """A claim that is off by 1e-10 is accepted, and the record says what the replay found."""
    episodes = tuple(
        dataclasses.replace(
            e,
            cost_usd=e.cost_usd * (1 + 1e-10),
        )
        for e in results.episodes
    )
    exact = verify(submitted(results, tmp_path / "a", agent="hold"))
    rounded = verify(submitted(Results(results.header, episodes), tmp_path / "b", agent="hold"))
    assert [e.cost_usd for e in rounded.episodes] == [e.cost_usd for e in exact.episodes]


def test_both_formats_are_verified(results: Results, tmp_path: Path) -> None:
    """Format 1 claimed the cost of every window. What the replay finds is the same."""
    folder = submitted(results, tmp_path / "a", agent="hold")
    second = verify(folder)
    assert all("cost_per_window_usd" not in line for line in lines_of(folder))
    header, *lines = lines_of(folder)
    played = [e for e in results.episodes if e.agent == "hold"]
    for line, episode in zip(lines, played, strict=True):
        line["cost_per_window_usd"] = episode.cost_per_window_usd
    write_lines(folder, [{**header, "format": "fleetgym-results-1"}, *lines])
    declare(folder, "format", "fleetgym-submission-1")
    first = verify(folder)
    assert first.episodes == second.episodes
    assert first.submission.format != second.submission.format


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_was_rewritten_says_the_same(slow: bool) -> None:
    """Stored submissions are those of the log, to the byte; records have the content that they had before."""
    board = ROOT / "leaderboard"
    log = list(csv.DictReader((board / REWRITTEN).read_text().splitlines()))
    known = read_registers(board).rewritten
    for line in log:
        name, file = line["id"], line["file"]
        verified = file == "verified"
        path = board / "verified" / f"{name}.json.gz" if verified else board / "submissions" / name / file
        assert verified or file_sha256(path) == line["new_sha256"] == known[line["old_sha256"]], path
        if verified or slow:  # equal bytes have equal content
            assert content_sha256(path) == line["content_sha256"], path
    assert {path.name for path in (board / "submissions").iterdir()} >= {line["id"] for line in log}
    assert len(log) == len(known) == 3 * 109


def content_sha256(path: Path) -> str:
    """Return the checksum of a file of a submission, or of its record, without what the rewrite changed."""

    def kept(data: dict[str, Any], *names: str) -> dict[str, Any]:
        return {key: value for key, value in data.items() if key not in names}

    if path.name == "submission.toml":
        return canonical_hash(kept(tomllib.loads(path.read_text()), "format", "files"))
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    if path.name == "episodes.jsonl.gz":
        return canonical_hash([kept(lines[0], "format"), *lines[1:]])
    (record,) = lines
    declared = kept(record["submission"], "format", "files")
    return canonical_hash({**kept(record, "declaration_sha256", "version", "sha256"), "submission": declared})


@pytest.mark.parametrize("division", ["closed", "one-shot"])
def test_failures_are_kept(failed: Path, tmp_path: Path, division: str) -> None:
    """An agent that failed is accepted with its failures: the empty fleet's costs are its costs, and its own doing."""
    record = verify(submitted(read_results(failed), tmp_path / "a", division=division))
    assert all(e.failure is not None and e.failure.kind == "raised" for e in record.episodes)


def test_one_shot_holds_its_first_action(results: Results, tmp_path: Path) -> None:
    """An agent that plans once is accepted in the one-shot division, one that replans is not."""
    once = evaluate(["gh"], SUITE)
    assert len(verify(submitted(once, tmp_path / "a", division="one-shot")).episodes) == 7
    folder = submitted(results, tmp_path / "b", agent="gh-rolling")
    declare(folder, "agent.division", "one-shot")
    with pytest.raises(DataError, match="one-shot division"):
        verify(folder)


def test_declaration_round_trips(results: Results, tmp_path: Path) -> None:
    """What was declared is read again, quotes and umlauts included; the episodes are a results file."""
    words = {
        "name": "The best (one), 2.0",
        "authors": 'Ü. "Größe" \\ Co',
        "description": "a # b = 'c'",
        "code_url": "https://a.b/c",
    }
    made = submit(results, tmp_path / "a", agent="hold", card=words, **DETAILS)
    assert read_submission(tmp_path / "a") == made
    assert made.agent.authors == 'Ü. "Größe" \\ Co'
    assert read_results(tmp_path / "a" / "episodes.jsonl.gz").agents == ("hold",)
    assert tomllib.loads(tomli_w.dumps(to_jsonable(made))) == to_jsonable(made)


def test_same_results_same_submission(results: Results, tmp_path: Path) -> None:
    """To the byte."""
    for name in ("a", "b"):
        submit(results, tmp_path / name, agent="hold", **DETAILS)
    for name in ("submission.toml", "episodes.jsonl.gz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_cannot_be_submitted(results: Results, tmp_path: Path) -> None:
    """Several agents, half a suite, an unknown agent, a folder that is there, a name that is no file's."""
    with pytest.raises(FleetgymError, match="has several: hold, gh-rolling"):
        submit(results, tmp_path / "a", **DETAILS)
    with pytest.raises(UnknownNameError, match="did you mean 'hold'"):
        submit(results, tmp_path / "a", agent="hodl", **DETAILS)
    with pytest.raises(FleetgymError, match="0 of the 48 tasks of fleet-v0/dev; missing"):
        submit(results, tmp_path / "a", agent="hold", suite="fleet-v0/dev", **DETAILS)
    with pytest.raises(DataError, match="named by small letters"):
        submit(results, tmp_path / "My Agent!", agent="hold", **DETAILS)
    with pytest.raises(DataError, match="closed, open, one-shot"):
        submit(results, tmp_path / "a", agent="hold", **{**DETAILS, "division": "best"})
    assert not list(tmp_path.iterdir())
    submit(results, tmp_path / "a", agent="hold", **DETAILS)
    with pytest.raises(FleetgymError, match="exists"):
        submit(results, tmp_path / "a", agent="hold", **DETAILS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_official_run_keeps_its_class(results: Results, tmp_path: Path) -> None:
    """The class of an official run is that of its submission; another cannot be claimed."""
    official = Results(dataclasses.replace(results.header, official=RULES), results.episodes)
    details = {"agent": "hold", "date": "2026-11-21", "division": "open"}
    assert submit(official, tmp_path / "a", **details).agent.time_class == "reflex"
    assert submit(results, tmp_path / "b", **details).agent.time_class == "online"
    with pytest.raises(FleetgymError, match="an official run of the class reflex"):
        submit(official, tmp_path / "c", **details, time_class="offline")
    assert not (tmp_path / "c").exists()


def test_changed_instances_cannot_be_submitted(results: Results, tmp_path: Path) -> None:
    """A run on another version of an instance is not this suite's."""
    facts = dict(results.header.instances)
    name = next(iter(facts))
    facts[name] = dataclasses.replace(facts[name], content_hash="0" * 64)
    old = Results(dataclasses.replace(results.header, instances=facts), results.episodes)
    (tmp_path / "old.jsonl").write_text(old.to_text())
    with pytest.raises(DataError, match=r"old\.jsonl: \$\[0\].instances: .* has changed since this run"):
        submit(read_results(tmp_path / "old.jsonl"), tmp_path / "a", agent="hold", **DETAILS)


def test_code_has_one_checksum(tmp_path: Path) -> None:
    """Names and bytes count, caches do not; links are refused."""
    one, two = tmp_path / "1", tmp_path / "2"
    for folder in (one, two):
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "a.py").write_text("x = 1\n")
    assert folder_sha256(one) == folder_sha256(two)
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "a.pyc").write_text("")
    assert folder_sha256(one) == folder_sha256(two)
    (two / "part" / "a.py").rename(two / "part" / "b.py")
    assert folder_sha256(one) != folder_sha256(two)
    (one / "link").symlink_to(two)
    with pytest.raises(FleetgymError, match="is a link"):
        folder_sha256(one)


def test_a_disk_image_is_no_agent_s_file(tmp_path: Path) -> None:
    """Nothing reads a terabyte to find a checksum: it is refused by name, or the folder is no agent's alone."""
    agent, image = tmp_path / "mine.py", tmp_path / "disk.img"
    agent.write_text("")
    with image.open("wb") as stream:
        stream.truncate(2**40)
    told = r"disk\.img: with it, an agent's files hold over 16 GiB"
    with pytest.raises(FleetgymError, match=told):
        folder_sha256(tmp_path)
    with pytest.raises(FleetgymError, match=told):
        command_sha256(f"cat {image}")
    assert own_folder_sha256(str(agent)) is None
    assert code_sha256(str(agent)) is not None
    agent.write_text("DATA = 'disk.img'")
    with pytest.raises(FleetgymError, match=told):
        code_sha256(str(agent))


def test_names_of_folders() -> None:
    """The folder's name is the submission's, a slash at the end or not."""
    assert submission_id("leaderboard/submissions/2026-11-21-agh/") == "2026-11-21-agh"
    with pytest.raises(DataError):
        submission_id("/")


def test_suite_checksum_is_of_contents() -> None:
    """Each suite has its own, and it does not depend on what else is in the manifest."""
    assert suite_sha256("fleet-v0/toy") != suite_sha256("fleet-v0/dev")
    assert len(suite_sha256("fleet-v0")) == 64


def test_command_line(results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a results file to a verified record."""
    file = tmp_path / "run.jsonl"
    file.write_text(results.to_text(), encoding="utf-8")
    folder = tmp_path / "2026-11-21-hold"
    words = ["submit", str(file), "--agent", "hold", "--out", str(folder), "--division", "one-shot"]
    assert main([*words, "--description", "keeps what it has", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agent"]["description"] == "keeps what it has"
    assert "How it was tuned" in (folder / "README.md").read_text()
    assert main(["verify", str(folder), "--out", str(tmp_path / "verified"), "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    record = json.loads(gzip.decompress((tmp_path / "verified" / "2026-11-21-hold.json.gz").read_bytes()))
    assert verdict["cost_usd"] == pytest.approx(sum(e["cost_usd"] for e in record["episodes"]))
    assert main(words) == 2
    assert main(["verify"]) == 2
    assert main(["verify", str(tmp_path / "nowhere")]) == 1
    assert main(["verify", "--best-known", "toy"]) == 0
    assert main(["verify", "--best-known", "toy", str(tmp_path / "nowhere")]) == 2


@pytest.fixture(scope="module")
def dev_results() -> Results:
    """Return a run on every stored day of fleet-v0/dev, of an agent that costs little."""
    return evaluate(["gh-rolling"], "fleet-v0/dev")


@pytest.mark.full
def test_a_dev_submission_is_verified_in_time(dev_results: Results, tmp_path: Path) -> None:
    """Replaying all of fleet-v0/dev takes under eight CPU minutes: four minutes on two cores."""
    import resource

    folder = submitted(dev_results, tmp_path / "2026-11-21-gh")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = verify(folder, workers=2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(record.episodes) == 48
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 480


@pytest.mark.slow
def test_swapped_scenarios_are_noticed(dev_results: Results, tmp_path: Path) -> None:
    """Actions of one day claimed for another day of the same instance fit its slots, and cost something else."""
    from submissions import lines_of, write_lines

    folder = submitted(dev_results, tmp_path / "2026-11-21-gh")
    lines = lines_of(folder)
    assert lines[1]["instance"] == lines[2]["instance"]
    lines[1]["actions"], lines[2]["actions"] = lines[2]["actions"], lines[1]["actions"]
    write_lines(folder, lines)
    with pytest.raises(DataError, match=r"\$\[1\].cost_usd: claims"):
        verify(folder)


def test_what_a_submission_would_be_rejected_for_is_told_when_it_is_made(
    results: Results, tmp_path: Path
) -> None:
    """No suite, actions that change in the one-shot division, a code's folder that it would be a part of."""
    with pytest.raises(UnknownNameError, match="unknown suite 'fleet-v0'"):
        submit(results, tmp_path / "a", agent="hold", suite="fleet-v0", **DETAILS)
    with pytest.raises(
        FleetgymError, match=r"fleet-v0/toy/.*#0: in the one-shot division the first action holds"
    ):
        submit(results, tmp_path / "b", agent="gh-rolling", **(DETAILS | {"division": "one-shot"}))
    code = tmp_path / "code"
    code.mkdir()
    with pytest.raises(FleetgymError, match=r"code/c lies in the code's folder .*a folder of its own"):
        submit(results, code / "c", agent="hold", code=code, **DETAILS)
    assert not list(code.iterdir())


def test_code_is_copied_from_where_it_lies(tmp_path: Path) -> None:
    """An agent among other files, with the results beside it: only what it consists of is copied and declared."""
    (tmp_path / "helper.py").write_text("ONE = 1\n")
    for name in ("notes.md", "train.log"):
        (tmp_path / name).write_text("nothing of the agent's\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from helper import ONE\n\nimport fleetgym\n\n\ndef agent():\n"
        "    return fleetgym.make_agent('hold') if ONE else None\n"
    )
    run = evaluate([f"{file}:agent"], SUITE, out=tmp_path / "r.jsonl")
    made = submit(run, tmp_path / "a", code=file, **DETAILS)
    copied = sorted(path.name for path in (tmp_path / "a-code").iterdir())
    assert copied == ["helper.py", "mine.py"]
    assert left_out(file) == ["train.log"]
    assert made.agent.entry == "mine.py:agent"
    assert made.agent.code_sha256 == folder_sha256(tmp_path / "a-code")
    assert verify(tmp_path / "a").submission.agent == made.agent
    (tmp_path / "c-code").mkdir()
    with pytest.raises(FleetgymError, match="c-code exists"):
        submit(run, tmp_path / "c", code=file, **DETAILS)
    file.write_text(file.read_text() + "# edited\n")
    with pytest.raises(FleetgymError, match="is not what it was in this run"):
        submit(run, tmp_path / "b", code=file, **DETAILS)
    assert not (tmp_path / "b-code").exists()


def test_a_class_that_was_not_kept_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the timings of the run; the submission is made all the same, as machines differ."""
    path = tmp_path / "r.jsonl"
    run = evaluate(["hold"], SUITE, out=path)
    slow = [
        dataclasses.replace(e, timing=Timing(reset_cpu_s=99.0, act_cpu_s=(2.0, 1.5))) for e in run.episodes
    ]
    timings_path(path).write_text("".join(timing_line(episode) for episode in slow))
    words = ["submit", str(path), "--division", "one-shot", "--time-class"]
    assert main([*words, "reflex", "--out", str(tmp_path / "a")]) == 0
    assert "took 3.5 CPU seconds here; the class reflex allows 3" in capsys.readouterr().err
    assert main([*words, "online", "--out", str(tmp_path / "b")]) == 0
    assert "CPU seconds here" not in capsys.readouterr().err


def test_programs_are_submitted_by_a_file_that_names_them(tmp_path: Path) -> None:
    """A command says nothing of the code's folder; an edited program does not go on; a file beside it can be rerun."""
    code = tmp_path / "code"
    code.mkdir()
    script = code / "held"
    script.write_text(
        """#!/bin/sh
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/^{"do": "[a-z]*", "id": \\([0-9]*\\),.*/\\1/')
    echo "{\\"id\\": $id, \\"action\\": [1, 1]}"
done
"""
    )
    script.chmod(0o755)
    program, path = f"fleetgym.evaluation.isolation.program:Program(command='{script}')", tmp_path / "r.jsonl"
    run = evaluate([program], "fleet-v0/toy/two-pools", out=path)
    assert not run.failures
    with pytest.raises(FleetgymError, match="name the program in a Python file of the code's folder"):
        submit(run, tmp_path / "a", code=code, suite="fleet-v0/toy", **DETAILS)
    whole = path.read_text()
    path.write_text(whole[:-10])
    script.write_text(script.read_text() + "# edited\n")
    with pytest.raises(DataError, match="edited since"):
        evaluate([program], "fleet-v0/toy/two-pools", resume=path)
    (code / "agent.py").write_text(
        "from pathlib import Path\n\nfrom fleetgym.evaluation.isolation.program import Program\n\n\n"
        "class Mine(Program):\n    def __init__(self):\n"
        "        super().__init__(str(Path(__file__).with_name('held')))\n"
    )
    (episode,) = evaluate([f"{code}/agent.py:Mine"], "fleet-v0/toy/two-pools").episodes
    assert episode.failure is None
    assert episode.actions == run.episodes[0].actions


def test_runs_in_the_evaluators_process_are_marked_and_refused(results: Results, tmp_path: Path) -> None:
    """Of third parties' agents only: ours are the evaluator's own code. Such a file is no submission either."""
    marked = evaluate([sample("Good")], SUITE, isolate="never")
    assert marked.header.in_process
    assert '"in_process":true' in marked.to_text().splitlines()[0]
    assert evaluate(["hold"], SUITE, isolate="never").header.in_process is None
    assert evaluate([sample("Good")], SUITE).header.in_process is None
    with pytest.raises(FleetgymError, match="played in the evaluator's own process"):
        submitted(marked, tmp_path / "a")
    folder = submitted(results, tmp_path / "b", agent="hold")
    lines = lines_of(folder)
    lines[0]["in_process"] = True
    write_lines(folder, lines)
    with pytest.raises(DataError, match=r"\$\[0\]\.in_process"):
        verify(folder)


def test_episodes_that_are_swapped_meanwhile_change_nothing(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was hashed is what is replayed, although the file is another one by then."""
    folder = submitted(results, tmp_path / "a", agent="hold")
    other = submitted(results, tmp_path / "b", agent="gh-rolling")
    expected = verify(folder)
    whole = submission.open_submission

    def swap(path: Path) -> Any:
        files = whole(path)
        for name in ("episodes.jsonl.gz", "submission.toml"):
            shutil.copy(other / name, folder / name)
        return files

    monkeypatch.setattr("fleetgym.leaderboard.verify.open_submission", swap)
    assert verify(folder) == expected
