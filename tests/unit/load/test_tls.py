"""Points over TLS: the same numbers, with the times of our reads."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, Step, chat, delta, sse

from reckoning.load import Measured, Target, measure_points

pytestmark = [
    pytest.mark.usefixtures("hot_path"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "certificate.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made[0]), "-keyout", str(made[1])]
    subprocess.run(words, check=True, capture_output=True)
    return made


def measure(steps: list[Step], certificate: tuple[Path, Path], workload: dict, requests: int) -> Measured:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    point = {"index": 0, "workload": "chat", "concurrency": 2, "repeat": 1, "seed": 7, "requests": requests}
    with ScriptedServer(lambda n, body: steps, tls=context) as server:
        target = Target(server.url, "m", kind="openai")
        points = [point | {"warmup_requests": 0}]
        zero = time.monotonic()
        return measure_points(target, points, {"chat": workload}, seed=1, limits={}, launch_clock_start=zero)


def test_a_point_over_tls(certificate: tuple[Path, Path], chat_workload: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six answers of eight tokens, one of them 40 000 letters long: larger than a read, and than a TLS record."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    steps = chat(8, first_s=0.03, gap_s=0.01)
    steps[9] = sse(delta("x" * 40_000, usage=4))
    measured = measure(steps, certificate, chat_workload, 6)
    rows = measured.requests
    assert list(rows.outcome) == ["ok"] * 6
    assert list(rows.output_tokens) == [8] * 6
    assert [list(tokens) for tokens in rows.chunk_tokens] == [[1] * 8] * 6
    assert (rows.ttft_ms >= 30).all()
    assert (rows.e2e_ms >= 30 + 7 * 10).all()
    assert measured.points[0]["arrival_clock"] == "read"
    assert measured.points[0]["client_read_delay_p99_ms"] is None


def test_a_connection_that_is_lost_and_one_that_is_not_trusted(
    certificate: tuple[Path, Path], chat_workload: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    lost = measure([*chat(4)[:3], 0.02, "reset"], certificate, chat_workload, 2)
    assert list(lost.requests.outcome) == ["reset"] * 2
    monkeypatch.delenv("SSL_CERT_FILE")
    refused = measure(chat(4), certificate, chat_workload, 2)
    assert list(refused.requests.outcome) == ["refused"] * 2
    assert "certificate verify failed" in refused.requests.error[0]
