"""Check the installation."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable

from fleetgym.cli.checks import Check, attempt

_NEEDED = ("gymnasium", "numpy", "scipy", "numba", "pandas", "highspy")


def doctor() -> list[Check]:
    """Check the installation: packages, caches, instances, agents, and a tiny episode."""
    looks: list[tuple[str, Callable[[], str]]] = [
        ("fleetgym", _version),
        ("packages", _packages),
        ("agents", _agents),
        ("instances", _instances),
        ("best-known costs", _best_known),
    ]
    checks = [attempt(name, look) for name, look in [*looks, ("episode", _episode)]]
    return [*checks, _cache(), attempt("process", _isolated_episode)]


def _version() -> str:
    from fleetgym.runtime.places import PACKAGE
    from fleetgym.runtime.version import __version__

    return f"{__version__} at {PACKAGE}, Python {platform.python_version()}"


def _packages() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _NEEDED)


def _agents() -> str:
    from fleetgym.agents.registry import agent_entries, load_target

    entries = agent_entries()
    broken = []
    for entry in entries.values():
        try:
            load_target(entry.target)
        except Exception as error:
            broken.append(f"{entry.name} ({entry.distribution}): {error}")
    if broken:
        raise ImportError("; ".join(broken))
    foreign = sorted({entry.distribution for entry in entries.values() if not entry.is_reference})
    return f"{len(entries)} by name" + (f", some from {', '.join(foreign)}" if foreign else "")


def _instances() -> str:
    from fleetgym.files.documents import file_sha256
    from fleetgym.model.library import entries
    from fleetgym.model.sets import folder_of, set_folders

    known = entries()
    for entry in known.values():
        folder = folder_of(entry.id)
        for relative, sha256 in (
            (entry.instance_file, entry.instance_sha256),
            (entry.scenario_file, entry.scenario_sha256),
        ):
            if file_sha256(folder / relative) != sha256:
                raise ValueError(f"{folder / relative} was changed; reinstall, or restore it")
    return f"{len(known)} in {' and '.join(map(str, set_folders()))}, checksums as published"


def _best_known() -> str:
    from fleetgym.model.library import entries
    from fleetgym.scoring.best_known import best_known_path, read_best_known

    suites = sorted({name.partition("/")[0] for name in entries()})
    told = []
    for suite in suites:
        path = best_known_path(suite)
        if path.is_file():
            best = read_best_known(path)
            told.append(f"{suite}: {best.name}, {len(best.tasks)} tasks")
        else:
            told.append(f"{suite}: none yet")
    return ", ".join(told)


def _cache() -> Check:
    """Say whether the kernels of the episode that was just played came from the cache."""
    from fleetgym.kernels.compile import check_cache

    state = check_cache()
    if state.folder is None:
        detail = "no folder is writable, so kernels compile in every process; set FLEETGYM_CACHE_DIR"
        return Check("cache", False, detail, is_warning=True)
    if state.damaged:
        detail = f"{state.folder} has damaged files ({len(state.damaged)}); the next process replaces them"
        return Check("cache", False, detail, is_warning=True)
    if state.compiled:
        detail = f"{state.folder} was cold: {len(state.compiled)} kernels were compiled now, and kept"
        return Check("cache", False, detail, is_warning=True)
    return Check("cache", True, f"{state.folder} is warm: the kernels were loaded from it, and ran")


def _toy() -> str:
    from fleetgym.model.library import list_instances

    toys = [name for name in list_instances() if "/toy/" in name]
    return (toys or list_instances())[0]


def _episode() -> str:
    from fleetgym.evaluation.jobs import play_actions
    from fleetgym.scoring.comparison import nominal_actions

    toy = _toy()
    return f"{toy} with its nominal fleet: {play_actions(toy, 0, nominal_actions(toy)).cost_usd:.2f} USD"


def _isolated_episode() -> str:
    from fleetgym.evaluation.jobs import Job, close_agents, run_job

    episode = run_job(Job("hold", _toy(), 0), isolate="always")
    close_agents()
    if episode.failure is not None:
        raise RuntimeError(f"an agent in its own process failed: {episode.failure.message}")
    return "an agent in its own process played too"


def warmup() -> str:
    """Compile what environments and quick agents need, and keep it; return where."""
    from fleetgym.agents.view import View
    from fleetgym.evaluation.isolation.agent_runner import load_kernels
    from fleetgym.evaluation.jobs import Job, run_job
    from fleetgym.kernels.compile import cache_folder
    from fleetgym.model.library import load_instance

    agents = ("hold", "gh", "agh", "margin", "lookahead", "ppo")
    load_kernels(load_instance(_toy()), agents)
    for name in agents:
        run_job(Job(name, _toy(), 0), isolate="never")
    view = View(_toy())
    view.steady_cost_usd(view.fleet)  # as agents ask for it
    folder = cache_folder()
    return "nothing can be kept: no folder is writable" if folder is None else str(folder)
