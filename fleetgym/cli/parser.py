"""Parse the command line, and call one public function; see ``fleetgym --help``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import sys
from collections.abc import Sequence

from fleetgym.cli import (
    best_known_search,
    calibrate,
    options,
    pages,
    process,
    run_options,
    submissions,
    trace_options,
)
from fleetgym.cli.words import growth, margin, names, of, prices, share, shares
from fleetgym.files import quantities as q
from fleetgym.runtime.programs import Parser, nearest
from fleetgym.runtime.version import __version__

_DESCRIPTION = """\
Benchmark policies that allocate rented GPUs to LLM serving, and plan capacity for your own traffic.

  fleetgym list                              suites, instances, agents
  fleetgym show fleet-v0/toy/two-pools       an instance as text
  fleetgym run fleet-v0/toy/two-pools        every window of an episode
  fleetgym compare hold gh agh --suite fleet-v0/toy
  fleetgym check-agent my_agent.py:MyAgent   validate your agent; compare takes the same name
"""


_ONE_RUN = ", such as files; such scores hold within one run only"

#: What may stand before a verb.
_OPTIONS = ("--help", "--version")

#: What users of other programs type first.
_HINTS = {
    "help": "; --help lists them, and comes after a subcommand, too",
    "play": "; did you mean 'run'?",
    "benchmark": "; did you mean 'compare'?",
    "train": "; policies are trained in Python, as in docs/ppo.md, and then scored by 'compare'",
}

#: Verbs that take an agent of the user's own. What others read may be anybody's.
_TAKING_AGENTS = ("list", "plan", "run", "simulate", "evaluate", "compare", "check-agent", "submit")


def _verb(
    verbs: argparse._SubParsersAction[Parser],
    name: str,
    text: str,
    examples: str = "",
    aliases: Sequence[str] = (),
) -> Parser:
    parser = verbs.add_parser(
        name,
        aliases=aliases,
        help=text,
        description=text[0].upper() + text[1:].removesuffix(", ...") + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_json(parser)
    parser.set_defaults(own_parser=parser, verb=name)  # also where an alias was typed
    return parser


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = Parser(
        prog="fleetgym", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"fleetgym {__version__}")
    parser.hints = _HINTS
    verbs = parser.add_subparsers(dest="verb", metavar="SUBCOMMAND", required=True)
    verb = functools.partial(_verb, verbs)
    for add in (_add_looking, _add_planning, _add_playing, _add_keeping, submissions.add, pages.add):
        add(verb)
    return parser


def _add_looking(verb: options.AddVerb) -> None:
    p = verb(
        "list",
        "list suites, instances, agents, or the arguments of an agent",
        "  fleetgym list\n  fleetgym list agents\n  fleetgym list agents agh-rolling\n  fleetgym list fleet-v0/dev",
    )
    p.add_argument(
        "what", nargs="?", default="suites", help="suites, agents, or a suite whose instances to list"
    )
    p.add_argument("agent", nargs="?", help="after `agents`: the one whose arguments to list")
    p = verb(
        "show",
        "print an instance as text",
        "  fleetgym show fleet-v0/toy/two-pools\n  fleetgym show my/instance.json",
    )
    p.add_argument("instance", help="id or file")
    p = verb(
        "check",
        "check an instance file that was edited, and the days beside it",
        "  fleetgym check day.json\n  fleetgym check day.json --write",
    )
    p.add_argument("instance", help="file")
    p.add_argument(
        "--write",
        action="store_true",
        help="store the days for the instance as it is now; draw some if there are none",
    )
    options.add_seed(p, "random seed for sampled days")
    p = verb(
        "generate",
        "write instances of a family, and their days",
        "  fleetgym generate ou --size s --seed 7\n"
        "  fleetgym generate grw --size m --seed 10000000 --count 20 --out train",
    )
    p.add_argument("family", help="such as fastllm, grw, ou, drop, budget, tail, multi, trace or warp")
    p.add_argument("--size", required=True, help="size in the family, such as s, m or 6-6-10")
    options.add_seed(p, "seed of the first instance")
    options.add_number(p, "--count", q.INSTANCES, 1, "instances, of seeds one by one")
    options.add_number(p, "--scenarios", q.STORED, 2, "days of each, at most", metavar="N")
    p.add_argument("--out", metavar="FOLDER", default=".", help="where they go (default: here)")
    p.add_argument("--force", action="store_true", help="replace files that exist")


def _add_planning(verb: options.AddVerb) -> None:
    trace_options.add(verb)
    p = verb(
        "plan",
        "plan capacity for an instance, with cost and risk",
        "  fleetgym plan fleet-v0/toy/two-pools --agent agh\n"
        "  fleetgym plan day.json --agent milp --miss-at-most 1% --plot plan.png\n"
        "  fleetgym plan day.json --running now.json --growth 3x\n"
        "  fleetgym plan day.json --schedule --plot day.png\n"
        "  fleetgym plan month.json --schedule --week --plot week.png\n"
        "  fleetgym plan day.json --agent agh-rolling --days 20\n"
        "  fleetgym plan --rate chat=20 --input 1200 --output 250 --models Llama-3.1-8B --gpus H100,L40S",
    )
    p.add_argument("instance", nargs="?", help="id or file; or give --rate")
    trace_options.add_target(p)
    p.add_argument("--agent", default="agh", help="an agent that plans (default: agh)")
    p.add_argument(
        "--margin",
        type=margin,
        metavar="M",
        help="plan for 1 + M times nominal demand (default: best, what costs least on other generated days)",
    )
    p.add_argument(
        "--miss-at-most",
        type=shares,
        metavar="1%",
        help="limit on SLO violations, on average over generated days; 0.5%%,1%%,5%%: a table of costs",
    )
    p.add_argument("--spot-share-at-most", type=share, metavar="50%", help="limit on the share of spot GPUs")
    p.add_argument(
        "--on-demand-base",
        type=of(q.GPU_CAP),
        metavar="N",
        help="minimum number of GPUs outside spot pools",
    )
    p.add_argument(
        "--running", metavar="FILE", help="JSON of what runs now, as of plan --json: what to add and release"
    )
    p.add_argument(
        "--out",
        metavar="FILE",
        help="also write the plan: as JSON, for simulate --plan, or as CSV where the name ends in .csv",
    )
    p.add_argument(
        "--growth", type=growth, metavar="3x", help="multiply demand by this factor; 1x,2x,4x: a table"
    )
    p.add_argument(
        "--price",
        type=prices,
        metavar="H100=2.10",
        help="plan with other prices, in USD per GPU and hour: of a GPU type's on-demand pools, or of a pool",
    )
    p.add_argument(
        "--budget", type=of(q.BUDGET_USD), metavar="USD", help="most that the fleet may cost per hour"
    )
    p.add_argument(
        "--without",
        type=names,
        metavar="A,B",
        help="plan as if these pools, regions or GPU types were lost; each-region or each-pool: a table of what each "
        "loss costs, and the fleet that survives any one",
    )
    p.add_argument(
        "--why-not",
        type=names,
        metavar="H200,L40S",
        help="beside the plan, the cheapest plan with each of these GPU types or pools alone, and why the plan "
        "does not use them; each-gpu: of every type",
    )
    p.add_argument(
        "--beside",
        type=names,
        metavar="A.json,..",
        help="compare the plan with other fleets on the same days: files as of --running, such as an older --out",
    )
    p.add_argument(
        "--schedule",
        action="store_true",
        help="print the GPUs of each hour of the mean day, and how to rent them",
    )
    p.add_argument(
        "--week", action="store_true", help="with --schedule: of the last seven days of the history instead"
    )
    p.add_argument(
        "--details", action="store_true", help="also print routes, SLOs, cost by term and the bound"
    )
    options.add_number(p, "--days", q.DAYS, 100, "generated days to play; 0 for none")
    options.add_seed(p, "random seed of the generated days")
    options.add_plot(p, "draw the fleet and its generated days")


def _add_playing(verb: options.AddVerb) -> None:
    p = verb(
        "run",
        "watch one agent play one episode",
        "  fleetgym run fleet-v0/toy/two-pools --agent gh\n"
        "  fleetgym run fleet-v0/toy/drop --agent mine.py:Agent --render none",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="gh", help=options.AGENT_HELP + " (default: gh)")
    options.add_scenario(p)
    options.add_seed(p, "random seed of the agent")
    p.add_argument(
        "--render", choices=("ansi", "none"), default="ansi", help="print every window (default: ansi)"
    )
    p = verb(
        "simulate",
        "simulate one window of an agent's episode, request by request, and compare with the formula",
        "  fleetgym simulate fleet-v0/dev/ou-s-001 --agent agh --window 96\n"
        "  fleetgym simulate fleet-v0/dev/drop-m-001 --agent agh-rolling --law pareto --plot misses.png\n"
        "  fleetgym simulate day.json --plan plan.json\n"
        "  fleetgym simulate day.json --plan plan.json --engine dynamo",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", help=options.AGENT_HELP + " (default: agh)")
    p.add_argument("--plan", metavar="FILE", help="JSON of `plan --json`: hold its fleet, no agent plays")
    options.add_scenario(p)
    p.add_argument(
        "--window", type=of(q.NUMBER), help="number of the window (default: the one with most arrivals)"
    )
    p.add_argument(
        "--engine",
        choices=("slots", "dynamo"),
        default="slots",
        help="slots: one window in steady state, each slot a server; dynamo: the hour around it in NVIDIA's simulator "
        "of engines, token by token, extra `referee` (default: slots)",
    )
    p.add_argument(
        "--law",
        choices=("gamma", "lognormal", "hyperexponential", "pareto"),
        help="distribution of the service times, with the instance's mean and cv2 (default: gamma)",
    )
    p.add_argument(
        "--replications",
        type=of(q.REPLICATIONS),
        metavar="N",
        help="at most (default: 32; with dynamo 8, each of which takes a minute for 50 requests/s)",
    )
    options.add_seed(p, "random seed of agent and simulation")
    options.add_plot(p)
    p = verb(
        "study",
        "run a study: where to split pools, when to add GPUs, ...",
        "  fleetgym study\n  fleetgym study thresholds --plot pareto.png\n"
        "  fleetgym study layouts --instance day.json\n"
        "  fleetgym study \"steps(workload='lmsys', rates=[50, 100, 200], limits=[4096, 65536])\"",
    )
    p.add_argument(
        "study",
        nargs="?",
        metavar="NAME",
        help="a study; with settings: 'layouts(rate_rps=50)' (default: list studies and their settings)",
    )
    p.add_argument(
        "--instance",
        metavar="FILE",
        help="made by import-trace: its traffic, SLOs and GPUs take the place of the settings that are not given",
    )
    options.add_plot(p)
    p = verb(
        "evaluate",
        "run agents on a suite and write a results file",
        "  fleetgym evaluate gh mine.py:Agent --suite fleet-v0/toy --workers 2\n"
        "  fleetgym evaluate gh --resume results/night.jsonl",
    )
    run_options.add(p)
    p = verb(
        "compare",
        "play agents on a suite and print a table of scores",
        "  fleetgym compare hold gh agh --suite fleet-v0/toy\n"
        "  fleetgym compare agh-rolling 'agh-rolling(margin=0.3)' mine.py:Agent --workers 2",
    )
    run_options.add(p)
    options.add_relative(p, None, _ONE_RUN)
    p = verb(
        "check-agent",
        "validate an agent on small instances, in a separate process",
        "  fleetgym check-agent mine.py:Agent\n  fleetgym check-agent mypackage.agents:make",
    )
    p.add_argument("agent", help=options.AGENT_HELP)
    p.add_argument(
        "--suite",
        default="fleet-v0/toy",
        help="suite, instance id or file to try it on (default: fleet-v0/toy)",
    )
    p.add_argument("--official", action="store_true", help="also play a window in the box of official runs")


def _add_keeping(verb: options.AddVerb) -> None:
    p = verb("score", "score a results file", "  fleetgym score results/night.jsonl")
    p.add_argument("results", help="a results file")
    options.add_relative(p, more=_ONE_RUN)
    p = verb(
        "explain",
        "say why an agent costs more than another: families, hours, cost terms, the worst day",
        "  fleetgym explain mine.jsonl --against margin\n"
        "  fleetgym explain mine.jsonl --against margin.jsonl --plot worst.png",
    )
    p.add_argument("results", nargs="+", metavar="FILE", help="results files")
    p.add_argument(
        "--against", required=True, metavar="AGENT", help="the agent to compare with, or a results file of it"
    )
    p.add_argument("--agent", metavar="NAME", help="whose costs to explain (default: the only other one)")
    options.add_plot(p, "draw the worst day of both")
    _add_best_known(verb)
    calibrate.add(
        verb(
            "calibrate",
            "measure how fast this machine is, for the budgets of official runs",
            "  fleetgym calibrate\n  fleetgym calibrate --show",
        )
    )
    verb("doctor", "check the installation", "  fleetgym doctor")
    verb("warmup", "compile the kernels ahead of time", "  fleetgym warmup")


def _add_best_known(verb: options.AddVerb) -> None:
    p = verb(
        "best-known",
        "show best-known costs and their lower bounds, propose better ones, or search for them",
        "  fleetgym best-known show fleet-v0/dev\n"
        "  fleetgym best-known search fleet-v0/toy --out mine\n"
        "  fleetgym best-known propose results/night.jsonl --out proposal",
        aliases=("bks",),
    )
    actions = p.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="value, bound, gap, method and date of every task")
    show.add_argument(
        "suite", nargs="*", default=["fleet-v0"], help="suites or instances (default: fleet-v0)"
    )
    offer = actions.add_parser(
        "propose",
        help="replay a results or actions file through the reference implementation; exit code 0: something is "
        "cheaper, 1: nothing is",
    )
    offer.add_argument("file", help="results file (.jsonl) or actions file (.json, .json.gz)")
    offer.add_argument("--out", metavar="FOLDER", help="write actions files of what is cheaper")
    offer.add_argument("--date", help="date of the proposal, YYYY-MM-DD (default: today)")
    search = best_known_search.add(actions)
    for part in (show, offer, search):
        options.add_json(
            part, default=argparse.SUPPRESS
        )  # after the action too; before it, the word is the verb's


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Parameters
    ----------
    argv : sequence of str, optional
        By default the words of the command line; then this process is the command's own.

    Returns
    -------
    int
        0: done. 1: the work failed, as with a failed episode or a rejected file. 2: the call was wrong, or something
        cannot be read or written. 130, 143: stopped by Ctrl-C or ``SIGTERM``.
    """
    if argv is None:
        return process.run(lambda: main(sys.argv[1:]))
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell completes a word, by the package argcomplete
        import argcomplete

        argcomplete.autocomplete(parser)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    if argv[0].startswith("--") and not any(option.startswith(argv[0]) for option in _OPTIONS):
        parser.error(f"unrecognized arguments: {argv[0]}{nearest(argv[0], _OPTIONS)}")
    arguments, left = parser.parse_known_args(argv)
    if left:
        own = arguments.own_parser
        is_agent = "[--agent AGENT]" in own.format_usage() and not left[0].startswith("-")
        hint = "; name an agent by --agent" if is_agent else ""
        known = set(re.findall(r"--[a-z][\w-]+", own.format_help()))
        own.error(
            f"unrecognized arguments: {' '.join(left)}{hint or nearest(left[0].partition('=')[0], known)}"
        )
    for option in ("out", "plot", "files"):
        if str(getattr(arguments, option, None)) == "-":
            told = (
                "; --json prints what machines read"
                if "[--json]" in arguments.own_parser.format_usage()
                else ""
            )
            arguments.own_parser.error(
                f"--{option} -: expected a name; nothing is written to standard output{told}"
            )
    if arguments.verb in _TAKING_AGENTS and os.getcwd() not in sys.path:
        # So that module:Class finds what lies here; last, so that it shadows nothing.
        sys.path.append(os.getcwd())
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        return 0
    except KeyboardInterrupt as stop:
        file = getattr(arguments, "resume", None)
        if arguments.verb in ("evaluate", "compare"):
            file = file or arguments.out
        kept = (
            f"; --resume {file} goes on"
            if arguments.verb in ("evaluate", "compare", "best-known") and file
            else ""
        )
        return process.stopped(stop, kept)


def _dispatch(arguments: argparse.Namespace) -> int:
    from fleetgym.cli import verbs
    from fleetgym.files.errors import PlainStream

    with contextlib.redirect_stdout(PlainStream(sys.stdout)):  # names of files may be anything
        return process.told(lambda: verbs.VERBS[arguments.verb](arguments))
