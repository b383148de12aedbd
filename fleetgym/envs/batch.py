"""Play many episodes at once in arrays: actions of a window to observations, costs and infos.

`FleetAlloc-v0` is built on `EpisodeBatch`, with one episode or thousands; the work is done in
`fleetgym.kernels.batch`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.batch import Episodes, Report, Setting, Shape, advance_episodes, columns, pack_batch
from fleetgym.kernels.lowlevel import PackedPointers
from fleetgym.kernels.records import Memory, PackedConditions, pack_problem
from fleetgym.kernels.routing_workload import new_workspace
from fleetgym.kernels.window import new_memory, new_played
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics.scenario import warned_pools
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import COST_TERMS, FleetState, WindowResult, window_model

#: What `EpisodeBatch.advance` does with an episode.
PLAY, BEGIN, REST = range(3)


def shape_of(instance: Instance) -> Shape:
    """Return the shape that instances must share to be in one batch."""
    return Shape(
        workloads=instance.num_workloads,
        configurations=instance.num_configurations,
        pools=instance.num_pools,
        longest_startup=window_model(instance).longest_startup,
        windows=instance.num_windows,
    )


class EpisodeBatch:
    """Episodes of instances of one shape, side by side.

    Parameters
    ----------
    instances : sequence of Instance
        Of one shape: equal numbers of workloads, configurations, pools, slots and windows, and the same
        longest start-up.
    which : sequence of int, shape (N,)
        The instance of each episode.
    capacity : int
        The number of scenarios that it can hold.
    threads : int
        Number of threads that share the work of `advance`. The results do not depend on it.

    Raises
    ------
    FleetgymError
        If the shapes differ.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> batch = EpisodeBatch([instance], [0, 0], capacity=1)
    >>> batch.load(0, fleetgym.load_scenarios("fleet-v0/toy/two-pools")[0])
    >>> batch.advance(np.zeros((2, 2)), np.full(2, BEGIN, dtype=np.uint8))
    >>> batch.advance(np.array([[1, 0], [1, 1]]), np.full(2, PLAY, dtype=np.uint8))
    >>> cost = batch.info()["cost"]
    >>> bool(0 < cost[0] < cost[1])
    True
    """

    def __init__(self, instances: Sequence[Instance], which: Sequence[int], capacity: int, threads: int = 1):
        spaces = [ActionSpace(instance) for instance in instances]
        warned = {tuple(warned_pools(instance).tolist()) for instance in instances}
        shapes = {(*shape_of(instance), len(instance.slots)) for instance in instances}
        if len(shapes) != 1:
            raise FleetgymError(
                "instances of different shapes (workloads, configurations, pools, longest start-up, windows, "
                f"slots) cannot be in one batch: {sorted(shapes)}"
            )
        if len(warned) != 1:
            raise FleetgymError("instances whose pools differ in what is announced cannot be in one batch")
        self._warned = np.array(warned.pop())
        #: Whether pools announce their availability, and infos tell it.
        self.announces = bool(self._warned.any())
        self.instances = tuple(instances)
        self.shape = shape_of(instances[0])
        self.nvec = np.max([space.nvec for space in spaces], axis=0)
        self.threads = threads
        self._problems = [window_model(instance).problem for instance in instances]
        self._setting = _setting(instances, spaces, self.nvec, self.shape, capacity)
        self._episodes = _episodes(np.asarray(which, dtype=np.int64), self.shape)
        self._shown: dict[frozenset[str] | None, list[_Columns]] = {}
        self._columns = [_slices(names) for names in columns(self.shape)]
        self._observed = sorted(self._columns[0])  # as in a `gymnasium.spaces.Dict`
        self._report = _report(
            len(which), [int(sum(map(_size, n.values()))) for n in columns(self.shape)], self.nvec
        )
        self._prepare()

    def _prepare(self) -> None:
        size, count = (self.shape.workloads, self.shape.configurations), len(self._episodes.position)
        self._workspaces = [
            (new_workspace(*size), new_played(*size, self.shape.pools)) for _ in range(self.threads)
        ]
        if count > 1:  # nobody looks at the routing of many episodes
            unseen = np.zeros((self.shape.workloads, 0))
            self._workspaces = [(work, played._replace(routing=unseen)) for work, played in self._workspaces]
        self._packed = [
            pack_batch(
                *(self._setting, self._episodes, self._report),
                PackedPointers.stack([pack_problem(problem, *workspace) for problem in self._problems]),
            )
            for workspace in self._workspaces
        ]
        cuts = np.linspace(0, count, self.threads + 1).astype(int).tolist()
        self._ranges = list(itertools.pairwise(cuts))
        self._start_threads()

    def _start_threads(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None
        self._owner = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("_workspaces", "_packed", "_pool", "_owner")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def twin(self) -> EpisodeBatch:
        """Return a batch that plays other actions on the same scenarios, in one thread; see `follow`."""
        other = object.__new__(EpisodeBatch)
        episodes = _episodes(self._episodes.position[:, 0].copy(), self.shape)
        report = Report(*(np.zeros_like(part) for part in self._report))
        other.__setstate__(self.__getstate__() | {"threads": 1, "_episodes": episodes, "_report": report})
        return other

    def follow(self, other: EpisodeBatch, rows: np.ndarray) -> None:
        """Let the episodes in `rows`, bool (N,), begin with the scenarios that another batch plays."""
        self._episodes.position[rows, 1] = other._episodes.position[rows, 1]
        self.advance(np.zeros((len(rows), self.nvec.size)), np.where(rows, BEGIN, REST).astype(np.uint8))

    def choose_as(self, other: EpisodeBatch) -> None:
        """Continue all episodes with the scenarios of another batch."""
        self._episodes.position[:, 1] = other._episodes.position[:, 1]

    def close(self) -> None:
        """Release the threads."""
        if self._pool is not None and self._owner == os.getpid():
            self._pool.shutdown()

    # -- playing --------------------------------------------------------------------------------------------

    def load(self, slot: int, scenario: Scenario) -> None:
        """Store a scenario, which must fit the instances (see `Scenario.check`), under the number `slot`."""
        store = self._setting.scenario
        for row, name in enumerate(Conditions.WORKLOAD_FIELDS):
            store.workload[slot, :, row] = getattr(scenario, name)
        store.available[slot] = scenario.available_gpus
        store.price[slot] = scenario.price_factor

    def choose(self, episode: int, slot: int) -> None:
        """Let an episode play the scenario stored under `slot` from its next reset on."""
        self._episodes.position[episode, 1] = slot

    def advance(self, actions: np.ndarray, what: np.ndarray) -> None:
        """Begin some episodes and play one window of others.

        Parameters
        ----------
        actions : ndarray of int64, shape (N, slots)
            Valid options of the episodes that play.
        what : ndarray of uint8, shape (N,), C-contiguous
            `PLAY`, `BEGIN` or `REST`.
        """
        actions = np.ascontiguousarray(actions, dtype=np.int64)
        if self._pool is None:
            failed = [self._advance(0, actions, what)]
        else:
            if self._owner != os.getpid():  # a fork takes the pool along, and none of its threads
                self._start_threads()
            others = [self._pool.submit(self._advance, k, actions, what) for k in range(1, self.threads)]
            failed = [self._advance(0, actions, what), *(other.result() for other in others)]
        for episode in failed:
            if episode >= 0:
                instance = self.instances[self._episodes.position[episode, 0]]
                raise RuntimeError(f"the routing LP of {instance.id!r} was not solved (episode {episode})")

    def _advance(self, thread: int, actions: np.ndarray, what: np.ndarray) -> int:
        failed: int = advance_episodes(self._packed[thread].words, actions, what, *self._ranges[thread])
        return failed

    def _carried(self) -> tuple[np.ndarray, ...]:
        """Return the arrays whose first axis counts episodes."""
        episodes, report = self._episodes, self._report
        first = episodes.position, episodes.fleet, episodes.spent_usd, episodes.limit_usd
        return *first, *episodes.memory, *episodes.limits, *report

    def save(self, episode: int | slice) -> tuple[np.ndarray, ...]:
        """Return copies of the state and the observations of an episode, or of several."""
        return tuple([part[episode].copy() for part in self._carried()])

    def restore(self, episode: int | slice, saved: tuple[np.ndarray, ...]) -> None:
        """Put episodes where they were at `save`; their scenarios must be stored under the same numbers."""
        for part, value in zip(self._carried(), saved, strict=True):
            part[episode] = value

    @staticmethod
    def window_of(saved: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the coming window of an episode that was saved, or of each of several."""
        return saved[0][..., 2]

    # -- what there is to see -------------------------------------------------------------------------------

    @property
    def window(self) -> np.ndarray:
        """The coming window of each episode, (N,)."""
        return self._episodes.position[:, 2]

    @property
    def cost_usd(self) -> np.ndarray:
        """Cost of each episode's last window, (N,)."""
        return self._report.money[:, len(COST_TERMS)].copy()

    @property
    def mask(self) -> np.ndarray:
        """Options that fit the availability and budget seen last, all else released: bool (N, sum of nvec)."""
        return self._report.mask.copy()

    @property
    def announced_gpus(self) -> np.ndarray:
        """GPUs of each pool in the coming window where its cloud announces them, else those seen last: int64 (N, G)."""
        m, slot, window = self._episodes.position.T
        cap = self._setting.nominal.available[m]
        seen, last = self._setting.scenario.available, self.shape.windows - 1
        before = np.where(window[:, None] > 0, seen[slot, np.maximum(window - 1, 0)], cap)
        coming = seen[slot, np.minimum(window, last)]
        return np.where((window <= last)[:, None] & self._warned, coming, before)

    @property
    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """All infos but the mask, float64 (N, ...) and int64 (N, ...); columns are those of `kernels.batch.columns`."""
        return self._report.money, self._report.counts

    def observation(self) -> dict[str, np.ndarray]:
        """Return the observations, each float32 (N, ...)."""
        block = self._report.observation.copy()
        return {name: block[:, part] for name, part, _ in self._observed}

    def info(self, names: frozenset[str] | None = None) -> dict[str, np.ndarray]:
        """Return the infos (all, or those in `names`) but for the scenario's name, each (N, ...)."""
        found = {}
        blocks = self._report.money, self._report.counts
        for block, (span, parts) in zip(blocks, self._wanted(names), strict=True):
            values = block[:, span].copy()
            for name, part, shape in parts:
                column = values[:, part]
                found[name] = column if len(shape) < 2 else column.reshape(len(values), *shape)
        if names is None or "action_mask" in names:
            found["action_mask"] = self.mask
        if names is None and self.announces:
            found["announced_gpus"] = self.announced_gpus
        return found

    def _wanted(self, names: frozenset[str] | None) -> list[_Columns]:
        """Return the columns of money and counts that `info` shows, found once for each set of names."""
        if names not in self._shown:
            self._shown[names] = [_columns_from(parts, names) for parts in self._columns[1:]]
        return self._shown[names]

    def single_observation(self) -> dict[str, np.ndarray]:
        """Return the observation of the first episode."""
        row = self._report.observation[0].copy()
        return {name: row[part] for name, part, _ in self._observed}

    def single_info(self) -> dict[str, Any]:
        """Return the info of the first episode, but for the scenario's name."""
        money, count = self._report.money[0].copy(), self._report.counts[0].copy()
        found: dict[str, Any] = dict(zip(_MONEY, money[: len(_MONEY)].tolist(), strict=True))
        for name, part, _ in self._columns[1][len(_MONEY) :]:
            found[name] = money[part]
        found["window"], found["forced_outage"] = count[:2].tolist()
        for name, part, shape in self._columns[2][2:]:
            found[name] = count[part] if len(shape) == 1 else count[part].reshape(shape)
        found["action_mask"] = self._report.mask[0].copy()
        if self.announces:
            found["announced_gpus"] = self.announced_gpus[0]
        return found

    def last_result(self) -> WindowResult:
        """Return the result of the last window; for a batch of one."""
        return WindowResult.of(self._workspaces[0][1])

    def state(self, episode: int) -> FleetState:
        """Return an independent copy of an episode's state."""
        episodes = self._episodes
        window, spent_usd = int(episodes.position[episode, 2]), float(episodes.spent_usd[episode])
        return FleetState(episodes.fleet[episode].copy(), window, spent_usd)


_MONEY = (*COST_TERMS, "cost", "spent_usd")


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


_Part = tuple[str, slice, tuple[int, ...]]  # name, columns and shape
_Columns = tuple[slice, list[tuple[str, slice | int, tuple[int, ...]]]]


def _columns_from(parts: Sequence[_Part], names: frozenset[str] | None) -> _Columns:
    """Return the columns from the first to the last part with one of the names, and where in them each part lies."""
    wanted = [part for part in parts if names is None or part[0] in names]
    first = min((part.start for _, part, _ in wanted), default=0)
    last = max((part.stop for _, part, _ in wanted), default=0)
    places = [
        (name, slice(p.start - first, p.stop - first) if shape else p.start - first, shape)
        for name, p, shape in wanted
    ]
    return slice(first, last), places


def _slices(names: dict[str, tuple[int, ...]]) -> list[_Part]:
    ends = itertools.accumulate(map(_size, names.values()))
    return [
        (name, slice(end - _size(shape), end), shape)
        for (name, shape), end in zip(names.items(), ends, strict=True)
    ]


def _setting(
    instances: Sequence[Instance],
    spaces: Sequence[ActionSpace],
    nvec: np.ndarray,
    shape: Shape,
    capacity: int,
) -> Setting:
    nominal = [Conditions.nominal(instance).packed() for instance in instances]
    return Setting(
        nominal=PackedConditions(*(np.stack(arrays) for arrays in zip(*nominal, strict=True))),
        nominal_fleet=np.array([instance.nominal_fleet for instance in instances], dtype=np.int64),
        option=np.stack([space.options(nvec) for space in spaces]),
        option_start=np.tile(np.concatenate(([0], np.cumsum(nvec)[:-1])), (len(instances), 1)),
        lead=np.array([instance.lead for instance in instances], dtype=np.int64),
        scenario=PackedConditions(
            workload=np.empty((capacity, shape.windows, len(Conditions.WORKLOAD_FIELDS), shape.workloads)),
            available=np.empty((capacity, shape.windows, shape.pools), dtype=np.int64),
            price=np.empty((capacity, shape.windows, shape.pools)),
        ),
    )


def _episodes(which: np.ndarray, shape: Shape) -> Episodes:
    count, memory = len(which), new_memory(shape.workloads, shape.configurations)
    position = np.zeros((count, 3), dtype=np.int64)
    position[:, 0] = which
    return Episodes(
        position=position,
        fleet=np.zeros((count, shape.configurations, 1 + 2 * shape.longest_startup), dtype=np.int64),
        spent_usd=np.zeros(count),
        memory=Memory(*(np.zeros((count, part.size), dtype=np.int64) for part in memory)),
        limits=PackedConditions(
            workload=np.zeros((count, 0, 0)),
            available=np.zeros((count, shape.pools), dtype=np.int64),
            price=np.zeros((count, shape.pools)),
        ),
        limit_usd=np.full(count, np.nan),
    )


def _report(count: int, widths: Sequence[int], nvec: np.ndarray) -> Report:
    observation, money, counts = widths
    return Report(
        observation=np.zeros((count, observation), dtype=np.float32),
        money=np.zeros((count, money)),
        counts=np.zeros((count, counts), dtype=np.int64),
        mask=np.zeros((count, int(nvec.sum())), dtype=np.bool_),
    )
