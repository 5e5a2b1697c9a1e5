"""What to measure next and what it would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from reckoning.analyse.results import Results
from reckoning.analyse.words import hours, list_of, percent
from reckoning.statistics.contrasts import Verdict
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
    design = results.design
    measured = [b for _, _, b, _ in results.cells.entries(design.primary)]
    if not measured:
        yield _step(
            "blocks", "Run the planned launches: nothing rankable has been measured.", None, results.cost.block_s
        )
        return
    present = len(set(measured))
    if present < 3:
        yield _step(
            "blocks",
            f"Run {3 - present} more block{'s' if present < 2 else ''}: {present} give{'s' if present == 1 else ''} no interval.",
            "The first intervals and verdicts.",
            results.cost.block_s * (3 - present) if results.cost.block_s else None,
        )
        return
    open_pairs = [
        c for c in results.baseline or results.best
        if c.metric == design.primary and c.verdict is Verdict.INCONCLUSIVE and c.pair.state == "ok"
    ]  # fmt: skip
    if not open_pairs:
        return
    more = 2
    spreads = [float(np.std(c.pair.log_ratios, ddof=1)) for c in open_pairs]
    now = float(
        np.median([half_width(sd, c.pair.n, design.confidence) for sd, c in zip(spreads, open_pairs, strict=True)])
    )
    later = float(
        np.median(
            [half_width(sd, c.pair.n + more, design.confidence) for sd, c in zip(spreads, open_pairs, strict=True)]
        )
    )
    settled = [
        c for sd, c in zip(spreads, open_pairs, strict=True)
        if _decided(abs(math.log(c.pair.ratio)), half_width(sd, c.pair.n + more, design.confidence), design.equivalence_margin)
    ]  # fmt: skip
    names = list_of(dict.fromkeys(design.name(c.arm) for c in settled[:4]))
    cost = results.cost.block_s * more if results.cost.block_s else None
    price = f" It costs about {hours(cost / 3600)}." if cost else ""
    buys = f"The median interval of the {len(open_pairs)} open comparisons narrows from \u00b1{percent(now)} to \u00b1{percent(later)}"
    buys += f"; {len(settled)} of them would be decided if their estimates hold ({names})." if settled else "."
    yield _step("blocks", f"Run {more} more blocks.{price}", buys, cost)


def _decided(effect: float, half: float, margin: float) -> bool:
    return effect > half or effect + half < math.log1p(margin)


def _repeats(results: Results) -> Iterator[dict[str, Any]]:
    design = results.design
    advised = [
        s.advised_repeats for s in results.spreads if s.arm is None and s.metric == design.primary and s.advised_repeats
    ]
    if not advised or not design.repeats:
        return
    best = max(1, round(float(np.median(advised))))
    if best == design.repeats:
        return
    direction = "more" if best > design.repeats else "fewer"
    yield _step(
        "repeats",
        f"Plan {best} repeats per launch instead of {design.repeats}: R* from the spreads and the costs of this run is "
        f"{np.median(advised):.1f} (median over levels).",
        f"The narrowest interval for the same time; {direction} repeats, and the time goes into launches where they matter.",
    )


def _levels(results: Results) -> Iterator[dict[str, Any]]:
    for found in results.crossovers:
        for bracket in found.crossover.brackets:
            middle = round(math.sqrt(bracket.low * bracket.high))
            if bracket.low < middle < bracket.high:
                arms = f"{results.design.name(found.arm)} and {results.design.name(found.reference)}"
                yield _step(
                    "levels",
                    f"Measure C={middle} ({found.workload}) as well.",
                    f"It halves the bracket in which {arms} cross ({bracket.low} to {bracket.high}).",
                )
