"""Means over families of instances against SciPy's t-tests, formulas, and chance itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fleetgym.scoring.statistics import FamilyMean

V0_DEV = (6, 4, 4, 6, 4, 2)  # instances by family, as in fleet-v0/dev


def sample(*families: np.ndarray | list[float]) -> dict[tuple[str, str], float]:
    """Return instances' numbers by family and name."""
    return {(str(f), str(k)): float(v) for f, values in enumerate(families) for k, v in enumerate(values)}


@pytest.mark.parametrize("count", [2, 3, 15, 200])
def test_one_family_is_students_test(count: int) -> None:
    """Interval and p-value are those of SciPy's one-sample test, at every scale."""
    rng = np.random.default_rng(count)
    for scale in (1e-9, 1.0, 1e6):
        values = scale * rng.normal(0.4, 1.0, count)
        found, expected = FamilyMean.of(sample(values)), stats.ttest_1samp(values, 0.0)
        assert found.p_value() == pytest.approx(expected.pvalue)
        assert found.freedom == pytest.approx(count - 1)
        for level in (0.95, 0.99):
            assert found.interval(level) == pytest.approx(tuple(expected.confidence_interval(level)))


@pytest.mark.parametrize("counts", [(2, 2), (3, 40), (15, 15)])
def test_the_difference_of_two_is_welchs_test(counts: tuple[int, int]) -> None:
    """Of other instances, with other spreads: SciPy's test of two samples."""
    rng = np.random.default_rng(counts[1])
    one, other = rng.normal(0.3, 0.1, counts[0]), rng.normal(0.0, 2.0, counts[1])
    found = FamilyMean.of(sample(one)).minus(FamilyMean.of(sample(other)))
    expected = stats.ttest_ind(one, other, equal_var=False)
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert found.interval(0.99) == pytest.approx(tuple(expected.confidence_interval(0.99)))


def test_families_by_the_formula() -> None:
    """Squared errors of the families' means add up over their number squared; so do their parts of the freedom."""
    rng = np.random.default_rng(2)
    families = [rng.normal(f, 1.0 + f, n) for f, n in enumerate(V0_DEV)]
    found = FamilyMean.of(sample(*families))
    squares = [np.var(values, ddof=1) / len(values) / 36 for values in families]
    freedom = sum(squares) ** 2 / sum(s**2 / (len(v) - 1) for s, v in zip(squares, families, strict=True))
    assert found.mean == pytest.approx(np.mean([np.mean(values) for values in families]))
    assert found.error == pytest.approx(math.sqrt(sum(squares)))
    assert found.freedom == pytest.approx(freedom)
    halves = [FamilyMean.of(sample(*part)) for part in (families[:3], families[3:])]
    assert (halves[0].minus(halves[1]).error or 0.0) == pytest.approx(2.0 * (found.error or 0.0))


@pytest.mark.parametrize("sizes", [(40,) * 6, (15,) * 6, V0_DEV, (3,)])
def test_intervals_cover_and_chance_finds_one_in_twenty(sizes: tuple[int, ...]) -> None:
    """Normal numbers of equal spread: 95 % of intervals hold the true mean, 5 % of tests find what is not there."""
    rng, rounds = np.random.default_rng(0), 1_500
    inside = small = 0
    for values in rng.normal(0.0, 1.0, (rounds, sum(sizes))):
        found = FamilyMean.of(sample(*np.split(values, np.cumsum(sizes)[:-1])))
        low, high = found.interval() or (0.0, 0.0)
        inside += low <= 0.0 <= high
        small += found.p_value() < 0.05
    assert inside / rounds == pytest.approx(0.95, abs=0.015)
    assert small / rounds == pytest.approx(0.05, abs=0.015)


def test_what_cannot_be_told() -> None:
    """A single instance has no spread: no interval, and no difference that is not by chance; alone or in a sum."""
    one, many = FamilyMean.of(sample([1.0, 2.0], [9.0])), FamilyMean.of(sample([1.0, 2.0]))
    for found in (one, one.minus(many), many.minus(one)):
        assert (found.interval(), found.p_value()) == (None, 1.0)
    assert one.mean == 5.25


def test_instances_that_agree_leave_no_doubt() -> None:
    """Without any spread the interval is a point; a mean of zero differs from nothing, any other does."""
    for value, chance in ((0.0, 1.0), (0.1, 0.0), (-1e-300, 0.0)):
        found = FamilyMean.of(sample([value] * 3, [value] * 2))
        assert found.interval() == (found.mean, found.mean)
        assert found.p_value() == chance
        assert found.minus(found).interval() == (0.0, 0.0)
    assert FamilyMean.of(sample([0.5, 0.5], [-1.0, 0.0])).p_value() == 1.0
    sure, unsure = FamilyMean.of(sample([2.0, 2.0])), FamilyMean.of(sample([1.0, 2.0]))
    assert sure.minus(unsure).freedom == unsure.freedom


def test_the_order_of_instances_does_not_matter() -> None:
    """The same bits, however they are given."""
    given = sample(*np.random.default_rng(3).normal(0.0, 1.0, (3, 7)))
    assert FamilyMean.of(given) == FamilyMean.of(dict(reversed(given.items())))
