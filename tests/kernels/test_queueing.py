"""Hold the queueing kernels against slow twins that share no code, and against the fleet simulator."""

import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from exact_queues import gi_m_c
from hypothesis import given, settings
from hypothesis import strategies as st
from places import SHARED

from fleetgym.kernels import queueing as q
from fleetgym.kernels.compile import jit


def fleet_sim_cases(name):
    """Return the reference cases of one function of inference-fleet-sim, or skip where they are not here."""
    path = SHARED / "fixtures" / "fleet_sim" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"reference values not found at {path} (set FLEETGYM_SHARED to their folder)")
    return json.loads(path.read_text())["cases"]


def exact_erlang_c(offered, sizes):
    """Return Erlang C with 50 digits for several numbers of servers, from the recurrence of Erlang B."""
    with mpmath.workdps(50):
        load = mpmath.mpf(offered)
        inverse = mpmath.mpf(1)
        out = {}
        for c in range(1, max(sizes) + 1):
            inverse = 1 + inverse * c / load
            if c in sizes:
                out[c] = 1 / ((1 - load / c) * inverse + load / c)
        return out


def relative_error(value, exact):
    """Return |value - exact| / exact, computed with many digits."""
    with mpmath.workdps(50):
        return float(abs(mpmath.mpf(value) - exact) / exact)


SMALL = {c for c in range(1, 2001) if c < 60 or c % 97 == 0 or c in (1000, 2000)}


@pytest.mark.parametrize("offered", [1e-6, 0.01, 0.5, 0.999999, 1.5, 7.3, 33.0, 99.9, 480.25, 970.0, 1999.99])
def test_erlang_c_has_twelve_digits(offered):
    """Every size with a stable queue agrees with 50-digit values, from near saturation to 1e-300."""
    checked = 0
    for servers, exact in exact_erlang_c(offered, SMALL).items():
        if offered < servers and exact > 1e-300:
            assert relative_error(q.erlang_c(servers, offered), exact) < 1e-12, (servers, offered)
            checked += 1
    assert checked > 0


@pytest.mark.parametrize("offered", [89_500.0, 95_000.5, 99_000.1, 99_999.9])
def test_erlang_c_of_a_hundred_thousand_servers(offered):
    """The largest size that is promised keeps its digits, with C from 1 - 1e-3 down to about 1e-260."""
    exact = exact_erlang_c(offered, {100_000})[100_000]
    assert exact > 1e-300
    assert relative_error(q.erlang_c(100_000, offered), exact) < 1e-12


def test_erlang_c_of_extreme_loads():
    """Loads outside (0, c), and probabilities below the smallest double, have their limits."""
    assert q.erlang_c(5, 0.0) == 0.0
    assert q.erlang_c(5, -1.0) == 0.0
    assert q.erlang_c(5, 5.0) == 1.0
    assert q.erlang_c(0, 0.1) == 1.0
    assert q.erlang_c(100_000, 50_000.0) == 0.0
    assert math.isnan(q.erlang_c(5, math.nan))
    assert 0.999 < q.erlang_c(1000, math.nextafter(1000.0, 0.0)) <= 1.0


def test_erlang_c_against_fleet_sim():
    """The 50-digit reference values hold; without servers everybody waits here, and nobody does there."""
    for case in fleet_sim_cases("erlang_c"):
        value = q.erlang_c(case["c"], float(case["a"]))
        if case["c"] <= 0 and case["a"] > 0:
            assert (value, case["exact"]) == (1.0, 0.0)
        elif case["exact"] == 0.0:
            assert value == 0.0, case
        else:
            assert value == pytest.approx(case["exact"], rel=1e-12), case


def slow_chance_to_wait(servers, load, arrival_cv2):
    """Twin of `chance_to_wait` with 50 digits, by logarithms."""
    with mpmath.workdps(50):
        u = mpmath.mpf(load) / servers
        size = 2 * servers / (1 + mpmath.mpf(arrival_cv2))
        n = int(mpmath.floor(size))
        logs = [mpmath.log(exact_erlang_c(u * k, {k})[k]) if k > 0 else mpmath.mpf(0) for k in (n, n + 1)]
        return mpmath.exp(logs[0] + (size - n) * (logs[1] - logs[0]))


CV2S = (0.0, 0.25, 1.0, 4.0, 20.0, 100.0)


@pytest.mark.parametrize("arrival_cv2", CV2S)
@pytest.mark.parametrize("servers", [1, 2, 3, 7, 50, 64, 333])
def test_chance_to_wait_equals_its_twin(servers, arrival_cv2):
    """Twelve digits at every load, also where a burst meets less than one server."""
    for u in (1e-9, 0.01, 0.4, 0.7, 0.9, 0.99, 1 - 1e-9):
        exact = slow_chance_to_wait(servers, u * servers, arrival_cv2)
        value = q.chance_to_wait(servers, u * servers, arrival_cv2, 0.0)
        if exact > 1e-280:
            # Near saturation the idle share is a difference of nearly equal numbers.
            assert relative_error(value, exact) < 1e-12 + 1e-15 / (1 - u), (u, value, exact)
        else:
            assert value < 1e-270


def test_chance_to_wait_by_hand():
    """C(2, 1) = 1/3, C(4, 2) = 4/23, C(1, u) = u, and their geometric means."""
    assert q.chance_to_wait(6, 3.0, 5.0, 0.0) == pytest.approx(1 / 3, rel=1e-15)
    assert q.chance_to_wait(2, 1.0, 0.0, 0.0) == pytest.approx(4 / 23, rel=1e-15)
    assert q.chance_to_wait(3, 1.5, 3.0, 0.0) == pytest.approx(math.sqrt(0.5 / 3), rel=1e-15)
    assert q.chance_to_wait(1, 0.25, 3.0, 0.0) == pytest.approx(0.5, rel=1e-15)
    assert q.wait_exceeds(6, 3.0, 1.0, 1.0, 5.0, 2.0) == pytest.approx(math.exp(-2.0) / 3, rel=1e-15)


def test_chance_to_wait_at_the_edges():
    """No load, overload, no servers, endless bursts, and loads beyond all scales."""
    for cv2 in CV2S:
        assert q.chance_to_wait(5, 0.0, cv2, 0.0) == 0.0
        assert q.chance_to_wait(5, -1.0, cv2, 0.0) == 0.0
        assert q.chance_to_wait(5, 5.0, cv2, 0.0) == q.chance_to_wait(5, 9.0, cv2, 0.0) == 1.0
        assert q.chance_to_wait(0, 0.1, cv2, 0.0) == 1.0
        assert q.chance_to_wait(0, 0.0, cv2, 0.0) == 0.0
        assert 0.999 < q.chance_to_wait(1000, math.nextafter(1000.0, 0.0), cv2, 0.0) <= 1.0
        assert 0.0 <= q.chance_to_wait(5, 1e-300, cv2, 0.0) < 1e-10
        assert 0.0 <= q.chance_to_wait(10**6, 1e5, cv2, 0.0) < 1e-100
        assert math.isnan(q.wait_exceeds(5, math.nan, 1.0, 1.0, cv2, 1.0))
    assert math.isnan(q.wait_exceeds(5, 3.0, 1.0, 1.0, math.nan, 1.0))
    assert q.chance_to_wait(5, 3.0, math.inf, 0.0) == 1.0
    assert q.chance_to_wait(5, 1e-200, 1e300, 0.0) == pytest.approx(1.0)


@pytest.mark.parametrize("servers", [1, 7, 100, 3000])
def test_poisson_arrivals_have_erlangs_formula(servers):
    """With a cv2 of 1, or what shares that nearly sum to 1 make of it, every bit is Erlang C's."""
    for u in (0.01, 0.5, 0.9, 0.97, 1.0):
        for cv2 in (1.0, math.nextafter(1.0, 0.0), 1.0 + 4e-16):
            assert q.chance_to_wait(servers, u * servers, cv2, 0.0) == q.erlang_c(servers, u * servers)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 300),
    st.floats(1e-6, 0.9999),
    st.sampled_from(CV2S) | st.floats(0.0, 200.0),
    st.floats(1e-6, 0.5),
)
def test_chance_to_wait_is_monotone(servers, u, arrival_cv2, more):
    """One server more never raises it, more load or burstier arrivals never lower it; no jump at a whole number."""
    load, slack = u * servers, 1 + 1e-12
    here = q.chance_to_wait(servers, load, arrival_cv2, 0.0)
    assert 0.0 <= here <= slack
    assert q.chance_to_wait(servers + 1, load, arrival_cv2, 0.0) <= here * slack
    assert here <= q.chance_to_wait(servers, load + more * (servers - load), arrival_cv2, 0.0) * slack
    assert here <= q.chance_to_wait(servers, load, arrival_cv2 + more, 0.0) * slack
    assert q.chance_to_wait(servers, load, arrival_cv2 + 1e-11, 0.0) == pytest.approx(
        here, rel=1e-6, abs=1e-300
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 300), st.floats(1e-6, 0.9999), st.sampled_from(CV2S), st.floats(1e-20, 0.5))
def test_what_is_negligible_is_certain(servers, u, arrival_cv2, negligible):
    """The short cut is 0 only where the probability is below the bound, and the same number elsewhere."""
    whole = q.chance_to_wait(servers, u * servers, arrival_cv2, 0.0)
    quick = q.chance_to_wait(servers, u * servers, arrival_cv2, negligible)
    assert quick == whole or (quick == 0.0 and whole < negligible * (1 + 1e-12))


@pytest.mark.parametrize("servers", [1, 2, 16, 64, 256])
@pytest.mark.parametrize("load", [0.7, 0.85, 0.95])
def test_chance_to_wait_against_the_exact_answer(servers, load):
    """GI/M/c: bursts are within a quarter of the truth, where Erlang C alone may be a millionth of it."""
    for arrival_cv2 in (4.0, 16.0, 100.0):
        exact, decay = gi_m_c(servers, load, arrival_cv2)
        assert 0.78 < q.chance_to_wait(servers, load * servers, arrival_cv2, 0.0) / exact < 1.01
        t = 1.0 / decay
        tail = q.wait_exceeds(servers, load * servers, 1.0, 1.0, arrival_cv2, t)
        assert 0.78 < tail / (exact * math.exp(-decay * t)) < 1.15
    for arrival_cv2 in (0.0, 0.25):
        exact, _ = gi_m_c(servers, load, arrival_cv2)
        ratio = q.chance_to_wait(servers, load * servers, arrival_cv2, 0.0) / exact
        assert 1.0 < ratio < q.erlang_c(servers, load * servers) / exact
        assert ratio < 1.25 or exact < 0.05
    exact, decay = gi_m_c(servers, load, 1.0)
    assert q.erlang_c(servers, load * servers) == pytest.approx(exact, rel=1e-12)
    assert decay == pytest.approx(servers * (1 - load), rel=1e-12)


def slow_wait_exceeds(servers, rate, service, service_cv2, arrival_cv2, threshold):
    """Twin of `wait_exceeds` with 50 digits, written from the formula."""
    if threshold < 0:
        return 1.0
    if rate * service <= 0:
        return 0.0
    if rate * service >= servers:
        return 1.0
    waiting = slow_chance_to_wait(servers, rate * service, arrival_cv2)
    with mpmath.workdps(50):
        if threshold == 0:
            return float(waiting)
        if service_cv2 + arrival_cv2 == 0:
            return 0.0
        spare = mpmath.mpf(servers) / service - mpmath.mpf(rate)
        return float(waiting * mpmath.exp(-2 * spare * threshold / (mpmath.mpf(service_cv2) + arrival_cv2)))


LEAST_CV2 = 1e-290  # below, half of it has few bits left, and so has any formula's answer
QUEUES = st.tuples(
    st.integers(1, 300),  # servers
    st.floats(0.02, 1.2),  # utilisation
    st.floats(0.01, 100.0),  # mean service time
    st.just(0.0) | st.floats(LEAST_CV2, 5.0),  # service cv2
    st.sampled_from(CV2S) | st.floats(LEAST_CV2, 60.0),  # arrival cv2
)


def arguments(queue):
    """Return (servers, rate, service, cv2s) of a drawn queue."""
    servers, utilization, service, service_cv2, arrival_cv2 = queue
    return servers, utilization * servers / service, service, service_cv2, arrival_cv2


@settings(max_examples=150, deadline=None)
@given(QUEUES, st.floats(-0.1, 20.0))
def test_wait_exceeds_equals_its_twin(queue, threshold):
    """Random queues agree with the 50-digit formula."""
    args = arguments(queue)
    exact = slow_wait_exceeds(*args, threshold)
    # Near saturation the spare capacity is a difference of nearly equal numbers; so is the twin's input.
    assert q.wait_exceeds(*args, threshold) == pytest.approx(exact, rel=1e-10, abs=1e-300)


@settings(max_examples=150, deadline=None)
@given(QUEUES, st.floats(0.0, 20.0))
def test_waits_fall_with_servers_and_patience(queue, threshold):
    """One server more, a longer threshold, or less load, never raises the chance to wait longer."""
    servers, *rest = arguments(queue)
    rate, *others = rest
    here = q.wait_exceeds(servers, *rest, threshold)
    assert 0.0 <= here <= 1.0
    assert q.wait_exceeds(servers + 1, *rest, threshold) <= here * (1 + 1e-12)
    assert q.wait_exceeds(servers, *rest, threshold + 0.1) <= here
    assert q.wait_exceeds(servers, 0.9 * rate, *others, threshold) <= here * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(QUEUES, st.floats(1e-6, 0.999))
def test_percentile_inverts_the_tail(queue, tail):
    """A positive percentile is exceeded by exactly `tail`; it is zero only where no more wait."""
    args = arguments(queue)
    t = q.wait_percentile(*args, tail)
    if math.isinf(t):
        assert args[1] * args[2] >= args[0]
    elif t > 0.0:
        assert q.wait_exceeds(*args, t) == pytest.approx(tail, rel=1e-9)
    else:
        waiting = q.chance_to_wait(args[0], args[1] * args[2], args[4], 0.0)
        assert waiting <= tail * (1 + 1e-12) or args[3] + args[4] < 1e-300


def test_waits_in_degenerate_cases():
    """No arrivals, no variability, no servers, no patience: each has the answer one expects."""
    assert q.wait_exceeds(3, 0.0, 1.0, 1.0, 1.0, 1.0) == 0.0
    assert q.wait_exceeds(3, 2.0, 1.0, 0.0, 0.0, 1e-9) == 0.0
    assert q.wait_exceeds(3, 2.0, 1.0, 0.0, 0.0, 0.0) == q.chance_to_wait(3, 2.0, 0.0, 0.0)
    assert q.wait_exceeds(3, 3.0, 1.0, 0.0, 0.0, 1.0) == 1.0
    assert q.wait_exceeds(0, 1.0, 1.0, 1.0, 1.0, 1.0) == 1.0
    assert q.wait_exceeds(3, 2.0, 1.0, 1.0, 1.0, math.inf) == 0.0
    assert q.wait_exceeds(3, 2.0, 1.0, 1.0, 1.0, -1.0) == 1.0
    assert q.wait_percentile(3, 4.0, 1.0, 1.0, 1.0, 0.01) == math.inf
    assert q.wait_percentile(3, 0.0, 1.0, 1.0, 1.0, 0.01) == 0.0


def test_percentile_against_fleet_sim():
    """Its P99 is ours with Poisson arrivals; it calls any input without load or capacity infinite."""
    for case in fleet_sim_cases("p99_wait"):
        servers, rate, mu, cv2 = case["c"], float(case["lam"]), float(case["mu"]), float(case["cv2"])
        if servers <= 0 or mu <= 0 or rate <= 0:
            continue
        ours = q.wait_percentile(servers, rate, 1.0 / mu, cv2, 1.0, 0.01)
        assert ours == pytest.approx(float(case["p99_wait_s"]), rel=1e-9, abs=1e-12), case


def test_gpus_against_fleet_sim():
    """Its GPU counts follow from our waits, except where its search starts above the answer, at ceil(load) + 1."""
    above = 0
    cases = fleet_sim_cases("min_gpus_analytical")
    compared = 0
    for case in cases:
        rate, mu, slots = float(case["lam"]), float(case["mu"]), case["n_slots"]
        if rate <= 0 or mu <= 0:
            continue
        least = max(1, math.ceil(rate * slots / mu / float(case["rho_max"]) - 1e-12))
        queue = rate, slots / mu, float(case["cv2"]), 1.0, float(case["t_slo"])
        servers = next(n for n in itertools.count(least) if q.wait_exceeds(n, *queue) <= 0.01)
        ours = -(-servers // slots)
        assert case["min_gpus"] == max(ours, math.ceil(rate / mu) + 1), case
        above += case["min_gpus"] > ours
        compared += 1
    assert compared > 20
    assert above > 0


def slow_segments(shares, service, service_cv2, arrival_cv2, own, slack, usd, servers, window):
    """Twin of `late_cost_table` for one configuration in plain Python, with Erlang B from its recurrence."""
    here = [p > 0 for p in shares]
    if not any(h and d > 0 for h, d in zip(here, usd, strict=True)) or all(
        t == math.inf for h, t in zip(here, slack, strict=True) if h
    ):
        return 0.95, [0.0] * 3, [0.0] * 3
    mean = math.fsum(p * s for p, s in zip(shares, service, strict=True))
    second = math.fsum(p * (1 + v) * s**2 for p, s, v in zip(shares, service, service_cv2, strict=True))
    bursts = math.fsum(p * v for p, v in zip(shares, arrival_cv2, strict=True))
    variability = second / mean**2 - 1 + bursts

    def delayed(c, u):
        inverse = 1.0
        for k in range(1, c + 1):
            inverse = 1.0 + inverse * k / (u * c)
        return 1.0 / ((1.0 - u) * inverse + u)

    def late(u):
        if u == 0.0:
            return [0.0] * len(slack)
        size = 2 * servers / (1 + bursts)
        n = math.floor(size)
        waiting = delayed(n, u) ** (n + 1 - size) * delayed(n + 1, u) ** (size - n)
        return [
            (1 - f) * waiting * math.exp(-2 * servers * (1 - u) / mean * t / variability) if f < 1 else 0.0
            for t, f in zip(slack, own, strict=True)
        ]

    def miss(u):
        return math.fsum(p * x for p, x in zip(shares, late(u), strict=True))

    def cost(u):
        each = zip(shares, usd, late(u), strict=True)
        return u * servers / mean * window * math.fsum(p * d * x for p, d, x in each)

    safe, top = 0.0, 0.95
    if miss(0.95) <= 0.001:
        return 0.95, [0.0] * 3, [0.0] * 3
    while top - safe > 1e-13:
        middle = (safe + top) / 2
        safe, top = (middle, top) if miss(middle) <= 0.001 else (safe, middle)
    ends = [safe + k * (0.95 - safe) / 3 for k in range(4)]
    width = (0.95 - safe) * servers / 3
    slopes = [max(0.0, (cost(b) - cost(a)) / width) for a, b in zip(ends, ends[1:], strict=False)]
    return safe, [width] * 3, [max(slopes[: k + 1]) for k in range(3)]


def random_mixtures(seed, workloads, configs):
    """Return inputs of `late_cost_table`: some SLOs missing, some pairs incompatible, some prompts too long."""
    rng = np.random.default_rng(seed)
    rates = rng.dirichlet(np.ones(workloads), configs).T * (rng.random((workloads, configs)) < 0.8)
    slo = rng.uniform(0.3, 5.0, workloads)
    slo[rng.random(workloads) < 0.2] = math.inf
    slack = slo[:, None] - rng.uniform(0.01, 1.5, (workloads, configs))
    some = rng.uniform(0.0, 0.5, slack.shape) * (rng.random(slack.shape) < 0.4)
    return (
        rates / np.maximum(rates.sum(axis=0), 1e-12),
        rng.uniform(0.3, 20.0, (workloads, configs)),
        rng.uniform(0.0, 3.0, (workloads, configs)),
        rng.choice([0.0, 0.25, 1.0, 4.0, 20.0, 100.0], workloads),
        np.where(slack <= 0.0, 1.0, np.where(slack < math.inf, some, 0.0)),
        slack,
        rng.uniform(0.0, 0.02, workloads) * (rng.random(workloads) < 0.8),
    )


@pytest.mark.parametrize("seed", range(12))
def test_late_cost_table_equals_its_twin(seed):
    """Every row equals the slow twin."""
    rng = np.random.default_rng(1000 + seed)
    workloads, configs = int(rng.integers(1, 6)), 5
    shares, service, cv2, arrival_cv2, own, slack, usd = random_mixtures(seed, workloads, configs)
    slots = rng.integers(1, 200, configs)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(1, 4, configs))))
    table = q.late_cost_table(shares, service, cv2, arrival_cv2, own, slack, usd, slots, offsets, 300.0)
    for c in range(configs):
        column = [np.ascontiguousarray(x[:, c]) for x in (shares, service, cv2, own, slack)]
        for row in range(offsets[c], offsets[c + 1]):
            servers = int(slots[c] * (row - offsets[c] + 1))
            args = (*column[:3], arrival_cv2, *column[3:], usd)
            safe, width, slope = slow_segments(*(x.tolist() for x in args), servers, 300.0)
            assert table[0][row] == pytest.approx(safe, rel=1e-9)
            np.testing.assert_allclose(table[1][row], width, rtol=1e-9)
            np.testing.assert_allclose(table[2][row], slope, rtol=1e-7, atol=1e-15)
            assert np.all(np.diff(table[2][row]) >= 0)


def one_replica(shares, own, slack, usd, servers):
    """Return safe utilisation, widths and slopes of one replica whose services take a second in the mean."""
    ones = np.ones((shares.size, 1))
    table = q.late_cost_table(
        *(shares[:, None], ones, ones, ones[:, 0], own[:, None], slack[:, None], usd),
        *(np.array([servers]), np.array([0, 1]), 300.0),
    )
    return tuple(rows[0] for rows in table)


def test_late_cost_without_a_price():
    """No SLO, no price, or an SLO that any load keeps: all of the load is free."""
    one = np.ones(1)
    free = (0.95, [0.0] * 3, [0.0] * 3)
    for slo, usd, servers in [(math.inf, 1.0, 10), (1.0, 0.0, 10), (1e6, 1.0, 10), (1.0, 1.0, 0)]:
        safe, width, slope = one_replica(one, 0.0 * one, slo * one, usd * one, servers)
        assert (safe, width.tolist(), slope.tolist()) == free


def test_always_late_workloads_price_nothing_here():
    """A workload whose prefill is too slow leaves the others' safe load as if it asked for nothing."""
    shares, slack, usd = np.array([0.5, 0.5]), np.array([-1.0, 0.9]), np.array([0.01, 0.0])
    never = one_replica(shares, np.array([1.0, 0.0]), slack, usd, 20)
    assert 0.0 < never[0] < 0.95
    assert never[2].tolist() == [0.0, 0.0, 0.0]


def test_kernels_are_callable_from_compiled_code():
    """Scalars in and out, so that other kernels can call them."""

    @jit
    def both(servers, rate):
        return q.erlang_c(servers, rate) + q.wait_percentile(servers, rate, 1.0, 1.0, 1.0, 0.01)

    assert both(2, 1.0) == q.erlang_c(2, 1.0) + q.wait_percentile(2, 1.0, 1.0, 1.0, 1.0, 0.01)
