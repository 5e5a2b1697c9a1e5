"""What was measured, in one shape, whatever it was read from: a results folder or a table of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reckoning.statistics.quantiles import LaunchQuantile

QuantileKey = tuple[str, str, int, str, int]
"""arm, workload, concurrency, metric, block"""

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Launch:
    """One planned launch. `status`: ok, failed, missing (no outcome was written). `order` is its place in the run."""

    arm: str
    block: int
    order: int | None
    status: str
    failure: Mapping[str, Any] | None = None
    started_at: str | None = None
    durations: Mapping[str, float | None] = field(default_factory=dict)
    points_planned: int | None = None
    note: str | None = None
    command: tuple[str, ...] = ()  # as it was started, with interpreter and ports
    env: Mapping[str, str] = field(default_factory=dict)  # what was set for it


@dataclass(frozen=True)
class Evidence:
    """All points (columns as in `tables/points`), launches, per-launch quantiles and exclusions of one experiment."""

    points: pd.DataFrame
    launches: tuple[Launch, ...] = ()
    quantiles: Mapping[QuantileKey, list[LaunchQuantile]] = field(default_factory=dict)
    distributions: pd.DataFrame | None = None
    exclusions: tuple[Mapping[str, Any], ...] = ()
    requests: int | None = None
    requests_failed: int | None = None


POINT_COLUMNS = (
    "arm", "block", "order", "position", "workload", "concurrency", "repeat", "status",
    "output_tok_s", "ttft_ms", "tpot_ms", "itl_ms", "chunk_gap_ms", "e2e_ms", "acceptance_length", "energy_j_per_token",
    "output_tok_s_whole_run", "achieved_concurrency", "realised_tokens_ratio", "queue_share", "cached_token_share",
    "requests_ok", "requests_failed", "output_tokens_mean", "duration_s", "flags", "reason", "rankable",
    "exclusion_reason",
)  # fmt: skip


def points_frame(rows: list[Mapping[str, Any]], extra: Sequence[str] = ()) -> pd.DataFrame:
    """Return the tidy table of points with every column of `POINT_COLUMNS` and `extra`, also when there are no rows."""
    frame = pd.DataFrame(list(rows), columns=list(dict.fromkeys([*POINT_COLUMNS, *extra])))
    texts = {"arm", "workload", "status", "flags", "reason", "exclusion_reason"}
    for column in frame.columns.difference([*texts, "rankable"]):
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    for column in ("block", "order", "position", "concurrency", "repeat", "requests_ok", "requests_failed"):
        frame[column] = frame[column].astype("Int64")
    frame["rankable"] = frame["rankable"].astype(bool)
    for column in texts:
        frame[column] = frame[column].astype("string")
    return frame
