"""What to measure next and what it would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reckoning.analyse.results import Results
from reckoning.analyse.words import hours, list_of, percent
from reckoning.statistics.contrasts import Verdict
from reckoning.statistics.intervals import MINIMUM_LAUNCHES
from reckoning.statistics.planning import half_width


def next_steps(results: Results) -> list[dict[str, Any]]:
    """Return the steps, the most valuable first."""
    return [*_fixes(results), *_blocks(results), *_repeats(results), *_levels(results)]


def _step(action: str, text: str, buys: str | None = None, cost_s: float | None = None) -> dict[str, Any]:
    return {"action": action, "text": text, "buys": buys, "cost_s": cost_s}


def _fixes(results: Results) -> Iterator[dict[str, Any]]:
    for arm in results.design.arms:
        launches = [x for x in results.evidence.launches if x.arm == arm.slug]
        failed = [x for x in launches if x.status == "failed"]
        if failed:
            remedy = (failed[0].failure or {}).get("remedy")
            text = f"Repair {arm.name} and run its {len(failed)} failed launches again" + (
                f": {remedy}" if remedy else "."
            )
            yield _step("fix-arm", text, f"{arm.name} enters the comparison on equal terms.")


def _blocks(results: Results) -> Iterator[dict[str, Any]]:
    blocks = {block for _, _, block, _ in results.cells.entries(results.design.primary)}
    per_block = results.cost.block_s
    if not blocks:
        yield _step("blocks", "Run the planned launches: nothing rankable has been measured.", None, per_block)
    elif len(blocks) < MINIMUM_LAUNCHES:
        lacking = MINIMUM_LAUNCHES - len(blocks)
        text = (
            f"Run {lacking} more block{'s' if lacking > 1 else ''}{_how(results, MINIMUM_LAUNCHES)}: "
            f"{MINIMUM_LAUNCHES} are the minimum for an interval."
        )
        yield _step("blocks", text, "The first intervals and verdicts.", per_block * lacking if per_block else None)
    else:
        yield from _more_blocks(results, per_block, more=2)


def _how(results: Results, blocks: int) -> str:
    """Return the option that gives so many blocks; a table of the user's own has no workflow behind it."""
    return f" (--config blocks={blocks})" if results.design.blocks else ""


def _more_blocks(results: Results, per_block: float | None, more: int) -> Iterator[dict[str, Any]]:
    design = results.design
    pairs = {(c.metric, c.cell, frozenset({c.arm, c.reference})): c for c in (*results.best, *results.baseline)}
    undecided = [
        _Open(c.arm, abs(math.log(c.pair.ratio)), float(np.std(c.pair.log_ratios, ddof=1)), c.pair.n)
        for c in pairs.values()
        if c.metric == design.primary and c.verdict is Verdict.INCONCLUSIVE and c.pair.state == "ok"
    ]
    if not undecided:
        return
    now = float(np.median([o.half_width(0, design.confidence) for o in undecided]))
    later = float(np.median([o.half_width(more, design.confidence) for o in undecided]))
    settled = [o for o in undecided if o.decided(more, design.confidence, design.equivalence_margin)]
    cost = per_block * more if per_block else None
    text = f"Run {more} more blocks{_how(results, (design.blocks or 0) + more)}." + (
        f" They cost about {hours(cost / 3600)}." if cost else ""
    )
    buys = (
        f"The median interval of the {len(undecided)} open comparisons narrows from \u00b1{percent(now)} "
        f"to \u00b1{percent(later)}"
    )
    names = list_of(list(dict.fromkeys(design.name(o.arm) for o in settled))[:4])
    buys += f"; {len(settled)} of them would be decided if their estimates hold ({names})." if settled else "."
    yield _step("blocks", text, buys, cost)


@dataclass(frozen=True)
class _Open:
    """A comparison without a verdict: its effect and the spread of its block log-ratios over `n` blocks."""

    arm: str
    effect: float
    sd: float
    n: int

    def half_width(self, more: int, confidence: float) -> float:
        return half_width(self.sd, self.n + more, confidence)

    def decided(self, more: int, confidence: float, margin: float) -> bool:
        half = self.half_width(more, confidence)
        return self.effect > half or self.effect + half < math.log1p(margin)


def _repeats(results: Results) -> Iterator[dict[str, Any]]:
    """Advise R*, but never fewer than two repeats: one cannot be told from the launch."""
    design = results.design
    pooled = [s.advised_repeats for s in results.spreads if s.arm is None and s.metric == design.primary]
    advised = [r for r in pooled if r is not None]
    if not advised or not design.repeats:
        return
    best = float(np.median(advised))
    plan = max(2, round(best))
    if plan == design.repeats:
        return
    yield _step(
        "repeats",
        f"Plan {plan} repeats per launch instead of {design.repeats}: R* from the spreads and the costs of this run is "
        f"{best:.1f} (median over levels).",
        "The narrowest intervals for the same time.",
    )


def _levels(results: Results) -> Iterator[dict[str, Any]]:
    wanted: dict[tuple[str, int], list[str]] = {}
    for found in results.crossovers:
        for bracket in found.crossover.brackets:
            middle = round(math.sqrt(bracket.low * bracket.high))
            measured = middle in found.levels
            if bracket.low < middle < bracket.high and not measured:
                arms = f"{results.design.name(found.arm)} and {results.design.name(found.reference)}"
                place = f"{arms} cross ({bracket.low} to {bracket.high})"
                wanted.setdefault((found.workload, middle), []).append(place)
    for (workload, level), places in wanted.items():
        text = f"Measure C={level} ({workload}) as well."
        yield _step("levels", text, f"It halves the bracket in which {list_of(places)}.")
