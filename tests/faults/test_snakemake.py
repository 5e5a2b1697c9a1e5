"""A launch as the job of a real Snakemake that is killed: the same command again completes (CASE 52)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reckoning.files import write_json
from reckoning.launch.processes import boot_id, identify
from reckoning.launch.state import machine_folder

from .test_interruption import nothing_remains, said

ROOT = Path(__file__).parents[2]
SNAKEFILE = """
rule measure:
    input:
        plan="results/faults/plan.json",
        engine="results/faults/engine.json",
    output:
        outcome=update("results/faults/launches/{arm}/block{block}/outcome.json"),
        points=update("results/faults/launches/{arm}/block{block}/points.json"),
        server_log=update("results/faults/launches/{arm}/block{block}/server.log"),
    log:
        "results/faults/logs/{arm}.{block}.log",
    script:
        "measure.py"
"""
JOB = """
from pathlib import Path

from reckoning.files import read_json
from reckoning.jobs import logged
from reckoning.launch import run_launch

plan, engine = read_json(snakemake.input.plan), read_json(snakemake.input.engine)
with logged(snakemake.log[0]) as say:
    run_launch(plan, engine, None, "scripted", 1, Path(snakemake.output.outcome).parent, progress=say)
"""
TARGET = "results/faults/launches/scripted/block1/outcome.json"


def snakemake(folder: Path, *more: str) -> subprocess.Popen:
    """Start Snakemake as the workflow's profile does: no lock of its own, incomplete jobs are run again."""
    words = [sys.executable, "-m", "snakemake", "--cores", "1", "--nolock", "--rerun-incomplete", TARGET, *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    return subprocess.Popen(
        words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def laid_out(bench) -> Path:
    """Lay out a workflow of one launch; return the folder of its results."""
    results = bench.folder / "results/faults"
    (bench.folder / "Snakefile").write_text(SNAKEFILE)
    (bench.folder / "measure.py").write_text(JOB)
    write_json(results / "engine.json", {"python": sys.executable})
    return results


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctrl-c", "timeout", "kill"])
def test_a_killed_snakemake_leaves_nothing_and_continues(bench, how):
    results = laid_out(bench)
    write_json(results / "plan.json", bench.plan("trickle=0.5", "escape-at-once"))
    first = snakemake(bench.folder)
    said(first, "point 1 of 2")
    # A terminal sends Ctrl-C to the whole foreground group, and timeout(1) its TERM. A TERM to Snakemake alone makes it
    # finish the running launch first, which is no interruption.
    if how == "kill":
        first.kill()
    else:
        os.killpg(first.pid, signal.SIGINT if how == "ctrl-c" else signal.SIGTERM)
    nothing_remains(bench)
    first.communicate(timeout=60)
    assert not (bench.folder / TARGET).exists()
    write_json(results / "plan.json", bench.plan())
    second = snakemake(bench.folder)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 0, errors[-2000:]
    outcome = json.loads((bench.folder / TARGET).read_text())
    assert outcome["status"] == "ok"
    assert [one["status"] for one in outcome["attempts"]] == ["interrupted", "ok"]


@pytest.mark.slow
def test_a_launch_that_is_measured_again_in_vain_stays_as_it_was(bench):
    results = laid_out(bench)
    write_json(results / "plan.json", bench.plan("trickle=0.2"))
    first = snakemake(bench.folder)
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors[-2000:]
    launch = (bench.folder / TARGET).parent
    before = {path.name: path.read_bytes() for path in launch.iterdir() if path.is_file()}
    assert {"outcome.json", "points.json", "requests.parquet", "server.log"} <= before.keys()

    killed = snakemake(bench.folder, "--force")
    said(killed, "point 1 of 2")
    killed.kill()
    nothing_remains(bench)
    killed.communicate(timeout=60)
    assert {name: (launch / name).read_bytes() for name in before} == before

    lock = machine_folder() / "machine.lock"
    numbers = [1, identify(1).start_ticks]
    claim = {"experiment": "other", "results": "/r", "user": "somebody", "since": "2026-01-01T00:00:00+00:00"}
    write_json(lock, claim | {"owner": numbers, "launch": numbers, "boot": boot_id()})
    refused = snakemake(bench.folder, "--force")
    _, errors = refused.communicate(timeout=120)
    assert refused.returncode != 0 and "this machine is measuring the experiment 'other'" in errors
    assert {name: (launch / name).read_bytes() for name in before} == before

    lock.unlink()
    again = snakemake(bench.folder, "--force")
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors[-2000:]
    assert (launch / "outcome.json").read_bytes() != before["outcome.json"]


def test_every_output_of_a_launch_is_kept_until_it_is_replaced():
    rule = (ROOT / "workflow/rules/measure.smk").read_text().partition("    output:\n")[2].partition("    log:\n")[0]
    assert [line for line in rule.splitlines() if "=update(" not in line] == []


@pytest.mark.slow
def test_a_job_whose_snakemake_was_killed_before_it_had_begun_ends_at_once(bench, tmp_path):
    """Its parents are gone when it looks for them: only the mark in its environment tells that the run is over."""
    dead = subprocess.Popen(["true"])
    gone = identify(dead.pid)
    dead.wait()
    plan, engine = tmp_path / "plan.json", tmp_path / "engine.json"
    write_json(plan, bench.plan("trickle=0.5"))
    write_json(engine, {"python": sys.executable})
    code = (
        "import sys; from pathlib import Path; from reckoning.files import read_json; "
        "from reckoning.launch import run_launch; plan, engine, folder = sys.argv[1:]; "
        "run_launch(read_json(plan), read_json(engine), None, 'scripted', 1, Path(folder))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    environment["RECKONING_RUN"] = f"{boot_id()} {gone.pid} {gone.start_ticks}"
    words = [sys.executable, "-c", code, str(plan), str(engine), str(bench.launch_folder)]
    job = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert job.returncode == -signal.SIGTERM, job.stderr[-2000:]
    nothing_remains(bench)
    assert not (bench.launch_folder / "outcome.json").exists()
