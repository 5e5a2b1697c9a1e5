"""The guardian: a small process between a job and its server, so that no death of the job leaves a server behind.

It starts the server in a session of its own, keeps its log within a limit, and ends every process of it when the job
says so or when the job is gone, whatever ended it. As the "child subreaper" of the server it becomes the parent of
every process that the server's children orphan, in whatever session: none can slip away. The server in turn dies with
the guardian (parent-death signal), and the guardian's record of processes serves the next run should both be killed.

Input, one JSON object a line: the order (see `reckoning.launch.server`), later `{"do": "stop", "grace_s": 60}`; the
end of the input means that the job is gone. Output, one JSON object a line: `started`, `exited`, `stopped`, or
`not-started`.
Standard library only: it is started by file name and must be up within milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from pathlib import Path

if __package__:
    from . import processes
else:  # run by file name: this folder is first on the path
    import processes

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SCAN_EVERY_S = 2.0
TICK_S = 0.25
ORPHAN_GRACE_S = 5.0
TAIL_BYTES = 1 << 20


def prctl(option: int, value: int) -> None:
    """Set a process attribute; raise OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Log:
    """The server's output in a file of limited size: head kept, middle left out, tail added at the end."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self.file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - open for the guardian's whole life
        self.room = limit_bytes
        self.tail: deque[bytes] = deque()
        self.tail_bytes = self.skipped = 0
        self.noted_at = 0.0

    def add(self, data: bytes) -> None:
        """Write `data`, or keep it for the tail when the log is full."""
        head, rest = data[: self.room], data[self.room :]
        with contextlib.suppress(OSError):  # a full disk must not end the guard
            if head:
                self.file.write(head)
                self.room -= len(head)
            if rest:
                self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self.tail.append(data)
        self.tail_bytes += len(data)
        while self.tail_bytes - len(self.tail[0]) > TAIL_BYTES:
            gone = self.tail.popleft()
            self.tail_bytes -= len(gone)
            self.skipped += len(gone)
        if time.monotonic() - self.noted_at > 10:  # growth of the file is the sign of life that others watch
            self.noted_at = time.monotonic()
            self.file.write(b"\n[reckoning] the log is full; output goes on\n")

    def close(self) -> None:
        """Add the tail and make the file durable."""
        with contextlib.suppress(OSError):
            if self.tail:
                self.file.write(b"\n[reckoning] %d bytes were left out here\n" % self.skipped)
                self.file.write(b"".join(self.tail))
            os.fsync(self.file.fileno())
        self.file.close()


class Guardian:
    """One server and everything that it starts."""

    def __init__(self, order: dict) -> None:
        self.order = order
        self.owner = os.getppid()
        self.log = Log(order["log"], order["log_limit_bytes"])
        self.recorded: set[processes.Identity] | None = None
        self.exit_status: int | None = None
        self.stop_grace_s: float | None = None
        self.scanned_at = 0.0

    def start(self) -> None:
        """Start the server and say its identity."""
        self.pipe, write_end = os.pipe()
        try:
            # Kept: a Popen object that is thrown away collects its child itself, and the exit status would be lost.
            self.process = subprocess.Popen(
                self.order["command"],
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.STDOUT,
                env=self.order["env"],
                cwd=self.order["cwd"],
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - one thread only
            )
        finally:
            os.close(write_end)
        self.server = self.process.pid
        self.scan()
        identity = processes.identify(self.server)
        say("started", pid=self.server, start_ticks=identity.start_ticks if identity else 0)

    def watch(self) -> None:
        """Serve until a stop is asked for, the owner is gone, or a signal says so."""
        os.set_blocking(self.pipe, False)
        os.set_blocking(0, False)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.pipe, selectors.EVENT_READ, self.read_log)
        self.selector.register(0, selectors.EVENT_READ, self.read_orders)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 512))
        while self.stop_grace_s is None:
            self.turn()
            if time.monotonic() - self.scanned_at > SCAN_EVERY_S:
                self.scan()
            if os.getppid() != self.owner:
                self.stop_grace_s = min(ORPHAN_GRACE_S, self.order["grace_s"])

    def turn(self) -> None:
        """Wait for one thing to happen, at most a tick, and see to it."""
        for key, _ in self.selector.select(TICK_S):
            key.data()
        self.reap()

    def read_log(self) -> None:
        """Move what the server wrote into its log."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.pipe, 1 << 16)
            if data:
                self.log.add(data)
            else:
                self.selector.unregister(self.pipe)

    def read_orders(self) -> None:
        """Obey a line from the owner; the end of the input means that the owner is gone."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(0, 1 << 16)
            if not data:
                self.selector.unregister(0)
                self.stop_grace_s = min(ORPHAN_GRACE_S, self.order["grace_s"])
            for line in data.splitlines():
                message = json.loads(line)
                if message["do"] == "stop":
                    self.stop_grace_s = float(message["grace_s"])

    def reap(self) -> None:
        """Collect dead children, our own and those that fell to us."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.server and self.exit_status is None:
                    self.exit_status = os.waitstatus_to_exitcode(status)
                    say("exited", code=self.exit_status)

    def scan(self) -> list[processes.Status]:
        """Find every living process of the server and keep the record current; return them."""
        self.scanned_at = time.monotonic()
        alive = processes.descendants(os.getpid())
        identities = {status.identity for status in alive}
        if identities != self.recorded:
            self.write_record(alive)
            self.recorded = identities
        return alive

    def write_record(self, alive: list[processes.Status]) -> None:
        """Write what a later run needs to finish our work, should we be killed as well."""
        me = processes.identify(os.getpid())
        record = dict(
            self.order["record"],
            guardian=[me.pid, me.start_ticks] if me else None,
            processes=[[status.identity.pid, status.identity.start_ticks, status.name] for status in alive],
        )
        target = Path(self.order["record_path"])
        temporary = target.with_suffix(".part")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(record))
            temporary.replace(target)

    def stop(self) -> None:
        """TERM the server's group, wait, then KILL whatever of ours is left; say who was killed and who stayed."""
        deadline = time.monotonic() + (self.stop_grace_s or 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.exit_status is None:
                os.killpg(self.server, signal.SIGTERM)
        alive = self.scan()
        told: set[processes.Identity] = set()
        while alive and time.monotonic() < deadline:
            if self.exit_status is not None:  # children whose parent has gone get the word themselves, and less time
                for identity in {status.identity for status in alive} - told:
                    processes.send(identity, signal.SIGTERM)
                    told.add(identity)
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE_S)
            self.turn()
            alive = self.scan()
        killed: dict[processes.Identity, str] = {}
        deadline = time.monotonic() + self.order["kill_wait_s"]
        while alive and time.monotonic() < deadline:
            for status in alive:
                killed[status.identity] = status.name
                processes.send(status.identity, signal.SIGKILL)
            self.turn()
            alive = self.scan()
        self.drain()
        if not alive:
            if self.order["record"].get("scratch"):
                shutil.rmtree(self.order["record"]["scratch"], ignore_errors=True)
            Path(self.order["record_path"]).unlink(missing_ok=True)
        say(
            "stopped",
            code=self.exit_status,
            killed=[[identity.pid, name] for identity, name in killed.items()],
            left=[[status.identity.pid, status.name] for status in alive],
        )

    def drain(self) -> None:
        """Take what is still in the pipe into the log, and close it."""
        with contextlib.suppress(OSError):
            while data := os.read(self.pipe, 1 << 16):
                self.log.add(data)
        self.log.close()


def say(event: str, **content: object) -> None:
    """Tell the owner; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps({"event": event, **content}).encode() + b"\n")


def main() -> None:
    """Take the order from the first line of the input and guard until the end."""
    line = first_line()
    if not line:
        return
    guardian = Guardian(json.loads(line))
    prctl(PR_SET_CHILD_SUBREAPER, 1)

    def stop(*_: object) -> None:
        guardian.stop_grace_s = guardian.order["grace_s"]

    # Handlers, not "ignore": an ignored signal would stay ignored in the server.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, stop)
    try:
        guardian.start()
    except OSError as error:
        say("not-started", error=str(error))
        return
    guardian.watch()
    guardian.stop()


def first_line() -> bytes:
    """Read one line from the input byte by byte: what follows it belongs to the selector."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


if __name__ == "__main__":
    main()
