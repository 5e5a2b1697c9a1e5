"""Where a response ends: every split of the same bytes must give the same answer."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reckoning.load.framing import ChunkedBody, FramingError, parse_head

CHUNKED = b"6\r\nhello \r\n1a;ext=1\r\ndata: 0\r\n\r\nnot the end\r\n\r\n\r\n0\r\nX-Trailer: y\r\n\r\n"
PAYLOADS = [b"hello ", b"data: 0\r\n\r\nnot the end\r\n\r\n"]


def test_head_is_read_only_when_complete_and_interim_responses_are_skipped() -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\nContent-Len") is None
    interim, final = (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy",
    )
    head = parse_head(interim + final)
    assert head is not None
    assert (head.status, head.content_length, head.keeps_alive) == (503, 4, False)
    assert head.size == len(interim) + len(final) - len(b"busy")


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        parse_head(data)


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=12))
def test_chunked_body_is_complete_at_its_last_byte_however_it_is_split(cuts: list[int]) -> None:
    body = ChunkedBody(keep_spans=True)
    edges = [0, *sorted(cuts), len(CHUNKED)]
    for start, end in itertools.pairwise(edges):
        complete = body.feed(CHUNKED[start:end])
        assert complete == (end == len(CHUNKED))
    assert b"".join(CHUNKED[start:end] for start, end in body.spans) == b"".join(PAYLOADS)


def test_terminator_like_bytes_inside_a_chunk_do_not_end_the_body() -> None:
    body = ChunkedBody()
    assert not body.feed(b"8\r\nxx0\r\n\r\nx")
    assert body.feed(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("data", [b"zz\r\n", b"0\r\n\r\nmore", b"1" * 70000])
def test_broken_chunking_is_an_error(data: bytes) -> None:
    with pytest.raises(FramingError):
        ChunkedBody().feed(data)


def test_what_follows_a_chunk_is_checked_when_it_comes_later_too() -> None:
    body = ChunkedBody()
    assert body.feed(b"3\r\nabc") is False
    with pytest.raises(FramingError, match="not followed by a line end"):
        body.feed(b"XY")


def test_the_usual_end_of_a_read_is_no_end_of_a_body() -> None:
    assert ChunkedBody().feed(b"5\r\nab\n\n\n\r\n") is False


def test_digits_that_are_no_ascii_are_no_number() -> None:
    with pytest.raises(FramingError, match="status line"):
        parse_head("HTTP/1.1 20² OK\r\n\r\n".encode("latin-1"))
    head = parse_head("HTTP/1.1 200 OK\r\nContent-Length: 1²\r\n\r\n".encode("latin-1"))
    assert head is not None
    assert head.content_length is None


def test_the_size_of_a_head_counts_interim_heads_whatever_was_parsed_before() -> None:
    final, interim = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"
    for data in (final, interim + final, interim + interim + final, final):
        head = parse_head(data + b"body")
        assert head is not None
        assert (head.status, head.size) == (200, len(data))
