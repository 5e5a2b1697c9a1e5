"""How long requests wait: distributions of TTFT and TPOT at the lowest and the highest level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, tag
from reckoning.report.figures.curves import legend
from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.svg import colour
from reckoning.report.quantities import significant

MARGINS = Margins(left=48, top=26, across=62, down=70)
METRICS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT"}
SHARES = np.unique(np.round(np.concatenate([np.linspace(0.05, 0.95, 19), [0.01, 0.98, 0.99, 0.995]]), 4))


def distribution_figure(workload: str, distributions: pd.DataFrame, cast: Cast) -> Figure | None:
    """Return the CDFs, from a table (arm, workload, concurrency, metric, block, q, value); None when it holds none."""
    own = distributions[(distributions["workload"] == workload) & distributions["metric"].isin(METRICS)]
    curves = launch_curves(own, cast)
    if curves.empty:
        return None
    levels = sorted(curves["concurrency"].unique())
    shown = list(dict.fromkeys((levels[0], levels[-1])))
    curves = curves[curves["concurrency"].isin(shown)]
    return Figure(
        key=f"latency-{key_of(workload)}",
        title="Latency distributions",
        scope=workload,
        caption=(
            "Share of requests that were at least this quick (TTFT: time to first token; TPOT: time per "
            "output token). Line: mean "
            "over launches; band (wide screens): from the quickest launch to the slowest. Left and high is better."
        ),
        alt=_alt(workload, curves, cast),
        data=_data(curves, cast),
        draw=lambda sheet: _draw(sheet, curves, shown, cast),
        arms=tuple(slug for slug in cast.looks if (curves["arm"] == slug).any()),
        category="latency",
        group="curves",
    )


def launch_curves(table: pd.DataFrame, cast: Cast) -> pd.DataFrame:
    """Return, per arm, level, metric and share: geometric mean, lowest and highest of the launches' quantiles."""
    rows = []
    for (arm, level, metric), group in table.groupby(["arm", "concurrency", "metric"], sort=False):
        quantiles = [_at_shares(launch) for _, launch in group.groupby("block")]
        quantiles = [one for one in quantiles if one is not None]
        if arm not in cast.looks or not quantiles:
            continue
        stack = np.vstack(quantiles)
        middle = np.exp(np.log(np.maximum(stack, 1e-9)).mean(axis=0))
        rows += [
            (arm, int(level), metric, share, *values, len(quantiles))
            for share, *values in zip(SHARES, middle, stack.min(axis=0), stack.max(axis=0), strict=True)
        ]
    columns = [
        "arm",
        "concurrency",
        "metric",
        "share",
        "value_ms",
        "quickest_launch_ms",
        "slowest_launch_ms",
        "launches",
    ]
    return pd.DataFrame(rows, columns=columns)


def _at_shares(launch: pd.DataFrame) -> np.ndarray | None:
    known = launch[["q", "value"]].replace([np.inf, -np.inf], np.nan).dropna().sort_values("q")
    known = known[known["value"] > 0]
    return np.interp(SHARES, known["q"], known["value"]) if len(known) > 1 else None


def _draw(sheet: Sheet, curves: pd.DataFrame, levels: Sequence[int], cast: Cast) -> str:
    metrics = [metric for metric in METRICS if (curves["metric"] == metric).any()]
    pairs = [(metric, level) for metric in metrics for level in levels]
    columns = 1 if sheet.narrow else min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    with drawing(sheet, rows * (210 if sheet.narrow else 235) + 20, rows, columns, margins=MARGINS) as (figure, grid):
        cells = list(grid.flat)
        for axes, (metric, level) in zip(cells, pairs, strict=False):
            panel = curves[(curves["metric"] == metric) & (curves["concurrency"] == level)]
            for arm, curve in panel.groupby("arm", sort=False):
                _draw_arm(axes, str(arm), curve, cast, banded=not sheet.narrow)
            _frame(axes, panel, f"{METRICS[metric]} at C = {level}", metric)
        for axes in cells[len(pairs) :]:
            axes.set_visible(False)
        if sheet.alone:
            legend(cells[0], [slug for slug in cast.looks if (curves["arm"] == slug).any()], cast)
        return finish(figure, sheet)


def _draw_arm(axes: Any, slug: str, curve: pd.DataFrame, cast: Cast, *, banded: bool) -> None:
    look = cast.look(slug)
    tone = colour(look)
    if banded and (curve["slowest_launch_ms"] > curve["quickest_launch_ms"]).any():
        ends = (curve["quickest_launch_ms"], curve["slowest_launch_ms"])
        tag(axes.fill_betweenx(curve["share"], *ends, color=tone, alpha=0.14, linewidth=0), slug)
    every = max(1, len(curve) // 5)
    line = axes.plot(
        curve["value_ms"],
        curve["share"],
        color=tone,
        linestyle=look.dash,
        linewidth=1.6,
        marker=look.marker,
        markersize=5,
        markevery=(look.index % every, every),
    )
    tag(line, slug)


def _frame(axes: Any, panel: pd.DataFrame, title: str, metric: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel(f"{METRICS[metric]} (ms)")
    low, high = panel["value_ms"].min(), panel["value_ms"].max()
    if high / low > 4:
        axes.set_xscale("log")
        ladder = [base * 10.0**power for power in range(-3, 8) for base in (1, 2, 5)]
        ticks = [tick for tick in ladder if low / 1.1 <= tick <= high * 1.1]
        axes.xaxis.set_major_locator(FixedLocator(ticks if len(ticks) <= 7 else ticks[::3]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _data(curves: pd.DataFrame, cast: Cast) -> FigureData:
    rows = []
    for row in curves.itertuples(index=False):
        values = (float(f"{value:.5g}") for value in (row.value_ms, row.quickest_launch_ms, row.slowest_launch_ms))
        rows.append((row.arm, cast.label(row.arm), row.concurrency, row.metric, row.share, *values, row.launches))
    columns = (
        "arm",
        "label",
        "concurrency",
        "metric",
        "share",
        "value_ms",
        "quickest_launch_ms",
        "slowest_launch_ms",
        "launches",
    )
    return FigureData(columns, tuple(rows))


def _alt(workload: str, curves: pd.DataFrame, cast: Cast) -> str:
    words = [f"Cumulative distributions of latency on the workload {workload}."]
    medians = curves[curves["share"] == 0.5]
    for (metric, level), group in medians.groupby(["metric", "concurrency"], sort=False):
        quick, slow = group.loc[group["value_ms"].idxmin()], group.loc[group["value_ms"].idxmax()]
        least = f"{significant(quick['value_ms'])} ms ({cast.label(quick['arm'])})"
        text = f"Median {METRICS[metric]} at C={level}: from {least}"
        words.append(f"{text} to {significant(slow['value_ms'])} ms ({cast.label(slow['arm'])}).")
    return " ".join(words)
