"""Sample demand with working days and weekends, as measured weeks have them.

The profiles are those of a public week of Azure: code moves tenfold within a working day and falls to a third at
weekends, chat twofold and to two thirds. A workload's log profile is a mixture of both. Deviations and jumps are drawn
between what the fit leaves of that week and what ServeGen's tenants show.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import numpy as np

from fleetgym.families.bursts import CHAT, CODE, LEAST_CODE, drawn
from fleetgym.families.demand import DAY, WINDOW_S, DemandPlan
from fleetgym.files.documents import read_json
from fleetgym.model.dynamics.weekly import WeeklyOU, later
from fleetgym.model.processes import PROFILE

WEEK = 7 * DAY  # windows
_CODE_TOKENS = ("azure_code", "mooncake_synth")
_COMMON = 0.6  # assumed, as in `fleetgym.families.demand`


@functools.cache
def azure_week() -> dict[str, Any]:
    """Return the shipped week: requests per 10 minutes from Monday on, and the fit, by kind."""
    with resources.as_file(resources.files("fleetgym") / "data" / "azure_week.json") as path:
        return read_json(path)


def is_code(tokens: str) -> bool:
    """Return True if a class of requests comes from programs, not from people who type."""
    return tokens in _CODE_TOKENS


def weekly(
    rng: np.random.Generator,
    tokens: tuple[str, ...],
    days: int,
    *,
    log_sd: tuple[float, float] = (0.05, 0.15),
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
    bursty : bool
        Code comes in groups as large as in the hour that they were measured in; otherwise between that and what the
        week's minutes show.

    Returns
    -------
    DemandPlan
        With the real week, moved and mixed, as the scored one where an episode is a week.
    """
    count, week = len(tokens), azure_week()

    def draw(low: float, high: float, digits: int = 3) -> np.ndarray:
        return np.round(rng.uniform(low, high, count), digits)

    from_code = np.array([is_code(name) for name in tokens])
    code_share = np.where(from_code, draw(0.7, 1.0, 2), draw(0.0, 0.35, 2))
    hours_later = np.round(rng.uniform(-3.0, 3.0, count) * 6.0) / 6.0
    profiles = [np.array(week[kind]["profile"])[:, None] for kind in ("code", "conversation")]
    profile = np.round(later(code_share * profiles[0] + (1.0 - code_share) * profiles[1], hours_later), 3)
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
    dispersion = np.array(
        [round(law.dispersion(1.0, WINDOW_S), 1) if law.kind == "clustered" else 1.0 for law in bursts]
    )
    lengths = draw(*log_sd)
    parameters = dict(zip(PROFILE, profile.tolist(), strict=True))
    parameters |= {name: value.tolist() for name, value in values.items()}
    weeks = 2 if days == 7 else 1
    level = np.exp(process.log_level(rng, weeks * WEEK, WINDOW_S))
    scored: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] = ()
    if days == 7:
        scored = (
            (_real_week(rng, code_share, hours_later, wander), np.ones((1, count)), np.ones((1, count))),
        )
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
        tokens={"kind": "drift", "parameters": {"log_sd": lengths.tolist(), "time_min": 360.0}},
        level=level,
        dispersion=dispersion,
        windows=days * DAY,
        bursts=bursts,
        provenance="modelled: profiles of working days and weekends fitted to the week of May 2024 in "
        "Azure/AzurePublicDataset @ b469a113 (CC-BY-4.0, digitised from its plots), code's and chat's mixed and moved "
        "by up to three hours (assumed); deviations between what the fit leaves of that week and ServeGen's tenants "
        "(alibaba/ServeGen @ f891d11, Apache-2.0), jumps at most as there; bursts fitted to an hour of Azure's "
        "requests, size and time up to a third more or less (assumed)"
        + ("" if bursty else ", code's calmer, down to what the minutes of that week show")
        + f"; common share {_COMMON:g} assumed"
        + (
            "; the scored week: that of Azure, mixed and moved alike, split into 5 minutes by drawn counts"
            if scored
            else ""
        ),
        scored=scored,
    )


def _real_week(
    rng: np.random.Generator, code_share: np.ndarray, hours_later: np.ndarray, wander: np.ndarray
) -> np.ndarray:
    """Return Azure's week relative to its mean, mixed and moved for each workload: (WEEK, workloads).

    Of 10 minutes only the sum is known. Both halves get its level and noise of their own, so that the first half does
    not tell the second.
    """
    week = azure_week()
    logs = {kind: np.log(np.array(week[kind]["requests"], dtype=float)) for kind in ("code", "conversation")}
    columns = []
    for share, hours in zip(code_share, hours_later, strict=True):
        log = share * logs["code"] + (1.0 - share) * logs["conversation"]
        columns.append(np.roll(np.repeat(log, 2), round(12.0 * hours)))
    level = np.exp(np.column_stack(columns) + wander * rng.standard_normal((WEEK, len(wander))))
    return level / level.mean(axis=0)
