"""Read a results folder into evidence. What is missing, failed or broken becomes data with its reason, never a crash.

A point that was completed before its launch died was measured and stays rankable; the death itself is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reckoning.analyse.design import Design
from reckoning.analyse.energy import energy_j_per_token, read_telemetry
from reckoning.analyse.evidence import Evidence, Launch, QuantileKey, points_frame
from reckoning.analyse.exclusions import flags_of, point_reasons, speculation_reason, value_reason
from reckoning.analyse.requests import Distribution, LaunchRequests, read_launch_requests
from reckoning.files import read_json
from reckoning.statistics.quantiles import LaunchQuantile


def read_outcomes(results: Path, plan: Mapping[str, Any]) -> list[Launch]:
    """Return every planned launch with what became of it."""
    return [_launch(results, planned) for planned in plan.get("launches", [])]


def launch_folder(results: Path, arm: str, block: int) -> Path:
    """Return where a launch's files lie."""
    return results / "launches" / arm / f"block{block}"


def _launch(results: Path, planned: Mapping[str, Any]) -> Launch:
    arm, block = str(planned["arm"]), int(planned["block"])
    common = {
        "arm": arm,
        "block": block,
        "order": planned.get("order"),
        "points_planned": len(planned.get("points", [])),
    }
    path = launch_folder(results, arm, block) / "outcome.json"
    if not path.exists():
        return Launch(
            status="missing", note="no outcome was written: the launch has not run or was interrupted", **common
        )
    try:
        outcome = read_json(path)
        status = outcome["status"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        return Launch(status="missing", note=f"outcome.json cannot be read: {error}", **common)
    return Launch(
        status="ok" if status == "ok" else "failed",
        failure=outcome.get("failure") or (None if status == "ok" else {"cause": "no cause recorded"}),
        started_at=outcome.get("started_at"),
        durations=outcome.get("durations") or {},
        command=tuple(map(str, outcome.get("command") or ())),
        env=outcome.get("env") or {},
        **common,
    )


def gather(results: Path, plan: Mapping[str, Any], design: Design, launches: list[Launch]) -> Evidence:
    """Read the points and requests of every launch that has them."""
    rows: list[dict[str, Any]] = []
    exclusions: list[dict[str, Any]] = []
    quantiles: dict[QuantileKey, list[LaunchQuantile]] = {}
    distributions: list[tuple[Launch, Distribution]] = []
    requests = failed = 0
    for launch in launches:
        folder = launch_folder(results, launch.arm, launch.block)
        if launch.status != "ok":
            exclusions.append(_exclusion(launch, _launch_reason(launch)))
        points, trouble = _points(folder)
        measured, more = _requests(folder)
        for text in (trouble, more):
            if text and launch.status == "ok":
                exclusions.append(_exclusion(launch, text))
        requests, failed = requests + measured.requests, failed + measured.failed
        telemetry = read_telemetry(folder) if points else None
        for point in points:
            row = _row(launch, point, measured, design)
            if row["energy_j_per_token"] is None:
                row["energy_j_per_token"] = energy_j_per_token(telemetry, point)
            rows.append(row)
            if not row["rankable"]:
                exclusions.append(_exclusion(launch, row["exclusion_reason"], point))
        good = {
            (row["workload"], row["concurrency"]) for row in rows if row["rankable"] and row["order"] == launch.order
        }
        for (workload, level, metric), values in measured.quantiles.items():
            if (workload, level) in good:
                quantiles[launch.arm, workload, level, metric, launch.block] = values
        distributions += [(launch, item) for item in measured.distributions]
    table = distributions_frame(distributions)
    return Evidence(points_frame(rows), tuple(launches), quantiles, table, tuple(exclusions), requests, failed)


def distributions_frame(items: Sequence[tuple[Launch, Distribution]]) -> pd.DataFrame:
    """Return the table `distributions`: one row per launch, level, metric and quantile."""
    sizes = [item.q.size for _, item in items]

    def column(values: list[Any]) -> np.ndarray:
        return np.repeat(np.array(values, dtype=object if values and isinstance(values[0], str) else None), sizes)

    return pd.DataFrame(
        {
            "arm": column([launch.arm for launch, _ in items]),
            "workload": column([item.workload for _, item in items]),
            "concurrency": column([item.concurrency for _, item in items]),
            "metric": column([item.metric for _, item in items]),
            "block": column([launch.block for launch, _ in items]),
            "q": np.concatenate([item.q for _, item in items]) if items else [],
            "value": np.concatenate([item.values for _, item in items]) if items else [],
            "requests": column([item.total for _, item in items]),
        }
    )


def _launch_reason(launch: Launch) -> str:
    if launch.status == "missing":
        return f"launch missing: {launch.note}"
    failure = launch.failure or {}
    return (
        f"launch failed at {failure.get('stage') or 'an unknown stage'}: {failure.get('cause') or failure.get('class')}"
    )


def _points(folder: Path) -> tuple[list[Mapping[str, Any]], str | None]:
    path = folder / "points.json"
    if not path.exists():
        return [], "no points were written"
    try:
        raw = read_json(path)
    except (ValueError, OSError) as error:
        return [], f"points.json cannot be read: {error}"
    points = raw.get("points", []) if isinstance(raw, Mapping) else raw
    return [point for point in points if isinstance(point, Mapping)], None


def _requests(folder: Path) -> tuple[LaunchRequests, str | None]:
    nothing = LaunchRequests()
    path = folder / "requests.parquet"
    if not path.exists():
        return nothing, "no requests were recorded: latencies are unknown"
    try:
        return read_launch_requests(path), None
    except Exception as error:  # a broken file has many exceptions, and none may stop the analysis
        return nothing, f"requests.parquet cannot be read ({type(error).__name__}): latencies are unknown"


def _row(launch: Launch, point: Mapping[str, Any], measured: LaunchRequests, design: Design) -> dict[str, Any]:
    counts = point.get("requests") or {}
    latencies = measured.points.get(int(point.get("index", -1)), {})
    start, end = point.get("steady_start_s"), point.get("steady_end_s")
    row = {
        **{key: point.get(key) for key in _COPIED},
        **latencies,
        "arm": launch.arm,
        "block": launch.block,
        "order": launch.order,
        "requests_ok": counts.get("ok"),
        "requests_failed": counts.get("failed"),
        "duration_s": end - start if start is not None and end is not None else None,
        "flags": ";".join(flags_of(point.get("flags"))),
    }
    reasons = point_reasons(row, design.limits)
    if (useless := speculation_reason(row, design.arm(launch.arm))) is not None:
        reasons.append(useless)
    if not reasons and (reason := value_reason(row.get(design.primary), design.primary)):
        reasons.append(reason)
    row["rankable"] = not reasons
    row["exclusion_reason"] = "; ".join(reasons) or None
    return row


_COPIED = (
    "position", "workload", "concurrency", "repeat", "status", "reason", "output_tok_s", "output_tok_s_whole_run",
    "achieved_concurrency", "realised_tokens_ratio", "acceptance_length", "cached_token_share", "queue_share",
    "energy_j_per_token",
)  # fmt: skip


def _exclusion(launch: Launch, reason: str, point: Mapping[str, Any] | None = None) -> dict[str, Any]:
    point = point or {}
    return {
        "arm": launch.arm,
        "block": launch.block,
        "workload": point.get("workload"),
        "concurrency": point.get("concurrency"),
        "repeat": point.get("repeat"),
        "metric": None,
        "reason": reason,
    }
