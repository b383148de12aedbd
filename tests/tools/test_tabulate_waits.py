"""The table of waits: what is judged, and the limit of any formula."""

from __future__ import annotations

import pytest

from tools import tabulate_waits as waits
from tools.tabulate_waits import Queue


def test_the_limit_of_any_formula_lies_between_laws_of_equal_moments():
    """Two laws at .1 and .4 have their geometric mean at .2: a factor of 2 from both."""
    cells = [
        (Queue(16, 0.9, law, 3.0, 1.0), 0.1, mean, 0.001)
        for law, mean in (("gamma", 0.1), ("lognormal", 0.4))
    ]
    other = (Queue(16, 0.9, "gamma", 9.0, 1.0), 0.1, 0.9, 0.001)
    least, queue, slack = waits.best_possible([*cells, other])
    assert (least, queue.cv2, slack) == (pytest.approx(2.0), 3.0, 0.1)


def test_small_and_uncertain_chances_are_not_judged():
    """Below the least chance, or with a wide interval, a cell is left out."""
    queue = Queue(16, 0.9, "gamma", 3.0, 1.0)
    cells = [(queue, 0.0, mean, half) for mean, half in ((0.1, 0.01), (0.1, 0.03), (0.004, 0.0))]
    assert waits.judged(cells) == cells[:1]
