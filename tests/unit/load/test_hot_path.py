"""The compiled hot path: how it comes to be, and that it understands events as Python does."""

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

from reckoning.load import hot_path
from reckoning.load.answers import _read_usual, _Reading, understand
from reckoning.load.events import Response, UniformEvents
from reckoning.load.framing import Head
from reckoning.load.hot_path import CannotCompile, library

HEAD = Head(200, {}, 0, "HTTP/1.1")


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


# --- events --------------------------------------------------------------------------------------------------------


def uniform(lines: list[bytes]) -> UniformEvents:
    """Events one behind the other, at 10, 20, 30, ... ns."""
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    begins = ends - np.array([len(line) for line in lines])
    places = np.stack([begins, ends, 10 * np.arange(1, len(lines) + 1)]).astype(np.int64)
    return UniformEvents(b"".join(lines), places, len(lines))


def usual_event(text: str = "a", count: int | None = 1, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": None, "content": text, "tool_calls": None} | delta, "finish_reason": None}
    usage = None if count is None else {"prompt_tokens": 5, "completion_tokens": count}
    return {"id": "x", "choices": [choice], "usage": usage}


def how_many_are_usual(*lines: bytes) -> int:
    return _read_usual(_Reading(understand(Response(HEAD, [], b""), "complete")), uniform(list(lines)), 0)


def test_what_servers_send_all_the_time_takes_the_compiled_way() -> None:
    sglang = usual_event("Grüße, 世界 \U0001f600\n", 7, reasoning_content=None)
    forms = [
        sglang,
        usual_event("", 1, reasoning_content="hm"),
        usual_event("x", None),
        {"choices": [{"index": 0, "delta": {"content": "x"}}]},
    ]
    for form in forms:
        assert how_many_are_usual(json.dumps(form, ensure_ascii=False).encode()) == 1, form
        assert how_many_are_usual(json.dumps(form, separators=(",", ":"), ensure_ascii=False).encode()) == 1, form


@pytest.mark.parametrize(
    "line",
    [
        b"[DONE]",
        b"",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}',
        b'{"choices":[{"delta":{"content":"a","reasoning_content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"error":{}}',
        b'{"choices":[{"delta":{"content":"a"}}],"meta_info":{}}',
        b'{"choices":[{"delta":{"content":"a","tool_calls":[{}]}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1.0}}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":-1}}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":01}}',
        b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
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
def test_whatever_else_it_may_be_is_left_to_python(line: bytes) -> None:
    assert how_many_are_usual(line) == 0


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
    line = bytearray(
        json.dumps(event, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1]))), "utf-8"
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(line) - 1))
        line[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(line).strip()


@settings(max_examples=600, deadline=None)
@given(st.lists(events(), min_size=1, max_size=12))
def test_compiled_and_python_understand_the_same(lines: list[bytes]) -> None:
    both = uniform(lines)
    compiled, python = (understand(Response(HEAD, form, b""), "complete") for form in (both, list(both)))
    assert compiled == python
