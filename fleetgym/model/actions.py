"""Convert actions (an option per slot) to fleets and back, and list the allowed options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance


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


def most_that_fit(
    gpu_use: np.ndarray, available_gpus: np.ndarray, hold_usd: np.ndarray, budget_usd: float
) -> np.ndarray:
    """Return how many replicas of each configuration would fit if they alone were held: float (C,), perhaps inf.

    Parameters
    ----------
    gpu_use : ndarray, shape (G, C)
        GPUs of one replica.
    available_gpus : ndarray, shape (G,)
        Most GPUs the fleet may hold.
    hold_usd : ndarray, shape (C,)
        Rent and model storage of one replica in a window.
    budget_usd : float
        Most the fleet may cost to hold, up to the tolerance of admission; inf for no budget.

    Examples
    --------
    >>> most_that_fit(np.array([[2, 4, 0]]), np.array([8]), np.array([1.0, 2.0, 0.0]), 3.0).tolist()
    [3.0, 1.0, inf]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        fits = np.where(gpu_use > 0, available_gpus[:, None] // gpu_use, np.inf).min(axis=0, initial=np.inf)
        if budget_usd < np.inf:
            tolerance = 1e-9 * max(1.0, budget_usd)
            fits = np.minimum(fits, np.where(hold_usd > 0, (budget_usd + tolerance) // hold_usd, np.inf))
    return fits


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
        """Number of options of each slot, int64 (slots,), read-only."""
        sizes = []
        for slot, members in zip(self.instance.slots, self.instance.slot_members, strict=True):
            configuration = self.instance.configurations[members[0]]
            sizes.append(1 + (len(members) if slot.exclusive else configuration.max_replicas))
        nvec = np.array(sizes, dtype=np.int64)
        nvec.setflags(write=False)
        return nvec

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """Where each slot's options begin in the flat mask, int64 (slots,), read-only."""
        offsets = np.concatenate(([0], np.cumsum(self.nvec)[:-1]))
        offsets.setflags(write=False)
        return offsets

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

    @functools.cached_property
    def _counts(self) -> np.ndarray:
        """How many numbers of replicas each configuration may have, 0 among them: uint64 (C,)."""
        return np.array([c.max_replicas + 1 for c in self.instance.configurations], dtype=np.uint64)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Slot of each configuration, and the option that stands for one replica of it: int64 (2, C)."""
        found = np.zeros((2, self.instance.num_configurations), dtype=np.int64)
        for s, members in enumerate(self.instance.slot_members):
            found[0, list(members)] = s
            found[1, list(members)] = np.arange(1, len(members) + 1)
        found.setflags(write=False)
        return found

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

    def check_fleet(self, fleet: object) -> np.ndarray:
        """Return `fleet` as int64 (C,), replicas per configuration.

        Raises
        ------
        DataError
            If no action wants this fleet: for a wrong shape, for what is not a whole number from 0 to the
            configuration's `max_replicas`, and for two configurations of one exclusive slot.
        """
        counts = fleet if _is_plainly_valid(fleet, self._counts) else self._checked_counts(fleet)
        if self._counts.size > self.nvec.size:  # there are slots of several configurations
            chosen = np.bincount(self.places[0][counts > 0])
            if chosen.max(initial=0) > 1:
                s = int(chosen.argmax())
                raise DataError(f"more than one configuration of exclusive slot {s} is wanted", "$.fleet")
        return counts

    def _checked_counts(self, fleet: object) -> np.ndarray:
        try:
            counts = np.asarray(fleet)
        except ValueError:  # lists of several lengths
            counts = np.asarray(fleet, dtype=object)
        if counts.dtype.kind not in "biuf":
            raise DataError("expected whole numbers of replicas", "$.fleet")
        if counts.shape != self._counts.shape:
            raise DataError(f"expected {self._counts.size} replicas, got shape {counts.shape}", "$.fleet")
        fits = (counts >= 0) & (counts < self._counts) & (counts == np.round(counts))
        if not fits.all():
            c = int(fits.argmin())
            raise DataError(f"expected 0 to {self._counts[c] - 1} replicas, got {counts[c]}", f"$.fleet[{c}]")
        return counts.astype(np.int64)

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
            If no action wants this fleet (see `check_fleet`).
        """
        counts = self.check_fleet(fleet)
        action = np.zeros(self.nvec.size, dtype=np.int64)
        wanted = np.flatnonzero(counts)
        slot, option = self.places
        action[slot[wanted]] = np.maximum(option[wanted], counts[wanted])  # one of the two is 1
        return action

    @functools.cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        """Configurations slot by slot, and where each slot begins among them: int64 (C,), (slots,)."""
        slot = self.places[0]
        order = np.argsort(slot, kind="stable")
        return order, np.searchsorted(slot[order], np.arange(self.nvec.size))

    def from_fleets(self, fleets: np.ndarray) -> np.ndarray:
        """Return the actions whose targets are `fleets`: int64 (n, slots), from int64 (n, C).

        Raises
        ------
        DataError
            If no action wants one of them (see `check_fleet`).
        """
        order, starts = self._members
        wanted = np.where(fleets > 0, np.maximum(fleets, self.places[1]), 0)[:, order]
        if self._counts.size == self.nvec.size:
            actions = wanted
            valid = bool((fleets.view(np.uint64) < self._counts).all())
        else:
            actions = np.maximum.reduceat(wanted, starts, axis=1)
            alone = np.add.reduceat(fleets[:, order] > 0, starts, axis=1, dtype=np.int64) <= 1
            valid = bool((fleets.view(np.uint64) < self._counts).all() and alone.all())
        if not valid:
            for fleet in fleets:
                self.check_fleet(fleet)
        return actions

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
        fits = most_that_fit(self.instance.gpu_use, available_gpus, hold_usd, budget_usd)
        configurations, replicas = self._options
        return replicas <= fits[configurations]

    def split_mask(self, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return a flat mask as one int8 array per slot, for ``MultiDiscrete.sample(mask=...)``."""
        return tuple(np.split(np.asarray(mask).astype(np.int8), self.offsets[1:]))
