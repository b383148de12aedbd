"""Make a set with one instance that hides its law: for tests of who finds it."""

from __future__ import annotations

from pathlib import Path

from fleetgym.families.generate import generate, public_part, stored_scenarios
from fleetgym.files.documents import canonical_hash, file_sha256, write_json
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario, scenario_file_data

NAME = "fleet-x/dev/mine"


def make_set(folder: Path, seed: int) -> tuple[Instance, Instance, Scenario]:
    """Write the set, to be named by ``FLEETGYM_INSTANCES``; return the instance with its law, without, and its day."""
    told = generate("ou-v2", "s", seed)
    public, law = public_part(told)
    days = stored_scenarios(told, seed, 1)
    files = f"{NAME}.json.gz", f"{NAME}.scenarios.json.gz"
    hidden = scenario_file_data(public, days, law)
    write_json(folder / files[0], public.to_dict())
    write_json(folder / files[1], hidden)
    entry = {
        "id": NAME,
        "family": public.family,
        "size": public.size,
        "scenarios": 1,
        "content_hash": public.content_hash,
        "instance_file": files[0],
        "instance_sha256": file_sha256(folder / files[0]),
        "scenario_file": files[1],
        "scenario_sha256": file_sha256(folder / files[1]),
        "scenario_hash": canonical_hash(hidden),
    }
    write_json(folder / "manifest.json", {"format": "fleetgym-manifest-1", "entries": [entry]})
    return told, public, days[0]
