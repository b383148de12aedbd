"""Write an instance and its days to two files, and check whether the days still fit an edited instance."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.files.documents import read_json, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import read_object
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance, load_instance_file
from fleetgym.model.library import scenario_file_beside
from fleetgym.model.processes import Dynamics
from fleetgym.model.scenario import Scenario, ScenarioFile, check_law, load_scenario_file, scenario_file_data

DRAWN_DAYS = 2


def output_files(path: str | os.PathLike[str], *, force: bool = False) -> tuple[Path, Path]:
    """Return where an instance and its days go.

    Parameters
    ----------
    path : path-like
        Ends in ``.json`` or ``.json.gz``; the days of ``x.json`` go to ``x.scenarios.json.gz``.
    force : bool
        Accept files that exist.

    Returns
    -------
    tuple of Path
        Instance file and scenario file.

    Raises
    ------
    FleetgymError
        For another ending, a folder, or a file that exists.
    """
    target = Path(path)
    stem = target.name.removesuffix(".gz").removesuffix(".json")
    if not stem or not target.name.endswith((".json", ".json.gz")):
        raise FleetgymError(f"expected a name that ends in .json or .json.gz, got {target.name!r}")
    files = (target, target.with_name(f"{stem}.scenarios.json.gz"))
    for file in files:
        if file.is_dir():
            raise FleetgymError(f"{file} is a folder; expected the name of a file")
        if file.exists() and not force:
            raise FleetgymError(
                f"{file} exists; choose another name, or replace it with --force (force=True)"
            )
    return files


def write_instance(
    path: str | os.PathLike[str],
    instance: Instance,
    scenarios: Sequence[Scenario],
    *,
    law: Dynamics | None = None,
    force: bool = False,
) -> tuple[Path, Path]:
    """Write an instance, and its days beside it.

    Parameters
    ----------
    path, force
        As for `output_files`.
    instance : Instance
        The problem.
    scenarios : sequence of Scenario
        Its stored days, at least one.
    law : Dynamics, optional
        The processes that drew them, where the instance has fitted ones.

    Returns
    -------
    tuple of Path
        Instance file and scenario file.

    Raises
    ------
    FleetgymError
        As `output_files`.
    """
    files = output_files(path, force=force)
    write_json(
        files[1], scenario_file_data(instance, scenarios, law)
    )  # the instance last: where it is, all is there
    write_json(files[0], instance.to_dict())
    return files


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExaminedFile:
    """An instance file, and the days beside it."""

    instance: Instance
    scenario_file: Path | None  # None where there is none
    scenarios: tuple[Scenario, ...]
    are_stored_for: str | None  # content hash of the instance that the days were stored for
    law: Dynamics | None = None  # of the days, where the instance has fitted processes

    @property
    def is_current(self) -> bool:
        """Whether the days were stored for the instance as it is now."""
        return self.are_stored_for == self.instance.content_hash


def examine_instance(path: str | os.PathLike[str]) -> ExaminedFile:
    """Read an instance file that may have been edited, and the days beside it.

    Parameters
    ----------
    path : path-like
        Of the instance.

    Returns
    -------
    ExaminedFile
        The days are checked against the instance as it is now.

    Raises
    ------
    DataError
        With file and JSON path of what is wrong in the instance, or of a day that does not fit it.
    FileNotFoundError
        If there is no such file.
    """
    instance = load_instance_file(path)
    try:
        file = scenario_file_beside(Path(path))
    except FileNotFoundError:
        return ExaminedFile(instance=instance, scenario_file=None, scenarios=(), are_stored_for=None)
    try:
        stored = read_object(ScenarioFile, read_json(file))
    except DataError as error:
        raise error.in_file(file) from None
    if stored.instance_hash == instance.content_hash:
        days = load_scenario_file(file, instance).scenarios
    else:
        try:
            days = tuple(s.check(instance, f"$.scenarios[{k}]") for k, s in enumerate(stored.scenarios))
            check_law(instance, stored.law)
        except DataError as error:
            raise DataError(
                f"{error.message}; the instance was edited so that this day fits it no more: delete {file.name}, and "
                "new days are drawn",
                error.path,
                str(file),
            ) from None
    return ExaminedFile(
        instance=instance,
        scenario_file=file,
        scenarios=days,
        are_stored_for=stored.instance_hash,
        law=stored.law,
    )


def save_edited(path: str | os.PathLike[str], *, seed: int = 0) -> ExaminedFile:
    """Store the days of an edited instance file for the instance as it is now; draw some where there are none.

    Parameters
    ----------
    path : path-like
        Of the instance. It is written again in the canonical form.
    seed : int
        Random seed for sampled days.

    Returns
    -------
    ExaminedFile
        As the files are now.

    Raises
    ------
    DataError
        As `examine_instance`; nothing is written then.
    """
    found = examine_instance(path)
    instance = found.instance
    days = found.scenarios or tuple(
        draw_scenario(instance, np.random.default_rng([seed, 1 + k]), f"drawn-{k}") for k in range(DRAWN_DAYS)
    )
    file = found.scenario_file or output_files(path, force=True)[1]
    write_json(file, scenario_file_data(instance, days, found.law))
    write_json(path, instance.to_dict())
    return examine_instance(path)
