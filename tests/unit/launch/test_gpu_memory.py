import pytest

from reckoning.launch.gpu_memory import after_launch, before_launch, wait_for_baseline


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("RECKONING_STATE_DIR", str(tmp_path / "state"))


def test_gpu_memory_is_waited_for_within_bounds():
    """Minefield trap 81: memory comes back up to a minute after the exit."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def read() -> list[float]:
        return [500.0 if clock[0] < 45 else 10.0, 700.0]

    base = [0.0, 600.0]
    assert wait_for_baseline(base, limit_s=60, read=read, sleep=sleep) is None
    assert clock[0] == pytest.approx(45, abs=1)
    clock[0] = 0.0
    words = wait_for_baseline(base, limit_s=30, read=read, sleep=sleep)
    assert words is not None and "GPU 0 500 MiB" in words and "GPU 1" not in words
    assert wait_for_baseline([], limit_s=0, read=lambda: [], sleep=sleep) is None


def test_memory_of_an_interrupted_launch_is_waited_for_by_the_next():
    first = before_launch(limit_s=1, read=lambda: [10.0, 20.0])
    assert (first.used_mib, first.held, first.neighbours) == ([10.0, 20.0], None, None)
    # That launch was killed: 9000 MiB are still held when the next one begins, and come back while it waits.
    readings = iter([[9010.0, 20.0], [10.0, 20.0]])
    second = before_launch(limit_s=5, read=lambda: next(readings, [10.0, 20.0]))
    assert (second.used_mib, second.held) == ([10.0, 20.0], None)
    third = before_launch(limit_s=0, read=lambda: [9010.0, 20.0])
    assert third.held is not None and "GPU 0 9000 MiB" in third.held
    assert third.neighbours == "memory is in use before the launch: GPU 0 9010 MiB"
    # After a launch that gave its memory back nothing is remembered.
    assert after_launch(third, limit_s=0, read=lambda: [9010.0, 20.0]) is None
    assert before_launch(limit_s=0, read=lambda: [9999.0, 20.0]).held is None


def test_without_a_gpu_there_is_nothing_to_wait_for():
    before = before_launch(limit_s=0, read=list)
    assert (before.used_mib, before.held, before.neighbours) == ([], None, None)
    assert after_launch(before, limit_s=0, read=list) is None
