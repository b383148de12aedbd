"""Windows of real episodes through the simulator: costs, the command, and its picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import toys

import fleetgym
from fleetgym.capacity.simulation.window import (
    PlayedWindow,
    check_window,
    held_windows,
    played_windows,
    replaced_terms,
    window_fleet,
)
from fleetgym.cli.parser import main
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.lengths import LengthLaw
from fleetgym.model.window import window_model

DEV = "fleet-v0/dev/ou-s-001"
FEW = {"min_replications": 2, "max_replications": 2, "max_requests": 50_000}


@pytest.fixture(scope="module")
def played() -> PlayedWindow:
    """Return a window of static AGH."""
    return played_windows(DEV, "agh", 0, [96])[0]


def test_windows_are_those_of_the_episode(played: PlayedWindow) -> None:
    """The same cost as the environment's, window by window, in the order asked for."""
    from fleetgym.evaluation.jobs import Job, run_job

    costs = run_job(Job("agh", DEV, 0, 0)).cost_per_window_usd
    assert played.result.cost_usd == costs[96]
    later, earlier = played_windows(DEV, "agh", 0, [20, 3])
    assert (later.window, earlier.window) == (20, 3)
    assert (later.result.cost_usd, earlier.result.cost_usd) == (costs[20], costs[3])
    assert [w.result.cost_usd for w in played_windows(DEV, "agh", 0, range(288))] == list(costs)


def test_a_held_fleet_serves_as_the_agent_that_holds_it() -> None:
    """The nominal fleet's window is that of `hold`, start-ups and all."""
    (played,) = played_windows(DEV, "hold", 0, [96])
    (held,) = held_windows(DEV, np.array(played.instance.nominal_fleet), 0, [96])
    np.testing.assert_allclose(held.result.terms_usd, played.result.terms_usd, rtol=1e-12)
    with pytest.raises(FleetgymError, match="has windows 0 to 287; got 288"):
        held_windows(DEV, np.array(played.instance.nominal_fleet), 0, [288])


def test_the_plan_that_was_printed_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan --out` and `simulate --plan`: replicas have their GPUs' memory, and long requests are not dropped."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{k * 0.25:.2f},{60_000 if k % 125 == 0 else 1000},200" for k in range(3000)]
    Path("tail.csv").write_text("\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    Path("prices.csv").write_text("gpu,usd_per_gpu_h\nH100,3.0\n")
    words = [
        "import-trace",
        "tail.csv",
        "--models",
        "Llama-3.1-8B",
        "--prices",
        "prices.csv",
        "--slo",
        "ttft=5",
    ]
    assert main([*words, "--out", "day.json"]) == 0
    assert main(["plan", "day.json", "--days", "2", "--margin", "0.5", "--out", "plan.json"]) == 0
    capsys.readouterr()
    assert main(["simulate", "day.json", "--plan", "plan.json", "--replications", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plan = json.loads(Path("plan.json").read_text())
    assert {name: pool["replicas"] for name, pool in found["pools"].items()} == plan["fleet"]
    for workload in found["workloads"].values():
        assert workload["simulated"] <= workload["predicted"] + 0.02
    facts = Instance.from_dict(json.loads(Path("day.json").read_text())).facts
    assert facts is not None
    for configuration in json.loads(Path("day.json").read_text())["configurations"]:
        gpus = sum(use["gpus"] for use in configuration["uses"])
        assert facts.memory_gb(configuration["id"]) < 70.0 * gpus


@pytest.mark.parametrize("name", [DEV, "fleet-v0/dev/fastllm-4-4-5-001", "fleet-v0/dev/drop-s-001"])
def test_without_waits_the_cost_is_the_environments(name: str) -> None:
    """With the closed form's late requests and no wait in the delay, every cost term is the same."""
    for window in played_windows(name, "agh", 0, [0, 50]):
        late = window.result.miss_share - window.result.unserved_share
        terms = replaced_terms(window, late, np.zeros(len(late)))
        np.testing.assert_allclose(terms, window.result.terms_usd, rtol=1e-9, atol=1e-9)


def test_the_fleet_is_the_windows(played: PlayedWindow) -> None:
    """Servers, rates, and the load on each pool are what the routing gives it."""
    pools, workloads, shares, rows = window_fleet(played)
    names = [c.id for c in played.instance.configurations]
    for p, pool in enumerate(pools):
        c = names.index(pool.name)
        assert pool.servers == played.result.serving[c] * played.instance.configurations[c].max_concurrency
        rates = np.array([w.rate_rps for w in workloads])
        assert (rates * shares[:, p]).sum() == pytest.approx(
            (played.conditions.rate_rps * played.result.routing[:, c]).sum()
        )
    found = check_window(played, **FEW).simulation
    assert found is not None
    load = [
        (played.conditions.rate_rps * played.result.routing[:, c] * played.snapshot.service_s[:, c]).sum()
        / (played.result.serving[c] * played.instance.configurations[c].max_concurrency)
        for c in map(names.index, [pool.name for pool in pools])
    ]
    np.testing.assert_allclose(found.utilization.mean, load, rtol=0.05)
    assert len(rows) == len(workloads)


def test_an_mmc_window_is_predicted() -> None:
    """Where the closed form is exact, one workload with exponential service, prediction and simulation agree."""
    data = toys.one_pool_data()
    instance = Instance.from_dict(data)
    model = window_model(instance)
    conditions = Conditions.nominal(instance)
    serving = np.zeros(instance.num_configurations, dtype=np.int64)
    serving[0] = 1
    state = model.initial_state()
    result = model.step(state, instance.nominal_fleet, conditions, model.new_router())
    verdict = check_window(PlayedWindow(instance, 0, conditions, result), window_s=2000.0)
    gap = np.abs(verdict.predicted - verdict.simulated.mean)
    assert np.all(np.isnan(gap) | (gap <= verdict.simulated.half_width + 0.01))


@pytest.mark.parametrize("cv2", [0.5, 4.0])
@pytest.mark.parametrize(("slo_s", "load"), [(0.78, 0.6), (1.5, 0.85), (3.0, 0.9)])
def test_long_prompts_are_late_as_predicted(cv2: float, slo_s: float, load: float) -> None:
    """Prompts of half a second on average, waits or none: formula and count are within a third of each other."""
    law, rate_rps = LengthLaw.lognormal(cv2), load * 32 / 6.0
    long = toys.workload(
        "long",
        rate_rps,
        input_tokens=6000.0,
        ttft_slo_s=slo_s,
        late_usd=0.01,
        mean_delay_slo_s=100.0,
        input_law=law,
    )
    seconds = {
        "prefill_s": toys.affine(0.03, 0.5 / 6000.0),
        "service_s": toys.affine(6.0),
        "service_cv2": 1.0,
    }
    instance = toys.make_instance(
        [toys.pool("p", 2)],
        [toys.configuration("A", {"p": 1}, max_concurrency=16, max_replicas=2)],
        None,
        [long],
        {**seconds, "delay_s": toys.affine(6.0), "work_tflop": toys.affine(1e-3)},
        [2],
    )
    model, nominal = window_model(instance), Conditions.nominal(instance)
    result = model.step(model.initial_state(), instance.nominal_fleet, nominal, model.new_router())
    played = PlayedWindow(instance, 0, nominal, result)
    verdict = check_window(played, window_s=3000.0, absolute=0.0, relative=0.1, max_replications=24)
    formula, counted = verdict.predicted[0], verdict.simulated.mean[0]
    assert counted > 0.01
    assert 2 / 3 < formula / counted < 1.5
    if load < 0.7:  # hardly anybody waits
        assert played.snapshot.own_late[0, 0] == pytest.approx(counted, rel=0.15)


def test_an_empty_fleet_is_judged_without_a_simulation(played: PlayedWindow) -> None:
    """Everything is unserved, in both."""
    model = window_model(played.instance)
    empty = np.zeros(played.instance.num_configurations, dtype=np.int64)
    result = model.step(model.initial_state(), empty, played.conditions, model.new_router())
    still = PlayedWindow(played.instance, 0, played.conditions, result)
    if result.serving.any():
        pytest.skip("the nominal fleet drains in this window")
    verdict = check_window(still)
    assert verdict.simulation is None
    np.testing.assert_allclose(verdict.predicted, 1.0)
    np.testing.assert_allclose(verdict.simulated.mean, 1.0)


# -- the command


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Shares, intervals and counts are there and agree; the same call gives the same text."""
    call = ["simulate", DEV, "--window", "20", "--replications", "3", "--json"]
    assert main(call) == 0
    text = capsys.readouterr().out
    facts = json.loads(text)
    assert facts["unaccounted"] == 0
    assert facts["replications"] == 3
    assert sum(facts["requests"].values()) > 10_000
    for w in facts["workloads"].values():
        assert w["inside"] == (abs(w["predicted"] - w["simulated"]) <= w["half_width"])
        assert w["unserved"] <= w["predicted"] + 1e-12
    assert main(call) == 0
    assert capsys.readouterr().out == text


def test_the_command_as_text_and_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Tables line up; the picture is a PNG."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "misses.png"
    call = [
        "simulate",
        DEV,
        "--window",
        "20",
        "--replications",
        "2",
        "--law",
        "pareto",
        "--plot",
        str(picture),
    ]
    assert main(call) == 0
    out = capsys.readouterr().out
    table = out.split("requests that miss their SLO\n")[1].split("\n\n")[0].splitlines()
    assert len({len(line) for line in table}) == 1
    assert "pareto service times" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*call[:-1], str(tmp_path / "misses.docx")]) == 2
    assert "cannot draw" in capsys.readouterr().err


def test_wrong_calls_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Windows, scenarios and agents that do not exist."""
    for more, message in (
        (["--window", "999"], "windows 0 to 287"),
        (["--scenario", "9"], "stored scenarios"),
        (["--agent", "aghh"], "did you mean"),
    ):
        assert main(["simulate", DEV, *more]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["simulate", DEV, "--replications", "1"])
    assert "from 2 to" in capsys.readouterr().err


def test_a_failing_agent_is_reported(tmp_path: Path) -> None:
    """Nothing is simulated for it."""
    path = tmp_path / "bad.py"
    path.write_text(
        "class Bad:\n def reset(self, view, *, seed): pass\n def act(self, o, i): raise ValueError('no')\n"
    )
    with pytest.raises(FleetgymError, match="failed in window 0"):
        played_windows("fleet-v0/toy/two-pools", f"{path}:Bad")


def test_a_replica_holds_as_many_requests_as_the_plan_counts(made_of_long_prompts: Instance) -> None:
    """Long prompts with short answers stay briefly: more fit than their mean length says, and nobody waits."""
    instance = made_of_long_prompts
    planned = fleetgym.plan(instance, "agh")
    model, conditions = window_model(instance), Conditions.nominal(instance)
    state = model.initial_state()
    state.replicas[:, 0] = planned.fleet
    result = model.step(state, planned.fleet, conditions, model.new_router())
    played = PlayedWindow(instance, 0, conditions, result)
    pools, workloads, _, _ = window_fleet(played)
    for pool in pools:
        tokens = workloads[0].input_tokens + workloads[0].output_tokens
        assert pool.kv_tokens >= pool.slots * tokens
    verdict = check_window(played, min_replications=4, max_replications=4, max_requests=100_000)
    assert verdict.simulated.mean[0] == pytest.approx(verdict.predicted[0], abs=0.02)


@pytest.fixture(scope="module")
def made_of_long_prompts(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """Return an import of prompts of 1,000 to 60,000 tokens, of which the long ones have short answers."""
    rng = np.random.default_rng(0)
    prompts = np.minimum(60_000, 4_000 * rng.lognormal(0.0, 1.2, 4000)).astype(int) + 1_000
    answers = np.maximum(1, 1_500_000 // prompts)
    at = np.sort(rng.uniform(0.0, 3600.0, 4000))
    path = tmp_path_factory.mktemp("long") / "long.csv"
    rows = ["time,input_tokens,output_tokens"]
    rows += [f"{t:.3f},{i},{o}" for t, i, o in zip(at, prompts, answers, strict=True)]
    path.write_text("\n".join(rows) + "\n")
    return fleetgym.import_trace(
        path, gpus=["L40S"], models=["Llama-3.1-8B"], slo="ttft=30", by="one", scale=3.0
    ).instance
