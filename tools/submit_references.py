"""Create the submissions of reference agents from their results files.

    python -m tools.submit_references results/v1-sample/*.jsonl --suite fleet-v1/sample --date 2026-11-01
    fleetgym verify leaderboard/submissions/2026-11-01-sample-* --workers 2 --out leaderboard/verified

A results file holds one agent, and may hold more tasks than the suite has. An agent with arguments is the tuned one of
`leaderboard/tuning`. The time class is the least that every episode of the suite kept, by the timings beside the file.
A submission that exists is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetgym.agents.registry import AgentSpec, make_agent, parse_agent, summary
from fleetgym.agents.rolling import Static
from fleetgym.cli.process import run_program
from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.evaluation.results import Results, read_results, timings_path
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.submission import README, AgentCard
from fleetgym.leaderboard.submit import longest_s, submit
from fleetgym.model.library import list_tasks
from fleetgym.runtime.programs import program

SUBMISSIONS = Path(__file__).resolve().parents[1] / "leaderboard" / "submissions"

#: Agents that bring more than a choice among the given columns: what was learned.
OPEN = frozenset({"ppo"})
#: Agents that hold one plan without being a planner's wrapper.
HOLDING = frozenset({"hold"})


def smoke(folder: Path) -> int:
    """Submit an agent's episodes of the toys."""
    evaluate(["hold"], "fleet-v0/toy", isolate="never", out=folder / "hold.jsonl")
    call = [str(folder / "hold.jsonl"), "--suite", "fleet-v0/toy", "--date", "2026-11-01"]
    return main([*call, "--out", str(folder / "submissions")])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="A folder for each agent in leaderboard/submissions.",
        takes="Seconds.",
        smoke=smoke,
    )
    parser.add_argument("results", nargs="+", type=Path, help="timings beside them are passed over")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--date", required=True, help="YYYY-MM-DD")
    parser.add_argument("--out", type=Path, default=SUBMISSIONS, help="folder of the submissions")
    arguments = parser.parse_args(argv)
    try:
        for path in arguments.results:
            if not path.name.endswith(timings_path("").name):
                print(submitted(path, arguments.suite, arguments.date, arguments.out))
    except FleetgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def submitted(path: Path, suite: str, date: str, out: Path) -> Path:
    """Make the submission of a results file's agent, if it is not there; return its folder.

    Raises
    ------
    FleetgymError
        If there are several agents in the file, or one that did not come with fleetgym, or not all tasks.
    """
    run = read_results(path)
    if len(run.agents) > 1:
        raise FleetgymError(f"{path} holds several agents: {', '.join(run.agents)}")
    agent = parse_agent(run.agents[0])
    if not agent.is_reference:
        raise FleetgymError(f"{run.agents[0]} did not come with fleetgym; use `fleetgym submit`")
    name = run.agents[0].partition("(")[0]
    split = suite.rpartition("/")[2]
    folder = out / "-".join([date, split, name, *(["tuned"] if agent.arguments else [])])
    if not folder.exists():
        made = submit(
            run,
            folder,
            date=date,
            division=division_of(agent.text),
            time_class=class_of(run, suite),
            suite=suite,
            card=card_of(name, agent),
        )
        (folder / README).write_text(readme(made.agent, suite), encoding="utf-8")
    return folder


def card_of(name: str, agent: AgentSpec) -> dict[str, str]:
    """Return what the row says of the agent."""
    told = summary(agent.target)
    if agent.arguments:
        told += f" Tuned: {', '.join(f'{key}={value!r}' for key, value in agent.arguments.items())}."
    variant = "tuned" if agent.arguments else "as published"
    return {"name": name, "authors": "the fleetgym authors", "description": told, "variant": variant}


def division_of(agent: str) -> str:
    """Return the division that an agent competes in.

    Examples
    --------
    >>> [division_of(agent) for agent in ("gh(margin=0.2)", "gh-rolling", "ppo", "hold")]
    ['one-shot', 'closed', 'open', 'one-shot']
    """
    if agent in OPEN:
        return "open"
    return "one-shot" if agent in HOLDING or isinstance(make_agent(agent), Static) else "closed"


def class_of(run: Results, suite: str) -> str:
    """Return the least time class that every episode of a suite kept, by CPU seconds measured in a run.

    Raises
    ------
    FleetgymError
        If a timing is missing, or no class is that long.
    """
    tasks = set(list_tasks(suite))
    longest = longest_s(e for e in run.episodes if e.task in tasks)
    if longest is None:
        raise FleetgymError(f"{run.agents[0]} was not timed on every task of {suite}")
    for name, seconds in TIME_CLASSES.items():
        if longest <= seconds:
            return name
    raise FleetgymError(f"{run.agents[0]} took {longest:.0f} CPU seconds in an episode, more than any class")


def readme(card: AgentCard, suite: str) -> str:
    """Return the README of a submission."""
    tuned = (
        "Tuned: the best of its settings in a race on newly made training instances, every trial logged in "
        "`leaderboard/tuning`."
    )
    return f"""# {card.title}

{card.description}

{tuned if card.variant == "tuned" else "Not tuned: the defaults of the reference agent."}

Comes with fleetgym: `fleetgym evaluate "{card.entry}" --suite {suite}`.
"""


if __name__ == "__main__":
    run_program(main)
