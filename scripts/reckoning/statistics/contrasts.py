"""Two arms compared by block: the ratio, its interval, the tests and the verdict.

In each block both arms were launched once, in random order; the difference of their logarithms is one observation, so
whatever the block did to both (time of day, heat, a neighbour) cancels. A block in which one side is missing says
nothing about the pair and is not filled in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from reckoning.statistics.intervals import NO_SPREAD, checked_logs, few_state, t_quantile, t_tail


class Verdict(StrEnum):
    """What a comparison supports. `HIGHER` and `LOWER` are for metrics that are no speeds."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"
    LOWER = "lower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    SINGLE_RUN = "single-run"
    NONE = "none"


@dataclass(frozen=True)
class PairedRatio:
    """The ratio arm / reference over common blocks.

    `log_ratios` has one entry per block in `blocks` (ascending); `unpaired` names the blocks that only one side has.
    `p` is the two-sided t test of ratio 1; it is None where `low` and `high` are, and with zero spread.
    """

    ratio: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None
    state: str  # as Interval.state
    blocks: tuple[int, ...]
    log_ratios: tuple[float, ...]
    unpaired: tuple[int, ...]


def paired_ratio(arm: Mapping[int, float], reference: Mapping[int, float], confidence: float = 0.95) -> PairedRatio:
    """Compare two arms given as block -> launch value (positive, in the unit of the metric)."""
    blocks = tuple(sorted(set(arm) & set(reference)))
    unpaired = tuple(sorted(set(arm) ^ set(reference)))
    differences = checked_logs([arm[b] for b in blocks]) - checked_logs([reference[b] for b in blocks])
    return ratio_of_differences(differences, confidence, blocks=blocks, unpaired=unpaired)


def ratio_of_differences(
    differences: Sequence[float],
    confidence: float = 0.95,
    *,
    blocks: Sequence[int] | None = None,
    unpaired: Sequence[int] = (),
) -> PairedRatio:
    """Return the ratio whose per-block logarithms are `differences`, with its t interval and t test (df = n - 1)."""
    array = np.asarray(differences, dtype=float)
    n = int(array.size)
    blocks = tuple(blocks) if blocks is not None else tuple(range(1, n + 1))
    common = {"n": n, "blocks": blocks, "log_ratios": tuple(map(float, array)), "unpaired": tuple(unpaired)}
    if n == 0:
        return PairedRatio(None, None, None, p=None, state="no-data", **common)
    mean = float(array.mean())
    if (few := few_state(n)) is not None:
        return PairedRatio(math.exp(mean), None, None, p=None, state=few, **common)
    sd = float(array.std(ddof=1))
    if sd < NO_SPREAD:
        ratio = math.exp(mean)
        return PairedRatio(ratio, ratio, ratio, p=None, state="zero-spread", **common)
    error = sd / math.sqrt(n)
    half = t_quantile(0.5 + confidence / 2, n - 1) * error
    p = 2 * t_tail(abs(mean) / error, n - 1)
    return PairedRatio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), p=p, state="ok", **common)


def equivalence_p(pair: PairedRatio, margin: float) -> float | None:
    """Return the p value of the two one-sided tests that the ratio lies within [1/(1+margin), 1+margin].

    TOST (Schuirmann 1987): the larger of the two one-sided p values; None where there is no test.
    """
    if pair.state != "ok":
        return None
    array = np.asarray(pair.log_ratios)
    error = float(array.std(ddof=1)) / math.sqrt(pair.n)
    mean, bound = float(array.mean()), math.log1p(margin)
    below = t_tail((mean + bound) / error, pair.n - 1)
    above = t_tail((bound - mean) / error, pair.n - 1)
    return max(below, above)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p values adjusted for their family (Holm 1979): step-down, monotone, at most 1; None stays None.

    A missing test stays out of the family's size: it can make no false claim.
    """
    present = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, index) in enumerate(present):
        running = max(running, min(1.0, p * (len(present) - rank)))
        adjusted[index] = running
    return adjusted


def verdict_of(
    pair: PairedRatio, p_adjusted: float | None, p_equivalence: float | None, *, better: str, alpha: float = 0.05
) -> Verdict:
    """Return the verdict on arm against reference.

    `better` is `higher`, `lower` (a latency: a ratio below 1 is faster) or `none` (no speed). Equivalence goes first:
    a difference that is shown and lies wholly inside the margin does not matter by the user's own declaration.
    """
    if pair.n == 0:
        return Verdict.NONE
    if pair.n == 1:
        return Verdict.SINGLE_RUN
    if p_equivalence is not None and p_equivalence <= alpha:
        return Verdict.EQUIVALENT
    if p_adjusted is None or p_adjusted > alpha:
        return Verdict.INCONCLUSIVE
    above = pair.ratio > 1
    if better == "none":
        return Verdict.HIGHER if above else Verdict.LOWER
    return Verdict.FASTER if above == (better == "higher") else Verdict.SLOWER
