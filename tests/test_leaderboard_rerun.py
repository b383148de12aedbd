"""Seasons and reruns: announced seeds, fresh tasks that anybody can draw again, code that is what was declared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import py_compile
import re
import shutil
import socket
import stat
import sys
from pathlib import Path

import pytest
from submissions import RULES, SUITE, declare, lines_of, make_good, submitted, write_lines

import fleetgym
from fleetgym.cli import main
from fleetgym.errors import DataError, FleetgymError
from fleetgym.evaluation.results import Results, hash_jobs
from fleetgym.evaluation.run import evaluate
from fleetgym.evaluation.sandbox import probe_isolation
from fleetgym.leaderboard.record import read_record, write_record
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.rerun import RECORDS, rerun, without_actions
from fleetgym.leaderboard.season import (
    draw_season,
    fresh_suite,
    instances_from,
    new_seed,
    published_best_known,
    read_seed,
    revealed_seed,
    seed_sha256,
)
from fleetgym.leaderboard.season_check import check_season
from fleetgym.leaderboard.season_end import end_season
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.standings import make_boards, read_records
from fleetgym.leaderboard.submit import folder_sha256, submit
from fleetgym.leaderboard.verify import verify
from fleetgym.library import instances_folder, list_instances, load_instance, load_scenarios
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    BestKnown,
    BestKnownSet,
    read_actions,
    read_best_known,
    task_name,
    verified_cost_usd,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import optimal_actions

SEED = "5e" * 32
SEASON = Season(name="t", suite=SUITE, scenarios=2, seed_sha256=seed_sha256(SEED), opened="2026-11-21")
AGENT = """
class Mine:
    def reset(self, view, *, seed):
        self.view = view

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)
"""


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a season's folder with proven best-known costs."""
    folder = tmp_path_factory.mktemp("season") / "private"
    draw_season(SEASON, SEED, folder)
    with instances_from(folder):
        suite = fresh_suite(SEASON)
        tasks = {}
        for name in list_instances(suite):
            for k in range(SEASON.scenarios):
                cost = verified_cost_usd(name, k, optimal_actions(name, k))
                tasks[task_name(name, k)] = BestKnown(
                    instance_hash=load_instance(name).content_hash,
                    value_usd=cost,
                    bound_usd=cost,
                    method="dynamic programming",
                    date="2026-11-21",
                    proven=True,
                )
        best = BestKnownSet(format=BEST_KNOWN_FORMAT, name="bks-2026-11-t", tasks=tasks)
        write_best_known(folder / suite.partition("/")[0] / "best_known.json", best)
    return folder


def _write_best_actions(private: Path, folder: Path) -> None:
    """Write actions that achieve the best-known costs of a season's tasks."""
    known = read_best_known(private / "fresh-t" / "best_known.json")
    with instances_from(private):
        for task, best in known.tasks.items():
            name, _, number = task.rpartition("#")
            write_actions(folder, name, int(number), best, optimal_actions(name, int(number)))


@pytest.fixture(scope="module")
def board(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a leaderboard with two rows, certified and fresh."""
    root = tmp_path_factory.mktemp("board")
    announced = f'[[season]]\nname = "t"\nsuite = "{SUITE}"\nscenarios = 2\nopened = "2026-11-21"\n'
    (root / "seasons.toml").write_text(f'{announced}seed_sha256 = "{SEASON.seed_sha256}"\nseed = "{SEED}"\n')
    for agent in ("gh", "hold"):
        folder = make_good(root / "submissions" / f"2026-11-21-{agent}", agent)
        verify(folder, out=root / "verified")
        played = rerun(folder, SEASON, private, official=False)
        cpu = tuple(dataclasses.replace(episode, cpu_s=1.0) for episode in played.episodes)
        write_record(root / "fresh" / "t", dataclasses.replace(played, rules=RULES, episodes=cpu))
    shutil.copytree(
        private / "fresh-t", root / "best_known" / "fresh-t", ignore=shutil.ignore_patterns("toy")
    )
    _write_best_actions(private, root / "best_known")
    return root


# -- seasons


def test_a_seed_is_private_and_announced(tmp_path: Path) -> None:
    """Only its owner can read it; its checksum is what was printed; another seed is refused."""
    checksum = new_seed(tmp_path / "seed")
    assert stat.S_IMODE((tmp_path / "seed").stat().st_mode) == 0o600
    season = Season(name="x", suite=SUITE, scenarios=1, seed_sha256=checksum, opened="2026-11-21")
    assert seed_sha256(read_seed(tmp_path / "seed", season)) == checksum
    with pytest.raises(FleetgymError, match="exists"):
        new_seed(tmp_path / "seed")
    (tmp_path / "seed").write_text(SEED)
    with pytest.raises(FleetgymError, match="not the seed announced"):
        read_seed(tmp_path / "seed", season)
    with pytest.raises(FleetgymError, match="not revealed yet"):
        revealed_seed(season)


def test_same_seed_same_tasks(private: Path, tmp_path: Path) -> None:
    """Whoever has the revealed seed draws the same bytes; another seed draws other days."""
    draw_season(SEASON, SEED, tmp_path / "again")
    for path in (tmp_path / "again").rglob("*.json*"):
        assert path.read_bytes() == (private / path.relative_to(tmp_path / "again")).read_bytes()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.slow
def test_every_dev_instance_gets_new_days(tmp_path: Path) -> None:
    """Fresh scenarios are neither the stored ones nor another seed's, in any family."""
    dev = Season(
        name="d", suite="fleet-v0/dev", scenarios=1, seed_sha256=seed_sha256(SEED), opened="2026-11-21"
    )
    days: dict[str, set[bytes]] = {}
    for k, seed in enumerate((SEED, "00" * 32)):
        draw_season(dev, seed, tmp_path / str(k))
        with instances_from(tmp_path / str(k)):
            for name in list_instances("fresh-d/dev"):
                days.setdefault(name.rpartition("/")[2], set()).add(
                    load_scenarios(name)[0].rate_rps.tobytes()
                )
    for name in list_instances("fleet-v0/dev"):
        stored = {scenario.rate_rps.tobytes() for scenario in load_scenarios(name)}
        assert len(days[name.rpartition("/")[2]] | stored) == 2 + len(stored), name


def test_fresh_tasks_are_the_suites_instances(private: Path) -> None:
    """The instances are those that everybody knows, the scenarios are not; names come back to what they were."""
    before = os.environ.get("FLEETGYM_INSTANCES")
    public = {name.rpartition("/")[2]: load_instance(name).content_hash for name in list_instances(SUITE)}
    with instances_from(private):
        names = list_instances(fresh_suite(SEASON))
        assert {name.rpartition("/")[2]: load_instance(name).content_hash for name in names} == public
        assert [scenario.id for scenario in load_scenarios(names[0])] == ["fresh-0", "fresh-1"]
    assert os.environ.get("FLEETGYM_INSTANCES") == before
    assert fleetgym.list_instances(SUITE)


def test_new_instances_do_not_tell_their_seeds(tmp_path: Path) -> None:
    """As many of each family and size, other days, the same bytes again; no name or number leads to the seed."""
    suite = tmp_path / "public" / "some" / "dev"
    suite.mkdir(parents=True)
    keep = {"ou-s-101", "ou-s-102", "warp-s-101", "fastllm-4-4-5-101"}
    manifest = json.loads((instances_folder() / "fleet-v1" / "manifest.json").read_text())
    entries = [e for e in manifest["entries"] if e["id"] in {f"fleet-v1/dev/{name}" for name in keep}]
    for entry in entries:
        for key in ("instance_file", "scenario_file"):
            shutil.copy(instances_folder() / entry[key], suite)
            entry[key] = f"some/dev/{Path(entry[key]).name}"
        entry["id"] = f"some/dev/{entry['id'].rpartition('/')[2]}"
    (tmp_path / "public" / "manifest.json").write_text(
        json.dumps({**manifest, "headline": ["ou"], "entries": entries})
    )
    season = dataclasses.replace(SEASON, suite="some/dev", scenarios=1, draws="instances")
    with instances_from(tmp_path / "public"):
        names = draw_season(season, SEED, tmp_path / "a")
        assert names == draw_season(season, SEED, tmp_path / "b")
        draw_season(season, "00" * 32, tmp_path / "c")
    assert sorted(name.rpartition("/")[2] for name in names) == [
        "fastllm-4-4-5-000",
        "ou-s-000",
        "ou-s-001",
        "warp-s-000",
    ]
    rates = set()
    for folder in "abc":
        with instances_from(tmp_path / folder):
            rates |= {load_scenarios(name)[0].rate_rps.tobytes() for name in names}
            seeds = [_seed_of(name, SEED) for name in names]
            for name in names:
                told = json.dumps(load_instance(name).to_dict())
                assert not [seed for seed in seeds if str(seed) in told]
                assert "rolled" not in told
    assert len(rates) == 2 * len(names)
    for path in (tmp_path / "a").rglob("*.json*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    with pytest.raises(FleetgymError, match="toys"):
        draw_season(dataclasses.replace(season, suite=SUITE), SEED, tmp_path / "none" / "d")
    assert not list((tmp_path / "none").iterdir())


def _seed_of(name: str, secret: str) -> int:
    """Return the seed of a new instance, as the documentation tells it."""
    family, size, number = re.fullmatch(r".*/([a-z]+)-(.+)-(\d+)", name).groups()
    digest = hashlib.sha256(f"{secret}/{family}/{size}/{int(number)}".encode()).hexdigest()
    return 2**32 + int(digest[:12], 16)


# -- reruns


def test_fresh_rows_are_ranked(board: Path) -> None:
    """Two tables: the fresh one has ranks, CPU time and the shift against the certified one."""
    (made,) = make_boards(board)
    assert made.season == "t"
    assert made.fresh.num_tasks == 2 * made.certified.num_tasks
    assert all(row.cpu_s is not None for row in made.fresh.rows)
    assert set(made.shifts) == {"2026-11-21-gh", "2026-11-21-hold"}
    page = build_site(board).read_text(encoding="utf-8")
    assert "Season t: 14 tasks" in page
    assert "fresh vs public" in page


def test_fresh_costs_are_the_judges(board: Path, private: Path) -> None:
    """A fresh record's costs are those of playing the agent, replayed; none is below the proven optimum."""
    record = read_record(board / "fresh" / "t" / "2026-11-21-gh.json.gz")
    with instances_from(private):
        played = evaluate(["gh"], fresh_suite(SEASON))
    assert record.kind == "fresh"
    assert record.season == "t"
    for verified, episode in zip(record.episodes, played.episodes, strict=True):
        assert verified.cost_usd == pytest.approx(episode.cost_usd, rel=1e-9)
        assert verified.best_known_usd is not None
        assert verified.cost_usd >= verified.best_known_usd * (1 - 1e-9)


def test_code_must_be_what_was_declared(private: Path, tmp_path: Path) -> None:
    """An agent of one's own is run from the folder whose checksum was declared, and from no other."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(AGENT)
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    folder = tmp_path / "2026-11-21-mine"
    submit(results, folder, date="2026-11-21", division="open", time_class="online", code=code)
    text = (folder / "submission.toml").read_text()
    assert folder_sha256(code) in text
    assert 'entry = "mine.py:Mine"' in text
    assert str(tmp_path) not in text
    assert len(verify(folder).episodes) == 7
    with pytest.raises(FleetgymError, match="name the folder with its code"):
        rerun(folder, SEASON, private, official=False)
    (code / "mine.py").write_text(AGENT + "# changed\n")
    with pytest.raises(FleetgymError, match="not the declared code"):
        rerun(folder, SEASON, private, official=False, code=code)


def test_code_stays_in_its_folder(private: Path, tmp_path: Path) -> None:
    """A file outside the folder is not run, whatever the declaration says; one inside is."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(AGENT)
    (tmp_path / "evil.py").write_text("raise SystemExit('owned')")
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    folder = tmp_path / "mine"
    submit(results, folder, date="2026-11-21", division="open", time_class="online", code=code)
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    declare(folder, "agent.entry", "../evil.py:Mine")
    with pytest.raises(FleetgymError, match="outside the code's folder"):
        rerun(folder, SEASON, private, official=False, code=code)


def own_code(folder: Path, text: str = AGENT) -> tuple[Path, Path]:
    """Return an agent's code and its submission."""
    code = folder / "code"
    code.mkdir()
    (code / "mine.py").write_text(text)
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    return code, submit_code(results, folder, code)


def submit_code(results: Results, folder: Path, code: Path) -> Path:
    """Submit a run of one's own code."""
    target = folder / "submissions" / "2026-11-21-mine"
    submit(results, target, date="2026-11-21", division="open", time_class="online", code=code)
    return target


def test_what_python_has_compiled_is_not_run(private: Path, tmp_path: Path) -> None:
    """The checksum is of the sources, so nothing else runs, whatever lies beside them."""
    code, folder = own_code(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n{AGENT}")
    cached = code / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc"
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "evil.py"), str(cached), dfile="mine.py", invalidation_mode=unchecked)
    shutil.copy(cached, code / "mine.pyc")
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "entry",
    [
        "subprocess:check_output(args='touch owned', shell=True)",
        "os.path:join",
        "fleetgym.evaluation.program:Program(command='touch owned')",
        "a.py:d/../../evil.py:Mine",
        "nothing.py:Mine",
        "nothing:Mine",
    ],
)
def test_what_runs_lies_in_the_code(entry: str, private: Path, tmp_path: Path) -> None:
    """Neither an installed module nor a path with a colon in it leads out of the folder."""
    code, folder = own_code(tmp_path)
    (code / "a.py:d").mkdir()
    (tmp_path / "evil.py").write_text("raise SystemExit('owned')")
    lines = lines_of(folder)
    for line in lines[1:]:
        line["agent"] = entry
    tasks = [(line["instance"], line["scenario"], line["seed"]) for line in lines[1:]]
    lines[0]["jobs_hash"] = hash_jobs([(entry, *task) for task in tasks])
    write_lines(folder, lines)
    declare(folder, "agent.entry", entry)
    assert len(verify(folder).episodes) == 7
    with pytest.raises(FleetgymError, match=r"outside the code's folder"):
        rerun(folder, SEASON, private, official=False, code=code)
    assert not (tmp_path / "owned").exists()


def test_a_module_in_the_code_is_run(private: Path, tmp_path: Path) -> None:
    """It may be named by its module, and it leaves no trace in the module path."""
    code = tmp_path / "code"
    (code / "my_agents").mkdir(parents=True)
    (code / "my_agents" / "mine.py").write_text(AGENT)
    before = list(sys.path)
    sys.path.append(str(code))
    results = evaluate(["my_agents.mine:Mine"], SUITE)
    folder = submit_code(results, tmp_path, code)
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("my_agents")]:
        del sys.modules[name]
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    assert sys.path == before


def test_one_shot_rows_hold_their_first_action(private: Path, tmp_path: Path) -> None:
    """A division that can be checked is, in what was played."""
    folder = make_good(tmp_path / "2026-11-21-gh-rolling", "gh-rolling")
    declare(folder, "agent.division", "one-shot")
    with pytest.raises(DataError, match="one-shot"):
        rerun(folder, SEASON, private, official=False)


def test_only_isolated_runs_of_open_seasons_are_ranked(
    board: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended season and a system that cannot isolate end the call; a record of such a run is not ranked."""
    folder = board / "submissions" / "2026-11-21-gh"
    with pytest.raises(FleetgymError, match="season t has ended"):
        rerun(folder, dataclasses.replace(SEASON, seed=SEED), private)
    monkeypatch.setenv("FLEETGYM_NO_NAMESPACES", "1")
    with pytest.raises(FleetgymError, match="cannot isolate agents"):
        rerun(folder, SEASON, private)
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "fresh" / "t" / "2026-11-21-gh.json.gz")
    for rules in (None, dataclasses.replace(RULES, files="open")):
        write_record(own / "fresh" / "t", dataclasses.replace(record, rules=rules))
        (made,) = make_boards(own)
        assert set(made.fresh_records) == {"2026-11-21-hold"}


def test_whoever_has_the_seed_can_replay_fresh_rows(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks are drawn again, the actions in the records replayed; a forged cost is noticed, and a missing action."""
    assert main(["season", "check", "t", "--board", str(board)]) == 0
    assert "every fresh cost is confirmed" in capsys.readouterr().out
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "fresh" / "t" / "2026-11-21-gh.json.gz")
    first, second, *rest = record.episodes
    half = {name: 0.5 * usd for name, usd in dataclasses.asdict(first.costs).items()}
    first = dataclasses.replace(first, cost_usd=0.5 * first.cost_usd, costs=type(first.costs)(**half))
    second = dataclasses.replace(second, actions=None)
    write_record(own / "fresh" / "t", dataclasses.replace(record, episodes=(first, second, *rest)))
    assert main(["season", "check", "t", "--board", str(own), "--json"]) == 1
    wrong = json.loads(capsys.readouterr().out)
    assert list(wrong) == [f"2026-11-21-gh {task_name(*episode.task)}" for episode in (first, second)]
    assert "the replay" in wrong[f"2026-11-21-gh {task_name(*first.task)}"]
    with pytest.raises(FleetgymError, match="not revealed"):
        check_season(board, SEASON)
    assert main(["season", "check", "t", "--board", str(tmp_path)]) == 2
    assert "seasons.toml" in capsys.readouterr().err


def test_records_say_what_the_submission_says(board: Path, tmp_path: Path) -> None:
    """A record with another name, or costs that do not add up, is not believed."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "verified" / "2026-11-21-gh.json.gz")
    agent = dataclasses.replace(record.submission.agent, name="WINNER")
    forged = dataclasses.replace(record, submission=dataclasses.replace(record.submission, agent=agent))
    write_record(own / "verified", forged)
    with pytest.raises(DataError, match="the record says something else"):
        make_boards(own)
    cheaper = dataclasses.replace(record.episodes[0], cost_usd=0.5 * record.episodes[0].cost_usd)
    write_record(own / "verified", dataclasses.replace(record, episodes=(cheaper, *record.episodes[1:])))
    with pytest.raises(DataError, match="add up"):
        make_boards(own)


def test_an_open_season_keeps_what_was_done_until_it_ends(
    private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Actions tell what the tasks are, so they wait beside these; the end publishes them, with seed and best-known."""
    board, mine = tmp_path / "board", Path(shutil.copytree(private, tmp_path / "private"))
    folder = make_good(board / "submissions" / "2026-11-21-gh", "gh")
    lines = [
        "# kept",
        "[[season]]",
        'name = "t"',
        f'suite = "{SUITE}"',
        "scenarios = 2",
        'opened = "2026-11-21"',
    ]
    lines += [
        f'seed_sha256 = "{SEASON.seed_sha256}"',
        'seed = ""',
        "[[season]]",
        'name = "u"',
        f'suite = "{SUITE}"',
    ]
    lines += ["scenarios = 2", 'opened = "2026-11-22"', f'seed_sha256 = "{"0" * 64}"', 'seed = ""']
    (board / "seasons.toml").write_text("\n".join(lines) + "\n")
    whole = rerun(folder, SEASON, mine, official=False, out=board / "fresh" / "t")
    (public,) = read_records(board, "fresh")
    assert all(episode.actions is None for episode in public.episodes)
    assert all(episode.actions is not None for episode in whole.episodes)
    (tmp_path / "seed").write_text(f"{SEED}\n")
    words = ["season", "end", "t", "--board", str(board), "--seed-file", str(tmp_path / "seed")]
    words += ["--instances", str(mine)]
    assert main(words) == 2
    assert "actions" in capsys.readouterr().err
    _write_best_actions(mine, mine / "actions")
    forged = dataclasses.replace(public, version="9.9")
    write_record(board / "fresh" / "t", forged)
    with pytest.raises(DataError, match="says something else"):
        end_season(board, SEASON, tmp_path / "seed", mine)
    write_record(board / "fresh" / "t", public)
    assert main(words) == 0
    assert read_records(board, "fresh") == [whole]
    assert (board / "seasons.toml").read_text().splitlines() == [
        line if k != 7 else f'seed = "{SEED}"' for k, line in enumerate(lines)
    ]
    for path in (mine / "actions").rglob("*.json.gz"):
        kept = board / "best_known" / path.relative_to(mine / "actions")
        assert kept.read_bytes() == path.read_bytes()
    assert read_best_known(board / "best_known" / "fresh-t" / "best_known.json").name == "bks-2026-11-t"
    assert main(["season", "check", "t", "--board", str(board)]) == 0
    assert main(words) == 2
    assert "has ended already" in capsys.readouterr().err


def test_best_known_costs_of_an_ended_season_may_fall(board: Path, tmp_path: Path) -> None:
    """Rows are compared with what is published now; what rose, is missing, or is not achieved is noticed."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    path = published_best_known(own, SEASON)
    known, ended = read_best_known(path), dataclasses.replace(SEASON, seed=SEED)

    def publish(factor: float) -> None:
        task = min(known.tasks)
        value = known.tasks[task].value_usd * factor
        changed = dataclasses.replace(known.tasks[task], value_usd=value, bound_usd=None, proven=False)
        write_best_known(path, dataclasses.replace(known, tasks={**known.tasks, task: changed}))

    (before,) = make_boards(own)
    publish(0.9)
    (after,) = make_boards(own)
    assert all(a.score > b.score for a, b in zip(after.fresh.rows, before.fresh.rows, strict=True))
    wrong = check_season(own, ended)
    assert list(wrong) == [f"best known {min(known.tasks)}"]
    assert "the replay" in wrong[f"best known {min(known.tasks)}"]
    publish(1.1)
    with pytest.raises(DataError, match="has risen"):
        make_boards(own)
    path.unlink()
    for look in (make_boards, lambda board: check_season(board, ended)):
        with pytest.raises(FileNotFoundError):
            look(own)


def test_rows_lie_in_their_seasons_folder(board: Path, tmp_path: Path) -> None:
    """A record that was moved is not ranked in another season."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    (own / "fresh" / "t").rename(own / "fresh" / "u")
    with pytest.raises(DataError, match="in the folder of another"):
        make_boards(own)


SPY = """
import glob, os, socket

class Mine:
    def reset(self, view, *, seed):
        self.view = view
        seen = [place for place in PLACES if os.path.isfile(place) or glob.glob(place + "/*")]
        assert not seen, f"sees {seen}"
        assert not glob.glob("*.seed"), "sees the current folder"
        assert "SOME_PASSWORD" not in os.environ
        door = socket.socket(socket.AF_UNIX)
        try:
            door.connect(PLACES[0] + "/door")
        except OSError:
            return
        raise AssertionError("a door is open")

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)
"""


@pytest.mark.slow
def test_ranked_agents_see_nothing_but_their_task(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No seed in the current folder, no submissions, fresh rows or tasks, no passwords, no sockets."""
    if "open" in probe_isolation().values():
        pytest.skip("this system does not allow the namespaces that hide things")
    work = tmp_path / "work"
    for place in ("work/seeds", "board/fresh", "board/submissions"):
        (tmp_path / place).mkdir(parents=True)
    (work / "season.seed").write_text(SEED)
    (tmp_path / "board" / "fresh" / "other.json.gz").write_bytes(b"")
    code = tmp_path / "code"
    code.mkdir()
    places = [
        str(work),
        str(tmp_path / "board" / "fresh"),
        str(tmp_path / "board"),
        str(private),
        str(tmp_path),
    ]
    (code / "mine.py").write_text(f"PLACES = {places!r}\n{SPY}")
    entry = "mine.py:Mine"
    results = evaluate(["gh"], SUITE)
    folder = submit_code(results, tmp_path / "board", code)
    lines = lines_of(folder)
    for line in lines[1:]:
        line["agent"] = entry
    tasks = [(line["instance"], line["scenario"], line["seed"]) for line in lines[1:]]
    lines[0]["jobs_hash"] = hash_jobs([(entry, *task) for task in tasks])
    write_lines(folder, lines)
    declare(folder, "agent.entry", entry)
    monkeypatch.chdir(work)
    monkeypatch.setenv("SOME_PASSWORD", "secret")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        door.listen()
        record = rerun(folder, SEASON, private, code=code, out=tmp_path / "board" / "fresh")
    assert [episode.failure for episode in record.episodes] == [None] * len(record.episodes)
    assert record.is_isolated


def test_best_known_costs_are_needed(board: Path, private: Path, tmp_path: Path) -> None:
    """Without best-known costs of the fresh tasks nothing is played."""
    bare = Path(shutil.copytree(private, tmp_path / "bare"))
    (bare / "fresh-t" / "best_known.json").unlink()
    with pytest.raises(FleetgymError, match="no best-known costs"):
        rerun(board / "submissions" / "2026-11-21-gh", SEASON, bare, official=False)


def test_changed_tasks_are_noticed(board: Path, private: Path, tmp_path: Path) -> None:
    """A byte of a fresh scenario: the manifest says no."""
    changed = Path(shutil.copytree(private, tmp_path / "changed"))
    path = changed / "fresh-t" / "toy" / "two-pools.scenarios.json.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="the file was changed"):
        rerun(board / "submissions" / "2026-11-21-gh", SEASON, changed, official=False)


def test_command_line(board: Path, private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seed, draw from the revealed seed, rerun."""
    assert main(["season", "seed", str(tmp_path / "seed"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["seed_sha256"]) == 64
    out = tmp_path / "drawn"
    assert main(["season", "draw", "t", "--board", str(board), "--out", str(out)]) == 0
    assert (out / "manifest.json").read_bytes() == (private / "manifest.json").read_bytes()
    assert main(["season", "draw", "unknown", "--board", str(board), "--out", str(out)]) == 2
    words = ["rerun", str(board / "submissions" / "2026-11-21-gh"), "--season", "t", "--board", str(board)]
    words += ["--instances", str(private), "--unofficial", "--out", str(tmp_path / "fresh"), "--json"]
    capsys.readouterr()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 14
    assert (tmp_path / "fresh" / "2026-11-21-gh.json.gz").is_file()


@pytest.mark.slow
def test_official_rerun(private: Path, tmp_path: Path) -> None:
    """Under the rules of an official run the row says which, and costs the same."""
    folder = submitted(evaluate(["gh"], SUITE), tmp_path / "2026-11-21-gh")
    record = rerun(folder, SEASON, private, out=tmp_path / "fresh")
    assert record.rules is not None
    assert record.rules.time_class == "reflex"
    plain = rerun(folder, SEASON, private, official=False)
    assert [e.cost_usd for e in record.episodes] == [e.cost_usd for e in plain.episodes]
    assert read_record(private / RECORDS / "2026-11-21-gh.json.gz") == record
    assert read_record(tmp_path / "fresh" / "2026-11-21-gh.json.gz") == without_actions(record)


@pytest.mark.slow
def test_our_ended_seasons_can_be_drawn_again(tmp_path: Path) -> None:
    """The revealed seed gives the tasks of the records; the best-known actions achieve what these are compared with."""
    own = Path(__file__).parents[1] / "leaderboard"
    for announced in read_registers(own).seasons:
        if not announced.seed:
            continue
        draw_season(announced, revealed_seed(announced), tmp_path / announced.name)
        suite = fresh_suite(announced)
        kept = own / "best_known" / suite.partition("/")[0]
        known = read_best_known(kept / "best_known.json")
        records = [r for r in read_records(own, "fresh") if r.season == announced.name]
        assert records
        with instances_from(tmp_path / announced.name):
            for record in records:
                for episode in record.episodes:
                    content_hash = load_instance(episode.instance).content_hash
                    best = known.find(episode.instance, episode.scenario, content_hash)
                    assert episode.best_known_usd is not None
                    assert best.value_usd <= episode.best_known_usd  # searched for again since
            for task in sorted(known.tasks)[::10]:
                name, _, number = task.partition("#")
                actions = read_actions(own / "best_known", name, int(number))
                cost_usd = verified_cost_usd(name, int(number), actions)
                assert cost_usd == pytest.approx(known.tasks[task].value_usd, rel=1e-9)
