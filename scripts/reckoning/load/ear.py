"""The hot path: how bytes come off the sockets of all streams, with the time of each read.

`Ear.hear_round` is all that happens while tokens arrive: every socket that is ready is read once, onto the tape, with
the time. Framing, JSON and tokens wait until the point is over. A read that calls for more (the first of a response,
its end, a lost connection) leaves a sign, and signs are acted upon in the event loop. Compiled (`hot_path.c`) or in
Python, this is the same.

The sockets hang on an epoll instance of their own, and the event loop waits for that one descriptor beside its own. The
loop (`ListeningLoop`) is only woken for signs: between them the rounds are made inside its wait. Where the kernel notes
the time at which it received each packet (see `reckoning.load.arrival`) the time of our read does not matter, and at
high rates a round is made every PACE_S: waking up for every token would cost more than reading it (docs/accuracy.md).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import select
import selectors
import socket
import time
from collections.abc import Coroutine
from enum import IntEnum
from time import monotonic_ns
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from .arrival import NOTE_BYTES, kernel_time
from .framing import LAST_CHUNK
from .hot_path import library
from .tape import LEAST_ROOM, MOST_READ_BYTES, NO_EXCHANGE, Tape

AT_ONCE = 1024
PACE_S = 0.001  # longer pauses spare little and delay the next request of a stream
RATE_WINDOW_S = 0.02
PACED_ABOVE, EAGER_BELOW = 4000, 2500  # reads per second: with fewer the clock spares nothing, and requests start later
MOST_DESCRIPTORS = 1 << 20
LONGEST_WAIT_S = 1.0
STREAM = np.dtype([("last_read_ns", "i8"), ("tail", "S8"), ("exchange", "i4"), ("framed", "i4")])
SIGN = np.dtype([("number", "i4"), ("kind", "i4"), ("exchange", "i4"), ("size", "i4"), ("begin", "i8")])
T = TypeVar("T")


class Sign(IntEnum):
    """What a read calls for. The numbers are those of hot_path.c."""

    CAME = 1  # bytes of a response whose framing is not known, or not chunked: they must be looked at
    ENDED = 2  # a last chunk
    STRAYED = 3  # bytes that belong to no request
    LOST = 4  # the connection has ended


class HeardWire(Protocol):
    """A connection, and what it does about signs."""

    number: int  # of its socket

    def came(self, data: bytes) -> None: ...
    def ended(self) -> None: ...
    def strayed(self) -> None: ...
    def fail(self, error: Exception | None) -> None: ...


class _Heard(NamedTuple):
    """A sign, and what it is about."""

    wire: HeardWire
    sign: int
    exchange: int
    data: bytes
    error: int


class Ear:
    """Reads from the sockets of all streams of one point, onto its tape. Belongs to the running ListeningLoop."""

    armed = select.EPOLLIN  # how sockets are registered
    compiled = False

    def __init__(self, tape: Tape) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, ListeningLoop):
            raise TypeError("an Ear needs the event loop of `listen`")
        self._loop = loop
        self._tape = tape
        self._epoll = select.epoll()
        self.descriptor = self._epoll.fileno()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)
        self._streams = np.zeros(limit, dtype=STREAM)
        self._exchange = self._streams["exchange"]
        self._framed = self._streams["framed"]
        self._tail = self._streams["tail"]
        self._last_read_ns = self._streams["last_read_ns"]
        self._wires: dict[int, HeardWire] = {}
        self._sockets: dict[int, socket.socket] = {}
        self.signs: list[_Heard] = []  # to be acted upon
        self.reads = 0
        self.kernel_told = False  # with the last read, when it was received
        self.paced = False  # read by the clock, not as bytes arrive
        self._window_began_ns, self._reads_before = monotonic_ns(), 0
        loop.listener.ear = self
        loop.add_reader(self.descriptor, self.hear)

    # --- streams ---------------------------------------------------------------------------------------------------

    def add(self, wire: HeardWire, sock: socket.socket | None) -> None:
        """Listen to a wire; without a socket it brings what it reads itself (`take`)."""
        number = wire.number
        if number >= len(self._streams):
            raise OSError(f"descriptor {number} is above the limit of {len(self._streams)} open files")
        self._wires[number] = wire
        self._exchange[number] = NO_EXCHANGE
        if sock is not None:
            self._sockets[number] = sock
            self._epoll.register(number, self.armed)

    def remove(self, wire: HeardWire) -> None:
        if self._wires.pop(wire.number, None) is not None and self._sockets.pop(wire.number, None) is not None:
            self._epoll.unregister(wire.number)

    def expect(self, number: int, exchange: int) -> None:
        """What this socket brings belongs to an exchange from now on, or (NO_EXCHANGE) to none."""
        self._exchange[number] = exchange
        self._framed[number] = 0
        self._tail[number] = b""
        self._last_read_ns[number] = 0

    def trust_framing(self, number: int) -> None:
        """The running response is chunked: only its last chunk needs a look."""
        self._framed[number] = 1

    def last_read_ns(self, number: int) -> int:
        """When the running response was last read from (monotonic ns), 0 for never."""
        return int(self._last_read_ns[number])

    def tail(self, number: int) -> bytes:
        """The last bytes of the running response, at most 8."""
        return bytes(self._tail[number])

    # --- rounds ----------------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Read every ready socket once, and have signs acted upon."""
        self.hear_round()
        self.follow_up()

    def follow_up(self) -> None:
        """After rounds: have their signs acted upon, and choose the pace of the next ones."""
        if self.signs:
            self._loop.call_soon(self.act)
        self.choose_pace()

    def hand_on(self, fault: Exception) -> None:
        """Raise a fault in the event loop, which tells whoever runs the point."""
        self._loop.call_soon(_raise, fault)

    def hear_until(self, until_ns: int) -> bool:
        """Make rounds until there is something for the event loop: a sign, `until_ns`, or (True) another descriptor.

        In a paced round bytes are left waiting for PACE_S, so that those of other sockets are read with them.
        """
        while True:
            found = self._loop.listener.poll(max(0.0, (until_ns - monotonic_ns()) / 1e9))
            numbers = {key.fd for key, _ in found}
            others = bool(numbers - {self.descriptor})
            if self.descriptor in numbers:
                if self.paced and not others:
                    time.sleep(min(PACE_S, max(0.0, (until_ns - monotonic_ns()) / 1e9)))
                self.hear_round()
            if others or not found or self.signs or monotonic_ns() >= until_ns:
                return others

    def hear_round(self) -> None:
        """Read every ready socket once."""
        for number, _ in self._epoll.poll(0, AT_ONCE):
            block = self._tape.block
            assert block.data is not None
            place = block.data[block.used : block.used + MOST_READ_BYTES]
            try:
                size, notes, _, _ = self._sockets[number].recvmsg_into([place], NOTE_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                self._leave_sign(number, Sign.LOST, size=error.errno or 0)
                continue
            if size:
                self._note(number, size, monotonic_ns(), kernel_time(notes))
                self.reads, self.kernel_told = self.reads + 1, bool(notes)
            else:
                self._leave_sign(number, Sign.LOST)

    def _note(self, number: int, size: int, read_ns: int, kernel_ns: int) -> None:
        """What hot_path.c does for each read: its row, the stream's tail, and a sign where one is called for."""
        block, exchange = self._tape.block, int(self._exchange[number])
        assert block.data is not None
        end = block.used + size
        tail = (bytes(self._tail[number]) + block.data[max(block.used, end - 8) : end].tobytes())[-8:]
        self._tail[number] = tail
        self._last_read_ns[number] = read_ns
        begin = block.used
        block.note(exchange, size, read_ns, kernel_ns)
        if exchange < 0:
            self._leave_sign(number, Sign.STRAYED)
        elif not self._framed[number]:
            self._leave_sign(number, Sign.CAME, exchange, size, begin)
        elif tail.endswith(LAST_CHUNK):
            self._leave_sign(number, Sign.ENDED, exchange)

    def take(self, wire: HeardWire, data: bytes, read_ns: int) -> None:
        """Note what a wire has read itself."""
        for start in range(0, len(data), MOST_READ_BYTES):
            part = data[start : start + MOST_READ_BYTES]
            self._tape.block.put(part)
            self._note(wire.number, len(part), read_ns, 0)
        self.reads, self.kernel_told = self.reads + 1, False
        self.act()

    def _leave_sign(self, number: int, sign: int, exchange: int = NO_EXCHANGE, size: int = 0, begin: int = 0) -> None:
        """Keep what a sign is about, before the next read: bytes of the tape's last block, or (`size`) an errno."""
        wire = self._wires.get(number)
        if wire is None:
            return
        if sign == Sign.LOST:
            self.signs.append(_Heard(wire, sign, exchange, b"", size))
            return
        data = b""
        if sign == Sign.CAME:
            held = self._tape.last.data
            assert held is not None
            data = held[begin : begin + size].tobytes()
        self.signs.append(_Heard(wire, sign, exchange, data, 0))

    def act(self) -> None:
        """Act upon the signs of the reads so far, in their order, unless their wire or request has gone meanwhile."""
        signs, self.signs = self.signs, []
        for heard in signs:
            wire = heard.wire
            if self._wires.get(wire.number) is not wire:
                continue
            if heard.sign == Sign.LOST:
                wire.fail(OSError(heard.error, os.strerror(heard.error)) if heard.error else None)
            elif heard.sign == Sign.STRAYED:
                wire.strayed()
            elif self._exchange[wire.number] == heard.exchange:
                if heard.sign == Sign.CAME:
                    wire.came(heard.data)
                else:
                    wire.ended()

    # --- pace ------------------------------------------------------------------------------------------------------

    def choose_pace(self) -> None:
        """Choose by the rate of reads: eager (at each arrival) or paced (by the clock once bytes have come)."""
        now_ns = monotonic_ns()
        length_s = (now_ns - self._window_began_ns) / 1e9
        if length_s >= RATE_WINDOW_S:
            rate = (self.reads - self._reads_before) / length_s
            self.paced = self.kernel_told and rate >= (EAGER_BELOW if self.paced else PACED_ABOVE)
            self._window_began_ns, self._reads_before = now_ns, self.reads

    def close(self) -> None:
        self._loop.listener.ear = None
        self._loop.remove_reader(self.descriptor)
        self._epoll.close()


class CompiledEar(Ear):
    """The same, by `hot_path.c`."""

    armed = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
    compiled = True

    def __init__(self, tape: Tape, code: ctypes.CDLL) -> None:
        super().__init__(tape)
        self._code = code
        self._found_signs = np.zeros(AT_ONCE, dtype=SIGN)
        addresses = self._streams.ctypes.data, self._found_signs.ctypes.data
        self._state = _State(*addresses, 0, MOST_READ_BYTES, 0, self.descriptor, 0)
        self._state_address = ctypes.addressof(self._state)

    def hear_round(self) -> None:
        while True:
            block = self._tape.block
            most = min(block.room, AT_ONCE)
            found = self._code.hear_round(self._state_address, ctypes.addressof(block))
            self._take_signs()
            if found < most or self.signs:  # which are acted upon before their sockets are read again
                return

    def hear_until(self, until_ns: int) -> bool:
        pace_ns, loop = int(PACE_S * 1e9) if self.paced else 0, self._loop.listener.fileno()
        while True:
            block = ctypes.addressof(self._tape.block)
            others = bool(self._code.hear_until(self._state_address, block, loop, until_ns, pace_ns, LEAST_ROOM))
            self._take_signs()
            if others or self.signs or monotonic_ns() >= until_ns:
                return others

    def _take_signs(self) -> None:
        state = self._state
        self.reads, self.kernel_told = state.reads, bool(state.told)
        if state.signs_count:
            for found in self._found_signs[: state.signs_count].tolist():
                self._leave_sign(*found)


class _State(ctypes.Structure):
    """The same as `ear` in hot_path.c."""

    _fields_ = (
        ("streams", ctypes.c_void_p),
        ("signs", ctypes.c_void_p),
        ("signs_count", ctypes.c_int64),
        ("most_read", ctypes.c_int64),
        ("reads", ctypes.c_int64),
        ("epoll", ctypes.c_int32),
        ("told", ctypes.c_int32),
    )


def open_ear(tape: Tape) -> Ear:
    """Return an ear of the running event loop, compiled where there is a compiler."""
    code = library()
    return Ear(tape) if code is None else CompiledEar(tape, code)


class _Listener(selectors.EpollSelector):
    """A selector whose wait goes on through rounds of its ear, until there is something for the event loop."""

    ear: Ear | None = None

    def poll(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now, or within `timeout` seconds: the wait without an ear."""
        return super().select(timeout)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ear = self.ear
        if ear is None or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        try:
            others = ear.hear_until(monotonic_ns() + int((LONGEST_WAIT_S if timeout is None else timeout) * 1e9))
            ear.follow_up()
        except Exception as fault:  # which a wait may not raise
            self.ear, others = None, False
            ear.hand_on(fault)
        return self.poll(0) if others else []


class ListeningLoop(asyncio.SelectorEventLoop):
    """An event loop that an Ear can make its rounds in."""

    def __init__(self) -> None:
        self.listener = _Listener()
        super().__init__(self.listener)


def _raise(fault: Exception) -> None:
    raise fault


def listen(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses an Ear, as asyncio.run would."""
    with asyncio.Runner(loop_factory=ListeningLoop) as runner:
        return runner.run(work)
