"""Watches a running server through its process and its log: its stage, its last sign of life, dead or alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from reckoning.serverlog import LogFollower, LogReading

from .server import Server

POLL_S = 0.5


class LogWatch:
    """The server's log while it grows. Times are seconds on the launch's own clock (monotonic, from its start)."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.grown_at = clock()
        self.stages: list[dict[str, float | str]] = []
        self._follower = LogFollower(path)

    def poll(self) -> LogReading:
        """Read what was added, note growth and new stages, and return the reading so far."""
        if self._follower.poll():
            self.grown_at = self.clock()
        return self.reading()

    def reading(self, *, stalled: bool = False, exit_code: int | None = None) -> LogReading:
        """Return what the log says so far, given how the server ended."""
        reading = self._follower.reading(stalled=stalled, exit_code=exit_code)
        for stage in reading.stages[len(self.stages) :]:
            self.stages.append({"name": stage.name, "at_s": round(self.grown_at, 3)})
        return reading

    @property
    def quiet_s(self) -> float:
        """Seconds since the log last grew."""
        return self.clock() - self.grown_at


class Monitor(threading.Thread):
    """Watches the server while it is measured; `verdict()` returns at once and is safe from an event loop.

    A process that ended is dead. A log that does not grow for `stall_s` is only a suspicion, for a server may be set to
    log little: then `probe` is asked, which returns None when the server still generates, else why it does not.
    """

    def __init__(self, server: Server, log: LogWatch, probe: Callable[[], str | None], stall_s: float) -> None:
        super().__init__(daemon=True, name="server-monitor")
        self.server, self.log, self.probe, self.stall_s = server, log, probe, stall_s
        self.stalled: str | None = None
        self._done = threading.Event()

    def verdict(self) -> str | None:
        """Return None while the server lives, else why it does not."""
        if self.server.exited.is_set():
            return f"the server ended ({exit_words(self.server.code)})"
        return self.stalled

    def run(self) -> None:
        """Watch until `finish` is called or the server is known to be dead."""
        suspected_at = float("-inf")
        while not self._done.wait(POLL_S) and self.verdict() is None:
            self.log.poll()
            if self.log.quiet_s > self.stall_s and self.log.clock() - suspected_at > self.stall_s:
                suspected_at = self.log.clock()
                fault = self.probe()
                if fault and self.log.quiet_s > self.stall_s:
                    self.stalled = f"no log line for {self.log.quiet_s:.0f} s, and a probing generation failed: {fault}"

    def finish(self) -> None:
        """End the watch."""
        self._done.set()
        if self.is_alive():
            self.join(timeout=5)


def exit_words(code: int | None) -> str:
    """Return words for an exit code: negative codes are signals."""
    if code is None:
        return "no exit status"
    if code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"
