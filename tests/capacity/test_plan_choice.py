"""Plans are chosen on generated days: spot on top of a base, limits, commitments, what runs, growth, schedules."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from sample_traces import write_generic

import fleetgym
from fleetgym.agents.registry import make_agent, make_planner
from fleetgym.capacity import choice as choosing
from fleetgym.capacity.choice import BASE, CHECKS, MIX, SPOT, Choice, Limits, choose, spot_pools
from fleetgym.capacity.commitment import commitment_usd, committed
from fleetgym.capacity.held import MISSED, MISSED_OF, HeldFleets
from fleetgym.capacity.risk import agent_risk, fleet_risk, plan_with_risk
from fleetgym.capacity.running import read_running
from fleetgym.capacity.schedule import last_week, make_schedule, mean_day, worth_reserving
from fleetgym.capacity.traces import import_trace
from fleetgym.capacity.traces.prices import Offer
from fleetgym.capacity.what_if import grown, only, priced
from fleetgym.cli.parser import main
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.documents import write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.window import COST_TERMS

#: List prices on demand, about.
USD_PER_GPU_H = {"A100-80GB": 1.8, "H100": 3.0, "H200": 3.8, "L40S": 1.2, "B200": 5.5}


def imported(folder: Path, *offers: Offer) -> Instance:
    """Return an instance of an hour of requests that some GPUs serve."""
    trace = write_generic(folder / "hour.csv", seed=3)
    return import_trace(
        trace,
        prices=offers,
        models=["Llama-3.1-8B"],
        by="one",
        slo="ttft=2,delay=20",
        scale=60.0,
        scenarios=1,
    ).instance


@pytest.fixture(scope="module")
def spot(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """Return an instance with on-demand and cheap spot GPUs."""
    return imported(
        tmp_path_factory.mktemp("spot"),
        Offer(gpu="H100", usd_per_gpu_h=3.0),
        Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot"),
    )


@pytest.fixture(scope="module")
def reserved(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """Return an instance with on-demand GPUs, and reserved ones for a year."""
    return imported(
        tmp_path_factory.mktemp("reserved"),
        Offer(gpu="H100", usd_per_gpu_h=3.0),
        Offer(gpu="H100", usd_per_gpu_h=1.9, market="reserved", term_days=365),
    )


@pytest.fixture(scope="module")
def free(spot: Instance) -> Choice:
    """Return the choice without limits."""
    return choose(spot, make_planner("agh"))


def test_held_fleets_are_played_as_the_environment_does(spot: Instance) -> None:
    """Also where a day begins with another fleet, whose change has to start."""
    fleet = fleetgym.plan(spot, "gh").fleet
    other = np.eye(len(fleet), dtype=int)[int(np.argmax(spot.gpu_use[0] == 1))]
    for running in (fleet, other):
        held = HeldFleets(spot, [5], None if running is fleet else running)
        days = held.days(fleet, 2)
        for k in range(2):
            from fleetgym.model.dynamics import draw_scenario

            env = FleetAllocEnv(spot.replace(nominal_fleet=running))
            day = draw_scenario(spot, np.random.default_rng([5, k]))
            env.reset(options={"scenario": day})
            terms, missed, total = np.zeros(len(COST_TERMS)), 0.0, 0.0
            for window in range(spot.num_windows):
                _, _, _, _, info = env.step(env.actions.from_fleet(fleet))
                terms += [info[name] for name in COST_TERMS]
                missed += float(day.rate_rps[window] @ info["miss_share"])
                total += float(day.rate_rps[window].sum())
            np.testing.assert_allclose(days[k, : len(COST_TERMS)], terms, rtol=1e-9, atol=1e-9)
            assert days[k, MISSED] == pytest.approx(missed / total, rel=1e-9)
            assert days[k, MISSED_OF:] @ day.rate_rps.sum(axis=0) == pytest.approx(missed, rel=1e-9)


def test_a_day_does_not_depend_on_what_was_played_before(spot: Instance) -> None:
    """Same seed, same bytes, in whichever order fleets are compared."""
    fleet = fleetgym.plan(spot, "gh").fleet
    first, second = HeldFleets(spot, [5]), HeldFleets(spot, [5])
    second.days(2 * fleet, 3)
    assert first.days(fleet, 3).tobytes() == second.days(fleet, 3).tobytes()


def test_spot_is_chosen_by_what_drops_cost(spot: Instance, free: Choice) -> None:
    """All spot is cheapest in a window and loses on days; no kind, and no neighbour, beats what is chosen."""
    window = fleetgym.plan(spot, "agh").fleet
    assert (spot.gpu_use @ window)[spot_pools(spot)].sum() > 0
    found = free
    kinds = {tried.kind: tried for tried in found.kinds}
    assert set(kinds) == {BASE, SPOT, MIX}
    assert found.best.cost_usd <= min(tried.cost_usd for tried in found.kinds)
    on_spot = (spot.gpu_use @ np.array(found.best.fleet))[spot_pools(spot)].sum()
    of_all = (spot.gpu_use @ np.array(found.best.fleet)).sum()
    assert found.best.kind == (BASE if not on_spot else SPOT if on_spot == of_all else MIX)  # also if refined
    held = HeldFleets(spot, [choosing.CHOICE_STREAM, 0])
    for tried in found.kinds:
        gpus = spot.gpu_use @ np.array(tried.fleet)
        on_spot = gpus[spot_pools(spot)].sum()
        assert (tried.kind == BASE) == (on_spot == 0)
        assert (tried.kind == SPOT) == (on_spot == gpus.sum())
        days = held.days(tried.fleet, CHECKS[-1])
        assert tried.cost_usd == pytest.approx(days[:, : len(COST_TERMS)].sum(axis=1).mean())
        assert tried.miss_share == pytest.approx(days[:, MISSED].mean())
    assert fleet_risk(spot, found.best.fleet, days=20).cost_usd.mean() < (
        fleet_risk(spot, window, days=20).cost_usd.mean()
    )


@pytest.mark.slow
def test_limits_are_kept(spot: Instance, free: Choice) -> None:
    """Each limit of its own; what cannot be kept is refused, with what comes nearest."""
    most = free.best.miss_share / 4.0
    tight = choose(spot, make_planner("gh"), limits=Limits(miss_at_most=most)).best
    assert tight.miss_share <= most
    assert tight.cost_usd > free.best.cost_usd
    cap = spot.pools[0].cap_gpus
    for limits in (
        Limits(spot_share_at_most=0.2),
        Limits(on_demand_base=cap),
        Limits(spot_share_at_most=0.0),
    ):
        gpus = spot.gpu_use @ np.array(choose(spot, make_planner("gh"), limits=limits).best.fleet)
        on_spot = int(gpus[spot_pools(spot)].sum())
        assert (
            on_spot
            <= (limits.spot_share_at_most if limits.spot_share_at_most is not None else 1) * gpus.sum()
        )
        assert gpus.sum() - on_spot >= limits.on_demand_base
    with pytest.raises(FleetgymError, match=r"no plan keeps --on-demand-base 4000: loosen it"):
        choose(spot, make_planner("gh"), limits=Limits(on_demand_base=4000))
    two = dataclasses.replace(spot, pools=tuple(dataclasses.replace(p, cap_gpus=2) for p in spot.pools))
    two = dataclasses.replace(two, nominal_fleet=np.zeros_like(two.nominal_fleet))
    with pytest.raises(FleetgymError, match=r"keeps --miss-at-most 0.01: the best misses \d+.\d\d % of"):
        choose(two, make_planner("gh"), limits=Limits(miss_at_most=0.01))
    with pytest.raises(FleetgymError, match="limits are for"):
        plan_with_risk(spot, "agh-rolling", limits=Limits(miss_at_most=0.01))


@pytest.mark.slow
def test_a_percentile_of_the_first_token_is_kept(tmp_path: Path) -> None:
    """It is a limit on each workload's misses on generated days; what cannot be kept is refused by its name."""
    trace = write_generic(tmp_path / "hour.csv", seed=3)
    offers = [Offer(gpu="H100", usd_per_gpu_h=3.0), Offer(gpu="H100", usd_per_gpu_h=1.0, market="spot")]

    def made(slo: str) -> Instance:
        given = {"prices": offers, "models": ["Llama-3.1-8B"], "by": "length", "buckets": 2}
        return import_trace(trace, slo=f"{slo},delay=20", scale=60.0, scenarios=1, **given).instance

    free = plan_with_risk(made("ttft=2"), "gh", days=5).choice
    held = made("ttft.p99=2")
    found = plan_with_risk(held, "gh", days=5)
    assert free is not None
    assert found.choice is not None
    assert found.risk is not None
    assert [most for _, most in found.choice.limits.miss_of] == pytest.approx([0.01, 0.01])
    days = HeldFleets(held, [choosing.CHOICE_STREAM, 0])
    kept = days.days(found.choice.best.fleet, CHECKS[-1])[:, MISSED_OF:].mean(axis=0)
    broken = days.days(free.best.fleet, CHECKS[-1])[:, MISSED_OF:].mean(axis=0)
    assert kept.max() <= 0.01 < broken.max()
    from fleetgym.cli.plan_report import describe_plan, risky_facts

    facts = risky_facts(held, found, "gh")
    missed = [route["missed_on_days"] for route in facts["routing"].values()]
    assert missed == pytest.approx(found.risk.workload_miss_share.mean(axis=0).tolist())
    assert describe_plan(held, facts).count("ttft.p99 asks for at most 1 %") == 2
    from fleetgym.cli.schedule_report import describe_schedule, schedule_facts

    told = describe_schedule(schedule_facts(held, make_schedule(held, "gh", days=2)))
    assert told.count("ttft.p99 asks for at most 1 %") == 2
    few = held.replace(
        pools=tuple(dataclasses.replace(p, cap_gpus=1) for p in held.pools),
        nominal_fleet=np.zeros_like(held.nominal_fleet),
    )
    with pytest.raises(FleetgymError, match=r"no plan that was tried keeps ttft.p99 of \w+: 0.01"):
        choose(few, make_planner("gh"))


def random_instance(number: int, folder: Path) -> Instance:
    """Return an instance made of random requests and a random price list."""
    rng = np.random.default_rng([29, number])
    rows = 4000
    times = np.sort(rng.uniform(0.0, 3600.0, rows)) + 9 * 3600.0
    tokens_in = np.clip(rng.lognormal(np.log(rng.uniform(300, 2000)), 0.8, rows), 10, 8000).astype(int)
    tokens_out = np.clip(rng.lognormal(np.log(rng.uniform(60, 300)), 0.7, rows), 2, 2000).astype(int)
    table = [f"{t:.3f},{a},{b}" for t, a, b in zip(times, tokens_in, tokens_out, strict=True)]
    (folder / "requests.csv").write_text("\n".join(["time,input_tokens,output_tokens", *table]) + "\n")
    gpus = rng.permutation(sorted(USD_PER_GPU_H))[: rng.integers(1, 4)]
    prices = {str(gpu): USD_PER_GPU_H[str(gpu)] * float(rng.uniform(0.7, 1.4)) for gpu in gpus}
    offers = [Offer(gpu=gpu, usd_per_gpu_h=round(usd, 4)) for gpu, usd in prices.items()]
    for gpu in list(prices)[: rng.integers(1, len(prices) + 1)]:
        discounted = round(prices[gpu] * float(rng.uniform(0.2, 0.8)), 4)
        offers.append(Offer(gpu=gpu, usd_per_gpu_h=discounted, market="spot"))
    return import_trace(
        folder / "requests.csv",
        prices=offers,
        slo="ttft=2,delay=20,error=0.05",
        models=["Llama-3.1-8B"],
        by="one",
        scale=float(rng.uniform(20.0, 80.0)),
        scenarios=1,
        name=f"list-{number}",
    ).instance


@pytest.mark.slow
def test_one_replica_on_demand_is_exchanged_for_three_on_spot(tmp_path: Path) -> None:
    """Spot at less than a third of the price: a limit is kept for a tenth less, by more replicas than drop at once."""
    instance = random_instance(9, tmp_path)
    found = choose(instance, make_planner("agh"), limits=Limits(miss_at_most=0.01))
    on_demand = next(tried for tried in found.kinds if tried.kind == BASE)
    assert found.best.keeps_limits
    assert found.best.kind == MIX
    assert found.best.cost_usd < 0.92 * on_demand.cost_usd


def test_a_given_margin_is_kept(spot: Instance) -> None:
    """Only its share on spot is chosen."""
    found = choose(spot, make_planner("gh"), margin=0.3)
    assert found.best.base + found.best.spot == pytest.approx(1.3)
    assert not found.refined


@pytest.mark.slow
def test_no_gpu_type_alone_is_cheaper_than_the_plan(tmp_path: Path) -> None:
    """Without spot: a planner of one window may miss it, so each type alone is a candidate, and all are refined."""
    prices = {"H100": 3.0, "L40S": 1.2, "A100-80GB": 1.8}
    write_generic(tmp_path / "requests.csv")
    instance = import_trace(
        tmp_path / "requests.csv",
        prices=[Offer(gpu=gpu, usd_per_gpu_h=usd) for gpu, usd in prices.items()],
        models=["Llama-3.1-8B"],
        by="one",
        scale=30.0,
        scenarios=1,
    ).instance
    best = choose(instance, make_planner("gh")).best
    for gpu in prices:
        assert best.cost_usd <= choose(only(instance, gpu), make_planner("gh")).best.cost_usd * (1.0 + 1e-9)


@pytest.mark.slow
def test_what_runs_is_a_candidate_and_its_change_costs_fees(spot: Instance) -> None:
    """A fleet that is nearly as good as the best is kept; the report says what to add, and the fee."""
    best = np.array(choose(spot, make_planner("gh")).best.fleet)
    kept = choose(spot, make_planner("gh"), running=best)
    assert kept.best.fleet == tuple(best.tolist())
    from fleetgym.cli.plan_report import describe_plan, risky_facts

    nothing = np.zeros_like(best)
    found = plan_with_risk(spot, "gh", days=3, running=nothing)
    facts = risky_facts(spot, found, "gh", nothing)
    assert facts["switch"]["add"] == facts["fleet"]
    fees = sum(
        n * spot.configurations[spot.configuration_index[c]].startup_usd for c, n in facts["fleet"].items()
    )
    assert facts["switch"]["fees_usd"] == pytest.approx(fees)
    assert found.risk is not None
    assert np.all(found.risk.terms_usd[:, COST_TERMS.index("startup")] >= fees - 1e-9)
    assert "from what runs\n  add" in describe_plan(spot, facts)
    again = risky_facts(spot, found, "gh", np.asarray(found.plan.fleet))
    assert "from what runs: nothing to change" in describe_plan(spot, again)


def test_running_files(spot: Instance, tmp_path: Path) -> None:
    """A mapping, or what plan printed; what is wrong is named with its place."""
    name = spot.configurations[0].id
    write_json(tmp_path / "a.json", {name: 2})
    write_json(tmp_path / "b.json", {"fleet": {name: 2}, "cost": 1.0})
    for file in ("a.json", "b.json"):
        assert read_running(tmp_path / file, spot)[0] == 2
    for wrong, message in (
        ({"H100": 2}, "no configuration 'H100'"),
        ({name: -1}, "whole number from 0"),
        ({name: 1.5}, "whole number from 0"),
        ({name: 100000}, "whose cap is"),
        ([2], "expected replicas by configuration"),
    ):
        write_json(tmp_path / "c.json", wrong)
        with pytest.raises(DataError, match=message) as caught:
            read_running(tmp_path / "c.json", spot)
        assert caught.value.source.endswith("c.json")


# -- commitments


def test_a_commitment_is_paid_used_or_not(reserved: Instance) -> None:
    """An agent that holds nothing pays for what is committed; one that uses it pays no more."""
    gpus = np.array([pool.cap_gpus if pool.market != "reserved" else 4 for pool in reserved.pools])
    paid = committed(reserved, gpus)
    assert commitment_usd(reserved, gpus) == pytest.approx(4 * 1.9 * 24.0)
    assert [p.price_usd_per_gpu_h for p in paid.pools if p.market == "reserved"] == [0.0]
    assert paid.rental_usd_per_h.sum() < reserved.rental_usd_per_h.sum()
    found = plan_with_risk(reserved, "agh-rolling", days=2)
    assert found.risk is not None
    assert found.committed_gpus is not None
    fixed = commitment_usd(reserved, found.committed_gpus)
    assert fixed > 0.0
    rental = COST_TERMS.index("rental")
    assert np.all(found.risk.terms_usd[:, rental] >= fixed - 1e-9)
    alone = agent_risk(committed(reserved, found.committed_gpus), make_agent("agh-rolling"), days=2)
    np.testing.assert_allclose(found.risk.terms_usd[:, rental], alone.terms_usd[:, rental] + fixed)


def test_a_held_plan_pays_its_reserved_gpus_all_day(reserved: Instance) -> None:
    """The rent of a held fleet is the commitment, to the cent, and the plan names it with its term."""
    from fleetgym.cli.plan_report import describe_plan, risky_facts

    found = plan_with_risk(reserved, "agh", days=3)
    facts = risky_facts(reserved, found, "agh")
    ((pool, paid),) = facts["commitments"].items()
    held = facts["gpus"][pool]["held"]
    assert paid == {"gpus": held, "usd_per_episode": pytest.approx(held * 1.9 * 24.0)}
    on_demand = sum(g["usd_per_h"] for g in facts["gpus"].values() if g["market"] == "on-demand")
    assert facts["risk"]["terms_usd"]["rental"] == pytest.approx(paid["usd_per_episode"] + 24.0 * on_demand)
    assert "in the 365 days" in " ".join(describe_plan(reserved, facts).split())
    assert "paid" in reserved.provenance["commitments"] or "pays" in reserved.provenance["commitments"]


# -- growth and schedules


def test_growth(spot: Instance) -> None:
    """Days have so many times the requests, and nothing else has changed."""
    more = grown(spot, 3.0)
    assert [w.rate_rps for w in more.workloads] == pytest.approx([3.0 * w.rate_rps for w in spot.workloads])
    one, three = (np.mean([d.rate_rps.mean() for d in _days(each)]) for each in (spot, more))
    assert three / one == pytest.approx(3.0, rel=0.02)
    assert more.pools == spot.pools
    with pytest.raises(FleetgymError, match="expected a number from 1e-9 to 1e6"):
        grown(spot, 1e300)


def _days(instance: Instance) -> list[fleetgym.Scenario]:
    from fleetgym.capacity.risk import generated_days

    return generated_days(instance, 20, 0)


def test_schedule(spot: Instance) -> None:
    """A row per hour; the agent's GPUs are within caps; what runs all day is worth reserving at its own price."""
    made = make_schedule(spot, "gh", days=2)
    assert made.gpus.shape == (24, len(spot.pools))
    assert np.all(made.gpus <= [pool.cap_gpus for pool in spot.pools])
    assert made.gpus.sum(axis=1).min() > 0
    assert made.rate_rps.mean() == pytest.approx(mean_day(spot).rate_rps.sum(axis=1).mean())
    assert made.risk is not None
    for found in worth_reserving(spot, made):
        pool = next(p for p in spot.pools if p.id == found.pool)
        assert found.below_usd_per_gpu_h == pytest.approx(pool.price_usd_per_gpu_h * found.hours / 24.0)
    on_demand = [g for g, pool in enumerate(spot.pools) if pool.market == "on-demand"]
    prices = [pool.price_usd_per_gpu_h for pool in spot.pools]
    assert made.rent_usd_per_h == pytest.approx(made.gpus @ prices)  # of the same window of an hour
    total = sum(found.gpus * found.hours for found in worth_reserving(spot, made))
    assert total == made.gpus[:, on_demand].sum()


def test_a_week(spot: Instance, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The history's last seven days are played one after the other; days that are drawn are no week."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    made = make_schedule(instance, "gh", days=0, week=True)
    assert made.days == 7
    assert made.gpus.shape == (168, len(instance.pools))
    past = instance.history.rate_rps[-7 * 288 :].sum(axis=1).reshape(168, 12).mean(axis=1)
    np.testing.assert_allclose(made.rate_rps, past)
    for found in worth_reserving(instance, made):
        pool = next(p for p in instance.pools if p.id == found.pool)
        assert found.below_usd_per_gpu_h == pytest.approx(pool.price_usd_per_gpu_h * found.hours / 168.0)
    from fleetgym.cli.schedule_report import describe_schedule, plot_schedule, schedule_facts

    facts = schedule_facts(instance, made)
    text = describe_schedule(facts)
    assert max(map(len, text.splitlines())) <= 80
    assert "day 7" in text
    assert "all week" in text
    plot_schedule(facts, str(tmp_path / "week.png"))
    assert (tmp_path / "week.png").stat().st_size > 1000
    with pytest.raises(FleetgymError, match="shorter than a day"):
        make_schedule(spot, "gh", days=0, week=True)
    with pytest.raises(FleetgymError, match="a week is of days, and an episode of this instance lasts"):
        last_week(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    assert main(["plan", "fleet-v0/dev/ou-s-001", "--week"]) == 2
    assert "--week is of --schedule" in capsys.readouterr().err


def test_episodes_say_how_they_pay_reserved_gpus(
    reserved: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An episode bills them while they are held: run and compare say so, and that plan does otherwise."""
    file = str(tmp_path / "day.json")
    write_json(file, reserved.to_dict())
    assert main(["check", file, "--write"]) == 0
    capsys.readouterr()
    results = str(tmp_path / "r.jsonl")
    for words in (["run", file, "--render", "none"], ["compare", "hold", file, "--out", results]):
        assert main([*words]) == 0
        assert "an episode pays reserved GPUs only while they are held" in capsys.readouterr().err
    assert main(["run", "fleet-v0/toy/drop", "--render", "none"]) == 0
    assert "reserved" not in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(spot: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option prints what it should within 80 columns, as text and as JSON; contradictions are refused."""
    file = str(tmp_path / "day.json")
    write_json(file, spot.to_dict())
    write_json(tmp_path / "now.json", {spot.configurations[0].id: 1})
    running = str(tmp_path / "now.json")
    plan = ["plan", file, "--agent", "gh", "--days", "3"]
    assert main([*plan, "--running", running, "--miss-at-most", "5%", "--spot-share-at-most", "0.5"]) == 0
    short = capsys.readouterr().out.splitlines()
    assert len(short) <= 43
    assert main([*plan, "--running", running, "--details"]) == 0
    out = capsys.readouterr().out
    for words in ("buy", "from what runs", "best of its kind", "worst decile"):
        assert words in out
        assert words in "\n".join(short)
    assert "the bound knows no drops" in out
    assert max(map(len, [*short, *out.splitlines()])) <= 80
    assert main([*plan, "--schedule", "--plot", str(tmp_path / "s.png")]) == 0
    out = capsys.readouterr().out
    assert "23:00" in out
    assert "all day" in out
    assert (tmp_path / "s.png").stat().st_size > 1000
    assert main([*plan, "--growth", "1x,2x"]) == 0
    assert "2x" in capsys.readouterr().out
    for more in (["--schedule"], ["--running", running, "--growth", "3x"]):
        assert main([*plan, *more, "--json"]) == 0
        json.loads(capsys.readouterr().out)
    for wrong, message in (
        (["--schedule", "--margin", "0.3"], "--schedule goes without --margin"),
        (["--growth", "1,2", "--plot", str(tmp_path / "x.png")], "goes without --plot"),
        (["--on-demand-base", "4000"], "no plan keeps --on-demand-base 4000"),
    ):
        assert main([*plan, *wrong]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_other_prices_without_importing_again(spot: Instance) -> None:
    """By GPU type, of on-demand pools, or by pool; whatever else is meant is refused."""
    pool = next(p for p in spot.pools if p.market == "on-demand")
    for name in (pool.id, pool.gpu_type, pool.gpu_type.lower()):
        other = priced(spot, {name: 0.5})
        prices = {p.id: p.price_usd_per_gpu_h for p in other.pools if p.market == "on-demand"}
        assert prices[pool.id] == 0.5
        assert [p for p in other.pools if p.market == "spot"] == [p for p in spot.pools if p.market == "spot"]
    assert other.rental_usd_per_h.sum() < spot.rental_usd_per_h.sum()
    assert [w.unserved_usd for w in other.workloads] == [w.unserved_usd for w in spot.workloads]
    with pytest.raises(FleetgymError, match="no on-demand pool has 'TPU-v6e'; the pools are "):
        priced(spot, {"TPU-v6e": 1.0})
    with pytest.raises(FleetgymError, match="two prices are given for the pool"):
        priced(spot, {pool.id: 1.0, pool.gpu_type: 2.0})
