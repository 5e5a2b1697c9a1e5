"""Launches of the scripted server through the real launcher, the real load generator and a plan, with short limits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from reckoning.launch import reaper, run_launch

MARK = "FAULTS_BENCH"
HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parents[1] / "workflow/schemas/outcome.schema.json").read_text())
LIMITS = {
    "start_stall_s": 20.0,
    "start_total_s": 60.0,
    "request_idle_s": 10.0,
    "request_total_s": 30.0,
    "stop_grace_s": 1.0,
    "release_s": 2.0,
    "max_attempts": 2,
}


@dataclass
class Bench:
    """Runs launches of the scripted server in a folder of its own."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def plan(
        self, *faults: str, levels: tuple[int, ...] = (1, 2), settings: dict | None = None, **changes: Any
    ) -> dict:
        """Return a plan whose one arm is the scripted server with these faults."""
        settings = {"tp_size": 1} if settings is None else settings
        words = ["{python}", str(HERE / "scripted_server.py"), "--port", "{port}", "--nccl-port", "{nccl_port}"]
        words += ["--model-path", "scripted", "--served-model-name", "scripted"]
        for name, value in settings.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        for fault in faults:
            words += ["--fault", fault]
        points = [
            {"index": index, "workload": "chat", "concurrency": level, "repeat": 1, "seed": 7, "requests": 2 * level}
            | {"warmup_requests": level}
            for index, level in enumerate(levels)
        ]
        arm = {
            "name": "Scripted",
            "slug": "scripted",
            "status": "runnable",
            "settings": settings,
            "env": {MARK: str(self.folder)},
            "patches": [],
        }
        launches = [
            {"order": block - 1, "block": block, "arm": "scripted", "seed": 5, "digest": "d", "points": points}
            for block in (1, 2)
        ]
        workload = {
            "kind": "prompts",
            "file": str(self.prompts()),
            "endpoint": "chat",
            "output_tokens": 6,
            "concurrency": list(levels),
        }
        workload |= {
            "requests_per_stream": 2,
            "ignore_eos": True,
            "temperature": 0.0,
            "flush": True,
            "min_duration_s": 0.0,
        }
        return {
            "schema_version": 1,
            "experiment": "faults",
            "model": {"served_name": "scripted", "path": "scripted"},
            "workloads": {"chat": workload},
            "analysis": {},
            "limits": LIMITS | changes,
            "arms": [arm | {"command": words, "time": None}],
            "launches": launches,
        }

    def prompts(self) -> Path:
        """Write a file of prompts."""
        path = self.folder / "prompts.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"- id: p{number}\n  text: Prompt number {number}.\n" for number in range(5)))
        return path

    @property
    def launch_folder(self) -> Path:
        """The folder of the arm's launch in block 1."""
        return self.folder / "results/faults/launches/scripted/block1"

    def launch(self, plan: dict, environment: dict | None = None, block: int = 1) -> dict:
        """Run one launch; check the outcome against its schema and that all files are there."""
        folder = self.launch_folder.parent / f"block{block}"
        outcome = run_launch(
            plan, {"python": sys.executable}, environment, "scripted", block, folder, progress=self.said.append
        )
        jsonschema.validate(outcome, SCHEMA)
        assert json.loads((folder / "outcome.json").read_text()) == outcome
        for name in (
            "points.json",
            "requests.parquet",
            "server_info.json",
            "server.log",
            "telemetry.parquet",
            "host.parquet",
        ):
            assert (folder / name).exists(), name
        return outcome


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give a bench with a state folder of its own, and see that it leaves no process and no record of one."""
    monkeypatch.setenv("RECKONING_STATE_DIR", str(tmp_path / "state"))
    yield Bench(tmp_path)
    left = scripted_processes(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    assert reaper.records() == []


def scripted_processes(folder: Path) -> list[int]:
    """Return the pids of the living scripted servers that were started by the bench of this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
