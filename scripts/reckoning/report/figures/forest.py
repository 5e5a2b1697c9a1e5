"""Ratios to the baseline with their intervals, the equivalence zone and the verdict: one panel per level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reckoning.report.figures.canvas import INK, MUTED, PAPER, ZONE, Sheet, colour, drawing, finish, tag
from reckoning.report.figures.curves import key_of
from reckoning.report.figures.model import Cast, Figure, FigureData
from reckoning.report.palette import ArmLook
from reckoning.report.quantities import finite, with_interval

Contrast = Mapping[str, Any]
DECIDED = frozenset({"faster", "slower", "equivalent", "higher", "lower"})
_COLUMNS = (
    "workload",
    "concurrency",
    "metric",
    "ratio",
    "low",
    "high",
    "n",
    "p",
    "p_holm",
    "p_equivalence",
    "verdict",
    "note",
)


def forest_figure(workload: str, contrasts: Sequence[Contrast], cast: Cast, margin: float, confidence: float) -> Figure:
    """Return the forest plot of throughput ratios to the baseline for one workload."""
    shown = [one for one in contrasts if finite(one.get("ratio")) is not None]
    order = {slug: place for place, slug in enumerate(cast.looks)}
    shown.sort(key=lambda one: (one["concurrency"], order.get(one["arm"], len(order))))
    reference = cast.label(shown[0]["reference"]) if shown else "the baseline"
    return Figure(
        key=f"forest-{key_of(workload)}",
        title=f"Throughput relative to {reference}: {workload}",
        caption=(
            f"Ratio of output tok/s to {reference}, paired by block, with its {100 * confidence:g} % interval. "
            f"The shaded zone is equivalence within {100 * margin:g} %. "
            "Filled: a verdict stands after Holm's correction; hollow: inconclusive."
        ),
        alt=_alt(workload, shown, cast, reference),
        data=FigureData(
            ("arm", "label", "reference", *_COLUMNS),
            tuple(
                (one["arm"], cast.label(one["arm"]), one["reference"], *(one.get(name) for name in _COLUMNS))
                for one in shown
            ),
        ),
        draw=lambda sheet: _draw(sheet, shown, cast, margin),
        arms=tuple(dict.fromkeys(one["arm"] for one in shown)),
        category="Verdicts",
    )


def _draw(sheet: Sheet, shown: Sequence[Contrast], cast: Cast, margin: float) -> str:
    levels = sorted({one["concurrency"] for one in shown})
    arms = [slug for slug in cast.looks if any(one["arm"] == slug for one in shown)]
    columns = min(2 if sheet.narrow else (3 if len(levels) != 4 else 4), len(levels))
    rows = math.ceil(len(levels) / columns)
    height = rows * (17 * len(arms) + 46) + 34
    with drawing(sheet, height, rows, columns, sharey=True, sharex=True) as (figure, grid):
        panels = list(grid.flat)
        for axes, level in zip(panels, levels, strict=False):
            _frame_level(axes, level, arms, cast, margin)
            for one in shown:
                if one["concurrency"] == level:
                    ratio_mark(axes, one, arms.index(one["arm"]), cast.looks[one["arm"]], one["arm"])
        for axes in panels[len(levels) :]:
            axes.set_visible(False)
        _ratio_axis(panels[0], shown, margin, narrow=columns > 1)
        figure.supxlabel("ratio to the baseline (log scale)", fontsize=sheet.font_px, color=INK)
        return finish(figure, sheet)


def _frame_level(axes: Any, level: int, arms: Sequence[str], cast: Cast, margin: float) -> None:
    axes.axvspan(1 / (1 + margin), 1 + margin, color=ZONE, linewidth=0, zorder=0.2)
    axes.axvline(1, color=MUTED, linewidth=0.9, zorder=1)
    axes.set_title(f"C = {level}", loc="left")
    axes.set_yticks(range(len(arms)), [cast.label(slug) for slug in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def ratio_mark(axes: Any, one: Contrast, place: float, look: ArmLook, slug: str) -> None:
    """Draw one ratio with its interval at a height; filled where a verdict stands, hollow where it does not."""
    tone = colour(look)
    if finite(one["low"]) is not None and finite(one["high"]) is not None:
        tag(axes.plot([one["low"], one["high"]], [place, place], color=tone, linewidth=1.8, zorder=3), slug)
    dot = axes.plot(
        [one["ratio"]],
        [place],
        linestyle="none",
        marker=look.marker,
        markersize=7,
        color=tone,
        markerfacecolor=tone if one["verdict"] in DECIDED else PAPER,
        markeredgewidth=1.3,
        zorder=4,
    )
    tag(dot, slug)


def _ratio_axis(axes: Any, shown: Sequence[Contrast], margin: float, narrow: bool) -> None:
    """Set a log axis that holds every interval, but for ends so far off that they would flatten the rest."""
    ratios = [one["ratio"] for one in shown]
    ends = [value for one in shown for value in (one["low"], one["high"]) if finite(value) is not None and value > 0]
    low = max(min([*ratios, *ends, 1 / (1 + margin)]), min(ratios) / 3) / 1.05
    high = min(max([*ratios, *ends, 1 + margin]), max([*ratios, 1]) * 3) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low <= tick <= high]
    if high / low < 2.6:
        step = 0.02 if high / low < 1.15 else 0.05 if high / low < 1.3 else 0.1 if high / low < 1.7 else 0.25
        step *= 2 if narrow else 1
        count = int(2 / step)
        ticks = [round(1 + step * place, 3) for place in range(-count, count) if low <= 1 + step * place <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))


def _alt(workload: str, shown: Sequence[Contrast], cast: Cast, reference: str) -> str:
    if not shown:
        return f"No ratio to the baseline can be given on the workload {workload}."
    words = [f"Forest plot of throughput ratios to {reference} on the workload {workload}."]
    for level in sorted({one["concurrency"] for one in shown}):
        ones = [one for one in shown if one["concurrency"] == level]
        parts = [
            f"{cast.label(one['arm'])} {with_interval(one['ratio'], one['low'], one['high'], '×')} {one['verdict']}"
            for one in ones
        ]
        words.append(f"C={level}: " + ", ".join(parts) + ".")
    return " ".join(words)
