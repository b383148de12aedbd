"""Implement the subcommands `check` and `generate`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fleetgym.cli.checks import Check, all_passed, report
from fleetgym.files.errors import FleetgymError

if TYPE_CHECKING:
    from fleetgym.model.instance_files import ExaminedFile


def check(arguments: argparse.Namespace) -> int:
    """Say whether an instance file is valid and its days fit it; store them for it as it is now."""
    from fleetgym.model.instance_files import examine_instance, save_edited
    from fleetgym.model.library import is_path

    path = arguments.instance
    if not is_path(path):
        raise FleetgymError(f"expected an instance file (.json or .json.gz), got {path!r}")
    found = save_edited(path, seed=arguments.seed) if arguments.write else examine_instance(path)
    checks = [_instance(found), _days(found, path)]
    if arguments.json:
        print(json.dumps([one.to_dict() for one in checks], indent=2))
    else:
        print(report(checks))
    return 0 if all_passed(checks) else 1


def _instance(found: ExaminedFile) -> Check:
    one = found.instance
    return Check(
        "instance",
        True,
        f"{one.id}: {one.num_workloads} workloads, {one.num_pools} pools, {one.num_configurations} configurations; "
        f"content hash {one.content_hash[:12]}",
    )


def _days(found: ExaminedFile, path: str) -> Check:
    again = f"`fleetgym check {path} --write`"
    if found.scenario_file is None:
        return Check("days", False, f"none are stored beside it; {again} draws some")
    listed = f"{len(found.scenarios)} in {found.scenario_file.name}"
    if not found.is_current:
        return Check(
            "days", False, f"{listed} are of the instance before it was edited; {again} stores them for it"
        )
    return Check("days", True, f"{listed}, stored for this content hash")


def generate(arguments: argparse.Namespace) -> int:
    """Write instances of a family, and their days."""
    from fleetgym.families.generate import SEEDS, stored_scenarios
    from fleetgym.families.generate import generate as make
    from fleetgym.model.instance_files import output_files, write_instance

    folder, made = Path(arguments.out), []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        instance = make(arguments.family, arguments.size, seed)
        path = folder / f"{instance.id}.json"
        output_files(path, force=arguments.force)
        days = stored_scenarios(instance, seed, arguments.scenarios)
        folder.mkdir(parents=True, exist_ok=True)
        files = write_instance(path, instance, days, force=arguments.force)
        made.append({"instance": str(files[0]), "scenarios": str(files[1]), "days": len(days)})
    last = arguments.seed + arguments.count - 1
    splits = [name for name, seeds in SEEDS.items() if arguments.seed < seeds.stop and last >= seeds.start]
    if arguments.json:
        print(json.dumps({"instances": made, "seeds_of": splits}, indent=2))
        return 0
    for one in made:
        print(f"wrote {one['instance']} and {one['scenarios']} ({one['days']} days)")
    public = [name for name in splits if name not in ("train", "fresh")]
    if public:
        seeds = f"seed {last} is" if arguments.count == 1 else f"seeds {arguments.seed} to {last} are"
        print(f"note: {seeds} of {' and '.join(public)}; train on seeds from {SEEDS['train'].start} on")
    print(f"next: fleetgym compare agh hold {made[0]['instance']}")
    return 0
