"""Draw a day of each family of a set, and the animation of the first page, into ``docs/images``.

    python -m tools.gallery                  # the families of fleet-v1, and docs/images/day.gif
    python -m tools.gallery --set fleet-v2   # the families of another set

The agent `margin` plays the first stored day of each family's first dev instance. The environment draws the pictures.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import fleetgym
from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.model.library import entries
from fleetgym.runtime.programs import program

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
#: What the animation shows.
DAY, DAY_AGENT = "fleet-v0/dev/drop-s-001", "descent"
#: Windows from one picture of the animation to the next, and milliseconds that the first one and the others last.
EVERY, FIRST_MS, NEXT_MS = 3, 2500, 80
COLOURS = 64


def smoke(folder: Path) -> None:
    """Draw the days of one small set elsewhere."""
    draw_families("fleet-v0", folder, families=("ou",))


def main(argv: list[str] | None = None) -> None:
    """Draw the pictures."""
    parser = program(__doc__, writes="docs/images.", takes="A CPU minute.", smoke=smoke)
    parser.add_argument("--set", default="fleet-v1", help="the set whose families are drawn")
    chosen = parser.parse_args(argv).set
    draw_families(chosen, IMAGES / chosen)
    if chosen == "fleet-v1":
        write_atomically(IMAGES / "day.gif", animation(list(played(DAY, DAY_AGENT))))


def draw_families(name: str, folder: Path, families: tuple[str, ...] = ()) -> None:
    """Write a picture of a day of each family of a set into a folder."""
    first: dict[str, str] = {}
    for instance, entry in entries().items():
        if instance.startswith(f"{name}/dev/"):
            first.setdefault(entry.family, instance)
    for family in families or first:
        *_, last = played(first[family], "margin")
        packed = io.BytesIO()
        reduced(last).save(packed, "png", optimize=True)
        write_atomically(folder / f"{family}.png", packed.getvalue())


def played(instance: str, name: str) -> Iterator[np.ndarray]:
    """Yield the picture of a stored day after every few windows, (600, 960, 3) as uint8; the last is the whole day."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance, render_mode="rgb_array")
    observation, info = env.reset(seed=0, options={"scenario": 0})
    view = fleetgym.View(env.unwrapped.instance)
    agent = fleetgym.make_agent(name)
    view.update(info)
    agent.reset(view, seed=0)
    over, window = False, 0
    while not over:
        observation, _, terminated, truncated, info = env.step(agent.act(observation, info))
        view.update(info)
        over, window = terminated or truncated, window + 1
        if over or window % EVERY == 0:
            yield env.render()
    env.close()


def reduced(picture: np.ndarray) -> Image.Image:
    """Return a picture in few colours."""
    return Image.fromarray(picture).quantize(COLOURS, dither=Image.Dither.NONE)


def animation(pictures: list[np.ndarray]) -> bytes:
    """Return a GIF that shows the whole day first, and then how it came about."""
    palette = reduced(pictures[-1])
    whole, *rest = [
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in (pictures[-1], *pictures)
    ]
    packed = io.BytesIO()
    times = [FIRST_MS] + [NEXT_MS] * len(rest)
    whole.save(packed, "gif", save_all=True, append_images=rest, duration=times, loop=0, optimize=True)
    return packed.getvalue()


if __name__ == "__main__":
    run_program(main)
