"""Enumeration of homogeneous configurations: everything that fits, nothing that does not."""

import pytest

from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.homogeneous import (
    TierType,
    columns,
    deployments,
    startup_windows,
)
from fleetgym.hardware.performance import roofline


def tier(name, precision="fp16", **more):
    """Return a tier named after its GPU and precision."""
    return TierType(id=f"{name}-{precision}", gpu=catalog.gpu(name), precision=precision, **more)


def test_everything_that_fits_is_listed_once():
    """The list is the cross product filtered by memory, in order, with unique ids."""
    models = [catalog.model(name) for name in ("Llama-3.1-8B", "Llama-3.1-70B")]
    tiers = [tier("L40S"), tier("H100", "fp8")]
    found = columns(models, tiers)
    expected = [
        f"{model.name}@{t.id}:tp{d.tensor_parallel}pp{d.pipeline_parallel}"
        for model in models
        for t in tiers
        for d in deployments(model, t)
        if roofline.capacity(d) is not None
    ]
    assert [c.configuration.id for c in found] == expected
    assert len(set(expected)) == len(expected)
    for column in found:
        assert column.configuration.uses[0].gpus == column.deployment.gpus
        need = column.deployment.weight_gb + column.configuration.kv_gb_per_token * 8192
        assert need <= column.deployment.gpus * column.deployment.gpu.memory_gb


def test_parallelism_limits():
    """TP stays in the node, and divides the heads."""
    model = catalog.model("Llama-3.2-3B")  # 24 heads
    wide = tier("H100", tensor_parallel=(1, 2, 3, 5, 8, 16))
    assert [d.tensor_parallel for d in deployments(model, wide, (1,))] == [1, 2, 3, 8]


def test_what_a_column_costs_to_start_and_store():
    """Start-up and storage are the caller's."""
    found = columns(
        [catalog.model("Llama-3.1-70B")],
        [tier("H100", "fp8")],
        startup=startup_windows,
        storage_usd_per_gb_h=0.001,
    )
    assert {c.configuration.startup_windows for c in found} == {2}
    assert found[0].configuration.model_storage_usd_per_h == pytest.approx(0.07055)
    sizes = [startup_windows(catalog.model(m)) for m in ("Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")]
    assert sizes == [1, 2, 3]
