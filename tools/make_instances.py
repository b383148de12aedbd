"""From seeds to the standard set: instance files, scenario files, JSON schemas and the manifest.

    python tools/make_instances.py                 # write instances/
    python tools/make_instances.py --check         # build everything again and compare byte by byte

Bytes are the same for the same versions of Python, NumPy and HiGHS (see the lock file). What is scored is the
stored data, so an upgrade that changes a random stream changes nothing that is published.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from toy_instances import all_toys

from fleetgym import generate
from fleetgym.files import canonical_json, write_atomically
from fleetgym.instance import SCENARIO_FORMAT, Instance, Scenario, instance_schema, scenario_schema
from fleetgym.library import MANIFEST_FORMAT
from fleetgym.schema import to_jsonable

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
SUITES = ("fleet-v0",)

#: The dev split: family, size, how many. Seeds are 1, 2, ...
DEV = (
    ("fastllm", "4-4-5", 2),
    ("fastllm", "6-6-10", 2),
    ("grw", "s", 2),
    ("grw", "m", 2),
    ("ou", "s", 3),
    ("ou", "m", 3),
    ("drop", "s", 3),
    ("drop", "m", 3),
    ("warp", "s", 2),
    ("trace", "m", 4),
)

Files = Iterator[tuple[str, bytes, dict | None]]


def main(argv: list[str] | None = None) -> int:
    """Write the standard set, or check that it would come out the same."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", choices=SUITES, default="fleet-v0")
    parser.add_argument("--split", choices=("toy", "dev"), action="append", help="by default all")
    parser.add_argument("--out", type=Path, default=INSTANCES)
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    arguments = parser.parse_args(argv)
    splits = tuple(arguments.split or ("toy", "dev"))
    changed = []
    for name, data in everything(arguments.suite, splits):
        path = arguments.out / name
        if path.is_file() and path.read_bytes() == data:
            continue
        changed.append(name)
        if not arguments.check:
            write_atomically(path, data)
    print(f"{len(changed)} files {'differ' if arguments.check else 'written'}", file=sys.stderr)
    for name in changed if arguments.check else ():
        print(f"differs: {name}", file=sys.stderr)
    return 1 if arguments.check and changed else 0


def everything(suite: str, splits: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the set by its relative name; the manifest comes last."""
    yield "schema/instance.schema.json", pretty(instance_schema())
    yield "schema/scenarios.schema.json", pretty(scenario_schema())
    entries = []
    for split in splits:
        builder = toy_split if split == "toy" else dev_split
        for instance, scenarios, readable in builder():
            files = instance_files(suite, split, instance, scenarios, readable)
            yield from files.items()
            entries.append(entry(suite, split, instance, len(scenarios), files))
    if set(splits) == {"toy", "dev"}:
        yield "manifest.json", pretty({"format": MANIFEST_FORMAT, "entries": entries})


def toy_split() -> Iterator[tuple[Instance, tuple[Scenario, ...], bool]]:
    """Yield the toys, whose files are readable."""
    for toy in all_toys():
        yield toy.instance, (toy.scenario,), True


def dev_split() -> Iterator[tuple[Instance, tuple[Scenario, ...], bool]]:
    """Yield the generated instances, with progress on stderr."""
    tasks = [(family, size, seed) for family, size, count in DEV for seed in range(1, count + 1)]
    for k, (family, size, seed) in enumerate(tasks, start=1):
        began = time.perf_counter()
        instance = generate.generate(family, size, seed)
        scenarios = generate.stored_scenarios(instance, seed)
        took = time.perf_counter() - began
        print(f"[{k}/{len(tasks)}] {instance.id}: {took:.1f} s", file=sys.stderr, flush=True)
        yield instance, scenarios, False


def instance_files(
    suite: str, split: str, instance: Instance, scenarios: tuple[Scenario, ...], readable: bool
) -> dict[str, bytes]:
    """Return the two files of an instance by relative name: the instance first."""
    ending, write = (".json", pretty) if readable else (".json.gz", packed)
    stored = {
        "format": SCENARIO_FORMAT,
        "instance": instance.id,
        "instance_hash": instance.content_hash,
        "scenarios": [to_jsonable(scenario) for scenario in scenarios],
    }
    stem = f"{suite}/{split}/{instance.id}"
    return {f"{stem}{ending}": write(instance.to_dict()), f"{stem}.scenarios{ending}": write(stored)}


def entry(suite: str, split: str, instance: Instance, count: int, files: dict[str, bytes]) -> dict:
    """Return the manifest's entry of an instance."""
    (name, data), (scenario_name, scenario_data) = files.items()
    return {
        "id": f"{suite}/{split}/{instance.id}",
        "family": instance.family,
        "size": instance.size,
        "scenarios": count,
        "content_hash": instance.content_hash,
        "instance_file": name,
        "instance_sha256": hashlib.sha256(data).hexdigest(),
        "scenario_file": scenario_name,
        "scenario_sha256": hashlib.sha256(scenario_data).hexdigest(),
    }


def packed(data: object) -> bytes:
    """Return canonical JSON, gzipped without a time stamp."""
    return gzip.compress((canonical_json(data) + "\n").encode(), compresslevel=9, mtime=0)


def pretty(data: object) -> bytes:
    """Return indented JSON with lists of numbers and words on one line."""
    text = json.dumps(data, indent=1, allow_nan=False)
    flat = re.compile(r"\[\s*([^\[\]{}]*?)\s*\]")
    return (flat.sub(one_line, text) + "\n").encode()


def one_line(match: re.Match[str]) -> str:
    """Return an innermost list on one line."""
    return "[" + re.sub(r"\s*\n\s*", " ", match[1]) + "]"


if __name__ == "__main__":
    sys.exit(main())
