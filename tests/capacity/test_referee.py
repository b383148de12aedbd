"""The referee: requests, tables and replicas as the simulator gets them, and the replay where it is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from fleetgym.capacity.simulation import referee
from fleetgym.capacity.simulation.window import PlayedWindow, played_windows
from fleetgym.cli.parser import main
from fleetgym.cli.simulate_report import describe_simulation, plot_simulation, replay_facts
from fleetgym.families.generate import generate
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.scoring.statistics import Estimate

DEV = "fleet-v0/dev/ou-s-001"
EIGHT = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("H100"), precision="fp8")
MIXTURE = Deployment(model=catalog.model("Qwen3-30B-A3B"), gpu=catalog.gpu("H100"), precision="fp8")
needs_dynamo = pytest.mark.skipif(
    importlib.util.find_spec("dynamo") is None, reason="the extra referee is not installed"
)


@pytest.fixture(scope="module")
def played() -> list[PlayedWindow]:
    """Return an hour of an agent that scales."""
    return played_windows(DEV, "margin", 0, range(96, 108))


@pytest.mark.parametrize("deployment", [EIGHT, MIXTURE], ids=["dense", "mixture"])
@pytest.mark.parametrize("version", [1, 2])
def test_the_table_holds_the_times_of_plans(deployment: Deployment, version: int) -> None:
    """At and between the points of its grid, for one sequence and many, to a percent."""
    options = RooflineOptions(coefficients=version)
    table = referee.roofline_table(deployment, options, 400_000.0)
    for n, context in ((1, 700.0), (7, 2_345.0), (64, 1_000.0), (250, 900.0)):
        step = roofline.step_time(deployment, options, n)
        row = [np.interp(context, table.context, times) for times in table.step_s]
        found = np.interp(n * context, table.held_tokens, row)
        assert found == pytest.approx(step.per_output_token_s(n, context), rel=0.03)
    step = roofline.step_time(deployment, options)
    for h in (10.0, 777.0, 8_000.0):
        together = step.prompt_s + step.prefill_s * h + step.attention_s * h * h
        alone = step.first_base_s + step.first_token_s * h + step.first_attention_s * h * h
        prompt_s = np.interp(h, table.prompt_tokens, table.prompt_s)
        assert prompt_s == pytest.approx(together, rel=0.01)
        assert prompt_s + table.latency_s(np.array([h]))[0] == pytest.approx(max(alone, together), rel=0.01)


def test_requests_follow_the_instance(played: list[PlayedWindow]) -> None:
    """Rates, lengths and shares of the windows, by workload; equal seeds give equal requests."""
    drawn = referee._draw(played, np.random.default_rng(3))
    again = referee._draw(played, np.random.default_rng(3))
    np.testing.assert_array_equal(drawn.arrival_s, again.arrival_s)
    instance = played[0].instance
    assert np.all(np.diff(drawn.arrival_s) >= 0.0)
    np.testing.assert_array_equal(drawn.window, drawn.arrival_s // instance.window_s)
    for i, workload in enumerate(instance.workloads):
        mine = drawn.workload == i
        wanted = sum(w.conditions.rate_rps[i] * instance.window_s for w in played)
        assert mine.sum() == pytest.approx(wanted, abs=6.0 * wanted**0.5)
        cv2 = referee._lengths_cv2(instance, i)
        means = [
            np.average(
                [workload.input_tokens * w.conditions.input_scale[i] for w in played],
                weights=[w.conditions.rate_rps[i] for w in played],
            ),
            np.average(
                [workload.output_tokens * w.conditions.output_scale[i] for w in played],
                weights=[w.conditions.rate_rps[i] for w in played],
            ),
        ]
        for tokens, mean, spread in zip((drawn.prompt[mine], drawn.output[mine]), means, cv2, strict=True):
            assert tokens.mean() == pytest.approx(mean, abs=1.0 + 6.0 * mean * (spread / wanted) ** 0.5)
        sent = sum(w.conditions.rate_rps[i] * instance.window_s * w.result.routing[i] for w in played)
        got = np.bincount(drawn.configuration[mine] + 1, minlength=len(sent) + 1)[1:]
        np.testing.assert_array_less(np.abs(got - sent), 1.0 + 6.0 * sent**0.5)


def test_lengths_explain_the_service_times() -> None:
    """The variability of lengths is what the families drew with, from `service_cv2` of all configurations."""
    from fleetgym.families.draft import fits
    from fleetgym.families.plans import request_class
    from fleetgym.model.library import load_instance

    instance = load_instance(DEV)
    for i, workload in enumerate(instance.workloads):
        token = fits()["tokens"][request_class(workload.id).tokens]
        wanted = [token["input_cv2"], token["output_cv2"]]
        np.testing.assert_allclose(referee._lengths_cv2(instance, i), wanted, rtol=0.02)


def test_replicas_change_with_the_windows() -> None:
    """The simulator is told each window's engines when it begins, also where the first request comes late."""
    told = referee._Replicas(np.array([2, 3, 0, 5]), 300.0, 310.0)
    now, seen = told.initial_tick_ms(), []
    while len(seen) < 4:
        answer = told.on_tick({"now_ms": now})
        seen.append((now, answer["target_decode"]))
        now = answer["next_tick_ms"]
    assert seen == [(290_000.0, 1), (590_000.0, 5), (890_000.0, 5), (1_190_000.0, 5)]


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, before anything is played; the same for another version."""

    def lacking(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    for version in (lacking, lambda name: "1.5.0"):
        monkeypatch.setattr(importlib.metadata, "version", version)
        assert main(["simulate", DEV, "--engine", "dynamo"]) == 2
        err = capsys.readouterr().err
        assert "needs ai-dynamo-runtime 1.6.1" in err
        assert "pip install 'fleetgym[referee]'" in err


def test_prompts_in_a_cache_are_refused(played: list[PlayedWindow], monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay would compute whole prompts where the instance computes a part."""
    instance = played[0].instance
    step = roofline.step_time(EIGHT, RooflineOptions())
    slow = step.__class__(**{**vars(step), "first_token_s": 10.0})
    with pytest.raises(FleetgymError, match="in part in a prefix cache"):
        referee._check_uncached(instance, 0, slow)


def test_a_replay_is_told_and_drawn(played: list[PlayedWindow], tmp_path: Path) -> None:
    """Text, JSON and picture, also where a workload's requests never came to an end."""
    count = played[0].instance.num_workloads
    found = referee.Replay(
        windows=(97, 98),
        requests=np.full(count, 10),
        unserved=np.zeros(count),
        predicted=np.full(count, 0.01),
        replayed=Estimate(np.full(count, 0.02), np.full(count, 0.005)),
        ttft_p99_s=np.array([0.5, np.inf, 1.0, 2.0]),
        predicted_delay_s=np.ones(count),
        delay_s=np.array([1.0, np.nan, 1.0, 1.0]),
        replications=2,
        confidence=0.95,
        is_tight=True,
        replicas={"a": (1, 3)},
    )
    facts = replay_facts(played[1:3], found)
    text = describe_simulation(facts, "margin", 0)
    assert "windows 97 to 98: the fleet of margin" in text
    assert "2 replays with 40 requests counted" in text
    assert list(facts["workloads"].values())[1]["ttft_p99_s"] is None
    json.dumps(facts, allow_nan=False)
    plot_simulation(facts, str(tmp_path / "misses.png"))
    assert (tmp_path / "misses.png").stat().st_size > 1000


def test_what_the_engine_does_not_play_is_refused(
    played: list[PlayedWindow], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replicas of several parts, a law of slots, and a window that the day lacks: refused, not played otherwise."""
    instance = generate("multi", "s", 1001)
    several = [c for c, found in enumerate(instance.configurations) if len(found.uses) > 1]
    staged = [
        c
        for c, found in enumerate(instance.configurations)
        if len(found.uses) == 1 and found.uses[0].gpus > 2
    ]
    for c in (several[0], staged[0]):
        with pytest.raises(FleetgymError, match="replica of several parts"):
            referee.Engine.of(instance, c, None)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: referee.VERSION)
    assert main(["simulate", DEV, "--engine", "dynamo", "--law", "pareto"]) == 2
    assert "--law is of --engine slots" in capsys.readouterr().err
    assert main(["simulate", DEV, "--engine", "dynamo", "--window", "999"]) == 2
    assert "windows 0 to 287; got 999" in capsys.readouterr().err


@needs_dynamo
def test_a_lone_request_takes_what_the_table_says() -> None:
    """Time to the first token and to the last, without company: the simulator reads the table as it was meant."""
    options = RooflineOptions(coefficients=2)
    table = referee.roofline_table(EIGHT, options, 400_000.0)
    engine = referee.Engine(1, 6_000, 64, table)
    at = np.arange(20.0) * 30.0
    prompt, output = np.linspace(100.0, 6_000.0, 20).round(), np.full(20, 50.0)
    ones = np.zeros(20, dtype=int)
    drawn = referee.Requests(at, (at // 300.0).astype(int), ones, ones, prompt, output)
    ttft, delay = referee.run(engine, drawn, np.ones(20, dtype=bool), np.array([1, 1]), 300.0)
    step = roofline.step_time(EIGHT, options, 1)
    first = step.first_base_s + step.first_token_s * prompt + step.first_attention_s * prompt**2
    np.testing.assert_allclose(ttft, first, rtol=0.02)
    each = [step.per_output_token_s(1, h + 25.0) for h in prompt]
    np.testing.assert_allclose(delay - ttft, 49.0 * np.array(each), rtol=0.03)


@needs_dynamo
def test_an_hour_is_replayed_and_repeats(played: list[PlayedWindow]) -> None:
    """Same seed, same requests; nobody gets lost; the warm-up is not counted. Ties of replicas are Dynamo's own."""
    few = {"warmup": 1, "min_replications": 2, "max_replications": 2}
    first, second = (referee.replay(played[:2], seed=5, **few) for _ in range(2))
    np.testing.assert_array_equal(first.requests, second.requests)
    np.testing.assert_allclose(first.replayed.mean, second.replayed.mean, atol=0.02)
    np.testing.assert_allclose(first.delay_s, second.delay_s, rtol=0.05)
    assert first.windows == (97,)
    instance = played[0].instance
    wanted = 2 * sum(
        w.conditions.rate_rps * instance.window_s * (1.0 - w.result.unserved_share) for w in played[1:2]
    )
    np.testing.assert_allclose(first.requests, wanted, rtol=0.1)
