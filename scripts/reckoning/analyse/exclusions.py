"""Which points stay out of verdicts, each with its reason in plain words. They stay in every table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from reckoning.analyse.design import Arm, Limits
from reckoning.load.flags import FLAGS

NOT_EFFECTIVE = 1.05
"""An acceptance length up to this means that speculation is on and does nothing."""

SPECULATION_OFF = "speculation is not effective"


def point_reasons(point: Mapping[str, Any], limits: Limits) -> list[str]:
    """Return why a point is not rankable (METHOD 8); an empty list means that it is.

    `point` has the columns of `tables/points`; a column that is missing or null decides nothing.
    """
    if point.get("status") == "failed":
        return [f"the point failed: {point.get('reason') or 'no reason recorded'}"]
    found = _measured_faults(point, limits)
    return [*(FLAGS.get(flag, flag) for flag in flags_of(point.get("flags")) if flag not in found), *found.values()]


def _measured_faults(point: Mapping[str, Any], limits: Limits) -> dict[str, str]:
    """Return flag -> reason with its numbers, for the limits that a point's own columns show to be broken."""
    reasons = {}
    level, achieved = number_of(point.get("concurrency")), number_of(point.get("achieved_concurrency"))
    if level and achieved is not None and achieved < limits.min_achieved_concurrency * level:
        reasons["low-concurrency"] = (
            f"achieved concurrency {achieved:.3g} is below {limits.min_achieved_concurrency:.0%} of {level:.0f}"
        )
    realised = number_of(point.get("realised_tokens_ratio"))
    if realised is not None and abs(realised - 1) > limits.max_token_deviation:
        reasons["tokens-off"] = f"realised output tokens are {realised:.1%} of those requested"
    ok, failed = number_of(point.get("requests_ok")), number_of(point.get("requests_failed"))
    if ok is not None and failed is not None and ok + failed > 0:
        share = failed / (ok + failed)
        if share > limits.max_failed_share:
            limit = f"limit {limits.max_failed_share:.1%}"
            reasons["failed-requests"] = f"{failed:.0f} of {ok + failed:.0f} requests failed ({limit})"
    duration = number_of(point.get("duration_s"))
    if duration is not None and duration < limits.min_point_duration_s:
        reasons["too-short"] = f"lasted {duration:.3g} s, less than {limits.min_point_duration_s:.3g} s"
    return reasons


def speculation_reason(point: Mapping[str, Any], arm: Arm) -> str | None:
    """Return why a speculative arm's point is no result of speculation: nearly no draft token was accepted."""
    length = number_of(point.get("acceptance_length"))
    if not arm.settings.get("speculative_algorithm") or length is None or length > NOT_EFFECTIVE:
        return None
    return f"{SPECULATION_OFF}: acceptance length {length:.2f}"


def value_reason(value: Any, metric: str) -> str | None:
    """Return why a value cannot be used on the log scale, or None."""
    if value is None:
        return f"{metric} is missing"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return f"{metric} is not a number: {value!r}"
    if math.isnan(number):
        return f"{metric} is not a number (NaN)"
    if math.isinf(number):
        return f"{metric} is infinite"
    if number <= 0:
        return f"{metric} is {number:g}: a ratio needs a value above zero"
    return None


def flags_of(raw: Any) -> list[str]:
    """Return flags given as a list or joined by `;` or `,`."""
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return []
    parts: Iterable[Any] = raw.replace(",", ";").split(";") if isinstance(raw, str) else raw
    return [str(part).strip() for part in parts if str(part).strip()]


def number_of(value: Any) -> float | None:
    """Return a finite number (also from text), or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
