"""From samples of request lengths to Mélange's distribution over buckets of request sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym import FleetgymError


def distribution(
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    input_edges: Sequence[float],
    output_edges: Sequence[float],
) -> np.ndarray:
    """Return the share of the requests in each bucket.

    Parameters
    ----------
    input_tokens, output_tokens : (requests,) ndarray
        Lengths of each request.
    input_edges, output_edges : sequence of float
        Rising upper edges: a bucket holds what is above the last edge and at most its own. Longer requests count in the
        last bucket.

    Returns
    -------
    (inputs, outputs) ndarray
        Shares that add up to one.

    Raises
    ------
    FleetgymError
        If there is no request, or edges do not rise.

    Examples
    --------
    >>> distribution(np.array([10, 30, 90, 25]), np.array([5, 5, 200, 5]), [25, 100], [100, 250]).tolist()
    [[0.5, 0.0], [0.25, 0.25]]
    """
    for name, edges in (("input_edges", input_edges), ("output_edges", output_edges)):
        if len(edges) == 0 or np.any(np.diff(edges) <= 0):
            raise FleetgymError(f"{name} is {list(edges)}; expected at least one edge, rising")
    if np.size(input_tokens) == 0 or np.shape(input_tokens) != np.shape(output_tokens):
        raise FleetgymError("expected as many output_tokens as input_tokens, and at least one")
    row = np.minimum(np.searchsorted(input_edges, input_tokens, side="left"), len(input_edges) - 1)
    column = np.minimum(np.searchsorted(output_edges, output_tokens, side="left"), len(output_edges) - 1)
    counts = np.zeros((len(input_edges), len(output_edges)))
    np.add.at(counts, (row, column), 1.0)
    return counts / np.size(input_tokens)
