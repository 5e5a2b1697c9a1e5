"""Throughput against concurrency: the estimate, its interval as a band, and every launch as a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, shortened, tag
from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.svg import PAPER, colour
from reckoning.report.quantities import finite, significant, with_interval

Estimate = Mapping[str, Any]


def by_arm(estimates: Sequence[Estimate], cast: Cast) -> dict[str, list[Estimate]]:
    """Return the estimates that have a value, per arm in the plan's order and by rising concurrency."""
    grouped: dict[str, list[Estimate]] = {slug: [] for slug in cast.looks}
    for estimate in estimates:
        if finite(estimate.get("estimate")) is not None or estimate.get("launches"):
            grouped.setdefault(estimate["arm"], []).append(estimate)
    return {slug: sorted(rows, key=lambda row: row["concurrency"]) for slug, rows in grouped.items() if rows}


def throughput_figure(workload: str, estimates: Sequence[Estimate], cast: Cast, sure: str) -> Figure:
    """Return output tokens per second against concurrency for one workload."""
    arms = by_arm(estimates, cast)
    return Figure(
        key=f"throughput-{key_of(workload)}",
        title="Throughput against concurrency",
        scope=workload,
        caption=(
            "Output tokens per second in the steady window. Line: geometric mean over launches; band: "
            f"{sure} interval over launches; small marks: single launches, "
            "hollow when kept out of verdicts."
        ),
        alt=_alt(workload, arms, cast),
        data=launch_rows(arms, cast),
        draw=lambda sheet: _draw(sheet, arms, cast),
        arms=tuple(arms),
        category="throughput",
        group="curves",
    )


def launch_rows(arms: Mapping[str, Sequence[Estimate]], cast: Cast) -> FigureData:
    """Return one row per arm, level and launch, with the estimate and interval of the level beside it."""
    columns = ("arm", "label", "workload", "concurrency", "metric", "unit", "estimate", "low", "high", "n")
    rows = []
    for slug, estimates in arms.items():
        for row in estimates:
            head = (slug, cast.label(slug), *(row.get(name) for name in columns[2:]))
            launches = row.get("launches") or [{}]
            rows += [(*head, one.get("block"), one.get("value"), one.get("rankable")) for one in launches]
    return FigureData((*columns, "block", "launch_value", "in_verdicts"), tuple(rows))


def _draw(sheet: Sheet, arms: Mapping[str, Sequence[Estimate]], cast: Cast) -> str:
    with drawing(sheet, 330 if sheet.narrow else 400, margins=Margins()) as (figure, grid):
        axes = grid[0, 0]
        for slug, rows in arms.items():
            _draw_arm(axes, slug, rows, cast)
        levels = sorted({row["concurrency"] for rows in arms.values() for row in rows})
        concurrency_axis(axes, levels)
        axes.set_ylabel("output tokens per second (tok/s)")
        axes.set_ylim(0, top_of([row for rows in arms.values() for row in rows]))
        if sheet.alone:
            legend(axes, list(arms), cast)
        return finish(figure, sheet)


def top_of(estimates: Sequence[Estimate]) -> float:
    """Return the upper end of an axis with every estimate and launch; an interval far above them leaves the frame."""
    values = [one["value"] for row in estimates for one in row.get("launches") or []]
    values += [row["estimate"] for row in estimates]
    most = max((value for value in values if finite(value) is not None), default=1)
    highs = [row["high"] for row in estimates if finite(row.get("high")) is not None]
    return 1.06 * max(most, min(max(highs, default=0), 1.5 * most))


def _draw_arm(axes: Any, slug: str, rows: Sequence[Estimate], cast: Cast) -> None:
    look = cast.look(slug)
    tone = colour(look)
    whole = [row for row in rows if finite(row["estimate"]) is not None]
    band = [row for row in whole if finite(row["low"]) is not None and finite(row["high"]) is not None]
    if len(band) > 1:
        levels = [row["concurrency"] for row in band]
        low, high = [row["low"] for row in band], [row["high"] for row in band]
        tag(axes.fill_between(levels, low, high, color=tone, alpha=0.16, linewidth=0), slug)
    if band:
        ends = [[row[name] for row in band] for name in ("concurrency", "low", "high")]
        tag(axes.vlines(*ends, color=tone, linewidth=1.2, alpha=0.8), slug)
    if whole:
        line = axes.plot(
            [row["concurrency"] for row in whole],
            [row["estimate"] for row in whole],
            color=tone,
            linestyle=look.dash,
            linewidth=1.9,
            marker=look.marker,
            markersize=7,
            markeredgecolor=PAPER,
            markeredgewidth=0.8,
            zorder=4,
        )
        tag(line, slug)
    _draw_launches(axes, slug, rows, tone, look.marker)


def _draw_launches(axes: Any, slug: str, rows: Sequence[Estimate], tone: str, marker: str) -> None:
    levels = [row["concurrency"] for row in rows]
    aside = max(max(levels) / min(levels), 1.5) ** 0.008
    points = [
        (row["concurrency"], one) for row in rows for one in row.get("launches", []) if finite(one["value"]) is not None
    ]
    for rankable in (True, False):
        chosen = [(level, one["value"]) for level, one in points if bool(one.get("rankable")) is rankable]
        if chosen:
            dots = axes.plot(
                [level * aside for level, _ in chosen],
                [value for _, value in chosen],
                linestyle="none",
                marker=marker,
                markersize=3.4,
                color=tone,
                markerfacecolor=tone if rankable else PAPER,
                markeredgewidth=0.9,
                alpha=0.85,
                zorder=3,
            )
            tag(dots, slug)


def concurrency_axis(axes: Any, levels: Sequence[int]) -> None:
    """Give the x axis a log scale with a tick at every measured level."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(levels)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(min(levels) / 1.15, max(levels) * 1.2)
    axes.set_xlabel("concurrent requests (C)")


def legend(axes: Any, slugs: Sequence[str], cast: Cast) -> None:
    """Draw the legend that a lone SVG needs; in the page the buttons under the figure are the legend."""
    handles = [
        Line2D([], [], color=colour(cast.look(slug)), marker=cast.look(slug).marker, linestyle=cast.look(slug).dash)
        for slug in slugs
    ]
    axes.figure.legend(
        handles, [shortened(cast.label(slug), 30) for slug in slugs], loc="outside lower center", ncols=4, frameon=False
    )


def _alt(workload: str, arms: Mapping[str, Sequence[Estimate]], cast: Cast) -> str:
    levels = sorted(
        {row["concurrency"] for rows in arms.values() for row in rows if finite(row["estimate"]) is not None}
    )
    if not levels:
        return f"No arm has a throughput on the workload {workload}."
    sentences = [
        f"Line chart of output tokens per second against concurrency for {len(arms)} arms on the workload {workload}."
    ]
    for level in dict.fromkeys((levels[0], levels[-1])):
        ranked = sorted(
            (
                row
                for rows in arms.values()
                for row in rows
                if row["concurrency"] == level and finite(row["estimate"]) is not None
            ),
            key=lambda row: -row["estimate"],
        )
        best, last = ranked[0], ranked[-1]
        text = f"At C={level} the highest is {cast.label(best['arm'])} with {_amount(best)}"
        if last is not best:
            text += f", the lowest {cast.label(last['arm'])} with {significant(last['estimate'])} tok/s"
        sentences.append(text + ".")
    return " ".join(sentences)


def _amount(row: Estimate) -> str:
    return with_interval(row["estimate"], row["low"], row["high"], "tok/s")
