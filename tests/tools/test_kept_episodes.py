"""Episodes are kept small and restored to the byte; what does not replay as it was is told."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from places import ROOT

from fleetgym.evaluation.results import parse_results, read_results, read_timings, timings_path
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import canonical_json, parse_json, read_text
from fleetgym.files.schema import read_object
from fleetgym.scoring.score import score
from tools import kept_episodes as episodes
from tools import score_suite

KEPT = ROOT / "leaderboard" / "episodes"

TOYS = ["fleet-v0/toy/two-pools", "fleet-v0/toy/drop"]
FAILING = """
class Agent:
    def reset(self, view, *, seed): self.view = view
    def act(self, observation, info):
        if self.view.window == 3:
            raise RuntimeError("no more")
        return self.view.fleet_to_action(self.view.fleet)
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an agent that fails, and the results file of this one and another."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "failing.py").write_text(FAILING, encoding="utf-8")
    evaluate(["gh-rolling", f"{folder}/failing.py:Agent"], TOYS, out=folder / "run.jsonl")
    return folder


@pytest.fixture
def results(played: Path, tmp_path: Path) -> Path:
    """Return a copy of the results file, with its timings, that may be changed."""
    shutil.copy(timings_path(played / "run.jsonl"), tmp_path)
    return Path(shutil.copy(played / "run.jsonl", tmp_path))


def test_kept_episodes_come_back_to_the_byte(results: Path, tmp_path: Path) -> None:
    """Costs, failures and the order of lines; of the timings what an episode took."""
    assert episodes.main(["keep", str(results), str(timings_path(results)), str(tmp_path / "kept")]) == 0
    (file,) = (tmp_path / "kept").iterdir()
    assert b"cost_per_window_usd" not in gzip.decompress(file.read_bytes())
    assert episodes.main(["restore", str(tmp_path / "kept"), str(tmp_path / "back")]) == 0
    back = tmp_path / "back" / results.name
    assert back.read_bytes() == results.read_bytes()
    assert any(e.failure is not None for e in read_results(back).episodes)
    before, after = (read_timings(timings_path(path))[0] for path in (results, back))
    assert {key: sum(t.act_cpu_s) for key, t in after.items()} == pytest.approx(
        {key: sum(t.act_cpu_s) for key, t in before.items()}
    )
    assert episodes.keep(back, tmp_path / "again").read_bytes() == file.read_bytes()


def test_times_per_decision_are_those_of_the_run(results: Path, tmp_path: Path) -> None:
    """Only their sum is kept, and the score's table says what it said before."""
    before = score(results, relative_to="best-in-run")
    back = episodes.restore(episodes.keep(results, tmp_path / "kept"), tmp_path / "back")
    after = score(back, relative_to="best-in-run")
    for row, again in zip(before.rows, after.rows, strict=True):
        assert again.cpu_ms_per_decision == pytest.approx(row.cpu_ms_per_decision, rel=1e-9)


def test_files_that_name_no_libraries_come_back_too(results: Path, tmp_path: Path) -> None:
    """Headers of earlier versions lack them: what is restored lacks them as well, and is read."""
    header, _, rest = results.read_text(encoding="utf-8").partition("\n")
    facts = parse_json(header)
    del facts["packages"]
    results.write_text(f"{canonical_json(facts)}\n{rest}", encoding="utf-8")
    back = episodes.restore(episodes.keep(results, tmp_path / "kept"), tmp_path / "back")
    assert back.read_bytes() == results.read_bytes()
    assert read_results(back).header.packages is None


def test_an_unfinished_run_goes_on(played: Path, results: Path, tmp_path: Path) -> None:
    """What is restored is a results file like any other: the rest is played, and the whole is as if in one go."""
    whole = results.read_bytes()
    results.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    episodes.restore(episodes.keep(results, tmp_path / "kept"), tmp_path / "back")
    agents = ["gh-rolling", f"{played}/failing.py:Agent"]
    evaluate(agents, TOYS, resume=tmp_path / "back" / results.name)
    assert (tmp_path / "back" / results.name).read_bytes() == whole


def test_what_is_not_as_it_was_is_told(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another cost, instance or scenario, or a line that is none: file and line are named, nothing is written."""
    file = episodes.keep(results, tmp_path / "kept")
    text = gzip.decompress(file.read_bytes()).decode()
    first = text.splitlines()[1]
    for changed, message in (
        (text.replace(first, first.replace('"cost_usd":', '"cost_usd":1', 1)), "its replay costs"),
        (text.replace('"content_hash":"', '"content_hash":"' + "0" * 8, 1)[:-1], "$[0].instances"),
        (text.replace(first, first[:-9]), "$[1]"),
        (text.replace(first, first.replace("two-pools", "no-pools")), "$[1].instance"),
        (
            text.replace(first, first.replace('"scenario":0', '"scenario":99')),
            "$[1]: fleet-v0/toy/two-pools has",
        ),
    ):
        file.write_bytes(gzip.compress(changed.encode()))
        assert episodes.main(["restore", str(tmp_path / "kept"), str(tmp_path / "back")]) == 1
        told = capsys.readouterr().err
        assert message in told
        assert str(file) in told
        assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "file", sorted(KEPT.glob("*/*.jsonl.gz")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_is_kept_here_still_replays(file: Path) -> None:
    """The repository's own: two episodes of each file cost what they did, so the pages can be computed again."""
    first, *lines = read_text(file).splitlines(keepends=True)
    header = parse_results(first, str(file), allow_incomplete=True)[0].header
    small = [line for line in lines if "/ou-s-" in line]
    for line in (small[0], small[-1]):
        known = read_object(episodes.Episode, parse_json(line))
        assert episodes.replayed(known, header).cost_usd == pytest.approx(known.cost_usd, rel=1e-9)


def test_timings_are_those_of_submissions() -> None:
    """The results page finds the CPU time of every episode of the submissions that it reads."""
    for path in score_suite.TIMINGS.iterdir():
        submission = ROOT / "leaderboard" / "submissions" / path.name.removesuffix(".jsonl.gz")
        (run,), _ = score_suite.read([submission / "episodes.jsonl.gz"])
        assert all(episode.timing is not None for episode in run.episodes)
