"""List the wrappers of a wrapped environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium


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
