"""The policy for sb3-contrib's MaskablePPO: the network of `fleetgym.baselines.ppo.network` in PyTorch, with a critic.

Its weights do not depend on the number of slots, so that one policy can be trained on instances of different
shapes in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.distributions import MaskableCategorical, MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from .network import SHAPES

#: Logits to start with, in the order of TARGETS: mostly the ideal number, or staying where there is no other choice.
_START = (1.0, 2.0, -0.5, -0.5, 0.5)


class SlotSteps(MaskableDistribution):
    """Independent categorical distributions over the slots' steps, all computed at once.

    sb3-contrib's own has a Python loop over the components of the action.
    """

    def __init__(self, slots: int, steps: int):
        super().__init__()
        self.slots, self.steps = slots, steps

    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Return what comes between network and logits: nothing."""
        return nn.Identity()

    def proba_distribution(self, action_logits: torch.Tensor) -> SlotSteps:
        """Take over logits, (batch, slots * steps)."""
        self._slots: Any = MaskableCategorical(logits=action_logits.view(-1, self.slots, self.steps))
        self.distribution = self._slots
        return self

    def apply_masking(self, masks: Any) -> None:
        """Forbid steps; `masks` is bool, (batch, slots * steps), or None."""
        self._slots.apply_masking(masks)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log probability of actions, (batch, slots) -> (batch,)."""
        return self._slots.log_prob(actions.view(-1, self.slots)).sum(dim=1)

    def entropy(self) -> torch.Tensor:
        """Return the mean entropy of a slot, (batch,): its scale does not depend on the number of slots."""
        return self._slots.entropy().mean(dim=1)

    def sample(self) -> torch.Tensor:
        """Draw actions, (batch, slots)."""
        return self._slots.sample()

    def mode(self) -> torch.Tensor:
        """Return the likeliest actions, (batch, slots)."""
        return self._slots.logits.argmax(dim=2)

    def actions_from_params(self, action_logits: torch.Tensor, deterministic: bool = False) -> torch.Tensor:
        """Return actions for logits."""
        return self.proba_distribution(action_logits).get_actions(deterministic=deterministic)

    def log_prob_from_params(self, action_logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return drawn actions and their log probability."""
        actions = self.actions_from_params(action_logits)
        return actions, self.log_prob(actions)


class SlotNetwork(nn.Module):
    """Shared layers for slots, an actor for each of them, a critic for all together."""

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, slots: int, features: int, steps: int, hidden: int):
        super().__init__()
        self.slots, self.features = slots, features
        self.latent_dim_pi, self.latent_dim_vf = slots * steps, hidden
        self.register_buffer("shift", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.embed = nn.Linear(features, hidden)
        self.actor = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, steps))
        self.critic_embed = nn.Linear(features, hidden)
        self.critic = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh())
        last: Any = self.actor[2]
        with torch.no_grad():
            last.weight.mul_(0.1)
            last.bias.copy_(torch.tensor(_START))

    def _rows(self, observation: torch.Tensor) -> torch.Tensor:
        return (observation.view(-1, self.slots, self.features) - self.shift) * self.scale

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and what the value is read from."""
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: torch.Tensor) -> torch.Tensor:
        """Return logits, (batch, slots * steps)."""
        embedded = torch.tanh(self.embed(self._rows(observation)))
        pooled = embedded.mean(dim=1, keepdim=True).expand_as(embedded)
        return self.actor(torch.cat((embedded, pooled), dim=2)).flatten(1)

    def forward_critic(self, observation: torch.Tensor) -> torch.Tensor:
        """Return what the value is read from, (batch, hidden)."""
        embedded = torch.tanh(self.critic_embed(self._rows(observation)))
        return self.critic(torch.cat((embedded.mean(dim=1), embedded.amax(dim=1)), dim=1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the actor's weights as `fleetgym.baselines.ppo.network` wants them."""
        state = self.state_dict()
        return {name: state[name].numpy().astype(np.float32) for name in SHAPES}


class SlotPolicy(MaskableActorCriticPolicy):
    """MaskablePPO's policy with a `SlotNetwork`; `hidden` is the width of its layers."""

    def __init__(self, *args: Any, hidden: int = 32, **kwargs: Any):
        self._hidden = hidden
        kwargs["ortho_init"] = False  # the network starts itself
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        nvec = self._nvec()
        self.action_dist = SlotSteps(len(nvec), int(nvec[0]))
        super()._build(lr_schedule)

    def _build_mlp_extractor(self) -> None:
        nvec, features = self._nvec(), (self.observation_space.shape or (0, 0))[1]
        network: Any = SlotNetwork(len(nvec), features, int(nvec[0]), self._hidden)
        self.mlp_extractor = network

    def _nvec(self) -> np.ndarray:
        space: Any = self.action_space
        return space.nvec
