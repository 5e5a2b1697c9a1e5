"""Processes by identity: a pid alone names whoever has it now, a pid with its start time names one process for ever.

Everything here reads /proc. Nothing is ever found or ended by its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LAUNCH_VARIABLE = "RECKONING_LAUNCH"


@dataclass(frozen=True)
class Identity:
    """One process: its pid and the clock ticks after boot at which it started."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Return whether this very process still runs (a zombie does not)."""
        status = read_status(self.pid)
        return status is not None and status.identity == self and status.state not in "ZX"


@dataclass(frozen=True)
class Status:
    """What /proc/PID/stat says of a process."""

    identity: Identity
    parent: int
    state: str
    name: str


def read_status(pid: int) -> Status | None:
    """Return the status of process `pid`, or None when there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Status(Identity(pid, int(fields[19])), int(fields[1]), fields[0], head.partition("(")[2])


def identify(pid: int) -> Identity | None:
    """Return the identity of the process that has `pid` now, or None."""
    status = read_status(pid)
    return status.identity if status else None


def all_statuses() -> Iterator[Status]:
    """Yield the status of every process that this user can see."""
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (status := read_status(int(entry.name))):
            yield status


def descendants(root: int) -> list[Status]:
    """Return the living descendants of process `root`, itself left out."""
    children: dict[int, list[Status]] = {}
    for status in all_statuses():
        children.setdefault(status.parent, []).append(status)
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(), []):
            queue.append(child.identity.pid)
            if child.state not in "ZX":
                found.append(child)
    return found


def ancestors(pid: int) -> Iterator[Status]:
    """Yield the parent of `pid`, its parent, and so on up to process 1."""
    status = read_status(pid)
    while status and status.parent > 0 and (status := read_status(status.parent)):
        yield status


def command_line(pid: int) -> list[str]:
    """Return the arguments of process `pid`; empty when it is gone or not ours to read."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def marked(token: str) -> list[Identity]:
    """Return the living processes whose environment carries the launch's token: also those that left its session.

    A process that overwrote its environment (a changed title can do that) is found by the guardian's record instead.
    """
    needle = f"{LAUNCH_VARIABLE}={token}".encode()
    found = []
    for status in all_statuses():
        with contextlib.suppress(OSError):
            if needle in (PROC / str(status.identity.pid) / "environ").read_bytes().split(b"\0"):
                found.append(status.identity)
    return [identity for identity in found if identity.alive()]


def boot_id() -> str:
    """Return what tells this boot and this pid namespace from every other: start ticks mean nothing across them."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(PROC / 'self/ns/pid').stat().st_ino}"


def end(identities: Iterable[Identity], *, grace_s: float, wait_s: float = 20.0) -> list[Identity]:
    """End the processes: TERM, after `grace_s` KILL, and return those that live on after another `wait_s`."""
    left = [identity for identity in identities if identity.alive()]
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, wait_s)):
        deadline = time.monotonic() + limit_s
        if number == signal.SIGTERM and grace_s <= 0:
            continue
        for identity in left:
            send(identity, number)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = [identity for identity in left if identity.alive()]
    return left


def send(identity: Identity, number: int) -> None:
    """Send a signal to exactly this process; nothing happens when it is gone."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return
    try:
        if identity.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
