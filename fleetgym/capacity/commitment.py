"""Pay for reserved GPUs all day, whether a fleet uses them or not.

Reserved GPUs are paid all day, used or not. So, once committed, they cost a fixed sum, and using them costs nothing
more. A fleet that is held all day pays that sum as rent; an agent that releases GPUs does not, so it has to play the
instance made here.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.model.instance import Instance


def reserved_pools(instance: Instance) -> np.ndarray:
    """Return which pools are reserved, (G,) bool."""
    return np.array([pool.market == "reserved" for pool in instance.pools])


def commitment_usd(instance: Instance, gpus: np.ndarray) -> float:
    """Return what reserved GPUs cost in an episode, used or not.

    Parameters
    ----------
    instance : Instance
        The problem.
    gpus : ndarray of int, shape (G,)
        GPUs committed to; those of pools that are not reserved do not count.

    Returns
    -------
    float
        USD.
    """
    hours = instance.num_windows * instance.window_s / 3600.0
    price = np.array([pool.price_usd_per_gpu_h for pool in instance.pools])
    return float(hours * price @ (gpus * reserved_pools(instance)))


def committed(instance: Instance, gpus: np.ndarray) -> Instance:
    """Return the instance in which the given reserved GPUs are already paid for.

    Parameters
    ----------
    instance : Instance
        The problem.
    gpus : ndarray of int, shape (G,)
        GPUs committed to; other pools than reserved ones stay as they are.

    Returns
    -------
    Instance
        Reserved pools hold no more than that, at no rent. `commitment_usd` is what they cost beside.

    Examples
    --------
    >>> import dataclasses, fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> pools = [dataclasses.replace(pool, market="reserved") for pool in instance.pools]
    >>> paid = committed(instance.replace(pools=pools, nominal_fleet=[0, 0]), np.array([1, 0]))
    >>> [(pool.cap_gpus, pool.price_usd_per_gpu_h) for pool in paid.pools]
    [(1, 0.0), (0, 0.0)]
    """
    is_reserved = reserved_pools(instance)
    if not is_reserved.any():
        return instance
    free = {pool.id for pool, mine in zip(instance.pools, is_reserved, strict=True) if mine}
    pools = [
        dataclasses.replace(pool, cap_gpus=int(n), price_usd_per_gpu_h=0.0) if pool.id in free else pool
        for pool, n in zip(instance.pools, gpus, strict=True)
    ]
    tiers = [
        dataclasses.replace(tier, price_usd_per_gpu_h=None) if tier.pool in free else tier
        for tier in instance.tiers
    ]
    fleet = instance.nominal_fleet.copy()
    for g in np.flatnonzero(is_reserved):
        for c in np.flatnonzero(instance.gpu_use[g]):
            over = int(instance.gpu_use[g] @ fleet) - int(gpus[g])
            fleet[c] -= min(fleet[c], max(0, -(-over // int(instance.gpu_use[g, c]))))
    return instance.replace(pools=pools, tiers=tiers, nominal_fleet=fleet)
