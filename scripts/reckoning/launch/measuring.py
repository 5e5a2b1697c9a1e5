"""The seam between a launch and the load generator: what it is given, and what a launch keeps of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from .http_client import Endpoint
from .progress import Progress

COLUMNS_TEXT = (
    "point workload concurrency repeat phase stream request prompt_id outcome http_status error finish_reason start_s "
    "first_token_s end_s ttft_ms tpot_ms e2e_ms prompt_tokens cached_tokens requested_tokens output_tokens "
    "output_tokens_source chunks chunk_gap_ms chunk_tokens acceptance_length"
)


@dataclass(frozen=True)
class Measurement:
    """Points as in points.json, one row per request, and how long the warm-ups took (None: unknown)."""

    points: tuple[dict[str, Any], ...]
    requests: pd.DataFrame
    warmup_s: float | None

    @property
    def measured(self) -> int:
        """The number of points that were measured."""
        return sum(1 for point in self.points if point.get("status") == "ok")


def nothing_measured() -> Measurement:
    """Return the measurement of a launch that never came so far: no points, and a table with the usual columns."""
    return Measurement((), pd.DataFrame(columns=COLUMNS_TEXT.split()), None)


def measure(
    plan: Mapping[str, Any],
    launch: Mapping[str, Any],
    endpoint: Endpoint,
    served_name: str,
    server_info: Mapping[str, Any],
    *,
    alive: Callable[[], str | None],
    speak: Progress,
    keep: Callable[[Mapping[str, Any]], None],
    after_refusal: Callable[[], None],
    launch_clock_start: float,
) -> Measurement:
    """Measure the launch's points with `reckoning.load`; `keep` gets each finished point at once;
    `after_refusal` is called before a point when the server refused requests of the one before."""
    from reckoning.load import Target, measure_points

    refused = False

    def told(event: Mapping[str, Any]) -> None:
        nonlocal refused
        speak.of_load(event)
        if event["event"] == "point-end":
            keep(event["entry"])
            refused = "http-status" in str(event["entry"]["reason"]) or _refusals(event["entry"]) > 0
        elif event["event"] == "point-start" and refused:
            after_refusal()

    target = Target(
        base_url=endpoint.base_url,
        model=served_name,
        tokenizer_path=plan["model"].get("tokenizer_path") or plan["model"].get("path"),
        kind="sglang" if server_info else "openai",
        api_key=endpoint.api_key,
    )
    measured = measure_points(
        target,
        launch["points"],
        plan["workloads"],
        seed=launch["seed"],
        limits={**plan.get("limits", {}), **plan.get("analysis", {})},
        alive=alive,
        progress=told,
        launch_clock_start=launch_clock_start,
    )
    return Measurement(tuple(measured.points), measured.requests, warmup_seconds(measured.requests))


def _refusals(entry: Mapping[str, Any]) -> int:
    return entry["requests"]["by_class"].get("http-status", 0)


def warmup_seconds(requests: pd.DataFrame) -> float | None:
    """Return the total length of the warm-ups: per point, from its first warm-up request to the end of its last."""
    if "phase" not in requests or requests.empty:
        return None
    warm = requests[requests["phase"] == "warmup"]
    spans = warm.groupby("point").agg(start=("start_s", "min"), end=("end_s", "max"))
    return float((spans["end"] - spans["start"]).sum())
