"""What a CPU minute of learning gains on one instance: five seeds of each learner, beside agents that learn nothing.

    python -m tools.learning_minute --json results/minute.json           # goes on where it stopped
    python -m tools.learning_minute --json results/minute.json --instances fleet-v1/dev/ou-s-101

Learners are the example of docs/ppo.md with stable-baselines3 and `cem`. They learn on days drawn from the instance's
own processes. Everything is judged on other drawn days, the same for all, and on the stored ones. Slow agents play the
first of the fresh days only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleetgym.agents.margins import REACH
from fleetgym.agents.registry import make_agent
from fleetgym.baselines import cem
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.documents import read_json, write_json
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import COUNT, NUMBER
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.library import load_instance, load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import load_best_known
from fleetgym.scoring.statistics import FamilyMean
from tools.fresh_days import cell

INSTANCES = tuple(f"fleet-{name}" for name in ("v0/dev/ou-s-001", "v1/dev/drop-s-101", "v1/dev/multi-s-101"))
#: Agents that learn nothing, and how many fresh days each plays at most.
YARDSTICKS = {"margin": 200, "hold": 200, "descent": 50, "lookahead": 30}
#: Fresh days are drawn from seeds that no learner uses.
FIRST_DAY = 5_000_000_000
#: Windows that the example of docs/ppo.md plays: about a CPU minute.
WINDOWS = 300_000

Policy = Callable[[np.ndarray], np.ndarray]


def ppo(instance: str, seed: int, windows: int) -> Policy:
    """Learn as the example of docs/ppo.md does."""
    from stable_baselines3 import PPO

    from fleetgym.envs.sb3 import BatchedVecEnv

    task = {"instance": instance, "num_envs": 32, "autoreset_mode": "SameStep"}
    envs = for_learning(gymnasium.make_vec("fleetgym:FleetAlloc-v0", **task), reference="margin")
    settings: dict[str, Any] = {
        "n_steps": 96,
        "batch_size": 512,
        "gamma": 0.97,
        "policy_kwargs": {"log_std_init": -1.2},
    }
    model = PPO("MlpPolicy", BatchedVecEnv(envs), seed=seed, device="cpu", **settings)
    model.learn(windows)
    return lambda seen: model.predict(seen, deterministic=True)[0]


def cross_entropy(instance: str, seed: int, windows: int) -> Policy:
    """Learn as `cem` does; at least a generation, and no more than its default."""
    generations = max(1, round(16 * min(1.0, windows / WINDOWS)))
    weights = cem.train(instance, generations, seed)
    return lambda seen: cem.margin_actions(weights, seen)


def untrained(seen: np.ndarray) -> np.ndarray:
    """Return the actions of `margin`."""
    return np.zeros((*seen.shape[:2], len(REACH)))


LEARNERS = {"PPO": ppo, "cem": cross_entropy}


def fresh_usd(instance: str, policy: Policy, days: int, **how: Any) -> list[float]:
    """Return what a policy pays on fresh days, played side by side; `how` goes to `for_learning`."""
    task = {"instance": instance, "num_envs": days, "autoreset_mode": "Disabled", "num_threads": 1}
    envs = for_learning(gymnasium.make_vec("fleetgym:FleetAlloc-v0", **task), **how)
    seen, _ = envs.reset(seed=[FIRST_DAY + day for day in range(days)])
    usd, over = np.zeros(days), False
    while not over:
        seen, _, terminated, _, infos = envs.step(policy(seen))
        usd += infos["cost"]
        over = bool(terminated.all())
    envs.close()
    return [float(each) for each in usd]


def learned_usd(instance: str, policy: Policy, days: int) -> dict[str, list[float]]:
    """Return what a policy pays on fresh days, and on the stored ones."""
    stored = []
    for number in range(len(load_scenarios(instance))):
        env = for_learning(FleetAllocEnv(instance))
        seen, _ = env.reset(options={"scenario": number})
        cost, over = 0.0, False
        while not over:
            seen, _, over, _, info = env.step(policy(seen[None])[0])
            cost += float(info["cost"])
        stored.append(cost)
    return {"fresh": fresh_usd(instance, policy, days), "stored": stored}


def agent_usd(instance: str, name: str, days: int) -> dict[str, list[float]]:
    """Return the same of an agent, day by day."""
    env = FleetAllocEnv(instance)

    def day_usd(day: Scenario) -> float:
        return float(sum(window.info["cost"] for window in play_day(env, make_agent(name), day)))

    fresh = (draw_scenario(env.instance, np.random.default_rng(FIRST_DAY + day)) for day in range(days))
    return {"fresh": [*map(day_usd, fresh)], "stored": [*map(day_usd, load_scenarios(instance))]}


def table(instance: str, found: Mapping[str, Mapping[str, Any]], seeds: int) -> list[str]:
    """Return the lines of an instance's Markdown table; a learner's days are the means over its seeds."""
    best, content_hash = load_best_known([instance]), load_instance(instance).content_hash
    reference = [
        best.find(instance, number, content_hash).value_usd
        for number in range(len(found["margin"]["stored"]))
    ]
    lines = [
        f"| `{instance}` | CPU s | stored days, % above best-known | fresh days | against `margin`, % | by seed |",
        "|---|---:|---:|---:|---:|---|",
    ]
    rows = {f"`{name}`": [name] for name in YARDSTICKS}
    rows |= {f"{learner}, learned": [f"{learner} {seed}" for seed in range(seeds)] for learner in LEARNERS}
    for title, names in rows.items():
        parts = [found[name] for name in names if name in found]
        if not parts:
            continue
        days = len(parts[0]["fresh"])
        ratio = np.log([part["fresh"] for part in parts]) - np.log(found["margin"]["fresh"][:days])
        above = np.log([part["stored"] for part in parts]) - np.log(reference)
        sample = {(title, str(day)): float(value) for day, value in enumerate(ratio.mean(axis=0))}
        each = ", ".join(f"{100 * np.expm1(value):.2f}" for value in ratio.mean(axis=1))
        cpu = f"{np.mean([part['cpu_s'] for part in parts]):.0f}" if "cpu_s" in parts[0] else "–"
        cells = [
            title,
            cpu,
            f"{100 * np.expm1(above.mean()):.1f}",
            str(days),
            "0" if names == ["margin"] else cell(FamilyMean.of(sample)),
            each if len(parts) > 1 else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def smoke(folder: Path) -> int:
    """Play a toy that is quick, without learners that need PyTorch."""
    few = ["--seeds", "1", "--days", "2", "--windows", "1", "--learners", "cem"]
    return main(["--instances", "fleet-v0/toy/two-pools", "--json", str(folder / "costs.json"), *few])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="The file of --json.",
        takes="Twenty CPU minutes an instance; PPO needs fleetgym[rl].",
        smoke=smoke,
    )
    parser.add_argument("--json", type=Path, required=True, help="keep all costs here, and go on from them")
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES), metavar="ID")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--seeds", type=of(COUNT), default=5, help="default: %(default)s")
    parser.add_argument("--days", type=of(COUNT), default=200, help="fresh ones (default: %(default)s)")
    parser.add_argument("--windows", type=of(NUMBER), default=WINDOWS, help="default: %(default)s")
    call = parser.parse_args(argv)
    known: dict[str, dict[str, Any]] = read_json(call.json) if call.json.is_file() else {}
    try:
        for instance in call.instances:
            found = known.setdefault(instance, {})
            fresh_usd(
                instance, untrained, 1, reference="margin"
            )  # compiles what the learners' clocks leave out
            for name, most in YARDSTICKS.items():
                if name not in found:
                    found[name] = agent_usd(instance, name, min(most, call.days))
                    write_json(call.json, known)
            for seed in range(call.seeds):
                for learner in call.learners:
                    if f"{learner} {seed}" not in found:
                        start_s = time.process_time()
                        policy = LEARNERS[learner](instance, seed, call.windows)
                        cpu_s = time.process_time() - start_s
                        found[f"{learner} {seed}"] = {
                            **learned_usd(instance, policy, call.days),
                            "cpu_s": round(cpu_s, 1),
                        }
                        write_json(call.json, known)
            print("\n".join([*table(instance, found, call.seeds), ""]), flush=True)
    except FleetgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_program(main)
