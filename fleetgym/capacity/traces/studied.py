"""Read what a planner's study needs from an imported instance: token lengths, and profiles of its GPUs.

A study names the instance by its file: as the workload, ``"day.json"``, and in the name of a GPU, ``"H100@day.json"``.
Models, GPUs and measurements of one's own are in that file.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.capacity.traces.candidates import ENGINE
from fleetgym.capacity.traces.recipe import recipe_of
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.homogeneous import deployment_of
from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import PROFILES, Profile, deployment_profile
from fleetgym.hardware.performance.roofline import StepTime
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance

#: Power of the GPUs of which a curve is published.
_POWER = {"A10G": "A10G", "A100-80GB": "A100-80GB", "H100": "H100-80GB"}
_RATES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # of today's


def is_file(workload: str) -> bool:
    """Return whether a workload is named by the file of an instance."""
    return workload.endswith((".json", ".json.gz"))


def lengths_of(path: str, high: int | None = None) -> Lengths:
    """Return the law of an imported instance's token lengths; longer requests count as having `high` tokens.

    Raises
    ------
    FleetgymError
        If the instance does not say its lengths, as those that are not made of a trace.
    """
    points, input_share = _law(load_instance(path), path)
    return Lengths.from_totals(points, input_share=input_share, high=high)


def _law(instance: Instance, path: str) -> tuple[list[tuple[int, float]], float]:
    lengths = None if instance.stated is None else instance.stated.lengths
    if lengths is None:
        raise FleetgymError(
            f"{path} does not say the lengths of its requests; expected an instance made by import-trace"
        )
    return [(point.tokens, point.share) for point in lengths.quantiles], lengths.input_share


def own_gpus(path: str) -> dict[str, Profile]:
    """Return a profile for each GPU type of an instance.

    It is that of the configuration that serves all workloads, or if none does most of them, for the least rent. Prices
    are the instance's.

    Raises
    ------
    FleetgymError
        If the file of an older version lacks a model, a GPU or a measurement of one's own.
    """
    return dict(_profiles(load_instance(path)))


def _profiles(instance: Instance) -> Mapping[str, Profile]:
    recipe = recipe_of(instance)
    with contextlib.nullcontext() if recipe is None else recipe.known():
        _check_known(instance)
        return _best_profiles(instance, {} if recipe is None else recipe.step_times)


def _best_profiles(
    instance: Instance, steps: Mapping[tuple[str, str, str, int], StepTime]
) -> Mapping[str, Profile]:
    table = instance.performance
    rates = np.array([w.rate_rps for w in instance.workloads])
    best: dict[str, tuple[float, float, int]] = {}
    tiers = {tier.id: tier for tier in instance.tiers}
    pools = {pool.id: pool for pool in instance.pools}
    for c, configuration in enumerate(instance.configurations):
        serves = table.compatible[:, c]
        service = sum(
            rates[i]
            * float(table.service_s.per_output_token[i, c] * w.output_tokens + table.service_s.base[i, c])
            + rates[i] * float(table.service_s.per_input_token[i, c] * w.input_tokens)
            for i, w in enumerate(instance.workloads)
            if serves[i]
        )
        usd = float(instance.rental_usd_per_h[:, c].sum()) * service / configuration.max_concurrency
        gpu = pools[tiers[configuration.uses[0].tier].pool].gpu_type
        served = float(rates[serves].sum())
        if served > 0.0:
            best[gpu] = min(best.get(gpu, (0.0, np.inf, c)), (-served, usd / served, c))
    return {gpu: _profile(instance, c, steps) for gpu, (_, _, c) in best.items()}


def _check_known(instance: Instance) -> None:
    """Refuse an instance of which the catalogue, or a measurement, is not known any more."""
    lacking = {c.model for c in instance.configurations} - set(catalog.model_names())
    lacking |= {pool.gpu_type for pool in instance.pools} - set(catalog.gpu_names())
    if lacking:
        raise FleetgymError(
            f"the instance has {', '.join(sorted(lacking))}, which the catalogue lacks and its file does not describe: "
            "import the trace again"
        )
    if instance.stated is not None and instance.stated.coefficients != ENGINE.coefficients:
        raise FleetgymError(
            f"the instance's times are of version {instance.stated.coefficients} of the coefficients, and this study "
            f"would use version {ENGINE.coefficients}: import the trace again"
        )
    if instance.stated is not None and instance.stated.measured_steps and instance.stated.recipe is None:
        raise FleetgymError(
            "the instance was made of measured times, which its file does not have: import the trace again"
        )


def _profile(instance: Instance, c: int, steps: Mapping[tuple[str, str, str, int], StepTime]) -> Profile:
    configuration = instance.configurations[c]
    deployment = deployment_of(instance, c)
    tier = next(t for t in instance.tiers if t.id == configuration.uses[0].tier)
    pool = next(p for p in instance.pools if p.id == tier.pool)
    limit = None if instance.stated is None else instance.stated.engine_limit(configuration.id)
    options = dataclasses.replace(ENGINE, steps=steps)
    if limit is not None:
        options = dataclasses.replace(options, max_num_seqs=limit)
    profile = deployment_profile(deployment, pool.price_usd_per_gpu_h, options)
    rates = np.array([w.rate_rps for w in instance.workloads]) * instance.performance.compatible[:, c]
    each = float(rates @ instance.performance.prefill_s.per_input_token[:, c] / rates.sum())
    # Less where the rest of the prompts is in a prefix cache, and more by what a prompt reads of itself.
    slower = each / profile.first_token_s
    curve = _POWER.get(pool.gpu_type)
    return dataclasses.replace(
        profile,
        first_token_s=each,
        prefill_s=profile.prefill_s * slower,
        power=None if curve is None else PROFILES[curve].power,
    )


def own_profile(name: str) -> Profile:
    """Return the profile of a GPU of an instance, such as ``"H100@day.json"``.

    Raises
    ------
    UnknownNameError
        If the instance has no such GPU.
    """
    gpu, _, path = name.partition("@")
    known = own_gpus(path)
    if gpu not in known:
        raise UnknownNameError(f"GPU of {path}", gpu, known)
    return known[gpu]


def study_settings(path: str) -> dict[str, Any]:
    """Return the settings of studies that an instance tells, by the names that studies give them.

    ``ttft_s`` is the strictest of the workloads.

    Raises
    ------
    FleetgymError
        If the instance does not say its lengths.
    """
    instance = load_instance(path)
    points, _ = _law(instance, path)
    rate = sum(w.rate_rps for w in instance.workloads)
    profiles = _profiles(instance)
    gpus = [f"{gpu}@{path}" for gpu in profiles]
    metered = [f"{gpu}@{path}" for gpu, profile in profiles.items() if profile.power is not None]
    context = 2 ** int(np.ceil(np.log2(points[-1][0])))
    limits = [context >> k for k in (4, 3, 2, 1, 0) if context >> k >= 256]
    found: dict[str, Any] = {
        "workload": path,
        "rate_rps": rate,
        "rates": [rate * factor for factor in _RATES],
        "ttft_s": min(w.ttft_slo_s for w in instance.workloads if w.ttft_slo_s is not None),
        "context_tokens": context,
        "limits": limits,
        "thresholds": limits[:-1],
        "threshold": limits[-2],
        "gpus": gpus,
        "gpu": (metered or gpus)[0],
        "short": gpus[0],
        "long": gpus[0],
        "replicas": None,
        "kv_gb_per_token": max(c.kv_gb_per_token for c in instance.configurations),
    }
    slos = () if instance.stated is None else instance.stated.slos
    bounds = [slo.tpot for slo in slos if slo.tpot is not None]
    return found | ({"tpot_s": min(bounds)} if bounds else {})


def planned_alone(name: str) -> tuple[int, float]:
    """Return GPUs and rent in USD per hour that `plan` holds of a GPU type alone, such as ``"H100@day.json"``."""
    from fleetgym.capacity.risk import plan_with_risk
    from fleetgym.capacity.what_if import only

    gpu, _, path = name.partition("@")
    instance = only(load_instance(path), gpu)
    fleet = plan_with_risk(instance, margin="best", days=0).plan.fleet
    return int(instance.gpu_use.sum(axis=0) @ fleet), float(instance.rental_usd_per_h.sum(axis=0) @ fleet)


def busy_factor(path: str) -> float:
    """Return how much more requests come in one of a hundred windows of an instance's history than on average."""
    rates = load_instance(path).history.rate_rps.sum(axis=1)
    return float(np.quantile(rates, 0.99) / rates.mean())
