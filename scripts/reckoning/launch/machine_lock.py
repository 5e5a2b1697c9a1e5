"""One experiment per machine: two that ran side by side would measure each other.

Two things are held. A `flock` by the running launch: the kernel frees it when its last holder dies, and the guardian of
the server is one of the holders, so that it stays taken until the server is truly gone. And a claim, written into the
locked file, by the run (the Snakemake process, or whoever calls): it keeps other experiments out between two launches.
A claim whose process is dead, or is from before the last boot, is stale and void.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .processes import Identity, ancestors, boot_id, command_line, identify
from .state import machine_folder, open_shared

LAST_LAUNCH_WAIT_S = 180.0
RUN_VARIABLE = "RECKONING_RUN"


class MachineBusy(RuntimeError):
    """Another experiment is being measured on this machine. The message names its owner and what to do."""


@dataclass(frozen=True)
class Claim:
    """Who measures on this machine."""

    experiment: str
    results: str
    user: str
    since: str
    owner: Identity
    launch: Identity
    boot: str

    def stale(self) -> bool:
        """Return whether its run is over: the process is gone, or the machine was booted since."""
        return self.boot != boot_id() or not self.owner.alive()

    def of(self, other: Claim) -> bool:
        """Return whether both belong to one experiment (its launches wait for each other)."""
        return (self.experiment, self.results) == (other.experiment, other.results)


@contextlib.contextmanager
def machine_lock(
    experiment: str, results: Path, *, progress: Callable[[str], None] | None = None, say_every_s: float = 30.0
) -> Iterator[int]:
    """Hold the machine for one launch; yield the lock's descriptor, which the guardian shares.

    Waits for another launch of the same experiment, and (at most three minutes) until the guardian of a dead job has
    stopped its server. Raises MachineBusy when another living experiment has the machine.
    """
    mine = _claim(experiment, results)
    descriptor = open_shared(machine_folder() / "machine.lock")
    try:
        _take(descriptor, mine, progress or (lambda _text: None), say_every_s)
        _write(descriptor, mine)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, mine: Claim, progress: Callable[[str], None], say_every_s: float) -> None:
    orphaned_since = said_at = None
    while True:
        free = _try(descriptor)
        theirs = _read(descriptor)
        foreign = theirs is not None and theirs.owner != mine.owner and not theirs.stale() and not theirs.of(mine)
        if theirs and foreign:
            raise MachineBusy(_busy_text(theirs))
        if free:
            return
        now = time.monotonic()
        if theirs is None or theirs.stale() or not theirs.launch.alive():
            orphaned_since = orphaned_since or now
            if now - orphaned_since > LAST_LAUNCH_WAIT_S:
                raise MachineBusy(
                    f"the server of an interrupted launch was not gone after {LAST_LAUNCH_WAIT_S:.0f} s; the lock "
                    f"{machine_folder() / 'machine.lock'} is still held. `python -m reckoning.launch status` names its "
                    "processes."
                )
            text = "waiting until the server of an interrupted launch is gone"
        else:
            text = f"waiting for another launch of this experiment (pid {theirs.launch.pid})"
        if said_at is None or now - said_at > say_every_s:
            progress(text)
            said_at = now
        time.sleep(0.2)


def holder() -> Claim | None:
    """Return the valid claim on this machine, or None when it is free."""
    path = machine_folder() / "machine.lock"
    if not path.exists():
        return None
    descriptor = open_shared(path)
    try:
        claim = _read(descriptor)
    finally:
        os.close(descriptor)
    return None if claim is None or claim.stale() else claim


def mark_run() -> None:
    """Note in the environment, which jobs inherit, that this process stands for the run.

    A job that finds out by itself who its parents are comes too late when they were killed just after it began.
    """
    me = identify(os.getpid())
    assert me is not None
    os.environ[RUN_VARIABLE] = f"{boot_id()} {me.pid} {me.start_ticks}"


def _marked_run() -> Identity | None:
    """Return the process that `mark_run` noted; one of another machine or boot (a cluster's job) says nothing here."""
    boot, *numbers = os.environ.get(RUN_VARIABLE, "").split()[-3:] or [""]
    return Identity(*map(int, numbers)) if boot == boot_id() and len(numbers) == 2 else None


def run_owner() -> Identity:
    """Return the process that stands for the whole run: the outermost Snakemake above us, else this process."""
    if (marked := _marked_run()) is not None:
        return marked
    owner = identify(os.getpid())
    for status in ancestors(os.getpid()):
        if any(Path(part).name == "snakemake" for part in command_line(status.identity.pid)[:3]):
            owner = status.identity
    assert owner is not None
    return owner


@contextlib.contextmanager
def ending_with_the_run(every_s: float = 1.0) -> Iterator[None]:
    """End this process by SIGTERM when the run that it belongs to is gone: a killed Snakemake does not end its jobs.

    The guardian then stops the server, as after every death of a job. Nothing is watched outside of Snakemake.
    """
    owner, over = run_owner(), threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            if not owner.alive():
                os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch, daemon=True, name="run-watch")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _claim(experiment: str, results: Path) -> Claim:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    me = identify(os.getpid())
    assert me is not None
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    return Claim(experiment, str(results.resolve()), user, since, run_owner(), me, boot_id())


def _busy_text(claim: Claim) -> str:
    return (
        f"this machine is measuring the experiment '{claim.experiment}' (process {claim.owner.pid} of {claim.user}, "
        f"launch since {claim.since}, results in {claim.results}). Two experiments at once would disturb each other's "
        f"numbers: wait until it has ended, or stop process {claim.owner.pid}; then run the same command again."
    )


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> Claim | None:
    """Return the written claim; an empty or torn one counts as none."""
    try:
        value = json.loads(os.pread(descriptor, 1 << 16, 0))
        value["owner"], value["launch"] = Identity(*value["owner"]), Identity(*value["launch"])
        return Claim(**value)
    except (ValueError, KeyError, TypeError):
        return None


def _write(descriptor: int, claim: Claim) -> None:
    value = vars(claim) | {
        "owner": [claim.owner.pid, claim.owner.start_ticks],
        "launch": [claim.launch.pid, claim.launch.start_ticks],
    }
    text = json.dumps(value).encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
