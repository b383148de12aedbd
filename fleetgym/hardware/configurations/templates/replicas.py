"""Turn a template that serves both phases into a configuration of an instance and its performance."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.catalog import ModelType
from fleetgym.hardware.configurations.templates.library import Library
from fleetgym.hardware.configurations.templates.plans import Plan
from fleetgym.hardware.performance.coefficients import Coefficients, PairPerformance, Requests
from fleetgym.hardware.performance.replica import (
    CALIBRATED,
    DEFAULT,
    ReplicaOptions,
    operating_point,
    prefill_step_s,
)
from fleetgym.hardware.performance.roofline import Efficiency
from fleetgym.model.instance import Configuration, Use


@dataclasses.dataclass(frozen=True)
class Replica:
    """A template at its full load: what its pipeline does to a request of the library's lengths."""

    library: Library
    rank: int
    plan: Plan
    decode_s: float  # per output token, through all stages
    prefill_s: Coefficients  # to the first token, alone
    compute_tflops: float
    kv_capacity_gb: float
    kv_gb_per_token: float

    @property
    def model(self) -> ModelType:
        """What it serves."""
        return self.library.service.model

    @property
    def work_tflop(self) -> Coefficients:
        """Work of a request: that of its prompt and its tokens."""
        token = 2.0 * self.model.active_params_b / 1000.0
        return Coefficients(0.0, token, token)

    @property
    def gpus(self) -> Mapping[str, int]:
        """GPUs of each type that a replica takes, in the order of its stages."""
        found: Counter[str] = Counter()
        for stage in self.plan.stages:
            for n in stage.nodes:
                found[self.library.nodes[n].gpu.name] += self.library.nodes[n].gpus
        return found

    @property
    def label(self) -> str:
        """GPUs and the template's rank: ``1xL40S+1xL4:t37``."""
        return "+".join(f"{n}x{name}" for name, n in self.gpus.items()) + f":t{self.rank}"

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.plan.stages)

    @property
    def service_s(self) -> Coefficients:
        """Time that a request holds its place: its prompt, then a step of every stage per token."""
        return dataclasses.replace(self.prefill_s, per_output_token=self.decode_s)

    @property
    def max_concurrency(self) -> int:
        """Requests at a time: at full load, throughput times service time (Little's law)."""
        service = self.library.service
        held_s = self.service_s.at(service.input_tokens, service.output_tokens)
        return max(1, int(self.plan.throughput_rps * held_s))


def replica(library: Library, rank: int, options: ReplicaOptions = DEFAULT) -> Replica:
    """Return what a template of phase ``"both"`` does when it serves as much as it can.

    A request visits one node of each stage, in proportion to what the nodes serve. Compute and memory are those
    of the stage with the least of them per layer.

    Parameters
    ----------
    library : Library
        Of phase ``"both"``.
    rank : int
        A template of it.
    options : ReplicaOptions
        Those that the library was made with.

    Raises
    ------
    FleetgymError
        For a library of another phase, or a rank that is no template.
    """
    if library.phase != "both":
        raise FleetgymError(
            f"the library's phase is {library.phase!r}; an environment's replicas serve 'both'"
        )
    service, plan = library.service, library.plan(rank)
    model, stages = service.model, len(plan.stages)
    longer = dataclasses.replace(service, input_tokens=2.0 * service.input_tokens)
    decode_s = base_s = token_s = 0.0
    compute, memory, repeated = [], [], 1.0
    for stage in plan.stages:
        share = stage.layers / model.layers
        nodes = [library.nodes[n] for n in stage.nodes]
        points = [operating_point(service, node, stage.layers, stages, options) for node in nodes]
        weight = np.array([p.throughput_rps for p in points])
        weight = weight / weight.sum()
        twice = np.array([share * prefill_step_s(longer, node, np.ones(1), options)[0] for node in nodes])
        once = np.array([p.prompt_s for p in points])
        slope = (twice - once) / service.input_tokens
        decode_s += float(weight @ [p.decode_s for p in points])
        token_s += float(weight @ slope)
        base_s += float(
            weight @ (np.maximum(0.0, once - slope * service.input_tokens) + [p.hop_s for p in points])
        )
        tensor = [
            n.gpus * n.gpu.tflops(service.precision) * CALIBRATED.get(n.gpu.name, Efficiency()).tensor
            for n in nodes
        ]
        compute.append(sum(tensor) / share)
        memory.append(sum(max(0.0, p.kv_capacity_gb) for p in points) / share)
        repeated = max(repeated, max(n.gpus for n in nodes) / model.kv_heads)
    lengths = service.input_tokens + service.output_tokens
    return Replica(
        library=library,
        rank=rank,
        plan=plan,
        decode_s=decode_s,
        prefill_s=Coefficients(base_s, token_s, 0.0),
        compute_tflops=min(compute),
        kv_capacity_gb=min(memory),
        kv_gb_per_token=model.kv_bytes_per_token * repeated * service.seen_tokens(lengths) / lengths / 1e9,
    )


def configuration(
    found: Replica,
    tiers: Mapping[str, str],
    *,
    max_replicas: int,
    startup_windows: int = 0,
    region: str = "",
) -> Configuration:
    """Return the instance's form of a template.

    Parameters
    ----------
    found : Replica
        From `replica`.
    tiers : mapping
        GPU type to the id of the tier on which its GPUs are rented.
    max_replicas : int
        Most replicas.
    startup_windows : int
        Windows from the grant to service.
    region : str
        Added to the id, where templates repeat by region.

    Returns
    -------
    Configuration
        Its id has the GPUs and the template's rank: ``"Phi-4-14B@1xL40S+1xL4:t37"``.
    """
    where = f":{region}" if region else ""
    return Configuration(
        id=f"{found.model.name}@{found.label}{where}",
        model=found.model.name,
        uses=tuple(Use(tier=tiers[name], gpus=n) for name, n in found.gpus.items()),
        compute_tflops=found.compute_tflops,
        kv_capacity_gb=found.kv_capacity_gb,
        kv_gb_per_token=found.kv_gb_per_token,
        max_concurrency=found.max_concurrency,
        max_replicas=max_replicas,
        startup_windows=startup_windows,
        pipeline_parallel=found.stages,
    )


def pair(found: Replica, requests: Requests) -> PairPerformance:
    """Return how a template serves one workload's requests."""
    return requests.served(found.service_s, found.prefill_s, found.work_tflop, label="modelled")
