"""Inputs as people have them: each kind read right, or refused in a line; small twins, and a shared folder of cases."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import SHARED

from fleetgym.cli.parser import main as fleetgym

CASES = SHARED / "cases" / "planner"
PLAIN = "plain.csv"
_MODEL = ("--by", "one", "--models", "Llama-3.1-8B")

#: What an owner would add, by the name of the file.
OPTIONS: dict[str, tuple[str, ...]] = {
    PLAIN: ("--by", "one", "--models", "DeepSeek-R1", "--gpus", "H200", "--slo", "ttft=5,delay=60"),
    "tail_0.8pct_64k.csv": (*_MODEL, "--gpus", "H100", "--slo", "ttft=10,delay=30", "--scale", "25"),
    "long_context.csv": ("--by", "one"),
    "lora300.csv": ("--by", "one"),
}


@dataclasses.dataclass(frozen=True)
class Tried:
    """What became of a file."""

    words: tuple[str, ...]  # of the command
    code: int | None  # its exit code; None where it raised
    facts: dict[str, Any]  # its JSON; empty where there is none
    error: str  # what it printed as an error

    @property
    def is_refused(self) -> bool:
        """Whether the file was refused as it should be: with an exit code, and one line."""
        lines = [line for line in self.error.splitlines() if line]
        return self.code in (1, 2) and len(lines) == 1 and lines[0].startswith("fleetgym: ")

    @property
    def is_right(self) -> bool:
        """Whether it was read or refused."""
        return self.code == 0 or self.is_refused


def words_for(file: Path, out: Path) -> tuple[str, ...]:
    """Return the words of the command that tries a file."""
    plain = str(file.with_name(PLAIN))
    end = ("--force", "--json", "--out", str(out))
    if file.name.startswith("price"):
        slo = file.with_name("slo_owned.csv")
        has_free = "owned" in file.name and slo.is_file()
        return (
            "import-trace", plain, *_MODEL, "--prices", str(file), "--slo", str(slo) if has_free else "ttft=1,delay=15",
            *end,
        )  # fmt: skip
    if file.name.startswith("slo"):
        return "import-trace", plain, *_MODEL, "--slo", str(file), *end
    return "import-trace", str(file), *OPTIONS.get(file.name, ()), *end


def try_file(file: Path) -> Tried:
    """Return what the planner makes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        return try_words(words_for(file, Path(folder) / "made.json"))


def try_words(words: tuple[str, ...]) -> Tried:
    """Return what a command does; whatever it raises is caught, and is a fault."""
    out, error = io.StringIO(), io.StringIO()
    code: int | None = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code = fleetgym(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else None
        except BaseException:
            traceback.print_exc()
    try:
        facts = json.loads(out.getvalue())
    except ValueError:
        facts = {}
    return Tried(words, code if code != 0 or facts else None, facts, error.getvalue())


def rows(head: str, count: int, row: Callable[[int], str]) -> str:
    """Return a CSV of so many rows."""
    return "\n".join([head, *map(row, range(count))]) + "\n"


def read(tried: Tried) -> dict:
    """Return the facts of what was read."""
    assert tried.code == 0, tried.error
    return tried.facts


def one(tried: Tried) -> dict:
    """Return the only workload of what was read."""
    (found,) = read(tried)["workloads"].values()
    return found


def refused(*says: str) -> Callable[[Tried], None]:
    """Return a check of a refusal in one line, which says all of this."""

    def check(tried: Tried) -> None:
        assert tried.is_refused, tried.error
        for part in says:
            assert part in tried.error

    return check


def told(tried: Tried, *says: str) -> None:
    """Check that the notes say all of this."""
    notes = " / ".join(read(tried)["notes"])
    for part in says:
        assert part in notes


def minute_totals(tried: Tried) -> None:
    """Twenty requests a minute of 900 + 200 tokens, not one of 18,000 + 4,000."""
    found = (
        one(tried) if len(read(tried)["workloads"]) == 1 else next(iter(read(tried)["workloads"].values()))
    )
    assert (found["input_tokens"], found["output_tokens"]) == (900.0, 200.0)
    assert found["rate_rps"] == pytest.approx(1 / 3, rel=0.1)
    told(tried, "'num_requests'")


def without_failures(tried: Tried) -> None:
    """Rows that failed are no demand, and are told in shares."""
    told(tried, "left out because", "% of requests", "% of tokens")
    assert all(w["output_tokens"] > 0 for w in read(tried)["workloads"].values())


def embeddings(tried: Tried) -> None:
    """The rows without output are left out, and those of the model are planned on it."""
    assert [w["bound_to"] for w in read(tried)["workloads"].values()] == ["Llama-3.1-8B"]
    told(tried, "have no output tokens: failed requests, embeddings")


def seventy(tried: Tried) -> None:
    """A 70B label is served by a 70B model alone."""
    assert {w["bound_to"] for w in read(tried)["workloads"].values()} == {"Llama-3.1-70B"}
    assert all("Llama-3.1-70B" in c for c in read(tried)["candidates"])


def ninety_percent_hits(tried: Tried) -> None:
    """Cached tokens are used and told."""
    for workload in read(tried)["workloads"].values():
        assert workload["prefix_hits"] == pytest.approx(0.9, abs=0.01)
    assert read(tried)["provenance"]["prefix cache"].startswith("measured: column 'cached_tokens'")


def one_dollar_scale(tried: Tried) -> None:
    """A workload with one way to be served costs cents per request, not thousands of USD."""
    assert 0.02 < one(tried)["unserved_usd"] < 0.5


def whole(tried: Tried) -> None:
    """All rows are read."""
    assert one(tried)["rate_rps"] > 0.5


def two_offers(tried: Tried) -> None:
    """Two rows of one GPU are two offers."""
    assert sorted(p["usd_per_gpu_h"] for p in read(tried)["pools"].values()) == [2.5, 2.95]


PLAIN_ROWS = rows(
    "time,input_tokens,output_tokens", 1200, lambda k: f"{k + k % 7 / 10},{900 + k % 400},{100 + k % 50}"
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of input: its case in the shared folder, a twin of it, and what is right of both."""

    case: str
    right: Callable[[Tried], None]
    twin: str | None = None


def labelled(label: str, head: str = "time,model,input_tokens,output_tokens") -> str:
    """Return a trace whose rows all have a label."""
    return rows(head, 1200, lambda k: f"{k + 0.5},{label},{400 + k % 90},{100 + k % 9}")


KINDS = (
    Kind(
        "dense_ms.csv",
        refused("--time-unit s or --time-unit ms"),
        rows("timestamp,input_tokens,output_tokens", 3000, lambda k: f"{50 * k},900,100"),
    ),
    Kind("plain.csv", one_dollar_scale, PLAIN_ROWS),
    Kind(
        "label_meta-llama_Meta-Llama-3.1-70B-Instruct.csv",
        seventy,
        labelled("meta-llama/Meta-Llama-3.1-70B-Instruct-FP8"),
    ),
    Kind("label_meta-llama_Llama-3.1-70B-Instruct.csv", seventy, labelled("llama3.1:70b")),
    Kind("label_hf_instruct.csv", seventy, labelled("us.meta.llama3-1-70b-instruct-v1:0")),
    Kind("label_gpt-4o.csv", refused("gpt-4o", "no weights of it are public", "--bind"), labelled("gpt-4o")),
    Kind(
        "class_and_model.csv",
        seventy,
        labelled("Llama-3.1-70B,gold", "time,model,class,input_tokens,output_tokens"),
    ),
    Kind(
        "minute_totals.csv",
        minute_totals,
        rows(
            "time,num_requests,prompt_tokens,completion_tokens",
            60,
            lambda k: f"2026-03-02 09:{k:02d}:00,20,18000,4000",
        ),
    ),
    Kind(
        "zero_token_failures.csv",
        without_failures,
        rows(
            "timestamp,status,prompt_tokens,completion_tokens",
            1200,
            lambda k: f"{k}.5,{'success,800,90' if k % 4 else 'failure,0,0'}",
        ),
    ),
    Kind(
        "vllm_generated_tokens_nan.csv",
        without_failures,
        rows(
            "timestamp,input_tokens,output_tokens",
            1200,
            lambda k: f"2026-03-02 09:{k // 60:02d}:{k % 60:02d},800,{90 if k % 50 else ''}",
        ),
    ),
    Kind(
        "burstgpt1.csv",
        refused("ChatGPT", "--bind"),
        rows(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            1200,
            lambda k: f"{k},ChatGPT,700,{90 * (k % 5 > 0)},790,Conversation log",
        ),
    ),
    Kind(
        "cached_tokens.csv",
        ninety_percent_hits,
        rows(
            "timestamp,prompt_tokens,cached_tokens,completion_tokens",
            1200,
            lambda k: f"{k}.25,{1000 + 10 * (k % 30)},{900 + 9 * (k % 30)},100",
        ),
    ),
    Kind(
        "mooncake_conversation_head.jsonl",
        refused("the trace spans 9 s"),
        "\n".join(
            json.dumps(
                {"timestamp": 1000 * k, "input_length": 600, "output_length": 50, "hash_ids": [k, k + 1]}
            )
            for k in range(10)
        ),
    ),
    Kind(
        "long_context.csv",
        refused("of the requests, with", "of all tokens", "--leave-out-at-most"),
        rows(
            "time,prompt_tokens,completion_tokens",
            1200,
            lambda k: f"{k}.5,{400000 if k % 20 == 0 else 800},90",
        ),
    ),
    Kind("prices_owned.csv", lambda tried: read(tried), None),
    Kind(
        "prices_node_price.csv",
        refused("23.6 USD/h for one H100", "gpus_per_node"),
        "gpu,usd_per_gpu_h\nH100,23.60\n",
    ),
    Kind(
        "prices_extra_cols.csv",
        lambda tried: told(tried, "these columns are not used: 'provider', 'date'"),
        "gpu,provider,usd_per_gpu_h,date\nH100,N,2.95,2026-10-10\n",
    ),
    Kind("price_dup.csv", two_offers, "gpu,usd_per_gpu_h,region\nH100,2.95,us\nH100,2.50,us\n"),
    Kind("price_gpu_A100.csv", refused("'A100'", "A100-80GB"), "gpu,usd_per_gpu_h\nA100,2.50\n"),
    Kind("price_gpu_H100-SXM.csv", lambda tried: read(tried), "gpu,usd_per_gpu_h\nH100 SXM5,2.50\n"),
    Kind(
        "price_gpu_RTX_4090.csv",
        lambda tried: read(tried),
        "gpu,usd_per_gpu_h\nNVIDIA GeForce RTX 4090,2.50\n",
    ),
    Kind("prices_aws_spot_history.json", lambda tried: told(tried, "spot price history of AWS"), None),
    Kind("prices_skypilot_nebius.csv", lambda tried: told(tried, "catalogue of SkyPilot"), None),
    Kind(
        "lora300.csv",
        whole,
        rows("time,model,input_tokens,output_tokens", 3000, lambda k: f"{k}.5,lora-{k % 300},500,90"),
    ),
    Kind(
        "multiline_prompt.csv",
        refused("the trace spans"),
        'time,prompt,prompt_tokens,completion_tokens\n1,"a\nb",3,4\n2,"c",3,4\n',
    ),
    Kind(
        "input_and_prompt.csv",
        refused("--columns input=prompt_tokens"),
        rows("time,input_tokens,prompt_tokens,completion_tokens", 1200, lambda k: f"{k}.5,400,400,90"),
    ),
    Kind(
        "with_embeddings.csv",
        embeddings,
        rows(
            "time,model,prompt_tokens,completion_tokens",
            1800,
            lambda k: f"{k}.5," + ("Llama-3.1-8B,800,90" if k % 3 else "text-embedding-3-small,1900,0"),
        ),
    ),
    Kind(
        "ts_nginx.csv",
        lambda tried: read(tried),
        rows(
            "timestamp,prompt_tokens,completion_tokens",
            1200,
            lambda k: f"02/Mar/2026:09:{k // 60:02d}:{k % 60:02d} +0000,{400 + k % 90},90",
        ),
    ),
    Kind(
        "ts_rfc2822.csv",
        lambda tried: read(tried),
        rows(
            "timestamp,prompt_tokens,completion_tokens",
            1200,
            lambda k: f'"Mon, 02 Mar 2026 09:{k // 60:02d}:{k % 60:02d} GMT",{400 + k % 90},90',
        ),
    ),
    Kind("azure_requests.parquet", refused("Parquet"), "PAR1 this is none"),
)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.twin is not None], ids=lambda kind: kind.case)
def test_twins(kind: Kind, tmp_path: Path) -> None:
    """A small file of each kind is what it should be."""
    (tmp_path / PLAIN).write_text(PLAIN_ROWS)
    (tmp_path / kind.case).write_text(kind.twin or "")
    kind.right(try_file(tmp_path / kind.case))


def cases() -> list[Path]:
    """Return the shared cases; none where the folder is not here."""
    files = sorted(CASES.iterdir()) if CASES.is_dir() else []
    return [file for file in files if file.is_file() and not file.name.startswith("README")]


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared cases are not here (FLEETGYM_SHARED names the folder)"
)
@pytest.mark.parametrize("file", cases(), ids=lambda file: file.name)
def test_cases(file: Path) -> None:
    """Every file is read, or refused in a line; the kinds that are known are what they should be."""
    tried = try_file(file)
    assert tried.is_right, tried.error
    for kind in KINDS:
        if kind.case == file.name:
            kind.right(tried)


def test_what_is_a_fault(tmp_path: Path) -> None:
    """The check can fail: a traceback, several lines, or an exit without a word are faults."""
    tried = Tried((), 1, {}, "fleetgym: x: wrong\n")
    assert tried.is_right
    for wrong in (
        dataclasses.replace(tried, code=None),
        dataclasses.replace(tried, error=""),
        dataclasses.replace(tried, error="fleetgym: x\nfleetgym: y\n"),
        dataclasses.replace(tried, error="Traceback (most recent call last):"),
        dataclasses.replace(tried, code=139),
    ):
        assert not wrong.is_right
    (tmp_path / PLAIN).write_bytes(b"time,input_tokens,output_tokens\n\x00\n")
    assert try_file(tmp_path / PLAIN).is_refused
