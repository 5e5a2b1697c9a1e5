"""Digits follow from the interval; nothing ever prints `nan`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reckoning.report import quantities as q
from reckoning.rounding import decimals_for

THIN = "\u202f"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1530.5, 1490.2, 1571.4, "1530 tok/s [1490, 1570]"),  # half-width 41: tens
        (97.93, 97.1, 98.8, "97.9 tok/s [97.1, 98.8]"),  # half-width 0.85: tenths
        (1291.0, 1290.83, 1291.17, "1291.0 tok/s [1290.8, 1291.2]"),  # five digits at most
        (7.7, 0.4, 15.0, "8 tok/s [0, 15]"),  # half-width 7.3: units
        (12345.6, 12000, 12700, f"12{THIN}300 tok/s [12{THIN}000, 12{THIN}700]"),
        (1.32, 0.24, 7.28, "1.3 tok/s [0.2, 7.3]"),  # lopsided: the nearer end decides
        (1291.0, None, None, "1290 tok/s"),  # no evidence for more than three digits
        (97.0, 97.0, 97.0, "97 tok/s [97, 97]"),
        (None, 1, 2, "–"),
        (float("nan"), 1, 2, "–"),
        (5.0, float("-inf"), 7.0, "5 tok/s"),
    ],
)
def test_digits_follow_from_the_interval(value, low, high, text):
    assert q.with_interval(value, low, high, "tok/s") == text


def test_uncertainty_keeps_two_digits_while_its_first_is_one_or_two():
    # Guide to the Expression of Uncertainty in Measurement, 7.2.6: m = (100.02147 g, u = 0.35 mg) is printed 100.02147.
    assert decimals_for(0.00035) == 4
    assert decimals_for(0.00025) == 5
    assert decimals_for(2.9) == 1
    assert decimals_for(3.1) == 0
    assert decimals_for(41) == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [(26.3, "26.3"), (0.1193, "0.119"), (100.0, "100"), (0, "0"), (1234567, f"1{THIN}230{THIN}000"), (-0.5, "−0.5")],
)
def test_without_an_interval_three_digits_and_no_trailing_zeros(value, text):
    assert q.significant(value) == text


def test_published_numbers_keep_their_own_digits():
    assert [q.exact(value) for value in (1492.5, 808, 26.3, 0.0)] == ["1492.5", "808", "26.3", "0"]


def test_ratio_and_share_and_p_value_and_duration():
    assert q.with_interval(1.3226, 1.3077, 1.3376, "×") == "1.323× [1.308, 1.338]"
    assert q.percent(0.021) == f"2.1{THIN}%"
    assert [q.p_value(value) for value in (0.0, 0.00099, 0.0123, 0.4449, 1.0, None)] == [
        f"<{THIN}0.001",
        f"<{THIN}0.001",
        "0.012",
        "0.44",
        "1.00",
        "–",
    ]
    assert [q.duration(value) for value in (48, 89.9, 600, 33600, 7200)] == [
        "48 s",
        "90 s",
        "10 min",
        "9 h 20 min",
        "2 h",
    ]


def test_counts_agree_with_their_noun():
    assert [q.count(value, "launch", "launches") for value in (1, 3, 0)] == ["1 launch", "3 launches", "0 launches"]


def test_moment_is_a_label_with_its_zone():
    assert q.moment("2026-11-20T08:15:30Z") == "2026-11-20 08:15 UTC"
    assert q.moment("2026-11-20T08:15:30.25+02:00") == "2026-11-20 08:15 +02:00"
    assert q.moment("yesterday") == "yesterday"


anything = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-(10**15), 10**15), st.text(max_size=3))


@given(anything, anything, anything)
def test_nothing_prints_nan_or_infinity_or_fails(value, low, high):
    for text in (q.with_interval(value, low, high, "ms"), q.significant(value), q.exact(value), q.percent(value)):
        assert "nan" not in text.lower()
        assert "inf" not in text.lower()


@given(st.floats(1e-6, 1e9), st.floats(1e-5, 0.9))
def test_what_is_printed_lies_within_a_tenth_of_the_half_width(value, relative):
    low, high = value * (1 - relative), value * (1 + relative)
    printed = float(q.estimate(value, low, high).replace(THIN, ""))
    half_width = (high - low) / 2
    unit = 10.0 ** -decimals_for(half_width)
    widest = max(unit, 10.0 ** (math.floor(math.log10(high)) - 4)) / 2
    assert abs(printed - value) <= widest * 1.0001
