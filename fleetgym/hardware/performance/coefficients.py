"""Compute how a deployment (model, GPU, precision, TP, PP) serves each workload's requests.

`fleetgym.hardware.performance.delay` is FastLLM's delay model, `fleetgym.hardware.performance.roofline` one that is
calibrated on measured runs. Both give `Coefficients` that are affine in the mean token lengths; `performance_table`
lays them out as the arrays of an instance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.hardware.catalog import GpuType, ModelType
from fleetgym.model.instance import Affine, Performance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """One replica of a homogeneous configuration: a model on TP x PP GPUs of one type and precision."""

    model: ModelType
    gpu: GpuType
    precision: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def weight_gb(self) -> float:
        """Size of the weights at this precision."""
        return self.model.weight_gb(self.precision)


@dataclasses.dataclass(frozen=True)
class Coefficients:
    """A quantity that is affine in the mean token lengths of a request."""

    base: float = 0.0
    per_input_token: float = 0.0
    per_output_token: float = 0.0

    def at(self, input_tokens: float, output_tokens: float) -> float:
        """Return the quantity for mean lengths.

        Examples
        --------
        >>> Coefficients(1.0, 0.5, 2.0).at(4, 3)
        9.0
        """
        return self.base + self.per_input_token * input_tokens + self.per_output_token * output_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """The capacities of one replica; `label` states whether they are measured or modelled."""

    compute_tflops: float
    kv_capacity_gb: float
    kv_gb_per_token: float
    max_concurrency: int
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairPerformance:
    """How one configuration serves one workload; `label` states whether that is measured or modelled."""

    delay_s: Coefficients
    service_s: Coefficients
    prefill_s: Coefficients
    work_tflop: Coefficients
    error: float
    service_cv2: float = 1.0
    storage_usd: float = 0.0
    label: str = "modelled"


def service_cv2(
    service: Coefficients,
    input_tokens: float,
    output_tokens: float,
    input_cv2: float,
    output_cv2: float,
    correlation: float = 0.0,
) -> float:
    """Return the squared coefficient of variation of a service time that is affine in random lengths.

    Parameters
    ----------
    service : Coefficients
        Service time in seconds.
    input_tokens, output_tokens : float
        Mean lengths.
    input_cv2, output_cv2 : float
        Squared coefficients of variation of the lengths.
    correlation : float
        Correlation of input and output length.

    Returns
    -------
    float
        Var(S) / E[S]^2; 0 where the mean is 0.

    Examples
    --------
    >>> service_cv2(Coefficients(0.0, 0.0, 0.1), 100, 50, 3.0, 1.5)
    1.5
    """
    mean = service.at(input_tokens, output_tokens)
    if mean <= 0.0:
        return 0.0
    a = service.per_input_token * input_tokens * input_cv2**0.5
    b = service.per_output_token * output_tokens * output_cv2**0.5
    return (a * a + 2.0 * correlation * a * b + b * b) / (mean * mean)


def performance_table(pairs: Sequence[Sequence[PairPerformance | None]]) -> Performance:
    """Lay out pairs as the arrays of an instance.

    Parameters
    ----------
    pairs : (I, C) nested sequences
        `PairPerformance` of workload i on configuration c, or None where it cannot serve it.

    Returns
    -------
    Performance
        Arrays of shape (I, C); zero where a pair is incompatible, and all tie-breaking weights.
    """
    shape = (len(pairs), len(pairs[0]))

    def affine(name: str) -> Affine:
        return Affine(
            base=array(name, "base"),
            per_input_token=array(name, "per_input_token"),
            per_output_token=array(name, "per_output_token"),
        )

    def array(name: str, part: str | None = None) -> np.ndarray:
        out = np.zeros(shape)
        for i, row in enumerate(pairs):
            for c, pair in enumerate(row):
                if pair is not None:
                    value = getattr(pair, name)
                    out[i, c] = value if part is None else getattr(value, part)
        return out

    return Performance(
        compatible=np.array([[pair is not None for pair in row] for row in pairs]),
        delay_s=affine("delay_s"),
        work_tflop=affine("work_tflop"),
        service_s=affine("service_s"),
        prefill_s=affine("prefill_s"),
        service_cv2=array("service_cv2"),
        error=array("error"),
        storage_usd=array("storage_usd"),
        tie_break=np.zeros(shape),
    )
