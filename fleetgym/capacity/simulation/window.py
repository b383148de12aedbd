"""Compare the late requests of a window by the closed form with those of a simulation.

The simulated fleet is the environment's: each slot is a server, each configuration one queue, requests are split by
the shares of the routing LP, service times have the instance's mean and cv2. Prompts have the law that the instance
states, in the time to their first tokens. What the closed form leaves out, the simulation has:
the law of the service times beyond its second moment, KV memory request by request, and waits as a part of the delay.
Compute is no resource of its own; the routing keeps it within its limit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.arrivals import Arrivals, Poisson, Renewal
from fleetgym.capacity.simulation.fleet import Pool, TokenTime, Workload
from fleetgym.capacity.simulation.routers import Random
from fleetgym.capacity.simulation.run import Simulation, simulate
from fleetgym.evaluation.changes import decode_actions
from fleetgym.evaluation.jobs import Job, run_job, stored_scenario
from fleetgym.files.errors import FleetgymError
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance
from fleetgym.model.planning import Snapshot
from fleetgym.model.window import COST_TERMS, WindowResult, window_model
from fleetgym.scoring.statistics import Estimate

_REPLACED = tuple(COST_TERMS.index(name) for name in ("delay", "slo", "late"))


@dataclasses.dataclass(frozen=True, eq=False)
class PlayedWindow:
    """One window of an episode: what it brought and what the environment made of it."""

    instance: Instance
    window: int
    conditions: Conditions
    result: WindowResult

    @functools.cached_property
    def snapshot(self) -> Snapshot:
        """Delays, service times and so on of this window."""
        model = window_model(self.instance)
        return model.snapshot(model.initial_state(), self.conditions)


def played_windows(
    instance: str, agent: str, scenario: int = 0, windows: Sequence[int] = (0,), seed: int = 0
) -> list[PlayedWindow]:
    """Play an agent's episode and return some of its windows.

    Parameters
    ----------
    instance : str
        Id or path.
    agent : str
        As for `make_agent`.
    scenario : int
        Number of a stored scenario.
    windows : sequence of int
        The windows wanted.
    seed : int
        Of the run.

    Returns
    -------
    list of PlayedWindow
        In the order of `windows`.

    Raises
    ------
    FleetgymError
        If the agent fails, or there is no such window.
    """
    problem = load_instance(instance)
    for window in windows:
        _check_window(instance, problem, window)
    drawn = stored_scenario(instance, scenario)
    episode = run_job(Job(agent, instance, scenario, seed))
    if episode.failure is not None:
        failure = episode.failure
        raise FleetgymError(f"{agent} failed in window {failure.window}: {failure.kind}: {failure.message}")
    model = window_model(problem)
    state, router = model.initial_state(), model.new_router()
    space = ActionSpace(problem)
    actions = decode_actions(episode.actions, problem.num_windows, space.nvec.tolist())
    found = {}
    for window in range(max(windows) + 1):
        conditions = Conditions.of(drawn, window)
        result = model.step(state, space.to_fleet(actions[window]), conditions, router)
        if window in windows:
            found[window] = PlayedWindow(problem, window, conditions, result)
    return [found[window] for window in windows]


def held_windows(
    instance: str, fleet: np.ndarray, scenario: int = 0, windows: Sequence[int] = (0,)
) -> list[PlayedWindow]:
    """Return windows of a stored scenario in each of which a fleet serves that was running before.

    Parameters
    ----------
    instance : str
        Id or path.
    fleet : ndarray of int, shape (C,)
        Replicas that are held.
    scenario : int
        Which day.
    windows : sequence of int
        The windows wanted.

    Returns
    -------
    list of PlayedWindow
        In the order of `windows`.
    """
    problem, drawn = load_instance(instance), stored_scenario(instance, scenario)
    model, found = window_model(problem), []
    for window in windows:
        _check_window(instance, problem, window)
        conditions, state = Conditions.of(drawn, window), model.initial_state()
        state.replicas[:, 0] = fleet
        result = model.step(state, fleet, conditions, model.new_router())
        found.append(PlayedWindow(problem, window, conditions, result))
    return found


def _check_window(name: str, instance: Instance, window: int) -> None:
    if not 0 <= window < instance.num_windows:
        raise FleetgymError(f"{name} has windows 0 to {instance.num_windows - 1}; got {window}")


# -- the fleet that serves in a window


def window_fleet(
    played: PlayedWindow, law: str = "gamma"
) -> tuple[list[Pool], list[Workload], np.ndarray, np.ndarray]:
    """Return what serves and what arrives in a window, in the simulator's terms.

    Parameters
    ----------
    played : PlayedWindow
        The window.
    law : str
        Of the service times.

    Returns
    -------
    pools : list of Pool
        One per serving configuration.
    workloads : list of Workload
        One per workload that is present and not wholly unserved.
    shares : ndarray, shape (W, P)
        Of the routing; what is missing from 1 is unserved.
    rows : ndarray of int, shape (W,)
        The workloads' indices in the instance.
    """
    instance, result, s = played.instance, played.result, played.snapshot
    columns = np.flatnonzero((result.serving > 0) & (result.routing.sum(axis=0) > 0.0))
    rows = np.flatnonzero((played.conditions.rate_rps > 0.0) & (result.routing.sum(axis=1) > 1e-9))
    memory_gb = [_stated_gb(instance, int(c)) for c in columns]
    # A request grows while it generates: on average over its stay it holds half of its output. Without the GPUs'
    # memory, an instance reserves room for whole requests.
    grown = 0.5 if memory_gb and None not in memory_gb else 1.0
    sent = played.conditions.rate_rps[:, None] * result.routing
    held = np.array(
        [
            (w.input_tokens + grown * w.output_tokens, w.input_tokens + w.output_tokens)
            for w in instance.workloads
        ]
    )
    pools = [
        _pool(instance, int(c), int(result.serving[c]), gb, sent[:, c] @ held)
        for c, gb in zip(columns, memory_gb, strict=True)
    ]
    # Families without a queue give no service time: there a request holds its memory for its delay.
    holding_s = np.where(s.service_s > 0.0, s.service_s, s.delay_s)
    mean_tokens = np.array([w.input_tokens for w in instance.workloads]) * played.conditions.input_scale
    # What of a mean prefill varies with the prompt.
    varying = np.where([w.input_law is not None for w in instance.workloads], mean_tokens, 0.0)
    prompt_s = (played.conditions.delay_factor * varying)[
        :, None
    ] * instance.performance.prefill_s.per_input_token
    workloads = []
    for i in rows:
        w = instance.workloads[i]
        here, tokens = result.routing[i, columns] > 0.0, int(np.ceil(mean_tokens[i]))
        workloads.append(
            Workload(
                name=w.id,
                arrivals=arrivals(float(played.conditions.rate_rps[i]), w.arrival_cv2),
                service_s=np.where(here, holding_s[i, columns], np.nan),
                service_cv2=np.array(instance.performance.service_cv2)[i, columns],
                law=law,
                prefill_s=TokenTime(
                    s.prefill_s[i, columns] - prompt_s[i, columns], prompt_s[i, columns] / tokens
                ),
                input_tokens=tokens,
                prompt_law=w.input_law,
                output_tokens=int(np.ceil(grown * w.output_tokens * played.conditions.output_scale[i])),
                ttft_slo_s=np.inf if w.ttft_slo_s is None else w.ttft_slo_s,
            )
        )
    return pools, workloads, result.routing[np.ix_(rows, columns)], rows


def _stated_gb(instance: Instance, c: int) -> float | None:
    return None if instance.stated is None else instance.stated.memory_gb(instance.configurations[c].id)


def _pool(instance: Instance, c: int, replicas: int, memory_gb: float | None, held: np.ndarray) -> Pool:
    """Return a configuration's pool; `held` are its requests' tokens on average and at the end, (2,).

    A plan counts memory in whole requests, and how many fit rests on how long requests of each length stay. Where
    that is more than the mean request takes of the GPUs' memory, it is what the simulated replica has.
    """
    configuration = instance.configurations[c]
    per_token, slots = configuration.kv_gb_per_token, configuration.max_concurrency
    tokens = None
    if per_token > 0.0:
        most = configuration.kv_capacity_gb / per_token
        if memory_gb is not None:
            rounded = 2.0 * slots  # lengths are rounded up
            most = max(memory_gb / per_token, most * held[0] / held[1] + rounded)
        tokens = min(10**12, int(most))
    return Pool(name=configuration.id, replicas=replicas, slots=slots, kv_tokens=tokens)


def arrivals(rate_rps: float, cv2: float) -> Arrivals:
    """Return the stream of a rate and an `arrival_cv2`."""
    return Poisson(rate_rps) if cv2 == 1.0 else Renewal(rate_rps, cv2)


def window_warmup_s(pools: Sequence[Pool], workloads: Sequence[Workload], shares: np.ndarray) -> float:
    """Return ten mean service times and ten relaxation times of the slowest pool."""
    longest = 0.0
    for p, pool in enumerate(pools):
        rate = np.array([w.rate_rps for w in workloads]) * shares[:, p]
        seconds = np.array([np.asarray(w.service_time.base_s)[p] for w in workloads])
        busy = float(rate[rate > 0] @ seconds[rate > 0])
        if busy <= 0.0:
            continue
        mean_s, slack = busy / float(rate.sum()), 1.0 - min(0.99, busy / max(1, pool.servers)) ** 0.5
        longest = max(longest, 10.0 * mean_s * (1.0 + 1.0 / (max(1, pool.servers) * slack**2)))
    return longest


# -- the comparison


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Verdict:
    """Closed form and simulation of one window; shares are of a workload's requests, (I,), NaN where it is absent."""

    played: PlayedWindow
    simulation: Simulation | None  # None where nothing is served
    predicted: np.ndarray  # miss share by the closed form
    simulated: Estimate  # miss share by simulation, unserved requests included
    mean_wait_s: np.ndarray  # simulated
    terms_usd: np.ndarray  # (8,) cost terms with simulated waits and late requests

    @property
    def cost_usd(self) -> float:
        """Cost of the window with simulated waits and late requests."""
        return float(self.terms_usd.sum())


def check_window(
    played: PlayedWindow, *, law: str = "gamma", seed: int = 0, max_requests: int = 1_000_000, **options: Any
) -> Verdict:
    """Simulate a window's fleet in the steady state of its demand, and compare with the closed form.

    Parameters
    ----------
    played : PlayedWindow
        From `played_windows`.
    law : str
        Of the service times, see `fleetgym.capacity.simulation.laws.LAWS`.
    seed : int
        Of the simulation.
    max_requests : int
        About the most requests of one replication: a longer warm-up or window is cut to fit.
    **options
        For `simulate`.

    Returns
    -------
    Verdict
    """
    instance, result = played.instance, played.result
    present = played.conditions.rate_rps > 0.0
    unserved = np.where(present, result.unserved_share, np.nan)
    predicted = np.where(present, result.miss_share, np.nan)
    mean, half, wait_s = unserved.copy(), np.zeros(len(unserved)), np.zeros(len(unserved))
    pools, workloads, shares, rows = window_fleet(played, law)
    simulation = None
    if pools and workloads:
        rate = sum(w.rate_rps for w in workloads)
        warmup_s = min(window_warmup_s(pools, workloads, shares), 0.4 * max_requests / rate)
        window_s = min(max(instance.window_s, warmup_s), 0.6 * max_requests / rate)
        simulation = simulate(
            pools,
            workloads,
            router=Random(shares),
            window_s=options.pop("window_s", window_s),
            warmup_s=options.pop("warmup_s", warmup_s),
            seed=seed,
            **options,
        )
        routed = simulation.routed_miss_share
        served = 1.0 - result.unserved_share[rows]
        mean[rows] += served * np.nan_to_num(routed.mean)
        half[rows] = served * routed.half_width
        wait_s[rows] = np.nan_to_num(simulation.mean_wait_s.mean)
    return Verdict(
        played=played,
        simulation=simulation,
        predicted=predicted,
        simulated=Estimate(mean, half),
        mean_wait_s=wait_s,
        terms_usd=replaced_terms(played, np.nan_to_num(mean - unserved), wait_s),
    )


def replaced_terms(played: PlayedWindow, late: np.ndarray, wait_s: np.ndarray) -> np.ndarray:
    """Return the window's cost terms with other late shares, and with waits in the delays (model page, section 6)."""
    instance, s, routing = played.instance, played.snapshot, played.result.routing
    days = instance.window_s / 86400.0
    weight = s.requests if instance.penalty_basis == "request" else np.where(s.rate_rps > 0.0, days, 0.0)
    late_usd = np.array([w.late_usd for w in instance.workloads])
    delay_usd = np.array([w.delay_usd_per_s for w in instance.workloads])
    delay_slo = np.array([w.mean_delay_slo_s for w in instance.workloads])
    error_slo = np.array([w.error_slo for w in instance.workloads])
    delay_s = (routing * s.delay_s).sum(axis=1) + routing.sum(axis=1) * wait_s
    error = (routing * s.error).sum(axis=1)
    excess = np.maximum(0.0, delay_s / delay_slo - routing.sum(axis=1))
    excess += np.maximum(0.0, error / error_slo - routing.sum(axis=1))
    terms = played.result.terms_usd.copy()
    terms[list(_REPLACED)] = (
        weight @ (delay_usd * delay_s),
        s.unserved_usd @ excess,
        s.requests @ (late_usd * late),
    )
    return terms
