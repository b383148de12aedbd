"""The reproduction of Coral's evaluation: its cells are true, it resumes, and the page has what it promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fleetgym.baselines.coral import allocate
from fleetgym.files.finished_cells import read
from fleetgym.hardware.performance.replica import NodeType, ReplicaOptions, throughput_table
from fleetgym.papers import harness
from fleetgym.papers.coral import measurements as cells
from fleetgym.papers.coral import published, summary
from fleetgym.papers.coral.epochs import draw, problem
from fleetgym.papers.coral.evaluation import load_templates
from fleetgym.papers.coral.plain import compare, every_column, solve
from fleetgym.papers.coral.setup import CORE, gpu_type, service

SMALL = {"max_nodes": 2, "memory_ratio": 6.0}


@pytest.fixture(scope="module")
def templates():
    """A library of the core set-up with two nodes at most."""
    return load_templates(CORE, **SMALL)[0]


def test_cells_are_named_once_and_cover_every_case():
    """Libraries, rules, placements, eight cases and plain HiGHS a seed, four exponents, Figure 1, Helix."""
    names = cells.names(quick=False)
    assert len(names) == len(set(names)) == 2 + 7 + 12 + 10 * (8 + 1) + 10 * 2 * 4 + 6
    assert set(cells.names(quick=True)) < set(names)
    cases = {tuple(name.split(" ")[1:3]) for name in names if name.startswith("seed ")}
    assert cases == set(published.COST)


def test_every_column_is_what_fits():
    """A template is a column in each region that has its nodes, and in no other."""
    drawn = draw(CORE, "default", 0)
    found, _ = load_templates(CORE, **SMALL)
    here = problem(CORE, found, drawn.demand_rps[0], drawn.nodes[0])
    template, region = every_column(here)
    assert np.all(here.use[template] <= here.available[region])
    assert template.size == sum((here.use <= row).all(axis=1).sum() for row in here.available)


def test_plain_highs_agrees_with_the_allocator(templates):
    """On a small library both prove the same cost."""
    both = compare(0, templates, limit_s=30.0)
    assert both["highs"]["status"] == both["ours"]["status"] == "optimal"
    assert both["highs"]["usd_per_h"] == pytest.approx(both["ours"]["usd_per_h"], rel=2e-4)
    assert both["columns"] > 0


def test_unserved_demand_is_priced_alike(templates):
    """Without nodes both leave everything unserved at the same price."""
    drawn = draw(CORE, "default", 0)
    here = problem(CORE, templates, drawn.demand_rps[0], drawn.nodes[0])
    few = dataclasses.replace(here, available=np.minimum(here.available, 1))
    assert solve(few, 30.0)["usd_per_h"] == pytest.approx(allocate(few).objective_usd_per_h(few), rel=2e-4)


def test_a_rule_counts_its_templates():
    """The smallest (N_max, rho) of the plateau."""
    found = cells.compute("rule 2 4", True)
    assert (found["templates"], found["undominated"]) == (213, 98)


def record(setup, case, method, cost, share=1.0):
    """Return what one epoch of a method leaves behind."""
    rows = 2 * len(cells.SETUPS[setup].models)
    return {
        "setup": setup,
        "case": case,
        "seed": 0,
        "epoch": 0,
        "method": method,
        "availability_over_need": 1.5,
        "cpu_s": 0.5,
        "share_of_demand": share,
        "served_without_scaling": share,
        "cost_usd_per_h": cost,
        "rent_by_row": [1.0] * rows,
        "gap": 0.0,
        "status": "optimal",
        "gpus": 12,
        "replicas": 4,
        "mixed_replicas": 1,
    }


def run_of(dear, cpu_s=0.5):
    """Return a whole quick run in which every baseline costs `dear` times Coral; its cells are made up."""
    kept = read(harness.committed("coral"))
    ours = {"cpu_s": 1.0, "status": "optimal", "usd_per_h": 10.0, "gap": 0.0}
    placed = {"nodes": 2, "ilp_rps": 4.0, "ilp_cpu_s": 2.0, "proven": True, "own_rps": 4.0, "own_cpu_s": 1e-5}
    made = {
        "library": {"templates": 1.4e6, "undominated": 3.7e5, "cpu_s": 90.0, "peak_gb": 1.0},
        "rule": {"templates": 213, "undominated": 98, "cpu_s": 0.1, "best_requests_per_usd": 2.0},
        "placement": placed,
        "plain": {"columns": 1_000_000, "highs": {**ours, "cpu_s": 2.5}, "ours": ours},
        "mixing": kept["mixing"]["0"],
        "spectrum": kept["spectrum"],
        "helix": kept["helix"],
    }
    done = {}
    for name in cells.names(quick=True):
        kind, *rest = name.split(" ")
        if kind in ("seed", "spread"):
            setup, case = rest[0], rest[1] if kind == "seed" else "default"
            served = 0.5 if case == "scarce" else 1.0
            done[name] = [{**record(setup, case, "coral", 10.0), "cpu_s": cpu_s}]
            done[name] += [record(setup, case, b, 10.0 * dear, served) for b in summary.BASELINES]
        else:
            done[name] = made[kind]
    done["placement 1"] = {**placed, "own_rps": 4.1}
    return done


def verdicts(found):
    """Return the verdicts by the section of the paper."""
    claims = {}
    for where, *_, verdict in summary.claims(found):
        claims.setdefault(where, []).append(verdict)
    return claims


def test_a_run_is_committed_in_the_form_that_the_page_reads():
    """A whole run gives the tables that are committed, and the page is written from them."""
    found, kept = summary.summarise(run_of(1.25)), read(harness.committed("coral"))
    assert {"source", *found} == set(kept)
    page = harness.render("coral", {"source": "made up", **found})
    assert "1.25 (1.25–1.25) over Homo-1, 1.25 (1.25–1.25) over Cauchy, 1.25 (1.25–1.25) over Homo-M" in page
    assert "ours is 2.5 to\n2.5 times faster (median 2.5)" in page
    assert "at least 200,000 times faster" in page
    assert "it contradicts the ILP in 1 sets" in page


@pytest.mark.parametrize(("dear", "verdict"), [(0.9, "does not hold"), (1.05, "in part"), (3.5, "holds")])
def test_the_verdict_on_costs_can_turn(dear, verdict):
    """Baselines that are cheaper, or dearer than in the paper, are told."""
    found = verdicts(summary.summarise(run_of(dear)))["6.3, 6.5"]
    assert [text.partition(":")[0] for text in found] == [verdict] * 6


def test_solve_times_are_judged_by_core_seconds():
    """One core may take up to 32 times the seconds of 32 cores; the verdict says so."""
    found = [verdicts(summary.summarise(run_of(1.25, cpu_s)))["6.3, 6.4"] for cpu_s in (0.1, 0.5, 5.0)]
    assert found[0] == ["holds"] * 4
    assert found[1] == ["holds, in core-seconds", "holds", "holds, in core-seconds", "holds"]
    assert found[2] == ["holds, in core-seconds", "holds", "does not hold", "holds"]


def test_verdicts_are_the_known_ones():
    """The committed cells give the verdicts that were published."""
    found = verdicts(read(harness.committed("coral")))
    costs = [text.partition(":")[0] for text in found["6.3, 6.5"]]
    assert costs == ["in part", "in part", "in part", "in part", "holds", "in part"]
    assert found["6.4"] == ["holds", "holds"]
    assert [text.partition(",")[0] for text in found["6.3, 6.4"]] == ["holds"] * 4
    rest = ("6.7", "Figure 1(a)", "Figure 1(b)", "6.6")
    words = ["holds", "does not hold", "in part", "undecided"]
    assert [found[where][0].partition(":")[0] for where in rest] == words


def test_the_estimate_of_the_exponent_is_the_calibrations():
    """What the page quotes of the calibration stands there."""
    page = (harness.DOCS / "reproduce-coral.md").read_text(encoding="utf-8")
    there = (harness.DOCS / "calibration.md").read_text(encoding="utf-8")
    for estimate in ("0.13 [0.08, 0.21]", "0.29 [0.18, 0.41]"):
        assert estimate in page
        assert estimate in there


def test_a_node_of_several_gpus_serves_less():
    """With an exponent of a half a node of four has half of the throughput; the model itself is untouched at 0."""
    served, nodes = service("Phi4-14B"), [NodeType(gpu_type("L40S"), n) for n in (1, 4)]
    full, less = (
        throughput_table(served, nodes, "decode", 1, ReplicaOptions(spread_loss=a)) for a in (0.0, 0.5)
    )
    assert np.array_equal(full, throughput_table(served, nodes, "decode", 1))
    assert np.array_equal(less[:, 0], full[:, 0])
    assert less[:, 1] == pytest.approx(full[:, 1] / 2)
