"""Implement the subcommand `explain`: say in words and numbers why an agent costs more than another."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.cli.output import tell
from fleetgym.cli.pictures import COLOURS, check_picture, new_figure, save_picture
from fleetgym.evaluation.results import Results, read_results
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.words import TERMS, labels, text
from fleetgym.model.library import load_instance, task_name
from fleetgym.scoring.explain import Explanation, demand_level, explain


def run(arguments: argparse.Namespace) -> int:
    """Explain a difference."""
    check_picture(arguments.plot)
    runs = [read_results(file) for file in arguments.results]
    against = arguments.against
    if not any(against in run.agents for run in runs) and Path(against).is_file():
        runs.append(read_results(against))
        against = _agent_of(runs[-1], against)
    agent = arguments.agent or _only_agent(runs, against)
    _check_against(runs, arguments.results, against)
    found = explain(runs, agent, against)
    if arguments.plot:
        plot_worst_day(found, arguments.plot)
    tell(arguments, found.to_dict(), text(found))
    return 0


def _agent_of(run: Results, file: str) -> str:
    """Return the agent of a results file that stands for it."""
    if len(run.agents) != 1:
        raise FleetgymError(
            f"{file} has episodes of {', '.join(run.agents)}; name the file with the others, and one of these: "
            "--against NAME"
        )
    return run.agents[0]


def _only_agent(runs: Sequence[Results], against: str) -> str:
    """Return the agent that must be meant."""
    found = [name for run in runs for name in run.agents if name != against]
    if len(found) != 1:
        named = ", ".join(map(repr, found)) or "none"
        raise FleetgymError(f"expected one agent beside {against!r}, found {named}; name one: --agent NAME")
    return found[0]


def _check_against(runs: Sequence[Results], files: Sequence[str], against: str) -> None:
    """Say how to get the other agent's episodes."""
    names = [name for run in runs for name in run.agents]
    if against not in names:
        raise FleetgymError(
            f"no episode of {against!r} in {', '.join(files)} (agents: {', '.join(names)}); "
            f"play it on the same tasks by `fleetgym evaluate {against} --suite {runs[0].header.suite} "
            f"--out other.jsonl`, then: `fleetgym explain {' '.join(files)} --against other.jsonl`"
        )


# -- a picture


def plot_worst_day(found: Explanation, path: str) -> None:
    """Draw the worst day of both agents into a picture file."""
    pair = found.worst
    instance = load_instance(pair.instance)
    label = labels([found.agent, found.against])
    hours = np.arange(1, instance.num_windows + 1) * instance.window_s / 3600.0
    figure = new_figure(9.0, 9.0)
    demand, gpus, missed, usd = figure.subplots(4, 1, sharex=True, height_ratios=(1.0, 1.4, 1.0, 1.6))
    demand.plot(hours, demand_level(pair.instance, pair.scenario), color=COLOURS[7])
    demand.set_ylabel("demand / nominal")
    for colour, (name, day) in zip(
        (COLOURS[5], COLOURS[0]), ((found.agent, pair.mine), (found.against, pair.other)), strict=True
    ):
        gpus.step(hours, day.gpus.sum(axis=1), where="pre", color=colour, label=label[name])
        missed.plot(hours, 100.0 * day.missed, color=colour)
    gpus.set_ylabel("GPUs held")
    gpus.legend(frameon=False, fontsize="small")
    missed.set_ylabel("missed %")
    more = np.cumsum(pair.mine.terms_usd - pair.other.terms_usd, axis=0)
    for k, term in enumerate(COST_TERMS):
        if np.abs(more[:, k]).max() > 0.01 * np.abs(more).max():
            usd.plot(hours, more[:, k], color=COLOURS[k], label=TERMS[term])
    usd.plot(hours, more.sum(axis=1), color="black", linewidth=2.0, label="all terms")
    usd.legend(frameon=False, fontsize="small")
    usd.set_ylabel("difference so far, USD")
    usd.set_xlabel("hour")
    begin, end = pair.stretch()
    for axes in (demand, gpus, missed, usd):
        axes.axvspan(begin * hours[0], end * hours[0], color="0.93")
        axes.margins(x=0.0)
    figure.suptitle(
        f"{task_name(pair.instance, pair.scenario)}: {label[found.agent]} and {label[found.against]}"
    )
    save_picture(figure, path)
