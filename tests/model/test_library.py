"""The standard set loads by name, resists edits, matches its schemas, and its toys have the optima they claim."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from changed_files import refused_flips, swap_once_hashed
from places import ROOT

import fleetgym
from fleetgym.bounds.exact import optimal_fleets
from fleetgym.capacity.risk import plan_with_risk
from fleetgym.files.errors import DataError, UnknownNameError
from fleetgym.leaderboard.best_known import check_best_known
from fleetgym.model import library
from fleetgym.model.instance import instance_schema
from fleetgym.model.library import list_instances, load_instance, load_scenarios
from fleetgym.model.scenario import scenario_file_data, scenario_schema
from fleetgym.scoring.best_known import best_known_path, read_best_known, write_best_known
from tools.make_instances import pretty

ALL = list_instances("fleet-v0")
TOYS = {
    "two-pools": 14.0,
    "drop": 34.0,
    "startup": 22.0,
    "group": 30.0,
    "budget-pool": 17.2,
    "regions": 8.4,
    "heterogeneous": 47.0,
}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the toys and the manifest, and make it the standard set."""
    shutil.copy(ROOT / "instances" / "manifest.json", tmp_path)
    shutil.copytree(ROOT / "instances" / "fleet-v0" / "toy", tmp_path / "fleet-v0" / "toy")
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ALL)
def test_every_stored_instance_loads_with_its_scenarios(name: str) -> None:
    """Each file validates, is the instance the manifest names, and has scenarios that fit."""
    entry = library.entries()[name]
    instance = load_instance(name)
    assert name == f"{entry.suite}/{instance.id}"
    assert (instance.family, instance.size) == (entry.family, entry.size)
    assert instance.content_hash == entry.content_hash
    assert len(load_scenarios(name)) == entry.scenarios >= 1
    assert instance.description
    assert instance.provenance
    assert all(
        any(word in text for word in ("measured", "modelled", "assumed"))
        for text in instance.provenance.values()
    )


def test_the_set_is_complete_and_small() -> None:
    """At least six toys and 22 dev instances over six families; all files of fleet-v0 stay below 8 MB."""
    assert len(list_instances("fleet-v0/toy")) >= 6
    dev = list_instances("fleet-v0/dev")
    assert len(dev) >= 22
    assert {library.entries()[name].family for name in dev} == {
        "fastllm",
        "grw",
        "ou",
        "drop",
        "warp",
        "trace",
    }
    total = sum(
        path.stat().st_size for path in (ROOT / "instances" / "fleet-v0").rglob("*") if path.is_file()
    )
    assert total < 8_000_000


def test_listing_takes_a_suite_a_split_or_nothing() -> None:
    """A prefix selects whole path parts only."""
    assert set(ALL) <= set(list_instances())
    assert list_instances("fleet-v0/toy/") == [name for name in ALL if "/toy/" in name]
    with pytest.raises(UnknownNameError, match="did you mean 'fleet-v0/toy'"):
        list_instances("fleet-v0/toys")
    with pytest.raises(UnknownNameError):
        list_instances("fleet-v0/t")


def test_unknown_instances_suggest_the_nearest() -> None:
    """A typing error, a wrong split and a short name all lead to the right one."""
    for name in ("fleet-v0/toy/two-pool", "fleet-v0/dev/two-pools", "two-pools"):
        with pytest.raises(UnknownNameError, match="fleet-v0/toy/two-pools"):
            load_instance(name)


def test_instances_load_from_paths() -> None:
    """A path gives the same instance and finds the scenarios beside it."""
    path = ROOT / "instances" / "fleet-v0" / "toy" / "two-pools.json"
    assert load_instance(path) == load_instance(str(path)) == load_instance("fleet-v0/toy/two-pools")
    assert len(load_scenarios(path)) == 1
    with pytest.raises(FileNotFoundError):
        load_instance("no/such/file.json")


@pytest.mark.parametrize("ending", [".json", ".scenarios.json"])
def test_changed_files_are_refused(copy: Path, ending: str) -> None:
    """One changed digit is noticed, and the message says what to do."""
    path = copy / "fleet-v0" / "toy" / f"drop{ending}"
    path.write_text(path.read_text().replace("2", "3", 1))
    with pytest.raises(DataError, match=r"was changed.*load your own version by its path") as caught:
        load_scenarios("fleet-v0/toy/drop")
    assert str(path) in str(caught.value)


def test_a_flipped_manifest_is_noticed(copy: Path) -> None:
    """Names, sizes and families are in no other checksum."""
    path = copy / "manifest.json"
    assert refused_flips(path, lambda: library.read_manifest(path), seed=2) > 250


@pytest.mark.parametrize("ending", [".json", ".scenarios.json"])
def test_files_that_are_swapped_once_they_are_hashed_change_nothing(
    copy: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """What was hashed is what is parsed, although the file is another one by then."""
    path = copy / "fleet-v0" / "toy" / f"two-pools{ending}"
    expected = load_instance(ROOT / "instances" / "fleet-v0" / "toy" / "two-pools.json")
    scenarios = load_scenarios(ROOT / "instances" / "fleet-v0" / "toy" / "two-pools.json")
    assert library.entries()  # the manifest has a checksum of its own
    swapped = swap_once_hashed(monkeypatch, path, path.read_text().replace("1", "2"))
    if ending == ".json":
        assert load_instance("fleet-v0/toy/two-pools") == expected
    else:
        assert str(load_scenarios("fleet-v0/toy/two-pools")) == str(scenarios)
    assert swapped


def test_missing_files_and_manifests_are_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is said with its full path."""
    (copy / "fleet-v0" / "toy" / "drop.json").unlink()
    with pytest.raises(DataError, match=r"drop\.json.*missing"):
        load_instance("fleet-v0/toy/drop")
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(copy / "nowhere"))
    with pytest.raises(DataError, match=r"no manifest\.json in .*nowhere"):
        load_instance("fleet-v0/toy/drop")


def test_a_set_names_the_families_of_its_score(copy: Path) -> None:
    """By the manifest in its own folder, else by the root; a family that the set lacks is refused, with its place."""
    assert library.counts_as("fleet-v0/toy/drop") == library.counts_as("elsewhere") == {}
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest.pop("sha256", None)
    (copy / "manifest.json").write_text(json.dumps({**manifest, "headline": ["toy"]}))
    assert list(library.counts_as("fleet-v0")) == ["toy"]
    assert library.counts_as("fleet-v1/dev/ou-s-101") == {}  # not in this manifest
    (copy / "manifest.json").write_text(json.dumps(manifest))
    own = copy / "fleet-v0" / "manifest.json"
    own.write_text(json.dumps({**manifest, "headline": ["toy"]}))
    assert list(library.counts_as("fleet-v0/toy/drop")) == ["toy"]
    assert library.counts_as("elsewhere") == {}
    own.write_text(json.dumps({**manifest, "headline": ["toy", "oú"]}))
    with pytest.raises(DataError, match=r"manifest\.json: \$\.headline\[1\]: no instance is of family 'oú'"):
        library.counts_as("fleet-v0")


def test_a_set_merges_families_of_its_score(copy: Path) -> None:
    """Merged ones count as one; what is no headline family, or is merged twice, is refused, with its place."""
    assert library.counts_as("fleet-v0/toy/drop") == library.counts_as("elsewhere") == {}
    assert library.headline_of("elsewhere") == {"headline": []}
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest.pop("sha256", None)
    entries = [{**entry, "family": f"toy-{k % 3}"} for k, entry in enumerate(manifest["entries"])]
    named = {**manifest, "entries": entries, "headline": ["toy-0", "toy-1", "toy-2"]}
    path = copy / "manifest.json"
    path.write_text(json.dumps({**named, "merged": [["toy-0", "toy-2"]]}))
    assert library.counts_as("fleet-v0") == {"toy-0": "toy-0+toy-2", "toy-1": "toy-1", "toy-2": "toy-0+toy-2"}
    assert library.headline_of("fleet-v0") == {"headline": named["headline"], "merged": [["toy-0", "toy-2"]]}
    for merged, place in (
        ([["toy-0", "toy"]], r"\$\.merged\[0\]\[1\]"),
        ([["toy-0", "toy-1"]] * 2, r"\$\.merged\[1\]\[0\]"),
    ):
        path.write_text(json.dumps({**named, "merged": merged}))
        with pytest.raises(DataError, match=rf"{place}: .* is no headline family, or is merged twice"):
            library.counts_as("fleet-v0")


def test_best_known_costs_are_of_tasks(tmp_path: Path) -> None:
    """A key that names no task is refused where the file is read; one that nobody has drawn is told by the replay."""
    known = read_best_known(best_known_path("fleet-v0"))
    best = known.tasks["fleet-v0/toy/drop#0"]
    for name in ("x", "fleet-v0/toy/drop", "fleet-v0/toy/drop#x"):
        write_best_known(tmp_path / "b.json", dataclasses.replace(known, tasks={name: best}))
        with pytest.raises(DataError, match=r"b\.json: \$\.tasks"):
            read_best_known(tmp_path / "b.json")
    assert "unknown instance" in str(check_best_known((tmp_path, "fleet-v0/toy/none#0", best)))
    assert "no such file" in str(check_best_known((tmp_path, "fleet-v0/toy/drop#0", best))).lower()


def test_toy_files_satisfy_the_published_schema() -> None:
    """An independent validator accepts them."""
    jsonschema = pytest.importorskip("jsonschema")
    folder = ROOT / "instances" / "fleet-v0" / "toy"
    for path in sorted(folder.glob("*.json")):
        schema = scenario_schema() if path.name.endswith(".scenarios.json") else instance_schema()
        jsonschema.validate(json.loads(path.read_text()), schema)


@pytest.mark.parametrize(("name", "optimum"), TOYS.items())
def test_toys_have_the_optimum_that_their_readme_derives(name: str, optimum: float) -> None:
    """Dynamic programming over all fleets finds the cost found by hand."""
    full = f"fleet-v0/toy/{name}"
    instance = load_instance(full)
    assert instance.num_configurations <= 8
    assert 4 <= instance.num_windows <= 12
    assert optimal_fleets(instance, load_scenarios(full)[0]).cost == pytest.approx(optimum, abs=1e-9)
    assert f"`{name}`" in (ROOT / "instances" / "fleet-v0" / "toy" / "README.md").read_text()


@pytest.mark.parametrize("name", TOYS)
def test_toys_are_readable(name: str) -> None:
    """Their files are what the library would write, indented."""
    full = f"fleet-v0/toy/{name}"
    instance, path = load_instance(full), ROOT / "instances" / full
    assert pretty(instance.to_dict()) == path.with_suffix(".json").read_bytes()
    scenarios = pretty(scenario_file_data(instance, load_scenarios(full)))
    assert scenarios == path.with_suffix(".scenarios.json").read_bytes()


def test_schemas_are_current() -> None:
    """The stored schemas are those of the classes, byte for byte; `make pages` writes them."""
    for name, schema in (("instance", instance_schema()), ("scenarios", scenario_schema())):
        assert pretty(schema) == (ROOT / "instances" / "schema" / f"{name}.schema.json").read_bytes()


def test_importing_the_library_stays_light() -> None:
    """No heavy package is loaded by the modules that `import fleetgym` may touch."""
    code = (
        "import sys, fleetgym, fleetgym.model.library, fleetgym.families.generate, fleetgym.model.dynamics\n"
        "print([m for m in ('pandas', 'scipy', 'numba', 'highspy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [name for name in ALL if "/dev/" in name])
def test_dev_instances_are_priced_as_stated(name: str) -> None:
    """Late costs at most half of unserved; fee plus delay is 2 to 6 windows; slots hold every configuration once."""
    instance = load_instance(name)
    if instance.family == "fastllm":
        assert instance.lead == 0
        assert instance.budget is not None
        return
    for workload in instance.workloads:
        assert workload.late_usd <= 0.5 * workload.unserved_usd * (1 + 1e-6)
    hold = instance.rental_usd_per_h.sum(axis=0) / 12.0
    fee = np.array([c.startup_usd for c in instance.configurations]) / hold
    wait = np.array([c.startup_windows for c in instance.configurations])
    assert np.all(fee < 3.1)
    assert np.all((fee + wait > 2.0) & (fee + wait <= 6.1))
    prefill = instance.performance.prefill_s
    lengths = np.array([[w.input_tokens, w.output_tokens] for w in instance.workloads])
    nominal = (
        prefill.base + prefill.per_input_token * lengths[:, :1] + prefill.per_output_token * lengths[:, 1:]
    )
    bound = 0.8 * np.array([[w.ttft_slo_s] for w in instance.workloads], dtype=float)
    assert np.all((nominal <= bound * (1 + 1e-5)) | ~instance.performance.compatible)


def test_what_takes_an_instance_takes_its_name(tmp_path: Path) -> None:
    """An id, a file and the object are one to every public function; a wrong name is told as by `load_instance`."""
    name = "fleet-v0/toy/two-pools"
    instance = load_instance(name)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(instance.to_dict()))
    planned = fleetgym.Plan(fleet=np.array([1, 0]))
    calls = (
        lambda source: fleetgym.View(source).instance.content_hash,
        lambda source: fleetgym.plan(source, "gh").fleet.tolist(),
        lambda source: fleetgym.fleet_risk(source, [1, 0], days=2).summary(),
        lambda source: fleetgym.agent_risk(source, fleetgym.make_agent("hold"), days=2).summary(),
        lambda source: fleetgym.two_stage_evaluate(source, planned, scenarios=5, routes="deployed").summary(),
        lambda source: plan_with_risk(source, "gh", days=2, margin="best").plan.fleet.tolist(),
    )
    for call in calls:
        assert call(instance) == call(name) == call(path) == call(str(path))
        with pytest.raises(UnknownNameError, match="did you mean 'fleet-v0/toy/two-pools'"):
            call("fleet-v0/toy/two-pool")
