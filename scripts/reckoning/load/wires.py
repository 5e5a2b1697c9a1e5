"""The hot path: how bytes come off the sockets, with the time of each read.

`Ear.hear` is all that happens while tokens arrive: for every socket that is ready, one `recvmsg`, one monotonic time
stamp, three appends. Framing, JSON and tokens wait until the point is over. The sockets of all streams hang on an epoll
instance of their own, and the event loop watches that one descriptor: one call of the loop then serves every socket
that is ready, at half the cost of a callback per socket.

Where the kernel notes the time at which it received each packet (see `reckoning.load.arrival`), the time of our read no
longer matters, and at high rates the sockets are read every PACE_S: waking up for every token would cost more than
reading it (docs/accuracy.md).
"""

from __future__ import annotations

import asyncio
import select
import socket
from time import monotonic_ns
from typing import Protocol

from .arrival import NO_NOTE, NOTE_BYTES, ask_for_kernel_times
from .framing import END_OF_CHUNKS

USUAL_END = b"\n\n\r\n"  # of a read that brings whole events
FIRST_READ_BYTES, MOST_READ_BYTES = 1 << 10, 1 << 16  # an event is some 400 bytes; a buffer that was full is doubled
AT_ONCE = 1024
ROUNDS = 8
PACE_S = 0.001  # longer pauses spare little and delay the next request of a stream
RATE_WINDOW_NS = 20_000_000
PACED_ABOVE, EAGER_BELOW = 200, 100  # reads per window: with fewer than some 5000 a second the clock costs more


class Listener(Protocol):
    """Whoever reads from a wire: a stream. Its first three methods take each read's time, bytes, and kernel's note."""

    framed: bool  # the head is known and the body is chunked: only a read that may hold its end needs a look

    def stamp(self, at_ns: int, /) -> object: ...
    def keep(self, data: bytes, /) -> object: ...
    def note(self, timespec: bytes, /) -> object: ...
    def look_for_end(self) -> None: ...
    def lost(self, wire: Wire, error: Exception | None) -> None: ...


class Wire(Protocol):
    """An open connection."""

    def write(self, message: bytes) -> None: ...
    def close(self) -> None: ...


class Ear:
    """Reads from the sockets of all streams of one point."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._wires: dict[int, PlainWire] = {}
        self.reads = 0
        self._reads_before = 0  # the running window
        self._window_ns = 0
        self._kernel_times = False  # seen with the last read
        self._again = False
        self._pace: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._epoll.fileno(), self.hear)

    def add(self, wire: PlainWire) -> None:
        self._wires[wire.number] = wire
        self._epoll.register(wire.number, select.EPOLLIN)

    def remove(self, wire: PlainWire) -> None:
        if self._wires.pop(wire.number, None) is not None:
            self._epoll.unregister(wire.number)

    def hear(self) -> None:
        """Take what every ready socket holds, with the time: the only work that is done for tokens as they arrive."""
        for _ in range(ROUNDS):
            self._again = False
            found = self._hear_round()
            if not self._again and (self.paced or not found):
                break  # else more came meanwhile: to go on is cheaper than to be woken again
        self._choose_pace()

    def _hear_round(self) -> int:
        """Read every ready socket once; return how many there were."""
        wires = self._wires
        ready = self._epoll.poll(0, AT_ONCE)
        notes: list[tuple[int, int, bytes]] = []
        for number, _ in ready:
            wire = wires.get(number)
            if wire is None:  # closed while this round was under way
                continue
            try:
                data, notes, _, _ = wire.receive(wire.read_bytes, NOTE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                wire.fail(error)
                continue
            listener = wire.listener
            listener.stamp(monotonic_ns())
            listener.keep(data)
            listener.note(notes[0][2] if notes else NO_NOTE)
            if data[-4:] != USUAL_END or not listener.framed:
                wire.look_at(data)
        if ready:
            self.reads += len(ready)
            self._kernel_times = bool(notes)
        return len(ready)

    @property
    def paced(self) -> bool:
        """Whether sockets are read by the clock, not as bytes arrive."""
        return self._pace is not None

    def more_waits(self) -> None:
        """A read filled its buffer: read once more before the loop goes on."""
        self._again = True

    def _choose_pace(self) -> None:
        """Eager (the loop wakes us for each arrival) or paced (it wakes us each millisecond), by the rate of reads."""
        paced, now_ns = self.paced, monotonic_ns()
        if now_ns - self._window_ns >= RATE_WINDOW_NS:
            enough = EAGER_BELOW if self.paced else PACED_ABOVE
            paced = self._kernel_times and self.reads - self._reads_before >= enough
            self._window_ns, self._reads_before = now_ns, self.reads
        if paced and not self.paced:
            self._loop.remove_reader(self._epoll.fileno())
        elif self.paced and not paced:
            self._loop.add_reader(self._epoll.fileno(), self.hear)
        self._pace = self._loop.call_later(PACE_S, self.hear) if paced else None

    def close(self) -> None:
        if self._pace is not None:
            self._pace.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        for wire in list(self._wires.values()):
            wire.close()
        self._epoll.close()


class PlainWire:
    """A TCP connection that an Ear listens to."""

    __slots__ = ("_ear", "_sending", "_socket", "listener", "number", "read_bytes", "receive")

    def __init__(self, ear: Ear, sock: socket.socket, listener: Listener) -> None:
        self._ear = ear
        self._socket = sock
        self._sending: asyncio.Task[None] | None = None
        self.listener = listener
        self.number = sock.fileno()
        self.receive = sock.recvmsg
        self.read_bytes = FIRST_READ_BYTES
        ask_for_kernel_times(sock)
        ear.add(self)

    def look_at(self, data: bytes) -> None:
        """What a read calls for beside keeping it."""
        if not data:
            self.fail(None)
            return
        if len(data) == self.read_bytes:
            self.read_bytes = min(2 * self.read_bytes, MOST_READ_BYTES)
            self._ear.more_waits()
        look_at(self.listener, data)

    def write(self, message: bytes) -> None:
        """Send at once what the socket takes; the rest of a long prompt follows as it drains."""
        try:
            sent = self._socket.send(message)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            asyncio.get_running_loop().call_soon(self.fail, error)
            return
        if sent < len(message):
            self._sending = asyncio.get_running_loop().create_task(self._send_rest(message[sent:]))

    async def _send_rest(self, rest: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, rest)
        except OSError as error:
            self.fail(error)

    def fail(self, error: Exception | None) -> None:
        if self._ear_knows():
            self.close()
            self.listener.lost(self, error)

    def _ear_knows(self) -> bool:
        return self._socket.fileno() >= 0

    def close(self) -> None:
        if self._ear_knows():
            if self._sending is not None:
                self._sending.cancel()
            self._ear.remove(self)
            self._socket.close()


def look_at(listener: Listener, data: bytes) -> None:
    """Have the listener look for the response's end where this read may hold it."""
    if not listener.framed or data.endswith(END_OF_CHUNKS) or len(data) < len(END_OF_CHUNKS):
        listener.look_for_end()


class TlsWire(asyncio.Protocol):
    """A TLS connection: asyncio decrypts, so the time is that of the decrypted bytes."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        listener = self._listener
        listener.stamp(monotonic_ns())
        listener.keep(data)
        listener.note(NO_NOTE)
        look_at(listener, data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._listener.lost(self, error)

    def write(self, message: bytes) -> None:
        assert self._transport is not None
        self._transport.write(message)

    def close(self) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()


async def open_plain(ear: Ear, listener: Listener, host: str, port: int) -> PlainWire:
    """Connect to the first of the host's addresses that answers; OSError when none does."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return PlainWire(ear, sock, listener)
    raise failure


async def open_tls(listener: Listener, host: str, port: int) -> TlsWire:
    """Connect with TLS and the machine's certificates; OSError (ssl.SSLError among them) when it fails."""
    _, wire = await asyncio.get_running_loop().create_connection(lambda: TlsWire(listener), host, port, ssl=True)
    return wire
