"""Parse the command line, and call one public function; see ``fleetgym --help``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Sequence

from fleetgym.cli import best_known_search, calibrate, pages, process, run_options, submissions
from fleetgym.cli.words import growth, margin, names, numbers, of, share
from fleetgym.files import quantities as q
from fleetgym.runtime.programs import Parser
from fleetgym.runtime.version import __version__

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
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(own_parser=parser, verb=name)  # also where an alias was typed
    return parser


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = Parser(
        prog="fleetgym", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"fleetgym {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_looking(verbs)
    _add_planning(verbs)
    _add_playing(verbs)
    _add_keeping(verbs)
    for group in (submissions, pages):
        group.add(functools.partial(_verb, verbs))
    return parser


def _add_looking(verbs: argparse._SubParsersAction[Parser]) -> None:
    p = _verb(
        verbs,
        "list",
        "list suites, instances, agents, or the arguments of an agent",
        "  fleetgym list\n  fleetgym list agents\n  fleetgym list agents agh-rolling\n  fleetgym list fleet-v0/dev",
    )
    p.add_argument(
        "what", nargs="?", default="suites", help="suites, agents, or a suite whose instances to list"
    )
    p.add_argument("agent", nargs="?", help="after `agents`: the one whose arguments to list")
    p = _verb(
        verbs,
        "show",
        "print an instance so that it can be read",
        "  fleetgym show fleet-v0/toy/two-pools\n  fleetgym show my/instance.json",
    )
    p.add_argument("instance", help="id or file")
    p = _verb(
        verbs,
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
    p.add_argument("--seed", type=of(q.SEED), default=0, help="random seed for sampled days (default: 0)")
    p = _verb(
        verbs,
        "generate",
        "write instances of a family, and their days",
        "  fleetgym generate ou --size s --seed 7\n"
        "  fleetgym generate grw --size m --seed 10000000 --count 20 --out train",
    )
    p.add_argument("family", help="such as fastllm, grw, ou, drop, budget, tail, multi, trace or warp")
    p.add_argument("--size", required=True, help="of the family, such as s, m or 6-6-10")
    p.add_argument("--seed", type=of(q.SEED), default=0, help="of the first instance (default: 0)")
    p.add_argument(
        "--count", type=of(q.INSTANCES), default=1, help="instances, of seeds one by one (default: 1)"
    )
    p.add_argument(
        "--scenarios", type=of(q.STORED), default=2, metavar="N", help="days of each, at most (default: 2)"
    )
    p.add_argument("--out", metavar="FOLDER", default=".", help="where they go (default: here)")
    p.add_argument("--force", action="store_true", help="replace files that exist")


def _add_planning(verbs: argparse._SubParsersAction[Parser]) -> None:
    p = _verb(
        verbs,
        "import-trace",
        "make an instance from a trace of requests, a price list and SLOs",
        "  fleetgym import-trace AzureLLMInferenceTrace_conv.csv --slo ttft=2,delay=20,error=0.05\n"
        "  fleetgym import-trace requests.csv.gz --prices prices.csv --slo slos.csv --out day.json\n"
        "  fleetgym import-trace week.csv --models Llama-3.1-8B,Llama-3.1-70B --gpus H100,L40S --caps H100=16,L40S=64",
    )
    p.add_argument(
        "trace", help="CSV, JSON or Parquet, packed or not: a known export, or columns as in docs/planning.md"
    )
    p.add_argument("--out", metavar="FILE", help="instance file to write (default: named after the trace)")
    p.add_argument("--force", action="store_true", help="replace files that exist")
    p.add_argument(
        "--prices",
        metavar="FILE",
        help="CSV or JSON: gpu,usd_per_gpu_h[,max_gpus,market,region,..]; or a list of SkyPilot, AWS or Azure",
    )
    p.add_argument(
        "--slo",
        metavar="ttft.p95=1s,tpot=50ms,..",
        help="ttft, tpot, e2e, delay, error for all workloads, or a CSV or JSON file by workload",
    )
    p.add_argument("--models", type=names, metavar="A,B", help="candidate models of the catalogue")
    p.add_argument(
        "--bind",
        dest="binds",
        action="append",
        metavar="LABEL=MODEL,..",
        help="which model serves a label (* stands for any characters; =any for any candidate); may be repeated",
    )
    p.add_argument("--gpus", type=names, metavar="A,B", help="GPU types to use")
    _add_own_files(p)
    p.add_argument("--region", help="of the prices (default: all of --prices; us-east-1 of the catalogue)")
    p.add_argument(
        "--caps", metavar="N or GPU=N,..", help="most GPUs (default: twice what the p99 demand needs)"
    )
    p.add_argument(
        "--by",
        choices=("auto", "label", "length", "one"),
        default="auto",
        help="what makes a workload (auto: the label column if there is one, else length)",
    )
    p.add_argument("--buckets", type=of(q.BUCKETS), help="of length, equally many requests each (default: 3)")
    p.add_argument(
        "--edges", type=numbers, metavar="512,2048", help="bounds of the length buckets, in tokens"
    )
    p.add_argument(
        "--penalty",
        type=of(q.PENALTY),
        default=10.0,
        metavar="P",
        help="an unserved request costs P times the rent that serves it (default: 10)",
    )
    p.add_argument("--scale", type=of(q.SCALE), default=1.0, help="multiply demand (default: 1)")
    p.add_argument(
        "--extend",
        choices=("model", "stretch"),
        default="model",
        help="how a trace shorter than a day becomes one (default: model)",
    )
    p.add_argument(
        "--scenarios", type=of(q.DAYS), default=2, metavar="N", help="days to draw and store (default: 2)"
    )
    p.add_argument("--seed", type=of(q.SEED), default=0, help="of what is drawn (default: 0)")
    p.add_argument(
        "--columns", metavar="time=NAME,..", help="which columns hold time, input, output, label, model"
    )
    p.add_argument("--time-format", metavar="FORMAT", help="of dates, such as %%d/%%m/%%Y %%H:%%M:%%S")
    p.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="of times that are numbers")
    p.add_argument("--from", dest="since", metavar="TIME", help="leave out what arrives before")
    p.add_argument("--to", dest="until", metavar="TIME", help="leave out what arrives from then on")
    p.add_argument("--last", metavar="7d", help="take the last part of the trace only")
    p.add_argument(
        "--context",
        type=of(q.CONTEXT),
        metavar="TOKENS",
        help="of the longest request that is served (default: what any candidate holds)",
    )
    p.add_argument(
        "--leave-out-at-most",
        type=of(q.SHARE),
        default=0.05,
        metavar="SHARE",
        help="of all tokens, by requests that no candidate's context holds (default: 0.05)",
    )
    p.add_argument(
        "--prefix-hit",
        type=of(q.SHARE),
        metavar="SHARE",
        help="of every prompt that a prefix cache holds (default: what the trace says, else 0)",
    )
    p.add_argument(
        "--prefix-cache",
        dest="prefix_cache_tokens",
        type=of(q.PREFIX_CACHE),
        metavar="TOKENS",
        help="size of the cache in which a trace with hash_ids has its hits (default: 5120000)",
    )
    p.add_argument(
        "--unsorted", dest="any_order", action="store_true", help="accept rows that are not in order of time"
    )
    p.add_argument(
        "--unpack-limit",
        dest="unpack_gib",
        type=of(q.MEMORY_GB),
        metavar="GIB",
        help="most that the file may unpack to",
    )
    p = _verb(
        verbs,
        "plan",
        "plan for an instance, and say what the plan risks",
        "  fleetgym plan fleet-v0/toy/two-pools --agent agh\n"
        "  fleetgym plan day.json --agent milp --miss-at-most 1% --plot plan.png\n"
        "  fleetgym plan day.json --running now.json --growth 3x\n"
        "  fleetgym plan day.json --schedule --plot day.png\n"
        "  fleetgym plan month.json --schedule --week --plot week.png\n"
        "  fleetgym plan day.json --agent agh-rolling --days 20",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="agh", help="an agent that plans (default: agh)")
    p.add_argument(
        "--margin",
        type=margin,
        metavar="M",
        help="plan for 1 + M times nominal demand (default: best, what costs least on other generated days)",
    )
    p.add_argument(
        "--miss-at-most", type=share, metavar="1%", help="of the requests, on average over generated days"
    )
    p.add_argument("--spot-share-at-most", type=share, metavar="50%", help="of the GPUs held")
    p.add_argument(
        "--on-demand-base",
        type=of(q.GPU_CAP),
        metavar="N",
        help="least GPUs that cannot be lost: not on spot",
    )
    p.add_argument(
        "--running", metavar="FILE", help="JSON of what runs now, as of plan --json: what to add and release"
    )
    p.add_argument(
        "--growth", type=growth, metavar="3x", help="multiply demand by this factor; 1x,2x,4x: a table"
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
    p.add_argument(
        "--days", type=of(q.DAYS), default=100, help="generated days to play; 0 for none (default: 100)"
    )
    p.add_argument("--seed", type=of(q.SEED), default=0, help="of the generated days (default: 0)")
    p.add_argument(
        "--plot", metavar="FILE.png", help="draw the fleet and its generated days (needs matplotlib)"
    )


def _add_own_files(p: Parser) -> None:
    p.add_argument(
        "--model-file",
        action="append",
        metavar="[NAME=]FILE",
        help="config.json of a model of your own, as published with its weights; may be repeated",
    )
    p.add_argument(
        "--gpu-file",
        action="append",
        metavar="FILE",
        help="GPUs of your own: CSV or JSON of name, memory_gb, bandwidth_gb_per_s, fp16_tflops, usd_per_gpu_h, ..",
    )
    p.add_argument(
        "--profile",
        action="append",
        metavar="FILE",
        help="CSV of measured runs: model, gpu, precision, lengths, concurrency, requests_per_s or latencies",
    )


def _add_playing(verbs: argparse._SubParsersAction[Parser]) -> None:
    p = _verb(
        verbs,
        "run",
        "watch one agent play one episode",
        "  fleetgym run fleet-v0/toy/two-pools --agent gh\n"
        "  fleetgym run fleet-v0/toy/drop --agent mine.py:Agent --render none",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="gh", help=_AGENT_HELP + " (default: gh)")
    p.add_argument(
        "--scenario", type=of(q.NUMBER), default=0, help="number of a stored scenario (default: 0)"
    )
    p.add_argument("--seed", type=of(q.SEED), default=0, help="of the agent (default: 0)")
    p.add_argument(
        "--render", choices=("ansi", "none"), default="ansi", help="print every window (default: ansi)"
    )
    p = _verb(
        verbs,
        "simulate",
        "simulate one window of an agent's episode, request by request, against the closed form",
        "  fleetgym simulate fleet-v0/dev/ou-s-001 --agent agh --window 96\n"
        "  fleetgym simulate fleet-v0/dev/drop-m-001 --agent agh-rolling --law pareto --plot misses.png",
    )
    p.add_argument("instance", help="id or file")
    p.add_argument("--agent", default="agh", help=_AGENT_HELP + " (default: agh)")
    p.add_argument(
        "--scenario", type=of(q.NUMBER), default=0, help="number of a stored scenario (default: 0)"
    )
    p.add_argument(
        "--window", type=of(q.NUMBER), help="number of the window (default: the one with most arrivals)"
    )
    p.add_argument(
        "--law",
        choices=("gamma", "lognormal", "hyperexponential", "pareto"),
        default="gamma",
        help="of the service times, whose mean and cv2 the instance gives (default: gamma)",
    )
    p.add_argument(
        "--replications", type=of(q.REPLICATIONS), default=32, metavar="N", help="at most (default: 32)"
    )
    p.add_argument("--seed", type=of(q.SEED), default=0, help="of agent and simulation (default: 0)")
    p.add_argument("--plot", metavar="FILE.png", help="draw a picture (needs matplotlib)")
    p = _verb(
        verbs,
        "study",
        "answer a fleet planner's question: where to split pools, when to add GPUs, ...",
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
    _add_own_files(p)
    p.add_argument("--plot", metavar="FILE.png", help="draw a picture (needs matplotlib)")
    p = _verb(
        verbs,
        "evaluate",
        "play agents on a suite and write the results",
        "  fleetgym evaluate gh mine.py:Agent --suite fleet-v0/toy --workers 2\n"
        "  fleetgym evaluate gh --resume results/night.jsonl",
    )
    run_options.add(p, _AGENT_HELP)
    p = _verb(
        verbs,
        "compare",
        "play agents on a suite and print a table of scores",
        "  fleetgym compare hold gh agh --suite fleet-v0/toy\n"
        "  fleetgym compare agh-rolling 'agh-rolling(margin=0.3)' mine.py:Agent --workers 2",
    )
    run_options.add(p, _AGENT_HELP)
    _add_relative(p, None)
    p = _verb(
        verbs,
        "check-agent",
        "try an agent on toys and say what is wrong with it",
        "  fleetgym check-agent mine.py:Agent\n  fleetgym check-agent mypackage.agents:make",
    )
    p.add_argument("agent", help=_AGENT_HELP)
    p.add_argument(
        "--suite",
        default="fleet-v0/toy",
        help="suite, instance id or file to try it on (default: fleet-v0/toy)",
    )


def _add_relative(parser: argparse.ArgumentParser, default: str | None = "best-known") -> None:
    parser.add_argument(
        "--relative-to",
        choices=("best-known", "best-in-run"),
        default=default,
        help="best-in-run for tasks without a best-known cost, such as files; such scores hold within one run only",
    )


def _add_keeping(verbs: argparse._SubParsersAction[Parser]) -> None:
    p = _verb(verbs, "score", "score a results file", "  fleetgym score results/night.jsonl")
    p.add_argument("results", help="a results file")
    _add_relative(p)
    _add_best_known(verbs)
    calibrate.add(
        _verb(
            verbs,
            "calibrate",
            "measure how fast this machine is, for the budgets of official runs",
            "  fleetgym calibrate\n  fleetgym calibrate --show",
        )
    )
    _verb(verbs, "doctor", "examine the installation", "  fleetgym doctor")
    _verb(verbs, "warmup", "compile the kernels now, not at the first step", "  fleetgym warmup")


def _add_best_known(verbs: argparse._SubParsersAction[Parser]) -> None:
    p = _verb(
        verbs,
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
    offer.add_argument("--date", help="of the proposal, YYYY-MM-DD (default: today)")
    search = best_known_search.add(actions)
    for part in (show, offer, search):  # after the action too; before it, the word is the verb's
        part.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for machines"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

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
    arguments, left = make_parser().parse_known_args(argv)
    if left:
        own = arguments.own_parser
        is_agent = "[--agent AGENT]" in own.format_usage() and not left[0].startswith("-")
        own.error(
            f"unrecognized arguments: {' '.join(left)}" + ("; name an agent by --agent" if is_agent else "")
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
