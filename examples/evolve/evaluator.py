"""Score a program that an evolutionary search wrote, in two stages, on days that no leaderboard scores.

OpenEvolve and SkyDiscover call `evaluate(path)`; OpenEvolve's cascade calls the two stages. The file at `path` has a
class `Agent`. It plays in the box of official runs: no network, no files of others, three reference CPU seconds a day.
With FLEETGYM_EVOLVE_BOX=0 it plays in a process of its own instead, which starts faster: for programs that you trust.
Instances are generated from seeds of the training range; FLEETGYM_EVOLVE_SEED chooses others.
"""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fleetgym import evaluate as play
from fleetgym.evaluation.isolation.official import make_rules
from fleetgym.evaluation.jobs import run_job
from fleetgym.evaluation.recording import make_header
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.evaluation.run import make_jobs
from fleetgym.families.generate import SEEDS, generate, stored_scenarios
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.words import text
from fleetgym.model.instance_files import write_instance
from fleetgym.scoring.explain import Pair, explain

#: Families of each stage, and instances of each family: seconds, then a minute.
STAGES = {1: (("ou", "drop"), 1), 2: (("ou", "drop", "budget", "tail", "multi"), 2)}
#: Programs are compared with this agent. The score is its cost over theirs, so more is better and 1 is as good.
RIVAL = "margin"
#: A program that fails on a day has this score: search goes on, from the message.
FAILED = 0.0
#: What a program's file is called in its box, and in messages.
PROGRAM = "program.py"


def evaluate(path: str) -> Any:
    """Score a program on the first stage, and on the second if it fails nowhere."""
    first = evaluate_stage1(path)
    return evaluate_stage2(path) if _metrics(first)["combined_score"] > FAILED else first


def evaluate_stage1(path: str) -> Any:
    """Score a program on two days."""
    return _stage(path, 1)


def evaluate_stage2(path: str) -> Any:
    """Score a program on ten other days of five families."""
    return _stage(path, 2)


def _stage(path: str, stage: int) -> Any:
    days = search_days(stage, os.environ.get("FLEETGYM_EVOLVE_SEED", "0"))
    with tempfile.TemporaryDirectory() as folder:  # of its own: the box shows an agent its folder
        program = Path(folder) / PROGRAM
        shutil.copyfile(path, program)
        agent = f"{program}:Agent"
        try:
            mine = boxed(agent, days) if is_boxed() else play(agent, days, isolate="always")
        except FleetgymError as error:  # such as a file that Python cannot read, or one without the class
            if PROGRAM not in str(error):
                raise  # not the program's fault: such as a machine without the box
            return _result({"combined_score": FAILED}, {"failure": str(error).replace(f"{folder}/", "")})
        if mine.failures:
            failures = [e.failure for e in mine.episodes if e.failure is not None]
            told = [f"{f.kind} in window {f.window}: {f.message}" for f in failures]
            return _result({"combined_score": FAILED}, {"failure": "\n".join(dict.fromkeys(told))})
        found = explain([mine, rival(stage, days)], agent, RIVAL)
    metrics = {"combined_score": 100.0 / (100.0 + found.percent), "above_rival_percent": found.percent}
    metrics |= {f"points_{part.name}": float(part.points) for part in found.terms}
    words = text(found).replace(f"{Path(days[0]).parent}/", "")
    spent = [e.instance for e in mine.episodes if e.budget_spent_at_window is not None]
    note = (
        {"cpu": f"CPU seconds were spent on {len(spent)} days; then the last fleet stayed"} if spent else {}
    )
    return _result(metrics, {"costs": words, "windows": windows(found.worst), **note})


def is_boxed() -> bool:
    """Return whether programs play in the box."""
    return os.environ.get("FLEETGYM_EVOLVE_BOX", "1") != "0"


def boxed(agent: str, days: tuple[str, ...]) -> Results:
    """Play days in the box, each once; what an official run checks besides is left to the final."""
    jobs = make_jobs(agent, days, None, 0)
    header = make_header(jobs, days, rules())
    return Results(header, tuple(run_job(job, official=rules()) for job in jobs))


@functools.cache
def rules() -> Any:
    """Return the rules of a reflex run here, which are found once."""
    return make_rules("reflex")


@functools.cache
def rival(stage: int, days: tuple[str, ...]) -> Results:
    """Return the rival's results on a stage's days."""
    return play(RIVAL, days)


@functools.cache
def search_days(stage: int, search: str) -> tuple[str, ...]:
    """Write the instances of a stage with a day each, and return their files."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    families, count = STAGES[stage]
    first = SEEDS["train"].start + 1_000_000 + 1000 * int(search) + 100 * stage
    files = []
    for seed in range(first, first + count):
        for family in families:
            instance = generate(family, "s", seed)
            files.append(str(folder / f"{family}-s-{seed}.json"))
            write_instance(files[-1], instance, stored_scenarios(instance, seed, 1))
    return tuple(files)


def windows(day: Pair) -> str:
    """Return a day as CSV: what each window costs, the rival's cost, and the difference by term, USD."""
    more = day.mine.terms_usd - day.other.terms_usd
    terms = [k for k in range(len(COST_TERMS)) if abs(more[:, k]).max() >= 0.05]
    head = ["window", "mine", RIVAL, *(f"more_{COST_TERMS[k]}" for k in terms)]
    rows = [",".join(head)]
    for t, usd in enumerate(more):
        cells = [day.mine.terms_usd[t].sum(), day.other.terms_usd[t].sum(), *usd[terms]]
        rows.append(",".join([str(t), *(f"{cell:z.2f}" for cell in cells)]))
    return "\n".join(rows)


def _result(metrics: dict[str, float], artifacts: dict[str, str]) -> Any:
    """Return OpenEvolve's result; without the package a mapping that has it all."""
    try:
        from openevolve.evaluation_result import EvaluationResult
    except ImportError:
        return {**metrics, "artifacts": artifacts}
    return EvaluationResult(metrics=metrics, artifacts=artifacts)


def _metrics(result: Any) -> dict[str, float]:
    return result if isinstance(result, dict) else result.metrics
