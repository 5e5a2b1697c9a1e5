"""When bytes arrived: the kernel's receive time of each packet, brought to the monotonic clock.

A client that serves many sockets reads each of them late by the work that it does for the others. Linux can tell with
each read when the packet that ended it was received (SO_TIMESTAMPNS, socket(7)), so that lateness does not matter. That
time is CLOCK_REALTIME; how far it is from CLOCK_MONOTONIC is noted every few milliseconds. A kernel time is used only
where it is possible: not before the request or the read before, not after our own read, and not near a step of the
clock. Everywhere else the time of our read stands, which is never too early.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import struct
import sys
from array import array
from collections.abc import Sequence
from time import monotonic_ns, time_ns

import numpy as np
import numpy.typing as npt

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("qq")
NOTE_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
STEP_NS = 500_000  # between two notes of the offset: more than any clock is slewed
NO_TIME = 0


def kernel_tells_times() -> bool:
    """Whether this system's option has the number and form above."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") and sys.maxsize > 1 << 32


def ask_for_kernel_times(sock: socket.socket) -> None:
    """Let reads of this socket tell when the kernel received what was read, where it can."""
    if kernel_tells_times():
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def kernel_time(notes: Sequence[tuple[int, int, bytes]]) -> int:
    """Return the kernel's time (CLOCK_REALTIME, ns) from what came with a read, NO_TIME where it says none."""
    if not notes:
        return NO_TIME
    seconds, nanoseconds = _TIMESPEC.unpack(notes[0][2])
    return seconds * 1_000_000_000 + nanoseconds


class Offsets:
    """How far CLOCK_REALTIME was ahead of CLOCK_MONOTONIC, noted now and then while a point runs."""

    def __init__(self) -> None:
        self._at_ns = array("q")
        self._offset_ns = array("q")

    def note(self) -> None:
        """Compare the clocks now; between two readings of one clock, at best of three tries."""
        best: tuple[int, int, int] | None = None
        for _ in range(3):
            before, real, after = monotonic_ns(), time_ns(), monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, after, real - (before + after) // 2)
            if best[0] < 5_000:
                break
        assert best is not None
        self.add(best[1], best[2])

    def add(self, at_ns: int, offset_ns: int) -> None:
        """Note an offset (ns) that was found at a monotonic time (ns)."""
        self._at_ns.append(at_ns)
        self._offset_ns.append(offset_ns)

    def monotonic(
        self, kernel_ns: npt.NDArray[np.int64], read_ns: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return kernel times on the monotonic clock, and which of them can be trusted.

        Not trusted: where the kernel told no time, outside the span of the notes, and between two notes whose offsets
        differ by more than STEP_NS (the clock was set there).
        """
        at, offsets = np.frombuffer(self._at_ns, dtype=np.int64), np.frombuffer(self._offset_ns, dtype=np.int64)
        if len(at) < 2:
            return kernel_ns, np.zeros(len(kernel_ns), dtype=bool)
        after = np.clip(np.searchsorted(at, read_ns), 1, len(at) - 1)
        steady = np.abs(offsets[after] - offsets[after - 1]) <= STEP_NS
        inside = (read_ns >= at[0]) & (read_ns <= at[-1])
        return kernel_ns - offsets[after - 1], (kernel_ns != NO_TIME) & steady & inside


def arrivals(
    read_ns: npt.NDArray[np.int64],
    kernel_ns: npt.NDArray[np.int64],
    sent_ns: Sequence[int],
    bounds: npt.NDArray[np.int64],
    offsets: Offsets,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return when each read had arrived (monotonic ns), and for which reads the kernel told it.

    The reads of response i, in order, are `bounds[i]:bounds[i + 1]` of all; its request was sent at `sent_ns[i]`.
    `read_ns` are the times after our reads, `kernel_ns` the kernel's (NO_TIME where unknown). The times never fall
    from one read of a response to the next.
    """
    response = np.repeat(np.arange(len(sent_ns)), np.diff(bounds))
    times, told = offsets.monotonic(kernel_ns, read_ns)
    told &= (times <= read_ns) & (times >= np.asarray(sent_ns, dtype=np.int64)[response])
    times = np.where(told, times, read_ns)
    falls = (times[1:] < times[:-1]) & (response[1:] == response[:-1])
    for number in np.unique(response[1:][falls]).tolist():
        own = slice(bounds[number], bounds[number + 1])
        ordered = np.maximum.accumulate(times[own])
        told[own] &= ordered == times[own]
        times[own] = ordered
    return times, told
