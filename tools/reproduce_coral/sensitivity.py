"""Coral's section 6.7: how many templates, how long, and how good the best, as (N_max, rho) grow."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fleetgym.configurations import templates
from tools.reproduce_coral.setup import EXTENDED, service

MODEL, PHASE = "GPT-OSS-120B", "prefill"
RULES = ((1, 2.0), (2, 4.0), (3, 6.0), (4, 8.0), (5, 10.0), (6, 12.0), (7, 14.0))


def sweep() -> Iterator[dict[str, float]]:
    """Yield one record per (N_max, rho): templates, CPU-seconds, requests per dollar of the best template."""
    price = np.array(EXTENDED.usd_per_h[0])
    for max_nodes, ratio in RULES:
        start = time.process_time()
        found = templates.generate(
            service(MODEL), EXTENDED.nodes, PHASE, max_nodes=max_nodes, memory_ratio=ratio
        )
        elapsed = time.process_time() - start
        ranks = found.templates()
        worth = found.throughput_rps[ranks] / (found.counts(ranks) @ price) * 3600.0
        yield {
            "max_nodes": max_nodes,
            "memory_ratio": ratio,
            "templates": len(found),
            "undominated": int(found.undominated().size),
            "cpu_s": elapsed,
            "best_requests_per_usd": float(worth.max(initial=0.0)),
        }
