"""What one user gets against what one GPU delivers: the choice between interactive speed and total throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reckoning.report.figures.canvas import Margins, Sheet, drawing, finish, tag
from reckoning.report.figures.curves import legend
from reckoning.report.figures.model import Cast, Figure, FigureData, key_of
from reckoning.report.figures.svg import MUTED, PAPER, colour
from reckoning.report.quantities import finite


@dataclass(frozen=True)
class Point:
    """One arm at one level: (estimate, low, high) of tok/s per user and of tok/s per device."""

    arm: str
    level: int
    user: tuple[float, float | None, float | None]
    device: tuple[float, float | None, float | None]


def pareto_figure(
    workload: str, estimates: Sequence[Mapping[str, Any]], cast: Cast, devices: Mapping[str, int], device: str
) -> Figure | None:
    """Return the Pareto plot, or None without TPOT. `devices`: how many an arm uses; `device`: the name of one."""
    points = pareto_points(estimates, devices)
    if not points:
        return None
    front = pareto_front(points)
    best = ", ".join(f"{cast.label(one.arm)} at C={one.level}" for one in front)
    return Figure(
        key=f"pareto-{key_of(workload)}",
        title=f"Speed for one user against throughput per {device}",
        scope=workload,
        caption=(
            "Each mark is an arm at one level, with intervals both ways. Right is faster for one user "
            "(1000 / TPOT), up is more "
            f"from one {device}. The dotted line joins the marks that no other beats on both; their level "
            "C is written beside them."
        ),
        alt=f"Scatter plot of {len(points)} marks on the workload {workload}. Not beaten on both axes: {best}.",
        data=_data(points, front, cast, device),
        draw=lambda sheet: _draw(sheet, points, front, cast, device),
        arms=tuple(slug for slug in cast.looks if any(point.arm == slug for point in points)),
        category="throughput",
        group="curves",
    )


def pareto_points(estimates: Sequence[Mapping[str, Any]], devices: Mapping[str, int]) -> list[Point]:
    """Return the points: tok/s per user is 1000 / TPOT in ms, with its interval turned over; devices share the rest."""
    values = {(one["arm"], one["concurrency"], one["metric"]): one for one in estimates}
    points = []
    for (arm, level, metric), rate in values.items():
        tpot = values.get((arm, level, "tpot_ms"))
        if metric != "output_tok_s" or not tpot or not _value(rate) or not _value(tpot) or not devices.get(arm):
            continue
        user = (1000 / tpot["estimate"], *(_inverse(tpot[end]) for end in ("high", "low")))
        share = devices[arm]
        ends = [finite(rate[end]) for end in ("low", "high")]
        points.append(
            Point(arm, level, user, (rate["estimate"] / share, *(None if end is None else end / share for end in ends)))
        )
    return points


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other point beats or equals on both axes, from slow users to fast ones."""
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (-one.user[0], -one.device[0])):
        if not front or point.device[0] > front[-1].device[0]:
            front.append(point)
    return front[::-1]


def _value(one: Mapping[str, Any]) -> float | None:
    return finite(one.get("estimate"))


def _inverse(value: Any) -> float | None:
    number = finite(value)
    return 1000 / number if number else None


def _draw(sheet: Sheet, points: Sequence[Point], front: Sequence[Point], cast: Cast, device: str) -> str:
    with drawing(sheet, 330 if sheet.narrow else 420, margins=Margins(right=34)) as (figure, grid):
        axes = grid[0, 0]
        for slug in cast.looks:
            own = sorted((point for point in points if point.arm == slug), key=lambda one: one.level)
            if own:
                _draw_arm(axes, slug, own, front, cast)
        axes.plot(
            [one.user[0] for one in front],
            [one.device[0] for one in front],
            color=MUTED,
            linestyle=":",
            linewidth=1.3,
            zorder=2,
        )
        axes.set_xlabel("tok/s for one user (1000 / TPOT)")
        axes.set_ylabel(f"output tok/s per {device}")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        if sheet.alone:
            legend(axes, [slug for slug in cast.looks if any(point.arm == slug for point in points)], cast)
        return finish(figure, sheet)


def _draw_arm(axes: Any, slug: str, own: Sequence[Point], front: Sequence[Point], cast: Cast) -> None:
    look = cast.look(slug)
    tone = colour(look)
    x, y = [one.user[0] for one in own], [one.device[0] for one in own]
    tag(axes.plot(x, y, color=tone, linestyle=look.dash, linewidth=1, alpha=0.6, zorder=3), slug)
    dots = axes.plot(
        x, y, color=tone, linestyle="none", marker=look.marker, markersize=7, markeredgecolor=PAPER, zorder=5
    )
    tag(dots, slug)
    for one in own:
        if one.user[1] is not None and one.user[2] is not None:
            tag(axes.plot(one.user[1:], [one.device[0]] * 2, color=tone, linewidth=1.2, zorder=4), slug)
        if one.device[1] is not None and one.device[2] is not None:
            tag(axes.plot([one.user[0]] * 2, one.device[1:], color=tone, linewidth=1.2, zorder=4), slug)
    for one in front:
        if one.arm != slug:
            continue
        note = axes.annotate(
            f"C={one.level}", (one.user[0], one.device[0]), (5, 4), textcoords="offset points", fontsize=9.5
        )
        note.set_color(MUTED)
        tag(note, slug)


def _data(points: Sequence[Point], front: Sequence[Point], cast: Cast, device: str) -> FigureData:
    columns = (
        "arm",
        "label",
        "concurrency",
        "tok_s_per_user",
        "user_low",
        "user_high",
        f"tok_s_per_{device}",
        "low",
        "high",
        "on_front",
    )
    rows = ((one.arm, cast.label(one.arm), one.level, *one.user, *one.device, one in front) for one in points)
    return FigureData(columns, tuple(rows))
