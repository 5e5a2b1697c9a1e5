"""The tables of an experiment, as Parquet and, where a person would open them, as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reckoning.analyse.results import Results
from reckoning.analyse.spread import drift_table
from reckoning.files import write_table


def write_tables(folder: Path, results: Results, findings: Mapping[str, Any]) -> None:
    """Write every table of docs/architecture.md under `folder`."""
    write_table(folder / "points.parquet", results.evidence.points, csv=True)
    write_table(folder / "launches.parquet", launches_table(results), csv=True)
    write_table(folder / "estimates.parquet", estimates_table(results), csv=True)
    for name in ("contrasts", "variance", "quantiles"):
        write_table(folder / f"{name}.parquet", rows_table(findings[name]), csv=True)
    write_table(folder / "drift.parquet", drift_table(results.cells, results.design))
    if results.evidence.distributions is not None:
        write_table(folder / "distributions.parquet", results.evidence.distributions)


def rows_table(rows: list[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of findings.json as a table."""
    return pd.DataFrame(rows)


def estimates_table(results: Results) -> pd.DataFrame:
    """Return the estimates with the standard deviation between launches."""
    columns = ["arm", "workload", "concurrency", "metric", "unit", "estimate", "low", "high", "n", "sd_log", "state"]
    rows = [
        (
            e.arm, e.cell.workload, e.cell.concurrency, e.metric, results.design.metrics[e.metric].unit,
            e.interval.estimate, e.interval.low, e.interval.high, e.interval.n, e.interval.sd_log, e.interval.state,
        )
        for e in results.estimates
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def launches_table(results: Results) -> pd.DataFrame:
    """Return one row per planned launch."""
    points = results.evidence.points
    good = points[points["rankable"]].groupby(["arm", "block"]).size().to_dict()
    rows = []
    for launch in results.evidence.launches:
        failure = launch.failure or {}
        rows.append(
            {
                "arm": launch.arm,
                "block": launch.block,
                "order": launch.order,
                "status": launch.status,
                "failure_class": failure.get("class"),
                "failure_stage": failure.get("stage"),
                "failure_cause": failure.get("cause") or launch.note,
                "started_at": launch.started_at,
                **{key: launch.durations.get(key) for key in ("start_s", "measure_s", "total_s")},
                "points_planned": launch.points_planned,
                "points_rankable": good.get((launch.arm, launch.block), 0),
            }
        )
    columns = [
        "arm", "block", "order", "status", "failure_class", "failure_stage", "failure_cause", "started_at", "start_s",
        "measure_s", "total_s", "points_planned", "points_rankable",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
