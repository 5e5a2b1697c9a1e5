"""Server-sent events and their times, from raw bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import END, HEAD, chunk

from reckoning.load import events
from reckoning.load.events import decode
from reckoning.load.framing import parse_head

pytestmark = pytest.mark.usefixtures("hot_path")


def decoded(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """Each piece is one read, at 100, 200, 300, ... ns."""
    stamps = [100 * (n + 1) for n in range(len(pieces))]
    return list(decode(b"".join(pieces), stamps, [len(piece) for piece in pieces]).events)


def test_event_time_is_that_of_the_read_which_completes_its_data_line() -> None:
    whole = chunk(b'data: {"a": 1}\n\n')
    pieces = [HEAD, chunk(b"data: one\n\n"), whole[:9], whole[9:-3], whole[-3:], chunk(b"data: x\n\ndata: y\n\n") + END]
    assert decoded(pieces) == [(200, b"one"), (400, b'{"a": 1}'), (600, b"x"), (600, b"y")]


def test_a_line_feed_that_comes_in_the_next_read_gives_its_time() -> None:
    whole = chunk(b"data: one\n\n")
    assert decoded([HEAD + whole[:-4], whole[-4:] + END]) == [(200, b"one")]


@given(st.lists(st.integers(0, 400), max_size=20))
def test_no_split_of_the_bytes_loses_or_changes_an_event(cuts: list[int]) -> None:
    raw = HEAD + b"".join(chunk(f"data: event {n}\r\n\r\n".encode()) for n in range(9)) + chunk(b": ping\n\n") + END
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    events = decoded([raw[start:end] for start, end in itertools.pairwise(edges)])
    assert [data for _, data in events] == [f"event {n}".encode() for n in range(9)]
    assert [at for at, _ in events] == sorted(at for at, _ in events)


TEXTS = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=30)


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(0, 12), st.lists(st.integers(0, 2000), max_size=30))
def test_the_short_way_through_uniform_events_gives_what_the_long_way_gives(
    texts: list[str], odd_at: int, cuts: list[int]
) -> None:
    """A comment among the events sends the same body the long way; without it the short one is taken."""
    chunks = [chunk(f"data: {text}\n\n".encode()) for text in texts]
    odd = [*chunks[:odd_at], chunk(b": ping\n\n"), *chunks[odd_at:]]
    short, long = (HEAD + b"".join(body) + END for body in (chunks, odd))
    edges = [0, *sorted(min(cut, len(short)) for cut in cuts), len(short)]
    pieces = [short[start:end] for start, end in itertools.pairwise(edges)]
    assert [data for _, data in decoded([long])] == [data for _, data in decoded([short])]
    stamps, sizes = [100 * (n + 1) for n in range(len(pieces))], [len(piece) for piece in pieces]
    spans, fault = events._body_spans(short, parse_head(short))
    slowly = events._events(short, spans, list(itertools.accumulate(sizes)), stamps)
    assert fault is None
    assert list(decode(short, stamps, sizes).events) == slowly


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "the chunked body has no end"),
        (b"9", "the chunked body has no end"),
        (END[:-2], "the chunked body has no end"),
        (chunk(b"data: 1\n\n"), "the chunked body has no end"),
        (chunk(b"data: 1\n\n") + END + b"more", "bytes after the end of the response"),
        (b"9\r\ndata: 12\n\n\r\n" + END, "a chunk is not followed by a line end but by b'\\n\\r'"),
        (b"+9\r\ndata: 1\n\n\r\n" + END, "not a chunk size: b'+9'"),
        (b"xyz\r\ndata: 1\n\n\r\n" + END, "not a chunk size: b'xyz'"),
    ],
)
def test_wrong_framing_is_named(body: bytes, fault: str) -> None:
    assert decode(HEAD + body, [5], [len(HEAD + body)]).fault == fault


def test_an_event_over_several_chunks_and_data_without_a_space() -> None:
    assert decoded([HEAD, chunk(b"data:ab"), chunk(b"cd\n"), chunk(b"\n") + END]) == [(300, b"abcd")]


def test_data_of_several_lines_is_one_event() -> None:
    assert decoded([HEAD, chunk(b'data: {"a":\ndata: 1}\n\n') + END]) == [(200, b'{"a":\n1}')]


def test_a_body_framed_by_length_or_by_the_end_of_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    assert decoded([head + b"data: 1\n\n", b"data: 2\n\n"]) == [(100, b"1"), (200, b"2")]


def test_a_cut_off_response_keeps_the_events_that_came() -> None:
    assert decoded([HEAD, chunk(b"data: 1\n\n"), b"20\r\ndata: 2"]) == [(200, b"1")]


def test_what_is_no_stream_comes_back_as_body() -> None:
    raw = b'HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\n{"e": 42}'
    response = decode(raw, [5], [len(raw)])
    assert (response.head.status, response.body, response.events) == (500, b'{"e": 42}', [])
