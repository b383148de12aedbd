"""Actions and fleets: slot options to replicas per configuration and back, and which options are allowed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from fleetgym.errors import DataError
from fleetgym.instance import Instance


def _is_plainly_valid(action: object, limits: np.ndarray) -> TypeGuard[np.ndarray]:
    """Tell in a microsecond whether an action is what it should be; one that is not may still be valid."""
    if not isinstance(action, np.ndarray) or action.dtype != np.int64 or action.shape != limits.shape:
        return False
    beyond = action.view(np.uint64) >= limits  # as unsigned numbers negative ones are huge
    return action.flags.c_contiguous and not beyond.any()


def check_options(
    action: object, limits: np.ndarray, where: str = "$.action", ignored: np.ndarray | None = None
) -> np.ndarray:
    """Return options as int64, or raise `DataError` saying which one is invalid.

    Parameters
    ----------
    action : array_like of whole numbers
        In the shape of `limits`.
    limits : ndarray of uint64
        Number of options of each slot, or one row of them per environment.
    where : str
        How to call the action in an error.
    ignored : ndarray of bool, optional
        Rows in which anything goes.

    Raises
    ------
    DataError
        For a wrong shape, a value that is not a whole number, or an option that does not exist.

    Examples
    --------
    >>> check_options([1.0, 0.0], np.array([2, 3], dtype=np.uint64)).tolist()
    [1, 0]
    """
    if _is_plainly_valid(action, limits):
        return action
    try:
        raw = np.asarray(action)
    except ValueError as error:  # lists of several lengths
        raise DataError(f"not an array ({error})", where) from None
    if raw.shape != limits.shape or raw.dtype.kind not in "iuf":
        raise DataError(
            f"expected whole numbers of shape {limits.shape}, got {raw.dtype} of shape {raw.shape}", where
        )
    with np.errstate(invalid="ignore"):
        options = np.ascontiguousarray(raw, dtype=np.int64)
    wrong = (options.view(np.uint64) >= limits) | (options != raw)
    if ignored is not None:
        wrong[ignored] = False
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise DataError(
            f"expected an option from 0 to {int(limits[at]) - 1}, got {raw[at]}",
            where + "".join(f"[{k}]" for k in at),
        )
    return options


@dataclasses.dataclass(frozen=True, eq=False)
class ActionSpace:
    """The options of every slot of an instance, flattened.

    Parameters
    ----------
    instance : Instance
        Its slots define the action.

    Examples
    --------
    >>> import fleetgym
    >>> space = ActionSpace(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> space.to_fleet(space.from_fleet([1, 0])).tolist()
    [1, 0]
    """

    instance: Instance

    @functools.cached_property
    def nvec(self) -> np.ndarray:
        """Number of options of each slot: int64 (slots,)."""
        sizes = []
        for slot, members in zip(self.instance.slots, self.instance.slot_members, strict=True):
            configuration = self.instance.configurations[members[0]]
            sizes.append(1 + (len(members) if slot.exclusive else configuration.max_replicas))
        return np.array(sizes, dtype=np.int64)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """Where each slot's options begin in the flat mask: int64 (slots,)."""
        return np.concatenate(([0], np.cumsum(self.nvec)[:-1]))

    @functools.cached_property
    def _limits(self) -> np.ndarray:
        return self.nvec.astype(np.uint64)

    @functools.cached_property
    def _options(self) -> tuple[np.ndarray, np.ndarray]:
        """Configuration and replicas of each flat option; option 0 of a slot is its first one, zero times."""
        configurations, replicas = [], []
        for slot, members in zip(self.instance.slots, self.instance.slot_members, strict=True):
            configurations.append(members[0])
            replicas.append(0)
            if slot.exclusive:
                configurations.extend(members)
                replicas.extend([1] * len(members))
            else:
                most = self.instance.configurations[members[0]].max_replicas
                configurations.extend([members[0]] * most)
                replicas.extend(range(1, most + 1))
        return np.array(configurations, dtype=np.int64), np.array(replicas, dtype=np.int64)

    def options(self, nvec: np.ndarray | None = None) -> np.ndarray:
        """Return configuration and replicas of each flat option, int64 (2, sum of nvec).

        Parameters
        ----------
        nvec : ndarray of int, shape (slots,), optional
            Numbers of options to lay out, at least as many as there are. Options beyond those of the instance
            want more replicas than any pool could hold.
        """
        if nvec is None:
            return np.stack(self._options)
        laid_out = np.full((2, int(np.sum(nvec))), 0, dtype=np.int64)
        end = 0
        for size, width, begin in zip(self.nvec, nvec, self.offsets, strict=True):
            laid_out[0, end : end + width] = self._options[0][begin]
            laid_out[1, end : end + width] = np.iinfo(np.int64).max
            for row in range(2):
                laid_out[row, end : end + size] = self._options[row][begin : begin + size]
            end += width
        return laid_out

    def check(self, action: object) -> np.ndarray:
        """Return `action` as int64 (slots,), one option per slot, or raise `DataError` (see `check_options`)."""
        return check_options(action, self._limits)

    def to_fleet(self, action: object) -> np.ndarray:
        """Return replicas per configuration, int64 (C,), of a valid action (see `check`)."""
        flat = self.offsets + self.check(action)
        configurations, replicas = self._options
        fleet = np.zeros(self.instance.num_configurations, dtype=np.int64)
        fleet[configurations[flat]] = replicas[flat]
        return fleet

    def to_fleets(self, actions: np.ndarray) -> np.ndarray:
        """Return the targets of many valid actions, int64 (n, C), from int64 (n, slots)."""
        flat = self.offsets + check_options(
            actions, np.broadcast_to(self._limits, actions.shape), "$.actions"
        )
        configurations, replicas = self._options
        fleets = np.zeros((len(flat), self.instance.num_configurations), dtype=np.int64)
        np.put_along_axis(fleets, configurations[flat], replicas[flat], axis=1)
        return fleets

    def from_fleet(self, fleet: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the action whose target is `fleet`.

        Parameters
        ----------
        fleet : array_like of int, shape (C,)
            Replicas per configuration.

        Returns
        -------
        ndarray of int64, shape (slots,)
            One option per slot.

        Raises
        ------
        DataError
            If no action wants this fleet.
        """
        try:
            counts = np.asarray(fleet)
        except ValueError:
            counts = np.asarray(fleet, dtype=object)
        if counts.dtype.kind not in "biuf":
            raise DataError("expected whole numbers of replicas", "$.fleet")
        if counts.shape != (self.instance.num_configurations,):
            raise DataError(
                f"expected {self.instance.num_configurations} replicas, got shape {counts.shape}", "$.fleet"
            )
        most = np.array([c.max_replicas for c in self.instance.configurations])
        bad = np.flatnonzero((counts < 0) | (counts > most) | (counts != np.round(counts)))
        if bad.size:
            c = int(bad[0])
            raise DataError(f"expected 0 to {most[c]} replicas, got {counts[c]}", f"$.fleet[{c}]")
        action = np.zeros(self.nvec.size, dtype=np.int64)
        for s, (slot, members) in enumerate(
            zip(self.instance.slots, self.instance.slot_members, strict=True)
        ):
            chosen = [o for o, c in enumerate(members, start=1) if counts[c]]
            if slot.exclusive and len(chosen) > 1:
                raise DataError(f"more than one configuration of exclusive slot {s} is wanted", "$.fleet")
            if chosen:
                action[s] = chosen[0] if slot.exclusive else counts[members[0]]
        return action

    def mask(self, available_gpus: np.ndarray, hold_usd: np.ndarray, budget_usd: float) -> np.ndarray:
        """Return which options would fit if they alone were held: bool (sum of nvec,).

        Parameters
        ----------
        available_gpus : ndarray, shape (G,)
            Most GPUs the fleet may hold.
        hold_usd : ndarray, shape (C,)
            Rent and model storage of one replica in a window.
        budget_usd : float
            Most the fleet may cost to hold; inf for no budget.
        """
        use = self.instance.gpu_use
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(use > 0, available_gpus[:, None] // use, np.iinfo(np.int64).max).min(axis=0)
            if budget_usd < np.inf:
                tolerance = 1e-9 * max(1.0, budget_usd)
                affordable = np.where(hold_usd > 0, (budget_usd + tolerance) // hold_usd, np.inf)
                fits = np.minimum(fits, affordable)
        configurations, replicas = self._options
        return replicas <= fits[configurations]

    def split_mask(self, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return a flat mask as one int8 array per slot, as ``MultiDiscrete.sample(mask=...)`` wants it."""
        return tuple(np.split(np.asarray(mask).astype(np.int8), self.offsets[1:]))
