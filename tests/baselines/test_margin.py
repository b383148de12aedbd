"""`margin`: hysteresis between two margins, and the pace of a budget."""

from __future__ import annotations

from test_agents import demand, play
from toys import configuration, make_instance, pool

from fleetgym.baselines.margin import PACE, Margin
from fleetgym.model.instance import Instance


def one_pool(**changes) -> Instance:
    """Return replicas of ten queue servers and one second of service."""
    return make_instance([pool("p", 16)], [configuration("a", {"p": 1}, max_replicas=16)], **changes)


def test_small_moves_of_demand_move_nothing() -> None:
    """Between the margins the fleet stays; without a gap it follows each move."""
    instance = one_pool()
    rates = [40.0, 60.0, 58.0, 60.0, 57.0, 59.0, 20.0]
    sizes = {}
    for gap in (0.0, 0.5):
        targets, _ = play(Margin(1.0, gap, forecaster="last"), instance, demand(instance, rates))
        sizes[gap] = [fleet[0] for fleet in targets]
    assert len(set(sizes[0.5][2:7])) == 1 < len(set(sizes[0.0][2:7]))
    assert sizes[0.5][7] < sizes[0.5][6], "what is useless goes at once"
    assert sizes[0.0][2] == sizes[0.5][2], "and both grow alike"


def test_a_budget_for_the_day_is_paced() -> None:
    """No window spends more than its pace, so that something is left for the last one."""
    instance = one_pool(budget={"kind": "pool", "usd": 12.0})
    hold_usd = 1.0  # of a replica in a window
    targets, _ = play(Margin(1.0, 0.0, forecaster="last"), instance, demand(instance, [90.0]))
    left = 12.0
    for t, fleet in enumerate(targets):
        assert fleet[0] * hold_usd <= left * PACE / (instance.num_windows - t) + 1e-9
        left -= fleet[0] * hold_usd
    assert targets[-1][0] >= 1
