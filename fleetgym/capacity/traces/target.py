"""Make an instance from target rates instead of a trace: requests per second, and their lengths."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.traces.importing import import_trace
from fleetgym.files.errors import FleetgymError
from fleetgym.model.facts import Calendar
from fleetgym.model.instance import Instance

#: Demand by hour relative to its mean; ``office`` is twice its mean at noon, and nothing at midnight.
PROFILES: Mapping[str, Sequence[float]] = {
    "flat": (1.0,) * 24,
    "office": tuple(1.0 - np.cos((np.arange(24) + 0.5) * np.pi / 12.0)),
}
_ROWS = 100_000  # of the trace that stands for a day
_DAY_S = 86_400.0


def target_instance(
    rates_rps: Mapping[str, float],
    input_tokens: Mapping[str, float],
    output_tokens: Mapping[str, float],
    *,
    profile: str = "flat",
    **importing: Any,
) -> Instance:
    """Return the instance of a day with given rates: Poisson arrivals, every request as long as stated.

    Parameters
    ----------
    rates_rps : mapping of str to float
        Mean requests/s by workload.
    input_tokens, output_tokens : mapping of str to float
        By workload; ``"*"`` stands for all that are not named.
    profile : str
        The course of a day, of `PROFILES`.
    **importing
        Options of `fleetgym.capacity.traces.importing.import_trace`, such as `models` and `prices`.

    Returns
    -------
    Instance

    Raises
    ------
    FleetgymError
        If lengths of a workload are missing, or it is not known.

    Examples
    --------
    >>> made = target_instance({"chat": 20.0}, {"*": 1200}, {"*": 250}, models=["Llama-3.1-8B"], scenarios=0)
    >>> [round(w.rate_rps) for w in made.workloads], made.workloads[0].input_tokens
    ([20], 1200.0)
    """
    if profile not in PROFILES:
        raise FleetgymError(f"unknown profile {profile!r}; expected one of {', '.join(PROFILES)}")
    lengths = []
    for option, tokens in (("--input", input_tokens), ("--output", output_tokens)):
        unknown = [name for name in tokens if name != "*" and name not in rates_rps]
        if unknown:
            raise FleetgymError(f"{option}: no rate is given of {unknown[0]!r}")
        missing = [name for name in rates_rps if name not in tokens and "*" not in tokens]
        if missing:
            raise FleetgymError(f"tokens of {missing[0]!r} are missing: give {option}")
        lengths.append([round(tokens.get(name, tokens.get("*", 0.0))) for name in rates_rps])
    names, rate = list(rates_rps), np.array(list(rates_rps.values()))
    rng = np.random.default_rng(0)
    ends = np.round(np.cumsum(rate) / rate.sum() * _ROWS).astype(int)
    workload = rng.permutation(np.repeat(np.arange(len(names)), np.diff(ends, prepend=0)))
    weight = np.array(PROFILES[profile])
    hour = rng.choice(24, _ROWS, p=weight / weight.sum())
    second = np.sort((hour + rng.uniform(size=_ROWS)) * 3600.0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "target.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("time,input_tokens,output_tokens,workload\n")
            second[0], second[-1] = 0.0, _DAY_S - 0.001  # so that the day is whole
            times = [f"{s:.3f}" for s in second]
            rows = [f"{lengths[0][w]},{lengths[1][w]},{names[w]}" for w in workload.tolist()]
            file.writelines(f"{t},{row}\n" for t, row in zip(times, rows, strict=True))
        made = import_trace(
            path, name="target", scale=float(rate.sum()) * _DAY_S / _ROWS, by="label", **importing
        ).instance
    told = [f"{n} {r:g}/s of {i:,} + {o:,} tokens" for n, r, i, o in zip(names, rate, *lengths, strict=True)]
    alike = f"every request as long, Poisson arrivals, profile {profile}"
    assert made.stated is not None
    calendar = Calendar(history="stated", days=(), fitted=(), assumed=(*told, alike))
    return made.replace(
        facts=dataclasses.replace(made.stated, calendar=calendar),
        provenance={**made.provenance, "trace": f"target rates, no trace: {', '.join(told)}; {alike}"},
    )
