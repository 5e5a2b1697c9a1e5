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

import psutil

from .state import machine_folder, open_shared

FIRST_BASE = 30000
STEP = 10
CANDIDATES = [FIRST_BASE + window + offset for window in (0, 500, 1000, 1500, 2000) for offset in range(0, 230, STEP)]
ZMQ_DELTA = 233
ZMQ_PORTS = 6
CLOSING, TAKEN = "closing", "taken"


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
    states = {
        connection.status
        for connection in psutil.net_connections(kind="tcp")
        if connection.laddr and connection.laddr.port == port
    }
    return CLOSING if states == {psutil.CONN_TIME_WAIT} else TAKEN


def listeners(port: int) -> list[int | None]:
    """Return the pids that listen on `port`; None for a process whose owner we may not see."""
    return [
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
    ]


def listening(ports: Sequence[int]) -> list[int]:
    """Return those of `ports` on which somebody listens (connections that are only closing do not count)."""
    busy = {
        connection.laddr.port
        for connection in psutil.net_connections(kind="tcp")
        if connection.laddr and connection.status == psutil.CONN_LISTEN
    }
    return [port for port in ports if port in busy]


def owner(port: int) -> str:
    """Return words for who listens on `port`: program and pid."""
    for pid in listeners(port):
        if pid is None:
            return "a process of another user"
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return f"{_program(process)} (pid {pid})"
    return "a process that does not listen, or one of another user"


def _program(process: psutil.Process) -> str:
    words = process.cmdline()
    return " ".join([Path(words[0]).name, *words[1:3]]) if words else process.name()
