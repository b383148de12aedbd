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
    """How one configuration serves one workload; `label` states whether that is measured or modelled.

    `others_s` is the time that prompts of other requests take for each token that a request generates, and
    `others_shape` the shape of its gamma distribution for each of these tokens.
    """

    delay_s: Coefficients
    service_s: Coefficients
    prefill_s: Coefficients
    work_tflop: Coefficients
    error: float
    service_cv2: float = 1.0
    storage_usd: float = 0.0
    label: str = "modelled"
    others_s: float = 0.0
    others_shape: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requests:
    """The requests of a workload, as one model answers them.

    Parameters
    ----------
    input_tokens, output_tokens : float
        Mean lengths.
    error : float
        Share of wrong answers, see `fleetgym.hardware.catalog.error_share`.
    computed_share : float
        Share of the prompts' tokens that are computed; the others are in a prefix cache.
    input_cv2, output_cv2, correlation : float
        Squared coefficients of variation of the computed and generated lengths, and their correlation.
    storage_usd : float
        Data storage of one request.
    """

    input_tokens: float
    output_tokens: float
    error: float
    computed_share: float = 1.0
    input_cv2: float = 1.0
    output_cv2: float = 1.0
    correlation: float = 0.0
    storage_usd: float = 0.0

    def served(
        self, service_s: Coefficients, prefill_s: Coefficients, work_tflop: Coefficients, label: str
    ) -> PairPerformance:
        """Return how a configuration serves them; waiting is no part of the delay."""
        return PairPerformance(
            delay_s=service_s,
            service_s=service_s,
            prefill_s=prefill_s,
            work_tflop=work_tflop,
            error=self.error,
            service_cv2=self.cv2(service_s),
            storage_usd=self.storage_usd,
            label=label,
        )

    def cv2(self, service: Coefficients) -> float:
        """Return the squared coefficient of variation of a service time that is affine in the lengths.

        Examples
        --------
        >>> code = Requests(input_tokens=100, output_tokens=50, error=0.0, input_cv2=3.0, output_cv2=1.5)
        >>> code.cv2(Coefficients(0.0, 0.0, 0.1))
        1.5
        """
        mean = service.at(self.input_tokens, self.output_tokens)
        if mean <= 0.0:
            return 0.0
        a = service.per_input_token * self.input_tokens * self.input_cv2**0.5
        b = service.per_output_token * self.output_tokens * self.output_cv2**0.5
        return (a * a + 2.0 * self.correlation * a * b + b * b) / (mean * mean)


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
