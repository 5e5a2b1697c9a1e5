"""Everything that arrived during one point, in the order in which it was read: the bytes, and one row for each read.

While a point runs nothing is sorted: a read appends bytes and a row that names its exchange. When the point is over
`Tape.rows` sorts them by exchange. Old blocks go to a temporary file when more than `most_held` bytes are in memory.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from time import monotonic_ns
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .hot_path import gathered, library

ROW = np.dtype([("position", "i8"), ("read_ns", "i8"), ("kernel_ns", "i8"), ("exchange", "i4"), ("size", "i4")])
_ROW = struct.Struct("qqqii")
NO_EXCHANGE = -1
BLOCK_BYTES = 1 << 22  # numpy asks for huge pages from this size on
ROWS_OF_BLOCK = BLOCK_BYTES // 256  # an event is some 400 bytes; with smaller ones the rows are full before the bytes
MOST_READ_BYTES = 1 << 14
LEAST_ROOM = 16  # reads
MOST_HELD_BYTES = 128 << 20


class Block(ctypes.Structure):
    """A stretch of the tape; `position` counts the bytes of all blocks before it. The same as `block` in hot_path.c."""

    _fields_ = (
        ("data_address", ctypes.c_void_p),
        ("rows_address", ctypes.c_void_p),
        ("data_length", ctypes.c_int64),
        ("rows_length", ctypes.c_int64),
        ("used", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("position", ctypes.c_int64),
    )

    def __init__(self, position: int) -> None:
        data, rows = np.empty(BLOCK_BYTES, dtype=np.uint8), np.empty(ROWS_OF_BLOCK, dtype=ROW)
        super().__init__(data.ctypes.data, rows.ctypes.data, len(data), len(rows), 0, 0, position)
        self.data: memoryview | None = memoryview(data)  # None once it is in the file
        self.rows = rows
        self._row_bytes = memoryview(rows.view(np.uint8))

    @property
    def room(self) -> int:
        """How many reads of MOST_READ_BYTES fit in."""
        return min(self.rows_length - self.count, (self.data_length - self.used) // MOST_READ_BYTES)

    def put(self, data: bytes) -> None:
        """Place the bytes of a read behind those that are noted; at most MOST_READ_BYTES."""
        assert self.data is not None
        self.data[self.used : self.used + len(data)] = data

    def note(self, exchange: int, size: int, read_ns: int, kernel_ns: int) -> None:
        """Add the row of a read whose bytes stand at the end of `data` already."""
        _ROW.pack_into(
            self._row_bytes, self.count * ROW.itemsize, self.position + self.used, read_ns, kernel_ns, exchange, size
        )
        self.used += size
        self.count += 1


@dataclass(frozen=True)
class Rows:
    """All reads, sorted by exchange and in order of time within each; exchange i has rows `bounds[i]:bounds[i + 1]`."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    read_ns: npt.NDArray[np.int64]
    kernel_ns: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]


class Tape:
    """The tape of one point. Its temporary file vanishes with the process."""

    def __init__(self, folder: str | None = None, most_held: int = MOST_HELD_BYTES) -> None:
        self._code = library()
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._most_held = most_held
        self._in_file = 0  # blocks that are in the file, all before those that are not
        self._blocks = [Block(0)]
        self._starts = [0]

    @property
    def block(self) -> Block:
        """The block that takes the next read; it has room for some reads."""
        block = self._blocks[-1]
        if block.room < LEAST_ROOM:
            block = Block(block.position + block.used)
            self._blocks.append(block)
            self._starts.append(block.position)
        return block

    @property
    def last(self) -> Block:
        """The block of the last read."""
        return self._blocks[-1]

    @property
    def length(self) -> int:
        """Bytes so far."""
        return self.last.position + self.last.used

    def make_room(self, for_ns: int) -> None:
        """Move the oldest full blocks to the file while too much is held, for at most `for_ns`."""
        until_ns = monotonic_ns() + for_ns
        while self.length - self._starts[self._in_file] > self._most_held and self._in_file < len(self._blocks) - 1:
            block = self._blocks[self._in_file]
            assert block.data is not None
            self._write(block.data[: block.used], block.position)
            block.data = None
            self._in_file += 1
            if monotonic_ns() >= until_ns:
                return

    def _write(self, data: memoryview, position: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, prefix="reckoning-load-", buffering=0)  # noqa: SIM115
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), data[written:], position + written)

    def rows(self, exchanges: int) -> Rows:
        """Return the reads of exchanges 0 to `exchanges - 1`, sorted."""
        rows = np.concatenate([block.rows[: block.count] for block in self._blocks])
        rows = rows[rows["exchange"] != NO_EXCHANGE]
        order = np.argsort(rows["exchange"], kind="stable")
        bounds = np.searchsorted(rows["exchange"][order], np.arange(exchanges + 1))
        columns = (rows[name][order].astype(np.int64) for name in ("position", "size", "read_ns", "kernel_ns"))
        return Rows(*columns, bounds=bounds)

    def read(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bytes:
        """Return the bytes of reads, joined."""
        if not len(positions):
            return b""
        if self._code is None or positions[0] < self._starts[self._in_file]:
            return self._read_in_python(positions, sizes)
        starts, bases = self._map
        addresses = bases[np.searchsorted(starts, positions, side="right") - 1] + positions
        return gathered(self._code, addresses, sizes)

    def _read_in_python(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.integer[Any]]) -> bytes:
        blocks = np.searchsorted(self._starts, positions, side="right") - 1
        parts: list[bytes | memoryview] = []
        for position, size, number in zip(positions.tolist(), sizes.tolist(), blocks.tolist(), strict=True):
            block = self._blocks[number]
            if block.data is not None:
                start = position - block.position
                parts.append(block.data[start : start + size])
            else:
                assert self._file is not None
                parts.append(os.pread(self._file.fileno(), size, position))
        return b"".join(parts)

    def read_running(self, exchange: int, since: int) -> bytes:
        """Return what an exchange that still runs has read so far; it began when the tape was `since` bytes long."""
        parts = [block.rows[: block.count] for block in self._blocks[bisect_right(self._starts, since) - 1 :]]
        rows = np.concatenate(parts)
        rows = rows[rows["exchange"] == exchange]
        return self._read_in_python(rows["position"], rows["size"])

    @functools.cached_property
    def _map(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The start of each block, and what added to a position in it makes an address. Only once all is read."""
        bases = [block.data_address - block.position for block in self._blocks]
        return np.array(self._starts, dtype=np.int64), np.array(bases, dtype=np.int64)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
