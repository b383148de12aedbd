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
from fleetgym.files.errors import DataError, FleetgymError

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


@pytest.mark.parametrize(
    ("more", "expected", "way_out"),
    [
        (
            {"gateway_cache": ["HIT", "MISS"] * (COUNT // 2)},
            "may say which requests a cache answered",
            "answered",
        ),
        ({"dd_sample_rate": 0.1}, "may say that the rows are a sample", "sample"),
        ({"sampled_1_in": 10}, "may say that the rows are a sample", "sample"),
        ({"sampling": "1:10"}, "may say that the rows are a sample", "sample"),
        ({"resultCode": [200, 500] * (COUNT // 2)}, "says of some requests that they failed", "status"),
        (
            {"resultCode": ["1e999", 500] * (COUNT // 2)},
            "says of some requests that they failed",
            "status",
        ),
        (
            {"request_ok": ["true", "false"] * (COUNT // 2)},
            "says of some requests that they failed",
            "status",
        ),
        ({"pop": ["us-east-1", "eu-west-1"] * (COUNT // 2)}, "Import each region apart", "region"),
        ({"engineName": "gemma-9-300b"}, "names models, such as 'gemma-9-300b'", "model"),
        ({"request_id": [f"r{k // 2}" for k in range(COUNT)]}, "50% of the first rows have an id", "id"),
    ],
)
def test_columns_are_known_by_what_they_hold(
    more: dict[str, Any], expected: str, way_out: str, tmp_path: Path
) -> None:
    """Under whatever name: asked about, with a way to leave them unread."""
    path = table(tmp_path, **more)
    with pytest.raises(DataError, match=expected):
        made(path)
    assert means(made(path, columns={way_out: "none"}))[0] == COUNT


def test_what_is_named_as_an_id_counts_once(tmp_path: Path) -> None:
    """Of two rows with one id the first counts; a row without an id is a request."""
    path = table(tmp_path, request_id=[f"r{k // 2}" if k < 600 else "" for k in range(COUNT)])
    found = made(path, columns={"id": "request_id"})
    assert means(found)[0] == 400
    assert any("an earlier request has their id: 300 (" in note for note in found.notes)


@pytest.mark.parametrize(("name", "values"), [("success", [1, 0]), ("is_error", ["false", "true"])])
def test_flags_say_which_requests_failed(name: str, values: list[Any], tmp_path: Path) -> None:
    """A zero is a failure in a column of successes."""
    assert means(made(table(tmp_path, **{name: values * (COUNT // 2)})))[0] == COUNT // 2


@pytest.mark.parametrize(
    ("name", "turned"),
    [("status", "503"), ("error", "ThrottlingException: Rate exceeded"), ("errorCode", "RateLimitError")],
)
def test_who_was_turned_away_is_read_in_words(name: str, turned: str, tmp_path: Path) -> None:
    """Codes and names of exceptions, in a column of states or of errors."""
    fine = "200" if name == "status" else ""
    found = made(table(tmp_path, **{name: [fine, turned] * (COUNT // 2)}))
    assert any("turned away (429, 503)" in note and "--scale 2" in note for note in found.notes)


def test_means_of_a_minute_are_no_totals(tmp_path: Path) -> None:
    """Columns whose names say that they are means count once for each request."""
    path = tmp_path / "trace.csv"
    rows = [f"2026-03-02T09:{k:02d}:00,30,512.5,190" for k in range(60)]
    path.write_text("\n".join(["time,requests,avg_prompt_tokens,mean_output", *rows]) + "\n")
    found = made(path, columns={"input": "avg_prompt_tokens", "output": "mean_output"})
    assert means(found) == (1800, 512.5, 190.0)


def test_thousands_of_tokens_are_read_where_the_name_says_so(tmp_path: Path) -> None:
    """And told."""
    path = tmp_path / "trace.csv"
    rows = [f"{2.0 * k},0.512,0.19" for k in range(300)]
    path.write_text("\n".join(["time,input_ktokens,output_tokens_k", *rows]) + "\n")
    found = made(path, columns={"input": "input_ktokens", "output": "output_tokens_k"})
    assert means(found) == (300, 512.0, 190.0)
    assert any("read as thousands" in note for note in found.notes)


def test_dates_that_may_be_two_ask_with_formats_that_work(tmp_path: Path) -> None:
    """The day or the month may be first."""
    path = tmp_path / "trace.csv"
    rows = [f"{t:%d/%m/%Y %H:%M:%S},{i},100" for t, i in zip(TIMES, INPUTS, strict=True)]
    path.write_text("\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    with pytest.raises(DataError, match=r"--time-format '%d/%m/%Y %H:%M:%S' or '%m/%d/%Y %H:%M:%S'"):
        made(path)
    assert means(made(path, time_format="%d/%m/%Y %H:%M:%S"))[0] == COUNT


def test_times_with_and_without_zones_are_refused(tmp_path: Path) -> None:
    """One without may be an hour off."""
    path = tmp_path / "trace.csv"
    rows = [
        f"{t.isoformat() if k % 2 else t.replace(tzinfo=None).isoformat()},9,9" for k, t in enumerate(TIMES)
    ]
    path.write_text("\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    with pytest.raises(DataError, match="a time with its zone, as other rows have"):
        made(path)


def test_compact_rows_of_dynamo_are_read_with_their_blocks(tmp_path: Path) -> None:
    """Wrapped or not; written when they end, and the size of blocks is in each row."""
    records = [
        {
            "event": {
                "schema": "dynamo.request.trace.v1",
                "event_type": "request_end",
                "request": {
                    "request_id": f"r{k}",
                    "request_received_ms": int(time.timestamp() * 1000),
                    "output_tokens": 100,
                    "replay": {
                        "trace_block_size": 64,
                        "input_length": 640,
                        "input_sequence_hashes": [*range(5), k + 9],
                    },
                },
            }
        }
        for k, time in enumerate(TIMES)
    ]
    found = made(lines(tmp_path, [records[1], records[0], *records[2:]]))
    assert means(found) == (COUNT, 640.0, 100.0)
    assert found.statistics.prefix_hits[0] == pytest.approx(0.5, abs=0.01)


def test_counters_of_prometheus_count_by_what_they_add(tmp_path: Path) -> None:
    """Also where one was started again."""
    totals = [(k % 40) * 30 for k in range(90)]
    names = {"request_success": 1, "prompt_tokens": 600, "generation_tokens": 200}
    series = [
        {
            "metric": {"__name__": f"vllm:{name}_total", "model_name": "Llama-3.1-8B"},
            "values": [[1_793_000_000 + 60 * k, str(total * factor)] for k, total in enumerate(totals)],
        }
        for name, factor in names.items()
    ]
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    assert means(made(path)) == (30 * 87, 600.0, 200.0)


def test_many_seldom_workloads_are_named_in_short(tmp_path: Path) -> None:
    """Labels of few requests fit the line that says what is assumed."""
    names = ["chat" if k % 2 else f"tenant-with-a-rather-long-name-{k // 2 % 15}" for k in range(COUNT)]
    path = table(tmp_path, label=names)
    found = import_trace(path, **{**KIB, "scenarios": 1})
    assert len(found.instance.workloads) == 16
    assert "15 workloads, such as tenant" in found.days.assumed[-1]


@pytest.mark.parametrize(("slo", "expected"), [(None, 0.0634), ("ttft=1", 0.0634), ("error=0.054", None)])
def test_no_error_is_asked_of_a_small_model_that_nobody_asked_for(
    slo: str | None, expected: float | None, tmp_path: Path
) -> None:
    """The default gives way where the only candidate has more; one that was asked for is refused."""
    small = {"prices": KIB["prices"], "models": ["Llama-3.2-3B"], "by": "one", "scenarios": 1, "slo": slo}
    for suffix, rows in (("csv", "workload,ttft\n*,1\n"), ("json", '{"*": {"ttft": 1}}')):
        if slo == "ttft=1":  # a file that states no error asks for none, either
            (tmp_path / f"slos.{suffix}").write_text(rows)
            (w,) = import_trace(
                table(tmp_path), **{**small, "slo": str(tmp_path / f"slos.{suffix}")}
            ).instance.workloads
            assert w.error_slo == pytest.approx(expected, abs=0.002)
    if expected is None:
        with pytest.raises(FleetgymError, match=r"error=0\.054 of workload 'all' is out of reach"):
            import_trace(table(tmp_path), **small)
    else:
        (w,) = import_trace(table(tmp_path), **small).instance.workloads
        assert w.error_slo == pytest.approx(expected, abs=0.002)


def test_tokens_of_a_model_that_their_column_names(tmp_path: Path) -> None:
    """As in the calls of Weave, whose usage is by model: it is not served by any other."""
    usage = [
        {"usage": {"Llama-3.1-70B": {"prompt_tokens": 900, "completion_tokens": 200}}} for _ in range(900)
    ]
    rows = [{"started_at": f"2026-11-02T08:{k // 60:02}:{k % 60:02}Z", **row} for k, row in enumerate(usage)]
    file = tmp_path / "calls.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(FleetgymError, match="has the tokens of 'Llama-3.1-70B', and no column names models"):
        import_trace(file)
    made = import_trace(file, columns={"model": "none"}, models=["Llama-3.1-70B"], scenarios=1)
    assert {c.model for c in made.instance.configurations} == {"Llama-3.1-70B"}


def test_spans_of_openinference(tmp_path: Path) -> None:
    """What the cache had, and what was reasoned, stand in details of their own."""
    head = "start_time,llm.token_count.prompt,llm.token_count.completion,llm.token_count.total"
    more = "llm.token_count.prompt_details.cache_read,llm.token_count.completion_details.reasoning"
    rows = [f"2026-11-02 08:{k // 60:02}:{k % 60:02} UTC,1000,200,1200,600,150" for k in range(900)]
    (tmp_path / "spans.csv").write_text("\n".join([f"{head},{more}", *rows]))
    made = import_trace(tmp_path / "spans.csv", scenarios=1, models=["Llama-3.1-8B"])
    assert made.instance.workloads[0].output_tokens == 200.0
    assert "60.0% of the prompt tokens are there" in made.instance.provenance["prefix cache"]


@pytest.mark.parametrize(("epoch", "per_s"), [(11_644_473_600, 10**7), (62_135_596_800, 10**7)])
def test_numbers_of_other_epochs_are_no_times(epoch: int, per_s: int, tmp_path: Path) -> None:
    """FILETIME of Windows and ticks of .NET are not nanoseconds since 1970."""
    rows = [f"{(1_793_000_000 + epoch + 60 * k) * per_s},1000,200" for k in range(2000)]
    (tmp_path / "t.csv").write_text("\n".join(["time,input_tokens,output_tokens", *rows]))
    with pytest.raises(FleetgymError, match="microseconds, fewer than"):
        import_trace(tmp_path / "t.csv")


def test_chunks_of_a_request_are_asked_about(tmp_path: Path) -> None:
    """An id in each of ten rows."""
    rows = [f"{k},r{k // 10},1000,20" for k in range(2000)]
    (tmp_path / "t.csv").write_text("\n".join(["time,request_id,input_tokens,output_tokens", *rows]))
    with pytest.raises(FleetgymError, match="of its chunks"):
        import_trace(tmp_path / "t.csv")
