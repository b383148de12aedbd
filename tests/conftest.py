"""Fixtures that several test files share: small instances made by hand, a season, calls of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toys
from fresh_season import draw_with_best_known, make_board

from fleetgym.cli.parser import main
from fleetgym.evaluation.isolation.agent_runner import TRACEBACK
from fleetgym.model.instance import Instance


@pytest.fixture(scope="session", autouse=True)
def learners_log_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give stable-baselines3, which makes a folder per training run, a place that is cleaned up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("stable-baselines3")))
        yield


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a season on the toys with proven best-known costs; not to be changed."""
    return draw_with_best_known(tmp_path_factory.mktemp("season") / "private")


@pytest.fixture(scope="session")
def board(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a leaderboard with two rows, certified and fresh, of that season; not to be changed."""
    return make_board(private, tmp_path_factory.mktemp("board"))


@pytest.fixture
def small_data() -> dict[str, Any]:
    """Return the JSON form of a valid instance with a group, a count slot, node pools and a rate budget."""
    return toys.one_pool_data()


@pytest.fixture
def small(small_data: dict[str, Any]) -> Instance:
    """Return the instance of `small_data`."""
    return Instance.from_dict(small_data)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Call the command line in an empty folder; return exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TRACEBACK, raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count the rest of a slow proof (`full`) as slow, so that quick runs leave it out."""
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.slow)
