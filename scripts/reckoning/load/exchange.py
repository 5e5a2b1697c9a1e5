"""One request on the wire and everything that came back: bytes and the time of each read, nothing interpreted."""

from __future__ import annotations

import os
import tempfile
from array import array
from dataclasses import dataclass
from typing import IO

from .arrival import kernel_times

ENDINGS = (
    "complete",  # the response's last byte has arrived
    "refused",  # no connection
    "reset",  # the connection was lost before the end of the response
    "malformed",  # the peer does not speak HTTP/1.1
    "idle-timeout",
    "total-timeout",
    "cancelled",
)


@dataclass(frozen=True)
class Prompt:
    """What one request asks: the JSON body as bytes, ready to send, and what is known of it beforehand."""

    id: str
    body: bytes
    requested_tokens: int
    prompt_tokens: int | None = None


class Exchange:
    """A request and its raw answer. Times are CLOCK_MONOTONIC nanoseconds unless they say otherwise.

    `read_ns[i]` is the time after read i, `kernel_ns[i]` the kernel's receive time of its last packet (CLOCK_REALTIME,
    0 where unknown), `sizes[i]` its length in bytes. What was read is in `reads` until it is moved: to the spool, whose
    segments are listed in `segments`, or at last to `rest`. `stamps[i]`, made when the point is over, is the time at
    which read i had arrived.
    """

    __slots__ = (
        "end_ns",
        "ending",
        "error",
        "index",
        "kernel_ns",
        "new_connection",
        "notes",
        "prompt",
        "read_ns",
        "reads",
        "rest",
        "scheduled_ns",
        "segments",
        "sent_ns",
        "sizes",
        "stamps",
        "stream",
        "turn",
    )

    def __init__(self, index: int, stream: int, turn: int, prompt: Prompt, scheduled_ns: int | None = None) -> None:
        self.index = index
        self.stream = stream
        self.turn = turn  # 0 for the stream's first request
        self.prompt = prompt
        self.scheduled_ns = scheduled_ns  # planned arrival (open loop), None in a closed loop
        self.sent_ns = 0
        self.end_ns = 0
        self.reads: list[bytes] = []
        self.notes = bytearray()  # of these reads: the kernel's time of each, as it came
        self.read_ns = array("q")
        self.kernel_ns = array("q")
        self.sizes = array("q")
        self.stamps = array("q")
        self.segments: list[tuple[int, int]] = []
        self.rest = b""
        self.ending: str | None = None
        self.error: str | None = None
        self.new_connection = False

    def unspooled(self) -> bytes:
        """The bytes that are still in memory."""
        return self.rest + b"".join(self.reads)

    def take_reads(self) -> bytes:
        """Sort what was read into `sizes`, `kernel_ns` and the bytes in memory, which are returned and forgotten."""
        data, reads = self.unspooled(), self.reads
        self.sizes.extend(list(map(len, reads)))
        self.kernel_ns.frombytes(kernel_times(self.notes).tobytes())
        self.reads.clear()
        self.notes.clear()
        self.rest = b""
        return data


class Spool:
    """A temporary file that takes answers out of memory while a point runs; it vanishes with the process."""

    def __init__(self, folder: str | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 (closed by `close`)
            dir=folder, prefix="reckoning-load-", buffering=0
        )
        self._end = 0
        self.reads = 0  # moved so far

    def move(self, exchange: Exchange) -> None:
        """Append what the exchange has read to the file and drop it from memory."""
        self.reads += len(exchange.reads)
        data = exchange.take_reads()
        if data:
            self._write(data)
            exchange.segments.append((self._end, len(data)))
            self._end += len(data)

    def read(self, exchange: Exchange, skip: int = 0) -> bytes:
        """Return the bytes of an exchange in the order of their arrival, without the first `skip`."""
        parts = []
        for start, length in exchange.segments:
            left_out = min(skip, length)
            skip -= left_out
            if left_out < length:
                parts.append(os.pread(self._file.fileno(), length - left_out, start + left_out))
        parts.append(exchange.unspooled())
        return b"".join(parts)[skip:]

    def _write(self, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], self._end + written)

    def close(self) -> None:
        self._file.close()
