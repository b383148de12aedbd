"""Models, GPUs, measurements and nodes of one's own, and what requests hold of the memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from model_configs import DEEPSEEK_V3, GEMMA2_9B, LLAMA_70B
from sample_traces import write_azure

from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.candidates import ENGINE
from fleetgym.capacity.traces.own_hardware import Measurement, fit_step, read_own
from fleetgym.capacity.traces.prices import Offer
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.model_config import read_model
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.held import DEVIATIONS, HeldCounter, held_tokens

LOOSE = {"slo": "ttft=10,delay=120,error=0.3", "by": "one", "scenarios": 1}


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace of one hour."""
    return write_azure(tmp_path_factory.mktemp("own") / "hour.csv", per_second=20.0)


def file(folder: Path, name: str, content: object) -> Path:
    """Write text, or an object as JSON."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# -- what requests hold


def test_held_tokens_against_a_walk_through_every_token() -> None:
    """Mean and spread are those of all moments at which a sequence is in service."""
    rng = np.random.default_rng(5)
    inputs, outputs = rng.integers(1, 4000, 300), rng.integers(1, 600, 300)
    inputs[:3] = 60_000
    model, prompt_s, token_s = catalog.model("Llama-3.1-8B"), 1e-4, 2e-2
    moments = [
        (t, w)
        for a, b in zip(inputs, outputs, strict=True)
        for t, w in ((a, prompt_s * a), *((a + k + 0.5, token_s) for k in range(b)))
    ]
    tokens, weight = (np.array(column, dtype=float) for column in zip(*moments, strict=True))
    mean = (tokens @ weight) / weight.sum()
    spread = np.sqrt((tokens - mean) ** 2 @ weight / weight.sum())
    held = held_tokens(inputs.astype(float), outputs.astype(float))
    found = held.moments(model, prompt_s, token_s)
    assert found[0] / model.kv_bytes_per_token == pytest.approx(mean, rel=0.01)
    assert found[1] / model.kv_bytes_per_token == pytest.approx(spread, rel=0.02)


def test_sliding_windows_bound_what_is_held(tmp_path: Path) -> None:
    """Of a long sequence, layers with a window hold its last tokens."""
    gemma = read_model(file(tmp_path, "config.json", GEMMA2_9B), name="g").model
    held = held_tokens(np.array([8000.0]), np.array([2.0]))
    mean, _, _ = held.moments(gemma, 0.0, 1.0)
    assert mean == pytest.approx(21 * 8 * 256 * 4 * (8000 + 4096), rel=0.02)
    assert held.context(gemma) == pytest.approx((8000 + 4096) / 2, rel=0.02)


@pytest.mark.parametrize("tail", [0.0, 0.01])
def test_concurrency_is_the_most_that_fits(tail: float) -> None:
    """One more sequence would not fit with two standard deviations; a rare long one does not take all slots."""
    rng = np.random.default_rng(3)
    inputs = np.where(rng.uniform(size=5000) < tail, 60_000.0, 2000.0)
    held = held_tokens(inputs, np.full(5000, 400.0))
    deployment = Deployment(
        model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("L40S"), precision="fp16", tensor_parallel=1
    )
    options = roofline.RooflineOptions(
        context_limit=int(inputs.max()) + 400, held=held, max_num_seqs=10_000, coefficients=2
    )
    found = roofline.capacity(deployment, options)
    memory = roofline.kv_capacity_gb(deployment, options) * 1e9

    def needed(n: int) -> float:
        step = roofline.step_time(deployment, options, n)
        token_s = step.per_output_token_s(n, held.context(deployment.model))
        prompts = 1.0 / 400.0  # for each token that is generated
        prompt_s = step.prompt_s + step.prefill_s * inputs.mean() + step.attention_s * (inputs**2).mean()
        token_s += (n - 1) * prompts * prompt_s
        mean, spread, _ = held.moments(deployment.model, step.first_token_s, token_s)
        return n * mean + DEVIATIONS * n**0.5 * spread

    assert needed(found.max_concurrency) <= memory < needed(found.max_concurrency + 1)
    whole = float(inputs.mean()) + 400.0
    assert found.kv_capacity_gb >= found.max_concurrency * found.kv_gb_per_token * whole * 0.99
    by_longest = int(memory / (131072.0 * (inputs.max() + 400)))
    assert found.max_concurrency > by_longest * (3 if tail else 0.8)


def test_options_are_keys() -> None:
    """Assumptions can be looked up by, with what is held and measured, too."""
    held = held_tokens(np.array([10.0]), np.array([5.0]))
    assert len({roofline.RooflineOptions(held=held), roofline.RooflineOptions(held=held)}) == 1


def test_workloads_are_counted_apart() -> None:
    """The mixture holds what its parts hold, weighted by rate."""
    counter = HeldCounter(2)
    counter.add(np.array([0, 1, 1]), np.array([100.0, 900.0, 900.0]), np.full(3, 10.0), np.full(3, 50.0))
    held = counter.total(np.array([3.0, 1.0]))
    model = catalog.model("Llama-3.1-8B")
    mean, _, whole = held.moments(model, 0.0, 1.0)
    assert mean / model.kv_bytes_per_token == pytest.approx((3 * 105 + 905) / 4, rel=0.02)
    assert whole == pytest.approx((3 * 110 + 910) / 4)
    assert held.of(np.array([False, True])).longest.tolist() == [910.0]


def test_a_context_leaves_out_what_is_longer(tmp_path: Path) -> None:
    """With a limit, longer requests are left out and told; without one, all that a candidate holds are served."""
    rows = [f"{k * 0.25:.2f},{60_000 if k % 125 == 0 else 1000},200" for k in range(3000)]
    trace = file(tmp_path, "tail.csv", "\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    options = {**LOOSE, "models": ["Llama-3.1-8B"], "prices": [Offer(gpu="H100", usd_per_gpu_h=3.0)]}
    assert import_trace(trace, **options).context_limit == 60_200
    with pytest.raises(DataError, match=r"0\.8% of the requests, with 28\.8% of all tokens"):
        import_trace(trace, context=8192, **options)
    cut = import_trace(trace, context=8192, leave_out_at_most=0.5, **options)
    assert cut.context_limit == 1200
    assert any("24 (0.8% of requests, 28.8% of tokens)" in note for note in cut.notes)


def test_a_model_serves_what_it_holds(tmp_path: Path) -> None:
    """One with a short context does not serve the workload with longer requests."""
    rows = [f"{k * 0.25:.2f},{60_000 if k % 2 else 1000},200" for k in range(3000)]
    trace = file(tmp_path, "two.csv", "\n".join(["time,input_tokens,output_tokens", *rows]) + "\n")
    made = import_trace(
        trace,
        slo="ttft=60,delay=300,error=0.3",
        models=["Llama-3.1-8B", "Qwen3-32B"],
        prices=[Offer(gpu="H200", usd_per_gpu_h=3.0)],
        edges=[5000],
        by="length",
        scenarios=1,
    ).instance
    serves = made.performance.compatible
    qwen = [c.model == "Qwen3-32B" for c in made.configurations]
    assert not serves[1][qwen].any()
    assert serves[0][qwen].any()


# -- nodes


def test_whole_nodes_are_rented(hour: Path) -> None:
    """A node filled with k replicas serves what k replicas serve, and costs what its GPUs cost."""
    options = {**LOOSE, "models": ["Llama-3.1-8B"]}
    single = import_trace(hour, prices=[Offer(gpu="H100", usd_per_gpu_h=3.0)], **options).instance
    nodes = import_trace(
        hour, prices=[Offer(gpu="H100", usd_per_gpu_h=3.0, gpus_per_node=8)], **options
    ).instance
    assert nodes.pools[0].gpus_per_node == 8
    assert nodes.pools[0].cap_gpus % 8 == 0
    for alone, filled in zip(single.configurations, nodes.configurations, strict=True):
        several = 8 // alone.tensor_parallel
        assert filled.uses[0].gpus == 8
        assert filled.max_concurrency == several * alone.max_concurrency
        assert filled.compute_tflops == pytest.approx(several * alone.compute_tflops, rel=1e-5)
        assert filled.kv_capacity_gb == pytest.approx(several * alone.kv_capacity_gb, rel=1e-5)
        assert filled.id.endswith(f"x{several}")
    np.testing.assert_array_equal(
        single.performance.service_s.per_output_token, nodes.performance.service_s.per_output_token
    )
    np.testing.assert_allclose(nodes.rental_usd_per_h[0], 24.0)


def test_a_replica_may_span_nodes(hour: Path, tmp_path: Path) -> None:
    """DeepSeek-R1 needs two nodes of 8 GPUs with 80 GB: TP within a node, PP across."""
    own = read_own([f"DeepSeek-R1-own={file(tmp_path, 'config.json', DEEPSEEK_V3)}"])
    made = import_trace(
        hour, own=own, prices=[Offer(gpu="H100", usd_per_gpu_h=3.0, gpus_per_node=8)], **LOOSE
    ).instance
    (one,) = made.configurations
    assert (one.tensor_parallel, one.pipeline_parallel, one.uses[0].gpus) == (8, 2, 16)
    assert one.model == "DeepSeek-R1-own"
    assert made.tiers[1].precision == "fp8"
    assert one.uses[0].tier.endswith("-fp8")
    assert any(made.nominal_fleet)


def test_what_fits_nowhere_is_refused(hour: Path) -> None:
    """Not even on the eight nodes that a replica may span."""
    with pytest.raises(FleetgymError, match="none of DeepSeek-V4-Pro fits T4"):
        import_trace(
            hour, prices=[Offer(gpu="T4", usd_per_gpu_h=0.3)], **{**LOOSE, "models": ["DeepSeek-V4-Pro"]}
        )


def test_limits_below_a_node_are_refused(hour: Path) -> None:
    """Four GPUs are no node of eight."""
    offer = Offer(gpu="H100", usd_per_gpu_h=3.0, gpus_per_node=8, max_gpus=4)
    with pytest.raises(FleetgymError, match="no whole node of 8"):
        import_trace(hour, prices=[offer], **{**LOOSE, "models": ["Llama-3.1-8B"]})


# -- GPUs and models from files

GPU = {
    "name": "Mine",
    "memory_gb": 128,
    "bandwidth_gb_per_s": 4000,
    "fp16_tflops": 1200,
    "usd_per_gpu_h": 2.5,
}


def test_gpus_from_csv_and_json_are_the_same(tmp_path: Path) -> None:
    """Both say a type of GPU, with a price an offer; one that the catalogue has is replaced, and told."""
    table = file(tmp_path, "gpus.csv", f"{','.join(GPU)}\n{','.join(map(str, GPU.values()))}\n")
    found = [read_own(gpu_files=[path]) for path in (table, file(tmp_path, "gpus.json", [GPU]))]
    assert found[0].offers == found[1].offers == (Offer(gpu="Mine", usd_per_gpu_h=2.5),)
    assert found[0].gpus[0].memory_gb == 128
    assert "Mine" not in catalog.gpu_names()
    with found[0].known():
        assert catalog.gpu_named("mine") == ("Mine", 1)
    replaced = read_own(gpu_files=[file(tmp_path, "h.json", {**GPU, "name": "H100"})])
    assert "not as in the catalogue" in replaced.notes[0]


def test_a_plan_on_a_gpu_of_ones_own(hour: Path, tmp_path: Path) -> None:
    """Without a price list it is the only one; with --gpus others join it."""
    own = read_own(gpu_files=[file(tmp_path, "gpu.json", GPU)])
    options = {**LOOSE, "models": ["Llama-3.1-8B"], "own": own}
    assert [p.gpu_type for p in import_trace(hour, **options).instance.pools] == ["Mine"]
    both = import_trace(hour, gpus=["H100", "Mine"], **options).instance
    assert [p.gpu_type for p in both.pools] == ["Mine", "H100"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("g.json", {**GPU, "memory_gb": "big"}, r"\$\.memory_gb: expected a number"),
        ("g.json", [GPU, {**GPU, "name": "B", "tdp_w": -1}], r"\$\[1\]\.tdp_w: expected a number from 1"),
        ("g.json", [], "at least one"),
        ("g.json", {**GPU, "memory": 3}, "unknown key 'memory'"),
        ("g.json", [GPU, GPU], "described twice"),
        ("g.csv", "name,memory_gb\nA,80\n", "no column 'bandwidth_gb_per_s'"),
        (
            "g.csv",
            "name,memory_gb,bandwidth_gb_per_s,fp16_tflops\nA,80,2000,\n",
            "line 2: missing key 'fp16_tflops'",
        ),
    ],
)
def test_faults_in_gpu_files(name: str, content: object, says: str, tmp_path: Path) -> None:
    """File, place, and what would be valid."""
    with pytest.raises(DataError, match=says) as caught:
        read_own(gpu_files=[file(tmp_path, name, content)])
    assert name in str(caught.value)


def test_models_of_ones_own_are_the_candidates(hour: Path, tmp_path: Path) -> None:
    """Alone, or beside those that are named; what the file does not say is told."""
    own = read_own([f"mine={file(tmp_path, 'config.json', LLAMA_70B)}"])
    prices = [Offer(gpu="H100", usd_per_gpu_h=3.0)]
    made = import_trace(hour, own=own, prices=prices, **LOOSE)
    assert {c.model for c in made.instance.configurations} == {"mine"}
    assert any("70.55 B parameters, 327,680 bytes" in note for note in made.notes)
    both = import_trace(hour, own=own, prices=prices, models=["Llama-3.1-8B"], **LOOSE)
    assert {c.model for c in both.instance.configurations} == {"mine", "Llama-3.1-8B"}


# -- measurements


def test_a_fit_finds_the_step_that_made_the_runs() -> None:
    """Rates of a step twice as slow as the roofline are found again; one row moves all of them together."""
    deployment = Deployment(model=catalog.model("Llama-3.1-8B"), gpu=catalog.gpu("L40S"), precision="fp8")
    rows = []
    for n in (1, 8, 32, 128):
        for a, b in ((500, 500), (4000, 100), (100, 1000)):
            step = roofline.step_time(deployment, ENGINE, n)
            stay = step.first_base_s + a * step.first_token_s + (n - 1) * (step.prompt_s + a * step.prefill_s)
            stay += b * step.per_output_token_s(n, a + b / 2)
            rows.append(
                Measurement(
                    model="Llama-3.1-8B",
                    gpu="L40S",
                    precision="fp8",
                    input_tokens=a,
                    output_tokens=b,
                    concurrency=n,
                    requests_per_s=n / (2 * stay),
                )
            )
    step, errors = fit_step(deployment, rows)
    assert errors.max() < 0.02
    assert step.label == "measured"
    one, errors = fit_step(deployment, rows[4:5])
    assert errors.max() < 0.05


def test_a_profile_replaces_the_roofline(hour: Path, tmp_path: Path) -> None:
    """What it covers has its times, the rest does not change, and the error of the fit is told."""
    head = "model,gpu,precision,input_tokens,output_tokens,concurrency,requests_per_s"
    slow = file(tmp_path, "p.csv", f"{head}\nLlama-3.1-8B,NVIDIA H100,fp8,1000,200,64,3\n")
    options = {**LOOSE, "models": ["Llama-3.1-8B"], "prices": [Offer(gpu="H100", usd_per_gpu_h=3.0)]}
    before, made = import_trace(hour, **options), import_trace(hour, own=read_own(profiles=[slow]), **options)
    assert any("as measured in 1 rows" in note and "fitted within" in note for note in made.notes)
    assert "measured, as given: Llama-3.1-8B on H100 at fp8" in made.instance.provenance["performance"]
    service = [i.instance.performance.service_s.per_output_token[0] for i in (before, made)]
    for c, configuration in enumerate(made.instance.configurations):
        covered = configuration.uses[0].tier.endswith("fp8") and configuration.tensor_parallel == 1
        assert (service[1][c] > 2 * service[0][c]) if covered else (service[1][c] == service[0][c])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("Llama-3.1-8B,H100,fp8,1000,200,64,", "row 1: expected requests_per_s"),
        (
            "Llama-3.1-8B,H100,fp8,1000,200,64,9000",
            r"output tokens/s need 28,9\d\d TFLOP/s, and the peak of 1 H100",
        ),
        ("Llama-3.1-8B,H100,fp7,1000,200,64,3", "expected a precision"),
        ("Lama,H100,fp8,1000,200,64,3", "unknown model"),
        ("Llama-3.1-8B,H1000,fp8,1000,200,64,3", "unknown GPU"),
        ("Llama-3.1-8B,H100,fp8,1000,200,0,3", "line 2.concurrency: expected a number from 1"),
    ],
)
def test_faults_in_profiles(row: str, says: str, tmp_path: Path) -> None:
    """Wrong rows are refused with their place."""
    head = "model,gpu,precision,input_tokens,output_tokens,concurrency,requests_per_s"
    with pytest.raises(DataError, match=says):
        read_own(profiles=[file(tmp_path, "p.csv", f"{head}\n{row}\n")])


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ("80,3.35,989", "bandwidth_gb_per_s of X is 3.35 GB/s, less than any GPU has: is that TB/s?"),
        ("80,3350,0.989", "fp16_tflops of X is 0.989 TFLOP/s, less than any GPU has: is that PFLOP/s?"),
    ],
)
def test_numbers_in_a_larger_unit_are_asked_for(numbers: str, says: str, tmp_path: Path) -> None:
    """A GPU of a thousandth of the speed is a slip of the unit."""
    gpus = file(tmp_path, "g.csv", f"name,memory_gb,bandwidth_gb_per_s,fp16_tflops\nX,{numbers}\n")
    with pytest.raises(DataError) as caught:
        read_own(gpu_files=[gpus])
    assert says in str(caught.value)
