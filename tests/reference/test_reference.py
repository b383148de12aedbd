"""The reference evaluator against hand calculations, exact arithmetic and the rules that must always hold."""

from __future__ import annotations

import ast
import copy
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog
from toys import (
    affine,
    configuration,
    make_instance,
    nominal_scenario,
    pool,
    random_actions,
    random_instance,
    random_scenario,
    with_laws,
    workload,
)

from fleetgym import reference
from fleetgym.files.errors import DataError
from fleetgym.kernels import queueing
from fleetgym.model.instance import Instance
from fleetgym.reference import certified_lp, routing

P4 = [pool("p", 4)]


def one(
    workload_changes: dict[str, Any] | None = None,
    configuration_changes: dict[str, Any] | None = None,
    performance: dict[str, Any] | None = None,
    **changes: Any,
) -> Instance:
    """Return one workload of 1 request/s (300 a window) on configuration A: 10 servers, 1 s of service."""
    return make_instance(
        P4,
        [configuration("A", {"p": 1}, **(configuration_changes or {}))],
        None,
        [workload("chat", **(workload_changes or {}))],
        performance,
        **changes,
    )


def first_step(instance: Instance, target: list[int], **scenario: Any) -> dict[str, Any]:
    """Return what happens in window 0."""
    return reference.ReferenceEpisode(instance, nominal_scenario(instance, **scenario)).step(target)


def costs(step: dict[str, Any]) -> dict[str, float]:
    """Return the cost terms above zero."""
    return {name: step[name] for name in reference.COST_TERMS if step[name] > 0}


# -- one window by hand


def test_nothing_runs() -> None:
    """300 requests at 0.1 USD each go unserved."""
    step = first_step(one(), [0])
    assert costs(step) == pytest.approx({"unserved": 30.0})
    assert step["unserved_share"] == step["miss_share"] == [1.0]


def test_served_in_full() -> None:
    """Two replicas cost two GPUs at 1 USD, and nothing goes wrong."""
    step = first_step(one(), [2])
    assert costs(step) == pytest.approx({"rental": 2.0})
    assert step["routing"] == [[1.0]]


def test_every_holding_term() -> None:
    """Price factor 1.5 on rent but not on storage (12 USD/h = 1 USD a window); a fee per grant."""
    instance = one(None, {"model_storage_usd_per_h": 12.0, "startup_usd": 0.25})
    step = first_step(instance, [2], price_factor=[[1.5]])
    assert costs(step) == pytest.approx({"rental": 3.0, "model_storage": 2.0, "startup": 0.5})


def test_every_operating_term() -> None:
    """300 requests: 0.001 USD per second of 2 s, 0.01 USD of storage."""
    instance = one({"delay_usd_per_s": 1e-3}, None, {"delay_s": affine(2.0), "storage_usd": 0.01})
    step = first_step(instance, [1])
    assert costs(step) == pytest.approx({"rental": 1.0, "delay": 0.6, "data_storage": 3.0})


def test_lengths_and_factors() -> None:
    """D = 2 · (1 + 0.01 · 100 · 3 + 0.02 · 100 · 0.5) = 10 s."""
    instance = one({"delay_usd_per_s": 1e-3}, None, {"delay_s": affine(1.0, 0.01, 0.02)})
    step = first_step(instance, [1], input_scale=[[3.0]], output_scale=[[0.5]], delay_factor=[[2.0]])
    assert step["delay"] == pytest.approx(300 * 1e-3 * 10)


def test_compute_binds() -> None:
    """Twice 0.125 TFLOP/s serve a quarter of 1 request/s at 1 TFLOP."""
    step = first_step(one(None, {"compute_tflops": 0.125}), [2])
    assert step["unserved_share"] == pytest.approx([0.75])
    assert step["unserved"] == pytest.approx(22.5)


def test_kv_binds() -> None:
    """A request holds 200 tokens · 1 MB for 1 s: 0.2 GB on average, of which 0.05 fit."""
    step = first_step(one(None, {"kv_capacity_gb": 0.05, "kv_gb_per_token": 1e-3}), [1])
    assert step["unserved_share"] == pytest.approx([0.75])


def test_servers_bind() -> None:
    """Without TTFT SLOs 95 % of the servers' time may be used: 1.9 of 10 requests/s on two servers of 1 s."""
    instance = one({"rate_rps": 10.0}, {"max_concurrency": 1})
    assert first_step(instance, [2])["unserved_share"] == pytest.approx([0.81])


def test_zero_capacity_serves_nothing_that_needs_it() -> None:
    """No compute at all: unserved, unless a request needs none."""
    assert first_step(one(None, {"compute_tflops": 0.0}), [1])["unserved_share"] == [1.0]
    free = one(None, {"compute_tflops": 0.0}, {"work_tflop": affine(0.0)})
    assert first_step(free, [1])["unserved_share"] == [0.0]


def test_slo_excess() -> None:
    """12 s against 10 s is 20 % over, 0.13 against 0.1 is 30 % over: half of what not serving costs."""
    instance = one(None, None, {"delay_s": affine(12.0), "error": 0.13})
    step = first_step(instance, [1])
    assert costs(step) == pytest.approx({"rental": 1.0, "slo": 15.0})
    assert step["unserved_share"] == [0.0]


def test_slo_beyond_unserved() -> None:
    """An excess above 100 % costs more than not serving, so nothing is served."""
    step = first_step(one(None, None, {"delay_s": affine(21.0)}), [1])
    assert step["unserved_share"] == [1.0]


def test_slo_of_the_mean() -> None:
    """A quick configuration makes up for a slow one: (5 - 10)/10 · 0.5 + (14 - 10)/10 · 0.5 < 0."""
    parts = [configuration(n, {"p": 1}, compute_tflops=0.5) for n in "AB"]
    instance = make_instance(P4, parts, performance={"delay_s": affine([[5.0, 14.0]])})
    step = first_step(instance, [1, 1])
    assert step["slo"] == 0.0
    assert step["unserved_share"] == pytest.approx([0.0], abs=1e-12)


def test_penalties_by_day() -> None:
    """At full share a day costs 28.8 USD: 0.1 per window, however many requests there are."""
    instance = one({"unserved_usd": 28.8, "delay_usd_per_s": 14.4}, penalty_basis="day")
    assert first_step(instance, [0], rate_rps=[[7.0]])["cost"] == pytest.approx(0.1)
    assert first_step(instance, [1])["delay"] == pytest.approx(0.05)


def test_absent_workload() -> None:
    """No arrivals: no cost and no shares, in either penalty basis."""
    for basis in ("request", "day"):
        step = first_step(one(penalty_basis=basis), [0], rate_rps=[[0.0]])
        assert step["cost"] == 0.0
        assert step["unserved_share"] == step["miss_share"] == [0.0]


def test_incompatible() -> None:
    """A configuration that cannot serve a workload does not."""
    assert first_step(one(None, None, {"compatible": False}), [1])["unserved_share"] == [1.0]


def test_late_in_one_server_queue() -> None:
    """M/M/1 at half load: P(W > t) = 0.5 · exp(-0.5 t) with t = 1 - 0.1."""
    instance = one(
        {"rate_rps": 0.5, "ttft_slo_s": 1.0, "late_usd": 0.01},
        {"max_concurrency": 1},
        {"service_cv2": 1.0},
    )
    step = first_step(instance, [1])
    late = 0.5 * math.exp(-0.5 * 0.9)
    assert step["unserved_share"] == [0.0]
    assert step["miss_share"] == pytest.approx([late], rel=1e-13)
    assert step["late"] == pytest.approx(150 * 0.01 * late, rel=1e-13)


def test_always_late() -> None:
    """A prefill of exactly the TTFT SLO is late without any queue."""
    instance = one({"ttft_slo_s": 0.1, "late_usd": 0.02})
    step = first_step(instance, [1])
    assert step["late"] == pytest.approx(300 * 0.02)
    assert step["miss_share"] == [1.0]
    assert step["unserved_share"] == [0.0]


def test_steady_streams_never_wait() -> None:
    """Without variation in arrivals and service nobody waits."""
    instance = one(
        {"rate_rps": 0.9, "ttft_slo_s": 0.2, "late_usd": 0.01, "arrival_cv2": 0.0}, {"max_concurrency": 1}
    )
    assert first_step(instance, [1])["miss_share"] == [0.0]


def test_tie_break_decides() -> None:
    """Two equal configurations: the lower tie-breaking number serves, and it costs nothing."""
    for h in ([[0.1, 0.2]], [[0.2, 0.1]]):
        parts = [configuration(n, {"p": 1}) for n in "AB"]
        instance = make_instance(P4, parts, performance={"tie_break": h})
        step = first_step(instance, [1, 1])
        assert step["routing"][0][int(np.argmin(h))] == 1.0
        assert costs(step) == pytest.approx({"rental": 2.0})


def test_tie_break_difference_of_a_billionth() -> None:
    """The reference evaluator resolves differences of 1e-6 · 1e-6 of a penalty, far below a solver's tolerance."""
    parts = [configuration(n, {"p": 1}) for n in "ABCD"]
    h = [[0.5, 0.5 - 1e-6, 0.5 + 1e-6, 0.5]]
    step = first_step(make_instance(P4, parts, performance={"tie_break": h}), [1, 1, 1, 1])
    assert step["routing"] == [[0.0, 1.0, 0.0, 0.0]]


# -- several windows by hand


def run(instance: Instance, targets: list[list[int]], **scenario: Any) -> list[dict[str, Any]]:
    """Play targets from window 0."""
    episode = reference.ReferenceEpisode(instance, nominal_scenario(instance, **scenario))
    return [episode.step(target) for target in targets]


def test_start_up_takes_its_windows() -> None:
    """Granted in window 1 with two windows of start-up: pays from 1, serves from 3."""
    steps = run(one(None, {"startup_windows": 2, "startup_usd": 5.0}), [[0], [1], [1], [1]])
    assert [s["serving"][0] for s in steps] == [0, 0, 0, 1]
    assert [s["rental"] for s in steps] == pytest.approx([0, 1, 1, 1])
    assert [s["startup"] for s in steps] == [0, 5, 0, 0]


def test_draining_serves_until_the_new_one_does() -> None:
    """A switch with two windows of start-up: both are paid in windows 1 and 2, somebody always serves."""
    parts = [configuration("A", {"p": 1}), configuration("B", {"p": 1}, startup_windows=2)]
    steps = run(make_instance(P4, parts), [[1, 0], [0, 1], [0, 1], [0, 1]])
    assert [s["serving"] for s in steps] == [[1, 0], [1, 0], [1, 0], [0, 1]]
    assert [s["held"] for s in steps] == [[1, 0], [1, 1], [1, 1], [0, 1]]
    assert sum(s["unserved"] for s in steps) == 0.0


def test_nominal_fleet_runs_first() -> None:
    """The episode starts with the nominal fleet, which pays no fee."""
    instance = one(None, {"startup_usd": 5.0}, nominal_fleet=[2])
    (step,) = run(instance, [[2]])
    assert costs(step) == pytest.approx({"rental": 2.0})


def test_pool_budget_runs_dry() -> None:
    """5 USD: 2 + fee 1 in the first window, 2 in the second, nothing from then on."""
    instance = one(None, {"startup_usd": 0.5}, budget={"kind": "pool", "usd": 5.0})
    steps = run(instance, [[2]] * 4)
    assert [s["held"] for s in steps] == [[2], [2], [0], [0]]
    assert [s["lost"] for s in steps] == [[0], [0], [2], [0]]
    assert [s["denied"] for s in steps] == [[0], [0], [2], [2]]


def test_loss_while_starting_pays_again() -> None:
    """What is lost while starting gets no refund; the new grant pays its fee again."""
    instance = one(None, {"startup_windows": 2, "startup_usd": 3.0})
    steps = run(instance, [[0], [1], [1], [1]], available_gpus=[[4]] * 2 + [[0]] + [[4]] * 9)
    assert [s["startup"] for s in steps] == [0, 3, 0, 3]
    assert steps[2]["lost"] == [1]


# -- queues


@pytest.mark.parametrize("servers", [1, 2, 3, 7, 40, 256, 1000, 5000])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.9, 0.95, 0.999])
def test_erlang_c(servers: int, share: float) -> None:
    """Agrees with 60-digit arithmetic to 1e-13 (small probabilities included)."""
    load = servers * share
    with mpmath.workdps(60):
        a = mpmath.mpf(load)
        inverse_b = mpmath.mpf(1)
        for n in range(1, servers + 1):
            inverse_b = 1 + n / a * inverse_b
        exact = servers / ((servers - a) * inverse_b + a)
    got = reference.erlang_c(servers, load)
    if exact < 1e-290:
        assert got < 1e-280
    else:
        assert abs(got - exact) <= 1e-13 * exact


def test_erlang_c_at_the_ends() -> None:
    """Nobody waits without load; everybody does at saturation; huge systems take no time."""
    assert reference.erlang_c(5, 0.0) == 0.0
    assert reference.erlang_c(5, 5.0) == reference.erlang_c(5, 7.0) == 1.0
    assert reference.erlang_c(10**9, 0.5e9) == 0.0


@pytest.mark.parametrize("servers", [1, 2, 5, 48, 1000])
@pytest.mark.parametrize("arrival_cv2", [0.0, 0.25, 1.0, 4.0, 20.0, 100.0])
def test_chance_to_wait(servers: int, arrival_cv2: float) -> None:
    """Agrees with the kernel, which shares no code, to 1e-11 at any load, and is 1 where Erlang's C is."""
    for share in (1e-12, 0.01, 0.3, 0.7, 0.95, 0.999):
        got = reference.chance_to_wait(servers, servers * share, arrival_cv2)
        fast = queueing.chance_to_wait(servers, servers * share, arrival_cv2, 0.0)
        assert got == pytest.approx(fast, rel=1e-11, abs=1e-250)
    assert reference.chance_to_wait(servers, 0.0, arrival_cv2) == 0.0
    assert reference.chance_to_wait(servers, float(servers), arrival_cv2) == 1.0


def test_chance_to_wait_by_hand() -> None:
    """C(2, 1) = 1/3, C(4, 2) = 4/23, C(1, 1/2) = 1/2 and C(0, 0) = 1, and geometric means of them."""
    assert reference.chance_to_wait(6, 3.0, 5.0) == pytest.approx(1 / 3, rel=1e-14)
    assert reference.chance_to_wait(2, 1.0, 0.0) == pytest.approx(4 / 23, rel=1e-14)
    assert reference.chance_to_wait(3, 1.5, 3.0) == pytest.approx((0.5 / 3) ** 0.5, rel=1e-14)
    assert reference.chance_to_wait(1, 0.5, 7.0) == pytest.approx(0.5**0.25, rel=1e-14)


def test_bursts_make_requests_late() -> None:
    """Two servers, one of them busy, arrivals with a cv2 of 3 (z = 2): P(W > t) = C(1, 1/2) exp(-2 t / 4)."""
    instance = one(
        {"rate_rps": 1.0, "ttft_slo_s": 1.1, "late_usd": 0.0, "arrival_cv2": 3.0},
        {"max_concurrency": 2},
        {"service_cv2": 1.0},
    )
    step = first_step(instance, [1])
    assert step["miss_share"] == pytest.approx([0.5 * math.exp(-0.5)], rel=1e-12)


def test_late_segments_of_one_server() -> None:
    """M/M/1 with patience 2 s: miss(u) = u exp(-2 (1 - u)); chords of u · 300 · 0.01 · miss(u)."""
    instance = one({"ttft_slo_s": 2.1, "late_usd": 0.01}, {"max_concurrency": 1}, {"service_cv2": 1.0})
    segments = reference.ReferenceEpisode(instance, nominal_scenario(instance)).late_segments(0, 1)
    with mpmath.workdps(30):
        patience = mpmath.mpf(2.1) - mpmath.mpf(0.1)
        miss = lambda u: u * mpmath.exp(-patience * (1 - u))  # noqa: E731
        safe = mpmath.findroot(lambda u: miss(u) - mpmath.mpf("0.001"), (0.001, 0.1), solver="anderson")
        step = (mpmath.mpf(0.95) - safe) / 3
        ends = [300 * mpmath.mpf(0.01) * u * miss(u) for u in (safe + b * step for b in range(4))]
        slopes = [(ends[b + 1] - ends[b]) / step for b in range(3)]
    assert segments.u_safe == pytest.approx(float(safe), abs=2e-12)
    assert segments.width == pytest.approx(float(step), abs=1e-12)
    assert segments.slopes == pytest.approx([float(s) for s in slopes], rel=1e-10)


def test_late_segments_reach_the_routing() -> None:
    """Where a late request costs nearly as much as an unserved one, the router stops before 95 %."""
    instance = one(
        {"rate_rps": 2.0, "ttft_slo_s": 0.2, "late_usd": 0.1, "arrival_cv2": 4.0},
        {"max_concurrency": 1},
        {"service_cv2": 4.0},
    )
    step = first_step(instance, [1])
    segments = reference.ReferenceEpisode(instance, nominal_scenario(instance)).late_segments(0, 1)
    load = 2.0 * step["routing"][0][0]
    # It stops where the next segment would cost more than the 300 · 0.1 USD that a busy server saves.
    paid = sum(slope < 30.0 for slope in segments.slopes)
    assert load == pytest.approx(segments.u_safe + paid * segments.width, rel=1e-12)
    assert 0 < paid < 3


@pytest.mark.parametrize(
    ("workload_changes", "performance"),
    [
        ({"ttft_slo_s": 1.0, "late_usd": 0.0}, {}),
        ({"ttft_slo_s": None, "late_usd": 0.01}, {}),
        ({"ttft_slo_s": 1.0, "late_usd": 0.01}, {"service_s": affine(0.0)}),
        ({"ttft_slo_s": 1.0, "late_usd": 0.01}, {"compatible": False}),
    ],
)
def test_no_late_segments(workload_changes: dict[str, Any], performance: dict[str, Any]) -> None:
    """Nothing to be late for: 95 % is safe."""
    instance = one(workload_changes, None, performance)
    segments = reference.ReferenceEpisode(instance, nominal_scenario(instance)).late_segments(0, 1)
    assert segments == reference.LateSegments(0.95, 0.0, (0.0, 0.0, 0.0))


def test_late_segments_are_convex() -> None:
    """Slopes never decrease, more replicas are never less safe, and the widths end at 95 %."""
    for seed in range(25):
        instance = random_instance(seed)
        episode = reference.ReferenceEpisode(instance, nominal_scenario(instance))
        for c, part in enumerate(instance.configurations):
            rows = [episode.late_segments(c, r) for r in range(1, part.max_replicas + 1)]
            for r, row in enumerate(rows, 1):
                assert list(row.slopes) == sorted(row.slopes)
                assert row.slopes[0] >= 0
                servers = r * part.max_concurrency
                if row.width:
                    assert row.u_safe * servers + 3 * row.width == pytest.approx(0.95 * servers, rel=1e-12)
            assert all(a.u_safe <= b.u_safe + 1e-9 for a, b in itertools.pairwise(rows))


# -- routing


def solved_programs(count: int) -> list[tuple[certified_lp.LinearProgram, certified_lp.Solution]]:
    """Return programs of random windows with their solutions."""
    found = []

    def record(program: certified_lp.LinearProgram) -> certified_lp.Solution:
        found.append((program, certified_lp.solve(program)))
        return found[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "solve", record)
        for seed in itertools.count():
            instance = random_instance(seed)
            reference.replay(instance, random_scenario(instance, seed), random_actions(instance, seed))
            if len(found) >= count:
                return found
    raise AssertionError


def exact_solve(matrix: list[list[Fraction]], rhs: list[Fraction]) -> list[Fraction]:
    """Solve a square system by Gauss-Jordan elimination in rational numbers."""
    rows = [[*row, value] for row, value in zip(matrix, rhs, strict=True)]
    for k in range(len(rows)):
        pivot = next(r for r in range(k, len(rows)) if rows[r][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for r in range(len(rows)):
            if r != k and rows[r][k] != 0:
                factor = rows[r][k]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[k], strict=True)]
    return [row[-1] for row in rows]


def test_vertices_are_optimal_in_exact_arithmetic() -> None:
    """In rational numbers the basis is feasible and reduced costs are right up to round-off."""
    programs = [p for p in solved_programs(500) if p[0].matrix.size > 24][::3]
    assert len(programs) > 60
    for program, solution in programs:
        rows, columns = program.matrix.shape
        a = [[Fraction(float(v)) for v in row] for row in np.hstack([program.matrix, np.eye(rows)])]
        cost = [Fraction(float(v)) for v in program.cost] + [Fraction(0)] * rows
        upper = [*program.upper.tolist(), *(0.0 if e else math.inf for e in program.equality)]
        at_upper = sorted(solution.at_upper)
        rhs = [
            Fraction(float(b)) - sum(a[r][j] * Fraction(upper[j]) for j in at_upper)
            for r, b in enumerate(program.rhs)
        ]
        values = exact_solve([[a[r][j] for j in solution.basis] for r in range(rows)], rhs)
        duals = exact_solve(
            [[a[r][j] for r in range(rows)] for j in solution.basis], [cost[j] for j in solution.basis]
        )
        for j, value in zip(solution.basis, values, strict=True):
            assert -1e-14 <= value <= upper[j] + 1e-14
            if j < columns:
                assert abs(float(value) - solution.values[j]) < 1e-14
        for j in set(range(columns + rows)) - set(solution.basis):
            if upper[j] == 0.0:
                continue
            terms = [a[r][j] * duals[r] for r in range(rows)]
            reduced = cost[j] - sum(terms)
            size = abs(cost[j]) + sum(abs(t) for t in terms)
            assert (reduced if j not in solution.at_upper else -reduced) >= -1e-13 * float(size)


def test_start_basis_alone_reaches_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HiGHS the pivots come from the basis of serving nobody, to the same vertex."""
    programs = solved_programs(300)

    def refuse(program: certified_lp.LinearProgram) -> None:
        raise certified_lp._Infeasible

    monkeypatch.setattr(certified_lp, "_highs_basis", refuse)
    for program, solution in programs:
        again = certified_lp.solve(program)
        decided = program.cost > 0  # late-cost segments that cost nothing may be filled in any order
        assert again.values[decided] == pytest.approx(solution.values[decided], abs=1e-12)


def test_wrong_basis_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vertex that is not optimal fails loudly."""
    program = max((p for p, _ in solved_programs(100)), key=lambda p: p.matrix.size)
    monkeypatch.setattr(certified_lp._Tableau, "_entering", lambda *_: None)
    monkeypatch.setattr(
        certified_lp, "_highs_basis", lambda p: (list(p.start), set())
    )  # u = 1, far from optimal
    with pytest.raises(certified_lp.CertificateError, match="not proven optimal"):
        certified_lp.solve(program)


def too_long(workload: Any, mean_s: float, s: Any, perf: Any, t: int, i: int, c: int) -> float:
    """Return the share of prompts that miss the TTFT SLO by their length alone."""
    slo, law = workload.ttft_slo_s, workload.input_law
    tokens = workload.input_tokens * s.input_scale[t, i]
    prompt_s = s.delay_factor[t, i] * perf.prefill_s.per_input_token[i, c] * tokens
    if slo is None or law is None or prompt_s == 0.0:
        return float(slo is not None and mean_s >= slo)
    return float(law.survival(1.0 + (slo - mean_s) / prompt_s))


def raw_program(instance: Instance, scenario: Any, t: int, serving: list[int], segments: Any) -> Any:
    """Build section 4 a second time: unscaled, with every row, for scipy."""
    s, perf = scenario.expanded(instance.num_windows), instance.performance
    w, parts = instance.workloads, instance.configurations
    present = [i for i in range(len(w)) if s.rate_rps[t, i] > 0]
    used = [c for c, y in enumerate(serving) if y]
    pairs = [(i, c) for i in present for c in used if perf.compatible[i, c]]

    def value(table: Any, i: int, c: int) -> float:
        lengths = w[i].input_tokens * s.input_scale[t, i], w[i].output_tokens * s.output_scale[t, i]
        return (
            table.base[i, c]
            + table.per_input_token[i, c] * lengths[0]
            + table.per_output_token[i, c] * lengths[1]
        )

    n = [s.rate_rps[t, i] * instance.window_s for i in range(len(w))]
    weight = [instance.window_s / 86400 if instance.penalty_basis == "day" else v for v in n]
    p = [m * v.unserved_usd for m, v in zip(weight, w, strict=True)]
    cost, index = [], {}

    def column(name: Any, value: float) -> None:
        index[name] = len(cost)
        cost.append(value)

    for i, c in pairs:
        factor = s.delay_factor[t, i]
        d = factor * value(perf.delay_s, i, c)
        late = w[i].late_usd * too_long(w[i], factor * value(perf.prefill_s, i, c), s, perf, t, i, c)
        tie = 1e-6 * p[i] * perf.tie_break[i, c]
        column(
            ("x", i, c),
            weight[i] * w[i].delay_usd_per_s * d + n[i] * (perf.storage_usd[i, c] + late) + tie,
        )
    for i in present:
        for kind in ("u", "s", "e"):
            column((kind, i), p[i])
    for c in used:
        for b, slope in enumerate(segments[c].slopes):
            column(("o", c, b), slope)
    equal, upper_rows, limits = np.zeros((len(present), len(cost))), [], []
    for k, i in enumerate(present):
        equal[k, index["u", i]] = 1.0
        delay, error = np.zeros(len(cost)), np.zeros(len(cost))
        delay[index["s", i]] = error[index["e", i]] = -1.0
        for c in [c for j, c in pairs if j == i]:
            equal[k, index["x", i, c]] = 1.0
            d = s.delay_factor[t, i] * value(perf.delay_s, i, c)
            delay[index["x", i, c]] = d / w[i].mean_delay_slo_s - 1
            error[index["x", i, c]] = s.error_factor[t, i] * perf.error[i, c] / w[i].error_slo - 1
        upper_rows += [delay, error]
        limits += [0.0, 0.0]
    bounds: list[tuple[float, float | None]] = [(0.0, None)] * len(cost)
    for c in used:
        compute, kv, slots = (np.zeros(len(cost)) for _ in range(3))
        for i in [i for i, k in pairs if k == c]:
            j, rate, factor = index["x", i, c], s.rate_rps[t, i], s.delay_factor[t, i]
            tokens = w[i].input_tokens * s.input_scale[t, i] + w[i].output_tokens * s.output_scale[t, i]
            compute[j] = rate * value(perf.work_tflop, i, c)
            kv[j] = rate * parts[c].kv_gb_per_token * tokens * factor * value(perf.delay_s, i, c)
            slots[j] = rate * factor * value(perf.service_s, i, c)
        for b in range(3):
            slots[index["o", c, b]] = -1.0
            bounds[index["o", c, b]] = (0.0, segments[c].width)
        upper_rows += [compute, kv, slots]
        y = serving[c]
        limits += [
            parts[c].compute_tflops * y,
            parts[c].kv_capacity_gb * y,
            segments[c].u_safe * parts[c].max_concurrency * y,
        ]
    return np.array(cost), np.array(upper_rows), np.array(limits), equal, bounds, index


def test_routing_meets_a_second_solver() -> None:
    """Objective and fractions agree with scipy on the unscaled program built here from the specification."""
    checked = 0
    for seed in range(60):
        instance = random_instance(seed, num_windows=4)
        if seed % 2:
            instance = with_laws(instance, seed)
        scenario = random_scenario(instance, seed)
        episode = reference.ReferenceEpisode(instance, scenario)
        for t in range(4):
            serving = [1 + (c + t) % p.max_replicas for c, p in enumerate(instance.configurations)]
            segments = {c: episode.late_segments(c, y) for c, y in enumerate(serving)}
            cost, rows, limits, equal, bounds, index = raw_program(instance, scenario, t, serving, segments)
            got = episode.operate(serving, t)
            if not equal.size:
                continue
            answer = linprog(cost, rows, limits, equal, np.ones(len(equal)), bounds, method="highs-ds")
            assert answer.status == 0
            x = np.zeros(len(cost))
            for name, j in index.items():
                if name[0] == "x":
                    x[j] = got["routing"][name[1]][name[2]]
                elif name[0] == "u":
                    x[j] = got["unserved_share"][name[1]]
            # Complete the vertex with the cheapest s, s' and o: SLO rows alternate after each other first.
            elastic = rows @ x - limits
            for k, i in enumerate(name[1] for name in index if name[0] == "u"):
                x[index["s", i]] = max(0.0, elastic[2 * k])
                x[index["e", i]] = max(0.0, elastic[2 * k + 1])
            for k, c in enumerate(sorted({name[1] for name in index if name[0] == "o"})):
                over = max(0.0, elastic[2 * len(equal) + 3 * k + 2])
                for b in range(3):
                    x[index["o", c, b]] = min(over, segments[c].width)
                    over -= x[index["o", c, b]]
            assert cost @ x == pytest.approx(answer.fun, rel=1e-7, abs=1e-12)
            assert np.max(rows @ x - limits, initial=0.0) <= 1e-9 * max(1.0, np.abs(rows).max())
            checked += 1
    assert checked > 150


# -- what always holds


def test_invariants_of_random_episodes() -> None:
    """Terms add up, shares are shares, no limit is exceeded, and fleets stay within their bounds."""
    for seed in range(80):
        instance = random_instance(seed)
        scenario = random_scenario(instance, seed)
        full = scenario.expanded(instance.num_windows)
        most = np.array([c.max_replicas for c in instance.configurations])
        spent = 0.0
        for t, step in enumerate(reference.replay(instance, scenario, random_actions(instance, seed))):
            assert step["cost"] == math.fsum(step[name] for name in reference.COST_TERMS)
            assert all(step[name] >= 0 for name in reference.COST_TERMS)
            routed = np.array(step["routing"]).sum(axis=1) + step["unserved_share"]
            present = full.rate_rps[t] > 0
            assert routed == pytest.approx(present.astype(float), abs=1e-12)
            assert all(
                u <= m <= 1 + 1e-12 for u, m in zip(step["unserved_share"], step["miss_share"], strict=True)
            )
            held = np.array(step["held"])
            assert np.all(instance.gpu_use @ held <= full.available_gpus[t])
            assert np.all(held <= most)
            assert np.all(np.array(step["serving"]) <= held)
            holding = step["rental"] + step["model_storage"]
            if instance.budget and instance.budget.kind == "rate":
                assert holding <= instance.budget.usd * instance.window_s / 3600 + 1e-8
            spent += holding + step["startup"]
            if instance.budget and instance.budget.kind == "pool":
                assert spent <= instance.budget.usd * (1 + 1e-8)
            for slot, members in zip(instance.slots, instance.slot_members, strict=True):
                bound = [step["running"][c] + sum(step["starting"][c]) for c in members]
                assert not slot.exclusive or sum(bound) <= 1


def test_denials_account_for_the_target() -> None:
    """Without losses, what is wanted is there or was denied."""
    for seed in range(40):
        instance = random_instance(seed)
        actions = random_actions(instance, seed)
        for action, step in zip(
            actions, reference.replay(instance, random_scenario(instance, seed), actions), strict=True
        ):
            for c, wanted in enumerate(reference.action_to_target(instance, action)):
                present = step["running"][c] + sum(step["starting"][c])
                if wanted:
                    assert present + step["denied"][c] == wanted
                else:
                    assert step["denied"][c] == 0


def test_same_bytes_twice() -> None:
    """The reference evaluator is deterministic."""
    instance = random_instance(5)
    scenario, actions = random_scenario(instance, 5), random_actions(instance, 5)
    assert repr(reference.replay(instance, scenario, actions)) == repr(
        reference.replay(instance, scenario, actions)
    )


def test_parts_of_a_step_change_nothing() -> None:
    """Admitting and operating leave the episode as it is."""
    instance = random_instance(3)
    episode = reference.ReferenceEpisode(instance, random_scenario(instance, 3))
    before = copy.deepcopy(episode.state)
    target = reference.action_to_target(instance, random_actions(instance, 3)[0])
    admission = episode.admit(episode.state, target, 5)
    episode.operate(admission.serving, 5)
    episode.next_state(admission, 5)
    assert episode.state == before
    assert episode.window == 0


def test_single_rows_hold_in_every_window() -> None:
    """A scenario of single rows plays like the same rows written out."""
    instance = random_instance(7)
    nominal, actions = nominal_scenario(instance), random_actions(instance, 7)
    assert reference.replay(instance, nominal, actions) == reference.replay(
        instance, nominal.expanded(instance.num_windows), actions
    )


def test_crowded_fleet() -> None:
    """Six workloads compete for ten configurations near their limits: certified in every window."""
    rng = np.random.default_rng(0)
    shape = (6, 10)
    parts = [configuration(f"c{c}", {"p": 1}, compute_tflops=60.0, max_concurrency=32) for c in range(10)]
    classes = [workload(f"w{i}", 20.0, ttft_slo_s=0.5, late_usd=0.05, mean_delay_slo_s=1.2) for i in range(6)]
    performance = {
        "service_s": affine(rng.uniform(1, 3, shape)),
        "delay_s": affine(rng.uniform(1, 3, shape)),
        "tie_break": rng.random(shape),
    }
    instance = make_instance([pool("p", 40)], parts, None, classes, performance, num_windows=24)
    scenario = nominal_scenario(instance, rate_rps=20 * rng.gamma(20, 0.05, (24, 6)))
    steps = reference.replay(instance, scenario, [[4] * 10] * 24)
    assert sum(s["late"] for s in steps) > 0
    assert sum(s["slo"] for s in steps) > 0


# -- actions


def test_actions_mean_options(small: Instance) -> None:
    """Exclusive: 0 is off, o the o-th configuration; otherwise the option is a count."""
    assert reference.action_to_target(small, [0, 3]) == [0, 0, 3]
    assert reference.action_to_target(small, [1, 0]) == [1, 0, 0]
    assert reference.action_to_target(small, np.array([2, 1])) == [0, 1, 1]


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ([3, 0], "$[0]"),
        ([0, 4], "$[1]"),
        ([0, -1], "$[1]"),
        ([0], "$"),
        ([0, 1.0], "$[1]"),
        ([True, 0], "$[0]"),
    ],
)
def test_wrong_actions(small: Instance, action: list[Any], path: str) -> None:
    """An option that does not exist is an error that names the slot."""
    with pytest.raises(DataError) as caught:
        reference.action_to_target(small, action)
    assert caught.value.path == path


@pytest.mark.parametrize("target", [[1, 1, 0], [0, 0, 4], [0, 0], [0, 0, -1], [0, 0, 1.5]])
def test_wrong_targets(small: Instance, target: list[Any]) -> None:
    """A fleet that no action asks for is an error, and the episode stays where it was."""
    episode = reference.ReferenceEpisode(small, nominal_scenario(small))
    with pytest.raises(DataError):
        episode.step(target)
    assert episode.window == 0


def test_replay_names_the_window(small: Instance) -> None:
    """The path of a wrong action begins with its window."""
    actions = [[0, 0]] * small.num_windows
    actions[4] = [0, 9]
    with pytest.raises(DataError) as caught:
        reference.replay(small, nominal_scenario(small), actions)
    assert caught.value.path == "$[4][1]"
    with pytest.raises(DataError, match="12 actions"):
        reference.replay(small, nominal_scenario(small), actions[:4])


def test_no_step_after_the_end() -> None:
    """The last window is the last."""
    instance = one(num_windows=1)
    episode = reference.ReferenceEpisode(instance, nominal_scenario(instance))
    episode.step([0])
    with pytest.raises(IndexError, match="windows 0 to 0"):
        episode.step([0])


def test_the_judge_shares_no_code() -> None:
    """Of the package it imports data, errors, threads, solvers and itself: nothing that plays or plans."""
    allowed = re.compile(
        r"fleetgym\.(files\.errors|runtime\.(highs|linear_programs|threads)|model\.(instance|scenario)|reference(\.\w+)?)|[^.]*"
    )
    sources = list(Path(reference.__file__).parent.glob("*.py"))
    assert len(sources) > 5
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            imported += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert [name for name in imported if not allowed.fullmatch(name)] in ([], ["collections.abc"]), (
                path
            )
