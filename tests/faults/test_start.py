"""Start and readiness: every way in which a server can fail to become ready, and the words that the user gets."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from reckoning.launch import ports

from .conftest import HERE

CURAND = "WARNING sampling.cuh:20: fatal error: curand.h: No such file or directory"


def failure_of(outcome: dict) -> dict:
    assert outcome["status"] == "failed"
    return outcome["failure"]


def test_a_healthy_server_is_measured(bench):
    outcome = bench.launch(bench.plan())
    assert outcome["status"] == "ok", outcome["failure"]
    assert outcome["points"] == {"planned": 2, "measured": 2, "failed": 0}
    assert [stage["name"] for stage in outcome["stages"]][-1] == "ready"
    assert outcome["attempts"][0]["status"] == "ok" and len(outcome["attempts"]) == 1
    assert outcome["command"][0] == sys.executable and str(outcome["port"]) in outcome["command"]
    assert bench.said[0].startswith("launch 1 of 2 (block 1, Scripted): ")


def test_secrets_of_the_server_are_not_kept(bench):
    bench.launch(bench.plan())
    assert "sk-not-for-anybody" not in (bench.launch_folder / "server_info.json").read_text()


def test_a_server_that_never_listens_ends_with_its_last_stage(bench):
    failure = failure_of(bench.launch(bench.plan("never-listen", start_stall_s=4.0, start_total_s=100.0)))
    assert int(re.search(r"has not grown for (\d+) s", failure["seen"])[1]) < 50
    assert (failure["class"], failure["stage"]) == ("stall", "KV cache")
    assert "last stage: KV cache" in failure["seen"]
    assert "does not listen" in failure["seen"]


def test_a_slow_start_is_waited_for_while_the_log_grows(bench):
    """CASE 46: lines keep coming for longer than the stall limit, then the server is ready."""
    outcome = bench.launch(bench.plan("listen-late=4", start_stall_s=2.0, levels=(1,)))
    assert outcome["status"] == "ok"
    assert outcome["durations"]["start_s"] > 4
    assert "graph capture" in [stage["name"] for stage in outcome["stages"]]


def test_a_silent_slow_start_is_a_stall_with_the_stage_named(bench):
    """CASE 46, the silent variant, on both sides of the limit."""
    failure = failure_of(bench.launch(bench.plan("listen-late-silent=30", start_stall_s=3.0)))
    assert (failure["class"], failure["stage"]) == ("stall", "loading weights")
    assert "last stage: loading weights" in failure["seen"]
    assert bench.launch(bench.plan("listen-late-silent=1", start_stall_s=5.0, levels=(1,)))["status"] == "ok"


def test_a_start_that_only_logs_ends_at_the_total_limit(bench):
    failure = failure_of(bench.launch(bench.plan("listen-late=60", start_total_s=2.0)))
    assert failure["class"] == "start-timeout"
    assert failure["stage"] == "graph capture"
    assert "start_total_s" in failure["remedy"]


def test_a_hang_in_the_distributed_start_points_to_p2p(bench):
    """CASE 29: the log ends at the NCCL line and never grows."""
    failure = failure_of(bench.launch(bench.plan("hang-at=sglang is using nccl==2.28.9", start_stall_s=4.0)))
    assert failure["class"] in ("p2p-hang", "nccl")
    assert "NCCL_P2P_DISABLE" in failure["remedy"]
    assert "has not grown" in failure["seen"]


def test_a_death_at_start_gives_the_first_cause_of_the_log(bench):
    """CASE 1: the first warning is the cause, the server's death only the end of it."""
    line = "WARNING Failed to get device capability: SM 12.x requires CUDA >= 12.9."
    failure = failure_of(
        bench.launch(
            bench.plan(f"say={line}\nRuntimeError: FlashInfer requires GPUs with sm75 or higher", "die-at-start=1")
        )
    )
    assert failure["class"] == "toolkit-too-old"
    assert "12.9" in failure["cause"]
    assert "exit code 1" in failure["seen"]


def test_a_death_without_a_word_is_told_by_its_exit_code(bench):
    failure = failure_of(bench.launch(bench.plan("die-at-start=3")))
    assert failure["class"] == "exited"
    assert "exit code 3" in failure["seen"]


def test_the_first_post_may_take_its_time(bench):
    """CASE 45 a: health is fine, the first POST hangs for longer than any sign of life is due, and then works."""
    outcome = bench.launch(bench.plan("hang-first-post=2", start_stall_s=10.0, levels=(1,)))
    assert outcome["status"] == "ok"
    assert outcome["durations"]["start_s"] > 2


def test_a_post_that_never_returns_gives_the_compile_error_of_the_log(bench):
    """CASE 5: /health is 200, the first generation hangs, and the log has the missing header as a warning."""
    failure = failure_of(bench.launch(bench.plan("hang-posts", f"say-at-post={CURAND}", start_stall_s=4.0)))
    assert failure["class"] == "missing-header"
    assert "curand.h" in failure["cause"]
    assert "libcurand-dev-13-0" in failure["remedy"]
    assert "first generation is without an answer" in failure["seen"]


def test_a_death_by_the_first_post_is_reported_at_once(bench):
    """CASES 32 and 45 b: not after the whole time-out (which is a minute here), and with the log's first exception."""
    outcome = bench.launch(bench.plan("die-first-post", start_stall_s=60.0, start_total_s=60.0))
    failure = failure_of(outcome)
    assert failure["class"] == "illegal-address"
    assert outcome["durations"]["total_s"] < 30


def test_a_server_that_wants_a_key_is_alive(bench):
    """CASE 45 d."""
    failure = failure_of(bench.launch(bench.plan("unauthorised=sk-of-somebody")))
    assert failure["class"] == "needs-api-key"
    assert "--api-key" in failure["remedy"]


def test_a_key_in_the_settings_is_used_and_kept_nowhere(bench):
    key = "sk-very-secret-1"
    plan = bench.plan(f"unauthorised={key}", f"say=started with {key}", settings={"api_key": key}, levels=(1,))
    assert bench.launch(plan)["status"] == "ok"
    for path in bench.launch_folder.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path


def test_a_server_of_another_model_is_refused(bench):
    failure = failure_of(bench.launch(bench.plan("other-model=/models/old")))
    assert failure["class"] == "wrong-server"
    assert "/models/old" in failure["cause"]


@pytest.mark.parametrize("kind", ["bang", "repeat", "empty"])
def test_garbage_is_not_measured(bench, kind):
    """CASE 29: custom all-reduce with wrong data answers 200 with "!!!!!!!!"."""
    outcome = bench.launch(bench.plan(f"garbage={kind}"))
    assert failure_of(outcome)["class"] == "garbage-output"
    assert outcome["points"] == {"planned": 2, "measured": 0, "failed": 0}


def test_an_environment_finding_keeps_the_arm_from_starting(bench):
    finding = {"code": "curand-missing", "level": "fail", "found": "no curand.h", "where": "/usr/local/cuda/include"}
    finding |= {"needed": "curand.h", "why": "sampling is compiled", "remedy": "install cuda-toolkit-13-0"}
    failure = failure_of(bench.launch(bench.plan(), {"findings": [finding | {"concerns": ["scripted"]}]}))
    assert failure["class"] == "environment"
    assert failure["remedy"] == "install cuda-toolkit-13-0"
    assert "no curand.h" in failure["cause"]
    others = {
        "findings": [finding | {"concerns": ["another-arm"]}, finding | {"level": "warn", "concerns": ["scripted"]}]
    }
    assert bench.launch(bench.plan(levels=(1,)), others)["status"] == "ok"


def test_a_command_that_cannot_run_is_an_outcome(bench):
    plan = bench.plan()
    plan["arms"][0]["command"] = ["/no/such/python", "--port", "{port}"]
    failure = failure_of(bench.launch(plan))
    assert failure["class"] == "not-started"
    assert "/no/such/python" in failure["cause"]


def test_a_port_that_the_user_fixed_and_another_holds_is_named(bench):
    """CASE 48: the owner is named; nothing is started."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        plan = bench.plan()
        words = plan["arms"][0]["command"]
        words[words.index("{port}")] = str(port)
        failure = failure_of(bench.launch(plan))
    assert failure["class"] == "port-in-use"
    assert f"port {port} is taken by" in failure["cause"] and "pid" in failure["cause"]


def two_bases(monkeypatch) -> tuple[int, int]:
    """Let the launcher look at two free base ports, in this order."""
    free = [base for base in ports.shuffled_candidates() if all(map(ports.is_free, (base, base + 1, base + 233)))]
    monkeypatch.setattr(ports, "shuffled_candidates", lambda: free[:2])
    return free[0], free[1]


@pytest.mark.parametrize("companion", [0, 1, 233])
def test_a_taken_port_is_avoided_and_said(bench, monkeypatch, companion):
    """CASE 48: the port itself, the NCCL port or a ZMQ port is taken, by a listener that only IPv6 shows."""
    first, second = two_bases(monkeypatch)
    with socket.create_server(("::1", first + companion), family=socket.AF_INET6):
        outcome = bench.launch(bench.plan(levels=(1,)))
    assert outcome["status"] == "ok" and outcome["port"] == second
    note = next(one for one in outcome["findings"] if one["code"] == "port-taken")
    assert f"port {first + companion} is taken by" in note["text"] and f"(pid {os.getpid()}" in note["text"]


def test_an_old_server_that_answers_on_the_port_is_not_ours(bench, monkeypatch):
    """It took the port after the check and answers well (CASE 45 f): one more start, on another port."""
    first, second = two_bases(monkeypatch)
    plan = bench.plan("listen-late=5", start_stall_s=10.0, levels=(1,))
    with ThreadPoolExecutor() as pool:
        launch = pool.submit(bench.launch, plan)
        while not any("graph capture" in text for text in bench.said):
            time.sleep(0.01)
        old = subprocess.Popen([sys.executable, str(HERE / "scripted_server.py"), "--port", str(first)])
        try:
            outcome = launch.result()
        finally:
            old.kill()
            old.wait()
    assert outcome["status"] == "ok" and outcome["port"] == second
    assert [one["class"] for one in outcome["attempts"]] == ["port-in-use", None]
    assert any(one["code"] == "port-taken" for one in outcome["findings"])


def test_arguments_that_the_engine_changed_are_findings(bench):
    """DFlash's silent 48 and DeepEP's ep = tp; the scheduler's own account goes before the arguments."""
    settings = {"tp_size": 8, "ep_size": 4, "max_running_requests": 256, "speculative_algorithm": "DFLASH"}
    effective = '{"ep_size": 8, "internal_states": [{"effective_max_running_requests_per_dp": 48}]}'
    outcome = bench.launch(bench.plan(f"effective={effective}", settings=settings, levels=(1,)))
    changed = {one["argument"]: (one["requested"], one["effective"]) for one in outcome["differences"]}
    assert changed == {"ep_size": (4, 8), "max_running_requests": (256, 48)}
    assert sum(one["code"] == "argument-changed" for one in outcome["findings"]) == 2
