"""The measurements beside numbers from outside: published values, predictions, and the hours a job would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.design import Design
from reckoning.analyse.evidence import Evidence
from reckoning.analyse.spread import Spread
from reckoning.experiment.names import slug
from reckoning.statistics.intervals import Interval, launch_interval, prediction_interval


@dataclass(frozen=True)
class Published:
    """A published value beside the interval in which one further run of ours would lie."""

    arm: str
    cell: Cell
    value: float
    approximate: bool
    predicted: Interval
    verdict: str  # reproduced | differs | cannot-tell | not-measured
    note: str | None


def published_comparison(
    table: pd.DataFrame, cells: Cells, design: Design, spreads: Sequence[Spread]
) -> list[Published]:
    """Compare a table (arm, concurrency, output_tok_s, optional workload, approximate, note) with our own runs."""
    labels = {arm.name: arm.slug for arm in design.arms} | {arm.slug: arm.slug for arm in design.arms}
    first = next(iter(design.workloads), None) or next(iter(cells.workloads(design.primary)), "")
    found = []
    for row in table.to_dict("records"):
        value = pd.to_numeric(row.get(design.primary), errors="coerce")
        level = pd.to_numeric(row.get("concurrency"), errors="coerce")
        if pd.isna(value) or pd.isna(level) or value <= 0:
            continue
        named = row.get("workload")
        cell = Cell(str(named) if isinstance(named, str) and named else first, int(level))
        arm = labels.get(str(row.get("arm")))
        approximate = str(row.get("approximate", "")).lower() == "true"
        note = row.get("note") if isinstance(row.get("note"), str) else None
        predicted = one_more_run(cells, design, spreads, cell, arm) if arm else launch_interval([])
        verdict = _published_verdict(float(value), predicted)
        known = arm or slug(str(row.get("arm"))) or "arm"
        found.append(Published(known, cell, float(value), approximate, predicted, verdict, note))
    return found


def one_more_run(cells: Cells, design: Design, spreads: Sequence[Spread], cell: Cell, arm: str) -> Interval:
    """Return where one further run (one launch, one repeat) of an arm at a cell is expected."""
    blocks = cells.of(design.primary).get(cell, {}).get(arm, {})
    values = list(cells.values(design.primary, cell, arm).values())
    repeats = sum(len(logs) for logs in blocks.values()) / len(blocks) if blocks else 1.0
    pooled = next(
        (s.components for s in spreads if s.arm is None and s.cell == cell and s.metric == design.primary), None
    )
    if pooled is None or not pooled.sigma_repeat:
        return prediction_interval(values, confidence=design.confidence)
    return prediction_interval(values, pooled.sigma_repeat**2, pooled.repeat_df, repeats, design.confidence)


def _published_verdict(value: float, predicted: Interval) -> str:
    if predicted.n == 0:
        return "not-measured"
    if predicted.state != "ok":
        return "cannot-tell"
    return "reproduced" if predicted.low <= value <= predicted.high else "differs"


def read_published(path: Path) -> pd.DataFrame:
    """Read a published table; raises ValueError with the file's name when a column is missing."""
    table = pd.read_csv(path)
    missing = {"arm", "concurrency"} - set(table.columns)
    if missing:
        raise ValueError(
            f"{path} lacks the column {', '.join(sorted(missing))}: a published table has arm and concurrency"
        )
    return table


@dataclass(frozen=True)
class SampleHours:
    """Hours to generate `samples` samples of the observed length, from launch values of tokens per sample /
    throughput.
    """

    arm: str
    cell: Cell
    samples: int
    hours: Interval
    tokens_mean: float


def sample_hours(evidence: Evidence, cells: Cells, design: Design) -> list[SampleHours]:
    """Return the hours at each arm's best level per workload; needs `samples` in the design and the tokens per
    request.
    """
    from reckoning.analyse.compare import peak_levels

    if not design.samples:
        return []
    points = evidence.points
    usable = points[points["rankable"] & points["output_tokens_mean"].notna()]
    found = []
    for workload in cells.workloads(design.primary):
        for arm, cell in peak_levels(cells, design, workload).items():
            chosen = usable[
                (usable["arm"] == arm) & (usable["workload"] == workload) & (usable["concurrency"] == cell.concurrency)
            ]
            tokens: Mapping[int, float] = chosen.groupby("block")["output_tokens_mean"].mean().to_dict()
            speed = cells.values(design.primary, cell, arm)
            values = [design.samples * tokens[b] / speed[b] / 3600 for b in speed if tokens.get(b, 0) > 0]
            if values:
                mean = sum(tokens.values()) / len(tokens)
                found.append(SampleHours(arm, cell, design.samples, launch_interval(values, design.confidence), mean))
    return found
