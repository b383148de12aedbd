"""Draw the learning curve of a training run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.cli import program, run_program


def read_curve(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return steps, mean scaled reward of a window, and the run of every update."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps, reward = (np.array([line[key] for line in lines], dtype=float) for key in ("steps", "reward"))
    return steps, reward, [line["run"] for line in lines]


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Return the mean of up to `width` values before and including each.

    Examples
    --------
    >>> smooth(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [1.0, 2.0, 4.0]
    """
    total = np.concatenate(([0.0], np.cumsum(values)))
    end = np.arange(1, values.size + 1)
    start = np.maximum(0, end - width)
    return (total[end] - total[start]) / (end - start)


def draw(path: Path, out: Path, width: int = 10) -> None:
    """Draw a curve file's updates as dots, and their moving mean as a line for each kind of instance."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, reward, runs = read_curve(path)
    starts = [0, *(k for k in range(1, len(runs)) if runs[k] != runs[k - 1])]
    figure, axis = plt.subplots(figsize=(8, 3.4), constrained_layout=True)
    axis.plot(steps / 1e3, reward, ".", ms=4, color="#B8C7D6", label="one update")
    for k, (start, end) in enumerate(zip(starts, [*starts[1:], len(runs)], strict=True)):
        mean = smooth(reward[start:end], width)
        colour = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")[k % 4]
        axis.plot(steps[start:end] / 1e3, mean, color=colour, lw=1.8, label=f"mean of {width}: {runs[start]}")
    axis.axhline(0.0, color="#666666", lw=0.8, ls=":", label="the agent margin on the same days")
    axis.set_xlabel("thousand windows played")
    axis.set_ylabel("reward of a window")
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.01)
    axis.legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def smoke(folder: Path) -> None:
    """Draw the curve of the weights that ship, elsewhere."""
    main(["--out", str(folder / "curve.png")])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the call and draw."""
    parser = program(__doc__, writes="The PNG of --out.", takes="Seconds.", smoke=smoke)
    parser.add_argument("curve", nargs="?", type=Path, default=Path(__file__).with_name("curve.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/ppo-curve.png"))
    call = parser.parse_args(argv)
    draw(call.curve, call.out)


if __name__ == "__main__":
    run_program(main)
