"""Change the demand, the prices or the GPUs of an instance, to ask what would be planned then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetgym.capacity.traces.build import remade
from fleetgym.capacity.traces.objectives import check_deferred
from fleetgym.families.draft import LONGEST_PREFILL, at_lengths
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.quantities import USD_PER_GPU_H
from fleetgym.hardware import catalog
from fleetgym.model.facts import Facts, Slo
from fleetgym.model.instance import Budget, Instance, Pool, Workload

_LATE_SHARE = 1.0 / 3.0  # of what an unserved request costs, where nothing else is stated


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
        meant = [name in _names([pool]) for pool in instance.pools]
        if not any(meant):
            raise UnknownNameError("pool, region or GPU type", name, _names(instance.pools))
        lost |= meant
    if lost.all():
        raise FleetgymError(f"without {', '.join(names)} no GPU is left to plan with")
    pools = [
        dataclasses.replace(pool, cap_gpus=0) if gone else pool
        for pool, gone in zip(instance.pools, lost, strict=True)
    ]
    runs = ~(instance.gpu_use[lost] > 0).any(axis=0)
    return instance.replace(pools=pools, nominal_fleet=instance.nominal_fleet * runs)


def only(instance: Instance, name: str) -> Instance:
    """Return an instance that has the GPUs of one pool, region or GPU type alone.

    Parameters
    ----------
    instance : Instance
        The problem.
    name : str
        A pool, region or GPU type.

    Returns
    -------
    Instance

    Raises
    ------
    UnknownNameError
        If the name means no pool.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> [pool.cap_gpus > 0 for pool in only(instance, instance.pools[0].id).pools]
    [True, False]
    """
    if name not in (known := _names(instance.pools)):
        raise UnknownNameError("pool, region or GPU type", name, known)
    others = [pool.id for pool in instance.pools if name not in _names([pool])]
    return without(instance, others) if others else instance


def _names(pools: Iterable[Pool]) -> list[str]:
    """Return what pools may be called: ids, regions and GPU types."""
    return sorted({name for pool in pools for name in (pool.id, pool.region, pool.gpu_type)})


def stated_slos(instance: Instance) -> tuple[Slo, ...]:
    """Return what an instance promises by workload: as its import was told, or as its numbers say.

    Examples
    --------
    >>> import fleetgym
    >>> stated_slos(fleetgym.load_instance("fleet-v0/toy/two-pools"))[0].words
    'ttft=2s,delay=2s,error=0.05'
    """
    if instance.stated is not None:
        return instance.stated.slos
    return tuple(
        Slo(
            ttft=w.ttft_slo_s or Slo().ttft,
            delay=w.delay_limit_s,
            error=w.error_slo,
            unserved_usd=w.unserved_usd or None,
            late_usd=w.late_usd or None,
        )
        for w in instance.workloads
    )


def promised(instance: Instance, slos: Sequence[Slo]) -> Instance:
    """Return an instance with other SLOs: the one that an import with them makes, if its file says how.

    Parameters
    ----------
    instance : Instance
        The problem.
    slos : sequence of Slo
        By workload.

    Returns
    -------
    Instance
        Of an older import, or one that was changed since, configurations stay as they are, as far as they keep the
        SLOs, and so do penalties that are not given.

    Raises
    ------
    FleetgymError
        For SLOs out of reach; and where the file does not say how it was made, for other limits on `tpot`, `e2e` or
        `delay`, by which replicas are sized.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> slo = dataclasses.replace(stated_slos(instance)[0], ttft=0.9)
    >>> promised(instance, [slo]).workloads[0].ttft_slo_s
    0.9
    """
    check_deferred(slos, [w.id for w in instance.workloads])
    if (made := remade(instance, slos)) is not None:
        return made
    lengths = np.array([(w.input_tokens, w.output_tokens) for w in instance.workloads])
    at = at_lengths(instance.performance, lengths)
    compatible, workloads = instance.performance.compatible.copy(), []
    pairs = zip(instance.workloads, stated_slos(instance), slos, strict=True)
    for i, (w, old, new) in enumerate(pairs):
        _check_engine_limits(w.id, old, new)
        if new.ttft < old.ttft:
            compatible[i] &= at["prefill_s"][i] <= LONGEST_PREFILL * new.ttft
            _check_reach(w.id, f"ttft={new.ttft:g}", bool(compatible[i].any()))
        is_kept = instance.performance.error[i, compatible[i]] <= new.error
        _check_reach(w.id, f"error={new.error:g}", bool(is_kept.any()))
        unserved_usd, late_usd = _penalties(w, old, new)
        workloads.append(
            dataclasses.replace(
                w,
                ttft_slo_s=new.ttft,
                error_slo=new.error,
                unserved_usd=unserved_usd,
                late_usd=late_usd,
            )
        )
    facts = Facts(slos=tuple(slos)) if instance.stated is None else instance.stated
    return instance.replace(
        workloads=workloads,
        performance=dataclasses.replace(instance.performance, compatible=compatible),
        facts=dataclasses.replace(facts, slos=tuple(slos), recipe=None),
    )


def _check_engine_limits(workload: str, old: Slo, new: Slo) -> None:
    for field in ("tpot", "tpot_percentile", "e2e", "e2e_percentile", "delay"):
        if getattr(old, field) != getattr(new, field):
            raise FleetgymError(
                f"{field.partition('_')[0]} of workload {workload!r} says how many requests a replica serves at once, "
                "which follows from all lengths; the file does not say them, or was changed after its import: import "
                "the trace again with this --slo"
            )
    if new.e2e is not None and new.ttft > old.ttft:
        raise FleetgymError(
            f"a larger ttft of workload {workload!r} leaves less of its e2e={new.e2e:g} for tokens, so replicas would "
            "serve fewer requests at once: import the trace again with this --slo"
        )


def _check_reach(workload: str, slo: str, is_kept: bool) -> None:
    if not is_kept:
        raise FleetgymError(
            f"the SLO {slo} of workload {workload!r} is out of reach of every configuration of the instance: loosen "
            "it, or import the trace again with other --models or --gpus"
        )


def _penalties(w: Workload, old: Slo, new: Slo) -> tuple[float, float]:
    """Return what an unserved and a late request cost; a late one a third of an unserved one that is given anew."""
    unserved = w.unserved_usd if new.unserved_usd in (None, old.unserved_usd) else new.unserved_usd
    late = w.late_usd if unserved == w.unserved_usd else _LATE_SHARE * unserved
    late = late if new.late_usd in (None, old.late_usd) else new.late_usd
    if late > unserved:
        raise FleetgymError(
            f"a late request of workload {w.id!r} may not cost more than an unserved one: late_usd={late:g}, "
            f"unserved_usd={unserved:g}"
        )
    return unserved, late


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
