"""The reproduction of Coral's evaluation: its cells are true, it resumes, and the page has what it promises."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from fleetgym.baselines.coral import allocate
from fleetgym.hardware.performance.replica import NodeType, ReplicaOptions, throughput_table
from fleetgym.papers.coral import __main__ as command
from fleetgym.papers.coral import measurements as cells
from fleetgym.papers.coral import published
from fleetgym.papers.coral.coral_page import page
from fleetgym.papers.coral.epochs import draw, problem
from fleetgym.papers.coral.evaluation import load_templates
from fleetgym.papers.coral.plain import compare, every_column, solve, within_cpu_limit
from fleetgym.papers.coral.setup import CORE, gpu_type, service

SMALL = {"max_nodes": 2, "memory_ratio": 6.0}


@pytest.fixture(scope="module")
def templates():
    """A library of the core set-up with two nodes at most."""
    return load_templates(CORE, **SMALL)[0]


def test_cells_are_named_once_and_cover_every_case():
    """Libraries, rules, placements, eight cases and plain HiGHS a seed, four exponents, Figure 1, Helix."""
    names = cells.names(3)
    assert len(names) == len(set(names)) == 2 + 7 + 12 + 3 * (8 + 1) + 3 * 2 * 4 + 6 + 1
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
    """On a small library both prove the same cost, in this process and in one of its own."""
    both = compare(CORE, 0, templates, limit_s=30.0)
    assert both["highs"]["status"] == both["ours"]["status"] == "optimal"
    assert both["highs"]["usd_per_h"] == pytest.approx(both["ours"]["usd_per_h"], rel=2e-4)
    assert both["columns"] > 0


def test_a_process_that_exceeds_its_limit_is_cut_off():
    """The system ends it, however deep in compiled code it is; within the limit its answer arrives."""
    assert within_cpu_limit(1.0, sum, range(10**12)) is None
    assert within_cpu_limit(1.0, sum, range(10)) == 45


def test_unserved_demand_is_priced_alike(templates):
    """Without nodes both leave everything unserved at the same price."""
    drawn = draw(CORE, "default", 0)
    here = problem(CORE, templates, drawn.demand_rps[0], drawn.nodes[0])
    few = dataclasses.replace(here, available=np.minimum(here.available, 1))
    assert solve(few, 30.0)["usd_per_h"] == pytest.approx(allocate(few).objective_usd_per_h(few), rel=2e-4)


def test_it_goes_on_where_it_was_stopped(tmp_path, capsys):
    """A second run computes nothing; a page is written from what there is."""
    options = ["--cells", str(tmp_path / "cells.jsonl"), "--libraries", str(tmp_path / "libraries")]
    options += ["--out", str(tmp_path / "page.md"), "--seeds", "1", "--only", "rule 2"]
    command.main(options)
    assert "1/1  rule 2 4" in capsys.readouterr().out
    first = (tmp_path / "page.md").read_text(encoding="utf-8")
    command.main(options)
    assert "1/1" not in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == first
    assert re.search(r"\| 2, 4 \| 213 \| 98 \|", first)


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


def everything(dear):
    """Return cells of one seed in which every baseline costs `dear` times Coral."""
    done = {}
    for setup, case in published.COST:
        served = 0.5 if case == "scarce" else 1.0
        done[f"seed {setup} {case} 0"] = [
            record(setup, case, "coral", 10.0),
            *(record(setup, case, name, 10.0 * dear, served) for name in ("homo-1", "homo-m", "cauchy")),
        ]
    highs = {"cpu_s": 300.0, "status": "cut off", "usd_per_h": None, "gap": None}
    ours = {"cpu_s": 1.0, "status": "optimal", "usd_per_h": 10.0, "gap": 0.0}
    done["plain extended 0"] = {"columns": 1_000_000, "highs": highs, "ours": ours}
    done["library extended"] = {"templates": 1.4e6, "undominated": 3.7e5, "cpu_s": 90.0, "peak_gb": 1.0}
    placed = {"nodes": 2, "ilp_rps": 4.0, "ilp_cpu_s": 2.0, "proven": True, "own_rps": 4.0, "own_cpu_s": 1e-5}
    done |= {"placement 0": placed, "placement 1": {**placed, "own_rps": 4.1}}
    rule = {"templates": 213, "undominated": 98, "cpu_s": 0.1, "best_requests_per_usd": 2.0}
    return {**done, "rule 2 4": rule, "rule 10 20": rule}


def test_the_page_compares_each_figure():
    """Every case has its published ratio beside ours, and the verdict follows from the figures."""
    text, kept = page(everything(1.25))
    assert kept == []
    for setup, case in published.COST:
        if case != "scarce":
            homo, cauchy = published.COST[setup, case]
            row = next(line for line in text.splitlines() if line.startswith(f"| {setup}, {case} | 1 |"))
            assert f"| {homo:.2f} | 1.25 (1.25–1.25)" in row
            assert f"| {cauchy:.2f} | 1.25 (1.25–1.25)" in row
    (row,) = (line for line in text.splitlines() if "extended, default: 3.14 times cheaper" in line)
    assert "1.25 (1.25–1.25) over Homo-1" in row
    assert row.endswith("| **in part: cheaper in every seed, by less** |")
    assert (
        "| extended, 0 | 1,000,000 | – | – | cut off at 300.0 s | 10.00 | 0.00 % | 1.00 s | over 300.0 |"
        in text
    )
    assert "At least 200,000 times" in text
    assert "in 1 of 2 sets" in text
    assert text.index("| 2, 4 |") < text.index("| 10, 20 |")
    assert all(line.count("|") > 2 for line in text.splitlines() if line.startswith("|"))


def test_the_verdict_can_turn():
    """Baselines that are cheaper, or dearer than in the paper, are told."""
    assert "over Cauchy | **does not hold** |" in page(everything(0.9))[0]
    rows = [line for line in page(everything(3.5))[0].splitlines() if line.startswith("| 6.3, 6.5 |")]
    assert len(rows) == 6
    assert all(row.endswith("| **holds** |") for row in rows)


def test_sections_without_cells_stay_and_their_verdicts_too():
    """A page that is written again without any cells has the same tables, and the same verdicts from them."""
    text, _ = page(everything(1.25))
    again, kept = page({}, text)
    assert again == text
    assert "## Hourly cost over Coral's" in kept


def test_a_node_of_several_gpus_serves_less():
    """With an exponent of a half a node of four has half of the throughput; the model itself is untouched at 0."""
    served, nodes = service("Phi4-14B"), [NodeType(gpu_type("L40S"), n) for n in (1, 4)]
    full, less = (
        throughput_table(served, nodes, "decode", 1, ReplicaOptions(spread_loss=a)) for a in (0.0, 0.5)
    )
    assert np.array_equal(full, throughput_table(served, nodes, "decode", 1))
    assert np.array_equal(less[:, 0], full[:, 0])
    assert less[:, 1] == pytest.approx(full[:, 1] / 2)
