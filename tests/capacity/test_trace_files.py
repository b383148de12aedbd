"""Several files of one trace, and the layouts of gateways, engines and monitors, as their documentation shows them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetgym.capacity.traces.header import FORMATS
from fleetgym.capacity.traces.importing import import_trace
from fleetgym.capacity.traces.labels import bind
from fleetgym.capacity.traces.price_lists import read_prices
from fleetgym.capacity.traces.reader import Trace, read_trace
from fleetgym.capacity.traces.rows import Label
from fleetgym.capacity.traces.tables import files
from fleetgym.cli.parser import main
from fleetgym.files.errors import DataError, FleetgymError

START = 1_772_442_000  # 2026-03-02 09:00 UTC
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
COUNT = 240


def iso(k: int) -> str:
    """Return when request k arrives."""
    return f"2026-03-02T09:{k // 20:02d}:{3 * k % 60:02d}.500Z"


def cloudflare(k: int) -> dict[str, Any]:
    """AI Gateway: what the API lists under ``result``."""
    return {
        "id": f"l{k}",
        "created_at": iso(k),
        "cached": k % 4 == 0,
        "duration": 900,
        "model": MODEL,
        "provider": "workers-ai",
        "status_code": 200,
        "success": True,
        "tokens_in": 100,
        "tokens_out": 20,
    }


def portkey(k: int) -> dict[str, Any]:
    """Log exports."""
    return {
        "id": f"p{k}",
        "created_at": iso(k),
        "ai_model": MODEL,
        "req_units": 100,
        "res_units": 20,
        "total_units": 120,
        "cache_status": "HIT" if k % 4 == 0 else "MISS",
        "response_status_code": 200,
    }


def helicone(k: int) -> dict[str, Any]:
    """Requests of the API."""
    return {
        "request_created_at": iso(k),
        "response_created_at": iso(k),
        "response_status": 500 if k % 4 == 0 else 200,
        "response_model": MODEL,
        "request_model": MODEL,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
    }


def kong(k: int) -> dict[str, Any]:
    """Logs of the AI proxy, of a logging plugin."""
    return {
        "started_at": START * 1000 + 3000 * k,
        "response": {"status": 503 if k % 4 == 0 else 200, "size": 10},
        "ai": {
            "proxy": {
                "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
                "meta": {"request_model": MODEL, "response_model": MODEL, "provider_name": "openai"},
                "cache": {"cache_status": "Miss"},
            }
        },
    }


def dynamo(k: int) -> dict[str, Any]:
    """Segments of ``dynamo.request.trace.v1``; events of tools have no request."""
    event = {"schema": "dynamo.request.trace.v1", "event_time_unix_ms": START * 1000 + 3000 * k + 900}
    if k % 4 == 0:
        return {**event, "event_type": "tool_end", "tool": {"tool_class": "bash", "duration_ms": 3}}
    request = {
        "request_id": f"r{k}",
        "model": MODEL,
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 32,
        "request_received_ms": START * 1000 + 3000 * k,
        "total_time_ms": 800.0,
    }
    return {**event, "event_type": "request_end", "request": request}


def sagemaker(k: int) -> dict[str, Any]:
    """Data capture: bodies are texts, or texts in base 64."""
    answer = json.dumps({"model": MODEL, "usage": {"prompt_tokens": 100, "completion_tokens": 20}})
    coded = k % 2 == 1
    body = base64.b64encode(answer.encode()).decode() if coded else answer
    failed = k % 4 == 0
    return {
        "captureData": {
            "endpointInput": {
                "observedContentType": "application/json",
                "mode": "INPUT",
                "data": "{}",
                "encoding": "JSON",
            },
            "endpointOutput": {
                "observedContentType": "application/json",
                "mode": "OUTPUT",
                "data": "" if failed else body,
                "encoding": "BASE64" if coded else "JSON",
            },
        },
        "eventMetadata": {"eventId": f"e{k}", "inferenceTime": iso(k)},
        "eventVersion": "0",
    }


RECORDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "Cloudflare AI Gateway logs": cloudflare,
    "Portkey logs": portkey,
    "Helicone requests": helicone,
    "Kong AI logs": kong,
    "Dynamo request trace": dynamo,
    "SageMaker data capture": sagemaker,
}


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write JSON Lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def check(found: Trace) -> None:
    """Every fourth row is no request that a GPU served; the others have 100 + 20 tokens."""
    assert (found.num_rows, found.tokens) == (COUNT * 3 // 4, 120 * COUNT * 3 // 4)
    assert found.is_clock or found.first_ns > 10**18
    assert 3.0 * (COUNT - 4) <= found.span_s <= 3.0 * COUNT
    counts = found.label_counts()
    assert {pair.model for pair, count in zip(found.pairs, counts, strict=True) if count} == {MODEL}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("shards", [1, 3])
def test_known_layouts_and_their_shards(name: str, shards: int, tmp_path: Path) -> None:
    """One file, or a folder of shards that are not in order of time."""
    assert name in {known.name for known in FORMATS}
    records = [RECORDS[name](k) for k in range(1, COUNT + 1)]
    each = COUNT // shards
    for s in range(shards):
        lines(tmp_path / f"shard{shards - s}.jsonl", records[each * s : each * (s + 1)])
    with read_trace(files([tmp_path])) as found:
        check(found)
        assert found.format == name
        assert any("sampling percentage" in note for note in found.notes) == (
            name == "SageMaker data capture"
        )


def test_a_listing_of_an_api(tmp_path: Path) -> None:
    """Records under a name, beside what the answer says of itself."""
    path = tmp_path / "logs.json"
    answer = {
        "result": [cloudflare(k) for k in range(1, COUNT + 1)],
        "result_info": {"page": 1},
        "success": True,
    }
    path.write_text(json.dumps(answer))
    with read_trace(path) as found:
        check(found)


def csv(path: Path, first: int, last: int, head: str = "time,input_tokens,output_tokens") -> Path:
    """Write some of the requests."""
    path.write_text("\n".join([head, *(f"{3 * k},100,20" for k in range(first, last))]) + "\n")
    return path


def test_files_are_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns may be in another order; what differs or counts twice is refused by file; the command takes several."""
    one, two = (
        csv(tmp_path / "a.csv", 0, 100),
        csv(tmp_path / "b.csv", 100, 240, "output_tokens,time,input_tokens"),
    )
    two.write_text(
        "\n".join(["output_tokens,time,input_tokens", *(f"20,{3 * k},100" for k in range(100, 240))])
    )
    with read_trace(files([two, one])) as found:
        assert (found.num_rows, found.tokens, found.span_s) == (240, 240 * 120, 717.0)
    three = csv(tmp_path / "c.csv", 0, 9, "time,input_tokens,answer_tokens")
    with pytest.raises(DataError, match=r"c\.csv: line 1: no column 'output_tokens'"):
        read_trace(files([one, three]))
    with pytest.raises(DataError, match="twice"):
        files([one, tmp_path / "." / "a.csv"])
    two.write_text("time,input_tokens,output_tokens\n5,many,2\n")
    with pytest.raises(DataError, match=r"line 2 of .*b\.csv: expected a whole number"):
        read_trace(files([one, two]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="folder is empty"):
        files([tmp_path / "empty"])
    csv(two, 100, 240)
    out = tmp_path / "day.json"
    words = ["--models", "Llama-3.1-8B", "--gpus", "L40S", "--out", str(out)]
    assert main(["import-trace", str(one), str(two), *words]) == 0
    assert "240 requests" in capsys.readouterr().out
    assert main(["import-trace", str(one), str(two), "--force", "--out", str(two)]) == 2
    assert two.read_text().startswith("time")


def matrix(names: list[str]) -> dict[str, Any]:
    """Return what query_range answers: two series of each metric, that differ in a label without meaning here."""
    per_step = {"vllm:prompt_tokens": 4500.4, "vllm:generation_tokens": 1000.2, "vllm:request_success": 5.01}
    series = [
        {
            "metric": {"__name__": name, "model_name": MODEL, "finished_reason": reason},
            "values": [[START + 60 * k, str(per_step.get(name, 1.0))] for k in range(60)],
        }
        for name in names
        for reason in ("stop", "length")
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": series}}


def test_answers_of_prometheus(tmp_path: Path) -> None:
    """Series with names are columns; without names they are not guessed."""
    path, names = (
        tmp_path / "range.json",
        ["vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success"],
    )
    path.write_text(json.dumps(matrix(names)))
    with read_trace(path, columns=dict(zip(("input", "output", "count"), names, strict=True))) as found:
        assert (found.num_rows, found.tokens) == (600, 60 * (9001 + 2000))
    answer = matrix(names)
    del answer["data"]["result"][0]["metric"]["__name__"]
    path.write_text(json.dumps(answer))
    with pytest.raises(DataError, match=r"result\[0\].metric: no name of a metric"):
        read_trace(path)
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}))
    with pytest.raises(DataError, match="expected a matrix"):
        read_trace(path)


def test_a_sample_is_asked_about(tmp_path: Path) -> None:
    """A rate below 1 is refused with the way out; 1, and a column that is not to be read, are read."""
    for rate, options in (("1", {}), ("0.1", {"columns": {"sample": "none"}})):
        path = tmp_path / f"{rate}.csv"
        rows = [f"{3 * k},100,20,{rate}" for k in range(240)]
        path.write_text("\n".join(["time,input_tokens,output_tokens,sample_rate", *rows]))
        with read_trace(path, **options) as found:  # type: ignore[arg-type]
            assert found.num_rows == 240
    with pytest.raises(DataError, match="--scale 1/R and --columns sample=none"):
        read_trace(path)


def test_adapters_are_served_by_their_base() -> None:
    """With a size in the base's name only: never a large model by a small one."""
    found = bind([Label(None, "meta-llama/Llama-3.1-8B-Instruct:sql")], _one())
    assert found.models == ("Llama-3.1-8B",)
    assert "adapters" in found.notes[0]
    for text in ("llama3.1:405b-sql", "gpt-4o:ft"):
        with pytest.raises(FleetgymError, match="not known"):
            bind([Label(None, text)], _one())


def _one():  # type: ignore[no-untyped-def]
    import numpy as np

    return np.array([5])


@pytest.mark.parametrize(
    ("head", "row", "expected"),
    [
        ("gpu,usd_per_gpu_h", "H100,0.0008", "minute or a second"),
        ("gpu,usd_per_gpu_h,gpus_per_node", "H100,0.0008,1", (0.0008, None)),
        ("gpu,usd_per_gpu_h", "H100,0", (0.0, None)),
        ("gpu,usd_per_gpu_h,gpus_per_node,max_nodes", "H100,2.5,8,3", (2.5, 24)),
        ("gpu,usd_per_gpu_h,max_gpus,max_nodes", "H100,2.5,8,3", "two limits"),
    ],
)
def test_prices_and_node_pools(head: str, row: str, expected: Any, tmp_path: Path) -> None:
    """A price absurdly low is asked about as a high one is; most nodes are most GPUs."""
    path = tmp_path / "p.csv"
    path.write_text(f"{head}\n{row}\n")
    if isinstance(expected, str):
        with pytest.raises(FleetgymError, match=expected):
            read_prices(path)
    else:
        (offer,) = read_prices(path).offers
        assert (offer.usd_per_gpu_h, offer.max_gpus) == expected


def test_python_takes_several_files(tmp_path: Path) -> None:
    """The instance is named after the first one."""
    paths = [csv(tmp_path / "a.csv", 0, 120), csv(tmp_path / "b.csv", 120, 240)]
    made = import_trace(paths, models=["Llama-3.1-8B"], gpus=["L40S"], scenarios=1)
    assert made.statistics.requests == 240
    assert "a.csv and 1 more file" in made.instance.provenance["trace"]


@pytest.mark.parametrize("values", [[[0]], [[0, "twelve"]], [7], [[0, None]], [[0, "+Inf"]]])
def test_samples_that_are_none_are_named(tmp_path: Path, values: list[object]) -> None:
    """What is no pair of time and number is refused with its place."""
    one = {"metric": {"__name__": "requests"}, "values": values}
    path = tmp_path / "range.json"
    path.write_text(json.dumps({"data": {"resultType": "matrix", "result": [one]}}))
    with pytest.raises(FleetgymError, match=r"result\[0\]\.values\[0\]: expected"):
        read_trace(path)


def test_gaps_of_a_series_are_left_out(tmp_path: Path) -> None:
    """Prometheus says NaN where a series was not there; the others of that time still count."""
    names = ["vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success"]
    answer = matrix(names)
    answer["data"]["result"][0]["values"][3][1] = "NaN"  # prompts of one reason
    path = tmp_path / "range.json"
    path.write_text(json.dumps(answer))
    with read_trace(path, columns=dict(zip(("input", "output", "count"), names, strict=True))) as found:
        assert (found.num_rows, found.tokens) == (600, 60 * (9001 + 2000) - 4500 - 1)
