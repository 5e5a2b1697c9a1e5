"""Variance components and drift against hand computation and statsmodels."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.anova import anova_lm

from reckoning.statistics.drift import OrderedLog, drift_slope
from reckoning.statistics.variance import LaunchLogs, variance_components


def frame_of(launches):
    return pd.DataFrame(
        [(x.arm, x.block, f"{x.arm}-{x.block}", log) for x in launches for log in x.logs],
        columns=["arm", "block", "launch", "log"],
    )


def simulated(seed, arms=3, blocks=4, repeats=3, sigma=(0.05, 0.02)):
    rng = np.random.default_rng(seed)
    block = rng.normal(0, 0.1, blocks)
    return [
        LaunchLogs(f"a{a}", b, list(a + block[b] + rng.normal(0, sigma[0]) + rng.normal(0, sigma[1], repeats)))
        for a in range(arms)
        for b in range(blocks)
    ]


def test_one_arm_by_hand():
    """Launch means 1, 2, 3 with repeats 0.1 to either side: MS_launch = 2, MS_repeat = 0.02, so s2 = (2 - 0.02) / 2."""
    launches = [LaunchLogs("a", b, [m - 0.1, m + 0.1]) for b, m in enumerate((1.0, 2.0, 3.0))]
    found = variance_components(launches)
    assert found.sigma_repeat == pytest.approx(math.sqrt(0.02))
    assert found.sigma_launch == pytest.approx(math.sqrt(0.99))
    assert (found.method, found.launch_df, found.repeat_df) == ("anova", 2, 3)
    # chi-square quantiles with 3 degrees of freedom from a printed table: 9.348404 and 0.215795
    assert found.sigma_repeat_low == pytest.approx(math.sqrt(3 * 0.02 / 9.348404), rel=1e-6)
    assert found.sigma_repeat_high == pytest.approx(math.sqrt(3 * 0.02 / 0.215795), rel=1e-5)


def test_balanced_components_are_the_anova_of_statsmodels():
    launches = simulated(3)
    found = variance_components(launches)
    repeat_ms = anova_lm(smf.ols("log ~ C(launch)", frame_of(launches)).fit()).loc["Residual", "mean_sq"]
    assert found.launch_df == 3 * 4 - 3 - 4 + 1
    assert found.sigma_repeat == pytest.approx(math.sqrt(repeat_ms))
    means = frame_of(launches).groupby(["arm", "block"], as_index=False)["log"].mean()
    two_way = smf.ols("log ~ C(arm) + C(block)", means).fit()
    assert found.sigma_launch**2 == pytest.approx(two_way.scale - repeat_ms / 3)


@pytest.mark.filterwarnings("ignore::Warning")  # statsmodels warns of a small variance
def test_unbalanced_components_are_the_reml_of_statsmodels():
    launches = simulated(5, sigma=(0.05, 0.03))
    launches = [LaunchLogs(x.arm, x.block, x.logs[: 1 + index % 3]) for index, x in enumerate(launches)]
    found = variance_components(launches)
    assert found.method == "reml"
    model = smf.mixedlm("log ~ C(arm) + C(block)", frame_of(launches), groups="launch").fit(reml=True)
    assert found.sigma_repeat == pytest.approx(math.sqrt(model.scale), rel=2e-3)
    assert found.sigma_launch == pytest.approx(math.sqrt(float(model.cov_re.iloc[0, 0])), rel=2e-3)


def test_a_whole_block_is_no_part_of_the_launch_component():
    launches = simulated(7, arms=4, sigma=(0.01, 0.002))
    assert variance_components(launches).sigma_launch < 0.03
    shifted = [LaunchLogs(x.arm, x.block, [log + 5 * x.block for log in x.logs]) for x in launches]
    assert variance_components(shifted).sigma_launch == pytest.approx(variance_components(launches).sigma_launch)


def test_launches_that_differ_less_than_their_repeats_explain_are_cut_at_zero():
    launches = [LaunchLogs("a", b, [m - 1.0, m + 1.0]) for b, m in enumerate((0.0, 0.9, 0.5, 1.1))]
    found = variance_components(launches)
    assert found.sigma_launch == 0
    assert found.sigma_launch_low == 0
    assert found.sigma_launch_high > 0
    assert found.ratio == 0


@pytest.mark.parametrize(
    ("launches", "known"),
    [
        ([], (False, False)),
        ([LaunchLogs("a", 1, [0.1])], (False, False)),
        ([LaunchLogs("a", 1, [0.1, 0.2])], (False, True)),
        ([LaunchLogs("a", 1, [0.1]), LaunchLogs("a", 2, [0.2])], (False, False)),
        ([LaunchLogs("a", 1, [0.1, 0.2]), LaunchLogs("a", 2, [0.2])], (True, True)),
    ],
)
def test_what_cannot_be_told_is_none(launches, known):
    found = variance_components(launches)
    assert (found.sigma_launch is not None, found.sigma_repeat is not None) == known


def rows_of(orders, logs, blocks):
    return [
        OrderedLog(arm, block, "chat 1", order, log)
        for order, (arm, block, log) in enumerate(zip(orders, blocks, logs, strict=True))
    ]


def test_slope_by_hand():
    """One arm, logs rising by exactly 0.01 per launch but for a deviation of +-0.001 orthogonal to the order."""
    logs = [0.01 * k + e for k, e in enumerate((0.001, -0.001, -0.001, 0.001))]
    found = drift_slope(rows_of("aaaa", logs, [1, 2, 3, 4]))
    assert found.slope == pytest.approx(0.01)
    error = math.sqrt(4e-6 / 2 / 5)  # residual sum of squares / df / Sxx, with Sxx = 5 for orders 0..3
    assert found.high - found.slope == pytest.approx(4.302653 * error, rel=1e-6)
    assert (found.n, found.df, found.span) == (4, 2, 3)


def test_slope_agrees_with_the_regression_of_statsmodels():
    """Two blocks: no block component can be estimated, so it is ordinary least squares with an effect per arm."""
    rng = np.random.default_rng(11)
    arms = [*rng.permutation(list("abcde")), *rng.permutation(list("abcde"))]
    logs = [ord(a) + 0.02 * k + rng.normal(0, 0.05) for k, a in enumerate(arms)]
    found = drift_slope(rows_of(arms, logs, [1] * 5 + [2] * 5))
    data = pd.DataFrame({"log": logs, "arm": arms, "order": range(10)})
    peer = smf.ols("log ~ C(arm) + order", data).fit()
    assert found.slope == pytest.approx(peer.params["order"])
    assert found.p == pytest.approx(peer.pvalues["order"])
    assert (found.low, found.high) == pytest.approx(tuple(peer.conf_int().loc["order"]))


def test_levels_of_one_launch_are_one_observation():
    """Six levels that repeat the same luck must not narrow the interval."""
    rng = np.random.default_rng(13)
    arms, blocks = list("abcabc"), [1, 1, 1, 2, 2, 2]
    logs = [rng.normal(0, 0.05) for _ in arms]
    one = drift_slope(rows_of(arms, logs, blocks))
    six = drift_slope(
        [
            OrderedLog(r.arm, r.block, f"chat {level}", r.order, r.log + level)
            for r in rows_of(arms, logs, blocks)
            for level in range(6)
        ]
    )
    assert (six.low, six.high, six.n) == (pytest.approx(one.low), pytest.approx(one.high), one.n)


def test_odd_blocks_are_not_taken_for_a_slope():
    """Blocks that differ at random widen the interval far beyond that of independent launches."""
    arms, blocks = list("abcdabcdabcdabcd"), [b for b in range(4) for _ in range(4)]
    noise = np.random.default_rng(17).normal(0, 0.001, 16)
    logs = [(0.05, -0.04, 0.06, 0.0)[b] + noise[k] for k, b in enumerate(blocks)]
    found = drift_slope(rows_of(arms, logs, blocks))
    data = pd.DataFrame({"log": logs, "arm": arms, "order": range(16)})
    peer = smf.ols("log ~ C(arm) + order", data).fit()
    assert found.high - found.low > 2 * (peer.conf_int().loc["order", 1] - peer.conf_int().loc["order", 0])


@pytest.mark.parametrize("arms", ["", "a", "ab", "abc"])
def test_too_few_launches_have_no_slope(arms):
    found = drift_slope(rows_of(arms, [0.0] * len(arms), [1] * len(arms)))
    assert found.slope is None
    assert found.p is None
