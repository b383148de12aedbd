"""Where a window's time goes: parts of a window go in as they end, and the processor's ticks in each come out.

With ``FLEETGYM_PROFILE=1`` in the environment when the kernels are compiled, `count_ticks` reads the processor's clock.
It adds the ticks since its last call to the part that ended. Otherwise it is an empty function, which the compiler
removes.
"""

from __future__ import annotations

import os
from typing import Any

import llvmlite.ir
import numba.extending
import numpy as np
from numba.core import types
from numba.core.typing import signature

from fleetgym.kernels.compile import inline

#: Whether ticks are counted.
IS_ON = os.environ.get("FLEETGYM_PROFILE", "") not in ("", "0")

#: Parts of a window in the order in which they are played; `ELSEWHERE` is what lies between windows.
PARTS = ("elsewhere", "admission", "dynamics", "coefficients", "routing LP", "tails", "costs", "report")
ELSEWHERE, ADMISSION, DYNAMICS, COEFFICIENTS, ROUTING, TAILS, COSTS, REPORT = range(8)


def new_timer() -> np.ndarray:
    """Return the ticks of each part, and the time of the last count: int64 (9,)."""
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

    @inline
    def count_ticks(timer, part):
        """Add the ticks since the last count to a part."""
        now = _now()
        timer[part] += now - timer[-1]
        timer[-1] = now

else:

    @inline
    def count_ticks(timer, part):
        """Do nothing."""
