"""Instances and scenarios: files in and out, hashes, views, and what `replace` lets through."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import os
import pickle
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from toys import nominal_scenario, one_pool_data, random_instance, random_scenario

from fleetgym.files import documents as files
from fleetgym.files import schema
from fleetgym.files.errors import DataError
from fleetgym.model.instance import Budget, Instance, instance_schema, load_instance_file
from fleetgym.model.scenario import Scenario, load_scenario_file, scenario_file_data, scenario_schema


def arrays_of(part: Any) -> list[np.ndarray]:
    """Return every array in a dataclass, at any depth."""
    values = [getattr(part, f.name) for f in dataclasses.fields(part)]
    found = [v for v in values if isinstance(v, np.ndarray)]
    return found + [a for v in values if dataclasses.is_dataclass(v) for a in arrays_of(v)]


# -- files


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_round_trip(small: Instance, tmp_path: Path, suffix: str) -> None:
    """Written and read again, an instance is equal to the last bit."""
    path = tmp_path / f"small{suffix}"
    files.write_json(path, small.to_dict())
    again = load_instance_file(path)
    assert again == small
    assert again.to_dict() == small.to_dict()
    assert hash(again) == hash(small)


def test_random_round_trips() -> None:
    """Nothing is lost in awkward numbers either."""
    for seed in range(30):
        instance = random_instance(seed)
        text = files.canonical_json(instance.to_dict())
        again = Instance.from_dict(files.parse_json(text))
        assert files.canonical_json(again.to_dict()) == text
        assert again.content_hash == instance.content_hash


def test_scenario_round_trip(small: Instance, tmp_path: Path) -> None:
    """A scenario file gives back the same arrays."""
    scenario = dataclasses.replace(random_scenario(small, 1), id="one")
    path = tmp_path / "scenarios.json.gz"
    files.write_json(path, scenario_file_data(small, [scenario, nominal_scenario(small)]))
    one, nominal = load_scenario_file(path, small).scenarios
    for got, put in ((one, scenario), (nominal, nominal_scenario(small))):
        for a, b in zip(arrays_of(got), arrays_of(put), strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


def test_written_files_are_the_same_bytes(small: Instance, tmp_path: Path) -> None:
    """No time stamp, no order of keys: the same instance is the same file."""
    for name in ("a.json.gz", "b.json.gz"):
        files.write_json(tmp_path / name, small.to_dict())
    a, b = (tmp_path / n for n in ("a.json.gz", "b.json.gz"))
    assert a.read_bytes() == b.read_bytes()
    assert json.loads(gzip.decompress(a.read_bytes())) == small.to_dict()


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """What cannot be written replaces nothing and leaves nothing behind."""
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        files.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_pickles(small: Instance) -> None:
    """Workers get instances as pickles."""
    assert pickle.loads(pickle.dumps(small)) == small


# -- hashes


def test_hash_does_not_depend_on_the_file(small_data: dict[str, Any]) -> None:
    """Key order, whole numbers written as integers, and defaults left out do not matter."""
    expected = Instance.from_dict(small_data).content_hash
    turned = dict(reversed(small_data.items()))
    turned["window_s"] = 300
    turned["history"] = {"rate_rps": [[4, 2]]}
    for key in ("lead", "penalty_basis"):
        del turned[key]
    for part in turned["configurations"]:
        part.pop("startup_usd", None) if part.get("startup_usd") == 0.0 else None
    assert Instance.from_dict(turned).content_hash == expected


def test_hash_is_pinned(small: Instance) -> None:
    """The canonical form does not change unnoticed: stored scenarios name this hash."""
    text = files.canonical_json(small.to_dict())
    assert small.content_hash == files.canonical_hash(json.loads(text))
    assert files.canonical_hash({"b": 1.0, "a": [True, None, "ä"]}) == (
        "0efc696eacc527e2e5ce950395738998e8d1dc64dd65484c7ddc28979c2075a5"
    )


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("window_s",), 300.0000000001),
        (("description",), "made by hands"),
        (("lead",), 0),
        (("budget",), None),
        (("workloads", 0, "unserved_usd"), 0.1 + 1e-15),
        (("pools", 1, "price_usd_per_gpu_h"), 3.5),
        (("configurations", 0, "startup_windows"), 3),
        (("performance", "delay_s", "base", 0, 0), 1.0 + 2.0**-52),
        (("performance", "compatible", 1, 1), False),
        (("nominal_fleet", 2), 1),
        (("provenance", "all"), "made by hand."),
    ],
)
def test_hash_sees_every_change(small_data: dict[str, Any], where: tuple, value: Any) -> None:
    """One changed number, however small, changes the hash and the equality."""
    original = Instance.from_dict(small_data)
    changed = copy.deepcopy(small_data)
    inner: Any = changed
    for key in where[:-1]:
        inner = inner[key]
    assert inner[where[-1]] != value
    inner[where[-1]] = value
    other = Instance.from_dict(changed)
    assert other.content_hash != original.content_hash
    assert other != original


# -- values


def test_defaults(small_data: dict[str, Any]) -> None:
    """Optional keys have the values that the specification names."""
    for key in ("lead", "penalty_basis", "budget"):
        del small_data[key]
    instance = Instance.from_dict(small_data)
    assert (instance.lead, instance.penalty_basis, instance.budget) == (1, "request", None)
    east, west = instance.pools
    assert (east.market, west.market, west.gpus_per_node, west.region) == ("on-demand", "spot", 1, "region-1")
    spot = instance.configurations[2]
    assert (spot.startup_windows, spot.startup_usd, spot.model_storage_usd_per_h) == (0, 0.0, 0.0)
    assert instance.tiers[0].price_usd_per_gpu_h is None
    assert instance.workloads[1].ttft_slo_s is None


def test_arrays_are_read_only(small: Instance) -> None:
    """Nobody changes an instance by accident, derived arrays and scenarios included."""
    scenario = load_scenarios(small)
    derived = [small.gpu_use, small.rental_usd_per_h]
    expanded = arrays_of(scenario.expanded(small.num_windows))
    for array in [*arrays_of(small), *derived, *arrays_of(scenario), *expanded]:
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


def load_scenarios(instance: Instance) -> Scenario:
    """Read the nominal scenario through its JSON form."""
    data = scenario_file_data(instance, [nominal_scenario(instance)])["scenarios"][0]
    return schema.read_object(Scenario, data)


def test_fields_are_frozen(small: Instance) -> None:
    """Plain fields cannot be set either."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        small.window_s = 1.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        small.pools[0].cap_gpus = 100  # type: ignore[misc]


def test_derived_numbers() -> None:
    """Uses add up per pool; a tier's price replaces its pool's."""
    data = one_pool_data()
    data["tiers"].append({"id": "east-fp8", "pool": "east", "price_usd_per_gpu_h": 5.0})
    data["configurations"][0]["uses"].append({"tier": "east-fp8", "gpus": 2})
    data["pools"][0]["cap_gpus"] = 10
    instance = Instance.from_dict(data)
    assert instance.gpu_use.tolist() == [[6, 2, 0], [0, 0, 1]]
    assert instance.rental_usd_per_h.tolist() == [[4 * 12 + 2 * 5, 24, 0], [0, 0, 3]]
    assert instance.slot_members == ((0, 1), (2,))
    assert (instance.num_workloads, instance.num_configurations, instance.num_pools) == (2, 3, 2)


def test_expanded_has_every_window(small: Instance) -> None:
    """Single rows become as many equal rows as there are windows."""
    full = nominal_scenario(small).expanded(small.num_windows)
    assert full.rate_rps.shape == (12, 2)
    assert np.all(full.available_gpus == [8, 3])
    full.check(small)


# -- replace


def test_replace_changes_one_thing(small: Instance) -> None:
    """The copy differs in what was asked for; the original stays."""
    before = small.content_hash
    other = small.replace(num_windows=24, budget=Budget(kind="pool", usd=7.0))
    assert (other.num_windows, other.budget, small.num_windows) == (24, Budget(kind="pool", usd=7.0), 12)
    assert other.content_hash != before == small.content_hash
    assert small.replace() == small


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"window_s": -1.0}, "$.window_s"),
        ({"num_windows": 0}, "$.num_windows"),
        ({"lead": 7}, "$.lead"),
        ({"nominal_fleet": np.array([0, 0, 9])}, "$.nominal_fleet[2]"),
        ({"nominal_fleet": np.array([0, 0, -1])}, "$.nominal_fleet[2]"),
        ({"nominal_fleet": np.array([0, 1])}, "$.nominal_fleet"),
        ({"penalty_basis": "day"}, "$.workloads[0].late_usd"),
        ({"window": 300.0}, "$"),
    ],
)
def test_replace_validates(small: Instance, changes: dict[str, Any], path: str) -> None:
    """Nothing invalid gets in through `replace`: neither a single value nor a combination."""
    with pytest.raises(DataError) as caught:
        small.replace(**changes)
    assert caught.value.path == path


def parts_of(whole: Any) -> list[Any]:
    """Return one object of every class that an instance or scenario is made of."""
    found = {type(whole): whole}
    for field in dataclasses.fields(whole):
        value = getattr(whole, field.name)
        for part in value if isinstance(value, tuple) else [value]:
            if dataclasses.is_dataclass(part):
                found |= {type(p): p for p in parts_of(part)}
    return list(found.values())


def test_what_python_makes_is_checked_as_a_file_is(small: Instance) -> None:
    """No field of any class takes what its kind forbids; what a file would give too is stored in the same form."""
    parts = parts_of(small.replace(budget=Budget(kind="pool", usd=7.0))) + parts_of(nominal_scenario(small))
    assert {type(part).__name__ for part in parts} >= {
        "Workload",
        "Pool",
        "Use",
        "Affine",
        "Budget",
        "Scenario",
    }
    for part in parts:
        for field in dataclasses.fields(part):
            with pytest.raises(DataError) as caught:
                dataclasses.replace(part, **{field.name: object()})
            assert caught.value.path == f"{type(part).__name__}.{field.name}"
        assert schema.to_jsonable(dataclasses.replace(part)) == schema.to_jsonable(part)
    workload = small.workloads[0]
    for bad in (0.0, -1.0, np.nan, np.inf, "3", True, None):
        with pytest.raises(
            DataError, match=r"^Workload\.rate_rps: expected a number from 1e-9 to 1e6 requests/s, got "
        ):
            dataclasses.replace(workload, rate_rps=bad)
    again = dataclasses.replace(small, workloads=list(small.workloads), window_s=np.float32(small.window_s))
    assert again == small
    assert type(again.window_s) is float


def test_what_python_makes_takes_no_writable_array(small: Instance) -> None:
    """An array that the caller may change later is copied, also by `replace`."""
    rates = np.array(nominal_scenario(small).rate_rps)
    made = dataclasses.replace(nominal_scenario(small), rate_rps=rates)
    rates[:] = -1.0
    assert (made.rate_rps >= 0.0).all()
    assert not made.rate_rps.flags.writeable
    fleet = np.array([0, 0, 1])
    other = small.replace(nominal_fleet=fleet)
    fleet[2] = 3
    assert other.nominal_fleet.tolist() == [0, 0, 1]
    assert not other.nominal_fleet.flags.writeable


# -- schemas


def test_schemas_are_schemas() -> None:
    """Both published schemas are valid JSON Schema."""
    for published in (instance_schema(), scenario_schema()):
        jsonschema.Draft202012Validator.check_schema(published)
        json.dumps(published, allow_nan=False)


def test_schema_accepts_what_the_loader_accepts() -> None:
    """Valid instances and scenarios pass the published schema, with and without optional keys."""
    check_instance = jsonschema.Draft202012Validator(instance_schema())
    check_scenario = jsonschema.Draft202012Validator(scenario_schema())
    check_instance.validate(one_pool_data())
    for seed in range(10):
        instance = random_instance(seed)
        check_instance.validate(instance.to_dict())
        check_scenario.validate(scenario_file_data(instance, [random_scenario(instance, seed)]))


@pytest.mark.parametrize(
    "change",
    [
        {"window_s": 0},
        {"window_s": "300"},
        {"num_windows": 1.5},
        {"num_windows": 2017},
        {"lead": 2},
        {"penalty_basis": "week"},
        {"format": "other"},
        {"id": "a b"},
        {"workloads": []},
        {"budget": {"kind": "rate"}},
        {"nominal_fleet": [-1, 0, 0]},
        {"nominal_fleet": [[0, 0, 0]]},
        {"provenance": {"all": 1}},
        {"extra": 1},
    ],
)
def test_schema_refuses_what_the_loader_refuses(small_data: dict[str, Any], change: dict[str, Any]) -> None:
    """What a single value can break, both notice."""
    broken = {**small_data, **change}
    assert not jsonschema.Draft202012Validator(instance_schema()).is_valid(broken)
    with pytest.raises(DataError):
        Instance.from_dict(broken)


def test_every_field_is_described() -> None:
    """The schema names every key of the file, and nothing else is allowed."""
    published = instance_schema()
    assert set(published["properties"]) == set(one_pool_data()) | {"facts", "law"}
    assert published["additionalProperties"] is False
    assert set(published["required"]) == set(one_pool_data()) - {"lead", "penalty_basis", "budget"}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_are_written_with_the_rights_that_the_user_grants(
    tmp_path: Path, umask: int, mode: int
) -> None:
    """The umask holds, as for any new file, and nothing temporary is left."""
    before = os.umask(umask)
    try:
        files.write_atomically(tmp_path / "a.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """Memory follows what a file holds, however much it might: a limit is no size of a buffer."""
    path = tmp_path / "small.jsonl"
    path.write_text("{}\n")
    tracemalloc.start()
    files.read_text(path, 2**32)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**22
