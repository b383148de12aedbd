"""A row is a reference agent's only where today's agent does the same again; near copies are told."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from submissions import declare, lines_of, make_good, write_lines

from fleetgym.agents.agent_code import _meaning, reference_sha256
from fleetgym.agents.registry import agent_entries
from fleetgym.cli import main
from fleetgym.evaluation.jobs import Job
from fleetgym.evaluation.results_format import COST_TERMS, Costs, EpisodeResult
from fleetgym.files.documents import canonical_hash
from fleetgym.files.errors import DataError
from fleetgym.files.schema import read_object
from fleetgym.leaderboard import identity
from fleetgym.leaderboard.columns import _near_copies
from fleetgym.leaderboard.identity import (
    Reference,
    confirm_all,
    owner,
    read_references,
    todays_sha256,
    write_reference,
)
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.verify import verify
from fleetgym.scoring.table import Played, make_table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a submission of a reference agent that is not verified yet."""
    return make_good(tmp_path_factory.mktemp("board") / "submissions" / "2026-11-21-gh", "gh")


@pytest.fixture
def row(made: Path, tmp_path: Path) -> Path:
    """Return a copy on a board of its own."""
    return Path(shutil.copytree(made, tmp_path / "submissions" / made.name))


def owner_of(record: Record, board: Path) -> str:
    """Return what the page says of a row."""
    return owner(record, read_references(board), {})


def with_the_actions_of(row: Path, agent: str, tmp_path: Path) -> None:
    """Let a row claim what another agent did."""
    other = lines_of(make_good(tmp_path / "other", agent))[1:]
    head, *mine = lines_of(row)
    write_lines(
        row, [head, *({**theirs, "agent": claim["agent"]} for theirs, claim in zip(other, mine, strict=True))]
    )


def test_a_reference_row_is_played_again(row: Path) -> None:
    """Its line in the register says of which code, and how many tasks were the same."""
    record = verify(row, out=row.parents[1] / "verified")
    known = read_references(row.parents[1])[row.name]
    assert known.agent_sha256 == record.submission.agent.agent_sha256 == todays_sha256("gh")
    assert known.tasks > 0
    assert owner_of(record, row.parents[1]) == "fleetgym (reference)"


def test_a_forged_reference_is_refused(row: Path, tmp_path: Path) -> None:
    """Valid actions of another agent, under a reference's name: the replay of costs alone would pass them."""
    with_the_actions_of(row, "random", tmp_path)
    with pytest.raises(
        DataError, match=r"agent\.entry: this row is not gh's: the agent does something else on"
    ):
        verify(row)


def test_an_early_end_hides_no_forgery(row: Path, tmp_path: Path) -> None:
    """Whoever says that the budget was spent must have played until then as the agent does, and end as it does."""
    with_the_actions_of(row, "random", tmp_path)
    head, *lines = lines_of(row)
    write_lines(row, [head, *({**line, "budget_spent_at_window": 1} for line in lines)])
    with pytest.raises(DataError, match="the agent does something else on"):
        verify(row)


def test_nobody_can_tell_which_tasks_are_played_again(row: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forger who could would change the others: the same files are not held to the same tasks twice."""
    played: list[list[tuple[str, int]]] = [[]]
    right = {e.task: e for e in (read_object(EpisodeResult, line) for line in lines_of(row)[1:])}

    def play(job: Job, **options: Any) -> EpisodeResult:
        played[-1].append((job.instance, job.scenario))
        return right[played[-1][-1]]

    monkeypatch.setattr(identity, "run_job", play)
    monkeypatch.setattr(identity, "DRAWN", len(right) // 2)
    for _ in range(20):
        verify(row)
        played.append([])
    draws = played[:-1]
    assert all(len(set(tasks)) == len(right) // 2 for tasks in draws)
    assert {task for tasks in draws for task in tasks} == right.keys()


@pytest.mark.parametrize(
    ("value", "reason"), [("", "has no agent_sha256"), ("0" * 64, "its code or settings have changed since")]
)
def test_a_reference_of_other_code_is_refused(row: Path, value: str, reason: str) -> None:
    """A row that nobody verified before must be of the agent as it is."""
    declare(row, "agent.agent_sha256", value)
    with pytest.raises(DataError, match=reason):
        verify(row)


def test_under_a_name_of_its_own_it_is_a_submitters(row: Path, tmp_path: Path) -> None:
    """Whatever its entry says."""
    with_the_actions_of(row, "random", tmp_path)
    declare(row, "agent.name", "my own")
    record = verify(row, out=tmp_path / "verified")
    assert owner_of(record, row.parents[1]) == "a submitter"


def test_rows_of_before_stay_as_of_their_commit(
    row: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were verified then; where today's agent does the same, the register says so."""
    board = row.parents[1]
    record = verify(row)
    write_reference(board, Reference(row.name, record.declaration_sha256, "", 0, "abc"))
    assert owner_of(record, board) == "fleetgym, as of abc"
    assert main(["verify", "--references", str(board)]) == 0
    assert "fleetgym (reference)  2026-11-21-gh" in capsys.readouterr().out
    assert owner_of(record, board) == "fleetgym (reference)"
    with_the_actions_of(row, "random", tmp_path)
    changed = verify_known(row, board)
    assert owner_of(changed, board) == "fleetgym, as of abc"
    assert confirm_all(board, all_tasks=True) == {row.name: "fleetgym, as of abc"}


def verify_known(row: Path, board: Path) -> Record:
    """Return the record of a row that the register has from before."""
    from fleetgym.leaderboard.submission import open_submission

    write_reference(board, Reference(row.name, open_submission(row).declaration_sha256, "", 0, "abc"))
    return verify(row)


def test_the_register_is_strict(row: Path) -> None:
    """A line that is not one names itself."""
    (row.parents[1] / "references.csv").write_text(
        "id,declaration_sha256,agent_sha256,tasks,as_of\nx,y,,0,z\n"
    )
    with pytest.raises(DataError, match=r"references\.csv: .*line 2"):
        verify(row)


def test_the_checksum_covers_what_an_agent_consists_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its modules, what these import, data beside them and its settings; not docstrings, comments and layout."""
    import fleetgym.baselines as package

    copy = tmp_path / "baselines"
    shutil.copytree(package.__path__[0], copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(package, "__path__", [str(copy)])

    def checksum(**arguments: Any) -> str:
        return reference_sha256("fleetgym.baselines.ppo.agent:ppo", arguments)

    before = checksum()
    assert checksum(seed=1) != before
    text = (copy / "ppo" / "agent.py").read_text()
    (copy / "ppo" / "agent.py").write_text(f"# a comment\n{text}\n\n")
    assert checksum() == before
    (copy / "ppo" / "agent.py").write_text(f"{text}\nX = 1\n")
    assert checksum() != before
    (copy / "ppo" / "agent.py").write_text(text)
    weights = bytearray((copy / "ppo" / "weights.npz").read_bytes())
    weights[100] ^= 1
    (copy / "ppo" / "weights.npz").write_bytes(weights)
    assert checksum() != before


def test_the_checksum_is_the_same_on_every_python() -> None:
    """The syntax that versions show in different ways is left out."""
    function = 'def f(a, *, b=1):\n    """Say."""\n    return f"{a:>{b}} {1.5}" if a else [*a, {**b}]\n'
    code = f"{function}\n\nclass A:\n    x: int = 2\n"
    expected = "5e4d8234889f0a772b0931120f37fb733b059ff81ec75db349ff5bebb246a331"
    assert canonical_hash(_meaning(ast.parse(code))) == expected


def test_every_reference_agent_has_a_checksum() -> None:
    """They are not all one."""
    found = {name: todays_sha256(name) for name, entry in agent_entries().items() if entry.is_reference}
    assert None not in found.values()
    assert len(set(found.values())) == len(found)


def test_near_copies_are_told() -> None:
    """A changed action on every day does not hide whose days they are; days of agents written apart differ by more."""
    rng = np.random.default_rng(1)
    terms = rng.exponential(10.0, (20, len(COST_TERMS)))
    rows = {
        "theirs": terms,
        "copy": terms * rng.uniform(1.0, 1.003, terms.shape),
        "half": np.where(np.arange(20)[:, None] < 9, terms, terms * 1.1),
    }
    assert copies(rows) == {"theirs": "copy (20 of 20 tasks)", "copy": "theirs (20 of 20 tasks)"}


def test_a_mixture_of_rows_is_told() -> None:
    """Who takes a third of the days from each of three rows repeats none of them by half."""
    rng = np.random.default_rng(2)
    rows = {f"row {k}": rng.exponential(10.0, (21, len(COST_TERMS))) for k in range(3)}
    third = np.arange(21)[:, None] % 3
    mixed = np.choose(third, [*rows.values()])
    assert copies({**rows, "mixed": mixed}) == {"mixed": "several rows (21 of 21 tasks)"}
    own = rng.exponential(10.0, (21, len(COST_TERMS)))
    assert copies({**rows, "own": np.where(third == 2, own, mixed)}) == {
        "own": "several rows (14 of 21 tasks)"
    }
    assert copies({**rows, "own": np.where(third != 0, own, mixed)}) == {}


def copies(rows: dict[str, np.ndarray]) -> dict[str, str]:
    """Return what the page tells of rows with these cost terms."""

    def played(k: int, costs: np.ndarray) -> Played:
        found = Costs(**dict(zip(COST_TERMS, costs.tolist(), strict=True)))
        return Played("ou", f"x/{k}", 0, found.total(), 1.0, None, found, 0.0, 0.0, False, None)

    table = make_table({name: [played(k, c) for k, c in enumerate(costs)] for name, costs in rows.items()})
    return _near_copies(table)
