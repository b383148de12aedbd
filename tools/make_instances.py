"""Make the stored instances again from their seeds and compare them; write the preview `fleet-v2`, and the schemas.

    python -m tools.make_instances --suite fleet-v1 --every 20   # compare every 20th instance with what is stored
    python -m tools.make_instances --write [--resume]            # write fleet-v2, or what is missing of it
    python -m tools.make_instances --schemas                     # write instances/schema

The manifest of a set names family, size and seed of each instance. The toys of `fleet-v0` and `fleet-v1` were written
by hand. The fresh split is drawn by `fleetgym season draw`.

Content is the same for the same versions of Python, NumPy and HiGHS. Scores use the stored data, so an upgrade that
changes a random stream changes nothing that is published.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families.generate import SEEDS, generate, stored_scenarios
from fleetgym.files.documents import canonical_hash, canonical_json, read_json, write_atomically
from fleetgym.files.quantities import COUNT
from fleetgym.model.instance import Instance, instance_schema
from fleetgym.model.library import MANIFEST_FORMAT, Entry, read_manifest, sealed
from fleetgym.model.scenario import scenario_file_data, scenario_schema
from fleetgym.runtime.programs import program

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
MANIFESTS = {
    "fleet-v0": INSTANCES / "manifest.json",
    "fleet-v1": INSTANCES / "fleet-v1" / "manifest.json",
    "fleet-v2": INSTANCES / "fleet-v2" / "manifest.json",
}
#: Significant digits of stored token scales.
SCALE_DIGITS = {"fleet-v0": 6, "fleet-v1": 4, "fleet-v2": 4}

#: The set that may change until it is frozen; its headline families, whose mean is the score.
PREVIEW = "fleet-v2"
HEADLINE = ("week", "ou-v2", "drop-v2", "budget-v2", "tail-v2", "market", "split")
#: Headline families that ranked agents alike in the withdrawn preview, and count as one.
MERGED = (("week", "drop-v2", "tail-v2", "market"), ("ou-v2", "budget-v2", "split"))
#: Instances of size s and m, in dev and in test; `week` has fewer. The sample has the first ones of test.
COUNTS = {"dev": {"s": 4, "m": 1}, "test": {"s": 6, "m": 2}}
WEEKS = {"dev": {"s": 3, "m": 1}, "test": {"s": 5, "m": 1}}
SAMPLED = 5


class Task(NamedTuple):
    """One instance to be made."""

    family: str
    size: str
    seed: int

    @property
    def id(self) -> str:
        """Id of the instance."""
        return f"{self.family}-{self.size}-{self.seed:03d}"


def tasks(split: str) -> list[Task]:
    """Return the preview's instances of ``"dev"`` or ``"test"`` in the manifest's order."""
    return [
        Task(family, size, SEEDS[split].start + k)
        for family in HEADLINE
        for size, count in (WEEKS if family == "week" else COUNTS)[split].items()
        for k in range(count)
    ]


def smoke(folder: Path) -> int:
    """Make one instance again, and write the schemas elsewhere."""
    return main(["--every", "100"]) or main(["--schemas", "--out", str(folder)])


def main(argv: list[str] | None = None) -> int:
    """Compare a set with its generators, or write the preview or the schemas."""
    parser = program(
        __doc__,
        writes="With --write or --schemas, files in instances/; else nothing.",
        takes="Half a CPU minute for fleet-v0; some minutes for the others.",
        smoke=smoke,
    )
    parser.add_argument("--suite", choices=tuple(MANIFESTS), default="fleet-v0", help="set to compare")
    parser.add_argument("--every", type=of(COUNT), default=1, metavar="N", help="compare every N-th instance")
    parser.add_argument("--write", action="store_true", help=f"write {PREVIEW} and its manifest")
    parser.add_argument("--resume", action="store_true", help="with --write: keep the files that are there")
    parser.add_argument("--schemas", action="store_true", help="write the JSON schemas")
    parser.add_argument("--out", type=Path, default=INSTANCES, help="folder of the sets")
    arguments = parser.parse_args(argv)
    if arguments.schemas:
        for name, schema in (("instance", instance_schema()), ("scenarios", scenario_schema())):
            write_atomically(arguments.out / "schema" / f"{name}.schema.json", pretty(schema))
        return 0
    if arguments.write:
        return write_preview(arguments.out, arguments.resume)
    return compare(arguments.suite, arguments.every)


# -- comparing


def compare(suite: str, every: int) -> int:
    """Make instances again and compare their content with the stored files; return the exit code.

    OpenBLAS sums in another order on other processors, and now and then a draw flips on the last bit. The stored sets
    were made with its kernels for AVX-512: ``OPENBLAS_CORETYPE=SkylakeX`` chooses them where the processor has these.
    """
    entries = [e for e in read_manifest(MANIFESTS[suite]).entries if "/toy/" not in e.id][::every]
    changed = [entry.id for entry in entries if not is_made_again(entry, SCALE_DIGITS[suite])]
    print(f"{len(entries)} instances compared, {len(changed)} differ", *changed, sep="\n", file=sys.stderr)
    return 1 if changed else 0


def is_made_again(entry: Entry, scale_digits: int) -> bool:
    """Return whether family, size and seed give the content of the stored files."""
    seed = int(entry.id.rpartition("-")[2])
    instance = generate(entry.family, entry.size, seed)
    scenarios = stored_scenarios(instance, seed, entry.scenarios, scale_digits)
    hashes = (instance.content_hash, canonical_hash(scenario_file_data(instance, scenarios)))
    return hashes == (entry.content_hash, canonical_hash(read_json(INSTANCES / entry.scenario_file)))


# -- writing


def write_preview(out: Path, resume: bool) -> int:
    """Write the preview's instances, one scenario each, and their manifest."""
    entries = []
    for split in ("dev", "test"):
        for task in tasks(split):
            stem = f"{PREVIEW}/{split}/{task.id}"
            if not (resume and (out / f"{stem}.json.gz").is_file()):
                print(stem, file=sys.stderr, flush=True)
                instance = generate(*task)
                scenarios = stored_scenarios(instance, task.seed, 1, SCALE_DIGITS[PREVIEW])
                # The instance last: it says that both files are there.
                write_atomically(
                    out / f"{stem}.scenarios.json.gz", packed(scenario_file_data(instance, scenarios))
                )
                write_atomically(out / f"{stem}.json.gz", packed(instance.to_dict()))
            entries.append(entry(out, stem, task))
    write_atomically(out / PREVIEW / "manifest.json", pretty(manifest(entries)))
    return 0


def entry(out: Path, stem: str, task: Task) -> dict:
    """Return the manifest's entry of an instance whose two files are there."""
    name, scenario_name = f"{stem}.json.gz", f"{stem}.scenarios.json.gz"
    scenarios = read_json(out / scenario_name)
    return {
        "id": stem,
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
    """Return the preview's manifest: headline, merged families, entries, and the sample for slow agents."""
    sampled = [
        f"{PREVIEW}/test/{task.id}#0"
        for task in tasks("test")
        if task.size == "s" and task.seed < SEEDS["test"].start + SAMPLED
    ]
    about = "scenario 0 of the first test instances of each family, in its smallest size"
    found = {
        "format": MANIFEST_FORMAT,
        "headline": list(HEADLINE),
        "merged": [list(group) for group in MERGED],
        "entries": entries,
        "samples": [{"id": f"{PREVIEW}/sample", "about": about, "tasks": sampled}],
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
