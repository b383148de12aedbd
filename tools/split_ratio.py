"""From demand mixes to what fixed ratios of prefill and decode nodes cost, against phases that are bought apart.

    python -m tools.split_ratio

A linear program over one window: rent of nodes, fractions allowed, everything is served. *Free*: prefill and decode
nodes in any numbers, each prompt's KV cache going to any decode node. *Fixed ratios*: split replicas only, as in
`fleetgym.hardware.configurations.templates.split`. *All columns*: those and single nodes that serve both phases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from fleetgym.cli.process import run_program
from fleetgym.families.multi import SPLIT_DECODE_SLO_S
from fleetgym.files.markdown import table
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.templates import generate
from fleetgym.hardware.configurations.templates.split import RATIOS, split_replica
from fleetgym.hardware.performance.replica import NodeType, Service
from fleetgym.runtime.programs import program

#: List prices of RunPod Secure on 2026-10-10, as in the family `split`.
USD_PER_GPU_H = {
    name: min(p.usd_per_gpu_h for p in catalog.prices() if (p.gpu, p.provider) == (name, "RunPod Secure"))
    for name in ("L40S", "A100-80GB", "H100")
}
#: Requests: mean input and output tokens.
MIXES = {
    "chat": ((1155.0, 211.0),),
    "code": ((2048.0, 28.0),),
    "reasoning": ((600.0, 1500.0),),
    "chat and code": ((1155.0, 211.0), (2048.0, 28.0)),
    "code and reasoning": ((2048.0, 28.0), (600.0, 1500.0)),
    "all three": ((1155.0, 211.0), (2048.0, 28.0), (600.0, 1500.0)),
}
RATE_RPS = 100.0  # of each kind of request


@dataclasses.dataclass(frozen=True)
class Server:
    """Something to rent: its price, and for each limit the requests per second of each kind that fill it alone."""

    usd_per_h: float
    limits_rps: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Rents:
    """The cheapest fleets of one mix, USD per hour."""

    free: float
    fixed: float
    columns: float


def smoke(folder: Path) -> int:
    """Solve one mix."""
    return main(["--mixes", "chat", "--models", "Llama-3.1-8B"])


def main(argv: list[str] | None = None) -> int:
    """Print a line per model and mix."""
    parser = program(__doc__, writes="Nothing.", takes="A CPU minute.", smoke=smoke)
    parser.add_argument("--models", nargs="+", default=["Llama-3.1-8B", "Qwen3-32B"])
    parser.add_argument("--mixes", nargs="+", choices=tuple(MIXES), default=list(MIXES))
    arguments = parser.parse_args(argv)
    rows = []
    for model in arguments.models:
        for mix in arguments.mixes:
            found = rents(model, MIXES[mix])
            extra = [f"{100 * (usd / found.free - 1):+.1f} %" for usd in (found.fixed, found.columns)]
            rows.append([f"`{model}`", mix, f"{found.free:.1f}", *extra])
    print(table(["model", "requests", "free, USD/h", "fixed ratios", "all columns"], rows, 2), end="")
    return 0


def rents(model: str, mix: Sequence[tuple[float, float]], rate_rps: float = RATE_RPS) -> Rents:
    """Return what the cheapest fleets cost, fractions allowed.

    Parameters
    ----------
    model : str
        A name of the catalogue.
    mix : sequence of tuple of float
        Mean input and output tokens of each kind of request.
    rate_rps : float
        Arrivals per second of each.
    """
    nodes = [NodeType(catalog.gpu(name), n) for name in USD_PER_GPU_H for n in (1, 2, 4)]
    services = [
        Service(
            model=catalog.model(model),
            precision="fp16",
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            prefill_slo_s=0.8,
            decode_slo_s=SPLIT_DECODE_SLO_S,
        )
        for tokens_in, tokens_out in mix
    ]
    one = {(p, d): [split_replica(s, p, d, (1, 1)) for s in services] for p in nodes for d in nodes}
    pairs = {pair: [f for f in found if f is not None] for pair, found in one.items() if all(found)}
    prefill = {
        p: Server(_node_usd(p), (tuple(f.prefill_rps for f in found),)) for (p, _), found in pairs.items()
    }
    decode = {
        d: Server(_node_usd(d), (tuple(f.decode_rps for f in found),)) for (_, d), found in pairs.items()
    }
    fixed = [
        Server(
            ratio[0] * _node_usd(p) + ratio[1] * _node_usd(d),
            (
                tuple(ratio[0] * f.prefill_rps for f in found),
                tuple(ratio[1] * f.decode_rps for f in found),
                tuple(min(ratio) * f.link_rps for f in found),
            ),
        )
        for (p, d), found in pairs.items()
        for ratio in RATIOS
    ]
    libraries = [
        generate(service, nodes, "both", max_nodes=1) for service in services
    ]  # ranks are nodes in each
    both = [
        Server(float(usd), (tuple(float(library.throughput_rps[rank]) for library in libraries),))
        for rank in range(len(libraries[0].throughput_rps))
        if all(library.throughput_rps[rank] > 0 for library in libraries)
        for usd in libraries[0].counts(np.array([rank])) @ [_node_usd(node) for node in nodes]
    ]
    apart = least_rent(list(prefill.values()), rate_rps) + least_rent(list(decode.values()), rate_rps)
    return Rents(apart, least_rent(fixed, rate_rps), least_rent(fixed + both, rate_rps))


def least_rent(servers: Sequence[Server], rate_rps: float) -> float:
    """Return the rent of the cheapest servers for so many requests per second of each kind, in USD per hour.

    Parameters
    ----------
    servers : sequence of Server
        What can be rented, in any fractions.
    rate_rps : float
        Arrivals per second of each kind.
    """
    kinds, limits = len(servers[0].limits_rps[0]), sum(len(server.limits_rps) for server in servers)
    count = len(servers)
    served, within = np.zeros((kinds, count * (1 + kinds))), np.zeros((limits, count * (1 + kinds)))
    row = 0
    for n, server in enumerate(servers):
        first = count + n * kinds
        served[:, first : first + kinds] = np.eye(kinds)
        for speeds in server.limits_rps:  # the time that each kind takes, at most that of all servers
            within[row, first : first + kinds] = [1.0 / speed for speed in speeds]
            within[row, n] = -1.0
            row += 1
    cost = np.concatenate([[server.usd_per_h for server in servers], np.zeros(count * kinds)])
    solved = linprog(cost, A_ub=within, b_ub=np.zeros(limits), A_eq=served, b_eq=np.full(kinds, rate_rps))
    if solved.status != 0:
        raise RuntimeError(f"no fleet serves this demand: {solved.message}")
    return float(solved.fun)


def _node_usd(node: NodeType) -> float:
    return node.gpus * USD_PER_GPU_H[node.gpu.name]


if __name__ == "__main__":
    run_program(main)
