"""Replay the actions of an episode through the reference evaluator, and compare what was claimed of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from fleetgym import reference
from fleetgym.evaluation.changes import decode_actions
from fleetgym.evaluation.results import check_windows
from fleetgym.evaluation.results_format import COST_TERMS, Costs, EpisodeResult
from fleetgym.files.documents import parse_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import read_object
from fleetgym.leaderboard.record import SHARE_TOLERANCE, FailureMark, VerifiedEpisode
from fleetgym.leaderboard.submission import DECLARATION, EPISODES_FORMATS, Submission
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance, load_scenarios, task_name
from fleetgym.reference import CertificateError
from fleetgym.scoring.best_known import TOLERANCE, is_same_cost

#: Why a cost is not confirmed: an instance has another checksum than what was played.
OTHER_INSTANCE = "another version of the instance was played"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One line of the episodes, and the task it must be about."""

    number: int
    line: str
    instance: str
    scenario: int
    submission: Submission


def replay_claim(claim: Claim) -> VerifiedEpisode:
    """Replay one line; raise `DataError` if it is not what it claims to be."""
    try:
        episode = read_object(EpisodeResult, parse_json(claim.line))
        _check_job(episode, claim)
        instance = load_instance(claim.instance)
        scenario = load_scenarios(claim.instance)[claim.scenario]
        if episode.scenario_id != scenario.id:
            raise DataError(f"expected {scenario.id!r}", "$.scenario_id")
        options = ActionSpace(instance).nvec.tolist()
        actions = decode_actions(episode.actions, instance.num_windows, options)
        _check_actions(episode, actions, claim.submission.agent.division)
        check_windows(episode, EPISODES_FORMATS[claim.submission.format], instance.num_windows)
        replayed, windows = replay_episode(claim.instance, claim.scenario, actions)
        _compare(episode, replayed, windows)
    except DataError as error:
        raise DataError(error.message, f"$[{claim.number}]{error.path.removeprefix('$')}") from None
    return with_end(replayed, episode)


def with_end(replayed: VerifiedEpisode, played: EpisodeResult) -> VerifiedEpisode:
    """Return a replayed episode, marked with when its agent failed or spent its budget."""
    failure = played.failure
    marked = None if failure is None else FailureMark(window=failure.window, kind=failure.kind)
    return dataclasses.replace(replayed, failure=marked, budget_spent_at_window=played.budget_spent_at_window)


def why_not_confirmed(
    name: str,
    number: int,
    content_hash: str,
    cost_usd: float,
    read: Callable[[Instance], np.ndarray],
) -> str | None:
    """Return why the reference evaluator does not confirm the cost of a task, or None if it does.

    Parameters
    ----------
    name : str
        The instance.
    number : int
        The scenario.
    content_hash : str
        Of the instance that was played.
    cost_usd : float
        The stored cost.
    read : callable
        Returns the actions on the instance, int (windows, slots).
    """
    try:
        instance = load_instance(name)
        if content_hash != instance.content_hash:
            return OTHER_INSTANCE
        replayed, _ = replay_episode(name, number, read(instance))
    except (FleetgymError, FileNotFoundError, IndexError) as error:
        return str(error)
    if not is_same_cost(cost_usd, replayed.cost_usd):
        return f"says {cost_usd!r} USD, the replay {replayed.cost_usd!r}"
    return None


def _check_job(episode: EpisodeResult, claim: Claim) -> None:
    task = task_name(claim.instance, claim.scenario)
    if (episode.instance, episode.scenario) != (claim.instance, claim.scenario):
        raise DataError(f"expected the episode of {task}: each task once, in order", "$.instance")
    if episode.agent != claim.submission.agent.entry:
        raise DataError(f"expected the agent that {DECLARATION} declares", "$.agent")
    if episode.seed != claim.submission.run.seed:
        raise DataError(f"expected {claim.submission.run.seed}", "$.seed")


def _check_actions(episode: EpisodeResult, actions: np.ndarray, division: str) -> None:
    spent, failure = episode.budget_spent_at_window, episode.failure
    if spent is not None and spent >= len(actions):
        raise DataError(f"expected a window from 0 to {len(actions) - 1}", "$.budget_spent_at_window")
    if failure is not None and failure.window >= len(actions):
        raise DataError(f"expected a window from 0 to {len(actions) - 1}", "$.failure.window")
    if division == "one-shot":
        check_one_shot(actions if failure is None else actions[: failure.window])
    if failure is not None and actions[failure.window :].any():
        raise DataError("expected the empty fleet from the failure on", "$.actions")


def check_one_shot(actions: np.ndarray) -> None:
    """Raise `DataError` if actions, (windows, slots), do not keep what the first of them wants."""
    changes = np.flatnonzero(np.any(actions != actions[:1], axis=1))
    if changes.size:
        message = f"in the one-shot division the first action holds, this differs in window {changes[0]}"
        raise DataError(message, "$.actions")


def replay_episode(name: str, number: int, actions: np.ndarray) -> tuple[VerifiedEpisode, list[float]]:
    """Play actions through the reference evaluator.

    Parameters
    ----------
    name : str
        The instance.
    number : int
        The scenario.
    actions : ndarray of int, shape (windows, slots)

    Returns
    -------
    episode : VerifiedEpisode
    cost_per_window_usd : list of float

    Raises
    ------
    DataError
        If an action does not exist, or a window's routing cannot be proven optimal.
    """
    instance, scenario = load_instance(name), load_scenarios(name)[number]
    try:
        steps = reference.replay(instance, scenario, actions.tolist())
    except CertificateError as error:
        raise DataError(f"cannot be replayed: {error}", "$.actions") from None
    windows = [step["cost"] for step in steps]
    terms: dict[str, list[float]] = {term: [] for term in COST_TERMS}
    counts = dict.fromkeys(("forced_outages", "denied", "lost"), 0)
    shares: dict[str, list[float]] = {"miss_share": [], "unserved_share": []}
    rates = scenario.expanded(instance.num_windows).rate_rps.tolist()
    for step, rate in zip(steps, rates, strict=True):
        for term, values in terms.items():
            values.append(step[term])
        counts["forced_outages"] += step["forced_outage"]
        counts["denied"] += sum(step["denied"])
        counts["lost"] += sum(step["lost"])
        for share, values in shares.items():
            values += [rps * part for rps, part in zip(rate, step[share], strict=True)]
    requests = math.fsum(rate for row in rates for rate in row)

    def mean(name: str) -> float:
        return min(1.0, math.fsum(shares[name]) / requests) if requests > 0 else 0.0

    found = VerifiedEpisode(
        instance=name,
        scenario=number,
        cost_usd=math.fsum(windows),
        costs=Costs(**{term: math.fsum(values) for term, values in terms.items()}),
        miss_share=mean("miss_share"),
        unserved_share=mean("unserved_share"),
        failure=None,
        forced_outages=counts["forced_outages"],
        denied=counts["denied"],
        lost=counts["lost"],
    )
    return found, windows


def _compare(claimed: EpisodeResult, replayed: VerifiedEpisode, windows: Sequence[float]) -> None:
    """Raise at the first claimed number that is not what the reference evaluator found."""
    allowed = TOLERANCE * max(1.0, replayed.cost_usd)
    _check_number(claimed.cost_usd, replayed.cost_usd, allowed, "$.cost_usd")
    for term in COST_TERMS:
        _check_number(getattr(claimed.costs, term), getattr(replayed.costs, term), allowed, f"$.costs.{term}")
    for t, (claim, cost) in enumerate(zip(claimed.cost_per_window_usd or (), windows, strict=False)):
        _check_number(claim, cost, TOLERANCE * max(1.0, cost), f"$.cost_per_window_usd[{t}]")
    for name in ("miss_share", "unserved_share"):
        _check_number(getattr(claimed, name), getattr(replayed, name), SHARE_TOLERANCE, f"$.{name}")
    for name in ("forced_outages", "denied", "lost"):
        _check_number(getattr(claimed, name), getattr(replayed, name), 0, f"$.{name}")


def _check_number(claimed: float, replayed: float, allowed: float, path: str) -> None:
    if not abs(claimed - replayed) <= allowed:
        raise DataError(f"claims {claimed!r}, the replay says {replayed!r}", path)
