"""Token truth, event by event. The right values are counted by hand."""

import json
from typing import Any

import pytest
from scripted_server import END, HEAD, chunk, delta, usage_only

from reckoning.load.answers import Answer, understand
from reckoning.load.events import Response, decode
from reckoning.load.framing import Head
from reckoning.load.records import tpot_ms

OK = Head(200, {"content-type": "text/event-stream"}, 0, "HTTP/1.1")
MS = 1_000_000

pytestmark = pytest.mark.usefixtures("hot_path")


def answer(events: list[tuple[float, Any]], ending: str = "complete", done: bool = True) -> Answer:
    """Events are (ms, message), each a chunk and a read of its own; [DONE] is added at the end."""
    coded = [(int(at * MS), json.dumps(message).encode()) for at, message in events]
    if done:
        coded.append((coded[-1][0] if coded else 0, b"[DONE]"))
    reads = [(0, HEAD), *((at, chunk(b"data: %b\n\n" % data)) for at, data in coded), (10**12, END)]
    raw = b"".join(read for _, read in reads)
    return understand(decode(raw, [at for at, _ in reads], [len(read) for _, read in reads]), ending)


def test_four_chunks_of_one_and_three_times_four_tokens() -> None:
    """CASE 34: TPOT is 120 ms / 12 tokens, and the gap between chunks keeps its own name."""
    got = answer(
        [
            (100, delta("a", usage=1)),
            (140, delta("b", usage=5)),
            (180, delta("c", usage=9)),
            (220, delta("d", usage=13)),
            (220, usage_only(13)),
        ]
    )
    assert (got.outcome, got.output_tokens, got.output_tokens_source) == ("ok", 13, "usage")
    assert got.chunk_tokens == [1, 4, 4, 4]
    assert tpot_ms(got) == pytest.approx(10.0)
    assert [at / MS for at in got.chunk_ns] == [100, 140, 180, 220]


def test_tpot_counts_the_tokens_after_the_first_chunk() -> None:
    """Chunks of 4 every 25 ms are 6.25 ms a token, also when the first chunk holds 4."""
    got = answer([(100 + 25 * n, delta("x", usage=4 * n + 4)) for n in range(5)])
    assert tpot_ms(got) == pytest.approx(6.25)


def test_tokens_per_chunk_are_unknown_without_running_usage() -> None:
    got = answer([(100, delta("ab")), (140, delta("cd")), (180, delta("ef")), (180, usage_only(9))])
    assert (got.output_tokens, got.output_tokens_source, got.chunk_tokens) == (9, "usage", None)


def test_as_many_text_chunks_as_tokens_means_one_each() -> None:
    got = answer([(100, delta("a")), (110, delta("b")), (120, delta("c")), (120, usage_only(3))])
    assert got.chunk_tokens == [1, 1, 1]


@pytest.mark.parametrize("channel", ["reasoning_content", "reasoning"])
def test_reasoning_counts_as_output_and_content_has_its_own_first_time(channel: str) -> None:
    """CASE 35: five deltas of reasoning, three of content."""
    events = [(50 + 10 * n, delta(**{channel: "a"}, content=None)) for n in range(5)]
    events += [(100 + 10 * n, delta("b")) for n in range(3)]
    got = answer([*events, (130, usage_only(8))])
    assert (got.output_tokens, len(got.chunk_ns), got.chunk_tokens) == (8, 8, [1] * 8)
    assert got.chunk_ns[0] == 50 * MS
    assert got.first_content_ns == 100 * MS


def test_reasoning_that_never_reaches_content() -> None:
    got = answer([(50, delta(reasoning_content="a")), (60, delta(reasoning_content="b")), (60, usage_only(2))])
    assert (got.outcome, got.output_tokens, got.first_content_ns) == ("ok", 2, None)


def test_more_reasoning_than_completion_tokens_is_taken_as_it_is() -> None:
    """CASE 36 (sglang#39826): reasoning_tokens may exceed completion_tokens by up to a block."""
    last = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "reasoning_tokens": 3}}
    got = answer([(1, delta("a")), (2, delta("b", finish="stop")), (2, last)])
    assert (got.outcome, got.output_tokens, got.reasoning_tokens) == ("ok", 2, 3)


def test_no_usage_counts_chunks_and_never_takes_the_requested_length() -> None:
    """CASE 36: 43 tokens, finish_reason stop, no usage."""
    got = answer([(100 + n, delta("t")) for n in range(43)] + [(143, delta(finish="stop"))])
    assert (got.output_tokens, got.output_tokens_source, got.finish_reason) == (43, "counted", "stop")
    assert got.chunk_tokens is None


def test_empty_deltas_are_no_tokens() -> None:
    got = answer([(10, delta("", role="assistant")), (20, delta("a", usage=1)), (30, delta("")), (40, usage_only(1))])
    assert list(got.chunk_ns) == [20 * MS]
    assert got.output_tokens == 1


def test_a_token_without_text_is_an_arrival_when_the_count_rises() -> None:
    got = answer([(20, delta("", usage=1)), (30, delta("a", usage=2))])
    assert (list(got.chunk_ns), got.chunk_tokens) == ([20 * MS, 30 * MS], [1, 1])


def test_tokens_that_only_the_last_count_shows_belong_to_the_last_chunk() -> None:
    got = answer(
        [(20, delta("a", usage=1)), (30, delta("b", usage=2)), (31, delta(finish="stop")), (31, usage_only(3))]
    )
    assert (got.output_tokens, got.chunk_tokens) == (3, [1, 2])


def test_a_running_count_that_falls_is_not_believed() -> None:
    got = answer([(20, delta("a", usage=3)), (30, delta("b", usage=2)), (40, usage_only(3))])
    assert (got.output_tokens, got.chunk_tokens) == (3, None)


def generate(at: float, text: str, tokens: int, finish: Any = None, **meta: Any) -> tuple[float, dict]:
    info = {"prompt_tokens": 7, "completion_tokens": tokens, "cached_tokens": 2, "finish_reason": finish} | meta
    return at, {"text": text, "meta_info": info}


def test_cumulative_text_of_generate() -> None:
    spec = {"spec_accept_length": 2.5, "spec_verify_ct": 2, "queue_time": 0.25}
    got = answer([generate(10, "a", 1), generate(20, "abcd", 4), generate(30, "abcdef", 5, {"type": "length"}, **spec)])
    assert (got.output_tokens, got.chunk_tokens, got.text) == (5, [1, 3, 1], "abcdef")
    assert (got.prompt_tokens, got.cached_tokens, got.finish_reason) == (7, 2, "length")
    assert (got.acceptance_length, got.verify_steps, got.queue_s) == (2.5, 2, 0.25)


def test_incremental_text_of_generate() -> None:
    got = answer([generate(10, "a", 1), generate(20, "bc", 3), generate(30, "a", 4, {"type": "stop"})])
    assert (got.chunk_tokens, got.text) == ([1, 2, 1], "abca")


def test_text_that_stands_still_while_tokens_come_is_still_an_arrival() -> None:
    """A token that ends in the middle of a character shows no text yet."""
    got = answer([generate(10, "a", 1), generate(20, "a", 2), generate(30, "aé", 3, {"type": "stop"})])
    assert got.chunk_tokens == [1, 1, 1]


def test_abort_inside_a_stream_is_a_stream_error() -> None:
    got = answer([generate(10, "a", 1), generate(20, "a", 1, {"type": "abort", "message": "out of memory"})])
    assert (got.outcome, got.error) == ("stream-error", "out of memory")


@pytest.mark.parametrize(
    ("events", "ending", "done", "outcome"),
    [
        ([(1, delta("a")), (2, {"error": {"code": 500, "message": "boom"}})], "complete", True, "stream-error"),
        ([(1, {"object": "error", "error": "boom"})], "complete", False, "stream-error"),
        ([], "complete", True, "empty"),
        ([(1, delta("", role="assistant"))], "complete", True, "empty"),
        ([(1, delta("a"))], "complete", False, "stream-error"),
        ([(1, delta("a"))], "reset", False, "reset"),
        ([(1, delta("a"))], "idle-timeout", False, "idle-timeout"),
        ([(1, delta("a"))], "total-timeout", False, "total-timeout"),
        ([], "refused", False, "refused"),
        ([(1, delta("a"))], "cancelled", False, "cancelled"),
        ([], "malformed", False, "stream-error"),
    ],
)
def test_every_ending_has_one_class(events: list, ending: str, done: bool, outcome: str) -> None:
    assert answer(events, ending, done).outcome == outcome


def test_http_errors_keep_status_and_text() -> None:
    head = Head(503, {}, 0, "HTTP/1.1")
    got = understand(Response(head, [], b'{"message": "overloaded"}'), "complete")
    assert (got.outcome, got.http_status, got.error) == ("http-status", 503, '{"message": "overloaded"}')
    assert got.output_tokens is None


def test_json_that_is_no_stream_is_an_error_with_its_text() -> None:
    got = understand(Response(OK, [], b'{"error": {"message": "no such model", "code": 404}}'), "complete")
    assert (got.outcome, got.error) == ("stream-error", "404: no such model")


def test_an_event_that_is_no_json_is_an_error() -> None:
    got = understand(Response(OK, [(1, b"{broken")], b""), "complete")
    assert got.outcome == "stream-error"
    assert "{broken" in got.error


@pytest.mark.parametrize(
    "odd", [[1, 2], {"choices": "x"}, {"choices": [None]}, {"usage": 7, "choices": []}, {"choices": [{"delta": "x"}]}]
)
def test_no_shape_of_json_raises(odd: Any) -> None:
    assert answer([(1, odd)]).outcome in ("stream-error", "empty")
