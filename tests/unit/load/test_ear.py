"""The hot path, compiled and in Python: what is read, when, and which reads leave a sign."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from time import monotonic_ns

import pytest

from reckoning.load.arrival import Offsets, arrivals, kernel_tells_times
from reckoning.load.ear import Ear, listen, open_ear
from reckoning.load.tape import Tape
from reckoning.load.wires import PlainWire

needs_kernel_times = pytest.mark.skipif(not kernel_tells_times(), reason="this system does not tell receive times")
pytestmark = pytest.mark.usefixtures("hot_path")
EVENT = b"x\n\n\r\n"


class Peer:
    """Both ends of a TCP connection; ours hangs on an Ear, its bytes belong to an exchange, and signs are noted."""

    def __init__(self, ear: Ear, exchange: int = 0, *, framed: bool = True) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        sock = socket.create_connection(listener.getsockname())
        sock.setblocking(False)
        self.far, _ = listener.accept()
        self.far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.close()
        self.heard: list[object] = []
        self.wire = PlainWire(ear, sock, self)
        ear.expect(self.wire.number, exchange)
        if framed:
            ear.trust_framing(self.wire.number)

    def came(self, data: bytes) -> None:
        self.heard.append(data)

    def ended(self) -> None:
        self.heard.append("ended")

    def strayed(self) -> None:
        self.heard.append("strayed")

    def lost(self, wire: object, error: Exception | None) -> None:
        self.heard.append(error)


def text_of(tape: Tape, exchange: int) -> bytes:
    rows = tape.rows(exchange + 1)
    own = slice(rows.bounds[exchange], rows.bounds[exchange + 1])
    return tape.read(rows.position[own], rows.size[own])


@needs_kernel_times
def test_a_client_that_was_busy_still_knows_when_bytes_came() -> None:
    """Ours is blocked for 0.2 s; what came meanwhile has its own time, not that of the late read."""
    tape = Tape()

    async def busy() -> tuple[Offsets, int, int]:
        ear, clock = open_ear(tape), Offsets()
        peer = Peer(ear)
        await asyncio.sleep(0.02)  # the kernel begins to note times a moment after the first socket asked for it
        clock.note()
        before = monotonic_ns()
        peer.far.send(EVENT)
        after = monotonic_ns()
        time.sleep(0.2)
        await asyncio.sleep(0.05)
        clock.note()
        ear.close()
        return clock, before, after

    sent = monotonic_ns()
    clock, before, after = listen(busy())
    rows = tape.rows(1)
    assert rows.read_ns[0] - after >= 200_000_000
    assert tape.read(rows.position, rows.size) == EVENT
    [arrived], [told] = arrivals(rows.read_ns, rows.kernel_ns, [sent], rows.bounds, clock)
    assert told
    assert before - 1_000_000 <= arrived <= after + 20_000_000  # the clocks are compared to some microseconds


def test_what_is_larger_than_one_read_comes_whole_and_in_order() -> None:
    """Half a megabyte at once: many full reads of one socket, over several blocks of the tape."""
    message = b"".join(b"%07d\n" % n for n in range(600_000))
    tape = Tape()

    async def large() -> None:
        ear = open_ear(tape)
        peer = Peer(ear)
        peer.far.settimeout(10)  # a reader that stops fails, and does not hang
        sender = asyncio.get_running_loop().run_in_executor(None, peer.far.sendall, message)
        await sender
        await asyncio.sleep(0.3)
        ear.close()

    listen(large())
    assert text_of(tape, 0) == message


def test_each_stream_has_its_own_bytes() -> None:
    tape = Tape()

    async def many() -> None:
        ear = open_ear(tape)
        peers = [Peer(ear, n) for n in range(40)]
        for turn in range(30):
            for n, peer in enumerate(peers):
                if (n + turn) % 3:
                    peer.far.send(b"%d.%d %b" % (n, turn, EVENT))
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)
        ear.close()

    listen(many())
    for n in range(40):
        assert text_of(tape, n) == b"".join(b"%d.%d %b" % (n, turn, EVENT) for turn in range(30) if (n + turn) % 3)


@pytest.mark.parametrize(
    ("pieces", "signs"),
    [
        ([b"ab\n\n\r\n", b"cd\n\n\r\n"], []),
        ([b"ab\n\n\r\n0\r\n\r\n"], ["ended"]),
        ([b"ab\n\n\r\n", b"0\r\n\r\n"], ["ended"]),
        ([b"ab\n\n", b"\r", b"\n", b"0", b"\r", b"\n\r", b"\n"], ["ended"]),
        ([b"10\r\n\r\n"], []),  # not behind a line end
        ([b"ab\r\n0\r\n\r\nmore"], []),
    ],
)
def test_a_framed_stream_is_looked_at_only_at_its_last_chunk(pieces: list[bytes], signs: list[str]) -> None:
    async def speak() -> list[object]:
        ear = open_ear(Tape())
        peer = Peer(ear)
        for piece in pieces:
            peer.far.send(piece)
            await asyncio.sleep(0.01)
        ear.close()
        return peer.heard

    assert listen(speak()) == signs


def test_unframed_bytes_are_handed_on_stray_ones_and_a_lost_connection_are_told() -> None:
    async def speak() -> tuple[list[object], list[object], list[object]]:
        ear = open_ear(Tape())
        unframed, stray, reset = Peer(ear, 0, framed=False), Peer(ear, -1), Peer(ear, 1)
        unframed.far.send(b"HTTP/1.1 200 OK\r\n")
        stray.far.send(b"what?")
        await asyncio.sleep(0.02)
        unframed.far.send(b"0\r\n\r\n")
        unframed.far.close()  # with the last bytes: both must be told
        reset.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.far.close()
        await asyncio.sleep(0.05)
        ear.close()
        return unframed.heard, stray.heard, reset.heard

    unframed, stray, reset = listen(speak())
    assert unframed == [b"HTTP/1.1 200 OK\r\n", b"0\r\n\r\n", None]
    assert stray == ["strayed"]
    assert [type(error) for error in reset] == [ConnectionResetError]


def test_a_sign_of_a_request_that_is_over_does_not_end_the_next_one() -> None:
    async def speak() -> list[object]:
        ear = open_ear(Tape())
        peer = Peer(ear, 0)
        peer.far.send(b"ab\n\n\r\n0\r\n\r\n")
        time.sleep(0.01)
        ear.hear()
        assert len(ear.signs) == 1
        ear.expect(peer.wire.number, 1)  # before the loop came to act upon the sign
        await asyncio.sleep(0.02)
        ear.close()
        return peer.heard

    assert listen(speak()) == []


@needs_kernel_times
def test_the_loop_is_not_woken_for_tokens_and_its_timers_are_kept() -> None:
    """A stream of 2000 events in a second, while a timer of 20 ms runs: it is late by the pace at most."""

    async def timers() -> list[float]:
        ear = open_ear(Tape())
        peer = Peer(ear)

        def send() -> None:
            for _ in range(500):
                peer.far.send(EVENT)
                time.sleep(0.0005)

        sender = asyncio.get_running_loop().run_in_executor(None, send)
        late = []
        for _ in range(20):
            asked = time.monotonic()
            await asyncio.sleep(0.02)
            late.append(time.monotonic() - asked - 0.02)
        await sender
        ear.close()
        return late

    assert sorted(listen(timers()))[10] < 0.01


@needs_kernel_times
def test_at_low_rates_sockets_are_read_by_the_event() -> None:
    tape = Tape()

    async def rates() -> bool:
        ear = open_ear(tape)
        peer = Peer(ear)
        for pause_s, count in ((0.0001, 600), (0.02, 12)):
            for _ in range(count):
                peer.far.send(EVENT)
                await asyncio.sleep(pause_s)
        paced = ear.paced
        ear.close()
        return paced

    assert listen(rates()) is False
    assert text_of(tape, 0) == EVENT * 612


def test_the_pace_follows_the_rate_of_reads() -> None:
    async def paces() -> list[bool]:
        ear = open_ear(Tape())
        seen = [ear.paced]
        for rate, told in (
            (9000, False),
            (9000, True),
            (3000, True),
            (2000, True),
            (3000, True),
            (9000, True),
            (9000, False),
        ):
            ear.reads, ear.kernel_told = ear.reads + rate, told
            ear._window_began_ns -= 1_000_000_000
            ear.choose_pace()
            seen.append(ear.paced)
        ear.close()
        return seen

    assert listen(paces()) == [False, False, True, True, False, False, True, False]


@needs_kernel_times
def test_rounds_without_a_read_do_not_end_the_pace() -> None:
    """Of bursts every 10 ms most of the millisecond rounds find nothing, and know nothing new."""

    async def rounds() -> list[tuple[int, bool]]:
        ear = open_ear(Tape())
        peer = Peer(ear)
        while not ear.kernel_told:  # the kernel begins a moment after it was asked
            peer.far.send(EVENT)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.03)  # until all is read
        seen, reads = [], ear.reads
        for _ in range(2):
            ear.hear_round()
            seen.append((ear.reads - reads, ear.kernel_told))
        ear.close()
        return seen

    assert listen(rounds()) == [(0, True), (0, True)]


def test_an_ear_needs_its_own_event_loop() -> None:
    async def wrong() -> None:
        open_ear(Tape())

    with pytest.raises(TypeError, match="listen"):
        asyncio.run(wrong())
