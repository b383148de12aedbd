"""Make instances of a family and size from a seed, and the scenarios that are stored with them.

The standard set is frozen data made by `tools/make_instances.py`; these generators are for training, and for
whoever wants more instances of a family.
"""

from __future__ import annotations

import warnings

import numpy as np

from fleetgym.families import demand
from fleetgym.families.family import Family, stream
from fleetgym.families.text import significant
from fleetgym.families.versions import NEWEST, generators
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.instance import Instance
from fleetgym.model.processes import Dynamics
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.entry_points import Entry, named_entries

GROUP = "fleetgym.families"

STORED_SCENARIOS = 2

#: Seeds of the standard set's splits. Trace instances of train and fresh replay days that are rolled and stretched;
#: fresh seeds follow from a secret (`fleetgym.leaderboard.season`). Train on the range ``train``, and on nothing else.
SEEDS = {
    "fleet-v0": range(1, 100),
    "dev": range(101, 200),
    "test": range(201, 300),
    "train": range(demand.FIRST_TRANSFORMED_SEED, 2**32),
    "fresh": range(2**32, 2**63),
}


def families() -> dict[str, Family]:
    """Return every family by its name: ours, and those of other packages' entry points.

    A family of another package that cannot be loaded is left out, with a warning.
    """
    found = {}
    for name, entry in named_entries(GROUP, "family").items():
        try:
            found[name] = _load(entry)
        except FleetgymError as error:
            if entry.is_reference:
                raise
            warnings.warn(f"left out: {error}", stacklevel=2)
    return found


def replayed_families() -> frozenset[str]:
    """Return the families of fleetgym whose days are published ones, changed little.

    Examples
    --------
    >>> sorted(replayed_families())
    ['trace', 'warp']
    """
    entries = named_entries(GROUP, "family").values()
    return frozenset(entry.name for entry in entries if entry.is_reference and _load(entry).replays)


def _load(entry: Entry) -> Family:
    try:
        found = entry.load()
    except Exception as error:  # whatever a foreign module does when it is imported
        raise FleetgymError(
            f"the family {entry.name!r} of {entry.distribution} cannot be loaded ({error})"
        ) from None
    if not isinstance(found, Family):
        raise FleetgymError(
            f"the family {entry.name!r} of {entry.distribution} is {type(found).__name__}; expected a "
            "fleetgym.families.family.Family"
        )
    return found


def _find(family: str, version: int) -> Family:
    """Return one family of a version of the generators; the others are not imported."""
    if family in generators(version).families:
        return generators(version).families[family]
    known = named_entries(GROUP, "family")
    if family not in known:
        raise UnknownNameError("family", family, known)
    return _load(known[family])


def generate(family: str, size: str, seed: int, version: int = NEWEST) -> Instance:
    """Make an instance.

    Parameters
    ----------
    family : str
        A key of `families()`.
    size : str
        One of the family's sizes, such as ``"s"``, ``"m"`` or ``"6-6-10"``; capitals do not matter.
    seed : int
        Not negative. The same arguments give the same instance.
    version : int
        Version of the generators, a key of `fleetgym.families.versions.VERSIONS`.

    Returns
    -------
    Instance
        Its id is family, size and seed: ``ou-m-003``.

    Raises
    ------
    UnknownNameError
        For an unknown family or size.
    FleetgymError
        For an unknown version, or a negative seed.

    Examples
    --------
    >>> instance = generate("fastllm", "4-4-5", 1)
    >>> instance.num_workloads, instance.lead, instance.budget.kind
    (4, 0, 'rate')
    """
    found, size = _find(family, version), size.lower()
    if size not in found.sizes:
        raise UnknownNameError(f"size of {family}", size, found.sizes)
    if seed < 0:
        raise FleetgymError(f"expected a seed of at least 0, got {seed}")
    instance = found.build(size, seed, stream(family, size, seed, 0))
    if instance.family != family:
        raise FleetgymError(f"the family {family!r} made an instance of family {instance.family!r}")
    expected = f"{family}-{size}-{seed:03d}"
    if instance.id != expected:
        raise FleetgymError(
            f"the family {family!r} made an instance of id {instance.id!r}; expected {expected!r}"
        )
    return instance


def public_part(instance: Instance, version: int = NEWEST) -> tuple[Instance, Dynamics | None]:
    """Return what agents may know of an instance that `generate` made, and what they may not.

    Parameters
    ----------
    instance : Instance
        From `generate`, which tells the law that draws the days.
    version : int
        As for `generate`.

    Returns
    -------
    Instance
        Its processes are fitted to the history where the family does not tell its law.
    Dynamics or None
        The law, to be stored with the days; None if it is told.

    Examples
    --------
    >>> told, law = public_part(generate("fastllm", "4-4-5", 1))
    >>> told.law, law
    ('told', None)
    """
    public = _find(instance.family, version).public
    return (instance, None) if public is None else (public(instance), instance.dynamics)


def stored_scenarios(
    instance: Instance,
    seed: int,
    count: int = STORED_SCENARIOS,
    scale_digits: int = 6,
    version: int = NEWEST,
) -> tuple[Scenario, ...]:
    """Return the scenarios that are stored with an instance that `generate` made.

    Parameters
    ----------
    instance : Instance
        From `generate`.
    seed : int
        The seed it was made with.
    count : int
        Scenarios to draw; families that replay real days have their own, at most that many.
    scale_digits : int
        Significant digits of token scales.
    version : int
        As for `generate`.

    Returns
    -------
    tuple of Scenario
        Rounded to six significant digits, as in the files.
    """
    days = _find(instance.family, version).days
    if days is not None:
        drawn = list(days(instance, seed, count))
    else:
        streams = [stream(instance.family, instance.size, seed, 1 + k) for k in range(count)]
        draw_scenario = generators(version).draw_scenario
        drawn = [draw_scenario(instance, rng, f"stored-{k}") for k, rng in enumerate(streams)]
    return tuple(_rounded(scenario, scale_digits).check(instance) for scenario in drawn)


def _rounded(scenario: Scenario, scale_digits: int) -> Scenario:
    def digits(name: str, count: int) -> np.ndarray:
        return significant(getattr(scenario, name), count)

    return Scenario(
        id=scenario.id,
        available_gpus=scenario.available_gpus,
        **{name: digits(name, 6) for name in ("rate_rps", "delay_factor", "error_factor", "price_factor")},
        **{name: digits(name, scale_digits) for name in ("input_scale", "output_scale")},
    )
