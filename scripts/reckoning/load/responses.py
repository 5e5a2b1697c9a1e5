"""All responses of a point, from the bytes on its tape to what they say.

The usual ones are taken apart many at a time by `hot_path.c`; whatever else a response may be is left to
`reckoning.load.events` and `reckoning.load.answers`, which understand every response, and the usual ones alike.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from .answers import Answer, Reading, Usage, conclude, understand, usage_of
from .events import decode, is_event_stream
from .exchange import Exchange
from .framing import FramingError, Head, parse_head
from .hot_path import library, pointer_to
from .tape import Tape

BATCH_BYTES = 1 << 20  # with what is made of them they stay in the processor's cache
SHORTEST_CHUNK = 32  # bytes: a shorter event cannot bring a token


class Usual(NamedTuple):
    """A usual response; the same as `response` in hot_path.c."""

    head: int  # bytes; 0: this response is not usual
    chunks: int
    total: int
    with_text: int
    first_content_ns: int
    done: int
    usage_begin: int
    usage_end: int
    reason_begin: int
    reason_end: int
    text_end: int


RESPONSE = np.dtype([(name, "i8") for name in Usual._fields])


def understand_all(exchanges: Sequence[Exchange], tape: Tape) -> list[Answer]:
    """Return what each exchange's response says. The point is over, and settled."""
    code = library()
    if code is None:
        return [understand_exchange(exchange, tape) for exchange in exchanges]
    return [answer for batch in _batches(exchanges) for answer in _understand_batch(code, batch, tape)]


def understand_exchange(exchange: Exchange, tape: Tape) -> Answer:
    """Return what one exchange's response says."""
    return _understand_raw(exchange, tape.read(exchange.positions, exchange.sizes))


def _understand_raw(exchange: Exchange, raw: bytes) -> Answer:
    return understand(decode(raw, exchange.stamps, exchange.sizes), exchange.ending or "cancelled", exchange.error)


def _batches(exchanges: Sequence[Exchange]) -> Iterator[Sequence[Exchange]]:
    """Divide into runs that are just longer than BATCH_BYTES, and a rest."""
    begin = held = 0
    for number, exchange in enumerate(exchanges, 1):
        held += int(exchange.sizes.sum())
        if held >= BATCH_BYTES or number == len(exchanges):
            yield exchanges[begin:number]
            begin, held = number, 0


def _understand_batch(code: ctypes.CDLL, exchanges: Sequence[Exchange], tape: Tape) -> Iterator[Answer]:
    sizes = np.concatenate([exchange.sizes for exchange in exchanges])
    stamps = np.concatenate([exchange.stamps for exchange in exchanges])
    raw = tape.read(np.concatenate([exchange.positions for exchange in exchanges]), sizes)
    bounds = np.cumsum([0, *(len(exchange.sizes) for exchange in exchanges)])
    found = np.empty(len(exchanges), dtype=RESPONSE)
    chunk_ns, chunk_counts = np.empty((2, len(raw) // SHORTEST_CHUNK), dtype=np.int64)
    texts = np.empty(len(raw), dtype=np.uint8)
    given, taken = (sizes, stamps, bounds), (found, chunk_ns, chunk_counts)
    code.understand(
        raw, *map(pointer_to, given), len(exchanges), *map(pointer_to, taken), len(chunk_ns), pointer_to(texts)
    )
    places = np.concatenate([[0], np.cumsum(sizes)])[bounds].tolist()
    counts = chunk_counts[: found["chunks"].sum()].tolist()
    chunk = text = 0
    for exchange, begin, end, row in zip(exchanges, places[:-1], places[1:], found.tolist(), strict=True):
        usual = Usual(*row)
        chunks, words = slice(chunk, chunk + usual.chunks), slice(text, usual.text_end)
        chunk, text = chunks.stop, words.stop
        head = _usual_head(raw[begin : begin + usual.head])
        if head is None:
            yield _understand_raw(exchange, raw[begin:end])
        else:
            answer = Answer("ok", http_status=head.status, chunk_ns=array("q", chunk_ns[chunks].tobytes()))
            reading = _read_usual(answer, usual, raw, texts[words].tobytes(), counts[chunks])
            yield conclude(reading, exchange.ending or "cancelled", exchange.error)


def _read_usual(answer: Answer, usual: Usual, raw: bytes, text: bytes, counts: list[int]) -> Reading:
    """Return what `answers` would have read, event by event. `text` is a JSON string."""
    if usual.reason_begin >= 0:
        answer.finish_reason = raw[usual.reason_begin : usual.reason_end].decode()
    if usual.first_content_ns >= 0:
        answer.first_content_ns = usual.first_content_ns
    return Reading(
        answer,
        texts=[msgspec.json.decode(text)],
        with_text=usual.with_text,
        chunk_counts=counts,
        total=usual.total if usual.total >= 0 else None,
        usage=usage_of(raw[usual.usage_begin : usual.usage_end]) if usual.usage_begin >= 0 else Usage(),
        finished=bool(usual.done) or usual.reason_begin >= 0,
    )


def _usual_head(data: bytes) -> Head | None:
    """Return the head of a usual response; None where a response is not usual, by its head or altogether."""
    try:
        head = parse_head(data)
    except FramingError:
        return None
    usual = head is not None and head.chunked and is_event_stream(head) and head.status < 300
    return head if usual else None
