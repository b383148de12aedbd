"""Give every file of a folder to the planner as its owner would, and print in one line each what was made of it.

    python -m tools.try_inputs FOLDER

Traces are imported; price lists (``price*``) and SLO files (``slo*``) go with the folder's ``plain.csv``. A file is
read, or refused with one clear line. Anything else is a fault, and the exit code is then 1. Where the refusal asks for
an option, a second line gives it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetgym.cli.parser import main as fleetgym
from fleetgym.cli.process import run_program
from fleetgym.files.markdown import table
from fleetgym.runtime.programs import program

PLAIN = "plain.csv"
_MODEL = ("--by", "one", "--models", "Llama-3.1-8B")

#: What an owner would add, by the name of the file.
OPTIONS: dict[str, tuple[str, ...]] = {
    PLAIN: ("--by", "one", "--models", "DeepSeek-R1", "--gpus", "H200", "--slo", "ttft=5,delay=60"),
    "tail_0.8pct_64k.csv": (*_MODEL, "--gpus", "H100", "--slo", "ttft=10,delay=30", "--scale", "25"),
    "long_context.csv": ("--by", "one"),
    "lora300.csv": ("--by", "one"),
}

#: What an owner would add after the refusal.
ANSWERS: dict[str, tuple[str, ...]] = {
    "burst110d.csv": ("--last", "30d", "--bind", "*=any"),
    "burstgpt1.csv": ("--bind", "*=any"),
    "dense_ms.csv": ("--time-unit", "ms"),
    "input_and_prompt.csv": ("--columns", "input=prompt_tokens"),
    "label_gpt-4o.csv": ("--bind", "gpt-4o=Llama-3.1-70B"),
    "long_context.csv": ("--leave-out-at-most", "0.71"),
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

    @property
    def line(self) -> str:
        """All of it in one line."""
        if self.code != 0:
            return ("refused: " if self.is_refused else "FAULT: ") + self.error.strip().replace("\n", " / ")
        workloads = "; ".join(
            f"{name} {w['rate_rps']:.3g}/s {w['input_tokens']:.0f} + {w['output_tokens']:.0f} tokens, unserved "
            f"{w['unserved_usd']:.3g} USD" + (f", bound to {w['bound_to']}" if w["bound_to"] else "")
            for name, w in list(self.facts["workloads"].items())[:3]
        )
        more = len(self.facts["workloads"]) - 3
        pools = ", ".join(
            f"{p['gpu']} {p['market']} {p['usd_per_gpu_h']:g}" for p in self.facts["pools"].values()
        )
        notes = " / ".join(self.facts["notes"])
        return (
            f"read: {self.facts['requests']:,} requests; {workloads}{f'; {more} more' if more > 0 else ''}; {pools}"
            + (f"; told: {notes}" if notes else "")
        )


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


def try_file(file: Path, more: tuple[str, ...] = ()) -> Tried:
    """Return what the planner makes of a file, with more words if any."""
    with tempfile.TemporaryDirectory() as folder:
        return try_words((*words_for(file, Path(folder) / "made.json"), *more))


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


def inputs(folder: Path) -> list[Path]:
    """Return the files of a folder that are inputs."""
    return [
        file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith("README")
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Try all of them."""
    parser = program(__doc__, writes="Nothing.", takes="A second for each file.", smoke=smoke)
    parser.add_argument("folder", type=Path)
    return show(parser.parse_args(argv).folder)


def show(folder: Path) -> int:
    """Print the table; the exit code says whether all was read or refused."""
    found: dict[str, Tried] = {}
    for file in inputs(folder):
        found[file.name] = try_file(file)
        if file.name in ANSWERS and found[file.name].is_refused:
            more = ANSWERS[file.name]
            found[f"{file.name} {' '.join(more)}"] = try_file(file, more)
    print(
        table(
            ["file", "what the planner says"], [[n, t.line.replace("|", "\\|")] for n, t in found.items()], 2
        )
    )
    wrong = [name for name, tried in found.items() if not tried.is_right]
    read = sum(tried.code == 0 for tried in found.values())
    print(
        f"\n{read} read, {len(found) - read - len(wrong)} refused, {len(wrong)} neither: {', '.join(wrong) or '-'}"
    )
    return 1 if wrong else 0


def smoke(folder: Path) -> int:
    """Try a trace and a price list."""
    rows = "".join(f"{k},100,20\n" for k in range(1200))
    (folder / PLAIN).write_text("time,input_tokens,output_tokens\n" + rows)
    (folder / "prices.csv").write_text("gpu,usd_per_gpu_h\nH100,2.5\n")
    OPTIONS[PLAIN] = _MODEL
    return show(folder)


if __name__ == "__main__":
    run_program(main)
