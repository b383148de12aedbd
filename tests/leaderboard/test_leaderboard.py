"""The leaderboard: statistics against known answers, tables from verified records only, every change noticed."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changed_files import refused_flips, swap_once_hashed
from places import ROOT
from scipy import stats
from submissions import SUITE, make_good

import fleetgym
from fleetgym.cli import main
from fleetgym.evaluation.results_format import Costs
from fleetgym.files.documents import write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard import best_known as replaying
from fleetgym.leaderboard.history import history
from fleetgym.leaderboard.readme import with_tables
from fleetgym.leaderboard.record import check_unchanged, read_record, write_record
from fleetgym.leaderboard.registers import freeze, read_registers, read_releases
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.standings import make_boards, public_tasks, shift, unverified
from fleetgym.leaderboard.verify import verify
from fleetgym.model.library import list_tasks, samples, task_name
from fleetgym.model.sets import ENVIRONMENT_VARIABLE, instances_folder
from fleetgym.scoring.best_known import BestKnownSet, best_known_path, read_best_known
from fleetgym.scoring.score import percents, score
from fleetgym.scoring.statistics import (
    FamilyMean,
    cluster_means,
    holm,
    profile,
    ranks_of,
    tail_mean,
    tie_groups,
)
from fleetgym.scoring.table import Played, make_table

AGENTS = ("hold", "gh", "random")
ZERO = Costs(rental=1, model_storage=0, data_storage=0, delay=0, slo=0, unserved=0, late=0, startup=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a leaderboard of three agents on the toys."""
    board = tmp_path_factory.mktemp("board")
    for agent in AGENTS:
        make_good(board / "submissions" / f"2026-11-21-{agent}", agent)
        verify(board / "submissions" / f"2026-11-21-{agent}", out=board / "verified")
    return board


@pytest.fixture
def board(made: Path, tmp_path: Path) -> Path:
    """Return a copy that may be changed."""
    return Path(shutil.copytree(made, tmp_path / "board"))


@pytest.fixture
def own_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the standard set be a copy that may be changed."""
    copy = Path(shutil.copytree(instances_folder(), tmp_path / "instances"))
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(copy))
    return copy


def played(family: str, instance: str, cost: float, best: float = 1.0, scenario: int = 0) -> Played:
    """Return a played task."""
    return Played(family, instance, scenario, cost, best, None, ZERO, 0.0, 0.0, False, None)


# -- statistics


def test_holm_by_hand() -> None:
    """The textbook's example, and never below the p-value itself."""
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([]) == []


def test_ties_need_pairs() -> None:
    """Two rows that differ by little, but always, are told apart; two that differ by chance are not."""
    rng = np.random.default_rng(2)
    noise = rng.normal(0.0, 1.0, 30)
    assert tie_groups([of_family(noise), of_family(noise + 0.05)]) == [1, 2]
    other = noise + rng.normal(0.0, 0.5, 30)
    other += noise.mean() - other.mean() + 0.01
    assert tie_groups([of_family(noise), of_family(other)]) == [1, 1]


def of_family(values: np.ndarray) -> dict[tuple[str, str], float]:
    """Return the numbers of a family's instances."""
    return {("f", str(k)): float(value) for k, value in enumerate(values)}


def ranks_from(**p_values: float) -> list[int]:
    """Return the ranks of the rows a to d, given the p-values of some pairs; those of the others are one."""
    pairs = itertools.combinations(range(4), 2)
    return ranks_of(4, {(a, b): p_values.get("abcd"[a] + "abcd"[b], 1.0) for a, b in pairs})


def test_ranks_by_hand() -> None:
    """Six pairs are tested at once; a group is its first row and those behind it, down to one that is told from it."""
    assert ranks_from(ab=0.0083) == [1, 2, 2, 2]
    assert ranks_from(ab=0.0084) == [1, 1, 1, 1]  # times six above 5 %
    assert ranks_from(ac=0.001) == [1, 1, 3, 3]  # c is not told from b
    assert ranks_from(bd=0.001) == [1, 1, 1, 1]  # though b and d differ
    assert ranks_from(ab=0.001, bd=0.009) == [1, 2, 2, 4]  # the second test of six: times five
    assert ranks_from(ab=0.001, bd=0.011) == [1, 2, 2, 2]


def test_tail_and_profile() -> None:
    """The worst tenth counts a part of a value where it must; profiles end at one."""
    assert tail_mean([1.0] * 9 + [11.0]) == 11.0
    assert tail_mean([float(k) for k in range(1, 16)]) == pytest.approx((15 + 0.5 * 14) / 1.5)
    assert profile([2.0, 1.0])[-1] == (2.0, 1.0)


def test_table_agrees_with_score() -> None:
    """A run's headline, families, order and interval are those of `fleetgym score`."""
    from fleetgym.evaluation.run import evaluate
    from fleetgym.leaderboard.report import played_rows

    results = evaluate(list(AGENTS), SUITE)
    table, scored = make_table(played_rows(results)[1]), score(results)
    assert [row.key for row in table.rows] == [row.agent for row in scored.rows]
    for row in table.rows:
        other = scored.row(row.key)
        assert row.score == pytest.approx(other.score)
        assert row.families == pytest.approx(dict(other.families))
        assert row.cost_usd == pytest.approx(other.cost_usd)
        assert row.miss_share == pytest.approx(other.miss_share)
        assert row.interval is not None
        assert other.interval is not None
        assert row.interval == pytest.approx(other.interval)
        assert sum(row.breakdown.values()) == pytest.approx(np.mean([task.ratio for task in row.tasks]))


def random_rows() -> dict[str, list[Played]]:
    """Return rows of three families, one of which is no part of the score, on instances of one to three scenarios."""
    rng = np.random.default_rng(6)
    rows: dict[str, list[Played]] = {"a": [], "b": [], "c": []}
    for family, instances in {"ou": 5, "drop": 3, "grw": 4}.items():
        for k in range(instances):
            for scenario in range(1 + k % 3):
                best = rng.lognormal(3.0, 1.0)
                for tasks in rows.values():
                    terms = dict(zip(Costs.__dataclass_fields__, best * rng.exponential(0.3, 8), strict=True))
                    task = played(
                        family, f"fleet-v1/dev/{family}-s-10{k}", sum(terms.values()), best, scenario
                    )
                    facts = {
                        "bound_usd": best * rng.uniform(0.5, 1.0),
                        "costs": Costs(**terms),
                        "miss_share": rng.random(),
                        "unserved_share": rng.random(),
                        "failed": scenario == 0,
                        "cpu_s": rng.exponential(),
                    }
                    tasks.append(dataclasses.replace(task, **facts))  # type: ignore[arg-type]
    return rows


def mean_of_means(
    tasks: Sequence[Played], families: Sequence[str], value: Callable[[Played], float]
) -> float:
    """Return the mean over families of the mean over instances of the mean over scenarios."""
    means = []
    for family in families:
        names = {task.instance for task in tasks if task.family == family}
        means.append(np.mean([np.mean([value(t) for t in tasks if t.instance == name]) for name in names]))
    return float(np.mean(means))


def log_ratio(task: Played) -> float:
    """Return ln(cost / best-known)."""
    return math.log(task.cost_usd / task.best_usd)


def test_rows_by_plain_loops() -> None:
    """Every number of a row, computed again one task at a time."""
    rows, scored = random_rows(), ("drop", "ou")
    table = make_table(rows)
    for row in table.rows:
        tasks = rows[row.key]
        counted = [task for task in tasks if task.family in scored]
        assert row.score == pytest.approx(100 * math.expm1(mean_of_means(tasks, scored, log_ratio)))
        for family in ("drop", "grw", "ou"):
            expected = 100 * math.expm1(mean_of_means(tasks, [family], log_ratio))
            assert row.families[family] == pytest.approx(expected)
            means = cluster_means(((family, t.instance), log_ratio(t)) for t in tasks if t.family == family)
            assert row.family_intervals[family] == pytest.approx(percents(FamilyMean.of(means).interval()))
        above = mean_of_means(tasks, scored, lambda t: math.log(t.cost_usd / (t.bound_usd or 0.0)))
        assert row.above_bound == pytest.approx(100 * math.expm1(above))
        for term, share in row.breakdown.items():
            shares = {task.task: getattr(task.costs, term) / task.best_usd for task in tasks}
            assert share == pytest.approx(mean_of_means(tasks, scored, lambda t, of=shares: of[t.task]))
        worst = sorted((task.cost_usd - task.best_usd for task in counted), reverse=True)
        assert len(counted) == 15
        assert row.tail_usd == pytest.approx((worst[0] + 0.5 * worst[1]) / 1.5)
        assert [ratio for ratio, _ in row.profile] == sorted(task.ratio for task in counted)
        for ratio, share in row.profile:
            assert share == pytest.approx(np.mean([task.ratio <= ratio for task in counted]))
        assert row.cost_usd == pytest.approx(sum(task.cost_usd for task in counted))
        for name in ("miss_share", "unserved_share", "cpu_s"):
            assert getattr(row, name) == pytest.approx(np.mean([getattr(task, name) for task in counted]))
        assert row.failures == sum(task.failed for task in tasks) > sum(task.failed for task in counted)


@pytest.mark.parametrize(("family", "known"), [("ou", False), ("grw", True)])
def test_one_task_of_the_score_without_a_number_is_enough(family: str, known: bool) -> None:
    """A mean of those that have a bound, or a CPU time, would be of other tasks than the rest of the row."""
    rows = random_rows()
    k = next(k for k, task in enumerate(rows["a"]) if task.family == family)
    rows["a"][k] = dataclasses.replace(rows["a"][k], bound_usd=None, cpu_s=None)
    row = next(row for row in make_table(rows).rows if row.key == "a")
    assert ((row.above_bound is not None), (row.cpu_s is not None)) == (known, known)


def test_rows_stand_in_the_order_of_their_scores() -> None:
    """Which is that of families, not of instances: being best on five of eight is not enough."""
    costs = {"a": {"ou": 1.5, "drop": 1.0}, "b": {"ou": 1.0, "drop": 1.9}}
    instances = {"ou": 5, "drop": 3}
    rows = {
        key: [played(f, f"{f}{k}", of[f]) for f, count in instances.items() for k in range(count)]
        for key, of in costs.items()
    }
    table = make_table(rows)
    assert [(row.key, row.rank) for row in table.rows] == [("a", 1), ("b", 2)]
    assert [row.score for row in table.rows] == pytest.approx([100 * (r**0.5 - 1) for r in (1.5, 1.9)])


def test_families_that_are_shown_only() -> None:
    """Score, rank, interval and cost are those of the families that a set names; every family has a column."""
    found: dict[str, list[Played]] = {"a": [], "b": []}
    for k in range(1, 5):
        for family, costs in {"trace": (1.0, 1.2), "drop": (1.1, 1.3), "grw": (9.0, 1.0)}.items():
            for key, cost in zip(found, costs, strict=True):
                found[key].append(played(family, f"fleet-v1/dev/{family}-s-10{k}", cost + 0.01 * k))
    table = make_table(found)
    counted = make_table({key: [t for t in tasks if t.family != "grw"] for key, tasks in found.items()})
    assert [row.key for row in table.rows] == ["a", "b"]
    assert (table.families, table.scored) == (("drop", "grw", "trace"), ("drop", "trace"))
    assert [table.head(family) for family in table.families] == ["drop", "(grw)", "trace"]
    for row, other in zip(table.rows, counted.rows, strict=True):
        assert set(row.families) == {"drop", "grw", "trace"}
        assert {f: row.families[f] for f in other.families} == other.families
        same = ("rank", "score", "interval", "cost_usd", "tail_usd", "miss_share", "profile", "breakdown")
        assert all(getattr(row, name) == getattr(other, name) for name in same)
    # A season's tasks have the season's name, and the families of the suite that it was drawn from.
    drawn = {
        key: [dataclasses.replace(t, instance=t.instance.replace("fleet-v1", "fresh-w")) for t in tasks]
        for key, tasks in found.items()
    }
    assert make_table(drawn).scored == table.families
    fresh = make_table(drawn, suite="fleet-v1/dev")
    assert fresh.scored == table.scored
    assert [row.score for row in fresh.rows] == [row.score for row in table.rows]
    assert shift(found["a"], found["a"]).mean == 0.0
    dearer = [
        dataclasses.replace(t, cost_usd=t.cost_usd * (2.0 if t.family == "grw" else 1.0)) for t in found["a"]
    ]
    assert shift(found["a"], dearer).mean == 0.0


def test_single_instances_have_no_interval() -> None:
    """Where a family has one instance nothing is told: no interval, and no row from another."""
    for other in (2.0, 9.0):
        table = make_table({"a": [played("f", "x", 2.0)], "b": [played("f", "x", other)]})
        assert [row.interval for row in table.rows] == [None, None]
        assert [row.rank for row in table.rows] == [1, 1]
    assert FamilyMean.of({("f", "x"): 0.0}).interval() is None


def test_rows_must_have_played_the_same() -> None:
    """A row without a task cannot be compared."""
    with pytest.raises(FleetgymError, match="b has not played y#0"):
        make_table({"a": [played("f", "x", 2.0), played("f", "y", 2.0)], "b": [played("f", "x", 2.0)]})


def test_fresh_scores_that_differ_are_flagged() -> None:
    """A row that has learnt the public tasks by heart is flagged; an honest one, or a better one, is not."""
    rng = np.random.default_rng(3)
    names = [f"{family}/{k}" for family in ("ou", "drop") for k in range(10)]
    public = [played(n[:2], f"pub/dev/{n[-1]}{n[:2]}", math.exp(rng.normal(0.3, 0.1))) for n in names]
    same = [played(n[:2], f"new/dev/{n[-1]}{n[:2]}", math.exp(rng.normal(0.3, 0.1))) for n in names]
    worse = [played(n[:2], f"new/dev/{n[-1]}{n[:2]}", math.exp(rng.normal(0.6, 0.1))) for n in names]
    assert not shift(public, same).is_flagged
    assert shift(public, worse).is_flagged
    assert not shift(worse, public).is_flagged
    assert shift(public, worse).mean == pytest.approx(35.0, abs=12.0)
    # Of instances that are in both, and of no others: their public scores may be anything.
    few = [played("ou", "pub/dev/other", 99.0), *public]
    assert shift(few, worse) == shift(public, worse)


def test_paired_differences_have_their_own_spread() -> None:
    """The 99 % interval is that of the differences, however far instances are from each other."""
    rng = np.random.default_rng(5)
    public = rng.normal(0.5, 3.0, 60)
    worse = rng.normal(0.1, 0.05, 60)
    rows = [
        [played("ou", f"{suite}/dev/{k}", math.exp(value)) for k, value in enumerate(values)]
        for suite, values in (("pub", public), ("new", public + worse))
    ]
    expected = stats.ttest_1samp(worse, 0.0).confidence_interval(0.99)
    assert shift(*rows).interval == pytest.approx(100.0 * np.expm1(expected))
    assert shift(*rows).is_flagged


def test_seasons_with_instances_of_their_own_compare_family_means() -> None:
    """Without a common instance the spreads of both sides add up, as in Welch's test; other families say nothing."""
    rng = np.random.default_rng(4)
    sizes = {"ou": (15, 12), "drop": (9, 20)}
    public, fresh = (
        [
            played(family, f"{suite}/dev/{suite}-{n}", math.exp(rng.normal(0.3 + 0.2 * k, 0.1 + 0.1 * k)))
            for family, counts in sizes.items()
            for n in range(counts[k])
        ]
        for k, suite in enumerate(("pub", "new"))
    )
    logs = {
        f: [[math.log(p.cost_usd) for p in side if p.family == f] for side in (public, fresh)] for f in sizes
    }
    mean = np.mean([np.mean(after) - np.mean(before) for before, after in logs.values()])
    parts = [(np.var(s, ddof=1) / len(s) / 4, len(s) - 1) for sides in logs.values() for s in sides]
    variance = sum(part for part, _ in parts)
    reach = math.sqrt(variance) * stats.t.ppf(0.995, variance**2 / sum(s**2 / df for s, df in parts))
    found = shift(public, fresh)
    assert found.is_flagged
    assert found.mean == pytest.approx(100.0 * math.expm1(mean))
    assert found.interval == pytest.approx(100.0 * np.expm1([mean - reach, mean + reach]))
    renamed = [dataclasses.replace(task, instance=f"{task.instance}-again") for task in public]
    low, high = shift(public, renamed).interval or (0.0, 0.0)
    assert low < 0.0 < high, "the sides have spreads of their own, also where their numbers are the same"
    for other in (
        [played("ou", "new/dev/a", 2.0)],
        [],
        [played("f", f"new/dev/{k}", float(k)) for k in "12"],
    ):
        assert (shift(public, other).mean, shift(public, other).interval) == (0.0, None)


def test_cpu_time_is_told_of_rows_that_were_measured_throughout() -> None:
    """A mean over the days that happened to be measured would be of other days than the score."""
    days = [
        dataclasses.replace(played("f", name, 2.0), cpu_s=seconds)
        for name, seconds in (("x", 1.0), ("y", 4.0))
    ]
    torn = [days[0], dataclasses.replace(days[1], cpu_s=None)]
    table = make_table({"whole": days, "torn": torn})
    assert {row.key: row.cpu_s for row in table.rows} == {"whole": 2.5, "torn": None}


# -- the board


def test_no_row_is_cheaper_than_what_is_proven(made: Path) -> None:
    """A certified cost below a lower bound says that the one or the other is wrong."""
    record = read_record(made / "verified" / "2026-11-21-gh.json.gz")
    known = read_best_known(best_known_path(record.suite))
    task, usd = task_name(*record.episodes[0].task), record.episodes[0].cost_usd
    for bound_usd in (usd, usd * (1.0 + 1e-6)):
        best = dataclasses.replace(known.tasks[task], value_usd=2.0 * usd, bound_usd=bound_usd, proven=False)
        changed = dataclasses.replace(known, tasks={**known.tasks, task: best})
        if bound_usd == usd:
            assert public_tasks(record, changed)[0].bound_usd == usd
        else:
            with pytest.raises(DataError, match="costs less than its lower bound"):
                public_tasks(record, changed)


def test_board_from_records(board: Path) -> None:
    """Scores are those of the run itself, against the set that travels with the instances."""
    (suite_board,) = make_boards(board)
    assert suite_board.suite == SUITE
    assert not suite_board.is_frozen
    assert {row.key for row in suite_board.certified.rows} == {f"2026-11-21-{agent}" for agent in AGENTS}
    expected = score(fleetgym.evaluate(list(AGENTS), SUITE))
    for row in suite_board.certified.rows:
        assert row.score == pytest.approx(expected.row(row.key.removeprefix("2026-11-21-")).score)


def test_rows_with_the_same_actions_name_each_other(board: Path) -> None:
    """A copy under another name is told on both rows; without one there is no such column, and README has none."""
    build_site(board)
    page = (board / "site" / "index.html").read_text()
    assert "same costs as" not in page
    copy = board / "submissions" / "2026-11-22-mine"
    shutil.copytree(board / "submissions" / "2026-11-21-gh", copy)
    verify(copy, out=board / "verified")
    build_site(board)
    page = (board / "site" / "index.html").read_text()
    assert "same costs as" in page
    cells = re.findall(r'<td[^>]* data-value="(2026-[^"]*)">([^<]*)</td>', page)
    assert sorted(cells) == [("2026-11-21-gh", "2026-11-21-gh"), ("2026-11-22-mine", "2026-11-22-mine")]


def test_same_records_same_page(board: Path, tmp_path: Path) -> None:
    """The page is the same to the byte, and so is the record, whatever the number of workers."""
    first, second = build_site(board, tmp_path / "1"), build_site(board, tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    record = board / "verified" / "2026-11-21-gh.json.gz"
    verify(board / "submissions" / "2026-11-21-gh", workers=2, out=tmp_path / "again")
    assert (tmp_path / "again" / record.name).read_bytes() == record.read_bytes()


def test_unverified_and_withdrawn_rows_are_left_out(board: Path) -> None:
    """A submission without a record is named as waiting; a withdrawn one is listed with its reason."""
    (board / "verified" / "2026-11-21-gh.json.gz").unlink()
    assert unverified(board) == ["2026-11-21-gh"]
    (board / "withdrawn.toml").write_text(
        '[[withdrawn]]\nid = "2026-11-21-random"\ndate = "2026-12-01"\nreason = "was <b>chance</b>"\n'
    )
    page = build_site(board).read_text()
    (suite_board,) = make_boards(board)
    assert [row.key for row in suite_board.certified.rows] == ["2026-11-21-hold"]
    assert "Not verified yet, so not shown: 2026-11-21-gh." in page
    assert "was &lt;b&gt;chance&lt;/b&gt;" in page


def test_the_command_says_which_submissions_have_no_row(
    board: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is missing: the record, or a name that a submission can have."""
    (board / "verified" / "2026-11-21-gh.json.gz").unlink()
    (board / "submissions" / "My agent").mkdir()
    assert main(["leaderboard", str(board)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    folder = board / "submissions" / "2026-11-21-gh"
    assert first == (
        "fleetgym: 2026-11-21-gh has no row, since it has no record: "
        f"fleetgym verify {folder} --out {board / 'verified'}"
    )
    assert second.startswith(
        f"fleetgym: {board / 'submissions' / 'My agent'} has no row: a submission's name"
    )


def test_table_in_the_readme(board: Path) -> None:
    """The part between the marks is replaced, the rest stays; text cannot become markup."""
    readme = "before\n<!-- table: begin -->\nold\n<!-- table: end -->\nafter\n"
    text = with_tables(readme, make_boards(board))
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "\nold\n" not in text
    assert "| 1 | " in text
    assert with_tables(text, make_boards(board)) == text


def test_nothing_verified(tmp_path: Path) -> None:
    """An empty leaderboard says so."""
    with pytest.raises(FleetgymError, match="no verified submissions"):
        build_site(tmp_path)


# -- every change is noticed


def test_a_changed_claim_is_noticed(board: Path) -> None:
    """One digit of one claimed cost, the checksum left alone: the page is refused, and so is the verification."""
    folder = board / "submissions" / "2026-11-21-gh"
    text = gzip.decompress((folder / "episodes.jsonl.gz").read_bytes()).decode()
    assert '"cost_usd":24.0,' in text
    changed = text.replace('"cost_usd":24.0,', '"cost_usd":23.0,', 1)
    (folder / "episodes.jsonl.gz").write_bytes(gzip.compress(changed.encode(), 9, mtime=0))
    with pytest.raises(DataError, match="changed since it was verified"):
        build_site(board)
    with pytest.raises(DataError, match="SHA-256"):
        verify(folder)


def test_a_changed_declaration_is_noticed(board: Path) -> None:
    """A submission's declaration is what was verified, or it is not shown."""
    path = board / "submissions" / "2026-11-21-gh" / "submission.toml"
    path.write_text(path.read_text().replace('name = "gh"', 'name = "the best"'))
    with pytest.raises(DataError, match="changed since it was verified"):
        build_site(board)


def test_a_declaration_that_is_swapped_once_it_is_hashed_changes_nothing(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was hashed is what is compared with the record."""
    folder = board / "submissions" / "2026-11-21-gh"
    record = read_record(board / "verified" / "2026-11-21-gh.json.gz")
    path = folder / "submission.toml"
    swap_once_hashed(monkeypatch, path, path.read_text().replace('name = "gh"', 'name = "the best"'))
    check_unchanged(record, folder, {})
    with pytest.raises(DataError, match="changed since it was verified"):
        check_unchanged(record, folder, {})


def test_a_record_of_a_file_that_was_rewritten_stays_valid(board: Path) -> None:
    """Its old checksums are accepted if the log names the new ones, and not without it."""
    path = board / "verified" / "2026-11-21-gh.json.gz"
    record = read_record(path)
    submission = record.submission
    files = dataclasses.replace(submission.files, episodes_sha256="1" * 64)
    old = dataclasses.replace(submission, format="fleetgym-submission-1", files=files)
    write_record(path.parent, dataclasses.replace(record, submission=old, declaration_sha256="0" * 64))
    with pytest.raises(DataError, match="changed since it was verified"):
        build_site(board)
    new = record.declaration_sha256, submission.files.episodes_sha256
    log = f"old_sha256,new_sha256\n{'0' * 64},{new[0]}\n{'1' * 64},{new[1]}\n"
    (board / "format-2.csv").write_text(log)
    build_site(board)
    (board / "format-2.csv").write_text(log.replace("old_", ""))
    with pytest.raises(DataError, match="expected the columns"):
        build_site(board)


def test_a_record_under_another_name_is_noticed(board: Path) -> None:
    """A copied record does not make a second row."""
    folder = board / "verified"
    shutil.copy(folder / "2026-11-21-gh.json.gz", folder / "2026-11-22-mine.json.gz")
    with pytest.raises(DataError, match="under another name"):
        build_site(board)


def test_an_edited_record_is_noticed(board: Path) -> None:
    """By the page, which compares what was claimed, and by `verify`, which replays; --out writes it anew."""
    path, folder = board / "verified" / "2026-11-21-gh.json.gz", board / "submissions" / "2026-11-21-gh"
    record = read_record(path)
    first, *rest = record.episodes
    cheap = Costs(**{name: 0.99 * usd for name, usd in dataclasses.asdict(first.costs).items()})
    episodes = {
        r"costs\.": (dataclasses.replace(first, cost_usd=cheap.total(), costs=cheap), *rest),
        "miss_share": (dataclasses.replace(first, miss_share=0.5 * (first.miss_share + 1.0)), *rest),
        "lost": (dataclasses.replace(first, lost=first.lost + 1), *rest),
        "6 of them in the record": tuple(rest),
    }
    edits: list[tuple[str, dict[str, Any]]] = [(reason, {"episodes": e}) for reason, e in episodes.items()]
    other = dataclasses.replace(record.instances[first.instance], family="tail")
    edits.append(("instances", {"instances": {**record.instances, first.instance: other}}))
    edits.append(("instances", {"suite": "fleet-v0/dev"}))
    for reason, changes in edits:
        write_record(board / "verified", dataclasses.replace(record, **changes))
        with pytest.raises(DataError, match=rf"{reason}.*the record says something else"):
            make_boards(board)
        with pytest.raises(DataError, match="the record is not what the replay found"):
            verify(folder)
        assert verify(folder, out=board / "verified") == record
    make_boards(board)
    verify(folder)


def test_a_flipped_record_is_noticed(board: Path) -> None:
    """Any bit of its text, and a cost that is changed by less than the page's tolerance."""
    path = board / "verified" / "2026-11-21-gh.json.gz"
    assert refused_flips(path, lambda: read_record(path), seed=0) > 295
    unsealed, edited = (json.loads(gzip.decompress(path.read_bytes())) for _ in range(2))
    del unsealed["sha256"]
    edited["episodes"][0]["cost_usd"] *= 1.0 + 1e-10  # less than what processors differ by
    for data in (unsealed, edited):
        write_json(path, data)
        with pytest.raises(DataError, match=r"\$\.sha256: is not the checksum of the rest"):
            read_record(path)


def test_a_changed_instance_is_noticed(board: Path, own_instances: Path) -> None:
    """One byte of one instance: replaying it is refused."""
    path = own_instances / "fleet-v0" / "toy" / "two-pools.json"
    data = bytearray(path.read_bytes())
    place = data.index(b'"price_usd_per_gpu_h": ') + len(b'"price_usd_per_gpu_h": ')
    data[place] = data[place] ^ 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="the file was changed"):
        verify(board / "submissions" / "2026-11-21-gh")


def write_edited(path: Path, data: dict[str, Any]) -> None:
    """Write best-known values that were edited, as somebody does who makes the checksums right as well."""
    for best in data["tasks"].values():
        best.pop("sha256", None)
    path.write_text(json.dumps(data))


def test_a_flipped_best_known_value_is_noticed(own_instances: Path) -> None:
    """Every value has a checksum of its own, which `score` and `doctor` read: not a digit changes unseen."""
    path, task = best_known_path("fleet-v0"), "fleet-v0/toy/two-pools#0"
    text = path.read_bytes()
    assert refused_flips(path, lambda: read_best_known(path).tasks[task], seed=4) > 250
    for change in ({"value_usd": 22.5, "proven": False}, {"date": "2026-11-20"}, {"method": "x"}):
        data = json.loads(text)
        data["tasks"][task].update(change)
        path.write_text(json.dumps(data))
        with pytest.raises(DataError, match=r"two-pools#0.*changed since it was written"):
            read_best_known(path)


def test_a_changed_best_known_value_is_noticed(board: Path, own_instances: Path) -> None:
    """One best-known value: the frozen set of that name is another, and the replay says what it should be."""
    freeze(board, "fleet-v0", "2026-11-21")
    build_site(board)
    path = best_known_path("fleet-v0")
    data = json.loads(path.read_text())
    (task,) = (t for t, best in data["tasks"].items() if best["value_usd"] == 22.0)
    data["tasks"][task].update(value_usd=21.9, bound_usd=21.9)
    write_edited(path, data)
    with pytest.raises(DataError, match=r"bks-.* was frozen with another value") as caught:
        build_site(board)
    assert "fleet-v0/toy/" in caught.value.path
    wrong = replaying.replay_best_known(SUITE)
    assert list(wrong.values()) == ["says 21.9 USD, the replay 22.0"]


def test_best_known_costs_are_confirmed() -> None:
    """The stored actions of the toys' best-known costs cost what is said."""
    assert replaying.replay_best_known(SUITE) == {}


def test_freezing(board: Path, own_instances: Path) -> None:
    """A set is frozen once; another one needs another name; both are in the history, and the newest counts."""
    first = freeze(board, "fleet-v0", "2026-11-21")
    assert freeze(board, "fleet-v0", "2026-11-22") == first
    path = best_known_path("fleet-v0")
    data = json.loads(path.read_text())
    task = "fleet-v0/toy/two-pools#0"
    data["tasks"][task]["method"] = "other"
    write_edited(path, data)
    with pytest.raises(FleetgymError, match="frozen already"):
        freeze(board, "fleet-v0", "2026-11-22")
    data["name"] = "bks-2026-12"
    data["tasks"][task].update({key: 0.5 * data["tasks"][task][key] for key in ("value_usd", "bound_usd")})
    write_edited(path, data)
    (found,) = make_boards(board)
    assert found.newer == "bks-2026-12"
    for row in found.certified.rows:  # one of seven instances, half as dear: each cost ratio grows by 2^(1/7)
        expected = (1.0 + row.score / 100.0) * 2.0 ** (1 / 7)
        assert found.newer_scores[row.key] == pytest.approx(100.0 * (expected - 1.0))
    freeze(board, "fleet-v0", "2026-12-01")
    assert [release.name for release in read_registers(board).releases] == [first.name, "bks-2026-12"]
    assert make_boards(board)[0].release == "bks-2026-12"
    assert make_boards(board, first.name)[0].release == first.name
    assert len(read_releases(board, "fleet-v0")) == 2
    with pytest.raises(FleetgymError, match="unknown release .bks-1999-01"):
        make_boards(board, "bks-1999-01")


def test_the_history_says_how_far_costs_fell_and_are_from_bounds(board: Path) -> None:
    """Geometric means: the fall over the tasks of both sets, the distance over bounded tasks without a proof."""
    (found,) = make_boards(board)
    present = found.history[-1][1]
    names = [task_name(*task) for task in list_tasks(SUITE)[:3]]

    def values(*usd: float) -> BestKnownSet:
        """Return a set of three tasks, all bounded by 8 USD, the last one proven."""
        tasks = {
            name: dataclasses.replace(
                present.tasks[name], value_usd=v, bound_usd=8.0, proven=name == names[2]
            )
            for name, v in zip(names, usd, strict=True)
        }
        return dataclasses.replace(present, tasks=tasks)

    sets = [(None, values(20.0, 20.0, 8.0)), (None, values(10.0, 16.0, 8.0))]
    page = str(history(dataclasses.replace(found, history=sets)))
    fall, above = 1 - (0.5 * 0.8 * 1.0) ** (1 / 3), (10 / 8 * 16 / 8) ** (1 / 2) - 1
    assert f">{100 * fall:.1f}<" in page
    assert f">{100 * above:.1f}<" in page


def test_a_day_that_there_is_not(board: Path, own_instances: Path) -> None:
    """A set is not frozen on it, and nothing is written."""
    before = sorted(path for path in board.rglob("*"))
    for date in ("2026-11-31", "tomorrow"):
        with pytest.raises(DataError, match="date"):
            freeze(board, "fleet-v0", date)
    assert sorted(path for path in board.rglob("*")) == before
    make_boards(board)


def test_an_older_release_has_a_page_and_no_more(board: Path, own_instances: Path, tmp_path: Path) -> None:
    """The README stays with the newest; only suites of which it was frozen are shown, and no row is accused."""
    first = freeze(board, "fleet-v0", "2026-11-21")
    path = best_known_path("fleet-v0")
    write_edited(path, {**json.loads(path.read_text()), "name": "bks-2026-12"})
    freeze(board, "fleet-v0", "2026-12-01")
    marks = "<!-- table: begin -->\n<!-- table: end -->\n"
    (board / "README.md").write_text(marks)
    page = build_site(board, tmp_path / "old", first.name)
    assert f"<code>{first.name}</code>" in page.read_text()
    assert (board / "README.md").read_text() == marks
    assert make_boards(board, first.name)[0].shifts == {}
    build_site(board)
    assert "bks-2026-12" in (board / "README.md").read_text()


def test_a_changed_release_is_noticed(board: Path, own_instances: Path) -> None:
    """A frozen set is compared with its checksum, also when it is no longer the present one."""
    release = freeze(board, "fleet-v0", "2026-11-21")
    path = board / "releases" / "fleet-v0" / f"{release.name}.json.gz"
    text = gzip.decompress(path.read_bytes()).decode().replace('"date":"2026', '"date":"2025', 1)
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match="changed since it was (frozen|written)"):
        read_releases(board, "fleet-v0")


def test_values_only_fall(board: Path, own_instances: Path) -> None:
    """A new set with a dearer value is refused."""
    freeze(board, "fleet-v0", "2026-11-21")
    path = best_known_path("fleet-v0")
    data = json.loads(path.read_text())
    data["name"] = "bks-2026-12"
    found = data["tasks"]["fleet-v0/toy/two-pools#0"]
    found["value_usd"] = found["bound_usd"] = found["value_usd"] + 1.0
    write_edited(path, data)
    with pytest.raises(DataError, match="dearer than in"):
        build_site(board)


def test_registers_are_strict(board: Path) -> None:
    """Hand-kept files with unknown keys or doubles are refused with file and path."""
    (board / "seasons.toml").write_text('[[season]]\nname = "x"\n')
    with pytest.raises(DataError, match="missing key 'suite'"):
        read_registers(board)
    (board / "seasons.toml").unlink()
    entry = '[[withdrawn]]\nid = "a"\ndate = "2026-12-01"\nreason = "b"\n'
    (board / "withdrawn.toml").write_text(entry * 2)
    with pytest.raises(DataError, match="twice"):
        read_registers(board)


def test_command_line(
    board: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb builds the page, and freezes when told to."""
    assert main(["leaderboard", str(board), "--freeze", "fleet-v0", "--date", "2026-11-21", "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out)["page"])
    assert page == board / "site" / "index.html"
    assert "bks-" in page.read_text()
    record = read_record(board / "verified" / "2026-11-21-gh.json.gz")
    assert record.kind == "replayed"
    monkeypatch.chdir(board)
    assert main(["leaderboard", "nowhere"]) == 2


def test_the_projects_own_leaderboard() -> None:
    """Records belong to submissions and instances, frozen sets are as they were, the README has the page's table."""
    own = ROOT / "leaderboard"
    boards = make_boards(own)
    assert boards[0].is_frozen
    assert boards[0].suite in samples(), "the first table is the set to report"
    sets = [board.suite.partition("/")[0] for board in boards]
    assert sets == sorted(sets, reverse=True), "the newest set comes first"
    readme = (own / "README.md").read_text(encoding="utf-8")
    assert with_tables(readme, boards) == readme, "run `fleetgym leaderboard`"
