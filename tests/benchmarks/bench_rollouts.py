"""Time rollouts on recorded searches of `lookahead`, against the same windows played as spans of one memory.

"spans": one compiled call per path (`play_span`), with one memory that all share, is what an agent could do before
`View.rollout`. "rollout": one call per target. Both play the same targets up to the same limits, in turns, in one
process, and the best turn counts; a window counts if the spans play it, whether the rollout solves or remembers it.
"estimate": the neighbours that were priced by duals (`View.estimate`), per window of each.
"HiGHS": the routing programs of such windows alone, passed to a warm solver from Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import highspy
import numpy as np

from fleetgym import View
from fleetgym.agents.beliefs.belief import Paths
from fleetgym.baselines.lookahead import Lookahead
from fleetgym.cli.process import run_program
from fleetgym.kernels.compile import jit
from fleetgym.kernels.economics import NUM_MOMENTS, NUM_ROUTE_ROWS, R_COST, R_DELAY, R_ERROR, R_SHARE, R_USE
from fleetgym.kernels.erlang_batch import NUM_QUEUE_ROWS
from fleetgym.kernels.lowlevel import borrow
from fleetgym.kernels.records import Memory, PackedConditions, unpack
from fleetgym.kernels.rollouts import copy_fleet, new_track
from fleetgym.kernels.window import extern_play
from fleetgym.model.window import FleetState
from fleetgym.runtime.programs import program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
import routing_lps

INSTANCES = ("ou-s-101", "trace-m-101", "drop-m-101", "multi-m-101", "tail-m-101")
#: Windows of the day at which searches are recorded, after so many that are played.
DECISIONS, BEFORE = 6, 12
TURNS = 3


class Decision(NamedTuple):
    """What one search asked for."""

    state: FleetState
    paths: Paths
    targets: list[np.ndarray]
    limits: list[float]
    priced: list[np.ndarray]  # each: a fleet and its neighbours


class Recorder(View):
    """A view that writes down what it is asked to play."""

    decisions: list[Decision]

    def rollout(self, targets: Any, conditions: Paths, *, weights: Any = None, limit: float = np.inf) -> Any:
        """Note targets and limit."""
        decision = self._decision(conditions)
        decision.targets.append(np.array(targets[0]))
        decision.limits.append(limit)
        return super().rollout(targets, conditions, weights=weights, limit=limit)

    def estimate(self, targets: Any, conditions: Paths, *, weights: Any = None) -> Any:
        """Note targets."""
        self._decision(conditions).priced.append(np.array(targets))
        return super().estimate(targets, conditions, weights=weights)

    def _decision(self, paths: Paths) -> Decision:
        if not self.decisions or self.decisions[-1].paths is not paths:
            self.decisions.append(Decision(self._state.copy(), paths, [], [], []))
        return self.decisions[-1]


def record(name: str, decisions: int = DECISIONS, before: int = BEFORE, **settings: Any) -> Recorder:
    """Return a view with the searches of some windows, spread over a day."""
    env = gymnasium.make("FleetAlloc-v0", instance=f"fleet-v1/dev/{name}")
    observation, info = env.reset(seed=1)
    view = Recorder(env.unwrapped.instance)
    view.decisions = []
    agent = Lookahead(**settings)
    view.update(info)
    agent.reset(view, seed=0)
    for _ in range(before + decisions):
        view.update(info)
        observation, _, _, _, info = env.step(agent.act(observation, info))
    view.decisions = view.decisions[before:]
    return view


@jit
def play_span(packed, basis, active, workload, available, price, target, begin, end, limit_usd, track):
    """Play windows until they cost more than a limit; return the status of the routing, and where that ended."""
    packed, target, track = borrow((packed, target, track))
    season, memory = borrow(PackedConditions(workload, available, price)), borrow(Memory(basis, active))
    _, _, played = unpack(packed)
    total = 0.0
    for t in range(begin, end):
        copy_fleet(track.fleet[t], track.fleet[t + 1])
        conditions = PackedConditions(season.workload[t], season.available[t], season.price[t])
        status, _, track.spent_usd[t + 1] = extern_play(
            packed, conditions, target[t], t == 0, track.spent_usd[t], track.fleet[t + 1], memory
        )
        if status != 0:
            return status, t
        track.cost_usd[t] = 0.0
        for k in range(played.terms_usd.shape[0]):
            track.cost_usd[t] += played.terms_usd[k]
        total += track.cost_usd[t]
        if total > limit_usd:
            return 0, t + 1
    return 0, end


class Spans:
    """The same windows by calls of `play_span`, in one memory."""

    def __init__(self, view: View, decisions: Sequence[Decision]):
        self._model, self._router = view._model, view._model.new_router()
        self.calls: list[tuple[Any, ...]] = []
        self.windows = 0
        for decision in decisions:
            for target, limit in zip(decision.targets, decision.limits, strict=True):
                self._prepare(decision, target, limit)

    def _prepare(self, decision: Decision, target: np.ndarray, limit: float) -> None:
        """Play once, to know for each path the limit that a search would give it: what is left of the target's."""
        paths, state = decision.paths, decision.state
        windows = paths.workload.shape[1]
        first = 0 if state.window == 0 else 1  # window 0 of a track is that of the episode
        wanted = np.tile(target, (windows + first, 1))
        hold = self._least(decision, target)
        total, ahead = 0.0, float(paths.weight @ hold)
        for p, weight in enumerate(paths.weight):
            if weight <= 0:
                continue
            ahead -= weight * hold[p]
            track = new_track(windows + first, state.replicas)
            track.fleet[first], track.spent_usd[first] = state.replicas, state.spent_usd
            fields = [
                np.concatenate((field[p, :first], field[p]))
                for field in (paths.workload, paths.available, paths.price)
            ]
            left = (limit - total - ahead) / weight
            call = (*fields, wanted, first, windows + first, left, track)
            self.calls.append(call)
            _, stop = self._play(call)
            self.windows += stop - first
            total += weight * float(track.cost_usd[first:stop].sum())
            if total + ahead > limit:
                break

    def _least(self, decision: Decision, target: np.ndarray) -> np.ndarray:
        """Return the least rent of a target on each path; 0 where it does not fit."""
        problem, paths = self._model.problem, decision.paths
        rent = np.einsum("ptg,g->p", paths.price, problem.rental_usd @ target)
        fits = np.all(problem.gpu_use @ target <= paths.available, axis=(1, 2))
        return np.where(fits & (self._model.instance.budget is None), rent, 0.0)

    def _play(self, call: tuple[Any, ...]) -> tuple[int, int]:
        status, stop = play_span(self._router.packed.words, *self._router.memory, *call)
        self._model.check(status)
        return status, stop

    def run(self) -> None:
        """Play all calls."""
        for call in self.calls:
            self._play(call)

    def call_s(self) -> float:
        """Return what the calls take that play no window."""
        call = self.calls[0]
        end = call[3].shape[0]
        begin = time.process_time()
        for _ in range(2000):
            self._play((*call[:4], end, end, *call[6:]))
        return (time.process_time() - begin) / 2000


def rollouts(view: View, decisions: Sequence[Decision]) -> None:
    """Play all targets by `View.rollout`, as the search did."""
    for decision in decisions:
        view._state = decision.state
        for target, limit in zip(decision.targets, decision.limits, strict=True):
            View.rollout(view, target[None], decision.paths, limit=limit)


def estimates(view: View, decisions: Sequence[Decision]) -> None:
    """Price all neighbours by `View.estimate`, as the search did."""
    for decision in decisions:
        view._state = decision.state
        for targets in decision.priced:
            View.estimate(view, targets, decision.paths)


def highs_us(view: View, decisions: Sequence[Decision]) -> float:
    """Return what the routing of a window takes in HiGHS: a warm solver to which each program is passed."""
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
        solver.setOptionValue(option, value)
    models = [
        routing_lps.to_highs(routing_lps.to_matrix(_routing_program(view, decision, t)))
        for decision in decisions
        for t in range(decision.paths.workload.shape[1])
    ]
    begin = time.process_time()
    for model in models:
        solver.passModel(model)
        solver.run()
    return 1e6 * (time.process_time() - begin) / len(models)


def _routing_program(view: View, decision: Decision, t: int) -> routing_lps.RoutingLP:
    """Return the routing program of a window in which the last target serves, as `operate` leaves it."""
    router, serving = view._model.new_router(), decision.targets[-1]
    view._model.operate(serving, decision.paths.conditions(0, t), router)
    scratch, workloads, n = router.played.scratch, view.instance.num_workloads, np.count_nonzero(serving)
    shapes = [(NUM_ROUTE_ROWS, workloads, n), (workloads, 3), (2, n, 3), (3, n)]
    shapes += [(NUM_MOMENTS, n), (NUM_QUEUE_ROWS, n), (workloads,)]
    parts, end = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        parts.append(scratch.numbers[end : end + size].reshape(shape))
        end += size
    routes, _, segment, capacity, _, _, unserved = parts
    allowed = scratch.flags[: workloads * n].reshape(workloads, n)
    return routing_lps.RoutingLP(
        *(routes[R_COST], unserved, routes[R_DELAY], routes[R_ERROR], routes[R_USE:R_SHARE]),
        *(capacity, segment[0], segment[1], allowed),
    )


def measure(view: Recorder, turns: int) -> dict[str, float]:
    """Return CPU microseconds per window of spans, without and with their calls, of rollouts and of estimates."""
    spans = Spans(view, view.decisions)
    runs = {
        "spans": spans.run,
        "rollout": lambda: rollouts(view, view.decisions),
        "estimate": lambda: estimates(view, view.decisions),
    }
    best = dict.fromkeys(runs, np.inf)
    for _ in range(turns):
        for kind, run in runs.items():
            begin = time.process_time()
            run()
            best[kind] = min(best[kind], time.process_time() - begin)
    inside = best["spans"] - len(spans.calls) * spans.call_s()
    scale = 1e6 / spans.windows
    priced = sum(
        (len(targets) - 1) * np.prod(d.paths.workload.shape[:2])
        for d in view.decisions
        for targets in d.priced
    )
    return {
        "windows": spans.windows,
        "spans": inside * scale,
        "with calls": best["spans"] * scale,
        "rollout": best["rollout"] * scale,
        "estimate": best["estimate"] * 1e6 / priced,
        "HiGHS": highs_us(view, view.decisions),
    }


class Told(NamedTuple):
    """What estimates say of single moves, beside what rollouts say."""

    neighbours: int
    cheaper: int
    told: float  # share of the dearer ones that are estimated dearer
    lost: float  # share of the cheaper ones that are estimated dearer
    lost_gain: float  # what these save, as a share of what all cheaper ones save


def told(view: View, decisions: Sequence[Decision]) -> Told:
    """Compare estimates with rollouts on all neighbours that were priced."""
    estimated, true = [], []
    for decision in decisions:
        view._state = decision.state
        for targets in decision.priced:
            for found, usd in (
                (estimated, View.estimate(view, targets, decision.paths)),
                (true, View.rollout(view, targets, decision.paths)),
            ):
                found.extend((usd[1:] - usd[0]) / usd[0])
    dearer, gain = np.array(estimated) > 0.0, -np.array(true)
    cheaper = gain > 1e-9
    return Told(
        len(gain),
        int(cheaper.sum()),
        float(dearer[~cheaper].mean()),
        float(dearer[cheaper].mean()) if cheaper.any() else 0.0,
        float(gain[cheaper & dearer].sum() / max(1e-9, gain[cheaper].sum())),
    )


def table(names: Sequence[str], turns: int = TURNS, **effort: Any) -> None:
    """Print a row for each instance: what windows take, then what estimates are worth."""
    print(
        "instance      windows  spans  with calls  rollout with calls   ratio  estimate    HiGHS  "
        "(CPU us per window)"
    )
    views = {name: record(name, **effort) for name in names}
    for name, view in views.items():
        row = measure(view, turns)
        print(
            f"{name:12} {row['windows']:8.0f} {row['spans']:6.1f} {row['with calls']:11.1f} "
            f"{row['rollout']:19.1f} {row['rollout'] / row['spans']:7.2f} {row['estimate']:9.2f} {row['HiGHS']:8.0f}"
        )
    print("instance      neighbours  cheaper  dearer told  cheaper lost  with of the gain")
    for name, view in views.items():
        count, cheaper, dearer, lost, gain = told(view, view.decisions)
        print(f"{name:12} {count:11} {cheaper:8} {dearer:12.0%} {lost:13.0%} {gain:17.0%}")


def smoke(folder: Path) -> None:
    """Record two searches on the smallest instance."""
    table(INSTANCES[:1], decisions=1, before=1, turns=1, paths=2, windows=2)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    program(__doc__, writes="No file.", takes="Two CPU minutes.", smoke=smoke).parse_args(argv)
    table(INSTANCES)


if __name__ == "__main__":
    run_program(main)
