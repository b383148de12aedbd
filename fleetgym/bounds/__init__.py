"""Prove lower bounds on the cost of every fleet and agent.

`window_bound` bounds one window, `windows_bound` the sum of an episode's, each for itself, and `hindsight_bound` an
episode with its start-ups, played by somebody who knows the scenario. `nonanticipative_bound` bounds the mean day of
anybody who does not. What is relaxed is said in
`fleetgym.bounds.relaxation`, and why the numbers hold whatever the solver's tolerances in
`fleetgym.bounds.certificate`.
"""

from fleetgym.bounds.hindsight import HindsightBound, hindsight_bound, windows_bound
from fleetgym.bounds.nonanticipative import NonanticipativeBound, nonanticipative_bound
from fleetgym.bounds.window import Effort, WindowBound, window_bound

__all__ = [
    "Effort",
    "HindsightBound",
    "NonanticipativeBound",
    "WindowBound",
    "hindsight_bound",
    "nonanticipative_bound",
    "window_bound",
    "windows_bound",
]
