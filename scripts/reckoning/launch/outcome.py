"""What a launch knows about itself, and how that becomes its files: all under their final names, outcome.json last."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reckoning import __version__
from reckoning.files import write_json, write_table, write_text

from . import attempts, telemetry
from .failures import command_secrets, hide, without_secrets
from .measuring import Measurement, nothing_measured

SCHEMA_VERSION = 1
OPTIONAL = ("raw", "bench_serving")
WORDLESS = dict.fromkeys(("code", "found", "needed", "why"), "unknown")


@dataclass
class Launch:
    """What one launch knows about itself while it runs; the outcome is made from it."""

    plan: Mapping[str, Any]
    engine: Mapping[str, Any]
    arm: Mapping[str, Any]
    launch: Mapping[str, Any]
    folder: Path
    limits: Mapping[str, Any]
    zero: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=attempts.wall_time)
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    port: int | None = None
    pid: int | None = None
    stages: list[dict[str, Any]] = field(default_factory=list)
    server_info: dict[str, Any] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, str]] = field(default_factory=list)
    durations: dict[str, float | None] = field(default_factory=dict)
    measurement: Measurement = field(default_factory=nothing_measured)
    failure: dict[str, Any] | None = None

    def clock(self) -> float:
        """Seconds since the launch began, on the monotonic clock."""
        return time.monotonic() - self.zero

    def find(self, code: str, level: str, text: str) -> None:
        """Note what a reader should know."""
        self.findings.append({"code": code, "level": level, "text": text})

    @property
    def has_gpus(self) -> bool:
        """Whether the server runs on GPUs."""
        return (self.plan.get("machine") or {}).get("device") == "cuda"

    @property
    def secrets(self) -> list[str]:
        """Secret values in the command and its environment."""
        return command_secrets(self.command, self.env)


def environment_failure(environment: Mapping[str, Any] | None, arm: str) -> dict[str, Any] | None:
    """Return the failure of an arm that the environment forbids, or None. Findings concern arms by slug, or all."""
    for finding in (environment or {}).get("findings", []):
        concerns = finding.get("concerns")
        if isinstance(concerns, Mapping):
            concerns = concerns.get("arms")
        everyone = concerns in (None, "all", "*") or "all" in concerns or "*" in concerns
        if finding.get("level") == "fail" and (everyone or arm in concerns):
            return {
                "class": "environment",
                "stage": "before the start",
                "cause": "{code}: found {found}; needed {needed}; {why}".format(**WORDLESS | finding),
                "evidence": str(finding.get("where") or finding.get("found")),
                "remedy": str(finding.get("remedy")),
                "seen": "the environment check failed for this arm, so it was not started",
                "log_excerpt": "",
            }
    return None


def publish(state: Launch, attempt: attempts.Attempt) -> dict[str, Any]:
    """Put the attempt's files under their final names, the outcome last; those of an earlier launch stay until now."""
    folder = state.folder
    measured = state.measurement
    for name in ("outcome.json", "crosscheck.json"):
        (folder / name).unlink(missing_ok=True)
    if not attempt.log.exists():
        write_text(attempt.log, "")
    elif state.secrets:
        write_text(attempt.log, hide(attempt.log.read_text(encoding="utf-8", errors="replace"), state.secrets))
    attempt.log.replace(folder / "server.log")
    write_json(folder / "server_info.json", {"schema_version": SCHEMA_VERSION, **state.server_info})
    write_table(folder / "requests.parquet", measured.requests)
    for name in OPTIONAL:
        _take_over(attempt.folder / name, folder / name)
    if measured.crosscheck:
        write_json(folder / "crosscheck.json", measured.crosscheck)
    write_json(folder / "points.json", {"schema_version": SCHEMA_VERSION, "points": list(measured.points)})
    _publish_telemetry(state, attempt)
    for name in ("points.jsonl", "server_info.json"):
        (attempt.folder / name).unlink(missing_ok=True)
    earlier = [one for one in attempts.read(folder) if one.note["number"] != attempt.note["number"]]
    outcome = outcome_of(state, attempts.as_outcome([*earlier, attempt]))
    write_json(folder / "outcome.json", outcome)
    attempt.save()  # after the outcome: until then this attempt counts as interrupted
    return outcome


def _publish_telemetry(state: Launch, attempt: attempts.Attempt) -> None:
    """Write the two tables of samples, with no row where nothing was sampled, and note what they show."""
    sampled = telemetry.read_samples(attempt.folder / telemetry.SAMPLES, state.measurement.points)
    write_table(state.folder / "telemetry.parquet", sampled.gpus)
    write_table(state.folder / "host.parquet", sampled.host)
    telemetry.remove_samples(attempt.folder)
    missing = "the sampler left no sample" if state.limits.get("telemetry_s") else "limits.telemetry_s is 0"
    for finding in telemetry.findings_of(sampled, missing if state.has_gpus and state.pid is not None else None):
        state.find(*finding)
    for finding in telemetry.others_at_work(sampled.host, state.measurement.points, os.cpu_count() or 1):
        state.find(*finding)


def _take_over(source: Path, target: Path) -> None:
    """Move a folder that not every launch has to its final name; what an earlier launch left there goes."""
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        source.replace(target)


def outcome_of(state: Launch, tries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return outcome.json (see docs/architecture.md)."""
    durations = {key: state.durations.get(key) for key in ("start_s", "warmup_s", "measure_s", "stop_s")}
    failed = sum(1 for point in state.measurement.points if point.get("status") != "ok")
    outcome = {
        "schema_version": SCHEMA_VERSION,
        "experiment": state.plan["experiment"],
        "arm": state.arm["slug"],
        "block": state.launch["block"],
        "order": state.launch["order"],
        "digest": state.launch.get("digest"),
        "status": "failed" if state.failure else "ok",
        "failure": state.failure,
        "attempts": tries,
        "started_at": state.started_at,
        "durations": {**durations, "total_s": state.clock()},
        "command": state.command,
        "env": state.env,
        "port": state.port,
        "pid": state.pid,
        "versions": {
            "reckoning": __version__,
            "engine": state.engine.get("version"),
            "server": state.server_info.get("version"),
        },
        "stages": state.stages,
        "differences": state.differences,
        "points": {"planned": len(state.launch["points"]), "measured": state.measurement.measured, "failed": failed},
        "findings": state.findings,
    }
    return without_secrets(outcome, state.secrets)
