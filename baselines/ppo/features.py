"""What the policy sees and may choose: a view and the last info in; rows of features and targets, one per slot, out.

The rows compare the fleet with what demand needs, now and after the longest start-up: replicas idle, replicas
missing, and the fleet that the cheapest configurations alone would make. All are ratios, logarithms or clipped
counts, so that one network can read every slot of every instance. The targets to choose from are the present
number of replicas, and numbers around the one that the cheapest configurations would need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Instance, Snapshot, View
from fleetgym.agents.forecasters import make_forecaster

from ..rates import safe_utilization
from .kernels import fill

SLOT_FEATURES = (
    "held",
    "starting",
    "draining",
    "idle_now",
    "idle_later",
    "utilization",
    "missing_now",
    "missing_later",
    "ideal_gap_now",
    "ideal_gap_later",
    "ideal",
    "ideal_slack",
    "merit",
    "price",
    "startup_windows",
    "startup_fee",
    "room",
    "availability",
    "denied",
    "lost",
    "severity",
    "volatility",
    "growth",
    "unserved",
    "missed",
)
FLEET_FEATURES = (
    "unmet_now",
    "unmet_later",
    "missed_all",
    "size",
    "idle_share",
    "sine",
    "cosine",
    "windows_left",
)
NUM_FEATURES = len(SLOT_FEATURES) + len(FLEET_FEATURES)

#: What a slot may be set to, in this order; where two are the same number of replicas, the former stands.
TARGETS = ("stay", "ideal", "ideal + 1", "ideal - 1", "1.3 ideal")

_SPARE = 0.05  # of a replica: less than this is not worth one more
_MOST = 4.0  # replicas: a larger difference calls for the same step
_FORECASTER = "kalman"
_SPAN = 6  # windows over which demand's volatility is measured


@dataclasses.dataclass
class Needs:
    """What one window's demand asks of each configuration."""

    need: np.ndarray  # (I, C) replicas that all of the workload needs
    order: np.ndarray  # (I, C) usable configurations, the cheapest first, then -1
    merit: np.ndarray  # (I, C) cost of the cheapest / cost here, 0 where not usable
    severity: np.ndarray  # (I,) log of the cost of not serving over the cheapest cost of serving


class SlotFeatures:
    """Features of an episode, window by window.

    Parameters
    ----------
    view : View
        Kept up to date by the caller. Every slot of its instance must be a number of replicas.

    Attributes
    ----------
    targets : ndarray of int64, shape (slots, len(TARGETS))
        Replicas that each slot may be set to, as of the last `observe`.
    allowed : ndarray of bool, shape (slots, len(TARGETS))
        Which of them differ from those before them and fit what is available, the third only where some are
        ideal. The first is always allowed.
    ideal_fleet : ndarray of int64, shape (C,)
        Replicas that the cheapest configurations would need.

    Examples
    --------
    >>> import fleetgym, gymnasium
    >>> env = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001")
    >>> observation, info = env.reset(seed=0)
    >>> view = fleetgym.View(env.unwrapped.instance)
    >>> view.update(info)
    >>> SlotFeatures(view).observe(info).shape == (18, NUM_FEATURES)
    True
    """

    def __init__(self, view: View):
        self.view, instance = view, view.instance
        self.configuration = np.array([members[0] for members in instance.slot_members])
        self._forecaster = make_forecaster(_FORECASTER)
        self._forecaster.reset(instance)
        self._volatility = _volatility(instance)
        self._wait = max(1, max(c.startup_windows for c in instance.configurations))
        self._prices = _list_prices(view.snapshot())
        self._caps = np.maximum(1, [p.cap_gpus for p in instance.pools])
        slos = [(w.mean_delay_slo_s, w.error_slo) for w in instance.workloads]
        self._delay_slo_s, self._error_slo = np.array(slos).T[:, :, None]

    def observe(self, info: Mapping[str, Any]) -> np.ndarray:
        """Return one row per slot, float32 (slots, NUM_FEATURES), for the window that the view is at."""
        view, lead = self.view, self.view.instance.lead
        if view.window > 0 or lead == 0:
            self._forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        now_rps = self._forecaster.predict(lead) if lead > 0 else view.conditions.rate_rps
        later_rps = self._forecaster.predict(lead + self._wait)
        snapshot = view.snapshot(rate_rps=now_rps)
        growth = later_rps / np.maximum(now_rps, 1e-12)
        needs = self._needs(snapshot)
        priority = np.argsort(-needs.severity, kind="stable")
        columns = self._columns(snapshot, needs, priority, growth, info)
        rows = np.stack(columns, axis=1)[self.configuration]
        self._offer(snapshot, np.asarray(info["action_mask"]))
        fleet = np.broadcast_to(self._fleet(snapshot, info), (rows.shape[0], len(FLEET_FEATURES)))
        return np.concatenate((rows, fleet), axis=1).astype(np.float32)

    # -- parts ------------------------------------------------------------------------------------------

    def _needs(self, snapshot: Snapshot) -> Needs:
        safe = safe_utilization(snapshot, snapshot.fleet)
        rate = snapshot.rate_rps[:, None]
        need = np.maximum(
            rate * snapshot.service_s / (safe * snapshot.max_concurrency),
            rate * snapshot.work_tflop / snapshot.compute_tflops,
        )
        need = np.maximum(need, rate * snapshot.kv_gb_s / snapshot.kv_capacity_gb)
        excess = np.maximum(0.0, snapshot.delay_s / self._delay_slo_s - 1.0)
        excess += np.maximum(0.0, snapshot.error / self._error_slo - 1.0)
        usable = snapshot.compatible & (excess < 1.0)
        unserved = np.maximum(snapshot.unserved_usd, 1e-12)
        cost = need * snapshot.hold_usd + snapshot.route_usd + unserved[:, None] * excess
        cost = np.where(usable, np.maximum(cost, 1e-12), np.inf)
        order = np.argsort(cost, axis=1, kind="stable")
        order[~np.take_along_axis(usable, order, axis=1)] = -1
        best = cost.min(axis=1)
        with np.errstate(invalid="ignore"):
            merit = np.where(usable, best[:, None] / cost, 0.0)
        severity = np.log(np.where(np.isfinite(best), unserved / best, 1.0))
        return Needs(need, order, merit, severity)

    def _columns(
        self,
        snapshot: Snapshot,
        needs: Needs,
        priority: np.ndarray,
        growth: np.ndarray,
        info: Mapping[str, Any],
    ) -> list[np.ndarray]:
        """Return the columns of SLOT_FEATURES, each (C,)."""
        held, use = snapshot.fleet.astype(float), snapshot.gpu_use
        gpus = snapshot.available_gpus - use @ held
        used, missing, ideal, self._unmet = [], [], [], []
        for need in (needs.need, needs.need * growth[:, None]):
            left = np.ones(growth.size)
            call = (left, priority, needs.order, need)
            used.append(fill(*call, held.copy(), use, np.full(gpus.size, np.inf)))
            self._unmet.append(left.copy())
            missing.append(fill(*call, snapshot.max_replicas - held, use, np.maximum(0.0, gpus)))
            call = (np.ones(growth.size), *call[1:])
            most = snapshot.max_replicas.astype(float)
            ideal.append(fill(*call, most, use, snapshot.available_gpus.astype(float)))
        self._used, self._ideal = used, ideal
        wanted = np.maximum(*ideal)
        self.ideal_fleet = np.minimum(np.ceil(wanted - _SPARE), snapshot.max_replicas).astype(np.int64)
        weight = needs.merit**4 * (needs.need > 0)
        weight /= np.maximum(weight.sum(axis=0), 1e-12)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(use > 0, gpus[:, None] / use, np.inf).min(axis=0)
            share = np.where(use > 0, (snapshot.available_gpus / self._caps)[:, None], 1.0).min(axis=0)
            utilization = np.where(held > 0, used[0] / held, 0.0)
        return [
            np.log1p(held),
            np.log1p(np.asarray(info["starting"]).sum(axis=1)),
            np.log1p(np.asarray(info["draining"]).sum(axis=1)),
            *(np.minimum(held - u, _MOST) for u in used),
            utilization,
            *(np.minimum(m, _MOST) for m in missing),
            *(np.clip(i - held, -_MOST, _MOST) for i in ideal),
            np.log1p(wanted),
            np.ceil(wanted - _SPARE) - wanted,
            needs.merit.max(axis=0),
            *self._prices,
            np.clip(room, -_MOST, _MOST),
            share,
            np.minimum(info["denied"], _MOST),
            np.minimum(info["lost"], _MOST),
            needs.severity @ weight,
            self._volatility @ weight,
            np.clip(np.log(np.maximum(growth, 1e-3)), -1.0, 1.0) @ weight,
            np.asarray(info["unserved_share"]) @ weight,
            np.asarray(info["miss_share"]) @ weight,
        ]

    def _offer(self, snapshot: Snapshot, mask: np.ndarray) -> None:
        """Set `targets` and `allowed`."""
        held = snapshot.fleet[self.configuration]
        ideal = np.maximum(*self._ideal)[self.configuration]
        enough = self.ideal_fleet[self.configuration]
        offers = (held, enough, enough + 1, enough - 1, np.ceil(1.3 * ideal - _SPARE))
        most = self.view.nvec - 1
        self.targets = np.clip(np.stack(offers, axis=1), 0, most[:, None]).astype(np.int64)
        fits = mask[self.view.actions.offsets[:, None] + self.targets] | (self.targets <= held[:, None])
        again = np.zeros_like(fits)
        for k in range(1, fits.shape[1]):
            again[:, k] = (self.targets[:, :k] == self.targets[:, k : k + 1]).any(axis=1)
        self.allowed = fits & ~again
        self.allowed[:, 2] &= enough > 0  # one more only of what is needed at all

    def _fleet(self, snapshot: Snapshot, info: Mapping[str, Any]) -> np.ndarray:
        """Return FLEET_FEATURES, which every slot sees."""
        value = snapshot.unserved_usd / max(float(snapshot.unserved_usd.sum()), 1e-12)
        hold_usd = float(snapshot.fleet @ snapshot.hold_usd)
        idle_usd = float((snapshot.fleet - self._used[0]) @ snapshot.hold_usd)
        ideal_usd = float(self._ideal[0] @ snapshot.hold_usd)
        instance = self.view.instance
        day = 2.0 * np.pi * snapshot.window * instance.window_s / 86400.0
        return np.array(
            [
                *(float(value @ left) for left in self._unmet),
                float(value @ np.asarray(info["miss_share"])),
                np.clip(np.log((hold_usd + 1e-9) / (ideal_usd + 1e-9)), -3.0, 3.0),
                idle_usd / max(hold_usd, 1e-9),
                np.sin(day),
                np.cos(day),
                min(1.0, (instance.num_windows - snapshot.window) / 12.0),
            ]
        )


def _volatility(instance: Instance) -> np.ndarray:
    """Return the standard deviation of each workload's log demand over half an hour in the history, (I,)."""
    nominal = np.array([w.rate_rps for w in instance.workloads])
    series = np.log(np.maximum(instance.history.rate_rps, 0.05 * nominal))
    return (series[_SPAN:] - series[:-_SPAN]).std(axis=0)


def _list_prices(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return of each configuration the log of its price over the mean, its start-up in windows, and its fee, (C,)."""
    hold_usd = np.maximum(snapshot.hold_usd, 1e-12)
    price = np.clip(np.log(hold_usd / hold_usd.mean()), -3.0, 3.0)
    waits = np.array([c.startup_windows for c in snapshot.instance.configurations])
    return price, waits / 3.0, np.minimum(snapshot.startup_usd / hold_usd, 6.0) / 3.0
