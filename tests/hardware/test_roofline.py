"""The roofline: near the measured fits, monotone where hardware is, and true to its formulas."""

import dataclasses
import statistics

import pytest

from fleetgym.hardware import catalog
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests, performance_table

IGNORE = roofline.RooflineOptions(measured="ignore")


def deployed(model, gpu, precision="fp16", n=1, m=1):
    """Return a deployment by names."""
    return Deployment(
        model=catalog.model(model),
        gpu=catalog.gpu(gpu),
        precision=precision,
        tensor_parallel=n,
        pipeline_parallel=m,
    )


def test_error_against_measured_fits():
    """At 32 sequences of 2,048 tokens half of the 48 fits are met within 20 %."""
    errors = []
    for fit in catalog.iteration_fits():
        step = roofline.step_time(deployed(fit.model, fit.gpu, fit.precision, fit.tensor_parallel), IGNORE)
        measured = fit.base_s + 32 * (fit.sequence_s + fit.context_s / 4)
        errors.append(abs(step.per_output_token_s(32, 2048) / measured - 1))
    assert statistics.median(errors) < 0.2


def test_measured_fits_replace_the_roofline():
    """Where there are runs they are used and labelled; elsewhere, and for poor fits, the roofline is."""
    here = deployed("Llama-3.1-70B", "H100", "fp8", 8)
    fit = next(
        f
        for f in catalog.iteration_fits()
        if (f.model, f.gpu, f.tensor_parallel) == ("Llama-3.1-70B", "H100", 8)
    )
    assert roofline.step_time(here).base_s == fit.base_s
    assert roofline.step_time(here).label == "measured"
    assert roofline.step_time(here, IGNORE).label == "modelled"
    assert roofline.step_time(deployed("Llama-3.1-70B", "A100-80GB", "fp16", 8)).label == "modelled"
    # One engine took 28 ms a step for 8B on H200 at any load: a limit of its host.
    assert roofline.step_time(deployed("Llama-3.1-8B", "H200", "fp8", 4)).base_s < 0.01


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Llama-3.1-70B", "gpt-oss-120b"])
@pytest.mark.parametrize("gpu", ["A6000", "L40S", "A100-80GB", "H100", "H200"])
def test_less_work_takes_less_time(model, gpu):
    """Fewer bits and more bandwidth shorten a step; more TP lightens each sequence's cache reads."""
    sixteen, four = (roofline.step_time(deployed(model, gpu, p, 2), IGNORE) for p in ("fp16", "int4"))
    assert four.base_s < sixteen.base_s
    eight = roofline.step_time(deployed(model, gpu, "fp16", 8), IGNORE)
    assert eight.context_s < sixteen.context_s
    assert (
        sixteen.per_output_token_s(1, 100)
        < sixteen.per_output_token_s(2, 100)
        < sixteen.per_output_token_s(2, 200)
    )
    if gpu != "H200":
        faster = roofline.step_time(deployed(model, "H200", "fp16", 2), IGNORE)
        assert faster.base_s < sixteen.base_s


def test_capacity_by_hand():
    """70B FP8 on two H100: 2 x (72 - 2) - 70.55 GB of cache, at 8,192 x 327,680 bytes a sequence."""
    replica = roofline.capacity(deployed("Llama-3.1-70B", "H100", "fp8", 2))
    assert replica.kv_capacity_gb == pytest.approx(2 * 70 - 70.55)
    assert replica.max_concurrency == int(69.45e9 / (8192 * 327_680))
    assert replica.compute_tflops == pytest.approx(2 * 1978 * 0.833)
    short = roofline.capacity(
        deployed("Llama-3.1-70B", "H100", "fp8", 2), dataclasses.replace(IGNORE, context_limit=512)
    )
    assert short.max_concurrency == 256
    assert roofline.capacity(deployed("Llama-3.1-70B", "H100", "fp16", 1)) is None


def test_pipelines_hold_more_and_lose_compute():
    """Two stages of TP 2 have the memory of four GPUs and the bubble of a pipeline."""
    flat, deep = deployed("Llama-3.1-70B", "H100", "fp16", 4), deployed("Llama-3.1-70B", "H100", "fp16", 2, 2)
    a, b = roofline.capacity(flat, IGNORE), roofline.capacity(deep, IGNORE)
    assert a.kv_capacity_gb == b.kv_capacity_gb
    assert b.compute_tflops == pytest.approx(a.compute_tflops * 8 / 9)
    assert roofline.step_time(deep, IGNORE).base_s > roofline.step_time(flat, IGNORE).base_s


def test_repeated_kv_heads():
    """TP beyond the KV heads repeats them."""
    base = roofline.kv_gb_per_token(deployed("Qwen3-235B-A22B", "H100", "fp8", 4))
    assert roofline.kv_gb_per_token(deployed("Qwen3-235B-A22B", "H100", "fp8", 8)) == pytest.approx(2 * base)


def test_pair_is_what_a_batch_does():
    """Service is the own prefill, that of the others, and a step per output token; the batch counts."""
    here = deployed("Llama-3.1-8B", "A100-80GB")
    pair = roofline.pair(
        here, Requests(input_tokens=1000, output_tokens=200, error=0.1, input_cv2=0, output_cv2=2.0)
    )
    slots = roofline.capacity(here).max_concurrency
    step = roofline.step_time(here)
    decode = 200 * step.per_output_token_s(slots, 1100)
    prompts = 1000 * (slots - 1) * step.prefill_s
    assert pair.prefill_s.at(1000, 200) == pytest.approx(step.first_base_s + 1000 * step.first_token_s)
    assert pair.service_s.at(1000, 200) == pytest.approx(pair.prefill_s.at(1000, 200) + prompts + decode)
    assert pair.service_cv2 == pytest.approx(2.0 * (decode / pair.service_s.at(1000, 200)) ** 2)
    assert pair.work_tflop.at(1000, 200) == pytest.approx(1200 * 2 * 8.03 / 1000)
    lighter = roofline.pair(
        here, Requests(input_tokens=1000, output_tokens=200, error=0.1), at_once=slots // 2
    )
    assert lighter.service_s.at(1000, 200) < pair.service_s.at(1000, 200)
    assert roofline.pair(here, Requests(input_tokens=8000, output_tokens=500, error=0.1)) is None


def test_performance_table_lays_pairs_out():
    """Workloads are rows, configurations columns; incompatible pairs are zero."""
    small, large = deployed("Llama-3.1-8B", "A100-80GB"), deployed("Llama-3.1-70B", "A100-80GB")
    pairs = [
        [roofline.pair(d, Requests(input_tokens=h, output_tokens=100, error=0.2)) for d in (small, large)]
        for h in (100, 1000, 9000)
    ]
    table = performance_table(pairs)
    assert table.compatible.tolist() == [[True, False], [True, False], [False, False]]
    assert table.service_s.per_output_token[1, 0] == pairs[1][0].service_s.per_output_token
    assert table.error.tolist() == [[0.2, 0.0], [0.2, 0.0], [0.0, 0.0]]
    assert table.tie_break.shape == (3, 2)
