"""Draw an episode as an RGB array: fleet, demand and cost over the day.

Everything is painted into one array; Pillow only draws words, which are kept. A frame takes a few milliseconds,
so that a whole day can be filmed.
"""

from __future__ import annotations

import functools

import numpy as np

from fleetgym.envs.record import EpisodeRecord
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.window import COST_TERMS

WIDTH, HEIGHT = 960, 600

Colour = tuple[int, ...]

_BACKGROUND, _PANEL, _GRID = (255, 255, 255), (246, 247, 249), (225, 228, 232)
_INK, _FAINT = (31, 41, 55), (107, 114, 128)
#: One hue per pool; they stay apart for colour-blind readers (Okabe and Ito).
_HUES = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (148, 103, 189),
    (140, 140, 140),
)
_SERVED, _LATE, _UNSERVED = (142, 190, 212), (242, 165, 65), (204, 37, 59)
#: What the cost panel shows: name, the terms it adds up, colour.
_COSTS = (
    ("GPUs", ("rental", "model_storage"), (0, 114, 178)),
    ("data, delay", ("data_storage", "delay"), (142, 190, 212)),
    ("start-up", ("startup",), (0, 158, 115)),
    ("SLO excess", ("slo",), (148, 103, 189)),
    ("late", ("late",), _LATE),
    ("unserved", ("unserved",), _UNSERVED),
)
_LEFT, _RIGHT, _SIDE = 58, 700, 722  # the panels' sides, and where the column beside them begins
_FLEET, _DEMAND, _MONEY = (84, 238), (278, 420), (460, 562)  # top and bottom of each panel
_MOST_POOLS, _MOST_NAMES = 11, 12
_LARGE = 60  # pixels: a higher panel has grid lines
_END = WIDTH - 14


@functools.lru_cache(maxsize=4096)
def _word(word: str, size: int) -> np.ndarray:
    """Return a word's coverage in [0, 1], (2 size, width), its base line at row 1.5 size."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise FleetgymError(
            "render_mode 'rgb_array' and 'human' need Pillow: pip install 'fleetgym[render]'"
        ) from error
    font = ImageFont.load_default(size)
    image = Image.new("L", (max(1, round(font.getlength(word))), 2 * size))
    ImageDraw.Draw(image).text((0, 1.5 * size), word, 255, font, anchor="ls")
    return np.asarray(image, dtype=np.float32) / 255.0


def _write(
    canvas: np.ndarray, x: float, y: float, text: str, colour: Colour, size: int, align: str = "left"
) -> None:
    """Write text; x is its left end, its right end or its middle, y its base line."""
    words = [_word(word, size) for word in text.split()]
    space = round(0.32 * size)
    width = sum(word.shape[1] for word in words) + space * (len(words) - 1)
    left = round(x) - {"left": 0, "middle": width // 2, "right": width}[align]
    top = round(y - 1.5 * size)
    for word in words:
        place = canvas[top : top + word.shape[0], left : left + word.shape[1]]
        cover = word[: place.shape[0], : place.shape[1], None]
        place[:] = place + cover * (np.array(colour) - place) + 0.5
        left += word.shape[1] + space


def _fill(canvas: np.ndarray, x: float, y: float, width: float, height: int, colour: Colour) -> None:
    canvas[round(y) : round(y) + height, round(x) : round(x + width)] = colour


def _nice(value: float) -> float:
    """Return the least of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is not below `value`."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-9)))
    return float(next(s for s in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if s * power >= value * (1 - 1e-9)) * power)


def _tint(colour: Colour, share: float) -> Colour:
    """Return a colour mixed with a share of white."""
    return tuple(round(part + share * (255 - part)) for part in colour)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _usd(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Picture:
    """Draws an episode of one instance.

    Parameters
    ----------
    instance : Instance
        The problem.

    Raises
    ------
    FleetgymError
        If Pillow is not installed.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> Picture(instance).draw(EpisodeRecord(instance)).shape
    (600, 960, 3)
    """

    def __init__(self, instance: Instance):
        _word("0", 12)
        self.instance = instance
        self.hours = instance.window_s / 3600.0
        pixels = np.arange(_RIGHT - _LEFT)
        self._window_of = pixels * instance.num_windows // pixels.size  # of each column of pixels
        models = list(dict.fromkeys(c.model for c in instance.configurations))
        self._layers: list[tuple[int, np.ndarray, Colour]] = []  # pool, GPUs per replica, colour
        for g in range(instance.num_pools):
            used = [m for m in models if any(self._uses(g, c) for c in self._of(m))]
            for k, model in enumerate(used):
                per_replica = np.zeros(instance.num_configurations, dtype=np.int64)
                per_replica[self._of(model)] = instance.gpu_use[g, self._of(model)]
                self._layers.append((g, per_replica, _tint(self._hue(g), 0.62 * k / max(1, len(used) - 1))))
        self._costs = [
            (name, [COST_TERMS.index(term) for term in terms], colour) for name, terms, colour in _COSTS
        ]

    def _of(self, model: str) -> list[int]:
        return [c for c, each in enumerate(self.instance.configurations) if each.model == model]

    def _uses(self, pool: int, configuration: int) -> bool:
        return bool(self.instance.gpu_use[pool, configuration] > 0)

    def _hue(self, pool: int) -> Colour:
        fade = pool // len(_HUES)
        return _tint(_HUES[pool % len(_HUES)], min(0.5, 0.3 * fade))

    def draw(self, record: EpisodeRecord) -> np.ndarray:
        """Return the episode so far as uint8, (600, 960, 3)."""
        canvas = np.full((HEIGHT, WIDTH, 3), _BACKGROUND, dtype=np.uint8)
        top_gpus, top_usd = self._paint_areas(canvas, record)
        self._write_head(canvas, record)
        self._write_axes(canvas, top_gpus, top_usd)
        self._write_pools(canvas, record)
        self._write_workloads(canvas, record)
        self._write_costs(canvas, record)
        return canvas

    # -- areas --------------------------------------------------------------------------------------------

    def _paint_areas(self, canvas: np.ndarray, record: EpisodeRecord) -> tuple[float, float]:
        """Paint the three panels; return the upper ends of the GPU and the cost axis."""
        n = record.windows
        gpus = np.array([record.held[:n] @ per_replica for _, per_replica, _ in self._layers])
        top_gpus = self._top_gpus(gpus.sum(axis=0))
        self._stack(canvas, _FLEET, gpus / top_gpus, [colour for *_, colour in self._layers])
        self._line(
            canvas[_FLEET[0] : _FLEET[1], _LEFT:_RIGHT], record.available_gpus[:n].sum(axis=1) / top_gpus
        )
        self._paint_lanes(canvas, record)
        terms_usd = record.terms_usd[:n].T / self.hours
        usd_per_h = np.array([terms_usd[terms].sum(axis=0) for _, terms, _ in self._costs])
        top_usd = self._top_usd(usd_per_h.sum(axis=0))
        self._stack(canvas, _MONEY, usd_per_h / top_usd, [colour for *_, colour in self._costs])
        return top_gpus, top_usd

    def _top_gpus(self, held: np.ndarray) -> float:
        nominal = float((self.instance.gpu_use @ self.instance.nominal_fleet).sum())
        return _nice(1.15 * max(1.25 * nominal, float(held.max(initial=1.0))))

    def _top_usd(self, total: np.ndarray) -> float:
        """Leave room for ordinary windows; what costs far more than usual is cut off."""
        usual = float(np.median(total)) if total.size else 1.0
        return _nice(max(1.6 * usual, min(float(total.max(initial=0.0)), 4.0 * usual), 1e-3))

    def _stack(
        self, canvas: np.ndarray, rows: tuple[int, int], shares: np.ndarray, colours: list[Colour]
    ) -> None:
        """Paint a panel with layers upon one another; `shares` of its height, (layers, windows played)."""
        height, windows = rows[1] - rows[0], shares.shape[1]
        edges = np.round(height * (1.0 - np.minimum(1.0, np.cumsum(shares, axis=0)))).astype(np.int64)
        layer_of = np.full((height, self.instance.num_windows), -1, dtype=np.int16)
        if height > _LARGE:
            layer_of[[height // 4, height // 2, 3 * height // 4]] = -2
        row, lower = np.arange(height)[:, None], np.full(windows, height)
        for k in np.flatnonzero(shares.any(axis=1)):
            layer_of[:, :windows][(row >= edges[k]) & (row < lower)] = k
            lower = edges[k]
        palette = np.array([*colours, _GRID, _PANEL], dtype=np.uint8)
        canvas[rows[0] : rows[1], _LEFT:_RIGHT] = palette[layer_of[:, self._window_of]]

    def _line(self, panel: np.ndarray, share: np.ndarray) -> None:
        """Paint a line of steps, two pixels thick; what is above the panel is left out."""
        height = panel.shape[0]
        level = np.round(height * (1.0 - share)).astype(np.int64)[
            self._window_of[self._window_of < share.size]
        ]
        before = np.concatenate((level[:1], level[:-1]))
        upper, lower = np.minimum(level, before), np.maximum(level, before) + 1
        row = np.arange(height)[:, None]
        panel[:, : level.size][(row >= upper - 1) & (row < lower)] = _INK

    def _lanes(self) -> list[tuple[int, int]]:
        """Return top and bottom of each workload's lane."""
        ends = np.linspace(*_DEMAND, self.instance.num_workloads + 1).round().astype(int)
        gap = 4 if self.instance.num_workloads <= _MOST_NAMES else 1
        return [(int(a), int(b) - gap) for a, b in zip(ends[:-1], ends[1:], strict=True)]

    def _paint_lanes(self, canvas: np.ndarray, record: EpisodeRecord) -> None:
        n = record.windows
        for i, (top, bottom) in enumerate(self._lanes()):
            rate, unserved = record.rate_rps[:n, i], record.unserved_share[:n, i]
            late = np.maximum(0.0, record.miss_share[:n, i] - unserved)
            most = max(1.5 * self.instance.workloads[i].rate_rps, float(rate.max(initial=0.0)))
            parts = np.array([1.0 - unserved - late, late, unserved]) * rate / most
            self._stack(canvas, (top, bottom), parts, [_SERVED, _LATE, _UNSERVED])

    # -- text ---------------------------------------------------------------------------------------------

    def _write_head(self, canvas: np.ndarray, record: EpisodeRecord) -> None:
        minutes = int(record.windows * self.instance.window_s) // 60
        _write(canvas, _LEFT, 36, _short(self.instance.id, 40), _INK, 24)
        _write(canvas, _RIGHT, 36, f"{minutes // 60:02d}:{minutes % 60:02d}", _INK, 24, "right")
        _write(canvas, _SIDE, 36, f"{_usd(float(record.terms_usd.sum()))} USD", _INK, 24)
        _write(canvas, _END, 36, "so far", _FAINT, 13, "right")
        titles = (
            (_FLEET, "GPUs held by pool, shaded by model; the line is what is available"),
            (_DEMAND, "Demand by workload"),
            (_MONEY, "Cost, USD per hour"),
        )
        for (top, _), title in titles:
            _write(canvas, _LEFT, top - 9, title, _INK, 14)
        x = float(_RIGHT)
        for colour, name in ((_UNSERVED, "not served"), (_LATE, "late"), (_SERVED, "on time")):
            _write(canvas, x, _DEMAND[0] - 9, name, _FAINT, 13, "right")
            x -= 7.2 * len(name) + 14
            _fill(canvas, x, _DEMAND[0] - 18, 10, 10, colour)
            x -= 14
        missed = float((record.rate_rps * record.miss_share).sum()) / (float(record.rate_rps.sum()) or 1.0)
        if record.windows:
            _write(canvas, _SIDE, _DEMAND[0] - 9, f"{100 * (1 - missed):.1f} % on time", _INK, 14)

    def _write_axes(self, canvas: np.ndarray, top_gpus: float, top_usd: float) -> None:
        for (top, bottom), most in ((_FLEET, top_gpus), (_MONEY, top_usd)):
            for share in (0.0, 0.5, 1.0):
                y = bottom - share * (bottom - top) + 4
                _write(canvas, _LEFT - 7, y, f"{share * most:.4g}", _FAINT, 12, "right")
        hours = self.instance.num_windows * self.hours
        step = next((s for s in (1, 2, 3, 6, 12, 24) if hours / s <= 9), 24)
        for hour in np.arange(0.0, hours + 1e-9, step):
            x = _LEFT + (_RIGHT - _LEFT - 1) * hour / hours
            _fill(canvas, x, _MONEY[1], 1, 5, _FAINT)
            _write(canvas, x, _MONEY[1] + 19, f"{int(hour):02d}:00", _FAINT, 12, "middle")

    def _write_pools(self, canvas: np.ndarray, record: EpisodeRecord) -> None:
        """Write of each pool its name and the GPUs held and available; where there is room, as a bar too."""
        pools, t = self.instance.pools[:_MOST_POOLS], record.windows - 1
        height = min(30.0, (_FLEET[1] - _FLEET[0] + 14) / len(pools))
        held = record.held[t] if t >= 0 else np.array(self.instance.nominal_fleet)
        for g, pool in enumerate(pools):
            y = _FLEET[0] + g * height
            available = int(record.available_gpus[t, g]) if t >= 0 else pool.cap_gpus
            _write(canvas, _SIDE, y, _short(pool.id, 29), self._hue(g), 12)
            count = int(self.instance.gpu_use[g] @ held)
            _write(canvas, _END, y, f"{count}/{available}", _INK, 12, "right")
            if height > 22:
                self._bar(canvas, g, held, available, y + 5)
        if len(self.instance.pools) > _MOST_POOLS:
            more = f"and {len(self.instance.pools) - _MOST_POOLS} more pools"
            _write(canvas, _SIDE, _FLEET[0] + _MOST_POOLS * height, more, _FAINT, 12)

    def _bar(self, canvas: np.ndarray, g: int, held: np.ndarray, available: int, y: float) -> None:
        """Draw a pool's GPUs to scale: held by model, available, and what is gone."""
        unit = (_END - _SIDE) / max(1, self.instance.pools[g].cap_gpus)
        _fill(canvas, _SIDE, y, _END - _SIDE, 8, _PANEL)
        _fill(canvas, _SIDE, y, unit * available, 8, _GRID)
        x = float(_SIDE)
        for pool, per_replica, colour in self._layers:
            if pool == g:
                length = unit * int(per_replica @ held)
                _fill(canvas, x, y, length, 8, colour)
                x += length

    def _write_workloads(self, canvas: np.ndarray, record: EpisodeRecord) -> None:
        if self.instance.num_workloads > _MOST_NAMES:
            return
        for i, (top, bottom) in enumerate(self._lanes()):
            y, t = (top + bottom) / 2 + 4, record.windows - 1
            _write(canvas, _SIDE, y, _short(self.instance.workloads[i].id, 16), _INK, 12)
            if t >= 0:
                missed = 100 * record.miss_share[t, i]
                rate = f"{record.rate_rps[t, i]:.3g} req/s"
                text, ink = (rate, _INK) if missed < 0.5 else (f"{missed:.0f} % missed, {rate}", _UNSERVED)
                _write(canvas, _END, y, text, ink, 12, "right")

    def _write_costs(self, canvas: np.ndarray, record: EpisodeRecord) -> None:
        totals = record.terms_usd.sum(axis=0)
        _write(canvas, _SIDE, _MONEY[0] - 9, "USD so far", _INK, 14)
        for k, (name, terms, colour) in enumerate(reversed(self._costs)):
            y = _MONEY[0] + 12 + 17 * k
            _fill(canvas, _SIDE, y - 10, 10, 10, colour)
            _write(canvas, _SIDE + 18, y, name, _INK, 12)
            _write(canvas, _END, y, _usd(float(totals[terms].sum())), _INK, 12, "right")
