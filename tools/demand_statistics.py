"""Compare generated demand with what was measured, in one table.

    python -m tools.demand_statistics                  # print the table
    python -m tools.demand_statistics --page docs/fleet-v2.md

Rows of one kind of traffic, code or chat, are medians over workloads of that kind. *Measured*: Azure's week for what
moves, Azure's hour for bursts. *Week's minutes*: the index of dispersion if the band of the week's plot, which is drawn
from minute to minute, is four standard deviations wide (assumed).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families import serving
from fleetgym.families.bursts import BurstLaw
from fleetgym.families.demand import DAY, DemandPlan, counted
from fleetgym.families.family import stream
from fleetgym.families.finish import MOST_BURSTY
from fleetgym.families.generate import SEEDS
from fleetgym.families.plans import FAMILIES, MULTI_SIZES, SIZES, request_class
from fleetgym.families.weekly import azure_week, is_code
from fleetgym.files.documents import write_atomically
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import program
from tools.markdown import rewrite, table

#: Lags of the semivariance of log demand, in windows, and scales of the index of dispersion, in seconds.
LAGS = {"10 min": 2, "1 h": 12, "6 h": 72, "24 h": DAY}
SCALES_S = (2, 10, 60, 300)
HEAD = ("demand", "traffic", "p95/p5 in a day", "weekend/mean", *(f"γ {name}" for name in LAGS)) + tuple(
    f"I {scale} s" for scale in SCALES_S
)
#: Arrivals per second of the hour that bursts were measured in: where dispersion grows with the rate, it counts.
HOUR_RPS = {"code": 2.57, "chat": 5.53}
OLD = ("ou", "tail", "trace")
NEW = ("week", "ou-v2", "tail-v2")  # the other families draw demand as `ou-v2`
_NONE = "–"


def smoke(folder: Path) -> int:
    """Make the table of few seconds and one seed, into a page of its own."""
    page = folder / "page.md"
    page.write_text("<!-- written by a tool: begin -->\n<!-- written by a tool: end -->\n", encoding="utf-8")
    return main(["--seeds", "1", "--bins", "4000", "--page", str(page)])


def main(argv: list[str] | None = None) -> int:
    """Print the table, or write it into a page."""
    parser = program(
        __doc__, writes="The page of --page, between its marks.", takes="Half a CPU minute.", smoke=smoke
    )
    parser.add_argument("--seeds", type=of(COUNT), default=4, help="instances of each family")
    parser.add_argument("--bins", type=of(COUNT), default=200_000, help="seconds of drawn arrivals")
    parser.add_argument("--page", type=Path, help="write it there")
    arguments = parser.parse_args(argv)
    rows = measured() + [
        row for family in (*OLD, *NEW) for row in generated(family, arguments.seeds, arguments.bins)
    ]
    text = table(HEAD, rows, 2)
    if arguments.page is None:
        print(text, end="")
    else:
        write_atomically(arguments.page, rewrite(arguments.page, text).encode())
        print(f"{arguments.page} written", file=sys.stderr)
    return 0


def measured() -> list[list[str]]:
    """Return the rows of Azure's week with the bursts of Azure's hour, and what the week's minutes say of bursts."""
    week, rows = azure_week(), []
    for name, kind, short in (("code", "code", "azure_code"), ("conversation", "chat", "azure_conv")):
        rate = np.repeat(np.array(week[name]["requests"], dtype=float), 2)[:, None]
        shape, hour = movement(rate, first_day=0), week["bursts"][short]
        rows.append(
            ["**measured**", kind, *map(number, shape.values()), *(number(hour[str(s)]) for s in SCALES_S)]
        )
        minute = 60.0 * float(rate.mean()) / week["window_s"] * (week[name]["band"] / 4.0) ** 2
        rows.append(["week's minutes", kind, *[_NONE] * 8, number(minute), _NONE])
    return rows


def generated(family: str, seeds: int, bins: int) -> list[list[str]]:
    """Return a row for each kind of traffic of a family.

    Parameters
    ----------
    family : str
        A serving family.
    seeds : int
        Instances, of the train split.
    bins : int
        Seconds of arrivals that are drawn by each law of bursts.
    """
    size = "m" if family == "trace" else "s"
    classes = (MULTI_SIZES[size] if family == "multi" else SIZES[family, size]).classes
    found: dict[str, list[list[float]]] = {}
    for seed in SEEDS["train"][:seeds]:
        rng = stream(family, size, seed, 0)
        plan = serving.demand_plan(family, classes, seed, rng)
        first_day = int(plan.process["parameters"].get("first_day", 0))
        rate = counted(rng, plan.level, np.full(len(classes), 5.53), plan.dispersion)
        for i, name in enumerate(classes):
            kind = "code" if is_code(request_class(name).tokens) else "chat"
            kind = "tenants" if family == "trace" else kind
            shape = movement(rate[:, i : i + 1], first_day)
            found.setdefault(kind, []).append(
                [*shape.values(), *dispersions(family, plan, i, kind, bins, rng)]
            )
    return [
        [f"`{family}`", kind, *(number(v) for v in np.nanmedian(np.array(values), axis=0))]
        for kind, values in sorted(found.items())
    ]


def movement(rate: np.ndarray, first_day: int) -> dict[str, float]:
    """Return how one series of whole days moves, (windows, 1): spread within days, weekends, semivariances."""
    days = rate[:, 0].reshape(-1, DAY)
    floor = max(1e-9, 0.02 * float(days.mean()))
    spread = np.quantile(days, 0.95, axis=1) / np.maximum(np.quantile(days, 0.05, axis=1), floor)
    weekday = (first_day + np.arange(len(days))) % 7
    weekend = days[weekday >= 5].mean() / days.mean()
    return {
        "spread": float(np.median(spread[weekday < 5])),
        "weekend": float(weekend),
        **{name: semivariance(np.maximum(rate, floor), lag) for name, lag in LAGS.items()},
    }


def semivariance(rate: np.ndarray, lag: int) -> float:
    """Return half the mean square of how the logarithm of a series (windows, 1) changes over some windows."""
    log = np.log(rate[:, 0])
    return 0.5 * float(np.mean((log[lag:] - log[:-lag]) ** 2))


def dispersions(
    family: str, plan: DemandPlan, i: int, kind: str, bins: int, rng: np.random.Generator
) -> list[float]:
    """Return the index of dispersion of arrivals by scale, at the measured hour's rate.

    By the law of bursts, drawn. Families without laws are Poisson within a window, or as dispersed as its counts.
    """
    if not plan.bursts:
        of_windows = max(1.0, float(plan.dispersion[i]))
        within = min(of_windows, MOST_BURSTY) if FAMILIES[family].bursty else 1.0
        return [within, within, within, of_windows]
    law: BurstLaw = plan.bursts[i]
    counts = law.counts(rng, HOUR_RPS[kind], bins, 1.0)
    return [dispersion(counts, scale) for scale in SCALES_S]


def dispersion(counts: np.ndarray, bins: int) -> float:
    """Return variance over mean of sums of so many bins."""
    sums = counts[: len(counts) // bins * bins].reshape(-1, bins).sum(axis=1)
    return float(sums.var(ddof=1) / sums.mean())


def number(value: float) -> str:
    """Return two or three digits.

    Examples
    --------
    >>> number(0.0123), number(9.37), number(151.6)
    ('0.012', '9.4', '152')
    """
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


if __name__ == "__main__":
    run_program(main)
