"""Generated instances follow their family's rules, and the same seed gives the same instance."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from places import ROOT

from fleetgym.families import demand, serving
from fleetgym.families.caps import rates_and_caps
from fleetgym.families.draft import pools_alone
from fleetgym.families.generate import families, generate, stored_scenarios
from fleetgym.families.plans import SIZES
from fleetgym.families.static import allocate, largest_load
from fleetgym.families.text import six, tie_break
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROCESSES, PROFILE
from fleetgym.model.scenario import Scenario


@pytest.fixture(scope="module")
def ou() -> Instance:
    """Return a small instance of the calibrated family."""
    return generate("ou", "s", 7)


@pytest.fixture(scope="module")
def drop() -> Instance:
    """Return a small instance with spot pools."""
    return generate("drop", "s", 7)


def test_the_same_seed_gives_the_same_instance_and_scenarios(ou: Instance) -> None:
    """Everything derives from family, size and seed; another seed gives another instance."""
    again = generate("ou", "S", 7)
    assert again.content_hash == ou.content_hash
    assert again.id == "ou-s-007"
    assert generate("ou", "s", 8).content_hash != ou.content_hash
    first, second = stored_scenarios(ou, 7), stored_scenarios(again, 7)
    assert all(np.array_equal(a.rate_rps, b.rate_rps) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0].rate_rps, first[1].rate_rps)


def test_unknown_families_sizes_and_seeds_are_refused() -> None:
    """Each message names what would be valid."""
    with pytest.raises(UnknownNameError, match="did you mean 'drop'"):
        generate("drops", "s", 1)
    with pytest.raises(UnknownNameError, match=r"size of trace.*known: m"):
        generate("trace", "s", 1)
    with pytest.raises(FleetgymError, match="at least 0"):
        generate("ou", "s", -1)


@pytest.mark.parametrize("size", families()["fastllm"].sizes[:2])
def test_fastllm_follows_the_regime(size: str) -> None:
    """Counts, money per day, no waiting, one exclusive group per (model, tier), ranges of the regime's table."""
    instance = generate("fastllm", size, 3)
    workloads, models, tiers = (int(part) for part in size.split("-"))
    assert instance.num_workloads == workloads
    assert len({c.model for c in instance.configurations}) == models
    assert len(instance.tiers) == tiers
    assert len(instance.slots) == models * tiers
    assert all(slot.exclusive for slot in instance.slots)
    assert (instance.lead, instance.penalty_basis) == (0, "day")
    assert instance.budget is not None
    assert instance.budget.usd == pytest.approx(100.0 / 24.0, rel=1e-5)
    assert not instance.performance.service_s.base.any()
    assert all(w.ttft_slo_s is None and w.late_usd == 0.0 for w in instance.workloads)
    assert all(c.startup_windows == 0 and c.startup_usd == 0.0 for c in instance.configurations)
    for workload in instance.workloads:
        assert 1.5 <= workload.mean_delay_slo_s <= 25.0
        assert 0.02 <= workload.error_slo <= 0.08
        assert 1e3 <= workload.unserved_usd <= 3e3
    summary = instance.workloads[0]
    assert 18e3 / 3600 * 0.99 <= summary.rate_rps <= 25e3 / 3600 * 1.01
    assert all(0.35 <= (tier.price_usd_per_gpu_h or 0.0) <= 2.5 for tier in instance.tiers)
    held = instance.rental_usd_per_h.sum(axis=0) @ instance.nominal_fleet
    assert 0.0 < held <= instance.budget.usd


@pytest.mark.slow
def test_fastllm_is_usable_at_its_largest_size() -> None:
    """20 workloads, 20 models and 20 tiers fit the schema."""
    instance = generate("fastllm", "20-20-20", 1)
    assert instance.num_configurations > 2000
    assert len(instance.slots) == 400
    assert Instance.from_dict(instance.to_dict()) == instance


def test_caps_bind_and_still_bear_the_peak(ou: Instance) -> None:
    """The nominal fleet fits, no pool could do everything alone at the peak, and the history's mean is nominal."""
    held = ou.gpu_use @ ou.nominal_fleet
    caps = np.array([pool.cap_gpus for pool in ou.pools])
    assert np.all(held <= caps)
    assert 8 <= held.sum() <= 18
    assert ou.history.rate_rps.shape == (7 * 288, 4)
    requests = ou.history.rate_rps * ou.window_s
    np.testing.assert_allclose(requests, np.rint(requests), rtol=1e-5)


def test_usable_capacity_is_a_stated_multiple_of_the_peak() -> None:
    """Pools together bear 1.1 to 1.6 times the p99 demand, as GPUs round up; the first one at most 60 % of the mean."""
    rng = np.random.default_rng(5)
    draft = serving._draft("ou", SIZES["ou", "s"], 5, rng)
    rate, cap = rates_and_caps(draft, rng)
    share = rate * np.array([1.0 / max(r, 1e-9) for r in rate])
    relaxed = draft.problem
    peak = float(np.quantile(draft.demand.level @ share, 0.99) / (draft.demand.level @ share).mean())
    assert 1.0 <= largest_load(relaxed, peak * rate, cap) <= 1.6
    alone, cost = pools_alone(relaxed, rate)
    first = int(np.argmin(cost))
    assert cap[first] <= max(np.ceil(0.6 * alone[first]), 2.0)


def test_spot_pools_drop_and_the_others_do_not(drop: Instance) -> None:
    """Only spot pools have drops; they are cheaper than the same GPU on demand."""
    per_day = drop.dynamics.availability.parameters["drops_per_day"]
    assert [value > 0 for value in per_day] == [pool.market == "spot" for pool in drop.pools]
    spot, safe = drop.pools[0], drop.pools[2]
    assert spot.gpu_type == safe.gpu_type
    assert 1.2 < safe.price_usd_per_gpu_h / spot.price_usd_per_gpu_h < 1.6
    assert "hedging number" in drop.provenance["availability"]


def test_penalties_are_windows_of_the_rent_that_serves(ou: Instance) -> None:
    """Serving nobody costs 4 to 12 times what the nominal fleet does."""
    nobody = sum(w.rate_rps * 3600.0 * w.unserved_usd for w in ou.workloads)
    rent = float(ou.rental_usd_per_h.sum(axis=0) @ ou.nominal_fleet)
    assert 4.0 < nobody / rent < 12.0


def test_trace_days_are_the_tenants_days() -> None:
    """Pairs of windows add up to the ten-minute counts, up to rescaling and whole requests; one scenario is stored."""
    instance = generate("trace", "m", 1)
    (scenario,) = stored_scenarios(instance, 1)
    assert isinstance(scenario, Scenario)
    record = demand.tenants()[demand.TRACES[0][1]]
    assert instance.workloads[1].id == f"{record['model']}-{record['client']}"
    day = np.array(record["requests"][144 * 8 : 144 * 9], dtype=float)
    pairs = scenario.rate_rps[:, 1].reshape(144, 2).sum(axis=1)
    assert np.corrcoef(day, pairs)[0, 1] > 0.999
    assert scenario.input_scale.shape == (288, 6)


@pytest.mark.parametrize(("family", "size"), [("grw", "s"), ("warp", "s")])
def test_other_families_generate(family: str, size: str) -> None:
    """They validate, and their scenarios fit."""
    instance = generate(family, size, 2)
    assert len(stored_scenarios(instance, 2)) == 2
    assert all(slot.exclusive == (family == "grw") for slot in instance.slots)


def test_numbers_have_six_digits() -> None:
    """Rounding is relative, and keeps zeros."""
    assert six([[1234567.0, 0.0]]).tolist() == [[1234570.0, 0.0]]


def test_tie_breaks_are_uniform_and_depend_on_the_names() -> None:
    """Mean and spread of a thousand of them are those of a uniform number."""
    values = np.array([tie_break("x", str(k)) for k in range(1000)])
    assert values.min() >= 0.0
    assert values.max() < 1.0
    assert values.mean() == pytest.approx(0.5, abs=0.03)
    assert values.std() == pytest.approx(12**-0.5, abs=0.02)
    assert tie_break("x", "1") != tie_break("y", "1")


def test_allocation_of_no_demand_costs_nothing() -> None:
    """A tiny demand is served for a tiny cost; without any pool it is left unserved at its penalty."""
    draft = serving._draft("ou", SIZES["ou", "s"], 1, np.random.default_rng(1))
    rate = np.full(4, 1e-6)
    found = allocate(draft.problem, rate, np.ones(4))
    assert found.unserved.max() < 1e-9
    assert found.cost_usd_per_s < 1e-6
    nothing = allocate(draft.problem, np.ones(4), np.ones(4), np.zeros(3))
    np.testing.assert_allclose(nothing.unserved, 1.0)
    assert nothing.cost_usd_per_s == pytest.approx(4.0)


def test_a_package_brings_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of somebody else's is generated by its name; a broken one is named with its package."""
    (tmp_path / "their_family.py").write_text(
        "import dataclasses\n"
        "from fleetgym.families.builtin import ou\n"
        "from fleetgym.families.family import Family\n"
        "def build(size, seed, rng):\n"
        "    return ou.build(size, seed, rng).replace(family='calm', id=f'calm-{size}-{seed:03d}')\n"
        "calm = Family(('s',), build)\n"
        "liar = Family(('s',), ou.build)\n"
        "nameless = Family(('s',), lambda *given: ou.build(*given).replace(family='nameless'))\n"
        "nothing = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    real = importlib.metadata.entry_points
    package = NamedTuple("Package", [("name", str)])("theirs")
    theirs = [
        SimpleNamespace(name=name, value=f"their_family:{attribute}", dist=package)
        for name, attribute in (
            ("calm", "calm"),
            ("liar", "liar"),
            ("nothing", "nothing"),
            ("gone", "gone"),
            ("nameless", "nameless"),
        )
    ]

    def entry_points(**wanted: str) -> Any:
        return theirs if wanted.get("group") == "fleetgym.families" else real(**wanted)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    instance = generate("calm", "s", 1000)
    assert (instance.id, instance.family) == ("calm-s-1000", "calm")
    assert len(stored_scenarios(instance, 1000)) == 2
    for name, said in (
        ("liar", "made an instance of family 'ou'"),
        ("nothing", "of theirs is int; expected a"),
        ("gone", "of theirs cannot be loaded"),
        ("nameless", "of id 'ou-s-001'; expected 'nameless-s-001'"),
        ("storm", "unknown family 'storm'"),
    ):
        with pytest.raises(FleetgymError, match=said):
            generate(name, "s", 1)
    with pytest.warns(UserWarning, match="left out: the family '(nothing|gone)' of theirs") as told:
        assert {"calm", "ou"} <= set(families())
    assert len(told) == 2


def test_the_page_lists_every_process() -> None:
    """Each kind of process that an instance may name, with its parameters; profiles are named together."""
    page = (ROOT / "docs" / "write-a-family.md").read_text(encoding="utf-8")
    for name, kinds in PROCESSES.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        told = {
            part.split("`")[1]: re.findall(r"`(\w[\w-]*)`", part)[1:] for part in row.split("|")[2].split(";")
        }
        assert told == {kind: [p for p in taken if p not in PROFILE] for kind, taken in kinds.items()}
