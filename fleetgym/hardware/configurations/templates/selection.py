"""Select the few templates that an instance holds from whole libraries, by a stated rule.

Per model and set of GPU types: the template with the best throughput per dollar, and the one with the best
throughput per GPU. Where that is more than the limit, the ones that lose most per dollar against their model's best
go, but never a model's best.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.configurations.templates.library import Library

#: Most configurations of an instance that are made of templates.
LIMIT = 512


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A template that was selected."""

    library: int  # index in the list of libraries
    rank: int
    throughput_rps: float
    usd_per_h: float
    gpus: int


def select(libraries: Sequence[Library], usd_per_gpu_h: dict[str, float], limit: int = LIMIT) -> list[Chosen]:
    """Return the templates that an instance holds.

    Parameters
    ----------
    libraries : sequence of Library
        One per model, phase ``"both"``.
    usd_per_gpu_h : dict
        List price of each GPU type, by name. Where there are several regions, of any one: prices that are
        proportional select the same templates.
    limit : int
        Most templates; with R regions, `LIMIT` // R.

    Returns
    -------
    list of Chosen
        By library, then by falling throughput per dollar.

    Raises
    ------
    FleetgymError
        If `limit` is below the number of libraries.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> from fleetgym.hardware.configurations.templates import generate
    >>> from fleetgym.hardware.performance.replica import NodeType, Service
    >>> phi = Service(model=catalog.model("Phi-4-14B"), input_tokens=1155, output_tokens=211,
    ...               prefill_slo_s=1.2, decode_slo_s=0.06)
    >>> nodes = [NodeType(catalog.gpu("L4"), 1), NodeType(catalog.gpu("L40S"), 1)]
    >>> found = generate(phi, nodes, "both", max_nodes=3)
    >>> len(select([found], {"L4": 0.8, "L40S": 1.9})) <= 2 * 3
    True
    """
    if limit < len(libraries):
        raise FleetgymError(f"limit is {limit}; {len(libraries)} libraries need at least one template each")
    chosen, loss = [], []
    for index, library in enumerate(libraries):
        found = _best_by_support(library, index, usd_per_gpu_h)
        worth = np.array([c.throughput_rps / c.usd_per_h for c in found])
        chosen += found
        loss += (1.0 - worth / worth.max(initial=1e-300)).tolist()
    kept = sorted(range(len(chosen)), key=lambda k: (loss[k], chosen[k].library, chosen[k].rank))[:limit]
    kept.sort(key=lambda k: (chosen[k].library, loss[k], chosen[k].rank))
    return [chosen[k] for k in kept]


def _best_by_support(library: Library, index: int, usd_per_gpu_h: dict[str, float]) -> list[Chosen]:
    """Return the best templates per dollar and per GPU of every set of GPU types."""
    ranks = library.undominated()
    counts = library.counts(ranks).astype(float)
    size = np.array([node.gpus for node in library.nodes], dtype=float)
    price = size * np.array([usd_per_gpu_h[node.gpu.name] for node in library.nodes])
    types = {name: k for k, name in enumerate(dict.fromkeys(node.gpu.name for node in library.nodes))}
    bit = np.array([1 << types[node.gpu.name] for node in library.nodes])
    support = np.bitwise_or.reduce(np.where(counts > 0, bit, 0), axis=1) if ranks.size else np.zeros(0)
    served, usd, gpus = library.throughput_rps[ranks], counts @ price, counts @ size
    best = set()
    for kind in np.unique(support):
        here = np.flatnonzero(support == kind)
        best.add(int(here[np.argmax(served[here] / usd[here])]))
        best.add(int(here[np.argmax(served[here] / gpus[here])]))
    return [Chosen(index, int(ranks[k]), float(served[k]), float(usd[k]), int(gpus[k])) for k in sorted(best)]
