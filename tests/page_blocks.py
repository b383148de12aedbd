"""Find what a page tells its reader to run: code blocks, commands in blocks, and commands within sentences."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

#: How a command begins; settings may stand before it.
_PROGRAM = r"(?:fleetgym|python|pip|make|pytest|pre-commit|git|jupyter|dask|mpiexec|systemd-run|apt-get|\.(?= \.venv)) "
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{_PROGRAM}|\.ci/run\b)")
_IN_SENTENCE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclasses.dataclass(frozen=True)
class Block:
    """Something to run, or something shown: ``kind`` is python, pycon, shell, inline, text, or a fence's own word."""

    page: str
    line: int
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block or a sentence: continued lines joined, comments left out."""
        if self.kind not in ("shell", "inline"):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        found = [" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in lines]
        return [line.removesuffix(" ...") for line in found if line]


def _indented(lines: list[str], start: int) -> int:
    """Return where a block of indented lines ends."""
    end = start
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    return end


def _inline(page: str, number: int, line: str) -> Iterator[Block]:
    for found in _IN_SENTENCE.findall(line):
        if COMMAND.match(found):
            yield Block(page, number, "inline", found)


def parse(page: str, text: str) -> Iterator[Block]:
    r"""Yield the blocks of Markdown in their order.

    Examples
    --------
    >>> [block.kind for block in parse("a.md", "Call `make test`:\n\n    pip install x\n\n```python\n1 + 1\n```\n")]
    ['inline', 'shell', 'python']
    """
    lines, here = text.splitlines(), 0
    while here < len(lines):
        begin, line = here + 1, lines[here]
        if fence := re.match(r"```(\S*)", line):
            end = next(k for k in range(here + 1, len(lines)) if lines[k].startswith("```"))
            yield Block(page, begin, fence[1] or "text", "\n".join(lines[here + 1 : end]) + "\n")
            here = end
        elif line.startswith("    ") and line.strip() and (here == 0 or not lines[here - 1].strip()):
            end = _indented(lines, here)
            body = "\n".join(line[4:] for line in lines[here:end]).rstrip() + "\n"
            yield Block(page, begin, "shell" if COMMAND.match(body) else "text", body)
            here = end - 1
        else:
            yield from _inline(page, begin, line)
        here += 1


def _cells(page: str, path: Path) -> Iterator[Block]:
    """Yield what a notebook's texts tell to run, and the commands of its cells, which `make docs` executes."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], 1):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from (dataclasses.replace(block, line=number) for block in parse(page, text))
        else:
            shell = [line.partition("!")[2] for line in text.splitlines() if re.match(r"(\w+ = )?!", line)]
            yield Block(page, number, "cell", "\n".join(shell))


def blocks(root: Path, path: Path) -> list[Block]:
    """Return the blocks of a page or notebook; the name of the page is its path below the root."""
    page = path.relative_to(root).as_posix()
    if path.suffix == ".ipynb":
        return list(_cells(page, path))
    return list(parse(page, path.read_text(encoding="utf-8")))
