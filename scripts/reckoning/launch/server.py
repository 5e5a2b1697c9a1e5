"""One server under its guardian, as the job sees it: start it, ask whether it lives, stop it and know what was left."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from . import guardian as guardian_module
from .processes import LAUNCH_VARIABLE, Identity, boot_id, descendants, end, identify, marked, read_status
from .state import records_folder

KILL_WAIT_S = 30.0
ORPHAN_GRACE_S = guardian_module.ORPHAN_GRACE_S


class CannotStart(RuntimeError):
    """The command could not be executed at all; the message is the operating system's."""


@dataclass(frozen=True)
class StopReport:
    """How the server ended: exit code (negative: the signal), processes that were killed, processes that stayed."""

    code: int | None
    killed: tuple[tuple[int, str], ...] = ()
    left: tuple[tuple[int, str], ...] = ()
    stop_s: float = 0.0


@dataclass
class Server:
    """A server process and its guardian. Use as a context manager: leaving the block stops it whatever happened."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    ports: Sequence[int]
    shared: Sequence[int] = ()
    stop_grace_s: float = 60.0
    log_limit_bytes: int = 64 << 20
    label: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    identity: Identity | None = None
    report: StopReport | None = None

    def __enter__(self) -> Server:
        self.exited = threading.Event()
        self.started = threading.Event()
        self.finished = threading.Event()
        self.code: int | None = None
        self._error: str | None = None
        self._guardian = subprocess.Popen(
            [sys.executable, "-S", "-E", guardian_module.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=self.shared,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True, name="guardian-events")
        self._reader.start()
        try:
            self._send(self._order())
            self.started.wait()
            if self._error is not None:
                raise CannotStart(self._error)
        except BaseException:
            self.stop(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(self.stop_grace_s if kind is None else min(self.stop_grace_s, ORPHAN_GRACE_S))

    @property
    def root(self) -> int:
        """The pid of the guardian: every process of the server is a descendant of it."""
        return self._guardian.pid

    def processes(self) -> list[int]:
        """Return the pids of the server and of everything that it started, now."""
        return [status.identity.pid for status in descendants(self._guardian.pid)]

    def stop(self, grace_s: float) -> StopReport:
        """Stop everything of the server (TERM, wait, KILL) and return how that went. Repeated calls return the same."""
        if self.report is None:
            begun = time.monotonic()
            self._send({"do": "stop", "grace_s": grace_s})
            self.finished.wait(grace_s + KILL_WAIT_S + 30)
            with contextlib.suppress(OSError):
                self._guardian.stdin.close()
            try:
                self._guardian.wait(5)
            except subprocess.TimeoutExpired:
                self._guardian.kill()
                self._guardian.wait()
            self._reader.join(5)
            self._guardian.stdout.close()
            report = self._stopped or StopReport(self.code)
            self.report = self._finish_for_dead_guardian(report, time.monotonic() - begun)
        return self.report

    def _finish_for_dead_guardian(self, report: StopReport, stop_s: float) -> StopReport:
        """End what a killed guardian could not; nothing to do when it did its work."""
        if not self._record.exists():
            return StopReport(report.code, report.killed, report.left, stop_s)
        left = end_recorded(self._record)
        named = tuple(
            (identity.pid, (read_status(identity.pid) or identity).__dict__.get("name", "")) for identity in left
        )
        return StopReport(report.code, report.killed, named, stop_s)

    @property
    def _record(self) -> Path:
        return records_folder() / f"{self.token}.json"

    def _order(self) -> dict[str, Any]:
        me = identify(os.getpid())
        assert me is not None
        return {
            "command": list(self.command),
            "env": {**self.env, LAUNCH_VARIABLE: self.token},
            "cwd": str(self.cwd),
            "log": str(self.log),
            "log_limit_bytes": self.log_limit_bytes,
            "grace_s": self.stop_grace_s,
            "kill_wait_s": KILL_WAIT_S,
            "record_path": str(self._record),
            "record": {
                "token": self.token,
                "label": self.label,
                "boot": boot_id(),
                "job": [me.pid, me.start_ticks],
                "ports": list(self.ports),
                "log": str(self.log),
                "scratch": self.env.get("TMPDIR"),
            },
        }

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # the guardian may be dead; then the reader says so
            self._guardian.stdin.write(json.dumps(message).encode() + b"\n")
            self._guardian.stdin.flush()

    _stopped: StopReport | None = None

    def _listen(self) -> None:
        for line in self._guardian.stdout:
            message = json.loads(line)
            event = message.pop("event")
            if event == "started":
                self.identity = Identity(message["pid"], message["start_ticks"])
                self.started.set()
            elif event == "not-started":
                self._error = message["error"]
            elif event == "exited":
                self.code = message["code"]
                self.exited.set()
            elif event == "stopped":
                self._stopped = StopReport(
                    message["code"], tuple(map(tuple, message["killed"])), tuple(map(tuple, message["left"]))
                )
        if self.identity is None and self._error is None:
            self._error = "the guardian ended before it could start the server"
        self.exited.set()
        self.started.set()
        self.finished.set()


def end_recorded(path: Path) -> list[Identity]:
    """End every process that a record of an abandoned launch names or that carries its token; return those that stayed.

    The record is removed when nothing stayed. Records from before the last boot name nobody any more.
    """
    record = json.loads(path.read_text())
    left: list[Identity] = []
    if record["boot"] == boot_id():
        known = [Identity(pid, ticks) for pid, ticks, _name in record["processes"]]
        guardian = record.get("guardian")
        left = end(
            {*known, *marked(record["token"]), *([Identity(*guardian)] if guardian else [])}, grace_s=ORPHAN_GRACE_S
        )
        left += end(marked(record["token"]), grace_s=0)  # what was born while the others were ended
    if not left:
        path.unlink(missing_ok=True)
    return left
