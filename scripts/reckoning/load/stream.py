"""The hot path: one persistent HTTP/1.1 connection that carries one request after the other.

`Stream.data_received` does the only work that happens while tokens arrive: it appends a monotonic time stamp and the
bytes. Everything else (framing, JSON, tokens) waits until the response, or the whole point, is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns

from .exchange import Exchange, Spool
from .framing import END_OF_CHUNKS, ChunkedBody, FramingError, Head, parse_head


@dataclass(frozen=True)
class Address:
    """Where requests go, and the part of the request head that all of them share."""

    host: str
    port: int
    head: bytes
    tls: bool = False


def request_head(host: str, port: int, path: str, api_key: str | None, headers: dict[str, str] | None = None) -> bytes:
    """Return the head of a POST up to the Content-Length value, which each request appends."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {f'[{host}]' if ':' in host else host}:{port}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
    ]
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1")


class Stream(asyncio.Protocol):
    """One client of the closed loop. `on_end(stream, exchange)` is called the moment a request has ended."""

    def __init__(self, number: int, address: Address, spool: Spool, on_end: Callable[[Stream, Exchange], None]) -> None:
        self.number = number
        self.turns = 0
        self.exchange: Exchange | None = None
        self.failures_in_row = 0
        self._address = address
        self._spool = spool
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task | None = None
        self._connect_timeout_s = 60.0
        self._keep: Callable[[bytes], None] = _nothing
        self._stamp: Callable[[int], None] = _nothing
        self._pieces: list[bytes] = []
        self._fed = 0  # pieces that the framing has seen already
        self._head: Head | None = None
        self._body: ChunkedBody | None = None
        self._beginning = b""  # what came before the head was complete
        self._received = 0  # bytes of body, when framed by length

    # --- connection -------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def connect(self, timeout_s: float = 60.0) -> str | None:
        """Open the connection; return None, or why it could not be opened."""
        loop = asyncio.get_running_loop()
        address = self._address
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: self, address.host, address.port, ssl=address.tls or None)
        except TimeoutError:
            return f"no connection to {address.host}:{address.port} within {timeout_s:g} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self.exchange is None:
            return
        if self._ended_by_close():
            self._end("complete")
        else:
            self._end("reset", f"{type(error).__name__}: {error}" if error else "closed by the server before the end")

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.set_protocol(
                asyncio.Protocol()
            )  # its last callbacks must not reach the next connection's request
            transport.abort()

    # --- request ----------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange) -> None:
        """Send a request now; opens the connection first when there is none."""
        self.exchange = exchange
        self.turns += 1
        self._stamp = exchange.stamps.append
        self._pieces = exchange.pieces
        self._keep = exchange.pieces.append
        self._fed, self._head, self._body, self._beginning, self._received = 0, None, None, b"", 0
        if self.connected:
            self._write(exchange)
        else:
            exchange.new_connection = True
            exchange.sent_ns = monotonic_ns()
            self._opening = asyncio.get_running_loop().create_task(self._connect_and_send(exchange))

    async def _connect_and_send(self, exchange: Exchange) -> None:
        failure = await self.connect(self._connect_timeout_s)
        self._opening = None
        if self.exchange is not exchange:
            return
        if failure is not None:
            self._end("refused", failure)
        elif self.connected:
            self._write(exchange, keep_start=True)

    def _write(self, exchange: Exchange, keep_start: bool = False) -> None:
        body = exchange.prompt.body
        message = b"%b%d\r\n\r\n%b" % (self._address.head, len(body), body)
        if not keep_start:
            exchange.sent_ns = monotonic_ns()
        self._transport.write(message)  # type: ignore[union-attr]

    def cancel(self, ending: str, error: str) -> None:
        """End the request in flight from our side; the connection is given up, as its state is unknown."""
        if self.exchange is not None:
            self._end(ending, error)

    # --- response ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._stamp(monotonic_ns())
        self._keep(data)
        if self._body is None or data.endswith(END_OF_CHUNKS) or len(data) < 5:
            self.look_for_end()

    def look_for_end(self) -> None:
        """Feed the framing with what it has not seen, and end the request when the response is complete."""
        if self.exchange is None:
            self._discard_stray_bytes()
            return
        try:
            complete = self._feed(b"".join(self._pieces[self._fed :]))
            self._fed = len(self._pieces)
        except FramingError as error:
            self._end("malformed", str(error))
            return
        if complete:
            self._end("complete")

    def _feed(self, data: bytes) -> bool:
        if self._head is None:
            self._beginning += data
            self._head = parse_head(self._beginning)
            if self._head is None:
                return False
            data, self._beginning = self._beginning[self._head.size :], b""
            if self._head.chunked:
                self._body = ChunkedBody()
        if self._body is not None:
            return self._body.feed(data)
        self._received += len(data)
        length = self._head.content_length
        if self._head.status in (204, 304):
            return True
        return length is not None and self._received >= length

    def _ended_by_close(self) -> bool:
        """A body without length or chunking ends where the connection ends (RFC 9112, 6.3, rule 8)."""
        with contextlib.suppress(FramingError):
            if self._feed(b"".join(self._pieces[self._fed :])):
                return True
        return self._head is not None and self._body is None and self._head.content_length is None

    def spill(self) -> None:
        """Move what has arrived out of memory; framing sees it first."""
        if self.exchange is not None and self._pieces:
            self.look_for_end()
            if self.exchange is not None:
                self._spool.move(self.exchange)
                self._fed = 0

    def _discard_stray_bytes(self) -> None:
        """Bytes between responses: nothing that we may give to a request, so the connection is given up."""
        self.close()

    def _end(self, ending: str, error: str | None = None) -> None:
        exchange = self.exchange
        assert exchange is not None
        exchange.end_ns = monotonic_ns()
        exchange.ending, exchange.error = ending, error
        self.exchange = None
        self._keep = self._stamp = _nothing
        self._pieces = []
        if ending != "complete" or self._head is None or not self._head.keeps_alive:
            self.close()
        good = ending == "complete" and self._head is not None and self._head.status < 400
        self.failures_in_row = 0 if good else self.failures_in_row + 1
        self._body = None
        self._on_end(self, exchange)


def _nothing(_: object) -> None:
    """Takes what arrives while no request is in flight."""
