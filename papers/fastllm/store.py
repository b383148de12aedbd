"""Store finished cells as JSON lines, so that an interrupted run resumes."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Key = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Cells of one kind. A key holds all arguments of `compute`, so that other parameters make another cell."""

    name: str
    experiment: str  # the file
    keys: Sequence[Key]
    compute: Callable[..., dict[str, Any]]


class Store:
    """A folder with a file of JSON lines per experiment.

    Parameters
    ----------
    folder : Path
        Made if it is not there. A torn last line, from an interrupted run, is dropped.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, experiment: str) -> dict[str, dict[str, Any]]:
        """Return the finished cells of an experiment by `name`."""
        path = self._path(experiment)
        if not path.exists():
            return {}
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        records = map(json.loads, whole.splitlines())
        return {name(record["key"]): record for record in records}

    def finished(self, batch: Batch) -> list[dict[str, Any]]:
        """Return key and value of the batch's cells that are there, in the batch's order."""
        done = self.load(batch.experiment)
        return [done[name(key)] for key in batch.keys if name(key) in done]

    def run(self, batch: Batch) -> None:
        """Compute the batch's cells that are not there yet."""
        done = self.load(batch.experiment)
        missing = [key for key in batch.keys if name(key) not in done]
        started = time.process_time()
        with self._path(batch.experiment).open("a", encoding="utf-8") as file:
            for count, key in enumerate(missing, start=1):
                record = {"key": dict(key), "value": batch.compute(**key)}
                file.write(json.dumps(record, allow_nan=False) + "\n")
                file.flush()
                if count == len(missing) or count % 20 == 0:
                    spent = time.process_time() - started
                    print(f"{batch.name}: {count} of {len(missing)}, {spent:.0f} CPU s", file=sys.stderr)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"


def name(key: Key) -> str:
    """Return a cell's canonical name."""
    return json.dumps(key, sort_keys=True)
