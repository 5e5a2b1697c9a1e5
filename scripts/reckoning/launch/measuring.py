"""The seam between a launch and the load generator: what it is given, and what a launch keeps of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reckoning.load import Target, measure_points
from reckoning.load.crosscheck import Runner, cross_check

from . import sanity
from .http_client import Endpoint
from .progress import Progress

COLUMNS_TEXT = (
    "point workload concurrency repeat phase stream request prompt_id outcome http_status error finish_reason start_s "
    "first_token_s end_s ttft_ms tpot_ms e2e_ms prompt_tokens cached_tokens requested_tokens output_tokens "
    "output_tokens_source chunks chunk_gap_ms chunk_tokens acceptance_length"
)


@dataclass(frozen=True)
class Measurement:
    """Points as in points.json, one row per request, how long the warm-ups took (None: unknown), crosscheck.json."""

    points: tuple[dict[str, Any], ...]
    requests: pd.DataFrame
    warmup_s: float | None
    crosscheck: dict[str, Any] | None = None

    @property
    def measured(self) -> int:
        """The number of points that were measured."""
        return sum(1 for point in self.points if point.get("status") == "ok")


def nothing_measured() -> Measurement:
    """Return the measurement of a launch that never came so far: no points, and a table with the usual columns."""
    return Measurement((), pd.DataFrame(columns=COLUMNS_TEXT.split()), None)


@dataclass(frozen=True)
class Hooks:
    """What a measurement asks of the launch around it.

    `alive` says None, or why the server is dead. `keep` gets each finished point at once. `after_refusal` is called
    before a point when the server refused requests of the one before.
    """

    alive: Callable[[], str | None]
    speak: Progress
    keep: Callable[[Mapping[str, Any]], None]
    after_refusal: Callable[[], None]


def measure(
    plan: Mapping[str, Any],
    launch: Mapping[str, Any],
    target: Target,
    hooks: Hooks,
    *,
    launch_clock_start: float,
    runner: Runner,
    raw_folder: Path,
) -> Measurement:
    """Measure the launch's points, and cross-check those that the plan names with SGLang's bench_serving."""
    refused = False

    def told(event: Mapping[str, Any]) -> None:
        nonlocal refused
        hooks.speak.of_load(event)
        if event["event"] == "point-end":
            hooks.keep(event["entry"])
            refused = event["refused"]
        elif event["event"] == "point-start" and refused:
            hooks.after_refusal()

    measured = measure_points(
        target,
        launch["points"],
        plan["workloads"],
        seed=plan.get("seed", 0),  # of the experiment, not of the launch: all arms get the same prompts
        limits={**plan.get("limits", {}), **plan.get("analysis", {})},
        alive=hooks.alive,
        progress=told,
        launch_clock_start=launch_clock_start,
        fault_of_texts=None if random_weights(plan, launch["arm"]) else sanity.fault_of,
        raw_folder=raw_folder,
    )
    asked = (plan.get("analysis") or {}).get("bench_serving_points")
    checked = None
    if asked and hooks.alive() is None:
        checked = cross_check(
            target, runner, asked, plan["workloads"], measured, seed=plan.get("seed", 0), alive=hooks.alive,
            progress=hooks.speak,
        )  # fmt: skip
    return Measurement(tuple(measured.points), measured.requests, warmup_seconds(measured.requests), checked)


def random_weights(plan: Mapping[str, Any], arm: str) -> bool:
    """Whether the weights are random (made by us, or dummies): then an answer that repeats one token is no fault."""
    entry = next(item for item in plan["arms"] if item["slug"] == arm)
    return bool(plan["model"].get("maker")) or (entry.get("settings") or {}).get("load_format") == "dummy"


def target_of(plan: Mapping[str, Any], endpoint: Endpoint, served_name: str, server_info: Mapping[str, Any]) -> Target:
    """Return the server as the load generator knows it; one that tells nothing about itself is not taken for SGLang."""
    model = plan["model"]
    return Target(
        base_url=endpoint.base_url,
        model=served_name,
        tokenizer_path=model.get("tokenizer_path") or model.get("path"),
        kind="sglang" if server_info else "openai",
        api_key=endpoint.api_key,
    )


def warmup_seconds(requests: pd.DataFrame) -> float | None:
    """Return the total length of the warm-ups: per point, from its first warm-up request to the end of its last."""
    if "phase" not in requests or requests.empty:
        return None
    warm = requests[requests["phase"] == "warmup"]
    spans = warm.groupby("point").agg(start=("start_s", "min"), end=("end_s", "max"))
    return float((spans["end"] - spans["start"]).sum())
