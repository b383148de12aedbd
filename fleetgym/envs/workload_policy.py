"""Let stable-baselines3 train one network that reads workloads, and so plays every instance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from fleetgym.files.errors import FleetgymError

#: A critic of the agent `ppo`, which `python -m tools.train_critic` made.
CRITIC = Path(__file__).parents[1] / "data" / "ppo_critic.npz"
#: Logarithm of the standard deviation with which training tries out margins at first.
LOG_DEVIATION = -1.2
_NUMBERS = 2  # margins of a workload


class WorkloadFeatures(BaseFeaturesExtractor):
    """Embed the features of each workload by the same layer.

    Rows of zeros are padding, which instances with fewer workloads have: real workloads are never all zero.

    Parameters
    ----------
    observation_space : gymnasium.spaces.Box
        Of `for_learning`, (W, F).
    hidden : int
        Width of the layer.

    Examples
    --------
    >>> box = spaces.Box(-5.0, 5.0, (4, 20), np.float32)
    >>> WorkloadFeatures(box, 8)(torch.ones(3, 4, 20)).shape
    torch.Size([3, 4, 9])
    """

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, observation_space: spaces.Box, hidden: int = 32):
        if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 2:
            raise FleetgymError(
                f"WorkloadPolicy reads features of workloads, (W, F); got {observation_space}. Use for_learning "
                "without flat and without masks in observations"
            )
        super().__init__(observation_space, features_dim=hidden + 1)
        features = observation_space.shape[1]
        self.register_buffer("shift", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.embed = nn.Linear(features, hidden)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return (batch, W, hidden + 1) numbers; the last says whether the workload is real."""
        real = (observations != 0.0).any(dim=2, keepdim=True).to(observations.dtype)
        embedded = torch.tanh(self.embed((observations - self.shift) * self.scale)) * real
        return torch.cat((embedded, real), dim=2)


class _Heads(nn.Module):
    """An actor for each workload, and a critic for all together."""

    def __init__(self, hidden: int):
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = 1, hidden
        self.actor = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, _NUMBERS))
        self.critic = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh())

    def forward(self, features: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the action and the value are made of; `features` are the actor's and the critic's."""
        own, critics = features if isinstance(features, tuple) else (features, features)
        return self.forward_actor(own), self.forward_critic(critics)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """Return (batch, W, 3): two mean margins, and whether the workload is real."""
        embedded, real = features[..., :-1], features[..., -1:]
        mean = embedded.sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True).clamp(min=1.0)
        margins = self.actor(torch.cat((embedded, mean.expand_as(embedded)), dim=2))
        return torch.cat((margins * real, real), dim=2)

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """Return (batch, hidden) numbers of all workloads together."""
        embedded, real = features[..., :-1], features[..., -1:]
        mean = embedded.sum(dim=1) / real.sum(dim=1).clamp(min=1.0)
        most = embedded.masked_fill(real == 0.0, -1.0).amax(dim=1)
        return self.critic(torch.cat((mean, most), dim=1))


class WorkloadPolicy(ActorCriticPolicy):
    """A policy for `PPO` and `A2C` of stable-baselines3: shared layers for workloads, two margins for each of them.

    Nothing depends on the number of workloads. So a policy that was trained on some instances plays every instance, and
    one of `for_learning`'s boxes may have rows of zeros for workloads that an instance lacks. Training starts at the
    agent `margin`.

    Parameters
    ----------
    hidden : int
        Width of the layers, in ``policy_kwargs``. The others are those of `ActorCriticPolicy`.

    Examples
    --------
    >>> import gymnasium
    >>> from stable_baselines3 import PPO
    >>> from fleetgym.envs.wrappers import for_learning
    >>> env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools"))
    >>> model = PPO(WorkloadPolicy, env, policy_kwargs={"hidden": 8}, device="cpu")
    >>> model.policy.margins(np.ones((6, 20))).shape
    (6, 2)
    """

    def __init__(
        self, observation_space: Any, action_space: Any, *arguments: Any, hidden: int = 32, **more: Any
    ):
        if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 2:
            raise FleetgymError(
                f"WorkloadPolicy sets two margins of each workload, (W, 2); got {action_space}. Use for_learning with "
                "actions='margins', and without flat"
            )
        self.hidden = hidden
        own: dict[str, Any] = {
            "features_extractor_class": WorkloadFeatures,
            "features_extractor_kwargs": {"hidden": hidden},
            "share_features_extractor": False,
            "log_std_init": LOG_DEVIATION,
        }
        super().__init__(observation_space, action_space, *arguments, **(own | more))

    def _build_mlp_extractor(self) -> None:
        heads: Any = _Heads(self.hidden)
        self.mlp_extractor = heads

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        self.log_std = nn.Parameter(torch.full((_NUMBERS,), float(self.log_std_init)))
        last: Any = self._heads.actor[2]
        with torch.no_grad():  # training starts at the rule
            last.weight.mul_(0.01)
            last.bias.zero_()
        settings = {"lr": lr_schedule(1), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **settings)

    @property
    def _heads(self) -> Any:
        return self.mlp_extractor

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Any:
        margins, real = latent_pi[..., :_NUMBERS], latent_pi[..., _NUMBERS:]
        # What nobody reads is tried out in the same way always, so that it says nothing about the policy.
        log_deviation = (self.log_std * real).flatten(1)
        return self.action_dist.proba_distribution(margins.flatten(1), log_deviation)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        known = super()._get_constructor_parameters()
        for name in ("features_extractor_class", "features_extractor_kwargs"):
            known.pop(name, None)
        return {**known, "hidden": self.hidden}

    @torch.no_grad()
    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the likeliest action of `for_learning`, float32 (I, 2), for features (I, F) of I workloads."""
        seen = torch.as_tensor(np.asarray(features, dtype=np.float32), device=self.device)[None]
        told = self._heads.forward_actor(self.pi_features_extractor(seen))
        return told[0, :, :_NUMBERS].clamp(-1.0, 1.0).cpu().numpy()

    def start_from(
        self, weights: str | os.PathLike[str], critic: str | os.PathLike[str] | None = None
    ) -> None:
        """Start from the actor in a file of weights, such as that of the agent `ppo`.

        Parameters
        ----------
        weights : path-like
            An ``.npz`` file of `fleetgym.baselines.ppo.train`.
        critic : path-like, optional
            A file of a critic, such as `CRITIC`; without one the critic starts untrained.

        Raises
        ------
        FleetgymError
            If arrays are missing or of another shape; 32 hidden units fit those that ship.
        """
        own = self.state_dict()
        files = [(weights, _ACTOR), *([] if critic is None else [(critic, CRITIC_NAMES)])]
        for path, names in files:
            try:
                with np.load(path, allow_pickle=False) as archive:
                    for name, theirs in names.items():
                        own[name].copy_(torch.as_tensor(archive[theirs]))
            except (OSError, ValueError, KeyError, RuntimeError) as error:
                raise FleetgymError(f"{os.fspath(path)}: no weights of this policy ({error})") from None
        self.load_state_dict(own)


#: Names of the actor's weights here, and in a file of `fleetgym.baselines.ppo.train`.
_ACTOR = {
    "pi_features_extractor.shift": "shift",
    "pi_features_extractor.scale": "scale",
    "vf_features_extractor.shift": "shift",
    "vf_features_extractor.scale": "scale",
    **{f"pi_features_extractor.embed.{part}": f"embed.{part}" for part in ("weight", "bias")},
    **{f"mlp_extractor.actor.{k}.{p}": f"actor.{k}.{p}" for k in (0, 2) for p in ("weight", "bias")},
}
#: The same of the critic's.
CRITIC_NAMES = {
    **{f"vf_features_extractor.embed.{part}": f"critic_embed.{part}" for part in ("weight", "bias")},
    **{f"mlp_extractor.critic.0.{part}": f"critic.0.{part}" for part in ("weight", "bias")},
    **{f"value_net.{part}": f"critic.2.{part}" for part in ("weight", "bias")},
}
