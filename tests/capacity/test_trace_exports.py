"""The same requests in the layouts of programs that people have, made as their documentation shows them."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgym.capacity.traces.reader import Trace, read_trace
from fleetgym.files.errors import DataError

START = 1_772_442_000  # 2026-03-02 09:00 UTC
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
REQUESTS = [(0.25 + 3.0 * k, 100 + k % 40, 20 + k % 7) for k in range(200)]  # seconds, tokens in and out
TOKENS = sum(i + o for _, i, o in REQUESTS)


def lines(path: Path, rows: Iterable[Any]) -> None:
    """Write JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def date(t: float, form: str = "%Y-%m-%d %H:%M:%S.%f") -> str:
    """Return a request's time as a date."""
    return datetime.datetime.fromtimestamp(START + t, datetime.UTC).strftime(form)


def nano(t: float) -> int:
    """Return a request's time in nanoseconds."""
    return START * 10**9 + round(t * 1e9)


def aiperf(path: Path) -> None:
    """Write ``profile_export.jsonl``; a failed record has no metrics."""
    good = [
        {
            "metadata": {"session_num": k, "request_start_ns": nano(t), "benchmark_phase": "profiling"},
            "metrics": {
                "input_sequence_length": {"value": i, "unit": "tokens"},
                "output_token_count": {"value": o - 1, "unit": "tokens"},
                "output_sequence_length": {"value": o, "unit": "tokens"},
            },
            "error": None,
        }
        for k, (t, i, o) in enumerate(REQUESTS)
    ]
    failed = {
        "metadata": {"request_start_ns": nano(5.0)},
        "metrics": {},
        "error": {"code": 499, "type": "Cancelled"},
    }
    lines(path, [*good, failed])


def inference_perf(path: Path) -> None:
    """Write ``per_request_lifecycle_metrics.json``; requests are not in order of time."""
    rows = [
        {
            "start_time": 5000.0 + t,
            "end_time": 5001.0 + t,
            "request": "{}",
            "response": "x",
            "info": {"input_tokens": i, "output_tokens": o, "output_token_times": [1.0]},
            "error": None,
        }
        for t, i, o in reversed(REQUESTS)
    ]
    rows.append({**rows[0], "error": {"error_type": "TimeoutError", "error_msg": "x"}})
    path.write_text(json.dumps(rows))


def langfuse(path: Path) -> None:
    """Write the export of enriched observations; a span is no generation."""
    rows: list[dict[str, Any]] = []
    for k, (t, i, o) in enumerate(REQUESTS):
        usage = {"input": i, "output": o, "total": i + o}
        row = {"id": f"o{k}", "type": "GENERATION", "start_time": date(t), "level": "DEFAULT"}
        rows.append({**row, "provided_model_name": MODEL, "usage_details": usage})
        rows.append({**row, "id": f"s{k}", "type": "SPAN", "provided_model_name": None, "usage_details": {}})
    rows.append({**rows[0], "level": "ERROR"})
    lines(path, rows)


def span(t: float, i: int, o: int, operation: str = "chat") -> dict[str, Any]:
    """Return a span of the semantic conventions for generative AI, in OTLP's JSON."""
    values = {
        "gen_ai.operation.name": {"stringValue": operation},
        "gen_ai.request.model": {"stringValue": MODEL},
        "gen_ai.usage.input_tokens": {"intValue": str(i)},
        "gen_ai.usage.output_tokens": {"intValue": str(o)},
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    return {
        "name": "chat",
        "startTimeUnixNano": str(nano(t)),
        "status": {"code": 1},
        "attributes": attributes,
    }


def otlp_lines(path: Path) -> None:
    """Write what OpenTelemetry's file exporter does: a batch of spans a line."""
    tool = {"name": "tool", "startTimeUnixNano": "1", "attributes": []}
    agent = span(*REQUESTS[0], operation="invoke_agent")  # its tokens are those of the calls within
    batches = [[span(*request) for request in REQUESTS[k : k + 10]] for k in range(0, len(REQUESTS), 10)]
    lines(
        path, [{"resourceSpans": [{"scopeSpans": [{"spans": [*batch, tool, agent]}]}]} for batch in batches]
    )


def otlp_document(path: Path) -> None:
    """Write all spans as one document."""
    path.write_text(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span(*r) for r in REQUESTS]}]}]})
    )


def guidellm(path: Path) -> None:
    """Write a report whose requests are a list within a benchmark."""
    rows = [
        {"request_id": str(k), "request_start_time": START + t, "prompt_tokens": i, "output_tokens": o}
        for k, (t, i, o) in enumerate(REQUESTS)
    ]
    requests = {"successful": rows, "errored": [], "incomplete": []}
    path.write_text(json.dumps({"metadata": {}, "benchmarks": [{"config": {}, "requests": requests}]}))


def bedrock(path: Path) -> None:
    """Write model invocation logs; input tokens leave out what was read from a cache."""
    lines(
        path,
        (
            {
                "schemaType": "ModelInvocationLog",
                "timestamp": date(t, "%Y-%m-%dT%H:%M:%S.%fZ"),
                "modelId": "us.meta.llama3-1-8b-instruct-v1:0",
                "input": {"inputTokenCount": i - 40, "cacheReadInputTokenCount": 40},
                "output": {"outputTokenCount": o},
            }
            for t, i, o in REQUESTS
        ),
    )


def openrouter(path: Path) -> None:
    """Write an export of activity, the latest first."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["generation_id", "created_at", "tokens_prompt", "tokens_completion", "model_permaslug"]
        )
        writer.writerows(
            ["g", date(t)[:-3], i, o, "meta-llama/llama-3.1-8b-instruct"] for t, i, o in REQUESTS[::-1]
        )


def langsmith(path: Path) -> None:
    """Write runs whose model is deep in their metadata; a chain repeats the tokens of the calls within."""
    extra = {"metadata": {"ls_model_name": MODEL}}
    lines(
        path,
        (
            {"run_type": kind, "start_time": date(t), "error": None, "extra": extra}
            | {"prompt_tokens": i, "completion_tokens": o}
            for t, i, o in REQUESTS
            for kind in ("chain", "llm")
        ),
    )


def openai(path: Path) -> None:
    """Write the answers of an OpenAI-compatible server; their time has no fractions, which the others' here have."""
    lines(
        path,
        (
            {
                "created": START + t,
                "model": MODEL,
                "choices": [],
                "usage": {"prompt_tokens": i, "completion_tokens": o},
            }
            for t, i, o in REQUESTS
        ),
    )


def bailian(path: Path) -> None:
    """Write a trace as Mooncake's, but in seconds, and with blocks of 16 tokens."""
    lines(
        path,
        (
            {
                "chat_id": k,
                "parent_chat_id": -1,
                "timestamp": t,
                "input_length": i,
                "output_length": o,
                "turn": 1,
                "hash_ids": [0, *range(1000 * k, 1000 * k - (-i // 16) - 1)],
            }
            for k, (t, i, o) in enumerate(REQUESTS)
        ),
    )


def european(path: Path) -> None:
    """Write a table with semicolons, decimal commas, a byte order mark and line ends of Windows."""
    rows = "".join(f"{str(t).replace('.', ',')};{i};{o}\r\n" for t, i, o in REQUESTS)
    path.write_bytes(("\ufefftime;input_tokens;output_tokens\r\n" + rows).encode())


def european_quoted(path: Path) -> None:
    """Write the same with texts in quotes, which may hold separators and line breaks."""
    rows = "".join(f'{str(t).replace(".", ",")};{i};{o};"a;\n1,5;b"\n' for t, i, o in REQUESTS)
    path.write_text("time;input_tokens;output_tokens;prompt\n" + rows)


LAYOUTS: dict[
    str, tuple[Callable[[Path], None], str | None, bool]
] = {  # file: writer, format, whether models are told
    "aiperf.jsonl": (aiperf, "aiperf profile export", False),
    "inference-perf.json": (inference_perf, "inference-perf lifecycle metrics", False),
    "langfuse.jsonl": (langfuse, "Langfuse observations", True),
    "otlp.jsonl": (otlp_lines, "OpenTelemetry spans", True),
    "otlp.json": (otlp_document, "OpenTelemetry spans", True),
    "guidellm.json": (guidellm, None, False),
    "bedrock.jsonl": (bedrock, "Bedrock invocation logs", True),
    "openrouter.csv": (openrouter, "OpenRouter activity", True),
    "langsmith.jsonl": (langsmith, "LangSmith runs", True),
    "openai.jsonl": (openai, None, True),
    "bailian.jsonl": (bailian, "Bailian trace", False),
    "european.csv": (european, None, False),
    "european-quoted.csv": (european_quoted, None, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_requests(name: str, tmp_path: Path) -> None:
    """Every layout tells the same times, tokens and model; the columns that were read are told."""
    write, layout, has_models = LAYOUTS[name]
    write(tmp_path / name)
    with read_trace(tmp_path / name) as trace:
        rows = np.sort(np.concatenate(list(trace.chunks())), order="time_ns")
        assert trace.format == layout
        assert (trace.num_rows, trace.tokens) == (len(REQUESTS), TOKENS)
        seconds = (rows["time_ns"] - rows["time_ns"][0]) / 1e9
        np.testing.assert_allclose(seconds, [t - REQUESTS[0][0] for t, _, _ in REQUESTS], atol=1e-6)
        assert rows["input"].tolist() == [i for _, i, _ in REQUESTS]
        assert {pair.model for pair in trace.pairs} - {""} == (models_of(trace) if has_models else set())
        assert trace.read_as.startswith(layout or "")
        assert bool(trace.read_as) == (name not in ("guidellm.json", "european.csv", "european-quoted.csv"))


def models_of(trace: Trace) -> set[str | None]:
    """Return the one model that the layouts name, each in its way."""
    found = {pair.model for pair in trace.pairs if pair.model}
    assert len(found) == 1
    assert "3.1-8b" in str(found).lower().replace("3-1", "3.1")
    return found


def test_a_bench_result_without_times(tmp_path: Path) -> None:
    """SGLang's does not tell when requests arrived; several in one file are told, too."""
    result = {
        "backend": "sglang",
        "completed": 2,
        "input_lens": [10, 20],
        "output_lens": [5, 6],
        "errors": ["", ""],
    }
    (tmp_path / "one.jsonl").write_text(json.dumps(result) + "\n")
    with pytest.raises(
        DataError, match="a bench result without start_times does not tell when requests arrived"
    ):
        read_trace(tmp_path / "one.jsonl")
    lines(tmp_path / "two.jsonl", [result, result])
    with pytest.raises(DataError, match="line 2: a second bench result"):
        read_trace(tmp_path / "two.jsonl")


def test_usage_by_the_hour(tmp_path: Path) -> None:
    """Buckets of OpenAI's usage hold lists; a row of them stands for many requests."""
    bucket = {
        "input_tokens": 3600,
        "output_tokens": 720,
        "num_model_requests": 36,
        "model": MODEL,
        "project_id": None,
    }
    page = {
        "object": "page",
        "data": [{"object": "bucket", "start_time": START + 3600 * k, "results": [bucket]} for k in range(4)],
        "has_more": False,
    }
    (tmp_path / "usage.json").write_text(json.dumps(page))
    with read_trace(tmp_path / "usage.json") as trace:
        assert (trace.num_rows, trace.tokens) == (144, 144 * 120)
        assert trace.labels == (MODEL,)


def test_two_nested_columns_for_one_thing(tmp_path: Path) -> None:
    """Neither is taken; a whole name goes before what a name ends with."""
    row = {"time": 1.5, "a": {"input_tokens": 1}, "b": {"input_tokens": 2}, "output_tokens": 3}
    lines(tmp_path / "t.jsonl", [row, row])
    with pytest.raises(
        DataError, match=r"two columns hold the input: 'a\.input_tokens' and 'b\.input_tokens'"
    ):
        read_trace(tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl", columns={"input": "b.input_tokens"}).tokens == 10
    lines(tmp_path / "t.jsonl", [{**row, "input_tokens": 7}] * 2)
    assert read_trace(tmp_path / "t.jsonl").tokens == 20
