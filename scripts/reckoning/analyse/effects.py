"""What one setting does, whether two settings add up, where the lead changes, and where speculation pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.compare import Contrast, Estimate, best_arm, compare, judged
from reckoning.analyse.design import Arm, Design
from reckoning.statistics.contrasts import Verdict, ratio_of_differences
from reckoning.statistics.crossover import Crossover, LevelLead, find_crossovers
from reckoning.statistics.factors import FactorStep, decisions, differences, interactions, single_steps

LAYOUT = ("tp_size", "pp_size", "ep_size", "dp_size", "nnodes", "moe_dp_size")
GROUPS = {
    "parallel layout": LAYOUT,
    "speculation": ("speculative_",),
}
"""Settings that are one decision when they change together: a draft model with its algorithm and block size."""


NEAR = 3
"""An arm that differs in more settings than this is no counterpart."""


@dataclass(frozen=True)
class FactorEffect:
    """The effect of one step (kind single), of several at once (combined), or of their interplay (interaction)."""

    factor: str
    kind: str
    before: str | None
    after: str | None
    contrast: Contrast


def arm_factors(arm: Arm) -> dict[str, Any]:
    """Return what an arm is made of: the plan's own `factors`, else its settings, environment and patches."""
    if arm.factors:
        return dict(arm.factors)
    patches = {f"patch {patch}": True for patch in arm.patches}
    return {**arm.settings, **{f"env {name}": value for name, value in arm.env.items()}, **patches}


def factor_steps(design: Design, arms: Sequence[str]) -> tuple[list[FactorStep], list[tuple[str, str, list[str]]]]:
    """Return the pairs that differ in one decision, and (arm, baseline, changes) of those that differ in several."""
    factors = {slug: arm_factors(design.arm(slug)) for slug in arms}
    steps = single_steps(factors, GROUPS)
    single = {frozenset({step.arm, step.reference}) for step in steps}
    combined = []
    for arm in arms:
        base = design.baseline
        if base in factors and arm != base and frozenset({arm, base}) not in single:
            changes = decisions(differences(factors[base], factors[arm]), GROUPS)
            if 1 < len(changes) <= 4:
                combined.append((arm, base, changes))
    return steps, combined


def factor_effects(cells: Cells, design: Design) -> list[FactorEffect]:
    """Return the effect of every step at every cell for the speed metrics: Holm over all single steps of a metric."""
    found: list[FactorEffect] = []
    for metric in design.compared:
        arms = [a for a in design.runnable if any(a in present for present in cells.of(metric).values())]
        steps, combined = factor_steps(design, arms)
        singles = [(step, cell) for step in steps for cell in _both(cells, metric, step.arm, step.reference)]
        family = [compare(cells, design, metric, cell, s.arm, s.reference, "factor") for s, cell in singles]
        found += [
            FactorEffect(step.factor, "single", step.before, step.after, contrast)
            for (step, _), contrast in zip(singles, judged(family, design), strict=True)
        ]
        several = [(c, cell) for c in combined for cell in _both(cells, metric, c[0], c[1])]
        family = [compare(cells, design, metric, cell, c[0], c[1], "factor") for c, cell in several]
        found += [
            FactorEffect(" + ".join(changes), "combined", None, None, contrast)
            for ((_, _, changes), _), contrast in zip(several, judged(family, design), strict=True)
        ]
        found += _interactions(cells, design, metric, steps, arms)
    return found


def _both(cells: Cells, metric: str, arm: str, reference: str) -> list[Cell]:
    return [cell for cell, present in cells.of(metric).items() if arm in present and reference in present]


def _interactions(
    cells: Cells, design: Design, metric: str, steps: Sequence[FactorStep], arms: Sequence[str]
) -> list[FactorEffect]:
    """Return ratios of ratios: the first step's effect with the second, over its effect without it."""
    tables = interactions(steps, arms)
    labels, family = [], []
    for table in tables:
        four = (table.plain, table.first.arm, table.second.arm, table.both)
        for cell, present in cells.of(metric).items():
            if not all(arm in present for arm in four):
                continue
            values = [cells.values(metric, cell, arm) for arm in four]
            blocks = sorted(set.intersection(*(set(v) for v in values)))
            plain, first, second, both = ([value[b] for b in blocks] for value in values)
            logs = [_log_ratio(x, y) - _log_ratio(f, p) for x, y, f, p in zip(both, second, first, plain, strict=True)]
            pair = ratio_of_differences(logs, design.confidence, blocks=blocks)
            family.append(Contrast(table.both, table.plain, cell, metric, "factor", pair))
            labels.append(table)
    neutral = replace(design, metrics={**design.metrics, metric: replace(design.metrics[metric], better="none")})
    return [
        FactorEffect(
            f"{table.first.factor} x {table.second.factor}",
            "interaction",
            f"{table.first.before} / {table.second.before}",
            f"{table.first.after} / {table.second.after}",
            contrast,
        )
        for table, contrast in zip(labels, judged(family, neutral), strict=True)
    ]


def _log_ratio(a: float, b: float) -> float:
    return math.log(a) - math.log(b)


@dataclass(frozen=True)
class CrossoverOf:
    """The crossover of two arms in a workload, with the levels compared."""

    arm: str
    reference: str
    workload: str
    crossover: Crossover
    levels: tuple[int, ...]


def crossovers(cells: Cells, design: Design, pairs: Sequence[Contrast]) -> list[CrossoverOf]:
    """Return the crossovers between the arms that matter: the baseline and every arm that is best at some level.

    These arms are picked by looking, so a lead is shown with the correction over all `pairs` of arms and levels.
    """
    contenders = {workload: _contenders(cells, design, workload) for workload in cells.workloads(design.primary)}
    contrasts = [c for c in pairs if {c.arm, c.reference} <= set(contenders.get(c.cell.workload, ()))]
    groups: dict[tuple[str, str, str], list[Contrast]] = {}
    for contrast in contrasts:
        groups.setdefault((contrast.arm, contrast.reference, contrast.cell.workload), []).append(contrast)
    found = []
    for (arm, reference, workload), own in groups.items():
        ordered = sorted(own, key=lambda c: c.cell)
        if len(ordered) > 1:
            leads = [LevelLead(c.cell.concurrency, lead(c, design)) for c in ordered]
            result = find_crossovers(leads, shrinks_at_end=_shrinks(ordered, design))
            found.append(CrossoverOf(arm, reference, workload, result, tuple(x.level for x in leads)))
    return found


def _contenders(cells: Cells, design: Design, workload: str) -> list[str]:
    here = [cell for cell in cells.of(design.primary) if cell.workload == workload]
    leaders = {best_arm(cells, design, design.primary, cell) for cell in here}
    return [arm for arm in design.runnable if arm in leaders or arm == design.baseline]


def lead(contrast: Contrast, design: Design) -> int:
    """Return +1 when the arm is shown ahead, -1 when the reference is, else 0; a lead inside the margin counts."""
    if contrast.p_holm is None or contrast.p_holm > design.alpha:
        return 0
    ahead = (contrast.pair.ratio > 1) == (design.metrics[contrast.metric].better == "higher")
    return 1 if ahead else -1


def _shrinks(contrasts: Sequence[Contrast], design: Design) -> bool:
    """True when the lead at the lowest or highest level is shown to be smaller than the largest lead (paired by
    block).
    """
    usable = [c for c in contrasts if c.pair.ratio is not None]
    if len(usable) < 2:
        return False
    largest = max(usable, key=lambda c: abs(sum(c.pair.log_ratios) / c.pair.n))
    sign = 1 if largest.pair.ratio > 1 else -1
    for end in (usable[0], usable[-1]):
        if end is largest:
            continue
        far, near = (dict(zip(c.pair.blocks, c.pair.log_ratios, strict=True)) for c in (largest, end))
        common = sorted(set(far) & set(near))
        test = ratio_of_differences([sign * (far[b] - near[b]) for b in common], design.confidence)
        if test.p is not None and test.p <= design.alpha and test.ratio > 1:
            return True
    return False


@dataclass(frozen=True)
class Speculation:
    """A speculative arm against the nearest one without: per level the contrast and the acceptance length.

    `also` names what else differs between the two.
    """

    arm: str
    reference: str | None
    workload: str
    levels: tuple[tuple[Contrast | None, Estimate | None, int], ...]
    pays_at: tuple[int, ...]
    stops: tuple[int, int] | None
    also: tuple[str, ...] = ()


def speculative_arms(design: Design) -> list[str]:
    """Return the runnable arms that speculate."""
    return [slug for slug in design.runnable if design.arm(slug).settings.get("speculative_algorithm")]


def speculation(cells: Cells, design: Design, estimates: Sequence[Estimate]) -> list[Speculation]:
    """Return, for every speculative arm, where it pays and where it stops; one Holm family over arms and levels."""
    family: list[Contrast] = []
    for arm in speculative_arms(design):
        reference, _ = plain_counterpart(design, arm)
        if reference is not None:
            family += [
                compare(cells, design, design.primary, cell, arm, reference, "factor")
                for cell in _both(cells, design.primary, arm, reference)
            ]
    contrasts = judged(family, design)
    found = []
    for arm in speculative_arms(design):
        reference, also = plain_counterpart(design, arm)
        for workload in cells.workloads(design.primary):
            levels = []
            for cell, present in cells.of(design.primary).items():
                if cell.workload == workload and arm in present:
                    contrast = next((c for c in contrasts if c.arm == arm and c.cell == cell), None)
                    length = _estimate(estimates, arm, cell, "acceptance_length")
                    levels.append((contrast, length, cell.concurrency))
            if levels:
                pays = tuple(level for c, _, level in levels if c is not None and c.verdict is Verdict.FASTER)
                slower = [level for c, _, level in levels if c is not None and c.verdict is Verdict.SLOWER]
                after = [level for level in slower if pays and level > max(pays)]
                stops = (max(pays), min(after)) if after else None
                found.append(Speculation(arm, reference, workload, tuple(levels), pays, stops, also))
    return found


def plain_counterpart(design: Design, arm: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the arm of the same layout without speculation that differs least from `arm`, and in what else."""
    own = arm_factors(design.arm(arm))
    scored = []
    for place, slug in enumerate(design.runnable):
        other = design.arm(slug)
        if slug == arm or other.settings.get("speculative_algorithm"):
            continue
        changed = differences(arm_factors(other), own)
        also = tuple(name for name in changed if not name.startswith(("speculative_", "patch")))
        if not set(also) & set(LAYOUT):
            scored.append((len(also), place, slug, also))
    if not scored or min(scored)[0] > NEAR:
        return None, ()
    return min(scored)[2:]


def _estimate(estimates: Sequence[Estimate], arm: str, cell: Cell, metric: str) -> Estimate | None:
    return next((e for e in estimates if e.arm == arm and e.cell == cell and e.metric == metric), None)
