"""The first screen of a plan: what missed assumes, how busy GPUs are, what history is worth, what hours would save."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sample_traces import write_generic

import fleetgym
from fleetgym.agents.registry import make_planner
from fleetgym.capacity.choice import ALONE, BASE, MARGIN, SPOT, Limits, choose, spot_pools
from fleetgym.capacity.held import UNSERVED, HeldFleets
from fleetgym.capacity.queued import late_without_shedding
from fleetgym.capacity.risk import RISK_STREAM, generated_days, plan_with_risk
from fleetgym.capacity.schedule import make_schedule
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.traces.target import target_instance
from fleetgym.capacity.what_if import only
from fleetgym.cli.parser import main
from fleetgym.cli.plan_report import describe_plan, risky_facts
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance

YEAR = Offer(gpu="H100", usd_per_gpu_h=1.9, market="reserved", region="a", term_days=365, max_gpus=2)


def imported(folder: Path, *offers: Offer, **options: object) -> Instance:
    """Return an instance of an hour of requests."""
    asked = {"models": ["Llama-3.1-8B"], "by": "one", "slo": "ttft=2,delay=20", "scale": 60.0, "scenarios": 1}
    trace = write_generic(folder / "hour.csv", seed=3)
    return import_trace(trace, prices=offers, **{**asked, **options}).instance  # type: ignore[arg-type]


def screen(instance: Instance, folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what plan prints, in one line."""
    (folder / "day.json").write_text(json.dumps(instance.to_dict()))
    assert main(["plan", str(folder / "day.json"), "--days", "4", *words]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    return " ".join(out.split())


def test_the_screen_says_what_it_assumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missed, history, SLOs, penalties, load, and what is committed in all."""
    offers = (
        YEAR,
        Offer(gpu="H100", usd_per_gpu_h=2.0, market="reserved", region="b", term_days=30, max_gpus=2),
    )
    out = screen(imported(tmp_path, *offers), tmp_path, capsys)
    for part in (
        "a router turns away at once",
        "history: less than a day",
        "SLOs as given",
        "penalties of",
        "busy",
    ):
        assert part in out
    paid = {365: 1.9 * 24 * 365, 30: 2.0 * 24 * 30}
    assert "committed in total" not in out or f"{sum(paid.values()):,.0f}" in out
    assert f"{paid[365]:,.0f} in the 365 days" in out or f"{2 * paid[365]:,.0f} in the 365 days" in out


@pytest.mark.slow
def test_history_is_the_days_that_are_planned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last of the trace's days is stored, so that a plan can be judged on it, and is no history."""
    trace = write_generic(tmp_path / "days.csv", seed=3, hours=72.0, per_second=0.05)
    made = import_trace(
        trace, prices=[Offer(gpu="L40S", usd_per_gpu_h=1.2)], models=["Llama-3.1-8B"], by="one"
    )
    assert made.instance.stated is not None
    assert made.instance.stated.calendar is not None
    ends = made.instance.stated.calendar.days
    out = screen(made.instance, tmp_path, capsys)
    assert f"history: 2 days of {ends[0]} to {ends[-1]}: P95" in out
    assert "more than 2 days can tell" in out


@pytest.mark.slow
def test_a_day_with_spot_pools_may_cost_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is lost is not paid; the mean's error is told."""
    for market in ("spot", "on-demand"):
        out = screen(
            imported(tmp_path, Offer(gpu="L40S", usd_per_gpu_h=1.2, market=market)), tmp_path, capsys
        )
        assert ("a month (730 h) at most" in out) == (market == "spot")
        assert "the mean's standard error is" in out


@pytest.mark.slow
@pytest.mark.parametrize("saving", [0.05, 0.2])
def test_hours_are_proposed_if_they_save_much(
    saving: float, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a tenth of the same days' cost is told."""
    held: list[float] = []

    def cheaper(instance: Instance, planner: object, days: int, seed: int, progress: object) -> float:
        fleet = choose(instance, make_planner("agh"), seed=seed).best.fleet
        cost = HeldFleets(instance, [RISK_STREAM, seed]).days(fleet, days)[:, :8].sum(axis=1).mean()
        held.append(float(cost))
        return (1.0 - saving) * float(cost)

    monkeypatch.setattr("fleetgym.capacity.schedule.hourly_cost_usd", cheaper)
    out = screen(imported(tmp_path, Offer(gpu="L40S", usd_per_gpu_h=1.2)), tmp_path, capsys)
    assert held
    assert ("20 % less" in out) == (saving == 0.2)


@pytest.mark.slow
def test_kinds_are_refined_alike(tmp_path: Path) -> None:
    """No replica more or less makes the best plan of a kind cheaper on the days of the choice."""
    instance = imported(
        tmp_path, Offer(gpu="H100", usd_per_gpu_h=3.0), Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot")
    )
    found = choose(instance, make_planner("agh"))
    on_spot = instance.gpu_use[spot_pools(instance)].sum(axis=0) > 0
    held = HeldFleets(instance, [0x63686F73, 0])
    for tried in found.kinds:
        fleet = np.array(tried.fleet)
        assert not fleet[on_spot].any() or tried.kind != BASE
        assert not fleet[~on_spot].any() or tried.kind != SPOT
        for c in np.flatnonzero(fleet):
            for change in (-1, 1):
                other = fleet.copy()
                other[c] += change
                if other.any():
                    cost = held.days(other, 480)[:, :8].sum(axis=1).mean()
                    assert cost >= 0.98 * tried.cost_usd  # what seems worse is given up early


def test_a_queue_makes_more_late_than_is_turned_away(tmp_path: Path) -> None:
    """One workload: the same as a queue that is stepped second by second, and never less than what is unserved."""
    instance = imported(tmp_path, Offer(gpu="L40S", usd_per_gpu_h=1.2), scale=30.0)
    fleet = np.zeros(instance.num_configurations, dtype=int)
    fleet[int(np.argmin(instance.rental_usd_per_h.sum(axis=0)))] = 2
    days = HeldFleets(instance, [RISK_STREAM, 0]).days(fleet, 2)
    late = late_without_shedding(instance, fleet, days=2)
    assert late >= days[:, UNSERVED].mean() > 0.0

    model, waits, total = _capacity(instance, fleet), 0.0, 0.0
    for day in generated_days(instance, 2, 0):
        queue = 0.0
        for t, rate in enumerate(np.broadcast_to(day.rate_rps, (instance.num_windows, 1))[:, 0]):
            capacity = model(day, t)
            for _ in range(300):
                waits += rate * (queue > 2.0 * capacity)
                queue = max(0.0, queue + rate - capacity)
            total += 300.0 * rate
    assert late == pytest.approx(waits / total, abs=0.01)


def test_nobody_overtakes_in_a_queue(tmp_path: Path) -> None:
    """Workloads wait in one queue, whatever an unserved request of each costs."""
    instance = imported(tmp_path, Offer(gpu="L40S", usd_per_gpu_h=1.2), scale=30.0, by="length")
    fleet = np.zeros(instance.num_configurations, dtype=int)
    fleet[int(np.argmin(instance.rental_usd_per_h.sum(axis=0)))] = 2
    costs = (0.01, 0.1, 1.0)
    workloads = [
        dataclasses.replace(w, unserved_usd=usd, late_usd=0.001)
        for w, usd in zip(instance.workloads, costs, strict=True)
    ]
    late = late_without_shedding(instance, fleet, days=2)
    assert late > 0.0
    other = late_without_shedding(instance.replace(workloads=workloads), fleet, days=2)
    assert other == pytest.approx(late, rel=0.02)


WISH = ["--rate", "chat=3,code=1", "--input", "chat=600,*=900", "--output", "200"]
CANDIDATES = ["--models", "Llama-3.1-8B", "--gpus", "L40S"]


def test_a_target_rate_needs_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates and lengths are as stated, the day is flat unless a profile is named, and the screen says so."""
    asked = {"models": ["Llama-3.1-8B"], "gpus": ["L40S"], "scenarios": 0}
    rates = {"chat": 3.0, "code": 1.0}
    flat = target_instance(rates, {"chat": 600, "*": 900}, {"*": 200}, **asked)
    assert [w.id for w in flat.workloads] == ["chat", "code"]
    assert [w.rate_rps for w in flat.workloads] == pytest.approx([3.0, 1.0], rel=1e-3)
    assert [(w.input_tokens, w.output_tokens) for w in flat.workloads] == [(600.0, 200.0), (900.0, 200.0)]
    hours = flat.history.rate_rps.reshape(24, 12, 2).mean(axis=1).sum(axis=1)
    assert np.abs(hours / 4.0 - 1.0).max() < 0.06
    office = target_instance(rates, {"*": 600}, {"*": 200}, profile="office", **asked)
    hours = office.history.rate_rps.reshape(24, 12, 2).mean(axis=1).sum(axis=1)
    assert hours[12] > 7.0 > 0.5 > hours[0]
    assert main(["plan", *WISH, *CANDIDATES, "--days", "3"]) == 0
    assert "target rates, no trace: chat 3/s of 600 + 200 tokens" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "expected an instance, or a demand"),
        ([*WISH, "--gpus", "L40S"], "needs --models"),
        ([*WISH, "--models", "Llama-3.1-8B"], "needs --prices"),
        (["--rate", "3", "--input", "9", "--output", "9", *CANDIDATES], "a name for every workload"),
        (["--rate", "a=3", "--input", "b=9", "--output", "9", *CANDIDATES], "no rate is given of 'b'"),
        (["--rate", "a=3,b=1", "--input", "a=9", "--output", "9", *CANDIDATES], "tokens of 'b' are missing"),
        (["fleet-v0/toy/drop", "--slo", "tpot=30ms"], "import the trace again"),
        (["fleet-v0/toy/drop", "--rate", "a=1"], "import the trace again"),
        (["fleet-v0/toy/drop", "--miss-at-most", "1%,2%", "--schedule"], "leave one of them away"),
    ],
)
def test_what_is_missing_is_asked_for(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is guessed, and nothing given is without effect."""
    assert main(["plan", *words]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_curve_and_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer misses cost no less; what no plan keeps is said; a budget holds for the fleet that is bought."""
    instance = imported(
        tmp_path,
        Offer(gpu="H100", usd_per_gpu_h=3.0, max_gpus=8),
        Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot", max_gpus=8),
    )
    path = str(tmp_path / "day.json")
    (tmp_path / "day.json").write_text(json.dumps(instance.to_dict()))
    plan = ["plan", path, "--agent", "gh", "--days", "3"]
    assert main([*plan, "--miss-at-most", "0%,2%,30%", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["miss_at_most"]
    assert [row["miss_at_most"] for row in rows][-2:] == [0.02, 0.3]
    costs = [row["choice"]["best_of_kinds"] for row in rows]
    assert len(costs) >= 2
    assert rows[-2]["choice"]["miss_share"] <= 0.02
    assert main([*plan, "--miss-at-most", "2%,30%"]) == 0
    assert "at most" in capsys.readouterr().out
    assert main([*plan, "--budget", "5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert sum(pool["usd_per_h"] for pool in facts["gpus"].values()) <= 5.0 + 1e-9
    assert facts["fleet"]


def _capacity(instance: Instance, fleet: np.ndarray):  # type: ignore[no-untyped-def]
    """Return requests/s that a fleet serves of a window's mixture, from what it leaves unserved when flooded."""
    from fleetgym.model.conditions import Conditions
    from fleetgym.model.window import window_model

    model = window_model(instance)
    router = model.new_router()

    def capacity(day, t: int) -> float:  # type: ignore[no-untyped-def]
        flood = dataclasses.replace(Conditions.of(day, t), rate_rps=np.array([1000.0]))
        return float(1000.0 * (1.0 - model.operate(fleet, flood, router)[1][0])) / 0.95  # all of the replicas

    return capacity


@pytest.mark.parametrize("buckets", [2, 6])
def test_penalties_do_not_grow_with_the_number_of_workloads(tmp_path: Path, buckets: int) -> None:
    """What not serving all requests costs is the same however they are sorted, within what lengths change."""
    costs = []
    for count in (1, buckets):
        made = imported(tmp_path, Offer(gpu="H100", usd_per_gpu_h=3.0), by="length", buckets=count, scale=0.5)
        costs.append(sum(w.rate_rps * w.unserved_usd for w in made.workloads))
    assert costs[1] == pytest.approx(costs[0], rel=0.1)


def test_schedules_of_reserved_gpus_keep_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commitments are within caps, a limit costs no less margin, and one that nothing keeps is refused."""
    monkeypatch.setattr("fleetgym.capacity.risk.COMMITTED_SHARES", (0.5, 1.0))
    plan = ["plan", str(tmp_path / "day.json"), "--agent", "gh", "--days", "2", "--schedule", "--json"]
    instance = imported(tmp_path, YEAR, Offer(gpu="H100", usd_per_gpu_h=3.0, max_gpus=8))
    (tmp_path / "day.json").write_text(json.dumps(instance.to_dict()))
    margins = []
    for most in ([], ["--miss-at-most", "1%"]):
        assert main([*plan, *most]) == 0
        facts = json.loads(capsys.readouterr().out)
        margins.append(facts["margin"])
        assert all(pool["committed_gpus"] <= 2 for pool in facts["pools"].values())
    assert margins[1] >= margins[0]
    few = imported(tmp_path, dataclasses.replace(YEAR, max_gpus=1))
    (tmp_path / "day.json").write_text(json.dumps(few.to_dict()))
    assert main([*plan, "--miss-at-most", "0.1%"]) == 2
    assert "no hourly plan that was tried misses at most 0.1 %" in capsys.readouterr().err


def test_a_week_with_reserved_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The days of the history are played with what is committed, and no more of it."""
    monkeypatch.setattr("fleetgym.capacity.risk.COMMITTED_SHARES", (0.5,))
    monkeypatch.setattr("fleetgym.capacity.schedule.LIMITED_MARGINS", (0.3,))
    instance = load_instance("fleet-v0/dev/ou-s-001")
    pools = [dataclasses.replace(p, market="reserved") if g == 0 else p for g, p in enumerate(instance.pools)]
    made = make_schedule(instance.replace(pools=pools), "gh", days=0, week=True, miss_at_most=0.5)
    assert made.days == 7
    assert (made.gpus[:, 0] <= made.committed_gpus[0]).all()


def test_one_region_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each loss is planned for without its GPUs; the surviving fleet holds every row's plan."""
    task, out = "fleet-v0/toy/regions", tmp_path / "plans.json"
    assert main(["plan", task, "--without", "each-region", "--days", "2", "--out", str(out)]) == 0
    facts = json.loads(out.read_text())
    assert [row["without"] for row in facts["without"]] == ["east", "west"]
    for row in facts["without"]:
        assert not any(pool["held"] for name, pool in row["gpus"].items() if name.endswith(row["without"]))
        assert all(facts["surviving_fleet"][c] >= n for c, n in row["fleet"].items())
    assert "to survive any one loss, hold" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_survived_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loss that no plan covers within the limit is named, and no fleet is said to survive."""
    day, out = tmp_path / "day.json", tmp_path / "plans.json"
    data = fleetgym.load_instance("fleet-v0/toy/regions").to_dict()
    west = next(k for k, pool in enumerate(data["pools"]) if pool["region"] == "west")
    data["pools"][west]["cap_gpus"] = data["configurations"][west]["max_replicas"] = 8
    day.write_text(json.dumps(data))
    words = ["--without", "each-region", "--days", "2", "--growth", "5x", "--miss-at-most", "1%"]
    assert main(["plan", str(day), *words, "--out", str(out)]) == 0
    facts = json.loads(out.read_text())
    assert len(facts["without"]) == 1
    assert "surviving_fleet" not in facts
    told = " ".join(capsys.readouterr().out.split())
    assert "without west: " in told
    assert told.endswith("no fleet survives any one loss")


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The screen begins with what was lost."""
    assert main(["plan", "fleet-v0/toy/regions", "--without", "east", "--days", "2"]) == 0
    assert capsys.readouterr().out.startswith("without east\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fleet-v1/dev/multi-s-101", "--without", "regio"], "did you mean 'region-"),
        (["fleet-v1/dev/multi-s-101", "--without", "region-1,region-2"], "no GPU is left"),
        (["fleet-v0/toy/two-pools", "--without", "each-region"], "in one place only"),
        (
            ["fleet-v1/dev/multi-s-101", "--without", "each-pool", "--growth", "1x,2x"],
            "leave one of them away",
        ),
        (["fleet-v1/dev/multi-s-101", "--without", "each-pool", "--schedule"], "leave one of them away"),
    ],
)
def test_losses_that_cannot_be_planned(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused by name."""
    assert main(["plan", *words]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "columns", "rows"),
    [
        ([], ["pool", "gpu_type", "market", "gpus", "usd_per_h"], 2),
        (["--schedule"], ["hour", "rate_rps"], 1),
        (["--growth", "1x,2x"], ["growth"], 2),
    ],
)
def test_a_plan_for_a_spreadsheet(tmp_path: Path, words: list[str], columns: list[str], rows: int) -> None:
    """Names that end in .csv get a table with the numbers of the JSON."""
    path, same = tmp_path / "plan.csv", tmp_path / "plan.json"
    for out in (path, same):
        assert main(["plan", "fleet-v0/toy/two-pools", "--days", "2", *words, "--out", str(out)]) == 0
    table = pd.read_csv(path)
    assert list(table.columns[: len(columns)]) == columns
    assert len(table) >= rows
    facts = json.loads(same.read_text())
    if not words:
        held = {name: pool["held"] for name, pool in facts["gpus"].items()}
        assert dict(zip(table["pool"], table["gpus"], strict=True)) == held


def test_no_kind_contradicts_the_headline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that is of one GPU type is not beside a dearer `one GPU type alone`; other GPUs have their question."""
    offers = (Offer(gpu="L40S", usd_per_gpu_h=1.2), Offer(gpu="H100", usd_per_gpu_h=3.0))
    out = screen(imported(tmp_path, *offers, scale=1.0), tmp_path, capsys)
    assert "1 L40S: rent 1.20 USD/h" in out
    assert "one GPU type alone" not in out
    assert out.endswith("--why-not each-gpu: other GPUs")


def test_a_term_that_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For how long a commitment is paid, or that nobody said it."""
    out = screen(imported(tmp_path, dataclasses.replace(YEAR, term_days=None)), tmp_path, capsys)
    assert "used or not; no term was given" in out


def test_idle_replicas_say_what_they_are_for(tmp_path: Path) -> None:
    """0 % at nominal demand is a reserve."""
    instance = imported(tmp_path, Offer(gpu="H100", usd_per_gpu_h=3.0))
    found = plan_with_risk(instance, "agh", days=0)
    facts = risky_facts(instance, found, "agh")
    assert "idle" not in describe_plan(instance, facts)
    idle = {**facts, "busy": dict.fromkeys(facts["busy"], 0.001)}
    assert "#1: idle at nominal demand; needed where" in describe_plan(instance, idle)


@pytest.mark.slow
def test_one_type_alone_is_the_best_of_all_types(tmp_path: Path) -> None:
    """The row of the table is what `--why-not` finds, though mixed planning has found that fleet before."""
    offers = (Offer(gpu="H100", usd_per_gpu_h=6.88), Offer(gpu="H200", usd_per_gpu_h=7.912))
    options = {"models": ["Llama-3.1-70B"], "slo": "ttft=2,tpot=60ms", "scale": 11.0}
    instance, planner = imported(tmp_path, *offers, **options), make_planner("agh")
    limits = Limits(miss_at_most=0.01)
    alone = [choose(only(instance, gpu), planner, limits=limits).best for gpu in ("H100", "H200")]
    kinds = {tried.kind: tried for tried in choose(instance, planner, limits=limits).kinds}
    assert list(kinds) == [MARGIN, ALONE]
    assert kinds[ALONE].cost_usd == min(tried.cost_usd for tried in alone)
    assert kinds[MARGIN].cost_usd < kinds[ALONE].cost_usd
