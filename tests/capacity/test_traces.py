"""From traces to instances: workloads, fits, prices, SLOs, history and scenarios, and the command that does it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import SHARED
from sample_traces import HEADER, requests, stamp, write_azure, write_generic

import fleetgym
from fleetgym.agents.registry import make_planner
from fleetgym.agents.view import View
from fleetgym.capacity.risk import generated_days
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.calendar import lay_calendar
from fleetgym.capacity.traces.labels import bind
from fleetgym.capacity.traces.objectives import Slo, slos_for
from fleetgym.capacity.traces.prices import Offer, catalogue_prices, parse_caps, with_caps
from fleetgym.capacity.traces.process import fit_process, typical
from fleetgym.capacity.traces.reader import read_trace
from fleetgym.capacity.traces.workloads import BINS, TraceStatistics, study
from fleetgym.cli.parser import main
from fleetgym.cli.trace_report import describe_trace, trace_facts
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.hardware.performance.held import held_tokens
from fleetgym.model.dynamics.demand import DiurnalOU, draw_counts
from fleetgym.model.lengths import LengthLaw

SMALL = {"models": ["Llama-3.1-8B"], "gpus": ["L40S", "H100"]}


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an hour of requests in Azure's layout."""
    return write_azure(tmp_path_factory.mktemp("traces") / "hour.csv")


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three and a half days of requests, beginning at 18:23:43."""
    return write_azure(tmp_path_factory.mktemp("traces") / "days.csv", hours=84.0, per_second=0.3)


# -- workloads


def test_length_buckets(hour: Path) -> None:
    """Three buckets hold a third of the requests each, and the means are those of the file."""
    _, inputs, outputs = requests(1, 1.0)
    with read_trace(hour) as trace:
        found = study(trace)
        assert found.names == ("short", "medium", "long")
        shares = found.counts.sum(axis=0) / found.counts.sum()
        np.testing.assert_allclose(shares, 1 / 3, atol=0.01)
        one = study(trace, by="one")
        expected = [
            inputs.mean(),
            outputs.mean(),
            inputs.var() / inputs.mean() ** 2,
            outputs.var() / outputs.mean() ** 2,
        ]
        np.testing.assert_allclose(one.lengths[0], expected, rtol=1e-9)
        assert one.correlation[0] == pytest.approx(np.corrcoef(inputs, outputs)[0, 1])
        assert one.held.longest[0] == (inputs + outputs).max()
        assert one.held.whole[0] == pytest.approx((inputs + outputs).mean())
        assert study(trace, by="length", edges=[500]).names == ("short", "long")
        law = one.input_laws[0]
        for share, factor in zip(law.shares[1:-1], law.factors[1:-1], strict=True):
            assert factor == pytest.approx(np.quantile(inputs, share) / inputs.mean(), rel=0.04)
        five = study(
            trace, by="length", edges=[1, 300, 600, 900, 1200, 10**6]
        )  # no request has 1 token, or 10^6
        assert five.names == ("up-to-300", "up-to-600", "up-to-900", "up-to-1200", "over-1200")
        assert five.lengths[0, 0] == pytest.approx(inputs[inputs + outputs <= 300].mean())


def test_labels(tmp_path: Path) -> None:
    """A label makes a workload, a rare one joins the others, and a model's name binds."""
    rows = [f"{k},{100 + k % 7},{20 + k % 3},{'chat' if k % 3 else 'org/Llama-3.1-8B'}" for k in range(3000)]
    rows[5] = "5,1,1,seldom"
    rows[6] = "6,1,1,never"
    (tmp_path / "t.csv").write_text("time,input_tokens,output_tokens,model\n" + "\n".join(rows))
    with read_trace(tmp_path / "t.csv") as trace:
        found = study(trace)
    assert found.names == ("chat", "org-Llama-3.1-8B", "other")
    made = import_trace(tmp_path / "t.csv", gpus=["H100"], models=["Llama-3.1-8B", "Llama-3.2-3B"])
    models = [c.model for c in made.instance.configurations]
    compatible = made.instance.performance.compatible
    assert {m for m, ok in zip(models, compatible[1], strict=True) if ok} == {"Llama-3.1-8B"}
    assert {m for m, ok in zip(models, compatible[0], strict=True) if ok} == {"Llama-3.1-8B", "Llama-3.2-3B"}
    facts = trace_facts(made, ("a", "b"))
    assert [w["bound_to"] for w in facts["workloads"].values()] == [None, "Llama-3.1-8B", None]
    assert "org-Llama-3.1-8B is served by Llama-3.1-8B alone" in describe_trace(made, ("a", "b"))


def test_a_label_that_is_called_other(tmp_path: Path) -> None:
    """It keeps its name, and rare labels together get another, which the rule tells; capitals do not unbind a model."""
    rows = [f"{k},100,20,{'other' if k % 3 else 'org/LLAMA-3.1-8b'}" for k in range(3000)]
    rows[5], rows[6] = "5,1,1,seldom", "6,1,1,never"
    (tmp_path / "t.csv").write_text("time,input_tokens,output_tokens,model\n" + "\n".join(rows))
    with read_trace(tmp_path / "t.csv") as trace:
        found = study(trace, bound=bind(trace.pairs, trace.label_counts()))
    assert found.names == ("other", "org-LLAMA-3.1-8b", "other-2")
    assert "together are 'other-2'" in found.rule
    assert found.counts.sum(axis=0).astype(int).tolist()[2] == 2
    assert found.models == (None, "Llama-3.1-8B", None)


def test_requests_that_no_candidate_can_hold(tmp_path: Path) -> None:
    """They are left out of rates and lengths, counted and told; where all are too long, that is the error."""
    rows = [f"{k},100,20" for k in range(1200)]
    rows[600] = "600,9000000,20"
    (tmp_path / "t.csv").write_text("time,input_tokens,output_tokens\n" + "\n".join(rows))
    with pytest.raises(DataError, match="0.1% of the requests, with 98.4% of all tokens"):
        import_trace(tmp_path / "t.csv", by="one", **SMALL)
    made = import_trace(tmp_path / "t.csv", by="one", leave_out_at_most=1.0, **SMALL)
    assert made.instance.workloads[0].input_tokens == 100.0
    assert (made.statistics.requests, made.statistics.too_long) == (1199, 1)
    assert any("left out because they have more tokens" in note for note in made.notes)
    assert trace_facts(made, ("a", "b"))["requests_too_long"] == 1
    (tmp_path / "t.csv").write_text(
        "time,input_tokens,output_tokens\n" + "\n".join(f"{k},200000,20" for k in range(1200))
    )
    with pytest.raises(DataError, match="every request has more tokens than the 131,072"):
        import_trace(tmp_path / "t.csv", **SMALL)


def test_burstiness() -> None:
    """Poisson arrivals have a ratio of 1 on both scales; batches of four have 4."""
    from fleetgym.capacity.traces.reader import ROW, Trace

    rng = np.random.default_rng(1)
    times = np.sort(rng.uniform(0.0, 6 * 3600.0, 40_000))
    for batch in (1, 4):
        rows = np.zeros(len(times) * batch, dtype=ROW)
        rows["time_ns"] = (np.repeat(times, batch) * 1e9).astype(np.int64)
        rows["input"], rows["output"] = 100, 10
        with Trace() as trace:
            trace.append(rows)
            found = study(trace, by="one")
        assert found.arrival_cv2[0] == pytest.approx(batch, rel=0.1)
        assert found.dispersion[0] == pytest.approx(batch, rel=0.3)


@pytest.mark.parametrize(
    ("first", "last", "windows"),
    [(0, 86_400, 288), (2, 86_398, 288), (299, 86_399, 287), (66_223, 66_223 + 3600, 12), (0, 650, 2)],
)
def test_whole_windows(first: float, last: float, windows: int, tmp_path: Path) -> None:
    """A window whose end only lacks a usual gap is whole; a day of requests is a day."""
    times = np.linspace(first, last, 5000)
    (tmp_path / "t.csv").write_text(
        "time,input_tokens,output_tokens\n" + "\n".join(f"{t:.3f},5,5" for t in times)
    )
    with read_trace(tmp_path / "t.csv") as trace:
        assert study(trace).num_windows == windows


def hourly(*days: dict[int, int]) -> np.ndarray:
    """Return requests per window of days whose hours have 60 requests, or what is given."""
    return np.concatenate(
        [np.repeat([day.get(h, 60 if day is not EMPTY else 0) / 12 for h in range(24)], 12) for day in days]
    )


EMPTY: dict[int, int] = {}
NIGHT = dict.fromkeys(range(2, 8), 0)


@pytest.mark.parametrize(
    ("days", "left", "says"),
    [
        ([{0: 60}] * 3, 3, ()),
        (
            [{0: 60}, EMPTY, EMPTY, {0: 60}, EMPTY, {0: 60}],
            3,
            ("3 calendar days without any request left out, .*: 2023-11-17 to 2023-11-18, 2023-11-20",),
        ),
        ([NIGHT, NIGHT, {0: 60}], 3, ("between 02:00 and 08:00 on 2 of 3 days: counted as no demand",)),
        ([NIGHT], 1, ("between 02:00 and 08:00 on 1 of 1 days",)),
        ([NIGHT, {0: 60}, {0: 60}], 3, ("no requests in 6 h of 2023-11-16, while other days",)),
        ([dict.fromkeys(range(24), 2) | NIGHT] * 3, 3, ()),  # so few that a hole may be chance
    ],
)
def test_holes(days: list[dict[int, int]], left: int, says: tuple[str, ...]) -> None:
    """Whole days without a request are missing, and left out; hours are quiet, and told."""
    midnight = 1_700_092_800 * 10**9
    calendar = lay_calendar(midnight, 0, hourly(*days))
    assert len(calendar.dates) == left
    assert calendar.is_there.sum() == 288 * left
    assert len(calendar.notes) == len(says)
    for note, pattern in zip(calendar.notes, says, strict=True):
        assert re.search(pattern, note)
    assert lay_calendar(None, 0, hourly({0: 60}, EMPTY, {0: 60})).dates == ("day 1", "day 3")


def write_hours(path: Path, *days: dict[int, int]) -> Path:
    """Write a trace with these requests in each hour."""
    counts = hourly(*days)
    seconds = np.concatenate(  # not as regular as the totals of minutes
        [
            300 * k + 300 * np.arange(int(n)) / int(n) + np.arange(int(n)) % 2
            for k, n in enumerate(counts)
            if n
        ]
    )
    (path / "t.csv").write_text(
        f"{HEADER}\n" + "\n".join(f"{stamp(s)},{100 + int(s) % 50},20" for s in seconds) + "\n"
    )
    return path / "t.csv"


def test_missing_days_do_not_lower_the_rate(tmp_path: Path) -> None:
    """Two days with nothing recorded in between leave rate and history as they are, and the stored day full."""
    made = import_trace(write_hours(tmp_path, {0: 60}, {0: 60}, EMPTY, EMPTY, {0: 60}), by="one", **SMALL)
    assert made.instance.workloads[0].rate_rps == pytest.approx(60 / 3600, rel=1e-4)
    assert made.instance.history.rate_rps.shape == (2 * 288, 1)
    assert made.scenarios[0].rate_rps.min() == pytest.approx(60 / 3600, rel=1e-4)
    assert "3 whole calendar days, 2023-11-16 to 2023-11-20" in made.days.extension
    assert "2 calendar days without any request" in made.notes[0]


def test_seconds_that_look_like_milliseconds(tmp_path: Path) -> None:
    """A request a second, written in milliseconds: seldom, and whole."""
    rows = [f"{1000 * k},100,20" for k in range(1200)]
    (tmp_path / "t.csv").write_text("time,input_tokens,output_tokens\n" + "\n".join(rows))
    with pytest.raises(DataError, match="say which with --time-unit s or --time-unit ms"):
        import_trace(tmp_path / "t.csv", **SMALL)
    assert import_trace(tmp_path / "t.csv", time_unit="ms", **SMALL).statistics.num_windows == 4


WRONG_TRACES = {
    "a minute": ("\n".join(f"{k},5,5" for k in range(60)), "at least 2 whole windows"),
    "years": ("0,5,5\n99999999,5,5", "at most 93 are read"),
    "no tokens": ("\n".join(f"{k},0,5" for k in range(0, 2000, 5)), "no input tokens at all"),
}


@pytest.mark.parametrize("name", WRONG_TRACES)
def test_traces_that_tell_too_little(name: str, tmp_path: Path) -> None:
    """Well-formed, but no demand can be read off: the file is named."""
    rows, says = WRONG_TRACES[name]
    (tmp_path / "t.csv").write_text(f"time,input_tokens,output_tokens\n{rows}\n")
    with pytest.raises(DataError, match=says) as caught:
        import_trace(tmp_path / "t.csv")
    assert caught.value.source == str(tmp_path / "t.csv")


# -- the process


def statistics(counts: np.ndarray, dispersion: np.ndarray) -> TraceStatistics:
    """Return statistics with given counts per window."""
    windows, workloads = counts.shape
    bins = np.zeros((windows * BINS, workloads))
    bins[::BINS] = counts
    return TraceStatistics(
        names=tuple(f"w{i}" for i in range(workloads)),
        rule="",
        models=(None,) * workloads,
        requests=int(counts.sum()),
        too_long=0,
        span_s=300.0 * windows,
        first_window=0,
        is_clock=True,
        dates=tuple(f"day {k + 1}" for k in range(-(-windows // 288))),
        notes=(),
        bins=bins,
        input_mean=np.full(counts.shape, 100.0),
        output_mean=np.full(counts.shape, 100.0),
        lengths=np.tile([100.0, 100.0, 1.0, 1.0], (workloads, 1)),
        correlation=np.zeros(workloads),
        computed=np.tile([100.0, 1.0, 0.0], (workloads, 1)),
        total_quantiles=((200, 1.0),),
        output_values=np.array([100.0]),
        output_shares=np.ones((workloads, 1)),
        input_laws=(LengthLaw.lognormal(0.0),) * workloads,
        prefix_hits_from=None,
        held=held_tokens(np.full(1, 100.0), np.full(1, 100.0)),
        arrival_cv2=np.ones(workloads),
        dispersion=dispersion,
    )


def process(count: int = 2, **changes: float) -> DiurnalOU:
    """Return a demand process."""
    values = {
        "daily_amplitude": 0.3,
        "daily_peak_h": 15.0,
        "ou_sd": 0.35,
        "ou_time_min": 150.0,
        "noise_sd": 0.08,
        "jumps_per_day": 0.0,
        "jump_log_mean": 0.5,
        "jump_hold_min": 45.0,
        **changes,
    }
    return DiurnalOU(ou_common=0.6, **{name: np.full(count, value) for name, value in values.items()})


def test_the_fit_finds_what_made_the_data() -> None:
    """From 60 days: daily term, swings, noise and common share come back."""
    rng, truth, dispersion = np.random.default_rng(4), process(), np.array([1.5, 5.0])
    counts = draw_counts(rng, 1000.0 * np.exp(truth.log_level(rng, 60 * 288, 300.0)), dispersion)
    found = fit_process(statistics(counts, dispersion))
    np.testing.assert_allclose(found.ou.daily_amplitude, 0.3, atol=0.06)
    np.testing.assert_allclose(found.ou.daily_peak_h, 15.0, atol=1.0)
    np.testing.assert_allclose(found.ou.ou_sd, 0.35, rtol=0.12)
    np.testing.assert_allclose(found.ou.ou_time_min, 150.0, rtol=0.35)
    np.testing.assert_allclose(found.ou.noise_sd, 0.08, atol=0.03)
    assert found.process["parameters"]["ou_common"] == pytest.approx(0.6, abs=0.12)
    assert not found.assumed


@pytest.mark.parametrize("num_days", [3, 21])
@pytest.mark.parametrize("jumps", [0.0, 6.0])
def test_generated_days_vary_like_the_trace(num_days: int, jumps: float) -> None:
    """The spread of log demand, at a window and over windows, is the trace's within a fifth."""
    rng, dispersion = np.random.default_rng(9), np.full(2, 3.0)
    truth = process(jumps_per_day=jumps, ou_sd=0.25)
    log = np.log(
        draw_counts(rng, 2000.0 * np.exp(truth.log_level(rng, num_days * 288, 300.0)), dispersion) + 0.5
    )
    fit = fit_process(statistics(np.exp(log) - 0.5, dispersion))
    drawn = np.log(
        draw_counts(rng, 2000.0 * np.exp(fit.ou.log_level(rng, 200 * 288, 300.0)), dispersion) + 0.5
    )
    np.testing.assert_allclose(drawn.std(axis=0), log.std(axis=0), rtol=0.25)
    np.testing.assert_allclose(np.diff(drawn, axis=0).std(axis=0), np.diff(log, axis=0).std(axis=0), rtol=0.3)


def test_demand_that_stops_at_night_is_drawn_again(tmp_path: Path) -> None:
    """No process of swings follows it: generated days are the trace's, and no busier than they are."""
    office = {h: 600 if 8 <= h < 20 else 0 for h in range(24)}
    made = import_trace(write_hours(tmp_path, office, office | {12: 480}, office), by="one", **SMALL)
    assert made.instance.dynamics.demand.kind == "resampled-history"
    assert any("the demand of all swings more than the process" in note for note in made.notes)
    assert "days of the history" in made.days.fitted
    assert len(made.days.assumed) == 1
    drawn = np.array([s.rate_rps for s in generated_days(made.instance, 10, 0)])
    assert np.quantile(drawn, 0.99) < 2.0 * np.quantile(made.instance.history.rate_rps, 0.99)
    assert drawn.mean() == pytest.approx(made.instance.workloads[0].rate_rps, rel=0.15)


def test_a_short_trace_assumes_and_says_so(hour: Path) -> None:
    """An hour tells level and noise; the rest is typical, and named."""
    made = import_trace(hour, **SMALL)
    assert set(made.days.assumed) >= {"daily term", "jumps", "swings"}
    assert "less than a day" in made.days.extension
    assert "assumed" in made.instance.provenance["demand"]
    parameters = made.instance.dynamics.demand.parameters
    for name in ("ou_sd", "daily_amplitude", "jumps_per_day"):
        np.testing.assert_allclose(parameters[name], typical()[name], rtol=1e-5)
    assert made.instance.history.rate_rps.shape == (7 * 288, 3)
    with read_trace(hour) as trace:
        rate = study(trace).counts.mean(axis=0) / 300.0
    np.testing.assert_allclose([w.rate_rps for w in made.instance.workloads], rate, rtol=0.02)


# -- instances


def test_real_days(days: Path) -> None:
    """Of three calendar days the last is stored, window by window, and the others are the history."""
    made = import_trace(days, by="one", **SMALL)
    seconds = 66_223.0 + requests(1, 84.0, per_second=0.3)[0]
    assert made.scenarios[0].id == "trace-day"
    # Windows begin with the trace, at 18:23:40: 3 minutes 40 after the round five minutes.
    at = np.bincount(((seconds - 220) // 300).astype(int), minlength=4 * 288)
    np.testing.assert_allclose(made.scenarios[0].rate_rps[:, 0] * 300.0, at[3 * 288 : 4 * 288], atol=0.01)
    np.testing.assert_allclose(made.instance.history.rate_rps[:, 0] * 300.0, at[288 : 3 * 288], atol=0.01)
    assert made.instance.dynamics.demand.kind == "diurnal-ou"
    assert made.scenarios[0].input_scale.std() > 0.0
    assert "3 whole calendar days, 2023-11-17 to 2023-11-19" in made.days.extension
    assert "; 12 hours of the trace are in neither" in made.days.extension
    with pytest.raises(FleetgymError, match=r"shorter than a day, and this one has 3\.5 days"):
        import_trace(days, by="one", extend="stretch", **SMALL)


def test_one_day_is_turned_to_midnight(tmp_path: Path) -> None:
    """A day from 18:23 to 18:23 begins at midnight in the history and in the stored day."""
    path = write_azure(tmp_path / "day.csv", hours=24.1, per_second=0.2)
    made = import_trace(path, by="one", **SMALL)
    times = requests(1, 24.1, per_second=0.2)[0]
    at = np.bincount(((66_223.0 + times - 220) // 300).astype(int), minlength=600)
    noon = made.scenarios[0].rate_rps[144, 0] * 300.0
    assert noon == pytest.approx(at[288 + 144], abs=0.01)
    np.testing.assert_allclose(made.scenarios[0].rate_rps, made.instance.history.rate_rps)
    assert "turned" in made.days.extension


def test_stretching(hour: Path) -> None:
    """The course of the hour becomes that of the day, at the hour's level."""
    made = import_trace(hour, extend="stretch", by="one", **SMALL)
    assert made.scenarios[0].id == "trace-stretched"
    assert made.instance.dynamics.demand.kind == "resampled-history"
    assert made.scenarios[0].rate_rps.mean() == pytest.approx(made.instance.workloads[0].rate_rps, rel=0.01)


def test_scale_multiplies_demand(hour: Path) -> None:
    """Ten times the demand, the same requests."""
    one, ten = import_trace(hour, **SMALL), import_trace(hour, scale=10.0, **SMALL)
    for a, b in zip(one.instance.workloads, ten.instance.workloads, strict=True):
        assert b.rate_rps == pytest.approx(10.0 * a.rate_rps, rel=0.02)
        assert b.input_tokens == a.input_tokens
    assert sum(p.cap_gpus for p in ten.instance.pools) > sum(p.cap_gpus for p in one.instance.pools)


def test_more_than_any_fleet_serves(hour: Path) -> None:
    """The error names what would help."""
    with pytest.raises(
        FleetgymError, match=r"are more than 10000 replicas .* lower --scale, or give other --models"
    ):
        import_trace(hour, scale=1e6, **{**SMALL, "models": ["Llama-3.1-70B"]})


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf, 1e7])
def test_limit_of_what_a_trace_unpacks_to(limit: float, hour: Path) -> None:
    """It has bounds as every number has."""
    with pytest.raises(DataError, match="unpack_gib: expected a number from 0.001 to 1e6 GB"):
        import_trace(hour, unpack_gib=limit, **SMALL)


def test_default_caps_grow_with_demand(hour: Path) -> None:
    """However much there is to serve, a pool holds twice what it needs alone."""
    options = {"models": ["Llama-3.1-8B"], "gpus": ["L40S"], "scenarios": 1}
    caps = {s: import_trace(hour, scale=s, **options).instance.pools[0].cap_gpus for s in (10, 40, 160, 320)}
    for scale, cap in caps.items():
        assert cap == pytest.approx(scale * caps[320] / 320, abs=1.0)


@pytest.mark.parametrize("scale", [0.001, 0.1, 10.0])
def test_serving_nobody_is_never_cheapest(scale: float, hour: Path) -> None:
    """Requests that need a hundredth of a GPU cost its whole rent to serve, and ten times that if nobody does."""
    instance = import_trace(hour, scale=scale, **SMALL).instance
    cheapest = instance.rental_usd_per_h.sum(axis=0).min()
    nobody = 3600.0 * sum(w.rate_rps * w.unserved_usd for w in instance.workloads)
    assert nobody >= 9.9 * cheapest  # workloads may share different replicas
    fleet = make_planner("agh").plan(View(instance).snapshot()).fleet
    assert fleet.sum() >= 1


def test_free_gpus_need_penalties(hour: Path, tmp_path: Path) -> None:
    """A price of 0 is accepted where nothing is a multiple of it, or something else has a price."""
    (tmp_path / "p.csv").write_text("gpu,usd_per_gpu_h,max_gpus\nL40S,0,8\n")
    options = {"prices": tmp_path / "p.csv", "models": ["Llama-3.1-8B"]}
    with pytest.raises(FleetgymError, match="price 0: give unserved_usd"):
        import_trace(hour, **options)
    made = import_trace(hour, slo="unserved_usd=0.01", **options)
    assert made.instance.pools[0].price_usd_per_gpu_h == 0.0
    h100 = penalties_of(hour, [Offer(gpu="H100", usd_per_gpu_h=3.0)])
    assert (
        penalties_of(hour, [Offer(gpu="L40S", usd_per_gpu_h=0.0), Offer(gpu="H100", usd_per_gpu_h=3.0)])
        == h100
    )
    assert not [note for note in made.notes if "p99" in note]


def penalties_of(hour: Path, offers: list[Offer], **options: Any) -> list[float]:
    """Return what an unserved request of each workload costs by default."""
    options = {"models": ["Llama-3.1-8B", "Qwen3-32B"], "slo": "delay=20,ttft=4", "scenarios": 1} | options
    return [w.unserved_usd for w in import_trace(hour, prices=offers, **options).instance.workloads]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_default_penalty_knows_the_cheapest_on_demand_way_alone(hour: Path, seed: int) -> None:
    """Spot rows, equal GPUs at a higher price, and other GPUs that are far dearer never change it."""
    rng = np.random.default_rng(seed)
    gpus = rng.permutation(["H100", "H200", "A100-80GB", "L40S", "B200"])[: rng.integers(1, 4)]
    offers = [Offer(gpu=str(g), usd_per_gpu_h=float(rng.uniform(1.0, 5.0))) for g in gpus]
    options = {
        "scale": float(rng.choice([1.0, 30.0])),
        "models": ["Llama-3.1-8B", "Qwen3-32B"][: seed % 2 + 1],
    }
    found = penalties_of(hour, offers, **options)
    twin = [dataclasses.replace(o, usd_per_gpu_h=1.2 * o.usd_per_gpu_h, region="far") for o in offers]
    spot = [dataclasses.replace(o, usd_per_gpu_h=0.3 * o.usd_per_gpu_h, market="spot") for o in offers]
    for more in (spot, twin, spot + twin, [Offer(gpu="H200", usd_per_gpu_h=500.0, region="moon")]):
        assert penalties_of(hour, offers + more, **options) == found
    default = penalties_of(hour, offers, slo=None, **options)
    for more in (spot, twin):  # the default bound on the delay stays, too
        assert penalties_of(hour, offers + more, slo=None, **options) == default


def test_a_default_penalty_without_on_demand_offers(hour: Path) -> None:
    """It is a multiple of the cheapest way at any price, and the provenance says so."""
    offers = [Offer(gpu="H100", usd_per_gpu_h=p, market=m) for p, m in ((1.0, "spot"), (2.0, "reserved"))]
    options = {"models": ["Llama-3.1-8B"], "slo": "delay=20,ttft=4", "scenarios": 1}
    made = import_trace(hour, prices=offers, **options)
    assert "at any price listed above 0" in made.instance.provenance["penalties"]
    cheapest = penalties_of(hour, [Offer(gpu="H100", usd_per_gpu_h=1.0)], models=["Llama-3.1-8B"])
    assert [w.unserved_usd for w in made.instance.workloads] == cheapest


def test_one_configuration_gets_no_artificial_penalty(hour: Path) -> None:
    """With one pool as with two equal ones: ten times the rent of what a request takes, or of one replica."""
    options = {"models": ["Llama-3.1-70B"], "by": "one", "slo": "delay=60,ttft=8,error=0.1"}
    (one,) = penalties_of(hour, [Offer(gpu="H200", usd_per_gpu_h=3.5)], **options)
    assert 1e-4 < one < 1.0
    two = [Offer(gpu="H200", usd_per_gpu_h=3.5, region=r) for r in ("a", "b")]
    assert penalties_of(hour, two, **options) == [one]


def test_power_is_paid_with_the_rent(hour: Path) -> None:
    """GPUs of one's own cost power and cooling while they are held."""
    offer = Offer(gpu="H100", usd_per_gpu_h=0.0, market="reserved", power_usd_per_gpu_h=0.15)
    made = import_trace(hour, prices=[offer], models=["Llama-3.1-8B"], scenarios=1)
    assert made.instance.pools[0].price_usd_per_gpu_h == 0.15


def test_penalty_is_a_multiple_of_the_rent(hour: Path) -> None:
    """The fleet that serves the nominal demand costs about 1/P of leaving all of it unserved."""
    made = import_trace(hour, scale=200.0, penalty=20.0, **SMALL)
    instance = made.instance
    rent = float((instance.rental_usd_per_h @ instance.nominal_fleet).sum()) / 3600.0
    unserved = sum(w.rate_rps * w.unserved_usd for w in instance.workloads)
    assert 18.0 < unserved / rent < 26.0  # together, workloads share what each alone would leave idle
    assert all(w.late_usd == pytest.approx(w.unserved_usd / 3.0, rel=1e-4) for w in instance.workloads)


def test_same_trace_same_bytes(hour: Path, tmp_path: Path) -> None:
    """Two runs write equal files; another seed does not."""
    names = []
    for k, seed in enumerate((0, 0, 1)):
        files = import_trace(hour, seed=seed, name="x", **SMALL).write(tmp_path / str(k) / "x.json")
        names.append([file.read_bytes() for file in files])
    assert names[0] == names[1]
    assert names[0] != names[2]


def test_every_verb_accepts_what_was_written(
    hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """import-trace, show, plan, run, evaluate and compare, one after the other."""
    monkeypatch.chdir(tmp_path)
    words = ["--models", "Llama-3.1-8B", "--gpus", "L40S,H100", "--slo", "ttft=2,delay=20,error=0.05"]
    assert main(["import-trace", str(hour), *words]) == 0
    out = capsys.readouterr().out
    assert out.endswith("next: fleetgym plan hour.json --agent milp\n")
    words += ["--json", "--force"]
    assert main(["import-trace", str(hour), *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {w["delay_slo_s"] for w in facts["workloads"].values()} == {20.0}
    assert all(w["late_usd"] < w["unserved_usd"] for w in facts["workloads"].values())
    assert [p["gpu"] for p in facts["pools"].values()] == ["L40S", "H100"]
    assert facts["context_limit"] >= 2048
    assert len(facts["candidates"]) > 4
    for part in ("whole windows", "arrival cv2", "fitted", "assumed", "candidates"):
        assert part in out
    assert main(["show", "hour.json"]) == 0
    assert "drawn-1" in capsys.readouterr().out
    assert main(["plan", "hour.json", "--agent", "gh", "--days", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fleet"]
    assert 0.0 < facts["bound"] <= facts["cost"]
    assert facts["cost"] == pytest.approx(facts["costs_usd"]["cost"])
    assert facts["risk"]["days"] == 3
    assert main(["run", "hour.json", "--agent", "gh", "--render", "none"]) == 0
    assert main(["compare", "gh", "hold", "--suite", "hour.json", "--relative-to", "best-in-run"]) == 0
    assert fleetgym.load_instance("hour.json").id == "hour"
    assert [s.id for s in fleetgym.load_scenarios("hour.json")] == ["drawn-0", "drawn-1"]


def test_files_are_not_overwritten(hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either file in the way stops the command before any work; --force replaces both."""
    monkeypatch.chdir(tmp_path)
    words = ["import-trace", str(hour), "--gpus", "H100", "--models", "Llama-3.1-8B", "--out", "x.json"]
    (tmp_path / "x.scenarios.json.gz").write_bytes(b"mine")
    assert main(words) == 2
    assert os.listdir() == ["x.scenarios.json.gz"]
    assert (tmp_path / "x.scenarios.json.gz").read_bytes() == b"mine"
    assert main([*words, "--force"]) == 0
    assert fleetgym.load_scenarios("x.json")
    assert main(words) == 2
    assert main([*words[:-1], "x.csv"]) == 2
    (tmp_path / "d.json").mkdir()
    for more in ([], ["--force"]):
        assert main([*words[:-1], "d.json", *more]) == 2
    assert not (tmp_path / "d.scenarios.json.gz").exists()


# -- prices and caps


def test_price_list(hour: Path, tmp_path: Path) -> None:
    """Prices, caps, markets and regions come from the file; spot pools drop."""
    (tmp_path / "p.csv").write_text(
        "gpu,usd_per_gpu_h,max_gpus,market,region\nH100,3.5,16,on-demand,eu\nH100,1.9,,spot,eu\nL40S,1.0,8,reserved,us\n"
    )
    made = import_trace(hour, prices=tmp_path / "p.csv", models=["Llama-3.1-8B"])
    pools = {p.id: p for p in made.instance.pools}
    assert pools["h100-on-demand-eu"].price_usd_per_gpu_h == 3.5
    assert pools["h100-on-demand-eu"].cap_gpus == 16
    assert pools["h100-spot-eu"].market == "spot"
    assert made.instance.dynamics.availability.kind == "drops"
    assert made.instance.dynamics.availability.parameters["drops_per_day"][:2] == (0.0, 4.0)


def test_caps() -> None:
    """By type, for all, or wrong."""
    offers = catalogue_prices(["H100", "L40S"])
    assert [o.max_gpus for o in with_caps(offers, parse_caps("H100=16"))] == [16, None]
    assert [o.max_gpus for o in with_caps(offers, parse_caps("8,L40S=4"))] == [8, 4]
    for text in ("H100=0", "many", "H100", "=4", "H100=1,H100=5", "4,8"):
        with pytest.raises(FleetgymError):
            parse_caps(text)
    with pytest.raises(FleetgymError, match="A30"):
        with_caps(offers, parse_caps("A30=4"))
    with pytest.raises(FleetgymError, match="did you mean 'us-east-1'"):
        catalogue_prices(region="us-east-7")
    assert catalogue_prices(["H100", "H100"]) == catalogue_prices(["H100"])


def test_caps_that_are_too_small_are_told(hour: Path) -> None:
    """The instance is made, and the note says how much it can bear."""
    few = [Offer(gpu="L40S", usd_per_gpu_h=1.0, max_gpus=4)]
    made = import_trace(hour, scale=100.0, prices=few, models=["Llama-3.1-8B"])
    assert "p99 demand" in made.notes[0]
    assert made.instance.pools[0].cap_gpus == 4


# -- service level objectives


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Slo(ttft=0.0), "Slo.ttft"),
        (lambda: Slo(delay=-20.0), "Slo.delay"),
        (lambda: Slo(error=1.5), "Slo.error"),
        (lambda: Slo(unserved_usd=1e10), "Slo.unserved_usd"),
        (lambda: Slo(late_usd=math.nan), "Slo.late_usd"),
        (lambda: Offer(gpu="", usd_per_gpu_h=1.0), "Offer.gpu"),
        (lambda: Offer(gpu="H100", usd_per_gpu_h=-1.0), "Offer.usd_per_gpu_h"),
        (lambda: Offer(gpu="H100", usd_per_gpu_h=1.0, max_gpus=0), "Offer.max_gpus"),
        (lambda: Offer(gpu="H100", usd_per_gpu_h=1.0, market="reserve"), "Offer.market"),
        (lambda: Offer(gpu="H100", usd_per_gpu_h=1.0, region="../x"), "Offer.region"),
    ],
)
def test_objects_are_checked_as_files_are(make: Callable[[], object], path: str) -> None:
    """An SLO or an offer made in Python has the bounds of one that was read."""
    with pytest.raises(DataError) as caught:
        make()
    assert caught.value.path == path


def test_slos(tmp_path: Path) -> None:
    """Words for all; files by workload, CSV and JSON; objects."""
    names = ("chat", "code")
    assert slos_for(None, names) == (Slo(), Slo())
    assert slos_for("ttft=1,delay=20,error=0.03", names)[1] == Slo(ttft=1.0, delay=20.0, error=0.03)
    (tmp_path / "s.csv").write_text("workload,ttft,delay\nchat,0.5,\n*,3,30\n")
    assert slos_for(str(tmp_path / "s.csv"), names) == (Slo(ttft=0.5), Slo(ttft=3.0, delay=30.0))
    (tmp_path / "s.json").write_text('{"code": {"unserved_usd": 0.01}}')
    assert slos_for(str(tmp_path / "s.json"), names) == (Slo(), Slo(unserved_usd=0.01))
    assert slos_for({"*": Slo(ttft=9.0)}, names)[0].ttft == 9.0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ttft", "no such"),
        ("ttft=", "ttft: expected a number from 1e-6 to 1e7 s"),
        ("ttft=0", "from 1e-6"),
        ("ttft=nan", "got 'nan'"),
        ("tftt=2", "did you mean 'ttft'"),
        ("ttft=1,delay", "expected name=number"),
        ("ttft=1,ttft=5", "the SLO ttft is given twice"),
        ("unserved_usd=1e300", "unserved_usd: expected a number from 1e-12 to 1e9 USD"),
    ],
)
def test_wrong_slos(words: str, says: str) -> None:
    """What is wrong with each, as an error of ours or a missing file."""
    with pytest.raises((FleetgymError, FileNotFoundError)) as caught:
        slos_for(words, ("chat",))
    assert says in str(caught.value).lower() or says in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("s.csv", "workload,ttft\nchatt,1\n", "line 2"),
        ("s.csv", "workload,ttft\nchat,fast\n", "line 2"),
        ("s.csv", "workload,speed\nchat,1\n", "line 1"),
        ("s.csv", "workload,ttft\nchat,1\nchat,2\n", "line 3"),
        ("s.csv", "workload,ttft,ttft\nchat,1,2\n", "line 1"),
        ("s.json", '{"chat": {"ttft": true}}', "$.chat"),
        ("s.json", '{"chat": 5}', "$"),
        ("s.json", '{"chat": {', "$"),
    ],
)
def test_broken_slo_files(file: str, content: str, place: str, tmp_path: Path) -> None:
    """File and place are named."""
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError) as caught:
        slos_for(str(tmp_path / file), ("chat",))
    assert (caught.value.source, caught.value.path) == (str(tmp_path / file), place)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slo": "ttft=0.01"}, "ttft=0.01 of workload .* is out of reach"),
        ({"slo": "error=0.0001"}, "error=0.0001 of workload .* is out of reach"),
        ({"slo": "delay=0.05"}, "delay=0.05 of workload .* is out of reach"),
        ({"models": ["Llama-3.1-405B"], "gpus": ["L40S"]}, "ttft=2 of workload .* is out of reach"),
        ({"models": ["Lama"]}, "unknown model"),
        ({"gpus": ["H1000"]}, "unknown GPU type 'H1000'"),
        ({"penalty": 0.0}, "penalty: expected a number from 0.001 to 1e6"),
        ({"penalty": 1e300}, "penalty: expected a number from 0.001 to 1e6"),
        ({"scale": -1.0}, "scale: expected a number from 1e-6 to 1e6"),
        ({"scale": 1e9}, "scale: expected a number from 1e-6 to 1e6"),
        ({"scenarios": 0}, "no day of its own to store; expected at least 1 scenario"),
        ({"by": "label"}, "need a column"),
        ({"by": "size"}, "auto, label, length or one"),
        ({"by": "length", "edges": [5, 3]}, "rising bounds"),
        ({"buckets": 0}, "1 to 16 length buckets"),
        ({"extend": "loop"}, "model, stretch"),
        ({"slo": {"*": Slo(unserved_usd=0.1, late_usd=0.2)}}, "late request may not cost more"),
    ],
)
def test_wrong_options(options: dict, says: str, hour: Path) -> None:
    """Each is refused in a sentence."""
    with pytest.raises(FleetgymError, match=says):
        import_trace(hour, **options)


def test_given_penalties(hour: Path) -> None:
    """What the user states is what the instance says."""
    made = import_trace(hour, slo={"*": Slo(unserved_usd=0.25, late_usd=0.05)}, **SMALL)
    assert {(w.unserved_usd, w.late_usd) for w in made.instance.workloads} == {(0.25, 0.05)}


def real_hour(folder: Path) -> Path | None:
    """Rewrite a real hour of requests in the layout it was published in; None if it is not here."""
    import pandas

    path = SHARED / "data" / "requests_1h.parquet"
    if not path.is_file():
        return None
    table = pandas.read_parquet(path)
    rows = table[table.kind == "azure_conv"]
    lines = [
        f"{stamp(65_746.680590 + t / 1000)},{a},{b}"
        for t, a, b in zip(rows.t_ms, rows.context, rows.generated, strict=True)
    ]
    (folder / "conv.csv").write_text("\n".join([HEADER, *lines]))
    return folder / "conv.csv"


def test_a_real_hour(tmp_path: Path) -> None:
    """19,366 real requests: the level is 5.5 a second, arrivals are a little burstier than Poisson."""
    path = real_hour(tmp_path)
    if path is None:
        pytest.skip("the real requests are not here (set FLEETGYM_SHARED to the folder of data/)")
    made = import_trace(path, slo="ttft=2,delay=20,error=0.05")
    assert made.statistics.requests == 19_366
    assert sum(w.rate_rps for w in made.instance.workloads) == pytest.approx(5.6, abs=0.15)
    assert np.all((made.statistics.arrival_cv2 > 1.2) & (made.statistics.arrival_cv2 < 2.5))
    assert made.instance.num_configurations > 20


@pytest.mark.parametrize("agent", ["agh", "milp"])
def test_from_a_trace_to_a_plan_with_its_risk(agent: str, tmp_path: Path) -> None:
    """A real hour, or one like it: fleet, bound and risk in far under two minutes; no plan beats the bound."""
    from fleetgym.agents.registry import agent_entries
    from fleetgym.capacity.risk import plan_with_risk
    from fleetgym.cli.plan_report import plan_facts

    if agent not in agent_entries():
        pytest.skip(f"there is no agent {agent!r} here")
    path = real_hour(tmp_path) or write_azure(tmp_path / "hour.csv", per_second=7.0)
    begin = time.process_time()
    instance = import_trace(path, slo="ttft=2,delay=20,error=0.05").instance
    found = plan_with_risk(instance, agent, days=100)
    assert time.process_time() - begin < 60.0  # 5 s measured
    facts = plan_facts(instance, found.plan, risk=found.risk)
    assert facts["risk"]["days"] == 100
    assert facts["cost"] > 0.0
    assert 0.4 * facts["cost"] < facts["bound"] <= facts["cost"]  # of one or two GPUs


def test_generic_files_make_instances(tmp_path: Path) -> None:
    """Labels are workloads, zero is midnight."""
    made = import_trace(write_generic(tmp_path / "t.csv"), **SMALL)
    assert {w.id for w in made.instance.workloads} == {"chat", "code"}
    assert not made.statistics.is_clock


def test_a_log_with_each_request_twice_is_doubted(tmp_path: Path) -> None:
    """Rows that equal the one before are requests like the others, and the command says how many there are."""
    rows = [f"{2.5 * k:.1f},{100 + k % 7},20" for k in range(600)]
    doubled = [row for row in rows for _ in range(2)]
    head = "time,input_tokens,output_tokens"
    notes = []
    for name, lines in (("once.csv", rows), ("twice.csv", doubled)):
        (tmp_path / name).write_text("\n".join([head, *lines]))
        notes.append(" ".join(import_trace(tmp_path / name, **SMALL).notes))
    assert "equal the row before" not in notes[0]
    assert "600 rows (50.0%) equal the row before them" in notes[1]
