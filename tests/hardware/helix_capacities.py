"""Derive the capacities of Helix's single cluster from its measured layer times, as its artifact does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fleetgym.papers.coral import helix

#: The model's name in the measurements.
MODEL = "llama2_70b"
#: Tokens of a typical request, tokens in a block of vLLM's cache, and the share of the cache in use.
INPUT_TOKENS, OUTPUT_TOKENS, BLOCK_TOKENS, CACHE_SHARE = 750, 240, 16, 0.3

Curve = tuple[np.ndarray, np.ndarray]


def _curve(points: pd.DataFrame) -> Curve:
    """Return tokens or sequences of a batch, and seconds per layer; an empty batch takes none."""
    return np.array([0.0, *points.tokens]), np.array([0.0, *points.ms_per_layer]) / 1000.0


def _tokens_per_s(
    machine: helix.Machine, layers: int, rate: Mapping[str, float], curves: Mapping[tuple[str, str], Curve]
) -> float:
    """Return the capacity of a machine that holds some layers."""
    held = {m.name: m.nodes * m.typical_layers for m in helix.MACHINES}
    layer_s = sum(held[name] / rate[name] for name in held) / sum(held.values())
    own_s = layers / rate[machine.name]
    share = own_s / (own_s + (helix.NUM_LAYERS - layers) * layer_s)
    cached = int(CACHE_SHARE * BLOCK_TOKENS * machine.blocks[layers - 1])
    sequences = cached / (INPUT_TOKENS + OUTPUT_TOKENS) * share
    prompts = sequences / OUTPUT_TOKENS  # per step: each sequence lasts as many steps as it has tokens
    if prompts > 1.0:
        prompts, prompt_tokens, sequences = 1.0, INPUT_TOKENS, float(OUTPUT_TOKENS)
    else:
        prompt_tokens, sequences = round(prompts * INPUT_TOKENS), float(round(sequences))
    steps = 1.0 / prompts  # until a whole prompt is due
    prompt_s = np.interp(int(prompt_tokens * steps), *curves[machine.name, "prefill"])
    decode_s = np.interp(sequences, *curves[machine.name, "decode"])
    return float(steps * (prompt_tokens + sequences) / (layers * (prompt_s + steps * decode_s)))


def capacities(folder: Path) -> np.ndarray:
    """Return T_j(g) of the cluster in tokens per second, the same for every number of stages.

    Parameters
    ----------
    folder : Path
        With ``helix_layer_ms.csv``.

    Returns
    -------
    (24, 3, 80) array
        By stages, machine and layers; 0 where the layers do not fit.
    """
    measured = pd.read_csv(folder / "helix_layer_ms.csv")
    measured = measured[measured.model == MODEL]
    curves = {
        (m.name, phase): _curve(measured[(measured.machine == m.name) & (measured.phase == phase)])
        for m in helix.MACHINES
        for phase in ("prefill", "decode")
    }
    rate = {m.name: m.first_rate for m in helix.MACHINES}
    for _ in range(10):  # the share of a round trip depends on the rates, and these on the share
        rate = {
            m.name: m.typical_layers * _tokens_per_s(m, m.typical_layers, rate, curves)
            for m in helix.MACHINES
        }
    row = np.zeros((len(helix.MACHINES), helix.NUM_LAYERS))
    for g, machine in enumerate(helix.MACHINES):
        for layers in range(1, len(machine.blocks) + 1):
            row[g, layers - 1] = _tokens_per_s(machine, layers, rate, curves)
    return np.tile(row, (helix.nodes().size, 1, 1))
