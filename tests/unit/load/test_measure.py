"""Whole points against a scripted server: real sockets, every class of ending, and the protocol of a launch."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripted_server import END, HEAD, ScriptedServer, Step, chat, chunk, delta, plain, sse, usage_only

from reckoning.load import Measured, Target, measure_points
from reckoning.load.answers import understand
from reckoning.load.capture import read_capture
from reckoning.load.events import decode
from reckoning.load.records import COLUMNS, POINT_KEYS

pytestmark = pytest.mark.usefixtures("hot_path")


def point(index: int = 0, concurrency: int = 2, **keys: Any) -> dict[str, Any]:
    entry = {"index": index, "workload": "chat", "concurrency": concurrency, "repeat": 1, "seed": 7, "requests": 10}
    return entry | {"warmup_requests": 0} | keys


def measure(server: ScriptedServer, workload: dict, *points: dict, **options: Any) -> Measured:
    target = Target(server.url, "m", kind="sglang" if server.sglang else "openai")
    options = {"seed": 1, "limits": {}, "launch_clock_start": time.monotonic()} | options
    return measure_points(target, points or [point()], {"chat": workload}, **options)


def cut(steps: list[Step], keep: int, *more: Step) -> list[Step]:
    """The head and the first `keep` messages, then something else."""
    return [*steps[: 1 + keep], *more]


def test_a_good_point_has_every_key_and_one_row_per_request(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8, first_s=0.03, gap_s=0.005)) as server:
        measured = measure(server, chat_workload, point(requests=6))
    [entry] = measured.points
    assert set(entry) == set(POINT_KEYS)
    assert (entry["status"], entry["reason"]) == ("ok", None)
    assert entry["requests"] == {"ok": 6, "failed": 0, "by_class": {"ok": 6}}
    assert (entry["output_tokens"], entry["output_tokens_source"], entry["timing"]) == (48, "usage", "exact")
    assert entry["realised_tokens_ratio"] == 1.0
    assert entry["max_in_flight"] == 2
    rows = measured.requests
    assert list(rows.columns) == list(COLUMNS)
    assert len(rows) == 6
    assert set(rows.outcome) == {"ok"}
    assert (rows.ttft_ms >= 30).all()
    assert (rows.e2e_ms >= 30 + 7 * 5).all()
    assert [len(gaps) for gaps in rows.chunk_gap_ms] == [7] * 6
    assert entry["output_tok_s"] == pytest.approx(
        sum(rows.output_tokens[rows.end_s <= entry["steady_end_s"] + 1e-9])
        / (entry["steady_end_s"] - entry["steady_start_s"]),
        rel=0.4,
    )
    assert entry["peak_output_tok_s"] >= entry["output_tok_s"]


def test_ten_requests_of_which_four_are_good(chat_workload: dict) -> None:
    """CASE 37: every failure in its class, tokens of the good ones only, and the point is not ranked."""
    good = chat(5, first_s=0.01)
    error = sse({"error": {"code": 500, "message": "internal"}})
    scripts = [
        good,
        plain(503, b"busy"),
        plain(503, b"busy"),
        [HEAD, sse("[DONE]") + END],
        good,
        cut(good, 5, error, sse("[DONE]") + END),
        cut(good, 5, 0.1, "reset"),
        good,
        good,
        cut(good, 2, "hang"),
    ]
    with ScriptedServer(lambda n, body: scripts[n]) as server:
        measured = measure(server, chat_workload | {"output_tokens": 5}, limits={"request_idle_s": 0.4})
    [entry] = measured.points
    assert entry["requests"]["by_class"] == {
        "ok": 4,
        "http-status": 2,
        "empty": 1,
        "stream-error": 1,
        "reset": 1,
        "idle-timeout": 1,
    }
    assert (entry["requests"]["ok"], entry["requests"]["failed"]) == (4, 6)
    assert entry["output_tokens"] == 20
    assert "failed-requests" in entry["flags"]
    rows = measured.requests.set_index("request")
    assert list(rows.http_status[rows.outcome == "http-status"]) == [503, 503]
    assert rows.error[rows.outcome == "stream-error"].item() == "500: internal"
    assert rows.output_tokens[rows.outcome == "reset"].item() == 3
    assert rows.end_s.notna().all()


def test_when_all_fail_there_is_no_number(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: plain(503, b"overloaded")) as server:
        measured = measure(server, chat_workload, point(requests=4))
    [entry] = measured.points
    assert entry["status"] == "failed"
    assert entry["reason"] == "none of 4 requests succeeded (HTTP 503): overloaded"
    for key in (
        "output_tok_s",
        "output_tokens",
        "output_tok_s_whole_run",
        "peak_output_tok_s",
        "realised_tokens_ratio",
    ):
        assert entry[key] is None
    assert measured.requests.ttft_ms.isna().all()
    assert measured.requests.output_tokens.isna().all()


def test_nobody_listens(chat_workload: dict) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    measured = measure_points(
        Target(url, "m", kind="openai"), [point(requests=4)], {"chat": chat_workload}, seed=1, limits={}
    )
    assert measured.points[0]["requests"]["by_class"] == {"refused": 4}
    assert measured.points[0]["status"] == "failed"


def test_total_timeout_of_a_server_that_trickles(chat_workload: dict) -> None:
    endless: list[Step] = [HEAD, *[step for n in range(200) for step in (sse(delta("x")), 0.05)]]
    with ScriptedServer(lambda n, body: endless) as server:
        measured = measure(server, chat_workload, point(concurrency=1, requests=1), limits={"request_total_s": 0.4})
    assert list(measured.requests.outcome) == ["total-timeout"]
    assert measured.requests.chunks.item() >= 2


def test_server_that_dies_under_load_fails_this_point_and_the_rest(chat_workload: dict) -> None:
    """CASE 32: works up to 3 in flight, dies at 4; the earlier level is kept."""
    with ScriptedServer(lambda n, body: ["die"] if server.in_flight == 4 else chat(4, first_s=0.05)) as server:
        measured = measure(
            server,
            chat_workload | {"output_tokens": 4},
            point(0, concurrency=2, requests=4),
            point(1, concurrency=4, requests=8),
            point(2, concurrency=1, requests=1),
            alive=lambda: "process 77 has ended" if server.most_in_flight >= 4 else None,
            limits={"request_idle_s": 2},
        )
    first, second, third = measured.points
    assert (first["status"], set(first["flags"]) - {"client-limited"}) == ("ok", set())  # this machine may be busy
    assert (second["status"], second["reason"]) == ("failed", "process 77 has ended")
    assert sum(second["requests"]["by_class"].values()) == len(measured.requests[measured.requests.point == 1]) >= 4
    assert set(second["requests"]["by_class"]) <= {"reset", "refused", "cancelled"}
    assert second["output_tok_s"] is None
    assert (third["status"], third["reason"], third["requests"]["by_class"]) == ("failed", "process 77 has ended", {})


def test_a_check_of_the_server_that_raises_is_a_reason_not_a_crash(chat_workload: dict) -> None:
    calls = iter([None])

    def alive() -> str | None:
        return next(calls)

    with ScriptedServer(lambda n, body: ["hang"]) as server:
        measured = measure(server, chat_workload, point(), alive=alive)
    assert measured.points[0]["reason"].startswith("the check of the server failed: StopIteration")


def test_256_streams_are_256_requests_in_flight(chat_workload: dict) -> None:
    """CASE 38: no hidden limit of the client, and one connection per stream for all its requests."""
    with ScriptedServer(lambda n, body: chat(2, first_s=0.8)) as server:
        measured = measure(server, chat_workload | {"output_tokens": 2}, point(concurrency=256, requests=512))
        assert (server.most_in_flight, server.most_open, server.connections) == (256, 256, 256)
    [entry] = measured.points
    assert entry["max_in_flight"] == 256
    assert entry["requests"] == {"ok": 512, "failed": 0, "by_class": {"ok": 512}}


def test_fewer_requests_than_streams_is_flagged(chat_workload: dict) -> None:
    """CASE 41: the level was never reached."""
    with ScriptedServer(lambda n, body: chat(8, first_s=0.05)) as server:
        measured = measure(server, chat_workload, point(concurrency=8, requests=5))
    [entry] = measured.points
    assert entry["max_in_flight"] == 5
    assert entry["steady_start_s"] is None
    assert entry["output_tok_s"] is None
    assert entry["output_tok_s_whole_run"] > 0
    assert {"no-steady-window", "low-concurrency", "too-few-requests"} <= set(entry["flags"])


def test_a_point_below_the_minimum_duration_is_flagged(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        measured = measure(server, chat_workload, point(requests=4), limits={"min_point_duration_s": 30})
    assert "too-short" in measured.points[0]["flags"]


def test_early_stop_shows_in_the_realised_length(chat_workload: dict) -> None:
    """CASE 36: 43 tokens without usage where 512 were asked for."""
    with ScriptedServer(lambda n, body: chat(43, usage=False)) as server:
        measured = measure(server, chat_workload | {"output_tokens": 512}, point(concurrency=1, requests=2))
        assert server.bodies[0]["max_tokens"] == 512
    [entry] = measured.points
    assert list(measured.requests.output_tokens) == [43, 43]
    assert entry["realised_tokens_ratio"] == pytest.approx(43 / 512)
    assert {"tokens-off", "tokens-counted"} <= set(entry["flags"])


def test_few_chunks_of_unknown_tokens_make_timing_unreliable(chat_workload: dict) -> None:
    burst = [HEAD, sse(delta("a")), sse(delta("b c d e f g", finish="stop")), sse(usage_only(8)), sse("[DONE]") + END]
    with ScriptedServer(lambda n, body: burst) as server:
        measured = measure(server, chat_workload, point(concurrency=1, requests=2))
    assert measured.points[0]["timing"] == "unreliable"
    assert "timing-unreliable" in measured.points[0]["flags"]
    assert measured.requests.chunk_tokens.isna().all()
    assert measured.requests.tpot_ms.isna().all()


# --- how responses may be cut --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        [END[:2], 0.03, END[2:]],
        [END[:4], 0.03, END[4:]],
        [b"0\r\nX-Checksum: 1\r\n\r\n"],
        [b"0;last=1\r\n\r\n"],
        [chunk(b": bye\n\n") + END],
    ],
)
def test_however_the_end_is_written_the_stream_goes_on_over_the_same_connection(
    chat_workload: dict, ending: list
) -> None:
    answer = [*chat(3)[:-1], sse("[DONE]"), *ending]
    with ScriptedServer(lambda n, body: answer) as server:
        measured = measure(server, chat_workload | {"output_tokens": 3}, point(concurrency=1, requests=3))
        assert server.connections == 1
    assert list(measured.requests.outcome) == ["ok"] * 3
    assert list(measured.requests.output_tokens) == [3] * 3


def test_a_server_that_closes_after_each_answer_gets_new_connections(chat_workload: dict) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with ScriptedServer(lambda n, body: [head, *chat(3)[1:], "close"]) as server:
        measured = measure(server, chat_workload | {"output_tokens": 3}, point(concurrency=2, requests=6))
    assert list(measured.requests.outcome) == ["ok"] * 6
    assert list(measured.requests.new_connection).count(True) == 4


def test_a_body_that_ends_with_the_connection(chat_workload: dict) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    body = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with ScriptedServer(lambda n, _: [head, body, "close"]) as server:
        measured = measure(server, chat_workload, point(concurrency=1, requests=2))
    assert list(measured.requests.outcome) == ["ok", "ok"]


def test_bytes_that_only_look_like_an_end_are_no_silent_success(chat_workload: dict) -> None:
    """The body goes on behind them: the request is taken for ended, and then found to be broken, in full view."""
    false_end = chunk(b"data: {}\n\n" + b"\r\n" + END + b"\n\n")[: -len(b"\n\n\r\n")]
    answer = [*chat(2)[:-1], 0.05, false_end, 0.05, b"\n\n\r\n", sse("[DONE]") + END]
    with ScriptedServer(lambda n, body: answer) as server:
        measured = measure(server, chat_workload | {"output_tokens": 2}, point(concurrency=1, requests=1))
    assert list(measured.requests.outcome) == ["stream-error"]
    assert measured.requests.error.item() == "the chunked body has no end"


def test_a_fault_of_ours_ends_the_point_and_does_not_hang(chat_workload: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, *_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("reckoning.load.ear.Ear._leave_sign", broken)
    with (
        ScriptedServer(lambda n, body: chat(3)) as server,
        pytest.raises(ZeroDivisionError, match="ours"),
    ):
        measure(server, chat_workload, point(concurrency=1, requests=1))


def test_a_fault_of_ours_is_told_even_when_nothing_more_arrives(
    chat_workload: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, *_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("reckoning.load.ear.Ear._leave_sign", broken)
    with (
        ScriptedServer(
            lambda n, body: [0.05, b"".join(step for step in chat(3) if isinstance(step, bytes)), "hang"]
        ) as server,
        pytest.raises(ZeroDivisionError, match="ours"),
    ):
        measure(server, chat_workload, point(concurrency=1, requests=1), limits={"request_idle_s": 1})


def test_a_peer_that_speaks_something_else(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: [b"220 mail.example ESMTP\r\n", "close"]) as server:
        measured = measure(server, chat_workload, point(concurrency=1, requests=1))
    assert list(measured.requests.outcome) == ["stream-error"]
    assert "not an HTTP/1.x response" in measured.requests.error.item()


# --- protocol ------------------------------------------------------------------------------------------------------


def test_warm_up_is_at_least_one_request_per_stream_once_per_level(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(2, first_s=0.01), sglang=True) as server:
        workload = chat_workload | {"flush": True, "output_tokens": 2}
        levels = [point(0, 3, requests=6, warmup_requests=1), point(1, 1, requests=2, warmup_requests=1)]
        measured = measure(server, workload, *levels, point(2, 3, repeat=2, requests=6, warmup_requests=1))
    rows = measured.requests
    warm = rows[rows.phase == "warmup"]
    assert warm.groupby("concurrency").size().to_dict() == {1: 1, 3: 3}
    assert [entry["requests"]["ok"] for entry in measured.points] == [6, 2, 6]
    assert set(rows.phase) == {"warmup", "ramp", "steady", "drain"} - ({"drain"} - set(rows.phase))


def test_flush_is_repeated_until_the_server_confirms_it(chat_workload: dict) -> None:
    """CASE 40: /flush_cache answers 400 while requests run."""
    with ScriptedServer(lambda n, body: chat(2), sglang=True, flush_status=[400, 400, 200]) as server:
        measured = measure(server, chat_workload | {"flush": True}, point(requests=2))
        assert server.control.count("/flush_cache") == 3
        assert server.control.index("/flush_cache") < len(server.control)
    assert measured.points[0]["flush"] == {"done": True, "tries": 3}


def test_a_flush_that_is_refused_fails_the_point(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(2), sglang=True, flush_status=[403]) as server:
        measured = measure(server, chat_workload | {"flush": True}, point(requests=2))
        assert server.bodies == []
    assert measured.points[0]["status"] == "failed"
    assert measured.points[0]["reason"] == "cache flush not confirmed after 1 tries: HTTP 403: pending requests"


class Cache:
    """A prefix cache as SGLang reports it: prompts seen before are cached until a flush."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def script(self, number: int, body: dict) -> list[Step]:
        text = body["messages"][0]["content"]
        cached = 5 if text in self.seen else 0
        self.seen.add(text)
        return [HEAD, sse(delta("a", finish="stop")), sse(usage_only(1, prompt=5, cached=cached)), sse("[DONE]") + END]


def test_cached_share_is_recorded_and_a_cache_that_survives_is_flagged(chat_workload: dict) -> None:
    cache = Cache()
    levels = [point(0, 1, requests=3), point(1, 1, repeat=2, requests=3)]
    with ScriptedServer(cache.script, sglang=True) as server:
        server.on_flush = cache.seen.clear
        flushed = measure(server, chat_workload | {"flush": True, "output_tokens": 1}, *levels)
        server.on_flush = lambda: None
        broken = measure(server, chat_workload | {"flush": True, "output_tokens": 1}, *levels)
    assert [entry["cached_token_share"] for entry in flushed.points] == [0.0, 0.0]
    assert broken.points[1]["cached_token_share"] == 1.0
    assert "cached-prompts" in broken.points[1]["flags"]


def test_fresh_prompts_are_never_seen_twice(chat_workload: dict) -> None:
    cache = Cache()
    with ScriptedServer(cache.script) as server:
        workload = chat_workload | {"fresh_prompts": True, "output_tokens": 1}
        levels = [point(0, 2, requests=8, warmup_requests=2), point(1, 2, repeat=2, requests=8)]
        measured = measure(server, workload, *levels)
        assert len({body["messages"][0]["content"] for body in server.bodies}) == 2 + 8 + 8
    assert [entry["cached_token_share"] for entry in measured.points] == [0.0, 0.0]
    assert "cache-not-flushed" not in measured.points[0]["flags"]


def test_without_flush_and_without_fresh_prompts_the_point_says_so(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        measured = measure(server, chat_workload | {"flush": True}, point(requests=2))
    assert "cache-not-flushed" in measured.points[0]["flags"]


def test_another_server_at_the_same_address_is_noticed(chat_workload: dict) -> None:
    def script(number: int, body: dict) -> list[Step]:
        server.info["random_seed"] = 2
        return chat(8)

    with ScriptedServer(script, sglang=True) as server:
        measured = measure(server, chat_workload, point(0, requests=2), point(1, repeat=2, requests=2))
    assert measured.points[0]["status"] == "ok"
    assert measured.points[1]["reason"] == "another server process answers at this address than at the first point"


def test_more_streams_than_the_server_runs_at_once(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8), sglang=True) as server:
        server.info["internal_states"] = [{"effective_max_running_requests_per_dp": 3}]
        measured = measure(server, chat_workload, point(concurrency=4, requests=8))
    [entry] = measured.points
    assert (entry["max_running_requests"], entry["queue_share"]) == (3, 0.25)
    assert "queue-dominated" in entry["flags"]


def test_acceptance_length_from_the_servers_counters_and_from_requests(chat_workload: dict) -> None:
    def script(number: int, body: dict) -> list[Step]:
        tokens, steps = (12, 4) if number % 2 else (4, 4)
        meta = {"completion_tokens": tokens, "prompt_tokens": 3, "finish_reason": {"type": "length"}}
        meta |= {"spec_verify_ct": steps, "spec_accept_length": tokens / steps}
        return [HEAD, sse({"text": "a", "meta_info": meta}), sse("[DONE]") + END]

    with ScriptedServer(lambda n, body: chat(8), sglang=True) as server:
        server.info["internal_states"] = [{"avg_spec_accept_length": 2.25}]
        by_server = measure(server, chat_workload | {"flush": True}, point(requests=2))
    with ScriptedServer(script, sglang=True) as server:
        by_request = measure(server, chat_workload | {"endpoint": "generate"}, point(concurrency=1, requests=2))
        assert server.paths == ["/generate"] * 2
        assert "input_ids" not in server.bodies[0]
        assert server.bodies[0]["sampling_params"]["ignore_eos"] is True
    assert (by_server.points[0]["acceptance_length"], by_server.points[0]["acceptance_source"]) == (2.25, "server")
    assert (by_request.points[0]["acceptance_length"], by_request.points[0]["acceptance_source"]) == (2.0, "requests")
    assert sorted(by_request.requests.acceptance_length) == [1.0, 3.0]


def test_every_arm_sees_the_same_prompts_in_the_same_order(chat_workload: dict) -> None:
    asked = []
    for _ in range(2):
        with ScriptedServer(lambda n, body: chat(1)) as server:
            measure(server, chat_workload, point(concurrency=1, requests=9))
            asked.append([body["messages"][0]["content"] for body in server.bodies])
    with ScriptedServer(lambda n, body: chat(1)) as server:
        measure(server, chat_workload, point(concurrency=1, requests=9, seed=8))
        other = [body["messages"][0]["content"] for body in server.bodies]
    assert asked[0] == asked[1]
    assert asked[0] != other
    assert sorted(asked[0]) == sorted(other)


def test_usage_is_asked_for_and_ignore_eos_is_explicit(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(1)) as server:
        measure(server, chat_workload, point(concurrency=1, requests=1))
        measure(server, chat_workload | {"ignore_eos": False}, point(concurrency=1, requests=1))
        first, second = server.bodies
    assert first["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert first["ignore_eos"] is True
    assert "ignore_eos" not in second
    assert first["temperature"] == 0.0


def test_garbage_is_flagged_by_whoever_can_tell(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        measured = measure(server, chat_workload, point(requests=2), fault_of_texts=lambda texts: f"{len(texts)} odd")
    assert measured.points[0]["garbage"] == "2 odd"
    assert "garbage-output" in measured.points[0]["flags"]


def test_progress_tells_of_every_point_with_its_entry(chat_workload: dict) -> None:
    events: list[dict] = []
    with ScriptedServer(lambda n, body: chat(8)) as server:
        measured = measure(
            server, chat_workload, point(requests=2), point(1, workload="no-such"), progress=events.append
        )
    ends = [event for event in events if event["event"] == "point-end"]
    assert [event["entry"] for event in ends] == measured.points
    assert ends[1]["reason"] == "workload 'no-such' is not defined"
    assert [event["event"] for event in events].count("point-start") == 2


# --- when a point begins and stops ---------------------------------------------------------------------------------


def test_a_point_lasts_until_requests_and_minimum_duration_are_reached(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(2, first_s=0.02)) as server:
        workload = chat_workload | {"min_duration_s": 0.5, "output_tokens": 2}
        measured = measure(server, workload, point(concurrency=1, requests=2))
    [entry] = measured.points
    assert entry["requests"]["ok"] > 2
    assert entry["end_s"] - entry["start_s"] >= 0.5
    assert "too-short" not in entry["flags"]


def test_the_maximum_duration_stops_a_point_and_drain_can_be_cut(chat_workload: dict) -> None:
    slow = chat(100, first_s=0.01, gap_s=0.1)
    with ScriptedServer(lambda n, body: slow) as server:
        workload = chat_workload | {"max_duration_s": 0.3, "drain": "cancel"}
        measured = measure(server, workload, point(requests=None))
    [entry] = measured.points
    assert entry["requests"] == {"ok": 0, "failed": 0, "by_class": {"cancelled": 2}}
    assert entry["status"] == "failed"
    assert measured.requests.chunks.min() >= 2


def test_poisson_arrivals_count_latency_from_the_planned_moment(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(2, first_s=0.1)) as server:
        workload = chat_workload | {"arrival": "poisson", "request_rate_per_s": 50.0, "output_tokens": 2}
        measured = measure(server, workload, point(concurrency=2, requests=20))
        assert server.most_in_flight == 2
    [entry] = measured.points
    rows = measured.requests
    assert entry["requests"]["ok"] == 20
    assert entry["arrivals_waited"] > 0
    assert "arrivals-waited" in entry["flags"]
    assert (rows.start_s >= rows.scheduled_s).all()
    waited_ms = (rows.start_s - rows.scheduled_s) * 1e3
    assert rows.ttft_ms.tolist() == pytest.approx(((rows.first_token_s - rows.start_s) * 1e3 + waited_ms).tolist())
    assert (rows.ttft_ms - waited_ms >= 100).all()
    assert rows.scheduled_s.is_monotonic_increasing


def test_poisson_arrivals_are_the_same_for_every_arm(chat_workload: dict) -> None:
    gaps = []
    for _ in range(2):
        with ScriptedServer(lambda n, body: chat(1)) as server:
            workload = chat_workload | {"arrival": "poisson", "request_rate_per_s": 200.0}
            measured = measure(server, workload, point(concurrency=20, requests=20))
        planned = measured.requests.scheduled_s
        gaps.append((planned - measured.points[0]["start_s"]).tolist())
    assert gaps[0] == pytest.approx(gaps[1], abs=2e-9)


def test_a_launchs_first_point_with_one_time_work_in_it_is_flagged(chat_workload: dict) -> None:
    with ScriptedServer(lambda n, body: chat(8, first_s=0.5 if n < 2 else 0.01)) as server:
        measured = measure(server, chat_workload, *(point(index, requests=2) for index in range(2)))
    assert ["not-warm" in entry["flags"] for entry in measured.points] == [True, False]


# --- raw capture ---------------------------------------------------------------------------------------------------


def test_the_raw_capture_gives_the_same_answers_again(chat_workload: dict, tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(70, first_s=0.01, gap_s=0.001)) as server:
        workload = chat_workload | {"keep_raw": True, "output_tokens": 70}
        measured = measure(server, workload, point(requests=6), raw_folder=tmp_path / "raw")
    captured = list(read_capture(tmp_path / "raw" / "point0.zst"))
    rows = measured.requests
    assert len(captured) == 6
    for (_, row), one in zip(rows.iterrows(), captured, strict=True):
        answer = understand(decode(one.raw, one.stamps, one.sizes), one.header["ending"], one.header["error"])
        assert (answer.outcome, answer.output_tokens, answer.chunk_tokens) == ("ok", 70, row.chunk_tokens)
        assert (answer.chunk_ns[0] - one.header["sent_ns"]) / 1e6 == pytest.approx(row.ttft_ms)


def test_a_workload_that_cannot_be_made_says_what_is_missing(tmp_path: Path) -> None:
    for workload, words in (
        ({"kind": "prompts", "file": "no/such.yaml"}, "no/such.yaml does not exist"),
        ({"kind": "random", "input_tokens": 16}, "needs the model's tokenizer"),
        ({"kind": "random", "input_tokens": "x"}, "needs the model's tokenizer"),
        ({"kind": "songs"}, "'songs' is unknown: use one of prompts, random, long-context, jsonl"),
    ):
        with ScriptedServer(lambda n, body: chat(1)) as server:
            measured = measure(server, {"output_tokens": 4, "flush": False} | workload)
        assert measured.points[0]["status"] == "failed"
        assert words in measured.points[0]["reason"]


def test_jsonl_of_the_user(chat_workload: dict, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "one", "output_tokens": 3}\n\n{"messages": [{"role": "user", "content": "two"}]}\n')
    with ScriptedServer(lambda n, body: chat(body["max_tokens"])) as server:
        workload = {"kind": "jsonl", "file": str(file), "output_tokens": 8, "flush": False}
        measured = measure(server, workload, point(concurrency=1, requests=4))
        assert sorted(body["max_tokens"] for body in server.bodies) == [3, 3, 8, 8]
    assert measured.points[0]["realised_tokens_ratio"] == 1.0
    file.write_text('{"prompt": "one"}\n{"text": "x"}\nnot json\n')
    with ScriptedServer(lambda n, body: chat(1)) as server:
        measured = measure(server, workload)
    assert "line 2: neither `prompt` (text) nor `messages`; line 3: not JSON" in measured.points[0]["reason"]


def test_prompts_without_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump([{"id": "a", "text": "x"}, {"id": "b"}]))
    with ScriptedServer(lambda n, body: chat(1)) as server:
        measured = measure(server, {"kind": "prompts", "file": str(file), "output_tokens": 1, "flush": False})
    assert measured.points[0]["reason"].endswith("entry 2 has no `text`")
