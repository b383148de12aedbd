"""Implement the subcommands `check` and `generate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fleetgym.cli.checks import Check, tell_checks
from fleetgym.cli.output import tell
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
    return tell_checks(arguments, [_instance(found), _days(found, path)])


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
    from fleetgym.families.generate import SEEDS, public_part, stored_scenarios
    from fleetgym.families.generate import generate as make
    from fleetgym.model.instance_files import output_files, write_instance
    from fleetgym.model.library import entries

    folder, made = Path(arguments.out), []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        instance = make(arguments.family, arguments.size, seed)
        path = folder / f"{instance.id}.json"
        output_files(path, force=arguments.force)
        days = stored_scenarios(instance, seed, arguments.scenarios)
        folder.mkdir(parents=True, exist_ok=True)
        shown, law = public_part(instance)
        files = write_instance(path, shown, days, law=law, force=arguments.force)
        made.append({"instance": str(files[0]), "scenarios": str(files[1]), "days": len(days)})
    last = arguments.seed + arguments.count - 1
    splits = [name for name, seeds in SEEDS.items() if arguments.seed < seeds.stop and last >= seeds.start]
    lines = [f"wrote {one['instance']} and {one['scenarios']} ({one['days']} days)" for one in made]
    public = [name for name in splits if name not in ("train", "fresh")]
    if public and any(entry.family == arguments.family for entry in entries().values()):
        seeds = f"seed {last} is" if arguments.count == 1 else f"seeds {arguments.seed} to {last} are"
        lines.append(
            f"note: {seeds} of {' and '.join(public)}; train on seeds from {SEEDS['train'].start} on"
        )
    lines.append(f"next: fleetgym compare agh hold {made[0]['instance']}")
    tell(arguments, {"instances": made, "seeds_of": splits}, "\n".join(lines))
    return 0
