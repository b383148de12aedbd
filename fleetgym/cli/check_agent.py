"""Check an agent: protocol, valid actions, determinism, speed."""

from __future__ import annotations

import dataclasses

from fleetgym.cli.checks import Check
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.isolation.agent_process import Limits
from fleetgym.evaluation.isolation.agent_runner import AgentFailure
from fleetgym.evaluation.isolation.official import BudgetSpent, OfficialAgent, make_rules
from fleetgym.evaluation.isolation.preflight import fit_of, preflight
from fleetgym.evaluation.isolation.rules import TIME_CLASSES as CLASS_CPU_S
from fleetgym.evaluation.jobs import Job, close_agents, run_job
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.suites import instances_of

#: CPU seconds per episode of 288 windows within which an agent belongs to a class.
TIME_CLASSES = tuple(CLASS_CPU_S.items())

_ADVICE = {
    "raised": "reset(view, *, seed) and act(observation, info) must not raise; "
    "`fleetgym run {instance} --agent '{agent}'` shows the traceback",
    "invalid-action": "return one whole number per slot, each below view.nvec; view.fleet_to_action(fleet) makes one",
    "timeout": "bound the work by counts, and compile and import in reset",
    "died": "the process must outlive the episode: no os._exit, no crash in native code, memory within limits",
    "resources": "stay within the limits of memory and processes",
    "protocol": "leave file descriptors 0 and 1 alone",
}


def check_agent(
    name: str, instances: str = "fleet-v0/toy", limits: Limits | None = None, *, official: bool = False
) -> list[Check]:
    """Validate an agent on small instances, in a separate process.

    The first failure of the protocol ends the battery. A policy that was trained for other shapes plays what it
    was trained on. With `official`, the agent first plays one window in the box of official runs.

    Raises
    ------
    FleetgymError
        If there are no such instances.
    """
    tasks = instances_of(instances)
    try:
        preflight([name], boxed=official)
    except FleetgymError as error:
        return [Check("name", False, str(error))]
    checks = [Check("name", True, "found, and can be made")]
    try:
        fit = fit_of(name, tasks)
    except FleetgymError as error:
        return [*checks, Check("shape", False, str(error))]
    if fit.misfits:
        tasks = [task for task in tasks if task not in fit.misfits] or list(fit.trained_on)[:1]
        why = next(iter(fit.misfits.values()))
        if not tasks:
            return [*checks, Check("shape", False, why)]
        checks.append(Check("shape", True, f"plays {', '.join(tasks)}; not others, such as: {why}"))
    if official:
        checks.append(_is_boxed(name, tasks[0]))
        if not checks[-1].passed:
            return checks
    bounds = limits or Limits(act_wall_s=30.0)
    try:
        episodes = []
        for instance in tasks:
            episode = run_job(Job(name, instance, 0), "always", bounds)
            episodes.append(episode)
            if episode.failure is not None:
                return [*checks, _failed(name, episode)]
        checks.append(Check("protocol", True, f"{len(tasks)} episodes played, every action valid"))
        checks.append(_repeats(name, episodes, bounds))
        if checks[-1].passed:  # else a difference says nothing
            checks.append(_is_unattached(name, episodes))
        return [*checks, _moves(episodes), _speed(episodes)]
    finally:
        close_agents()


def _is_boxed(name: str, instance: str) -> Check:
    """Play one window in the box of official runs, where files outside the agent's folder are hidden."""
    env = FleetAllocEnv(instance)
    observation, info = env.reset(seed=0, options={"scenario": 0})
    del info["scenario"]  # as in a run
    try:
        agent = OfficialAgent(name, make_rules("offline", [name]), instance)
    except FleetgymError as error:
        return Check("official", False, str(error))
    try:
        agent.reset(env.instance, info, seed=0)
        env.actions.check(agent.act(observation, info)[0])
    except (AgentFailure, BudgetSpent, DataError) as error:
        advice = "keep its files in its own folder, or name them in FLEETGYM_SHOW"
        return Check("official", False, f"{instance}, in the box of official runs: {error}\n      {advice}")
    finally:
        agent.close()
    return Check("official", True, f"played a window of {instance} in the box of official runs")


def _failed(name: str, episode: EpisodeResult) -> Check:
    failure = episode.failure
    assert failure is not None
    advice = _ADVICE[failure.kind].format(instance=episode.instance, agent=name)
    where = f"{episode.instance}, window {failure.window}"
    return Check("protocol", False, f"{failure.kind} in {where}: {failure.message}\n      {advice}")


def _same(a: EpisodeResult, b: EpisodeResult) -> bool:
    return dataclasses.replace(a, timing=None) == dataclasses.replace(b, timing=None)


def _repeats(name: str, episodes: list[EpisodeResult], limits: Limits) -> Check:
    """Play some episodes again, in another order and a fresh process: nothing may carry over."""
    close_agents()
    for episode in reversed(episodes):
        again = run_job(Job(name, episode.instance, 0), "always", limits)
        if not _same(episode, again):
            return Check(
                "determinism",
                False,
                f"{episode.instance} went differently the second time; take all randomness from reset's seed, "
                "and keep nothing between episodes",
            )
    return Check("determinism", True, "a second run in a fresh process and another order was the same")


def _is_unattached(name: str, episodes: list[EpisodeResult]) -> Check:
    """Play in this process too: an agent that changes what it is given would play differently."""
    here = run_job(Job(name, episodes[0].instance, 0), "never")
    if _same(here, episodes[0]):
        return Check("isolation", True, "plays the same with and without a process of its own")
    return Check(
        "isolation",
        False,
        "plays differently inside another process; do not change observation, info or view",
    )


def _moves(episodes: list[EpisodeResult]) -> Check:
    unserved = max(episode.unserved_share for episode in episodes)
    if all(not episode.actions for episode in episodes):
        return Check("fleet", False, "wants the empty fleet throughout", is_warning=True)
    return Check("fleet", True, f"leaves at most {100 * unserved:.1f} % of an episode's requests unserved")


def _speed(episodes: list[EpisodeResult]) -> Check:
    timings = [episode.timing for episode in episodes if episode.timing is not None]
    windows = sum(len(t.act_cpu_s) for t in timings)
    per_act_s = sum(sum(t.act_cpu_s) for t in timings) / windows
    reset_s = max(t.reset_cpu_s for t in timings)
    per_day_s = 288 * per_act_s
    speed = f"{1e3 * per_act_s:.2f} ms of CPU per decision, reset up to {reset_s:.2f} s"
    for label, most_s in TIME_CLASSES:
        if per_day_s <= most_s and reset_s <= 60.0:
            return Check("speed", True, f"{speed}: class {label} if larger instances take no longer")
    return Check("speed", False, f"{speed}: no time class allows that", is_warning=True)
