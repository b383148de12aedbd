"""A block of lines and the layout of a trace in; a vector of checked rows, or the first wrong line, out."""

from __future__ import annotations

import csv
import io
import os
from typing import Any

import numpy as np

from fleetgym.capacity.traces.header import Layout
from fleetgym.capacity.traces.source import Block, fail

MAX_TOKENS = 10**7
MAX_LABELS = 256
_MAX_SECONDS = 9e9  # as many as fit nanoseconds since 1970 in 64 bits
_YEARS = (1678, 2261)  # as fit them, too
_RELATIVE_DATES = ("now", "today")  # pandas knows them; no trace does

ROW = np.dtype([("time_ns", "<i8"), ("input", "<i4"), ("output", "<i4"), ("label", "<i2")])


class Parser:
    """One block of whole lines and the vectors that are made of it."""

    def __init__(self, path: str | os.PathLike[str], layout: Layout, is_clock: bool, block: Block, text: str):
        self.path, self.layout, self.is_clock, self.block = path, layout, is_clock, block
        self.fields = self._split_quoted(text) if '"' in text else self._split_plain()
        self.bad: list[tuple[int, str]] = []  # the first bad row of each column, and why

    def rows(self, codes: dict[str, int]) -> np.ndarray:
        """Return the block's rows of dtype `ROW`; new labels get the next codes."""
        layout = self.layout
        time_ns = self._dates(layout.time) if self.is_clock else self._seconds(layout.time)
        columns = {
            "time_ns": time_ns,
            "input": self._tokens(layout.input, "input"),
            "output": self._tokens(layout.output, "output"),
            "label": np.zeros_like(time_ns) if layout.label is None else self._labels(layout.label, codes),
        }
        if self.bad:
            row, message = min(self.bad)
            fail(self.path, self.block.first_line + row, message)
        rows = np.empty(len(time_ns), dtype=ROW)
        for name, values in columns.items():
            rows[name] = values
        return rows

    # -- lines to fields

    def _split_plain(self) -> dict[int, np.ndarray]:
        """Split lines without quotes; a count of the commas comes first, so that every row has its line."""
        import pandas

        data = np.frombuffer(self.block.data, dtype=np.uint8)
        ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
        commas = np.searchsorted(np.flatnonzero(data == ord(",")), ends)
        widths, lengths = np.diff(commas, prepend=0) + 1, np.diff(ends, prepend=-1) - 1
        odd = int(np.argmax(widths != self.layout.width))
        self._check_width(odd, int(widths[odd]), int(lengths[odd]))
        self._check_characters(data, ends)
        wanted = self._wanted()
        frame = pandas.read_csv(
            io.BytesIO(self.block.data),
            header=None,
            names=range(self.layout.width),
            usecols=wanted,
            dtype=object,
            na_filter=False,
            quoting=csv.QUOTE_NONE,
            skip_blank_lines=False,
            index_col=False,
        )
        return {k: frame[k].to_numpy(dtype=object) for k in wanted}

    def _wanted(self) -> list[int]:
        layout = self.layout
        found = (layout.time, layout.input, layout.output, layout.label)
        return sorted(k for k in found if k is not None)

    def _check_width(self, row: int, width: int, length: int) -> None:
        if width != self.layout.width:
            found = "an empty line" if length <= 1 else str(width)
            message = f"expected {self.layout.width} fields as in the header, got {found}"
            fail(self.path, self.block.first_line + row, message)

    def _check_characters(self, data: np.ndarray, ends: np.ndarray) -> None:
        """Refuse NUL bytes and carriage returns within a line: they would shift rows against lines."""
        returns = np.flatnonzero(data == ord("\r"))
        after = np.append(data, ord("\n"))[returns + 1]
        bad = np.append(np.flatnonzero(data == 0), returns[after != ord("\n")])
        if bad.size:
            row = int(np.searchsorted(ends, bad.min()))
            fail(self.path, self.block.first_line + row, "a NUL byte or a carriage return within the line")

    def _split_quoted(self, text: str) -> dict[int, np.ndarray]:
        """Split lines with quotes one by one, by the rules of CSV; no field may run over a line's end."""
        columns: dict[int, list[str]] = {k: [] for k in self._wanted()}
        for row, line in enumerate(text.split("\n")):
            try:
                (fields,) = csv.reader([line.removesuffix("\r")], strict=True)
            except (csv.Error, ValueError) as error:
                fail(self.path, self.block.first_line + row, f"not a row of CSV ({error})")
            self._check_width(row, len(fields), len(line))
            for k, values in columns.items():
                values.append(fields[k])
        return {k: np.array(values, dtype=object) for k, values in columns.items()}

    # -- fields to numbers

    def _reject(self, wrong: np.ndarray, column: int, expected: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            found = str(self.fields[column][row]).strip()
            shown = repr(found if len(found) <= 40 else found[:37] + "...")
            self.bad.append((row, f"expected {expected}, got {shown}"))

    def _dates(self, column: int) -> np.ndarray:
        import pandas

        texts = pandas.Series(self.fields[column])
        stamps = pandas.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        wrong = ~stamps.dt.year.between(*_YEARS) | texts.isin(_RELATIVE_DATES)
        self._reject(
            np.asarray(wrong),
            column,
            f"a time such as 2023-11-16 18:17:03.9799600, of the years {_YEARS[0]} to {_YEARS[1]} (or seconds in all "
            "rows)",
        )
        return np.asarray(stamps.mask(wrong).dt.as_unit("ns").astype("int64"))

    def _seconds(self, column: int) -> np.ndarray:
        seconds = self._numbers(column)
        self._reject(np.isnan(seconds), column, "seconds (or a time such as 2023-11-16 18:17:03 in all rows)")
        wrong = ~(np.abs(seconds) < _MAX_SECONDS)
        self._reject(wrong, column, f"seconds, fewer than {_MAX_SECONDS:g} (of milliseconds, a thousandth)")
        # To the microsecond: seconds since 1970 have no more digits in floating point.
        return np.rint(np.where(wrong, 0.0, seconds) * 1e6).astype(np.int64) * 1000

    def _numbers(self, column: int) -> np.ndarray:
        import pandas

        return np.asarray(pandas.to_numeric(self.fields[column], errors="coerce"), dtype=float)

    def _tokens(self, column: int, side: str) -> np.ndarray:
        tokens = self._numbers(column)
        wrong = ~((tokens >= 0) & (tokens <= MAX_TOKENS) & (tokens == np.floor(tokens)))
        self._reject(wrong, column, f"a whole number of {side} tokens from 0 to {MAX_TOKENS:,}")
        return np.where(wrong, 0.0, tokens)

    def _labels(self, column: int, codes: dict[str, int]) -> Any:
        import pandas

        local, names = pandas.factorize(self.fields[column])
        known = np.empty(len(names), dtype=np.int64)
        for k, name in enumerate(names):
            label = str(name).strip()
            if not label:
                self._reject(local == k, column, "a label")
            elif label not in codes and len(codes) == MAX_LABELS:
                what = f"at most {MAX_LABELS} different labels in the column {self.layout.label_name!r}"
                self._reject(local == k, column, what)
            known[k] = codes.setdefault(label, len(codes))
        return known[local]
