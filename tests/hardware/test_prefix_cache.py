"""Prompts whose beginning a prefix cache holds: less prefill, the same memory, and a word about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.reader import Trace, read_trace
from fleetgym.capacity.traces.rows import HASH_BLOCK
from fleetgym.cli.parser import main
from fleetgym.files.errors import DataError, FleetgymError

SMALL = {"models": ["Llama-3.1-8B"], "gpus": ["L40S"], "by": "one", "slo": "ttft=5,delay=60"}
ROWS = 1200


def write_rows(path: Path, head: str, row) -> Path:
    """Write a CSV of a request a second; `row` makes what follows the time."""
    path.write_text("\n".join([head, *(f"{k},{row(k)}" for k in range(ROWS))]) + "\n")
    return path


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Return a trace whose cached tokens grow with the prompt."""
    return write_rows(
        tmp_path / "counted.csv",
        "time,prompt_tokens,cached_tokens,completion_tokens",
        lambda k: f"{1000 + k % 500},{(k % 500) * 2},{100 + k % 7}",
    )


def prompts(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return input and cached tokens of all rows."""
    rows = np.concatenate(list(trace.chunks()))
    return rows["input"].astype(float), rows["cached"].astype(float)


def test_hits_save_prefill_and_no_memory(counted: Path) -> None:
    """Prefill, service and work have the computed tokens only; KV memory, lengths and decoding are those without."""
    with_hits = import_trace(counted, **SMALL)
    without = import_trace(counted, prefix_hit=0.0, **SMALL)
    rows = np.array([(1000 + k % 500, (k % 500) * 2, 100 + k % 7) for k in range(ROWS)], dtype=float)
    computed = rows[:, 0] - rows[:, 1]
    share = computed.mean() / rows[:, 0].mean()
    found, old = with_hits.instance.performance, without.instance.performance
    for name in ("prefill_s", "service_s", "delay_s", "work_tflop"):
        new, whole = getattr(found, name), getattr(old, name)
        if name == "work_tflop":
            np.testing.assert_allclose(new.per_input_token, share * whole.per_input_token, rtol=1e-5)
        else:  # what is computed reads what the cache holds: attention falls by less
            assert (share * whole.per_input_token < new.per_input_token).all()
            assert (new.per_input_token < 1.1 * share * whole.per_input_token).all()
        if name in ("service_s", "delay_s"):  # the prompts of others are in it
            assert (new.per_output_token < whole.per_output_token).all()
        else:
            np.testing.assert_allclose(new.per_output_token, whole.per_output_token)
        np.testing.assert_allclose(new.base, whole.base)
    for one, other in zip(with_hits.instance.configurations, without.instance.configurations, strict=True):
        assert one.kv_capacity_gb == pytest.approx(
            other.kv_capacity_gb, rel=0.02
        )  # prompts stay for less time
        assert one.max_concurrency == other.max_concurrency
    assert with_hits.instance.workloads[0].input_tokens == without.instance.workloads[0].input_tokens
    np.testing.assert_allclose(
        with_hits.statistics.computed[0],
        [
            computed.mean(),
            computed.var() / computed.mean() ** 2,
            np.corrcoef(computed, rows[:, 2])[0, 1],
        ],
        rtol=1e-9,
    )
    assert with_hits.statistics.prefix_hits[0] == pytest.approx(1.0 - share)


def test_a_share_of_ones_own(counted: Path) -> None:
    """It takes the place of what the trace says, and both are told."""
    half = import_trace(counted, prefix_hit=0.5, **SMALL).instance
    whole = import_trace(counted, prefix_hit=0.0, **SMALL).instance
    saved = half.performance.prefill_s.per_input_token / whole.performance.prefill_s.per_input_token
    assert ((saved > 0.5) & (saved < 0.55)).all()
    assert "assumed, as given: 0.5 of every prompt" in half.provenance["prefix cache"]
    assert "KV memory holds every prompt whole" in half.provenance["prefix cache"]
    everything = import_trace(counted, prefix_hit=1.0, **SMALL).instance
    assert not everything.performance.prefill_s.per_input_token.any()
    with pytest.raises(DataError, match=r"prefix_hit: expected a number from 0 to 1"):
        import_trace(counted, prefix_hit=1.5, **SMALL)
    with pytest.raises(DataError, match=r"prefix_cache_tokens: expected a whole number from 512"):
        import_trace(counted, prefix_cache_tokens=100, **SMALL)


def test_the_command_tells(counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the hits come from, and that memory is not shared; one option at a time."""
    words = [
        "import-trace",
        str(counted),
        "--by",
        "one",
        "--gpus",
        "L40S",
        "--models",
        "Llama-3.1-8B",
        "--force",
    ]
    words += ["--slo", "ttft=5,delay=60", "--out", str(tmp_path / "x.json")]
    assert main(words) == 0
    share = sum((k % 500) * 2 for k in range(ROWS)) / sum(1000 + k % 500 for k in range(ROWS))
    text = " ".join(capsys.readouterr().out.split())
    assert f"measured: column 'cached_tokens'; {share:.1%} of the prompt tokens" in text
    assert main([*words, "--prefix-hit", "0.4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["workloads"]["all"]["prefix_hits"] == pytest.approx(0.4)
    assert facts["provenance"]["prefix cache"].startswith("assumed, as given: 0.4")
    assert main([*words, "--prefix-hit", "0.4", "--prefix-cache", "5000"]) == 2
    assert "give one of them" in capsys.readouterr().err
    plain = write_rows(tmp_path / "plain.csv", "time,input_tokens,output_tokens", lambda k: "100,20")
    assert main(["import-trace", str(plain), *words[2:]]) == 0
    assert "assumed: none; every prompt is computed whole" in capsys.readouterr().out


def hits_of(blocks: list[list[int]], kept: int) -> list[int]:
    """Return the hits of each prompt in a cache of the blocks used last: a list, searched from its end."""
    cache: list[int] = []
    found = []
    for prompt in blocks:
        hit = 0
        while hit < len(prompt) and prompt[hit] in cache:
            hit += 1
        found.append(hit)
        cache = [block for block in cache if block not in prompt] + prompt[::-1]
        cache = cache[-kept:]
    return found


@pytest.mark.parametrize("kept", [3, 40, 10_000])
def test_hashes_of_prompts(kept: int, tmp_path: Path) -> None:
    """Hits are those of a slow cache written for this test; the last block of a prompt may be short."""
    rng = np.random.default_rng(kept)
    blocks = []
    for _ in range(ROWS):
        document = int(rng.integers(12))
        blocks.append([100 * document + k for k in range(int(rng.integers(1, 9)))])
        blocks[-1][-1] += 50 * int(rng.random() < 0.5)
    tokens = [HASH_BLOCK * (len(prompt) - 1) + int(rng.integers(1, HASH_BLOCK + 1)) for prompt in blocks]
    rows = [
        {"timestamp": 1000 * k, "input_length": n, "output_length": 5, "hash_ids": prompt}
        for k, (prompt, n) in enumerate(zip(blocks, tokens, strict=True))
    ]
    path = tmp_path / "mooncake.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with read_trace(path, prefix_cache_tokens=kept * HASH_BLOCK) as trace:
        inputs, cached = prompts(trace)
        assert f"one cache of {kept * HASH_BLOCK:,} tokens" in str(trace.prefix_hits)
    expected = np.minimum(np.array(hits_of(blocks, kept)) * HASH_BLOCK, tokens)
    np.testing.assert_array_equal(inputs, tokens)
    np.testing.assert_array_equal(cached, expected)
    assert 0.0 < cached.sum() < inputs.sum()
    path.write_text("\n".join(map(json.dumps, rows[:-1] + [{**rows[-1], "timestamp": 5}])))
    with pytest.raises(DataError, match="which a trace with hashes of its prompts cannot have"):
        read_trace(path, any_order=True)


def test_models_do_not_share_what_they_computed(tmp_path: Path) -> None:
    """A prompt that another model has seen is new to this one."""
    rows = [
        {
            "timestamp": 1000 * k,
            "input_length": 512,
            "output_length": 5,
            "hash_ids": [7],
            "model": f"m{k % 3}",
        }
        for k in range(9)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with read_trace(tmp_path / "t.jsonl") as trace:
        assert prompts(trace)[1].tolist() == [0.0] * 3 + [512.0] * 6


def test_input_tokens_that_leave_out_the_cache(tmp_path: Path) -> None:
    """Where tokens read from a cache, or written into it, come on top of the input tokens, they are added."""
    path = write_rows(
        tmp_path / "rest.csv",
        "time,input_tokens,cache_creation_input_tokens,cache_read_input_tokens,output_tokens",
        lambda k: f"10,{k % 3},900,20",
    )
    with read_trace(path) as trace:
        inputs, cached = prompts(trace)
        assert "the input tokens are the rest of the prompt" in str(trace.prefix_hits)
    np.testing.assert_array_equal(inputs, [910 + k % 3 for k in range(ROWS)])
    np.testing.assert_array_equal(cached, 900)
    path = write_rows(
        tmp_path / "whole.csv", "time,prompt_tokens,cached_tokens,completion_tokens", lambda k: "10,900,20"
    )
    with pytest.raises(DataError, match="no more than the input tokens") as caught:
        read_trace(path)
    assert caught.value.path == "line 2"


def test_hits_of_failed_rows_do_not_count(tmp_path: Path) -> None:
    """A row that failed is left out whole."""
    path = write_rows(
        tmp_path / "some.csv",
        "time,prompt_tokens,cached_tokens,completion_tokens,status",
        lambda k: "100,50,20,ok" if k % 2 else "100,100,0,error",
    )
    made = import_trace(path, **SMALL)
    assert made.statistics.prefix_hits[0] == pytest.approx(0.5)
    with pytest.raises(FleetgymError):
        import_trace(path, prefix_hit=-0.1, **SMALL)
