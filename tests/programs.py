"""Find the programs of the checkout: files below `FOLDERS` with ``if __name__ == "__main__":``."""

from __future__ import annotations

import ast
import sys

from places import ROOT

FOLDERS = ("tests/benchmarks", "tools", "papers", "baselines")


def is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def programs() -> list[str]:
    """Return the paths of all programs."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [path for path in files if any(map(is_guard, ast.parse(path.read_text(encoding="utf-8")).body))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def command(path: str) -> list[str]:
    """Return how a program is called from the root of the checkout."""
    if path.startswith("tests/"):
        return [sys.executable, path]
    module = path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    return [sys.executable, "-m", module if module.startswith("tools") else f"fleetgym.{module}"]
