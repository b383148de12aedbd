"""Price lists with spot offers in; how much dearer plans are than the best fleet of a grid, on fresh days, out.

    python -m tools.check_spot_plans

Each list holds on-demand and spot offers of one to three GPUs at random prices, for a random hour of requests. It is
planned twice as `fleetgym plan` does: without a limit, and with one on the requests missed. The grid is independent of
the plan: every number of replicas of the two cheapest configurations on demand and the cheapest on spot, alone and in
pairs. Plans are compared with two of its fleets, all on the same fresh days:

- the *fair* one was chosen as a buyer has to: on the days on which the plan was chosen, with the same safety
- the *lucky* one was chosen on the fresh days themselves: it is the cheapest that happens to keep the limit there

A plan fails if it is dearer than the fair fleet by more than is allowed, or if it misses more than the limit by over
1.645 standard errors.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fleetgym.capacity.choice import (
    BASE,
    CHECKS,
    CHOICE_STREAM,
    MIX,
    SPOT,
    Fleet,
    Limits,
    spot_pools,
)
from fleetgym.capacity.held import MISSED, HeldFleets
from fleetgym.capacity.risk import RISK_STREAM, plan_with_risk
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.prices import Offer
from fleetgym.cli.process import run_program
from fleetgym.cli.text_tables import align
from fleetgym.cli.words import of
from fleetgym.files.quantities import COUNT, NUMBER, SHARE
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance
from fleetgym.model.window import COST_TERMS
from fleetgym.runtime.programs import program

_GPUS = {
    "A100-80GB": 1.8,
    "H100": 3.0,
    "H200": 3.8,
    "L40S": 1.2,
    "B200": 5.5,
}  # near what they cost on demand
_SEED = 29
_ROOM = 2.0  # times the replicas that nominal demand needs
_SIEVES = 10, 30  # days by which fleets are sorted: all, and the most promising again
_TRIED, _FOUND = 60, 4  # fleets of a kind that are tried, until so many are found
_LUCKY = 15


def random_instance(number: int, folder: Path) -> Instance:
    """Return an instance made of random requests and a random price list."""
    rng = np.random.default_rng([_SEED, number])
    rows = 4000
    times = np.sort(rng.uniform(0.0, 3600.0, rows)) + 9 * 3600.0
    tokens_in = np.clip(rng.lognormal(np.log(rng.uniform(300, 2000)), 0.8, rows), 10, 8000).astype(int)
    tokens_out = np.clip(rng.lognormal(np.log(rng.uniform(60, 300)), 0.7, rows), 2, 2000).astype(int)
    table = [f"{t:.3f},{a},{b}" for t, a, b in zip(times, tokens_in, tokens_out, strict=True)]
    (folder / "requests.csv").write_text("\n".join(["time,input_tokens,output_tokens", *table]) + "\n")
    gpus = rng.permutation(sorted(_GPUS))[: rng.integers(1, 4)]
    prices = {str(gpu): _GPUS[str(gpu)] * float(rng.uniform(0.7, 1.4)) for gpu in gpus}
    offers = [Offer(gpu=gpu, usd_per_gpu_h=round(usd, 4)) for gpu, usd in prices.items()]
    for gpu in list(prices)[: rng.integers(1, len(prices) + 1)]:
        discounted = round(prices[gpu] * float(rng.uniform(0.2, 0.8)), 4)
        offers.append(Offer(gpu=gpu, usd_per_gpu_h=discounted, market="spot"))
    return import_trace(
        folder / "requests.csv",
        prices=offers,
        slo="ttft=2,delay=20,error=0.05",
        models=["Llama-3.1-8B"],
        by="one",
        scale=float(rng.uniform(20.0, 80.0)),
        scenarios=1,
        name=f"list-{number}",
    ).instance


def grid(instance: Instance) -> list[Fleet]:
    """Return fleets of one configuration on demand, one on spot, or one of each, in every number of replicas."""
    cheapest = {}
    for is_spot, count in ((False, 2), (True, 1)):
        use = instance.gpu_use[spot_pools(instance) == is_spot].sum(axis=0)
        cheapest[is_spot] = sorted(np.flatnonzero(use).tolist(), key=lambda c: _usd_per_request(instance, c))[
            :count
        ]
    fleets = set()
    for pair in itertools.product(cheapest[False], cheapest[True]):
        most = [int(np.ceil(_ROOM * _replicas(instance, c))) for c in pair]
        for counts in itertools.product(*(range(n + 1) for n in most)):
            fleet = np.zeros(instance.num_configurations, dtype=int)
            fleet[list(pair)] = counts
            held = instance.gpu_use @ fleet
            if fleet.any() and np.all(held <= [pool.cap_gpus for pool in instance.pools]):
                fleets.add(tuple(fleet.tolist()))
    return sorted(fleets)


def _replicas(instance: Instance, c: int) -> float:
    """Return how many replicas of a configuration the nominal demand keeps busy."""
    from fleetgym.agents.view import View

    window = View(instance).snapshot()
    needs = (
        window.work_tflop[:, c] / window.compute_tflops[c],
        window.kv_gb_s[:, c] / window.kv_capacity_gb[c],
        window.service_s[:, c] / window.max_concurrency[c],
    )
    if not window.compatible[:, c].all():
        return np.inf
    return float(max(window.rate_rps @ need for need in needs))


def _usd_per_request(instance: Instance, c: int) -> float:
    return _replicas(instance, c) * float(instance.rental_usd_per_h[:, c].sum())


def ranked(instance: Instance, held: HeldFleets, most: float | None) -> dict[str, list[Fleet]]:
    """Return the grid by kind, the most promising first by a few of the days on which plans are chosen."""
    kinds: dict[str, list[Fleet]] = {}
    spot = spot_pools(instance)
    for fleet in sorted(grid(instance), key=lambda fleet: _rank(held, fleet, _SIEVES[0], most)):
        gpus = instance.gpu_use @ np.array(fleet)
        kind = MIX if gpus[spot].any() and gpus[~spot].any() else SPOT if gpus[spot].any() else BASE
        kinds.setdefault(kind, []).append(fleet)
    return {
        kind: sorted(fleets[:_TRIED], key=lambda fleet: _rank(held, fleet, _SIEVES[1], most))
        for kind, fleets in kinds.items()
    }


def fair_best(fleets: list[Fleet], held: HeldFleets, most: float | None) -> Fleet | None:
    """Return the cheapest fleet that keeps the limit safely on the days on which plans are chosen, if any does."""
    found: list[Fleet] = []
    for fleet in fleets:
        is_out = most is not None and any(_missed(held, fleet, n, -1.645) > most for n in CHECKS[1:-1])
        if not is_out and (most is None or _missed(held, fleet, CHECKS[-1], 1.645) <= most):
            found.append(fleet)
        if len(found) == _FOUND:
            break
    return min(found, key=lambda fleet: float(_costs(held, fleet, CHECKS[-1]).mean()), default=None)


def lucky_usd(fleets: list[Fleet], held: HeldFleets, days: int, most: float | None) -> float:
    """Return the least cost of the fleets that keep the limit on fresh days; infinite if none does."""
    return min(
        (
            float(_costs(held, fleet, days).mean())
            for fleet in fleets[:_LUCKY]
            if most is None or _missed(held, fleet, days, 0.0) <= most
        ),
        default=np.inf,
    )


def _missed(held: HeldFleets, fleet: Fleet, days: int, errors: float) -> float:
    """Return the mean share that is missed, plus so many standard errors."""
    missed = held.days(fleet, days)[:, MISSED]
    return float(missed.mean() + errors * missed.std() / np.sqrt(days))


def _rank(held: HeldFleets, fleet: Fleet, days: int, most: float | None) -> float:
    """Return the mean cost of few days; those that miss far more than is allowed come last."""
    is_far = most is not None and _missed(held, fleet, days, 0.0) >= 1.5 * most
    return float(_costs(held, fleet, days).mean()) + (1e9 if is_far else 0.0)


def _costs(held: HeldFleets, fleet: Fleet, days: int) -> np.ndarray:
    return held.days(fleet, days)[:, : len(COST_TERMS)].sum(axis=1)


def random_instances(numbers: range) -> Iterator[Instance]:
    """Yield an instance for each number."""
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            yield random_instance(number, Path(folder))


def check(
    instances: Iterable[Instance], days: int, agent: str, limits: Sequence[float | None], dearer: float
) -> int:
    """Print a row per instance and limit; return how many plans are dearer than allowed, or miss too much."""
    rows, failed = [], 0
    for instance in instances:
        chosen_on = HeldFleets(instance, [CHOICE_STREAM, 0])
        fresh = HeldFleets(instance, [RISK_STREAM, 0])
        for most in limits:
            given = None if most is None else Limits(miss_at_most=most)
            found = plan_with_risk(instance, agent, margin="best", days=0, limits=given)
            assert found.choice is not None
            plan = found.choice.best.fleet
            cost, missed = float(_costs(fresh, plan, days).mean()), _missed(fresh, plan, days, 0.0)
            kinds = ranked(instance, chosen_on, most)
            fair = {}
            for kind, fleets in kinds.items():
                best = fair_best(fleets, chosen_on, most)
                if best is not None:
                    fair[kind] = float(_costs(fresh, best, days).mean())
            lucky = min(lucky_usd(fleets, fresh, days, most) for fleets in kinds.values())
            excess = cost / min(fair.values()) - 1.0 if fair else -np.inf
            misses = most is not None and _missed(fresh, plan, days, -1.645) > most
            is_bad = excess > dearer or misses
            failed += is_bad
            rows.append(
                [
                    instance.id.removeprefix("list-"),
                    "-" if most is None else f"{100 * most:g}",
                    found.choice.best.kind,
                    f"{cost:,.0f}",
                    f"{100 * missed:.2f}",
                    *(f"{fair[kind]:,.0f}" if kind in fair else "-" for kind in (BASE, SPOT, MIX)),
                    f"{100 * excess:+.1f}" if fair else "-",
                    f"{100 * (cost / lucky - 1.0):+.1f}" if np.isfinite(lucky) else "-",
                    "BAD" if is_bad else "",
                ]
            )
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    head = [
        "list",
        "limit %",
        "plan",
        "USD/day",
        "missed %",
        BASE,
        SPOT,
        "both",
        "dearer %",
        "than lucky %",
        "",
    ]
    print(align(head, rows, left=3))
    print(f"{failed} of {len(rows)} plans are dearer by more than {100 * dearer:g} %, or miss too much")
    return failed


def smoke(folder: Path) -> int:
    """Check a toy, and make a list and its grid."""
    made = grid(random_instance(4, folder))
    return int(not made or check([load_instance("fleet-v0/toy/drop")], 4, "gh", [None, 0.5], 0.5) > 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = program(
        __doc__,
        writes="Nothing.",
        takes="About 50 s of CPU for each list.",
        smoke=smoke,
    )
    parser.add_argument("--lists", type=of(COUNT), default=20)
    parser.add_argument("--first", type=of(NUMBER), default=0, help="number of the first list (default: 0)")
    parser.add_argument("--days", type=of(COUNT), default=100, help="fresh days (default: 100)")
    parser.add_argument("--agent", default="agh", help="who plans (default: agh)")
    parser.add_argument(
        "--miss-at-most", type=of(SHARE), default=0.01, help="share of requests (default: 0.01)"
    )
    parser.add_argument("--dearer-at-most", type=of(SHARE), default=0.03, help="share (default: 0.03)")
    given = parser.parse_args(argv)
    lists = range(given.first, given.first + given.lists)
    limits = (None, given.miss_at_most)
    return int(check(random_instances(lists), given.days, given.agent, limits, given.dearer_at_most) > 0)


if __name__ == "__main__":
    run_program(main)
