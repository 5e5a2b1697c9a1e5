"""How much of the spread is between launches and how much between repeats inside a launch, with intervals.

Model, on the log scale: value = arm + launch + repeat, both random. Balanced repeats: ANOVA estimators, exact, the
launch component truncated at 0. Unbalanced repeats: REML for the point estimates and unweighted means for the intervals
(Thomas and Hultquist 1978). Interval of the repeat component: chi-square. Interval of the launch component: modified
large sample (Ting, Burdick, Graybill, Jeyaratnam, Lu 1990), which holds its level with few launches, where a
Wald interval does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats


@dataclass(frozen=True)
class VarianceComponents:
    """Standard deviations on the log scale, with intervals; None where the data have no degrees of freedom for them.

    `repeats` is the mean number of repeats per launch; `launch_df` and `repeat_df` are the degrees of freedom.
    """

    sigma_launch: float | None
    sigma_launch_low: float | None
    sigma_launch_high: float | None
    sigma_repeat: float | None
    sigma_repeat_low: float | None
    sigma_repeat_high: float | None
    method: str  # anova | reml | none
    launches: int
    repeats: float | None
    launch_df: int
    repeat_df: int

    @property
    def ratio(self) -> float | None:
        """sigma_launch / sigma_repeat, or None when it is not known or the repeats have no spread."""
        if self.sigma_launch is None or not self.sigma_repeat:
            return None
        return self.sigma_launch / self.sigma_repeat


def variance_components(arms: Sequence[Sequence[Sequence[float]]], confidence: float = 0.95) -> VarianceComponents:
    """Return the components from logarithms given as arms -> launches -> repeats (empty launches are ignored)."""
    groups = [[np.asarray(launch, dtype=float) for launch in arm if len(launch)] for arm in arms]
    groups = [arm for arm in groups if arm]
    launches = [launch for arm in groups for launch in arm]
    if not launches:
        return VarianceComponents(None, None, None, None, None, None, "none", 0, None, 0, 0)
    sizes = np.array([launch.size for launch in launches])
    launch_df = sum(len(arm) - 1 for arm in groups)
    repeat_df = int((sizes - 1).sum())
    mean_repeats = float(sizes.mean())
    within = float(sum(((launch - launch.mean()) ** 2).sum() for launch in launches))
    repeat_ms = within / repeat_df if repeat_df else None
    repeat_low, repeat_high = _chi_square_interval(repeat_ms, repeat_df, confidence)
    if not launch_df or repeat_ms is None:
        return VarianceComponents(
            None, None, None, _root(repeat_ms), repeat_low, repeat_high, "anova" if repeat_df else "none",
            len(launches), mean_repeats, launch_df, repeat_df,
        )  # fmt: skip
    harmonic = len(sizes) / float((1 / sizes).sum())
    between = sum(
        ((means := np.array([x.mean() for x in arm])) - means.mean()) @ (means - means.mean()) for arm in groups
    )
    launch_ms = harmonic * float(between) / launch_df
    low, high = _mls_interval(launch_ms, repeat_ms, launch_df, repeat_df, harmonic, confidence)
    balanced = bool((sizes == sizes[0]).all())
    if balanced:
        launch_variance, repeat_variance = max(0.0, (launch_ms - repeat_ms) / harmonic), repeat_ms
    else:
        launch_variance, repeat_variance = _reml(groups, repeat_ms)
    return VarianceComponents(
        math.sqrt(launch_variance), math.sqrt(low), math.sqrt(high),
        math.sqrt(repeat_variance), repeat_low, repeat_high,
        "anova" if balanced else "reml", len(launches), mean_repeats, launch_df, repeat_df,
    )  # fmt: skip


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _chi_square_interval(mean_square: float | None, df: int, confidence: float) -> tuple[float | None, float | None]:
    if not df:
        return None, None
    tail = (1 - confidence) / 2
    return (
        math.sqrt(df * mean_square / stats.chi2.ppf(1 - tail, df)),
        math.sqrt(df * mean_square / stats.chi2.ppf(tail, df)),
    )


def _mls_interval(  # noqa: PLR0917
    s1: float, s2: float, n1: int, n2: int, repeats: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of (s1 - s2) / repeats for two independent mean squares, truncated at 0."""
    tail = (1 - confidence) / 2
    f_upper, f_lower = stats.f.ppf(1 - tail, n1, n2), stats.f.ppf(tail, n1, n2)
    g1, g2 = (1 - n / stats.chi2.ppf(1 - tail, n) for n in (n1, n2))
    h1, h2 = (n / stats.chi2.ppf(tail, n) - 1 for n in (n1, n2))
    g12 = ((f_upper - 1) ** 2 - (g1 * f_upper) ** 2 - h2**2) / f_upper
    h12 = ((1 - f_lower) ** 2 - (h1 * f_lower) ** 2 - g2**2) / f_lower
    lower = s1 - s2 - math.sqrt(max(0.0, (g1 * s1) ** 2 + (h2 * s2) ** 2 + g12 * s1 * s2))
    upper = s1 - s2 + math.sqrt(max(0.0, (h1 * s1) ** 2 + (g2 * s2) ** 2 + h12 * s1 * s2))
    return max(0.0, lower / repeats), max(0.0, upper / repeats)


def _reml(groups: list[list[np.ndarray]], scale: float) -> tuple[float, float]:
    """Return (launch variance, repeat variance) that maximise the restricted likelihood, profiled over their ratio."""
    if scale <= 0:
        return 0.0, 0.0
    sizes = [np.array([x.size for x in arm], dtype=float) for arm in groups]
    means = [np.array([x.mean() for x in arm]) for arm in groups]
    within = sum(float(((x - x.mean()) ** 2).sum()) for arm in groups for x in arm)
    df = int(sum(size.sum() for size in sizes)) - len(groups)

    def profile(ratio: float) -> tuple[float, float]:
        quadratic, log_determinant = within, 0.0
        for size, mean in zip(sizes, means, strict=True):
            weight = size / (1 + size * ratio)
            centre = (weight @ mean) / weight.sum()
            quadratic += float(weight @ (mean - centre) ** 2)
            log_determinant += float(np.log1p(size * ratio).sum() + math.log(weight.sum()))
        variance = quadratic / df
        return df * math.log(variance) + log_determinant, variance

    found = optimize.minimize_scalar(
        lambda u: profile(math.expm1(u))[0], bounds=(0.0, math.log1p(1e6)), method="bounded", options={"xatol": 1e-10}
    )
    ratio = math.expm1(float(found.x))
    if profile(0.0)[0] <= profile(ratio)[0]:
        ratio = 0.0
    variance = profile(ratio)[1]
    return ratio * variance, variance
