"""Adapt Mélange as a planner: the cheapest replicas of configurations that carry the load."""

from __future__ import annotations

import numpy as np

from fleetgym import Plan, Snapshot, UnknownNameError
from fleetgym.planning import at_least, positive_share, whole_at_least

from ..agents import RollingAgent
from ..homogeneous import gpu_type_masks
from ..rates import safe_utilization, serving_seconds
from .allocation import Allocation, Limits, Workload, allocate


class MelangePlanner:
    """Griggs et al., "Mélange: Cost Efficient LLM Serving by Exploiting GPU Heterogeneity", arXiv:2404.14527.

    **Adapter.** Mélange serves one model on whole GPUs, from a cloud without limits. Here a bucket is a workload, a
    "GPU" is one replica of a configuration, and its throughput on the workload is that of all queue servers in use at
    safe utilisation (section 3 of the model page), on routes that keep the workload's SLOs by themselves, unless none
    does. *Each workload's model is fixed*: the compatible one whose cheapest configuration serves a request for the
    least rent. Availability, budget, exclusive slots and `max_replicas` are rows of the program, and a slice
    may stay unserved at the instance's price, since with limits there may be no room for it.

    Parameters
    ----------
    slice_factor : int
        Slices of each workload.
    gpu_type : str, optional
        Use one GPU type only: the paper's single-type variants.
    utilization : float, optional
        Share of a window in which a replica may be busy; None: the safe one of each configuration.
    gap, nodes : float, int
        Limits of the integer program: same snapshot, same plan.

    Raises
    ------
    FleetgymError
        For a slice factor below 1 or a utilisation outside (0, 1], or a negative limit.
    """

    def __init__(
        self,
        *,
        slice_factor: int = 8,
        gpu_type: str | None = None,
        utilization: float | None = None,
        gap: float = 0.01,
        nodes: int = 100,
    ):
        whole_at_least(1, slice_factor=slice_factor)
        at_least(0, gap=gap)
        whole_at_least(0, nodes=nodes)
        positive_share(utilization=utilization)
        self.slice_factor, self.gpu_type, self.utilization = slice_factor, gpu_type, utilization
        self.gap, self.nodes = gap, nodes

    def prepare(self, snapshot: Snapshot) -> None:
        """Import HiGHS before the first decision."""
        import highspy  # noqa: F401

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet for the snapshot's window.

        Returns
        -------
        Plan
            ``diagnostics["slices"]`` (I, C): slices of each workload on each configuration; ``"models"`` (I,): the
            model of each workload.

        Raises
        ------
        UnknownNameError
            If the instance has no such GPU type.
        """
        busy_s = serving_seconds(snapshot, self._allowed(snapshot))
        models = cheapest_models(snapshot, busy_s)
        names = np.array([c.model for c in snapshot.instance.configurations])
        busy_s = np.where(names[None, :] == models[:, None], busy_s, np.inf)
        if self.utilization is not None:
            found = self._allocate(snapshot, busy_s / self.utilization)
        else:
            first = self._allocate(snapshot, busy_s / safe_utilization(snapshot, snapshot.max_replicas))
            found = self._allocate(snapshot, busy_s / safe_utilization(snapshot, first.count))
        return Plan(
            fleet=found.count,
            eligible=found.slices > 0,
            status="feasible" if found.count.any() else "empty",
            diagnostics={"slices": found.slices, "models": tuple(models.tolist())},
        )

    def _allowed(self, snapshot: Snapshot) -> np.ndarray | None:
        """Return the configurations (C,) on the GPU type that was asked for."""
        if self.gpu_type is None:
            return None
        masks = gpu_type_masks(snapshot.instance)
        if self.gpu_type not in masks:
            raise UnknownNameError("GPU type", self.gpu_type, masks)
        return masks[self.gpu_type]

    def _allocate(self, snapshot: Snapshot, busy_s: np.ndarray) -> Allocation:
        instance = snapshot.instance
        workload = Workload(
            rate_rps=snapshot.rate_rps,
            throughput_rps=np.where(np.isfinite(busy_s), 1.0 / np.maximum(busy_s, 1e-12), 0.0),
            cost_usd_per_h=snapshot.hold_usd,
            names=tuple(c.id for c in instance.configurations),
            slices=self.slice_factor,
        )
        limits = Limits(
            gpu_use=snapshot.gpu_use,
            available_gpus=snapshot.available_gpus,
            budget_usd_per_h=snapshot.budget_usd,
            most=snapshot.max_replicas,
            groups=snapshot.instance.exclusive_groups,
            unserved_usd=snapshot.unserved_usd,
        )
        found = allocate(workload, limits, gap=self.gap, nodes=self.nodes)
        assert found is not None  # with limits there is always an answer
        return found


def cheapest_models(snapshot: Snapshot, busy_s: np.ndarray) -> np.ndarray:
    """Return each workload's model whose cheapest configuration serves a request for the least rent.

    Parameters
    ----------
    snapshot : Snapshot
        Prices.
    busy_s : (I, C) ndarray
        Seconds of one replica per request; inf where it may not serve the workload.

    Returns
    -------
    (I,) ndarray of str
        Empty where nothing serves the workload.
    """
    names = np.array([c.model for c in snapshot.instance.configurations])
    usd = np.where(np.isfinite(busy_s), busy_s * snapshot.hold_usd, np.inf)
    best = usd.argmin(axis=1)
    return np.where(np.isfinite(usd.min(axis=1)), names[best], "")


melange = RollingAgent(
    "Mélange, buckets of requests on GPU types, planning again and again; start-up is penalised as by `Rolling`.",
    MelangePlanner,
)
