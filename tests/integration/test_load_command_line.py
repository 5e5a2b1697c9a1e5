"""`python -m reckoning.load` as a user runs it, against a scripted server in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/unit/load"))

from scripted_server import ScriptedServer, chat, plain  # noqa: E402


def command(server: ScriptedServer, out: Path, *options: str) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "reckoning.load",
        "--base-url",
        server.url,
        "--out",
        str(out),
        "--output-tokens",
        "8",
    ]
    return [*words, *options]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "COLUMNS": "100"} | more


def run(server: ScriptedServer, out: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, out, *options), cwd=ROOT, env=environment(**env), capture_output=True, text=True, check=False
    )


def test_a_server_that_is_no_sglang(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8, first_s=0.01)) as server:
        done = run(
            server, tmp_path, "--model", "m", "--concurrency", "2,1", "--requests-per-stream", "3", "--ignore-eos"
        )
        prompts = [body["messages"][0]["content"] for body in server.bodies]
    assert done.returncode == 0, done.stderr
    assert len(set(prompts)) == len(prompts) == (2 + 1) * 2 * 3 + 2 + 1  # fresh ones; warm-up once per level
    points = json.loads((tmp_path / "points.json").read_text())["points"]
    assert sorted((entry["concurrency"], entry["repeat"]) for entry in points) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert all(entry["status"] == "ok" and entry["flush"] is None for entry in points)
    schema = json.loads((ROOT / "workflow/schemas/points.schema.json").read_text())
    jsonschema.validate({"schema_version": 1, "points": points}, schema)
    rows = pd.read_parquet(tmp_path / "requests.parquet")
    assert len(rows) == len(prompts)
    assert "whole run" in done.stdout


def test_sglang_is_recognised_and_flushed(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8), sglang=True) as server:
        server.info["internal_states"] = [{}]
        done = run(server, tmp_path, "--model", "m", "--concurrency", "1", "--repeats", "2")
        assert server.control.count("/flush_cache") == 2
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "points.json").read_text())["server"]["kind"] == "sglang"


@pytest.mark.parametrize("status", [503, 401])
def test_a_server_that_refuses_gives_exit_2_its_words_and_still_the_files(tmp_path: Path, status: int) -> None:
    with ScriptedServer(lambda n, body: plain(status, b"not today")) as server:
        done = run(server, tmp_path, "--model", "m", "--concurrency", "1")
    assert done.returncode == 2
    assert "not today" in done.stderr
    assert json.loads((tmp_path / "points.json").read_text())["points"][0]["status"] == "failed"
    assert set(pd.read_parquet(tmp_path / "requests.parquet").outcome) == {"http-status"}


def test_the_api_key_comes_from_the_environment_and_goes_nowhere_else(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        options = ("--model", "m", "--concurrency", "1", "--api-key-env", "MY_KEY")
        missing = run(server, tmp_path / "a", *options)
        done = run(server, tmp_path / "b", *options, MY_KEY="sk-secret-1")
        assert all("authorization: bearer sk-secret-1" in head.lower() for head in server.heads)
    assert missing.returncode == 2
    assert "MY_KEY: this environment variable is not set" in missing.stderr
    assert done.returncode == 0, done.stderr
    left = b"".join(file.read_bytes() for file in (tmp_path / "b").rglob("*") if file.is_file())
    assert b"sk-secret-1" not in left + done.stdout.encode() + done.stderr.encode()


def test_ctrl_c_keeps_the_finished_points(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8) if n < 5 else ["hang"]) as server:
        words = command(server, tmp_path, "--model", "m", "--concurrency", "1", "--repeats", "3")
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
        while len(server.bodies) < 6 and process.poll() is None:
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "1 of 3 points were finished and are saved" in errors
    assert len(json.loads((tmp_path / "points.json").read_text())["points"]) == 1


def test_bad_options_are_one_line(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        done = run(server, tmp_path, "--concurrency", "0")
        nameless = run(server, tmp_path, "--concurrency", "1")
    assert done.returncode == 2
    assert "0 is not a number >= 1" in done.stderr
    assert nameless.returncode == 2
    assert "name it with --model" in nameless.stderr
