"""A table of broken instance and scenario files: bytes in, where and how the error must point out."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
from collections.abc import Callable
from typing import Any

from toys import instance_data, nominal_scenario, one_pool_data

from fleetgym.model.instance import Instance
from fleetgym.model.scenario import scenario_file_data

DELETED = object()


@dataclasses.dataclass(frozen=True)
class BrokenFile:
    """A file that must be refused.

    Attributes
    ----------
    name : str
        What is wrong with it.
    content : bytes
    path : str
        JSON path that the error names.
    says : str
        Part of the message: what was found, or what would be valid.
    suffix : str
        Of the file's name.
    """

    name: str
    content: bytes
    path: str
    says: str
    suffix: str = ".json"


def good_instance() -> dict[str, Any]:
    """Return the valid instance that the broken ones are made of."""
    return one_pool_data()


def good_scenarios() -> dict[str, Any]:
    """Return the valid scenario file that the broken ones are made of."""
    instance = Instance.from_dict(good_instance())
    return scenario_file_data(instance, [nominal_scenario(instance)])


def _changed(data: Any, where: str, value: Any) -> Any:
    """Return a copy in which the value at a path such as ``pools.0.id`` is another, or gone."""
    data = copy.deepcopy(data)
    *parents, last = [int(k) if k.isdigit() else k for k in where.split(".")]
    inner = data
    for key in parents:
        inner = inner[key]
    if value is DELETED:
        del inner[last]
    else:
        inner[last] = value
    return data


def _file(good: Callable[[], Any]) -> Callable[..., BrokenFile]:
    """Return a maker of broken files that differ from `good` in one value."""

    def make(name: str, where: str, value: Any, says: str, path: str | None = None) -> BrokenFile:
        if path is None:
            path = "$" + "".join(f"[{k}]" if k.isdigit() else f".{k}" for k in where.split("."))
        content = json.dumps(_changed(good(), where, value)).encode()
        return BrokenFile(name, content, path, says)

    return make


def _text(name: str, old: str, new: str, path: str, says: str) -> BrokenFile:
    """Return the instance file with a piece of text replaced, for what `json.dumps` does not write."""
    text = json.dumps(good_instance())
    assert old in text
    return BrokenFile(name, text.replace(old, new, 1).encode(), path, says)


def _whole(name: str, data: Any, path: str, says: str) -> BrokenFile:
    """Return a file with this JSON document."""
    return BrokenFile(name, json.dumps(data).encode(), path, says)


_TEXT = json.dumps(good_instance()).encode()
_GZIP = gzip.compress(_TEXT, mtime=0)
_instance, _scenario = _file(good_instance), _file(good_scenarios)
_WINDOW = '"window_s": 300.0'
_PRICE = '"price_usd_per_gpu_h": 3.0'
_RAGGED = [[1e-6, 1e-6, 1e-6], [1e-6, 1e-6]]

#: What no JSON reader accepts, whatever the file should hold.
BROKEN_TEXTS = [
    BrokenFile("empty", b"", "$", "not JSON"),
    BrokenFile("truncated", _TEXT[: len(_TEXT) // 2], "$", "not JSON"),
    BrokenFile("trailing-text", _TEXT + b"}", "$", "Extra data"),
    BrokenFile("not-utf-8", _TEXT.replace(b"made by hand", b"made by \xff", 1), "$", "not UTF-8"),
    BrokenFile("utf-16", _TEXT.decode().encode("utf-16"), "$", "not UTF-8"),
    BrokenFile("byte-order-mark", b"\xef\xbb\xbf" + _TEXT, "$", "BOM"),
    BrokenFile("gzip-truncated", _GZIP[:-20], "$", "gzip", ".json.gz"),
    BrokenFile("gzip-is-not", _TEXT, "$", "gzip", ".json.gz"),
    BrokenFile("gzip-damaged", _GZIP[:60] + bytes(20) + _GZIP[80:], "$", "gzip", ".json.gz"),
    BrokenFile("gzip-empty", b"", "$", "not JSON", ".json.gz"),
    BrokenFile("gzip-under-another-name", _GZIP, "$", "not UTF-8"),
    BrokenFile("nested-lists", b"[" * 100_000, "$", "nested too deeply"),
    BrokenFile("nested-objects", b'{"a":' * 100_000, "$", "nested too deeply"),
    _text("nan", _WINDOW, '"window_s": NaN', "$", "NaN is not a number"),
    _text("infinity", _WINDOW, '"window_s": Infinity', "$", "expected a finite number"),
    _text("minus-infinity", _WINDOW, '"window_s": -Infinity', "$", "expected a finite number"),
    _text("integer-of-5000-digits", _WINDOW, f'"window_s": {"9" * 5000}', "$", "digits"),
    _text("key-twice", _WINDOW, f'{_WINDOW}, "window_s": 60.0', "$", "'window_s' appears twice"),
    _text("key-twice-inside", _PRICE, f"{_PRICE}, {_PRICE}", "$", "'price_usd_per_gpu_h' appears twice"),
    _text("single-quotes", '"window_s"', "'window_s'", "$", "not JSON"),
]

_WRONG_VALUES = [
    _whole("a-list", [], "$", "expected an object"),
    _whole("a-number", 3, "$", "expected an object"),
    _whole("null", None, "$", "expected an object"),
    _text("overflow", _WINDOW, '"window_s": 1e999', "$.window_s", "from 0.001 to 86400 s, got inf"),
    _text("overflow-in-array", "1e-06", "1e999", "$.performance.storage_usd[0][0]", "from 0 to 1e9 USD"),
    _text(
        "integer-of-400-digits-in-array", "1e-06", "9" * 400, "$.performance.storage_usd[0][0]", "1e9 USD"
    ),
    _instance("another-format", "format", "fleetgym-instance-9", "expected one of fleetgym-instance-1"),
    _instance("missing-key", "window_s", DELETED, "missing key 'window_s'", "$"),
    _instance("missing-key-inside", "pools.1.cap_gpus", DELETED, "missing key 'cap_gpus'", "$.pools[1]"),
    _instance("unknown-key", "windows_s", 300.0, "did you mean 'window_s'?", "$"),
    _instance("unknown-key-inside", "pools.0.cap_gpu", 8, "did you mean 'cap_gpus'?", "$.pools[0]"),
    _instance("list-for-object", "pools.0", [], "expected an object"),
    _instance("object-for-list", "pools", {}, "expected a list"),
    _instance("text-for-list", "slots.0.configurations", "big", "expected a list"),
    _instance("no-workloads", "workloads", [], "expected 1 to 256 entries, got 0"),
    _instance("negative-price", "pools.1.price_usd_per_gpu_h", -3.0, "from 0 to 1e6 USD/h, got -3.0"),
    _instance("text-for-number", "window_s", "300", "expected a number from 0.001 to 86400 s, got '300'"),
    _instance("bool-for-number", "window_s", True, "expected a number from 0.001 to 86400 s, got True"),
    _instance("null-for-number", "window_s", None, "expected a number from 0.001 to 86400 s, got None"),
    _instance("zero-window", "window_s", 0, "from 0.001"),
    _instance("float-for-count", "pools.0.cap_gpus", 8.0, "expected a whole number"),
    _instance("bool-for-count", "pools.0.cap_gpus", True, "expected a whole number"),
    _instance("negative-count", "pools.0.cap_gpus", -2, "whole number from 0"),
    _instance("too-many-windows", "num_windows", 10**6, "whole number from 1 to 2016"),
    _instance("no-servers", "configurations.0.max_concurrency", 0, "whole number from 1"),
    _instance("lead-of-two", "lead", 2, "from 0 to 1"),
    _instance("number-for-text", "id", 7, "expected text"),
    _instance("id-with-a-path", "pools.0.id", "../east", "expected text that matches"),
    _instance("id-with-a-line-end", "id", "toy\n", "expected text that matches"),
    _instance("unknown-market", "pools.0.market", "black", "expected one of reserved, on-demand, spot"),
    _instance("unknown-basis", "penalty_basis", "week", "expected one of request, day"),
    _instance("unknown-budget-kind", "budget.kind", "rates", "expected one of rate, pool"),
    _instance("number-for-flag", "slots.0.exclusive", 1, "expected true or false"),
    _instance("array-is-text", "performance.error", "none", "expected a list"),
    _instance("array-is-flat", "performance.error", [0.1, 0.1, 0.1], "expected a list", "$.performance.error[0]"),
    _instance("array-is-empty", "performance.error", [], "one number per workload and configuration"),
    _instance("array-too-deep", "performance.error.0.0", [0.1], "expected a number"),
    _instance("array-ragged", "performance.storage_usd", _RAGGED, "got 2", "$.performance.storage_usd[1]"),
    _instance("array-negative", "performance.delay_s.base.1.2", -1.0, "from 0 to 1e7"),
    _instance("array-text", "performance.delay_s.base.1.2", "1", "expected a number"),
    _instance("array-null", "performance.delay_s.base.1.2", None, "expected a number"),
    _instance("array-bool", "performance.delay_s.base.1.2", True, "expected a number"),
    _instance("array-number-for-flag", "performance.compatible.0.0", 1, "expected true or false"),
    _instance("array-float-for-count", "nominal_fleet.2", 2.0, "expected a whole number"),
    _instance("tie-break-above-one", "performance.tie_break.0.0", 1.5, "from 0 to 1"),
    _instance("law-of-another-mean", "workloads.0.input_law", {"shares": [0, 1], "factors": [1, 2]},
              "expected a mean of 1, got 1.5", "$.workloads[0].input_law.factors"),
    _instance("law-that-falls", "workloads.1.output_law", {"shares": [0, 0.5, 1], "factors": [1, 0.5, 2]},
              "none below the one before", "$.workloads[1].output_law.factors"),
    _instance("law-with-other-ends", "workloads.0.input_law", {"shares": [0, 0.9], "factors": [0, 2]},
              "rise from 0 to 1", "$.workloads[0].input_law.shares"),
    _instance("law-of-one-node", "workloads.0.input_law", {"shares": [0], "factors": [1]},
              "expected 2 to 16 entries, got 1", "$.workloads[0].input_law.shares"),
    _instance("law-is-negative", "workloads.0.input_law", {"shares": [0, 1], "factors": [-1, 3]},
              "from 0 to 1e6, got -1", "$.workloads[0].input_law.factors[0]"),
    _instance("parameter-is-text", "dynamics.demand.parameters", {"sigma": "x"}, "expected a number",
              "$.dynamics.demand.parameters.sigma"),
    _instance("provenance-is-number", "provenance.all", 3, "expected text"),
]  # fmt: skip

_HUGE = 10**400  # a whole number of JSON that no float holds

#: What loaded and played once, and what would be valid instead.
_BEYOND = {
    "workloads.0.error_slo": ((1e9, 7.0, 0.0, _HUGE), "from 1e-9 to 1"),
    "performance.error.0.0": ((7, -0.1, _HUGE), "from 0 to 1"),
    "window_s": ((1e-9, 1e300, _HUGE), "from 0.001 to 86400 s"),
    "workloads.0.mean_delay_slo_s": ((0.0, 1e-12, 1e300, _HUGE), "from 1e-6 to 1e7 s"),
    "workloads.0.ttft_slo_s": ((0.0, 1e-12, 1e300), "from 1e-6 to 1e7 s"),
    "pools.0.price_usd_per_gpu_h": ((1e12, -1.0), "from 0 to 1e6 USD/h"),
    "configurations.0.kv_gb_per_token": ((1e12,), "from 0 to 1000 GB/token"),
    "workloads.0.input_tokens": ((1e15, 1e-9), "from 0.001 to 1e7 tokens"),
    "workloads.0.rate_rps": ((9e307, 1e-300), "from 1e-9 to 1e6 requests/s"),
    "history.rate_rps.0.0": ((9e307,), "from 0 to 1e6 requests/s"),
    "budget.usd": ((0, 1e300), "from 1e-6 to 1e15 USD"),
}
_BEYOND_BOUNDS = [
    _instance(f"{where}-{str(value)[:12]}", where, value, f"expected a number {expected}")
    for where, (values, expected) in _BEYOND.items()
    for value in values
]

_ENTRY = "performance.error"
_DRIFT = {"kind": "drift", "parameters": {"log_sd": 0.1}}
_DRIFT_OF_THREE = {"kind": "drift", "parameters": {"log_sd": [0.1] * 3, "time_min": 60}}

_DROPS = {
    "drops_per_day": 2.6, "depth_a": 4.6, "depth_b": 0.2, "duration_log_mean_min": 3.9, "duration_log_sd": 1.4,
    "first_window_share": 0.9, "copula_same_region": 0.5, "copula_other_region": 0.2,
}  # fmt: skip


def _drops(**changed: float) -> dict[str, Any]:
    return {"kind": "drops", "parameters": {**_DROPS, **changed}}


_WRONG_TOGETHER = [
    _instance("tier-without-pool", "tiers.0.pool", "eats", "did you mean 'east'?"),
    _instance(
        "use-without-tier",
        "configurations.1.uses.0.tier",
        "north-tier",
        "no tier has the id 'north-tier'",
    ),
    _instance("slot-without-configuration", "slots.1.configurations.0", "spots", "did you mean 'spot'?"),
    _instance("id-twice", "pools.1.id", "east", "first used at $.pools[0]"),
    _instance("workload-twice", "workloads.1.id", "chat", "duplicate id 'chat'"),
    _instance("configuration-in-two-slots", "slots.1.configurations.0", "small", "already in $.slots[0]"),
    _instance(
        "configuration-in-no-slot",
        "slots.0.configurations",
        ["big"],
        "this one is in none",
        "$.configurations[1].id",
    ),
    _instance(
        "exclusive-with-two-replicas",
        "configurations.0.max_replicas",
        2,
        "max_replicas must be 1",
        "$.slots[0].configurations[0]",
    ),
    _instance(
        "count-slot-of-two",
        "slots.0.exclusive",
        False,
        "exactly one configuration",
        "$.slots[0].configurations",
    ),
    _instance("cap-of-half-a-node", "pools.0.cap_gpus", 7, "multiple of gpus_per_node = 2"),
    _instance(
        "replica-of-half-a-node",
        "configurations.0.uses.0.gpus",
        3,
        "whole multiples of 2",
        "$.configurations[0].uses",
    ),
    _instance("too-few-workloads", _ENTRY, [[0.1] * 3], "expected shape (2, 3), got (1, 3)"),
    _instance("too-few-configurations", _ENTRY, [[0.1] * 2] * 2, "expected shape (2, 3), got (2, 2)"),
    _instance("nominal-too-short", "nominal_fleet", [0, 1], "expected shape (3,), got (2,)"),
    _instance("nominal-above-max", "nominal_fleet.2", 4, "exceed max_replicas = 3"),
    _instance("nominal-above-cap", "pools.1.cap_gpus", 1, "whose cap is 1", "$.nominal_fleet"),
    _instance("nominal-breaks-group", "nominal_fleet.0", 1, "more than one", "$.nominal_fleet"),
    _instance("rate-is-not-the-mean", "workloads.0.rate_rps", 5.0, "the history's mean, 4"),
    _instance("history-of-others", "history.rate_rps", [[4.0]], "got (1, 1)"),
    _instance("negative-history", "history.rate_rps.0.1", -2.0, "from 0 to 1e6 requests/s"),
    _instance("late-above-unserved", "workloads.0.late_usd", 0.2, "may not cost more than an unserved one"),
    _instance("late-by-day", "penalty_basis", "day", "must be 0", "$.workloads[0].late_usd"),
    _instance(
        "unknown-process",
        "dynamics.tokens.kind",
        "drifts",
        "did you mean 'drift'?",
    ),
    _instance("missing-parameter", "dynamics.tokens", _DRIFT, "'time_min'", "$.dynamics.tokens.parameters"),
    _instance(
        "unknown-parameter",
        "dynamics.tokens.parameters",
        {"log_sd": 0.1},
        "unknown parameter",
        "$.dynamics.tokens.parameters.log_sd",
    ),
    _instance(
        "parameter-of-three",
        "dynamics.tokens",
        _DRIFT_OF_THREE,
        "one per workload (2)",
        "$.dynamics.tokens.parameters.log_sd",
    ),
    _instance("negative-sd", "dynamics.tokens", {"kind": "drift", "parameters": {"log_sd": -0.1, "time_min": 60}},
              "from 0 to 10, got -0.1", "$.dynamics.tokens.parameters.log_sd"),
    _instance("no-time", "dynamics.tokens", {"kind": "drift", "parameters": {"log_sd": [0.1, 0.1], "time_min": 0}},
              "from 0.001 to 100000 minutes, got 0", "$.dynamics.tokens.parameters.time_min"),
    _instance("correlation-above-one", "dynamics.availability", _drops(copula_same_region=1.2),
              "a number from 0 to 1, got 1.2", "$.dynamics.availability.parameters.copula_same_region"),
    _instance("regions-closer-than-zones", "dynamics.availability", _drops(copula_other_region=0.9),
              "copula_other_region <= copula_same_region", "$.dynamics.availability.parameters"),
]  # fmt: skip

#: Every file here must be refused wherever an instance file is read.
BROKEN_INSTANCE_FILES = [*BROKEN_TEXTS, *_WRONG_VALUES, *_BEYOND_BOUNDS, *_WRONG_TOGETHER]

_ROWS = "scenarios.0"


def _for_another_instance() -> BrokenFile:
    other = Instance.from_dict({**good_instance(), "window_s": 299.0})
    data = scenario_file_data(other, [nominal_scenario(other)])
    return _whole("another-instance", data, "$.instance_hash", "made for another instance")


def _instance_instead() -> BrokenFile:
    return _whole("an-instance", instance_data([], []), "$.format", "expected one of fleetgym-scenarios-1")


#: Every file here must be refused wherever a scenario file of `good_instance` is read.
BROKEN_SCENARIO_FILES = [
    *BROKEN_TEXTS,
    _for_another_instance(),
    _instance_instead(),
    _scenario("no-scenarios", "scenarios", [], "expected 1 to 10000 entries"),
    _scenario("another-name", "instance", "else", "expected 'toy', got 'else'"),
    _scenario("short-hash", "instance_hash", "abc", "expected text that matches"),
    _scenario("missing-field", f"{_ROWS}.rate_rps", DELETED, "missing key 'rate_rps'", "$.scenarios[0]"),
    _scenario("unknown-field", f"{_ROWS}.rates", [], "did you mean", "$.scenarios[0]"),
    _scenario("negative-rate", f"{_ROWS}.rate_rps.0.0", -1.0, "from 0 to 1e6 requests/s"),
    _scenario("scale-beyond-floats", f"{_ROWS}.output_scale.0.0", _HUGE, "expected a number from "),
    _scenario("rate-near-the-end", f"{_ROWS}.rate_rps.0.0", 9e307, "expected a number from "),
    _scenario("large-scale", f"{_ROWS}.input_scale.0.0", 1e9, "expected a number from "),
    _scenario("small-factor", f"{_ROWS}.delay_factor.0.0", 1e-9, "expected a number from "),
    _scenario("large-price", f"{_ROWS}.price_factor.0.0", 1e12, "expected a number from "),
    _scenario("zero-scale", f"{_ROWS}.input_scale.0.1", 0.0, "from 0.0001 to 10000"),
    _scenario("zero-delay-factor", f"{_ROWS}.delay_factor.0.0", 0, "from 0.0001 to 10000"),
    _scenario("negative-price-factor", f"{_ROWS}.price_factor.0.0", -0.1, "from 0 to 10000"),
    _scenario("float-gpus", f"{_ROWS}.available_gpus.0.0", 8.0, "expected a whole number"),
    _scenario("negative-gpus", f"{_ROWS}.available_gpus.0.0", -2, "expected a whole number from 0"),
    _scenario("half-a-node", f"{_ROWS}.available_gpus", [[7, 3]], "expected whole nodes"),
    _scenario("above-cap", f"{_ROWS}.available_gpus", [[8, 4]], "at most the pool's cap_gpus"),
    _scenario("too-few-windows", f"{_ROWS}.rate_rps", [[4.0, 2.0]] * 5, "(12, 2) or (1, 2), got (5, 2)"),
    _scenario("too-few-pools", f"{_ROWS}.price_factor", [[1.0]], "(12, 2) or (1, 2), got (1, 1)"),
    _scenario("ragged", f"{_ROWS}.rate_rps", [[4.0, 2.0], [4.0]], "got 1", "$.scenarios[0].rate_rps[1]"),
    _scenario("flat", f"{_ROWS}.rate_rps", [4.0, 2.0], "expected a list", "$.scenarios[0].rate_rps[0]"),
    _scenario(
        "id-twice",
        "scenarios",
        good_scenarios()["scenarios"] * 2,
        "duplicate id 'nominal'",
        "$.scenarios[1].id",
    ),
]  # fmt: skip
