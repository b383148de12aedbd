"""Describe token lengths by a CDF or a joint histogram: exact shares and moments, and samples."""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from importlib import resources

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError

#: Share of a request's tokens that are input where only totals are known (fleet-sim's).
INPUT_SHARE = 0.8


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """A mixture of boxes: in each, input and output lengths are independent and uniform on whole numbers.

    A single pair of lengths is a box of one point, so correlation is no restriction.

    Parameters
    ----------
    input_low, input_high, output_low, output_high : (n,) int arrays
        Ends of the boxes in tokens, both included.
    share : (n,) float array
        Probability of each box; scaled to add up to 1.

    Examples
    --------
    >>> short = Lengths([1], [3], [2], [2], [1.0])
    >>> short.share_up_to(4), short.mean_input, short.quantile(0.99)
    (0.6666666666666666, 2.0, 5)
    """

    input_low: np.ndarray
    input_high: np.ndarray
    output_low: np.ndarray
    output_high: np.ndarray
    share: np.ndarray

    def __post_init__(self) -> None:
        for name in ("input_low", "input_high", "output_low", "output_high"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))
        share = np.asarray(self.share, dtype=float)
        sizes = {np.shape(getattr(self, field.name)) for field in dataclasses.fields(self)}
        if len(sizes) != 1 or share.ndim != 1 or share.size == 0:
            raise FleetgymError(f"expected five arrays of one length, at least 1; got shapes {sorted(sizes)}")
        if np.any(share < 0.0) or not 0.0 < share.sum() < np.inf:
            raise FleetgymError("expected shares of at least 0 with a positive sum")
        if np.any(self.input_low < 0) or np.any(self.output_low < 0):
            raise FleetgymError("expected lengths of at least 0 tokens")
        if np.any(self.input_high < self.input_low) or np.any(self.output_high < self.output_low):
            raise FleetgymError("a box ends before it begins")
        object.__setattr__(self, "share", share / share.sum())

    # -- where they come from -----------------------------------------------------------------------------

    @classmethod
    def from_totals(
        cls,
        breakpoints: Sequence[tuple[int, float]],
        *,
        input_share: float = INPUT_SHARE,
        low: int = 1,
        high: int | None = None,
    ) -> Lengths:
        """Return the law of an empirical CDF of total tokens, uniform between its breakpoints.

        Parameters
        ----------
        breakpoints : sequence of (tokens, cumulative share)
            Increasing in both.
        input_share : float
            A request of L tokens has max(1, floor(share x L)) of input, the rest, at least 1, of output.
        low, high : int
            Lengths are kept to this range; bins without any length in it become the point `high`, as in fleet-sim.

        Examples
        --------
        >>> law = Lengths.from_totals([(10, 0.5), (20, 1.0)])
        >>> round(law.share_up_to(10), 9), round(law.share_up_to(15), 9), law.mean_output
        (0.5, 0.75, 2.5)
        """
        edges = np.array([0, *(edge for edge, _ in breakpoints)], dtype=np.int64)
        cumulative = np.array([0.0, *(share for _, share in breakpoints)], dtype=float)
        if edges.size < 2 or np.any(np.diff(edges) <= 0) or np.any(np.diff(cumulative) < 0.0):
            raise FleetgymError("expected breakpoints that increase in tokens and in cumulative share")
        most = int(edges[-1]) if high is None else int(high)
        totals, shares = [], []
        for before, edge, mass in zip(edges[:-1], edges[1:], np.diff(cumulative), strict=True):
            points = np.arange(max(low, before + 1), min(most, edge) + 1)
            points = points if points.size else np.array([most])
            if mass > 0.0:
                totals.append(points)
                shares.append(np.full(points.size, mass / points.size))
        total = np.concatenate(totals)
        inputs = np.maximum(1, (total * input_share).astype(np.int64))
        outputs = np.maximum(1, total - inputs)
        return cls(inputs, inputs, outputs, outputs, np.concatenate(shares))

    @classmethod
    def from_histogram(cls, cells: Iterable[tuple[int, int, int, int, float]]) -> Lengths:
        """Return the law of a joint histogram: cells of (input low, high, output low, high, weight).

        Examples
        --------
        >>> Lengths.from_histogram([(1, 10, 1, 2, 30), (11, 20, 1, 4, 10)]).mean_input
        8.0
        """
        columns = list(zip(*cells, strict=True))
        if not columns:
            raise FleetgymError("a histogram needs at least one cell")
        inputs_from, inputs_to, outputs_from, outputs_to, weight = (np.asarray(column) for column in columns)
        return cls(inputs_from, inputs_to, outputs_from, outputs_to, weight)

    # -- what they say --------------------------------------------------------------------------------------

    def share_up_to(self, total: int) -> float:
        """Return the probability that input and output together have at most `total` tokens."""
        corners = self.input_low + self.output_low, self.input_high + self.output_high + 2
        ends = self.input_high + self.output_low + 1, self.input_low + self.output_high + 1
        fitting = sum(_triangle(total - c) for c in corners) - sum(_triangle(total - e) for e in ends)
        return float(np.clip((self.share * (fitting / self._sizes)).sum(), 0.0, 1.0))

    def quantile(self, share: float) -> int:
        """Return the fewest total tokens that at least `share` of the requests do not exceed."""
        low, high = -1, self.most_tokens
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.share_up_to(middle) >= share else (middle, high)
        return high

    @property
    def most_tokens(self) -> int:
        """The longest request."""
        return int((self.input_high + self.output_high).max())

    @property
    def mean_input(self) -> float:
        """Mean input length."""
        return float(self.share @ (0.5 * (self.input_low + self.input_high)))

    @property
    def mean_output(self) -> float:
        """Mean output length."""
        return float(self.share @ (0.5 * (self.output_low + self.output_high)))

    @property
    def _sizes(self) -> np.ndarray:
        return (self.input_high - self.input_low + 1.0) * (self.output_high - self.output_low + 1.0)

    @functools.cached_property
    def input_density(self) -> np.ndarray:
        """Probability of every input length from 0 to the longest, (longest + 1,)."""
        steps = np.zeros(int(self.input_high.max()) + 2)
        height = self.share / (self.input_high - self.input_low + 1.0)
        np.add.at(steps, self.input_low, height)
        np.subtract.at(steps, self.input_high + 1, height)
        return np.maximum(0.0, np.cumsum(steps)[:-1])

    def expect(self, coefficients: Sequence[Callable[[np.ndarray], np.ndarray]]) -> float:
        """Return E[sum over k of c_k(input) output^k], summed over every whole number.

        Parameters
        ----------
        coefficients : sequence of callables
            c_0, c_1, ...: each takes input lengths, float array, and returns an array of the same shape.

        Examples
        --------
        >>> law = Lengths([1], [3], [2], [2], [1.0])
        >>> law.expect([lambda i: i**2, lambda i: 10.0 * i])
        44.666666666666664
        """
        inputs = np.arange(int(self.input_high.max()) + 1, dtype=float)
        outputs = np.arange(int(self.output_high.max()) + 1, dtype=np.longdouble)
        total = np.zeros(self.share.size, dtype=np.longdouble)
        for k, coefficient in enumerate(coefficients):
            values = np.asarray(coefficient(inputs), dtype=np.longdouble)
            by_input = _means(values, self.input_low, self.input_high)
            total += by_input * _means(outputs**k, self.output_low, self.output_high)
        return float(self.share @ total)

    # -- parts of them --------------------------------------------------------------------------------------

    def between(self, above: int, up_to: int) -> tuple[Lengths | None, float]:
        """Return the law of the requests with ``above < total tokens <= up_to``, and their share.

        Returns
        -------
        lengths : Lengths or None
            None where there are none.
        share : float
            In [0, 1].
        """
        rows = self._rows_where_cut(above, up_to)
        inside = (rows.input_low + rows.output_low > above) & (rows.input_high + rows.output_high <= up_to)
        share = float(rows.share[inside].sum())
        if share <= 0.0:
            return None, 0.0
        return rows._select(inside), share

    def shortened_to(self, total: int) -> Lengths:
        """Return the law after inputs are cut so that no request exceeds `total`; outputs stay as they are.

        An input is never cut below one token.
        """
        rows = self._rows_where_cut(total, total)
        too_long = rows.input_low + rows.output_low > total
        rows = rows._split_outputs(too_long)
        too_long = rows.input_low + rows.output_low > total
        kept = np.maximum(1, total - rows.output_low)
        low = np.where(too_long, kept, rows.input_low)
        return Lengths(
            low, np.where(too_long, kept, rows.input_high), rows.output_low, rows.output_high, rows.share
        )

    def _select(self, chosen: np.ndarray) -> Lengths:
        return Lengths(*(getattr(self, field.name)[chosen] for field in dataclasses.fields(self)))

    def _rows_where_cut(self, above: int, up_to: int) -> Lengths:
        """Cut boxes that a limit crosses into rows of one output length, and those rows at the limits."""
        shortest, longest = self.input_low + self.output_low, self.input_high + self.output_high
        crossed = np.zeros(self.share.size, dtype=bool)
        for limit in (above, up_to):
            crossed |= (shortest <= limit) & (longest > limit)
        if not crossed.any():
            return self
        rows = self._split_outputs(crossed)
        for limit in dict.fromkeys((above, up_to)):
            rows = rows._cut_inputs(limit)
        return rows

    def _split_outputs(self, chosen: np.ndarray) -> Lengths:
        """Split the chosen boxes into one per output length."""
        counts = np.where(chosen, self.output_high - self.output_low + 1, 1)
        owner = np.repeat(np.arange(counts.size), counts)
        step = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
        low = self.output_low[owner] + step
        high = np.where(chosen[owner], low, self.output_high[owner])
        return Lengths(self.input_low[owner], self.input_high[owner], low, high, (self.share / counts)[owner])

    def _cut_inputs(self, limit: int) -> Lengths:
        """Cut boxes of one output length in two where their total passes `limit`."""
        edge = limit - self.output_low
        cut = (self.output_low == self.output_high) & (self.input_low <= edge) & (edge < self.input_high)
        part = (edge - self.input_low + 1.0) / (self.input_high - self.input_low + 1.0)
        left = self._select(np.ones(cut.size, dtype=bool))
        pieces = (
            np.concatenate((left.input_low, edge[cut] + 1)),
            np.concatenate((np.where(cut, edge, left.input_high), left.input_high[cut])),
            np.concatenate((left.output_low, left.output_low[cut])),
            np.concatenate((left.output_high, left.output_high[cut])),
            np.concatenate((np.where(cut, left.share * part, left.share), (left.share * (1.0 - part))[cut])),
        )
        return Lengths(*pieces)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return input and output lengths of n requests, int64 (n,) each."""
        box = np.searchsorted(np.cumsum(self.share)[:-1], rng.random(n), side="right")
        inputs = rng.integers(self.input_low[box], self.input_high[box] + 1)
        return inputs, rng.integers(self.output_low[box], self.output_high[box] + 1)


def mixture(parts: Sequence[tuple[Lengths, float]]) -> Lengths:
    """Return the law of a mixture: (lengths, weight) pairs."""
    if not parts:
        raise FleetgymError("a mixture needs at least one part")
    laws = [law for law, _ in parts]
    return Lengths(
        np.concatenate([law.input_low for law in laws]),
        np.concatenate([law.input_high for law in laws]),
        np.concatenate([law.output_low for law in laws]),
        np.concatenate([law.output_high for law in laws]),
        np.concatenate([law.share * weight for law, weight in parts]),
    )


def _triangle(m: np.ndarray) -> np.ndarray:
    """Return how many pairs of whole numbers from 0 have a sum of at most m."""
    wide = np.maximum(m, -1).astype(float)
    return (wide + 1.0) * (wide + 2.0) / 2.0


def _means(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the mean of ``values[low..high]`` of each box."""
    total = np.concatenate((np.zeros(1, dtype=values.dtype), np.cumsum(values)))
    # A box of one point needs no difference of large sums.
    many = (total[high + 1] - total[low]) / (high - low + 1)
    return np.where(low == high, values[low], many)


@functools.cache
def published_totals() -> dict[str, tuple[tuple[int, float], ...]]:
    """Return the total-token CDFs that fleet-sim ships, as breakpoints by name: azure, lmsys, agent-heavy.

    Source: vllm-project/semantic-router, src/fleet-sim @ 3d48f8c, Apache-2.0. The azure one stems from the Azure
    conversation trace, lmsys from LMSYS-Chat-1M; agent-heavy is synthetic.
    """
    text = resources.files("fleetgym.data").joinpath("total_token_cdfs.csv").read_text(encoding="utf-8")
    found: dict[str, list[tuple[int, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["workload"], []).append(
            (int(row["total_tokens"]), float(row["cumulative_share"]))
        )
    return {name: tuple(points) for name, points in found.items()}


@functools.cache
def published(name: str) -> Lengths:
    """Return a law of `published_totals`, four fifths of each request being input.

    Raises
    ------
    UnknownNameError
        For an unknown name.

    Examples
    --------
    >>> round(published("lmsys").share_up_to(4096), 6)
    0.983742
    """
    known = published_totals()
    if name not in known:
        raise UnknownNameError("length distribution", name, known)
    return Lengths.from_totals(known[name])
