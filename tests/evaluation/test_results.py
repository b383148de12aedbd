"""Results files: what is written is read back to the bit, and everything else is refused where it is wrong."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgym.evaluation.changes import decode_actions, encode_actions
from fleetgym.evaluation.results import (
    Results,
    ResultsWriter,
    parse_results,
    read_results,
    timings_path,
)
from fleetgym.evaluation.results_format import Failure, Timing
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.window import COST_TERMS
from fleetgym.scoring.score import score

Lines = list[Any]


@pytest.fixture(scope="module")
def results() -> Results:
    """Four episodes."""
    return evaluate(["hold", "random"], ["fleet-v0/toy/two-pools", "fleet-v0/toy/drop"])


def write(path: Path, lines: Lines) -> Path:
    """Write parsed or raw lines to a file."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_text(text)
    return path


def test_round_trip(results: Results, tmp_path: Path) -> None:
    """What is written is read back equal, plain and gzipped, and written again to the same bytes."""
    plain, packed = tmp_path / "r.jsonl", tmp_path / "r.jsonl.gz"
    plain.write_text(results.to_text())
    packed.write_bytes(gzip.compress(results.to_text().encode()))
    for path in (plain, packed):
        back = read_results(path)
        assert back.header == results.header
        assert back.episodes == results.episodes
        assert back.to_text() == results.to_text()


def test_cost_terms_are_the_environments() -> None:
    """Results use the names of the environment's info."""
    from fleetgym import reference
    from fleetgym.evaluation import results_format as episode

    assert episode.COST_TERMS == tuple(COST_TERMS) == reference.COST_TERMS


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=12))
def test_actions_survive_encoding(rows: list[list[int]]) -> None:
    """Changes and actions are the same information."""
    actions = np.array(rows)
    changes = encode_actions(actions)
    assert np.array_equal(decode_actions(changes, len(rows), [4, 4, 4]), actions)


def _set(line: int, *path: Any, to: Any) -> Callable[[Lines], None]:
    def damage(lines: Lines) -> None:
        place = lines[line]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return damage


def _drop(line: int, key: str) -> Callable[[Lines], None]:
    return lambda lines: lines[line].pop(key)


def _replace(line: int, text: str) -> Callable[[Lines], None]:
    def damage(lines: Lines) -> None:
        lines[line] = text

    return damage


def _cut(line: int) -> Callable[[Lines], None]:
    def damage(lines: Lines) -> None:
        lines[line] = json.dumps(lines[line])[:-40]

    return damage


def _insert_nan(lines: Lines) -> None:
    lines[2]["cost_usd"] = float("nan")


def _overflow(lines: Lines) -> None:
    lines[2] = json.dumps({**lines[2], "cost_usd": "HUGE"}).replace('"HUGE"', "1e999")


def _scale_costs(lines: Lines) -> None:
    lines[2]["cost_usd"] *= 2


def _repeat(lines: Lines) -> None:
    lines[2] = lines[1]


def _swap(lines: Lines) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def _unchanged_change(lines: Lines) -> None:
    window, slot, option = lines[1]["actions"][0]
    lines[1]["actions"].append([7, slot, option])


def _fail_late(lines: Lines) -> None:
    lines[1]["failure"] = {"window": 4, "kind": "raised", "message": "boom"}


BROKEN: dict[str, tuple[Callable[[Lines], Any], str, str]] = {
    # name: damage, place, part of the message
    "no header": (lambda lines: lines.pop(0), "$[0]", "not a results file"),
    "header of another format": (
        _set(0, "format", to="fleetgym-results-9"),
        "$[0].format",
        "fleetgym-results-1",
    ),
    "header without hash": (_drop(0, "jobs_hash"), "$[0]", "missing key 'jobs_hash'"),
    "header of other jobs": (_set(0, "jobs_hash", to="0" * 64), "$[0].jobs_hash", "does not belong"),
    "header without instances": (_set(0, "instances", to={}), "$[0].instances", "at least one"),
    "too few episodes": (lambda lines: lines.pop(), "$[3]", "holds 3 of 4 episodes"),
    "too many episodes": (_set(0, "num_jobs", to=3), "$[4]", "announces 3"),
    "line cut in the middle": (_cut(2), "$[2]", "not JSON"),
    "empty line": (_replace(2, ""), "$[2]", "not JSON"),
    "not an object": (_replace(2, "[1, 2]"), "$[2]", "expected an object"),
    "a key twice": (_replace(2, '{"agent": "a", "agent": "b"}'), "$[2]", "appears twice"),
    "unknown key": (_set(2, "colour", to="blue"), "$[2]", "unknown key 'colour'"),
    "missing key": (_drop(2, "costs"), "$[2]", "missing key 'costs'"),
    "NaN": (_insert_nan, "$[2]", "NaN is not a number"),
    "infinite number": (_overflow, "$[2].cost_usd", "from 1e-60 to 1e60 USD, got inf"),
    "text for a number": (_set(2, "cost_usd", to="12"), "$[2].cost_usd", "expected a number"),
    "negative cost": (_set(2, "costs", "rental", to=-1.0), "$[2].costs.rental", "from 0 to 1e60 USD"),
    "free episode": (_set(2, "cost_usd", to=0.0), "$[2].cost_usd", "from 1e-60"),
    "terms that do not add up": (_scale_costs, "$[2].costs", "adds up to"),
    "windows that do not add up": (
        _set(2, "cost_per_window_usd", 0, to=999.0),
        "$[2].cost_per_window_usd",
        "adds up",
    ),
    "missing window": (
        lambda lines: lines[2]["cost_per_window_usd"].pop(),
        "$[2].cost_per_window_usd",
        "windows",
    ),
    "share above one": (_set(2, "miss_share", to=1.5), "$[2].miss_share", "from 0 to 1,"),
    "unserved but not missed": (
        _set(2, "unserved_share", to=1.0),
        "$[2].miss_share",
        "at least unserved_share",
    ),
    "same job twice": (_repeat, "$[2]", "the same job as in line 2"),
    "other order": (_swap, "$[0].jobs_hash", "in this order"),
    "unknown instance": (_set(1, "instance", to="fleet-v0/toy/other"), "$[1].instance", "knows no instance"),
    "option that does not exist": (
        _set(1, "actions", 0, 2, to=99),
        "$[1].actions[0][2]",
        "expected an option from 0",
    ),
    "slot that does not exist": (
        _set(1, "actions", to=[[0, 9, 1]]),
        "$[1].actions[0][1]",
        "expected a slot from 0",
    ),
    "window that does not exist": (
        _set(1, "actions", to=[[88, 0, 1]]),
        "$[1].actions[0][0]",
        "expected a window",
    ),
    "changes out of order": (
        _set(1, "actions", to=[[3, 0, 1], [2, 0, 0]]),
        "$[1].actions[1]",
        "after (3, 0)",
    ),
    "change that changes nothing": (_unchanged_change, "$[1].actions", "held already"),
    "fraction of an option": (_set(1, "actions", 0, 2, to=1.5), "$[1].actions[0][2]", "whole number"),
    "failure of unknown kind": (
        _set(1, "failure", to={"window": 1, "kind": "sulked", "message": ""}),
        "$[1].failure.kind",
        "expected one of",
    ),
    "fleet after a failure": (_fail_late, "$[1].actions", "empty fleet from the failure on"),
    "negative seed": (_set(1, "seed", to=-1), "$[1].seed", "whole number"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(results: Results, tmp_path: Path, name: str) -> None:
    """The error names the file, the line and the place."""
    damage, place, message = BROKEN[name]
    lines: Lines = [json.loads(line) for line in results.to_text().splitlines()]
    damage(lines)
    path = write(tmp_path / "broken.jsonl", lines)
    with pytest.raises(DataError) as caught:
        read_results(path)
    number = int(caught.value.path[2 : caught.value.path.index("]")])
    assert str(caught.value).startswith(f"{path}:{number + 1}: {place}")
    assert message in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path, results: Results) -> None:
    """Not UTF-8, empty, or cut gzip: one line that says so."""
    cases = {
        "latin.jsonl": (b"\xff\xfe{}\n", "not UTF-8"),
        "empty.jsonl": (b"", "empty"),
        "cut.jsonl.gz": (gzip.compress(results.to_text().encode())[:-20], "gzip"),
    }
    for name, (raw, message) in cases.items():
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(DataError, match=message):
            read_results(tmp_path / name)


def test_a_torn_last_line_is_an_error_unless_the_run_goes_on(results: Results) -> None:
    """Strict reading refuses it; reading for resumption drops it and says how much is whole."""
    text = results.to_text()
    torn = text[:-30]
    with pytest.raises(DataError, match="cut short"):
        parse_results(torn)
    partial, length = parse_results(torn, allow_incomplete=True)
    assert len(partial.episodes) == 3
    assert text[:length].endswith("\n")
    assert not partial.is_complete


def test_timings_of_a_file_that_was_packed_are_not_overwritten(results: Results, tmp_path: Path) -> None:
    """They belong to `x.jsonl.gz` now: a new run of the name `x.jsonl` is refused, and loses nothing."""
    path = tmp_path / "x.jsonl"
    timings_path(path).write_text("of another run\n")
    with pytest.raises(FleetgymError, match="holds the timings of another run"):
        ResultsWriter(path, results.header)
    assert timings_path(path).read_text() == "of another run\n"
    assert not path.exists()
    timings_path(path).write_text("")
    ResultsWriter(path, results.header).close()


def test_decisions_end_with_the_agent(results: Results) -> None:
    """They are counted to the failure, or to the window in which the budget was spent."""
    episode = results.episodes[0]
    windows = len(episode.cost_per_window_usd or ())
    failed = Failure(window=3, kind="raised", message="x")
    assert episode.decisions(windows) == windows
    assert dataclasses.replace(episode, failure=failed).decisions(windows) == 3
    assert dataclasses.replace(episode, budget_spent_at_window=1).decisions(windows) == 2
    assert dataclasses.replace(episode, budget_spent_at_window=windows - 1).decisions(windows) == windows
    timing = Timing(reset_cpu_s=2.0, act_cpu_s=(0.25, 0.5))
    assert (timing.acting_s, timing.total_s) == (0.75, 2.75)
    slow = dataclasses.replace(timing, speed=0.5)
    assert (slow.acting_s, slow.total_s) == (0.375, 1.375)


def test_numbers_that_are_not_finite_are_never_written(results: Results) -> None:
    """NaN in an episode is an error when it is written, not when it is read."""
    import dataclasses

    bad = dataclasses.replace(results.episodes[0], cost_usd=float("nan"))
    with pytest.raises(DataError, match="not finite"):
        bad.to_line()


@pytest.mark.parametrize("name", ["r.jsonl", "r.timings.jsonl"])
@pytest.mark.parametrize("how", ["out", "resume"])
def test_a_pipe_is_no_results_file(name: str, how: str, tmp_path: Path) -> None:
    """To open one would wait for a reader."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(FleetgymError, match=rf"{name} is a pipe"):
        evaluate(["hold"], "fleet-v0/toy/two-pools", **{how: tmp_path / "r.jsonl"})


def test_a_run_on_other_instances_names_its_file(results: Results, tmp_path: Path) -> None:
    """Its header has other hashes than the best-known costs."""
    path = tmp_path / "r.jsonl"
    text = results.to_text()
    changed = next(iter(results.header.instances.values())).content_hash
    path.write_text(text.replace(changed, "1" * len(changed)))
    with pytest.raises(FleetgymError, match=r"r\.jsonl: .* is not the one that bks"):
        score(path)
