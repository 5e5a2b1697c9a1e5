"""Findings: typed, ranked statements, each with effect, interval, n, verdict and scope."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reckoning.analyse import sentences
from reckoning.analyse.cells import Cell
from reckoning.analyse.compare import Contrast
from reckoning.analyse.effects import FactorEffect
from reckoning.analyse.exclusions import SPECULATION_OFF
from reckoning.analyse.recommend import winner_sentence
from reckoning.analyse.refusals import Refusal
from reckoning.analyse.results import Results
from reckoning.analyse.words import number, signed_percent
from reckoning.statistics.contrasts import PairedRatio, Verdict
from reckoning.statistics.intervals import Interval

RANKS = {
    "single-run": 50, "winner-throughput": 100, "winner-latency": 110, "failed-arm": 200, "hypothesis": 300,
    "crossover": 400, "tie": 450, "factor": 500, "interaction": 550, "speculation": 580, "negative": 600,
    "sample-hours": 700, "published": 720, "cross-check": 730, "energy": 740, "drift": 800,
    "variance": 820, "refusal": 900,
}  # fmt: skip
"""Where a kind stands; `Statement.weight` (below 50) moves a statement up inside its kind."""


@dataclass(frozen=True)
class Statement:
    """One finding. `effect` is a ratio, or for winners a value in the metric's unit; the rest of it is the scope."""

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
        *_cross_check(results), *_energy(results), *_drift(results), *_variance(results), *_refused(refusals),
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


def _values(pair: PairedRatio | None) -> dict[str, Any]:
    return {} if pair is None else {"effect": pair.ratio, "low": pair.low, "high": pair.high, "n": pair.n}


def _estimate(interval: Interval) -> dict[str, Any]:
    return {"effect": interval.estimate, "low": interval.low, "high": interval.high, "n": interval.n}


def _at(cell: Cell, metric: str) -> dict[str, Any]:
    return {"workload": cell.workload, "concurrency": cell.concurrency, "metric": metric}


def _by_pair(contrasts: Iterable[Contrast]) -> dict[tuple[str, str, str], list[Contrast]]:
    groups: dict[tuple[str, str, str], list[Contrast]] = {}
    for contrast in contrasts:
        groups.setdefault((contrast.arm, contrast.reference, contrast.cell.workload), []).append(contrast)
    return groups


def _winners(results: Results) -> Iterator[Statement]:
    for winner in results.winners:
        if winner.arm is not None:
            others = winner.tied or ((winner.others[0].arm,) if winner.others else ())
            yield Statement(
                f"winner-{winner.use}",
                winner_sentence(results, winner),
                winner.certainty,
                arms=(winner.arm, *others),
                **_estimate(winner.estimate.interval),
                **_at(winner.cell, results.design.primary),
            )


def _failed(results: Results) -> Iterator[Statement]:
    for arm in results.design.arms:
        if arm.status != "runnable":
            word = "was rejected by the plan" if arm.status == "rejected" else "is not available here"
            text = f"{arm.name} {word}: {(arm.reason or 'no reason given').rstrip('.')}."
            yield Statement("failed-arm", text, arm.status, arms=(arm.slug,))
            continue
        launches = [launch for launch in results.evidence.launches if launch.arm == arm.slug]
        failed = [launch for launch in launches if launch.status == "failed"]
        if failed:
            failure = failed[0].failure or {}
            cause = str(failure.get("cause") or failure.get("class") or "no cause recorded").rstrip(".")
            remedy = f" Remedy: {str(failure['remedy']).rstrip('.')}." if failure.get("remedy") else ""
            text = f"{arm.name} failed in {len(failed)} of {len(launches)} launches: {cause}.{remedy}"
            weight = 20 if len(failed) == len(launches) else 10
            yield Statement("failed-arm", text, "failed", n=len(failed), arms=(arm.slug,), weight=weight)


def _hypotheses(results: Results) -> Iterator[Statement]:
    for answer in results.hypotheses:
        known = [e.pair for e in answer.evidence if e.pair is not None and e.pair.ratio is not None]
        text = f"{answer.id} ({answer.text.rstrip('.')}): {answer.sentence[0].lower()}{answer.sentence[1:]}"
        arms = tuple(dict.fromkeys(e.arm for e in answer.evidence))
        values = _values(known[0] if len(known) == 1 else None)
        yield Statement("hypothesis", text, answer.verdict, arms=arms, **values)


def _crossovers(results: Results) -> Iterator[Statement]:
    for found in results.crossovers:
        if found.crossover.answer != "inconclusive":
            yield Statement(
                "crossover",
                sentences.crossover_sentence(found, results.design),
                found.crossover.answer,
                arms=(found.arm, found.reference),
                workload=found.workload,
                metric=results.design.primary,
                weight=40 if found.crossover.brackets else 0,
            )


def _ties(results: Results) -> Iterator[Statement]:
    """Pairs with the verdict equivalent, from the comparisons with the best arm and with the baseline, once each."""
    design = results.design
    ties: dict[tuple, Contrast] = {}
    for contrast in [*results.best, *results.baseline]:
        if contrast.metric == design.primary and contrast.verdict is Verdict.EQUIVALENT:
            ties.setdefault((*sorted((contrast.arm, contrast.reference)), contrast.cell), contrast)
    groups: dict[tuple, list[Contrast]] = {}
    for (one, other, cell), contrast in ties.items():
        groups.setdefault((one, other, cell.workload), []).append(contrast)
    for contrasts in groups.values():
        first = contrasts[0]
        one = len(contrasts) == 1
        yield Statement(
            "tie",
            sentences.tie_sentence(contrasts, design),
            "equivalent",
            arms=(first.arm, first.reference),
            weight=min(len(contrasts), 40),
            **(_values(first.pair) if one else {"n": min(c.pair.n for c in contrasts)}),
            **{**_at(first.cell, design.primary), "concurrency": first.cell.concurrency if one else None},
        )


def _factors(results: Results) -> Iterator[Statement]:
    """Every step, and interplay of two, that has a verdict at some level; combined steps are no finding."""
    groups: dict[tuple, list[FactorEffect]] = {}
    for e in results.factors:
        c = e.contrast
        if c.metric == results.design.primary and e.kind != "combined":
            key = (e.kind, e.factor, e.before, e.after, c.arm, c.reference, c.cell.workload)
            groups.setdefault(key, []).append(e)
    silent = {Verdict.INCONCLUSIVE, Verdict.NONE, Verdict.SINGLE_RUN}
    for effects in groups.values():
        shown = [e for e in effects if e.contrast.verdict not in silent]
        if not shown:
            continue
        strongest = max(shown, key=lambda e: _size(e.contrast))
        c = strongest.contrast
        yield Statement(
            "interaction" if strongest.kind == "interaction" else "factor",
            sentences.factor_sentence(effects, strongest, results.design),
            str(c.verdict),
            arms=(c.arm, c.reference),
            weight=min(40.0, 20 * _size(c)),
            **_values(c.pair),
            **_at(c.cell, c.metric),
        )


def _size(contrast: Contrast) -> float:
    return abs(sum(contrast.pair.log_ratios)) / contrast.pair.n


def _speculation(results: Results) -> Iterator[Statement]:
    useless = Counter(e["arm"] for e in results.evidence.exclusions if SPECULATION_OFF in str(e["reason"]))
    for arm, count in useless.items():
        text = (
            f"{results.design.name(arm)}: speculation is not effective in {count} points (nearly no draft token is "
            "accepted), so they are no result of speculation and stay out of verdicts."
        )
        yield Statement("speculation", text, "not-effective", n=count, arms=(arm,), weight=10)
    for found in results.speculation:
        known = [c for c, _, _ in found.levels if c is not None and c.pair.ratio]
        best = max(known, key=lambda c: c.pair.ratio) if known else None
        yield Statement(
            "speculation",
            sentences.speculation_sentence(found, results.design),
            "pays" if found.pays_at else "not-shown",
            arms=tuple(filter(None, (found.arm, found.reference))),
            workload=found.workload,
            metric=results.design.primary,
            **_values(best.pair if best else None),
        )


def _negative(results: Results) -> Iterator[Statement]:
    """Arms shown slower at every level than the first arm of the plan that they differ from in one step.

    An arm without such a relative is held against the baseline.
    """
    primary = results.design.primary
    steps = _by_pair(e.contrast for e in results.factors if e.kind == "single" and e.contrast.metric == primary)
    place = {arm: index for index, arm in enumerate(results.design.runnable)}
    nearest: dict[tuple[str, str], list[Contrast]] = {}
    for (arm, reference, workload), contrasts in sorted(steps.items(), key=lambda item: place.get(item[0][1], 0)):
        if place.get(reference, 0) < place.get(arm, 0):
            nearest.setdefault((arm, workload), contrasts)
    for (arm, _, workload), contrasts in _by_pair(c for c in results.baseline if c.metric == primary).items():
        nearest.setdefault((arm, workload), contrasts)
    for contrasts in nearest.values():
        if all(c.verdict is Verdict.SLOWER for c in contrasts):
            worst = min(contrasts, key=lambda c: c.pair.ratio)
            yield Statement(
                "negative",
                sentences.negative_sentence(contrasts, worst, results.design),
                "slower",
                arms=(worst.arm, worst.reference),
                **_values(worst.pair),
                **_at(worst.cell, primary),
            )


def _hours(results: Results) -> Iterator[Statement]:
    for workload in dict.fromkeys(item.cell.workload for item in results.hours):
        here = [item for item in results.hours if item.cell.workload == workload]
        best = min(here, key=lambda item: item.hours.estimate)
        yield Statement(
            "sample-hours",
            sentences.hours_sentence(best, results.design),
            best.hours.state,
            arms=(best.arm,),
            **_estimate(best.hours),
            **_at(best.cell, results.design.primary),
        )


def _published(results: Results) -> Iterator[Statement]:
    tested = [p for p in results.published if p.verdict in {"reproduced", "differs"}]
    if tested:
        verdict = "differs" if any(p.verdict == "differs" for p in tested) else "reproduced"
        text = sentences.published_sentence(tested, results.design)
        yield Statement("published", text, verdict, n=len(tested))


def _cross_check(results: Results) -> Iterator[Statement]:
    """The throughput of our client over that of bench_serving, the case farthest from 1."""
    found = [c for c in results.cross_checks if c.metric == "output_tok_s_whole_run"]
    if found:
        worst = max(found, key=lambda c: abs(math.log(c.ratio.estimate)))
        i = worst.ratio
        text = (
            f"bench_serving on the same launches: our whole-run throughput differs from it by at most "
            f"{signed_percent(i.estimate, i.low, i.high)} ({results.design.name(worst.arm)}, {worst.cell.workload} "
            f"C={worst.cell.concurrency}, n={i.n}; {len(found)} places compared)."
        )
        yield Statement(
            "cross-check", text, i.state, arms=(worst.arm,), **_estimate(i), **_at(worst.cell, worst.metric)
        )


def _energy(results: Results) -> Iterator[Statement]:
    name = "energy_j_per_token"
    for workload in results.cells.workloads(name):
        found = [e for e in results.estimates if e.metric == name and e.cell.workload == workload]
        best = min(found, key=lambda e: e.interval.estimate)
        i = best.interval
        span = f" ({number(i.low, i.low, i.high)} to {number(i.high, i.low, i.high)})" if i.state == "ok" else ""
        text = (
            f"Lowest energy ({workload}): {results.design.name(best.arm)} at C={best.cell.concurrency}, "
            f"{number(i.estimate, i.low, i.high)} J/token{span}, n={i.n}."
        )
        yield Statement("energy", text, i.state, arms=(best.arm,), **_estimate(i), **_at(best.cell, name))


def _drift(results: Results) -> Iterator[Statement]:
    for found in results.drifts:
        if found.verdict == "drift":
            d = found.drift
            text = sentences.drift_sentence(found, results.design)
            values = {"effect": 1 + d.slope, "low": 1 + d.low, "high": 1 + d.high, "n": d.n}
            yield Statement("drift", text, "drift", metric=found.metric, **values)


def _variance(results: Results) -> Iterator[Statement]:
    primary = results.design.primary
    pooled = [s for s in results.spreads if s.arm is None and s.metric == primary]
    known = [s for s in pooled if s.components.sigma_launch is not None]
    if known:
        worst = max(known, key=lambda s: s.components.sigma_launch)
        c = worst.components
        values = {"effect": c.sigma_launch, "low": c.sigma_launch_low, "high": c.sigma_launch_high, "n": c.launches}
        text = sentences.variance_sentence(worst)
        yield Statement("variance", text, "ok", **values, **_at(worst.cell, primary))


def _refused(refusals: Iterable[Refusal]) -> Iterator[Statement]:
    """Refusals are findings too; that there is nothing to compare, or only single runs, is read first."""
    nothing = {"all-failed", "no-data"}
    for refusal in refusals:
        kind = "single-run" if refusal.code in {"single-run", *nothing} else "refusal"
        arms = () if refusal.where == "experiment" else (refusal.where,)
        weight = 40 if refusal.code in nothing else 0
        yield Statement(kind, refusal.text, refusal.code, arms=arms, weight=weight)
