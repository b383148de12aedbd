"""Define the network of `fleetgym.baselines.ppo.network` in PyTorch, with a critic; its weights fit every instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from .network import SHAPES

#: Logarithm of the standard deviation with which training tries out actions at first.
_LOG_DEVIATION = -1.2


class WorkloadPolicy(nn.Module):
    """Shared layers for workloads, an actor for each of them, a critic for all together.

    Parameters
    ----------
    features : int
        Of a workload.
    numbers : int
        In the action of a workload.
    hidden : int
        Width of the layers.
    """

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, features: int, numbers: int, hidden: int):
        super().__init__()
        self.register_buffer("shift", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.embed = nn.Linear(features, hidden)
        self.actor = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, numbers))
        self.critic_embed = nn.Linear(features, hidden)
        self.critic = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_deviation = nn.Parameter(torch.full((numbers,), _LOG_DEVIATION))
        last: Any = self.actor[2]
        with torch.no_grad():  # training starts at the rule
            last.weight.mul_(0.01)
            last.bias.zero_()

    def means(self, observation: torch.Tensor) -> torch.Tensor:
        """Return mean actions, (batch, I, numbers), for observations (batch, I, features)."""
        embedded = torch.tanh(self.embed((observation - self.shift) * self.scale))
        pooled = embedded.mean(dim=1, keepdim=True).expand_as(embedded)
        return self.actor(torch.cat((embedded, pooled), dim=2))

    def values(self, observation: torch.Tensor) -> torch.Tensor:
        """Return what is expected of the rest of the episode, (batch,)."""
        embedded = torch.tanh(self.critic_embed((observation - self.shift) * self.scale))
        return self.critic(torch.cat((embedded.mean(dim=1), embedded.amax(dim=1)), dim=1))[:, 0]

    def log_prob(self, means: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return the log density of actions, a workload each: (batch, I)."""
        return torch.distributions.Normal(means, self.log_deviation.exp()).log_prob(actions).sum(dim=2)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the actor's weights as `fleetgym.baselines.ppo.network` wants them."""
        state = self.state_dict()
        return {name: state[name].numpy().astype(np.float32) for name in SHAPES}
