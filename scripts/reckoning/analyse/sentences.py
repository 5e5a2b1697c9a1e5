"""Results as sentences: what is known, how well, and for which arms, workload and levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from reckoning.analyse.compare import Contrast
from reckoning.analyse.design import Design
from reckoning.analyse.effects import CrossoverOf, FactorEffect, Speculation
from reckoning.analyse.outside import Published, SampleHours
from reckoning.analyse.spread import DriftOf, Spread
from reckoning.analyse.words import hours, list_of, number, percent, ratio_range, signed_percent
from reckoning.statistics.contrasts import Verdict


def levels_of(levels: Iterable[int]) -> str:
    """Return `C=1, C=32 and C=64`."""
    return list_of(f"C={level}" for level in levels)


def crossover_sentence(found: CrossoverOf, design: Design) -> str:
    """Return where the lead changes, in one sentence."""
    arm, reference = design.name(found.arm), design.name(found.reference)
    span = f"from C={found.levels[0]} to C={found.levels[-1]}"
    crossover = found.crossover
    if crossover.answer == "crosses":
        parts = []
        for bracket in crossover.brackets:
            below, above = (arm, reference) if bracket.lead_below > 0 else (reference, arm)
            parts.append(f"{below} leads up to C={bracket.low} and {above} from C={bracket.high}")
        return f"{arm} and {reference} ({found.workload}) cross: {'; '.join(parts)}."
    leader, other = (arm, reference) if crossover.lead > 0 else (reference, arm)
    if crossover.answer == "never":
        return f"{leader} leads {other} ({found.workload}) at every measured level {span}: they never cross."
    if crossover.answer == "not-in-range":
        return (
            f"{leader} leads {other} ({found.workload}) wherever a lead is shown {span}; "
            "a crossing is not in the measured range."
        )
    return f"Neither {arm} nor {reference} ({found.workload}) is shown to lead at any level {span}."


def tie_sentence(contrasts: Sequence[Contrast], design: Design) -> str:
    """Return the levels at which two arms are equivalent; `contrasts` are of one pair and workload."""
    first = contrasts[0]
    margin = percent(design.equivalence_margin)
    levels = levels_of(sorted(c.cell.concurrency for c in contrasts))
    pair = f"{design.name(first.arm)} and {design.name(first.reference)}"
    text = f"{pair} are equivalent within {margin} at {levels} ({first.cell.workload})"
    if len(contrasts) > 1:
        return f"{text}."
    return f"{text}: {ratio_range(first.pair.ratio, first.pair.low, first.pair.high)}, n={first.pair.n} blocks."


def factor_sentence(effects: Sequence[FactorEffect], strongest: FactorEffect, design: Design) -> str:
    """Return what a step does where it does most, and briefly at the other levels."""
    c = strongest.contrast
    if c.pair.ratio is None:
        return f"{strongest.factor}: no block has a rankable value of both arms at C={c.cell.concurrency}."
    change = ratio_range(c.pair.ratio, c.pair.low, c.pair.high)
    rest = sorted((e for e in effects if e is not strongest), key=lambda e: e.contrast.cell)
    others = "; ".join(f"C={e.contrast.cell.concurrency} {_brief(e.contrast)}" for e in rest[:6])
    others = f" Other levels: {others}." if others else ""
    where = f"at C={c.cell.concurrency} (n={c.pair.n} blocks).{others}"
    if strongest.kind == "interaction":
        return (
            f"{strongest.factor} ({c.cell.workload}): together they give {change} of what their separate effects "
            f"multiply to {where}"
        )
    pair = f"{design.name(c.arm)} against {design.name(c.reference)}"
    step = f" from {strongest.before} to {strongest.after}" if strongest.kind == "single" else ""
    label = design.metrics[c.metric].label.lower()
    return f"{strongest.factor}{step} ({pair}, {c.cell.workload}): {change} {label} {where}"


def _brief(contrast: Contrast) -> str:
    return f"{ratio_range(contrast.pair.ratio)} ({contrast.verdict})" if contrast.pair.ratio else "no value"


def speculation_sentence(found: Speculation, design: Design) -> str:
    """Return where speculation pays, where it stops, and the acceptance length."""
    arm, where = design.name(found.arm), f"({found.workload})"
    accepted = _acceptance(found)
    if found.reference is None:
        return f"{arm} {where} has no counterpart without speculation, so its gain is not known. {accepted}"
    reference = design.name(found.reference)
    if found.also:
        accepted += f" The two also differ in {list_of(found.also)}, so not all of it need be speculation."
    if found.pays_at:
        shown = next(c for c, _, level in found.levels if level == found.pays_at[0])
        gain = ratio_range(shown.pair.ratio, shown.pair.low, shown.pair.high)
        text = f"{arm} pays at {levels_of(found.pays_at)} {where}: {gain} against {reference} at C={found.pays_at[0]}"
        text += f"; it stops paying between C={found.stops[0]} and C={found.stops[1]}." if found.stops else "."
        return f"{text} {accepted}"
    slower = [level for c, _, level in found.levels if c is not None and c.verdict is Verdict.SLOWER]
    if slower:
        return f"{arm} is slower than {reference} at {levels_of(slower)} {where} and is not shown to pay. {accepted}"
    return f"{arm} is not shown to pay against {reference} at any level {where}. {accepted}"


def _acceptance(found: Speculation) -> str:
    known = [(e.interval, level) for _, e, level in found.levels if e is not None]
    if not known:
        return "The acceptance length is not known."
    lengths = [f"{number(i.estimate, i.low, i.high)} at C={level}" for i, level in known[:3]]
    return f"Acceptance length {list_of(lengths)}."


def negative_sentence(contrasts: Sequence[Contrast], worst: Contrast, design: Design) -> str:
    """Return that an arm is slower at every level; `contrasts` are of one pair and workload."""
    levels = "the one measured level" if len(contrasts) == 1 else f"all {len(contrasts)} levels"
    by = ratio_range(worst.pair.ratio, worst.pair.low, worst.pair.high)
    return (
        f"Negative result: {design.name(worst.arm)} is slower than {design.name(worst.reference)} at {levels} "
        f"({worst.cell.workload}), at worst {by} at C={worst.cell.concurrency}."
    )


def hours_sentence(item: SampleHours, design: Design) -> str:
    """Return the hours for the samples with their interval."""
    i = item.hours
    span = f" ({hours(i.low)} to {hours(i.high)})" if i.low is not None and i.low < i.high else " (no interval)"
    return (
        f"{item.samples} samples of {item.tokens_mean:.0f} output tokens take {hours(i.estimate)}{span} with "
        f"{design.name(item.arm)} at C={item.cell.concurrency} ({item.cell.workload}, n={i.n})."
    )


def published_sentence(tested: Sequence[Published], design: Design) -> str:
    """Return how many published values were reproduced and which were not."""
    differs = [p for p in tested if p.verdict == "differs"]
    worst = [
        f"{design.name(p.arm)} at C={p.cell.concurrency} (ours is {p.predicted.estimate / p.value:.2f} of it)"
        for p in differs[:3]
    ]
    more = f" Outside: {list_of(worst)}{f' and {len(differs) - 3} more' if len(differs) > 3 else ''}." if worst else ""
    return (
        f"{len(tested) - len(differs)} of {len(tested)} published values lie where one further run of ours is expected "
        f"({percent(design.confidence)} prediction interval).{more}"
    )


def drift_sentence(found: DriftOf, design: Design) -> str:
    """Return the drift over the run in one sentence."""
    label, d = design.metrics[found.metric].label, found.drift
    if d.p is None:
        return f"{label}: {d.n} launches are too few to judge a drift along the run order."
    change = signed_percent(*(math.exp(value * d.span) for value in (d.slope, d.low, d.high)))
    if found.verdict == "drift":
        return (
            f"{label} drifted by {change} from the first launch to the last (n={d.n} launches). The random order in "
            "blocks keeps this out of the comparisons, but it widens their intervals: look for heat, a neighbour, or "
            "fragmentation."
        )
    if found.verdict == "no-drift-seen":
        margin = percent(design.equivalence_margin)
        return f"{label}: no drift along the run order beyond {margin}: {change} (n={d.n} launches)."
    return f"{label}: a drift along the run order is neither shown nor excluded: {change} (n={d.n} launches)."


def variance_sentence(spread: Spread) -> str:
    """Return how much throughput varies between launches and between repeats at one level."""
    c = spread.components
    larger = "between launches" if c.sigma_launch > c.sigma_repeat else "between repeats inside a launch"
    return (
        f"Throughput varies by {percent(c.sigma_launch, c.sigma_launch_low, c.sigma_launch_high)} between launches and "
        f"by {percent(c.sigma_repeat, c.sigma_repeat_low, c.sigma_repeat_high)} between repeats (standard deviation at "
        f"{spread.cell.workload} C={spread.cell.concurrency}, the most variable level): the larger part lies {larger}."
    )
