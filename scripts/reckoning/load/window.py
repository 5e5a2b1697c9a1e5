"""The steady window of a point and the numbers inside it. Pure; times in monotonic ns.

A stream is *busy* while a request of its is in flight. The steady window is the longest span in which all C streams
are busy: it begins when the last stream has sent its first request and ends when the first stream finds nothing more to
do. Between two requests of one stream lie some microseconds, which count as busy. In a closed loop the window therefore
holds whole request cycles of streams that run in step, so a short point is not biased by a fraction of a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Interval:
    """A request's time in flight."""

    stream: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Window:
    """The steady window; both None when the C streams were never busy together."""

    start_ns: int | None
    end_ns: int | None

    @property
    def length_s(self) -> float:
        return 0.0 if self.start_ns is None or self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    def holds(self, at_ns: int) -> bool:
        return self.start_ns is not None and self.end_ns is not None and self.start_ns < at_ns <= self.end_ns


def steady_window(intervals: Sequence[Interval], concurrency: int, longest_gap_ns: int = 5_000_000) -> Window:
    """Return the longest span with all `concurrency` streams busy.

    A gap of at most `longest_gap_ns` between two requests of a stream counts as busy; a pause after a failure does not.
    """
    changes: list[tuple[int, int]] = []
    for start, end in _busy_spans(intervals, longest_gap_ns):
        changes += [(start, 1), (end, -1)]
    changes.sort(key=lambda change: (change[0], -change[1]))
    best = Window(None, None)
    busy, since = 0, 0
    for at, change in changes:
        if busy == concurrency and change < 0 and (at - since) / 1e9 > best.length_s:
            best = Window(since, at)
        busy += change
        if busy == concurrency and change > 0:
            since = at
    return best


def open_loop_window(start_ns: int, stop_ns: int | None, end_ns: int) -> Window:
    """Return the window of a point with planned arrivals: from the start to the last arrival."""
    return Window(start_ns, stop_ns or end_ns) if (stop_ns or end_ns) > start_ns else Window(None, None)


def _busy_spans(intervals: Iterable[Interval], longest_gap_ns: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    by_stream: dict[int, list[Interval]] = {}
    for interval in intervals:
        by_stream.setdefault(interval.stream, []).append(interval)
    for own in by_stream.values():
        own.sort(key=lambda interval: interval.start_ns)
        start, end = own[0].start_ns, own[0].end_ns
        for interval in own[1:]:
            if interval.start_ns - end > longest_gap_ns:
                spans.append((start, end))
                start = interval.start_ns
            end = interval.end_ns
        spans.append((start, end))
    return spans


def phase(start_ns: int, end_ns: int, turn: int, concurrency: int, window: Window) -> str:
    """Return `ramp`, `steady` or `drain` for a request.

    ramp: a stream's first request (the C first requests arrive together, which later ones do not; with C = 1 there is
    no such burst). drain: it was still running when the first stream fell silent. Without a window everything is ramp.
    """
    if window.start_ns is None or window.end_ns is None or (turn == 0 and concurrency > 1):
        return "ramp"
    return "drain" if end_ns > window.end_ns else "steady" if start_ns >= window.start_ns else "ramp"


def mean_in_flight(intervals: Iterable[Interval], start_ns: int, end_ns: int) -> float | None:
    """Return the time-weighted mean number of requests in flight between two moments."""
    if end_ns <= start_ns:
        return None
    total = sum(max(0, min(one.end_ns, end_ns) - max(one.start_ns, start_ns)) for one in intervals)
    return total / (end_ns - start_ns)


def most_in_flight(intervals: Iterable[Interval]) -> int:
    """Return the largest number of requests that were in flight at one moment."""
    changes = sorted((at, change) for one in intervals for at, change in ((one.start_ns, 1), (one.end_ns, -1)))
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def tokens_inside(chunk_ns: npt.NDArray[np.int64], chunk_tokens: npt.NDArray[np.int64], window: Window) -> int:
    """Return the tokens that arrived inside the window: after its start, at its end at the latest."""
    if window.start_ns is None or window.end_ns is None:
        return 0
    return int(chunk_tokens[(chunk_ns > window.start_ns) & (chunk_ns <= window.end_ns)].sum())


def peak_tokens_per_s(chunk_ns: npt.NDArray[np.int64], chunk_tokens: npt.NDArray[np.int64]) -> float | None:
    """Return the largest number of tokens in any one second, from the chunks' times in any order; None without any."""
    if not len(chunk_ns):
        return None
    order = np.argsort(chunk_ns, kind="stable")
    times, until = chunk_ns[order], np.concatenate([[0], np.cumsum(chunk_tokens[order])])
    first = np.searchsorted(times, times - 1_000_000_000, side="right")
    return float((until[1:] - until[first]).max())
