"""Tail quantiles: per launch first, then a t interval over launches; requests that timed out stay in as censored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TAIL_REQUESTS = 5
"""A quantile q needs at least this many requests beyond it: 500 for p99, 50 for p90, 10 for p50."""


@dataclass(frozen=True)
class LaunchQuantile:
    """One launch's quantile. `value` is None with too few requests, or when it lies among the censored ones."""

    value: float | None
    requests: int
    censored: int
    state: str  # ok | too-few-requests | censored


def requests_needed(q: float) -> int:
    """Return the smallest number of requests from which quantile `q` (0 < q < 1) is given."""
    return math.ceil(TAIL_REQUESTS / min(q, 1 - q) - 1e-9)


def launch_quantiles(observed: Sequence[float], censored: int, qs: Sequence[float]) -> list[LaunchQuantile]:
    """Return the quantiles of one launch.

    `observed` are known values; `censored` requests are known only to be larger than any value that could have been
    observed, so they take the highest ranks. Linear interpolation between order statistics (Hyndman and Fan type 7)
    over all of them; a quantile whose upper neighbour is censored is not known and its state is `censored`.
    """
    values = np.sort(np.asarray(observed, dtype=float))
    total = values.size + int(censored)
    results = []
    for q in qs:
        if total < requests_needed(q):
            results.append(LaunchQuantile(None, total, int(censored), "too-few-requests"))
            continue
        place = q * (total - 1)
        low, high = math.floor(place), math.ceil(place)
        state = "censored" if censored else "ok"
        if high >= values.size:
            results.append(LaunchQuantile(None, total, int(censored), "censored"))
            continue
        value = float(values[low] + (values[high] - values[low]) * (place - low))
        results.append(LaunchQuantile(value, total, int(censored), state))
    return results
