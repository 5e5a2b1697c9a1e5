"""Findings: typed, ranked statements, each with effect, interval, n, verdict and scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reckoning.analyse.compare import Contrast
from reckoning.analyse.design import Design
from reckoning.analyse.effects import CrossoverOf, FactorEffect, Speculation
from reckoning.analyse.outside import SampleHours
from reckoning.analyse.recommend import winner_sentence
from reckoning.analyse.refusals import Refusal
from reckoning.analyse.results import Results
from reckoning.analyse.spread import DriftOf
from reckoning.analyse.words import hours, list_of, number, percent, ratio_range
from reckoning.statistics.contrasts import Verdict

RANKS = {
    "winner-throughput": 100, "winner-latency": 110, "failed-arm": 200, "hypothesis": 300, "crossover": 400, "tie": 450,
    "factor": 500, "interaction": 550, "speculation": 580, "negative": 600, "contrast": 650, "sample-hours": 700,
    "published": 720, "energy": 740, "drift": 800, "variance": 820, "quantile": 850, "single-run": 50, "refusal": 900,
}  # fmt: skip
"""Importance of a kind before the size of its effect; numbers of `Statement.weight` below 50 order inside a kind."""


@dataclass(frozen=True)
class Statement:
    """One finding. `effect` is a ratio (or a value in the metric's unit for winners), `scope` says what it speaks of."""

    kind: str
    text: str
    verdict: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    arms: tuple[str, ...] = ()
    workload: str | None = None
    concurrency: int | None = None
    metric: str | None = None
    weight: float = field(default=0.0, compare=False)


def statements(results: Results, refusals: Sequence[Refusal]) -> list[Statement]:
    """Return all findings, the most important first."""
    found = [
        *_winners(results), *_failed(results), *_hypotheses(results), *_crossovers(results), *_ties(results),
        *_factors(results), *_speculation(results), *_negative(results), *_hours(results), *_published(results),
        *_energy(results), *_drift(results), *_variance(results), *_refused(refusals),
    ]  # fmt: skip
    return sorted(found, key=lambda s: (RANKS[s.kind] - s.weight, s.text))


def as_findings(found: Sequence[Statement]) -> list[dict[str, Any]]:
    """Return statements in the form of findings.json, ranked from 1."""
    return [
        {
            "id": f"F{rank}",
            "kind": s.kind,
            "rank": rank,
            "text": s.text,
            "effect": s.effect,
            "low": s.low,
            "high": s.high,
            "n": s.n,
            "verdict": s.verdict,
            "scope": {"arms": list(s.arms), "workload": s.workload, "concurrency": s.concurrency, "metric": s.metric},
        }
        for rank, s in enumerate(found, start=1)
    ]


def _winners(results: Results) -> Iterator[Statement]:
    for winner in results.winners:
        if winner.arm is None:
            continue
        i = winner.estimate.interval
        others = (winner.others[0].arm,) if winner.others else ()
        yield Statement(
            f"winner-{winner.use}", winner_sentence(results, winner), winner.certainty, i.estimate, i.low, i.high, i.n,
            (winner.arm, *(winner.tied or others)), winner.workload, winner.cell.concurrency, results.design.primary,
        )  # fmt: skip


def _failed(results: Results) -> Iterator[Statement]:
    design = results.design
    for arm in design.arms:
        if arm.status != "runnable":
            word = "was rejected by the plan" if arm.status == "rejected" else "is not available here"
            yield Statement(
                "failed-arm", f"{arm.name} {word}: {arm.reason or 'no reason given'}", arm.status, arms=(arm.slug,)
            )
            continue
        launches = [x for x in results.evidence.launches if x.arm == arm.slug]
        failed = [x for x in launches if x.status == "failed"]
        if failed:
            failure = failed[0].failure or {}
            cause = failure.get("cause") or failure.get("class") or "no cause recorded"
            remedy = f" Remedy: {failure['remedy']}" if failure.get("remedy") else ""
            text = f"{arm.name} failed in {len(failed)} of {len(launches)} launches: {str(cause).rstrip('.')}.{remedy}"
            weight = 20 if len(failed) == len(launches) else 10
            yield Statement("failed-arm", text, "failed", n=len(failed), arms=(arm.slug,), weight=weight)


def _hypotheses(results: Results) -> Iterator[Statement]:
    for answer in results.hypotheses:
        arms = tuple(dict.fromkeys(e.arm for e in answer.evidence))
        known = [e.pair for e in answer.evidence if e.pair is not None and e.pair.ratio is not None]
        one = known[0] if len(known) == 1 else None
        text = f"{answer.id} ({answer.text.rstrip('.')}): {answer.sentence[0].lower()}{answer.sentence[1:]}"
        yield Statement(
            "hypothesis", text, answer.verdict, one.ratio if one else None, one.low if one else None,
            one.high if one else None, one.n if one else None, arms,
        )  # fmt: skip


def _crossovers(results: Results) -> Iterator[Statement]:
    for found in results.crossovers:
        if found.crossover.answer == "inconclusive":
            continue
        yield Statement(
            "crossover", crossover_sentence(found, results.design), found.crossover.answer, arms=(found.arm, found.reference),
            workload=found.workload, metric=results.design.primary, weight=40 if found.crossover.brackets else 0,
        )  # fmt: skip


def crossover_sentence(found: CrossoverOf, design: Design) -> str:
    """Return where the lead changes, in one sentence."""
    arm, reference = design.name(found.arm), design.name(found.reference)
    lowest, highest = found.levels[0], found.levels[-1]
    crossover = found.crossover
    if crossover.answer == "crosses":
        parts = []
        for bracket in crossover.brackets:
            below, above = (arm, reference) if bracket.lead_below > 0 else (reference, arm)
            parts.append(f"{below} leads up to C={bracket.low} and {above} from C={bracket.high}")
        return f"{arm} and {reference} ({found.workload}) cross: {'; '.join(parts)}."
    leader, other = (arm, reference) if crossover.lead > 0 else (reference, arm)
    if crossover.answer == "never":
        return f"{leader} leads {other} ({found.workload}) at every measured level from C={lowest} to C={highest}: they never cross."
    if crossover.answer == "not-in-range":
        return (
            f"{leader} leads {other} ({found.workload}) wherever a lead is shown between C={lowest} and C={highest}; "
            "a crossing is not in the measured range."
        )
    return f"Neither {arm} nor {reference} ({found.workload}) is shown to lead at any level from C={lowest} to C={highest}."


def _ties(results: Results) -> Iterator[Statement]:
    design, seen = results.design, set()
    groups: dict[tuple[str, ...], list[Contrast]] = {}
    for contrast in [*results.best, *results.baseline]:
        key = (frozenset({contrast.arm, contrast.reference}), contrast.cell)
        if contrast.metric == design.primary and contrast.verdict is Verdict.EQUIVALENT and key not in seen:
            seen.add(key)
            pair = tuple(sorted((contrast.arm, contrast.reference)))
            groups.setdefault((*pair, contrast.cell.workload), []).append(contrast)
    for (_, _, workload), contrasts in groups.items():
        first = contrasts[0]
        arms = (first.arm, first.reference)
        levels = list_of(f"C={c.cell.concurrency}" for c in sorted(contrasts, key=lambda c: c.cell))
        margin = percent(design.equivalence_margin)
        text = f"{design.name(first.arm)} and {design.name(first.reference)} are equivalent within {margin} at {levels} ({workload})"
        one = first.pair if len(contrasts) == 1 else None
        detail = f": {ratio_range(one.ratio, one.low, one.high)}, n={one.n} blocks." if one else "."
        yield Statement(
            "tie", text + detail, "equivalent", one.ratio if one else None, one.low if one else None,
            one.high if one else None, first.pair.n, arms, workload, first.cell.concurrency if one else None, design.primary,
            weight=min(len(contrasts), 40),
        )  # fmt: skip


def _factors(results: Results) -> Iterator[Statement]:
    design = results.design
    groups: dict[tuple, list[FactorEffect]] = {}
    for effect in results.factors:
        c = effect.contrast
        if c.metric == design.primary:
            key = (effect.kind, effect.factor, effect.before, effect.after, c.arm, c.reference, c.cell.workload)
            groups.setdefault(key, []).append(effect)
    for (kind, *_), effects in groups.items():
        shown = [
            e for e in effects if e.contrast.verdict not in {Verdict.INCONCLUSIVE, Verdict.NONE, Verdict.SINGLE_RUN}
        ]
        if not shown or kind == "combined":
            continue
        strongest = max(shown, key=lambda e: abs(sum(e.contrast.pair.log_ratios)))
        c = strongest.contrast
        yield Statement(
            "interaction" if kind == "interaction" else "factor", _factor_text(effects, strongest, design), str(c.verdict),
            c.pair.ratio, c.pair.low, c.pair.high, c.pair.n, (c.arm, c.reference), c.cell.workload,
            c.cell.concurrency, c.metric, weight=min(40.0, 20 * abs(sum(c.pair.log_ratios) / c.pair.n)),
        )  # fmt: skip


def _factor_text(effects: Sequence[FactorEffect], strongest: FactorEffect, design: Design) -> str:
    c = strongest.contrast
    change = ratio_range(c.pair.ratio, c.pair.low, c.pair.high)
    rest = [e for e in effects if e is not strongest]
    others = "; ".join(
        f"C={e.contrast.cell.concurrency} {_brief(e.contrast)}" for e in sorted(rest, key=lambda e: e.contrast.cell)[:6]
    )
    others = f" Other levels: {others}." if others else ""
    if strongest.kind == "interaction":
        return (
            f"{strongest.factor} ({c.cell.workload}): together they give {change} of what their separate effects multiply to "
            f"at C={c.cell.concurrency} (n={c.pair.n} blocks).{others}"
        )
    return (
        f"{strongest.factor} from {strongest.before} to {strongest.after} ({design.name(c.arm)} against "
        f"{design.name(c.reference)}, {c.cell.workload}): {change} {design.metrics[c.metric].label.lower()} at "
        f"C={c.cell.concurrency} (n={c.pair.n} blocks).{others}"
    )


def factor_sentence(effect: FactorEffect, design: Design) -> str:
    """Return one effect at one level as a sentence."""
    return _factor_text([effect], effect, design) if effect.contrast.pair.ratio else "No block has both arms."


def _brief(contrast: Contrast) -> str:
    return f"{ratio_range(contrast.pair.ratio, None, None)} ({contrast.verdict})" if contrast.pair.ratio else "no value"


def _speculation(results: Results) -> Iterator[Statement]:
    for found in results.speculation:
        contrasts = [c for c, _, _ in found.levels if c is not None and c.pair.ratio]
        best = max(contrasts, key=lambda c: c.pair.ratio) if contrasts else None
        pair = best.pair if best else None
        yield Statement(
            "speculation", speculation_sentence(found, results.design), "pays" if found.pays_at else "not-shown",
            pair.ratio if pair else None, pair.low if pair else None, pair.high if pair else None, pair.n if pair else None,
            (found.arm, *([found.reference] if found.reference else [])), found.workload, None, results.design.primary,
        )  # fmt: skip


def speculation_sentence(found: Speculation, design: Design) -> str:
    """Return where speculation pays, where it stops, and the acceptance length, in one or two sentences."""
    arm = design.name(found.arm)
    lengths = [
        f"{number(e.interval.estimate, e.interval.low, e.interval.high)} at C={level}"
        for _, e, level in found.levels
        if e is not None
    ]
    accepted = f" Acceptance length {list_of(lengths[:3])}." if lengths else " The acceptance length is not known."
    weak = [level for _, e, level in found.levels if e is not None and e.interval.estimate <= 1.05]
    if weak:
        accepted += (
            f" At {list_of(f'C={x}' for x in weak)} speculation is not effective: almost no draft token is accepted."
        )
    if found.reference is None:
        return f"{arm} ({found.workload}) has no counterpart without speculation, so its gain is not known.{accepted}"
    reference = design.name(found.reference)
    if found.pays_at:
        shown = next(c for c, _, level in found.levels if level == found.pays_at[0])
        text = (
            f"{arm} pays at {list_of(f'C={x}' for x in found.pays_at)} ({found.workload}): "
            f"{ratio_range(shown.pair.ratio, shown.pair.low, shown.pair.high)} against {reference} at C={found.pays_at[0]}"
        )
        text += f"; it stops paying between C={found.stops[0]} and C={found.stops[1]}." if found.stops else "."
        return text + accepted
    slower = [level for c, _, level in found.levels if c is not None and c.verdict is Verdict.SLOWER]
    if slower:
        return f"{arm} is slower than {reference} at {list_of(f'C={x}' for x in slower)} ({found.workload}) and pays nowhere.{accepted}"
    return f"{arm} is not shown to pay against {reference} at any level ({found.workload}).{accepted}"


def _negative(results: Results) -> Iterator[Statement]:
    """An arm that is shown slower than its nearest relative, or than the baseline, at every level where both ran."""
    design = results.design
    singles = [e.contrast for e in results.factors if e.kind == "single" and e.contrast.metric == design.primary]
    seen: set[tuple[str, str]] = set()
    for pool in (singles, [c for c in results.baseline if c.metric == design.primary]):
        groups: dict[tuple[str, str, str], list[Contrast]] = {}
        for contrast in pool:
            groups.setdefault((contrast.arm, contrast.reference, contrast.cell.workload), []).append(contrast)
        for (arm, reference, workload), contrasts in groups.items():
            if (arm, workload) in seen or not all(c.verdict is Verdict.SLOWER for c in contrasts):
                continue
            seen.add((arm, workload))
            worst = min(contrasts, key=lambda c: c.pair.ratio)
            levels = "the one measured level" if len(contrasts) == 1 else f"all {len(contrasts)} levels"
            text = (
                f"Negative result: {design.name(arm)} is slower than {design.name(reference)} at {levels} ({workload}), "
                f"at worst {ratio_range(worst.pair.ratio, worst.pair.low, worst.pair.high)} at C={worst.cell.concurrency}."
            )
            yield Statement(
                "negative", text, "slower", worst.pair.ratio, worst.pair.low, worst.pair.high, worst.pair.n,
                (arm, reference), workload, worst.cell.concurrency, design.primary,
            )  # fmt: skip


def _hours(results: Results) -> Iterator[Statement]:
    for workload in dict.fromkeys(h.cell.workload for h in results.hours):
        best = min((h for h in results.hours if h.cell.workload == workload), key=lambda h: h.hours.estimate)
        i = best.hours
        yield Statement(
            "sample-hours", hours_sentence(best, results.design), "ok" if i.low is not None else i.state, i.estimate, i.low,
            i.high, i.n, (best.arm,), workload, best.cell.concurrency, results.design.primary,
        )  # fmt: skip


def hours_sentence(item: SampleHours, design: Design) -> str:
    """Return the hours for the samples with their interval."""
    i = item.hours
    span = f" ({hours(i.low)} to {hours(i.high)})" if i.low is not None and i.low < i.high else " (no interval)"
    return (
        f"{item.samples} samples of {item.tokens_mean:.0f} output tokens take {hours(i.estimate)}{span} with "
        f"{design.name(item.arm)} at C={item.cell.concurrency} ({item.cell.workload}, n={i.n})."
    )


def _published(results: Results) -> Iterator[Statement]:
    tested = [p for p in results.published if p.verdict in {"reproduced", "differs"}]
    if not tested:
        return
    same = [p for p in tested if p.verdict == "reproduced"]
    differs = [p for p in tested if p.verdict == "differs"]
    worst = [
        f"{results.design.name(p.arm)} at C={p.cell.concurrency} ({p.predicted.estimate / p.value:.2f} of it)"
        for p in differs[:3]
    ]
    more = f" Outside: {list_of(worst)}{' and others' if len(differs) > 3 else ''}." if worst else ""
    text = (
        f"{len(same)} of {len(tested)} published values lie where one further run of ours is expected "
        f"({percent(results.design.confidence)} prediction interval).{more}"
    )
    yield Statement("published", text, "reproduced" if not differs else "differs", n=len(tested))


def _energy(results: Results) -> Iterator[Statement]:
    name = "energy_j_per_token"
    for workload in results.cells.workloads(name):
        found = [e for e in results.estimates if e.metric == name and e.cell.workload == workload]
        best = min(found, key=lambda e: e.interval.estimate)
        i = best.interval
        low, high = (number(x, i.low, i.high) if x is not None else None for x in (i.low, i.high))
        span = f" ({low} to {high})" if low and i.low < i.high else ""
        text = (
            f"Lowest energy ({workload}): {results.design.name(best.arm)} at C={best.cell.concurrency}, "
            f"{number(i.estimate, i.low, i.high)} J/token{span}, n={i.n}."
        )
        yield Statement(
            "energy", text, i.state, i.estimate, i.low, i.high, i.n, (best.arm,), workload, best.cell.concurrency, name
        )


def _drift(results: Results) -> Iterator[Statement]:
    for found in results.drifts:
        if found.verdict == "drift":
            d = found.drift
            yield Statement(
                "drift", drift_sentence(found, results.design), "drift", 1 + d.slope, 1 + d.low, 1 + d.high, d.n,
                metric=found.metric, weight=10,
            )  # fmt: skip


def drift_sentence(found: DriftOf, design: Design) -> str:
    """Return the drift over the run in one sentence."""
    label, d = design.metrics[found.metric].label, found.drift
    if d.p is None:
        return f"{label}: {d.n} launches are too few to judge a drift along the run order."
    change = percent(d.slope * d.span, d.low * d.span, d.high * d.span)
    if found.verdict == "drift":
        return (
            f"{label} drifted by {change} from the first launch to the last (n={d.n} launches). The random order within blocks "
            "keeps this out of the comparisons, but it widens their intervals: look for heat, a neighbour, or fragmentation."
        )
    if found.verdict == "no-drift-seen":
        return f"{label}: no drift along the run order beyond {percent(design.equivalence_margin)}: {change} (n={d.n} launches)."
    return f"{label}: a drift along the run order is neither shown nor excluded: {change} (n={d.n} launches)."


def _variance(results: Results) -> Iterator[Statement]:
    design = results.design
    pooled = [
        s for s in results.spreads
        if s.arm is None and s.metric == design.primary and s.components.sigma_launch is not None
    ]  # fmt: skip
    if not pooled:
        return
    worst = max(pooled, key=lambda s: s.components.sigma_launch)
    c = worst.components
    larger = "between launches" if c.sigma_launch > c.sigma_repeat else "between repeats inside a launch"
    text = (
        f"Throughput varies by {percent(c.sigma_launch, c.sigma_launch_low, c.sigma_launch_high)} between launches of one arm and "
        f"by {percent(c.sigma_repeat, c.sigma_repeat_low, c.sigma_repeat_high)} between repeats (standard deviations; "
        f"{worst.cell.workload} C={worst.cell.concurrency}, the most variable level): the larger part lies {larger}."
    )
    yield Statement(
        "variance", text, "ok", c.sigma_launch, c.sigma_launch_low, c.sigma_launch_high, c.launches,
        workload=worst.cell.workload, concurrency=worst.cell.concurrency, metric=design.primary,
    )  # fmt: skip


def _refused(refusals: Iterable[Refusal]) -> Iterator[Statement]:
    first = {"all-failed", "no-data"}
    for refusal in refusals:
        kind = "single-run" if refusal.code in {"single-run", *first} else "refusal"
        arms = () if refusal.where == "experiment" else (refusal.where,)
        yield Statement(kind, refusal.text, refusal.code, arms=arms, weight=40 if refusal.code in first else 0)
