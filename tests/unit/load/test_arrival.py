"""Arrival times: the kernel's where they can be trusted, else those of our reads."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from time import monotonic_ns

import numpy as np
import pytest

from reckoning.load.arrival import NO_NOTE, Offsets, arrivals, kernel_tells_times, kernel_times
from reckoning.load.exchange import Exchange, Prompt
from reckoning.load.framing import ChunkedBody
from reckoning.load.wires import Ear, PlainWire

needs_kernel_times = pytest.mark.skipif(not kernel_tells_times(), reason="this system does not tell receive times")
REAL_AHEAD_NS = 1_700_000_000_000_000_000


def offsets(*notes: tuple[int, int]) -> Offsets:
    made = Offsets()
    for at_ns, offset_ns in notes:
        made.add(at_ns, offset_ns)
    return made


def test_kernel_times_are_seconds_and_nanoseconds_and_missing_ones_stay_missing() -> None:
    notes = struct.pack("qq", 3, 5) + NO_NOTE + struct.pack("qq", 4, 0)
    assert kernel_times(notes).tolist() == [3_000_000_005, 0, 4_000_000_000]
    assert kernel_times(b"").tolist() == []


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


class Peer:
    """Both ends of a TCP connection; ours hangs on an Ear and writes into an exchange."""

    def __init__(self, ear: Ear) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        sock = socket.create_connection(listener.getsockname())
        sock.setblocking(False)
        self.far, _ = listener.accept()
        self.far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.close()
        self.exchange = Exchange(0, 0, 0, Prompt("p", b"{}", 1))
        self.exchange.sent_ns = monotonic_ns()
        self.keep, self.stamp, self.framed = self.exchange.reads.append, self.exchange.read_ns.append, True
        self.note = self.exchange.notes.extend
        self.looks = 0
        self.wire = PlainWire(ear, sock, self)

    def look_for_end(self) -> None:
        self.looks += 1

    def lost(self, wire: object, error: Exception | None) -> None:
        self.gone = error


@needs_kernel_times
def test_a_client_that_was_busy_still_knows_when_bytes_came() -> None:
    """Ours is blocked for 0.2 s; what came meanwhile has its own time, not that of the late read."""

    async def busy() -> tuple[Exchange, Offsets, int, int]:
        ear, clock = Ear(), Offsets()
        peer = Peer(ear)
        clock.note()
        before = monotonic_ns()
        peer.far.send(b"x\n\n\r\n")
        after = monotonic_ns()
        time.sleep(0.2)
        await asyncio.sleep(0.05)
        clock.note()
        ear.close()
        return peer.exchange, clock, before, after

    exchange, clock, before, after = asyncio.run(busy())
    assert exchange.read_ns[0] - after >= 200_000_000
    assert exchange.take_reads() == b"x\n\n\r\n"
    [arrived], [told] = arrivals(exchange.read_ns, exchange.kernel_ns, exchange.sent_ns, clock)
    assert told
    assert before - 1_000_000 <= arrived <= after + 20_000_000  # the clocks are compared to some microseconds


def test_an_event_larger_than_the_buffer_is_read_in_one_turn_and_the_buffer_grows() -> None:
    async def large() -> Peer:
        ear = Ear()
        peer = Peer(ear)
        peer.far.sendall(b"y" * 20_000)
        await asyncio.sleep(0.1)
        ear.hear()
        ear.close()
        return peer

    peer = asyncio.run(large())
    assert peer.exchange.take_reads() == b"y" * 20_000
    assert peer.wire.read_bytes > 1024


@needs_kernel_times
def test_at_high_rates_sockets_are_read_by_the_clock_and_at_low_rates_by_the_event() -> None:
    async def rates() -> list[bool]:
        ear = Ear()
        peer = Peer(ear)
        seen = []
        for pause_s, count in ((0.0001, 600), (0.02, 12)):
            for _ in range(count):
                peer.far.send(b"x\n\n\r\n")
                await asyncio.sleep(pause_s)
            seen.append(ear.paced)
        ear.close()
        assert b"".join(peer.exchange.reads) == b"x\n\n\r\n" * 612
        return seen

    assert asyncio.run(rates())[1] is False


def test_the_pace_follows_the_rate_of_reads() -> None:
    async def paces() -> list[bool]:
        ear = Ear()
        seen = [ear.paced]
        for reads, told in ((500, False), (500, True), (120, True), (50, True), (500, True), (500, False)):
            ear.reads += reads
            ear._kernel_times, ear._window_ns = told, 0
            ear._choose_pace()
            seen.append(ear.paced)
        ear.close()
        return seen

    assert asyncio.run(paces()) == [False, False, True, True, False, True, False]


@needs_kernel_times
def test_rounds_without_a_read_do_not_end_the_pace() -> None:
    """Bursts every 10 ms of 160 reads: most of the millisecond rounds find nothing."""

    async def bursts() -> list[bool]:
        ear = Ear()
        peers = [Peer(ear) for _ in range(160)]
        seen = []
        for _ in range(30):
            for peer in peers:
                peer.far.send(b"x\n\n\r\n")
            await asyncio.sleep(0.01)
            seen.append(ear.paced)
        ear.close()
        return seen

    seen = asyncio.run(bursts())
    assert seen[-1]
    assert seen.index(True) < 10
    assert sum(before != after for before, after in itertools.pairwise(seen)) <= 1


def test_the_usual_end_of_a_read_is_no_end_of_a_body() -> None:
    assert ChunkedBody().feed(b"5\r\nab\n\n\n\r\n") is False
