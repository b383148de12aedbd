"""What is fuzzed: good files, the call that reads each of them, and the options of every verb."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gzip
import io
import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetgym.cli.parser import main, make_parser
from fleetgym.evaluation.run import evaluate
from fleetgym.leaderboard.registers import freeze
from fleetgym.leaderboard.season import seed_sha256
from fleetgym.leaderboard.submit import submit
from fleetgym.leaderboard.verify import verify
from fleetgym.model.sets import ENVIRONMENT_VARIABLE, instances_folder
from tools import kept_episodes
from tools.fuzz_inputs.mutations import TEXTS, packed

SUITE = "fleet-v0/toy"
SEED = "5e" * 32
_SUBMISSION = "2026-11-21-hold"
_ROWS = 60
#: Numbers and names that an option takes mean work, from nothing to hours: of these only the small ones are played.
_MOST_WORK = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A call that reads files, and those of them to change.

    Attributes
    ----------
    name : str
    files : mapping
        Contents by paths in the folder in which the call is made.
    changed : tuple of str
        Paths of `files`; for each mutant one of them is drawn. Of an empty one the call's words are changed.
    call : tuple of str
        Words of the command line; the first may be a program of `PROGRAMS`.
    weight : float
        How often it is drawn, relative to others; what is slow is drawn seldom.
    named : tuple of str
        Words of which a refusal may use any in place of the file's name.
    folders : bool
        Whether a mutant may also be something else than a file: a folder, a pipe, a device, a link to itself.
    variables : mapping
        Environment variables; ``"."`` is the folder.
    silent : bool
        Whether exit code 1 is an answer on standard output rather than a refusal.
    """

    name: str
    files: Mapping[str, bytes]
    changed: tuple[str, ...]
    call: tuple[str, ...]
    weight: float = 1.0
    named: tuple[str, ...] = ()
    folders: bool = True
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    silent: bool = False


#: Programs beside the command line, by the first word of a call.
PROGRAMS = {"fleetgym": main, "kept_episodes": kept_episodes.main}


def _under(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _at(prefix: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}/{name}": data for name, data in files.items()}


def targets(folder: Path) -> list[Target]:
    """Make good files in an empty folder, and return all targets.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    list of Target
        In a fixed order: a seed draws the same mutants wherever it runs.
    """
    with contextlib.redirect_stderr(io.StringIO()):
        made = [
            *_instances(),
            *_results(folder),
            *_sets(),
            *_traces(),
            *_boards(folder),
            *_settings(),
            *_plugins(),
        ]
    return [*made, *_options(made)]


def _instances() -> Iterator[Target]:
    toys = _under(instances_folder() / SUITE)
    for name in ("two-pools", "drop", "group", "budget-pool"):
        day, scenarios = toys[f"{name}.json"], toys[f"{name}.scenarios.json"]
        files = {"day.json": day, "day.scenarios.json": scenarios}
        yield Target(
            name=f"show-{name}", files=files, changed=("day.json",), call=("show", "day.json"), weight=5
        )
        yield Target(
            name=f"show-packed-{name}",
            files={"day.json.gz": packed("day.json.gz", day)},
            changed=("day.json.gz",),
            call=("show", "--json", "day.json.gz"),
        )
        call = ("run", "day.json", "--agent", "hold", "--render", "none")
        yield Target(
            name=f"scenarios-{name}", files=files, changed=("day.scenarios.json",), call=call, weight=3
        )
        call = ("plan", "day.json", "--agent", "gh", "--days", "0")
        yield Target(name=f"plan-{name}", files=files, changed=("day.json",), call=call, weight=0.5)


def _results(folder: Path) -> Iterator[Target]:
    evaluate(["hold", "gh"], SUITE, isolate="never", out=folder / "run.jsonl")
    evaluate(["hold"], SUITE, isolate="never", out=folder / "kept.jsonl")
    run, timings = ((folder / name).read_bytes() for name in ("run.jsonl", "run.timings.jsonl"))
    both = {"run.jsonl": run, "run.timings.jsonl": timings}
    for name, call, weight in (
        ("score", ("score", "run.jsonl"), 4),
        ("score-in-run", ("score", "run.jsonl", "--json", "--relative-to", "best-in-run"), 2),
        ("propose", ("best-known", "propose", "run.jsonl"), 2),
        (
            "resume",
            ("evaluate", "hold", "gh", "--suite", SUITE, "--isolate", "never", "--resume", "run.jsonl"),
            1,
        ),
        ("submit", ("submit", "run.jsonl", "--agent", "gh", "--out", "2026-11-21-gh"), 2),
        ("report", ("report", "run.jsonl", "--out", "page.html"), 1),
    ):
        silent = name == "propose"
        # A run of tasks or suites that there are not is a name that nothing answers to.
        named = ("best-known costs for", "unknown suite", "unknown instance", "#0: ")
        yield Target(
            name=name, files=both, changed=tuple(both), call=call, weight=weight, silent=silent, named=named
        )
    gz = {"run.jsonl.gz": packed("run.jsonl.gz", run)}
    call = ("score", "run.jsonl.gz")
    yield Target(name="score-packed", files=gz, changed=tuple(gz), call=call, weight=2, named=named)
    (folder / "kept").mkdir()
    kept_episodes.keep(folder / "kept.jsonl", folder / "kept")
    kept = _at("kept", _under(folder / "kept"))
    yield Target(
        name="kept",
        files=kept,
        changed=tuple(kept),
        call=("kept_episodes", "restore", "kept", "back"),
        weight=2,
    )


def _sets() -> Iterator[Target]:
    standard = instances_folder()
    toys = {
        **_at(SUITE, _under(standard / SUITE)),
        "fleet-v0/best_known.json": (standard / "fleet-v0/best_known.json").read_bytes(),
    }
    manifest = json.loads((standard / "manifest.json").read_text(encoding="utf-8"))
    manifest["entries"] = [entry for entry in manifest["entries"] if entry["id"].startswith(f"{SUITE}/")]
    files = {"manifest.json": json.dumps(manifest, indent=1).encode(), **toys}
    variables = {ENVIRONMENT_VARIABLE: "."}
    one = f"{SUITE}/two-pools"
    for name, changed, call in (
        ("manifest", "manifest.json", ("list", SUITE)),
        ("best-known", "fleet-v0/best_known.json", ("best-known", "show", SUITE)),
        ("stored", f"{one}.json", ("show", one)),
        ("stored-scenarios", f"{one}.scenarios.json", ("show", one)),
    ):
        yield Target(
            name=name, files=files, changed=(changed,), call=call, weight=2, variables=variables, named=(one,)
        )
    actions = next(standard.parent.glob("leaderboard/best_known/fleet-v0/toy/two-pools.0.json.gz"), None)
    if actions is not None:
        for name in ("a.json.gz", "a.json"):
            data = actions.read_bytes()
            data = data if name.endswith(".gz") else gzip.decompress(data)
            call = ("best-known", "propose", name)
            yield Target(
                name=f"actions-{name}", files={name: data}, changed=(name,), call=call, silent=True, weight=2
            )


def _trace(rng: random.Random) -> dict[str, bytes]:
    """Return one small trace in every format that is read."""
    rows, now = [], 0.0
    for _ in range(_ROWS):
        now += rng.expovariate(0.02)
        rows.append((round(now, 3), rng.randrange(20, 2000), rng.randrange(5, 400)))
    names = ("timestamp", "input_tokens", "output_tokens")
    text = "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]).encode() + b"\n"
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    dates = [f"2026-11-03 10:{int(t // 60) % 60:02d}:{t % 60:09.6f}0,{i},{o}" for t, i, o in rows]
    azure = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *dates]).encode() + b"\n"
    files = {
        "t.csv": text,
        "azure.csv": azure,
        "label.csv": "\n".join(
            ["time,input,output,class,model", *(f"{t},{i},{o},{'ab'[i % 2]},llama3.1:8b" for t, i, o in rows)]
        ).encode(),
        "t.jsonl": "".join(json.dumps(row) + "\n" for row in objects).encode(),
        "t.json": json.dumps(objects).encode(),
    }
    for ending in (".gz", ".bz2", ".xz", ".zip", ".tar", ".tar.gz", ".zst"):
        data = packed(f"t.csv{ending}", text)
        if data != text:
            files[f"t.csv{ending}"] = data
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return files
    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(objects), stream)
    return {**files, "t.parquet": stream.getvalue()}


_PRICES = b"gpu,usd_per_gpu_h,max_gpus,market,region\nH100,2.95,16,on-demand,eu\nL40S,1.55,16,spot,eu\n"
_SLO_CSV = b"workload,ttft,delay,error,unserved_usd\n*,1,15,0.05,0.01\n"
_SLO_JSON = b'{"*": {"ttft": 1, "delay": 15, "error": 0.05}}'


def _traces() -> Iterator[Target]:
    files = _trace(random.Random(1))
    more = ("--models", "Llama-3.1-8B", "--by", "one", "--scenarios", "1", "--out", "made.json", "--unsorted")
    for name, data in files.items():
        call = ("import-trace", name, "--prices", "p.csv", "--slo", "s.csv", *more)
        # The call ends before the work: there is a file to be written already.
        yield Target(
            name=f"trace-{name}",
            files={name: data, "p.csv": _PRICES, "s.csv": _SLO_CSV},
            changed=(name,),
            call=call,
            weight=0.6,
        )
    beside = {"t.csv": files["t.csv"], "p.csv": _PRICES, "s.csv": _SLO_CSV, "s.json": _SLO_JSON}
    for slo, changed in (("s.csv", "p.csv"), ("s.csv", "s.csv"), ("s.json", "s.json")):
        call = ("import-trace", "t.csv", "--prices", "p.csv", "--slo", slo, *more)
        named = ("the SLO ", "GPU", "--models")  # good numbers that no fleet can meet
        yield Target(name=f"import-{changed}", files=beside, changed=(changed,), call=call, named=named)


def _boards(folder: Path) -> Iterator[Target]:
    board = folder / "board"
    place = board / "submissions" / _SUBMISSION
    submit(folder / "kept.jsonl", place, date="2026-11-21", division="closed", time_class="reflex")
    verify(place, out=board / "verified")
    freeze(board, "fleet-v0", "2026-11-21")
    season = (
        f'[[season]]\nname = "t"\nsuite = "{SUITE}"\nscenarios = 1\nopened = "2026-11-21"\n'
        f'seed_sha256 = "{seed_sha256(SEED)}"\n'
    )
    machine = '[[machine]]\nname = "m"\nprocessor = "p"\ncores = 2\nmemory_gb = 16\nnote = "n"\n'
    withdrawn = '[[withdrawn]]\nid = "2026-11-21-x"\ndate = "2026-11-22"\nreason = "wrong"\n'
    for name, text in (("seasons", season), ("machines", machine), ("withdrawn", withdrawn)):
        (board / f"{name}.toml").write_text(text, encoding="utf-8")
    files = _under(board)
    submitted = {
        name.partition("/")[2]: data for name, data in files.items() if name.startswith("submissions/")
    }
    changed = tuple(name for name in submitted if not name.endswith("README.md"))
    yield Target(
        name="verify",
        files=submitted,
        changed=changed,
        call=("verify", _SUBMISSION),
        weight=3,
        named=(_SUBMISSION,),
    )
    call = ("leaderboard", ".", "--out", "site")
    changed = tuple(n for n in files if n.endswith(".toml") or n.startswith(("verified/", "releases/")))
    named = ("No such file or directory: releases",)  # which the register names
    yield Target(name="board", files=files, changed=changed, call=call, weight=1, named=named)
    registers = {name: data for name, data in files.items() if "/" not in name}
    call = ("season", "check", "t", "--board", ".")
    yield Target(
        name="seasons",
        files=registers,
        changed=tuple(registers),
        call=call,
        weight=2,
        named=("seed of t", "unknown season"),
    )
    private = {**registers, "season.seed": SEED.encode()}
    call = ("season", "draw", "t", "--board", ".", "--seed-file", "season.seed", "--out", "private")
    yield Target(name="seed", files=private, changed=("season.seed",), call=call, weight=0.5)


def _settings() -> Iterator[Target]:
    day = _under(instances_folder() / SUITE)["two-pools.json"]
    for agent in ("gh(margin=0.2)", "agh-rolling(every=6, margin=0.1)", "autoscale()", "my_agent.py:MyAgent"):
        call = ("plan", "day.json", "--days", "0", "--agent", agent)
        yield Target(
            name=f"agent-{agent.partition('(')[0]}",
            files={"day.json": day},
            changed=(),
            call=call,
            named=("",),
        )
    call = ("study", "layouts(rate_rps=50)")
    yield Target(name="study", files={}, changed=(), call=call, named=("",), weight=0.5)


def _plugins() -> Iterator[Target]:
    points = b"[fleetgym.agents]\nmine = my_package:MyAgent\n\n[fleetgym.suites]\nmine = my_package:FOLDER\n"
    where = "my_package-1.0.dist-info/"
    files = {
        f"{where}METADATA": b"Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n",
        f"{where}entry_points.txt": points,
    }
    for call in (("list", "agents"), ("list", "suites")):
        yield Target(
            name=f"plugin-{call[1]}",
            files=files,
            changed=tuple(files),
            call=call,
            variables={"PYTHONPATH": "."},
            named=("package", "entry"),
            weight=0.3,
        )


# -- options


#: A small good call of every verb that takes words, less the words that are changed.
CALLS: Mapping[str, tuple[str, ...]] = {
    "list": ("list", "agents"),
    "show": ("show", "day.json"),
    "check": ("check", "day.json"),
    "generate": ("generate", "nothing", "--size", "s"),
    "import-trace": (
        "import-trace",
        "t.csv",
        "--out",
        "made.json",
        "--scenarios",
        "1",
        "--models",
        "Llama-3.1-8B",
        "--by",
        "one",
    ),
    "plan": ("plan", "day.json", "--agent", "gh", "--days", "0"),
    "run": ("run", "day.json", "--agent", "hold", "--render", "none"),
    "simulate": ("simulate", "day.json", "--agent", "hold", "--replications", "2"),
    "study": ("study", "nothing"),
    "evaluate": ("evaluate", "hold", "--suite", "day.json", "--isolate", "never", "--out", "r.jsonl"),
    "compare": (
        "compare",
        "hold",
        "--suite",
        "day.json",
        "--isolate",
        "never",
        "--relative-to",
        "best-in-run",
        "--out",
        "r.jsonl",
    ),
    "check-agent": ("check-agent", "nothing"),
    "score": ("score", "run.jsonl"),
    "best-known": ("best-known", "propose", "run.jsonl"),
    "calibrate": ("calibrate", "--show"),
    "submit": ("submit", "run.jsonl", "--agent", "gh", "--out", "2026-11-21-gh"),
    "verify": ("verify", "nothing"),
    "season": ("season", "check", "t", "--board", "."),
    "rerun": ("rerun", "nothing", "--season", "t", "--instances", "nothing", "--board", "."),
    "leaderboard": ("leaderboard", "."),
    "report": ("report", "run.jsonl", "--out", "page.html"),
    "doctor": ("doctor",),
    "warmup": ("warmup",),
}


def _actions_of(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], argparse.Action]]:
    """Yield every argument that takes a value, with the words that lead to it."""
    for action in parser._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _actions_of(inner, (*words, name))
        elif action.nargs != 0:
            yield tuple(words), action


def _options(made: Sequence[Target]) -> Iterator[Target]:
    """Yield one target for every argument of the parser that takes a value: new ones are found by themselves."""
    known = {target.name: target.files for target in made}
    files = {**known["show-two-pools"], **known["score"], "t.csv": known["trace-t.csv"]["t.csv"]}
    seasons = known["seasons"]["seasons.toml"]
    for words, action in _actions_of(make_parser(), ()):
        if not words or words[0] == "bks" or (len(words) > 1 and not action.option_strings):
            continue
        call = CALLS[words[0]] if len(words) == 1 or CALLS[words[0]][1] == words[1] else words
        option = action.option_strings[-1] if action.option_strings else action.dest
        yield Target(
            name=f"option-{'-'.join(words)}-{option.strip('-')}",
            files={
                **files,
                **({"seasons.toml": seasons} if words[0] in ("season", "rerun", "leaderboard") else {}),
            },
            changed=(),
            call=(*call, option) if action.option_strings else call,
            weight=0.12,
            named=("",),
            silent=words[0] in ("check-agent", "best-known", "calibrate"),
        )


def option_value(target: Target, rng: random.Random) -> str:
    """Return a value for an option: hostile text, and what the option takes only if that means little work.

    Parameters
    ----------
    target : Target
        One whose name begins with ``option-``.
    rng : random.Random
    """
    action = _options_by_name()[target.name]
    while True:
        value = rng.choice((*TEXTS, *_PLACES, *(action.choices or ()))).replace("\x00", "")
        if rng.random() < 0.2:
            value = f"{value},{rng.choice(TEXTS)}".replace("\x00", "")
        if value == "pipe" and target.call[0] == "import-trace" and action.dest in ("trace", "prices"):
            continue  # a table may come through a pipe, and is waited for, as anywhere
        if action.type is not None:
            try:
                read = action.type(value)  # type: ignore[operator]
            except (argparse.ArgumentTypeError, ValueError):
                return value
            if isinstance(read, (int, float)) and abs(read) > _MOST_WORK:
                continue
        return value


_PLACES = (
    "nothing.json",
    "day.json",
    "run.jsonl",
    "nothing/at/all.json",
    "day.json/x",
    ".",
    "folder",
    "loop",
    "pipe",
    "zero",
    "x" * 300,
)


@functools.cache
def _options_by_name() -> dict[str, argparse.Action]:
    """Return the actions of all verbs by the names of the targets that are made of them."""
    found: dict[str, argparse.Action] = {}
    for words, action in _actions_of(make_parser(), ()):
        option = action.option_strings[-1] if action.option_strings else action.dest
        found.setdefault(f"option-{'-'.join(words)}-{option.strip('-')}", action)
    return found


def place_oddities(folder: Path) -> None:
    """Put what is no file into a folder, for options that name files: a folder, a loop, a pipe, a device."""
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")


#: What may lie where a file should.
ODDITIES = ("folder", "loop", "pipe", "device", "dangling", "empty", "locked")


def replace_by(path: Path, oddity: str) -> None:
    """Put something else in a file's place."""
    path.unlink()
    if oddity == "folder":
        path.mkdir()
    elif oddity == "loop":
        path.symlink_to(path.name)
    elif oddity == "pipe":
        os.mkfifo(path)
    elif oddity == "device":
        path.symlink_to("/dev/zero")
    elif oddity == "dangling":
        path.symlink_to("nothing")
    else:
        path.touch(0o000 if oddity == "locked" else 0o644)


def emptied(folder: Path) -> None:
    """Remove a folder and all in it."""
    shutil.rmtree(folder, ignore_errors=True)
