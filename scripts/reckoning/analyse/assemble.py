"""Results in the form of findings.json (workflow/schemas/findings.schema.json)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from reckoning.analyse.cells import Cell
from reckoning.analyse.compare import STATE_NOTES, Contrast, Estimate
from reckoning.analyse.crosscheck import UNITS, CrossCheck
from reckoning.analyse.design import Arm
from reckoning.analyse.effects import CrossoverOf, FactorEffect, Speculation
from reckoning.analyse.hypotheses import Answer
from reckoning.analyse.next_steps import next_steps
from reckoning.analyse.outside import Published, SampleHours
from reckoning.analyse.recommend import command_line, recommendations
from reckoning.analyse.refusals import refusals
from reckoning.analyse.results import Results
from reckoning.analyse.sentences import (
    crossover_sentence,
    drift_sentence,
    factor_sentence,
    hours_sentence,
    speculation_sentence,
)
from reckoning.analyse.spread import DriftOf, QuantileOf, Spread
from reckoning.analyse.statements import as_findings, statements
from reckoning.statistics.contrasts import PairedRatio
from reckoning.statistics.intervals import Interval
from reckoning.statistics.variance import VarianceComponents

SCHEMA_VERSION = 1


def findings_of(results: Results) -> dict[str, Any]:
    """Return the whole of findings.json."""
    design, evidence = results.design, results.evidence
    refused = refusals(results)
    launches = evidence.launches
    points = dict(iter(evidence.points.groupby(["arm", "workload", "concurrency"])))
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": design.experiment,
        "title": design.title,
        "provenance": dict(design.provenance),
        "confidence": design.confidence,
        "equivalence_margin": design.equivalence_margin,
        "baseline": design.baseline,
        "design": {
            "blocks": design.blocks,
            "repeats": design.repeats,
            "launches_planned": design.launches_planned,
            "launches_ok": sum(x.status == "ok" for x in launches),
            "launches_failed": sum(x.status == "failed" for x in launches),
            "points": len(evidence.points),
            "points_rankable": int(evidence.points["rankable"].sum()),
            "points_excluded": int((~evidence.points["rankable"]).sum()),
            "requests": evidence.requests,
            "requests_failed": evidence.requests_failed,
        },
        "metrics": {name: metric for name, metric in design.metrics.items() if results.cells.of(name)},
        "workloads": [
            {"name": name, "concurrency": results.cells.levels(design.primary, name)} for name in design.workloads
        ],
        "arms": [_arm(arm, results) for arm in design.arms],
        "estimates": [_estimate(e, results, points) for e in results.estimates],
        "contrasts": [_contrast(c) for c in (*results.baseline, *results.best, *results.peak)],
        "variance": [_variance(s) for s in results.spreads],
        "drift": [_drift(d, results) for d in results.drifts],
        "crossovers": [_crossover(c, results) for c in results.crossovers],
        "factors": [_factor(f, results) for f in results.factors],
        "quantiles": [_quantile(q, results) for q in results.quantiles],
        "speculation": [_speculation(s, results) for s in results.speculation],
        "published": [_published(p, results) for p in results.published],
        "predicted": [_predicted(p, results) for p in results.predicted],
        "hypotheses": [_hypothesis(h) for h in results.hypotheses],
        "sample_hours": [_hours(h, results) for h in results.hours],
        "energy": [_energy(e) for e in results.estimates if e.metric == "energy_j_per_token"],
        "cross_check": [_cross_check(c, results) for c in results.cross_checks],
        "exclusions": list(evidence.exclusions),
        "refusals": [{"code": r.code, "where": r.where, "text": r.text} for r in refused],
        "findings": as_findings(statements(results, refused)),
        "recommendations": recommendations(results),
        "next": next_steps(results),
    }


def _arm(arm: Arm, results: Results) -> dict[str, Any]:
    launches = [x for x in results.evidence.launches if x.arm == arm.slug]
    counts = {state: sum(x.status == state for x in launches) for state in ("ok", "failed", "missing")}
    keys = ("class", "stage", "cause", "evidence", "remedy", "log_excerpt")
    failures = [
        {"block": x.block, **{key: _text((x.failure or {}).get(key)) for key in keys}}
        for x in launches
        if x.status == "failed"
    ]
    return {
        "slug": arm.slug,
        "name": arm.name,
        "status": _arm_status(arm, counts, len(launches)),
        "reason": arm.reason or (failures[0]["cause"] if failures else None),
        "remedy": arm.remedy or (failures[0]["remedy"] if failures else None),
        "why": arm.why,
        "settings": dict(arm.settings),
        "env": dict(arm.env),
        "patches": list(arm.patches),
        "command": list(arm.command),
        "command_line": command_line(arm, launches),
        "launches": {"planned": len(launches), **counts},
        "failures": failures,
    }


def _arm_status(arm: Arm, counts: Mapping[str, int], planned: int) -> str:
    if arm.status != "runnable":
        return arm.status
    if not planned or counts["missing"] == planned:
        return "missing"
    if counts["ok"] == planned:
        return "ok"
    return "partial" if counts["ok"] else "failed"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _place(arm: str | None, cell: Cell, metric: str) -> dict[str, Any]:
    return {"arm": arm, "workload": cell.workload, "concurrency": cell.concurrency, "metric": metric}


def _estimate(estimate: Estimate, results: Results, points: Mapping[tuple, pd.DataFrame]) -> dict[str, Any]:
    i = estimate.interval
    here = points[estimate.arm, estimate.cell.workload, estimate.cell.concurrency]
    used = results.cells.values(estimate.metric, estimate.cell, estimate.arm)
    repeats = results.cells.of(estimate.metric)[estimate.cell][estimate.arm]
    launches = []
    for block in sorted({int(block) for block in here["block"].dropna()}):
        if block in used:
            launches.append({"block": block, "value": used[block], "repeats": len(repeats[block]), "rankable": True})
            continue
        values = here.loc[here["block"] == block, estimate.metric].dropna()
        positive = [v for v in values if math.isfinite(v) and v > 0]
        mean = math.exp(sum(map(math.log, positive)) / len(positive)) if positive else None
        launches.append({"block": block, "value": mean, "repeats": len(positive), "rankable": False})
    flags = sorted({flag for text in here["flags"].dropna() for flag in str(text).split(";") if flag})
    return {
        **_place(estimate.arm, estimate.cell, estimate.metric),
        "unit": results.design.metrics[estimate.metric].unit,
        **_bounds(i),
        "launches": launches,
        "note": STATE_NOTES.get(i.state),
        "flags": flags,
    }


def _bounds(interval: Interval | None, name: str = "estimate") -> dict[str, Any]:
    if interval is None:
        return {name: None, "low": None, "high": None, "n": 0}
    return {name: interval.estimate, "low": interval.low, "high": interval.high, "n": interval.n}


def _pair(pair: PairedRatio | None) -> dict[str, Any]:
    if pair is None:
        return {"ratio": None, "low": None, "high": None, "n": 0}
    return {"ratio": pair.ratio, "low": pair.low, "high": pair.high, "n": pair.n}


def _ratio(contrast: Contrast) -> dict[str, Any]:
    pair = contrast.pair
    return {
        "family_size": contrast.family_size,
        **_pair(pair),
        "p": pair.p,
        "p_holm": contrast.p_holm,
        "p_equivalence": contrast.p_equivalence,
        "verdict": str(contrast.verdict),
        "note": contrast.note,
    }


def _contrast(contrast: Contrast) -> dict[str, Any]:
    place = _place(contrast.arm, contrast.cell, contrast.metric)
    return {**place, "reference": contrast.reference, "family": contrast.family, **_ratio(contrast)}


def _variance(spread: Spread) -> dict[str, Any]:
    c = spread.components
    return {
        **_place(spread.arm, spread.cell, spread.metric),
        "sigma_launch": c.sigma_launch,
        "sigma_launch_low": c.sigma_launch_low,
        "sigma_launch_high": c.sigma_launch_high,
        "sigma_repeat": c.sigma_repeat,
        "sigma_repeat_low": c.sigma_repeat_low,
        "sigma_repeat_high": c.sigma_repeat_high,
        "ratio": c.ratio,
        "method": c.method,
        "launches": c.launches,
        "repeats": c.repeats,
        "advised_repeats": spread.advised_repeats,
        "note": _variance_note(c),
    }


def _variance_note(c: VarianceComponents) -> str | None:
    if c.repeat_df == 0:
        return "one repeat per launch: launches and repeats cannot be told apart"
    if c.launch_df == 0:
        return "one launch per arm: nothing is known about the spread between launches"
    if c.sigma_launch == 0:
        return "the launches differ no more than their repeats explain: the estimate is cut at 0"
    return None


def _drift(found: DriftOf, results: Results) -> dict[str, Any]:
    d = found.drift

    def over(value: float | None) -> float | None:
        return None if value is None else math.expm1(value * d.span)

    return {
        "metric": found.metric,
        "workload": None,
        "slope_per_launch": d.slope,
        "low": d.low,
        "high": d.high,
        "change_over_run": over(d.slope),
        "change_low": over(d.low),
        "change_high": over(d.high),
        "n": d.n,
        "p": d.p,
        "verdict": found.verdict,
        "text": drift_sentence(found, results.design),
    }


def _crossover(found: CrossoverOf, results: Results) -> dict[str, Any]:
    def leader(lead: int) -> str:
        return found.arm if lead > 0 else found.reference

    crossover = found.crossover
    return {
        "arm": found.arm,
        "reference": found.reference,
        "workload": found.workload,
        "metric": results.design.primary,
        "answer": crossover.answer,
        "brackets": [
            {"low": b.low, "high": b.high, "leads_below": leader(b.lead_below), "leads_above": leader(-b.lead_below)}
            for b in crossover.brackets
        ],
        "leader": leader(crossover.lead) if crossover.lead else None,
        "levels": list(found.levels),
        "text": crossover_sentence(found, results.design),
    }


def _factor(effect: FactorEffect, results: Results) -> dict[str, Any]:
    c = effect.contrast
    return {
        "factor": effect.factor,
        "kind": effect.kind,
        "from": effect.before,
        "to": effect.after,
        **_place(c.arm, c.cell, c.metric),
        "reference": c.reference,
        **_ratio(c),
        "text": factor_sentence([effect], effect, results.design),
    }


def _quantile(q: QuantileOf, results: Results) -> dict[str, Any]:
    return {
        **_place(q.arm, q.cell, q.metric),
        "unit": results.design.metrics[q.metric].unit,
        "q": q.q,
        **_bounds(q.interval),
        "requests": q.requests,
        "requests_min": q.requests_min,
        "censored": q.censored,
        "state": q.state,
        "note": q.note,
    }


def _speculation(found: Speculation, results: Results) -> dict[str, Any]:
    levels = []
    for contrast, length, level in found.levels:
        i = length.interval if length else None
        levels.append(
            {
                "concurrency": level,
                **_pair(contrast.pair if contrast else None),
                "verdict": str(contrast.verdict) if contrast else "none",
                "acceptance_length": i.estimate if i else None,
                "acceptance_low": i.low if i else None,
                "acceptance_high": i.high if i else None,
            }
        )
    return {
        "arm": found.arm,
        "reference": found.reference,
        "workload": found.workload,
        "levels": levels,
        "pays_at": list(found.pays_at),
        "stops": {"low": found.stops[0], "high": found.stops[1]} if found.stops else None,
        "text": speculation_sentence(found, results.design),
    }


def _published(item: Published, results: Results) -> dict[str, Any]:
    i = item.predicted

    def ratio(value: float | None) -> float | None:
        return None if value is None else value / item.value

    return {
        **_place(item.arm, item.cell, results.design.primary),
        "unit": results.design.metrics[results.design.primary].unit,
        "published": item.value,
        "approximate": item.approximate,
        "measured": i.estimate,
        "low": i.low,
        "high": i.high,
        "ratio": ratio(i.estimate),
        "ratio_low": ratio(i.low),
        "ratio_high": ratio(i.high),
        "n": i.n,
        "verdict": item.verdict,
        "note": item.note,
    }


def _predicted(item: Published, results: Results) -> dict[str, Any]:
    shared = _published(item, results)
    kept = ("arm", "workload", "concurrency", "metric", "unit", "measured", "low", "high", "ratio", "n", "note")
    return {**{key: shared[key] for key in kept}, "predicted": item.value, "source": None}


def _hypothesis(answer: Answer) -> dict[str, Any]:
    evidence = []
    for item in answer.evidence:
        evidence.append(
            {
                "arm": item.arm,
                "reference": item.reference,
                "workload": item.workload,
                "concurrency": item.concurrency,
                "metric": item.metric,
                **_pair(item.pair),
                "p": item.pair.p if item.pair else None,
                "holds": item.holds,
            }
        )
    return {
        "id": answer.id,
        "text": answer.text,
        "verdict": answer.verdict,
        "evidence": evidence,
        "answer": answer.sentence,
    }


def _hours(item: SampleHours, results: Results) -> dict[str, Any]:
    return {
        "arm": item.arm,
        "workload": item.cell.workload,
        "concurrency": item.cell.concurrency,
        "samples": item.samples,
        **_bounds(item.hours, "hours"),
        "output_tokens_mean": item.tokens_mean,
        "text": hours_sentence(item, results.design),
    }


def _cross_check(check: CrossCheck, results: Results) -> dict[str, Any]:
    known = results.design.metrics.get(check.metric)
    notes = [STATE_NOTES.get(check.ratio.state), f"{check.failed} checks gave no number" if check.failed else None]
    return {
        **_place(check.arm, check.cell, check.metric),
        "unit": known.unit if known else UNITS.get(check.metric, ""),
        "ours": check.ours.estimate,
        "theirs": check.theirs.estimate,
        **_bounds(check.ratio, "ratio"),
        "note": "; ".join(note for note in notes if note) or None,
    }


def _energy(estimate: Estimate) -> dict[str, Any]:
    i = estimate.interval
    return {
        "arm": estimate.arm,
        "workload": estimate.cell.workload,
        "concurrency": estimate.cell.concurrency,
        **_bounds(i, "energy_j_per_token"),
        "note": STATE_NOTES.get(i.state),
    }
