"""One request on the wire and what is known of its answer: which reads brought it and when, nothing interpreted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NO_NUMBERS: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
ENDINGS = (
    "complete",  # the response's last byte has arrived
    "refused",  # no connection
    "reset",  # the connection was lost before the end of the response
    "malformed",  # the peer does not speak HTTP/1.1
    "idle-timeout",
    "total-timeout",
    "cancelled",
)


@dataclass(frozen=True)
class Prompt:
    """What one request asks: the JSON body as bytes, ready to send, and what is known of it beforehand."""

    id: str
    body: bytes
    requested_tokens: int
    prompt_tokens: int | None = None


class Exchange:
    """A request and its raw answer. Times are CLOCK_MONOTONIC nanoseconds unless they say otherwise.

    When the point is over (`closed_loop.settle`), read i of the answer stands at `positions[i]` of the point's tape, is
    `sizes[i]` bytes long, and had arrived at `stamps[i]`.
    """

    __slots__ = (
        "end_ns",
        "ending",
        "error",
        "index",
        "new_connection",
        "positions",
        "prompt",
        "scheduled_ns",
        "sent_ns",
        "sizes",
        "stamps",
        "stream",
        "turn",
    )

    def __init__(self, index: int, stream: int, turn: int, prompt: Prompt, scheduled_ns: int | None = None) -> None:
        self.index = index
        self.stream = stream
        self.turn = turn  # 0 for the stream's first request
        self.prompt = prompt
        self.scheduled_ns = scheduled_ns  # planned arrival (open loop), None in a closed loop
        self.sent_ns = 0
        self.end_ns = 0
        self.positions = self.sizes = self.stamps = NO_NUMBERS
        self.ending: str | None = None
        self.error: str | None = None
        self.new_connection = False
