"""Drift: did the machine become faster or slower along the run, whatever the arm?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from reckoning.statistics.intervals import NO_SPREAD, t_quantile, t_tail


@dataclass(frozen=True)
class OrderedLog:
    """One launch's mean logarithm in one cell (workload and level), with its place in the run."""

    arm: Hashable
    block: Hashable
    cell: Hashable
    order: int
    log: float


@dataclass(frozen=True)
class Drift:
    """The slope of log values per launch in run order, with its t interval; None where it cannot be given.

    `n` is the number of launches that carry information, `span` the number of steps from the first to the last,
    `df` the (Satterthwaite) degrees of freedom.
    """

    slope: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    df: float
    span: int


def drift_slope(rows: Sequence[OrderedLog], confidence: float = 0.95) -> Drift:
    """Fit `log value = arm and cell + slope * order` with the launch as the unit.

    Within each (arm, cell) values and orders are centred, so neither the arms' nor the levels' differences enter; the
    entries of one launch are averaged, because they share its luck. Launches of one block may share their luck as well:
    with three blocks and more that variance is estimated from the residuals and enters the slope's error, with
    Satterthwaite's degrees of freedom, so that a few odd blocks are not taken for a slope.
    """
    arms, blocks, x, y = _launches(rows)
    n, span = len(x), (max(r.order for r in rows) - min(r.order for r in rows)) if rows else 0
    df = n - len(set(arms)) - 1
    sxx = float(x @ x) if n else 0.0
    if df < 1 or sxx < NO_SPREAD:
        return Drift(None, None, None, None, n, max(df, 0), span)
    slope = float(x @ y) / sxx
    error, df = _slope_error(x, y - slope * x, blocks, df)
    if error < NO_SPREAD:
        return Drift(slope, None, None, None, n, df, span)
    half = t_quantile(0.5 + confidence / 2, df) * error
    return Drift(slope, slope - half, slope + half, 2 * t_tail(abs(slope) / error, df), n, df, span)


def _launches(rows: Sequence[OrderedLog]) -> tuple[list[Hashable], list[Hashable], np.ndarray, np.ndarray]:
    """Return arm, block, centred order and centred log of every launch whose arm was launched more than once."""
    groups: dict[tuple[Hashable, Hashable], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((row.arm, row.cell), []).append(index)
    x = np.array([float(row.order) for row in rows])
    y = np.array([row.log for row in rows])
    for inside in groups.values():
        x[inside] -= x[inside].mean()
        y[inside] -= y[inside].mean()
    launches: dict[tuple[Hashable, Hashable], list[int]] = {}
    for index, row in enumerate(rows):
        launches.setdefault((row.arm, row.block), []).append(index)
    count = Counter(arm for arm, _ in launches)
    kept = {key: inside for key, inside in launches.items() if count[key[0]] > 1}
    return (
        [arm for arm, _ in kept],
        [block for _, block in kept],
        np.array([x[inside].mean() for inside in kept.values()]),
        np.array([y[inside].mean() for inside in kept.values()]),
    )


def _slope_error(x: np.ndarray, residual: np.ndarray, blocks: Sequence[Hashable], df: int) -> tuple[float, float]:
    """Return the slope's standard error and degrees of freedom, with a block component where it can be estimated."""
    sxx = float(x @ x)
    rss = float(residual @ residual)
    plain = math.sqrt(rss / df / sxx)
    members = [[i for i, b in enumerate(blocks) if b == block] for block in dict.fromkeys(blocks)]
    block_df = len(members) - 2
    inner_df = df - block_df
    if block_df < 1 or inner_df < 1 or max(map(len, members)) < 2:
        return plain, df
    size = len(blocks) / len(members)
    between = sum(len(m) * float(residual[m].mean()) ** 2 for m in members)
    block_ms, inner_ms = between / block_df, max(0.0, rss - between) / inner_df
    if block_ms <= inner_ms:
        return plain, df
    share = sum(float(x[m].sum()) ** 2 for m in members) / size / sxx
    parts = share * block_ms, (1 - share) * inner_ms
    variance = sum(parts)
    satterthwaite = variance**2 / (parts[0] ** 2 / block_df + parts[1] ** 2 / inner_df)
    return math.sqrt(variance / sxx), satterthwaite
