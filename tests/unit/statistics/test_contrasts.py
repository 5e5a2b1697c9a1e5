"""Paired contrasts, Holm, TOST and verdicts against scipy, statsmodels and hand computation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from reckoning.statistics.contrasts import (
    Verdict,
    equivalence_p,
    holm,
    paired_ratio,
    ratio_of_differences,
    verdict_of,
)


def test_agrees_with_the_paired_t_test_of_scipy():
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(5, 0.05, 5), rng.lognormal(5.02, 0.05, 5)
    found = paired_ratio(dict(enumerate(a)), dict(enumerate(b)))
    peer = stats.ttest_rel(np.log(a), np.log(b))
    low, high = peer.confidence_interval(0.95)
    assert found.p == pytest.approx(peer.pvalue)
    assert (found.low, found.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert found.ratio == pytest.approx(stats.gmean(a) / stats.gmean(b))


def test_equivalence_agrees_with_statsmodels():
    rng = np.random.default_rng(2)
    a, b = rng.lognormal(5, 0.02, 4), rng.lognormal(5.01, 0.02, 4)
    bound = math.log(1.03)
    expected, *_ = ttost_paired(np.log(a), np.log(b), -bound, bound)
    assert equivalence_p(paired_ratio(dict(enumerate(a)), dict(enumerate(b))), 0.03) == pytest.approx(expected)


def test_only_common_blocks_count_and_the_others_are_named():
    """Blocks 1, 2, 4 are common; a drift of the machine between blocks cancels exactly."""
    reference = {1: 100.0, 2: 200.0, 3: 50.0, 4: 400.0}
    arm = {1: 110.0, 2: 220.0, 4: 441.0, 5: 1.0}
    found = paired_ratio(arm, reference)
    assert found.blocks == (1, 2, 4)
    assert found.unpaired == (3, 5)
    assert found.n == 3
    assert found.ratio == pytest.approx((1.1 * 1.1 * 1.1025) ** (1 / 3))


@pytest.mark.parametrize(
    ("count", "state", "verdict"),
    [(0, "no-data", Verdict.NONE), (1, "single-run", Verdict.SINGLE_RUN), (2, "two-runs", Verdict.INCONCLUSIVE)],
)
def test_too_few_common_blocks_have_no_test(count, state, verdict):
    blocks = {b: 100.0 + b for b in range(count)}
    found = paired_ratio(blocks, dict.fromkeys(blocks, 50.0))
    assert (found.state, found.p, found.low) == (state, None, None)
    assert verdict_of(found, found.p, equivalence_p(found, 0.03), better="higher") is verdict


def test_no_spread_is_no_certainty():
    found = paired_ratio({1: 2.0, 2: 4.0, 3: 8.0}, {1: 1.0, 2: 2.0, 3: 4.0})
    assert found.state == "zero-spread"
    assert found.p is None
    assert verdict_of(found, None, equivalence_p(found, 0.03), better="higher") is Verdict.INCONCLUSIVE


def test_holm_by_hand():
    """0.01, 0.04, 0.03 in a family of three: 0.03, then max(0.06, ...), then max(0.06, 0.04)."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_a_missing_test_is_no_member_of_the_family():
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_holm_agrees_with_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


@pytest.mark.parametrize(
    ("better", "above", "below"),
    [("higher", "faster", "slower"), ("lower", "slower", "faster"), ("none", "higher", "lower")],
)
def test_the_direction_of_the_metric_decides_the_word(better, above, below):
    up = ratio_of_differences([0.20, 0.21, 0.19])
    down = ratio_of_differences([-0.20, -0.21, -0.19])
    assert verdict_of(up, up.p, equivalence_p(up, 0.03), better=better) == above
    assert verdict_of(down, down.p, equivalence_p(down, 0.03), better=better) == below


def test_a_shown_difference_inside_the_margin_is_equivalent():
    pair = ratio_of_differences([0.010, 0.0101, 0.0099])
    assert pair.p < 0.001
    assert verdict_of(pair, pair.p, equivalence_p(pair, 0.03), better="higher") is Verdict.EQUIVALENT


def test_the_adjusted_p_decides_not_the_interval():
    pair = ratio_of_differences([0.10, 0.12, 0.09])
    assert pair.low > 1
    assert verdict_of(pair, 0.2, None, better="higher") is Verdict.INCONCLUSIVE


@settings(deadline=None)
@given(
    st.lists(st.floats(0.5, 2), min_size=3, max_size=6, unique=True),
    st.lists(st.floats(0.5, 2), min_size=6, max_size=6, unique=True),
)
def test_exchanging_the_sides_inverts_the_ratio(a, b):
    arm, reference = dict(enumerate(a)), dict(enumerate(b[: len(a)]))
    one, other = paired_ratio(arm, reference), paired_ratio(reference, arm)
    assert one.ratio * other.ratio == pytest.approx(1)
    assert one.low * other.high == pytest.approx(1)
    assert one.p == pytest.approx(other.p) if one.p is not None else other.p is None
