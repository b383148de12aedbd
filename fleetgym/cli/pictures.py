"""Check that a picture can be written, and write it whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import FleetgymError

FORMATS = ("png", "svg", "pdf")

#: Colours that are told apart by colour-blind readers too (Okabe and Ito).
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#d55e00", "#f0e442", "#8c8c8c")


def check_picture(path: str | None) -> None:
    """Raise an error if `save_picture` would fail later; None means no picture.

    Raises
    ------
    FleetgymError
        If the name has another ending than `FORMATS`, or matplotlib is not installed.

    Examples
    --------
    >>> check_picture("misses.txt")
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: cannot draw 'misses.txt'; expected a name that ends in .png, .svg or .pdf
    """
    if path is None:
        return
    if Path(path).suffix.lower().removeprefix(".") not in FORMATS:
        raise FleetgymError(f"cannot draw {path!r}; expected a name that ends in .png, .svg or .pdf")
    new_figure(1.0, 1.0)


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib Figure of the given size in inches.

    Raises
    ------
    FleetgymError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FleetgymError("a plot needs matplotlib; try: pip install 'fleetgym[report]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Any, path: str) -> None:
    """Write a matplotlib Figure; its folder is created, the file is whole or not there, and has no time stamp."""
    from matplotlib import rc_context

    kind = Path(path).suffix.lower().removeprefix(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    drawn = io.BytesIO()
    with rc_context({"svg.hashsalt": "fleetgym"}):
        figure.savefig(drawn, format=kind, dpi=150, metadata=undated)
    write_atomically(path, drawn.getvalue())
