"""Play one agent on one stored scenario and film its day: an animated GIF, and its last frame as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import fleetgym
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.quantities import COUNT, NUMBER
from fleetgym.runtime.programs import program


def film(agent_name: str, instance_id: str, number: int, every: int) -> list[np.ndarray]:
    """Return every `every`-th frame of the day, and the last one."""
    env = FleetAllocEnv(instance_id, render_mode="rgb_array")
    agent, frames = fleetgym.make_agent(agent_name), []
    for _, _, info in play_day(env, agent, number):
        if info["window"] % every == 0 or info["window"] == env.instance.num_windows:
            frames.append(env.render())
    return frames


def save_gif(frames: list[np.ndarray], path: Path, width: int, colours: int, frame_ms: int) -> None:
    """Write the frames with one common palette, the last one shown for two seconds."""
    height = round(frames[0].shape[0] * width / frames[0].shape[1])
    images = [Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS) for frame in frames]
    rare_ones_too = Image.Quantize.MAXCOVERAGE
    palette = images[-1].quantize(colours, method=rare_ones_too, dither=Image.Dither.NONE)
    reduced = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    shown_ms = [frame_ms] * (len(reduced) - 1) + [2000]
    reduced[0].save(path, save_all=True, append_images=reduced[1:], duration=shown_ms, loop=0, optimize=True)


def smoke(folder: Path) -> None:
    """Film a toy."""
    main(["fleet-v0/toy/drop", "--agent", "hold", "--width", "320", "--out", str(folder / "day.gif")])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the call, film, write."""
    parser = program(
        __doc__,
        writes="The GIF of --out and a PNG beside it.",
        takes="Ten seconds.",
        smoke=smoke,
    )
    parser.add_argument("instance", nargs="?", default="fleet-v0/dev/drop-s-001")
    parser.add_argument("--agent", default="descent", help="name, module:Class or file.py:Class")
    parser.add_argument("--scenario", type=of(NUMBER), default=0)
    parser.add_argument("--every", type=of(COUNT), default=3, help="windows between two frames")
    parser.add_argument("--width", type=of(COUNT), default=960, help="of the GIF in pixels")
    parser.add_argument("--colours", type=of(COUNT), default=96, help="of the GIF")
    parser.add_argument("--frame-ms", type=of(COUNT), default=80)
    parser.add_argument(
        "--out", type=Path, default=Path("docs/images/day.gif"), help="the PNG lies beside it"
    )
    call = parser.parse_args(argv)
    frames = film(call.agent, call.instance, call.scenario, call.every)
    save_gif(frames, call.out, call.width, call.colours, call.frame_ms)
    still = call.out.with_suffix(".png")
    Image.fromarray(frames[-1]).save(still, optimize=True)
    for path in (call.out, still):
        print(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    run_program(main)
