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


def module_of(path: str) -> str | None:
    """Return the module of a program, such as ``tools.make_instances``; None for a benchmark, which is a script."""
    if path.startswith("tests/"):
        return None
    module = path.removesuffix(".py").replace("/", ".")
    return module if module.startswith("tools") else f"fleetgym.{module}"


def command(path: str) -> list[str]:
    """Return how a program is called from the root of the checkout."""
    module = module_of(path)
    return (
        [sys.executable, path] if module is None else [sys.executable, "-m", module.removesuffix(".__main__")]
    )
