"""Play one job: the loop of an agent on an instance and scenario.

Only `run_job` plays a job, on every machine, so the same job gives the same bytes.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.agents.arguments import one_of
from fleetgym.agents.registry import parse_agent, refuse_edited
from fleetgym.evaluation.changes import encode_actions
from fleetgym.evaluation.isolation.agent_process import AgentProcess, Limits
from fleetgym.evaluation.isolation.agent_runner import AgentFailure, LocalAgent
from fleetgym.evaluation.isolation.official import BudgetSpent, OfficialAgent
from fleetgym.evaluation.isolation.rules import Rules
from fleetgym.evaluation.results_format import COST_TERMS, Costs, EpisodeResult, Failure, Timing
from fleetgym.files.documents import canonical_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.threads import one_thread

ISOLATION = ("auto", "always", "never")

#: Agent, instance, number of the scenario and seed, by which a results file names a job.
Key = tuple[str, str, int, int]


@dataclasses.dataclass(frozen=True)
class Job:
    """One episode to be played: everything that its result depends on."""

    agent: str  # as for `make_agent`
    instance: str  # id or path
    scenario: int  # number of a stored scenario
    seed: int = 0  # of the run

    @property
    def key(self) -> Key:
        """The job as the results file names it."""
        return self.agent, self.instance, self.scenario, self.seed

    @property
    def agent_seed(self) -> int:
        """Seed of the agent's own randomness: another one for every job."""
        return int.from_bytes(hashlib.sha256(canonical_json(self.key).encode()).digest()[:4], "big")


# -- one job


def run_job(
    job: Job,
    isolate: str = "auto",
    limits: Limits | None = None,
    watch: Callable[[str], object] | None = None,
    official: Rules | None = None,
) -> EpisodeResult:
    """Play one job. The same job gives the same result, up to its `timing`.

    Parameters
    ----------
    job : Job
        Agent, instance, scenario and seed.
    isolate : str
        ``"always"``: the agent runs in a process of its own, with limits; ``"never"``: in this one;
        ``"auto"``: reference agents, and those that only this process has, in this one, all others in their own.
    limits : Limits, optional
        Of an isolated agent.
    watch : callable, optional
        Called with a picture of every window as text.
    official : Rules, optional
        Those of an official run; `isolate` and `limits` say nothing then.

    Returns
    -------
    EpisodeResult
        With `failure` set if the agent failed; then the empty fleet ran from that window on.
    """
    agent: LocalAgent | AgentProcess
    with one_thread():
        if official is not None:
            agent = OfficialAgent(job.agent, official, job.instance)
        else:
            agent = _agent_for(job.agent, isolate, limits or Limits())
        try:
            return _Episode(job, watch).play(agent)
        finally:
            if official is not None or not isinstance(agent, AgentProcess):
                agent.close()


def play_actions(
    instance: str, scenario: int, actions: np.ndarray, name: str = "actions", seed: int = 0
) -> EpisodeResult:
    """Play given actions instead of an agent's.

    Parameters
    ----------
    instance : str
        Id or path.
    scenario : int
        Number of a stored scenario.
    actions : ndarray of int, shape (windows, slots)
        One option per window and slot; checked.
    name : str
        Stands for the agent in the result.
    seed : int
        Of the run, for the result.

    Returns
    -------
    EpisodeResult
        An invalid action shows as its `failure`.

    Examples
    --------
    >>> import numpy as np
    >>> play_actions("fleet-v0/toy/two-pools", 0, np.zeros((8, 2), dtype=int)).costs.rental
    0.0
    """
    return _Episode(Job(name, instance, scenario, seed)).play(_Script(actions))


class _Script:
    """Says what is written."""

    def __init__(self, actions: np.ndarray):
        self.actions = np.asarray(actions)

    speed = None

    def reset(self, instance: Instance, info: dict[str, Any], seed: int) -> float:
        return 0.0

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> tuple[list[int], float]:
        return self.actions[info["window"]].tolist(), 0.0


#: The isolated agents that this process keeps for their next job, one per thread, with the state of their code.
_kept: dict[int, tuple[AgentProcess, str | None]] = {}


def _agent_for(name: str, isolate: str, limits: Limits) -> LocalAgent | AgentProcess:
    one_of(ISOLATION, isolate=isolate)
    spec = parse_agent(name)
    if isolate == "never" or (isolate == "auto" and (spec.is_reference or spec.is_here)):
        refuse_edited(spec.target)
        return LocalAgent(name)
    thread, state = threading.get_ident(), spec.code_sha256
    kept, its_state = _kept.get(thread, (None, None))
    if kept is None or (kept.name, kept.limits, its_state) != (name, limits, state):
        if kept is not None:
            kept.close()
        kept = AgentProcess(name, limits)
        _kept[thread] = kept, state
    return kept


@atexit.register
def close_agents() -> None:
    """End the agent processes that this process keeps."""
    while _kept:
        _kept.popitem()[1][0].close()


class _Episode:
    """What is collected while a job is played."""

    def __init__(self, job: Job, watch: Callable[[str], object] | None = None):
        from fleetgym.envs.fleet_alloc import FleetAllocEnv

        self.job, self.watch = job, watch
        self.env = FleetAllocEnv(job.instance, render_mode=None if watch is None else "ansi")
        self.instance = self.env.instance
        self.scenario = stored_scenario(job.instance, job.scenario)
        self.actions = np.zeros((self.instance.num_windows, len(self.instance.slots)), dtype=np.int64)
        self.infos: list[dict[str, Any]] = []
        self.failure: Failure | None = None
        self.budget_spent_at: int | None = None
        self.reset_cpu_s = 0.0
        self.act_cpu_s: list[float] = []

    def play(self, agent: LocalAgent | AgentProcess | _Script) -> EpisodeResult:
        observation, info = self._observe(self.env.reset(seed=0, options={"scenario": self.scenario}))
        self._reset(agent, info)
        for window in range(self.instance.num_windows):
            self.actions[window] = self._act(agent, window, observation, info)
            observation, *_, info = self._observe(self.env.step(self.actions[window]))
            self.infos.append({name: np.array(info[name]) for name in _KEPT})  # the agent gets the original
            if self.watch is not None:
                self.watch(str(self.env.render()))
        return self._result(agent.speed)

    @staticmethod
    def _observe(returned: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what the environment returned; a stored scenario's name, which tells the future, is left out."""
        del returned[-1]["scenario"]
        return returned

    def _reset(self, agent: LocalAgent | AgentProcess | _Script, info: dict[str, Any]) -> None:
        try:
            self.reset_cpu_s = agent.reset(self.instance, info, self.job.agent_seed)
        except BudgetSpent as spent:
            self.reset_cpu_s = spent.cpu_s
            self.budget_spent_at = 0
        except AgentFailure as failure:
            self.failure = Failure(window=0, kind=failure.kind, message=failure.message)

    def _act(
        self,
        agent: LocalAgent | AgentProcess | _Script,
        window: int,
        observation: dict[str, Any],
        info: dict[str, Any],
    ) -> np.ndarray:
        """Return the agent's action, or what runs without it: nothing if it failed, else the running fleet."""
        nothing = np.zeros(len(self.instance.slots), dtype=np.int64)
        if self.failure is not None:
            return nothing
        if self.budget_spent_at is not None:
            return self._as_it_runs(info)
        try:
            action, cpu_s = agent.act(observation, info)
            self.act_cpu_s.append(cpu_s)
            return self._checked(action)
        except BudgetSpent as spent:
            self.act_cpu_s.append(spent.cpu_s)
            self.budget_spent_at = window
            return self._as_it_runs(info)
        except AgentFailure as failure:
            self.failure = Failure(window=window, kind=failure.kind, message=failure.message)
            return nothing

    def _as_it_runs(self, info: dict[str, Any]) -> np.ndarray:
        """Return the action that changes nothing: what runs or starts is wanted, what was lost is not asked for."""
        return self.env.actions.from_fleet(info["running"] + info["starting"].sum(axis=1))

    def _checked(self, action: object) -> np.ndarray:
        try:
            return self.env.actions.check(action)
        except DataError as error:
            raise AgentFailure("invalid-action", str(error)) from None

    def _result(self, speed: float | None) -> EpisodeResult:
        windows = [float(info["cost"]) for info in self.infos]
        return EpisodeResult(
            agent=self.job.agent,
            instance=self.job.instance,
            scenario=self.job.scenario,
            scenario_id=self.scenario.id,
            seed=self.job.seed,
            actions=encode_actions(self.actions),
            costs=Costs(**{name: math.fsum(info[name] for info in self.infos) for name in COST_TERMS}),
            cost_usd=math.fsum(windows),
            cost_per_window_usd=tuple(windows),
            miss_share=self._request_share("miss_share"),
            unserved_share=self._request_share("unserved_share"),
            forced_outages=sum(int(info["forced_outage"]) for info in self.infos),
            denied=sum(int(info["denied"].sum()) for info in self.infos),
            lost=sum(int(info["lost"].sum()) for info in self.infos),
            failure=self.failure,
            budget_spent_at_window=self.budget_spent_at,
            timing=Timing(reset_cpu_s=self.reset_cpu_s, act_cpu_s=tuple(self.act_cpu_s), speed=speed),
        )

    def _request_share(self, name: str) -> float:
        """Return the mean of a share over all requests of the episode."""
        rates = self.scenario.expanded(self.instance.num_windows).rate_rps
        requests = math.fsum(rates.ravel())
        bad = math.fsum(
            rate * share
            for row, info in zip(rates, self.infos, strict=True)
            for rate, share in zip(row, info[name], strict=True)
        )
        return min(1.0, bad / requests) if requests > 0 else 0.0


_KEPT = (*COST_TERMS, "cost", "miss_share", "unserved_share", "forced_outage", "denied", "lost")


def stored_scenario(instance: str, number: int) -> Scenario:
    """Return a stored scenario by its number.

    Raises
    ------
    FleetgymError
        If there is none with this number.
    """
    stored = load_scenarios(instance)
    if not 0 <= number < len(stored):
        raise FleetgymError(f"{instance} has {len(stored)} stored scenarios, numbered from 0; got {number}")
    return stored[number]
