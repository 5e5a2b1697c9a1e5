import json
import os
import threading

import pytest

from reckoning.launch import MachineBusy, machine_lock
from reckoning.launch.machine_lock import Claim
from reckoning.launch.processes import Identity, boot_id, identify
from reckoning.launch.state import machine_folder


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("RECKONING_STATE_DIR", str(tmp_path / "state"))


def claim_of(owner: Identity, boot: str | None = None) -> dict:
    numbers = [owner.pid, owner.start_ticks]
    claim = {"experiment": "other", "results": "/r", "user": "somebody", "since": "2026-01-01T00:00:00+00:00"}
    return claim | {"owner": numbers, "launch": numbers, "boot": boot or boot_id()}


def init() -> Identity:
    """A process that lives and is not this one."""
    found = identify(1)
    assert found
    return found


def write(claim: dict) -> None:
    (machine_folder() / "machine.lock").write_text(json.dumps(claim))


def test_a_living_owner_keeps_others_out_between_its_launches(tmp_path):
    write(claim_of(init()))
    with (
        pytest.raises(MachineBusy, match=r"'other' \(process 1 of somebody, launch since .* results in /r\)"),
        machine_lock.machine_lock("mine", tmp_path),
    ):
        pass


@pytest.mark.parametrize("claim", ["dead", "reused pid", "before the last boot", "torn"])
def test_a_stale_claim_is_void(tmp_path, claim):
    texts = {
        "dead": json.dumps(claim_of(Identity(2**22 + 1, 5))),
        "reused pid": json.dumps(claim_of(Identity(1, init().start_ticks + 1))),
        "before the last boot": json.dumps(claim_of(init(), boot="another")),
        "torn": '{"experiment": "oth',
    }
    (machine_folder() / "machine.lock").write_text(texts[claim])
    with machine_lock.machine_lock("mine", tmp_path):
        holder = machine_lock.holder()
        assert holder and (holder.experiment, holder.owner.pid) == ("mine", os.getpid())


def test_the_run_that_marked_itself_is_the_owner_even_when_it_is_dead_already(monkeypatch):
    monkeypatch.setenv(machine_lock.RUN_VARIABLE, "")
    machine_lock.mark_run()
    assert machine_lock.run_owner() == identify(os.getpid())
    monkeypatch.setenv(machine_lock.RUN_VARIABLE, f"{boot_id()} {2**22 + 1} 5")
    assert machine_lock.run_owner() == Identity(2**22 + 1, 5)
    monkeypatch.setenv(machine_lock.RUN_VARIABLE, f"another/1 {2**22 + 1} 5")
    assert machine_lock.run_owner() != Identity(2**22 + 1, 5)


def test_launches_of_one_experiment_wait_for_each_other(tmp_path):
    said, entered = [], threading.Event()

    def second() -> None:
        with machine_lock.machine_lock("mine", tmp_path, progress=said.append):
            entered.set()

    with machine_lock.machine_lock("mine", tmp_path):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(0.5)
    waiting.join(10)
    assert entered.is_set() and "waiting for another launch of this experiment" in said[0]


def test_one_process_may_run_one_experiment_after_another(tmp_path):
    for name in ("first", "second"):
        with machine_lock.machine_lock(name, tmp_path / name):
            pass


def test_the_lock_is_never_taken_through_a_link(tmp_path):
    target = tmp_path / "victim"
    target.write_text("precious")
    (machine_folder() / "machine.lock").symlink_to(target)
    with pytest.raises(OSError), machine_lock.machine_lock("mine", tmp_path):
        pass
    assert target.read_text() == "precious"


def test_claims_of_one_experiment_are_told_by_name_and_results():
    claim = claim_of(init())
    one = Claim(**claim | {"owner": init(), "launch": init()})
    assert one.of(one) and not one.of(Claim(**claim | {"owner": init(), "launch": init(), "results": "/else"}))
