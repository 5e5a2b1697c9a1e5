"""How sure are we: variance components, drift along the run, tail quantiles over launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.design import Design
from reckoning.analyse.evidence import QUANTILES, Evidence, Launch
from reckoning.statistics.drift import Drift, OrderedLog, drift_slope
from reckoning.statistics.intervals import Interval, launch_interval
from reckoning.statistics.planning import best_repeats
from reckoning.statistics.quantiles import LaunchQuantile, requests_needed
from reckoning.statistics.variance import LaunchLogs, VarianceComponents, variance_components


@dataclass(frozen=True)
class Spread:
    """Variance components of one cell, pooled over arms (`arm` None) or of one arm, and the repeats they advise."""

    arm: str | None
    cell: Cell
    metric: str
    components: VarianceComponents
    advised_repeats: float | None


@dataclass(frozen=True)
class Costs:
    """Mean seconds that one more launch costs before its first point, and one more repeat of all levels."""

    launch_s: float | None
    repeat_s: float | None
    block_s: float | None


def costs(launches: Sequence[Launch], design: Design) -> Costs:
    """Return what launches and repeats cost, from the durations of the launches that went well."""
    good = [launch.durations for launch in launches if launch.status == "ok"]
    start = _mean([_sum(d, "start_s", "stop_s") for d in good])
    measure = _mean([_sum(d, "measure_s", "warmup_s") for d in good])
    total = _mean([d.get("total_s") for d in good])
    arms = len({launch.arm for launch in launches})
    repeat = measure / design.repeats if measure and design.repeats else None
    return Costs(start, repeat, total * arms if total else None)


def _sum(durations, *keys: str) -> float | None:
    values = [durations.get(key) for key in keys if durations.get(key) is not None]
    return sum(values) if values else None


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def spreads(cells: Cells, design: Design, cost: Costs) -> list[Spread]:
    """Return the components of every cell pooled over arms, and for the primary metric those of each arm."""
    found = []
    for metric in design.compared:
        for cell, arms in cells.of(metric).items():
            pooled = [LaunchLogs(arm, block, logs) for arm, blocks in arms.items() for block, logs in blocks.items()]
            found.append(_spread(None, cell, metric, pooled, design, cost))
            if metric == design.primary and len(arms) > 1:
                for arm in arms:
                    own = [launch for launch in pooled if launch.arm == arm]
                    found.append(_spread(arm, cell, metric, own, design, cost))
    return found


def _spread(  # noqa: PLR0917
    arm: str | None, cell: Cell, metric: str, launches: Sequence[LaunchLogs], design: Design, cost: Costs
) -> Spread:
    parts = variance_components(launches, design.confidence)
    advised = None
    if parts.sigma_launch and parts.sigma_repeat is not None and cost.launch_s and cost.repeat_s:
        advised = best_repeats(parts.sigma_launch, parts.sigma_repeat, cost.launch_s, cost.repeat_s)
    return Spread(arm, cell, metric, parts, advised)


@dataclass(frozen=True)
class DriftOf:
    """The drift of one metric over all workloads. `verdict`: drift, no-drift-seen, inconclusive."""

    metric: str
    drift: Drift
    verdict: str


def drifts(cells: Cells, design: Design) -> list[DriftOf]:
    """Return the slope along the run order per speed metric; nothing when the order of launches is not known."""
    found = []
    for metric in design.compared:
        rows = _ordered(cells, metric)
        if rows:
            drift = drift_slope(rows, design.confidence)
            found.append(DriftOf(metric, drift, _drift_verdict(drift, design)))
    return found


def _drift_verdict(drift: Drift, design: Design) -> str:
    if drift.p is None:
        return "inconclusive"
    if drift.p <= design.alpha:
        return "drift"
    margin = math.log1p(design.equivalence_margin)
    inside = max(abs(drift.low), abs(drift.high)) * drift.span <= margin
    return "no-drift-seen" if inside else "inconclusive"


def _ordered(cells: Cells, metric: str) -> list[OrderedLog]:
    return [
        OrderedLog(arm, block, cell, cells.orders[arm, block], float(logs.mean()))
        for cell, arm, block, logs in cells.entries(metric)
        if (arm, block) in cells.orders
    ]


def drift_table(cells: Cells, design: Design) -> pd.DataFrame:
    """Return every launch's relative deviation from its arm's mean at the same levels, to be drawn over the order."""
    columns = ["metric", "workload", "arm", "block", "order", "deviation"]
    frames = []
    for metric in design.compared:
        rows = _ordered(cells, metric)
        frame = pd.DataFrame(
            [(metric, r.cell.workload, r.cell.concurrency, r.arm, r.block, r.order, r.log) for r in rows],
            columns=["metric", "workload", "concurrency", "arm", "block", "order", "log"],
        )
        if not len(frame):
            continue
        frame["deviation"] = frame["log"] - frame.groupby(["workload", "concurrency", "arm"])["log"].transform("mean")
        mean = frame.groupby(columns[:-1], as_index=False)["deviation"].mean()
        mean["deviation"] = mean["deviation"].map(math.expm1)
        frames.append(mean)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


@dataclass(frozen=True)
class QuantileOf:
    """One quantile of an arm at a cell: per launch, then a t interval over launches."""

    arm: str
    cell: Cell
    metric: str
    q: float
    interval: Interval
    requests: int
    requests_min: int | None
    censored: int
    state: str  # ok | few-launches | too-few-requests | censored
    note: str | None


def quantiles_over_launches(evidence: Evidence, design: Design) -> list[QuantileOf]:
    """Return p50, p90 and p99 of every arm, cell and latency."""
    grouped: dict[tuple[str, Cell, str], list[list]] = {}
    for (arm, workload, level, metric, _), values in evidence.quantiles.items():
        grouped.setdefault((arm, Cell(workload, level), metric), []).append(values)
    found = []
    for (arm, cell, metric), launches in grouped.items():
        for place, q in enumerate(QUANTILES):
            found.append(_quantile(arm, cell, metric, q, [values[place] for values in launches], design))
    return found


def _quantile(  # noqa: PLR0917
    arm: str, cell: Cell, metric: str, q: float, launches: Sequence[LaunchQuantile], design: Design
) -> QuantileOf:
    requests = sum(launch.requests for launch in launches)
    fewest = min((launch.requests for launch in launches), default=None)
    censored = sum(launch.censored for launch in launches)
    known = [launch.value for launch in launches if launch.value is not None and launch.value > 0]
    lost = [launch for launch in launches if launch.state == "censored" and launch.value is None]
    few = [launch for launch in launches if launch.state == "too-few-requests"]
    name = f"p{q * 100:g}"
    if lost:
        empty = Interval(None, None, None, len(launches), None, "no-data")
        note = (
            f"in {len(lost)} of {len(launches)} launches {name} lies among requests that timed out: "
            "it is longer than they waited"
        )
        return QuantileOf(arm, cell, metric, q, empty, requests, fewest, censored, "censored", note)
    if few or not known:
        need = requests_needed(q)
        note = f"{name} needs {need} observations in every launch, the smallest has {fewest}"
        empty = Interval(None, None, None, len(launches), None, "no-data")
        return QuantileOf(arm, cell, metric, q, empty, requests, fewest, censored, "too-few-requests", note)
    interval = launch_interval(known, design.confidence)
    if censored:
        note = f"{censored} requests timed out and count as slower than every other"
        return QuantileOf(arm, cell, metric, q, interval, requests, fewest, censored, "censored", note)
    state = "ok" if interval.n >= 3 else "few-launches"
    note = None if state == "ok" else f"{interval.n} launches give no interval"
    return QuantileOf(arm, cell, metric, q, interval, requests, fewest, 0, state, note)
