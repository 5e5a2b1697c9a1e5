"""Where speculative decoding pays and where it stops: the ratio to the arm without it, and the acceptance length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, tag
from reckoning.report.figures.curves import concurrency_axis, legend
from reckoning.report.figures.forest import DECIDED
from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.ratios import ratio_ticks
from reckoning.report.figures.svg import MUTED, PAPER, colour
from reckoning.report.quantities import finite

MARGINS = Margins(left=70, down=16)
_COLUMNS = (
    "concurrency",
    "ratio",
    "low",
    "high",
    "n",
    "verdict",
    "acceptance_length",
    "acceptance_low",
    "acceptance_high",
)


def speculation_figure(workload: str, entries: Sequence[Mapping[str, Any]], cast: Cast, sure: str) -> Figure | None:
    """Return the figure, or None when no level has a ratio or an acceptance length."""
    shown = [
        one
        for one in entries
        if any(_has(level, "ratio") or _has(level, "acceptance_length") for level in one["levels"])
    ]
    if not shown:
        return None
    return Figure(
        key=f"speculation-{key_of(workload)}",
        title="Where speculation pays",
        scope=workload,
        caption=(
            f"Above: output tok/s relative to the same arm without speculation, with its {sure} interval; "
            "above 1 it pays. "
            "Below: acceptance length, tokens accepted per verification step. Hollow: no verdict stands."
        ),
        alt=f"Line charts on the workload {workload}. " + " ".join(str(one.get("text") or "") for one in shown),
        data=FigureData(
            ("arm", "label", "reference", *_COLUMNS),
            tuple(
                (one["arm"], cast.label(one["arm"]), one.get("reference"), *map(level.get, _COLUMNS))
                for one in shown
                for level in one["levels"]
            ),
        ),
        draw=lambda sheet: _draw(sheet, shown, cast),
        arms=tuple(one["arm"] for one in shown),
        category="speculation",
        group="speculation",
    )


def _has(level: Mapping[str, Any], name: str) -> bool:
    return finite(level.get(name)) is not None


def _draw(sheet: Sheet, shown: Sequence[Mapping[str, Any]], cast: Cast) -> str:
    levels = sorted({level["concurrency"] for one in shown for level in one["levels"]})
    with drawing(sheet, 430, 2, 1, margins=MARGINS, sharex=True, height_ratios=[3, 2]) as (figure, grid):
        above, below = grid[0, 0], grid[1, 0]
        above.axhline(1, color=MUTED, linewidth=0.9, zorder=1)
        for one in shown:
            _draw_line(above, one, ("ratio", "low", "high"), cast)
            _draw_line(below, one, ("acceptance_length", "acceptance_low", "acceptance_high"), cast)
        _ratio_scale(above, shown)
        above.set_ylabel("ratio to no speculation")
        below.set_ylabel("acceptance length\n(tokens per step)")
        below.set_ylim(bottom=1 if _values(shown, "acceptance_length") else 0)
        concurrency_axis(below, levels)
        if sheet.alone:
            legend(above, [one["arm"] for one in shown], cast)
        return finish(figure, sheet)


def _draw_line(axes: Any, entry: Mapping[str, Any], names: tuple[str, str, str], cast: Cast) -> None:
    middle, low, high = names
    look = cast.look(entry["arm"])
    tone = colour(look)
    known = [level for level in entry["levels"] if _has(level, middle)]
    x = [level["concurrency"] for level in known]
    tag(axes.plot(x, [level[middle] for level in known], color=tone, linestyle=look.dash, linewidth=1.6), entry["arm"])
    for level in known:
        if _has(level, low) and _has(level, high):
            whisker = axes.plot([level["concurrency"]] * 2, [level[low], level[high]], color=tone, linewidth=1.6)
            tag(whisker, entry["arm"])
        filled = middle != "ratio" or level["verdict"] in DECIDED
        dot = axes.plot(
            [level["concurrency"]],
            [level[middle]],
            color=tone,
            marker=look.marker,
            markersize=7,
            markerfacecolor=tone if filled else PAPER,
            zorder=4,
        )
        tag(dot, entry["arm"])


def _ratio_scale(axes: Any, shown: Sequence[Mapping[str, Any]]) -> None:
    ratios = _values(shown, "ratio")
    low, high = min([*ratios, 1]) / 1.12, max([*ratios, 1]) * 1.12
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ratio_ticks(low, high, 7)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))


def _values(shown: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [level[name] for one in shown for level in one["levels"] if _has(level, name)]
