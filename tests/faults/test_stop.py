"""Stop: TERM, wait, KILL of our own processes only; ports and GPU memory back before the next launch."""

from __future__ import annotations

import subprocess
import sys

from reckoning.launch import gpu_memory, ports

from .conftest import HERE


def codes(outcome: dict) -> list[str]:
    return [one["code"] for one in outcome["findings"]]


def test_a_server_that_ignores_term_is_killed_after_the_grace_time(bench):
    outcome = bench.launch(bench.plan("ignore-term", levels=(1,)))
    assert outcome["status"] == "ok"
    assert "killed-at-stop" in codes(outcome)
    assert 1.0 <= outcome["durations"]["stop_s"] < 20
    assert ports.is_free(outcome["port"])


def test_a_polite_server_is_not_killed(bench):
    assert bench.launch(bench.plan(levels=(1,)))["findings"] == []


def test_children_that_leave_session_and_parent_are_ended(bench):
    """CASE 47: the parent forks a child with setsid, exits, and the child keeps the port and ignores SIGTERM."""
    for fault in ("escape", "escape-at-once"):
        outcome = bench.launch(bench.plan(fault, levels=(1,)))
        assert outcome["status"] == "ok"
        note = next(one for one in outcome["findings"] if one["code"] == "killed-at-stop")
        assert "sglang::sched" in note["text"]
        assert ports.listening([outcome["port"]]) == []


def test_an_escaped_child_of_a_dead_server_is_ended_too(bench):
    outcome = bench.launch(bench.plan("escape-at-once", "die-at=2", levels=(1, 2)))
    assert outcome["status"] == "failed"
    assert ports.listening([outcome["port"]]) == []


def test_a_server_that_is_not_ours_is_left_alone(bench):
    """Another user's server of the same program survives: nothing is ended by its name."""
    port = next(port for port in range(31900, 32000) if ports.is_free(port))
    other = subprocess.Popen([sys.executable, str(HERE / "scripted_server.py"), "--port", str(port)], cwd="/")
    try:
        bench.launch(bench.plan("ignore-term", levels=(1,)))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_gpu_memory_that_stays_is_a_finding(bench, monkeypatch):
    """Memory comes back late on GPU 0 and never on GPU 1."""
    readings = iter([[2000.0, 0.0], [2900.0, 5000.0]])
    monkeypatch.setattr(gpu_memory, "read_used_mib", lambda: next(readings, [2000.0, 5000.0]))
    outcome = bench.launch(bench.plan(levels=(1,), release_s=1.0))
    assert outcome["status"] == "ok"
    note = next(one for one in outcome["findings"] if one["code"] == "gpu-memory-left")
    assert "GPU 1 5000 MiB" in note["text"] and "GPU 0" not in note["text"]
    note = next(one for one in outcome["findings"] if one["code"] == "gpu-in-use")
    assert "GPU 0 2000 MiB" in note["text"] and "GPU 1" not in note["text"]
