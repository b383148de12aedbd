"""Score a program that an evolutionary search wrote, in two stages, on days that no leaderboard scores.

OpenEvolve and SkyDiscover call `evaluate(path)`; OpenEvolve's cascade calls the two stages. The file at `path` has a
class `Agent`. It plays in the box of official runs: no network, no files of others, three reference CPU seconds a day.
With FLEETGYM_EVOLVE_BOX=0 it plays in a process of its own instead, which starts faster: for programs that you trust.
Instances are generated from seeds of the training range; FLEETGYM_EVOLVE_SEED chooses others.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from fleetgym import evaluate as play
from fleetgym.cli.explain import text
from fleetgym.families.generate import SEEDS, generate, stored_scenarios
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance_files import write_instance
from fleetgym.scoring.explain import explain

#: Families of each stage, and instances of each family: seconds, then minutes.
STAGES = {1: (("ou", "drop"), 1), 2: (("ou", "drop", "budget", "tail", "multi"), 2)}
#: Programs are compared with this agent. The score is its cost over theirs, so more is better and 1 is as good.
RIVAL = "margin"
#: A program that fails on a day has this score: search goes on, from the message.
FAILED = 0.0


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
    agent = f"{path}:Agent"
    boxed = os.environ.get("FLEETGYM_EVOLVE_BOX", "1") != "0"
    how: dict[str, Any] = {"official": "reflex"} if boxed else {"isolate": "always"}
    with tempfile.TemporaryDirectory() as folder:
        days = search_days(stage, Path(folder))
        try:
            mine = play(agent, days, **how)
        except FleetgymError as error:  # such as a file that Python cannot read, or one without the class
            if Path(path).name not in str(error):
                raise  # not the program's fault: such as a machine without the box
            return _result({"combined_score": FAILED}, {"failure": str(error)})
        if mine.failures:
            failures = [e.failure for e in mine.episodes if e.failure is not None]
            told = [f"{f.kind} in window {f.window}: {f.message}" for f in failures]
            return _result({"combined_score": FAILED}, {"failure": "\n".join(dict.fromkeys(told))})
        found = explain([mine, play(RIVAL, days)], agent, RIVAL)
        metrics = {"combined_score": 100.0 / (100.0 + found.percent), "above_rival_percent": found.percent}
        metrics |= {f"points_{part.name}": float(part.points) for part in found.terms}
        return _result(metrics, {"costs": text(found)})


def search_days(stage: int, folder: Path) -> list[str]:
    """Write the instances of a stage with a day each, and return their files."""
    families, count = STAGES[stage]
    first = SEEDS["train"].start + 1_000_000 + 1000 * int(os.environ.get("FLEETGYM_EVOLVE_SEED", "0"))
    files = []
    for seed in range(first + 100 * stage, first + 100 * stage + count):
        for family in families:
            instance = generate(family, "s", seed)
            files.append(str(folder / f"{family}-s-{seed}.json"))
            write_instance(files[-1], instance, stored_scenarios(instance, seed, 1))
    return files


def _result(metrics: dict[str, float], artifacts: dict[str, str]) -> Any:
    """Return OpenEvolve's result; without the package a mapping that has it all."""
    try:
        from openevolve.evaluation_result import EvaluationResult
    except ImportError:
        return {**metrics, "artifacts": artifacts}
    return EvaluationResult(metrics=metrics, artifacts=artifacts)


def _metrics(result: Any) -> dict[str, float]:
    return result if isinstance(result, dict) else result.metrics
