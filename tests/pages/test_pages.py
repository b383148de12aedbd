"""Pages whose numbers take hours still have the prose that the code writes today."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT

from fleetgym.papers.fastllm import __main__ as fastllm

DOCS = ROOT / "docs"
#: Paragraphs that depend on what was computed.
COMPUTED = re.compile(r"^\||Not computed yet|\*\*Unfinished|Done here|episodes are done")


def write_fastllm(folder: Path) -> None:
    """Write FastLLM's page."""
    fastllm.main(["--page-only", "--out", str(folder / "none"), "--docs", str(folder)])


@pytest.mark.parametrize("write", [write_fastllm])
def test_the_prose_is_current(write: Callable[[Path], None], tmp_path: Path) -> None:
    """Every paragraph of a page without results is on the kept page, word for word."""
    write(tmp_path)
    (made,) = tmp_path.glob("*.md")
    kept = (DOCS / made.name).read_text(encoding="utf-8")
    paragraphs = [
        text for text in made.read_text(encoding="utf-8").split("\n\n") if not COMPUTED.search(text)
    ]
    assert len(paragraphs) > 3
    stale = [text for text in paragraphs if text.strip() not in kept]
    assert not stale, f"docs/{made.name} lacks what its tool writes now:\n\n" + "\n\n".join(stale)
