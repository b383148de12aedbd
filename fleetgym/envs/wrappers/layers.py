"""A wrapped environment in, its wrappers one by one out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

from fleetgym.files.errors import FleetgymError


def layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Return the wrappers of an environment, the outermost first.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = gymnasium.make("fleetgym:FleetAlloc-v0", disable_env_checker=True)
    >>> [type(layer).__name__ for layer in layers(env)]
    ['OrderEnforcing']
    """
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def refuse_below(env: gymnasium.Env[Any, Any], kinds: tuple[type, ...], message: str) -> None:
    """Raise `FleetgymError` if a wrapper of `env` is one of `kinds`; the message begins with its name."""
    for layer in layers(env):
        if isinstance(layer, kinds):
            raise FleetgymError(f"{type(layer).__name__} {message}")
