"""List the cells of one experiment: a name for each, which holds all arguments of what is computed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Batch:
    """Cells of one experiment. A key holds all arguments of `compute`, so other parameters make another cell."""

    experiment: str
    keys: Sequence[Mapping[str, Any]]
    compute: Callable[..., dict[str, Any]]

    def names(self) -> list[str]:
        """Return the cells' names.

        Examples
        --------
        >>> Batch("sums", [{"b": 2, "a": 1}], dict).names()
        ['sums {"a": 1, "b": 2}']
        """
        return [f"{self.experiment} {json.dumps(key, sort_keys=True)}" for key in self.keys]
