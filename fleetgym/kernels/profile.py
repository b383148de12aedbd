"""Where a window's time goes: laps in, processor ticks by part out; nothing at all unless it is asked for.

With ``FLEETGYM_PROFILE=1`` in the environment when the kernels are compiled, `lap` adds up the ticks of the processor's
clock since the last lap. Otherwise it is an empty function, which the compiler removes.
"""

from __future__ import annotations

import os
from typing import Any

import llvmlite.ir
import numba
import numpy as np
from numba.core import types
from numba.core.typing import signature

from fleetgym.kernels.compile import inner

#: Whether laps are taken.
IS_ON = os.environ.get("FLEETGYM_PROFILE", "") not in ("", "0")

#: Parts of a window in the order in which they are played; `ELSEWHERE` is what lies between windows.
PARTS = ("elsewhere", "admission", "dynamics", "coefficients", "routing LP", "tails", "costs", "report")
ELSEWHERE, ADMISSION, DYNAMICS, COEFFICIENTS, ROUTING, TAILS, COSTS, REPORT = range(8)


def new_ticks() -> np.ndarray:
    """Return the ticks of each part, and the time of the last lap: int64 (9,)."""
    return np.zeros(len(PARTS) + 1, dtype=np.int64)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    name = "llvm.readcyclecounter"
    kind = llvmlite.ir.FunctionType(llvmlite.ir.IntType(64), [])
    counter = builder.module.globals.get(name) or llvmlite.ir.Function(builder.module, kind, name)
    return builder.call(counter, [])


def _take_time(typing_context: Any) -> Any:
    return signature(types.int64), _generate


_now: Any = numba.extending.intrinsic(_take_time)


if IS_ON:

    @inner
    def lap(ticks, part):
        """Add the ticks since the last lap to a part."""
        now = _now()
        ticks[part] += now - ticks[-1]
        ticks[-1] = now

else:

    @inner
    def lap(ticks, part):
        """Do nothing."""
