"""Show best-known costs, and replay a file with better ones: ``fleetgym best-known``."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

from fleetgym.cli.output import note, tell
from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.text_tables import NOTHING, align, number, share
from fleetgym.scoring.best_known import write_actions
from fleetgym.search.propose import Proposal, Standing, propose, read_candidates, standings


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action."""
    if arguments.action == "search":
        from fleetgym.cli.best_known_search import search

        return search(arguments)
    return show(arguments) if arguments.action == "show" else examine(arguments)


def show(arguments: argparse.Namespace) -> int:
    """Print value, bound and gap of every task."""
    from fleetgym.model.library import is_path
    from fleetgym.model.suites import tasks_of

    own = [part for part in arguments.suite if is_path(part)]
    if own:
        raise FleetgymError(
            f"{own[0]} is your own: best-known costs are kept for stored instances; "
            "`fleetgym compare ... --relative-to best-in-run` needs none"
        )
    found = standings(list(dict.fromkeys(task for part in arguments.suite for task in tasks_of(part))))
    head = ["task", "value USD", "bound USD", "gap %", "date", "found by"]
    proven = sum(standing.known.proven for standing in found)
    tell(
        arguments,
        [standing.to_dict() for standing in found],
        f"{align(head, [_row(s) for s in found])}\n\n"
        f"{len(found)} tasks, {proven} proven optimal. No agent costs less than the bound; it leaves out late\n"
        "penalties that depend on load, so the gap is not all room for improvement.",
    )
    return 0


def _row(standing: Standing) -> list[str]:
    known = standing.known
    gap = "proven" if known.proven else NOTHING if standing.gap is None else share(standing.gap)
    bound = known.value_usd if known.proven else known.bound_usd
    return [standing.task, number(known.value_usd, 2), number(bound, 2), gap, known.date, known.method]


def examine(arguments: argparse.Namespace) -> int:
    """Replay a file's episodes; 0 if one is better than what is known, 1 if none is."""
    candidates = read_candidates(arguments.file)
    found = propose(candidates, arguments.date or f"{datetime.date.today():%Y-%m-%d}")
    better = _last_of_each_task([proposal for proposal in found if proposal.better is not None])
    if arguments.out:
        _write(arguments.out, better)
    head = ["task", "from", "cost USD", "best-known USD", "verdict"]
    tasks = len({p.candidate.task for p in found})
    tell(
        arguments,
        [proposal.to_dict() for proposal in found],
        f"{align(head, [_verdict(p) for p in found], left=2)}\n\n"
        f"{len(better)} of {tasks} tasks are cheaper than best known.",
    )
    if better and not arguments.out:
        note("--out FOLDER writes them as a proposal")
    return 0 if better else 1


def _last_of_each_task(better: Sequence[Proposal]) -> list[Proposal]:
    return list({proposal.candidate.task: proposal for proposal in better}.values())


def _verdict(proposal: Proposal) -> list[str]:
    known = None if proposal.known is None else proposal.known.value_usd
    verdict = "not cheaper"
    if proposal.better is not None:
        verdict = "new" if known is None else f"cheaper by {share(1.0 - proposal.cost_usd / known)} %"
    return [
        proposal.candidate.task,
        proposal.candidate.method,
        number(proposal.cost_usd, 4),
        number(known, 4),
        verdict,
    ]


def _write(folder: str, better: Sequence[Proposal]) -> None:
    """Write one actions file per improved task, as the project keeps them."""
    for proposal in better:
        candidate = proposal.candidate
        if proposal.better is not None:
            write_actions(folder, candidate.instance, candidate.scenario, proposal.better, candidate.actions)
    if better:
        note(f"{len(better)} actions files are in {Path(folder)}")
