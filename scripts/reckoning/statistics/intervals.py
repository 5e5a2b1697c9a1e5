"""A geometric mean over launches with its Student t interval, and the prediction interval of one further run.

Source: Georges, Buytaert, Eeckhout 2007 (t on means of invocations); Kalibera and Jones 2013 (the highest level of
repetition carries the degrees of freedom). Logarithms, because the effects are ratios and the values are positive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

MINIMUM_LAUNCHES = 3
"""Fewer launches give no interval: with two, the t quantile is 12.7 and the spread has one degree of freedom."""

NO_SPREAD = 1e-12
"""A standard deviation of logarithms below this is rounding, not measurement: the values are equal."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, in the unit of the values.

    `estimate` is None without values; `low` and `high` are None below `MINIMUM_LAUNCHES`; with equal values they equal
    the estimate and `state` is `zero-spread`, which is a warning and no certainty. `sd_log` is the standard deviation
    of the logarithms (0.02 is about 2 %).
    """

    estimate: float | None
    low: float | None
    high: float | None
    n: int
    sd_log: float | None
    state: str  # ok | no-data | single-run | two-runs | zero-spread


def t_quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t (from `scipy.special`: many times as fast as `scipy.stats`)."""
    return float(special.stdtrit(df, probability))


def t_tail(value: float, df: float) -> float:
    """Return the chance that Student's t exceeds `value`."""
    return float(special.stdtr(df, -value))


def few_state(n: int) -> str | None:
    """Return the reason why `n` launches give no interval, or None when they do."""
    if n >= MINIMUM_LAUNCHES:
        return None
    return ("no-data", "single-run", "two-runs")[n]


def checked_logs(values: Sequence[float]) -> np.ndarray:
    """Return the natural logarithms of `values`; a value that is not finite and positive raises ValueError."""
    array = np.asarray(values, dtype=float)
    if array.size and not (np.isfinite(array) & (array > 0)).all():
        bad = array[~(np.isfinite(array) & (array > 0))]
        raise ValueError(f"{bad[0]} has no logarithm: exclude values that are not finite and positive first")
    return np.log(array)


def launch_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the geometric mean of one value per launch with its t interval (df = n - 1)."""
    logs = checked_logs(values)
    n = int(logs.size)
    if n == 0:
        return Interval(None, None, None, 0, None, "no-data")
    mean = float(logs.mean())
    estimate = math.exp(mean)
    sd = float(logs.std(ddof=1)) if n > 1 else None
    if (few := few_state(n)) is not None:
        return Interval(estimate, None, None, n, sd, few)
    if sd < NO_SPREAD:
        return Interval(estimate, estimate, estimate, n, 0.0, "zero-spread")
    half = t_quantile(0.5 + confidence / 2, n - 1) * sd / math.sqrt(n)
    return Interval(estimate, math.exp(mean - half), math.exp(mean + half), n, sd, "ok")


def prediction_interval(
    values: Sequence[float],
    repeat_variance: float = 0.0,
    repeat_df: float = math.inf,
    repeats: float = 1.0,
    confidence: float = 0.95,
) -> Interval:
    """Return the interval in which one further run (one launch, one repeat) is expected.

    `values` are launch means of `repeats` repeats; `repeat_variance` is the variance of one repeat on the log scale,
    known with `repeat_df` degrees of freedom. A single run has the variance of a launch mean plus the share of the
    repeat variance that averaging removed, `repeat_variance * (1 - 1 / repeats)`; the mean's own uncertainty is added.
    The two parts have their own degrees of freedom, and the t quantile is their mean weighted by the parts (Cochran
    1964): with three launches this holds its level, where Satterthwaite's degrees of freedom fall 2 points short.
    """
    base = launch_interval(values, confidence)
    if base.state != "ok":
        return Interval(base.estimate, None, None, base.n, base.sd_log, base.state)
    launch_part = base.sd_log**2 * (1 + 1 / base.n)
    repeat_part = repeat_variance * (1 - 1 / max(repeats, 1.0))
    variance = launch_part + repeat_part
    launch_t, repeat_t = (t_quantile(0.5 + confidence / 2, df) for df in (base.n - 1, repeat_df))
    half = (launch_part * launch_t + repeat_part * repeat_t) / math.sqrt(variance)
    mean = math.log(base.estimate)
    return Interval(base.estimate, math.exp(mean - half), math.exp(mean + half), base.n, base.sd_log, "ok")
