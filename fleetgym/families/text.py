"""Round numbers and derive weights from hashes, as instance files hold them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def six(value: Any) -> Any:
    """Round to six significant digits, element by element, so that files stay small.

    Examples
    --------
    >>> six([1.23456789, 0.0]).tolist()
    [1.23457, 0.0]
    """
    return significant(value, 6)


def significant(value: Any, digits: int) -> Any:
    """Round to `digits` significant digits, element by element.

    Examples
    --------
    >>> significant([1.23456789, 0.0], 3).tolist()
    [1.23, 0.0]
    """
    return np.vectorize(lambda v: float(f"{v:.{digits}g}"), otypes=[float])(np.asarray(value, dtype=float))


def tie_break(*names: str) -> float:
    """Return a uniform number in [0, 1) that depends on nothing but the names.

    Examples
    --------
    >>> 0.0 <= tie_break("ou-s-001", "chat", "x") < 1.0
    True
    """
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return int.from_bytes(digest[:4], "big") // 4295 / 1e6
