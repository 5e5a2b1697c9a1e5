"""Estimates of every arm and contrasts between arms: against the baseline, against the best, and peak against peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.design import Design
from reckoning.analyse.words import list_of, percent
from reckoning.statistics.contrasts import PairedRatio, Verdict, equivalence_p, holm, paired_ratio, verdict_of
from reckoning.statistics.intervals import Interval, launch_interval

STATE_NOTES = {
    "no-data": "no block has a rankable value on both sides",
    "single-run": "single run: no interval",
    "two-runs": "two launches: too few for an interval (three are the minimum)",
    "zero-spread": "the launches do not differ at all: a warning, not certainty",
}


@dataclass(frozen=True)
class Contrast:
    """One comparison with its place in its family. `metric` and `cell` say where; `reference_level` for peaks."""

    arm: str
    reference: str
    cell: Cell
    metric: str
    family: str
    pair: PairedRatio
    family_size: int = 0
    p_holm: float | None = None
    p_equivalence: float | None = None
    verdict: Verdict = Verdict.NONE
    note: str | None = None

    @property
    def shown(self) -> bool:
        """True when a difference in speed is shown."""
        return self.verdict in {Verdict.FASTER, Verdict.SLOWER}


@dataclass(frozen=True)
class Estimate:
    """An arm's estimate at a cell."""

    arm: str
    cell: Cell
    metric: str
    interval: Interval


def estimates(cells: Cells, design: Design) -> list[Estimate]:
    """Return an estimate for every arm, cell and metric that has a rankable value."""
    return [
        Estimate(arm, cell, metric, launch_interval(list(cells.values(metric, cell, arm).values()), design.confidence))
        for metric in cells.metrics
        for cell, arms in cells.of(metric).items()
        for arm in arms
    ]


def compare(  # noqa: PLR0917
    cells: Cells, design: Design, metric: str, cell: Cell, arm: str, reference: str, family: str
) -> Contrast:
    """Compare two arms at one cell; p_holm and the verdict come with `judged`."""
    pair = paired_ratio(cells.values(metric, cell, arm), cells.values(metric, cell, reference), design.confidence)
    return Contrast(arm, reference, cell, metric, family, pair)


def judged(contrasts: Sequence[Contrast], design: Design, margin: float | None = None) -> list[Contrast]:
    """Return a family with Holm's p values over all of it, TOST p values and verdicts."""
    adjusted = holm([contrast.pair.p for contrast in contrasts])
    size = sum(contrast.pair.p is not None for contrast in contrasts)
    return [_judge(c, p, size, design, margin) for c, p in zip(contrasts, adjusted, strict=True)]


def _judge(contrast: Contrast, p_holm: float | None, size: int, design: Design, margin: float | None) -> Contrast:
    margin = design.equivalence_margin if margin is None else margin
    p_equivalence = equivalence_p(contrast.pair, margin)
    metric = design.metrics[contrast.metric]
    verdict = verdict_of(contrast.pair, p_holm, p_equivalence, better=metric.better, alpha=design.alpha)
    notes = []
    if (state := contrast.pair.state) in STATE_NOTES:
        notes.append(STATE_NOTES[state])
    if contrast.pair.unpaired and contrast.pair.n:
        notes.append(f"without block {list_of(map(str, contrast.pair.unpaired))}, which one side lacks")
    if verdict is Verdict.EQUIVALENT and p_holm is not None and p_holm <= design.alpha:
        notes.append(f"a difference is shown, but it lies within the margin of {percent(margin)}")
    return replace(
        contrast,
        p_holm=p_holm,
        p_equivalence=p_equivalence,
        family_size=size,
        verdict=verdict,
        note="; ".join(notes) or None,
    )


def baseline_contrasts(cells: Cells, design: Design) -> list[Contrast]:
    """Compare every arm with the baseline at every cell; one family per metric, over arms and levels."""
    if design.baseline is None:
        return []
    found = []
    for metric in cells.metrics:
        family = [
            compare(cells, design, metric, cell, arm, design.baseline, "baseline")
            for cell, arms in cells.of(metric).items()
            for arm in arms
            if arm != design.baseline
        ]
        found += judged(family, design)
    return found


def best_arm(cells: Cells, design: Design, metric: str, cell: Cell) -> str | None:
    """Return the arm with the best estimate at a cell; the number of launches plays no part."""
    means = {arm: _log_mean(cells.values(metric, cell, arm)) for arm in cells.of(metric).get(cell, {})}
    if not means:
        return None
    pick = max if design.metrics[metric].better == "higher" else min
    return pick(means, key=means.__getitem__)


def all_pairs(cells: Cells, design: Design, metric: str) -> list[Contrast]:
    """Compare every two arms at every cell, the later arm of the plan against the earlier; one family over all."""
    family = [
        compare(cells, design, metric, cell, arm, reference, "best")
        for cell, arms in cells.of(metric).items()
        for reference, arm in combinations(arms, 2)
    ]
    return judged(family, design)


def best_contrasts(cells: Cells, design: Design, metric: str, pairs: Sequence[Contrast]) -> list[Contrast]:
    """Return, for every cell, each arm against the best one there.

    The best arm was picked by looking at the data, so the verdicts are adjusted over all pairs, from which it was
    picked.
    """
    found = []
    for cell in cells.of(metric):
        best = best_arm(cells, design, metric, cell)
        here = [pair for pair in pairs if pair.cell == cell and best in {pair.arm, pair.reference}]
        found += [pair if pair.reference == best else flipped(pair, design) for pair in here]
    return found


def flipped(contrast: Contrast, design: Design) -> Contrast:
    """Return the same comparison with the sides exchanged."""
    pair = contrast.pair
    turned = replace(
        pair,
        ratio=_inverse(pair.ratio),
        low=_inverse(pair.high),
        high=_inverse(pair.low),
        log_ratios=tuple(-value for value in pair.log_ratios),
    )
    verdict = {
        Verdict.FASTER: Verdict.SLOWER,
        Verdict.SLOWER: Verdict.FASTER,
        Verdict.HIGHER: Verdict.LOWER,
        Verdict.LOWER: Verdict.HIGHER,
    }.get(contrast.verdict, contrast.verdict)
    return replace(contrast, arm=contrast.reference, reference=contrast.arm, pair=turned, verdict=verdict)


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def peak_levels(cells: Cells, design: Design, workload: str) -> dict[str, Cell]:
    """Return each arm's cell of highest primary metric in a workload."""
    best: dict[str, tuple[float, Cell]] = {}
    for cell, arms in cells.of(design.primary).items():
        if cell.workload != workload:
            continue
        for arm in arms:
            mean = _log_mean(cells.values(design.primary, cell, arm))
            mean = mean if design.metrics[design.primary].better != "lower" else -mean
            if arm not in best or mean > best[arm][0]:
                best[arm] = (mean, cell)
    return {arm: cell for arm, (_, cell) in best.items()}


def peak_contrasts(cells: Cells, design: Design) -> list[Contrast]:
    """Compare, per workload, every arm at its own best level with the winner at its best level.

    Adjusted over all pairs of arms and workloads. `cell` is the arm's own best cell.
    """
    family, winners = [], set()
    for workload in cells.workloads(design.primary):
        levels = peak_levels(cells, design, workload)
        winner = _winner(cells, design, levels)
        winners |= {(workload, winner)}
        values = {arm: cells.values(design.primary, cell, arm) for arm, cell in levels.items()}
        ordered = [winner, *(arm for arm in levels if arm != winner)]
        for reference, arm in combinations(ordered, 2):
            pair = paired_ratio(values[arm], values[reference], design.confidence)
            family.append(Contrast(arm, reference, levels[arm], design.primary, "peak", pair))
    return [c for c in judged(family, design) if (c.cell.workload, c.reference) in winners]


def _winner(cells: Cells, design: Design, levels: Mapping[str, Cell]) -> str:
    pick = min if design.metrics[design.primary].better == "lower" else max
    return pick(levels, key=lambda arm: _log_mean(cells.values(design.primary, levels[arm], arm)))


def peak_winner(cells: Cells, design: Design, workload: str) -> tuple[str, Cell] | None:
    """Return the arm and cell of the highest primary metric in a workload."""
    levels = peak_levels(cells, design, workload)
    if not levels:
        return None
    winner = _winner(cells, design, levels)
    return winner, levels[winner]


def _log_mean(values: Mapping[int, float]) -> float:
    return sum(math.log(value) for value in values.values()) / len(values)
