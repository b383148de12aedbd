"""Make solvers: HiGHS, silent from the beginning, with one thread."""

from __future__ import annotations

import functools
from typing import Any

from fleetgym.files.errors import FleetgymError


def make_solver(**options: Any) -> Any:
    """Return a new `highspy.Highs` that prints nothing and has one thread.

    Parameters
    ----------
    **options
        Further options of HiGHS.

    Raises
    ------
    FleetgymError
        For an option, or a value of one, that this HiGHS does not know.

    Examples
    --------
    >>> solver = make_solver(random_seed=1)
    >>> solver.getNumCol()
    0
    """
    import highspy  # heavy, and one of the solvers that a process may hold

    solver = _silent_kind()()
    for name, value in {"threads": 1, **options}.items():
        if solver.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            hint = "; pip install fleetgym[bounds]" if value == "hipo" else ""
            raise FleetgymError(f"HiGHS {solver.version()} does not take {name} = {value!r}{hint}")
    return solver


@functools.cache
def _silent_kind() -> Any:
    import highspy

    class Silent(highspy.Highs):
        """HiGHS 1.16 prints its banner to stdout while callbacks are enabled, before options can be set."""

        def enableCallbacks(self) -> Any:
            self.setOptionValue("output_flag", False)
            return super().enableCallbacks()

    return Silent
