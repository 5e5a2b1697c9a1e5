"""Attempts at one launch, each in a folder of its own: what a killed one left is evidence, and never a result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from reckoning.files import write_json

from .telemetry import remove_samples

SCHEMA_VERSION = 1
KEPT_LOGS = 5


@dataclass
class Attempt:
    """One attempt: its folder, and its note `attempt.json`, whose `ended_at` stays null when the attempt was killed."""

    folder: Path
    note: dict[str, Any]

    @property
    def log(self) -> Path:
        """The server's output."""
        return self.folder / "server.log"

    def keep_point(self, entry: Mapping[str, Any]) -> None:
        """Append a finished point to `points.jsonl` and flush it to the disk."""
        with (self.folder / "points.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def end(self, status: str, class_: str | None, *, final: bool = False) -> None:
        """Note how the attempt ended; `final` when it gives the launch's outcome. `save` makes it last."""
        self.note |= {"ended_at": wall_time(), "status": status, "class": class_, "final": final}

    def save(self) -> None:
        """Write the note."""
        write_json(self.folder / "attempt.json", self.note)


def begin(launch_folder: Path, digest: str) -> Attempt:
    """Begin the next attempt. Attempts before a whole outcome, or of another digest, are history and removed.

    A sixth and older interrupted attempt keeps its note and loses its log and its samples.
    """
    earlier = read(launch_folder)
    stale = [one for one in earlier if one.note.get("digest") not in (digest, None)]
    complete = [index for index, one in enumerate(earlier) if one.note.get("final")]
    if complete:
        stale += earlier[: complete[-1] + 1]
    for one in stale:
        shutil.rmtree(one.folder, ignore_errors=True)
    number = max((one.note["number"] for one in earlier), default=0) + 1
    kept = [one for one in earlier if one.folder.exists()]
    for one in kept[:-KEPT_LOGS]:
        one.log.unlink(missing_ok=True)
        remove_samples(one.folder)
    folder = launch_folder / "attempts" / str(number)
    folder.mkdir(parents=True)
    note = {
        "schema_version": SCHEMA_VERSION,
        "number": number,
        "digest": digest,
        "started_at": wall_time(),
        "ended_at": None,
        "status": "running",
        "class": None,
        "final": False,
    }
    attempt = Attempt(folder, note)
    attempt.save()
    return attempt


def read(launch_folder: Path) -> list[Attempt]:
    """Return the attempts on disk in their order; a folder without a note was interrupted at once."""
    found = []
    for folder in (launch_folder / "attempts").glob("*"):
        if not folder.name.isdigit():
            continue
        try:
            note = json.loads((folder / "attempt.json").read_text())
        except (OSError, ValueError):
            note = {"number": int(folder.name), "status": "running"}
        found.append(Attempt(folder, note))
    return sorted(found, key=lambda one: one.note["number"])


def as_outcome(attempts: list[Attempt]) -> list[dict[str, Any]]:
    """Return `attempts` of outcome.json: an attempt without an end was interrupted."""
    return [_in_words(one) for one in attempts]


def _in_words(one: Attempt) -> dict[str, Any]:
    words = {key: one.note.get(key) for key in ("started_at", "ended_at", "status", "class")}
    if words["ended_at"] is None:
        kept = one.folder / "points.jsonl"
        points = len(kept.read_text(encoding="utf-8").splitlines()) if kept.exists() else 0
        words |= {"status": "interrupted", "class": "interrupted", "points_kept": points}
    return words


def wall_time() -> str:
    """Return the wall time with its zone, to the second: a label, never a measure."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
