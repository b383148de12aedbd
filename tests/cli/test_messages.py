"""No message, help text or other string names a program that an installed package lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from places import ROOT

TARGETS = re.findall(r"(?m)^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"))
#: What only a checkout has: programs of `tools`, tests, and targets of the Makefile.
LACKING = re.compile(rf"\btools[./][a-z_]+|\btests/\w+|\bmake ({'|'.join(TARGETS)})\b")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and value of every string of a program that is no docstring."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_docstrings_are_left_out() -> None:
    """Messages are found, also inside of f-strings; docstrings, which users of a wheel may look up, are not."""
    source = 'def f(x):\n    """See tools/a.py."""\n    raise ValueError(f"{x}: run make test")'
    assert [text for _, text in texts(source) if LACKING.search(text)] == [": run make test"]


@pytest.mark.parametrize("folder", ["fleetgym", "baselines", "papers"])
def test_messages_name_what_is_installed(folder: str) -> None:
    """Whoever reads a message can do what it says."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in texts(path.read_text(encoding="utf-8"))
        if LACKING.search(text)
    ]
    assert not wrong, "\n".join(wrong)
