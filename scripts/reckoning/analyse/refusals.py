"""What the data cannot say, in plain words: one entry per kind and place, so that silence is never mistaken for a
result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reckoning.analyse.results import Results
from reckoning.analyse.words import list_of


@dataclass(frozen=True)
class Refusal:
    """`code` as in the schema of findings.json; `where` names arms and levels."""

    code: str
    where: str
    text: str


def refusals(results: Results) -> list[Refusal]:
    """Return every refusal that the results call for."""
    return [*_data(results), *_intervals(results), *_coverage(results), *_values(results)]


def _data(results: Results) -> Iterator[Refusal]:
    design, points = results.design, results.evidence.points
    if not len(points):
        failed = sum(launch.status == "failed" for launch in results.evidence.launches)
        if failed and failed == len(results.evidence.launches):
            yield Refusal("all-failed", "experiment", f"All {failed} launches failed: there is nothing to compare.")
        else:
            yield Refusal("no-data", "experiment", "No point has been measured yet: there is nothing to compare.")
    elif not points["rankable"].any():
        yield Refusal(
            "all-failed",
            "experiment",
            f"None of the {len(points)} points can be ranked; the exclusions say why for each.",
        )
    if design.baseline is None:
        yield Refusal("no-baseline", "experiment", "The design names no baseline, so no ratio to a baseline is given.")
    elif results.cells.of(design.primary) and not any(
        design.baseline in arms for arms in results.cells.of(design.primary).values()
    ):
        yield Refusal(
            "no-baseline",
            design.baseline,
            f"The baseline {design.name(design.baseline)} has no rankable point, so no ratio to the baseline is given.",
        )


def _intervals(results: Results) -> Iterator[Refusal]:
    design = results.design
    texts = {
        "single-run": "rests on one launch: a single run has no interval, and no verdict is given.",
        "two-runs": "rests on two launches: three are the minimum for an interval, so no verdict is given.",
        "zero-spread": "has equal values in all launches: that is a warning about the measurement, not certainty.",
    }
    codes = {"single-run": "single-run", "two-runs": "two-runs", "zero-spread": "zero-variance"}
    for state, text in texts.items():
        arms: dict[str, set[str]] = {}
        for estimate in results.estimates:
            if estimate.interval.state == state and estimate.metric == design.primary:
                arms.setdefault(estimate.arm, set()).add(f"{estimate.cell.workload} C={estimate.cell.concurrency}")
        for arm, places in arms.items():
            where = list_of(sorted(places)) if len(places) <= 3 else f"{len(places)} levels"
            yield Refusal(codes[state], arm, f"{design.name(arm)} ({where}) {text}")
    if results.spreads and all(s.components.sigma_repeat is None for s in results.spreads):
        yield Refusal(
            "no-repeats",
            "experiment",
            "No launch has two repeats of a level, so launches and repeats cannot be told apart in the spread.",
        )


def _coverage(results: Results) -> Iterator[Refusal]:
    design, cells = results.design, results.cells
    blocks_of: dict[str, set[int]] = {}
    for _, arm, block, _ in cells.entries(design.primary):
        blocks_of.setdefault(arm, set()).add(block)
    everything = set().union(*blocks_of.values()) if blocks_of else set()
    for arm, blocks in blocks_of.items():
        if lost := sorted(everything - blocks):
            yield Refusal(
                "unequal-blocks",
                arm,
                f"{design.name(arm)} has no rankable point in block {list_of(map(str, lost))}: it is compared over "
                "the blocks that both sides have, and nothing is filled in.",
            )
    for workload, levels in design.workloads.items():
        for arm in blocks_of:
            present = {
                c.concurrency for c, arms in cells.of(design.primary).items() if c.workload == workload and arm in arms
            }
            lacking = sorted(set(levels) - present)
            if lacking:
                places = list_of(f"C={level}" for level in lacking)
                yield Refusal(
                    "missing-level",
                    arm,
                    f"{design.name(arm)} has no rankable point at {places} in {workload}: no statement is made there.",
                )


def _values(results: Results) -> Iterator[Refusal]:
    design = results.design
    for exclusion in results.evidence.exclusions:
        reason = str(exclusion["reason"])
        place = f"{design.name(exclusion['arm'])}, block {exclusion['block']}, C={exclusion['concurrency']}"
        if "needs a value above zero" in reason:
            if exclusion["arm"] == design.baseline:
                yield Refusal("zero-baseline", exclusion["arm"], f"{place}: {reason}; no ratio to it is given there.")
            else:
                yield Refusal("not-a-number", exclusion["arm"], f"{place}: {reason}.")
        elif "(NaN)" in reason or "is infinite" in reason or "is not a number" in reason:
            yield Refusal("not-a-number", exclusion["arm"], f"{place}: {reason}.")
    censored: dict[str, int] = {}
    for quantile in results.quantiles:
        if quantile.state == "censored":
            censored[quantile.arm] = max(censored.get(quantile.arm, 0), quantile.censored)
    for arm, count in censored.items():
        yield Refusal(
            "censored",
            arm,
            f"{design.name(arm)}: {count} requests timed out, so its tail latencies are at least that long.",
        )
