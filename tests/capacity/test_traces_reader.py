"""Reading traces: the real layout, the generic one, gzip, and a table of files that are refused with their line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import re
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sample_traces import HEADER, requests, stamp, write_azure, write_generic

from fleetgym.capacity.traces.reader import Trace, read_trace
from fleetgym.capacity.traces.source import PACKED
from fleetgym.cli.parser import main
from fleetgym.files.errors import DataError, FleetgymError

ROWS = [f"{stamp(66_000 + 10.5 * k)},{300 + k},{40 + k}" for k in range(100)]


def text(*rows: str, header: str = HEADER) -> bytes:
    """Return a file's bytes."""
    return ("\n".join([header, *rows]) + "\n").encode()


def changed(row: int, to: str) -> bytes:
    """Return a good file with one data row replaced; row 0 is line 2."""
    return text(*ROWS[:row], to, *ROWS[row + 1 :])


def zipped(method: int = zipfile.ZIP_DEFLATED, version: int = 20, flags: int = 0) -> bytes:
    """Return a .zip of a good file whose headers ask for a version of the format and for features."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("t.csv", text(*ROWS))
    data = bytearray(stream.getvalue())
    for header, place in ((b"PK\x03\x04", 4), (b"PK\x01\x02", 6)):
        at = data.index(header) + place
        data[at : at + 4] = version.to_bytes(2, "little") + flags.to_bytes(2, "little")
    return bytes(data)


GENERIC = "time,input_tokens,output_tokens,workload"

#: name of the file, its bytes, the place that the error names, a part of what it says
BROKEN = {
    "empty": ("t.csv", b"", "line 1", "the file is empty"),
    "only line breaks": ("t.csv", b"\n\n\n", "line 1", "the file is empty"),
    "only a header": ("t.csv", text(), "line 2", "no request after the header"),
    "no header": ("t.csv", "\n".join(ROWS).encode(), "line 1", "no column holds the arrival time"),
    "wrong columns": ("t.csv", text("1,2", header="a,b"), "line 1", "expected a header such as TIMESTAMP"),
    "no output column": ("t.csv", text("1,2", header="time,input_tokens"), "line 1", "the output tokens"),
    "two time columns": (
        "t.csv",
        text("1,2,3,4", header="time,timestamp,input_tokens,output_tokens"),
        "line 1",
        "two",
    ),
    "a field too few": ("t.csv", changed(4, f"{stamp(66_042)},5"), "line 6", "expected 3 fields"),
    "a field too many": ("t.csv", changed(0, f"{stamp(66_042)},5,6,7"), "line 2", "got 4"),
    "an empty line inside": ("t.csv", changed(7, ""), "line 9", "an empty line"),
    "a bad stamp": ("t.csv", changed(9, "2023-13-45 18:17:03.97,5,6"), "line 11", "'2023-13-45 18:17:03.97'"),
    "an empty stamp": ("t.csv", changed(9, ",5,6"), "line 11", "expected a time such as"),
    "a word for a date": ("t.csv", changed(9, "now,5,6"), "line 11", "expected a time such as"),
    "another word": ("t.csv", text("today,5,6"), "line 2", "got 'today'"),
    "before all clocks": (
        "t.csv",
        changed(9, "1500-01-01 00:00:00,5,6"),
        "line 11",
        "of the years 1678 to 2261",
    ),
    "the end of time": ("t.csv", text("9999-12-31 23:59:59,5,6"), "line 2", "of the years 1678 to 2261"),
    "a date among seconds": ("t.csv", text("5,5,6", f"{stamp(9)},5,6"), "line 3", "or a time such as"),
    "a number among dates": ("t.csv", changed(9, "17.25,5,6"), "line 11", "or seconds in all rows"),
    "unsorted": ("t.csv", changed(50, f"{stamp(66_001)},5,6"), "line 52", "--unsorted"),
    "negative tokens": (
        "t.csv",
        changed(3, f"{stamp(66_031.5)},-5,6"),
        "line 5",
        "whole number of input tokens",
    ),
    "half a token": ("t.csv", changed(3, f"{stamp(66_031.5)},5,6.5"), "line 5", "got '6.5'"),
    "NaN tokens": ("t.csv", changed(3, f"{stamp(66_031.5)},NaN,6"), "line 5", "got 'NaN'"),
    "infinite tokens": ("t.csv", changed(3, f"{stamp(66_031.5)},5,inf"), "line 5", "got 'inf'"),
    "missing tokens": ("t.csv", changed(3, f"{stamp(66_031.5)},,5"), "line 5", "input tokens"),
    "words for tokens": ("t.csv", changed(3, f"{stamp(66_031.5)},many,6"), "line 5", "got 'many'"),
    "too many tokens": ("t.csv", changed(3, f"{stamp(66_031.5)},99999999999,6"), "line 5", "10,000,000"),
    "not UTF-8": ("t.csv", text(*ROWS[:5]) + b"\xff\xfe,1,2\n", "line 7", "not UTF-8 text (byte 0xff)"),
    "UTF-16": ("t.csv", text(*ROWS).decode().encode("utf-16"), "line 1", "not UTF-8"),
    "a NUL byte": ("t.csv", text(*ROWS[:5], f"{stamp(66_060)},1\0,2"), "line 7", "NUL byte"),
    "old Mac line breaks": ("t.csv", text(*ROWS).replace(b"\n", b"\r"), "line 1", "no column"),
    "a carriage return inside": (
        "t.csv",
        changed(5, f"{stamp(66_052.5)},1\r2,3"),
        "line 7",
        "carriage return",
    ),
    "a quote left open": ("t.csv", text('1,2,3,"chat', header=GENERIC), "line 2", "not a row of CSV"),
    "an empty label": ("t.csv", text("1,2,3,chat", "2,2,3, ", header=GENERIC), "line 3", "expected a label"),
    "a huge line": ("t.csv", text("9" * 5_000_000), "line 2", "longer than 1 MiB"),
    "gzip under a wrong name": ("t.csv", gzip.compress(text(*ROWS)), "line 1", "name it .gz"),
    "no gzip": ("t.csv.gz", text(*ROWS), "line 1", "gzip file is broken"),
    "truncated gzip": (
        "t.csv.gz",
        gzip.compress(text(*ROWS))[:-40],
        "line",
        "gzip file is broken or truncated",
    ),
    "broken gzip": ("t.csv.gz", gzip.compress(text(*ROWS))[:-8] + b"\0" * 8, "line", "gzip file is broken"),
    "an encrypted zip": ("t.csv.zip", zipped(flags=0x01), "$", "is encrypted"),
    "a patched zip": ("t.csv.zip", zipped(flags=0x20), "$", "compressed patched data"),
    "a zip of the future": ("t.csv.zip", zipped(version=99), "$", "zip file version 9.9"),
    "a zip of LZMA": ("t.csv.zip", zipped(zipfile.ZIP_LZMA), "$", "an unusual method"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_traces_are_refused_with_their_line(name: str, tmp_path: Path) -> None:
    """One error names the file, the line and what would be valid."""
    file, content, place, says = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_trace(tmp_path / file)
    assert caught.value.source == str(tmp_path / file)
    assert caught.value.path.startswith(place)
    assert place == "line" or caught.value.path == place
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["empty", "wrong columns", "unsorted", "negative tokens", "NaN tokens", "not UTF-8", "truncated gzip"],
)
def test_the_command_writes_nothing_for_a_broken_trace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, one line on stderr, no output and no file."""
    file, content, place, says = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert main(["import-trace", file]) == 1
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith(f"fleetgym: {file}: {place}")
    assert says in caught.err
    assert caught.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("name", [f"t.csv{ending}" for ending in PACKED])
def test_a_packed_trace_that_is_no_regular_file_is_refused_unread(name: str, tmp_path: Path) -> None:
    """A device could be read for ever, in search of an end or of a beginning."""
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match=rf"{re.escape(name)}: \$: no regular file"):
        read_trace(tmp_path / name)


def test_a_format_of_times_that_is_none(tmp_path: Path) -> None:
    """What pandas cannot compile is refused by name, whatever it raises."""
    path = write_azure(tmp_path / "t.csv")
    for given in ("%s%n", "%", "%Q", "%Y%Y"):
        with pytest.raises(FleetgymError, match=re.escape(repr(given))):
            read_trace(path, time_format=given)


def test_a_broken_zst_is_refused(tmp_path: Path) -> None:
    """At its start, and in the middle of it, alone and around an archive."""
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.compress(text(*ROWS))
    for name in ("t.csv.zst", "t.tar.zst"):
        for broken in (b"\x00" + data, data[:4] + b"\xff" * 8 + data[12:]):
            (tmp_path / name).write_bytes(broken)
            with pytest.raises(DataError, match=rf"{name}: line 1: the packed file is broken"):
                read_trace(tmp_path / name)


def test_a_packed_file_that_asks_for_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an unpacker is told to allocate is the file's word."""

    def open_too_large(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lzma, "open", open_too_large)
    (tmp_path / "t.csv.xz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"t\.csv\.xz: line 1: the packed file asks for more memory"):
        read_trace(tmp_path / "t.csv.xz")


def bomb(path: Path, mib: int) -> Path:
    """Write a gzip file of equal but valid rows."""
    row = f"{stamp(66_000)},300,40\n".encode()
    block = row * (2**20 // len(row))
    with gzip.open(path, "wb", compresslevel=9) as stream:
        stream.write(text())
        for _ in range(mib):
            stream.write(block)
    return path


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    """Valid rows that unpack to over 100 times their size are refused, unless the limit is raised; zeros at once."""
    path = bomb(tmp_path / "bomb.csv.gz", 24)
    assert path.stat().st_size < 2**20
    with pytest.raises(DataError, match="--unpack-limit"):
        read_trace(path)
    with pytest.raises(DataError, match=r"more than 0.00781 GiB"):
        read_trace(path, unpack_gib=1 / 128)
    for limit in (-1.0, 0.0, float("nan")):
        with pytest.raises(DataError, match="unpack_gib: expected a number from 0.001"):
            read_trace(path, unpack_gib=limit)
    (tmp_path / "zeros.csv.gz").write_bytes(gzip.compress(bytes(200 * 2**20)))
    tracemalloc.start()
    with pytest.raises(DataError, match="longer than 1 MiB"):
        read_trace(tmp_path / "zeros.csv.gz")
    assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    tracemalloc.stop()


def columns(trace: Trace) -> np.ndarray:
    """Return all rows of a trace."""
    return np.concatenate(list(trace.chunks()))


def test_the_azure_layout(tmp_path: Path) -> None:
    """Seven digits are kept, and gzip changes nothing."""
    times, inputs, outputs = requests(1, 0.1)
    for name in ("t.csv", "t.csv.gz"):
        trace = read_trace(write_azure(tmp_path / name, hours=0.1))
        rows = columns(trace)
        assert trace.num_rows == len(times)
        assert trace.is_clock
        assert not trace.labels
        np.testing.assert_array_equal(rows["input"], inputs)
        np.testing.assert_array_equal(rows["output"], outputs)
        midnight = int(np.datetime64("2023-11-16", "ns").astype(np.int64))
        expected = np.round((66_223.0 + times) * 1e7) * 100
        assert np.abs(rows["time_ns"] - midnight - expected).max() <= 100
    one = read_trace_of(tmp_path, "2023-11-16 18:17:03.9799600,1,1\n")
    assert one.first_ns == int(np.datetime64("2023-11-16T18:17:03.979960000", "ns").astype(np.int64))


def read_trace_of(folder: Path, rows: str, header: str = HEADER) -> Trace:
    """Return the trace of some text."""
    (folder / "one.csv").write_text(f"{header}\n{rows}")
    return read_trace(folder / "one.csv")


def test_the_generic_layout(tmp_path: Path) -> None:
    """Columns in any order, seconds, a label; other columns are ignored."""
    trace = read_trace(write_generic(tmp_path / "t.csv", hours=0.1))
    times, inputs, _ = requests(1, 0.1)
    rows = columns(trace)
    assert set(trace.labels) == {"chat", "code"}
    assert not trace.is_clock
    np.testing.assert_allclose(rows["time_ns"] / 1e9, times, atol=6e-4)
    np.testing.assert_array_equal(rows["input"], inputs)
    is_code = np.array(trace.labels)[rows["label"]] == "code"
    np.testing.assert_array_equal(is_code, rows["output"] < 60)
    # BurstGPT's header
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    trace = read_trace_of(tmp_path, "5,ChatGPT,472,18,490,Conversation log\n", header)
    assert trace.labels == ("ChatGPT",)
    assert columns(trace)[0].tolist() == (5 * 10**9, 472, 18, 0, 0)


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ("2023-11-16T18:17:03Z,1,2\n", "2023-11-16T18:17:03"),
        ("2023-11-16T18:17:03.5+02:00,1,2\n", "2023-11-16T16:17:03.5"),
        ("2023-11-16 18:17:03,1,2\r\n2023-11-16 18:17:04,1,2\r\n\r\n", "2023-11-16T18:17:03"),
        ('"2023-11-16 18:17:03","1","2"\n', "2023-11-16T18:17:03"),
        ("1700158623.25,1.0,2\n", "2023-11-16T18:17:03.25"),
    ],
)
def test_ways_to_write_a_row(rows: str, first: str, tmp_path: Path) -> None:
    """Zones, Windows line breaks, quotes, seconds since 1970."""
    trace = read_trace_of(tmp_path, rows)
    assert trace.first_ns == int(np.datetime64(first, "ns").astype(np.int64))
    assert columns(trace)[0]["input"] == 1


def test_a_byte_order_mark_and_quoted_labels(tmp_path: Path) -> None:
    """What spreadsheets write is read; quotes and plain lines give the same rows."""
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text('1,2,3,"a, ""b"""', "2,3,4,c", header=GENERIC))
    assert read_trace(tmp_path / "t.csv").labels == ('a, "b"', "c")
    plain, quoted = ["1,2,3,a", "2,3,4,b"], ['"1",2,"3",a', '2,"3",4,"b"']
    rows = [columns(read_trace_of(tmp_path, "\n".join(lines), GENERIC)) for lines in (plain, quoted)]
    assert rows[0].tobytes() == rows[1].tobytes()


def test_other_kinds_of_files(tmp_path: Path) -> None:
    """JSON Lines, JSON, Parquet, Zstandard and archives hold the same requests; milliseconds are told by their size."""
    import json
    import tarfile

    import pandas
    import zstandard

    rows = [
        {"timestamp": 1_772_442_000_000 + 500 * k, "input_tokens": 9 + k, "output_tokens": 5}
        for k in range(50)
    ]
    frame = pandas.DataFrame(rows)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "t.json").write_text(json.dumps({"data": rows}))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv.zst").write_bytes(zstandard.compress((tmp_path / "t.csv").read_bytes()))
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "t.csv", "t.csv")
    found = {p.name: columns(read_trace(p)).tobytes() for p in tmp_path.iterdir()}
    assert len(found) == 6
    assert len(set(found.values())) == 1
    assert read_trace(tmp_path / "t.csv").span_s == pytest.approx(24.5)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:300])
    with pytest.raises(DataError, match="Parquet file that is broken or cut off"):
        read_trace(tmp_path / "cut.parquet")


def test_rows_that_are_no_requests(tmp_path: Path) -> None:
    """Failed rows and rows without output are left out and counted."""
    header = "time,status,input_tokens,output_tokens"
    trace = read_trace_of(tmp_path, "1,ok,10,5\n2,failure,30,5\n3,200,10,0\n4,ok,10,\n5,ok,10,5\n", header)
    assert trace.num_rows == 2
    assert trace.left_out == {"failed": (1, 35), "without output": (1, 10), "without usage": (1, 10)}


def test_rows_of_several_requests(tmp_path: Path) -> None:
    """A row's tokens are the total of its requests, which arrive within its time."""
    header = "time,num_requests,prompt_tokens,completion_tokens"
    trace = read_trace_of(tmp_path, "0,20,18001,4000\n60,20,18000,4000\n", header)
    rows = columns(trace)
    assert (trace.num_rows, rows["input"].sum(), rows["output"].sum()) == (40, 36_001, 8_000)
    assert rows["input"].max() == 901
    assert 0 <= rows["time_ns"].min() <= rows["time_ns"].max() < 120 * 10**9


@pytest.mark.parametrize("date", ["02/Mar/2026:09:00:00 +0000", "Mon, 02 Mar 2026 09:00:00 GMT"])
def test_dates_of_logs(date: str, tmp_path: Path) -> None:
    """Dates of web servers, and of mail and HTTP with their comma, are read."""
    trace = read_trace_of(tmp_path, f"{date},5,6\n{date},5,6\n")
    assert trace.first_ns == int(np.datetime64("2026-03-02T09:00:00", "ns").astype(np.int64))


def test_units_columns_and_parts(tmp_path: Path) -> None:
    """Few whole numbers are asked about; columns, units and parts can be said; quoted line breaks are read."""
    rows = "".join(f'{50 * k},"a\n- b",7,{k},5\n' for k in range(1, 201))
    header = "time,prompt,input_tokens,prompt_tokens,output_tokens"
    with pytest.raises(DataError, match="--columns input=prompt_tokens"):
        read_trace_of(tmp_path, rows, header)
    path, chosen = tmp_path / "one.csv", {"input": "prompt_tokens"}
    with pytest.raises(DataError, match="--time-unit s or --time-unit ms"):
        read_trace(path, columns=chosen)
    assert read_trace(path, columns=chosen, time_unit="ms").span_s == pytest.approx(9.95)
    part = read_trace(path, columns=chosen, time_unit="s", last="1000s")
    assert columns(part)["input"].tolist() == list(range(181, 201))
    assert read_trace(path, columns=chosen, time_unit="s", since="9000", until="9500").num_rows == 10


@pytest.mark.parametrize("large", [int("9" * 400), "9" * 400], ids=["number", "text"])
@pytest.mark.parametrize("name", ["time", "input_tokens", "output_tokens", "num_requests", "status_code"])
def test_a_number_of_hundreds_of_digits_is_refused(name: str, large: int | str, tmp_path: Path) -> None:
    """A number that no float can hold is refused in every column; as a state, it is no success."""
    row = {"time": 5, "input_tokens": 6, "output_tokens": 7, "status_code": 200}
    row |= {"num_requests": 2} if name == "num_requests" else {}
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps({**row, name: large})}\n")
    if name == "status_code":
        assert read_trace(path).num_rows == 1
        return
    with pytest.raises(DataError) as caught:
        read_trace(path)
    assert caught.value.path == "line 2"


@pytest.mark.parametrize("options", [{"last": "9" * 400 + "d"}, {"since": "9" * 400}, {"until": "9" * 400}])
def test_a_part_of_hundreds_of_digits_is_refused(options: dict[str, str], tmp_path: Path) -> None:
    """Lengths and moments that no float can hold are refused."""
    with pytest.raises(FleetgymError, match="cannot read the"):
        read_trace(write_generic(tmp_path / "t.csv", hours=0.1), **options)


def test_any_order(tmp_path: Path) -> None:
    """On request, rows may come in any order."""
    shuffled = ROWS.copy()
    random.Random(3).shuffle(shuffled)
    (tmp_path / "t.csv").write_bytes(text(*shuffled))
    with pytest.raises(DataError, match="earlier than the row before"):
        read_trace(tmp_path / "t.csv")
    found = read_trace(tmp_path / "t.csv", any_order=True)
    assert found.span_s == pytest.approx(99 * 10.5)
    assert np.sort(columns(found)["input"]).tolist() == list(range(300, 400))


def test_lines_are_right_beyond_the_first_block(tmp_path: Path) -> None:
    """A fault, or a step back in time, far into a file of many blocks is found where it is."""
    many = [f"{k // 10}.{k % 10},{k % 3000},7" for k in range(400_000)]
    for row, fault in ((350_001, "35000.1,7,-1"), (300_000, "1,7,7"), (399_999, "40000,7")):
        lines = [*many[:row], fault, *many[row + 1 :]]
        (tmp_path / "t.csv").write_text("\n".join(["time,input_tokens,output_tokens", *lines]))
        with pytest.raises(DataError) as caught:
            read_trace(tmp_path / "t.csv")
        assert caught.value.path == f"line {row + 2}"


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    """A million rows take a few seconds of CPU and little memory."""
    base = int(np.datetime64("2024-05-10", "s").astype(np.int64))
    seconds = np.sort(np.random.default_rng(0).integers(0, 7 * 86400 * 10**7, 1_000_000))
    dates = np.datetime_as_string((base + seconds // 10**7).astype("datetime64[s]"))
    lines = [
        f"{d.replace('T', ' ')}.{s % 10**7:07d},{s % 4000},{s % 300 + 1}"
        for d, s in zip(dates, seconds, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join([HEADER, *lines]))
    begin = time.process_time()
    trace = read_trace(tmp_path / "t.csv")
    assert time.process_time() - begin < 10.0  # 1.5 s measured
    assert trace.num_rows == 1_000_000


@pytest.mark.parametrize("unit", ["", "e0", ".0"])
def test_numbers_are_the_same_however_they_are_parsed(unit: str, tmp_path: Path) -> None:
    """A quoted file is split entry by entry and read as texts; a plain one is parsed at once, to the same rows."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(1.6e9, 1.9e9, 500))
    tokens = rng.integers(1, 4000, (500, 2))
    rows = [[f"{t:.6f}", f"{a}{unit}", f"+{b} "] for t, (a, b) in zip(times, tokens, strict=True)]
    found = []
    for mark in ("", '"'):
        path = tmp_path / f"t{len(mark)}.csv"
        body = "".join(",".join(f"{mark}{cell}{mark}" for cell in row) + "\n" for row in rows)
        path.write_text("time,input_tokens,output_tokens\n" + body)
        with read_trace(path) as trace:
            found.append(np.concatenate(list(trace.chunks())))
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0]["input"], tokens[:, 0])


@pytest.mark.parametrize("entry", ["inf", "1e999", "True", "007x", "1_0"])
def test_a_bad_number_is_shown_as_it_is_written(entry: str, tmp_path: Path) -> None:
    """The message has the entry's line and its text, whatever else the column holds."""
    path = tmp_path / "t.csv"
    path.write_text(f"time,input_tokens,output_tokens\n0,1,1\n1,{entry},1\n2,3,1\n")
    with pytest.raises(DataError, match=re.escape(f"got '{entry}'")) as caught:
        read_trace(path)
    assert caught.value.path == "line 3"
