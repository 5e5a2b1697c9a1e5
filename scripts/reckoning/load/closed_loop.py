"""Runs one point: C streams, each starting its next request the moment the last one ended (or a Poisson schedule).

Nothing is parsed here. The result is a list of exchanges and the marks of the point; `reckoning.load.window` and
`reckoning.load.answers` make numbers of them when the point is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import random
import resource
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

import numpy as np

from .arrival import Offsets, arrivals
from .ear import open_ear
from .exchange import Exchange, Prompt
from .stream import Address, Stream
from .tape import Tape

TICK_S = 0.05  # of what happens beside: each costs as much as reading some tokens
LOOKED_AFTER_EVERY = 4  # ticks
MAKE_ROOM_FOR_NS = 2_000_000  # of every tick
MISSED_END_NS = 100_000_000
ALIVE_EVERY_S = 0.5
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True)
class Course:
    """When a point begins new requests and when it stops."""

    concurrency: int
    requests: int | None  # asked for; None: the duration alone decides
    min_duration_s: float = 0.0
    max_duration_s: float | None = None
    request_idle_s: float = 300.0
    request_total_s: float = 3600.0
    rate_per_s: float | None = None  # Poisson arrivals; None: closed loop
    seed: int = 0
    drain: str = "finish"  # or "cancel": what happens to requests in flight when the point stops


@dataclass
class PointRun:
    """What happened: exchanges in order of their beginning, marks in monotonic ns, and the client's own condition."""

    exchanges: list[Exchange] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0
    stop_ns: int | None = None  # first moment at which a stream found nothing more to do
    dead: str | None = None  # the reason of `alive`
    unopened: int = 0  # streams without a connection at the start
    lags_ns: list[int] = field(default_factory=list)  # lateness of a timer: how far behind the loop was
    arrivals_waited: int = 0  # open loop: arrivals that found every stream busy
    arrivals_unsent: int = 0  # open loop: arrivals that were still waiting when the point had to stop
    cpu_s: float = 0.0
    offsets: Offsets = field(default_factory=Offsets)
    compiled: bool = False  # the hot path
    reads: int = 0
    reads_told: int = 0  # of which the kernel told when they had arrived
    read_delay_p99_ns: float | None = None  # from that arrival to our read


class ClosedLoop:
    """One point in progress."""

    def __init__(
        self,
        address: Address,
        course: Course,
        prompts: Iterator[Prompt],
        tape: Tape,
        *,
        alive: Callable[[], str | None],
        progress: Callable[[int, float], None] = lambda done, elapsed_s: None,
    ) -> None:
        self._course = course
        self._prompts = prompts
        self._tape = tape
        self._alive = alive
        self._progress = progress
        self._run = PointRun()
        self._done = asyncio.Event()
        self._address = address
        self._streams: list[Stream] = []
        self._idle: list[Stream] = []
        self._due: deque[int] = deque()  # arrivals that found every stream busy (open loop)
        self._ended = 0
        self._pauses: list[tuple[int, int]] = []  # (time, stream number): streams that wait after a failure
        self._arrivals_over = course.rate_per_s is None
        self._random = random.Random(course.seed)
        self._fault: BaseException | None = None

    async def run(self) -> PointRun:
        """Run the point to its end. Never raises for what the server does."""
        run = self._run
        ear = open_ear(self._tape)
        run.compiled = ear.compiled
        self._streams = [
            Stream(number, self._address, ear, self._tape, self._on_end) for number in range(self._course.concurrency)
        ]
        with _quiet_collector():
            failures = await asyncio.gather(*(stream.connect() for stream in self._streams))
            run.unopened = sum(failure is not None for failure in failures)
            cpu_before = _cpu_s()
            run.offsets.note()
            run.start_ns = monotonic_ns()
            try:
                if self._course.rate_per_s is None:
                    for stream in self._streams:
                        self._begin_next(stream)
                else:
                    self._idle = list(reversed(self._streams))
                    self._plan_arrival(run.start_ns)
                await self._watch()
            finally:
                run.end_ns = monotonic_ns()
                run.offsets.note()
                run.cpu_s = _cpu_s() - cpu_before
                for stream in self._streams:
                    stream.close()
                ear.close()
        return run

    # --- what begins a request --------------------------------------------------------------------------------

    def _may_begin(self, now_ns: int) -> bool:
        course, run = self._course, self._run
        if run.stop_ns is not None or run.dead is not None:
            return False
        if self._past_limit(now_ns):
            return False
        if (now_ns - run.start_ns) / 1e9 < course.min_duration_s:
            return True
        return course.requests is not None and len(run.exchanges) + len(self._due) < course.requests

    def _begin_next(self, stream: Stream) -> None:
        now_ns = monotonic_ns()
        if self._may_begin(now_ns):
            self._begin(stream)
        else:
            self._stop(now_ns)

    def _begin(self, stream: Stream, scheduled_ns: int | None = None) -> None:
        exchange = Exchange(len(self._run.exchanges), stream.number, stream.turns, next(self._prompts), scheduled_ns)
        self._run.exchanges.append(exchange)
        stream.send(exchange)

    def _stop(self, now_ns: int) -> None:
        if self._run.stop_ns is not None:
            return
        self._run.stop_ns = now_ns
        if self._course.drain == "cancel":
            asyncio.get_running_loop().call_soon(self._cancel_all, "cancelled", "the point was over")

    def _on_end(self, stream: Stream, exchange: Exchange) -> None:
        self._ended += 1
        if self._course.rate_per_s is not None:
            if self._due:
                self._begin(stream, self._due.popleft())
            else:
                self._idle.append(stream)
        elif stream.failures_in_row == 0:
            self._begin_next(stream)
        else:
            pause_s = min(0.05 * 2 ** min(stream.failures_in_row - 1, 10), LONGEST_PAUSE_S)
            heapq.heappush(self._pauses, (monotonic_ns() + int(pause_s * 1e9), stream.number))

    # --- what happens beside ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Every tick: time-outs, room in memory, pauses, arrivals; twice a second: is the server alive, progress."""
        run = self._run
        seconds = 0.0
        turn = 0
        asyncio.get_running_loop().set_exception_handler(self._note_fault)
        while True:
            asked_ns = monotonic_ns()
            await asyncio.sleep(TICK_S)
            if self._fault is not None:
                raise self._fault
            now_ns = monotonic_ns()
            run.lags_ns.append(max(0, now_ns - asked_ns - int(TICK_S * 1e9)))
            run.offsets.note()
            self._resume_paused(now_ns)
            self._look_after(turn, now_ns)
            self._tape.make_room(MAKE_ROOM_FOR_NS)
            turn += 1
            elapsed_s = (now_ns - run.start_ns) / 1e9
            if elapsed_s - seconds >= ALIVE_EVERY_S:
                seconds = elapsed_s
                self._check_alive()
                self._progress(self._ended, elapsed_s)
            if self._nothing_left(now_ns):
                return

    def _note_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault in a callback is a fault of the run: asyncio alone would log it and call the same callback again."""
        self._fault = context.get("exception") or RuntimeError(context["message"])

    def _nothing_left(self, now_ns: int) -> bool:
        if self._run.stop_ns is None:
            if self._may_begin(now_ns) or not self._arrivals_over:
                return False
            self._stop(now_ns)
        if self._run.dead is not None or self._past_limit(now_ns):
            self._run.arrivals_unsent += len(self._due)
            self._due.clear()
        return not self._due and self._ended == len(self._run.exchanges)

    def _past_limit(self, now_ns: int) -> bool:
        limit_s = self._course.max_duration_s
        return limit_s is not None and (now_ns - self._run.start_ns) / 1e9 >= limit_s

    def _resume_paused(self, now_ns: int) -> None:
        while self._pauses and self._pauses[0][0] <= now_ns:
            self._begin_next(self._streams[heapq.heappop(self._pauses)[1]])

    def _plan_arrival(self, after_ns: int) -> None:
        """Set a timer for the next arrival of the Poisson process, counted from the last planned one."""
        at_ns = after_ns + int(self._random.expovariate(self._course.rate_per_s or 1.0) * 1e9)
        wait_s = max(0.0, (at_ns - monotonic_ns()) / 1e9)
        asyncio.get_running_loop().call_later(wait_s, self._arrive, at_ns)

    def _arrive(self, planned_ns: int) -> None:
        if not self._may_begin(monotonic_ns()):
            self._arrivals_over = True
            return
        if self._idle:
            self._begin(self._idle.pop(), planned_ns)
        else:
            self._due.append(planned_ns)
            self._run.arrivals_waited += 1
        self._plan_arrival(planned_ns)

    def _look_after(self, turn: int, now_ns: int) -> None:
        """Every fourth of the streams in turn: time-outs, an end that was missed."""
        idle_ns, total_ns = int(self._course.request_idle_s * 1e9), int(self._course.request_total_s * 1e9)
        for stream in self._streams[turn % LOOKED_AFTER_EVERY :: LOOKED_AFTER_EVERY]:
            exchange = stream.exchange
            if exchange is None:
                continue
            last_ns = stream.last_read_ns()
            if now_ns - exchange.sent_ns > total_ns:
                stream.cancel("total-timeout", f"not finished within {self._course.request_total_s:g} s")
            elif now_ns - last_ns > idle_ns:
                stream.cancel("idle-timeout", f"nothing arrived for {self._course.request_idle_s:g} s")
            elif now_ns - last_ns > MISSED_END_NS:
                stream.look_closely()

    def _check_alive(self) -> None:
        if self._run.dead is not None:
            return
        reason = self._alive()
        if reason is not None:
            self._run.dead = reason
            self._pauses.clear()
            self._stop(monotonic_ns())
            self._cancel_all("cancelled", reason)

    def _cancel_all(self, ending: str, why: str) -> None:
        for stream in self._streams:
            stream.cancel(ending, why)


@contextlib.contextmanager
def _quiet_collector() -> Iterator[None]:
    """No garbage collection while time is taken: the hot path makes no cycles, and a full collection takes many ms."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def settle(run: PointRun, tape: Tape) -> None:
    """Give every exchange its reads and their times, and the run its account of how late we read. The point is over."""
    rows = tape.rows(len(run.exchanges))
    sent_ns = [exchange.sent_ns for exchange in run.exchanges]
    stamps, told = arrivals(rows.read_ns, rows.kernel_ns, sent_ns, rows.bounds, run.offsets)
    for exchange, start, stop in zip(run.exchanges, rows.bounds[:-1].tolist(), rows.bounds[1:].tolist(), strict=True):
        exchange.positions, exchange.sizes = rows.position[start:stop], rows.size[start:stop]
        exchange.stamps = stamps[start:stop]
    told_delays = (rows.read_ns - stamps)[told]
    run.reads, run.reads_told = len(told), len(told_delays)
    run.read_delay_p99_ns = float(np.quantile(told_delays, 0.99)) if len(told_delays) else None
