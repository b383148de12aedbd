"""Check the options of `import-trace` against each other, and turn them into arguments."""

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
    from fleetgym.capacity.traces.header import parse_columns
    from fleetgym.capacity.traces.labels import parse_binds
    from fleetgym.capacity.traces.own_hardware import read_own
    from fleetgym.capacity.traces.prices import parse_caps

    if arguments.prefix_hit is not None and arguments.prefix_cache_tokens is not None:
        raise FleetgymError(
            "--prefix-hit is given instead of the hits in a cache of --prefix-cache; give one of them"
        )
    options = {name: getattr(arguments, name) for name in _AS_THEY_ARE}
    readers = {"columns": parse_columns, "binds": parse_binds, "caps": parse_caps}
    for name, reader in readers.items():
        value = getattr(arguments, name)
        options[name] = None if value is None else reader(value)
    options = {name: value for name, value in options.items() if value is not None}
    if any(files := own_files(arguments)):
        options["own"] = read_own(*files)
    return {**options, "by": _sorting_rule(arguments)}


def own_files(arguments: argparse.Namespace) -> list[list[str]]:
    """Return the files of one's own models, GPUs and measurements."""
    return [getattr(arguments, name) or [] for name in ("model_file", "gpu_file", "profile")]


_AS_THEY_ARE = (
    ("prices", "slo", "models", "gpus", "region", "buckets", "edges", "penalty", "extend", "scale", "seed")
    + ("scenarios", "time_format", "time_unit", "since", "until", "last", "any_order", "unpack_gib")
    + ("leave_out_at_most", "context", "prefix_hit", "prefix_cache_tokens")
)


def _sorting_rule(arguments: argparse.Namespace) -> str:
    """Return what makes a workload: whoever gives bounds or a number of length buckets wants lengths."""
    given = [name for name in ("buckets", "edges") if getattr(arguments, name) is not None]
    if len(given) > 1:
        raise FleetgymError("--buckets makes the bounds that --edges gives; give one of them")
    if given and arguments.by not in ("auto", "length"):
        raise FleetgymError(f"--{given[0]} is of lengths, and --by is {arguments.by}; give one of them")
    return "length" if given else str(arguments.by)
