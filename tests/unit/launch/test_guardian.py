import os
import sys
import time
from pathlib import Path

import pytest

from reckoning.launch import guardian, processes
from reckoning.launch.server import CannotStart, Server


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("RECKONING_STATE_DIR", str(tmp_path / "state"))


def server(tmp_path: Path, *words: str, **more: object) -> Server:
    return Server(words, dict(os.environ), tmp_path, tmp_path / "log", [], stop_grace_s=1.0, **more)


def test_a_full_log_keeps_head_and_tail_and_says_how_much_is_missing(tmp_path):
    log = guardian.Log(str(tmp_path / "log"), 100)
    log.add(b"H" * 60)
    for number in range(40):
        log.add(bytes([65 + number % 26]) * (64 << 10))
    log.close()
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"H" * 60 + b"A" * 40 + b"\n[reckoning] the log is full")
    assert text.endswith(b"N" * (64 << 10))  # the 40th piece
    kept = text.split(b" bytes were left out here\n")[1]
    skipped = int(text.split(b" bytes were left out here\n")[0].rsplit(b" ", 1)[1])
    assert len(kept) + skipped + 100 == 60 + 40 * (64 << 10)


def test_output_and_exit_code_arrive(tmp_path):
    with server(tmp_path, sys.executable, "-c", "print('hello'); raise SystemExit(3)") as one:
        assert one.exited.wait(10)
    assert one.report and one.report.code == 3
    assert (tmp_path / "log").read_text() == "hello\n"


def test_the_exit_code_of_a_server_that_dies_at_once_is_not_lost(tmp_path):
    for _ in range(8):
        with server(tmp_path, "/bin/false") as one:
            assert one.exited.wait(10)
        assert one.report and one.report.code == 1


def test_the_server_has_a_session_of_its_own_and_dies_with_its_guardian(tmp_path):
    with server(tmp_path, "sleep", "600") as one:
        assert one.identity
        assert os.getsid(one.identity.pid) == one.identity.pid != os.getsid(0)
        one._guardian.kill()
        assert one.exited.wait(10)
        deadline = time.monotonic() + 10
        while one.identity.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not one.identity.alive()


def test_a_command_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(CannotStart, match="no-such-program"), server(tmp_path, "/no-such-program"):
        pass


def test_signals_ignored_by_the_guardian_are_not_ignored_by_the_server(tmp_path):
    with server(
        tmp_path, sys.executable, "-c", "import signal; print([signal.getsignal(n).name for n in (1, 15)])"
    ) as one:
        assert one.exited.wait(10)
    assert (tmp_path / "log").read_text() == "['SIG_DFL', 'SIG_DFL']\n"


def test_a_process_is_known_by_pid_and_start_time():
    me = processes.identify(os.getpid())
    assert me and me.alive()
    assert not processes.Identity(me.pid, me.start_ticks + 1).alive()
    assert processes.end([processes.Identity(me.pid, me.start_ticks + 1)], grace_s=1) == []  # and we live on
