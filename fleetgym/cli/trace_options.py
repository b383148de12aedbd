"""The options of `import-trace` that depend on each other: checked, and read."""

from __future__ import annotations

import argparse
from typing import Any

from fleetgym.files.errors import FleetgymError


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as arguments of `fleetgym.capacity.traces.import_trace`.

    Raises
    ------
    FleetgymError
        If one of them would have no effect beside another.
    """
    if arguments.prefix_hit is not None and arguments.prefix_cache is not None:
        raise FleetgymError(
            "--prefix-hit is given instead of the hits in a cache of --prefix-cache; give one of them"
        )
    words = {name: name for name in ("region", "buckets", "edges", "prefix_hit")}
    words["prefix_cache"] = "prefix_cache_tokens"
    options = {name: getattr(arguments, word) for word, name in words.items()}
    options = {name: value for name, value in options.items() if value is not None}
    return {**options, "by": _sorting_rule(arguments)}


def _sorting_rule(arguments: argparse.Namespace) -> str:
    """Return what makes a workload: whoever gives bounds or a number of length buckets wants lengths."""
    given = [name for name in ("buckets", "edges") if getattr(arguments, name) is not None]
    if len(given) > 1:
        raise FleetgymError("--buckets makes the bounds that --edges gives; give one of them")
    if given and arguments.by not in ("auto", "length"):
        raise FleetgymError(f"--{given[0]} is of lengths, and --by is {arguments.by}; give one of them")
    return "length" if given else str(arguments.by)
