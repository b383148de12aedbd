"""The processes behind scenarios have the moments, correlations and rates that they were fitted to."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import toys

from fleetgym.files.errors import DataError
from fleetgym.model.dynamics import ScenarioGenerator, draw_scenario
from fleetgym.model.dynamics.availability import Drops, mean_duration_windows
from fleetgym.model.dynamics.demand import (
    DiurnalOU,
    autoregression,
    draw_counts,
    geometric_random_walk,
    resampled_day,
    split_counts,
    stationary_ou,
)
from fleetgym.model.instance import Instance

DAY = 288


def rng(seed: int = 0) -> np.random.Generator:
    """Return a fresh generator."""
    return np.random.default_rng(seed)


def ou(**changes: float) -> DiurnalOU:
    """Return two identical workloads without daily term, noise or jumps."""
    values = {
        "daily_amplitude": 0.0,
        "daily_peak_h": 14.0,
        "ou_sd": 0.3,
        "ou_time_min": 150.0,
        "noise_sd": 0.0,
        "jumps_per_day": 0.0,
        "jump_log_mean": 0.5,
        "jump_hold_min": 60.0,
        **changes,
    }
    common = values.pop("ou_common", 0.0)
    return DiurnalOU(ou_common=common, **{name: np.full(2, value) for name, value in values.items()})


def drops(**changes: object) -> Drops:
    """Return four pools of 16 nodes in two regions, with the fitted parameters."""
    values = {
        "drops_per_day": np.full(4, 2.58),
        "nodes": np.full(4, 16),
        "gpus_per_node": np.ones(4, dtype=np.int64),
        "region": np.array([0, 0, 1, 1]),
        "depth_a": 4.63,
        "depth_b": 0.21,
        "duration_log_mean_min": 3.94,
        "duration_log_sd": 1.39,
        "first_window_share": 0.88,
        "copula_same_region": 0.923,
        "copula_other_region": 0.769,
        **changes,
    }
    return Drops(**values)  # type: ignore[arg-type]


@pytest.fixture(
    scope="module", params=[(2.58, 0.923, 0.769), (4.0, 0.934, 0.782)], ids=["fitted", "instances"]
)
def simulated(request: pytest.FixtureRequest) -> tuple[float, np.ndarray]:
    """Return a drop rate and 4,000 days of four pools: (days, windows, pools)."""
    rate, same, other = request.param
    process = drops(drops_per_day=np.full(4, rate), copula_same_region=same, copula_other_region=other)
    generator = rng(11)
    return rate, np.stack([process.draw(generator, DAY, 300.0) for _ in range(4000)])


@pytest.fixture(scope="module")
def availability(simulated: tuple[float, np.ndarray]) -> np.ndarray:
    """Return the days alone."""
    return simulated[1]


# -- demand


def test_autoregression_equals_the_recursion() -> None:
    """Doubling the lag gives what one step per window gives, at lengths that are no powers of two."""
    shocks = rng().standard_normal((77, 3))
    phi = np.array([0.0, 0.5, 0.99])
    expected = shocks.copy()
    for t in range(1, 77):
        expected[t] += phi * expected[t - 1]
    np.testing.assert_allclose(autoregression(shocks, phi), expected, rtol=1e-12, atol=1e-12)


def test_ou_is_stationary_with_the_stated_memory_and_common_share() -> None:
    """Spread is the same in the first and the last window; lag-one correlation and cross-correlation are as stated."""
    sd, phi = np.array([0.3, 0.3]), np.array([0.9, 0.9])
    draws = np.stack([stationary_ou(rng(k), 60, sd, phi, 0.4) for k in range(4000)])
    assert draws[:, 0].std() == pytest.approx(0.3, rel=0.04)
    assert draws[:, -1].std() == pytest.approx(0.3, rel=0.04)
    assert np.corrcoef(draws[:, 30, 0], draws[:, 31, 0])[0, 1] == pytest.approx(0.9, abs=0.02)
    assert np.corrcoef(draws[:, 59, 0], draws[:, 59, 1])[0, 1] == pytest.approx(0.4, abs=0.05)


def test_random_walk_starts_at_nominal_and_spreads_with_the_square_root_of_time() -> None:
    """The standard deviation after 287 steps is sigma times the root of 287."""
    walks = np.stack([geometric_random_walk(rng(k), DAY, np.array([0.05])) for k in range(3000)])
    assert np.all(walks[:, 0] == 0.0)
    assert walks[:, -1].std() == pytest.approx(0.05 * 287**0.5, rel=0.05)
    assert walks[:, -1].mean() == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"ou_sd": 0.45, "noise_sd": 0.1},
        {"daily_amplitude": 0.5},
        {"jumps_per_day": 10.0},
        {"jumps_per_day": 8.0, "jump_hold_min": 5.0, "daily_amplitude": 0.2, "noise_sd": 0.08},
    ],
)
def test_diurnal_demand_averages_to_the_nominal_rate(changes: dict[str, float]) -> None:
    """The mean of the rate, not of its logarithm, is the nominal one, whatever the parts."""
    process = ou(**changes)
    generator = rng(3)
    mean = np.mean([np.exp(process.log_level(generator, DAY, 300.0)).mean() for _ in range(3000)])
    assert mean == pytest.approx(1.0, abs=0.02)


def test_daily_term_peaks_at_the_stated_hour() -> None:
    """With the daily term alone the largest demand is at the peak hour, the smallest twelve hours away."""
    level = ou(ou_sd=0.0, daily_amplitude=0.2, daily_peak_h=14.0).log_level(rng(), DAY, 300.0)[:, 0]
    assert np.argmax(level) == 14 * 12
    assert np.argmin(level) == 2 * 12
    assert np.ptp(level) == pytest.approx(0.4, abs=1e-9)


def test_jumps_come_as_often_as_stated_and_are_large() -> None:
    """Changes of level by at least 1.5 times, onsets and returns together, come at the stated daily rate."""
    process = ou(ou_sd=0.0, jumps_per_day=6.0, jump_hold_min=60.0)
    generator = rng(5)
    changes = np.concatenate([np.diff(process.log_level(generator, DAY, 300.0), axis=0) for _ in range(800)])
    large = np.abs(changes) > 0.399
    # Two jumps of one window may cancel or merge: a little fewer are seen than happen.
    assert large.sum() / 1600 == pytest.approx(6.0 * 287 / 288, rel=0.05)
    assert np.abs(changes[large]).mean() == pytest.approx(0.5, abs=0.02)


def test_as_many_jumps_hold_in_the_first_window_as_in_any_other() -> None:
    """A day may begin in the middle of a jump: of 15 onsets a day, each held for 1.5 hours, 0.94 hold at a time."""
    process = ou(ou_sd=0.0, jumps_per_day=30.0, jump_hold_min=90.0)
    generator = rng(6)
    holds = np.stack(
        [process.log_level(generator, DAY, 300.0) + process.log_mean(300.0) for _ in range(4000)]
    )
    first, later = (np.mean(np.abs(holds[:, t]) > 1e-9) for t in (0, DAY // 2))
    assert later == pytest.approx(1.0 - np.exp(-15.0 * 90.0 / 1440.0), abs=0.02)
    assert first == pytest.approx(later, abs=0.03)


@pytest.mark.parametrize("index", [1.0, 1.5, 5.0, 20.0, 60.0])
def test_counts_have_the_stated_index_of_dispersion(index: float) -> None:
    """Variance over mean of the counts in a window is the dispersion; 1 is Poisson."""
    counts = draw_counts(rng(2), np.full((60_000, 1), 900.0), np.array([index]))
    assert counts.mean() == pytest.approx(900.0, rel=0.005)
    assert counts.var() / counts.mean() == pytest.approx(index, rel=0.03)


def test_no_demand_gives_no_requests() -> None:
    """A rate of zero stays zero under every dispersion."""
    assert not draw_counts(rng(), np.zeros((10, 2)), np.array([1.0, 60.0])).any()


# -- ten minutes into five


def test_split_conserves_counts_and_has_the_dispersion_of_independent_halves() -> None:
    """Halves add up, are alike on average, and differ with variance dispersion times the count."""
    counts = np.full((40_000, 1), 1000)
    halves = split_counts(rng(4), counts, np.array([20.0])).reshape(-1, 2)
    assert np.array_equal(halves.sum(axis=1), counts[:, 0])
    assert halves[:, 0].mean() == pytest.approx(500.0, abs=1.0)
    # Given their sum n, negative binomial halves of index d differ with variance n d (n + ...) / ...: close to n d.
    size = 500.0 / 19.0
    expected = 1000.0 * (2 * size + 1000.0) / (2 * size + 1.0)
    assert (halves[:, 0] - halves[:, 1]).var() == pytest.approx(expected, rel=0.03)


def test_split_of_nothing_is_nothing() -> None:
    """Windows without requests stay empty."""
    assert not split_counts(rng(), np.zeros((5, 2), dtype=np.int64), np.array([1.5, 60.0])).any()


def _six_lags(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lags = np.column_stack([series[k : len(series) - 6 + k] for k in range(6)] + [np.ones(len(series) - 6)])
    return lags, series[6:]


@pytest.mark.parametrize("parity", [0, 1])
def test_no_linear_predictor_on_six_lags_hits_exactly(parity: int) -> None:
    """The best predictor, fitted on the very data it is judged on, rarely comes within 0.1 % of the next window."""
    from fleetgym.families.demand import TRACES, trace

    for keys in TRACES:
        level = trace(rng(6), keys).level
        for column in level.T:
            lags, target = _six_lags(np.log(np.maximum(column, 1e-3)))
            lags, target = lags[parity::2], target[parity::2]
            weights = np.linalg.lstsq(lags, target, rcond=None)[0]
            busy = np.exp(target) > 0.05
            hits = np.abs(lags @ weights - target)[busy] < 1e-3
            assert hits.mean() < 0.08


def test_the_predictability_test_catches_interpolation() -> None:
    """Log-linear interpolation of ten-minute rates would fail the test above: every second window is a mean."""
    coarse = np.cumsum(rng(8).standard_normal(1000) * 0.1)
    fine = np.interp(np.arange(1999), np.arange(0, 1999, 2), coarse)
    lags, target = _six_lags(fine)
    weights = np.linalg.lstsq(lags[0::2], target[0::2], rcond=None)[0]
    other = np.linalg.lstsq(lags[1::2], target[1::2], rcond=None)[0]
    hits = [np.mean(np.abs(lags[k::2] @ w - target[k::2]) < 1e-3) for k, w in enumerate((weights, other))]
    assert max(hits) > 0.9


# -- history


def test_resampled_days_are_days_of_the_history() -> None:
    """Without rolling and scaling, a drawn day is one of the whole days counted from the end."""
    history = np.arange(10.0 + 3 * DAY)[:, None]
    starts = {float(resampled_day(rng(k), history, DAY)[0, 0]) for k in range(60)}
    assert starts == {10.0, 10.0 + DAY, 10.0 + 2 * DAY}


def test_short_histories_are_rolled_and_repeated() -> None:
    """A history shorter than an episode still fills it with its own values."""
    day = resampled_day(rng(1), np.array([[1.0], [2.0], [3.0]]), 7)
    assert day.shape == (7, 1)
    assert set(day.ravel()) == {1.0, 2.0, 3.0}


def test_scaled_days_keep_the_mean_level() -> None:
    """The lognormal level factor has mean one."""
    history = np.ones((DAY, 1))
    means = [resampled_day(rng(k), history, DAY, 3, 0.2).mean() for k in range(4000)]
    assert np.std(np.log(means)) == pytest.approx(0.2, rel=0.05)
    assert resampled_day(rng(), np.ones((1, 100_000)), 1, 0, 0.5).mean() == pytest.approx(1.0, abs=0.01)


# -- availability


def _starts(series: np.ndarray) -> np.ndarray:
    return (series[:, 1:] < 16) & (series[:, :-1] == 16)


def test_drops_come_as_often_as_stated(simulated: tuple[float, np.ndarray]) -> None:
    """The stated number of drops starts per pool and day; a few follow another without a whole window between."""
    rate, series = simulated
    per_day = _starts(series).sum() / (4000 * 4) * 288 / 287
    assert per_day == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize("minutes", [5.0, 10.0])
@pytest.mark.parametrize("first_share", [0.0, 1.0])
def test_frequent_drops_of_small_pools_take_their_share_of_the_time(
    minutes: float, first_share: float
) -> None:
    """60 drops a day: every one of them takes a node from its first window on, and one may follow another at once."""
    process = drops(
        drops_per_day=np.full(4, 60.0),
        nodes=np.full(4, 2),
        duration_log_mean_min=np.log(minutes),
        duration_log_sd=0.0,
        first_window_share=first_share,
    )
    down = process.draw(rng(2), 100_000, 300.0) < 2
    assert down.mean() == pytest.approx(60.0 * minutes / 1440.0, rel=0.02)


def test_availability_correlates_as_measured(availability: np.ndarray) -> None:
    """.40 within a region and .18 across, simulated."""
    matrix = np.corrcoef(availability.reshape(-1, 4).T)
    assert np.mean([matrix[0, 1], matrix[2, 3]]) == pytest.approx(0.40, abs=0.04)
    assert matrix[:2, 2:].mean() == pytest.approx(0.18, abs=0.03)


def test_drops_are_near_total_and_strike_at_once(availability: np.ndarray) -> None:
    """The first window takes 88 % of the loss, and the loss is Beta(4.63, .21) of the nodes on average."""
    day, start, pool = np.nonzero(_starts(availability)[:, :-1])
    first = 16 - availability[day, start + 1, pool]
    second = 16 - availability[day, start + 2, pool]
    lasting = second > 0
    assert (first[lasting] / second[lasting]).mean() == pytest.approx(0.88, abs=0.02)
    assert (second[lasting] / 16).mean() == pytest.approx(4.63 / 4.84, abs=0.015)


def test_drops_last_a_lognormal_time() -> None:
    """The median of completed drops that start early in a long run is exp(3.94) minutes, about ten windows."""
    series = drops(drops_per_day=np.full(4, 0.5)).draw(rng(9), 200_000, 300.0)
    lengths = []
    for column in (series < 16).T:
        edges = np.flatnonzero(np.diff(column.astype(int)))
        edges = edges[1:] if column[0] else edges
        lengths.extend(np.diff(edges)[::2])
    assert np.median(lengths) == pytest.approx(np.exp(3.94) / 5.0, rel=0.08)
    assert np.std(np.log(lengths)) == pytest.approx(1.39, rel=0.1)


def test_pools_without_drops_stay_whole() -> None:
    """Zero drops a day means none, also beside pools that drop."""
    series = drops(drops_per_day=np.array([2.58, 0.0, 0.0, 2.58])).draw(rng(), 2000, 300.0)
    assert np.all(series[:, 1:3] == 16)
    assert np.any(series[:, 0] < 16)


def test_whole_nodes_vanish() -> None:
    """Availability is a multiple of the node size, between none and all of the pool."""
    series = drops(nodes=np.full(4, 3), gpus_per_node=np.full(4, 8)).draw(rng(), 3000, 300.0)
    assert not np.any(series % 8)
    assert series.min() >= 0
    assert series.max() == 24


def test_mean_duration_is_that_of_the_rounded_lognormal() -> None:
    """The quadrature agrees with sampling."""
    minutes = np.exp(3.0 + 0.8 * rng(1).standard_normal(200_000))
    assert mean_duration_windows(3.0, 0.8, 300.0) == pytest.approx(
        np.maximum(1, np.rint(minutes / 5)).mean(), rel=0.01
    )


# -- scenarios

FULL_DYNAMICS = {
    "demand": {
        "kind": "diurnal-ou",
        "parameters": {
            "daily_amplitude": 0.1,
            "daily_peak_h": 14.0,
            "ou_sd": 0.4,
            "ou_time_min": 150.0,
            "ou_common": 0.5,
            "noise_sd": 0.08,
            "jumps_per_day": 5.0,
            "jump_log_mean": 0.5,
            "jump_hold_min": 45.0,
            "dispersion": [1.5, 5.0, 20.0, 60.0, 1.0, 5.0],
        },
    },
    "tokens": {"kind": "drift", "parameters": {"log_sd": 0.1, "time_min": 360.0}},
    "factors": {"kind": "lognormal", "parameters": {"delay_sd": 0.1, "error_sd": 0.2}},
    "availability": {
        "kind": "drops",
        "parameters": {
            "drops_per_day": [2.58, 2.58, 0.0],
            "depth_a": 4.63,
            "depth_b": 0.21,
            "duration_log_mean_min": 3.94,
            "duration_log_sd": 1.39,
            "first_window_share": 0.88,
            "copula_same_region": 0.923,
            "copula_other_region": 0.769,
        },
    },
    "prices": {"kind": "constant", "parameters": {}},
}


@pytest.fixture
def full() -> Instance:
    """Return six workloads, three pools and every process at once."""
    pools = [
        toys.pool("a", 8, region="r1", gpus_per_node=2),
        toys.pool("b", 8, region="r1"),
        toys.pool("c", 4, region="r2"),
    ]
    return toys.make_instance(
        pools,
        [toys.configuration("A", {"a": 2}), toys.configuration("B", {"b": 1})],
        workloads=[toys.workload(f"w{i}", rate_rps=10.0) for i in range(6)],
        num_windows=DAY,
        dynamics=FULL_DYNAMICS,
    )


def digest(instance: Instance, seed: int) -> str:
    """Return a hash over all arrays of a drawn scenario."""
    scenario = draw_scenario(instance, rng(seed))
    found = hashlib.sha256()
    for name in (
        "rate_rps",
        "input_scale",
        "output_scale",
        "delay_factor",
        "error_factor",
        "available_gpus",
        "price_factor",
    ):
        found.update(np.ascontiguousarray(getattr(scenario, name)).tobytes())
    return found.hexdigest()


def test_equal_generators_give_equal_scenarios(full: Instance) -> None:
    """The generator is the only source of randomness: draws in between, or another object, change nothing."""
    first = digest(full, 1)
    np.random.default_rng().random(10)
    digest(full, 2)
    assert digest(full, 1) == first
    assert digest(Instance.from_dict(full.to_dict()), 1) == first
    assert digest(full, 2) != first


def test_scenarios_fit_their_instance(full: Instance) -> None:
    """Shapes, whole nodes, positive scales; rates are whole requests; factors and scales average to one."""
    scenarios = [draw_scenario(full, rng(k)).check(full) for k in range(300)]
    requests = scenarios[0].rate_rps * full.window_s
    np.testing.assert_allclose(requests, np.rint(requests), atol=1e-9)
    for name, tolerance in (("delay_factor", 0.01), ("error_factor", 0.01), ("input_scale", 0.02)):
        assert np.mean([getattr(s, name).mean() for s in scenarios]) == pytest.approx(1.0, abs=tolerance)
    assert np.mean([s.rate_rps.mean() for s in scenarios]) == pytest.approx(10.0, rel=0.05)
    assert not scenarios[0].rate_rps.flags.writeable


def test_drifting_lengths_average_to_the_nominal_ones(full: Instance) -> None:
    """The lognormal scales have mean one, however wide they are."""
    drift = {"kind": "drift", "parameters": {"log_sd": 0.5, "time_min": 1.0}}
    wide = full.replace(dynamics={**full.to_dict()["dynamics"], "tokens": drift})
    drawn = [draw_scenario(wide, rng(k)) for k in range(30)]
    for name in ("input_scale", "output_scale"):
        assert np.mean([getattr(s, name) for s in drawn]) == pytest.approx(1.0, abs=0.02)


def test_constant_fields_have_a_single_row(small: Instance) -> None:
    """What does not vary is stored once."""
    scenario = draw_scenario(small, rng())
    assert (
        scenario.available_gpus.shape[0]
        == scenario.input_scale.shape[0]
        == scenario.price_factor.shape[0]
        == 1
    )


def test_copula_parameters_must_be_ordered(full: Instance) -> None:
    """A larger correlation across regions than within one is no covariance."""
    parameters = {**FULL_DYNAMICS["availability"]["parameters"], "copula_other_region": 0.95}  # type: ignore[dict-item]
    data = full.to_dict()
    data["dynamics"]["availability"]["parameters"] = parameters
    with pytest.raises(DataError, match="copula"):
        ScenarioGenerator(Instance.from_dict(data))
