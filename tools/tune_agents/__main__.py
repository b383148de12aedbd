"""Tune reference agents on newly made instances, log every trial, and write the table of settings.

    python -m tools.tune_agents --agent agh-rolling --agent gh     # about eight CPU-minutes for a quick rolling agent
    python -m tools.tune_agents                                    # write leaderboard/tuning/README.md from the logs

A run that was stopped goes on from its log. The settings in the table are names that `fleetgym evaluate` takes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleetgym.agents.registry import agent_entries
from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.runtime.programs import program
from tools.tune_agents.grid import RETIRED, settings
from tools.tune_agents.race import Log, Outcome, Round, Unfinished, race
from tools.tune_agents.summary import page

LOGS = Path(__file__).resolve().parents[2] / "leaderboard" / "tuning"


def smoke(folder: Path) -> int:
    """Play one setting on one new instance, and write the page elsewhere from the logs that are kept."""
    costs = Log(folder / "hold.jsonl", folder / "tasks").costs("hold", Round(("grw",), range(1), 1))
    print(f"hold: {costs}")
    logs = shutil.copytree(LOGS, folder / "logs")
    return main(["--logs", str(logs)])


def main(argv: Sequence[str] | None = None) -> int:
    """Tune what is named, and write the page about all agents whose logs are complete."""
    parser = program(
        __doc__,
        writes="A log for each agent and README.md in leaderboard/tuning.",
        takes="Minutes to hours for each agent; seconds for the page.",
        smoke=smoke,
    )
    parser.add_argument(
        "--agent", action="append", default=[], choices=sorted(agent_entries()), metavar="NAME"
    )
    parser.add_argument("--logs", type=Path, default=LOGS, help="folder of the logs and the page")
    parser.add_argument("--tasks", type=Path, help="keep the instances here; by default they are made anew")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        tasks = (arguments.tasks or Path(scratch)).resolve()
        for agent in arguments.agent:
            outcome = finish(agent, Log(arguments.logs / f"{agent}.jsonl", tasks))
            print(f"{agent}: {outcome.best}", file=sys.stderr, flush=True)
    write_atomically(arguments.logs / "README.md", page(outcomes(arguments.logs)).encode())
    return 0


def finish(agent: str, log: Log) -> Outcome:
    """Return the outcome of an agent's race, playing what its log lacks."""
    return race([name for name in settings(agent) if RETIRED not in name or log.has(name)], log)


def outcomes(logs: Path) -> dict[str, Outcome]:
    """Return the finished races of a folder of logs, by agent."""
    found = {}
    for path in sorted(logs.glob("*.jsonl")):
        try:
            found[path.stem] = finish(path.stem, Log(path))
        except Unfinished as error:
            print(f"{error}: left out", file=sys.stderr)
    return found


if __name__ == "__main__":
    run_program(main)
