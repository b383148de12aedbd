"""PDF files of our own SVG pictures: the same lines, boxes, circles and words, and the same bytes each time.

A picture is drawn on white at one point per pixel. Words are set in Helvetica, which every viewer has, so they can be
searched and copied. Signs that this font lacks become question marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

#: Ink where a picture says `currentColor`.
_INK = "#222222"
#: Widths of Helvetica's signs 32 to 126, in thousandths of its size (Adobe's metrics of the font).
_WIDTHS = (
    [278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278]
    + [556] * 10
    + [278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556]
    + [833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556]
    + [333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333]
    + [500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584]
)
_OTHERS = {"…": 1000, "–": 556, "»": 556}
#: Share of a circle's radius at which Bézier curves have their handles.
_HANDLE = 0.5523


def pdf(svg: str) -> bytes:
    """Return a picture of `fleetgym.leaderboard.charts` as a PDF file of one page.

    Examples
    --------
    >>> from fleetgym.leaderboard.charts import bars_chart
    >>> pdf(bars_chart({"hold": {"rental": 1.2}}))[:8]
    b'%PDF-1.4'
    """
    root = ElementTree.fromstring(svg)
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    size = float(root.attrib.get("font-size", "12"))
    drawn = [f"1 0 0 -1 0 {height:g} cm", *_drawn(root, size)]
    content = "\n".join(drawn).encode("cp1252")
    title = next((e.text or "" for e in root if _name(e) == "title"), "")
    font = "/Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:g} {height:g}] /Contents 4 0 R "
        "/Resources << /Font << /F 5 0 R >> >> >>".encode(),
        f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream",
        f"<< {font} >>".encode(),
        f"<< /Title {_string(title)} >>".encode("cp1252"),
    ]
    return _file(objects)


def _file(objects: list[bytes]) -> bytes:
    """Return a PDF file: its objects, the first of which is the catalog and the last one what it says of itself."""
    found, places = b"%PDF-1.4\n", []
    for k, each in enumerate(objects, 1):
        places.append(len(found))
        found += f"{k} 0 obj\n".encode() + each + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    count = len(objects) + 1
    end = (
        f"trailer\n<< /Size {count} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{len(found)}\n%%EOF\n"
    )
    return found + f"xref\n0 {count}\n0000000000 65535 f \n{table}{end}".encode()


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _drawn(root: ElementTree.Element, size: float) -> Iterator[str]:
    """Yield what draws each element, in coordinates that grow downwards."""
    for element in root:
        kind, at = _name(element), element.attrib
        if kind == "line":
            path = f"{_at(at, 'x1', 'y1')} m {_at(at, 'x2', 'y2')} l"
        elif kind == "path":
            path = _path(at["d"])
        elif kind == "rect":
            path = f"{_at(at, 'x', 'y', 'width', 'height')} re"
        elif kind == "circle":
            path = _circle(*(float(at[key]) for key in ("cx", "cy", "r")))
        elif kind == "text":
            yield from _text(element.text or "", at, size)
            continue
        else:
            continue
        if kind in ("line", "path"):
            dash = at.get("stroke-dasharray", "")
            yield f"q {_colour(at.get('stroke'), at.get('stroke-opacity'))} RG"
            yield f"{float(at.get('stroke-width', 1)):g} w [{dash}] 0 d {path} S Q"
        else:
            yield f"{_colour(at.get('fill'), at.get('fill-opacity'))} rg {path} f"


def _at(attributes: Mapping[str, str], *names: str) -> str:
    return " ".join(f"{float(attributes[name]):g}" for name in names)


def _path(steps: str) -> str:
    """Return a path of moves to a point and of lines to the side, up, and down."""
    found, x, y = [], "0", "0"
    for sign, numbers in re.findall(r"([MHV])([-0-9.,e]+)", steps):
        if sign == "M":
            x, y = numbers.split(",")
        elif sign == "H":
            x = numbers
        else:
            y = numbers
        found.append(f"{x} {y} {'m' if sign == 'M' else 'l'}")
    return " ".join(found)


def _circle(x: float, y: float, r: float) -> str:
    """Return a circle as four curves."""
    h = _HANDLE * r
    quarters = [
        (x + r, y + h, x + h, y + r, x, y + r),
        (x - h, y + r, x - r, y + h, x - r, y),
        (x - r, y - h, x - h, y - r, x, y - r),
        (x + h, y - r, x + r, y - h, x + r, y),
    ]
    curves = (" ".join(f"{value:.2f}" for value in quarter) + " c" for quarter in quarters)
    return f"{x + r:.2f} {y:.2f} m {' '.join(curves)}"


def _text(text: str, attributes: Mapping[str, str], size: float) -> Iterator[str]:
    shown = text.replace("▸", "»").encode("cp1252", "replace").decode("cp1252")
    x, y = float(attributes["x"]), float(attributes["y"])
    wide = sum(map(_width, shown)) * size / 1000
    back = {"middle": wide / 2, "end": wide}.get(attributes.get("text-anchor", "start"), 0.0)
    is_upright = "transform" in attributes  # from the bottom to the top
    place = f"0 -1 -1 0 {x:.2f} {y + back:.2f}" if is_upright else f"1 0 0 -1 {x - back:.2f} {y:.2f}"
    colour = _colour(attributes.get("fill"), attributes.get("fill-opacity"))
    yield f"BT /F {size:g} Tf {colour} rg {place} Tm {_string(shown)} Tj ET"


def _width(sign: str) -> int:
    place = ord(sign) - 32
    return _WIDTHS[place] if 0 <= place < len(_WIDTHS) else _OTHERS.get(sign, 556)


def _string(text: str) -> str:
    return "(" + re.sub(r"([\\()])", r"\\\1", re.sub(r"[\r\n\t]", " ", text)) + ")"


def _colour(named: str | None, opacity: str | None) -> str:
    """Return a colour as it looks on white."""
    code = _INK if named in (None, "currentColor") else str(named)
    share = float(opacity or 1)
    parts = (int(code[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return " ".join(f"{share * part + 1 - share:.3f}" for part in parts)
