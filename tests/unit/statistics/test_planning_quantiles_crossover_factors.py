"""Planning, tail quantiles, crossovers and factor steps."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from reckoning.statistics.crossover import Bracket, LevelLead, find_crossovers
from reckoning.statistics.factors import interactions, single_steps, text_of
from reckoning.statistics.planning import best_repeats, half_width, launches_for, power
from reckoning.statistics.quantiles import launch_quantiles, requests_needed


class TestPlanning:
    def test_best_repeats_by_hand(self):
        """sqrt(300/75 * 0.02^2/0.01^2) = sqrt(4 * 4) = 4."""
        assert best_repeats(0.01, 0.02, 300, 75) == pytest.approx(4)

    def test_never_below_one_repeat(self):
        assert best_repeats(0.05, 0.001, 10, 100) == 1

    @pytest.mark.parametrize("arguments", [(0, 0.02, 300, 75), (0.01, 0.02, 0, 75), (0.01, 0.02, 300, 0)])
    def test_no_finite_answer_is_none(self, arguments):
        assert best_repeats(*arguments) is None

    def test_half_width_by_hand(self):
        """t(0.975, 4) = 2.776445; 2.776445 * 0.02 / sqrt(5)."""
        assert half_width(0.02, 5) == pytest.approx(2.776445 * 0.02 / math.sqrt(5), rel=1e-6)

    def test_launches_for_is_the_first_that_suffices(self):
        wanted = launches_for(0.01, 0.01)
        assert half_width(0.01, wanted) <= 0.01 < half_width(0.01, wanted - 1)
        assert launches_for(1.0, 0.001) is None

    @pytest.mark.parametrize(("effect", "blocks"), [(0.01, 4), (0.02, 5), (0.03, 4), (0.0, 3)])
    @pytest.mark.parametrize("alpha", [0.05, 0.05 / 24])
    def test_power_agrees_with_statsmodels(self, effect, blocks, alpha):
        expected = TTestPower().power(effect / 0.015, blocks, alpha) if effect else alpha
        assert power(effect, 0.015, blocks, alpha) == pytest.approx(expected, abs=1e-6)

    def test_power_where_scipy_gives_nan(self):
        assert power(0.08, 0.0122, 4) == pytest.approx(1, abs=1e-4)


class TestQuantiles:
    @pytest.mark.parametrize(("q", "needed"), [(0.5, 10), (0.9, 50), (0.99, 500)])
    def test_requests_needed(self, q, needed):
        assert requests_needed(q) == needed
        values = np.arange(1.0, needed + 1)
        assert launch_quantiles(values, 0, [q])[0].state == "ok"
        assert launch_quantiles(values[:-1], 0, [q])[0].state == "too-few-requests"
        assert launch_quantiles(values[:-1], 0, [q])[0].value is None

    def test_agrees_with_numpy(self):
        values = np.random.default_rng(1).lognormal(3, 0.5, 777)
        found = launch_quantiles(values, 0, [0.5, 0.9, 0.99])
        assert [f.value for f in found] == pytest.approx(list(np.quantile(values, [0.5, 0.9, 0.99])))

    def test_censored_requests_take_the_highest_ranks(self):
        """90 known values 1..90 and 10 that timed out: the median is that of 100 ranks, p99 lies among the censored."""
        median, p99 = launch_quantiles(np.arange(1.0, 91), 10, [0.5, 0.9])
        assert median.value == pytest.approx(50.5)
        assert median.state == "censored"
        assert p99.value is None
        assert p99.state == "censored"
        dropped = np.quantile(np.arange(1.0, 91), 0.5)
        assert median.value > dropped

    def test_all_censored(self):
        assert launch_quantiles([], 20, [0.5])[0].value is None


def leads(*pairs):
    return [LevelLead(level, lead) for level, lead in pairs]


class TestCrossover:
    def test_bracket_skips_levels_without_a_lead(self):
        found = find_crossovers(leads((1, 1), (32, 0), (128, -1), (256, -1)))
        assert found.answer == "crosses"
        assert found.brackets == (Bracket(1, 128, 1),)

    def test_two_crossings(self):
        found = find_crossovers(leads((1, -1), (8, 1), (64, -1)))
        assert found.brackets == (Bracket(1, 8, -1), Bracket(8, 64, 1))

    def test_never(self):
        found = find_crossovers(leads((1, 1), (32, 1), (256, 1)))
        assert (found.answer, found.lead, found.brackets) == ("never", 1, ())

    def test_a_lead_that_shrinks_towards_an_end_may_cross_outside(self):
        found = find_crossovers(leads((1, 1), (32, 1), (256, 1)), shrinks_at_end=True)
        assert found.answer == "not-in-range"

    def test_an_open_level_keeps_never_away(self):
        assert find_crossovers(leads((1, -1), (32, -1), (256, 0))).answer == "not-in-range"

    def test_nothing_shown(self):
        assert find_crossovers(leads((1, 0), (32, 0))).answer == "inconclusive"


FACTORS = {
    "eager": {"graphs": False, "cds": 1},
    "graphs": {"graphs": True, "cds": 1},
    "cds": {"graphs": False, "cds": 8},
    "both": {"graphs": True, "cds": 8},
    "tuned": {"graphs": True, "cds": 8, "max_running": 256},
}


class TestFactors:
    def test_single_steps(self):
        steps = {(s.reference, s.arm): (s.factor, s.before, s.after) for s in single_steps(FACTORS)}
        assert steps == {
            ("eager", "graphs"): ("graphs", "off", "on"),
            ("eager", "cds"): ("cds", "1", "8"),
            ("graphs", "both"): ("cds", "1", "8"),
            ("cds", "both"): ("graphs", "off", "on"),
            ("both", "tuned"): ("max_running", "not set", "256"),
        }

    @pytest.mark.parametrize("order", [list(FACTORS), list(FACTORS)[::-1]])
    def test_the_two_by_two_is_found_once_in_any_order(self, order):
        found = interactions(single_steps({arm: FACTORS[arm] for arm in order}), order)
        assert len(found) == 1
        table = found[0]
        four = {table.plain, table.first.arm, table.second.arm, table.both}
        assert four == {"eager", "graphs", "cds", "both"}

    def test_settings_of_one_group_are_one_step(self):
        arms = {
            "plain": {"tp": 8},
            "dflash": {"tp": 8, "speculative_algorithm": "DFLASH", "speculative_block": 8},
            "other": {"tp": 4, "speculative_algorithm": "DFLASH", "speculative_block": 8},
        }
        steps = single_steps(arms, {"speculation": ("speculative_",)})
        assert [(s.reference, s.arm, s.factor) for s in steps] == [
            ("plain", "dflash", "speculation"),
            ("dflash", "other", "tp"),
        ]
        assert steps[0].before == "not set"
        assert single_steps({k: arms[k] for k in ("plain", "dflash")}) == []

    @pytest.mark.parametrize(("value", "text"), [(None, "not set"), (True, "on"), (False, "off"), (8, "8")])
    def test_values_in_words(self, value, text):
        assert text_of(value) == text


def test_the_normal_is_not_used_where_t_belongs():
    assert half_width(0.02, 3) > stats.norm.ppf(0.975) * 0.02 / math.sqrt(3) * 2
