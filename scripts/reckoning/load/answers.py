"""Token truth: what one response says about tokens and time, and in which class it ended. Pure.

A chunk here is an event that brings tokens. Tokens per chunk are exact, or stated to be unknown; the number of tokens
that was asked for is never used as the number that came.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .events import Response

UNTOLD = -1

OUTCOMES = (
    "ok",
    "http-status",
    "refused",
    "reset",
    "stream-error",
    "empty",
    "idle-timeout",
    "total-timeout",
    "cancelled",
)


@dataclass
class Answer:
    """One response, understood. Times in monotonic ns, None where unknown.

    `chunk_ns` and `chunk_tokens` run in parallel: arrival and exact number of tokens of each chunk. `chunk_tokens` is
    None when the server does not tell (no usage, or a usage that does not fit the chunks).
    `output_tokens_source`: `usage` (the server's count), `counted` (chunks that bring text), `unknown`.
    """

    outcome: str
    http_status: int | None = None
    error: str | None = None
    finish_reason: str | None = None
    chunk_ns: array[int] = field(default_factory=lambda: array("q"))
    chunk_tokens: list[int] | None = None
    first_content_ns: int | None = None
    output_tokens: int | None = None
    output_tokens_source: str = "unknown"
    reasoning_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    acceptance_length: float | None = None
    verify_steps: int | None = None
    queue_s: float | None = None
    text: str = ""


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: Any = None
    finish_reason: Any = None


class Usage(msgspec.Struct, gc=False):
    """The `usage` of an event."""

    completion_tokens: Any = None
    prompt_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    reasoning_tokens: Any = None


class _Event(msgspec.Struct, gc=False):
    """What is read of an event; values that are read have any type here, so that an odd one spoils only itself."""

    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    meta_info: dict[str, Any] | None = None
    text: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode


@dataclass
class Reading:
    """What the events of one response say, as far as they have been read."""

    answer: Answer
    texts: list[str] = field(default_factory=list)  # of every channel, in order
    with_text: int = 0  # chunks that brought text
    chunk_counts: list[int] = field(default_factory=list)  # running token count of each, or UNTOLD
    total: int | None = None
    usage: Usage = field(default_factory=Usage)  # the last one
    cumulative_text: str = ""
    finished: bool = False
    error: str | None = None


def understand(response: Response, ending: str, error: str | None = None) -> Answer:
    """Classify a response and extract its tokens. `ending` is the exchange's (see `exchange.ENDINGS`)."""
    status = response.head.status if response.head else None
    answer = Answer(outcome="ok", http_status=status, error=error)
    if (status is not None and status >= 400) or (status is not None and 300 <= status < 400):
        answer.outcome = "http-status"
        answer.error = _excerpt(response.body or b" ".join(data for _, data in response.events)) or error
        return answer
    reading = _read(answer, response.events)
    if ending == "complete" and not response.events and response.body:
        reading.error = _error_in_body(response.body)
    return conclude(reading, ending, error, response.fault)


def conclude(reading: Reading, ending: str, error: str | None = None, fault: str | None = None) -> Answer:
    """Complete the answer from all that was read of it. `fault` is the response's."""
    answer = reading.answer
    _settle_usage(answer, reading.usage)
    _settle_tokens(answer, reading)
    answer.outcome, answer.error = _outcome(answer, reading, ending, error, fault)
    return answer


def usage_of(event: bytes) -> Usage:
    """Return the usage that an event tells."""
    return _decode_event(event).usage or Usage()


def _outcome(
    answer: Answer, reading: Reading, ending: str, error: str | None, fault: str | None
) -> tuple[str, str | None]:
    if reading.error is not None:
        return "stream-error", reading.error
    if ending == "malformed":
        return "stream-error", error
    if ending != "complete":
        return ending, error
    if fault is not None:
        return "stream-error", fault
    if not answer.chunk_ns:
        return "empty", "the response holds no token"
    if not reading.finished:
        return "stream-error", "the stream ended without finish_reason and without [DONE]"
    return "ok", None


def _read(answer: Answer, events: Sequence[tuple[int, bytes]]) -> Reading:
    reading = Reading(answer)
    for at_ns, data in events:
        _read_event(reading, at_ns, data)
    return reading


def _read_event(reading: Reading, at_ns: int, data: bytes) -> None:
    try:
        event = _decode_event(data)
        if event.error:
            reading.error = reading.error or _error_text(event.error)
        elif event.meta_info is None:
            _read_openai(reading, at_ns, event)
        else:
            _read_generate(reading, at_ns, event)
    except msgspec.DecodeError as fault:
        if data.strip() == b"[DONE]":
            reading.finished = True
        elif data.strip():
            what = "has an unknown form" if isinstance(fault, msgspec.ValidationError) else "is not JSON"
            reading.error = reading.error or f"an event {what} ({fault}): {_excerpt(data)}"
    except (AttributeError, TypeError, ValueError):
        reading.error = reading.error or f"an event has an unknown form: {_excerpt(data)}"


def _read_openai(reading: Reading, at_ns: int, event: _Event) -> None:
    """An event of /v1/chat/completions or /v1/completions."""
    choices, usage = event.choices, event.usage
    text = content = ""
    for choice in choices or ():
        delta = choice.delta
        if delta is not None:
            content += delta.content or ""
            text += delta.reasoning_content or delta.reasoning or ""
            if delta.tool_calls:
                text += _text_of_calls(delta.tool_calls)
        elif choice.text:
            content += choice.text
        if choice.finish_reason:
            reading.answer.finish_reason, reading.finished = str(choice.finish_reason), True
    count = None
    if usage is not None:
        count = _whole(usage.completion_tokens, None)
        reading.usage = usage
    if content and reading.answer.first_content_ns is None:
        reading.answer.first_content_ns = at_ns
    _note_chunk(reading, at_ns, text + content, count, bool(choices))


def _text_of_calls(calls: Sequence[dict[str, Any]]) -> str:
    functions = [call.get("function") or {} for call in calls]
    return "".join((function.get("name") or "") + (function.get("arguments") or "") for function in functions)


def _settle_usage(answer: Answer, usage: Usage) -> None:
    """What the last usage says beside the number of output tokens."""
    answer.prompt_tokens = _whole(usage.prompt_tokens, answer.prompt_tokens)
    details = usage.prompt_tokens_details
    if isinstance(details, dict):
        answer.cached_tokens = _whole(details.get("cached_tokens"), answer.cached_tokens)
    details = usage.completion_tokens_details
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else usage.reasoning_tokens
    answer.reasoning_tokens = _whole(reasoning, answer.reasoning_tokens)


def _read_generate(reading: Reading, at_ns: int, event: _Event) -> None:
    """An event of SGLang's /generate: text is cumulative unless the server streams increments."""
    answer, meta = reading.answer, event.meta_info or {}
    text = event.text or ""
    if text.startswith(reading.cumulative_text):
        fresh, reading.cumulative_text = text[len(reading.cumulative_text) :], text
    else:
        fresh, reading.cumulative_text = text, ""
    answer.prompt_tokens = _whole(meta.get("prompt_tokens"), answer.prompt_tokens)
    answer.cached_tokens = _whole(meta.get("cached_tokens"), answer.cached_tokens)
    answer.verify_steps = _whole(meta.get("spec_verify_ct"), answer.verify_steps)
    answer.acceptance_length = _positive(meta.get("spec_accept_length"), answer.acceptance_length)
    answer.queue_s = _positive(meta.get("queue_time"), answer.queue_s)
    finish = meta.get("finish_reason")
    if finish:
        kind = finish.get("type") if isinstance(finish, dict) else finish
        answer.finish_reason, reading.finished = str(kind), True
        if kind == "abort":
            reading.error = reading.error or str(finish.get("message") or "aborted by the server")
    if fresh and answer.first_content_ns is None:
        answer.first_content_ns = at_ns
    count = _whole(meta.get("completion_tokens"), None)
    _note_chunk(reading, at_ns, fresh, count, has_choice=True)


def _note_chunk(reading: Reading, at_ns: int, text: str, count: int | None, has_choice: bool) -> None:
    """Record a chunk when the event brought text, or a higher token count together with a choice."""
    before = reading.total or 0
    if count is not None and (reading.total is None or count > reading.total):
        reading.total = count
    if text:
        reading.texts.append(text)
        reading.with_text += 1
    if text or (has_choice and count is not None and count > before):
        reading.answer.chunk_ns.append(at_ns)
        reading.chunk_counts.append(UNTOLD if count is None else count)


def _settle_tokens(answer: Answer, reading: Reading) -> None:
    """Decide the number of output tokens, and of each chunk, from what the server said.

    With a running count on every chunk the differences are exact; tokens that the final count adds (an end-of-sequence
    token without text) belong to the last chunk. Without it, as many chunks with text as tokens means one token each,
    because a chunk with text holds at least one.
    """
    answer.text = "".join(reading.texts)
    if reading.total is None:
        if reading.with_text:
            answer.output_tokens, answer.output_tokens_source = reading.with_text, "counted"
        return
    answer.output_tokens, answer.output_tokens_source = reading.total, "usage"
    counts = reading.chunk_counts
    if counts and UNTOLD not in counts:
        steps = [counts[0], *map(operator.sub, counts[1:], counts)]
        if min(steps) >= 0:
            steps[-1] += reading.total - counts[-1]
            answer.chunk_tokens = steps
    elif reading.total == reading.with_text == len(counts):
        answer.chunk_tokens = [1] * reading.total


def _whole(value: Any, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def _positive(value: Any, otherwise: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else otherwise


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        code = error.get("code") or error.get("type")
        message = str(error.get("message") or "")
        return f"{code}: {message}" if code is not None else message or str(error)
    return str(error)


def _error_in_body(body: bytes) -> str:
    try:
        message = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return f"the response is no event stream: {_excerpt(body)}"
    if isinstance(message, dict) and message.get("error"):
        return _error_text(message["error"])
    return f"the response is no event stream: {_excerpt(body)}"


def _excerpt(data: bytes, length: int = 300) -> str:
    return data[:length].decode("utf-8", "replace").strip()
