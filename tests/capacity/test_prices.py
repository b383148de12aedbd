"""Price lists: every field is read or refused with its place; lists of clouds mean what their owners mean by them."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import pytest

from fleetgym.capacity.traces.importing import import_trace
from fleetgym.capacity.traces.money import usd
from fleetgym.capacity.traces.price_lists import MAX_OFFERS, read_prices
from fleetgym.capacity.traces.prices import Offer, pool_ids
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.hardware import catalog
from tests.sample_traces import write_azure


def write(folder: Path, content: str, name: str = "p.csv") -> Path:
    """Write a price list."""
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def test_fields(tmp_path: Path) -> None:
    """Nodes, terms and power come from the file; two rows of one GPU are two offers."""
    path = write(
        tmp_path,
        "gpu,usd_per_gpu_h,market,gpus_per_node,term_days,power_usd_per_gpu_h\n"
        "H100,1.9,reserved,8,365,\nH100,2.5,,,,\nH100,2.9,,,,\nL40S,0,reserved,,,0.12\n",
    )
    offers = read_prices(path).offers
    assert offers == (
        Offer(gpu="H100", usd_per_gpu_h=1.9, market="reserved", gpus_per_node=8, term_days=365),
        Offer(gpu="H100", usd_per_gpu_h=2.5),
        Offer(gpu="H100", usd_per_gpu_h=2.9),
        Offer(gpu="L40S", usd_per_gpu_h=0.0, market="reserved", power_usd_per_gpu_h=0.12),
    )
    assert len(set(pool_ids(offers))) == 4
    assert read_prices(path, ["l40s"]).offers == offers[3:]


@pytest.mark.parametrize(
    ("content", "price", "size"),
    [
        ("gpu,usd_per_node_h,gpus_per_node\nH100,23.60,8\n", 2.95, 8),
        ("gpu,usd_per_node_h\n8x H100,23.60\n", 2.95, 8),
        ("instance_type,usd_per_node_h\np5.48xlarge,23.60\n", 2.95, 8),
        ("gpu,instance_type,usd_per_node_h\nH100,p5.48xlarge,23.60\n", 2.95, 8),
        ("gpu,instance_type,usd_per_node_h\n8x H100,a machine of ours,23.60\n", 2.95, 8),
        ("gpu,usd_per_gpu_h,gpus_per_node\nH100,23.60,1\n", 23.6, 1),
        ("\ufeffGPU Type;USD per GPU hour\nH100;2,95\n", 2.95, 1),
        ('gpu,usd_per_gpu_h\nH100,"2,95 USD"\n', 2.95, 1),
        ("gpu\tusd_per_gpu_h\nNVIDIA H100 80GB HBM3\t$2.95/h\n", 2.95, 1),
        ("gpu|usd_per_gpu_h|currency\nh100-sxm5|US$ 2.95|USD\n", 2.95, 1),
    ],
)
def test_a_node_and_a_gpu_are_told_apart(content: str, price: float, size: int, tmp_path: Path) -> None:
    """A price is of one GPU or of a machine as the column says, however numbers are written."""
    (offer,) = read_prices(write(tmp_path, content)).offers
    assert (offer.gpu, offer.gpus_per_node) == ("H100", size)
    assert offer.usd_per_gpu_h == pytest.approx(price)


def test_the_same_list_in_json(tmp_path: Path) -> None:
    """JSON, JSON Lines and Parquet are read as CSV is; what is not used is told."""
    rows = [
        {"gpu": "H100", "usd_per_gpu_h": 2.5, "market": "spot", "seller": "a"},
        {"gpu": "L40S", "usd_per_gpu_h": "$1", "market": None, "seller": "b"},
    ]
    lines = write(tmp_path, "\n".join(map(json.dumps, rows)), "p.jsonl")
    found = read_prices(lines)
    assert [(o.gpu, o.usd_per_gpu_h, o.market) for o in found.offers] == [
        ("H100", 2.5, "spot"),
        ("L40S", 1.0, "on-demand"),
    ]
    assert found.notes == ("prices: these columns are not used: 'seller'",)
    assert read_prices(write(tmp_path, json.dumps(rows), "p.json")) == found
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(rows).astype({"usd_per_gpu_h": str}).to_parquet(tmp_path / "p.parquet")
    assert read_prices(tmp_path / "p.parquet") == found


def test_money() -> None:
    """What can be read in two ways, or is of another currency, is refused by the column's name."""
    assert [usd("p", t) for t in ("2.95", "2,95", "1,234.5", "1.234,5", "USD 1e-1", "3 $")] == [
        2.95,
        2.95,
        1234.5,
        1234.5,
        0.1,
        3.0,
    ]
    for text in ("1,234", "€2.95", "2.95 EUR", "£2", "2.95 CHF", "free", "", "-1", "1_0", "٣", "2.9.5"):
        with pytest.raises(FleetgymError, match=r"^price: "):
            usd("price", text)


# -- lists of clouds, as their documentation shows them

SKYPILOT = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice,AvailabilityZone
m5.large,,,2,8,0.096,us-east-1,,0.04,us-east-1a
p5.48xlarge,H100,8,192,2048,55.04,us-east-1,,22.0,us-east-1a
p5.48xlarge,H100,8,192,2048,55.04,us-east-1,,24.0,us-east-1b
p4d.24xlarge,A100,8,96,1152,21.9576,us-east-1,,,us-east-1a
g6f.large,L4,0.125,2,8,0.2,us-east-1,,,us-east-1a
,T4,1,,,0.35,us-central1,,0.2,us-central1-a
vm,Gaudi,8,96,768,13.1,us-east-1,,,us-east-1a
"""


def test_a_catalogue_of_skypilot(tmp_path: Path) -> None:
    """A row is an offer on demand and one on spot; zones of a region are one on demand; the rest is told."""
    found = read_prices(write(tmp_path, SKYPILOT))
    assert {offer.max_gpus for offer in found.offers} == {None}  # kinds of machines, of which there are many
    assert [
        (o.gpu, round(o.usd_per_gpu_h, 4), o.market, o.region, o.gpus_per_node) for o in found.offers
    ] == [
        ("H100", 6.88, "on-demand", "us-east-1", 8),
        ("H100", 2.75, "spot", "us-east-1a", 8),
        ("H100", 3.0, "spot", "us-east-1b", 8),
        ("A100-40GB", 2.7447, "on-demand", "us-east-1", 8),
    ]
    notes = " | ".join(found.notes)
    for told in ("SkyPilot", "a part of a GPU: L4", "lacks the machine around the GPUs: T4", ": Gaudi"):
        assert told in notes
    assert [o.region for o in read_prices(tmp_path / "p.csv", ["H100"], "us-east-1").offers] == [
        "us-east-1",
        "us-east-1a",
        "us-east-1b",
    ]
    with pytest.raises(DataError, match="no price of T4.*lacks the machine around the GPUs"):
        read_prices(tmp_path / "p.csv", ["T4"])
    with pytest.raises(DataError, match="no price of any GPU in eu-1; the list has us-east-1"):
        read_prices(tmp_path / "p.csv", None, "eu-1")


def test_skypilot_tells_the_form_of_a_gpu_elsewhere(tmp_path: Path) -> None:
    """RunPod's rows call the card with PCIe A100-80GB, and say so in their details alone."""
    info = "\"{'Gpus': [{'Name': 'A100 PCIe', 'Manufacturer': 'Nvidia', 'Count': 1}]}\""
    head = SKYPILOT.splitlines()[0]
    path = write(tmp_path, f"{head}\n1x_A100,A100-80GB,1.0,8,117,1.39,IN,{info},1.39,AP-IN-1\n")
    assert {o.gpu for o in read_prices(path).offers} == {"A100-80GB-PCIe"}


def test_machines_and_gpus_that_are_listed_apart(tmp_path: Path) -> None:
    """Google Cloud's GPUs get the price of their machine in the same zone; without one they are left out."""
    path = write(
        tmp_path,
        "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
        ",,,H100,8,x,us-central1,us-central1-a,78.0,24.0\n"
        ",,,H100-MEGA,8,x,us-central1,us-central1-a,78.5,\n"
        ",,,H100,8,x,us-east4,us-east4-a,78.0,24.0\n"
        ",,,L4,1,x,us-central1,us-central1-a,0.56,0.2\n"
        "a3-highgpu-8g,208.0,1872.0,,,,us-central1,us-central1-a,10.0,3.0\n"
        "a3-megagpu-8g,208.0,1872.0,,,,us-central1,us-central1-a,9.5,3.0\n"
        "a3-edgegpu-8g,208.0,1872.0,,,,us-central1,us-central1-a,1.0,3.0\n"
        "g2-standard-8,8.0,32.0,,,,us-central1,us-central1-a,0.3,0.1\n"
        "g2-standard-4,4.0,16.0,,,,us-central1,us-central1-a,0.15,0.05\n"
        "n1-highmem-8,8.0,52.0,,,,us-central1,us-central1-a,0.47,0.1\n",
    )
    found = read_prices(path)
    assert [(o.gpu, o.market, round(o.gpus_per_node * o.usd_per_gpu_h, 4)) for o in found.offers] == [
        ("H100", "on-demand", 88.0),
        ("H100", "spot", 27.0),
        ("L4", "on-demand", 0.71),
        ("L4", "spot", 0.25),
    ]
    assert any("lacks the machine around the GPUs: H100" in note for note in found.notes)


def aws_row(zone: str, machine: str, price: str, when: str, system: str = "Linux/UNIX") -> dict[str, str]:
    """Return an entry of ``aws ec2 describe-spot-price-history``."""
    return {
        "AvailabilityZone": zone,
        "InstanceType": machine,
        "ProductDescription": system,
        "SpotPrice": price,
        "Timestamp": when,
    }


def test_a_spot_history_of_aws(tmp_path: Path) -> None:
    """The latest price of each machine and zone counts."""
    history = [
        aws_row("us-east-1a", "p5.48xlarge", "22.104500", "2026-03-02T09:00:00+00:00"),
        aws_row("us-east-1a", "p5.48xlarge", "19.200000", "2026-03-02T07:00:00+00:00"),
        aws_row("us-east-1b", "p4d.24xlarge", "9.87", "2026-03-02T10:00:00+00:00"),
        aws_row("us-east-1b", "m5.large", "0.04", "2026-03-02T10:00:00+00:00"),
        aws_row("us-east-1b", "p4d.24xlarge", "5.00", "2026-03-02T11:00:00+00:00", "Windows"),
    ]
    found = read_prices(write(tmp_path, json.dumps({"SpotPriceHistory": history}), "p.json"))
    assert [(o.gpu, o.market, o.region, o.gpus_per_node) for o in found.offers] == [
        ("H100", "spot", "us-east-1a", 8),
        ("A100-40GB", "spot", "us-east-1b", 8),
    ]
    assert [round(8 * o.usd_per_gpu_h, 4) for o in found.offers] == [22.1045, 9.87]
    notes = " | ".join(found.notes)
    assert "1 row left out because the list has a newer" in notes
    assert "m5.large" in notes
    assert "Windows" in notes


def azure_item(**other: object) -> dict[str, object]:
    """Return an item of Azure's retail prices."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 98.32,
        "unitPrice": 98.32,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterName": "ND96isr H100 v5",
        "productName": "Virtual Machines ND H100 v5 Series",
        "skuName": "ND96isr H100 v5",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_ND96isr_H100_v5",
        **other,
    }


def test_retail_prices_of_azure(tmp_path: Path) -> None:
    """Spot and Low Priority are told by their names; a reservation's price is of its whole term."""
    items = [
        azure_item(),
        azure_item(retailPrice=90.0, effectiveStartDate="2025-01-01T00:00:00Z"),
        azure_item(retailPrice=40.0, skuName="ND96isr H100 v5 Spot", meterName="ND96isr H100 v5 Spot"),
        azure_item(retailPrice=20.0, skuName="ND96isr H100 v5 Low Priority", armRegionName="westus"),
        azure_item(retailPrice=525600.0, type="Reservation", reservationTerm="1 Year"),
        azure_item(retailPrice=120.0, productName="Virtual Machines ND H100 v5 Series Windows"),
        azure_item(retailPrice=1.0, type="DevTestConsumption"),
        azure_item(retailPrice=0.1, armSkuName="Standard_D2s_v5"),
        azure_item(retailPrice=27.2, armSkuName="Standard_ND96asr_v4"),
    ]
    page = {"BillingCurrency": "USD", "Items": items, "NextPageLink": None, "Count": len(items)}
    found = read_prices(write(tmp_path, json.dumps(page), "p.json"))
    assert [
        (o.gpu, o.market, o.region, o.term_days, round(8 * o.usd_per_gpu_h, 3)) for o in found.offers
    ] == [
        ("H100", "on-demand", "eastus", None, 98.32),
        ("H100", "spot", "eastus", None, 40.0),
        ("H100", "spot", "westus", None, 20.0),
        ("H100", "reserved", "eastus", 365, 60.0),
        ("A100-40GB", "on-demand", "eastus", None, 27.2),
    ]
    assert "Standard_D2s_v5" in " ".join(found.notes)
    with pytest.raises(DataError, match=r"\$\.Items\[0\]: currencyCode: prices are in USD, got 'EUR'"):
        read_prices(write(tmp_path, json.dumps({"Items": [azure_item(currencyCode="EUR")]}), "e.json"))


def test_instance_types_of_lambda(tmp_path: Path) -> None:
    """Records under their names, and prices in cents."""
    kind = {"name": "gpu_8x_h100_sxm5", "price_cents_per_hour": 2392, "specs": {"gpus": 8}}
    types = {"gpu_8x_h100_sxm5": {"instance_type": kind, "regions_with_capacity_available": []}}
    (offer,) = read_prices(write(tmp_path, json.dumps({"data": types}), "p.json")).offers
    assert (offer.gpu, offer.gpus_per_node, offer.usd_per_gpu_h) == ("H100", 8, pytest.approx(2.99))


@pytest.mark.parametrize(
    ("column", "entry", "asked"),
    [
        ("upfront_usd", "5000", True),
        ("upfront_usd", "0", False),
        ("discount_percent", "30", True),
        ("unit", "month", True),
        ("unit", "hour", False),
        ("valid_until", "2026-06-01", True),
        ("min_gpus", "64", True),
        ("community", "yes", False),
        ("minutes_to_start", "3", False),
    ],
)
def test_columns_that_change_the_price_are_asked_about(
    column: str, entry: str, asked: bool, tmp_path: Path
) -> None:
    """Others are named as not used."""
    path = write(tmp_path, f"gpu,usd_per_gpu_h,{column}\nH100,2.5,{entry}\n")
    if asked:
        with pytest.raises(DataError, match=f"the column '{column}' \\({entry}\\) may change what is paid"):
            read_prices(path)
    else:
        assert read_prices(path).notes == (f"prices: these columns are not used: '{column}'",)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("spot\nH100,2,True\nH100,3,False\nH100,4,", ["spot", "on-demand", "on-demand"]),
        ("is_spot,market\nH100,2,1,spot\nH100,3,no,on-demand", ["spot", "on-demand"]),
        ("is_spot,market\nH100,2,1,on-demand", "is_spot is true, and market is 'on-demand'"),
        ("preemptible\nH100,2,perhaps", "preemptible: expected true or false, got 'perhaps'"),
        ("purchase_option\nH100,2,Spot", r"the column 'purchase_option' \(Spot\) may be the market"),
        ("availability\nH100,2,16", r"the column 'availability' \(16\) may be a limit"),
        ("availability\nH100,2,Low", ["on-demand"]),
    ],
)
def test_a_price_of_spot_is_no_price_on_demand(rows: str, told: list[str] | str, tmp_path: Path) -> None:
    """Lists of clouds have a flag for it; other words of the market, and limits, are asked about."""
    path = write(tmp_path, f"gpu,usd_per_gpu_h,{rows}\n")
    if isinstance(told, str):
        with pytest.raises(DataError, match=told):
            read_prices(path)
    else:
        assert [offer.market for offer in read_prices(path).offers] == told


def test_machines_without_a_gpu_are_left_out(tmp_path: Path) -> None:
    """Catalogues list them, too."""
    rows = "gpu,gpu_count,usd_per_node_h\nH100,8,24\n,0,0.1\n,,0.2\n"
    found = read_prices(write(tmp_path, rows))
    assert [(offer.gpu, offer.gpus_per_node) for offer in found.offers] == [("H100", 8)]
    assert found.notes == ("prices: 2 rows left out because they have no GPU",)


def test_columns_in_nested_json(tmp_path: Path) -> None:
    """A step's name counts where no whole name does."""
    offer = {"configuration": {"gpu_type": "H100", "num_gpus": 8}, "prices": {"usd_per_node_h": 24.0}}
    (found,) = read_prices(write(tmp_path, json.dumps([offer]), "p.json")).offers
    assert (found.gpu, found.gpus_per_node, found.usd_per_gpu_h) == ("H100", 8, 3.0)


def test_offers_of_vast(tmp_path: Path) -> None:
    """Prices of single machines, added up; each can be rented once, and what cannot be rented is told."""
    machine = {"gpu_name": "H100 SXM", "num_gpus": 8, "dph_total": 17.6, "geolocation": "Texas, US"}
    bid = {"min_bid": 8.0, "is_bid": False}  # what a bid would cost is told of every machine
    offers = [
        {"id": 1, **machine, **bid, "machine_id": 71, "rentable": True},
        {"id": 2, **machine, "num_gpus": 4, "rentable": False},
        {"id": 3, **machine, "gpu_name": "GTX 1080"},
        {"id": 4, **machine, **bid, "machine_id": 72},
        {"id": 5, **machine, **bid, "machine_id": 72, "num_gpus": 4, "dph_total": 8.0},
        {"id": 6, **machine, **bid, "machine_id": 72, "is_bid": True},
        {"id": 7, **machine, "dph_total": 20.0},
        {"id": 8, **machine, **bid, "machine_id": 73, "is_bid": True},
        {"id": 9, **machine, **bid, "machine_id": 73, "is_bid": True, "num_gpus": 2, "min_bid": 1.0},
    ]
    found = read_prices(write(tmp_path, json.dumps({"offers": offers}), "p.json"))
    told = [(o.gpu, o.gpus_per_node, o.market, o.region, round(o.usd_per_gpu_h, 3)) for o in found.offers]
    places = (("on-demand", "Texas-US", 2.2), ("on-demand", "Texas-US", 2.5), ("spot", "Texas-US", 1.0))
    assert told == [("H100", 8, *place) for place in places]
    assert [o.max_gpus for o in found.offers] == [16, 8, 8]
    assert any("each machine once: on demand" in note for note in found.notes)
    assert any("3 rows left out because another offer of the same machine" in note for note in found.notes)
    assert any("cannot be rented now" in note for note in found.notes)
    assert any("GTX 1080" in note for note in found.notes)


def test_gpu_types_of_runpod(tmp_path: Path) -> None:
    """As its GraphQL answers; a price of null is none."""
    types = [
        {"displayName": "H100 SXM", "securePrice": 2.69, "communityPrice": 2.39, "secureSpotPrice": 1.75},
        {"displayName": "L40S", "securePrice": 0.86, "secureSpotPrice": None},
    ]
    found = read_prices(write(tmp_path, json.dumps({"data": {"gpuTypes": types}}), "p.json"))
    told = [(o.gpu, o.market, o.usd_per_gpu_h) for o in found.offers]
    assert told == [("H100", "on-demand", 2.69), ("H100", "spot", 1.75), ("L40S", "on-demand", 0.86)]


def test_a_list_of_too_many_offers(tmp_path: Path) -> None:
    """The error says by what to choose."""
    rows = "".join(f"H100,2,spot,r{k}\n" for k in range(MAX_OFFERS + 1))
    path = write(tmp_path, "gpu,usd_per_gpu_h,market,region\n" + rows)
    with pytest.raises(DataError, match=r"--gpus \(H100\) and --region \(r0, r1, "):
        read_prices(path)
    assert len(read_prices(path, None, "r7").offers) == 1


# -- names of GPUs


@pytest.mark.parametrize(
    ("name", "gpu", "gpus"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB", 1),
        ("a100-80gb-sxm", "A100-80GB", 1),
        ("nvidia-tesla-a100", "A100-40GB", 1),
        ("nvidia-h100-80gb", "H100", 1),
        ("H100 SXM5", "H100", 1),
        ("Standard_ND96asr_v4", "A100-40GB", 8),
        ("p5.48xlarge", "H100", 8),
        ("a3-highgpu-8g", "H100", 8),
        ("g2-standard-4", "L4", 1),
        ("RTX 4090", "RTX-4090", 1),
        ("2x L40S", "L40S", 2),
    ],
)
def test_names_that_people_use(name: str, gpu: str, gpus: int) -> None:
    """Drivers' and clouds' names are the catalogue's types."""
    assert catalog.gpu_named(name) == (gpu, gpus)


@pytest.mark.parametrize("name", ["A100", "H20x", "MI300Z", "A1", "B30", "RTX 6000 Ada", "T40", "L400"])
def test_no_hint_names_another_gpu(name: str) -> None:
    """An unknown name is never taken for a GPU of another number, nor is one proposed."""
    with pytest.raises(UnknownNameError) as caught:
        catalog.gpu_named(name)
    assert "did you mean" not in str(caught.value)
    if name == "A100":
        assert str(caught.value).endswith("by that number there are A100-40GB, A100-80GB, A100-80GB-PCIe")
    else:
        assert "by that number" not in str(caught.value)


def test_every_other_name_is_of_the_catalogue() -> None:
    """The table of names has no name twice, and names no GPU that is not there."""
    text = resources.files("fleetgym").joinpath("data", "gpu_names.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    for row in rows:
        assert catalog.gpu_named(row["name"]) == (row["gpu"], int(row["gpus"])), row
    assert len({row["name"].lower() for row in rows}) == len(rows)


def test_notes_reach_the_instance(tmp_path: Path) -> None:
    """What was left out of a price list is told beside what was left out of the trace."""
    trace = write_azure(tmp_path / "t.csv", hours=0.5)
    made = import_trace(trace, prices=write(tmp_path, SKYPILOT), models=["Llama-3.1-8B"], scale=20.0)
    assert {p.id for p in made.instance.pools} == {
        "h100-on-demand-us-east-1-x8",
        "h100-spot-us-east-1a-x8",
        "h100-spot-us-east-1b-x8",
        "a100-40gb-on-demand-us-east-1-x8",
    }
    assert any("a part of a GPU" in note for note in made.notes)


BROKEN_PRICES = {
    "empty": ("", "line 1", "empty"),
    "no rows": ("gpu,usd_per_gpu_h\n", "line 2", "no row"),
    "a misspelt column": ("gpu,usd_per_gpu_h,max_gpu\nH100,1,2\n", "line 1", "did you mean 'max_gpus'"),
    "a price of what": ("gpu,price\nH100,2\n", "line 1", "is 'price' of one GPU, or of a machine"),
    "another currency": ("gpu,usd_per_gpu_h\nH100,€2\n", "line 2", "usd_per_gpu_h: expected a number"),
    "a column of another currency": (
        "gpu,usd_per_gpu_h,currency\nH100,2,EUR\n",
        "line 2",
        "prices are in USD",
    ),
    "two readings": ('gpu,usd_per_gpu_h\nH100,"1,234"\n', "line 2", "may be 1.234 or 1234"),
    "the price of a node": (
        "gpu,usd_per_gpu_h\nH100,23.60\n",
        "line 2",
        "give usd_per_node_h and gpus_per_node",
    ),
    "two prices": ("gpu,usd_per_gpu_h,usd_per_node_h\nH100,2,16\n", "line 1", "two prices for one thing"),
    "two GPUs": (
        "gpu,instance_type,usd_per_node_h\nA10G,p5.48xlarge,16\n",
        "line 2",
        "has H100, and gpu is 'A10G'",
    ),
    "two sizes": ("gpu,usd_per_node_h,gpus_per_node\np5.48xlarge,16,4\n", "line 2", "has 8 GPUs, and 4"),
    "no price column": ("gpu,market\nH100,spot\n", "line 1", "no column 'usd_per_gpu_h'"),
    "an unknown GPU": (
        "gpu,usd_per_gpu_h\nL40S,1\nH10,2\n",
        "line 3",
        "TPU-v6e, V100; --gpu-file describes others",
    ),
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
    "a column twice": ("gpu,usd_per_gpu_h,usd_per_gpu_h\nH100,1,2\n", "line 1", "two columns hold"),
    "a word for a price": ("gpu,usd_per_gpu_h\nH100,cheap\n", "line 2", "got 'cheap'"),
    "NaN": ("gpu,usd_per_gpu_h\nH100,nan\n", "line 2", "got 'nan'"),
    "a negative cap": (
        "gpu,usd_per_gpu_h,max_gpus\nH100,1,-4\n",
        "line 2",
        "max_gpus: expected a whole number from 1",
    ),
    "an unknown market": ("gpu,usd_per_gpu_h,market\nH100,1,spott\n", "line 2", "did you mean 'spot'"),
    "a strange region": ("gpu,usd_per_gpu_h,region\nH100,1,../x\n", "line 2", "expected a region"),
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


def test_whole_numbers_as_tables_write_them(tmp_path: Path) -> None:
    """A column with an empty cell is written as 16.0 by many tools; a part of a GPU still is refused."""
    listed = read_prices(write(tmp_path, "gpu,usd_per_gpu_h,max_gpus\nH100,2.5,16.0\nL40S,1.2,\n"))
    assert [offer.max_gpus for offer in listed.offers] == [16, None]
    with pytest.raises(DataError, match=r"max_gpus: expected a whole number from 1"):
        read_prices(write(tmp_path, "gpu,usd_per_gpu_h,max_gpus\nH100,2.5,16.5\n"))


#: Line items of AWS's cost and usage report: kind, usage type, hours, cost, cost of a reservation, of a savings plan.
BILL = [
    ("Usage", "USE2-BoxUsage:p5.48xlarge", 10, 551.0, "", ""),
    ("Usage", "USE2-SpotUsage:g6e.xlarge", 4, 2.8, "", ""),
    ("DiscountedUsage", "USE2-BoxUsage:p4de.24xlarge", 24, 0.0, 400.0, ""),
    ("SavingsPlanCoveredUsage", "USE2-BoxUsage:p5en.48xlarge", 2, 126.0, "", 88.0),
    ("SavingsPlanNegation", "USE2-BoxUsage:p5en.48xlarge", 2, -126.0, "", ""),
    ("Usage", "USE2-EBS:VolumeUsage.gp3", 100, 8.0, "", ""),
    ("Tax", "", "", 31.0, "", ""),
]
CUR = {
    1: "lineItem/LineItemType,lineItem/UsageType,lineItem/UsageAmount,lineItem/UnblendedCost,reservation/EffectiveCost,"
    "savingsPlan/SavingsPlanEffectiveCost,product/regionCode,lineItem/UsageStartDate,pricing/LeaseContractLength",
    2: "line_item_line_item_type,line_item_usage_type,line_item_usage_amount,line_item_unblended_cost,"
    "reservation_effective_cost,savings_plan_savings_plan_effective_cost,product_region_code,"
    "line_item_usage_start_date,pricing_lease_contract_length",
}


@pytest.mark.parametrize("version", [1, 2])
def test_a_bill_of_aws_is_a_price_list(version: int, tmp_path: Path) -> None:
    """Hours of machines at what they were billed; everything else is left out, and told."""
    path = tmp_path / "cur.csv"
    rows = [",".join(map(str, (*item, "us-east-2", "2026-03-01T00:00:00Z", "1yr"))) for item in BILL]
    path.write_text("\n".join([CUR[version], *rows]) + "\n")
    found = read_prices(path)
    assert {
        (o.gpu, o.market, round(o.usd_per_gpu_h, 4), o.gpus_per_node, o.term_days) for o in found.offers
    } == {
        ("H100", "on-demand", 6.8875, 8, None),
        ("L40S", "spot", 0.7, 1, None),
        ("A100-80GB", "reserved", 2.0833, 8, 365),
        ("H200", "reserved", 5.5, 8, None),
    }
    assert {o.region for o in found.offers} == {"us-east-2"}
    assert any("3 rows left out because they are no hours of a machine" in note for note in found.notes)
