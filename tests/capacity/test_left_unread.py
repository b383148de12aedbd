"""What a trace holds beside times and tokens: asked about, read, told, or passed over up to a share."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.importing import ImportedTrace
from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.traces.reader import read_trace
from fleetgym.files.errors import DataError

COUNT = 700
START = datetime.datetime(2026, 3, 2, 9, tzinfo=datetime.UTC)
RNG = np.random.default_rng(7)
SECONDS = np.sort(RNG.uniform(0.0, 1500.0, COUNT))
INPUTS = RNG.integers(300, 1500, COUNT).tolist()
OUTPUTS = RNG.integers(50, 400, COUNT).tolist()
TIMES = [START + datetime.timedelta(seconds=float(s)) for s in SECONDS]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
KIB = {"prices": [Offer(gpu="H100", usd_per_gpu_h=3.0, region="us-east-1")], "models": ["Llama-3.1-8B"]}


def table(folder: Path, **more: Any) -> Path:
    """Write a table of requests with more columns, each a list or one value for all."""
    path = folder / "trace.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["timestamp", "input_tokens", "output_tokens", *more])
        columns = [v if isinstance(v, list) else [v] * COUNT for v in more.values()]
        rows = zip([t.isoformat() for t in TIMES], INPUTS, OUTPUTS, *columns, strict=True)
        writer.writerows(rows)
    return path


def lines(folder: Path, records: list[dict[str, Any]]) -> Path:
    """Write JSON Lines."""
    path = folder / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return path


def made(path: Path, **options: Any) -> ImportedTrace:
    """Return what an import makes of one workload."""
    return import_trace(path, **{**KIB, "by": "one", "scenarios": 1, **options})


def means(found: ImportedTrace) -> tuple[int, float, float]:
    """Return requests, and mean input and output tokens."""
    (w,) = found.instance.workloads
    return found.statistics.requests, w.input_tokens, w.output_tokens


@pytest.mark.parametrize(
    ("more", "expected", "way_out"),
    [
        ({"sampling_percentage": 25}, "expected 100, all requests", {"sample": "none"}),
        ({"SampleWeight": 4}, "expected 1, all requests", {"sample": "none"}),
        ({"thinking": 900}, "may hold tokens of reasoning", {"reasoning": "none"}),
        (
            {"region": ["us-east-1", "eu-west-1"] * (COUNT // 2)},
            "Import each region apart",
            {"region": "none"},
        ),
        (
            {"total_tokens": [i + o + 900 for i, o in zip(INPUTS, OUTPUTS, strict=True)]},
            "above the input",
            {"total": "none"},
        ),
    ],
)
def test_columns_that_change_the_answer_are_asked_about(
    more: dict[str, Any], expected: str, way_out: dict[str, str], tmp_path: Path
) -> None:
    """Each has a way out, which the message names."""
    path = table(tmp_path, **more)
    with pytest.raises(DataError, match=expected) as refused:
        made(path)
    (role,) = way_out
    assert f"{role}=none" in str(refused.value)
    assert means(made(path, columns=way_out))[0] == COUNT


def test_reasoning_in_any_column_is_added(tmp_path: Path) -> None:
    """As the message says."""
    _, _, plain = means(made(table(tmp_path)))
    _, _, more = means(made(table(tmp_path, thinking=900), columns={"reasoning": "thinking"}))
    assert more == pytest.approx(plain + 900, rel=1e-5)


def test_one_region_is_not_asked_about(tmp_path: Path) -> None:
    """Nothing would change; the column is still told."""
    found = made(table(tmp_path, region="us-east-1"))
    assert any("columns that were not read: region" in note for note in found.notes)


def test_tokens_that_are_not_counted_are_told_in_amounts(tmp_path: Path) -> None:
    """Per row; limits and rates are no amounts."""
    notes = made(table(tmp_path, image_tokens=1500, max_tokens=4096, tokens_per_second=80.5)).notes
    assert "tokens that are not counted: image_tokens (1,500 a row)" in notes


def test_totals_of_periods_without_a_count_are_refused(tmp_path: Path) -> None:
    """Rows as regular as a clock are no requests; with a count they are read."""
    path, minutes = tmp_path / "usage.json", range(40)
    data = [
        {
            "starting_at": (START + datetime.timedelta(minutes=m)).isoformat(),
            "results": [{"uncached_input_tokens": 9000, "output_tokens": 2000, "number": 10}],
        }
        for m in minutes
    ]
    path.write_text(json.dumps({"data": data, "has_more": False}))
    with pytest.raises(DataError, match="rows come every 60 s exactly, as totals of a period do"):
        made(path)
    assert means(made(path, columns={"count": "number"})) == (400, 900.0, 200.0)


def test_clocks_that_are_put_back_are_named(tmp_path: Path) -> None:
    """An hour back is no disorder."""
    path = tmp_path / "local.csv"
    half = COUNT // 2
    times = [t.replace(tzinfo=None) - datetime.timedelta(hours=k >= half) for k, t in enumerate(TIMES)]
    rows = [f"{t.isoformat()},{i},{o}" for t, i, o in zip(times, INPUTS, OUTPUTS, strict=True)]
    path.write_text("\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    with pytest.raises(DataError, match="by an hour, as when clocks are put back"):
        made(path)


@pytest.mark.parametrize("kind", ["span_kind", "run_type"])
def test_steps_around_a_call_are_no_calls(kind: str, tmp_path: Path) -> None:
    """A chain repeats the tokens of the call within it; a column of other kinds is left alone."""
    usage = [{"prompt_tokens": i, "completion_tokens": o} for i, o in zip(INPUTS, OUTPUTS, strict=True)]
    records = [
        {"start_time": t.isoformat(), kind: what, "usage": u}
        for t, u in zip(TIMES, usage, strict=True)
        for what in ("CHAIN", "LLM")
    ]
    assert means(made(lines(tmp_path, records)))[0] == COUNT
    others = [{**record, kind: "SERVER"} for record in records]
    assert means(made(lines(tmp_path, others)))[0] == 2 * COUNT


def test_json_in_texts_is_read(tmp_path: Path) -> None:
    """As logs of clouds and of MLflow keep it."""
    records = [
        {
            "time": t.isoformat(),
            "properties": json.dumps({"modelName": MODEL, "promptTokens": i, "completionTokens": o}),
        }
        for t, i, o in zip(TIMES, INPUTS, OUTPUTS, strict=True)
    ]
    requests, inputs, outputs = means(made(lines(tmp_path, records)))
    assert (requests, round(inputs), round(outputs)) == (
        COUNT,
        round(np.mean(INPUTS)),
        round(np.mean(OUTPUTS)),
    )


def bad_csv(folder: Path) -> Path:
    """Write a table with a wrong number, a wrong time, and a line that was cut off."""
    path = table(folder)
    rows = path.read_text().splitlines()
    rows[100] = rows[100].rsplit(",", 1)[0] + ",-5"
    rows[200] = "yesterday" + rows[200][rows[200].index(",") :]
    path.write_text("\n".join([*rows, "2026-03-02T09:30:01+00:00,12"]) + "\n")
    return path


def bad_lines(folder: Path) -> Path:
    """Write JSON Lines of which two are cut off, and one lacks a number."""
    records = [
        {"time": t.isoformat(), "input_tokens": i, "output_tokens": o}
        for t, i, o in zip(TIMES, INPUTS, OUTPUTS, strict=True)
    ]
    path = lines(folder, [*records[:300], {**records[300], "input_tokens": "many"}, *records[301:]])
    text = path.read_text().splitlines()
    path.write_text("\n".join([*text[:50], text[50][:20], *text[50:], text[9][:30]]) + "\n")
    return path


@pytest.mark.parametrize("write", [bad_csv, bad_lines])
def test_bad_rows_are_passed_over_up_to_a_share(write: Any, tmp_path: Path) -> None:
    """Three rows; their number, share and the first fault are told. One more than accepted is refused."""
    path = write(tmp_path)
    with pytest.raises(DataError):
        made(path)
    found = made(path, skip_bad_rows=0.01)
    rows = COUNT + 1 if write is bad_csv else COUNT + 2
    assert found.statistics.requests == rows - 3
    (note,) = [note for note in found.notes if "cannot be read" in note]
    assert f"3 of {rows}" in note
    assert "the first, line " in note
    with pytest.raises(DataError, match=f"3 of {rows} rows .* more than the 0.40% of --skip-bad-rows"):
        made(path, skip_bad_rows=0.004)


def test_nothing_is_passed_over_in_good_files(tmp_path: Path) -> None:
    """The rows are the same with and without the option."""
    path = table(tmp_path)
    with read_trace(path) as one, read_trace(path, skip_bad_rows=0.5) as other:
        for a, b in zip(one.chunks(), other.chunks(), strict=True):
            assert np.array_equal(a, b)
        assert one.notes == other.notes


def test_what_was_turned_away_is_told_as_a_scale(tmp_path: Path) -> None:
    """Both demands stand there: with and without the requests that got 429."""
    path = table(tmp_path, status_code=[429 if k % 5 == 0 else 200 for k in range(COUNT)])
    (note,) = [note for note in made(path).notes if "429" in note]
    assert "140 (20.0% of requests" in note
    assert note.endswith("560 are planned for, 700 with these: --scale 1.25")
