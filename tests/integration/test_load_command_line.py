"""`python -m reckoning.load` as a user runs it, against a scripted server in this process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_keep_the_finished_points(tmp_path: Path, number: int, status: int) -> None:
    with ScriptedServer(lambda n, body: chat(8) if n < 5 else ["hang"]) as server:
        words = command(server, tmp_path, "--model", "m", "--concurrency", "1", "--repeats", "3")
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
        while len(server.bodies) < 6 and process.poll() is None:
            pass
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert "1 of 3 points were finished and are saved" in errors
    kept = json.loads((tmp_path / "points.json").read_text())
    assert (len(kept["points"]), kept["planned_points"]) == (1, 3)


def test_everything_that_is_wrong_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    prompts = tmp_path / "prompts.yaml"
    prompts.write_text("- id: a\n  text: hello: [\n")
    with ScriptedServer(lambda n, body: chat(8)) as server:
        options = (
            *("--concurrency", "4,0,4", "--request-rate", "-1", "--idle-timeout", "0", "--temperature", "nan"),
            *("--file", str(prompts), "--input-tokens", "7", "--max-duration", "1", "--min-duration", "2"),
            *("--tokenizer", "/nonexistent", "--base-url", "ftp://user:secret@host"),
        )
        done = run(server, taken, *options, "--api-key-env", "NO_SUCH_KEY")
        assert (server.bodies, server.control) == ([], [])
    assert done.returncode == 2
    faults = done.stderr.splitlines()
    for expected in (
        "--base-url ftp://host: not of the form",
        "--concurrency 0: not a number >= 1",
        "--concurrency: 4 is given 2 times",
        "--request-rate -1: not a number above 0",
        "--idle-timeout 0: not a number above 0",
        "--temperature nan: not a number >= 0",
        f"--file: {prompts}: not YAML in line 2",
        "--input-tokens 7: a file's prompts have their length",
        "--max-duration 1: shorter than --min-duration 2",
        "--tokenizer /nonexistent: does not exist",
        "--api-key-env NO_SUCH_KEY: this environment variable is not set",
        f"--out {taken}: ",
    ):
        assert any(fault.startswith(expected) for fault in faults), (expected, faults)
    assert len(faults) == 12
    assert "secret" not in done.stderr


def test_results_are_replaced_only_when_asked(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        options = ("--model", "m", "--concurrency", "1", "--repeats", "1", "--requests-per-stream", "1")
        assert run(server, tmp_path, *options).returncode == 0
        first = (tmp_path / "points.json").read_bytes()
        again = run(server, tmp_path, *options)
        assert (again.returncode, (tmp_path / "points.json").read_bytes()) == (2, first)
        assert "holds points.json and requests.parquet already; name another folder, or give" in again.stderr
        assert run(server, tmp_path, *options, "--overwrite").returncode == 0
    assert (tmp_path / "points.json").read_bytes() != first


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "HTTP 401, the server wants an API key"),
        (500, "/v1/models: HTTP 500: oops"),
        (404, "name it with --model"),
        (200, "name it with --model"),
    ],
)
def test_why_there_is_no_model(tmp_path: Path, status: int, expected: str) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        server._control = lambda method, path: plain(status, b"oops")  # type: ignore[method-assign]
        done = run(server, tmp_path, "--concurrency", "1", "--kind", "openai")
    assert done.returncode == 2
    assert expected in done.stderr
    assert "--api-key-env" in done.stderr or status != 401


def test_a_server_that_refuses_stream_options_can_be_measured(tmp_path: Path) -> None:
    def script(number: int, body: dict) -> list:
        return plain(400, b"unknown field stream_options") if "stream_options" in body else chat(8)

    with ScriptedServer(script) as server:
        options = ("--model", "m", "--concurrency", "1", "--repeats", "1")
        refused = run(server, tmp_path / "a", *options)
        done = run(server, tmp_path / "b", *options, "--usage", "none")
    assert refused.returncode == 2
    assert "none of 1 requests succeeded (HTTP 400): unknown field stream_options" in refused.stderr
    assert "try --usage at-end or --usage none" in refused.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", "no connection: Connection refused"),
        ("http://no-such-host.invalid:80", "unknown host"),
    ],
)
def test_why_there_is_no_connection(tmp_path: Path, url: str, expected: str) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        done = run(server, tmp_path, "--concurrency", "1", "--base-url", url.format(port=server.port))
    assert (done.returncode, expected in done.stderr, "urlopen" in done.stderr) == (2, True, False), done.stderr


def test_https_to_a_port_that_speaks_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ScriptedServer(lambda n, body: chat(8)) as server:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        done = run(server, tmp_path, "--concurrency", "1", "--base-url", url)
    assert done.returncode == 2
    assert "does this port speak plain http?" in done.stderr


def test_without_a_terminal_each_point_is_a_line_and_a_slow_client_says_why(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        options = ("--model", "m", "--concurrency", "1", "--repeats", "2")
        done = run(server, tmp_path, *options, RECKONING_HOT_PATH="python")
        broken = run(server, tmp_path / "b", *options, RECKONING_HOT_PATH="fast")
    assert "1 of 2: C=1 repeat" in done.stderr
    assert "2 of 2: C=1 repeat" in done.stderr
    assert "RECKONING_HOT_PATH=python asks for it" in done.stderr
    assert (broken.returncode, broken.stderr.count("\n")) == (2, 1), broken.stderr


def test_generate_needs_sglang(tmp_path: Path) -> None:
    with ScriptedServer(lambda n, body: chat(8)) as server:
        done = run(server, tmp_path, "--model", "m", "--concurrency", "1", "--endpoint", "generate")
    assert done.returncode == 2
    assert "use chat or completions" in done.stderr
