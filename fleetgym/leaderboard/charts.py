"""Draw SVG pictures of scores, by hand, so that they are small, sharp, and the same to the byte.

Text and axes take the colour of the page they stand in (`currentColor`); `standalone` makes a file for a paper.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fleetgym.leaderboard.pages import escaped

#: Told apart on white and on black, and by most of the colour-blind.
COLOURS = ("#3b7dd8", "#e1752f", "#2f9e6b", "#b45cc7", "#c99a1c", "#d2495a", "#2aa3b5", "#8a8f98")
DASHES = (None, "6 3", "2 3")

TERMS = {
    "rental": "#3b7dd8",
    "model_storage": "#2aa3b5",
    "data_storage": "#77b7e0",
    "delay": "#c99a1c",
    "slo": "#e1752f",
    "unserved": "#d2495a",
    "late": "#b45cc7",
    "startup": "#8a8f98",
}

_TICKS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 11.0, 21.0, 51.0, 101.0, 1001.0)


@dataclasses.dataclass(frozen=True)
class LogScale:
    """A logarithmic axis: values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value stands; what is off the axis stands at its end."""
        share = math.log(min(max(value, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return round(self.begin + share * (self.end - self.begin), 2)


def percent_label(ratio: float) -> str:
    """Return a ratio as percent above best-known.

    Examples
    --------
    >>> percent_label(1.25), percent_label(11.0)
    ('25 %', '1,000 %')
    """
    return f"{100.0 * (ratio - 1.0):,.0f} %"


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element of a picture. Attributes that are None are left out; ``class_`` means class.

    Examples
    --------
    >>> print(tag("text", "a < b", text_anchor="end", class_="name"))
    <text text-anchor="end" class="name">a &lt; b</text>
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    head = join(*(Markup(' {}="{}"').format(k, escaped(v)) for k, v in named.items() if v is not None))
    return Markup("<{0}{1}>{2}</{0}>").format(element, head, join(*children))


def join(*children: object) -> Markup:
    """Return elements and text in a row."""
    return Markup("").join(escaped(child) for child in children)


def _svg(width: float, height: float, title: str, *parts: object) -> Markup:
    return tag(
        "svg",
        tag("title", title),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        font_family="system-ui, sans-serif",
        font_size="12",
        fill="currentColor",
    )


def standalone(svg: Markup) -> str:
    """Return a picture as a file of its own: dark on white."""
    return str(svg).replace("<svg ", '<svg color="#222" style="background:#fff" ', 1) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start", **attributes: object) -> Markup:
    return tag("text", text, x=round(x, 2), y=round(y, 2), text_anchor=anchor, **attributes)


def _upright(x: float, y: float, text: str) -> Markup:
    """Write an axis's name from the bottom to the top."""
    return _text(x, y, text, "middle", fill_opacity=0.7, transform=f"rotate(-90 {x:g} {y:g})")


def _grid(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.15) -> Markup:
    return _line(x1, y1, x2, y2, stroke="currentColor", stroke_opacity=opacity)


def _line(x1: float, y1: float, x2: float, y2: float, **stroke: object) -> Markup:
    return tag("line", x1=round(x1, 2), y1=round(y1, 2), x2=round(x2, 2), y2=round(y2, 2), **stroke)


def _look(k: int) -> tuple[str, str | None]:
    return COLOURS[k % len(COLOURS)], DASHES[k // len(COLOURS) % len(DASHES)]


def _ratio_axis(scale: LogScale, top: float, bottom: float) -> Markup:
    """Draw a horizontal axis of ratios with its grid."""
    inside = [tick for tick in _TICKS if scale.low <= tick <= scale.high * 1.0001]
    shown: list[float] = []
    for tick in inside:  # labels may not touch
        if not shown or scale(tick) - scale(shown[-1]) > 46:
            shown.append(tick)
    grid = [_grid(scale(tick), top, scale(tick), bottom, 0.15) for tick in shown]
    labels = [_text(scale(tick), bottom + 16, percent_label(tick), "middle") for tick in shown]
    return join(*grid, *labels)


def profile_chart(curves: Mapping[str, Sequence[tuple[float, float]]], most: float = 11.0) -> Markup:
    """Return a performance profile: share of tasks within a ratio of best-known, one step line per row."""
    width, left, right, top, bottom = 680.0, 66.0, 650.0, 12.0, 260.0
    high = min(most, max([1.25, *(steps[-1][0] for steps in curves.values())]))
    scale = LogScale(1.0, high, left, right)

    def y(share: float) -> float:
        return round(bottom - share * (bottom - top), 2)

    grid = [
        join(_grid(left, y(s), right, y(s), 0.15), _text(left - 6, y(s) + 4, f"{s:.0%}", "end"))
        for s in _FIFTHS
    ]
    lines, legend = [], []
    for k, (name, steps) in enumerate(curves.items()):
        colour, dash = _look(k)
        points = [f"M{scale(1.0)},{y(0.0)}"]
        for ratio, share in steps:
            if ratio > high:
                break
            points.append(f"H{scale(ratio)}V{y(share)}")
        points.append(f"H{scale(high)}")
        stroke = {"stroke": colour, "stroke_dasharray": dash, "stroke_width": 2}
        lines.append(tag("path", d="".join(points), fill="none", **stroke))
        column, line = k % 3, k // 3
        at = 48.0 + column * 208, bottom + 52 + 18 * line
        legend.append(_line(at[0], at[1] - 4, at[0] + 22, at[1] - 4, **stroke))
        legend.append(_text(at[0] + 28, at[1], _short(name, 26)))
    height = bottom + 52 + 18 * math.ceil(len(curves) / 3)
    is_cut = any(steps[-1][0] > high for steps in curves.values() if steps)
    told = "cost above best-known, at most" + (f"; cut off at {percent_label(high)}" if is_cut else "")
    caption = join(
        _text((left + right) / 2, bottom + 34, told, "middle", fill_opacity=0.7),
        _upright(14, (top + bottom) / 2, "share of tasks"),
    )
    title = "Performance profile: share of tasks whose cost is at most so far above best-known"
    return _svg(width, height, title, *grid, _ratio_axis(scale, top, bottom), caption, *lines, *legend)


_FIFTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def _short(name: str, most: int) -> str:
    """Cut out the middle of a long name: settings of one agent differ at its end."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"


def interval_bar(
    score: float, bounds: tuple[float, float], ends: Sequence[float], width: float = 110.0
) -> Markup:
    """Return a score and its interval as a bar beside a number; `ends` are all ratios on the bars' common scale."""
    scale = LogScale(min(ends), max(*ends, min(ends) * 1.01), 4.0, width - 4.0)
    low, at, high = (scale(1 + percent / 100) for percent in (bounds[0], score, bounds[1]))
    return tag(
        "svg",
        _line(low, 6, high, 6, stroke="currentColor", stroke_width=2, stroke_opacity=0.55),
        tag("circle", cx=at, cy=6, r=3, fill="currentColor"),
        viewBox=f"0 0 {width:g} 12",
        width=f"{width:g}",
        height="12",
        class_="bar",
        aria_hidden="true",
    )


def bars_chart(rows: Mapping[str, Mapping[str, float]]) -> Markup:
    """Return stacked bars of the cost terms, in units of the best-known cost; longer bars are cut off and say so."""
    width, left, right, step = 680.0, 190.0, 640.0, 24.0
    totals = [sum(terms.values()) for terms in rows.values()]
    high = max([1.5, *(total for total in totals if total <= 3.0 * min(totals))]) * 1.02
    bottom = 8 + step * len(rows)

    def x(value: float) -> float:
        return round(left + min(value, high) / high * (right - left), 2)

    parts = []
    for k, (name, terms) in enumerate(rows.items()):
        y, begin = 8 + step * k, 0.0
        parts.append(_text(left - 8, y + 15, _short(name, 24), "end"))
        for term, value in terms.items():
            if value > 0 and begin < high:
                box = {
                    "x": x(begin),
                    "y": y + 3,
                    "width": round(x(begin + value) - x(begin), 2),
                    "height": step - 7,
                }
                parts.append(tag("rect", tag("title", f"{term}: {value:.3f}"), fill=TERMS[term], **box))
            begin += value
        if begin > high:
            parts.append(_text(right + 4, y + 15, f"{begin:.1f} ▸"))
    every = [t for t in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0) if t <= high]
    ticks = [t for k, t in enumerate(every) if len(every) <= 8 or t == int(t)]
    axis = [
        join(
            _grid(x(t), 4, x(t), bottom, 0.4 if t == 1.0 else 0.15),
            _text(x(t), bottom + 16, f"{t:g}", "middle"),
        )
        for t in ticks
    ]
    told = "cost relative to best-known = 1" + ("; ▸ cut off" if max(totals, default=0.0) > high else "")
    caption = _text((left + right) / 2, bottom + 34, told, "middle", fill_opacity=0.7)
    legend = []
    for k, (term, colour) in enumerate(TERMS.items()):
        at = 60 + (k % 4) * 150, bottom + 54 + 18 * (k // 4)
        legend.append(tag("rect", x=at[0], y=at[1] - 10, width=12, height=12, fill=colour))
        legend.append(_text(at[0] + 18, at[1], term.replace("_", " ")))
    return _svg(width, bottom + 82, "What the cost is made of", *axis, *parts, caption, *legend)


def interval_chart(rows: Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]]) -> Markup:
    """Return scores by group with intervals: `rows[row][group]` is a percent and its bounds."""
    width, left, right, step = 680.0, 120.0, 650.0, 15.0
    groups = list(dict.fromkeys(group for scores in rows.values() for group in scores))
    shown = [(score, *(bounds or ())) for scores in rows.values() for score, bounds in scores.values()]
    values = [1 + percent / 100 for bar in shown for percent in bar]
    scale = LogScale(min(1.0, *values), max(1.25, *values) * 1.08, left, right)
    y, parts = 12.0, []
    for group in groups:
        top = y
        parts.append(_text(left - 12, top + step * len(rows) / 2 + 4, _short(group, 16), "end"))
        for k, (name, scores) in enumerate(rows.items()):
            if group not in scores:
                continue
            score, interval = scores[group]
            colour, _ = _look(k)
            y_at = round(top + step * (k + 0.5), 2)
            if interval is not None:
                low, high = (scale(1 + bound / 100) for bound in interval)
                parts.append(_line(low, y_at, high, y_at, stroke=colour, stroke_width=2))
            label = tag("title", f"{name}, {group}: {score:.1f} %")
            parts.append(tag("circle", label, cx=scale(1 + score / 100), cy=y_at, r=4, fill=colour))
        y = top + step * len(rows) + 10
        parts.append(_grid(left, y - 5, right, y - 5, 0.25))
    caption = _text(
        (left + right) / 2, y + 34, "percent above best-known, 95 % intervals", "middle", fill_opacity=0.7
    )
    legend = []
    for k, name in enumerate(rows):
        at = left + (k % 3) * 180, y + 54 + 18 * (k // 3)
        legend.append(tag("circle", cx=at[0] + 6, cy=at[1] - 4, r=4, fill=_look(k)[0]))
        legend.append(_text(at[0] + 16, at[1], _short(name, 22)))
    height = y + 60 + 18 * math.ceil(len(rows) / 3)
    return _svg(
        width,
        height,
        "Score by family with intervals",
        _ratio_axis(scale, 8, y - 5),
        *parts,
        caption,
        *legend,
    )


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _label(x: float, y: float, text: str, taken: list[Box], within: Box) -> Markup:
    """Write beside a point where nothing stands yet, as near as that is possible, and note the place as taken."""
    wide = 7.0 * len(text)
    for up in sorted(range(-100, 101, 4), key=abs):
        for begin, anchor in ((x + 9, "start"), (x - 9 - wide, "end")):
            box = begin, y + up - 6, begin + wide, y + up + 6
            is_inside = (
                box[0] >= within[0] and box[1] >= within[1] and box[2] <= within[2] and box[3] <= within[3]
            )
            if is_inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                edge = begin if anchor == "start" else begin + wide
                line = _grid(x, y, edge, y + up, 0.4) if up else Markup("")
                return join(line, _text(edge, y + up + 4, text, anchor))
    end = x + 9 + wide > within[2]  # no room: over others
    return _text(x - 9 if end else x + 9, y + 4, text, "end" if end else "start")


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def scatter_chart(points: Mapping[str, tuple[float, float]]) -> Markup:
    """Return score against CPU seconds per episode: `points[row]` is (CPU seconds, percent above best-known)."""
    width, left, right, top, bottom = 680.0, 82.0, 600.0, 12.0, 280.0
    seconds = [max(cpu, 1e-3) for cpu, _ in points.values()]
    ratios = [1 + score / 100 for _, score in points.values()]
    across = LogScale(
        10 ** math.floor(math.log10(min(seconds))),
        10 ** math.ceil(math.log10(max(seconds) * 1.01)),
        left,
        right,
    )
    up = LogScale(min(1.0, *ratios), max(1.25, *ratios) * 1.1, bottom, top)
    parts = []
    for power in range(round(math.log10(across.low)), round(math.log10(across.high)) + 1):
        x = across(10.0**power)
        parts += [_grid(x, top, x, bottom, 0.15), _text(x, bottom + 16, f"{10.0**power:g}", "middle")]
    last = math.inf
    for tick in _TICKS:
        if up.low <= tick <= up.high and last - up(tick) > 16:
            last = up(tick)
            parts += [
                _grid(left, last, right, last, 0.15),
                _text(left - 6, last + 4, percent_label(tick), "end"),
            ]
    spots = {name: (across(max(cpu, 1e-3)), up(1 + score / 100)) for name, (cpu, score) in points.items()}
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots.values()]
    for k, (name, (cpu, score)) in enumerate(points.items()):
        x, y = spots[name]
        parts.append(
            tag(
                "circle",
                tag("title", f"{name}: {cpu:.3g} s, {score:.1f} %"),
                cx=x,
                cy=y,
                r=5,
                fill=_look(k)[0],
            )
        )
        parts.append(_label(x, y, _short(name, 26), taken, (left, 0.0, width, bottom)))
    caption = join(
        _text((left + right) / 2, bottom + 36, "CPU seconds per episode", "middle", fill_opacity=0.7),
        _upright(14, (top + bottom) / 2, "score: percent above best-known"),
    )
    return _svg(width, bottom + 44, "CPU time and score, percent above best-known", *parts, caption)
