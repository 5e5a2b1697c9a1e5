"""The protocol of one launch: warm-up, flush, idle and identity check, then the points in the order given.

`measure_points` is what `reckoning.launch` calls, and what the command line uses against any server.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from .answers import Answer
from .capture import write_capture
from .closed_loop import ClosedLoop, Course, PointRun, settle
from .descriptors import TooFewDescriptors, allow_streams
from .ear import listen
from .exchange import Prompt
from .flags import flag_first_points, flags_of
from .prompts import PATHS, Text, WorkloadError, endpoint_of, prompt_sequence, read_texts
from .records import blank_point, point_record, request_row, requests_table
from .responses import understand_all
from .server import Server, ServerError, acceptance_length, identity, max_running_requests
from .stream import Address, request_head
from .tape import Tape
from .tokenizer import find_tokenizer

IDLE_LIMIT_S = 60.0
Progress = Callable[[dict[str, Any]], None]
Alive = Callable[[], str | None]
FaultOfTexts = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True)
class Target:
    """The server to be measured. `kind` is `sglang` (flush, counters, /generate) or `openai` (none of them)."""

    base_url: str
    model: str
    tokenizer_path: str | None = None
    kind: str = "sglang"
    api_key: str | None = field(default=None, repr=False)


@dataclass
class Measured:
    """`points` as in points.json, `requests` as in requests.parquet (warm-up requests included)."""

    points: list[dict[str, Any]] = field(default_factory=list)
    requests: pd.DataFrame = field(default_factory=lambda: requests_table([]))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while points were measured; `measured` holds what was finished before."""

    def __init__(self, measured: Measured) -> None:
        super().__init__("interrupted")
        self.measured = measured


class PointProblem(Exception):
    """Why one point could not be measured; it becomes the point's `reason`. `refused`: the server lives and said no."""

    def __init__(self, reason: str, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


def measure_points(
    target: Target,
    points: Sequence[Mapping[str, Any]],
    workloads: Mapping[str, Mapping[str, Any]],
    *,
    seed: int,
    limits: Mapping[str, Any],
    alive: Alive = lambda: None,
    progress: Progress = lambda event: None,
    launch_clock_start: float | None = None,
    fault_of_texts: FaultOfTexts | None = None,
    raw_folder: Path | None = None,
) -> Measured:
    """Measure `points` in the order given and return every point and every request, whatever the server does.

    `points` and `workloads` are those of plan.json. `seed` fixes prompts that are drawn at random, the same for all
    arms; each point's own `seed` fixes the order of prompts. `limits` holds request_idle_s, request_total_s and the
    thresholds of `reckoning.load.flags`. `alive` says None, or why the server can no longer be used: then the running
    point and all later ones are failed with that reason. `launch_clock_start` is the zero of all times
    (time.monotonic()). `fault_of_texts`, given the answers' texts, says what is wrong with them, or None. Workloads
    with `keep_raw` leave their raw captures in `raw_folder` (see `reckoning.load.capture`). Ctrl-C raises Interrupted,
    which carries what was finished.
    """
    zero_s = time.monotonic() if launch_clock_start is None else launch_clock_start
    alive = _never_raising(alive)
    session = _Session(target, workloads, seed, limits, alive, progress, int(zero_s * 1e9), fault_of_texts, raw_folder)
    try:
        for position, point in enumerate(points):
            session.measure(point, position, len(points))
    except KeyboardInterrupt as interrupt:
        raise Interrupted(session.measured()) from interrupt
    return session.measured()


@dataclass
class _Session:
    target: Target
    workloads: Mapping[str, Mapping[str, Any]]
    seed: int
    limits: Mapping[str, Any]
    alive: Alive
    progress: Progress
    zero_ns: int
    fault_of_texts: FaultOfTexts | None
    raw_folder: Path | None
    points: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = Server(self.target.base_url, self.target.kind, self.target.api_key)
        self._texts: dict[str, list[Text]] = {}
        self._identity: str | None = None
        self._warm: set[tuple[str, int]] = set()
        self._dead: str | None = None
        self._reports_cache = False

    def measured(self) -> Measured:
        """What there is by now."""
        flag_first_points(self.points, self.limits)
        return Measured(self.points, requests_table(self.rows))

    def seconds(self, at_ns: int) -> float:
        return (at_ns - self.zero_ns) / 1e9

    # --- one point ------------------------------------------------------------------------------------------------

    def measure(self, point: Mapping[str, Any], position: int, of: int) -> None:
        event = {key: point[key] for key in ("workload", "concurrency", "repeat")}
        event |= {"point": point["index"], "position": position, "of": of, "requests": point.get("requests")}

        def tell(kind: str, done: int, elapsed_s: float, **more: Any) -> None:
            self.progress({"event": kind, "done": done, "elapsed_s": elapsed_s, "reason": None, **event, **more})

        tell("point-start", 0, 0.0)
        began, refused = time.monotonic(), False
        try:
            self._dead = self._dead or self.alive()
            if self._dead is not None:
                raise PointProblem(self._dead)
            entry = self._measure(point, lambda done, elapsed_s: tell("point-progress", done, elapsed_s))
        except (PointProblem, WorkloadError, ServerError, TooFewDescriptors) as problem:
            entry = blank_point(point) | {"status": "failed", "reason": str(problem)}
            refused = isinstance(problem, PointProblem) and problem.refused
        entry["position"] = position
        self.points.append(entry)
        by_class = entry["requests"]["by_class"]
        more = {"reason": entry["reason"], "entry": entry, "refused": refused or by_class.get("http-status", 0) > 0}
        tell("point-end", sum(by_class.values()), time.monotonic() - began, **more)

    def _measure(self, point: Mapping[str, Any], tell: Callable[[int, float], None]) -> dict[str, Any]:
        name = point["workload"]
        if name not in self.workloads:
            raise WorkloadError(f"workload {name!r} is not defined")
        workload = self.workloads[name]
        endpoint = endpoint_of(workload, self.target.kind)
        allow_streams(point["concurrency"])
        texts = self._texts_of(name, workload, endpoint)
        self._warm_up(point, workload, endpoint, texts)
        before = self._prepare(workload)
        prompts = self._prompts(texts, workload, endpoint, point["seed"], f"{self.seed:x}-{point['index']}")
        keep = point["index"] if workload.get("keep_raw") else None
        run, answers = self._run(course_of(point, workload, self.limits), endpoint, prompts, tell, keep)
        entry, rows = point_record(run, answers, point, self.seconds)
        self.rows += rows
        if run.dead is None and entry["requests"]["failed"]:
            run.dead = self.alive()  # a server may die faster than it is looked at
        self._dead = run.dead
        entry |= before
        self._add_counters(entry, point, len(texts))
        good_texts = [answer.text for answer in answers if answer.outcome == "ok"]
        entry["garbage"] = self.fault_of_texts(good_texts) if self.fault_of_texts is not None and good_texts else None
        if run.dead is not None:
            entry |= {"status": "failed", "reason": run.dead}
        elif entry["requests"]["ok"] == 0:
            entry |= {"status": "failed", "reason": _why_none(answers)}
        entry["flags"] = flags_of(entry, workload, self.limits)
        time.sleep(workload.get("cooldown_s") or 0.0)
        return entry

    # --- parts ----------------------------------------------------------------------------------------------------

    def _texts_of(self, name: str, workload: Mapping[str, Any], endpoint: str) -> list[Text]:
        if name not in self._texts:

            def tokenizer() -> Any:
                return find_tokenizer(self.target.tokenizer_path, self._server, self.target.model)

            self._texts[name] = read_texts(workload, endpoint, tokenizer, self.seed)
        return self._texts[name]

    def _prompts(
        self, texts: Sequence[Text], workload: Mapping[str, Any], endpoint: str, seed: int, label: str
    ) -> Iterator[Prompt]:
        fresh = label if workload.get("fresh_prompts") else None
        return prompt_sequence(texts, workload, endpoint, self.target.model, seed=seed, fresh_label=fresh)

    def _run(
        self,
        course: Course,
        endpoint: str,
        prompts: Iterator[Prompt],
        tell: Callable[[int, float], None],
        keep: int | None = None,
    ) -> tuple[PointRun, list[Answer]]:
        tape = Tape()
        try:
            address = address_of(self._server.base_url, endpoint, self.target.api_key)
            run = listen(ClosedLoop(address, course, prompts, tape, alive=self.alive, progress=tell).run())
            settle(run, tape)
            if keep is not None and self.raw_folder is not None:
                write_capture(self.raw_folder / f"point{keep}.zst", keep, run.exchanges, tape)
            return run, understand_all(run.exchanges, tape)
        finally:
            tape.close()

    def _warm_up(
        self, point: Mapping[str, Any], workload: Mapping[str, Any], endpoint: str, texts: Sequence[Text]
    ) -> None:
        """At least C requests of the level's own shape, once per launch and level; kept as rows of phase `warmup`."""
        level = (point["workload"], point["concurrency"])
        count = point.get("warmup_requests")
        if level in self._warm or count == 0:
            return
        course = Course(
            concurrency=point["concurrency"],
            requests=max(count or 0, point["concurrency"]),
            request_idle_s=self.limits.get("request_idle_s", 300.0),
            request_total_s=self.limits.get("request_total_s", 3600.0),
        )
        label = f"warm-{self.seed:x}-{point['concurrency']}"
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
            refused = any(answer.outcome == "http-status" for answer in answers)
            raise PointProblem(f"warm-up: {_why_none(answers)}", refused)
        self._warm.add(level)

    def _prepare(self, workload: Mapping[str, Any]) -> dict[str, Any]:
        """Idle, flush, identity. A flush that was asked for and not confirmed is an error: the point does not run."""
        still = self._server.wait_idle(IDLE_LIMIT_S, self.alive)
        if still:
            raise PointProblem(f"the server still has {still} requests in flight that are not ours")
        flushed = None
        if self.target.kind == "sglang" and workload.get("flush", True):
            flush = self._server.flush(IDLE_LIMIT_S, self.alive)
            if not flush.done:
                raise PointProblem(f"cache flush not confirmed after {flush.tries} tries: {flush.reason}")
            flushed = {"done": flush.done, "tries": flush.tries}
        info = self._server.info()
        mark = identity(info)
        if self._identity is None:
            self._identity = mark
        elif mark != self._identity:
            raise PointProblem("another server process answers at this address than at the first point")
        self._reports_cache = bool((info or {}).get("enable_cache_report"))
        return {"flush": flushed, "identity": self._identity, "max_running_requests": max_running_requests(info)}

    def _add_counters(self, entry: dict[str, Any], point: Mapping[str, Any], distinct_prompts: int) -> None:
        """What the server's own counters add. They are the point's alone only after a flush, which resets them."""
        entry["distinct_prompts"] = distinct_prompts
        if entry["cached_token_share"] is None and self._reports_cache and entry["requests"]["ok"]:
            entry["cached_token_share"] = 0.0  # the count is left out where it is 0
        if entry["acceptance_length"] is None and entry["flush"] is not None and self._dead is None:
            try:
                entry["acceptance_length"] = acceptance_length(self._server.info())
            except ServerError:
                entry["acceptance_length"] = None
            entry["acceptance_source"] = "server" if entry["acceptance_length"] is not None else None
        if entry["queue_share"] is None and entry["max_running_requests"] is not None:
            entry["queue_share"] = max(0.0, 1.0 - entry["max_running_requests"] / point["concurrency"])


def course_of(point: Mapping[str, Any], workload: Mapping[str, Any], limits: Mapping[str, Any]) -> Course:
    """Return when the point begins and stops, from the planner's keys.

    Without a number of requests and without a duration it is C requests; with `max_duration_s` alone it is that long.
    """
    requests = point.get("requests")
    min_duration_s = workload.get("min_duration_s") or 0.0
    max_duration_s = workload.get("max_duration_s")
    if requests is None and not min_duration_s:
        requests = None if max_duration_s else point["concurrency"]
        min_duration_s = max_duration_s or 0.0
    return Course(
        concurrency=point["concurrency"],
        requests=requests,
        min_duration_s=min_duration_s,
        max_duration_s=max_duration_s,
        request_idle_s=limits.get("request_idle_s", 300.0),
        request_total_s=limits.get("request_total_s", 3600.0),
        rate_per_s=workload.get("request_rate_per_s") if workload.get("arrival") == "poisson" else None,
        seed=point["seed"],
        drain=workload.get("drain", "finish"),
    )


def address_of(base_url: str, endpoint: str, api_key: str | None) -> Address:
    """Return where the requests of an endpoint go; `base_url` as `http://host:port` with an optional path."""
    url = urllib.parse.urlsplit(base_url)
    tls = url.scheme == "https"
    host, port = url.hostname or "127.0.0.1", url.port or (443 if tls else 80)
    path = url.path.rstrip("/") + PATHS[endpoint]
    return Address(host, port, request_head(host, port, path, api_key), tls)


def _never_raising(alive: Alive) -> Alive:
    def check() -> str | None:
        try:
            return alive()
        except Exception as error:
            return f"the check of the server failed: {type(error).__name__}: {error}"

    return check


def _why_none(answers: Sequence[Answer]) -> str:
    first = next((answer for answer in answers if answer.error), None)
    what = "; ".join(sorted({_ending_in_words(answer) for answer in answers})) or "no request was sent"
    none = f"none of {len(answers)} requests succeeded ({what})"
    return f"{none}: {first.error}" if first else none


def _ending_in_words(answer: Answer) -> str:
    return f"HTTP {answer.http_status}" if answer.outcome == "http-status" else answer.outcome
