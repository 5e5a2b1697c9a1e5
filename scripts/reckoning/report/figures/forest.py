"""Which arm is faster, by how much, and does a verdict stand: ratios to the baseline, effects of single factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.ratios import Ratio, draw_ratios
from reckoning.report.quantities import finite, with_interval

KEY = "After Holm's correction: ▲ faster, ▼ slower, ≈ equivalent, ? inconclusive; hollow: no verdict"
MARKS = {"faster": "▲", "higher": "▲", "slower": "▼", "lower": "▼", "equivalent": "≈", "inconclusive": "?"}
DECIDED = frozenset({"faster", "slower", "equivalent", "higher", "lower"})
_COLUMNS = (
    "workload",
    "concurrency",
    "metric",
    "ratio",
    "low",
    "high",
    "n",
    "p",
    "p_holm",
    "p_equivalence",
    "verdict",
    "note",
)


def forest_figure(
    workload: str, contrasts: Sequence[Mapping[str, Any]], cast: Cast, margin: float, sure: str
) -> Figure:
    """Return the forest plot of throughput ratios to the baseline. `sure` names the interval, such as `95 %`."""
    shown = _in_plan_order([one for one in contrasts if finite(one.get("ratio")) is not None], cast)
    reference = cast.label(shown[0]["reference"])
    return Figure(
        key=f"forest-{key_of(workload)}",
        title=f"Throughput relative to {reference}",
        scope=workload,
        caption=(
            f"Ratio of output tok/s to {reference}, paired by block, with its {sure} interval. The shaded "
            "zone is equivalence "
            f"within {100 * margin:g} %. {KEY}."
        ),
        alt=f"Forest plot of throughput ratios to {reference} on the workload {workload}. {_in_words(shown, cast)}",
        data=FigureData(
            ("arm", "label", "reference", *_COLUMNS),
            tuple((one["arm"], cast.label(one["arm"]), one["reference"], *map(one.get, _COLUMNS)) for one in shown),
        ),
        draw=lambda sheet: draw_ratios(
            sheet,
            [_ratio(one, (cast.label(one["arm"]),)) for one in shown],
            cast,
            margin,
            "ratio to the baseline (log scale)",
        ),
        arms=tuple(dict.fromkeys(one["arm"] for one in shown)),
        category="verdicts",
    )


def factor_figure(workload: str, factors: Sequence[Mapping[str, Any]], cast: Cast, margin: float, sure: str) -> Figure:
    """Return the effect of every single factor on throughput, by level."""
    shown = sorted(
        (one for one in factors if finite(one.get("ratio")) is not None),
        key=lambda one: (one["concurrency"], one["factor"]),
    )
    rows = {id(one): factor_row(one, cast) for one in shown}
    return Figure(
        key=f"factors-{key_of(workload)}",
        title="What each setting does to throughput",
        scope=workload,
        caption=(
            "Ratio of output tok/s with the setting changed to output tok/s without, paired by block, "
            f"with its {sure} interval. "
            f"{KEY}."
        ),
        alt=(
            f"Forest plot of the effect of {len(set(rows.values()))} settings on throughput on the workload "
            f"{workload}. "
        )
        + "; ".join(f"{rows[id(one)][0]} at C={one['concurrency']}: {_amount(one)}" for one in shown[:12])
        + ".",
        data=FigureData(
            ("factor", "from", "to", "arm", "reference", *_COLUMNS),
            tuple(
                (*map(one.get, ("factor", "from", "to", "arm", "reference")), *map(one.get, _COLUMNS)) for one in shown
            ),
        ),
        draw=lambda sheet: draw_ratios(
            sheet,
            [_ratio(one, rows[id(one)]) for one in shown],
            cast,
            margin,
            "ratio with / without the change (log scale)",
        ),
        arms=tuple(dict.fromkeys(one["arm"] for one in shown)),
        category="factors",
    )


def factor_row(one: Mapping[str, Any], cast: Cast) -> tuple[str, ...]:
    """Return the words for one effect: what changed to what, and below it the arm with the change over the other."""
    arms = f"{cast.label(one['arm'])} / {cast.label(one['reference'])}"
    return f"{one['factor']}: {one.get('to') or 'not set'}", arms


def _ratio(one: Mapping[str, Any], row: tuple[str, ...]) -> Ratio:
    low, high = finite(one["low"]), finite(one["high"])
    return Ratio(
        row,
        f"C = {one['concurrency']}",
        one["arm"],
        one["ratio"],
        low,
        high,
        one["verdict"] in DECIDED,
        MARKS.get(one["verdict"], ""),
    )


def _in_plan_order(contrasts: Sequence[Mapping[str, Any]], cast: Cast) -> list[Mapping[str, Any]]:
    order = {slug: place for place, slug in enumerate(cast.looks)}
    return sorted(contrasts, key=lambda one: (one["concurrency"], order.get(one["arm"], len(order))))


def _in_words(shown: Sequence[Mapping[str, Any]], cast: Cast) -> str:
    words = []
    for level in sorted({one["concurrency"] for one in shown}):
        ones = [one for one in shown if one["concurrency"] == level]
        verdicts = [one["verdict"] for one in ones]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        best = max(ones, key=lambda one: one["ratio"])
        words.append(f"C={level}: {counts}; highest ratio {cast.label(best['arm'])} {_amount(best)}.")
    return " ".join(words)


def _amount(one: Mapping[str, Any]) -> str:
    return with_interval(one["ratio"], one["low"], one["high"], "×")
