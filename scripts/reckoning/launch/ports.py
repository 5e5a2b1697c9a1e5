"""The ports of a launch: all that the server will use are checked together and reserved against parallel jobs.

SGLang listens on more than `--port`: on `--nccl-port` for the process group, and under data-parallel attention from
port + 233 upwards for its distributed start and ZMQ (`ZMQ_TCP_PORT_DELTA` in 0.5.9 to 0.5.23).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import PROC, all_statuses, command_line, read_status
from .state import machine_folder, open_shared

FIRST_BASE = 30000
STEP = 10
CANDIDATES = [FIRST_BASE + window + offset for window in (0, 500, 1000, 1500, 2000) for offset in range(0, 230, STEP)]
ZMQ_DELTA = 233
ZMQ_PORTS = 6
CLOSING, TAKEN = "closing", "taken"
TIME_WAIT, LISTEN = 0x06, 0x0A


class PortsTaken(RuntimeError):
    """No set of ports is free, or a port that the user fixed is taken. The message names the owner."""


@dataclass(frozen=True)
class PortPlan:
    """Ports of one launch, what was taken instead of the first choice, and the reservation that the guardian shares."""

    http: int
    nccl: int
    others: tuple[int, ...]
    avoided: tuple[str, ...]
    reservation: int

    @property
    def all(self) -> tuple[int, ...]:
        """Every port of the plan."""
        return (self.http, self.nccl, *self.others)


@contextlib.contextmanager
def reserve(
    fixed_http: int | None = None, fixed_nccl: int | None = None, candidates: Sequence[int] | None = None
) -> Iterator[PortPlan]:
    """Reserve ports for one launch. A port that the user fixed is taken as it is or raises PortsTaken.

    Otherwise the search begins at a random candidate: then two programs that look for a port seldom meet between the
    check and the server's bind.
    """
    avoided: list[str] = []
    for base in [fixed_http] if fixed_http else (candidates or shuffled_candidates()):
        nccl = fixed_nccl or base + 1
        others = tuple(base + ZMQ_DELTA + offset for offset in range(ZMQ_PORTS))
        descriptor = _reservation(base)
        if descriptor is None:
            avoided.append(f"port {base} is reserved by another launch on this machine")
            continue
        try:
            busy = {port: kind for port in (base, nccl, *others) if (kind := use_of(port))}
            taken = [port for port, kind in busy.items() if kind == TAKEN]
            avoided += [f"port {port} is taken by {owner(port)}" for port in taken]
            if taken or (busy and not fixed_http):
                continue
            yield PortPlan(base, nccl, others, tuple(avoided), descriptor)
            return
        finally:
            os.close(descriptor)
    remedy = "end that process or change the port" if fixed_http else "free some ports from 30000 upwards"
    raise PortsTaken(f"{'; '.join(avoided[:4])}: {remedy}")


def shuffled_candidates() -> list[int]:
    """Return the base ports, from a random one onwards."""
    first = random.randrange(len(CANDIDATES))
    return CANDIDATES[first:] + CANDIDATES[:first]


def _reservation(base: int) -> int | None:
    descriptor = open_shared(machine_folder() / f"ports-{base}.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_free(port: int) -> bool:
    """Return whether `port` can be bound on every address, in IPv4 and in IPv6.

    Bound without SO_REUSEADDR or SO_REUSEPORT: both call a port free on which another process listens in the same way.
    """
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # a machine without IPv6
                continue
            return False
    return True


def use_of(port: int) -> str | None:
    """Return None for a free port, CLOSING when only ended connections hold it for a while, else TAKEN."""
    if is_free(port):
        return None
    states = {entry.state for entry in sockets() if entry.port == port}
    return CLOSING if states == {TIME_WAIT} else TAKEN


@dataclass(frozen=True)
class Socket:
    """A TCP socket of this machine: its local port, its state as the kernel numbers it, and its inode."""

    port: int
    state: int
    inode: str


def sockets(state: int | None = None) -> Iterator[Socket]:
    """Yield the TCP sockets of this network namespace (of one state only), as /proc/net lists them."""
    wanted = "" if state is None else f" {state:02X} "
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:  # a machine without IPv6
            continue
        for line in lines:
            if wanted not in line:
                continue
            words = line.split()
            yield Socket(int(words[1].rpartition(":")[2], 16), int(words[3], 16), words[9])


def listening(ports: Sequence[int]) -> list[int]:
    """Return those of `ports` on which somebody listens (connections that are only closing do not count)."""
    busy = {entry.port for entry in sockets(LISTEN) if entry.state == LISTEN}
    return [port for port in ports if port in busy]


def listeners(port: int) -> list[int | None]:
    """Return the pids that listen on `port`; None for a socket whose owner we may not see."""
    inodes = {entry.inode for entry in sockets(LISTEN) if (entry.port, entry.state) == (port, LISTEN)}
    found = {status.identity.pid: _inodes(status.identity.pid) & inodes for status in all_statuses()} if inodes else {}
    unseen = inodes - set().union(*found.values())
    return [*(pid for pid, held in found.items() if held), *([None] if unseen else [])]


def _inodes(pid: int) -> set[str]:
    """Return the inodes of the sockets that process `pid` has open; none when it is gone or not ours to read."""
    held = set()
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, rest = str(entry.readlink()).partition(":[")
                if kind == "socket":
                    held.add(rest.rstrip("]"))
    return held


def owner(port: int) -> str:
    """Return words for who listens on `port`: program and pid."""
    for pid in listeners(port):
        if pid is None:
            return "a process of another user"
        words = command_line(pid)
        status = read_status(pid)
        if words and words[0]:
            return f"{' '.join([Path(words[0]).name, *words[1:3]])} (pid {pid})"
        if status:
            return f"{status.name} (pid {pid})"
    return "a process that does not listen, or one of another user"
