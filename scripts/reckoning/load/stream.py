"""One client of the closed loop: a persistent HTTP/1.1 connection that carries one request after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns

from .ear import Ear
from .exchange import Exchange
from .framing import ChunkedBody, FramingError, Head, parse_head
from .tape import NO_EXCHANGE, Tape
from .wires import Wire, open_plain, open_tls

CONNECT_TIMEOUT_S = 60.0
END_OF_LINES = b"\r\n\r\n"  # of a last chunk and its trailers


@dataclass(frozen=True)
class Address:
    """Where requests go, and the part of the request head that all of them share."""

    host: str
    port: int
    head: bytes
    tls: bool = False


def request_head(host: str, port: int, path: str, api_key: str | None) -> bytes:
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
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1")


class Stream:
    """Sends requests and collects what comes back. `on_end(stream, exchange)` is called the moment one has ended."""

    __slots__ = (
        "_address",
        "_beginning",
        "_body",
        "_ear",
        "_fed",
        "_head",
        "_on_end",
        "_opening",
        "_received",
        "_since",
        "_tape",
        "_wire",
        "exchange",
        "failures_in_row",
        "number",
        "turns",
    )

    def __init__(
        self, number: int, address: Address, ear: Ear, tape: Tape, on_end: Callable[[Stream, Exchange], None]
    ) -> None:
        self.number = number
        self.turns = 0
        self.exchange: Exchange | None = None
        self.failures_in_row = 0
        self._address = address
        self._ear = ear
        self._tape = tape
        self._on_end = on_end
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._listen_to(None)

    def _listen_to(self, exchange: Exchange | None) -> None:
        """Direct what arrives to an exchange, or to nothing."""
        self.exchange = exchange
        if self._wire is not None:
            self._ear.expect(self._wire.number, NO_EXCHANGE if exchange is None else exchange.index)
        self._since = self._tape.length
        self._fed = 0  # bytes that the framing has seen already
        self._head: Head | None = None
        self._body: ChunkedBody | None = None
        self._beginning = b""  # what came before the head was complete
        self._received = 0  # bytes of body, when framed by length

    # --- connection ------------------------------------------------------------------------------------------------

    async def connect(self, timeout_s: float = CONNECT_TIMEOUT_S) -> str | None:
        """Open the connection; return None, or why it could not be opened."""
        address = self._address
        try:
            async with asyncio.timeout(timeout_s):
                if address.tls:
                    self._wire = await open_tls(self._ear, self, address.host, address.port)
                else:
                    self._wire = await open_plain(self._ear, self, address.host, address.port)
        except TimeoutError:
            return f"no connection to {address.host}:{address.port} within {timeout_s:g} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None

    def lost(self, wire: Wire, error: Exception | None) -> None:
        """The connection is gone: for a body that ends with the connection that is its end, else the request's."""
        if wire is not self._wire:
            return  # one that was given up before
        self._wire = None
        if self.exchange is None:
            return
        if error is None and self._ended_by_close():
            self._end("complete")
        else:
            self._end("reset", f"{type(error).__name__}: {error}" if error else "closed by the server before the end")

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._wire is not None:
            wire, self._wire = self._wire, None
            wire.close()

    # --- request ---------------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange) -> None:
        """Send a request now; opens the connection first when there is none."""
        self._listen_to(exchange)
        self.turns += 1
        message = b"%b%d\r\n\r\n%b" % (self._address.head, len(exchange.prompt.body), exchange.prompt.body)
        exchange.sent_ns = monotonic_ns()
        if self._wire is not None:
            self._wire.write(message)
        else:  # the time to connect is part of the request: a user would wait for it
            exchange.new_connection = True
            self._opening = asyncio.get_running_loop().create_task(self._connect_and_send(exchange, message))

    async def _connect_and_send(self, exchange: Exchange, message: bytes) -> None:
        failure = await self.connect()
        self._opening = None
        if self.exchange is not exchange:
            return
        if failure is not None:
            self._end("refused", failure)
        elif self._wire is not None:
            self._ear.expect(self._wire.number, exchange.index)
            self._wire.write(message)

    def cancel(self, ending: str, error: str) -> None:
        """End the request in flight from our side; the connection is given up, as its state is unknown."""
        if self.exchange is not None:
            self._end(ending, error)

    # --- response --------------------------------------------------------------------------------------------------

    def came(self, data: bytes) -> None:
        """Bytes of a response whose end is not known by its last bytes alone."""
        self._fed += len(data)
        try:
            complete = self._feed(data)
        except FramingError as error:
            self._end("malformed", str(error))
            return
        if complete:
            self._end("complete")

    def ended(self) -> None:
        """A last chunk came. Whether all before it was well framed is checked when the response is parsed."""
        self._end("complete")

    def strayed(self) -> None:
        """Bytes that belong to no request came between two: the connection cannot be trusted any more."""
        if self.exchange is not None:  # begun since
            self._end("reset", "bytes that belong to no request came before the response")
        else:
            self.close()

    def last_read_ns(self) -> int:
        """When something was last read for the running request, or when it was sent (monotonic ns)."""
        assert self.exchange is not None
        read_ns = self._ear.last_read_ns(self._wire.number) if self._wire is not None else 0
        return max(read_ns, self.exchange.sent_ns)

    def look_closely(self) -> None:
        """Feed the framing with what it has not seen: an end that is not the usual one, behind trailers for example."""
        if self.exchange is None or self._wire is None:
            return
        tail = self._ear.tail(self._wire.number)
        if not tail.endswith(END_OF_LINES) or tail.endswith(
            b"\n" + END_OF_LINES
        ):  # the latter ends an event with CRLFs
            return
        data = self._unseen()
        if data:
            self.came(data)

    def _unseen(self) -> bytes:
        assert self.exchange is not None
        return self._tape.read_running(self.exchange.index, self._since)[self._fed :]

    def _feed(self, data: bytes) -> bool:
        if self._head is None:
            self._beginning += data
            self._head = parse_head(self._beginning)
            if self._head is None:
                return False
            data, self._beginning = self._beginning[self._head.size :], b""
            if self._head.chunked:
                self._body = ChunkedBody()
                if self._wire is not None:
                    self._ear.trust_framing(self._wire.number)
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
            if self._feed(self._unseen()):
                return True
        return self._head is not None and self._body is None and self._head.content_length is None

    def _end(self, ending: str, error: str | None = None) -> None:
        exchange, head = self.exchange, self._head
        assert exchange is not None
        exchange.end_ns = monotonic_ns()
        exchange.ending, exchange.error = ending, error
        self._listen_to(None)
        if ending != "complete" or head is None or not head.keeps_alive:
            self.close()
        good = ending == "complete" and head is not None and head.status < 400
        self.failures_in_row = 0 if good else self.failures_in_row + 1
        self._on_end(self, exchange)
