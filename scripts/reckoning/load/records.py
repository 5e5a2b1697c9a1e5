"""From a finished point to its records: request rows (requests.parquet) and the point's entry (points.json). Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from .answers import Answer
from .closed_loop import PointRun
from .exchange import Exchange
from .window import (
    Interval,
    Window,
    mean_in_flight,
    most_in_flight,
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


def tpot_ms(answer: Answer) -> float | None:
    """Return the mean time per token after the first chunk, in ms.

    (last chunk - first chunk) / (tokens - tokens of the first chunk): with one token in the first chunk this is the
    usual (t_last - t_first) / (n - 1). None with fewer than two chunks.
    """
    if len(answer.chunk_ns) < 2 or answer.output_tokens is None:
        return None
    first = answer.chunk_tokens[0] if answer.chunk_tokens else 1
    later = answer.output_tokens - first
    if later <= 0:
        return None
    return (answer.chunk_ns[-1] - answer.chunk_ns[0]) / later / 1e6


def request_row(
    exchange: Exchange, answer: Answer, point: Mapping[str, Any], phase_name: str, seconds: Seconds
) -> dict[str, Any]:
    """Return one row of requests.parquet. In an open loop all times count from the planned arrival."""
    start = exchange.scheduled_ns or exchange.sent_ns
    first = answer.chunk_ns[0] if answer.chunk_ns else None
    content = answer.first_content_ns
    end = answer.chunk_ns[-1] if answer.outcome == "ok" else exchange.end_ns
    times = answer.chunk_ns
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
        "first_token_s": None if first is None else seconds(first),
        "end_s": seconds(exchange.end_ns),
        "ttft_ms": None if first is None else (first - start) / 1e6,
        "ttfc_ms": None if content is None else (content - start) / 1e6,
        "tpot_ms": tpot_ms(answer),
        "e2e_ms": (end - start) / 1e6,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "requested_tokens": exchange.prompt.requested_tokens,
        "output_tokens": answer.output_tokens,
        "output_tokens_source": answer.output_tokens_source,
        "reasoning_tokens": answer.reasoning_tokens,
        "chunks": len(times),
        "chunk_gap_ms": [(after - before) / 1e6 for before, after in itertools.pairwise(times)],
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


def point_record(
    run: PointRun, answers: Sequence[Answer], point: Mapping[str, Any], seconds: Seconds
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a point's entry, without flags and server counters, and its request rows.

    Throughput counts the tokens of successful requests only: those that arrived inside the steady window over its
    length (`output_tok_s`), and all of them over the time from the first request to the last end
    (`output_tok_s_whole_run`).
    """
    concurrency = point["concurrency"]
    intervals = [Interval(one.stream, one.sent_ns, one.end_ns) for one in run.exchanges]
    window = steady_window(intervals, concurrency)
    good = [answer for answer in answers if answer.outcome == "ok"]
    rows = [
        request_row(
            exchange,
            answer,
            point,
            phase(exchange.sent_ns, exchange.end_ns, exchange.turn, concurrency, window),
            seconds,
        )
        for exchange, answer in zip(run.exchanges, answers, strict=True)
    ]
    by_class = dict(sorted(Counter(answer.outcome for answer in answers).items()))
    cancelled = by_class.get("cancelled", 0) if run.dead is None else 0
    record = {
        **{key: point[key] for key in ("index", "workload", "concurrency", "repeat")},
        "status": "ok",
        "reason": None,
        "start_s": seconds(run.start_ns),
        "steady_start_s": None if window.start_ns is None else seconds(window.start_ns),
        "steady_end_s": None if window.end_ns is None else seconds(window.end_ns),
        "end_s": seconds(run.end_ns),
        "requests": {"ok": len(good), "failed": len(answers) - len(good) - cancelled, "by_class": by_class},
        **_tokens(run, good, window),
        **_concurrency(run, intervals),
        "realised_tokens_ratio": _realised(run, answers),
        **_sources(good),
        **_shares(good),
        **_client(run),
    }
    return record, rows


def arrivals(answer: Answer) -> tuple[list[int], list[int]] | None:
    """Return chunk times and tokens; where the tokens per chunk are unknown they are spread evenly over the chunks."""
    if not answer.chunk_ns or answer.output_tokens is None:
        return None
    if answer.chunk_tokens is not None:
        return answer.chunk_ns, answer.chunk_tokens
    count, total = len(answer.chunk_ns), answer.output_tokens
    return answer.chunk_ns, [total * (n + 1) // count - total * n // count for n in range(count)]


def _tokens(run: PointRun, good: Sequence[Answer], window: Window) -> dict[str, Any]:
    known = [pair for answer in good if (pair := arrivals(answer)) is not None]
    total = sum(sum(tokens) for _, tokens in known)
    last_ns = max((exchange.end_ns for exchange in run.exchanges), default=run.start_ns)
    whole_s = (last_ns - run.start_ns) / 1e9
    inside = sum(tokens_inside(times, tokens, window) for times, tokens in known)
    steady = inside / window.length_s if known and window.length_s > 0 else None
    peak = peak_tokens_per_s(pair for times, tokens in known for pair in zip(times, tokens, strict=True))
    return {
        "output_tokens": total if known else None,
        "output_tok_s": steady,
        "output_tok_s_whole_run": total / whole_s if known and whole_s > 0 else None,
        "peak_output_tok_s": None if peak is None else max(peak, steady or 0.0),
    }


def _concurrency(run: PointRun, intervals: Sequence[Interval]) -> dict[str, Any]:
    last_ns = max((one.end_ns for one in intervals), default=run.start_ns)
    return {
        "achieved_concurrency": mean_in_flight(intervals, run.start_ns, last_ns),
        "max_in_flight": most_in_flight(intervals),
    }


def _realised(run: PointRun, answers: Sequence[Answer]) -> float | None:
    """Tokens that came over tokens that were asked for, of the requests that succeeded."""
    pairs = [
        (answer.output_tokens, exchange.prompt.requested_tokens)
        for exchange, answer in zip(run.exchanges, answers, strict=True)
        if answer.outcome == "ok" and answer.output_tokens is not None
    ]
    requested = sum(asked for _, asked in pairs)
    return sum(came for came, _ in pairs) / requested if requested else None


def _sources(good: Sequence[Answer]) -> dict[str, Any]:
    sources = {answer.output_tokens_source for answer in good}
    source = "unknown" if not sources else sources.pop() if len(sources) == 1 else "mixed"
    exact = bool(good) and all(answer.chunk_tokens is not None for answer in good)
    chunks = sum(len(answer.chunk_ns) for answer in good)
    tokens = sum(answer.output_tokens or 0 for answer in good)
    sparse = not exact and tokens > 0 and chunks / tokens < 0.5
    timing = "exact" if exact else "unreliable" if sparse else "per-chunk"
    return {
        "output_tokens_source": source,
        "timing": timing if good else "unknown",
        "tokens_per_chunk": tokens / chunks if chunks else None,
    }


def _shares(good: Sequence[Answer]) -> dict[str, Any]:
    cached = [(a.cached_tokens, a.prompt_tokens) for a in good if a.cached_tokens is not None and a.prompt_tokens]
    steps = [(a.output_tokens, a.verify_steps) for a in good if a.verify_steps and a.output_tokens]
    waits = [a.queue_s for a in good if a.queue_s is not None]
    return {
        "cached_token_share": sum(c for c, _ in cached) / sum(p for _, p in cached) if cached else None,
        "acceptance_length": sum(t for t, _ in steps) / sum(s for _, s in steps) if steps else None,
        "acceptance_source": "requests" if steps else None,
        "mean_queue_s": statistics.fmean(waits) if waits else None,
    }


def _client(run: PointRun) -> dict[str, Any]:
    lags = sorted(run.lags_ns)
    whole_s = (run.end_ns - run.start_ns) / 1e9
    return {
        "client_lag_p99_ms": lags[int(0.99 * (len(lags) - 1))] / 1e6 if lags else None,
        "client_cpu_share": run.cpu_s / whole_s if whole_s > 0 else None,
        "unopened_streams": run.unopened,
    }
