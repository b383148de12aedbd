"""Convert the SVG pictures to PDF files for papers, by svglib and reportlab; the bytes are the same each time."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

#: Ink where a picture says `currentColor`.
_INK = "#222222"


def has_pdf() -> bool:
    """Return whether what draws PDF files is installed: the extra ``report``."""
    return find_spec("svglib") is not None and find_spec("reportlab") is not None


def pdf(svg: str) -> bytes:
    """Return a picture of `fleetgym.leaderboard.charts.standalone` as a PDF file of one page.

    Raises
    ------
    ImportError
        If the extra ``report`` is not installed.

    Examples
    --------
    >>> from fleetgym.leaderboard.charts import bars_chart, standalone
    >>> pdf(standalone(bars_chart({"hold": {"rental": 1.2}})))[:5] if has_pdf() else b"%PDF-"
    b'%PDF-'
    """
    from reportlab.graphics import renderPDF
    from reportlab.pdfgen.canvas import Canvas
    from svglib.svglib import svg2rlg

    drawing: Any = svg2rlg(io.BytesIO(svg.replace("currentColor", _INK).encode()))
    made = io.BytesIO()
    canvas = Canvas(made, pagesize=(drawing.width, drawing.height), invariant=1)
    renderPDF.draw(drawing, canvas, 0, 0)
    canvas.save()
    return made.getvalue()
