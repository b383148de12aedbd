"""From a grid of queues to a report: where the closed form of the tails errs, by simulation.

    python -m tools.check_queueing             # the grid, ten CPU seconds
    python -m tools.check_queueing --quick

For each queue (servers, utilisation, law of the service times and its cv2, cv2 of the arrivals) it prints P(W > t) at
thresholds t in mean service times: by simulation with its 99 % half width, by the closed form, and by the closed form
with Erlang's chance to wait, in which bursts of arrivals count for nothing.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.capacity.simulation.arrivals import Poisson, Renewal
from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.run import simulate
from fleetgym.cli.process import run_program
from fleetgym.cli.text_tables import align
from fleetgym.cli.words import of
from fleetgym.files.quantities import COUNT
from fleetgym.kernels.queueing import erlang_c, wait_exceeds
from fleetgym.runtime.programs import program

THRESHOLDS = (0.02, 0.1, 0.5, 2.0)  # mean service times
BURSTS = (4.0, 16.0)  # cv2 of arrivals beside Poisson's 1
LAWS = (("gamma", 0.0), ("gamma", 0.25), ("gamma", 1.0), ("gamma", 3.0), ("lognormal", 3.0), ("pareto", 3.0))


def without_bursts(servers: int, load: float, cv2: float, arrival_cv2: float, t: float) -> float:
    """Return P(W > t) with the chance to wait of Poisson arrivals: burstier ones only wait longer, if they do."""
    waiting = erlang_c(servers, load * servers)
    return waiting * math.exp(-2.0 * servers * (1.0 - load) * t / (arrival_cv2 + cv2))


@dataclasses.dataclass(frozen=True)
class Queue:
    """Servers with a mean service time of one second, and what arrives at them."""

    servers: int
    load: float
    law: str
    cv2: float
    arrival_cv2: float


def simulated(queue: Queue, slacks: Sequence[float], requests: int) -> list[tuple[float, float]]:
    """Return P(W > t) and its 99 % half width at each slack."""
    servers, load = queue.servers, queue.load
    rate = load * servers
    arrivals = Poisson(rate) if queue.arrival_cv2 == 1.0 else Renewal(rate, queue.arrival_cv2)
    found = simulate(
        Pool(replicas=1, slots=servers),
        Workload(arrivals=arrivals, service_s=1.0, service_cv2=queue.cv2, law=queue.law),
        window_s=max(requests / rate, 60.0),
        warmup_s=min(20.0 * (1.0 + 1.0 / (servers * (1.0 - math.sqrt(load)) ** 2)), requests / rate + 30.0),
        min_replications=12,
        max_replications=12,
        thresholds_s=tuple(slacks),
    ).wait_exceeds
    return [(float(found.mean[k, 0]), float(found.half_width[k, 0])) for k in range(len(slacks))]


def row(queue: Queue, requests: int) -> list[list[str]]:
    """Return the lines of one queue."""
    lines = []
    slacks = (0.0, *THRESHOLDS)
    for t, (mean, half) in zip(slacks, simulated(queue, slacks, requests), strict=True):
        closed = wait_exceeds(queue.servers, queue.load * queue.servers, 1.0, queue.cv2, queue.arrival_cv2, t)
        erlang = without_bursts(queue.servers, queue.load, queue.cv2, queue.arrival_cv2, t)
        if max(mean, closed) < 1e-4:
            continue
        lines.append(
            [
                f"{queue.servers}",
                f"{queue.load:.2f}",
                f"{queue.law} {queue.cv2:g}",
                f"{queue.arrival_cv2:g}",
                f"{t:g}",
                f"{mean:.4f}",
                f"{half:.4f}",
                f"{closed:.4f}",
                f"{erlang:.4f}",
                _ratio(closed, mean),
                _ratio(erlang, mean),
            ]
        )
    return lines


def _ratio(formula: float, mean: float) -> str:
    return f"{formula / mean:.2f}" if mean > 0.0 else "-"


def summary(pairs: list[tuple[float, float]]) -> str:
    """Return how far a formula is from the simulation over all lines."""
    errors = [abs(formula - mean) for formula, mean in pairs]
    logs = [abs(math.log(formula / mean)) for formula, mean in pairs if mean > 1e-3 and formula > 0.0]
    factor = math.exp(float(np.median(logs)))
    return (
        f"mean absolute error {np.mean(errors):.4f}, largest {max(errors):.4f}; "
        f"off by a factor of {factor:.2f} in the median where P > 0.001"
    )


def smoke(folder: Path) -> int:
    """Simulate the quick grid with few requests."""
    return main(["--quick", "--requests", "500"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report."""
    parser = program(__doc__, writes="No file.", takes="Ten CPU seconds.", smoke=smoke)
    parser.add_argument("--quick", action="store_true", help="few queues, short runs")
    parser.add_argument(
        "--requests", type=of(COUNT), help="of each queue (default: 150,000; with --quick 20,000)"
    )
    arguments = parser.parse_args(argv)
    quick = arguments.quick
    requests = arguments.requests or (20_000 if quick else 150_000)
    sizes = (16,) if quick else (1, 16, 256)
    loads = (0.9,) if quick else (0.7, 0.85, 0.95)
    begin, lines = time.process_time(), []
    for servers in sizes:
        for load in loads:
            cases = [(law, cv2, 1.0) for law, cv2 in LAWS] + [("gamma", 1.0, bursts) for bursts in BURSTS]
            for law, cv2, arrival_cv2 in cases:
                lines += row(Queue(servers, load, law, cv2, arrival_cv2), requests)
    head = [
        "servers",
        "load",
        "service",
        "ca2",
        "t/E[S]",
        "P(W>t)",
        "+-",
        "closed",
        "Erlang",
        "closed/sim",
        "Erl/sim",
    ]
    print(align(head, lines, left=0))
    for name, column in (("closed form", 7), ("with Erlang's chance to wait", 8)):
        print(f"{name}: {summary([(float(line[column]), float(line[5])) for line in lines])}")
    print(f"{time.process_time() - begin:.0f} CPU-seconds")
    return 0


if __name__ == "__main__":
    run_program(main)
