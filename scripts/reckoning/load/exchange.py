"""One request on the wire and everything that came back: bytes and the time of each read, nothing interpreted."""

from __future__ import annotations

import os
import tempfile
from array import array
from dataclasses import dataclass
from typing import IO

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
    """A request and its raw answer. Times are CLOCK_MONOTONIC nanoseconds.

    `stamps[i]` is the time at which read i was handed to us, `sizes[i]` its length in bytes; the bytes themselves are
    in `pieces` until they are moved to the spool, whose segments are listed in `segments`.
    """

    __slots__ = (
        "end_ns",
        "ending",
        "error",
        "index",
        "new_connection",
        "pieces",
        "prompt",
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
        self.stamps = array("q")
        self.sizes = array("q")
        self.pieces: list[bytes] = []
        self.segments: list[tuple[int, int]] = []
        self.ending: str | None = None
        self.error: str | None = None
        self.new_connection = False


class Spool:
    """A temporary file that takes answers out of memory while a point runs; it vanishes with the process."""

    def __init__(self, folder: str | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 (closed by `close`)
            dir=folder, prefix="reckoning-load-", buffering=0
        )
        self._end = 0

    def move(self, exchange: Exchange) -> bytes:
        """Append the exchange's pieces to the file and drop them from memory; returns what was moved."""
        data = b"".join(exchange.pieces)
        exchange.sizes.extend(map(len, exchange.pieces))
        exchange.pieces.clear()
        if data:
            self._write(data)
            exchange.segments.append((self._end, len(data)))
            self._end += len(data)
        return data

    def read(self, exchange: Exchange) -> bytes:
        """Return all bytes of an exchange in the order of their arrival."""
        self.move(exchange)
        parts = [os.pread(self._file.fileno(), length, start) for start, length in exchange.segments]
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], self._end + written)

    def close(self) -> None:
        self._file.close()
