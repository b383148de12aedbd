"""Compute how many tokens requests hold while they are served, and how many requests fit."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.files.schema import Array, Number, spec
from fleetgym.hardware.catalog import ModelType

#: Standard deviations above its mean for which the memory of all sequences together has room.
DEVIATIONS = 2.0

#: Tokens that a request may hold, 2 % apart.
GRID = np.unique(np.floor(1.02 ** np.arange(815)))

_AMOUNT = Number(0.0, 1e15)

#: A request that makes o tokens holds, on average over them, what it holds at these shares of o: exact for squares.
_POINTS = (0.5 - 0.5 / 3.0**0.5, 0.5 + 0.5 / 3.0**0.5)


@dataclasses.dataclass(frozen=True, eq=False)
class HeldTokens:
    """What the requests of I workloads hold of the KV cache.

    A request holds its prompt while it is computed, and one token more with each that it generates.

    Parameters
    ----------
    tokens : ndarray, shape (K,)
        Numbers of tokens held.
    decoding : ndarray, shape (I, K)
        Output tokens of a request that are generated while it holds this number.
    prefilling : ndarray, shape (I, K)
        Prompt tokens of a request that are computed while it holds this number.
    rate : ndarray, shape (I,)
        Requests per second, or any multiple.
    whole : ndarray, shape (I,)
        Mean tokens of a request at its end.
    longest : ndarray, shape (I,)
        Most tokens of a request.
    """

    tokens: np.ndarray = spec(Array(("length",), _AMOUNT))
    decoding: np.ndarray = spec(Array(("workload", "length"), _AMOUNT))
    prefilling: np.ndarray = spec(Array(("workload", "length"), _AMOUNT))
    rate: np.ndarray = spec(Array(("workload",), _AMOUNT))
    whole: np.ndarray = spec(Array(("workload",), _AMOUNT))
    longest: np.ndarray = spec(Array(("workload",), _AMOUNT))

    def of(self, workloads: np.ndarray) -> HeldTokens:
        """Return the same for some of the workloads, given by their numbers or a mask."""
        return HeldTokens(
            self.tokens,
            self.decoding[workloads],
            self.prefilling[workloads],
            self.rate[workloads],
            self.whole[workloads],
            self.longest[workloads],
        )

    def context(self, model: ModelType) -> float:
        """Return the mean context that a model reads for a token, in tokens that all of its layers hold."""
        weight = self.rate @ self.decoding
        return float(weight @ model.kv_bytes(self.tokens) / weight.sum() / model.kv_bytes_per_token)

    @property
    def computed_per_output(self) -> float:
        """Prompt tokens that are computed for each token that is generated."""
        return float((self.rate @ self.prefilling).sum() / (self.rate @ self.decoding).sum())

    @property
    def prompts_per_output(self) -> float:
        """Prompts that come for each token that is generated."""
        return float(self.rate.sum() / (self.rate @ self.decoding).sum())

    @property
    def squares_per_output(self) -> float:
        """Prompt tokens that are computed, times those that each of them may read, for each token that is generated."""
        return float((self.rate @ self.prefilling) @ self.tokens / (self.rate @ self.decoding).sum())

    def moments(self, model: ModelType, prompt_s: float, token_s: float) -> tuple[float, float, float]:
        """Return mean and standard deviation of the bytes that a sequence in service holds, and its mean `whole`.

        Parameters
        ----------
        model : ModelType
            The model.
        prompt_s, token_s : float
            Seconds that a sequence stays for each token of its prompt, and for each that it generates.
        """
        stays = self.rate[:, None] * (prompt_s * self.prefilling + token_s * self.decoding)
        weight = stays.sum(axis=0) / stays.sum()
        held = model.kv_bytes(self.tokens)
        mean = float(weight @ held)
        spread = max(0.0, float(weight @ held**2) - mean**2) ** 0.5
        return mean, spread, float(stays.sum(axis=1) @ self.whole / stays.sum())


class HeldCounter:
    """Adds up what requests hold, part by part.

    Parameters
    ----------
    workloads : int
        I.
    """

    def __init__(self, workloads: int):
        self._sums = np.zeros((2, len(GRID) * workloads))
        self._workloads = workloads
        self._whole, self._longest = np.zeros(workloads), np.zeros(workloads)
        self._count = np.zeros(workloads)

    def add(
        self, workload: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, computed: np.ndarray
    ) -> None:
        """Count requests: their workloads, prompt and output tokens, and prompt tokens that are computed."""
        size = self._sums.shape[1]
        for share in _POINTS:
            place = _place(inputs + share * outputs) * self._workloads + workload
            self._sums[0] += np.bincount(place, 0.5 * outputs, minlength=size)
        self._sums[1] += np.bincount(_place(inputs) * self._workloads + workload, computed, minlength=size)
        self._whole += np.bincount(workload, inputs + outputs, minlength=self._workloads)
        self._count += np.bincount(workload, minlength=self._workloads)
        np.maximum.at(self._longest, workload, inputs + outputs)

    def total(self, rate: np.ndarray | None = None) -> HeldTokens:
        """Return what was added; by default workloads come as often as they were added."""
        count = np.maximum(self._count, 1.0)
        sums = self._sums.reshape(2, len(GRID), self._workloads) / count
        return HeldTokens(
            tokens=GRID,
            decoding=sums[0].T,
            prefilling=sums[1].T,
            rate=self._count if rate is None else rate,
            whole=self._whole / count,
            longest=self._longest,
        )


def held_tokens(inputs: np.ndarray, outputs: np.ndarray) -> HeldTokens:
    """Return what requests of one workload hold, from their prompt and output tokens.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> llama, held = catalog.model("Llama-3.1-8B"), held_tokens(np.array([1000.0]), np.array([200.0]))
    >>> mean, spread, whole = held.moments(llama, prompt_s=0.0, token_s=1.0)
    >>> round(mean / llama.kv_bytes_per_token, -1), whole
    (1100.0, 1200.0)
    """
    counter = HeldCounter(1)
    counter.add(np.zeros(len(inputs), dtype=np.int64), inputs, outputs, inputs)
    return counter.total()


def _place(tokens: np.ndarray) -> np.ndarray:
    """Return the numbers of the nearest entries of `GRID`."""
    above = np.clip(np.searchsorted(GRID, tokens), 1, len(GRID) - 1)
    return np.where(tokens - GRID[above - 1] < GRID[above] - tokens, above - 1, above)
