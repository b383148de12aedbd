"""Price lists: every field is read or refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgym.capacity.traces.prices import Offer, pool_ids, read_prices
from fleetgym.files.errors import DataError


def test_fields(tmp_path: Path) -> None:
    """Nodes, terms and power come from the file; two rows of one GPU are two offers."""
    (tmp_path / "p.csv").write_text(
        "gpu,usd_per_gpu_h,market,gpus_per_node,term_days,power_usd_per_gpu_h\n"
        "H100,1.9,reserved,8,365,\nH100,2.5,,,,\nH100,2.9,,,,\nL40S,0,reserved,,,0.12\n"
    )
    offers = read_prices(tmp_path / "p.csv")
    assert offers == (
        Offer(gpu="H100", usd_per_gpu_h=1.9, market="reserved", gpus_per_node=8, term_days=365),
        Offer(gpu="H100", usd_per_gpu_h=2.5),
        Offer(gpu="H100", usd_per_gpu_h=2.9),
        Offer(gpu="L40S", usd_per_gpu_h=0.0, market="reserved", power_usd_per_gpu_h=0.12),
    )
    assert len(set(pool_ids(offers))) == 4
    assert read_prices(tmp_path / "p.csv", ["L40S"]) == offers[3:]


BROKEN_PRICES = {
    "empty": ("", "line 1", "empty"),
    "no rows": ("gpu,usd_per_gpu_h\n", "line 2", "no row"),
    "an unknown column": ("gpu,usd_per_gpu_h,cap\nH100,1,2\n", "line 1", "unknown column 'cap'"),
    "no price column": ("gpu,market\nH100,spot\n", "line 1", "no column 'usd_per_gpu_h'"),
    "an unknown GPU": ("gpu,usd_per_gpu_h\nL40S,1\nH10,2\n", "line 3", "did you mean 'H100'"),
    "a price below 0": (
        "gpu,usd_per_gpu_h\nH100,-1\n",
        "line 2",
        "usd_per_gpu_h: expected a number from 0 to 1e6 USD/h, got -1",
    ),
    "a price beyond all": (
        "gpu,usd_per_gpu_h\nH100,1e15\n",
        "line 2",
        "usd_per_gpu_h: expected a number from 0 to 1e6 USD/h",
    ),
    "a column twice": ("gpu,usd_per_gpu_h,usd_per_gpu_h\nH100,1,2\n", "line 1", "stands there twice"),
    "semicolons": ("gpu;usd_per_gpu_h\nH100;1\n", "line 1", "separated by ';'"),
    "a word for a price": ("gpu,usd_per_gpu_h\nH100,cheap\n", "line 2", "got 'cheap'"),
    "NaN": ("gpu,usd_per_gpu_h\nH100,nan\n", "line 2", "got 'nan'"),
    "a negative cap": (
        "gpu,usd_per_gpu_h,max_gpus\nH100,1,-4\n",
        "line 2",
        "max_gpus: expected a whole number from 1",
    ),
    "an unknown market": ("gpu,usd_per_gpu_h,market\nH100,1,spott\n", "line 2", "did you mean 'spot'"),
    "a strange region": ("gpu,usd_per_gpu_h,region\nH100,1,a b\n", "line 2", "expected a region"),
    "a term on demand": (
        "gpu,usd_per_gpu_h,term_days\nH100,1,365\n",
        "line 2",
        "term_days is of the market reserved",
    ),
    "a node of no GPU": (
        "gpu,usd_per_gpu_h,gpus_per_node\nH100,1,0\n",
        "line 2",
        "gpus_per_node: expected a whole",
    ),
    "a field too many": ("gpu,usd_per_gpu_h\nH100,1,2\n", "line 2", "expected 2 fields"),
    "an open quote": ('gpu,usd_per_gpu_h\n"H100,1\n', "line 2", "not a row of CSV"),
}


@pytest.mark.parametrize("name", BROKEN_PRICES)
def test_broken_price_lists(name: str, tmp_path: Path) -> None:
    """File and line, and what would be valid."""
    content, place, says = BROKEN_PRICES[name]
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(DataError) as caught:
        read_prices(tmp_path / "p.csv")
    assert (caught.value.source, caught.value.path) == (str(tmp_path / "p.csv"), place)
    assert says in str(caught.value)
