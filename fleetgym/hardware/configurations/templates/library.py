"""Generate the library of a service's templates from node types and a size rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.configurations.templates import enumeration
from fleetgym.hardware.configurations.templates.plans import Plan, reach_of, unchecked_plan
from fleetgym.hardware.performance.replica import (
    DEFAULT,
    NodeType,
    Phase,
    ReplicaOptions,
    Service,
    throughput_table,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """The serving templates of one service and phase: for every multiset of nodes the best throughput.

    Throughputs are stored by the rank of the multiset; the placements are found again when asked for, in
    microseconds. `len` counts the templates that can serve.
    """

    service: Service
    nodes: tuple[NodeType, ...]
    phase: Phase
    max_nodes: int
    table: np.ndarray  # (max_nodes, K, L) requests per second
    throughput_rps: np.ndarray  # (ranks,) 0: cannot serve; -1: excluded

    def __len__(self) -> int:
        return int(np.count_nonzero(self.throughput_rps > 0.0))

    @property
    def binomial(self) -> np.ndarray:
        """The table that ranks are computed with."""
        return enumeration.binomials(len(self.nodes) + self.max_nodes + 1)

    def rank(self, nodes: Sequence[int]) -> int:
        """Return the rank of a multiset, given as indices of node types."""
        types = np.sort(np.asarray(nodes, dtype=np.int64)) + 1
        return int(enumeration.rank(types, types.size, self.max_nodes, self.binomial))

    def counts(self, ranks: np.ndarray) -> np.ndarray:
        """Return how many nodes of each type the multisets with `ranks` have, int16 (ranks, K).

        Examples
        --------
        >>> from fleetgym.hardware import catalog
        >>> phi = Service(model=catalog.model("Phi-4-14B"), input_tokens=1155, output_tokens=211,
        ...               prefill_slo_s=1.2, decode_slo_s=0.06)
        >>> pair = generate(phi, [NodeType(catalog.gpu("L4"), 1), NodeType(catalog.gpu("L40S"), 1)], "decode",
        ...                 max_nodes=2)
        >>> pair.counts(np.array([pair.rank([0, 1])])).tolist()
        [[1, 1]]
        """
        out = np.zeros((len(ranks), len(self.nodes)), dtype=np.int16)
        enumeration.count_nodes(np.asarray(ranks, dtype=np.int64), self.max_nodes, self.binomial, out)
        return out

    def templates(self) -> np.ndarray:
        """Return the ranks of all templates that can serve."""
        return np.flatnonzero(self.throughput_rps > 0.0)

    def undominated(self) -> np.ndarray:
        """Return the ranks of the templates that no division of their nodes into replicas matches.

        Exact and independent of prices: whatever an allocation does with a template that is left out, its
        nodes do as well or better as the replicas that match it. Running templates must be kept besides.
        """
        value = np.empty_like(self.throughput_rps)
        keep = np.zeros(value.size, dtype=np.bool_)
        enumeration.undominated(self.throughput_rps, self.max_nodes, self.binomial, value, keep)
        return np.flatnonzero(keep)

    def plan(self, rank: int) -> Plan:
        """Return the placement behind a template.

        Raises
        ------
        FleetgymError
            For a rank that is no template.
        """
        if not 0 < rank < self.throughput_rps.size or self.throughput_rps[rank] <= 0.0:
            raise FleetgymError(f"rank {rank} is no template of {self.service.model.name}; see `templates()`")
        types = np.zeros(self.max_nodes, dtype=np.int64)
        count = enumeration.unrank(rank, self.max_nodes, self.binomial, types)
        return unchecked_plan(self.table, types[:count] - 1)


def generate(
    service: Service,
    nodes: Sequence[NodeType],
    phase: Phase,
    *,
    max_nodes: int = 6,
    memory_ratio: float = 12.0,
    options: ReplicaOptions = DEFAULT,
) -> Library:
    """Return the library of a service: the best placement on every multiset of nodes.

    Parameters
    ----------
    service : Service
        Model, lengths and SLOs.
    nodes : sequence of NodeType
        Node types, in an order that the ranks depend on.
    phase : {"prefill", "decode", "both"}
        Which part of a request the templates serve.
    max_nodes : int
        Coral's N_max, 1 to 8.
    memory_ratio : float
        Coral's rho: the nodes' memory is below rho times the model's size in 16-bit weights.
    options : ReplicaOptions
        Assumptions of the throughput model.

    Returns
    -------
    Library
        With the throughput of every multiset.

    Raises
    ------
    FleetgymError
        For no node type, or a `max_nodes` or `memory_ratio` out of range.
    """
    if not 1 <= max_nodes <= 8:
        raise FleetgymError(f"max_nodes is {max_nodes}; expected 1 to 8")
    if not memory_ratio > 0.0:
        raise FleetgymError(f"memory_ratio is {memory_ratio}; expected above 0")
    nodes = tuple(nodes)
    if not nodes:
        raise FleetgymError("nodes is empty; expected at least one node type")
    table = throughput_table(service, nodes, phase, max_nodes, options)
    binomial = enumeration.binomials(len(nodes) + max_nodes + 1)
    size = int(binomial[len(nodes) + max_nodes, max_nodes])
    throughput = np.full(size, enumeration.EXCLUDED)
    memory_gb = np.array([node.memory_gb for node in nodes])
    cap_gb = memory_ratio * service.model.weight_gb_bf16
    enumeration.library(table, reach_of(table), memory_gb, cap_gb, max_nodes, binomial, throughput)
    return Library(service, nodes, phase, max_nodes, table, throughput)
