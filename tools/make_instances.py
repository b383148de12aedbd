"""Make the stored instances again from their seeds and compare them; write a set like `fleet-v2`, and the schemas.

    python -m tools.make_instances --suite fleet-v1 --every 20   # compare every 20th instance with what is stored
    python -m tools.make_instances --write --seed-file FILE --out FOLDER [--resume]   # draw a set like fleet-v2
    python -m tools.make_instances --schemas                     # write instances/schema

The manifests of `fleet-v0` and `fleet-v1` name family, size and seed of each instance; their toys were written by hand.
The fresh split is drawn by `fleetgym season draw`. All of `fleet-v2` follows from one secret, which `fleetgym season
seed FILE` writes. Whoever has it, or the number that it gives for an instance, can draw the days that agents are about
to see. So it is in no file of the set, and to compare that set takes it, too.

Content is the same for the same versions of Python, NumPy and HiGHS. Scores use the stored data, so an upgrade that
changes a random stream changes nothing that is published.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families.generate import generate, public_part, stored_scenarios
from fleetgym.families.plans import SIZES
from fleetgym.files.documents import canonical_hash, canonical_json, read_json, read_text, write_atomically
from fleetgym.files.quantities import COUNT
from fleetgym.model.instance import Instance, instance_schema
from fleetgym.model.library import MANIFEST_FORMAT, Entry, read_manifest, sealed
from fleetgym.model.processes import Dynamics
from fleetgym.model.scenario import Scenario, scenario_file_data, scenario_schema
from fleetgym.runtime.programs import program

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
MANIFESTS = {
    "fleet-v0": INSTANCES / "manifest.json",
    "fleet-v1": INSTANCES / "fleet-v1" / "manifest.json",
    "fleet-v2": INSTANCES / "fleet-v2" / "manifest.json",
}
#: Significant digits of stored token scales.
SCALE_DIGITS = {"fleet-v0": 6, "fleet-v1": 4, "fleet-v2": 4}

#: The set that is drawn from a secret; its headline families, whose mean is the score.
DRAWN = "fleet-v2"
HEADLINE = ("week", "ou-v2", "drop-v2", "budget-v2", "tail-v2", "market", "split")
#: Headline families that count as one: what to plan ahead, what supply does, and what money and deadlines allow.
MERGED = (("week", "ou-v2"), ("drop-v2", "market"), ("budget-v2", "tail-v2", "split"))
#: Instances of each size, in dev and in test, and in test where there is a size l. The sample has the first of test.
COUNTS = {"dev": {"s": 5, "m": 3}, "test": {"s": 13, "m": 7}}
WITH_LARGE = {"s": 13, "m": 6, "l": 1}
SAMPLED = 5
FIRST = 3  # of dev, for a first score
SCENARIOS = 2


class Task(NamedTuple):
    """One instance of the set, to be made."""

    split: str
    family: str
    size: str
    number: int  # among those of its family and size, from 1 on

    @property
    def id(self) -> str:
        """Id of the instance in its file."""
        return f"{self.family}-{self.size}-{self.number:02d}"

    @property
    def stem(self) -> str:
        """Full id, and the names of its files without their ends."""
        return f"{DRAWN}/{self.split}/{self.id}"


def tasks(split: str) -> list[Task]:
    """Return the set's instances of ``"dev"`` or ``"test"`` in the manifest's order."""
    return [
        Task(split, family, size, k + 1)
        for family in HEADLINE
        for size, count in (WITH_LARGE if split == "test" and is_large(family) else COUNTS[split]).items()
        for k in range(count)
    ]


def is_large(family: str) -> bool:
    """Return whether a family has a size l."""
    return (family, "l") in SIZES


def made(task: Task, secret: str) -> tuple[Instance, tuple[Scenario, ...], Dynamics | None]:
    """Return an instance of the set as agents see it, its days, and the law that drew them.

    Its seed is a number of 128 bits that nobody can try out: the first half of SHA-256 over the secret and its id.
    """
    seed = int.from_bytes(hashlib.sha256(f"{secret}/{task.stem}".encode()).digest()[:16], "big")
    instance = generate(task.family, task.size, seed)
    scenarios = stored_scenarios(instance, seed, SCENARIOS, SCALE_DIGITS[DRAWN])
    public, law = public_part(instance)
    return public.replace(id=task.id), scenarios, law


def smoke(folder: Path) -> int:
    """Make one instance again, and write the schemas elsewhere."""
    return main(["--every", "100"]) or main(["--schemas", "--out", str(folder)])


def main(argv: list[str] | None = None) -> int:
    """Compare a set with its generators, or write a set or the schemas."""
    parser = program(
        __doc__,
        writes="With --write or --schemas, files in instances/; else nothing.",
        takes="Half a CPU minute for fleet-v0; some minutes for the others.",
        smoke=smoke,
    )
    parser.add_argument("--suite", choices=tuple(MANIFESTS), default="fleet-v0", help="set to compare")
    parser.add_argument("--every", type=of(COUNT), default=1, metavar="N", help="compare every N-th instance")
    parser.add_argument("--write", action="store_true", help=f"write {DRAWN} and its manifest")
    parser.add_argument(
        "--most",
        type=of(COUNT),
        help="with --write: at most so many of each family, size and split, to try the set out",
    )
    parser.add_argument("--resume", action="store_true", help="with --write: keep the files that are there")
    parser.add_argument("--seed-file", type=Path, help=f"the secret from which {DRAWN} is drawn")
    parser.add_argument("--schemas", action="store_true", help="write the JSON schemas")
    parser.add_argument("--out", type=Path, default=INSTANCES, help="folder of the sets")
    arguments = parser.parse_args(argv)
    if arguments.schemas:
        for name, schema in (("instance", instance_schema()), ("scenarios", scenario_schema())):
            write_atomically(arguments.out / "schema" / f"{name}.schema.json", pretty(schema))
        return 0
    needs_secret = arguments.write or arguments.suite == DRAWN
    if needs_secret and arguments.seed_file is None:
        parser.error(f"{DRAWN} is drawn from a secret: name its file with --seed-file")
    secret = read_text(arguments.seed_file, 2**10).strip() if needs_secret else ""
    if arguments.write:
        chosen = [t for t in (*tasks("dev"), *tasks("test")) if t.number <= (arguments.most or t.number)]
        return write_set(arguments.out, secret, chosen, arguments.resume)
    return compare(arguments.suite, arguments.every, secret)


# -- comparing


def compare(suite: str, every: int, secret: str) -> int:
    """Make instances again and compare their content with the stored files; return the exit code.

    OpenBLAS sums in another order on other processors, and now and then a draw flips on the last bit. The stored sets
    were made with its kernels for AVX-512: ``OPENBLAS_CORETYPE=SkylakeX`` chooses them where the processor has these.
    """
    entries = [e for e in read_manifest(MANIFESTS[suite]).entries if "/toy/" not in e.id][::every]
    changed = [entry.id for entry in entries if not is_made_again(entry, suite, secret)]
    print(f"{len(entries)} instances compared, {len(changed)} differ", *changed, sep="\n", file=sys.stderr)
    return 1 if changed else 0


def is_made_again(entry: Entry, suite: str, secret: str) -> bool:
    """Return whether family, size and seed give the content of the stored files."""
    number, law = int(entry.id.rpartition("-")[2]), None
    if suite == DRAWN:
        split = entry.suite.rpartition("/")[2]
        instance, scenarios, law = made(Task(split, entry.family, entry.size, number), secret)
    else:
        instance = generate(entry.family, entry.size, number)
        scenarios = stored_scenarios(instance, number, entry.scenarios, SCALE_DIGITS[suite])
    hashes = (instance.content_hash, canonical_hash(scenario_file_data(instance, scenarios, law)))
    return hashes == (entry.content_hash, canonical_hash(read_json(INSTANCES / entry.scenario_file)))


# -- writing


def write_set(out: Path, secret: str, chosen: Sequence[Task], resume: bool) -> int:
    """Write the set's instances, their days with their law, and the manifest."""
    entries = []
    for task in chosen:
        if not (resume and (out / f"{task.stem}.json.gz").is_file()):
            print(task.stem, file=sys.stderr, flush=True)
            write(out, task, secret)
        entries.append(entry(out, task))
    write_atomically(out / DRAWN / "manifest.json", pretty(manifest(entries)))
    return 0


def write(out: Path, task: Task, secret: str) -> None:
    """Write an instance last: it says that both of its files are there."""
    instance, scenarios, law = made(task, secret)
    write_atomically(
        out / f"{task.stem}.scenarios.json.gz", packed(scenario_file_data(instance, scenarios, law))
    )
    write_atomically(out / f"{task.stem}.json.gz", packed(instance.to_dict()))


def entry(out: Path, task: Task) -> dict:
    """Return the manifest's entry of an instance whose two files are there."""
    name, scenario_name = f"{task.stem}.json.gz", f"{task.stem}.scenarios.json.gz"
    scenarios = read_json(out / scenario_name)
    return {
        "id": task.stem,
        "family": task.family,
        "size": task.size,
        "scenarios": len(scenarios["scenarios"]),
        "content_hash": Instance.from_dict(read_json(out / name)).content_hash,
        "instance_file": name,
        "instance_sha256": hashlib.sha256((out / name).read_bytes()).hexdigest(),
        "scenario_file": scenario_name,
        "scenario_sha256": hashlib.sha256((out / scenario_name).read_bytes()).hexdigest(),
        "scenario_hash": canonical_hash(scenarios),
    }


def manifest(entries: list[dict]) -> dict:
    """Return the set's manifest: headline, merged families, entries, and the sample for slow agents."""
    there = {entry["id"] for entry in entries}
    sampled = [
        f"{task.stem}#0"
        for task in tasks("test")
        if task.size == "s" and task.number <= SAMPLED and task.stem in there
    ]
    firsts = [
        f"{task.stem}#0"
        for task in tasks("dev")
        if task.size == "s" and task.number <= FIRST and task.stem in there
    ]
    about = "scenario 0 of the first {} instances of each family, in its smallest size"
    found = {
        "format": MANIFEST_FORMAT,
        "headline": list(HEADLINE),
        "merged": [list(group) for group in MERGED],
        "entries": entries,
        "samples": [
            {"id": f"{DRAWN}/sample", "about": about.format("test"), "tasks": sampled},
            {"id": f"{DRAWN}/first", "about": about.format("dev"), "tasks": firsts},
        ],
    }
    return sealed(found)


def packed(data: object) -> bytes:
    """Return canonical JSON, gzipped without a time stamp."""
    return gzip.compress((canonical_json(data) + "\n").encode(), compresslevel=9, mtime=0)


def pretty(data: object) -> bytes:
    """Return indented JSON with lists of numbers and words on one line."""
    text = json.dumps(data, indent=1, allow_nan=False)
    flat = re.compile(r"\[\s*([^\[\]{}]*?)\s*\]")
    return (flat.sub(lambda found: "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]", text) + "\n").encode()


if __name__ == "__main__":
    run_program(main)
