"""The protocol of one launch: warm-up, flush, idle and identity check, then the points in the order given.

`measure_points` is what `reckoning.launch` calls, and what the command line uses against any server.
"""

from __future__ import annotations

import asyncio
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from .answers import Answer, understand
from .closed_loop import ClosedLoop, Course, PointRun
from .descriptors import TooFewDescriptors, allow_streams
from .events import decode
from .exchange import Exchange, Prompt, Spool
from .flags import flags_of
from .prompts import PATHS, Text, WorkloadError, endpoint_of, prompt_sequence, read_texts
from .records import point_record, request_row, requests_table
from .server import Flush, Server, ServerError, acceptance_length, identity, max_running_requests
from .stream import Address, request_head
from .tokenizer import find_tokenizer

IDLE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Target:
    """The server to be measured. `kind` is `sglang` (flush, counters, /generate) or `openai` (none of them)."""

    base_url: str
    model: str
    tokenizer_path: str | None = None
    kind: str = "sglang"
    api_key: str | None = None


@dataclass
class Measured:
    """`points` as in points.json, `requests` as in requests.parquet (warm-up requests included)."""

    points: list[dict[str, Any]] = field(default_factory=list)
    requests: pd.DataFrame = field(default_factory=lambda: requests_table([]))


class PointProblem(Exception):
    """Why one point could not be measured; it becomes the point's `reason`."""


def measure_points(
    target: Target,
    points: Sequence[Mapping[str, Any]],
    workloads: Mapping[str, Mapping[str, Any]],
    *,
    seed: int,
    limits: Mapping[str, Any],
    alive: Callable[[], str | None] = lambda: None,
    progress: Callable[[dict[str, Any]], None] = lambda event: None,
    launch_clock_start: float | None = None,
) -> Measured:
    """Measure `points` in the order given and return every point and every request, whatever the server does.

    `points` and `workloads` are those of plan.json. `seed` fixes prompts that are drawn at random, the same for all
    arms; each point's own `seed` fixes the order of prompts. `limits` holds request_idle_s, request_total_s and the
    thresholds of `reckoning.load.flags`. `alive` says None, or why the server can no longer be used: then the running
    point and all later ones are failed with that reason. `launch_clock_start` is the zero of all times
    (time.monotonic()).
    """
    session = _Session(
        target,
        workloads,
        seed=seed,
        limits=limits,
        alive=alive,
        progress=progress,
        launch_clock_start=launch_clock_start,
    )
    try:
        for position, point in enumerate(points):
            session.measure(point, position, len(points))
    finally:
        session.close()
    return Measured(session.points, requests_table(session.rows))


class _Session:
    def __init__(
        self,
        target: Target,
        workloads: Mapping[str, Mapping[str, Any]],
        *,
        seed: int,
        limits: Mapping[str, Any],
        alive: Callable[[], str | None],
        progress: Callable[[dict[str, Any]], None],
        launch_clock_start: float | None,
    ) -> None:
        self.points: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self._target = target
        self._workloads = workloads
        self._seed = seed
        self._limits = limits
        self._alive = alive
        self._progress = progress
        self._zero_ns = int((time.monotonic() if launch_clock_start is None else launch_clock_start) * 1e9)
        self._server = Server(target.base_url, target.kind, target.api_key)
        self._texts: dict[str, list[Text]] = {}
        self._identity: str | None = None
        self._warm: set[tuple[str, int]] = set()
        self._dead: str | None = None

    def close(self) -> None:
        pass

    def seconds(self, at_ns: int) -> float:
        return (at_ns - self._zero_ns) / 1e9

    # --- one point -------------------------------------------------------------------------------------------------

    def measure(self, point: Mapping[str, Any], position: int, of: int) -> None:
        event = {key: point[key] for key in ("workload", "concurrency", "repeat")}
        event |= {"point": point["index"], "position": position, "of": of, "requests": point.get("requests")}
        self._progress({"event": "point-start", "done": 0, "elapsed_s": 0.0, "reason": None, **event})
        began = time.monotonic()
        self._dead = self._dead or self._alive()
        try:
            if self._dead is not None:
                raise PointProblem(self._dead)
            record = self._measure(point, event)
        except (PointProblem, WorkloadError, ServerError, TooFewDescriptors) as problem:
            record = self._failed(point, str(problem))
        record["position"] = position
        self.points.append(record)
        elapsed_s = time.monotonic() - began
        done = sum(record["requests"]["by_class"].values())
        self._progress(
            {"event": "point-end", "done": done, "elapsed_s": elapsed_s, "reason": record["reason"], **event}
        )

    def _measure(self, point: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        workload = self._workload(point["workload"])
        endpoint = endpoint_of(workload, self._target.kind)
        allow_streams(point["concurrency"])
        texts = self._texts_of(point["workload"], workload, endpoint)
        self._warm_up(point, workload, endpoint, texts)
        before = self._prepare(workload)
        prompts = self._prompts(texts, workload, endpoint, point["seed"], f"{self._seed:x}-{point['index']}")
        course = self._course(point, workload)

        def tell(done: int, elapsed_s: float) -> None:
            self._progress({"event": "point-progress", "done": done, "elapsed_s": elapsed_s, "reason": None, **event})

        run, answers = self._run(course, endpoint, prompts, tell)
        record, rows = point_record(run, answers, point, self.seconds)
        self.rows += rows
        self._dead = run.dead
        self._add_counters(record, point, before, len(texts))
        if run.dead is not None:
            record |= {"status": "failed", "reason": run.dead}
        elif record["requests"]["ok"] == 0:
            record |= {"status": "failed", "reason": _why_none(answers)}
        record["flags"] = flags_of(record, workload, self._limits)
        if workload.get("cooldown_s"):
            time.sleep(workload["cooldown_s"])
        return record

    def _failed(self, point: Mapping[str, Any], reason: str) -> dict[str, Any]:
        """The entry of a point that never ran: no number in it, so that nothing can be mistaken for one."""
        empty = PointRun(start_ns=time.monotonic_ns())
        empty.end_ns = empty.start_ns
        record, _ = point_record(empty, [], point, self.seconds)
        nothing = dict.fromkeys(
            ("achieved_concurrency", "realised_tokens_ratio", "queue_share", "client_cpu_share", "output_tokens")
        )
        return record | nothing | {"status": "failed", "reason": reason, "flags": [], "flush": None, "identity": None}

    # --- parts -----------------------------------------------------------------------------------------------------

    def _workload(self, name: str) -> Mapping[str, Any]:
        if name not in self._workloads:
            raise WorkloadError(f"workload {name!r} is not defined")
        return self._workloads[name]

    def _texts_of(self, name: str, workload: Mapping[str, Any], endpoint: str) -> list[Text]:
        if name not in self._texts:
            self._texts[name] = read_texts(
                workload,
                endpoint,
                lambda: find_tokenizer(self._target.tokenizer_path, self._server, self._target.model),
                self._seed,
            )
        return self._texts[name]

    def _prompts(
        self, texts: Sequence[Text], workload: Mapping[str, Any], endpoint: str, seed: int, label: str
    ) -> Iterator[Prompt]:
        fresh = label if workload.get("fresh_prompts") else None
        return prompt_sequence(texts, workload, endpoint, self._target.model, seed=seed, fresh_label=fresh)

    def _course(self, point: Mapping[str, Any], workload: Mapping[str, Any]) -> Course:
        requests = point.get("requests")
        min_duration_s = workload.get("min_duration_s") or 0.0
        max_duration_s = workload.get("max_duration_s")
        if requests is None and not min_duration_s and max_duration_s is None:
            requests = point["concurrency"]
        elif requests is None and not min_duration_s:
            min_duration_s = max_duration_s
        return Course(
            concurrency=point["concurrency"],
            requests=requests,
            min_duration_s=min_duration_s,
            max_duration_s=max_duration_s,
            request_idle_s=self._limits.get("request_idle_s", 300.0),
            request_total_s=self._limits.get("request_total_s", 3600.0),
            rate_per_s=workload.get("request_rate_per_s") if workload.get("arrival") == "poisson" else None,
            seed=point["seed"],
            drain=workload.get("drain", "finish"),
        )

    def _address(self, endpoint: str) -> Address:
        url = urllib.parse.urlsplit(self._server.base_url)
        tls = url.scheme == "https"
        host, port = url.hostname or "127.0.0.1", url.port or (443 if tls else 80)
        path = url.path.rstrip("/") + PATHS[endpoint]
        return Address(host, port, path, request_head(host, port, path, self._target.api_key), tls)

    def _run(
        self, course: Course, endpoint: str, prompts: Iterator[Prompt], tell: Callable[[int, float], None]
    ) -> tuple[PointRun, list[Answer]]:
        spool = Spool()
        try:
            loop = ClosedLoop(self._address(endpoint), course, prompts, spool, alive=self._alive, progress=tell)
            run = _run_loop(loop)
            return run, [understand_exchange(exchange, spool) for exchange in run.exchanges]
        finally:
            spool.close()

    def _warm_up(
        self, point: Mapping[str, Any], workload: Mapping[str, Any], endpoint: str, texts: Sequence[Text]
    ) -> None:
        """At least C requests of the level's own shape, once per launch and level; kept as rows of phase `warmup`."""
        level = (point["workload"], point["concurrency"])
        count = point.get("warmup_requests")
        count = point["concurrency"] if count is None else max(count, 0)
        if level in self._warm or count == 0:
            return
        course = Course(
            concurrency=point["concurrency"],
            requests=max(count, point["concurrency"]),
            request_idle_s=self._limits.get("request_idle_s", 300.0),
            request_total_s=self._limits.get("request_total_s", 3600.0),
        )
        label = f"warm-{self._seed:x}-{point['concurrency']}"
        prompts = self._prompts(texts, workload, endpoint, point["seed"] + 1, label)
        run, answers = self._run(course, endpoint, prompts, lambda done, elapsed_s: None)
        self.rows += [
            request_row(exchange, answer, point, "warmup", self.seconds)
            for exchange, answer in zip(run.exchanges, answers, strict=True)
        ]
        self._dead = run.dead
        if run.dead is not None:
            raise PointProblem(run.dead)
        if not any(answer.outcome == "ok" for answer in answers):
            raise PointProblem(f"no warm-up request succeeded: {_why_none(answers)}")
        self._warm.add(level)

    def _prepare(self, workload: Mapping[str, Any]) -> dict[str, Any]:
        """Idle, flush, identity. A flush that was asked for and not confirmed is an error: the point does not run."""
        still = self._server.wait_idle(IDLE_LIMIT_S, self._alive)
        if still:
            raise PointProblem(f"the server still has {still} requests in flight that are not ours")
        flush: Flush | None = None
        if self._target.kind == "sglang" and workload.get("flush", True):
            flush = self._server.flush(IDLE_LIMIT_S, self._alive)
            if not flush.done:
                raise PointProblem(f"cache flush not confirmed after {flush.tries} tries: {flush.reason}")
        info = self._server.info()
        mark = identity(info)
        if self._identity is None:
            self._identity = mark
        elif mark != self._identity:
            raise PointProblem("another server process answers at this address than at the first point")
        return {"info": info, "flush": None if flush is None else {"done": flush.done, "tries": flush.tries}}

    def _add_counters(
        self, record: dict[str, Any], point: Mapping[str, Any], before: Mapping[str, Any], distinct_prompts: int
    ) -> None:
        """What the server's counters add, and the shares that need them."""
        after: Mapping[str, Any] | None = None
        if self._dead is None:
            try:
                after = self._server.info()
            except ServerError:
                after = None
        if record["acceptance_length"] is None and before["flush"] is not None:
            record["acceptance_length"] = acceptance_length(after)
            record["acceptance_source"] = "server" if record["acceptance_length"] is not None else None
        running = max_running_requests(after or before["info"])
        waiting = None if running is None else max(0.0, 1.0 - running / point["concurrency"])
        record |= {
            "max_running_requests": running,
            "queue_share": waiting,
            "distinct_prompts": distinct_prompts,
            "flush": before["flush"],
            "identity": self._identity,
        }


def understand_exchange(exchange: Exchange, spool: Spool) -> Answer:
    """Return the meaning of one exchange's bytes."""
    raw = spool.read(exchange)
    return understand(decode(raw, exchange.stamps, exchange.sizes), exchange.ending or "cancelled", exchange.error)


def _run_loop(loop: ClosedLoop) -> PointRun:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(loop.run())
    return uvloop.run(loop.run())


def _why_none(answers: Sequence[Answer]) -> str:
    first = next((answer for answer in answers if answer.error), None)
    what = "; ".join(sorted({answer.outcome for answer in answers})) or "no request was sent"
    return f"no request succeeded ({what}): {first.error}" if first else f"no request succeeded ({what})"
