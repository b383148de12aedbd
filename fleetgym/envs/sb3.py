"""Connect the batched environment to stable-baselines3, and save policies with what they were trained on."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from fleetgym.envs.policy_agent import PolicyAgent, Statistics
from fleetgym.envs.wrappers import LearningEnv, LearningVectorEnv, for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.errors import FleetgymError
from fleetgym.model import library

#: What a saved policy says of its training, beside what stable-baselines3 keeps.
_RECORD = "fleetgym.json"
#: Where the classes of models may come from.
_LIBRARIES = ("stable_baselines3.", "sb3_contrib.")


class BatchedVecEnv(VecEnv):
    """Let stable-baselines3 and sb3-contrib train on ``gymnasium.make_vec("fleetgym:FleetAlloc-v0", ...)``.

    Observations, rewards, ends and masks are those of SB3's `DummyVecEnv` over as many single environments, bit
    for bit.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        With autoreset mode ``"SameStep"``, which is what SB3 expects.
    info_keys : sequence of str
        Which numbers of the infos each environment's info holds. What is left out costs no time.

    Raises
    ------
    FleetgymError
        If the autoreset mode is another one.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> envs = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=3, autoreset_mode="SameStep")
    >>> vec_env = BatchedVecEnv(envs)
    >>> vec_env.reset()["demand"].shape, vec_env.env_method("action_masks")[0].shape
    ((3, 4), (159,))
    >>> vec_env.close()
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], info_keys: Sequence[str] = ("cost",)):
        if envs.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise FleetgymError("make the vector environment with autoreset_mode='SameStep'")
        self.envs: Any = envs
        self.info_keys = tuple(info_keys)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Start all episodes, with the seeds given to `seed` and the options given to `set_options`.

        Raises
        ------
        FleetgymError
            For options that differ from environment to environment.
        """
        options = self._options[0]
        if any(other is not options and other != options for other in self._options):
            raise FleetgymError("set_options: the environments of a batch have the same options, got several")
        observation, self.infos = self.envs.reset(seed=list(self._seeds), options=options)
        self.reset_infos = self._split(self.infos)
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        """Note the actions, (N, slots)."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Let one window happen; return observations, rewards, dones and a list of infos."""
        observation, rewards, terminated, truncated, self.infos = self.envs.step(self._actions)
        dones, infos = terminated | truncated, self._split(self.infos)
        for k in np.flatnonzero(dones):
            infos[k] = {key: self.infos["final_info"][key][k] for key in self.info_keys}
            infos[k]["terminal_observation"] = self.infos["final_obs"][k]
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
        return observation, rewards.astype(np.float32), dones, infos

    def _split(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        columns = [infos[key] for key in self.info_keys]
        return [dict(zip(self.info_keys, row, strict=True)) for row in zip(*columns, strict=True)] or [
            {} for _ in range(self.num_envs)
        ]

    def close(self) -> None:
        """Close the vector environment."""
        self.envs.close()

    # -- what SB3 asks of single environments ---------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the vector environment's attribute, once per environment; ``"instance"`` is each one's own."""
        own = self.envs.unwrapped.get_attr(attr_name)
        return [own[k] for k in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Give some of the environments an attribute; see `FleetAllocVectorEnv.set_attr`."""
        batch = self.envs.unwrapped
        try:
            own = list(batch.get_attr(attr_name))
        except AttributeError:
            own = [None] * self.num_envs
        for k in self._get_indices(indices):
            own[k] = value
        batch.set_attr(attr_name, own)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the vector environment that returns one row per environment, such as `action_masks`."""
        rows = getattr(self.envs, method_name)(*args, **kwargs)
        return [rows[k] for k in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(list(self._get_indices(indices)))


# -- files of policies


def save_policy(model: Any, path: str | os.PathLike[str]) -> Path:
    """Save a model with what it takes to score it: instances, wrappers, and statistics of a `VecNormalize`.

    Parameters
    ----------
    model : BaseAlgorithm
        Of stable-baselines3 or sb3-contrib, trained behind `for_learning`, with its environment.
    path : path-like
        A ``.zip`` file, which the model's own ``load`` reads, too.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FleetgymError
        If the model has no environment, or one that is not behind `for_learning`.
    """
    envs, kind = model.get_env(), type(model)
    if envs is None:
        raise FleetgymError(
            "the model has no environment: save it where it was trained, or call set_env first"
        )
    learning = _learning_of(envs)
    normalize = model.get_vec_normalize_env()
    statistics = None if normalize is None else Statistics.of(normalize)
    instances = list(dict.fromkeys(one.content_hash for one in envs.get_attr("instance")))
    record = {
        "class": f"{kind.__module__}:{kind.__name__}",
        "instances": instances,
        "steps": int(model.num_timesteps),
        "arguments": {name: learning[name] for name in ("actions", "mask_in_observation")},
        "is_normalized": statistics is not None,
    }
    if statistics is not None:
        record["mean"], record["variance"] = statistics.mean.tolist(), statistics.variance.tolist()
        record["epsilon"], record["most"] = statistics.epsilon, statistics.most
    file = Path(path)
    file = file if file.suffix == ".zip" else file.with_name(f"{file.name}.zip")
    model.save(file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(_RECORD, json.dumps(record, indent=1))
    return file


def _learning_of(envs: Any) -> dict[str, Any]:
    """Return the arguments of `for_learning` that made a model's environments."""
    base = envs
    while hasattr(base, "venv"):
        base = base.venv
    inner = base.envs if isinstance(base, BatchedVecEnv) else getattr(base, "envs", [None])[0]
    found: LearningVectorEnv | LearningEnv | None = inner if isinstance(inner, LearningVectorEnv) else None
    if isinstance(inner, gymnasium.Env):
        found = next((layer for layer in layers(inner) if isinstance(layer, LearningEnv)), None)
    if found is None:
        raise FleetgymError(
            "the model was not trained behind for_learning: use its own save, and PolicyAgent with its wrappers"
        )
    return found._saved_kwargs


def load_policy(path: str | os.PathLike[str]) -> PolicyAgent:
    """Return the agent of a policy that `save_policy` saved.

    Parameters
    ----------
    path : path-like
        A file of `save_policy`. Like any file of stable-baselines3 it holds pickled objects: load only what you trust.

    Raises
    ------
    FleetgymError
        If the file is none of `save_policy`, which may lack the statistics of a `VecNormalize`, or its statistics are
        missing.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            record = json.loads(archive.read(_RECORD))
    except (OSError, zipfile.BadZipFile) as error:
        raise FleetgymError(f"{name}: no policy ({error})") from None
    except (KeyError, ValueError):
        raise FleetgymError(
            f"{name} does not say how it was trained, and whether observations were normalised: save it with "
            "fleetgym.envs.sb3.save_policy"
        ) from None
    try:
        module, _, kind = record["class"].partition(":")
        if not module.startswith(_LIBRARIES):
            raise FleetgymError(f"{name}: {module} is none of stable-baselines3's and sb3-contrib's modules")
        statistics = None
        if record["is_normalized"]:
            if "mean" not in record or "variance" not in record:
                raise FleetgymError(f"{name} was trained with VecNormalize, and its statistics are missing")
            arrays = np.array(record["mean"]), np.array(record["variance"])
            statistics = Statistics(*arrays, float(record["epsilon"]), float(record["most"]))
        arguments, hashes = dict(record["arguments"]), set(record["instances"])
    except (KeyError, TypeError, ValueError) as error:
        raise FleetgymError(f"{name}: {_RECORD} lacks or garbles {error}") from None
    model = getattr(importlib.import_module(module), kind).load(path, device="cpu")
    known = [each for each, entry in library.entries().items() if entry.content_hash in hashes]
    return PolicyAgent(model, lambda env: for_learning(env, **arguments), statistics, known)
