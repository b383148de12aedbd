"""Every reference agent on one small instance of every family of fleet-v1: episodes in, ``docs/methods.md`` out.

    python -m tools.compare_methods                          # play what is missing, write the page
    python -m tools.compare_methods --seconds 300            # stop after 300 CPU seconds; the next call goes on
    python -m tools.compare_methods --families tail --again  # play what is chosen anew, finished or not
    python -m tools.compare_methods --page                   # write the page from what was played

Each method plays through the adapter that its docstring states, on the same columns, first stored scenario. Finished
episodes are kept in ``results/methods.jsonl``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.agents.registry import agent_entries
from fleetgym.cli.words import of
from fleetgym.evaluation.jobs import Job, run_job
from fleetgym.files.documents import canonical_json, write_atomically
from fleetgym.files.markdown import table
from fleetgym.files.quantities import LIMIT_S
from fleetgym.model.library import entries, load_instance
from fleetgym.runtime.programs import program

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "methods.jsonl"
PAGE = ROOT / "docs" / "methods.md"
SUITE = "fleet-v1/dev"
SIZES = ("s", "4-4-5", "m")  # the smallest that a family has
#: Too slow for a table that is made in an hour, and why.
LEFT_OUT = {
    "milp-rolling": "a MILP in every window",
    "saa": "a two-stage MILP in every window",
}
FAMILY_ORDER = ("ou", "drop", "trace", "budget", "tail", "multi", "grw", "fastllm", "warp")


def smoke(folder: Path) -> int:
    """Play one agent on one instance, and write the page elsewhere."""
    files = ["--records", str(folder / "methods.jsonl"), "--out", str(folder / "methods.md")]
    return main(["--agents", "gh", "--families", "ou", *files])


def main(argv: list[str] | None = None) -> int:
    """Play what is missing within the CPU limit, and write the page."""
    parser = program(
        __doc__,
        writes="docs/methods.md and results/methods.jsonl.",
        takes="Half a CPU hour for all episodes; seconds for the page.",
        smoke=smoke,
    )
    parser.add_argument("--agents", nargs="+", help="by default every registered one but the slowest")
    parser.add_argument("--families", nargs="+", choices=FAMILY_ORDER, help="by default all")
    parser.add_argument(
        "--seconds", type=of(LIMIT_S), default=float("inf"), help="CPU seconds after which to stop"
    )
    parser.add_argument("--again", action="store_true", help="play what is chosen even if it is finished")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", action="store_true", help="write the page only")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page (default: docs/methods.md)")
    arguments = parser.parse_args(argv)
    records, instances = read_records(arguments.records), chosen_instances()
    if not arguments.page:
        wanted = [name for f, name in instances.items() if f in (arguments.families or FAMILY_ORDER)]
        jobs = [(agent, instance) for agent in arguments.agents or methods() for instance in wanted]
        jobs = [job for job in jobs if arguments.again or job not in records]
        play(jobs, records, arguments.records, arguments.seconds)
    write_atomically(arguments.out, page(records, instances).encode())
    print(f"{len(records)} episodes; {arguments.out} written", file=sys.stderr)
    return 0


def methods() -> list[str]:
    """Return the reference agents that are compared."""
    return [name for name, entry in agent_entries().items() if entry.is_reference and name not in LEFT_OUT]


def chosen_instances() -> dict[str, str]:
    """Return the first dev instance of each family's smallest size, by family."""
    found: dict[str, str] = {}
    for family in FAMILY_ORDER:
        mine = [e for e in entries().values() if e.id.startswith(f"{SUITE}/") and e.family == family]
        mine.sort(key=lambda e: SIZES.index(e.size) if e.size in SIZES else len(SIZES))
        if mine:
            found[family] = mine[0].id
    return found


def read_records(path: Path) -> dict[tuple[str, str], dict]:
    """Return finished episodes by agent and instance, the last of several; those of other instances are dropped."""
    if not path.is_file():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        known = entries().get(record["instance"])
        if known is not None and known.content_hash == record["instance_hash"]:
            found[record["agent"], record["instance"]] = record
    return found


def play(
    jobs: Sequence[tuple[str, str]], records: dict[tuple[str, str], dict], path: Path, seconds: float
) -> None:
    """Play agents on instances, the larger ones last, appending each finished episode to the file."""
    began = time.process_time()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        for agent, instance in sorted(jobs, key=lambda job: entries()[job[1]].size == "m"):
            if time.process_time() - began > seconds:
                return
            record = episode(agent, instance)
            records[agent, instance] = record
            stream.write(canonical_json(record) + "\n")
            stream.flush()
            print(f"{agent} on {instance}: {record['cost_usd']:.2f} USD", file=sys.stderr, flush=True)


def episode(agent: str, instance: str) -> dict:
    """Play the first stored scenario."""
    result = run_job(Job(agent, instance, 0))
    timing = result.timing
    return {
        "agent": agent,
        "instance": instance,
        "instance_hash": load_instance(instance).content_hash,
        "cost_usd": result.cost_usd,
        "act_cpu_s": None if timing is None else timing.acting_s,
        "windows": len(result.cost_per_window_usd),
        "failure": None if result.failure is None else result.failure.message,
    }


# -- the page


def page(records: dict[tuple[str, str], dict], instances: dict[str, str]) -> str:
    """Return the page as Markdown."""
    agents = list(dict.fromkeys(agent for agent, _ in records))
    above = {agent: percent_above(agent, records, instances) for agent in agents}
    agents.sort(key=lambda agent: (len(above[agent]) < len(instances), mean_log(above[agent])))
    costs = by_family(
        agents,
        instances,
        lambda a, f: shown(above[a].get(f)),
        "mean",
        lambda a: mean(above[a], len(instances)),
    )
    times = by_family(
        agents, instances, lambda a, f: milliseconds(records.get((a, instances[f]))), "", lambda a: ""
    )
    failed = [f"`{a}` on `{i}`: {r['failure']}" for (a, i), r in sorted(records.items()) if r["failure"]]
    names = ", ".join(f"`{name.rpartition('/')[2]}`" for name in instances.values())
    left = "; ".join(f"`{name}` ({why})" for name, why in LEFT_OUT.items())
    return f"""# All methods on all families

Every reference agent on the first scenario of one small instance of each family of `fleet-v1` ({names}), written by

    python -m tools.compare_methods

which goes on where it was stopped. **One scenario of one instance a family shows that every method plays every
family, and roughly where it stands; it ranks nobody.** Agents play with their default arguments, each through
the adapter that its docstring states ([the agents](agents.md)). Left out: {left}.

## Cost, percent above the cheapest in this table

The mean is 100·(exp(mean of ln ratios) − 1), where every family was played. A blank has not been played
yet; {len(records)} of {len(methods()) * len(instances)} episodes are done.

{costs}

## CPU milliseconds per decision

Measured while other work ran on the same machine.

{times}

{"Failures: " + "; ".join(failed) if failed else "No agent failed."}
"""


def percent_above(
    agent: str, records: dict[tuple[str, str], dict], instances: dict[str, str]
) -> dict[str, float]:
    """Return by family how much dearer an agent is than the cheapest one."""
    found = {}
    for family, instance in instances.items():
        costs = {a: r["cost_usd"] for (a, i), r in records.items() if i == instance and not r["failure"]}
        if agent in costs:
            found[family] = 100.0 * (costs[agent] / min(costs.values()) - 1.0)
    return found


def mean_log(above: dict[str, float]) -> float:
    """Return the mean of ln ratios; agents with nothing to show come last."""
    return float(np.mean(np.log1p(np.array(list(above.values())) / 100.0))) if above else float("inf")


def mean(above: dict[str, float], families: int) -> str:
    """Return the mean as it is shown: of agents that played every family."""
    return shown(100.0 * (np.exp(mean_log(above)) - 1.0)) if len(above) == families else ""


def shown(value: float | None) -> str:
    """Return a percentage for the table."""
    return "" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(record: dict | None) -> str:
    """Return CPU milliseconds per decision."""
    if record is None or record["act_cpu_s"] is None:
        return ""
    value = 1000.0 * record["act_cpu_s"] / record["windows"]
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def by_family(agents, instances, cell, last_name, last) -> str:
    """Return a Markdown table with a row per agent and a column per family."""
    head = ["agent", *(f"`{family}`" for family in instances), *([last_name] if last_name else [])]
    rows = [
        [f"`{agent}`", *(cell(agent, family) for family in instances), *([last(agent)] if last_name else [])]
        for agent in agents
    ]
    return table(head, rows).rstrip("\n")


if __name__ == "__main__":
    sys.exit(main())
