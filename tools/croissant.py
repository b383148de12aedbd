"""Write the dataset cards for machines, ``instances/<set>/croissant.json``, from the manifests of the sets.

    python -m tools.croissant                # write them
    python -m tools.croissant --validate     # and read them again with mlcroissant

The format is Croissant 1.0 (mlcommons.org/croissant). Every instance and its days are listed with their SHA-256.
Best-known costs are not: they go on improving, under names of their own.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from fleetgym.cli.process import run_program
from fleetgym.files.documents import read_json, write_atomically
from fleetgym.runtime.programs import program

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
#: Of each set: version, day, and what it is.
ABOUT = {
    "fleet-v1": (
        "1.0.0",
        "2026-11-23",
        "The standard set of fleetgym before fleet-v2: days of demand for LLM serving on rented GPUs, with stored "
        "scenarios of demand, token lengths, capacity and prices, on which agents are scored. It is frozen.",
    ),
    "fleet-v2": (
        "1.0.0",
        "2026-11-28",
        "The standard set of fleetgym: days and weeks of demand for LLM serving on rented GPUs, with spot prices that "
        "move, bursts of seconds and disaggregated replicas. Agents are not told the law of demand. It is frozen.",
    ),
}
LICENSES = (
    "https://spdx.org/licenses/Apache-2.0.html",
    "https://spdx.org/licenses/CC-BY-4.0.html",
    "https://spdx.org/licenses/MIT.html",
)
CITE = "The fleetgym authors. fleetgym: a benchmark environment for allocating GPUs to LLM serving. 2026."
#: Fields of the manifest's entries that a reader can load as records, and what they are.
FIELDS = {
    "id": ("sc:Text", "set, split and name of the instance"),
    "family": ("sc:Text", "family of the instance"),
    "size": ("sc:Text", "size of the instance"),
    "scenarios": ("sc:Integer", "stored scenarios"),
    "content_hash": ("sc:Text", "SHA-256 of the instance's canonical JSON"),
    "instance_file": ("sc:Text", "file of the instance"),
    "scenario_file": ("sc:Text", "file of its scenarios"),
}
_OF_CROISSANT = (
    *(
        "citeAs",
        "column",
        "equivalentProperty",
        "extract",
        "field",
        "fileProperty",
        "fileObject",
        "fileSet",
        "format",
    ),
    *(
        "includes",
        "isLiveDataset",
        "jsonPath",
        "key",
        "md5",
        "parentField",
        "path",
        "recordSet",
        "references",
        "regex",
    ),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
#: The context that Croissant 1.0 states.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _OF_CROISSANT},
}


def smoke(folder: Path) -> int:
    """Write a card elsewhere."""
    return main(["--set", "fleet-v2", "--out", str(folder / "croissant.json")])


def main(argv: list[str] | None = None) -> int:
    """Write the cards of one set or all."""
    parser = program(__doc__, writes="instances/<set>/croissant.json.", takes="A second.", smoke=smoke)
    parser.add_argument("--set", choices=tuple(ABOUT), help="by default all")
    parser.add_argument("--out", type=Path, help="of one set; by default in its folder")
    parser.add_argument(
        "--validate", action="store_true", help="read it with mlcroissant, which must be installed"
    )
    arguments = parser.parse_args(argv)
    if arguments.out is not None and arguments.set is None:
        parser.error("--out takes the card of one set: name it by --set")
    for name in [arguments.set] if arguments.set else ABOUT:
        out = arguments.out or INSTANCES / name / "croissant.json"
        text = json.dumps(card(INSTANCES / name), indent=1) + "\n"
        write_atomically(out, text.encode())
        if arguments.validate:
            print(f"mlcroissant reads {validated(out)} records of {name}", file=sys.stderr)
    return 0


def card(folder: Path) -> dict[str, Any]:
    """Return the JSON-LD of a set in a folder with its manifest."""
    manifest, name = read_json(folder / "manifest.json"), folder.name
    version, day, about = ABOUT[name]
    sums = {"manifest.json": hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()}
    for entry in manifest["entries"]:
        for kind in ("instance", "scenario"):
            sums[entry[f"{kind}_file"].removeprefix(f"{name}/")] = entry[f"{kind}_sha256"]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": name,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "description": about,
        "license": list(LICENSES),
        "creator": {"@type": "sc:Organization", "name": "The fleetgym authors"},
        "datePublished": day,
        "version": version,
        "citeAs": CITE,
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "encodingFormat": "application/gzip" if path.endswith(".gz") else "application/json",
                "sha256": checksum,
            }
            for path, checksum in sums.items()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "instances",
                "name": "instances",
                "description": "The instances of the set, in the manifest's order.",
                "key": {"@id": "instances/id"},
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"instances/{field}",
                        "name": field,
                        "description": about,
                        "dataType": kind,
                        "source": {
                            "fileObject": {"@id": "manifest.json"},
                            "extract": {"jsonPath": f"$.entries[*].{field}"},
                        },
                    }
                    for field, (kind, about) in FIELDS.items()
                ],
            }
        ],
    }


def validated(path: Path) -> int:
    """Return how many records mlcroissant reads from a card beside its files; it raises for a card that is wrong."""
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=str(path))
    return sum(1 for _ in dataset.records("instances"))


if __name__ == "__main__":
    run_program(main)
