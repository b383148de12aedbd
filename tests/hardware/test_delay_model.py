"""FastLLM's delay model against numbers worked out by hand."""

import dataclasses

import pytest

from fleetgym.files.errors import UnknownNameError
from fleetgym.hardware.performance import delay
from fleetgym.hardware.performance.coefficients import Coefficients, Requests


def test_delay_by_hand():
    """A 16 GB model in INT8 on 1,000 GB/s: 8 ms a token; TP 2 halves it, each PP stage adds its link time."""
    compute = delay.compute_s_per_token(16.0, "int8", 1000.0)
    assert compute == pytest.approx(0.008)
    communication = delay.communication_s_per_token(32, 4096, 600.0)
    assert communication == pytest.approx(2 * 32 * 4096 * 2 / 600e9)
    found = delay.delay_coefficients(compute, communication, 2, 4)
    assert found.at(512, 256) == pytest.approx(0.004 * (512 + 256) + 4 * communication * 256)
    assert delay.prefill_coefficients(compute, 2).at(512, 256) == pytest.approx(0.004 * 512)


def test_task_overhead_and_precision_scale_the_delay():
    """The overhead multiplies, sigma is 1, 1/2 and 1/4."""
    base = delay.compute_s_per_token(10.0, "fp16", 500.0)
    assert delay.compute_s_per_token(10.0, "fp16", 500.0, 4.0) == pytest.approx(4 * base)
    assert delay.compute_s_per_token(10.0, "int4", 500.0) == pytest.approx(base / 4)


def test_memory_and_compute_by_hand():
    """Weights shrink with the precision, work does not; a deeper pipeline loses compute."""
    assert delay.free_memory_gb(80.0, 140.0, "int4", 1) == pytest.approx(45.0)
    assert delay.free_memory_gb(80.0, 140.0, "fp16", 4) == pytest.approx(180.0)
    assert delay.work_tflop_per_token(8.0, 2.0) == pytest.approx(0.032)
    eta = [delay.compute_efficiency(m) for m in (1, 2, 4)]
    assert eta == pytest.approx([0.9, 0.9 * 8 / 9, 0.9 * 8 / 11])


def test_errors_name_the_valid_choices():
    """A misspelt precision is refused where it is given."""
    with pytest.raises(UnknownNameError, match="precision 'fp61'; did you mean 'fp16'"):
        delay.compute_s_per_token(1.0, "fp61", 1.0)


def test_error_share_by_hand():
    """70 B in INT8: a smaller base error, a larger factor."""
    assert delay.error_share(0.05, 70.0, "int8") == pytest.approx(0.05 * (70 / 8) ** -0.35 * 1.15)


def test_service_variability_by_hand():
    """Independent lengths add variances; fully correlated ones add deviations."""
    requests = Requests(input_tokens=100, output_tokens=50, error=0.0, input_cv2=4.0, output_cv2=1.0)
    service, mean = Coefficients(1.0, 0.01, 0.1), 1.0 + 1.0 + 5.0
    assert requests.cv2(service) == pytest.approx((2.0**2 + 5.0**2) / mean**2)
    assert dataclasses.replace(requests, correlation=1.0).cv2(service) == pytest.approx(7.0**2 / mean**2)
    assert requests.cv2(Coefficients()) == 0.0
