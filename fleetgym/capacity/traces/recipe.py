"""State what configurations and penalties are made of, so that other SLOs need no second import of the trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from fleetgym.capacity.traces.own_hardware import OwnHardware
from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.traces.workloads import TraceStatistics
from fleetgym.files.errors import DataError
from fleetgym.files.quantities import PENALTY, SHARE
from fleetgym.files.schema import (
    ID,
    ID_PATTERN,
    Array,
    Checked,
    ListOf,
    Nested,
    Number,
    Text,
    documented,
    read_object,
    spec,
)
from fleetgym.hardware import catalog
from fleetgym.hardware.catalog import GpuType, ModelType
from fleetgym.hardware.performance.held import HeldTokens
from fleetgym.hardware.performance.roofline import StepTime
from fleetgym.model.facts import MeasuredStep
from fleetgym.model.instance import Instance

_AMOUNT = Number(-1.0, 1e12)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnStep(MeasuredStep):
    """A deployment and its step times, as fitted to the user's measurements."""

    step: StepTime = spec(Nested(StepTime))


@documented
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Recipe(Checked):
    """What an instance is made of beside SLOs, history and processes: I workloads, and what may serve them."""

    names: tuple[str, ...] = spec(ListOf(ID, 1, 256), doc="ids of the workloads")
    served_by: tuple[str | None, ...] = spec(
        ListOf(Text(ID_PATTERN, nullable=True), 1, 256), doc="the model of each; null: any candidate"
    )
    lengths: np.ndarray = spec(
        Array(("workload", "moment"), _AMOUNT), doc="means of input and output, and their squared cv"
    )
    computed: np.ndarray = spec(
        Array(("workload", "moment"), _AMOUNT),
        doc="prompt tokens that no prefix cache holds: mean, squared cv, correlation with output",
    )
    output_values: np.ndarray = spec(Array(("length",), _AMOUNT), doc="output tokens, ascending")
    output_shares: np.ndarray = spec(Array(("workload", "length"), SHARE), doc="of the requests with each")
    held: HeldTokens = spec(Nested(HeldTokens), doc="what requests hold of the KV cache")
    offers: tuple[Offer, ...] = spec(ListOf(Nested(Offer), 1, 256), doc="one for each pool")
    penalty: float = spec(PENALTY, doc="an unserved request costs this many times what serving it costs")
    models: tuple[str, ...] = spec(
        ListOf(ID), (), doc="candidates; none: those that labels name, or the default"
    )
    own_models: tuple[ModelType, ...] = spec(ListOf(Nested(ModelType)), ())
    own_gpus: tuple[GpuType, ...] = spec(ListOf(Nested(GpuType)), ())
    own_steps: tuple[OwnStep, ...] = spec(ListOf(Nested(OwnStep)), ())
    made: str = spec(ID, "none", doc="hash of the instance without this recipe and its provenance")

    @classmethod
    def of(
        cls,
        found: TraceStatistics,
        offers: Sequence[Offer],
        models: Sequence[str] | None,
        own: OwnHardware,
        penalty: float,
    ) -> Recipe:
        """Return what an import found and was given."""
        PENALTY.read(penalty, "penalty")
        return cls(
            names=found.names,
            served_by=found.models,
            lengths=found.lengths,
            computed=found.computed,
            output_values=found.output_values,
            output_shares=found.output_shares,
            held=found.held,
            offers=tuple(offers),
            penalty=penalty,
            models=tuple(models or ()),
            own_models=tuple(each.model for each in own.models),
            own_gpus=own.gpus,
            own_steps=tuple(
                OwnStep(model=m, gpu=g, precision=p, tensor_parallel=d, step=step)
                for (m, g, p, d), step in own.steps.items()
            ),
        )

    def known(self) -> AbstractContextManager[None]:
        """Let the catalogue know models and GPUs of one's own while a block runs."""
        return catalog.also(self.own_gpus, self.own_models)

    @property
    def step_times(self) -> Mapping[tuple[str, str, str, int], StepTime]:
        """Step times of one's own, by model, GPU, precision and TP degree."""
        return {(s.model, s.gpu, s.precision, s.tensor_parallel): s.step for s in self.own_steps}


def recipe_of(instance: Instance) -> Recipe | None:
    """Return what an imported instance was made of; None where its file does not say it, as of older versions.

    Raises
    ------
    DataError
        With the path of what is wrong.
    """
    if instance.facts is None or instance.facts.recipe is None:
        return None
    try:
        return read_object(Recipe, instance.facts.recipe)
    except DataError as error:
        raise DataError(error.message, f"$.facts.recipe{error.path.removeprefix('$')}") from None
