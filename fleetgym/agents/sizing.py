"""Find the fleet for given margins per workload, so that rules and learned policies choose a few numbers only.

An instance has a handful of workloads and up to hundreds of configurations. Whoever decides how much of each workload's
demand to be ready for leaves it to `FleetSizer` which replicas that takes. Margins mean the same on all instances,
whatever their configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.agents.arguments import at_least
from fleetgym.agents.view import View
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.lowlevel import PackedPointers
from fleetgym.kernels.records import PackedConditions
from fleetgym.kernels.sizing import (
    BUDGET_USD,
    PAYBACK,
    RENT_FACTOR,
    SizingSpace,
    new_space,
    size_fleets,
)
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model


class FleetSizer:
    """Chooses replicas for demand between two margins.

    A replica stays while it is worth its rent at `upper` times the forecast. Replicas are added only for `lower`
    times the forecast. Between the two nothing changes, so small forecast changes cause no scaling.

    The replica comes first that costs least for what it serves. What it serves counts as what the cheapest replica
    anywhere would cost for it, used in full. A replica is worth its rent if it saves more, of what would go unserved or
    be served at a higher cost.

    Parameters
    ----------
    instances : Instance or sequence of Instance
        Several must be of one shape: equal numbers of workloads, configurations and pools.
    risk : float
        How far queue servers are loaded, from 0 (hardly any request is late) to 1 (as far as the routing allows).

    Raises
    ------
    FleetgymError
        If the shapes differ, or for a risk outside 0 to 1.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> sizer = FleetSizer(instance)
    >>> view = fleetgym.View(instance)
    >>> [sizer.target(view, rate * view.conditions.rate_rps, 1.1, 1.2).tolist() for rate in (0.0, 1.0, 3.0)]
    [[0, 0], [1, 1], [1, 2]]
    """

    def __init__(self, instances: Instance | Sequence[Instance], risk: float = 0.4):
        several = (instances,) if isinstance(instances, Instance) else tuple(instances)
        shapes = {(i.num_workloads, i.num_configurations, i.num_pools) for i in several}
        if len(shapes) != 1:
            raise FleetgymError(
                f"expected instances of one shape (workloads, configurations, pools), got {sorted(shapes)}"
            )
        at_least(0, risk=risk)
        if risk > 1:
            raise FleetgymError(f"risk is {risk!r}; expected at most 1")
        self.instances, self.risk = several, float(risk)
        self._pack()
        #: Replicas that an action can ask for, int64 (P, C).
        self.most = np.array([[c.max_replicas for c in i.configurations] for i in several], dtype=np.int64)
        self._shape = shapes.pop()
        self._space = new_space(*self._shape)

    def _pack(self) -> None:
        self._packed = PackedPointers.stack([window_model(i).new_router().packed for i in self.instances])

    @property
    def problems(self) -> np.ndarray:
        """Words of the packed instances, int64 (P, words), as kernels take them; valid while this object lives."""
        return self._packed.words

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pack()

    def targets(
        self,
        conditions: PackedConditions,
        fleet: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        which: np.ndarray | None = None,
        budget_usd: np.ndarray | float = np.inf,
        rent_factor: np.ndarray | float = 1.0,
        payback_windows: np.ndarray | float = 12.0,
        at_once: np.ndarray | bool = False,
    ) -> np.ndarray:
        """Return the fleets to hold in n windows, int64 (n, C), in one compiled call.

        Parameters
        ----------
        conditions : PackedConditions
            What is expected: workloads (n, 5, I) in the order of `Conditions.WORKLOAD_FIELDS`, available GPUs (n, G)
            and price factors (n, G).
        fleet : ndarray of int64, shape (n, C)
            Replicas running or starting.
        lower, upper : ndarray of float, shape (n, I), or what broadcasts to it
            Multiples of the expected demand that replicas are added for, and kept for.
        which : ndarray of int64, shape (n,), optional
            Number of each window's instance; by default the first.
        budget_usd : ndarray of float, shape (n,), or float
            Limit of the fleet's holding cost, USD.
        rent_factor : ndarray of float, shape (n,), or float
            Multiplier of rent, above 1 if a budget for the whole day runs short.
        payback_windows : ndarray of float, shape (n,), or float
            Windows in which a replica must pay for its start, at least 1.
        at_once : ndarray of bool, shape (n,), or bool
            Whether what is added serves in the same window, as in window 0.

        Raises
        ------
        FleetgymError
            For an array of another shape, or payback windows below 1.
        """
        workloads, configurations, pools = self._shape
        fleet = _shaped("fleet", fleet, (len(fleet), configurations), np.int64)
        count = len(fleet)
        margin = np.empty((count, 2, workloads))
        margin[:, 0] = _shaped("lower", lower, (count, workloads))
        margin[:, 1] = _shaped("upper", upper, (count, workloads))
        money = np.empty((count, 3))
        money[:, BUDGET_USD] = _shaped("budget_usd", budget_usd, (count,))
        money[:, RENT_FACTOR] = _shaped("rent_factor", rent_factor, (count,))
        money[:, PAYBACK] = _shaped("payback_windows", payback_windows, (count,))
        if np.any(money[:, PAYBACK] < 1):
            raise FleetgymError(f"payback_windows is {money[:, PAYBACK].min():g}; expected at least 1")
        chosen = _shaped("which", 0 if which is None else which, (count,), np.int64)
        if np.any((chosen < 0) | (chosen >= len(self.instances))):
            raise FleetgymError(
                f"which names instance {chosen.max()}; there are {len(self.instances)}, from 0"
            )
        target = np.empty((count, configurations), dtype=np.int64)
        size_fleets(
            self._packed.words,
            chosen,
            _shaped("conditions.workload", conditions.workload, (count, 5, workloads)),
            _shaped("conditions.available", conditions.available, (count, pools), np.int64),
            _shaped("conditions.price", conditions.price, (count, pools)),
            fleet,
            margin,
            money,
            _shaped("at_once", at_once, (count,), np.bool_),
            self.most,
            self.risk,
            self._space,
            target,
        )
        return target

    def target(
        self,
        view: View,
        rate_rps: np.ndarray,
        lower: np.ndarray | float,
        upper: np.ndarray | float,
        *,
        budget_usd: float = np.inf,
        rent_factor: float = 1.0,
        payback_windows: float = 12.0,
    ) -> np.ndarray:
        """Return the fleet to hold in a view's coming window, int64 (C,); all but the rates is as it was seen last.

        Parameters
        ----------
        view : View
            Of the first instance.
        rate_rps : ndarray, shape (I,)
            Expected arrivals per second.
        lower, upper : float, or ndarray of shape (I,)
            As for `targets`, and so are the others.
        """
        seen = view.conditions.packed()
        seen.workload[0] = rate_rps
        one = PackedConditions(*(field[None] for field in seen))
        return self.targets(
            one,
            view.fleet[None],
            np.asarray(lower),
            np.asarray(upper),
            budget_usd=budget_usd,
            rent_factor=rent_factor,
            payback_windows=payback_windows,
            at_once=view.window == 0,
        )[0]

    def working_space(self, count: int) -> SizingSpace:
        """Return what `fleetgym.kernels.sizing.study_windows` works on, for a number of windows."""
        return SizingSpace(*(np.repeat(part[None], count, axis=0) for part in self._space))


def _shaped(name: str, value: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return numbers in a shape and type that kernels take, or raise `FleetgymError`."""
    try:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype=dtype), shape))
    except ValueError:
        raise FleetgymError(f"{name} has the shape {np.shape(value)}; expected {shape}") from None
