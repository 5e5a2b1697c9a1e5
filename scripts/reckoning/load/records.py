"""From a finished point to its records: request rows (requests.parquet) and the point's entry (points.json). Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .answers import Answer
from .closed_loop import PointRun
from .exchange import Exchange
from .window import (
    Interval,
    Window,
    mean_in_flight,
    most_in_flight,
    open_loop_window,
    peak_tokens_per_s,
    phase,
    steady_window,
    tokens_inside,
)

Seconds = Callable[[int], float]  # from monotonic ns to seconds since the launch's start

COLUMNS = {
    "point": "int64",
    "workload": "str",
    "concurrency": "int64",
    "repeat": "int64",
    "phase": "str",
    "stream": "int64",
    "request": "int64",
    "prompt_id": "str",
    "outcome": "str",
    "http_status": "Int64",
    "error": "str",
    "finish_reason": "str",
    "scheduled_s": "float64",
    "start_s": "float64",
    "first_token_s": "float64",
    "end_s": "float64",
    "ttft_ms": "float64",
    "ttfc_ms": "float64",
    "tpot_ms": "float64",
    "e2e_ms": "float64",
    "prompt_tokens": "Int64",
    "cached_tokens": "Int64",
    "requested_tokens": "Int64",
    "output_tokens": "Int64",
    "output_tokens_source": "str",
    "reasoning_tokens": "Int64",
    "chunks": "int64",
    "chunk_gap_ms": "object",
    "chunk_tokens": "object",
    "acceptance_length": "float64",
    "new_connection": "bool",
}

POINT_KEYS = (
    "index",
    "workload",
    "concurrency",
    "repeat",
    "position",
    "status",
    "reason",
    "start_s",
    "steady_start_s",
    "steady_end_s",
    "end_s",
    "requests",
    "output_tokens",
    "output_tokens_source",
    "output_tok_s",
    "output_tok_s_whole_run",
    "peak_output_tok_s",
    "achieved_concurrency",
    "max_in_flight",
    "realised_tokens_ratio",
    "timing",
    "tokens_per_chunk",
    "acceptance_length",
    "acceptance_source",
    "cached_token_share",
    "distinct_prompts",
    "mean_ttft_ms",
    "queue_share",
    "mean_queue_s",
    "max_running_requests",
    "arrivals_waited",
    "arrivals_unsent",
    "unopened_streams",
    "client_lag_mean_ms",
    "client_lag_p99_ms",
    "client_cpu_share",
    "arrival_clock",
    "client_read_delay_p99_ms",
    "client_hot_path",
    "garbage",
    "flush",
    "identity",
    "flags",
)


def blank_point(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with every key of POINT_KEYS, without any number: what a point that never ran looks like."""
    entry: dict[str, Any] = dict.fromkeys(POINT_KEYS)
    entry |= {key: point[key] for key in ("index", "workload", "concurrency", "repeat")}
    return entry | {"requests": {"ok": 0, "failed": 0, "by_class": {}}, "flags": []}


# --- requests -----------------------------------------------------------------------------------------------------


def tpot_ms(answer: Answer) -> float | None:
    """Return the mean time per token after the first chunk, in ms.

    (last chunk - first chunk) / (tokens - tokens of the first chunk): with one token in the first chunk this is the
    usual (t_last - t_first) / (n - 1). None with fewer than two chunks, and where the tokens of the first chunk are
    unknown and may be many.
    """
    if len(answer.chunk_ns) < 2 or answer.output_tokens is None:
        return None
    if answer.chunk_tokens is None and _are_sparse(len(answer.chunk_ns), answer.output_tokens):
        return None
    first = answer.chunk_tokens[0] if answer.chunk_tokens else 1
    later = answer.output_tokens - first
    if later <= 0:
        return None
    return (answer.chunk_ns[-1] - answer.chunk_ns[0]) / later / 1e6


def _are_sparse(chunks: int, tokens: int) -> bool:
    """Whether chunks are so few that they say little about the time of a token."""
    return tokens > 0 and chunks / tokens < 0.5


def request_row(
    exchange: Exchange, answer: Answer, point: Mapping[str, Any], phase_name: str, seconds: Seconds
) -> dict[str, Any]:
    """Return one row of requests.parquet. In an open loop latencies count from the planned arrival."""
    start = exchange.scheduled_ns or exchange.sent_ns
    times = answer.chunk_ns
    end = times[-1] if answer.outcome == "ok" else exchange.end_ns

    def since_start_ms(at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - start) / 1e6

    return {
        "point": point["index"],
        "workload": point["workload"],
        "concurrency": point["concurrency"],
        "repeat": point["repeat"],
        "phase": phase_name,
        "stream": exchange.stream,
        "request": exchange.index,
        "prompt_id": exchange.prompt.id,
        "outcome": answer.outcome,
        "http_status": answer.http_status,
        "error": answer.error,
        "finish_reason": answer.finish_reason,
        "scheduled_s": None if exchange.scheduled_ns is None else seconds(exchange.scheduled_ns),
        "start_s": seconds(exchange.sent_ns),
        "first_token_s": seconds(times[0]) if times else None,
        "end_s": seconds(exchange.end_ns),
        "ttft_ms": since_start_ms(times[0] if times else None),
        "ttfc_ms": since_start_ms(answer.first_content_ns),
        "tpot_ms": tpot_ms(answer),
        "e2e_ms": since_start_ms(end),
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "requested_tokens": exchange.prompt.requested_tokens,
        "output_tokens": answer.output_tokens,
        "output_tokens_source": answer.output_tokens_source,
        "reasoning_tokens": answer.reasoning_tokens,
        "chunks": len(times),
        "chunk_gap_ms": np.diff(np.asarray(times)) / 1e6,
        "chunk_tokens": answer.chunk_tokens,
        "acceptance_length": answer.acceptance_length,
        "new_connection": exchange.new_connection,
    }


def requests_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows as a table with the columns and types of requests.parquet, whatever is missing."""
    table = pd.DataFrame(list(rows), columns=list(COLUMNS))
    for column, kind in COLUMNS.items():
        if kind == "str":
            table[column] = table[column].astype("string")
        elif kind != "object":
            table[column] = table[column].astype(kind)
    return table


# --- points -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """One request: what happened on the wire, and what the answer said."""

    exchange: Exchange
    answer: Answer

    @property
    def interval(self) -> Interval:
        return Interval(self.exchange.stream, self.exchange.sent_ns, self.exchange.end_ns)


def point_record(
    run: PointRun, answers: Sequence[Answer], point: Mapping[str, Any], seconds: Seconds
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a point's entry, without flags and server counters, and its request rows.

    Throughput counts the tokens of successful requests only: those that arrived inside the steady window over its
    length (`output_tok_s`), and all of them over the time from the first request to the last end
    (`output_tok_s_whole_run`).
    """
    pairs = [Pair(exchange, answer) for exchange, answer in zip(run.exchanges, answers, strict=True)]
    good = [pair for pair in pairs if pair.answer.outcome == "ok"]
    window = _window(run, pairs, point["concurrency"])
    rows = [
        request_row(pair.exchange, pair.answer, point, _phase(pair, point["concurrency"], window), seconds)
        for pair in pairs
    ]
    entry = blank_point(point) | {
        "status": "ok",
        "start_s": seconds(run.start_ns),
        "steady_start_s": None if window.start_ns is None else seconds(window.start_ns),
        "steady_end_s": None if window.end_ns is None else seconds(window.end_ns),
        "end_s": seconds(run.end_ns),
        "requests": _classes(run, pairs),
        "realised_tokens_ratio": _realised(good),
        "mean_ttft_ms": _mean_ttft_ms(good),
        **_tokens(run, good, window),
        **_concurrency(run, pairs, window),
        **_sources([pair.answer for pair in good]),
        **_shares(good),
        **_client(run),
    }
    return entry, rows


def chunks_of(answers: Iterable[Answer]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the time (ns) and the tokens of every chunk, answer by answer; of answers without a token count none.

    Where the tokens per chunk are unknown they are spread evenly over the answer's chunks.
    """
    known = [answer for answer in answers if answer.chunk_ns and answer.output_tokens is not None]
    times = [np.frombuffer(answer.chunk_ns, dtype=np.int64) for answer in known]
    tokens = itertools.chain.from_iterable(answer.chunk_tokens or _spread_evenly(answer) for answer in known)
    return np.concatenate([np.zeros(0, dtype=np.int64), *times]), np.fromiter(tokens, dtype=np.int64)


def _spread_evenly(answer: Answer) -> list[int]:
    count, total = len(answer.chunk_ns), answer.output_tokens or 0
    return [total * (n + 1) // count - total * n // count for n in range(count)]


def _planned(pairs: Iterable[Pair]) -> bool:
    return any(pair.exchange.scheduled_ns is not None for pair in pairs)


def _window(run: PointRun, pairs: Sequence[Pair], concurrency: int) -> Window:
    if _planned(pairs):
        return open_loop_window(run.start_ns, run.stop_ns, run.end_ns)
    return steady_window([pair.interval for pair in pairs], concurrency)


def _phase(pair: Pair, concurrency: int, window: Window) -> str:
    """An open loop has no burst of first requests, hence no ramp."""
    turn = pair.exchange.turn if pair.exchange.scheduled_ns is None else 1
    return phase(pair.exchange.sent_ns, pair.exchange.end_ns, turn, concurrency, window)


def _classes(run: PointRun, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Count endings. Requests that we cut off because the point was over are no failures of the server."""
    by_class = dict(sorted(Counter(pair.answer.outcome for pair in pairs).items()))
    ours = by_class.get("cancelled", 0) if run.dead is None else 0
    ok = by_class.get("ok", 0)
    return {"ok": ok, "failed": len(pairs) - ok - ours, "by_class": by_class}


def _realised(good: Sequence[Pair]) -> float | None:
    """Tokens that came over tokens that were asked for, of the requests that succeeded."""
    known = [pair for pair in good if pair.answer.output_tokens is not None]
    requested = sum(pair.exchange.prompt.requested_tokens for pair in known)
    return sum(pair.answer.output_tokens or 0 for pair in known) / requested if requested else None


def _mean_ttft_ms(good: Sequence[Pair]) -> float | None:
    times = [pair.answer.chunk_ns[0] - (pair.exchange.scheduled_ns or pair.exchange.sent_ns) for pair in good]
    return statistics.fmean(times) / 1e6 if times else None


def _tokens(run: PointRun, good: Sequence[Pair], window: Window) -> dict[str, Any]:
    times, tokens = chunks_of(pair.answer for pair in good)
    known, total = len(times) > 0, int(tokens.sum())
    last_ns = max((exchange.end_ns for exchange in run.exchanges), default=run.start_ns)
    whole_s = (last_ns - run.start_ns) / 1e9
    inside = tokens_inside(times, tokens, window)
    steady = inside / window.length_s if known and window.length_s > 0 else None
    peak = peak_tokens_per_s(times, tokens)
    return {
        "output_tokens": total if known else None,
        "output_tok_s": steady,
        "output_tok_s_whole_run": total / whole_s if known and whole_s > 0 else None,
        "peak_output_tok_s": None if peak is None else max(peak, steady or 0.0),
    }


def _concurrency(run: PointRun, pairs: Sequence[Pair], window: Window) -> dict[str, Any]:
    """Closed loop: the mean over the whole run, ramp and drain included. Open loop: over the time of arrivals."""
    intervals = [pair.interval for pair in pairs]
    end_ns = max((one.end_ns for one in intervals), default=run.start_ns)
    if _planned(pairs) and window.end_ns is not None:
        end_ns = window.end_ns
    return {
        "achieved_concurrency": mean_in_flight(intervals, run.start_ns, end_ns),
        "max_in_flight": most_in_flight(intervals),
    }


def _sources(good: Sequence[Answer]) -> dict[str, Any]:
    """How well tokens and times are known: `timing` is exact, per-chunk (tokens per chunk unknown) or unreliable."""
    sources = {answer.output_tokens_source for answer in good}
    source = None if not sources else sources.pop() if len(sources) == 1 else "mixed"
    exact = all(answer.chunk_tokens is not None for answer in good)
    chunks = sum(len(answer.chunk_ns) for answer in good)
    tokens = sum(answer.output_tokens or 0 for answer in good)
    sparse = _are_sparse(chunks, tokens)
    return {
        "output_tokens_source": source,
        "timing": None if not good else "exact" if exact else "unreliable" if sparse else "per-chunk",
        "tokens_per_chunk": tokens / chunks if chunks else None,
    }


def _shares(good: Sequence[Pair]) -> dict[str, Any]:
    """Shares that the answers themselves tell; token-weighted, time-weighted for the queue."""
    answers = [pair.answer for pair in good]
    steps = [(a.output_tokens, a.verify_steps) for a in answers if a.verify_steps and a.output_tokens]
    waits = [(p.answer.queue_s, p.interval) for p in good if p.answer.queue_s is not None]
    lives_s = sum(one.end_ns - one.start_ns for _, one in waits) / 1e9
    return {
        "cached_token_share": _cached_share(answers),
        "acceptance_length": sum(t for t, _ in steps) / sum(s for _, s in steps) if steps else None,
        "acceptance_source": "requests" if steps else None,
        "queue_share": sum(wait for wait, _ in waits) / lives_s if lives_s > 0 else None,
        "mean_queue_s": statistics.fmean(wait for wait, _ in waits) if waits else None,
    }


def _cached_share(answers: Sequence[Answer]) -> float | None:
    """SGLang leaves the count out where it is 0; so once any answer has it, its absence elsewhere means 0."""
    if all(answer.cached_tokens is None for answer in answers):
        return None
    prompts = sum(answer.prompt_tokens or 0 for answer in answers)
    return sum(answer.cached_tokens or 0 for answer in answers) / prompts if prompts else None


def _client(run: PointRun) -> dict[str, Any]:
    lags = sorted(run.lags_ns)
    whole_s = (run.end_ns - run.start_ns) / 1e9
    return {
        "client_lag_mean_ms": statistics.fmean(lags) / 1e6 if lags else None,
        "client_lag_p99_ms": lags[int(0.99 * (len(lags) - 1))] / 1e6 if lags else None,
        "client_cpu_share": run.cpu_s / whole_s if whole_s > 0 else None,
        "arrival_clock": _arrival_clock(run),
        "client_read_delay_p99_ms": None if run.read_delay_p99_ns is None else run.read_delay_p99_ns / 1e6,
        "client_hot_path": "compiled" if run.compiled else "python",
        "unopened_streams": run.unopened,
        "arrivals_waited": run.arrivals_waited,
        "arrivals_unsent": run.arrivals_unsent,
    }


def _arrival_clock(run: PointRun) -> str | None:
    """Whose time the tokens' is: the kernel's at reception, or ours after reading."""
    if not run.reads:
        return None
    return "kernel" if run.reads_told == run.reads else "mixed" if run.reads_told else "read"
