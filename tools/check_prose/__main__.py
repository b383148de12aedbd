"""Check how long the sentences of pages and docstrings are, against ceilings that may only fall.

A page passes if half of its sentences have at most 16 words, nine in ten at most 26, and no more than 3 % above 30.
Pages that were worse when the check came have a row in ``tools/check_prose/ceilings.csv``: they may not get worse.

    python -m tools.check_prose             # check every page; exit code 1 if one is above its ceilings
    python -m tools.check_prose --all       # print the figures of every page as well
    python -m tools.check_prose --lower     # bring the ceilings down to what the pages are today; never up

Code, tables, headings and the targets of links do not count. A sentence ends at ``.``, ``!`` or ``?``, or where its
paragraph or list item ends, and has at least three words.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.runtime.programs import program

ROOT = Path(__file__).resolve().parents[2]
CEILINGS = Path(__file__).with_name("ceilings.csv")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
DOCSTRINGS = ("fleetgym", "baselines", "papers")  # those of a folder count as one page
_LONG = 30  # words

_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*`A-Z0-9])")
_ITEM = re.compile(r"([-*+]|\d+\.)\s+")
_NO_PROSE = ("|", "#", ">>>", "...", "---", "===")


@dataclasses.dataclass(frozen=True)
class Figures:
    """How long sentences are: in words, and the percentage of those above 30 words."""

    median_words: int
    p90_words: int
    above_30_percent: float

    def exceeds(self, ceiling: Figures) -> list[str]:
        """Return what is above a ceiling, in words."""
        names = ("median", "90th percentile", "percentage above 30 words")
        pairs = zip(names, dataclasses.astuple(self), dataclasses.astuple(ceiling), strict=True)
        return [f"{name} {mine:g}, at most {most:g}" for name, mine, most in pairs if mine > most]

    def lower(self, other: Figures) -> Figures:
        """Return the lower of each figure."""
        return Figures(*map(min, dataclasses.astuple(self), dataclasses.astuple(other)))


GOAL = Figures(16, 26, 3.0)


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield the paragraphs and list items of Markdown.

    Examples
    --------
    >>> list(paragraphs("# Title\nOne\nline.\n\n- An [item](x.md).\n- Another.\n"))
    ['One line.', 'An item.', 'Another.']
    """
    text = re.sub(r"(?s)```.*?```|\$\$.*?\$\$|<!--.*?-->", "\n\n", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    part: list[str] = []
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        ends = not bare or bare.startswith(_NO_PROSE) or line.startswith("    ")
        item = None if ends else _ITEM.match(bare)
        if (ends or item) and part:
            yield " ".join(part)
            part = []
        if not ends:
            part.append(bare[item.end() :] if item else bare)


def sentences(text: str) -> list[str]:
    r"""Return the sentences of Markdown.

    Examples
    --------
    >>> sentences("It plays 0.5 of a day. Then it stops!\n\nToo short.")
    ['It plays 0.5 of a day.', 'Then it stops!']
    """
    found = [piece.strip() for part in paragraphs(text) for piece in _END.split(part)]
    return [piece for piece in found if len(piece.split()) >= 3]


def figures(found: Sequence[str]) -> Figures:
    """Return how long sentences are, at least one.

    Examples
    --------
    >>> figures(["a b c"] * 8 + ["a b c d"] * 2)
    Figures(median_words=3, p90_words=4, above_30_percent=0.0)
    """
    sizes = sorted(len(sentence.split()) for sentence in found)
    median, p90 = (sizes[int(share * len(sizes))] for share in (0.5, 0.9))
    return Figures(median, p90, round(100.0 * sum(size > _LONG for size in sizes) / len(sizes), 1))


def _docstrings(folder: Path) -> str:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n\n".join(ast.get_docstring(node) or "" for node in nodes)


def pages(root: Path) -> dict[str, list[str]]:
    """Return the sentences of every page, by its path below the root; a folder's docstrings are one page."""
    listed = [path for name in PAGES for path in sorted((root / name).rglob("*.md")) or [root / name]]
    files = [path for path in listed if "made" not in path.parts]  # what the site makes of others
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}
    texts |= {f"{name}/": _docstrings(root / name) for name in DOCSTRINGS}
    return {name: found for name, text in texts.items() if (found := sentences(text))}


def read_ceilings(path: Path) -> dict[str, Figures]:
    """Return the ceilings of pages by their names."""
    with path.open(encoding="utf-8", newline="") as stream:
        return {page: Figures(int(m), int(p), float(a)) for page, m, p, a in list(csv.reader(stream))[1:]}


def lowered(ceilings: Mapping[str, Figures], now: Mapping[str, Figures]) -> dict[str, Figures]:
    """Return ceilings brought down to today's figures; without those of pages that are gone or within the goal."""
    found = {page: ceiling.lower(now[page]) for page, ceiling in ceilings.items() if page in now}
    return {page: ceiling for page, ceiling in found.items() if ceiling.exceeds(GOAL)}


def _table(ceilings: Mapping[str, Figures]) -> str:
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["page", *(field.name for field in dataclasses.fields(Figures))])
    rows.writerows([page, *dataclasses.astuple(ceilings[page])] for page in sorted(ceilings))
    return stream.getvalue()


def complaints(found: Mapping[str, Sequence[str]], ceilings: Mapping[str, Figures]) -> list[str]:
    """Return a line for each page above its ceilings, with its longest sentence, and for each ceiling of no page."""
    lines = [
        f"{page}: no such page; remove its ceiling with --lower" for page in ceilings if page not in found
    ]
    for page, all_of_it in found.items():
        own = ceilings.get(page, GOAL)
        # Where a page's row is better than the goal in one figure, the goal is enough.
        most = Figures(*map(max, dataclasses.astuple(own), dataclasses.astuple(GOAL)))
        if above := figures(all_of_it).exceeds(most):
            longest = max(all_of_it, key=lambda sentence: len(sentence.split()))
            lines.append(f"{page}: {'; '.join(above)}. Its longest sentence: {longest}")
    return lines


def smoke(folder: Path) -> int:
    """Check the real pages."""
    return 1 if complaints(pages(ROOT), read_ceilings(CEILINGS)) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Check the pages, or lower the ceilings."""
    parser = program(
        __doc__, writes="With --lower, its own table of ceilings.", takes="Three CPU seconds.", smoke=smoke
    )
    parser.add_argument("--all", action="store_true", help="print the figures of every page")
    parser.add_argument("--lower", action="store_true", help="bring the ceilings down to today's figures")
    arguments = parser.parse_args(argv)
    found, ceilings = pages(ROOT), read_ceilings(CEILINGS)
    now = {page: figures(all_of_it) for page, all_of_it in found.items()}
    if arguments.all:
        for page, figure in now.items():
            print(
                f"{page:<40} median {figure.median_words:>3}  p90 {figure.p90_words:>3}  "
                f"above 30 words {figure.above_30_percent:>5.1f} %  of {len(found[page])}"
            )
    if arguments.lower:
        write_atomically(CEILINGS, _table(lowered(ceilings, now)).encode())
        return 0
    lines = complaints(found, ceilings)
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    run_program(main)
