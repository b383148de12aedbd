"""Make offers from the catalogue's prices, and set their GPU limits."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.files.quantities import GPU_CAP, GPUS_PER_NODE, TERM_DAYS, USD_PER_GPU_H
from fleetgym.files.schema import ID, Checked, Choice, Text, documented, spec
from fleetgym.hardware import catalog

MARKETS = ("reserved", "on-demand", "spot")
DEFAULT_GPUS = ("L40S", "A100-80GB", "H100", "H200")
DEFAULT_REGION = "us-east-1"
REGION = Text(r"[A-Za-z0-9][A-Za-z0-9_.+x@:-]{0,29}")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer(Checked):
    """GPUs of one type, market and region at a price."""

    gpu: str = spec(ID, doc="a type of the catalogue")
    usd_per_gpu_h: float = spec(USD_PER_GPU_H)
    max_gpus: int | None = spec(GPU_CAP.or_null(), None, doc="None: as many as could be of use")
    market: str = spec(Choice(MARKETS), "on-demand")
    region: str = spec(REGION, "region-1")
    gpus_per_node: int = spec(
        GPUS_PER_NODE, 1, doc="whole nodes are rented; the price is still that of one GPU"
    )
    term_days: int | None = spec(
        TERM_DAYS.or_null(), None, doc="how long a reserved offer is paid; null: while it is held"
    )
    power_usd_per_gpu_h: float = spec(
        USD_PER_GPU_H, 0.0, doc="power and cooling of a GPU that is held, beside rent"
    )


def pool_ids(offers: Iterable[Offer]) -> tuple[str, ...]:
    """Return an id for the pool of each offer, all different.

    Examples
    --------
    >>> one, eight = Offer(gpu="H100", usd_per_gpu_h=3.0), Offer(gpu="H100", usd_per_gpu_h=2.0, gpus_per_node=8)
    >>> pool_ids([one, eight, one])
    ('h100-on-demand-region-1', 'h100-on-demand-region-1-x8', 'h100-on-demand-region-1-2')
    """
    found: list[str] = []
    for o in offers:
        size = f"-x{o.gpus_per_node}" if o.gpus_per_node > 1 else ""
        plain = f"{o.gpu}-{o.market}-{o.region}{size}".lower()
        copies = itertools.count(2)
        name = plain
        while name in found:
            name = f"{plain}-{next(copies)}"
        found.append(name)
    return tuple(found)


def catalogue_prices(gpus: Sequence[str] | None = None, region: str = DEFAULT_REGION) -> tuple[Offer, ...]:
    """Return the cheapest on-demand price of each GPU type in a region, by a hyperscaler or neocloud.

    The types are L40S, A100-80GB, H100 and H200 by default, as far as the region has a price.

    Raises
    ------
    UnknownNameError
        For a region or GPU type without a price.

    Examples
    --------
    >>> [(offer.gpu, offer.usd_per_gpu_h) for offer in catalogue_prices(["H100", "L40S"])]
    [('H100', 6.88), ('L40S', 1.861)]
    """
    offers = [p for p in catalog.prices() if p.market == "on-demand" and p.segment != "marketplace"]
    regions = {p.region for p in offers}
    if region not in regions:
        raise UnknownNameError("region", region, regions)
    cheapest: dict[str, float] = {}
    for p in offers:
        if p.region == region:
            cheapest[p.gpu] = min(p.usd_per_gpu_h, cheapest.get(p.gpu, math.inf))
    wanted = (
        [g for g in DEFAULT_GPUS if g in cheapest] or list(cheapest)
        if gpus is None
        else list(dict.fromkeys(catalog.gpu_named(name)[0] for name in gpus))
    )
    for name in wanted:
        if name not in cheapest:
            raise UnknownNameError(f"GPU type with a price in {region}", name, cheapest)
    return tuple(Offer(gpu=name, usd_per_gpu_h=cheapest[name], region=region) for name in wanted)


def parse_caps(text: str) -> dict[str, int]:
    """Read caps: one number for every pool, or ``GPU=number`` for some.

    Examples
    --------
    >>> parse_caps("64"), parse_caps("H100=16,L40S=32")
    ({'*': 64}, {'H100': 16, 'L40S': 32})
    """
    found = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        name, number = (name.strip(" "), number.strip(" ")) if equals else ("*", name.strip(" "))
        try:
            cap = GPU_CAP.parse(number)
        except DataError as error:
            raise FleetgymError(
                f"cannot read the cap {part!r}; expected 64, or H100=16,L40S=32: {error.message}"
            ) from None
        if name != "*":
            name = catalog.gpu_named(name)[0]
        if name in found:
            raise FleetgymError(
                f"the cap of {'all GPUs' if name == '*' else name} is given twice in {text!r}"
            )
        found[name] = cap
    return found


def with_caps(offers: Iterable[Offer], caps: Mapping[str, int]) -> tuple[Offer, ...]:
    """Return the offers with caps by GPU type; ``*`` stands for all others."""
    offers = tuple(offers)
    for name in caps:
        if name != "*" and name not in {o.gpu for o in offers}:
            raise UnknownNameError("GPU type with a price", name, {o.gpu for o in offers})
    return tuple(
        dataclasses.replace(o, max_gpus=caps.get(o.gpu, caps.get("*", o.max_gpus or 0)) or None)
        for o in offers
    )
