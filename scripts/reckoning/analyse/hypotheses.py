"""The pre-registered questions: supported, refuted or inconclusive, with the interval that says so.

Every claim was written down before the measurement, so its interval is the plain paired t interval at the experiment's
confidence; claims inside one hypothesis are joined by "and", which needs no correction for "supported".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.design import Design
from reckoning.analyse.words import list_of, number, percent
from reckoning.statistics.contrasts import PairedRatio, equivalence_p, paired_ratio


@dataclass(frozen=True)
class Evidence:
    """One claim at one level: `holds` is yes, no or unknown, and `why` says what is missing."""

    arm: str
    reference: str | None
    workload: str | None
    concurrency: int | None
    metric: str | None
    pair: PairedRatio | None
    holds: str
    why: str | None


@dataclass(frozen=True)
class Answer:
    """A hypothesis with its verdict: supported, refuted, inconclusive or not-tested."""

    id: str
    text: str
    verdict: str
    evidence: tuple[Evidence, ...]
    sentence: str


def answers(cells: Cells, design: Design) -> list[Answer]:
    """Return the answer to every hypothesis of the design."""
    return [_answer(raw, cells, design) for raw in design.hypotheses]


def _answer(raw: Mapping[str, Any], cells: Cells, design: Design) -> Answer:
    evidence = [item for claim in raw.get("claims", []) for item in _claim(claim, cells, design)]
    states = [item.holds for item in evidence]
    if not evidence or all(item.pair is None or item.pair.n == 0 for item in evidence):
        verdict = "not-tested"
    elif "no" in states:
        verdict = "refuted"
    else:
        verdict = "supported" if set(states) == {"yes"} else "inconclusive"
    text = str(raw.get("text") or raw.get("id"))
    return Answer(str(raw.get("id")), text, verdict, tuple(evidence), _sentence(verdict, evidence, design))


def _claim(claim: Mapping[str, Any], cells: Cells, design: Design) -> list[Evidence]:
    arm, reference = str(claim.get("arm")), claim.get("reference")
    metric = claim.get("metric") or design.primary
    workload = claim.get("workload") or next(iter(design.workloads), None)
    at = claim.get("at")
    if at == "peak":
        pair = paired_ratio(
            _peak(cells, design, metric, workload, arm),
            _peak(cells, design, metric, workload, reference),
            design.confidence,
        )
        places = [(None, pair)]
    else:
        levels = at if isinstance(at, list) else [at] if at is not None else cells.levels(metric, workload)
        places = [
            (
                int(level),
                paired_ratio(
                    cells.values(metric, Cell(workload, int(level)), arm),
                    cells.values(metric, Cell(workload, int(level)), reference),
                    design.confidence,
                ),
            )
            for level in levels
        ]
    return [_evidence(claim, design, arm, reference, workload, level, metric, pair) for level, pair in places]


def _peak(cells: Cells, design: Design, metric: str, workload: str, arm: str) -> Mapping[int, float]:
    """Return the arm's launch values at the level of its best mean."""
    found = [cells.values(metric, cell, arm) for cell in cells.of(metric) if cell.workload == workload]
    found = [values for values in found if values]
    if not found:
        return {}
    pick = min if design.metrics[metric].better == "lower" else max
    return pick(found, key=lambda values: sum(map(math.log, values.values())) / len(values))


def _evidence(  # noqa: PLR0917
    claim: Mapping[str, Any],
    design: Design,
    arm: str,
    reference: str | None,
    workload: str | None,
    level: int | None,
    metric: str,
    pair: PairedRatio,
) -> Evidence:
    margin = claim.get("margin")
    margin = design.equivalence_margin if margin is None else float(margin)
    holds = claim_holds(pair, str(claim.get("relation")), float(claim.get("ratio") or 1.0), margin, design.alpha)
    why = None
    if pair.n == 0:
        lacking = [a for a in (arm, reference) if a is not None and not _has(design, a)]
        why = f"{list_of(lacking)} did not run" if lacking else "no block has a rankable value of both"
    elif pair.state != "ok":
        why = {"single-run": "single run", "two-runs": "two launches only", "zero-spread": "no spread at all"}[
            pair.state
        ]
    return Evidence(arm, reference, workload, level, metric, pair, holds, why)


def _has(design: Design, slug: str) -> bool:
    return slug in design.runnable


def claim_holds(pair: PairedRatio, relation: str, ratio: float, margin: float, alpha: float) -> str:
    """Return yes, no or unknown for one claim about arm / reference.

    higher: low > ratio is yes, high <= ratio is no; lower the other way round. equivalent: TOST within
    [1/(1+margin), 1+margin] is yes, an interval wholly outside is no. not-lower: low > 1/(1+margin) is yes, high below
    it is no; not-higher likewise with 1+margin.
    """
    if pair.state != "ok":
        return "unknown"
    low, high, bound = pair.low, pair.high, 1 + margin
    p = equivalence_p(pair, margin)
    yes, no = {
        "higher": (low > ratio, high <= ratio),
        "lower": (high < ratio, low >= ratio),
        "equivalent": (p is not None and p <= alpha, high < 1 / bound or low > bound),
        "not-lower": (low > 1 / bound, high < 1 / bound),
        "not-higher": (high < bound, low > bound),
    }.get(relation, (False, False))
    return "yes" if yes else "no" if no else "unknown"


def _sentence(verdict: str, evidence: list[Evidence], design: Design) -> str:
    known = [e for e in evidence if e.pair is not None and e.pair.state == "ok"]
    counts = {state: sum(e.holds == state for e in evidence) for state in ("yes", "no", "unknown")}
    if verdict == "not-tested":
        reasons = sorted({e.why for e in evidence if e.why})
        return f"Not tested: {list_of(reasons) or 'no claim could be compared'}."
    decisive = [e for e in known if e.holds == "no"] if verdict == "refuted" else known
    parts = [_phrase(e, design) for e in decisive[:3]]
    more = f" and {len(decisive) - 3} more" if len(decisive) > 3 else ""
    gaps = sorted({e.why for e in evidence if e.why})
    missing = f" Not judged: {list_of(gaps)}." if gaps else ""
    total = len(evidence)
    head = {
        "supported": f"Supported in all {total} comparisons" if total > 1 else "Supported",
        "refuted": f"Refuted in {counts['no']} of {total} comparisons" if total > 1 else "Refuted",
        "inconclusive": f"Inconclusive: {counts['yes']} of {total} comparisons support it, none refutes it"
        if total > 1
        else "Inconclusive",
    }[verdict]
    return f"{head}: {'; '.join(parts)}{more}.{missing}" if parts else f"{head}.{missing}"


def _phrase(item: Evidence, design: Design) -> str:
    pair = item.pair
    where = "peak against peak" if item.concurrency is None else f"C={item.concurrency}"
    low, high = number(pair.low, pair.low, pair.high), number(pair.high, pair.low, pair.high)
    return (
        f"{design.name(item.arm)} / {design.name(item.reference)} at {where} = "
        f"{number(pair.ratio, pair.low, pair.high)} ({percent(design.confidence)} interval {low} to {high}, n={pair.n})"
    )
