"""Measure how families tell agents apart: spread, rank correlation, ranks without a family."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetgym.files.documents import canonical_json, read_json, write_atomically
from fleetgym.model.library import counts_as
from fleetgym.scoring.score import percent, percents
from fleetgym.scoring.statistics import Cluster, FamilyMean
from tools.markdown import table

#: agent -> family -> mean of ln(cost / reference cost); every agent has every family. Merged families ("a+b") are
#: columns beside them.
FamilyScores = Mapping[str, Mapping[str, float]]

HEADLINE = tuple(counts_as("fleet-v1"))  # the families whose mean is the score
FAMILIES = (*HEADLINE, "grw", "fastllm", "warp")  # in the order of tables
FLOOR = ("random",)  # shows where the scale ends; its distance would be all of the spread
WIDEST, CLOSEST = 3.0, 0.9  # wanted: spreads within this factor, rank correlations below this


def write_scores(path: Path, found: Mapping[str, FamilyScores]) -> None:
    """Store scores by what they are of, an agent a line."""
    parts = []
    for about, scores in found.items():
        lines = [
            f'"{agent}":{canonical_json({family: round(value, 6) for family, value in families.items()})}'
            for agent, families in scores.items()
        ]
        parts.append(f"{canonical_json(about)}:{{\n" + ",\n".join(lines) + "\n}")
    write_atomically(path, ("{" + ",\n".join(parts) + "}\n").encode())


def read_scores(path: Path) -> dict[str, FamilyScores]:
    """Return scores by what they are of."""
    found: dict[str, FamilyScores] = read_json(path)
    return found


def compared(scores: FamilyScores, headline: Sequence[str] = HEADLINE) -> FamilyScores:
    """Return the scores of headline families, agents that only show the floor left out."""
    return {
        agent: {family: by[family] for family in headline if family in by}
        for agent, by in scores.items()
        if agent not in FLOOR
    }


def cheaper_by(log_ratios: Mapping[Cluster, float]) -> tuple[float, tuple[float, float] | None]:
    """Return by how many percent one agent is cheaper than another, with a 95 % interval over instances.

    Parameters
    ----------
    log_ratios : mapping
        ln(cost / the other's cost) by family and instance.

    Examples
    --------
    >>> saved, (least, most) = cheaper_by({("ou", "1"): -0.11, ("ou", "2"): -0.09, ("ou", "3"): -0.1})
    >>> round(least, 1), round(saved, 1), round(most, 1)
    (7.2, 9.5, 11.7)
    """
    found = FamilyMean.of(log_ratios)
    bounds = percents(found.interval())
    return -percent(found.mean), None if bounds is None else (-bounds[1], -bounds[0])


def spread(scores: FamilyScores) -> dict[str, float]:
    """Return the standard deviation over agents of their score in each family (a mean of logarithms).

    Examples
    --------
    >>> spread({"a": {"ou": 0.0, "drop": 0.0}, "b": {"ou": 0.2, "drop": 1.0}})
    {'ou': 0.1, 'drop': 0.5}
    """
    families = next(iter(scores.values()))
    return {family: float(np.std([by[family] for by in scores.values()])) for family in families}


def correlations(scores: FamilyScores) -> dict[tuple[str, str], float]:
    """Return Spearman's rank correlation of agents for each pair of families.

    Examples
    --------
    >>> scores = {"a": {"ou": 0.1, "drop": 3.0}, "b": {"ou": 0.2, "drop": 2.0}, "c": {"ou": 0.9, "drop": 1.0}}
    >>> {pair: round(value, 6) for pair, value in correlations(scores).items()}
    {('ou', 'drop'): -1.0}
    """
    from scipy.stats import spearmanr

    columns = {family: [by[family] for by in scores.values()] for family in next(iter(scores.values()))}
    return {
        (a, b): float(spearmanr(columns[a], columns[b]).statistic)
        for a, b in itertools.combinations(columns, 2)
    }


def ranks(scores: FamilyScores, without: str | None = None) -> dict[str, int]:
    """Return each agent's rank by the mean over families, one of them left out.

    Examples
    --------
    >>> scores = {"a": {"ou": 0.0, "drop": 0.9}, "b": {"ou": 0.2, "drop": 0.1}}
    >>> ranks(scores), ranks(scores, without="drop")
    ({'b': 1, 'a': 2}, {'a': 1, 'b': 2})
    """
    means = {
        agent: float(np.mean([value for family, value in by.items() if family != without]))
        for agent, by in scores.items()
    }
    return {agent: k for k, agent in enumerate(sorted(means, key=lambda a: (means[a], a)), start=1)}


def section(scores: FamilyScores) -> str:
    """Return spread, rank correlations and the largest move of a rank without a family as Markdown."""
    scores = compared(scores)
    families = list(next(iter(scores.values())))
    if len(scores) < 3 or len(families) < 2:
        return "Fewer than three agents have been played on two headline families: nothing to compare.\n"
    return f"{_spread(spread(scores))}\n{_correlations(correlations(scores), families)}\n{_move(scores, families)}"


def _spread(found: Mapping[str, float]) -> str:
    factor = max(found.values()) / min(found.values())
    rows = [["spread", *(f"{value:.3f}" for value in found.values())]]
    told = "met" if factor <= WIDEST else "**not met**"
    return f"""**Spread**: the widest is {factor:.1f} times the narrowest ({told}).

{table(["", *(f"`{family}`" for family in found)], rows)}"""


MOST_NAMED = 5  # pairs of families that are too much alike


def correlation_table(found: Mapping[tuple[str, str], float], families: Sequence[str]) -> str:
    """Return the upper triangle of rank correlations as a table."""
    rows = [
        [f"`{a}`", *(f"{found[a, b]:.2f}" if (a, b) in found else "" for b in families[1:])]
        for a in families[:-1]
    ]
    return table(["", *(f"`{family}`" for family in families[1:])], rows)


def _correlations(found: Mapping[tuple[str, str], float], families: Sequence[str]) -> str:
    close = {pair: value for pair, value in found.items() if value >= CLOSEST}
    named = close if len(close) <= MOST_NAMED else sorted(close, key=lambda pair: -close[pair])[:3]
    above = [f"`{a}` and `{b}` ({found[a, b]:.2f})" for a, b in named]
    if len(close) > len(above):
        above[-1] += f" and {len(close) - len(above)} more pairs of the table below"
    (a, b), most = max(found.items(), key=lambda item: item[1])
    told = (
        f"not met by {', '.join(above)}."
        if above
        else f"all are below; the largest is {most:.3f}, of `{a}` and `{b}`."
    )
    return f"""**Rank correlation**: {told}

{correlation_table(found, families)}"""


def _move(scores: FamilyScores, families: Sequence[str]) -> str:
    """Return how far an agent's rank moves at most if a family is left out, and whose."""
    everything = ranks(scores)
    moves = {
        (abs(everything[agent] - rank), agent, family): rank
        for family in families
        for agent, rank in ranks(scores, family).items()
    }
    furthest = max(moves)
    moved, agent, family = furthest
    return f"""**With one family left out**, the largest move of a rank by score is {moved}:
`{agent}` has rank {everything[agent]} with all families, and {moves[furthest]} without `{family}`.
"""
