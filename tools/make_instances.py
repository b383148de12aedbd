"""From seeds to the standard set: instance files, scenario files, JSON schemas and the manifests.

    python -m tools.make_instances                              # write fleet-v0: instances/manifest.json
    python -m tools.make_instances --suite fleet-v1 --resume    # write what is missing of fleet-v1, and its manifest
    python -m tools.make_instances --suite fleet-v1 --check     # make everything again and compare content
    python -m tools.make_instances --suite fleet-v2 --resume    # the preview

The fresh split is drawn by `fleetgym season draw`.

Content is the same for the same versions of Python, NumPy and HiGHS (see the lock file). What is scored is the
stored data, so an upgrade that changes a random stream changes nothing that is published.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families import generate
from fleetgym.files.documents import canonical_hash, canonical_json, read_json, write_atomically
from fleetgym.files.quantities import COUNT
from fleetgym.files.schema import to_jsonable
from fleetgym.model.instance import Instance, instance_schema
from fleetgym.model.library import MANIFEST_FORMAT, read_manifest
from fleetgym.model.scenario import SCENARIO_FORMAT, Scenario, scenario_schema
from fleetgym.runtime.programs import program
from tools import fleet_v1, fleet_v2
from tools.fleet_v1 import Task
from tools.toy_instances import all_toys

INSTANCES = Path(__file__).resolve().parents[1] / "instances"

#: The dev split of fleet-v0: family, size, how many. Seeds are 1, 2, ...
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
SPLITS = {"fleet-v0": ("toy", "dev"), "fleet-v1": ("toy", "dev", "test"), "fleet-v2": ("dev", "test")}
#: What is in the sets whose manifests have hashes of content.
PLANS = {plan.SUITE: plan for plan in (fleet_v1, fleet_v2)}


def smoke(folder: Path) -> int:
    """Write the toys and the schemas elsewhere, and check them."""
    call = ["--split", "toy", "--out", str(folder)]
    return main(call) or main([*call, "--check"])


def main(argv: list[str] | None = None) -> int:
    """Write a standard set, or check that it would come out the same."""
    parser = program(
        __doc__,
        writes="The files of a suite in instances/, the schemas and the manifest.",
        takes="Half a CPU minute for fleet-v0; some minutes for the others.",
        smoke=smoke,
    )
    parser.add_argument("--suite", choices=tuple(SPLITS), default="fleet-v0")
    parser.add_argument("--split", choices=("toy", "dev", "test"), action="append", help="by default all")
    parser.add_argument("--out", type=Path, default=INSTANCES)
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    parser.add_argument(
        "--every", type=of(COUNT), default=1, metavar="N", help="check every N-th instance only"
    )
    parser.add_argument("--family", action="append", help="of fleet-v1 and fleet-v2; by default all")
    parser.add_argument("--resume", action="store_true", help="keep the files that are there (not fleet-v0)")
    arguments = parser.parse_args(argv)
    splits = tuple(arguments.split or SPLITS[arguments.suite])
    if arguments.suite in PLANS:
        plan = PLANS[arguments.suite]
        if arguments.check:
            return check_set(plan, splits, arguments.out, arguments.every)
        return write_set(plan, splits, arguments.family, arguments.out, arguments.resume)
    return make_fleet_v0(splits, arguments.out, arguments.check)


# -- fleet-v0


def make_fleet_v0(splits: tuple[str, ...], out: Path, check: bool) -> int:
    """Write fleet-v0, or compare it byte by byte."""
    changed = []
    for name, data in fleet_v0(splits):
        path = out / name
        if path.is_file() and path.read_bytes() == data:
            continue
        changed.append(name)
        if not check:
            write_atomically(path, data)
    return report(changed, check)


def fleet_v0(splits: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the set by its relative name; the manifest comes last."""
    yield "schema/instance.schema.json", pretty(instance_schema())
    yield "schema/scenarios.schema.json", pretty(scenario_schema())
    dev = [Task(family, size, seed) for family, size, count in DEV for seed in range(1, count + 1)]
    entries = []
    for split in splits:
        for instance, scenarios, readable in toys() if split == "toy" else made(dev, 2, 6):
            files = instance_files("fleet-v0", split, instance, scenarios, readable)
            yield from files.items()
            entries.append(entry("fleet-v0", split, instance, len(scenarios), files))
    if set(splits) == {"toy", "dev"}:
        yield "manifest.json", pretty({"format": MANIFEST_FORMAT, "entries": entries})


# -- fleet-v1 and later


def write_set(
    plan: ModuleType, splits: tuple[str, ...], families: list[str] | None, out: Path, resume: bool
) -> int:
    """Write splits of a set, or some of their families, and the manifest of all that is there."""
    written: list[str] = []
    for split in splits:
        todo = [] if split == "toy" else plan.tasks(split)
        todo = [task for task in todo if families is None or task.family in families]
        if resume:
            todo = [task for task in todo if not complete(plan, out, split, task)]
        for instance, scenarios, readable in toys() if split == "toy" else set_made(plan, todo):
            files = instance_files(plan.SUITE, split, instance, scenarios, readable)
            for name, data in reversed(files.items()):  # the instance last: it says that both are there
                write_atomically(out / name, data)
            written += files
    write_atomically(out / plan.SUITE / "manifest.json", pretty(manifest(plan, out)))
    return report(written, False)


def check_set(plan: ModuleType, splits: tuple[str, ...], out: Path, every: int) -> int:
    """Make instances again, and compare their content with the manifest's hashes."""
    known = {e.id: e for e in read_manifest(out / plan.SUITE / "manifest.json").entries}
    changed, seen = [], 0
    for split in splits:
        wanted = [] if split == "toy" else plan.tasks(split)[::every]
        for instance, scenarios, _ in toys() if split == "toy" else set_made(plan, wanted):
            name = f"{plan.SUITE}/{split}/{instance.id}"
            hashes = (instance.content_hash, canonical_hash(stored(instance, scenarios)))
            found = known.get(name)
            seen += 1
            if found is None or hashes != (found.content_hash, found.scenario_hash):
                changed.append(name)
    print(f"{seen} of {len(known)} instances compared", file=sys.stderr)
    return report(changed, True)


def set_made(
    plan: ModuleType, tasks: Iterable[Task]
) -> Iterator[tuple[Instance, tuple[Scenario, ...], bool]]:
    """Yield instances as a set stores them."""
    return made(tasks, plan.SCENARIOS, plan.SCALE_DIGITS)


def complete(plan: ModuleType, out: Path, split: str, task: Task) -> bool:
    """Return whether an instance's files are there."""
    return (out / plan.SUITE / split / f"{task.id}.json.gz").is_file()


def manifest(plan: ModuleType, out: Path) -> dict:
    """Return the manifest of the files that are there, in the plan's order."""
    entries = []
    for split in SPLITS[plan.SUITE]:
        names = [toy.instance.id for toy in all_toys()] if split == "toy" else []
        names += [] if split == "toy" else [task.id for task in plan.tasks(split)]
        ending = ".json" if split == "toy" else ".json.gz"
        for name in names:
            stem = f"{plan.SUITE}/{split}/{name}"
            if not (out / f"{stem}{ending}").is_file():
                continue
            files = {f"{stem}{e}": (out / f"{stem}{e}").read_bytes() for e in (ending, f".scenarios{ending}")}
            instance = Instance.from_dict(read_json(out / f"{stem}{ending}"))
            scenarios = read_json(out / f"{stem}.scenarios{ending}")
            found = entry(plan.SUITE, split, instance, len(scenarios["scenarios"]), files)
            entries.append({**found, "scenario_hash": canonical_hash(scenarios)})
    return set_manifest(plan, entries)


def set_manifest(plan: ModuleType, entries: list[dict]) -> dict:
    """Return a manifest that names the headline families, what is merged, and the sample if its tasks are there."""
    merged = {"merged": [list(group) for group in plan.MERGED]} if plan.MERGED else {}
    found = {"format": MANIFEST_FORMAT, "headline": list(plan.HEADLINE), **merged, "entries": entries}
    sample = plan.sample()
    is_there = {task.rpartition("#")[0] for task in sample["tasks"]} <= {entry["id"] for entry in entries}
    return {**found, "samples": [sample]} if is_there else found


# -- both


def toys() -> Iterator[tuple[Instance, tuple[Scenario, ...], bool]]:
    """Yield the toys, whose files are readable."""
    for toy in all_toys():
        yield toy.instance, (toy.scenario,), True


def made(
    tasks: Iterable[Task], count: int, scale_digits: int
) -> Iterator[tuple[Instance, tuple[Scenario, ...], bool]]:
    """Yield generated instances, with progress on stderr."""
    tasks = list(tasks)
    for k, task in enumerate(tasks, start=1):
        began = time.perf_counter()
        instance = generate.generate(task.family, task.size, task.seed)
        scenarios = generate.stored_scenarios(instance, task.seed, count, scale_digits)
        took = time.perf_counter() - began
        print(f"[{k}/{len(tasks)}] {instance.id}: {took:.1f} s", file=sys.stderr, flush=True)
        yield instance, scenarios, False


def report(changed: list[str], check: bool) -> int:
    """Say what was written or differs; return the exit code."""
    print(f"{len(changed)} files {'differ' if check else 'written'}", file=sys.stderr)
    for name in changed if check else ():
        print(f"differs: {name}", file=sys.stderr)
    return 1 if check and changed else 0


def stored(instance: Instance, scenarios: tuple[Scenario, ...]) -> dict:
    """Return the content of a scenario file."""
    return {
        "format": SCENARIO_FORMAT,
        "instance": instance.id,
        "instance_hash": instance.content_hash,
        "scenarios": [to_jsonable(scenario) for scenario in scenarios],
    }


def instance_files(
    suite: str, split: str, instance: Instance, scenarios: tuple[Scenario, ...], readable: bool
) -> dict[str, bytes]:
    """Return the two files of an instance by relative name: the instance first."""
    ending, write = (".json", pretty) if readable else (".json.gz", packed)
    stem = f"{suite}/{split}/{instance.id}"
    return {
        f"{stem}{ending}": write(instance.to_dict()),
        f"{stem}.scenarios{ending}": write(stored(instance, scenarios)),
    }


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
    run_program(main)
