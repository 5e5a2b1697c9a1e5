"""Why a point must not decide anything: METHOD rules as codes. A flagged point stays in the data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FLAGS = {
    "failed-requests": "more requests failed than the limit allows",
    "no-steady-window": "the streams were never all busy together",
    "low-concurrency": "the achieved concurrency is below the limit's share of the target",
    "queue-dominated": "more streams than the server runs at once: the rest waited in its queue",
    "tokens-off": "the answers were longer or shorter than asked for by more than the limit",
    "too-short": "the steady window is shorter than the minimum duration",
    "too-few-requests": "fewer requests than streams ended inside the point",
    "tokens-counted": "the server gave no usage: tokens are counted chunks, a lower bound under speculation",
    "timing-unreliable": "far fewer chunks than tokens, and the tokens per chunk are unknown: no time per token",
    "cached-prompts": "prompts came from the server's prefix cache although the cache was to be empty",
    "cache-not-flushed": "the server's prefix cache could not be emptied and the prompts were not fresh",
    "garbage-output": "most answers were no language: empty, one token repeated, or the like",
    "arrivals-waited": "planned arrivals found every stream busy: the rate was not the one asked for",
    "client-limited": "the client itself was late or busy, or could not open all streams",
    "not-warm": "the launch's first point of its level, far slower than the later ones: one-time work fell into it",
}

DEFAULTS: dict[str, float] = {
    "max_failed_share": 0.01,
    "min_achieved_concurrency": 0.9,
    "max_token_deviation": 0.02,
    "min_point_duration_s": 0.0,
    "max_cached_share": 0.5,
    "max_client_lag_mean_ms": 1.0,
    "max_client_lag_p99_ms": 10.0,
    "max_client_lag_mean_share": 0.02,
    "max_client_lag_p99_share": 0.2,
    "max_client_cpu_share": 0.8,
    "max_first_point_slowdown": 1.5,
}


def flags_of(point: Mapping[str, Any], workload: Mapping[str, Any], limits: Mapping[str, Any]) -> list[str]:
    """Return the codes that apply to a measured point (keys as in points.json); limits fall back to DEFAULTS."""
    limit = {key: limits.get(key, value) for key, value in DEFAULTS.items()}
    requests = point["requests"]
    ended = requests["ok"] + requests["failed"]
    found = []

    def flag(code: str, applies: bool) -> None:
        if applies:
            found.append(code)

    flag("failed-requests", ended > 0 and requests["failed"] / ended > limit["max_failed_share"])
    window_s = (point["steady_end_s"] or 0.0) - (point["steady_start_s"] or 0.0)
    flag("no-steady-window", point["steady_start_s"] is None)
    closed = workload.get("arrival", "closed") == "closed"
    achieved = point["achieved_concurrency"]
    flag("low-concurrency", closed and (achieved or 0.0) < limit["min_achieved_concurrency"] * point["concurrency"])
    running = point["max_running_requests"]
    flag("queue-dominated", running is not None and point["concurrency"] > running)
    ratio = point["realised_tokens_ratio"]
    flag("tokens-off", ratio is not None and abs(ratio - 1.0) > limit["max_token_deviation"])
    flag("too-short", window_s < max(limit["min_point_duration_s"], workload.get("min_duration_s") or 0.0) * 0.999)
    flag("too-few-requests", closed and requests["ok"] < point["concurrency"])
    flag("tokens-counted", point["output_tokens_source"] == "counted")
    flag("timing-unreliable", point["timing"] == "unreliable")
    emptied = workload.get("flush", True) or workload.get("fresh_prompts", False)
    first_time = point.get("distinct_prompts", 0) >= requests["ok"]
    flag("cached-prompts", emptied and first_time and (point["cached_token_share"] or 0.0) > limit["max_cached_share"])
    flag("cache-not-flushed", emptied and point["flush"] is None and not workload.get("fresh_prompts", False))
    flag("garbage-output", point["garbage"] is not None)
    flag("arrivals-waited", point["arrivals_waited"] > 0)
    late = any(_late(point, limit, kind) for kind in ("mean", "p99"))
    busy = (point["client_cpu_share"] or 0.0) > limit["max_client_cpu_share"]
    flag("client-limited", late or busy or point["unopened_streams"] > 0)
    return found


def _late(point: Mapping[str, Any], limit: Mapping[str, float], kind: str) -> bool:
    """Whether the client's lateness is large beside what it measures: the share is of the mean time to first token."""
    allowed = limit[f"max_client_lag_{kind}_share"] * (point["mean_ttft_ms"] or 0.0)
    return (point[f"client_lag_{kind}_ms"] or 0.0) > max(limit[f"max_client_lag_{kind}_ms"], allowed)


def flag_first_points(points: Sequence[dict[str, Any]], limits: Mapping[str, Any]) -> None:
    """Flag points into which one-time work of the server fell, such as compiling kernels for a batch size.

    Warm-up cannot reach every shape that a server may compile for. So the first point of each workload and concurrency
    of a launch is compared with the later ones: it is `not-warm` when each of them is faster by more than
    `max_first_point_slowdown`. Only the first is judged, by its place in the order of measuring: a later point that is
    slow is the arm's own variation and counts.
    """
    slowdown = limits.get("max_first_point_slowdown", DEFAULTS["max_first_point_slowdown"])
    levels: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for point in points:
        if point["output_tok_s"]:
            levels.setdefault((point["workload"], point["concurrency"]), []).append(point)
    for level in levels.values():
        first, *later = sorted(level, key=lambda point: point["position"])
        if later and min(point["output_tok_s"] for point in later) > slowdown * first["output_tok_s"]:
            first["flags"].append("not-warm")
