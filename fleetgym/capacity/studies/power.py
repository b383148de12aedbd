"""Compute reliability and power of a fleet: nodes, watts, tokens per joule."""

from __future__ import annotations

import math


def node_availability(failures_per_node_day: float, repair_h: float) -> float:
    """Return the share of time a node works, 1 / (1 + r MTTR) (inference-fleet-sim, eq. 6).

    Parameters
    ----------
    failures_per_node_day : float
        Failure rate r; 0.0065 for A100 nodes of RSC-1 (Kokolis et al., 2024).
    repair_h : float
        Mean time to repair.

    Examples
    --------
    >>> round(node_availability(0.0065, 48), 4)
    0.9872
    """
    return 1.0 / (1.0 + failures_per_node_day * repair_h / 24.0)


def nodes_to_buy(needed: int, availability: float) -> int:
    """Return the nodes of which `needed` work on average: fleet-sim's ceil(n / A).

    Examples
    --------
    >>> nodes_to_buy(24, 0.95)
    26
    """
    return math.ceil(needed / availability)


def nodes_for_confidence(needed: int, availability: float, confidence: float = 0.99) -> int:
    """Return the nodes of which at least `needed` work with a probability, if they fail independently.

    The average leaves too few working about half of the time.

    Examples
    --------
    >>> nodes_for_confidence(24, 0.95)
    29
    """
    from scipy.stats import binom

    count = needed
    while binom.sf(needed - 1, count, availability) < confidence:
        count += 1
    return count
