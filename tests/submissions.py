"""A good submission on the toys, and how it can be made hostile: each way with the reason it must be rejected for."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetgym.evaluation.isolation.rules import ISOLATED, PROTOCOL, Rules
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.evaluation.run import evaluate
from fleetgym.leaderboard.submission import DECLARATION, EPISODES
from fleetgym.leaderboard.submit import submit

SUITE = "fleet-v0/toy"
SCRIPT = "<script>document.title='owned'</script>"


#: As of an official run, which takes long, on a system that isolates agents, which not every one does.
RULES = Rules(
    protocol=PROTOCOL,
    time_class="reflex",
    cpu_s=3.0,
    reset_cpu_s=60.0,
    wall_factor=3.0,
    memory_gb=8.0,
    machine="a machine",
    speed=1.0,
    **ISOLATED,
)


def make_good(folder: Path, agent: str = "gh-rolling", suite: str = SUITE, **card: str) -> Path:
    """Play an agent on the toys and make its submission."""
    return submitted(evaluate([agent], suite), folder, **card)


def submitted(
    results: Any, folder: Path, division: str = "closed", agent: str | None = None, **card: str
) -> Path:
    """Make a submission of results."""
    submit(results, folder, date="2026-11-21", division=division, time_class="reflex", agent=agent, card=card)
    return folder


# -- changing parts


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the episodes' file as objects."""
    text = gzip.decompress((folder / EPISODES).read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def write_episodes(folder: Path, data: bytes) -> None:
    """Replace the episodes' file and declare its checksum."""
    (folder / EPISODES).write_bytes(data)
    declare(folder, "files.episodes_sha256", hashlib.sha256(data).hexdigest())


def write_lines(folder: Path, lines: list[Any]) -> None:
    """Write objects, or ready-made text, as the episodes' file; the checksum is right."""
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    write_episodes(folder, gzip.compress("".join(f"{line}\n" for line in text).encode(), 1, mtime=0))


def declare(folder: Path, where: str, value: Any) -> None:
    """Change one field of the declaration; text is written as it is in TOML."""
    path = folder / DECLARATION
    table, _, key = where.rpartition(".")
    section, done, found = "", [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        section = line.strip("[]") if line.startswith("[") else section
        if section == table and line.startswith(f"{key} ="):
            line, found = f"{key} = {json.dumps(value) if not isinstance(value, Raw) else value}", True
        done.append(line)
    assert found, where
    path.write_text("\n".join(done) + "\n", encoding="utf-8")


class Raw(str):
    """Text that stands in the TOML file as it is."""


@dataclasses.dataclass(frozen=True)
class Hostile:
    """One attack.

    Attributes
    ----------
    name : str
    attack : callable
        Changes a good submission's folder; may return another folder that is to be verified.
    says : str
        Part of the reason.
    """

    name: str
    attack: Callable[[Path], Path | None]
    says: str


def _edit(name: str, says: str, where: str, value: Any, line: int = 1) -> Hostile:
    """Change one field of a line, or what a function makes of it."""

    def attack(folder: Path) -> None:
        lines = lines_of(folder)
        *parents, last = [int(k) if k.isdigit() else k for k in where.split(".")]
        inner = lines[line]
        for key in parents:
            inner = inner[key]
        inner[last] = value(inner[last]) if callable(value) else value
        write_lines(folder, lines)

    return Hostile(name, attack, says)


def _text(name: str, says: str, change: Callable[[str], str], line: int = 1) -> Hostile:
    """Change the text of a line."""

    def attack(folder: Path) -> None:
        lines: list[Any] = [json.dumps(found) for found in lines_of(folder)]
        lines[line] = change(lines[line])
        write_lines(folder, lines)

    return Hostile(name, attack, says)


def _lines(name: str, says: str, change: Callable[[list[Any]], list[Any]]) -> Hostile:
    return Hostile(name, lambda folder: write_lines(folder, change(lines_of(folder))), says)


def _bytes(name: str, says: str, make: Callable[[bytes], bytes]) -> Hostile:
    """Replace the bytes of the episodes' file; the checksum is right."""
    return Hostile(name, lambda folder: write_episodes(folder, make((folder / EPISODES).read_bytes())), says)


def _declared(name: str, says: str, where: str, value: Any) -> Hostile:
    return Hostile(name, lambda folder: declare(folder, where, value), says)


def _whole(name: str, says: str, data: bytes | Callable[[bytes], bytes]) -> Hostile:
    """Replace the declaration's bytes."""

    def attack(folder: Path) -> None:
        path = folder / DECLARATION
        path.write_bytes(data(path.read_bytes()) if callable(data) else data)

    return Hostile(name, attack, says)


# -- single attacks


def claim_windows(folder: Path, windows: list[float]) -> None:
    """Claim what each window of the first episode cost."""
    lines = lines_of(folder)
    lines[1]["cost_per_window_usd"] = windows
    write_lines(folder, lines)


def _first_format(folder: Path, windows: list[float] | None = None) -> None:
    """Declare the first format, whose episodes also claim what each window cost."""
    lines = lines_of(folder)
    lines[0]["format"] = "fleetgym-results-1"
    write_lines(folder, lines)
    declare(folder, "format", "fleetgym-submission-1")
    if windows is not None:
        claim_windows(folder, windows)


def _swapped_actions(lines: list[Any]) -> list[Any]:
    lines[1]["actions"], lines[5]["actions"] = lines[5]["actions"], lines[1]["actions"]
    return lines


def _cheaper_and_consistent(lines: list[Any]) -> list[Any]:
    """Forge an episode whose numbers add up: half of everything."""
    episode = lines[2]
    episode["costs"] = {term: usd / 2 for term, usd in episode["costs"].items()}
    episode["cost_usd"] /= 2
    return lines


def _link(name: str) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        outside = folder.parent / f"outside-{name}"
        shutil.move(folder / name, outside)
        (folder / name).symlink_to(outside)

    return attack


def _linked_folder(folder: Path) -> Path:
    link = folder.parent / "linked"
    link.symlink_to(folder)
    return link


def _pipe(folder: Path) -> None:
    (folder / EPISODES).unlink()
    os.mkfifo(folder / EPISODES)


def _renamed(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder.rename(folder.parent / name)


def _sparse(folder: Path) -> None:
    with open(folder / EPISODES, "r+b") as stream:
        stream.truncate(2**40)


def _one_shot_that_failed(folder: Path) -> None:
    """Claim a failure in the last window of episodes that change their mind before."""
    lines = lines_of(folder)
    for line in lines[1:]:
        line["actions"] = [[0, 0, 1], [1, 0, 0]]
        line["failure"] = {"window": 7, "kind": "died", "message": ""}
    write_lines(folder, lines)
    declare(folder, "agent.division", "one-shot")


def _third_party_as_published(folder: Path) -> None:
    declare(folder, "agent.name", "mine")
    declare(folder, "agent.entry", "mine.py:Agent")
    declare(folder, "agent.variant", "as published")


class _Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


def bomb(gib: float, unit: bytes = bytes(2**26), head: bytes = b"") -> bytes:
    """Return a gzip file of a few MB that unpacks to this many GiB: one member, over and over."""
    count = round(gib * 2**30 / len(unit))
    return (gzip.compress(head, 9, mtime=0) if head else b"") + gzip.compress(unit, 9, mtime=0) * count


def _bomb_after_header(folder: Path) -> None:
    head = json.dumps(lines_of(folder)[0]).encode() + b"\n"
    write_episodes(folder, bomb(1.5, head=head))


def _bomb_after_all(folder: Path) -> None:
    whole = gzip.decompress((folder / EPISODES).read_bytes())
    write_episodes(folder, bomb(1.5, b"\n" * 2**26, head=whole))


NESTED = "[" * 200_000
_MANY_KEYS = "{" + ",".join(f'"{k:x}":0' for k in range(350_000)) + ',"0":1}'

HOSTILE = [
    # forged numbers
    _edit("forged-cost", "claims", "cost_usd", lambda usd: usd * 0.9),
    _edit("forged-in-the-ninth-digit", "claims", "cost_usd", lambda usd: usd * (1 - 1e-8)),
    *(_edit(f"forged-{term}", "claims", f"costs.{term}", lambda usd: usd + 0.5) for term in COST_TERMS),
    _edit("forged-miss-share", "claims", "miss_share", lambda share: share + 0.01),
    _edit("forged-unserved-share", "claims", "unserved_share", lambda share: share + 1e-6),
    _edit("forged-outages", "claims", "forced_outages", lambda count: count + 1),
    _edit("forged-denied", "claims", "denied", lambda count: count + 1),
    _edit("forged-lost", "claims", "lost", 10**9),
    _lines("forged-consistently", "claims", _cheaper_and_consistent),
    Hostile("windows-of-format-1", lambda folder: claim_windows(folder, [1.0] * 8), "no such key"),
    Hostile("format-1-without-windows", _first_format, "cost_per_window_usd: missing"),
    Hostile(
        "format-1-too-few-windows", lambda folder: _first_format(folder, [1.0] * 7), "expected 8 windows"
    ),
    Hostile("format-1-forged-window", lambda folder: _first_format(folder, [1.0] * 8), "claims 1.0"),
    # actions
    _lines("actions-of-another-task", "expected an option", _swapped_actions),
    _edit("no-actions", "claims", "actions", []),
    _edit("option-out-of-range", "expected an option", "actions.0.2", 10**6),
    _edit("window-out-of-range", "expected a window", "actions", lambda a: [*a, [8, 0, 1]]),
    _edit("slot-out-of-range", "expected a slot", "actions", lambda a: [*a, [7, 99, 1]]),
    _edit("negative-option", "whole number", "actions.0.2", -1),
    _edit("fractional-option", "whole number", "actions.0.2", 0.5),
    _edit("boolean-option", "whole number", "actions.0.2", True),
    _edit("text-as-option", "whole number", "actions.0.2", "1; import os"),
    _edit("huge-option", "whole number", "actions.0.2", 10**30),
    _edit(
        "change-that-changes-nothing",
        "held already",
        "actions",
        lambda a: [*a, [7, 0, 1], [7, 1, 0]][:0] or [[0, 0, 0]],
    ),
    _edit(
        "actions-out-of-order",
        "expected a window and slot after",
        "actions",
        lambda a: [[3, 0, 1], [0, 0, 1]],
    ),
    _edit("many-actions", "after (0, 0)", "actions", [[0, 0, 1]] * 300_000),
    # what is played
    _lines("missing-episode", "ends before", lambda lines: lines[:-1]),
    _lines("missing-in-the-middle", "each task once", lambda lines: lines[:3] + lines[4:]),
    _lines("duplicate-episode", "each task once", lambda lines: [*lines[:3], lines[2], *lines[4:]]),
    _lines("one-more-episode", "one more", lambda lines: [*lines, lines[-1]]),
    _lines("other-order", "each task once", lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
    _edit("path-in-the-instance", "each task once", "instance", "../../../../etc/passwd"),
    _edit("file-as-the-instance", "each task once", "instance", "/etc/evil.json"),
    _edit("another-scenario", "each task once", "scenario", 1),
    _edit("another-scenario-id", "$[1].scenario_id", "scenario_id", SCRIPT),
    _edit("another-agent", "the agent that", "agent", "hold"),
    _edit("another-seed", "$[1].seed", "seed", 7),
    _edit("header-of-other-jobs", "does not belong", "jobs_hash", "0" * 64, line=0),
    _edit("header-count", "expected 7 episodes", "num_jobs", 8, line=0),
    _edit("header-suite", "$[0].suite", "suite", "fleet-v0/dev", line=0),
    _edit(
        "header-without-an-instance",
        "$[0].instances",
        "instances",
        lambda held: dict([*held.items()][1:]),
        line=0,
    ),
    _edit(
        "header-of-another-instance",
        "$[0].instances",
        "instances",
        lambda held: {name: {**facts, "content_hash": "0" * 64} for name, facts in held.items()},
        line=0,
    ),
    _edit("budget-spent-after-the-end", "from 0 to 7", "budget_spent_at_window", 8),
    _edit("header-version", "submission.toml", "version", "9.9.9", line=0),
    _edit("header-format", "expected one of", "format", "fleetgym-results-99", line=0),
    _edit("header-of-format-1", "expected fleetgym-results-2", "format", "fleetgym-results-1", line=0),
    _edit("failure-but-acting", "empty fleet", "failure", {"window": 1, "kind": "raised", "message": SCRIPT}),
    _edit(
        "failure-of-a-new-kind", "expected one of", "failure", {"window": 1, "kind": SCRIPT, "message": ""}
    ),
    _declared("one-shot-that-replans", "one-shot", "agent.division", "one-shot"),
    Hostile("one-shot-that-failed", _one_shot_that_failed, "one-shot"),
    # JSON
    _text("nan", "NaN is not a number", lambda line: line.replace('"cost_usd": ', '"cost_usd": NaN, "x": ')),
    _text(
        "infinity",
        "Infinity is not",
        lambda line: line.replace('"cost_usd": ', '"cost_usd": Infinity, "x": '),
    ),
    _text(
        "beyond-floats",
        "1e60 USD, got inf",
        lambda line: line.replace('"cost_usd": ', '"cost_usd": 1e999, "x": ').replace(', "x": 24.0', ""),
    ),
    _text(
        "integer-of-5000-digits", "not JSON", lambda line: line.replace('"seed": 0', f'"seed": {"9" * 5000}')
    ),
    _edit("negative-cost", "expected a number from 1e-60", "cost_usd", -1.0),
    _text("key-twice-among-many", "appears twice", lambda line: _MANY_KEYS),
    _text("key-of-a-megabyte", "unknown key", lambda line: json.dumps({"x" * 10**6: 1, **json.loads(line)})),
    _edit(
        "name-of-a-megabyte", "keys of at most", "instances", lambda held: {**held, "x" * 10**6: {}}, line=0
    ),
    _text("key-twice", "appears twice", lambda line: line.replace('"seed": 0', '"seed": 0, "seed": 0')),
    _edit("unknown-key", "unknown key", "costs", lambda costs: {**costs, SCRIPT: 1.0}),
    _edit("wrong-type", "expected an object", "costs", [1, 2, 3]),
    _edit("text-as-cost", "expected a number", "cost_usd", SCRIPT),
    _edit("control-characters", "printable text", "scenario_id", "a\x1b[2Jb"),
    _edit("lone-surrogate", "surrogate pair", "scenario_id", "\ud800"),
    _text("deep-nesting", "nested too deeply", lambda line: NESTED),
    _text("deep-nesting-of-objects", "nested too deeply", lambda line: '{"a":' * 200_000),
    _text("empty-line", "not JSON", lambda line: ""),
    _text("python-code", "not JSON", lambda line: "__import__('os').system('touch owned')"),
    # gzip
    Hostile("ten-gb", lambda folder: write_episodes(folder, bomb(10.0)), "larger than"),
    Hostile("a-gigabyte-in-one-line", lambda folder: write_episodes(folder, bomb(1.5)), "unpacks to a line"),
    Hostile("a-gigabyte-after-the-header", _bomb_after_header, "unpacks to a line"),
    Hostile("a-gigabyte-after-the-end", _bomb_after_all, "one more"),
    _bytes("endless-gzip-header", "gzip", lambda data: data[:3] + b"\x08" + data[4:10] + b"a" * 1_500_000),
    _bytes("many-empty-members", "ends before", lambda data: gzip.compress(b"", mtime=0) * 80_000),
    _bytes("not-gzip", "gzip", lambda data: gzip.decompress(data)),
    _bytes("gzip-truncated", "gzip", lambda data: data[:-30]),
    _bytes("gzip-checksum", "gzip", lambda data: data[:-8] + bytes(4) + data[-4:]),
    _bytes("gzip-damaged", "episodes.jsonl.gz", lambda data: data[:80] + bytes(40) + data[120:]),
    _bytes("empty-file", "ends before", lambda data: b""),
    _bytes("pickle", "gzip", lambda data: pickle.dumps(_Boom())),
    _bytes("packed-pickle", "not JSON", lambda data: gzip.compress(pickle.dumps(_Boom(), protocol=0))),
    _bytes("not-utf-8", "not UTF-8", lambda data: gzip.compress(b"\xff\xfe{}\n")),
    _bytes("no-last-line-end", "cut short", lambda data: gzip.compress(gzip.decompress(data)[:-1])),
    Hostile(
        "wrong-checksum", lambda f: (f / EPISODES).write_bytes(gzip.compress(b"{}\n")) and None, "SHA-256"
    ),
    Hostile("a-terabyte", _sparse, "larger than"),
    # the folder
    Hostile("linked-episodes", _link(EPISODES), "regular file"),
    Hostile("linked-declaration", _link(DECLARATION), "regular file"),
    Hostile("linked-readme", _link("README.md"), "regular file"),
    Hostile("linked-folder", _linked_folder, "no link"),
    Hostile("pipe", _pipe, "regular file"),
    Hostile("record-of-its-own", lambda f: (f / "verified.json").write_text("{}") and None, "nothing but"),
    Hostile(
        "code-beside", lambda f: (f / "conftest.py").write_text("raise SystemExit") and None, "nothing but"
    ),
    Hostile("folder-inside", lambda f: (f / "more").mkdir(), "nothing but"),
    Hostile("name-with-escapes", lambda f: (f / "\x1b[2J").write_text("") and None, "nothing but"),
    Hostile("no-episodes", lambda f: (f / EPISODES).unlink(), "missing"),
    Hostile("no-declaration", lambda f: (f / DECLARATION).unlink(), "missing"),
    Hostile("folder-named-html", _renamed("<img src=x onerror=alert(1)>"), "is named by"),
    Hostile("folder-named-dots", _renamed("..."), "is named by"),
    Hostile("readme-not-utf-8", lambda f: (f / "README.md").write_bytes(b"\xff") and None, "not UTF-8"),
    Hostile("readme-of-a-gigabyte", lambda f: os.truncate(f / "README.md", 2**30), "larger than"),
    # the declaration
    _whole("declaration-not-utf-8", "not UTF-8", b"\xff\xfe"),
    _whole("declaration-empty", "missing key", b""),
    _whole("declaration-is-json", "not TOML", b"{}"),
    _whole("declaration-nested", "nested too deeply", b"a = " + b"[" * 30_000),
    _whole("declaration-of-a-megabyte", "larger than", b"#" * 2**20),
    _whole("declaration-of-many-dots", "unknown key", b".".join([b"a"] * 3_000) + b" = 1\n"),
    _whole("declaration-key-twice", "not TOML", lambda data: b'format = "x"\n' + data),
    _whole("declaration-with-a-long-key", "unknown key", b"a" * 60_000 + b" = 1\n"),
    _whole("unknown-table", "unknown key", lambda data: data + b"\n[extra]\nx = 1\n"),
    _declared("unknown-format", "expected one of", "format", "fleetgym-submission-99"),
    _declared("a-number-as-name", "expected text", "agent.name", 5),
    _declared("a-list-as-name", "expected text", "agent.name", Raw('["a"]')),
    _declared("a-date-as-text", "expected text", "date", Raw("2026-11-21")),
    _declared("no-such-day", "no such day", "date", "2026-13-41"),
    _declared("thirtieth-of-february", "no such day", "date", "2026-02-30"),
    _declared("nan-in-toml", "whole number", "run.seed", Raw("nan")),
    _declared("integer-of-5000-digits-in-toml", "not TOML", "run.seed", Raw("9" * 5000)),
    _declared("text-that-runs-backwards", "printable", "agent.name", "agent \u202egnp.exe"),
    _declared("invisible-text", "printable", "agent.authors", "a\u200bb"),
    _declared("long-name", "characters", "agent.name", "a" * 10_000),
    _declared("name-of-a-space", "letter or a digit", "agent.name", " "),
    _declared("name-of-a-filler", "letter or a digit", "agent.name", "\u3164"),
    _declared("name-of-accents", "two accents", "agent.authors", "a" + "\u0301" * 50),
    _declared("name-in-cyrillic", "ASCII letters", "agent.name", "\u0430gh"),
    _declared("name-of-full-width", "ASCII letters", "agent.name", "\uff41gh"),
    _declared("name-with-an-invisible-tail", "ASCII letters", "agent.name", "mine\u3164"),
    _declared("name-with-a-dot-at-its-end", "ASCII letters", "agent.name", "mine."),
    _declared("name-of-a-device", "Windows", "agent.name", "aux.1"),
    *(
        _declared(f"reads-as-ours-{k}", "reads as the reference agent", "agent.name", name)
        for k, name in enumerate(("agh", "AGH", "A.G.H", "agh_rolling", "m1lp"))
    ),
    _declared("authors-of-two-scripts", "one script", "agent.authors", "P\u0430ul"),
    _declared("authors-of-full-width", "plain form", "agent.authors", "\uff30aul"),
    _declared("authors-with-a-filler", "plain form", "agent.authors", "Paul\u3164"),
    _declared("contact-with-a-picture", "plain form", "agent.contact", "\u2603"),
    Hostile("as-published-by-a-third-party", _third_party_as_published, "only a reference agent"),
    *(_declared(f"day-{day}", "expected a day from", "date", day) for day in ("0001-01-01", "9999-12-31")),
    _declared("no-such-set", "there is no set bks-2031-01", "run.best_known", "bks-2031-01"),
    *(Hostile(f"folder-{name}", _renamed(name), "is named by") for name in ("con", "aux.1", "nul", "mine.")),
    _declared("tags", "printable", "agent.name", Raw('"agh\U000e0041"')),
    _declared("two-lines", "printable", "agent.description", "a\nb"),
    _declared("script-as-link", "expected text", "agent.code_url", "javascript:alert(1)"),
    _declared("quote-in-link", "expected text", "agent.code_url", 'https://a/"onmouseover="alert(1)'),
    _declared("script-as-division", "expected one of", "agent.division", SCRIPT),
    _declared("script-as-suite", "expected text", "run.suite", SCRIPT),
    _declared("path-as-suite", "expected text", "run.suite", "../../../etc"),
    _declared("unknown-suite", "unknown suite", "run.suite", "fleet-v9/dev"),
    _declared("another-suite", "another version", "run.suite", "fleet-v0/dev"),
    _declared("another-version-of-the-suite", "another version", "run.suite_sha256", "0" * 64),
    _declared("count-of-episodes", "has 7 tasks", "run.episodes", 6),
    _declared("another-agent-declared", "does not belong", "agent.entry", "gh-rolling(every=2)"),
    _declared("one-of-ours-as-another", "reads as the reference agent", "agent.entry", "hold"),
]
