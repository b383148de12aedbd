"""Objectives of time per output token and end-to-end latency: read, bounded by concurrency, kept when simulated."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from sample_traces import requests, write_azure
from steps_twin import token_times

from fleetgym.capacity.simulation.fleet import Pool, TokenTime, Workload
from fleetgym.capacity.simulation.run import simulate
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.importing import ImportedTrace
from fleetgym.capacity.traces.objectives import Slo, parse_slo, slo_words, slos_for
from fleetgym.cli.parser import main
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.limits import Lengths, e2e_s, tpot_s
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests
from fleetgym.hardware.performance.held import HeldCounter

SMALL = {"models": ["Llama-3.1-8B"], "gpus": ["L40S", "H100"]}


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an hour of requests in Azure's layout."""
    return write_azure(tmp_path_factory.mktemp("traces") / "hour.csv")


# -- words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ttft.p95=500ms", Slo(ttft=0.5, ttft_percentile=95.0)),
        ("ttft_p99.9=2s", Slo(ttft=2.0, ttft_percentile=99.9)),
        ("tpot=50ms,e2e.p90=1.5min", Slo(tpot=0.05, e2e=90.0, e2e_percentile=90.0)),
        ("tpot.mean=0.05", Slo(tpot=0.05)),
        ("tpot.median=40 ms", Slo(tpot=0.04, tpot_percentile=50.0)),
        ("TTFT=1.5", Slo(ttft=1.5)),
        ("ttft=500s", Slo(ttft=500.0)),
        ("delay=2h", Slo(delay=7200.0)),
        ("error=5%", Slo(error=0.05)),
        ("ttft=20000us", Slo(ttft=0.02)),
    ],
)
def test_words(words: str, expected: Slo) -> None:
    """Units and percentiles mean what they say."""
    found = parse_slo(words)
    for field in dataclasses.fields(Slo):
        assert getattr(found, field.name) == pytest.approx(getattr(expected, field.name)), field.name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "ttft=500",
            "ttft=500 is 500 seconds, more than the usual 60; write ttft=500s if seconds are meant, or ttft=5",
        ),
        ("tpot=50", "write tpot=50s if seconds are meant, or tpot=50ms"),
        ("e2e.p95=20000", "write e2e.p95=20000s"),
        ("delay=15000", "write delay=15000s"),
        ("itl=20ms", "itl cannot be expressed: the model has no single gaps between tokens"),
        ("itl.p99=20ms", "itl.p99 cannot be expressed"),
        ("throughput=1000", "the model bounds times, not rates"),
        ("goodput=0.9", "goodput cannot be expressed"),
        ("ttft.mean=1", "the model has the share of late first tokens, not their mean"),
        ("delay.p95=20", "give e2e with a percentile"),
        ("error.p95=0.1", "it bounds a mean"),
        ("ttft=1,ttft.p99=2", "the SLO ttft is given twice, as ttft and ttft.p99"),
        ("ttft.p100=1", "the percentile of ttft.p100: expected a number from 1 to 99.99"),
        ("ttft.p0.95=1", "from 1 to 99.99, got 0.95"),
        ("e2e=1s", "expected more than ttft (2 s), which is a part of it"),
        ("ttft=5weeks", "ttft: expected a number from 1e-6 to 1e7 s, got '5weeks'"),
        ("ttft=-5ms", "got -5"),
        ("error=500%", "from 0 to 100"),
        ("tpott=1", "did you mean 'tpot'"),
    ],
)
def test_words_that_are_refused(words: str, says: str) -> None:
    """What cannot be meant, or not be expressed, is told by its name, with what comes nearest."""
    with pytest.raises(FleetgymError) as caught:
        parse_slo(words)
    assert says in str(caught.value)


def test_files(tmp_path: Path) -> None:
    """Columns and keys are named as in words; numbers are held to be seconds, and asked about as there."""
    (tmp_path / "s.csv").write_text("workload,ttft.p95,tpot\nchat,500ms,0.05\n*,2,\n")
    (tmp_path / "s.json").write_text('{"chat": {"ttft.p95": "500ms", "tpot": 0.05}, "*": {"ttft.p95": 2}}')
    expected = (Slo(ttft=0.5, ttft_percentile=95, tpot=0.05), Slo(ttft=2, ttft_percentile=95))
    for name in ("s.csv", "s.json"):
        assert slos_for(str(tmp_path / name), ("chat", "code")) == expected
    (tmp_path / "s.json").write_text('{"chat": {"ttft": 500}}')
    with pytest.raises(DataError, match="write ttft=500s") as caught:
        slos_for(str(tmp_path / "s.json"), ("chat",))
    assert caught.value.path == "$.chat"
    (tmp_path / "s.csv").write_text("workload,itl\nchat,1\n")
    with pytest.raises(DataError, match="itl cannot be expressed") as caught:
        slos_for(str(tmp_path / "s.csv"), ("chat",))
    assert caught.value.path == "line 1"


def test_an_instance_says_its_slos(hour: Path) -> None:
    """Words say it for people, and say it once where all workloads have one SLO; facts say it for programs."""
    slos = [
        Slo(ttft=0.5, ttft_percentile=95, tpot=0.05),
        Slo(e2e=30, e2e_percentile=99.5),
        Slo(delay=12, error=0.01),
    ]
    for slo in slos:
        assert parse_slo(slo.words) == slo
    assert slo_words(slos, ["a-b", "c:d", "e"]).endswith("; ttft=2s,delay=12s,error=0.01 of e")
    assert slo_words(slos[:1] * 3, ["a-b", "c:d", "e"]).endswith("error=0.05 of every workload")
    made = import_trace(hour, slo="ttft.p95=500ms,tpot=50ms", **SMALL)
    assert made.instance.facts is not None
    assert made.instance.facts.slos[0].ttft_percentile == 95.0


# -- bounds


def lengths_of(inputs: np.ndarray, outputs: np.ndarray) -> Lengths:
    """Return lengths as they are measured in a trace."""
    values, counts = np.unique(outputs, return_counts=True)
    return Lengths(
        input_tokens=float(inputs.mean()),
        output_tokens=float(outputs.mean()),
        output_values=values.astype(float),
        output_shares=counts / counts.sum(),
    )


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "tp", "tokens", "cv2", "slots"),
    [
        ("Llama-3.1-8B", "H100", "fp8", 1, (1000, 200), 0.5, 48),
        ("Llama-3.1-8B", "L40S", "fp16", 1, (2000, 100), 1.0, 16),
        ("Llama-3.1-70B", "H100", "fp8", 4, (500, 300), 0.9, 48),
        ("Llama-3.1-8B", "H100", "fp8", 1, (4000, 20), 1.0, 24),
    ],
)
def test_the_bound_against_a_replica_step_by_step(
    model: str, gpu: str, precision: str, tp: int, tokens: tuple[int, int], cv2: float, slots: int
) -> None:
    """A replica that is always full has the bound, or up to an eighth less; a calm one less than that."""
    deployment = Deployment(
        model=catalog.model(model), gpu=catalog.gpu(gpu), precision=precision, tensor_parallel=tp
    )
    rng, count = np.random.default_rng(slots + tp), 4000
    inputs = np.ceil(rng.gamma(1 / cv2, tokens[0] * cv2, count))
    outputs = np.ceil(rng.gamma(1 / cv2, tokens[1] * cv2, count)).astype(int)
    lengths = lengths_of(inputs, outputs)
    options = roofline.RooflineOptions(max_num_seqs=slots)
    pair = roofline.pair(
        deployment, Requests(input_tokens=inputs.mean(), output_tokens=outputs.mean(), error=0.04), options
    )
    assert roofline.capacity(deployment, options).max_concurrency == slots
    step = roofline.step_time(deployment, options)
    middle = slice(count // 10, 9 * count // 10)  # without the time in which the replica fills and empties
    _, full = token_times(step, np.zeros(count), inputs, outputs, slots)
    full = full[middle][~np.isnan(full[middle])]
    assert 0.97 < tpot_s(pair, lengths, slots) / full.mean() < 1.125
    for percentile in (50.0, 90.0, 95.0):
        bound = tpot_s(pair, lengths, slots, percentile)
        assert 0.95 < bound / np.quantile(full, percentile / 100.0) < 1.125
    half_rps = 0.5 * slots / pair.service_s.at(inputs.mean(), outputs.mean())
    arrivals = np.cumsum(rng.exponential(1.0 / half_rps, count))
    _, calm = token_times(step, arrivals, inputs, outputs, slots)
    calm = calm[~np.isnan(calm)]
    assert calm.mean() < tpot_s(pair, lengths, slots)
    assert np.quantile(calm, 0.95) < tpot_s(pair, lengths, slots, 95.0)


@pytest.mark.parametrize(("rare", "long", "gpu"), [(0.1, 20_000, "H100"), (0.04, 40_000, "H200")])
def test_workloads_that_share_a_replica(rare: float, long: int, gpu: str) -> None:
    """Step by step: prompts of others are those of the mixture, so a rare long request is not charged for its like."""
    deployment = Deployment(
        model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu(gpu), precision="fp8", tensor_parallel=1
    )
    rng, count, slots = np.random.default_rng(5), 9000, 24
    is_long = rng.uniform(size=count) < rare
    inputs = np.where(is_long, float(long), 500.0)
    outputs = np.ceil(rng.gamma(2.0, 100.0, count)).astype(int)
    counter = HeldCounter(2)
    counter.add(is_long.astype(np.int64), inputs, outputs.astype(float), inputs)
    options = roofline.RooflineOptions(
        coefficients=2, max_num_seqs=slots, context_limit=long + 2000, held=counter.total()
    )
    context = options.held.context(deployment.model)
    step = roofline.step_time(deployment, options, slots)
    _, found = token_times(step, np.zeros(count), inputs, outputs, slots)
    middle = slice(count // 10, 9 * count // 10)
    for which in (False, True):
        some = is_long[middle] == which
        requests = Requests(
            input_tokens=float(long if which else 500), output_tokens=200.0, error=0.04, input_cv2=0.0
        )
        pair = roofline.pair(deployment, requests, options, context_tokens=context, at_once=slots)
        lengths = lengths_of(inputs[is_long == which], outputs[is_long == which])
        per_token = np.nanmean(np.average(found[middle][some], weights=outputs[middle][some]))
        assert 0.88 < tpot_s(pair, lengths, slots) / per_token < 1.15
        assert pair.others_s == pytest.approx(
            (slots - 1) * (1.0 / 200.0) * _mean_prompt_s(step, inputs), rel=0.05
        )


def _mean_prompt_s(step: roofline.StepTime, inputs: np.ndarray) -> float:
    return float((step.prompt_s + step.prefill_s * inputs + step.attention_s * inputs**2).mean())


def pairs_of(made: ImportedTrace):
    """Yield workload, configuration, mean times per output token and in service, from the instance's numbers."""
    instance, found = made.instance, made.instance.performance
    for i, workload in enumerate(instance.workloads):
        for c, configuration in enumerate(instance.configurations):
            if found.compatible[i, c]:
                service, first = (
                    part.base[i, c]
                    + part.per_input_token[i, c] * workload.input_tokens
                    + part.per_output_token[i, c] * workload.output_tokens
                    for part in (found.service_s, found.prefill_s)
                )
                yield workload, configuration, (service - first) / workload.output_tokens, service


@pytest.mark.parametrize("tpot", [0.02, 0.04])
def test_every_configuration_keeps_the_bound(tpot: float, hour: Path) -> None:
    """None has more requests at once than its tokens have time for, and hardly fewer; a percentile asks for fewer."""
    made = import_trace(hour, slo={"*": Slo(ttft=2, tpot=tpot)}, **SMALL)
    free = import_trace(hour, slo={"*": Slo(ttft=2)}, **SMALL)
    assert max(each for _, _, each, _ in pairs_of(free)) > tpot
    slots = {c.id: c.max_concurrency for c in free.instance.configurations}
    tight = 0
    for workload, configuration, each, _ in pairs_of(made):
        assert each <= tpot * (1 + 1e-5), (workload.id, configuration.id)
        if ":n" in configuration.id:
            assert configuration.max_concurrency < slots.get(configuration.id.partition(":n")[0], 10**6)
            tight += each > 0.9 * tpot
    assert tight
    percentile = import_trace(hour, slo={"*": Slo(ttft=2, tpot=tpot, tpot_percentile=95)}, **SMALL)
    mean, tail = (
        {(w.id, c.id.partition(":n")[0]): c.max_concurrency for w, c, _, _ in pairs_of(case)}
        for case in (made, percentile)
    )
    both = mean.keys() & tail.keys()
    assert all(tail[key] <= mean[key] for key in both)
    assert any(tail[key] < mean[key] for key in both)


def test_end_to_end_latency_in_the_simulator(hour: Path) -> None:
    """Of simulated requests no more break e2e.p95 than 5 % and those whose first token is late."""
    bound = 12.0
    slo = Slo(ttft=1.0, e2e=bound, e2e_percentile=95.0)
    made = import_trace(hour, by="one", slo={"*": slo}, models=["Llama-3.1-8B"], gpus=["L40S"])
    instance, found = made.instance, made.instance.performance
    _, inputs, outputs = requests(1, 1.0)
    limits = [k for k, c in enumerate(instance.configurations) if ":n" in c.id]
    assert limits
    late, broken = [], []
    for c in limits:
        service, prefill = (
            TokenTime(*(part[0, c] for part in (kind.base, kind.per_input_token, kind.per_output_token)))
            for kind in (found.service_s, found.prefill_s)
        )
        slots = instance.configurations[c].max_concurrency
        mean_s = float(service.seconds(inputs, outputs, 1).mean())
        pool = Pool(replicas=2, slots=slots)
        for whole, shares, slo_s in ((prefill, late, slo.ttft), (service, broken, bound)):
            load = Workload(
                arrivals=0.9 * 2 * slots / mean_s,
                service_s=service,
                service_cv2=0.0,
                prefill_s=whole,  # with all of the service, a "first token" is the last one
                input_tokens=inputs,
                output_tokens=outputs,
                ttft_slo_s=slo_s,
            )
            shares.append(simulate(pool, load, window_s=600.0, max_replications=16).miss_share.mean[0])
    assert all(b <= 0.05 + f for f, b in zip(late, broken, strict=True)), (late, broken)
    assert max(broken) > 0.005  # the bound is not idle


def test_end_to_end_latency_is_time_to_first_token_and_the_rest() -> None:
    """By hand: 1 s, and 100 tokens, or the longest 150, of 20 ms each."""
    pair = roofline.PairPerformance(
        delay_s=roofline.Coefficients(),
        service_s=roofline.Coefficients(0.5, 0.001, 0.02),
        prefill_s=roofline.Coefficients(0.5, 0.001, 0.0),
        work_tflop=roofline.Coefficients(),
        error=0.0,
    )
    lengths = Lengths(
        input_tokens=1000.0,
        output_tokens=100.0,
        output_values=np.array([50.0, 150.0]),
        output_shares=np.array([0.5, 0.5]),
    )
    assert tpot_s(pair, lengths, 8) == pytest.approx(0.02)
    assert tpot_s(pair, lengths, 8, 99.0) == pytest.approx(0.02)  # nobody's prompt is in the way
    assert e2e_s(pair, lengths, 8, 1.0) == pytest.approx(3.0)
    assert e2e_s(pair, lengths, 8, 1.0, 95.0) == pytest.approx(4.0)
    assert e2e_s(pair, lengths, 8, 1.0, 50.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("slo", "says"),
    [
        ("tpot=1ms", r"SLO tpot=0.001 of workload 'short' is out of reach: a request alone has 0.00\d+ s"),
        ("tpot.p99=1ms", "SLO tpot.p99=0.001"),
        ("ttft=1,e2e=1.05s", r"SLO e2e=1.05 .* alone, its first token just in time \(ttft=1\), has 1.\d+ s"),
    ],
)
def test_out_of_reach(slo: str, says: str, hour: Path) -> None:
    """A bound that a request alone breaks is refused, with the best that can be had."""
    with pytest.raises(FleetgymError, match=says):
        import_trace(hour, slo=slo, **SMALL)


def test_mean_delay_follows_end_to_end_latency(hour: Path) -> None:
    """Who bounds the whole has no other bound on the mean, unless it is given."""
    made = import_trace(hour, slo="ttft=1,e2e=12", **SMALL)
    assert {w.mean_delay_slo_s for w in made.instance.workloads} == {12.0}
    assert all(service <= 12.0 for _, _, _, service in pairs_of(made))
    made = import_trace(hour, slo="ttft=1,e2e=12,delay=10", **SMALL)
    assert {w.mean_delay_slo_s for w in made.instance.workloads} == {10.0}


def test_a_workload_without_a_bound_keeps_full_replicas(hour: Path) -> None:
    """Only who is in a hurry has fewer requests at once."""
    slos = {"short": Slo(ttft=2, tpot=0.02), "*": Slo(ttft=2)}
    made = import_trace(hour, slo=slos, **SMALL)
    free = {c.id for c in import_trace(hour, slo="ttft=2", **SMALL).instance.configurations}
    served = {w.id: {c.id for v, c, _, _ in pairs_of(made) if v.id == w.id} for w in made.instance.workloads}
    assert free <= served["long"]
    assert not (served["short"] & {c for c in free if "l40s" in c and "fp16" in c})


# -- the plan


def test_a_plan_tells_whether_a_percentile_is_kept(
    hour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The share of late requests stands beside the share that may be."""
    made = import_trace(hour, by="one", slo="ttft.p95=1,delay=30", **SMALL)
    made.write(tmp_path / "x.json")
    assert main(["plan", str(tmp_path / "x.json"), "--days", "0", "--json"]) == 0
    route = json.loads(capsys.readouterr().out)["routing"]["all"]
    assert route["slo"] == "ttft.p95=1s,delay=30s,error=0.05"
    assert route["missed_at_most"] == pytest.approx(0.05)
    assert main(["plan", str(tmp_path / "x.json"), "--days", "0"]) == 0
    text = f"all: {100 * route['miss']:.2f} % unserved or late, ttft.p95 asks for at most 5 %: kept"
    assert text in capsys.readouterr().out
    hurried = import_trace(hour, by="one", slo="ttft=1,tpot=20ms", models=["Llama-3.1-8B"], gpus=["L40S"])
    hurried.write(tmp_path / "y.json")
    assert main(["plan", str(tmp_path / "y.json"), "--days", "0", "--json"]) == 0
    (limit, *_) = {int(name.rpartition(":n")[2]) for name in json.loads(capsys.readouterr().out)["fleet"]}
    assert main(["plan", str(tmp_path / "y.json"), "--days", "0"]) == 0
    assert f"#1: for its SLOs, at most {limit} requests at once" in capsys.readouterr().out
    assert main(["plan", str(tmp_path / "x.json"), "--days", "0", "--margin", "-0.9"]) == 0
    out = capsys.readouterr().out
    assert "all: 100.00 % unserved or late, ttft.p95 asks for at most 5 %: BROKEN" in out
