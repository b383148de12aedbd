"""Keep the finished cells of a long computation, one JSON line each, so that it can resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetgym.files.documents import append


def read(path: Path) -> dict[str, Any]:
    """Return the finished cells of a file; a last line that was cut off is ignored."""
    done: dict[str, Any] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                cell = json.loads(line)
            except json.JSONDecodeError:
                continue
            done[cell["name"]] = cell["numbers"]
    return done


def keep(path: Path, name: str, numbers: Any) -> None:
    """Append a cell; after a line that was cut off, on a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = path.read_bytes() if path.is_file() else b""
    text = "\n" * bool(data and not data.endswith(b"\n")) + json.dumps(
        {"name": name, "numbers": numbers}, allow_nan=False
    )
    with open(path, "ab", buffering=0) as file:
        append(file, f"{text}\n".encode())
