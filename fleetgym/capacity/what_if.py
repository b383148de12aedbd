"""Change the demand, the prices or the GPUs of an instance, to ask what would be planned then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.quantities import USD_PER_GPU_H
from fleetgym.hardware import catalog
from fleetgym.model.instance import Budget, Instance


def grown(instance: Instance, factor: float) -> Instance:
    """Return an instance whose demand has grown.

    Shares, lengths, the course of a day and the dispersion of counts stay: there are more users, not larger bursts.
    Caps, prices and the fleet that runs stay, too.

    Parameters
    ----------
    instance : Instance
        The problem.
    factor : float
        Above 0.

    Returns
    -------
    Instance

    Raises
    ------
    DataError
        If a rate gets out of its bounds.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> [w.rate_rps / v.rate_rps for v, w in zip(instance.workloads, grown(instance, 3.0).workloads)]
    [3.0]
    """
    workloads = [dataclasses.replace(w, rate_rps=factor * w.rate_rps) for w in instance.workloads]
    history = dataclasses.replace(instance.history, rate_rps=factor * instance.history.rate_rps)
    return instance.replace(workloads=workloads, history=history)


def budgeted(instance: Instance, usd_per_h: float) -> Instance:
    """Return an instance in which a fleet may cost no more per hour; nothing runs at first.

    Parameters
    ----------
    instance : Instance
        The problem.
    usd_per_h : float
        USD for rent and storage of the whole fleet.

    Returns
    -------
    Instance

    Examples
    --------
    >>> import fleetgym
    >>> budgeted(fleetgym.load_instance("fleet-v0/toy/two-pools"), 12.0).budget
    Budget(kind='rate', usd=12.0)
    """
    return instance.replace(
        budget=Budget(kind="rate", usd=usd_per_h), nominal_fleet=np.zeros_like(instance.nominal_fleet)
    )


def without(instance: Instance, names: Sequence[str]) -> Instance:
    """Return an instance that lacks some GPUs, as when a zone is lost; replicas on them do not run at first.

    Parameters
    ----------
    instance : Instance
        The problem.
    names : sequence of str
        Pools, regions or GPU types.

    Returns
    -------
    Instance

    Raises
    ------
    FleetgymError
        If a name means no pool, or nothing is left.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> [pool.cap_gpus for pool in without(instance, [instance.pools[0].id]).pools][0]
    0
    """
    lost = np.zeros(instance.num_pools, dtype=bool)
    for name in names:
        meant = [name in (pool.id, pool.region, pool.gpu_type) for pool in instance.pools]
        if not any(meant):
            known = {word for pool in instance.pools for word in (pool.id, pool.region, pool.gpu_type)}
            raise UnknownNameError("pool, region or GPU type", name, sorted(known))
        lost |= meant
    if lost.all():
        raise FleetgymError(f"without {', '.join(names)} no GPU is left to plan with")
    pools = [
        dataclasses.replace(pool, cap_gpus=0) if gone else pool
        for pool, gone in zip(instance.pools, lost, strict=True)
    ]
    runs = ~(instance.gpu_use[lost] > 0).any(axis=0)
    return instance.replace(pools=pools, nominal_fleet=instance.nominal_fleet * runs)


def priced(instance: Instance, prices: Mapping[str, float]) -> Instance:
    """Return an instance in which GPUs have other prices; penalties and all else stay.

    Parameters
    ----------
    instance : Instance
        The problem.
    prices : mapping of str to float
        USD per GPU and hour, by pool or by GPU type: then of its on-demand pools.

    Returns
    -------
    Instance

    Raises
    ------
    FleetgymError
        If no pool is meant.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> [pool.price_usd_per_gpu_h for pool in priced(instance, {instance.pools[0].id: 2.1}).pools][0]
    2.1
    """
    found: dict[str, float] = {}
    for name, usd in prices.items():
        USD_PER_GPU_H.read(usd, f"price of {name}")
        for pool in _meant(instance, name):
            if pool in found:
                raise FleetgymError(f"two prices are given for the pool {pool!r}")
            found[pool] = usd
    pools = [
        dataclasses.replace(p, price_usd_per_gpu_h=found[p.id]) if p.id in found else p
        for p in instance.pools
    ]
    tiers = [
        dataclasses.replace(t, price_usd_per_gpu_h=None) if t.pool in found else t for t in instance.tiers
    ]
    return instance.replace(pools=pools, tiers=tiers)


def _meant(instance: Instance, name: str) -> list[str]:
    """Return the pools that a name of a pool or a GPU type means."""
    ids = [pool.id for pool in instance.pools]
    if name in ids:
        return [name]
    try:
        gpu, _ = catalog.gpu_named(name)
    except UnknownNameError:
        gpu = name
    on_demand = [p for p in instance.pools if p.market == "on-demand"]
    found = [p.id for p in on_demand if p.gpu_type == gpu]
    found = found or [p.id for p in on_demand if p.gpu_type.lower().startswith(name.lower())]
    if not found:
        raise FleetgymError(f"no on-demand pool has {name!r}; the pools are {', '.join(ids)}")
    return found
