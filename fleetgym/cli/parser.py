"""The command line: words in, one public function called, its answer printed; see ``fleetgym --help``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import fleetgym

_DESCRIPTION = """\
Allocate GPUs to LLM serving, and compare every way of doing it on the same problem.

  fleetgym list                              what there is: suites, instances, agents
  fleetgym show fleet-v0/toy/two-pools       what a problem looks like
  fleetgym run fleet-v0/toy/two-pools        watch an agent play it
  fleetgym compare hold gh agh --suite fleet-v0/toy
  fleetgym check-agent my_agent.py:MyAgent   then compare it by the same name
"""

_AGENT_HELP = (
    "a name from `fleetgym list agents`, module:Class or file.py:Class; with arguments: 'gh(margin=0.2)'"
)


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, examples: str = ""
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=f"{_AGENT_HELP} (default: all of ours)")
    parser.add_argument(
        "--suite",
        nargs="+",
        default=["fleet-v0/dev"],
        help="suites, instance ids or files (default: fleet-v0/dev)",
    )
    parser.add_argument(
        "--scenarios", type=_numbers, metavar="0,1,..", help="numbers of stored scenarios (default: all)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes to play in; the results are the same (default: 1)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="from which the agents' own randomness comes (default: 0)"
    )
    parser.add_argument(
        "--isolate",
        choices=("auto", "always", "never"),
        default="auto",
        help="run agents in a process of their own (auto: all but the reference agents)",
    )
    parser.add_argument(
        "--act-limit",
        type=float,
        default=60.0,
        metavar="S",
        help="wall seconds an isolated agent may take for one answer (default: 60)",
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--out", metavar="FILE", help="results file to write (default: a new one in results/)")
    files.add_argument(
        "--resume", metavar="FILE", help="go on with this results file; it is started if there is none"
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="fleetgym", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"fleetgym {fleetgym.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_looking(verbs)
    _add_playing(verbs)
    _add_keeping(verbs)
    return parser


def _add_looking(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = _verb(
        verbs,
        "list",
        "list suites, instances or agents",
        "  fleetgym list\n  fleetgym list agents\n  fleetgym list fleet-v0/dev",
    )
    p.add_argument(
        "what", nargs="?", default="suites", help="suites, agents, or a suite whose instances to list"
    )
    p = _verb(
        verbs,
        "show",
        "print an instance so that it can be read",
        "  fleetgym show fleet-v0/toy/two-pools\n  fleetgym show my/instance.json",
    )
    p.add_argument("instance", help="id or file")
    p = _verb(
        verbs,
        "plan",
        "plan the nominal window of an instance",
        "  fleetgym plan fleet-v0/toy/two-pools --agent agh",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="agh", help="an agent that plans (default: agh)")


def _add_playing(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = _verb(
        verbs,
        "run",
        "watch one agent play one episode",
        "  fleetgym run fleet-v0/toy/two-pools --agent gh\n"
        "  fleetgym run fleet-v0/toy/drop --agent mine.py:Agent --render none",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="gh", help=_AGENT_HELP + " (default: gh)")
    p.add_argument("--scenario", type=int, default=0, help="number of a stored scenario (default: 0)")
    p.add_argument("--seed", type=int, default=0, help="of the agent (default: 0)")
    p.add_argument(
        "--render", choices=("ansi", "none"), default="ansi", help="print every window (default: ansi)"
    )
    p = _verb(
        verbs,
        "evaluate",
        "play agents on a suite and write the results",
        "  fleetgym evaluate gh mine.py:Agent --suite fleet-v0/toy --workers 2\n"
        "  fleetgym evaluate gh --resume results/night.jsonl",
    )
    _add_run_options(p)
    p = _verb(
        verbs,
        "compare",
        "play agents on a suite and print a table of scores",
        "  fleetgym compare hold gh agh --suite fleet-v0/toy\n"
        "  fleetgym compare agh-rolling 'agh-rolling(margin=0.3)' mine.py:Agent --workers 2",
    )
    _add_run_options(p)
    _add_relative(p)
    p = _verb(
        verbs,
        "check-agent",
        "try an agent on toys and say what is wrong with it",
        "  fleetgym check-agent mine.py:Agent\n  fleetgym check-agent mypackage.agents:make",
    )
    p.add_argument("agent", help=_AGENT_HELP)
    p.add_argument("--suite", default="fleet-v0/toy", help="instances to try it on (default: fleet-v0/toy)")


def _add_relative(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--relative-to",
        choices=("best-known", "best-in-run"),
        default="best-known",
        help="best-in-run for tasks without a best-known cost; such scores hold within one run only",
    )


def _add_keeping(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = _verb(verbs, "score", "score a results file", "  fleetgym score results/night.jsonl")
    p.add_argument("results", help="a results file")
    _add_relative(p)
    _verb(verbs, "doctor", "examine the installation", "  fleetgym doctor")
    _verb(verbs, "warmup", "compile the kernels now, not at the first step", "  fleetgym warmup")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Parameters
    ----------
    argv : sequence of str, optional
        By default the words of the command line.

    Returns
    -------
    int
        0: done. 1: the work failed, as with a failed episode or a rejected file. 2: the call was wrong.
    """
    arguments = make_parser().parse_args(argv)
    if os.getcwd() not in sys.path:
        sys.path.append(
            os.getcwd()
        )  # so that module:Class finds what lies here; last, so that it shadows nothing
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(
            "fleetgym: stopped; finished episodes are in the results file, --resume goes on", file=sys.stderr
        )
        return 130


def _dispatch(arguments: argparse.Namespace) -> int:
    from fleetgym.cli import verbs
    from fleetgym.errors import DataError, FleetgymError

    try:
        return verbs.VERBS[arguments.verb](arguments)
    except DataError as error:
        print(f"fleetgym: {error}", file=sys.stderr)
        return 1
    except (FleetgymError, FileNotFoundError, IsADirectoryError, PermissionError) as error:
        print(f"fleetgym: {_one_line(error)}", file=sys.stderr)
        return 2


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {Path(error.filename)}"
    return str(error)
