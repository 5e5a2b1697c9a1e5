"""A table for people of what was measured: one line per point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table

MISSING = "-"


def summary_table(points: Sequence[Mapping[str, Any]], requests: pd.DataFrame) -> Table:
    """Return the points by concurrency and repeat: rates in tok/s, times in ms as median and 99th percentile."""
    table = Table(caption="TTFT, TPOT: median / p99 (from 500 requests on) of successful requests")
    for heading in ("C", "repeat", "in flight", "tok/s", "whole run", "TTFT ms", "TPOT ms", "ok", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    good = requests[(requests.outcome == "ok") & (requests.phase != "warmup")]
    for entry in sorted(points, key=lambda point: (point["concurrency"], point["repeat"])):
        rows = good[good.point == entry["index"]]
        table.add_row(
            str(entry["concurrency"]),
            str(entry["repeat"]),
            number(entry["achieved_concurrency"]),
            number(entry["output_tok_s"]),
            number(entry["output_tok_s_whole_run"]),
            spread(rows.ttft_ms),
            spread(rows.tpot_ms),
            str(entry["requests"]["ok"]),
            str(entry["requests"]["failed"]),
        )
    return table


def number(value: float | None) -> str:
    """Return a number with about four significant digits, or a dash for what is not known."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(times: pd.Series, least_for_tail: int = 500) -> str:
    """Return the median, and the 99th percentile when `least_for_tail` requests support one."""
    known = times.dropna()
    if known.empty:
        return MISSING
    middle = number(float(known.median()))
    return f"{middle} / {number(float(known.quantile(0.99)))}" if len(known) >= least_for_tail else middle
