"""Plan with each GPU type alone: what a provider loses who standardises on one.

Every paper on heterogeneous serving compares with it (Mélange, arXiv:2404.14527; Jiang et al., ICML 2025;
Coral's "Homo"). Here each GPU type is planned with AGH, so that the types are compared at equal effort.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym import Instance, Plan, Snapshot

from .agh import AdaptiveGreedyHeuristic


def gpu_type_masks(instance: Instance) -> dict[str, np.ndarray]:
    """Return, for each GPU type, which configurations (C,) run on it alone, in any region and precision."""
    types = np.array([pool.gpu_type for pool in instance.pools])
    used = instance.gpu_use > 0
    return {str(name): ~used[types != name].any(axis=0) for name in dict.fromkeys(types.tolist())}


class HomogeneousPlanner(AdaptiveGreedyHeuristic):
    """Plans with each GPU type alone and takes the cheapest plan, unserved demand included.

    Its arguments are those of `fleetgym.baselines.agh.AdaptiveGreedyHeuristic`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._instance: Instance | None = None
        self._planners: dict[str, AdaptiveGreedyHeuristic] = {}

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the cheapest plan of a single GPU type; its name is ``diagnostics["gpu_type"]``.

        Returns
        -------
        Plan
            Diagnostics as from AGH; ``by_gpu_type`` has the objective of each type, USD per window.
        """
        if self._instance is not snapshot.instance:
            self._instance = snapshot.instance
            mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
            allowed = True if self.allowed is None else self.allowed
            self._planners = {
                name: AdaptiveGreedyHeuristic(**{**mine, "allowed": mask & allowed})
                for name, mask in gpu_type_masks(snapshot.instance).items()
            }
        plans = {name: planner.plan(snapshot) for name, planner in self._planners.items()}
        best = min(plans, key=lambda name: plans[name].objective_usd)
        extra = {"gpu_type": best, "by_gpu_type": {n: p.objective_usd for n, p in plans.items()}}
        return dataclasses.replace(plans[best], diagnostics={**plans[best].diagnostics, **extra})
