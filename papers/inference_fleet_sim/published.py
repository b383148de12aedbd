"""State what the paper prints, and what its tool prints today where that differs."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

#: Table 1: LMSYS, 100 requests/s, A100, P99 TTFT 500 ms; the homogeneous fleet has 14.
TABLE_1: list[Row] = [
    {"threshold": 512, "share": 63.8, "short": 2, "long": 13, "kusd": 290, "kept": True},
    {"threshold": 1024, "share": 83.1, "short": 2, "long": 10, "kusd": 232, "kept": True},
    {"threshold": 2048, "share": 94.8, "short": 2, "long": 7, "kusd": 174, "kept": True},
    {"threshold": 4096, "share": 98.4, "short": 3, "long": 5, "kusd": 155, "kept": True},
    {"threshold": 8192, "share": 99.7, "short": 4, "long": 4, "kusd": 155, "kept": True},
    {"threshold": 12288, "share": 99.9, "short": 5, "long": 3, "kusd": 155, "kept": True},
]
HOMOGENEOUS_1: Row = {"gpus": 14, "kusd": 271}

#: Table 2: agent-heavy, 20 requests/s, H100, 1000 ms.
TABLE_2: list[Row] = [
    {"name": "Homo 65K ctx", "gpus": 24, "kusd": 845, "p99_ms": [1052], "tool_ms": [1051.8], "kept": False},
    {
        "name": "Two-pool 4K/65K",
        "gpus": 25,
        "kusd": 880,
        "p99_ms": [17, 147],
        "tool_ms": [17.3, 146.9],
        "kept": True,
    },
]

#: Table 3: Azure, 100 requests/s, 500 ms. The tool's counts differ where `tool` is given.
TABLE_3: list[Row] = [
    {"gpu": "A10G", "pools": 2, "gpus": 19, "kusd": 168, "p99_ms": [155, 335], "tool": [20, 177]},
    {"gpu": "H100-80GB", "pools": 1, "gpus": 6, "kusd": 211, "p99_ms": [26]},
    {"gpu": "A100-80GB", "pools": 2, "gpus": 12, "kusd": 232, "p99_ms": [52, 112], "tool": [13, 252]},
    {"gpu": "H100-80GB", "pools": 2, "gpus": 7, "kusd": 247, "p99_ms": [13, 30]},
]

#: Table 4: Azure, H100 in two pools, 500 ms. The last column follows no stated rule.
TABLE_4: list[Row] = [
    {"rate": 25, "gpus": 4, "kusd": 141, "until": 65},
    {"rate": 50, "gpus": 5, "kusd": 176, "until": 90},
    {"rate": 100, "gpus": 7, "kusd": 247, "until": 130},
    {"rate": 150, "gpus": 10, "kusd": 352, "until": 185},
    {"rate": 200, "gpus": 12, "kusd": 423, "until": 270},
    {"rate": 300, "gpus": 18, "kusd": 634, "until": 370},
    {"rate": 400, "gpus": 23, "kusd": 810, "until": None},
]

#: Table 5: agent-heavy, 20 requests/s, 2 + 23 H100, 1000 ms; the tool at 30,000 requests.
TABLE_5: list[Row] = [
    {"router": "length", "p99_ms": 495, "tool_ms": 527, "within": 99.98},
    {"router": "compress-and-route", "p99_ms": 534, "tool_ms": 570, "within": 99.94},
    {"router": "random", "p99_ms": 292, "tool_ms": 306, "within": 100.0},
]

#: Table 6: mixed types, Azure, 100 requests/s, 500 ms.
TABLE_6: list[Row] = [
    {
        "short": "A100-80GB",
        "long": "A100-80GB",
        "gpus": 12,
        "kusd": 232,
        "p99_ms": [52, 112],
        "tool": [13, 252],
    },
    {"short": "A10G", "long": "H100-80GB", "gpus": 12, "kusd": 212, "p99_ms": [155, 30], "tool": [12, 212]},
    {"short": "A10G", "long": "A100-80GB", "gpus": 15, "kusd": 206, "p99_ms": [155, 112], "tool": [16, 226]},
]

#: Table 7: mixed types, LMSYS, 100 requests/s, 65,536 tokens, 500 ms. P99 from one seed of its simulator.
TABLE_7: list[Row] = [
    {"short": "A100-80GB", "long": "A100-80GB", "gpus": 8, "kusd": 155, "p99_ms": [43, 2822], "kept": False},
    {"short": "A10G", "long": "H100-80GB", "gpus": 7, "kusd": 141, "p99_ms": [129, 181], "kept": True},
    {"short": "A10G", "long": "A100-80GB", "gpus": 9, "kusd": 132, "p99_ms": [129, 2822], "kept": False},
]

#: Table 8: Azure, 100 requests/s, TTFT 500 ms, TPOT 100 ms.
TABLE_8_AGGREGATED: list[Row] = [
    {"gpu": "A100-80GB", "gpus": 12, "kusd": 232, "ttft_ms": 26},
    {"gpu": "H100-80GB", "gpus": 6, "kusd": 211, "ttft_ms": 8},
]
TABLE_8: list[Row] = [
    {
        "prefill": "H100-80GB",
        "decode": "A100-80GB",
        "counts": [1, 6],
        "kusd": 151,
        "ttft_ms": 162,
        "tpot_ms": 91,
    },
    {
        "prefill": "H100-80GB",
        "decode": "H100-80GB",
        "counts": [1, 3],
        "kusd": 141,
        "ttft_ms": 162,
        "tpot_ms": 45,
    },
    {
        "prefill": "A100-80GB",
        "decode": "H100-80GB",
        "counts": [1, 3],
        "kusd": 125,
        "ttft_ms": 492,
        "tpot_ms": 45,
    },
]

#: Table 9: 40 H100, Azure, 200 requests/s, 500 ms; the last figure is the tool's with a consistent slot model.
TABLE_9: list[Row] = [
    {
        "flex": 0,
        "batch": 128,
        "gpu_w": 583,
        "kw": 23.3,
        "analytic_ms": 7.9,
        "des_ms": 35,
        "consistent_ms": 26,
    },
    {
        "flex": 10,
        "batch": 48,
        "gpu_w": 540,
        "kw": 21.6,
        "analytic_ms": 7.9,
        "des_ms": 38,
        "consistent_ms": 26,
    },
    {
        "flex": 20,
        "batch": 24,
        "gpu_w": 479,
        "kw": 19.1,
        "analytic_ms": 7.9,
        "des_ms": 41,
        "consistent_ms": 26,
    },
    {
        "flex": 30,
        "batch": 13,
        "gpu_w": 413,
        "kw": 16.5,
        "analytic_ms": 7.9,
        "des_ms": 51,
        "consistent_ms": 26,
    },
    {
        "flex": 40,
        "batch": 6,
        "gpu_w": 350,
        "kw": 14.0,
        "analytic_ms": None,
        "des_ms": 190,
        "consistent_ms": 22791,
    },
    {
        "flex": 50,
        "batch": 1,
        "gpu_w": 304,
        "kw": 12.2,
        "analytic_ms": None,
        "des_ms": None,
        "consistent_ms": 431597,
    },
]
