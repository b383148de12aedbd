"""Apply the rule `margin` in many episodes side by side, with margins of a learner and features for it.

Nothing here depends on where a workload, a slot or a pool stands in an instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.agents import margin_kernels as kernels
from fleetgym.agents.forecasters import KalmanBatch
from fleetgym.agents.margin_kernels import LARGEST, PACE, PAYBACK_WINDOWS
from fleetgym.agents.sizing import FleetSizer
from fleetgym.kernels.batch import Shape, columns
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model

__all__ = [
    "FEATURES",
    "GAP",
    "LARGEST",
    "LOWER",
    "PACE",
    "PAYBACK_WINDOWS",
    "REACH",
    "RISK",
    "Margins",
    "margins_of",
]

#: Multiple of the forecast demand for which replicas are added; they are kept while useful at `GAP` more.
LOWER, GAP = 1.05, 0.1
#: How far queue servers are loaded (see `FleetSizer`).
RISK = 0.4

#: What is known of each workload, then of the fleet, in the order of `Margins.features`.
FEATURES = (
    "level",  # log of the forecast over the nominal rate
    "drift",  # log of the forecast when what is added serves, over that of the next window
    "surprise",  # log of what was seen over its forecast, in standard deviations
    "volatility",  # standard deviation of that forecast's log error
    "season",  # log of the seasonal forecast over this one
    "severity",  # log of what not serving costs over the least that serving costs
    "served",  # how many times the forecast the fleet serves, up to twice, minus one
    "unserved",  # share of the last window
    "missed",  # share of the last window
    "weight",  # share of the workload in what not serving everything costs
    "available",  # share of all GPUs
    "scarcest",  # the least share of a pool
    "price",  # mean log of the price factors
    "left",  # windows to come, up to twelve, over twelve
    "sine",
    "cosine",  # of the time of day
    "tightness",  # cost of holding the fleet over what the budget allows, 0 without one
    "wait",  # windows until what is added serves, over four
    "fee",  # mean start-up fee over the cost of a window
    "size",  # log of the cost of holding the fleet over the least that serving everything costs
)

#: By how much the ends of an action's range, -1 and 1, change the logarithms of a lower margin and of a gap.
REACH = np.array([0.4, 1.6])

_MOST = 2.0  # times the forecast that the fleet is asked to serve
_TINY = 1e-12


def margins_of(action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower margins and the gaps, each (..., I), that actions (..., I, 2) stand for, cut off at ±1.

    Examples
    --------
    >>> [float(margin[0]) for margin in margins_of(np.zeros((1, 2)))] == [LOWER, GAP]
    True
    """
    factor = np.exp(REACH * np.minimum(np.maximum(np.asarray(action, dtype=np.float64), -1.0), 1.0))
    return LOWER * factor[..., 0], GAP * factor[..., 1]


class Margins:
    """The rule `margin` in n episodes, of one instance or of several of one shape.

    Parameters
    ----------
    instances : sequence of Instance
    which : sequence of int, shape (n,)
        The instance of each episode.

    Examples
    --------
    >>> import fleetgym
    >>> from fleetgym.envs.fleet_alloc import FleetAllocEnv
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> env = FleetAllocEnv(instance)
    >>> _, info = env.reset(seed=0)
    >>> rule = Margins([instance], [0])
    >>> rule.see({name: np.asarray(info[name])[None] for name in Margins.SEEN})
    >>> rule.features().shape == (1, 1, len(FEATURES)), rule.actions(rule.targets()).tolist()
    (True, [[1, 0]])
    """

    #: What `see` takes, of a batch's infos.
    SEEN = (*Conditions.FIELDS, "running", "starting", "window", "spent_usd", "unserved_share", "miss_share")

    def __init__(self, instances: Sequence[Instance], which: Sequence[int] | np.ndarray):
        self.instances, self._which = tuple(instances), np.asarray(which, dtype=np.int64)
        self.count = len(self._which)
        self._sizer = FleetSizer(self.instances, RISK)
        self._spaces = [ActionSpace(instance) for instance in self.instances]
        self._rows = [self._which == m for m in range(len(self.instances))]
        self._setting, self._past, self._now = _arrays(self.instances, self._which, self._spaces, self._sizer)
        self._working = self._sizer.working_space(self.count)
        self._everyone, self._nobody = (
            np.ones(self.count, dtype=np.bool_),
            np.zeros(self.count, dtype=np.bool_),
        )
        first = self.instances[0]
        shape = Shape(
            *(first.num_workloads, first.num_configurations, first.num_pools),
            *(window_model(first).longest_startup, first.num_windows),
        )
        self._columns = [_slices(names, self.SEEN) for names in columns(shape)[1:]]
        widths = [sum(map(_size, names.values())) for names in columns(shape)[1:]]
        self._blocks = np.zeros((self.count, widths[0])), np.zeros((self.count, widths[1]), dtype=np.int64)
        self._pack()

    def _pack(self) -> None:
        self._packed = kernels.pack(self._setting, self._past, self._now, self._working)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._setting = self._setting._replace(problems=self._sizer.problems)
        self._pack()

    def see(self, seen: Mapping[str, np.ndarray], rows: np.ndarray | None = None) -> None:
        """Record an observed window.

        Parameters
        ----------
        seen : mapping of str to ndarray
            Infos of `FleetAlloc-v0`, those in `SEEN`, each (n, ...). An episode at window 0 begins.
        rows : ndarray of bool, shape (n,), optional
            Episodes in which something has happened; by default all.
        """
        self.look(*self.blocks(seen), rows)

    def blocks(self, seen: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return infos, as `see` takes them, in the arrays that `look` takes."""
        for block, parts in zip(self._blocks, self._columns, strict=True):
            for name, part in parts:
                block[:, part] = np.reshape(seen[name], (self.count, -1))
        return self._blocks

    def look(self, money: np.ndarray, counts: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Record an observed window from the arrays of a batch; see `fleetgym.envs.batch.EpisodeBatch.blocks`."""
        words, rows, now = self._packed.words, self._everyone if rows is None else rows, self._now
        kernels.look(words, money, counts, rows)
        np.log(now.seen_logs, out=now.seen_logs)
        kernels.follow(words, rows)
        np.exp(now.forecast, out=now.forecast)
        kernels.study(words)

    def memory(self) -> tuple[np.ndarray, ...]:
        """Return a copy of what is remembered of earlier windows; see `recall`."""
        return tuple(part.copy() for part in self._past)

    def recall(self, memory: tuple[np.ndarray, ...], money: np.ndarray, counts: np.ndarray) -> None:
        """Go back to where `memory` was taken, when `money` and `counts` were looked at last."""
        for part, value in zip(self._past, memory, strict=True):
            part[:] = value
        self.look(money, counts, self._nobody)

    def choose(self, margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the fleets to hold, and the actions that stand for them.

        Parameters
        ----------
        margins : ndarray, shape (L, n, 2, I), C-contiguous
            Times the forecast for which replicas are added, and up to which they are kept; L of them per episode.

        Returns
        -------
        targets : ndarray of int64, shape (L, n, C)
        actions : ndarray of int64, shape (L, n, slots)
        """
        size = len(margins), self.count
        targets = np.empty((*size, self._now.fleet.shape[1]), dtype=np.int64)
        actions = np.empty((*size, self._spaces[0].nvec.size), dtype=np.int64)
        kernels.choose(self._packed.words, margins, targets, actions)
        return targets, actions

    def targets(self, lower: np.ndarray | float = LOWER, gap: np.ndarray | float = GAP) -> np.ndarray:
        """Return the fleets to hold, int64 (n, C), for margins that broadcast to (n, I)."""
        margins = np.empty((1, self.count, 2, self._now.share.shape[2]))
        margins[:, :, 0] = lower
        margins[:, :, 1] = np.asarray(lower) + gap
        return self.choose(margins)[0][0]

    def actions(self, targets: np.ndarray) -> np.ndarray:
        """Return the options of `FleetAlloc-v0`, int64 (n, slots), whose targets are some fleets (n, C)."""
        if len(self._spaces) == 1:
            return self._spaces[0].from_fleets(targets)
        actions = np.empty((len(targets), self._spaces[0].nvec.size), dtype=np.int64)
        for space, rows in zip(self._spaces, self._rows, strict=True):
            actions[rows] = space.from_fleets(targets[rows])
        return actions

    def features(self) -> np.ndarray:
        """Return the features of each workload, float32 (n, I, len(FEATURES)), see `FEATURES`; all within ±5."""
        out = np.empty((self.count, self._now.share.shape[2], len(FEATURES)), dtype=np.float32)
        np.log(self._now.ratios, out=self._now.logs)
        kernels.tell(self._packed.words, out)
        return out


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


def _slices(names: Mapping[str, tuple[int, ...]], wanted: Sequence[str]) -> list[tuple[str, slice]]:
    """Return where the columns of some names lie."""
    found, start = [], 0
    for name, shape in names.items():
        if name in wanted:
            found.append((name, slice(start, start + _size(shape))))
        start += _size(shape)
    return found


def _arrays(
    instances: Sequence[Instance], which: np.ndarray, spaces: Sequence[ActionSpace], sizer: FleetSizer
) -> tuple[kernels.Setting, kernels.Past, kernels.Now]:
    """Return what the kernels work on."""
    count, twice = len(which), np.concatenate((which, which + len(instances)))
    models = [window_model(instance) for instance in instances]
    nominal = [Conditions.nominal(instance) for instance in instances]
    lead = np.array([one.lead for one in instances])
    ahead = lead + [max(c.startup_windows for c in one.configurations) for one in instances]
    windows = np.array([one.num_windows for one in instances])
    seasonal = [is_seasonal for is_seasonal in (False, True) for _ in instances]
    filters = KalmanBatch([*instances, *instances], twice, seasonal)  # then the seasonal ones
    fees = [
        np.mean(m.problem.startup_usd / np.maximum(_TINY, m.hold_usd(c.price_factor)))
        for m, c in zip(models, nominal, strict=True)
    ]
    turn = np.array([2.0 * np.pi * one.window_s / 86_400.0 for one in instances])
    angle = turn[:, None] * np.arange(windows.max() + 1)
    paced = [i.budget is not None and i.budget.kind == "pool" for i in instances]
    budget = np.stack([[model.budget_usd(0.0) for model in models], paced], axis=1)
    rate, caps = (
        np.stack(part) for part in zip(*((c.rate_rps, c.available_gpus) for c in nominal), strict=True)
    )
    size = count, rate.shape[1]
    setting = kernels.Setting(
        problems=sizer.problems,
        most=sizer.most,
        place=np.stack([space.places for space in spaces]),
        clock=np.stack([np.sin(angle), np.cos(angle)], axis=2),
        which=which,
        timing=np.stack([lead, windows, ahead], axis=1)[which],
        budget=budget[which],
        nominal_rps=rate[which],
        caps=np.maximum(1, caps)[which],
        fee=(np.minimum(fees, 12.0) / 12.0)[which],
        most_served=np.full(size[1], _MOST),
        risk=np.array([RISK]),
        **filters.arrays(1, np.tile(ahead[which], 2), int(ahead[which].max())),
    )
    past = kernels.Past(
        state=np.zeros((2 * count, size[1])),
        spread=setting.first.copy(),
        window=np.full(2 * count, -1),
        surprise=np.zeros(size),
    )
    pools, configurations = caps.shape[1], sizer.most.shape[1]
    now = kernels.Now(
        window=np.zeros(count, dtype=np.int64),
        spent_usd=np.zeros(count),
        workload=np.zeros((count, len(Conditions.WORKLOAD_FIELDS), size[1])),
        available=np.zeros((count, pools), dtype=np.int64),
        price=np.zeros((count, pools)),
        fleet=np.zeros((count, configurations), dtype=np.int64),
        share=np.zeros((count, 2, size[1])),
        seen_logs=np.zeros((2, *size)),
        forecast=np.ones((3, *size)),
        money=np.ones((count, 3)),
        at_once=np.zeros(count, dtype=np.bool_),
        study=np.zeros((count, 3, size[1])),
        unserved_usd=np.zeros(size),
        hold_usd=np.zeros((count, configurations)),
        held_usd=np.zeros(count),
        ratios=np.ones((count, 4 * size[1] + pools + 1)),
        logs=np.zeros((count, 4 * size[1] + pools + 1)),
    )
    return setting, past, now
