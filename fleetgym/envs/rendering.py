"""Show an episode as text, as an RGB array, or on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np

from fleetgym.envs.record import EpisodeRecord
from fleetgym.envs.screen import Screen
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import FleetState, WindowResult

_BAR = 20


def checked_render_mode(mode: str | None, modes: Sequence[str]) -> str | None:
    """Return a render mode that an environment has, or raise FleetgymError."""
    if mode not in (None, *modes):
        raise FleetgymError(f"render_mode must be one of {list(modes)}, got {mode!r}")
    return mode


def has_render_mode(mode: str | None) -> bool:
    """Return True if the environment was made to be shown; warn if it was not."""
    if mode is None:
        gymnasium.logger.warn("render() without a render_mode: make the env with render_mode='ansi'")
    return mode is not None


def _bar(share: float) -> str:
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * filled + "·" * (_BAR - filled)


def _pool_lines(instance: Instance, state: FleetState, seen: Conditions) -> list[str]:
    held = instance.gpu_use @ state.replicas.sum(axis=1)
    lines, width = [], max(24, *(len(pool.id) for pool in instance.pools))
    for g, pool in enumerate(instance.pools):
        share = held[g] / max(1, pool.cap_gpus)
        lines.append(
            f"  {pool.id:<{width}} {_bar(share)} {held[g]:>5} held  {seen.available_gpus[g]:>5} available"
            f"  {pool.cap_gpus:>5} cap"
        )
    return lines


def _workload_lines(instance: Instance, played: Conditions, result: WindowResult) -> list[str]:
    lines, width = [], max(24, *(len(workload.id) for workload in instance.workloads))
    for i, workload in enumerate(instance.workloads):
        served = 1.0 - float(result.unserved_share[i])
        lines.append(
            f"  {workload.id:<{width}} {_bar(served)} {played.rate_rps[i]:>9.3f} req/s  "
            f"{100 * result.unserved_share[i]:>5.1f} % unserved  {100 * result.miss_share[i]:>5.1f} % missed"
        )
    return lines


def _fleet_lines(instance: Instance, state: FleetState) -> list[str]:
    lines = []
    width = max(40, *(len(configuration.id) for configuration in instance.configurations))
    starting, draining = state.starting.sum(axis=1), state.draining.sum(axis=1)
    for c in np.flatnonzero(state.replicas.sum(axis=1)):
        lines.append(
            f"  {instance.configurations[c].id:<{width}} {state.running[c]:>4} running"
            f"  {starting[c]:>3} starting  {draining[c]:>3} draining"
        )
    return lines or ["  (no replicas)"]


def render_ansi(
    instance: Instance,
    state: FleetState,
    seen: Conditions,
    last: tuple[Conditions, WindowResult] | None = None,
) -> str:
    """Return the state before the coming window, and the cost of the last one, as text.

    Parameters
    ----------
    instance : Instance
        The problem.
    state : FleetState
        The fleet.
    seen : Conditions
        The conditions seen last, whose availability is shown.
    last : tuple of Conditions and WindowResult, optional
        The window played last and what it cost; None before the first.

    Returns
    -------
    str
        Lines of at most about 110 characters.
    """
    clock = divmod(int(state.window * instance.window_s) // 60, 60)
    head = f"{instance.id}  window {state.window}/{instance.num_windows}  {clock[0] % 24:02d}:{clock[1]:02d}"
    lines = [head, "pools", *_pool_lines(instance, state, seen), "fleet", *_fleet_lines(instance, state)]
    if last is not None:
        lines += ["workloads (last window)", *_workload_lines(instance, *last)]
        terms = "  ".join(f"{name} {usd:.4g}" for name, usd in last[1].costs().items() if usd)
        lines.append(f"USD  {terms}")
    return "\n".join(lines)


class Viewer:
    """Draws an environment's pictures, and records the episode if the render mode needs that.

    Parameters
    ----------
    instance : Instance
        The problem.
    render_mode : str or None
        Of the environment; pictures are made for ``"rgb_array"`` and ``"human"``.
    fps : float
        Frames per second of the window on the screen.

    Raises
    ------
    FleetgymError
        If pictures are wanted and Pillow or pygame is missing.
    """

    def __init__(self, instance: Instance, render_mode: str | None, fps: float):
        self.instance, self.render_mode = instance, render_mode
        self._record: EpisodeRecord | None = None
        if render_mode in ("rgb_array", "human"):
            from fleetgym.envs.picture import (
                Picture,
            )  # needs Pillow, which an environment without pictures does not

            self._picture = Picture(instance)
            self._screen = Screen(f"fleetgym: {instance.id}", fps) if render_mode == "human" else None

    def begin(self) -> None:
        """Start a new record."""
        if self.render_mode in ("rgb_array", "human"):
            self._record = EpisodeRecord(self.instance)
            self._show()

    def add(self, played: Conditions, result: WindowResult) -> None:
        """Note the window just played; a window on the screen shows it at once."""
        if self._record is not None:
            self._record.add(played, result)
            self._show()

    def render(self) -> np.ndarray | None:
        """Return the episode so far as an array, or show it; before the first reset an empty day."""
        if self._record is None:
            self._record = EpisodeRecord(self.instance)
        if self.render_mode == "human":
            self._show()
            return None
        return self._picture.draw(self._record)

    def _show(self) -> None:
        if self.render_mode == "human" and self._screen is not None and self._record is not None:
            self._screen.show(self._picture.draw(self._record))

    def close(self) -> None:
        """Close the window on the screen, if there is one."""
        if self.render_mode == "human" and self._screen is not None:
            self._screen.close()
