"""The hot path: how bytes come off the sockets, with the time of each read.

`Ear.hear` and `PlainWire.read` are all that happens while tokens arrive: for every socket that is ready, one `recv`,
one monotonic time stamp, two appends. Framing, JSON and tokens wait until the response, or the whole point, is over.
The sockets of all streams hang on an epoll instance of their own, and the event loop watches that one descriptor: one
call of the loop then serves every socket that is ready, at half the cost of a callback per socket (docs/accuracy.md).
"""

from __future__ import annotations

import asyncio
import select
import socket
from time import monotonic_ns
from typing import Protocol

from .framing import END_OF_CHUNKS

READ_BYTES = 1 << 13  # an event is some 400 bytes; a longer burst is read in several turns
AT_ONCE = 1024
ROUNDS = 8


class Listener(Protocol):
    """Whoever reads from a wire: a stream. `stamp` and `keep` take each read's time and bytes."""

    framed: bool  # the head is known and the body is chunked: only a read that may hold its end needs a look

    def stamp(self, at_ns: int, /) -> object: ...
    def keep(self, data: bytes, /) -> object: ...
    def look_for_end(self) -> None: ...
    def lost(self, wire: Wire, error: Exception | None) -> None: ...


class Wire(Protocol):
    """An open connection."""

    def write(self, message: bytes) -> None: ...
    def close(self) -> None: ...


class Ear:
    """Reads from the sockets of all streams of one point."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wires: dict[int, PlainWire] = {}
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self.hear)

    def add(self, wire: PlainWire) -> None:
        self._wires[wire.number] = wire
        self._epoll.register(wire.number, select.EPOLLIN)

    def remove(self, wire: PlainWire) -> None:
        if self._wires.pop(wire.number, None) is not None:
            self._epoll.unregister(wire.number)

    def hear(self) -> None:
        """Take what every ready socket holds, and again while more comes in meanwhile; timers wait at most ROUNDS."""
        for _ in range(ROUNDS):
            ready = self._epoll.poll(0, AT_ONCE)
            if not ready:
                return
            for number, _ in ready:
                wire = self._wires.get(number)
                if wire is not None:  # else closed while this round was under way
                    wire.read()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        for wire in list(self._wires.values()):
            wire.close()
        self._epoll.close()


class PlainWire:
    """A TCP connection that an Ear listens to."""

    __slots__ = ("_ear", "_sending", "_socket", "listener", "number", "recv")

    def __init__(self, ear: Ear, sock: socket.socket, listener: Listener) -> None:
        self._ear = ear
        self._socket = sock
        self._sending: asyncio.Task[None] | None = None
        self.listener = listener
        self.number = sock.fileno()
        self.recv = sock.recv
        ear.add(self)

    def read(self) -> None:
        """Take what the socket holds, with the time: the only work that is done for each token as it arrives."""
        try:
            data = self.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error)
            return
        listener = self.listener
        listener.stamp(monotonic_ns())
        listener.keep(data)
        if not data:
            self.fail(None)
        elif not listener.framed or data.endswith(END_OF_CHUNKS) or len(data) < 5:
            listener.look_for_end()

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
        if not listener.framed or data.endswith(END_OF_CHUNKS) or len(data) < 5:
            listener.look_for_end()

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
