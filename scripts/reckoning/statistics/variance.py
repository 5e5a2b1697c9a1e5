"""How much of the spread is between launches and how much between repeats inside a launch, with intervals.

Model, on the log scale: value = arm + block + launch + repeat; arm and block are fixed, launch and repeat are random.
What a block does to all its launches is thus no part of the launch component, as it is no part of a paired comparison.
Balanced repeats: ANOVA estimators, exact, the launch component truncated at 0. Unbalanced repeats: REML for the point
estimates and unweighted means for the intervals (Thomas and Hultquist 1978). Interval of the repeat component:
chi-square. Interval of the launch component: modified large sample (Ting, Burdick, Graybill, Jeyaratnam, Lu 1990),
which holds its level with few launches, where a Wald interval does not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special


@dataclass(frozen=True)
class LaunchLogs:
    """The natural logarithms of one launch's repeats."""

    arm: Hashable
    block: Hashable
    logs: Sequence[float]


@dataclass(frozen=True)
class VarianceComponents:
    """Standard deviations on the log scale, with intervals; None where the data have no degrees of freedom for them.

    `repeats` is the mean number of repeats per launch; `launch_df` and `repeat_df` are the degrees of freedom;
    `blocks_removed` says whether the block effects could be taken out.
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
    blocks_removed: bool = False

    @property
    def ratio(self) -> float | None:
        """sigma_launch / sigma_repeat, or None when it is not known or the repeats have no spread."""
        if self.sigma_launch is None or not self.sigma_repeat:
            return None
        return self.sigma_launch / self.sigma_repeat


def variance_components(launches: Sequence[LaunchLogs], confidence: float = 0.95) -> VarianceComponents:
    """Return the components from launches of one or several arms; launches without repeats are ignored."""
    launches = [launch for launch in launches if len(launch.logs)]
    if not launches:
        return VarianceComponents(None, None, None, None, None, None, "none", 0, None, 0, 0)
    repeats = [np.asarray(launch.logs, dtype=float) for launch in launches]
    sizes = np.array([values.size for values in repeats])
    means = np.array([values.mean() for values in repeats])
    within = float(sum(((values - values.mean()) ** 2).sum() for values in repeats))
    repeat_df = int((sizes - 1).sum())
    repeat_ms = within / repeat_df if repeat_df else None
    design, blocks_removed = _fixed_effects(launches)
    launch_df = len(launches) - design.shape[1]
    repeat_low, repeat_high = _chi_square_interval(repeat_ms, repeat_df, confidence)
    shape = (len(launches), float(sizes.mean()), launch_df, repeat_df, blocks_removed)
    if launch_df < 1 or repeat_ms is None:
        sigma_repeat = None if repeat_ms is None else math.sqrt(repeat_ms)
        method = "anova" if repeat_df else "none"
        return VarianceComponents(None, None, None, sigma_repeat, repeat_low, repeat_high, method, *shape)
    residual = means - design @ np.linalg.lstsq(design, means, rcond=None)[0]
    harmonic = len(sizes) / float((1 / sizes).sum())
    launch_ms = harmonic * float(residual @ residual) / launch_df
    low, high = _mls_interval((launch_ms, launch_df), (repeat_ms, repeat_df), harmonic, confidence)
    balanced = bool((sizes == sizes[0]).all())
    if balanced:
        launch_variance, repeat_variance = max(0.0, (launch_ms - repeat_ms) / harmonic), repeat_ms
    else:
        launch_variance, repeat_variance = _reml(design, means, sizes, within)
    return VarianceComponents(
        math.sqrt(launch_variance), math.sqrt(low), math.sqrt(high),
        math.sqrt(repeat_variance), repeat_low, repeat_high, "anova" if balanced else "reml", *shape,
    )  # fmt: skip


def _fixed_effects(launches: Sequence[LaunchLogs]) -> tuple[np.ndarray, bool]:
    """Return a full-rank design matrix of arms and, when degrees of freedom remain, blocks."""
    arms = _indicators([launch.arm for launch in launches])
    both = np.hstack([arms, _indicators([launch.block for launch in launches])[:, 1:]])
    rank = int(np.linalg.matrix_rank(both))
    if arms.shape[1] > 1 and rank > arms.shape[1] and len(launches) > rank:
        basis, weights, _ = np.linalg.svd(both, full_matrices=False)
        return basis[:, weights > 1e-9 * weights[0]], True
    return arms, False


def _indicators(labels: Sequence[Hashable]) -> np.ndarray:
    levels = list(dict.fromkeys(labels))
    return np.array([[float(label == level) for level in levels] for label in labels])


def _chi_square_interval(mean_square: float | None, df: int, confidence: float) -> tuple[float | None, float | None]:
    if not df:
        return None, None
    tail = (1 - confidence) / 2
    return tuple(math.sqrt(df * mean_square / special.chdtri(df, share)) for share in (tail, 1 - tail))


def _mls_interval(
    launch: tuple[float, int], repeat: tuple[float, int], repeats: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of (s1 - s2) / repeats for two independent (mean square, df), truncated at 0."""
    (s1, n1), (s2, n2) = launch, repeat
    tail = (1 - confidence) / 2
    f_upper, f_lower = special.fdtri(n1, n2, 1 - tail), special.fdtri(n1, n2, tail)
    g1, g2 = (1 - n / special.chdtri(n, tail) for n in (n1, n2))
    h1, h2 = (n / special.chdtri(n, 1 - tail) - 1 for n in (n1, n2))
    g12 = ((f_upper - 1) ** 2 - (g1 * f_upper) ** 2 - h2**2) / f_upper
    h12 = ((1 - f_lower) ** 2 - (h1 * f_lower) ** 2 - g2**2) / f_lower
    lower = s1 - s2 - math.sqrt(max(0.0, (g1 * s1) ** 2 + (h2 * s2) ** 2 + g12 * s1 * s2))
    upper = s1 - s2 + math.sqrt(max(0.0, (h1 * s1) ** 2 + (g2 * s2) ** 2 + h12 * s1 * s2))
    return max(0.0, lower / repeats), max(0.0, upper / repeats)


def _reml(design: np.ndarray, means: np.ndarray, sizes: np.ndarray, within: float) -> tuple[float, float]:
    """Return (launch variance, repeat variance) that maximise the restricted likelihood, profiled over their ratio."""
    df = int(sizes.sum()) - design.shape[1]

    def profile(ratio: float) -> tuple[float, float]:
        weight = sizes / (1 + sizes * ratio)
        information = design.T @ (weight[:, None] * design)
        centre = design @ np.linalg.solve(information, design.T @ (weight * means))
        variance = (within + float(weight @ (means - centre) ** 2)) / df
        if variance <= 0:
            return -math.inf, 0.0
        log_determinant = float(np.log1p(sizes * ratio).sum()) + float(np.linalg.slogdet(information)[1])
        return df * math.log(variance) + log_determinant, variance

    found = optimize.minimize_scalar(
        lambda u: profile(math.expm1(u))[0], bounds=(0.0, math.log1p(1e6)), method="bounded", options={"xatol": 1e-10}
    )
    ratio = math.expm1(float(found.x))
    if profile(0.0)[0] <= profile(ratio)[0]:
        ratio = 0.0
    variance = profile(ratio)[1]
    return ratio * variance, variance
