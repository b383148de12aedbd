"""Convert a piece of a table to checked rows, or raise with the first wrong one."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetgym.capacity.traces.header import CALLS, HASH_BLOCK, SUCCESS_FLAGS, Layout, plain
from fleetgym.capacity.traces.source import StrPath, fail, fault
from fleetgym.capacity.traces.tables import Piece
from fleetgym.capacity.traces.times import Times, numbers
from fleetgym.files.errors import DataError

MAX_TOKENS = 10**7
MAX_LABELS = 2**15 - 1
_MAX_TOTAL = 10**12  # tokens of a row that stands for several requests
_MAX_COUNT = 10**7
_UNTOLD = 0.01  # of all tokens: more are asked about

#: Tokens of the prefix cache, by default.
PREFIX_CACHE_TOKENS = 10_000 * HASH_BLOCK

#: What says that a request went well; anything else in a column of states says that it did not.
_SUCCESS = frozenset(
    ("", "success", "succeeded", "successful", "ok", "completed", "complete", "finished", "done", "true")
    + ("stop", "length", "unset", "none", "null", "nan", "0", "1", "status_code_ok", "status_code_unset")
    + ("default", "debug", "warning")
)
_MISSING = ("", "nan", "none", "null", "na", "n/a", "-", "\\n")  # the last two of proxies and databases
#: What says that a request was turned away for there being too many: codes, and words of engines and clouds.
_TURNED_AWAY = re.compile(
    r"(429|503|529)(\.0)?$|.*(rate.?limit|throttl|too.?many.?requests|overloaded|resource.?exhausted"
    r"|service.?unavailable|error code: (429|503|529))",
    re.DOTALL,
)
#: What says whether a response came from a cache, so that no GPU saw the request.
_HIT = frozenset(("true", "1", "1.0", "yes", "hit", "semantic hit", "cache hit", "cached"))
_NO_HIT = frozenset(
    (*_MISSING, "false", "0", "0.0", "no", "miss", "cache miss", "bypass", "disabled", "expired", "dynamic")
)
#: Of the answer in a cache.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NO_UUID = "00000000-0000-0000-0000-000000000000"
#: In names of columns whose numbers are thousands of tokens, or means over the requests of a row.
_THOUSANDS = re.compile(r"k_?tok|tok(ens?)?[ _.(-]*k\b|kilo|thousand", re.IGNORECASE)
_MEANS = re.compile(r"(^|[^a-z])(avg|mean|average|per_request)([^a-z]|$)", re.IGNORECASE)

ROW = np.dtype([("time_ns", "<i8"), ("input", "<i4"), ("output", "<i4"), ("cached", "<i4"), ("label", "<i2")])
TOTALS = np.dtype(
    [
        ("time_ns", "<i8"),
        ("input", "<i8"),
        ("output", "<i8"),
        ("cached", "<i8"),
        ("label", "<i2"),
        ("count", "<i8"),
    ]
)


class Label(NamedTuple):
    """What a row says of its kind and of the model that it asks for; either may be missing."""

    kind: str | None
    model: str | None

    @property
    def text(self) -> str:
        """Both, with a space between."""
        return " ".join(filter(None, self))

    @property
    def asks_for(self) -> str:
        """What may name a model: the column of models, or else the other."""
        return (self.kind if self.model is None else self.model) or ""


class PrefixCache:
    """The blocks of prompts that were used last, which tell how much of a new prompt is there already.

    Examples
    --------
    >>> cache = PrefixCache(blocks=2)
    >>> cache.hits([1, 2]), cache.hits([1, 3]), cache.hits([1, 2])
    (0, 1, 1)
    """

    def __init__(self, blocks: int):
        self.blocks = blocks
        self._kept: collections.OrderedDict[Any, None] = collections.OrderedDict()

    @property
    def is_used(self) -> bool:
        """Whether there is a block in it."""
        return bool(self._kept)

    def hits(self, hashes: Sequence[Any]) -> int:
        """Return how many of the first blocks are kept, and keep all of them; the least recently used leave."""
        found = 0
        for block in hashes:
            if block not in self._kept:
                break
            found += 1
        for block in reversed(hashes):  # the beginning of a prompt is used last: it outlives its end
            self._kept[block] = None
            self._kept.move_to_end(block)
        while len(self._kept) > self.blocks:
            self._kept.popitem(last=False)
        return found


class Parser:
    """What makes rows of pieces: the layout, how times are written, labels so far, and the prefix cache."""

    def __init__(
        self,
        path: StrPath,
        layout: Layout,
        times: Times,
        prefix_cache_tokens: int = PREFIX_CACHE_TOKENS,
        passed_over: list[DataError] | None = None,
    ):
        self.passed_over = passed_over  # faults of rows that are left out; None: the first is an error
        self.path, self.layout, self.times = path, layout, times
        self.codes: dict[Label, int] = {}
        self.prefix_cache_tokens, self.block = prefix_cache_tokens, layout.format.hash_block
        self.cache = PrefixCache(prefix_cache_tokens // self.block)
        self.bad: list[tuple[int, str]] = []  # the first bad row of each column, and why
        self.wrong = np.zeros(0, dtype=bool)  # the rows of a piece that have an entry which cannot be read
        self.piece = Piece({}, lambda row: row)
        self.count = np.zeros(0)  # requests of each row of the piece
        self.ids: set[int] = set()  # hashes of those of the requests so far, where each is counted once

    @property
    def has_totals(self) -> bool:
        """Whether a row stands for several requests."""
        return "count" in self.layout.columns

    @property
    def prefix_hits(self) -> str | None:
        """How the file tells what of a prompt a prefix cache holds; None where it does not."""
        if "cached" in self.layout.columns:
            own = self.layout.name("cached")
            return f"measured: column {own!r}" + (
                ", beside which the input tokens are the rest of the prompt" if self.layout.has_rest else ""
            )
        if "hashes" in self.layout.columns:
            tokens = self.cache.blocks * self.block
            return (
                f"computed from {self.layout.name('hashes')!r}: one cache of {tokens:,} tokens, least recently used "
                "leave first"
            )
        return None

    def rows(self, piece: Piece) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return a piece's rows, of dtype `ROW` or `TOTALS`, and masks of those that are no requests, by why."""
        self.piece, self.bad = piece, []
        time_ns, wrong, expected = self.times.read(self._entries("time"))
        self.wrong = np.zeros(len(time_ns), dtype=bool)
        failed, others = self._failed(len(time_ns)), self._others(len(time_ns))
        self._reject(wrong & ~others, "time", expected)
        self._check_sample()
        count = self._whole("count", "requests", _MAX_COUNT) if self.has_totals else np.ones(len(time_ns))
        self.count = count
        most = _MAX_TOTAL if self.has_totals else MAX_TOKENS
        answered = self._answered(len(time_ns))
        turned_away = self._turned_away(len(time_ns)) & failed
        silent = failed | others | answered | self._is_missing("output")
        tokens_in = self._whole("input", "input tokens", most, silent)
        tokens_out = self._whole("output", "output tokens", most, silent)
        if self.layout.has_rest:
            tokens_in = tokens_in + sum(
                self._whole(role, "cached tokens", most, True)
                for role in ("cached", "created")
                if role in self.layout.columns
            )
        tokens_out = tokens_out + self._apart(tokens_in, tokens_out, most, silent)
        self._check_total(tokens_in, tokens_out, most, silent)
        columns = {
            "time_ns": time_ns,
            "input": tokens_in,
            "output": tokens_out,
            "cached": self._cached(tokens_in, most, silent),
            "label": self._labels(~failed & ~others & ~answered & (tokens_out > 0)),
        }
        if self.has_totals:
            columns["count"] = count
        if self.bad and (self.passed_over is None or not self.wrong.any()):
            row, message = min(self.bad)
            fail(self.path, piece.place(row), message)
        if self.wrong.any() and self.passed_over is not None:
            row, message = min(self.bad)
            faults = [fault(self.path, piece.place(row), message)]
            self.passed_over += faults * int(self.wrong.sum())
        rows = np.empty(len(time_ns), dtype=TOTALS if self.has_totals else ROW)
        for name, values in columns.items():
            rows[name] = values
        empty = count == 0 if self.has_totals else np.zeros(len(time_ns), dtype=bool)
        is_untold = self._is_missing("output") & self._has_status(len(time_ns))
        untold = ~failed & ~others & ~answered & (is_untold | ((tokens_in == 0) & (tokens_out == 0)))
        masks = {
            "no call": others & ~empty,
            "turned away": turned_away & ~others & ~empty,
            "failed": failed & ~turned_away & ~others & ~empty,
            "answered": answered & ~failed & ~others & ~empty,
            "without usage": untold & ~empty,
            "without output": ~failed & ~others & ~answered & ~untold & (tokens_out == 0) & ~empty,
            "": empty,
        }
        out = {**{why: mask & ~self.wrong for why, mask in masks.items()}, "": empty | self.wrong}
        if "id" in self.layout.columns:
            out["repeated"] = self._repeated(~np.logical_or.reduce(list(out.values())))
        return rows, out

    def _repeated(self, is_request: np.ndarray) -> np.ndarray:
        """Return which requests have an id that an earlier one had."""
        found = np.zeros(len(is_request), dtype=bool)
        ids = self._entries("id")
        for row in np.flatnonzero(is_request):
            known = len(self.ids)
            self.ids.add(hash(ids[row]))
            found[row] = len(self.ids) == known and _text(ids[row]) not in _MISSING
        return found

    # -- fields to numbers

    def _entries(self, role: str) -> np.ndarray:
        return self.piece.columns[self.layout.columns[role]]

    def _reject(self, wrong: np.ndarray, role: str, expected: str) -> None:
        if wrong.any():
            self.wrong |= wrong
            row = int(np.argmax(wrong))
            entry = self.piece.entry(row, self.layout.columns[role])
            found = "" if entry is None else str(entry).strip()
            shown = repr(found if len(found) <= 40 else found[:37] + "...")
            self.bad.append((row, f"expected {expected}, got {shown}"))

    def _whole(
        self, role: str, what: str, most: int, may_miss: np.ndarray | bool | np.bool_ = False
    ) -> np.ndarray:
        found = numbers(self._entries(role))
        missing = self._is_missing(role) & may_miss
        if role not in ("count", "block"):
            found = found * 1000.0 if self.is_in_thousands(role) else found
            found = found * self.count if self.is_mean(role) else found
            found = np.rint(found) if self.is_in_thousands(role) or self.is_mean(role) else found
        wrong = ~((found >= 0) & (found <= most) & (found == np.floor(found))) & ~missing
        self._reject(wrong, role, f"a whole number of {what} from 0 to {most:,}")
        return np.where(wrong | missing, 0.0, found)

    def is_in_thousands(self, role: str) -> bool:
        """Whether the name of a column says that it counts thousands."""
        return _THOUSANDS.search(self.layout.name(role)) is not None

    def is_mean(self, role: str) -> bool:
        """Whether the name of a column says that it has means, where a row stands for several requests."""
        return self.has_totals and _MEANS.search(self.layout.name(role)) is not None

    def _is_missing(self, role: str) -> np.ndarray:
        entries = self._entries(role)
        found = np.isnan(numbers(entries))
        for k in np.flatnonzero(found):
            found[k] = _text(entries[k]) in _MISSING
        return found

    def _failed(self, size: int) -> np.ndarray:
        """Return which rows say of themselves that they went wrong."""
        failed = np.zeros(size, dtype=bool)
        if "status" in self.layout.columns:
            is_flag = plain(self.layout.name("status").rpartition(".")[2]) in map(plain, SUCCESS_FLAGS)
            failures = ("0", "0.0") if is_flag else ()
            failed |= self._by_value("status", lambda text: text in failures or not _is_success(text))
        if "error" in self.layout.columns:
            fine = (*_MISSING, "false", "0", "0.0", "{}", "200")
            failed |= self._by_value("error", lambda text: text not in fine)
        return failed

    def _has_status(self, size: int) -> np.ndarray:
        """Return which rows say of themselves how they went."""
        if "status" not in self.layout.columns:
            return np.zeros(size, dtype=bool)
        return self._by_value("status", lambda text: text not in _MISSING)

    def _turned_away(self, size: int) -> np.ndarray:
        """Return which rows say that there were too many requests."""
        found = np.zeros(size, dtype=bool)
        for role in {"status", "error"} & set(self.layout.columns):
            found |= self._by_value(role, lambda text: _TURNED_AWAY.match(text) is not None)
        return found

    def _answered(self, size: int) -> np.ndarray:
        """Return which rows were answered by a cache of responses."""
        if "answered" not in self.layout.columns:
            return np.zeros(size, dtype=bool)
        wrong = self._by_value(
            "answered", lambda text: text not in _HIT | _NO_HIT and not _UUID.fullmatch(text)
        )
        name = self.layout.name("answered")
        self._reject(
            wrong,
            "answered",
            f"true or false, whether a cache answered (if {name!r} counts tokens of a prefix cache, say --columns "
            f"cached={name},answered=none)",
        )
        return self._by_value("answered", is_hit)

    def _apart(
        self, tokens_in: np.ndarray, tokens_out: np.ndarray, most: int, silent: np.ndarray
    ) -> np.ndarray:
        """Return the reasoning tokens that the output tokens leave out: by the total, or as the user says."""
        if "reasoning" not in self.layout.columns:
            return np.zeros_like(tokens_out)
        thought = self._whole("reasoning", "reasoning tokens", most, True)
        if "reasoning" in self.layout.asked:
            return thought
        if "total" in self.layout.columns:
            total = self._whole("total", "tokens", 3 * most, True)
            return np.where(total >= tokens_in + tokens_out + 0.5 * thought, thought, 0.0)
        name, output = self.layout.name("reasoning"), self.layout.name("output")
        if "details" not in name and np.any((thought > 0) & ~silent):  # those of details are a part
            row = int(np.argmax((thought > 0) & ~silent))
            self.bad.append(
                (
                    row,
                    f"the tokens of {name!r} may be a part of {output!r} or not, and no total tells: say --columns "
                    f"reasoning={name} to add them, or --columns reasoning=none if they are a part",
                )
            )
        return np.zeros_like(tokens_out)

    def _check_total(
        self, tokens_in: np.ndarray, tokens_out: np.ndarray, most: int, silent: np.ndarray
    ) -> None:
        """Refuse rows of which a total says that there are more tokens than are read."""
        if "total" not in self.layout.columns:
            return
        total = self._whole("total", "tokens", 3 * most, True)
        more = (total - tokens_in - tokens_out) * (~silent & (tokens_out > 0))
        if "created" in self.layout.columns or "cached" in self.layout.columns:
            return  # whether a total has them is not known
        if more.sum() > _UNTOLD * total.sum():
            row, name = int(np.argmax(more)), self.layout.name("total")
            self.bad.append(
                (
                    row,
                    f"{name!r} is {more[row]:,.0f} above the input and output tokens: if those are in a column that is "
                    f"not read, name it (as --columns reasoning=NAME); --columns total=none leaves {name!r} unread",
                )
            )

    def _check_sample(self) -> None:
        """Refuse rows that say of themselves that they are a part of the requests only."""
        if "sample" in self.layout.columns:
            rate = numbers(self._entries("sample"))
            every = 100.0 if "perc" in self.layout.name("sample").lower() else 1.0
            told = f"{every:g}, all requests: of a sample with the rate R, say --scale 1/R and --columns sample=none"
            self._reject((rate != every) & ~np.isnan(rate), "sample", told)

    def _others(self, size: int) -> np.ndarray:
        """Return which rows are no calls of a model."""
        if "kind" not in self.layout.columns:
            return np.zeros(size, dtype=bool)
        if self.layout.format.calls:
            return self._by_value("kind", lambda text: text not in ("", *self.layout.format.calls))
        others = self._by_value("kind", lambda text: text not in CALLS)
        return others if not others.all() else np.zeros(size, dtype=bool)  # the column says something else

    def _by_value(self, role: str, says: Callable[[str], bool]) -> np.ndarray:
        texts = [_text(entry) for entry in self._entries(role)]
        verdicts = {text: says(text) for text in set(texts)}
        return np.array([verdicts[text] for text in texts], dtype=bool)

    def _cached(self, tokens_in: np.ndarray, most: int, silent: np.ndarray) -> np.ndarray:
        """Return the tokens of each prompt that were in a prefix cache."""
        if "cached" in self.layout.columns:
            found = self._whole("cached", "cached tokens", most, True)
            self._reject(
                found > np.where(silent, np.inf, tokens_in), "cached", "no more than the input tokens"
            )
            return np.minimum(found, tokens_in)
        if "hashes" not in self.layout.columns:
            return np.zeros_like(tokens_in)
        if "block" in self.layout.columns:
            self._take_block(silent)
        wrong = np.zeros(len(tokens_in), dtype=bool)
        hits = np.zeros(len(tokens_in))
        models = self._entries("model") if "model" in self.layout.columns else None
        for k, hashes in enumerate(self._entries("hashes")):
            if isinstance(hashes, list):
                # What one model computed is of no use to another.
                hits[k] = self.cache.hits(hashes if models is None else [(models[k], h) for h in hashes])
            else:
                wrong[k] = not silent[k]
        self._reject(wrong, "hashes", "a list of the hashes of the prompt's blocks")
        return np.minimum(hits * self.block, tokens_in)

    def _take_block(self, silent: np.ndarray) -> None:
        """Take how many tokens a hash stands for, which all rows must say alike."""
        told = self._whole("block", "tokens of a block", MAX_TOKENS, silent)[~silent]
        if told.size and told[0] and not self.cache.is_used:
            self.block = int(told[0])
            self.cache = PrefixCache(self.prefix_cache_tokens // self.block)
        differs = np.zeros(len(silent), dtype=bool)
        differs[~silent] = told != self.block
        self._reject(differs, "block", f"{self.block} tokens of a block, as in other rows")

    # -- labels

    def _labels(self, is_request: np.ndarray) -> Any:
        """Return codes of the pairs of label and model; what is no request needs none."""
        import pandas

        parts = [role for role in ("label", "model") if role in self.layout.columns]
        if not parts:
            return np.zeros(len(is_request))
        texts = {role: np.array([_stripped(e) for e in self._entries(role)], dtype=object) for role in parts}
        for role in parts:
            empty = np.array([not text for text in texts[role]], dtype=bool)
            self._reject(empty & is_request, role, "a label" if role == "label" else "a model")
        none = np.full(len(is_request), None, dtype=object)
        first, _ = pandas.factorize(texts.get("label", none))
        second, seconds = pandas.factorize(texts.get("model", none))
        pairs, inverse = np.unique(first * (len(seconds) + 1) + second, return_inverse=True)
        known = np.zeros(len(pairs), dtype=np.int64)
        rows_of = np.full(len(pairs), len(is_request))
        np.minimum.at(rows_of, inverse, np.arange(len(is_request)))
        for k in np.argsort(rows_of).tolist():
            row = int(rows_of[k])
            pair = Label(*(texts[role][row] if role in texts else None for role in ("label", "model")))
            if pair not in self.codes and len(self.codes) == MAX_LABELS:
                self.bad.append(
                    (row, f"more than {MAX_LABELS:,} different labels in {self.layout.name(parts[0])!r}")
                )
                break
            known[k] = self.codes.setdefault(pair, len(self.codes))
        return known[inverse]


def _stripped(entry: Any) -> str:
    return "" if entry is None else str(entry).strip()


def _text(entry: Any) -> str:
    """Return an entry for comparison; a list or an object as its text."""
    return (
        ""
        if entry is None or (isinstance(entry, float) and math.isnan(entry))
        else str(entry).strip().lower()
    )


def is_hit(text: str) -> bool:
    """Return whether a column says that a cache of responses answered: by a word, or by naming the stored answer."""
    return text in _HIT or (_UUID.fullmatch(text) is not None and text != _NO_UUID)


def may_be_hits(texts: Collection[str]) -> bool:
    """Return whether values, of which one at least is a hit, say of rows whether a cache answered."""
    return any(map(is_hit, texts)) and all(text in _HIT | _NO_HIT for text in texts)


def _is_success(text: str) -> bool:
    """Return whether a state says that all went well; the codes of HTTP from 200 to 299 do.

    Examples
    --------
    >>> _is_success("success"), _is_success("200"), _is_success("429"), _is_success("failure")
    (True, True, False, False)
    """
    return text in _SUCCESS or re.fullmatch(r"2\d\d(\.0)?", text, re.ASCII) is not None
