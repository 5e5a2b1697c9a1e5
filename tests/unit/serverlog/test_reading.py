"""Stages, excerpts, and reading a log that grows."""

import random
from pathlib import Path

import pytest

from reckoning.serverlog import STAGE_NAMES, LogFollower, LogReader, Stage, read_log

LOGS = Path(__file__).parents[2] / "data" / "serverlogs"
ALL = sorted(LOGS.glob("*/*.log"))


def test_stages_of_a_real_start():
    reading = read_log((LOGS / "recorded/ready-then-stopped.log").read_text())
    assert [stage.name for stage in reading.stages] == [
        "process start",
        "distributed initialisation",
        "loading weights",
        "KV cache",
        "attention backend",
        "HTTP server",
        "warm-up",
        "ready",
    ]
    assert reading.ready
    assert reading.last_stage == "ready"
    ready = reading.stages[-1]
    assert ready == Stage("ready", ready.line, "2026-11-29 17:22:56")


def test_stages_are_in_the_order_of_their_lines():
    for path in ALL:
        reading = read_log(path.read_text())
        lines = [stage.line for stage in reading.stages]
        assert lines == sorted(lines)
        assert {stage.name for stage in reading.stages} <= set(STAGE_NAMES)


def test_ranks_do_not_make_stages_flicker():
    text = (LOGS / "rebuilt/peer-first.log").read_text()
    names = [stage.name for stage in read_log(text).stages]
    assert names == ["process start", "distributed initialisation", "loading weights"]


def test_draft_model_loads_after_the_target():
    names = [stage.name for stage in read_log((LOGS / "recorded/draft-without-weights.log").read_text()).stages]
    assert names.count("loading weights") == 2


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", [1, 2])
def test_pieces_read_as_the_whole(path, seed):
    text = path.read_text()
    choose = random.Random(seed)
    reader = LogReader()
    at = 0
    while at < len(text):
        step = choose.randint(1, 400)
        reader.feed(text[at : at + step])
        if choose.random() < 0.2:
            reader.reading()  # asking must not disturb what follows
        at += step
    assert reader.reading() == read_log(text)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_words_that_spare_searches_hide_nothing(path, monkeypatch):
    quick = read_log(path.read_text())
    monkeypatch.setattr("reckoning.serverlog.reader.TRIGGERS", ("",))
    monkeypatch.setattr("reckoning.serverlog.stages.WORDS", ("",))
    assert read_log(path.read_text()) == quick


def test_unfinished_last_line_is_read_but_not_kept():
    reader = LogReader()
    reader.feed("[2026-01-01 00:00:00] Load weight beg")
    assert reader.reading().last_stage == "process start"
    reader.feed("in. avail mem=1 GB")
    assert reader.reading().last_stage == "loading weights"
    reader.feed("\n")
    assert reader.reading().lines == 1


def test_excerpt_surrounds_the_evidence():
    reading = read_log((LOGS / "rebuilt/ninja-curand.log").read_text())
    assert "fatal error: curand.h" in reading.excerpt
    assert "compilation terminated." in reading.excerpt


def test_excerpt_of_a_healthy_log_is_its_end():
    reading = read_log("".join(f"line {n}\n" for n in range(100)))
    assert reading.excerpt.splitlines()[-1] == "line 99"
    assert len(reading.excerpt.splitlines()) == 20


def test_decode_steps_without_graphs_are_counted():
    graph = "[2026-01-01 00:00:00] Decode batch, #running-req: 8, #token: 99, cuda graph: True, gen throughput: 1\n"
    prefill = graph.replace("Decode", "Prefill").replace("True", "False")
    reading = read_log(graph * 3 + graph.replace("True", "False") * 2 + prefill)
    assert reading.decode_batches == {"graph": 3, "eager": 2}


def test_colours_and_progress_bars_are_seen_through():
    text = "\x1b[32m[2026-01-01 00:00:00] Load weight begin.\x1b[0m\r\nLoading: 1%\rLoading: 2%\r\n"
    assert read_log(text).last_stage == "loading weights"


def test_follower_reads_what_was_added(tmp_path):
    path = tmp_path / "server.log"
    follower = LogFollower(path)
    assert not follower.poll()
    assert follower.reading().last_stage is None
    path.write_bytes("start é".encode()[:-1])  # half a character
    assert follower.poll()
    assert not follower.poll()
    with path.open("ab") as stream:
        stream.write(b"\xa9\n[2026-01-01 00:00:05] Init torch distributed begin.\n")
    assert follower.poll()
    assert follower.size == path.stat().st_size
    assert follower.reading().last_stage == "distributed initialisation"
    assert follower.reading().excerpt.startswith("start é")


def test_follower_starts_again_when_the_file_was_replaced(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("[2026-01-01 00:00:00] The server is fired up and ready to roll!\n" * 2)
    follower = LogFollower(path)
    follower.poll()
    assert follower.reading().ready
    path.write_text("new\n")
    assert follower.poll()
    assert not follower.reading().ready


def test_bad_bytes_and_endless_lines_are_survived(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"\xff\xfe\x00" * 10 + b"x" * 3_000_000 + b"\n[2026-01-01 00:00:00] Load weight begin.\n")
    follower = LogFollower(path)
    follower.poll()
    assert follower.reading().last_stage == "loading weights"


def test_empty_log():
    reading = read_log("")
    assert (reading.stages, reading.last_stage, reading.cause, reading.lines) == ((), None, None, 0)
