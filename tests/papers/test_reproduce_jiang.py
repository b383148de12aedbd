"""The reproduction of Jiang et al.'s evaluation: cells are named, true and kept, and the page follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.problem import MakespanProblem, plan_of
from fleetgym.baselines.jiang.program import Limits
from fleetgym.papers.jiang import __main__ as command
from fleetgym.papers.jiang import measurements as cells
from fleetgym.papers.jiang import paper
from fleetgym.papers.jiang.completion import completion
from fleetgym.papers.jiang.jiang_page import page


def test_cells_cover_every_availability_trace_and_budget():
    """Four availabilities, three traces, three budgets, three models; the quick page has the first availability."""
    names, quick = cells.names(quick=False), cells.names(quick=True)
    assert len(names) == len(set(names))
    assert set(quick) < set(names)
    ours = [name.split(" ") for name in names if name.startswith("ours ")]
    assert {model for _, model, *_ in ours} == set(cells.MODELS)
    assert len(ours) == 4 * 9 * 3
    assert {name.split(" ")[2] for name in quick if name.startswith("ours ")} == {"1"}


def test_a_plan_is_within_the_stated_gap():
    """A small problem closes the gap at the first attempt."""
    problem, _ = paper.problem(1, 1, 15.0, kind="single-type")
    plan = cells.fastest(problem)
    assert plan.bound_s <= plan.makespan_s <= plan.bound_s * (1 + cells.LIMITS.gap)


def test_where_a_gap_is_left_the_better_of_two_searches_counts(monkeypatch):
    """Plan and bound are no worse than those of either search."""
    problem, _ = paper.problem(2, 1, 30.0, kind="single-type")
    monkeypatch.setattr(cells, "LIMITS", Limits(gap=1e-6, nodes=1))
    monkeypatch.setattr(cells, "HARDER", Limits(gap=1e-6, nodes=1, heuristics=True))
    first, harder = (minimal_makespan(problem, limits) for limits in (cells.LIMITS, cells.HARDER))
    assert first.bound_s < first.makespan_s
    both = cells.fastest(problem)
    assert both.makespan_s == min(first.makespan_s, harder.makespan_s)
    assert both.bound_s == max(first.bound_s, harder.bound_s)


def test_single_types_are_no_faster_than_the_plan():
    """At equal availability the plan over all types beats each type alone, up to the gap."""
    ours = cells.compute("ours 8B 1 1 15")
    alone = cells.compute("single 8B 1 1 15")
    assert ours["throughput"] >= max(alone.values()) * (1 - cells.LIMITS.gap)
    assert ours["bound"] >= ours["throughput"]
    assert sum(ours["kinds"].values()) == pytest.approx(1.0)
    assert ours["spent"] <= 15.0


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    """A second run computes nothing and writes the same page, which names the availabilities it has."""
    monkeypatch.setattr(cells, "names", lambda quick: ["table6", "speed 1 15"])
    kept, out = tmp_path / "cells.jsonl", tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["reproduce_jiang", "--cells", str(kept), "--out", str(out)])
    command.main()
    assert "2/2  speed 1 15" in capsys.readouterr().out
    first = out.read_text(encoding="utf-8")
    command.main()
    assert "2/2" not in capsys.readouterr().out
    assert out.read_text(encoding="utf-8") == first
    assert "| H100 (2,4) | 0.56 | 0.60 |" in first
    assert "| 1 | 15 | 1038.07 | 1038.07 | 1038.07 |" in first
    assert "28.4313725" in first


def test_the_speed_table_says_who_is_faster():
    """Ratios follow from the seconds of the cells."""
    cell = {"exact": [100.0, 1.0], "search": [100.05, 4.0], "knapsack": [110.0, 0.1]}
    text, _ = page({"speed 1 15": cell, "speed 2 30": {**cell, "search": [100.0, 2.0]}})
    assert "| 1 | 15 | 100.00 | 100.05 | 110.00 | 1.00 | 4.00 | 0.10 | 4.0 |" in text
    assert "exact 2.0, search 6.0 (3.0 times more)" in text
    assert "0.0000 to 0.0500 % longer" in text


def test_sections_without_cells_stay_and_their_verdicts_too():
    """A page that is written again without its cells has the same tables and the same verdicts."""
    cell = {"exact": [100.0, 1.0], "search": [100.05, 4.0], "knapsack": [110.0, 0.1]}
    text, _ = page({"speed 1 15": cell})
    again, kept = page({}, text)
    assert again == text
    assert kept == ["## Speed: exact program and binary search (section 5.2, figure 9)"]
    assert "the search takes 4.0 to 4.0 times the exact program's CPU time | **does not hold" in text


def test_requests_of_a_makespan_are_done_at_an_even_pace():
    """Two equal replicas with a request a second each: half of 2,000 are done at 500 s, all shortly after 1,000 s."""
    problem = MakespanProblem(
        requests=np.array([2000.0]),
        rate_rps=np.array([[1.0]]),
        gpu_use=np.array([[1]]),
        price_usd_per_h=np.array([1.0]),
        available_gpus=np.array([2.0]),
    )
    found = completion(problem, plan_of(problem, np.array([2])))
    assert found["50"][0] == pytest.approx(500.0, rel=0.02)
    assert found["50"][1] <= found["50"][0] <= found["50"][2]
    assert 990.0 <= found["100"][0] <= 1020.0


def test_table_7_is_solved_to_proof():
    """No plan is below its bound by more than the stated gap."""
    problem, _ = paper.problem(2, 1, 30.0)
    plan = cells.proven(problem)
    assert plan.makespan_s <= plan.bound_s * (1 + 2 * cells.PROOF.gap)
