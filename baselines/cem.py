"""Play and train `cem`: margins per workload from a few dozen weights, by the cross-entropy method.

Each margin is a weighted sum of what is known of its workload. The weights are drawn from a normal law; the law moves
to the fifth of the draws that paid least on days drawn from the instance's own processes, and so on: Rubinstein and
Kroese (2004), *The Cross-Entropy Method*, ch. 4, with noise added to the law's spread as in Szita and Lőrincz (2006),
*Learning Tetris using the noisy cross-entropy method*.

    fleetgym compare cem margin --suite fleet-v1/dev/ou-s-101         # learns first: about a CPU minute
    python -m fleetgym.baselines.cem my_instance.json --out mine.npz  # learns once ...
    fleetgym compare "cem(weights='mine.npz')" --suite my_instance.json  # ... and plays what was learned
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleetgym import FleetgymError, Instance, View, load_instance
from fleetgym.cli import COUNT, SEED, of, program, run_program
from fleetgym.learning import FEATURES, Margins, for_learning, margins_of, read_arrays
from fleetgym.planning import whole_at_least

#: What the margins depend on, besides a constant.
USED = ("level", "drift", "surprise", "volatility", "season", "severity", "missed", "available", "tightness")
_COLUMNS = [FEATURES.index(name) for name in USED]
_SHAPE = (2, len(USED) + 1)

#: Weights drawn at a time, days that each of them plays, and the share of them that the law moves to.
DRAWS, DAYS, BEST = 40, 8, 0.2
#: Standard deviation of a weight at first, and what is added to it in the first half.
DEVIATION, NOISE = 0.25, 0.04


def margin_actions(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return actions (n, I, 2) for weights (n, 2, len(USED) + 1), or (2, ...), and features (n, I, len(FEATURES))."""
    used = features[..., _COLUMNS].astype(np.float64)
    return used @ np.swapaxes(weights[..., :-1], -1, -2) + weights[..., None, :, -1]


def train(
    instance: Instance | str,
    generations: int = 16,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> np.ndarray:
    """Return the weights found for an instance, float (2, len(USED) + 1).

    Parameters
    ----------
    instance : Instance or str
        Days are drawn from its processes; stored ones are not looked at.
    generations : int
        How often the law moves. Each takes `DRAWS` times `DAYS` days: 3 CPU seconds at size s.
    seed : int
        Of days and weights. The same seed gives the same weights.
    progress : callable, optional
        Called with each generation and by how many percent its law's mean is cheaper than the agent `margin`.

    Raises
    ------
    FleetgymError
        For fewer than one generation, or an instance that does not exist.

    Examples
    --------
    >>> train("fleet-v0/toy/two-pools", generations=1).shape == (2, len(USED) + 1)
    True
    """
    whole_at_least(1, generations=generations)
    loaded = load_instance(instance)
    envs = gymnasium.make_vec(
        "fleetgym:FleetAlloc-v0",
        num_envs=(DRAWS + 1) * DAYS,
        instance=loaded,
        autoreset_mode="Disabled",
        num_threads=1,
    )
    learning, rng = for_learning(envs), np.random.default_rng(seed)
    mean, deviation = np.zeros(_SHAPE), np.full(_SHAPE, DEVIATION)
    for generation in range(generations):
        drawn = mean + deviation * rng.standard_normal((DRAWS, *_SHAPE))
        drawn[0] = mean
        played = np.concatenate((drawn, np.zeros((1, *_SHAPE))))  # the last is the rule itself
        days = seed * 1_000_003 + generation * DAYS + np.arange(DAYS)
        usd = _costs_usd(learning, np.repeat(played, DAYS, axis=0), np.tile(days, DRAWS + 1).tolist())
        ratio = np.log(usd.reshape(DRAWS + 1, DAYS) / usd[-DAYS:]).mean(axis=1)
        best = drawn[np.argsort(ratio[:-1], kind="stable")[: round(BEST * DRAWS)]]
        mean = best.mean(axis=0)
        deviation = best.std(axis=0) + NOISE * max(0.0, 1.0 - 2.0 * generation / generations)
        if progress is not None:
            progress(generation, -100.0 * float(np.expm1(ratio[0])))
    envs.close()
    return mean


def _costs_usd(envs: Any, weights: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Return what each environment's weights pay on its day."""
    seen, _ = envs.reset(seed=seeds)
    usd, over = np.zeros(len(seeds)), False
    while not over:
        seen, _, terminated, _, infos = envs.step(margin_actions(weights, seen))
        usd += infos["cost"]
        over = bool(terminated.all())
    return np.maximum(usd, 1e-9)


@functools.lru_cache(maxsize=64)
def _trained(content_hash: str, instance: Instance, generations: int) -> np.ndarray:
    return train(instance, generations)


class CEM:
    """Margins by weights that were learned for the instance at hand.

    Parameters
    ----------
    weights : path-like, optional
        An ``.npz`` file that ``python -m fleetgym.baselines.cem`` has written. Without one, the agent learns when it
        meets an instance for the first time.
    generations : int
        How long it learns then, see `train`.

    Raises
    ------
    FleetgymError
        If the weights cannot be read, or for fewer than one generation.
    """

    def __init__(self, weights: str | os.PathLike[str] | None = None, generations: int = 16):
        whole_at_least(1, generations=generations)
        self.generations = generations
        self.weights = None if weights is None else load_weights(weights)

    def reset(self, view: View, *, seed: int) -> None:
        """Prepare for an episode, and learn if the instance is new; always by the same seed."""
        instance = view.instance
        self._rule = Margins([instance], [0])
        learned = self.weights
        self._weights = (
            _trained(instance.content_hash, instance, self.generations) if learned is None else learned
        )

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        rule = self._rule
        rule.see({name: np.asarray(info[name])[None] for name in Margins.SEEN})
        lower, gap = margins_of(margin_actions(self._weights, rule.features()))
        return rule.actions(rule.targets(lower, gap))[0]


def load_weights(path: str | os.PathLike[str]) -> np.ndarray:
    """Read weights.

    Raises
    ------
    FleetgymError
        If the file is no such archive, or its array does not fit.
    """
    weights = read_arrays(path, ["weights"])["weights"]
    if weights.shape != _SHAPE or not np.isfinite(weights).all():
        raise FleetgymError(
            f"{os.fspath(path)}: weights must be finite and of shape {_SHAPE}, got {weights.shape}"
        )
    return weights


def smoke(folder: Path) -> int:
    """Learn a toy for one generation."""
    return main(["fleet-v0/toy/two-pools", "--generations", "1", "--out", str(folder / "weights.npz")])


def main(argv: Sequence[str] | None = None) -> int:
    """Learn an instance from the command line."""
    parser = program(
        __doc__,
        writes="The file of --out.",
        takes="About a CPU minute at size s.",
        smoke=smoke,
    )
    parser.add_argument("instance", help="id or path")
    parser.add_argument("--out", type=Path, required=True, help="an .npz file")
    parser.add_argument("--generations", type=of(COUNT), default=16, help="default: %(default)s")
    parser.add_argument("--seed", type=of(SEED), default=0)
    call = parser.parse_args(argv)

    def tell(generation: int, percent: float) -> None:
        print(f"generation {generation + 1}: {percent:.2f} % cheaper than margin", flush=True)

    try:
        np.savez(call.out, weights=train(call.instance, call.generations, call.seed, tell))
    except FleetgymError as error:
        raise SystemExit(f"error: {error}") from None
    return 0


if __name__ == "__main__":
    run_program(main)
