"""Open connections: what is written to them, and what becomes of the signs that an Ear hears."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic_ns
from typing import Protocol

from .arrival import ask_for_kernel_times
from .ear import Ear


class Listener(Protocol):
    """Whoever uses a wire: a stream."""

    def came(self, data: bytes) -> None: ...
    def ended(self) -> None: ...
    def strayed(self) -> None: ...
    def lost(self, wire: Wire, error: Exception | None) -> None: ...


class Wire(Protocol):
    """An open connection."""

    number: int  # of its socket

    def write(self, message: bytes) -> None: ...
    def close(self) -> None: ...


class PlainWire:
    """A TCP connection that an Ear listens to."""

    __slots__ = ("_ear", "_sending", "_socket", "came", "ended", "listener", "number", "strayed")

    def __init__(self, ear: Ear, sock: socket.socket, listener: Listener) -> None:
        self._ear = ear
        self._socket = sock
        self._sending: asyncio.Task[None] | None = None
        self.listener = listener
        self.came, self.ended, self.strayed = listener.came, listener.ended, listener.strayed
        self.number = sock.fileno()
        ask_for_kernel_times(sock)
        ear.add(self, sock)

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
        if self._is_open():
            self.close()
            self.listener.lost(self, error)

    def _is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def close(self) -> None:
        if self._is_open():
            if self._sending is not None:
                self._sending.cancel()
            self._ear.remove(self)
            self._socket.close()


class TlsWire(asyncio.Protocol):
    """A TLS connection: asyncio decrypts, so the time is that of the decrypted bytes."""

    def __init__(self, ear: Ear, listener: Listener) -> None:
        self._ear = ear
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self.came, self.ended, self.strayed = listener.came, listener.ended, listener.strayed
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.number = transport.get_extra_info("socket").fileno()
        self._ear.add(self, None)

    def data_received(self, data: bytes) -> None:
        self._ear.take(self, data, monotonic_ns())

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(error)

    def fail(self, error: Exception | None) -> None:
        if self._transport is not None:
            self.close()
            self._listener.lost(self, error)

    def write(self, message: bytes) -> None:
        assert self._transport is not None
        self._transport.write(message)

    def close(self) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            self._ear.remove(self)
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


async def open_tls(ear: Ear, listener: Listener, host: str, port: int) -> TlsWire:
    """Connect with TLS and the machine's certificates; OSError (ssl.SSLError among them) when it fails."""
    _, wire = await asyncio.get_running_loop().create_connection(lambda: TlsWire(ear, listener), host, port, ssl=True)
    return wire
