"""How sure are we: where the spread comes from, and whether anything drifted along the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, shortened, tag, text_px
from reckoning.report.figures.curves import legend
from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.svg import INK, MUTED, PAPER, colour
from reckoning.report.quantities import finite, percent


def variance_figure(workload: str, entries: Sequence[Mapping[str, Any]], cast: Cast) -> Figure | None:
    """Return the spread between launches and between repeats, per arm; None when neither can be told."""
    spreads = spread_by_arm(entries, cast)
    if not spreads:
        return None
    worst = max(spreads, key=lambda slug: spreads[slug][0] or 0)
    return Figure(
        key=f"variance-{key_of(workload)}",
        title="Where the spread comes from",
        scope=workload,
        caption=(
            "Relative standard deviation of throughput between launches of one arm (filled) and between "
            "repeats inside a launch "
            "(hollow), root mean square over the levels. Only launches count as n, because only they "
            "repeat the whole set-up."
        ),
        alt=f"Dot plot of spreads for {len(spreads)} arms. The largest spread between launches: {cast.label(worst)} "
        f"with {percent(spreads[worst][0])}.",
        data=FigureData(
            ("arm", "label", "sigma_launch", "sigma_repeat"),
            tuple((slug, cast.label(slug), *spread) for slug, spread in spreads.items()),
        ),
        draw=lambda sheet: _draw_variance(sheet, spreads, cast),
        arms=tuple(spreads),
        category="sureness",
    )


def spread_by_arm(entries: Sequence[Mapping[str, Any]], cast: Cast) -> dict[str, tuple[float | None, float | None]]:
    """Return (between launches, between repeats) per arm: its own pooled entry, else the mean square of its levels."""
    spreads = {}
    for slug in cast.looks:
        own = [one for one in entries if one.get("arm") == slug and one.get("metric") == "output_tok_s"]
        pooled = [one for one in own if one.get("concurrency") is None]
        pair = tuple(
            _root_mean_square([one.get(name) for one in pooled or own]) for name in ("sigma_launch", "sigma_repeat")
        )
        if pair != (None, None):
            spreads[slug] = pair
    return spreads


def _root_mean_square(values: Sequence[Any]) -> float | None:
    known = [number for number in map(finite, values) if number is not None]
    return math.sqrt(sum(one * one for one in known) / len(known)) if known else None


def _draw_variance(sheet: Sheet, spreads: Mapping[str, tuple[float | None, float | None]], cast: Cast) -> str:
    labels = [shortened(cast.label(slug), 18 if sheet.narrow else 32) for slug in spreads]
    with drawing(sheet, 19 * len(spreads) + 70, margins=_row_margins(labels, sheet)) as (figure, grid):
        axes = grid[0, 0]
        for place, (slug, (launch, repeat)) in enumerate(spreads.items()):
            look = cast.look(slug)
            tone = colour(look)
            if launch is not None and repeat is not None:
                tag(axes.plot([100 * launch, 100 * repeat], [place, place], color=tone, linewidth=1.4, alpha=0.6), slug)
            for value, face in ((repeat, PAPER), (launch, tone)):
                if value is not None:
                    dot = axes.plot(
                        [100 * value],
                        [place],
                        color=tone,
                        marker=look.marker,
                        markersize=7,
                        markerfacecolor=face,
                        zorder=4,
                    )
                    tag(dot, slug)
        axes.set_yticks(range(len(spreads)), labels)
        axes.set_ylim(len(spreads) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(4 if sheet.narrow else 8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.set_xlabel("relative standard deviation of output tok/s")
        return finish(figure, sheet)


def _row_margins(labels: Sequence[str], sheet: Sheet) -> Margins:
    return Margins(left=text_px(labels, sheet.font_px - 1) + 14)


def order_figure(
    workload: str,
    estimates: Sequence[Mapping[str, Any]],
    order: Mapping[tuple[str, int], int],
    drift: Mapping[str, Any] | None,
    cast: Cast,
) -> Figure | None:
    """Return every launch's deviation from its arm's mean by its place in the run; None for fewer than 3 launches."""
    points = deviations(estimates, order)
    if len(points) < 3:
        return None
    text = str((drift or {}).get("text") or "")
    return Figure(
        key=f"order-{key_of(workload)}",
        title="Launches in the order they ran",
        scope=workload,
        caption=(
            "Each mark is one launch: its throughput against the mean of its own arm, averaged over the "
            "levels. A slope would be "
            f"drift of the machine; the shuffled blocks keep it out of the comparison. {text}"
        ),
        alt=f"Scatter plot of {len(points)} launches in run order on the workload {workload}. {text}",
        data=FigureData(
            ("order", "block", "arm", "label", "deviation"),
            tuple((place, block, arm, cast.label(arm), value) for place, block, arm, value in points),
        ),
        draw=lambda sheet: _draw_order(sheet, points, drift, cast),
        arms=tuple(slug for slug in cast.looks if any(arm == slug for _, _, arm, _ in points)),
        category="sureness",
        group="curves",
    )


def deviations(
    estimates: Sequence[Mapping[str, Any]], order: Mapping[tuple[str, int], int]
) -> list[tuple[int, int, str, float]]:
    """Return (place in the run, block, arm, relative deviation) per launch, from the levels of `output_tok_s`."""
    logs: dict[tuple[str, int], list[float]] = {}
    for one in estimates:
        centre = finite(one.get("estimate"))
        if one.get("metric") != "output_tok_s" or not centre or len(one.get("launches") or []) < 2:
            continue
        for launch in one["launches"]:
            value = finite(launch.get("value"))
            if value and value > 0 and (one["arm"], launch["block"]) in order:
                logs.setdefault((one["arm"], launch["block"]), []).append(math.log(value / centre))
    points = [(order[key], key[1], key[0], math.expm1(sum(values) / len(values))) for key, values in logs.items()]
    return sorted(points)


def _draw_order(
    sheet: Sheet, points: Sequence[tuple[int, int, str, float]], drift: Mapping[str, Any] | None, cast: Cast
) -> str:
    with drawing(sheet, 250, margins=Margins(left=64)) as (figure, grid):
        axes = grid[0, 0]
        axes.axhline(0, color=MUTED, linewidth=0.9)
        blocks = sorted({block for _, block, _, _ in points})
        for block in blocks:
            first = min(place for place, one, _, _ in points if one == block)
            if block != blocks[0]:
                axes.axvline(first - 0.5, color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
            axes.annotate(
                f"block {block}",
                (first, 1),
                (0, -10),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                fontsize=9.5,
            ).set_color(MUTED)
        _draw_slope(axes, points, drift)
        for place, _, arm, value in points:
            look = cast.look(arm)
            tag(
                axes.plot([place], [100 * value], color=colour(look), marker=look.marker, markersize=6.5, zorder=4), arm
            )
        axes.margins(y=0.25)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %" if value else "0"))
        axes.set_xlabel("place in the run order")
        axes.set_ylabel("against the arm's mean")
        if sheet.alone:
            legend(axes, [slug for slug in cast.looks if any(arm == slug for _, _, arm, _ in points)], cast)
        return finish(figure, sheet)


def _draw_slope(axes: Any, points: Sequence[tuple[int, int, str, float]], drift: Mapping[str, Any] | None) -> None:
    slope = finite((drift or {}).get("slope_per_launch"))
    if slope is None:
        return
    places = [points[0][0], points[-1][0]]
    middle = sum(places) / 2
    axes.plot(
        places, [100 * slope * (place - middle) for place in places], color=INK, linewidth=1.2, linestyle=(0, (6, 3))
    )
