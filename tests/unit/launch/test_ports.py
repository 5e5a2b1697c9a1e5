import os
import socket

import pytest

from reckoning.launch import ports


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("RECKONING_STATE_DIR", str(tmp_path / "state"))


def free_bases(count: int) -> list[int]:
    plan = [0, 1, *range(ports.ZMQ_DELTA, ports.ZMQ_DELTA + ports.ZMQ_PORTS)]
    return [base for base in ports.shuffled_candidates() if all(ports.is_free(base + step) for step in plan)][:count]


def test_the_whole_plan_is_free_of_overlaps():
    used = [port for base in ports.CANDIDATES for port in (base, base + 1, *range(base + 233, base + 239))]
    assert len(used) == len(set(used))
    assert max(used) < 32768  # below the range from which the kernel takes ports for connections


def test_two_jobs_never_get_the_same_ports():
    bases = free_bases(2)
    with ports.reserve(candidates=bases) as first, ports.reserve(candidates=bases) as second:
        assert not set(first.all) & set(second.all)
        assert "reserved by another launch" in second.avoided[0]
    with ports.reserve(candidates=bases) as again:
        assert again.http == bases[0]


def test_a_listener_with_reuse_port_is_seen():
    """SO_REUSEPORT lets two sockets bind one port: a check that used it would call the port free."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        held.listen()
        assert ports.use_of(held.getsockname()[1]) == ports.TAKEN


def test_a_closing_connection_does_not_block_a_fixed_port():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()
    accepted.close()  # closed by the server's side first: its end stays in TIME_WAIT
    client.close()
    listener.close()
    assert ports.use_of(port) in (ports.CLOSING, None)
    with ports.reserve(fixed_http=port) as plan:
        assert plan.http == port and plan.avoided == ()


def test_a_fixed_port_that_is_taken_names_its_owner():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with (
            pytest.raises(ports.PortsTaken, match=rf"port {port} is taken by .*\(pid {os.getpid()}\)"),
            ports.reserve(port),
        ):
            pass


def test_listeners_are_found_by_pid():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert ports.listeners(port) == [os.getpid()]
        assert ports.listening([port, port + 1]) == [port]
    assert ports.listening([port]) == []
