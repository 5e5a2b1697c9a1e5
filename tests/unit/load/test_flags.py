"""Every flag from both sides of its limit."""

from typing import Any

import pytest

from reckoning.load.flags import FLAGS, flag_first_points, flags_of
from reckoning.load.records import blank_point

GOOD = blank_point({"index": 0, "workload": "w", "concurrency": 10, "repeat": 1}) | {
    "status": "ok",
    "steady_start_s": 10.0,
    "steady_end_s": 70.0,
    "requests": {"ok": 200, "failed": 0, "by_class": {"ok": 200}},
    "achieved_concurrency": 9.9,
    "realised_tokens_ratio": 1.0,
    "output_tokens_source": "usage",
    "timing": "exact",
    "cached_token_share": 0.0,
    "distinct_prompts": 5,
    "max_running_requests": 10,
    "mean_ttft_ms": 100.0,
    "client_lag_mean_ms": 0.5,
    "client_lag_p99_ms": 2.0,
    "client_cpu_share": 0.3,
    "unopened_streams": 0,
    "arrivals_waited": 0,
    "flush": {"done": True, "tries": 1},
}


def flagged(
    workload: dict[str, Any] | None = None, limits: dict[str, float] | None = None, **changes: Any
) -> list[str]:
    return flags_of(GOOD | changes, workload or {}, limits or {})


def test_a_good_point_has_none() -> None:
    assert flagged() == []


@pytest.mark.parametrize(
    ("flag", "bad", "just_good"),
    [
        ("failed-requests", {"requests": {"ok": 98, "failed": 2}}, {"requests": {"ok": 99, "failed": 1}}),
        ("no-steady-window", {"steady_start_s": None, "steady_end_s": None}, {}),
        ("low-concurrency", {"achieved_concurrency": 8.99}, {"achieved_concurrency": 9.0}),
        ("low-concurrency", {"achieved_concurrency": None}, {}),
        ("queue-dominated", {"max_running_requests": 9}, {"max_running_requests": None}),
        ("tokens-off", {"realised_tokens_ratio": 0.979}, {"realised_tokens_ratio": 0.981}),
        ("tokens-off", {"realised_tokens_ratio": 1.021}, {"realised_tokens_ratio": 1.019}),
        ("too-few-requests", {"requests": {"ok": 9, "failed": 0}}, {"requests": {"ok": 10, "failed": 0}}),
        ("tokens-counted", {"output_tokens_source": "counted"}, {"output_tokens_source": "mixed"}),
        ("timing-unreliable", {"timing": "unreliable"}, {"timing": "per-chunk"}),
        ("garbage-output", {"garbage": "one token repeated"}, {}),
        ("arrivals-waited", {"arrivals_waited": 1}, {}),
        ("client-limited", {"client_lag_p99_ms": 21.0}, {"client_lag_p99_ms": 20.0}),
        ("client-limited", {"client_lag_mean_ms": 2.1}, {"client_lag_mean_ms": 2.0}),
        (
            "client-limited",
            {"client_lag_mean_ms": 1.1, "mean_ttft_ms": 5.0},
            {"client_lag_mean_ms": 0.9, "mean_ttft_ms": 5.0},
        ),
        ("client-limited", {"client_cpu_share": 0.81}, {"client_cpu_share": 0.8}),
        ("client-limited", {"unopened_streams": 1}, {}),
        (
            "cached-prompts",
            {"cached_token_share": 0.51, "distinct_prompts": 200},
            {"cached_token_share": 0.49, "distinct_prompts": 200},
        ),
        ("cached-prompts", {"cached_token_share": 0.9, "distinct_prompts": 200}, {"cached_token_share": 0.9}),
        ("cache-not-flushed", {"flush": None}, {}),
    ],
)
def test_both_sides_of_each_limit(flag: str, bad: dict, just_good: dict) -> None:
    assert flag in FLAGS
    assert flag in flagged(**bad)
    assert flagged(**just_good) == []


def test_duration_comes_from_the_workload_and_from_the_analysis() -> None:
    assert flagged({"min_duration_s": 60}) == []
    assert flagged({"min_duration_s": 61}) == ["too-short"]
    assert flagged(limits={"min_point_duration_s": 61}) == ["too-short"]


def test_thresholds_can_be_set() -> None:
    assert flagged(limits={"max_failed_share": 0.05}, requests={"ok": 96, "failed": 4}) == []
    assert flagged(limits={"min_achieved_concurrency": 0.5}, achieved_concurrency=6.0) == []


def test_what_has_no_meaning_with_planned_arrivals_is_not_flagged() -> None:
    assert flagged({"arrival": "poisson"}, achieved_concurrency=1.0) == []


def test_fresh_prompts_need_no_flush_and_kept_caches_are_no_fault() -> None:
    assert flagged({"fresh_prompts": True, "flush": False}, flush=None) == []
    assert flagged({"flush": False}, flush=None, cached_token_share=0.9, distinct_prompts=200) == []


def level(*tok_s: float | None, concurrency: int = 32) -> list[dict]:
    """Points of one level in the order in which they were measured."""
    return [
        {"workload": "w", "concurrency": concurrency, "position": at, "output_tok_s": value, "flags": []}
        for at, value in enumerate(tok_s)
    ]


@pytest.mark.parametrize(
    ("tok_s", "flagged"),
    [
        ((1991.4, 14917.6), [0]),  # seen on two H200: kernels were compiled in the first
        ((14237.8, 15079.9), []),
        ((14917.6, 1991.4), []),  # a later slow point is the arm's own variation
        ((100.0, 151.0, 152.0), [0]),
        ((100.0, 150.0), []),  # at the limit, not beyond it
        ((100.0, 151.0, 149.0), []),
        ((None, 100.0, 151.0), [1]),  # the first that has a number
        ((100.0,), []),
    ],
)
def test_only_a_first_point_far_slower_than_all_later_ones_is_not_warm(tok_s: tuple, flagged: list[int]) -> None:
    points = level(*tok_s)
    other = level(10.0, 10.0, concurrency=1)
    flag_first_points([*reversed(points), *other], {})
    assert [at for at, point in enumerate(points) if point["flags"]] == flagged
    assert all(point["flags"] in ([], ["not-warm"]) for point in [*points, *other])


def test_the_slowdown_can_be_set() -> None:
    points = level(100.0, 151.0)
    flag_first_points(points, {"max_first_point_slowdown": 2.0})
    assert points[0]["flags"] == []
