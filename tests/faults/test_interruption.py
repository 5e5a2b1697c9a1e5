"""A launch that is killed at any moment leaves nothing, and the same command again completes (CASE 52)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reckoning.files import write_json
from reckoning.launch import ports, processes, reap, reaper

from .conftest import scripted_processes


def job_words(bench, plan: dict) -> list[str]:
    """Return the command that runs the launch as the workflow does: in a process of its own."""
    results = bench.folder / "results/faults"
    write_json(results / "plan.json", plan)
    write_json(results / "engine.json", {"python": sys.executable})
    return [sys.executable, "-m", "reckoning.launch", "run", str(results), "scripted", "1"]


def job(bench, plan: dict) -> subprocess.Popen:
    """Start the launch."""
    return subprocess.Popen(job_words(bench, plan), stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], object], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def said(process: subprocess.Popen, words: str) -> None:
    """Read the job's progress until a line has these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"the job ended before it said {words!r}")


def nothing_remains(bench) -> None:
    """Wait, within the guardian's bounds, until no process of the launch is left."""
    records = reaper.records()
    wait_for(lambda: not scripted_processes(bench.folder) and not reaper.records())
    assert ports.listening([port for record in records for port in record["ports"]]) == []
    assert not any(Path(record["scratch"]).exists() for record in records)


def end(process: subprocess.Popen, number: int) -> None:
    process.send_signal(number)
    process.wait(30)
    if process.stderr:
        process.stderr.close()


MOMENTS = ["process start", "graph capture", "point 2 of 2", "stopping"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_of_the_job_leaves_nothing_and_the_next_run_completes(bench, moment):
    plan = bench.plan("listen-late=1", "trickle=0.05", "ignore-term", start_stall_s=10.0)
    process = job(bench, plan)
    said(process, moment)
    end(process, signal.SIGKILL)
    nothing_remains(bench)
    assert not (bench.launch_folder / "outcome.json").exists()
    outcome = bench.launch(bench.plan())
    assert outcome["status"] == "ok"
    assert outcome["points"]["measured"] == 2
    assert [one["status"] for one in outcome["attempts"]] == ["interrupted", "ok"]
    assert outcome["attempts"][0]["points_kept"] == {"point 2 of 2": 1, "stopping": 2}.get(moment, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_term_leave_nothing(bench, number):
    process = job(bench, bench.plan("trickle=0.05", "escape-at-once"))
    said(process, "point 1 of 2")
    end(process, number)
    nothing_remains(bench)
    assert not (bench.launch_folder / "outcome.json").exists()
    assert bench.launch(bench.plan(levels=(1,)))["status"] == "ok"


def test_kill_9_of_snakemake_ends_its_job_and_the_server(bench):
    """Snakemake runs a job through a shell, and its death ends neither: the job watches the run that it belongs to."""
    snakemake = bench.folder / "snakemake"
    snakemake.write_text("import subprocess, sys\nsubprocess.run(['bash', '-c', ' '.join(sys.argv[1:]) + '; true'])\n")
    words = job_words(bench, bench.plan("trickle=0.5", "escape-at-once"))
    process = subprocess.Popen([sys.executable, str(snakemake), *words], stderr=subprocess.PIPE, text=True)
    said(process, "point 1 of 2")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    nothing_remains(bench)
    if process.stderr:
        process.stderr.close()
    assert bench.launch(bench.plan(levels=(1,)))["status"] == "ok"


def test_the_next_run_reaps_when_job_and_guardian_were_killed(bench):
    """Nobody is left to stop the escaped child: the next run finds it by its record, pid and start time."""
    process = job(bench, bench.plan("trickle=0.5", "escape-at-once"))
    said(process, "point 1 of 2")
    record = reaper.records()[0]
    wait_for(lambda: len(reaper.records()[0]["processes"]) == 2)
    os.kill(record["guardian"][0], signal.SIGKILL)
    end(process, signal.SIGKILL)
    wait_for(lambda: len(scripted_processes(bench.folder)) == 1)  # the server died with its guardian, the child did not
    outcome = bench.launch(bench.plan(levels=(1,)))
    assert outcome["status"] == "ok"
    note = next(one for one in outcome["findings"] if one["code"] == "abandoned-launch")
    assert "faults/scripted/block1" in note["text"]
    assert scripted_processes(bench.folder) == []


def test_a_dead_guardian_under_a_living_job_is_a_failure_without_leftovers(bench):
    process = job(bench, bench.plan("trickle=0.5", "escape-at-once"))
    said(process, "point 1 of 2")
    wait_for(lambda: len(reaper.records()[0]["processes"]) == 2)
    os.kill(reaper.records()[0]["guardian"][0], signal.SIGKILL)
    process.wait(30)
    if process.stderr:
        process.stderr.close()
    outcome = json.loads((bench.launch_folder / "outcome.json").read_text())
    assert outcome["status"] == "failed"
    nothing_remains(bench)


def test_reap_spares_a_reused_pid_and_a_living_job(bench):
    """A record whose pid now belongs to another process ends nobody, nor does the record of a launch that runs."""
    me = processes.identify(os.getpid())
    folder = reaper.records_folder()
    record = {"token": "t" * 32, "label": "x", "boot": processes.boot_id(), "job": [me.pid, me.start_ticks - 1]}
    record |= {"guardian": None, "processes": [[me.pid, me.start_ticks - 1, "python"]], "ports": [], "scratch": None}
    write_json(folder / "a.json", record)
    write_json(folder / "b.json", record | {"job": [me.pid, me.start_ticks]})
    found = reap()
    assert [(one.found, one.left) for one in found] == [(0, ())]
    assert not (folder / "a.json").exists() and (folder / "b.json").exists()
    (folder / "b.json").unlink()


def test_a_server_that_is_killed_from_outside_is_tried_again_within_bounds(bench):
    """The machine's memory killer is chance: one more try, then the failure stands."""
    process = job(bench, bench.plan("listen-late=3", "trickle=0.02", start_stall_s=10.0))
    for _ in range(2):
        said(process, "graph capture")
        for pid in scripted_processes(bench.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait(30)
    if process.stderr:
        process.stderr.close()
    outcome = json.loads((bench.launch_folder / "outcome.json").read_text())
    assert outcome["failure"]["class"] == "killed"
    assert [one["class"] for one in outcome["attempts"]] == ["killed", "killed"]


def test_another_experiment_has_to_wait_for_the_machine(bench, tmp_path: Path):
    process = job(bench, bench.plan("trickle=0.2"))
    said(process, "point 1 of 2")
    other = bench.plan()
    other["experiment"] = "another"
    with pytest.raises(RuntimeError, match=rf"measuring the experiment 'faults' \(process {process.pid} of "):
        bench.launch(other)
    end(process, signal.SIGKILL)
    outcome = bench.launch(other)  # the dead owner's claim is stale, its guardian is waited for
    assert outcome["status"] == "ok"


def test_a_second_launch_of_the_same_experiment_waits_its_turn(bench):
    process = job(bench, bench.plan("trickle=0.02"))
    said(process, "point 1 of 2")
    outcome = bench.launch(bench.plan("trickle=0.02"), block=2)
    assert process.wait(30) == 0
    if process.stderr:
        process.stderr.close()
    first = json.loads((bench.launch_folder / "outcome.json").read_text())
    assert first["status"] == outcome["status"] == "ok"
    assert any("waiting for another launch of this experiment" in text for text in bench.said)
