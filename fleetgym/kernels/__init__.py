"""Play windows, solve the routing LP, size and price fleets: compiled functions over NumPy arrays, which they trust."""

import os
import warnings

if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
    raise OSError("NUMBA_DISABLE_JIT is set, and fleetgym's kernels run compiled only: unset it")

with warnings.catch_warnings():
    warnings.filterwarnings("error", "Environment variable 'NUMBA_")  # with a traceback in it
    try:
        import numba  # noqa: F401
    except (RuntimeWarning, ValueError) as error:
        named = ", ".join(
            f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_")
        )
        reason = str(error).partition("\n")[0]
        raise OSError(f"Numba refuses a setting of the environment ({named}): {reason}") from None
