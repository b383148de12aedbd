"""Change real files and options at random, let fleetgym read them, and hold every refusal to what errors must be.

Every kind of file that a user may hand in is changed: flipped, cut, doubled and swapped bytes; keys and values that are
missing, doubled, of other types or extreme; other encodings; a folder, a pipe or a device where a file should be. The
value of every option is taken from the parser. A mutant is read by the command line, within a forked process.

Held of each: no traceback, exit code 0, 1 or 2, at most 10 CPU seconds and 1 GB, nothing half-written, and one clear
line of plain characters that names the file.

    python -m tools.fuzz_inputs --mutants 100000 --workers 2 --out fuzzed
    python -m tools.fuzz_inputs --only 4711

A mutant follows from the seed and its number, whatever else is tried. Called again with the same folder, the program
goes on where it was stopped. What fails is kept in ``OUT/failures``, with the command that repeats it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import faulthandler
import functools
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from fleetgym.cli import parser as command_line
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files import finished_cells
from fleetgym.files.documents import parse_json
from fleetgym.files.errors import DataError, printable
from fleetgym.files.quantities import NUMBER, SEED, WORKERS
from fleetgym.runtime import entry_points
from fleetgym.runtime.programs import program
from tools.fuzz_inputs import targets as made
from tools.fuzz_inputs.mutations import TEXTS, mutated
from tools.fuzz_inputs.targets import Target

MOST_CPU_S = 10.0
MOST_BYTES = 10**9
#: Ends a mutant that waits for ever. What it waits for a processor, on a busy machine, does not count.
MOST_WAIT_S = 60.0
_BLOCK = 250  # mutants of one forked process
_SMOKE_MUTANTS = 100


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a mutant; `wrong` is empty if all is as it should be."""

    number: int
    target: str
    code: int | None
    wrong: str
    cpu_s: float


# -- a mutant


def place(
    number: int, seed: int, all_targets: Sequence[Target], folder: Path
) -> tuple[Target, list[str], str]:
    """Write a mutant's files.

    Returns
    -------
    Target
    list of str
        The words of its call.
    str
        Name of the file that was changed; empty if words were.
    """
    rng = random.Random(f"{seed}/{number}")
    (target,) = rng.choices(all_targets, [target.weight for target in all_targets])
    for name, data in target.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if not target.changed:
        return target, _changed_words(target, rng, folder), ""
    name = rng.choice(target.changed)
    if target.folders and rng.random() < 0.01:
        oddity = rng.choice(made.ODDITIES)
        # A pipe that the user names is waited for, as anywhere, and one in an installed package by Python itself; one
        # within another folder is not.
        is_awaited = name in target.call or ".dist-info/" in name
        made.replace_by(folder / name, "folder" if oddity == "pipe" and is_awaited else oddity)
    else:
        (folder / name).write_bytes(mutated(name, target.files[name], rng))
    return target, list(target.call), name


def _changed_words(target: Target, rng: random.Random, folder: Path) -> list[str]:
    """Return the words of a call with another last one, or with a value for the option that is last."""
    if target.name.startswith("option-"):
        made.place_oddities(folder)
        value, words = made.option_value(target, rng), list(target.call)
        if words[-1].startswith("--"):
            return [*words[:-1], f"{words[-1]}={value}"] if rng.random() < 0.5 else [*words, value]
        return [*words[:1], value, *words[2:]]
    *words, text = target.call
    for _ in range(rng.choice((1, 1, 2))):
        a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice(
            (
                text[:a] + rng.choice(TEXTS) + text[b:],
                text[:a] + text[b:],
                text[:b] + text[a:],
                re.sub(r"[0-9.]+", rng.choice(TEXTS).replace("\\", ""), text),
            )
        )
    return [*words, text.replace("\x00", "")]


@contextlib.contextmanager
def _inside(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    """Be in a folder, with environment variables and paths of modules as a new process would have them."""
    before, path, here = dict(os.environ), list(sys.path), os.getcwd()
    os.chdir(folder)
    os.environ.update({name: str(folder) if value == "." else value for name, value in variables.items()})
    if "PYTHONPATH" in variables:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(here)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)


def called(target: Target, words: Sequence[str], folder: Path) -> tuple[int | None, str]:
    """Make a call in a folder; return its exit code, and the traceback if it raised."""
    name, rest = (words[0], words[1:]) if words[0] in made.PROGRAMS else ("fleetgym", words)
    with _inside(folder, dict(target.variables)):
        try:
            return made.PROGRAMS[name](list(rest)), ""
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1, ""
        except BaseException:
            return None, traceback.format_exc()


_LINES = ("fleetgym", "rejected  ", "wrong  ", "error: ", "usage: ", " ")


def complaint(
    target: Target,
    words: Sequence[str],
    changed: str,
    code: int | None,
    raised: str,
    out: str,
    err: str,
    new: Sequence[str],
) -> str:
    """Return what is wrong with a call's answer; empty if nothing is.

    Parameters
    ----------
    target : Target
    words : sequence of str
    changed : str
        Name of the changed file.
    code : int or None
        The exit code.
    raised : str
        A traceback.
    out, err : str
        What it printed.
    new : sequence of str
        Files that were not there before.
    """
    if raised or "Traceback (most recent call last)" in out + err:
        return f"traceback: {raised or err}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if printable(out + err, keep="\n\t") != out + err:
        return "characters that a terminal obeys are printed as they are"
    lines = [line for line in err.splitlines() if line]
    if strange := next((line for line in lines if not line.startswith(_LINES)), None):
        return f"a line of somebody else's: {strange}"
    if any(len(line) > 2000 for line in lines):
        return "a line of more than 2000 characters"
    if code == 0:
        if "--json" in words:
            try:
                parse_json(out)
            except DataError as error:
                return f"not JSON on standard output: {error}"
        return ""
    if half := [name for name in new if Path(name).name.startswith(".") and name not in " ".join(words)]:
        return f"left behind: {', '.join(half)}"
    if target.silent and code == 1 and not lines:
        return ""
    if not lines:
        return "refused without a word"
    names = [*map(os.path.basename, target.files), *target.named] if changed else [""]
    if not any(name in err for name in names):
        return f"does not name the file {changed}"
    return ""


# -- forked processes


def _limit_memory() -> None:
    """Let this process map as much more as a mutant may take."""
    import resource  # there is none outside of Unix

    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_what_waits(most_s: float, trace: IO[bytes]) -> None:
    """Let SIGALRM end this process when it has waited for so long, for anything but a processor."""

    def used_s() -> float:
        return time.monotonic() - _queued_s()

    begun = used_s()

    def examine(*_: Any) -> None:
        left = most_s - (used_s() - begun)
        if left > 0.0:
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))
            return
        faulthandler.dump_traceback(trace)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, examine)
    signal.setitimer(signal.ITIMER_REAL, most_s)


def _queued_s() -> float:
    """Return how long this process has waited for a processor; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="utf-8").split()[1]) * 1e-9
    except OSError:
        return 0.0


def _remember_what_stays() -> None:
    """Make the parser and read what packages bring only once: half of what refusing a file costs."""
    command_line.make_parser = functools.cache(command_line.make_parser)
    installed = entry_points._installed
    remembered = functools.cache(lambda group, path: installed(group))
    entry_points._installed = lambda group: remembered(group, tuple(sys.path))


def play_block(numbers: Sequence[int], seed: int, all_targets: Sequence[Target], log: Path) -> None:
    """Try mutants one after the other in this process; append a line for each to `log`."""
    _remember_what_stays()
    streams = [tempfile.TemporaryFile("w+b") for _ in range(2)]  # noqa: SIM115 - for as long as the process lives
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream.fileno(), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    trace = log.with_suffix(".trace").open("w+b")
    faulthandler.register(signal.SIGPROF, trace, chain=True)
    _limit_memory()
    with tempfile.TemporaryDirectory() as place_, log.open("a", encoding="utf-8") as lines:
        for number in numbers:
            folder = Path(place_) / str(number)
            folder.mkdir()
            target, words, changed = place(number, seed, all_targets, folder)
            before = set(_names(folder))
            for stream in streams:
                stream.seek(0)
                stream.truncate()
            signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
            _end_what_waits(MOST_WAIT_S, trace)
            begin = time.process_time()
            code, raised = called(target, words, folder)
            spent = time.process_time() - begin
            for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
                signal.setitimer(timer, 0)
            for text in (sys.stdout, sys.stderr):
                text.flush()
            out, err = (_read(stream) for stream in streams)
            new = sorted(set(_names(folder)) - before)
            wrong = complaint(target, words, changed, code, raised, out, err, new)
            outcome = Outcome(number, target.name, code, wrong, round(spent, 4))
            lines.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
            lines.flush()
            made.emptied(folder)


def _read(stream: Any) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "surrogateescape")


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*")]


def _start(numbers: Sequence[int], seed: int, all_targets: Sequence[Target], log: Path) -> int:
    """Fork a process that plays a block; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            play_block(numbers, seed, all_targets, log)
            os._exit(0)
        except BaseException:
            log.with_suffix(".crash").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(3)
    return pid


def _outcomes(log: Path) -> list[Outcome]:
    if not log.exists():
        return []
    return [Outcome(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()]


def play(
    numbers: Sequence[int],
    seed: int,
    workers: int,
    all_targets: Sequence[Target],
    out: Path,
    block: int = _BLOCK,
) -> Iterator[list[Outcome]]:
    """Try mutants in forked processes; yield the outcomes of each block, in no particular order.

    A mutant that ends its process is one that failed; those after it are tried in another process.
    """
    waiting = [list(numbers[k : k + block]) for k in range(0, len(numbers), block)][::-1]
    running: dict[int, tuple[list[int], Path]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            left = waiting.pop()
            log = out / f"block-{left[0]}.jsonl"
            log.unlink(missing_ok=True)
            running[_start(left, seed, all_targets, log)] = (left, log)
        pid, status = os.wait()
        if pid not in running:
            continue
        left, log = running.pop(pid)
        found = _outcomes(log)
        if (log.with_suffix(".crash")).exists():
            raise RuntimeError((log.with_suffix(".crash")).read_text(encoding="utf-8"))
        if len(found) < len(left):
            number = left[len(found)]
            found.append(_ended(number, seed, all_targets, status, log))
            if left[len(found) :]:
                waiting.append(left[len(found) :])
        for path in (log, log.with_suffix(".trace")):
            path.unlink(missing_ok=True)
        yield found


def _ended(number: int, seed: int, all_targets: Sequence[Target], status: int, log: Path) -> Outcome:
    """Return the outcome of a mutant that ended its process."""
    code = os.waitstatus_to_exitcode(status)
    reasons = {
        -signal.SIGPROF: f"more than {MOST_CPU_S:g} CPU seconds",
        -signal.SIGALRM: f"waits for more than {MOST_WAIT_S:g} s",
    }
    trace = log.with_suffix(".trace").read_text(encoding="utf-8", errors="replace")
    with tempfile.TemporaryDirectory() as folder:
        target, _, _ = place(number, seed, all_targets, Path(folder))
    return Outcome(
        number, target.name, code, f"{reasons.get(code, f'ended the process: {code}')}\n{trace}", MOST_CPU_S
    )


# -- the whole


def keep(outcome: Outcome, seed: int, all_targets: Sequence[Target], folder: Path) -> None:
    """Keep a mutant that failed: its files, its call, what is wrong with it, and how to try it again."""
    place_ = folder / f"{outcome.number}-{re.sub(r'[^A-Za-z0-9.-]', '_', outcome.target)}"
    shutil.rmtree(place_, ignore_errors=True)
    place_.mkdir(parents=True)
    _, words, changed = place(outcome.number, seed, all_targets, place_)
    again = f"python -m tools.fuzz_inputs --seed {seed} --only {outcome.number}"
    call = "fleetgym " + shlex.join(words).encode("utf-8", "backslashreplace").decode()
    (place_ / "WHY.txt").write_text(
        f"{again}\n{call}\nchanged: {changed}\ncode: {outcome.code}\n{outcome.wrong}\n",
        encoding="utf-8",
        errors="backslashreplace",
    )


def fuzz(mutants: Sequence[int], seed: int, workers: int, out: Path, block: int = _BLOCK) -> int:
    """Try mutants, keep those that fail, and print how it went; 1 if any failed."""
    out.mkdir(parents=True, exist_ok=True)
    cells, failures = out / f"finished-{seed}.jsonl", out / "failures"
    done = {int(name): numbers for name, numbers in finished_cells.read(cells).items()}
    left = [number for number in mutants if number not in _numbers(done)]
    wrong = [tuple(found) for numbers in done.values() for found in numbers["wrong"]]
    with tempfile.TemporaryDirectory() as folder:
        all_targets = made.targets(Path(folder))
        for target in all_targets:
            if target.name in _WARM:
                _warm(target)
        for found in play(left, seed, workers, all_targets, out, block):
            bad = [outcome for outcome in found if outcome.wrong]
            for outcome in bad:
                keep(outcome, seed, all_targets, failures)
                print(
                    f"{outcome.number}  {outcome.target}: {outcome.wrong.strip().splitlines()[-1][:200]}",
                    file=sys.stderr,
                    flush=True,
                )
            numbers = {
                "count": len(found),
                "codes": collections.Counter(str(outcome.code) for outcome in found),
                "cpu_s": round(sum(outcome.cpu_s for outcome in found), 3),
                "longest_s": max(outcome.cpu_s for outcome in found),
                "wrong": [[outcome.number, outcome.target] for outcome in bad],
            }
            finished_cells.keep(cells, str(found[0].number), numbers)
            done[found[0].number] = numbers
            wrong += [(outcome.number, outcome.target) for outcome in bad]
    return _tell(list(done.values()), wrong, failures)


#: Good calls that are made once before processes are forked: what they import and compile need not be again.
_WARM = ("scenarios-two-pools", "plan-two-pools", "score", "verify", "import-p.csv")


def _warm(target: Target) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in target.files.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(data)
        with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing):
            code, raised = called(target, target.call, Path(folder))
    if code != 0:
        raise RuntimeError(f"the good files of {target.name} are refused: {code} {raised}")


def _numbers(done: dict[int, Any]) -> set[int]:
    return {number for first, numbers in done.items() for number in range(first, first + numbers["count"])}


def _tell(cells: Sequence[dict[str, Any]], wrong: Sequence[Any], failures: Path) -> int:
    count, codes = sum(cell["count"] for cell in cells), collections.Counter[str]()
    for cell in cells:
        codes.update(cell["codes"])
    spent, longest = (
        sum(cell["cpu_s"] for cell in cells),
        max((cell["longest_s"] for cell in cells), default=0.0),
    )
    outcomes = ", ".join(
        f"{codes[str(code)]} {word}"
        for code, word in ((0, "accepted"), (1, "refused with 1"), (2, "refused with 2"))
    )
    print(f"{count} mutants: {outcomes}, {len(wrong)} failed; {spent:.0f} CPU s, longest {longest:.2f} s")
    if wrong:
        print(f"kept in {failures}")
    return 1 if wrong else 0


def _again(number: int, seed: int) -> int:
    """Try one mutant in this process, and show all that it prints."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        all_targets = made.targets(Path(first))
        target, words, changed = place(number, seed, all_targets, Path(second))
        print(
            f"{target.name}, changed: {changed or 'words'}: {printable(shlex.join(words))}", file=sys.stderr
        )
        code, raised = called(target, words, Path(second))
    print(f"{raised}exit code {code}", file=sys.stderr)
    return 0 if code in (0, 1, 2) else 1


def smoke(folder: Path) -> int:
    """Try some mutants of one seed."""
    return fuzz(range(_SMOKE_MUTANTS), 0, 1, folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="OUT/finished-SEED.jsonl, how it went; and OUT/failures, a folder for each mutant that failed.",
        takes="About 15 CPU minutes for 100,000 mutants.",
        smoke=smoke,
    )
    parser.add_argument("--mutants", type=of(NUMBER), default=1000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--seed", type=of(SEED), default=0, help="of all that is drawn (default: %(default)s)"
    )
    parser.add_argument("--workers", type=of(WORKERS), default=1, help="processes (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("fuzzed"), help="folder (default: %(default)s)")
    parser.add_argument(
        "--only", type=of(NUMBER), metavar="NUMBER", help="try this mutant alone, and show what it prints"
    )
    arguments = parser.parse_args(argv)
    if arguments.only is not None:
        return _again(arguments.only, arguments.seed)
    return fuzz(range(arguments.mutants), arguments.seed, arguments.workers, arguments.out)


if __name__ == "__main__":
    run_program(main)
