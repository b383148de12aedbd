"""Fixtures that several test files share: small instances made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import toys

from fleetgym.instance import Instance


@pytest.fixture
def small_data() -> dict[str, Any]:
    """Return the JSON form of a valid instance with a group, a count slot, node pools and a rate budget."""
    return toys.one_pool_data()


@pytest.fixture
def small(small_data: dict[str, Any]) -> Instance:
    """Return the instance of `small_data`."""
    return Instance.from_dict(small_data)
