"""Measured beside what others said: published numbers and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reckoning.report.figures.model import Cast, Figure, FigureData
from reckoning.report.figures.ratios import Ratio, draw_ratios
from reckoning.report.quantities import finite, significant, with_interval


def published_figure(entries: Sequence[Mapping[str, Any]], cast: Cast, sure: str) -> Figure | None:
    """Return measured over published, with the prediction interval of one run; None when nothing was compared."""
    shown = [one for one in entries if finite(one.get("ratio")) is not None]
    if not shown:
        return None
    ratios = [
        Ratio(
            row=(cast.label(one["arm"]),),
            panel=f"C = {one['concurrency']}",
            slug=one["arm"],
            ratio=one["ratio"],
            low=finite(one.get("ratio_low")),
            high=finite(one.get("ratio_high")),
            decided=one["verdict"] in ("reproduced", "differs"),
        )
        for one in sorted(shown, key=lambda one: one["concurrency"])
    ]
    columns = (
        "concurrency",
        "metric",
        "unit",
        "published",
        "approximate",
        "measured",
        "low",
        "high",
        "ratio",
        "n",
        "verdict",
    )
    parts = [
        f"{cast.label(one['arm'])} at C={one['concurrency']} {_amount(one)}: {one['verdict']}" for one in shown[:15]
    ]
    return Figure(
        key="published",
        title="Published against measured",
        caption=(
            f"Measured over published, with the {sure} prediction interval of one run. A published number "
            "is reproduced when the "
            "interval reaches 1."
        ),
        alt="Forest plot of measured over published throughput. " + "; ".join(parts) + ".",
        data=FigureData(
            ("arm", "label", *columns),
            tuple((one["arm"], cast.label(one["arm"]), *map(one.get, columns)) for one in shown),
        ),
        draw=lambda sheet: draw_ratios(sheet, ratios, cast, None, "measured / published (log scale)"),
        arms=tuple(dict.fromkeys(one["arm"] for one in shown)),
        category="comparison",
    )


def predicted_figure(entries: Sequence[Mapping[str, Any]], cast: Cast) -> Figure | None:
    """Return measured over predicted; None when nothing was predicted."""
    shown = [one for one in entries if finite(one.get("ratio")) is not None]
    if not shown:
        return None
    ratios = []
    for one in sorted(shown, key=lambda one: one["concurrency"]):
        ends = [_over(one.get(end), one["predicted"]) for end in ("low", "high")]
        ratios.append(
            Ratio(
                (cast.label(one["arm"]),), f"C = {one['concurrency']}", one["arm"], one["ratio"], ends[0], ends[1], True
            )
        )
    columns = (
        "workload",
        "concurrency",
        "metric",
        "unit",
        "predicted",
        "measured",
        "low",
        "high",
        "ratio",
        "n",
        "source",
    )
    parts = [f"{cast.label(one['arm'])} at C={one['concurrency']}: {significant(one['ratio'])}×" for one in shown[:15]]
    return Figure(
        key="predicted",
        title="Predicted against measured",
        caption="Measured over predicted, with the interval of the measurement. Right of 1: faster than predicted.",
        alt="Forest plot of measured over predicted throughput. " + "; ".join(parts) + ".",
        data=FigureData(
            ("arm", "label", *columns),
            tuple((one["arm"], cast.label(one["arm"]), *map(one.get, columns)) for one in shown),
        ),
        draw=lambda sheet: draw_ratios(sheet, ratios, cast, None, "measured / predicted (log scale)"),
        arms=tuple(dict.fromkeys(one["arm"] for one in shown)),
        category="comparison",
    )


def _over(value: Any, predicted: Any) -> float | None:
    number, base = finite(value), finite(predicted)
    return number / base if number is not None and base else None


def _amount(one: Mapping[str, Any]) -> str:
    return with_interval(one["ratio"], one.get("ratio_low"), one.get("ratio_high"), "×")
