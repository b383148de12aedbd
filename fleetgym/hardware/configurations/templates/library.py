"""Generate the library of a service's templates from node types and a size rule; write and read it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.files.archives import read_arrays
from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import DataError, FleetgymError
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
    memory_ratio: float
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the throughputs and what they were made from to an ``.npz`` file."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, throughput_rps=self.throughput_rps, key=self.key)
        write_atomically(path, buffer.getvalue())

    @property
    def key(self) -> str:
        """A digest of everything that the throughputs follow from."""
        return _key(self.table, self.nodes, self.service, self.max_nodes, self.memory_ratio)


def generate(
    service: Service,
    nodes: Sequence[NodeType],
    phase: Phase,
    *,
    max_nodes: int = 6,
    memory_ratio: float = 12.0,
    options: ReplicaOptions = DEFAULT,
    folder: str | os.PathLike[str] | None = None,
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
    folder : path, optional
        A folder with saved libraries: what is there is read, what is not is saved.

    Returns
    -------
    Library
        With the throughput of every multiset.

    Raises
    ------
    FleetgymError
        For no node type, or a `max_nodes` or `memory_ratio` out of range.
    DataError
        If a file in `folder` is damaged.
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
    path = None
    if folder is not None:
        key = _key(table, nodes, service, max_nodes, memory_ratio)
        path = Path(folder) / f"{service.model.name}-{phase}-{key}.npz"
    if path is not None and path.exists():
        return Library(service, nodes, phase, max_nodes, memory_ratio, table, _read(path, size))
    throughput = np.full(size, enumeration.EXCLUDED)
    memory_gb = np.array([node.memory_gb for node in nodes])
    cap_gb = memory_ratio * service.model.weight_gb_bf16
    enumeration.library(table, reach_of(table), memory_gb, cap_gb, max_nodes, binomial, throughput)
    found = Library(service, nodes, phase, max_nodes, memory_ratio, table, throughput)
    if path is not None:
        found.save(path)
    return found


def _key(
    table: np.ndarray, nodes: Sequence[NodeType], service: Service, max_nodes: int, memory_ratio: float
) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(table).tobytes())
    memory = [node.memory_gb for node in nodes]
    digest.update(repr((memory, service.model.weight_gb_bf16, max_nodes, memory_ratio)).encode())
    return digest.hexdigest()[:16]


def _read(path: Path, size: int) -> np.ndarray:
    try:
        throughput = read_arrays(path, ["throughput_rps"])["throughput_rps"]
    except DataError as error:
        raise DataError(f"{error.message}; delete it", source=error.source) from None
    if throughput.shape != (size,):
        raise DataError(f"expected {size} throughputs, got shape {throughput.shape}", "$").in_file(path)
    return throughput
