"""Values of fleet-sim's own tool that no table prints: its fleets by rate per GPU, and its computed GPU profiles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from places import SHARED

from fleetgym.hardware.performance.profiles import PROFILES, Profile
from fleetgym.papers.inference_fleet_sim import fleet_sim

FIXTURES = SHARED / "fixtures" / "fleet_sim"  # beside the checkout
NAMES = {"A100_80GB": "A100-80GB", "H100_80GB": "H100-80GB", "A10G": "A10G"}
#: The context at which the tool's builder counts a sequence's KV traffic, and its prompt chunk.
BUILDER_CONTEXT, BUILDER_CHUNK = 2048, 512

pytestmark = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the reference values of fleet-sim are not here"
)


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a fixture."""
    return json.loads((FIXTURES / name).read_text())["cases"]


def test_the_fleet_with_the_highest_rate_per_gpu() -> None:
    """Counts exactly; rates, price and latencies to 1e-12; none where the tool finds none."""
    found_some = 0
    for case in cases("disagg.json"):
        prefill, decode = (PROFILES[NAMES[case[key]]] for key in ("gpu_prefill", "gpu_decode"))
        found = fleet_sim.most_rate_per_gpu(
            prefill,
            decode,
            input_tokens=case["mean_isl"],
            output_tokens=case["mean_osl"],
            most_tokens=case["max_ctx"],
            ttft_slo_s=case["slo_ttft_ms"] / 1e3,
            tpot_slo_s=case["slo_tpot_ms"] / 1e3,
        )
        want = case["optimize_best"]
        assert (found is None) == (want is None)
        if found is None:
            continue
        found_some += 1
        assert (found.prefill_gpus, found.decode_gpus) == (want["n_prefill"], want["n_decode"])
        gpus = found.prefill_gpus * prefill.gpus + found.decode_gpus * decode.gpus
        assert gpus == want["total_gpus"]
        for value, key in (
            (found.rate_rps, "system_rate"),
            (found.rate_rps / gpus, "thru_per_gpu"),
            (1e3 * found.ttft_s, "ttft_ms"),
            (1e3 * found.tpot_s, "tpot_ms"),
            (found.usd_per_h, "cost_per_hr"),
        ):
            assert value == pytest.approx(want[key], rel=1e-12)
    assert found_some > 5


def profile_of(case: dict[str, Any]) -> Profile:
    """Return a computed profile in our form: its H is counted at another context, and it has no cap on slots."""
    return Profile(
        name=f"{case['hw']} {case['model']} TP{case['tp']}",
        base_s=case["W"],
        context_s=case["H"] * 8192 / BUILDER_CONTEXT,
        chunk_tokens=BUILDER_CHUNK,
        kv_blocks=case["total_kv_blks"],
        max_slots=10**9,
        scales_slots=False,
        usd_per_h=case["cost_per_hr"],
        gpus=case["tp"],
    )


def test_computed_profiles() -> None:
    """Slots exactly; steps and service times to 1e-9 where the tool's prompts are bound by memory as its decoding is.

    Its prompts that are bound by compute take longer than our profile's form with the same W and H says. Weights that
    leave no room for one sequence have no slot with us; the tool serves one anyway.
    """
    memory_bound, too_large = 0, 0
    for case in cases("computed_profiles.json"):
        profile = profile_of(case)
        slots = profile.slots(8192)
        if slots == 0:
            assert case["total_kv_blks"] < 8192 // 16
            assert case["n_slots_8192"] == 1
            too_large += 1
        else:
            assert slots == case["n_slots_8192"]
        batch = case["n_slots_8192"]
        service_s = float(profile.service_seconds(np.array([1024]), np.array([256]), batch)[0])
        step_s = profile.step_s(batch, 1024 + 256)
        chunk_s = 0.5 * (case["service_time_1024_256_8192"] - 256 * step_s)
        assert chunk_s >= step_s * (1.0 - 1e-9)
        if chunk_s <= step_s * (1.0 + 1e-9):
            memory_bound += 1
            assert service_s == pytest.approx(case["service_time_1024_256_8192"], rel=1e-9)
            assert profile.step_s(8, BUILDER_CONTEXT) <= case["prefill_iter_latency_512_512_8"] * (1 + 1e-9)
    assert memory_bound > 20
    assert 0 < too_large < 0.5 * len(cases("computed_profiles.json"))


def test_computed_profiles_scale_with_the_gpus() -> None:
    """Over the TP degree: H falls as 1/TP, W as a + b/TP, and the price grows in proportion."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in cases("computed_profiles.json"):
        groups.setdefault((case["hw"], case["model"]), []).append(case)
    for group in groups.values():
        shares = np.array([1.0 / case["tp"] for case in group])
        np.testing.assert_allclose(
            [case["H"] for case in group], group[0]["H"] / shares[0] * shares, rtol=1e-9
        )
        prices = [case["cost_per_hr"] * share for case, share in zip(group, shares, strict=True)]
        np.testing.assert_allclose(prices, prices[0], rtol=1e-9)
        if len(group) > 2:
            w = np.array([case["W"] for case in group])
            slope, fixed = np.polyfit(shares, w, 1)
            np.testing.assert_allclose(fixed + slope * shares, w, rtol=1e-6)
            assert fixed > 0.0
            assert slope > 0.0
