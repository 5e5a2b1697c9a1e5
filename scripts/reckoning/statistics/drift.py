"""Drift: did the machine become faster or slower along the run, whatever the arm?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from reckoning.statistics.intervals import NO_SPREAD


@dataclass(frozen=True)
class Drift:
    """The slope of log values per launch in run order, with its t interval; None where it cannot be given.

    `n` is the number of launches that carry information, `span` the number of steps from the first to the last.
    """

    slope: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    df: int
    span: int


def drift_slope(
    orders: Sequence[float], cells: Sequence[Hashable], arms: Sequence[Hashable], logs: Sequence[float], confidence=0.95
) -> Drift:
    """Fit `log value = cell + slope * order` with the launch as the unit.

    One entry per (launch, cell), a cell being (arm, workload, level): within each cell values and orders are centred,
    so neither the arms' nor the levels' differences enter; then the entries of one launch are averaged, because they
    share its luck. Degrees of freedom: launches - arms - 1.
    """
    orders, logs = np.asarray(orders, dtype=float), np.asarray(logs, dtype=float)
    y, x = np.empty_like(logs), np.empty_like(orders)
    cell_ids = _ids(cells)
    for cell in range(cell_ids.max() + 1 if cell_ids.size else 0):
        inside = cell_ids == cell
        y[inside] = logs[inside] - logs[inside].mean()
        x[inside] = orders[inside] - orders[inside].mean()
    launches = {}
    for index, (order, arm) in enumerate(zip(orders, arms, strict=True)):
        launches.setdefault((order, arm), []).append(index)
    counts: dict[Hashable, int] = {}
    for _, arm in launches:
        counts[arm] = counts.get(arm, 0) + 1
    kept = [(key, rows) for key, rows in launches.items() if counts[key[1]] > 1]
    n, used = len(kept), len({arm for (_, arm), _ in kept})
    df = n - used - 1
    span = int(orders.max() - orders.min()) if orders.size else 0
    if df < 1:
        return Drift(None, None, None, None, n, max(df, 0), span)
    x = np.array([x[rows].mean() for _, rows in kept])
    y = np.array([y[rows].mean() for _, rows in kept])
    sxx = float(x @ x)
    if sxx < NO_SPREAD:
        return Drift(None, None, None, None, n, df, span)
    slope = float(x @ y) / sxx
    residual = float(((y - slope * x) ** 2).sum())
    error = math.sqrt(residual / df / sxx)
    if error < NO_SPREAD:
        return Drift(slope, None, None, None, n, df, span)
    half = float(stats.t.ppf(0.5 + confidence / 2, df)) * error
    p = float(2 * stats.t.sf(abs(slope) / error, df))
    return Drift(slope, slope - half, slope + half, p, n, df, span)


def _ids(keys: Sequence[Hashable]) -> np.ndarray:
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=int)
