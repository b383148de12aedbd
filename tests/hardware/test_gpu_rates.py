"""Versions 2 and 3 of the coefficients: steps by hand, links by how GPUs are joined, and who stands in for whom."""

from __future__ import annotations

import pytest

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import gpu_rates, roofline
from fleetgym.hardware.performance.coefficients import Deployment, Requests

NEW = roofline.RooflineOptions(coefficients=2)


def deployed(model: str, gpu: str, precision: str = "fp16", n: int = 1) -> Deployment:
    """Return a deployment by names."""
    return Deployment(
        model=catalog.model(model), gpu=catalog.gpu(gpu), precision=precision, tensor_parallel=n
    )


def by_hand(where: Deployment, n: float, context: float) -> float:
    """Return the time of a step of n sequences, in seconds, written out for a model without experts at 16 bits."""
    model, gpu, k = where.model, where.gpu, where.tensor_parallel
    r, host = gpu_rates.rates(gpu.name), gpu_rates.DENSE
    weights = 2.0 * model.params_b / (k * gpu.bandwidth_gb_per_s) * r.weights
    cache = n * context * model.kv_bytes_per_token / 1e9 / (k * gpu.bandwidth_gb_per_s) * r.kv
    products = n * 2.0 * model.params_b / 1e3 / (k * gpu.fp16_tflops) * r.tensor
    layers = model.layers * (r.layer_s + host.layer_s)
    link = 0.0
    if k > 1:
        sent_gb = n * 2.0 * model.hidden / 1e9
        each = getattr(r, f"reduce_{k}_s") + sent_gb / gpu.peer_gb_per_s * getattr(r, f"reduce_{k}")
        link = 2.0 * model.layers * each
    return weights + cache + products + layers + link + n * host.sequence_s


@pytest.mark.parametrize("gpu", ["L40S", "A100-80GB", "H100", "H200", "B200", "RTX-PRO-6000"])
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_step_by_hand(gpu: str, n: int) -> None:
    """Weights, cache, products, layers and all-reduces add up."""
    where = deployed("Llama-3.1-70B", gpu, n=n)
    for batch, context in ((1.0, 100.0), (32.0, 4000.0)):
        step = roofline.step_time(where, NEW, batch)
        found = step.per_output_token_s(batch, context)
        assert found == pytest.approx(by_hand(where, batch, context), rel=1e-3)


def test_every_gpu_of_the_catalogue_has_rates() -> None:
    """Those that were not measured are told apart, and are joined as they are."""
    for name in catalog.gpu_names():
        rates, is_new = gpu_rates.rates(name), gpu_rates.is_extrapolated(name)
        assert (rates.label == "extrapolated") == is_new
        step = roofline.step_time(deployed("Llama-3.1-8B", name), NEW, 8)
        assert step.label == ("extrapolated" if is_new else "modelled")
    assert gpu_rates.rates("H100-PCIe").reduce_8 == gpu_rates.rates("RTX-PRO-6000").reduce_8
    assert gpu_rates.rates("H100-PCIe").weights == gpu_rates.rates("H100").weights
    assert gpu_rates.rates("L4").reduce_8 == gpu_rates.rates("L40S").reduce_8


@pytest.mark.parametrize("gpu", ["L40S", "RTX-PRO-6000"])
def test_all_reduces_over_pcie_are_slow(gpu: str) -> None:
    """Eight GPUs over PCIe take longer for a long prompt than two; over NVLink they take about half."""
    two, eight = (roofline.step_time(deployed("Llama-3.1-70B", gpu, "fp8", n), NEW, 8) for n in (2, 8))
    assert eight.prefill_s > two.prefill_s
    two, eight = (roofline.step_time(deployed("Llama-3.1-70B", "H100", "fp8", n), NEW, 8) for n in (2, 8))
    assert eight.prefill_s < 0.6 * two.prefill_s


@pytest.mark.parametrize("gpu", catalog.gpu_names())
def test_no_prompt_is_faster_alone_than_in_a_batch(gpu: str) -> None:
    """In version 3; in version 2 the first token comes 1.9 times too early on eight L40S."""
    last = roofline.RooflineOptions(coefficients=3)
    for n in (1, 2, 4, 8):
        where = deployed("Llama-3.1-70B", gpu, "fp16", n)
        before, step = roofline.step_time(where, NEW, 8), roofline.step_time(where, last, 8)
        tokens = 8000.0
        alone = step.first_base_s + tokens * step.first_token_s + tokens**2 * step.first_attention_s
        assert alone >= step.prompt_s + tokens * step.prefill_s + tokens**2 * step.attention_s
        assert step.prefill_s == before.prefill_s
        if n == 1:  # nothing is sent
            assert step == before
    assert roofline.step_time(deployed("Llama-3.1-70B", "H100", "fp8", 4), last, 8) == roofline.step_time(
        deployed("Llama-3.1-70B", "H100", "fp8", 4), NEW, 8
    )
    slow = deployed("Llama-3.1-70B", "L40S", "fp8", 8)
    assert (
        roofline.step_time(slow, last, 8).first_token_s > 1.5 * roofline.step_time(slow, NEW, 8).first_token_s
    )


def test_versions_that_are_not_there() -> None:
    """A file may name a later version than this package has."""
    with pytest.raises(FleetgymError, match="expected version 1, 2 or 3, got 4"):
        roofline.RooflineOptions(coefficients=4)


def test_prompts_read_themselves() -> None:
    """The time of a prompt grows faster than its length, and with the spread of lengths."""
    where = deployed("Llama-3.1-8B", "H100")
    for tokens in (1000.0, 7000.0):
        step = roofline.step_time(where, NEW, 1)
        even, spread = (
            roofline.pair(
                where,
                Requests(input_tokens=tokens, output_tokens=10.0, error=0.1, input_cv2=cv2),
                NEW,
                at_once=1,
            )
            for cv2 in (0.0, 2.0)
        )
        expected = step.first_base_s + tokens * step.first_token_s + tokens**2 * step.first_attention_s
        assert even.prefill_s.at(tokens, 10.0) == pytest.approx(expected)
        assert spread.prefill_s.at(tokens, 10.0) - expected == pytest.approx(
            2.0 * tokens**2 * step.first_attention_s
        )


def test_version_1_is_what_it_was() -> None:
    """The constants of stored sets: a step of version 1 by its formula."""
    where = deployed("Llama-3.1-70B", "A100-80GB", n=4)
    step = roofline.step_time(where, roofline.RooflineOptions(measured="ignore"))
    base = 141.1 / (4 * 2039 * 0.909) + 80 * (39.9e-6 + 31.5e-6)
    assert step.base_s == pytest.approx(base, rel=1e-12)
    token = 2 * 70.552 / 1000 / (4 * 312 * 0.833) + 8 * 80 * 8192 * 0.75 / 1e9 / (300 * 0.439)
    assert (step.sequence_s, step.prefill_s) == pytest.approx((token, token), rel=1e-12)
    assert step.label == "modelled"
