"""The arithmetic behind the figures, by hand."""

import math
from xml.etree import ElementTree

import pandas as pd
import pytest

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, shortened, tag
from reckoning.report.figures.latency import SHARES, launch_curves
from reckoning.report.figures.model import Cast, FigureData
from reckoning.report.figures.pareto import Point, pareto_front, pareto_points
from reckoning.report.figures.ratios import ratio_ticks
from reckoning.report.figures.sureness import deviations, spread_by_arm
from reckoning.report.figures.telemetry import heat, measures
from reckoning.report.palette import looks

CAST = Cast(labels={"a": "A"}, looks=looks(["a", "b"]), first=("a",), baseline="a")


def estimate(arm, level, metric, value, ends=(None, None), *, launches=()):
    return {
        "arm": arm,
        "concurrency": level,
        "metric": metric,
        "estimate": value,
        "low": ends[0],
        "high": ends[1],
        "launches": [{"block": n, "value": one} for n, one in enumerate(launches, 1)],
    }


def test_pareto_point_turns_tpot_and_its_interval_over_and_shares_the_rate():
    rows = [estimate("a", 4, "output_tok_s", 800, (760, 840)), estimate("a", 4, "tpot_ms", 10, (8, 12.5))]
    (point,) = pareto_points(rows, {"a": 8})
    assert point.user == (100, 80, 125)
    assert point.device == (100, 95, 105)


def test_pareto_front_keeps_what_nothing_beats():
    def at(arm, user, device):
        return Point(arm, 1, (user, None, None), (device, None, None))

    slow, middle, fast = at("a", 10, 100), at("b", 50, 60), at("c", 90, 20)
    beaten, equal = at("d", 40, 60), at("e", 50, 60)
    assert pareto_front([beaten, fast, slow, middle, equal]) == [slow, middle, fast]


def test_deviation_of_a_launch_is_against_its_own_arm_over_the_levels():
    rows = [
        estimate("a", 1, "output_tok_s", 100, launches=[110, 100 / 1.1]),
        estimate("a", 2, "output_tok_s", 200, launches=[220, 200 / 1.1]),
        estimate("b", 1, "output_tok_s", 50, launches=[50]),  # one launch deviates from nothing
    ]
    found = deviations(rows, {("a", 1): 2, ("a", 2): 1, ("b", 1): 3})
    assert [(place, block, arm) for place, block, arm, _ in found] == [(1, 2, "a"), (2, 1, "a")]
    assert [value for *_, value in found] == pytest.approx([1 / 1.1 - 1, 0.1])


def test_spread_is_the_root_mean_square_over_levels_unless_the_arm_has_a_pooled_entry():
    rows = [
        {"arm": "a", "metric": "output_tok_s", "concurrency": 1, "sigma_launch": 0.03, "sigma_repeat": None},
        {"arm": "a", "metric": "output_tok_s", "concurrency": 2, "sigma_launch": 0.04, "sigma_repeat": None},
        {"arm": "b", "metric": "output_tok_s", "concurrency": None, "sigma_launch": 0.01, "sigma_repeat": 0.02},
        {"arm": "b", "metric": "output_tok_s", "concurrency": 1, "sigma_launch": 0.5, "sigma_repeat": 0.5},
    ]
    assert spread_by_arm(rows, CAST) == {"a": (pytest.approx(math.sqrt(0.00125)), None), "b": (0.01, 0.02)}


def test_distribution_is_the_geometric_mean_of_the_launches_quantiles():
    rows = [
        ("a", "chat", 1, "ttft_ms", block, q / 10, scale * (1 + q))
        for block, scale in ((1, 1), (2, 4))
        for q in range(11)
    ]
    table = pd.DataFrame(rows, columns=["arm", "workload", "concurrency", "metric", "block", "q", "value"])
    curves = launch_curves(table, CAST)
    middle = curves[curves["share"] == 0.5].iloc[0]
    assert middle["value_ms"] == pytest.approx(2 * 6)  # sqrt(1 * 4) = 2 times the quantile 6 of the first launch
    assert (middle["quickest_launch_ms"], middle["slowest_launch_ms"], middle["launches"]) == (6, 24, 2)
    assert len(curves) == len(SHARES)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (0.5, 2), (0.1, 5), (1.05, 1.3), (0.02, 30), (0.97, 1.02)])
@pytest.mark.parametrize("most", [3, 5, 7])
def test_ratio_ticks_are_few_inside_and_hold_one(low, high, most):
    ticks = ratio_ticks(low, high, most)
    assert 1 <= len(ticks) <= most
    assert all(low <= tick <= high for tick in ticks)
    assert (1 in ticks) is (low <= 1 <= high)


def test_heat_map_is_the_mean_per_gpu_and_bin_of_power_over_its_limit():
    table = pd.DataFrame(
        [(0.0, 0, 150.0, 600.0), (0.4, 0, 450.0, 600.0), (60.0, 0, 600.0, 600.0), (60.0, 1, 60.0, 600.0)],
        columns=["at_s", "gpu", "power_w", "power_limit_w"],
    )
    grid = heat(measures(table), "power")
    assert grid.loc[0, 0.0] == pytest.approx(50)
    assert grid.loc[0].iloc[-1] == pytest.approx(100)
    assert grid.loc[1].iloc[-1] == pytest.approx(10)


def test_drawing_carries_arms_watermark_and_theme_and_nothing_of_matplotlib():
    def draw(alone: bool) -> str:
        sheet = Sheet("k", 300, alone=alone, watermark="CPU demonstration")
        with drawing(sheet, 200, margins=Margins()) as (figure, grid):
            tag(grid[0, 0].plot([1, 2], [3, 4], color="#0a0b03"), "a")
            grid[0, 0].set_title("costs $5 & <b>$6</b>")
            return finish(figure, sheet)

    page, alone = draw(False), draw(True)
    root = ElementTree.fromstring(page)
    assert root.attrib["viewBox"] == "0 0 300 200"
    assert [element.attrib["data-arm"] for element in root.iter() if element.attrib.get("class") == "arm"] == ["a"]
    assert "var(--arm-3)" in page
    assert "#0a0b03" not in page + alone
    assert "var(" not in alone
    assert ">CPU demonstration<" in page
    assert ">costs $5 &amp; &lt;b&gt;$6&lt;/b&gt;<" in page
    assert "<style" not in page + alone
    assert "metadata" not in page


def test_csv_is_exact_and_safe():
    data = FigureData(
        ("name", "x", "ok"), (("=1+1", 1234.56789, True), ('say "hi", ok', None, False), ("-", float("nan"), None))
    )
    assert data.csv() == 'name,x,ok\r\n\'=1+1,1234.568,true\r\n"say ""hi"", ok",,false\r\n\'-,,\r\n'


def test_long_labels_are_shortened_in_figures():
    assert shortened("tp8-eager", 22) == "tp8-eager"
    assert shortened("w" * 90, 22) == "w" * 21 + "…"
