"""Keep the finished cells of a long computation, one JSON line each, so that it can resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetgym.files.documents import append, parse_json, read_text
from fleetgym.files.errors import DataError

_START = '{"name": '


def read(path: Path) -> dict[str, Any]:
    """Return the finished cells of a file, none if it does not exist; a last line that was cut off is ignored.

    Raises
    ------
    DataError
        With file and line of what is no finished cell.
    """
    *lines, torn = read_text(path).split("\n") if path.exists() else [""]
    done: dict[str, Any] = {}
    try:
        for k, line in enumerate(lines):
            cell = parse_json(line)
            if (
                not isinstance(cell, dict)
                or set(cell) != {"name", "numbers"}
                or not isinstance(cell["name"], str)
            ):
                raise DataError("expected an object with the keys name and numbers", f"$[{k}]")
            done[cell["name"]] = cell["numbers"]
        if not torn.startswith(_START[: len(torn)]):
            raise DataError("expected a line of a finished cell", f"$[{len(lines)}]")
    except DataError as error:
        raise error.in_file(path) from None
    return done


def keep(path: Path, name: str, numbers: Any) -> None:
    """Append a cell, in the place of a last line that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"name": name, "numbers": numbers}, allow_nan=False)
    with open(path, "ab", buffering=0) as file:
        data = path.read_bytes()
        file.truncate(data.rfind(b"\n") + 1)
        append(file, f"{line}\n".encode())
