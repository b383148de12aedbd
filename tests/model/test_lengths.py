"""Laws of lengths: their means are exact, draws follow them, and instances without one stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from toys import affine, configuration, make_instance, one_pool_data, pool, random_law, workload

import fleetgym
from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance
from fleetgym.model.lengths import LengthLaw


def mean_of(law: LengthLaw) -> float:
    """Return the mean factor."""
    return float(law.mean_below(np.inf))


@pytest.mark.parametrize("cv2", [0.0, 0.1, 1.0, 10.0, 1e6])
def test_lognormal(cv2: float) -> None:
    """The mean is 1, and shares up to a hundredth in the tail are those of the lognormal law."""
    law = LengthLaw.lognormal(cv2)
    assert mean_of(law) == pytest.approx(1.0, abs=1e-8)
    if 0.0 < cv2 <= 10.0:
        deviation = np.sqrt(np.log1p(cv2))
        x = np.exp(deviation * np.array([0.8, 1.3, 2.0, 2.3]) - deviation**2 / 2)
        exact = ndtr(-np.log(x) / deviation - deviation / 2)
        assert law.survival(x) == pytest.approx(exact, rel=0.09)


@pytest.mark.parametrize("sample", [[7], [0, 0, 0, 1], [1, 2, 3], [5, 5, 5, 5, 80], list(range(5000))])
def test_sample(sample: list[float]) -> None:
    """A sample's law has its mean, whatever the unit; weights are repetitions."""
    law = LengthLaw.of_sample(np.array(sample))
    assert mean_of(law) == pytest.approx(1.0, abs=1e-8)
    values, counts = np.unique(sample, return_counts=True)
    assert LengthLaw.of_sample(1e3 * values, 5.0 * counts).factors == pytest.approx(law.factors, rel=1e-7)


def test_sample_follows_what_it_measured() -> None:
    """The law of lengths drawn from a law is that law."""
    law = LengthLaw.lognormal(1.7)
    again = LengthLaw.of_sample(law.draw(np.random.default_rng(1), 400_000))
    assert again.factors[1:10] == pytest.approx(law.factors[1:10], rel=0.02)


@pytest.mark.parametrize(
    "law",
    [
        LengthLaw.lognormal(2.5),
        LengthLaw(shares=(0, 1), factors=(1, 1)),
        LengthLaw(shares=(0, 0.25, 0.5, 1), factors=(0, 0, 1.6, 1.6)),
    ],
)
def test_draws_follow_the_law(law: LengthLaw) -> None:
    """Shares beyond a factor and means below it are those of what is drawn."""
    drawn = law.draw(np.random.default_rng(0), 200_000)
    for x in (0.0, 0.3, 1.0, 1.59, 1.6, 5.0):
        assert law.survival(x) == pytest.approx(np.mean(drawn > x), abs=5e-3)
        if np.any(drawn <= x):
            assert law.mean_below(x) == pytest.approx(drawn[drawn <= x].mean(), abs=0.03)
    assert law.survival(-1.0) == 1.0
    assert law.survival(np.inf) == 0.0


@pytest.mark.parametrize("lengths", [[0, 0], [-1, 2], [np.nan, 1]])
def test_no_law(lengths: list[float]) -> None:
    """What is no sample of lengths is refused."""
    with pytest.raises(DataError, match="expected"):
        LengthLaw.of_sample(np.array(lengths))


def test_files() -> None:
    """A law goes into a file and comes back; without one, nothing of it is written."""
    data = one_pool_data()
    plain = Instance.from_dict(data)
    assert "input_law" not in plain.to_dict()["workloads"][0]
    law = LengthLaw.lognormal(3.0)
    data["workloads"][0]["input_law"] = {"shares": list(law.shares), "factors": list(law.factors)}
    stated = Instance.from_dict(data)
    assert stated.workloads[0].input_law == law
    assert stated.workloads[0].output_law is None
    assert Instance.from_dict(stated.to_dict()) == stated != plain


@pytest.mark.parametrize("seed", range(12))
def test_late_shares_by_slo(seed: int) -> None:
    """A longer SLO never makes more requests late; shares and slack are those of the law."""
    rng = np.random.default_rng(seed)
    law = random_law(rng) or LengthLaw.lognormal(1.0)
    slos = np.geomspace(0.01, 100.0, 200)
    instance = make_instance(
        [pool("p", 4)],
        [configuration("A", {"p": 1})],
        None,
        [workload(f"w{k}", input_law=law, ttft_slo_s=float(slo)) for k, slo in enumerate(slos)],
        {"prefill_s": affine(0.05, 0.01, 0.001)},
    )
    snapshot = fleetgym.View(instance).snapshot()
    own, slack = snapshot.own_late[:, 0], snapshot.slack_s[:, 0]
    longest = slos - 0.05 - 0.1  # a mean prompt takes a second
    assert own == pytest.approx(law.survival(longest), abs=1e-12)
    some = own < 1.0
    assert slack[some] == pytest.approx((longest - law.mean_below(longest))[some], abs=1e-9)
    for decay in (0.01, 1.0, 100.0):
        late = np.where(some, own + (1.0 - own) * np.exp(-decay * np.where(some, slack, 0.0)), 1.0)
        assert np.all(np.diff(late) <= 1e-12)
