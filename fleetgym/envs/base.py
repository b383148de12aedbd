"""Make environments copyable, and their specifications writable as JSON."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from gymnasium.envs.registration import EnvSpec

from fleetgym.model.instance import Instance


class PortableEnv:
    """Let ``copy.copy`` also copy the episode, and ``spec.to_json()`` work; a base class to put before Gymnasium's.

    Examples
    --------
    >>> import fleetgym, gymnasium
    >>> from gymnasium.envs.registration import EnvSpec
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance)
    >>> again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    >>> again.unwrapped.instance.content_hash == instance.content_hash
    True
    """

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """How `gymnasium.make` made the environment; an `Instance` among the arguments is there in its file form."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec = dataclasses.replace(spec, kwargs={name: _plain(v) for name, v in spec.kwargs.items()})
        self._spec = spec

    def __copy__(self) -> Any:
        """Return an independent environment: a shallow copy would play the same episode."""
        return copy.deepcopy(self)


def _plain(value: Any) -> Any:
    """Return an argument with every instance in its file form."""
    if isinstance(value, Instance):
        return value.to_dict()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
