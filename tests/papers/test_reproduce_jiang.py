"""The reproduction of Jiang et al.'s evaluation: cells are named, true and kept, and the page follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.problem import MakespanProblem, plan_of
from fleetgym.baselines.jiang.program import Limits
from fleetgym.files.finished_cells import read
from fleetgym.papers import __main__ as command
from fleetgym.papers import harness
from fleetgym.papers.jiang import measurements as cells
from fleetgym.papers.jiang import paper, summary
from fleetgym.papers.jiang.completion import completion


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
    ours = cells.compute("ours 8B 1 1 15", False)
    alone = cells.compute("single 8B 1 1 15", False)
    assert ours["throughput"] >= max(alone.values()) * (1 - cells.LIMITS.gap)
    assert ours["bound"] >= ours["throughput"]
    assert sum(ours["kinds"].values()) == pytest.approx(1.0)
    assert ours["spent"] <= 15.0


def run_of(knapsack=(110.0, 0.1)):
    """Return a whole quick run whose cells are made up, but for the cheap ones: the plan has 1.1 times the rate."""
    plan = {"throughput": 11.0, "bound": 11.5, "spent": 9.0, "fleet": {}}
    plan |= {"kinds": dict.fromkeys(paper.KINDS, 1 / 3), "models": {paper.LLAMA_70B: 0.7}}
    solved = {"exact": [100.0, 1.0], "search": [100.05, 4.0], "knapsack": list(knapsack)}
    done = {str(p): [50.0, 49.0, 51.0] if p < 100 else [99.0] for p in (50, 95, 100)}
    ablated = dict.fromkeys(summary.ABLATIONS, 9.0) | {"ours": 10.0}
    alone = dict.fromkeys(cells.HOMOGENEOUS, 10.0)
    made = {
        "ours": plan,
        "homogeneous": alone,
        "single": alone,
        "ablation": ablated,
        "budget": {**plan, "homogeneous": alone},
        "speed": solved,
        "scale": {**solved, "gpus": 62},
        "percentiles": {"plan": done, "H100": done, "H100 as available": done},
        "observations": {"types": {"a": [2.0, "H100"]}, "deployments": {"a": [3.0, 1.0]}},
        "table7": read(harness.committed("jiang"))["table 7"],
    }
    names = cells.names(quick=True)
    return {n: made[n.split(" ")[0]] if n != "table6" else cells.compute(n, True) for n in names}


def test_a_run_is_committed_in_the_form_that_the_page_reads():
    """A whole run gives the tables that are committed, and the page is written from them."""
    found, kept = summary.summarise(run_of()), read(harness.committed("jiang"))
    assert {"source", *found} == set(kept)
    assert found["example"] == [pytest.approx(row) for row in kept["example"]]
    assert found["table 6"] == [[*row[:3], pytest.approx(row[3])] for row in kept["table 6"]]
    page = harness.render("jiang", {"source": "made up", **found})
    assert "against the best type without limits +10 to +10 %, mean +10 %" in page
    assert "| 62 | 1.00 | 4.00 | 0.10 | 10.0 % |" in page


@pytest.mark.parametrize(
    ("knapsack", "verdict"),
    [
        ((100.5, 0.1), "holds"),
        ((110.0, 0.1), "in part: faster by more, at a larger loss"),
        ((100.5, 0.9), "in part: as good, not as fast"),
        ((110.0, 0.9), "does not hold"),
    ],
)
def test_the_verdict_on_the_search_is_about_its_knapsack_check(knapsack, verdict):
    """A quarter of the time and a loss below one percent make the claim hold, one of them in part."""
    found = summary.summarise(run_of(knapsack))
    (claim,) = (claim for claim in summary.claims(found) if claim[0] == "Figure 9")
    assert claim[3] == verdict
    assert "with an exact check 4.0 to 4.0 times slower" in claim[2]


def test_verdicts_are_the_known_ones():
    """The committed cells give the verdicts that were published."""
    words = [verdict.partition(":")[0] for *_, verdict in summary.claims(read(harness.committed("jiang")))]
    expected = (
        "holds|in part|in part|in part|in part|in part|holds|holds|holds|in part|holds|holds|in part|holds"
    )
    assert words == [*expected.split("|"), "undecided"]


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    """A second run computes what a torn last line lacks, a third one nothing; half a run writes no page."""
    monkeypatch.setattr(cells, "names", lambda quick: ["table6", "speed 1 15", "never asked for"])
    call = ["run", "jiang", "--kept", str(tmp_path / "cells.jsonl"), "--docs", str(tmp_path)]
    for name in ("table6", "speed"):
        command.main([*call, "--only", name])
    said = capsys.readouterr().out
    assert "1/1  table6" in said
    assert "1/1  speed 1 15" in said
    assert "1 cells are missing" in said
    kept = tmp_path / "cells.jsonl"
    kept.write_bytes(kept.read_bytes()[:-40])
    for expected in (1, 0):
        command.main([*call, "--only", "speed"])
        assert capsys.readouterr().out.count("1/1  speed 1 15") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["cells.jsonl"]
    exact, exact_s = read(tmp_path / "cells.jsonl")["speed 1 15"]["exact"]
    assert exact == pytest.approx(1038.07, abs=0.01)
    assert exact_s > 0.0


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
