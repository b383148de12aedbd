"""`descent` on beliefs: valid on any instance, judged on windows of paths, and what is refused."""

from __future__ import annotations

import numpy as np
from test_agents import demand, play
from toys import configuration, make_instance, pool

from fleetgym.baselines.descent import Descent


def test_samples_are_windows_of_paths() -> None:
    """Six samples look at a window each of a horizon of three, the highest demand first; availability is as seen."""
    instance = make_instance([pool("p", 8)], [configuration("a", {"p": 1}, max_replicas=8)])
    agent = Descent(forecaster="belief", horizon=3)
    play(agent, instance, demand(instance, [30.0]), seed=4)
    rates = [float(c.rate_rps.sum()) for c in agent._believed()]
    assert rates == sorted(rates, reverse=True)
    drawn = agent.belief.sample(6, 3, np.random.default_rng(4)).workload[:, :, 0]
    assert sorted(rates) == sorted(float(drawn[k, k // 2].sum()) for k in range(6))
    assert all(c.available_gpus.tolist() == [8] for c in agent._believed())
