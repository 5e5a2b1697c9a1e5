"""The next run clears up after a killed one: servers whose job and guardian are both gone, by pid and start time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .processes import Identity, boot_id
from .server import end_recorded
from .state import records_folder

GUARDIAN_WAIT_S = 90.0


@dataclass(frozen=True)
class Reaped:
    """One abandoned launch: its label, how many processes were found alive, and the pids that could not be ended."""

    label: str
    found: int
    left: tuple[int, ...]


def records() -> list[dict]:
    """Return the records of this user's running or abandoned launches, `path` added; torn ones are left out."""
    found = []
    for path in sorted(records_folder().glob("*.json")):
        try:
            found.append(json.loads(path.read_text()) | {"path": path})
        except (ValueError, OSError):
            continue
    return found


def reap(*, progress: Callable[[str], None] = lambda _text: None, wait_s: float = GUARDIAN_WAIT_S) -> list[Reaped]:
    """End what abandoned launches of this user left, and return what was found. Launches of living jobs stay.

    A living guardian of a dead job is at work already: it gets `wait_s` to finish.
    """
    reaped = []
    for record in records():
        path: Path = record["path"]
        if record["boot"] == boot_id() and Identity(*record["job"]).alive():
            continue
        guardian = Identity(*record["guardian"]) if record.get("guardian") and record["boot"] == boot_id() else None
        deadline = time.monotonic() + wait_s
        if guardian and guardian.alive():
            progress(f"waiting until the server of an interrupted launch ({record['label']}) is stopped")
            while guardian.alive() and path.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
        if not path.exists():
            continue
        alive = [pid for pid, ticks, _ in record["processes"] if Identity(pid, ticks).alive()]
        left = end_recorded(path)
        if record.get("scratch") and not left:
            shutil.rmtree(record["scratch"], ignore_errors=True)
        reaped.append(Reaped(record["label"], len(alive), tuple(identity.pid for identity in left)))
    return reaped
