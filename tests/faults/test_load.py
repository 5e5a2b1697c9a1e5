"""Faults while a server is measured: what is marked, what is kept, and whether the sweep goes on."""

from __future__ import annotations

import json

import pandas as pd


def points_of(bench) -> list[dict]:
    return json.loads((bench.launch_folder / "points.json").read_text())["points"]


def test_a_death_at_16_concurrent_keeps_the_earlier_levels(bench):
    """CASE 32: works up to 8 in flight, dies at 16."""
    outcome = bench.launch(bench.plan("die-at=16", levels=(1, 8, 16, 1)))
    assert outcome["status"] == "failed"
    assert outcome["failure"]["class"] == "illegal-address"
    assert outcome["points"] == {"planned": 4, "measured": 2, "failed": 2}
    assert [point["status"] for point in points_of(bench)] == ["ok", "ok", "failed", "failed"]
    requests = pd.read_parquet(bench.launch_folder / "requests.parquet")
    assert (requests.query("concurrency == 8 and phase != 'warmup'")["outcome"] == "ok").all()
    assert bench.launch(bench.plan(levels=(1,)), block=2)["status"] == "ok"  # the sweep goes on


def test_an_exit_with_code_0_under_load_is_a_failure(bench):
    """CASE 45 e."""
    outcome = bench.launch(bench.plan("exit-0-after=6", levels=(1, 2, 4), request_idle_s=30.0))
    assert outcome["status"] == "failed"
    assert outcome["failure"]["class"] == "exited"
    assert "exit code 0" in outcome["failure"]["seen"]
    assert outcome["points"]["failed"] >= 1


def test_the_engines_own_watchdog_is_named(bench):
    """A hang in a kernel ends with SGLang's watchdog, which kills the process: not "killed by the machine"."""
    line = "Watchdog timeout (self.watchdog_last_forward_ct=7, server_is_idle=False)"
    outcome = bench.launch(bench.plan("die-at=3", f"last-words={line}", levels=(1, 4)))
    assert outcome["failure"]["class"] == "watchdog"
    assert outcome["points"] == {"planned": 2, "measured": 1, "failed": 1}


def test_503_under_load_does_not_kill_the_server(bench):
    """CASE 45 c: refusals are failed requests of their point; the server stays and later points are measured."""
    plan = bench.plan("busy=1.5", levels=(1, 1, 1, 1, 1, 1))
    plan["workloads"]["chat"] |= {"requests_per_stream": None, "min_duration_s": 0.5}
    for point in plan["launches"][0]["points"]:
        point["requests"] = None
    outcome = bench.launch(plan)
    assert outcome["status"] == "ok", outcome["failure"]
    assert points_of(bench)[-1]["status"] == "ok" and points_of(bench)[-1]["requests"]["failed"] == 0
    requests = pd.read_parquet(bench.launch_folder / "requests.parquet")
    assert set(requests["outcome"]) == {"ok", "http-status"}
    assert not any(one["code"] == "killed-at-stop" for one in outcome["findings"])


def test_a_launch_without_any_measured_point_has_failed(bench):
    outcome = bench.launch(bench.plan("busy-always"))
    assert outcome["status"] == "failed"
    assert outcome["failure"]["class"] == "no-point-measured"


def test_resets_are_counted_and_the_launch_goes_on(bench):
    outcome = bench.launch(bench.plan("reset=4", levels=(4,)))
    requests = pd.read_parquet(bench.launch_folder / "requests.parquet")
    assert (requests["outcome"] == "reset").sum() == len(requests) // 4
    assert outcome["points"]["measured"] == 1


def test_a_trickle_is_slow_and_not_dead(bench):
    outcome = bench.launch(bench.plan("trickle=0.2", levels=(1,), request_idle_s=0.8))
    assert outcome["status"] == "ok"
    assert points_of(bench)[0]["requests"]["failed"] == 0


def test_a_quiet_log_alone_is_no_stall(bench):
    """A server that logs nothing under load but still generates is asked, and goes on."""
    outcome = bench.launch(bench.plan("stop-logging", "trickle=0.15", levels=(1,) * 3, request_idle_s=0.5))
    assert outcome["status"] == "ok", outcome["failure"]


def test_a_frozen_server_is_a_stall(bench):
    """CASE 29: no log line, no token. The running point fails, the earlier one stands."""
    outcome = bench.launch(bench.plan("freeze-after=5", levels=(1, 2), request_idle_s=0.8, request_total_s=30.0))
    assert outcome["status"] == "failed"
    assert outcome["failure"]["class"] in ("stall", "p2p-hang", "nccl")
    assert "probing generation failed" in outcome["failure"]["seen"]
    assert [point["status"] for point in points_of(bench)] == ["ok", "failed"]


def test_output_that_turns_to_garbage_fails_the_launch(bench):
    plan = bench.plan("garbage-later=bang")
    plan["workloads"]["chat"]["output_tokens"] = 12
    outcome = bench.launch(plan)
    assert outcome["failure"]["class"] == "garbage-output"
    assert all("garbage-output" in point["flags"] for point in points_of(bench))


def test_a_log_that_floods_is_kept_within_its_limit(bench):
    outcome = bench.launch(bench.plan("fill-log=20", levels=(1,), log_mib=2))
    assert outcome["status"] == "ok", outcome["failure"]
    log = bench.launch_folder / "server.log"
    assert log.stat().st_size < 4 << 20
    text = log.read_text()
    assert text.startswith("[") and "bytes were left out here" in text


def test_a_cross_check_that_cannot_run_spoils_no_launch(bench):
    """The scripted server's interpreter has no bench_serving: the record says so, the points stand."""
    plan = bench.plan(levels=(1,))
    plan["analysis"] = {"bench_serving_points": [{"workload": "chat", "concurrency": 1}]}
    assert bench.launch(plan)["status"] == "ok"
    record = json.loads((bench.launch_folder / "crosscheck.json").read_text())
    assert [(entry["workload"], entry["status"]) for entry in record["entries"]] == [("chat", "failed")]
    bench.launch(bench.plan(levels=(1,)))
    assert not (bench.launch_folder / "crosscheck.json").exists()


def test_a_threshold_of_the_analysis_reaches_the_load_client(bench):
    """A client may never be wholly idle: with no share of the processor allowed, every point is flagged."""
    plan = bench.plan(levels=(1,))
    plan["analysis"] = {"max_client_cpu_share": 0.0}
    assert bench.launch(plan)["status"] == "ok"
    assert all("client-limited" in point["flags"] for point in points_of(bench))
