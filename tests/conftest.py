"""Fixtures that several test files share: small instances made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import toys

from fleetgym.instance import Instance


@pytest.fixture(scope="session", autouse=True)
def learners_log_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give stable-baselines3, which makes a folder per training run, a place that is cleaned up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("stable-baselines3")))
        yield


@pytest.fixture
def small_data() -> dict[str, Any]:
    """Return the JSON form of a valid instance with a group, a count slot, node pools and a rate budget."""
    return toys.one_pool_data()


@pytest.fixture
def small(small_data: dict[str, Any]) -> Instance:
    """Return the instance of `small_data`."""
    return Instance.from_dict(small_data)
