"""Describe an instance as operators run it: models with their workloads, and replicas of several configurations.

Practical autoscalers decide how many replicas a model has, and of which variant. `Services` gives the workloads of
each model, and the replicas of each configuration that would serve all of them. `Room` adds and removes replicas
within the limits of pools, budget and slots.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fleetgym import Instance, Snapshot, View

from .rates import safe_utilization

#: Replicas and shares below this are round-off.
TINY = 1e-9


def priority(instance: Instance) -> np.ndarray:
    """Return the workloads, the most expensive to lose first; the order does not depend on demand."""
    by_day = instance.penalty_basis == "day"
    value = [w.unserved_usd * (1.0 if by_day else w.rate_rps) for w in instance.workloads]
    return np.argsort(-np.array(value), kind="stable")


def safe_shares(snapshot: Snapshot, replicas: np.ndarray) -> np.ndarray:
    """Return the shares of compute, KV memory and queue servers at which `replicas` (C,) keep deadlines, (3, 1, C)."""
    ones = np.ones(replicas.size)
    return np.stack((ones, ones, safe_utilization(snapshot, replicas)))[:, None, :]


def slo_penalty_usd(snapshot: Snapshot) -> np.ndarray:
    """Return what each route costs for violating mean SLOs, (I, C) USD of the window."""
    return snapshot.unserved_usd[:, None] * snapshot.slo_excess()


class Services:
    """The models of an instance that have workloads.

    A workload goes to the model that serves it within its SLOs at the least cost per request. If none does, it goes to
    the model with the least penalty. A configuration of the model counts if it can serve all its workloads for less
    than they are worth. If no configuration can, those count that serve the most expensive ones. All this is decided
    at nominal demand.

    Parameters
    ----------
    instance : Instance

    Attributes
    ----------
    workloads : list of ndarray
        Numbers of each service's workloads. The service with the workload that is most expensive to lose comes first.
    variants : ndarray of bool, shape (services, C)
        Configurations that may serve them; of no two services the same.

    Examples
    --------
    >>> import fleetgym
    >>> services = Services(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> [numbers.tolist() for numbers in services.workloads], services.variants.tolist()
    ([[0]], [[True, True]])
    """

    def __init__(self, instance: Instance):
        snapshot = View(instance).snapshot()
        need, penalty = snapshot.replicas_needed().max(axis=0), slo_penalty_usd(snapshot)
        with np.errstate(invalid="ignore"):
            cost = need * snapshot.hold_usd + snapshot.route_usd + penalty
        usable = snapshot.compatible & np.isfinite(need) & (penalty < snapshot.unserved_usd[:, None])
        models = np.array([c.model for c in instance.configurations])
        chosen: dict[str, list[int]] = {}
        for i in priority(instance):
            best = [c for c in np.lexsort((cost[i], penalty[i] > 0)) if usable[i, c]]
            if best:
                chosen.setdefault(models[best[0]], []).append(int(i))
        self.workloads = [np.array(numbers) for numbers in chosen.values()]
        self.variants = np.zeros((len(chosen), models.size), dtype=bool)
        for row, (model, numbers) in zip(self.variants, chosen.items(), strict=True):
            row[:] = models == model
            for i in numbers:
                if np.any(row & usable[i]):
                    row &= usable[i]

    def loads(self, snapshot: Snapshot, utilization: float | np.ndarray = 1.0) -> np.ndarray:
        """Return the replicas of each configuration that would serve all of a service's demand, (services, C).

        Parameters
        ----------
        snapshot : Snapshot
            One window's problem.
        utilization : float or ndarray that broadcasts to (3, 1, C)
            As for `Snapshot.replicas_needed`; inf leaves a resource out.

        Returns
        -------
        ndarray
            Not whole; inf where a configuration is no variant of the service.
        """
        need = snapshot.replicas_needed(utilization)
        loads = np.full(self.variants.shape, np.inf)
        for row, numbers, variants in zip(loads, self.workloads, self.variants, strict=True):
            row[variants] = need[:, numbers][:, :, variants].sum(axis=1).max(axis=0)
        return loads

    def own(self, fleet: np.ndarray) -> np.ndarray:
        """Return the replicas of a fleet (C,) that are variants of some service."""
        return np.where(self.variants.any(axis=0), fleet, 0)

    def orders(self, snapshot: Snapshot, loads: np.ndarray) -> list[np.ndarray]:
        """Return each service's variants, those first that keep its SLOs, then by the cost of serving all of it."""
        penalty, found = slo_penalty_usd(snapshot), []
        for numbers, variants, load in zip(self.workloads, self.variants, loads, strict=True):
            broken = penalty[numbers].sum(axis=0)
            with np.errstate(invalid="ignore"):
                cost = load * snapshot.hold_usd + snapshot.route_usd[numbers].sum(axis=0) + broken
            order = np.lexsort((cost, broken > 0))
            found.append(order[variants[order] & np.isfinite(load[order])])
        return found


def supply(fleet: np.ndarray, load: np.ndarray) -> float:
    """Return the multiple of a service's demand that replicas (C,) serve; inf where there is no demand."""
    variants = np.isfinite(load)
    if not np.any(load[variants] > 0):
        return np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(fleet[variants] > 0, fleet[variants] / load[variants], 0.0).sum())


class Room:
    """A fleet that is being planned, and the room that pools, budget and slots leave.

    Parameters
    ----------
    snapshot : Snapshot
        Limits of pools, budget and slots.
    fleet : ndarray of int, shape (C,)
        Replicas to begin with. Those that do not fit are left out, the most expensive first.

    Attributes
    ----------
    fleet : ndarray of int64, shape (C,)
        Current replicas.
    """

    def __init__(self, snapshot: Snapshot, fleet: np.ndarray):
        self.snapshot, self.fleet = snapshot, np.zeros(fleet.size, dtype=np.int64)
        self.gpus_left = np.array(snapshot.available_gpus, dtype=np.int64)
        self.usd_left = float(snapshot.budget_usd)
        self.rivals: dict[int, list[int]] = {}
        for members in snapshot.instance.exclusive_groups:
            self.rivals.update({c: [other for other in members if other != c] for c in members})
        for c in sorted(np.flatnonzero(fleet), key=lambda c: (snapshot.hold_usd[c], c)):
            self.add(int(c), int(fleet[c]))

    def add(self, c: int, count: int) -> int:
        """Add up to `count` replicas of configuration c; return how many there was room for."""
        s = self.snapshot
        count = min(count, int(s.max_replicas[c] - self.fleet[c]))
        uses = s.gpu_use[:, c] > 0
        count = min(count, int((self.gpus_left[uses] // s.gpu_use[uses, c]).min(initial=count)))
        if s.hold_usd[c] > 0.0 and np.isfinite(self.usd_left):
            count = min(count, int(self.usd_left // s.hold_usd[c]))
        if count <= 0 or np.any(self.fleet[self.rivals.get(c, [])] > 0):
            return 0
        self._change(c, count)
        return count

    def remove(self, c: int, count: int) -> int:
        """Take away up to `count` replicas of configuration c; return how many."""
        count = max(0, min(count, int(self.fleet[c])))
        self._change(c, -count)
        return count

    def _change(self, c: int, by: int) -> None:
        self.fleet[c] += by
        self.gpus_left -= by * self.snapshot.gpu_use[:, c].astype(np.int64)
        self.usd_left -= by * float(self.snapshot.hold_usd[c])

    def grow(self, order: Iterable[int], load: np.ndarray, share: float) -> float:
        """Add replicas of a service, in this order of its configurations, until they serve `share` of its demand more.

        Returns
        -------
        float
            The share that there was no room for.
        """
        for c in order:
            if share <= TINY:
                break
            added = self.add(int(c), int(np.ceil(share * load[c] - TINY)))
            share -= added / load[c] if load[c] > 0 else share
        return max(0.0, share)

    def shrink(self, order: Iterable[int], load: np.ndarray, share: float) -> None:
        """Take replicas of a service away, in this order, that serve `share` of its demand at most."""
        for c in order:
            if share <= TINY:
                break
            if load[c] > 0:
                share -= self.remove(int(c), int(min(share * load[c] + TINY, self.fleet[c]))) / load[c]
            else:
                self.remove(int(c), int(self.fleet[c]))
