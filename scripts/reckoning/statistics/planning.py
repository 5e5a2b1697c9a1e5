"""What to buy next: repeats against launches, more blocks, and the power of a design."""

from __future__ import annotations

import math

from scipy import integrate, special, stats

from reckoning.statistics.intervals import t_quantile


def best_repeats(sigma_launch: float, sigma_repeat: float, launch_cost_s: float, repeat_cost_s: float) -> float | None:
    """Return R*, the repeats per launch that give the narrowest interval for a given time (Kalibera and Jones 2013).

    R* = sqrt(c_launch * s2_repeat / (c_repeat * s2_launch)), before rounding and at least 1. None when there is no
    finite answer: launches do not differ (repeats alone help), or a cost is not known.
    """
    if sigma_launch <= 0 or repeat_cost_s <= 0 or launch_cost_s <= 0:
        return None
    return max(1.0, math.sqrt(launch_cost_s / repeat_cost_s) * sigma_repeat / sigma_launch)


def half_width(sd_log: float, launches: int, confidence: float = 0.95) -> float:
    """Return the expected half width of the interval on the log scale (0.03 is about 3 %) with `launches` >= 2."""
    return t_quantile(0.5 + confidence / 2, launches - 1) * sd_log / math.sqrt(launches)


def launches_for(sd_log: float, target: float, confidence: float = 0.95, limit: int = 60) -> int | None:
    """Return the fewest launches (>= 3) whose half width is at most `target` on the log scale; None beyond `limit`."""
    return next((n for n in range(3, limit + 1) if half_width(sd_log, n, confidence) <= target), None)


def power(effect: float, sd_difference: float, blocks: int, alpha: float = 0.05) -> float:
    """Return the chance that a true log-ratio `effect` is shown by the two-sided paired t test with `blocks` blocks.

    `sd_difference` is the standard deviation of one block's log-ratio: sqrt(2 (s2_launch + s2_repeat / R)). For a
    family of m comparisons use alpha / m: the power for the first difference that Holm's procedure has to show.
    Integrated over the estimated spread, since `scipy.stats.nct` returns NaN for large effects and few degrees.
    """
    df = blocks - 1
    shift = effect * math.sqrt(blocks) / sd_difference
    critical = t_quantile(1 - alpha / 2, df)

    def shown_at(spread: float) -> float:
        """Return the chance for an estimated spread of `spread` times the true one, weighted with its density."""
        bound = critical * spread
        density = stats.chi.pdf(spread * math.sqrt(df), df) * math.sqrt(df)
        return float((special.ndtr(shift - bound) + special.ndtr(-shift - bound)) * density)

    return min(1.0, integrate.quad(shown_at, 0, 1, epsabs=1e-9)[0] + integrate.quad(shown_at, 1, 12, epsabs=1e-9)[0])
