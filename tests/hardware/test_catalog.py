"""The catalogue: every row is complete, labelled and plausible, and wrong names are answered helpfully."""

import subprocess
import sys

import pytest

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware import catalog


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_gpu_rows_are_plausible(name):
    """Units cannot be mixed up: each figure lies in the range of real GPUs; rates rise as bits fall."""
    gpu = catalog.gpu(name)
    assert 10 <= gpu.memory_gb <= 400
    assert 200 <= gpu.bandwidth_gb_per_s <= 10_000
    assert 20 <= gpu.fp16_tflops <= 3_000
    assert gpu.fp8_tflops is None or gpu.fp8_tflops >= gpu.fp16_tflops
    assert gpu.nvlink_gb_per_s == 0 or gpu.nvlink_gb_per_s > gpu.pcie_gb_per_s
    assert gpu.peer_gb_per_s >= gpu.pcie_gb_per_s > 0
    assert gpu.label in catalog.LABELS
    assert gpu.source
    assert gpu.licence


@pytest.mark.parametrize("name", catalog.model_names())
def test_model_rows_are_plausible(name):
    """Weights are two bytes a parameter, and plain attention caches 2 x layers x heads x dim x 2 bytes."""
    model = catalog.model(name)
    assert model.weight_gb_bf16 == pytest.approx(2 * model.params_b, rel=0.01)
    assert 0 < model.active_params_b <= model.params_b
    assert (model.experts == 0) == (model.active_params_b == model.params_b)
    plain = 4.0 * model.layers * model.kv_heads * model.head_dim
    if not model.hybrid_attention and name != "DeepSeek-R1":  # latent attention
        assert model.kv_bytes_per_token == plain
    assert model.weight_gb("int4") == model.weight_gb_bf16 / 4
    assert model.label in catalog.LABELS
    assert model.source
    assert model.licence


def test_tables_refer_to_each_other():
    """Fits name known models and GPUs; every row of every table has a label and a licence."""
    for fit in catalog.iteration_fits():
        assert fit.model in catalog.model_names()
        assert fit.gpu in catalog.gpu_names()
        assert fit.precision in catalog.WEIGHT_BYTES
        assert fit.label == "measured"
    for row in (*catalog.scores(), *catalog.iteration_fits(), *catalog.prices()):
        assert row.label in catalog.LABELS
        assert row.source
        assert row.licence
    assert all(0 < price.usd_per_gpu_h < 50 for price in catalog.prices())


def test_known_facts():
    """A few figures that one can look up."""
    assert catalog.gpu("H100").memory_gb == 80
    assert catalog.gpu("A6000").memory_gb == 48
    assert catalog.gpu("fastllm-A6000").memory_gb == 24
    assert catalog.gpu("fastllm-A6000").label == "assumed"
    assert catalog.gpu("L4").tflops("int4") == catalog.gpu("L4").fp16_tflops
    assert catalog.model("Llama-3.1-70B").layers == 80
    assert catalog.model("gpt-oss-120b").experts_per_token == 4


def test_unknown_names_suggest_the_nearest():
    """The error names what was wrong and what would be valid."""
    with pytest.raises(
        UnknownNameError, match="unknown GPU type 'A100': by that number there are A100-40GB, A100-80GB"
    ):
        catalog.gpu("A100")
    with pytest.raises(UnknownNameError, match="did you mean 'Llama-3.1-8B'"):
        catalog.model("Llama-3.1-8b")
    with pytest.raises(UnknownNameError, match="precision 'fp6'"):
        catalog.model("Llama-3.1-8B").weight_gb("fp6")
    with pytest.raises(UnknownNameError, match="task"):
        catalog.error_share("Llama-3.1-8B", "no such task")


def test_error_shares_say_how_they_are_known():
    """Measured scores come first, then the model's own loss, then that of other families."""
    assert catalog.error_share("Llama-3.1-70B", "MMLU_CoT") == (pytest.approx(0.14), "measured")
    own = catalog.error_share("Llama-3.1-70B", "MMLU_CoT", "int4")
    assert own == (pytest.approx(1 - 0.86 * (1 - 0.0107)), "modelled")
    other, label = catalog.error_share("Llama-3.1-70B", "MMLU_CoT", "int8")
    assert label == "substituted"
    assert 0.14 < other < 0.2


def test_import_is_light():
    """Reading the catalogue needs neither pandas nor numba."""
    code = "import sys, fleetgym.hardware.catalog as c; c.gpu('H100'); print({'pandas', 'numba'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
