"""Write a plan, a schedule or a table of plans as CSV, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import os
from typing import Any

from fleetgym.files.documents import write_atomically

#: What a table of plans is over.
_SWEPT = ("growth", "miss_at_most", "without", "why_not", "beside")


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is to hold CSV, by its name."""
    return os.fspath(path).lower().endswith(".csv")


def plan_rows(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a plan's table.

    Parameters
    ----------
    facts : dict
        What ``fleetgym plan --json`` prints.

    Returns
    -------
    list of dict
        A row per pool; per hour of a schedule, with the GPUs of each pool; or per plan of a table of plans.
    """
    if "hours" in facts:
        return [
            {
                "hour": hour["hour"],
                "rate_rps": hour["rate_rps"],
                **hour["gpus"],
                "usd_per_h": hour["rent_usd_per_h"],
            }
            for hour in facts["hours"]
        ]
    for over in _SWEPT:
        if over in facts:
            return [{over: row[over], **_totals(row)} for row in facts[over]]
    return [
        {
            "pool": name,
            "gpu_type": pool["gpu_type"],
            "market": pool["market"],
            "gpus": pool["held"],
            "usd_per_h": pool["usd_per_h"],
        }
        for name, pool in facts["gpus"].items()
    ]


def _totals(row: dict[str, Any]) -> dict[str, Any]:
    """Return the GPUs of a plan by pool, its rent, and what its days cost and miss on average."""
    risk = row["risk"]
    return {
        **{name: pool["held"] for name, pool in row["gpus"].items()},
        "usd_per_h": sum(pool["usd_per_h"] for pool in row["gpus"].values()),
        "cost_usd_per_day": risk["cost_usd"]["mean"],
        "missed_share": risk["miss_share"]["mean"],
    }


def write_plan_table(path: str | os.PathLike[str], facts: dict[str, Any]) -> None:
    """Write the rows of `plan_rows` to a new file, or in place of an old one."""
    rows, text = plan_rows(facts), io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
