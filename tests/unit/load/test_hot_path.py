"""The compiled hot path: how it comes to be, and that it understands responses as Python does."""

from __future__ import annotations

import copy
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reckoning.load import events as events_module
from reckoning.load import hot_path, responses
from reckoning.load.exchange import ENDINGS, Exchange, Prompt
from reckoning.load.hot_path import CannotCompile, library
from reckoning.load.tape import MOST_READ_BYTES, Tape


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache, and nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(hot_path.VARIABLE, raising=False)
    monkeypatch.delenv("CC", raising=False)
    hot_path._loaded.cache_clear()
    yield tmp_path / "reckoning"
    hot_path._loaded.cache_clear()


def test_it_is_compiled_once_and_found_again(fresh: Path) -> None:
    assert library() is not None
    [made] = fresh.iterdir()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    before = made.stat().st_mtime_ns
    hot_path._loaded.cache_clear()
    assert library() is not None
    assert [(path, path.stat().st_mtime_ns) for path in fresh.iterdir()] == [(made, before)]


def test_without_a_compiler_python_does(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert library() is None
    monkeypatch.setenv(hot_path.VARIABLE, "compiled")
    with pytest.raises(CannotCompile, match="none of cc, gcc, clang is on the path"):
        library()


def test_a_compiler_that_fails_leaves_nothing_behind_and_is_quoted(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv(hot_path.VARIABLE, "compiled")
    with pytest.raises(CannotCompile, match="false -O3"):
        library()
    assert list(fresh.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_library_that_others_can_write_is_not_loaded(fresh: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    [made] = fresh.iterdir()
    made.chmod(mode)
    hot_path._loaded.cache_clear()
    assert library() is None
    monkeypatch.setenv(hot_path.VARIABLE, "compiled")
    with pytest.raises(CannotCompile, match="does not belong to this user alone; remove it"):
        library()


def test_a_compiler_that_makes_no_library_is_no_crash(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = fresh.parent / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho no library > "$2"\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    assert library() is None


def test_where_the_cache_cannot_be_written_it_is_compiled_for_this_process(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = fresh.parent / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert library() is not None
    assert [path.name for path in fresh.parent.iterdir()] == ["file"]


def test_an_unknown_wish_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hot_path.VARIABLE, "fast")
    with pytest.raises(CannotCompile, match="RECKONING_HOT_PATH='fast' is neither 'python' nor 'compiled'"):
        library()


def test_python_is_taken_when_asked_for(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hot_path.VARIABLE, "python")
    assert library() is None
    assert not fresh.exists()


# --- responses -----------------------------------------------------------------------------------------------------

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"[DONE]"


def response(*lines: bytes, head: bytes = SSE) -> bytes:
    """A whole response with one event for each line."""
    parts = [b"data: %b\n\n" % line for line in lines]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def settled(raws: list[bytes], reads: list[list[int]] | None = None) -> tuple[list[Exchange], Tape]:
    """Exchanges whose responses came in reads that end at the places given, at 10, 20, 30, ... ns."""
    tape, exchanges = Tape(), []
    for number, raw in enumerate(raws):
        exchange = Exchange(number, number, 0, Prompt("p", b"", 8))
        exchange.ending = "complete"
        inner = [] if reads is None else sorted({at for at in reads[number] if 0 < at < len(raw)})
        ends = np.array([*inner, len(raw)] if raw else [], dtype=np.int64)
        exchange.sizes = np.diff(ends, prepend=0)
        exchange.positions = tape.length + ends - exchange.sizes
        exchange.stamps = 10 * np.arange(1, len(ends) + 1)
        for position, size in zip(exchange.positions - tape.length, exchange.sizes, strict=True):
            block = tape.block
            block.put(raw[position : position + size])
            block.note(number, int(size), 1, 0)
        exchanges.append(exchange)
    return exchanges, tape


def usual_event(text: str = "a", count: int | None = 1, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": None, "content": text, "tool_calls": None} | delta, "finish_reason": None}
    usage = None if count is None else {"prompt_tokens": 5, "completion_tokens": count}
    return {"id": "x", "choices": [choice], "usage": usage}


@pytest.fixture
def left_to_python(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The responses that were not taken apart by compiled code."""
    monkeypatch.setenv(hot_path.VARIABLE, "compiled")
    seen: list[bytes] = []

    def decode(raw: bytes, *more: Any) -> events_module.Response:
        seen.append(raw)
        return events_module.decode(raw, *more)

    monkeypatch.setattr(responses, "decode", decode)
    return seen


def test_what_servers_send_all_the_time_takes_the_compiled_way(left_to_python: list[bytes]) -> None:
    sglang = usual_event("Grüße, 世界 \U0001f600\n", 7, reasoning_content=None)
    forms = [
        sglang,
        usual_event("", 1, reasoning_content="hm"),
        usual_event("x", None),
        usual_event("x", 1) | {"choices": [], "usage": {"completion_tokens": 1}},
        {"choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": "length"}]},
    ]
    dumps = [
        json.dumps(form, ensure_ascii=ascii_only, separators=separators).encode()
        for form in forms
        for ascii_only in (False, True)
        for separators in (None, (",", ":"))
    ]
    [answer] = responses.understand_all(*settled([response(*dumps, DONE)]))
    assert (answer.outcome, answer.finish_reason, answer.output_tokens) == ("ok", "length", 7)
    assert answer.text.startswith("Grüße, 世界 \U0001f600\n" * 4 + "hm")
    assert left_to_python == []


USUAL = json.dumps(usual_event()).encode()


def test_the_end_of_a_response_is_understood(left_to_python: list[bytes]) -> None:
    """Counts worked out by hand: 1, then 3 in one chunk, then the end of sequence, which the last usage adds."""
    lines = [
        b'{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}',
        b'{"choices":[{"delta":{"content":"bcd"}}],"usage":{"completion_tokens":4}}',
        b'{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":4}}',
        b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}',
    ]
    raw = response(*lines, DONE)
    [answer] = responses.understand_all(*settled([raw], [[raw.index(b"bcd")]]))
    assert (answer.outcome, answer.text, answer.finish_reason) == ("ok", "abcd", "stop")
    assert (list(answer.chunk_ns), answer.chunk_tokens, answer.output_tokens) == ([10, 20], [1, 4], 5)
    assert (answer.first_content_ns, answer.prompt_tokens) == (10, 9)
    assert left_to_python == []


def test_an_event_has_the_time_of_the_read_that_brought_its_line_feed(left_to_python: list[bytes]) -> None:
    raw = response(USUAL, USUAL, DONE)
    line_feed = raw.index(b"\n\n", len(SSE))
    for cut, first in ((line_feed, 20), (line_feed + 1, 10)):
        [answer] = responses.understand_all(*settled([raw], [[cut]]))
        assert list(answer.chunk_ns) == [first, 20]
    assert left_to_python == []


def test_a_usage_without_output_tokens_is_a_usage(left_to_python: list[bytes]) -> None:
    lines = [b'{"choices":[{"delta":{"content":"a"}}]}', b'{"choices":[],"usage":{"prompt_tokens":9}}']
    [answer] = responses.understand_all(*settled([response(*lines, DONE)]))
    assert (answer.prompt_tokens, answer.output_tokens, answer.output_tokens_source) == (9, 1, "counted")
    assert left_to_python == []


def test_more_chunks_than_there_is_room_for_are_left_to_python(
    left_to_python: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "SHORTEST_CHUNK", 600)
    raw = response(USUAL, USUAL, USUAL, USUAL, DONE)
    answers = responses.understand_all(*settled([raw, response(USUAL, DONE)]))
    assert [answer.text for answer in answers] == ["aaaa", "a"]
    assert left_to_python


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        SSE,
        SSE[:-1],
        response(USUAL)[:-1],
        response(USUAL) + b"x",
        response(USUAL).replace(b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"),
        response(USUAL).replace(b"data: ", b"data:"),
        response(USUAL).replace(b"data: ", b"event:"),
        response(USUAL, head=SSE.replace(b"200 OK", b"404 Not Found")),
        response(USUAL, head=SSE.replace(b"event-stream", b"plain")),
        response(USUAL, head=SSE.replace(b"Transfer-Encoding", b"X-Transfer-Encoding")),
        response(USUAL, head=SSE.replace(b"HTTP", b"FTTP")),
        response(USUAL, head=b"HTTP/1.1 100 Continue\r\n\r\n" + SSE),
    ],
)
def test_another_framing_is_left_to_python(raw: bytes, left_to_python: list[bytes]) -> None:
    before, after = response(USUAL, DONE), response(json.dumps(usual_event("after")).encode(), DONE)
    exchanges, tape = settled([before, raw, after])
    texts = [answer.text for answer in responses.understand_all(exchanges, tape)]
    assert (texts[0], texts[2]) == ("a", "after")
    assert left_to_python == [raw]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a"},"finish_reason":3}]}',
        b'{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}',
        b'{"choices":[{"delta":{"content":"a"},"finish_reason":"\\u0061"}]}',
        b'{"choices":[{"delta":null}]}',
        b'{"choices":[{}]}',
        b'{"choices":[null]}',
        b'{"choices":null}',
        b"[DONE] x",
        b'"[DONE]"',
        b'{"choices":[{"delta":{"content":"a","reasoning_content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"error":{}}',
        b'{"choices":[{"delta":{"content":"a"}}],"meta_info":{}}',
        b'{"choices":[{"delta":{"content":"a","tool_calls":[{}]}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1.0}}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":-1}}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":01}}',
        b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud83d\\u0061"}}]}',
        b'{"choices":[{"delta":{"content":"\\ude00"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud83"}}]}',
        b'{"choices":[{"delta":{"content":"\xc3"}}]}',
        b'{"choices":[{"delta":{"content":"\xed\xa0\x80"}}]}',
        b'{"choices":[{"delta":{"content":"a\x01"}}]}',
        b'{"choices":[{"delta":{"content":"a"}}]} x',
        b'{"choices":[{"delta":{"content":"a"}}],}',
        b'{"choices":[{"delta":{"content":"a"}}]',
        b'{"cho\\u0069ces":[{"delta":{"content":"a"}}]}',
        b'{"choices":[{"text":"a"}]}',
        b'{"x":' + b"[" * 40 + b"]" * 40 + b',"choices":[{"delta":{"content":"a"}}]}',
    ],
)
def test_whatever_else_an_event_may_be_is_left_to_python(line: bytes, left_to_python: list[bytes]) -> None:
    raw = response(USUAL, line, DONE)
    responses.understand_all(*settled([raw]))
    assert left_to_python == [raw]


VALUES = st.sampled_from(
    [
        None,
        "",
        "a",
        "Grüße",
        "\U0001f600",
        '"quoted" \\ \n\t',
        0,
        1,
        7,
        -1,
        1.5,
        1e300,
        True,
        [],
        {},
        [{}],
        {"a": [1, "b"]},
    ]
)
COUNTS = st.one_of(st.none(), st.integers(0, 40), VALUES)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """One event: usual, or with some values replaced, keys left out or added, and perhaps a byte broken."""
    event = usual_event(draw(st.text(max_size=20)), draw(st.one_of(st.none(), st.integers(0, 40))))
    choice = event["choices"][0]
    places: list[tuple[dict[str, Any], str]] = [
        (event, "choices"), (event, "usage"), (event, "error"), (event, "meta_info"), (event, "text"),
        (choice, "delta"), (choice, "finish_reason"), (choice, "text"),
        (choice["delta"], "content"), (choice["delta"], "reasoning_content"), (choice["delta"], "reasoning"),
        (choice["delta"], "tool_calls"), (choice["delta"], "role"),
    ]  # fmt: skip
    for _ in range(draw(st.integers(0, 2))):
        holder, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            holder[key] = copy.deepcopy(draw(VALUES))
        else:
            holder.pop(key, None)
    if isinstance(event.get("usage"), dict):
        event["usage"]["completion_tokens"] = draw(COUNTS)
        if draw(st.sampled_from([False, False, True])):
            del event["usage"]["completion_tokens"]
    line = bytearray(
        json.dumps(event, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1]))), "utf-8"
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(line) - 1))
        line[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(line).strip()


@st.composite
def whole_responses(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A response, perhaps with some bytes broken or its end missing, and where its reads end."""
    last = draw(st.sampled_from([[], [DONE], [b'{"choices":[],"usage":{"completion_tokens":9}}', DONE]]))
    raw = bytearray(response(*draw(st.lists(events(), max_size=8)), *last))
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1]))):
        at = draw(st.integers(0, len(raw) - 1))
        raw[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    length = draw(st.sampled_from([len(raw)] * 4 + [draw(st.integers(0, len(raw)))]))
    return bytes(raw[:length]), draw(st.lists(st.integers(1, max(length, 1)), max_size=8))


@settings(max_examples=500, deadline=None)
@given(st.lists(whole_responses(), min_size=1, max_size=4), st.sampled_from([*ENDINGS, None]))
def test_compiled_and_python_understand_the_same(both: list[tuple[bytes, list[int]]], ending: str | None) -> None:
    exchanges, tape = settled([raw for raw, _ in both], [reads for _, reads in both])
    exchanges[0].ending = ending
    compiled = responses.understand_all(exchanges, tape)
    assert compiled == [responses.understand_exchange(exchange, tape) for exchange in exchanges]


def test_responses_longer_than_a_batch_are_understood(left_to_python: list[bytes]) -> None:
    lines = [json.dumps(usual_event("x" * 3000, n + 1)).encode() for n in range(500)]
    raw = response(*lines, DONE)
    assert len(raw) > responses.BATCH_BYTES
    ends = list(range(MOST_READ_BYTES, len(raw), MOST_READ_BYTES))
    small = response(USUAL, DONE)
    exchanges, tape = settled([raw, small, b"", raw, small], [ends, [], [], ends, []])
    found = responses.understand_all(exchanges, tape)
    assert [answer.output_tokens for answer in found] == [500, 1, None, 500, 1]
    assert [len(answer.text) for answer in found] == [1_500_000, 1, 0, 1_500_000, 1]
    assert left_to_python == [b""]
