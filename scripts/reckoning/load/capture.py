"""The raw capture of a point: every byte that came and when, compressed, for whoever wants to check the numbers.

A Zstandard stream; for each request one line of JSON (see `HEADER_KEYS`), then `length` raw bytes of the response, then
a line feed. `read_capture` with `reckoning.load.events.decode` and `reckoning.load.answers.understand` gives the same
rows again.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from reckoning.files import replacing

from .exchange import Exchange
from .tape import Tape

HEADER_KEYS = (
    "point",
    "request",
    "stream",
    "prompt_id",
    "requested_tokens",
    "sent_ns",
    "end_ns",
    "ending",
    "error",
    "stamps_ns",
    "sizes",
    "length",
)


@dataclass(frozen=True)
class Captured:
    """One request of a capture: its header and the response's bytes."""

    header: dict[str, Any]
    raw: bytes

    @property
    def stamps(self) -> array[int]:
        return array("q", self.header["stamps_ns"])

    @property
    def sizes(self) -> array[int]:
        return array("q", self.header["sizes"])


def write_capture(path: Path, point: int, exchanges: Sequence[Exchange], tape: Tape) -> None:
    """Write all responses of a point to `path`, whole or not at all."""
    compressor = zstandard.ZstdCompressor(level=3)
    with replacing(path) as temporary, temporary.open("wb") as file, compressor.stream_writer(file) as stream:
        for exchange in exchanges:
            raw = tape.read(exchange.positions, exchange.sizes)
            values = (
                point,
                exchange.index,
                exchange.stream,
                exchange.prompt.id,
                exchange.prompt.requested_tokens,
                exchange.sent_ns,
                exchange.end_ns,
                exchange.ending,
                exchange.error,
                exchange.stamps.tolist(),
                exchange.sizes.tolist(),
                len(raw),
            )
            stream.write(json.dumps(dict(zip(HEADER_KEYS, values, strict=True))).encode() + b"\n")
            stream.write(raw + b"\n")


def read_capture(path: Path) -> Iterator[Captured]:
    """Yield the requests of a capture in the order in which they began."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        rest = b""
        while True:
            line, rest = _line(stream, rest)
            if not line:
                return
            header = json.loads(line)
            while len(rest) <= header["length"]:
                more = stream.read(1 << 20)
                if not more:
                    raise ValueError(f"{path} ends inside request {header['request']}")
                rest += more
            yield Captured(header, rest[: header["length"]])
            rest = rest[header["length"] + 1 :]


def _line(stream: Any, rest: bytes) -> tuple[bytes, bytes]:
    while b"\n" not in rest:
        more = stream.read(1 << 16)
        if not more:
            return rest, b""
        rest += more
    line, _, rest = rest.partition(b"\n")
    return line, rest
