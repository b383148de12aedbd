"""Nothing unread: columns that are not used are named, and those that change the answer are read or asked about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import SHARED

from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.importing import ImportedTrace
from fleetgym.capacity.traces.target import target_instance
from fleetgym.files.errors import DataError, FleetgymError

OPTIONS: dict[str, Any] = {"models": ["Llama-3.1-8B"], "gpus": ["L40S"], "by": "one", "scenarios": 1}
CASES = SHARED / "cases" / "planner-2026-11-27"


def made(folder: Path, head: str, row: str, rows: int = 300, **options: Any) -> ImportedTrace:
    """Import a trace whose row k is `row` formatted with k."""
    path = folder / "trace.csv"
    lines = [row.format(k=k, t=2.0 * k, odd=k % 2, third=k % 3) for k in range(rows)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return import_trace(path, **{**OPTIONS, **options})


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    """All of them, up to twelve."""
    found = made(tmp_path, "time,input_tokens,output_tokens,user,region", "{t},100,20,u{k},eu")
    assert "columns that were not read: user, region" in found.notes
    many = ",".join(f"c{k}" for k in range(15))
    found = made(tmp_path, f"time,input_tokens,output_tokens,{many}", "{t},100,20" + ",x" * 15)
    assert any(note.endswith("c10, c11 and 3 more") for note in found.notes)


@pytest.mark.parametrize(
    ("name", "hit", "miss"),
    [
        ("cache_hit", "True", "False"),
        ("cacheStatus", "HIT", "MISS"),
        ("cached", "1", "0"),
        ("is_cached", "yes", ""),
    ],
)
def test_what_a_cache_answered_reaches_no_gpu(tmp_path: Path, name: str, hit: str, miss: str) -> None:
    """Every second request is left out, and told."""
    path = tmp_path / "trace.csv"
    rows = [f"{2.0 * k},100,20,{hit if k % 2 else miss}" for k in range(300)]
    path.write_text("\n".join([f"time,input_tokens,output_tokens,{name}", *rows]) + "\n")
    found = import_trace(path, **OPTIONS)
    assert found.statistics.requests == 150
    assert any("a cache answered them" in note and "150 (50.0%" in note for note in found.notes)


def test_a_column_of_hits_that_counts_tokens_is_asked_about(tmp_path: Path) -> None:
    """With the words that help, which then do."""
    head, row = "time,input_tokens,output_tokens,cached", "{t},100,20,64"
    with pytest.raises(DataError, match="--columns cached=cached,answered=none"):
        made(tmp_path, head, row)
    found = made(tmp_path, head, row, columns={"cached": "cached", "answered": "none"})
    assert found.statistics.prefix_hits[0] == pytest.approx(0.64)


def test_reasoning_tokens_are_output(tmp_path: Path) -> None:
    """By the total; without one they are asked about, and details are a part."""
    head = "time,prompt_tokens,completion_tokens,reasoning_tokens"
    apart = made(tmp_path, f"{head},total_tokens", "{t},100,20,500,620")
    assert apart.statistics.output_mean[0].mean() == pytest.approx(520.0)
    part = made(tmp_path, f"{head},total_tokens", "{t},100,520,500,620")
    assert part.statistics.output_mean[0].mean() == pytest.approx(520.0)
    with pytest.raises(DataError, match="--columns reasoning=reasoning_tokens to add them"):
        made(tmp_path, head, "{t},100,20,500")
    told = made(tmp_path, head, "{t},100,20,500", columns={"reasoning": "reasoning_tokens"})
    assert told.statistics.output_mean[0].mean() == pytest.approx(520.0)
    told = made(tmp_path, head, "{t},100,520,500", columns={"reasoning": "none"})
    assert told.statistics.output_mean[0].mean() == pytest.approx(520.0)
    details = head.replace("reasoning_tokens", "usage.completion_tokens_details.reasoning_tokens")
    assert made(tmp_path, details, "{t},100,520,500").statistics.output_mean[0].mean() == pytest.approx(520.0)


def test_requests_that_were_turned_away_are_told_apart(tmp_path: Path) -> None:
    """Two thirds of the rows failed, half of these for a limit of the rate."""
    path = tmp_path / "trace.csv"
    rows = [f"{2.0 * k},100,20,{(200, 429, 500)[k % 3]}" for k in range(300)]
    path.write_text("\n".join(["time,input_tokens,output_tokens,status_code", *rows]) + "\n")
    found = import_trace(path, **OPTIONS)
    assert found.statistics.requests == 100
    assert sum("turned away (429, 503)" in note and ": 100 (" in note for note in found.notes) == 1
    assert sum("because they failed" in note and ": 100 (" in note for note in found.notes) == 1


@pytest.mark.parametrize(("status", "told"), [("200", True), ("500", False), ("", False)])
def test_streams_without_usage_are_demand(tmp_path: Path, status: str, told: bool) -> None:
    """Requests that went well and whose tokens are not told are told apart from failed ones."""
    path = tmp_path / "trace.csv"
    rows = [f"{2.0 * k},100,20,200" if k % 3 else f"{2.0 * k},100,,{status}" for k in range(600)]
    path.write_text("\n".join(["time,input_tokens,output_tokens,status", *rows]))
    found = import_trace(path, **OPTIONS)
    assert found.statistics.requests == 400
    assert any("demand that is not planned for. Have them logged" in note for note in found.notes) == told


def test_a_column_that_names_models_is_asked_about(tmp_path: Path) -> None:
    """Whatever it is called; a column of other words is not."""
    head, row = "time,input_tokens,output_tokens,engine", "{t},100,20,meta-llama/Llama-3.1-70B-Instruct"
    with pytest.raises(
        DataError, match="the column 'engine' names models, such as 'meta-llama/Llama-3.1-70B"
    ):
        made(tmp_path, head, row)
    assert made(tmp_path, head, row, columns={"model": "none"}).statistics.requests == 300
    assert made(tmp_path, head, "{t},100,20,worker-{k}").statistics.requests == 300


def test_cached_tokens_are_a_part_of_the_input(tmp_path: Path) -> None:
    """As OpenAI counts; Anthropic's names say that the input tokens are the rest."""
    part = made(tmp_path, "time,input_tokens,output_tokens,cached_tokens", "{t},100,20,64").statistics
    assert (part.lengths[0, 0], part.prefix_hits[0]) == pytest.approx((100.0, 0.64))
    rest = made(
        tmp_path, "time,input_tokens,output_tokens,cache_read_input_tokens", "{t},36,20,64"
    ).statistics
    assert (rest.lengths[0, 0], rest.prefix_hits[0]) == pytest.approx((100.0, 0.64))


def test_counters_are_refused(tmp_path: Path) -> None:
    """What never falls tells all since a start."""
    head = "time,input_tokens,output_tokens,num_requests"
    says = "hardly ever fall: they are counters"
    with pytest.raises(DataError, match=says):
        made(tmp_path, head, "{k}00,{k}0000,{k}00,{k}0", rows=30)
    assert made(tmp_path, head, "{k}00,1{odd}000,200,1{third}", rows=30).statistics.requests > 0
    # Those of two series stand between one another, and one of them was started again.
    rows = [
        f"{300 * k},{1000 * (k % 25 + 1) * n},{100 * (k % 25 + 1) * n},{10 * (k % 25 + 1) * n},s{n}"
        for k in range(40)
        for n in (1, 7)
    ]
    path = tmp_path / "two.csv"
    path.write_text("\n".join([f"{head},workload", *rows]) + "\n")
    with pytest.raises(DataError, match=says):
        import_trace(path, **{**OPTIONS, "by": "label"})


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared cases are not here (FLEETGYM_SHARED names the folder)"
)
@pytest.mark.parametrize(
    ("name", "requests", "output"),
    [
        ("litellm_cache_hit.csv", 240, None),
        ("reasoning_apart.csv", 600, 4255),
        ("throttled_429.csv", 1431, None),
    ],
)
def test_cases(name: str, requests: int, output: float | None) -> None:
    """Requests that reach a GPU, and what they generate."""
    found = import_trace(CASES / name, scenarios=1).statistics
    assert found.requests == requests
    if output is not None:
        assert found.lengths[0, 1] == pytest.approx(output, rel=0.01)


@pytest.mark.parametrize(
    "slo",
    [
        "ttft=24h",
        "ttft=1 day",
        "ttft.p99=1440min",
        "e2e=2hours",
        "tpot=1h",
        "deadline=24h",
        "completion_window=24h",
    ],
)
@pytest.mark.parametrize("form", ["words", "csv", "json"])
def test_deadlines_of_hours_are_refused_by_name(slo: str, form: str, tmp_path: Path) -> None:
    """A plan serves or drops what comes in a window; deferred work is another question."""
    head, row, (name, value) = "time,input_tokens,output_tokens", "{t},100,20", slo.split("=")
    given = {"words": slo, "csv": tmp_path / "slo.csv", "json": tmp_path / "slo.json"}
    (tmp_path / "slo.csv").write_text(f"workload,{name}\n*,{value}\n")
    (tmp_path / "slo.json").write_text(json.dumps({"*": {name: value}}))
    with pytest.raises(FleetgymError, match="deferred work"):
        made(tmp_path, head, row, slo=str(given[form]))
    with pytest.raises(FleetgymError, match="deferred work"):
        target_instance({"a": 1.0}, {"*": 100}, {"*": 20}, models=["Llama-3.1-8B"], slo=str(given[form]))


def test_five_minutes_are_no_deadline_of_hours(tmp_path: Path) -> None:
    """They are a window."""
    head, row = "time,input_tokens,output_tokens", "{t},100,20"
    assert made(tmp_path, head, row, slo="ttft=300s").statistics.requests == 300


def test_models_published_in_4_bit_are_served_so(tmp_path: Path) -> None:
    """gpt-oss-120b runs on one GPU of 80 GB."""
    head, row = "time,input_tokens,output_tokens", "{t},100,20"
    found = made(tmp_path, head, row, models=["gpt-oss-120b"], gpus=["H100"])
    assert {c.id.split(":")[0].rpartition("-")[2] for c in found.instance.configurations} == {"int4"}
    assert min(sum(use.gpus for use in c.uses) for c in found.instance.configurations) == 1


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("request_received_ts,input_tokens,output_tokens", "'request_received_ts'? Then say --columns time="),
        ("time,genai_tokens_input,genai_tokens_output", "'genai_tokens_input'? Then say --columns input="),
        ("time,promptTokens,tokensOutUsed", "'tokensOutUsed'? Then say --columns output=tokensOutUsed"),
    ],
)
def test_a_missing_column_is_looked_for(head: str, says: str, tmp_path: Path) -> None:
    """The error asks about a name that may mean it."""
    with pytest.raises(DataError) as caught:
        made(tmp_path, head, "{t},100,20")
    assert says in str(caught.value)


def test_a_dash_is_no_number(tmp_path: Path) -> None:
    """A proxy writes it for what it does not know, as of requests that were turned away."""
    rows = "{t},200,100,20\n{t},503,-,-"
    found = made(tmp_path, "time,status,input_tokens,output_tokens", rows)
    assert found.statistics.requests == 300
    assert any(
        "turned away (429, 503)" in note and "300 are planned for, 600" in note for note in found.notes
    )


def test_all_columns_of_models_are_named(tmp_path: Path) -> None:
    """The one that was asked for, and the one that answered."""
    head = "time,input_tokens,output_tokens,askedModel,usedModel"
    with pytest.raises(DataError, match="say --columns model=askedModel or model=usedModel, or"):
        made(tmp_path, head, "{t},100,20,llama-3.1-70b,Llama-3.1-8B", models=None)


@pytest.mark.parametrize(
    ("label", "like"),
    [("gemma-3-27b-it", "Qwen3-32B"), ("acme-7b", "Llama-3.1-8B"), ("gpt-4o", "Llama-3.1-70B")],
)
def test_a_hint_is_of_the_size_that_is_named(label: str, like: str, tmp_path: Path) -> None:
    """A model that is unknown is not said to be ten times as large."""
    with pytest.raises(FleetgymError, match=f"--bind '{label}={like}'") as caught:
        made(tmp_path, "time,input_tokens,output_tokens,model", "{t},100,20," + label, models=None)
    assert ("--model-file" in str(caught.value)) == (label != "gpt-4o")
