"""Multiply the demand of an instance."""

from __future__ import annotations

import dataclasses

from fleetgym.model.instance import Instance


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
