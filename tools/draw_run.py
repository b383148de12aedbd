"""Play one agent on one stored scenario and draw its day: demand, fleet, misses, cost."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import fleetgym
from fleetgym.window import COST_TERMS

#: A palette that stays apart in grey and for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def play(agent: Any, instance_id: str, number: int) -> tuple[fleetgym.Instance, list[dict[str, Any]]]:
    """Return the instance and the info after every window."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance_id).unwrapped
    observation, info = env.reset(options={"scenario": number})
    view, story, done = fleetgym.View(env.instance), [], False
    view.update(info)
    agent.reset(view, seed=0)
    while not done:
        observation, _, done, _, info = env.step(agent.act(observation, info))
        view.update(info)
        story.append(info)
    return env.instance, story


def draw(instance: fleetgym.Instance, story: list[dict[str, Any]], title: str, path: str) -> None:
    """Write four panels over the hours of the day to `path`."""
    hours = np.arange(len(story)) * instance.window_s / 3600.0
    figure, axes = plt.subplots(4, 1, figsize=(9, 8.6), sharex=True, constrained_layout=True)
    nominal = np.array([w.rate_rps for w in instance.workloads])
    rates = np.array([info["rate_rps"] for info in story]) / nominal
    for i, workload in enumerate(instance.workloads):
        axes[0].plot(hours, rates[:, i], color=COLOURS[i % 8], lw=1.2, label=workload.id)
    axes[0].set_ylabel("demand / nominal")
    held = np.array([info["running"] + info["starting"].sum(1) + info["draining"].sum(1) for info in story])
    gpus = held @ instance.gpu_use.T
    shown = np.flatnonzero(gpus.max(axis=0))
    labels = [instance.pools[g].id for g in shown]
    axes[1].stackplot(hours, gpus[:, shown].T, labels=labels, colors=COLOURS, step="post")
    free = np.array([info["available_gpus"] for info in story]).sum(axis=1)
    axes[1].plot(hours, free, color="black", lw=1, ls=":", label="available")
    axes[1].set_ylabel("GPUs held")
    miss = 100 * np.array([info["miss_share"] for info in story])
    for i in range(len(instance.workloads)):
        axes[2].plot(hours, miss[:, i], color=COLOURS[i % 8], lw=1)
    axes[2].set_ylabel("requests missed, %")
    terms = np.array([[info[term] for term in COST_TERMS] for info in story]) * 3600.0 / instance.window_s
    used = np.flatnonzero(terms.sum(axis=0) > 0)
    axes[3].stackplot(
        hours, terms[:, used].T, labels=[COST_TERMS[k] for k in used], colors=COLOURS, step="post"
    )
    axes[3].set_ylabel("cost, USD/h")
    axes[3].set_xlabel("hour of the day")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
        axis.set_ylim(bottom=0)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Read the call, play, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instance", nargs="?", default="fleet-v0/dev/drop-s-001")
    parser.add_argument("--agent", default="descent", help="name, module:Class or file.py:Class")
    parser.add_argument("--scenario", type=int, default=0)
    parser.add_argument("--out", default="docs/images/run.png")
    call = parser.parse_args()
    instance, story = play(fleetgym.make_agent(call.agent), call.instance, call.scenario)
    usd = sum(info["cost"] for info in story)
    draw(
        instance,
        story,
        f"{call.agent} on {call.instance}, scenario {call.scenario}: {usd:,.0f} USD",
        call.out,
    )
    print(f"{call.out}: {usd:,.2f} USD in {len(story)} windows")


if __name__ == "__main__":
    main()
