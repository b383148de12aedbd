"""Plans asked again: with other SLOs, with one GPU type alone, beside other fleets, beside a study."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from model_configs import LLAMA_70B
from sample_traces import write_generic

import fleetgym
from fleetgym.capacity.risk import fleet_risk
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.objectives import restated
from fleetgym.capacity.traces.own_hardware import read_own
from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.traces.studied import own_gpus, study_settings
from fleetgym.capacity.what_if import only, promised, stated_slos
from fleetgym.cli.parser import main
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance

OFFERS = (
    Offer(gpu="H100", usd_per_gpu_h=3.0),
    Offer(gpu="L40S", usd_per_gpu_h=1.2, max_gpus=1),
)


def made(folder: Path, slo: str, **options: object) -> Instance:
    """Return an instance of an hour of requests."""
    asked = {"models": ["Llama-3.1-8B"], "by": "one", "scale": 60.0, "scenarios": 1, "prices": OFFERS}
    trace = folder / "hour.csv"
    if not trace.exists():
        write_generic(trace, seed=3)
    return import_trace(trace, slo=slo, **{**asked, **options}).instance  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an instance, day.json."""
    path = tmp_path_factory.mktemp("asked")
    (path / "day.json").write_text(json.dumps(made(path, "ttft=2,delay=20").to_dict()))
    return path


def told(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """Return what a command prints, in one line."""
    assert main(words) == code
    out, err = capsys.readouterr()
    return " ".join((err if code else out).split())


def without_recipe(instance: Instance) -> Instance:
    """Return an instance as an older version imported it."""
    assert instance.facts is not None
    return instance.replace(facts=dataclasses.replace(instance.facts, recipe=None))


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        ("ttft=1s,delay=20", "ttft=1s"),
        ("ttft=2,delay=9", "delay=9"),
        ("ttft=2,delay=20,tpot=30ms", "tpot=30ms"),
        ("ttft=2,delay=20,tpot.p95=30ms", "tpot.p95=30ms"),
        ("ttft=2,delay=20,e2e=15", "e2e=15"),
        ("ttft.p95=500ms,delay=20,tpot=25ms,e2e.p90=20s", "ttft.p95=500ms,tpot=25ms,e2e.p90=20s"),
        ("ttft=4,delay=30,error=4.7%,late_usd=0.0001", "ttft=4,delay=30,error=4.7%,late_usd=0.0001"),
    ],
)
@pytest.mark.parametrize("spot", [False, True])
def test_slos_are_those_of_an_import_with_them(now: str, asked: str, spot: bool, tmp_path: Path) -> None:
    """Candidates, limits of GPUs and penalties are made anew, from a file as from an import."""
    offers = (*OFFERS, Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot")) if spot else OFFERS
    old, new = (made(tmp_path, slo, prices=offers) for slo in ("ttft=2,delay=20", now))
    (tmp_path / "old.json").write_text(json.dumps(old.to_dict()))
    read = fleetgym.load_instance(str(tmp_path / "old.json"))
    found = promised(read, restated(stated_slos(read), asked, [w.id for w in read.workloads]))
    assert found == new
    assert promised(found, stated_slos(old)) == old


def test_own_hardware_is_in_the_file(tmp_path: Path) -> None:
    """Other SLOs need neither the files of a model, a GPU and its measurements again, nor labels."""
    (tmp_path / "runs.csv").write_text(
        "model,gpu,precision,input_tokens,output_tokens,concurrency,requests_per_s\n"
        "Llama-3.1-8B,H100,fp8,1000,200,64,9\n"
    )
    (tmp_path / "gpus.csv").write_text(
        "name,memory_gb,bandwidth_gb_per_s,fp16_tflops,usd_per_gpu_h\nG1,96,4000,400,1.9\n"
    )
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    own = read_own([f"mine={tmp_path / 'config.json'}"], [tmp_path / "gpus.csv"], [tmp_path / "runs.csv"])
    options = {"own": own, "models": ["Llama-3.1-8B"], "scale": 5.0}
    old, new = (made(tmp_path, slo, **options) for slo in ("ttft=3", "ttft=3,tpot=45ms"))
    assert {"mine", "Llama-3.1-8B"} <= {c.model for c in new.configurations}
    assert promised(old, restated(stated_slos(old), "tpot=45ms", [w.id for w in old.workloads])) == new


@pytest.mark.parametrize("change", ["older version", "edited"])
@pytest.mark.parametrize("asked", ["tpot=30ms", "delay=9", "e2e.p95=30s"])
def test_without_a_recipe_sizes_need_the_trace(change: str, asked: str, tmp_path: Path) -> None:
    """A file of an older version has none, and that of an edited file would undo the edit."""
    old = made(tmp_path, "ttft=2,delay=20")
    pools = [dataclasses.replace(pool, cap_gpus=3) for pool in old.pools]
    changed = old.replace(pools=pools) if change == "edited" else without_recipe(old)
    names = [w.id for w in old.workloads]
    with pytest.raises(FleetgymError, match="import the trace again with this --slo"):
        promised(changed, restated(stated_slos(old), asked, names))
    found = promised(changed, restated(stated_slos(old), "ttft=1s", names))
    assert found.pools == changed.pools
    assert found.workloads[0].ttft_slo_s == 1.0
    assert found.workloads[0].unserved_usd == old.workloads[0].unserved_usd
    expected = made(tmp_path, "ttft=1s,delay=20")
    ids = {c.id: k for k, c in enumerate(found.configurations)}
    kept = [ids[c.id] for c in expected.configurations]
    assert np.array_equal(found.performance.compatible[:, kept], expected.performance.compatible)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("ttft=24h", "deferred work"),
        ("e2e=24h", "deferred work"),
        ("ttft=1ms", "out of reach"),
        ("error=0.001", "out of reach"),
        ("tpot=0.1ms", "out of reach"),
        ("late_usd=100", "may not cost more than an unserved one"),
        ("ttft=500", "500ms"),
        ("itl=5", "cannot be expressed"),
    ],
)
def test_slos_that_are_refused(
    asked: str, expected: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says why, with a recipe or without."""
    old = without_recipe(fleetgym.load_instance(str(folder / "day.json")))
    (tmp_path / "old.json").write_text(json.dumps(old.to_dict()))
    assert expected in told(["plan", str(folder / "day.json"), "--slo", asked], capsys, 2)
    if "tpot" not in asked:
        assert expected in told(["plan", str(tmp_path / "old.json"), "--slo", asked], capsys, 2)


def test_a_later_first_token_leaves_less_of_e2e(tmp_path: Path) -> None:
    """Replicas that were sized for an e2e with the old ttft would break it with a larger one."""
    made_once = made(tmp_path, "ttft=2,e2e=20")
    old = without_recipe(made_once)
    names = [w.id for w in old.workloads]
    assert promised(old, restated(stated_slos(old), "ttft=1", names)).workloads[0].ttft_slo_s == 1.0
    with pytest.raises(FleetgymError, match="a larger ttft of workload 'all' leaves less of its e2e=20"):
        promised(old, restated(stated_slos(old), "ttft=4", names))
    found = promised(made_once, restated(stated_slos(old), "ttft=4", names))
    assert found == made(tmp_path, "ttft=4,e2e=20")


def test_a_plan_says_its_other_slos(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On top, and among what was assumed."""
    out = told(["plan", str(folder / "day.json"), "--days", "3", "--slo", "ttft.p95=800ms"], capsys)
    assert out.startswith(
        "with other SLOs than the instance's; candidates and default penalties are those of an"
    )
    assert "SLOs as given, or by default: ttft.p95=0.8s,delay=20s" in out


@pytest.mark.slow
def test_why_not_this_gpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cheapest plan is the one that plan finds without the others, and what is in the way is said."""
    day, alone = str(folder / "day.json"), str(folder / "alone.json")
    assert main(["plan", day, "--days", "5", "--why-not", "each-gpu", "--out", alone]) == 0
    capsys.readouterr()
    facts = json.loads(Path(alone).read_text())
    rows = {row["why_not"]: row for row in facts["why_not"]}
    assert main(["plan", day, "--days", "5", "--without", "L40S", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fleet"] == rows["H100"]["fleet"]
    cheapest = min(rows.values(), key=lambda row: row["risk"]["cost_usd"]["mean"])
    assert cheapest["fleet"] == rows["the plan"]["fleet"]
    assert "no further replica fits the caps" in facts["in_the_way"]["L40S"]
    assert main(["plan", day, "--why-not", "H20"]) == 2
    assert "Import the trace again with a price of it" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gpu_without_a_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs more GPUs than there are."""
    offers = (Offer(gpu="H200", usd_per_gpu_h=4.0), Offer(gpu="L40S", usd_per_gpu_h=1.0, max_gpus=1))
    day = made(tmp_path, "ttft=5,delay=60", prices=offers, models=["Llama-3.1-70B"], scale=5.0)
    (tmp_path / "big.json").write_text(json.dumps(day.to_dict()))
    out = told(["plan", str(tmp_path / "big.json"), "--days", "3", "--why-not", "L40S"], capsys)
    assert "L40S: the smallest replica takes 2 GPUs, and at most 1 are to be had" in out


@pytest.mark.slow
def test_two_plans_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are held on the same days, and the difference has an error."""
    day, out = str(folder / "day.json"), folder / "both.json"
    instance = fleetgym.load_instance(day)
    fleet = {instance.configurations[0].id: 2}
    (folder / "mine.json").write_text(json.dumps(fleet))
    assert main(["plan", day, "--days", "6", "--beside", str(folder / "mine.json"), "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    plan, mine = json.loads(out.read_text())["beside"]
    assert mine["fleet"] == fleet
    held = fleet_risk(instance, [2] + [0] * (instance.num_configurations - 1), days=6).cost_usd
    assert mine["risk"]["cost_usd"]["mean"] == pytest.approx(held.mean())
    replicas = [plan["fleet"].get(c.id, 0) for c in instance.configurations]
    extra = held - fleet_risk(instance, replicas, days=6).cost_usd
    assert f"{abs(extra.mean()):,.2f} USD a day" in said
    assert "on the same 6 days" in said


@pytest.mark.slow
def test_the_table_of_kinds_is_of_the_days_of_the_risk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headline and table have one number for one fleet."""
    offers = (
        Offer(gpu="H100", usd_per_gpu_h=3.0),
        Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot"),
    )
    (tmp_path / "spot.json").write_text(
        json.dumps(made(tmp_path, "ttft=2,delay=20", prices=offers).to_dict())
    )
    assert main(["plan", str(tmp_path / "spot.json"), "--days", "7", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    kinds = facts["choice"]["best_of_kinds"]
    assert len(kinds) > 1
    (same,) = [kind for kind in kinds if kind["fleet"] == facts["fleet"]]
    assert same["cost_usd"] == facts["risk"]["cost_usd"]["mean"]
    assert same["miss_share"] == facts["risk"]["miss_share"]["mean"]


def test_layouts_stand_beside_plans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A study of an instance's traffic tells what plan holds, and why it differs."""
    day = str(folder / "day.json")
    assert main(["study", "layouts(most_pools=1)", "--instance", day, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["plan", day, "--days", "3", "--without", "L40S", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (row,) = [row for row in facts["rows"] if "H100" in row["gpu"]]
    assert row["plan_gpus"] == sum(pool["held"] for pool in plan["gpus"].values())
    assert "Buy by plan" in facts["note"]
    longest = study_settings(day)["context_tokens"]
    few, many = sorted(profile.slots(longest) for profile in own_gpus(day).values())
    assert f"{few} to {many} of {longest:,} tokens fit on a replica" in facts["note"]


def test_one_pool_alone() -> None:
    """A name of a pool means it; an unknown one is refused."""
    instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    assert sum(pool.cap_gpus > 0 for pool in only(instance, instance.pools[1].id).pools) == 1
    with pytest.raises(FleetgymError, match="unknown pool, region or GPU type"):
        only(instance, "nowhere")


def test_no_gpu_alone_is_cheaper_than_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    """Each GPU type alone is a candidate, so the screen does not contradict itself: the plan is the pool `cheap`."""
    words = ["plan", "fleet-v0/toy/two-pools", "--days", "5", "--why-not", "each-gpu"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = {row["why_not"]: row for row in facts["why_not"]}
    one, other = rows["the plan"], rows["cheap"]
    assert other["risk"]["cost_usd"]["mean"] == one["risk"]["cost_usd"]["mean"]
    assert all(row["choice"]["cost_usd"] >= one["choice"]["cost_usd"] for row in rows.values())


def test_a_warning_leaves_the_heading_of_a_table_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missed stands above, by plan; what the plans are for stands in the heading."""
    day = str(tmp_path / "day.json")
    scarce = made(tmp_path, "ttft=2,delay=20", prices=(Offer(gpu="L40S", usd_per_gpu_h=1.2, max_gpus=1),))
    (tmp_path / "day.json").write_text(json.dumps(scarce.to_dict()))
    out = told(["plan", day, "--days", "3", "--growth", "1x,2x"], capsys)
    assert "WARNING: 1x: " in out
    assert "% of the requests are missed on generated days" in out
    assert f"{scarce.id}: plans of agh as demand grows; 3 generated days" in out
