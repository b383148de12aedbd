"""Pictures of a window: a fleet state and its costs in, text out."""

from __future__ import annotations

import numpy as np

from fleetgym.instance import Instance
from fleetgym.window import FleetState, Outcome, WindowResult

_BAR = 20


def _bar(share: float) -> str:
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * filled + "·" * (_BAR - filled)


def _pool_lines(instance: Instance, state: FleetState, seen: Outcome) -> list[str]:
    held = instance.gpu_use @ state.replicas.sum(axis=1)
    lines = []
    for g, pool in enumerate(instance.pools):
        share = held[g] / max(1, pool.cap_gpus)
        lines.append(
            f"  {pool.id:<24} {_bar(share)} {held[g]:>5} held  {seen.available_gpus[g]:>5} available"
            f"  {pool.cap_gpus:>5} cap"
        )
    return lines


def _workload_lines(instance: Instance, seen: Outcome, result: WindowResult) -> list[str]:
    lines = []
    for i, workload in enumerate(instance.workloads):
        served = 1.0 - float(result.unserved_share[i])
        lines.append(
            f"  {workload.id:<24} {_bar(served)} {seen.rate_rps[i]:>9.3f} req/s  "
            f"{100 * result.unserved_share[i]:>5.1f} % unserved  {100 * result.miss_share[i]:>5.1f} % missed"
        )
    return lines


def _fleet_lines(instance: Instance, state: FleetState) -> list[str]:
    lines = []
    starting, draining = state.starting.sum(axis=1), state.draining.sum(axis=1)
    for c in np.flatnonzero(state.replicas.sum(axis=1)):
        lines.append(
            f"  {instance.configurations[c].id:<40} {state.running[c]:>4} running"
            f"  {starting[c]:>3} starting  {draining[c]:>3} draining"
        )
    return lines or ["  (no replicas)"]


def render_ansi(instance: Instance, state: FleetState, seen: Outcome, result: WindowResult | None) -> str:
    """Return the state before the coming window, and what the last one cost, as text.

    Parameters
    ----------
    instance : Instance
        The problem.
    state : FleetState
        The fleet.
    seen : Outcome
        The outcome seen last.
    result : WindowResult or None
        The window played last; None before the first.

    Returns
    -------
    str
        Lines of at most about 110 characters.
    """
    clock = divmod(int(state.window * instance.window_s) // 60, 60)
    head = f"{instance.id}  window {state.window}/{instance.num_windows}  {clock[0] % 24:02d}:{clock[1]:02d}"
    lines = [head, "pools", *_pool_lines(instance, state, seen), "fleet", *_fleet_lines(instance, state)]
    if result is not None:
        lines += ["workloads (last window)", *_workload_lines(instance, seen, result)]
        terms = "  ".join(f"{name} {usd:.4g}" for name, usd in result.costs().items() if usd)
        lines.append(f"USD  {terms}")
    return "\n".join(lines)
