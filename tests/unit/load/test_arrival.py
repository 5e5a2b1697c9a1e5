"""Arrival times: the kernel's where they can be trusted, else those of our reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from reckoning.load import arrival
from reckoning.load.arrival import Offsets, kernel_time

REAL_AHEAD_NS = 1_700_000_000_000_000_000


def offsets(*notes: tuple[int, int]) -> Offsets:
    made = Offsets()
    for at_ns, offset_ns in notes:
        made.add(at_ns, offset_ns)
    return made


def arrivals(
    read_ns: Sequence[int], kernel_ns: Sequence[int], sent_ns: int, clock: Offsets
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Of one response."""
    read, kernel = np.array(read_ns, dtype=np.int64), np.array(kernel_ns, dtype=np.int64)
    return arrival.arrivals(read, kernel, [sent_ns], np.array([0, len(read)]), clock)


def test_kernel_times_are_seconds_and_nanoseconds_and_missing_ones_stay_missing() -> None:
    assert kernel_time([(1, 35, struct.pack("qq", 3, 5))]) == 3_000_000_005
    assert kernel_time([]) == 0


def test_times_never_fall_within_a_response_and_responses_do_not_touch_each_other() -> None:
    """The second read of the first response and the third of the second say a time before the read before them."""
    clock = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS))
    kernel = REAL_AHEAD_NS + np.array([4, 3, 5, 1, 6, 2, 7]) * 1_000_000
    read = np.full(7, 8_000_000)
    times, told = arrival.arrivals(read, kernel, [0, 0], np.array([0, 3, 7]), clock)
    assert (times // 1_000_000).tolist() == [4, 4, 5, 1, 6, 6, 7]
    assert told.tolist() == [True, False, True, True, True, False, True]


def test_arrival_is_the_kernels_time_on_the_monotonic_clock() -> None:
    clock = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS + 200))
    times, told = arrivals([5_000_000, 9_000_000], [REAL_AHEAD_NS + 4_000_000, REAL_AHEAD_NS + 7_000_000], 0, clock)
    assert times.tolist() == [4_000_000, 7_000_000]
    assert told.tolist() == [True, True]


def test_each_read_is_brought_over_by_the_offset_noted_before_it() -> None:
    clock = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS + 200), (20_000_000, REAL_AHEAD_NS + 400))
    times, told = arrivals([15_000_000], [REAL_AHEAD_NS + 200 + 14_000_000], 0, clock)
    assert (times.tolist(), told.tolist()) == ([14_000_000], [True])


def test_a_first_read_cannot_have_come_before_its_request() -> None:
    clock = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS))
    times, told = arrivals([5_000_000], [REAL_AHEAD_NS + 900_000], 1_000_000, clock)
    assert (times.tolist(), told.tolist()) == ([5_000_000], [False])


@pytest.mark.parametrize(
    ("why", "kernel_ns"),
    [
        ("the kernel told nothing", 0),
        ("before the request was sent", REAL_AHEAD_NS + 900_000),
        ("after our own read", REAL_AHEAD_NS + 5_000_001),
        ("before the read before", REAL_AHEAD_NS + 1_900_000),
    ],
)
def test_an_impossible_kernel_time_is_not_used(why: str, kernel_ns: int) -> None:
    clock = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS))
    times, told = arrivals([2_000_000, 5_000_000], [REAL_AHEAD_NS + 2_000_000, kernel_ns], 1_000_000, clock)
    assert told.tolist() == [True, False], why
    assert times[0] == 2_000_000
    assert times[1] in (2_000_000, 5_000_000)  # never before the read before it
    assert (np.diff(times) >= 0).all()


def test_near_a_step_of_the_clock_and_outside_the_notes_our_reads_count() -> None:
    stepped = offsets((0, REAL_AHEAD_NS), (10_000_000, REAL_AHEAD_NS), (20_000_000, REAL_AHEAD_NS + 3_000_000_000))
    at = [5_000_000, 15_000_000, 25_000_000]
    times, told = arrivals(at, [REAL_AHEAD_NS + ns - 1000 for ns in at], 0, stepped)
    assert told.tolist() == [True, False, False]
    assert times.tolist() == [4_999_000, 15_000_000, 25_000_000]
    assert arrivals([5], [REAL_AHEAD_NS], 0, Offsets())[1].tolist() == [False]
