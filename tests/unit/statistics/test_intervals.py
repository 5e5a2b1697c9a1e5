"""Intervals against hand computation, statsmodels and scipy.stats."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from reckoning.statistics.intervals import launch_interval, prediction_interval, t_quantile, t_tail


def test_three_launches_by_hand():
    """100, 110, 121: logs one step of ln 1.1 apart, so sd = ln 1.1; t(0.975, 2) = 4.302653 from a printed table."""
    found = launch_interval([100, 110, 121])
    half = 4.302653 * math.log(1.1) / math.sqrt(3)
    assert found.estimate == pytest.approx(110)
    assert found.low == pytest.approx(110 / math.exp(half), rel=1e-6)
    assert found.high == pytest.approx(110 * math.exp(half), rel=1e-6)
    assert (found.low, found.high) == (pytest.approx(86.81, abs=0.01), pytest.approx(139.38, abs=0.01))
    assert found.n == 3
    assert found.state == "ok"


@pytest.mark.parametrize("n", [3, 4, 5, 12])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_agrees_with_statsmodels(n, confidence):
    values = np.random.default_rng(n).lognormal(4, 0.1, n)
    low, high = DescrStatsW(np.log(values)).tconfint_mean(alpha=1 - confidence)
    found = launch_interval(values, confidence)
    assert found.low == pytest.approx(math.exp(low))
    assert found.high == pytest.approx(math.exp(high))


@pytest.mark.parametrize(
    ("values", "state", "estimate"),
    [([], "no-data", None), ([5.0], "single-run", 5.0), ([4.0, 9.0], "two-runs", 6.0)],
)
def test_fewer_than_three_launches_have_no_interval(values, state, estimate):
    found = launch_interval(values)
    assert (found.low, found.high, found.state) == (None, None, state)
    assert found.estimate == pytest.approx(estimate) if estimate else found.estimate is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scipy's own, from the bootstrap of equal values
def test_equal_values_are_a_warning_and_no_nan():
    """CASE 57: [5, 5, 5] has zero width, flagged; BCa gives (nan, nan) here."""
    found = launch_interval([5.0, 5.0, 5.0])
    assert found.state == "zero-spread"
    assert found.low == found.estimate == found.high == pytest.approx(5.0)
    peer = stats.bootstrap(([5.0, 5.0, 5.0],), np.mean, method="BCa", n_resamples=99)
    assert math.isnan(peer.confidence_interval.low)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_without_a_logarithm_is_refused(bad):
    with pytest.raises(ValueError, match="no logarithm"):
        launch_interval([1.0, bad, 2.0])


@pytest.mark.parametrize("df", [1, 2, 3.7, 30])
def test_fast_t_is_scipys_t(df):
    assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)
    assert t_tail(2.5, df) == pytest.approx(stats.t.sf(2.5, df), rel=1e-9)


def test_prediction_interval_by_hand():
    """One repeat per launch: the textbook interval of one more observation, mean +- t sd sqrt(1 + 1/n)."""
    found = prediction_interval([100, 110, 121])
    half = 4.302653 * math.log(1.1) * math.sqrt(1 + 1 / 3)
    assert found.low == pytest.approx(110 / math.exp(half), rel=1e-6)
    assert found.high == pytest.approx(110 * math.exp(half), rel=1e-6)


def test_prediction_interval_adds_the_repeats_that_averaging_removed():
    plain = prediction_interval([100, 110, 121])
    more = prediction_interval([100, 110, 121], repeat_variance=0.01, repeat_df=20, repeats=4)
    none = prediction_interval([100, 110, 121], repeat_variance=0.01, repeat_df=20, repeats=1)
    assert more.low < plain.low
    assert none.low == pytest.approx(plain.low)
    launch, repeat = math.log(1.1) ** 2 * 4 / 3, 0.01 * 0.75
    t = (launch * 4.302653 + repeat * 2.085963) / (launch + repeat)
    assert more.high == pytest.approx(110 * math.exp(t * math.sqrt(launch + repeat)), rel=1e-6)


def test_prediction_interval_needs_three_launches():
    assert prediction_interval([100, 110]).low is None
