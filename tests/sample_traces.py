"""Traces of requests made up for tests: arrays, and files in the layouts that real traces have."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def stamp(seconds: float, day: str = "2023-11-16") -> str:
    """Return a time of the day as the Azure trace writes it, with seven digits."""
    ticks = round(seconds * 1e7)
    date = np.datetime64(day) + np.timedelta64(ticks // 10**7, "s")
    return f"{str(date).replace('T', ' ')}.{ticks % 10**7:07d}"


def requests(seed: int, hours: float, per_second: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrivals in seconds (with a daily wave), input and output tokens: two kinds of requests."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(per_second * hours * 3600.0)
    times = np.sort(rng.uniform(0.0, hours * 3600.0, 2 * count))
    wave = 0.5 + 0.4 * np.cos((times / 3600.0 - 15.0) * np.pi / 12.0)
    times = times[rng.uniform(size=times.size) < wave]
    is_code = rng.uniform(size=times.size) < 0.3
    inputs = (
        np.rint(np.where(is_code, rng.gamma(2.0, 900.0, times.size), rng.gamma(1.1, 900.0, times.size))) + 1
    )
    outputs = (
        np.rint(np.where(is_code, rng.gamma(0.5, 60.0, times.size), rng.gamma(2.0, 110.0, times.size))) + 1
    )
    return times, inputs.astype(int), outputs.astype(int)


def write_azure(
    path: Path, seed: int = 1, hours: float = 1.0, start_s: float = 66_223.0, **options: float
) -> Path:
    """Write a trace in Azure's layout; gzipped if the name ends in .gz."""
    rows = zip(*requests(seed, hours, **options), strict=True)
    text = "\n".join([HEADER, *(f"{stamp(start_s + t)},{a},{b}" for t, a, b in rows)]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path


def write_generic(path: Path, seed: int = 1, hours: float = 1.0, **options: float) -> Path:
    """Write a CSV in seconds with a label, in an order of columns of its own."""
    times, inputs, outputs = requests(seed, hours, **options)
    lines = ["workload,output_tokens,time,input_tokens"]
    lines += [
        f"{'code' if b < 60 else 'chat'},{b},{t:.3f},{a}"
        for t, a, b in zip(times, inputs, outputs, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path
