"""From a set of configurations to those that another one of the set makes superfluous."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.model.instance import Affine, Configuration, Performance, Pool, Slot, Tier


def dominated(
    *,
    pools: Sequence[Pool],
    tiers: Sequence[Tier],
    configurations: Sequence[Configuration],
    slots: Sequence[Slot],
    performance: Performance,
) -> np.ndarray:
    """Return which configurations can be dropped without making the best fleet dearer.

    Configuration d dominates c when, replica for replica, d

    - takes no more GPUs of any pool and no more rent in any pool, so its pools are among c's;
    - has no more model storage, start-up windows and start-up fee;
    - has at least c's compute, KV memory and concurrency, and no more KV cache per token;
    - serves every workload that c serves, each with coefficients of delay, service, prefill and work, a
      variability of service, an error and a storage cost that are no larger;
    - can stand in for c: both are options of one exclusive slot, or d is a counted configuration whose
      `max_replicas` is never reached before the cap of one of its pools.

    Of equals the first stays. Any fleet with c can then be turned into one with d, and any routing to c into
    one to d, that costs no more in rent, storage, delay, SLO excess, unserved requests and start-up, whatever
    a scenario's lengths, factors, prices and availability. Late-request costs are left out: their segments
    depend on the mixture of all workloads that a configuration serves, and d may serve more of them.
    Of configurations that differ only in the 1e-6 tie-breaking cost, either may go. The rule knows no
    running fleet: keep what runs, or its replacement costs a start-up.

    Parameters
    ----------
    pools, tiers, configurations, slots, performance
        As in an `fleetgym.model.instance.Instance`.

    Returns
    -------
    (C,) bool array
        True where a configuration is dominated by one that stays.
    """
    worse = _features(pools, tiers, configurations, performance)  # (features, C), less is better
    stands_in = _stands_in(pools, tiers, configurations, slots)
    count = len(configurations)
    first = np.arange(count)
    out = np.zeros(count, dtype=bool)
    for c in range(count):
        no_worse = np.all(worse <= worse[:, [c]], axis=0)
        equal = np.all(worse == worse[:, [c]], axis=0) & stands_in[c]
        out[c] = np.any(no_worse & stands_in[:, c] & (~equal | (first < c)) & (first != c))
    return out


def _gpu_use(
    pools: Sequence[Pool], tiers: Sequence[Tier], configurations: Sequence[Configuration]
) -> tuple[np.ndarray, np.ndarray]:
    """Return GPUs and rent per hour of one replica by pool, both (G, C)."""
    row = {pool.id: g for g, pool in enumerate(pools)}
    tier_of = {tier.id: tier for tier in tiers}
    use = np.zeros((len(pools), len(configurations)))
    rent = np.zeros_like(use)
    for c, configuration in enumerate(configurations):
        for part in configuration.uses:
            tier = tier_of[part.tier]
            g = row[tier.pool]
            price = tier.price_usd_per_gpu_h
            use[g, c] += part.gpus
            rent[g, c] += part.gpus * (pools[g].price_usd_per_gpu_h if price is None else price)
    return use, rent


def _features(
    pools: Sequence[Pool],
    tiers: Sequence[Tier],
    configurations: Sequence[Configuration],
    performance: Performance,
) -> np.ndarray:
    """Return all that matters about each configuration, less being better: (features, C)."""
    use, rent = _gpu_use(pools, tiers, configurations)
    less = ("model_storage_usd_per_h", "startup_windows", "startup_usd", "kv_gb_per_token")
    more = ("compute_tflops", "kv_capacity_gb", "max_concurrency")
    own = [[getattr(c, name) for c in configurations] for name in less]
    own += [[-getattr(c, name) for c in configurations] for name in more]
    pairs = []
    for field in dataclasses.fields(Performance):
        value = getattr(performance, field.name)
        if isinstance(value, Affine):
            pairs += [value.base, value.per_input_token, value.per_output_token]
        elif field.name not in ("compatible", "tie_break"):
            pairs.append(value)
    pairs.append(np.zeros_like(performance.error))  # so that compatibility counts by itself
    # A workload that c does not serve asks nothing of d; one that d does not serve rules it out.
    blank = [np.where(performance.compatible, array, np.inf) for array in pairs]
    return np.concatenate([use, rent, np.array(own, dtype=float), *blank])


def _stands_in(
    pools: Sequence[Pool],
    tiers: Sequence[Tier],
    configurations: Sequence[Configuration],
    slots: Sequence[Slot],
) -> np.ndarray:
    """Return whether d (row) may take the place of c (column) in any fleet: (C, C) bool."""
    index = {c.id: k for k, c in enumerate(configurations)}
    group = np.full(len(configurations), -1)
    for s, slot in enumerate(slots):
        if slot.exclusive:
            group[[index[name] for name in slot.configurations]] = s
    use, _ = _gpu_use(pools, tiers, configurations)
    caps = np.array([[pool.cap_gpus] for pool in pools], dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.floor(np.where(use > 0, caps / use, np.inf)).min(axis=0)
    unlimited = (group < 0) & (np.array([c.max_replicas for c in configurations]) >= room)
    same = (group[:, None] == group[None, :]) & (group[:, None] >= 0)
    return same | unlimited[:, None]
