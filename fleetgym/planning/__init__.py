"""Import what agents and planners of your own may need, beyond the names of `fleetgym` itself.

Every reference agent in `fleetgym.baselines` is written with `fleetgym`, this package, `fleetgym.learning` and
`fleetgym.cli` alone. The names:

- arguments: `above`, `at_least`, `flag`, `one_of`, `positive_share` and `whole_at_least` check them, `Wrapped` makes an
  agent around a planner from the arguments of both;
- forecasts: `Forecaster`, `make_forecaster`, and `Paths`, what `fleetgym.Belief` samples;
- sizing: `FleetSizer` finds the replicas that a demand needs, `PackedConditions` is its input; `LOWER`, `GAP`, `PACE`,
  `PAYBACK_WINDOWS` and `RISK` are the defaults of the agent `margin`;
- programs: `LinearProgram`, `Answer`, `ALLOWANCE` and `make_solver` for HiGHS; `relax_window`, `WindowRelaxation` and
  `routing_rows` for the routing of a window as rows of a linear program;
- instances: `draw_scenario` samples a day, `with_law` returns an instance with the law of its stored days;
- compiled code: `jit` and `inline` compile a function with Numba into the cache of kernels, `entry` lets large ones be
  compiled beforehand, `borrow` reads arrays from their addresses, and `chance_to_wait` is the queueing formula of the
  environment.
"""

from fleetgym.agents.arguments import (
    Wrapped,
    above,
    at_least,
    flag,
    one_of,
    positive_share,
    whole_at_least,
)
from fleetgym.agents.beliefs.belief import Paths
from fleetgym.agents.forecasters import Forecaster, make_forecaster
from fleetgym.agents.margins import GAP, LOWER, PACE, PAYBACK_WINDOWS, RISK
from fleetgym.agents.sizing import FleetSizer
from fleetgym.bounds.programs import routing_rows
from fleetgym.bounds.relaxation import WindowRelaxation, relax_window
from fleetgym.kernels.compile import entry, inline, jit
from fleetgym.kernels.lowlevel import borrow
from fleetgym.kernels.queueing import chance_to_wait
from fleetgym.kernels.records import PackedConditions
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.library import with_law
from fleetgym.runtime.highs import make_solver
from fleetgym.runtime.linear_programs import ALLOWANCE, Answer, LinearProgram

__all__ = [
    "ALLOWANCE",
    "GAP",
    "LOWER",
    "PACE",
    "PAYBACK_WINDOWS",
    "RISK",
    "Answer",
    "FleetSizer",
    "Forecaster",
    "LinearProgram",
    "PackedConditions",
    "Paths",
    "WindowRelaxation",
    "Wrapped",
    "above",
    "at_least",
    "borrow",
    "chance_to_wait",
    "draw_scenario",
    "entry",
    "flag",
    "inline",
    "jit",
    "make_forecaster",
    "make_solver",
    "one_of",
    "positive_share",
    "relax_window",
    "routing_rows",
    "whole_at_least",
    "with_law",
]
