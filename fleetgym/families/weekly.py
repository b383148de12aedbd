"""Sample demand with working days and weekends, as measured weeks have them.

A workload's log profile is a mixture of public ones. Two are those of a week of Azure: code moves tenfold within a
working day and falls to a third at weekends, chat twofold and to two thirds. Three are those of tenants of ServeGen,
who keep no weekend. Deviations and jumps are drawn for each instance, between what the fit leaves of Azure's week and
what ServeGen's tenants show.
"""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources
from typing import Any

import numpy as np

from fleetgym.families.bursts import CHAT, CODE, LEAST_CODE, drawn
from fleetgym.families.demand import DAY, WINDOW_S, DemandPlan
from fleetgym.families.draft import fits
from fleetgym.files.documents import read_json
from fleetgym.model.dynamics.weekly import WeeklyOU, later
from fleetgym.model.processes import PROFILE

WEEK = 7 * DAY  # windows
_CODE_TOKENS = ("azure_code", "mooncake_synth")
#: Most of a workload's log profile that is a tenant's: assumed.
MOST_TENANT = 0.3
_COMMON = 0.6  # assumed, as in `fleetgym.families.demand`


@functools.cache
def azure_week() -> dict[str, Any]:
    """Return the shipped week: requests per 10 minutes from Monday on, and the fit, by kind."""
    with resources.as_file(resources.files("fleetgym") / "data" / "azure_week.json") as path:
        return read_json(path)


@functools.cache
def _tenant_profiles() -> np.ndarray:
    """Return the profiles of ServeGen's tenants, (len(PROFILE), tenants): weekends are as other days."""
    return np.array([profile + profile for profile in fits()["profiles"].values()]).T


def is_code(tokens: str) -> bool:
    """Return True if a class of requests comes from programs, not from people who type."""
    return tokens in _CODE_TOKENS


def weekly(
    rng: np.random.Generator,
    tokens: tuple[str, ...],
    days: int,
    *,
    log_sd: tuple[float, float] = (0.05, 0.15),
    lengths_time_min: float = 360.0,
    bursty: bool = False,
) -> DemandPlan:
    """Return demand of an episode of `days` days, with a history of whole weeks.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    tokens : tuple of str
        Token class of each workload: code's are code-like, others chat-like.
    days : int
        7: an episode begins on a Monday, after two weeks. Otherwise it is any day, after one week.
    log_sd : tuple of float
        Range of the standard deviation of mean token lengths, of logarithms.
    lengths_time_min : float
        Time in which mean token lengths forget, in minutes.
    bursty : bool
        Code comes in groups as large as in the hour that they were measured in; otherwise between that and what the
        week's minutes show.

    Returns
    -------
    DemandPlan
    """
    count, week = len(tokens), azure_week()

    def draw(low: float, high: float, digits: int = 3) -> np.ndarray:
        return np.round(rng.uniform(low, high, count), digits)

    from_code = np.array([is_code(name) for name in tokens])
    code_share = np.where(from_code, draw(0.7, 1.0, 2), draw(0.0, 0.35, 2))
    hours_later = np.round(rng.uniform(-3.0, 3.0, count) * 6.0) / 6.0
    profiles = [np.array(week[kind]["profile"])[:, None] for kind in ("code", "conversation")]
    azure = later(code_share * profiles[0] + (1.0 - code_share) * profiles[1], hours_later)
    tenant_share = draw(0.0, MOST_TENANT, 2)
    tenants = _tenant_profiles()[:, rng.integers(len(_tenant_profiles().T), size=count)]
    tenants = later(tenants, draw(0.0, 24.0, 1))  # their trace does not say when it is midnight
    profile = (1.0 - tenant_share) * azure + tenant_share * tenants
    calmest = 1.0 if bursty else LEAST_CODE / CODE.size
    bursts = tuple(drawn(rng, CODE, calmest) if code else drawn(rng, CHAT) for code in from_code)
    wander = np.array([law.noise_sd(WINDOW_S) for law in bursts])
    values = {
        "ou_sd": draw(0.09, 0.25),
        "ou_time_min": draw(60.0, 170.0, 0),
        "noise_sd": np.round(np.hypot(draw(0.02, 0.05), wander), 3),
        "jumps_per_day": draw(0.0, 3.0, 1),
        "jump_log_mean": draw(0.45, 0.60),
        "jump_hold_min": draw(20.0, 90.0, 0),
    }
    first_day = 0 if days == 7 else int(rng.integers(7))
    process = WeeklyOU(profile=profile, first_day=first_day, ou_common=_COMMON, **values)
    profile[[0, len(PROFILE) // 2]] -= process.daily_log_mean(WINDOW_S)  # levels: the mean of a week is 1
    process = dataclasses.replace(process, profile=np.round(profile, 3))
    dispersion = np.array(
        [round(law.dispersion(1.0, WINDOW_S), 1) if law.kind == "clustered" else 1.0 for law in bursts]
    )
    lengths = draw(*log_sd)
    parameters = dict(zip(PROFILE, process.profile.tolist(), strict=True))
    parameters |= {name: value.tolist() for name, value in values.items()}
    weeks = 2 if days == 7 else 1
    level = np.exp(process.log_level(rng, weeks * WEEK, WINDOW_S))
    return DemandPlan(
        process={
            "kind": "weekly-ou",
            "parameters": {
                **parameters,
                "first_day": first_day,
                "ou_common": _COMMON,
                "dispersion": dispersion.tolist(),
            },
        },
        tokens={"kind": "drift", "parameters": {"log_sd": lengths.tolist(), "time_min": lengths_time_min}},
        level=level,
        dispersion=dispersion,
        windows=days * DAY,
        bursts=bursts,
        provenance="modelled: profiles of working days and weekends fitted to the week of May 2024 in "
        "Azure/AzurePublicDataset @ b469a113 (CC-BY-4.0, digitised from its plots), code's and chat's mixed and moved "
        f"by up to three hours (assumed), and up to {MOST_TENANT:g} (assumed) of the day of one of three tenants of "
        "alibaba/ServeGen @ f891d11 (Apache-2.0), moved by any time; deviations of the instance's own, between what "
        "the fit leaves of that week and those tenants, jumps at most as there; bursts fitted to an hour of Azure's "
        "requests, size and time up to a third more or less (assumed)"
        + ("" if bursty else ", code's calmer, down to what the minutes of that week show")
        + f"; common share {_COMMON:g} assumed",
    )
