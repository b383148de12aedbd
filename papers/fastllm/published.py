"""State the numbers that FastLLM prints (arXiv:2604.07472v1), by table."""

from __future__ import annotations

#: Table 2 and its footnote: payment, expected cost, violation rate in percent; None where the paper prints none.
BUDGETS: dict[tuple[str, str], tuple[float | None, float, float | None]] = {
    ("S1", "GH"): (None, 145.8, None),
    ("S1", "AGH"): (None, 145.8, None),
    ("S2", "GH"): (63.1, 314.4, 1.5),
    ("S2", "AGH"): (53.8, 136.6, 0.6),
    ("S3", "GH"): (63.1, 1162.0, 14.2),
    ("S3", "AGH"): (35.5, 343.0, 3.7),
    ("S4", "GH"): (63.1, 964.0, 1.5),
    ("S4", "AGH"): (53.8, 140.0, 0.6),
    ("S5", "GH"): (63.1, 1811.0, 14.2),
    ("S5", "AGH"): (35.5, 344.0, 3.7),
}
#: Table 2's gaps of AGH to GH in percent: payment, cost, violation rate.
BUDGET_GAPS = {
    "S2": (-14.7, -57, -60),
    "S3": (-43.7, -70, -74),
    "S4": (-14.7, -86, -60),
    "S5": (-43.7, -81, -74),
}

#: Table 3: feasible, cost, remark.
ABLATION = {
    "all": ("yes", "89.88"),
    "m1": ("no (memory, delay)", "-"),
    "m2": ("yes", "134.52 (+50 %)"),
    "m3": ("no (delay)", "-"),
}

#: Table 4: mean and standard deviation at sigma = .01 ... .05.
ROLLING = {
    "DM-24h": ((381, 2), (447, 75), (507, 178), (793, 529), (909, 509)),
    "GH-24h": ((468, 3), (471, 6), (475, 12), (472, 5), (498, 44)),
    "GH-5min": ((468, 3), (471, 6), (475, 12), (472, 5), (498, 44)),
    "AGH-24h": ((414, 2), (418, 8), (430, 30), (525, 214), (564, 173)),
    "AGH-5min": ((414, 2), (420, 12), (432, 24), (434, 23), (474, 56)),
}
ROLLING_GAPS = {
    ("AGH-5min", "AGH-24h"): (0.0, 0.9, 0.4, -17.3, -16.0),
    ("AGH-5min", "DM-24h"): (8.6, -5.6, -14.7, -45.2, -47.9),
}

#: Table 4 at sigma = .01: static GH and static AGH above static DM, in percent.
ABOVE_OPTIMUM = (
    100.0 * (ROLLING["GH-24h"][0][0] / ROLLING["DM-24h"][0][0] - 1.0),
    100.0 * (ROLLING["AGH-24h"][0][0] / ROLLING["DM-24h"][0][0] - 1.0),
)

#: Table 5, seconds, as printed.
RUNTIME = {
    "DM": {"4-4-5": "0.39", "6-6-10": "4.2", "10-10-10": "13.04", "15-15-10": "601.12", "20-20-20": "> 600"},
    "GH": {"4-4-5": "< 0.01", "6-6-10": "< 0.01", "10-10-10": "0.3", "15-15-10": "0.5", "20-20-20": "0.9"},
    "AGH": {"4-4-5": "0.0149", "6-6-10": "0.113", "10-10-10": "0.57", "15-15-10": "1.09", "20-20-20": "2.3"},
}
