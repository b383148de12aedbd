"""Load stored instances and their scenarios by name, as their set's manifest lists them."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.files.documents import StoredFile, canonical_hash, file_sha256, read_json, stored_file
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import (
    SHA256,
    Choice,
    Integer,
    Line,
    ListOf,
    Nested,
    Text,
    read_object,
    shown,
    spec,
)
from fleetgym.model.instance import Instance, load_instance_file
from fleetgym.model.scenario import Scenario, ScenarioFile, load_scenario_file
from fleetgym.model.sets import MANIFEST, folder_of, manifest_paths, unknown

MANIFEST_FORMAT = "fleetgym-manifest-1"

#: What stands for an instance: itself, its id in the standard set, its file, or the content of that.
InstanceSource = Instance | str | os.PathLike[str] | Mapping[str, Any]

_FULL_ID = Text(r"^[A-Za-z0-9._-]{1,80}/[A-Za-z0-9._-]{1,80}/[A-Za-z0-9._+@:-]{1,80}$")
#: Id of an instance, and number of one of its stored scenarios.
Task = tuple[str, int]

_SUITE = Text(r"^[A-Za-z0-9._-]{1,80}/[A-Za-z0-9._-]{1,80}$")
TASK_NAME = Text(r"^[A-Za-z0-9._-]{1,80}/[A-Za-z0-9._-]{1,80}/[A-Za-z0-9._+@:-]{1,80}#[0-9]{1,4}$")
_FILE = Text(r"^[A-Za-z0-9][A-Za-z0-9._/+@:-]{0,250}\.json(\.gz)?$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One instance of the standard set: where it is, and what its files must hash to."""

    id: str = spec(_FULL_ID, doc="suite/split/instance")
    family: str = spec(Text())
    size: str = spec(Text())
    scenarios: int = spec(Integer(0), doc="number of stored scenarios")
    content_hash: str = spec(SHA256, doc="SHA-256 of the instance's canonical form")
    instance_file: str = spec(_FILE, doc="relative to the manifest")
    instance_sha256: str = spec(SHA256, doc="of the file's bytes")
    scenario_file: str = spec(_FILE, doc="relative to the manifest")
    scenario_sha256: str = spec(SHA256, doc="of the file's bytes")
    scenario_hash: str | None = spec(
        dataclasses.replace(SHA256, nullable=True), None, doc="SHA-256 of the scenario file's canonical form"
    )

    @property
    def suite(self) -> str:
        """Suite and split, such as ``fleet-v0/dev``."""
        return self.id.rpartition("/")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """A suite of some of a set's tasks, for agents that take too long for all of them."""

    id: str = spec(_SUITE, doc="set/sample, as a suite is named")
    about: str = spec(Line(1, 200), doc="which tasks these are")
    tasks: tuple[str, ...] = spec(
        ListOf(TASK_NAME, minimum=1), doc="instance#scenario, in the order in which they are played"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The list of everything in the standard set."""

    format: str = spec(Choice((MANIFEST_FORMAT,)))
    entries: tuple[Entry, ...] = spec(ListOf(Nested(Entry), 1))
    headline: tuple[str, ...] = spec(
        ListOf(Text()), (), doc="families whose mean is the score; the others are shown only; [] for all"
    )
    merged: tuple[tuple[str, ...], ...] = spec(
        ListOf(ListOf(Text(), 2)),
        (),
        doc="headline families with questions of one kind; the score counts each list once",
    )
    samples: tuple[Sample, ...] = spec(ListOf(Nested(Sample)), ())
    sha256: str = spec(
        Text(r"\A([0-9a-f]{64})?\Z"), "", doc="of the canonical form of all the above; older files have none"
    )


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest as JSON with its checksum, without which a flipped name or size would pass."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return {**rest, "sha256": canonical_hash(rest)}


#: Path and time of modification of each manifest.
_Paths = tuple[tuple[str, int], ...]


def entries() -> Mapping[str, Entry]:
    """Return the manifests' entries by id, in the manifests' order."""
    return _entries(_manifest_paths())


def suites() -> Mapping[str, Sequence[Task]]:
    """Return the tasks of every suite by its name: of the splits of all sets, and of samples of them.

    Examples
    --------
    >>> suites()["fleet-v0/toy"][0]
    ('fleet-v0/toy/two-pools', 0)
    """
    return _suites(_manifest_paths())


def samples() -> Mapping[str, Sample]:
    """Return the samples of all sets by their names."""
    return _samples(_manifest_paths())


def _manifest_paths() -> _Paths:
    return tuple((str(path), path.stat().st_mtime_ns) for path in manifest_paths())


@functools.lru_cache(maxsize=4)
def _entries(paths: _Paths) -> dict[str, Entry]:
    found = {}
    for path, modified in paths:
        own = Path(path).parent.name  # of a set's own manifest, the set
        for k, entry in enumerate(_manifest(path, modified).entries):
            if Path(path).parent not in (
                folder_of(entry.id),
                folder_of(entry.id) / entry.id.partition("/")[0],
            ):
                raise DataError(f"{entry.id} is not of the set {own}", f"$.entries[{k}].id", path)
            found[entry.id] = entry
    return found


@functools.lru_cache(maxsize=4)
def _samples(paths: _Paths) -> dict[str, Sample]:
    return {s.id: s for path, modified in paths for s in _manifest(path, modified).samples}


@functools.lru_cache(maxsize=4)
def _suites(paths: _Paths) -> dict[str, tuple[Task, ...]]:
    found: dict[str, list[Task]] = {}
    for entry in _entries(paths).values():
        found.setdefault(entry.suite, []).extend((entry.id, k) for k in range(entry.scenarios))
    for sample in _samples(paths).values():
        found[sample.id] = [parse_task(name) for name in sample.tasks]
    return {name: tuple(tasks) for name, tasks in found.items()}


def task_name(instance: str, scenario: int) -> str:
    """Return how a task is written.

    Examples
    --------
    >>> task_name("fleet-v0/toy/two-pools", 0)
    'fleet-v0/toy/two-pools#0'
    """
    return f"{instance}#{scenario}"


def parse_task(name: str) -> Task:
    """Take a task's name apart.

    Raises
    ------
    DataError
        If it is none.

    Examples
    --------
    >>> parse_task("fleet-v0/toy/two-pools#0")
    ('fleet-v0/toy/two-pools', 0)
    """
    TASK_NAME.read(name, "task")
    instance, _, scenario = name.rpartition("#")
    return instance, int(scenario)


def manifests_sha256() -> str:
    """Return one checksum of all manifests: of what every instance and scenario file hashes to."""
    return canonical_hash([file_sha256(path) for path, _ in _manifest_paths()])


@functools.lru_cache(maxsize=16)
def _manifest(path: str, modified: int) -> Manifest:
    # The time of modification is a part of the cache's key only: an edited manifest is read again.
    return read_manifest(path)


def counts_as(name: str) -> dict[str, str]:
    """Return what each headline family of a set counts as in the score: itself, or the families it is merged with.

    Parameters
    ----------
    name : str
        A set, or anything in it.

    Returns
    -------
    dict of str
        Empty if every family counts, or no manifest lists the set.

    Examples
    --------
    >>> counts_as("fleet-v2/test")["market"], counts_as("fleet-v2/test")["split"]
    ('drop-v2+market', 'budget-v2+tail-v2+split')
    """
    found = _manifest_of(name)
    if found is None:
        return {}
    joined = {family: "+".join(group) for group in found.merged for family in group}
    return {family: joined.get(family, family) for family in found.headline}


def headline_of(name: str) -> dict[str, list[Any]]:
    """Return the headline fields of a set's manifest, for the manifest of another set.

    Examples
    --------
    >>> headline_of("fleet-v0")
    {'headline': []}
    """
    found = _manifest_of(name)
    if found is None:
        return {"headline": []}
    merged = {"merged": [list(group) for group in found.merged]} if found.merged else {}
    return {"headline": list(found.headline), **merged}


def _manifest_of(name: str) -> Manifest | None:
    """Return the manifest that lists the set of a name."""
    folder, suite = folder_of(name), name.partition("/")[0]
    for path in (folder / suite / MANIFEST, folder / MANIFEST):
        if path.is_file():
            found = _manifest(str(path), path.stat().st_mtime_ns)
            if any(entry.id.startswith(f"{suite}/") for entry in found.entries):
                return found
    return None


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read one manifest.

    Raises
    ------
    DataError
        With file and JSON path of what is wrong.
    """
    try:
        data = read_json(path)
        found = read_object(Manifest, data)
        if found.sha256 and data != sealed(data):
            raise DataError("the file was changed: its checksum is another", "$.sha256")
        families = {entry.family for entry in found.entries}
        for k, family in enumerate(found.headline):
            if family not in families:
                raise DataError(f"no instance is of family {family!r}", f"$.headline[{k}]")
        _check_merged(found)
        _check_samples(found)
        return found
    except DataError as error:
        raise error.in_file(str(path)) from None


def _check_merged(manifest: Manifest) -> None:
    """Refuse to merge families that are not of the headline, or twice."""
    left = set(manifest.headline)
    for k, group in enumerate(manifest.merged):
        for n, family in enumerate(group):
            if family not in left:
                message = f"{family!r} is no headline family, or is merged twice"
                raise DataError(message, f"$.merged[{k}][{n}]")
            left.remove(family)


def _check_samples(manifest: Manifest) -> None:
    """Refuse samples of tasks that there are not, or under a name that is taken."""
    stored = {entry.id: entry.scenarios for entry in manifest.entries}
    taken = {entry.suite for entry in manifest.entries}
    for k, sample in enumerate(manifest.samples):
        if sample.id in taken:
            raise DataError(f"there is a suite {sample.id} already", f"$.samples[{k}].id")
        taken.add(sample.id)
        seen: set[Task] = set()
        for n, (instance, scenario) in enumerate(map(parse_task, sample.tasks)):
            if scenario >= stored.get(instance, 0) or (instance, scenario) in seen:
                message = f"{sample.tasks[n]} is no stored task, or is there twice"
                raise DataError(message, f"$.samples[{k}].tasks[{n}]")
            seen.add((instance, scenario))


def list_instances(suite: str | None = None) -> list[str]:
    """Return the ids of stored instances.

    Parameters
    ----------
    suite : str, optional
        ``fleet-v0/dev`` for one split or sample, ``fleet-v0`` for all splits of a set; by default everything.

    Returns
    -------
    list of str
        Full ids in the manifest's order.

    Raises
    ------
    UnknownNameError
        If no instance is in such a suite.

    Examples
    --------
    >>> list_instances("fleet-v0/toy")[0]
    'fleet-v0/toy/two-pools'
    """
    known = entries()
    if suite is None:
        return list(known)
    wanted = suite.strip("/")
    if wanted in suites():
        return list(dict.fromkeys(name for name, _ in suites()[wanted]))
    found = [name for name, entry in known.items() if f"{entry.suite}/".startswith(f"{wanted}/")]
    if not found:
        raise unknown("suite", suite, {*suites(), *(name.partition("/")[0] for name in suites())})
    return found


def list_tasks(suite: str) -> list[Task]:
    """Return instance and scenario of every task of a suite, in the manifest's order.

    Parameters
    ----------
    suite : str
        As for `list_instances`.

    Returns
    -------
    list of (str, int)

    Raises
    ------
    UnknownNameError
        If there is no such suite.

    Examples
    --------
    >>> list_tasks("fleet-v0/toy")[0]
    ('fleet-v0/toy/two-pools', 0)
    """
    names = list_instances(suite)
    if suite.strip("/") in suites():
        return list(suites()[suite.strip("/")])
    return [(name, k) for name in names for k in range(entries()[name].scenarios)]


def find_entry(name: str) -> Entry:
    """Return the manifest's entry of an instance.

    Raises
    ------
    UnknownNameError
        If there is none, with the nearest name.
    FleetgymError
        For the name of a file that is no instance file.
    """
    known = entries()
    if name not in known:
        refuse_other_file(name)
        # A short name is not looked up, but it is understood well enough to suggest the full one.
        same = [full for full in known if full.rpartition("/")[2] == name]
        raise unknown("instance", name, same or known)
    return known[name]


def load_instance(source: InstanceSource) -> Instance:
    """Load an instance by its id in the standard set, or from a file.

    Parameters
    ----------
    source : str, path-like, Instance or mapping
        Such as ``fleet-v0/dev/ou-m-003``, ``my/instance.json.gz``, or what `Instance.to_dict` returned. An instance is
        returned as it is.

    Returns
    -------
    Instance
        Validated and read-only.

    Raises
    ------
    UnknownNameError
        If no stored instance has this id.
    DataError
        If the file was changed since it was published, or holds something else.
    FileNotFoundError
        If a path was given and there is no such file.

    Examples
    --------
    >>> load_instance("fleet-v0/toy/two-pools").family
    'toy'
    """
    if isinstance(source, Instance):
        return source
    if isinstance(source, Mapping):
        return Instance.from_dict(source)
    if is_path(source):
        return load_instance_file(source)
    entry = find_entry(str(source))
    return _load_instance(_verified(entry, entry.instance_file, entry.instance_sha256))


def load_scenarios(id_or_path: str | os.PathLike[str]) -> tuple[Scenario, ...]:
    """Load the stored scenarios of an instance.

    Parameters
    ----------
    id_or_path : str or path-like
        As for `load_instance`; the scenarios of ``x.json.gz`` lie in ``x.scenarios.json.gz`` or
        ``x.scenarios.json`` beside it.

    Returns
    -------
    tuple of Scenario
        Checked against the instance.

    Raises
    ------
    UnknownNameError, DataError, FileNotFoundError
        As `load_instance`.

    Examples
    --------
    >>> [scenario.id for scenario in load_scenarios("fleet-v0/toy/two-pools")]
    ['stored-0']
    """
    return _hidden(id_or_path)[1].scenarios


def with_law(source: InstanceSource) -> Instance:
    """Return an instance that tells the law from which its stored days were drawn, which agents do not know.

    It serves bounds, checks and references. Official runs hide what it reads.

    Parameters
    ----------
    source : str, path-like, Instance or mapping
        As for `load_instance`. Of an instance or its content, the stored one of equal content is looked up.

    Returns
    -------
    Instance
        The same one where its processes are told.

    Raises
    ------
    FleetgymError
        If the processes are fitted, and no set holds the instance.
    UnknownNameError, DataError, FileNotFoundError
        As `load_scenarios`.

    Examples
    --------
    >>> with_law("fleet-v0/toy/two-pools").law
    'told'
    """
    instance = load_instance(source)
    if instance.law == "told":
        return instance
    if isinstance(source, Instance | Mapping):
        stored = [name for name, entry in entries().items() if entry.content_hash == instance.content_hash]
        if not stored:
            raise FleetgymError(f"no set holds {instance.id!r}, so the law of its days is not known")
        source = stored[0]
    instance, hidden = _hidden(source)
    return instance.replace(law="told", dynamics=hidden.law)


def _hidden(id_or_path: str | os.PathLike[str]) -> tuple[Instance, ScenarioFile]:
    """Return an instance, and what is stored of it and hidden from agents."""
    if is_path(id_or_path):
        instance = load_instance_file(id_or_path)
        return instance, load_scenario_file(scenario_file_beside(Path(id_or_path)), instance)
    entry = find_entry(str(id_or_path))
    stored = _verified(entry, entry.scenario_file, entry.scenario_sha256)
    instance = load_instance(entry.id)
    return instance, _load_hidden(stored, instance)


def files_sha256(id_or_path: str | os.PathLike[str]) -> str | None:
    """Return one checksum of an instance's file and its scenarios'; None of a stored one, which its manifest covers.

    Raises
    ------
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> files_sha256("fleet-v0/toy/two-pools") is None
    True
    """
    if not is_path(id_or_path):
        return None
    path = Path(id_or_path)
    return canonical_hash([file_sha256(path), file_sha256(scenario_file_beside(path))])


def is_path(id_or_path: str | os.PathLike[str]) -> bool:
    """Return whether this names a file, not a stored instance; raise FleetgymError for what is no name."""
    if not isinstance(id_or_path, (str, os.PathLike)):
        raise FleetgymError(f"expected the id or the file of an instance, got {shown(id_or_path)}")
    return not isinstance(id_or_path, str) or id_or_path.endswith((".json", ".json.gz"))


def refuse_other_file(name: str) -> None:
    """Raise FleetgymError for a file that is no instance file, such as the trace that one is to be made of."""
    if Path(name).is_file():
        raise FleetgymError(
            f"{name} is no instance file (.json or .json.gz); if it is a trace of requests, "
            f"`fleetgym import-trace {name}` makes one of it"
        )
    if re.search(r"\.[A-Za-z]\w*$", name):
        raise FleetgymError(f"there is no file {name!r}; an instance is a file (.json or .json.gz) or an id")


@functools.lru_cache(maxsize=32)
def _load_instance(stored: StoredFile) -> Instance:
    return load_instance_file(stored)


@functools.lru_cache(maxsize=32)
def _load_hidden(stored: StoredFile, instance: Instance) -> ScenarioFile:
    return load_scenario_file(stored, instance)


def _verified(entry: Entry, relative: str, sha256: str) -> StoredFile:
    """Return one of an entry's files, as it was read, if its bytes are the published ones."""
    path = folder_of(entry.id) / relative
    if not path.is_file():
        raise DataError("the manifest lists this file, but it is missing", source=str(path))
    found = stored_file(path)
    if found.sha256 != sha256:
        raise DataError(
            f"the file was changed: SHA-256 {found.sha256[:12]}..., the manifest says {sha256[:12]}...; "
            "restore it, or load your own version by its path",
            source=str(path),
        )
    return found


def scenario_file_beside(path: Path) -> Path:
    """Return the file of the scenarios of an instance file.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    for suffix in (".scenarios.json.gz", ".scenarios.json"):
        if (path.parent / f"{stem}{suffix}").is_file():
            return path.parent / f"{stem}{suffix}"
    raise FileNotFoundError(f"no {stem}.scenarios.json or {stem}.scenarios.json.gz beside {path}")
