"""Length laws and service profiles: exact sums against enumeration, published values, and what cannot be."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from places import SHARED

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.hardware.performance.lengths import Lengths, mixture, published, published_totals
from fleetgym.hardware.performance.profiles import PROFILES, Profile, measured_profiles

FIXTURES = SHARED / "fixtures" / "fleet_sim"
NAMES = {"A100_80GB": "A100-80GB", "H100_80GB": "H100-80GB", "A10G": "A10G"}
needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the reference values of fleet-sim are not here"
)


def cases(name: str) -> list[dict]:
    """Return the cases of a fixture."""
    return json.loads((FIXTURES / name).read_text())["cases"]


def enumerated(law: Lengths) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every pair of lengths of a law, and its probability."""
    rows = []
    for il, ih, ol, oh, share in zip(
        law.input_low, law.input_high, law.output_low, law.output_high, law.share, strict=True
    ):
        i, o = np.meshgrid(np.arange(il, ih + 1), np.arange(ol, oh + 1))
        rows.append((i.ravel(), o.ravel(), np.full(i.size, share / i.size)))
    return tuple(np.concatenate(column) for column in zip(*rows, strict=True))  # type: ignore[return-value]


@pytest.fixture
def boxes() -> Lengths:
    """Return a law of three boxes of different shapes, one of them a point."""
    return Lengths.from_histogram([(3, 40, 1, 9, 5.0), (20, 20, 7, 7, 1.0), (30, 64, 10, 33, 2.0)])


#: A profile in which every term matters.
FULL = Profile(
    name="full",
    base_s=0.01,
    context_s=0.5,
    sequence_s=0.001,
    chunk_tokens=16,
    first_base_s=0.02,
    first_token_s=3e-4,
    prefill_s=1e-5,
    kv_blocks=1000,
    max_slots=7,
    usd_per_h=1.0,
)


@pytest.mark.parametrize("profile", [FULL, *PROFILES.values()], ids=lambda p: p.name)
def test_moments_are_exact(boxes: Lengths, profile: Profile) -> None:
    """Mean and cv2 equal the sum over every pair of lengths."""
    inputs, outputs, share = enumerated(boxes)
    service_s = profile.service_seconds(inputs, outputs, 5)
    mean = share @ service_s
    cv2 = share @ service_s**2 / mean**2 - 1.0
    assert profile.service_moments(boxes, 5) == (
        pytest.approx(mean, rel=1e-12),
        pytest.approx(cv2, rel=1e-10),
    )


def test_shares_and_quantiles(boxes: Lengths) -> None:
    """Every total's share, the quantiles, the means and the density of inputs follow from the pairs."""
    inputs, outputs, share = enumerated(boxes)
    total = inputs + outputs
    for limit in range(int(total.max()) + 2):
        assert boxes.share_up_to(limit) == pytest.approx(share[total <= limit].sum(), abs=1e-12)
    for q in (0.01, 0.5, 0.99):
        found = boxes.quantile(q)
        assert boxes.share_up_to(found) >= q > boxes.share_up_to(found - 1)
    assert boxes.mean_input == pytest.approx(share @ inputs)
    assert boxes.mean_output == pytest.approx(share @ outputs)
    np.testing.assert_allclose(boxes.input_density, np.bincount(inputs, weights=share), atol=1e-15)


@pytest.mark.parametrize(("above", "up_to"), [(0, 25), (25, 47), (47, 200), (12, 13), (0, 500), (300, 400)])
def test_cut_laws(boxes: Lengths, above: int, up_to: int) -> None:
    """A range of totals has the pairs that it should, whatever box a limit crosses."""
    inputs, outputs, share = enumerated(boxes)
    inside = (inputs + outputs > above) & (inputs + outputs <= up_to)
    part, found = boxes.between(above, up_to)
    assert found == pytest.approx(share[inside].sum(), abs=1e-12)
    if part is None:
        assert not inside.any()
        return
    mean = share[inside] @ (inputs * outputs**2)[inside] / share[inside].sum()
    assert part.expect([np.zeros_like, np.zeros_like, lambda i: i]) == pytest.approx(mean, rel=1e-12)


def test_the_parts_make_the_whole(boxes: Lengths) -> None:
    """Cutting a law in three and mixing the parts changes nothing."""
    parts = [boxes.between(a, b) for a, b in ((0, 20), (20, 50), (50, 1000))]
    again = mixture([(law, share) for law, share in parts if law is not None])
    for limit in (10, 20, 35, 50, 80):
        assert again.share_up_to(limit) == pytest.approx(boxes.share_up_to(limit), abs=1e-12)


def test_shortened_prompts(boxes: Lengths) -> None:
    """Compression cuts inputs to the limit, keeps outputs, and leaves what fits alone."""
    inputs, outputs, share = enumerated(boxes)
    short = boxes.shortened_to(40)
    assert short.most_tokens == 40
    assert short.mean_output == pytest.approx(share @ outputs)
    assert short.mean_input == pytest.approx(share @ np.minimum(inputs, np.maximum(1, 40 - outputs)))
    assert short.share_up_to(30) == pytest.approx(boxes.share_up_to(30))


def test_draws_follow_the_law(boxes: Lengths) -> None:
    """The mean of many draws is near, and the same seed draws the same."""
    inputs, outputs = boxes.draw(np.random.default_rng(1), 100_000)
    assert abs(inputs.mean() - boxes.mean_input) < 0.2
    assert abs(outputs.mean() - boxes.mean_output) < 0.1
    again = boxes.draw(np.random.default_rng(1), 100_000)
    assert np.array_equal(inputs, again[0])
    assert np.array_equal(outputs, again[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lengths([1], [0], [1], [1], [1.0]),
        lambda: Lengths([1], [2], [1], [1], [-1.0]),
        lambda: Lengths([1, 2], [2], [1], [1], [1.0]),
        lambda: Lengths([-1], [2], [1], [1], [1.0]),
        lambda: Lengths.from_totals([(10, 0.5), (5, 1.0)]),
        lambda: Lengths.from_totals([(10, 0.5), (20, 0.4)]),
        lambda: Lengths.from_histogram([]),
        lambda: mixture([]),
        lambda: PROFILES["A10G"].slots(0),
    ],
)
def test_nonsense_is_refused(make) -> None:
    """Laws that are none, and contexts of no token."""
    with pytest.raises(FleetgymError):
        make()


def test_unknown_names() -> None:
    """Both tables name the nearest known name."""
    for look_up in (published, measured_profiles):
        with pytest.raises(UnknownNameError):
            look_up("lmsyss")


def test_measured_profiles_are_measured() -> None:
    """Every one comes from a fit with its error, pays for all of its GPUs, and is slower than fleet-sim's H100."""
    found = measured_profiles("Llama-3.1-70B")
    assert len(found) >= 5
    for profile in found:
        assert profile.label == "measured"
        assert profile.fit_error is not None
        assert 0.0 < profile.fit_error < 0.15
        assert profile.usd_per_h > profile.gpus
        assert profile.slots(8192) > 0
        assert profile.slots(65536) < profile.slots(8192)
    eight = next(p for p in found if p.name == "Llama-3.1-70B fp8 H100 TP8")
    assert eight.base_s > 2 * PROFILES["H100-80GB"].base_s
    assert (
        eight.prefill_seconds(np.array([8000]))[0]
        > 10 * PROFILES["H100-80GB"].prefill_seconds(np.array([8000]))[0]
    )


def test_power_curve_is_inverted() -> None:
    """The largest batch within a power is exact, where the published bisection is off by one."""
    curve = PROFILES["H100-80GB"].power
    assert curve is not None
    for watts in np.linspace(curve.idle_w, curve.nominal_w, 37):
        batch = curve.largest_batch(float(watts), 256)
        assert batch == 1 or curve.watts(batch) <= watts
        assert batch == 256 or curve.watts(batch + 1) > watts


@needs_fixtures
def test_published_profiles() -> None:
    """Slots, steps, service times and throughput of fleet-sim's profiles, to 1e-12."""
    for case in cases("profiles.json"):
        profile, slots = PROFILES[NAMES[case["gpu"]]], case["n_slots"]
        assert profile.slots(case["max_ctx"]) == slots
        lengths = case["l_in"] + case["l_out"]
        service_s = float(profile.service_seconds(case["l_in"], case["l_out"], slots))
        for found, key in (
            (profile.step_s(1), "iter_latency_1"),
            (profile.step_s(slots), "iter_latency_full"),
            (profile.step_s(slots, lengths), "iter_latency_full_seq"),
            (service_s, "service_time"),
            (slots / service_s, "throughput"),
        ):
            assert found == pytest.approx(case[key], rel=1e-12)


@needs_fixtures
def test_exactly_integrated_moments() -> None:
    """The sums over every length that the fixtures hold beside the tool's 3,000 draws."""
    for case in cases("calibrate.json"):
        profile = PROFILES[NAMES[case["gpu"]]]
        law = Lengths.from_totals(case["sub_cdf"], low=case["lo_clamp"], high=case["pool_max"])
        mean, cv2 = profile.service_moments(law, case["n_slots"])
        prefill = law.input_density @ profile.prefill_seconds(np.arange(law.input_density.size))
        assert mean == pytest.approx(case["exact_mean_service_s"], rel=1e-9)
        assert cv2 == pytest.approx(case["exact_cv2"], rel=1e-9)
        assert prefill == pytest.approx(case["exact_mean_prefill_s"], rel=1e-9)


@needs_fixtures
def test_published_power_and_totals() -> None:
    """Watts by batch, and the CDFs at 30 points."""
    for case in cases("power.json"):
        if "power_w" in case:
            curve = PROFILES[NAMES[case["gpu"]]].power
            assert curve is not None
            assert curve.watts(case["n_active"]) == pytest.approx(case["power_w"], rel=1e-12)
    known = json.loads((FIXTURES / "cdf_eval.json").read_text())["cdfs"]
    for name, points in published_totals().items():
        assert [list(point) for point in points] == known[name.replace("-", "_")]


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the derived tables of real traces are not here")
def test_a_real_joint_histogram() -> None:
    """The Azure conversations as half-octave boxes: means within a tenth of those counted in the cells."""
    with (SHARED / "data" / "tokens_joint_hist.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "azure_conv"]
    names = ("ctx_lo", "ctx_hi", "gen_lo", "gen_hi", "count")
    law = Lengths.from_histogram([tuple(int(float(row[name])) for name in names) for row in rows])
    counts = np.array([float(row["count"]) for row in rows])
    counted = counts @ [float(row["ctx_mean"]) for row in rows] / counts.sum()
    assert law.mean_input == pytest.approx(counted, rel=0.1)
    mean, cv2 = PROFILES["H100-80GB"].service_moments(law, 128)
    short, share = law.between(0, 1024)
    assert mean > 0.0
    assert cv2 > 0.0
    assert short is not None
    assert 0.0 < share < 1.0
