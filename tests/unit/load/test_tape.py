"""The tape: no byte is lost or mixed up, in memory or in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reckoning.load.tape import BLOCK_BYTES, LEAST_ROOM, MOST_READ_BYTES, Tape

pytestmark = pytest.mark.usefixtures("hot_path")
READS = 3000


def append(tape: Tape, exchange: int, data: bytes, read_ns: int, kernel_ns: int) -> None:
    """Add what was read, in reads of the largest size."""
    for start in range(0, len(data), MOST_READ_BYTES):
        part, block = data[start : start + MOST_READ_BYTES], tape.block
        block.put(part)
        block.note(exchange, len(part), read_ns, kernel_ns)


def filled(tape: Tape, exchanges: int = 7) -> dict[int, bytes]:
    """Reads of odd lengths, in turn from each exchange and now and then from none; several blocks in all."""
    made = dict.fromkeys(range(exchanges), b"")
    for n in range(READS):
        exchange = -1 if n % 50 == 49 else (n * n) % exchanges
        data = bytes([65 + exchange]) * (1 + (n * 7919) % 9000)
        append(tape, exchange, data, read_ns=1000 + n, kernel_ns=n)
        if exchange >= 0:
            made[exchange] += data
    return made


def read_back(tape: Tape, exchanges: int = 7) -> dict[int, bytes]:
    rows = tape.rows(exchanges)
    spans = [slice(*rows.bounds[n : n + 2]) for n in range(exchanges)]
    return {n: tape.read(rows.position[span], rows.size[span]) for n, span in enumerate(spans)}


def test_every_exchange_gets_its_own_bytes_in_order() -> None:
    tape = Tape()
    made = filled(tape)
    assert tape.length > 3 * BLOCK_BYTES
    assert read_back(tape) == made
    rows = tape.rows(7)
    assert rows.bounds[-1] - rows.bounds[0] == READS - READS // 50
    assert (rows.bounds[0], rows.bounds[-1]) == (0, len(rows.size))  # what belongs to no exchange is not among them
    for n in range(7):
        times = rows.read_ns[rows.bounds[n] : rows.bounds[n + 1]]
        assert (np.diff(times) > 0).all()
        assert (rows.kernel_ns[rows.bounds[n] : rows.bounds[n + 1]] == times - 1000).all()


def test_what_is_moved_to_the_file_is_read_from_there(tmp_path: Path) -> None:
    tape = Tape(folder=str(tmp_path), most_held=BLOCK_BYTES)
    made = filled(tape)
    held = [block.data is not None for block in tape._blocks]
    assert all(held)
    tape.make_room(10**9)
    held = [block.data is not None for block in tape._blocks]
    assert held == sorted(held)
    assert sum(held) in (1, 2)
    assert read_back(tape) == made
    tape.close()
    assert list(tmp_path.iterdir()) == []


def test_making_room_stops_when_its_time_is_over_and_goes_on_later() -> None:
    tape = Tape(most_held=0)
    made = filled(tape)
    tape.make_room(0)
    assert [block.data is None for block in tape._blocks].count(True) == 1
    tape.make_room(10**9)
    assert tape.last.data is not None  # the one that takes the next read
    assert read_back(tape) == made


def test_a_running_exchange_can_be_read_before_the_tape_is_sorted() -> None:
    tape = Tape(most_held=0)
    filled(tape)
    since = tape.length
    append(tape, 3, b"first ", 1, 0)
    for _ in range(9):
        append(tape, 2, b"x" * 900_000, 2, 0)
    append(tape, 3, b"second", 3, 0)
    tape.make_room(10**9)
    assert tape.read_running(3, since) == b"first second"
    assert tape.read_running(6, since) == b""


def test_an_empty_tape_has_no_rows() -> None:
    rows = Tape().rows(2)
    assert rows.bounds.tolist() == [0, 0, 0]
    assert Tape().read(rows.position, rows.size) == b""


def test_the_block_for_the_next_read_always_has_room() -> None:
    tape = Tape()
    while tape.block.position == 0:
        assert tape.block.room >= LEAST_ROOM
        append(tape, 0, b"x" * MOST_READ_BYTES, 1, 0)
    assert tape.length >= BLOCK_BYTES - LEAST_ROOM * MOST_READ_BYTES
