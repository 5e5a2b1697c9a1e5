"""The steady window and what is counted inside it."""

from array import array

import numpy as np
import pytest

from reckoning.load.answers import Answer
from reckoning.load.records import chunks_of
from reckoning.load.window import (
    Interval,
    Window,
    mean_in_flight,
    most_in_flight,
    peak_tokens_per_s,
    phase,
    steady_window,
    tokens_inside,
)

S = 1_000_000_000


def busy(*spans: tuple[int, float, float]) -> list[Interval]:
    return [Interval(stream, int(start * S), int(end * S)) for stream, start, end in spans]


def test_window_runs_from_the_last_start_to_the_first_silence() -> None:
    intervals = busy((0, 0.0, 4.0), (0, 4.001, 8.0), (1, 1.0, 5.0), (1, 5.001, 9.0))
    assert steady_window(intervals, 2) == Window(1 * S, 8 * S)


def test_a_stream_that_pauses_breaks_the_window_and_the_longest_part_counts() -> None:
    intervals = busy((0, 0, 10), (1, 0, 2), (1, 3, 9))
    assert steady_window(intervals, 2) == Window(3 * S, 9 * S)


def test_no_window_when_the_streams_are_never_busy_together() -> None:
    window = steady_window(busy((0, 0, 1), (1, 2, 3)), 2)
    assert (window.start_ns, window.length_s) == (None, 0.0)
    assert steady_window([], 4).start_ns is None
    assert steady_window(busy((0, 0, 1)), 2).start_ns is None


def test_whole_cycles_of_streams_in_step_give_the_true_rate() -> None:
    """257 tokens in 2.66 s per request; three requests per stream end together."""
    intervals = busy(*[(stream, 2.66 * n, 2.66 * (n + 1)) for stream in range(8) for n in range(3)])
    window = steady_window(intervals, 8)
    tokens = 0
    for one in intervals:
        times = [one.start_ns + S // 10 + n * S // 100 for n in range(257)]
        tokens += tokens_inside(np.array(times), np.ones(257, dtype=int), window)
    assert tokens / window.length_s == pytest.approx(8 * 257 / 2.66, rel=1e-9)


def test_phases() -> None:
    window = Window(1 * S, 8 * S)
    assert phase(0, 4 * S, 0, 2, window) == "ramp"
    assert phase(4 * S, 8 * S, 1, 2, window) == "steady"
    assert phase(5 * S, 9 * S, 1, 2, window) == "drain"
    assert phase(1 * S, 4 * S, 0, 1, window) == "steady"
    assert phase(4 * S, 5 * S, 3, 2, Window(None, None)) == "ramp"


def test_concurrency_is_weighted_by_time() -> None:
    """CASE 41: 100 requests at 128 streams reach 100 at most."""
    intervals = busy(*[(n, 0, 1.0 + n / 100) for n in range(100)])
    assert most_in_flight(intervals) == 100
    mean = mean_in_flight(intervals, 0, int(1.99 * S))
    assert mean == pytest.approx(sum(1.0 + n / 100 for n in range(100)) / 1.99)
    assert mean_in_flight(intervals, 5, 5) is None


def test_a_request_that_begins_as_another_ends_is_not_two_at_once() -> None:
    assert most_in_flight(busy((0, 0, 1), (0, 1, 2))) == 1


def test_only_tokens_inside_the_window_count() -> None:
    assert tokens_inside(np.array([1, 2, 3, 4]), np.array([1, 4, 4, 4]), Window(1, 3)) == 8


def test_peak_counts_tokens_not_chunks() -> None:
    """CASE 34: 4 tokens every 40 ms are 100 a second at least once, although there are 25 chunks."""
    assert peak_tokens_per_s(np.arange(100) * 40_000_000, np.full(100, 4)) == 100.0
    assert peak_tokens_per_s(np.array([]), np.array([])) is None


def test_tokens_whose_chunk_is_unknown_are_spread_and_answers_without_a_count_left_out() -> None:
    told = Answer("ok", chunk_ns=array("q", [1, 2]), output_tokens=5, chunk_tokens=[1, 4])
    untold = Answer("ok", chunk_ns=array("q", [3, 4, 5]), output_tokens=10)
    unknown = Answer("ok", chunk_ns=array("q", [6]))
    times, tokens = chunks_of([told, unknown, untold])
    assert (times.tolist(), tokens.tolist()) == ([1, 2, 3, 4, 5], [1, 4, 3, 3, 4])
    assert [len(part) for part in chunks_of([])] == [0, 0]
