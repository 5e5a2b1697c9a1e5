"""HTTP/1.1 message framing: where a response's head ends, and where its body ends. Pure, incremental, no time in it.

The client must know the exact end of a response to start the next request of a persistent stream at once, and the
parser must know which bytes are body. RFC 9112, sections 6 and 7.1.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

END_OF_CHUNKS = b"0\r\n\r\n"
LAST_CHUNK = b"\r\n" + END_OF_CHUNKS  # as it follows the chunk before it, or the head
LONGEST_HEAD = 65536
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+[ \t]*")  # int() alone takes signs, underscores and line feeds as well


class FramingError(ValueError):
    """The peer does not speak HTTP/1.1 as RFC 9112 defines it."""


@dataclass(frozen=True)
class Head:
    """A response's status line and headers. `size` is their length in bytes, the blank line included."""

    status: int
    headers: dict[str, str]
    size: int
    version: str

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def content_length(self) -> int | None:
        value = self.headers.get("content-length")
        return int(value) if value is not None and _is_number(value) else None

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may carry the next request."""
        connection = self.headers.get("connection", "").lower()
        return "keep-alive" in connection if self.version == "HTTP/1.0" else "close" not in connection


def parse_head(data: bytes) -> Head | None:
    """Return the head at the start of `data`, or None when it is not complete; interim 1xx responses are skipped.

    Raises FramingError when `data` cannot be the start of an HTTP/1.x response.
    """
    start = 0
    while True:
        end = data.find(b"\r\n\r\n", start)
        if end < 0:
            if not (b"HTTP/1." + data[start + 7 :] if len(data) - start < 7 else data[start:]).startswith(b"HTTP/1."):
                raise FramingError(f"not an HTTP/1.x response: {data[start : start + 40]!r}")
            if len(data) - start > LONGEST_HEAD:
                raise FramingError(f"no end of the response head within {LONGEST_HEAD} bytes")
            return None
        head = _parse_whole_head(data[start : end + 4])
        if not 100 <= head.status < 200:
            return head if start == 0 else replace(head, size=end + 4)
        start = end + 4


@functools.lru_cache(maxsize=64)  # a server's heads differ by their date at most
def _parse_whole_head(data: bytes) -> Head:
    lines = data[:-4].decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not _is_number(code):
        raise FramingError(f"not an HTTP/1.x status line: {lines[0][:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Head(int(code), headers, len(data), version)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # `isdigit` alone takes a superscript two, which latin-1 has


class ChunkedBody:
    """Incremental decoder of the chunked transfer coding: feed bytes, learn whether the body is complete.

    `spans` (when asked for) lists [start, end) of chunk data in the stream of bytes fed so far; a chunk that came in
    several pieces has as many spans.
    """

    def __init__(self, keep_spans: bool = False) -> None:
        self.complete = False
        self.spans: list[tuple[int, int]] = []
        self._keep_spans = keep_spans
        self._left_of_data = 0  # bytes of the running chunk's data still to come
        self._left_of_line_end = 0  # and of the CRLF behind it
        self._line = b""  # an unfinished size or trailer line
        self._in_trailer = False
        self._position = 0

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; return whether the body is complete. Bytes after the end raise FramingError."""
        base = self._position - len(self._line)
        self._position += len(data)
        if self._line:
            data = self._line + data
            self._line = b""
        at, size = 0, len(data)
        while at < size:
            if self._left_of_data:
                step = min(self._left_of_data, size - at)
                if self._keep_spans:
                    self.spans.append((base + at, base + at + step))
                self._left_of_data -= step
                at += step
            elif self._left_of_line_end:
                if data[at] != b"\r\n"[-self._left_of_line_end]:
                    raise FramingError(f"a chunk is not followed by a line end but by {data[at : at + 2]!r}")
                self._left_of_line_end -= 1
                at += 1
            elif self.complete:
                raise FramingError("bytes after the end of the response")
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._line = data[at:]
                    if len(self._line) > LONGEST_HEAD:
                        raise FramingError("a chunk size line without end")
                    break
                self._take_line(data[at:end])
                at = end + 2
                if 0 < self._left_of_data <= size - at - 2:  # the whole chunk is here: the usual case, in one step
                    if self._keep_spans:
                        self.spans.append((base + at, base + at + self._left_of_data))
                    at += self._left_of_data + 2
                    if data[at - 2 : at] != b"\r\n":
                        raise FramingError(f"a chunk is not followed by a line end but by {data[at - 2 : at]!r}")
                    self._left_of_data = self._left_of_line_end = 0
        return self.complete

    def _take_line(self, line: bytes) -> None:
        if self._in_trailer:
            self.complete = not line
            return
        size = line if b";" not in line else line.partition(b";")[0]
        if not CHUNK_SIZE.fullmatch(size):
            raise FramingError(f"not a chunk size: {line[:40]!r}")
        self._left_of_data = int(size, 16)
        self._in_trailer = self._left_of_data == 0
        self._left_of_line_end = 0 if self._in_trailer else 2
