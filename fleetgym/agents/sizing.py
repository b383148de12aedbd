"""Find the fleet to hold for margins per workload: an action of few numbers for rules and learners.

An instance has a handful of workloads and up to hundreds of configurations. Whoever decides how much of each workload's
demand to be ready for leaves it to `FleetSizer` which replicas that takes. Margins mean the same on all instances,
whatever their configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    size_studied,
    study_windows,
)
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model


class FleetSizer:
    """Chooses replicas for demand between two margins.

    What is held stays while it is worth its rent at `upper` times the forecast. Replicas are added only for `lower`
    times the forecast. Between the two nothing changes, so small moves of a forecast move no replicas.

    The replica comes first that costs least for what it serves. What it serves counts as what the cheapest replica
    anywhere would cost for it, used in full. A replica is worth its rent if it saves more, of what would go unserved or
    be served dearer.

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
        self._most = np.array([[c.max_replicas for c in i.configurations] for i in several], dtype=np.int64)
        self._shape = shapes.pop()
        self._space = new_space(*self._shape)
        self._spaces: SizingSpace | None = None

    def _pack(self) -> None:
        self._packed = PackedPointers.stack([window_model(i).new_router().packed for i in self.instances])

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
            Most that holding the fleet may cost, USD.
        rent_factor : ndarray of float, shape (n,), or float
            By how much rent counts more than it costs, as where a budget for the whole day runs short.
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
            self._most,
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

    def study(
        self,
        conditions: PackedConditions,
        fleet: np.ndarray,
        money: np.ndarray,
        *,
        which: np.ndarray,
        at_once: np.ndarray,
        most: float,
    ) -> Study:
        """Prepare n windows, from which fleets of many margins can be sized; return what is asked of the fleet.

        Parameters
        ----------
        conditions, fleet, which, at_once
            As for `targets`, C-contiguous and of these shapes and types.
        money : ndarray, shape (n, 3)
            Budget, factor of the rent and payback windows, as for `targets`.
        most : float
            How many times the expected demand the fleet is asked to serve.
        """
        count, workloads = len(fleet), self._shape[0]
        if self._spaces is None or self._spaces.need.shape[0] != count:
            self._spaces = SizingSpace(*(np.repeat(part[None], count, axis=0) for part in self._space))
        spaces = self._spaces
        told = np.empty((count, 3, workloads))
        study_windows(
            self._packed.words,
            which,
            *conditions,
            fleet,
            np.full(workloads, most),
            money,
            at_once,
            self.risk,
            spaces,
            told,
        )
        unserved, serving, served = told.transpose(1, 0, 2)
        return Study(unserved, serving, served, spaces.rent[:, 0].copy())

    def size_studied(
        self,
        available: np.ndarray,
        fleet: np.ndarray,
        margin: np.ndarray,
        money: np.ndarray,
        which: np.ndarray,
    ) -> np.ndarray:
        """Return the fleets to hold in the windows of the last `study`, int64 (n, C), for margins (n, 2, I)."""
        target = np.empty_like(fleet)
        size_studied(
            *(self._packed.words, which, available, fleet, margin, money),
            *(self._most, self.risk, self._spaces, target),
        )
        return target


class Study(NamedTuple):
    """What is asked of fleets in n windows."""

    unserved_usd: np.ndarray  # (n, I) cost of not serving a workload
    serving_usd: np.ndarray  # (n, I) the least that serving it costs anywhere; inf if nothing can
    served: np.ndarray  # (n, I) how many times it the fleet serves
    hold_usd: np.ndarray  # (n, C) cost of holding a replica


def _shaped(name: str, value: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return numbers in a shape and type that kernels take, or raise `FleetgymError`."""
    try:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype=dtype), shape))
    except ValueError:
        raise FleetgymError(f"{name} has the shape {np.shape(value)}; expected {shape}") from None
