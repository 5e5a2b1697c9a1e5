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

from .test_interruption import nothing_remains, said

ROOT = Path(__file__).parents[2]
SNAKEFILE = """
rule measure:
    input:
        plan="results/faults/plan.json",
        engine="results/faults/engine.json",
    output:
        outcome="results/faults/launches/{arm}/block{block}/outcome.json",
        points="results/faults/launches/{arm}/block{block}/points.json",
        server_log="results/faults/launches/{arm}/block{block}/server.log",
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


def snakemake(folder: Path) -> subprocess.Popen:
    """Start Snakemake as the workflow's profile does: no lock of its own, incomplete jobs are run again."""
    words = [sys.executable, "-m", "snakemake", "--cores", "1", "--nolock", "--rerun-incomplete", TARGET]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    return subprocess.Popen(
        words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctrl-c", "timeout", "kill"])
def test_a_killed_snakemake_leaves_nothing_and_continues(bench, how):
    results = bench.folder / "results/faults"
    (bench.folder / "Snakefile").write_text(SNAKEFILE)
    (bench.folder / "measure.py").write_text(JOB)
    write_json(results / "plan.json", bench.plan("trickle=0.5", "escape-at-once"))
    write_json(results / "engine.json", {"python": sys.executable})
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
