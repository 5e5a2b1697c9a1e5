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


_FEW = {
    "single-run": (
        "single-run",
        "rest{s} on one launch: single runs have no interval and cannot be told apart, so no verdict is given.",
    ),
    "two-runs": (
        "two-runs",
        "rest{s} on two launches: three are the minimum for an interval, so no verdict is given.",
    ),
    "zero-spread": (
        "zero-variance",
        "{have} equal values in all launches: that is a warning about the measurement, not certainty.",
    ),
}


def _intervals(results: Results) -> Iterator[Refusal]:
    design = results.design
    for state, (code, text) in _FEW.items():
        arms: dict[str, set[str]] = {}
        for estimate in results.estimates:
            if estimate.interval.state == state and estimate.metric == design.primary:
                arms.setdefault(estimate.arm, set()).add(f"{estimate.cell.workload} C={estimate.cell.concurrency}")
        by_places: dict[frozenset[str], list[str]] = {}
        for arm, places in arms.items():
            by_places.setdefault(frozenset(places), []).append(arm)
        for places, together in by_places.items():
            where = list_of(sorted(places)) if len(places) <= 3 else f"{len(places)} levels"
            names = list_of(design.name(arm) for arm in together)
            one = len(together) == 1
            said = text.format(s="s" if one else "", have="has" if one else "have")
            yield Refusal(code, together[0] if one else "experiment", f"{names} ({where}) {said}")
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
        lacking: dict[tuple[int, ...], list[str]] = {}
        for arm in blocks_of:
            present = {
                c.concurrency
                for c in cells.of(design.primary)
                if cells.values(design.primary, c, arm) and c.workload == workload
            }
            if gone := tuple(sorted(set(levels) - present)):
                lacking.setdefault(gone, []).append(arm)
        for gone, arms in lacking.items():
            one = len(arms) == 1
            names = list_of(design.name(arm) for arm in arms) if len(arms) < len(blocks_of) or one else "Every arm"
            have = "has" if one or names == "Every arm" else "have"
            places = list_of(f"C={level}" for level in gone)
            text = f"{names} {have} no rankable point at {places} in {workload}: no statement is made there."
            yield Refusal("missing-level", arms[0] if one else "experiment", text)


def _values(results: Results) -> Iterator[Refusal]:
    design = results.design
    faults: dict[tuple[str, str], list[str]] = {}
    for exclusion in results.evidence.exclusions:
        reason, arm = str(exclusion["reason"]), exclusion["arm"]
        code = "not-a-number" if any(text in reason for text in ("not a number", "is infinite")) else None
        if "needs a value above zero" in reason:
            code = "zero-baseline" if arm == design.baseline else "not-a-number"
        if code:
            place = f"block {exclusion['block']}, C={exclusion['concurrency']}: {reason}"
            faults.setdefault((code, arm), []).append(place)
    for (code, arm), places in faults.items():
        more = f" (and {len(places) - 1} more like it)" if len(places) > 1 else ""
        end = "; no ratio to it is given there" if code == "zero-baseline" else ""
        yield Refusal(code, arm, f"{design.name(arm)}, {places[0]}{more}{end}.")
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
