"""The curves of a comparison as a picture, with their bootstrap intervals. Drawn with Pillow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srl.core.errors import UserError
from srl.core.text import figure
from srl.dashboard.compare import Comparison, Group
from srl.dashboard.statistics import interval
from srl.store.atomic import writing

COLOURS = ("#2f7fd9", "#e2763b", "#2e9e68", "#b04fb5", "#c9a227", "#1fa3b8", "#d2496a", "#7a6fd0", "#7f9b2f", "#8a6a54")
"""Those of the page."""
_FINE = 2
"""Everything is drawn so many times as large, and made smaller at the end: smooth lines."""
_SIZE = (1100, 640)
_POINTS, _RESAMPLES = 120, 300


def write_png(found: Comparison, path: Path) -> None:
    """Write the picture."""
    try:
        image, draw, font = (importlib.import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont"))
    except ImportError as error:
        hint = "pip install 'really-scalable-rl[video]'"
        raise UserError("this picture needs the package pillow", ("found", str(error)), ("try", hint)) from error
    groups = [group for group in found.groups if group.curves]
    if not groups:
        raise UserError(f"there is nothing to draw: no run has reported {found.metric}")
    wide, high = (_FINE * side for side in _SIZE)
    picture = image.new("RGB", (wide, high), "white")
    pen = draw.Draw(picture, "RGBA")
    words = font.load_default(15 * _FINE)
    grid = np.linspace(0, found.last, _POINTS)
    bands = [_band(group, grid) for group in groups]
    known = np.concatenate([band[~np.isnan(band)] for band in bands])
    low, top = float(known.min()), float(known.max())
    low, top = low - 0.04 * (top - low or 1), top + 0.04 * (top - low or 1)
    left, right, upper, lower = 84 * _FINE, wide - 24 * _FINE, (24 + 24 * len(groups)) * _FINE, high - 56 * _FINE

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * x / (found.last or 1), lower - (lower - upper) * (y - low) / (top - low or 1)

    for value in _ticks(low, top):
        _, y = place(0, value)
        pen.line([(left, y), (right, y)], fill="#e3e7eb", width=_FINE)
        pen.text((left - 8 * _FINE, y), figure(value), fill="#5b6875", font=words, anchor="rm")
    for value in _ticks(0, found.last):
        x, _ = place(value, 0)
        pen.text((x, lower + 8 * _FINE), figure(int(value)), fill="#5b6875", font=words, anchor="ma")
    pen.text(((left + right) / 2, high - 10 * _FINE), f"env steps ({found.metric})", fill="#16202b", font=words, anchor="ms")
    for number, (group, band) in enumerate(zip(groups, bands, strict=True)):
        _draw(pen, grid, band, place, COLOURS[number % len(COLOURS)])
        y = (18 + 24 * number) * _FINE
        pen.line([(left, y), (left + 26 * _FINE, y)], fill=COLOURS[number % len(COLOURS)], width=4 * _FINE)
        text = f"{group.label} ({len(group.curves)} {'run' if len(group.curves) == 1 else 'runs'})"
        pen.text((left + 36 * _FINE, y), text, fill="#16202b", font=words, anchor="lm")
    with writing(path):
        picture.resize(_SIZE, image.Resampling.LANCZOS).save(path, "PNG")


def _band(group: Group, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value, low and high at each point `[3, points]`; NaN where one of its runs was not."""
    values = group.returns(grid)
    band = np.full((3, len(grid)), np.nan)
    for at in np.flatnonzero(~np.isnan(values).any(axis=0)):
        found = interval([values[:, at]], resamples=_RESAMPLES)
        band[:, at] = found.value, found.low, found.high
    return band


def _draw(pen: Any, grid: NDArray[np.float64], band: NDArray[np.float64], place: Any, colour: str) -> None:
    shown = np.flatnonzero(~np.isnan(band[0]))
    upper = [place(grid[at], band[2, at]) for at in shown]
    lower = [place(grid[at], band[1, at]) for at in shown]
    if len(shown) > 1:
        pen.polygon([*upper, *reversed(lower)], fill=f"{colour}33")
        pen.line([place(grid[at], band[0, at]) for at in shown], fill=colour, width=2 * _FINE, joint="curve")


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers."""
    if not high > low:
        return [low]
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [float(step * number) for number in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]
