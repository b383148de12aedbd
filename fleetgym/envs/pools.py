"""`FleetPools-v0`: thresholds, GPU types and pool sizes in, minus the dollars per hour out (one step)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from fleetgym.agents.arguments import is_number
from fleetgym.envs.one_window import OneWindowEnv
from fleetgym.envs.scenarios import ScenarioChoice
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.queueing import U_MAX, late_probability
from fleetgym.model.actions import check_options, most_that_fit
from fleetgym.model.library import InstanceSource
from fleetgym.model.planning import Snapshot


def pool_serves(
    snapshot: Snapshot, members: np.ndarray, configuration: int, replicas: int, miss_share: float
) -> np.ndarray:
    """Return which members of a pool are served within their SLOs: bool, as long as `members`.

    The pool is one queue with ``replicas x max_concurrency`` servers. Where its servers, compute or memory would be
    busy for more than 95 %, nobody is.

    Parameters
    ----------
    snapshot : Snapshot
        One window's problem.
    members : ndarray of int
        Workloads that are sent to the pool.
    configuration : int
        What the pool consists of.
    replicas : int
        How many of it.
    miss_share : float
        Largest share of a workload's requests that may come after its TTFT SLO.

    Examples
    --------
    >>> import fleetgym
    >>> snapshot = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools")).snapshot()
    >>> [bool(pool_serves(snapshot, np.array([0]), 0, n, 0.05)[0]) for n in (0, 2)]
    [False, True]
    """
    c, rate = configuration, snapshot.rate_rps[members]
    workloads = [snapshot.instance.workloads[i] for i in members]
    usable = snapshot.compatible[members, c]
    usable &= snapshot.delay_s[members, c] <= [w.mean_delay_slo_s for w in workloads]
    usable &= snapshot.error[members, c] <= [w.error_slo for w in workloads]
    rate = np.where(usable, rate, 0.0)
    served = usable & (replicas > 0)
    total, servers = float(rate.sum()), int(replicas * snapshot.max_concurrency[c])
    if total <= 0.0 or replicas == 0:
        return served
    for per_request, capacity in (
        (snapshot.service_s[members, c], servers),
        (snapshot.work_tflop[members, c], replicas * snapshot.compute_tflops[c]),
        (snapshot.kv_gb_s[members, c], replicas * snapshot.kv_capacity_gb[c]),
    ):
        if float(rate @ per_request) > U_MAX * capacity * (1.0 + 1e-12):
            return np.zeros(served.shape, dtype=bool)
    share, service_s = rate / total, snapshot.service_s[members, c]
    mean_s = float(share @ service_s)
    second = float(share @ ((1.0 + snapshot.instance.performance.service_cv2[members, c]) * service_s**2))
    cv2 = max(0.0, second / mean_s**2 - 1.0) if mean_s > 0.0 else 0.0
    arrival_cv2 = float(share @ np.array([w.arrival_cv2 for w in workloads]))
    for k, workload in enumerate(workloads):
        if workload.ttft_slo_s is not None:
            prefill_s = float(snapshot.prefill_s[members[k], c])
            late = late_probability(servers, total, mean_s, cv2, arrival_cv2, workload.ttft_slo_s, prefill_s)
            served[k] &= late <= miss_share
    return served


class FleetPoolsEnv(OneWindowEnv):
    """Split workloads by length into pools, and buy the GPUs of each pool (Chen et al., inference-fleet-sim, 2026).

    ## Description
    A fleet has a few pools. Workloads with short requests go to the first pool, longer ones to the next, the longest
    to the last; thresholds say where. Each pool has replicas of one configuration, and is one queue. What has to be
    found are thresholds, GPU types and sizes such that every workload keeps its SLOs at the least rent. The agent
    decides once, for one window.

    ## Action space
    `MultiDiscrete`, for `pools` = 2: ``[threshold, configuration 1, configuration 2, replicas 1, replicas 2]``; in
    general ``pools - 1`` thresholds, then one configuration and one number of replicas per pool. Threshold 0 sends
    everything on to the next pool, threshold k keeps the workloads whose nominal input plus output length is at most
    ``info["threshold_tokens"][k]``; several thresholds are sorted. A configuration is its number in the instance.
    Replicas are granted as in section 2 of `docs/model.md`, from an empty fleet, to the first pool first; what exceeds
    availability, budget, `max_replicas` or an exclusive slot is denied.

    ## Observation space
    A flat `Dict` of float32 boxes (I workloads, C configurations, G pools of hardware), as of the window to be served:

    | key | shape | meaning |
    |---|---|---|
    | `demand` | (I,) | log(requests / nominal requests), clipped to ±5 |
    | `input_scale`, `output_scale` | (I,) | log(mean length / nominal), clipped to ±5 |
    | `delay_factor` | (I,) | log of the factor on every duration, clipped to ±5 |
    | `availability` | (G,) | available GPUs / cap |
    | `price` | (G,) | price / list price, at most 100 |
    | `running` | (C,) | replicas granted; zero before the step |

    ## Rewards
    Minus the rent and model storage of what was granted in USD/h, and minus ``info["worst_usd_per_h"]`` for every
    workload with requests that is not served. It is served if three things hold. Its pool's configuration is
    compatible, and keeps its mean delay and error SLO. The pool's servers, compute and memory are busy for at most 95
    %. And at most `miss_share` of its requests come after its TTFT SLO. The worst value is what the dearest fleet
    costs that an action can ask for, plus 1 USD/h, so serving one more workload always pays.

    ## Starting state
    Nothing is rented. ``reset(seed=...)`` draws a scenario from the instance's processes and one of its windows;
    ``reset(options={"scenario": k, "window": t})`` takes window t (0 by default) of the k-th stored one,
    which may also be given by its id.

    ## Episode end
    Terminated after one step; never truncated.

    ## Info
    The same keys after reset and step:

    - `cost_usd_per_h` of what was granted, and `worst_usd_per_h`
    - `unserved` (I,): workloads with requests that are not served
    - `pool` (I,): the pool of each workload (-1 before the step)
    - `replicas` (pools,): granted per pool
    - `granted` and `denied` (C,): replicas
    - `threshold_tokens`

    The window stands in `rate_rps`, `input_scale`, `output_scale`, `delay_factor`, `error_factor`, `available_gpus`
    and `price_factor`. There are `window`, `scenario` and `action_mask` too.

    ## Arguments
    ``gymnasium.make("fleetgym:FleetPools-v0", instance="fleet-v0/dev/ou-s-001", pools=2, miss_share=0.01)``

    | argument | meaning |
    |---|---|
    | `instance` | an id of the standard set, the path of an instance file, or an `Instance` |
    | `pools` | how many, 1 to 16 |
    | `miss_share` | largest share of a workload's requests that may come after its TTFT SLO |
    | `render_mode` | `"ansi"`: text |

    ## Vectorized use
    ``gymnasium.make_vec("fleetgym:FleetPools-v0", num_envs=8, vectorization_mode="sync", instance=...)``. An episode
    is
    one step, so every second call of `step` is a reset in Gymnasium's default autoreset mode.

    ## Version history
    * v0: initial version
    """

    def __init__(
        self,
        instance: InstanceSource = "fleet-v0/dev/ou-s-001",
        pools: int = 2,
        miss_share: float = 0.01,
        render_mode: str | None = None,
    ):
        if not is_number(pools, whole=True) or not 1 <= pools <= 16:
            raise FleetgymError(f"pools is {pools!r}; expected a whole number from 1 to 16")
        if not is_number(miss_share) or not 0.0 < miss_share < 1.0:
            raise FleetgymError(f"miss_share is {miss_share!r}; expected above 0 and below 1")
        choice = ScenarioChoice(instance)
        super().__init__(choice, choice.instance, render_mode)
        self.pools, self.miss_share = int(pools), float(miss_share)
        self._tokens = np.array([w.input_tokens + w.output_tokens for w in self.instance.workloads])
        self._limits = np.concatenate(([0.0], np.unique(self._tokens)))
        self._group = np.full(self._most.size, -1)
        for s, (slot, members) in enumerate(
            zip(self.instance.slots, self.instance.slot_members, strict=True)
        ):
            if slot.exclusive:
                self._group[list(members)] = s
        sizes = (self._limits.size, self._most.size, int(self._most.max()) + 1)
        self._options = np.repeat(sizes, (pools - 1, pools, pools))
        self.action_space = spaces.MultiDiscrete(self._options)

    def _begin(self) -> None:
        usd_per_h = self._snapshot.hold_usd / self._model.hours
        self._worst_usd_per_h = 1.0 + self.pools * float((usd_per_h * self._most).max())
        self._pool_of = np.full(self.instance.num_workloads, -1, dtype=np.int64)
        self._replicas = np.zeros(self.pools, dtype=np.int64)
        self._denied = np.zeros(self._most.size, dtype=np.int64)
        self._unserved = np.zeros(self.instance.num_workloads, dtype=bool)

    def _serve(self, action: np.ndarray) -> float:
        thresholds, chosen, wanted = self._split(action)
        self._pool_of = np.searchsorted(np.sort(self._limits[thresholds]), self._tokens)
        target = self._admissible(chosen, wanted)
        self._granted = self._model.admit(self._state, target, self._conditions)
        left = self._state.running.copy()
        for p, c in enumerate(chosen):
            self._replicas[p] = min(wanted[p], left[c])
            left[c] -= self._replicas[p]
        self._denied = np.bincount(chosen, weights=wanted - self._replicas, minlength=self._most.size).astype(
            np.int64
        )
        self._unserved = self._find_unserved(chosen)
        return -(self._cost_usd_per_h() + self._worst_usd_per_h * float(self._unserved.sum()))

    def _split(self, action: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return thresholds, configurations and replicas of a valid action."""
        options = check_options(action, self._options.astype(np.uint64))
        cut = self.pools - 1
        return options[:cut], options[cut : cut + self.pools], options[cut + self.pools :]

    def _admissible(self, chosen: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the target fleet (C,): counts within `max_replicas`, one option per exclusive slot."""
        target = np.zeros(self._most.size, dtype=np.int64)
        for c, count in zip(chosen, wanted, strict=True):
            taken = self._group[c] >= 0 and target[self._group == self._group[c]].any() and target[c] == 0
            target[c] = target[c] if taken else min(self._most[c], target[c] + count)
        return target

    def _find_unserved(self, chosen: np.ndarray) -> np.ndarray:
        snapshot, served = self._snapshot, np.zeros(self.instance.num_workloads, dtype=bool)
        for p, c in enumerate(chosen):
            members = np.flatnonzero((self._pool_of == p) & (snapshot.rate_rps > 0.0))
            if members.size:
                served[members] = pool_serves(
                    snapshot, members, int(c), int(self._replicas[p]), self.miss_share
                )
        return (snapshot.rate_rps > 0.0) & ~served

    def _mask(self) -> np.ndarray:
        """Return which options are of use.

        All thresholds; configurations of which one replica fits availability and budget alone; replicas up to the most
        that fit of any of these. Without a configuration that fits, all are allowed, and every replica is denied.
        """
        counts = np.arange(1, int(self._most.max()) + 1)
        most = np.minimum(most_that_fit(self.instance.gpu_use, *self._fitting()), self._most)
        fits = most >= 1.0
        replicas = np.concatenate(([True], counts <= most.max()))
        configurations = fits if fits.any() else np.ones_like(fits)
        thresholds = np.ones((self.pools - 1) * self._limits.size, dtype=bool)
        return np.concatenate(
            (thresholds, np.tile(configurations, self.pools), np.tile(replicas, self.pools))
        )

    def _result(self) -> str:
        pools, usd_per_h = ", ".join(map(str, self._replicas)), self._cost_usd_per_h()
        return f"replicas per pool {pools}  rent {usd_per_h:.6g} USD/h  unserved {self._unserved.sum()}"

    def _own_info(self) -> dict[str, Any]:
        zero = np.zeros(self._most.size, dtype=np.int64)
        return {
            "worst_usd_per_h": self._worst_usd_per_h,
            "unserved": self._unserved.copy(),
            "pool": self._pool_of.copy(),
            "replicas": self._replicas.copy(),
            "granted": zero if self._granted is None else self._state.running.copy(),
            "denied": self._denied.copy(),
            "threshold_tokens": self._limits.copy(),
        }
