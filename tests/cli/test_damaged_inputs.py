"""Whatever a file or an option holds, the command line answers as it should.

Hypothesis damages real files as bytes, as text, or as the document that they hold, and gives options hostile words.
Each call must end without a traceback, with exit code 0, 1 or 2, within CPU seconds, with nothing half written, and a
refusal must be lines of plain characters that name the file.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import csv
import functools
import gzip
import io
import json
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_traces import write_azure, write_generic

from fleetgym.cli.parser import main, make_parser
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import parse_json
from fleetgym.files.errors import printable
from fleetgym.leaderboard.registers import freeze
from fleetgym.leaderboard.season import seed_sha256
from fleetgym.leaderboard.submit import submit
from fleetgym.leaderboard.verify import verify
from fleetgym.model.sets import instances_folder

SUITE = "fleet-v0/toy"
TOY = f"{SUITE}/two-pools"
SUBMISSION = "2026-11-21-hold"
MOST_CPU_S = 10.0

TEXTS = (
    "", " ", "\t", "-", "--", "0", "-1", "1_0", "\u0661\u0662", "\uff11", "0x10", "1e999", "1e-999", "nan",
    "inf", "-inf", "9" * 400, "9" * 5000, "0.", ".5", "+1", "1,5", "1;2", "null", "None", "true",
    "x" * 5000, "con", ".", "..", "../x", "a/b", "a:b", "~", "*", "%s%n", "{0}", "$HOME", "=1+1", "@x", "'\"",
    "gh(", "gh(margin=1)", "a=b", "\x1b[2J\x1b[31m", "\x07", "\x7f", "\x9b1m", "\u202ecod.\u202c", "\u200b",
    "\ufeff", "\u0430gh", "e\u0301" * 20, "\U0001f600", "\udcff", "a\nb", "a\r\nb", "\u2028", "<b>", "]]>",
    "&amp;", "[x](javascript:1)", "2026-02-30", "0001-01-01", "9999-12-31", "file:///x",
)  # fmt: skip
#: JSON text that `json.dumps` does not write, by the words that stand for it.
RAW = {
    "raw:nan": "NaN", "raw:infinity": "-Infinity", "raw:overflow": "1e999", "raw:digits": "9" * 5000,
    "raw:deep": "[" * 3000 + "]" * 3000, "raw:deeper": '{"a":' * 100_000, "raw:underscore": "1_0",
    "raw:surrogate": '"\\ud800"', "raw:escape": '"\\u001b[2J\\u202egpj"',
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -0.0, 0.5, 1e-320, 1e-9, 1e15, 1e60, 1.7e308, -1.7e308, 2**31, 2**53 + 1, 2**64,
    10**400, -(10**400), [], {}, [[]], [None], [0] * 300, {"": 0}, {"a": {"b": []}}, "x", *RAW,
)  # fmt: skip
TOKENS = (
    b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\n\n\n", b",,,,", b'"', b"{", b"}", b"[", b"\xff", b"\xed\xa0\x80",
    b"\x1b[2J", b"\xe2\x80\xae", b"NaN", b"1e999", b"9" * 400, b"\x1f\x8b\x08", b"PK\x03\x04", b"#", b"\x1a",
)  # fmt: skip


#: What reading raises of a document that is damaged already.
DAMAGED = (ArithmeticError, AttributeError, IndexError, RecursionError, TypeError, ValueError)


class Call(NamedTuple):
    """A call of the command line, and the files that it reads."""

    words: tuple[str, ...]
    files: Mapping[str, bytes]  # by paths in the folder in which the call is made
    changed: tuple[str, ...]  # those that are damaged
    named: tuple[str, ...] = ()  # words that a refusal may use in place of the file's name
    is_set: bool = False  # whether the folder is FLEETGYM_INSTANCES
    silent: bool = False  # whether exit code 1 is an answer on standard output


# -- damage


def damaged(draw: st.DrawFn, name: str, data: bytes) -> bytes:
    """Return a file's bytes after one to three changes; what is packed is unpacked first, mostly."""
    if name.endswith(".gz") and draw(st.integers(0, 9)) < 7:
        return gzip.compress(damaged(draw, name.removesuffix(".gz"), gzip.decompress(data)), 1, mtime=0)
    for _ in range(draw(st.integers(1, 3))):
        change = next((change for ending, change in DOCUMENTS.items() if name.endswith(ending)), None)
        if change is not None and draw(st.booleans()):
            with contextlib.suppress(
                ArithmeticError, ValueError, RecursionError, IndexError, AttributeError, TypeError
            ):
                data = change(draw, data)  # unless it is damaged already
                continue
        data = changed_bytes(draw, data)
    return data


def changed_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with a piece that is cut, doubled, moved, inserted or encoded in another way."""
    a = draw(st.integers(0, len(data)))
    b = min(len(data), a + draw(st.sampled_from((1, 2, 8, 64, 512, 4096))))
    text = draw(st.sampled_from(TEXTS)).encode("utf-8", "surrogateescape")
    encoding = draw(st.sampled_from(("utf-16", "utf-8-sig", "cp037")))
    ways: list[Callable[[], bytes]] = [
        lambda: data[:a],
        lambda: data[a:],
        lambda: data[:a] + data[b:],
        lambda: data[:b] + data[a:b] * 50 + data[b:],
        lambda: data[b:] + data[:b],
        lambda: data[:a] + bytes(byte ^ 1 << (a % 8) for byte in data[a:b]) + data[b:],
        lambda: data[:a] + draw(st.sampled_from((*TOKENS, text))) + data[a:],
        lambda: re.sub(rb"-?[0-9][0-9.eE+-]*", lambda _: text, data[:b]) + data[b:],
        lambda: data.decode("utf-8", "replace").encode(encoding, "replace"),
        lambda: data.replace(b"\n", b"\r"),
        lambda: b"",
    ]
    return draw(st.sampled_from(ways))()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a document with every key in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def changed_document(draw: st.DrawFn, document: Any) -> Any:
    """Return a document with one value or key changed; an object may hold a key twice, as ``key#twice``."""
    document = copy.deepcopy(document)
    found = list(places(document))
    if not found:
        return draw(st.sampled_from(VALUES))
    inner, key = found[draw(st.integers(0, len(found) - 1))]
    way = draw(st.integers(0, 7))
    if way <= 1:
        inner[key] = draw(st.sampled_from(VALUES))
    elif way == 2:
        inner[key] = draw(st.sampled_from(TEXTS))
    elif way == 3:
        del inner[key]
    elif way == 4 and isinstance(inner, dict):
        inner[draw(st.sampled_from((f"{key}#twice", f"{key}s", key.upper(), *TEXTS)))] = inner[key]
    elif way == 5:
        inner[key] = draw(
            st.sampled_from(([inner[key]], {"a": inner[key]}, str(inner[key]), [inner[key]] * 200))
        )
    elif way == 6 and isinstance(inner[key], (int, float)):
        inner[key] = inner[key] * draw(st.sampled_from((-1, 0, 1e-6, 0.5, 2, 1e3, 1e9)))
    else:
        other, there = found[draw(st.integers(0, len(found) - 1))]
        inner[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(inner[key])
    return document


def changed_json(draw: st.DrawFn, data: bytes) -> bytes:
    """Return the text of a changed JSON document."""
    text = json.dumps(changed_document(draw, json.loads(data))).replace('#twice"', '"')
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text.encode()


def changed_line(draw: st.DrawFn, data: bytes) -> bytes:
    """Return JSON lines, one of them changed."""
    lines = data.split(b"\n")
    k = draw(st.sampled_from((0, draw(st.integers(0, len(lines) - 1)))))
    lines[k] = changed_json(draw, lines[k])
    return b"\n".join(lines)


def changed_cell(draw: st.DrawFn, data: bytes) -> bytes:
    """Return a CSV file with a cell that is replaced, doubled or lacking."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    row = rows[draw(st.sampled_from((0, draw(st.integers(0, len(rows) - 1)))))]
    k = draw(st.integers(0, len(row) - 1))
    row[k : k + 1] = draw(st.sampled_from(([], [row[k]] * 2, [draw(st.sampled_from(TEXTS))])))
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n", delimiter=draw(st.sampled_from(",;\t"))).writerows(rows)
    return stream.getvalue().encode("utf-8", "surrogateescape")


def changed_toml(draw: st.DrawFn, data: bytes) -> bytes:
    """Return the text of a changed TOML document."""
    return tomli_w.dumps(changed_document(draw, tomllib.loads(data.decode()))).encode()


DOCUMENTS = {".json": changed_json, ".jsonl": changed_line, ".csv": changed_cell, ".toml": changed_toml}


# -- good files, and the calls that read them


def under(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Call]]:
    """Return calls by the kind of the files that they read."""
    folder = tmp_path_factory.mktemp("good")
    return {
        "instances": list(instance_calls()),
        "results": list(result_calls(folder)),
        "sets": list(set_calls()),
        "traces": list(trace_calls(folder)),
        "boards": list(board_calls(folder)),
    }


def instance_calls() -> Iterator[Call]:
    """Yield calls that read an instance, or its scenarios."""
    toys = under(instances_folder() / SUITE)
    for name in ("two-pools", "drop", "group", "budget-pool"):
        files = {"day.json": toys[f"{name}.json"], "day.scenarios.json": toys[f"{name}.scenarios.json"]}
        yield Call(("show", "day.json"), files, ("day.json",))
        yield Call(("run", "day.json", "--agent", "hold", "--render", "none"), files, ("day.scenarios.json",))
        yield Call(("plan", "day.json", "--agent", "gh", "--days", "0"), files, ("day.json",))
        packed = {"day.json.gz": gzip.compress(files["day.json"])}
        yield Call(("show", "--json", "day.json.gz"), packed, tuple(packed))


def result_calls(folder: Path) -> Iterator[Call]:
    """Yield calls that read a results file and its timings."""
    with contextlib.redirect_stderr(io.StringIO()):
        evaluate(["hold", "gh"], SUITE, isolate="never", out=folder / "run.jsonl")
    files = {name: (folder / name).read_bytes() for name in ("run.jsonl", "run.timings.jsonl")}
    # A run of tasks that there are not is a name that nothing answers to.
    named = ("best-known costs for", "unknown suite", "unknown instance", "#0: ")
    resume = ("evaluate", "hold", "gh", "--suite", SUITE, "--isolate", "never", "--resume", "run.jsonl")
    for words in (
        ("score", "run.jsonl"),
        ("score", "run.jsonl", "--json", "--relative-to", "best-in-run"),
        ("best-known", "propose", "run.jsonl"),
        resume,
        ("submit", "run.jsonl", "--agent", "gh", "--out", "2026-11-21-gh"),
        ("report", "run.jsonl", "--out", "page.html"),
        ("explain", "run.jsonl", "--against", "gh"),
    ):
        yield Call(words, files, tuple(files), named, silent=words[1] == "propose")


def set_calls() -> Iterator[Call]:
    """Yield calls that read a set of instances: its manifest, its files, its best-known costs."""
    standard = instances_folder()
    manifest = json.loads((standard / "manifest.json").read_text(encoding="utf-8"))
    manifest.pop("sha256", None)
    manifest["entries"] = [entry for entry in manifest["entries"] if entry["id"].startswith(f"{SUITE}/")]
    files = {f"{SUITE}/{name}": data for name, data in under(standard / SUITE).items()}
    best = "fleet-v0/best_known.json"
    files |= {"manifest.json": json.dumps(manifest).encode(), best: (standard / best).read_bytes()}
    for changed, words in (
        ("manifest.json", ("list", SUITE)),
        (best, ("best-known", "show", SUITE)),
        (f"{TOY}.json", ("show", TOY)),
        (f"{TOY}.scenarios.json", ("show", TOY)),
    ):
        yield Call(words, files, (changed,), (TOY,), is_set=True)


def trace_calls(folder: Path) -> Iterator[Call]:
    """Yield calls that read traces, prices and SLOs; the instance is written already, so that they end early."""
    write_generic(folder / "t.csv", per_second=0.02)
    write_azure(folder / "azure.csv", per_second=0.02)
    text = (folder / "t.csv").read_bytes()
    cells = list(csv.DictReader(io.StringIO(text.decode())))
    rows = [
        {name: cell if name == "workload" else float(cell) for name, cell in row.items()} for row in cells
    ]
    files = {
        "t.csv": text,
        "azure.csv": (folder / "azure.csv").read_bytes(),
        "t.csv.gz": gzip.compress(text),
        "t.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "t.json": json.dumps(rows).encode(),
    }
    beside = {
        "p.csv": b"gpu,usd_per_gpu_h,max_gpus,market,region\nH100,2.95,16,on-demand,eu\nL40S,1.55,16,spot,eu\n",
        "s.csv": b"workload,ttft,delay,error,unserved_usd\n*,1,15,0.05,0.01\n",
        "s.json": b'{"*": {"ttft": 1, "delay": 15, "error": 0.05}}',
    }
    more = ("--models", "Llama-3.1-8B", "--by", "one", "--scenarios", "1", "--out", "made.json", "--unsorted")
    for name, data in files.items():
        words = ("import-trace", name, "--prices", "p.csv", "--slo", "s.csv", *more)
        yield Call(words, {name: data, **beside}, (name,))
    for slo, changed in (("s.csv", "p.csv"), ("s.csv", "s.csv"), ("s.json", "s.json")):
        words = ("import-trace", "t.csv", "--prices", "p.csv", "--slo", slo, *more)
        yield Call(words, {"t.csv": text, **beside}, (changed,), ("the SLO ", "GPU", "--models"))


def board_calls(folder: Path) -> Iterator[Call]:
    """Yield calls that read a leaderboard: submissions, records, registers."""
    board, seed = folder / "board", "5e" * 32
    place = board / "submissions" / SUBMISSION
    with contextlib.redirect_stderr(io.StringIO()):
        evaluate(["hold"], SUITE, isolate="never", out=folder / "kept.jsonl")
        submit(folder / "kept.jsonl", place, date="2026-11-21", division="closed", time_class="reflex")
        verify(place, out=board / "verified")
        freeze(board, "fleet-v0", "2026-11-21")
    (board / "seasons.toml").write_text(
        f'[[season]]\nname = "t"\nsuite = "{SUITE}"\nscenarios = 1\nopened = "2026-11-21"\n'
        f'seed_sha256 = "{seed_sha256(seed)}"\n'
    )
    (board / "machines.toml").write_text(
        '[[machine]]\nname = "m"\nprocessor = "p"\ncores = 2\nmemory_gb = 16\nnote = "n"\n'
    )
    files = under(board)
    submitted = {
        name.partition("/")[2]: data for name, data in files.items() if name.startswith("submissions/")
    }
    changed = tuple(name for name in submitted if not name.endswith("README.md"))
    yield Call(("verify", SUBMISSION), submitted, changed, (SUBMISSION,))
    changed = tuple(n for n in files if n.endswith(".toml") or n.startswith(("verified/", "releases/")))
    yield Call(
        ("leaderboard", ".", "--out", "site"), files, changed, ("No such file or directory: releases",)
    )
    registers = {name: data for name, data in files.items() if "/" not in name}
    yield Call(
        ("season", "check", "t", "--board", "."), registers, tuple(registers), ("seed of t", "unknown season")
    )


# -- what is asked of every answer

LINES = ("fleetgym", "rejected  ", "wrong  ", "error: ", "usage: ", " ")


def complaint(call: Call, words: Sequence[str], code: int, out: str, err: str, new: set[str]) -> str:
    """Return what is wrong with a call's answer; empty if nothing is."""
    lines = [line for line in err.splitlines() if line]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if printable(out + err, keep="\n\t") != out + err:
        return "characters that a terminal obeys are printed as they are"
    if strange := next((line for line in lines if not line.startswith(LINES)), None):
        return f"a line of somebody else's: {strange}"
    if any(len(line) > 2000 for line in lines):
        return "a line of more than 2000 characters"
    if code == 0:
        if "--json" in words:
            parse_json(out)
        return ""
    if half := [name for name in new if Path(name).name.startswith(".") and name not in " ".join(words)]:
        return f"left behind: {', '.join(half)}"
    if call.silent and code == 1 and not lines:
        return ""
    if not any(name in err for name in [*(Path(name).name for name in call.files), *call.named]):
        return "refused without a word, or without the name of a file"
    return ""


def answer(call: Call, words: Sequence[str], files: Mapping[str, bytes], folder: Path) -> int:
    """Make a call in an empty folder with these files, and check its answer; return the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    folder.mkdir(exist_ok=True)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if call.is_set:
            patch.setenv("FLEETGYM_INSTANCES", str(folder))
        begin = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(list(words))
            except SystemExit as end:  # argparse
                code = int(end.code or 0)
    assert time.process_time() - begin < MOST_CPU_S
    new = {p.relative_to(folder).as_posix() for p in folder.rglob("*")} - set(files)
    wrong = complaint(call, words, code, out.getvalue(), err.getvalue(), new)
    assert not wrong, f"{wrong}\nfleetgym {' '.join(words)}\n{err.getvalue()[:2000]}"
    return code


KINDS = ("instances", "results", "sets", "traces", "boards")
#: Changes of each kind of file in `make test`; `make verify-all` tries a hundred times as many.
FEW, MANY = 25, 2500
USUAL = settings(
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


def try_files(data: st.DataObject, kind: list[Call], folder: Path) -> None:
    """Damage one file of one call."""
    call = data.draw(st.sampled_from(kind))
    name = data.draw(st.sampled_from(call.changed))
    made = damaged(data.draw, name, call.files[name])
    answer(call, call.words, {**call.files, name: made}, folder / "case")


@pytest.mark.parametrize("kind", KINDS)
@settings(USUAL, max_examples=FEW, derandomize=True)
@given(data=st.data())
def test_damaged_files(kind: str, calls: dict[str, list[Call]], tmp_path: Path, data: st.DataObject) -> None:
    """A file that is damaged in any way is read, or refused by its name."""
    try_files(data, calls[kind], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@settings(USUAL, max_examples=MANY)
@given(data=st.data())
def test_many_damaged_files(
    kind: str, calls: dict[str, list[Call]], tmp_path: Path, data: st.DataObject
) -> None:
    """So are many more."""
    try_files(data, calls[kind], tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_good_files_are_taken(kind: str, calls: dict[str, list[Call]], tmp_path: Path) -> None:
    """The calls work on the files that are damaged, so that what is refused is refused for its damage."""
    for call in calls[kind]:
        code = answer(call, call.words, call.files, tmp_path / "case")
        assert code == 0 or call.silent or call.words[0] == "season", call.words


@pytest.mark.parametrize(
    ("code", "out", "err", "new", "says"),
    [
        (5, "", "fleetgym: a.json: no\n", set(), "exit code 5"),
        (1, "", "fleetgym: a.json \x1b[2J\n", set(), "a terminal obeys"),
        (1, "", "RuntimeWarning: a.json\n", set(), "somebody else's"),
        (1, "", "fleetgym: a.json " + "x" * 3000, set(), "more than 2000 characters"),
        (1, "", "fleetgym: a.json: no\n", {".half"}, "left behind: .half"),
        (1, "", "fleetgym: something is wrong\n", set(), "without the name"),
        (1, "", "", set(), "refused without a word"),
        (1, "", "fleetgym: a.json: $: not JSON\n", set(), ""),
    ],
)
def test_what_is_wrong_is_found(code: int, out: str, err: str, new: set[str], says: str) -> None:
    """Each thing that is asked for can be missed."""
    found = complaint(Call(("show",), {"a.json": b""}, ("a.json",)), ["show"], code, out, err, new)
    assert says in found
    assert bool(says) == bool(found)


# -- options


def arguments_of(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.Action]]:
    """Yield every option that takes a value, with the words that lead to it."""
    for action in parser._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from arguments_of(inner, (*words, name))
        elif action.nargs != 0 and action.option_strings:
            yield words, action


@functools.cache
def options() -> list[tuple[tuple[str, ...], argparse.Action]]:
    """Return the options of all verbs."""
    return [(words, action) for words, action in arguments_of(make_parser()) if words[0] != "bks"]


#: What follows a verb; others get a name that there is not. They end before any work.
NOTHING = ("nothing.json",)
FOLLOWS = {
    "list": ("agents",),
    "calibrate": ("--show",),
    "doctor": (),
    "warmup": (),
    "evaluate": ("hold", *NOTHING),
}


@settings(USUAL, max_examples=200, derandomize=True)
@given(data=st.data())
def test_hostile_options(tmp_path: Path, data: st.DataObject) -> None:
    """No option takes a word that ends in a traceback, or that a terminal would obey."""
    words, action = data.draw(st.sampled_from(options()))
    value = data.draw(st.sampled_from((*TEXTS, *(str(choice) for choice in action.choices or ())))).replace(
        "\x00", ""
    )
    option = action.option_strings[-1]
    given_ = (f"{option}={value}",) if data.draw(st.booleans()) else (option, value)
    call = Call(
        (*words, *(FOLLOWS.get(words[0], NOTHING) if len(words) == 1 else ()), *given_), {}, (), ("",)
    )
    answer(call._replace(silent=True), call.words, {}, tmp_path / "case")
