"""Read a price list, the user's own or a cloud's, and report what was left out of it."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fleetgym.capacity.traces.money import days, usd
from fleetgym.capacity.traces.prices import MARKETS, REGION, Offer
from fleetgym.capacity.traces.small_csv import amount
from fleetgym.capacity.traces.source import StrPath, fail
from fleetgym.capacity.traces.tables import Table, open_table
from fleetgym.files.errors import FleetgymError, UnknownNameError, suggestion
from fleetgym.files.quantities import GPU_CAP, GPUS_PER_NODE
from fleetgym.files.schema import from_text
from fleetgym.hardware import catalog

MAX_OFFERS = 64
_FILE_GIB = 1.0

#: What the columns of a list of one's own may be called; capitals, blanks, dashes and underscores do not matter.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu", "gpu_type", "gpu_name", "gpu_model", "accelerator", "accelerator_type"),
    "machine": ("instance_type", "machine_type", "machine"),
    "usd_per_gpu_h": ("usd_per_gpu_h", "usd_per_gpu_hour", "price_usd_per_gpu_h", "price_per_gpu_hour"),
    "usd_per_node_h": ("usd_per_node_h", "usd_per_node_hour", "price_usd_per_node_h", "price_per_node_hour"),
    "gpus_per_node": ("gpus_per_node", "gpu_count", "num_gpus", "gpus"),
    "max_gpus": (
        "max_gpus",
        "max_gpu_count",
        "gpu_limit",
        "gpu_quota",
        "quota",
        "quota_gpus",
        "available_gpus",
    ),
    "max_nodes": ("max_nodes", "max_node_count", "max_count"),
    "market": ("market",),
    "spot": (
        "spot",
        "is_spot",
        "interruptible",
        "is_interruptible",
        "preemptible",
        "is_preemptible",
        "is_bid",
    ),
    "region": ("region",),
    "term": ("term_days", "term"),
    "power": ("power_usd_per_gpu_h",),
    "currency": ("currency", "currency_code"),
}
_LIMIT = re.compile(r"quota|limit|capacity|avail(able|ability)?$|^max[_ ]|inventory|stock", re.IGNORECASE)
#: What may make an hour cost more, less or nothing, and entries that do not.
_TERM = re.compile(
    r"up.?front|discount|(^|[_ ])(unit|valid|until|expir|minimum|min[_ ]|fee|tax|vat|billed|billing.(unit|period))",
    re.IGNORECASE,
)
_NO_TERM = {
    "",
    "0",
    "0.0",
    "1",
    "no",
    "none",
    "false",
    "h",
    "hr",
    "hour",
    "hours",
    "hourly",
    "per hour",
    "usd/h",
}
_MARKETS = {
    **{name: name for name in MARKETS},
    "ondemand": "on-demand",
    "preemptible": "spot",
    "interruptible": "spot",
    "reservation": "reserved",
    "committed": "reserved",
}
_FLAGS = {"": False, "false": False, "no": False, "0": False, "true": True, "yes": True, "1": True}
_SHOWN = 12  # names of columns in a note
_CHEAPER = 0.25  # than the cheapest known price of one GPU: then it may be of less than an hour
#: Than any known price of one GPU: a machine's price is then of something else.
_FAR_CHEAPER, _FAR_DEARER = 0.125, 4.0
_DEARER = 1.25  # than the dearest known price of one GPU: then it may be that of a whole machine


@dataclasses.dataclass(frozen=True)
class PriceList:
    """What `read_prices` found."""

    offers: tuple[Offer, ...]
    notes: tuple[str, ...]  # what its user should know of how it was read


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of a table, its place, and what may be said of it."""

    place: int | str
    fields: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return "" if value is None or value != value else str(value).strip(" \t")


class _Tally:
    """Counts what is left out of a list, and why."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._names: dict[str, dict[str, None]] = {}

    def leave_out(self, why: str, name: str = "") -> None:
        """Count a row; `name` is of what it was."""
        self._counts[why] += 1
        self._names.setdefault(why, {}).update({name: None} if name else {})

    def notes(self) -> tuple[str, ...]:
        """Return one note for each reason."""
        found = []
        for why, count in self._counts.items():
            names = list(self._names[why])
            more = ", ..." if len(names) > 8 else ""
            listed = f": {', '.join(names[:8])}{more}" if names else ""
            found.append(f"prices: {count:,} {'row' if count == 1 else 'rows'} left out {why}{listed}")
        return tuple(found)


def read_prices(path: StrPath, gpus: Sequence[str] | None = None, region: str | None = None) -> PriceList:
    r"""Read a price list.

    Parameters
    ----------
    path : path-like
        CSV, JSON, JSON Lines or Parquet, packed or not. A list of one's own has columns as in `COLUMN_NAMES`; of
        SkyPilot's catalogues, ``aws ec2 describe-spot-price-history``, Azure's retail prices, Lambda's instance
        types, Vast.ai's offers, RunPod's GPU types and AWS's cost and usage report the layouts are known.
        Prices are in USD, and may be 0 in a list of one's own, as of GPUs that are owned.
    gpus : sequence of str, optional
        Keep these GPU types only.
    region : str, optional
        Keep what is in this region, or in a zone of it.

    Returns
    -------
    PriceList

    Raises
    ------
    DataError
        With file and place of what is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "prices.csv"
    >>> _ = file.write_text("gpu;usd_per_node_h;gpus_per_node;seller\nH100 SXM5;23,92;8;us\n")
    >>> found = read_prices(file)
    >>> found.offers[0].gpu, round(found.offers[0].usd_per_gpu_h, 2), found.offers[0].gpus_per_node
    ('H100', 2.99, 8)
    >>> found.notes
    ("prices: these columns are not used: 'seller'",)
    """
    table = open_table(path, _FILE_GIB, expected="expected a header such as gpu,usd_per_gpu_h,market,region")
    layout = next((found for found in _LAYOUTS if set(found.marks) <= set(table.names)), None)
    tally = _Tally()
    if layout is None:
        offers, notes = _own_list(path, table)
    else:
        offers, notes = _catalogue(path, table, layout, tally), (f"prices: read as {layout.name}",)
        read = {*layout.marks, *layout.others}
        notes += _unused([name.strip() for name in table.names if name.strip() not in read])
    try:
        kept = chosen(offers, gpus, region)
    except FleetgymError as error:
        left_out = "".join(f"; {note}" for note in tally.notes())
        fail(path, "all rows", f"{error}{left_out}")
    return PriceList(kept, (*notes, *tally.notes()))


def chosen(
    offers: Sequence[Offer], gpus: Sequence[str] | None = None, region: str | None = None
) -> tuple[Offer, ...]:
    """Return the offers of some GPU types in a region; all of both by default; zones belong to their region.

    Raises
    ------
    FleetgymError
        If a type has none, or there are more than `MAX_OFFERS`.
    """
    types = None if gpus is None else [catalog.gpu_named(name)[0] for name in gpus]
    kept = tuple(o for o in offers if (types is None or o.gpu in types) and _is_in(o.region, region))
    missing = sorted(set(types or ()) - {o.gpu for o in kept})
    if missing or not kept:
        where = f" in {region}; the list has {_listed({o.region for o in offers})}" if region else ""
        raise FleetgymError(f"no price of {', '.join(missing) or 'any GPU'}{where}")
    if len(kept) > MAX_OFFERS:
        raise FleetgymError(
            f"{len(kept):,} offers, at most {MAX_OFFERS} are planned with; choose with --gpus ("
            f"{_listed({o.gpu for o in kept})}) and --region ({_listed({o.region for o in kept})})"
        )
    return kept


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)[:24]) + (", ..." if len(names) > 24 else "")


def _is_in(place: str, region: str | None) -> bool:
    """Return whether a place is a region, or a zone of it.

    Examples
    --------
    >>> _is_in("us-east-1b", "us-east-1"), _is_in("us-central1-a", "us-central1"), _is_in("us-east-12", "us-east-1")
    (True, True, False)
    """
    return region is None or re.fullmatch(re.escape(region) + "(-?[a-z])?", place) is not None


def _rows(table: Table, wanted: Sequence[int]) -> Iterator[_Row]:
    for piece in table.pieces(wanted):
        names = {k: table.names[k].strip() for k in piece.columns}
        size = len(next(iter(piece.columns.values()))) if piece.columns else 0
        for row in range(size):
            yield _Row(piece.place(row), {names[k]: column[row] for k, column in piece.columns.items()})


def _region(text: str) -> str:
    """Return a place as the id of a region; a blank, a comma or a bracket in it becomes a dash."""
    plain = re.sub(r"[\s,()]+", "-", text).strip("-")
    if not re.fullmatch(REGION.pattern, plain, re.ASCII):
        raise FleetgymError(f"expected a region of letters, digits and dashes, got {text!r}")
    return plain


# -- lists of one's own


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _own_list(path: StrPath, table: Table) -> tuple[list[Offer], tuple[str, ...]]:
    where = _own_columns(path, table.names)
    extra = [name.strip() for k, name in enumerate(table.names) if k not in where.values()]
    offers, tally = [], _Tally()
    for row in _rows(table, range(len(table.names))):
        for name in extra:
            if why := _changes_the_answer(name, row.text(name), where):
                fail(path, row.place, f"the column {name!r} ({row.text(name)}) {why}")
        named = _Row(row.place, {role: row.fields[table.names[k].strip()] for role, k in where.items()})
        if not (named.text("gpu") or named.text("machine")):
            tally.leave_out("because they have no GPU")
            continue
        try:
            offers.append(_own_offer(named, {role: table.names[k].strip() for role, k in where.items()}))
        except FleetgymError as error:
            fail(path, row.place, str(error))
    if not offers:
        fail(path, 2, "there is no row of a GPU after the header")
    return offers, (*_unused(extra), *tally.notes())


def _changes_the_answer(name: str, entry: str, where: Mapping[str, int]) -> str:
    """Return what to do about a column that is not read; an empty text if it may stay so."""
    if _TERM.search(name) and entry.lower() not in _NO_TERM:
        return (
            "may change what is paid, or when, and is not read: put it into the price of an hour, and leave the column "
            "out"
        )
    number = from_text(entry)
    is_whole = not isinstance(number, str) and number == int(number)
    if _LIMIT.search(name) and is_whole and not {"max_gpus", "max_nodes"} & set(where):
        return "may be a limit of GPUs or of machines, and is not read: call it max_gpus or max_nodes, or leave it out"
    if re.sub(r"[\s_]", "-", entry.lower()) in _MARKETS and not {"market", "spot"} & set(where):
        return "may be the market, and is not read: call it market, or leave it out"
    return ""


def _unused(names: Sequence[str]) -> tuple[str, ...]:
    """Return what is said of columns that are not read."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(map(repr, names[:_SHOWN]))
    return (f"prices: these columns are not used: {listed}{more}",) if names else ()


def _own_columns(path: StrPath, names: Sequence[str]) -> dict[str, int]:
    """Return the number of the column of each role; raise for what may be meant otherwise than it would be read."""
    roles = {_plain(name): role for role, usual in COLUMN_NAMES.items() for name in usual}
    where: dict[str, int] = {}
    whole = {roles.get(_plain(name)) for name in names}
    for k, name in enumerate(names):
        role = roles.get(_plain(name))
        if role is None and "." in name:  # a step into nested JSON
            role = roles.get(_plain(name.rpartition(".")[2]))
            role = None if role in whole or role in where else role
        if role is None:
            if near := suggestion(name.strip(), _nearly(name, roles)):
                fail(path, 1, f"unknown column {name!r}{near}")
        elif role in where:
            fail(path, 1, f"two columns hold the {role}: {names[where[role]]!r} and {name!r}; leave one out")
        else:
            where[role] = k
    header = "expected a header such as gpu,usd_per_gpu_h[,gpus_per_node,max_gpus,market,region]"
    if "gpu" not in where and "machine" not in where:
        is_yaml = bool(names) and names[0].startswith("api")
        yaml = ": the file looks like YAML: write one row for each pool" if is_yaml else ""
        fail(path, 1, f"no column 'gpu' or 'instance_type'{yaml}; {header}")
    if "usd_per_gpu_h" not in where and "usd_per_node_h" not in where:
        priced = [name for name in names if re.search(r"price|usd|cost|rate|\$", name, re.IGNORECASE)]
        what = "of one GPU, or of a machine with several, and of an hour"
        hint = f": is {priced[0]!r} {what}? Rename it" if priced else ""
        fail(path, 1, f"no column 'usd_per_gpu_h' or 'usd_per_node_h'{hint}; {header}")
    if "usd_per_gpu_h" in where and "usd_per_node_h" in where:
        fail(path, 1, "usd_per_gpu_h and usd_per_node_h are two prices for one thing; leave one out")
    return where


def _nearly(name: str, roles: Mapping[str, str]) -> list[str]:
    """Return the column that a name misspells."""
    import difflib

    near = difflib.get_close_matches(_plain(name), roles, n=1, cutoff=0.85)
    return [COLUMN_NAMES[roles[near[0]]][0]] if near else []


def _own_offer(row: _Row, called: Mapping[str, str]) -> Offer:
    name, machine, told = row.text("gpu"), row.text("machine"), row.text("gpus_per_node")
    has = _gpus_of(machine) if name and machine else None
    try:
        gpu, in_name = has or catalog.gpu_named(name or machine)
    except UnknownNameError as error:
        raise FleetgymError(f"{error}; --gpu-file describes others") from None
    if has and (_gpus_of(name) or has)[0] != gpu:
        raise FleetgymError(f"{machine!r} has {gpu}, and {called['gpu']} is {name!r}")
    size = amount(called["gpus_per_node"], told, GPUS_PER_NODE) if told else in_name
    if in_name not in (1, size):
        raise FleetgymError(
            f"{(machine if has else name or machine)!r} has {in_name} GPUs, and {told} are given"
        )
    if row.text("currency").upper() not in ("", "USD"):
        raise FleetgymError(f"{called['currency']}: prices are in USD, got {row.text('currency')!r}")
    market = re.sub(r"[\s_]", "-", row.text("market").lower())
    is_spot = _FLAGS.get(row.text("spot").lower())
    if is_spot is None:
        raise FleetgymError(f"{called['spot']}: expected true or false, got {row.text('spot')!r}")
    if is_spot and market and _MARKETS.get(market) != "spot":
        raise FleetgymError(f"{called['spot']} is true, and {called['market']} is {market!r}; leave one out")
    market = market or ("spot" if is_spot else "on-demand")
    if market not in _MARKETS:
        raise UnknownNameError("market", row.text("market"), MARKETS)
    role = "usd_per_gpu_h" if "usd_per_gpu_h" in called else "usd_per_node_h"
    price = usd(called[role], row.fields[role])
    if role == "usd_per_node_h":
        price /= size
        _check_node_price(gpu, price, size)
    else:
        _check_price(gpu, price, size, is_told=bool(told))
    if _MARKETS[market] == "spot" and not price:
        raise FleetgymError(f"{called[role]}: expected what a spot GPU costs, above 0, got {price:g}")
    term = row.text("term")
    if term and _MARKETS[market] != "reserved":
        raise FleetgymError(f"{called['term']} is of the market reserved, and this offer is {market}")
    most, nodes = row.text("max_gpus"), row.text("max_nodes")
    if nodes:
        if most:
            raise FleetgymError(
                f"{called['max_gpus']} and {called['max_nodes']} are two limits; leave one out"
            )
        most, called = (
            str(size * amount(called["max_nodes"], nodes, GPU_CAP)),
            {**called, "max_gpus": "max_nodes"},
        )
    return Offer(
        gpu=gpu,
        usd_per_gpu_h=price,
        max_gpus=amount(called["max_gpus"], most, GPU_CAP) if most else None,
        market=_MARKETS[market],
        region=_region(row.text("region")) if row.text("region") else "region-1",
        gpus_per_node=size,
        term_days=days(called["term"], term) if term else None,
        power_usd_per_gpu_h=usd(called["power"], row.fields["power"]) if row.text("power") else 0.0,
    )


def _check_price(gpu: str, price: float, size: int, *, is_told: bool) -> None:
    """Raise where a price of one GPU may be that of a whole machine, or of less than an hour, unless it is stated."""
    known = [p.usd_per_gpu_h for p in catalog.prices() if p.gpu == gpu]
    if known and 0.0 < price < _CHEAPER * min(known) and not (is_told and size == 1):
        raise FleetgymError(
            f"{price:g} USD/h for one {gpu} is less than a quarter of any known price (from {min(known):g}): is it "
            "of a minute or a second? If it is meant, give gpus_per_node 1"
        )
    if not known or price <= _DEARER * max(known) or (is_told and size == 1):
        return
    raise FleetgymError(
        f"{price:g} USD/h for one {gpu} is more than any known price (up to {max(known):g}): of a machine with several "
        "GPUs, give usd_per_node_h and gpus_per_node; of one, give gpus_per_node 1"
    )


def _check_node_price(gpu: str, price: float, size: int) -> None:
    """Raise where a price of a machine may be of one of its GPUs, or of more than an hour."""
    known = [p.usd_per_gpu_h for p in catalog.prices() if p.gpu == gpu]
    if not known or not price or _FAR_CHEAPER * min(known) <= price <= _FAR_DEARER * max(known):
        return
    raise FleetgymError(
        f"{price * size:g} USD/h for a machine of {size} {gpu} is {price:.3g} for one, and known prices are "
        f"{min(known):g} to {max(known):g}: is it of one GPU, or not of an hour? If it is meant, give usd_per_gpu_h, "
        "and gpus_per_node 1"
    )


# -- catalogues of clouds


class _LeftOut(Exception):
    """A row that makes no offer: why, and what it is of."""


@dataclasses.dataclass(frozen=True)
class _Layout:
    """A list whose columns are known."""

    name: str
    marks: tuple[str, ...]  # columns that all must be there
    others: tuple[str, ...]  # columns that are used where they are there
    offers: Callable[[_Row], Iterator[tuple[Any, Offer]]]  # with what makes another row newer
    joined: Callable[[Iterator[_Row]], Iterator[_Row]] = iter  # rows that belong together


def _catalogue(path: StrPath, table: Table, layout: _Layout, tally: _Tally) -> list[Offer]:
    """Return the newest of each offer, or the cheapest where all are as new: zones of a region often repeat it.

    Single machines, which tell how many GPUs there are, are added up at each price.
    """
    wanted = [k for k, name in enumerate(table.names) if name.strip() in (*layout.marks, *layout.others)]
    best: dict[Any, tuple[Any, Offer]] = {}
    for row in layout.joined(_rows(table, wanted)):
        try:
            for age, offer in layout.offers(row):
                kind = (offer.gpu, offer.gpus_per_node, offer.market, offer.region, offer.term_days)
                key = kind if offer.max_gpus is None else (*kind, offer.usd_per_gpu_h)
                held = best.get(key)
                if held is not None and offer.max_gpus is not None:
                    most = (held[1].max_gpus or 0) + offer.max_gpus
                    best[key] = (age, dataclasses.replace(offer, max_gpus=most))
                    continue
                if (
                    held is None
                    or age > held[0]
                    or (age == held[0] and offer.usd_per_gpu_h < held[1].usd_per_gpu_h)
                ):
                    best[key] = (age, offer)
                if held is not None:
                    tally.leave_out("because the list has a newer or cheaper one of the same kind")
        except _LeftOut as why:
            tally.leave_out(*why.args)
        except FleetgymError as error:
            fail(path, row.place, str(error))
    return [offer for _, offer in best.values()]


def _machine(name: str) -> tuple[str, int]:
    """Return GPU type and number of a cloud's machine; raise `_LeftOut` for one without or unknown."""
    found = _gpus_of(name)
    if found is None:
        raise _LeftOut("of machines that are not known to have a GPU of the catalogue", name)
    return found


def _offer(
    found: tuple[str, int], usd_per_node_h: float, market: str, region: str, term: int | None = None
) -> Offer:
    gpu, gpus = found
    return Offer(
        gpu=gpu,
        usd_per_gpu_h=usd_per_node_h / gpus,
        market=market,
        region=_region(region),
        gpus_per_node=gpus,
        term_days=term,
    )


def _with_machines(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Yield rows whose GPUs have the price of their machine, too, which Google Cloud lists apart."""
    everything = list(rows)
    if all(row.text("InstanceType") for row in everything):
        yield from everything
        return
    machines: dict[tuple[str, int, str], dict[str, _Row]] = {}
    for row in everything:
        if not row.text("AcceleratorName") and (has := _gpus_of(row.text("InstanceType"))):
            machines.setdefault((*has, row.text("AvailabilityZone")), {})[row.text("InstanceType")] = row
    for row in everything:
        name, count = row.text("AcceleratorName"), row.text("AcceleratorCount")
        if row.text("InstanceType") or not name or not _WHOLE.fullmatch(count):
            yield row
            continue
        has = _gpus_of("A100-40GB" if name == "A100" else name)
        found = machines.get((has[0], int(float(count)), row.text("AvailabilityZone")), {}) if has else {}
        fit = [
            m for kind, m in found.items() if ("a3-mega" in kind) == ("MEGA" in name) and "edge" not in kind
        ]
        if not fit:
            yield row
            continue
        least = min(fit, key=lambda m: usd("Price", m.fields["Price"]))
        both = {
            column: usd(column, row.fields[column]) + usd(column, least.fields[column])
            for column in ("Price", "SpotPrice")
            if row.text(column) and least.text(column)
        }
        machine = {"InstanceType": least.text("InstanceType"), "Price": "", "SpotPrice": ""}
        yield _Row(row.place, {**row.fields, **machine, **both})


_WHOLE = re.compile(r"[1-9]\d{0,3}(\.0*)?", re.ASCII)


def _gpus_of(name: str) -> tuple[str, int] | None:
    try:
        return catalog.gpu_named(name)
    except UnknownNameError:
        return None


def _skypilot(row: _Row) -> Iterator[tuple[Any, Offer]]:
    name, count, info = row.text("AcceleratorName"), row.text("AcceleratorCount"), row.text("GpuInfo")
    if not name:
        return
    if not row.text("InstanceType"):
        raise _LeftOut("because their price lacks the machine around the GPUs", name)
    if not _WHOLE.fullmatch(count):
        raise _LeftOut("because they are of a part of a GPU", name)
    if name == "A100":  # SkyPilot's word for the smaller one, unless the row tells its memory
        name = "A100-80GB" if "81920" in info else "A100-40GB"
    form = re.search(r"PCIe|NVL\b", info)  # some sellers' rows tell it here alone
    gpu, _ = _machine(f"{name}-{form[0]}" if form and form[0].lower() not in name.lower() else name)
    machine = (gpu, int(float(count)))
    for column, market, place in (
        ("Price", "on-demand", row.text("Region")),
        ("SpotPrice", "spot", row.text("AvailabilityZone") or row.text("Region")),
    ):
        if row.text(column):
            yield 0, _offer(machine, usd(column, row.fields[column]), market, place)


def _aws_spot(row: _Row) -> Iterator[tuple[Any, Offer]]:
    system = row.text("ProductDescription")
    if not system.startswith("Linux/UNIX"):
        raise _LeftOut("of another system than Linux/UNIX", system)
    found = _machine(row.text("InstanceType"))
    when = row.text("Timestamp")
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", when):
        raise FleetgymError(f"Timestamp: expected a date such as 2026-03-02T09:00:00+00:00, got {when!r}")
    price = usd("SpotPrice", row.fields["SpotPrice"])
    yield when, _offer(found, price, "spot", row.text("AvailabilityZone"))


def _azure(row: _Row) -> Iterator[tuple[Any, Offer]]:
    words = " ".join(row.text(name) for name in ("skuName", "meterName"))
    product, kind = row.text("productName"), row.text("type") or row.text("priceType") or "Consumption"
    if not row.text("armSkuName"):
        raise _LeftOut("because they are of no machine")
    if "Windows" in product or "Windows" in words or (product and not product.startswith("Virtual Machines")):
        raise _LeftOut("of Windows, or of something else than a virtual machine")
    if kind not in ("Consumption", "Reservation"):
        raise _LeftOut("of another kind than Consumption and Reservation", kind)
    found = _machine(row.text("armSkuName"))
    if row.text("currencyCode") not in ("", "USD"):
        raise FleetgymError(f"currencyCode: prices are in USD, got {row.text('currencyCode')!r}")
    if row.text("unitOfMeasure") not in ("", "1 Hour"):
        raise FleetgymError(f"unitOfMeasure: expected '1 Hour', got {row.text('unitOfMeasure')!r}")
    price, term = usd("retailPrice", row.fields["retailPrice"]), None
    market = "spot" if "Spot" in words or "Low Priority" in words else "on-demand"
    if kind == "Reservation":  # the price is of the whole term
        market, term = "reserved", days("reservationTerm", row.text("reservationTerm"))
        price /= 24.0 * term
    yield row.text("effectiveStartDate"), _offer(found, price, market, row.text("armRegionName"), term)


def _lambda(row: _Row) -> Iterator[tuple[Any, Offer]]:
    found, column = _machine(row.text("instance_type.name")), "instance_type.price_cents_per_hour"
    yield 0, _offer(found, usd(column, row.fields[column]) / 100.0, "on-demand", "region-1")


def _is_bid(row: _Row) -> bool:
    return bool(_FLAGS.get(row.text("is_bid").lower()))


def _once_each_machine(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Yield rows, and mark all but one of a machine: that with the most GPUs to rent now, rather than a bid."""
    everything, best = list(rows), dict[str, _Row]()

    def worth(row: _Row) -> tuple[bool, float, bool, float]:
        told = [from_text(row.text(name)) for name in ("num_gpus", "dph_total")]
        gpus, price = (0.0 if isinstance(number, str) else number for number in told)
        return _is_rentable(row), gpus, not _is_bid(row), -price

    for row in everything:
        if machine := row.text("machine_id"):
            best[machine] = max(best.get(machine, row), row, key=worth)
    for row in everything:
        is_best = best.get(row.text("machine_id"), row) is row
        yield row if is_best else _Row(row.place, {**row.fields, "again": True})


def _is_rentable(row: _Row) -> bool:
    return row.text("rentable").lower() != "false"


def _vast(row: _Row) -> Iterator[tuple[Any, Offer]]:
    """Yield what a machine costs, which can be rented once: on demand, or where the list is of bids, on spot."""
    name = row.text("gpu_name")
    if not _is_rentable(row):
        raise _LeftOut("because they cannot be rented now", name)
    if row.text("again"):
        raise _LeftOut("because another offer of the same machine counts", name)
    if not _WHOLE.fullmatch(row.text("num_gpus")):
        raise _LeftOut("because they are of a part of a GPU", name)
    machine = _machine(name)[0], int(float(row.text("num_gpus")))
    market = "spot" if _is_bid(row) else "on-demand"
    column = "min_bid" if market == "spot" and row.text("min_bid") else "dph_total"
    offer = _offer(machine, usd(column, row.fields[column]), market, row.text("geolocation") or "region-1")
    yield 0, dataclasses.replace(offer, max_gpus=machine[1])


def _runpod(row: _Row) -> Iterator[tuple[Any, Offer]]:
    """Yield what one GPU costs in RunPod's own data centres."""
    gpu, _ = _machine(row.text("displayName"))
    for column, market in (("securePrice", "on-demand"), ("secureSpotPrice", "spot")):
        if row.text(column) and usd(column, row.fields[column]) > 0.0:
            yield 0, _offer((gpu, 1), usd(column, row.fields[column]), market, "region-1")


#: Columns of AWS's cost and usage report that are needed, and others that are used, in words; each of the two
#: versions writes them in its way, see `_cur_layout`.
_CUR_MARKS = (
    *("line_item line_item_type", "line_item usage_type"),
    *("line_item usage_amount", "line_item unblended_cost"),
)
_CUR_OTHERS = (
    *("line_item usage_start_date", "line_item currency_code", "line_item availability_zone"),
    *("product instance_type", "product region", "product region_code", "product operating_system"),
    *("pricing lease_contract_length", "reservation effective_cost"),
    "savings_plan savings_plan_effective_cost",
)
#: Line items that are hours of a machine: the market, and where their cost stands.
_CUR_ITEMS = {
    "Usage": ("on-demand", "line_item unblended_cost"),
    "DiscountedUsage": ("reserved", "reservation effective_cost"),
    "SavingsPlanCoveredUsage": ("reserved", "savings_plan savings_plan_effective_cost"),
}


def _cur_names(column: str) -> tuple[str, str]:
    """Return how both versions of the report call a column.

    Examples
    --------
    >>> _cur_names("line_item usage_amount"), _cur_names("product region")
    (('lineItem/UsageAmount', 'line_item_usage_amount'), ('product/region', 'product_region'))
    """
    group, _, name = column.partition(" ")
    words = [word.capitalize() for word in name.split("_")]
    if group == "product":  # whose names begin small
        words[0] = words[0].lower()
    first, *rest = group.split("_")
    return f"{first}{''.join(map(str.capitalize, rest))}/{''.join(words)}", f"{group}_{name}"


def _cur_layout(version: int) -> _Layout:
    called = {column: _cur_names(column)[version - 1] for column in (*_CUR_MARKS, *_CUR_OTHERS)}

    def offers(row: _Row) -> Iterator[tuple[Any, Offer]]:
        return _aws_bill(_Row(row.place, {c: row.fields[n] for c, n in called.items() if n in row.fields}))

    return _Layout(
        f"a cost and usage report of AWS, version {version}",
        tuple(called[column] for column in _CUR_MARKS),
        tuple(called[column] for column in _CUR_OTHERS),
        offers,
    )


def _aws_bill(row: _Row) -> Iterator[tuple[Any, Offer]]:
    """Yield what an hour of a machine was billed at, whichever way it was bought."""
    kind, usage = row.text("line_item line_item_type"), row.text("line_item usage_type")
    if kind not in _CUR_ITEMS:
        raise _LeftOut("because they are no hours of a machine", kind)
    bought = re.search(r"(?:^|-)(Box|Spot|Dedicated)Usage:(.+)$", usage)
    if bought is None:
        raise _LeftOut("because they are no hours of a machine", usage.partition(":")[0])
    system = row.text("product operating_system")
    if system not in ("", "Linux"):
        raise _LeftOut("of another system than Linux", system)
    if row.text("line_item currency_code") not in ("", "USD"):
        raise FleetgymError(f"currency: prices are in USD, got {row.text('line_item currency_code')!r}")
    found = _machine(row.text("product instance_type") or bought[2])
    market, column = _CUR_ITEMS[kind]
    market = "spot" if bought[1] == "Spot" else market
    hours = usd("the usage amount", row.fields["line_item usage_amount"])
    if not hours > 0.0 or not row.text(column):
        raise _LeftOut("because they have no hours, or no cost of them", kind)
    term = row.text("pricing lease_contract_length") if kind == "DiscountedUsage" else ""
    place = next(
        filter(None, map(row.text, ("line_item availability_zone", "product region_code", "product region"))),
        "region-1",
    )
    price = usd(column, row.fields[column]) / hours
    when = row.text("line_item usage_start_date")
    yield when, _offer(found, price, market, place, days("the lease", term) if term else None)


_LAYOUTS = (
    _cur_layout(1),
    _cur_layout(2),
    _Layout(
        "a catalogue of SkyPilot",
        ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"),
        ("SpotPrice", "AvailabilityZone", "GpuInfo"),
        _skypilot,
        _with_machines,
    ),
    _Layout(
        "a spot price history of AWS",
        ("InstanceType", "SpotPrice", "AvailabilityZone", "ProductDescription", "Timestamp"),
        (),
        _aws_spot,
    ),
    _Layout(
        "retail prices of Azure",
        ("armSkuName", "retailPrice", "armRegionName"),
        ("skuName", "meterName", "productName", "type", "priceType", "currencyCode", "unitOfMeasure")
        + ("reservationTerm", "effectiveStartDate"),
        _azure,
    ),
    _Layout(
        "instance types of Lambda", ("instance_type.name", "instance_type.price_cents_per_hour"), (), _lambda
    ),
    _Layout(
        "offers of Vast.ai, each machine once: on demand, or on spot if is_bid is true (search offers --type=bid)",
        ("gpu_name", "num_gpus", "dph_total"),
        ("geolocation", "machine_id", "is_bid", "min_bid", "rentable"),
        _vast,
        _once_each_machine,
    ),
    _Layout("GPU types of RunPod", ("displayName", "securePrice"), ("secureSpotPrice",), _runpod),
)
