"""From the bytes of a response to server-sent events, each with the time at which its data had arrived. Pure."""

from __future__ import annotations

import bisect
import itertools
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .framing import ChunkedBody, FramingError, Head, parse_head

HEX_DIGITS = string.hexdigits.encode()


@dataclass(frozen=True)
class Response:
    """A decoded response. `events` are (time in ns, data) of each `data:` field; `body` holds what is not SSE.

    `fault` says what is wrong with its framing, or that its end is missing; None for a whole response.
    """

    head: Head | None
    events: Sequence[tuple[int, bytes]]
    body: bytes
    fault: str | None = None


def decode(raw: bytes, stamps: Sequence[int], sizes: Sequence[int]) -> Response:
    """Decode one response from its raw bytes, the times of the reads (ns) and the reads' lengths.

    An event's time is that of the read that brought the last byte of its `data` line: from then on it could be used.
    An incomplete response gives the events that did arrive.
    """
    try:
        head = parse_head(raw)
    except FramingError as error:
        return Response(None, [], raw, str(error))
    if head is None:
        return Response(None, [], b"", "the response head is not complete")
    declared = is_event_stream(head)
    if head.chunked and declared:
        events = _uniform_events(raw, head.size, stamps, sizes)
        if events is not None:
            return Response(head, events, b"")
    spans, fault = _body_spans(raw, head)
    if not declared and not _looks_like_events(raw, spans):
        return Response(head, [], b"".join(raw[start:end] for start, end in spans), fault)
    return Response(head, _events(raw, spans, list(itertools.accumulate(sizes)), stamps), b"", fault)


def is_event_stream(head: Head) -> bool:
    """Whether a response says that it is a stream of events."""
    return "text/event-stream" in head.headers.get("content-type", "")


def _uniform_events(
    raw: bytes, start: int, stamps: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, bytes]] | None:
    """Decode a whole body of one-line events, one per chunk, as all servers of the field send it; None if it is not.

    The same as `_events` for such a body, at a fraction of the cost. Nothing is taken for granted: every chunk's size
    is compared with its length, and every chunk must be `data: `, one line, and a blank line.
    """
    parts = raw.split(b"\r\n")[raw.count(b"\r\n", 0, start) :]
    counts, chunks = parts[0:-3:2], parts[1:-3:2]
    if parts[-3:] != [b"0", b"", b""] or len(counts) != len(chunks) or not chunks:
        return None
    if not all(counts) or b"".join(counts).translate(None, HEX_DIGITS):
        return None
    lengths = list(map(len, chunks))
    if list(map(int, counts, itertools.repeat(16))) != lengths:
        return None
    lines = [chunk[6:-2].strip() for chunk in chunks]
    if {chunk[:6] for chunk in chunks} != {b"data: "} or {chunk[-2:] for chunk in chunks} != {b"\n\n"}:
        return None
    if b"\n" in b"".join(lines):
        return None
    ends = np.cumsum(np.array(lengths) + np.array(list(map(len, counts))) + 4) + start
    line_feeds = ends - 4  # the one that ends each data line, before the blank line and the chunk's end
    read = np.searchsorted(np.cumsum(sizes), line_feeds, side="right")
    times = np.asarray(stamps, dtype=np.int64)[read].tolist()
    return list(zip(times, lines, strict=True))


def _looks_like_events(raw: bytes, spans: list[tuple[int, int]]) -> bool:
    return bool(spans) and raw[spans[0][0] : spans[0][0] + 5] in (b"data:", b"event", b": pin", b"id: ")


def _body_spans(raw: bytes, head: Head) -> tuple[list[tuple[int, int]], str | None]:
    """Return where the body's data lies, and what is wrong with its framing; what came before a fault is still true."""
    if not head.chunked:
        length, there = head.content_length, len(raw) - head.size
        fault = None if length is None or length == there else f"{there} of {length} bytes of the body came"
        return [(head.size, len(raw))] if there > 0 else [], fault
    body = ChunkedBody(keep_spans=True)
    fault = None
    try:
        if not body.feed(raw[head.size :]):
            fault = "the chunked body has no end"
    except FramingError as error:
        fault = str(error)
    return [(head.size + start, head.size + end) for start, end in body.spans], fault


def _events(
    raw: bytes, spans: list[tuple[int, int]], ends: list[int], stamps: Sequence[int]
) -> list[tuple[int, bytes]]:
    """Collect events: the `data:` lines up to a blank line (WHATWG HTML, 9.2.6), in the usual case one chunk each."""
    events: list[tuple[int, bytes]] = []
    slow: _Lines | None = None
    read = 0
    for start, end in spans:
        newline = raw.find(b"\n", start, end)
        if slow is None and newline == end - 2 and raw[start : start + 5] == b"data:" and raw[end - 1] == 10:
            if ends[read] <= newline:
                read = bisect.bisect_right(ends, newline, read)
            events.append((stamps[read], raw[start + 5 : newline].strip()))
            continue
        slow = slow or _Lines(events)
        at = start
        while at < end:
            newline = raw.find(b"\n", at, end)
            if newline < 0:
                slow.begin(raw[at:end])
                break
            if ends[read] <= newline:
                read = bisect.bisect_right(ends, newline, read)
            slow.take(raw[at:newline], stamps[read])
            at = newline + 1
        if slow.between_events:
            slow = None
    if slow is not None:
        slow.finish()
    return events


class _Lines:
    """Events whose lines do not coincide with chunks: state from line to line."""

    def __init__(self, events: list[tuple[int, bytes]]) -> None:
        self._events = events
        self._start_of_line = b""
        self._data: list[bytes] = []
        self._at_ns = 0

    @property
    def between_events(self) -> bool:
        return not self._start_of_line and not self._data

    def begin(self, part: bytes) -> None:
        self._start_of_line += part

    def take(self, rest: bytes, at_ns: int) -> None:
        line = (self._start_of_line + rest).rstrip(b"\r")
        self._start_of_line = b""
        if line[:5] == b"data:":
            self._data.append(line[5:].strip())
            self._at_ns = at_ns
        elif not line:
            self.finish()

    def finish(self) -> None:
        """A stream that is cut off after a whole `data` line still gives that event."""
        if self._data:
            self._events.append((self._at_ns, b"\n".join(self._data)))
            self._data = []
