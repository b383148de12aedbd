"""A file's bytes in, the bytes of a mutant out: damaged as bytes, as text, or as what the text stands for."""

from __future__ import annotations

import bz2
import copy
import csv
import gzip
import io
import json
import lzma
import random
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from typing import Any

import tomli_w

_DEEP = 3000
#: Stand in a document for JSON text that `json.dumps` does not write.
_RAW = {
    "raw:nan": "NaN",
    "raw:infinity": "-Infinity",
    "raw:overflow": "1e999",
    "raw:digits": "9" * 5000,
    "raw:deep": "[" * _DEEP + "]" * _DEEP,
    "raw:deeper": '{"a":' * 100_000,
    "raw:underscore": "1_0",
    "raw:plus": "+1",
    "raw:hex": "0x10",
    "raw:lone-surrogate": '"\\ud800"',
    "raw:escape": '"\\u001b[2J\\u202egpj"',
}

TEXTS = (
    "", " ", "\t", "-", "--", "0", "-1", "1_0", "\u0661\u0662", "\uff11", "0x10", "1e999", "1e-999", "nan",
    "inf", "-inf", "9" * 400, "9" * 5000, "0.", ".5", "+1", "1,5", "1;2", "null", "None", "true",
    "x" * 5000, "con", "aux.1", "a.", ".", "..", "../x", "a/b", "a\\b", "a:b", "~", "*", "%s%n", "{0}",
    "$HOME", "=1+1", "@x", "'\"", "(", "gh(", "gh(margin=1)", "a=b",
    "\x1b[2J\x1b[31m", "\x07", "\x7f", "\x9b1m", "\u202ecod.\u202c", "\u200b", "\ufeff", "\u0430gh", "\uff41gh",
    "e\u0301" * 20,
    "\U0001f600", "\udcff", "a\nb", "a\r\nb", "a\x00b", "\u2028", "<b>", "]]>",
    "&amp;", "[x](javascript:1)", "2026-02-30", "0001-01-01", "9999-12-31", "file:///x",
    "https://\u0430.b/",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, -0.0, 0.5, 1e-320, 1e-9, 1e9, 1e15, 1e60, 1.7e308, -1.7e308, 2**31,
    2**53 + 1, 2**63, 2**64, 10**400, -(10**400), [], {}, [[]], [None], [0] * 300, {"": 0},
    {"a": {"b": []}}, "x", *_RAW,
)  # fmt: skip

_TOKENS = (
    b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\n", b"\n\n\n", b",", b",,,,", b'"', b'""', b"{", b"}", b"[", b"]",
    b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\x1b[2J", b"\xe2\x80\xae", b"NaN", b"1e999", b"9" * 400,
    b"\x1f\x8b\x08", b"PK\x03\x04", b"#", b";", b"\t", b"\x0c", b"\x1a",
)  # fmt: skip


def mutated(name: str, data: bytes, rng: random.Random) -> bytes:
    """Return a mutant of a file.

    Parameters
    ----------
    name : str
        Of the file; its endings say what it holds, and what it is packed with.
    data : bytes
    rng : random.Random
        Decides everything.

    Returns
    -------
    bytes

    Examples
    --------
    >>> mutated("a.json", b"[1]", random.Random(1)) == mutated("a.json", b"[1]", random.Random(1))
    True
    """
    for ending, (unpack, pack) in _PACKED.items():
        if name.endswith(ending) and rng.random() < 0.7:
            return pack(mutated(name.removesuffix(ending), unpack(data), rng))
    structured = next((change for ending, change in _STRUCTURED.items() if name.endswith(ending)), None)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if structured is not None and rng.random() < 0.65:
            try:
                data = structured(data, rng)
                continue
            except (
                ArithmeticError,
                AttributeError,
                csv.Error,
                IndexError,
                RecursionError,
                TypeError,
                ValueError,
            ):  # it is damaged already
                pass
        data = rng.choice(_BYTE_CHANGES)(data, rng)
    return data


# -- bytes and text


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    """Return where a piece begins and ends: short ones as often as long ones."""
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 2, 8, 64, 512, 4096)))


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 32)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return rng.choice((data[:begin], data[begin:], data[:begin] + data[end:]))


def _doubled(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 2, 50)) + data[end:]


def _swapped(data: bytes, rng: random.Random) -> bytes:
    (a, b), (c, d) = sorted((_span(data, rng), _span(data, rng)))
    c = max(b, c)
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[max(c, d) :]


def _inserted(data: bytes, rng: random.Random) -> bytes:
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    token = rng.choice((*_TOKENS, rng.choice(TEXTS).encode("utf-8", "surrogateescape")))
    return data[:at] + token * rng.choice((1, 1, 1, 100)) + data[at:]


def _number_changed(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?[0-9][0-9.eE+-]*", data))
    if not found:
        return _inserted(data, rng)
    match = rng.choice(found)
    text = rng.choice(TEXTS[:30]).encode("utf-8", "surrogateescape")
    return data[: match.start()] + text + data[match.end() :]


def _encoded(data: bytes, rng: random.Random) -> bytes:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _flipped(data, rng)
    way = rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037", "crlf", "cr"))
    if way.startswith("cr"):
        return text.replace("\n", "\r\n" if way == "crlf" else "\r").encode()
    return text.encode(way, "replace")


def _lines_changed(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif way == 1:
        lines.insert(a, lines[b])
    elif way == 2:
        del lines[a]
    else:
        lines[a] = lines[a] * 3
    return b"\n".join(lines)


_BYTE_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flipped, _cut, _doubled, _swapped, _inserted, _number_changed, _encoded, _lines_changed, lambda data, rng: b"",
)  # fmt: skip


# -- documents


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of a document with every key in it."""
    found, left = [], [value]
    while left:
        inner = left.pop()
        keys = (
            list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        )
        for key in keys:
            found.append((inner, key))
            left.append(inner[key])
    return found


def _document_changed(document: Any, rng: random.Random) -> Any:
    """Return a document with one value or key changed; objects may hold a key twice, as ``key#twice``."""
    document = copy.deepcopy(document)
    places = _places(document)
    if not places or rng.random() < 0.02:
        return rng.choice(VALUES)
    inner, key = rng.choice(places)
    way = rng.randrange(10)
    if way <= 2:
        inner[key] = rng.choice(VALUES)
    elif way == 3:
        inner[key] = rng.choice(TEXTS)
    elif way == 4:
        del inner[key]
    elif way == 5 and isinstance(inner, dict):
        inner[rng.choice((f"{key}#twice", f"{key}s", key.upper(), rng.choice(TEXTS)))] = inner[key]
    elif way == 5:
        inner.insert(key, copy.deepcopy(inner[key]))
    elif way == 6:
        other, there = rng.choice(places)
        inner[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(inner[key])
    elif way == 7:
        inner[key] = rng.choice(
            (lambda v: [v], lambda v: {"a": v}, str, lambda v: [v] * 200, lambda v: v and [v])
        )(inner[key])
    elif way == 8 and isinstance(inner[key], (int, float)):
        inner[key] = inner[key] * rng.choice((-1, 0, 1e-6, 0.5, 2, 1e3, 1e9)) + rng.choice((0, 1))
    elif way == 8 and isinstance(inner[key], str):
        inner[key] += rng.choice(TEXTS)
    else:
        inner[key] = rng.choice([o[k] for o, k in places])
    return document


def _json_text(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=True)
    text = text.replace('#twice"', '"')
    for word, raw in _RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text.encode()


def _json_changed(data: bytes, rng: random.Random) -> bytes:
    return _json_text(_document_changed(json.loads(data), rng))


def _jsonl_changed(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    k = rng.choice((0, rng.randrange(len(lines))))
    lines[k] = _json_changed(lines[k], rng)
    return b"\n".join(lines)


def _toml_changed(data: bytes, rng: random.Random) -> bytes:
    return tomli_w.dumps(_document_changed(tomllib.loads(data.decode()), rng)).encode()


def _csv_changed(data: bytes, rng: random.Random) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    row = rng.choice((0, rng.randrange(len(rows))))
    column = rng.randrange(max(len(rows[row]), 1))
    way = rng.randrange(7)
    if way <= 2:
        rows[row][column] = rng.choice(TEXTS)
    elif way == 3:
        rows[row].insert(column, rng.choice(("", rows[row][column], *TEXTS)))
    elif way == 4:
        del rows[row][column]
    elif way == 5:
        for cells in rows[rng.choice((0, 1)) :]:
            cells[column] = rng.choice(TEXTS) if rng.random() < 0.1 else cells[-1]
    else:
        rows.insert(row, rows[rng.randrange(len(rows))])
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n", delimiter=rng.choice((",", ",", ",", ";", "\t"))).writerows(rows)
    return stream.getvalue().encode("utf-8", "surrogateescape")


_STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": _json_changed, ".jsonl": _jsonl_changed, ".toml": _toml_changed, ".csv": _csv_changed,
}  # fmt: skip


# -- packed files


def _zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("requests.csv"), data)
    return stream.getvalue()


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(archive.namelist()[0])


def _tarred(data: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("requests.csv")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _untarred(data: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.extractfile(archive.getmembers()[0]).read()  # type: ignore[union-attr]


def _packers() -> dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]]:
    found: dict[str, Any] = {
        ".gz": (gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
        ".bz2": (bz2.decompress, bz2.compress),
        ".xz": (lzma.decompress, lambda data: lzma.compress(data, preset=0)),
        ".zip": (_unzipped, _zipped),
        ".tar": (_untarred, _tarred),
    }
    try:
        import zstandard
    except ImportError:
        return found
    return {
        **found,
        ".zst": (lambda d: zstandard.ZstdDecompressor().decompressobj().decompress(d), zstandard.compress),
    }


_PACKED = _packers()


def packed(name: str, data: bytes) -> bytes:
    r"""Return a file's content packed as its name's endings say, where this machine can.

    Examples
    --------
    >>> packed("a.csv.gz", b"x")[:2], packed("a.csv", b"x")
    (b'\x1f\x8b', b'x')
    """
    ending = next((e for e in _PACKED if name.endswith(e)), None)
    return data if ending is None else _PACKED[ending][1](packed(name.removesuffix(ending), data))
