"""Connect batches of episodes to stable-baselines3, with settings that learn, and save policies that can be scored."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecCheckNan, VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from fleetgym.agents.arguments import is_number
from fleetgym.envs.batch import shape_of
from fleetgym.envs.policy_agent import PolicyAgent, Statistics
from fleetgym.envs.wrappers import LearningEnv, LearningVectorEnv, for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.archives import open_archive
from fleetgym.files.errors import FleetgymError
from fleetgym.model import library
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource

#: What a saved policy says of its training, beside what stable-baselines3 keeps.
_RECORD = "fleetgym.json"
#: Where the classes of models may come from.
_LIBRARIES = ("stable_baselines3.", "sb3_contrib.")
#: What the infos of `for_learning` say of a day, at its end.
DAY_KEYS = ("day_usd", "day_percent", "day_miss_share")


class BatchedVecEnv(VecEnv):
    """Let stable-baselines3 and sb3-contrib train on ``gymnasium.make_vec("fleetgym:FleetAlloc-v0", ...)``.

    Observations, rewards, ends and masks are those of SB3's `DummyVecEnv` over as many single environments, bit
    for bit.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        With autoreset mode ``"SameStep"``, which is what SB3 expects.
    info_keys : sequence of str
        Which numbers of the infos each environment's info holds. What is left out costs no time. At the end of an
        episode, what `for_learning` tells of the day is there, too: see `DAY_KEYS`.

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
        """Play one window; return observations, rewards, dones and a list of infos."""
        observation, rewards, terminated, truncated, self.infos = self.envs.step(self._actions)
        dones, infos = terminated | truncated, self._split(self.infos)
        for k in np.flatnonzero(dones):
            final = self.infos["final_info"]
            infos[k] = {key: final[key][k] for key in (*self.info_keys, *DAY_KEYS) if key in final}
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
        """Return a row of `action_masks` for each environment.

        Raises
        ------
        FleetgymError
            For every other method: a batch does it for all at once.
        """
        if method_name != "action_masks":
            raise FleetgymError(
                f"environments of a batch have no {method_name} of their own; call that of the batch, which is "
                "BatchedVecEnv.envs"
            )
        rows = self.envs.action_masks(*args, **kwargs)
        return [rows[k] for k in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(list(self._get_indices(indices)))


class PaddedVecEnv(VecEnv):
    """Play several batches as one, for policies that read workloads: instances with fewer workloads get rows of zeros.

    Parameters
    ----------
    batches : sequence of BatchedVecEnv
        Each behind `for_learning`, with margins as actions, and neither `flat` nor masks in observations.

    Raises
    ------
    FleetgymError
        For batches of another kind.

    Examples
    --------
    >>> envs = make_envs(["fleet-v0/toy/two-pools", "fleet-v0/dev/ou-s-001"], num_envs=4)
    >>> envs.reset().shape, envs.action_space.shape
    ((4, 4, 20), (4, 2))
    """

    def __init__(self, batches: Sequence[BatchedVecEnv]):
        spaces = [(batch.observation_space, batch.action_space) for batch in batches]
        if any(len(space.shape or ()) != 2 for pair in spaces for space in pair):
            raise FleetgymError(
                "instances of several shapes need workloads as rows: for_learning with margins, not flat, and without "
                "masks in observations"
            )
        self.batches = tuple(batches)
        ends = np.cumsum([batch.num_envs for batch in batches])
        self._cuts = [slice(int(end) - b.num_envs, int(end)) for end, b in zip(ends, batches, strict=True)]
        self._rows = [int(np.shape(action.sample())[0]) for _, action in spaces]
        super().__init__(int(ends[-1]), *spaces[int(np.argmax(self._rows))])

    def reset(self) -> np.ndarray:
        """Start all episodes."""
        for batch, cut in zip(self.batches, self._cuts, strict=True):
            batch._seeds, batch._options = self._seeds[cut], self._options[cut]
        seen = [batch.reset() for batch in self.batches]
        self.reset_infos = [info for batch in self.batches for info in batch.reset_infos]
        self._reset_seeds()
        self._reset_options()
        return np.concatenate([self._padded(part) for part in seen])

    def step_async(self, actions: np.ndarray) -> None:
        """Note the actions, (N, W, 2); those of workloads that an instance lacks are left out."""
        for batch, cut, rows in zip(self.batches, self._cuts, self._rows, strict=True):
            batch.step_async(actions[cut][:, :rows])

    def step_wait(self) -> Any:
        """Play one window; return observations, rewards, dones and a list of infos."""
        seen, rewards, dones, infos = zip(*(batch.step_wait() for batch in self.batches), strict=True)
        every = [info for part in infos for info in part]
        for info in every:
            if "terminal_observation" in info:
                info["terminal_observation"] = self._padded(info["terminal_observation"][None])[0]
        found = np.concatenate([self._padded(part) for part in seen])
        return found, np.concatenate(rewards), np.concatenate(dones), every

    def _padded(self, seen: np.ndarray) -> np.ndarray:
        return np.pad(seen, ((0, 0), (0, max(self._rows) - seen.shape[1]), (0, 0)))

    def close(self) -> None:
        """Close the batches."""
        for batch in self.batches:
            batch.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of each environment."""
        own = [value for batch in self.batches for value in batch.get_attr(attr_name)]
        return [own[k] for k in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Give some of the environments an attribute."""
        wanted = {*self._get_indices(indices)}
        for batch, cut in zip(self.batches, self._cuts, strict=True):
            if own := [k - cut.start for k in sorted(wanted) if cut.start <= k < cut.stop]:
                batch.set_attr(attr_name, value, own)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Return a row of `action_masks` for each environment; see `BatchedVecEnv.env_method`."""
        rows = [row for batch in self.batches for row in batch.env_method(method_name, *args, **kwargs)]
        return [rows[k] for k in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(list(self._get_indices(indices)))


# -- settings that learn

#: Windows that `recipe` plays in about a CPU minute.
MINUTE = 600_000


def make_envs(
    instance: InstanceSource | Sequence[InstanceSource],
    num_envs: int = 32,
    *,
    reference: str = "margin",
    **how: Any,
) -> VecMonitor:
    """Return environments for stable-baselines3 behind `for_learning`, whose log has the costs of days.

    Parameters
    ----------
    instance : str, path-like, Instance or mapping, or a sequence of these
        What to play. Several instances take turns; those of one shape play in one batch. If their numbers of workloads
        differ, `WorkloadPolicy` can learn from them: see `PaddedVecEnv`.
    num_envs : int
        Number of episodes side by side, at least one per instance.
    reference, **how
        As for `for_learning`.

    Returns
    -------
    VecMonitor
        Of stable-baselines3. Its records of a day also hold `DAY_KEYS`: USD, percent above the reference, and the
        share of requests that were missed.

    Raises
    ------
    FleetgymError
        If there are fewer environments than instances.

    Examples
    --------
    >>> envs = make_envs("fleet-v0/toy/two-pools", num_envs=3)
    >>> envs.reset().shape
    (3, 1, 20)
    """
    one = isinstance(instance, str | Instance | Mapping | os.PathLike)
    sources: list[Any] = [instance] if one else list(instance)  # type: ignore[arg-type]
    loaded = [library.load_instance(source) for source in sources]
    if not is_number(num_envs, whole=True) or not 1 <= len(loaded) <= num_envs:
        raise FleetgymError(
            f"num_envs is {num_envs!r}; expected a whole number, at least one for each of {len(loaded)} instances"
        )
    groups: dict[Any, list[Any]] = {}
    for k in range(num_envs):
        at = k % len(loaded)
        own = loaded[at]
        groups.setdefault((shape_of(own), len(own.slots), own.lead), []).append(sources[at])
    batches = []
    for played in groups.values():
        task: dict[str, Any] = {"instance": played, "autoreset_mode": "SameStep"}
        envs = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=len(played), **task)
        batches.append(BatchedVecEnv(for_learning(envs, reference=reference, **how)))
    keys = tuple(key for key in DAY_KEYS if reference != "none" or key != "day_percent")
    return VecMonitor(batches[0] if len(batches) == 1 else PaddedVecEnv(batches), info_keywords=keys)


def recipe(policy: Any = "MlpPolicy") -> dict[str, Any]:
    """Return arguments of stable-baselines3's `PPO` that learn within a minute.

    Its defaults try out margins so far from the rule `margin` that a policy ends more expensive than the rule. The call
    also sets torch to one thread: networks of this size are no faster with more, and wait for them on a busy machine.

    Parameters
    ----------
    policy : str or type
        ``"MlpPolicy"`` for one instance, `fleetgym.envs.workload_policy.WorkloadPolicy` for several.

    Examples
    --------
    A minute of training, as in the README::

        PPO(env=make_envs("fleet-v0/dev/ou-s-001"), **recipe()).learn(MINUTE, SavePolicy("mine.zip"))

    >>> sorted(recipe())
    ['batch_size', 'device', 'gamma', 'n_steps', 'policy', 'policy_kwargs']
    """
    torch.set_num_threads(1)
    return {
        "policy": policy,
        "n_steps": 96,
        "batch_size": 512,
        "gamma": 0.97,
        "policy_kwargs": {"log_std_init": -1.2},
        "device": "cpu",
    }


class SavePolicy(BaseCallback):
    """Save the policy with `save_policy`, and report the progress of training and the next steps.

    As a callback of ``learn`` it prints a line for each tenth of the training, and saves at the end. As a callback of
    stable-baselines3's events it saves at each of them::

        EvalCallback(eval_envs, callback_on_new_best=SavePolicy("best.zip"))
        EveryNTimesteps(100_000, SavePolicy("latest.zip"))

    Parameters
    ----------
    path : path-like
        The ``.zip`` file; it is replaced each time.
    verbose : int
        0 prints nothing.

    Examples
    --------
    >>> SavePolicy("mine.zip", verbose=0).path
    'mine.zip'
    """

    def __init__(self, path: str | os.PathLike[str], verbose: int = 1):
        super().__init__(verbose)
        self.path = os.fspath(path)
        self._tenth = 0

    def _init_callback(self) -> None:
        _record(self.model)  # what cannot be saved is refused before it is trained

    def _on_training_start(self) -> None:
        self._tenth = 0

    def _on_step(self) -> bool:
        if self.parent is not None:
            save_policy(self.model, self.path)
        return True

    def _on_rollout_end(self) -> None:
        total = int(self.locals.get("total_timesteps", 0))
        days = list(self.model.ep_info_buffer or ())
        for key in DAY_KEYS:
            if told := [day[key] for day in days if key in day]:
                self.logger.record(f"rollout/{key}", float(np.mean(told)))
        tenth = 10 * self.num_timesteps // total if total else 0
        if self.verbose and self.parent is None and tenth > self._tenth and days:
            self._tenth = tenth
            print(f"{self.num_timesteps:>9,} of {total:,} windows: {_told(days)}", flush=True)

    def _on_training_end(self) -> None:
        file = save_policy(self.model, self.path)
        if self.verbose:
            text = _NEXT + (_EVERY if _reads_workloads(self.model) else _ONE_SHAPE)
            print(text.format(file=file, stem=file.stem, name=file.name), flush=True)


def _told(days: Sequence[dict[str, Any]]) -> str:
    """Return what the last days say of a training."""
    text = f"return {np.mean([day['r'] for day in days]):+.3f}"
    percent = [day["day_percent"] for day in days if "day_percent" in day]
    text += f", days {np.mean(percent):+.2f} % against margin" if percent else ""
    missed = [day["day_miss_share"] for day in days if "day_miss_share" in day]
    text += f", {100 * np.mean(missed):.2f} % of requests missed" if missed else ""
    return f"{text} (last {len(days)} days, while exploring)"


_NEXT = """saved {file}; beside it, write {stem}.py:

    from fleetgym.envs.sb3 import load_policy

    def agent():
        return load_policy("{name}")

next: fleetgym check-agent {stem}.py:agent --official; fleetgym compare {stem}.py:agent margin"""

_EVERY = """
a row: fleetgym evaluate {stem}.py:agent --suite fleet-v0/dev --out {stem}.jsonl
       fleetgym submit {stem}.jsonl --code {stem}.py --out {stem}-row; fleetgym verify {stem}-row"""

_ONE_SHAPE = """
It plays instances with as many workloads. For a row on a suite, train recipe(WorkloadPolicy): see docs/ppo.md"""


# -- files of policies


def save_policy(model: Any, path: str | os.PathLike[str]) -> Path:
    """Save a model with what scoring needs: instances, wrappers, and statistics of a `VecNormalize`.

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
        If the model has no environment, one that is not behind `for_learning`, or one with wrappers that the file does
        not hold.
    """
    record = _record(model)
    file = Path(path)
    file = file if file.suffix == ".zip" else file.with_name(f"{file.name}.zip")
    model.save(file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(_RECORD, json.dumps(record, indent=1))
    return file


def _record(model: Any) -> dict[str, Any]:
    """Return what a file says of a training beside the model; refuse what would play otherwise than it was trained."""
    envs, kind = model.get_env(), type(model)
    if envs is None:
        raise FleetgymError(
            "the model has no environment: save it where it was trained, or call set_env first"
        )
    learning = _learning_of(envs)
    normalize = model.get_vec_normalize_env()
    statistics = None if normalize is None else Statistics.of(normalize)
    if statistics is not None and _reads_workloads(model):
        raise FleetgymError(_NOT_NORMALIZED)
    hashes = list(dict.fromkeys(one.content_hash for one in envs.get_attr("instance")))
    record = {
        "class": f"{kind.__module__}:{kind.__name__}",
        "instances": hashes,
        "trained_on": [name for name, entry in library.entries().items() if entry.content_hash in hashes],
        "steps": int(model.num_timesteps),
        "arguments": {name: learning[name] for name in ("actions", "mask_in_observation", "flat")},
        "is_normalized": statistics is not None,
    }
    if statistics is not None:
        record["mean"], record["variance"] = statistics.mean.tolist(), statistics.variance.tolist()
        record["epsilon"], record["most"] = statistics.epsilon, statistics.most
    return record


#: Wrappers that leave observations and actions as they are; a file of `save_policy` holds no others.
_TRANSPARENT = (
    gymnasium.RewardWrapper,
    gymnasium.wrappers.NormalizeReward,
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.RecordEpisodeStatistics,
    gymnasium.wrappers.TimeLimit,
    LearningEnv,
    LearningVectorEnv,
    Monitor,
    VecCheckNan,
    VecMonitor,
    VecNormalize,
)
_NOT_NORMALIZED = (
    "WorkloadPolicy reads features as they are, and zeros as padding: use VecNormalize(norm_obs=False)"
)


def _learning_of(envs: Any) -> dict[str, Any]:
    """Return the arguments of `for_learning` that made a model's environments.

    Raises
    ------
    FleetgymError
        If there is none, and if wrappers around it may change what the policy sees or does.
    """
    for kind, arguments in _wrappers(envs):
        if not issubclass(kind, _TRANSPARENT):
            raise FleetgymError(
                f"{kind.__name__}, around for_learning, may change what the policy sees or does, and would not be "
                "saved: train without it, or use the model's own save, and PolicyAgent(model, wrap=...) with it"
            )
        if issubclass(kind, LearningEnv | LearningVectorEnv):
            return arguments
    raise FleetgymError(
        "the model was not trained behind for_learning: use its own save, and PolicyAgent with its wrappers"
    )


def _wrappers(envs: Any) -> Iterator[tuple[type, Any]]:
    """Return the wrappers of environments and their arguments, the outermost first."""
    while isinstance(envs, VecEnvWrapper):
        yield type(envs), None
        envs = envs.venv
    if isinstance(envs, PaddedVecEnv):
        envs = envs.batches[0]
    if isinstance(envs, BatchedVecEnv):
        inner = envs.envs
        while isinstance(inner, VectorWrapper):
            yield type(inner), getattr(inner, "_saved_kwargs", None)
            inner = inner.env
    elif hasattr(envs, "envs"):
        for layer in layers(envs.envs[0]):
            yield type(layer), getattr(layer, "_saved_kwargs", None)
    elif spec := envs.get_attr("spec", [0])[0]:  # of environments in other processes
        for layer in reversed(spec.additional_wrappers):
            yield load_env_creator(layer.entry_point), layer.kwargs  # type: ignore[misc]


def _reads_workloads(model: Any) -> bool:
    """Return whether a model's policy is a `WorkloadPolicy`, which plays instances of any shape."""
    return hasattr(model.policy, "margins")


def load_policy(path: str | os.PathLike[str]) -> PolicyAgent:
    """Return the agent of a policy that `save_policy` saved.

    Parameters
    ----------
    path : path-like
        A file of `save_policy`. A relative path begins at the file whose code calls, so an agent finds its policy
        wherever it is run; if there is none, at the current folder. Like any file of stable-baselines3 it holds pickled
        objects: load only what you trust.

    Raises
    ------
    FleetgymError
        If the file is none of `save_policy`, which may lack the statistics of a `VecNormalize`, or its statistics are
        missing.
    """
    path = _beside_caller(path)
    name = os.fspath(path)
    try:
        with open_archive(path) as archive:
            record = json.loads(archive.read(_RECORD))
    except (KeyError, ValueError):
        raise FleetgymError(
            f"{name} does not say how it was trained, and whether observations were normalised. If it is a model of "
            "stable-baselines3, load it where its environments are, and save it anew: "
            f"save_policy(PPO.load({name!r}, env=envs), 'mine.zip') with fleetgym.envs.sb3.save_policy. In callbacks, "
            "SavePolicy writes files that load"
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
        arguments, known = dict(record["arguments"]), [*map(str, record.get("trained_on", ()))]
    except (KeyError, TypeError, ValueError) as error:
        raise FleetgymError(f"{name}: {_RECORD} lacks or garbles {error}") from None
    model = getattr(importlib.import_module(module), kind).load(path, device="cpu")
    if _reads_workloads(model):
        if statistics is not None:
            raise FleetgymError(f"{name}: {_NOT_NORMALIZED}")
        policy = model.policy.margins
        return PolicyAgent(lambda seen, mask: policy(seen), for_learning, None, known)
    return PolicyAgent(model, lambda env: for_learning(env, **arguments), statistics, known)


def _beside_caller(path: str | os.PathLike[str]) -> Path:
    """Return a path, a relative one in the folder of the first file outside this package whose code calls."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fleetgym":
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    beside = Path(path) if file is None else Path(file).parent / path
    return beside if beside.is_file() else Path(path)
