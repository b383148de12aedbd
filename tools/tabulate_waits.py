"""Simulate a grid of queues, and write where the closed form errs into ``docs/results-queueing.md``.

    python -m tools.tabulate_waits

For every queue of the grid (servers, load, law of the service times and its cv2, cv2 of the arrivals) the share of
requests that wait longer than a slack is simulated. The file of ``--cells`` keeps one line a queue, so a run that was
stopped goes on. The part of the page between its marks has the ratios of the closed form to the simulation. It also has
the least error that any formula of the same inputs could have: laws of equal moments share one answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fleetgym.capacity.simulation.arrivals import Poisson, Renewal
from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.run import simulate
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.documents import write_atomically
from fleetgym.files.finished_cells import keep, read
from fleetgym.files.quantities import COUNT
from fleetgym.kernels.queueing import wait_exceeds
from fleetgym.runtime.programs import program
from tools.markdown import rewrite, table

SERVERS, LOADS = (16, 64, 256), (0.7, 0.85, 0.9, 0.95)
LAWS = (
    ("gamma", 0.0),
    ("gamma", 1.0),
    ("gamma", 3.0),
    ("lognormal", 3.0),
    ("gamma", 9.0),
    ("lognormal", 9.0),
)
BURSTS = (1.0, 8.0)
SLACKS = (0.0, 0.1, 0.3)  # in mean service times
#: Loads and slacks that the page shows; its summary counts all.
SHOWN_LOADS, SHOWN_SLACKS = (0.7, 0.9, 0.95), (0.0, 0.3)
REQUESTS = 300_000
#: Chances below this are not judged, and the error that a formula may have.
LEAST, ALLOWED = 0.005, 1.25
#: A cell is judged if its 99 % half width is at most this share of it.
KNOWN = 0.2


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


#: A cell: a queue, a slack, and the simulated chance with its half width.
Cell = tuple[Queue, float, float, float]


def queues() -> list[Queue]:
    """Return the grid."""
    grid = itertools.product(BURSTS, SERVERS, LOADS, LAWS)
    return [Queue(servers, load, law, cv2, arrival) for arrival, servers, load, (law, cv2) in grid]


def name_of(queue: Queue) -> str:
    """Return a queue's name in the file of cells."""
    return f"{queue.servers} {queue.load:g} {queue.law} {queue.cv2:g} {queue.arrival_cv2:g}"


def closed_form(queue: Queue, slack: float) -> float:
    """Return the environment's P(W > t)."""
    rate = queue.load * queue.servers
    return float(wait_exceeds(queue.servers, rate, 1.0, queue.cv2, queue.arrival_cv2, slack))


def all_cells(done: Mapping[str, Sequence[Sequence[float]]]) -> list[Cell]:
    """Return every simulated cell."""
    return [
        (queue, slack, mean, half)
        for queue in queues()
        if name_of(queue) in done
        for slack, (mean, half) in zip(SLACKS, done[name_of(queue)], strict=True)
    ]


def judged(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells whose chance is at least `LEAST`, and known well enough."""
    return [cell for cell in cells if cell[2] >= LEAST and cell[3] <= KNOWN * cell[2]]


def factor(cell: Cell) -> float:
    """Return closed form over simulation."""
    queue, slack, mean, _ = cell
    return closed_form(queue, slack) / mean


def worst(cells: Iterable[Cell]) -> tuple[float, float, int, int]:
    """Return the least and the largest ratio, how many cells are within the allowed error, and how many there are."""
    found = [factor(cell) for cell in cells]
    inside = sum(1.0 / ALLOWED <= ratio <= ALLOWED for ratio in found)
    return min(found), max(found), inside, len(found)


def best_possible(cells: Iterable[Cell]) -> tuple[float, Queue, float]:
    """Return the least factor by which a formula of the same inputs must err, and where.

    Laws of equal moments have one value of the formula. At best it lies between them, at their geometric mean.
    """
    groups: dict[tuple[float, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        queue, slack, *_ = cell
        groups[queue.servers, queue.load, queue.cv2, queue.arrival_cv2, slack].append(cell)

    def spread(group: list[Cell]) -> float:
        means = [mean for _, _, mean, _ in group]
        return math.sqrt(max(means) / min(means))

    group = max(groups.values(), key=spread)
    return spread(group), group[0][0], group[0][1]


def smoke(folder: Path) -> None:
    """Simulate a few requests of the first queues."""
    page = folder / "page.md"
    page.write_text("<!-- written by a tool: begin -->\n<!-- written by a tool: end -->\n", encoding="utf-8")
    main(["--requests", "300", "--first", "6", "--cells", str(folder / "cells.jsonl"), "--page", str(page)])


def main(argv: Sequence[str] | None = None) -> None:
    """Simulate what is missing, and write the part of the page."""
    parser = program(
        __doc__,
        writes="Part of docs/results-queueing.md, and results/waits.jsonl.",
        takes="Two CPU minutes.",
        smoke=smoke,
    )
    parser.add_argument(
        "--requests", type=of(COUNT), default=REQUESTS, help="of each replication (default: %(default)s)"
    )
    parser.add_argument("--first", type=of(COUNT), help="only the first N queues of the grid")
    parser.add_argument("--cells", type=Path, default=Path("results/waits.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("docs/results-queueing.md"))
    options = parser.parse_args(argv)
    done = read(options.cells)
    for queue in queues()[: options.first]:
        if name_of(queue) not in done:
            done[name_of(queue)] = simulated(queue, SLACKS, options.requests)
            keep(options.cells, name_of(queue), done[name_of(queue)])
    write_atomically(options.page, rewrite(options.page, written(all_cells(done))).encode())


def _ratios(cells: Sequence[Cell], queue: Queue) -> str:
    """Return closed form over simulation at each slack; a dash where the chance is small or not known well."""
    found = {cell[1]: f"{factor(cell):.2f}" for cell in judged(cells) if cell[0] == queue}
    return ", ".join(found.get(slack, "–") for slack in SHOWN_SLACKS) if found else "–"


def _table(cells: Sequence[Cell], arrival_cv2: float) -> str:
    names = [
        f"{'constant' if cv2 == 0 else 'exponential' if cv2 == 1 else f'{law}, {cv2:g}'}" for law, cv2 in LAWS
    ]
    rows = [
        [
            f"{servers}, {100 * load:.0f} %",
            *(_ratios(cells, Queue(servers, load, law, cv2, arrival_cv2)) for law, cv2 in LAWS),
        ]
        for servers in SERVERS
        for load in SHOWN_LOADS
    ]
    return table(["servers, load", *names], rows)


def _line(name: str, cells: Sequence[Cell]) -> list[str]:
    low, high, inside, count = worst(cells)
    return [name, f"{low:.2f} to {high:.2f}", f"{inside} of {count}"]


def written(cells: Sequence[Cell]) -> str:
    """Return the part of the page."""
    known = judged(cells)
    if not known:
        return "Nothing is judged yet."
    slacks = " and ".join(f"{slack:g}" for slack in SHOWN_SLACKS)
    parts = [
        f"Ratios of the closed form to the simulation at slacks of {slacks} mean service times, by the law of the "
        f"service times and its cv². A dash: the chance is below {LEAST:g}, or its 99 % half width is above "
        f"{100 * KNOWN:.0f} % of it. The last table counts every cell, at loads of 85 % and slacks of 0.1 too."
    ]
    for arrival_cv2 in BURSTS:
        parts += [f"Arrivals with a cv² of {arrival_cv2:g}:", _table(cells, arrival_cv2)]
    poisson = [cell for cell in known if cell[0].arrival_cv2 == 1.0]
    varied = [cell for cell in known if cell[0].cv2 >= 1.0]
    rows = [
        _line("all", known),
        _line("Poisson arrivals", poisson),
        _line("service cv² of at least 1", varied),
    ]
    parts.append(table(["cells", "ratio", f"within a factor of {ALLOWED:g}"], rows))
    parts.append(_limit(known))
    wrapped = [part if part.startswith("|") else textwrap.fill(part, 118) for part in parts]
    return "\n\n".join(part.strip("\n") for part in wrapped)


def _limit(known: Sequence[Cell]) -> str:
    """Return whether any formula of these inputs could be within the allowed error."""
    least, queue, slack = best_possible(known)
    where = f"{queue.servers} servers at {100 * queue.load:.0f} %, service cv² {queue.cv2:g}"
    where += f", arrival cv² {queue.arrival_cv2:g}, slack {slack:g}"
    if least <= ALLOWED:
        return f"Laws of equal cv² differ by a factor of at most {least**2:.2f}, so a formula of these inputs could do."
    return (
        f"No formula of the same inputs can do. Gamma and lognormal service of equal cv² differ by a factor of "
        f"{least**2:.2f} ({where}). A formula that sees only the cv² errs there by at least "
        f"{least:.2f} for one of them. So no correction is proposed for the next version. A third moment would help."
    )


if __name__ == "__main__":
    run_program(main)
