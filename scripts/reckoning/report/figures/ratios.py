"""Ratios with intervals as rows of marks, one panel per level: the drawing that forest plots of every kind share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, shortened, tag, text_px
from reckoning.report.figures.model import Cast
from reckoning.report.figures.svg import INK, MUTED, PAPER, ZONE, colour
from reckoning.report.quantities import finite


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval in a row (lines of its label) and panel; `mark` stands at the edge for the verdict."""

    row: tuple[str, ...]
    panel: str
    slug: str
    ratio: float
    low: float | None
    high: float | None
    decided: bool
    mark: str = ""


def draw_ratios(sheet: Sheet, ratios: Sequence[Ratio], cast: Cast, margin: float | None, axis: str) -> str:
    """Return the SVG of rows of ratios on a log axis, with the zone of equivalence within `margin` (a share) shaded."""
    panels = list(dict.fromkeys(one.panel for one in ratios))
    places = {key: place for place, key in enumerate(dict.fromkeys((one.slug, one.row) for one in ratios))}
    names = [_row_label(row, sheet) for _, row in places]
    columns = min(2 if sheet.narrow else (4 if len(panels) == 4 else 3), len(panels))
    rows = math.ceil(len(panels) / columns)
    height = rows * ((30 if any("\n" in name for name in names) else 18) * len(names) + 46) + 44
    margins = Margins(left=text_px(names, sheet.font_px - 1) + 14, top=26, across=22, right=22, down=46, bottom=52)
    with drawing(sheet, height, rows, columns, margins=margins, sharey=True, sharex=True) as (figure, grid):
        cells = list(grid.flat)
        for axes, panel in zip(cells, panels, strict=False):
            _frame(axes, panel, names, margin)
            for one in ratios:
                if one.panel == panel:
                    _mark(axes, one, places[one.slug, one.row], cast)
        for axes in cells[len(panels) :]:
            axes.set_visible(False)
        most = 3 if sheet.narrow and columns > 1 else 5 if columns > 2 else 7
        _ratio_axis(cells[0], ratios, margin, most)
        _label_lowest(grid, len(panels))
        figure.supxlabel(axis, fontsize=sheet.font_px, color=INK)
        return finish(figure, sheet)


def _row_label(row: tuple[str, ...], sheet: Sheet) -> str:
    """Return the lines of a row's label; a narrow drawing keeps the last one, which names the arms."""
    lines = row[-1:] if sheet.narrow else row
    return "\n".join(shortened(line, 22 if sheet.narrow else 40) for line in lines)


def _frame(axes: Any, panel: str, names: Sequence[str], margin: float | None) -> None:
    if margin is not None:
        axes.axvspan(1 / (1 + margin), 1 + margin, color=ZONE, linewidth=0, zorder=0.2)
    axes.axvline(1, color=MUTED, linewidth=0.9, zorder=1)
    axes.set_title(panel, loc="left")
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _mark(axes: Any, one: Ratio, place: float, cast: Cast) -> None:
    look = cast.look(one.slug)
    tone = colour(look)
    if one.low is not None and one.high is not None:
        tag(axes.plot([one.low, one.high], [place, place], color=tone, linewidth=1.8, zorder=3), one.slug)
    dot = axes.plot(
        [one.ratio],
        [place],
        linestyle="none",
        marker=look.marker,
        markersize=6.5,
        color=tone,
        markerfacecolor=tone if one.decided else PAPER,
        markeredgewidth=1.3,
        zorder=4,
    )
    tag(dot, one.slug)
    if one.mark:
        word = axes.annotate(
            one.mark, (1, place), (2, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center"
        )
        word.set(color=MUTED, fontsize=9)


def _label_lowest(grid: Any, shown: int) -> None:
    """Put tick labels under the lowest visible panel of each column, which a ragged last row would otherwise lack."""
    rows, columns = grid.shape
    for column in range(columns):
        lowest = max(row for row in range(rows) if row * columns + column < shown)
        grid[lowest, column].tick_params(labelbottom=True)


def _ratio_axis(axes: Any, ratios: Sequence[Ratio], margin: float | None, most: int) -> None:
    """Set a log axis that holds every interval, but for ends so far off that they would flatten the rest."""
    values = [one.ratio for one in ratios]
    ends = [end for one in ratios for end in (one.low, one.high) if finite(end) is not None and end > 0]
    zone = 1 + (margin or 0.01)
    low = max(min([*values, *ends, 1 / zone]), min([*values, 1]) / 3) / 1.05
    high = min(max([*values, *ends, zone]), max([*values, 1]) * 3) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ratio_ticks(low, high, most)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))


def ratio_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round ratios between `low` and `high`, with 1 when it lies between, at most about `most` of them."""
    for steps in ((0.01,), (0.02,), (0.05,), (0.1,), (0.2,), (0.25,), (0.5,)):
        count = int(max(high, 1) / steps[0]) + 1
        ticks = [round(1 + steps[0] * place, 3) for place in range(-count, count)]
        ticks = [tick for tick in ticks if tick > 0 and low <= tick <= high]
        if high / low < 4 and len(ticks) <= most:
            return ticks
    ladder = [base * 10**power for power in range(-3, 4) for base in (1, 2, 5)]
    ticks = [tick for tick in ladder if low <= tick <= high]
    while len(ticks) > most:
        ticks = (
            [tick for tick in ticks if tick == 1 or ticks.index(tick) % 2 == ticks.index(1) % 2]
            if 1 in ticks
            else ticks[::2]
        )
    return ticks
