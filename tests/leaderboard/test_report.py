"""The report: one page that holds everything, pictures that are SVG, numbers that round-trip."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from submissions import make_good

from fleetgym.cli import main
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard import pdf
from fleetgym.leaderboard.charts import (
    LogScale,
    bars_chart,
    interval_chart,
    profile_chart,
    scatter_chart,
    standalone,
)
from fleetgym.leaderboard.report import Figure, figures, played_rows, report
from fleetgym.leaderboard.verify import verify
from fleetgym.scoring.score import score
from fleetgym.scoring.table import make_table

AGENTS = ("hold", "gh", "random")
SUITE = "fleet-v0/toy"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file with timings beside it."""
    path = tmp_path_factory.mktemp("results") / "toy.jsonl"
    evaluate(list(AGENTS), SUITE, out=path)
    return path


@pytest.fixture(scope="module")
def results() -> Results:
    """Return the same run in memory."""
    return evaluate(list(AGENTS), SUITE)


def test_one_file_holds_everything(file: Path, tmp_path: Path) -> None:
    """Nothing is fetched: no links but to data within the page, which are the SVG and CSV files."""
    page = report(file, tmp_path / "report.html", files=tmp_path / "figures").read_text(encoding="utf-8")
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    names = re.findall(r'download="([^"]*)"', page)
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert (
        set(names)
        == {name for name in written if not name.endswith(".pdf")}
        == {
            *(
                f"{name}.{kind}"
                for name in ("families", "profile", "breakdown", "cpu-time")
                for kind in ("svg", "csv")
            ),
            "scores.csv",
            "scores.tex",
            "pairs.csv",
            "pairs.tex",
            "tasks.csv",
        }
    )
    for name, link in re.findall(r'download="([^"]*)" href="data:[^,]*,([^"]*)"', page):
        assert base64.b64decode(link) == (tmp_path / "figures" / name).read_bytes()


def test_pdfs_are_the_same_bytes(file: Path, tmp_path: Path) -> None:
    """Every picture is drawn; twice it is the same file."""
    pytest.importorskip("svglib", reason="the extra report is not there")
    for folder in ("one", "two"):
        report(file, tmp_path / "report.html", files=tmp_path / folder)
    made = sorted((tmp_path / "one").glob("*.pdf"))
    assert [path.stem for path in made] == ["breakdown", "cpu-time", "families", "profile"]
    for path in made:
        data = path.read_bytes()
        assert data == (tmp_path / "two" / path.name).read_bytes()
        assert data.startswith(b"%PDF-")
        assert len(data) > 1500


def test_without_the_extra_there_is_no_pdf(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is the same, the other files are there, and a line says what is missing."""
    report(file, tmp_path / "with.html")
    monkeypatch.setattr(pdf, "find_spec", lambda name: None)
    assert (
        main(["report", str(file), "--out", str(tmp_path / "without.html"), "--files", str(tmp_path / "f")])
        == 0
    )
    assert (tmp_path / "with.html").read_bytes() == (tmp_path / "without.html").read_bytes()
    assert not list((tmp_path / "f").glob("*.pdf"))
    assert (tmp_path / "f" / "profile.svg").is_file()
    assert "pip install 'fleetgym[report]'" in capsys.readouterr().err


def test_pictures_are_svg(file: Path, tmp_path: Path) -> None:
    """Each parses as XML and names its size; nothing in it is outside, nor NaN."""
    report(file, tmp_path / "report.html", files=tmp_path)
    for path in tmp_path.glob("*.svg"):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for element in root.iter():
            for key, most in (("x", width), ("y", height), ("cx", width), ("cy", height)):
                if key in element.attrib:
                    assert -1e-9 <= float(element.attrib[key]) <= most, (path.name, element.attrib)


def test_numbers_round_trip(results: Results) -> None:
    """The CSV files hold the table's numbers to the last bit, and those of `fleetgym score`."""
    found = {
        figure.name: list(csv.DictReader(io.StringIO(figure.csv())))
        for figure in figures(make_table(played_rows(results)[1]))
    }
    scored = score(results)
    for line in found["families"]:
        row = scored.row(line["agent"])
        expected = row.score if line["family"] == "all" else row.families[line["family"]]
        assert float(line["score_percent"]) == pytest.approx(expected, rel=1e-12)
        assert float(line["low_95"]) <= expected <= float(line["high_95"])
    costs = {(e.agent, e.instance, e.scenario): e.cost_usd for e in results.episodes}
    for line in found["tasks"]:
        for agent in AGENTS:
            assert float(line[agent]) == costs[agent, line["instance"], int(line["scenario"])]
    for line in found["breakdown"]:
        terms = {term: float(share) for term, share in line.items() if term != "agent"}
        assert sum(terms.values()) > 0.99


def test_the_table_of_scores_is_a_file_too(results: Results) -> None:
    """What the page rounds, in full, one line an agent; what is not known is left empty."""
    table = make_table(played_rows(results)[1])
    head, *lines = next(figure for figure in figures(table) if figure.name == "scores").numbers
    for line, row in zip(lines, table.rows, strict=True):
        found = dict(zip(head, line, strict=True))
        assert (found["rank"], found["agent"], found["score_percent"]) == (row.rank, row.key, row.score)
        assert (found["low_95"], found["high_95"]) == (row.interval or ("", ""))
        assert {name: found[f"{name}_percent"] for name in table.families} == row.families
        assert found["tail_usd"] == row.tail_usd
        assert found["cpu_s"] == ("" if row.cpu_s is None else row.cpu_s)


def test_every_pair_is_compared(results: Results) -> None:
    """Its difference is that of the scores, and the probability counts instances; p-values are Holm's."""
    table = make_table(played_rows(results)[1])
    head, *lines = next(figure for figure in figures(table) if figure.name == "pairs").numbers
    assert len(lines) == len(AGENTS) * (len(AGENTS) - 1) // 2
    rows = {row.key: row for row in table.rows}
    for line in lines:
        found = dict(zip(head, line, strict=True))
        cheaper, dearer = rows[found["cheaper"]], rows[found["dearer"]]
        ratio = (1 + dearer.score / 100) / (1 + cheaper.score / 100)
        assert found["difference_percent"] == pytest.approx(100 * (ratio - 1))
        assert 0 <= found["p_holm"] <= 1
        shares: dict[str, list[float]] = {}
        of = [{(t.family, t.instance): [] for t in row.tasks} for row in (cheaper, dearer)]
        for means, row in zip(of, (cheaper, dearer), strict=True):
            for task in row.tasks:
                means[task.family, task.instance].append(math.log(task.ratio))
        for key, first in of[0].items():
            a, b = sum(first) / len(first), sum(of[1][key]) / len(first)
            shares.setdefault(key[0], []).append(0.5 if a == b else float(a < b))
        means = [sum(share) / len(share) for family, share in shares.items() if family in table.scored]
        assert found["improvement"] == pytest.approx(sum(means) / len(means))


def test_names_are_plain_in_latex() -> None:
    """What LaTeX would obey is escaped; every row has as many cells as the head."""
    figure = Figure(
        "scores", "", None, [["agent", "score"], ["a_b&c\\d#%$~^{}", 12345.678], ["x", 0.25]], True
    )
    text = figure.latex()
    assert r"a\_b\&c\textbackslash{}d\#\%\$\textasciitilde{}\textasciicircum{}\{\} & 12,345.7 \\" in text
    assert r"x & 0.250 \\" in text
    assert text.startswith(r"\begin{tabular}{lr}\toprule")


def test_without_timings_there_is_no_cpu_picture(results: Results, tmp_path: Path) -> None:
    """What was not measured is not drawn."""
    import dataclasses

    untimed = Results(results.header, tuple(dataclasses.replace(e, timing=None) for e in results.episodes))
    page = report(untimed, tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'download="families.svg"' in page
    assert "cpu-time" not in page


def test_names_are_escaped(results: Results, tmp_path: Path) -> None:
    """An agent's name is text, in the page and in the pictures."""
    import dataclasses

    evil = "</script><script>alert(1)</script>"
    named = tuple(
        dataclasses.replace(e, agent=evil if e.agent == "gh" else e.agent) for e in results.episodes
    )
    page = report(Results(results.header, named), tmp_path / "report.html", files=tmp_path).read_text()
    assert "<script>alert" not in page
    for path in tmp_path.glob("*.svg"):
        assert "<script" not in path.read_text()
        ElementTree.fromstring(path.read_text(encoding="utf-8"))


def test_incomplete_runs_are_refused(results: Results, tmp_path: Path) -> None:
    """As by `score`, with what to do."""
    with pytest.raises(FleetgymError, match="finish the run first"):
        report(Results(results.header, results.episodes[:-1]), tmp_path / "report.html")
    with pytest.raises(FleetgymError, match="relative_to"):
        report(results, tmp_path / "report.html", relative_to="nothing")
    assert not list(tmp_path.iterdir())


def test_relative_to_the_best_in_the_run(results: Results, tmp_path: Path) -> None:
    """For tasks that have no best-known cost: then some agent is at 0 % on each."""
    name, rows = played_rows(results, "best-in-run")
    assert name == "best-in-run"
    for tasks in zip(*rows.values(), strict=True):
        assert min(task.ratio for task in tasks) == 1.0
    assert "best-in-run" in report(results, tmp_path / "r.html", relative_to="best-in-run").read_text()


def test_scales_and_extremes() -> None:
    """Axes hold what lies beyond them; long bars are cut off and say how long they are; many rows are told apart."""
    scale = LogScale(1.0, 100.0, 0.0, 200.0)
    assert [scale(1.0), scale(10.0), scale(1e9), scale(0.1)] == [0.0, 100.0, 200.0, 0.0]
    bars = bars_chart({"a": {"rental": 1.0}, "b": {"rental": 1.0, "unserved": 40.0}})
    assert "41.0 ▸" in bars
    many = {f"agent {k}": [(1.0 + k, 1.0)] for k in range(20)}
    looks = re.findall(r'stroke="(#\w+)"(?: stroke-dasharray="([\d ]+)")?', profile_chart(many))
    assert len(set(looks)) == 20
    single = interval_chart({"a": {"ou": (12.0, None)}})
    assert "nan" not in single.lower()
    assert math.isfinite(float(re.findall(r'cx="([\d.]+)"', single)[0]))
    assert 'color="#222"' in standalone(single)


def test_command_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page lies beside the results unless told otherwise."""
    assert main(["report", str(file)]) == 0
    assert file.with_suffix(".html").is_file()
    capsys.readouterr()
    assert main(["report", str(file), "--out", str(tmp_path / "x.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(tmp_path / "x.html")}
    assert main(["report", str(tmp_path / "none.jsonl")]) == 2


def test_it_says_why_agents_lose(file: Path, results: Results, tmp_path: Path) -> None:
    """Points of cost terms add up to the difference, and the worst day is told in words."""
    first, *others = results.agents
    page = report(file, tmp_path / "why.html", files=tmp_path, against=first)
    told = page.read_text(encoding="utf-8")
    assert told.count("Worst day: ") == len(others)
    head, *rows = csv.reader((tmp_path / "differences.csv").read_text(encoding="utf-8").splitlines())
    assert [row[0] for row in rows] == others
    for row in rows:
        assert sum(map(float, row[4:])) == pytest.approx(float(row[1]))
    assert head[4:] == list(COST_TERMS)
    assert (tmp_path / "differences.tex").is_file()
    assert main(["report", str(file), "--against", "nobody"]) == 2
    alone = evaluate("hold", f"{SUITE}/drop")
    with pytest.raises(FleetgymError, match="only agent"):
        report(alone, tmp_path / "alone.html", against="hold")
    assert not (tmp_path / "alone.html").exists()


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    """One instance has no interval, and what has no timings no CPU time; headings are spelt as words."""
    run = evaluate(["hold", "gh"], f"{SUITE}/drop", out=tmp_path / "one.jsonl")
    page = report(run, tmp_path / "one.html").read_text(encoding="utf-8")
    assert "95 % interval</" not in page
    assert "1 task, 1 family;" in page
    assert ">CPU time</h2>" in page
    (tmp_path / "one.timings.jsonl").unlink()
    bare = report(tmp_path / "one.jsonl", tmp_path / "bare.html").read_text(encoding="utf-8")
    assert "CPU s/episode" in page
    assert "CPU s/episode" not in bare


def test_settings_of_one_agent_are_told_apart(results: Results, tmp_path: Path) -> None:
    """By pictures and table; the numbers keep the full names."""
    import dataclasses

    place = "a/folder/with/a/long/name/agent.py"
    names = {
        "hold": "hold",
        "gh": f"{place}:SafetyMargin",
        "random": f"{place}:SafetyMargin(every=12, samples=8)",
    }
    named = tuple(dataclasses.replace(e, agent=names[e.agent]) for e in results.episodes)
    page = report(Results(results.header, named), tmp_path / "report.html", files=tmp_path).read_text()
    for picture in ("families", "profile", "breakdown", "cpu-time"):
        root = ElementTree.fromstring((tmp_path / f"{picture}.svg").read_text(encoding="utf-8"))
        texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "SafetyMargin" in texts
        assert [text for text in texts if text.startswith("Safety") and text.endswith("samples=8)")]
        assert names["random"] in (tmp_path / f"{picture}.csv").read_text(encoding="utf-8")
    assert place not in re.sub(r'href="[^"]*"', "", page)


def test_labels_of_points_do_not_meet() -> None:
    """Agents that cost and take nearly the same stand beside one another."""
    points = {f"agent-{k}(margin=0.{k})": (0.1 * (1 + 0.02 * k), 50.0 + 0.3 * k) for k in range(6)}
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">agent', scatter_chart(points))
    assert len(found) == 6
    for one, two in itertools.combinations([(float(x), float(y), side) for x, y, side in found], 2):
        assert one[2] != two[2] or abs(one[1] - two[1]) >= 11


def test_a_submission_stays_one_when_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder holds three files and nothing else: the page is written into the current folder."""
    folder = make_good(tmp_path / "2026-11-21-gh")
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder / "episodes.jsonl.gz")]) == 0
    assert (tmp_path / "2026-11-21-gh.html").is_file()
    assert len(verify(folder).episodes) == 7


def test_small_chances_are_not_shown_as_zero() -> None:
    """Neither on the page nor in LaTeX; what is zero stays zero."""
    from fleetgym.leaderboard import report as module

    assert [module._p_value(p) for p in (0.36431, 0.00001, "")] == ["0.3643", "< 0.0001", "–"]
    assert [module._latex(cell) for cell in (0.0, 0.0001, 0.25, 12.34)] == [
        "0.000",
        r"$<$0.001",
        "0.250",
        "12.3",
    ]
