"""Convert the actions of an episode to the changes in them, which results files hold, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fleetgym.files.errors import DataError
from fleetgym.files.schema import (
    Integer,
    Kind,
    ListOf,
)


@dataclasses.dataclass(frozen=True)
class Changes(Kind):
    """Triples [window, slot, option], sorted, one for each option that differs from the window before."""

    def read(self, value: Any, path: str) -> tuple[tuple[int, int, int], ...]:
        """Return the triples."""
        triples = ListOf(ListOf(Integer(), 3, 3), maximum=10**7).read(value, path)
        for k in range(1, len(triples)):
            if triples[k][:2] <= triples[k - 1][:2]:
                raise DataError(
                    f"expected a window and slot after {triples[k - 1][:2]}, got {triples[k][:2]}",
                    f"{path}[{k}]",
                )
        return triples

    def json_schema(self) -> dict[str, Any]:
        """Return the nested array type."""
        return ListOf(ListOf(Integer(), 3, 3), maximum=10**7).json_schema()


def encode_actions(actions: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """Return the changes in a sequence of actions.

    Parameters
    ----------
    actions : ndarray of int, shape (windows, slots)
        One option per window and slot.

    Returns
    -------
    tuple of (window, slot, option)
        Where an option differs from the window before; before the first window every option is 0.

    Examples
    --------
    >>> encode_actions(np.array([[0, 2], [0, 2], [1, 0]]))
    ((0, 1, 2), (2, 0, 1), (2, 1, 0))
    """
    dense = np.asarray(actions, dtype=np.int64)
    before = np.vstack((np.zeros_like(dense[:1]), dense[:-1]))
    return tuple((int(t), int(s), int(dense[t, s])) for t, s in np.argwhere(dense != before))


def decode_actions(
    changes: Iterable[Sequence[int]], num_windows: int, options: Sequence[int], path: str = "$.actions"
) -> np.ndarray:
    """Return the sequence of actions that `encode_actions` took apart, checked against the slots.

    Parameters
    ----------
    changes : iterable of (window, slot, option)
        As in a results file.
    num_windows : int
        Windows of the episode.
    options : sequence of int
        Number of options of each slot.
    path : str
        JSON path of the changes, for messages.

    Returns
    -------
    ndarray of int64, shape (windows, slots)

    Raises
    ------
    DataError
        For a window, slot or option that does not exist, or a change that changes nothing.
    """
    dense = np.zeros((num_windows, len(options)), dtype=np.int64)
    for k, (window, slot, option) in enumerate(changes):
        if window >= num_windows:
            raise DataError(f"expected a window from 0 to {num_windows - 1}, got {window}", f"{path}[{k}][0]")
        if slot >= len(options):
            raise DataError(f"expected a slot from 0 to {len(options) - 1}, got {slot}", f"{path}[{k}][1]")
        if option >= options[slot]:
            raise DataError(
                f"expected an option from 0 to {options[slot] - 1}, got {option}", f"{path}[{k}][2]"
            )
        if dense[window, slot] == option:
            raise DataError("this option held already: only changes are listed", f"{path}[{k}]")
        dense[window:, slot] = option
    return dense
