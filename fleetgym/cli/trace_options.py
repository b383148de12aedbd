"""Declare the options of `import-trace`, check them against each other, and turn them into arguments."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from fleetgym.cli.options import AddVerb, add_number, add_own_files, add_seed
from fleetgym.cli.words import by_name, names, numbers, of, share
from fleetgym.files import quantities as q
from fleetgym.files.errors import FleetgymError


def add(verb: AddVerb) -> None:
    """Declare the subcommand; `verb(name, text, examples)` makes a parser."""
    p = verb(
        "import-trace",
        "make an instance from a trace of requests, a price list and SLOs",
        "  fleetgym import-trace AzureLLMInferenceTrace_conv.csv --slo ttft=2,delay=20,error=0.05\n"
        "  fleetgym import-trace requests.csv.gz --prices prices.csv --slo slos.csv --out day.json\n"
        "  fleetgym import-trace week.csv --models Llama-3.1-8B,Llama-3.1-70B --gpus H100,L40S --caps H100=16,L40S=64",
    )
    p.add_argument(
        "trace",
        nargs="+",
        help="CSV, JSON or Parquet, packed or not: a known export, or columns as in docs/planning.md; several files or "
        "a folder are one trace",
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
    add_own_files(p)
    p.add_argument(
        "--region", help="region of the prices (default: all of --prices; us-east-1 of the catalogue)"
    )
    p.add_argument(
        "--caps", metavar="N or GPU=N,..", help="most GPUs (default: twice what the p99 demand needs)"
    )
    p.add_argument(
        "--by",
        choices=("auto", "label", "length", "one"),
        default="auto",
        help="how requests are grouped into workloads (auto: the label column if there is one, else length)",
    )
    p.add_argument(
        "--buckets",
        type=of(q.BUCKETS),
        help="number of length buckets with equal numbers of requests (default: 3)",
    )
    p.add_argument(
        "--edges", type=numbers, metavar="512,2048", help="bounds of the length buckets, in tokens"
    )
    add_number(
        p,
        "--penalty",
        q.PENALTY,
        10.0,
        "an unserved request costs P times the rent that serves it",
        metavar="P",
    )
    add_number(p, "--scale", q.SCALE, 1.0, "multiply demand")
    p.add_argument(
        "--extend",
        choices=("model", "stretch"),
        default="model",
        help="how a trace shorter than a day becomes one (default: model)",
    )
    add_number(p, "--scenarios", q.DAYS, 2, "days to draw and store", metavar="N")
    add_seed(p, "random seed for sampled days")
    p.add_argument(
        "--columns", metavar="time=NAME,..", help="which columns hold time, input, output, label, model"
    )
    p.add_argument("--time-format", metavar="FORMAT", help="format of dates, such as %%d/%%m/%%Y %%H:%%M:%%S")
    p.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="unit of times that are numbers")
    p.add_argument("--from", dest="since", metavar="TIME", help="exclude requests that arrive before")
    p.add_argument("--to", dest="until", metavar="TIME", help="exclude requests that arrive from then on")
    p.add_argument("--last", metavar="7d", help="take the last part of the trace only")
    p.add_argument(
        "--context",
        type=of(q.CONTEXT),
        metavar="TOKENS",
        help="tokens of the longest request that is served (default: the largest context of a candidate)",
    )
    add_number(
        p,
        "--leave-out-at-most",
        q.SHARE,
        0.05,
        "limit on the share of tokens in requests longer than every candidate's context",
        metavar="SHARE",
    )
    p.add_argument(
        "--prefix-hit",
        type=of(q.SHARE),
        metavar="SHARE",
        help="share of every prompt that a prefix cache holds (default: that of the trace, else 0)",
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
        "--skip-bad-rows",
        type=share,
        metavar="1%",
        help="exclude rows that cannot be read, up to this share of all (default: the first is an error)",
    )
    p.add_argument(
        "--unpack-limit",
        dest="unpack_gib",
        type=of(q.MEMORY_GB),
        metavar="GIB",
        help="most that the file may unpack to",
    )


#: Options of `plan` that describe a demand without a trace; the first three, and models, have to be given.
_TARGET = ("rate", "input", "output", "profile", "models", "gpus", "prices", "slo")


def add_target(p: argparse.ArgumentParser) -> None:
    """Declare the options of a demand that is stated instead of a trace."""
    p.add_argument("--rate", type=by_name, metavar="chat=20,..", help="mean requests/s by workload")
    p.add_argument("--input", type=by_name, metavar="1200", help="with --rate: input tokens, or chat=1200,..")
    p.add_argument("--output", type=by_name, metavar="250", help="with --rate: output tokens, or chat=250,..")
    p.add_argument(
        "--profile", choices=("flat", "office"), help="with --rate: course of a day (default: flat)"
    )
    p.add_argument("--models", type=names, metavar="A,B", help="with --rate: candidate models")
    p.add_argument("--gpus", type=names, metavar="A,B", help="with --rate: GPU types")
    p.add_argument("--prices", metavar="FILE", help="with --rate: price list, as of import-trace")
    p.add_argument("--slo", metavar="ttft=1s,..", help="as of import-trace; of an instance, what changes")


def target(arguments: argparse.Namespace) -> Any:
    """Return the instance of a stated demand; None where `plan` is given an instance.

    Raises
    ------
    FleetgymError
        For what is missing, or has no effect.
    """
    options = {name: getattr(arguments, name) for name in _TARGET if getattr(arguments, name) is not None}
    if arguments.rate is None or arguments.instance is not None:
        if arguments.instance is None:
            raise FleetgymError(
                "expected an instance, or a demand: --rate chat=20 --input 1200 --output 250 ..."
            )
        if others := [name for name in options if name != "slo"]:
            name = others[0]
            raise FleetgymError(
                f"--{name} is of a demand without a trace (--rate); an instance has its own: import the trace again"
            )
        return None
    from fleetgym.capacity.traces.target import target_instance

    if "*" in arguments.rate:
        raise FleetgymError("--rate: expected a name for every workload, as in chat=20")
    missing = [f"--{name}" for name in ("input", "output", "models") if name not in options]
    if "prices" not in options and "gpus" not in options:
        missing.append("--prices (or --gpus, at the catalogue's prices)")
    if missing:
        raise FleetgymError(f"a demand without a trace needs {', '.join(missing)}")
    rates, lengths = options.pop("rate"), (options.pop("input"), options.pop("output"))
    return target_instance(rates, *lengths, scenarios=0, **options)


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as arguments of `fleetgym.capacity.traces.import_trace`.

    Raises
    ------
    FleetgymError
        If one of them would have no effect beside another.
    """
    from fleetgym.capacity.traces.header import parse_columns
    from fleetgym.capacity.traces.importing import import_trace
    from fleetgym.capacity.traces.labels import parse_binds
    from fleetgym.capacity.traces.own_hardware import read_own
    from fleetgym.capacity.traces.prices import parse_caps
    from fleetgym.capacity.traces.reader import ReadOptions

    if arguments.prefix_hit is not None and arguments.prefix_cache_tokens is not None:
        raise FleetgymError(
            "--prefix-hit is given instead of the hits in a cache of --prefix-cache; give one of them"
        )
    known = {*inspect.signature(import_trace).parameters, *ReadOptions.__annotations__}
    options = {name: value for name, value in vars(arguments).items() if name in known and value is not None}
    for name, reader in {"columns": parse_columns, "binds": parse_binds, "caps": parse_caps}.items():
        if name in options:
            options[name] = reader(options[name])
    files = [getattr(arguments, name) or [] for name in ("model_file", "gpu_file", "profile")]
    if any(files):
        options["own"] = read_own(*files)
    return {**options, "by": _sorting_rule(arguments)}


def _sorting_rule(arguments: argparse.Namespace) -> str:
    """Return what makes a workload: whoever gives bounds or a number of length buckets wants lengths."""
    given = [name for name in ("buckets", "edges") if getattr(arguments, name) is not None]
    if len(given) > 1:
        raise FleetgymError("--buckets makes the bounds that --edges gives; give one of them")
    if given and arguments.by not in ("auto", "length"):
        raise FleetgymError(f"--{given[0]} is of lengths, and --by is {arguments.by}; give one of them")
    return "length" if given else str(arguments.by)
